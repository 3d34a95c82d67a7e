"""The daemon under test: one real oncemqd on free ports in a fresh folder.

    with Daemon() as daemon:
        client = remoting.Client(daemon.broker)

The binary is the one named by the environment variable ONCEMQD. start() returns when the ready line has come, so the
addresses in `names` and `broker` answer. After kill9() or stop(), start() runs the same daemon again on the same folder
and, unless told otherwise, on the same ports, so that clients which know only an address find it again.

    daemon.kill9(); daemon.start()
"""

import os
import re
import socket
import tempfile
import time

from . import process

READY = re.compile(r"^ready: (.*), in (\d+) ms$")
ADDRESS = re.compile(r"(names|broker|http) (\S+?)(?:,|$)")
STOP_TIMEOUT = 20.0  # five seconds are promised (tests/daemon/50-stop.py); the machine may stand still meanwhile


class Daemon:
    def __init__(self, binary=None, roles=None, settings=None, args=(), folder=None, ready_timeout=20.0, env=None,
                 name="oncemqd", start=True):
        self.binary = binary or os.environ.get("ONCEMQD")
        if not self.binary:
            raise process.Failed("no daemon to test: set ONCEMQD to the path of oncemqd")
        self.name, self.roles, self.args, self.env = name, roles, list(args), env
        self.settings = dict(settings or {})
        self.ready_timeout = ready_timeout
        self.root = process.temp_folder()
        self.folder = folder or os.path.join(self.root, "data")
        self.log = os.path.join(self.root, "%s.log" % name)
        self.child, self.held = None, []
        self.names = self.broker = None
        self.ready_ms = None
        if start:
            self.start()

    def start(self, same_ports=True):
        """Run the daemon and wait for its ready line."""
        assert self.child is None, "already running"
        ports = self._ports(same_ports)
        self._wait_free(ports)
        command = [self.binary, "--data", self.folder, *self.args]
        if self.roles:
            command += ["--roles", self.roles]
        for key, value in {**ports, **self.settings}.items():
            command += ["--set", "%s=%s" % (key, value)]
        self.child = process.Child(self.name, command, self.log, env=dict(os.environ, **(self.env or {})),
                                   cwd=self.root)
        try:
            ready = self.child.wait_line(READY.match, self.ready_timeout)
        except process.Failed as error:
            self.kill9()
            raise process.Failed("%s\n%s" % (error, "\n".join(self.tail()))) from error
        self._let_go()
        self.ready_ms = int(ready.group(2))
        addresses = dict(ADDRESS.findall(ready.group(1)))
        self.names, self.broker, self.http = addresses.get("names"), addresses.get("broker"), addresses.get("http")
        return self

    def _ports(self, same):
        """Any free port the first time, then what the ready line said."""
        ports = {"listenPort": 0, "namesrvListenPort": 0}
        if same and self.broker:
            ports["listenPort"] = self.broker.rsplit(":", 1)[1]
        if same and self.names:
            ports["namesrvListenPort"] = self.names.rsplit(":", 1)[1]
        return ports

    def _wait_free(self, ports):
        """After a SIGKILL a fixed port may still be held for a moment by a connection that somebody opened."""
        def free():
            for port in ports.values():
                probe = socket.socket()
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", int(port)))
                except OSError:
                    return False
                finally:
                    probe.close()
            return True
        process.wait_until(free, 10, "ports %s are free" % list(ports.values()))

    def _hold(self):
        """Nobody else is given its ports while it is away."""
        self._let_go()
        held = [process.hold_port(int(port)) for port in self._ports(True).values() if int(port)]
        self.held = [each for each in held if each]

    def _let_go(self):
        for each in self.held:
            each.close()
        self.held = []

    @property
    def pid(self):
        return self.child.pid

    @property
    def running(self):
        return self.child is not None and self.child.exit_code is None

    def kill9(self):
        """SIGKILL: no flush, no farewell."""
        if self.child:
            self.child.kill9()
            self.child = None
            self._hold()

    def stop(self):
        """SIGTERM. It must end with status 0. The seconds that it took."""
        child, self.child = self.child, None
        begin = time.monotonic()
        status = child.stop(STOP_TIMEOUT)
        took = time.monotonic() - begin
        self._hold()
        if status != 0:
            raise process.Failed("%s ended with status %d after SIGTERM\n%s"
                                 % (self.name, status, "\n".join(self.tail())))
        return took

    def restart(self, hard=False):
        """Stop (or kill) and start again on the same folder and ports."""
        self.kill9() if hard else self.stop()
        return self.start()

    def tail(self, lines=30):
        return process.tail(self.log, lines)

    def read_log(self):
        with open(self.log, "rb") as source:
            return source.read().decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill9()
        self._let_go()


def run(*args, binary=None, timeout=30.0, stdin=None):
    """Run oncemqd with arguments until it ends by itself; returns (status, standard output, standard error)."""
    binary = binary or os.environ.get("ONCEMQD")
    if not binary:
        raise process.Failed("no daemon to test: set ONCEMQD to the path of oncemqd")
    with tempfile.NamedTemporaryFile(prefix="oncemqd-stderr-") as log:
        child = process.Child("oncemqd", [binary, *args], log.name, stdin=stdin)
        try:
            status, out = child.finish(timeout)
        finally:
            child.kill9()
        return status, out, log.read().decode(errors="replace")
