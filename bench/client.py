#!/usr/bin/env python3
"""A producer of liboncemq beside the official Java and Go clients and a bare socket, on one broker, in one run.

    ONCEMQD=build/oncemqd BENCH_CLIENT=build/bench/bench_client bench/client.py

Asynchronous messages of 1 KiB, 1,024 of them under way; what counts is messages per second of the client's own processor
time, because on one machine client and broker share the cores. The Java client runs in a JVM with its defaults and is
measured when it is warm, in the best of its later rounds; rounds of ours stand before and after, and their median
counts. A synchronous round trip is compared with that of a bare socket that sends the same frame and waits.

Without Java or Go their comparison is left out, and says why.
"""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import apache, daemon as daemons, process, puppet  # noqa: E402

PROGRAM = os.environ.get("BENCH_CLIENT") or sys.exit("set BENCH_CLIENT to the path of bench_client")
COUNT, FLIGHT, SYNC = 200000, 1024, 20000
JAVA_ROUNDS, GO_ROUNDS, OUR_ROUNDS = 6, 2, 3
JAVA_TIMES, GO_TIMES, SYNC_US, RESIDENT_KB, CONSUMER_KB, FIRST_MS = 3.0, 2.0, 30.0, 5000, 12000, 20.0


def ours(*args):
    result = subprocess.run([PROGRAM, *[str(each) for each in args]], stdout=subprocess.PIPE, check=True, timeout=300)
    return json.loads(result.stdout)


def our_rounds(names):
    return [ours("async", names, "Bench", COUNT, FLIGHT)["per_core"] for _ in range(OUR_ROUNDS)]


def java_best(names):
    """The best round of a warm JVM, or None with the reason printed."""
    reason = apache.missing()
    if reason:
        print("the Java client is not measured here: %s" % reason)
        return None
    home = process.temp_folder()
    child = apache.java("bench", "oncemq.interop.SendBench", names, "Bench", COUNT, JAVA_ROUNDS, home=home,
                        jvm=("-Xms512m", "-Xmx512m"))
    status, out = child.finish(600)
    if status != 0:
        sys.exit("the Java client gave up: %s" % child.tail())
    return max(json.loads(line)["per_core"] for line in out.splitlines() if line.startswith("{"))


def go_best(names):
    reason = puppet.missing_go()
    if reason:
        print("the Go client is not measured here: %s" % reason)
        return None
    go = puppet.start_go("go", names)
    go.call("producer", name="p", group="bench_go")
    best = max(go.call("bench", timeout=300, name="p", topic="Bench", count=COUNT)["per_core"] for _ in range(GO_ROUNDS))
    go.kill9()
    return best


def verdict(good, text):
    print("%s %s" % (text, "PASS" if good else "MISS"), flush=True)


def main():
    with daemons.Daemon() as daemon:
        broker = daemon.broker.replace("0.0.0.0", "127.0.0.1")
        ours("first", daemon.names, "Bench")
        first = statistics.median(ours("first", daemon.names, "Bench")["first_ms"] for _ in range(9))
        verdict(first < FIRST_MS, "start to first message: %.1f ms (below %g)" % (first, FIRST_MS))
        sync = ours("sync", daemon.names, "Bench", SYNC, broker)
        more = sync["median_us"] - sync["bare_us"]
        verdict(more <= SYNC_US, "synchronous send: %.1f us, %.1f more than a bare socket (at most %g)"
                % (sync["median_us"], more, SYNC_US))
        verdict(sync["resident_kb"] < RESIDENT_KB, "resident: %.1f MB, %.1f of it its own (below %g)"
                % (sync["resident_kb"] / 1000, sync["own_kb"] / 1000, RESIDENT_KB / 1000))
        consumer = ours("consume", daemon.names, "Bench", SYNC, "bench_consumers")
        verdict(consumer["resident_kb"] < CONSUMER_KB, "a push consumer with 20 threads, resident: %.1f MB, %.1f of it its own (below %g)"
                % (consumer["resident_kb"] / 1000, consumer["own_kb"] / 1000, CONSUMER_KB / 1000))
        rounds = our_rounds(daemon.names)
        java, go = java_best(daemon.names), go_best(daemon.names)
        rounds += our_rounds(daemon.names)
        mine = statistics.median(rounds)
        print("asynchronous messages of 1 KiB: %.0f per second of client CPU (%.0f to %.0f)"
              % (mine, min(rounds), max(rounds)))
        for name, other, times in (("Java", java, JAVA_TIMES), ("Go", go, GO_TIMES)):
            if other:
                verdict(mine / other >= times, "%.1f times the %s client's %.0f (at least %g)"
                        % (mine / other, name, other, times))


main()
