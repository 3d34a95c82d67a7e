#!/usr/bin/env python3
"""How quickly the command line answers: `oncemq topic list` on loopback, from the start of the process to its end.

    ONCEMQ=build/oncemq ONCEMQD=build/oncemqd bench/cli.py

Compared with /bin/true followed by three questions on a bare socket (what a list has to ask: the cluster, the topics,
their settings), since a loaded machine slows both.
"""

import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
from harness import remoting as r  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

ROUNDS, TOPICS, TARGET_MS = 40, 100, 20.0


def timed(action):
    begin = time.monotonic()
    action()
    return (time.monotonic() - begin) * 1000


def main():
    with Daemon() as daemon:
        env = dict(os.environ, ONCEMQ_NAMES=daemon.names, HOME="/nonexistent")

        def oncemq(*args):
            subprocess.run([os.environ["ONCEMQ"], *args], env=env, check=True, stdout=subprocess.DEVNULL)

        def bare():
            subprocess.run(["/bin/true"], check=True)
            with r.Client(daemon.names) as names, r.Client(daemon.broker) as broker:
                names.send(106), names.send(206)
                broker.wait(broker.send(21))

        with r.Client(daemon.broker) as client:
            for i in range(TOPICS):
                client.request(r.UPDATE_AND_CREATE_TOPIC, {
                    "topic": "Topic%03d" % i, "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6,
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
        times = {}
        for _ in range(ROUNDS):
            for name, action in (("bare", bare), ("topic list", lambda: oncemq("topic", "list")),
                                 ("topic list --long", lambda: oncemq("topic", "list", "--long")),
                                 ("lag", lambda: oncemq("lag")), ("cluster", lambda: oncemq("cluster"))):
                times.setdefault(name, []).append(timed(action))
        daemon.stop()
    floor = statistics.median(times["bare"])
    print("/bin/true and the same questions on a socket: %.1f ms" % floor)
    for name, each in list(times.items())[1:]:
        print("oncemq %s, %d topics: %.1f ms, %.1f times that; the slowest of %d %.1f ms"
              % (name, TOPICS, statistics.median(each), statistics.median(each) / floor, ROUNDS, max(each)))
    good = statistics.median(times["topic list"]) < TARGET_MS
    print("topic list: %.1f ms (target under %g ms) %s" % (statistics.median(times["topic list"]), TARGET_MS, "PASS" if good else "MISS"))
    sys.exit(0 if good else 1)


main()
