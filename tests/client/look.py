#!/usr/bin/env python3
"""Looking at messages without consuming them (omq_query, omq_read, filters of readers with given queues): on a real
broker, and before brokers that lie."""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.stub import MOVED, NOT_FOUND, PULL, RETRY, found, nothing, record  # noqa: E402
from harness import fake, process, puppet, tap  # noqa: E402
from harness.fake import Fake, reply  # noqa: E402
from interop import plays  # noqa: E402

LOST, NO_TOPIC, REFUSED, NO_BROKER, PROTOCOL = 6, 7, 12, 13, 14
QUERY_MESSAGE = 12

play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_c))
asker = plays.Once(lambda: play().main.call("client", name="asker") or "asker")


def ask(what, **more):
    asker()
    return play().main.call(what, client="asker", **more)


def refused(code, call, *args, **more):
    try:
        call(*args, **more)
    except puppet.Refused as error:
        tap.equal(error.code, code, "code of %r" % str(error))
        return str(error)
    raise AssertionError("it was not refused")


def bodies(answer):
    return [each["body"] for each in answer["messages"]]


def filled(name, count, **more):
    """A topic with `count` numbers behind its opening, all in one queue."""
    topic = play().topic(name)
    [first] = play().send(puppet.message(topic, "first"))
    place = {"broker": first["broker"], "id": first["queue"]}
    sent = play().send(*[puppet.message(topic, str(n), queue=place, **{k: v(n) for k, v in more.items()}) for n in range(count)])
    return {"topic": topic, "broker": first["broker"], "queue": first["queue"], "offset": sent[0]["offset"]}, sent


@tap.test("by key and by unique id: all that match, in the order of storing, and no other")
def _():
    queue, sent = filled("Query", 10, keys=lambda n: ["all", "each-%d" % n])
    topic = queue["topic"]
    asker()
    process.wait_until(lambda: len(ask("query", topic=topic, key="all")["messages"]) == 10, 20, "the index")
    tap.equal(bodies(ask("query", topic=topic, key="all")), [str(n) for n in range(10)])
    tap.equal(bodies(ask("query", topic=topic, key="each-3")), ["3"])
    [one] = ask("query", topic=topic, unique=sent[4]["id"])["messages"]
    tap.equal([one[name] for name in ("id", "offset_id", "topic", "broker", "queue", "offset", "body")],
              [sent[4]["id"], sent[4]["offset_id"], topic, queue["broker"], queue["queue"], sent[4]["offset"], "4"])
    tap.equal(bodies(ask("query", topic=topic, key="each")), [])
    tap.equal(bodies(ask("query", topic=topic, unique="nobody")), [])
    later = max(each["stored"] for each in ask("query", topic=topic, key="all")["messages"]) + 3600000
    tap.equal(bodies(ask("query", topic=topic, key="all", begin=later, end=later + 1000)), [])
    refused(NO_TOPIC, ask, "query", topic=topic + "_not", key="all")


@tap.test("what stands in a queue, from any offset on, without a group hearing of it")
def _():
    queue, _ = filled("Look", 50)
    first = queue.pop("offset")
    got, next_ = [], first
    while len(got) < 50:
        answer = ask("look", offset=next_, max=20, **queue)
        tap.check(answer["next"] > next_ and len(answer["messages"]) <= 20, answer)
        got, next_ = got + bodies(answer), answer["next"]
    tap.equal(got, [str(n) for n in range(50)])
    tap.equal(ask("look", offset=next_, wait_ms=50, **queue), {"messages": [], "next": next_})
    tap.equal(ask("look", offset=next_ + 1000, **queue)["next"], next_, "beyond the end")
    refused(NO_BROKER, ask, "look", offset=0, **dict(queue, broker="nobody"))


@tap.test("one that waits at the end is answered as soon as something comes")
def _():
    queue, sent = filled("Await", 1)
    end = sent[-1]["offset"] + 1
    queue.pop("offset")
    asker()
    waiting = play().main.start("look", client="asker", offset=end, wait_ms=20000, **queue)
    play().send(puppet.message(queue["topic"], "news", queue={"broker": queue["broker"], "id": queue["queue"]}))
    tap.equal(bodies(play().main.finish(waiting)), ["news"])


@tap.test("filters: by tags, for omq_read and for readers with given queues; and `next` passes what is left out")
def _():
    queue, _ = filled("Filter", 12, tag=lambda n: "t%d" % (n % 3))
    first = queue.pop("offset")
    answer = ask("look", offset=first, expression="t0 || t2", **queue)
    tap.equal(bodies(answer), [str(n) for n in range(12) if n % 3 != 1])
    answer = ask("look", offset=first, expression="nobody", **queue)
    tap.equal((bodies(answer), answer["next"] > first), ([], True))
    play().main.call("reader", name="given", group="given_filter", from_="first", commit_every_ms=-1, expression="t1")
    play().main.call("assign", name="given", queues=[{"topic": queue["topic"], "broker": queue["broker"], "id": queue["queue"]}])
    got = []
    while len(got) < 4:
        got += [each["body"] for each in play().main.call("read", name="given", wait_ms=20000)]
    tap.equal(got, ["1", "4", "7", "10"])
    play().stop("given")
    readable = ask("queues", topic=queue["topic"], readable=True)
    tap.check((queue["broker"], queue["queue"]) in {(each["broker"], each["id"]) for each in readable}, readable)


# Brokers that lie -----------------------------------------------------------------------------------------------------

class Liar:
    """A broker that answers pulls and queries as it is told."""

    def __init__(self):
        self.answer = None
        self.broker = Fake(lambda request: self.answer if request.code in (PULL, QUERY_MESSAGE) else reply())
        self.names = Fake(fake.routes({"broker-a": self.broker.address}, 1))
        self.puppet = tap.watch(puppet.start_c("liar", self.names.address))
        self.puppet.call("client", name="k", timeout_ms=2000)

    def look(self, offset=5, **more):
        return self.puppet.call("look", client="k", topic="T", broker="broker-a", queue=0, offset=offset, **more)

    def query(self, **more):
        return self.puppet.call("query", client="k", topic="T", **more)


liar_once = plays.Once(Liar)


def lying(answer):
    liar_once().answer = answer
    return liar_once()


@tap.test("noise instead of messages is an error, and nothing is read behind its end")
def _():
    good = record(5, b"a")
    for noise in (b"x", b"\0" * 200, b"\xff" * 200, good[:-1], good + good[:40], struct.pack(">I", 0x7fffffff) + b"x" * 100):
        liar = lying(found(noise, next_=6))
        refused(PROTOCOL, liar.look)
        refused(PROTOCOL, liar.query, key="k")


@tap.test("offsets that make no sense: each message comes once, in order, and `next` is behind it")
def _():
    answer = lying(found(record(3, b"before"), record(5, b"a"), record(5, b"a"), record(4, b"back"), record(7, b"b"), next_=2)).look()
    tap.equal((bodies(answer), answer["next"]), (["a", "b"], 8))
    for next_ in (-5, "many"):
        tap.equal(lying(found(next_=next_)).look(), {"messages": [], "next": 5})


@tap.test("nothing there, moved, or a refusal; a body that cannot be expanded is shown as it is")
def _():
    for code in (NOT_FOUND, RETRY, MOVED):
        tap.equal(lying(nothing(9, code)).look(), {"messages": [], "next": 9})
    refused(REFUSED, lying(reply(1, remark="no")).look)
    refused(REFUSED, lying(reply(1, remark="no")).query, unique="i")
    tap.equal(bodies(lying(reply(22, remark="none")).query(key="k")), [])
    tap.equal(bodies(lying(found(record(5, b"no zlib", sys_flag=1), next_=6)).look()), ["no zlib"])
    refused(LOST, lying(fake.CUT).look)


tap.main()
