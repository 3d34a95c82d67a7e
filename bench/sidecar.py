#!/usr/bin/env python3
"""`oncemq run` beside what it cannot do without.

    ONCEMQD=build/oncemqd ONCEMQ=build/oncemq BENCH_CLIENT=build/bench/bench_client BENCH_WORKER=build/bench/bench_worker bench/sidecar.py

Programs: /bin/true for each message, and the same number of fork and exec of /bin/true by as many threads, in turns; the
median of the ratios counts. A pipe: messages of 1 KiB a second, with the memory store and a worker in C that says done to
each; broker, sidecar and worker share the machine. The messages are there before the clock starts; starting the sidecar and
finding its queues is within it.
"""

import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon as daemons  # noqa: E402

ONCEMQ, CLIENT, WORKER = (os.environ.get(name) or sys.exit("set %s" % name) for name in ("ONCEMQ", "BENCH_CLIENT", "BENCH_WORKER"))
PROGRAMS, THREADS, ROUNDS = 2000, 2, 5
LINES, LINE_ROUNDS = 300000, 3
RATIO, PER_SECOND = 0.9, 50000


def verdict(good, text):
    print("%s %s" % (text, "PASS" if good else "MISS"), flush=True)


def sidecar(names, group, count, *worker):
    """Messages a second."""
    begin = time.monotonic()
    subprocess.run([ONCEMQ, "run", "--names", names, "--quiet", "--topic", "Bench", "--group", group, "--from", "first", "--key", "{msgid}",
                    "--store", "memory:", "--count", str(count), *worker], check=True, timeout=300)
    return count / (time.monotonic() - begin)


def spawns(how):
    out = subprocess.run([WORKER, how, str(PROGRAMS // THREADS), str(THREADS)], check=True, stdout=subprocess.PIPE, timeout=300).stdout
    return float(out)


def main():
    with daemons.Daemon() as daemon:
        subprocess.run([CLIENT, "async", daemon.names, "Bench", str(LINES), "1024"], check=True, stdout=subprocess.DEVNULL, timeout=300)
        ratios, spawned = [], []
        for _ in range(ROUNDS):
            bare = spawns("fork")
            ours = sidecar(daemon.names, "programs", PROGRAMS, "--exec", "/bin/true", "--parallel", str(THREADS))
            ratios.append(ours / bare)
            spawned.append(ours / spawns("posix_spawn"))
        verdict(statistics.median(ratios) >= RATIO, "a program for each message: %.2f of fork and exec alone (at least %.1f); %.2f of posix_spawn"
                % (statistics.median(ratios), RATIO, statistics.median(spawned)))
        rates = [sidecar(daemon.names, "lines%d" % i, LINES, "--pipe", WORKER) for i in range(LINE_ROUNDS)]
        verdict(max(rates) >= PER_SECOND, "a pipe: %d messages a second at best, %d in the median (at least %d)"
                % (max(rates), statistics.median(rates), PER_SECOND))


main()
