"""Messages that come later: delay levels, retries through the ladder, dead letters. Rows by their numbers."""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, fulldisk, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK = 10001
NO_PERMISSION, GROUP_NOT_EXIST, MESSAGE_ILLEGAL = 16, 26, 13
SUSPEND, SUBSCRIPTION = 2, 4
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
LADDER_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
CUMULATIVE_S = [10, 40, 100, 220, 400, 640, 940, 1300, 1720, 2200, 2740, 3340, 4540, 6340, 9940, 17140]
KEY = "7F0000010A2B18B4AAC2000000000001"


def virtual(**settings):
    return daemons.Daemon(args=["--clock", "virtual"], settings=settings)


def advance(client, seconds):
    tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": int(seconds * 1000)}).code, r.SUCCESS, "advance")


def send(client, topic, body=b"x", level=None, queue=0, **properties):
    if level is not None:
        properties["DELAY"] = level
    answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, queue))
    tap.equal(answer.code, r.SUCCESS, "send (%s)" % answer.remark)
    return answer


def position_of(answer):
    return int(answer.ext["msgId"][-16:], 16)


def pull(client, topic, offset, queue=0, wait_ms=0, group="reader"):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION | (SUSPEND if wait_ms else 0), "commitOffset": 0, "suspendTimeoutMillis": wait_ms,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG"})


def count(client, topic, queue=0):
    return int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def read(client, topic, queue=0):
    found, at = [], 0
    while at < count(client, topic, queue):
        answer = pull(client, topic, at, queue)
        tap.equal(answer.code, r.SUCCESS, "pull (%s)" % answer.remark)
        found += r.messages(answer.body)
        at = int(answer.ext["nextBeginOffset"])
    return found


def wait_count(client, topic, number, queue=0, timeout=60):
    process.wait_until(lambda: count(client, topic, queue) >= number, timeout, "%d messages in %s" % (number, topic))


def give_back(client, position, group="g", level=0, **fields):
    return client.request(r.CONSUMER_SEND_MSG_BACK, {"offset": position, "group": group, "delayLevel": level,
                                                     "originTopic": "T", **fields})


@tap.test("DE-1 a waiting consumer gets a delayed message when its time has come, and not before")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker, timeout=40) as client:
        send(client, "T", b"makes the topic", queue=1)
        answer = send(client, "T", b"later", level=1, queue=1)
        tap.equal((answer.ext["queueId"], answer.ext["queueOffset"]), ("1", "0"), "queue asked for, offset of its level")
        got = pull(client, "T", 1, queue=1, wait_ms=30000)
        tap.equal(got.code, r.SUCCESS, "pull")
        came, = r.messages(got.body)
        waited, = read(client, "SCHEDULE_TOPIC_XXXX")
        tap.check(came.store_time - waited.store_time >= 1000, "early by %d ms"
                  % (1000 - came.store_time + waited.store_time))
        tap.note("%d ms late" % (came.store_time - waited.store_time - 1000))
        tap.equal((came.body, came.properties), (b"later", waited.properties), "message")
        tap.equal((came.properties["REAL_TOPIC"], came.properties["REAL_QID"], came.properties["DELAY"]),
                  ("T", "1", "1"), "properties")


@tap.test("RT-4, RT-5, RT-7, DL-2, DL-6, DS-11 sixteen retries at their times, then one dead letter that is not readable")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        position = position_of(send(client, "T", b"hello", UNIQ_KEY=KEY, KEYS="k"))
        begin = None
        for tries, seconds in enumerate(LADDER_S):
            tap.equal(give_back(client, position).code, r.SUCCESS, "given back")
            advance(client, seconds)
            wait_count(client, "%RETRY%g", tries + 1)
            message = r.messages(pull(client, "%RETRY%g", tries).body)[0]
            tap.equal((message.unique_key, message.reconsume_times, message.body), (KEY, tries + 1, b"hello"), "message")
            waited = r.messages(pull(client, "SCHEDULE_TOPIC_XXXX", 0, queue=tries + 2).body)[0]
            tap.check(message.store_time - waited.store_time >= seconds * 1000, "retry %d is early" % (tries + 1))
            begin = begin or waited.store_time
            passed = (message.store_time - begin) / 1000    # the clock runs on between the advances
            tap.check(CUMULATIVE_S[tries] <= passed < CUMULATIVE_S[tries] + 200, "retry %d at %s s" % (tries + 1, passed))
            position = message.physical_offset
        tap.equal(pull(client, "%DLQ%g", 0).code, r.TOPIC_NOT_EXIST, "dead letters before there is one")
        tap.equal(give_back(client, position).code, r.SUCCESS, "given back for the last time")
        tap.equal(count(client, "%DLQ%g"), 1, "dead letters")
        refused = pull(client, "%DLQ%g", 0)
        tap.equal(refused.code, NO_PERMISSION, "pull of dead letters (%s)" % refused.remark)


@tap.test("RT-8 with twenty retries allowed those past the sixteenth come every two hours, then the dead letter")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        position = position_of(send(client, "T", b"patient", UNIQ_KEY=KEY))
        for tries, seconds in enumerate(LADDER_S + [7200] * 4):
            tap.equal(give_back(client, position, maxReconsumeTimes=20).code, r.SUCCESS, "given back")
            if tries >= len(LADDER_S):  # a quarter of an hour is left for a slow machine
                advance(client, seconds - 900)
                tap.equal(count(client, "%RETRY%g"), tries, "retries before the time of retry %d" % (tries + 1))
                advance(client, 900)
            else:
                advance(client, seconds)
            wait_count(client, "%RETRY%g", tries + 1)
            message = r.messages(pull(client, "%RETRY%g", tries).body)[0]
            tap.equal((message.unique_key, message.reconsume_times), (KEY, tries + 1), "message")
            position = message.physical_offset
        waited = read(client, "SCHEDULE_TOPIC_XXXX", queue=17)
        tap.equal([m.reconsume_times for m in waited], [16, 17, 18, 19, 20], "what waited two hours")
        came = read(client, "%RETRY%g")[15:]
        for before, after in zip(waited, came):
            tap.check(7200000 <= after.store_time - before.store_time < 7200000 + 900000, "retry %d after %d ms"
                      % (after.reconsume_times, after.store_time - before.store_time))
        tap.equal(pull(client, "%DLQ%g", 0).code, r.TOPIC_NOT_EXIST, "dead letters before there is one")
        tap.equal(give_back(client, position, maxReconsumeTimes=20).code, r.SUCCESS, "given back for the last time")
        tap.equal(count(client, "%DLQ%g"), 1, "dead letters")


@tap.test("DL-1, DL-3, DL-6 with dlqPerm=6 the dead letters of a group are readable, all in one topic")
def _():
    with tap.watch(daemons.Daemon(settings={"dlqPerm": 6})) as d, r.Client(d.broker) as client, \
            r.Client(d.broker) as other:
        for member, topic in ((client, "A"), (other, "B")):
            position = position_of(send(member, topic, topic.encode(), UNIQ_KEY=KEY + topic))
            tap.equal(give_back(member, position, level=-1).code, r.SUCCESS, "given back")
        dead = read(client, "%DLQ%g")
        tap.equal([(m.body, m.properties["DLQ_ORIGIN_TOPIC"], m.properties["DLQ_ORIGIN_MESSAGE_ID"]) for m in dead],
                  [(b"A", "A", KEY + "A"), (b"B", "B", KEY + "B")], "dead letters")


@tap.test("a message that is given back is answered as Apache answers")
def _():
    with tap.watch(daemons.Daemon(settings={"autoCreateSubscriptionGroup": "false"})) as d, \
            r.Client(d.broker) as client:
        position = position_of(send(client, "T"))
        for group in ("nobody", "", "no good"):
            refused = give_back(client, position, group)
            tap.equal((refused.code, refused.ext), (GROUP_NOT_EXIST, {}), "code for group %r" % group)
            tap.check("subscription group not exist" in refused.remark, refused.remark)
        for nowhere in (position + 1, -1, 10**15, 2**63 - 1, -2**63):
            refused = give_back(client, nowhere, "TOOLS_CONSUMER")
            tap.equal(refused.code, r.SYSTEM_ERROR, "code at %d" % nowhere)
            tap.equal(refused.remark, "look message by offset failed, %d" % nowhere, "remark")
        for level in (0, 1, -1, 99, 2**31 - 1, -2**31):
            tap.equal(give_back(client, position, "TOOLS_CONSUMER", level, maxReconsumeTimes=2**31 - 1).code, r.SUCCESS,
                      "code at level %d" % level)
        missing = client.request(r.CONSUMER_SEND_MSG_BACK, {"group": "TOOLS_CONSUMER"})
        tap.equal(missing.code, r.SYSTEM_ERROR, "code without an offset")


@tap.test("a send to a retry topic that was tried too often is a dead letter, by the client's own limit too")
def _():
    with tap.watch(daemons.Daemon(settings={"dlqPerm": 6})) as d, r.Client(d.broker) as client:
        for tries, limit in ((17, None), (3, 2), (0, -1)):
            fields = {"reconsumeTimes": tries} if limit is None else {"reconsumeTimes": tries, "maxReconsumeTimes": limit}
            header, body = r.send_v2("%RETRY%g", b"x", {"DELAY": 5, "RETRY_TOPIC": "T"}, 0, **fields)
            tap.equal(client.request(r.SEND_MESSAGE_V2, header, body).code, r.SUCCESS, "send")
        dead = read(client, "%DLQ%g")
        tap.equal([(m.reconsume_times, m.properties["DELAY"]) for m in dead], [(17, "-1"), (3, "-1"), (0, "-1")], "dead")
        header, body = r.send_v2("%RETRY%g", b"x", {"DELAY": 18}, 0, reconsumeTimes=2, maxReconsumeTimes=2)
        tap.equal(client.request(r.SEND_MESSAGE_V2, header, body).code, r.SUCCESS, "send")
        tap.equal((count(client, "%DLQ%g"), count(client, "SCHEDULE_TOPIC_XXXX", 17)), (3, 1), "dead letters, waiting")


@tap.test("a delay in a batch is refused, not forgotten")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker) as client:
        for whole, each in (({}, {"DELAY": 1}), ({"DELAY": 1}, {})):
            header, body = r.send_v2("T", r.batch([(b"one", {}), (b"two", each)]), whole, 0, batch=True)
            refused = client.request(r.SEND_BATCH_MESSAGE, header, body)
            tap.equal(refused.code, MESSAGE_ILLEGAL, "code (%s)" % refused.remark)


@tap.test("with SYNC_FLUSH delayed messages and retries come as well")
def _():
    settings = {"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": "1s 1s 1s"}
    with tap.watch(daemons.Daemon(settings=settings)) as d, r.Client(d.broker, timeout=40) as client:
        answer = send(client, "T", b"later", level=1)
        wait_count(client, "T", 1)
        tap.equal(give_back(client, position_of(answer)).code, r.SUCCESS, "given back")
        wait_count(client, "%RETRY%g", 1)


@tap.test("a stop and a start lose no delayed message and repeat none, also without an index")
def _():
    settings = {"messageIndexEnable": "false", "messageDelayLevel": "1s 2s 3s"}
    with tap.watch(daemons.Daemon(settings=settings)) as d:
        with r.Client(d.broker) as client:
            for n in range(60):
                send(client, "T", b"%d" % n, level=1 + n % 3)
            wait_count(client, "T", 20)
        d.stop()
        with open(os.path.join(d.folder, "config", "delayOffset.json"), encoding="utf-8") as source:
            table = r.loads(source.read())["offsetTable"]
        tap.check(set(table) == {"1", "2", "3"} and sum(table.values()) >= 20, "delayOffset.json says %s" % table)
        d.start()
        with r.Client(d.broker) as client:
            wait_count(client, "T", 60)
            time.sleep(0.5)     # one that comes twice would come now
            tap.equal(sorted(int(m.body) for m in read(client, "T")), list(range(60)), "messages")


@tap.test("SIGKILL at any moment loses no delayed message, and none comes twice (seed %d)" % SEED)
def _():
    dice = random.Random(SEED)
    sent = 0
    with tap.watch(daemons.Daemon(settings={"messageDelayLevel": "1s 2s 3s"})) as d:
        for _life in range(6):
            with r.Client(d.broker) as client:
                for _n in range(100):
                    send(client, "T", b"%d" % sent, level=dice.randrange(1, 4))
                    sent += 1
                time.sleep(dice.random() * 2)    # deliveries go on meanwhile
            d.kill9()
            d.start()
        with r.Client(d.broker) as client:
            wait_count(client, "T", sent)
            time.sleep(0.5)     # one that comes twice would come now
            tap.equal(sorted(int(m.body) for m in read(client, "T")), list(range(sent)), "messages")


@tap.test("a full disk puts delayed messages off, which is said once, and they come when there is room")
def _():
    with fulldisk.FullDisk() as disk:
        with tap.watch(daemons.Daemon(args=["--clock", "virtual"], settings={"messageDelayLevel": "1h"}, env=disk.env)) as d, \
                r.Client(d.broker) as client:
            send(client, "T", b"later", level=1)

            def refuses():
                return client.request(r.SEND_MESSAGE_V2, *r.send_v2("U", b"x", {}, 0)).code != r.SUCCESS
            disk.fill(95)
            process.wait_until(refuses, 60, "a refusal")
            advance(client, 3600)
            process.wait_until(lambda: "delayed messages put off" in d.read_log(), 30, "a line about it")
            tap.equal(count(client, "T"), 0, "messages")
            disk.fill(50)
            wait_count(client, "T", 1)
            process.wait_until(lambda: "delayed messages are delivered again" in d.read_log(), 30, "a line about it")
            tap.equal(d.read_log().count("delayed messages put off"), 1, "lines about it")


@tap.test("5,000 delayed messages in a second: none is early")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker, timeout=60) as client:
        opaques = [client.send(r.SEND_MESSAGE_V2, *r.send_v2("T", b"x", {"DELAY": 1}, 0)) for _ in range(5000)]
        tap.equal({client.wait(opaque, 60).code for opaque in opaques}, {r.SUCCESS}, "codes")
        wait_count(client, "T", 5000)
        waited = {m.unique_key: m.store_time for m in read(client, "SCHEDULE_TOPIC_XXXX")}
        late = sorted(m.store_time - waited[m.unique_key] - 1000 for m in read(client, "T"))
        tap.equal((len(late), len(waited)), (5000, 5000), "messages")
        tap.check(late[0] >= 0, "early by %d ms" % -late[0])
        tap.note("late by %d ms at most, half of them by %d ms at most" % (late[-1], late[2500]))


tap.main()
