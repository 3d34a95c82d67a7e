"""Filters in raw frames: by tag and by SQL92, in the request and in the heartbeat; refused expressions; readers that wait."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

GET_RUNTIME, ADVANCE_CLOCK = 28, 10001
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
PARSE_FAILED, NOT_SUBSCRIBED, FILTER_DATA_NOT_EXIST = 23, 24, 27

daemon = daemons.Daemon()
tap.watch(daemon)


def connect(timeout=20.0):
    return r.Client(daemon.broker, timeout)


def pull_fields(topic, expression="*", kind="TAG", queue=0, offset=0, flags=SUBSCRIPTION, wait_ms=0, group="g", version=0):
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": flags, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": expression,
            "subVersion": version, "expressionType": kind}


def pull(client, topic, *args, **more):
    return client.request(r.PULL_MESSAGE, pull_fields(topic, *args, **more))


def send(client, topic, body=b"x", queue=0, **properties):
    sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, queue))
    tap.equal(sent.code, r.SUCCESS, "send (%s)" % sent.remark)


def send_many(client, topic, items, size=2000):
    """Batches of messages, each with its properties, to queue 0."""
    for at in range(0, len(items), size):
        body = r.batch(items[at:at + size])
        fields, _ = r.send_v2(topic, body, queue_id=0, batch=True)
        sent = client.request(r.SEND_BATCH_MESSAGE, fields, body)
        tap.equal(sent.code, r.SUCCESS, "batch (%s)" % sent.remark)


def subscription(topic, expression, kind="TAG", version=1):
    return {"topic": topic, "subString": expression, "tagsSet": [], "codeSet": [], "subVersion": version,
            "expressionType": kind, "classFilterMode": False}


def heartbeat(client, client_id, group, *subscriptions):
    body = r.dumps({"clientID": client_id, "producerDataSet": [],
                    "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY",
                                         "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                                         "unitMode": False, "subscriptionDataSet": subscriptions}]})
    answer = client.request(r.HEART_BEAT, {}, body)
    tap.equal(answer.code, r.SUCCESS, "heartbeat (%s)" % answer.remark)


def begin_waiting(client, topic, expression, kind, offset, wait_ms):
    """A pull that finds nothing. A connection is served in order, so once the second answer is here the first waits."""
    opaque = client.send(r.PULL_MESSAGE, pull_fields(topic, expression, kind, offset=offset, flags=SUBSCRIPTION | SUSPEND,
                                                     wait_ms=wait_ms))
    end = client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext["offset"]
    tap.equal(end, str(offset), "end of the queue")
    return opaque


def check_config(client, expression, kind):
    body = r.dumps({"clientId": "c", "group": "g", "namespace": None,
                    "subscriptionData": subscription("T", expression, kind)})
    return client.request(r.CHECK_CLIENT_CONFIG, {}, body)


def read_all(client, topic, *args, **more):
    """Everything that a filter lets through, and how many pulls it took."""
    found, offset, pulls = [], 0, 0
    while True:
        answer = pull(client, topic, *args, offset=offset, **more)
        if answer.code == r.PULL_NOT_FOUND:
            return found, pulls
        tap.check(answer.code in (r.SUCCESS, r.PULL_RETRY_IMMEDIATELY), "pull: %d %s" % (answer.code, answer.remark))
        tap.check(int(answer.ext["nextBeginOffset"]) > offset, "the pull goes on behind %d" % offset)
        offset, pulls = int(answer.ext["nextBeginOffset"]), pulls + 1
        found += r.messages(answer.body)


@tap.test("RM-12 of 1,000 messages with four tags, a subscription to one of them receives its 250")
def _():
    with connect() as client:
        send_many(client, "Quarter", [(b"%d" % i, {"TAGS": "Tag%d" % (i % 4), "UNIQ_KEY": "Q%04d" % i})
                                      for i in range(1000)])
        heartbeat(client, "c1", "quarter", subscription("Quarter", "Tag2"))
        found, _ = read_all(client, "Quarter", flags=0, group="quarter", version=1)
        tap.equal([m.body for m in found], [b"%d" % i for i in range(2, 1000, 4)], "bodies")


@tap.test("an SQL92 expression in the request chooses by properties")
def _():
    with connect() as client:
        for i in range(20):
            send(client, "Sql", b"%d" % i, amount=str(i * 10), region="eu" if i % 2 else "us", TAGS="T%d" % i)
        cases = [("amount > 150", range(16, 20)), ("amount BETWEEN 30 AND 60 AND region = 'eu'", [3, 5]),
                 ("TAGS IN ('T1', 'T19')", [1, 19]), ("amount IS NULL", []), ("region STARTSWITH 'e' AND amount < 40", [1, 3]),
                 ("region <> 'us' OR amount = 0", [0, *range(1, 20, 2)]), ("nothing = 'x'", []), ("amount > 1.5", range(1, 20))]
        for expression, wanted in cases:
            answer = pull(client, "Sql", expression, "SQL92")
            tap.equal([m.body for m in r.messages(answer.body)], [b"%d" % i for i in wanted], expression)
            tap.equal(answer.code, r.SUCCESS if wanted else r.PULL_RETRY_IMMEDIATELY, "code")
            tap.equal(answer.ext["nextBeginOffset"], "20", "next")


@tap.test("an SQL92 expression of the group's heartbeat counts for its pulls, and a newer one replaces it")
def _():
    with connect() as client:
        for i in range(6):
            send(client, "Beat", b"%d" % i, n=str(i))
        heartbeat(client, "c1", "beat", subscription("Beat", "n > 3", "SQL92", 5))
        answer = pull(client, "Beat", flags=0, group="beat", version=5)
        tap.equal([m.body for m in r.messages(answer.body)], [b"4", b"5"], "bodies")
        heartbeat(client, "c1", "beat", subscription("Beat", "n < 2", "SQL92", 6))
        answer = pull(client, "Beat", flags=0, group="beat", version=6)
        tap.equal([m.body for m in r.messages(answer.body)], [b"0", b"1"], "bodies of the newer")
        tap.equal(pull(client, "Beat", flags=0, group="beat", version=7).code, 25, "a version that is not known yet")


@tap.test("the retry topic of a group that filters by SQL92 is not filtered")
def _():
    with connect() as client:
        heartbeat(client, "c1", "again", subscription("Sql", "amount > 5", "SQL92"), subscription("%RETRY%again", "*"))
        fields, body = r.send_v2("%RETRY%again", b"once more", {"RETRY_TOPIC": "Sql", "amount": "1"}, 0)
        tap.equal(client.request(r.SEND_MESSAGE_V2, fields, body).code, r.SUCCESS, "send")
        answer = pull(client, "%RETRY%again", flags=0, group="again", version=1)
        tap.equal([m.body for m in r.messages(answer.body)], [b"once more"], "bodies")


@tap.test("a wrong expression is refused with its place: when a consumer asks, when it pulls, never in its heartbeat")
def _():
    bad, place = "amount > 5 AND", "line 1, column 15"
    with connect() as client:
        send(client, "Wrong")
        for kind, expression, code in (("TAG", "||", r.SUCCESS), ("SQL92", "a = 5", r.SUCCESS), ("SQL92", bad, PARSE_FAILED),
                                       ("SQL92", "", PARSE_FAILED), ("XPATH", "a", PARSE_FAILED)):
            answer = check_config(client, expression, kind)
            tap.equal(answer.code, code, "%s %r (%s)" % (kind, expression, answer.remark))
        tap.check(place in check_config(client, bad, "SQL92").remark, "the remark says where")
        answer = pull(client, "Wrong", bad, "SQL92")
        tap.equal(answer.code, PARSE_FAILED, "pull with it")
        tap.check(place in answer.remark, answer.remark)
        heartbeat(client, "c1", "wrong", subscription("Wrong", bad, "SQL92"))
        answer = pull(client, "Wrong", flags=0, group="wrong", version=1)
        tap.equal(answer.code, FILTER_DATA_NOT_EXIST, "pull of a group that has it")
        tap.check(place in answer.remark, answer.remark)
        members = client.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "wrong"}).json()
        tap.equal(members["consumerIdList"], ["c1"], "members")
        tap.equal(client.request(r.CHECK_CLIENT_CONFIG, {}, b"{").code, r.SYSTEM_ERROR, "a body that is none")
        tap.equal(client.request(r.CHECK_CLIENT_CONFIG, {}, b"{}").code, r.SUCCESS, "no subscription to check")


@tap.test("what matches nothing among 100,000 messages is gone through in bounded steps")
def _():
    with connect(30) as client:
        count = 100000
        send_many(client, "Many", [(b"", {"n": str(i % 7), "TAGS": "A", "UNIQ_KEY": "M%06d" % i}) for i in range(count)], 10000)
        for expression, kind in (("n = 9", "SQL92"), ("B", "TAG")):
            first = pull(client, "Many", expression, kind)
            tap.equal((first.code, first.remark), (r.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"), "first pull")
            tap.equal(first.ext["nextBeginOffset"], "800", "where it stopped")
            found, pulls = read_all(client, "Many", expression, kind)
            tap.equal((found, pulls), ([], count // 800), "found and pulls")
        found, _ = read_all(client, "Many", "UNIQ_KEY = 'M099999'", "SQL92")
        tap.equal([m.queue_offset for m in found], [count - 1], "the needle")


@tap.test("a waiting reader is answered for a message that its filter takes, not for others")
def _():
    cases = [("TAG", "B", {"TAGS": "A"}, {"TAGS": "B"}), ("SQL92", "n > 5", {"n": "5"}, {"n": "6"})]
    for kind, expression, other, wanted in cases:
        topic = "Wait" + kind
        with connect() as reader, connect() as writer:
            send(writer, topic, **other)
            opaque = begin_waiting(reader, topic, expression, kind, 1, 60000)
            for _ in range(50):
                send(writer, topic, **other)
            send_many(writer, topic, [(b"", {**other, "UNIQ_KEY": "W%d" % i}) for i in range(500)])
            tap.equal(reader.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext["offset"], "551", "end")
            tap.equal(reader.replies, {}, "answers to the reader that waits")
            send(writer, topic, b"at last", **wanted)
            answer = reader.wait(opaque)
            tap.equal((answer.code, answer.remark), (r.SUCCESS, "FOUND"), "answer")
            tap.equal([m.body for m in r.messages(answer.body)], [b"at last"], "bodies")
            tap.equal(answer.ext["nextBeginOffset"], "552", "next")


@tap.test("a reader whose time is up is sent on behind what it has seen")
def _():
    with daemons.Daemon(args=["--clock", "virtual"]) as own, r.Client(own.broker) as reader, r.Client(own.broker) as writer:
        send(writer, "Up", n="1")
        opaque = begin_waiting(reader, "Up", "n = 9", "SQL92", 1, 60000)
        for _ in range(3):
            send(writer, "Up", n="1")
        for each in (writer, reader, reader):  # then they are in the queue, and the reader's loop has looked at them
            each.request(r.GET_MAX_OFFSET, {"topic": "Up", "queueId": 0})
        tap.equal(writer.request(ADVANCE_CLOCK, {"advanceMillis": 60000}).code, r.SUCCESS, "advance")
        answer = reader.wait(opaque)
        tap.equal((answer.code, answer.ext["nextBeginOffset"]), (r.PULL_NOT_FOUND, "4"), "answer")


def differing(client):
    return int(client.request(GET_RUNTIME).json()["table"]["differingSubscriptions"])


@tap.test("RM-6 a member with another subscription is warned of in the log, with both names, and counted")
def _():
    with connect() as one, connect() as two:
        before = differing(one)
        heartbeat(one, "member-one", "mixed", subscription("Quarter", "Tag1 || Tag2"))
        heartbeat(two, "member-two", "mixed", subscription("Quarter", "Tag3"))

        def warning():
            with open(daemon.log) as log:
                return [line for line in log if "member-one" in line and "member-two" in line]
        line, = process.wait_until(warning, 20, "a warning that names both members")
        tap.check("mixed" in line and "Quarter" in line and "WARN" in line.upper(), line)
        tap.equal(differing(one), before + 1, "differing subscriptions")


@tap.test("enablePropertyFilter=false refuses SQL92 as Apache does, and leaves tags alone")
def _():
    words = "The broker does not support consumer to filter message by SQL92"
    with daemons.Daemon(settings={"enablePropertyFilter": "false"}) as other, r.Client(other.broker) as client:
        send(client, "Off", TAGS="A", n="5")
        for answer in (check_config(client, "n = 5", "SQL92"), pull(client, "Off", "n = 5", "SQL92")):
            tap.equal(answer.code, r.SYSTEM_ERROR, "code")
            tap.check(words in answer.remark, answer.remark)
        tap.equal(pull(client, "Off", "A").code, r.SUCCESS, "by tag")


tap.main()
