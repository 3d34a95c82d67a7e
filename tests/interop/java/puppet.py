"""A Java program full of clients (oncemq.clients.Puppet) that does what it is told, many things at a time."""

import concurrent.futures
import itertools
import json
import os
import subprocess
import threading
import time

from harness import apache, process, tap

TIMEOUT = 90
# Everything that by default happens every 20 s would make each test wait for it.
PROPERTIES = ["rocketmq.client.rebalance.waitInterval=1000", "rocketmq.client.rebalance.minInterval=500",
              "rocketmq.client.rebalance.lockInterval=1000"]


class Refused(Exception):
    """The client said no; the text is the Java exception."""


class Puppet:
    """One JVM. Calls may come from several threads."""

    def __init__(self, name, names, version=None, properties=()):
        self.home = process.temp_folder("oncemq-%s-" % name)
        self.child = tap.watch(apache.java(name, "oncemq.clients.Puppet", names, home=self.home, version=version,
                                           properties=PROPERTIES + list(properties), stdin=subprocess.PIPE,
                                           jvm=("-Xms128m", "-Xmx512m", *apache.QUICK)))
        self.ids, self.waiting, self.lock = itertools.count(1), {}, threading.Lock()
        self.ready = concurrent.futures.Future()
        threading.Thread(target=self._read, daemon=True).start()
        self.ready.result(60)

    def start(self, verb, **args):
        """Begin something; the result is a Future."""
        future = concurrent.futures.Future()
        with self.lock:
            number = str(next(self.ids))
            self.waiting[number] = future
            line = "\t".join([number, verb, *("%s=%s" % (key, self._text(value)) for key, value in args.items())])
            self.child.process.stdin.write(line.encode() + b"\n")
            self.child.process.stdin.flush()
        return future

    def call(self, verb, timeout=TIMEOUT, **args):
        """Do something and return its result; raises Refused."""
        return self.start(verb, **args).result(timeout)

    @staticmethod
    def _text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _read(self):
        try:
            for line in self.child.process.stdout:
                self._answer(line.decode().rstrip("\n"))
        except ValueError:
            pass  # closed while we read: the program was killed
        for future in [self.ready, *self.waiting.values()]:
            if not future.done():
                future.set_exception(process.Failed("%s has ended" % self.child.name))

    def _answer(self, line):
        if line == "started":
            self.ready.set_result(True)
            return
        number, kind, text = line.split("\t", 2)
        future = self.waiting.pop(number)
        if kind == "ok":
            future.set_result(json.loads(text))
        else:
            future.set_exception(Refused(text))

    def kill9(self):
        tap.unwatch(self.child)
        self.child.process.kill()
        self.child.process.wait()


class Listener:
    """A push consumer in a puppet, and the list of what it was given."""

    def __init__(self, puppet, name, **args):
        self.puppet, self.name = puppet, name
        self.file = os.path.join(puppet.home, name + ".list")
        self.topic = args["topic"]
        self.seen, self.at = [], 0
        self.client_id = puppet.call("listen", name=name, file=self.file, **args)

    def received(self):
        """All deliveries so far, in order."""
        with open(self.file, encoding="utf-8") as source:
            source.seek(self.at)
            for line in iter(source.readline, ""):
                if not line.endswith("\n"):
                    break
                self.seen.append(json.loads(line))
                self.at += len(line.encode())
        return self.seen

    def numbers(self):
        return [each["number"] for each in self.received()]

    def assigned(self):
        return self.puppet.call("assigned", name=self.name, topic=self.topic)

    def wait_assigned(self, count, timeout=30):
        process.wait_until(lambda: len(self.assigned()) == count, timeout, "%d queues for %s" % (count, self.name),
                           pause=0.2)

    def wait_all(self, numbers, timeout=TIMEOUT):
        wait_all([self], numbers, timeout)

    def stop(self):
        self.puppet.call("stop", name=self.name)


def wait_all(listeners, numbers, timeout=TIMEOUT):
    """Wait until the listeners have, together, each of the numbers."""
    wanted, deadline = set(numbers), time.monotonic() + timeout
    while True:
        missing = wanted.difference(*(each.numbers() for each in listeners))
        if not missing:
            return
        if time.monotonic() > deadline:
            raise process.Failed("not within %g s: %d of %d messages, such as %s" %
                                 (timeout, len(missing), len(wanted), sorted(missing)[:5]))
        time.sleep(0.1)
