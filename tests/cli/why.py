"""`oncemq why`: situations are planted, and each gets the right answer."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, ledger as ledgers, process, remoting as r, tap  # noqa: E402

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
    sent = send("WhyLonely", "x")
    told = why(sent["id"])
    tap.equal((told["kind"], answer(told, None)["state"]), ("message", "unread"))
    tap.equal([each["event"] for each in told["events"]], ["stored"])


@tap.test("2 a group has not come so far, and nobody of it is there")
def _():
    send("WhySlow", "0")
    consume("WhySlow", "why-slow")
    send("WhySlow", "1")
    sent = send("WhySlow", "2")
    told = answer(why(sent["id"]), "why-slow")
    tap.equal(told["state"], "not yet consumed")
    tap.check("no member" in told["because"] and "1 messages" in told["because"], told)


@tap.test("3 a group without a ledger has it behind it")
def _():
    sent = send("WhyQuick", "x")
    consume("WhyQuick", "why-quick")
    tap.equal(answer(why(sent["id"], until=state_is("why-quick", "consumed")), "why-quick")["state"], "consumed")


@tap.test("4 it waits for its time, and when that is")
def _():
    sent, = cluster.json("send", "WhyLater", "x", "--delay", "1h")
    told = why(sent["id"])
    tap.equal(answer(told, None)["state"], "waiting")
    tap.check(abs(told["messages"][0]["due_ms"] - told["messages"][0]["stored_ms"] - 3600000) < 60000, told)


@tap.test("5 it failed and is tried again, and when")
def _():
    sent = send("WhyAgain", "x")
    consume("WhyAgain", "why-again")
    give_back(sent, "WhyAgain", "why-again", 18)
    told = why(sent["id"], until=state_is("why-again", "retrying"))
    tap.check("1 attempts have failed; its next attempt is at" in answer(told, "why-again")["because"], told)
    tap.equal([each["event"] for each in told["events"]], ["stored", "waiting"])


@tap.test("6 it is a dead letter")
def _():
    sent = send("WhyDead", "x")
    consume("WhyDead", "why-dead")
    give_back(sent, "WhyDead", "why-dead", -1)
    told = answer(why(sent["id"], until=state_is("why-dead", "dead letter")), "why-dead")
    tap.check("given up at" in told["because"] and "oncemq dlq show why-dead" in told["because"], told)


# ---- with it ----

if not cluster.apache:
    billing = ledgers.Claimer(cluster.broker, "billing", 0xbeef)


def claimed(message, key, **more):
    if cluster.apache:
        tap.skip("Apache's broker has no ledger")
    return billing.claim(key, topic="WhyOrders", message=message["id"], **more), billing.held


@tap.test("7 done: when, by whom, under which key")
def _():
    sent = send("WhyOrders", "7", "--key", "o7")
    _, token = claimed(sent, "order:7")
    tap.equal(billing.finish("order:7", token).outcome, ledgers.OK)
    told = why(sent["id"], until=state_is("billing", "done"))
    tap.check("done at" in answer(told, "billing")["because"] and "key order:7" in answer(told, "billing")["because"], told)
    tap.equal([each["event"] for each in told["events"]], ["stored", "claimed", "done"])


@tap.test("8 somebody is at it")
def _():
    sent = send("WhyOrders", "8")
    _, token = claimed(sent, "order:8")
    tap.equal(billing.run(ledgers.RENEW, "order:8", token=token).outcome, ledgers.OK)
    told = why(sent["id"], until=state_is("billing", "running"))
    tap.check("holds until" in answer(told, "billing")["because"], told)
    tap.equal([each["event"] for each in told["events"]], ["stored", "claimed", "renewed"])


@tap.test("9 who was at it has not been heard of, and the claim is over")
def _():
    sent = send("WhyOrders", "9")
    claimed(sent, "order:9", expiry=1000)
    cluster.ok("clock", "advance", "5s", "--yes")
    told = why(sent["id"], until=state_is("billing", "abandoned"))
    tap.check("the next delivery takes it" in answer(told, "billing")["because"], told)


@tap.test("10 its handler failed, and the group's retry is on its way")
def _():
    sent = send("WhyFails", "10")
    _, token = claimed(sent, "order:10")
    consume("WhyFails", "billing")
    tap.equal(billing.run(ledgers.RELEASE, "order:10", token=token).outcome, ledgers.OK)
    give_back(sent, "WhyFails", "billing", 18)
    told = why(sent["id"], until=lambda told: "next attempt is at" in answer(told, "billing")["because"])
    tap.equal(answer(told, "billing")["state"], "failed")


@tap.test("11 suppressed, because of which earlier message; both are found by the key")
def _():
    first, second = send("WhyOrders", "11", "--key", "o11"), send("WhyOrders", "11", "--key", "o11")
    _, token = claimed(first, "order:11")
    tap.equal(billing.finish("order:11", token).outcome, ledgers.OK)
    tap.equal(claimed(second, "order:11")[0].outcome, ledgers.DONE)
    told = why(second["id"], until=state_is("billing", "suppressed"))
    tap.check("message %s had done key order:11" % first["id"] in answer(told, "billing")["because"], told)
    for key in ("o11", "order:11"):
        told = why(key, until=lambda told: len(told["messages"]) == 2)
        tap.equal((told["kind"], answer(told, "billing", first)["state"], answer(told, "billing", second)["state"]),
                  ("key", "done", "suppressed"), key)


@tap.test("12 refused: the same key with another body")
def _():
    first, second = send("WhyOrders", "12"), send("WhyOrders", "12 but more")
    _, token = claimed(first, "order:12", fingerprint=1)
    billing.finish("order:12", token, fingerprint=1)
    tap.equal(claimed(second, "order:12", fingerprint=2)[0].outcome, ledgers.DONE)
    told = answer(why(second["id"], until=state_is("billing", "refused")), "billing")
    tap.check("with another body" in told["because"] and first["id"] in told["because"], told)


@tap.test("13 unsure: the claim was lost while its handler ran, and who took it")
def _():
    sent = send("WhyOrders", "13")
    _, slow = claimed(sent, "order:13", expiry=1000)
    cluster.ok("clock", "advance", "5s", "--yes")
    outcome, quick = claimed(sent, "order:13")
    tap.equal(outcome.outcome, ledgers.OK)
    tap.equal(billing.finish("order:13", slow).outcome, ledgers.LOST)
    tap.equal(billing.finish("order:13", quick).outcome, ledgers.OK)
    told = why(sent["id"], until=state_is("billing", "unsure"))
    tap.check("never ended" in answer(told, "billing")["because"], told)
    tap.equal([each["event"] for each in told["events"]], ["stored", "claimed", "claimed", "lost", "done"])
    audit = cluster.json("audit", "WhyOrders")
    tap.equal([(each["group"], each["unsure"]) for each in audit["groups"]], [("billing", 1)])


@tap.test("what is not there is said to be missing")
def _():
    for args in (("0" * 32,), ("nonsense",), ("nonsense", "--topic", "WhyOrders")):
        tap.equal(cluster.run("why", *args).status, cli.NOT_FOUND, args)
    cluster.run("why", status=cli.USAGE)


tap.main()
