"""What the tests of libonce play on: a store of each kind, and processes that use it.

    store = stage.store("redis")
    w = stage.Worker(store, "lease", "group", expiry=1000)
    w.begin("key")            # Answer(verdict="RUN", cause="first", …)
    w.kill9()

STORE names the kind: sqlite, redis, postgresql, mariadb or broker. A store that is a server can be killed and started again.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness import process, tap  # noqa: E402

KIND = os.environ.get("STORE", "sqlite")
DATABASE = KIND in ("sqlite", "postgresql", "mariadb")
SERVER = KIND != "sqlite"
CLAIMS = ["lease", "table"]
MODES = CLAIMS + (["transaction"] if DATABASE else [])


class File:
    """SQLite: no server, so nothing to start."""

    def __init__(self):
        self.url = "sqlite:" + os.path.join(process.temp_folder("oncemq-once-"), "once.db")

    def tail(self, lines=30):
        return []


class Broker:
    """The ledger of a broker of its own. `address` is where it listens: of the name server, for URLs."""

    def __init__(self, **settings):
        from harness import daemon
        self.daemon = daemon.Daemon(settings={"flushDiskType": "SYNC_FLUSH", **settings})
        self.url = broker_url(self.daemon)

    def start(self):
        self.daemon.start()

    def kill9(self):
        self.daemon.kill9()

    def pause(self):
        process.freeze(self.daemon.pid)

    def resume(self):
        os.kill(self.daemon.pid, signal.SIGCONT)

    def empty(self):
        """As an operator who gives it another folder."""
        self.kill9()
        self.daemon.folder += "-new"
        self.start()

    def tail(self, lines=30):
        return self.daemon.tail(lines)


def broker_url(daemon):
    return "broker://%s/" % daemon.names


_store = []


def store():
    """The store of this run, made when it is first asked for."""
    if not _store:
        _store.append(_make())
        tap.watch(_store[0])
    return _store[0]


def _make():
    if KIND == "memory":
        made = File()
        made.url = "memory:"
        return made
    if KIND == "sqlite":
        return File()
    if KIND == "redis":
        from harness import redis
        return redis.Redis()
    if KIND == "broker":
        return Broker()
    from harness import servers
    return {"postgresql": servers.PostgreSQL, "mariadb": servers.MariaDB}[KIND]()


@dataclass
class Answer:
    verdict: str
    cause: str
    wait_ms: int
    rest: str

    @property
    def fence(self):
        return int(self.rest)


_number = [0]


def name(of):
    """A name that nobody else has."""
    _number[0] += 1
    return "%s-%d-%d" % (of, os.getpid(), _number[0])


class Worker:
    """A process with libonce in it; see worker.c for what it understands."""

    def __init__(self, where, mode, group, file=None, program=None, env=None, wait=True, **options):
        self.folder = process.temp_folder("oncemq-worker-")
        self.file = file or os.path.join(self.folder, "effects")
        self.log = os.path.join(self.folder, "log")
        command = [program or os.environ["WORKER"], where.url, mode, group, self.file]
        command += ["%s=%s" % pair for pair in options.items()]
        self.child = process.Child("worker", command, self.log, stdin=subprocess.PIPE, env=dict(os.environ, **(env or {})))
        self.ready = None
        if wait:
            self.ready = self.read(60)
            if self.ready != "ready":
                raise process.Failed("worker: %s\n%s" % (self.ready, "\n".join(self.child.tail())))

    def say(self, *words):
        """Give a command without waiting for its answer."""
        self.child.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())
        self.child.process.stdin.flush()

    def read(self, timeout=60):
        line = self.child.read_line(timeout)
        if line is None:
            raise process.Failed("the worker ended\n%s" % "\n".join(self.child.tail()))
        return line

    def do(self, *words, timeout=60):
        self.say(*words)
        return self.read(timeout)

    def answer(self, line=None):
        verdict, cause, wait_ms, rest = (line or self.read()).split(" ", 3)
        return Answer(verdict, cause, int(wait_ms), rest)

    def begin(self, key, *body):
        return self.answer(self.do("begin", key, *body))

    def at(self, queue, offset, key, floor=0):
        return self.answer(self.do("at", queue, offset, floor, key))

    def end(self, how="done"):
        return self.answer(self.do("end", how))

    def effect(self, effect):
        tap.equal(self.do("effect", effect), "ok", "effect")

    def count(self, effect):
        return int(self.do("count", effect))

    def stats(self):
        return {key: int(value) for key, value in (pair.split("=") for pair in self.do("stats").split())}

    def play(self, key, effect=None):
        """One delivery from its beginning to its end."""
        answer = self.begin(key)
        if answer.verdict == "RUN":
            self.effect(effect or key)
            answer = self.end()
        return answer

    def play_until_done(self, key, timeout=60):
        """Deliveries, as a queue brings them, until one is acknowledged."""
        deadline = time.monotonic() + timeout
        while True:
            answer = self.play(key)
            if answer.verdict == "ACK":
                return answer
            tap.check(answer.verdict in ("LATER", "RETRY"), "verdict %r" % answer)
            tap.check(time.monotonic() < deadline, "never done: %r" % answer)
            time.sleep(min(answer.wait_ms / 1000, 0.1))

    def stop(self):
        process.freeze(self.child.pid)

    def go_on(self):
        self.child.process.send_signal(signal.SIGCONT)

    def kill9(self):
        self.child.kill9()

    def close(self):
        """The end of its input ends it, and it must end well."""
        self.child.process.stdin.close()
        tap.equal(self.child.wait(60), 0, "status of the worker\n" + "\n".join(self.child.tail()))

    def tail(self, lines=30):
        return self.child.tail(lines)
