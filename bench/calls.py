#!/usr/bin/env python3
"""Allocations, locks and system calls of a daemon under load, for each message.

    ONCEMQD=… ONCEMQ=… COUNT_CALLS=… bench/calls.py

Counted on the way to libc (count_calls.c), in a real daemon with all its threads, loaded by `oncemq bench --raw`: sends of 1 KiB, and pulls
of 32 of them, on 8 connections with 32 in flight and on 64 with one. How many messages one read brings depends on the machine; what
must hold does not: nothing is allocated for a message, and a connection is written to once in a turn of its loop. tests/count counts the
same where a round is always the same.

What the daemon does all by itself meanwhile is counted, too; how much that is in a second is told first.
"""

import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon as daemons, process  # noqa: E402

SHORT, LONG = 40000, 240000
ALLOCATIONS_MAX = 0.001  # a message: the keeper, the registration and whoever accepts allocate a little in the same time
COUNTER = struct.Struct("24sQ")
LOADS = (("send", "8", "32"), ("send", "64", "1"), ("consume", "8", "1"), ("consume", "64", "1"))  # connections, in flight
IDLE_SECONDS = 3


def counts(path):
    with open(path, "rb") as file:
        return {name.rstrip(b"\0").decode(): n for name, n in COUNTER.iter_unpack(file.read())}


def less(after, before):
    return {name: after[name] - before[name] for name in after}


def bench(daemon, *args):
    env = dict(os.environ, ONCEMQ_NAMES=daemon.names, HOME="/nonexistent")
    subprocess.run([os.environ["ONCEMQ"], "bench", *args, "--raw"], env=env, stdout=subprocess.DEVNULL, check=True)


def measure(daemon, path, verb, conns, flight):
    """What a message costs: the difference of a long and a short run, so that opening connections does not count."""
    spent = []
    for n in (SHORT, LONG):
        before = counts(path)
        if verb == "send":
            bench(daemon, verb, "-c", conns, "-i", flight, "--topic", "Calls", "--count", str(n))
        else:
            bench(daemon, verb, "-c", conns, "--topic", "Calls%d" % n)
        spent.append(less(counts(path), before))
    return {what: max(n, 0) / (LONG - SHORT) for what, n in less(spent[1], spent[0]).items()}


def show(name, each):
    print("%-14s %s" % (name, ", ".join("%s %.4f" % item for item in each.items() if item[1] >= 0.00005)), flush=True)


def counted_daemon(folder, settings=None):
    env = {"LD_PRELOAD": os.path.realpath(os.environ["COUNT_CALLS"]), "CALLS_FILE": os.path.join(folder, "counts")}
    return daemons.Daemon(settings=settings, env=env), env["CALLS_FILE"]


def asynchronous():
    """ASYNC_FLUSH, the default. True: what must hold does."""
    good = True
    daemon, path = counted_daemon(process.temp_folder())
    with daemon:
        before = counts(path)
        time.sleep(IDLE_SECONDS)
        show("idle, 1 s", {what: n / IDLE_SECONDS for what, n in less(counts(path), before).items()})
        for n in (SHORT, LONG):  # what is pulled later
            bench(daemon, "send", "-c", "8", "--topic", "Calls%d" % n, "--count", str(n))
        for load in LOADS:
            each = measure(daemon, path, *load)
            show(" ".join(load), each)
            good &= each["allocations"] <= ALLOCATIONS_MAX and each["sends again"] == 0
    return good


def synchronous():
    """SYNC_FLUSH: answers wait for the disk."""
    good = True
    daemon, path = counted_daemon(process.temp_folder(), {"flushDiskType": "SYNC_FLUSH"})
    with daemon:
        for load in LOADS[:2]:
            each = measure(daemon, path, *load)
            show("sync " + " ".join(load), each)
            good &= each["allocations"] <= ALLOCATIONS_MAX
    return good


def main():
    good = asynchronous()
    good &= synchronous()
    print("calls: a message allocates nothing, and a turn writes at most once to a connection: %s" % ("PASS" if good else "MISS"))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
