"""Stopping and starting: signals in the middle of work, clients that do not cooperate, name servers that are not there."""

import fcntl
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
QUEUES = 4
tap.note("seed %d (set SEED to repeat)" % SEED)


def pull_fields(topic, queue=0, offset=0, wait_ms=0):
    return {"consumerGroup": "g", "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0}


def stored_bodies(address, topic, queue):
    """Every body of a queue, by its offset."""
    found, at = {}, 0
    with r.Client(address, timeout=20) as client:
        while True:
            got = client.request(r.PULL_MESSAGE, pull_fields(topic, queue, at))
            if got.code != r.SUCCESS:
                return found
            found.update({m.queue_offset: m.body for m in r.messages(got.body)})
            at = int(got.ext["nextBeginOffset"])


def known_at(names, topic="TBW102"):
    with r.Client(names) as client:
        return client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == r.SUCCESS


def at_best(attempt, limit_s):
    """One attempt of three takes less than that: it is nobody's fault that the machine stands still for a moment."""
    took = []
    while len(took) < 3 and (not took or took[-1] >= limit_s):
        took.append(attempt())
    tap.check(took[-1] < limit_s, "it took %s s" % took)


def unsent(client):
    """What the daemon's side has no room for, in bytes."""
    return struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))[0]


def clog(daemon):
    """A connection with a full output queue, whose client does not read. The daemon has one loop for all connections."""
    with r.Client(daemon.broker) as client:
        for _ in range(32):
            client.request(r.SEND_MESSAGE_V2, *r.send_v2("Heavy", b"h" * 60000, queue_id=0))
    silent = socket.create_connection(r.split_address(daemon.broker), 5)
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    silent.settimeout(0.1)
    pulls = r.encode(r.Command(r.PULL_MESSAGE, pull_fields("Heavy"), opaque=1)) * 100
    try:
        while True:
            silent.sendall(pulls)
    except TimeoutError:
        pass

    def left_unread():
        """The loop has gone round, and has taken nothing from there."""
        before = unsent(silent)
        for _ in range(5):
            client.request(r.GET_MAX_OFFSET, {"topic": "Heavy", "queueId": 0})
        return before > 0 and unsent(silent) == before
    with r.Client(daemon.broker) as client:
        process.wait_until(left_unread, 20, "requests that the daemon does not read")
    return silent


def slow_daemon(ms):
    """With SYNC_FLUSH on a disk that takes its time."""
    module = os.environ.get("SLOW_DISK")
    if not module:
        tap.skip("SLOW_DISK does not name slow_disk.so")
    env = {"LD_PRELOAD": module, "SLOW_DISK_MS": str(ms),
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    return daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH"}, env=env)


class Worker(threading.Thread):
    """Connects again and again until the daemon stops; what one connection does is its life()."""

    def __init__(self, address, stopping, seed):
        super().__init__(daemon=True)
        self.address, self.stopping, self.dice = address, stopping, random.Random(seed)
        self.answered, self.torn = {}, 0

    def run(self):
        while not self.stopping.is_set():
            client = None
            try:
                client = r.Client(self.address, timeout=10)
                self.life(client)
            except (OSError, r.Closed):
                self.torn += bool(client and client.buffer.data)
            finally:
                if client:
                    if self.dice.random() < 0.3:  # hangs up with a reset
                        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()


class Sender(Worker):
    def life(self, client):
        flying = {}
        for number in range(self.dice.choice((1, 20, 1 << 30))):
            body = b"%d.%d.%d" % (self.native_id, self.dice.randrange(1 << 60), number)
            queue = self.dice.randrange(QUEUES)
            flying[client.send(r.SEND_MESSAGE_V2, *r.send_v2("Load", body, queue_id=queue))] = body, queue
            while len(flying) > 8:
                self.note(flying, client)

    def note(self, flying, client):
        opaque = next(iter(flying))
        answer = client.wait(opaque)
        body, queue = flying.pop(opaque)
        if answer.code == r.SUCCESS:
            self.answered[body] = queue, int(answer.ext["queueOffset"])


class Puller(Worker):
    def life(self, client):
        for _ in range(self.dice.choice((1, 5, 50))):
            queue = self.dice.randrange(QUEUES)
            end = int(client.request(r.GET_MAX_OFFSET, {"topic": "Load", "queueId": queue}).ext["offset"])
            opaques = [client.send(r.PULL_MESSAGE, pull_fields("Load", queue, end, 20000)) for _ in range(5)]
            if self.dice.random() < 0.3:
                return  # hangs up while they wait
            client.wait(opaques[0])


class Member(Worker):
    def life(self, client):
        name = "member%d" % self.dice.randrange(30)
        for version in range(self.dice.choice((1, 3, 10))):
            client.request(r.HEART_BEAT, body=r.dumps({
                "clientID": name, "producerDataSet": [], "consumerDataSet": [
                    {"groupName": "crowd", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                     "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False, "subscriptionDataSet": [
                         {"topic": "Load", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": version}]}]}))


def stop_under_load(flush):
    dice = random.Random(SEED)
    with daemons.Daemon(settings={"flushDiskType": flush, "mappedFileSizeCommitLog": 1 << 20}) as d:
        tap.watch(d)
        with r.Client(d.broker) as client:
            client.request(r.SEND_MESSAGE_V2, *r.send_v2("Load", b"first", queue_id=0))
        stopping = threading.Event()
        workers = [kind(d.broker, stopping, dice.random()) for kind in (Sender, Puller, Member) for _ in range(4)]
        for worker in workers:
            worker.start()
        process.wait_until(lambda: sum(len(w.answered) for w in workers) > 300, 20, "some work is done", pause=0.01)
        stopping.set()
        d.stop()
        for worker in workers:
            worker.join(15)
            tap.equal(worker.torn, 0, "connections that ended in the middle of an answer")
        d.start()
        stored = [stored_bodies(d.broker, "Load", queue) for queue in range(QUEUES)]
        answered = {body: place for worker in workers for body, place in worker.answered.items()}
        lost = [body for body, (queue, offset) in answered.items() if stored[queue].get(offset) != body]
        tap.equal(lost[:3], [], "%d of %d answered messages are lost or moved; the first" % (len(lost), len(answered)))
        tap.unwatch(d)


@tap.test("SIGTERM under load with ASYNC_FLUSH ends it in time and loses nothing that was answered")
def _():
    stop_under_load("ASYNC_FLUSH")


@tap.test("SIGTERM under load with SYNC_FLUSH ends it in time and loses nothing that was answered")
def _():
    stop_under_load("SYNC_FLUSH")


@tap.test("sends that were read before SIGTERM get their answers, however long the disk takes")
def _():
    def owed():
        """False: there were answers before the stop. The disk may have been quicker than we, but not for ever."""
        with slow_daemon(250) as d, r.Client(d.broker) as client:
            first = client.send(r.SEND_MESSAGE_V2, *r.send_v2("Owed", b"first", queue_id=0))
            client.request(r.GET_MAX_OFFSET, {"topic": "Owed", "queueId": 0})  # waits for nothing, so the send was read
            sends = [first] + [client.send(r.SEND_MESSAGE_V2, *r.send_v2("Owed", b"o", queue_id=0)) for _ in range(60)]
            client.request(r.GET_MAX_OFFSET, {"topic": "Owed", "queueId": 0})
            if any(opaque in client.replies for opaque in sends):
                return False
            d.stop()
            client.wait_closed()
            codes = {client.replies[opaque].code if opaque in client.replies else None for opaque in sends}
            tap.equal(codes, {r.SUCCESS}, "codes of the answers")
            tap.equal(bytes(client.buffer.data), b"", "bytes behind the last answer")
            return True
    process.wait_until(owed, 30, "a stop while the disk owes all of the answers")


@tap.test("clients that leave without waiting for the disk do not disturb the stop")
def _():
    with slow_daemon(250) as d:
        tap.watch(d)
        for _ in range(3):  # while the first is being flushed, the others are not even begun
            with r.Client(d.broker) as hasty:
                hasty.send(r.SEND_MESSAGE_V2, *r.send_v2("Hasty", b"h", queue_id=0))
                hasty.request(r.GET_MAX_OFFSET, {"topic": "Hasty", "queueId": 0})
        d.stop()
        d.start()
        tap.equal(len(stored_bodies(d.broker, "Hasty", 0)), 3, "messages")
        tap.unwatch(d)


@tap.test("SIGINT stops it as SIGTERM does")
def _():
    with daemons.Daemon() as d:
        os.kill(d.pid, signal.SIGINT)
        tap.equal(d.child.wait(20), 0, "status")
        d.child = None
        tap.check(not os.path.exists(os.path.join(d.folder, "abort")), "abort file after a clean stop")


@tap.test("a client that does not read holds up the stop for three seconds at most")
def _():
    def stop():
        with daemons.Daemon(settings={"ioThreads": 1}) as d, clog(d):
            took = d.stop()
            tap.check(took > 2.0, "stopped after %.1f s" % took)
            return took
    at_best(stop, 5.0)


@tap.test("a second signal ends it at once, and nothing is lost by that")
def _():
    def stop():
        with daemons.Daemon(settings={"ioThreads": 1}) as d, clog(d):
            before = stored_bodies(d.broker, "Heavy", 0)
            os.kill(d.pid, signal.SIGTERM)
            begin = time.monotonic()
            process.wait_until(lambda: "stopping signal=15" in d.read_log(), 20, "it has heard the first", pause=0.01)
            os.kill(d.pid, signal.SIGTERM)
            status, took = d.child.wait(20), time.monotonic() - begin
            d.child = None
            if took < 3:  # else the second may have come too late
                tap.equal(status, 128 + signal.SIGTERM, "status")
            d.start()
            tap.equal(stored_bodies(d.broker, "Heavy", 0) == before, True, "the same messages are there")
            return took
    at_best(stop, 1.5)


@tap.test("a daemon that is stopped while it starts does not say ready any more")
def _():
    dice = random.Random(SEED)
    for _ in range(40):
        command = [os.environ["ONCEMQD"], "--data", process.temp_folder(), "--set", "listenPort=0", "--set",
                   "namesrvListenPort=0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            first = child.stdout.readline()  # the store is open; the network is next
            time.sleep(dice.uniform(0, 0.002))  # the moment is what is being tested
            child.terminate()
            said = first + child.communicate(timeout=10)[0]
        tap.check(child.returncode in (0, -signal.SIGTERM), "status %d: %r" % (child.returncode, said))
        tap.check(b"ready" not in said.partition(b"stopping signal")[2], "ready after the stop: %r" % said)


@tap.test("name servers out of reach delay neither the start nor the stop; the operator is told")
def _():
    port, = process.free_ports()
    with socket.socket() as mute:  # accepts, and never says a word
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        servers = "127.0.0.1:%d;127.0.0.1:%d" % (port, mute.getsockname()[1])

        def slower(roles):
            """Of its start and its stop, in seconds."""
            with daemons.Daemon(roles=roles, settings={"namesrvAddr": servers}) as d:
                told = "out of reach addr=127.0.0.1:%d" % port
                process.wait_until(lambda: not roles or told in d.read_log(), 20, "a line in the log")
                return max(d.ready_ms / 1000, d.stop())
        for roles in (None, "broker"):
            at_best(lambda roles=roles: slower(roles), 2.0)


@tap.test("a broker registers with a name server that comes later, and again when that one was away")
def _():
    port, = process.free_ports()
    with daemons.Daemon(roles="broker", settings={"namesrvAddr": "127.0.0.1:%d" % port}) as broker:
        with daemons.Daemon(roles="names", settings={"namesrvListenPort": port}) as names:
            process.wait_until(lambda: known_at(names.names), 10, "registered")
            names.restart()
            process.wait_until(lambda: known_at(names.names), 10, "registered again")

            def lines():  # the broker hears of it a moment later
                return broker.read_log().count("registered name_server=127.0.0.1:%d" % port)
            process.wait_until(lambda: lines() >= 2, 20, "lines about it")
            tap.equal(lines(), 2, "lines about it")


@tap.test("two name servers are told the same, and both are told goodbye")
def _():
    with daemons.Daemon(roles="names") as one, daemons.Daemon(roles="names") as two:
        both = (one, two)
        with daemons.Daemon(roles="broker", settings={"namesrvAddr": "%s;%s" % (one.names, two.names)}) as broker:
            for names in both:
                process.wait_until(lambda: known_at(names.names), 10, "registered")
            with r.Client(broker.broker) as client:
                client.request(r.SEND_MESSAGE_V2, *r.send_v2("News", b"n"))
            for names in both:
                process.wait_until(lambda: known_at(names.names, "News"), 10, "a new topic is known")
            broker.stop()
            for names in both:
                process.wait_until(lambda: "broker unregistered addr=" in names.read_log(), 20, "goodbye")
                tap.equal(known_at(names.names), False, "known after the goodbye")


tap.main()
