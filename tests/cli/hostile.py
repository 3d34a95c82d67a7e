"""`oncemq run` with workers that mean harm, or were written in a hurry: it does not hang, loop or fall over, and each
message has the fate that it should have."""

import functools
import os
import signal
import socket
import sqlite3
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, scene, tap  # noqa: E402
from harness.scene import counts, event, stop  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual"])
Scene = functools.partial(scene.Scene, cluster)

# A program of the worker's, in a session of its own, that outlives it and keeps its pipes open. It writes its number down.
LEAVES_A_CHILD = """import json, os, sys, time
def leave():
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    with open(%r, "a") as file:
        file.write("%%d\\n" %% child)
"""


def end_children(s):
    for line in s.lines():
        try:
            os.kill(int(line), signal.SIGKILL)
        except ProcessLookupError:
            pass


# Processes that stay -------------------------------------------------------------------------------------------------

@tap.test("a process that does not read, and whose child keeps its pipes, is ended in time, and so are we")
def _():
    s = Scene("unread").send(*[{"id": i, "x": "y" * 100000} for i in range(20)])
    worker = s.python(LEAVES_A_CHILD % s.out + "leave()\ntime.sleep(60)\n")
    child = s.start("--pipe", worker, "--work-timeout", "500ms", "--stop-timeout", "500ms")
    try:
        tap.equal(event(child, "failed")["why"], "no answer within 500 ms")
        tap.check(stop(child)["restarts"] > 0, "it was not started again")
    finally:
        end_children(s)


@tap.test("a process that is gone is missed at once, though its child keeps its stdout")
def _():
    s = Scene("gone").send({"id": 1})
    worker = s.python(LEAVES_A_CHILD % s.out + "leave()\nprint(json.dumps({'id': json.loads(sys.stdin.readline())['id'],"
                      " 'result': 'done'}), flush=True)\nos._exit(0)\n")
    child = s.start("--pipe", worker, "--work-timeout", "5m")
    try:
        event(child, "done")
        s.send({"id": 2})
        event(child, "done")
        tap.equal(stop(child)["failed"], 0)
    finally:
        end_children(s)


@tap.test("a process that writes lines without end, but no answer, is late")
def _():
    s = Scene("flood").send({"id": 1})
    child = s.start("--pipe", s.python("import sys\nsys.stdin.readline()\nwhile True:\n    sys.stdout.write('x\\n' * 30000)\n"),
                    "--work-timeout", "500ms")
    tap.equal(event(child, "failed")["why"], "no answer within 500 ms")
    stop(child)


@tap.test("a message that is put off for ages rests for an hour, and not for no time")
def _():
    s = Scene("ages").send({"id": 1})
    worker = s.python("import json, sys\nfor line in sys.stdin:\n"
                      "    print(json.dumps({'id': json.loads(line)['id'], 'result': 'later', 'after_ms': 18446744073709}), flush=True)\n")
    child = s.start("--pipe", worker, "--order-by", "{body.id}")
    tap.equal(event(child, "later")["after_ms"], 3600000)
    s.send({"id": 2})
    event(child, "later")
    tap.equal(stop(child)["later"], 2, "how often they were given to the worker")


# Statements ----------------------------------------------------------------------------------------------------------

@tap.test("an object of the body may be many values of a statement")
def _():
    s = Scene("objects").send({"id": 1, "o": {"k": "x" * 3000}, "a": ["y" * 2000]})
    path = os.path.join(s.folder, "once.db")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a, b, c, d)")
    events = s.run("--sql", "INSERT INTO t VALUES (:body.o, :body.a, :body.o, :body.a)", "--create", "--count", "1")
    tap.equal(counts(events)["done"], 1)
    with sqlite3.connect(path) as db:
        row = db.execute("SELECT * FROM t").fetchone()
    tap.equal(row, ('{"k":"%s"}' % ("x" * 3000), '["%s"]' % ("y" * 2000)) * 2)


# Requests ------------------------------------------------------------------------------------------------------------

@tap.test("a request that cannot be made is no failure of the message's: TLS with a server that has none, an address without a host")
def _():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_plainly, args=(listener,), daemon=True).start()
        for url in ("https://127.0.0.1:%d/" % listener.getsockname()[1], "http://"):
            child = Scene("request").send({"id": 1}).start("--http", url)
            event(child, "later", "failed")
            last = stop(child)
            tap.equal((last["later"], last["failed"]), (1, 0), url)


def answer_plainly(listener):
    with listener.accept()[0] as peer:
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


# Options -------------------------------------------------------------------------------------------------------------

@tap.test("the longest of times are no shorter than others")
def _():
    s = Scene("long").send({"id": 1})
    most = "2147483647ms"
    events = s.run("--exec", "true", "--stop-timeout", most, "--work-timeout", most, "--later", most, "--count", "1")
    tap.equal(counts(events)["done"], 1)


tap.main()
