#!/usr/bin/env python3
"""Groups of liboncemq consumers over time: members that die, come and go, and the long way to the dead letters.

An effect is a line in a ledger that all consumers share (interop/effects.py tells more). The ladder of retries takes hours;
the broker's clock is put forward instead (--clock virtual).
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.fake import Fake, routes  # noqa: E402
from harness.proxy import Relay  # noqa: E402
from interop import effects, plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

ADVANCE_CLOCK = 10001
KILLS, MESSAGES, KILL_AFTER, WORK_MS = 6, 3000, 25, 5
MINUTE, HOUR = 60, 3600
LADDER = [10, 30, *[n * MINUTE for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)], HOUR, 2 * HOUR]  # seconds

play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_c))


def make_topic(broker, names, topic, queues):
    """Makes it, waits for its route, and returns the broker's name."""
    with remoting.Client(broker) as client:
        answer = client.request(remoting.UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
        tap.equal(answer.code, remoting.SUCCESS, "code of a new topic")

    def route():
        with remoting.Client(names) as client:
            answer = client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return answer.code == remoting.SUCCESS and answer.json()["queueDatas"]
    return process.wait_until(route, 10, "route of %s" % topic)[0]["brokerName"]


def topic_of(p, name, queues=8):
    topic = unique(name)
    make_topic(p.stage.broker_address(), p.stage.names, topic, queues)
    return topic


def committed(broker, group, topic, queue=0):
    with remoting.Client(broker) as client:
        answer = client.request(remoting.QUERY_CONSUMER_OFFSET,
                                {"consumerGroup": group, "topic": topic, "queueId": queue})
        return int(answer.ext["offset"]) if answer.code == remoting.SUCCESS else -1


def group_members(broker, group):
    with remoting.Client(broker) as client:
        answer = client.request(remoting.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return answer.json()["consumerIdList"] if answer.code == remoting.SUCCESS else []


def send(p, topic, keys, batch=25):
    for first in range(0, len(keys), batch):
        p.send(*[puppet.message(topic, key, keys=[key]) for key in keys[first:first + batch]], mode="batch")


@tap.test("DS-2: consumers are killed at work, again and again: no message is without effect; duplicates are counted")
def _():
    p = play()
    topic, group, ledger = topic_of(p, "Killed"), unique("killed"), effects.Ledger()
    keys, part = ["key-%d" % i for i in range(MESSAGES)], MESSAGES // KILLS

    def join(number):
        worker = p.puppet("worker%d" % number)
        return worker, p.consumer(worker.name, topic, group, on=worker, ledger=ledger.path, work_ms=WORK_MS)

    victim, name = join(0)
    for turn in range(KILLS):
        heir, heir_name = join(turn + 1)
        before = ledger.read().by_consumer[name]
        send(p, topic, keys[turn * part:(turn + 1) * part])
        ledger.wait_consumer(name, before + KILL_AFTER)
        victim.kill9()
        tap.unwatch(victim)
        victim, name = heir, heir_name
    ledger.wait_all(keys, 90)
    tap.equal(ledger.by_key.keys() - set(keys), set(), "keys that nobody sent")
    tap.note("%d messages, %d kills, %d duplicates" % (MESSAGES, KILLS, ledger.further(keys)))
    victim.end()
    tap.unwatch(victim)


@tap.test("DS-8: members come and go in good order: every message has its effect, and few have it twice")
def _():
    p = play()
    topic, group, ledger = topic_of(p, "Scale"), unique("scale"), effects.Ledger()
    keys = ["key-%d" % i for i in range(6000)]
    names = [p.consumer("scale%d" % i, topic, group, ledger=ledger.path, work_ms=2) for i in range(2)]
    send(p, topic, keys[:2000])
    names.append(p.consumer("scale2", topic, group, ledger=ledger.path, work_ms=2))
    send(p, topic, keys[2000:4000])
    ledger.wait_consumer(names[2], 1)
    p.stop(names[0])
    send(p, topic, keys[4000:])
    p.stop(names[1])
    ledger.wait_all(keys, 60)
    p.stop(names[2])
    further = ledger.further(keys)
    tap.note("%d messages, %d duplicates; by member: %s" % (len(keys), further, dict(ledger.by_consumer)))
    # What a member works on when a queue of its own is given to another comes again there: 20 threads, three changes;
    # and what was done behind a message that was not.
    tap.check(further <= 400, "%d duplicates" % further)


@tap.test("LB-3, LB-4: members see the same sorted queues and take runs of neighbours, whoever came first")
def _():
    p = play()
    topic, group = topic_of(p, "Blocks", 10), unique("blocks")
    for each in ("m3", "m1", "m2"):
        p.main.call("client", name=each + "_client", ip="10.0.0.1", instance=each)
        p.main.call("consumer", name=each, client=each + "_client", group=group, topic=topic, from_="first")

    def split():
        p.send(*[puppet.message(topic, str(i)) for i in range(20)])
        parts = {}
        for each in ("m1", "m2", "m3"):
            parts[each] = sorted({m["queue"] for m in p.main.messages(each)[-30:]})
        return parts == {"m1": [0, 1, 2, 3], "m2": [4, 5, 6], "m3": [7, 8, 9]}
    process.wait_until(split, 40, "runs of four, three and three", pause=0.2)
    for each in ("m1", "m2", "m3"):
        p.main.call("stop", name=each)
        p.main.call("stop", name=each + "_client")


@tap.test("RT-5, RT-7, DS-11: sixteen retries on the long ladder, always with the same id, then a dead letter")
def _():
    if stage.ENDPOINT:
        tap.skip("the clock of another's broker cannot be put forward")
    broker, names = process.free_ports(2)
    daemon = tap.watch(Daemon(args=["--clock", "virtual"], settings={"listenPort": broker, "namesrvListenPort": names}))
    one = tap.watch(puppet.start_c("climber", daemon.names))
    one.call("producer", name="p", group="p")
    [sent] = one.call("send", name="p", mode="sync", messages=[puppet.message("Ladder", "x", keys=["k"])])
    one.call("consumer", name="c", group="climbers", topic="Ladder", from_="first", fail_below=100)
    with remoting.Client(daemon.broker) as client:
        for count, seconds in enumerate(LADDER, 1):
            one.wait_messages("c", count)
            process.wait_until(lambda n=count: one.call("stats", name="c")["sent_back"] == n, 10, "it is given back")
            client.request(ADVANCE_CLOCK, {"advanceMillis": 1000 * seconds - 5000})
            tap.equal(len(one.messages("c")), count, "deliveries five seconds too early")
            client.request(ADVANCE_CLOCK, {"advanceMillis": 5000})
        got = one.wait_messages("c", 17)
        process.wait_until(lambda: one.call("stats", name="c")["dead"] == 1, 10, "it is dead")
    tap.equal([each["reconsume"] for each in got], list(range(17)), "counts")
    tap.equal({(each["id"], each["topic"], each["keys"]) for each in got}, {(sent["id"], "Ladder", "k")}, "id")
    one.end()
    tap.unwatch(one)
    daemon.stop()
    tap.unwatch(daemon)


@tap.test("in order over a partition: the other member takes over when the lock has run out, and late results do not count")
def _():
    if stage.ENDPOINT:
        tap.skip("another's broker keeps its locks for a minute")
    quick = {"rebalanceLockMaxLiveTime": 2000, "channelExpiredTimeout": 2000}
    with Daemon(settings=quick) as daemon, Relay("line", "127.0.0.1:0", daemon.broker) as line, \
            Fake(routes({})) as behind_the_line:
        name = make_topic(daemon.broker, daemon.names, "Parted", 1)
        behind_the_line.answer = routes({name: line.address}, queues=1)
        near, far = (tap.watch(puppet.start_c(each, at)) for each, at in
                     (("near", daemon.names), ("far", behind_the_line.address)))
        options = {"group": "g", "topic": "Parted", "from_": "first", "orderly": True, "lock_ms": 1000,
                   "heartbeat_every_ms": 300, "client_timeout_ms": 1000}
        near.call("producer", name="p", group="p")
        near.call("send", name="p", messages=[puppet.message("Parted", body) for body in ("hang", "b", "c")])
        far.call("consumer", name="c", ip="10.0.0.2", instance="far", hang_at="hang", **options)
        far.wait_messages("c", 1)
        line.lose = lambda passed: True  # nothing gets through, and nobody is told
        near.call("consumer", name="c", ip="10.0.0.1", instance="near", **options)
        near.wait_messages("c", 3)
        tap.equal([each["body"] for each in near.messages("c")], ["hang", "b", "c"], "what the other member gets")
        process.wait_until(lambda: committed(daemon.broker, "g", "Parted") == 3, 10, "it has told so")
        far.call("release")
        healed, line.lose = len(line.frames), lambda passed: False
        process.wait_until(lambda: len(group_members(daemon.broker, "g")) == 2, 20, "the first one is back")
        near.call("send", name="p", messages=[puppet.message("Parted", "d")])
        near.wait_messages("c", 4)
        far.end()
        near.end()
        tap.equal([each["body"] for each in far.messages("c")], ["hang"], "what it began without a lock")
        late = [each.command for each in line.frames[healed:] if each.to_server]
        told = [each.ext["commitOffset"] for each in late if each.ext.get("topic") == "Parted" and (
            each.code == remoting.UPDATE_CONSUMER_OFFSET or int(each.ext.get("sysFlag", 0)) & 1)]
        tap.equal(told, [], "what it told the broker, late")
        tap.equal(committed(daemon.broker, "g", "Parted"), 4, "offset")
        for each in (far, near):
            tap.unwatch(each)


@tap.test("puppet and broker end well after all this")
def _():
    plays.ends_well(play())


stage.run()
