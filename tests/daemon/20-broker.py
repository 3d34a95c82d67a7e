"""The thin path in raw frames: topics made by sending, pulling, waiting, offsets, members of a group."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
NO_PERMISSION, MESSAGE_ILLEGAL, INVALID_PARAMETER, NOT_SUBSCRIBED = 16, 13, 29, 24

daemon = daemons.Daemon()
tap.watch(daemon)


def connect():
    return r.Client(daemon.broker)


def pull_fields(topic, queue=0, offset=0, flags=SUBSCRIPTION, tags="*", wait_ms=0, commit=0, group="g", count=32):
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": count,
            "sysFlag": flags, "commitOffset": commit, "suspendTimeoutMillis": wait_ms, "subscription": tags,
            "subVersion": 0, "expressionType": "TAG"}


def send(client, topic, body, queue=0, serialize="json", **fields):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, queue_id=queue, **fields), serialize=serialize)


def heartbeat(client_id, group, topics=(), producer=None):
    subscriptions = [{"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                      "expressionType": "TAG", "classFilterMode": False} for topic in topics]
    return r.dumps({"clientID": client_id, "producerDataSet": [{"groupName": producer}] if producer else [],
                    "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY",
                                         "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                                         "unitMode": False, "subscriptionDataSet": subscriptions}]})


@tap.test("a message comes back with its body, properties, ids and offsets, through both header forms")
def _():
    with connect() as client:
        for i, form in enumerate(("json", "rocketmq")):
            sent = send(client, "RoundTrip", b"hello %d" % i, serialize=form,
                        properties={"KEYS": "k1 k2", "TAGS": "TagA", "own": "wert\u00e4\u4e2d"})
            tap.equal(sent.code, r.SUCCESS, "send code (%s)" % sent.remark)
            tap.equal((sent.ext["queueId"], sent.ext["queueOffset"]), ("0", str(i)), "place")
            pulled = client.request(r.PULL_MESSAGE, pull_fields("RoundTrip", offset=i), serialize=form)
            tap.equal((pulled.code, pulled.remark), (r.SUCCESS, "FOUND"), "pull")
            message, = r.messages(pulled.body)
            tap.equal(message.body, b"hello %d" % i, "body")
            tap.equal(message.topic, "RoundTrip", "topic")
            tap.equal(message.offset_id, sent.ext["msgId"], "offset id")
            tap.equal(message.properties["own"], "wert\u00e4\u4e2d", "property")
            tap.equal(message.properties["UNIQ_KEY"], sent.ext["transactionId"], "unique key")
            tap.equal(pulled.ext["nextBeginOffset"], str(i + 1), "next")


@tap.test("the long header names of SEND_MESSAGE work as the letters do")
def _():
    letters = {letter: name for name, letter in r.SEND_V2_LETTERS.items()}
    fields, body = r.send_v2("LongNames", b"x", queue_id=1)
    with connect() as client:
        sent = client.request(r.SEND_MESSAGE, {letters[k]: v for k, v in fields.items()}, body)
        tap.equal((sent.code, sent.ext["queueId"]), (r.SUCCESS, "1"), "send")


@tap.test("a topic made by sending appears in the name server's routes at once")
def _():
    with connect() as client, r.Client(daemon.names) as names:
        tap.equal(names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Fresh"}).code, r.TOPIC_NOT_EXIST)
        send(client, "Fresh", b"x", defaultTopicQueueNums=3)

        def route():
            found = names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Fresh"})
            return found if found.code == r.SUCCESS else None
        queues = process.wait_until(route, 20, "a route for Fresh").json()["queueDatas"][0]
        tap.equal((queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]), (3, 3, 6), "queues")


@tap.test("a batch is stored as messages of its own with consecutive offsets")
def _():
    body = r.batch([(b"m%d" % i, {"UNIQ_KEY": "U%d" % i, "TAGS": "T"}) for i in range(5)])
    fields, _ = r.send_v2("Batch", body, queue_id=0, batch=True)
    with connect() as client:
        sent = client.request(r.SEND_BATCH_MESSAGE, fields, body)
        tap.equal(sent.code, r.SUCCESS, "send code (%s)" % sent.remark)
        found = r.messages(client.request(r.PULL_MESSAGE, pull_fields("Batch")).body)
        tap.equal([m.body for m in found], [b"m%d" % i for i in range(5)], "bodies")
        tap.equal([m.queue_offset for m in found], list(range(5)), "offsets")
        tap.equal([m.unique_key for m in found], ["U%d" % i for i in range(5)], "unique keys")
        tap.equal(sent.ext["msgId"].split(","), [m.offset_id for m in found], "ids")


@tap.test("many sends in one write are answered in full, each with its own offset")
def _():
    with connect() as client:
        opaques = []
        frames = b""
        for i in range(500):
            fields, body = r.send_v2("Pipeline", b"%d" % i, queue_id=2)
            frames += r.encode(r.Command(r.SEND_MESSAGE_V2, fields, body, opaque=1000 + i))
            opaques.append(1000 + i)
        client.send_raw(frames)
        offsets = [int(client.wait(opaque).ext["queueOffset"]) for opaque in opaques]
        tap.equal(offsets, list(range(500)), "offsets")
        got, at = [], 0
        while at < 500:
            pulled = client.request(r.PULL_MESSAGE, pull_fields("Pipeline", queue=2, offset=at))
            got += [m.body for m in r.messages(pulled.body)]
            at = int(pulled.ext["nextBeginOffset"])
        tap.equal(got, [b"%d" % i for i in range(500)], "bodies in order")


@tap.test("one-way sends are stored and never answered")
def _():
    with connect() as client:
        client.send(r.SEND_MESSAGE_V2, *r.send_v2("OneWay", b"x", queue_id=0), oneway=True)
        tap.equal(client.request(r.GET_MAX_OFFSET, {"topic": "OneWay", "queueId": 0}).ext["offset"], "1", "end")
        tap.equal(client.replies, {}, "answers")


@tap.test("tags are filtered on the server")
def _():
    with connect() as client:
        for i in range(40):
            send(client, "Tags", b"%d" % i, properties={"TAGS": "ABCD"[i % 4]})
        send(client, "Tags", b"none")
        pulled = client.request(r.PULL_MESSAGE, pull_fields("Tags", tags="B || D"))
        tap.equal([m.properties["TAGS"] for m in r.messages(pulled.body)], ["B", "D"] * 10, "tags")
        tap.equal(pulled.ext["nextBeginOffset"], "41", "next after the last one looked at")
        nothing = client.request(r.PULL_MESSAGE, pull_fields("Tags", tags="Z"))
        tap.equal((nothing.code, nothing.remark), (r.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"), "no match")


@tap.test("every wrong offset is corrected the way clients expect")
def _():
    with connect() as client:
        for _ in range(3):
            send(client, "Offsets", b"x", queue=0)
        cases = [  # queue, offset -> code, remark, next
            (0, 3, r.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
            (0, 9, r.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
            (0, -1, r.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
            (1, 0, r.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", "0"),
            (1, 5, r.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", "0"),
        ]
        for queue, offset, code, remark, following in cases:
            got = client.request(r.PULL_MESSAGE, pull_fields("Offsets", queue=queue, offset=offset))
            tap.equal((got.code, got.remark, got.ext["nextBeginOffset"]), (code, remark, following),
                      "queue %d offset %d" % (queue, offset))


@tap.test("RM-5 a waiting pull is answered the moment a message arrives")
def _():
    with connect() as waiter, connect() as sender:
        send(sender, "Wait", b"first")
        opaque = waiter.send(r.PULL_MESSAGE, pull_fields("Wait", offset=1, flags=SUBSCRIPTION | SUSPEND, wait_ms=30000))
        tap.equal(waiter.request(r.GET_MAX_OFFSET, {"topic": "Wait", "queueId": 0}).ext["offset"], "1", "end")
        tap.equal(opaque in waiter.replies, False, "answered before anything came")
        send(sender, "Wait", b"second")
        message, = r.messages(waiter.wait(opaque).body)
        tap.equal(message.body, b"second", "body")


@tap.test("a waiting pull whose filter does not match stays asleep, and ends with its own time")
def _():
    with connect() as waiter, connect() as sender:
        send(sender, "WaitTag", b"x", properties={"TAGS": "A"})
        begin = time.monotonic()
        opaque = waiter.send(r.PULL_MESSAGE, pull_fields("WaitTag", offset=1, tags="B", wait_ms=1500,
                                                         flags=SUBSCRIPTION | SUSPEND))
        waiter.request(r.GET_MAX_OFFSET, {"topic": "WaitTag", "queueId": 0})  # now it waits
        send(sender, "WaitTag", b"x", properties={"TAGS": "A"})
        answer = waiter.wait(opaque, 20)
        tap.check(answer.code in (r.PULL_NOT_FOUND, r.PULL_RETRY_IMMEDIATELY), "code %d" % answer.code)
        tap.check(time.monotonic() - begin > 1.0, "woken by a message that it does not want")


@tap.test("the bounds of a queue can be asked for")
def _():
    with connect() as client:
        before = int(time.time() * 1000)
        for _ in range(4):
            send(client, "Bounds", b"x")
        where = {"topic": "Bounds", "queueId": 0}
        tap.equal(client.request(r.GET_MIN_OFFSET, where).ext["offset"], "0", "min")
        tap.equal(client.request(r.GET_MAX_OFFSET, where).ext["offset"], "4", "max")
        found = client.request(r.SEARCH_OFFSET_BY_TIMESTAMP, dict(where, timestamp=before - 1000)).ext["offset"]
        tap.equal(found, "0", "by an early time")
        found = client.request(r.SEARCH_OFFSET_BY_TIMESTAMP, dict(where, timestamp=before + 3600000)).ext["offset"]
        tap.equal(found, "4", "by a late time")
        for when, offset in ((before - 1000, "0"), (before + 3600000, "3")):
            found = client.request(r.SEARCH_OFFSET_BY_TIMESTAMP, dict(where, timestamp=when, boundaryType="UPPER")).ext["offset"]
            tap.equal(found, offset, "the last one not after %d" % when)
        earliest = int(client.request(32, where).ext["timestamp"])
        tap.check(before <= earliest <= before + 60000, "earliest %d" % earliest)


@tap.test("RM-12 messages are found by key, by unique key and by id, within their time")
def _():
    with connect() as client:
        begin = int(time.time() * 1000) - 1000
        sent = [send(client, "Keyed", b"%d" % i, queue=i % 4, properties={"KEYS": "key%d all" % (i % 10)})
                for i in range(60)]

        def find(key, first=begin, last=begin + 3600000, count=64, **more):
            return client.request(12, dict({"topic": "Keyed", "key": key, "maxNum": count, "beginTimestamp": first,
                                            "endTimestamp": last}, **more))
        found = r.messages(find("key3").body)
        tap.equal([m.body for m in found], [b"%d" % i for i in range(3, 60, 10)], "by a word of KEYS")
        tap.equal(len(r.messages(find("all").body)), 60, "by the word they all have")
        tap.equal(len(r.messages(find("all", count=5).body)), 5, "as many as were asked for")
        unique = r.messages(find(sent[7].ext["transactionId"], _UNIQUE_KEY_QUERY=True).body)
        tap.equal([m.body for m in unique], [b"7"], "by unique key")
        tap.equal(find("key3", first=begin - 7200000, last=begin - 3600000).code, r.QUERY_NOT_FOUND, "before their time")
        tap.equal(find("nobody").code, r.QUERY_NOT_FOUND, "an unknown key")
        tap.equal(find("key3", count=-1).code, r.QUERY_NOT_FOUND, "a count that makes no sense")
        place = int(sent[9].ext["msgId"][16:], 16)
        message, = r.messages(client.request(33, {"offset": place}).body)
        tap.equal((message.body, message.offset_id), (b"9", sent[9].ext["msgId"]), "by id")
        for wrong in (-1, place + 1, 1 << 62):
            got = client.request(33, {"offset": wrong})
            tap.check(got.code == r.SYSTEM_ERROR and str(wrong) in got.remark, "place %d: %r" % (wrong, got.remark))


@tap.test("offsets are kept for each group, by request and by pull")
def _():
    with connect() as client:
        for _ in range(8):
            send(client, "Commit", b"x")
        where = {"consumerGroup": "cg", "topic": "Commit", "queueId": 0}
        tap.equal(client.request(r.HEART_BEAT, body=heartbeat("c@1", "cg", ["Commit"])).code, r.SUCCESS)
        unknown = client.request(r.QUERY_CONSUMER_OFFSET, dict(where, setZeroIfNotFound=False))
        tap.equal(unknown.code, r.QUERY_NOT_FOUND, "before the first commit")
        tap.equal(client.request(r.UPDATE_CONSUMER_OFFSET, dict(where, commitOffset=5)).code, r.SUCCESS)
        tap.equal(client.request(r.QUERY_CONSUMER_OFFSET, where).ext["offset"], "5", "after a commit")
        client.request(r.PULL_MESSAGE, pull_fields("Commit", offset=7, flags=SUBSCRIPTION | COMMIT, commit=7, group="cg"))
        tap.equal(client.request(r.QUERY_CONSUMER_OFFSET, where).ext["offset"], "7", "after a pull that carried one")


@tap.test("members of a group are listed, told of changes, and forgotten when their connection closes")
def _():
    with connect() as one:
        other = connect()
        beat = one.request(r.HEART_BEAT, body=heartbeat("one@1", "members", ["Fresh"], producer="p"))
        tap.equal(beat.code, r.SUCCESS, "heartbeat (%s)" % beat.remark)
        tap.check(beat.version >= 232, "Java needs at least 232 for SQL filters, got %d" % beat.version)
        one.wait_pushed(r.NOTIFY_CONSUMER_IDS_CHANGED)
        other.request(r.HEART_BEAT, body=heartbeat("two@2", "members", ["Fresh"]))
        tap.equal(one.wait_pushed(r.NOTIFY_CONSUMER_IDS_CHANGED).ext, {"consumerGroup": "members"}, "notice")
        listed = one.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "members"})
        tap.equal(sorted(listed.json()["consumerIdList"]), ["one@1", "two@2"], "members")
        other.close()
        one.wait_pushed(r.NOTIFY_CONSUMER_IDS_CHANGED)
        listed = one.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "members"})
        tap.equal(listed.json()["consumerIdList"], ["one@1"], "members after the other has gone")
        one.request(r.UNREGISTER_CLIENT, {"clientID": "one@1", "consumerGroup": "members"})
        gone = one.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "members"})
        tap.equal((gone.code, gone.remark), (r.SYSTEM_ERROR, "no consumer for this group, members"), "nobody left")


@tap.test("a heartbeat of the second version without subscriptions keeps its client and the group's subscriptions")
def _():
    def beat(client, topics, without):
        body = r.loads(heartbeat("v2@1", "second", topics).decode())
        answer = client.request(r.HEART_BEAT, body=r.dumps(dict(body, withoutSub=without, heartbeatFingerprint=7)))
        tap.equal((answer.code, answer.ext["IS_SUPPORT_HEART_BEAT_V2"]), (r.SUCCESS, "true"), "heartbeat")
        return answer

    with connect() as client:
        send(client, "Fresh", b"x")
        # Its subscriptions are not known here: it is told to send them.
        tap.equal(beat(client, [], True).ext["IS_SUB_CHANGE"], "true", "what a stranger is told")
        refused = client.request(r.PULL_MESSAGE, pull_fields("Fresh", flags=0, group="second"))
        tap.equal(refused.code, NOT_SUBSCRIBED, "pull before that (%s)" % refused.remark)
        beat(client, ["Fresh"], False)
        beat(client, [], True)
        found = client.request(r.PULL_MESSAGE, pull_fields("Fresh", flags=0, group="second"))
        tap.equal(found.code, r.SUCCESS, "pull after it (%s)" % found.remark)
        listed = client.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "second"})
        tap.equal(listed.json()["consumerIdList"], ["v2@1"], "members")


@tap.test("a pull without its own expression needs the group's subscription")
def _():
    with connect() as client:
        refused = client.request(r.PULL_MESSAGE, pull_fields("Fresh", flags=0, group="stranger"))
        tap.equal(refused.code, NOT_SUBSCRIBED, "code (%s)" % refused.remark)
        client.request(r.HEART_BEAT, body=heartbeat("s@1", "stranger", ["Fresh"]))
        found = client.request(r.PULL_MESSAGE, pull_fields("Fresh", flags=0, group="stranger"))
        tap.equal(found.code, r.SUCCESS, "code once it has subscribed (%s)" % found.remark)


@tap.test("what cannot be stored is refused with the protocol's code and a remark that helps")
def _():
    cases = [  # topic, body, fields -> code, word in the remark
        ("bad topic!", b"x", {}, INVALID_PARAMETER, "topic"),
        ("T" * 128, b"x", {}, INVALID_PARAMETER, "127"),
        ("Fresh", b"x", {"queue": 99}, INVALID_PARAMETER, "queue"),
        ("Unknown", b"x", {"defaultTopic": "NoSuchTemplate"}, r.TOPIC_NOT_EXIST, "Unknown"),
        ("SCHEDULE_TOPIC_XXXX", b"x", {}, NO_PERMISSION, "SCHEDULE_TOPIC_XXXX"),
        ("Fresh", b"x" * (4 * 1024 * 1024 + 1), {}, MESSAGE_ILLEGAL, "4194304"),
        ("Fresh", b"x", {"properties": {"big": "y" * 33000}}, MESSAGE_ILLEGAL, "32767"),
    ]
    with connect() as client:
        for topic, body, fields, code, word in cases:
            got = send(client, topic, body, **fields)
            tap.equal(got.code, code, "code for %.20s (%s)" % (topic, got.remark))
            tap.check(word in got.remark, "%r says nothing of %r" % (got.remark, word))


@tap.test("messages that ask for a time that cannot be are refused, never delivered at once")
def _():
    with connect() as client:
        for wish in ({"TIMER_DELIVER_MS": "99999999999999"}, {"TIMER_DELAY_SEC": "soon"}):
            got = send(client, "Wishes", b"x", properties=wish)
            tap.check(got.code != r.SUCCESS and got.remark, "accepted %r" % wish)
        end = client.request(r.GET_MAX_OFFSET, {"topic": "Wishes", "queueId": 0})
        tap.check(end.code != r.SUCCESS or end.ext["offset"] == "0", "something was stored")


@tap.test("a missing or unreadable field is named")
def _():
    fields, body = r.send_v2("Fresh", b"x", queue_id=0)
    with connect() as client:
        without = {k: v for k, v in fields.items() if k != "e"}
        got = client.request(r.SEND_MESSAGE_V2, without, body)
        tap.equal(got.code, r.SYSTEM_ERROR, "code")
        tap.check("queueId" in got.remark or "'e'" in got.remark or " e" in got.remark, "remark %r" % got.remark)
        got = client.request(r.PULL_MESSAGE, dict(pull_fields("Fresh"), queueOffset="soon"))
        tap.check(got.code == r.SYSTEM_ERROR and "queueOffset" in got.remark, "remark %r" % got.remark)


@tap.test("with autoCreateTopicEnable=false an unknown topic is refused")
def _():
    with daemons.Daemon(settings={"autoCreateTopicEnable": "false"}) as strict, r.Client(strict.broker) as client:
        got = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Nobody", b"x", queue_id=0))
        tap.equal(got.code, r.TOPIC_NOT_EXIST, "code")
        tap.check("autoCreateTopicEnable" in got.remark, "remark %r" % got.remark)


@tap.test("RM-10 topics, groups, offsets and messages survive a clean restart")
def _():
    with daemons.Daemon() as d:
        with r.Client(d.broker) as client:
            for i in range(10):
                client.request(r.SEND_MESSAGE_V2, *r.send_v2("Stay", b"%d" % i, queue_id=0))
            client.request(r.HEART_BEAT, body=heartbeat("c@1", "stayers", ["Stay"]))
            where = {"consumerGroup": "stayers", "topic": "Stay", "queueId": 0}
            client.request(r.UPDATE_CONSUMER_OFFSET, dict(where, commitOffset=4))
        d.restart()
        with r.Client(d.broker) as client:
            tap.equal(client.request(r.QUERY_CONSUMER_OFFSET, where).ext["offset"], "4", "offset")
            found = r.messages(client.request(r.PULL_MESSAGE, pull_fields("Stay")).body)
            tap.equal([m.body for m in found], [b"%d" % i for i in range(10)], "bodies")
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Stay", b"more", queue_id=0))
            tap.equal(sent.ext["queueOffset"], "10", "the next offset")


@tap.test("SYNC_FLUSH answers too, in order, and lets consumers see only what is on the disk")
def _():
    with daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH"}) as d, r.Client(d.broker) as client:
        for i in range(20):
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Sync", b"%d" % i, queue_id=0))
            tap.equal((sent.code, sent.ext["queueOffset"]), (r.SUCCESS, str(i)), "send")
        def all_there():
            found = client.request(r.PULL_MESSAGE, pull_fields("Sync"))
            return found.code == r.SUCCESS and len(r.messages(found.body)) == 20
        process.wait_until(all_there, 20, "all twenty can be read")


tap.main()
