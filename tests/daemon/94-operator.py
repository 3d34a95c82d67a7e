"""What operators look at and change while the broker runs, in raw frames: surveys over all groups, statistics, settings."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

UPDATE_GROUP, RUNNING_INFO, CONSUME_DIRECTLY, CLONE, DELETE_TOPIC = 200, 307, 309, 314, 215
TIME_SPAN, SYSTEM_TOPICS, VIEW_STATS, CLEAN_TOPICS, ALL_CONSUME_STATS = 303, 305, 315, 316, 317
GET_RUNTIME, TOPIC_STATS, CONSUME_STATS, ADVANCE_CLOCK = 28, 202, 208, 10001
ALL_PRODUCERS, GROUP_TOPICS, SUBSCRIPTION = 328, 343, 345
NOT_SUPPORTED, QUERY_NOT_FOUND, GROUP_NOT_EXIST, INVALID_PARAMETER = 3, 22, 26, 29
SUBSCRIBED = 4
LONG = "n" * 300

daemon = daemons.Daemon(settings={"brokerName": "broker-a", "brokerClusterName": "C1"}, args=["--clock", "virtual"])
tap.watch(daemon)


def connect():
    return r.Client(daemon.broker)


def make_topic(client, topic, queues=2, order=False):
    made = client.request(r.UPDATE_AND_CREATE_TOPIC, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": order})
    tap.equal(made.code, r.SUCCESS, "making %s (%s)" % (topic, made.remark))


def make_group(client, group):
    tap.equal(client.request(UPDATE_GROUP, body=r.dumps({"groupName": group})).code, r.SUCCESS, "making %s" % group)


def send(client, topic, body, queue=0, **fields):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, queue_id=queue, **fields))


def pull(client, topic, group, queue=0, offset=0):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIBED, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG"})


def heartbeat(client, client_id, group=None, topics=(), producer=None):
    subscriptions = [{"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                      "expressionType": "TAG", "classFilterMode": False} for topic in topics]
    consumers = [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                  "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                  "subscriptionDataSet": subscriptions}] if group else []
    beat = client.request(r.HEART_BEAT, body=r.dumps({
        "clientID": client_id, "producerDataSet": [{"groupName": producer}] if producer else [],
        "consumerDataSet": consumers}))
    tap.equal(beat.code, r.SUCCESS, "heartbeat of %s (%s)" % (client_id, beat.remark))


def commit(client, group, topic, offset, queue=0):
    done = client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                                     "commitOffset": offset})
    tap.equal(done.code, r.SUCCESS, "commit (%s)" % done.remark)


def offset_of(client, group, topic, queue=0):
    found = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                                     "setZeroIfNotFound": False})
    return int(found.ext["offset"]) if found.code == r.SUCCESS else None


def refused(answer, what, code):
    tap.check(answer.code != r.SUCCESS and answer.remark, "%s: code %d, remark %r" % (what, answer.code, answer.remark))
    tap.equal(answer.code, code, "code of %s (%s)" % (what, answer.remark))


# Surveys ------------------------------------------------------------------------------------------------------------

@tap.test("the progress of all groups is shown at once, with how far they are behind together")
def _():
    with connect() as client:
        make_topic(client, "Seen")
        make_topic(client, "InOrder", order=True)
        for i in range(5):
            send(client, "Seen", b"%d" % i)
        send(client, "InOrder", b"x", queue=1)
        for group in ("sa", "sb"):
            make_group(client, group)
        commit(client, "sa", "Seen", 3)
        commit(client, "sb", "Seen", 5)
        commit(client, "sb", "InOrder", 0, queue=1)
        shown = client.request(ALL_CONSUME_STATS, {"isOrder": False}).json()
        tap.equal((shown["totalDiff"], shown["brokerAddr"]), (3, daemon.broker), "totals")
        groups = {group: stats for entry in shown["consumeStatsList"] for group, stats in entry.items()}
        tap.equal(sorted(groups), ["sa", "sb"], "groups")
        tap.equal([len(groups["sa"]), len(groups["sb"])], [1, 2], "topics")
        places = [(place["brokerOffset"], place["consumerOffset"]) for place in groups["sa"][0]["offsetTable"].values()]
        tap.equal(sorted(places), [(0, 0), (5, 3)], "places")
        ordered = client.request(ALL_CONSUME_STATS, {"isOrder": True}).json()
        tap.equal((ordered["totalDiff"], [list(entry) for entry in ordered["consumeStatsList"]]), (1, [["sb"]]), "ordered")


@tap.test("who produces, what a group reads and how it subscribes can be asked for")
def _():
    with connect() as client, connect() as consumer:
        heartbeat(consumer, "look@1", group="sa", topics=["Seen", "Other"], producer="pa")
        producer, = client.request(ALL_PRODUCERS).json()["data"]["pa"]
        tap.equal((producer["clientId"], producer["remoteIP"][:11]), ("look@1", "/127.0.0.1:"), "producer")
        tap.check(producer["lastUpdateTimestamp"] > 1700000000000, "last sign of life %s" % producer)
        tap.equal(client.request(GROUP_TOPICS, {"group": "sa"}).json()["topicList"], ["Other", "Seen"], "topics")
        tap.equal(client.request(GROUP_TOPICS, {"group": LONG}).json()["topicList"], [], "topics of nobody")
        shown = client.request(SUBSCRIPTION, {"group": "sa", "topic": "Other"}).json()
        tap.equal((shown["group"], shown["topic"], shown["subscriptionData"]["subString"]), ("sa", "Other", "*"), "subscription")
        absent = client.request(SUBSCRIPTION, {"group": LONG, "topic": "Other"}).json()
        tap.check("subscriptionData" not in absent, "subscription of nobody: %s" % absent)
        system = client.request(SYSTEM_TOPICS).json()["topicList"]
        tap.check({"TBW102", "SCHEDULE_TOPIC_XXXX", "C1", "broker-a"} <= set(system), "system topics %s" % system)
        tap.check("Seen" not in system, "a user's topic")


@tap.test("the time span of a queue tells how old the next message of a group is")
def _():
    with connect() as client:
        spans = client.request(TIME_SPAN, {"topic": "Seen", "group": "sa"}).json()["consumeTimeSpanSet"]
        tap.equal([span["messageQueue"]["queueId"] for span in spans], [0, 1], "queues")
        used, empty = spans
        tap.check(used["minTimeStamp"] <= used["consumeTimeStamp"] <= used["maxTimeStamp"], "times %s" % used)
        tap.equal((empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]), (-1, -1, 0), "of an empty queue")
        refused(client.request(TIME_SPAN, {"topic": LONG, "group": "sa"}), "an unknown topic", r.TOPIC_NOT_EXIST)
        client.request(ADVANCE_CLOCK, {"advanceMillis": 3600000})
        used = client.request(TIME_SPAN, {"topic": "Seen", "group": "sa"}).json()["consumeTimeSpanSet"][0]
        tap.check(used["delayTime"] >= 3600000, "an hour later: %s" % used)


@tap.test("offsets are cloned: of one topic, or of all")
def _():
    with connect() as client:
        make_topic(client, "Second")
        send(client, "Second", b"x")
        commit(client, "sb", "Second", 1)
        for group in ("clone1", "clone2"):
            make_group(client, group)
        done = client.request(CLONE, {"srcGroup": "sb", "destGroup": "clone1", "topic": "Seen", "offline": True})
        tap.equal(done.code, r.SUCCESS, "clone (%s)" % done.remark)
        tap.equal((offset_of(client, "clone1", "Seen"), offset_of(client, "clone1", "Second")), (5, None), "one topic")
        client.request(CLONE, {"srcGroup": "sb", "destGroup": "clone2", "offline": True})
        tap.equal((offset_of(client, "clone2", "Seen"), offset_of(client, "clone2", "Second")), (5, 1), "all topics")
        refused(client.request(CLONE, {"srcGroup": "sb", "destGroup": LONG}), "to a group that is not", GROUP_NOT_EXIST)
        tap.equal(client.request(CLONE, {"srcGroup": LONG, "destGroup": "clone2"}).code, r.SUCCESS, "from nobody")
        tap.equal(offset_of(client, "clone2", "Seen"), 5, "unchanged")


@tap.test("a consumer is given one message by hand, and its verdict is passed on")
def _():
    with connect() as client, connect() as consumer:
        heartbeat(consumer, "hand@1", group="hg", topics=["Seen"])
        sent = send(client, "Seen", b"by hand")
        fields = {"consumerGroup": "hg", "clientId": "hand@1", "msgId": sent.ext["msgId"], "topic": "Seen",
                  "brokerName": "somewhere else"}
        opaque = client.send(CONSUME_DIRECTLY, fields)
        question = consumer.wait_pushed(CONSUME_DIRECTLY)
        tap.equal((question.ext["brokerName"], question.ext["topicSysFlag"], question.ext["groupSysFlag"]),
                  ("broker-a", "0", "0"), "fields")
        message, = r.messages(question.body)
        tap.equal((message.topic, message.body), ("Seen", b"by hand"), "message")
        consumer.respond(question, body=b'{"consumeResult":"CR_SUCCESS"}')
        tap.equal(client.wait(opaque).body, b'{"consumeResult":"CR_SUCCESS"}', "verdict")
        refused(client.request(CONSUME_DIRECTLY, dict(fields, msgId="nonsense")), "a bad id", INVALID_PARAMETER)
        beyond = sent.ext["msgId"][:-8] + "7FFFFFF0"
        refused(client.request(CONSUME_DIRECTLY, dict(fields, msgId=beyond)), "a message that is not", QUERY_NOT_FOUND)
        refused(client.request(CONSUME_DIRECTLY, dict(fields, clientId="nobody")), "nobody", r.SYSTEM_ERROR)


@tap.test("clean-up of unused topics leaves those that exist, and what is not offered is refused by name")
def _():
    with connect() as client, r.Client(daemon.names) as names:
        make_topic(client, "Gone")
        send(client, "Gone", b"x")
        client.request(DELETE_TOPIC, {"topic": "Gone"})
        tap.equal(client.request(CLEAN_TOPICS).code, r.SUCCESS, "clean-up")
        tap.equal(len(r.messages(pull(client, "Seen", "sa").body)), 6, "messages of another topic")
        for who, code, name in ((client, 513, "UPDATE_AND_CREATE_STATIC_TOPIC"), (client, 907, "GET_BROKER_HA_STATUS"),
                                (client, 3001, "AUTH_CREATE_USER"), (names, 1005, "CONTROLLER_GET_METADATA_INFO")):
            answer = who.request(code)
            refused(answer, name, NOT_SUPPORTED)
            tap.check(name in answer.remark, "the name in %r" % answer.remark)


# Statistics ---------------------------------------------------------------------------------------------------------

def stat(client, name, key):
    answer = client.request(VIEW_STATS, {"statsName": name, "statsKey": key})
    tap.equal(answer.code, r.SUCCESS, "%s of %s (%s)" % (name, key, answer.remark))
    return answer.json()


@tap.test("statistics show what has just come and gone, by topic, queue, group and broker")
def _():
    with connect() as client:
        make_topic(client, "Counted")
        make_group(client, "cg")
        all_before = stat(client, "BROKER_PUT_NUMS", "C1")["statsDay"]["sum"]
        for i in range(7):
            send(client, "Counted", b"x" * 100, queue=i % 2)
        messages = r.messages(pull(client, "Counted", "cg").body)
        tap.equal(len(messages), 4, "pulled")
        for span in ("statsMinute", "statsHour", "statsDay"):
            tap.equal(stat(client, "TOPIC_PUT_NUMS", "Counted")[span]["sum"], 7, span)
            tap.equal(stat(client, "GROUP_GET_NUMS", "Counted@cg")[span]["sum"], 4, span)
        tap.equal(stat(client, "QUEUE_PUT_NUMS", "Counted@1")["statsMinute"]["sum"], 3, "of a queue")
        tap.equal(stat(client, "BROKER_PUT_NUMS", "C1")["statsDay"]["sum"], all_before + 7, "of the broker")
        size = stat(client, "GROUP_GET_SIZE", "Counted@cg")["statsMinute"]
        tap.equal((size["sum"], size["avgpt"]), (sum(m.size for m in messages), size["sum"]), "bytes in one pull")
        tap.check(client.request(TOPIC_STATS, {"topic": "Counted"}).json()["topicPutTps"] > 0, "topicPutTps")
        commit(client, "cg", "Counted", 4)
        tap.check(client.request(CONSUME_STATS, {"consumerGroup": "cg"}).json()["consumeTps"] > 0, "consumeTps")
        refused(client.request(VIEW_STATS, {"statsName": "TOPIC_PUT_NUMS", "statsKey": LONG}), "nothing counted", r.SYSTEM_ERROR)
        refused(client.request(VIEW_STATS, {"statsName": LONG, "statsKey": "Counted"}), "no such name", r.SYSTEM_ERROR)


@tap.test("a day later the statistics of the day are empty, and the totals are not")
def _():
    with connect() as client:
        before = client.request(GET_RUNTIME).json()["table"]
        tap.check(float(before["putLatency99"]) > 0 and float(before["getLatency99"]) > 0, "latencies %s" % before)

        def minute_is_over():  # what is noted every ten seconds shows that it is
            client.request(ADVANCE_CLOCK, {"advanceMillis": 10000})
            return stat(client, "TOPIC_PUT_NUMS", "Counted")["statsMinute"]["sum"] == 0
        process.wait_until(minute_is_over, 30, "an empty minute")
        tap.equal(stat(client, "TOPIC_PUT_NUMS", "Counted")["statsDay"]["sum"], 7, "of the day")
        client.request(ADVANCE_CLOCK, {"advanceMillis": 26 * 3600 * 1000})
        tap.equal(stat(client, "TOPIC_PUT_NUMS", "Counted")["statsDay"]["sum"], 0, "of the day")
        after = client.request(GET_RUNTIME).json()["table"]
        tap.equal(after["putMessageTimesTotal"], before["putMessageTimesTotal"], "total")
        client.request(DELETE_TOPIC, {"topic": "Counted"})
        refused(client.request(VIEW_STATS, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Counted"}), "a deleted topic",
                r.SYSTEM_ERROR)


tap.main()
