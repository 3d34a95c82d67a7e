"""What a broker holds, seen from outside and on disk, in a form that can be compared.

* `fill()` sends messages of every kind to a broker, ours or Apache's: both speak the same protocol.
* `read_all()` pulls every record of every queue, as the bytes that stand in the log.
* `wrong_keys()` asks a broker for every key of these records.
* `queues_of()`, `units_of()`, `log_files()`, `table()` look into a folder that nobody has open.

Two brokers hold the same when their `read_all()` are equal: a record's bytes carry its place in the log and in its
queue, its times, hosts, flags, body and properties.
"""

import dataclasses
import os
import random
import subprocess
import time
import zlib

from harness import process, remoting as r

END_TRANSACTION = 37
SUBSCRIPTION = 4
PREPARED, COMMIT_TYPE, ROLLBACK_TYPE = 0x4, 0x8, 0xC
ZLIB = 0x301
UNIT = 20
FILES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": UNIT * 300, "maxHashSlotNum": 500,
         "maxIndexNum": 2000}
QUERY_MESSAGE, QUERY_MAX = 12, 64
GROUP, READER = "format_group", "format_reader"
TAGS = ("TagA", "TagB", "标签", None)


@dataclasses.dataclass
class Queue:
    """One queue as a broker shows it: its bounds, and the raw record at each offset from the first on."""
    first: int
    end: int
    records: list

    @property
    def messages(self):
        return r.messages(b"".join(self.records))


# Sending ------------------------------------------------------------------------------------------------------------

def body_of(number, size=None):
    """Bytes that follow from the number alone."""
    dice = random.Random(number)
    return dice.randbytes(size if size is not None else 1 + dice.randrange(700))


def properties_of(number):
    table = {"KEYS": "order-%d many-%d" % (number, number % 7), "number": number, "größe": "12 \" \\ ü 标 🚀",
             "UNIQ_KEY": "7F0000010A2B18B4AAC2%012X" % number, "WAIT": "true"}
    if TAGS[number % len(TAGS)]:
        table["TAGS"] = TAGS[number % len(TAGS)]
    return table


def send(client, topic, body, properties, queue, queues=4, code=r.SEND_MESSAGE_V2, **fields):
    """Send without waiting; the opaque is for `settle`."""
    header, body = r.send_v2(topic, body, properties, queue, defaultTopicQueueNums=queues, **fields)
    return client.send(code, header, body)


def settle(client, opaques):
    """The answers of sends, all successful."""
    answers = [client.wait(opaque, 20) for opaque in opaques]
    for answer in answers:
        assert answer.code == r.SUCCESS, "send was answered %d: %s" % (answer.code, answer.remark)
    return answers


def fill(address, first=0, count=3000):
    """Plain messages, batches and compressed ones, over several topics and queues; numbers from `first` on."""
    with r.Client(address) as client:
        settle(client, [send(client, "FormatPlain", b"makes the topic", {}, 0)])
        settle(client, [send(client, "FormatBatch", b"makes the topic", {}, 0, queues=2)])
        settle(client, [send(client, "FormatBig", b"makes the topic", {}, 0, queues=1)])
        for start in range(first, first + count, 100):
            numbers = range(start, start + 100)
            settle(client, [send(client, "FormatPlain", body_of(n), properties_of(n), n % 4, flag=n) for n in numbers])
            if start // 100 % 3 == 0:
                fill_batches(client, start)
            if start // 100 % 5 == 0:
                fill_big(client, start)


def fill_batches(client, start):
    opaques = []
    for queue in (0, 1):
        items = [(body_of(n), properties_of(n)) for n in range(start + 10 * queue, start + 10 * queue + 10)]
        opaques.append(send(client, "FormatBatch", r.batch(items), {"UNIQ_KEY": "BATCH%d" % start, "WAIT": "true"},
                            queue, code=r.SEND_BATCH_MESSAGE, batch=True))
    settle(client, opaques)


def fill_big(client, start):
    """Bodies that a client compresses, and one that is big although it is."""
    text = ("message %d " % start).encode() * 2000
    settle(client, [send(client, "FormatBig", zlib.compress(text, 5), properties_of(start), 0, sysFlag=ZLIB),
                    send(client, "FormatBig", body_of(start, 150000), properties_of(start + 1), 0)])


def fill_delayed(address):
    """Some that arrive after a second, and some that stay: two hours are longer than any test."""
    with r.Client(address) as client:
        settle(client, [send(client, "FormatDelay", body_of(n), {**properties_of(n), "DELAY": level}, n % 2, queues=2)
                        for n, level in enumerate([1] * 20 + [18] * 20 + [17] * 5)])
        process.wait_until(lambda: bounds(client, "FormatDelay", 0)[1] + bounds(client, "FormatDelay", 1)[1] == 20,
                           30, "delivery of the delayed messages")


def fill_transactions(address):
    """Half messages: of 30, ten are committed, ten rolled back and ten left open."""
    with r.Client(address) as client:
        halves = settle(client, [send(client, "FormatTx", body_of(n),
                                      {**properties_of(n), "TRAN_MSG": "true", "PGROUP": "format_tx"}, 0, queues=1,
                                      group="format_tx", sysFlag=PREPARED) for n in range(30)])
        for n, (half, kind) in enumerate(zip(halves, [COMMIT_TYPE] * 10 + [ROLLBACK_TYPE] * 10)):
            answer = client.request(END_TRANSACTION, {
                "topic": "FormatTx", "producerGroup": "format_tx", "tranStateTableOffset": half.ext["queueOffset"],
                "commitLogOffset": int(half.ext["msgId"][-16:], 16), "commitOrRollback": kind,
                "fromTransactionCheck": False, "msgId": properties_of(n)["UNIQ_KEY"],
                "transactionId": half.ext.get("transactionId")})
            assert answer.code == r.SUCCESS, "end of transaction: %d %s" % (answer.code, answer.remark)


# Reading ------------------------------------------------------------------------------------------------------------

def bounds(client, topic, queue):
    place = {"topic": topic, "queueId": queue}
    return tuple(int(client.request(code, place).ext["offset"]) for code in (r.GET_MIN_OFFSET, r.GET_MAX_OFFSET))


def pull(client, topic, queue, offset, group=READER):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG"})


def split(body):
    """A pull's body as one piece a record."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at:at + 4], "big")
        found.append(body[at:at + size])
        at += size
    return found


def read_queue(client, topic, queue, group=READER):
    """A queue as it is when the reading begins; what a broker adds meanwhile is for the next look."""
    first, end = bounds(client, topic, queue)
    at, records = first, []
    while at < end:
        answer = pull(client, topic, queue, at, group)
        assert answer.code == r.SUCCESS, "%s/%d at %d: %d %s" % (topic, queue, at, answer.code, answer.remark)
        records += split(answer.body)
        at = int(answer.ext["nextBeginOffset"])
    held = Queue(first, end, records[:end - first])
    offsets = [message.queue_offset for message in held.messages]
    assert offsets == list(range(first, end)), "%s/%d has offsets %s" % (topic, queue, offsets)
    return held


def read_all(address, queues, group=READER):
    """(topic, queue number) -> Queue, with every record."""
    with r.Client(address, timeout=20) as client:
        return {place: read_queue(client, *place, group) for place in queues}


def read_settled(address, folder):
    """read_all() of a broker with work of its own in the background, once two looks agree.

    A queue's folder appears with its first message, which for the records that close transactions is seconds later.
    """
    last = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = read_all(address, queues_of(folder))
        if now == last:
            return now
        last = now
        time.sleep(4)
    raise process.Failed("the broker at %s does not come to rest" % address)


def differences(wanted, found):
    """What `found` has otherwise than `wanted`, a line for each queue; short enough to read."""
    lines = []
    for place in sorted(set(wanted) | set(found)):
        one, other = wanted.get(place), found.get(place)
        if one is None or other is None:
            lines.append("%s/%d is only in %s" % (*place, "the first" if other is None else "the second"))
        elif (one.first, one.end) != (other.first, other.end):
            lines.append("%s/%d has offsets %d to %d, not %d to %d"
                         % (*place, other.first, other.end, one.first, one.end))
        else:
            wrong = [i + one.first for i, pair in enumerate(zip(one.records, other.records)) if pair[0] != pair[1]]
            if wrong:
                lines.append("%s/%d differs at offsets %s" % (*place, wrong[:10]))
    return lines


def log_end(held):
    """Where the last record ends, over all queues."""
    return max(message.physical_offset + message.size for queue in held.values() for message in queue.messages)


def first_position(answers):
    """The lowest position that answers to sends name. Apache's broker handles pipelined sends in any order."""
    return min(int(answer.ext["msgId"][-16:], 16) for answer in answers)


# Keys ---------------------------------------------------------------------------------------------------------------

def keys_of(held):
    """(topic, key, is it a unique key) -> positions of the records with that key, rising."""
    found = {}
    for message in (message for queue in held.values() for message in queue.messages):
        if message.sys_flag & ROLLBACK_TYPE == ROLLBACK_TYPE:
            continue
        words = {(word, False) for word in message.properties.get("KEYS", "").split(" ") if word}
        if message.unique_key:
            words.add((message.unique_key, True))
        for word, unique in words:
            found.setdefault((message.topic, word, unique), []).append(message.physical_offset)
    return {key: sorted(positions) for key, positions in found.items()}


def ask_key(client, topic, key, unique):
    """Send a query over all times without waiting."""
    fields = {"topic": topic, "key": key, "maxNum": QUERY_MAX, "beginTimestamp": 0,
              "endTimestamp": int(time.time() * 1000) + 3600000}
    return client.send(QUERY_MESSAGE, {**fields, "_UNIQUE_KEY_QUERY": "true"} if unique else fields)


def answered_positions(answer, topic, key, unique):
    """Where the found records stand, without those that only have the same hash: clients compare the text, too."""
    if answer.code != r.SUCCESS:
        assert answer.code == r.QUERY_NOT_FOUND, "query of %s: %d %s" % (key, answer.code, answer.remark)
        return []
    return [message.physical_offset for message in r.messages(answer.body) if message.topic == topic and
            (message.unique_key == key if unique else key in message.properties.get("KEYS", "").split(" "))]


def wrong_keys(address, held, first=0):
    """Asks for every key of the records from position `first` on; gives (keys asked for, a line for each wrong answer).

    The newest records come first and an answer holds 64, in the order of the log.
    """
    keys = list(keys_of(held).items())
    lines, asked = [], 0
    with r.Client(address, timeout=20) as client:
        for start in range(0, len(keys), 50):
            flying = [(ask_key(client, *key), key, places) for key, places in keys[start:start + 50]
                      if places[-1] >= first]
            asked += len(flying)
            for opaque, key, places in flying:
                wanted = [place for place in places if place >= first][-QUERY_MAX:]
                answered = answered_positions(client.wait(opaque), *key)
                found = [place for place in answered if place >= first]
                if found != wanted or not set(answered) <= set(places):
                    lines.append("%s %s: %d found, not %d: %s, not %s" % (*key[:2], len(found), len(wanted), found[:5],
                                                                          wanted[:5]))
    return asked, lines


# Offsets ------------------------------------------------------------------------------------------------------------

def commit(address, held, group=GROUP):
    """Commit about two thirds of each user's queue; gives what was committed."""
    wanted = {}
    with r.Client(address) as client:
        for (topic, queue), content in held.items():
            if not topic.startswith("Format"):
                continue
            pull(client, topic, queue, content.first, group)    # a group comes to life by consuming
            wanted[topic, queue] = content.end * 2 // 3
            answer = client.request(r.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue,
                                                               "commitOffset": wanted[topic, queue]})
            assert answer.code == r.SUCCESS, "commit was answered %d: %s" % (answer.code, answer.remark)
    return wanted


def committed(address, places, group=GROUP):
    """What the broker says the group has committed."""
    found = {}
    with r.Client(address) as client:
        for topic, queue in places:
            answer = client.request(r.QUERY_CONSUMER_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue})
            found[topic, queue] = int(answer.ext["offset"]) if answer.code == r.SUCCESS else answer.code
    return found


# Folders ------------------------------------------------------------------------------------------------------------

def queues_of(folder):
    """Every (topic, queue number) that has queue files. A broker that has it open may make them a little later."""
    root = os.path.join(folder, "consumequeue")
    if not os.path.isdir(root):
        return []
    return sorted((topic, int(queue)) for topic in os.listdir(root) for queue in os.listdir(os.path.join(root, topic))
                  if os.listdir(os.path.join(root, topic, queue)))


def units_of(folder, held):
    """(topic, queue number) -> the bytes of its readable units."""
    found = {}
    for (topic, queue), content in held.items():
        root = os.path.join(folder, "consumequeue", topic, str(queue))
        names = sorted(os.listdir(root))
        data = b"".join(_read(os.path.join(root, name)) for name in names)
        base = int(names[0]) if names else 0
        found[topic, queue] = data[content.first * UNIT - base:content.end * UNIT - base]
    return found


def log_files(folder):
    return sorted(os.listdir(os.path.join(folder, "commitlog")))


def index_files(folder):
    return sorted(os.listdir(os.path.join(folder, "index")))


def table(folder, name, member):
    """A table of config/ by its key."""
    return r.loads(_read(os.path.join(folder, "config", name)).decode())[member]


def missing_members(wanted, found, path=""):
    """Paths of what `wanted` has and `found` has not, or has otherwise."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [line for key, value in wanted.items() for line in
                (missing_members(value, found[key], "%s.%s" % (path, key)) if key in found else ["%s.%s" % (path, key)])]
    return [] if wanted == found else ["%s is %r, not %r" % (path, found, wanted)]


def copy_of(folder):
    """A copy in a fresh place, holes kept."""
    target = os.path.join(process.temp_folder(), "data")
    subprocess.run(["cp", "-a", "--sparse=always", folder, target], check=True)
    return target


def digest(folder):
    """path -> (size, CRC, time of change) of everything below a folder."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            info = os.stat(path)
            crc = 0 if os.path.isdir(path) else zlib.crc32(_read(path))
            found[os.path.relpath(path, folder)] = (info.st_size, crc, info.st_mtime_ns)
    return found


def _read(path):
    with open(path, "rb") as source:
        return source.read()
