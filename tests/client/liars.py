#!/usr/bin/env python3
"""Consumers of liboncemq before brokers that lie: about records, offsets, members, locks, and that ask for odd things.

The brokers are the test's own (stub.py): one topic T with one queue, whose messages the test writes by hand. What must hold whatever they say: no crash, no message passed over, no busy waiting, the next honest answer is used.
"""

import lzma
import pathlib
import struct
import sys
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.stub import (ACK, BACK, CHANGE, HEART, LOCK, MEMBERS, MOVED, NOT_FOUND, POP, PULL, QUERY, RETRY,  # noqa: E402
                         UPDATE, Scene, found, nothing, record, then, together)
from harness import fake, process, remoting, tap  # noqa: E402
from harness.fake import reply  # noqa: E402

@tap.test("an answer whose last record is cut gives the whole ones, and the other is asked for again")
def _():
    whole = record(1, b"b")

    def play(cut):
        with Scene(then(found(record(0, b"a"), whole[:cut], next_=2), found(whole, next_=2))) as scene:
            scene.wait("a", "b")
    together(play, (1, 4, 8, 40, len(whole) - 1))


@tap.test("noise instead of records moves nothing")
def _():
    noises = [b"\0" * 200, b"\xff" * 200, struct.pack(">I", 91) + b"\0" * 87, struct.pack(">I", 0x7fffffff) + b"x" * 100,
              b"x", record(0, b"a")[:-1] + b"", record(0, b"a").replace(b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94")]

    def play(noise):
        with Scene(then(found(noise, next_=5), found(record(0, b"good"), next_=1))) as scene:
            scene.wait("good")
            tap.check(not [each for each in scene.told() if each > 1], "told %s" % scene.told())
    together(play, noises)


@tap.test("a record that stands beyond where the answer ends, or far before, is not believed")
def _():
    odd = [found(record(2**63 - 1, b"x", position=0), next_=1), found(record(7, b"x"), next_=5), found(record(0, b"a"), next_=-5),
           reply(body=record(5, b"x")), found(record(3, b"x"), next_="many")]

    def play(lie):
        with Scene(then(lie, found(record(0, b"a"), next_=1))) as scene:
            scene.wait("a")
    together(play, odd)
    with Scene(then(found(record(-5, b"x"), record(3, b"x"), record(10, b"a"), next_=11)), stored=10) as scene:
        scene.wait("a")


@tap.test("records that come twice, or backwards, are delivered once and in order")
def _():
    a, b, c = (record(i, body) for i, body in enumerate((b"a", b"b", b"c")))
    with Scene(then(found(a, a, b, a, b, next_=2), found(a, b, c, next_=3)), threads=1) as scene:
        scene.wait("a", "b", "c")


@tap.test("answers without news are not asked for in a circle")
def _():
    def play(lie):
        with Scene(lambda q, n: lie) as scene:
            process.wait_until(lambda: scene.pulls >= 1, 10, "a pull")
            before, begin = scene.pulls, time.monotonic()
            time.sleep(0.5)  # there is no event: it is about what does not happen
            rate = (scene.pulls - before) / (time.monotonic() - begin)
            tap.check(rate < 60, "%.0f pulls a second for %s" % (rate, lie.code))
    together(play, (nothing(0), nothing(0, RETRY), found(next_=0), found(record(0, b"a"), next_=0), nothing(-1),
                    reply(code=NOT_FOUND), reply(code=77), reply(code=24), reply(code=215)))


@tap.test("an offset that the broker moves is taken over, forward and back")
def _():
    answers = [nothing(500, MOVED), found(record(500, b"a"), next_=501), nothing(3, MOVED),
               found(record(3, b"b"), next_=4)]
    handled = threading.Event()

    def pull(_, number):
        if number == 3:
            handled.wait(20)  # what nobody has begun is called back when the place moves
        return answers[number - 1] if number <= len(answers) else None
    with Scene(pull) as scene:
        process.wait_until(lambda: scene.bodies() == ["a"], 20, "the first")
        handled.set()
        scene.wait("a", "b")
        offsets = [int(each.ext["queueOffset"]) for each in scene.broker.of(PULL) if each.ext["topic"] == "T"]
        tap.equal(offsets[:4], [0, 500, 501, 3], "offsets of the pulls")


def each_queue_once(request, _):
    queue = int(request.ext["queueId"])
    return found(record(0, b"%d" % queue, queue=queue), next_=1) if request.ext["queueOffset"] == "0" else None


class Words:
    """Offsets of topic T that a group tells; the first has no answer before the test gives it."""

    def __init__(self, group=None):
        self.group, self.told, self.answered = group, [], False

    def hear(self, request):
        if request.code != UPDATE or request.ext["topic"] != "T" or (self.group and request.ext["consumerGroup"] != self.group):
            return fake
        self.told.append((int(request.ext["queueId"]), int(request.ext["commitOffset"]), self.answered, request))
        return reply() if len(self.told) > 1 else None

    def answer_first(self, scene):
        process.wait_until(lambda: self.told, 20, "the first word")
        self.answered = True
        scene.broker.answer_late(self.told[0][-1], reply())

    def check(self, offsets):
        tap.equal(sorted((queue, offset) for queue, offset, *_ in self.told), sorted(offsets), "queues and offsets")
        tap.equal([late for _, _, late, _ in self.told], [False] + [True] * (len(offsets) - 1), "whether the first was answered by then")


@tap.test("at a close one queue of a topic is told first, and the others when that was answered: Apache's broker would keep one of all")
def _():
    words = Words()
    with Scene(each_queue_once, words.hear, queues=4) as scene:
        process.wait_until(lambda: sorted(scene.bodies()) == ["0", "1", "2", "3"], 20, "a message of each queue")
        stop = scene.puppet.start("stop", name="c")
        words.answer_first(scene)
        scene.puppet.finish(stop)
        words.check([(queue, 1) for queue in range(4)])


@tap.test("so does a reader's first commit")
def _():
    words = Words("r")
    with Scene(each_queue_once, words.hear, queues=4) as scene:
        queues = [{"topic": "T", "broker": "a", "id": queue} for queue in range(4)]
        scene.puppet.call("reader", name="r", group="r", from_="first", commit_every_ms=-1, client_timeout_ms=20000)
        scene.puppet.call("assign", name="r", queues=queues)
        for _ in queues:
            scene.puppet.call("read", name="r", wait_ms=20000)
        commit = scene.puppet.start("commit", name="r")
        words.answer_first(scene)
        scene.puppet.finish(commit)
        words.check([(queue, 1) for queue in range(4)])


@tap.test("a reader that goes back while a commit is under way commits again what it reads again")
def _():
    commits = []

    def pull(request, _):
        mine = request.ext["consumerGroup"] == "r" and request.ext["queueOffset"] == "0"
        return found(record(0, b"a"), next_=1) if mine else None

    def other(request):
        if request.code != UPDATE or request.ext["consumerGroup"] != "r":
            return fake
        commits.append(request)
        return reply() if len(commits) > 1 else None
    with Scene(pull, other) as scene:
        queue = {"topic": "T", "broker": "a", "id": 0}
        scene.puppet.call("reader", name="r", group="r", from_="first", commit_every_ms=-1, client_timeout_ms=20000)
        scene.puppet.call("assign", name="r", queues=[queue])
        scene.puppet.call("read", name="r", wait_ms=20000)
        commit = scene.puppet.start("commit", name="r")
        process.wait_until(lambda: commits, 10, "the first commit")
        scene.puppet.call("seek", name="r", queue=queue, offset=0)
        scene.broker.answer_late(commits[0], reply())
        scene.puppet.finish(commit)
        scene.puppet.call("read", name="r", wait_ms=20000)
        scene.puppet.call("commit", name="r")
        tap.equal([each.ext["commitOffset"] for each in commits], ["1", "1"], "commits")


@tap.test("the broker is never told more than what is done")
def _():
    records = [record(i, b"hang" if i == 3 else b"x%d" % i) for i in range(8)]
    with Scene(then(found(*records, next_=8)), hang_at="hang") as scene:
        process.wait_until(lambda: len(scene.bodies()) == 8, 10, "all messages")
        process.wait_until(lambda: max(scene.told(), default=0) >= 3, 20, "the offset of the fourth is told")
        tap.equal(max(scene.told()), 3, "offset while the fourth is worked on")
        scene.puppet.call("release")
        process.wait_until(lambda: max(scene.told()) == 8, 20, "the end is told")


@tap.test("damaged bodies become dead letters, and are never delivered")
def _():
    packed = zlib.compress(b"whole" * 100)
    kinds = [record(0, b"damaged", crc=1), record(0, packed[:-5], sys_flag=0x301), record(0, b"noise", sys_flag=0x101),
             record(0, b"noise", sys_flag=0x201), record(0, lzma.compress(b"x"), sys_flag=0x701)]
    for lie in kinds:
        with Scene(then(found(lie, record(1, packed, sys_flag=0x301), next_=2))) as scene:
            [back] = scene.broker.wait(BACK)
            tap.equal((back.ext["delayLevel"], back.ext["offset"]), ("-1", "0"), "level and position")
            process.wait_until(lambda s=scene: s.puppet.messages("c"), 10, "the good one")
            tap.equal([each["size"] for each in scene.puppet.messages("c")], [500], "sizes")


@tap.test("a body that grows without end is not expanded")
def _():
    bomb = zlib.compress(bytes(80 << 20), 9)
    with Scene(then(found(record(0, bomb, sys_flag=0x301), record(1, b"after"), next_=2))) as scene:
        scene.wait("after")
        scene.broker.wait(BACK)


@tap.test("a message that cannot be given back is tried again here, and its offset stays")
def _():
    def other(request):
        return reply(code=1, remark="no") if request.code == BACK else fake
    with Scene(then(found(record(0, b"a"), next_=1)), other=other, fail_below=1) as scene:
        process.wait_until(lambda: len(scene.bodies()) == 2, 20, "it comes again")
        tap.equal([each["reconsume"] for each in scene.puppet.messages("c")], [0, 1], "counts")
        tap.check(not [each for each in scene.told()[:1] if each > 0], "told %s" % scene.told())


@tap.test("a handler that takes too long loses its message to somebody else, once")
def _():
    with Scene(then(found(record(0, b"hang"), record(1, b"b"), next_=2)), hang_at="hang", consume_timeout_ms=500) as scene:
        [back] = scene.broker.wait(BACK)
        tap.equal((back.ext["delayLevel"], back.ext["offset"]), ("3", "0"), "level and position")
        process.wait_until(lambda: max(scene.told(), default=0) == 2, 10, "the offset moves on")
        scene.puppet.call("release")
        tap.equal(len(scene.broker.of(BACK)), 1, "given back")


@tap.test("DS-2 a broker that does not take it: the offset stays, it is asked again; and what fails meanwhile is tried here")
def _():
    tries = []

    def other(request):
        if request.code != BACK:
            return fake
        tries.append(1)
        return reply(code=1, remark="no") if len(tries) == 1 else reply()
    records = found(record(0, b"hang"), record(1, b"b"), next_=2)
    with Scene(then(records), other=other, hang_at="hang", consume_timeout_ms=500) as scene:
        scene.broker.wait(BACK)
        process.wait_until(lambda: "b" in scene.bodies(), 10, "the one behind")
        scene.broker.wait(BACK, 2)
        tap.check(max(scene.told(), default=0) == 0 or len(tries) == 2, "told %s" % scene.told())
        process.wait_until(lambda: max(scene.told(), default=0) == 2, 10, "the offset moves on")
        scene.puppet.call("release")


@tap.test("members that make no sense leave things as they are")
def _():
    bodies = [b"", b"{", b"{\"consumerIdList\":5}", b"{\"consumerIdList\":[5,null,{}]}", b"[" * 10000]

    def play(body):
        tries = []

        def other(request):
            if request.code == MEMBERS and len(tries) < 2:
                tries.append(1)
                return reply(body=body)
            return fake
        with Scene(then(found(record(0, b"a"), next_=1)), other=other) as scene:
            scene.wait("a", timeout=30)
    together(play, bodies)


@tap.test("one that the broker does not count among the members says so again, and waits")
def _():
    strange = []

    def other(request):
        if request.code == MEMBERS and len(strange) < 1:
            strange.append(1)
            return reply(body=remoting.dumps({"consumerIdList": ["10.9.9.9@other"]}))
        return fake
    with Scene(then(found(record(0, b"a"), next_=1)), other=other) as scene:
        beats = len(scene.broker.of(HEART))
        scene.wait("a")
        tap.check(len(scene.broker.of(HEART)) >= max(beats, 2), "heartbeats")


@tap.test("in order nothing is handled without a lock, whatever the lock's answer looks like")
def _():
    answers = [reply(code=1), reply(body=b""), reply(body=b"{\"lockOKMQSet\":[{\"topic\":\"X\",\"queueId\":0}]}"),
               reply(body=b"{\"lockOKMQSet\":[]}")]

    def other(request):
        if request.code == LOCK and answers:
            return answers.pop(0)
        if request.code == LOCK:
            return reply(body=remoting.dumps({"lockOKMQSet": [{"topic": "T", "brokerName": "a", "queueId": 0}]}))
        return fake
    with Scene(then(found(record(0, b"a"), next_=1)), other=other, orderly=True) as scene:
        scene.wait("a", timeout=30)
        tap.equal(answers, [], "answers that were not asked for")


@tap.test("where to begin is asked for until there is an answer that can be read")
def _():
    answers = [reply(code=1), reply(), reply(ext={"offset": "x"}), reply(ext={"offset": -7})]

    def other(request):
        if request.code == QUERY and request.ext["topic"] == "T" and answers:
            return answers.pop(0)
        return fake
    with Scene(then(found(record(5, b"a"), next_=6)), other=other, stored=5) as scene:
        scene.wait("a", timeout=30)


@tap.test("orders from a broker that cannot be read, or are about others, do no harm; a reset is obeyed")
def _():
    with Scene(then(found(record(0, b"a"), next_=1), None, found(record(0, b"b"), next_=1))) as scene:
        scene.wait("a")
        process.wait_until(lambda: scene.pulls >= 2, 10, "the next pull")
        for code in (220, 221, 307, 309, 40):
            for group in ("g", "nobody", ""):
                for body in (b"", b"{", b"{\"offsetTable\":{}}", b"\xff" * 50, record(9, b"direct")[:50],
                             b"{\"offsetTable\":{{\"topic\":\"U\",\"brokerName\":\"a\",\"queueId\":0}:9}}"):
                    for oneway in (True, False):
                        scene.broker.push(code, {"group": group, "consumerGroup": group, "topic": "T"}, body, oneway)
        scene.broker.push(220, {"group": "g", "topic": "T", "timestamp": "0"}, remoting.dumps(
            {"offsetTable": [{"topic": "T", "brokerName": "a", "queueId": 0, "offset": 0}]}))
        scene.wait("a", "b")


@tap.test("a message out of turn is handled, and moves no offset")
def _():
    with Scene(then(found(record(0, b"a"), next_=1))) as scene:
        scene.wait("a")
        scene.broker.push(309, {"consumerGroup": "g", "brokerName": "a"}, record(9, b"direct"), oneway=False)
        process.wait_until(lambda: scene.bodies() == ["a", "direct"], 10, "it was handled")
        tap.check(max(scene.told(), default=0) <= 1, "offset")


def popping(*answers):
    """Answers to pops, one after the other; then silence."""
    left = list(answers)

    def other(request):
        if request.code == POP:
            return left.pop(0) if left else None
        return fake
    return other


GOOD_POP = {"popTime": 5, "invisibleTime": 60000, "reviveQid": 2, "startOffsetInfo": "0 0 0", "msgOffsetInfo": "0 0 0",
            "restNum": 0}


@tap.test("pop: what has no handle that can be read is not handled, and the next honest answer is; it is acknowledged by it")
def _():
    lies = [{}, {"startOffsetInfo": ""}, {"startOffsetInfo": "0 7 0"}, {"startOffsetInfo": "0 0 x"}, {"popTime": "x"},
            {"reviveQid": ""}, {"startOffsetInfo": ";;; 0 0"}]
    handles = ["", "x", "1 2 3", "0 5 60000 2 9 a 0 0", "0 5 60000 2 0 a -1 0", "0 5 60000 2 0 a 0 -1",
               " ".join(["1"] * 9), "1 " * 3000]

    def play(lie):
        bad = reply(ext={**GOOD_POP, **lie}, body=record(0, b"bad")) if isinstance(lie, dict) and lie else reply(
            ext=GOOD_POP if isinstance(lie, str) else {},
            body=record(0, b"bad", properties={"POP_CK": lie} if isinstance(lie, str) and lie else None)
            if not isinstance(lie, str) or lie else b"\xff" * 100)
        good = reply(ext=GOOD_POP, body=record(0, b"good"))
        with Scene(then(), other=popping(bad, good), pop=True) as scene:
            scene.wait("good")
            [ack] = scene.broker.wait(ACK)
            tap.equal((ack.ext["extraInfo"], ack.ext["topic"], ack.ext["queueId"], ack.ext["offset"]),
                      ("0 5 60000 2 0 a 0 0", "T", "0", "0"), "acknowledgement")
    together(play, lies + handles)


@tap.test("pop: a retry is acknowledged where it stands, and a failed one is made invisible for longer")
def _():
    again = record(4, b"again", properties={"POP_CK": "3 5 60000 2 1 a 0 4"}, reconsume=1)
    with Scene(then(), other=popping(reply(ext=GOOD_POP, body=again)), pop=True) as scene:
        [ack] = scene.broker.wait(ACK)
        tap.equal((ack.ext["topic"], ack.ext["offset"]), ("%RETRY%g_T", "4"), "acknowledgement")
    with Scene(then(), other=popping(reply(ext=GOOD_POP, body=again)), pop=True, fail_below=9) as scene:
        [later] = scene.broker.wait(CHANGE)
        tap.equal((later.ext["topic"], later.ext["invisibleTime"]), ("%RETRY%g_T", "30000"), "second step of the ladder")
        tap.equal(scene.broker.of(ACK), [], "acknowledgements")


tap.main()
