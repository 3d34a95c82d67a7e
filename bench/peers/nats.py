"""NATS JetStream: its server and client from the Go module proxy, driven by a small program of ours (nats/main.go).

Messages go asynchronously to one stream in files with eight subjects, as many under way as the work says, and count when
the stream has acknowledged them. Synchronous flush is `sync_interval: always`. Its own command line, which has a bench,
cannot be had through the module proxy.
"""

import json
import os
import pathlib
import shutil
import subprocess
import time

from harness import process
from .peer import NotHere, Peer, cache_folder, settle
from .server import Server, Watch
from .work import BYTES_MOST

SERVER, VERSION = "github.com/nats-io/nats-server/v2", "v2.15.2"
LOAD = pathlib.Path(__file__).parent / "nats"
BUILD_SECONDS = 600


def go(*arguments, **env):
    try:
        done = subprocess.run(["go", *arguments], cwd=LOAD, env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "go did not finish within %d s" % BUILD_SECONDS
    text = done.stdout.decode(errors="replace").strip()
    return "go: %s" % text.split("\n")[-1][:200] if done.returncode else None


class Nats(Peer):
    key, label, orientation = "nats", "NATS JetStream", True

    def __init__(self, length):
        super().__init__(length)
        self.server = os.path.join(cache_folder(), "nats-" + VERSION, "nats-server")
        self.load = os.path.join(cache_folder(), "nats-load")

    def missing(self):
        if not shutil.which("go"):
            return "go is not on PATH"
        reason = None
        if not os.path.exists(self.server):
            reason = go("install", "%s@%s" % (SERVER, VERSION), GOBIN=os.path.dirname(self.server))
        return reason or go("build", "-o", self.load, ".")

    def version(self):
        return VERSION.strip("v")

    def can(self, work):
        if work.kind in ("idle", "backlog"):
            return "not asked of it"
        return "it has no such batches" if work.batch > 1 else "not asked of it" if work.topics > 1 else None

    def start(self, flush="async", lean=False, memory=0):
        port, = process.free_ports()
        folder = process.temp_folder("oncemq-nats-")
        config = os.path.join(folder, "nats.conf")
        with open(config, "w") as out:
            out.write('host: "127.0.0.1"\nport: %d\nmax_payload: 1MB\njetstream {\n  store_dir: "%s"\n  max_file: 20GB\n' % (port, folder))
            out.write("  sync_interval: always\n}\n" if flush == "sync" else "}\n")
        began = time.monotonic()
        child = process.Child("nats", [self.server, "-c", config], os.path.join(folder, "nats.log"))
        server = Server([child], folder, "127.0.0.1:%d" % port)
        self._run(server, "first")
        server.started_ms = (time.monotonic() - began) * 1000
        return server

    def _command(self, server, mode, *more):
        return [self.load, "-url", "nats://" + server.address, "-mode", mode, *[str(each) for each in more]]

    def _run(self, server, mode, *more):
        done = subprocess.run(self._command(server, mode, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=300, check=False)
        if done.returncode:
            raise NotHere("its load ended: %s" % done.stderr.decode(errors="replace")[-300:])
        return json.loads(done.stdout)

    def measure(self, server, work):
        if work.kind == "start":
            time.sleep(1)
            rss, anon = server.memory()
            return {"start_ms": server.started_ms, "rss": rss, "anon": anon}
        if work.kind == "consume":
            return self._consume(server, work)
        seconds = self.length.e2e_seconds if work.rate else self.length.seconds
        mode = "e2e" if work.kind in ("e2e", "both") else "send"
        with Watch(server) as watch:
            told = self._run(server, mode, *self._shape(work), "-ms", round(seconds * 1000), "-warm", self.length.warm_ms,
                             "-rate", work.rate, "-count", BYTES_MOST // work.size if mode == "send" else 0)
        return self._with(told, watch)

    def _shape(self, work):
        return "-c", work.connections, "-i", work.in_flight, "-size", work.size

    def _consume(self, server, work):
        """It fills the stream, tells so, and reads when it is told to."""
        command = self._command(server, "consume", *self._shape(work), "-count", work.count)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
            load.stdout.readline()
            settle()
            with Watch(server) as watch:
                out, _ = load.communicate(b"\n", timeout=300)
        return self._with(json.loads(out), watch)

    @staticmethod
    def _with(told, watch):
        told.update(cpu_us=watch.cpu_seconds * 1e6 / max(1, told.pop("stored")), rss=watch.rss, anon=watch.anon)
        return told
