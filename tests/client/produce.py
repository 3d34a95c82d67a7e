#!/usr/bin/env python3
"""Producers of liboncemq on a real broker: what they send is what is stored.

interop/stage.py says where it is played: on an oncemqd, or with ENDPOINT=apache on Apache's servers. One puppet does it
all; at the end it must leave with status 0, which under the sanitizers means without leak, race or stray access.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import puppet, remoting, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

INVALID, NETWORK, TOO_BIG = 1, 5, 10

here = plays.Once(lambda: stage.Stage())
c = plays.Once(lambda: tap.watch(puppet.start_c("c", here().names)))


def producer(name, **options):
    c().call("producer", name=name, group=unique("g_" + name), **options)
    return name


def send(name, *messages, mode="sync"):
    return c().call("send", name=name, mode=mode, messages=list(messages))


def stored(topic):
    """All records of a topic by their unique ids."""
    return {record.unique_key: record for record in here().records(topic)}


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
    record = stored(topic)[receipt["id"]]
    tap.equal(record.body, "body \u00e9".encode(), "body")
    wanted = {"TAGS": "TagA", "KEYS": "k1 k2", "color": "r\u00f6t \"'\\", "n": "1", "WAIT": "true"}
    tap.equal({name: record.properties.get(name) for name in wanted}, wanted, "properties")
    tap.equal((record.flag, record.queue_id, record.queue_offset),
              (7, receipt["queue"], receipt["offset"]), "flag and place")
    tap.equal(record.offset_id, receipt["offset_id"], "offset id")
    tap.check(re.fullmatch("[0-9A-F]{32}", receipt["id"]), "an id as the Java client makes them: %s" % receipt["id"])


@tap.test("an empty body, one of a megabyte, and bodies of every byte arrive as they were")
def _():
    p, topic = producer("bodies", compress_over=1 << 30), unique("Bodies")
    every = bytes(range(256))
    receipts = send(p, puppet.message(topic, every), puppet.message(topic, size=1 << 20, noise=True),
                    puppet.message(topic, b"1"))
    found = stored(topic)
    tap.equal([len(found[r["id"]].body) for r in receipts], [256, 1 << 20, 1], "sizes")
    tap.equal(found[receipts[0]["id"]].body, every, "body")


@tap.test("messages go round the queues of a topic, one after the other")
def _():
    p, topic = producer("round"), unique("Round")
    send(p, puppet.message(topic, b"makes the topic"))
    queues = [r["queue"] for r in send(p, *[puppet.message(topic, b"%d" % i) for i in range(8)])]
    tap.equal(sorted(queues), [0, 0, 1, 1, 2, 2, 3, 3], "queues of eight messages")
    tap.check(queues[:4] == queues[4:], "the same order again: %s" % queues)


@tap.test("asynchronous sends all end, each with its own receipt, and one-way sends arrive")
def _():
    p, topic = producer("many"), unique("Many")
    send(p, puppet.message(topic, b"first"))
    receipts = send(p, *[puppet.message(topic, b"%d" % i) for i in range(500)], mode="async")
    tap.equal(len({r["id"] for r in receipts}), 500, "different ids")
    found = stored(topic)
    for i, receipt in enumerate(receipts):
        tap.equal(found[receipt["id"]].body, b"%d" % i, "body of message %d" % i)
    send(p, *[puppet.message(topic, b"oneway %d" % i) for i in range(10)], mode="oneway")
    c().call("stop", name=p)
    bodies = {record.body for record in here().records(topic)}
    tap.check({b"oneway %d" % i for i in range(10)} <= bodies, "one-way messages are stored after the close")


@tap.test("the same key goes to the same queue, the one that the Java client takes")
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
    tap.check("mine-1" in stored(topic), "it is stored under that id")


@tap.test("the puppet leaves without leak, race or stray access")
def _():
    c().end()


stage.run()
