#!/usr/bin/env python3
"""The library built without any sanitizer: under valgrind's memcheck along its main ways, and for how much memory it keeps.

memcheck sees what AddressSanitizer does not: bytes that nobody has set and somebody looks at, and what OpenSSL and libuv do
with ours. It runs one thread at a time, so nothing here is about speed or races.
"""

import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

MEMCHECK = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect",
            "--show-leak-kinds=definite,indirect", "--num-callers=25", "--fair-sched=yes",
            "--suppressions=%s" % (pathlib.Path(__file__).resolve().parent / "memcheck.supp")]
here = plays.Once(plays.stage)


def start(name):
    """A puppet under memcheck."""
    if not shutil.which("valgrind"):
        tap.skip("valgrind is not on PATH")
    return tap.watch(puppet.Puppet(name, [*MEMCHECK, os.environ["PUPPET"]], here().names, {}))


def end(one):
    """It leaves with status 99 if memcheck has found anything, and its log says what."""
    one.end(60)
    tap.unwatch(one)


def messages(topic, count, **more):
    return [puppet.message(topic, "%d" % i, keys=["k%d" % i], properties={"a": "b"}, **more) for i in range(count)]


@tap.test("memcheck: a producer sends in every way, asks, and is closed")
def _():
    one, topic = start("sender"), unique("CheckSends")
    one.call("client", name="k", timeout=60)
    one.call("producer", name="p", client="k", group="g", timeout_ms=20000, trace=True, avoid_slow=True)
    for mode in ("sync", "async", "oneway", "batch"):
        one.call("send", timeout=60, name="p", mode=mode, messages=messages(topic, 20))
    for kind in range(3):
        one.call("producer", name="z%d" % kind, client="k", group="z%d" % kind, timeout_ms=20000, compression=kind)
        one.call("send", timeout=60, name="z%d" % kind, messages=[puppet.message(topic, b"", size=50000)])
        one.call("stop", name="z%d" % kind)
    [receipt] = one.call("send", timeout=60, name="p", messages=messages(topic, 1, shard="s"))
    one.call("view", timeout=60, client="k", topic=topic, offset_id=receipt["offset_id"])
    one.call("queues", timeout=60, client="k", topic=topic)
    one.call("offset", timeout=60, client="k", topic=topic, broker=receipt["broker"], queue=receipt["queue"], bound="end")
    end(one)


@tap.test("memcheck: consumers of every kind get their messages, give some back, and are closed")
def _():
    one, topic, group = start("receiver"), unique("CheckTakes"), unique("check")
    one.call("client", name="k", timeout=60)
    one.call("producer", name="p", client="k", group="g", timeout_ms=20000)
    one.call("send", timeout=60, name="p", mode="batch", messages=messages(topic, 40))
    here().prepare_group(group + "_many", topic)
    for kind, options in {"many": {"fail_below": 1, "batch": 3, "trace": True}, "ordered": {"orderly": True},
                          "wide": {"broadcast": True, "state_dir": process.temp_folder()}, "pop": {"pop": True},
                          "before": {"before": True}}.items():
        one.call("consumer", timeout=60, name=kind, client="k", group=group + "_" + kind, topic=topic, from_="first",
                 threads=4, **options)
    for kind in ("many", "ordered", "wide", "pop", "before"):
        one.wait_messages(kind, 40, 60)
    one.call("pause", timeout=60, name="many")
    one.call("resume", timeout=60, name="many")
    for kind in ("many", "ordered", "wide", "pop", "before"):
        one.call("stop", timeout=60, name=kind)
    end(one)


@tap.test("memcheck: a reader takes, seeks, commits; a program that leaves without closing anything leaves nothing behind")
def _():
    one, topic = start("reader"), unique("CheckReads")
    one.call("client", name="k", timeout=60)
    one.call("producer", name="p", client="k", group="g", timeout_ms=20000)
    [receipt] = one.call("send", timeout=60, name="p", messages=messages(topic, 1))
    queue = {"topic": topic, "broker": receipt["broker"], "id": receipt["queue"]}
    one.call("reader", timeout=60, name="r", client="k", group=unique("checkread"), from_="first")
    one.call("assign", timeout=60, name="r", queues=[queue])
    tap.equal(len(one.call("read", timeout=60, name="r", wait_ms=30000)), 1, "messages")
    one.call("commit", timeout=60, name="r")
    one.call("seek", timeout=60, name="r", queue=queue, offset=0)
    one.call("read", timeout=60, name="r", wait_ms=30000, keep="batch")
    one.call("consumer", timeout=60, name="c", client="k", group=unique("checkleft"), topic=topic, from_="first")
    one.wait_messages("c", 1, 60)
    one.call("finish", timeout=60, name="batch")
    end(one)


@tap.test("memcheck: a handler that was left behind by a close returns late, into a consumer that is another's by now")
def _():
    one, topic, group = start("late"), unique("CheckLate"), unique("checklate")
    one.call("client", name="k", timeout=60)
    one.call("producer", name="p", client="k", group="g", timeout_ms=20000)
    one.call("send", timeout=60, name="p", messages=[puppet.message(topic, "hang")])
    options = {"client": "k", "group": group, "topic": topic, "from_": "first", "close_ms": 100}
    one.call("consumer", timeout=60, name="c1", hang_at="hang", **options)
    one.wait_messages("c1", 1, 60)
    one.call("stop", timeout=60, name="c1")
    one.call("consumer", timeout=60, name="c2", **options)
    one.wait_messages("c2", 1, 60)
    one.call("release", timeout=60)
    one.call("send", timeout=60, name="p", messages=[puppet.message(topic, "next")])
    one.wait_messages("c2", 2, 60)
    tap.equal(len(one.messages("c1")), 1, "deliveries to the closed one")
    end(one)


@tap.test("memcheck: one that asks libonce, and comes back when consumer and client are gone, touches nothing of theirs")
def _():
    one, topic = start("later"), unique("CheckLater")
    one.call("producer", timeout=60, name="p", group="g", timeout_ms=20000)
    one.call("send", timeout=60, name="p", messages=[puppet.message(topic, "hang", keys=["k"])])
    one.call("consumer", timeout=60, name="c", group=unique("checklater"), topic=topic, from_="first", hang_at="hang",
             close_ms=100, once="memory:")
    one.wait_messages("c", 1, 60)
    one.call("stop", timeout=60, name="c")
    one.call("release", timeout=60)
    end(one)


@tap.test("a program that opens and closes consumers and readers all day does not grow")
def _():
    with Daemon() as daemon:
        one = tap.watch(puppet.start_c("churner", daemon.names))
        one.call("client", name="k")
        one.call("producer", name="p", client="k", group="g")
        one.call("send", name="p", messages=messages("Churn", 4))
        one.call("churn", timeout=60, name="x", client="k", group="churners", topic="Churn", count=100)
        grown = one.call("churn", timeout=60, name="x", client="k", group="churners", topic="Churn", count=4000)
        tap.note("%d bytes more after 4,000" % grown)
        tap.check(grown < 100000, "it has grown by %d bytes" % grown)
        one.end()
        tap.unwatch(one)


stage.run()
