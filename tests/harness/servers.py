"""PostgreSQL and MariaDB for tests: real servers from Debian's packages, each with its data in a folder of its own.

    with servers.PostgreSQL() as server:
        run(server.url)                    # postgresql://once:…@127.0.0.1:PORT/shop
        server.kill9(); server.start()     # the same folder, the same port

Nothing of the system's own servers is touched: other folders, other ports, no configuration files. The servers refuse to
run as root, so root starts them as the user their package made. Commits reach the disk (fsync is on), because that is
part of what is proved; `durable=False` is for tests to whom it does not matter.

The password has characters that mean something in a URL, so that every test also tests that they are decoded.
"""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import urllib.parse

from harness import process

USER, PASSWORD = "once", "p@ss:w/rd%? "


def _newest(pattern):
    """The program of the highest version: PostgreSQL's live in a folder by version, outside the PATH."""
    found = sorted(glob.glob(pattern), key=lambda path: [int(p) if p.isdigit() else 0 for p in path.split("/")])
    return found[-1] if found else None


def _connects(address):
    with socket.socket(socket.AF_INET) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0


class Server:
    """What both have in common: a folder, a port, a child, and the user it runs as."""

    name, user = "", ""
    missing = None          # why it cannot run here, or None

    def __init__(self, durable=True, start=True):
        if self.missing:
            raise process.Failed(self.missing)
        self.durable, self.child = durable, None
        self.folder = process.temp_folder("oncemq-%s-" % self.name)
        self.data, self.log = os.path.join(self.folder, "data"), os.path.join(self.folder, "log")
        self.port = process.free_ports()[0]
        with open(self.log, "ab"):
            pass
        self._hand_over(self.folder, self.log)
        self._make()
        if start:
            self.start()

    @property
    def url(self):
        return self.url_for(USER, PASSWORD)

    def url_for(self, user, password):
        quoted = urllib.parse.quote(password, safe="")
        return "%s://%s:%s@127.0.0.1:%d/%s" % (self.scheme, user, quoted, self.port, self.database)

    def start(self, timeout=30):
        """Start it on its folder, and wait until it answers."""
        self.child = process.Child(self.name, self._as_user(self._command()), self.log)
        process.wait_until(self._answers, timeout, "%s answers" % self.name, pause=0.02)

    def stop(self, timeout=30):
        """An orderly end, without waiting for its clients."""
        self.child.process.send_signal(self.stop_signal)
        self.child.wait(timeout)

    def kill9(self):
        """SIGKILL to all of it, as when the machine's memory runs out."""
        if self._helpers():
            process.freeze(self.child.pid)      # so that it starts no more of them
        helpers = self._helpers()
        self.child.kill9()
        for pid in helpers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait_until(lambda: not any(os.path.exists("/proc/%d" % p) and self._runs(p) for p in helpers), 10,
                           "%s's processes are gone" % self.name, pause=0.01)

    def pause(self):
        """Stops it in its tracks: connections stay, nothing answers."""
        process.freeze(self.child.pid)          # so that it starts no more, and does not bury those that end
        for pid in self._helpers():
            process.freeze(pid)

    def resume(self):
        for pid in self._helpers() + [self.child.pid]:
            os.kill(pid, signal.SIGCONT)

    def tail(self, lines=30):
        return process.tail(self.log, lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child and self.child.exit_code is None:
            self.kill9()

    def _helpers(self):
        """The processes that the server started itself."""
        try:
            with open("/proc/%d/task/%d/children" % (self.child.pid, self.child.pid), encoding="ascii") as source:
                return [int(pid) for pid in source.read().split()]
        except OSError:
            return []

    @staticmethod
    def _runs(pid):
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8") as source:
                return source.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False

    def _as_user(self, command):
        if os.geteuid() != 0:
            return command
        # Changing the user takes back "die with your parent", so it is said again.
        return ["setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", "--pdeathsig", "KILL",
                "--"] + command

    def _hand_over(self, *paths):
        if os.geteuid() == 0:
            who = pwd.getpwnam(self.user)
            for path in paths:
                os.chown(path, who.pw_uid, who.pw_gid)

    def _write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(text)
        self._hand_over(path)
        return path

    def _do(self, command, timeout=60, stdin=None):
        """A program that ends by itself."""
        child = process.Child(command[0], self._as_user(command), self.log, cwd=self.folder, stdin=stdin)
        status, text = child.finish(timeout)
        if status != 0:
            raise process.Failed("%s ended with %d:\n%s\n%s" % (command[0], status, text, "\n".join(self.tail())))
        return text


class PostgreSQL(Server):
    name, user, scheme, database = "postgresql", "postgres", "postgresql", "shop"
    stop_signal = signal.SIGINT     # "fast": clients are sent away
    program = _newest("/usr/lib/postgresql/*/bin/postgres") or shutil.which("postgres")
    missing = None if program else "postgres is missing (Debian: postgresql)"

    def _make(self):
        self._do([os.path.join(os.path.dirname(self.program), "initdb"), "-D", self.data, "-U", "postgres",
                  "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"])
        with open(os.path.join(self.data, "pg_hba.conf"), "w", encoding="ascii") as sink:
            sink.write("local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n")
        # Our user is an ordinary one. In single-user mode a line is a statement.
        first = self._write("first.sql", "CREATE ROLE %s LOGIN PASSWORD '%s';\nCREATE DATABASE %s OWNER %s;\n"
                            % (USER, PASSWORD, self.database, USER))
        with open(first, "rb") as source:
            self._do([self.program, "--single", "-D", self.data, "-c", "fsync=off", "postgres"], stdin=source)

    def _command(self):
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder,
            "max_connections": 300, "shared_buffers": "32MB", "logging_collector": "off",
            "fsync": "on" if self.durable else "off", "synchronous_commit": "on" if self.durable else "off",
            "autovacuum": "off", "dynamic_shared_memory_type": "mmap", "max_wal_size": "512MB",
        }
        command = [self.program, "-D", self.data]
        for name, value in settings.items():
            command += ["-c", "%s=%s" % (name, value)]
        return command

    def _answers(self):
        if self.child.exit_code is not None:
            raise process.Failed("postgres ended: %s" % "\n".join(self.tail()))
        ready = os.path.join(self.data, "postmaster.pid")
        try:
            with open(ready, encoding="utf-8", errors="replace") as source:
                lines = source.read().split("\n")
        except OSError:
            return False
        # Its eighth line is its state; a file that a killed server left has another process in its first.
        return len(lines) > 7 and lines[0] == str(self.child.pid) and lines[7].strip() == "ready"


class MariaDB(Server):
    name, user, scheme, database = "mariadb", "mysql", "mysql", "shop"
    stop_signal = signal.SIGTERM
    program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin") or shutil.which("mysqld")
    missing = None if program else "mariadbd is missing (Debian: mariadb-server)"
    small = ["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"]  # tests have several of them

    @property
    def socket(self):
        return os.path.join(self.folder, "socket")

    @property
    def url_by_socket(self):
        return "mysql://%s:%s@localhost/%s?socket=%s" % (
            USER, urllib.parse.quote(PASSWORD, safe=""), self.database, urllib.parse.quote(self.socket, safe=""))

    def _make(self):
        self._do(["mariadb-install-db", "--no-defaults", "--datadir=" + self.data, "--tmpdir=" + self.folder,
                  "--skip-test-db", "--auth-root-authentication-method=normal", "--skip-name-resolve",
                  "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
                  "--innodb-log-file-size=32M", "--skip-innodb-doublewrite"])
        self._write("first.sql", "\n".join([
            "CREATE DATABASE IF NOT EXISTS shop;",
            "CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s';" % (USER, PASSWORD),
            "GRANT ALL ON shop.* TO '%s'@'%%';" % USER]) + "\n")

    def _command(self):
        return [self.program, "--no-defaults", "--datadir=" + self.data, "--tmpdir=" + self.folder,
                "--socket=" + self.socket, "--bind-address=127.0.0.1", "--port=%d" % self.port, "--pid-file=" + os.path.join(self.folder, "pid"),
                "--init-file=" + os.path.join(self.folder, "first.sql"), "--max-connections=300",
                "--skip-name-resolve", "--performance-schema=OFF", *self.small,
                "--innodb-buffer-pool-dump-at-shutdown=OFF",
                "--innodb-flush-log-at-trx-commit=%d" % (1 if self.durable else 0), "--innodb-fast-shutdown=1"]

    def _answers(self):
        if self.child.exit_code is not None:
            raise process.Failed("mariadbd ended: %s" % "\n".join(self.tail()))
        if not _connects(("127.0.0.1", self.port)):
            return False
        # The port is open a moment before the init file has run.
        asked = subprocess.run(["mariadb", "--no-defaults", "--socket=" + self.socket, "-u" + USER,
                                "-p" + PASSWORD, "-e", "SELECT 1", self.database],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return asked.returncode == 0
