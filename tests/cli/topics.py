"""Topics from the command line: list, show, create, set, delete; on several brokers, and before servers that lie."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

cluster = cli.Cluster()
CLUSTER_INFO, ALL_TOPICS, TOPIC_CONFIGS, TOPIC_STATS = 106, 206, 21, 202


def send(topic, n=1, queue=0):
    with r.Client(cluster.broker) as client:
        for i in range(n):
            answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"%d" % i, queue_id=queue))
            tap.equal(answer.code, r.SUCCESS, "a send (%s)" % answer.remark)


def commit(group, topic, offset, queue=0):
    with r.Client(cluster.broker) as client:
        client.request(200, body=r.dumps({"groupName": group}))
        client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})


def results(rows):
    return [row["result"] for row in rows]


def listed(topic):
    found = [row for row in cluster.json("topic", "list") if row["topic"] == topic]
    return found[0] if found else None


@tap.test("topic create makes a topic that can be used at once, and the second time leaves it alone")
def _():
    [row] = cluster.json("topic", "create", "Made", "--queues", "3")
    tap.equal((row["result"], row["write_queues"], row["read_queues"], row["perm"], row["order"]), ("created", 3, 3, "rw", False))
    with r.Client(cluster.names) as client:
        tap.equal(client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Made"}).code, r.SUCCESS, "its route")
    tap.equal(results(cluster.json("topic", "create", "Made", "--queues", "3")), ["unchanged"])
    tap.equal(results(cluster.json("topic", "create", "Made")), ["unchanged"])
    [row] = cluster.json("topic", "create", "Made", "--write-queues", "4", "--read-queues", "5", "--order", "yes")
    tap.equal((row["result"], row["write_queues"], row["read_queues"], row["order"]), ("changed", 4, 5, True))
    row = listed("Made")
    tap.equal((row["type"], row["perm"], row["write_queues"], row["read_queues"], row["brokers"]), ("NORMAL", "rw", 4, 5, 1))


@tap.test("topic set changes permission, type and attributes, one by one, and nothing else")
def _():
    cluster.ok("topic", "create", "Changed", "--queues", "2")
    [row] = cluster.json("topic", "set", "Changed", "--perm", "r")
    tap.equal((row["result"], row["perm"], row["write_queues"]), ("changed", "r", 2))
    [row] = cluster.json("topic", "set", "Changed", "--perm", "rw", "--type", "FIFO")
    tap.equal((row["perm"], row["attributes"]), ("rw", {"message.type": "FIFO"}))
    tap.equal(listed("Changed")["type"], "FIFO")
    tap.equal(results(cluster.json("topic", "set", "Changed", "--attribute", "+message.type=FIFO")), ["unchanged"])
    [row] = cluster.json("topic", "set", "Changed", "--attribute", "message.type=DELAY", "--attribute", "+reserve.time=3")
    tap.equal(row["attributes"], {"message.type": "DELAY", "reserve.time": "3"})
    [row] = cluster.json("topic", "set", "Changed", "--attribute", "-message.type")
    tap.equal(row["attributes"], {"reserve.time": "3"})


@tap.test("topic create --dedup: what is sent twice is stored once")
def _():
    if cluster.apache:
        tap.skip("Apache's broker has no dedup.key")
    [row] = cluster.json("topic", "create", "Once", "--dedup", "UNIQ_KEY", "--queues", "1")
    tap.equal((row["result"], row["attributes"]), ("created", {"dedup.key": "UNIQ_KEY"}))
    with r.Client(cluster.broker) as client:
        for _i in range(2):
            client.request(r.SEND_MESSAGE_V2, *r.send_v2("Once", b"x", {"UNIQ_KEY": "same"}, queue_id=0))
    tap.equal(cluster.json("topic", "show", "Once")["messages"], 1)
    tap.equal(results(cluster.json("topic", "set", "Once", "--dedup", "OFF")), ["changed"])


@tap.test("a refusal of the broker is said with its words, and the row says failed")
def _():
    cluster.ok("topic", "create", "Refused")
    result = cluster.run("topic", "set", "Refused", "--attribute", "+no.such.key=1", status=cli.FAILED)
    tap.check("no.such.key" in result.err and "failed" in result.out, result)


@tap.test("topic show: brokers, queues with offsets, groups with lag")
def _():
    cluster.ok("topic", "create", "Shown", "--queues", "2")
    send("Shown", 3, queue=0)
    send("Shown", 2, queue=1)
    commit("show_group", "Shown", 1)
    commit("show_group", "Shown", 2, queue=1)
    process.wait_until(lambda: cluster.json("topic", "show", "Shown")["messages"] == 5, 10, "all messages", pause=0.1)
    shown = cluster.json("topic", "show", "Shown")
    tap.equal([(q["queue"], q["min"], q["max"], q["messages"]) for q in shown["queues"]], [(0, 0, 3, 3), (1, 0, 2, 2)])
    tap.check(all(abs(q["last"] - time.time() * 1000) < 600000 for q in shown["queues"]), shown["queues"])
    tap.equal([(b["address"], b["write_queues"], b["perm"]) for b in shown["brokers"]], [(cluster.broker, 2, "rw")])
    tap.equal([(g["group"], g["clients"], g["lag"]) for g in shown["groups"]], [("show_group", 0, 2)])
    text = cluster.ok("topic", "show", "Shown").out
    tap.check("Messages" in text and "QUEUE" in text and "show_group" in text, text)
    [row] = [row for row in cluster.json("topic", "list", "--long") if row["topic"] == "Shown"]
    tap.equal((row["messages"], row["groups"]), (5, 1), "--long")
    tap.check("MESSAGES" in cluster.ok("topic", "list", "-l").out and "MESSAGES" not in cluster.ok("topic", "list").out, "columns")


@tap.test("topic list hides what is no user's, and --all shows it")
def _():
    names = [row["topic"] for row in cluster.json("topic", "list")]
    every = [row["topic"] for row in cluster.json("topic", "list", "-a")]
    tap.check("Made" in names and set(names) < set(every), (names, every))
    tap.check(all(hidden in every and hidden not in names for hidden in ("TBW102", "DefaultCluster", "SCHEDULE_TOPIC_XXXX")), every)
    tap.equal(every, sorted(every))


@tap.test("names that no broker takes are refused before anything is asked")
def _():
    for name, word in (("with blank", "character"), ("x" * 128, "127"), ("TBW102", "system"), ("ümlaut", "character")):
        for command in (("topic", "create", name), ("topic", "delete", name, "--yes")):
            result = cluster.run(*command, status=cli.USAGE)
            tap.check(word in result.err, result)
    for option in (("--queues", "0"), ("--perm", "x"), ("--type", "FIFOO"), ("--attribute", "a,b=c"), ("--attribute", "+=1")):
        cluster.run("topic", "create", "Senseless", *option, status=cli.USAGE)
    tap.equal(listed("Senseless"), None)


@tap.test("what is not there is said, with the name that was probably meant")
def _():
    for command in (("topic", "show", "Mode"), ("topic", "set", "Mode", "--queues", "9"), ("topic", "delete", "Mode", "--yes")):
        result = cluster.run(*command, status=cli.NOT_FOUND)
        tap.check("no topic Mode" in result.err and "did you mean Made" in result.err, result)
    cluster.run("topic", "list", "--broker", "nobody", status=cli.NOT_FOUND)
    cluster.run("topic", "create", "X", "--cluster", "nowhere", status=cli.NOT_FOUND)


@tap.test("fewer queues to read ask first")
def _():
    cluster.ok("topic", "create", "Shrunk", "--queues", "4")
    tap.check("--yes" in cluster.run("topic", "set", "Shrunk", "--queues", "2", status=cli.DECLINED).err, "no way is shown")
    with cluster.terminal("topic", "set", "Shrunk", "--queues", "2") as t:
        t.expect("4 queues to read").expect("[y/N]").type("n\n")
        tap.equal(t.end(), cli.DECLINED)
    tap.equal(listed("Shrunk")["read_queues"], 4)
    with cluster.terminal("topic", "set", "Shrunk", "--queues", "2") as t:
        t.expect("[y/N]").type("y\n")
        tap.equal(t.end(), cli.OK)
    tap.equal(listed("Shrunk")["read_queues"], 2)


@tap.test("topic delete asks, tells what is at stake, and deletes on brokers and name servers")
def _():
    cluster.ok("topic", "create", "Doomed", "--queues", "1")
    cluster.ok("topic", "create", "Doomed2", "--queues", "1")
    send("Doomed", 2)
    commit("doomed_group", "Doomed", 1)
    process.wait_until(lambda: cluster.json("topic", "show", "Doomed")["messages"] == 2, 10, "messages", pause=0.1)
    with cluster.terminal("topic", "delete", "Doomed") as t:
        t.expect("2 messages").expect("doomed_group").expect("[y/N]").type("\n")
        tap.equal(t.end(), cli.DECLINED)
    tap.check(listed("Doomed"), "it was deleted in spite of a no")
    with cluster.terminal("topic", "delete", "Doomed", "Doomed2") as t:
        t.expect("2 topics").expect("[y/N]").type("yes\n")
        tap.equal(t.end(), cli.OK)
    tap.equal((listed("Doomed"), listed("Doomed2")), (None, None))
    with r.Client(cluster.names) as client:
        tap.equal(client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Doomed"}).code, r.TOPIC_NOT_EXIST, "its route")
    cluster.ok("topic", "create", "Doomed3")
    rows = cluster.json("topic", "delete", "Doomed3", "--yes")
    tap.equal([row["result"] for row in rows], ["deleted", "deleted"])


@tap.test("several brokers: a topic is made on all, or on the one that is named; a dead one does not hide the others")
def _():
    if cluster.apache:
        tap.skip("one broker of Apache's is enough for this machine")
    with Daemon(roles="broker", settings={"namesrvAddr": cluster.names, "brokerName": "second"}) as second:
        process.wait_until(lambda: len(cluster.json("topic", "create", "Both", "--queues", "2")) == 2, 30, "both brokers", pause=0.1)
        tap.equal(listed("Both")["brokers"], 2)
        tap.equal([row["broker"] for row in cluster.json("topic", "create", "Single", "--broker", "second")], ["second"])
        tap.equal([row["broker"] for row in cluster.json("topic", "create", "Single2", "--broker", second.broker)], ["second"])
        tap.equal([row["broker"] for row in cluster.json("topic", "set", "Single", "--order", "yes")], ["second"])
        process.freeze(second.pid)  # it is there, and says nothing
        try:
            begin = time.monotonic()
            result = cluster.run("topic", "list", "--long", "--timeout", "4s", status=cli.PARTLY)
            tap.check(time.monotonic() - begin < 20, "one timeout after another: %.1f s" % (time.monotonic() - begin))
            tap.check("Made" in result.out and "Single" in result.out and result.err.count("broker second") == 1, result)
            result = cluster.run("topic", "create", "Both", "--order", "yes", "--timeout", "4s", status=cli.UNREACHABLE)
            tap.check("broker second" in result.err and "nothing was changed" in result.err, result)
        finally:
            second.child.process.send_signal(18)
        tap.equal(results(cluster.json("topic", "create", "Both")), ["unchanged", "unchanged"], "nothing was changed on the other one")
        second.stop()
    process.wait_until(lambda: listed("Single") is None, 30, "the broker has said goodbye", pause=0.1)


# Servers that lie -----------------------------------------------------------------------------------------------------

def lying(answers, broker="127.0.0.1:1"):
    """A name server, which is the broker as well, with these bodies by request code."""
    info = {"brokerAddrTable": {"b": {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": broker}}}}

    def answer(request):
        body = answers.get(request.code)
        if body is None and request.code == CLUSTER_INFO:
            body = r.dumps(info).replace(b"127.0.0.1:1", server.address.encode())
        return fake.reply(body=body if body is not None else b"{}")
    server = fake.Fake(answer)
    return server


@tap.test("a broker without a master is read from its slave, and not changed")
def _():
    def answer(request):
        if request.code == CLUSTER_INFO:
            brokers = {"b": {"brokerName": "b", "cluster": "c", "brokerAddrs": {"2": "127.0.0.1:1", "1": server.address}}}
            return fake.reply(body=r.dumps({"brokerAddrTable": brokers}))
        return fake.reply(body=b'{"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":2,"writeQueueNums":2}}}')
    server = fake.Fake(answer)
    [row] = cluster.json("topic", "list", "-n", server.address)
    tap.equal((row["topic"], row["write_queues"]), ("T", 2))
    for command in (("topic", "create", "U"), ("topic", "delete", "T", "--yes"), ("group", "set", "g"), ("broker", "config", "a=1", "--yes")):
        result = cluster.run(*command, "-n", server.address, status=cli.UNREACHABLE)
        tap.check("no master" in result.err and "nothing was changed" in result.err, result)
    tap.equal([each.code for each in server.requests if each.code in (17, 215, 216, 200, 25)], [], "changes")
    server.close()


@tap.test("what servers say is read with care: no JSON, other types, absurd numbers, names with control characters")
def _():
    strange = [b"{", b"[]", b"null", b"7", b'{"brokerAddrTable":7}', b'{"brokerAddrTable":[[]]}', b'{"brokerAddrTable":{"b":{}}}',
               b'{"brokerAddrTable":{"b":{"brokerName":"b","brokerAddrs":["x"]}}}', b"\xff\xfe"]
    for body in strange:
        server = lying({CLUSTER_INFO: body})
        result = cluster.run("topic", "list", "-n", server.address, "--timeout", "5s")
        tap.check(result.status in (cli.FAILED, cli.NOT_FOUND, cli.UNREACHABLE) and result.err.startswith("oncemq:"), (body, result))
        server.close()
    strange = [b'{"topicConfigTable":[1,"a",{}]}', b'{"topicConfigTable":{"T":7,"U":null,"V":{"readQueueNums":-5,"perm":"x"}}}',
               b'{"topicConfigTable":{"V":{"readQueueNums":99999999999999999999,"writeQueueNums":4294967297,"attributes":7}}}',
               b'{"topicConfigTable":{"A\\u001b[2J":{"topicName":"A\\u001b[2J\\nB","attributes":{"message.type":"\\u001b[31m"}}}}']
    for body in strange:
        server = lying({TOPIC_CONFIGS: body, ALL_TOPICS: b'{"topicList":[7,null,"\\u001b]0;x\\u0007",{}]}',
                        TOPIC_STATS: b'{"offsetTable":{{"topic":"V","brokerName":"b","queueId":-1}:{"minOffset":-9223372036854775808,'
                                     b'"maxOffset":9223372036854775807},{"queueId":"x"}:{"maxOffset":9223372036854775807}},"topicPutTps":"much"}'})
        result = cluster.run("topic", "list", "-a", "-l", "-n", server.address, status=cli.OK)
        tap.check("\033" not in result.out and "\007" not in result.out, result)
        cluster.json("topic", "list", "-a", "-l", "-n", server.address)
        server.close()


tap.main()
