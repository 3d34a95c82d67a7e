#!/usr/bin/env python3
"""What a message costs on the hot paths, held against budget.txt: in instructions, which no other work on the machine changes.

    COUNT_BROKER=… COUNT_ONCE=… tests/count/guard.py           the test
    … tests/count/guard.py --measure                           lines for budget.txt

Each path runs twice under callgrind, for some messages and for more of them; the difference, divided by the messages, is what
one costs without start-up. The programs have one thread, a clock that stands still and a seed (count.h), so two runs differ
by some instructions in ten millions. They are built as a release is, also in this build with its sanitizers.

So that a number means the same on other machines:

- Only instructions of our own object are counted. Below them, libc, isa-l and libdeflate choose code by the processor, and have
  other code in other versions; what is ours does not depend on either.
- What we ask of them is counted by calls instead: allocations, locks and system calls a message. So copying into memory that
  is allocated for each message cannot hide behind a small count of our own.
- The compiler decides as well: the budget is for one, and with another the test is skipped and says so.

A path that costs over 2 % more than its budget fails. One that costs over 5 % less is told, so that the budget is lowered and the
gain is kept. The budget is raised only together with the change that needs it, and the commit says what the instructions buy.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import callgrind, tap  # noqa: E402

BUDGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "budget.txt")
# Each path: its program, what is counted of it, and how many messages the short run has and the long one has beyond it. Those are
# whole rounds, and where queues are written whole shelves of theirs (200 units of 8 queues); before them each queue has its file.
PATHS = {
    "send": ("COUNT_BROKER", "loop_run", 1792, 6400),
    "send1": ("COUNT_BROKER", "loop_run", 1792, 1600),
    "sync": ("COUNT_BROKER", "loop_run", 1792, 2560),
    "batch": ("COUNT_BROKER", "loop_run", 1792, 6400),
    "pull": ("COUNT_BROKER", "loop_run", 256, 4096),
    "wait": ("COUNT_BROKER", "loop_run", 1760, 1600),
    "once": ("COUNT_ONCE", "once_do", 1024, 6400),
}
OVER, UNDER = 1.02, 0.95
LEAST = 0.0005  # calls a message; below it is what a boundary of rounds does
COLUMNS = ("instructions", "allocations", "locks", "calls")


def budget():
    """The table: path → its columns; and for which compiler it is."""
    table, compiler = {}, None
    with open(BUDGET, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words and words[0] == "compiler":
                compiler = " ".join(words[1:])
            elif words:
                table[words[0]] = dict(zip(COLUMNS, map(float, words[1:])))
    return table, compiler


def measure(path):
    variable, within, short, n = PATHS[path]
    program = os.path.realpath(os.environ[variable])
    spent = callgrind.difference(program, path, within, short, short + n)
    return {"instructions": spent.own(program) / n, "allocations": spent.called(callgrind.ALLOCATIONS) / n,
            "locks": spent.called(callgrind.LOCKS) / n, "calls": spent.called(callgrind.SYSTEM_CALLS) / n,
            "with libraries": spent.total() / n}


def over(found, allowed):
    return found > allowed * OVER + LEAST


def hold_against(path, allowed):
    found = measure(path)
    tap.note("%s: %.0f instructions of ours, %.0f with libraries; %.4f allocations, %.4f locks, %.4f system calls a message"
             % (path, found["instructions"], found["with libraries"], *(found[key] for key in COLUMNS[1:])))
    bad = ["%.4f %s a message, the budget is %.4f" % (found[key], key, allowed[key])
           for key in COLUMNS if over(found[key], allowed[key])]
    tap.check(not bad, "; ".join(bad) + ". If that buys something, say what in the commit that raises tests/count/budget.txt")
    for key in COLUMNS:
        if found[key] < allowed[key] * UNDER - LEAST:
            tap.note("%s: %s are %.4f, the budget is %.4f: please lower it, so that this stays" % (path, key, found[key], allowed[key]))


def declare(path, allowed):
    @tap.test("%s: a message costs no more than its budget of %d instructions" % (path, allowed["instructions"]))
    def _():
        hold_against(path, allowed)


def main():
    if sys.argv[1:] == ["--measure"]:
        for path in PATHS:
            found = measure(path)
            print("%-6s %12.0f %12.4f %8.4f %8.4f    # %.0f" % (path, *(found[key] for key in COLUMNS), found["with libraries"]))
        return
    table, compiler = budget()
    here = os.environ.get("COUNT_COMPILER")
    if callgrind.missing():
        tap.skip_all(callgrind.missing())
    elif here != compiler:
        tap.skip_all("the budget is for %s, and this is %s" % (compiler, here))
    for path in PATHS:
        declare(path, table[path])
    tap.main()


if __name__ == "__main__":
    main()
