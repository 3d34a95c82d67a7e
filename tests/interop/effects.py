"""Plays about effects: what a group of consumers has done after its members died, came, went and failed.

An effect is a line in a ledger, a file that all consumers of a play append to. A consumer writes the line before it
reports success, so the line may be there although the broker never heard of it: then the message comes again, and has
its effect once more. That is what "at least once" means, and the plays show its two halves: no message without effect
however consumers end, and every further effect recognised by the key of its message. Here the test itself
recognises them; it counts them and says how many there were.

The consumers work for some milliseconds on each message, so that one that is killed has messages in its hands.
"""

import collections
import os
import time

from harness import process, puppet, remoting, tap
from interop.stage import unique

QUEUES = 8
BATCH = 25
KILLS, KILL_MESSAGES, KILL_AFTER, KILL_WORK_MS = 20, 10000, 25, 5
SCALE_BATCH, SCALE_WORK_MS = 100, 4
PROBE = "probe"  # the key of messages that do not count
RETRY_MS = 1000  # the first retry, in the ladder of plays.SETTINGS
QUERY_MESSAGE = 12

Effect = collections.namedtuple("Effect", "consumer key id reconsume at")


class Ledger:
    """The effects of a play so far, read from the file as it grows."""

    def __init__(self):
        self.path = os.path.join(process.temp_folder(), "ledger")
        self.file = open(self.path, "w+b")  # consumers append; nobody makes it but this
        self.effects, self.unread = [], b""
        self.by_key, self.by_consumer = collections.Counter(), collections.Counter()

    def read(self):
        """Take in what was written since the last time."""
        *lines, self.unread = (self.unread + self.file.read()).split(b"\n")
        for line in lines:
            consumer, key, id_, reconsume, at = line.decode().split("\t")
            self.effects.append(Effect(consumer, key, id_, int(reconsume), int(at)))
            self.by_key[key] += 1
            self.by_consumer[consumer] += 1
        return self

    def of(self, key):
        return [effect for effect in self.effects if effect.key == key]

    def missing(self, keys):
        """Those of these keys that had no effect yet."""
        return set(keys) - self.read().by_key.keys()

    def further(self, keys):
        """How many effects there were beyond the first of each key."""
        return sum(self.by_key[key] - 1 for key in keys)

    def wait_all(self, keys, timeout):
        try:
            process.wait_until(lambda: not self.missing(keys), timeout, "every message has an effect", pause=0.1)
        except process.Failed as late:
            lost = self.missing(keys)
            raise process.Failed("%s; without: %d of %d, one is %s" % (late, len(lost), len(keys), min(lost))) from late

    def wait_consumer(self, consumer, count):
        """Wait until a consumer has had so many effects."""
        process.wait_until(lambda: self.read().by_consumer[consumer] >= count, 60,
                           "%d effects of %s" % (count, consumer), pause=0.01)


def _topic(play, name):
    """An empty topic with QUEUES queues."""
    topic = unique(name)
    play.main.call("create_topic", topic=topic, broker=play.stage.broker_address(), perm=6, queues=QUEUES)
    process.wait_until(lambda: play.stage.route(topic), 10, "route of %s" % topic)
    return topic


def _keys(count):
    return ["key-%d" % number for number in range(count)]


def _send(play, topic, keys, batch):
    """A message per key, in batches that go to the queues in turn."""
    for first in range(0, len(keys), batch):
        play.send(*[puppet.message(topic, key, keys=[key]) for key in keys[first:first + batch]], mode="batch")


# Consumers that die -------------------------------------------------------------------------------------------------

def killed_consumers_lose_nothing(play):
    """In every turn one consumer is killed at work. The next has joined before that, so nobody waits for a timer."""
    topic, group, ledger = _topic(play, "Killed"), unique("killed"), Ledger()
    keys, part = _keys(KILL_MESSAGES), KILL_MESSAGES // KILLS

    def join(number):
        worker = play.puppet("worker%d" % number)
        return worker, play.consumer(worker.name, topic, group, on=worker, ledger=ledger.path, work_ms=KILL_WORK_MS)

    (victim, name), open_at_kills = join(0), []
    for turn in range(KILLS):
        heir, heir_name = join(turn + 1)
        before = ledger.read().by_consumer[name]
        _send(play, topic, keys[turn * part:(turn + 1) * part], BATCH)
        ledger.wait_consumer(name, before + KILL_AFTER)
        victim.kill9()
        tap.unwatch(victim)
        open_at_kills.append(len(ledger.missing(keys[:(turn + 1) * part])))
        victim, name = heir, heir_name
    ledger.wait_all(keys, 90)
    tap.equal(ledger.by_key.keys() - set(keys), set(), "keys that nobody sent")
    tap.note("%d messages, %d kills, %d duplicates; without effect at a kill: %d to %d" % (
        len(keys), KILLS, ledger.further(keys), min(open_at_kills), max(open_at_kills)))
    victim.end()
    tap.unwatch(victim)


# Consumers that come and go -----------------------------------------------------------------------------------------

def consumers_come_and_go(play):
    """Two, then three, then one, while messages are sent; those who go do so in good order."""
    topic, group, ledger = _topic(play, "Scale"), unique("scale"), Ledger()
    keys = _keys(50000)

    def join(number):
        return play.consumer("scale%d" % number, topic, group, ledger=ledger.path, work_ms=SCALE_WORK_MS)

    def send(begin, end, then):
        _send(play, topic, keys[begin:end], SCALE_BATCH)
        tap.note("%d sent, %d of them without effect; %s" % (end, len(ledger.missing(keys[:end])), then))

    first, second = join(1), join(2)
    send(0, 10000, "two consumers share them")
    _wait_working(play, topic, ledger, first, second)
    send(10000, 30000, "the third comes")
    third = join(3)
    send(30000, 40000, "three consumers share them")
    _wait_working(play, topic, ledger, third)
    send(40000, 50000, "two go")
    play.stop(first)
    play.stop(second)
    ledger.wait_all(keys, 90)
    tap.equal(len(ledger.by_key.keys() - {PROBE}), 50000, "different messages with an effect")
    tap.note("%d different messages had effects, %d duplicates" % (len(keys), ledger.further(keys)))
    play.stop(third)


def _wait_working(play, topic, ledger, *names):
    """Send probes to all queues until each of these consumers had some effect."""
    def working():
        play.send(*[puppet.message(topic, PROBE, keys=[PROBE]) for _ in range(QUEUES)])
        return all(ledger.read().by_consumer[name] for name in names)
    process.wait_until(working, 60, "effects of %s" % ", ".join(names), pause=0.1)


# An effect that is reported as a failure ----------------------------------------------------------------------------

def effect_then_failure(play):
    """The broker only hears "failed", so each message comes again from the ladder, and by its id it can be known."""
    topic, group, ledger = _topic(play, "Unknown"), unique("unknown"), Ledger()
    play.stage.prepare_group(group, topic)
    keys = _keys(20)
    sent = play.send(*[puppet.message(topic, key, keys=[key]) for key in keys])
    consumer = play.consumer("unknown", topic, group, ledger=ledger.path, fail_below=1)
    process.wait_until(lambda: all(ledger.read().by_key[key] >= 2 for key in keys), 90, "two effects of each message")
    play.main.call("settle", name=consumer)
    play.stop(consumer)
    waited = []
    for key, place in zip(keys, sent):
        effects = ledger.read().of(key)
        tap.equal([effect.reconsume for effect in effects], [0, 1], "reconsume counts of %s" % key)
        tap.equal({effect.id for effect in effects}, {place["id"]}, "ids of %s" % key)
        waited.append(effects[1].at - effects[0].at)
    tap.note("came again after %d to %d ms" % (min(waited), max(waited)))
    if play.stage.broker:  # only there do we know the ladder
        tap.check(min(waited) >= RETRY_MS, "a retry after %d ms" % min(waited))


# One id for two messages --------------------------------------------------------------------------------------------

def one_id_two_messages(play):
    """Two producers that make the same id: raw frames, as the official clients take care not to."""
    topic, same = _topic(play, "Twins"), ("%X" % time.time_ns()).zfill(32)
    bodies = {"order-1": "ten pieces", "order-2": "a refund"}
    places = {key: _send_raw(play, topic, body, {"UNIQ_KEY": same, "KEYS": key}) for key, body in bodies.items()}
    tap.equal(len(set(places.values())), 2, "places in the log")
    records = play.stage.records(topic)
    tap.equal({(each.unique_key, each.properties["KEYS"], each.body.decode(), each.offset_id) for each in records},
              {(same, key, bodies[key], places[key]) for key in bodies}, "what is stored")
    consumer = play.consumer("twins", topic)
    play.wait_bodies(consumer, bodies.values())
    tap.equal(sorted((each["id"], each["keys"], each["body"]) for each in play.deliveries(consumer)),
              sorted((same, key, bodies[key]) for key in bodies), "what is delivered")
    play.stop(consumer)
    tap.equal(_find(play, topic, same, 2, _UNIQUE_KEY_QUERY=True), sorted(bodies.values()), "found by the id")
    for key, body in bodies.items():
        tap.equal(_find(play, topic, key, 1), [body], "found by the key %s" % key)


def _send_raw(play, topic, body, properties):
    """One message to queue 0 from a producer of its own; returns the id that tells its place."""
    fields, body = remoting.send_v2(topic, body.encode(), properties, queue_id=0, group=properties["KEYS"])
    with remoting.Client(play.stage.broker_address()) as client:
        answer = client.request(remoting.SEND_MESSAGE_V2, fields, body)
    tap.equal(answer.code, remoting.SUCCESS, "code of a send with %s" % properties)
    return answer.ext["msgId"]


def _find(play, topic, key, count, **more):
    """The bodies of the messages that the index has for a key, once there are so many."""
    fields = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0,
              "endTimestamp": int(time.time() * 1000) + 60000, **more}

    def found():
        with remoting.Client(play.stage.broker_address()) as client:
            answer = client.request(QUERY_MESSAGE, fields)
        bodies = sorted(each.body.decode() for each in remoting.messages(answer.body)) if answer.code == 0 else []
        return bodies if len(bodies) >= count else None
    return process.wait_until(found, 30, "%d messages for the key %s" % (count, key))
