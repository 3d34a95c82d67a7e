"""The measuring rig (bench/peers) itself: a quick run with OnceMQ and the bare limits alone gives a whole report.

Nothing here depends on speed: only that all works run, that nothing failed, and that each number has its place.
"""

import json
import os
import pathlib
import subprocess
import sys
import xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import process, tap  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"
OUT = pathlib.Path(process.temp_folder()) / "report"
PEERS, WORK = "oncemq bare limits", "start send-1k-8x32 batch-128 sync consume e2e-1000 both topics idle"


def rig(**settings):
    env = {**os.environ, "OUT": str(OUT), "QUICK": "1", "PEERS": PEERS, **settings}
    return subprocess.run([sys.executable, "-m", "peers"], cwd=BENCH, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=False)


def rows():
    return json.loads((OUT / "rounds.json").read_text())["rows"]


@tap.test("every work is measured on every peer that has it, and none fails")
def _():
    done = rig(WORK=WORK)
    tap.equal(done.returncode, 0, done.stdout)
    found = {(row["peer"], row["work"]) for row in rows()}
    wanted = {("oncemq", work) for work in ("start", "send-1k-8x32", "batch-128-32", "sync-1k-8x32", "consume-1k", "e2e-1000",
                                            "both-1k", "topics-1000", "idle-5000")}
    wanted |= {("bare", work) for work in ("send-1k-8x32", "batch-128-32", "sync-1k-8x32", "consume-1k")}
    wanted |= {("limits", work) for work in ("send-1k-8x32", "sync-1k-8x32")}
    tap.equal(found, wanted)
    tap.equal([row for row in rows() if row.get("failed") or row.get("failures")], [])


@tap.test("a measurement has its rate, its percentiles, the server's processor time and memory")
def _():
    row, = [row for row in rows() if (row["peer"], row["work"]) == ("oncemq", "send-1k-8x32")]
    for field in ("per_second", "p50_us", "p99_us", "p999_us", "cpu_us", "rss", "anon", "messages", "generator"):
        tap.check(row.get(field), "%s in %s" % (field, row))
    tap.check(row["p50_us"] <= row["p99_us"] <= row["p999_us"], row)
    started, = [row for row in rows() if row["work"] == "start"]
    tap.check(started["start_ms"] and started["rss"] > started["anon"] > 0, started)
    synced, = [row for row in rows() if (row["peer"], row["work"]) == ("limits", "sync-1k-8x32")]
    tap.check(synced["syncs"], synced)


@tap.test("the report tells targets, ratios and what was not measured; the plots are pictures")
def _():
    text = (OUT / "README.md").read_text()
    tap.check("| … the bare responder's | ≥ 0.5× |" in text, text)
    tap.check("not measured" in text, "targets that need Apache RocketMQ")
    tap.check("medians of 1 round;" in text, text)
    for title in ("Targets", "Where OnceMQ is behind", "Messages per second", "Latency", "processor time", "Start-up and memory"):
        tap.check(title in text, title)
    for name in ("throughput", "latency", "memory", "startup"):
        xml.dom.minidom.parse(str(OUT / (name + ".svg")))


@tap.test("RESUME goes on with what is in the book; a name that nobody has is told")
def _():
    before = rows()
    tap.equal(rig(WORK="send-1k-8x32 consume", RESUME="1").returncode, 0)
    tap.equal(rows(), before)
    done = rig(WORK="nothing")
    tap.check(done.returncode != 0 and "no such work" in done.stdout, done.stdout)


@tap.test("a measurement whose generator ends badly is told as failed, and the run goes on with the next")
def _():
    done = rig(WORK="send-1k-8x32 start", PEERS="limits oncemq", BENCH_LIMITS="false")
    tap.equal(done.returncode, 0, done.stdout)
    found = {row["peer"]: row.get("failed") for row in rows() if row["work"] == "send-1k-8x32"}
    tap.equal(found, {"limits": "false ended with 1", "oncemq": None})


tap.main()
