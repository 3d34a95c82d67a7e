"""--clock virtual: what takes days happens in a moment, and nobody who is connected notices the jump."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK = 10001
NO_PERMISSION, INVALID_PARAMETER = 16, 29
HOUR_MS = 3600 * 1000
ALL_HOURS = ";".join("%02d" % hour for hour in range(24))
FILE = 65536


def advance(client, ms):
    return client.request(ADVANCE_CLOCK, {"advanceMillis": ms})


def now_ms(client):
    return int(advance(client, 0).ext["timestamp"])


def send(client, topic, body=b"x" * 1000):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, queue_id=0))


def pull_fields(topic, offset, wait_ms):
    return {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 6,
            "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0}


def offset_of(client, code, topic):
    return int(client.request(code, {"topic": topic, "queueId": 0}).ext["offset"])


def log_files(daemon):
    return sorted(int(name) for name in os.listdir(os.path.join(daemon.folder, "commitlog")))


@tap.test("the system's clock cannot be put forward")
def _():
    with daemons.Daemon() as d, r.Client(d.broker) as client:
        for ms in (0, 1000):
            refused = advance(client, ms)
            tap.equal(refused.code, NO_PERMISSION, "code")
            tap.check("--clock virtual" in refused.remark, "remark %r" % refused.remark)


@tap.test("an advance is answered with the new time, and nonsense is refused")
def _():
    with daemons.Daemon(args=["--clock", "virtual"]) as d, r.Client(d.broker) as client:
        begin = now_ms(client)
        tap.check(abs(begin - time.time() * 1000) < 60000, "it does not begin at the system's time: %d" % begin)
        later = int(advance(client, 5 * HOUR_MS).ext["timestamp"])
        tap.check(later >= begin + 5 * HOUR_MS, "%d after %d" % (later, begin))
        process.wait_until(lambda: now_ms(client) > later, 20, "the clock runs on")
        for wrong in (-1, 2**63 - 1, 101 * 366 * 24 * HOUR_MS):
            tap.equal(advance(client, wrong).code, INVALID_PARAMETER, "code for %d" % wrong)
        tap.equal(client.request(ADVANCE_CLOCK).code, 1, "code without the field")
        tap.check(now_ms(client) < later + 60000, "a refused advance has moved the clock")


@tap.test("messages are stored at the new time, and a daemon may begin ahead")
def _():
    args = ["--clock", "virtual+%d" % (48 * HOUR_MS)]
    with daemons.Daemon(args=args) as d, r.Client(d.broker) as client:
        for hours in (48, 72):
            tap.equal(send(client, "Dated").code, r.SUCCESS, "send")
            offset = offset_of(client, r.GET_MAX_OFFSET, "Dated") - 1
            stored = r.messages(client.request(r.PULL_MESSAGE, pull_fields("Dated", offset, 0)).body)[0].store_time
            ahead = stored - time.time() * 1000 - hours * HOUR_MS
            tap.check(abs(ahead) < 60000, "stored %d ms off" % ahead)
            advance(client, 24 * HOUR_MS)
    status, _, complaint = daemons.run("--clock", "virtual+x")
    tap.check(status != 0 and "--clock" in complaint, complaint)


@tap.test("72 hours of retention pass at once; who is connected and registered stays so")
def _():
    settings = {"mappedFileSizeCommitLog": FILE, "flushCommitLogThoroughInterval": 100, "deleteWhen": ALL_HOURS}
    with daemons.Daemon(args=["--clock", "virtual"], settings=settings) as d, r.Client(d.broker) as client, \
            r.Client(d.names) as names, r.Client(d.broker) as member:
        heart = r.dumps({"clientID": "m@1", "producerDataSet": [], "consumerDataSet": [
            {"groupName": "clockwatchers", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": []}]})
        tap.equal(member.request(r.HEART_BEAT, body=heart).code, r.SUCCESS, "heartbeat")
        for _ in range(300):
            tap.equal(send(client, "Old").code, r.SUCCESS, "send")
        before = log_files(d)
        tap.check(before[0] == 0 and before[-1] > 3 * FILE, "files %s" % before)

        advance(client, 71 * HOUR_MS)
        tap.equal(send(client, "Old").code, r.SUCCESS, "send after 71 hours")
        tap.equal(offset_of(client, r.GET_MIN_OFFSET, "Old"), 0, "first offset after 71 hours")
        advance(client, 2 * HOUR_MS)
        # The file that the last message is in has a record of 71 hours; those before it may go.
        process.wait_until(lambda: log_files(d)[0] > 0, 20, "old files gone")
        process.wait_until(lambda: offset_of(client, r.GET_MIN_OFFSET, "Old") > 0, 20, "a later first offset")
        tap.equal(offset_of(client, r.GET_MAX_OFFSET, "Old"), 301, "end")

        listed = client.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "clockwatchers"})
        tap.equal((listed.code, listed.json()), (r.SUCCESS, {"consumerIdList": ["m@1"]}), "members")
        route = names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Old"})
        tap.equal(route.code, r.SUCCESS, "route (%s)" % route.remark)
        tap.equal(member.request(r.HEART_BEAT, body=heart).code, r.SUCCESS, "heartbeat on the old connection")
        log = d.read_log()
        for word in ("expired", "unregistered", "name server lost"):
            tap.check(word not in log, "%r in the log" % word)


@tap.test("DL-5 dead letters are kept as long as other messages, and no longer")
def _():
    settings = {"mappedFileSizeCommitLog": FILE, "flushCommitLogThoroughInterval": 100, "deleteWhen": ALL_HOURS}
    with daemons.Daemon(args=["--clock", "virtual"], settings=settings) as d, r.Client(d.broker) as client:
        dead = 150
        for _ in range(dead):
            position = int(send(client, "Failing").ext["msgId"][-16:], 16)
            given = client.request(r.CONSUMER_SEND_MSG_BACK, {"offset": position, "group": "g", "delayLevel": 0,
                                                              "originTopic": "Failing", "maxReconsumeTimes": 0})
            tap.equal(given.code, r.SUCCESS, "given back (%s)" % given.remark)
        tap.equal(offset_of(client, r.GET_MAX_OFFSET, "%DLQ%g"), dead, "dead letters")
        advance(client, 71 * HOUR_MS)
        tap.equal(send(client, "Failing").code, r.SUCCESS, "send after 71 hours")
        tap.equal(offset_of(client, r.GET_MIN_OFFSET, "%DLQ%g"), 0, "first dead letter after 71 hours")
        advance(client, 2 * HOUR_MS)
        process.wait_until(lambda: offset_of(client, r.GET_MIN_OFFSET, "%DLQ%g") > 0, 20, "the first ones gone")
        tap.equal(offset_of(client, r.GET_MAX_OFFSET, "%DLQ%g"), dead, "end")


@tap.test("the patience of a waiting pull ends with the jump")
def _():
    with daemons.Daemon(args=["--clock", "virtual"]) as d, r.Client(d.broker) as client, r.Client(d.broker) as other:
        tap.equal(send(client, "Quiet").code, r.SUCCESS, "send")
        opaque = client.send(r.PULL_MESSAGE, pull_fields("Quiet", 1, 280000))
        tap.equal(offset_of(client, r.GET_MAX_OFFSET, "Quiet"), 1, "end")  # the pull came before and waits
        tap.equal(opaque in client.replies, False, "answered before its time")
        tap.equal(advance(other, 250000).code, r.SUCCESS, "advance")
        tap.equal(offset_of(client, r.GET_MAX_OFFSET, "Quiet"), 1, "end")
        tap.equal(opaque in client.replies, False, "answered before its time")
        tap.equal(advance(other, HOUR_MS).code, r.SUCCESS, "advance")
        tap.equal(client.wait(opaque, 10).code, r.PULL_NOT_FOUND, "answer")


@tap.test("all sixteen retries with the real ladder, and the dead letter behind them, in seconds")
def _():
    minute = 60 * 1000
    ladder = [10000, 30000, *(n * minute for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120))]
    with daemons.Daemon(args=["--clock", "virtual"]) as d, r.Client(d.broker) as client:
        heart = r.dumps({"clientID": "l@1", "producerDataSet": [], "consumerDataSet": [
            {"groupName": "losers", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": []}]})
        tap.equal(client.request(r.HEART_BEAT, body=heart).code, r.SUCCESS, "heartbeat")
        tap.equal(send(client, "Ladder").code, r.SUCCESS, "send")
        [message] = r.messages(client.request(r.PULL_MESSAGE, pull_fields("Ladder", 0, 0)).body)
        first = message
        for step, delay_ms in enumerate(ladder):
            begin = now_ms(client)
            back = client.request(r.CONSUMER_SEND_MSG_BACK, {"offset": message.physical_offset, "group": "losers",
                                                             "delayLevel": 0, "originMsgId": first.unique_key,
                                                             "originTopic": "Ladder", "maxReconsumeTimes": 16})
            tap.equal(back.code, r.SUCCESS, "sending back (%s)" % back.remark)
            advance(client, delay_ms)
            process.wait_until(lambda: offset_of(client, r.GET_MAX_OFFSET, "%RETRY%losers") == step + 1, 20,
                               "retry %d" % (step + 1))
            [message] = r.messages(client.request(r.PULL_MESSAGE, pull_fields("%RETRY%losers", step, 0)).body)
            tap.check(message.store_time >= begin + delay_ms, "retry %d came early" % (step + 1))
            tap.equal((message.reconsume_times, message.unique_key), (step + 1, first.unique_key), "retry")
        client.request(r.CONSUMER_SEND_MSG_BACK, {"offset": message.physical_offset, "group": "losers", "delayLevel": 0,
                                                  "originMsgId": first.unique_key, "originTopic": "Ladder",
                                                  "maxReconsumeTimes": 16})
        process.wait_until(lambda: offset_of(client, r.GET_MAX_OFFSET, "%DLQ%losers") == 1, 20, "the dead letter")


tap.main()
