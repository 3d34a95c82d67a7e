#!/usr/bin/env python3
"""Producers of liboncemq over bad lines and with brokers that die: what was acknowledged is stored, what was said not to
be sent is not."""

import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import CLOSED, INVALID, KEPT, LOST, NETWORK, SENDS, TIMEOUT, Scene, id_of, known  # noqa: E402
from harness import process, puppet, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.fake import Fake, reply, routes, sent  # noqa: E402
from harness.proxy import Relay  # noqa: E402
from harness.wire import Wire  # noqa: E402
from interop import stage  # noqa: E402

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
tap.note("SEED=%d" % SEED)
SLOW = "race" in os.environ.get("PUPPET", "")  # ThreadSanitizer


def stored(daemon, topic):
    """How often each unique id stands in a topic."""
    counts = {}
    with remoting.Client(daemon.broker) as client:
        for queue in range(4):
            for record in stage._read_queue(client, topic, queue):
                counts[record.unique_key] = counts.get(record.unique_key, 0) + 1
    return counts


def flood(c, name, topic, rounds, size, pause=0.0):
    """Rounds of asynchronous messages with ids of their own; id -> code, None when it was acknowledged."""
    outcome = {}
    for number in range(rounds):
        ids = ["%s-%d-%d" % (topic, number, i) for i in range(size)]
        results = c.call("send", timeout=60, name=name, mode="async",
                         messages=[puppet.message(topic, b"body of " + each.encode(), id=each) for each in ids])
        outcome.update({each: result.get("code") for each, result in zip(ids, results)})
        time.sleep(pause)
    return outcome


def judge(outcome, counts):
    good = [each for each, code in outcome.items() if code is None]
    lost = [each for each in good if each not in counts]
    tap.check(not lost, "%d of %d acknowledged messages are not there: %s" % (len(lost), len(good), lost[:3]))
    said_no = [each for each, code in outcome.items() if code == NETWORK and each in counts]
    tap.equal(said_no, [], "stored although said not to be")
    codes = {code: list(outcome.values()).count(code) for code in set(outcome.values())}
    tap.note("%d messages, by code: %s" % (len(outcome), codes))
    tap.check(set(codes) <= {None, TIMEOUT, NETWORK, LOST}, "codes")
    return good


@tap.test("over a line that delays, halves and cuts: what is acknowledged is stored, and without retries once")
def _():
    for retries in (-1, 5):
        with Daemon() as daemon, Wire(daemon.broker, SEED) as wire, Fake(routes({"broker-a": wire.address})) as names:
            tap.watch(daemon)
            c = tap.watch(puppet.start_c("c", names.address))
            c.call("producer", name="p", group="g", timeout_ms=4000, retries=retries)
            outcome = flood(c, "p", "Bad", 20, 100)
            tap.check(wire.cuts > 0, "the line was cut")
            tap.note("%d cuts" % wire.cuts)
            wire.calm()
            # That a connection was cut may be noticed only now.
            process.wait_until(lambda: flood(c, "p", "Calm", 1, 1).popitem()[1] is None, 30, "the line is good again")
            rest = flood(c, "p", "Calm", 1, 50)
            c.end()
            counts = stored(daemon, "Bad")
            good = judge(outcome, counts)
            tap.check(len(good) > 100, "some got through: %d" % len(good))
            tap.equal(set(rest.values()), {None}, "codes when the line is good again")
            if retries < 0:
                tap.equal({each: n for each, n in counts.items() if n > 1}, {}, "stored twice")
            tap.unwatch(c)
            tap.unwatch(daemon)


@tap.test("RM-4 PR-3 a broker that is killed and comes back: nothing acknowledged is lost, and sending goes on")
def _():
    broker, names = process.free_ports(2)
    with Daemon(settings={"listenPort": broker, "namesrvListenPort": names}) as daemon:
        tap.watch(daemon)
        c = tap.watch(puppet.start_c("c", daemon.names))
        c.call("client", name="k")
        c.call("producer", name="p", client="k", group="g", timeout_ms=3000, retries=2)
        outcome = flood(c, "p", "Killed", 1, 50)
        for _ in range(1 if SLOW else 3):
            ids = ["k%d-%d" % (len(outcome), i) for i in range(3000)]
            before = c.call("stats", name="k")["sent"]
            number = c.start("send", name="p", mode="async",
                             messages=[puppet.message("Killed", b"x" * 1000, id=each) for each in ids])
            process.wait_until(lambda: c.call("stats", name="k")["sent"] > before, 30, "a first answer", pause=0.01)
            daemon.kill9()
            results = c.finish(number, 60)
            outcome.update({each: result.get("code") for each, result in zip(ids, results)})
            daemon.start()
            process.wait_until(lambda: flood(c, "p", "Killed", 1, 1).popitem()[1] is None, 20, "sending goes on",
                               pause=0.1)
        c.end()
        judge(outcome, stored(daemon, "Killed"))


def keeping(names, table, name, **options):
    """A puppet whose producer has a retry table."""
    c = tap.watch(puppet.start_c(name, names))
    c.call("client", name="k")
    c.call("producer", name="p", client="k", group="g", **{"timeout_ms": 5000, "retries": 1, "retry_table": table, **options})
    return c


def leave(c, kill=False):
    c.kill9() if kill else c.end()
    tap.unwatch(c)


@tap.test("PR-3 a local retry table: what no broker takes is kept, over restarts of everybody, and stored once when one does")
def _():
    broker, names = process.free_ports(2)
    table = os.path.join(process.temp_folder(), "table")
    with Daemon(settings={"listenPort": broker, "namesrvListenPort": names}) as daemon:
        c = keeping(daemon.names, table, "first")
        outcome = flood(c, "p", "Kept", 1, 20)
        daemon.kill9()
        outcome.update(flood(c, "p", "Kept1", 1, 200))
        tap.equal({code for key, code in outcome.items() if key.startswith("Kept1")}, {KEPT}, "codes with no broker there")
        placed = c.call("send", name="p", mode="async", messages=[puppet.message("Kept", b"x", shard="s")])
        tap.check(placed[0]["code"] in (NETWORK, TIMEOUT, LOST), "what has a place is not kept: %s" % placed)
        leave(c, kill=True)
        size = os.path.getsize(table)
        c = keeping(daemon.names, table, "second")  # nobody there yet
        tap.equal(c.call("stats", name="k")["kept"], 200, "found in the table")
        results = c.call("send", name="p", mode="async", messages=[puppet.message("Kept2", b"y", id="late-%d" % i)
                                                                   for i in range(50)])
        tap.equal({each.get("code") for each in results}, {KEPT}, "codes")
        tap.check(os.path.getsize(table) > size, "the table has grown")
        leave(c)
        daemon.start()
        c = keeping(daemon.names, table, "third", timeout_ms=20000)
        process.wait_until(lambda: os.path.getsize(table) == 8, 30, "the table is empty")
        stats = process.wait_until(lambda: c.call("stats", name="k")["kept"] == 0 and c.call("stats", name="k"), 10, "none")
        tap.equal(stats["sent"], 250, "sent again")
        for topic, ids in (("Kept1", {each for each in outcome if each.startswith("Kept1")}),
                           ("Kept2", {"late-%d" % i for i in range(50)})):
            tap.equal(stored(daemon, topic), dict.fromkeys(ids, 1), "stored, and how often, in %s" % topic)
        leave(c)


@tap.test("PR-3 … a message that is refused stays in the table and is in nobody's way; a table that is full keeps no more")
def _():
    with Scene() as scene:
        table = os.path.join(process.temp_folder(), "table")
        c = scene.puppet
        c.call("producer", name="t", client="k", group="t", timeout_ms=500, retries=-1, retry_table=table, retry_table_mib=1)
        scene.broker.answer = lambda q: None
        results = c.call("send", name="t", mode="async", messages=[puppet.message(topic, b"x") for topic in ("Bad", "Good")])
        tap.equal({each["code"] for each in results}, {KEPT}, "codes of silence")
        results = c.call("send", name="t", mode="async", messages=[puppet.message("Good", os.urandom(300000))] * 4)
        tap.equal([each["code"] for each in results].count(KEPT), 3, "kept, of what does not fit")
        try:
            c.call("producer", name="u", client="k", group="u", retry_table=table)
            raise AssertionError("two producers have one table")
        except puppet.Refused as error:
            tap.check(error.code == INVALID and table in str(error), "sentence: %s" % error)
        scene.broker.answer = lambda q: reply() if q.code not in SENDS else reply(code=13) if q.ext["b"] == "Bad" else sent(q)
        process.wait_until(lambda: c.call("stats", name="k")["sent"] == 4, 20, "the others are stored")
        bad = [each for each in scene.sends() if each.ext["b"] == "Bad"]
        process.wait_until(lambda: len([each for each in scene.sends() if each.ext["b"] == "Bad"]) > len(bad) + 1, 20,
                           "it is tried again")
        tap.check(os.path.getsize(table) > 8, "it is in the table")
        scene.broker.answer = lambda q: sent(q) if q.code in SENDS else reply()
        process.wait_until(lambda: os.path.getsize(table) == 8, 20, "the table is empty")
        tap.equal(len({id_of(each) for each in scene.sends() if each.ext["b"] == "Bad"}), 1, "one id for all tries")
        scene.broker.answer, before = lambda q: None, len(scene.sends())
        number = c.start("send", name="t", mode="async", messages=[puppet.message("Good", b"x")] * 5)
        process.wait_until(lambda: len(scene.sends()) >= before + 5, 10, "they are on their way")
        c.call("stop", name="t")
        tap.equal({each.get("code") for each in c.finish(number)}, {KEPT}, "codes of what a close ends")
        tap.check(os.path.getsize(table) > 8, "they are in the table")


class Shuffled(Relay):
    """A line that brings frames in another order than they were sent, in both directions."""

    def __init__(self, target, seed):
        super().__init__("shuffled", "127.0.0.1:%d" % process.free_ports(1)[0], target)
        chance = random.Random(seed)
        self.late = lambda passed: chance.random() * 0.05 if chance.random() < 0.3 else 0

    def calm(self):
        self.late = lambda passed: 0


@tap.test("consumers over a line that delays, halves and cuts, or reorders: each acknowledged message is handled, none after a close")
def _():
    for number, bad in enumerate((lambda target: Wire(target, SEED + 2, cut=0.05), lambda target: Shuffled(target, SEED + 3))):
        with Daemon() as daemon, bad(daemon.broker) as line, Fake(routes({"vm": line.address})) as names:
            tap.watch(daemon)
            with remoting.Client(daemon.broker) as client:  # the topic, and its broker's name
                client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2("Lossy", b"first"))
            with remoting.Client(daemon.names) as client:
                def route():
                    answer = client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": "Lossy"})
                    return answer.json() if answer.code == remoting.SUCCESS else None
                known = process.wait_until(route, 30, "the name server has heard of the topic")
                names.answer = routes({known["queueDatas"][0]["brokerName"]: line.address})
            c = tap.watch(puppet.start_c("c%d" % number, names.address))
            c.call("producer", name="p", group="g", timeout_ms=4000, retries=5)
            for each in ("one", "two"):
                c.call("consumer", name=each, group="h", topic="Lossy", from_="first", client_timeout_ms=1000)
            outcome = flood(c, "p", "Lossy", 5 if SLOW else 10, 100)

            def handled(*members):
                return {m["id"] for member in members for m in c.messages(member)}
            good = [each for each, code in outcome.items() if code is None]
            tap.check(len(good) > 100, "some got through: %d" % len(good))
            line.calm()
            process.wait_until(lambda: handled("one", "two") >= set(good), 60, "all that was acknowledged is handled")
            c.call("stop", name="one", timeout=60)
            before = len(c.messages("one"))
            c.call("send", name="p", mode="async", messages=[puppet.message("Lossy", b"x", id="rest-%d" % i) for i in range(50)])
            process.wait_until(lambda: handled("two") >= {"rest-%d" % i for i in range(50)}, 60, "the other has the rest")
            c.end()
            tap.equal(len(c.messages("one")), before, "deliveries to the closed one")
            both = c.messages("one") + c.messages("two")
            tap.note("%d acknowledged, %d deliveries" % (len(good) + 50, len(both)))
            tap.unwatch(c)
            tap.unwatch(daemon)


@tap.test("DS-5 PR-1 every message of 10,000 that was acknowledged is found by its id after a kill (SYNC_FLUSH)")
def _():
    if SLOW:
        tap.skip("it says nothing about threads")
    broker, names = process.free_ports(2)
    with Daemon(settings={"listenPort": broker, "namesrvListenPort": names, "flushDiskType": "SYNC_FLUSH"}) as daemon:
        c = tap.watch(puppet.start_c("c", daemon.names))
        c.call("producer", name="p", group="g", timeout_ms=10000)
        c.call("send", name="p", messages=[puppet.message("Safe", b"first")])
        numbers = [c.start("send", name="p", messages=[puppet.message("Safe", b"x")] * 625) for _ in range(16)]
        ids = {receipt["id"] for number in numbers for receipt in c.finish(number, 120)}
        daemon.kill9()
        daemon.start()
        tap.equal((len(ids), ids - set(stored(daemon, "Safe"))), (10000, set()), "sent, and not found")
        c.end()


def lose_first_answer(settings, **options):
    """Sends one message whose first answer is lost; gives its receipt and how often it is stored."""
    with Daemon(settings=settings) as daemon, Relay("line", "127.0.0.1:0", daemon.broker) as line, \
            Fake(routes({"broker-a": line.address})) as names:
        lost = []

        def lose(passed):
            if not passed.to_server and not lost and passed.command.ext.get("msgId"):
                lost.append(passed)
                raise OSError("the line is cut before the answer is through")
            return False
        line.lose = lose
        c = tap.watch(puppet.start_c("c", names.address))
        c.call("producer", name="p", group="g", **options)
        [receipt] = c.call("send", name="p", messages=[puppet.message("Twice", b"x")])
        c.end()
        tap.unwatch(c)
        return receipt, lost[0].command.ext, stored(daemon, "Twice")


@tap.test("DS-6 a lost answer: the retry makes a second copy, under the same id")
def _():
    receipt, _, copies = lose_first_answer({})
    tap.equal((copies, receipt["duplicate"]), ({receipt["id"]: 2}, False), "copies")


@tap.test("DS-6 … and with producer dedup none: the retry gets the place of the first")
def _():
    dedup = known({"dedupKey": "UNIQ_KEY"})
    if not dedup:
        tap.skip("this broker has no producer dedup")
    receipt, first, copies = lose_first_answer(dedup, retry_same_broker_first=True)
    tap.equal((copies, receipt["duplicate"]), ({receipt["id"]: 1}, True), "copies")
    tap.equal((str(receipt["queue"]), str(receipt["offset"]), receipt["offset_id"]),
              (first["queueId"], first["queueOffset"], first["msgId"]), "place")


@tap.test("programs that end while messages are under way leave nothing behind")
def _():
    with Daemon() as daemon, Wire(daemon.broker, SEED + 1, delay=0.05) as wire, \
            Fake(routes({"broker-a": wire.address})) as names:
        for round_ in range(5):
            c = tap.watch(puppet.start_c("c%d" % round_, names.address))
            c.call("client", name="k")
            c.call("producer", name="p", client="k", group="g", timeout_ms=500, retries=2)
            number = c.start("send", name="p", mode="async",
                             messages=[puppet.message("End", b"x" * 500) for _ in range(300)])
            process.wait_until(lambda: sum(c.call("stats", name="k")[each] for each in ("sent", "failures")), 10,
                               "a first answer", pause=0.002)
            c.call("stop", name="p")
            codes = {each.get("code") for each in c.finish(number, 10)}
            tap.check(codes <= {None, TIMEOUT, NETWORK, LOST, CLOSED}, "codes %s" % codes)
            c.end()
            tap.unwatch(c)


tap.main()
