"""--chaos: faults on purpose, in raw frames: each hits what it should, the same again with the same seed, and nothing stays behind."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import crowd as crowds, daemon as daemons, pop, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK, CHAOS, NOTIFY_CONSUMER_IDS_CHANGED = 10001, 10020, 40
NO_PERMISSION, INVALID_PARAMETER = 16, 29
ALL = 1000000

daemon = daemons.Daemon(args=["--chaos", "--clock", "virtual"])
control = r.Client(daemon.broker, timeout=20)
crowd = crowds.Crowd(daemon.broker)


def ask(action, **fields):
    return control.request(CHAOS, {"action": action, **fields})


def plan(**fields):
    """Sets a plan and gives its number."""
    answer = ask("set", **{"seed": 7, "lifeMillis": 60000, **fields})
    tap.equal((answer.code, answer.ext["on"]), (r.SUCCESS, "true"), "the plan (%s)" % answer.remark)
    return int(answer.ext["plan"])


def counts():
    return {name: int(value) for name, value in ask("read").ext.items() if name != "on"}


def send(client, topic, key, body=b"body", wait=True, **fields):
    opaque = client.send(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, {"KEYS": key, "UNIQ_KEY": "U%d%s" % (time.monotonic_ns(), key)}, queue_id=0, **fields))
    return client.wait(opaque) if wait else opaque


def stored(topic, group="reader"):
    """All messages of a topic."""
    found = []
    for queue in range(4):
        offset = 0
        while True:
            answer = control.request(r.PULL_MESSAGE, {
                "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4,
                "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0})
            if answer.code != r.SUCCESS:
                break
            part = r.messages(answer.body)
            offset = part[-1].queue_offset + 1
            found += part
    return found


def keys(topic):
    return sorted(each.properties["KEYS"] for each in stored(topic))


def committed(group, topic, queue=0):
    answer = control.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"})
    return int(answer.ext["offset"]) if answer.code == r.SUCCESS else None


@tap.test("a daemon that was not started for it refuses; nonsense is refused and changes nothing")
def _():
    with daemons.Daemon() as plain, r.Client(plain.broker) as client:
        for action in ("set", "read", "clear"):
            refused = client.request(CHAOS, {"action": action, "topic": "T", "lifeMillis": 1000})
            tap.equal(refused.code, NO_PERMISSION, action)
            tap.check("--chaos" in refused.remark, refused.remark)
    for wrong in ({"topic": ""}, {"twice": -1}, {"twice": ALL + 1}, {"lifeMillis": 0}, {"lifeMillis": 10 ** 12}, {"delayMinMillis": 5},
                  {"killsPerMinute": 2 ** 40}, {"topic": "T" * 300}):
        tap.equal(ask("set", **{"topic": "T", "lifeMillis": 1000, **wrong}).code, INVALID_PARAMETER, wrong)
    tap.equal(ask("dance").code, INVALID_PARAMETER, "an action that is none")
    tap.equal(control.request(CHAOS).code, 1, "no action")
    tap.equal(ask("read").ext["on"], "false", "a plan")


@tap.test("a share of the messages is stored twice, under the same id, and the same ones with the same seed")
def _():
    def run(topic, seed):
        plan(topic=topic, seed=seed, twice=ALL // 4)
        for i in range(80):
            tap.equal(send(crowd.client, topic, "k%02d" % i).code, r.SUCCESS, "send")
        done = counts()
        process.wait_until(lambda: counts()["waiting"] == 0, 10, "the copies are stored")
        ask("clear")
        found = stored(topic)
        tap.equal(len(found), 80 + done["twice"], "messages")
        names = [each.properties["KEYS"] for each in found]
        doubled = sorted(each for each in set(names) if names.count(each) == 2)
        tap.equal(len(doubled), done["twice"], "keys that are there twice")
        for key in doubled:
            tap.equal(len({each.unique_key for each in found if each.properties["KEYS"] == key}), 1, "one id for both")
        return doubled

    for topic in ("TwiceA", "TwiceB", "TwiceC"):
        crowd.topic(topic)
    first = run("TwiceA", 7)
    tap.check(5 < len(first) < 40, "%d of 80 is no quarter" % len(first))
    tap.equal(run("TwiceB", 7), first, "the same seed")
    tap.check(run("TwiceC", 8) != first, "another seed")


@tap.test("a later copy comes later; what is still to come when the plan ends comes all the same")
def _():
    crowd.topic("Later")
    plan(topic="Later", twiceLater=ALL, laterMillis=400)
    for i in range(5):
        send(crowd.client, "Later", "k%d" % i)
    ask("clear")
    process.wait_until(lambda: counts()["waiting"] == 0, 20, "the copies are stored, by their own time")
    tap.equal(keys("Later"), sorted(2 * ["k%d" % i for i in range(5)]), "keys")
    gaps = [abs(a.store_time - b.store_time) for a in stored("Later") for b in stored("Later") if a.properties["KEYS"] == b.properties["KEYS"]]
    tap.check(max(gaps) > 20, "no copy came later: %s" % gaps)


@tap.test("a send whose answer is dropped is stored; the second try is answered")
def _():
    crowd.topic("Silent")
    plan(topic="Silent", dropResponses=ALL)
    with r.Client(daemon.broker) as client:
        opaque = send(client, "Silent", "k", wait=False)
        tap.equal(send(client, "Silent", "k").code, r.SUCCESS, "the second try")
        tap.check(opaque not in client.replies, "the first was answered")
    tap.equal(keys("Silent"), ["k", "k"], "both are stored")
    tap.equal(counts()["dropResponses"], 1, "counted")
    ask("clear")


@tap.test("a commit is answered and forgotten, once, also one that a pull carries; it is made when the plan ends")
def _():
    crowd.topic("Commits")
    crowd.group("forgetful")
    crowd.send("Commits", 10)
    plan(topic="Commits", group="forgetful", dropAcks=ALL)
    member = crowd.member("forgetful", ["Commits"])

    def commit(offset):
        answer = member.client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "forgetful", "topic": "Commits", "queueId": 0, "commitOffset": offset})
        tap.equal(answer.code, r.SUCCESS, "commit")

    commit(4)
    tap.equal(committed("forgetful", "Commits"), None, "after a forgotten commit")
    commit(4)
    tap.equal(committed("forgetful", "Commits"), 4, "the second time it is known")
    pulled = member.client.request(r.PULL_MESSAGE, {
        "consumerGroup": "forgetful", "topic": "Commits", "queueId": 0, "queueOffset": 4, "maxMsgNums": 32, "sysFlag": 5,
        "commitOffset": 7, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1})
    tap.equal((pulled.code, len(r.messages(pulled.body))), (r.SUCCESS, 6), "pulled")
    tap.equal(committed("forgetful", "Commits"), 4, "after a pull whose commit is forgotten")
    tap.equal(counts()["dropAcks"], 2, "counted")
    other = crowd.member("attentive", ["Commits"])
    other.client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "attentive", "topic": "Commits", "queueId": 0, "commitOffset": 3})
    tap.equal(committed("attentive", "Commits"), 3, "of a group that is not meant")
    ask("clear")
    tap.equal(committed("forgetful", "Commits"), 7, "after the plan")


@tap.test("an acknowledgement of a popped message is forgotten: it comes again; a message given back is, and nobody says so")
def _():
    crowd.topic("Popped", queues=1)
    crowd.send("Popped", 1)
    plan(group="popgroup", dropAcks=ALL)
    with pop.Popper(daemon.broker, group="popgroup", topic="Popped") as popper:
        held = popper.pop(invisible_ms=10000)[0]
        fields = {"consumerGroup": "popgroup", "topic": held.topic, "queueId": held.queue, "extraInfo": held.handle, "offset": held.offset}
        tap.equal(popper.client.request(pop.ACK_MESSAGE, fields).code, r.SUCCESS, "the first")
        tap.equal(counts()["dropAcks"], 1, "counted")
        control.request(ADVANCE_CLOCK, {"advanceMillis": 15000})
        again = process.wait_until(popper.pop, 20, "the message again")
        tap.equal([each.message.unique_key for each in again], [held.message.unique_key], "what comes again")
    position = int(stored("Popped")[0].offset_id[-16:], 16)
    back = {"offset": position, "group": "popgroup", "delayLevel": 0, "originMsgId": "x", "originTopic": "Popped", "unitMode": "false", "maxReconsumeTimes": 16}
    opaque = crowd.client.send(r.CONSUMER_SEND_MSG_BACK, back)
    tap.equal(crowd.client.request(r.CONSUMER_SEND_MSG_BACK, back).code, r.SUCCESS, "the second try")
    tap.check(opaque not in crowd.client.replies, "the first was answered")
    ask("clear")


@tap.test("requests are held up, those of one connection in their order")
def _():
    crowd.topic("Slow", queues=1)
    plan(topic="Slow", delayMinMillis=1, delayMaxMillis=40)
    with r.Client(daemon.broker, timeout=20) as client:
        opaques = [send(client, "Slow", "k%02d" % i, wait=False) for i in range(50)]
        other = client.send(r.GET_MAX_OFFSET, {"topic": "Slow", "queueId": 0})
        answers = [client.wait(each) for each in opaques]
        tap.equal([int(each.ext["queueOffset"]) for each in answers], list(range(50)), "offsets")
        tap.equal(client.wait(other).ext["offset"], "50", "a question behind them is answered behind them")
    tap.check(counts()["delayed"] >= 50, counts())
    ask("clear")


@tap.test("a group without a topic: copies come by its retry topic, and nobody else sees them")
def _():
    crowd.topic("Shared", queues=1)
    crowd.send("Shared", 8, properties={"KEYS": "same"})
    member = crowd.member("doubled", ["Shared"])
    plan(group="doubled", twice=ALL)

    def pull(topic):
        return r.messages(member.client.request(r.PULL_MESSAGE, {
            "consumerGroup": "doubled", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 6,
            "commitOffset": 0, "suspendTimeoutMillis": 15000, "subscription": "*", "subVersion": 1}).body)

    first = pull("Shared")
    tap.equal(len(first), 8, "pulled")
    process.wait_until(lambda: counts()["waiting"] == 0, 10, "the copies are stored")
    again = pull("%RETRY%doubled")
    tap.equal(sorted(each.unique_key for each in again), sorted(each.unique_key for each in first), "given again")
    tap.equal({each.properties["RETRY_TOPIC"] for each in again}, {"Shared"}, "where they were first")
    tap.equal(counts()["twice"], 8, "once each, also when they are pulled from there")
    tap.equal(len(stored("Shared")), 8, "in the topic itself")
    ask("clear")


@tap.test("connections that take part are killed, others stay; a rebalance lets the queues move")
def _():
    crowd.topic("Forced")
    member = crowd.member("moved", ["Forced"])
    member.client.wait_pushed(NOTIFY_CONSUMER_IDS_CHANGED)
    with r.Client(daemon.broker, timeout=20) as taking_part, r.Client(daemon.broker, timeout=20) as bystander:
        plan(topic="Forced", group="moved", killsPerMinute=300, rebalancesPerMinute=120)
        send(taking_part, "Forced", "k")
        taking_part.wait_closed(20)
        member.client.wait_pushed(NOTIFY_CONSUMER_IDS_CHANGED)
        ids = lambda: control.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "moved"}).json()["consumerIdList"]  # noqa: E731
        process.wait_until(lambda: len(ids()) == 2, 10, "a member that reads nothing")
        process.wait_until(lambda: len(ids()) == 1, 10, "it is gone")
        ask("clear")
        tap.equal(send(bystander, "Other", "k").code, r.SUCCESS, "the bystander")
    process.wait_until(lambda: ids() == [member.client_id], 10, "the member alone")
    done = counts()
    tap.check(done["kills"] >= 1 and done["rebalances"] >= 1, done)


@tap.test("a plan ends by itself when its life is over, or when it is cleared by its number")
def _():
    number = plan(topic="Short", lifeMillis=200)
    process.wait_until(lambda: ask("read").ext["on"] == "false", 10, "its end")
    other = plan(topic="Short")
    tap.equal(other, number + 1, "plans are counted")
    tap.equal(ask("clear", plan=number).ext["on"], "true", "somebody else's plan stays")
    tap.equal(ask("clear", plan=other).ext["on"], "false", "it ends")


@tap.test("the daemon stops while things are still to come")
def _():
    crowd.topic("Never")
    plan(topic="Never", twiceLater=ALL, laterMillis=3600000, delayMinMillis=50000, delayMaxMillis=60000, rebalancesPerMinute=6000, group="moved")
    for i in range(20):
        send(crowd.client, "Never", "k%d" % i, wait=False)
    process.wait_until(lambda: counts()["waiting"] > 0, 10, "something waits")
    daemon.stop()


tap.main()
