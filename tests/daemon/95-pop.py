"""POP: messages handed out for a time, acknowledged, brought back, in raw frames."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, pop as pops, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK, DELETE_TOPIC, GET_ALL_TOPIC_CONFIG = 10001, 215, 21
YEAR_MS = 366 * 86400 * 1000


def house(**settings):
    return daemons.Daemon(args=["--clock", "virtual"], settings={"brokerName": "broker-a", **settings})


def advance(client, seconds):
    tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": int(seconds * 1000)}).code, r.SUCCESS, "advance")


def fill(client, count=8, topic="T", **properties):
    for i in range(count):
        answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"m%d" % i, {"TAGS": "A", **properties}, i % 4))
        tap.equal(answer.code, r.SUCCESS, "send (%s)" % answer.remark)


def bodies(held):
    return sorted(each.body for each in held)


def count(client, topic, queue=0):
    return int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


@tap.test("messages are handed out once, and again as retries when nobody acknowledges them")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 8)
        first, second = p.pop(count=5), p.pop(count=32)
        tap.equal(bodies(first + second), [b"m%d" % i for i in range(8)], "both together")
        tap.equal(p.pop(), [], "nothing is left")
        for held in first:
            tap.equal(p.ack(held).code, r.SUCCESS, "ack")
        advance(p.client, 61)
        with pops.Popper(d.broker) as other:
            again = other.pop(poll_ms=10000)
            while len(again) < 3:
                again += other.pop(poll_ms=10000)
            tap.equal(bodies(again), bodies(second), "what was not acknowledged")
            for held in again:
                tap.equal((held.message.topic, held.topic, held.message.reconsume_times),
                          ("T", "%RETRY%g_T", 1), "topic that is shown, topic that is meant, tries")
                tap.check(held.message.properties["1ST_POP_TIME"] == second[0].handle.split(" ")[1], "first pop")
                tap.equal(other.ack(held).code, r.SUCCESS, "ack of a retry")
        advance(p.client, 61)
        tap.equal(p.pop(), [], "everything is acknowledged")


@tap.test("with enableRetryTopicV2 they come again through a topic of the second form, whose handles are good as well")
def _():
    with tap.watch(house(enableRetryTopicV2="true")) as d, pops.Popper(d.broker) as p:
        fill(p.client, 3)
        tap.equal(len(p.pop()), 3, "popped")
        advance(p.client, 61)
        again = []
        while len(again) < 3:
            again += p.pop(poll_ms=10000)
        tap.equal({(held.message.topic, held.topic, held.handle.split(" ")[4]) for held in again}, {("T", "%RETRY%g+T", "2")},
                  "topic that is shown, topic that is meant, its kind in the handle")
        tap.equal(p.ack(again[0]).code, r.SUCCESS, "ack")
        tap.equal(p.batch_ack(again[1:2]).code, r.SUCCESS, "batch")
        tap.equal(p.change(again[2], 3600 * 1000).code, r.SUCCESS, "changed")
        advance(p.client, 61)
        tap.equal(p.pop(), [], "nothing comes")
        tap.equal(p.client.request(DELETE_TOPIC, {"topic": "T"}).code, r.SUCCESS, "deleted")
        topics = p.client.request(GET_ALL_TOPIC_CONFIG).json()["topicConfigTable"]
        tap.check("%RETRY%g+T" not in topics and "T" not in topics, "topics %s" % sorted(topics))


@tap.test("a waiting pop is woken by a message in any queue, one pop for one message")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p, pops.Popper(d.broker) as q:
        fill(p.client, 4)
        tap.equal(len(p.pop()), 4, "popped")
        asked = {"consumerGroup": "g", "topic": "T", "queueId": -1}
        with r.Client(d.broker) as client:
            notified = client.send(pops.NOTIFICATION, {**asked, "pollTime": 20000, "bornTime": int(time.time() * 1000)})
            fill(client, 1)     # behind it on the same connection, so it waits by then
            tap.equal(client.wait(notified).ext["hasMsg"], "true", "notified")
            tap.equal(len(p.pop()), 1, "popped")
            waits = [each.client.send(*each.request(poll_ms=20000)) for each in (p, q)]
            process.wait_until(lambda: client.request(pops.POLLING_INFO, asked).ext["pollingNum"] == "2", 10, "two wait")
            fill(client, 1)
            process.wait_until(lambda: client.request(pops.POLLING_INFO, asked).ext["pollingNum"] == "1", 10, "one waits on")
            advance(client, 21)
        answers = [each.client.wait(wait) for each, wait in zip((p, q), waits)]
        tap.equal(sorted(answer.code for answer in answers), [r.SUCCESS, pops.POLLING_TIMEOUT], "answers")


@tap.test("changing the invisible time, many acknowledgements at once, one connection that goes away")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 12)
        held = p.pop()
        longer, queue1 = held[0], [each for each in held if each.queue == 1]
        others = [each for each in held if each is not longer and each.queue != 1]
        if longer in queue1:
            queue1.remove(longer)
        tap.equal(p.change(longer, 3600 * 1000).code, r.SUCCESS, "changed")
        tap.equal(p.batch_ack(queue1).code, r.SUCCESS, "batch")
        advance(p.client, 61)
        again = []
        while len(again) < len(others):
            again += p.pop(poll_ms=10000)
        tap.equal(bodies(again), bodies(others), "neither the longer one nor the batch")
        with pops.Popper(d.broker) as gone:     # its waiting pop goes with it
            gone.client.send(*gone.request(poll_ms=30000))
        for each in again:
            tap.equal(p.ack(each).code, r.SUCCESS, "ack")
        advance(p.client, 3000)
        tap.equal(p.ack(longer).code, r.SUCCESS, "ack with the new handle")
        advance(p.client, 3600)
        tap.equal(p.pop(), [], "all done")


@tap.test("kill -9 and stop: what was acknowledged stays away, what was handed out stays invisible")
def _():
    with tap.watch(house(flushDiskType="SYNC_FLUSH")) as d:
        with pops.Popper(d.broker) as p:
            fill(p.client, 12)
            held = p.pop()
            tap.equal(len(held), 12, "popped")
            waits = [p.client.send(*p.ack_request(each)) for each in held[:4]]   # many in one read
            for wait in waits:
                tap.equal(p.client.wait(wait).code, r.SUCCESS, "ack")
        d.restart(hard=True)
        with pops.Popper(d.broker) as p:
            tap.equal(p.pop(), [], "invisible after the crash")
            for each in held[4:8]:
                tap.equal(p.ack(each).code, r.SUCCESS, "the handle is still good")
        d.restart()
        with pops.Popper(d.broker) as p:
            advance(p.client, 61)
            again = []
            while len(again) < 4:
                again += p.pop(poll_ms=10000)
            tap.equal(bodies(again), bodies(held[8:]), "the rest came again")
            late = p.ack(held[0])
            tap.equal(late.code, pops.NO_MESSAGE, "a handle from before (%s)" % late.remark)


@tap.test("tries end in the dead letters")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 1)
        group = {"groupName": "g", "consumeEnable": True, "retryMaxTimes": 2, "retryQueueNums": 1}
        tap.equal(p.client.request(200, {}, json.dumps(group).encode()).code, r.SUCCESS, "group")
        for tries in range(3):
            held, = p.pop(poll_ms=10000, invisible_ms=1000)
            tap.equal(held.message.reconsume_times, tries, "tries")
            advance(p.client, 2)
        process.wait_until(lambda: count(p.client, "%DLQ%g") == 1, 10, "a dead letter")
        tap.equal(p.pop(), [], "and nothing else")


@tap.test("in order: the next ones come when the first are acknowledged, or the same again")
def _():
    wish = {"count": 2, "queue": 0, "order": True}
    with tap.watch(house()) as d:
        with pops.Popper(d.broker) as p:
            for i in range(4):
                p.client.request(r.SEND_MESSAGE_V2, *r.send_v2("T", b"%d" % i, {}, 0))
            answer = p.answer(**wish)
            tap.equal((answer.ext["reviveQid"], answer.ext["orderCountInfo"], answer.ext["msgOffsetInfo"]),
                      ("999", "0 0 0", "0 0 0,1"), "answer")
            first = p.held(answer)
            tap.equal(p.answer(**wish).code, pops.POLLING_TIMEOUT, "blocked")
            wait = p.client.send(*p.request(poll_ms=20000, **wish))
            with pops.Popper(d.broker) as other:
                tap.equal(other.ack(first[1]).code, r.SUCCESS, "ack")
                tap.equal(other.ack(first[0]).code, r.SUCCESS, "ack")
            second = p.held(p.client.wait(wait))
            tap.equal([each.body for each in second], [b"2", b"3"], "woken by the acknowledgement")
            tap.equal(p.change(second[0], 5000).code, r.SUCCESS, "changed")
        d.restart()
        with pops.Popper(d.broker) as p:
            tap.equal(p.answer(**wish).code, pops.POLLING_TIMEOUT, "still blocked after a restart")
            advance(p.client, 61)
            answer = p.answer(**wish)
            tap.equal((answer.ext["msgOffsetInfo"], answer.ext["orderCountInfo"]),
                      ("0 0 2,3", "0 qo0%2 1;0 qo0%3 1;0 0 1"), "the same, counted")


# What Apache RocketMQ 5.5.0 answers to the same frames is in the second column; None: the same.
BAD_POPS = [
    ("more than 32", {"count": 33}, 29, None),
    ("no message", {"count": 0}, 29, 210),
    ("a queue that is not there", {"queue": 9}, 29, None),
    ("no time", {"invisible_ms": 0}, 29, 0),
    ("less than no time", {"invisible_ms": -1}, 29, 0),
    ("a year", {"invisible_ms": YEAR_MS}, 29, 0),
    ("for ever", {"invisible_ms": (1 << 63) - 1}, 29, 0),
    ("asked long ago", {"bornTime": 1000, "poll_ms": 10}, 210, None),
    ("an expression that cannot be", {"exp": "a = ", "expType": "SQL92"}, 23, None),
    ("a number that is none", {"count": "many"}, 1, None),
    ("a number that is too big", {"queue": 1 << 40}, 1, None),
]
FORGED = [
    ("no handle", {"extraInfo": "xx"}, 1, None),
    ("half a handle", {"extraInfo": "0 1 2 3"}, 1, None),
    ("numbers that are none", {"extraInfo": "a b c d 0 broker-a 0 0"}, 1, None),
    ("a queue that is not there", {"queueId": 9}, 13, None),
    ("a queue below zero", {"queueId": -1}, 13, None),
    ("an offset that is not there", {"offset": 99}, 208, None),
    ("an offset below zero", {"offset": -1}, 208, None),
    ("a topic that is not there", {"topic": "nowhere"}, 17, None),
    ("somebody else's group", {"consumerGroup": "somebody"}, 208, 0),
    ("a time long ago", {"extraInfo": "0 1000 1000 0 0 broker-a 0 0"}, 208, 0),
    ("a time to come", {"extraInfo": "0 9999999999999 1000 0 0 broker-a 0 0"}, 208, 0),
    ("numbers without end", {"extraInfo": "9223372036854775807 " * 3 + "0 0 broker-a 0 0"}, 208, 0),
]


@tap.test("bad pops have their answers, and hand out nothing")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 4)
        for name, wish, code, _ in BAD_POPS:
            answer = p.answer(**wish)
            tap.equal(answer.code, code, "%s (%s)" % (name, answer.remark))
            tap.check(answer.remark, "%s: no remark" % name)
        with pops.Popper(d.broker, topic="nowhere") as q:
            tap.equal(q.answer().code, r.TOPIC_NOT_EXIST, "topic")
        with pops.Popper(d.broker, group="g g") as q:
            tap.equal(q.answer().code, pops.GROUP_NOT_EXIST, "group")
        tap.equal(p.client.request(pops.POP_MESSAGE, {"topic": "T"}).code, r.SYSTEM_ERROR, "fields missing")
        tap.equal(len(p.pop()), 4, "all are still there")


@tap.test("forged and expired handles have their answers, and change nothing")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 4)
        held = p.pop(invisible_ms=30000)
        for name, fields, code, _ in FORGED:
            answer = p.ack(held[0], **fields)
            tap.equal(answer.code, code, "ack: %s (%s)" % (name, answer.remark))
            answer = p.change(held[0], 10000, **fields)
            tap.equal(answer.code, code, "change: %s (%s)" % (name, answer.remark))
        for invisible, code in ((-1, 29), (YEAR_MS, 29), ((1 << 63) - 1, 29)):
            tap.equal(p.change(held[0], invisible).code, code, "change to %d ms" % invisible)
        request = p.client.request
        tap.equal(request(pops.BATCH_ACK_MESSAGE).code, pops.NO_MESSAGE, "no body")
        tap.equal(request(pops.BATCH_ACK_MESSAGE, {}, b"{}").code, pops.NO_MESSAGE, "no acknowledgements")
        tap.equal(request(pops.BATCH_ACK_MESSAGE, {}, b"junk").code, r.SYSTEM_ERROR, "junk")
        tap.equal(p.batch_ack([held[0]], r="7").code, r.TOPIC_NOT_EXIST, "a kind that is none")
        tap.equal(p.batch_ack([held[0]], b="////////////").code, r.SYSTEM_ERROR, "72 messages")
        tap.equal(p.batch_ack([held[0]], t="nowhere").code, r.TOPIC_NOT_EXIST, "a topic that is none")
        advance(p.client, 31)
        again = []
        while len(again) < 4:
            again += p.pop(poll_ms=10000)
        for each in held:
            tap.equal(p.ack(each).code, pops.NO_MESSAGE, "too late")
        for each in again:
            tap.equal((p.ack(each).code, p.ack(each).code), (0, 0), "in time, and once more")


@tap.test("too many that wait and too many in flight are told POLLING_FULL")
def _():
    with tap.watch(house(popPollingSize=2, maxPopInFlight=2)) as d, pops.Popper(d.broker) as p:
        fill(p.client, 12)
        held = p.pop()
        tap.equal(len({each.queue for each in held}), 2, "two queues")
        full = p.answer()
        tap.equal(full.code, pops.POLLING_FULL, "a third (%s)" % full.remark)
        tap.check("maxPopInFlight" in full.remark, full.remark)
        with pops.Popper(d.broker, topic="T2") as q:
            fill(q.client, 1, topic="T2")
            q.client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g", "topic": "T2", "queueId": 0, "commitOffset": 1})
            for _ in range(2):
                q.client.send(*q.request(poll_ms=20000))
            asked = {"consumerGroup": "g", "topic": "T2", "queueId": -1}
            process.wait_until(lambda: p.client.request(pops.POLLING_INFO, asked).ext["pollingNum"] == "2", 10, "two wait")
            with pops.Popper(d.broker, topic="T2") as third:
                tap.equal(third.answer(poll_ms=20000).code, pops.POLLING_FULL, "the third")


@tap.test("who reads what: PULL is divided, POP is for all, and an operator's wish survives a restart")
def _():
    def ask(client, **fields):
        body = {"topic": "T", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG",
                "messageModel": "CLUSTERING", **fields}
        answer = client.request(pops.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
        tap.equal(answer.code, r.SUCCESS, "assignment (%s)" % answer.remark)
        found = answer.json().get("messageQueueAssignments")
        return found and sorted((each["mode"], each["messageQueue"]["queueId"]) for each in found)

    def set_mode(client, **fields):
        body = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, **fields}
        return client.request(pops.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode()).code

    def join(client, name):
        body = {"clientID": name, "producerDataSet": [], "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": [],
                                     "classFilterMode": False, "expressionType": "TAG"}]}]}
        tap.equal(client.request(r.HEART_BEAT, {}, json.dumps(body).encode()).code, r.SUCCESS, "heartbeat")

    with tap.watch(house()) as d:
        with r.Client(d.broker) as client, r.Client(d.broker) as other:
            fill(client, 1)
            tap.equal(ask(client), None, "nobody is there")
            join(client, "c1")
            join(other, "c2")
            tap.equal(ask(client), [("PULL", 0), ("PULL", 1)], "half of it")
            tap.equal(ask(client, clientId="c2"), [("PULL", 2), ("PULL", 3)], "the other half")
            tap.equal(ask(client, strategyName="AVG_BY_CIRCLE"), [("PULL", 0), ("PULL", 2)], "in a circle")
            tap.equal(ask(client, strategyName="BEST"), None, "a strategy that is none")
            tap.equal(ask(client, messageModel="BROADCASTING"), [("PULL", i) for i in range(4)], "everything")
            tap.equal(ask(client, topic="nowhere"), None, "a topic that is none")
            tap.equal(client.request(pops.QUERY_ASSIGNMENT, {}, b"junk").code, r.SYSTEM_ERROR, "junk")
            tap.equal(set_mode(client), r.SUCCESS, "set")
            tap.equal(set_mode(client, topic="%RETRY%g"), r.NO_PERMISSION, "a retry topic")
            tap.equal(set_mode(client, topic="nowhere"), r.TOPIC_NOT_EXIST, "a topic that is none")
            tap.equal(set_mode(client, mode="GRAB"), r.SYSTEM_ERROR, "a mode that is none")
            tap.equal(ask(client), [("POP", -1)], "any queue")
        d.restart(hard=False)
        with r.Client(d.broker) as client:
            join(client, "c1")
            tap.equal(ask(client), [("POP", -1)], "after a restart")
            modes = client.request(pops.GET_ALL_MESSAGE_REQUEST_MODE).json()["messageRequestModeMap"]
            tap.equal(modes, {"T": {"g": {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}}}, "modes")


@tap.test("queues are divided over all brokers, also by one whose name server is elsewhere")
def _():
    with tap.watch(house()) as a, tap.watch(daemons.Daemon(roles="broker", name="second", settings={
            "brokerName": "broker-b", "namesrvAddr": a.names})) as b, \
            r.Client(a.broker) as first, r.Client(b.broker) as second:
        heart = {"clientID": "c1", "producerDataSet": [], "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_POP", "messageModel": "CLUSTERING", "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": []}]}
        ask = {"topic": "T", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG", "messageModel": "CLUSTERING"}
        mode = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
        for client in (first, second):
            fill(client, 1)
            for code, body in ((r.HEART_BEAT, heart), (pops.SET_MESSAGE_REQUEST_MODE, mode)):
                tap.equal(client.request(code, {}, json.dumps(body).encode()).code, r.SUCCESS, "set up")

        def found(client):
            answer = client.request(pops.QUERY_ASSIGNMENT, {}, json.dumps(ask).encode()).json()
            return sorted((each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"])
                          for each in answer["messageQueueAssignments"])
        both = [("broker-a", -1), ("broker-b", -1)]
        for client in (first, second):
            process.wait_until(lambda client=client: found(client) == both, 60, "both brokers")


@tap.test("peeking takes nothing")
def _():
    with tap.watch(house()) as d, pops.Popper(d.broker) as p:
        fill(p.client, 4)
        fields = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 32}
        for _ in range(2):
            tap.equal(len(r.messages(p.client.request(pops.PEEK_MESSAGE, fields).body)), 4, "seen")
        tap.equal(len(p.pop()), 4, "popped")
        tap.equal(p.client.request(pops.PEEK_MESSAGE, fields).code, r.PULL_NOT_FOUND, "nothing to see")


tap.main()
