"""Redis streams: Debian's redis-server, driven by its own redis-benchmark with pipelining.

XADD to eight streams, append-only file with appendfsync everysec, or always where a work wants messages on the disk. A
pipeline of redis-benchmark is sent as a whole and waited for as a whole. Consuming is XREADGROUP with 32 entries at a time
and no acknowledgements, because redis-benchmark cannot go on from where its last answer ended.
"""

import os
import re
import shutil
import socket
import subprocess
import time

from harness import process
from .peer import NotHere, Peer, settle, wait_port
from .server import Server, Watch
from .work import BYTES_MOST

STREAMS = 8
TRIAL = 20000
PERCENT = re.compile(r"^\s*([\d.]+)% <= ([\d.]+) milliseconds", re.MULTILINE)
RATE = re.compile(r"throughput summary: ([\d.]+) requests per second")
LATENCY = re.compile(r"latency summary \(msec\):\s+avg\s+min\s+p50\s+p95\s+p99\s+max\s+([\d. ]+)")


def ask(connection, *words):
    """One command; the first line of its answer, or its whole text for short ones."""
    parts = [str(word).encode() for word in words]
    connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    return connection.recv(65536).decode(errors="replace")


def stream(number):
    return "stream:%012d" % number  # as __rand_int__ writes it


def percentile(text, percent):
    """The first that reaches it, of the distribution that redis-benchmark prints."""
    for part, milliseconds in PERCENT.findall(text):
        if float(part) >= percent:
            return float(milliseconds) * 1000
    return None


class Redis(Peer):
    key, label, orientation = "redis", "Redis streams", True

    def missing(self):
        gone = [name for name in ("redis-server", "redis-benchmark") if not shutil.which(name)]
        return "%s is not on PATH" % gone[0] if gone else None

    def version(self):
        told = subprocess.run(["redis-server", "--version"], stdout=subprocess.PIPE, check=False).stdout.decode()
        found = re.search(r"v=([\d.]+)", told)
        return found.group(1) if found else ""

    def can(self, work):
        if work.kind not in ("start", "send", "consume"):
            return "redis-benchmark has no such load"
        return "XADD takes one entry" if work.batch > 1 else "not asked of it" if work.topics > 1 else None

    def start(self, flush="async", lean=False, memory=0):
        port, = process.free_ports()
        folder = process.temp_folder("oncemq-redis-")
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                   "--appendonly", "yes", "--appendfsync", "always" if flush == "sync" else "everysec"]
        began = time.monotonic()
        child = process.Child("redis", command, os.path.join(folder, "redis.log"))
        with wait_port(port, 20, lambda: child.exit_code is None) as connection:
            if not ask(connection, "XADD", "first", "*", "body", "first").startswith("$"):
                raise NotHere("it acknowledges nothing")
        return Server([child], folder, "127.0.0.1:%d" % port, started_ms=(time.monotonic() - began) * 1000)

    def _benchmark(self, server, work, count, *words):
        port = server.address.rsplit(":", 1)[1]
        command = ["redis-benchmark", "-p", port, "-c", str(work.connections), "-P", str(work.in_flight), "-n", str(count),
                   "-r", str(STREAMS), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
        text = done.stdout.decode(errors="replace").replace("\r", "\n")
        rate, latency = RATE.search(text), LATENCY.search(text)
        if done.returncode or not rate:
            raise NotHere("redis-benchmark: %s" % text.strip()[-200:])
        row = [float(each) * 1000 for each in latency.group(1).split()]
        return {"per_second": float(rate.group(1)), "min_us": row[1], "p50_us": row[2], "p99_us": row[4], "max_us": row[5],
                "p90_us": percentile(text, 90), "p999_us": percentile(text, 99.9)}

    def measure(self, server, work):
        if work.kind == "start":
            time.sleep(1)
            rss, anon = server.memory()
            return {"start_ms": server.started_ms, "rss": rss, "anon": anon}
        return self._consume(server, work) if work.kind == "consume" else self._send(server, work)

    def _send(self, server, work):
        add = ["XADD", "stream:__rand_int__", "*", "body", "x" * work.size]
        trial = self._benchmark(server, work, min(TRIAL, BYTES_MOST // work.size // 4), *add)
        count = min(int(trial["per_second"] * self.length.seconds), BYTES_MOST // work.size)
        count = max(count // work.in_flight, 1) * work.in_flight
        with Watch(server) as watch:
            told = self._benchmark(server, work, count, *add)
        return {**told, "messages": count, "seconds": count / told["per_second"], "failures": 0,
                "cpu_us": watch.cpu_seconds * 1e6 / count, "rss": watch.rss, "anon": watch.anon}

    def _consume(self, server, work):
        self._benchmark(server, work, work.count, "XADD", "stream:__rand_int__", "*", "body", "x" * work.size)
        settle()
        with socket.create_connection(server.address.split(":")) as connection:
            for number in range(STREAMS):
                ask(connection, "XGROUP", "CREATE", stream(number), "g", "0")
            reads = work.count * 9 // 10 // 32  # some streams are shorter than others: none is read beyond its end
            one = type(work)(work.name, work.kind, work.text, connections=work.connections, in_flight=4)
            with Watch(server) as watch:
                told = self._benchmark(server, one, reads, "XREADGROUP", "GROUP", "g", "c", "COUNT", "32", "NOACK", "STREAMS",
                                       "stream:__rand_int__", ">")
            taken = sum(self._read(connection, number) for number in range(STREAMS))
        return {"per_second": told["per_second"] * taken / reads, "p50_us": told["p50_us"], "p99_us": told["p99_us"],
                "p999_us": told["p999_us"], "messages": taken, "failures": 0, "cpu_us": watch.cpu_seconds * 1e6 / max(1, taken),
                "rss": watch.rss, "anon": watch.anon}

    @staticmethod
    def _read(connection, number):
        """How many entries the group has had of that stream."""
        words = ask(connection, "XINFO", "GROUPS", stream(number)).split("\r\n")
        return int(words[words.index("entries-read") + 1].lstrip(":")) if "entries-read" in words else 0
