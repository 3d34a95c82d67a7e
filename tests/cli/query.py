"""`oncemq query`: messages by id, by key, by time."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, tap  # noqa: E402

cluster = cli.Cluster()


def found(*args):
    """A broker finds a message some moments after it was stored."""
    return process.wait_until(lambda: cluster.run("query", *args).status == cli.OK and cluster.json("query", *args), 20, "query %s" % (args,))


@tap.test("by unique id and by the id of its place, with a topic and without")
def _():
    cluster.ok("send", "Other", "x")
    sent, = cluster.json("send", "Ids", "body\n", "--key", "k", "--tag", "t", "--prop", "a=1")
    for args in (("Ids", "--id", sent["id"]), ("--id", sent["id"]), ("Ids", "--id", sent["offset_id"]), ("--id", sent["offset_id"])):
        one, = found(*args)
        tap.equal([one[name] for name in ("id", "offset_id", "topic", "queue", "offset", "tag", "keys", "body")],
                  [sent["id"], sent["offset_id"], "Ids", sent["queue"], sent["offset"], "t", "k", "body\n"])
        tap.equal(one["properties"]["a"], "1")
    shown = cluster.ok("query", "--id", sent["id"]).out.splitlines()
    tap.check(shown[0].startswith("STORED ") and shown[1].endswith("  t    k     body\\n"), shown)


@tap.test("by key: every message with that word among its keys, and no other")
def _():
    cluster.ok("send", "Keys", "m{n}", "--key", "all each-{n}", "--count", "20")
    tap.equal([each["body"] for each in found("Keys", "--key", "each-7")], ["m7"])
    process.wait_until(lambda: len(found("Keys", "--key", "all")) == 20, 20, "all of them are found")
    tap.equal(cluster.run("query", "Keys", "--key", "each").status, cli.NOT_FOUND)
    last = max(each["stored_ms"] for each in cluster.json("query", "Keys", "--key", "all"))
    tap.equal(cluster.run("query", "Keys", "--key", "all", "--from", str(last + 3600000)).status, cli.NOT_FOUND)


@tap.test("by time, in the order of storing, at most so many")
def _():
    cluster.ok("send", "Times", "old {n}", "--count", "20")
    newest = max(each["stored_ms"] for each in cluster.json("consume", "Times", "--end"))
    process.wait_until(lambda: time.time() * 1000 > newest + 5, 5, "the next moment")
    middle = str(int(time.time() * 1000))
    cluster.ok("send", "Times", "new {n}", "--count", "10")
    tap.equal({each["body"][:3] for each in cluster.json("query", "Times", "--to", middle)}, {"old"})
    tap.equal(sorted(each["body"] for each in cluster.json("query", "Times", "--from", middle)), sorted("new %d" % n for n in range(1, 11)))
    several = cluster.json("query", "Times", "--from", "-1h", "--count", "25")
    tap.equal(len(several), 25)
    tap.equal([each["stored_ms"] for each in several], sorted(each["stored_ms"] for each in several))
    tap.check("--count" in cluster.ok("query", "Times", "--from", "-1h", "--count", "5").err, "that there are more is not said")
    tap.equal(cluster.run("query", "Times", "--from", "+1h").status, cli.NOT_FOUND)


@tap.test("what is not there, or makes no sense, is said")
def _():
    for args in ((), ("Ids",), ("--key", "k"), ("Ids", "--key", "k", "--id", "i"), ("Ids", "--key", "k", "--count", "0"), ("Ids", "--from", "soon")):
        cluster.run("query", *args, status=cli.USAGE)
    for args in (("--id", "0" * 32), ("Ids", "--id", "nobody"), ("Ids", "--key", "nobody"), ("Nowhere", "--key", "k"), ("Nowhere", "--from", "-1h")):
        tap.equal(cluster.run("query", *args).status, cli.NOT_FOUND, args)


tap.main()
