#!/usr/bin/env python3
"""The once ledger through a real oncemqd: claims and ends as libonce's store sends them, 64 in flight, and what one claim costs
beside a plain request. Frames are made beforehand, so that what is measured is the daemon and two sockets.

    ONCEMQD=build/oncemqd bench/ledger_wire.py
"""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import daemon as daemons, ledger as l, remoting as r  # noqa: E402

FLIGHT, KEYS, ROUNDS, TRIPS = 64, 51200, 5, 400
LEAST, MORE_US = 150000, 50


def frame(code, ext, body=b""):
    return r.encode(r.Command(code, ext, body, 1, 0))


def requests(a, round_):
    """Claims and ends of KEYS keys, FLIGHT in each request."""
    found = []
    for first in range(0, KEYS, FLIGHT):
        keys = ["r%d-%d" % (round_, i) for i in range(first, first + FLIGHT)]
        for kind in (l.CLAIM, l.FINISH):
            ops = [a.op(kind, key, token=7 << 32 | (i + 1), topic="T", message=key) for i, key in enumerate(keys)]
            found.append(frame(l.LEDGER, a.fields(), l.body(ops)))
    return found


def trip(client, data):
    client.socket.sendall(data)
    while True:
        whole = client.buffer.pop()
        if whole is not None:
            return whole
        client.buffer.feed(client.socket.recv(1 << 18))


def cpu(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def throughput(d, a):
    rates, costs = [], []
    for round_ in range(ROUNDS):
        frames = requests(a, round_)
        begin, spent = time.monotonic(), cpu(d.pid)
        for data in frames:
            answer = trip(a.client, data)
        rates.append(KEYS / (time.monotonic() - begin))
        costs.append((cpu(d.pid) - spent) / KEYS * 1e6)
        outcomes = {o.outcome for o in l.outcomes(r.decode(answer).body)}
        assert outcomes == {l.OK}, outcomes
    best = max(rates)
    print("%s ledger: %.0f keys/s claimed and ended, the best of %d rounds with %d in flight (at least %d); %.2f us of the broker's cores each"
          % ("PASS" if best >= LEAST else "MISS", best, ROUNDS, FLIGHT, LEAST, statistics.median(costs)))
    return best >= LEAST


def round_trips(a):
    a.client.request(r.SEND_MESSAGE_V2, *r.send_v2("T", b"x", queue_id=0))
    plain = frame(r.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    times = {"plain": [], "claim": []}
    for i in range(TRIPS):
        claim = frame(l.LEDGER, a.fields(), l.body([a.op(l.CLAIM, "trip-%d" % i, token=7 << 32 | (i + 1))]))
        for name, data in (("plain", plain), ("claim", claim)):
            begin = time.monotonic()
            trip(a.client, data)
            times[name].append((time.monotonic() - begin) * 1e6)
    plain_us, claim_us = (statistics.median(times[name]) for name in ("plain", "claim"))
    good = claim_us - plain_us <= MORE_US
    print("%s ledger: a claim's round trip takes %.0f us, a plain request's %.0f us: %.0f us more (at most %d)"
          % ("PASS" if good else "MISS", claim_us, plain_us, claim_us - plain_us, MORE_US))
    return good


def main():
    with daemons.Daemon() as d, l.Claimer(d.broker, "bench", 7) as a:
        good = [throughput(d, a), round_trips(a)]
    sys.exit(0 if all(good) else 1)


main()
