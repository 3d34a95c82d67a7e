#!/usr/bin/env python3
"""Stacks are folded as the profilers meant them, and a flame graph shows each as wide as it is."""

import collections
import os
import sys
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "bench")]
import flame  # noqa: E402
from harness import callgrind, tap  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
MODULES = {"give": "door", "conn_flush": "io", "flush_thread": "daemon"}

# One thread: a whole stack that ends in the kernel, the same without its outer end, and one that nobody knows. Another thread: whole.
PERF = """
  100
\tffffffff81 tcp_sendmsg+0x10 ([kernel.kallsyms])
\t    7f0001 __send (/lib/libc.so.6)
\t    550010 conn_flush+0x20 (/x/oncemqd)
\t    7f1000 [unknown] (/lib/libuv.so.1.0.0)
\t    7f1008 [unknown] (/lib/libuv.so.1.0.0)
\t    7f0002 clone3 (/lib/libc.so.6)

  100
\t    7f0009 memcpy (/lib/libc.so.6)
\t    550011 conn_flush (/x/oncemqd)
\t         0 [unknown] ([unknown])

  100
\t    550033 give.isra.0 (/x/oncemqd)

  101
\t    7f0003 fdatasync (/lib/libc.so.6)
\t    550044 flush_thread (/x/oncemqd)
\t    7f0002 clone3 (/lib/libc.so.6)
""".splitlines()

CALLGRIND = """events: Ir
ob=(1) /x/count
fl=(1) ../src/door/remoting/send.c
fn=(1) give'sends_flush'0x1234'loop_run'main
1 30
fl=(2) ../src/io/loop.c
fn=(2) loop_run'main
1 10
fl=(1)
fn=(3) sends_flush'0x1234'loop_run'main
1 20
ob=(2) /lib/libuv.so.1
fl=(3) ???
fn=(4) 0x1234'loop_run'main
0 5
fn=(5) memcpy@@GLIBC_2.14'give'sends_flush'0x1234'loop_run'main
0 35
""".splitlines()


@tap.test("perf's stacks are told by thread, and one without its outer end gets it from its like")
def _():
    stacks = flame.fold_perf(PERF, MODULES, "oncemqd")
    outer = (("clone3", "libraries"), ("[libuv]", "libraries"), ("conn_flush", "io"))
    tap.equal(stacks, collections.Counter({
        outer + (("__send", "libraries"), ("tcp_sendmsg", "kernel")): 1,
        outer + (("memcpy", "libraries"),): 1,
        (("give.isra.0", "door"),): 1,
        (("clone3", "libraries"), ("flush_thread", "daemon"), ("fdatasync", "libraries")): 1}))


@tap.test("what perf has cut is completed by stacks from elsewhere")
def _():
    taught = collections.Counter({(("loop_run", "io"), ("give.isra.0", "door")): 1})
    stacks = flame.fold_perf(PERF, MODULES, "oncemqd", taught)
    tap.equal(stacks[("loop_run", "io"), ("give.isra.0", "door")], 1)


@tap.test("callgrind's names become stacks from where the path begins")
def _():
    stacks = flame.fold_callgrind(callgrind.parse(CALLGRIND), "/x/count", "loop_run", {})
    inside = (("loop_run", "io"), ("[libuv]", "libraries"))
    sending = inside + (("sends_flush", "door"),)
    tap.equal(stacks, collections.Counter({
        inside[:1]: 10, inside: 5, sending: 20, sending + (("give", "door"),): 30,
        sending + (("give", "door"), ("memcpy", "libraries")): 35}))


@tap.test("bars are as wide as what was spent below them, and stand on their callers")
def _():
    stacks = flame.fold_callgrind(callgrind.parse(CALLGRIND), "/x/count", "loop_run", {})
    picture = ElementTree.fromstring(flame.draw(stacks, "sends & <more>", "instructions"))
    tap.check("sends & <more>" in [text.text for text in picture.iter(SVG + "text")], "the title is not there")
    bars = {}
    for group in picture.iter(SVG + "g"):
        bars[group.find(SVG + "title").text.split(" (")[0]] = group.find(SVG + "rect").attrib
    widths = {name: round(float(bar["width"]) / flame.WIDTH, 4) for name, bar in bars.items()}
    tap.equal(widths, {"loop_run": 1.0, "[libuv]": 0.9, "sends_flush": 0.85, "give": 0.65, "memcpy": 0.35})
    rows = [int(bars[name]["y"]) for name in ("loop_run", "[libuv]", "sends_flush", "give", "memcpy")]
    tap.check(all(below - above == flame.ROW for below, above in zip(rows, rows[1:])), "rows are %s" % rows)


@tap.test("bars that nobody could see are left out, and nothing at all is no picture")
def _():
    stacks = collections.Counter({(("much", "io"),): 1000000, (("little", "io"),): 1})
    tap.check("little" not in flame.draw(stacks, "t", "samples"), "a bar of a thousandth of a dot was drawn")
    try:
        flame.draw(collections.Counter(), "t", "samples")
    except ValueError:
        return
    tap.check(False, "a picture of nothing was drawn")


if __name__ == "__main__":
    tap.main()
