#!/usr/bin/env python3
"""Where the time of a send and of a pull goes, as flame graphs.

    ONCEMQD=… ONCEMQ=… COUNT_BROKER=… bench/profile.py [FOLDER]      default: bench/report

With perf, oncemqd is loaded by `oncemq bench --raw`, 8 connections with 32 sends of 1 KiB in flight or 8 pulls of 32 messages, and all
its threads are sampled, the kernel included where that is allowed. Without it, or with TOOL=callgrind, the same paths are
counted in one thread (tests/count): in instructions, without the kernel, the same on every machine.
"""

import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tests")]
import flame  # noqa: E402
from harness import callgrind, daemon as daemons, process  # noqa: E402

SECONDS, RATE, BACKLOG = 6, 250, 200000
SHORT, LONG = 2560, 2560 + 6400
PATHS = {"send": "a send of 1 KiB, 8 connections with 32 in flight", "pull": "a pull of 32 messages of 1 KiB, 8 connections"}


def perf_works():
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-g", "-o", os.path.join(place, "p"), "true"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False)
        except OSError:
            return False
        return done.returncode == 0


def modules_of(program):
    """A program lies two folders below its build folder."""
    return flame.modules_of_build(os.path.join(os.path.dirname(program), "..", ".."))


def load(daemon, *args):
    env = dict(os.environ, ONCEMQ_NAMES=daemon.names, HOME="/nonexistent")
    return subprocess.Popen([os.environ["ONCEMQ"], "bench", *args, "--raw", "-c", "8"], env=env, stdout=subprocess.DEVNULL)


def sends(daemon):
    busy = load(daemon, "send", "-i", "32", "--warmup", "0s", "-d", "%ds" % SECONDS)
    if busy.wait() != 0:
        sys.exit("oncemq bench send has failed")


def pulls(daemon):
    """The backlog again and again."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if load(daemon, "consume", "--topic", "Profile").wait() != 0:
            sys.exit("oncemq bench consume has failed")


def sampled(path):
    program = os.path.realpath(os.environ["ONCEMQD"])
    with daemons.Daemon(binary=program) as daemon, tempfile.TemporaryDirectory() as place:
        if path == "pull" and load(daemon, "send", "--topic", "Profile", "--count", str(BACKLOG)).wait() != 0:
            sys.exit("oncemq bench send has failed")
        data = os.path.join(place, "perf.data")
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(RATE), "--call-graph", "dwarf,65528", "-o", data,
                                 "-p", str(daemon.pid)])
        sends(daemon) if path == "send" else pulls(daemon)
        perf.send_signal(2)
        perf.wait(timeout=60)
        script = subprocess.run(["perf", "script", "-i", data, "--no-inline", "-F", "tid,ip,sym,dso"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, errors="replace", timeout=300, check=True)
    taught = None if callgrind.missing() else counted(path)[0]
    return flame.fold_perf(script.stdout.splitlines(), modules_of(program), os.path.basename(program), taught), "samples"


def counted(path):
    program = os.path.realpath(os.environ["COUNT_BROKER"])
    spent = callgrind.difference(program, path, "loop_run", SHORT, LONG, stacks=True)
    return flame.fold_callgrind(spent, program, "loop_run", modules_of(program)), "instructions"


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "report")
    os.makedirs(folder, exist_ok=True)
    tool = os.environ.get("TOOL") or ("perf" if perf_works() else "callgrind")
    for path, what in PATHS.items():
        stacks, unit = sampled(path) if tool == "perf" else counted(path)
        out = os.path.join(folder, "profile-%s.svg" % path)
        with open(out, "w", encoding="utf-8") as file:
            file.write(flame.draw(stacks, "OnceMQ, %s: where the time goes (%s)" % (what, tool), unit))
        print("%s: %s %s, by %s" % (os.path.relpath(out), format(sum(stacks.values()), ","), unit, tool))


if __name__ == "__main__":
    try:
        main()
    except (process.Failed, callgrind.Failed) as failed:
        sys.exit("profile: %s" % failed)
