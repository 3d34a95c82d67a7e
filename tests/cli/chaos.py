"""`oncemq chaos`: a consumer that looks before it inserts is caught, one that lets the table decide passes."""

import os
import signal
import sqlite3
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting, scene, tap  # noqa: E402

CHAOS = 10020
LEDGER = os.environ["LEDGER"]
COUNT_KEYS = "SELECT key, COUNT(*) FROM booked GROUP BY key"
# What the issue asks for is ten seconds; a machine that does other things as well may take longer.
CAUGHT_MS = 20000

cluster = cli.Cluster(args=["--chaos", "--clock", "virtual"])


class Ledger:
    """The sample consumer (examples/chaos) with a topic, a group and a file of its own."""

    def __init__(self, how, name):
        self.topic, self.group = "Bookings" + name, "ledger" + name
        self.file = os.path.join(cluster.home, name + ".db")
        cluster.ok("topic", "create", self.topic, "--queues", "4")
        cluster.wait_route(self.topic)
        self.child = process.Child("ledger", [LEDGER, how, self.file, cluster.names, self.topic, self.group],
                                   os.path.join(process.temp_folder(), "ledger.log"), cwd=cluster.home)
        tap.watch(self.child)
        tap.equal(self.child.read_line(30), "booking")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stop(30)

    def args(self, *more, seconds="2s"):
        """So long faults are made; the rest of a run is waiting for the consumer, whose offsets are told every five seconds."""
        return ["chaos", "--topic", self.topic, "--group", self.group, "-d", seconds, "--store", "sqlite:" + self.file, *more]

    def keys(self):
        with sqlite3.connect(self.file) as db:
            return sorted(row[0] for row in db.execute("SELECT key FROM booked"))


def plan_is_on():
    with remoting.Client(cluster.broker) as client:
        return client.request(CHAOS, {"action": "read"}).ext["on"] == "true"


@tap.test("a command line that makes no sense changes nothing; a broker that was not started for it refuses")
def _():
    for wrong, word in ((["--send", "5"], "--topic"), (["--topic", "T", "--twice", "150%"], "10%"), (["--topic", "T", "--delay", "9ms..1ms"], "0..50ms"),
                        (["--topic", "T", "--rebalance", "6"], "--group"), (["--topic", "T", "--kill-connections", "often"], "6/min"),
                        (["--group", "g", "--send", "5"], "--topic"), (["--topic", "T", "--verify", "SELECT 1"], "--store"),
                        (["--topic", "T", "--verify", "SELECT 1", "--store", "sqlite:x", "--verify-exec", "true"], "either"),
                        (["--topic", "T", "-d", "2h"], "50m"), (["--topic", "T", "--prefix", "a b"], "--prefix")):
        said = cluster.run("chaos", *wrong, status=cli.USAGE).err
        tap.check(word in said, "%s: %s" % (wrong, said))
    plain = cli.Cluster()
    plain.ok("topic", "create", "T")
    plain.wait_route("T")
    tap.check("oncemqd --chaos" in plain.run("chaos", "--topic", "T", "-d", "1s", status=cli.FAILED).err, "no hint")
    cluster.run("chaos", "--topic", "Nowhere", status=cli.NOT_FOUND)
    tap.check(not plan_is_on(), "a plan")


@tap.test("a consumer that looks and then inserts is caught, with the keys that took effect twice")
def _():
    with Ledger("look", "Look") as ledger:
        found = cluster.json(*ledger.args("--send", "200", "--verify", COUNT_KEYS), status=cli.FAILED)
        tap.equal((found["verdict"], found["sent"]), ("bad", 200))
        tap.check(found["twice"] > 10 and found["twice_later"] > 5 and found["delayed"] > 0, found)
        tap.check(found["records"] >= 200 + found["twice"] + found["twice_later"], found)
        tap.check(found["effects_twice"] > 0 and found["took"] < CAUGHT_MS, found)
        booked = ledger.keys()
        for each in found["examples"]:
            tap.check(each["effects"] > 1 and booked.count(each["key"]) > 1, "%s is not there twice" % each)
        tap.check(not plan_is_on(), "the plan is still on")


@tap.test("a consumer whose table decides passes, also when the clock jumps")
def _():
    with Ledger("unique", "Unique") as ledger:
        first = cluster.json(*ledger.args("--send", "200", "--verify", COUNT_KEYS))
        tap.equal((first["verdict"], first["sent"], first["effects_once"], first["effects_never"], first["consumed"]), ("ok", 200, 200, 0, True))
        tap.equal(first["examples"], [])
        table = cluster.ok(*ledger.args("--send", "50", "--prefix", "second-", "--twice", "30%", "--clock-jump", "1h", "--jumps", "2",
                                        "--verify", "SELECT COUNT(*) FROM booked WHERE key LIKE 'second-%'", seconds="6s")).out
        for word in ("Verdict", "ok", "Clock ahead", "2h"):
            tap.check(word in table, table)


@tap.test("a group alone: its messages come twice through its retry topic, and a ledger whose table decides books each once")
def _():
    with Ledger("unique", "Alone") as ledger:
        child = cluster.start("chaos", "--group", ledger.group, "--twice", "100%", "-d", "4s", "--json")
        process.wait_until(plan_is_on, 20, "a plan")
        for i in range(10):
            scene.send(cluster, ledger.topic, "x", keys="k%d" % i)
        found = cli.check_form("chaos", child.read_line(60))
        tap.equal((found["twice"], found["topic"], found["sent"], found["consumed"], found["verdict"]), (10, None, None, True, None))
        tap.equal(ledger.keys(), ["k%d" % i for i in range(10)])
        again = cluster.json("consume", "%%RETRY%%%s" % ledger.group, "--end")
        tap.equal(sorted(each["keys"] for each in again), ["k%d" % i for i in range(10)], "in the retry topic")


@tap.test("the same seed hits the same messages again, another seed others")
def _():
    def hit(topic, seed):
        cluster.ok("topic", "create", topic, "--queues", "4")
        cluster.wait_route(topic)
        found = cluster.json("chaos", "--topic", topic, "--seed", str(seed), "--prefix", "same-", "--send", "200", "-d", "300ms", "--twice", "20%",
                             "--twice-later", "10%", "--later", "100ms", "--drop-responses", "5%")
        tap.equal((found["sent"], found["verdict"]), (200, None))
        return [found[name] for name in ("twice", "twice_later", "dropped_responses")]  # which, tests/daemon/97-chaos.py tells

    first = hit("SeedA", 7)
    tap.check(all(0 < count < 80 for count in first), first)
    tap.equal(hit("SeedB", 7), first, "the same seed")
    tap.check(hit("SeedC", 8) != first, "another seed")


@tap.test("a group that nobody consumes for is not through")
def _():
    cluster.ok("topic", "create", "Nobody", "--queues", "1")
    cluster.wait_route("Nobody")
    found = cluster.json("chaos", "--topic", "Nobody", "--group", "nobody", "--send", "10", "-d", "100ms", "--patience", "1s", "--twice", "10%", status=cli.FAILED)
    tap.equal((found["sent"], found["consumed"]), (10, False))


@tap.test("statements through oncemq run, with their mark in the same transaction, pass")
def _():
    file = os.path.join(cluster.home, "sidecar.db")
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE booked (key TEXT)")
    cluster.ok("topic", "create", "Sidecar", "--queues", "4")
    cluster.wait_route("Sidecar")
    child = cluster.start("run", "--topic", "Sidecar", "--group", "sidecar", "--from", "first", "--key", "{body.key}", "--store", "sqlite:" + file,
                          "--sql", "INSERT INTO booked (key) VALUES (:body.key)")
    found = cluster.json("chaos", "--topic", "Sidecar", "--group", "sidecar", "-d", "2s", "--send", "150", "--seed", "3", "--store", "sqlite:" + file,
                         "--verify", COUNT_KEYS)
    tap.equal((found["verdict"], found["sent"], found["effects_once"]), ("ok", 150, 150))
    tap.check(found["records"] > 150, found)
    child.stop(30)


@tap.test("a program is asked: it gets the keys of everything that was sent, by whomever")
def _():
    cluster.ok("topic", "create", "Asked", "--queues", "2")
    cluster.wait_route("Asked")
    cluster.ok("send", "Asked", "before", "--key", "old")
    args = ["chaos", "--topic", "Asked", "--twice", "100%", "-d", "300ms", "--send", "3", "--prefix", "k-"]
    seen, times = os.path.join(cluster.home, "keys"), os.path.join(cluster.home, "times")
    right = cluster.json(*args, "--verify-exec", "echo noise; cat > %s" % seen)
    tap.equal((right["verdict"], right["sent"], right["records"], right["effects_once"]), ("ok", 3, 6, None))
    with open(seen, encoding="utf-8") as file:
        tap.equal(file.read().splitlines(), ["k-000001", "k-000002", "k-000003"])
    wrong = cluster.run(*args, "--verify-exec", "exit 3", status=cli.FAILED)
    tap.check("wrong" in wrong.err and "bad" in wrong.out, wrong)
    patient = cluster.json(*args, "--verify-exec", "echo x >> %s; [ $(wc -l < %s) -ge 3 ] || exit 75" % (times, times))
    tap.equal(patient["verdict"], "ok")
    never = cluster.run(*args, "--patience", "1s", "--verify-exec", "exit 75", status=cli.FAILED)
    tap.check("patience" in never.err, never)


@tap.test("a group that does not consume is told of; what cannot be asked, too")
def _():
    cluster.ok("topic", "create", "Nobody", "--queues", "2")
    cluster.wait_route("Nobody")
    cluster.ok("group", "set", "absent")
    with remoting.Client(cluster.broker) as client:
        client.request(remoting.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "absent", "topic": "Nobody", "queueId": 0, "commitOffset": 0})
        client.request(remoting.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "absent", "topic": "Nobody", "queueId": 1, "commitOffset": 0})
    args = ["chaos", "--topic", "Nobody", "--group", "absent", "-d", "200ms", "--send", "4", "--patience", "1s"]
    tap.check("has not consumed" in cluster.run(*args, status=cli.FAILED).err, "no word of the group")
    tap.check("empty.db" in cluster.run(*args, "--store", "sqlite:empty.db", "--verify", "SELECT 1", status=cli.FAILED).err, "no word of the file")
    tap.check(not os.path.exists(os.path.join(cluster.home, "empty.db")), "a database was made")


@tap.test("Ctrl-C ends the faults, too")
def _():
    cluster.ok("topic", "create", "Stopped")
    cluster.wait_route("Stopped")
    child = cluster.start("chaos", "--topic", "Stopped", "--twice", "10%", "-d", "10m")
    process.wait_until(plan_is_on, 20, "a plan")
    child.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.wait_until(lambda: child.exit_code is not None, 30, "its end")
    tap.equal(child.exit_code, cli.INTERRUPTED)
    tap.check(not plan_is_on(), "the plan is still on after %.1f s" % (time.monotonic() - began))


tap.main()
