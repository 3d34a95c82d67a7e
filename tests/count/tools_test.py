#!/usr/bin/env python3
"""What the guard stands on: how callgrind's files are read, and when a number is too much."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guard  # noqa: E402
from harness import callgrind, tap  # noqa: E402

# `send` inlines two lines of another file, calls malloc once and itself costs 3 + 40 + 5; malloc costs 100 a call.
SAMPLE = """events: Ir
ob=(1) /bin/ours
fl=(1) send.c
fn=(1) send
16 3
fi=(2) bytes.h
+4 40
fe=(1)
-2 5
cob=(2) /lib/libc.so
cfi=(3) malloc.c
cfn=(2) malloc@@GLIBC_2.2.5
calls=7 0
* 700

ob=(2)
fl=(3)
fn=(2)
10 600
* 100
cfn=(3) brk
calls=1 0
* 9

fn=(3)
20 9

ob=(1)
fl=(1)
fn=(4) give
5 11
cfn=(1)
calls=7 16
* 748
""".splitlines()


@tap.test("a function's own instructions are told from those of whom it calls")
def _():
    profile = callgrind.parse(SAMPLE)
    tap.equal(profile.cost["/bin/ours", "send.c", "send"], 48)
    tap.equal(profile.cost["/lib/libc.so", "malloc.c", "malloc@@GLIBC_2.2.5"], 700)
    tap.equal(profile.total(), 48 + 11 + 700 + 9)
    tap.equal(profile.own("/bin/ours"), 48 + 11)


@tap.test("calls are counted, and those within a library are not")
def _():
    profile = callgrind.parse(SAMPLE)
    tap.equal(profile.called({"malloc"}), 7)
    tap.equal(profile.called({"brk"}), 0)
    tap.equal(profile.calls[("/bin/ours", "give"), ("/bin/ours", "send")], 7)


@tap.test("the difference of two runs has nothing of what both did")
def _():
    short, long = callgrind.parse(SAMPLE), callgrind.parse([line.replace("+4 40", "+4 90") for line in SAMPLE])
    spent = long.less(short)
    tap.equal(dict(spent.cost), {("/bin/ours", "send.c", "send"): 50})
    tap.equal(dict(spent.calls), {})


@tap.test("two in a hundred more are allowed, three are not; nothing stays nothing")
def _():
    tap.check(not guard.over(1019, 1000), "1.9 % more was refused")
    tap.check(guard.over(1030, 1000), "3 % more was let through")
    tap.check(guard.over(0.01, 0.0), "an allocation for every hundredth message was let through")


@tap.test("the budget has all paths, with all numbers")
def _():
    table, compiler = guard.budget()
    tap.equal(set(table), set(guard.PATHS))
    tap.check(all(len(columns) == len(guard.COLUMNS) for columns in table.values()), "a line is too short")
    tap.check(compiler, "no compiler is named")


if __name__ == "__main__":
    tap.main()
