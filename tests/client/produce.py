#!/usr/bin/env python3
"""Producers of liboncemq on a real broker: what they send is what is stored.

interop/stage.py says where it is played: on an oncemqd, or with ENDPOINT=apache on Apache's servers. One puppet does it
all; at the end it must leave with status 0, which under the sanitizers means without leak, race or stray access.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import known  # noqa: E402
from harness import process, puppet, remoting, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

INVALID, TIMEOUT, NETWORK, NO_TOPIC, TOO_BIG, REFUSED, NOT_FOUND = 1, 4, 5, 7, 10, 12, 13

# What is off by default, or slow.
QUICK = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000, "recallMessageEnable": "true"}

here = plays.Once(lambda: stage.Stage(known(QUICK), apache_only=QUICK))
c = plays.Once(lambda: tap.watch(puppet.start_c("c", here().names)))


def producer(name, **options):
    c().call("producer", name=name, group=unique("g_" + name), **options)
    return name


def send(name, *messages, mode="sync"):
    return c().call("send", name=name, mode=mode, messages=list(messages))


def stored(topic, *receipts):
    """All records of a topic by their unique ids, with those of the receipts among them. A name server hears of a new
    topic a moment after its broker; and Apache's broker shows a message a moment after it has taken it."""
    process.wait_until(lambda: here().route(topic), 30, "route of %s" % topic)
    wanted = {each["id"] for each in receipts}

    def there():
        found = {record.unique_key: record for record in here().records(topic)}
        return [found] if wanted <= set(found) else None
    return process.wait_until(there, 30, "%d records in %s" % (len(wanted), topic))[0]


def refused(code, call, *args, **more):
    try:
        call(*args, **more)
    except puppet.Refused as error:
        tap.equal(error.code, code, "code of %r" % str(error))
        return str(error)
    raise AssertionError("it was not refused")


@tap.test("a message is stored with its body, tag, keys, properties and flag, under the id in its receipt")
def _():
    p, topic = producer("whole"), unique("Whole")
    [receipt] = send(p, puppet.message(topic, "body \u00e9".encode(), tag="TagA", keys=["k1", "k2"], flag=7,
                                       properties={"color": "r\u00f6t \"'\\", "n": "1"}))
    record = stored(topic, receipt)[receipt["id"]]
    tap.equal(record.body, "body \u00e9".encode(), "body")
    wanted = {"TAGS": "TagA", "KEYS": "k1 k2", "color": "r\u00f6t \"'\\", "n": "1", "WAIT": "true"}
    tap.equal({name: record.properties.get(name) for name in wanted}, wanted, "properties")
    tap.equal((record.flag, record.queue_id, record.queue_offset),
              (7, receipt["queue"], receipt["offset"]), "flag and place")
    tap.equal(record.offset_id, receipt["offset_id"], "offset id")
    tap.check(re.fullmatch("[0-9A-F]{32}", receipt["id"]), "an id as the Java client makes them: %s" % receipt["id"])


@tap.test("a body of a megabyte, of one byte, and of every byte there is arrive as they were")
def _():
    p, topic = producer("bodies", compress_over=1 << 30), unique("Bodies")
    every = bytes(range(256))
    receipts = send(p, puppet.message(topic, every), puppet.message(topic, size=1 << 20, noise=True),
                    puppet.message(topic, b"1"))
    found = stored(topic, *receipts)
    tap.equal([len(found[r["id"]].body) for r in receipts], [256, 1 << 20, 1], "sizes")
    tap.equal(found[receipts[0]["id"]].body, every, "body")


@tap.test("messages go round the queues of a topic, one after the other")
def _():
    p, topic = producer("round"), unique("Round")
    send(p, puppet.message(topic, b"makes the topic"))
    queues = [r["queue"] for r in send(p, *[puppet.message(topic, b"%d" % i) for i in range(8)])]
    tap.equal(sorted(queues), [0, 0, 1, 1, 2, 2, 3, 3], "queues of eight messages")
    tap.check(queues[:4] == queues[4:], "the same order again: %s" % queues)


@tap.test("RM-4 asynchronous sends all end, each with its own receipt, and one-way sends arrive")
def _():
    p, topic = producer("many"), unique("Many")
    send(p, puppet.message(topic, b"first"))
    receipts = send(p, *[puppet.message(topic, b"%d" % i) for i in range(1000)], mode="async")
    tap.equal(len({r["id"] for r in receipts}), 1000, "different ids")
    found = stored(topic, *receipts)
    for i, receipt in enumerate(receipts):
        tap.equal(found[receipt["id"]].body, b"%d" % i, "body of message %d" % i)
    send(p, *[puppet.message(topic, b"oneway %d" % i) for i in range(10)], mode="oneway")
    c().call("stop", name=p)
    oneway = {b"oneway %d" % i for i in range(10)}
    process.wait_until(lambda: oneway <= {record.body for record in here().records(topic)}, 30,
                       "one-way messages are stored after the close")


@tap.test("messages of one key are stored in the order of the calls, whether these waited or not")
def _():
    if not here().ours:
        tap.skip("Apache's broker has several threads for the requests of one connection, and stores them in any order")
    p, topic = producer("mixed"), unique("Mixed")
    send(p, puppet.message(topic, b"makes the topic"))
    count = 1500
    send(p, *[puppet.message(topic, b"%d" % i, shard="one") for i in range(count)], mode="mixed")
    records = [r for r in stored(topic).values() if r.body != b"makes the topic"]
    bodies = [int(r.body) for r in sorted(records, key=lambda r: r.queue_offset)]
    tap.equal(bodies, list(range(count)), "bodies in the order of their queue")


@tap.test("LB-2 the same key goes to the same queue, the one that the Java client takes")
def _():
    p, topic = producer("keys"), unique("Keys")
    send(p, puppet.message(topic, b"makes the topic"))
    for key in ("order-1", "order-2", "polygenelubricants", "\u00e4"):
        queues = {r["queue"] for r in send(p, *[puppet.message(topic, b"x", shard=key)] * 3)}
        code = remoting.tag_hash(key)
        tap.equal(queues, {0 if code == -(1 << 31) else abs(code) % 4}, "queue of %r" % key)


@tap.test("a message goes to the queue it names, and to no other")
def _():
    p, topic = producer("pinned"), unique("Pinned")
    [first] = send(p, puppet.message(topic, b"makes the topic"))
    place = {"broker": first["broker"], "id": 2}
    tap.equal({r["queue"] for r in send(p, *[puppet.message(topic, b"x", queue=place)] * 3)}, {2}, "queues")
    refused(NETWORK, send, p, puppet.message(topic, b"x", queue={"broker": first["broker"], "id": 99}))


@tap.test("a message that cannot be sent is refused with a sentence, and nothing is stored")
def _():
    p, topic = producer("wrong", max_message_size=100), unique("Wrong")
    for code, message in (
            (INVALID, puppet.message("", b"x")), (INVALID, puppet.message("no blanks", b"x")),
            (INVALID, puppet.message("t" * 128, b"x")), (TOO_BIG, puppet.message(topic, size=101)),
            (INVALID, puppet.message(topic, b"x", properties={"": "v"})),
            (INVALID, puppet.message(topic, b"x", properties={"a\x01": "v"})),
            (INVALID, puppet.message(topic, b"x", tag="a\x02b")),
            (TOO_BIG, puppet.message(topic, b"x", properties={"n": "v" * 40000})),
            (INVALID, puppet.message(topic, b"x", delay=1, delay_ms=5)),
            (INVALID, puppet.message(topic, b"x", delay_ms=-5)),
            (INVALID, puppet.message(topic, b"x", queue={"id": 1}))):
        sentence = refused(code, send, p, message)
        tap.check(len(sentence) > 10, "a sentence: %r" % sentence)
    tap.equal(here().route(topic), None, "route")


@tap.test("an id of one's own is kept")
def _():
    p, topic = producer("own_id"), unique("OwnId")
    [receipt] = send(p, puppet.message(topic, b"x", id="mine-1"))
    tap.equal(receipt["id"], "mine-1", "id")
    tap.check("mine-1" in stored(topic, receipt), "it is stored under that id")


@tap.test("LB-2 `choose` has the last word on the queue of a message with a sharding key, and a number beyond is taken round")
def _():
    p, topic = producer("choose", choose=True), unique("Choose")
    send(p, puppet.message(topic, b"makes the topic"))
    stored(topic)
    tap.equal({r["queue"] for r in send(p, *[puppet.message(topic, b"x", shard="any")] * 3)}, {3}, "the last queue")
    tap.equal({r["queue"] for r in send(p, *[puppet.message(topic, b"x", shard="beyond")] * 3)}, {9 % 4}, "n + 5")


# Compression ----------------------------------------------------------------------------------------------------------

ZLIB, LZ4, ZSTD = 0, 1, 2


def unpack(program, data):
    """By a program that others have written."""
    if not shutil.which(program[0]):
        tap.skip("%s is not on PATH" % program[0])
    return subprocess.run(program, input=data, stdout=subprocess.PIPE, check=True).stdout


@tap.test("a body of 4,096 bytes or more is stored compressed, one byte less is not, and zlib is the default")
def _():
    p, topic = producer("zlib"), unique("Zlib")
    big, small, noise = send(p, puppet.message(topic, size=4096), puppet.message(topic, size=4095),
                             puppet.message(topic, size=9000, noise=True))
    found = stored(topic, big, small, noise)
    record = found[big["id"]]
    tap.check(len(record.stored_body) < 200, "%d bytes are stored" % len(record.stored_body))
    tap.equal((record.body, record.sys_flag & 0x701), (b"x" * 4096, 0x301), "body and flag")
    tap.equal((len(found[small["id"]].stored_body), found[small["id"]].sys_flag & 1), (4095, 0), "one byte less")
    tap.equal((len(found[noise["id"]].stored_body), found[noise["id"]].sys_flag & 1), (9000, 0), "what does not shrink")


@tap.test("lz4 and zstd are what their own programs read")
def _():
    for kind, flag, program in ((LZ4, 0x101, ["lz4", "-d", "-c"]), (ZSTD, 0x201, ["zstd", "-d", "-c"])):
        p, topic = producer("packed%d" % kind, compression=kind), unique("Packed%d" % kind)
        [receipt] = send(p, puppet.message(topic, size=100000))
        record = stored(topic, receipt)[receipt["id"]]
        tap.equal(record.sys_flag & 0x701, flag, "flag")
        tap.check(len(record.stored_body) < 2000, "%d bytes are stored" % len(record.stored_body))
        tap.equal(unpack(program, record.stored_body), b"x" * 100000, "body")


# Batches --------------------------------------------------------------------------------------------------------------

@tap.test("a batch is stored in one queue in its order, each message under its own id, tag and place")
def _():
    p, topic = producer("batch"), unique("Batch")
    messages = [puppet.message(topic, b"%d" % i, tag="T%d" % i, keys=["k%d" % i], flag=i) for i in range(20)]
    receipts = send(p, *messages, mode="batch")
    tap.equal(len(receipts), 20, "receipts")
    tap.equal(len({r["queue"] for r in receipts}), 1, "queues")
    tap.equal([r["offset"] for r in receipts], list(range(20)), "offsets")
    found = stored(topic, *receipts)
    for i, receipt in enumerate(receipts):
        record = found[receipt["id"]]
        tap.equal((record.body, record.properties["TAGS"], record.properties["KEYS"], record.flag, record.queue_offset,
                   record.offset_id),
                  (b"%d" % i, "T%d" % i, "k%d" % i, i, receipt["offset"], receipt["offset_id"]), "message %d" % i)


@tap.test("a batch that is too big for one request goes in several, in order, and loses nothing")
def _():
    p, topic = producer("split", max_message_size=10000), unique("Split")
    send(p, puppet.message(topic, b"makes the topic"))
    receipts = send(p, *[puppet.message(topic, b"%d" % i, size=3000) for i in range(10)], mode="batch")
    tap.equal(len(receipts), 10, "receipts")
    tap.check(len({(r["queue"], r["offset"]) for r in receipts}) == 10, "places: %s" % receipts)
    tap.check(len({r["queue"] for r in receipts}) > 1, "several requests went to several queues")
    found = stored(topic, *receipts)
    for i, receipt in enumerate(receipts):
        tap.check(found[receipt["id"]].body.startswith(b"%d" % i), "body %d" % i)


@tap.test("what cannot be a batch is refused before anything is sent")
def _():
    p, topic = producer("unbatch", max_message_size=1000), unique("Unbatch")
    for code, messages in (
            (INVALID, []), (INVALID, [puppet.message(topic, b"x"), puppet.message(unique("Other"), b"x")]),
            (INVALID, [puppet.message(topic, b"x"), puppet.message(topic, b"x", delay=1)]),
            (INVALID, [puppet.message(topic, b"x"), puppet.message(topic, b"x", shard="s")]),
            (INVALID, [puppet.message(topic, b"x"), puppet.message(topic, b"x", no_wait=True)]),
            (INVALID, [puppet.message("%RETRY%g", b"x")]),
            (TOO_BIG, [puppet.message(topic, b"x"), puppet.message(topic, size=1001)]),
            (TOO_BIG, [puppet.message(topic, b"x"), puppet.message(topic, size=1000)])):
        refused(code, send, p, *messages, mode="batch")
    tap.equal(here().route(topic), None, "route")


# Later ----------------------------------------------------------------------------------------------------------------

@tap.test("a message with a delay level is not there before its second is over, and then it is")
def _():
    p, topic = producer("delay"), unique("Delay")
    send(p, puppet.message(topic, b"makes the topic"))
    [receipt] = send(p, puppet.message(topic, b"later", delay=1))
    record = stored(topic, receipt)[receipt["id"]]
    tap.check(record.store_time - record.born_time >= 1000, "it came %d ms later" % (record.store_time - record.born_time))
    tap.equal(record.properties["DELAY"], "1", "its property")


def need(code, what):
    """Skip where the broker does not know a request."""
    with remoting.Client(here().broker_address()) as client:
        if client.request(code).code == remoting.REQUEST_CODE_NOT_SUPPORTED:
            tap.skip("this broker has no %s" % what)


@tap.test("a message that is to come later comes then, and can be taken back before; one that has come cannot")
def _():
    need(RECALL, "recall")
    p, topic = producer("timer"), unique("Timer")
    send(p, puppet.message(topic, b"makes the topic"))
    stored(topic)
    now = int(time.time() * 1000)
    soon, at, never = send(p, puppet.message(topic, b"soon", delay_ms=1500),
                           puppet.message(topic, b"at", deliver_ms=now + 2500),
                           puppet.message(topic, b"never", delay_ms=4500))
    tap.check(never["recall"] and soon["recall"], "handles: %s" % never)
    c().call("recall", name=p, topic=topic, recall=never["recall"])
    found = process.wait_until(lambda: {soon["id"], at["id"]} <= set(stored(topic)) and stored(topic), 15, "timers")
    tap.check(found[at["id"]].store_time >= now + 1500, "not before its time")
    refused(NOT_FOUND, c().call, "recall", name=p, topic=topic, recall=soon["recall"])
    refused(INVALID, c().call, "recall", name=p, topic=unique("Other"), recall=never["recall"])
    [last] = send(p, puppet.message(topic, b"last", delay_ms=5000))
    process.wait_until(lambda: last["id"] in stored(topic), 15, "a timer behind the recalled one")
    tap.check(never["id"] not in stored(topic), "what was recalled has not come")


# Transactions ---------------------------------------------------------------------------------------------------------

END_TRANSACTION, RECALL = 37, 370
UNKNOWN, COMMIT, ROLLBACK = 0, 1, 2


def transaction(name, decision, message):
    return c().call("transaction", name=name, decision=decision, messages=[message])


@tap.test("a transaction's message is there after a commit, and is not after a rollback")
def _():
    need(END_TRANSACTION, "transactions")
    p, topic = producer("txn", check=True), unique("Txn")
    send(p, puppet.message(topic, b"makes the topic"))
    good = transaction(p, "commit", puppet.message(topic, b"yes", tag="A", keys=["k"], check="commit"))
    bad = transaction(p, "rollback", puppet.message(topic, b"no"))
    tap.equal((good["decision"], good["called"], bad["decision"]), (COMMIT, True, ROLLBACK), "decisions")
    found = process.wait_until(lambda: good["receipt"]["id"] in stored(topic) and stored(topic), 10, "the commit")
    record = found[good["receipt"]["id"]]
    tap.equal((record.body, record.properties["TAGS"], record.sys_flag & 0xc), (b"yes", "A", 8), "the message")
    tap.check(bad["receipt"]["id"] not in found, "what was rolled back is not there")
    first_of_topic = transaction(p, "commit", puppet.message(unique("TxnNew"), b"the first message of a topic"))
    process.wait_until(lambda: first_of_topic["receipt"]["id"] in stored(unique("TxnNew")), 10, "the first commit")


@tap.test("an undecided transaction is asked about, and what is answered counts")
def _():
    need(END_TRANSACTION, "transactions")
    p, topic = producer("asked_txn", check=True), unique("AskedTxn")
    send(p, puppet.message(topic, b"makes the topic"))
    yes = transaction(p, "unknown", puppet.message(topic, b"yes", tag="T", properties={"check": "commit"}))
    no = transaction(p, "unknown", puppet.message(topic, b"no", properties={"check": "rollback"}))
    tap.equal(yes["decision"], UNKNOWN, "decision")
    process.wait_until(lambda: yes["receipt"]["id"] in stored(topic), 60, "committed by the check")
    wanted = {yes["receipt"]["id"], no["receipt"]["id"]}
    process.wait_until(lambda: wanted <= {m["half"]["id"] for m in c().messages(p)}, 60, "both are asked about")
    half = next(m["half"] for m in c().messages(p) if m["half"]["id"] == yes["receipt"]["id"])
    tap.equal((half["topic"], half["body"], half["tag"]), (topic, "yes", "T"), "what was asked about")
    tap.check(no["receipt"]["id"] not in stored(topic), "what was rolled back is not there")


@tap.test("RM-3 of a sender that is gone another member of its group is asked, and decides; the message comes once")
def _():
    need(END_TRANSACTION, "transactions")
    topic, group = unique("Orphan"), unique("g_orphans")
    c().call("producer", name="heir", group=group, check=True)
    c().call("transaction", name="heir", decision="commit", messages=[puppet.message(topic, b"makes it known")])
    doomed = tap.watch(puppet.start_c("doomed", here().names))
    doomed.call("producer", name="p", group=group, check=True)
    lost = doomed.call("transaction", name="p", decision="unknown",
                       messages=[puppet.message(topic, b"orphan", properties={"check": "commit"})])["receipt"]["id"]
    doomed.kill9()
    process.wait_until(lambda: lost in stored(topic), 90, "committed by another")
    process.wait_until(lambda: lost in {m["half"]["id"] for m in c().messages("heir")}, 10, "it says that it was asked")
    tap.equal(len([r for r in here().records(topic) if r.unique_key == lost]), 1, "copies")
    tap.unwatch(doomed)


# Traces ---------------------------------------------------------------------------------------------------------------

@tap.test("what was sent is traced: ten records in a message, the rest at the close")
def _():
    p, topic, traces = producer("traced", trace=True, trace_topic=unique("Traces")), unique("Traced"), unique("Traces")
    receipts = send(p, *[puppet.message(topic, b"%d" % i, tag="T", keys=["key%d" % i]) for i in range(12)], mode="async")
    batch = send(p, *[puppet.message(topic, b"b%d" % i) for i in range(3)], mode="batch")
    c().call("stop", name=p)
    wanted = {r["id"] for r in [*receipts, *batch]}

    def traced():
        """All trace messages, and their records by id, when there is one of each."""
        found = stored(traces)
        records = [record.split("\x01") for each in found.values() for record in each.body.decode().split("\x02") if record]
        by_id = {record[5]: record for record in records}
        return (found, by_id) if wanted <= set(by_id) else None
    found, by_id = process.wait_until(traced, 30, "all records")
    tap.equal(set(by_id), wanted, "ids")
    one = by_id[receipts[3]["id"]]
    tap.equal([one[i] for i in (0, 3, 4, 6, 7, 9, 11, 12, 13)],
              ["Pub", unique("g_traced"), topic, "T", "key3", "1", "0", receipts[3]["offset_id"], "true"], "a record")
    tap.equal(by_id[batch[1]["id"]][12], batch[1]["offset_id"], "offset id in a batch")
    keys = " ".join(each.properties["KEYS"] for each in found.values()).split()
    tap.check({r["id"] for r in receipts} | {"key3"} <= set(keys), "keys of the trace messages")


# Questions ------------------------------------------------------------------------------------------------------------

@tap.test("queues, offsets and single messages are told as they are")
def _():
    p, topic = producer("asked"), unique("Asked")
    c().call("client", name="asker")
    refused(NO_TOPIC, c().call, "queues", client="asker", topic=topic)
    before = int(time.time() * 1000)
    [first] = send(p, puppet.message(topic, b"one", tag="A", keys=["k"], properties={"p": "q"}, flag=3))
    place = {"broker": first["broker"], "id": first["queue"]}
    [second] = send(p, puppet.message(topic, size=5000, queue=place))
    stored(topic, first, second)
    queues = c().call("queues", client="asker", topic=topic)
    tap.equal(sorted(queue["id"] for queue in queues), [0, 1, 2, 3], "queues")
    tap.equal({(queue["broker"], queue["topic"]) for queue in queues}, {(first["broker"], topic)}, "names")
    asked = dict(client="asker", topic=topic, broker=first["broker"], queue=first["queue"])
    tap.equal(c().call("offset", bound="begin", **asked), 0, "begin")
    tap.equal(c().call("offset", bound="end", **asked), 2, "end")
    tap.equal(c().call("offset", time=before - 1000, **asked), 0, "offset by time")
    seen = c().call("view", client="asker", topic=topic, offset_id=first["offset_id"])
    tap.equal([seen[k] for k in ("topic", "id", "body", "tag", "keys", "flag", "queue", "offset")],
              [topic, first["id"], "one", "A", "k", 3, first["queue"], 0], "the message")
    tap.equal(seen["properties"]["p"], "q", "its property")
    tap.equal(c().call("view", client="asker", offset_id=second["offset_id"])["size"], 5000, "expanded")
    refused(NOT_FOUND, c().call, "view", client="asker", offset_id=first["offset_id"][:-4] + "FFFF")
    refused(INVALID, c().call, "view", client="asker", offset_id="XYZ")
    refused(NOT_FOUND, c().call, "offset", bound="end", **dict(asked, broker="nobody"))


# Request and reply ----------------------------------------------------------------------------------------------------

@tap.test("a request gets the reply to this very message, and a time-out if nobody replies")
def _():
    p, topic = producer("requester"), unique("Request")
    producer("replier")
    send(p, puppet.message(topic, b"makes the topic"))
    stored(topic)
    number = c().start("request", name=p, messages=[puppet.message(topic, b"how many?")], timeout_ms=20000)
    [record] = process.wait_until(
        lambda: [r for r in here().records(topic) if r.body == b"how many?"], 10, "the request is stored")
    c().call("client", name="reply_client")
    c().call("reply", name="replier", client="reply_client", offset_id=record.offset_id, text="seven")
    reply = c().finish(number)
    tap.equal(reply["body"], "seven", "reply")
    tap.equal(reply["properties"]["CORRELATION_ID"], record.properties["CORRELATION_ID"], "number")
    refused(TIMEOUT, c().call, "request", name=p, messages=[puppet.message(topic, b"anybody?")], timeout_ms=300)
    [plain] = send(p, puppet.message(topic, b"no request"))
    refused(INVALID, c().call, "reply", name="replier", client="reply_client", offset_id=plain["offset_id"], text="x")


@tap.test("the puppet leaves without leak, race or stray access")
def _():
    c().end()


stage.run()
