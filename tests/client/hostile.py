#!/usr/bin/env python3
"""Producers of liboncemq against servers that lie, stall or leave: an error with a cause, never a crash, never a hang
past the timeout. The servers are the test's own (harness/fake.py)."""

import pathlib
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import INVALID, LOST, NETWORK, NO_TOPIC, PROTOCOL, Scene, TIMEOUT, TOO_BIG  # noqa: E402
from harness import fake, remoting, tap  # noqa: E402
from harness.fake import CUT, reply, sent  # noqa: E402


def header(request, **more):
    return remoting.encode_json(remoting.Command(0, more.get("ext", {}), opaque=request.opaque, flag=remoting.RESPONSE))


LIES = {
    "a frame that ends in its header": lambda q: [remoting.encode(answer(q))[:20], CUT],
    "a frame that ends in its length": lambda q: [b"\0\0", CUT],
    "a length of two gigabytes": lambda q: struct.pack(">II", 0x7fffffff, 4) + b"{}",
    "a length below four": lambda q: struct.pack(">II", 2, 0),
    "a header longer than its frame": lambda q: remoting.frame(header(q), header_length=5000),
    "a header that is no JSON": lambda q: remoting.frame(b"{\"code\":0,,"),
    "a header of an unknown form": lambda q: remoting.frame(header(q), serialize=9),
    "a header with a thousand fields": lambda q: remoting.frame(header(q, ext={"f%d" % i: "" for i in range(1000)})),
    "noise": lambda q: bytes(range(256)) * 8,
    "a web server": lambda q: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
}


def answer(request):
    filled = sent(request)
    filled.opaque, filled.flag = request.opaque, remoting.RESPONSE
    return filled


@tap.test("a broker's answer that cannot be read ends the send as lost, and the next message gets through")
def _():
    for what, lie in LIES.items():
        told = []
        with Scene(lambda q: lie(q) if not told and not told.append(1) else sent(q)) as scene:
            error = scene.refused(LOST, PROTOCOL)
            tap.check("broker-a" in str(error), "%s: the sentence names the broker: %s" % (what, error))
            scene.send()


@tap.test("a name server's answer that cannot be read is not believed")
def _():
    bodies = [b"", b"[]", b"{", b"null", b"{\"brokerDatas\":5}", b"{\"brokerDatas\":[{}],\"queueDatas\":[{}]}",
              b"{\"brokerDatas\":[],\"queueDatas\":[]}", b"\xff\xfe", b"[" * 100000]
    bodies += [fake.route({"b": "127.0.0.1:1"}, queues=n) for n in (-1, 0, 1 << 30, 2147483647)]
    bodies += [fake.route({"b": "127.0.0.1:1"}, perm=n) for n in (0, 4)]
    for body in bodies:
        with Scene(names=lambda q: reply(body=body)) as scene:
            scene.refused(NETWORK, NO_TOPIC, PROTOCOL)


@tap.test("a route to nowhere is an error with a cause, within the timeout")
def _():
    with socket.socket() as holder:  # taken, and nobody listens
        holder.bind(("127.0.0.1", 0))
        to_nowhere(holder.getsockname()[1])


def to_nowhere(nowhere):
    for address in ("127.0.0.1:%d" % nowhere, "no address", "127.0.0.1:0", "127.0.0.1:99999", ":", "",
                    "nobody.invalid:10911", "[::1]:%d" % nowhere, "x" * 3000 + ":1"):
        with Scene(brokers={"broker-a": address}, timeout_ms=1000, retries=2) as scene:
            error = scene.refused(NETWORK, TIMEOUT, INVALID, NO_TOPIC)
            tap.check("broker-a" in str(error) or "topic T" in str(error), "a cause: %s" % error)


@tap.test("answers that were not asked for are dropped")
def _():
    def odd(request):
        wrong = [remoting.Command(0, {"queueId": "1"}, opaque=n, flag=remoting.RESPONSE)
                 for n in (request.opaque + 1, request.opaque + 65536, -1, 2147483647, 0)]
        return [*[remoting.encode(each) for each in wrong], sent(request), sent(request), sent(request)]
    with Scene(odd) as scene:
        for _ in range(5):
            tap.equal(scene.send()["offset"], 0, "offset")


@tap.test("a stored message whose answer lacks its place is an error that says so")
def _():
    for ext in ({}, {"queueId": "x", "queueOffset": "1"}, {"queueId": "1", "queueOffset": "99999999999999999999"}):
        with Scene(lambda q: reply(ext=ext)) as scene:
            scene.refused(PROTOCOL)


@tap.test("long texts in an answer are cut, not believed")
def _():
    long = "x" * 100000
    with Scene(lambda q: sent(q, msgId=long, recallHandle=long, transactionId=long)) as scene:
        tap.check(len(scene.send()["offset_id"]) < 100, "offset id")
    with Scene(lambda q: reply(code=13, remark=long)) as scene:
        tap.check(len(str(scene.refused(TOO_BIG))) < 600, "sentence")


@tap.test("a silent broker costs the timeout and no more; a late answer is nobody's")
def _():
    kept = []
    with Scene(lambda q: kept.append(q) if len(kept) < 1 else [late(kept[0]), sent(q)], timeout_ms=3000) as scene:
        begin = time.monotonic()
        error = scene.refused(TIMEOUT)
        tap.check(2.5 < time.monotonic() - begin < 15, "time")
        tap.check("may have stored" in str(error), "it says that the message may be stored: %s" % error)
        scene.send()


def late(request):
    return remoting.encode(answer(request))


@tap.test("a silent name server costs the timeout and no more")
def _():
    with Scene(names=lambda q: None, timeout_ms=500) as scene:
        scene.refused(TIMEOUT)


@tap.test("requests that no client knows are answered, and do no harm")
def _():
    with Scene() as scene:
        scene.send()
        for code in (0, 39, 40, 220, 221, 307, 309, 326, 999, -5, 2147483647):
            for oneway in (True, False):
                scene.broker.push(code, {"x": "y", "topic": "", "consumerGroup": "?"}, b"\1\2\3", oneway)
        scene.send()


tap.main()
