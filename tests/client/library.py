#!/usr/bin/env python3
"""liboncemq as a library: what it shows, how it is installed, and that other languages can use it. And the examples."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from client.scene import known  # noqa: E402
from harness import certs, process, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

ROOT = HERE.parent.parent
LIBRARY, EXAMPLES = os.environ["LIBRARY"], pathlib.Path(os.environ["EXAMPLES"])
LINES_MAX = 60

LATER = {"recallMessageEnable": "true"}
here = plays.Once(lambda: stage.Stage(known(LATER), apache_only=LATER))


def run(*command, timeout=60, stdin="", env=None):
    """Standard output of a program that must succeed."""
    result = subprocess.run([str(each) for each in command], input=stdin.encode(), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=timeout, env=dict(os.environ, **(env or {})), check=False)
    tap.check(result.returncode == 0, "%s: status %d: %s" % (command[0], result.returncode, result.stderr.decode()))
    return result.stdout.decode()


def declared():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "oncemq.h").read_text(), flags=re.DOTALL)
    return set(re.findall(r"OMQ_API[^;]*?\b(omq_\w+)\(", text))


def stored(topic):
    process.wait_until(lambda: here().route(topic), 10, "route of %s" % topic)
    return here().records(topic)


def supports(code):
    with remoting.Client(here().broker_address()) as client:
        return client.request(code).code != remoting.REQUEST_CODE_NOT_SUPPORTED


@tap.test("the library shows what the header declares, and nothing else")
def _():
    shown = {line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()}
    tap.equal(shown - declared(), set(), "shown and not declared")
    tap.equal(declared() - shown, set(), "declared and not shown")
    tap.check("[liboncemq.so.0]" in run("readelf", "-d", LIBRARY), "soname")


@tap.test("installed, it is found by pkg-config, and a program builds against it")
def _():
    if not shutil.which("pkg-config"):
        tap.skip("pkg-config is not on PATH")
    root = pathlib.Path(process.temp_folder())
    run("meson", "install", "-C", os.environ["BUILD"], "--no-rebuild", "--quiet", "--destdir", root, timeout=120)
    [config] = root.rglob("oncemq.pc")
    env = {"PKG_CONFIG_PATH": str(config.parent), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    flags = run("pkg-config", "--cflags", "--libs", "oncemq", env=env).split()
    run("cc", "-o", root / "produce", ROOT / "examples" / "produce.c", *flags, *os.environ["SANITIZE"].split())
    [library] = root.rglob("liboncemq.so.0")
    out = run(root / "produce", here().names, unique("Installed"), "hello", env={"LD_LIBRARY_PATH": str(library.parent)})
    [record] = stored(unique("Installed"))
    tap.equal(out.split()[0], record.unique_key, "id")


@tap.test("a program in C++ uses it")
def _():
    if not os.environ.get("CXX_PROGRAM"):
        tap.skip("no C++ compiler")
    out = run(os.environ["CXX_PROGRAM"], here().names, unique("Cxx")).split()
    tap.equal(out[1], "100", "asynchronous messages")
    records = stored(unique("Cxx"))
    tap.equal((len(records), {record.body for record in records}), (101, {b"from C++"}), "messages")
    tap.check(out[0] in {record.unique_key for record in records}, "id")


@tap.test("a program in Python uses it, through ctypes alone")
def _():
    preload = {"LD_PRELOAD": os.environ["PRELOAD"], "ASAN_OPTIONS": "detect_leaks=0"} if os.environ.get("PRELOAD") else {}
    out = run(sys.executable, HERE / "ffi.py", LIBRARY, here().names, unique("Python"), env=preload).splitlines()
    tap.equal(out[1], "True 50", "callbacks")
    tap.check("invalid" in out[2] and "topic" in out[2], "an error: %s" % out[2])
    records = {record.unique_key: record for record in stored(unique("Python"))}
    tap.equal(len(records), 51, "messages")
    tap.equal((records[out[0]].body, records[out[0]].properties["colour"], records[out[0]].properties["TAGS"]),
              (b"from Python", "green", "py"), "the message")


# Examples -------------------------------------------------------------------------------------------------------------

def example(name, *args, **more):
    return run(EXAMPLES / name, here().names, *args, **more)


@tap.test("every example has a page at most, and says in its first line what it does")
def _():
    for source in (ROOT / "examples").glob("*.c"):
        lines = source.read_text().splitlines()
        tap.check(len(lines) <= LINES_MAX, "%s has %d lines" % (source.name, len(lines)))
        tap.check(lines[0].startswith("/* "), "%s: %s" % (source.name, lines[0]))


@tap.test("example produce: one message")
def _():
    out = example("produce", unique("Produce"), "some text").split()
    [record] = stored(unique("Produce"))
    tap.equal((record.unique_key, record.body), (out[0], b"some text"), "message")


@tap.test("example tls: one message, to a broker whose certificate is good and to none else")
def _():
    if certs.missing():
        tap.skip(certs.missing())
    authority, stranger = certs.Authority(), certs.Authority("stranger")
    server = authority.issue("server")
    with Daemon(settings={"tls.server.certPath": server.cert, "tls.server.keyPath": server.key}) as d:
        tap.check(len(run(EXAMPLES / "tls", d.names, "Secrets", authority.cert).strip()) == 32, "an id")
        done = subprocess.run([EXAMPLES / "tls", d.names, "Secrets", stranger.cert], stderr=subprocess.PIPE, timeout=60,
                              check=False)
        tap.check(done.returncode == 1 and b"not signed by" in done.stderr, "refused: %s" % done)


@tap.test("example send_async: many messages without waiting")
def _():
    tap.equal(example("send_async", unique("Async"), 500), "500 stored, 0 failed\n", "output")
    tap.equal({record.body for record in stored(unique("Async"))}, {b"hello %d" % i for i in range(500)}, "messages")


@tap.test("example send_kept: what no broker takes is in a file, and is sent by the next one")
def _():
    table, lines = process.temp_folder() + "/table", "".join("line %d\n" % i for i in range(20))
    out = run(EXAMPLES / "send_kept", "127.0.0.1:1", unique("Kept"), table, stdin=lines)
    tap.equal(out, "0 stored, 20 kept, 0 failed\n", "output without a broker")
    tap.equal(example("send_kept", unique("Kept"), table, stdin="last\n"), "1 stored, 0 kept, 0 failed\n", "output")
    tap.equal(sorted(record.body for record in stored(unique("Kept"))),
              sorted([b"last", *[b"line %d" % i for i in range(20)]]), "messages")


@tap.test("example send_batch: lines in few requests")
def _():
    out = example("send_batch", unique("Lines"), stdin="".join("line %d\n" % i for i in range(2500))).splitlines()
    tap.equal(len(out), 2500, "receipts")
    tap.equal({record.body for record in stored(unique("Lines"))}, {b"line %d" % i for i in range(2500)}, "messages")


@tap.test("example send_ordered: each order in one queue, in order")
def _():
    example("send_ordered", unique("Orders"))
    stories = {}
    for record in sorted(stored(unique("Orders")), key=lambda each: each.queue_offset):
        stories.setdefault((record.properties["KEYS"], record.queue_id), []).append(record.body)
    tap.equal(stories.values() and sorted(key for key, _ in stories), ["order-1", "order-2", "order-3"], "orders")
    tap.check(all(story == [b"created", b"paid", b"shipped"] for story in stories.values()), "stories: %s" % stories)


@tap.test("example send_later: a reminder, and one that is taken back")
def _():
    if not supports(370):
        tap.skip("this broker has no recall")
    back = example("send_later", unique("Later"), 6, "recall")
    kept = example("send_later", unique("Later"), 6).split()[0]  # due later than the one that was taken back
    tap.check("taken back" in back, "output: %s" % back)
    process.wait_until(lambda: kept in {each.unique_key for each in stored(unique("Later"))}, 30, "the reminder")
    tap.check(back.split()[0] not in {each.unique_key for each in stored(unique("Later"))}, "the other one")


@tap.test("example transaction: committed, and rolled back")
def _():
    if not supports(37):
        tap.skip("this broker has no transactions")
    topic = unique("Payments")
    good, bad = example("transaction", topic, "commit"), example("transaction", topic, "rollback")
    tap.check("committed" in good and "rolled back" in bad, "output: %s %s" % (good, bad))
    process.wait_until(lambda: len(stored(topic)) == 1, 20, "one message")
    tap.equal(stored(topic)[0].unique_key, good.split()[1], "which one")


@tap.test("example request: asked and answered")
def _():
    tap.check("reply: 42" in example("request", unique("Questions"), timeout=90), "output")


# Those that go on until they are told to end ------------------------------------------------------------------------

def consuming(name, *args, lines, home=None):
    """Runs an example until it has said so many lines, then ends it as Ctrl-C does; returns the lines."""
    log = pathlib.Path(process.temp_folder()) / "errors"
    child = process.Child(name, [str(EXAMPLES / name), here().names, *args], str(log),
                          env=dict(os.environ, **({"HOME": home} if home else {})))
    said = [child.read_line(60).strip() for _ in range(lines)]
    status = child.stop(30)
    tap.equal(status, 0, "status of %s: %s" % (name, log.read_text()))
    return said


@tap.test("example consume: prints what arrives, and goes on there the next time")
def _():
    topic, group = unique("Consume"), unique("consume")
    ids = [example("produce", topic, "text %d" % i).split()[0] for i in range(2)]
    tap.equal(sorted(consuming("consume", topic, group, lines=2)), sorted("%s text %d" % each for each in zip(
        ids, range(2))), "lines")
    last = example("produce", topic, "text 2").split()[0]
    tap.equal(consuming("consume", topic, group, lines=1), ["%s text 2" % last], "the next one only")


@tap.test("example consume_ordered: each order step by step, although half of the steps fail at first")
def _():
    topic = unique("Follow")
    example("send_ordered", topic)
    said = consuming("consume_ordered", topic, unique("follow"), lines=9)
    for order in ("order-1", "order-2", "order-3"):
        tap.equal([each for each in said if each.startswith(order)],
                  ["%s %s" % (order, step) for step in ("created", "paid", "shipped")], "steps")


@tap.test("example consume_broadcast: each copy gets everything, once")
def _():
    topic, group, home = unique("Radio"), unique("radio"), process.temp_folder()
    first = example("produce", topic, "one").split()[0]
    for desk in ("desk-1", "desk-2"):
        tap.equal(consuming("consume_broadcast", topic, group, desk, lines=1, home=home), [first + " one"], desk)
    second = example("produce", topic, "two").split()[0]
    tap.equal(consuming("consume_broadcast", topic, group, "desk-1", lines=1, home=home), [second + " two"], "next")


@tap.test("example consume_pop: prints what arrives")
def _():
    if not supports(200050):
        tap.skip("this broker has no POP")
    topic = unique("Pops")
    sent = example("produce", topic, "popped").split()[0]
    tap.equal(consuming("consume_pop", topic, unique("pops"), lines=1), [sent + " popped"], "line")


@tap.test("example consume_take: takes as many as it was told")
def _():
    topic = unique("Takes")
    ids = {example("produce", topic, "taken").split()[0] for _ in range(3)}
    out = example("consume_take", topic, unique("takes"), 3).splitlines()
    tap.equal(set(out), {each + " taken" for each in ids}, "lines")


@tap.test("example read: everything that a topic has")
def _():
    topic = unique("Reads")
    example("send_batch", topic, stdin="".join("line %d\n" % i for i in range(100)))
    out = example("read", topic).splitlines()
    tap.equal(sorted(each.split(" ", 1)[1] for each in out), sorted("line %d" % i for i in range(100)), "bodies")


stage.run()
