#!/usr/bin/env python3
"""Messages that come later are stored by us as a real Apache RocketMQ 5.5.0 stores them, field by field.

The same requests go to both: delayed sends, messages given back, retries that are used up. Then every record that came
of them is compared, waiting and delivered, and so are the answers. What differs on purpose is named in OURS.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

READER, GROUP = "format_reader", "later"
RETRY, DEAD, SCHEDULE = "%RETRY%" + GROUP, "%DLQ%" + GROUP, "SCHEDULE_TOPIC_XXXX"
BASE = {"KEYS": "k1 k2", "TAGS": "A", "own": "v", "UNIQ_KEY": "7F0000010A2B18B4AAC2000000000001", "WAIT": "true"}
OURS = {"DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"}    # dead letters say where they came from
SENDS = [
    ({**BASE, "DELAY": 1}, {}),
    ({**BASE, "DELAY": 99}, {}),
    ({**BASE, "DELAY": 0}, {}),
    ({**BASE, "DELAY": -1}, {}),
    ({**BASE, "DELAY": 1, "TIMER_DELIVER_MS": 99, "TIMER_DELAY_SEC": 5, "TIMER_DELAY_MS": 7}, {}),
    ({**BASE, "DELAY": 1, "REAL_TOPIC": "Lie", "REAL_QID": 7}, {}),
    ({"TAGS": "A", "DELAY": 1, "UNIQ_KEY": "no-wait"}, {}),
    ({**BASE, "DELAY": 1}, {"reconsumeTimes": 3, "flag": 5}),
]
BACKS = [   # fields of CONSUMER_SEND_MSG_BACK
    {}, {"delayLevel": 1}, {"delayLevel": 25}, {"delayLevel": -1}, {"maxReconsumeTimes": 0},
    {"maxReconsumeTimes": 16, "originMsgId": "XYZ"}, {"offset": 1}, {"offset": -1}, {"offset": 10**15},
    {"group": "no good"}, {"group": ""},
]
RETRIES = [     # sends to the retry topic
    (BASE, {"reconsumeTimes": 17}),
    (BASE, {"reconsumeTimes": 16}),
    ({**BASE, "DELAY": 5, "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "abc"}, {"reconsumeTimes": 3, "maxReconsumeTimes": 2}),
    ({**BASE, "DELAY": 1}, {"reconsumeTimes": 2, "maxReconsumeTimes": 2}),
    (BASE, {"reconsumeTimes": 0, "maxReconsumeTimes": -1}),
]


class Play:
    """One broker and what it made of the requests."""

    def __init__(self, address):
        self.client = r.Client(address, timeout=20)
        self.answers, self.first = [], None
        self.note(self.send("T", BASE, {}, queue=0))
        self.first = self.answers[0][1]
        for properties, fields in SENDS:
            self.note(self.send("T", properties, fields, queue=1))
        self.settle("T", 1, len(SENDS) - 1)
        for fields in BACKS:
            self.back({"offset": 0, "group": GROUP, "delayLevel": 0, "originTopic": "T", **fields})
        self.settle(RETRY, 0, 1)
        again = self.records(RETRY)[0].physical_offset
        self.back({"offset": again, "group": GROUP, "delayLevel": 1, "originTopic": "T"})
        self.settle(RETRY, 0, 2)
        self.back({"offset": again, "group": GROUP, "delayLevel": -1, "originTopic": "T"})
        for properties, fields in RETRIES:
            self.note(self.send(RETRY, properties, fields, queue=0))
        self.settle(RETRY, 0, 6)    # two of them after ten seconds

    def send(self, topic, properties, fields, queue):
        return self.client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"hello", properties, queue, **fields))

    def note(self, answer):
        assert answer.code == r.SUCCESS, answer.remark
        offset = answer.ext["queueOffset"] if len(self.answers) <= len(SENDS) else None
        self.answers.append((answer.ext["queueId"], answer.ext["msgId"], offset))   # later on it depends on time

    def back(self, fields):
        answer = self.client.request(r.CONSUMER_SEND_MSG_BACK, fields)
        remark = (answer.remark or "").split("\nSee ")[0].strip()
        self.answers.append((answer.code, remark, answer.ext))

    def count(self, topic, queue=0):
        return int(self.client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])

    def settle(self, topic, queue, number):
        process.wait_until(lambda: self.count(topic, queue) >= number, 60, "%d messages in %s" % (number, topic))

    def records(self, topic, queue=0):
        answer = self.client.request(r.PULL_MESSAGE, {
            "consumerGroup": READER, "topic": topic, "queueId": queue, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"})
        assert answer.code == r.SUCCESS, answer.remark
        return r.messages(answer.body)

    def shown(self, topic, queue=0):
        """Records without what may differ from run to run: times, addresses and positions, and so their order."""
        def properties(message):
            return {name: "the first" if value == self.first else value for name, value in message.properties.items()
                    if name not in OURS}
        return sorted((m.topic, m.queue_id, m.flag, m.sys_flag, m.reconsume_times, m.prepared_offset, m.body,
                       sorted(properties(m).items())) for m in self.records(topic, queue))


plays = {}


def both():
    if len(plays) < 2:
        tap.skip("there are not two brokers to compare")
    return plays["ours"], plays["apache"]


@tap.test("the same requests are answered alike")
def _():
    daemon = tap.watch(Daemon(settings={"dlqPerm": 6}))
    plays["ours"] = Play(daemon.broker)
    names = Daemon(roles="names", name="names")
    broker = tap.watch(apache.Broker(names.names))
    broker.wait_registered(names.names)
    plays["apache"] = Play(broker.address)
    ours, theirs = both()
    for one, other in zip(ours.answers, theirs.answers):
        if isinstance(one[0], str):
            one, other = (one[0], one[2]), (other[0], other[2])
        tap.equal(one, other, "answer")


for place in ((SCHEDULE, 0), (SCHEDULE, 2), (SCHEDULE, 17), ("T", 1), (RETRY, 0), (DEAD, 0)):
    @tap.test("records of %s, queue %d, are alike" % place)
    def _(place=place):
        ours, theirs = both()
        tap.equal(ours.shown(*place), theirs.shown(*place), "records")


@tap.test("dead letters say where they came from, which Apache's do not")
def _():
    ours, theirs = both()
    tap.equal({message.properties.get("DLQ_ORIGIN_MESSAGE_ID") for message in ours.records(DEAD)}, {BASE["UNIQ_KEY"]}, "ids")
    tap.equal({name for message in theirs.records(DEAD) for name in message.properties if name in OURS}, set(), "names")


if apache.missing():
    tap.skip_all(apache.missing())
tap.main()
