#!/usr/bin/env python3
"""Members of one group on three brokers share the queues of a topic as each strategy says: members of liboncemq among
themselves, and beside one that is written in Java.

A broker is called room@name, a client address@room-name, so that the strategies by room have something to go by. Which queues
a member has is asked as an operator would (code 307); then one message to each queue must come to its owner alone.
"""

import hashlib
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, puppet, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from interop import plays  # noqa: E402
from interop.java import puppet as java  # noqa: E402
from interop.stage import unique  # noqa: E402

AVERAGELY, BY_CIRCLE, BY_CONFIG, BY_ROOM, NEARBY, BY_HASH = range(6)
RUNNING_INFO = 307
BROKERS = ("room1@a", "room2@b", "room3@c")
QUEUES = 4
ALL = [(broker, queue) for broker in BROKERS for queue in range(QUEUES)]  # as members sort them
MEMBERS = {"m1": ("10.0.0.1", "room1-m1"), "m2": ("10.0.0.2", "room1-m2"), "m3": ("10.0.0.3", "room2-m3")}
IDS = {name: "%s@%s" % each for name, each in MEMBERS.items()}


class Cluster:
    """Three brokers and a puppet."""

    def __init__(self):
        self.daemons = [tap.watch(Daemon(settings={"brokerName": BROKERS[0]}))]
        for name in BROKERS[1:]:
            self.daemons.append(tap.watch(Daemon(roles="broker", name=name.replace("@", "-"), settings={
                "brokerName": name, "namesrvAddr": self.daemons[0].names})))
        self.names = self.daemons[0].names
        self.puppet = tap.watch(puppet.start_c("members", self.names))
        self.puppet.call("producer", name="p", group="p")

    def topic(self, name):
        for daemon in self.daemons:
            with remoting.Client(daemon.broker) as client:
                answer = client.request(remoting.UPDATE_AND_CREATE_TOPIC, {
                    "topic": name, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
                tap.equal(answer.code, remoting.SUCCESS, "code of a new topic")

        def known():
            with remoting.Client(self.names) as client:
                answer = client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
                return answer.code == remoting.SUCCESS and len(answer.json()["queueDatas"]) == len(BROKERS)
        process.wait_until(known, 10, "route of %s" % name)
        return name

    def owned(self, member, group, topic):
        """The queues of a topic that a member of liboncemq has now."""
        with remoting.Client(self.daemons[0].broker) as client:
            answer = client.request(RUNNING_INFO, {"consumerGroup": group, "clientId": IDS[member], "jstackEnable": False})
            if answer.code != remoting.SUCCESS:
                return None
            queues = [json.loads(each) for each in answer.json()["mqTable"]]
            return sorted((each["brokerName"], each["queueId"]) for each in queues if each["topic"] == topic)


here = plays.Once(Cluster)


class Group:
    """Members with the same strategy; `written_in_java` is one of them, or None."""

    def __init__(self, name, share, written_in_java=None, members=MEMBERS, each=None, **options):
        self.topic, self.group = here().topic(unique(name)), unique("g_" + name)
        self.names, self.java = list(members), None
        for member in reversed(self.names):  # the order of joining does not count
            if member == written_in_java:
                ip, instance = MEMBERS[member]
                self.java = java.Listener(jvm(), unique(name), topic=self.topic, group=self.group, ip=ip, instance=instance,
                                          share={BY_CIRCLE: "circle", BY_ROOM: "room", NEARBY: "nearby", BY_HASH: "hash"}[share],
                                          **options)
                tap.equal(self.java.client_id, IDS[member], "id of the Java member")
                self.java_member = member
                continue
            ip, instance = MEMBERS[member]
            here().puppet.call("consumer", name=self.name(member), group=self.group, topic=self.topic, from_="first", ip=ip,
                               instance=instance, share=share, **options, **((each or {}).get(member, {})))

    def name(self, member):
        return "%s_%s" % (self.group, member)

    def places(self, member):
        if self.java and member == self.java_member:
            return sorted((each.rsplit("/", 1)[0], int(each.rsplit("/", 1)[1])) for each in self.java.assigned())
        return here().owned(member, self.group, self.topic)

    def check(self, wanted):
        """They come to that share, and messages to the queues that belong to somebody come there."""
        def split():
            return {member: self.places(member) for member in self.names}
        wanted = {member: sorted(places) for member, places in wanted.items()}
        try:
            process.wait_until(lambda: split() == wanted, 30, "the share", pause=0.1)
        except process.Failed as late:
            raise process.Failed("%s: %s, wanted %s" % (late, split(), wanted)) from late
        owners = {}
        for member, places in wanted.items():
            for place in places:
                owners.setdefault(place, set()).add(member)
        here().puppet.call("send", name="p", messages=[
            puppet.message(self.topic, "%s/%d" % place, queue={"broker": place[0], "id": place[1]},
                           properties={"number": str(ALL.index(place))}) for place in owners])
        for member in self.names:
            mine = {"%s/%d" % place for place, owner in owners.items() if member in owner}
            process.wait_until(lambda m=member, all_of=mine: self.got(m) >= all_of, 20, "messages to %s" % member)
            tap.equal(self.got(member), mine, "messages to %s" % member)

    def got(self, member):
        if self.java and member == self.java_member:
            return {"%s/%d" % ALL[number] for number in self.java.numbers()}
        return {each["body"] for each in here().puppet.messages(self.name(member))}

    def stop(self, *members):
        for member in members or self.names:
            if self.java and member == self.java_member:
                self.java.stop()
            else:
                here().puppet.call("stop", name=self.name(member))
            self.names = [each for each in self.names if each != member]


def place(text):
    """a0 b3 …"""
    return [(next(broker for broker in BROKERS if broker.endswith(each[0])), int(each[1])) for each in text.split()]


def ring(topic, members=MEMBERS, nodes=10):
    """The consistent hash as it is told: the first four bytes of an MD5, and the next client on the ring."""
    def number(text):
        return int.from_bytes(hashlib.md5(text.encode()).digest()[:4], "big")
    places = sorted((number("%s-%d" % (IDS[member], node)), member) for member in members for node in range(nodes))
    shares = {member: [] for member in members}
    for broker, queue in ALL:
        at = number("MessageQueue [topic=%s, brokerName=%s, queueId=%d]" % (topic, broker, queue))
        shares[next((member for where, member in places if where >= at), places[0][1])].append((broker, queue))
    return shares


CIRCLE = {"m1": place("a0 a3 b2 c1"), "m2": place("a1 b0 b3 c2"), "m3": place("a2 b1 c0 c3")}
ROOM = {"m1": place("a0 a1 c2"), "m2": place("a2 a3 c3"), "m3": place("c0 c1")}
NEAR = {"m1": place("a0 a1 c0 c1"), "m2": place("a2 a3 c2"), "m3": place("b0 b1 b2 b3 c3")}


@tap.test("LB-5: by circle: the queues are dealt like cards, and dealt anew when a member goes")
def _():
    group = Group("Circle", BY_CIRCLE)
    group.check(CIRCLE)
    group.stop("m2")
    process.wait_until(lambda: group.places("m1") == sorted(place("a0 a2 b0 b2 c0 c2")), 30, "two members")
    group.stop()


@tap.test("LB-6: by config: each has what it was given, whatever the others do")
def _():
    def given(*places):
        return {"config_queues": [{"topic": unique("Config"), "broker": broker, "id": queue} for broker, queue in places]}
    both, last = place("a0 a1"), place("c3")
    group = Group("Config", BY_CONFIG, each={"m1": given(*both), "m2": given(*both), "m3": given(*last)})
    group.check({"m1": both, "m2": both, "m3": last})
    group.stop()


@tap.test("LB-7: by room: only queues of the rooms that are listed have an owner")
def _():
    group = Group("Room", BY_ROOM, rooms="room1,room3")
    group.check(ROOM)
    group.stop()


@tap.test("LB-8: room nearby: a room's queues stay in it, those of a room without members are everybody's")
def _():
    group = Group("Nearby", NEARBY)
    group.check(NEAR)
    group.stop()


@tap.test("LB-9: by hash: members stand on a ring, and when one goes only its queues move")
def _():
    group = Group("Hash", BY_HASH)
    before = ring(group.topic)
    group.check(before)
    group.stop("m2")
    after = ring(group.topic, ["m1", "m3"])
    tap.check(all(set(before[each]) <= set(after[each]) for each in after), "nothing else moves")
    process.wait_until(lambda: all(group.places(each) == sorted(after[each]) for each in after), 30, "two members")
    group.stop()


# Beside Java --------------------------------------------------------------------------------------------------------

def _jvm():
    if apache.missing():
        tap.skip(apache.missing())
    return java.Puppet("java", here().names)


jvm = plays.Once(_jvm)


@tap.test("LB-5, LB-7, LB-8, LB-9: beside a Java member with the same strategy each queue has one owner, the same as ever")
def _():
    jvm()
    for name, share, wanted, options in (("JavaCircle", BY_CIRCLE, CIRCLE, {}), ("JavaHash", BY_HASH, None, {}),
                                         ("JavaRoom", BY_ROOM, ROOM, {"rooms": "room1,room3"}),
                                         ("JavaNearby", NEARBY, NEAR, {})):
        group = Group(name, share, written_in_java="m2", **options)
        group.check(wanted or ring(group.topic))
        group.stop()


@tap.test("members and brokers end well after all this")
def _():
    here().puppet.end()
    for daemon in here().daemons:
        daemon.stop()


tap.main()
