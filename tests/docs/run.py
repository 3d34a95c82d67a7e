#!/usr/bin/env python3
"""Pages of documentation do what they say: their `sh` blocks are run, one page after the other, each in a fresh folder.

    PROGRAMS=build/src/daemon/oncemqd:build/src/cli/oncemq tests/docs/run.py README.md docs/concepts.md

page.py tells how a page says what is run and what comes of it, stage.py where.
"""

import os
import pathlib
import sys

import page
import stage
from harness import tap


def play(path):
    text = path.read_text(encoding="utf-8")
    steps = page.steps(text)
    with stage.Stage(text) as here:
        for step in steps:
            if step.kind == "skip":
                tap.note("line %d is not run: %s" % (step.line, step.why_not))
            here.run(step)


def add(path):
    @tap.test("%s does what it says" % os.path.relpath(path, stage.ROOT))
    def _():
        play(path)


for name in sys.argv[1:]:
    add(pathlib.Path(name).resolve())

if __name__ == "__main__":
    tap.main()
