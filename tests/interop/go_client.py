#!/usr/bin/env python3
"""The official Go client, unchanged, on our daemon.

The client is the module in go/go.mod; go/ is a puppet around it that this script leads (harness/puppet.py). What every
language can do is in plays.py, what takes effect when consumers die or fail in effects.py, what only this client can is
here. stage.py says where it is played: ENDPOINT=apache takes Apache's servers, to prove the tests themselves, and
ENDPOINT=host:port a name server that is already there.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, remoting, tap  # noqa: E402
from interop import effects, plays, stage  # noqa: E402
from interop.plays import numbered, texts  # noqa: E402
from interop.stage import unique  # noqa: E402

NO_NEW, ILLEGAL = 1, 3  # the Go client's numbers for what a pull found


play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_go))


def own():
    """The play, where the broker is ours to stop and configure."""
    play().stage.need_own()
    return play()


@tap.test("Go: a topic is created by sending, and id, keys, tag, properties and body arrive unchanged")
def _():
    plays.properties_survive(play(), unique("Properties"))


@tap.test("Go: what is sent synchronously, asynchronously, one-way and as a batch arrives once, where the answer says")
def _():
    got, results = plays.all_ways_arrive(play(), ["sync", "async", "oneway", "batch"])
    batch, = results["batch"]
    places = sorted((int(each["body"]), each["queue"], each["offset"]) for each in got if int(each["body"]) >= 30)
    tap.equal(places, [(30 + i, batch["queue"], batch["offset"] + i) for i in range(10)], "places of the batch")


@tap.test("Go: a compressed body and one near 4 MiB arrive as they were")
def _():
    plays.large_bodies_arrive(play())


@tap.test("Go: a body over the limit is refused as an illegal message, and the connection goes on")
def _():
    plays.too_large_is_refused(play(), "CODE: 13")


@tap.test("Go: two instances of a group share the queues; when one is killed, the other gets what it had not finished")
def _():
    plays.instances_share_and_one_dies(play())


@tap.test("Go: broadcasting reaches every instance")
def _():
    plays.broadcast_reaches_all(play())


@tap.test("Go: a subscription to tags gets these and no others")
def _():
    plays.tags_filter(play())


@tap.test("Go: a subscription in SQL92 gets what its expression is true for")
def _():
    plays.sql_filters(play())


@tap.test("Go: an orderly consumer gets each key's messages in order, failed ones again at once; the next one goes on there")
def _():
    p = play()
    topic, group = p.topic("Order"), unique("order")
    by_key = unique("by_key")
    p.main.call("producer", name=by_key, group=by_key, selector="hash")
    for turn in range(2):
        name = p.consumer("order%d" % turn, topic, group, orderly=True, fail_below=1)
        wanted = ["%s%d" % (key, number) for number in range(20 * turn, 20 * turn + 20) for key in "abcd"]
        p.send(*[puppet.message(topic, body, shard=body[0]) for body in wanted], producer=by_key)
        # Everything fails once and comes again before the next: 0 0 1 1 2 2 …
        process.wait_until(lambda each=name, count=2 * len(wanted): len(p.deliveries(each)) >= count, 60,
                           "%d deliveries in order" % (2 * len(wanted)))
        for key in "abcd":
            tap.equal([each["body"] for each in p.deliveries(name) if each["body"][0] == key],
                      [body for body in wanted if body[0] == key for _ in range(2)], "order of key %s" % key)
        p.main.call("settle", name=name)
        p.stop(name)


def transactor(p, group, on=None):
    name = unique("transactor")
    (on or p.main).call("transactor", name=name, group=group)
    return name


@tap.test("TX-1 Go: committed comes once, rolled back never, unknown when the question for it is answered")
def _():
    p = own()
    topic, name = p.topic("Transactions"), transactor(p, unique("transactions"))
    consumer = p.consumer("transactions", topic)
    wishes = [("commit", ""), ("rollback", ""), ("", "commit"), ("", "rollback"), ("", "")]
    p.main.call("transact", name=name, messages=[
        puppet.message(topic, "%s-%s-%d" % (*wish, i), properties={"first": wish[0] or "none", "later": wish[1] or "none"})
        for i in range(3) for wish in wishes])
    wanted = ["%s-%s-%d" % (*wish, i) for i in range(3) for wish in wishes if "commit" in wish]
    p.wait_bodies(consumer, wanted)
    process.wait_until(lambda: "--0" in {each["body"] for each in p.main.call("asked", name=name) if each["times"] == "2"},
                       30, "a second question for what nobody decides")
    asked = p.main.call("asked", name=name)
    tap.equal({each["topic"] for each in asked}, {topic}, "topic of the questions")
    tap.equal({each["body"] for each in asked if each["body"].startswith("-rollback")},
              {"-rollback-%d" % i for i in range(3)}, "questions for what is rolled back then")  # twice, if an answer is slow
    tap.equal(sorted(p.bodies(consumer)), sorted(wanted), "bodies received")
    p.stop(name)
    p.stop(consumer)


@tap.test("RM-3 Go: a producer is killed after its half messages; another one of its group is asked, and each arrives once")
def _():
    p = own()
    topic, group = p.topic("Orphans"), unique("orphans")
    consumer = p.consumer("orphans", topic)
    doomed = p.puppet("doomed")
    first = transactor(p, group, doomed)
    bodies = texts(0, 6)
    doomed.call("transact", name=first, messages=[
        puppet.message(topic, body, properties={"first": "none", "later": "commit"}) for body in bodies])
    heir = transactor(p, group)
    p.main.call("transact", name=heir, messages=[puppet.message(topic, "hello", properties={"first": "commit"})])
    doomed.kill9()
    tap.unwatch(doomed)
    p.wait_bodies(consumer, bodies + ["hello"], timeout=60)     # a heartbeat of the Go client may be 30 s away
    tap.equal(sorted(p.bodies(consumer)), sorted(bodies + ["hello"]), "bodies received")
    p.stop(heir)
    p.stop(consumer)


@tap.test("Go: a message that an orderly consumer gives up goes to the dead letters, and the next one follows")
def _():
    p = play()
    topic, group = p.topic("OrderDead"), unique("orderdead")
    by_key = unique("orderdead_key")
    p.main.call("producer", name=by_key, group=by_key, selector="hash")
    p.send(*[puppet.message(topic, body, shard="x") for body in ("one", "two")], producer=by_key)
    consumer = p.consumer("orderdead", topic, group, orderly=True, fail_below=100, max_reconsume=0)
    dead = plays.read_dead_letters(p, group, ["one", "two"])
    tap.equal(dead["one"].properties.get("RETRY_TOPIC"), topic, "origin of the dead letter")
    bodies = [body for body in p.bodies(consumer) if body in ("one", "two")]
    tap.equal(bodies, sorted(bodies), "order of the deliveries")
    p.stop(consumer)


@tap.test("Go: a pull consumer reads a queue from any offset, is corrected beyond its end, and its commit is kept")
def _():
    p = play()
    topic, group = p.topic("Pull"), unique("pull")
    by_key = unique("pull_key")
    p.main.call("producer", name=by_key, group=by_key, selector="hash")
    sent = p.send(*numbered(topic, 0, 10, shard="x"), producer=by_key)
    queue = {"topic": topic, "brokerName": sent[0]["broker"], "queueId": sent[0]["queue"]}
    begin, end = sent[0]["offset"], sent[9]["offset"] + 1
    name = unique("puller")
    p.main.call("pull_consumer", name=name, group=group, topic=topic, from_="first")
    found = p.main.call("pull", name=name, queue=queue, offset=begin, count=4)
    tap.equal([each["body"] for each in found["messages"]], texts(0, 4), "first pull")
    tap.equal((found["status"], found["next"], found["min"], found["max"]), (0, begin + 4, 0, end), "where it stands")
    found = p.main.call("pull", name=name, queue=queue, offset=begin + 7, count=32)
    tap.equal([each["body"] for each in found["messages"]], texts(7, 3), "pull from the middle")
    found = p.main.call("pull", name=name, queue=queue, offset=end + 1000, count=4)
    tap.equal((found["status"], found["next"]), (ILLEGAL, end), "pull beyond the end")

    def commits():  # only queues that the first rebalance gave it
        p.main.call("commit", name=name, queue=queue, offset=begin + 5)
        return committed(p, queue, group) == begin + 5
    process.wait_until(commits, 30, "a commit of the pull consumer at the broker", pause=0.2)
    p.stop(name)
    again = unique("puller2")
    p.main.call("pull_consumer", name=again, group=group, topic=topic, from_="first")
    tap.equal(p.main.call("committed", name=again, queue=queue), begin + 5, "offset that another instance finds")
    p.stop(again)


def committed(p, queue, group):
    with remoting.Client(p.stage.broker_address()) as client:
        answer = client.request(remoting.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": group, "topic": queue["topic"], "queueId": queue["queueId"]})
        return int(answer.ext["offset"]) if answer.code == remoting.SUCCESS else None


@tap.test("Go: a pull consumer that polls gets every message, and what it acknowledged does not come again")
def _():
    p = play()
    topic, group = p.topic("Poll"), unique("poll")
    p.send(*numbered(topic, 0, 12))
    tap.equal(sorted(poll(p, "poll1", topic, group, 13)), sorted([plays.OPENING] + texts(0, 12)), "bodies polled")
    p.send(*numbered(topic, 12, 4))
    tap.equal(sorted(poll(p, "poll2", topic, group, 4), key=int), texts(12, 4), "bodies polled after a restart")


def poll(p, name, topic, group, count):
    """Poll and acknowledge with a new instance until it got so many; their bodies."""
    name = unique(name)
    p.main.call("pull_consumer", name=name, group=group, topic=topic, from_="first")
    bodies = []

    def enough():
        bodies.extend(each["body"] for each in p.main.call("poll", name=name, seconds=1, ack=True))
        return len(bodies) >= count
    process.wait_until(enough, 30, "%d polled messages" % count)
    p.stop(name)
    return bodies


@tap.test("Go: a request gets the reply of a consumer elsewhere")
def _():
    p = play()
    topic = p.topic("Request")
    other = p.puppet("replier")
    other.call("producer", name="answers", group=unique("answers"))
    p.consumer("replier", topic, on=other, reply="answers")

    def answered():  # the requester is known to the broker after its heartbeat, one second after its start
        try:
            return p.main.call("request", name=p.producer, seconds=3, messages=[puppet.message(topic, "ping")])
        except puppet.Refused as late:
            tap.note(late)
            return None
    reply = process.wait_until(answered, 45, "a reply")
    tap.equal(reply["body"], "re: ping", "body of the reply")
    other.end()
    tap.unwatch(other)


@tap.test("Go: a producer with its trace on writes down what it sent, into a topic that an operator has just allowed")
def _():
    p, name = own(), unique("tracer")
    with remoting.Client(p.stage.broker_address()) as client:
        changed = client.request(25, body=b"traceTopicEnable=true\n")  # UPDATE_BROKER_CONFIG
    tap.equal(changed.code, remoting.SUCCESS, "allowing the topic of traces (%s)" % changed.remark)
    if os.environ.get("ENDPOINT") == "apache":  # it looks at that only when it starts
        p.stage.send("RMQ_SYS_TRACE_TOPIC", b"")
    process.wait_until(lambda: p.stage.route("RMQ_SYS_TRACE_TOPIC"), 30, "the topic of traces in a route")
    p.main.call("producer", name=name, group=unique("tracers"), trace=True)
    sent, = p.send(puppet.message(p.topic("Traced"), "traced"), producer=name)

    def traced():
        return [each for each in p.stage.records("RMQ_SYS_TRACE_TOPIC") if sent["id"].encode() in each.body]
    trace, = process.wait_until(traced, 30, "the trace of %s" % sent["id"], pause=0.5)
    tap.check(trace.body.startswith(b"Pub\1"), "a trace of %r" % trace.body)
    p.stop(name)


@tap.test("Go: the admin client makes a topic, lists it and deletes it")
def _():
    p = play()
    topic, broker = unique("Admin"), p.stage.broker_address()
    p.main.call("create_topic", topic=topic, broker=broker, perm=6, queues=3)
    route = process.wait_until(lambda: p.stage.route(topic), 10, "route of the new topic")
    tap.equal((route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"]), (3, 6), "queues, permission")
    tap.check(topic in p.main.call("topics"), "the topic is not in the list")
    p.main.call("delete_topic", topic=topic, broker=broker)
    process.wait_until(lambda: p.stage.route(topic) is None, 10, "no route after the deletion")


@tap.test("Go: a delayed message is not delivered before its time")
def _():
    plays.delayed_is_never_early(play())


@tap.test("Go: a failed message comes back on the ladder with the same id and a higher count")
def _():
    plays.retries_come_back(own())


@tap.test("Go: after the last retry a message is a dead letter, which nobody can read before an operator allows it")
def _():
    plays.dead_letters(own())


@tap.test("DS-2 Go: 10,000 messages and 20 SIGKILLs of their consumer: no message without effect, duplicates are counted")
def _():
    effects.killed_consumers_lose_nothing(play())


@tap.test("DS-8 Go: 8 queues, 50,000 messages, two consumers, then three, then one: 50,000 different messages have effects")
def _():
    effects.consumers_come_and_go(play())


@tap.test("DS-9 Go: a message that had its effect and was reported as failed comes again from the ladder, with the same id")
def _():
    effects.effect_then_failure(play())


@tap.test("DS-12 Go: two messages of two producers with one id are both stored and delivered; their keys tell them apart")
def _():
    effects.one_id_two_messages(play())


@tap.test("Go: a consumer begins at the first message, at the end, or at a time; a new group of a young topic at the first")
def _():
    plays.begins_where_told(play())


@tap.test("Go: a group goes on where it stopped after a restart of its client")
def _():
    plays.offsets_survive(play(), restart=False)


@tap.test("Go: no acknowledged message is missing after a SIGKILL of the broker; clients recover by themselves")
def _():
    plays.crash_loses_nothing(own())


@tap.test("Go: a group goes on where it stopped after a restart of the broker")
def _():
    plays.offsets_survive(own(), restart=True)


@tap.test("Go: client and broker end well after all this")
def _():
    plays.ends_well(play())


if __name__ == "__main__":
    stage.run(puppet.missing_go())
