"""Apache Kafka in KRaft mode: server and performance tools from Maven Central (kafka/pom.xml).

Driven by its own ProducerPerformance and ConsumerPerformance with their defaults: one producer that makes batches of what
waits, so its shape is not that of the other works, and only the fullest of each size is asked of it. Both are Java programs
that start cold and share the cores with the server, which stays warm. Synchronous flush is log.flush.interval.messages=1. The
time to start is until it answers a first request, not a first message.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
import uuid

from harness import process
from .peer import NotHere, Peer, cache_folder, settle, wait_port
from .server import Server, Watch
from .work import BYTES_MOST

POM = pathlib.Path(__file__).parent / "kafka" / "pom.xml"
VERSION = re.search(r"kafka_2.13</artifactId>\s*<version>([\d.]+)", POM.read_text()).group(1)
HEAP = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent")  # those of its own start script
MAVEN_SECONDS = 600
RATE_GUESS, SYNC_GUESS = 120000, 4000  # records a second: the tool wants a number, not a time
SENT = re.compile(r"(\d+) records sent, ([\d.]+) records/sec.* ([\d.]+) ms max latency, (\d+) ms 50th, \d+ ms 95th, "
                  r"(\d+) ms 99th, (\d+) ms 99.9th")
# It stands still for minutes while others are measured, and must not take itself for lost afterwards.
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=8
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=36000000
"""


class Kafka(Peer):
    key, label, orientation, quick_to_start = "kafka", "Kafka", True, False
    backlogs = 0

    def missing(self):
        for tool in ("java", "mvn"):
            if not shutil.which(tool):
                return "%s is not on PATH" % tool
        listing = os.path.join(cache_folder(), "kafka-%s.txt" % hashlib.sha256(POM.read_bytes()).hexdigest()[:16])
        if not os.path.exists(listing):
            command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:build-classpath", "-Dmdep.outputFile=%s.new" % listing]
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      timeout=MAVEN_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return "Maven did not finish within %d s" % MAVEN_SECONDS
            if done.returncode:
                return "Maven cannot provide it: %s" % done.stdout.decode(errors="replace").strip()[-200:]
            os.replace(listing + ".new", listing)
        with open(listing) as source:
            self.classpath = source.read().strip()
        return None

    def version(self):
        return VERSION

    def can(self, work):
        full = (work.connections, work.in_flight) == (8, 32) and work.batch == 1 and work.topics == 1
        return None if work.kind in ("start", "consume") or (work.kind == "send" and full) else "its tools have no such load"

    def start(self, flush="async", lean=False, memory=0):
        port, control = process.free_ports(2)
        folder = process.temp_folder("oncemq-kafka-")
        config = os.path.join(folder, "server.properties")
        with open(config, "w") as out:
            out.write(SETTINGS.format(port=port, control=control, folder=folder))
            out.write("log.flush.interval.messages=1\n" if flush == "sync" else "")
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().strip("=").replace("-", "A")  # with one in front it is an option
        subprocess.run(["java", "-cp", self.classpath, "kafka.tools.StorageTool", "format", "-t", name, "-c", config],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=120)
        began = time.monotonic()
        child = process.Child("kafka", ["java", *HEAP, "-cp", self.classpath, "kafka.Kafka", config],
                              os.path.join(folder, "kafka.log"))
        with wait_port(port, 120, lambda: child.exit_code is None) as connection:
            connection.settimeout(60)
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # ApiVersions
            if not connection.recv(4):
                raise NotHere("it answers nothing")
        server = Server([child], folder, "127.0.0.1:%d" % port, started_ms=(time.monotonic() - began) * 1000)
        server.guess = SYNC_GUESS if flush == "sync" else RATE_GUESS
        return server

    def warm(self, server):
        self._produce(server, "warm", 1024, server.guess * 2)

    def _tool(self, name, *more):
        command = ["java", "-Xmx512m", "-cp", self.classpath, "org.apache.kafka.tools." + name, *[str(each) for each in more]]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300, check=False)
        return done.stdout.decode(errors="replace")

    def _produce(self, server, topic, size, count):
        text = self._tool("ProducerPerformance", "--topic", topic, "--num-records", count, "--record-size", size, "--throughput", -1,
                          "--producer-props", "bootstrap.servers=" + server.address)
        found = SENT.search(text.strip().split("\n")[-1])
        if not found:
            raise NotHere("ProducerPerformance: %s" % text.strip()[-200:])
        return [float(each) for each in found.groups()]

    def measure(self, server, work):
        if work.kind == "start":
            time.sleep(1)
            rss, anon = server.memory()
            return {"start_ms": server.started_ms, "rss": rss, "anon": anon}
        if work.kind == "consume":
            return self._consume(server, work)
        count = int(min(server.guess * self.length.seconds, BYTES_MOST // work.size))
        with Watch(server) as watch:
            messages, rate, most, p50, p99, p999 = self._produce(server, "bench", work.size, count)
        return {"per_second": rate, "messages": messages, "failures": count - messages, "p50_us": p50 * 1e3, "p99_us": p99 * 1e3,
                "p999_us": p999 * 1e3, "max_us": most * 1e3, "cpu_us": watch.cpu_seconds * 1e6 / max(1, messages), "rss": watch.rss,
                "anon": watch.anon}

    def _consume(self, server, work):
        self.backlogs += 1
        topic = "backlog-%d" % self.backlogs
        self._produce(server, topic, work.size, work.count)
        settle()
        with Watch(server) as watch:
            text = self._tool("ConsumerPerformance", "--topic", topic, "--messages", work.count, "--bootstrap-server", server.address)
        rows = [line.split(", ") for line in text.strip().split("\n")]
        if len(rows[-1]) < 10:
            raise NotHere("ConsumerPerformance: %s" % text.strip()[-200:])
        return {"per_second": float(rows[-1][9]), "messages": int(rows[-1][4]), "failures": 0,
                "cpu_us": watch.cpu_seconds * 1e6 / max(1, int(rows[-1][4])), "rss": watch.rss, "anon": watch.anon}
