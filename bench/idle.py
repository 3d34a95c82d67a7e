#!/usr/bin/env python3
"""What the daemon costs when nobody uses it: resident memory, and the time from start to ready.

    ONCEMQD=build/oncemqd bench/idle.py

The start is compared with that of /bin/true in the same run, since a loaded machine slows both.
"""

import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon as daemons  # noqa: E402

ROUNDS = 7
RESIDENT_MB, READY_MS = 10.0, 50.0


def resident_mb(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) / 1024


def timed(action):
    begin = time.monotonic()
    result = action()
    return (time.monotonic() - begin) * 1000, result


def verdict(what, value, unit, target):
    good = value < target
    print("%s: %.1f %s (target under %g %s) %s" % (what, value, unit, target, unit, "PASS" if good else "MISS"))
    return good


def main():
    starts, own, nothing, resident = [], [], [], []
    for _ in range(ROUNDS):
        nothing.append(timed(lambda: subprocess.run(["/bin/true"], check=True))[0])
        took, daemon = timed(daemons.Daemon)
        starts.append(took)
        own.append(daemon.ready_ms)
        resident.append(resident_mb(daemon.pid))
        daemon.stop()
    start, bare = statistics.median(starts), statistics.median(nothing)
    print("start to ready line: %.1f ms as its starter sees it, %.1f times /bin/true; %d ms by its own count"
          % (start, start / bare, statistics.median(own)))
    good = verdict("ready", start, "ms", READY_MS)
    good &= verdict("idle resident memory", max(resident), "MB", RESIDENT_MB)
    sys.exit(0 if good else 1)


main()
