#!/usr/bin/env python3
"""Rows of the checklist about how often a message comes, and when, that need a line which loses something or a broker whose
clock is put forward. One oncemqd with a virtual clock; the line to it is the test's own (harness/proxy.py)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.fake import Fake, routes  # noqa: E402
from harness.proxy import Relay  # noqa: E402
from interop import plays  # noqa: E402
from interop.stage import _read_queue, unique  # noqa: E402

ADVANCE_CLOCK, ACK_MESSAGE = 10001, 200051
LADDER = "1s 5s 60s 90s"  # a retry takes level 3, then 4, and the last for all others


class House:
    """A broker, a line to it and a name server that knows the line."""

    def __init__(self):
        self.daemon = tap.watch(Daemon(args=["--clock", "virtual"], settings={"brokerName": "a", "messageDelayLevel": LADDER}))
        self.line = Relay("line", "127.0.0.1:0", self.daemon.broker)
        self.names = Fake(routes({"a": self.line.address}))
        self.puppet = tap.watch(puppet.start_c("rows", self.names.address))
        self.puppet.call("producer", name="p", group="p")

    def ask(self, code, **ext):
        with remoting.Client(self.daemon.broker) as client:
            return client.request(code, ext)

    def advance(self, seconds):
        tap.equal(self.ask(ADVANCE_CLOCK, advanceMillis=int(seconds * 1000)).code, remoting.SUCCESS, "code")

    def send(self, *messages):
        return self.puppet.call("send", name="p", messages=list(messages))

    def consumer(self, name, topic, on=None, **options):
        (on or self.puppet).call("consumer", name=name, group=unique("g_" + topic), topic=topic, from_="first", **options)
        return name

    def given_back(self, name, count):
        process.wait_until(lambda: self.puppet.call("stats", name=name)["sent_back"] == count, 10, "it is given back")

    def route(self, topic):
        with remoting.Client(self.daemon.names) as client:
            answer = client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return answer.json() if answer.code == remoting.SUCCESS else None


here = plays.Once(House)


@tap.test("DS-7: an acknowledgement that is lost brings the message again, under the same id")
def _():
    house, topic = here(), unique("LostAck")
    [sent] = house.send(puppet.message(topic, "x"))
    lost = []

    def lose(passed):
        if passed.to_server and not lost and passed.command.code == ACK_MESSAGE:
            lost.append(passed)
            return True
        return False
    house.line.lose = lose
    house.consumer("pops", topic, pop=True, invisible_ms=5000)
    process.wait_until(lambda: lost, 20, "the acknowledgement is on its way")
    house.advance(6)
    got = house.puppet.wait_messages("pops", 2)
    tap.equal([each["id"] for each in got], [sent["id"]] * 2, "ids")
    house.puppet.call("stop", name="pops")
    house.line.lose = lambda passed: False


@tap.test("DS-7: … and so does an offset that is lost with its member")
def _():
    house, topic = here(), unique("LostOffset")
    [sent] = house.send(puppet.message(topic, "x"))

    def lose(passed):
        return passed.to_server and (passed.command.code == remoting.UPDATE_CONSUMER_OFFSET or
                                     passed.command.code == remoting.PULL_MESSAGE and
                                     int(passed.command.ext["sysFlag"]) & 1)
    house.line.lose = lose
    victim = tap.watch(puppet.start_c("victim", house.names.address))
    house.consumer("before", topic, on=victim)
    victim.wait_messages("before", 1)
    victim.kill9()
    tap.unwatch(victim)
    house.line.lose = lambda passed: False
    house.consumer("after", topic)
    [again] = house.puppet.wait_messages("after", 1)
    tap.equal((again["id"], again["reconsume"]), (sent["id"], 0), "the same message, which nobody has given back")
    house.puppet.call("stop", name="after")


@tap.test("DS-9, RT-4, RT-6: a handler that did its work and says LATER has it again, by the broker's list of delays")
def _():
    house, topic = here(), unique("Unsure")
    tap.equal(house.route("%RETRY%" + unique("g_" + topic)), None, "topic for retries before there is a member")
    [sent] = house.send(puppet.message(topic, "x"))
    house.consumer("unsure", topic, fail_below=2)
    for count, seconds in enumerate((60, 90), 1):
        house.puppet.wait_messages("unsure", count)
        house.given_back("unsure", count)
        house.advance(seconds - 20)
        tap.equal(len(house.puppet.messages("unsure")), count, "deliveries twenty seconds too early")
        house.advance(20)
    got = house.puppet.wait_messages("unsure", 3)
    tap.equal([(each["id"], each["reconsume"]) for each in got], [(sent["id"], n) for n in range(3)], "ids and counts")
    tap.check(house.route("%RETRY%" + unique("g_" + topic)), "the topic for retries has its exact name")
    house.puppet.call("stop", name="unsure")


@tap.test("RT-3: a handler that says DONE has the message once, whatever went wrong in it")
def _():
    house, topic = here(), unique("Swallowed")
    house.send(puppet.message(topic, "x"))
    house.consumer("swallows", topic)
    house.puppet.wait_messages("swallows", 1)
    house.advance(3600)
    house.send(puppet.message(topic, "y"))
    house.puppet.wait_messages("swallows", 2)
    tap.equal([each["body"] for each in house.puppet.messages("swallows")], ["x", "y"], "deliveries")
    tap.equal(house.puppet.call("stats", name="swallows")["sent_back"], 0, "given back")
    house.puppet.call("stop", name="swallows")


@tap.test("RT-8: with twenty retries allowed those beyond the list come after its last delay; then a dead letter")
def _():
    house, topic = here(), unique("Patient")
    house.send(puppet.message(topic, "x"))
    house.consumer("patient", topic, fail_below=100, max_reconsume=20)
    for count in range(1, 21):
        house.puppet.wait_messages("patient", count)
        house.given_back("patient", count)
        house.advance(60 if count == 1 else 90)
    house.puppet.wait_messages("patient", 21)
    process.wait_until(lambda: house.puppet.call("stats", name="patient")["dead"] == 1, 10, "it is dead")
    tap.equal([each["reconsume"] for each in house.puppet.messages("patient")], list(range(21)), "counts")
    house.puppet.call("stop", name="patient")


@tap.test("DS-10, DS-12: ids tell copies, keys tell events: the same event sent twice, and two events under one id")
def _():
    house, topic = here(), unique("Ids")
    again = house.send(puppet.message(topic, "a", keys=["order-1"]), puppet.message(topic, "a", keys=["order-1"]))
    tap.check(again[0]["id"] != again[1]["id"], "each send has an id of its own")
    house.send(puppet.message(topic, "b", keys=["order-2"], id="ONE"), puppet.message(topic, "c", keys=["order-3"], id="ONE"))
    house.consumer("ids", topic)
    got = house.puppet.wait_messages("ids", 4)
    tap.equal(sorted((each["body"], each["keys"]) for each in got),
              [("a", "order-1"), ("a", "order-1"), ("b", "order-2"), ("c", "order-3")], "all of them arrive")
    tap.equal({each["id"] for each in got if each["body"] in "bc"}, {"ONE"}, "one id")
    house.puppet.call("stop", name="ids")


@tap.test("RM-5: push: a message to an idle queue comes at once, with the pull that has waited for it at the broker")
def _():
    house, topic = here(), unique("Idle")
    [first] = house.send(puppet.message(topic, "first"))
    house.consumer("idle", topic)
    house.puppet.wait_messages("idle", 1)

    def pulls():
        """The pulls of that queue, behind its first message."""
        asked = [each.command for each in list(house.line.frames) if each.to_server]
        return {each.opaque for each in asked if each.code == remoting.PULL_MESSAGE and each.ext["topic"] == topic and
                (each.ext["queueId"], each.ext["queueOffset"]) == (str(first["queue"]), "1")}
    waiting = process.wait_until(pulls, 10, "a pull waits")
    seen = len(house.line.frames)
    house.send(puppet.message(topic, "second", queue={"broker": "a", "id": first["queue"]}))
    house.puppet.wait_messages("idle", 2)
    answers = [each.command for each in house.line.frames[seen:] if not each.to_server]
    [answer] = [each for each in answers if each.body and b"second" in each.body]
    tap.check(answer.opaque in waiting, "the answer is to a pull from before the message")
    house.puppet.call("stop", name="idle")


@tap.test("RM-8: a route has queues, and how far a group came is kept for each queue of a topic")
def _():
    house, topic = here(), unique("Queues")
    [first] = house.send(puppet.message(topic, "0"))
    house.puppet.call("client", name="k")
    queues = house.puppet.call("queues", client="k", topic=topic)
    tap.equal(sorted(each["id"] for each in queues), [0, 1, 2, 3], "queues")
    for queue in range(4):
        house.send(*[puppet.message(topic, "x", queue={"broker": "a", "id": queue}) for _ in range(queue + 1)])
    house.consumer("queues", topic)
    house.puppet.wait_messages("queues", 11)
    house.puppet.call("stop", name="queues")
    wanted = {queue: queue + 1 + (queue == first["queue"]) for queue in range(4)}
    for queue, offset in wanted.items():
        answer = house.ask(remoting.QUERY_CONSUMER_OFFSET, consumerGroup=unique("g_" + topic), topic=topic, queueId=queue)
        tap.equal(int(answer.ext["offset"]), offset, "offset of queue %d" % queue)
    with remoting.Client(house.daemon.broker) as client:
        tap.equal({queue: len(_read_queue(client, topic, queue)) for queue in range(4)}, wanted, "messages")


@tap.test("puppet and broker end well after all this")
def _():
    here().puppet.end()
    here().line.close()
    here().names.close()
    here().daemon.stop()


tap.main()
