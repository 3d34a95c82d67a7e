"""Peers that speak the remoting protocol, all driven in the same way: OnceMQ, Apache RocketMQ, the bare responder."""

import resource
import socket
import subprocess
import time

from harness import apache, process, remoting
from . import generator, limit
from .peer import NotHere, Peer, settle

TOPIC, MANY, BACKLOG = "bench-peers", "bench-peers-many", "bench-peers-backlog"
WARM_ROUNDS, WARM_SECONDS, WARM_GAIN = 8, 3, 1.03
FIRST_ACK_SECONDS = 60
SETTLE_SECONDS = 1.0


def first_ack(address):
    """Sends until it is acknowledged."""
    deadline = time.monotonic() + FIRST_ACK_SECONDS
    while time.monotonic() < deadline:
        try:
            with remoting.Client(address) as client:
                if client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2(TOPIC, b"first")).code == 0:
                    return
        except (OSError, remoting.Closed):
            pass
        time.sleep(0.005)
    raise process.Failed("%s acknowledges nothing" % address)


class Rocket(Peer):
    def can(self, work):
        return None

    def measure(self, server, work):
        return getattr(self, "_" + work.kind)(server, work)

    # ---- the kinds of work ----

    def _start(self, server, _work):
        """It has started: what it took, and what it has when nothing is asked of it."""
        time.sleep(SETTLE_SECONDS)
        rss, anon = server.memory()
        return {"start_ms": server.started_ms, "rss": rss, "anon": anon}

    def _timed(self, seconds=None):
        return ["-d", generator.milliseconds(seconds or self.length.seconds),
                "--warmup", "%dms" % self.length.warm_ms]

    def _send(self, server, work):
        topic = MANY if work.topics > 1 else TOPIC
        if work.topics > 1:  # making them is not what is measured
            generator.run(server.names, "send", "--topic", topic, "--topics", work.topics, "-c", 1, "--count", work.topics)
        return generator.watched(server, work, "send", "stored", "send", "--topic", topic, *generator.shape(work),
                                 *self._timed(), "--count", work.count_most)

    def _fill(self, server, work, topic):
        batch = 32 if work.size <= 4096 else 1
        generator.run(server.names, "send", "--topic", topic, "-c", 4, "-i", 8, "--size", work.size, "--batch", batch,
                      "--count", work.count)
        apache.wait_dispatched(server.address)

    def _consume(self, server, work):
        self.backlogs = getattr(self, "backlogs", 0) + 1
        topic = "%s-%d" % (BACKLOG, self.backlogs)  # each is read once: a server that stays gets a new one
        self._fill(server, work, topic)
        settle()
        return generator.watched(server, work, "wait for the next batch", "messages", "consume", "--topic", topic,
                                 "-c", work.connections, "--size", work.size, "--batch", 32)

    def _e2e(self, server, work):
        return generator.watched(server, work, "end to end", "stored", "e2e", "--topic", TOPIC, *generator.shape(work),
                                 "--rate", work.rate, *self._timed(self.length.e2e_seconds))

    def _both(self, server, work):
        return generator.watched(server, work, "end to end", "stored", "e2e", "--topic", TOPIC, *generator.shape(work),
                                 *self._timed())

    def _idle(self, server, work):
        before = server.memory()
        with Crowd(server.address, work.idle):
            time.sleep(SETTLE_SECONDS)
            beside = server.memory()
            found = self._send(server, work)
        found.update(idle_rss=max(0, beside[0] - before[0]), idle_anon=max(0, beside[1] - before[1]))
        return found

    def _backlog(self, server, work):
        """Two generators: one reads from the start, one sends; the sends' latency is told."""
        topic = BACKLOG + "-large"
        self._fill(server, work, topic)
        command = generator.command(server.names, "consume", "--topic", topic, "-c", 4, "--size", work.size)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
            found = generator.watched(server, work, "send", "stored", "send", "--topic", TOPIC, "--rate", work.rate,
                                      "-c", 1, "-i", 64, "--size", 1024, *self._timed(self.length.e2e_seconds))
            out, _ = reader.communicate(timeout=300)
        taken = generator.json.loads(out)
        found.update(per_second=taken["per_second"], messages=taken["messages"], limited_by=limit.how())
        del found["cpu_us"]
        return found


class Crowd:
    """Connections that have each asked something once and are silent from then on."""

    def __init__(self, address, count):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if count + 200 > hard:
            raise NotHere("only %d open files are allowed" % hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
        self.address, self.count, self.clients = remoting.split_address(address), count, []

    def __enter__(self):
        beat = remoting.encode(remoting.Command(remoting.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}))
        for _ in range(self.count):
            client = socket.create_connection(self.address, timeout=30)
            client.sendall(beat)
            self.clients.append(client)
        for client in self.clients:
            client.recv(4096)
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.close()
