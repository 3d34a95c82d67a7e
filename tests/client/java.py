#!/usr/bin/env python3
"""liboncemq sends, the official Java client 5.5.0 receives, and the other way round: every kind of message arrives as it
was sent. And members of one group that are not of one kind.

The Java side (interop/java) looks at each body itself: it is told the checksum in a property. ENDPOINT=apache plays it
on Apache's servers.
"""

import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, puppet, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.java import puppet as java  # noqa: E402
from interop.stage import unique  # noqa: E402

COMPRESSIONS = ("zlib", "lz4", "zstd")
producers = set()

here = plays.Once(lambda: stage.Stage())
c = plays.Once(lambda: tap.watch(puppet.start_c("c", here().names)))
jvm = plays.Once(lambda: java.Puppet("java", here().names))


def numbered(topic, number, body, properties=None, **more):
    """A message whose body the Java side can judge."""
    marks = {"number": str(number), "crc": str(zlib.crc32(body)), "greeting": "gr\u00f6\u00dfe \u5927\u5c0f %d" % number}
    if len(body) > 1000:
        more["size"], body = len(body), b""  # the puppet makes it: all x
    return puppet.message(topic, body, properties={**marks, **(properties or {})}, **more)


def send(name, *messages, mode="sync", **options):
    if name not in producers:
        c().call("producer", name=name, group=unique(name), **options)
        producers.add(name)
    return c().call("send", name=name, mode=mode, messages=list(messages))


@tap.test("C sends, Java receives: bodies, tags, keys, properties, compressed bodies, batches, delayed messages")
def _():
    topic = unique("ToJava")
    receipts = dict(enumerate(send("plain", numbered(topic, 0, b"x"), numbered(
        topic, 1, bytes(range(256)), {"e\u00e9": "\"\\ \u00fc"}, tag="TagA", keys=["k1", "k2"]),
        numbered(topic, 2, b"sharded", shard="order-7"), numbered(topic, 3, b"later", delay=1))))
    for kind, name in enumerate(COMPRESSIONS):
        [receipts[10 + kind]] = send(name, numbered(topic, 10 + kind, b"x" * 100000), compression=kind)
    batch = send("batch", *[numbered(topic, 20 + i, b"b%d" % i, tag="B%d" % i) for i in range(10)], mode="batch")
    receipts.update({20 + i: receipt for i, receipt in enumerate(batch)})
    listener = java.Listener(jvm(), unique("listener"), topic=topic, group=unique("java_group"))
    listener.wait_all(receipts)
    got = {each["number"]: each for each in listener.received()}
    tap.equal(len(listener.received()), len(receipts), "deliveries")
    for number, receipt in receipts.items():
        tap.check(got[number]["intact"], "message %d is intact: %s" % (number, got[number]))
        tap.equal(got[number]["id"], receipt["id"], "id of message %d" % number)
    tap.equal((got[1]["tags"], got[1]["keys"], got[1]["properties"]["e\u00e9"]), ("TagA", "k1 k2", "\"\\ \u00fc"), "marks")
    tap.equal([got[10 + i]["size"] for i in range(3)], [100000] * 3, "sizes of compressed bodies")
    tap.equal(got[23]["tags"], "B3", "tag in a batch")
    listener.stop()


def consume(name, topic, **more):
    c().call("consumer", name=unique(name), group=unique("g_" + name), topic=topic, from_="first", **more)
    return unique(name)


def java_sends(jvm_, topic, count, **args):
    results = jvm_.call("send", topic=topic, count=count, **{"producer": unique("java_producer"), **args})
    tap.check(not [each for each in results if "error" in each], "sends: %s" % results[:2])
    return results


def check_whole(got):
    for each in got:
        number = each["properties"]["number"]
        tap.equal(str(each["crc"]), each["properties"]["crc"], "checksum of message %s" % number)
        tap.equal(each["properties"]["greeting"], "gr\u00f6\u00dfe \u5927\u5c0f %s" % number, "greeting of %s" % number)


@tap.test("Java sends, C receives: bodies, tags, keys, properties, batches, delayed and compressed messages")
def _():
    topic = unique("FromJava")
    sent = java_sends(jvm(), topic, 10, first=0, tags="a,b", keys=3)
    sent += java_sends(jvm(), topic, 10, first=10, mode="batch", tags="a,b")
    sent += java_sends(jvm(), topic, 2, first=20, delay=1)
    for first, kind in ((30, "ZLIB"), (40, "LZ4"), (50, "ZSTD")):
        sender = java.Puppet("java_" + kind.lower(), here().names,
                             properties=["rocketmq.message.compressType=" + kind])
        sent += java_sends(sender, topic, 2, first=first, size=50000, producer=unique("java_" + kind))
        sender.kill9()
    process.wait_until(lambda: here().route(topic), 10, "route")
    records = here().records(topic)
    kinds = {record.sys_flag & 0x700 for record in records if record.sys_flag & 1}
    tap.equal(kinds, {0x100, 0x200, 0x300}, "kinds of compression in the records")
    consumer = consume("from_java", topic)
    got = c().wait_messages(consumer, 28, 60)
    check_whole(got)
    by_number = {int(each["properties"]["number"]): each for each in got}
    tap.equal(sorted(by_number), [*range(22), 30, 31, 40, 41, 50, 51], "numbers")
    tap.equal((by_number[4]["tag"], by_number[4]["keys"], by_number[15]["tag"]), ("a", "key-1", "b"), "tags and keys")
    ids = {each["number"]: each["id"] for each in sent if "number" in each and "," not in each["id"]}
    for number, identity in ids.items():
        tap.equal(by_number[number]["id"], identity, "id of message %d" % number)
    c().call("stop", name=consumer)


@tap.test("transactions: what C commits Java receives, what Java commits C receives; what is rolled back nobody does")
def _():
    topic, back = unique("Decided"), unique("DecidedByJava")
    c().call("producer", name="decides", group=unique("decides"), check=True, timeout_ms=10000)
    for number, decision in enumerate(("commit", "rollback", "commit")):
        c().call("transaction", name="decides", decision=decision, messages=[numbered(topic, number, b"t%d" % number)])
    listener = java.Listener(jvm(), unique("decided"), topic=topic, group=unique("decided_group"))
    listener.wait_all([0, 2])
    tap.equal((sorted(listener.numbers()), {each["intact"] for each in listener.received()}), ([0, 2], {True}), "at Java")
    listener.stop()
    transactor = unique("transactor")
    jvm().call("transactor", producer=transactor, group=unique("transactors"), decides="commit,rollback")
    jvm().call("transact", producer=transactor, topic=back, count=6)
    process.wait_until(lambda: here().route(back), 10, "route")
    consumer = consume("decided_c", back)
    got = c().wait_messages(consumer, 3, 60)
    check_whole(got)
    tap.equal(sorted(int(each["properties"]["number"]) for each in got), [0, 2, 4], "at C")
    c().call("stop", name=consumer)


@tap.test("LB-3: members written in Java and in C share one group: each queue has one of them, nothing is lost or doubled")
def _():
    topic, group = unique("Mixed"), unique("mixed")
    java_sends(jvm(), topic, 1, first=0)
    process.wait_until(lambda: here().route(topic), 10, "route")
    listener = java.Listener(jvm(), unique("mixed_java"), topic=topic, group=group)
    c().call("consumer", name="mixed_c", group=group, topic=topic, from_="first")
    listener.wait_assigned(2, 60)
    java_sends(jvm(), topic, 200, first=1)

    def numbers():
        return [int(each["properties"]["number"]) for each in c().messages("mixed_c")]
    process.wait_until(lambda: set(numbers()) | set(listener.numbers()) >= set(range(201)), 60, "all messages")
    tap.check(numbers() and listener.numbers(), "both had some")
    both = numbers() + listener.numbers()
    tap.equal(len([each for each in both if each > 0]), 200, "deliveries")
    c().call("stop", name="mixed_c")
    listener.wait_assigned(4, 60)
    listener.stop()


@tap.test("broadcasting: Java goes on where C stopped, from C's file, and C where Java did, from Java's")
def _():
    topic, group, state = unique("Kept"), unique("kept"), process.temp_folder()
    who = {"ip": "10.7.7.7", "instance": "kept"}
    reader = java.Puppet("java_kept", here().names, properties=["rocketmq.client.localOffsetStoreDir=" + state])

    def numbers(name):
        return sorted(int(each["properties"]["number"]) for each in c().messages(name))

    def play_c(name, first, wanted):
        """A member of liboncemq that gets those, and no others."""
        c().call("consumer", name=name, group=group, topic=topic, broadcast=True, from_="first", state_dir=state, **who)
        process.wait_until(lambda: set(numbers(name)) >= set(wanted), 30, "%s of %s" % (wanted, name))
        send("kept_p", numbered(topic, first, b"last"))
        process.wait_until(lambda: first in numbers(name), 30, "the last one")
        tap.equal(numbers(name), [*wanted, first], "numbers of " + name)
        c().call("stop", name=name)

    send("kept_p", *[numbered(topic, i, b"x") for i in range(8)])
    play_c("kept_c1", 8, range(8))
    send("kept_p", *[numbered(topic, i, b"x") for i in range(10, 18)])
    listener = java.Listener(reader, unique("kept_java"), topic=topic, group=group, model="BROADCASTING", **who)
    tap.equal(listener.client_id, "10.7.7.7@kept", "id of the Java member")
    listener.wait_all(range(10, 18))
    send("kept_p", numbered(topic, 18, b"last"))
    listener.wait_all([18])
    tap.equal(sorted(listener.numbers()), list(range(10, 19)), "numbers of the Java member")
    listener.stop()
    send("kept_p", *[numbered(topic, i, b"x") for i in range(20, 28)])
    play_c("kept_c2", 28, range(20, 28))


@tap.test("C asks, Java replies")
def _():
    topic = unique("AskJava")
    send("asks", numbered(topic, 1, b"makes the topic"))
    process.wait_until(lambda: here().route(topic), 10, "route")
    listener = java.Listener(jvm(), unique("replier"), topic=topic, group=unique("replies"), behave="reply", only="7")
    listener.wait_all([1])
    reply = c().call("request", timeout=60, name="asks", messages=[numbered(topic, 7, b"?")], timeout_ms=30000)
    tap.equal(reply["body"], "answer to 7", "reply")
    listener.stop()


@tap.test("the puppet leaves without leak or stray access")
def _():
    c().end()


stage.run(apache.missing())
