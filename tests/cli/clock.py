"""`oncemq clock`: what brokers' clocks show, and putting a virtual one forward."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, scene, tap  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual"])
HOUR = 3600 * 1000


@tap.test("clock show tells the time of each broker and how far it is from ours")
def _():
    shown = cluster.json("clock", "show")
    tap.equal([each["address"] for each in shown], [cluster.broker])
    tap.check(abs(shown[0]["ahead_ms"]) < 10000 and abs(shown[0]["time"] - time.time() * 1000) < 10000, shown)
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


@tap.test("a consumer that always fails climbs sixteen steps to the dead letters, a step for each advance")
def _():
    if cluster.apache:
        tap.skip("Apache's clock cannot be put forward")
    ladder = ["10s", "30s", *("%dm" % n for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)), "1h", "2h"]
    s = scene.Scene(cluster, "ladder").send({"id": 1})
    child = s.start("--exec", "false", "--parallel", "1")

    def after(pause):
        """What comes when the clock was put forward. The message may be on its way back just then: it waits from now on."""
        for _ in range(10):
            cluster.ok("clock", "advance", pause)
            try:
                return scene.event(child, "failed", "dead", timeout=3)
            except process.Failed:
                tap.check(child.exit_code is None, "oncemq run has ended")
        return {"event": "nothing"}

    tap.equal(scene.event(child, "failed")["attempt"], 1)
    for step, pause in enumerate(ladder[:-1]):
        came = after(pause)
        tap.equal((came["event"], came["attempt"]), ("failed", step + 2), "after %s" % pause)
    came = after(ladder[-1])
    tap.equal((came["event"], came["attempt"]), ("dead", 17))
    scene.stop(child)


@tap.test("a message for thirty days from now comes when thirty days were put forward, and not before")
def _():
    if cluster.apache:
        tap.skip("Apache's clock cannot be put forward")
    patient = cli.Cluster(args=["--clock", "virtual"], settings={"timerMaxDelaySec": 31 * 24 * 3600})
    patient.ok("topic", "create", "Reminders")
    patient.wait_route("Reminders")
    patient.ok("send", "Reminders", "renew it", "--delay", "30d")
    patient.ok("clock", "advance", "29d")
    patient.ok("send", "Reminders", "today")
    tap.equal([each["body"] for each in patient.json("consume", "Reminders", "--end")], ["today"])
    patient.ok("clock", "advance", "1d")
    process.wait_until(lambda: [each["body"] for each in patient.json("consume", "Reminders", "--end")] == ["today", "renew it"], 20, "the message")


tap.main()
