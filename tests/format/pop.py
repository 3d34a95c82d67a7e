#!/usr/bin/env python3
"""What was popped and not acknowledged comes again when the other broker opens the folder, and nothing else does.

There: our daemon hands out, is told of some, and stops; Apache's broker goes on from its folder. Back: Apache's broker
hands out from three topics and is told of some; of one its timers have just brought all to the revive log, of one the
check-point but not the acknowledgements, of one all still waits in the wheel; it is killed, and ours goes on.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import stock  # noqa: E402
from harness import apache, pop as pops, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

COUNT, ACKED = 9, (1, 4, 7)
ADVANCE_CLOCK = 10001
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
SETTINGS = {**stock.FILES, "brokerName": "broker-a"}


def fill(client, topic):
    for i in range(COUNT):
        answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"m%d" % i, {"TAGS": "A", "UNIQ_KEY": "K%d" % i}, 0))
        tap.equal(answer.code, r.SUCCESS, "send (%s)" % answer.remark)


def hand_out(address, invisible_ms, topic="T"):
    """All of one queue, some of them acknowledged."""
    with pops.Popper(address, topic=topic) as p:
        fill(p.client, topic)
        held = []
        process.wait_until(lambda: held.extend(p.pop(invisible_ms=invisible_ms)) or len(held) == COUNT, 10, "popped")
        for i in ACKED:
            tap.equal(p.ack(held[i]).code, r.SUCCESS, "ack")
        return held


def check_points(held):
    """One for each pop that handed out something; usually there was one."""
    return len({one.handle.split(" ")[1] for one in held})


def offset_in(folder, key):
    try:
        return stock.table(folder, "consumerOffset.json", "offsetTable").get(key, {}).get("0")
    except OSError:
        return None


def come_again(address, timeout=60, topic="T"):
    """What is handed out now, until all that should come has come; a while longer, nothing else may."""
    wanted = {b"m%d" % i for i in range(COUNT) if i not in ACKED}
    came = []
    with pops.Popper(address, topic=topic) as p:
        def all_there():
            for held in p.pop(invisible_ms=600000, poll_ms=500):
                came.append(held)
                tap.equal(p.ack(held).code, r.SUCCESS, "ack")
            return {held.body for held in came} >= wanted
        process.wait_until(all_there, timeout, "what was not acknowledged", pause=0.5)
        process.wait_until(lambda: not p.pop(poll_ms=3000), 30, "nothing else")
    tap.equal(sorted(held.body for held in came), sorted(wanted), "messages")
    for held in came:
        tap.equal((held.message.reconsume_times, held.topic, held.message.properties["UNIQ_KEY"]),
                  (1, "%RETRY%g_" + topic, "K" + held.body.decode()[1:]), "message")


shown = []


def show(address):
    """Messages of another topic, popped and forgotten, as they come again; but for times and places."""
    with pops.Popper(address, topic="U", timeout=60) as p:
        for i in range(2):
            sent = p.client.request(r.SEND_MESSAGE_V2, *r.send_v2("U", b"%d" % i, {"TAGS": "A", "UNIQ_KEY": "U%d" % i}, 0, flag=7))

        def queued():   # Apache's broker answers a send before that
            end = p.client.request(r.GET_MAX_OFFSET, {"topic": "U", "queueId": 0}).ext["offset"]
            return int(end) > int(sent.ext["queueOffset"])
        process.wait_until(queued, 20, "both in their queue")
        first = {}

        def popped():
            for held in p.pop(invisible_ms=1000):
                first.setdefault(held.body, held.handle.split(" ")[1])
            return len(first) == 2
        process.wait_until(popped, 20, "popped")
        again = []
        process.wait_until(lambda: again.extend(p.pop(poll_ms=2000)) or len(again) >= 2, 60, "come again")
    shown.append(sorted((held.body, held.topic, held.queue, held.message.topic, held.message.flag, held.message.sys_flag,
                         held.message.reconsume_times, held.message.properties.pop("POP_CK").split(" ")[4:7],
                         held.message.properties.pop("1ST_POP_TIME") == first[held.body],
                         sorted(held.message.properties.items())) for held in again))


@tap.test("Apache's broker goes on from our folder")
def _():
    daemon = tap.watch(Daemon(settings=SETTINGS))
    show(daemon.broker)
    held = hand_out(daemon.broker, 15000)
    with pops.Popper(daemon.broker) as p:
        tap.equal(p.change(held[0], 20000).code, r.SUCCESS, "changed")
    daemon.stop()
    tap.unwatch(daemon)
    names = Daemon(roles="names", name="names")
    with tap.watch(apache.Broker(names.names, storePathRootDir=daemon.folder, **stock.FILES)) as broker:
        broker.wait_registered(names.names)
        come_again(broker.address, 90)
        show(broker.address)
        broker.stop()
        tap.unwatch(broker)
    with tap.watch(Daemon(settings=SETTINGS, folder=daemon.folder)) as again, pops.Popper(again.broker) as p:
        tap.equal(p.pop(poll_ms=3000), [], "and ours again has nothing")


@tap.test("ours goes on from the folder of Apache's broker")
def _():
    names = Daemon(roles="names", name="names")
    broker = tap.watch(apache.Broker(names.names, **stock.FILES))
    broker.wait_registered(names.names)
    folder = broker.home + "/store"
    with r.Client(broker.address) as client:
        hand_out(broker.address, 600000, "W")
        process.wait_until(lambda: offset_in(folder, "W@g") == COUNT, 30, "saved offset of the group")
        records = check_points(hand_out(broker.address, 5000, "T")) + len(ACKED)
        records += check_points(hand_out(broker.address, 6500, "V"))

        def delivered():
            return sum(int(client.request(r.GET_MAX_OFFSET, {"topic": REVIVE, "queueId": i}).ext["offset"])
                       for i in range(8)) >= records
        process.wait_until(delivered, 60, "records in the revive log", pause=0.02)
    broker.kill9()
    tap.unwatch(broker)
    came = time.monotonic()
    topics = stock.table(folder, "topics.json", "topicConfigTable")
    tap.check(not any("%RETRY%g_" + topic in topics for topic in "TVW"), "it has revived them itself")
    with tap.watch(Daemon(settings=SETTINGS, folder=folder, args=["--clock", "virtual"])) as daemon:
        come_again(daemon.broker)
        come_again(daemon.broker, topic="V")
        tap.note("after %.1f s" % (time.monotonic() - came))
        with r.Client(daemon.broker) as client:
            tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": 600000}).code, r.SUCCESS, "advance")
        come_again(daemon.broker, topic="W")


@tap.test("what ours stores for a message that comes again is what Apache's broker stores")
def _():
    tap.equal(len(shown), 2, "brokers that played")
    tap.equal(shown[0], shown[1], "messages")


if apache.missing():
    tap.skip_all(apache.missing())
tap.main()
