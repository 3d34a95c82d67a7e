"""How a scenario is registered and run.

    @scenario("RM-7", "in clustering each message goes to one of two members")
    def clustering(play):
        topic = play.topic(queues=4)
        ...

A scenario is a function of a `Play`: the stage, a puppet with the clients of one release, and names of its own for topics
and groups. Those of one release run beside each other, several at a time, because most of them wait most of the time; those
marked `alone`, which kill servers, run one by one when all others are done. Each is one TAP case per release.
"""

import concurrent.futures
import dataclasses
import os
import re
import time
import typing

from harness import apache, process, remoting, tap

from . import puppet, stage

NEW, OLD = None, "4.9.8"
LABEL = {NEW: "5.5.0", OLD: OLD}
TOGETHER = 8
ONLY = os.environ.get("ONLY", "")  # a regular expression for names of functions, to run a few
RUN = "%x" % (int(time.time()) & 0xFFFFFF)  # a given broker may remember the names of an earlier run
_registered = []


@dataclasses.dataclass
class Entry:
    function: typing.Callable
    version: str | None
    alone: bool  # not beside others
    slow: bool   # begun before the others, because it waits longest


class Play:
    """What one scenario sees."""

    def __init__(self, cast, name, version):
        self.stage, self.puppet, self.version = cast.stage, cast.puppets[version], version
        self.cast, self.name = cast, "%s_%s_%s" % (name, LABEL[version].replace(".", ""), RUN)
        self.counter = 0

    def unique(self, kind):
        self.counter += 1
        return "%s_%s%d" % (self.name, kind, self.counter)

    def topic(self, queues=4, brokers=None):
        return self.stage.create_topic(self.unique("topic"), queues, brokers)

    def group(self):
        return self.unique("group")

    def call(self, verb, **args):
        return self.puppet.call(verb, **args)

    def send(self, topic, count, **args):
        """Send messages that must all be acknowledged; returns the results."""
        results = self.call("send", topic=topic, count=count, producer=self.name, **args)
        errors = [each for each in results if "error" in each]
        tap.check(not errors, "%d of %d sends failed: %s" % (len(errors), count, errors[:2]))
        return results

    def listen(self, topic, group, where=None, **args):
        return puppet.Listener(where or self.puppet, self.unique("member"), topic=topic, group=group, **args)

    def stored(self, topic):
        """How many messages the brokers hold in a topic."""
        total = 0
        for broker in self.stage.brokers:
            queues, _ = self.stage.route(topic).get(broker.name, (0, 0))
            for queue in range(queues):
                answer = broker.request(remoting.GET_MAX_OFFSET, {"topic": topic, "queueId": queue})
                total += int(answer.ext["offset"])
        return total

    def records(self, topic):
        """All messages of a topic as the broker stores them."""
        found = []
        for broker in self.stage.brokers:
            queues, _ = self.stage.route(topic).get(broker.name, (0, 0))
            for queue in range(queues):
                offset = 0
                while True:
                    answer = broker.request(remoting.PULL_MESSAGE, {
                        "consumerGroup": self.name, "topic": topic, "queueId": queue, "queueOffset": offset,
                        "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
                        "subscription": "*", "subVersion": 0, "expressionType": "TAG"})
                    if answer.code != remoting.SUCCESS:
                        break
                    found += remoting.messages(answer.body)
                    offset = int(answer.ext["nextBeginOffset"])
        return found

    def committed(self, group, topic):
        """Place -> offset that the brokers have for a group; nothing for queues without one."""
        found = {}
        for broker in self.stage.brokers:
            queues, _ = self.stage.route(topic).get(broker.name, (0, 0))
            for queue in range(queues):
                answer = broker.request(remoting.QUERY_CONSUMER_OFFSET, {
                    "consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": False})
                if answer.code == remoting.SUCCESS:
                    found["%s/%d" % (broker.name, queue)] = int(answer.ext["offset"])
        return found

    def wait_committed(self, group, topic, total, timeout=30):
        """Wait until the group's offsets add up to the number of messages that were sent."""
        process.wait_until(lambda: sum(self.committed(group, topic).values()) == total, timeout,
                           "%d messages of %s committed by %s" % (total, topic, group), pause=0.2)

    def admin(self, command, word):
        """What the official admin tool printed. It waits 5 s for an answer and tells of failures only in what it prints;
        on a busy machine it has to be run again until it says the word that means success."""
        def once():
            printed = self.cast.puppets[NEW].call("admin", args=command)
            if word not in printed:
                tap.note("mqadmin %s printed %r" % (command, printed))
            return word in printed and printed
        return process.wait_until(once, 60, "mqadmin %s says %s" % (command, word), pause=1)

    def close(self):
        """End all clients of this scenario; nobody waits for it."""
        self.puppet.start("close", prefix=self.name)


class Cast:
    """The stage, the puppets, and the scenarios that are under way."""

    def __init__(self):
        self.stage = self.pool = None
        self.puppets, self.futures = {}, {}

    def begin(self):
        """Start everything once, and every scenario that runs beside others."""
        if self.pool:
            return
        self.pool = concurrent.futures.ThreadPoolExecutor(TOGETHER)
        self.stage = stage.Stage()
        for version in LABEL:
            if not apache.missing(version):
                self.puppets[version] = puppet.Puppet("client-%s" % LABEL[version], self.stage.names, version)
        for key in sorted(range(len(_registered)), key=lambda key: not _registered[key].slow):
            entry = _registered[key]
            if not entry.alone and entry.version in self.puppets:
                self.futures[key] = self.pool.submit(self.run, entry)

    def run(self, entry):
        play = Play(self, entry.function.__name__, entry.version)
        start = time.monotonic()
        try:
            entry.function(play)
            return time.monotonic() - start
        finally:
            play.close()

    def result(self, key):
        """The end of one scenario; raises what it raised."""
        self.begin()
        entry = _registered[key]
        if entry.version not in self.puppets:
            tap.skip(apache.missing(entry.version))
        if entry.alone:
            concurrent.futures.wait(self.futures.values())
            self.run(entry)
        else:
            tap.note("took %.1f s beside the others" % self.futures[key].result())


_cast = Cast()


def scenario(rows, sentence, versions=(NEW, OLD), alone=False, slow=False):
    """Register a scenario under the checklist's rows and a sentence that says what must be true."""
    def register(function):
        for version in versions if re.search(ONLY, function.__name__) else ():
            key = len(_registered)
            _registered.append(Entry(function, version, alone, slow))
            tap.test("%s with Java %s: %s" % (rows, LABEL[version], sentence))(lambda key=key: _cast.result(key))
        return function
    return register
