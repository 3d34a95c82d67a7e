"""Rounds: every work on every peer in turn, again and again.

    for each round                       the order of peers is turned by one each time
        for each work
            for each peer that has it    the others stand still or are not there

So what is compared lies seconds apart, and a slow minute of the machine meets all of them. What the one before has
written is on the disk, or gone with its folder, before the next one begins.
"""

import os
import subprocess
import sys
import time
import traceback

from harness import process
from .memory import make_ready
from .peer import NotHere

REST_SECONDS = 5


class Stage:
    """The servers that stay: warm, and standing still while it is not their turn."""

    def __init__(self, warm):
        self.warm, self.waiting, self.rehearsed = warm, {}, set()

    def take(self, peer, flush):
        server = self.waiting.pop((peer.key, flush), None)
        if server:
            server.thaw()
            return server
        server = peer.start(flush)
        if self.warm:
            peer.warm(server)
        return server

    def give_back(self, peer, flush, server):
        server.freeze()
        self.waiting[peer.key, flush] = server

    def rehearse(self, peer, work, server):
        """A virtual machine compiles what it has seen a while: it sees each work once before it counts."""
        if self.warm and (peer.key, work.name) not in self.rehearsed:
            self.rehearsed.add((peer.key, work.name))
            peer.measure(server, work)

    def close(self):
        for server in self.waiting.values():
            server.stop()


def rehearse(peer, server, work):
    """Where the disk is what is measured, a server may prepare what it will write to: each has done the work once
    before it counts, and then nobody wants anything of it for some seconds. Java's servers have that anyway."""
    peer.measure(server, work)
    os.sync()
    time.sleep(REST_SECONDS)
    make_ready(work.bytes_most)  # what lay idle for seconds is the host's again


def measure(stage, peer, work):
    os.sync()
    if stage.warm:
        make_ready(work.bytes_most)
    if peer.quick_to_start or work.kind in ("start", "backlog"):
        server = peer.start(work.flush, lean=work.kind == "start", memory=work.memory)
        try:
            if stage.warm and work.flush == "sync" and peer.rehearses:
                rehearse(peer, server, work)
            return peer.measure(server, work)
        finally:
            server.stop()
    server = stage.take(peer, work.flush)
    try:
        stage.rehearse(peer, work, server)
        return peer.measure(server, work)
    except Exception:
        server.stop()  # what it is in now is not known
        server = None
        raise
    finally:
        if server:
            stage.give_back(peer, work.flush, server)


def say(number, peer, work, values, took):
    rate, p99, start = values.get("per_second"), values.get("p99_us"), values.get("start_ms")
    told = [text for text in (rate and "%.0f/s" % rate, p99 and "p99 %.0f µs" % p99,
                              values.get("cpu_us") and "%.2f µs of CPU" % values["cpu_us"],
                              start and "%.0f ms to start" % start,
                              values.get("anon") and "%.0f MB anonymous" % (values["anon"] / 1e6)) if text]
    print("round %d  %-15s %-13s %s  (%.1f s)" % (number + 1, work.name, peer.key, ", ".join(told), took), flush=True)


def run(book, peers, works, count, warm=True, seconds=None):
    """`count` rounds, or as much of them as fits into that time."""
    stage = Stage(warm)
    end = time.monotonic() + seconds if seconds else None
    try:
        for number in range(count):
            turned = peers[number % len(peers):] + peers[:number % len(peers)]
            for work in works:
                for peer in turned:
                    if end and time.monotonic() > end:
                        print("the time is over", flush=True)
                        return
                    if not peer.can(work) and not book.has(number, peer.key, work.name):
                        _one(stage, book, number, peer, work)
    finally:
        stage.close()


def _brief(error):
    """What a report can say of it: no command lines."""
    if not isinstance(error, subprocess.SubprocessError):
        return error
    how = "did not end in time" if isinstance(error, subprocess.TimeoutExpired) else "ended with %s" % error.returncode
    return "%s %s" % (os.path.basename(error.cmd[0]), how)


def _one(stage, book, number, peer, work):
    began = time.monotonic()
    try:
        values = measure(stage, peer, work)
    except (NotHere, process.Failed, OSError, subprocess.SubprocessError) as error:
        reason = _brief(error)
        print("round %d  %-15s %-13s failed: %s" % (number + 1, work.name, peer.key, reason), flush=True)
        if os.environ.get("TRACE"):
            traceback.print_exc(file=sys.stdout)
        book.add(number, peer.key, work.name, failed=str(reason)[:300])
        return
    book.add(number, peer.key, work.name, values)
    say(number, peer, work, values, time.monotonic() - began)
