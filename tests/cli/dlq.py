"""`oncemq dlq`: dead letters are listed, shown, sent back each once, and dropped."""

import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting, tap  # noqa: E402

cluster = cli.Cluster()


def bury(group, topic, count, key="k-{n}", *more):
    """So many messages of a topic become dead letters of a group, as a consumer that gives up makes them."""
    before = left(group)
    sent = cluster.json("send", topic, "m{n}", "--key", key, "--tag", "t", "--prop", "mine={n}", "--count", str(count), *more)
    sent.sort(key=lambda each: each["number"])
    with remoting.Client(cluster.broker, timeout=20) as client:
        for each in sent:
            answer = client.request(remoting.CONSUMER_SEND_MSG_BACK, {
                "offset": int(each["offset_id"][16:], 16), "group": group, "delayLevel": -1, "originMsgId": each["id"], "originTopic": topic,
                "unitMode": "false", "maxReconsumeTimes": 16})
            tap.equal(answer.code, remoting.SUCCESS, answer.remark)
    process.wait_until(lambda: left(group) == before + count, 20, "the dead letters")
    return sent


def left(group, *more):
    return {each["group"]: each["left"] for each in cluster.json("dlq", "list", *more)}.get(group, 0)


def copies(topic):
    """The messages of a topic that are copies of dead letters, by their letters."""
    found = {}
    for each in cluster.json("consume", topic, "--end"):
        letter = each["properties"].get("ONCEMQ_DEAD_LETTER")
        if letter:
            found.setdefault(letter, []).append(each)
    return found


def once(topic, count):
    """Each of `count` letters has come back exactly once."""
    found = copies(topic)
    tap.equal((len(found), {len(each) for each in found.values()}), (count, {1}))
    return [each[0] for each in found.values()]


@tap.test("a group without dead letters has none; one that is not there is said to be missing")
def _():
    tap.equal(cluster.json("dlq", "list"), [])
    cluster.run("dlq", "show", "nobody-there", status=cli.NOT_FOUND)
    for args in (("dlq", "resend"), ("dlq", "drop"), ("dlq", "resend", "g", "--all"), ("dlq", "resend", "g", "--rate", "x"), ("dlq", "show", "a b")):
        cluster.run(*args, status=cli.USAGE)


@tap.test("dead letters are counted and shown, with where they came from")
def _():
    sent = bury("shown", "Shown", 3)
    tap.equal([(each["group"], each["left"], each["letters"]) for each in cluster.json("dlq", "list")], [("shown", 3, 3)])
    letters = cluster.json("dlq", "show", "shown")
    tap.equal(sorted((each["id"], each["topic"], each["body"], each["keys"], each["tag"], each["properties"]["mine"]) for each in letters),
              sorted((each["id"], "Shown", "m%d" % n, "k-%d" % n, "t", str(n)) for n, each in enumerate(sent, 1)))
    tap.equal([each["body"] for each in cluster.json("dlq", "show", "shown", "--key", "k-2")], ["m2"])
    tap.equal([each["body"] for each in cluster.json("dlq", "show", "shown", "--id", sent[2]["id"])], ["m3"])
    tap.check("there are more" in cluster.ok("dlq", "show", "shown", "--count", "2").err, "no word of the third")
    tap.equal(len(cluster.ok("dlq", "show", "shown").out.splitlines()), 4)


@tap.test("sent back: a new message with the same id, keys, tag and properties, and the letter is settled")
def _():
    sent = bury("back", "Back", 5)
    tap.equal([each["state"] for each in cluster.json("dlq", "resend", "back", "--dry-run")], ["to be sent"] * 5)
    tap.equal(len(copies("Back")), 0)
    result = cluster.ok("dlq", "resend", "back")
    tap.check("5 resent" in result.err, result)
    tap.equal(left("back"), 0)
    tap.equal(sorted((each["id"], each["body"], each["keys"], each["tag"], each["properties"]["mine"]) for each in once("Back", 5)),
              sorted((each["id"], "m%d" % n, "k-%d" % n, "t", str(n)) for n, each in enumerate(sent, 1)))
    names = {name for each in once("Back", 5) for name in each["properties"]}
    tap.check(not names & {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "ORIGIN_MESSAGE_ID", "REAL_TOPIC", "DELAY", "RECONSUME_TIME"}, names)
    tap.check("0 resent" in cluster.ok("dlq", "resend", "back").err, "again")
    once("Back", 5)
    tap.equal(len(cluster.json("dlq", "show", "back")), 0)
    tap.equal(len(cluster.json("dlq", "show", "back", "--all")), 5)


@tap.test("DL-7 somebody looks, sends a hundred on, drops the rest: every count is right at each step")
def _():
    bury("ward", "Ward", 120)
    tap.equal((left("ward"), len(cluster.json("dlq", "show", "ward", "--count", "1000"))), (120, 120))
    chosen = [arg for n in range(1, 101) for arg in ("--key", "k-%d" % n)]
    states = [each["state"] for each in cluster.json("dlq", "resend", "ward", *chosen)]
    tap.equal((len(states), set(states)), (100, {"resent"}))
    tap.equal({each["body"] for each in once("Ward", 100)}, {"m%d" % n for n in range(1, 101)})
    process.wait_until(lambda: left("ward") == 20, 20, "the notes of the hundred")
    tap.equal(cluster.json("dlq", "drop", "ward", "--yes"), [{"group": "ward", "dropped": 20}])
    tap.equal((left("ward"), cluster.json("dlq", "show", "ward"), cluster.json("dlq", "resend", "ward")), (0, [], []))
    once("Ward", 100)


@tap.test("by key and by id: the others stay, and are sent later, each once")
def _():
    sent = bury("some", "Some", 6)
    states = cluster.json("dlq", "resend", "some", "--key", "k-2", "--id", sent[4]["id"])
    tap.equal(sorted((each["state"], each["id"]) for each in states), sorted(("resent", sent[n]["id"]) for n in (1, 4)))
    tap.equal(sorted(each["body"] for each in once("Some", 2)), ["m2", "m5"])
    process.wait_until(lambda: left("some") == 4, 20, "the notes of the two")
    tap.equal(sorted(each["body"] for each in cluster.json("dlq", "show", "some")), ["m1", "m3", "m4", "m6"])
    cluster.ok("dlq", "resend", "some", "--key", "k-2")
    once("Some", 2)
    states = cluster.json("dlq", "resend", "some")
    tap.equal(sorted(each["state"] for each in states), ["resent"] * 4 + ["resent before"] * 2)
    once("Some", 6)
    tap.equal(left("some"), 0)


@tap.test("to the group alone: through its retry topic, and its consumer gets it as a message of the topic")
def _():
    bury("alone", "Alone", 2)
    cluster.ok("consume", "Alone", "--group", "alone", "--from", "first", "--count", "2")  # so that it has an offset: Apache begins a small queue at 0
    cluster.ok("dlq", "resend", "alone", "--to-group")
    once("%RETRY%alone", 2)
    tap.equal(copies("Alone"), {})
    got = cluster.json("consume", "Alone", "--group", "alone", "--count", "2")
    tap.equal(sorted((each["topic"], each["body"], "ONCEMQ_DEAD_LETTER" in each["properties"]) for each in got), [("Alone", "m1", True), ("Alone", "m2", True)])


@tap.test("all groups at once; a letter that died again is sent again")
def _():
    bury("g1", "All", 2)
    bury("g2", "All", 2)
    result = cluster.ok("dlq", "resend", "--all", "--each")
    tap.equal(len([line for line in result.out.splitlines() if line.startswith("resent  ")]) >= 4, True, result)
    again = once("All", 4)[0]
    with remoting.Client(cluster.broker) as client:
        client.request(remoting.CONSUMER_SEND_MSG_BACK, {"offset": int(again["offset_id"][16:], 16), "group": "g1", "delayLevel": -1, "originMsgId": again["id"],
                                                         "originTopic": "All", "unitMode": "false", "maxReconsumeTimes": 16})
    process.wait_until(lambda: left("g1") == 1, 20, "it is dead once more")
    tap.equal([each["state"] for each in cluster.json("dlq", "resend", "g1")], ["resent"])
    once("All", 5)


@tap.test("a connection that breaks in the middle, for good: what is told is true, and the same command goes on")
def _():
    bury("broken", "Broken", 400)
    with cli.Line(cluster) as line:
        line.cut_after(remoting.SEND_MESSAGE_V2, 150, lose=20, for_good=True)
        result = cluster.run("dlq", "resend", "broken", "--json", "--timeout", "10s", "-n", line.names)
    tap.equal(result.status, cli.PARTLY, result)
    records = cli.check_form("dlq resend", result.out)
    said = json.loads(result.err.splitlines()[-1])
    tap.check("goes on" in said["hint"] and "resent" in said["message"], said)
    there = copies("Broken")
    states = {state: {each["dead_letter"] for each in records if each["state"] == state} for state in ("resent", "unsure", "not stored")}
    tap.check(states["resent"] <= set(there), "told to be sent, but not there")
    tap.check(set(there) <= states["resent"] | states["unsure"], "there, but not told")
    tap.check(not states["not stored"] & set(there), "told not to be sent, but there")
    process.wait_until(lambda: all(cluster.run("query", "Broken", "--id", each[0]["id"]).status == cli.OK for each in list(there.values())[-3:]), 20, "the index")
    result = cluster.ok("dlq", "resend", "broken")
    tap.check("had been before" in result.err, result)
    once("Broken", 400)
    tap.equal(left("broken"), 0)


@tap.test("Ctrl-C in the middle: told with status 130, with a bar that wiped itself, and the same command goes on")
def _():
    bury("stopped", "Stopped", 200)
    with cluster.terminal("dlq", "resend", "stopped", "--rate", "10/s") as t:
        t.expect("sending back ")
        t.signal(signal.SIGINT)
        tap.equal(t.end(), cli.INTERRUPTED)
        said = int(re.search(r"(\d+) resent[^\n]*: stopped", t.text).group(1))
    once("Stopped", said)
    tap.equal(left("stopped"), 200 - said)
    cluster.ok("dlq", "resend", "stopped")
    once("Stopped", 200)


@tap.test("producer dedup that knows the id takes no copy: told as a duplicate, the letter stays, --to-group gets by")
def _():
    if cluster.apache:
        tap.skip("Apache's broker has no producer dedup")
    cluster.ok("topic", "create", "Dedup", "--attribute", "dedup.key=UNIQ_KEY")
    bury("dedup", "Dedup", 2)
    result = cluster.run("dlq", "resend", "dedup", "--json", status=cli.PARTLY)
    tap.equal([each["state"] for each in cli.check_form("dlq resend", result.out)], ["duplicate"] * 2)
    tap.equal((copies("Dedup"), left("dedup")), ({}, 2))
    cluster.ok("dlq", "resend", "dedup", "--to-group")
    once("%RETRY%dedup", 2)


@tap.test("drop asks on a terminal, wants --yes elsewhere, and passes over what is dropped")
def _():
    bury("dropped", "Dropped", 4)
    cluster.run("dlq", "drop", "dropped", status=cli.DECLINED)
    with cluster.terminal("dlq", "drop", "dropped") as t:
        t.expect("[y/N]").type("n\n")
        tap.equal(t.end(), cli.DECLINED)
    tap.equal(left("dropped"), 4)
    tap.equal(cluster.json("dlq", "drop", "dropped", "--before", "-1h", "--yes"), [{"group": "dropped", "dropped": 0}])
    with cluster.terminal("dlq", "drop", "dropped") as t:
        t.expect("Drop 4 dead letters of dropped?").type("y\n")
        tap.equal(t.end(), cli.OK)
    tap.equal((left("dropped"), len(cluster.json("dlq", "show", "dropped"))), (0, 0))
    tap.check("0 resent" in cluster.ok("dlq", "resend", "dropped").err, "a dropped letter")
    tap.equal(len(cluster.json("dlq", "show", "dropped", "--all")), 4)


def bodies(group, *more):
    return sorted(each["body"] for each in cluster.json("dlq", "show", group, *more))


@tap.test("dropped by key and by id: asked for with their number, then not left, shown, sent back or dropped again")
def _():
    sent = bury("chosen", "Chosen", 6)
    chosen = ("dlq", "drop", "chosen", "--key", "k-2", "--id", sent[4]["id"])
    cluster.run(*chosen, status=cli.DECLINED)
    with cluster.terminal(*chosen) as t:
        t.expect("Drop 2 dead letters of chosen?").type("n\n")
        tap.equal(t.end(), cli.DECLINED)
    tap.equal(cluster.json(*chosen, "--dry-run"), [{"group": "chosen", "dropped": 2}])
    tap.equal((left("chosen"), len(bodies("chosen"))), (6, 6))
    result = cluster.ok(*chosen, "--yes")
    tap.check("2 dropped, 4 left alone" in result.err, result)
    process.wait_until(lambda: left("chosen") == 4, 20, "the notes")
    tap.equal(bodies("chosen"), ["m1", "m3", "m4", "m6"])
    tap.equal(sorted((each["body"], each["settled"]) for each in cluster.json("dlq", "show", "chosen", "--all")),
              [("m1", None), ("m2", "dropped"), ("m3", None), ("m4", None), ("m5", "dropped"), ("m6", None)])
    tap.equal(cluster.json(*chosen, "--yes"), [{"group": "chosen", "dropped": 0}])
    states = {each["id"]: each["state"] for each in cluster.json("dlq", "resend", "chosen")}
    tap.equal([states[each["id"]] for each in sent], ["resent", "dropped before", "resent", "resent", "dropped before", "resent"])
    tap.equal(sorted(each["body"] for each in once("Chosen", 4)), ["m1", "m3", "m4", "m6"])
    tap.equal((left("chosen"), bodies("chosen"), cluster.json("dlq", "resend", "chosen")), (0, [], []))
    tap.equal(bodies("chosen", "--all"), ["m%d" % n for n in range(1, 7)])


@tap.test("one after the other, until none is left: the group is not listed; the rest dropped at once is counted without them")
def _():
    bury("each", "Each", 3)
    for n in (3, 1, 2):
        tap.equal(cluster.json("dlq", "drop", "each", "--key", "k-%d" % n, "--yes"), [{"group": "each", "dropped": 1}])
        process.wait_until(lambda: "m%d" % n not in bodies("each"), 20, "the note")
    tap.equal((left("each"), left("each", "--all"), bodies("each")), (0, 0, []))
    bury("rest", "Rest", 5)
    cluster.ok("dlq", "drop", "rest", "--key", "k-2", "--key", "k-4", "--yes")
    process.wait_until(lambda: left("rest") == 3, 20, "the notes")
    tap.equal(cluster.json("dlq", "drop", "rest", "--dry-run"), [{"group": "rest", "dropped": 3}])
    with cluster.terminal("dlq", "drop", "rest") as t:
        t.expect("Drop 3 dead letters of rest?").type("y\n")
        tap.equal(t.end(), cli.OK)
    tap.equal((left("rest"), bodies("rest")), (0, []))


@tap.test("one key in all groups; letters that are younger stay")
def _():
    bury("a1", "Both", 2)
    bury("a2", "Both", 2)
    cluster.ok("dlq", "drop", "--all", "--key", "k-1", "--before", "-1h", "--yes")
    tap.equal((left("a1"), left("a2")), (2, 2))
    dropped = cluster.json("dlq", "drop", "--all", "--key", "k-1", "--yes")
    tap.check({"group": "a1", "dropped": 1} in dropped and {"group": "a2", "dropped": 1} in dropped, dropped)
    process.wait_until(lambda: (left("a1"), left("a2")) == (1, 1), 20, "the notes")


@tap.test("a letter that cannot be sent back, for it does not say where to: told, and it alone is left, until it is dropped")
def _():
    cluster.ok("topic", "create", "%DLQ%lost", "--queues", "1")
    lost, = cluster.json("send", "%DLQ%lost", "from nowhere")
    bury("lost", "Lost", 3)
    result = cluster.run("dlq", "resend", "lost", status=cli.PARTLY)
    tap.check("3 resent, 1 not sent: dead letter %s does not say" % lost["offset_id"] in result.err, result)
    process.wait_until(lambda: left("lost") == 1, 20, "the notes of those behind it")
    tap.equal((bodies("lost"), len(once("Lost", 3))), (["from nowhere"], 3))
    tap.equal(cluster.json("dlq", "drop", "lost", "--id", lost["id"], "--yes"), [{"group": "lost", "dropped": 1}])
    process.wait_until(lambda: left("lost") == 0, 20, "its note")


@tap.test("a connection that breaks while letters are dropped by key: what is told is true, and the same command goes on")
def _():
    bury("halved", "Halved", 300, "same")
    with cli.Line(cluster) as line:
        line.cut_after(remoting.SEND_MESSAGE_V2, 100, lose=20, for_good=True)
        result = cluster.run("dlq", "drop", "halved", "--key", "same", "--yes", "--json", "--timeout", "10s", "-n", line.names)
    tap.equal(result.status, cli.PARTLY, result)
    told = cli.check_form("dlq drop", result.out)[0]["dropped"]
    unsure = int((re.search(r"(\d+) unsure", result.err) or [0, 0])[1])
    tap.check("goes on" in json.loads(result.err.splitlines()[-1])["hint"], result)
    process.wait_until(lambda: left("halved") <= 300 - told, 20, "the notes")
    there = 300 - left("halved")
    tap.check(told <= there <= told + unsure, (told, there, unsure))
    cluster.ok("dlq", "drop", "halved", "--key", "same", "--yes")
    process.wait_until(lambda: left("halved") == 0, 20, "the notes of the others")
    tap.equal((bodies("halved"), copies("Halved")), ([], {}))


@tap.test("what is dropped while letters are sent back slowly is not sent back")
def _():
    bury("slow", "Slow", 8)
    with cluster.terminal("dlq", "resend", "slow", "--rate", "1/s") as t:
        t.expect("sending back ")
        process.freeze(t.pid)
        cluster.ok("dlq", "drop", "slow", "--key", "k-8", "--yes")
        process.wait_until(lambda: "m8" not in bodies("slow"), 20, "the note")
        t.signal(signal.SIGCONT)
        tap.equal(t.end(), cli.OK)
        tap.check("7 resent, 1 had been dropped" in t.text, t.text)
    tap.equal(sorted(each["body"] for each in once("Slow", 7)), ["m%d" % n for n in range(1, 8)])


@tap.test("a note that somebody consumed and that died is a letter of theirs, and settles none of theirs")
def _():
    bury("first", "Notes", 2)
    bury("second", "Notes", 2)
    cluster.ok("dlq", "drop", "first", "--key", "k-1", "--yes")
    process.wait_until(lambda: left("first") == 1, 20, "the note")
    note, = [each for each in cluster.json("consume", "%DLQ%first", "--end") if "ONCEMQ_SETTLED" in each["properties"]]
    with remoting.Client(cluster.broker) as client:
        client.request(remoting.CONSUMER_SEND_MSG_BACK, {"offset": int(note["offset_id"][16:], 16), "group": "second", "delayLevel": -1,
                                                         "originMsgId": note["id"], "originTopic": "%DLQ%first", "unitMode": "false", "maxReconsumeTimes": 16})
    process.wait_until(lambda: left("second") == 3, 20, "the note is dead")
    tap.equal(bodies("second"), ["dropped", "m1", "m2"])


tap.main()
