#!/usr/bin/env python3
"""Readers of liboncemq on a real broker: the application asks for messages when it wants them."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.plays import numbered, texts  # noqa: E402
from interop.stage import unique  # noqa: E402

INVALID, MISUSE, TIMEOUT, NOT_FOUND, CLOSED = 1, 2, 4, 13, 15
LATER = 1

play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_c))


def refused(code, call, *args, **more):
    try:
        call(*args, **more)
    except puppet.Refused as error:
        tap.equal(error.code, code, "code of %r" % str(error))
        return str(error)
    raise AssertionError("it was not refused")


def filled(name, count):
    """A topic with `count` numbers in one queue; that queue, and the offset of the first."""
    p = play()
    topic = p.topic(name)
    [first] = p.send(puppet.message(topic, "0"))
    place = {"broker": first["broker"], "id": first["queue"]}
    p.send(*numbered(topic, 1, count - 1, queue=place))
    p.stage.settle()
    return {"topic": topic, **place}, first["offset"]


def reader(name, group=None, **options):
    play().main.call("reader", name=unique(name), group=group or unique("group_" + name),
                     **{"from_": "first", "commit_every_ms": -1, **options})
    return unique(name)


def read(name, count, **more):
    """Bodies, until there are as many."""
    got = []
    while len(got) < count:
        got += [each["body"] for each in play().main.call("read", name=name, wait_ms=20000, **more)
                if each["body"] != plays.OPENING]
    return got


def committed(name, queue):
    try:
        return play().main.call("committed", name=name, queue=queue)
    except puppet.Refused as error:
        tap.equal(error.code, NOT_FOUND, "code of %r" % str(error))
        return None


@tap.test("RM-5: a reader of given queues gets what is there in order, and nothing before it asks")
def _():
    queue, _ = filled("Given", 25)
    r = reader("given")
    refused(TIMEOUT, play().main.call, "read", name=r, wait_ms=10)
    play().main.call("assign", name=r, queues=[queue])
    tap.equal(read(r, 25), texts(0, 25), "bodies")
    refused(TIMEOUT, play().main.call, "read", name=r, wait_ms=50)
    play().stop(r)


@tap.test("a reader goes where it is told: back, forward, to a time's offset, beyond the end and back")
def _():
    queue, begin = filled("Seek", 20)
    r, main = reader("seek"), play().main
    refused(NOT_FOUND, main.call, "seek", name=r, queue=queue, offset=0)
    main.call("assign", name=r, queues=[queue])
    read(r, 5)
    for offset in (begin + 10, begin, begin + 19):
        main.call("seek", name=r, queue=queue, offset=offset)
        tap.equal(read(r, 1)[0], str(offset - begin), "first body at %d" % offset)
    main.call("seek", name=r, queue=queue, offset=begin + 1000)
    play().send(puppet.message(queue["topic"], "new", queue={"broker": queue["broker"], "id": queue["id"]}))
    main.call("seek", name=r, queue=queue, offset=begin)
    tap.equal(read(r, 21), texts(0, 20) + ["new"], "all of them again")
    refused(INVALID, main.call, "seek", name=r, queue=queue, offset=-1)
    play().stop(r)


@tap.test("only what is finished is committed, and only when that is asked for; the next reader goes on there")
def _():
    queue, begin = filled("Commit", 10)
    group, main = unique("commit"), play().main
    r = reader("commit1", group, pull_batch=4)
    main.call("assign", name=r, queues=[queue])
    before = committed(r, queue)  # a broker may say 0 of a young queue
    first = main.call("read", name=r, wait_ms=20000, keep="b1")
    second = main.call("read", name=r, wait_ms=20000, keep="b2")
    main.call("finish", name="b2")
    main.call("commit", name=r)
    tap.check(committed(r, queue) in (before, first[0]["offset"]), "what is not finished is not committed")
    main.call("finish", name="b1")
    main.call("commit", name=r)
    tap.equal(committed(r, queue), second[-1]["offset"] + 1, "committed")
    play().stop(r)
    r = reader("commit2", group)
    main.call("assign", name=r, queues=[queue])
    rest = read(r, begin + 10 - second[-1]["offset"] - 1)
    tap.equal(rest, texts(second[-1]["offset"] + 1 - begin, len(rest)), "the rest")
    main.call("commit", name=r, async_=True)
    process.wait_until(lambda: committed(r, queue) == begin + 10, 10, "the commit arrives")
    play().stop(r)


@tap.test("a reader commits by itself every while, and when it closes")
def _():
    queue, begin = filled("Auto", 6)
    group, main = unique("auto"), play().main
    r = reader("auto1", group, commit_every_ms=100, pull_batch=2)
    main.call("assign", name=r, queues=[queue])
    tap.equal(read(r, 2), texts(0, 2), "bodies")
    process.wait_until(lambda: committed(r, queue) == begin + 2, 10, "what was finished is committed")
    play().stop(r)
    r = reader("auto2", group, commit_every_ms=60000)
    main.call("assign", name=r, queues=[queue])
    tap.equal(read(r, 4), texts(2, 4), "the next")
    play().stop(r)
    r = reader("auto3", group)
    tap.equal(committed(r, queue), begin + 6, "committed by the close")
    play().stop(r)


@tap.test("after going back, a commit stores what was read since, though the same was committed before")
def _():
    queue, begin = filled("Back", 6)
    r, main = reader("back", commit_every_ms=60000), play().main
    main.call("assign", name=r, queues=[queue])
    for _ in range(2):
        tap.equal(read(r, 6), texts(0, 6), "bodies")
        main.call("commit", name=r)
        tap.equal(committed(r, queue), begin + 6, "committed")
        main.call("seek", name=r, queue=queue, offset=begin)
        process.wait_until(lambda: committed(r, queue) == begin, 10, "it goes back at the broker as well")
    play().stop(r)


@tap.test("what fails comes again to the same reader")
def _():
    queue, _ = filled("Again", 3)
    r, main = reader("again", pull_batch=3), play().main
    main.call("assign", name=r, queues=[queue])
    got = main.call("read", name=r, wait_ms=20000, result=LATER, done=1)
    again = main.call("read", name=r, wait_ms=20000)
    tap.equal([each["id"] for each in again], [each["id"] for each in got[1:]], "all but the first")
    tap.equal({each["reconsume"] for each in again}, {1}, "counted")
    play().stop(r)


@tap.test("readers that subscribe share the queues of a topic")
def _():
    p = play()
    topic, group = p.topic("Shared"), unique("shared")
    names = [reader("shared%d" % i, group, from_="first") for i in range(2)]
    for name in names:
        p.main.call("reader_subscribe", name=name, topic=topic, expression="yes")

    def both():
        p.send(*[puppet.message(topic, "x", tag="yes") for _ in range(4)])
        p.send(puppet.message(topic, "y", tag="no"))
        queues = []
        for name in names:
            seen = set()
            try:
                while True:
                    for each in p.main.call("read", name=name, wait_ms=200):
                        tap.equal(each["tag"], "yes", "tag")
                        seen.add(each["queue"])
            except puppet.Refused as error:
                tap.equal(error.code, TIMEOUT, "code")
            queues.append(seen)
        return queues[0] and queues[1] and not queues[0] & queues[1] and len(queues[0] | queues[1]) == 4
    process.wait_until(both, 40, "each has its own queues", pause=0.1)
    refused(MISUSE, p.main.call, "assign", name=names[0], queues=[{"topic": topic, "broker": "b", "id": 0}])
    for name in names:
        p.stop(name)


@tap.test("queues that are taken away are read no more; calls that make no sense are refused")
def _():
    queue, _ = filled("Away", 4)
    r, main = reader("away", pull_batch=1), play().main
    main.call("assign", name=r, queues=[queue])
    main.call("read", name=r, wait_ms=20000)
    main.call("assign", name=r, queues=[])
    refused(TIMEOUT, main.call, "read", name=r, wait_ms=50)
    refused(MISUSE, main.call, "reader_subscribe", name=r, topic=queue["topic"])
    refused(INVALID, main.call, "assign", name=r, queues=[{"topic": "", "broker": "b", "id": 0}])
    refused(INVALID, main.call, "assign", name=r, queues=[{"topic": "T", "id": 0}])
    refused(INVALID, main.call, "reader", name="x", group="")
    refused(NOT_FOUND, main.call, "committed", name=r, queue=dict(queue, broker="nobody"))
    main.call("assign", name=r, queues=[dict(queue, broker="nobody"), dict(queue, topic=unique("Nowhere"))])
    refused(TIMEOUT, main.call, "read", name=r, wait_ms=50)
    play().stop(r)


@tap.test("puppet and broker end well after all this")
def _():
    plays.ends_well(play())


stage.run()
