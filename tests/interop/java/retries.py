"""Messages whose handlers fail: the retry ladder and the dead-letter queue."""

from harness import process, tap

from .puppet import Refused
from .scenario import scenario


@scenario("RT-2 RT-3 RT-4", "later, null and an exception bring the message again from %RETRY%group; success does not")
def ways_to_retry(play):
    play.stage.need_own("the ladder must be short")
    topic = play.topic(queues=1)
    groups = {way: play.group() for way in ("later", "null", "throw", "ok")}
    tap.equal([play.stage.route("%RETRY%" + group) for group in groups.values()], [{}] * 4, "retry topics before")
    listeners = {way: play.listen(topic, group, behave=way, only=1, fails=1) for way, group in groups.items()}
    sent = play.send(topic, 3)
    for way, listener in listeners.items():
        again = 1 if way == "ok" else 2
        process.wait_until(lambda each=listener, count=again: each.numbers().count(1) >= count, 60,
                           "message 1 again after %s" % way)
    for way, listener in listeners.items():
        listener.wait_all(range(3))
        tries = [each for each in listener.received() if each["number"] == 1]
        tap.equal([each["reconsumed"] for each in tries], [0] if way == "ok" else [0, 1], "repetitions after %s" % way)
        tap.equal({each["id"] for each in tries}, {sent[1]["id"]}, "ids after %s" % way)
        tap.equal({each["topic"] for each in tries}, {topic}, "topic the handler sees")
        if way != "ok":
            wait = tries[1]["at"] - tries[0]["at"]
            tap.check(wait >= 1000, "again after %d ms, the ladder says 1 s" % wait)
            tap.check(play.stage.route("%RETRY%" + groups[way]), "no topic %%RETRY%%%s" % groups[way])


@scenario("RT-7 DS-11", "17 executions with one id, then one dead letter", slow=True)
def whole_ladder(play):
    play.stage.need_own("the ladder must be short")
    topic, group = play.topic(queues=1), play.group()
    listener = play.listen(topic, group, behave="later")
    sent, = play.send(topic, 1)
    process.wait_until(lambda: len(listener.received()) >= 17, 80, "17 deliveries", pause=0.2)
    letter, = dead_letters(play, group, 1)
    tap.equal([each["reconsumed"] for each in listener.received()], list(range(17)), "repetitions")
    tap.equal({each["id"] for each in [*listener.received(), letter]}, {sent["id"]}, "ids")
    gaps = [after["at"] - before["at"] for before, after in zip(listener.received(), listener.received()[1:])]
    tap.note("from try to try, in ms: %s" % gaps)
    tap.check(min(gaps) >= 1000, "a retry came early: %s" % gaps)


def dead_letters(play, group, count):
    """Read %DLQ%group as an operator does: permission to read first, then a pull of every queue."""
    topic = "%DLQ%" + group
    process.wait_until(lambda: play.stage.route(topic), 40, "route of %s" % topic, pause=0.2)
    set_permission(play, topic, 6)
    return process.wait_until(lambda: pull_all(play, topic, count), 30, "%d dead letters" % count, pause=0.3)


def pull_all(play, topic, count):
    found, reader = [], play.name + "_reader"
    for name, (queues, _) in play.stage.route(topic).items():
        for queue in range(queues):
            found += play.call("pull", topic=topic, group=reader, broker=name, queue=queue)["messages"]
    tap.check(len(found) <= count, "%d messages in %s: %s" % (len(found), topic, [each["number"] for each in found]))
    return found if len(found) == count else None


def set_permission(play, topic, perm):
    """Through the official admin tool, on every broker that has the topic."""
    for broker in play.stage.brokers:
        if broker.name in play.stage.route(topic):
            play.admin("updateTopicPerm -b %s -t %s -p %d" % (broker.address, topic, perm), "perm")
    play.stage.wait_route(topic, lambda route: {each for _, each in route.values()} == {perm})


@scenario("DL-1 DL-2 DL-3 DL-4 DL-6", "dead letters of all topics and members lie in one %DLQ%group that nobody may read "
          "until its permission is changed", slow=True)
def dead_letter_queue(play):
    play.stage.need_own("the ladder must be short")
    topics, group = [play.topic(queues=2), play.topic(queues=2)], play.group()
    members = [play.listen(",".join(topics), group, behave="later", retries=1) for _ in range(2)]
    for member in members:
        member.topic = topics[0]
        member.wait_assigned(len(play.stage.route(topics[0])))
    tap.equal(play.stage.route("%DLQ%" + group), {}, "dead-letter topic before the first dead letter")
    sent = {each["number"]: each for topic, first in zip(topics, (0, 10)) for each in play.send(topic, 10, first=first)}
    dead = "%DLQ%" + group
    # A member may hear of its retry topic's queues only when it asks for routes again, every 30 s.
    process.wait_until(lambda: play.stored(dead) >= 20, 150, "20 dead letters stored", pause=0.3)
    tap.equal(play.stored(dead), 20, "dead letters stored")
    perms = {perm for _, perm in play.stage.route(dead).values()}
    tap.equal({queues for queues, _ in play.stage.route(dead).values()}, {1}, "queues of the dead-letter topic")
    if play.stage.kind == "ours":
        tap.equal(perms, {2}, "permission at first")
    elif perms != {2}:
        tap.note("this broker makes it with permission %s" % perms)
        set_permission(play, dead, 2)
    try:
        tap.check(False, "read without permission: %s" % pull_all(play, dead, 20))
    except Refused as reason:
        tap.check("CODE: 16" in str(reason), "pull without permission: %s" % reason)
    letters = dead_letters(play, group, 20)
    tap.equal(sorted(each["number"] for each in letters), list(range(20)), "dead letters")
    for letter in letters:
        origin = sent[letter["number"]]
        tap.equal(letter["id"], origin["id"], "id")
        tap.equal(letter["properties"].get("RETRY_TOPIC"), topics[letter["number"] >= 10], "original topic")
        tap.equal(letter["properties"].get("ORIGIN_MESSAGE_ID"), origin["offset_id"], "original offset id")
    # DL-4: each message was tried twice, and no member was given one from the dead-letter queue.
    deliveries = [each for member in members for each in member.received()]
    tap.equal(sorted(each["number"] for each in deliveries), sorted(list(range(20)) * 2), "deliveries")


@scenario("DL-3", "an orderly member's message that fails too often becomes a dead letter too, and the queue goes on")
def orderly_dead_letter(play):
    play.stage.need_own("the permission of the dead-letter topic is changed")
    topic, group = play.topic(queues=1, brokers=play.stage.brokers[:1]), play.group()
    listener = play.listen(topic, group, orderly=True, behave="later", only=2, retries=2)
    play.send(topic, 5)
    listener.wait_all(range(5))
    letter, = dead_letters(play, group, 1)
    tap.equal(letter["number"], 2, "the dead letter")
    # The client sends it to the retry topic of any broker, and only one where the group has a lock makes it a dead letter
    # at once. Elsewhere client 4.9.8 gets it once more through the ladder.
    tap.equal(listener.numbers()[:7], [0, 1, 2, 2, 2, 3, 4], "deliveries in order")
    tap.equal(set(listener.numbers()[7:]) - {2}, set(), "other deliveries")
