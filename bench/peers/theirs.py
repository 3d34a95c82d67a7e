"""Apache RocketMQ 5.5.0 from Maven Central, as it is and tuned.

Its broker runs with the options of its own start script and 2 GB of heap. Two kindnesses: the time to start is that of
the broker alone, with the name server already there; and where start-up and idle memory are measured, the heap is not
touched in advance (-XX:+AlwaysPreTouch), which its script would do.

The tuned one reads apache-tuned.conf in this folder, which says why each line is there.
"""

import pathlib
import time

from harness import apache
from . import generator, limit
from .rocket import TOPIC, WARM_GAIN, WARM_ROUNDS, WARM_SECONDS, Rocket, first_ack
from .server import Server

AWAKE_SECONDS = 0.5
TUNED = pathlib.Path(__file__).parent / "apache-tuned.conf"
# The harness makes a small broker for tests; None leaves a setting to Apache's own default.
DEFAULTS = dict.fromkeys(["mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxIndexNum", "maxHashSlotNum",
                          "warmMapedFileEnable", "transientStorePoolEnable"])

# Broker and name server stand still for minutes while others are measured, and must know each other afterwards.
PATIENT = {"scanNotActiveBrokerInterval": 36000000, "serverChannelMaxIdleTimeSeconds": 36000}
DEFAULTS["clientChannelMaxIdleTimeSeconds"] = 36000


def settings_of(path):
    """Lines of key=value; # begins a comment. `jvm` is what the virtual machine gets in addition."""
    rows = [line.split("#", 1)[0].strip() for line in path.read_text().splitlines()]
    return {key.strip(): value.strip() for key, _, value in (row.partition("=") for row in rows if row)}


class Apache(Rocket):
    key, label = "apache", "Apache RocketMQ"
    quick_to_start = False

    def missing(self):
        return apache.missing()

    def version(self):
        return "5.5.0"

    def settings(self):
        return dict(DEFAULTS), ()

    def start(self, flush="async", lean=False, memory=0):
        names = apache.NameServer(**PATIENT)
        settings, more = self.settings()
        if flush == "sync":
            settings["flushDiskType"] = "SYNC_FLUSH"
        jvm = [*apache.FULL_SERVER, *more]
        if lean or memory:
            jvm.remove("-XX:+AlwaysPreTouch")
        if memory:
            heap = "%dm" % (memory >> 21)
            jvm = [option for option in jvm if not option.startswith(("-Xm", "-XX:MaxDirect"))]
            jvm += ["-Xms" + heap, "-Xmx" + heap]
        began = time.monotonic()
        with limit.group(memory):
            broker = apache.Broker(names.address, jvm=tuple(jvm), **settings)
        first_ack(broker.address)
        took = (time.monotonic() - began) * 1000
        broker.wait_registered(names.address)
        server = Server([broker.child, names.child], broker.home, broker.address, names.address, took)
        server.awake = lambda: self._awake(broker, names.address)
        return server

    @staticmethod
    def _awake(broker, names):
        time.sleep(AWAKE_SECONDS)  # what its timers found to be overdue happens now
        broker.wait_registered(names)

    def warm(self, server):
        best = 0
        for number in range(WARM_ROUNDS):
            rate = generator.run(server.names, "send", "--topic", TOPIC, "-c", 8, "-i", 32, "-d",
                                 generator.milliseconds(min(WARM_SECONDS, 2 * self.length.seconds)))["per_second"]
            if rate < best * WARM_GAIN and number >= 3:
                break
            best = max(best, rate)


class Tuned(Apache):
    key, label = "apache-tuned", "Apache, tuned"

    def can(self, work):
        return "as the other" if work.kind in ("start", "idle", "backlog") else None

    def settings(self):
        chosen = settings_of(TUNED)
        jvm = chosen.pop("jvm", "").split()
        return {**DEFAULTS, **chosen}, jvm
