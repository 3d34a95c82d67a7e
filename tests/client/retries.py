#!/usr/bin/env python3
"""When a message is tried again, and where: by brokers of the test's own that refuse, cut, stall and move."""

import base64
import hmac
import pathlib
import re
import socket
import sys
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import (BUSY, CLOSED, DENIED, INVALID, LOST, NETWORK, NO_TOPIC, REFUSED, Scene,  # noqa: E402
                          TIMEOUT, broker, id_of)
from harness import process, puppet, remoting, tap  # noqa: E402
from harness.fake import CUT, Fake, reply, routes, sent  # noqa: E402

STORED, NO_FLUSH, NO_COPY = 0, 1, 2
GO_AWAY, RECALL_MESSAGE = 1500, 370


def refuses(code):
    return lambda request: reply(code=code, remark="as the test wants it")


def cuts(_):
    return CUT


def silent(_):
    return None


def first(answer, then=sent):
    """`answer` to the first message, `then` to all others."""
    told = []
    return lambda request: then(request) if told else told.append(1) or answer(request)


def until_on_a(scene, **more):
    """Sends until a message was tried on broker-a first; gives its receipt."""
    for _ in range(8):
        before = len(scene.sends())
        receipt = scene.send(**more)
        if len(scene.sends()) > before:
            return receipt
    raise AssertionError("broker-a was never tried")


@tap.test("refusals that another broker may not share are tried on another one, under the same id")
def _():
    for code in (1, 2, 14, 16, 17, 204, 205):
        for mode in ("sync", "async"):
            with Scene(refuses(code), others={"broker-b": sent}, retries=2) as scene:
                receipt = until_on_a(scene, mode=mode)
                tap.equal(receipt["broker"], "broker-b", "broker after code %d" % code)
                tap.equal([id_of(each) for each in scene.sends()], [receipt["id"]], "id at broker-a")
                tap.equal(id_of(scene.sends("broker-b")[-1]), receipt["id"], "id at broker-b")


def goes_away(lines):
    """A broker that does nothing any more on its first connections, and says so; "hold" is kept for later."""
    def answer(request):
        if request.body == b"hold":
            return None
        return refuses(GO_AWAY)(request) if request.line <= lines else sent(request)
    return answer


@tap.test("a broker that says GO_AWAY gets the message over a new connection, and answers the others over the old one")
def _():
    with Scene(goes_away(1)) as scene:
        held = scene.puppet.start("send", name="p", messages=[puppet.message("T", b"hold")])
        [waiting] = scene.broker.wait(remoting.SEND_MESSAGE_V2)
        receipt = scene.send()
        refused, again = scene.sends()[1:]
        tap.equal((refused.line, again.line, id_of(again)), (1, 2, id_of(refused)), "connections, and the same message")
        tap.equal(id_of(again), receipt["id"], "id")
        scene.send()
        tap.equal(scene.sends()[-1].line, 2, "connection of what follows")
        scene.broker.answer_late(waiting, sent(waiting, offset=7))
        tap.equal(scene.puppet.finish(held)[0]["offset"], 7, "place of the one that was under way")
        process.wait_until(lambda: scene.puppet.call("stats", name="k")["connections"] == 2, 10, "the old one is closed")


@tap.test("many messages that are told to go away all arrive; and the name server may say it, too")
def _():
    names = routes({})
    with Scene(goes_away(1), names=lambda q: refuses(GO_AWAY)(q) if q.line == 1 else names(q)) as scene:
        names = routes({"broker-a": scene.broker.address})
        results = scene.puppet.call("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 200)
        tap.equal([each for each in results if "code" in each], [], "errors")
        tap.equal(scene.broker.accepted, 2, "connections to the broker")


@tap.test("one that says GO_AWAY again and again is asked twice, then another broker")
def _():
    with Scene(goes_away(100)) as scene:
        error = scene.refused(REFUSED, BUSY)
        tap.equal((error.response, len(scene.sends())), (GO_AWAY, 2), "its code, and tries")
    with Scene(goes_away(100), others={"broker-b": sent}, retries=2) as scene:
        tap.equal(until_on_a(scene)["broker"], "broker-b", "broker")
    with Scene(goes_away(100), timeout_ms=4000) as scene:  # a close in the middle of it
        number = scene.puppet.start("send", name="p", mode="async", messages=[puppet.message("T", b"hold")] * 3)
        scene.broker.wait(remoting.SEND_MESSAGE_V2, 3)
        scene.refused(REFUSED, BUSY)
        scene.puppet.call("stop", name="p")
        tap.check({each["code"] for each in scene.puppet.finish(number)} <= {CLOSED, TIMEOUT, LOST}, "codes")


@tap.test("answers may come in any order: each is taken for its own message")
def _():
    with Scene(silent, timeout_ms=20000) as scene:
        number = scene.puppet.start("send", name="p", mode="async", messages=[puppet.message("T", b"x", id="m%d" % i)
                                                                              for i in range(50)])
        waiting = scene.broker.wait(remoting.SEND_MESSAGE_V2, 50)
        for each in sorted(waiting, key=lambda q: zlib.crc32(id_of(q).encode())):
            scene.broker.answer_late(each, sent(each, offset=int(id_of(each)[1:])))
        tap.equal([each["offset"] for each in scene.puppet.finish(number)], list(range(50)), "places")


@tap.test("other refusals are final, and say what the broker said")
def _():
    for code in (3, 13, 26, 29, 215, 604):
        with Scene(refuses(code), retries=2) as scene:
            error = scene.refused(10, 8, 11, REFUSED)
            tap.check("as the test wants it" in str(error) and error.response == code, "words and code: %s" % error)
            tap.equal(len(scene.sends()), 1, "tries")


@tap.test("PR-2 a lost connection is tried elsewhere; without retries, or when all are used up, it is an error")
def _():
    with Scene(cuts, others={"broker-b": sent}, retries=2) as scene:
        receipt = until_on_a(scene)
        tap.equal(id_of(scene.sends()[0]), receipt["id"], "the same id")
    with Scene(cuts, others={"broker-b": cuts}, retries=-1) as scene:
        scene.refused(LOST)
        tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 1, "tries without retries")
    with Scene(cuts, others={"broker-b": cuts}, retries=4) as scene:
        scene.refused(LOST)
        tries = scene.sends() + scene.sends("broker-b")
        tap.equal(len(tries), 5, "tries")
        tap.equal(len({id_of(each) for each in tries}), 1, "ids")
        tap.check(len(scene.sends()) in (2, 3), "both in turn: %d at broker-a" % len(scene.sends()))


@tap.test("a broker that cannot be reached at all is left for another one")
def _():
    with Scene(brokers={}, retries=2) as scene, socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))  # taken, and nobody listens
        scene.brokers.update({"broker-a": "127.0.0.1:%d" % gone.getsockname()[1], "broker-b": scene.broker.address})
        tap.equal({scene.send()["broker"] for _ in range(8)}, {"broker-b"}, "brokers")


@tap.test("a time-out uses up the time there is: no second try, and the error says that it may be stored")
def _():
    with Scene(silent, others={"broker-b": silent}, retries=2, timeout_ms=3000) as scene:
        tap.check("may have stored" in str(scene.refused(TIMEOUT)), "sentence")
        tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 1, "tries")


@tap.test("PR-2 a broker that takes a message and says nothing, or takes no connection, is left for another one in time")
def _():
    with Scene(silent, others={"broker-b": sent}, retries=2, try_timeout_ms=3000, timeout_ms=20000) as scene:
        receipt = until_on_a(scene)
        tap.equal((receipt["broker"], len(scene.sends())), ("broker-b", 1), "stored there, tries here")
        tap.equal(id_of(scene.sends()[0]), receipt["id"], "the same id")
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(0)
    full = [socket.socket() for _ in range(4)]
    for each in full:  # what the kernel keeps for somebody who never accepts
        each.setblocking(False)
        each.connect_ex(deaf.getsockname())
    with Scene(brokers={}, retries=2, timeout_ms=6000) as scene:
        scene.brokers.update({"broker-a": "127.0.0.1:%d" % deaf.getsockname()[1], "broker-b": scene.broker.address})
        tap.equal({scene.send()["broker"] for _ in range(4)}, {"broker-b"}, "brokers")
    for each in [deaf, *full]:
        each.close()


@tap.test("DS-4 a one-way message asks for no answer, and with no broker there the call succeeds all the same")
def _():
    with Scene() as scene:
        scene.send(mode="oneway")
        [first_one] = scene.broker.wait(remoting.SEND_MESSAGE_V2)
        scene.send(mode="oneway")
        requests = scene.broker.wait(remoting.SEND_MESSAGE_V2, 2)
        tap.check(first_one.is_oneway and requests[1].is_oneway, "both say that nobody waits")
        scene.broker.close()
        scene.send(mode="oneway")
        scene.names.close()
        scene.send(mode="oneway", topic="Unknown")


@tap.test("LB-1 RM-2 messages go round all queues of all brokers, the same number to each")
def _():
    for others, count in (({}, 1000), ({"broker-b": sent}, 800)):
        with Scene(others=others) as scene:
            scene.puppet.call("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * count)
            places = [(request.ext["n"], request.ext["e"]) for name in ["broker-a", *others] for request in scene.sends(name)]
            queues = 4 * (1 + len(others))
            tap.equal(sorted(places.count(each) for each in set(places)), [count // queues] * queues, "messages in each")


@tap.test("a message with a place stays there: no other queue takes it")
def _():
    for place in ({"queue": {"broker": "broker-a", "id": 1}}, {"shard": "key"}):
        with Scene(cuts, others={"broker-b": cuts}, retries=2) as scene:
            scene.refused(LOST, **place)
            tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 1, "tries of %s after a cut" % place)
        with Scene(refuses(1), others={"broker-b": refuses(1)}, retries=2) as scene:
            scene.refused(REFUSED, **place)
            tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 1, "tries of %s after a refusal" % place)
    with Scene(first(cuts), retries=2, retry_same_broker_first=True) as scene:
        tap.equal(scene.send(queue={"broker": "broker-a", "id": 1})["queue"], 1, "queue")
        tap.equal([each.ext["e"] for each in scene.sends()], ["1", "1"], "queues tried")
    with Scene(first(cuts), retries=2, retry_same_broker_first=True) as scene:
        scene.send(shard="key")
        tap.equal(len({each.ext["e"] for each in scene.sends()}), 1, "queues tried")


@tap.test("with retry_undone a message is tried again only if no try before can have stored it")
def _():
    with Scene(cuts, others={"broker-b": cuts}, retries=2, retry_undone=True) as scene:
        scene.refused(LOST)
        tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 1, "tries after a cut")
    with Scene(refuses(1), others={"broker-b": refuses(1)}, retries=2, retry_undone=True) as scene:
        scene.refused(REFUSED)
        tap.equal(len(scene.sends()) + len(scene.sends("broker-b")), 3, "tries after refusals")
    with Scene(brokers={"broker-a": "127.0.0.1:1", "broker-b": "127.0.0.1:1"}, retries=2, retry_undone=True) as scene:
        scene.refused(NETWORK)


@tap.test("with producer dedup the second try goes to the same queue first, the third elsewhere")
def _():
    with Scene(cuts, others={"broker-b": sent}, retries=2, retry_same_broker_first=True) as scene:
        receipt = until_on_a(scene)
        tries = scene.sends()
        tap.equal([id_of(each) for each in tries], [receipt["id"]] * 2, "tries at broker-a")
        tap.equal(len({each.ext["e"] for each in tries}), 1, "queues there")
        tap.equal(receipt["broker"], "broker-b", "in the end")
    with Scene(lambda q: sent(q, DUPLICATES=1)) as scene:
        tap.equal(scene.send()["duplicate"], True, "a broker that knew it")


@tap.test("stored, but not safely: a result, or with retry_not_stored a reason to try elsewhere")
def _():
    def weak(code):
        def answer(request):
            given = sent(request)
            given.code = code
            return given
        return answer
    for code, status in ((10, NO_FLUSH), (11, NO_COPY), (12, NO_COPY)):
        with Scene(weak(code)) as scene:
            tap.equal(scene.send()["status"], status, "status of %d" % code)
        with Scene(weak(code), others={"broker-b": sent}, retries=2, retry_not_stored=True) as scene:
            receipt = until_on_a(scene)
            tap.equal((receipt["status"], receipt["broker"]), (STORED, "broker-b"), "after %d" % code)
        with Scene(weak(code), others={"broker-b": cuts}, retries=1, retry_not_stored=True) as scene:
            receipt = until_on_a(scene)
            tap.equal((receipt["status"], receipt["broker"]), (status, "broker-a"), "what there was, after %d" % code)


@tap.test("with avoid_slow a broker that failed gets no messages for a while")
def _():
    with Scene(first(cuts), others={"broker-b": sent}, retries=2, avoid_slow=True) as scene:
        until_on_a(scene)
        tap.equal({scene.send()["broker"] for _ in range(20)}, {"broker-b"}, "brokers")
        tap.equal(len(scene.sends()), 1, "messages to broker-a")
    with Scene(first(cuts), others={"broker-b": sent}, retries=2) as scene:
        until_on_a(scene)
        tap.equal({scene.send()["broker"] for _ in range(8)}, {"broker-a", "broker-b"}, "brokers without it")


@tap.test("a broker that has moved is found where it is now, within the same send")
def _():
    with Scene(retries=2) as scene:
        scene.send()
        scene.brokers["broker-a"] = "127.0.0.1:1"  # nobody, until the new one is there
        scene.others["broker-a"] = moved = broker()
        scene.broker.close()
        scene.brokers["broker-a"] = moved.address
        scene.send()
        tap.equal(len(moved.of(remoting.SEND_MESSAGE_V2)), 1, "messages at the new address")


@tap.test("a topic that a broker no longer has is looked for again")
def _():
    with Scene(refuses(17), others={"broker-b": sent}, retries=2) as scene:
        del scene.brokers["broker-b"]
        try:
            scene.send()
        except puppet.Refused as error:
            tap.equal(error.code, NO_TOPIC, "code")
        scene.brokers["broker-b"] = scene.others["broker-b"].address
        tap.equal(scene.send()["broker"], "broker-b", "broker")


@tap.test("a message to a topic that it has made is taken back, though no name server knows of it yet")
def _():
    def names(request):
        return routes(scene.brokers)(request) if request.ext.get("topic") == "TBW102" else reply(remoting.TOPIC_NOT_EXIST)
    with Scene(brokers={}, names=names) as scene:
        scene.brokers["broker-a"] = scene.broker.address
        recall = base64.urlsafe_b64encode(b"v1 Fresh broker-a 1800000000000 0A000001").decode()
        scene.send(topic="Fresh")
        scene.puppet.call("recall", name="p", topic="Fresh", recall=recall)
        asked, = scene.broker.of(RECALL_MESSAGE)
        tap.equal((asked.ext["topic"], asked.ext["recallHandle"]), ("Fresh", recall))
        recall = base64.urlsafe_b64encode(b"v1 Fresh broker-z 1800000000000 0A000001").decode()
        try:
            scene.puppet.call("recall", name="p", topic="Fresh", recall=recall)
        except puppet.Refused as error:
            tap.check("broker-z" in str(error), error)
        else:
            tap.check(False, "a broker that nobody knows has taken it back")


@tap.test("RM-11 of several name servers any may be gone, or silent, and the next one answers")
def _():
    with Scene() as scene:
        others = [Fake(routes(scene.brokers)) for _ in range(2)]
        mute = Fake(silent)
        all_of = [scene.names, *others]
        scene.puppet.call("client", name="k2", names=";".join(each.address for each in [mute, *all_of]),
                          client_timeout_ms=2000)
        scene.puppet.call("producer", name="q", client="k2", group="g2", timeout_ms=20000)
        for number in range(3):
            receipt = scene.puppet.call("send", name="q", messages=[puppet.message("T%d" % number, b"x")])
            tap.equal(len(receipt), 1, "receipts")
            all_of[number].close()
        try:
            scene.puppet.call("send", name="q", messages=[puppet.message("T9", b"x")])
            raise AssertionError("no name server is left")
        except puppet.Refused as error:
            tap.check(error.code in (NETWORK, TIMEOUT), "code of %s" % error)
        scene.puppet.call("send", name="q", messages=[puppet.message("T1", b"what is known stays known")])
        mute.close()


class Page:
    """A web server with one page."""

    def __init__(self, text, status="200 OK", silent=False):
        self.text, self.status, self.silent, self.asked = text, status, silent, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d/rocketmq/nsaddr?x=1" % self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.asked.append(peer.recv(4096).decode())
            if self.silent:
                self.kept = peer
                continue
            peer.sendall(("HTTP/1.0 %s\r\nX: y\r\n\r\n%s" % (self.status, self.text)).encode())
            peer.close()


@tap.test("name servers are found by a web page, and a page that does not help is an error that says so")
def _():
    with Scene() as scene:
        page = Page("127.0.0.1:1;%s\n" % scene.names.address)
        scene.puppet.names = None
        scene.puppet.call("client", name="k2", names_url=page.url)
        scene.puppet.call("producer", name="q", client="k2", group="g2", timeout_ms=20000)
        for _ in range(3):
            scene.puppet.call("send", name="q", messages=[puppet.message("T", b"x")])
        tap.equal(len(page.asked), 1, "questions to the page")
        tap.check(page.asked[0].startswith("GET /rocketmq/nsaddr?x=1 HTTP/1."), "question: %s" % page.asked)
        bad = [Page("", "404 Not Found"), Page("no servers here"), Page("x" * 100000), Page("", silent=True)]
        urls = [each.url for each in bad] + ["http://127.0.0.1:1/", "http://nobody.invalid/"]
        for number, url in enumerate(urls):
            scene.puppet.call("client", name="b%d" % number, names_url=url)
            scene.puppet.call("producer", name="r%d" % number, client="b%d" % number, group="g3", timeout_ms=1000)
            begin = time.monotonic()
            try:
                scene.puppet.call("send", name="r%d" % number, messages=[puppet.message("T", b"x")])
                raise AssertionError("there is no name server")
            except puppet.Refused as error:
                tap.check(error.code in (NETWORK, TIMEOUT) and url in str(error), "%s: %s" % (url, error))
            tap.check(time.monotonic() - begin < 20, "time")
        for wrong in ("ftp://x/", "http://", "http://h:99999/", "http://a b/", "x"):
            try:
                scene.puppet.call("client", name="w", names_url=wrong)
                raise AssertionError("%s was taken" % wrong)
            except puppet.Refused as error:
                tap.equal(error.code, INVALID, "code")


@tap.test("requests are signed, all of them, by the values of their fields in order and their bodies")
def _():
    with Scene(heartbeat_every_ms=200, access_key="ak1", secret_key="secret", security_token="tok\u00e9n") as scene:
        scene.send(properties={"quote": "\"\\ \u00fc"})
        scene.send(mode="oneway")
        scene.broker.wait(remoting.SEND_MESSAGE_V2, 2)
        scene.broker.wait(remoting.HEART_BEAT)
        for request in [*scene.broker.requests, *scene.names.requests]:
            fields = dict(request.ext)
            given = fields.pop("Signature")
            tap.equal((fields["AccessKey"], fields["SecurityToken"]), ("ak1", "tok\u00e9n"), "keys")
            text = "".join(fields[name] for name in sorted(fields, key=str.encode)).encode() + request.body
            wanted = base64.b64encode(hmac.new(b"secret", text, "sha1").digest()).decode()
            tap.equal(given, wanted, "signature of code %d" % request.code)


@tap.test("max_in_flight is a limit: what is beyond is refused at once, and room comes back")
def _():
    held = []
    with Scene(lambda q: held.append(q), max_in_flight=10, timeout_ms=1000) as scene:
        results = scene.puppet.call("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 15)
        codes = [each.get("code") for each in results]
        tap.equal((codes.count(BUSY), codes.count(TIMEOUT)), (5, 10), "refused, timed out")
        results = scene.puppet.call("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 10)
        tap.equal([each.get("code") for each in results], [TIMEOUT] * 10, "there is room again")


@tap.test("a request makes itself known to all brokers of its topic: the reply may come from any of them")
def _():
    with Scene(others={"broker-b": sent}) as scene:
        number = scene.puppet.start("request", name="p", messages=[puppet.message("T", b"?")], timeout_ms=20000)
        beats = [each.wait(remoting.HEART_BEAT) for each in (scene.broker, scene.others["broker-b"])]
        tap.equal([beat[0].json()["producerDataSet"] for beat in beats], [[{"groupName": "g"}]] * 2, "heartbeats")
        [request] = process.wait_until(lambda: scene.sends() + scene.sends("broker-b"), 10, "the request")
        marks = remoting.properties(request.ext["i"])
        tap.equal(marks["REPLY_TO_CLIENT"], beats[0][0].json()["clientID"], "who asks")
        reply_marks = remoting.property_text({"CORRELATION_ID": marks["CORRELATION_ID"], "MSG_TYPE": "reply"})
        fields = {"producerGroup": "r", "topic": "c_REPLY_TOPIC", "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
                  "queueId": 0, "sysFlag": 1, "bornTimestamp": 1, "flag": 0, "bornHost": "127.0.0.1:1",
                  "storeHost": "127.0.0.1:2", "storeTimestamp": 2, "properties": reply_marks}
        other = scene.others["broker-b"] if scene.sends() else scene.broker
        for wrong in ({}, dict(fields, sysFlag="x"), dict(fields, properties="")):
            other.push(326, wrong, b"noise", oneway=False)
        other.push(326, fields, zlib.compress(b"forty-two"), oneway=False)
        tap.equal(scene.puppet.finish(number)["body"], "forty-two", "the reply, expanded")


@tap.test("a close waits for answers that come in time, and ends the rest; each callback comes once, before it returns")
def _():
    with Scene(silent, timeout_ms=3000) as scene:
        number = scene.puppet.start("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 50)
        scene.broker.wait(remoting.SEND_MESSAGE_V2, 50)
        begin = time.monotonic()
        scene.puppet.call("stop", name="p")
        tap.check(time.monotonic() - begin < 15, "the close took %.1f s" % (time.monotonic() - begin))
        codes = {each["code"] for each in scene.puppet.finish(number)}
        tap.check(codes <= {CLOSED, TIMEOUT}, "codes %s" % codes)
    with Scene(lambda q: time.sleep(0.01) or sent(q), timeout_ms=20000) as scene:
        number = scene.puppet.start("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 50)
        scene.broker.wait(remoting.SEND_MESSAGE_V2, 5)
        scene.puppet.call("stop", name="p")
        tap.equal({each.get("code") for each in scene.puppet.finish(number)}, {None}, "errors")


@tap.test("a close while the route is being asked for, and while nobody can be reached, ends in time")
def _():
    for names in (silent, None):
        with Scene(names=names, brokers={"broker-a": "127.0.0.1:1"}, timeout_ms=500) as scene:
            number = scene.puppet.start("send", name="p", mode="async", messages=[puppet.message("T", b"x")] * 5)
            scene.puppet.call("stop", name="p")
            tap.check(all("code" in each for each in scene.puppet.finish(number)), "all have ended")


@tap.test("a client's id is address, process and number, or what it is told; heartbeats carry it, and a close says goodbye")
def _():
    with Scene(heartbeat_every_ms=200) as scene:
        first_id, second_id = (scene.puppet.call("client", name=name) for name in ("k2", "k3"))
        tap.check(re.fullmatch(r"[0-9.]+@\d+#\d+", first_id), "id %s" % first_id)
        tap.check(first_id != second_id, "ids differ: %s" % first_id)
        told = scene.puppet.call("client", name="k4", ip="10.1.2.3", instance="one", unit="u")
        tap.equal(told, "10.1.2.3@one@u", "id as told")
        scene.send()
        beat = scene.broker.wait(remoting.HEART_BEAT, 2)[0].json()
        tap.equal(beat["producerDataSet"], [{"groupName": "g"}], "groups in a heartbeat")
        scene.puppet.call("stop", name="p")
        [goodbye] = scene.broker.wait(remoting.UNREGISTER_CLIENT)
        tap.equal((goodbye.ext["clientID"], goodbye.ext["producerGroup"]), (beat["clientID"], "g"), "goodbye")


@tap.test("a message refused for want of permission is told as such")
def _():
    with Scene(refuses(16)) as scene:
        scene.refused(DENIED)


tap.main()
