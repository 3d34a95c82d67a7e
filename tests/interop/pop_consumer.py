#!/usr/bin/env python3
"""The official Java push consumer in POP mode on our broker: everything is consumed, failures and slow members bring
messages to the others, and a broker that is killed in the middle loses nothing.

An operator sets the mode with the unchanged mqadmin; consumers leave the division of queues to the broker
(clientRebalance=false). The broker's clock is put forward where somebody would have to wait. Java's orderly listener
does not pop, whatever the mode: it divides the queues itself and pulls.
"""

import collections
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, pop as pops, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

TOPIC, GROUP = "Popped", "pop_group"
PLAIN, FAIL, SLOW = 600, 12, 4
ADVANCE_CLOCK = 10001


class Scene:
    daemon = folder = consumers = None


scene = Scene()


def send(names):
    with r.Client(scene.daemon.broker, timeout=20) as client:
        waits = [client.send(r.SEND_MESSAGE_V2, *r.send_v2(TOPIC, name.encode(), {"TAGS": "A"}, i % 4))
                 for i, name in enumerate(names)]
        for wait in waits:
            tap.equal(client.wait(wait).code, r.SUCCESS, "send")


def advance(seconds):
    with r.Client(scene.daemon.broker) as client:
        tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": seconds * 1000}).code, r.SUCCESS, "advance")


def start(name):
    folder = os.path.join(scene.folder, name)
    os.makedirs(folder)
    child = tap.watch(apache.java(name, "oncemq.interop.PopConsumers", scene.daemon.names, TOPIC, GROUP,
                                  os.path.join(scene.folder, name + ".got"), 2, home=folder,
                                  stdin=subprocess.PIPE))
    child.wait_line(lambda line: line == "started", 60)
    return child


def deliveries(name):
    with open(os.path.join(scene.folder, name + ".got"), encoding="utf-8") as lines:
        return [tuple(line.split()) for line in lines if line.endswith("\n")]


def wait_for(name, what, condition, timeout=60):
    process.wait_until(lambda: condition(deliveries(name)), timeout, what, pause=0.2)


def bodies(found):
    return {body for _, body, _, _ in found}


def mqadmin(*words):
    folder = os.path.join(scene.folder, "mqadmin")
    os.makedirs(folder, exist_ok=True)
    child = apache.java("mqadmin", "org.apache.rocketmq.tools.command.MQAdminStartup", *words, home=folder)
    return child.finish(60)


@tap.test("mqadmin setConsumeMode makes a group pop")
def _():
    scene.folder = process.temp_folder()
    broker, names = process.free_ports(2)
    scene.daemon = tap.watch(Daemon(args=["--clock", "virtual"], settings={
        "listenPort": broker, "namesrvListenPort": names, "brokerName": "broker-a"}))
    send(["first"])
    status, out = mqadmin("setConsumeMode", "-n", scene.daemon.names, "-b", scene.daemon.broker, "-t", TOPIC, "-g", GROUP,
                          "-m", "POP", "-q", "0")
    tap.equal(status, 0, "mqadmin: %s" % out)
    with r.Client(scene.daemon.broker) as client:
        modes = client.request(pops.GET_ALL_MESSAGE_REQUEST_MODE).json()["messageRequestModeMap"]
    tap.equal(modes[TOPIC][GROUP]["mode"], "POP", "mode")


@tap.test("two members share %d messages, through a SIGKILL of the broker, by popping" % PLAIN)
def _():
    half = ["plain%d" % i for i in range(PLAIN // 2)]
    rest = ["plain%d" % i for i in range(PLAIN // 2, PLAIN)]
    send(half)
    scene.consumers = start("consumers")
    wait_for("consumers", "some have come", lambda found: len(found) > 50)
    scene.daemon.kill9()
    scene.daemon.start()
    send(rest)
    wait_for("consumers", "all have come", lambda found: bodies(found) >= set(half + rest + ["first"]), 90)

    def both():     # one of them may have been quick enough to take them all
        send(["more%d" % i for i in range(8)])
        return {member for member, _, _, _ in deliveries("consumers")} == {"m0", "m1"}
    process.wait_until(both, 60, "both members at work", pause=0.2)
    found = deliveries("consumers")
    tap.equal({way for _, _, _, way in found}, {"pop"}, "ways")
    tap.note("%d deliveries" % len(found))


@tap.test("what fails comes again after its delay, what is too slow comes to somebody else")
def _():
    fail, slow = ["fail%d" % i for i in range(FAIL)], ["slow%d" % i for i in range(SLOW)]
    send(fail + slow)
    wait_for("consumers", "the first tries", lambda found: bodies(found) >= set(fail + slow))

    def again(found):
        advance(4)      # the first retry is after 10 s, the slow ones are invisible for 5 s
        return {body for _, body, tries, _ in found if tries == "1"} >= set(fail + slow)
    process.wait_until(lambda: again(deliveries("consumers")), 60, "all came again", pause=0.5)


@tap.test("all is acknowledged in the end: nothing comes again, and nothing is in flight")
def _():
    def quiet():
        before = len(deliveries("consumers"))
        advance(60)
        with pops.Popper(scene.daemon.broker, GROUP, TOPIC) as popper:
            left = popper.pop(invisible_ms=1)   # it must not take what a retry still brings
        return not left and len(deliveries("consumers")) == before
    process.wait_until(lambda: quiet() and quiet() and quiet(), 60, "three times a minute without a message", pause=0.5)
    tries = collections.Counter(int(tries) for _, _, tries, _ in deliveries("consumers"))
    tap.note("deliveries by tries: %s" % dict(tries))
    scene.consumers.kill9()
    tap.unwatch(scene.consumers)


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
