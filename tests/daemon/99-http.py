"""The once ledger over HTTP: what docs/once-http.md says, request by request; and what nobody should send."""

import base64
import http.client
import json
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, ledger as ledgers, process, remoting as r, tap  # noqa: E402

daemon = daemons.Daemon(settings={"httpPort": 0}, args=["--clock", "virtual"])
tap.watch(daemon)


def ask(method, path, body=None, raw=None, where=None):
    conn = http.client.HTTPConnection(*r.split_address((where or daemon).http), timeout=20)
    try:
        conn.request(method, path, raw if raw is not None else json.dumps(body) if body is not None else None)
        answer = conn.getresponse()
        return answer.status, json.loads(answer.read()), answer
    finally:
        conn.close()


def put(key, verb, scope="billing", **body):
    status, told, _ = ask("PUT", "/once/%s/%s/%s" % (scope, key, verb), body or None)
    return status, told


def claimed(key, **more):
    status, told = put(key, "claim", **more)
    tap.equal((status, told["outcome"]), (201, "claimed"), key)
    return told


def advance(ms):
    with r.Client(daemon.broker) as client:
        tap.equal(client.request(10001, {"advanceMillis": ms}).code, r.SUCCESS)


@tap.test("a claim, somebody else, the end, and who comes after it gets the result")
def _():
    claim = claimed("order-1")
    status, told, answer = ask("PUT", "/once/billing/order-1/claim")
    tap.equal((status, told["outcome"]), (409, "busy"))
    tap.check(0 < told["left_ms"] <= 30000 and int(answer.headers["Retry-After"]) >= 1, (told, answer.headers))
    tap.equal(put("order-1", "renew", token=claim["token"]), (200, {"outcome": "renewed"}))
    tap.equal(put("order-1", "done", token=claim["token"], result="invoice 4711 ä"), (200, {"outcome": "done"}))
    tap.equal(put("order-1", "done", token=claim["token"], result="invoice 4711 ä"), (200, {"outcome": "done"}), "said again")
    status, told = put("order-1", "claim")
    tap.equal((status, told["outcome"], told["result"]), (200, "done", "invoice 4711 ä"))
    status, told, _ = ask("GET", "/once/billing/order-1")
    tap.equal((status, told["state"], told["fence"]), (200, "done", claim["fence"]))
    tap.equal(ask("GET", "/once/shipping/order-1")[:2], (404, {"outcome": "absent"}), "another scope")


@tap.test("a claim that is over is another's, the fence grows, and who comes too late changes nothing")
def _():
    first = claimed("order-2", expiry_ms=1000)
    advance(2000)
    second = claimed("order-2")
    tap.check(second["fence"] > first["fence"] and second["overtook"] and not first["overtook"], (first, second))
    for verb in ("renew", "done", "release"):
        tap.equal(put("order-2", verb, token=first["token"]), (412, {"outcome": "lost"}), verb)
    tap.equal(put("order-2", "release", token=second["token"]), (200, {"outcome": "released"}))
    third = claimed("order-2", token="00000000deadbeef")
    tap.equal(third["token"], "00000000deadbeef")
    tap.equal(claimed("order-2", token="00000000deadbeef")["fence"], third["fence"], "asked again, because the answer was lost")
    tap.equal(ask("DELETE", "/once/billing/order-2")[:2], (200, {"outcome": "forgotten"}))
    tap.equal(ask("GET", "/once/billing/order-2")[0], 404)


@tap.test("many at once, each for itself")
def _():
    status, told, _ = ask("POST", "/once/billing", {"operations": [{"do": "claim", "key": "m%d" % i} for i in range(100)]})
    tap.equal((status, {each["outcome"] for each in told["outcomes"]}), (200, {"claimed"}))
    ends = [{"do": "done", "key": "m%d" % i, "token": each["token"], "result64": base64.b64encode(b"\xff\x00" + bytes([i])).decode()}
            for i, each in enumerate(told["outcomes"])]
    ends[7]["token"] = "1111111111111111"
    status, told, _ = ask("POST", "/once/billing", {"operations": ends})
    tap.equal([each["outcome"] for each in told["outcomes"]], ["lost" if i == 7 else "done" for i in range(100)])
    status, told = put("m5", "claim")
    tap.equal(base64.b64decode(told["result64"]), b"\xff\x00\x05")
    both = {"operations": [{"do": "look", "key": "m1"}, {"do": "forget", "key": "m1"}]}
    tap.equal(ask("POST", "/once/billing", both)[0], 400, "one key twice")


@tap.test("results that grow when they are written as JSON come all the same")
def _():
    keys = ["grow-%d" % i for i in range(256)]
    told = ask("POST", "/once/billing", {"operations": [{"do": "claim", "key": key} for key in keys]})[1]["outcomes"]
    result = base64.b64encode(b"\x01" * 4096).decode()
    for first in range(0, 256, 128):
        ends = [{"do": "done", "key": keys[i], "token": told[i]["token"], "result64": result} for i in range(first, first + 128)]
        tap.equal(ask("POST", "/once/billing", {"operations": ends})[0], 200)
    status, told, _ = ask("POST", "/once/billing", {"operations": [{"do": "claim", "key": key} for key in keys]})
    tap.equal((status, {each["result"] for each in told["outcomes"]}), (200, {"\x01" * 4096}))


@tap.test("a key is the same key for HTTP and for the remoting protocol")
def _():
    with ledgers.Claimer(daemon.broker, "billing") as ledger:
        tap.equal(ledger.claim("shared/ü key").outcome, ledgers.OK)
        tap.equal(put("shared%2F%C3%BC%20key", "claim")[0], 409)
        ledger.finish("shared/ü key", result=b"by remoting")
        status, told = put("shared/%C3%BC%20key", "claim")
        tap.equal((status, told["result"]), (200, "by remoting"))


@tap.test("of many that claim at the same moment, one has it")
def _():
    for round_ in range(5):
        got, threads = [], []
        for _ in range(8):
            threads.append(threading.Thread(target=lambda: got.append(put("race-%d" % round_, "claim")[0])))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        tap.equal(sorted(got), [201] + [409] * 7)


@tap.test("what makes no sense is refused with a sentence, and changes nothing")
def _():
    big = "x" * 5000
    for status, method, path, body, raw in (
            (404, "GET", "/", None, None),
            (404, "GET", "/once", None, None),
            (404, "GET", "/once/", None, None),
            (404, "GET", "/once//key", None, None),
            (405, "GET", "/once/billing", None, None),
            (405, "PUT", "/once/billing/key", {}, None),
            (405, "POST", "/once/billing/key/claim", {}, None),
            (405, "GET", "/once/billing/key/claim", None, None),
            (400, "GET", "/once/billing/a%00b", None, None),
            (400, "GET", "/once/billing/a%zz", None, None),
            (400, "GET", "/once/billing/a%2", None, None),
            (400, "GET", "/once/billing/a?", None, None),
            (400, "PUT", "/once/billing/key?/claim", {}, None),
            (400, "PUT", "/once/billing/key/claim?expiry_ms=1000", {}, None),
            (400, "POST", "/once/billing?wait", {"operations": [{"do": "claim", "key": "key"}]}, None),
            (413, "GET", "/once/billing/" + big, None, None),
            (413, "GET", "/once/%s/key" % ("s" * 300), None, None),
            (400, "PUT", "/once/billing/key/claim", None, "{"),
            (400, "PUT", "/once/billing/key/claim", None, "[]"),
            (400, "PUT", "/once/billing/key/claim", {"expiryms": 1000}, None),
            (400, "PUT", "/once/billing/key/claim", {"expiry_ms": 0}, None),
            (400, "PUT", "/once/billing/key/claim", {"expiry_ms": -5}, None),
            (400, "PUT", "/once/billing/key/claim", {"expiry_ms": "soon"}, None),
            (400, "PUT", "/once/billing/key/claim", {"retention_ms": 1 << 62}, None),
            (400, "PUT", "/once/billing/key/claim", {"token": "0000000000000000"}, None),
            (400, "PUT", "/once/billing/key/done", {}, None),
            (400, "PUT", "/once/billing/key/done", {"token": "xyz"}, None),
            (400, "PUT", "/once/billing/key/done", {"token": "1111111111111111", "result64": "%%%"}, None),
            (413, "PUT", "/once/billing/key/done", {"token": "1111111111111111", "result": "r" * 4097}, None),
            (413, "PUT", "/once/billing/key/claim", None, "x" * ((1 << 20) + 1)),
            (413, "PUT", "/once/billing/key/claim", {"topic": "t" * 256}, None),
            (400, "PUT", "/once/billing/key/claim", {"topic": ["t"]}, None),
            (400, "PUT", "/once/billing/key/claim", {"fingerprint": {"body": 1}}, None),
            (400, "PUT", "/once/billing/key/done", {"token": "1111111111111111", "result": {"invoice": 4711}}, None),
            (400, "PUT", "/once/billing/key/done", {"token": "1111111111111111", "result64": []}, None),
            (413, "PUT", "/once/billing/key/claim", {"message": "m" * 70000}, None),
            (413, "POST", "/once/billing", {"operations": [{"do": "claim", "key": "key", "topic": "t" * 66000}]}, None),
            (400, "POST", "/once/billing", {"operations": []}, None),
            (400, "POST", "/once/billing", {"operations": [{"do": "look", "key": "k%d" % i} for i in range(257)]}, None),
            (400, "POST", "/once/billing", {"operations": [{"do": "eat", "key": "k"}]}, None),
            (400, "POST", "/once/billing", {"operations": [{"do": "look"}]}, None)):
        got, told, _ = ask(method, path, body, raw)
        tap.equal((got, "error" in told and len(told["error"]) > 5), (status, True), (method, path[:60], told))
    tap.equal(ask("GET", "/once/billing/key")[0], 404, "nothing was claimed")
    for junk in (b"\x00\x01\x02\r\n\r\n", b"GET /once/a/b HTTP/9.9\r\n\r\n", b"PUT /once/a/b/claim HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                 b"GET /once/a/b HTTP/1.1\r\n" + b"X: " + b"y" * 200000 + b"\r\n\r\n"):
        with socket.create_connection(r.split_address(daemon.http), timeout=2) as raw:
            try:
                raw.sendall(junk)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
            except OSError:
                pass  # it has hung up on us
    tap.equal(claimed("after-all-that")["outcome"], "claimed")


@tap.test("a path that is cut by a zero byte or a ? is refused, and not taken for a shorter key")
def _():
    for cut in (b"\0", b"?", b"?x", b"?x=1", b"\0?", b"?\0"):
        with socket.create_connection(r.split_address(daemon.http), timeout=10) as raw:
            raw.sendall(b"DELETE /once/billing/short" + cut + b"er HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            tap.equal(raw.makefile("rb").readline().split()[1], b"400", repr(cut))
    claimed("short%3Fer")
    tap.equal(ask("GET", "/once/billing/short")[0], 404, "another key")
    tap.equal(ask("GET", "/once/billing/short%3fer")[0], 200, "the same")


@tap.test("what was told is so after kill -9, with SYNC_FLUSH too; and a stop answers what waits")
def _():
    with daemons.Daemon(settings={"httpPort": 0, "flushDiskType": "SYNC_FLUSH"}) as other:
        tap.watch(other)
        ends = {}

        def work(first):
            for i in range(first, first + 20):
                claim = ask("PUT", "/once/g/k%d/claim" % i, where=other)[1]
                ends[i] = ask("PUT", "/once/g/k%d/done" % i, {"token": claim["token"], "result": str(i)}, where=other)[0]
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100, 200)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        tap.equal((len(ends), set(ends.values())), (60, {200}))
        other.kill9()
        other.start()
        for i in ends:
            status, told, _ = ask("PUT", "/once/g/k%d/claim" % i, where=other)
            tap.equal((status, told["outcome"], told["result"]), (200, "done", str(i)))
        other.stop()


@tap.test("a stop answers whatever was asked: what the log has is told, what comes later is refused")
def _():
    slow = {"LD_PRELOAD": os.environ["SLOW_DISK"], "SLOW_DISK_MS": "40",
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    with daemons.Daemon(settings={"httpPort": 0, "flushDiskType": "SYNC_FLUSH"}, env=slow) as other:
        tap.watch(other)
        told, asked = {}, {}

        def work(number):
            conn = http.client.HTTPConnection(*r.split_address(other.http), timeout=20)
            try:
                for i in range(100000):
                    asked[number] = i
                    conn.request("PUT", "/once/g/w%d-%d/claim" % (number, i))
                    status = conn.getresponse()
                    status.read()
                    told[number, i] = status.status
                    if status.status != 201:
                        break
            except (OSError, http.client.HTTPException):
                pass  # closed in between
        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for each in threads:
            each.start()
        process.wait_until(lambda: len(told) > 40, 20, "they are at it")
        other.stop()
        for each in threads:
            each.join()
        tap.equal(set(told.values()) - {201, 503}, set(), "answers")
        other.start()
        lost = [number for number in asked
                if (number, asked[number]) not in told and ask("GET", "/once/g/w%d-%d" % (number, asked[number]), where=other)[0] == 200]
        tap.equal(lost, [], "claims that were made and not told")
        tap.unwatch(other)


@tap.test("without httpPort nobody listens")
def _():
    with daemons.Daemon() as other:
        tap.equal(other.http, None)


tap.main()
