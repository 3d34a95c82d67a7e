"""`oncemq doctor`: a cluster in order, and what it says of faults that were planted."""

import copy
import os
import re
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting, tap  # noqa: E402
from harness.crowd import Crowd  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.fulldisk import FullDisk  # noqa: E402

half_full = FullDisk().__enter__()  # whatever this machine's is
cluster = cli.Cluster(args=["--clock", "virtual"], env=half_full.env)
crowd = Crowd(cluster.broker)
crowd.topic("Orders")
crowd.group("billing")
crowd.send("Orders", 10)
crowd.commit("billing", "Orders", 10)
cluster.wait_route("Orders")
billing = crowd.member("billing", ["Orders", "%RETRY%billing"])
QUICK = ("--wait", "100ms")


def findings(*args, status, on=cluster, **more):
    return on.json("doctor", *QUICK, *args, status=status, **more)


def told(found, check, state, about=None):
    """The findings of that kind, of which there must be some."""
    these = [each for each in found if (each["check"], each["state"]) == (check, state) and about in (None, each["about"])]
    tap.check(these, "no %s %s%s in %s" % (state, check, about and " of " + about, found))
    for each in these:
        tap.check(bool(each["advice"]) == (state != "ok") or "more of the same" in each["found"], each)
    return these


def well(found, *checks):
    for check in checks:
        told(found, check, "ok")


@tap.test("a cluster in order: every check is told, all of them ok, status 0")
def _():
    found = findings(status=cli.OK)
    well(found, "names.answer", "names.brokers", "broker.answer", "broker.role", "broker.version", "clock.here", "disk", "here.files", "topic.route",
         "topic.permission", "group.lag", "group.members", "group.retries", "group.dead_letters", "group.subscriptions")
    tap.equal({each["state"] for each in found}, {"ok"})
    table = cluster.ok("doctor", *QUICK).out.splitlines()
    tap.equal((table[0].split()[:2], len(table)), (["CHECK", "STATE"], len(found) + 1))


@tap.test("no name server: status 4, and it is said which")
def _():
    nowhere = cli.Cluster(start=False)
    found = findings(status=cli.UNREACHABLE, on=nowhere)
    told(found, "names.answer", "bad", "127.0.0.1:1")


@tap.test("a machine on which a client may have too few files open")
def _():
    limited = copy.copy(cluster)
    limited.binary = os.path.join(cluster.home, "limited")
    with open(limited.binary, "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\nulimit -n 50\nexec "%s" "$@"\n' % cluster.binary)
    os.chmod(limited.binary, 0o755)
    found = findings(status=cli.PARTLY, on=limited)
    tap.check("50 files" in told(found, "here.files", "warn")[0]["found"], found)


@tap.test("one of two name servers is down")
def _():
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        gone = "127.0.0.1:%d" % taken.getsockname()[1]
        found = findings("-n", "%s;%s" % (cluster.names, gone), status=cli.FAILED)
    told(found, "names.answer", "bad", gone)
    well(found, "names.brokers", "broker.answer", "topic.route")


@tap.test("a name server that brokers and topics are not registered with")
def _():
    with Daemon(roles="names") as other:
        found = findings("-n", "%s;%s" % (cluster.names, other.names), status=cli.FAILED)
        told(found, "names.brokers", "bad", other.names)
        told(found, "names.routes", "bad", "Orders")


@tap.test("name servers that disagree about a permission")
def _():
    if cluster.apache:
        tap.skip("it needs a broker with two name servers")
    with Daemon(roles="names") as one, Daemon(roles="names") as two, \
            Daemon(roles="broker", settings={"namesrvAddr": "%s;%s" % (one.names, two.names), "brokerName": "b"}, env=half_full.env):
        both = "%s;%s" % (one.names, two.names)
        pair = cli.Cluster(start=False)
        process.wait_until(lambda: pair.run("topic", "list", "-n", one.names).status == pair.run("topic", "list", "-n", two.names).status == 0,
                           20, "the broker is registered")
        tap.equal({each["state"] for each in findings("-n", both, status=cli.OK, on=pair)}, {"ok"})
        with remoting.Client(two.names) as client:
            tap.equal(client.request(remoting.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}).code, 0)
        told(findings("-n", both, status=cli.FAILED, on=pair), "names.routes", "bad")


@tap.test("topics: no permission to write, fewer queues to read than to write, a route that no broker has")
def _():
    crowd.topic("Closed", perm=4)
    crowd.ask(remoting.UPDATE_AND_CREATE_TOPIC, {"topic": "Narrow", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 4, "perm": 6,
                                                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"})
    cluster.wait_route("Closed")
    cluster.wait_route("Narrow")
    found = findings(status=cli.FAILED)
    told(found, "topic.permission", "warn", "Closed")
    told(found, "topic.permission", "bad", "Narrow")
    for topic in ("Closed", "Narrow"):
        cluster.ok("topic", "delete", topic, "--yes")
    if cluster.apache:
        return
    broker = cluster.json("clock", "show")[0]["broker"]
    with remoting.Client(cluster.names) as client:  # REGISTER_TOPIC_IN_NAMESRV
        route = remoting.dumps({"brokerDatas": [], "queueDatas": [{"brokerName": broker, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                                                                   "topicSysFlag": 0}]})
        tap.equal(client.request(217, {"topic": "Ghost"}, route).code, 0)
    told(findings(status=cli.FAILED), "topic.route", "bad", "Ghost")
    cluster.ok("topic", "delete", "Ghost", "--yes")
    well(findings(status=cli.OK), "topic.route")


@tap.test("groups: a lag that is long, one that grows, one without members, consuming switched off")
def _():
    crowd.group("slow")
    crowd.send("Orders", 20, queue=1)
    crowd.commit("slow", "Orders", 5, queue=1)
    found = findings("--lag", "10", status=cli.PARTLY)
    told(found, "group.members", "warn", "slow")
    told(found, "group.lag", "warn", "slow")
    crowd.member("slow", ["Orders"])
    told(findings("--lag", "10", status=cli.PARTLY), "group.members", "ok")
    stop = threading.Event()

    def more():
        with Crowd(cluster.broker) as other:
            while not stop.is_set():
                other.send("Orders", queue=1)
    sender = threading.Thread(target=more)
    sender.start()
    try:
        process.wait_until(lambda: any("grows" in each["found"] for each in findings("--lag", "100", status=cli.PARTLY)
                                       if (each["check"], each["about"]) == ("group.lag", "slow")), 60, "a lag that grows")
    finally:
        stop.set()
        sender.join()
    crowd.group("off", consumeEnable=False)
    told(findings("--lag", "1000k", status=cli.PARTLY), "group.members", "warn", "off")
    crowd.group("off")
    crowd.commit("slow", "Orders", 100000, queue=1)


@tap.test("messages that wait to be tried again, and dead letters")
def _():
    crowd.group("failing", retryMaxTimes=0)
    crowd.commit("failing", "Orders", 0, queue=3)
    crowd.send("Orders", 1, queue=3)
    pulled = crowd.ask(remoting.PULL_MESSAGE, {"consumerGroup": "failing", "topic": "Orders", "queueId": 3, "queueOffset": 0, "maxMsgNums": 1,
                                               "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
                                               "expressionType": "TAG"})
    message = remoting.messages(pulled.body)[0]
    crowd.ask(remoting.CONSUMER_SEND_MSG_BACK, {"offset": message.physical_offset, "group": "failing", "delayLevel": -1,
                                                "originMsgId": message.offset_id, "originTopic": "Orders", "unitMode": "false",
                                                "maxReconsumeTimes": 0})
    crowd.commit("failing", "Orders", 1, queue=3)
    cluster.wait_route("%DLQ%failing")
    dead = process.wait_until(lambda: [each for each in cluster.json("doctor", *QUICK, "--lag", "1000k", status=None)
                                       if each["check"] == "group.dead_letters" and each["state"] == "warn"], 20, "a dead letter")
    tap.equal([each["about"] for each in dead], ["failing"])
    cluster.ok("dlq", "drop", "failing", "--id", cluster.json("dlq", "show", "failing")[0]["id"], "--yes")
    told(findings("--lag", "1000k", status=cli.PARTLY), "group.dead_letters", "ok")
    crowd.topic("%RETRY%billing", queues=1)
    crowd.send("%RETRY%billing", 3)
    crowd.commit("billing", "%RETRY%billing", 0)
    cluster.wait_route("%RETRY%billing")
    told(findings("--lag", "100", status=cli.PARTLY), "group.retries", "warn", "billing")
    crowd.commit("billing", "%RETRY%billing", 3)


@tap.test("members of a group that subscribe differently")
def _():
    crowd.group("mixed")
    one = crowd.member("mixed", ["Orders"], "one@test", expression="red")
    two = crowd.member("mixed", ["Orders"], "two@test", expression="blue")
    answering = [threading.Thread(target=each.serve_running_info) for each in (one, two)]
    for each in answering:
        each.start()
    found = findings(status=cli.FAILED)
    for each in answering:
        each.join()
    different = told(found, "group.subscriptions", "bad", "mixed")[0]["found"]
    tap.check("Orders red" in different and "Orders blue" in different, different)
    one.client.close()
    two.client.close()


@tap.test("a clock that is off, by hours and against other brokers")
def _():
    if cluster.apache:
        tap.skip("Apache's clock cannot be put forward")
    cluster.ok("clock", "advance", "2h")
    found = findings("--lag", "1000k", status=cli.FAILED)
    tap.check(re.search("(2h 0m|1h 59m) ahead of ours", told(found, "clock.here", "bad")[0]["found"]), found)  # give or take the way there
    with Daemon(roles="broker", settings={"namesrvAddr": cluster.names, "brokerName": "second"}):
        process.wait_until(lambda: len(cluster.json("clock", "show")) == 2, 20, "both brokers are registered")
        told(findings("--lag", "1000k", status=cli.FAILED), "clock.brokers", "bad")


@tap.test("a disk that fills, and a broker that is gone")
def _():
    if cluster.apache:
        tap.skip("its disk is what it is")
    with FullDisk() as disk:
        full = cli.Cluster(env=disk.env)
        well(findings(status=cli.OK, on=full), "disk")
        for percent, state, word in ((72, "warn", "deleting begins"), (80, "warn", "any hour"), (87, "bad", "whatever"), (95, "bad", "no messages")):
            disk.fill(percent)
            found = findings(status=cli.PARTLY if state == "warn" else cli.FAILED, on=full)
            tap.check(word in told(found, "disk", state)[0]["found"], found)
    with Daemon(roles="names") as names, Daemon(roles="broker", settings={"namesrvAddr": names.names, "brokerName": "b"}) as broker:
        process.wait_until(lambda: full.run("topic", "list", "-n", names.names).status == 0, 20, "the broker is registered")
        process.freeze(broker.pid)  # its connection stays, so the name server still knows it
        found = findings("-n", names.names, "--timeout", "4s", status=cli.FAILED, on=full)
        told(found, "broker.answer", "bad", "b")


tap.main()
