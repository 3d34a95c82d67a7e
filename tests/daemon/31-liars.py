"""Clients that speak the protocol well and lie in it: about offsets, queues, groups and themselves; that ask for what
does not exist, beat with megabytes, never read, or come back by the thousand. Each lie has its answer, the memory stays
bounded, and an honest client beside them is served all the time."""

import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

INVALID_PARAMETER, NO_PERMISSION, SYSTEM_BUSY = 29, 16, 2
MAX_GROUPS, MAX_CLIENTS = 2000, 3000

# Freed memory that the address sanitizer keeps back would be taken for the daemon's.
ENV = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8:thread_local_quarantine_size_kb=64"}
SETTINGS = {"maxGroups": MAX_GROUPS, "maxClients": MAX_CLIENTS, "maxTopics": 5000, "outputMaxBytes": 8 << 20}
daemon = daemons.Daemon(settings=SETTINGS, env=ENV)
tap.watch(daemon)


def resident_kb():
    with open("/proc/%d/status" % daemon.pid, encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


class Bounded:
    """Memory before and after differ by no more than this."""
    def __init__(self, limit_mb):
        self.limit = limit_mb * 1024

    def __enter__(self):
        self.before = resident_kb()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            grown = resident_kb() - self.before
            tap.note("resident memory grew by %d KiB" % grown)
            tap.check(grown < self.limit, "resident memory grew by %d KiB" % grown)


def pull_fields(topic="Alive", **other):
    return {"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, **other}


def heart(client_id, groups=(), producers=(), topics=()):
    subscriptions = [{"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                      "expressionType": "TAG"} for topic in topics]
    return r.dumps({"clientID": client_id, "producerDataSet": [{"groupName": group} for group in producers],
                    "consumerDataSet": [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
                                         "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                                         "subscriptionDataSet": subscriptions} for group in groups]})


def beat(client, *args, **more):
    return client.request(r.HEART_BEAT, body=heart(*args, **more), timeout=60)


def serves(client):
    """An honest client on a connection it has had all along."""
    tap.check(daemon.running, "the daemon is gone")
    sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Alive", b"honest", queue_id=0), timeout=20)
    tap.equal(sent.code, r.SUCCESS, "send code (%s)" % sent.remark)
    got = client.request(r.PULL_MESSAGE, pull_fields(queueOffset=sent.ext["queueOffset"], maxMsgNums=1), timeout=20)
    tap.equal([m.body for m in r.messages(got.body)], [b"honest"], "bodies")


honest = r.Client(daemon.broker, timeout=20)
serves(honest)


@tap.test("queue ids, offsets, counts and times that no queue has are refused or corrected, and make no queue")
def _():
    wild = (-1, -2**31, 2**31 - 1, 65536, 8)
    with r.Client(daemon.broker) as client, Bounded(64):
        for queue in wild:
            got = client.request(r.PULL_MESSAGE, pull_fields(queueId=queue))
            tap.check(got.code == INVALID_PARAMETER and "queueId" in got.remark, "%d: %r %r" % (queue, got.code, got.remark))
            for code in (r.GET_MAX_OFFSET, r.GET_MIN_OFFSET):
                got = client.request(code, {"topic": "Alive", "queueId": queue})
                tap.check(got.code != r.SUCCESS or got.ext["offset"] in ("0", "-1"), "%d: %r" % (queue, got.ext))
            if queue >= 0:
                sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Alive", b"x", queue_id=queue))
                tap.check(sent.code == INVALID_PARAMETER and "queueId" in sent.remark, "%d: %r" % (queue, sent.remark))
        for offset in (-1, -2**63, 2**63 - 1, 10**12):
            got = client.request(r.PULL_MESSAGE, pull_fields(queueOffset=offset))
            tap.equal(got.code, r.PULL_OFFSET_MOVED, "offset %d (%s)" % (offset, got.remark))
            end = int(got.ext["maxOffset"])
            tap.check(0 <= int(got.ext["nextBeginOffset"]) <= end, "%d leads to %s" % (offset, got.ext["nextBeginOffset"]))
        for count in (0, -1, 2**31 - 1):
            got = client.request(r.PULL_MESSAGE, pull_fields(maxMsgNums=count))
            tap.equal(got.code, r.SUCCESS, "count %d (%s)" % (count, got.remark))
        for field, value in (("queueId", "zero"), ("queueOffset", "1e3"), ("maxMsgNums", ""), ("queueId", 2**31)):
            got = client.request(r.PULL_MESSAGE, pull_fields(**{field: value}))
            tap.check(got.code == r.SYSTEM_ERROR and field in got.remark, "%s=%r: %r" % (field, value, got.remark))
        for ms in (-2**63, 2**63 - 1):
            got = client.request(r.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "Alive", "queueId": 0, "timestamp": ms})
            tap.equal(got.code, r.SUCCESS, "search by %d" % ms)
    serves(honest)


@tap.test("offsets that are committed for nobody, for nothing or far beyond the end change nothing for others")
def _():
    with r.Client(daemon.broker) as client:
        tap.equal(beat(client, "o@1", ["owner"], topics=["Alive"]).code, r.SUCCESS, "heartbeat")
        def stored(group, topic="Alive", queue=0):
            got = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue})
            return got.ext.get("offset") if got.code == r.SUCCESS else None
        commit = {"consumerGroup": "owner", "topic": "Alive", "queueId": 0, "commitOffset": 1}
        tap.equal(client.request(r.UPDATE_CONSUMER_OFFSET, commit).code, r.SUCCESS, "commit")
        for lie in ({"topic": "NoSuchTopic"}, {"queueId": -5}, {"queueId": 70000}, {"commitOffset": -7},
                    {"consumerGroup": "x" * 300}, {"consumerGroup": "a/../b"}, {"topic": "../../etc"}):
            client.request(r.UPDATE_CONSUMER_OFFSET, {**commit, **lie})
        tap.equal(stored("owner"), "1", "offset of the owner")
        for beyond in (1000, 1 << 61, (1 << 63) - 1):   # kept, it could not be put right by later pulls
            client.request(r.PULL_MESSAGE, pull_fields(consumerGroup="owner", sysFlag=5, commitOffset=beyond))
            tap.equal(stored("owner"), "1", "offset of the owner after a pull that commits %d" % beyond)
        for lie in ({"group": "nobody-ever", "topic": "NoSuchTopic"}, {"group": "owner", "topic": "NoSuchTopic"}):
            tap.equal(stored(**lie), None, "offset of %r" % lie)
    serves(honest)


@tap.test("names that are no names are refused with a remark, and leave no file or topic behind")
def _():
    bad = ("", " ", "a b", "a/b", "../../up", "x" * 300, "tab\tname", "new\nline", "\u4e2d\u6587", "a\0b")
    with r.Client(daemon.broker) as client:
        for name in bad:
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2(name, b"x", queue_id=0))
            tap.check(sent.code != r.SUCCESS and sent.remark, "a message to %r was accepted" % name)
            beaten = beat(client, "bad@1", [name])
            tap.check(beaten.code != r.SUCCESS and beaten.remark, "group %r was accepted" % name)
            beaten = beat(client, "bad@1", producers=[name])
            tap.check(beaten.code != r.SUCCESS and beaten.remark, "producer group %r was accepted" % name)
        sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("%RETRY%", b"x", queue_id=0))
        tap.check(sent.code != r.SUCCESS and sent.remark, "a message to no group's retries was accepted")
        beaten = beat(client, "i" * 300, ["fine"])
        tap.check(beaten.code != r.SUCCESS and "client id" in beaten.remark, beaten.remark)
    serves(honest)
    queues = os.path.join(daemon.folder, "consumequeue")
    process.wait_until(lambda: os.path.isdir(os.path.join(queues, "Alive")), 20, "the file of a queue")
    folders = os.listdir(queues)
    tap.check(set(folders) <= {"Alive", "SCHEDULE_TOPIC_XXXX"}, "folders %s" % folders)


@tap.test("who subscribes to what does not exist is in its group, is told so when it pulls, and makes nothing")
def _():
    with r.Client(daemon.broker) as client, r.Client(daemon.names) as names:
        tap.equal(beat(client, "s@1", ["dreamers"], topics=["NeverMade%d" % i for i in range(100)]).code, r.SUCCESS, "beat")
        got = client.request(r.PULL_MESSAGE, pull_fields("NeverMade1", consumerGroup="dreamers", sysFlag=6,
                                                         suspendTimeoutMillis=15000))
        tap.check(got.code == r.TOPIC_NOT_EXIST and "NeverMade1" in got.remark, "%r %r" % (got.code, got.remark))
        got = client.request(r.PULL_MESSAGE, pull_fields(consumerGroup="dreamers", sysFlag=0))
        tap.check(got.code != r.SUCCESS and got.remark, "a pull without a subscription was answered")
        tap.equal(names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "NeverMade1"}).code, r.TOPIC_NOT_EXIST, "route")
        many = beat(client, "s@1", ["dreamers"], topics=["T%d" % i for i in range(1100)])
        tap.check(many.code != r.SUCCESS and many.remark, "more topics than a group may have were accepted")
    serves(honest)


@tap.test("heartbeats of ten megabytes, sound or not, are answered and take no memory afterwards")
def _():
    long_text = "a" * (10 << 20)
    deep = "[" * (10 << 20)
    many = r.dumps({"clientID": "big@1", "producerDataSet": [], "consumerDataSet": [
        {"groupName": "big", "subscriptionDataSet": [{"topic": "T", "subString": "*", "codeSet": list(range(1500000))}]}]})
    bodies = {
        "a client id": heart(long_text, ["big"]),
        "a group": heart("big@1", [long_text]),
        "an expression": heart("big@1", ["big"]).replace(b'"subscriptionDataSet":[]',
                                                         b'"subscriptionDataSet":[{"topic":"T","subString":"%s"}]'
                                                         % long_text.encode()),
        "an unknown member": b'{"clientID":"big@1","x":"%s"}' % long_text.encode(),
        "nesting": b'{"clientID":"big@1","x":' + deep.encode(),
        "numbers": many,
        "zeros": b"\0" * (10 << 20),
    }
    with r.Client(daemon.broker, timeout=60) as client:
        serves(honest)
        for what, body in bodies.items():  # once to have the buffers that are kept
            tap.check(client.request(r.HEART_BEAT, body=body, timeout=60).code is not None, what)
        with Bounded(128):
            for what, body in bodies.items():
                for _ in range(2):
                    got = client.request(r.HEART_BEAT, body=body, timeout=60)
                    tap.check(got.code == r.SUCCESS or got.remark, "%s: %r" % (what, got))
                serves(honest)
        for what in ("a client id", "a group", "nesting", "zeros"):
            tap.check(client.request(r.HEART_BEAT, body=bodies[what], timeout=60).code != r.SUCCESS, "%s accepted" % what)


@tap.test("clients that never read: what others do is told to them only so far, and the others go on")
def _():
    silent = []
    with Bounded(200):
        for i in range(50):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(r.split_address(daemon.broker))
            s.sendall(r.encode(r.Command(r.HEART_BEAT, {}, heart("deaf%d@1" % i, ["deaf"]), opaque=1)))
            silent.append(s)
        with r.Client(daemon.broker) as client:
            def all_there():
                got = client.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "deaf"})
                return got.code == r.SUCCESS and len(got.json()["consumerIdList"]) == 50
            process.wait_until(all_there, 30, "all of them in the group")
            for i in range(300):  # each coming and each going is told to all the others
                tap.equal(beat(client, "restless@1", ["deaf"]).code, r.SUCCESS, "coming")
                client.request(r.UNREGISTER_CLIENT, {"clientID": "restless@1", "consumerGroup": "deaf"})
                if i % 100 == 0:
                    serves(honest)
    for s in silent:
        s.close()
    serves(honest)


@tap.test("a storm of a thousand clients that come, beat and vanish leaves nobody and nothing behind")
def _():
    fds = "/proc/%d/fd" % daemon.pid
    before = len(os.listdir(fds))
    with r.Client(daemon.broker) as watcher, Bounded(128):
        tap.equal(beat(watcher, "watcher@1", ["storm"]).code, r.SUCCESS, "heartbeat")
        beats = r.encode(r.Command(r.HEART_BEAT, {}, heart("drop@1", ["storm"], ["drops"]), opaque=1))
        pull = r.encode(r.Command(r.PULL_MESSAGE, pull_fields(queueOffset=10**6, sysFlag=6, suspendTimeoutMillis=15000),
                                  opaque=2))
        for wave in range(10):
            drops = [socket.create_connection(r.split_address(daemon.broker), 20) for _ in range(100)]
            for i, s in enumerate(drops):
                s.sendall(beats + pull if i % 2 else beats)
            serves(honest)
            for s in drops:
                s.close()

        def alone():
            got = watcher.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "storm"})
            return got.code == r.SUCCESS and got.json()["consumerIdList"] == ["watcher@1"]
        process.wait_until(alone, 30, "only the watcher is left")
    process.wait_until(lambda: len(os.listdir(fds)) <= before + 5, 30, "descriptors are closed again")
    serves(honest)


@tap.test("groups and memberships are taken up to their limits, and then refused with the limit's name")
def _():
    with r.Client(daemon.broker, timeout=60) as client, Bounded(128):
        code, remark = r.SUCCESS, None
        made = 0
        while code == r.SUCCESS and made < MAX_GROUPS + 200:
            got = beat(client, "many@1", ["many%d" % (made + i) for i in range(100)])
            code, remark = got.code, got.remark
            made += 100
        tap.check(code != r.SUCCESS and "maxGroups" in remark, "%d groups: %r %r" % (made, code, remark))
        tap.check(made > MAX_GROUPS - 200, "refused after %d groups" % made)
        serves(honest)
        made, code = 0, r.SUCCESS
        while code == r.SUCCESS and made < MAX_CLIENTS + 200:
            got = beat(client, "many@1", producers=["p%d" % (made + i) for i in range(100)])
            code, remark = got.code, got.remark
            made += 100
        tap.equal((code, "maxClients" in remark), (SYSTEM_BUSY, True), "refusal after %d (%s)" % (made, remark))
        serves(honest)

    def room_again():
        with r.Client(daemon.broker) as client:
            return beat(client, "late@1", producers=["late"]).code == r.SUCCESS
    process.wait_until(room_again, 30, "room for others once the greedy one has gone")


@tap.test("a thousand client ids on as many connections, each in a group that exists")
def _():
    crowd = []
    with Bounded(200):
        for i in range(1000):
            s = socket.create_connection(r.split_address(daemon.broker), 20)
            s.sendall(r.encode(r.Command(r.HEART_BEAT, {}, heart("id%d@1" % i, ["storm"]), opaque=1)))
            crowd.append(s)

        def all_listed():
            got = honest.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "storm"})
            return got.code == r.SUCCESS and len(got.json()["consumerIdList"]) == 1000
        process.wait_until(all_listed, 60, "all of them in the list", pause=0.3)
        serves(honest)
    for s in crowd:
        s.close()
    process.wait_until(lambda: honest.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "storm"}).code != r.SUCCESS,
                       60, "nobody in the group", pause=0.3)
    serves(honest)


@tap.test("after all this it stops cleanly")
def _():
    honest.close()
    daemon.stop()


tap.main()
