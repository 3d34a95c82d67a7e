#!/usr/bin/env python3
"""Messages with a time of their own in one folder, opened in turn by ours and by a real Apache RocketMQ 5.5.0.

First the same requests go to both: what is refused, what is answered, what is stored, waiting and delivered. Then each
opens what the other left with messages that wait: all of them come, none early, none that was recalled. What differs on
purpose is the time itself: Apache's says the second in which a message is due and delivers when that is over, ours the
millisecond.
"""

import base64
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon, run  # noqa: E402

READER, WHEEL, RECALL = "format_reader", "rmq_sys_wheel_timer", 370
BASE = {"KEYS": "k1 k2", "TAGS": "A", "own": "v", "WAIT": "true"}
SETTINGS = {"recallMessageEnable": "true", "mappedFileSizeCommitLog": 16 * 1024 * 1024,
            "mappedFileSizeConsumeQueue": 20 * 30000, "maxIndexNum": 10000, "maxHashSlotNum": 2500}
TIMES = {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "BORN_TIMESTAMP", "TIMER_DELIVER_MS"}
REFUSED = [{"TIMER_DELAY_SEC": "soon"}, {"TIMER_DELAY_MS": "1.5"}, {"TIMER_DELIVER_MS": "x"}, {"TIMER_DELAY_SEC": 259201},
           {"TIMER_DELAY_MS": 259200001}, {"TIMER_DELIVER_MS": 10 ** 15},
           {"TIMER_DELIVER_MS": 5, "TIMER_DEL_UNIQKEY": "u"}]
TAKEN = [{"TIMER_DELAY_SEC": 1}, {"TIMER_DELAY_MS": 900}, {"TIMER_DELIVER_MS": "+8000"},
         {"TIMER_DELIVER_MS": 5, "TIMER_DELAY_MS": 900}, {"TIMER_DELAY_MS": 5, "TIMER_DELAY_SEC": 1},
         {"TIMER_DELAY_SEC": 1, "DELAY": 0}, {"TIMER_DELAY_SEC": 1, "REAL_TOPIC": "Lie", "REAL_QID": 7}]
AT_ONCE = [{"TIMER_DELIVER_MS": 5}, {"TIMER_DELAY_SEC": 0}, {"TIMER_DELAY_MS": -5}, {"TIMER_OUT_MS": 5, "TIMER_DELAY_SEC": 1}]
WAIT_S, NUMBER, TAKEN_BACK = 12, 60, 10


def ask(client, topic, body, properties, queue=0):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, queue))


def send(client, topic, body, properties, queue=0):
    at = str(properties.get("TIMER_DELIVER_MS", ""))
    if at.startswith("+"):
        properties = {**properties, "TIMER_DELIVER_MS": int(time.time() * 1000) + int(at)}
    answer = ask(client, topic, body, properties, queue)
    assert answer.code == r.SUCCESS, answer.remark
    return answer


def recall(client, topic, handle):
    return client.request(RECALL, {"producerGroup": "PG", "topic": topic, "recallHandle": handle})


def handle_of(answer):
    return base64.urlsafe_b64decode(answer.ext["recallHandle"]).decode().split(" ")


def make_handle(*parts):
    return base64.urlsafe_b64encode(" ".join(str(part) for part in ("v1",) + parts).encode()).decode()


def count(client, topic, queue=0):
    return int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def records(client, topic, queue=0):
    found, end = [], count(client, topic, queue)
    while len(found) < end:
        answer = client.request(r.PULL_MESSAGE, {
            "consumerGroup": READER, "topic": topic, "queueId": queue, "queueOffset": len(found), "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG"})
        assert answer.code == r.SUCCESS, answer.remark
        found += r.messages(answer.body)
    return found


class Play:
    """One broker and what it made of the requests."""

    def __init__(self, address):
        self.client = r.Client(address, timeout=20)
        send(self.client, "T", b"first", BASE)
        self.refused = [ask(self.client, "T", b"x", {**BASE, **wish}).code for wish in REFUSED]
        self.taken = [send(self.client, "T", b"%d" % number, {**BASE, **wish, "UNIQ_KEY": "U%d" % number}, 1)
                      for number, wish in enumerate(TAKEN)]
        for number, wish in enumerate(AT_ONCE):
            answer = send(self.client, "T", b"now", {**BASE, **wish, "UNIQ_KEY": "N%d" % number}, 2)
            assert "recallHandle" not in answer.ext, answer.ext
        process.wait_until(lambda: count(self.client, "T", 2) == len(AT_ONCE), 30, "what has no time to wait for is in its queue")
        self.recalls()
        process.wait_until(lambda: count(self.client, "T", 1) >= len(TAKEN), 60, "what was due has come")

    def recalls(self):
        waits = send(self.client, "T", b"recalled", {**BASE, "TIMER_DELAY_SEC": 3000, "UNIQ_KEY": "R"}, 3)
        _, topic, broker, due, key = handle_of(waits)
        cases = [("T", waits.ext["recallHandle"]), ("T", ""), ("T", "#"), ("T", make_handle(topic, broker, due)),
                 ("T", make_handle(topic, broker, "soon", key)), ("T", make_handle(topic, broker, 5, key)),
                 ("T", make_handle(topic, broker, int(due) + 259200000, key)),
                 ("T", make_handle(topic, "elsewhere", due, key)), ("T", make_handle("U", broker, due, key)),
                 ("None", waits.ext["recallHandle"]), ("T", waits.ext["recallHandle"].replace("=", ""))]
        self.recalled = []
        for topic, handle in cases:
            answer = recall(self.client, topic, handle)
            remark = (answer.remark or "").split("\nSee ")[0] if answer.code else None
            self.recalled.append((answer.code, remark, answer.ext.get("msgId"), answer.ext.get("MSG_REGION")))

    def shown(self, topic, queue):
        """Records without what may differ from run to run."""
        return sorted((m.topic, m.queue_id, m.flag, m.sys_flag, m.reconsume_times, m.body,
                       sorted((name, "a time" if name in TIMES else value) for name, value in m.properties.items()))
                      for m in records(self.client, topic, queue))


plays = {}


def both():
    if len(plays) < 2:
        tap.skip("there are not two brokers to compare")
    return plays["ours"], plays["apache"]


@tap.test("the same requests are refused and answered alike")
def _():
    daemon = tap.watch(Daemon(settings=SETTINGS))
    plays["ours"] = Play(daemon.broker)
    plays["names"] = Daemon(roles="names", name="names")
    broker = tap.watch(apache.Broker(plays["names"].names, **SETTINGS))
    broker.wait_registered(plays["names"].names)
    plays["apache"] = Play(broker.address)
    plays["broker"] = broker
    ours, theirs = both()
    tap.equal(ours.refused, theirs.refused, "refusals")
    tap.equal(ours.recalled, theirs.recalled, "recalls")
    for one, other in zip(ours.taken, theirs.taken):
        tap.equal({**one.ext, "msgId": "", "recallHandle": ""}, {**other.ext, "msgId": "", "recallHandle": ""}, "answer")
        tap.equal([handle_of(one)[i] for i in (0, 1, 4)], [handle_of(other)[i] for i in (0, 1, 4)], "handle")


for place in ((WHEEL, 0), ("T", 1), ("T", 2)):
    @tap.test("records of %s, queue %d, are alike" % place)
    def _(place=place):
        ours, theirs = both()
        tap.equal(ours.shown(*place), theirs.shown(*place), "records")


class Folder:
    """Messages that wait in a folder which its writer has left."""

    def __init__(self, address):
        self.due, self.back = {}, set()
        with r.Client(address, timeout=20) as client:
            send(client, "W", b"first", BASE)
            handles = {}
            for number in range(NUMBER):
                body, ms = b"w%d" % number, WAIT_S * 1000 + number * 37
                at = int(time.time() * 1000) + ms
                answer = send(client, "W", body, {**BASE, "TIMER_DELAY_MS": ms, "UNIQ_KEY": "W%d" % number}, 1)
                self.due[body], handles[body] = at, answer.ext["recallHandle"]
            for body in list(self.due)[:TAKEN_BACK]:
                answer = recall(client, "W", handles[body])
                assert answer.code == r.SUCCESS, answer.remark
                self.back.add(body)
            time.sleep(2.5)    # Apache's writes its files every second, and nobody can ask it whether it has

    def judge(self, address, exact):
        with r.Client(address, timeout=20) as client:
            wanted = NUMBER - TAKEN_BACK
            process.wait_until(lambda: len({m.body for m in records(client, "W", 1)}) >= wanted, 120,
                               "all that waited have come")
            end = max(self.due.values()) / 1000 + 3
            time.sleep(max(0, end - time.time()))    # whatever else would come has come by now
            found = records(client, "W", 1)
        tap.equal({m.body for m in found}, set(self.due) - self.back, "bodies")
        tap.equal([(m.body, m.store_time - self.due[m.body]) for m in found if m.store_time < self.due[m.body]], [], "early")
        if exact:
            tap.equal(len(found), wanted, "messages")
        slowest = max(m.store_time - self.due[m.body] for m in found)
        tap.note("%d messages, the latest %d ms after its time" % (len(found), slowest))


def sound(folder):
    status, out, errors = run("--check", folder, timeout=60)
    tap.equal(status, 0, "status of --check (%s%s)" % (out, errors))
    tap.note(out.splitlines()[-1])


@tap.test("what waits in Apache's folder comes from ours, after SIGKILL")
def _():
    both()
    broker = plays["broker"]
    folder = Folder(broker.address)
    broker.kill9()
    sound(os.path.join(broker.home, "store"))
    tap.unwatch(broker)
    daemon = tap.watch(Daemon(folder=os.path.join(broker.home, "store"), settings={**SETTINGS, "brokerName": "broker-a"}))
    folder.judge(daemon.broker, exact=True)
    daemon.stop()
    sound(daemon.folder)


for how in ("SIGTERM", "SIGKILL"):
    @tap.test("what waits in our folder comes from Apache's, after %s" % how)
    def _(how=how):
        both()
        daemon = tap.watch(Daemon(settings={**SETTINGS, "brokerName": "broker-a", "flushConsumerOffsetInterval": 1000}))
        folder = Folder(daemon.broker)
        daemon.stop() if how == "SIGTERM" else daemon.kill9()
        sound(daemon.folder)
        tap.unwatch(daemon)
        broker = tap.watch(apache.Broker(plays["names"].names, storePathRootDir=daemon.folder, **SETTINGS))
        folder.judge(broker.address, exact=how == "SIGTERM")
        broker.stop()
        sound(daemon.folder)


if apache.missing():
    tap.skip_all(apache.missing())
tap.main()
