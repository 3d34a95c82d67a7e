"""The works: what every server is made to do, as one table.

A work is a shape of load, not a command: each peer translates it for the generator that drives it. `kind` says how it
is measured:

    start     from nothing to the first acknowledged message; memory while idle
    send      acknowledged sends: so many connections, so many under way on each
    consume   a backlog is written and, once it is on the disk, taken as fast as can be
    e2e       from when a message was due until a waiting consumer has it, at a given rate
    both      consumers take what producers send, both as fast as can be
    idle      connections that say nothing: their memory, and sends beside them
    backlog   memory is limited; a backlog larger than that is read from its start while new messages arrive

`target` marks the works that the targets (targets.py) need: `WORK=targets` runs just these.
"""

import dataclasses
import os

KIB = 1024
SECONDS, WARM_MS, E2E_SECONDS = 2.0, 200, 4.0
QUICK_SECONDS, QUICK_WARM_MS = 0.3, 50
BYTES_MOST = 1 << 29  # a measurement ends when its log has grown by so much: neither the disk nor the host's memory is measured
RECORD_MORE = 352  # what the generator's messages have in a log beside their bodies


@dataclasses.dataclass(frozen=True)
class Work:
    name: str
    kind: str
    text: str
    size: int = KIB
    connections: int = 8
    in_flight: int = 32
    batch: int = 1
    topics: int = 1
    rate: int = 0
    flush: str = "async"
    count: int = 0  # of a backlog
    idle: int = 0
    memory: int = 0  # bytes that the server may use
    target: bool = False

    def quick(self):
        """The same in a small form, to see that it runs."""
        return dataclasses.replace(self, topics=min(self.topics, 20), idle=min(self.idle, 50),
                                   count=min(self.count, 5000) or 0)

    @property
    def bytes_most(self):
        """What a server writes for it, about. Where little is written little memory is made ready: for some seconds after
        much of it was given back, whoever measures latencies measures that."""
        if not self.rate or self.count:
            return BYTES_MOST
        return int(2 * self.record * self.rate * (E2E_SECONDS + WARM_MS / 1000))

    @property
    def record(self):
        """Bytes of a message in a log."""
        return self.size + RECORD_MORE

    @property
    def count_most(self):
        return max(self.batch, BYTES_MOST // (self.record * self.batch) * self.batch)


def _size(size):
    return "%d KiB" % (size // KIB) if size >= KIB else "%d B" % size


def _sends():
    for size in (128, KIB, 4 * KIB, 64 * KIB):
        for connections, in_flight in ((1, 1), (8, 32), (64, 1)):
            target = size == KIB and connections < 64
            yield Work("send-%s-%dx%d" % (_size(size).replace(" ", "").lower().rstrip("ib"), connections, in_flight), "send",
                       "acknowledged sends, %s, %d × %d under way" % (_size(size), connections, in_flight),
                       size=size, connections=connections, in_flight=in_flight, target=target)


WORKS = [
    Work("start", "start", "from nothing to the first acknowledged message", target=True),
    *_sends(),
    Work("send-1k-8x256", "send", "acknowledged sends, 1 KiB, 8 × 256 under way: a deeper pipe", in_flight=256, target=True),
    Work("batch-128-32", "send", "batches of 32 × 128 B, 8 × 32 under way", size=128, batch=32, target=True),
    Work("batch-1k-32", "send", "batches of 32 × 1 KiB, 8 × 32 under way", batch=32),
    Work("sync-1k-8x32", "send", "acknowledged when on the disk, 1 KiB, 8 × 32 under way", flush="sync", target=True),
    Work("consume-1k", "consume", "taking a backlog of 1 KiB messages, 32 at a time", count=1000000, target=True),
    Work("e2e-1000", "e2e", "end to end at 1,000 messages a second", rate=1000, target=True),
    Work("e2e-10000", "e2e", "end to end at 10,000 messages a second", rate=10000, target=True),
    Work("both-1k", "both", "consuming while producing, 1 KiB"),
    Work("topics-1000", "send", "1,000 topics at once, 1 KiB, 8 × 32 under way", topics=1000),
    Work("idle-5000", "idle", "sends of 1 KiB beside 5,000 idle connections", idle=5000),
    Work("backlog", "backlog", "a backlog larger than memory, read from its start while 1,000 messages a second arrive",
         size=4 * KIB, count=256 * KIB, rate=1000, memory=640 << 20),
]


def chosen(words):
    """Works by name or by the beginning of it; `targets` are those with a target, nothing means all."""
    words = words.replace(",", " ").split()
    if not words:
        return list(WORKS)
    found = {work.name for word in words for work in _called(word)}
    return [work for work in WORKS if work.name in found]


def _called(word):
    exact = [work for work in WORKS if work.name == word or (word == "targets" and work.target)]
    found = exact or [work for work in WORKS if work.name.startswith(word)]
    if not found:
        raise SystemExit("no such work: %s. There are: targets %s" % (word, " ".join(work.name for work in WORKS)))
    return found


@dataclasses.dataclass(frozen=True)
class Length:
    """How long a measurement takes."""
    seconds: float = float(os.environ.get("TIME") or SECONDS)
    warm_ms: int = WARM_MS
    e2e_seconds: float = E2E_SECONDS

    @staticmethod
    def of(quick):
        return Length(QUICK_SECONDS, QUICK_WARM_MS, QUICK_SECONDS) if quick else Length()
