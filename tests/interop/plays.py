"""Plays that every client of the remoting protocol can give, whatever its language.

Each is a function of a `Play`: the stage, and the way to start a puppet (harness/puppet.py). go_client.py and
node_client.py name them as tests and add what only their client can do. Every play makes its own topics and groups, so
that none depends on another.
"""

import hashlib
import os
import random
import time

from harness import process, puppet, remoting, tap
from interop.stage import Stage, pull_fields, unique

OPENING = "opening"  # the body of the message that makes a topic
SETTINGS = {"messageDelayLevel": "1s 5s 1s 1s 1s 1s",  # level 3, the first retry, takes 1 s
            "transactionTimeOut": 1000, "transactionCheckInterval": 2000}
# The filter is off by default; a busy machine must not make it refuse sends that waited for 200 ms.
APACHE_ONLY = {"enablePropertyFilter": "true", "waitTimeMillsInSendQueue": 30000}
NEAR_LIMIT = 4 * 1024 * 1024 - 8192  # room for what compression of random bytes adds
OVER_LIMIT = 4 * 1024 * 1024 + 8192
CRASH_MESSAGES, CRASH_AFTER = 4000, 500
PATIENT_MS = 30000  # of requests: a machine may stand still for seconds; our own client can be told


class Play:
    """One stage and one language. The puppet `main` produces for all plays; consumers that die have their own.

    `creates` says whether this client makes a topic by sending to it. Where it cannot, topics are there before."""

    def __init__(self, stage, start, creates=True):
        self.stage, self._start, self._creates = stage, start, creates
        self.main = self.puppet("main")
        self.producer = unique("producer")
        self.main.call("producer", name=self.producer, group=unique("producers"), timeout_ms=PATIENT_MS,
                       client_timeout_ms=PATIENT_MS)

    def puppet(self, name):
        return tap.watch(self._start(name, self.stage.names))

    def send(self, *messages, mode="sync", producer=None):
        return self.main.call("send", name=producer or self.producer, mode=mode, messages=list(messages))

    def topic(self, name):
        """A new topic with a route and one message, the opening, which made it."""
        topic = unique(name)
        if self._creates:
            self.send(puppet.message(topic, OPENING))
        else:
            self.stage.send(topic, OPENING.encode())
        process.wait_until(lambda: self.stage.route(topic), 10, "route of %s" % topic)
        return topic

    def consumer(self, name, topic, group=None, on=None, from_="first", **more):
        """A push consumer in a puppet; returns its name."""
        name = unique(name)
        (on or self.main).call("consumer", name=name, topic=topic, group=group or unique("group_" + topic), from_=from_,
                               **more)
        return name

    def deliveries(self, consumer, on=None):
        """What a consumer got, without the opening message of its topic."""
        return [each for each in (on or self.main).messages(consumer) if each["body"] != OPENING]

    def bodies(self, consumer, on=None):
        return [each["body"] for each in self.deliveries(consumer, on)]

    def wait_bodies(self, consumer, wanted, on=None, timeout=30):
        """Wait until a consumer got each of these bodies at least once."""
        process.wait_until(lambda: set(wanted) <= set(self.bodies(consumer, on)), timeout,
                           "%d different bodies at %s" % (len(set(wanted)), consumer))

    def stop(self, name, on=None):
        (on or self.main).call("stop", name=name)


class Once:
    """Something that is made at its first call, and not tried again when that failed."""

    def __init__(self, make):
        self.make, self.made, self.tried = make, None, False

    def __call__(self):
        if not self.tried:
            self.tried = True
            self.made = self.make()
        return self.made or tap.skip("the play could not begin")


def stage():
    return Stage(SETTINGS, APACHE_ONLY)


def numbered(topic, first, count, **more):
    return [puppet.message(topic, str(number), **more) for number in range(first, first + count)]


def texts(first, count):
    return [str(number) for number in range(first, first + count)]


# Sending ------------------------------------------------------------------------------------------------------------

def properties_survive(play, topic):
    """The topic may be one that does not exist yet."""
    body = "héllo 你好 \U0001F600 \x01\x02".encode()
    mine = {"colour": "green", "größe": "10 µm", "empty looking": " "}
    sent, = play.send(puppet.message(topic, body, tag="TagA", keys=["order-1", "customer-2"], properties=mine))
    process.wait_until(lambda: play.stage.route(topic), 10, "route of %s" % topic)
    consumer = play.consumer("properties", topic)
    play.wait_bodies(consumer, [body.decode()])
    got, = play.deliveries(consumer)
    for field, wanted in (("topic", topic), ("tag", "TagA"), ("keys", "order-1 customer-2"), ("body", body.decode()),
                          ("offset_id", sent["offset_id"]), ("queue", sent["queue"]), ("offset", sent["offset"]),
                          ("reconsume", 0)):
        tap.equal(got[field], wanted, field)
    tap.equal({name: got["properties"].get(name) for name in mine}, mine, "properties")
    if sent.get("id"):
        tap.equal(got["id"], sent["id"], "message id")
    play.stop(consumer)


def all_ways_arrive(play, modes):
    topic = play.topic("Ways")
    results = {mode: play.send(*numbered(topic, 10 * index, 10), mode=mode) for index, mode in enumerate(modes)}
    consumer = play.consumer("ways", topic)
    play.wait_bodies(consumer, texts(0, 10 * len(modes)))
    got = play.deliveries(consumer)
    tap.equal(sorted(int(each["body"]) for each in got), list(range(10 * len(modes))), "numbers received")
    by_place = {(each["queue"], each["offset"]): each["offset_id"] for each in got}
    for mode in ("sync", "async"):
        for sent in results[mode]:
            tap.equal(by_place.get((sent["queue"], sent["offset"])), sent["offset_id"], "message at %s" % sent)
    play.stop(consumer)
    return got, results


def large_bodies_arrive(play):
    topic = play.topic("Large")
    dice = random.Random(5)
    text = b"the same words again and again " * 4000
    noise = dice.randbytes(NEAR_LIMIT)
    play.send(puppet.message(topic, text), puppet.message(topic, noise))
    stored = {record.body[:10]: record for record in play.stage.records(topic)}
    record = stored[text[:10]]
    tap.check(record.sys_flag & remoting.COMPRESSED, "the client did not compress a body of %d bytes" % len(text))
    tap.check(len(record.stored_body) < len(text) // 10, "stored as %d bytes" % len(record.stored_body))
    consumer = play.consumer("large", topic)
    got = play.main.wait_messages(consumer, 3)
    found = {each["digest"]: each["size"] for each in got}
    for body in (text, noise):
        tap.equal(found.get(hashlib.sha256(body).hexdigest()), len(body), "size of the body with the right digest")
    play.stop(consumer)


def too_large_is_refused(play, words):
    topic = play.topic("TooLarge")
    try:
        play.send(puppet.message(topic, random.Random(6).randbytes(OVER_LIMIT)))
    except puppet.Refused as refusal:
        tap.check(words in str(refusal), "refused with other words: %s" % refusal)
    else:
        tap.check(False, "a body of %d bytes was accepted" % OVER_LIMIT)
    play.send(puppet.message(topic, "small"))
    tap.equal(len(play.stage.records(topic)), 2, "records in the topic")


# Consuming ----------------------------------------------------------------------------------------------------------

def instances_share_and_one_dies(play):
    """The first takes some messages and never finishes them; it is killed, and the other gets all."""
    topic = play.topic("Cluster")
    group = unique("cluster")
    stuck, other = play.puppet("stuck"), play.main
    first = play.consumer("stuck", topic, group, on=stuck, hang_at="held")
    second = play.consumer("other", topic, group)
    _share(play, topic, (stuck, first), (other, second))
    held = ["held %d" % each for each in range(40)]
    play.send(*[puppet.message(topic, body) for body in held])
    process.wait_until(lambda: len(set(held) & set(play.bodies(second))) >= 10 and
                       set(held) & set(play.bodies(first, stuck)), 30, "a part of the messages at both instances")
    queues = [{each["queue"] for each in play.deliveries(name, on) if each["body"] in held}
              for name, on in ((first, stuck), (second, other))]
    tap.check(not queues[0] & queues[1], "queues of the instances: %s" % queues)
    unfinished = set(play.bodies(first, stuck)) & set(held)
    stuck.kill9()
    tap.unwatch(stuck)
    play.wait_bodies(second, held, timeout=60)
    tap.note("%d unfinished messages came to the other" % len(unfinished))
    play.stop(second)


def _share(play, topic, first, second):
    """Send to all queues until each of the two consumers, given as (puppet, name), gets what the other does not."""
    number = 0

    def split():
        nonlocal number
        play.send(*numbered(topic, number, 4))
        number += 4
        sent = set(texts(number - 4, 4))
        parts = []

        def arrived():
            parts[:] = [sent & set(play.bodies(name, on)) for on, name in (first, second)]
            return parts[0] | parts[1] == sent
        process.wait_until(arrived, 30, "messages at one of two instances")
        return parts[0] and parts[1] and not parts[0] & parts[1]

    process.wait_until(split, 60, "two instances of a group share its queues", pause=0.5)


def broadcast_reaches_all(play):
    topic = play.topic("Broadcast")
    group = unique("broadcast")
    names = [play.consumer("radio%d" % number, topic, group, broadcast=True) for number in (1, 2)]
    play.send(*numbered(topic, 0, 12))
    for name in names:
        play.wait_bodies(name, texts(0, 12))
        tap.equal(sorted(play.bodies(name), key=int), texts(0, 12), "bodies at %s" % name)
        play.stop(name)


def tags_filter(play):
    topic = play.topic("Tags")
    for tag in ("red", "green", "blue", "red"):
        play.send(puppet.message(topic, tag, tag=tag))
    consumer = play.consumer("tags", topic, expression="red || blue")
    process.wait_until(lambda: len(play.bodies(consumer)) >= 3, 30, "two red ones and a blue one")
    play.send(puppet.message(topic, "green", tag="green"), puppet.message(topic, "last", tag="blue"))
    play.wait_bodies(consumer, ["last"])
    tap.equal(sorted(play.bodies(consumer)), ["blue", "last", "red", "red"], "bodies received")
    play.stop(consumer)


def sql_filters(play):
    topic = play.topic("Sql")
    expression = "(price BETWEEN 10 AND 20 AND colour IN ('red', 'blue')) OR vip IS NOT NULL"
    wanted = {"a": {"price": "10", "colour": "red"}, "b": {"price": "15", "colour": "green"},
              "c": {"price": "21", "colour": "blue"}, "d": {"vip": "yes"}, "e": {"colour": "red"},
              "f": {"price": "20", "colour": "blue"}, "g": {}}
    for body, properties in wanted.items():
        play.send(puppet.message(topic, body, properties=properties))
    consumer = play.consumer("sql", topic, kind="SQL92", expression=expression)
    play.wait_bodies(consumer, ["a", "d", "f"])
    play.send(puppet.message(topic, "h", properties={"price": "1", "colour": "red"}),
              puppet.message(topic, "i", properties={"vip": "also"}))
    play.wait_bodies(consumer, ["i"])
    tap.equal(sorted(play.bodies(consumer)), ["a", "d", "f", "i"], "bodies received")
    play.stop(consumer)


def begins_where_told(play):
    """The first half is old when the second is sent; the clients know only whole seconds.

    Broadcasting consumers keep their offsets themselves, so it is the client's own wish that counts. A group's offset
    comes from the broker, which lets a new one begin at 0 while nothing of the topic is gone, whatever it asked for.
    """
    topic = play.topic("Begin")
    play.send(*numbered(topic, 0, 8))
    border = int(time.time()) + 1
    process.wait_until(lambda: time.time() > border + 0.2, 3, "the clock passes a second")
    play.send(*numbered(topic, 8, 8))
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(border))
    first = play.consumer("begin_first", topic, unique("begin_first"), from_="first", broadcast=True)
    since = play.consumer("begin_time", topic, unique("begin_time"), from_="timestamp", timestamp=stamp, broadcast=True)
    last = play.consumer("begin_last", topic, unique("begin_last"), from_="last", broadcast=True)
    young = play.consumer("begin_young", topic, unique("begin_young"), from_="last")
    number = _send_until_heard(play, topic, last)
    play.wait_bodies(first, texts(0, 16))
    play.wait_bodies(young, texts(0, 16))
    play.wait_bodies(since, texts(8, 8) + texts(number - 4, 4))
    tap.check(not set(play.bodies(since)) & set(texts(0, 8)), "the one that begins at a time got old messages")
    tap.check(not set(play.bodies(last)) & set(texts(0, 16)), "the one that begins at the end got old messages")
    for name in (first, since, last, young):
        play.stop(name)


def _send_until_heard(play, topic, consumer):
    """Send numbers from 100 on until a consumer that begins at the end is at work; returns the next one."""
    number = 100

    def heard():
        nonlocal number
        play.send(*numbered(topic, number, 4))
        number += 4
        return play.bodies(consumer)

    process.wait_until(heard, 30, "%s gets messages" % consumer, pause=0.5)
    return number


def offsets_survive(play, restart):
    """A group goes on where it stopped when its client, and then (restart) when the broker comes again.

    A client that got no answer in time may have stored a message twice; so it is the places that come only once."""
    topic = play.topic("OffsetsRestart" if restart else "Offsets")
    group = unique("group_" + topic)
    seen = set()
    for turn in range(3 if restart else 2):
        if turn == 2:
            play.stage.restart()
            process.wait_until(lambda: play.stage.route(topic), 30, "route of %s" % topic)
        wanted = texts(10 * turn, 10)
        _insist(play, numbered(topic, 10 * turn, 10))
        consumer = play.consumer("%s_%d" % (topic, turn), topic, group)
        play.wait_bodies(consumer, wanted)
        play.main.call("settle", name=consumer)
        # Before it stops: the Go client cannot say whether it has booked the first messages of a queue itself (its
        # GetOffsetDiffMap passes over such queues), and a stop that comes between handler and booking forgets them.
        process.wait_until(lambda: play.stage.has_booked(group, topic), 60, "the broker knows how far the group is")
        play.stop(consumer)
        got = play.deliveries(consumer)
        tap.equal({each["body"] for each in got}, set(wanted), "bodies in turn %d" % turn)
        places = [each["offset_id"] for each in got]
        tap.equal(sorted(places), sorted(set(places) - seen), "places in turn %d, each for the first time" % turn)
        seen.update(places)


def _insist(play, messages):
    """Send each until it is acknowledged; nothing is in flight when the broker stops, so nothing is doubled."""
    for each in messages:
        def accepted(one=each):
            try:
                return play.send(one)
            except puppet.Refused as refusal:
                tap.note(refusal)
                return None
        process.wait_until(accepted, 60, "a send is acknowledged", pause=0.2)


# Retries, dead letters, delays --------------------------------------------------------------------------------------

def retries_come_back(play):
    topic = play.topic("Retry")
    group = unique("retry")
    play.stage.prepare_group(group, topic)
    consumer = play.consumer("retry", topic, group, fail_below=2)
    sent, = play.send(puppet.message(topic, "again", tag="TagR", keys=["retry-key"], properties={"colour": "blue"}))
    process.wait_until(lambda: len(_of(play, consumer, "again")) >= 3, 60, "two retries")
    got = _of(play, consumer, "again")
    tap.equal([each["reconsume"] for each in got], [0, 1, 2], "reconsume counts")
    tap.equal({each["id"] for each in got}, {got[0]["id"]}, "message ids")
    tap.equal(got[0]["offset_id"], sent["offset_id"], "place of the first delivery")
    for each in got:
        tap.equal((each["topic"], each["tag"], each["keys"], each["properties"].get("colour")),
                  (topic, "TagR", "retry-key", "blue"), "topic, tag, keys, property")
    for earlier, later in zip(got, got[1:]):
        tap.check(later["at"] - earlier["at"] >= 1000, "retry after %d ms" % (later["at"] - earlier["at"]))
    play.stop(consumer)


def _of(play, consumer, body):
    return [each for each in play.deliveries(consumer) if each["body"] == body]


def dead_letters(play):
    """After its last retry a message goes to a topic that nobody may read until an operator says so."""
    topic = play.topic("Dead")
    group = unique("dead")
    play.stage.prepare_group(group, topic)
    tap.equal(play.stage.route("%DLQ%" + group), None, "route of the dead letters before there are any")
    sent, = play.send(puppet.message(topic, "hopeless", tag="TagD", properties={"colour": "black"}))
    consumer = play.consumer("dead", topic, group, from_="first", fail_below=100, max_reconsume=1)
    dead = read_dead_letters(play, group, ["hopeless"])
    tap.equal([each["reconsume"] for each in _of(play, consumer, "hopeless")], [0, 1], "reconsume counts")
    letter = dead["hopeless"]
    for name, wanted in (("TAGS", "TagD"), ("colour", "black"), ("RETRY_TOPIC", topic),
                         ("ORIGIN_MESSAGE_ID", sent["offset_id"])):
        tap.equal(letter.properties.get(name), wanted, "property %s" % name)
    play.stop(consumer)


def read_dead_letters(play, group, bodies):
    """Wait for the topic of dead letters, open it where it is closed, and read: body -> record.

    Ours is closed for readers at first (dlqPerm); with Apache RocketMQ 5.5.0 anybody may read it.
    """
    topic = "%DLQ%" + group
    route = process.wait_until(lambda: play.stage.route(topic), 60, "route of %s" % topic)
    queues = route["queueDatas"][0]
    tap.equal(queues["readQueueNums"], 1, "queues of dead letters")
    if play.stage.ours:
        tap.equal(queues["perm"], 2, "permission of dead letters")
    if queues["perm"] == 2:
        _open(play, topic)

    def letters():
        found = {record.body.decode(): record for record in play.stage.records(topic)}
        return found if set(bodies) <= set(found) else None
    return process.wait_until(letters, 30, "dead letters %s" % bodies)


def _open(play, topic):
    """What an operator does to read a closed topic."""
    with remoting.Client(play.stage.broker_address()) as client:
        answer = client.request(remoting.PULL_MESSAGE, pull_fields(topic, 0, 0))
        tap.equal(answer.code, remoting.NO_PERMISSION, "code of a pull from a closed topic")
        answer = client.request(remoting.UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
        tap.equal(answer.code, remoting.SUCCESS, "code of the operator's change")


def delayed_is_never_early(play):
    topic = play.topic("Delay")
    consumer = play.consumer("delay", topic)
    play.main.wait_messages(consumer, 1)
    begin = int(time.time() * 1000)  # the clients tell whole milliseconds, too
    play.send(puppet.message(topic, "later", delay=2), puppet.message(topic, "now"))
    play.wait_bodies(consumer, ["now", "later"])
    (now,), (later,) = _of(play, consumer, "now"), _of(play, consumer, "later")
    tap.note("level 2 (5 s): delivered after %.0f ms" % (later["at"] - begin))
    tap.check(later["at"] - begin >= 5000, "delivered after %.0f ms" % (later["at"] - begin))
    tap.check(now["at"] < later["at"], "the message without a delay came later")
    tap.equal(later["topic"], topic, "topic of the delayed message")
    play.stop(consumer)


# Crashes ------------------------------------------------------------------------------------------------------------

def crash_loses_nothing(play):
    """SIGKILL for the broker in the middle of a flood; nobody tells the clients. Duplicates are allowed."""
    topic = play.topic("Crash")
    consumer = play.consumer("crash", topic, unique("crash"))
    play.main.wait_messages(consumer, 1)
    number = play.main.start("flood", name=play.producer, topic=topic, first=0, count=CRASH_MESSAGES, seconds=120)
    play.main.wait_acked(play.producer, CRASH_AFTER, 60)
    play.stage.broker.kill9()
    tap.check(number not in play.main.answers, "the flood had ended before the crash")
    begin = time.monotonic()
    play.stage.start()
    tap.note("running again after %.2f s" % (time.monotonic() - begin))
    play.main.finish(number, 150)
    acked = {sent["offset_id"] for sent in play.main.acked(play.producer).values()}
    tap.equal(len(acked), CRASH_MESSAGES, "acknowledged messages")
    tap.note("all acknowledged after %.2f s" % (time.monotonic() - begin))

    def missing():
        return acked - {each["offset_id"] for each in play.deliveries(consumer)}
    try:
        process.wait_until(lambda: not missing(), 90, "all acknowledged messages received", pause=0.5)
    except process.Failed as late:
        raise process.Failed("%s; missing: %d, one is %s" % (late, len(missing()), min(missing()))) from late
    got = play.deliveries(consumer)
    tap.note("%d deliveries after %.2f s" % (len(got), time.monotonic() - begin))
    at = {}
    for each in got:
        tap.equal(at.setdefault(each["offset_id"], each["body"]), each["body"], "body at %s" % each["offset_id"])
    play.stop(consumer)


def ends_well(play):
    """A clean end for the client and the broker after all this."""
    play.main.end()
    tap.unwatch(play.main)
    if play.stage.broker and os.environ.get("ENDPOINT") != "apache":
        play.stage.broker.stop()
