"""`oncemq run`: programs, web services, processes that stay, and statements, each message once."""

import functools
import http.server
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting as r, scene, tap  # noqa: E402
from harness.scene import counts, event, numbers, stop, summary  # noqa: E402

ADVANCE_CLOCK = 10001
cluster = cli.Cluster(args=["--clock", "virtual"])
Scene = functools.partial(scene.Scene, cluster)
send = functools.partial(scene.send, cluster)


def advance(ms):
    """Retries come at once; Apache's brokers take their ten seconds."""
    if cluster.apache:
        return
    with r.Client(cluster.broker) as client:
        tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": ms}).code, r.SUCCESS, "the clock")


# Programs -----------------------------------------------------------------------------------------------------------

@tap.test("a program gets the body on stdin and the facts in its environment; what was done before is not done again")
def _():
    s = Scene("exec")
    s.send({"id": 1}, {"id": 1}, {"id": 2}, keys="k1", tags="t", Region="eu")
    worker = s.script('{ cat; echo " $ONCEMQ_KEY $ONCEMQ_TOPIC $ONCEMQ_TAG $ONCEMQ_KEYS $ONCEMQ_ATTEMPT $ONCEMQ_PROP_REGION'
                      ' ${#ONCEMQ_ID} $ONCEMQ_QUEUE $ONCEMQ_OFFSET"; } >> %s\n[ "$ONCEMQ_FENCE" -gt 0 ]\n' % s.out)
    events = s.run("--exec", worker, "--parallel", "1", "--count", "3")
    tap.equal(counts(events), {"done": 2, "already": 1, "later": 0, "failed": 0, "dead": 0})
    tap.equal(sorted(line.rsplit(" ", 2)[0] for line in s.lines()),
              ['{"id": %d} %d %s t k1 1 eu 32' % (i, i, s.topic) for i in (1, 2)])
    first = [each for each in events if each["event"] == "done"][0]
    tap.equal((first["topic"], first["attempt"]), (s.topic, 1))
    tap.equal(counts(s.run("--exec", worker, "--idle", "500ms"))["done"], 0, "after a restart")


@tap.test("a program with status 75 comes again without an attempt; any other status goes the way of retries to the dead letters")
def _():
    s = Scene("later")
    s.send({"id": "later"}, {"id": "fails"})
    worker = s.script('read -r line; echo "$ONCEMQ_KEY $ONCEMQ_ATTEMPT" >> %s\n'
                      'case $ONCEMQ_KEY in later) [ $(grep -c ^later %s) -ge 3 ] && exit 0; exit 75;; esac\nexit 3\n' % (s.out, s.out))
    child = s.start("--exec", worker, "--later", "10ms", "--retries", "1")
    first = [event(child, "later", "failed", "done", "dead") for _ in range(4)]
    tap.equal(sorted(each["event"] for each in first), ["done", "failed", "later", "later"])
    tap.check(any("exit status 3" in (each["why"] or "") for each in first), "why of %s" % first)
    advance(60000)
    last = event(child, "dead")
    tap.equal((last["key"], last["attempt"]), ("fails", 2))
    tap.equal({key: value for key, value in stop(child).items() if key in ("done", "failed", "dead")},
              {"done": 1, "failed": 2, "dead": 1})
    tap.equal(sorted(s.lines()), ["fails 1", "fails 2", "later 1", "later 1", "later 1"])
    process.wait_until(lambda: "%%DLQ%%%s" % s.group in [each["topic"] for each in cluster.json("topic", "list", "-a")], 20,
                       "the dead letters")


@tap.test("a program that takes too long is killed with its whole process group, and has failed")
def _():
    s = Scene("timeout")
    s.send({"id": 1})
    worker = s.script("sh -c 'trap \"\" TERM; echo $$ >> %s; sleep 1000' &\necho $$ >> %s\nwait\n" % (s.out, s.out))
    child = s.start("--exec", worker, "--work-timeout", "6s")
    failed = event(child, "failed")
    tap.check("killed" in failed["why"], failed)
    tap.equal(len(s.lines()), 2)
    for pid in s.lines():
        process.wait_until(lambda pid=pid: not alive(int(pid)), 10, "the end of %s" % pid)
    stop(child)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@tap.test("big bodies are fine for programs that read all of them, a little, or nothing")
def _():
    s = Scene("big")
    big = b"x" * 3000000
    s.send(big, keys="all").send(big, keys="some").send(big, keys="none")
    empty = [] if cluster.apache else ["empty 0"]  # Apache's brokers take no body of nothing
    if empty:
        s.send(b"", keys="empty")
    worker = s.script('case $ONCEMQ_KEY in all|empty) n=$(wc -c);; some) n=$(head -c 10 | wc -c);; none) exec 0<&-; n=0;; esac\n'
                      'echo "$ONCEMQ_KEY $n" >> %s\n' % s.out)
    tap.equal(counts(s.run("--exec", worker, "--count", str(3 + len(empty)), key="{key}"))["done"], 3 + len(empty))
    tap.equal(sorted(s.lines()), ["all 3000000", *empty, "none 0", "some 10"])


@tap.test("properties of strangers set nothing but variables of their own prefix, and no header of their own")
def _():
    s = Scene("hostile")
    hostile = {"PATH": "/nowhere", "LD_PRELOAD": "/evil.so", "x\nPATH": "1", "a=b": "2", "a.b": "3", "a-b": "4",
               "ONCEMQ_KEY": "other", "value": "1\nLD_PRELOAD=/evil.so\r\nSet-Cookie: x"}
    s.send({"id": 1}, **hostile)
    worker = s.python("import os, sys, json\njson.dump(dict(os.environ), open(%r, 'w'))\n" % s.out)
    tap.equal(counts(s.run("--exec", worker, "--count", "1", env={"ONCEMQ_PROP_OLD": "old"}))["done"], 1)
    env = json.loads("".join(s.lines()))
    tap.equal((env["PATH"], env.get("LD_PRELOAD"), env["ONCEMQ_KEY"]), (os.environ["PATH"], None, "1"))
    ours = {key: value for key, value in env.items() if key.startswith("ONCEMQ_PROP_")}
    tap.equal({key: ours.get("ONCEMQ_PROP_" + key) for key in ("PATH", "LD_PRELOAD", "X_PATH", "ONCEMQ_KEY", "VALUE", "OLD")},
              {"PATH": "/nowhere", "LD_PRELOAD": "/evil.so", "X_PATH": "1", "ONCEMQ_KEY": "other", "VALUE": hostile["value"], "OLD": None})
    tap.check(ours["ONCEMQ_PROP_A_B"] in "234", "one of those that become the same; brokers have their own order")
    with Web(lambda request: (200, {})) as web:
        s.group += "-http"
        tap.equal(counts(s.run("--http", web.url, "--count", "1", store="memory:"))["done"], 1)
        headers = web.requests[0][1]
        tap.check(headers.get("Set-Cookie") is None, "a header of a stranger's")
        tap.equal(headers["X-OnceMQ-Prop-value"], "1%0ALD_PRELOAD=/evil.so%0D%0ASet-Cookie:%20x")


@tap.test("equal values of --order-by run one after another as they came, others beside them; what comes later keeps its place")
def _():
    s = Scene("order")
    send(s.topic, "warm up", keys="w")
    with r.Client(cluster.broker) as client:
        for i in range(12):
            body = json.dumps({"id": i, "who": "ab"[i % 2]}).encode()
            client.request(r.SEND_MESSAGE_V2, *r.send_v2(s.topic, body, {"UNIQ_KEY": "%032X" % next(numbers)}, queue_id=0))
    worker = s.script('body=$(cat)\ncase $body in warm*) exit 0;; esac\n'
                      'case "$ONCEMQ_KEY" in 4) mkdir %s.once 2>/dev/null && exit 75;; esac\n'
                      'echo "in $body" >> %s; sleep 0.02; echo "out $body" >> %s\n' % (s.out, s.out, s.out))
    events = s.run("--exec", worker, "--order-by", "{body.who}", "--later", "100ms", "--count", "13", "--no-key", "message-id")
    tap.equal((counts(events)["done"], counts(events)["later"]), (13, 1))
    for who in "ab":
        lines = [line.split(" ", 1) for line in s.lines()]
        mine = [(what, json.loads(body)["id"]) for what, body in lines if json.loads(body)["who"] == who]
        tap.equal(mine, [(what, i) for i in range("ab".index(who), 12, 2) for what in ("in", "out")])


@tap.test("killed in the middle, the sidecar takes its program with it, and another does the work: the effect is single")
def _():
    s = Scene("killed")
    s.send(*({"id": i} for i in range(5)))
    slow = s.script('echo "start $ONCEMQ_KEY $$" >> %s.log; sleep 1000; echo $ONCEMQ_KEY >> %s\n' % (s.out, s.out), "slow")
    quick = s.script('echo $ONCEMQ_KEY >> %s\n' % s.out, "quick")
    child = s.start("--exec", slow, "--parallel", "2")

    def started():
        try:
            with open(s.out + ".log", encoding="ascii") as file:
                return [line.split() for line in file if len(line.split()) == 3]
        except FileNotFoundError:
            return []
    process.wait_until(lambda: len(started()) == 2, 20, "two programs")
    child.kill9()
    tap.unwatch(child)
    for _, _, pid in started():
        process.wait_until(lambda pid=pid: not alive(int(pid)), 10, "the end of what it had started")
    events = s.run("--exec", quick, "--count", "5", timeout=60)
    tap.equal(counts(events)["done"], 5)
    tap.equal(sorted(s.lines()), ["0", "1", "2", "3", "4"])


@tap.test("a stop waits for what runs and gives the rest back; what does not end in time is ended and comes again")
def _():
    s = Scene("stop")
    s.send(*({"id": i} for i in range(3)))
    worker = s.script('echo "start $ONCEMQ_KEY" >> %s; while [ ! -e %s.go ]; do sleep 0.02; done; echo "end" >> %s\n'
                      % (s.out, s.out, s.out))
    child = s.start("--exec", worker, "--parallel", "1")
    process.wait_until(lambda: len(s.lines()) == 1, 20, "a program")
    child.process.send_signal(signal.SIGTERM)
    tap.check("stopping" in event(child, "log")["why"], "a stop is told")
    with open(s.out + ".go", "w", encoding="ascii"):
        pass
    status, out = child.finish(30)
    tap.equal((status, json.loads(out.splitlines()[-1])["done"], len(s.lines())), (0, 1, 2))
    os.remove(s.out + ".go")
    child = s.start("--exec", worker, "--parallel", "1", "--stop-timeout", "200ms")
    process.wait_until(lambda: len(s.lines()) == 3, 20, "the next")
    tap.equal({key: value for key, value in stop(child).items() if key in ("done", "later")}, {"done": 0, "later": 1})
    tidy = s.script('trap "exit 143" TERM; echo tidy >> %s; sleep 1000 & wait\n' % s.out, "tidy")
    child = s.start("--exec", tidy, "--parallel", "1", "--stop-timeout", "200ms", "--retries", "0")
    process.wait_until(lambda: len(s.lines()) == 4, 20, "one with a handler of its own")
    tap.equal({key: value for key, value in stop(child).items() if key in ("later", "failed")}, {"later": 1, "failed": 0})
    with open(s.out + ".go", "w", encoding="ascii"):
        pass
    tap.equal(counts(s.run("--exec", worker, "--count", "2"))["done"], 2)


# The web ------------------------------------------------------------------------------------------------------------

class Web:
    """A web service that answers as `answer(body, headers)` says: a status and headers; None: not at all."""

    def __init__(self, answer):
        self.requests, self.answer = [], answer
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.requests.append((body, self.headers))
                status, headers = web.answer(web.requests[-1])
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/orders" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@tap.test("a web service gets the body and the key; 2xx, 409, 429, 503 and the rest mean what they say")
def _():
    s = Scene("http")
    answers = {"ok": [204], "twice": [409], "busy": [429, 200], "away": [503, 201], "bad": [500], "moved": [302]}
    s.send(*({"id": key} for key in answers), tags="t")

    def answer(request):
        left = answers[json.loads(request[0])["id"]]
        status = left.pop(0) if len(left) > 1 else left[0]
        return status, {"Retry-After": "1"} if status == 429 else {"Location": "/ok"} if status == 302 else {}
    with Web(answer) as web:
        child = s.start("--http", web.url, "--later", "10ms", "--content-type", "application/json; charset=utf-8")
        seen = [event(child, "done", "already", "later", "failed") for _ in range(8)]
        tap.equal(sorted((each["event"], each["key"]) for each in seen),
                  [("already", "twice"), ("done", "away"), ("done", "busy"), ("done", "ok"), ("failed", "bad"), ("failed", "moved"),
                   ("later", "away"), ("later", "busy")])
        tap.equal({each["key"]: each["after_ms"] for each in seen if each["event"] == "later"}, {"busy": 1000, "away": 10})
        stop(child)
        headers = [each for each in web.requests if json.loads(each[0])["id"] == "ok"][0][1]
        tap.equal((headers["Idempotency-Key"], headers["X-OnceMQ-Topic"], headers["X-OnceMQ-Tag"], headers["X-OnceMQ-Attempt"]),
                  ("ok", s.topic, "t", "1"))
        tap.equal(headers["Content-Type"], "application/json; charset=utf-8")
        tap.check(int(headers["X-OnceMQ-Fence"]) > 0, "a fencing number")
    tap.equal(len(web.requests), 8)


@tap.test("a request that was made and not answered has failed: it is not made again in the same breath")
def _():
    s = Scene("broken").send({"id": 1}, {"id": 2})
    with Web(lambda request: (200, {}) if len(web.requests) == 1 else (None, {})) as web:
        events = s.run("--http", web.url, "--parallel", "1", "--count", "2", "--retries", "0")
    tap.equal((counts(events)["done"], counts(events)["dead"], len(web.requests)), (1, 1, 2))
    [dead] = [each for each in events if each["event"] == "dead"]
    tap.check("without an answer" in dead["why"], dead)


@tap.test("a web service that is not there is waited for without an attempt")
def _():
    s = Scene("nobody").send({"id": 1})
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        child = s.start("--http", "http://127.0.0.1:%d/" % taken.getsockname()[1], "--later", "10ms")
        for _ in range(3):
            tap.equal(event(child, "later", "failed")["event"], "later")
        stop(child)


# Processes that stay ------------------------------------------------------------------------------------------------

PIPE = """import json, os, sys
out_path = %r
out = os.fdopen(os.open(out_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w")
def note(*words):
    print(*words, file=out, flush=True)
def answer(m, result="done", **more):
    print(json.dumps(dict(id=m["id"], result=result, **more)), flush=True)
note("start", os.getpid())
%s
"""


@tap.test("a process that stays answers in any order, and says done, already, later and failed")
def _():
    s = Scene("pipe")
    s.send({"id": "a"}, {"id": "b"}, {"id": "a"}, keys="k", tags="t", region="eu").send(b"\xff\x00", keys="bytes")
    worker = s.python(PIPE % (s.out, """
import base64
held, tries = [], {}
for line in sys.stdin:
    m = json.loads(line)
    tries[m["key"]] = tries.get(m["key"], 0) + 1
    note(m["key"], json.dumps(m["body"] if "body" in m else list(base64.b64decode(m["body64"]))), m["tag"], m["attempt"], m["fence"] > 0)
    if m["key"] == "b" and tries["b"] == 1:
        answer(m, "later", after_ms=20, why="not now")
        continue
    held.append(m)
    if len(held) == 3:
        for each in reversed(held):
            answer(each)
"""))
    events = s.run("--pipe", worker, "--count", "4", "--no-key", "message-id")
    tap.equal(counts(events), {"done": 3, "already": 1, "later": counts(events)["later"], "failed": 0, "dead": 0})
    tap.check(any(each["why"] == "not now" and each["after_ms"] == 20 for each in events if each["event"] == "later"), events)
    lines = [line for line in s.lines() if not line.startswith("start")]
    tap.check('a "{\\"id\\": \\"a\\"}" t 1 True' in lines, lines)
    tap.check(any("[255, 0]" in line for line in lines), lines)


@tap.test("a process that dies is started again; what it had comes again without an attempt, but for the message that kills it")
def _():
    s = Scene("dies")
    s.send(*({"id": i} for i in range(20)))
    worker = s.python(PIPE % (s.out, """
import signal
for line in sys.stdin:
    m = json.loads(line)
    if m["key"] == "7":
        os.kill(os.getpid(), signal.SIGKILL)
    note("did", m["key"], m["attempt"])
    answer(m)
"""))
    events = s.run("--pipe", worker, "--retries", "0", "--count", "20")
    tap.equal(counts(events), {"done": 19, "already": 0, "later": 0, "failed": 1, "dead": 1})
    [dead] = [each for each in events if each["event"] == "dead"]
    tap.equal(dead["key"], "7")
    tap.check("signal 9" in dead["why"], dead)
    tap.check(summary(events)["restarts"] >= 1, summary(events))
    did = [line.split()[1:] for line in s.lines() if line.startswith("did")]
    tap.equal({attempt for _, attempt in did}, {"1"})
    tap.equal({key for key, _ in did}, {str(i) for i in range(20)} - {"7"})


@tap.test("a message that is not answered in time fails alone; strange lines, unknown ids and floods are borne")
def _():
    s = Scene("strange")
    s.send({"id": "silent"}, {"id": "noise"}, {"id": "good"}, {"id": "flood"})
    worker = s.python(PIPE % (s.out, """
seen = set()
for line in sys.stdin:
    m = json.loads(line)
    if m["key"] == "silent":
        continue
    if m["key"] == "noise":
        print("debug: hello")
        print('{"id":"nobody","result":"done"}')
        print('{"id":"%s","result":"perhaps"}' % m["id"])
        print('[' * 100)
    if m["key"] == "flood" and not os.path.exists(out_path + ".flooded"):
        open(out_path + ".flooded", "w").close()
        sys.stdout.write("x" * 300000)
        sys.stdout.flush()
        continue
    answer(m)
"""))
    events = s.run("--pipe", worker, "--retries", "0", "--work-timeout", "10s", "--count", "4")
    tap.equal({key: counts(events)[key] for key in ("done", "dead")}, {"done": 3, "dead": 1})
    [dead] = [each for each in events if each["event"] == "dead"]
    tap.equal(dead["key"], "silent")
    logged = [each["why"] for each in events if each["event"] == "log"]
    for words in ("debug: hello", "nobody waits for this id", "none of done", "64 KiB"):
        tap.check(any(words in line for line in logged), "%s in %s" % (words, logged))


@tap.test("answers with much beside what is asked for count, however many come at once")
def _():
    s = Scene("rich")
    s.send(*({"id": i} for i in range(100)))
    worker = s.python(PIPE % (s.out, """
more = [{"n": i} for i in range(200)]
held = [json.loads(sys.stdin.readline()) for _ in range(100)]
sys.stdout.write("".join(json.dumps(dict(id=m["id"], result="done", lines=more)) + chr(10) for m in held))
sys.stdout.flush()
sys.stdin.read()
"""))
    events = s.run("--pipe", worker, "--count", "100")
    tap.equal(counts(events), {"done": 100, "already": 0, "later": 0, "failed": 0, "dead": 0})
    tap.equal([each for each in events if each["event"] == "log"], [])


@tap.test("what a process still answers when it is ended for another message was done, and does not come again")
def _():
    s = Scene("last").send({"id": "silent"})
    worker = s.python(PIPE % (s.out, """
import signal
held = []
def end(*_):
    for m in held:
        note("effect", m["key"])
        answer(m)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
for line in sys.stdin:
    m = json.loads(line)
    if m["key"] != "silent":
        held.append(m)
    note("has", m["key"])
"""))
    child = s.start("--pipe", worker, "--retries", "0", "--work-timeout", "10s")
    process.wait_until(lambda: "has silent" in s.lines(), 20, "the first message")
    s.send({"id": "other"})
    ends = [event(child, "done", "dead") for _ in range(2)]
    tap.equal(sorted((each["event"], each["key"]) for each in ends), [("dead", "silent"), ("done", "other")])
    stop(child)
    tap.equal([line for line in s.lines() if not line.startswith("start")], ["has silent", "has other", "effect other"])


@tap.test("a process that does not leave when its stdin has ended is ended")
def _():
    s = Scene("stays").send({"id": 1})
    worker = s.python(PIPE % (s.out, """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    answer(json.loads(line))
while True:
    signal.pause()
"""))
    tap.equal(counts(s.run("--pipe", worker, "--count", "1", "--stop-timeout", "200ms", timeout=30))["done"], 1)
    tap.check(not alive(int(s.lines()[0].split()[1])), "it is gone")


@tap.test("a stop does not wait for a process that cannot be started again")
def _():
    s = Scene("removed").send({"id": 1})
    worker = s.python(PIPE % (s.out, """
sys.stdin.readline()
os.remove(sys.argv[0])
"""))
    child = s.start("--pipe", worker, "--in-flight", "1")
    event(child, "failed")
    while "cannot be started" not in event(child, "log")["why"]:
        pass
    tap.equal(stop(child)["failed"], 1)


@tap.test("the sidecar killed in the middle of a pipe, or its process killed from outside: each effect is there, and single")
def _():
    s = Scene("chaos")
    s.send(*({"id": i} for i in range(40)))
    # Its effect is a file that may exist once; it asks before it acts, as a worker should that may be asked twice.
    worker = s.python(PIPE % (s.out, """
import time
for line in sys.stdin:
    m = json.loads(line)
    time.sleep(0.01)
    try:
        os.close(os.open(%r + m["key"], os.O_CREAT | os.O_EXCL))
        note("effect", m["key"])
    except FileExistsError:
        pass
    answer(m)
""" % (s.folder + "/effect-")))
    child = s.start("--pipe", worker, "--in-flight", "10")
    event(child, "done")
    pid = int([line.split()[1] for line in s.lines() if line.startswith("start")][0])
    os.kill(pid, signal.SIGKILL)
    event(child, "log")
    for _ in range(5):
        event(child, "done")
    child.kill9()
    tap.unwatch(child)

    def effects():  # the files: it may be killed before it has noted what it did
        return [name[len("effect-"):] for name in os.listdir(s.folder) if name.startswith("effect-")]
    child = s.start("--pipe", worker)
    event(child, "done", "already")
    advance(60000)  # one that was alone in a process that was killed has failed, and comes again
    process.wait_until(lambda: len(effects()) >= 40, 30, "all effects")
    tap.equal(stop(child)["dead"], 0)
    tap.equal(sorted(effects(), key=int), [str(i) for i in range(40)])


# Statements ---------------------------------------------------------------------------------------------------------

@tap.test("statements run in the transaction of the message's mark, with values from the message")
def _():
    s = Scene("sql")
    path = os.path.join(s.folder, "shop.db")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE paid (id TEXT, amount NUMERIC, region TEXT, note TEXT, lines TEXT, at INTEGER)")
        db.execute("CREATE TABLE total (n INTEGER)")
        db.execute("INSERT INTO total VALUES (0)")
    hostile = "x'); DROP TABLE paid; --"
    s.send({"id": 1, "amount": 12.5, "lines": [{"qty": 3}, 2], "note": hostile}, region="eu")
    s.send({"id": 1, "amount": 12.5, "lines": [{"qty": 3}, 2], "note": hostile}, region="eu")
    s.send({"id": 2, "amount": 7, "lines": []}, {"id": 3, "amount": None})
    sql = ("INSERT INTO paid VALUES (:body.id, :body.amount, :prop.region, :body.note, :body.lines, :body.lines[0].qty);"
           " UPDATE total SET n = n + 1 -- :nothing\n WHERE ':key' <> :key;")
    events = s.run("--sql", sql, "--count", "4", store="sqlite:" + path)
    tap.equal((counts(events)["done"], counts(events)["already"]), (3, 1))
    with sqlite3.connect(path) as db:
        tap.equal(db.execute("SELECT * FROM paid ORDER BY id").fetchall(),
                  [("1", 12.5, "eu", hostile, '[{"qty":3},2]', 3), ("2", 7, None, None, "[]", None), ("3", None, None, None, None, None)])
        tap.equal(db.execute("SELECT n FROM total").fetchone(), (3,))


@tap.test("a statement that fails leaves nothing behind, and its message is a dead letter in the end")
def _():
    s = Scene("sqlfail")
    path = os.path.join(s.folder, "shop.db")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE paid (id TEXT PRIMARY KEY, amount NUMERIC CHECK (amount > 0))")
    s.send({"id": "a", "amount": 1}, {"id": "b", "amount": -1}, "no json")
    sql = "INSERT INTO paid VALUES ('x' || :body.id, 1); INSERT INTO paid VALUES (:body.id, :body.amount)"
    events = s.run("--sql", sql, "--count", "3", "--retries", "0", "--no-key", "message-id", store="sqlite:" + path)
    tap.equal({key: counts(events)[key] for key in ("done", "dead")}, {"done": 1, "dead": 2})
    whys = " ".join(each["why"] for each in events if each["event"] == "dead")
    tap.check("CHECK" in whys and "no JSON" in whys, whys)
    with sqlite3.connect(path) as db:
        tap.equal(db.execute("SELECT id FROM paid ORDER BY id").fetchall(), [("a",), ("xa",)])


# What is refused ----------------------------------------------------------------------------------------------------

@tap.test("what cannot work is refused before a message is taken, with what is wrong and where")
def _():
    s = Scene("refused")
    for args, words, status in (
            ((), "one of --exec", cli.USAGE),
            (("--exec", "true", "--http", "http://x"), "one of --exec", cli.USAGE),
            (("--exec", "no-such-program-anywhere"), "along PATH", cli.NOT_FOUND),
            (("--exec", "/etc/passwd"), "chmod", cli.NOT_FOUND),
            (("--exec", "sh 'open"), "position 4", cli.USAGE),
            (("--http", "ftp://x"), "http://", cli.USAGE),
            (("--http", "http://x", "--content-type", "text/plain\r\nX: y"), "content type", cli.USAGE),
            (("--sql", "SELECT :bdy"), "position 8", cli.USAGE),
            (("--sql", "SELECT 'open"), "position 8", cli.USAGE),
            (("--sql", "SELECT a ? b"), "position 10", cli.USAGE),
            (("--sql", "SELECT :prop"), ":prop.region", cli.USAGE),
            (("--sql", " ; "), "no statement", cli.USAGE),
            (("--exec", "true", "--order-by", "{bod}"), "order by", cli.USAGE),
            (("--exec", "true", "--key", "{bod}"), "unknown field", cli.USAGE),
            (("--exec", "true", "--key", "constant"), "all messages would be one", cli.USAGE),
            (("--exec", "true", "--parallel", "0"), "--parallel", cli.USAGE),
            (("--exec", "true", "--from", "yesterday"), "--from", cli.USAGE),
            (("--exec", "true", "--in-flight", "5"), "--pipe", cli.USAGE),
            (("--sql", "SELECT 1", "--once-mode", "lease"), "transaction", cli.USAGE)):
        result = cluster.run(*s.args(*args), status=status)
        tap.check(words in result.err, "%r in %r" % (words, result))
    garbage = s.script("", "garbage", "/no/such/interpreter")
    tap.check("starting" in cluster.run(*s.args("--pipe", garbage), status=cli.USAGE).err, "a process that cannot be started")
    tap.check("sqlite:" in cluster.run(*s.args("--sql", "SELECT 1", store="memory:"), status=cli.USAGE).err, "a store without statements")
    tap.check("--group" in cluster.run("run", "--exec", "true", status=cli.USAGE).err, "a group is needed")
    cli.Cluster(start=False).run("run", "--topic", "T", "--group", "g", "--exec", "true", status=cli.UNREACHABLE)
    new = cluster.ok("run", "--topic", s.topic + "-new", "--group", "g", "--store", "memory:", "--exec", "true", "--idle", "100ms")
    tap.check("there is no topic %s-new yet" % s.topic in new.err, new)


@tap.test("the driver of another release is refused, before it could be called for what it cannot do")
def _():
    s = Scene("stale")
    source = os.path.join(s.folder, "driver.c")
    for form in ("", "const unsigned once_form_sqlite = 7;"):
        with open(source, "w", encoding="utf-8") as file:
            file.write("const void *once_driver_sqlite[40];\n%s\n" % form)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", os.path.join(s.folder, "libonce-sqlite.so.0"), source], check=True, timeout=60)
        result = cluster.run(*s.args("--exec", "true"), env={"ONCE_DRIVERS": s.folder})
        tap.check(result.status != cli.OK and "another release" in result.err, result)


@tap.test("people see a summary, and with --verbose a line for each message; the program's output is its own")
def _():
    s = Scene("people").send({"id": 1}, {"id": 1})
    result = cluster.ok(*s.args("--exec", "sh -c 'echo \"from the program\"'", "--count", "2", "--parallel", "1", "--verbose"))
    tap.check("done 1, already done 1, later 0, failed 0" in result.err, result)
    tap.check("from the program" in result.out.splitlines(), result)
    tap.check("already" in result.out and "duplicate" in result.out, result)


tap.main()
