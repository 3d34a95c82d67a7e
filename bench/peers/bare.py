"""The physical limit: a responder that does nothing but answer (bare.c), and bare appends and syncs (limits.c).

For synchronous flush the responder writes and syncs what it has read before it answers, and that is all it does."""

import json
import os
import subprocess

from harness import process
from . import generator
from .peer import Peer
from .rocket import Rocket
from .server import Server


class Bare(Rocket):
    key, label = "bare", "bare responder"

    def can(self, work):
        possible = work.kind in ("send", "consume") and work.topics == 1
        return None if possible else "it keeps nothing"

    def start(self, flush="async", lean=False, memory=0):
        port, = process.free_ports()
        folder = process.temp_folder("oncemq-bare-")
        command = [os.environ["BENCH_BARE"], str(port), "1024"] + ([folder] if flush == "sync" else [])
        child = process.Child("bare", command, os.path.join(folder, "bare.log"))
        child.wait_line(lambda line: line == "ready", 10)
        address = "127.0.0.1:%d" % port
        return Server([child], folder, address, address)

    def _consume(self, server, work):
        """Its queues have no end, so nothing is written first."""
        return generator.watched(server, work, "wait for the next batch", "messages", "consume", "--topic",
                                 "bench-peers-bare", "-c", work.connections, "--count", work.count, "--batch", 32)


class Limits(Peer):
    """No server at all: loops that append, in two ways, and that sync."""
    key, label = "limits", "bare append and sync"
    rehearses = False

    def can(self, work):
        one = work.kind == "send" and work.batch == 1 and work.topics == 1 and (work.connections, work.in_flight) == (8, 32)
        return None if one else "the same as at 8 × 32"

    def start(self, flush="async", lean=False, memory=0):
        return Server([], process.temp_folder("oncemq-limits-"))

    def measure(self, server, work):
        command = [os.environ["BENCH_LIMITS"], server.folder, str(work.size), str(round(self.length.seconds * 300))]
        told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout)
        main = told["sync"] if work.flush == "sync" else told["append"]
        return {"per_second": main["per_second"], "cpu_us": main["cpu_us"], "write_cpu_us": told["write"]["cpu_us"], "syncs": told["sync"]["syncs"],
                "syncs_over": told["sync_over"]["syncs"]}
