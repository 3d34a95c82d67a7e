"""Instruction counts by valgrind's callgrind, and what can be asked of them.

A `Profile` is one run. `cost` has the instructions of each function itself, by (object, file, function); `calls` has how often
one function called another, by (caller, callee), each as (object, function). `less` gives the difference of two runs: of a
program that did 5,000 messages and one that did 1,000 it is what 4,000 messages cost, without start-up.

`own` counts functions of the program's own object alone. What libraries do below them is left out there, because it is not the
same everywhere: libc, isa-l and libdeflate choose other code on another processor, and another version has other code.

With `stacks=True` every function is told apart by who called it; `cost` then has the names joined as callgrind writes them,
innermost first (f'g'main), which is what a flame graph is drawn from.
"""

import collections
import os
import re
import shutil
import subprocess
import tempfile

STACK_MAX = 80  # callers that are told apart; our deepest path has about 30
ALLOCATIONS = {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign"}
LOCKS = {"pthread_mutex_lock", "pthread_mutex_trylock"}
SYSTEM_CALLS = {"recv", "recvmsg", "send", "sendmsg", "read", "write", "readv", "writev", "pread", "pwrite", "pread64", "pwrite64",
                "preadv", "pwritev", "epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "mmap", "mmap64", "munmap", "madvise",
                "fallocate", "fallocate64", "ftruncate", "ftruncate64", "fdatasync", "fsync", "msync", "sync_file_range", "openat",
                "openat64", "open", "open64", "close", "fstat", "fstat64", "ioctl", "fcntl", "fcntl64", "nanosleep", "sched_yield"}
NAME = re.compile(r"\((\d+)\)(?: (.*))?")


class Failed(Exception):
    """The program or valgrind has failed; says which and how."""


def missing():
    """Why nothing can be counted here, or None."""
    return None if shutil.which("valgrind") else "valgrind is missing"


class Profile:
    def __init__(self, cost=None, calls=None):
        self.cost = collections.Counter(cost)
        self.calls = collections.Counter(calls)

    def less(self, other):
        """What this run did beyond the other; nothing is below zero that was in both alike."""
        cost, calls = collections.Counter(self.cost), collections.Counter(self.calls)
        cost.subtract(other.cost)
        calls.subtract(other.calls)
        return Profile({k: n for k, n in cost.items() if n}, {k: n for k, n in calls.items() if n})

    def total(self):
        return sum(self.cost.values())

    def own(self, program):
        return sum(n for (obj, _, _), n in self.cost.items() if obj == program)

    def called(self, names):
        """How often functions of these names were called from outside of their own library."""
        return sum(n for ((caller, _), (callee, name)), n in self.calls.items() if caller != callee and plain(name) in names)


def plain(name):
    """A function's name without the version that libc gives it, and without who called it."""
    return name.partition("'")[0].partition("@")[0].removeprefix("__libc_").removeprefix("__GI_")


def parse(lines):
    """A profile in callgrind's own format (one event, names compressed, one part or several)."""
    names = {"ob": {}, "fl": {}, "fn": {}}
    cost, calls = collections.Counter(), collections.Counter()
    here = {"ob": "", "fl": "", "fn": ""}
    callee, called = {}, False

    def name_of(kind, text):
        found = NAME.fullmatch(text)
        if not found:
            return text
        if found[2] is not None:
            names[kind][found[1]] = found[2]
        return names[kind].get(found[1], "")

    for line in lines:
        line = line.rstrip("\n")
        if line[:1] in "0123456789+-*" and line:
            if not called:  # a line after `calls=` is the callee's, all that is below it included
                cost[here["ob"], here["fl"], here["fn"]] += int(line.split()[-1])
            called = False
            continue
        key, is_set, text = line.partition("=")
        if not is_set:
            continue
        if key in ("ob", "fn"):
            here[key] = name_of(key, text)
            if key == "fn":
                callee = {}
        elif key == "fl":
            here["fl"] = name_of("fl", text)
        elif key in ("fi", "fe"):  # code of another file, inlined: it is the function's all the same
            name_of("fl", text)
        elif key in ("cfi", "cfl"):
            name_of("fl", text)
        elif key == "cob":
            callee["ob"] = name_of("ob", text)
        elif key == "cfn":
            callee["fn"] = name_of("fn", text)
        elif key == "calls":
            there = (callee.get("ob", here["ob"]), callee["fn"])
            calls[(here["ob"], here["fn"]), there] += int(text.split()[0])
            callee, called = {}, True
    return Profile(cost, calls)


def run(command, within, stacks=False, folder=None):
    """Runs a program; only what happens inside of the function `within` is counted."""
    command = [os.path.realpath(command[0]), *command[1:]]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        out = os.path.join(place, "out")
        tool = ["valgrind", "--tool=callgrind", "--toggle-collect=" + within, "--callgrind-out-file=" + out]
        if stacks:
            tool += ["--separate-callers=%d" % STACK_MAX, "--separate-recs=1"]
        done = subprocess.run([*tool, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                              check=False, cwd=place, env={**os.environ, "TMPDIR": place})
        if done.returncode != 0:
            raise Failed("%s ended with %d: %s" % (" ".join(command), done.returncode, done.stdout[-2000:]))
        with open(out, encoding="utf-8", errors="replace") as file:
            return parse(file)


def difference(program, path, within, short, long, stacks=False):
    """What `long - short` messages of a path cost."""
    few, many = (run([program, path, str(n)], within, stacks) for n in (short, long))
    return many.less(few)
