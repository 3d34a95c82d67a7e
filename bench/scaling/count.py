"""Instructions for each request, by callgrind: they are the same whatever else runs on the machine.

A daemon grows to its size as it is, stops, and starts again below callgrind on the same folder: the way there would take hours below
it. Only while a turn runs are instructions counted. With one io thread, so that no order of threads changes anything. All takes
some twenty times as long as usual, so what happens by the clock happens twenty times more rarely, too; and there is no name server
that would be told of all topics in the middle of a turn.
"""

import os
import re
import shutil
import subprocess
import tempfile

from harness import process
from scaling import sizes, subject

TURNS = {"send": 20000, "pull": 5000, "seek": 5000, "time": 10000}
ONE_THREAD = ("--io-threads", "1")
STRETCHED = {"flushIntervalCommitLog": 10000, "flushIntervalConsumeQueue": 20000, "flushConsumerOffsetInterval": 100000}
TRIES = 3
TOLD = 6  # functions that grew most


def missing():
    """Why nothing can be counted, or None."""
    return None if shutil.which("valgrind") and shutil.which("callgrind_control") else "valgrind is not there"


class Counted:
    """A daemon below callgrind, as a subject."""

    def __init__(self, size, load, settings, folder):
        self.folder = process.temp_folder("oncemq-count-")
        self.program = os.path.join(self.folder, "oncemqd")
        with open(self.program, "w", encoding="ascii") as script:
            script.write("#!/bin/sh\nexec valgrind -q --tool=callgrind --instr-atstart=no --callgrind-out-file=%s/out "
                         "%s \"$@\"\n" % (self.folder, os.environ["ONCEMQD"]))
        os.chmod(self.program, 0o755)
        self.subject = subject.Subject(size, load, {**STRETCHED, **(settings or {})}, ONE_THREAD, self.program, folder,
                                       ready_timeout=300, roles="broker")
        self.subject.connect()
        self.lines = load.get("topics", 1) * load.get("queues", 8)
        self.dumps = 0

    def control(self, *args):
        subprocess.run(["callgrind_control", *args, str(self.subject.daemon.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=120)

    def turn(self, verb):
        """{function: instructions of its own for each request}, with their sum under ''. The best of some: a table that is written by
        the clock may fall into one."""
        self.subject.turn(verb, max(TURNS[verb] // 4, self.lines))  # whatever happens only the first time has happened
        return min((self.once(verb) for _ in range(TRIES)), key=lambda found: found[""])

    def once(self, verb):
        count = TURNS[verb]
        self.control("-i", "on")
        self.control("-z")
        self.subject.turn(verb, count)
        self.dumps += 1
        self.control("-d")
        self.control("-i", "off")
        return {name: number / count for name, number in functions(os.path.join(self.folder, "out.%d" % self.dumps)).items()}


def functions(path):
    """Own instructions of each function of a dump."""
    text = subprocess.run(["callgrind_annotate", "--threshold=100", path], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*([\d,]+) (?:\([^)]*\))?\s+(.*)$", line)
        if not match:
            continue
        number, what = int(match.group(1).replace(",", "")), match.group(2)
        if what.startswith("PROGRAM TOTALS"):
            found[""] = number
        elif ":" in what:
            name = what.split(":", 1)[1].split(" [")[0].split("'")[0]
            found[name] = found.get(name, 0) + number
    return found


def grown(small, large):
    """The functions that take more instructions for a request than they did."""
    more = sorted(((large[name] - small.get(name, 0), name) for name in large if name), reverse=True)
    return [{"function": name, "more": round(number, 1)} for number, name in more[:TOLD] if number >= 1]


def count(dimension, say):
    """The smallest and the largest size of a dimension."""
    if dimension.name == "io-threads":
        return None
    result = {"sizes": [dimension.sizes[0], dimension.sizes[-1]], "verbs": {}}
    found = {verb: [] for verb in dimension.verbs}
    for size in result["sizes"]:
        load = {"size": sizes.BODY, **dimension.load(size)}
        folder = tempfile.mkdtemp(dir=process.temp_folder("oncemq-count-"))
        one = subject.Subject(size, load, None, ONE_THREAD, folder=folder)
        one.connect()
        one.turn("send", dimension.first)
        if dimension.prepare:
            dimension.prepare(one)
        one.stop()
        below = Counted(size, load, None, folder)
        below.subject.turn("send", sizes.MESSAGES)  # so that it knows where each queue ends
        for verb in dimension.verbs:
            found[verb].append(below.turn(verb))
            say("%s %d: %.0f instructions for a %s" % (dimension.name, size, found[verb][-1][""], verb))
        below.subject.close()
        shutil.rmtree(folder, ignore_errors=True)
    for verb, (small, large) in found.items():
        result["verbs"][verb] = {"small": small[""], "large": large[""], "grown": grown(small, large)}
    return result
