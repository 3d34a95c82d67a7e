"""Groups from the command line: list, show, set, delete, reset; and how far they lag."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, process, remoting as r, tap  # noqa: E402

cluster = cli.Cluster()
RESET_CLIENT = 220


def make(topic, queues=2, messages=10):
    cluster.ok("topic", "create", topic, "--queues", str(queues))
    with r.Client(cluster.broker) as client:
        for queue in range(queues):
            for i in range(messages):
                answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"%d" % i, queue_id=queue))
                tap.equal(answer.code, r.SUCCESS, "a send (%s)" % answer.remark)
    process.wait_until(lambda: cluster.json("topic", "show", topic)["messages"] == queues * messages, 10, "messages", pause=0.1)


def commit(group, topic, *offsets):
    cluster.ok("group", "set", group)
    with r.Client(cluster.broker) as client:
        for queue, offset in enumerate(offsets):
            answer = client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})
            tap.equal(answer.code, r.SUCCESS, "a commit (%s)" % answer.remark)


def offset_of(group, topic, queue=0):
    with r.Client(cluster.broker) as client:
        found = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "setZeroIfNotFound": False})
    return int(found.ext["offset"]) if found.code == r.SUCCESS else None


def heartbeat(client, client_id, group, topic):
    subscription = {"topic": topic, "subString": "a || b", "tagsSet": ["a", "b"], "codeSet": [97, 98], "subVersion": 1, "expressionType": "TAG",
                    "classFilterMode": False}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False, "subscriptionDataSet": [subscription]}
    answer = client.request(r.HEART_BEAT, body=r.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}))
    tap.equal(answer.code, r.SUCCESS, "heartbeat (%s)" % answer.remark)


def pull(client, group, topic, offset, queue=0):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
        "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1, "expressionType": "TAG"})


def plan(rows):
    return [(row["queue"], row["old"], row["new"], row["move"]) for row in rows]


@tap.test("group set makes a group, changes one setting at a time, and leaves alone what is as wished")
def _():
    [row] = cluster.json("group", "set", "billing", "--retry-max", "5", "--orderly", "yes")
    # Apache's broker makes a group that a client once asked about
    tap.check(row["result"] in ("created", "changed") and row["retry_max"] == 5 and row["orderly"] and row["enabled"], row)
    [row] = cluster.json("group", "set", "billing", "--retry-max", "5")
    tap.equal((row["result"], row["orderly"]), ("unchanged", True))
    [row] = cluster.json("group", "set", "billing", "--enable", "no", "--consume-timeout", "20m")
    tap.equal((row["result"], row["enabled"], row["retry_max"], row["consume_timeout"]), ("changed", False, 5, 1200000))
    [shown] = cluster.json("group", "show", "billing")["brokers"]
    tap.equal((shown["enabled"], shown["retry_max"], shown["orderly"], shown["consume_timeout"]), (False, 5, True, 1200000), "as the broker has it")
    with r.Client(cluster.broker) as client:
        config = client.request(352, {"group": "billing"}).json()
    tap.equal((config["retryQueueNums"], config["groupRetryPolicy"]["type"]), (1, "CUSTOMIZED"), "what nobody spoke of")


@tap.test("group list shows the user's groups, with --long their lag, and looking makes none")
def _():
    make("Listed")
    commit("listed_group", "Listed", 4, 10)
    rows = {row["group"]: row for row in cluster.json("group", "list", "--long")}
    row = rows["listed_group"]
    tap.equal((row["brokers"], row["enabled"], row["clients"], row["topics"], row["lag"]), (1, True, 0, 1, 6))
    tap.check("LAG" in cluster.ok("group", "list", "-l").out and "LAG" not in cluster.ok("group", "list").out, "columns")
    every = [row["group"] for row in cluster.json("group", "list", "-a")]
    tap.check("TOOLS_CONSUMER" in every and "TOOLS_CONSUMER" not in rows, every)
    for command in (("group", "show", "listed_grup"), ("lag", "--group", "listed_grup"), ("group", "delete", "listed_grup", "--yes"),
                    ("group", "reset", "listed_grup", "--to", "latest", "--yes")):
        result = cluster.run(*command, status=cli.NOT_FOUND)
        tap.check("no group listed_grup" in result.err and "did you mean listed_group" in result.err, result)
    tap.check("listed_grup" not in [row["group"] for row in cluster.json("group", "list", "-a")], "a question made a group")


@tap.test("group show: consumers that are connected, what they read, and how far they are")
def _():
    make("Seen")
    commit("seen_group", "Seen", 3, 10)
    with r.Client(cluster.broker) as client:
        heartbeat(client, "me@1", "seen_group", "Seen")
        shown = cluster.json("group", "show", "seen_group")
    tap.equal((shown["clients_online"], shown["model"], shown["consume_type"], shown["from"]),
              (1, "CLUSTERING", "CONSUME_PASSIVELY", "CONSUME_FROM_FIRST_OFFSET"))
    tap.equal([(c["client"], c["language"]) for c in shown["clients"]], [("me@1", "PYTHON")])
    tap.check(re.fullmatch(r"[45]\.\d\.\d", shown["clients"][0]["version"]), shown["clients"])
    tap.check([s for s in shown["subscriptions"] if (s["topic"], s["expression"], s["type"]) == ("Seen", "a || b", "TAG")], shown)
    tap.equal([(q["queue"], q["offset"], q["end"], q["lag"]) for q in shown["queues"]], [(0, 3, 10, 7), (1, 10, 10, 0)])
    tap.check(shown["lag"] == 7 and shown["dead"] == 0, shown)
    process.wait_until(lambda: "me@1" not in cluster.ok("group", "show", "seen_group").out, 10, "it has left", pause=0.1)


@tap.test("group reset --dry-run shows each queue's old and new offset, and changes nothing")
def _():
    make("Moved")
    commit("moved_group", "Moved", 4, 7)
    for where, wanted in (("earliest", [(0, 4, 0, -4), (1, 7, 0, -7)]), ("latest", [(0, 4, 10, 6), (1, 7, 10, 3)]),
                          ("offset:6", [(0, 4, 6, 2), (1, 7, 6, -1)]), ("offset:99", [(0, 4, 10, 6), (1, 7, 10, 3)]),
                          ("-1h", [(0, 4, 0, -4), (1, 7, 0, -7)]), ("now", [(0, 4, 10, 6), (1, 7, 10, 3)])):
        rows = cluster.json("group", "reset", "moved_group", "--to", where, "--dry-run")
        tap.equal(plan(rows), wanted, where)
        tap.check(all(row["result"] == "planned" and (row["min"], row["max"]) == (0, 10) for row in rows), rows)
    tap.equal((offset_of("moved_group", "Moved"), offset_of("moved_group", "Moved", 1)), (4, 7))


@tap.test("group reset asks, says what it means, and then the group is there: earliest, latest, time, offset, one queue")
def _():
    commit("moved_group", "Moved", 4, 7)
    result = cluster.run("group", "reset", "moved_group", "--to", "earliest", status=cli.DECLINED)
    tap.check("11 messages will be consumed again, 0 skipped" in result.err, result)
    with cluster.terminal("group", "reset", "moved_group", "--to", "latest") as t:
        t.expect("9 skipped").expect("[y/N]").type("no\n")
        tap.equal(t.end(), cli.DECLINED)
    tap.equal(offset_of("moved_group", "Moved"), 4)
    with cluster.terminal("group", "reset", "moved_group", "--to", "latest") as t:
        t.expect("[y/N]").type("y\n")
        tap.equal(t.end(), cli.OK)
        tap.check("reset" in t.text, t.text)
    tap.equal((offset_of("moved_group", "Moved"), offset_of("moved_group", "Moved", 1)), (10, 10))
    for args, wanted in ((("--to", "earliest"), (0, 0)), (("--to", "offset:6", "--topic", "Moved"), (6, 6)),
                         (("--to", "latest", "--queue", "1"), (6, 10)), (("--to", "-1h"), (0, 0))):
        rows = cluster.json("group", "reset", "moved_group", *args, "--yes")
        tap.check(all(row["result"] == "reset" for row in rows), rows)
        tap.equal((offset_of("moved_group", "Moved"), offset_of("moved_group", "Moved", 1)), wanted, args)
        tap.check(all(row["new"] == wanted[row["queue"]] for row in rows), rows)


@tap.test("group reset in a topic that the group never read sets where it begins")
def _():
    make("Fresh")
    cluster.ok("group", "set", "fresh_group")
    tap.check("--topic" in cluster.run("group", "reset", "fresh_group", "--to", "latest", "--yes", status=cli.NOT_FOUND).err, "no way is shown")
    rows = cluster.json("group", "reset", "fresh_group", "--topic", "Fresh", "--to", "latest", "--yes")
    tap.equal([(row["old"], row["new"]) for row in rows], [(None, 10), (None, 10)])
    tap.equal(offset_of("fresh_group", "Fresh"), 10)


@tap.test("group reset reaches consumers that are connected: their next pull is sent elsewhere")
def _():
    make("Live")
    commit("live_group", "Live", 8, 8)
    with r.Client(cluster.broker) as client:
        heartbeat(client, "live@1", "live_group", "Live")
        result = cluster.run("group", "reset", "live_group", "--to", "offset:2", status=cli.DECLINED)
        tap.check("1 consumers are connected" in result.err, result)
        cluster.ok("group", "reset", "live_group", "--to", "offset:2", "--yes")
        answer = pull(client, "live_group", "Live", 8)
        tap.equal((answer.code, answer.ext["nextBeginOffset"]), (21, "2"), "PULL_OFFSET_MOVED")


@tap.test("group reset where brokers leave it to the consumers: these are told; an offline group's offsets are written")
def _():
    make("Told")
    commit("told_group", "Told", 5, 5)
    cluster.ok("broker", "config", "useServerSideResetOffset=false", "--yes")
    try:
        rows = cluster.json("group", "reset", "told_group", "--to", "earliest", "--yes")
        tap.equal([row["result"] for row in rows], ["reset", "reset"])
        tap.equal((offset_of("told_group", "Told"), offset_of("told_group", "Told", 1)), (0, 0), "offline, all queues")
        cluster.json("group", "reset", "told_group", "--to", "offset:4", "--queue", "1", "--yes")
        tap.equal((offset_of("told_group", "Told"), offset_of("told_group", "Told", 1)), (0, 4), "offline, one queue")
        with r.Client(cluster.broker) as client:
            heartbeat(client, "told@1", "told_group", "Told")
            cluster.ok("group", "reset", "told_group", "--to", "latest", "--yes")
            told = client.wait_pushed(RESET_CLIENT)
            tap.equal((told.ext["group"], told.ext["topic"]), ("told_group", "Told"))
            result = cluster.run("group", "reset", "told_group", "--to", "offset:1", "--yes", status=cli.FAILED)
            tap.check("single queues" in result.err and "nothing was changed" in result.err, result)
    finally:
        cluster.ok("broker", "config", "useServerSideResetOffset=true", "--yes")


@tap.test("a reset that makes no sense does nothing")
def _():
    for args in ((), ("--to", "somewhere"), ("--to", "offset:-1"), ("--to", "offset:x"), ("--to", "latest", "--queue", "x")):
        cluster.run("group", "reset", "moved_group", *args, "--yes", status=cli.USAGE)
    cluster.run("group", "reset", "moved_group", "--to", "latest", "--queue", "7", "--yes", status=cli.NOT_FOUND)
    cluster.run("group", "reset", "moved_group", "--to", "latest", "--topic", "Mooved", "--yes", status=cli.NOT_FOUND)
    for name in ("with blank", "x" * 121):
        cluster.run("group", "set", name, status=cli.USAGE)
        cluster.run("group", "reset", name, "--to", "latest", status=cli.USAGE)
    for args in (("--consume-timeout", "90s"), ("--retry-queues", "0"), ("--enable", "maybe")):
        cluster.run("group", "set", "moved_group", *args, status=cli.USAGE)


@tap.test("group delete asks, and takes settings and offsets away, or leaves the offsets")
def _():
    make("Left")
    commit("left_group", "Left", 3, 3)
    commit("kept_group", "Left", 3, 3)
    result = cluster.run("group", "delete", "left_group", status=cli.DECLINED)
    tap.check("14 messages not consumed" in result.err, result)
    with cluster.terminal("group", "delete", "left_group") as t:
        t.expect("[y/N]").type("y\n")
        tap.equal(t.end(), cli.OK)
    tap.equal(offset_of("left_group", "Left"), None)
    [row] = cluster.json("group", "delete", "kept_group", "--keep-offsets", "--yes")
    tap.equal(row["result"], "deleted")
    names = [row["group"] for row in cluster.json("group", "list")]
    tap.check("left_group" not in names, names)
    tap.check("kept_group" not in names or cluster.apache, names)  # Apache's broker makes it anew
    tap.equal(offset_of("kept_group", "Left"), 3)
    cluster.run("group", "delete", "TOOLS_CONSUMER", "--yes", status=cli.USAGE)


@tap.test("group delete --topics takes the retry topic and the dead letters away, too")
def _():
    cluster.ok("group", "set", "gone_group")
    with r.Client(cluster.broker) as client:
        for topic in ("%RETRY%gone_group", "%DLQ%gone_group"):
            client.request(r.UPDATE_AND_CREATE_TOPIC, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
        client.request(r.SEND_MESSAGE_V2, *r.send_v2("%DLQ%gone_group", b"x", queue_id=0))
    process.wait_until(lambda: cluster.json("group", "show", "gone_group")["dead"] == 1, 10, "a dead letter", pause=0.1)
    tap.check("1 dead letters" in cluster.run("group", "delete", "gone_group", "--topics", status=cli.DECLINED).err, "it is not said")
    cluster.json("group", "delete", "gone_group", "--topics", "--yes")
    names = [row["topic"] for row in cluster.json("topic", "list", "-a")]
    tap.check("%RETRY%gone_group" not in names and "%DLQ%gone_group" not in names, names)


@tap.test("lag: by topic, by queue, only what lags; bad without a consumer")
def _():
    make("Behind")
    commit("behind_group", "Behind", 2, 10)
    [row] = cluster.json("lag", "-g", "behind_group")
    tap.equal((row["topic"], row["queues"], row["lag"], row["clients"], row["state"]), ("Behind", 2, 8, 0, "bad"))
    tap.check(0 <= row["behind"] < 600000, row)
    rows = cluster.json("lag", "-g", "behind_group", "--queues")
    tap.equal([(q["queue"], q["offset"], q["end"], q["lag"], q["state"]) for q in rows], [(0, 2, 10, 8, "bad"), (1, 10, 10, 0, "ok")])
    tap.equal(rows[1]["behind"], 0)
    tap.equal([q["queue"] for q in cluster.json("lag", "-g", "behind_group", "--queues", "--behind")], [0])
    tap.equal(cluster.json("lag", "-g", "behind_group", "-t", "Other"), [])
    groups = {row["group"] for row in cluster.json("lag")}
    tap.check({"behind_group", "listed_group"} <= groups, groups)
    table = cluster.ok("lag", "-g", "behind_group").out
    tap.check("BEHIND" in table and "\033" not in table, table)


@tap.test("lag --watch shows it again with the rate since the last look, and ends with Ctrl-C")
def _():
    commit("behind_group", "Behind", 2, 10)
    with cluster.start("lag", "-g", "behind_group", "--watch", "200ms", "--json") as child:
        [row] = json.loads(child.read_line(20))
        tap.equal(row["lag"], 8)
        commit("behind_group", "Behind", 7)
        while row["lag"] == 8:
            [row] = json.loads(child.read_line(20))
        tap.check(row["lag"] == 3 and row["rate"] > 0, row)
    with cluster.terminal("lag", "-g", "behind_group", "-w", "100ms") as t:
        t.expect("behind_group").expect("\033[H\033[2J")
        t.signal(2)
        tap.equal(t.end(), cli.INTERRUPTED)


@tap.test("answers about groups that make no sense are read with care")
def _():
    def answer(request):
        if request.code == 106:
            return fake.reply(body=r.dumps({"brokerAddrTable": {"b": {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": server.address}}}}))
        return fake.reply(body=bodies.get(request.code, b"{}"))
    groups = b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":"many"},"\\u001b[2J":7,"h":null}}'
    strange = ({201: b'{"subscriptionGroupTable":[1,{}]}'}, {201: b"[]"}, {201: groups},
               {201: groups, 208: b'{"consumeTps":"NaN","offsetTable":{{"topic":"T"}:{"brokerOffset":-1,"consumerOffset":9223372036854775807},'
                                  b'{"queueId":99999999999}:{"brokerOffset":9223372036854775807,"consumerOffset":-9223372036854775808,"lastTimestamp":-5}}}'},
               {201: groups, 203: b'{"connectionSet":[7,{"clientId":{}}],"subscriptionTable":[[]]}'})
    for bodies in strange:
        server = fake.Fake(answer)
        for command in (("group", "list", "-l", "-a"), ("lag",), ("lag", "--queues")):
            result = cluster.run(*command, "-n", server.address, status=cli.OK)
            tap.check("\033" not in result.out, result)
            cluster.json(*command, "-n", server.address)
        server.close()


tap.main()
