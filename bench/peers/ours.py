"""OnceMQ: `oncemqd` with its defaults, broker and name server in one process."""

import subprocess
import time

from harness import daemon
from . import limit
from .rocket import Rocket, first_ack
from .server import Server


class OnceMQ(Rocket):
    key, label = "oncemq", "OnceMQ"

    def version(self):
        told = subprocess.run([daemon.os.environ["ONCEMQD"], "--version"], stdout=subprocess.PIPE, check=False)
        return told.stdout.decode().strip().split("\n")[0]

    def start(self, flush="async", lean=False, memory=0):
        began = time.monotonic()
        settings = {"flushDiskType": "SYNC_FLUSH"} if flush == "sync" else {}
        with limit.group(memory):
            running = daemon.Daemon(settings=settings)
        address = running.broker.replace("0.0.0.0", "127.0.0.1")
        first_ack(address)
        took = (time.monotonic() - began) * 1000
        return Server([running.child], running.root, address, running.names.replace("0.0.0.0", "127.0.0.1"), took)
