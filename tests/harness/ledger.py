"""The once ledger as a client sees it: operations and answers as bytes, and the entries of its topic.

A `Claimer` is one connection of one group, and one instance; its tokens have the instance in their upper half.

    with Claimer(daemon.broker, instance=7) as a:
        a.claim("order-1").outcome == OK
"""

import dataclasses
import hashlib
import struct

from . import remoting as r

LEDGER, PRESENT = 10010, 10011
TOPIC = "rmq_sys_ONCE_LEDGER"
CLAIM, RENEW, FINISH, RELEASE, LOOK, FORGET, STEP_GET, STEP_PUT, SWEEP = range(9)
NONE, OK, BUSY, DONE, LOST, ABSENT, FAILED = range(7)
S_ABSENT, S_CONSUMING, S_CONSUMED, S_RELEASED = range(4)
EVENTS = (None, "claimed", "renewed", "done", "released", "forgotten", "step", "suppressed", "refused", "lost")
WATCHED, OVERTOOK, OWNER_GONE = 1, 2, 4


def key_id(scope, key):
    """As libonce makes it, so that HTTP and libonce mean the same key."""
    return hashlib.sha256(struct.pack(">Q", len(scope.encode())) + scope.encode() + key.encode()).digest()


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">H", len(raw)) + raw + b"\0"


def blob(value):
    return struct.pack(">I", len(value)) + value


@dataclasses.dataclass
class Op:
    kind: int
    id: bytes
    token: int = 0
    fingerprint: int = 0
    expiry: int = 30000
    retention: int = 3600000
    flags: int = 0
    name: str = ""
    topic: str = ""
    message: str = ""
    step: str = ""
    result: bytes = b""

    def encode(self):
        return (struct.pack(">BB", self.kind, self.flags) + self.id +
                struct.pack(">QQqq", self.token, self.fingerprint, self.expiry, self.retention) + text(self.name) +
                text(self.topic) + text(self.message) + text(self.step) + blob(self.result))


def body(ops):
    return struct.pack(">BBH", 1, 0, len(ops)) + b"".join(op.encode() for op in ops)


@dataclasses.dataclass
class Outcome:
    outcome: int
    state: int
    fence: int
    left: int
    fingerprint: int
    result: bytes
    why: str


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        part = self.data[self.at:self.at + n]
        assert len(part) == n, "cut short"
        self.at += n
        return part

    def unpack(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def text(self):
        value = self.take(self.unpack(">H")[0])
        assert self.take(1) == b"\0", "no NUL"
        return value.decode()

    def blob(self):
        return self.take(self.unpack(">I")[0])


def outcomes(data):
    reader = Reader(data)
    version, _, n = reader.unpack(">BBH")
    assert version == 1
    found = [Outcome(*reader.unpack(">BBqqQ"), reader.blob(), reader.text()) for _ in range(n)]
    assert reader.at == len(data), "more than outcomes"
    return found


@dataclasses.dataclass
class Entry:
    event: str
    state: int
    flags: int
    id: bytes
    token: int
    fence: int
    until: int
    at: int
    fingerprint: int
    group: str
    client: str
    name: str
    topic: str
    message: str
    step: str
    result: bytes


def entries(data):
    reader = Reader(data)
    version, _, n = reader.unpack(">BBH")
    assert version == 1
    found = []
    for _ in range(n):
        event, state, flags = reader.unpack(">BBH")
        found.append(Entry(EVENTS[event], state, flags, reader.take(32), *reader.unpack(">QqqqQ"),
                           *[reader.text() for _ in range(6)], reader.blob()))
    assert reader.at == len(data), "more than entries"
    return found


def read_topic(client):
    """All entries of the ledger's topic, by pulling it as any consumer may."""
    found, offset = [], 0
    while True:
        fields = {"consumerGroup": "reader", "topic": TOPIC, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4,
                  "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        got = client.request(r.PULL_MESSAGE, fields)
        if got.code != r.SUCCESS:
            return found
        for message in r.messages(got.body):
            found += entries(message.body)
        offset = int(got.ext["nextBeginOffset"])


class Claimer:
    def __init__(self, address, group="g", instance=1, timeout=20):
        self.client = r.Client(address, timeout=timeout)
        self.group, self.instance, self.last = group, instance, 0
        self.birth = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.client.close()

    def token(self):
        self.last += 1
        return self.instance << 32 | self.last

    def fields(self):
        return {"group": self.group, "birth": self.birth}

    def ask(self, *ops):
        """All of them as one request; the answer must be a success."""
        answer = self.client.request(LEDGER, self.fields(), body(ops))
        assert answer.code == r.SUCCESS, "%d %s" % (answer.code, answer.remark)
        self.time, self.seen_birth = int(answer.ext["timestamp"]), int(answer.ext["birth"])
        return outcomes(answer.body)

    def op(self, kind, key, **more):
        return Op(kind, key_id(self.group, key), name=key, **more)

    def run(self, kind, key, **more):
        return self.ask(self.op(kind, key, **more))[0]

    def claim(self, key, **more):
        more.setdefault("token", self.token())
        self.held = more["token"]
        return self.run(CLAIM, key, **more)

    def finish(self, key, token=None, **more):
        return self.run(FINISH, key, token=token or self.held, **more)

    def look(self, key):
        return self.run(LOOK, key)

    def present(self, wait_ms=30000):
        """Stands until answered; returns the opaque for client.wait()."""
        return self.client.send(PRESENT, {"instance": self.instance, "name": "test", "waitMillis": wait_ms})
