"""The targets: what must come out, each as a ratio within one round, and whether it did.

The median of the rounds counts; all of them are told.
"""

import dataclasses
import statistics

MEGABYTE = 1e6
SEND, DEEP, ONE, SYNC = "send-1k-8x32", "send-1k-8x256", "send-1k-1x1", "sync-1k-8x32"


@dataclasses.dataclass
class Target:
    text: str
    goal: float
    values: list  # one for each round, sorted
    least: bool = True  # at least the goal; else at most
    unit: str = "×"

    @property
    def measured(self):
        return statistics.median(self.values) if self.values else None

    @property
    def met(self):
        """True, False, or None: it was not measured."""
        if not self.values:
            return None
        return self.measured >= self.goal if self.least else self.measured <= self.goal

    @property
    def verdict(self):
        return {True: "met", False: "**not met**", None: "not measured"}[self.met]


def _cpu_of_limit(book, way):
    """Ours to what a bare responder and a bare append take together."""
    ours, bare = (book.values(peer, SEND, "cpu_us") for peer in ("oncemq", "bare"))
    append = book.values("limits", SEND, way)
    return sorted(ours[number] / (bare[number] + append[number]) for number in ours if number in bare and number in append)


def _anonymous(book, works):
    """All rounds of the work that needs the most; others may have more rounds."""
    of_works = [sorted(value / MEGABYTE for value in book.values("oncemq", work.name, "anon").values())
                for work in works if work.kind != "start"]
    return max(filter(None, of_works), key=statistics.median, default=[])


def targets(book, works):
    def ratio(work, field, other, other_works=None):
        return book.ratios(work, field, "oncemq", other, other_works)

    rate, cpu, p99 = "per_second", "cpu_us", "p99_us"
    return [
        Target("1 KiB sends, 8 × 32: Apache RocketMQ's messages per second", 10, ratio(SEND, rate, "apache")),
        Target("… the bare responder's", 0.5, ratio(SEND, rate, "bare")),
        Target("… Redis streams' (everysec), the better of 8 × 32 and 8 × 256", 2, ratio(SEND, rate, "redis", [SEND, DEEP])),
        Target("… NATS JetStream's, the better of 8 × 32 and 8 × 256", 3, ratio(SEND, rate, "nats", [SEND, DEEP])),
        Target("… Apache RocketMQ's processor time per message", 1 / 15, ratio(SEND, cpu, "apache"), least=False),
        Target("… the bare responder's and a bare mapped append's processor time together", 1.5, _cpu_of_limit(book, cpu), least=False),
        Target("… the same with the append by writes of 32 records, which is cheaper here", 1.5, _cpu_of_limit(book, "write_cpu_us"), least=False),
        Target("one connection, one under way: the bare responder's round trips", 0.8, ratio(ONE, rate, "bare")),
        Target("SYNC_FLUSH, 8 × 32: what the measured fdatasync rate allows with group commit", 0.8, ratio(SYNC, rate, "limits")),
        Target("… what a responder reaches that only writes, syncs and answers", 0.8, ratio(SYNC, rate, "bare")),
        Target("… Redis streams' (always)", 1, ratio(SYNC, rate, "redis")),
        Target("… Apache RocketMQ's", 1, ratio(SYNC, rate, "apache")),
        Target("consuming a 1 KiB backlog: Apache RocketMQ's messages per second", 3, ratio("consume-1k", rate, "apache")),
        Target("… the bare responder's, sending the same bytes", 0.7, ratio("consume-1k", rate, "bare")),
        Target("batches of 32 × 128 B: Apache RocketMQ's messages per second", 5, ratio("batch-128-32", rate, "apache")),
        Target("end to end at 1,000/s: Apache RocketMQ's p99", 1 / 3, ratio("e2e-1000", p99, "apache"), least=False),
        Target("end to end at 10,000/s: Apache RocketMQ's p99", 1 / 3, ratio("e2e-10000", p99, "apache"), least=False),
        Target("start to first acknowledged message: Apache RocketMQ's", 1 / 50, ratio("start", "start_ms", "apache"), least=False),
        Target("resident memory, idle: Apache RocketMQ's", 1 / 40, ratio("start", "rss", "apache"), least=False),
        Target("anonymous memory under load, the most of all works", 64, _anonymous(book, works), least=False, unit=" MB"),
    ]
