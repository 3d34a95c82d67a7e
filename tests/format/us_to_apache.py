#!/usr/bin/env python3
"""A folder that our daemon wrote is opened by a real Apache RocketMQ broker, and everything in it is right.

Twice: our daemon stopped with SIGTERM, and killed with SIGKILL. Then Apache's broker has the folder: raw frames and the
official Java client read all of it and compare it with what our daemon showed, the group's offsets are where they were,
and sending goes on. In the end ours opens what Apache's broker made of it, and finds all of both.
"""

import os
import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import stock  # noqa: E402
from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon, run  # noqa: E402

QUEUES = {"FormatPlain": 4, "FormatBatch": 2, "FormatBig": 1}
TOPICS = tuple(QUEUES)
MORE = 600


class Play:
    """One folder on its way from our daemon to Apache's broker and back."""
    names = broker = folder = None

    def __init__(self, clean):
        with tap.watch(Daemon(settings=stock.FILES)) as daemon:
            stock.fill(daemon.broker)
            self.folder = daemon.folder
            places = [(topic, queue) for topic, count in QUEUES.items() for queue in range(count)]
            self.held = stock.read_all(daemon.broker, places)
            self.committed = stock.commit(daemon.broker, self.held)
            daemon.stop() if clean else self.kill(daemon)
            tap.unwatch(daemon)
        self.topics = stock.table(self.folder, "topics.json", "topicConfigTable")
        self.index = stock.index_files(self.folder)

    def kill(self, daemon):
        """Offsets are saved every few seconds; what was not saved is lost by a SIGKILL, and rightly so."""
        def saved():
            try:
                table = stock.table(self.folder, "consumerOffset.json", "offsetTable")
            except OSError:
                return False
            return all(table.get("%s@%s" % (topic, stock.GROUP), {}).get(str(queue)) == offset
                       for (topic, queue), offset in self.committed.items())
        process.wait_until(saved, 30, "saved consumer offsets")
        daemon.kill9()

    def open_by_apache(self):
        self.names = Daemon(roles="names", name="names")
        self.broker = tap.watch(apache.Broker(self.names.names, storePathRootDir=self.folder, **stock.FILES))
        self.broker.wait_registered(self.names.names)


plays = {}


def play(how, opened=True):
    if how not in plays or (opened and not plays[how].broker):
        tap.skip("there is no broker with a folder")
    return plays[how]


def write(how):
    plays[how] = now = Play(how == "stopped")
    tap.note("%d messages in %d queues, log files %s" % (sum(len(q.records) for q in now.held.values()), len(now.held),
                                                         stock.log_files(now.folder)))
    tap.check(len(stock.log_files(now.folder)) > 2, "the log has several files")
    tap.equal(os.path.exists(os.path.join(now.folder, "abort")), how == "killed", "abort is there")


def same_records(how):
    now = play(how, opened=False)
    units = stock.units_of(now.folder, now.held)
    now.open_by_apache()
    found = stock.read_all(now.broker.address, now.held)
    tap.equal(stock.differences(now.held, found), [], "differences")
    after = stock.units_of(now.folder, now.held)
    tap.equal([place for place in units if units[place] != after[place]], [], "queues whose units differ")


def first_indexed(how, now):
    """From which position on Apache's broker has to know the keys of what ours wrote.

    After a SIGKILL it drops index files that are newer than the checkpoint, and adds again only what its recovery of
    the log reads. That may be no more than the last log file, in a folder of its own as well.
    """
    size = stock.FILES["mappedFileSizeCommitLog"]
    return 0 if how == "stopped" else stock.log_end(now.held) // size * size


def same_keys(how):
    now = play(how)
    first = first_indexed(how, now)
    asked, wrong = stock.wrong_keys(now.broker.address, now.held, first)
    tap.equal(wrong[:5], [], "%d of %d keys are wrong; the first" % (len(wrong), asked))
    tap.check(asked > 50, "only %d keys were asked for" % asked)
    if how == "stopped":
        tap.equal(stock.index_files(now.folder), now.index, "index files, which are used and not built again")
    tap.note("%d keys, of records from position %d on" % (asked, first))


def java_reads(how):
    """The topic's route comes from the settings in the folder, the committed offset too."""
    now = play(how)
    home = process.temp_folder()
    lines = os.path.join(home, "all.txt")
    child = tap.watch(apache.java("reader", "oncemq.interop.ReadAll", now.names.names, stock.GROUP, lines, *TOPICS,
                                  home=home))
    status, out = child.finish(120)
    tap.equal((status, out.strip()[-4:]), (0, "done"), "end of the reader")
    tap.unwatch(child)
    with open(lines, encoding="utf-8") as source:
        found = [line.rstrip("\n").split("\t") for line in source]
    bounds = {(topic, int(queue)): tuple(map(int, rest)) for kind, topic, queue, *rest in found if kind == "queue"}
    wanted = {place: (queue.first, queue.end, now.committed[place]) for place, queue in now.held.items()}
    tap.equal({place: bounds.get(place) for place in wanted}, wanted, "bounds and committed offsets")
    empty = [bounds[place][:2] for place in bounds if place not in wanted]
    tap.equal([each for each in empty if each != (0, 0)], [], "bounds of queues without a message")
    shown = sorted(line[1:] for line in found if line[0] == "message")
    tap.equal(first_difference(shown, sorted(as_java_shows(message) for queue in now.held.values()
                                             for message in queue.messages)), None, "first difference")
    tap.note("%d messages read by the Java client" % len(shown))


def as_java_shows(message):
    properties = message.properties
    return [message.topic, *(str(number) for number in (message.queue_id, message.queue_offset, message.physical_offset,
                                                        message.store_time)),
            properties.get("UNIQ_KEY") or message.offset_id, str(len(message.body)), str(zlib.crc32(message.body)),
            properties.get("TAGS", "null"), properties.get("KEYS", "null"), properties.get("größe", "null")]


def first_difference(found, wanted):
    pairs = [pair for pair in zip(found, wanted) if pair[0] != pair[1]]
    if pairs or len(found) == len(wanted):
        return pairs[0] if pairs else None
    return "%d lines, wanted %d" % (len(found), len(wanted))


def same_offsets(how):
    now = play(how)
    tap.equal(stock.committed(now.broker.address, now.committed), now.committed, "committed offsets")


def goes_on(how):
    """Apache's broker takes up the queues where ours left them."""
    now = play(how)
    with r.Client(now.broker.address) as client:
        answers = stock.settle(client, [stock.send(client, topic, b"one more", {}, queue) for topic, queue in now.held])
    offsets = {place: int(answer.ext["queueOffset"]) for place, answer in zip(now.held, answers)}
    tap.equal(offsets, {place: queue.end for place, queue in now.held.items()}, "offsets of the new messages")
    tap.equal(stock.first_position(answers), stock.log_end(now.held), "position of the first new record")
    stock.fill(now.broker.address, first=100000, count=MORE)


def comes_back(how):
    """Ours has it again, and finds what both have written; Apache's broker ends as ours did."""
    now = play(how)
    held = stock.read_settled(now.broker.address, now.folder)
    for place, queue in now.held.items():
        tap.equal(held[place].records[:len(queue.records)], queue.records, "our part of %s/%d" % place)
    now.broker.stop() if how == "stopped" else now.broker.kill9()
    tap.unwatch(now.broker)
    with tap.watch(Daemon(folder=now.folder, settings=stock.FILES)) as daemon:
        tap.equal(stock.differences(held, stock.read_all(daemon.broker, held)), [], "differences")
        tap.equal(stock.committed(daemon.broker, now.committed), now.committed, "committed offsets")
        asked, wrong = stock.wrong_keys(daemon.broker, held, first_indexed(how, now))
        tap.equal(wrong[:5], [], "%d of %d keys are wrong; the first" % (len(wrong), asked))
        daemon.stop()
    status, out, _ = run("--check", now.folder, timeout=60)
    tap.equal(status, 0, "status of --check (%s)" % out)
    topics = stock.table(now.folder, "topics.json", "topicConfigTable")
    tap.equal(stock.missing_members(now.topics, topics), [], "topic settings lost on the way")
    now.names.kill9()


for _how in ("stopped", "killed"):
    tap.test("ours writes some thousand messages, then is %s" % _how)(lambda how=_how: write(how))
    tap.test("%s: Apache's broker shows every record of every queue, byte for byte" % _how)(
        lambda how=_how: same_records(how))
    tap.test("%s: Apache's broker finds records by each of their keys, and no other" % _how)(
        lambda how=_how: same_keys(how))
    tap.test("%s: the official Java client reads all of it" % _how)(lambda how=_how: java_reads(how))
    tap.test("%s: Apache's broker has the offsets that were committed on ours" % _how)(lambda how=_how: same_offsets(how))
    tap.test("%s: Apache's broker goes on at the next offsets" % _how)(lambda how=_how: goes_on(how))
    tap.test("%s: ours opens what Apache's broker made of it" % _how)(lambda how=_how: comes_back(how))


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
