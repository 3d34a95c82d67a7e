"""Consumer groups: who gets what, and what happens when members come, go and die."""

import collections
import statistics
import time

from harness import process, tap

from . import puppet
from .puppet import Refused, wait_all
from .scenario import NEW, scenario


def expected_blocks(places, client_ids):
    """Queues in contiguous blocks over the sorted client ids, as the default strategy divides them."""
    places, owners = sorted(places), sorted(client_ids)
    size, more = divmod(len(places), len(owners))
    blocks = {}
    for index, owner in enumerate(owners):
        begin = index * size + min(index, more)
        blocks[owner] = places[begin:begin + size + (index < more)]
    return blocks


@scenario("RM-7 LB-3", "in clustering two members share 1,000 messages, each delivered once, and all compute the same shares")
def clustering(play):
    topic, group = play.topic(queues=5, brokers=play.stage.brokers[:1]), play.group()
    members = [play.listen(topic, group) for _ in range(2)]
    places = ["%s/%d" % (play.stage.brokers[0].name, queue) for queue in range(5)]

    def settled(of):
        blocks = expected_blocks(places, [each.client_id for each in of])
        return all(each.assigned() == blocks[each.client_id] for each in of)
    process.wait_until(lambda: settled(members), 30, "shares for two members", pause=0.2)
    play.send(topic, 1000)
    wait_all(members, range(1000))
    play.wait_committed(group, topic, 1000)
    tap.equal(sum(len(each.received()) for each in members), 1000, "deliveries")
    tap.check(all(each.received() for each in members), "one member got nothing")
    # A third joins, the first leaves; the shares follow.
    members.append(play.listen(topic, group))
    process.wait_until(lambda: settled(members), 30, "shares for three members", pause=0.2)
    members[0].stop()
    process.wait_until(lambda: settled(members[1:]), 30, "shares for the two that are left", pause=0.2)


@scenario("RM-7 LB-10", "in broadcasting every member has all queues: 1,000 messages, two members, 2,000 deliveries")
def broadcasting(play):
    topic, group = play.topic(queues=4, brokers=play.stage.brokers[:1]), play.group()
    members = [play.listen(topic, group, model="BROADCASTING") for _ in range(2)]
    for member in members:
        member.wait_assigned(4)
    play.send(topic, 1000)
    for member in members:
        member.wait_all(range(1000))
        tap.equal(len(member.received()), 1000, "deliveries to %s" % member.name)
    third = play.listen(topic, group, model="BROADCASTING")
    for member in [*members, third]:
        member.wait_assigned(4)
    tap.equal(play.committed(group, topic), {}, "offsets at the broker")


@scenario("RT-1", "in broadcasting a message that fails is not repeated, and nothing is in the retry topic")
def broadcasting_failure(play):
    topic, group = play.topic(queues=1, brokers=play.stage.brokers[:1]), play.group()
    listener = play.listen(topic, group, model="BROADCASTING", behave="later", only=5)
    play.send(topic, 10)
    listener.wait_all(range(10))
    play.send(topic, 1, first=10, delay=2)  # time for a repetition to come, if there was one
    listener.wait_all(range(11))
    tap.equal(sorted(listener.numbers()), list(range(11)), "deliveries")
    # Apache's broker makes the retry topic of every group with its first heartbeat.
    tap.equal(play.stored("%RETRY%" + group), 0, "messages in the retry topic")


@scenario("LB-2", "100 orders of 5 steps, 4 orderly members: each order's steps come in order, from one queue")
def orders(play):
    topic, group = play.topic(queues=4), play.group()
    members = [play.listen(topic, group, orderly=True) for _ in range(4)]
    for member in members:
        member.wait_assigned(len(play.stage.route(topic)))
    play.send(topic, 500, mode="orders", orders=100)
    wait_all(members, range(500))
    steps, queues = collections.defaultdict(list), collections.defaultdict(set)
    for member in members:
        for got in member.received():
            order = got["properties"]["order"]
            queues[order].add((got["broker"], got["queue"]))
            if not steps[order] or steps[order][-1] != int(got["properties"]["step"]):
                steps[order].append(int(got["properties"]["step"]))
    tap.equal(len(steps), 100, "orders")
    tap.equal({tuple(each) for each in steps.values()}, {(1, 2, 3, 4, 5)}, "steps")
    tap.equal({len(each) for each in queues.values()}, {1}, "queues per order")


@scenario("LB-2", "an orderly member that says later gets the same message again, before any other of its queue")
def orderly_suspend(play):
    topic, group = play.topic(queues=1, brokers=play.stage.brokers[:1]), play.group()
    listener = play.listen(topic, group, orderly=True, behave="later", only=3, fails=2)
    play.send(topic, 6)
    listener.wait_all(range(6))
    tap.equal(listener.numbers(), [0, 1, 2, 3, 3, 3, 4, 5], "deliveries in order")
    tap.equal([each["reconsumed"] for each in listener.received()], [0, 0, 0, 0, 1, 2, 0, 0], "times repeated")


@scenario("CO-3 DS-2", "a member dies by SIGKILL with messages in its hands: the other gets everything")
def dying_member(play):
    topic, group = play.topic(queues=4), play.group()
    # Its own program; the 5.x one also speaks binary headers and the second form of heartbeats.
    properties = ["rocketmq.serialize.type=ROCKETMQ", "com.rocketmq.heartbeat.v2=true"]
    victim = puppet.Puppet(play.unique("victim"), play.stage.names, play.version, properties)
    dying = play.listen(topic, group, where=victim, behave="hang")
    living = play.listen(topic, group)
    share = 2 * len(play.stage.route(topic))
    for member in (dying, living):
        member.wait_assigned(share)
    play.send(topic, 200)
    process.wait_until(lambda: len(dying.received()) >= 4, 30, "the victim holds messages")
    held = set(dying.numbers())
    tap.check(not held & set(living.numbers()), "messages at both")
    victim.kill9()
    living.wait_all(range(200))
    living.wait_assigned(2 * share)
    play.wait_committed(group, topic, 200)
    tap.note("%d messages were in the hands of the dead" % len(held))


@scenario("RM-5", "a message on an idle queue is there at once: the waiting pull is woken")
def woken_at_once(play):
    topic = play.topic(queues=1, brokers=play.stage.brokers[:1])
    listener = play.listen(topic, play.group())
    for number in range(20):
        play.send(topic, 1, first=number)
        listener.wait_all([number])
        time.sleep(0.02)  # the next one shall find a pull that waits
    waits = sorted(each["at"] - each["stored"] for each in listener.received()[1:])
    tap.note("store to handler, in ms: median %g, most %d" % (statistics.median(waits), waits[-1]))
    # A pull that nobody wakes is looked at again after 5 s at the broker, or 15 s at the client.
    tap.check(statistics.median(waits) < 500, "median of %s ms" % waits)


@scenario("filters", "SQL92 expressions over properties select messages at the broker")
def sql_filter(play):
    topic = play.topic(queues=2)
    try:
        listeners = {sql: play.listen(topic, play.group(), sql=sql) for sql in (
            "n BETWEEN 3 AND 5", "n > 7 AND TAGS = 'b'", "TAGS IN ('a', 'c') AND n IS NOT NULL",
            "colour IS NULL AND NOT (n <> 4)")}
    except Refused as reason:
        if not play.stage.own and "does not support" in str(reason):
            tap.skip("the given broker has enablePropertyFilter=false")
        raise
    play.send(topic, 60, tags="a,b,c")
    wanted = dict(zip(listeners, (
        [x for x in range(60) if 3 <= x % 10 <= 5], [x for x in range(60) if x % 10 > 7 and x % 3 == 1],
        [x for x in range(60) if x % 3 != 1], [x for x in range(60) if x % 10 == 4])))
    for sql, listener in listeners.items():
        listener.wait_all(wanted[sql])
        tap.equal(sorted(listener.numbers()), wanted[sql], "messages for %s" % sql)


@scenario("filters", "a bad SQL92 expression is refused when the consumer starts")
def sql_refused(play):
    topic = play.topic(queues=1)
    try:
        play.listen(topic, play.group(), sql="n BETWEEN AND 5")
        tap.check(False, "the consumer started")
    except Refused as reason:
        tap.note(reason)
        tap.check("n BETWEEN AND 5" in str(reason) or "CODE: 23" in str(reason), "refused with %s" % reason)


@scenario("CO-2 RM-8", "a group goes on where it stopped: offsets are those of what was completed, per queue")
def client_restart(play):
    topic, group = play.topic(queues=2), play.group()
    first = play.listen(topic, group)
    sent = play.send(topic, 100)
    first.wait_all(range(100))
    play.wait_committed(group, topic, 100)
    counts = collections.Counter("%(broker)s/%(queue)d" % each for each in sent)
    tap.equal(play.committed(group, topic), counts, "offsets per queue")
    first.stop()
    play.send(topic, 50, first=100)
    second = play.listen(topic, group)
    second.wait_all(range(100, 150))
    tap.equal(sorted(second.numbers()), list(range(100, 150)), "deliveries after the restart")


@scenario("CO-2", "an offset does not pass a message whose handler has not returned", versions=(NEW,))
def unfinished(play):
    topic, group = play.topic(queues=1, brokers=play.stage.brokers[:1]), play.group()
    listener = play.listen(topic, group, behave="hang", only=3)
    play.send(topic, 10)
    listener.wait_all(range(10))
    play.wait_committed(group, topic, 3)
    play.send(topic, 10, first=10)
    listener.wait_all(range(20))
    time.sleep(1.5)  # three rounds of the client's commit
    tap.equal(sum(play.committed(group, topic).values()), 3, "offset")


@scenario("offsets", "a new group starts at the first message, at the last, or at a time, as it asks")
def consume_from(play):
    topic = play.topic(queues=1, brokers=play.stage.brokers[:1])
    play.send(topic, 10)
    # The client gives the time in whole seconds.
    time.sleep(1.1)
    middle = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time()))
    time.sleep(1.1)
    play.send(topic, 10, first=10)
    # In clustering the broker answers 0 for a young queue that a group never saw, whatever the group asked for; a group
    # in broadcasting keeps its own offsets and so shows what the client does.
    kinds = {"first": dict(), "young": dict(**{"from": "LAST_OFFSET"}),
             "last": dict(model="BROADCASTING", **{"from": "LAST_OFFSET"}),
             "time": dict(model="BROADCASTING", timestamp=middle, **{"from": "TIMESTAMP"})}
    listeners = {kind: play.listen(topic, play.group(), **args) for kind, args in kinds.items()}
    for kind, begin in (("first", 0), ("young", 0), ("time", 10)):
        listeners[kind].wait_all(range(begin, 20))
    listeners["last"].wait_assigned(1)
    time.sleep(1)  # it pulls half a second after it was given the queue, from where the end was when it was given
    play.send(topic, 5, first=20)
    for kind, begin in (("first", 0), ("young", 0), ("time", 10), ("last", 20)):
        listeners[kind].wait_all(range(begin, 25))
        tap.equal(sorted(listeners[kind].numbers()), list(range(begin, 25)), "messages from %s" % kind)
