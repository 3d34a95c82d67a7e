"""oncemq bench: what it counts is true, what it measures is honest, what it made is gone."""

import os
import signal
import sys
import time
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, tap  # noqa: E402

cluster = cli.Cluster()
nowhere = cli.Cluster(start=False)


def topics():
    return {each["topic"] for each in cluster.json("topic", "list")}


before = topics()
KEPT = {"Kept-0", "Kept-1", "Kept-2", "RawKept", "Stall", "Owed"}


def times(result, of):
    found = [each for each in result["latency"] if each["of"] == of]
    tap.equal(len(found), 1, "times of %s in %s" % (of, result["latency"]))
    one = found[0]
    row = [one[name] for name in ("min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us")]
    tap.equal(row, sorted(row), "percentiles rise")
    tap.check(one["min_us"] <= one["mean_us"] <= one["max_us"], one)
    return one


@tap.test("bench send: as many as were asked for are stored, timed and told; its topic is gone behind it")
def _():
    result = cluster.json("bench", "send", "--count", "500", "-c", "2", "-i", "8", "--size", "100")
    tap.equal((result["bench"], result["messages"], result["failures"], result["first_failure"]), ("send", 500, 0, None))
    tap.equal((result["connections"], result["in_flight"], result["batch"], result["size"], result["rate"]), (2, 8, 1, 100, None))
    tap.equal(times(result, "send")["count"], 500)
    tap.check(abs(result["per_second"] * result["seconds"] - 500) < 1, result)
    tap.equal(sum(1 for _ in result["over_time"]) > 0, True, "points")
    tap.equal(topics(), before, "topics")
    sheet = cluster.ok("bench", "send", "--count", "10")
    tap.check("Per second" in sheet.out and "P99.9" in sheet.out, sheet)
    tap.equal(topics(), before, "topics")


@tap.test("a topic that was named is used and kept, with all that was acknowledged: topics, batches")
def _():
    sent = cluster.json("bench", "send", "--topic", "Kept", "--topics", "3", "--batch", "10", "--count", "300", "-i", "4", "--size", "64")
    tap.equal((sent["messages"], sent["batch"]), (300, 10))
    tap.check("303 messages in topic Kept-*" in sent["left_behind"], sent["left_behind"])  # one made each topic
    tap.equal(topics() - before, {"Kept-0", "Kept-1", "Kept-2"})
    taken = cluster.json("bench", "consume", "--topic", "Kept", "--topics", "3")
    tap.equal((taken["messages"], taken["out_of_row"], taken["failures"]), (303, 0, 0))
    tap.equal(topics() - before, {"Kept-0", "Kept-1", "Kept-2"})


@tap.test("bench consume writes a backlog and takes all of it, each once and in order")
def _():
    result = cluster.json("bench", "consume", "--count", "2k", "-c", "3", "--size", "64")
    tap.equal((result["messages"], result["out_of_row"], result["failures"]), (2000, 0, 0))
    tap.equal(topics() - before, {"Kept-0", "Kept-1", "Kept-2"})
    cluster.run("bench", "consume", "--topic", "NeverMade", status=cli.NOT_FOUND)


@tap.test("bench e2e: what was acknowledged has come")
def _():
    result = cluster.json("bench", "e2e", "--count", "300", "--rate", "2000", "--size", "64")
    tap.equal((result["sent"], result["messages"], result["missing"], result["out_of_row"]), (300, 300, 0, 0))
    for of in ("end to end", "send", "late"):
        tap.equal(times(result, of)["count"], 300)
    batched = cluster.json("bench", "e2e", "--count", "200", "--batch", "20", "--topics", "2", "-i", "2")
    tap.equal((batched["sent"], batched["messages"], batched["missing"]), (200, 200, 0))


@tap.test("--raw: the same without the library: sends, batches, a backlog, end to end, both forms of headers")
def _():
    for form in ("json", "binary"):
        sent = cluster.json("bench", "send", "--raw", "--header", form, "--count", "3k", "-c", "3", "-i", "16", "--size", "100", "--topics", "2")
        tap.equal((sent["messages"], sent["failures"], sent["raw"], times(sent, "send")["count"]), (3000, 0, True, 3000))
        met = cluster.json("bench", "e2e", "--raw", "--header", form, "--count", "300", "--rate", "2000", "-c", "2", "--size", "64")
        tap.equal((met["sent"], met["messages"], met["missing"], met["out_of_row"]), (300, 300, 0, 0))
    batched = cluster.json("bench", "send", "--raw", "--batch", "32", "--count", "3200", "--size", "64", "--topic", "RawKept")
    tap.equal((batched["messages"], times(batched, "send")["count"]), (3200, 100))
    # What was acknowledged is there: for the library, for bare sockets, and each under a key of its own.
    for more in ((), ("--raw",), ("--raw", "-c", "20")):
        taken = cluster.json("bench", "consume", "--topic", "RawKept", *more)
        tap.equal((taken["messages"], taken["out_of_row"], taken["failures"]), (3201, 0, 0))
    if not cluster.apache:
        keys = [each["id"] for each in cluster.json("store", "dump", cluster.daemon.folder, "--topic", "RawKept")]
        tap.equal((len(keys), len(set(keys))), (3201, 3201))
    big = cluster.json("bench", "send", "--raw", "--size", "1MiB", "-i", "4", "-c", "2", "--count", "20")  # more than sockets hold
    tap.equal((big["messages"], big["failures"]), (20, 0))
    many = cluster.json("bench", "send", "--raw", "-c", "300", "-i", "1", "--count", "900", "--size", "64")
    tap.equal((many["messages"], many["failures"]), (900, 0))
    tap.check("--raw" in cluster.run("bench", "send", "--header", "binary", status=cli.USAGE).err, "a header without --raw")


@tap.test("with a rate exactly the messages of that time are sent, however long they take")
def _():
    result = cluster.json("bench", "send", "--rate", "400", "-d", "500ms", "--warmup", "100ms", "--interval", "100ms")
    tap.equal((result["messages"], result["rate"]), (200, 400))
    tap.check(len(result["over_time"]) >= 2, result["over_time"])


@tap.test("what --count ends before its time has taken no longer than that")
def _():
    result = cluster.json("bench", "send", "--count", "200", "-d", "1h", "--warmup", "0")
    tap.equal(result["messages"], 200)
    tap.check(result["seconds"] < 600, "%s s" % result["seconds"])


def stalled(topic, lasts, stall):
    """What a bench says that sends 100 messages a second for `lasts` seconds, while the broker stands still for `stall` of them."""
    if cluster.apache:
        tap.skip("stops the broker's process")
    child = cluster.start("bench", "send", "--topic", topic, "--rate", "100", "-d", "%ds" % lasts, "--warmup", "0", "--timeout", "30s", "--json")
    process.wait_until(lambda: topic in topics(), 20, "the topic")
    process.freeze(cluster.daemon.pid)
    try:
        time.sleep(stall)
    finally:
        os.kill(cluster.daemon.pid, signal.SIGCONT)
    status, out = child.finish(60)
    result = cli.check_form("bench send", out)
    tap.equal((status, result["messages"], result["failures"]), (0, 100 * lasts, 0))
    return result


@tap.test("what would have been sent while the server stood still counts as slow (coordinated omission)")
def _():
    # 200 of 800 were due in the stall (fewer, if it began late), the first of them 2 s before its end, the last at its end.
    took = times(stalled("Stall", 8, 2), "send")
    tap.check(took["max_us"] > 600e3, took)
    tap.check(took["p90_us"] > 300e3, "a stall of 2 s in 8 s is hidden: %s" % took)


@tap.test("--rate: what was due is sent though its time is over, when the broker stands still at the end")
def _():
    stalled("Owed", 3, 3.5)


@tap.test("bench once: fresh and repeated keys are told apart, in memory and in a file")
def _():
    for store, left in (("memory:", "nothing"), ("sqlite:once.db", "marks of group oncemq-bench")):
        result = cluster.json("bench", "once", "--store", store, "--count", "200", "--repeats", "3", "-i", "4", "-c", "2")
        tap.equal((result["messages"], result["failures"], result["topic"]), (200, 0, None))
        fresh, again = times(result, "fresh key")["count"], times(result, "repeated key")["count"]
        tap.check(fresh + again == 200 and 50 <= fresh <= 54, (fresh, again))  # each of four threads may end within a key
        tap.check(left in result["left_behind"], result["left_behind"])
    batched = cluster.json("bench", "once", "--count", "200", "--batch", "10", "--mode", "table", "-i", "1")
    tap.equal((batched["messages"], times(batched, "fresh key")["count"]), (200, 10))
    tap.check("memory:" in cluster.run("bench", "once", "--store", "nosuch:x", status=cli.USAGE).err, "the stores are not named")


@tap.test("a plot is an SVG of its own, whole or not there at all")
def _():
    file = os.path.join(process.temp_folder(), "send.svg")
    cluster.json("bench", "send", "-d", "300ms", "--warmup", "0", "--interval", "50ms", "--plot", file)
    svg = xml.dom.minidom.parse(file).documentElement
    tap.equal(svg.tagName, "svg")
    curves = [each for each in svg.getElementsByTagName("path") if each.getAttribute("class") == "rate" and "H" in each.getAttribute("d")]
    tap.equal(len(curves), 1, "curves of the rate")
    with open(file, encoding="utf-8") as source:
        text = source.read()
    tap.check("http" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" not in text, "the plot needs something beside itself")
    tap.equal(os.listdir(os.path.dirname(file)), ["send.svg"])
    refused = cluster.run("bench", "send", "--plot", os.path.join(os.path.dirname(file), "no", "such.svg"), status=cli.USAGE)
    tap.check("plot" in refused.err, refused)


@tap.test("what makes no sense is refused before anything is done; where nobody answers, it is said")
def _():
    for args in (("send", "--connections", "2000"), ("send", "--raw", "--connections", "99999"), ("send", "--batch", "1000", "--size", "1MiB"), ("e2e", "--size", "8"),
                 ("send", "--interval", "1ms"), ("once", "--in-flight", "100k"), ("send", "--size", "8GiB"), ("send", "extra"),
                 ("send", "--topic", "x" * 200)):
        tap.equal(cluster.run("bench", *args, status=cli.USAGE).out, "")
    tap.equal(topics() - before - KEPT, set())
    tap.equal(nowhere.run("bench", "send", "-d", "1s", status=cli.UNREACHABLE).out, "")


@tap.test("on a terminal there is live progress; Ctrl-C ends it early with what was measured, and its topic is deleted")
def _():
    with cluster.terminal("bench", "send", "-d", "60s", "--warmup", "0", "--interval", "50ms") as terminal:
        terminal.expect("measuring").expect("p99")
        terminal.signal(signal.SIGINT)
        tap.equal(terminal.end(), cli.INTERRUPTED)
        tap.check("Per second" in terminal.text, terminal.text)
    tap.equal(topics() - before - KEPT, set())


@tap.test("messages that fail are counted with the first one's reason, with status 5")
def _():
    if cluster.apache:
        tap.skip("kills the broker's process")
    lost = {"Lost": (), "LostRaw": ("--raw",)}
    children = [cluster.start("bench", "send", "--topic", topic, "-d", "6s", "--warmup", "0", "--timeout", "3s", "--json", *more)
                for topic, more in lost.items()]

    def begun():  # one that has not says that nobody answers; the first message makes the topic
        stored = {each["topic"]: each["messages"] for each in cluster.json("topic", "list", "--long")}
        return all(stored.get(topic, 0) > 1 for topic in lost)
    process.wait_until(begun, 20, "both have begun")
    cluster.daemon.kill9()
    for child in children:
        status, out = child.finish(30)
        result = cli.check_form("bench send", out)
        tap.equal(status, cli.PARTLY)
        tap.check(result["failures"] > 0 and result["first_failure"], result)
        tap.equal(times(result, "send")["count"], result["messages"])


tap.main()
