"""`oncemq consume`: from where, which, in what form; as nobody, and as a member of a group."""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting, tap  # noqa: E402

cluster = cli.Cluster()


def lines(child, count, timeout=30):
    return [child.read_line(timeout) for _ in range(count)]


def tail(*args):
    """A consume that is known to read already: its first message is one that was sent until it came."""
    child = cluster.start("consume", *args)

    def reads():
        cluster.ok("send", args[0], "are you there?", "--tag", "probe")
        try:
            return "are you there?" in child.read_line(0.3)
        except process.Failed:
            return False
    process.wait_until(reads, 30, "the first message")
    return child


def skip_probes(child):
    line = child.read_line(30)
    while line is not None and "are you there?" in line:
        line = child.read_line(30)
    return line


@tap.test("a tail shows what comes from now on, a line each, and Ctrl-C ends it")
def _():
    cluster.ok("send", "Tail", "before")
    child = tail("Tail")
    cluster.ok("send", "Tail", "two\nlines \033[2Jand more", "--tag", "red", "--key", "k7")
    line = skip_probes(child)
    tap.check(line.endswith("  red  k7  two\\nlines \\x1b[2Jand more"), line)
    tap.check("before" not in line, line)
    child.process.send_signal(signal.SIGINT)
    tap.equal(child.wait(20), cli.INTERRUPTED)


@tap.test("--json: an object a line, text as text and other bytes in base64, properties as a map")
def _():
    cluster.ok("send", "Json", "Grüße 你好 \x01", "--prop", "a=1", "--tag", "t")
    cluster.ok("send", "Json", stdin=b"\xff\x00\xfe")
    text, raw = sorted(cluster.json("consume", "Json", "--end"), key=lambda each: each["body"] is None)
    tap.equal((text["body"], text["body64"], text["body_size"], text["properties"]["a"], text["tag"], text["attempt"], text["topic"]),
              ("Grüße 你好 \x01", None, 16, "1", "t", 1, "Json"))
    tap.equal((raw["body"], raw["body64"], raw["tag"]), (None, "/wD+", None))
    tap.check(abs(text["stored_ms"] / 1000 - time.time()) < 100, text)


@tap.test("--from first and from a time; --count and --for end it; --end stops where the topic ends")
def _():
    cluster.ok("send", "From", "old {n}", "--count", "40")
    newest = max(each["stored_ms"] for each in cluster.json("consume", "From", "--end"))
    process.wait_until(lambda: time.time() * 1000 > newest + 5, 5, "the next moment")
    middle = int(time.time() * 1000)
    cluster.ok("send", "From", "new {n}", "--count", "5")
    tap.equal(len(cluster.json("consume", "From", "--from", "first", "--count", "7")), 7)
    process.wait_until(lambda: len(cluster.json("consume", "From", "--from", "first", "--for", "1s")) == 45, 30, "all of them within a second")
    tap.equal(sorted(each["body"] for each in cluster.json("consume", "From", "--from", str(middle), "--count", "5")), ["new %d" % n for n in range(1, 6)])
    tap.equal(sorted(each["body"] for each in cluster.json("consume", "From", "--from", str(middle), "--end")), ["new %d" % n for n in range(1, 6)])
    found = cluster.json("consume", "From", "--end")
    tap.equal([each["stored_ms"] for each in found], sorted(each["stored_ms"] for each in found))
    tap.check("first" in cluster.run("consume", "From", "--from", "yesterday", status=cli.USAGE).err, "no example")


@tap.test("--filter by tags, --sql by properties")
def _():
    for n in range(9):
        cluster.ok("send", "Filter", "b%d" % n, "--tag", "t%d" % (n % 3), "--prop", "n=%d" % n)
    for args in (("--end",), ("--from", "first", "--count", "6")):
        tap.equal(sorted(each["body"] for each in cluster.json("consume", "Filter", *args, "--filter", "t0 || t2")), ["b0", "b2", "b3", "b5", "b6", "b8"])
    if cluster.apache:
        tap.check("SQL92" in cluster.run("consume", "Filter", "--sql", "n > 6", status=cli.FAILED).err, "Apache's broker does not filter by default")
        return
    for args in (("--end",), ("--from", "first", "--count", "2")):
        tap.equal(sorted(each["body"] for each in cluster.json("consume", "Filter", *args, "--sql", "n > 6")), ["b7", "b8"])
    for args in (("--end",), ()):
        tap.check("column" in cluster.run("consume", "Filter", *args, "--sql", "n >", status=cli.FAILED).err, "what is wrong with the expression")


@tap.test("--format and --raw: fields are escaped, bodies raw only where that is asked for")
def _():
    sent, = cluster.json("send", "Form", "a\tb\n", "--tag", "t", "--prop", "city=Rom")
    tap.equal(cluster.ok("consume", "Form", "--end", "--format", r"{id}|{tag}|{keys}|{prop.city}{prop.none}|{queue}:{offset}|{size}|{body}\n").out,
              "%s|t||Rom|%d:0|4|a\\tb\\n\n" % (sent["id"], sent["queue"]))
    tap.equal(cluster.ok("consume", "Form", "--end", "--raw").out, "a\tb\n\n")
    tap.equal(cluster.ok("consume", "Form", "--end", "--format", r"{body64}\t{raw}").out, "YQliCg==\ta\tb\n")
    for form in ("{nothing}", "{id", "{prop.}"):
        tap.check("fields are" in cluster.run("consume", "Form", "--end", "--format", form, status=cli.USAGE).err, form)
    cluster.run("consume", "Form", "--raw", "--json", status=cli.USAGE)


@tap.test("as a member of a group: what was printed is done, and the next member goes on behind it")
def _():
    cluster.ok("send", "Group", "m{n}", "--count", "30")
    first = cluster.json("consume", "Group", "--group", "cg", "--from", "first", "--count", "12")
    second = cluster.json("consume", "Group", "--group", "cg", "--count", "18")
    tap.equal(sorted(each["body"] for each in first + second), sorted("m%d" % n for n in range(1, 31)))
    tap.equal(cluster.json("consume", "Group", "--group", "cg", "--for", "1s"), [])
    tap.equal(len(cluster.json("consume", "Group", "--end")), 30, "without a group all are there")


@tap.test("a message that comes as a member is told to stop is printed, by it or by the next")
def _():
    with remoting.Client(cluster.broker) as client:
        for number in range(3):
            cluster.ok("send", "ToldToStop", "before %d" % number)
            child = cluster.start("consume", "ToldToStop", "--group", "told_to_stop", "--from", "first", "--raw")
            tap.equal(child.read_line(30), "before %d" % number)
            time.sleep(0.3)  # it waits for the next one
            child.process.send_signal(signal.SIGTERM)
            client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2("ToldToStop", b"behind", {"UNIQ_KEY": "57%030X" % number}))
            status, out = child.finish(30)
            tap.equal(status, cli.INTERRUPTED)
            if "behind" not in out:
                tap.equal([each["body"] for each in cluster.json("consume", "ToldToStop", "--group", "told_to_stop", "--count", "1", "--for", "20s")],
                          ["behind"])


@tap.test("a member that cannot print has not done it: its messages come again")
def _():
    cluster.ok("send", "Unread", "m{n}", "--count", "5")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([cluster.binary, "consume", "Unread", "--group", "ug", "--from", "first"], stdout=write, stderr=subprocess.PIPE, env=cluster.env(),
                          timeout=60, check=False)
    os.close(write)
    tap.equal((done.returncode, done.stderr), (cli.PIPE, b""))
    again = cluster.json("consume", "Unread", "--group", "ug", "--count", "5")
    tap.equal(sorted((each["body"], each["attempt"]) for each in again), [("m%d" % n, 1) for n in range(1, 6)])


@tap.test("a reader that goes away ends a tail quietly, with status 141")
def _():
    child = tail("Tail", "--json")
    child.process.stdout.close()
    cluster.ok("send", "Tail", "one more")
    tap.equal(child.process.wait(20), cli.PIPE)


@tap.test("a tail goes on after its broker was away")
def _():
    if cluster.given:
        tap.skip("the servers are shared with other tests")
    cluster.ok("send", "Away", "first")
    child = tail("Away", "--format", r"{body}\n")
    if cluster.apache:
        cluster.daemon.stop()
    else:
        cluster.daemon.restart(hard=True)
    if cluster.apache:
        cluster.daemon.start()
        cluster.daemon.wait_registered(cluster.name_server.address)
    cluster.ok("send", "Away", "here again")
    tap.equal(skip_probes(child), "here again")
    child.stop()


@tap.test("what makes no sense is refused, and a topic that is not there is said to be missing")
def _():
    for args in (("--filter", "a", "--sql", "b"), ("--end", "--group", "g"), ("--ordered",), ("--trace",)):
        cluster.run("consume", "Tail", *args, status=cli.USAGE)
    for args in ((), ("--end",), ("--group", "g")):
        tap.check("Nowhere" in cluster.run("consume", "Nowhere", *args, status=cli.NOT_FOUND).err, args)
    said = json.loads(cluster.run("consume", "Nowhere", "--json", status=cli.NOT_FOUND).err)
    tap.equal(said["error"], "not_found")


tap.main()
