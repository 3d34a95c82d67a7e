"""A client library of another language, led by a test.

A puppet is a small program around an unchanged client: tests/interop/go around the Go client, tests/interop/node around
the Node client, tests/client around our own. It takes commands as lines of JSON and answers each by a line; deliveries and acknowledgements come as
lines by themselves. All speak the same language, so that the same steps can be played with each.

    go = puppet.start_go("first", names="127.0.0.1:9876")
    go.call("producer", name="p", group="g")
    go.call("send", name="p", mode="sync", messages=[puppet.message("Topic", b"body")])
    go.call("consumer", name="c", group="h", topic="Topic", from_="first")
    go.wait_messages("c", 1)

`missing_go()` and `missing_node()` say in words what keeps such a program from running here, or give None. Programs are
built once per version of their sources and kept beside the Java ones (ONCEMQ_INTEROP_CACHE, or ~/.cache/oncemq-interop).
"""

import base64
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

from . import process

PROJECTS = pathlib.Path(__file__).resolve().parent.parent / "interop"
BUILD_TIMEOUT = 300


class Unavailable(Exception):
    """What a puppet needs is not on this machine; the text says what."""


class Refused(Exception):
    """The client library reported an error for a command. The C client says its codes, too."""

    def __init__(self, text, code=None, response=None):
        super().__init__(text)
        self.code, self.response = code, response


# Building -----------------------------------------------------------------------------------------------------------

def missing_go():
    return _reason(go_program)


def missing_node():
    return _reason(node_program)


def _reason(provide):
    try:
        provide()
    except Unavailable as reason:
        return str(reason)
    return None


@functools.cache
def go_program():
    """The command line of the Go puppet."""
    _need("go")
    return [str(_built(PROJECTS / "go", "puppet", _build_go))]


@functools.cache
def node_program():
    """The command line of the Node puppet."""
    _need("node", "npm")
    return ["node", str(_built(PROJECTS / "node", "puppet.js", _build_node))]


def _need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Unavailable("%s is not on PATH" % tool)


def _built(project, program, build):
    """The program of a project in the cache, built now if it is not there."""
    digest = hashlib.sha256()
    for source in sorted(each for each in project.iterdir() if each.is_file()):
        digest.update(source.name.encode() + source.read_bytes())
    root = os.environ.get("ONCEMQ_INTEROP_CACHE") or os.path.expanduser("~/.cache/oncemq-interop")
    folder = pathlib.Path(root) / ("%s-%s" % (project.name, digest.hexdigest()[:16]))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / program).exists():
            build(project, folder)
    return folder / program


def _build_go(project, folder):
    fresh = folder / "puppet.new"
    # The toolchain that is here, or none: nothing but modules is fetched.
    status, output = _run(["go", "build", "-o", str(fresh), "."], project, GOTOOLCHAIN="local")
    if status != 0 and any(line.startswith("# ") for line in output.splitlines()):
        raise RuntimeError("the Go test program does not compile:\n" + output[-4000:])
    if status != 0:
        raise Unavailable("go cannot provide the Go client: %s" % _cause(output))
    fresh.rename(folder / "puppet")


def _build_node(project, folder):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(project / name, folder)
    # "ci" takes exactly what the lock file names, checked by its hashes.
    status, output = _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    if status != 0:
        raise Unavailable("npm cannot provide the Node client: %s" % _cause(output))
    shutil.copy(project / "puppet.js", folder)


def _run(command, folder, **env):
    try:
        result = subprocess.run(command, cwd=folder, env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable("%s did not finish within %d s" % (command[0], BUILD_TIMEOUT)) from late
    return result.returncode, result.stdout.decode(errors="replace")


def _cause(output):
    """The line that says most: npm's first error, go's last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if line.startswith("npm error")), lines[-1])[:200]


# Leading ------------------------------------------------------------------------------------------------------------

def start_go(name, names):
    return Puppet(name, go_program(), names, {"ROCKETMQ_GO_LOG_LEVEL": "warn"})


def start_node(name, names):
    # This client reads times of day as local ones.
    return Puppet(name, node_program(), names, {"TZ": "UTC"})


def start_c(name, names, program=None, **always):
    """Around liboncemq; PUPPET names the program, which is built with everything else. `always` goes with every
    command: options of all its clients."""
    program = program or os.environ.get("PUPPET")
    if not program:
        raise process.Failed("no puppet to lead: set PUPPET to the path of tests/client/puppet")
    known = pathlib.Path(__file__).resolve().parent.parent / "client" / "tsan.supp"
    return Puppet(name, [program], names, {"TSAN_OPTIONS": "exitcode=66:suppressions=%s" % known}, always)


def message(topic, body=b"", **more):
    """A message for send and request: tag, keys, properties, delay and shard may be added."""
    body = body.encode() if isinstance(body, str) else body
    return {"topic": topic, "body": base64.b64encode(body).decode(), **more}


class Puppet:
    """One running program and all it has said."""

    def __init__(self, name, command, names, env, always=None):
        self.name, self.names, self.always = name, names, always or {}
        self.home = process.temp_folder()
        self.child = process.Child(name, command, os.path.join(self.home, "%s.log" % name), stdin=subprocess.PIPE,
                                   env=dict(os.environ, HOME=self.home, **env), cwd=self.home)
        self.news = threading.Condition()
        self.answers, self.ended = {}, False
        self.deliveries, self.acks = {}, {}  # by the name of the consumer or producer
        self.calls = 0
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()

    def _listen(self):
        while True:
            try:
                line = self.child.read_line(3600)
                said = json.loads(line) if line else None
            except (process.Failed, OSError, ValueError):
                said = None
            with self.news:
                if said is None:
                    self.ended = True
                else:
                    self._sort(said)
                self.news.notify_all()
            if said is None:
                return

    def _sort(self, said):
        if said.get("event") == "message":
            self.deliveries.setdefault(said["name"], []).append(said)
        elif said.get("event") == "acked":
            self.acks.setdefault(said["name"], {})[said["number"]] = said["sent"]
        else:
            self.answers[said["id"]] = said

    def start(self, do, **args):
        """Give a command without waiting; returns its number for finish()."""
        self.calls += 1
        words = {key.rstrip("_"): value for key, value in args.items() if value is not None}
        line = json.dumps({"id": self.calls, "do": do, "names": self.names, **self.always, **words})
        self.child.process.stdin.write(line.encode() + b"\n")
        self.child.process.stdin.flush()
        return self.calls

    def finish(self, number, timeout=30):
        """The result of a command; raises Refused with the client's own words."""
        self._wait(lambda: number in self.answers, timeout, "%s answers command %d" % (self.name, number))
        answer = self.answers.pop(number)
        if answer.get("error"):
            raise Refused(answer["error"], answer.get("code"), answer.get("response"))
        return answer["result"]

    def call(self, do, timeout=30, **args):
        return self.finish(self.start(do, **args), timeout)

    def _wait(self, condition, timeout, what):
        deadline = time.monotonic() + timeout
        with self.news:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self.ended:
                    raise process.Failed("%s: %s" % ("it ended" if self.ended else "not within %g s" % timeout, what))
                self.news.wait(left)

    def messages(self, consumer):
        """All deliveries to a consumer so far, in order."""
        with self.news:
            return list(self.deliveries.get(consumer, []))

    def acked(self, producer):
        """number -> place of each acknowledged message of a flood."""
        with self.news:
            return dict(self.acks.get(producer, {}))

    def wait_messages(self, consumer, count, timeout=30):
        """Wait for so many deliveries, and return them."""
        self._wait(lambda: len(self.deliveries.get(consumer, [])) >= count, timeout,
                   "%d deliveries to %s of %s" % (count, consumer, self.name))
        return self.messages(consumer)

    def wait_acked(self, producer, count, timeout=30):
        """Wait for so many acknowledgements of a flood."""
        self._wait(lambda: len(self.acks.get(producer, {})) >= count, timeout,
                   "%d acknowledgements to %s of %s" % (count, producer, self.name))

    def kill9(self):
        """SIGKILL: no commit, no farewell."""
        self.child.process.kill()
        self.reader.join()
        self.child.process.stdin.close()
        self.child.kill9()

    def end(self, timeout=30):
        """End of input; it stops what it started and must leave with status 0."""
        self.child.process.stdin.close()
        self.reader.join(timeout)
        status = self.child.wait(timeout)
        if status != 0:
            raise process.Failed("%s ended with status %d" % (self.name, status))

    def tail(self, lines=30):
        return self.child.tail(lines)
