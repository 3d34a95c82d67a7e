"""`oncemq clock`: what brokers' clocks show, and putting a virtual one forward."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, tap  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual"])
HOUR = 3600 * 1000


@tap.test("clock show tells the time of each broker and how far it is from ours")
def _():
    shown = cluster.json("clock", "show")
    tap.equal([each["address"] for each in shown], [cluster.broker])
    tap.check(abs(shown[0]["ahead_ms"]) < 2000 and abs(shown[0]["time"] - time.time() * 1000) < 10000, shown)
    tap.check(cluster.ok("clock", "show", "--broker", shown[0]["broker"]).out.startswith("BROKER"), "no table")
    tap.check("no broker" in cluster.run("clock", "show", "--broker", "none", status=cli.NOT_FOUND).err, "a broker that is not there")


@tap.test("clock advance puts a virtual clock forward; any other broker refuses, and it is said why")
def _():
    if cluster.apache:
        tap.check("--clock virtual" in cluster.run("clock", "advance", "2h", status=cli.FAILED).err, "no hint")
        return
    before = cluster.json("clock", "show")[0]["ahead_ms"]
    advanced = cluster.json("clock", "advance", "2h")[0]
    tap.equal(advanced["advanced"], 2 * HOUR)
    tap.check(abs(advanced["time"] - time.time() * 1000 - 2 * HOUR) < 30000, advanced)
    tap.check(abs(cluster.json("clock", "show")[0]["ahead_ms"] - before - 2 * HOUR) < 10000, "it has not moved")
    with_system = cli.Cluster()
    refused = with_system.run("clock", "advance", "1s", status=cli.FAILED)
    tap.check("--clock virtual" in refused.err, refused)


@tap.test("a duration that is none is refused")
def _():
    tap.check("90s" in cluster.run("clock", "advance", "soon", status=cli.USAGE).err, "no example")
    tap.check("hundred years" in cluster.run("clock", "advance", "40000d", status=cli.FAILED).err or cluster.apache, "too far")


tap.main()
