"""A server that is measured: its processes, their processor time and memory, and standing still.

Processor time is the kernel's own count for the whole process (the clock of clock_getcpuclockid), so that a second of
it is known to the microsecond. Memory is what /proc/PID/status says: resident, and the part of it that is anonymous,
which is the process's own; the rest are pages of files, which the kernel takes back when it needs them.
"""

import os
import shutil
import signal
import threading
import time

from harness import process

SAMPLE_SECONDS = 0.1
MIB = 1 << 20


def cpu_seconds(pid):
    return time.clock_gettime(~pid << 3 | 2)


def memory(pid):
    """Resident and anonymous bytes."""
    found = {}
    with open("/proc/%d/status" % pid) as source:
        for line in source:
            name, _, value = line.partition(":")
            if name in ("VmRSS", "RssAnon"):
                found[name] = int(value.split()[0]) * 1024
    return found.get("VmRSS", 0), found.get("RssAnon", 0)


class Server:
    """Running processes that are one server, and the folder they keep their data in."""

    def __init__(self, children, folder=None, address=None, names=None, started_ms=None):
        self.children, self.folder = children, folder
        self.address, self.names = address, names
        self.started_ms = started_ms  # from nothing to the first acknowledged message

    @property
    def pids(self):
        return [child.pid for child in self.children]

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in self.pids)

    def memory(self):
        parts = [memory(pid) for pid in self.pids]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)

    def freeze(self):
        for pid in self.pids:
            process.freeze(pid)

    def thaw(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)
        self.awake()

    def awake(self):
        """Waits until it serves again; a peer whose servers need a moment puts its own way here."""

    def stop(self):
        for child in self.children:
            child.kill9()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class Watch:
    """What a server used between enter and exit: seconds of processor time, and the most memory that was seen.

        with Watch(server) as watch:
            …
        watch.cpu_seconds, watch.rss, watch.anon
    """

    def __init__(self, server):
        self.server = server
        self.cpu_seconds = self.rss = self.anon = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        self._before = self.server.cpu_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.cpu_seconds = self.server.cpu_seconds() - self._before

    def _sample(self):
        while True:
            try:
                rss, anon = self.server.memory()
            except OSError:  # it has ended; whoever waits for it will tell
                return
            self.rss, self.anon = max(self.rss, rss), max(self.anon, anon)
            if self._over.wait(SAMPLE_SECONDS):
                return
