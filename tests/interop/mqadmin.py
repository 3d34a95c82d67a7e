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
    ours = False
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
        scene.names, scene.broker, scene.ours = daemon.names, daemon.broker, True
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


def run_any(*words, timeout=60):
    """One command, and what it prints, be it a failure."""
    scene.tool.process.stdin.write("\t".join(str(word) for word in words).encode() + b"\n")
    scene.tool.process.stdin.flush()
    return output(timeout)


def run(*words, timeout=60):
    """One command. What it prints must not tell of a failure."""
    text = run_any(*words, timeout=timeout)
    tap.check(not re.search(r"^failed|CommandException|CODE:|DESC:|^\tat ", text, re.MULTILINE),
              "%s printed:\n%s" % (words, text))
    return text


def mqadmin(command, *args, timeout=60):
    return run(command, "-n", scene.names, *args, timeout=timeout)


def mqadmin_refused(code, command, *args):
    """A command that the server refuses; what it prints."""
    return need(run_any(command, "-n", scene.names, *args), r"CODE: %d " % code)


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


def ask_names(code, ext=None):
    with r.Client(scene.names) as client:
        return client.request(code, ext)


def send(topic, body=b"raw", queue=0):
    with r.Client(scene.broker) as client:
        return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, queue_id=queue))


def commit(group, topic, offset, queue=0):
    done = ask(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                          "commitOffset": offset})
    tap.equal(done.code, r.SUCCESS, "commit (%s)" % done.remark)


def offset_of(group, topic, queue=0):
    found = ask(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                          "setZeroIfNotFound": False})
    return int(found.ext["offset"]) if found.code == r.SUCCESS else None


def end_of(topic, queue=0):
    return int(ask(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def perm_in_route(topic):
    return ask_names(105, {"topic": topic}).json()["queueDatas"][0]["perm"]


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
    tap.check(CLUSTER in mqadmin("topicClusterList", "-t", TOPIC).split(), "the cluster of the topic")
    need(mqadmin("updateTopicPerm", "-b", scene.broker, "-t", TOPIC, "-p", "4"), r"success")
    tap.equal(topic_config(TOPIC)["perm"], 4, "permission")
    if scene.ours:  # Apache's broker leaves it to the clients, who see it in the route
        tap.equal(send(TOPIC).code, 16, "a send to a topic that may not be written")
    process.wait_until(lambda: perm_in_route(TOPIC) == 4, 10, "the permission in the route")
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
    need(mqadmin("brokerStatus", "-b", scene.broker), r"putTps\s+: [\d.]+", r"bootTimestamp\s+: \d+",
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


@tap.test("queryMsgById lets one consumer consume one message once more")
def directly():
    before = int(run("consumed").split()[1])
    client_id = ask(203, {"consumerGroup": GROUP}).json()["connectionSet"][0]["clientId"]
    need(mqadmin("queryMsgById", "-i", scene.sent[1][1], "-t", TOPIC, "-g", GROUP, "-d", client_id),
         r"CR_(SUCCESS|COMMIT)")
    tap.equal(run("consumed"), "consumed %d" % (before + 1), "messages consumed")


@tap.test("sendMessage, consumeMessage, printMsg and printMsgByQueue: a message by hand, and back")
def by_hand():
    mqadmin("updateTopic", "-c", CLUSTER, "-t", "AdminHand", "-r", "1", "-w", "1")
    process.wait_until(lambda: "AdminHand" in mqadmin("topicList").split(), 30, "the topic in topicList", pause=1)
    need(mqadmin("sendMessage", "-t", "AdminHand", "-p", "first by hand", "-k", "hand1", "-c", "TagH"), r"SEND_OK")
    with r.Client(scene.broker) as client:  # the command works once in a process
        client.request(r.SEND_MESSAGE_V2, *r.send_v2("AdminHand", b"second by hand", {"TAGS": "TagI"}, queue_id=0))
    tap.equal(end_of("AdminHand"), 2, "messages")
    text = mqadmin("consumeMessage", "-t", "AdminHand", "-b", BROKER, "-i", "0", "-o", "0", "-c", "1")
    need(text, r"first by hand")
    tap.check("second by hand" not in text, "only one was asked for:\n%s" % text)
    need(mqadmin("printMsg", "-t", "AdminHand", "-d", "true"), r"BODY: first by hand", r"BODY: second by hand")
    text = mqadmin("printMsg", "-t", "AdminHand", "-d", "true", "-s", "TagI")
    tap.check("second by hand" in text and "first by hand" not in text, "by tag:\n%s" % text)
    need(mqadmin("printMsgByQueue", "-t", "AdminHand", "-a", BROKER, "-i", "0", "-p", "true", "-d", "true", "-f", "true"),
         r"BODY: first by hand", r"Tag: TagH\s+Count: 1", r"Tag: TagI\s+Count: 1")


@tap.test("cloneGroupOffset, skipAccumulatedMessage and resetOffsetByTimeOld move a group that is not there")
def offsets():
    mqadmin("updateTopic", "-c", CLUSTER, "-t", "AdminOffsets", "-r", "2", "-w", "2")
    for queue in (0, 0, 0, 1):
        tap.equal(send("AdminOffsets", queue=queue).code, r.SUCCESS, "send")
    for group in ("offset_group", "offset_clone"):
        mqadmin("updateSubGroup", "-c", CLUSTER, "-g", group)
    with r.Client(scene.broker) as client:  # the command looks for the retry topic, which a first consumer makes
        client.request(r.HEART_BEAT, body=r.dumps({"clientID": "once", "producerDataSet": [], "consumerDataSet": [
            {"groupName": "offset_group", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
             "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [
                 {"topic": "AdminOffsets", "subString": "*", "subVersion": 1, "expressionType": "TAG"}]}]}))
    commit("offset_group", "AdminOffsets", 2, 0)
    commit("offset_group", "AdminOffsets", 0, 1)
    retry_topic = "%RETRY%offset_group"
    process.wait_until(lambda: retry_topic in mqadmin("topicList").split(), 30, "the retry topic in topicList", pause=1)
    need(mqadmin("cloneGroupOffset", "-s", "offset_group", "-d", "offset_clone", "-t", "AdminOffsets"), r"clone group offset success")
    tap.equal([offset_of("offset_clone", "AdminOffsets", queue) for queue in (0, 1)], [2, 0], "the clone")
    need(mqadmin("skipAccumulatedMessage", "-g", "offset_group", "-t", "AdminOffsets", "-f", "true"), r"%s\s+0\s+3" % BROKER)
    tap.equal([offset_of("offset_group", "AdminOffsets", queue) for queue in (0, 1)], [3, 1], "nothing is left")
    need(mqadmin("resetOffsetByTimeOld", "-g", "offset_clone", "-t", "AdminOffsets", "-s", "0", "-f", "true"), r"%s\s+0\s+3\s+2\s+0" % BROKER)
    tap.equal(offset_of("offset_clone", "AdminOffsets"), 0, "back to the start")


@tap.test("statsAll and brokerConsumeStats show how much came, went and waits")
def numbers():
    commit("offset_clone", "AdminOffsets", 1)
    with r.Client(scene.broker) as client:
        client.request(r.PULL_MESSAGE, {
            "consumerGroup": "offset_clone", "topic": "AdminOffsets", "queueId": 0, "queueOffset": 0, "maxMsgNums": 2,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG"})

    def row_of(group):
        rows_of = [row for row in rows(mqadmin("statsAll", "-t", "AdminOffsets")) if row[:2] == ["AdminOffsets", group]]
        return rows_of[0] if rows_of else None

    def counted():  # Apache's statistics are ten seconds late
        row = row_of("offset_clone")
        return row if row and row[2] == "3" and row[5:7] == ["4", "2"] else None
    row = process.wait_until(counted, 5 if scene.ours else 40, "3 behind, 4 in, 2 out in statsAll: %s" % row_of("offset_clone"),
                             pause=1)
    tap.check(float(row[3]) > 0 and float(row[4]) > 0, "rates in %s" % row)
    text = mqadmin("brokerConsumeStats", "-b", scene.broker)
    row, = [row for row in rows(text) if row[:2] == ["AdminOffsets", "offset_clone"]]
    tap.equal(row[2:7], [BROKER, "0", "3", "1", "2"], "brokerConsumeStats")
    total = int(re.search(r"Diff Total: (\d+)", text).group(1))
    tap.check(total >= 3, "a total of %d" % total)


@tap.test("sendMsgStatus sends to the broker's own topic and tells how long it took")
def send_status():
    before = end_of(BROKER)
    text = mqadmin("sendMsgStatus", "-b", BROKER, "-c", "3")
    tap.equal(len(re.findall(r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK", text)), 3, "sends in\n%s" % text)
    tap.equal(end_of(BROKER), before + 4, "messages in the topic")


@tap.test("updateBrokerConfig changes what can change, and says what cannot")
def broker_config():
    need(mqadmin("updateBrokerConfig", "-b", scene.broker, "-k", "maxMessageSize", "-v", "2000"), r"update broker config success")
    need(mqadmin("getBrokerConfig", "-b", scene.broker), r"maxMessageSize\s+=\s+2000")
    tap.equal(send(TOPIC, b"x" * 2001).code, 13, "a message that is too big now")
    need(mqadmin("updateBrokerConfig", "-c", CLUSTER, "-k", "maxMessageSize", "-v", "4194304"), r"update broker config success")
    tap.equal(send(TOPIC, b"x" * 2001).code, r.SUCCESS, "and fits again")
    if scene.ours:  # Apache says yes to these, and does nothing or what one would not want
        need(mqadmin_refused(16, "updateBrokerConfig", "-b", scene.broker, "-k", "flushDiskType", "-v", "SYNC_FLUSH"),
             r"flushDiskType cannot change while the daemon runs")
        need(mqadmin_refused(29, "updateBrokerConfig", "-b", scene.broker, "-k", "maxMessageSizes", "-v", "1"),
             r"did you mean maxMessageSize\?")


@tap.test("name servers: wipeWritePerm and addWritePerm, updateKvConfig and deleteKvConfig, their settings")
def name_server():
    need(mqadmin("wipeWritePerm", "-b", BROKER), r"wipe write perm of broker\[%s\] in name server\[.*\] OK" % BROKER)
    tap.equal(perm_in_route(TOPIC), 4, "permission in the route")
    need(mqadmin("addWritePerm", "-b", BROKER), r"add write perm of broker\[%s\] in name server\[.*\] OK" % BROKER)
    tap.equal(perm_in_route(TOPIC), 6, "permission in the route")
    where = {"namespace": "AdminSpace", "key": "color"}
    need(mqadmin("updateKvConfig", "-s", "AdminSpace", "-k", "color", "-v", "blue"), r"success")
    tap.equal(ask_names(101, where).ext["value"], "blue", "value")
    need(mqadmin("deleteKvConfig", "-s", "AdminSpace", "-k", "color"), r"success")
    tap.equal(ask_names(101, where).code, 22, "after deleting")
    need(mqadmin("getNamesrvConfig"), r"orderMessageEnable\s*=\s+false")
    need(mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"), r"success")
    need(mqadmin("getNamesrvConfig"), r"orderMessageEnable\s*=\s+true")
    ask_names(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC, "value": "%s:2" % BROKER})
    tap.equal(ask_names(105, {"topic": TOPIC}).json()["orderTopicConf"], "%s:2" % BROKER, "in the route")


@tap.test("queryMsgTraceById shows the way of a message whose clients trace")
def trace():
    mqadmin("updateTopic", "-c", CLUSTER, "-t", "AdminTraced", "-r", "1", "-w", "1")
    process.wait_until(lambda: "AdminTraced" in mqadmin("topicList").split(), 30, "the topic in topicList", pause=1)
    unique = run("trace", "traced_group", "AdminTraced", "traced_key").split()[1]

    def found():  # clients send their traces a moment later
        text = run_any("queryMsgTraceById", "-n", scene.names, "-i", unique)
        return text if re.search(r"Pub\s+traced_producer.*success", text) and \
            re.search(r"Sub\s+traced_group.*success", text) else None
    process.wait_until(found, 60, "the trace of %s" % unique, pause=1)


@tap.test("clean-ups are done, and what is not offered is refused with its name")
def clean_ups():
    need(mqadmin("cleanExpiredCQ", "-b", scene.broker), r"success")
    need(mqadmin("cleanUnusedTopic", "-b", scene.broker), r"success")
    tap.check(end_of("AdminHand") == 2, "messages of topics in use")
    need(mqadmin("consumerProgress"), GROUP)
    if scene.ours:
        need(run_any("haStatus", "-n", scene.names, "-b", scene.broker), r"GET_BROKER_HA_STATUS")


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
    process.wait_until(lambda: "short_lived" not in ask(201).json()["subscriptionGroupTable"], 10, "the group gone")
    tap.check(GROUP in ask(201).json()["subscriptionGroupTable"], "the other group")
    need(mqadmin("deleteExpiredCommitLog", "-b", scene.broker), r"success")


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
