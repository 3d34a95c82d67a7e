"""`oncemq why`: situations are planted, and each gets the right answer."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting as r, tap  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual"])


def send(topic, body, *more):
    sent, = cluster.json("send", topic, body, "--order", "one queue", *more)
    return sent


def why(subject, *more, until=lambda told: True):
    """Brokers find messages some moments after they were stored."""
    def told():
        got = cluster.run("why", subject, *more).status == cli.OK and cluster.json("why", subject, *more)
        return got and until(got) and got
    return process.wait_until(told, 20, "why %s; now %r" % (subject, cluster.run("why", subject, *more)))


def answer(told, group, message=None):
    found = [each for each in told["answers"] if each["group"] == group and (message is None or each["id"] == message["id"])]
    tap.equal(len(found), 1, "answers for %s in %r" % (group, told["answers"]))
    return found[0]


def state_is(group, state):
    return lambda told: any(each["group"] == group and each["state"] == state for each in told["answers"])


def consume(topic, group, count=1):
    cluster.ok("consume", topic, "--group", group, "--from", "first", "--count", str(count))


def give_back(message, topic, group, level):
    with r.Client(cluster.broker) as client:
        place = int(message["offset_id"][-16:], 16)
        got = client.request(r.CONSUMER_SEND_MSG_BACK, {"offset": place, "group": group, "delayLevel": level, "originMsgId": message["id"],
                                                        "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": 16})
        tap.equal(got.code, r.SUCCESS, got.remark)


# ---- without the ledger ----

@tap.test("1 nobody reads its topic")
def _():
    sent = send("Lonely", "x")
    told = why(sent["id"])
    tap.equal((told["kind"], answer(told, None)["state"]), ("message", "unread"))
    tap.equal([each["event"] for each in told["events"]], ["stored"])


@tap.test("2 a group has not come so far, and nobody of it is there")
def _():
    send("Slow", "0")
    consume("Slow", "slow")
    send("Slow", "1")
    sent = send("Slow", "2")
    told = answer(why(sent["id"]), "slow")
    tap.equal(told["state"], "not yet consumed")
    tap.check("no member" in told["because"] and "1 messages" in told["because"], told)


@tap.test("3 a group without a ledger has it behind it")
def _():
    sent = send("Quick", "x")
    consume("Quick", "quick")
    tap.equal(answer(why(sent["id"], until=state_is("quick", "consumed")), "quick")["state"], "consumed")


@tap.test("4 it waits for its time, and when that is")
def _():
    sent, = cluster.json("send", "Later", "x", "--delay", "1h")
    told = why(sent["id"])
    tap.equal(answer(told, None)["state"], "waiting")
    tap.check(abs(told["messages"][0]["due_ms"] - told["messages"][0]["stored_ms"] - 3600000) < 2000, told)


@tap.test("5 it failed and is tried again, and when")
def _():
    sent = send("Again", "x")
    consume("Again", "again")
    give_back(sent, "Again", "again", 18)
    told = why(sent["id"], until=state_is("again", "retrying"))
    tap.check("1 attempts have failed; its next attempt is at" in answer(told, "again")["because"], told)
    tap.equal([each["event"] for each in told["events"]], ["stored", "waiting"])


@tap.test("6 it is a dead letter")
def _():
    sent = send("Dead", "x")
    consume("Dead", "dead")
    give_back(sent, "Dead", "dead", -1)
    told = answer(why(sent["id"], until=state_is("dead", "dead letter")), "dead")
    tap.check("given up at" in told["because"] and "oncemq dlq show dead" in told["because"], told)


@tap.test("what is not there is said to be missing")
def _():
    for args in (("0" * 32,), ("nonsense",), ("nonsense", "--topic", "Orders")):
        tap.equal(cluster.run("why", *args).status, cli.NOT_FOUND, args)
    cluster.run("why", status=cli.USAGE)


tap.main()
