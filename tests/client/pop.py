#!/usr/bin/env python3
"""Consumers of liboncemq in POP mode: the broker keeps the accounts, and no queue belongs to anybody.

On an oncemqd that does not know POP yet everything is skipped."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, remoting, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.plays import numbered, texts  # noqa: E402
from interop.stage import unique  # noqa: E402

POP = 200050
INVALID = 1


def begin():
    p = plays.Play(plays.stage(), puppet.start_c)
    with remoting.Client(p.stage.broker_address()) as client:
        if client.request(POP, {}).code == remoting.REQUEST_CODE_NOT_SUPPORTED:
            p.main.end()
            tap.skip("this broker has no POP")
    return p


play = plays.Once(begin)


def refused(code, call, *args, **more):
    try:
        call(*args, **more)
    except puppet.Refused as error:
        tap.equal(error.code, code, "code of %r" % str(error))
        return str(error)
    raise AssertionError("it was not refused")


def pops(p, name, topic, group, **more):
    return p.consumer(name, topic, group, pop=True, **more)


@tap.test("pop: every message comes to one of the members, once, and all queues are everybody's")
def _():
    p = play()
    topic, group = p.topic("Pop"), unique("pop")
    names = [pops(p, "pop%d" % i, topic, group, work_ms=2) for i in range(2)]
    p.send(*numbered(topic, 0, 400), mode="async")

    def all_there():
        return {body for name in names for body in p.bodies(name)} >= set(texts(0, 400))
    process.wait_until(all_there, 60, "all messages")
    bodies = [body for name in names for body in p.bodies(name)]
    tap.equal(len(bodies), 400, "deliveries")
    tap.note("by member: %s" % [len(p.bodies(name)) for name in names])
    for name in names:
        p.stop(name)
    again = pops(p, "pop_again", topic, group)
    p.send(puppet.message(topic, "last"))
    p.wait_bodies(again, ["last"])
    p.stop(again)
    tap.equal(p.bodies(again), ["last"], "what was acknowledged does not come again")


@tap.test("pop: tags, properties, keys and ids arrive as they were")
def _():
    p = play()
    topic, group = p.topic("PopTags"), unique("poptags")
    sent = [p.send(puppet.message(topic, tag, tag=tag, keys=["k"], properties={"colour": "red"}))[0]
            for tag in ("BBBB", "AaAa", "other")]
    consumer = pops(p, "poptags", topic, group, expression="BBBB || other")
    p.wait_bodies(consumer, ["BBBB", "other"])
    got = {each["body"]: each for each in p.deliveries(consumer)}
    tap.equal(sorted(got), ["BBBB", "other"], "bodies")
    tap.equal((got["BBBB"]["id"], got["BBBB"]["properties"]["colour"], got["BBBB"]["queue"], got["BBBB"]["offset"]),
              (sent[0]["id"], "red", sent[0]["queue"], sent[0]["offset"]), "id, property and place")
    p.stop(consumer)


@tap.test("pop: what failed comes again after the first step of the ladder, with the same id")
def _():
    p = play()
    topic, group = p.topic("PopFail"), unique("popfail")
    consumer = pops(p, "popfail", topic, group, fail_below=1)
    p.send(puppet.message(topic, "again"))
    process.wait_until(lambda: p.bodies(consumer).count("again") >= 2, 60, "it comes again")
    one, two = [each for each in p.deliveries(consumer) if each["body"] == "again"][:2]
    tap.equal(one["id"], two["id"], "id")
    tap.check(two["at"] - one["at"] >= 9000, "after %d ms" % (two["at"] - one["at"]))
    tap.equal((one["topic"], two["topic"]), (topic, topic), "topics")
    p.stop(consumer)


@tap.test("pop: what a member had that was killed comes to another when its time is over")
def _():
    p = play()
    topic, group = p.topic("PopKill"), unique("popkill")
    victim = p.puppet("popvictim")
    first = p.consumer("popvictim", topic, group, on=victim, pop=True, invisible_ms=5000, hang_at="held")
    victim.wait_messages(first, 1)
    p.send(puppet.message(topic, "held"))
    process.wait_until(lambda: "held" in p.bodies(first, victim), 30, "the handler hangs")
    victim.kill9()
    tap.unwatch(victim)
    heir = pops(p, "popheir", topic, group)
    p.wait_bodies(heir, ["held"], timeout=60)
    p.stop(heir)


@tap.test("pop: a message that fails too often becomes a dead letter")
def _():
    p = play()
    topic, group = p.topic("PopDead"), unique("popdead")
    p.stage.prepare_group(group, topic)
    p.send(puppet.message(topic, "hopeless"))
    consumer = pops(p, "popdead", topic, group, fail_below=100, max_reconsume=1)
    plays.read_dead_letters(p, group, ["hopeless"])
    process.wait_until(lambda: p.main.call("stats", name=consumer)["dead"] >= 1, 30, "it is counted")
    p.stop(consumer)


@tap.test("pop: options that do not go together are refused")
def _():
    p = play()
    for more in ({"orderly": True}, {"broadcast": True}, {"before": True}, {"invisible_ms": 10}):
        refused(INVALID, p.consumer, "popodd", "T", unique("popodd"), pop=True, **more)


@tap.test("puppet and broker end well after all this")
def _():
    plays.ends_well(play())


stage.run()
