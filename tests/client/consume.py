#!/usr/bin/env python3
"""Push consumers of liboncemq on a real broker.

What every client can do is played as for the official clients (interop/plays.py); what only this one does is here.
interop/stage.py says where: on an oncemqd, or with ENDPOINT=apache on Apache's servers. A puppet that leaves with status
0 has left no memory behind and raced with nobody, if it was built to look for that.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process, puppet, remoting, tap  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.plays import numbered, texts  # noqa: E402
from interop.stage import unique  # noqa: E402

INVALID, MISUSE, TIMEOUT, NOT_FOUND, CLOSED = 1, 2, 4, 13, 15
RESET_OFFSET = 222

play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_c))


def own():
    """The play, where the broker is ours to stop and configure."""
    play().stage.need_own()
    return play()


def refused(code, call, *args, **more):
    try:
        call(*args, **more)
    except puppet.Refused as error:
        tap.equal(error.code, code, "code of %r" % str(error))
        return str(error)
    raise AssertionError("it was not refused")


def committed(p, group, topic, queue):
    """The offset that the broker has; -1: none."""
    with remoting.Client(p.stage.broker_address()) as client:
        answer = client.request(remoting.QUERY_CONSUMER_OFFSET,
                                {"consumerGroup": group, "topic": topic, "queueId": queue})
        return int(answer.ext["offset"]) if answer.code == remoting.SUCCESS else -1


def wait_counts(p, name, on=None, **wanted):
    def there():
        stats = (on or p.main).call("stats", name=name)
        return all(stats[key] >= value for key, value in wanted.items()) and stats
    return process.wait_until(there, 30, "numbers %s of %s" % (wanted, name))


# As every client ----------------------------------------------------------------------------------------------------

@tap.test("what is sent arrives once, with its id, keys, tag, properties, body, queue and offset")
def _():
    plays.properties_survive(play(), unique("Properties"))
    plays.all_ways_arrive(play(), ["sync", "async", "oneway"])


@tap.test("a compressed body and one near 4 MiB arrive as they were")
def _():
    plays.large_bodies_arrive(play())


@tap.test("CO-3: two members share the queues; when one is killed, the other gets what it had not finished")
def _():
    plays.instances_share_and_one_dies(play())


@tap.test("a subscription to tags gets these and no others")
def _():
    plays.tags_filter(play())


@tap.test("a subscription in SQL92 gets what its expression is true for")
def _():
    plays.sql_filters(play())


@tap.test("RT-2: failed messages come again after a pause, with the same id, and count up")
def _():
    plays.retries_come_back(play())


@tap.test("RT-7: a message that fails too often becomes a dead letter")
def _():
    plays.dead_letters(play())


@tap.test("a message that is due later is not early")
def _():
    plays.delayed_is_never_early(play())


@tap.test("a group goes on where it stopped: nothing again, nothing left out")
def _():
    plays.offsets_survive(play(), restart=False)


@tap.test("RM-10: a group goes on where it stopped, also when the broker was restarted")
def _():
    plays.offsets_survive(own(), restart=True)


@tap.test("an SQL92 expression that the broker does not understand is refused at once")
def _():
    p = play()
    topic = p.topic("BadSql")
    words = refused(INVALID, p.consumer, "badsql", topic, kind="SQL92", expression="price > > 5")
    tap.check(topic in words, "it names the topic: %s" % words)
    consumer = p.consumer("goodsql", topic)
    refused(INVALID, p.main.call, "subscribe", name=consumer, topic=topic, kind="SQL92", expression="a = ")
    p.stop(consumer)


# Broadcasting -------------------------------------------------------------------------------------------------------

@tap.test("RM-7, LB-10: broadcasting reaches every member")
def _():
    plays.broadcast_reaches_all(play())


@tap.test("a new group begins at the first message, at the last, or at a time")
def _():
    plays.begins_where_told(play())


@tap.test("a broadcast member that keeps its name goes on where it stopped, from a file as Java writes it")
def _():
    p = play()
    topic, group = p.topic("Keep"), unique("keep")
    options = {"broadcast": True, "instance": "kept", "ip": "10.1.2.3"}
    p.send(*numbered(topic, 0, 8))
    one = p.puppet("keeper1")
    first = p.consumer("keep1", topic, group, on=one, **options)
    p.wait_bodies(first, texts(0, 8), one)
    one.end()
    tap.unwatch(one)
    file = pathlib.Path(one.home, ".rocketmq_offsets", "10.1.2.3@kept", group, "offsets.json")
    table = remoting.loads(file.read_text())["offsetTable"]
    tap.equal(sum(table.values()), 9, "offsets in %s" % table)
    p.send(*numbered(topic, 8, 8))
    for turn, spoil in enumerate(("nothing", "file", "both")):
        if spoil != "nothing":
            for path in [file, file.with_name("offsets.json.bak")][:2 if spoil == "both" else 1]:
                path.write_text("{" if spoil == "file" else "")
        two = p.puppet("keeper2%d" % turn)
        options["state_dir"] = str(file.parent.parent.parent)
        if spoil == "both":
            words = refused(INVALID, p.consumer, "keep3", topic, group, on=two, **options)
            tap.check("offsets.json" in words, "it names the file: %s" % words)
        else:
            again = p.consumer("keep2%d" % turn, topic, group, on=two, **options)
            p.wait_bodies(again, texts(8, 8), two)
            if spoil == "nothing":
                tap.equal(sorted(p.bodies(again, two), key=int), texts(8, 8), "bodies")
        two.end()
        tap.unwatch(two)


@tap.test("RT-1: broadcasting has no retry: what fails is passed over, and consumption goes on")
def _():
    p = play()
    topic, group = p.topic("NoRetry"), unique("noretry")
    consumer = p.consumer("noretry", topic, group, broadcast=True, fail_below=100)
    p.send(*numbered(topic, 0, 10))
    p.wait_bodies(consumer, texts(0, 10))
    p.stop(consumer)
    tap.equal(sorted(p.bodies(consumer), key=int), texts(0, 10), "bodies")
    process.wait_until(lambda: p.stage.route("%RETRY%" + group), 30, "route of the topic for retries")
    tap.equal(p.stage.records("%RETRY%" + group), [], "messages that were given back")


# What operators ask -------------------------------------------------------------------------------------------------

def ask_client(p, code, **ext):
    """A question to a client, through the broker."""
    with remoting.Client(p.stage.broker_address()) as client:
        answer = client.request(code, ext, timeout=20)
        if answer.code == remoting.REQUEST_CODE_NOT_SUPPORTED:
            return tap.note("this broker does not hand on %d" % code)
        tap.equal(answer.code, remoting.SUCCESS, "code (%s)" % answer.remark)
        return answer.json()


@tap.test("an operator sees how far a consumer is, what it subscribes to, and can have it handle one message")
def _():
    p = play()
    topic, group = p.topic("Asked"), unique("asked")
    p.main.call("client", name="asked_client", instance="asked", ip="10.1.1.1")
    consumer = p.consumer("asked", topic, group, client="asked_client", expression="a || b")
    [sent] = p.send(puppet.message(topic, "one", tag="a"))
    p.wait_bodies(consumer, ["one"])
    info = ask_client(p, 307, consumerGroup=group, clientId="10.1.1.1@asked", jstackEnable=False)
    tap.equal(info["properties"]["PROP_CONSUME_TYPE"], "CONSUME_PASSIVELY", "type")
    tap.check(len(info["mqTable"]) >= 4, "its queues: %s" % list(info["mqTable"]))
    tap.equal({each["subString"] for each in info["subscriptionSet"]}, {"a || b", "*"}, "subscriptions")

    def offsets():
        """Their sum; 2 where the broker does not tell. A handler says that it runs before it is done."""
        status = ask_client(p, 223, topic=topic, group=group, clientAddr="10.1.1.1@asked")
        return sum(status["consumerTable"]["10.1.1.1@asked"].values()) if status else 2
    process.wait_until(lambda: offsets() == 2, 30, "both messages are done")
    result = ask_client(p, 309, consumerGroup=group, clientId="10.1.1.1@asked", msgId=sent["offset_id"], topic=topic,
                        brokerName=sent["broker"])
    if result:
        tap.equal(result["consumeResult"], "CR_SUCCESS", "result")
        process.wait_until(lambda: p.bodies(consumer) == ["one", "one"], 10, "the message was handled once more")
    p.stop(consumer)
    p.main.call("stop", name="asked_client")


@tap.test("what was consumed is traced, with success and failure")
def _():
    p = play()
    topic, group, traces = p.topic("Traced"), unique("traced"), p.topic("ConsumeTraces")
    p.stage.prepare_group(group, topic)
    consumer = p.consumer("traced", topic, group, fail_below=1, trace=True, trace_topic=traces)
    [sent] = p.send(puppet.message(topic, "seen", keys=["trace-key"]))
    process.wait_until(lambda: p.bodies(consumer).count("seen") == 2, 30, "it comes again")
    p.stop(consumer)

    def traced():
        """What was traced of it, in the order of storing: before and after."""
        stored = sorted(p.stage.records(traces), key=lambda each: each.physical_offset)
        records = [line.split("\x01") for each in stored for line in each.body.decode().split("\x02") if line]
        mine = [[each for each in records if sent["id"] in each and each[0] == kind] for kind in ("SubBefore", "SubAfter")]
        return mine if len(mine[1]) >= 2 else None
    before, after = process.wait_until(traced, 30, "records of both deliveries")
    tap.equal([(each[3], each[6], each[7]) for each in before], [(group, "0", "trace-key"), (group, "1", "trace-key")],
              "group, retries and keys")
    tap.equal([each[4] for each in after], ["false", "true"], "success")
    tap.equal([each[4] for each in before], [each[1] for each in after], "request ids")


# Tags ---------------------------------------------------------------------------------------------------------------

@tap.test("tags with the same hash are told apart by the consumer")
def _():
    p = play()
    topic = p.topic("Collide")
    tap.equal(remoting.tag_hash("AaAa"), remoting.tag_hash("BBBB"), "hashes")
    for tag in ("AaAa", "BBBB", "AaBB", "other"):
        p.send(puppet.message(topic, tag, tag=tag))
    consumer = p.consumer("collide", topic, expression=" BBBB ||other ")
    p.wait_bodies(consumer, ["BBBB", "other"])
    p.send(puppet.message(topic, "last", tag="other"))
    p.wait_bodies(consumer, ["last"])
    tap.equal(sorted(p.bodies(consumer)), ["BBBB", "last", "other"], "bodies")
    p.stop(consumer)
    process.wait_until(lambda: sum(max(committed(p, unique("group_" + topic), topic, q), 0) for q in range(4)) == 6, 10,
                       "what was not wanted is done as well")


# Batches, flow, pauses ----------------------------------------------------------------------------------------------

@tap.test("a handler may finish a part of its batch: only the rest comes again")
def _():
    p = play()
    topic, group = p.topic("Partial"), unique("partial")
    p.stage.prepare_group(group, topic)
    [first] = p.send(puppet.message(topic, "pinned"))
    place = {"broker": first["broker"], "id": first["queue"]}
    p.send(*numbered(topic, 0, 12, queue=place))
    consumer = p.consumer("partial", topic, group, batch=4, done=3)
    p.wait_bodies(consumer, texts(0, 12))
    stats = p.main.call("stats", name=consumer)
    process.wait_until(lambda: p.main.call("stats", name=consumer)["handled"] >= 14, 30, "all are done in the end")
    again = [each["body"] for each in p.deliveries(consumer) if each["reconsume"] > 0]
    firsts = [each["body"] for each in p.deliveries(consumer) if each["reconsume"] == 0]
    tap.equal(len(firsts), len(set(firsts)), "first deliveries are single")
    tap.check(len(again) >= 2, "some came again: %s of %s (%s)" % (again, firsts, stats))
    tap.equal(len(again), len(set(again)), "each of them once")
    p.stop(consumer)


@tap.test("flow control: a queue that nobody works on is read no further than its limits")
def _():
    p = play()
    topic = p.topic("Flow")
    [first] = p.send(puppet.message(topic, "hang first"))
    place = {"broker": first["broker"], "id": first["queue"]}
    p.send(*numbered(topic, 0, 400, queue=place), mode="async")
    for limit, bound in (({"max_messages": 100}, 100 + 33), ({"max_span": 50}, 50 + 34)):
        name = "flow_" + "".join(limit)
        consumer = p.consumer(name, topic, unique(name), hang_at="hang", quiet=True, pull_batch=32,
                              threads=1 if "max_messages" in limit else 2, **limit)
        stats = wait_counts(p, consumer, received=bound - 33)
        tap.check(stats["received"] <= bound + 10, "received %s with %s" % (stats, limit))
        process.wait_until(lambda: p.main.call("hanging"), 30, "the handler hangs")
        stop = p.main.start("stop", name=consumer)
        p.main.call("release")
        p.main.finish(stop)


@tap.test("a paused consumer begins nothing, and goes on where it was")
def _():
    p = play()
    topic = p.topic("Pause")
    consumer = p.consumer("pause", topic, threads=1)
    p.main.wait_messages(consumer, 1)
    p.main.call("pause", name=consumer)
    p.send(*numbered(topic, 0, 20))
    p.main.call("pause", name=consumer)  # twice is as good as once
    tap.equal(p.bodies(consumer), [], "bodies while it is paused")
    p.main.call("resume", name=consumer)
    p.wait_bodies(consumer, texts(0, 20))
    tap.equal(sorted(p.bodies(consumer), key=int), texts(0, 20), "bodies")
    p.stop(consumer)


@tap.test("a handler may pause its own consumer")
def _():
    p = play()
    topic = p.topic("SelfPause")
    p.send(*numbered(topic, 0, 20))
    consumer = p.consumer("selfpause", topic, threads=1, pause_self=True)
    p.main.wait_messages(consumer, 1)
    p.main.call("pause", name=consumer)  # its answer comes after the handler's
    count = len(p.main.messages(consumer))
    tap.check(count <= 2, "%d deliveries" % count)
    p.stop(consumer)


@tap.test("topics can be subscribed to and left at any time")
def _():
    p = play()
    one, two = p.topic("SubOne"), p.topic("SubTwo")
    consumer = p.consumer("subs", one, unique("subs"))
    p.main.wait_messages(consumer, 1)
    p.main.call("subscribe", name=consumer, topic=two, expression="yes")
    p.send(puppet.message(two, "a", tag="no"), puppet.message(two, "b", tag="yes"))
    p.wait_bodies(consumer, ["b"])
    p.main.call("unsubscribe", name=consumer, topic=one)
    refused(NOT_FOUND, p.main.call, "unsubscribe", name=consumer, topic=one)
    p.send(puppet.message(one, "c"), puppet.message(two, "d", tag="yes"))
    p.wait_bodies(consumer, ["d"])
    tap.equal(p.bodies(consumer), ["b", "d"], "bodies")
    p.stop(consumer)


# Closing ------------------------------------------------------------------------------------------------------------

@tap.test("CO-2: closing finishes what runs, begins nothing more, and the next member gets the rest and nothing else")
def _():
    p = play()
    topic, group = p.topic("Close"), unique("close")
    p.send(*numbered(topic, 0, 200), mode="async")
    first = p.consumer("close1", topic, group, threads=4, work_ms=200)
    p.main.wait_messages(first, 10)
    p.stop(first)
    done = p.bodies(first)
    tap.check(len(done) < 200, "it was closed too late to show anything")
    second = p.consumer("close2", topic, group)
    rest = sorted(set(texts(0, 200)) - set(done), key=int)
    p.wait_bodies(second, rest)
    p.stop(second)
    tap.equal(len(done), len(set(done)), "the first got each once")
    again = set(p.bodies(second)) & set(done)
    # Four at a time: whatever is done behind a message that is not comes again. Closing leaves no such holes.
    tap.check(len(again) <= 4 * 4, "%d came again" % len(again))
    tap.note("%d done before the close, %d of them again" % (len(done), len(again)))


@tap.test("closing waits for a handler as long as it is told to; its message comes again, and nothing breaks when it returns")
def _():
    p = play()
    topic, group = p.topic("Stuck"), unique("stuck")
    stuck = p.puppet("stuck_one")
    p.send(puppet.message(topic, "hang"))
    consumer = p.consumer("stuck", topic, group, on=stuck, hang_at="hang", close_ms=300, threads=3)
    process.wait_until(lambda: "hang" in p.bodies(consumer, stuck), 30, "the handler hangs")
    p.stop(consumer, stuck)
    heir = p.consumer("heir", topic, group)
    p.wait_bodies(heir, ["hang"])
    p.stop(heir)
    stuck.call("release")
    stuck.end()
    tap.unwatch(stuck)


@tap.test("with `once`, a handler that hangs holds up no batch but its own; left behind, it and what waited with it break nothing")
def _():
    p = play()
    topic, group = p.topic("Held"), unique("held")
    stuck = p.puppet("held_one")
    p.stop(p.consumer("first", topic, on=stuck), stuck)
    threads = process.threads(stuck.child.pid)
    others = ["m%d" % i for i in range(600)]
    p.send(*[puppet.message(topic, body, keys=[body]) for body in [*others[:300], "hang", *others[300:]]])
    consumer = p.consumer("held", topic, group, on=stuck, hang_at="hang", close_ms=300, threads=2, once="memory:")
    process.wait_until(lambda: set(p.bodies(consumer, stuck)) == {"hang", *others}, 30, "all but one are handled")
    tap.equal(len(p.bodies(consumer, stuck)), 601, "each of them once")
    p.stop(consumer, stuck)
    heir = p.consumer("held_heir", topic, group)
    process.wait_until(lambda: "hang" in p.bodies(heir), 30, "it comes again")
    p.stop(heir)
    stuck.call("release")
    process.wait_until(lambda: process.threads(stuck.child.pid) <= threads, 30, "its thread has ended")
    stuck.end()
    tap.unwatch(stuck)


# With `once`: what waits behind a handler has been asked for -----------------------------------------------------------

OTHERS = ["m%d" % number for number in range(20)]
ALL = len(OTHERS) + 3  # with those that hang, and the one that made the topic


def waiting_behind(p, name, **options):
    """A consumer with one thread, whose handler hangs at "hang2" while OTHERS wait behind it; and its topic and group.

    While it hangs at "hang1", all of them arrive here; so it takes them along when it goes on."""
    topic, group = p.topic(name), unique(name)
    p.stage.prepare_group(group, topic)
    consumer = p.consumer(name, topic, group, hang_at="hang", threads=1, **{"once": "memory:", **options})
    wait_counts(p, consumer, handled=1)  # the one that made the topic
    [first] = p.send(puppet.message(topic, "hang1", keys=["hang1"]))
    process.wait_until(lambda: "hang1" in p.bodies(consumer), 30, "the first handler hangs")
    place = {"broker": first["broker"], "id": first["queue"]}
    p.send(*[puppet.message(topic, body, keys=[body], queue=place) for body in ["hang2", *OTHERS]])
    wait_counts(p, consumer, received=ALL)
    p.main.call("release")
    process.wait_until(lambda: "hang2" in p.bodies(consumer), 30, "the second handler hangs")
    return consumer, topic, group


def all_came_once(p, consumer):
    p.wait_bodies(consumer, OTHERS)
    tap.equal(sorted(p.bodies(consumer)), sorted(["hang1", "hang2", *OTHERS]), "bodies")
    tap.equal({each["reconsume"] for each in p.deliveries(consumer)}, {0}, "attempts before")


def wait_given_up(p, consumer):
    process.wait_until(lambda: p.main.call("stats", name=consumer)["waiting"] == len(OTHERS), 30, "nobody has the others")


@tap.test("with `once`, a pause holds back what waits behind a handler: it comes afterwards, and no attempt was made")
def _():
    p = play()
    consumer, _, _ = waiting_behind(p, "DeskPause")
    p.main.call("pause", name=consumer)
    p.main.call("release")
    wait_given_up(p, consumer)
    tap.equal(p.bodies(consumer), ["hang1", "hang2"], "handlers that began")
    tap.equal(p.main.call("claims", name=consumer), 0, "claims")
    p.main.call("resume", name=consumer)
    all_came_once(p, consumer)
    p.stop(consumer)


@tap.test("with `once`, a close begins nothing of what waits behind a handler: the next member gets it")
def _():
    p = play()
    consumer, topic, group = waiting_behind(p, "DeskClose")
    stop = p.main.start("stop", name=consumer)
    wait_given_up(p, consumer)  # though the handler still hangs
    p.main.call("release")
    p.main.finish(stop)
    tap.equal(p.bodies(consumer), ["hang1", "hang2"], "handlers that began")
    heir = p.consumer("desk_heir", topic, group)
    p.wait_bodies(heir, OTHERS)
    p.stop(heir)
    tap.equal(sorted(p.bodies(heir)), sorted(OTHERS), "bodies")


@tap.test("with `once`, no handler begins with a claim that was lost while it waited: it is asked for again")
def _():
    p = play()
    p.main.call("notary", loses=True)
    consumer, _, _ = waiting_behind(p, "DeskLost", once="notary", expiry_ms=1000)
    process.wait_until(lambda: p.main.call("notary", loses=True) >= len(OTHERS), 30, "all of them have lost their claims")
    p.main.call("notary")
    p.main.call("release")
    all_came_once(p, consumer)
    tap.equal({each["lost"] for each in p.deliveries(consumer)}, {False}, "claims were lost")
    p.stop(consumer)


@tap.test("with `once` in table mode, whose claims are not renewed, nothing is claimed before its handler can begin")
def _():
    p = play()
    consumer, _, _ = waiting_behind(p, "DeskTable", table=True)
    tap.equal(p.main.call("claims", name=consumer), 1, "claims")
    p.main.call("release")
    all_came_once(p, consumer)
    p.stop(consumer)


@tap.test("with `once`, a message that the store cannot finish keeps no other from being acknowledged")
def _():
    p = play()
    p.main.call("notary", deaf_to="m3")
    consumer, _, _ = waiting_behind(p, "DeskDeaf", once="notary", expiry_ms=120000)
    p.main.call("release")
    wait_counts(p, consumer, handled=ALL - 1)
    tap.equal(p.main.call("claims", name=consumer), 1, "claims")
    p.main.call("notary")
    wait_counts(p, consumer, handled=ALL)
    all_came_once(p, consumer)
    p.stop(consumer)


@tap.test("with `once`, what is done is marked though the only thread is in a handler that hangs")
def _():
    p = play()
    topic, group = p.topic("DeskClerk"), unique("DeskClerk")
    p.stage.prepare_group(group, topic)
    consumer = p.consumer("DeskClerk", topic, group, hang_at="hang", threads=1, once="memory:")
    wait_counts(p, consumer, handled=1)
    [first] = p.send(puppet.message(topic, "hang1", keys=["hang1"]))
    process.wait_until(lambda: "hang1" in p.bodies(consumer), 30, "the first handler hangs")
    place = {"broker": first["broker"], "id": first["queue"]}
    p.send(*[puppet.message(topic, body, keys=[body], queue=place) for body in [*OTHERS, "hang2", "last"]])
    wait_counts(p, consumer, received=ALL + 1)
    p.main.call("release")
    process.wait_until(lambda: "hang2" in p.bodies(consumer), 30, "the second handler hangs")
    wait_counts(p, consumer, handled=ALL - 1)
    tap.equal(p.main.call("claims", name=consumer), 2, "claims: the one that hangs, and the one that waits")
    p.main.call("release")
    p.wait_bodies(consumer, [*OTHERS, "last"])
    p.stop(consumer)


@tap.test("with `once`, what waits behind a handler is not given back for taking too long")
def _():
    p = play()
    consumer, _, _ = waiting_behind(p, "DeskExpiry", consume_timeout_ms=1000)
    wait_counts(p, consumer, sent_back=1)  # the one that hangs
    p.main.call("release")
    p.wait_bodies(consumer, OTHERS)
    p.main.call("pause", name=consumer)  # the one that was given back may hang here once more, or shall not
    tap.equal(p.main.call("stats", name=consumer)["sent_back"], 1, "messages that were given back")
    p.main.call("release")
    p.stop(consumer)


@tap.test("closing a consumer that found no topic, and one whose servers are gone, takes no longer than its timeouts")
def _():
    p = play()
    lost = tap.watch(puppet.start_c("lost", "127.0.0.1:1"))
    lost.call("consumer", name="l", group="g", topic="T", client_timeout_ms=500)
    lost.call("stop", name="l")
    lost.end()
    tap.unwatch(lost)
    consumer = p.consumer("nothing", unique("NoSuchTopic"))
    p.stop(consumer)


# Taking -------------------------------------------------------------------------------------------------------------

@tap.test("messages can be taken instead: finished in any order, late, or after the close")
def _():
    p = play()
    topic, group = p.topic("Take"), unique("take")
    p.send(*numbered(topic, 0, 6))
    taker = p.puppet("taker")
    consumer = p.consumer("take", topic, group, on=taker, take=True, close_ms=200)
    for number in range(7):
        taker.call("take", name=consumer, wait_ms=20000, keep="b%d" % number)
    refused(TIMEOUT, taker.call, "take", name=consumer, wait_ms=50)
    for number in (6, 3, 0, 1, 2, 4):
        taker.call("finish", name="b%d" % number)
    waiting = taker.start("take", name=consumer, wait_ms=20000)
    taker.call("stop", name=consumer)  # b5 is still out
    try:
        taker.finish(waiting)
        raise AssertionError("there was nothing to take")
    except puppet.Refused as error:  # the puppet's threads may have found no consumer any more
        tap.check(error.code in (CLOSED, INVALID), "code of %r" % str(error))
    taker.call("finish", name="b5")
    taker.end()
    tap.unwatch(taker)
    again = p.consumer("take_again", topic, group)
    p.main.wait_messages(again, 1)
    p.stop(again)
    tap.check(len(p.main.messages(again)) <= 2, "only what was behind the unfinished one comes again")


@tap.test("a taken message that failed comes again")
def _():
    p = play()
    topic, group = p.topic("TakeFail"), unique("takefail")
    p.stage.prepare_group(group, topic)
    consumer = p.consumer("takefail", topic, group, take=True)
    [first] = p.main.call("take", name=consumer, wait_ms=20000, result=1)
    [second] = p.main.call("take", name=consumer, wait_ms=20000)
    tap.equal((second["id"], second["reconsume"]), (first["id"], 1), "the message again")
    p.stop(consumer)


@tap.test("a taken message that is put off comes again here, without an attempt; one that is given up is a dead letter")
def _():
    p = play()
    topic, group = p.topic("TakeDefer"), unique("takedefer")
    p.stage.prepare_group(group, topic)
    consumer = p.consumer("takedefer", topic, group, take=True)
    [first] = p.main.call("take", name=consumer, wait_ms=20000, result=2, after_ms=10)
    [second] = p.main.call("take", name=consumer, wait_ms=20000, result=3)
    tap.equal((second["id"], second["reconsume"]), (first["id"], 0), "the message again")
    wait_counts(p, consumer, dead=1)
    p.stop(consumer)


@tap.test("many messages are taken and finished together")
def _():
    p = play()
    topic, group = p.topic("TakeAll"), unique("takeall")
    p.send(*numbered(topic, 0, 100))
    consumer = p.consumer("takeall", topic, group, take=True)
    seen = []
    while len(seen) < 101:  # and the one that made the topic
        some = p.main.call("take_all", name=consumer, wait_ms=20000, max=50)
        tap.check(1 <= len(some) <= 50, "%d at once" % len(some))
        seen += [each["id"] for each in some]
    tap.equal(len(set(seen)), len(seen), "each came once")
    p.stop(consumer)


# At most once -------------------------------------------------------------------------------------------------------

@tap.test("DS-1: at most once: a message whose handler is killed does not come again")
def _():
    p = play()
    topic, group = p.topic("AtMost"), unique("atmost")
    victim = p.puppet("victim")
    consumer = p.consumer("atmost", topic, group, on=victim, before=True, hang_at="hang")
    victim.wait_messages(consumer, 1)
    p.send(puppet.message(topic, "hang"))
    process.wait_until(lambda: "hang" in p.bodies(consumer, victim), 30, "the handler hangs")
    victim.kill9()
    tap.unwatch(victim)
    p.send(*numbered(topic, 0, 8))
    heir = p.consumer("atmost_heir", topic, group, before=True)
    p.wait_bodies(heir, texts(0, 8), timeout=60)
    p.stop(heir)
    tap.check("hang" not in p.bodies(heir), "it came again")


# In order -----------------------------------------------------------------------------------------------------------

def keyed(topic, first, count):
    return [puppet.message(topic, "%s%d" % (key, number), shard=key) for number in range(first, first + count)
            for key in "abcd"]


def check_order(got, wanted, times=1):
    for key in "abcd":
        tap.equal([each["body"] for each in got if each["body"][0] == key],
                  [m for m in wanted if m[0] == key for _ in range(times)], "order of key %s" % key)


@tap.test("LB-2: in order: each key's messages in order, failed ones again at once; the next member goes on there")
def _():
    p = play()
    topic, group = p.topic("Order"), unique("order")
    for turn in range(2):
        name = p.consumer("order%d" % turn, topic, group, orderly=True, fail_below=1, suspend_ms=20)
        p.send(*keyed(topic, 20 * turn, 20))
        wanted = ["%s%d" % (key, number) for number in range(20 * turn, 20 * turn + 20) for key in "abcd"]
        process.wait_until(lambda each=name: len(p.deliveries(each)) >= 160, 60, "160 deliveries in order")
        check_order(p.deliveries(name), wanted, 2)
        p.stop(name)


@tap.test("in order: a message that is given up goes to the dead letters, and the next one follows")
def _():
    p = play()
    topic, group = p.topic("OrderDead"), unique("orderdead")
    p.send(*[puppet.message(topic, body, shard="x") for body in ("one", "two")])
    consumer = p.consumer("orderdead", topic, group, orderly=True, fail_below=100, max_reconsume=1, suspend_ms=20)
    dead = plays.read_dead_letters(p, group, ["one", "two"])
    tap.equal(dead["one"].properties.get("RETRY_TOPIC"), topic, "origin of the dead letter")
    tap.equal([body for body in p.bodies(consumer) if body in ("one", "two")], ["one", "one", "two", "two"], "deliveries")
    p.stop(consumer)


@tap.test("in order: members come and go, and no key is ever seen out of order, nor by two at a time")
def _():
    p = play()
    topic, group = p.topic("OrderMove"), unique("ordermove")
    names = [p.consumer("ordermove0", topic, group, orderly=True, work_ms=5)]
    p.send(*keyed(topic, 0, 30), mode="sync")
    names.append(p.consumer("ordermove1", topic, group, orderly=True, work_ms=5))
    p.send(*keyed(topic, 30, 30), mode="sync")
    process.wait_until(lambda: p.bodies(names[1]), 40, "the second has a queue")
    p.stop(names[0])
    p.send(*keyed(topic, 60, 30), mode="sync")
    wanted = ["%s%d" % (key, number) for number in range(90) for key in "abcd"]

    def all_there():
        return set(wanted) <= {body for name in names for body in p.bodies(name)}
    process.wait_until(all_there, 60, "all messages")
    got = sorted((each for name in names for each in p.deliveries(name)), key=lambda each: each["at"])
    twice = len(got) - len({each["body"] for each in got})
    for key in "abcd":
        numbers = [int(each["body"][1:]) for each in got if each["body"][0] == key]
        tap.equal(sorted(set(numbers)), list(range(90)), "numbers of key %s" % key)
        tap.equal(list(dict.fromkeys(numbers)), list(range(90)), "first deliveries of key %s" % key)
    tap.equal(twice, 0, "duplicates")
    p.stop(names[1])


# Where it begins ----------------------------------------------------------------------------------------------------

@tap.test("an operator may set a group back, and forward, while it works")
def _():
    p = play()
    topic, group = p.topic("Reset"), unique("reset")
    consumer = p.consumer("reset", topic, group)
    p.send(*numbered(topic, 0, 8))
    p.wait_bodies(consumer, texts(0, 8))
    with remoting.Client(p.stage.broker_address()) as client:
        answer = client.request(RESET_OFFSET, {
            "topic": topic, "group": group, "timestamp": 0, "isForce": True})
        tap.equal(answer.code, remoting.SUCCESS, "code (%s)" % answer.remark)
    process.wait_until(lambda: len(p.bodies(consumer)) >= 16, 40, "all messages again")
    tap.equal(sorted(p.bodies(consumer), key=int), sorted(texts(0, 8) * 2, key=int), "bodies")
    p.stop(consumer)


# Crashes ------------------------------------------------------------------------------------------------------------

@tap.test("the broker is killed and comes again: nothing is lost")
def _():
    p = own()
    topic, group = p.topic("Crash"), unique("crash")
    consumer = p.consumer("crash", topic, group, work_ms=2)
    p.send(*numbered(topic, 0, 300), mode="async")
    p.main.wait_messages(consumer, 50)
    p.stage.broker.kill9()
    p.stage.start()
    p.wait_bodies(consumer, texts(0, 300), timeout=60)
    plays._insist(p, numbered(topic, 300, 20))
    p.wait_bodies(consumer, texts(0, 320), timeout=60)
    tap.note("%d deliveries of 320 messages" % len(p.bodies(consumer)))
    p.stop(consumer)


@tap.test("puppet and broker end well after all this")
def _():
    plays.ends_well(play())


stage.run()
