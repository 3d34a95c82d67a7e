#!/usr/bin/env python3
"""Transactions in the folder: stored alike by ours and a real Apache RocketMQ 5.5.0, and either goes on where the other stopped.

First the same requests go to both, and every record that came of them is compared: halves, those asked for, op records,
messages, those given up. Then open transactions are handed over both ways, by SIGKILL, and ended there: each committed message is there once, no other ever. What differs on purpose is named where it is compared.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import stock  # noqa: E402
from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

ADVANCE_CLOCK, CHECK = 10001, 39
COMMIT, ROLLBACK = stock.COMMIT_TYPE, stock.ROLLBACK_TYPE
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
QUICK = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000, "flushConsumerOffsetInterval": 500}
# Apache's broker writes its op records every 3 s, and meanwhile asks for what has ended.
PROMPT = {"transactionOpBatchInterval": 50}


def key_of(number):
    return "7F0000010A2B18B4AAC2%012X" % number


class Producer:
    """One raw connection of group pg."""

    def __init__(self, address):
        self.client = r.Client(address, timeout=20)

    def half(self, number, **more):
        properties = {"KEYS": "k%d" % number, "TAGS": "A", "own": "v", "UNIQ_KEY": key_of(number), "WAIT": "true",
                      "TRAN_MSG": "true", "PGROUP": "pg", **more}
        answer = self.client.request(r.SEND_MESSAGE_V2, *r.send_v2("Tx", b"body %d" % number, properties, 1, group="pg",
                                                                  sysFlag=stock.PREPARED))
        assert answer.code == r.SUCCESS, answer.remark
        return answer

    def end(self, place, kind, **more):
        ext = place.ext
        return self.client.request(stock.END_TRANSACTION, {
            "producerGroup": "pg", "topic": "Tx", "commitOrRollback": kind, "fromTransactionCheck": "commitLogOffset" in ext,
            "tranStateTableOffset": ext.get("tranStateTableOffset") or ext["queueOffset"],
            "commitLogOffset": ext.get("commitLogOffset") or int(ext["msgId"][-16:], 16),
            "msgId": ext["transactionId"], "transactionId": ext["transactionId"], **more})

    def join(self):
        body = r.dumps({"clientID": "p@1", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": []})
        assert self.client.request(r.HEART_BEAT, {}, body).code == r.SUCCESS

    def asked(self, number):
        """The next question, for that message."""
        while True:
            check = self.client.wait_pushed(CHECK, 60)
            if check.ext["msgId"] == key_of(number):
                return check

    def records(self, topic, queue=0):
        return stock.read_queue(self.client, topic, queue).messages

    def bodies(self):
        return sorted(message.body for message in self.records("Tx", 1))


def start_apache(names, **settings):
    broker = tap.watch(apache.Broker(names.names, **settings))
    broker.wait_registered(names.names)
    return broker


# The same requests to both -------------------------------------------------------------------------------------------

class Play:
    def __init__(self, address):
        self.producer = p = Producer(address)
        self.answers = []
        p.join()
        first, second, third, fourth = (p.half(number) for number in range(1, 5))
        self.places = [(a.ext["queueId"], a.ext["queueOffset"], a.ext["transactionId"]) for a in (first, second, third)]
        self.answers += [p.end(first, COMMIT), p.end(second, ROLLBACK)]
        check = p.asked(3)
        self.check = check
        self.answers.append(p.end(check, COMMIT))
        for wrong in ({"producerGroup": "other"}, {"tranStateTableOffset": 77}, {"commitLogOffset": -1}, {"producerGroup": ""}):
            self.answers.append(p.end(fourth, COMMIT, **wrong))
        process.wait_until(lambda: self.count(GIVEN_UP) == 1, 60, "the fourth is given up", pause=0.2)

    def count(self, topic):
        return int(self.producer.client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).ext["offset"])

    def shown(self, topic, queue=0):
        """Records without what may differ from run to run: times, addresses and positions."""
        return [(m.topic, m.queue_id, m.flag, m.sys_flag, m.reconsume_times, m.body, sorted(m.properties.items()))
                for m in self.producer.records(topic, queue)]


plays = {}


def both():
    if len(plays) < 2:
        tap.skip("there are not two brokers to compare")
    return plays["ours"], plays["apache"]


@tap.test("the same requests are answered alike, and the same is asked")
def _():
    settings = {**QUICK, "transactionTimeOut": 5000, "transactionCheckInterval": 5000, "transactionCheckMax": 2}
    plays["ours"] = Play(tap.watch(Daemon(settings=settings)).broker)
    names = Daemon(roles="names", name="names")
    plays["apache"] = Play(start_apache(names, **settings, **PROMPT).address)
    ours, theirs = both()
    tap.equal(ours.places, theirs.places, "answers to half messages")
    tap.equal([a.code for a in ours.answers], [a.code for a in theirs.answers], "codes")
    for one, other in zip(ours.answers[3:], theirs.answers[3:]):
        tap.check(one.remark.startswith(other.remark.split("\n")[0]), "%r is not %r" % (one.remark, other.remark))
    tap.equal(set(ours.check.ext), set(theirs.check.ext), "fields of the question")
    for name in ("topic", "msgId", "transactionId"):
        tap.equal(ours.check.ext[name], theirs.check.ext[name], name)
    one, other = r.messages(ours.check.body)[0], r.messages(theirs.check.body)[0]
    del one.properties["WAIT"], other.properties["WAIT"]    # Apache's says false here, and true in the log
    tap.equal((one.topic, one.queue_id, one.body, one.properties, one.sys_flag, one.prepared_offset),
              (other.topic, other.queue_id, other.body, other.properties, other.sys_flag, other.prepared_offset), "message")


for place in ((HALF, 0), ("Tx", 1), (GIVEN_UP, 0)):
    @tap.test("records of %s, queue %d, are alike" % place)
    def _(place=place):
        ours, theirs = both()
        tap.equal(sorted(ours.shown(*place)), sorted(theirs.shown(*place)), "records")


@tap.test("op records are alike, and name the same halves; ours also those that were asked for or given up")
def _():
    ours, theirs = both()
    process.wait_until(lambda: theirs.count(OP) > 0, 20, "Apache writes its op records")
    one, other = ours.producer.records(OP), theirs.producer.records(OP)
    tap.equal({(m.topic, m.queue_id, m.flag, m.sys_flag, tuple(sorted(m.properties.items()))) for m in one},
              {(m.topic, m.queue_id, m.flag, m.sys_flag, tuple(sorted(m.properties.items()))) for m in other}, "form")
    named = [{int(text) for m in records for text in m.body.decode().split(",") if text} for records in (one, other)]
    tap.check(named[0] >= named[1], "ours name %s, Apache's %s" % tuple(named))


# Handing over --------------------------------------------------------------------------------------------------------

DECISIONS = [COMMIT] * 4 + [ROLLBACK] * 2 + [COMMIT, COMMIT, ROLLBACK]
WANTED = [b"body %d" % number for number, kind in enumerate(DECISIONS) if kind == COMMIT]


def fill(address):
    """Six are ended, three are open; those have been asked for, and so are in the queue of halves twice or more."""
    p = Producer(address)
    p.join()
    halves = [p.half(number) for number in range(9)]
    for half, kind in list(zip(halves, DECISIONS))[:6]:
        tap.equal(p.end(half, kind).code, r.SUCCESS, "end")
    p.asked(8)
    return halves


def finish(p, tick):
    """What is open is asked for and answered; then nobody asks any more."""
    p.join()
    asked = set()

    def answered():
        tick()
        checks, p.client.pushed = p.client.pushed, []
        for check in checks:
            number = int(check.ext["msgId"][-12:], 16)
            asked.add(number)
            tap.equal(p.end(check, DECISIONS[number]).code, r.SUCCESS, "the answer for %d" % number)
        return not checks and asked >= {7, 8}
    process.wait_until(answered, 60, "all are asked for and answered", pause=0.1)
    tap.equal(p.bodies(), WANTED, "messages in the end")
    return asked


def advance(p):
    """Two rounds of questions; what they ask has arrived before the second answer."""
    for _ in range(2):
        tap.equal(p.client.request(ADVANCE_CLOCK, {"advanceMillis": 31000}).code, r.SUCCESS, "advance")
        p.client.request(r.GET_MAX_OFFSET, {"topic": HALF, "queueId": 0})


def wait_round(p):
    """More than one round of Apache's."""
    try:
        p.client.pushed.append(p.client.wait_pushed(CHECK, 4))
    except TimeoutError:
        pass


@tap.test("Apache's broker is killed with open transactions: ours asks for them, and each committed message is there once")
def _():
    with Daemon(roles="names", name="names") as names:
        broker = start_apache(names, **QUICK, **stock.FILES)
        halves = fill(broker.address)
        # Its op records come seconds later: what has ended looks open now, and what was asked for is there twice.
        broker.kill9()
        tap.unwatch(broker)
    folder = os.path.join(broker.home, "store")
    with tap.watch(Daemon(folder=folder, args=["--clock", "virtual"], settings=stock.FILES)) as d:
        p = Producer(d.broker)
        tap.equal(p.bodies(), WANTED[:4], "messages when it opens")
        tap.equal(p.end(halves[6], COMMIT).code, r.SUCCESS, "commit by the place that the other broker gave")
        asked = finish(p, lambda: advance(p))
        tap.check(not asked & {0, 1, 2, 3}, "asked for what was committed: %s" % asked)
        d.restart(hard=True)
        p = Producer(d.broker)
        p.join()
        advance(p)
        tap.equal((p.bodies(), p.client.pushed), (WANTED, []), "messages and questions after a SIGKILL of ours")


@tap.test("ours is killed with open transactions: Apache's broker asks for them, and each committed message is there once")
def _():
    with tap.watch(Daemon(settings={**QUICK, **stock.FILES})) as d:
        fill(d.broker)
        d.kill9()
    with Daemon(roles="names", name="names") as names:
        broker = start_apache(names, storePathRootDir=d.folder, **QUICK, **PROMPT, **stock.FILES)
        p = Producer(broker.address)
        tap.equal(p.bodies(), WANTED[:4], "messages when it opens")
        asked = finish(p, lambda: wait_round(p))
        tap.check(asked <= {6, 7, 8}, "asked for what had ended: %s" % asked)
        broker.kill9()
        tap.unwatch(broker)


if apache.missing():
    tap.skip_all(apache.missing())
tap.main()
