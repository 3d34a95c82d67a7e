"""What operators look at and change while the broker runs, in raw frames: surveys over all groups, statistics, settings."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

UPDATE_GROUP, RUNNING_INFO, CONSUME_DIRECTLY, CLONE, DELETE_TOPIC = 200, 307, 309, 314, 215
TIME_SPAN, SYSTEM_TOPICS, VIEW_STATS, CLEAN_TOPICS, ALL_CONSUME_STATS = 303, 305, 315, 316, 317
UPDATE_CONFIG, GET_CONFIG, UPDATE_NAMES_CONFIG, GET_NAMES_CONFIG = 25, 26, 318, 319
GET_TOPIC, GET_GROUP, RESET, ROUTE, PUT_KV = 351, 352, 222, 105, 100
GET_RUNTIME, TOPIC_STATS, CONSUME_STATS, ADVANCE_CLOCK = 28, 202, 208, 10001
ALL_PRODUCERS, GROUP_TOPICS, SUBSCRIPTION = 328, 343, 345
SYSTEM_BUSY, NOT_SUPPORTED, MESSAGE_ILLEGAL, NO_PERMISSION = 2, 3, 13, 16
QUERY_NOT_FOUND, GROUP_NOT_EXIST, INVALID_PARAMETER = 22, 26, 29
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
        for name, key, count in (("TOPIC_PUT", "Counted", 7), ("QUEUE_PUT", "Counted@1", 3), ("QUEUE_GET", "Counted@0", 1),
                                 ("TOPIC_GET", "Counted", 1), ("GROUP_GET", "Counted@cg", 1)):
            times = [stat(client, name + "_LATENCY_" + part, key)["statsMinute"] for part in ("50", "99", "999", "MAX")]
            tap.equal([t["sum"] for t in times], [count] * 4, name + " times")
            tap.check(0 < times[0]["avgpt"] <= times[1]["avgpt"] <= times[2]["avgpt"] <= times[3]["avgpt"], times)
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


# Settings -----------------------------------------------------------------------------------------------------------

def change(client, code=UPDATE_CONFIG, **settings):
    return client.request(code, body="".join("%s=%s\n" % pair for pair in settings.items()).encode())


def changed(client, code=UPDATE_CONFIG, **settings):
    answer = change(client, code, **settings)
    tap.equal(answer.code, r.SUCCESS, "changing %s (%s)" % (settings, answer.remark))


def settings_of(client, code=GET_CONFIG):
    return dict(line.split("=", 1) for line in client.request(code).body.decode().splitlines())


@tap.test("settings that are live change what the broker does, at once")
def _():
    with daemons.Daemon(settings={"brokerName": "broker-a", "autoCreateTopicEnable": "false"}) as own:
        with r.Client(own.broker) as client, r.Client(own.names) as names:
            make_topic(client, "Live")
            refused(send(client, "New", b"x"), "no automatic topics", r.TOPIC_NOT_EXIST)
            changed(client, autoCreateTopicEnable="true")
            tap.equal(send(client, "New", b"x").code, r.SUCCESS, "an automatic topic")

            tap.equal(send(client, "Live", b"x" * 5000).code, r.SUCCESS, "5000 bytes")
            changed(client, maxMessageSize="4000")
            refused(send(client, "Live", b"x" * 5000), "5000 bytes, 4000 are allowed", MESSAGE_ILLEGAL)
            changed(client, maxMessageSize="6000000")
            tap.equal(send(client, "Live", b"x" * 5500000).code, r.SUCCESS, "more than could be stored at the start")

            tap.equal(pull(client, "Live", "fresh").code, r.SUCCESS, "a group that makes itself")
            changed(client, autoCreateSubscriptionGroup="false")
            refused(pull(client, "Live", "fresher"), "a group that may not", GROUP_NOT_EXIST)

            changed(client, brokerPermission="4")
            refused(send(client, "Live", b"x"), "a broker that may not be written", NO_PERMISSION)

            def perm():
                return names.request(ROUTE, {"topic": "Live"}).json()["queueDatas"][0]["perm"]
            process.wait_until(lambda: perm() == 4, 10, "name servers know that it may not be written")
            changed(client, brokerPermission="6")
            tap.equal(send(client, "Live", b"x").code, r.SUCCESS, "and that it may again")
            process.wait_until(lambda: perm() == 6, 10, "name servers know that it may again")

            later = {"TIMER_DELAY_SEC": "3600"}
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Live", b"later", later, queue_id=0))
            tap.equal(sent.code, r.SUCCESS, "a message with a time of its own (%s)" % sent.remark)
            process.wait_until(lambda: client.request(GET_RUNTIME).json()["table"]["timersPending"] == "1", 10,
                               "a pending timer")

            half = {"TRAN_MSG": "true", "UNIQ_KEY": "half1", "PGROUP": "g"}

            def send_half():
                return client.request(r.SEND_MESSAGE_V2, *r.send_v2("Live", b"x", half, queue_id=0, sysFlag=4))
            tap.equal(send_half().code, r.SUCCESS, "a half message")
            tap.equal(client.request(GET_RUNTIME).json()["table"]["halfMessages"], "1", "half messages")
            changed(client, rejectTransactionMessage="true")
            refused(send_half(), "a half message where none are taken", NO_PERMISSION)

            changed(client, maxTopics="1")
            refused(send(client, "OneMore", b"x"), "too many topics", SYSTEM_BUSY)


@tap.test("a change of settings is whole or nothing, and what cannot be is refused with the reason")
def _():
    with connect() as client:
        before = client.request(GET_CONFIG)
        for settings, code, word in (
                ({"maxTopics": 7, "flushDiskType": "SYNC_FLUSH"}, NO_PERMISSION, "flushDiskType"),
                ({"maxTopics": 7, "listenPort": "1"}, NO_PERMISSION, "listenPort"),
                ({"maxTopics": 7, "maxTopicz": "8"}, INVALID_PARAMETER, "did you mean maxTopics"),
                ({"maxTopics": 7, "fileReservedTime": "long"}, INVALID_PARAMETER, "fileReservedTime"),
                ({"maxTopics": 7, "deleteWhen": "25"}, INVALID_PARAMETER, "deleteWhen"),
                ({"maxTopics": 7, LONG: "x"}, INVALID_PARAMETER, "nnnn")):
            answer = change(client, **settings)
            refused(answer, "%s" % settings, code)
            tap.check(word in answer.remark, "%r does not say %r" % (answer.remark, word))
        refused(client.request(UPDATE_CONFIG, body=b"maxTopics=7\n\\u12"), "a broken escape", INVALID_PARAMETER)
        after = client.request(GET_CONFIG)
        tap.equal((after.body, after.ext), (before.body, before.ext), "settings")
        changed(client, fileReservedTime="48", deleteWhen="02;14")
        table = settings_of(client)
        tap.equal((table["fileReservedTime"], table["deleteWhen"]), ("48", "02;14"), "settings")
        tap.check(client.request(GET_CONFIG).ext != before.ext, "the version")


@tap.test("changed settings outlive a crash right after the answer; the command line wins over them")
def _():
    with daemons.Daemon(settings={"brokerName": "broker-a"}) as own:
        with r.Client(own.broker) as client:
            changed(client, maxMessageSize="5000", logLevel="warn")
        own.kill9()
        own.start()
        with r.Client(own.broker) as client:
            tap.equal(settings_of(client)["maxMessageSize"], "5000", "after a crash")
            refused(send(client, "T", b"x" * 5001), "what is too big since", MESSAGE_ILLEGAL)
        own.stop()
        with open(os.path.join(own.folder, "config", "changed.conf"), encoding="utf-8") as file:
            text = file.read()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        tap.equal(lines, ["maxMessageSize=5000", "logLevel=warn"], "the file")
        own.settings["maxMessageSize"] = "6000"
        own.start()
        with r.Client(own.broker) as client:
            tap.equal(settings_of(client)["maxMessageSize"], "6000", "with --set")


@tap.test("a name server shows and changes its settings as a broker does")
def _():
    with daemons.Daemon(roles="names") as own:
        with r.Client(own.names) as names:
            tap.equal(settings_of(names, GET_NAMES_CONFIG)["orderMessageEnable"], "false", "before")
            refused(change(names, UPDATE_NAMES_CONFIG, namesrvListenPort=1), "its port", NO_PERMISSION)
            changed(names, UPDATE_NAMES_CONFIG, orderMessageEnable="true")
            tap.equal(settings_of(names, GET_NAMES_CONFIG)["orderMessageEnable"], "true", "after")
        own.kill9()
        own.start()
        with r.Client(own.names) as names:
            tap.equal(settings_of(names, GET_NAMES_CONFIG)["orderMessageEnable"], "true", "after a crash")
    with connect() as client, r.Client(daemon.names) as names:
        names.request(PUT_KV, {"namespace": "ORDER_TOPIC_CONFIG", "key": "Seen", "value": "broker-a:2"})
        tap.equal(names.request(ROUTE, {"topic": "Seen"}).json().get("orderTopicConf"), None, "not in the route")
        changed(names, UPDATE_NAMES_CONFIG, orderMessageEnable="true")
        tap.equal(names.request(ROUTE, {"topic": "Seen"}).json().get("orderTopicConf"), "broker-a:2", "in the route")
        tap.equal(settings_of(client)["orderMessageEnable"], "true", "one process, one table")


# Crashes ------------------------------------------------------------------------------------------------------------

@tap.test("what an operator changed is there after a crash right behind the answer")
def _():
    with daemons.Daemon(settings={"brokerName": "broker-a"}) as own:
        def crash():
            own.kill9()
            own.start()

        with r.Client(own.broker) as client:
            make_topic(client, "Safe")
            for i in range(5):
                send(client, "Safe", b"%d" % i)
        crash()
        with r.Client(own.broker) as client:
            tap.equal(client.request(GET_TOPIC, {"topic": "Safe"}).json()["readQueueNums"], 2, "a new topic")
            make_topic(client, "Safe", queues=5)
            make_group(client, "safe_group")
        crash()
        with r.Client(own.broker) as client:
            tap.equal(client.request(GET_TOPIC, {"topic": "Safe"}).json()["readQueueNums"], 5, "a changed topic")
            tap.equal(client.request(GET_GROUP, {"group": "safe_group"}).code, r.SUCCESS, "a group")
            commit(client, "safe_group", "Safe", 5)
            answer = client.request(RESET, {"group": "safe_group", "topic": "Safe", "timestamp": 0, "isForce": True})
            tap.equal(answer.code, r.SUCCESS, "reset (%s)" % answer.remark)
        crash()
        with r.Client(own.broker) as client:
            tap.equal(offset_of(client, "safe_group", "Safe"), 0, "a reset")
            make_group(client, "safe_clone")
            commit(client, "safe_group", "Safe", 3)
            client.request(CLONE, {"srcGroup": "safe_group", "destGroup": "safe_clone", "topic": "Safe"})
            tap.equal(client.request(DELETE_TOPIC, {"topic": "Safe2"}).code, r.SUCCESS, "no topic")
        crash()
        with r.Client(own.broker) as client:
            tap.equal(offset_of(client, "safe_clone", "Safe"), 3, "a clone")
            tap.equal(client.request(DELETE_TOPIC, {"topic": "Safe"}).code, r.SUCCESS, "deleting")
        crash()
        with r.Client(own.broker) as client:
            refused(client.request(GET_TOPIC, {"topic": "Safe"}), "a deleted topic", r.TOPIC_NOT_EXIST)


@tap.test("a change that cannot be saved counts, says so, and is saved when that is possible again")
def _():
    with daemons.Daemon(settings={"brokerName": "broker-a"}) as own:
        blocked = os.path.join(own.folder, "config", "topics.json.tmp")
        with r.Client(own.broker) as client:
            os.mkdir(blocked)
            answer = client.request(r.UPDATE_AND_CREATE_TOPIC, {
                "topic": "Unsaved", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "order": False})
            refused(answer, "a topic whose table cannot be written", r.SYSTEM_ERROR)
            tap.check("not saved" in answer.remark and "topics.json" in answer.remark, "remark %r" % answer.remark)
            tap.equal(client.request(GET_TOPIC, {"topic": "Unsaved"}).code, r.SUCCESS, "it counts")
            os.rmdir(blocked)
            make_topic(client, "Saved")
        own.kill9()
        own.start()
        with r.Client(own.broker) as client:
            for topic in ("Unsaved", "Saved"):
                tap.equal(client.request(GET_TOPIC, {"topic": topic}).code, r.SUCCESS, topic)


tap.main()
