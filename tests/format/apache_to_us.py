#!/usr/bin/env python3
"""A folder that a real Apache RocketMQ broker wrote is opened by ours, and everything in it is right.

Twice: stopped with SIGTERM, so that ours takes the queues as they are, and killed with SIGKILL, so that ours verifies
the log and builds the queues anew. Before it ends, everything is pulled from Apache's broker; ours has to show the same
bytes. It works on copies, each opened with automatic creation of topics and groups switched off: what it knows it has
from the folder.
"""

import base64
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import stock  # noqa: E402
from harness import apache, cli, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon, run  # noqa: E402

CLOSED = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}


class Left:
    """What Apache's broker left behind: the folder, and what it showed before."""

    def __init__(self, clean):
        with Daemon(roles="names", name="names") as names:
            broker = apache.Broker(names.names, flushConsumerOffsetInterval=1000, brokerFastFailureEnable="false",
                                   transactionCheckInterval=3600000, transactionTimeOut=3600000,
                                   **stock.FILES)
            tap.watch(broker)
            self.folder = os.path.join(broker.home, "store")
            stock.fill(broker.address)
            stock.fill_delayed(broker.address)
            stock.fill_transactions(broker.address)
            self.held = stock.read_settled(broker.address, self.folder)
            self.committed = stock.commit(broker.address, self.held)
            wait_saved(self.folder, self.committed)
            broker.stop() if clean else broker.kill9()
            tap.unwatch(broker)
        self.topics = stock.table(self.folder, "topics.json", "topicConfigTable")
        self.groups = stock.table(self.folder, "subscriptionGroup.json", "subscriptionGroupTable")
        self.offsets = stock.table(self.folder, "consumerOffset.json", "offsetTable")


def wait_saved(folder, committed):
    """Offsets are saved once a second; a SIGKILL before that takes them away, and rightly so."""
    def saved():
        try:
            table = stock.table(folder, "consumerOffset.json", "offsetTable")
        except (OSError, r.Malformed):
            return False
        return all(table.get("%s@%s" % (topic, stock.GROUP), {}).get(str(queue)) == offset
                   for (topic, queue), offset in committed.items())
    process.wait_until(saved, 30, "saved consumer offsets")


left = {}
daemons = []


def open_copy(how, **settings):
    """Our daemon on a copy of a folder; the one before is gone."""
    if how not in left:
        tap.skip("there is no folder")
    for old in daemons:
        old.kill9()
        tap.unwatch(old)
    daemons[:] = [Daemon(folder=stock.copy_of(left[how].folder), settings={**stock.FILES, **CLOSED, **settings})]
    return tap.watch(daemons[0])


def write(how):
    left[how] = Left(how == "stopped")
    held, folder = left[how].held, left[how].folder
    tap.note("%d messages in %d queues, %d log files" % (sum(len(q.records) for q in held.values()), len(held),
                                                         len(stock.log_files(folder))))
    tap.equal(os.path.exists(os.path.join(folder, "abort")), how == "killed", "abort is there")
    tap.check(len(stock.log_files(folder)) > 2, "the log has several files: %s" % stock.log_files(folder))
    for topic in ("FormatPlain", "FormatBatch", "FormatBig", "FormatDelay", "FormatTx", "SCHEDULE_TOPIC_XXXX",
                  "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
        tap.check(any(place[0] == topic and queue.records for place, queue in held.items()), "%s is empty" % topic)


def sound(how):
    """oncemqd --check finds nothing wrong with it, and leaves it as it was."""
    if how not in left:
        tap.skip("there is no folder")
    before = stock.digest(left[how].folder)
    status, out, errors = run("--check", left[how].folder, timeout=60)
    tap.note(out)
    tap.equal(status, 0, "status of --check (%s)" % errors)
    tap.equal(stock.digest(left[how].folder), before, "folder afterwards")
    records = sum(len(queue.records) for queue in left[how].held.values())
    tap.check("sound: %d records" % records in out, "all %d records were counted" % records)


def dumped(how):
    """oncemq store dump shows the messages of every queue, as they are."""
    if how not in left:
        tap.skip("there is no folder")
    shown = {each["position"]: each for each in cli.Cluster(start=False).json("store", "dump", left[how].folder, "--body")}
    for (topic, queue), held in left[how].held.items():
        for message in held.messages:
            found = shown[message.physical_offset]
            tap.equal((found["topic"], found["queue"], found["offset"], found["id"], found["offset_id"]),
                      (topic, queue, message.queue_offset, message.unique_key, message.offset_id))
            body = base64.b64decode(found["body64"]) if found["body64"] is not None else found["body"].encode()
            tap.equal((body, found["properties"]), (message.body, message.properties), "message at %d" % message.physical_offset)


def same_records(how):
    daemon = open_copy(how)
    found = stock.read_all(daemon.broker, left[how].held, stock.GROUP)
    tap.equal(stock.differences(left[how].held, found), [], "differences")
    tap.equal(stock.queues_of(daemon.folder), sorted(left[how].held), "queues on disk")
    daemon.stop()


def same_places(how):
    """The units of the queues, byte for byte, after our daemon has had the folder: built anew, or left alone."""
    daemon = open_copy(how)
    daemon.stop()
    wanted = stock.units_of(left[how].folder, left[how].held)
    found = stock.units_of(daemon.folder, left[how].held)
    tap.equal([place for place in wanted if wanted[place] != found[place]], [], "queues whose units differ")


def same_keys(how):
    """All keys of all records are asked for, before and after ours has stopped and opened the index once more."""
    daemon = open_copy(how)
    index = stock.index_files(left[how].folder)
    tap.check(len(index) > 2, "the index has several files: %s" % index)
    tap.equal(stock.index_files(daemon.folder), index, "index files, which are used and not built again")
    asked, wrong = stock.wrong_keys(daemon.broker, left[how].held)
    tap.equal(wrong[:5], [], "%d of %d keys are wrong; the first" % (len(wrong), asked))
    daemon.restart()
    asked, wrong = stock.wrong_keys(daemon.broker, left[how].held)
    tap.equal(wrong[:5], [], "%d of %d keys are wrong after a stop; the first" % (len(wrong), asked))
    tap.note("%d keys in %d index files" % (asked, len(index)))
    daemon.stop()


def same_offsets(how):
    daemon = open_copy(how)
    tap.equal(stock.committed(daemon.broker, left[how].committed), left[how].committed, "committed offsets")
    daemon.stop()
    found = stock.table(daemon.folder, "consumerOffset.json", "offsetTable")
    tap.equal(stock.missing_members(left[how].offsets, found), [], "offsets lost from the table")


def same_settings(how):
    """Topics and groups, in the tables that our daemon writes when it has changed something in each."""
    daemon = open_copy(how, autoCreateTopicEnable="true", autoCreateSubscriptionGroup="true")
    with r.Client(daemon.broker) as client:
        stock.settle(client, [stock.send(client, "FormatNew", b"x", {}, 0)])
        stock.pull(client, "FormatNew", 0, 0, "format_new_group")
    daemon.stop()
    topics = stock.table(daemon.folder, "topics.json", "topicConfigTable")
    groups = stock.table(daemon.folder, "subscriptionGroup.json", "subscriptionGroupTable")
    tap.check("FormatNew" in topics and "format_new_group" in groups, "the tables were written")
    tap.equal(stock.missing_members(left[how].topics, topics), [], "topic settings lost")
    tap.equal(stock.missing_members(left[how].groups, groups), [], "group settings lost")


def goes_on(how):
    """One more message for each queue of the users' topics, then all of them once more, after a restart."""
    daemon = open_copy(how)
    held = left[how].held
    places = [place for place in held if place[0].startswith("Format")]
    with r.Client(daemon.broker) as client:
        answers = stock.settle(client, [stock.send(client, topic, b"one more", {}, queue) for topic, queue in places])
    ends = {place: int(answer.ext["queueOffset"]) for place, answer in zip(places, answers)}
    tap.equal(ends, {place: held[place].end for place in places}, "offsets of the new messages")
    tap.equal(stock.first_position(answers), stock.log_end(held), "position of the first new record")

    daemon.restart(hard=True)
    found = stock.read_all(daemon.broker, held, stock.GROUP)
    for place in places:
        tap.equal(found[place].messages[-1].body, b"one more", "last body of %s/%d" % place)
        found[place].records.pop()
        found[place].end -= 1
    tap.equal(stock.differences(held, found), [], "differences in what was there before")
    daemon.stop()


for _how in ("stopped", "killed"):
    tap.test("an Apache broker writes messages of all kinds, then is %s" % _how)(lambda how=_how: write(how))
    tap.test("%s: a check finds the folder sound and does not change it" % _how)(lambda how=_how: sound(how))
    tap.test("%s: a dump shows all of its messages" % _how)(lambda how=_how: dumped(how))
    tap.test("%s: ours shows every record of every queue, byte for byte" % _how)(lambda how=_how: same_records(how))
    tap.test("%s: the units of all queues are the same afterwards" % _how)(lambda how=_how: same_places(how))
    tap.test("%s: ours finds every record by each of its keys, and no other" % _how)(lambda how=_how: same_keys(how))
    tap.test("%s: committed offsets are the same" % _how)(lambda how=_how: same_offsets(how))
    tap.test("%s: settings of topics and groups survive our writing them" % _how)(lambda how=_how: same_settings(how))
    tap.test("%s: sending goes on at the next offsets" % _how)(lambda how=_how: goes_on(how))


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
