"""Bad input: whatever is thrown at a running daemon, it stays up, stays bounded, and then serves as before."""

import os
import random
import socket
import struct
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

FRAME_MAX = 16 * 1024 * 1024
SEED = int(os.environ.get("SEED", "20261115"))
tap.note("seed %d (set SEED to change it)" % SEED)

daemon = daemons.Daemon(settings={"maxConnections": 400, "outputMaxBytes": 8 << 20})
tap.watch(daemon)


def resident_kb():
    with open("/proc/%d/status" % daemon.pid, encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def still_serves():
    """A send, a pull and a route, as any client would do them."""
    tap.check(daemon.running, "the daemon is gone")
    with r.Client(daemon.broker) as client, r.Client(daemon.names) as names:
        sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Alive", b"still here", queue_id=0))
        tap.equal(sent.code, r.SUCCESS, "send code (%s)" % sent.remark)
        got = client.request(r.PULL_MESSAGE, {
            "consumerGroup": "g", "topic": "Alive", "queueId": 0, "queueOffset": sent.ext["queueOffset"],
            "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
            "subVersion": 0})
        tap.equal([m.body for m in r.messages(got.body)], [b"still here"], "bodies")
        tap.equal(names.request(r.GET_BROKER_CLUSTER_INFO).code, r.SUCCESS)


def poke(address, data, wait=0.0):
    """Send bytes on a connection of their own and hang up; how the daemon takes it does not matter here."""
    with socket.create_connection(r.split_address(address), 5) as s:
        try:
            s.sendall(data)
            if wait:
                s.settimeout(wait)
                s.recv(65536)
        except (ConnectionError, TimeoutError):
            pass


def record(topic, body, queue_offset, position):
    """A message as it stands in the log."""
    now, host = int(time.time() * 1000), b"\x7f\0\0\x01\0\0\0\x01"
    rest = struct.pack(">IIII", r.MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, 0, 0)
    rest += struct.pack(">qqIq8sq8siqI", queue_offset, position, 0, now, host, now, host, 0, 0, len(body)) + body
    rest += struct.pack(">B", len(topic)) + topic.encode() + struct.pack(">H", 0)
    return struct.pack(">I", 4 + len(rest)) + rest


def logged(words, address, data):
    """Such lines come at most once a second, so the offence is repeated until its own line is there."""
    def seen():
        poke(address, data)
        return words in daemon.read_log()
    process.wait_until(seen, 10, "a line with %r in the log" % words, pause=0.2)


def samples():
    """One good frame of many kinds, in both header forms."""
    fields, body = r.send_v2("Alive", b"body" * 50, properties={"TAGS": "A", "KEYS": "k"}, queue_id=0)
    registration = r.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 5}, "topicConfigTable": {
            "A": {"topicName": "A", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6},
            "B": {"topicName": "B", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}}})
    heart = r.dumps({"clientID": "x@1", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [
        {"groupName": "cg", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
         "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [
             {"topic": "Alive", "subString": "A", "tagsSet": ["A"], "codeSet": [65], "subVersion": 1}]}]})
    commands = [
        (daemon.broker, r.SEND_MESSAGE_V2, fields, body),
        (daemon.broker, r.SEND_BATCH_MESSAGE, dict(fields, m=True), r.batch([(b"a", {"UNIQ_KEY": "1"}), (b"b", {})])),
        (daemon.broker, r.PULL_MESSAGE, {"consumerGroup": "g", "topic": "Alive", "queueId": 0, "queueOffset": 0,
                                         "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "subVersion": 0,
                                         "suspendTimeoutMillis": 1000, "subscription": "A || B"}, b""),
        (daemon.broker, r.HEART_BEAT, {}, heart),
        (daemon.broker, r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "cg", "topic": "Alive", "queueId": 0,
                                                   "commitOffset": 1}, b""),
        (daemon.names, r.REGISTER_BROKER, {"brokerName": "evil", "brokerAddr": "127.0.0.1:1", "clusterName": "C",
                                           "haServerAddr": "127.0.0.1:2", "brokerId": 0, "compressed": False,
                                           "bodyCrc32": 0}, registration),
        (daemon.names, r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Alive"}, b""),
        (daemon.names, r.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}, b""),
    ]
    for address, code, ext, content in commands:
        for form in ("json", "rocketmq"):
            yield address, r.encode(r.Command(code, ext, content, opaque=7, serialize=form))


@tap.test("every truncation of every kind of frame is survived")
def _():
    for address, whole in samples():
        for cut in sorted({*range(0, 24), *range(24, len(whole), 29), len(whole) - 1}):
            poke(address, whole[:cut])
    still_serves()


@tap.test("bit flips anywhere in a frame are survived")
def _():
    dice = random.Random(SEED)
    for address, whole in samples():
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(dice.choice((1, 1, 1, 4))):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            poke(address, bytes(data) + whole)
    still_serves()


@tap.test("random bytes, with and without a plausible length in front, are survived")
def _():
    dice = random.Random(SEED + 1)
    for i in range(400):
        noise = dice.randbytes(dice.randrange(1, 600))
        address = dice.choice((daemon.broker, daemon.names))
        if i % 2:
            head = dice.randrange(0, len(noise) + 3)
            noise = struct.pack(">II", len(noise) + 4, dice.choice((0, 1, 2)) << 24 | head) + noise
        poke(address, noise)
    still_serves()


@tap.test("lengths that lie close the connection, with a line in the log, and reserve no memory")
def _():
    before = resident_kb()
    for total, head in ((0xFFFFFFFF, 10), (0x7FFFFFFF, 10), (16 * 1024 * 1024 + 1, 10), (3, 0), (0, 0), (20, 0xFFFFFF),
                        (20, 17), (0x16030100, 0)):
        with r.Client(daemon.broker) as client:
            client.send_raw(r.frame(b"x" * 16, total=total, header_length=head))
            client.wait_closed()
    kept = []
    for _ in range(50):  # each announces 16 MiB and sends nothing of it
        client = r.Client(daemon.broker)
        client.send_raw(r.frame(b"x" * 16, total=16 * 1024 * 1024 - 8, header_length=16))
        kept.append(client)
    still_serves()
    grown = resident_kb() - before
    tap.check(grown < 64 * 1024, "resident memory grew by %d KiB" % grown)
    for client in kept:
        client.close()
    logged("over the limit", daemon.broker, r.frame(b"x" * 16, total=FRAME_MAX + 1))
    logged("starts like a TLS handshake", daemon.names, b"\x16\x03\x01\x02\x00\x01\x00\x01")


@tap.test("a header that cannot be read closes the connection with a line in the log")
def _():
    for header in (b"{", b"[]", b'{"code":}', b'{"code":1' + b'{"a":' * 5000, b"\xff\xfe", b'{"code":"x","opaque":1}'):
        with r.Client(daemon.broker) as client:
            client.send_raw(r.frame(header))
            client.wait_closed()
    with r.Client(daemon.names) as client:
        client.send_raw(r.frame(b"\0" * 21, serialize=7))
        client.wait_closed()
    logged("malformed header", daemon.broker, r.frame(b"{"))
    still_serves()


@tap.test("bodies that cannot be read are answered with an error, and the connection goes on")
def _():
    with r.Client(daemon.broker) as client:
        for body in (b"", b"{", b"[1,2]", b"\0" * 100, b'{"clientID":' + b"[" * 2000):
            got = client.request(r.HEART_BEAT, body=body)
            tap.check(got.code != r.SUCCESS and got.remark, "heartbeat %r was accepted" % body[:20])
        fields, _ = r.send_v2("Alive", b"", queue_id=0, batch=True)
        for body in (b"\0", b"\xff" * 30, r.batch([(b"a", {})])[:-1], struct.pack(">I", 22) + b"\0" * 18 + b"x"):
            got = client.request(r.SEND_BATCH_MESSAGE, fields, body)
            tap.check(got.code != r.SUCCESS and got.remark, "batch %r was accepted" % body[:20])
    with r.Client(daemon.names) as client:
        ext = {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "haServerAddr": "127.0.0.1:2",
               "brokerId": 0, "compressed": True, "bodyCrc32": 0}
        for compressed, body in ((True, b"not zlib"), (True, b"x\x9c"), (False, b"{"), (False, b"[]")):
            got = client.request(r.REGISTER_BROKER, dict(ext, compressed=compressed), body)
            tap.check(got.code != r.SUCCESS and got.remark, "registration %r was accepted" % body)
    still_serves()


@tap.test("a client that asks for much and never reads is stopped, then dropped; nobody else notices")
def _():
    with r.Client(daemon.broker) as client:
        for _ in range(64):
            client.request(r.SEND_MESSAGE_V2, *r.send_v2("Heavy", b"h" * 60000, queue_id=0))
    before = resident_kb()
    pull = r.encode(r.Command(r.PULL_MESSAGE, {
        "consumerGroup": "g", "topic": "Heavy", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}, opaque=1))
    with socket.create_connection(r.split_address(daemon.broker), 5) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.settimeout(0.2)
        sent = 0
        try:
            while sent < 20000:
                silent.sendall(pull * 100)
                sent += 100
        except (TimeoutError, ConnectionError):
            pass
        tap.check(sent < 20000, "the daemon took every request although no answer was read")
        still_serves()
        grown = resident_kb() - before
        tap.check(grown < 128 * 1024, "resident memory grew by %d KiB" % grown)


@tap.test("more connections than allowed are turned away; the others stay")
def _():
    with r.Client(daemon.broker) as first:
        crowd = []
        try:
            for _ in range(450):
                crowd.append(socket.create_connection(r.split_address(daemon.broker), 5))
        except OSError:
            pass
        tap.equal(first.request(r.GET_MAX_OFFSET, {"topic": "Alive", "queueId": 0}).code, r.SUCCESS, "the first one")
        process.wait_until(lambda: "too many connections" in daemon.read_log(), 10, "a line in the log")
        for s in crowd:
            s.close()

    def room_again():
        try:
            still_serves()
            return True
        except (OSError, r.Closed):
            return False
    process.wait_until(room_again, 10, "room for new connections")


@tap.test("a storm of connections that open and vanish leaves nothing behind")
def _():
    fds = "/proc/%d/fd" % daemon.pid
    before = len(os.listdir(fds))
    for _ in range(1000):
        poke(daemon.broker, b"")
    still_serves()
    process.wait_until(lambda: len(os.listdir(fds)) <= before + 5, 10, "descriptors are closed again")


@tap.test("waiting pulls with expressions as long as a frame take a bounded part of the memory")
def _():
    still_serves()
    before = resident_kb()
    with r.Client(daemon.broker, timeout=30) as client:
        for _ in range(60):
            client.send(r.PULL_MESSAGE, {
                "consumerGroup": "g", "topic": "Alive", "queueId": 1, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 6,
                "commitOffset": 0, "suspendTimeoutMillis": 100000, "subscription": "a" * (8 << 20), "subVersion": 0})
        client.request(99999)
        still_serves()
        grown = resident_kb() - before
        # 64 MiB of texts, and what the address sanitizer keeps of freed memory
        tap.check(grown < 400 * 1024, "resident memory grew by %d KiB" % grown)


@tap.test("a message in the folder that is too big for a frame is told, and the one behind it can be read")
def _():
    folder = os.path.join(process.temp_folder(), "data")
    os.makedirs(os.path.join(folder, "commitlog"))
    open(os.path.join(folder, "abort"), "wb").close()  # so that the queues are made from the log
    big = record("Big", b"b" * (17 << 20), 0, 0)
    with open(os.path.join(folder, "commitlog", "0" * 20), "wb") as log:
        log.write(big + record("Big", b"small", 1, len(big)))
        log.truncate(64 << 20)
    with daemons.Daemon(folder=folder, settings={"mappedFileSizeCommitLog": 64 << 20}) as d, \
            r.Client(d.broker, timeout=20) as client:
        pull = {"consumerGroup": "g", "topic": "Big", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
                "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        got = client.request(r.PULL_MESSAGE, pull)
        tap.check(got.code == r.SYSTEM_ERROR and "too big for a frame" in got.remark, "%r %r" % (got.code, got.remark))
        got = client.request(r.PULL_MESSAGE, dict(pull, queueOffset=1))
        tap.equal([m.body for m in r.messages(got.body)], [b"small"], "bodies")


@tap.test("more topics than one registration can hold are refused, and the broker stays registered")
def _():
    with daemons.Daemon() as d, r.Client(d.broker, timeout=60) as client, r.Client(d.names, timeout=20) as names:
        for part in range(4):  # groups with the longest names there are, each with its topic for retries
            groups = [{"groupName": "%0120d" % (part * 10000 + i), "subscriptionDataSet": []} for i in range(10000)]
            beat = client.request(r.HEART_BEAT, body=r.dumps({"clientID": "x", "consumerDataSet": groups,
                                                              "producerDataSet": []}))
        tap.check(beat.code != r.SUCCESS and "maxTopics" in beat.remark, "%r %r" % (beat.code, beat.remark))
        sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("%RETRY%" + "0" * 120, b"x", queue_id=0))
        tap.equal(sent.code, r.SUCCESS, "send code (%s)" % sent.remark)

        def registered():
            return names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%" + "%0120d" % 29000}).code == r.SUCCESS
        process.wait_until(registered, 20, "the last of them are known to the name server", pause=0.2)
        tap.check("cannot register" not in d.read_log(), "it could not register")


@tap.test("names in the settings that grow when they are quoted still fit into every answer")
def _():
    for quoted in ("\"" * 255, "\\" * 255):
        settings = {"regionId": quoted, "brokerClusterName": quoted, "brokerName": quoted}
        with daemons.Daemon(settings=settings) as d, r.Client(d.broker) as client:
            for form in ("json", "rocketmq"):
                sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Quotes", b"x", queue_id=0), serialize=form)
                tap.equal((sent.code, sent.ext["MSG_REGION"]), (r.SUCCESS, quoted), "answer")
            with r.Client(d.names) as names:
                tap.equal(list(names.request(r.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"]), [quoted], "names")


@tap.test("connections cannot take the descriptors that the log needs")
def _():
    wrapper = os.path.join(process.temp_folder(), "few")
    with open(wrapper, "w", encoding="ascii") as script:
        script.write('#!/bin/sh\nulimit -n 1024\nexec "%s" "$@"\n' % daemon.binary)
    os.chmod(wrapper, 0o755)
    with daemons.Daemon(binary=wrapper, settings={"mappedFileSizeCommitLog": 65536}) as d:
        tap.check("fewer connections than maxConnections" in d.read_log(), "the operator is not told")
        with r.Client(d.broker) as client:
            crowd = []
            try:
                for _ in range(1100):
                    crowd.append(socket.create_connection(r.split_address(d.broker), 0.2))
            except OSError:
                pass
            codes = {client.request(r.SEND_MESSAGE_V2, *r.send_v2("Files", b"f" * 10000, queue_id=0)).code
                     for _ in range(100)}
            tap.equal(codes, {r.SUCCESS}, "codes while %d others are connected" % len(crowd))
            for s in crowd:
                s.close()
        d.stop()


@tap.test("after all this it stops cleanly")
def _():
    daemon.stop()


tap.main()
