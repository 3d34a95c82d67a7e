"""`oncemq send`: where bodies come from, what is said of each message, and what happens when it is broken off."""

import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, process, remoting, tap  # noqa: E402

cluster = cli.Cluster()
RESUME = re.compile(r"--resume '([^']+)'")


def stored(topic):
    """All messages of a topic, as consume --end --json has them."""
    return cluster.json("consume", topic, "--end")


def bodies(topic):
    return sorted(each["body"] for each in stored(topic))


def numbers(topic, count, prefix="m "):
    """Each of `count` messages is there exactly once, each under an id of its own."""
    found = stored(topic)
    tap.equal(sorted(int(each["body"][len(prefix):]) for each in found), list(range(1, count + 1)))
    tap.equal(len({each["id"] for each in found}), count)


@tap.test("one message: its place is told, and it arrives with all that was said of it")
def _():
    one, = cluster.json("send", "One", "hello", "--key", "k1 k2", "--tag", "t", "--prop", "city=Köln", "--prop", "a=b=c")
    tap.equal((one["number"], one["state"], one["safety"], one["error"]), (1, "stored", "ok", None))
    got, = stored("One")
    tap.equal([got[name] for name in ("id", "offset_id", "broker", "queue", "offset", "tag", "keys", "body")],
              [one["id"], one["offset_id"], one["broker"], one["queue"], one["offset"], "t", "k1 k2", "hello"])
    tap.equal((got["properties"]["city"], got["properties"]["a"]), ("Köln", "b=c"))
    shown = cluster.ok("send", "One", "again").out
    tap.check(re.match(r"stored  [0-9A-F]{32}  \S+  \d+  \d+\n$", shown), shown)


@tap.test("a topic that sending has made is known to the name servers when the command ends")
def _():
    asked = []

    def knows_after(questions, topic):
        def answer(request):
            if request.ext.get("topic") == topic:
                asked.append(request)
                if len(asked) <= questions:
                    return fake.reply(remoting.TOPIC_NOT_EXIST)
            with remoting.Client(cluster.names) as real:
                return real.request(request.code, request.ext, request.body)
        return answer
    names = fake.Fake(knows_after(3, "SentFirst"))
    cluster.ok("send", "SentFirst", "hello", "-n", names.address)
    tap.check(len(asked) >= 4, "it was asked for %d times" % len(asked))
    names.answer = knows_after(1e9, "SentFirstLate")
    said = cluster.ok("send", "SentFirstLate", "hello", "-n", names.address, "--timeout", "3s")
    tap.check("do not know of the topic yet" in said.err, said)
    names.close()


@tap.test("a body comes from an argument, a file or stdin, byte for byte")
def _():
    raw = bytes(range(256)) * 40
    path = os.path.join(process.temp_folder(), "body")
    with open(path, "wb") as out:
        out.write(raw)
    cluster.ok("send", "Bodies", "--file", path)
    cluster.ok("send", "Bodies", stdin=raw)
    cluster.ok("send", "Bodies", "-f", "-", stdin=raw)
    plain = subprocess.run([cluster.binary, "consume", "Bodies", "--end", "--format", "{raw}"], capture_output=True, env=cluster.env(), timeout=60,
                           check=True).stdout
    tap.equal(plain, raw * 3)
    tap.check("twice" in cluster.run("send", "Bodies", "x", "--file", path, status=cli.USAGE).err, "two bodies")
    tap.check("empty" in cluster.run("send", "Bodies", stdin="", status=cli.USAGE).err, "no body")
    tap.equal(cluster.run("send", "Bodies", "--file", path + ".none").status, cli.NOT_FOUND)


@tap.test("--count sends so many, with their numbers filled in, and says so in one line")
def _():
    result = cluster.ok("send", "Many", "m {n}", "--key", "key-{n}", "--prop", "n={n}", "--count", "1500")
    tap.equal(result.out, "")
    tap.check(result.err.startswith("1500 stored in "), result)
    numbers("Many", 1500)
    tap.check(all(each["keys"] == "key-" + each["body"][2:] and each["properties"]["n"] == each["body"][2:] for each in stored("Many")), "keys")
    tap.equal([each["state"] for each in cluster.json("send", "Many3", '{"a":{n}, "b":{}}', "--count", "3")], ["stored"] * 3)
    tap.equal(bodies("Many3"), ['{"a":%d, "b":{}}' % n for n in (1, 2, 3)])
    cluster.ok("send", "Many1", "{n} as it is")
    tap.equal(bodies("Many1"), ["{n} as it is"])


@tap.test("--lines sends each line of stdin as it comes; empty ones are passed over")
def _():
    result = cluster.ok("send", "Lines", "--lines", "--each", stdin="first\n\nsecond {n}\nlast without an end")
    tap.equal([line.split("  ")[0] for line in result.out.splitlines()], ["stored"] * 3)
    tap.equal(bodies("Lines"), ["first", "last without an end", "second {n}"])
    child = cluster.start("send", "LinesLive", "--lines", "--json", stdin=subprocess.PIPE)
    for n in (1, 2):
        child.process.stdin.write(b"line %d\n" % n)
        child.process.stdin.flush()
        tap.check('"number":%d,"state":"stored"' % n in child.read_line(20), "line %d is not sent before the next comes" % n)
    child.process.stdin.close()
    tap.equal(child.wait(20), 0)


@tap.test("messages with one --order key go to one queue, in order")
def _():
    cluster.ok("send", "Ordered", "{n}", "--order", "customer-7", "--count", "200")
    found = stored("Ordered")
    tap.equal(len({each["queue"] for each in found}), 1)
    tap.equal([each["body"] for each in sorted(found, key=lambda each: each["offset"])], [str(n) for n in range(1, 201)])


@tap.test("a delayed message can be taken back by what is told of it; --rate keeps its pace")
def _():
    one, = cluster.json("send", "Later", "x", "--delay", "1h")
    tap.check(one["recall"], one)
    one, = cluster.json("send", "Later", "x", "--at", "+1h")
    tap.check(one["recall"], one)
    begin = time.monotonic()
    cluster.ok("send", "Later", "x", "--count", "6", "--rate", "10/s")
    tap.check(time.monotonic() - begin >= 0.5, "six at ten a second are too fast")
    for args in (("--rate", "fast"), ("--delay", "1s", "--at", "+1s"), ("--prop", "x"), ("--count", "0"), ("--lines", "--count", "2"), ("--id", "x", "--count", "2"),
                 ("--resume", "12"), ("--resume", "0" * 32 + "/3-2"), ("--in-flight", "0")):
        cluster.run("send", "Later", *args, *(() if "--lines" in args else ("x",)), status=cli.USAGE)


@tap.test("when no server answers, nothing is sent, with status 4")
def _():
    result = cluster.run("send", "T", "x", "-n", "127.0.0.1:1", status=cli.UNREACHABLE)
    tap.equal(result.out, "")
    tap.check("127.0.0.1:1" in result.err, result)


@tap.test("a refused message stops the send, and the rest can be sent; --keep-going passes over it")
def _():
    lines = ["one", "two", "x" * (5 << 20), "four", "five"]
    result = cluster.run("send", "Refused", "--lines", "--in-flight", "1", "--compress", "none", stdin="\n".join(lines), status=cli.PARTLY)
    tap.check("2 stored, 1 refused" in result.err, result)
    tap.equal(RESUME.search(result.err).group(1).split("/")[1], "3,4-")
    result = cluster.run("send", "Refused", "--lines", "--keep-going", "--compress", "none", "--resume", RESUME.search(result.err).group(1), stdin="\n".join(lines), status=cli.PARTLY)
    tap.check("2 stored, 1 refused" in result.err, result)
    tap.equal(RESUME.search(result.err).group(1).split("/")[1], "3")
    tap.equal(bodies("Refused"), sorted(["one", "two", "four", "five"]))


@tap.test("a connection that breaks in the middle: unsure messages are looked for, and the rest is sent exactly once")
def _():
    with cli.Line(cluster) as line:
        line.cut_after(remoting.SEND_MESSAGE_V2, 700, lose=50)
        result = cluster.run("send", "Broken", "m {n}", "--count", "2000", "--in-flight", "200", "-n", line.names, status=cli.PARTLY)
    there = len(stored("Broken"))
    said = int(re.search(r"(\d+) stored", result.err).group(1))
    tap.check(650 <= said <= there < 2000, "%d are said to be stored, %d are: %r" % (said, there, result))
    cluster.ok("send", "Broken", "m {n}", "--count", "2000", "--resume", RESUME.search(result.err).group(1))
    numbers("Broken", 2000)


@tap.test("a connection that breaks for good: each message is stored, unsure or not begun; --resume finds out")
def _():
    with cli.Line(cluster) as line:
        line.cut_after(remoting.SEND_MESSAGE_V2, 500, lose=50, for_good=True)
        result = cluster.run("send", "Gone", "m {n}", "--count", "1500", "--in-flight", "200", "--json", "-n", line.names, status=cli.PARTLY)
    records = cli.check_form("send", result.out)
    there = {each["id"]: each for each in stored("Gone")}
    by_state = {state: [each for each in records if each["state"] == state] for state in ("stored", "unsure", "not stored")}
    tap.equal(len(records), len({each["number"] for each in records}), "one record a message")
    tap.check(all(each["id"] in there for each in by_state["stored"]), "stored, but not there")
    tap.check(not any(each["id"] in there for each in by_state["not stored"]), "not stored, but there")
    tap.check(by_state["unsure"], result.err)
    tap.check(set(there) <= {each["id"] for each in by_state["stored"] + by_state["unsure"]}, "there, but not accounted for")
    rest = RESUME.search(result.err).group(1)
    tap.check("?" in rest, rest)
    again = cluster.ok("send", "Gone", "m {n}", "--count", "1500", "--resume", rest)
    tap.check("of them before" in again.err and "of 1500" not in again.err, again)
    numbers("Gone", 1500)


@tap.test("messages that wait for their time are looked for as well")
def _():
    with cli.Line(cluster) as line:
        line.cut_after(remoting.SEND_MESSAGE_V2, 40, lose=20, for_good=True)
        result = cluster.run("send", "Waits", "m {n}", "--count", "60", "--delay", "1h", "--in-flight", "20", "--timeout", "10s", "-n", line.names,
                             status=cli.PARTLY)
    again = cluster.json("send", "Waits", "m {n}", "--count", "60", "--delay", "1h", "--resume", RESUME.search(result.err).group(1))
    timed = cluster.json("consume", "rmq_sys_wheel_timer", "--end")
    found = [each["body"] for each in timed if each["properties"].get("REAL_TOPIC") == "Waits"]
    tap.equal(sorted(found), sorted("m %d" % n for n in range(1, 61)), again)


@tap.test("Ctrl-C: what is under way is waited for, and what was stored is told exactly, with status 130")
def _():
    with cluster.terminal("send", "Stopped", "m {n}", "--count", "100000", "--rate", "2000/s") as t:
        t.expect("sending ")
        t.expect("left")
        t.signal(signal.SIGINT)
        tap.equal(t.end(), cli.INTERRUPTED)
        said = int(re.search(r"(\d+) stored, of 100000: stopped", t.text).group(1))
        rest = re.search(r"--resume '([^']+)'", t.text.replace("\r\n", "")).group(1)
    numbers("Stopped", said)
    first, ranges = rest.split("/")
    tap.equal(ranges, "%d-100000" % (said + 1))
    cluster.ok("send", "Stopped", "m {n}", "--count", str(said + 50), "--resume", "%s/%d-" % (first, said + 1))
    numbers("Stopped", said + 50)


@tap.test("a daemon that is killed in the middle: what is told is true, and the same numbers can be sent again")
def _():
    if cluster.given:
        tap.skip("the servers are shared with other tests")
    child = cluster.start("send", "Killed", "m {n}", "--count", "1000000", "--rate", "5000/s", "--in-flight", "300", "--json", "--timeout", "10s")
    for _ in range(500):
        child.read_line(20)
    cluster.daemon.kill9()
    lines = []
    while (line := child.read_line(30)) is not None:
        lines.append(line)
    tap.equal(child.wait(30), cli.PARTLY)
    records = cli.check_form("send", "\n".join(lines))
    rest = RESUME.search("\n".join(child.tail(40))).group(1)
    cluster.daemon.start()
    if cluster.apache:
        cluster.daemon.wait_registered(cluster.name_server.address)
    there = {each["id"] for each in stored("Killed")}
    tap.check(all(each["id"] in there for each in records if each["state"] == "stored"), "told to be stored, but lost")
    last = max(each["number"] for each in records) + 100
    cluster.ok("send", "Killed", "m {n}", "--count", str(last), "--resume", re.sub(r"-1000000$", "-", rest))
    numbers("Killed", last)


@tap.test("a reader that goes away stops the send, which is told")
def _():
    read, write = os.pipe()
    child = subprocess.Popen([cluster.binary, "send", "Pipe", "m {n}", "--count", "1000000", "--json"], stdout=write, stderr=subprocess.PIPE, env=cluster.env(),
                             preexec_fn=process.die_with_parent)
    os.close(write)
    os.read(read, 100)
    os.close(read)
    err = child.communicate(timeout=60)[1].decode()
    tap.equal(child.returncode, cli.PIPE)
    tap.check(re.search(r'"message":"\d+ stored, of 1000000', err), err)


tap.main()
