"""Consumers that ask: the pull consumer and the lite-pull consumer."""

import time

from harness import process, tap

from .scenario import scenario


@scenario("CO-1 RM-5", "a pull consumer gets what it asks for: 32 of a backlog, by offset, by tag; commits and reads offsets")
def pull_consumer(play):
    broker = play.stage.brokers[0]
    topic, group = play.topic(queues=1, brokers=[broker]), play.group()
    at = dict(topic=topic, group=group, broker=broker.name, queue=0)
    play.send(topic, 50, tags="a,b")
    middle = int(time.time() * 1000) + 1
    time.sleep(0.1)
    play.send(topic, 50, first=50, tags="a,b")

    first = play.call("pull", offset=0, **at)
    tap.equal((first["status"], [each["number"] for each in first["messages"]], first["next"], first["min"], first["max"]),
              ("FOUND", list(range(32)), 32, 0, 100), "first pull")
    tagged = play.call("pull", offset=90, tags="b", **at)
    tap.equal([each["number"] for each in tagged["messages"]], [91, 93, 95, 97, 99], "pull by tag")
    end = play.call("pull", offset=100, **at)
    tap.equal((end["status"], end["messages"]), ("NO_NEW_MSG", []), "pull at the end")
    beyond = play.call("pull", offset=1000, **at)
    tap.equal((beyond["status"], beyond["next"]), ("OFFSET_ILLEGAL", 100), "pull beyond the end")

    tap.equal([play.call("offset", what=what, **at) for what in ("min", "max")], [0, 100], "ends of the queue")
    tap.equal(play.call("offset", what="time", time=middle, **at), 50, "offset by time")
    tap.check(play.call("offset", what="committed", **at) <= 0, "an offset before any commit")
    play.call("commit", offset=32, **at)
    process.wait_until(lambda: play.call("offset", what="committed", **at) == 32, 10, "the commit is seen")
    tap.equal(play.committed(group, topic), {broker.name + "/0": 32}, "offset at the broker")


@scenario("CO-1", "a lite-pull consumer seeks, polls and commits on queues that it took itself")
def lite_assign(play):
    broker = play.stage.brokers[0]
    topic, group, name = play.topic(queues=1, brokers=[broker]), play.group(), play.unique("lite")
    place = dict(topic=topic, broker=broker.name, queue=0, name=name)
    play.send(topic, 100)
    tap.equal(play.call("lite", name=name, topic=topic, group=group, assign=True), [broker.name + "/0"], "queues")

    def poll(count):
        """At least so many messages, in order of arrival."""
        found = []
        process.wait_until(lambda: found.extend(play.call("lite_poll", name=name, wait=500)) or len(found) >= count,
                           30, "%d polled messages" % count)
        return [each["number"] for each in found]

    tap.equal(poll(100), list(range(100)), "all messages")
    play.call("lite_seek", offset=90, **place)
    tap.equal(poll(10), list(range(90, 100)), "after a seek")
    play.call("lite_seek", offset="begin", **place)
    tap.equal(poll(100), list(range(100)), "after a seek to the begin")
    play.call("lite_commit", name=name)
    process.wait_until(lambda: play.committed(group, topic) == {broker.name + "/0": 100}, 20, "the commit")
    tap.equal(play.call("lite_committed", **place), 100, "committed")
    play.call("lite_seek", offset="end", **place)
    play.send(topic, 5, first=100)
    tap.equal(poll(5), list(range(100, 105)), "after a seek to the end")
    play.call("lite_stop", name=name)


@scenario("CO-2", "lite-pull consumers of a group share its queues and go on where the group stopped")
def lite_subscribe(play):
    topic, group = play.topic(queues=2), play.group()
    name, later = play.unique("lite"), play.unique("lite")
    play.send(topic, 60)
    play.call("lite", name=name, topic=topic, group=group, auto=True)
    numbers = []

    def collect(who, wanted):
        process.wait_until(lambda: numbers.extend(each["number"] for each in
                                                  play.call("lite_poll", name=who, wait=500))
                           or set(wanted) <= set(numbers), 30, "%s polls its messages" % who)
    collect(name, range(60))
    process.wait_until(lambda: play.call("lite_poll", name=name, wait=200) == []
                       and sum(play.committed(group, topic).values()) == 60, 30, "the automatic commit")
    play.call("lite_stop", name=name)
    play.send(topic, 20, first=60)
    numbers.clear()
    play.call("lite", name=later, topic=topic, group=group, auto=True)
    collect(later, range(60, 80))
    tap.equal(sorted(numbers), list(range(60, 80)), "messages of the second consumer")
    play.call("lite_stop", name=later)
