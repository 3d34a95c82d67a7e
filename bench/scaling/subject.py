"""A daemon of some size, and the generator that stays connected to it."""

import json
import os
import signal
import subprocess
import time

from harness import daemon as daemons, process

GENERATOR = os.environ.get("BENCH_BROKER")
SETTINGS = {
    "diskMaxUsedSpaceRatio": 95,
    "defaultTopicQueueNums": 1024,  # for `queues`: topics are made by their first message
    "maxConnections": 6000,         # the rest of the process's descriptors is for files
    "brokerName": "broker-a",
}
SETTLE_S = 1.3  # what is put off for a second has happened then


class Subject:
    def __init__(self, size, load, settings=None, args=(), binary=None, folder=None, ready_timeout=60.0,
                 roles=None):
        self.size, self.load = size, dict(load)
        self.daemon = daemons.Daemon(binary=binary, settings={**SETTINGS, **(settings or {})}, args=args, folder=folder,
                                     ready_timeout=ready_timeout, roles=roles)
        self.generator = None

    def connect(self):
        command = [GENERATOR, "grow", self.daemon.broker.replace("0.0.0.0", "127.0.0.1"), str(self.daemon.pid)]
        command += ["%s=%s" % item for item in self.load.items()]
        self.generator = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.generator.stdout.readline()
        if not line:
            raise process.Failed("the generator gave up (%s)" % self.load)
        return json.loads(line)

    def turn(self, verb, count):
        """So many requests; when it returns all are answered."""
        self.generator.stdin.write("%s %d\n" % (verb, count))
        self.generator.stdin.flush()
        return self.answer()

    def cpu_ns(self):
        """Of all threads, also those that have ended."""
        return time.clock_gettime_ns(cpu_clock(self.daemon.pid))

    def ticks(self):
        """The same by user and system, in hundredths of a second."""
        with open("/proc/%d/stat" % self.daemon.pid, encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]), int(fields[12])

    def measure(self, verb, count):
        """Microseconds of the server for each request, what it puts off included; and how many it took in a second."""
        before, (user, system) = self.cpu_ns(), self.ticks()
        result = self.turn(verb, count)
        time.sleep(SETTLE_S)
        after = self.ticks()
        return {"cpu_us": (self.cpu_ns() - before) / 1000 / count, "per_second": count / result["seconds"],
                "user": after[0] - user, "system": after[1] - system}

    def memory(self):
        """MB that the process has of its own, and of mapped files."""
        with open("/proc/%d/status" % self.daemon.pid, encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return {name: int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")}

    def disconnect(self):
        if self.generator:
            self.generator.stdin.close()
            self.generator.wait(timeout=60)
            self.generator = None

    def stop(self, timeout=120):
        """A clean stop, however long it takes; returns the seconds."""
        self.disconnect()
        child, self.daemon.child = self.daemon.child, None
        begin = time.monotonic()
        child.stop(timeout)
        return time.monotonic() - begin

    def close(self):
        if self.generator:
            self.generator.send_signal(signal.SIGKILL)
            self.generator.wait(timeout=60)
            self.generator = None
        self.daemon.kill9()


def cpu_clock(pid):
    """The clock of a process's processor time, as clock_getcpuclockid makes it."""
    return (~pid << 3) | 2
