#!/usr/bin/env python3
"""The thin path with the official Java client: send, crash, go on, and every acknowledged message arrives.

One oncemqd with both roles and its default settings; unmodified DefaultMQProducers that create a topic by sending and
send 10,000 messages in all; one unmodified DefaultMQPushConsumer that is at work all the time. When about half are
acknowledged the daemon is killed with SIGKILL and started again on the same folder and ports. Nobody tells the clients;
they retry as their defaults have it. Duplicates are allowed (the producer repeats what was not acknowledged, the
consumer what was not committed) and counted.

ENDPOINT=host:port runs the same against a name server that is already there; the steps that kill or restart the daemon
are skipped then. ENDPOINT=apache takes an Apache name server and broker, started for the purpose, in place of the
daemon.
"""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

MESSAGES = int(os.environ.get("MESSAGES", "10000"))
FIRST, MORE = 100, 200
SEND_SECONDS = 180
RECEIVE_SECONDS = 120
TOPIC, GROUP = "ThinPath", "thin_path_group"
ENDPOINT = os.environ.get("ENDPOINT")


class ApachePair:
    """Apache's name server and broker with the face of a Daemon, to see how they fare in the same play."""

    def __init__(self):
        self.server = apache.NameServer()
        self.names = self.server.address
        self.broker = apache.Broker(self.names)
        self.broker.wait_registered(self.names)
        self.name, self.tail, self.kill9 = "broker", self.broker.tail, self.broker.kill9

    def start(self):
        self.broker.start()

    def stop(self):
        self.broker.stop()


class Scene:
    """What the tests of this file share: the daemon, the clients, their lists."""
    daemon = None
    names = None
    consumer = None
    acked = {}
    folder = None


scene = Scene()


def set_stage():
    """Start the servers and remember where the name server is."""
    scene.folder = process.temp_folder()
    if ENDPOINT == "apache":
        scene.daemon = tap.watch(ApachePair())
    elif ENDPOINT:
        scene.names = ENDPOINT
        return
    else:
        # Ports outside the range of outgoing connections: a client that dials a dead port can otherwise meet itself.
        broker, names = process.free_ports(2)
        scene.daemon = tap.watch(Daemon(settings={"listenPort": broker, "namesrvListenPort": names}))
    scene.names = scene.daemon.names


def path(name):
    return os.path.join(scene.folder, name)


def home(name):
    folder = path(name)
    os.makedirs(folder, exist_ok=True)
    return folder


def producer(name, first, count):
    return tap.watch(apache.java(name, "oncemq.interop.NumberedProducer", scene.names, TOPIC, first, count,
                                 path(name + ".acked"), SEND_SECONDS, home=home(name)))


def consumer(name):
    child = tap.watch(apache.java(name, "oncemq.interop.NumberedConsumer", scene.names, TOPIC, GROUP,
                                  path(name + ".received"), home=home(name), stdin=subprocess.PIPE))
    child.wait_line(lambda line: line == "started", 60)
    return child


def count_from(child, word, at_least, timeout):
    """Wait until the child reports "word N" with N not below at_least."""
    def accept(line):
        found = line.split()
        return found[0] == word and int(found[1]) >= at_least
    child.wait_line(accept, timeout)


def finish(child, timeout=60):
    """End a consumer in good order: it commits its offsets and says goodbye."""
    child.process.stdin.close()
    child.process.stdin = None
    status, out = child.finish(timeout)
    tap.equal(status, 0, "exit status of %s" % child.name)
    tap.check("done" in out, "%s did not finish: %s" % (child.name, out[-200:]))
    tap.unwatch(child)


def read_acked(name):
    """number -> id of each acknowledged message."""
    with open(path(name + ".acked"), encoding="utf-8") as lines:
        return {int(number): identity for number, identity, *_ in (line.split() for line in lines)}


def read_received(name):
    """Lines (number, id, place, fault) of each delivery, in order."""
    with open(path(name + ".received"), encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split(" ", 3)) for line in lines if line.endswith("\n")]


def missing_ids(acked, received):
    return set(acked.values()) - {identity for _, identity, _, _ in received}


@tap.test("a Java producer creates a topic by sending, and a push consumer receives from it")
def create_by_sending():
    set_stage()
    child = producer("producer1", 0, FIRST)
    tap.equal(child.finish(SEND_SECONDS + 10)[0], 0, "exit status of the first producer")
    scene.consumer = consumer("consumer")
    count_from(scene.consumer, "received", FIRST, RECEIVE_SECONDS)
    scene.acked = read_acked("producer1")


@tap.test("%d messages are acknowledged in all, through a SIGKILL of the daemon half way" % MESSAGES)
def send_through_a_crash():
    if not scene.acked:
        tap.skip("nothing was acknowledged")
    child = producer("producer", FIRST, MESSAGES - FIRST)
    if scene.daemon:
        count_from(child, "acked", MESSAGES // 2, SEND_SECONDS)
        scene.daemon.kill9()
        tap.check(child.exit_code is None, "the producer had finished before the crash")
        begin = time.monotonic()
        scene.daemon.start()
        tap.note("running again after %.2f s" % (time.monotonic() - begin))
    status, out = child.finish(SEND_SECONDS + 10)
    tap.unwatch(child)
    tap.note(out.splitlines()[-1])
    tap.equal(status, 0, "exit status of the producer")
    scene.acked.update(read_acked("producer"))
    tap.equal(sorted(scene.acked), list(range(MESSAGES)), "numbers acknowledged")


@tap.test("a push consumer receives every acknowledged message, with the right content")
def receive_everything():
    if not scene.acked:
        tap.skip("nothing was acknowledged")
    process.wait_until(lambda: not missing_ids(scene.acked, read_received("consumer")), RECEIVE_SECONDS,
                       "all acknowledged messages received", pause=0.5)
    received = read_received("consumer")
    tap.note("%d deliveries of %d messages" % (len(received), MESSAGES))
    faults = [delivery for delivery in received if delivery[3] != "-"]
    tap.equal(faults, [], "faulty deliveries")
    by_id = {identity: number for number, identity in scene.acked.items()}
    wrong = [(number, identity) for number, identity, _, _ in received
             if by_id.get(identity, int(number)) != int(number)]
    tap.equal(wrong, [], "deliveries under another number")


@tap.test("one place in a queue holds one message, before and after the crash")
def places_are_unique():
    if not scene.acked:
        tap.skip("nothing was acknowledged")
    at = {}
    for number, identity, place, _ in read_received("consumer"):
        tap.equal(at.setdefault(place, identity), identity, "message at %s" % place)


@tap.test("the group goes on where it stopped after a clean restart of the daemon")
def offsets_survive():
    if not scene.acked:
        tap.skip("nothing was acknowledged")
    finish(scene.consumer)
    if scene.daemon:
        scene.daemon.stop()
        scene.daemon.start()
    child = producer("producer2", MESSAGES, MORE)
    tap.equal(child.finish(SEND_SECONDS + 10)[0], 0, "exit status of the second producer")
    again = consumer("consumer2")
    count_from(again, "received", MORE, RECEIVE_SECONDS)
    finish(again)
    numbers = {int(number) for number, *_ in read_received("consumer2")}
    tap.equal(sorted(numbers), list(range(MESSAGES, MESSAGES + MORE)), "numbers received by the second consumer")


@tap.test("the daemon ends with status 0 after all this")
def ends_well():
    if not scene.daemon:
        tap.skip("not started here")
    scene.daemon.stop()


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
