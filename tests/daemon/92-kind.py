"""Where users hurt most: what the broker says when something is wrong, and to whom."""

import itertools
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

SYSTEM_BUSY = 2


def slow_daemon(ms, **settings):
    """Every fdatasync takes so long."""
    module = os.environ.get("SLOW_DISK")
    if not module:
        tap.skip("SLOW_DISK does not name slow_disk.so")
    env = {"LD_PRELOAD": module, "SLOW_DISK_MS": str(ms),
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    return daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH", **settings}, env=env)


def heartbeat(client, client_id, group, producer=None):
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": []}
    body = r.dumps({"clientID": client_id, "producerDataSet": [{"groupName": producer}] if producer else [],
                    "consumerDataSet": [consumer] if group else []})
    tap.equal(client.request(r.HEART_BEAT, body=body).code, r.SUCCESS, "heartbeat")


def send_frame(topic, opaque):
    fields, body = r.send_v2(topic, b"x", queue_id=0)
    return r.encode(r.Command(r.SEND_MESSAGE_V2, fields, body, opaque=opaque))


def local(client):
    return "%s:%d" % client.socket.getsockname()[:2]


def route_remark(address, topic):
    with r.Client(address) as client:
        answer = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        tap.equal(answer.code, r.TOPIC_NOT_EXIST, "code")
        tap.check(answer.remark.startswith("No topic route info in name server for the topic: %s" % topic), answer.remark)
        return answer.remark


@tap.test("more sends than may wait for the disk are refused at once with their number, and are not stored")
def _():
    with slow_daemon(300, sendThreadPoolQueueCapacity=10, osPageCacheBusyTimeOutMills=3600000) as d, \
            r.Client(d.broker) as client:
        tap.equal(client.request(r.SEND_MESSAGE_V2, *r.send_v2("Full", b"first", queue_id=0)).code, r.SUCCESS, "first")
        # The first read may bring few of them or all; from the second on something waits.
        client.send_raw(send_frame("Full", 1000))
        client.send_raw(b"".join(send_frame("Full", 2000 + i) for i in range(1000)))
        answers = [client.wait(opaque, 60) for opaque in [1000, *range(2000, 3000)]]
        refused = [a for a in answers if a.code != r.SUCCESS]
        tap.check(refused, "nothing was refused")
        for answer in refused:
            tap.equal(answer.code, SYSTEM_BUSY, "code (%s)" % answer.remark)
            tap.check("sends wait for the disk" in answer.remark and "10" in answer.remark, answer.remark)
            tap.check("MSG_REGION" in answer.ext, "fields %r" % answer.ext)
        stored = int(client.request(r.GET_MAX_OFFSET, {"topic": "Full", "queueId": 0}).ext["offset"])
        tap.equal(stored, 1 + len(answers) - len(refused), "messages stored")
        tap.equal(client.request(r.SEND_MESSAGE_V2, *r.send_v2("Full", b"last", queue_id=0)).code, r.SUCCESS, "last")
        process.wait_until(lambda: "send refused" in d.read_log(), 20, "a line for the operator")


@tap.test("a disk that does not answer in time: further sends are refused with how long it has been")
def _():
    with slow_daemon(2000, osPageCacheBusyTimeOutMills=50) as d, r.Client(d.broker) as client:
        opaque = client.send(r.SEND_MESSAGE_V2, *r.send_v2("Slow", b"waits", queue_id=0))
        remarks = []

        def refused():
            """Two sends with a pause that is longer than the limit: the second meets the first unless the disk was
            just done with it."""
            pair = [client.send(r.SEND_MESSAGE_V2, *r.send_v2("Slow", b"more", queue_id=0))]
            time.sleep(0.2)
            pair.append(client.send(r.SEND_MESSAGE_V2, *r.send_v2("Slow", b"more", queue_id=0)))
            answers = [client.wait(each, 60) for each in pair]
            remarks.extend(answer.remark for answer in answers if answer.code == SYSTEM_BUSY)
            return remarks

        process.wait_until(refused, 60, "a refusal")
        remark = remarks[0]
        tap.check("at most 50, osPageCacheBusyTimeOutMills" in remark, remark)
        tap.equal(client.wait(opaque, 60).code, r.SUCCESS, "the one that waited")


@tap.test("flow control can be switched off")
def _():
    with slow_daemon(100, sendThreadPoolQueueCapacity=1, brokerFastFailureEnable="false") as d, \
            r.Client(d.broker) as client:
        client.send_raw(b"".join(send_frame("Free", 100 + i) for i in range(600)))
        tap.equal({client.wait(100 + i, 60).code for i in range(600)}, {r.SUCCESS}, "codes")


@tap.test("a client that has closed its half gets the answer that waits for the disk")
def _():
    with slow_daemon(500) as d, socket.create_connection(r.split_address(d.broker), 30) as s:
        s.sendall(send_frame("Half", 7))
        s.shutdown(socket.SHUT_WR)
        data = b""
        while part := s.recv(65536):
            data += part
        buffer = r.FrameBuffer()
        buffer.feed(data)
        answer = r.decode(buffer.pop())
        tap.equal((answer.opaque, answer.code), (7, r.SUCCESS), "answer")


@tap.test("two live clients with one id are named in the log with both addresses, producers too")
def _():
    with daemons.Daemon() as d, r.Client(d.broker) as a, r.Client(d.broker) as b:
        for _ in range(3):
            for client in (a, b):
                heartbeat(client, "twin@1", "twins")
        process.wait_until(lambda: "same client id [twin@1]" in d.read_log(), 10, "a warning")
        line = next(line for line in d.read_log().splitlines() if "twin@1" in line)
        for words in ("consumers of group [twins]", local(a), local(b)):
            tap.check(words in line, line)
        groups = itertools.count()

        def told():
            """There is one such line in a second, whoever it is about; so it takes a few groups."""
            group = "makers%d" % next(groups)
            for client in (a, b, a):
                heartbeat(client, "p@1", None, producer=group)
            return "producers of group [makers" in d.read_log()
        process.wait_until(told, 10, "a warning about producers", pause=0.3)


@tap.test("a client that is silent too long leaves its groups and is disconnected; who speaks stays")
def _():
    with daemons.Daemon(settings={"channelExpiredTimeout": 10000}) as d, r.Client(d.broker) as silent, \
            r.Client(d.broker) as alive:
        heartbeat(silent, "silent@1", "quiet")
        heartbeat(alive, "alive@1", "quiet")
        deadline = time.monotonic() + 60
        closed = False
        while not closed and time.monotonic() < deadline:
            heartbeat(alive, "alive@1", "quiet")
            try:  # it asks for things, but gives no heartbeat
                silent.request(r.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": 0})
            except (r.Closed, ConnectionError):
                closed = True
            time.sleep(0.3)
        tap.check(closed, "the silent client is still connected")
        listed = alive.request(r.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "quiet"})
        tap.equal(listed.json(), {"consumerIdList": ["alive@1"]}, "members")


@tap.test("no route: the answer says whether topics are created on first use, and what became of the broker")
def _():
    with daemons.Daemon() as d:
        tap.check("created when the first message" in route_remark(d.names, "Nowhere"), "with auto-create")
    with daemons.Daemon(settings={"autoCreateTopicEnable": "false"}) as d:
        remark = route_remark(d.names, "Nowhere")
        tap.check("autoCreateTopicEnable" in remark, remark)
        with r.Client(d.broker) as client:
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Nowhere", b"x", queue_id=0))
            tap.equal(sent.code, r.TOPIC_NOT_EXIST, "send")
            tap.check("autoCreateTopicEnable" in sent.remark, sent.remark)
    with daemons.Daemon(roles="names", name="names") as names:
        settings = {"namesrvAddr": names.names, "brokerName": "shortlived"}
        with daemons.Daemon(roles="broker", settings=settings) as d:
            with r.Client(d.broker) as client:
                tap.equal(client.request(r.SEND_MESSAGE_V2, *r.send_v2("Was", b"x", queue_id=0)).code, r.SUCCESS, "send")

            def known():
                with r.Client(names.names) as client:
                    return client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Was"}).code == r.SUCCESS
            process.wait_until(known, 20, "the topic is known")
            d.kill9()
            process.wait_until(lambda: not known(), 20, "the broker is missed")
            remark = route_remark(names.names, "Was")
            tap.check("broker shortlived had it and lost its connection" in remark, remark)


@tap.test("a route that nobody can write to is given with a remark")
def _():
    with daemons.Daemon() as d, r.Client(d.names) as names, r.Client(d.broker) as client:
        tap.equal(client.request(r.SEND_MESSAGE_V2, *r.send_v2("Frozen", b"x", queue_id=0)).code, r.SUCCESS, "send")
        def route():
            return names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Frozen"})
        process.wait_until(lambda: route().code == r.SUCCESS, 10, "the topic is known")
        tap.equal(route().remark or "", "", "remark while it can be written to")
        broker = route().json()["brokerDatas"][0]["brokerName"]
        tap.equal(names.request(205, {"brokerName": broker}).code, r.SUCCESS, "wiping the write permission")
        frozen = route()
        tap.equal((frozen.code, frozen.json()["queueDatas"][0]["perm"]), (r.SUCCESS, 4), "route")
        tap.check("written" in frozen.remark, "remark %r" % frozen.remark)


tap.main()
