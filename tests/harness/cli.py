"""The command line `oncemq` as people and programs use it.

    cluster = cli.Cluster()                    oncemqd, or Apache's servers with ENDPOINT=apache
    cluster.run("topic", "list")               a Result: status, out, err, through pipes
    cluster.json("topic", "list")              the same with --json, held against docs/cli.md, as Python values
    with cli.Line(cluster) as line:            the same broker behind a relay (harness/proxy.py) that can lose and cut
        cluster.run("send", …, "-n", line.names)
    with cluster.terminal("topic", "delete", "T") as t:
        t.expect("[y/N]"); t.type("y\\n"); t.end()    a pseudo-terminal: t.status, t.text (as it was written)

The binary is the one named by the environment variable ONCEMQ. Each cluster has a home folder of its own, so no
configuration file of the machine counts. What docs/cli.md says of a command's --json is checked by every json().
"""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import termios
import time

from . import apache, fake, process, proxy, remoting, tap
from .daemon import Daemon

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE, PARTLY, DECLINED = range(7)
INTERRUPTED, PIPE = 130, 141


class Result:
    def __init__(self, args, status, out, err):
        self.args, self.status, self.out, self.err = args, status, out, err

    def __repr__(self):
        return "oncemq %s: status %s\n--- stdout\n%s--- stderr\n%s" % (" ".join(self.args), self.status, self.out, self.err)


def forms():
    """What docs/cli.md says of --json: {"topic list": ("an array of objects", {"topic": "string", …}), …}."""
    found, command = {}, None
    with open(os.path.join(ROOT, "docs", "cli.md"), encoding="utf-8") as source:
        for line in source:
            title = re.match(r"### oncemq ([a-z0-9 -]*[a-z0-9])", line)
            form = re.match(r"`--json`: (.*)\.$", line)
            field = re.match(r"\| `([^`]+)` \| ([^|]*) \|", line)
            if title:
                command = title.group(1)
            elif form:
                found[command] = (form.group(1), {})
            elif field and command in found:
                found[command][1][field.group(1)] = field.group(2).strip()
    return found


KINDS = {
    "string": str, "number": (int, float), "boolean": bool, "bytes": int, "milliseconds": int, "ms since 1970": int,
    '"ok", "warn" or "bad"': str, "object of strings": dict, "array of objects": list,
}


def check_record(command, fields, record, prefix=""):
    wanted = [name[len(prefix):] for name in fields if name.startswith(prefix) and "[]" not in name[len(prefix):]]
    tap.equal(list(record), wanted, "the fields of %s%s" % (command, prefix and " " + prefix))
    for name, value in record.items():
        kind = fields[prefix + name]
        tap.check(value is None or isinstance(value, KINDS[kind]), "%s of %s is %r, documented as %s" % (name, command, value, kind))
        if kind == "array of objects":
            for each in value or ():
                check_record(command, fields, each, prefix + name + "[].")


def check_form(command, text):
    """Holds the output of `command --json` against its documented form, and gives it as Python values."""
    documented = forms()
    tap.check(command in documented, "docs/cli.md has no form of --json for %s (make docs)" % command)
    shape, fields = documented[command]
    if shape == "an object a line":
        records = value = [json.loads(line) for line in text.splitlines()]
    else:
        value = json.loads(text)
        tap.check(isinstance(value, list if shape == "an array of objects" else dict), "%s gives %s: %.200s" % (command, shape, text))
        records = value if isinstance(value, list) else [value]
    for record in records:
        check_record(command, fields, record)
    return value


class Terminal:
    """oncemq in a pseudo-terminal."""

    def __init__(self, args, env, rows=40, columns=120):
        self.args, self.text, self.status = args, "", None
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            process.die_with_parent()
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))  # it must not see another size first
            os.execvpe(args[0], args, env)

    def _read(self, timeout):
        if not select.select([self.fd], [], [], max(timeout, 0))[0]:
            return False
        try:
            part = os.read(self.fd, 65536)
        except OSError:  # the other side is gone
            return False
        self.text += self.decoder.decode(part)
        return bool(part)

    def expect(self, wanted, timeout=20):
        """Waits until what was written contains `wanted`."""
        deadline = time.monotonic() + timeout
        while wanted not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or (not self._read(left) and self._over()):
                raise process.Failed("%r did not come from %s; there is:\n%s" % (wanted, self.args, self.text))
        return self

    def read(self):
        """Takes what has been written so far, for a program that waits for nobody to read; None."""
        while self._read(0):
            pass

    def type(self, text):
        os.write(self.fd, text.encode())
        return self

    def signal(self, number):
        os.kill(self.pid, number)
        return self

    def _over(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def end(self, timeout=20):
        """Waits for its end, and gives the exit status."""
        deadline = time.monotonic() + timeout
        while not self._over():
            if time.monotonic() > deadline:
                raise process.Failed("%s does not end; there is:\n%s" % (self.args, self.text))
            self._read(0.05)
        while self._read(0):
            pass
        return self.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self._over():
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class Cluster:
    """A name server, a broker, and the command line that knows them."""

    def __init__(self, start=True, **options):
        self.home = process.temp_folder()
        self.binary = os.environ.get("ONCEMQ")
        if not self.binary:
            raise process.Failed("no command line to test: set ONCEMQ to the path of oncemq")
        self.apache = os.environ.get("ENDPOINT") == "apache"
        self.given = self.apache and os.environ.get("SERVERS")  # "name server, broker": shared, so nobody stops them
        self.daemon = None
        if start and self.given:
            self.names, self.broker = self.given.split(",")
        elif start and self.apache:
            self.name_server = apache.NameServer()
            self.daemon = apache.Broker(self.name_server.address)
            self.daemon.wait_registered(self.name_server.address)
            self.names = self.name_server.address
            self.broker = self.daemon.address
        elif start:
            self.daemon = Daemon(**options)
            self.names, self.broker = self.daemon.names, self.daemon.broker
        else:
            self.names = "127.0.0.1:1"
        if self.daemon:
            tap.watch(self.daemon)
        if start:
            self._be_patient()

    def _be_patient(self):
        """Where nothing else is said, a request may take longer than 3 s: a busy machine stands still for that long."""
        folder = os.path.join(self.home, ".config", "oncemq")
        os.makedirs(folder)
        with open(os.path.join(folder, "config"), "w", encoding="utf-8") as file:
            file.write("context = patient\n[patient]\ntimeout = 20s\n")

    def wait_route(self, topic, timeout=40):
        """Until the name servers know a topic that a broker has."""
        def known():
            with remoting.Client(self.names) as client:
                return client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == remoting.SUCCESS
        process.wait_until(known, timeout, "a route of %s" % topic)

    def env(self, more=None):
        env = {key: value for key, value in os.environ.items() if not key.startswith("ONCEMQ_")}
        env.update({"HOME": self.home, "XDG_CONFIG_HOME": "", "ONCEMQ_NAMES": self.names, "TERM": "xterm", "NO_COLOR": "", "TZ": "UTC",
                    "LC_ALL": "C.UTF-8"})
        env.update(more or {})
        return env

    def run(self, *args, stdin=None, timeout=60, env=None, status=None, cwd=None):
        """`status`: what it must end with."""
        done = subprocess.run([self.binary, *args], input=stdin.encode() if isinstance(stdin, str) else stdin, capture_output=True,
                              timeout=timeout, env=self.env(env), cwd=cwd or self.home, stdin=None if stdin is not None else subprocess.DEVNULL,
                              preexec_fn=process.die_with_parent, check=False)
        result = Result(args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        if status is not None:
            tap.check(result.status == status, "wanted status %d of %r" % (status, result))
        if self.apache and args[0] in ("send", "dlq"):
            apache.wait_dispatched(self.broker)
        return result

    def ok(self, *args, **more):
        return self.run(*args, status=OK, **more)

    def json(self, *args, status=OK, command=None, **more):
        """`command` is needed only where its words are not the first arguments."""
        result = self.run(*args, "--json", status=status, **more)
        words = [word for word in args if not word.startswith("-")]
        known = forms()
        command = command or next((each for each in (" ".join(words[:2]), " ".join(words[:1])) if each in known), " ".join(words[:2]))
        return check_form(command, result.out)

    def start(self, *args, stdin=None, env=None):
        """In the background: a process.Child, its stdout to be read line by line, its stderr in a log."""
        log = os.path.join(process.temp_folder(), "oncemq.log")
        return tap.watch(process.Child("oncemq " + args[0], [self.binary, *args], log, env=self.env(env), stdin=stdin, cwd=self.home))

    def terminal(self, *args, env=None, **size):
        return Terminal([self.binary, *args], self.env(env), **size)


class Line:
    """A way to a cluster's broker that a test can spoil: `relay` is it, and `names` a name server that says what the
    cluster's says, but for the address of the broker."""

    def __init__(self, cluster):
        self.relay = proxy.Relay("line", "127.0.0.1:0", cluster.broker)

        def answer(request):
            with remoting.Client(cluster.names) as real:
                said = real.request(request.code, request.ext, request.body)
            return remoting.Command(said.code, said.ext, said.body.replace(cluster.broker.encode(), self.relay.address.encode()), remark=said.remark)
        self.fake = fake.Fake(answer)
        self.names = self.fake.address

    def cut_after(self, code, answers, lose=0, for_good=False):
        """Ends a connection when so many of these requests were answered, with the answers of the last `lose` not
        coming through; `for_good`: and nobody gets through after that."""
        asked, seen = set(), []

        def lose_it(passed):
            command = passed.command
            if passed.to_server:
                if command.code == code:
                    asked.add((passed.connection, command.opaque))
                return False
            if (passed.connection, command.opaque) not in asked:
                return False
            seen.append(passed)
            if len(seen) >= answers:
                if for_good:
                    self.close_door()
                self.relay.cut(passed.connection)
            return len(seen) > answers - lose
        self.relay.lose = lose_it

    def close_door(self):
        """Whoever comes now is refused."""
        self.relay.listener.shutdown(socket.SHUT_RDWR)
        self.relay.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.relay.close()
        self.fake.close()
