#!/usr/bin/env python3
"""A million messages that wait for their time: what they cost in memory, and how late messages come meanwhile.

    ONCEMQD=build/oncemqd bench/timers.py [WAITING]

WAITING messages (1,000,000) are sent that are due within an hour, a while from now. When all of them have their place,
resident memory is looked at. Then 2,000 messages a second become due for ten seconds; each says when it was due, and
its record when it was stored. Beside it a process that does nothing but sleep until the next millisecond tells how late
the machine itself is: on a busy one that is most of it. The rate of sending is compared with that of plain messages from
the same sender.
"""

import multiprocessing
import os
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon as daemons, process, remoting as r  # noqa: E402

WAITING = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
RATE, SECONDS, BODY = 2000, 10, b"x" * 100
RESIDENT_MB, LATE_MS = 150.0, 50.0
BATCH, OPAQUE, RUNTIME_INFO = 500, 1000000000, 28


def resident_mb(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssFile")}


def verdict(what, value, unit, target):
    good = value < target
    print("%s: %.1f %s (target under %g %s) %s" % (what, value, unit, target, unit, "PASS" if good else "MISS"), flush=True)
    return good


class Sender:
    """Frames from a mould: only what differs from one message to the next is made anew."""

    def __init__(self, address, topic, timed):
        self.socket = socket.create_connection(r.split_address(address))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent, self.timed = 0, timed
        properties = {"UNIQ_KEY": "7F0000010A2B18B4AAC2%012d" % 0, "TAGS": "A"}
        if timed:
            properties["TIMER_DELIVER_MS"] = "7" * 13
        command = r.Command(r.SEND_MESSAGE_V2, *r.send_v2(topic, BODY, properties, 0), OPAQUE)
        frame = r.encode(command)
        cuts = sorted((frame.index(mark), len(mark), kind) for mark, kind in
                      [(b"%d" % OPAQUE, "opaque"), (b"AAC2" + b"0" * 12, "key")] + ([(b"7" * 13, "due")] if timed else []))
        self.parts, at = [], 0
        for place, length, kind in cuts:
            self.parts += [frame[at:place], kind]
            at = place + length
        self.parts.append(frame[at:])
        self.rest = b""

    def frame(self, due):
        number = self.sent
        self.sent += 1
        made = {"opaque": b"%d" % (OPAQUE + number), "key": b"AAC2%012d" % number, "due": b"%d" % due}
        return b"".join(made[part] if isinstance(part, str) else part for part in self.parts)

    def send(self, dues):
        """All of them, some hundreds at a time under way. Returns the seconds it took."""
        begin, open_answers = time.monotonic(), 0
        for at in range(0, len(dues), BATCH):
            frames = [self.frame(due) for due in dues[at:at + BATCH]]
            self.socket.sendall(b"".join(frames))
            open_answers += len(frames)
            if open_answers > 4 * BATCH:
                open_answers -= self.receive(BATCH)
        self.receive(open_answers)
        return time.monotonic() - begin

    def receive(self, number):
        got = 0
        while got < number:
            data = self.rest + self.socket.recv(1 << 20)
            at = 0
            while len(data) - at >= 4:
                size = int.from_bytes(data[at:at + 4], "big")
                if len(data) - at - 4 < size:
                    break
                if b'"code":0' not in data[at:at + 4 + size]:
                    sys.exit("refused: %r" % data[at:at + 4 + size])
                at += 4 + size
                got += 1
            self.rest = data[at:]
        return got


def sleeper(until, out):
    """How late somebody is who only sleeps."""
    late = []
    while time.time() < until:
        wanted = int(time.time() * 1000) + 1
        time.sleep(max(0, wanted / 1000 - time.time()))
        late.append(time.time() * 1000 - wanted)
    late.sort()
    out.put((late[len(late) // 2], late[len(late) * 99 // 100], late[-1]))


def waiting(client):
    return int(client.request(RUNTIME_INFO).json()["table"]["timerCongestNum"])


def read(client, topic, number):
    found = []
    while len(found) < number:
        answer = client.request(r.PULL_MESSAGE, {
            "consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": len(found), "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"})
        found += r.messages(answer.body)
    return found


def main():
    daemon = daemons.Daemon(settings={"diskMaxUsedSpaceRatio": 95})
    client = r.Client(daemon.broker, timeout=60)
    before = resident_mb(daemon.pid)["VmRSS"]
    plain = Sender(daemon.broker, "Plain", timed=False)
    plain.send([0] * 20000)
    plain_rate = 100000 / plain.send([0] * 100000)
    timed = Sender(daemon.broker, "Far", timed=True)
    first = int(time.time() * 1000) + 600000
    took = timed.send([first + number * 3600000 // WAITING for number in range(WAITING)])
    process.wait_until(lambda: waiting(client) == WAITING, 300, "all of them wait")
    memory = resident_mb(daemon.pid)
    print("sent: %.0f a second, %.2f of plain messages from this sender; %d wait" %
          (WAITING / took, WAITING / took / plain_rate, WAITING))
    print("resident: %.1f MB before, then %.1f MB, of which %.1f of its own and %.1f of files" %
          (before, memory["VmRSS"], memory["RssAnon"], memory["RssFile"]))
    good = verdict("resident memory with %d waiting" % WAITING, memory["VmRSS"], "MB", RESIDENT_MB)

    near = Sender(daemon.broker, "Near", timed=True)
    start = int(time.time() * 1000) + 5000
    dues = [start + number * 1000 // RATE for number in range(RATE * SECONDS)]
    near.send(dues)
    machine = multiprocessing.Queue()
    beside = multiprocessing.Process(target=sleeper, args=(dues[-1] / 1000, machine))
    beside.start()
    process.wait_until(lambda: waiting(client) <= WAITING, 60, "all of them have come")
    found = read(client, "Near", len(dues))
    late = sorted(m.store_time - int(m.properties["TIMER_DELIVER_MS"]) for m in found)
    most = resident_mb(daemon.pid)["VmRSS"]
    print("%d a second: late by %d ms in the middle, %d ms at 99 of 100, %d ms at most, %d ms at least; resident %.1f MB" %
          (RATE, statistics.median(late), late[len(late) * 99 // 100], late[-1], late[0], most))
    print("the machine itself: a mere sleep ends %.1f ms late in the middle, %.1f ms at 99 of 100, %.1f ms at most" % machine.get())
    beside.join()
    good &= len({m.properties["UNIQ_KEY"] for m in found}) == len(dues) and late[0] >= 0
    good &= verdict("late at 99 of 100", late[len(late) * 99 // 100], "ms", LATE_MS)
    begin = time.monotonic()
    daemon.kill9()
    daemon.start()
    print("ready again after kill -9 in %.0f ms with %d waiting" % ((time.monotonic() - begin) * 1000, WAITING))
    daemon.stop()
    sys.exit(0 if good else 1)


main()
