"""Child processes that surely end with the test.

Every process a test starts is a `Child`. It is ended by stop() or kill9(), by leaving a `with` block, when the Python
program exits for whatever reason (also SIGTERM from a test runner's timeout), and, should even that fail, by the kernel
when its parent dies. Only processes started here are ever signalled, through their handle and never by name.

Standard error goes to a log file, and `tail()` shows its end when a test fails.
"""

import atexit
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

_alive = []
_folders = []
_ports = {}


class Failed(Exception):
    """A process did not do what the test needed, in time."""


def temp_folder(prefix="oncemq-test-", parent=None):
    """A fresh folder that is removed at exit, unless KEEP_TEMP is set."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    _folders.append(folder)
    return folder


def hold_port(port, host="127.0.0.1"):
    """A socket that has the port and does not listen: servers, which all set SO_REUSEADDR, can have it beside us, and
    nobody who looks for a free one is given it. None: somebody listens there."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((host, port))
    except OSError:
        holder.close()
        return None
    return holder


def free_ports(count=1):
    """Different ports that are free on loopback, well below the range of outgoing connections. Other tests do not get them
    while this program runs."""
    found = {}
    candidate = 20000 + os.getpid() * 37 % 9000
    while len(found) < count:
        candidate = candidate + 1 if candidate < 32000 else 20000
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", candidate))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found[candidate] = holder
    _ports.update(found)
    return list(found)


def give_back_ports(ports):
    """Those of free_ports() that are not used after all."""
    for port in ports:
        _ports.pop(port).close()


def wait_until(condition, timeout, what, pause=0.05):
    """Poll until condition() gives something true, and return that. Raises Failed after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise Failed("not within %g s: %s" % (timeout, what))
        time.sleep(pause)


def threads(pid):
    """How many threads a process has."""
    return len(os.listdir("/proc/%d/task" % pid))


def freeze(pid):
    """SIGSTOP, and wait until it has: the signal only asks, and a thread on another core may answer somebody first."""
    os.kill(pid, signal.SIGSTOP)

    def stopped():
        try:
            states = []
            for thread in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/stat" % (pid, thread)) as source:
                    states.append(source.read().rsplit(")", 1)[1].split()[0])
            return all(state in "tTZ" for state in states)
        except (FileNotFoundError, ProcessLookupError):  # a thread, or all of it, has ended meanwhile
            return not os.path.exists("/proc/%d" % pid)
    wait_until(stopped, 10, "process %d stands still" % pid, pause=0.001)


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """One running process with its log file."""

    def __init__(self, name, command, log, env=None, stdin=None, cwd=None, pass_fds=()):
        self.name, self.log = name, log
        with open(log, "ab") as sink:
            self.process = subprocess.Popen(command, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=sink, env=env, cwd=cwd, pass_fds=pass_fds,
                                            preexec_fn=die_with_parent)
        self.unread = b""
        _alive.append(self)

    @property
    def pid(self):
        return self.process.pid

    @property
    def exit_code(self):
        """The exit status, or None while it runs."""
        return self.process.poll()

    def read_line(self, timeout):
        """The next line of standard output without its end; None at end of output. Raises Failed when it is late."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed("%s wrote no line within %g s" % (self.name, timeout))
            if not select.select([self.process.stdout], [], [], left)[0]:
                continue
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def wait_line(self, accept, timeout):
        """Skip lines of standard output until accept(line) gives something true; returns that."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.read_line(max(0.0, deadline - time.monotonic()))
            if line is None:
                raise Failed("%s ended (status %s) before the expected line" % (self.name, self.wait(5)))
            result = accept(line)
            if result:
                return result

    def wait(self, timeout):
        """Wait for the end and return the exit status."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            raise Failed("%s still runs after %g s" % (self.name, timeout)) from late
        self._forget()
        return status

    def finish(self, timeout):
        """Read all standard output until the process ends by itself; returns (exit status, text)."""
        try:
            out, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            raise Failed("%s still runs after %g s" % (self.name, timeout)) from late
        self._forget()
        return self.process.returncode, (self.unread + out).decode(errors="replace")

    def kill9(self):
        """SIGKILL, and wait for the end."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._forget()

    def stop(self, timeout=20.0):
        """SIGTERM, and the exit status. Raises Failed, after a SIGKILL, when it does not end in time."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.wait(timeout)
        except Failed:
            self.kill9()
            raise

    def _forget(self):
        if self in _alive:
            _alive.remove(self)
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill9()

    def tail(self, lines=30):
        return tail(self.log, lines)


def tail(path, lines=30):
    """The last lines of a text file."""
    try:
        with open(path, "rb") as source:
            return source.read()[-65536:].decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _clean_up():
    for child in list(_alive):
        child.kill9()
    if not os.environ.get("KEEP_TEMP"):
        for folder in _folders:
            shutil.rmtree(folder, ignore_errors=True)


def _leave(_signal, _frame):
    sys.exit(1)


atexit.register(_clean_up)
signal.signal(signal.SIGTERM, _leave)
