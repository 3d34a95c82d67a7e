"""No acknowledged message is lost: a real daemon under load, killed with SIGKILL again and again.

Several connections send as fast as they are answered, and write down what was acknowledged. The daemon is killed at a
random moment and started again on the same folder. After each life every queue is read from the start: everything
that was acknowledged is there with the right bytes at the offset that was promised, nothing is there that nobody sent,
and the offsets have no gap.
"""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, remoting as r, tap  # noqa: E402

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
LIVES = int(os.environ.get("LIVES", "8"))
QUEUES, SENDERS, WINDOW = 4, 3, 16


class Sender(threading.Thread):
    """Sends numbered messages with a window of requests in flight until the connection dies."""

    def __init__(self, address, name, dice):
        super().__init__(daemon=True)
        self.address, self.label = address, name
        self.seed = dice.randrange(1 << 31)
        self.sent, self.acknowledged = {}, {}

    def run(self):
        dice = random.Random(self.seed)
        try:
            with r.Client(self.address, timeout=10) as client:
                flying, number = {}, 0
                while True:
                    while len(flying) < WINDOW:
                        body = b"%s-%d-" % (self.label.encode(), number) + dice.randbytes(dice.randrange(400)).hex().encode()
                        queue = dice.randrange(QUEUES)
                        fields, _ = r.send_v2("Crash", body, queue_id=queue)
                        self.sent[body] = queue
                        flying[client.send(r.SEND_MESSAGE_V2, fields, body)] = (body, queue)
                        number += 1
                    opaque = next(iter(flying))
                    answer = client.wait(opaque)
                    body, queue = flying.pop(opaque)
                    if answer.code == r.SUCCESS:
                        self.acknowledged[body] = (queue, int(answer.ext["queueOffset"]))
        except (OSError, r.Closed):
            return


def read_queue(client, queue):
    found, at = [], 0
    while True:
        got = client.request(r.PULL_MESSAGE, {
            "consumerGroup": "reader", "topic": "Crash", "queueId": queue, "queueOffset": at, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}, timeout=20)
        if got.code != r.SUCCESS:
            tap.equal(got.code, r.PULL_NOT_FOUND, "code at the end of queue %d (%s)" % (queue, got.remark))
            return found
        found += r.messages(got.body)
        at = int(got.ext["nextBeginOffset"])


def check_store(daemon, sent, acknowledged):
    with r.Client(daemon.broker, timeout=20) as client:
        stored = {}
        for queue in range(QUEUES):
            messages = read_queue(client, queue)
            tap.equal([m.queue_offset for m in messages], list(range(len(messages))), "offsets of queue %d" % queue)
            for m in messages:
                tap.check(sent.get(m.body) == queue, "a message nobody sent to queue %d: %.60r" % (queue, m.body))
                stored[m.body] = (queue, m.queue_offset)
    lost = [body for body, place in acknowledged.items() if stored.get(body) != place]
    tap.equal(lost[:3], [], "%d of %d acknowledged messages are lost or moved; the first" % (len(lost), len(acknowledged)))
    return len(stored)


def lives(settings):
    dice = random.Random(SEED)
    tap.note("seed %d (set SEED to repeat, LIVES for more)" % SEED)
    sent, acknowledged = {}, {}
    with daemons.Daemon(settings=settings) as daemon:
        tap.watch(daemon)
        for life in range(LIVES):
            senders = [Sender(daemon.broker, "%d.%d" % (life, i), dice) for i in range(SENDERS)]
            for sender in senders:
                sender.start()
            time.sleep(dice.uniform(0.05, 0.6))  # the moment of death is what is being tested
            daemon.kill9()
            for sender in senders:
                sender.join(20)
                sent.update(sender.sent)
                acknowledged.update(sender.acknowledged)
            daemon.start()
            stored = check_store(daemon, sent, acknowledged)
            tap.note("life %d: %d acknowledged, %d stored" % (life + 1, len(acknowledged), stored))
        tap.check(len(acknowledged) > 100, "only %d messages were acknowledged: nothing was tested" % len(acknowledged))
        tap.unwatch(daemon)


@tap.test("FR-2 ASYNC_FLUSH: SIGKILL under load loses no acknowledged message")
def _():
    lives({"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20000})


@tap.test("DS-5 SYNC_FLUSH: SIGKILL under load loses no acknowledged message")
def _():
    lives({"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20000})


tap.main()
