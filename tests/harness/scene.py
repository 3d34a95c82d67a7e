"""Scenes for `oncemq run`: a topic, a group, a folder, and what became of messages.

    Scene(cluster, "exec").send({"id": 1}).run("--exec", "true", "--idle", "1s")    its events; the last is the summary
    child = scene.start("--pipe", scene.python("…")); event(child, "done"); stop(child)
"""

import itertools
import json
import os
import signal
import sys

from . import cli, process, remoting, tap

numbers = itertools.count(1)


def send(cluster, topic, *bodies, **properties):
    """Messages with these bodies (text, bytes or JSON); `keys` and `tags` are properties like others."""
    names = {"keys": "KEYS", "tags": "TAGS"}
    with remoting.Client(cluster.broker) as client:
        for body in bodies:
            data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
            more = {names.get(name, name): value for name, value in properties.items()}
            more.setdefault("UNIQ_KEY", "%032X" % (next(numbers) + (os.getpid() << 32)))
            answer = client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2(topic, data, more))
            tap.equal(answer.code, remoting.SUCCESS, "code of a send")
    cluster.wait_route(topic)


class Scene:
    """A topic, a group, a folder to work in."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.number = next(numbers)
        self.topic, self.group = "%s%d" % (name, self.number), "g-%s%d" % (name, self.number)
        self.folder = process.temp_folder()
        self.out = os.path.join(self.folder, "out")

    def send(self, *bodies, **properties):
        send(self.cluster, self.topic, *bodies, **properties)
        return self

    def script(self, text, name="worker", language="/bin/sh"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!%s\n%s" % (language, text))
        os.chmod(path, 0o755)
        return path

    def python(self, text, name="worker"):
        return self.script(text, name, sys.executable)

    def args(self, *more, key="{body.id}", store=None):
        return ["run", "--topic", self.topic, "--group", self.group, "--from", "first", "--key", key,
                "--store", store or "sqlite:" + os.path.join(self.folder, "once.db"), *more]

    def run(self, *more, status=cli.OK, **args):
        """To its end; the summary."""
        with_json = {key: args.pop(key) for key in ("env", "timeout") if key in args}
        return self.cluster.json(*self.args(*more, **args), status=status, **with_json)

    def start(self, *more, **args):
        return self.cluster.start(*self.args(*more, "--json", **args))

    def lines(self):
        try:
            with open(self.out, encoding="utf-8", errors="replace") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []


def summary(events):
    return events[-1]


def counts(events):
    last = events[-1]
    tap.equal(last["event"], "summary")
    return {key: last[key] for key in ("done", "already", "later", "failed", "dead")}


def event(child, *kinds, timeout=30):
    """The next event of one of these kinds."""
    def accept(line):
        found = json.loads(line)
        return found if found["event"] in kinds else None
    return child.wait_line(accept, timeout)


def stop(child, timeout=30):
    child.process.send_signal(signal.SIGTERM)
    status, out = child.finish(timeout)
    tap.equal(status, 0, "status of a stop")
    return json.loads(out.splitlines()[-1])
