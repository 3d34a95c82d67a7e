"""Memory that a server may use, page cache included where the kernel allows that.

A control group below the one that this process is in, if it may be made (cgroup v2, or the memory controller of v1):
whoever is started inside `with group(bytes)` stays in it, and pages of files that it reads or writes count. Elsewhere
the limit is one of private memory alone (RLIMIT_DATA, as `ulimit -d` sets it): then a server that relies on the page
cache is not held back. how() says which of the two it is.
"""

import atexit
import contextlib
import itertools
import os
import resource

_numbers = itertools.count()


def _own():
    """(folder of our group, name of the limit's file), or None."""
    with open("/proc/self/cgroup") as source:
        rows = [line.strip().split(":", 2) for line in source]
    for _, controllers, path in rows:
        if controllers == "memory":
            return "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes"
    for number, _, path in rows:
        folder = "/sys/fs/cgroup" + path
        if number == "0" and _reads(folder, "cgroup.controllers", "memory"):
            return folder, "memory.max"
    return None


def _reads(folder, name, word):
    try:
        with open(os.path.join(folder, name)) as source:
            return word in source.read().split()
    except OSError:
        return False


def _make():
    """A new group, as (folder, parent's folder, the limit's file), or None where that is not allowed."""
    own = _own()
    if not own:
        return None
    folder = os.path.join(own[0], "oncemq-peers-%d-%d" % (os.getpid(), next(_numbers)))
    try:
        os.mkdir(folder)
    except OSError:
        return None
    atexit.register(_remove, folder)
    if not os.path.exists(os.path.join(folder, own[1])):
        _remove(folder)
        return None
    return folder, own[0], own[1]


def _remove(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _enter(folder):
    with open(os.path.join(folder, "cgroup.procs"), "w") as out:
        out.write(str(os.getpid()))


def how():
    made = _make()
    if made:
        _remove(made[0])
    return "control group" if made else "RLIMIT_DATA"


@contextlib.contextmanager
def group(size):
    """What is started inside may use `size` bytes; 0: as much as it likes."""
    made = _make() if size else None
    if not size:
        yield
    elif made:
        folder, parent, name = made
        with open(os.path.join(folder, name), "w") as out:
            out.write(str(size))
        _enter(folder)
        try:
            yield
        finally:
            _enter(parent)
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
