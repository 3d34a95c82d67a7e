"""Every way to send, and what arrives."""

import collections
import time

from harness import process, remoting, tap

from .puppet import Refused
from .scenario import NEW, scenario

MIB = 1 << 20


@scenario("RM-1 RM-4 RM-8", "sync sends arrive once each, with id, place, keys, tag and properties as sent")
def sync_sends(play):
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    sent = {each["number"]: each for each in play.send(topic, 200, tags="red,green,蓝", keys=10)}
    listener.wait_all(sent)
    tap.equal(len(listener.received()), 200, "deliveries")
    for got in listener.received():
        want = sent[got["number"]]
        tap.equal({key: got[key] for key in ("id", "broker", "queue", "offset")},
                  {key: want[key] for key in ("id", "broker", "queue", "offset")}, "message %d" % got["number"])
        tap.equal((got["intact"], got["tags"], got["keys"]),
                  (True, ("red", "green", "蓝")[got["number"] % 3], "key-%d" % (got["number"] % 10)), "content")
        tap.equal(got["properties"]["UNIQ_KEY"], got["id"], "unique key")
    tap.equal(len({each["offset_id"] for each in sent.values()}), 200, "different offset ids")


@scenario("RM-4", "1,000 async sends call back 1,000 times and all messages arrive")
def async_sends(play):
    topic = play.topic()
    listener = play.listen(topic, play.group())
    sent = play.send(topic, 1000, mode="async")
    tap.equal(len({each["id"] for each in sent}), 1000, "different ids")
    listener.wait_all(range(1000))
    tap.check(all(each["intact"] for each in listener.received()), "a body is not as sent")


@scenario("DS-4", "one-way sends return at once and arrive")
def oneway_sends(play):
    topic = play.topic()
    listener = play.listen(topic, play.group())
    tap.equal(play.send(topic, 100, mode="oneway"), [], "results of one-way sends")
    listener.wait_all(range(100))


@scenario("RM-4", "a batch lies in one queue in its order, and each message has an id of its own")
def batch_send(play):
    topic = play.topic()
    listener = play.listen(topic, play.group())
    result, = play.send(topic, 32, mode="batch", tags="a,b", keys=5)
    ids = result["id"].split(",")
    tap.equal(len(set(ids)), 32, "different ids")
    listener.wait_all(range(32))
    got = sorted(listener.received(), key=lambda each: each["number"])
    tap.equal([each["id"] for each in got], ids, "ids in order")
    tap.equal({(each["broker"], each["queue"]) for each in got}, {(result["broker"], result["queue"])}, "queues used")
    tap.equal([each["offset"] for each in got], list(range(32)), "offsets in order")
    tap.check(all(each["intact"] and each["tags"] == "ab"[each["number"] % 2] for each in got), "content")


@scenario("RM-4", "bodies near 4 MiB and compressed ones arrive whole; larger ones are refused by the broker")
def large_bodies(play):
    topic = play.topic(queues=1)
    listener = play.listen(topic, play.group())
    # The client compresses noise too, which makes it a little larger.
    play.send(topic, 1, first=0, size=4 * MIB - 4096, kind="noise", limit=30000, max=8 * MIB)
    play.send(topic, 1, first=1, size=3 * MIB)
    play.send(topic, 3, first=2, size=5000)
    play.send(topic, 1, first=5, size=3000)
    refused, = play.call("send", topic=topic, count=1, first=9, producer=play.name, size=4 * MIB + 1, kind="noise")
    tap.check("CODE: 13" in refused.get("error", ""), "a body over the limit: %s" % refused)
    listener.wait_all(range(6))
    for got in listener.received():
        tap.check(got["intact"], "message %d is damaged" % got["number"])
    sizes = {each["number"]: each["size"] for each in listener.received()}
    tap.check(sizes[0] == 4 * MIB - 4096 and sizes[1] >= 3 * MIB, "sizes %s" % sizes)
    # The client undoes compression and may not tell; the records do.
    flags = {int(each.properties["number"]): each.sys_flag & remoting.COMPRESSED for each in play.records(topic)}
    tap.equal(flags, {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 0}, "compressed records")


@scenario("LB-1", "1,000 sends to four queues go round: 250 each")
def round_robin(play):
    topic = play.topic(queues=4, brokers=play.stage.brokers[:1])
    counts = collections.Counter(each["queue"] for each in play.send(topic, 1000))
    tap.equal(counts, {queue: 250 for queue in range(4)}, "sends per queue")


@scenario("RM-2 RM-8", "a topic with 4+4 queues on two brokers: 800 sends go round, 100 to each queue")
def two_brokers(play):
    if len(play.stage.brokers) < 2:
        tap.skip("one broker only")
    topic = play.topic(queues=4, brokers=play.stage.brokers[:2])
    places = ["%s/%d" % (broker.name, queue) for broker in play.stage.brokers[:2] for queue in range(4)]
    tap.equal(play.call("queues", group=play.group(), topic=topic), places, "queues of the topic")
    group = play.group()
    listener = play.listen(topic, group)
    counts = collections.Counter("%(broker)s/%(queue)d" % each for each in play.send(topic, 800))
    tap.equal(counts, {place: 100 for place in places}, "sends per queue")
    listener.wait_all(range(800))
    play.wait_committed(group, topic, 800)
    tap.equal(play.committed(group, topic), {place: 100 for place in places}, "offsets per queue")


@scenario("RM-12", "of 1,000 messages with 10 keys and 4 tags a key finds 100, an id finds one, a tag gets 250")
def keys_and_tags(play):
    topic = play.topic()
    one, two = play.listen(topic, play.group(), tags="b"), play.listen(topic, play.group(), tags="a || d")
    begin = int(time.time() * 1000)
    sent = {each["number"]: each for each in play.send(topic, 1000, tags="a,b,c,d", keys=10)}
    one.wait_all(range(1, 1000, 4))
    two.wait_all([number for number in range(1000) if number % 4 in (0, 3)])
    tap.equal((len(one.received()), len(two.received())), (250, 500), "deliveries by tag")

    def by_key():
        # The index follows the log a moment later. Half of the messages lie on each broker, and one gives 64 at most.
        found = play.call("query", topic=topic, key="key-7", max=64, begin=begin - 1000, producer=play.name)
        return len(found) == (100 if len(play.stage.brokers) > 1 else 64) and found
    found = process.wait_until(by_key, 20, "100 messages with key-7", pause=0.2)
    tap.check(all(each["number"] % 10 == 7 and each["keys"] == "key-7" and each["intact"] for each in found), "wrong ones")
    for identity in (sent[77]["id"], sent[77]["offset_id"]):
        tap.equal(play.call("view", topic=topic, id=identity, producer=play.name)["number"], 77, "message by id")
    try:
        nothing = play.call("query", topic=topic, key="no-such-key", producer=play.name)
    except Refused as reason:
        nothing = str(reason)
    tap.check("no message" in nothing, "query of an unknown key: %s" % nothing)


@scenario("DE-1", "a delayed message is never early and not much late, level by level")
def delay_levels(play):
    play.stage.need_own("the levels must be known")
    topic = play.topic()
    listener = play.listen(topic, play.group())
    play.send(topic, 1, first=99)
    listener.wait_all([99])
    play.send(topic, 20, first=0, delay=1)
    play.send(topic, 20, first=20, delay=2)
    play.send(topic, 1, first=40, delay=18)
    listener.wait_all(range(41))
    tap.equal(len(listener.received()), 42, "deliveries")
    late = []
    for got in listener.received():
        tap.check(got["intact"] and got["topic"] == topic, "message %s" % got)
        if got["number"] < 41:
            seconds = 2 if 20 <= got["number"] < 40 else 1
            # Both clocks are this machine's. The broker may not count less than the delay from when it stored it.
            late.append(got["at"] - got["born"] - 1000 * seconds)
            tap.equal(got["properties"].get("DELAY"), {1: "1", 2: "2"}[seconds] if got["number"] != 40 else "18", "level")
    tap.note("late by %d to %d ms" % (min(late), max(late)))
    tap.check(min(late) >= 0, "early by %d ms" % -min(late))
    tap.check(max(late) < 10000, "late by %d ms" % max(late))


@scenario("RM-4", "a request is answered by whoever consumes the topic, and fails in time when nobody does")
def request_reply(play):
    topic, silent = play.topic(queues=1), play.topic(queues=1)
    play.listen(topic, play.group(), behave="reply", producer=play.unique("replier")).wait_assigned(
        len(play.stage.brokers))
    for number in range(5):
        answer = play.call("request", topic=topic, first=number, producer=play.name, wait=20000)
        tap.equal(answer["body"], "answer to %d" % number, "answer")
        tap.check(answer["properties"].get("CORRELATION_ID"), "no correlation id: %s" % answer)
    try:
        answer = play.call("request", topic=silent, producer=play.name, wait=1000)
        tap.check(False, "an answer from nobody: %s" % answer)
    except Refused as reason:
        tap.check("RequestTimeoutException" in str(reason), "request without consumer: %s" % reason)


@scenario("RM-8", "a topic is made by the first message for it, with the queues the client asks for", versions=(NEW,))
def created_by_sending(play):
    topic = play.unique("topic")
    listener = play.listen(topic, play.group())
    play.send(topic, 20)
    listener.wait_all(range(20))
    tap.equal(set(play.stage.route(topic).values()), {(4, 6)}, "queues and permission")
