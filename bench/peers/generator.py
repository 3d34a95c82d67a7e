"""`oncemq bench --raw`: the one generator for everything that speaks the remoting protocol.

Bare sockets that pipeline frames with JSON headers, as the Java client sends them; every answer is checked. Its own
part of the machine is the same for each message, whoever answers.
"""

import json
import os
import subprocess

from harness import process
from .server import Watch

ONCEMQ = os.environ.get("ONCEMQ")
PARTLY = 5  # some messages were refused: told as failures
PERCENTILES = ("min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us")


def command(names, kind, *more):
    return [ONCEMQ, "--names", names, "--json", "bench", kind, "--raw", *[str(each) for each in more]]


def run(names, kind, *more, timeout=300):
    """One run; its record."""
    done = subprocess.run(command(names, kind, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=timeout)
    if done.returncode not in (0, PARTLY) or not done.stdout.strip():
        raise process.Failed("oncemq bench %s: %s" % (kind, done.stderr.decode(errors="replace").strip()[-500:]))
    return json.loads(done.stdout)


def shape(work):
    return ["-c", work.connections, "-i", work.in_flight, "--size", work.size, "--batch", work.batch,
            "--topics", work.topics]


def milliseconds(seconds):
    return "%dms" % round(seconds * 1000)


def told(record, of):
    """What counts of a record: the rate, and the percentiles of that latency."""
    found = {"per_second": record["per_second"], "messages": record["messages"], "failures": record["failures"],
             "seconds": record["seconds"], "generator": record["cpu_seconds"] / max(record["seconds"], 1e-9)}
    for row in record["latency"]:
        if row["of"] == of:
            found.update({name: row[name] for name in PERCENTILES})
    return found


def watched(server, work, of, counted, kind, *more):
    """The same, with what the server used for it."""
    with Watch(server) as watch:
        record = run(server.names, kind, *more)
    found = told(record, of)
    messages = record[counted] or 1
    found.update(cpu_us=watch.cpu_seconds * 1e6 / messages, rss=watch.rss, anon=watch.anon)
    if record.get("missing") or record.get("out_of_row"):
        raise process.Failed("%s: %s acknowledged messages are missing, %s came out of their row"
                             % (work.name, record["missing"], record["out_of_row"]))
    return found
