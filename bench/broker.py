#!/usr/bin/env python3
"""The broker against Apache RocketMQ, on the same machine, under the same load, in one run.

    ONCEMQD=build/oncemqd BENCH_BROKER=build/bench/bench_broker bench/broker.py [send] [txn] [poll] [pop] [idle] [dedup]

Both servers run with their defaults (asynchronous flush, index of keys); Apache's broker in a JVM as its own start
script makes it, with 2 GB of heap, and warm: it gets the load until it no longer becomes faster. Then both are measured
in turn, in changing order, and the one that is not measured is stopped meanwhile (SIGSTOP), so that its background
work is not felt. Each round gives one ratio, of two measurements seconds apart; the median of the rounds counts.

The generator takes part of the machine as well, the same for each message whoever answers. Where it, and not the
server, is the limit, the ratio of messages per second is too small rather than too big.

What dedup costs is measured without Apache: one daemon with it and one without, every key is new. The difference is smaller
than what a disk and a scheduler do to any single measurement, so: the data is in memory where that can be had, both stay
connected and are loaded for a quarter of a second each, in pairs of changing order; each pair gives a ratio. Told are the
median of the ratios and the interval in which the median lies in 95 % of the samples that could be drawn from them.

Without Java, Maven or the artifacts the comparison is left out, and says why; what has no ratio is measured still.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import apache, daemon as daemons, process  # noqa: E402

GENERATOR = os.environ.get("BENCH_BROKER") or sys.exit("set BENCH_BROKER to the path of bench_broker")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
SEND = {"conns": 8, "flight": 32, "size": 1024, "warm_ms": 500, "run_ms": 2000}
POLL = {"rate": 1000, "size": 1024, "warm_ms": 1000, "run_ms": 4000}
POP = {"conns": 8, "size": 1024, "count": 60000}
IDLE = {"conns": 5000, "rounds": 3}
WARM_ROUNDS, WARM_MS, WARM_GAIN = 8, 4000, 1.03
FASTER, CPU_SHARE, LATENCY_MS, IDLE_MB, POP_FASTER = 3.0, 0.25, 1.0, 40.0, 5.0
DEDUP = {"dedupKey": "UNIQ_KEY", "dedupMaxKeys": 300000}  # so that the table is full when it is measured
DEDUP_SHARE = 0.95
DEDUP_TURN = {"conns": 8, "flight": 32, "size": 1024, "warm_ms": 50, "run_ms": 250, "asked": 1}
DEDUP_PAIRS, DEDUP_WARM = 12 * ROUNDS, 10  # the warm ones fill the table
MEMORY, MEMORY_NEED = "/dev/shm", 12 << 30
TXN_SHARE = 0.5  # of half the plain sends: a transaction is two writes


class Subject:
    """A server under load."""

    def __init__(self, name, child, address):
        self.name, self.child, self.address = name, child, address
        self.pause()

    def pause(self):
        os.kill(self.child.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.child.pid, signal.SIGCONT)

    def measure(self, load, settings):
        command = [GENERATOR, load, self.address, str(self.child.pid)]
        command += ["%s=%s" % item for item in settings.items()]
        os.sync()  # what the other one has written must not be on its way to the disk any more
        self.resume()
        try:
            result = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=300)
        finally:
            self.pause()
        if result.returncode != 0:
            sys.exit("%s, %s: the generator gave up" % (self.name, load))
        return json.loads(result.stdout)

    def warm(self):
        """Under load until it becomes no faster."""
        best, rounds = 0, 0
        while rounds < WARM_ROUNDS:
            rounds += 1
            rate = self.measure("send", {**SEND, "run_ms": WARM_MS})["per_second"]
            if rate < best * WARM_GAIN and rounds >= 4:
                break
            best = max(best, rate)
        self.measure("poll", POLL)
        print("%s is warm after %d rounds of %g s" % (self.name, rounds, WARM_MS / 1000), flush=True)


def ours(name="OnceMQ", settings=None):
    daemon = daemons.Daemon(settings=settings)
    return Subject(name, daemon.child, daemon.broker.replace("0.0.0.0", "127.0.0.1"))


def theirs():
    """Apache's broker with its defaults, or None with the reason printed."""
    reason = apache.missing()
    if reason:
        print("Apache RocketMQ is not measured here: %s" % reason)
        return None
    defaults = dict.fromkeys(["mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxIndexNum",
                              "maxHashSlotNum", "warmMapedFileEnable", "transientStorePoolEnable"])
    broker = apache.Broker(None, jvm=apache.FULL_SERVER, **defaults)
    subject = Subject("Apache", broker.child, broker.address)
    subject.warm()
    return subject


def in_turn(subjects, load, settings, rounds=ROUNDS):
    """The results of each subject, round by round."""
    results = {subject.name: [] for subject in subjects}
    for number in range(rounds):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            results[subject.name].append(subject.measure(load, settings))
    return results


def medians(results):
    return {key: statistics.median(each[key] for each in results) for key in results[0]}


def ratios(results, key, one="OnceMQ", other="Apache"):
    """Of ours to theirs, one for each round, sorted."""
    return sorted(a[key] / b[key] for a, b in zip(results[one], results[other]))


def warn_if_busy():
    """Others on the machine spoil it: a JVM that gets no time never becomes warm."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    if load > cores + 1:  # one is the generator and what it loads
        print("The machine is busy (load average %.1f on %d cores): what follows or precedes means little." % (load, cores))


def verdict(good, text):
    print("%s %s" % (text, "PASS" if good else "MISS"), flush=True)
    return good


def spread(values):
    shown = values if len(values) < 10 else [*values[:3], *values[-3:]]
    return "%.2f (rounds: %s)" % (statistics.median(values), " ".join("%.2f" % value for value in shown))


def bench_send(subjects):
    results = in_turn(subjects, "send", SEND)
    for name, each in results.items():
        print("send: %-6s %8.0f/s, %6.2f us of its CPU each, p50 %6.0f p99 %6.0f p99.9 %6.0f us, %d busy, "
              "generator on %.0f %% of a core"
              % (name, *(medians(each)[key] for key in ("per_second", "cpu_us", "p50_us", "p99_us", "p999_us",
                                                         "refused")), 100 * medians(each)["own_cpu"]))
    if len(subjects) < 2:
        return True
    faster, cpu = ratios(results, "per_second"), ratios(results, "cpu_us")
    good = verdict(statistics.median(faster) >= FASTER, "send: times the messages per second of Apache: %s, target %g"
                   % (spread(faster), FASTER))
    good &= verdict(statistics.median(cpu) <= CPU_SHARE, "send: share of Apache's CPU per message: %s, target %g"
                    % (spread(cpu), CPU_SHARE))
    print("send: share of Apache's latency: p50 %s" % spread(ratios(results, "p50_us")))
    print("send: share of Apache's latency: p99 %s" % spread(ratios(results, "p99_us")))
    return good


def bench_txn():
    """Transactions beside plain sends, on ours alone."""
    subject = ours()
    shares = []
    for _ in range(ROUNDS):
        plain, txn = subject.measure("send", SEND), subject.measure("txn", SEND)
        shares.append(2 * txn["per_second"] / plain["per_second"])
        print("txn: %8.0f/s, %6.2f us of the server's CPU each, p50 %6.0f p99 %6.0f us; plain sends %8.0f/s"
              % (txn["per_second"], txn["cpu_us"], txn["p50_us"], txn["p99_us"], plain["per_second"]))
    subject.resume()
    subject.child.kill9()
    return verdict(statistics.median(shares) >= TXN_SHARE, "txn: share of half the plain sends: %s, target %g"
                   % (spread(sorted(shares)), TXN_SHARE))


def bench_poll(subjects):
    results = in_turn(subjects, "poll", POLL)
    for name, each in results.items():
        print("poll: %-6s p50 %5.0f p99 %5.0f p99.9 %5.0f us, %5.1f us of its CPU each, %d busy; the generator's "
              "timer came late by %.0f us (p99)"
              % (name, *(medians(each)[key] for key in ("p50_us", "p99_us", "p999_us", "cpu_us", "refused",
                                                         "late_p99_us"))))
    if len(subjects) > 1:
        for key in ("p50_us", "p99_us", "cpu_us"):
            print("poll: share of Apache's %s: %s" % (key[:-3], spread(ratios(results, key))))
    p99 = sorted(each["p99_us"] / 1000 for each in results["OnceMQ"])
    return verdict(statistics.median(p99) < LATENCY_MS, "poll: p99 in ms at %d messages/s: %s, target under %g"
                   % (POLL["rate"], spread(p99), LATENCY_MS))


def bench_pop(subjects):
    """Stored messages, popped and acknowledged one by one."""
    for subject in subjects[1:]:
        for _ in range(3):  # its compiler has not seen this way yet
            subject.measure("pop", POP)
    results = in_turn(subjects, "pop", POP)
    for name, each in results.items():
        print("pop: %-6s %8.0f/s, %6.2f us of its CPU each, generator on %.0f %% of a core"
              % (name, *(medians(each)[key] for key in ("per_second", "cpu_us")), 100 * medians(each)["own_cpu"]))
    if len(subjects) < 2:
        return True
    faster = ratios(results, "per_second")
    print("pop: share of Apache's CPU per message: %s" % spread(ratios(results, "cpu_us")))
    return verdict(statistics.median(faster) >= POP_FASTER, "pop: times the messages per second of Apache: %s, target %g"
                   % (spread(faster), POP_FASTER))


def bench_idle():
    subject = ours()
    got = subject.measure("idle", IDLE)
    print("idle: %.1f MB at first, %.1f with %d connections, %.1f once all have registered, %.1f at most"
          % (got["before_mb"], got["connected_mb"], IDLE["conns"], got["registered_mb"], got["most_mb"]))
    print("idle: a heartbeat takes %.1f us of the server's CPU" % got["beat_cpu_us"])
    subject.child.kill9()
    return verdict(got["cost_mb"] < IDLE_MB, "idle: %d heartbeating connections cost %.1f MB, target under %g"
                   % (IDLE["conns"], got["cost_mb"], IDLE_MB))


class Asked:
    """A daemon of ours with a generator that stays connected and loads it when it is asked to."""

    def __init__(self, name, settings, parent):
        folder = os.path.join(process.temp_folder(parent=parent), "data")
        self.name, self.daemon = name, daemons.Daemon(settings=settings, folder=folder)
        command = [GENERATOR, "send", self.daemon.broker.replace("0.0.0.0", "127.0.0.1"), str(self.daemon.child.pid)]
        command += ["%s=%s" % item for item in DEDUP_TURN.items()]
        self.generator = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self):
        self.generator.stdin.write("\n")
        self.generator.stdin.flush()
        line = self.generator.stdout.readline()
        return json.loads(line) if line else sys.exit("%s: the generator gave up" % self.name)

    def close(self):
        self.generator.stdin.close()
        self.generator.wait(timeout=30)
        self.daemon.kill9()


def interval(values, draws=2000):
    """Where the median of other such values would be, 95 of 100 times (bootstrap)."""
    chance = random.Random(1)
    found = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return found[draws // 40], found[-draws // 40]


def in_memory():
    """A folder for data that no disk slows down, or None: the usual one."""
    try:
        free = os.statvfs(MEMORY)
    except OSError:
        return None
    return MEMORY if os.access(MEMORY, os.W_OK) and free.f_bavail * free.f_frsize > MEMORY_NEED else None


def bench_dedup():
    parent = in_memory()
    print("dedup: the data is %s" % ("in memory" if parent else "where temporary files are, so the disk is measured as well"))
    sides = [Asked("with", DEDUP, parent), Asked("without", None, parent)]
    results = {side.name: [] for side in sides}
    for number in range(-DEDUP_WARM, DEDUP_PAIRS):
        for side in sides if number % 2 == 0 else reversed(sides):
            got = side.turn()
            if number >= 0:
                results[side.name].append(got)
    for side in sides:
        side.close()
    for name, each in results.items():
        print("dedup: %-7s %8.0f/s, %6.2f us of its CPU each"
              % (name, *(medians(each)[key] for key in ("per_second", "cpu_us"))))
    for key, what in ("cpu_us", "CPU per message"), ("per_second", "messages per second"):
        each = ratios(results, key, "with", "without")
        text = "dedup: times the %s: %.3f, of which 95 %%: %.3f to %.3f; %d pairs" % (
            what, statistics.median(each), *interval(each), len(each))
        if key == "cpu_us":
            print(text)
    return verdict(statistics.median(each) >= DEDUP_SHARE, "%s; target %g" % (text, DEDUP_SHARE))


def main():
    wanted = sys.argv[1:] or ["send", "txn", "poll", "pop", "idle", "dedup"]
    good = True
    warn_if_busy()
    if "idle" in wanted:
        good &= bench_idle()
    if "dedup" in wanted:
        good &= bench_dedup()
    if "txn" in wanted:
        good &= bench_txn()
    if {"send", "poll", "pop"} & set(wanted):
        other = theirs()
        subjects = [ours()] + ([other] if other else [])
        if "send" in wanted:
            good &= bench_send(subjects)
        if "poll" in wanted:
            good &= bench_poll(subjects)
        if "pop" in wanted:
            good &= bench_pop(subjects)
    warn_if_busy()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    try:
        main()
    except process.Failed as failed:
        sys.exit("bench: %s" % failed)
