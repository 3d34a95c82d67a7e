"""Servers that stop, crash and come back while clients are at work. These scenarios run alone, in this order."""

from harness import process, tap

from .puppet import Refused, wait_all
from .scenario import NEW, scenario


@scenario("RM-10", "topics, groups, offsets and messages are there after a clean restart of the brokers; clients go on",
          versions=(NEW,), alone=True)
def broker_restart(play):
    play.stage.need_own("the brokers are restarted")
    topic, group, slow = play.topic(queues=2), play.group(), play.topic(queues=2)
    listener, patient = play.listen(topic, group), play.listen(slow, play.group())
    play.send(topic, 100)
    listener.wait_all(range(100))
    play.wait_committed(group, topic, 100)
    play.send(slow, 10, delay=2)
    before = play.committed(group, topic)
    for broker in play.stage.brokers:
        broker.restart()
    play.stage.wait_route(topic, lambda route: len(route) == len(play.stage.brokers))
    tap.equal(play.committed(group, topic), before, "offsets after the restart")
    play.send(topic, 100, first=100, patience=60)
    listener.wait_all(range(200))
    patient.wait_all(range(10))
    again = [number for number in listener.numbers()[100:] if number < 100]
    tap.equal(again, [], "messages from before the restart that came again")


@scenario("DS-5 RM-4 RM-10 CO-3", "a broker dies by SIGKILL amid sending and consuming: clients recover by themselves and no "
          "acknowledged message is missing", alone=True)
def broker_killed(play):
    play.stage.need_own("a broker is killed")
    dying = play.stage.brokers[0]
    topic, group, orderly = play.topic(queues=4), play.group(), play.group()
    members = [play.listen(topic, group) for _ in range(2)]
    in_order = play.listen(topic, orderly, orderly=True)
    everyone = play.listen(topic, play.group(), model="BROADCASTING")
    in_order.wait_assigned(4 * len(play.stage.brokers))
    producers = [play.puppet.start("send", topic=topic, first=1000 * index, count=1000, patience=90, pause=3,
                                   producer="%s_%d" % (play.name, index)) for index in range(3)]
    process.wait_until(lambda: len(in_order.numbers()) > 300, 60, "messages flow")
    dying.server.kill9()
    callbacks = play.call("send", topic=topic, count=20, first=9000, mode="async", broker=dying.name, queue=0,
                          producer=play.name, limit=3000)
    dying.server.start()
    tap.check(all("error" in each for each in callbacks), "a dead broker acknowledged: %s" % callbacks)
    # The client counts from the call and looks once a second, on a machine that may stand still for some.
    tap.check(max(each["ms"] for each in callbacks) <= 12000, "callbacks after %s ms" % [each["ms"] for each in callbacks])
    sent = {}
    for future in producers:
        for each in future.result(150):
            tap.check("error" not in each, "not sent: %s" % each)
            sent[each["number"]] = each
    tap.equal(len(sent), 3000, "acknowledged")
    used = lambda: {each["broker"] for each in play.send(topic, 40, first=9500, patience=30)}  # noqa: E731
    process.wait_until(lambda: used() == {each.name for each in play.stage.brokers}, 60, "the broker is used again")
    wait_all(members, sent, 60)
    in_order.wait_all(sent, 60)
    everyone.wait_all(sent, 60)
    for listener in (*members, in_order, everyone):
        wrong = [each for each in listener.received() if not each["intact"]]
        tap.equal(wrong, [], "damaged messages")
    wanted = {each["id"] for each in sent.values()}
    tap.equal(wanted - {each["id"] for each in in_order.received()}, set(), "acknowledged ids that were not received")
    found = [play.call("view", topic=topic, id=sent[number]["offset_id"], producer=play.name)["id"]
             for number in range(0, 3000, 100)]
    tap.equal(found, [sent[number]["id"] for number in range(0, 3000, 100)], "messages by offset id")
    again = [number for number in in_order.numbers() if number in sent]
    tap.note("%d messages came again to the orderly member" % (len(again) - len(set(again))))


@scenario("RM-11", "with two of three name servers killed, clients and brokers go on, also with new topics; those that come back "
          "learn all routes again", alone=True)
def name_servers_killed(play):
    play.stage.need_own("name servers are killed")
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    play.send(topic, 50)
    listener.wait_all(range(50))
    everyone, play.stage.name_servers = play.stage.name_servers, play.stage.name_servers[-1:]
    for server in everyone[:-1]:
        server.server.kill9()
    play.send(topic, 50, first=50, patience=60)
    listener.wait_all(range(100))
    fresh = play.topic(queues=2)
    # Calls that meet a dead name server fail until the client has found the one that lives.
    second = process.wait_until(lambda: listen_or_none(play, fresh), 90, "a consumer of the new topic", pause=1)
    play.send(fresh, 50, patience=60)
    second.wait_all(range(50))
    for server in everyone[:-1]:
        server.server.start()
    play.stage.name_servers = everyone
    play.stage.wait_route(fresh, lambda route: len(route) == len(play.stage.brokers))


def listen_or_none(play, topic):
    try:
        return play.listen(topic, play.group())
    except Refused as reason:
        tap.note(reason)
        return None
