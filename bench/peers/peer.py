"""A peer: a kind of server that can be had, started, and made to do a work.

    missing()                why it cannot be measured here, in words, or None; fetches what it needs
    start(flush, lean)       a running Server that has acknowledged a first message
    measure(server, work)    does the work and gives what came of it as a dict

`quick_to_start` peers get a fresh server and an empty folder for each measurement. The others are Java's: their first
seconds are not their best, so one server stays for all rounds, warm, and stands still while others are measured.

What measure() gives, as far as the generator tells it: per_second, p50_us … max_us, cpu_us (the server's processor time
for each message), rss and anon (the most it had, in bytes), messages, failures, generator (its share of one core).
"""

import os
import socket
import time


class NotHere(Exception):
    """This work cannot be had of this peer; the text says why."""


class Peer:
    key = label = None
    quick_to_start = True
    rehearses = True  # there is something that could be prepared
    orientation = False  # not compatible: it is driven by another generator

    def __init__(self, length):
        self.length = length

    def missing(self):
        return None

    def version(self):
        return ""

    def can(self, work):
        """None, or why it has no such work."""
        raise NotImplementedError

    def start(self, flush="async", lean=False, wrap=None):
        raise NotImplementedError

    def warm(self, server):
        """The load until it becomes no faster."""

    def measure(self, server, work):
        raise NotImplementedError


def settle():
    """A backlog was there before anybody came for it: none of it is still on its way to the disk when it is read."""
    os.sync()


def wait_port(port, seconds, alive):
    """Until somebody listens there; tries every millisecond."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not alive():
            break
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1)
        except OSError:
            time.sleep(0.001)
    raise NotHere("nobody answers on port %d" % port)


def cache_folder():
    """Where what was fetched or built stays from run to run."""
    folder = os.environ.get("ONCEMQ_PEERS_CACHE") or os.path.expanduser("~/.cache/oncemq-peers")
    os.makedirs(folder, exist_ok=True)
    return folder
