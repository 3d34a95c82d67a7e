"""Administration, ordered consumption and request-reply in raw frames: each code as clients and mqadmin send it, and
as nobody should."""

import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

LOCK_BATCH_MQ, UNLOCK_BATCH_MQ, SEND_REPLY, SEND_REPLY_V2, PUSH_REPLY = 41, 42, 324, 325, 326
GET_ALL_TOPIC_CONFIG, GET_BROKER_CONFIG, GET_RUNTIME, DELETE_TOPIC = 21, 26, 28, 215
UPDATE_GROUP, GET_ALL_GROUPS, TOPIC_STATS, CONSUMERS, PRODUCERS, DELETE_GROUP, CONSUME_STATS = 200, 201, 202, 203, 204, 207, 208
RESET_CLIENT, RESET, WHO_CONSUMES, CLEAN_QUEUES, RUNNING_INFO, DELETE_LOG = 220, 222, 300, 306, 307, 329
GET_TOPIC, GET_GROUP = 351, 352
SUSPEND, SUBSCRIPTION = 2, 4
NO_PERMISSION, GROUP_NOT_EXIST, INVALID_PARAMETER, NOT_ONLINE, TIMEOUT = 16, 26, 29, 206, 207
LONG = "n" * 300

daemon = daemons.Daemon(settings={"brokerName": "broker-a", "brokerClusterName": "C1"})
tap.watch(daemon)


def connect():
    return r.Client(daemon.broker)


def topic_fields(topic, read=4, write=4, perm=6, **more):
    return dict({"topic": topic, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm,
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}, **more)


def make_topic(client, topic, **settings):
    made = client.request(r.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, **settings))
    tap.equal(made.code, r.SUCCESS, "making %s (%s)" % (topic, made.remark))


def send(client, topic, body, queue=0, **fields):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, queue_id=queue, **fields))


def pull_fields(topic, queue=0, offset=0, group="g", flags=SUBSCRIPTION, wait_ms=0):
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": flags, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG"}


def heartbeat(client, client_id, group=None, topics=(), producer=None, model="CLUSTERING", tags="*"):
    subscriptions = [{"topic": topic, "subString": tags, "tagsSet": [], "codeSet": [], "subVersion": 1,
                      "expressionType": "TAG", "classFilterMode": False} for topic in topics]
    consumers = [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
                  "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
                  "subscriptionDataSet": subscriptions}] if group else []
    beat = client.request(r.HEART_BEAT, body=r.dumps({
        "clientID": client_id, "producerDataSet": [{"groupName": producer}] if producer else [],
        "consumerDataSet": consumers}))
    tap.equal(beat.code, r.SUCCESS, "heartbeat of %s (%s)" % (client_id, beat.remark))


def queue_key(topic, queue):
    return r.dumps({"brokerName": "broker-a", "queueId": queue, "topic": topic}).decode()


def commit(client, group, topic, offset, queue=0):
    return client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                                     "commitOffset": offset})


def offset_of(client, group, topic, queue=0):
    found = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                                     "setZeroIfNotFound": False})
    return int(found.ext["offset"]) if found.code == r.SUCCESS else None


def refused(answer, what, code=None):
    tap.check(answer.code != r.SUCCESS and answer.remark, "%s: code %d, remark %r" % (what, answer.code, answer.remark))
    if code is not None:
        tap.equal(answer.code, code, "code of %s (%s)" % (what, answer.remark))


# Ordered consumption ------------------------------------------------------------------------------------------------

def queues(topic, *numbers):
    return [{"brokerName": "broker-a", "queueId": number, "topic": topic} for number in numbers]


def lock(client, group, client_id, wanted, code=LOCK_BATCH_MQ):
    answer = client.request(code, body=r.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": wanted,
                                                "onlyThisBroker": False}))
    tap.equal(answer.code, r.SUCCESS, "code %d (%s)" % (code, answer.remark))
    return answer.json()["lockOKMQSet"] if code == LOCK_BATCH_MQ else answer.body


@tap.test("queues are locked by one client of a group, which keeps them on a new connection until it unlocks")
def _():
    with connect() as one, connect() as two:
        make_topic(one, "Ordered")
        tap.equal(lock(one, "og", "one@1", queues("Ordered", 0, 1)), queues("Ordered", 0, 1), "the first gets them")
        tap.equal(lock(two, "og", "two@2", queues("Ordered", 1, 2)), queues("Ordered", 2), "the second gets the rest")
        tap.equal(lock(two, "other", "two@2", queues("Ordered", 0)), queues("Ordered", 0), "another group")
    with connect() as again, connect() as two:
        tap.equal(lock(again, "og", "one@1", queues("Ordered", 0, 1)), queues("Ordered", 0, 1), "after reconnecting")
        lock(two, "og", "two@2", queues("Ordered", 0), UNLOCK_BATCH_MQ)
        tap.equal(lock(two, "og", "two@2", queues("Ordered", 0)), [], "unlocked by a stranger")
        tap.equal(lock(again, "og", "one@1", queues("Ordered", 0), UNLOCK_BATCH_MQ), b"", "body of an unlock")
        tap.equal(lock(two, "og", "two@2", queues("Ordered", 0)), queues("Ordered", 0), "unlocked by its owner")


@tap.test("a request for locks that makes no sense is refused, and nothing of it is kept")
def _():
    with connect() as client:
        tap.equal(lock(client, "og", "c", queues("NoSuchTopic", 0) + queues("Ordered", 4)), [], "what does not exist")
        for code in (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ):
            for body in (b"", b"{", b"[]", b"{}", b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T"}]}'):
                refused(client.request(code, body=body), "body %r" % body, r.SYSTEM_ERROR)
            many = r.dumps({"clientId": "c", "consumerGroup": "g", "mqSet": queues("Ordered", *range(20000))})
            refused(client.request(code, body=many), "20000 queues", INVALID_PARAMETER)
            for group, client_id in ((LONG, "c"), ("g", LONG), ("a b", "c")):
                body = r.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": []})
                refused(client.request(code, body=body), "names", INVALID_PARAMETER)


@tap.test("a message that a group with locks sends to its retry topic is a dead letter at once")
def _():
    with connect() as client:
        heartbeat(client, "o@1", group="dog", topics=["Ordered"])
        retried = send(client, "%RETRY%dog", b"again", reconsumeTimes=1)
        tap.equal(retried.code, r.SUCCESS, "without locks (%s)" % retried.remark)
        refused(client.request(GET_TOPIC, {"topic": "%DLQ%dog"}), "no dead letter yet", r.TOPIC_NOT_EXIST)
        lock(client, "dog", "o@1", queues("Ordered", 3))
        given_up = send(client, "%RETRY%dog", b"given up", reconsumeTimes=1)
        tap.equal(given_up.code, r.SUCCESS, "with locks (%s)" % given_up.remark)
        where = {"topic": "%DLQ%dog", "queueId": 0}
        process.wait_until(lambda: client.request(r.GET_MAX_OFFSET, where).ext["offset"] == "1", 20, "a dead letter")


# Request and reply --------------------------------------------------------------------------------------------------

def reply_fields(body, to="asker@1", topic="C1_REPLY_TOPIC", **fields):
    properties = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply", "TTL": "3000"}
    if to:
        properties["REPLY_TO_CLIENT"] = to
    return r.send_v2(topic, body, properties=properties, queue_id=0, group="replier", **fields)


@tap.test("a reply is pushed to the client that waits for it, and its sender hears what became of it")
def _():
    with connect() as asker, connect() as replier:
        heartbeat(asker, "asker@1", producer="askers")
        fields, body = reply_fields(b"the answer")
        opaque = replier.send(SEND_REPLY_V2, fields, body)
        pushed = asker.wait_pushed(PUSH_REPLY)
        tap.equal((pushed.body, pushed.flag), (b"the answer", 0), "push")
        properties = r.properties(pushed.ext["properties"])
        tap.equal((properties["CORRELATION_ID"], properties["REPLY_TO_CLIENT"]), ("c-1", "asker@1"), "properties")
        tap.check(abs(int(properties["PUSH_REPLY_TIME"]) - time.time() * 1000) < 60000, "time of the push")
        tap.equal((pushed.ext["topic"], pushed.ext["producerGroup"], pushed.ext["storeHost"]),
                  ("C1_REPLY_TOPIC", "replier", daemon.broker), "fields")
        tap.check(re.match(r"127\.0\.0\.1:\d+$", pushed.ext["bornHost"]), "born host %r" % pushed.ext["bornHost"])
        tap.equal(opaque in replier.replies, False, "answered before the asker was")
        asker.respond(pushed)
        answer = replier.wait(opaque)
        tap.equal((answer.code, answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["MSG_REGION"]),
                  (r.SUCCESS, "0", "0", "DefaultRegion"), "answer")
        stored, = r.messages(replier.request(r.PULL_MESSAGE, pull_fields("C1_REPLY_TOPIC")).body)
        tap.equal((stored.body, stored.offset_id), (b"the answer", answer.ext["msgId"]), "stored reply")
        # The long names of the older code; this time the asker refuses it.
        letters = {letter: name for name, letter in r.SEND_V2_LETTERS.items()}
        opaque = replier.send(SEND_REPLY, {letters[k]: v for k, v in fields.items()}, body)
        asker.respond(asker.wait_pushed(PUSH_REPLY), code=r.SYSTEM_ERROR)
        answer = replier.wait(opaque)
        tap.equal((answer.code, answer.remark), (r.SYSTEM_ERROR, "push reply message to asker@1fail."), "refused")


@tap.test("a reply that nobody waits for is answered with the reason")
def _():
    with connect() as replier:
        answer = replier.request(SEND_REPLY_V2, *reply_fields(b"x", to="nobody@0"))
        tap.equal((answer.code, answer.remark),
                  (r.SYSTEM_ERROR, "push reply message fail, channel of <nobody@0> not found."), "unknown client")
        answer = replier.request(SEND_REPLY_V2, *reply_fields(b"x", to=None))
        tap.equal((answer.code, answer.remark),
                  (r.SYSTEM_ERROR, "reply message properties[REPLY_TO_CLIENT] is null"), "no client")
        refused(replier.request(SEND_REPLY_V2, *reply_fields(b"x", to=LONG)), "a client id of 300 bytes", r.SYSTEM_ERROR)
        refused(replier.request(SEND_REPLY_V2, *reply_fields(b"x", topic="a b")), "a topic that cannot be",
                INVALID_PARAMETER)
        refused(replier.request(SEND_REPLY_V2, {"a": "g"}, b"x"), "missing fields", r.SYSTEM_ERROR)
        asker = connect()
        heartbeat(asker, "leaver@1", producer="askers")
        opaque = replier.send(SEND_REPLY_V2, *reply_fields(b"x", to="leaver@1"))
        asker.wait_pushed(PUSH_REPLY)
        asker.close()
        tap.equal(replier.wait(opaque).remark, "push reply message to leaver@1fail.", "its connection ended")


@tap.test("a client that never answers its questions keeps nobody waiting for ever, and not too many at once")
def _():
    with connect() as mute, connect() as replier:
        heartbeat(mute, "mute@1", producer="askers")
        waiting = [replier.send(SEND_REPLY_V2, *reply_fields(b"x" * 1000, to="mute@1")) for _ in range(300)]
        answers = [replier.wait(opaque, 30) for opaque in waiting]
        tap.equal({a.code for a in answers}, {r.SYSTEM_ERROR}, "codes")
        tap.equal({a.remark for a in answers}, {"push reply message to mute@1fail."}, "remarks")
        mute.respond(mute.wait_pushed(PUSH_REPLY))  # too late: nobody asks any more
        heartbeat(mute, "mute@1", producer="askers")


# Topics -------------------------------------------------------------------------------------------------------------

def route(topic):
    with r.Client(daemon.names) as names:
        found = names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return found.json()["queueDatas"][0] if found.code == r.SUCCESS else None


@tap.test("a topic is made and changed, and name servers know at once")
def _():
    with connect() as client:
        make_topic(client, "Made", read=3, write=2, perm=6, attributes="+message.type=FIFO")
        data = process.wait_until(lambda: route("Made"), 20, "a route")
        tap.equal((data["readQueueNums"], data["writeQueueNums"], data["perm"]), (3, 2, 6), "queues")
        make_topic(client, "Made", read=5, write=5, perm=4)
        process.wait_until(lambda: route("Made")["perm"] == 4, 20, "the new permission")
        config = client.request(GET_TOPIC, {"topic": "Made"}).json()
        tap.equal((config["readQueueNums"], config["perm"], config["attributes"]), (5, 4, {"message.type": "FIFO"}), "config")
        refused(send(client, "Made", b"x"), "sending without permission", NO_PERMISSION)
        everything = client.request(GET_ALL_TOPIC_CONFIG).json()
        tap.equal(everything["topicConfigTable"]["Made"]["writeQueueNums"], 5, "in the whole table")
        tap.check(everything["dataVersion"]["counter"] > 0, "version %s" % everything["dataVersion"])


@tap.test("a topic that cannot be is refused with the reason")
def _():
    with connect() as client:
        cases = [("a b", {}), (LONG, {}), ("", {}), ("TBW102", {}), ("C1", {}), ("broker-a", {}), ("C1_REPLY_TOPIC", {}),
                 ("SCHEDULE_TOPIC_" + "X" * 4, {}), ("T", {"read": -1}), ("T", {"write": 70000}), ("T", {"perm": 99}),
                 ("T", {"topicFilterType": "NONE"}), ("T", {"attributes": "+no.such=1"}), ("T", {"attributes": "x"}),
                 ("T", {"attributes": "+queue.type=BatchCQ"}), ("T", {"attributes": "-message.type"}),
                 ("T", {"attributes": "+message.type=FIFO,+message.type=FIFO"}), ("T", {"attributes": "," * 50})]
        for topic, settings in cases:
            answer = client.request(r.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, **settings))
            refused(answer, "%s %s" % (topic[:20], settings))
        refused(client.request(r.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}), "missing fields", r.SYSTEM_ERROR)
        refused(client.request(GET_TOPIC, {"topic": "T"}), "none of them was made", r.TOPIC_NOT_EXIST)
        refused(client.request(GET_TOPIC, {"topic": LONG}), "a long name", r.TOPIC_NOT_EXIST)
        for code in (DELETE_TOPIC, GET_TOPIC, TOPIC_STATS, WHO_CONSUMES):
            refused(client.request(code), "code %d without fields" % code, r.SYSTEM_ERROR)
        refused(client.request(DELETE_TOPIC, {"topic": "TBW102"}), "deleting the template", INVALID_PARAMETER)
        refused(client.request(DELETE_TOPIC, {"topic": LONG}), "deleting a long name", INVALID_PARAMETER)
        tap.equal(client.request(DELETE_TOPIC, {"topic": "NoSuch"}).code, r.SUCCESS, "deleting what is not there")


@tap.test("a deleted topic is gone with its offsets, its waiting readers hear of it, and it stays gone")
def _():
    with connect() as client, connect() as waiter:
        make_topic(client, "Doomed")
        send(client, "Doomed", b"x")
        heartbeat(client, "d@1", group="dg", topics=["Doomed"])
        tap.equal(commit(client, "dg", "Doomed", 1).code, r.SUCCESS)
        opaque = waiter.send(r.PULL_MESSAGE, pull_fields("Doomed", offset=1, flags=SUBSCRIPTION | SUSPEND, wait_ms=60000))
        waiter.request(r.GET_MAX_OFFSET, {"topic": "Doomed", "queueId": 0})  # now it waits
        tap.equal(client.request(DELETE_TOPIC, {"topic": "Doomed"}).code, r.SUCCESS, "delete")
        tap.equal(waiter.wait(opaque).code, r.TOPIC_NOT_EXIST, "the waiting reader")
        refused(client.request(r.PULL_MESSAGE, pull_fields("Doomed")), "a pull", r.TOPIC_NOT_EXIST)
        tap.equal(offset_of(client, "dg", "Doomed"), None, "offset")
        tap.equal("Doomed" in client.request(GET_ALL_TOPIC_CONFIG).json()["topicConfigTable"], False, "in the table")
    daemon.restart()
    with connect() as client:
        refused(client.request(r.PULL_MESSAGE, pull_fields("Doomed")), "a pull after a restart", r.TOPIC_NOT_EXIST)
        # Made anew it goes on where it ended: no offset is ever given twice.
        make_topic(client, "Doomed")
        tap.equal(send(client, "Doomed", b"y").ext["queueOffset"], "1", "the next offset")
    daemon.restart(hard=True)
    with connect() as client:
        tap.equal(client.request(r.PULL_MESSAGE, pull_fields("Doomed", offset=1)).code, r.SUCCESS, "after a crash")


# Groups -------------------------------------------------------------------------------------------------------------

def group(client, name, **settings):
    return client.request(UPDATE_GROUP, body=r.dumps(dict({"groupName": name}, **settings)))


@tap.test("the settings of a group are kept, shown and honoured")
def _():
    with connect() as client:
        make_topic(client, "Grouped")
        send(client, "Grouped", b"x")
        tap.equal(group(client, "gg", retryQueueNums=3, retryMaxTimes=5, consumeEnable=False).code, r.SUCCESS)
        shown = client.request(GET_GROUP, {"group": "gg"}).json()
        tap.equal((shown["retryQueueNums"], shown["retryMaxTimes"], shown["consumeEnable"]), (3, 5, False), "settings")
        everything = client.request(GET_ALL_GROUPS).json()
        tap.equal(everything["subscriptionGroupTable"]["gg"], shown, "in the whole table")
        refused(client.request(r.PULL_MESSAGE, pull_fields("Grouped", group="gg")), "consumeEnable", NO_PERMISSION)
        group(client, "gg", retryQueueNums=3, consumeBroadcastEnable=False)
        tap.equal(client.request(r.PULL_MESSAGE, pull_fields("Grouped", group="gg")).code, r.SUCCESS, "enabled again")
        heartbeat(client, "b@1", group="gg", topics=["Grouped"], model="BROADCASTING")
        refused(client.request(r.PULL_MESSAGE, pull_fields("Grouped", group="gg", flags=0)), "broadcast", NO_PERMISSION)
        retry = client.request(GET_TOPIC, {"topic": "%RETRY%gg"}).json()
        tap.equal((retry["readQueueNums"], retry["writeQueueNums"]), (3, 3), "queues of the retry topic")
        commit(client, "gg", "Grouped", 1)
        tap.equal(client.request(DELETE_GROUP, {"groupName": "gg", "cleanOffset": True}).code, r.SUCCESS)
        refused(client.request(GET_GROUP, {"group": "gg"}), "after the deletion", GROUP_NOT_EXIST)
        tap.equal(offset_of(client, "gg", "Grouped"), None, "offset")
        group(client, "kept", retryMaxTimes=7)
    daemon.restart(hard=False)
    with connect() as client:
        tap.equal(client.request(GET_GROUP, {"group": "kept"}).json()["retryMaxTimes"], 7, "after a restart")


@tap.test("a group that cannot be is refused")
def _():
    with connect() as client:
        for body in (b"", b"{", b"[]", b'{"groupName":', b'"g"'):
            refused(client.request(UPDATE_GROUP, body=body), "body %r" % body, r.SYSTEM_ERROR)
        for settings in ({"groupName": LONG}, {"groupName": ""}, {}, {"groupName": "a b"},
                         {"groupName": "g", "retryQueueNums": 100000}, {"groupName": "g", "attributes": {"+x": "y"}}):
            refused(client.request(UPDATE_GROUP, body=r.dumps(settings)), str(settings)[:60], INVALID_PARAMETER)
        refused(client.request(GET_GROUP, {"group": LONG}), "a long name", GROUP_NOT_EXIST)
        for code in (DELETE_GROUP, GET_GROUP, CONSUMERS, PRODUCERS, CONSUME_STATS, RESET, RUNNING_INFO):
            refused(client.request(code), "code %d without fields" % code, r.SYSTEM_ERROR)
        tap.equal(client.request(DELETE_GROUP, {"groupName": LONG}).code, r.SUCCESS, "deleting what is not there")


# How things stand ---------------------------------------------------------------------------------------------------

@tap.test("queues, progress and members are shown as they are")
def _():
    with connect() as client, connect() as consumer:
        make_topic(client, "Shown", read=2, write=2)
        before = int(time.time() * 1000) - 1000
        for i in range(5):
            send(client, "Shown", b"%d" % i)
        stats = client.request(TOPIC_STATS, {"topic": "Shown"}).json()["offsetTable"]
        tap.equal(sorted(stats), [queue_key("Shown", 0), queue_key("Shown", 1)], "queues")
        first = stats[queue_key("Shown", 0)]
        tap.equal((first["minOffset"], first["maxOffset"]), (0, 5), "bounds")
        tap.check(before <= first["lastUpdateTimestamp"] <= before + 60000, "time %d" % first["lastUpdateTimestamp"])
        tap.equal(stats[queue_key("Shown", 1)], {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}, "an empty one")
        refused(client.request(TOPIC_STATS, {"topic": LONG}), "an unknown topic", r.TOPIC_NOT_EXIST)

        heartbeat(consumer, "shown@1", group="sg", topics=["Shown", "%RETRY%sg"], producer="sp")
        commit(consumer, "sg", "Shown", 3)
        for fields in ({}, {"topic": "Shown"}, {"topicList": "Shown;NoSuch;"}):
            table = client.request(CONSUME_STATS, dict(fields, consumerGroup="sg")).json()["offsetTable"]
            place = table[queue_key("Shown", 0)]
            tap.equal((place["brokerOffset"], place["consumerOffset"]), (5, 3), "progress by %s" % fields)
            tap.check(before <= place["lastTimestamp"] <= before + 60000, "time of the last one consumed")
        tap.equal(client.request(CONSUME_STATS, {"consumerGroup": LONG}).json()["offsetTable"], {}, "an unknown group")
        refused(client.request(CONSUME_STATS, {"consumerGroup": "sg", "topicList": "a;" * 5000}), "5000 topics",
                INVALID_PARAMETER)
        tap.equal(client.request(WHO_CONSUMES, {"topic": "Shown"}).json(), {"groupList": ["sg"]}, "groups")
        tap.equal(client.request(WHO_CONSUMES, {"topic": LONG}).json(), {"groupList": []}, "groups of nothing")

        shown = client.request(CONSUMERS, {"consumerGroup": "sg"}).json()
        member, = shown["connectionSet"]
        tap.equal((member["clientId"], member["language"], member["version"]), ("shown@1", "PYTHON", r.VERSION), "member")
        tap.check(re.match(r"127\.0\.0\.1:\d+$", member["clientAddr"]), "address %r" % member["clientAddr"])
        tap.equal((shown["consumeType"], shown["messageModel"], shown["consumeFromWhere"]),
                  ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"), "kind")
        tap.equal(shown["subscriptionTable"]["Shown"]["subString"], "*", "subscription")
        refused(client.request(CONSUMERS, {"consumerGroup": LONG}), "an unknown group", NOT_ONLINE)
        producer, = client.request(PRODUCERS, {"producerGroup": "sp"}).json()["connectionSet"]
        tap.equal(producer["clientId"], "shown@1", "producer")
        refused(client.request(PRODUCERS, {"producerGroup": LONG}), "an unknown group", r.SYSTEM_ERROR)


@tap.test("a consumer is asked about itself, and its answer is passed on")
def _():
    with connect() as client, connect() as consumer:
        heartbeat(consumer, "asked@1", group="ag", topics=["Shown"])
        fields = {"consumerGroup": "ag", "clientId": "asked@1", "jstackEnable": False}
        opaque = client.send(RUNNING_INFO, fields)
        question = consumer.wait_pushed(RUNNING_INFO)
        tap.equal(question.ext, {"consumerGroup": "ag", "clientId": "asked@1", "jstackEnable": "false"}, "question")
        consumer.respond(question, body=b'{"properties":{}}')
        answer = client.wait(opaque)
        tap.equal((answer.code, answer.body), (r.SUCCESS, b'{"properties":{}}'), "answer")
        refused(client.request(RUNNING_INFO, dict(fields, clientId="nobody")), "an unknown client", r.SYSTEM_ERROR)
        refused(client.request(RUNNING_INFO, dict(fields, more="x" * 100000)), "a big question", INVALID_PARAMETER)
        opaque = client.send(RUNNING_INFO, fields)
        consumer.wait_pushed(RUNNING_INFO)
        refused(client.wait(opaque, 20), "a client that does not answer", TIMEOUT)


@tap.test("settings, numbers and clean-ups of the broker can be asked for")
def _():
    with connect() as client:
        text = client.request(GET_BROKER_CONFIG)
        lines = dict(line.split("=", 1) for line in text.body.decode().splitlines())
        tap.equal((lines["brokerName"], lines["brokerClusterName"], lines["fileReservedTime"]), ("broker-a", "C1", "72"))
        tap.check("version" in text.ext, "a version")
        send(client, "Shown", b"one more")
        table = client.request(GET_RUNTIME).json()["table"]
        tap.check(int(table["msgPutTotalTodayNow"]) >= 1, "messages put: %s" % table["msgPutTotalTodayNow"])
        tap.equal(len(table["putTps"].split(" ")), 3, "rates in putTps")
        tap.check(0 < float(table["commitLogDiskRatio"]) < 1, "disk %s" % table["commitLogDiskRatio"])
        tap.check(int(table["earliestMessageTimeStamp"]) > 1700000000000, "earliest message")
        tap.check(int(table["commitLogMaxOffset"]) > 0, "end of the log")
        for code in (DELETE_LOG, CLEAN_QUEUES):
            tap.equal(client.request(code).code, r.SUCCESS, "code %d" % code)


# Resetting offsets --------------------------------------------------------------------------------------------------

def reset_fields(name, topic, timestamp, force=True, **more):
    return dict({"group": name, "topic": topic, "timestamp": timestamp, "isForce": force}, **more)


@tap.test("a reset moves the group at once, its next pull is told, and older commits do not undo it")
def _():
    with connect() as client, connect() as waiter:
        make_topic(client, "Reset", read=2, write=2)
        for i in range(6):
            send(client, "Reset", b"%d" % i)
        group(client, "rg")
        commit(client, "rg", "Reset", 6)
        opaque = waiter.send(r.PULL_MESSAGE, pull_fields("Reset", offset=6, group="rg", flags=SUBSCRIPTION | SUSPEND,
                                                         wait_ms=60000))
        waiter.request(r.GET_MAX_OFFSET, {"topic": "Reset", "queueId": 0})  # now it waits
        answer = client.request(RESET, reset_fields("rg", "Reset", 0))
        tap.equal(answer.json()["offsetTable"], {queue_key("Reset", 0): 0, queue_key("Reset", 1): 0}, "answer")
        told = waiter.wait(opaque)
        tap.equal((told.code, told.remark, told.ext["nextBeginOffset"]), (r.PULL_OFFSET_MOVED, "OFFSET_RESET", "0"), "told")
        tap.equal(offset_of(client, "rg", "Reset"), 0, "offset")
        tap.equal(client.request(r.PULL_MESSAGE, pull_fields("Reset", group="rg")).code, r.SUCCESS, "told only once")

        client.request(RESET, reset_fields("rg", "Reset", -1))
        tap.equal(offset_of(client, "rg", "Reset"), 6, "to the end")
        tap.equal(commit(client, "rg", "Reset", 2).code, r.SUCCESS, "a commit from before")
        tap.equal(offset_of(client, "rg", "Reset"), 6, "not taken")
        told = client.request(r.PULL_MESSAGE, pull_fields("Reset", offset=2, group="rg"))
        tap.equal((told.code, told.ext["nextBeginOffset"]), (r.PULL_OFFSET_MOVED, "6"), "told")
        commit(client, "rg", "Reset", 5)
        tap.equal(offset_of(client, "rg", "Reset"), 5, "taken again")
        client.request(RESET, reset_fields("rg", "Reset", -1, queueId=0, offset=4))
        tap.equal(offset_of(client, "rg", "Reset"), 4, "one queue, to an exact place")


@tap.test("a reset that cannot be is refused and moves nothing")
def _():
    with connect() as client:
        refused(client.request(RESET, reset_fields("rg", LONG, 0)), "an unknown topic", r.TOPIC_NOT_EXIST)
        refused(client.request(RESET, reset_fields(LONG, "Reset", 0)), "an unknown group", GROUP_NOT_EXIST)
        refused(client.request(RESET, reset_fields("rg", "Reset", 0, queueId=2)), "an unknown queue", r.SYSTEM_ERROR)
        refused(client.request(RESET, reset_fields("rg", "Reset", 0, queueId=0, offset=7)), "beyond the end", r.SYSTEM_ERROR)
        refused(client.request(RESET, reset_fields("rg", "Reset", 0, queueId=0, offset=-5)), "below zero", r.SYSTEM_ERROR)
        refused(client.request(RESET, reset_fields("rg", "Reset", "soon")), "a time that is none", r.SYSTEM_ERROR)
        tap.equal(offset_of(client, "rg", "Reset"), 4, "offset")


@tap.test("with useServerSideResetOffset=false the members of the group are told to see to it")
def _():
    with daemons.Daemon(settings={"useServerSideResetOffset": "false", "brokerName": "broker-a",
                                  "storeReplyMessageEnable": "false"}) as other:
        with r.Client(other.broker) as client, r.Client(other.broker) as consumer:
            make_topic(client, "Reset", read=1, write=1)
            for i in range(6):
                send(client, "Reset", b"%d" % i)
            group(client, "rg")
            refused(client.request(RESET, reset_fields("rg", "Reset", 0)), "a group that was never here", r.SYSTEM_ERROR)
            commit(client, "rg", "Reset", 3)
            refused(client.request(RESET, reset_fields("rg", "Reset", 0)), "nobody there", NOT_ONLINE)
            heartbeat(consumer, "r@1", group="rg", topics=["Reset"])
            answer = client.request(RESET, reset_fields("rg", "Reset", 0))
            tap.equal(answer.json()["offsetTable"], {queue_key("Reset", 0): 0}, "answer")
            told = consumer.wait_pushed(RESET_CLIENT)
            tap.equal((told.ext["group"], told.ext["topic"], told.ext["timestamp"], told.flag), ("rg", "Reset", "0", 2), "push")
            tap.equal(told.json(), answer.json(), "body of the push")
            tap.equal(offset_of(client, "rg", "Reset"), 3, "not moved here")
            later = client.request(RESET, reset_fields("rg", "Reset", -1, force=False)).json()["offsetTable"]
            tap.equal(later, {queue_key("Reset", 0): 3}, "forwards only by force")
            # And without storing replies they are pushed all the same.
            heartbeat(consumer, "r@1", producer="p")
            opaque = client.send(SEND_REPLY_V2, *reply_fields(b"x", to="r@1", topic="DefaultCluster_REPLY_TOPIC"))
            consumer.respond(consumer.wait_pushed(PUSH_REPLY))
            sent = client.wait(opaque)
            tap.equal((sent.code, sent.ext["msgId"], sent.ext["queueOffset"]), (r.SUCCESS, "0", "0"), "reply")
            where = {"topic": "DefaultCluster_REPLY_TOPIC", "queueId": 0}
            tap.equal(client.request(r.GET_MAX_OFFSET, where).ext["offset"], "0", "stored replies")


tap.main()
