"""The official admin tool, run inside the puppet, on topics and groups with live clients."""

import time

from harness import process, tap

from .scenario import NEW, scenario


def admin(play, command):
    """What the tool printed; it tells of failures in what it prints, not by its status."""
    printed = play.call("admin", args=command)
    tap.check("Exception" not in printed, "mqadmin %s printed\n%s" % (command, printed))
    return printed


@scenario("RM-9", "the admin tool makes a topic and shows its queues, the members of a group and their progress",
          versions=(NEW,), slow=True)
def admin_shows(play):
    topic, group, brokers = play.unique("topic"), play.group(), play.stage.brokers
    for broker in brokers:
        tap.check("success" in admin(play, "updateTopic -b %s -t %s -r 3 -w 3" % (broker.address, topic)), "no success")
    play.stage.wait_route(topic, lambda route: route == {broker.name: (3, 6) for broker in brokers})
    listener = play.listen(topic, group, tags="a || b")
    sent = play.send(topic, 60, tags="a,b", keys=6)
    listener.wait_all(range(60))
    play.wait_committed(group, topic, 60)

    names = tuple(broker.name for broker in brokers)
    rows = [line.split() for line in admin(play, "topicStatus -t " + topic).splitlines() if line.startswith(names)]
    places = {"%s/%s" % (row[0], row[1]): int(row[3]) for row in rows}
    tap.equal(places, {place: 60 // (3 * len(brokers)) for place in places}, "ends of the queues")
    tap.equal(len(places), 3 * len(brokers), "queues")
    progress = admin(play, "consumerProgress -g " + group)
    tap.check("Diff Total: 0" in progress, "progress is\n%s" % progress)
    members = admin(play, "consumerConnection -g " + group)
    for part in (listener.client_id, topic, "a || b", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"):
        tap.check(part in members, "no %s among the members:\n%s" % (part, members))
    found = admin(play, "queryMsgByKey -t %s -k key-3" % topic)
    for each in sent:
        tap.equal(each["id"] in found, each["number"] % 6 == 3, "message %d is found by its key" % each["number"])
    status = admin(play, "brokerStatus -b " + brokers[0].address)
    tap.check("msgPutTotalTodayNow" in status and "bootTimestamp" in status, "status is\n%s" % status)


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
    tap.note(admin(play, "resetOffsetByTime -g %s -t %s -s %d -f true" % (group, topic, middle)).strip())
    process.wait_until(lambda: sorted(listener.numbers()) == sorted([*range(40), *range(20, 40)]), 60,
                       "the second half comes again", pause=0.2)
    play.wait_committed(group, topic, 40)
