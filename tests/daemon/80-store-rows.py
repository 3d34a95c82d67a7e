"""What the store promises about its files, each sentence under the number it has in the list of requirements."""

import os
import random
import signal
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
KILLS = int(os.environ.get("KILLS", "300"))
KILLS_S = float(os.environ.get("KILLS_S", "18"))  # the kills end then, however many there were
UNIT = struct.Struct(">qiq")
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 100, "maxHashSlotNum": 1000,
         "maxIndexNum": 4000}
TABLES = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable",
          "consumerOffset.json": "offsetTable"}


def module(name):
    """What makes a daemon load one of our modules first."""
    path = os.environ.get(name)
    if not path:
        tap.skip("%s does not name a module" % name)
    return {"LD_PRELOAD": path, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def pull(client, topic, queue, offset, group="g"):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0})


def drain(client, topic, queue):
    """The bytes of all records of a queue, one piece a pull."""
    at = 0
    while True:
        got = pull(client, topic, queue, at)
        if got.code != r.SUCCESS:
            tap.equal(got.code, r.PULL_NOT_FOUND, "code at the end of the queue (%s)" % got.remark)
            return
        yield got.body
        at = int(got.ext["nextBeginOffset"])


def send_many(address, topic, count, size, queues=4, connections=3, **properties):
    """Messages over several connections, many in flight on each; the answers with their bodies, in no order."""
    clients = [r.Client(address, timeout=20) for _ in range(connections)]
    answers = []
    for start in range(0, count, 60):
        flying = []
        for n in range(start, min(start + 60, count)):
            body = (b"%d " % n).ljust(size, b"x")
            client = clients[n % connections]
            opaque = client.send(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, queue_id=n % queues))
            flying.append((client, opaque, body))
        answers += [(client.wait(opaque), body) for client, opaque, body in flying]
    for client in clients:
        client.close()
    wrong = [answer.remark for answer, _ in answers if answer.code != r.SUCCESS]
    tap.equal(wrong[:1], [], "refused sends")
    return answers


def files_of(daemon, *folder):
    root = os.path.join(daemon.folder, *folder)
    return {name: os.path.getsize(os.path.join(root, name)) for name in sorted(os.listdir(root))}


def position_of(answer):
    return int(answer.ext["msgId"][-16:], 16)


def read_log(daemon, position, size):
    """Bytes of the log as they are in its files now."""
    length = SMALL["mappedFileSizeCommitLog"]
    with open(os.path.join(daemon.folder, "commitlog", "%020d" % (position // length * length)), "rb") as source:
        source.seek(position % length)
        return source.read(size)


# Who writes and reads what ------------------------------------------------------------------------------------------

class Watched:
    """A daemon with every call on its CommitLog written down."""

    def __init__(self, **settings):
        self.calls = os.path.join(process.temp_folder(), "calls")
        self.daemon = daemons.Daemon(settings={**SMALL, **settings},
                                     env={**module("WATCH_LOG_MODULE"), "WATCH_LOG": self.calls})

    def __enter__(self):
        tap.watch(self.daemon)
        return self

    def __exit__(self, *_):
        self.daemon.kill9()
        tap.unwatch(self.daemon)

    def seen(self, kind):
        """Calls of one kind, in order: (position in the log, bytes), for a resize the file's first and its size."""
        with open(self.calls) as source:
            lines = [line.split() for line in source]
        return [(int(file) + sum(map(int, rest[:-1])), int(rest[-1])) for name, file, *rest in lines if name == kind]


@tap.test("ST-1 what is acknowledged stands in the log's file when the answer comes")
def _():
    with daemons.Daemon(settings=SMALL) as daemon, r.Client(daemon.broker) as client:
        for n in range(300):
            body = b"message %d" % n * (n % 40 + 1)
            answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Stored", body, queue_id=n % 4))
            tap.equal(answer.code, r.SUCCESS, "answer")
            size, = struct.unpack(">i", read_log(daemon, position_of(answer), 4))
            message, = r.messages(read_log(daemon, position_of(answer), size))
            tap.equal((message.body, message.queue_id, message.queue_offset),
                      (body, n % 4, int(answer.ext["queueOffset"])), "record at the promised place")


def check_appends(writes, size):
    """Records stand one behind the other, and zeros alone go only where none stand yet. Where the log ends, and how often
    zeros were written."""
    end, zeros = 0, 0
    for position, length in writes:
        if length == 0:
            tap.check(position >= end, "zeros at %d, where the log ended at %d" % (position, end))
            zeros += 1
            continue
        blank = end > 0 and position == -(-end // size) * size  # what a file's last record left over
        tap.check(position == end or blank, "write at %d, where the log ended at %d" % (position, end))
        end = position + length
    return end, zeros


def appending_only(flush):
    with Watched(flushDiskType=flush) as watched:
        daemon, size = watched.daemon, SMALL["mappedFileSizeCommitLog"]
        answers = send_many(daemon.broker, "Appended", 3000, 1500, KEYS="k")
        with r.Client(daemon.broker) as client:
            for queue in range(4):
                tap.check(sum(map(len, drain(client, "Appended", queue))) > 0, "queue %d is empty" % queue)
        with open("/proc/%d/maps" % daemon.pid) as source:
            ways = {line.split()[1] for line in source if "/commitlog/" in line}
        tap.equal(ways, {"r--s"}, "rights of the log's mappings")

        if flush == "SYNC_FLUSH":  # now that nobody waits for the disk, if not before
            process.wait_until(lambda: check_appends(watched.seen("w"), size)[1] > 0, 10, "zeros in front of the log's end")
        end, zeros = check_appends(watched.seen("w"), size)
        tap.equal(zeros > 0, flush == "SYNC_FLUSH", "the log was filled ahead")
        last = max(position_of(answer) for answer, _ in answers)
        tap.check(last + 1500 < end and last > 4 * size, "the log ends at %d, its last record is at %d" % (end, last))
        tap.equal({length for _, length in watched.seen("t")}, {size}, "sizes files were made with")
        found = set(os.listdir(daemon.folder)) - {"commitlog", "consumequeue", "index", "config", "checkpoint", "abort",
                                                  "lock", "namesrv"}
        tap.equal(found, set(), "anything but plain files")


@tap.test("ST-2 under load the log is written by appending only: every record once, one behind the other")
def _():
    appending_only("ASYNC_FLUSH")


@tap.test("ST-2 the same with SYNC_FLUSH, which writes zeros too: in front of the log's end, never over a record")
def _():
    appending_only("SYNC_FLUSH")


@tap.test("ST-3 a backlog is pulled without one byte of the log read into user space")
def _():
    def bytes_read(pid):
        with open("/proc/%d/io" % pid) as source:
            return int(source.readline().split()[1])  # rchar: what read and its relatives gave, sockets too

    with Watched() as watched:
        daemon = watched.daemon
        send_many(daemon.broker, "Backlog", 1500, 16000)
        daemon.restart()
        with r.Client(daemon.broker) as client:
            before, reads = bytes_read(daemon.pid), len(watched.seen("r"))
            tap.check(before > 0, "this system does not count what is read")
            moved = sum(len(body) for queue in range(4) for body in drain(client, "Backlog", queue))
            tap.check(moved > 1500 * 16000, "only %d bytes were pulled" % moved)
            tap.equal(watched.seen("r")[reads:], [], "reads from the log")
            total = bytes_read(daemon.pid) - before
            tap.check(total < moved // 20, "%d bytes were read from anywhere for %d that were sent" % (total, moved))
            tap.note("%d bytes pulled, %d read" % (moved, total))


# Files --------------------------------------------------------------------------------------------------------------

@tap.test("ST-4 log files have one size and are named by their first position, for all topics together")
def _():
    with daemons.Daemon(settings=SMALL) as daemon:
        size = SMALL["mappedFileSizeCommitLog"]
        for topic in ("RollA", "RollB", "RollC"):
            send_many(daemon.broker, topic, 200, 8000)
        daemon.stop()
        names = files_of(daemon, "commitlog")
        tap.check(len(names) > 4, "files %s" % list(names))
        tap.equal(list(names), ["%020d" % (n * size) for n in range(len(names))], "names")
        tap.equal(set(names.values()), {size}, "sizes")
    with daemons.Daemon() as daemon:  # as it is without settings, where the second is made ahead
        send_many(daemon.broker, "Roll", 1, 10)
        process.wait_until(lambda: files_of(daemon, "commitlog") == {
            "00000000000000000000": 1 << 30, "00000000001073741824": 1 << 30}, 10, "the second file")
        daemon.stop()
        tap.equal(files_of(daemon, "consumequeue", "Roll", "0"), {"00000000000000000000": 6000000}, "file of a queue")


@tap.test("ST-5 a queue has one unit of 20 bytes for each message: position, size, hash of the tag")
def _():
    with daemons.Daemon(settings=SMALL) as daemon:
        tags = ["TagA", "标签", None]
        for tag in tags:
            send_many(daemon.broker, "Units", 450, 30, **({"TAGS": tag} if tag else {}))
        with r.Client(daemon.broker) as client:
            stored = {queue: r.messages(b"".join(drain(client, "Units", queue))) for queue in range(4)}
        tap.equal(sum(map(len, stored.values())), 450 * len(tags), "messages")
        daemon.stop()
        for queue, messages in stored.items():
            root = os.path.join(daemon.folder, "consumequeue", "Units", str(queue))
            files = files_of(daemon, "consumequeue", "Units", str(queue))
            tap.equal(list(files), ["%020d" % (n * 2000) for n in range((len(messages) + 99) // 100)], "files")
            tap.equal(set(files.values()), {2000}, "sizes")
            data = b"".join(open(os.path.join(root, name), "rb").read() for name in files)
            units = [UNIT.unpack_from(data, at) for at in range(0, len(data), UNIT.size)]
            tap.equal(sum(unit[1] > 0 for unit in units), len(messages), "units that hold something")
            tap.equal(units[:len(messages)], [
                (m.physical_offset, m.size, r.tag_hash(m.properties["TAGS"]) if "TAGS" in m.properties else 0)
                for m in messages], "units of queue %d" % queue)


@tap.test("ST-7 abort is there while it runs and after SIGKILL, and gone after SIGTERM; the next start knows which")
def _():
    def opened(daemon):
        line = [line for line in daemon.read_log().splitlines() if "store open folder=" in line][-1]
        return line.split("clean=")[1].split()[0]

    with daemons.Daemon(settings=SMALL) as daemon:
        abort = os.path.join(daemon.folder, "abort")
        for ending, wanted in (("kill", "no"), ("stop", "yes"), ("stop", "yes"), ("kill", "no"), ("kill", "no")):
            send_many(daemon.broker, "Abort", 50, 100)
            tap.check(os.path.exists(abort), "abort is missing while it runs")
            if ending == "kill":
                daemon.kill9()
            else:
                daemon.stop()
            tap.equal(os.path.exists(abort), ending == "kill", "abort is there after %s" % ending)
            daemon.start()
            tap.equal(opened(daemon), wanted, "clean= in the log after %s" % ending)
        with r.Client(daemon.broker) as client:
            found = sum(len(r.messages(body)) for queue in range(4) for body in drain(client, "Abort", queue))
        tap.equal(found, 250, "messages of all lives")


# Tables -------------------------------------------------------------------------------------------------------------

class Tables:
    """config/ from outside, at any instant: what was there once stays, and every file is whole."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "config")
        self.topics, self.groups, self.offsets = {}, {}, {}
        self.looks = 0

    def look(self):
        for name, member in TABLES.items():
            try:
                with open(os.path.join(self.folder, name), "rb") as source:
                    text = source.read()
            except FileNotFoundError:
                tap.check(not self._known(name), "%s is gone" % name)
                continue
            self._compare(name, r.loads(text.decode())[member])
        self.looks += 1

    def _known(self, name):
        return {"topics.json": self.topics, "subscriptionGroup.json": self.groups}.get(name, self.offsets)

    def _compare(self, name, found):
        known = self._known(name)
        if name == "consumerOffset.json":
            lost = [key for key, queues in known.items()
                    if any(found.get(key, {}).get(queue, -1) < offset for queue, offset in queues.items())]
        else:
            lost = [key for key, row in known.items() if found.get(key) != row]
        tap.equal(lost[:3], [], "rows of %s that were lost or changed" % name)
        known.update(found)


def live(client, life, tables):
    """Topics, groups and offsets that change, with a look at the files between."""
    group = "group%d" % (life % 20)
    sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Life%d" % life, b"x", queue_id=0, defaultTopicQueueNums=3))
    tap.equal(sent.code, r.SUCCESS, "answer to a send (%s)" % sent.remark)
    pull(client, "Always", 0, 0, group)  # a group comes to life by consuming
    while True:
        done = client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": "Always", "queueId": life % 4,
                                                         "commitOffset": time.time_ns() // 1000000})
        tap.equal(done.code, r.SUCCESS, "answer to a commit (%s)" % done.remark)
        tables.look()


def check_offsets(client, tables):
    """What stood in the file is known to the daemon that has read it."""
    for key, queues in tables.offsets.items():
        topic, group = key.split("@")
        for queue, offset in queues.items():
            got = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue})
            tap.check(int(got.ext.get("offset", -1)) >= offset, "%s queue %s has offset %s, not %d"
                      % (key, queue, got.ext.get("offset"), offset))


def one_death(daemon, dice, life, tables):
    """A start that must find the tables, some changes, and an end: in the middle of a save, or at any moment."""
    daemon.env = module("DIE_SAVING_MODULE")
    by_step = dice.random() < 0.8
    if by_step:
        daemon.env["DIE_SAVING_AT"] = str(dice.randrange(1, 24))
    daemon.start(same_ports=False)
    killer = threading.Timer(30 if by_step else dice.uniform(0, 0.15), daemon.child.process.kill)
    killer.start()
    try:
        with r.Client(daemon.broker) as client:
            check_offsets(client, tables)
            live(client, life, tables)
    except (OSError, r.Closed):
        tap.check(not by_step or killer.is_alive(), "no table was written for seconds")
    finally:
        killer.cancel()
    tap.equal(daemon.child.wait(20), -signal.SIGKILL, "status")
    daemon.child = None
    tables.look()


@tap.test("ST-9 config/*.json are whole at any instant, also when killed while they are written; a start finds them")
def _():
    dice = random.Random(SEED)
    tap.note("seed %d (set SEED to repeat, KILLS and KILLS_S for more)" % SEED)
    with daemons.Daemon(settings={**SMALL, "flushConsumerOffsetInterval": 100}) as daemon:
        tap.watch(daemon)
        tables = Tables(daemon.folder)
        with r.Client(daemon.broker) as client:
            client.request(r.SEND_MESSAGE_V2, *r.send_v2("Always", b"x", queue_id=0))
        daemon.stop()
        tables.look()
        tap.check(tables.topics, "no topics after a stop")
        deadline, life = time.monotonic() + KILLS_S, 0
        while life < KILLS and time.monotonic() < deadline:
            one_death(daemon, dice, life, tables)
            life += 1
        daemon.env = None
        daemon.start()
        with r.Client(daemon.broker) as client:
            check_offsets(client, tables)
        daemon.stop()
        tables.look()
        repairs = [line for line in daemon.read_log().splitlines() if "tables repaired" in line and "damaged" in line]
        tap.equal(repairs, [], "tables that were found damaged")
        tap.note("%d kills, %d looks, %d topics" % (life, tables.looks, len(tables.topics)))
        tap.check(tables.topics and tables.groups and tables.offsets, "a table stayed empty")
        tap.unwatch(daemon)


tap.main()
