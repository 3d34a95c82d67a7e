"""What grows, from where to where, and how a daemon gets there.

Every size of a dimension gets the same number of messages first, so that memory differs only by what grows. Lines (queues of topics)
are gone through in turn: each message is for another one than the message before it.
"""

import dataclasses
import typing

from harness import process, remoting

MESSAGES = 80000      # stored first, whatever the size
BODY = 128
SENDS, PULLS = 100000, 30000
RUNTIME_INFO = 28


@dataclasses.dataclass
class Dimension:
    name: str
    what: str                         # one of it, in the report
    sizes: tuple
    load: typing.Callable             # size -> settings of the generator
    verbs: tuple = ("send", "pull")   # what is measured
    prepare: typing.Callable = None   # (subject): beyond the first messages
    daemon: typing.Callable = None    # size -> (settings, arguments) of the daemon
    memory: bool = True               # is memory for one of it worth telling?
    first: int = MESSAGES
    title: str = ""


def store(subject):
    subject.turn("send", max(1, subject.size - MESSAGES // 8))


def wait_for_time(subject):
    """So many messages wait for their time, and all have their place in the wheel."""
    if subject.size == 0:
        return
    subject.turn("time", subject.size)
    client = remoting.Client(subject.daemon.broker, timeout=60)
    process.wait_until(lambda: int(client.request(RUNTIME_INFO).json()["table"]["timerCongestNum"]) == subject.size,
                       600, "all of them wait")
    client.close()


def all_groups(subject):
    """Each group has pulled from each queue."""
    subject.turn("pull", subject.size * subject.load["queues"])


DIMENSIONS = [
    Dimension("topics", "topic with a queue", (1, 10, 100, 1000, 10000), lambda n: {"topics": n, "queues": 1},
              title="topics of one queue, messages and pulls go through them in turn"),
    Dimension("queues", "queue", (8, 64, 256, 1024), lambda n: {"queues": n}, title="queues of one topic"),
    Dimension("groups", "group, on 8 queues", (1, 10, 100, 1000, 10000), lambda n: {"groups": n, "queues": 8},
              prepare=all_groups, title="groups that pull from one topic in turn, with offsets of 8 queues each"),
    Dimension("idle", "idle consumer", (0, 50, 500, 5000), lambda n: {"idle": n},
              title="registered consumers that say nothing, beside 8 connections with 32 requests in flight"),
    Dimension("connections", "connection", (8, 64, 512, 5000), lambda n: {"conns": n, "flight": 1},
              title="connections with one request in flight each"),
    Dimension("stored", "message", (10000, 100000, 1000000, 10000000), lambda n: {}, ("send", "pull", "seek"), store,
              memory=False, first=MESSAGES // 8, title="messages in the log; pulls follow each other, or begin anywhere (seek)"),
    Dimension("timers", "timer", (0, 10000, 100000, 1000000), lambda n: {}, ("send", "time", "pull"), wait_for_time,
              title="messages that wait for their time; sends of more of them (time)"),
    Dimension("io-threads", "thread", (1, 2), lambda n: {}, daemon=lambda n: ({}, ("--io-threads", str(n))),
              memory=False, title="io threads"),
]
COUNTS = {"send": SENDS, "pull": PULLS, "seek": PULLS, "time": SENDS // 4}
