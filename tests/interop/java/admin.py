"""The official admin tool, run inside the puppet, on topics and groups with live clients."""

import time

from harness import process, tap

from .scenario import NEW, scenario


@scenario("RM-9", "the admin tool makes a topic and shows its queues, the members of a group and their progress",
          versions=(NEW,), slow=True)
def admin_shows(play):
    topic, group, brokers = play.unique("topic"), play.group(), play.stage.brokers
    for broker in brokers:
        play.admin("updateTopic -b %s -t %s -r 3 -w 3" % (broker.address, topic), "success")
    play.stage.wait_route(topic, lambda route: route == {broker.name: (3, 6) for broker in brokers})
    listener = play.listen(topic, group, tags="a || b")
    sent = play.send(topic, 60, tags="a,b", keys=6)
    listener.wait_all(range(60))
    play.wait_committed(group, topic, 60)

    names = tuple(broker.name for broker in brokers)
    shown = play.admin("topicStatus -t " + topic, brokers[0].name)
    rows = [line.split() for line in shown.splitlines() if line.startswith(names)]
    places = {"%s/%s" % (row[0], row[1]): int(row[3]) for row in rows}
    tap.equal(places, {place: 60 // (3 * len(brokers)) for place in places}, "ends of the queues")
    tap.equal(len(places), 3 * len(brokers), "queues")
    play.admin("consumerProgress -g " + group, "Diff Total: 0")
    members = play.admin("consumerConnection -g " + group, listener.client_id)
    for part in (topic, "a || b", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"):
        tap.check(part in members, "no %s among the members:\n%s" % (part, members))
    found = play.admin("queryMsgByKey -t %s -k key-3" % topic, sent[3]["id"])
    for each in sent:
        tap.equal(each["id"] in found, each["number"] % 6 == 3, "message %d is found by its key" % each["number"])
    status = play.admin("brokerStatus -b " + brokers[0].address, "bootTimestamp")
    tap.check("msgPutTotalTodayNow" in status, "status is\n%s" % status)


@scenario("CO-2", "a group's offset goes back when an operator resets it by time, and its live member gets messages again",
          versions=(NEW,), slow=True)
def admin_resets(play):
    topic, group = play.topic(queues=2), play.group()
    listener = play.listen(topic, group)
    play.send(topic, 20)
    listener.wait_all(range(20))
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    play.send(topic, 20, first=20)
    listener.wait_all(range(40))
    play.wait_committed(group, topic, 40)
    play.admin("resetOffsetByTime -g %s -t %s -s %d -f true" % (group, topic, middle), play.stage.brokers[0].name)
    process.wait_until(lambda: sorted(listener.numbers()) == sorted([*range(40), *range(20, 40)]), 60,
                       "the second half comes again", pause=0.2)
    play.wait_committed(group, topic, 40)


@scenario("RM-9", "clients with their trace switch on write down the way of a message, and the broker keeps it")
def traced(play):
    topic, group = play.topic(queues=1), play.group()
    listener = play.listen(topic, group, trace="true")
    sent = play.send(topic, 3, trace="true", keys=3)
    listener.wait_all(range(3))

    def kinds(message):
        """Which steps of a message are in the traces; a record is fields with 1 between them, records end with 2."""
        found = set()
        for trace in play.records("RMQ_SYS_TRACE_TOPIC"):
            for record in trace.body.decode().split("\2"):
                if topic in record.split("\1") or group in record.split("\1"):
                    found |= {record.split("\1")[0]} if message in record else set()
        return found
    for each in sent:
        process.wait_until(lambda each=each: {"Pub", "SubBefore"} <= kinds(each["id"]), 60,
                           "Pub and SubBefore of message %d among the traces" % each["number"], pause=1)
