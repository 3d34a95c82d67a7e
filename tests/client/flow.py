#!/usr/bin/env python3
"""How much consumers of liboncemq read ahead, and from which replica. The brokers are the test's own (stub.py)."""

import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.stub import PULL, QUERY, UPDATE, Scene, found, nothing, record, then  # noqa: E402
from harness import fake, process, tap  # noqa: E402
from harness.fake import reply  # noqa: E402

MIB = 1 << 20
COMMITS = 1  # of the flags of a pull
SEARCH = 29


def endless(size, batch):
    """A queue without end: `batch` messages of `size` bytes for each pull. The first one hangs."""
    filler = b"x" * size

    def pull(request, _):
        first = int(request.ext["queueOffset"])
        offsets = range(first, first + min(batch, int(request.ext["maxMsgNums"])))
        return found(*[record(each, b"hang" if each == 0 else filler) for each in offsets], next_=offsets.stop)
    return pull


def read_ahead(size, batch, least, most, bytes_each=None, **options):
    """Reads until nothing more is asked for: between `least` and `most` messages, or bytes."""
    with Scene(endless(size, batch), hang_at="hang", quiet=True, close_ms=100, **options) as scene:
        def read():
            return scene.puppet.call("stats", name="c")["received"] * (bytes_each or 1)
        process.wait_until(lambda: read() > least, 60, "more than %d are read" % least)
        process.wait_until(lambda: scene.puppet.call("hanging"), 30, "the first one hangs")
        time.sleep(0.3)  # there is no event: it is about what does not happen
        tap.check(least < read() <= most, "read %d of %d to %d with %s" % (read(), least, most, options))
        before = scene.pulls
        scene.puppet.call("release")
        process.wait_until(lambda: scene.pulls > before, 10, "it goes on when there is room again")


@tap.test("at most 1,000 messages of a queue wait here, or as many as it is told")
def _():
    read_ahead(1, 32, 1000, 1000 + 32, threads=1)
    read_ahead(1, 32, 100, 100 + 32, threads=1, max_messages=100)


@tap.test("at most 100 MiB of a queue wait here, or as much as it is told")
def _():
    whole = len(record(1, b"x" * (4 * MIB)))
    read_ahead(4 * MIB, 3, 100 * MIB, 100 * MIB + 3 * whole, whole, threads=1)
    whole = len(record(1, b"x" * 10000))
    read_ahead(10000, 32, 2 * MIB, 2 * MIB + 32 * whole, whole, threads=1, max_mib=2)


@tap.test("no message is 2,000 places, or as many as it is told, ahead of the oldest that is not done")
def _():
    read_ahead(1, 32, 2000, 2000 + 32)
    read_ahead(1, 32, 50, 50 + 32, max_span=50)


@tap.test("CO-1 a pull asks for 32 messages, or as many as it is told, and those that come are held here")
def _():
    for options, wanted in (({}, 32), ({"pull_batch": 7}, 7)):
        with Scene(endless(1, 1000), hang_at="hang", quiet=True, close_ms=100, threads=1, max_messages=1, **options) as scene:
            process.wait_until(lambda s=scene, n=wanted: s.puppet.call("stats", name="c")["received"] == n, 10, "the first pull")
            tap.equal({each.ext["maxMsgNums"] for each in scene.broker.of(PULL)}, {str(wanted)}, "asked for")


@tap.test("a new group that begins at a time begins half an hour ago, or when it is told")
def _():
    for told in (None, 1234567890123):
        def other(request):
            if request.code == QUERY:
                return reply(code=22)
            return reply(ext={"offset": 3}) if request.code == SEARCH else fake
        with Scene(then(found(record(3, b"a"), next_=4)), other=other, from_="timestamp", start_ms=told) as scene:
            scene.wait("a")
            [asked] = [int(each.ext["timestamp"]) for each in scene.broker.of(SEARCH) if each.ext["topic"] == "T"]
            wanted = told or int(time.time() * 1000) - 30 * 60 * 1000
            tap.check(abs(asked - wanted) < (60000 if told is None else 1), "asked for %d, wanted %d" % (asked, wanted))


# From a replica ------------------------------------------------------------------------------------------------------

class Places:
    """A queue on a master and a slave: whoever is asked has the next message, and says whom to ask then."""

    def __init__(self, *suggested):
        self.suggested, self.asked, self.key = list(suggested), [], threading.Lock()

    def answer(self, who, request):
        offset = int(request.ext["queueOffset"])
        with self.key:
            self.asked.append((who, offset, int(request.ext["sysFlag"]) & COMMITS))
        if offset >= len(self.suggested):
            none = nothing(offset)
            none.ext["suggestWhichBrokerId"] = self.suggested[-1]
            return none
        return found(record(offset, b"%d" % offset), next_=offset + 1, suggestWhichBrokerId=self.suggested[offset])

    def scene(self, **options):
        return Scene(lambda q, _: self.answer("master", q), slave=lambda q: self.answer("slave", q), threads=1,
                     **options)

    def who(self, offset):
        return next(who for who, at, _ in self.asked if at == offset)


@tap.test("a consumer asks the replica that the broker suggests, tells its offsets to the master, and comes back when told")
def _():
    places = Places(1, 1, 0, 1, 7, 0)
    with places.scene() as scene:
        scene.wait(*"012345")
        tap.equal([places.who(each) for each in range(6)], ["master", "slave", "slave", "master", "slave", "master"], "asked")
        tap.equal({commits for who, _, commits in places.asked if who == "slave"}, {0}, "offsets told along with pulls")
        process.wait_until(lambda: max(scene.told(), default=0) == 6, 20, "the master hears how far it came")
    tap.equal([each for each in scene.slave.requests if each.code in (UPDATE, QUERY)], [], "what only masters keep")


@tap.test("a suggested replica that is gone is left for the master, without a loss")
def _():
    places = Places(1, 1, 1, 1)
    with places.scene() as scene:
        process.wait_until(lambda: len(scene.bodies()) == 4, 10, "all messages")
        process.wait_until(lambda: places.asked[-1][0] == "slave", 10, "the slave is asked for more")
        places.suggested += [0] * 4
        scene.slave.close()
        scene.wait(*"01234567")
        tap.equal(places.who(7), "master", "asked in the end")


@tap.test("RM-13 a broker whose master is gone is read from its slave")
def _():
    places = Places(0, 0)
    with places.scene(route_every_ms=200) as scene:
        scene.wait("0", "1")
        scene.addresses[0] = None
        scene.broker.close()
        places.suggested += [0, 0]
        scene.wait("0", "1", "2", "3")
        tap.equal(places.who(3), "slave", "asked in the end")


tap.main()
