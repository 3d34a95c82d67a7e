"""A consumer of liboncemq before a broker of the test's own (harness/fake.py): one topic T with one queue (or `queues`), whose
messages the test writes by hand."""

import concurrent.futures
import itertools
import struct
import threading
import zlib

from harness import fake, process, puppet, remoting, tap
from harness.fake import Fake, reply

PULL, QUERY, UPDATE, BACK, MAX, MEMBERS, LOCK, HEART = 11, 14, 15, 36, 30, 38, 41, 34
POP, ACK, CHANGE = 200050, 200051, 200053
NOT_FOUND, RETRY, MOVED = 19, 20, 21


def record(offset, body=b"", topic="T", queue=0, properties=None, crc=None, sys_flag=0, position=None, reconsume=0):
    """The bytes of one message in an answer to a pull."""
    text = remoting.property_text({"UNIQ_KEY": "ID%d" % offset, **(properties or {})}).encode()
    crc = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    position = offset * 1000 if position is None else position
    head = struct.pack(">IIIIqqIq", remoting.MAGIC_V1, crc, queue, 7, offset, position, sys_flag, 1000)
    rest = bytes([127, 0, 0, 1]) + struct.pack(">Iq", 1234, 2000) + bytes([127, 0, 0, 1]) + struct.pack(
        ">IiqI", 10911, reconsume, 0, len(body)) + body + bytes([len(topic)]) + topic.encode() + struct.pack(
        ">H", len(text)) + text
    return struct.pack(">I", 4 + len(head) + len(rest)) + head + rest


def found(*records, next_=None, **ext):
    body = b"".join(records)
    return reply(ext={"nextBeginOffset": next_, "minOffset": 0, "maxOffset": 1000, "suggestWhichBrokerId": 0, **ext},
                 body=body)


def nothing(offset, code=NOT_FOUND):
    return reply(code=code, ext={"nextBeginOffset": offset, "minOffset": 0, "maxOffset": offset,
                                 "suggestWhichBrokerId": 0})


def server(answer):
    """A Fake on a port that nobody takes at the same moment: scenes are made several at a time."""
    for _ in range(50):
        try:
            return Fake(answer)
        except OSError as taken:
            last = taken
    raise last


class Scene:
    """`pull(request, number)` answers pulls of T; None keeps silent. `other` may answer everything else first. `slave(request)`
    answers them at a replica, if there is to be one; `addresses` are those of master and slave, and may be changed."""
    numbers = itertools.count(1)

    def __init__(self, pull, other=None, stored=0, slave=None, queues=1, **options):
        number = next(Scene.numbers)
        self.pull, self.other, self.stored, self.id = pull, other, stored, "10.0.0.1@c%d" % number
        self.pulls, self.key = 0, threading.Lock()
        self.broker = server(self.answer)
        self.slave = server(lambda q: reply() if q.code != PULL else None if q.ext["topic"] != "T" else slave(q))
        self.addresses = [self.broker.address, *([self.slave.address] if slave else [])]
        self.names = server(lambda q: reply(body=fake.route({"a": self.addresses}, queues=queues)))
        self.puppet = tap.watch(puppet.start_c("liar%d" % number, self.names.address))
        self.puppet.call("consumer", name="c", group="g", topic="T", ip="10.0.0.1", instance="c%d" % number,
                         client_timeout_ms=5000, **{"from_": "first", **options})

    def answer(self, request):
        given = self.other(request) if self.other else fake
        if given is not fake:
            return given
        if request.code == PULL and request.ext["topic"] == "T":
            with self.key:
                self.pulls += 1
                number = self.pulls
            return self.pull(request, number)
        if request.code == PULL:
            return None  # retries: nothing, for as long as it takes
        if request.code == QUERY:
            return reply(ext={"offset": self.stored if request.ext["topic"] == "T" else 0})
        if request.code == MEMBERS:
            return reply(body=remoting.dumps({"consumerIdList": [self.id]}))
        return reply()

    def bodies(self):
        return [each["body"] for each in self.puppet.messages("c")]

    def wait(self, *bodies, timeout=20):
        process.wait_until(lambda: len(self.bodies()) >= len(bodies), timeout, "%d messages" % len(bodies))
        tap.equal(self.bodies(), list(bodies), "bodies")

    def told(self):
        """The offsets of T that the broker was told, with pulls or alone."""
        return [int(each.ext["commitOffset"]) for each in list(self.broker.requests)
                if each.ext.get("topic") == "T" and (each.code == UPDATE or each.code == PULL and
                                                     int(each.ext["sysFlag"]) & 1)]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.puppet.end()
                tap.unwatch(self.puppet)
            else:
                self.puppet.kill9()
        finally:
            for each in (self.broker, self.slave, self.names):
                each.close()


def then(*answers):
    """One answer after the other; the last is silence."""
    return lambda request, number: answers[number - 1] if number <= len(answers) else None


def together(play, cases):
    """Each case in a scene of its own, all at a time: most of it is waiting."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(play, cases))
