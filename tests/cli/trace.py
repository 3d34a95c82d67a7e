"""`oncemq trace`: the story of a message, in every state that a group can leave it in."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting, tap  # noqa: E402

cluster = cli.Cluster()


def send(topic, body, *more):
    """Always to the same queue."""
    return cluster.json("send", topic, body, "--order", "k", *more)[0]


def give_back(message, topic, group, level):
    with remoting.Client(cluster.broker, timeout=20) as client:
        answer = client.request(remoting.CONSUMER_SEND_MSG_BACK, {
            "offset": int(message["offset_id"][16:], 16), "group": group, "delayLevel": level, "originMsgId": message["id"], "originTopic": topic,
            "unitMode": "false", "maxReconsumeTimes": 16})
        tap.equal(answer.code, remoting.SUCCESS, answer.remark)


def trace(message, *more, until=lambda story: True):
    """Its story; a broker's index has a message some moments after it was stored."""
    def told():
        result = cluster.run("trace", message["id"], *more)
        story = result.status == cli.OK and cluster.json("trace", message["id"], *more)
        return story and until(story) and story
    return process.wait_until(told, 20, "the story of %s; now %r" % (message["id"], cluster.run("trace", message["id"])))


def group(story, name):
    return next(({key: each[key] for key in ("state", "attempts", "behind")} for each in story["groups"] if each["group"] == name), None)


def kinds(story):
    return [(each["kind"], each["topic"]) for each in story["copies"]]


@tap.test("where it is stored, and which groups have it behind them")
def _():
    send("Where", "zero")
    cluster.ok("consume", "Where", "--group", "slow", "--from", "first", "--count", "1")
    send("Where", "one")
    sent = send("Where", "two", "--key", "k2", "--tag", "t")
    cluster.ok("consume", "Where", "--group", "quick", "--from", "first", "--count", "3")
    story = trace(sent)
    tap.equal([story[name] for name in ("id", "state", "topic", "broker", "queue", "offset", "offset_id", "tag", "keys", "body")],
              [sent["id"], "stored", "Where", sent["broker"], sent["queue"], 2, sent["offset_id"], "t", "k2", "two"])
    tap.equal(kinds(story), [("message", "Where")])
    tap.equal(group(story, "quick"), {"state": "consumed", "attempts": 1, "behind": 0})
    tap.equal(group(story, "slow"), {"state": "not yet consumed", "attempts": 0, "behind": 1})
    tap.equal(story["events"], [])
    by_place = cluster.json("trace", sent["offset_id"])
    tap.equal((by_place["id"], kinds(by_place)), (sent["id"], [("message", "Where")]))
    shown = cluster.ok("trace", sent["id"], "--topic", "Where").out
    tap.check("\nCopies\n" in shown and "\nGroups\n" in shown and "not yet consumed" in shown, shown)


@tap.test("retries: waiting, there, done")
def _():
    sent = send("Again", "once more")
    cluster.ok("consume", "Again", "--group", "again", "--from", "first", "--count", "1")
    give_back(sent, "Again", "again", 1)
    story = trace(sent, until=lambda story: len(story["copies"]) > 1)
    tap.equal(group(story, "again")["state"], "retrying")
    story = trace(sent, until=lambda story: ("retry", "%RETRY%again") in kinds(story))
    tap.equal((group(story, "again")["state"], group(story, "again")["attempts"]), ("retrying", 1))
    got, = cluster.json("consume", "Again", "--group", "again", "--count", "1")
    tap.equal((got["id"], got["attempt"]), (sent["id"], 2))
    story = trace(sent, until=lambda story: group(story, "again")["state"] == "consumed")
    tap.equal(group(story, "again")["attempts"], 2)


@tap.test("a dead letter, and one that was sent back")
def _():
    sent = send("Dead", "hopeless")
    cluster.ok("consume", "Dead", "--group", "dead", "--from", "first", "--count", "1")
    give_back(sent, "Dead", "dead", -1)
    story = trace(sent, until=lambda story: ("dead letter", "%DLQ%dead") in kinds(story))
    tap.equal(group(story, "dead")["state"], "dead letter")
    cluster.ok("dlq", "resend", "dead")
    story = trace(sent, until=lambda story: ("resent", "Dead") in kinds(story))
    tap.equal(kinds(story), [("message", "Dead"), ("dead letter", "%DLQ%dead"), ("resent", "Dead")])


@tap.test("a dead letter that was dropped by itself")
def _():
    for body in ("stays", "goes"):
        sent = send("Gone", body)
        cluster.ok("consume", "Gone", "--group", "gone", "--from", "first", "--count", "1")
        give_back(sent, "Gone", "gone", -1)
        trace(sent, until=lambda story: ("dead letter", "%DLQ%gone") in kinds(story))
    cluster.ok("dlq", "drop", "gone", "--id", sent["id"], "--yes")
    story = trace(sent, until=lambda story: ("note", "%DLQ%gone") in kinds(story))
    tap.equal(kinds(story), [("message", "Gone"), ("dead letter", "%DLQ%gone"), ("note", "%DLQ%gone")])
    tap.equal(group(story, "gone")["state"], "dropped")


@tap.test("one that waits for its time")
def _():
    sent, = cluster.json("send", "Later", "patience", "--delay", "1h")
    story = trace(sent)
    tap.equal((story["state"], story["topic"], story["body"]), ("waiting", "Later", "patience"))
    tap.check(abs(story["deliver_ms"] - story["born_ms"] - 3600000) < 60000, story)


@tap.test("what clients told of it: message trace")
def _():
    sent = send("TracedBySome", "traced", "--trace")
    cluster.ok("consume", "TracedBySome", "--group", "tracers", "--from", "first", "--count", "1", "--trace")
    story = trace(sent, until=lambda story: len(story["events"]) >= 3)
    tap.equal([(each["event"], each["group"]) for each in story["events"]], [("sent", "oncemq"), ("begun", "tracers"), ("done", "tracers")])
    tap.equal((story["events"][1]["attempt"], story["events"][2]["result"]), (1, "SUCCESS"))


@tap.test("what is not there is said to be missing")
def _():
    for args in (("0" * 32,), ("nonsense",), ("nonsense", "--topic", "Where"), ("nonsense", "--topic", "Nowhere")):
        tap.equal(cluster.run("trace", *args).status, cli.NOT_FOUND, args)
    cluster.run("trace", status=cli.USAGE)


tap.main()
