#!/usr/bin/env python3
"""The official admin tool on our broker.

One Java process holds the unchanged mqadmin of Apache RocketMQ 5.5.0, a producer and consumers (AdminTool.java); each
test runs some of its commands and compares what they print, or what they change, with what raw requests say.

ENDPOINT=apache takes Apache's own name server and broker in place of ours, to prove the test itself.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

CLUSTER, BROKER, TOPIC, GROUP = "DefaultCluster", "broker-a", "AdminTopic", "admin_group"


class Scene:
    """What the tests of this file share."""
    names = broker = tool = None
    sent = []


scene = Scene()


def start():
    if os.environ.get("ENDPOINT") == "apache":
        names = tap.watch(apache.NameServer())
        broker = tap.watch(apache.Broker(names.address, name=BROKER))
        broker.wait_registered(names.address)
        scene.names, scene.broker = names.address, broker.address
    else:
        daemon = tap.watch(Daemon(settings={"brokerName": BROKER, "autoCreateTopicEnable": "true"}))
        scene.names, scene.broker = daemon.names, daemon.broker
    scene.tool = tap.watch(apache.java("admintool", "oncemq.interop.AdminTool", scene.names,
                                       home=process.temp_folder(), stdin=subprocess.PIPE))
    output(60)


def output(timeout):
    """What the running command prints, up to its end."""
    lines = []
    deadline = time.monotonic() + timeout
    while True:
        line = scene.tool.read_line(max(0.0, deadline - time.monotonic()))
        tap.check(line is not None, "the admin tool ended: %s" % scene.tool.tail(20))
        if line == "==end":
            return "\n".join(lines).strip()
        lines.append(line)


def run(*words, timeout=60):
    """One command. What it prints must not tell of a failure."""
    scene.tool.process.stdin.write("\t".join(str(word) for word in words).encode() + b"\n")
    scene.tool.process.stdin.flush()
    text = output(timeout)
    tap.check(not re.search(r"^failed|CommandException|CODE:|DESC:|^\tat ", text, re.MULTILINE),
              "%s printed:\n%s" % (words, text))
    return text


def mqadmin(command, *args, timeout=60):
    return run(command, "-n", scene.names, *args, timeout=timeout)


def rows(text):
    """The lines of a printed table, split at blanks."""
    return [line.split() for line in text.splitlines() if line.strip()]


def need(text, *patterns):
    for pattern in patterns:
        tap.check(re.search(pattern, text), "no %r in:\n%s" % (pattern, text))
    return text


def ask(code, ext=None):
    with r.Client(scene.broker) as client:
        return client.request(code, ext)


def topic_config(topic):
    answer = ask(351, {"topic": topic})
    return answer.json() if answer.code == r.SUCCESS else None


@tap.test("updateTopic and updateTopicPerm make and change a topic")
def topics():
    start()
    need(mqadmin("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2"), r"success")
    config = topic_config(TOPIC)
    tap.equal((config["readQueueNums"], config["writeQueueNums"], config["perm"]), (2, 2, 6), "queues")
    process.wait_until(lambda: TOPIC in mqadmin("topicList").split(), 30, "the topic in topicList", pause=1)
    need(mqadmin("topicRoute", "-t", TOPIC), r'"readQueueNums":\s*2')
    need(mqadmin("updateTopicPerm", "-b", scene.broker, "-t", TOPIC, "-p", "4"), r"success")
    tap.equal(topic_config(TOPIC)["perm"], 4, "permission")
    need(mqadmin("updateTopicPerm", "-b", scene.broker, "-t", TOPIC, "-p", "6"), r"success")
    tap.equal(topic_config(TOPIC)["perm"], 6, "permission")


@tap.test("updateSubGroup makes a group, getConsumerConfig shows it")
def groups():
    need(mqadmin("updateSubGroup", "-c", CLUSTER, "-g", GROUP, "-q", "2", "-r", "5"), r"success")
    config = ask(352, {"group": GROUP}).json()
    tap.equal((config["retryQueueNums"], config["retryMaxTimes"]), (2, 5), "settings")
    need(mqadmin("getConsumerConfig", "-g", GROUP), r"retryMaxTimes\s+=\s+5")


@tap.test("topicStatus, clusterList, brokerStatus and getBrokerConfig show what there is")
def status():
    for line in run("send", TOPIC, 6).splitlines():
        scene.sent.append(line.split()[1:])
    tap.equal([offset for _, _, offset in scene.sent], [str(i) for i in range(6)], "offsets")
    row, = [row for row in rows(mqadmin("topicStatus", "-t", TOPIC)) if row[:2] == [BROKER, "0"]]
    tap.equal(row[2:4], ["0", "6"], "bounds in topicStatus")
    row, = [row for row in rows(mqadmin("clusterList")) if row[:3] == [CLUSTER, BROKER, "0"]]
    tap.equal((row[3], row[-1]), (scene.broker, "true"), "clusterList")
    need(mqadmin("brokerStatus", "-b", scene.broker), r"putTps\s+: [\d.]+ [\d.]+ [\d.]+", r"bootTimestamp\s+: \d+",
         r"commitLogMaxOffset\s+: \d+")
    need(mqadmin("getBrokerConfig", "-b", scene.broker), r"brokerName\s+=\s+" + BROKER, r"fileReservedTime\s+=\s+72")


@tap.test("queryMsgById, ByKey, ByUniqueKey and ByOffset find a message")
def queries():
    unique, offset_id, _ = scene.sent[3]
    need(mqadmin("queryMsgById", "-i", offset_id, "-t", TOPIC), r"OffsetID:\s+" + offset_id, r"Topic:\s+" + TOPIC)
    need(mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "key3"), unique)
    need(mqadmin("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique), r"Queue Offset:\s+3")
    need(mqadmin("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", "0", "-o", "3"), offset_id)


@tap.test("consumerProgress, consumerConnection, producerConnection and consumerStatus see live clients")
def clients():
    run("consume", GROUP, TOPIC, "orderly")
    process.wait_until(lambda: run("consumed") == "consumed 6", 60, "six messages in order", pause=0.5)

    def progress():
        return [row for row in rows(mqadmin("consumerProgress", "-g", GROUP)) if row[:3] == [TOPIC, BROKER, "0"]]
    process.wait_until(lambda: [row[3:5] for row in progress()] == [["6", "6"]], 30, "the progress", pause=1)
    need(mqadmin("consumerConnection", "-g", GROUP), r"JAVA", TOPIC + r".*\*", r"ConsumeType: CONSUME_PASSIVELY",
         r"MessageModel: CLUSTERING", r"ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET")
    need(mqadmin("producerConnection", "-g", "admin_producer", "-t", TOPIC), r"JAVA")
    client_id = ask(203, {"consumerGroup": GROUP}).json()["connectionSet"][0]["clientId"]
    need(mqadmin("consumerStatus", "-g", GROUP, "-i", client_id), r"PROP_CONSUMEORDERLY\s+: true", TOPIC)
    need(mqadmin("queryMsgById", "-i", scene.sent[0][1], "-t", TOPIC), r"consumer=\[?%s|%s" % (GROUP, GROUP))


@tap.test("resetOffsetByTime sends the group back, and it consumes once more")
def reset():
    need(mqadmin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0"), r"%s\s+0\s+0" % BROKER)
    process.wait_until(lambda: run("consumed") == "consumed 12", 90, "the six once more", pause=1)


@tap.test("a request of the Java client is answered by a consumer through us")
def request_reply():
    mqadmin("updateTopic", "-c", CLUSTER, "-t", "AdminRequests", "-r", "2", "-w", "2")
    run("answer", "admin_repliers", "AdminRequests")

    def answered():
        try:
            return "reply hello heard" in run("request", "AdminRequests", "hello")
        except AssertionError as late:  # the consumer may still be on its way
            tap.note(late)
            return False
    process.wait_until(answered, 90, "a reply", pause=1)


@tap.test("deleteTopic and deleteSubGroup remove what they name")
def removal():
    need(mqadmin("deleteTopic", "-c", CLUSTER, "-t", "AdminRequests"), r"delete topic .*success")
    tap.equal(topic_config("AdminRequests"), None, "the topic")
    process.wait_until(lambda: "AdminRequests" not in mqadmin("topicList").split(), 10, "gone from topicList", pause=1)
    mqadmin("updateSubGroup", "-c", CLUSTER, "-g", "short_lived")
    need(mqadmin("deleteSubGroup", "-c", CLUSTER, "-g", "short_lived"), r"delete subscription group .*success")
    table = ask(201).json()["subscriptionGroupTable"]
    tap.equal(("short_lived" in table, GROUP in table), (False, True), "groups")
    need(mqadmin("deleteExpiredCommitLog", "-b", scene.broker), r"success")


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
