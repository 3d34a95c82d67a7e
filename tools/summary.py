#!/usr/bin/env python3
"""Closes a test run: lists every skip and every failure, then `N passed, N failed, N skipped` on the last line.

    tools/summary.py build-test/meson-logs/testlog.json STATUS

STATUS is the exit code of `meson test`. Every test program speaks TAP. Meson counts programs; this counts cases, and
is stricter: a program that ends badly, stops short of its plan, or says nothing at all is a failure of its own, even
if every case it reported was fine. Exits 0 only if nothing failed and something ran.
"""

import json
import re
import sys

CASE = re.compile(r"(not )?ok\b\s*(\d+)?\s*(?:- )?([^#]*?)\s*(?:#\s*(?:skip\S*\s*(.*)|.*))?$", re.IGNORECASE)
PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*skip\S*\s*(.*))?", re.IGNORECASE)
HEAD_LINES, TAIL_LINES = 80, 40


class Program:
    """What one test program said, taken apart into cases."""

    def __init__(self, entry):
        self.name = entry["name"].split(":", 1)[-1]  # without "oncemq:"
        self.out = entry.get("stdout") or ""
        self.err = entry.get("stderr") or ""
        self.result = entry["result"]
        self.code = entry["returncode"]
        self.passed, self.failed, self.skipped = [], [], []  # titles; skipped: (title, reason)
        self.plan = None
        self.plan_skip = None
        self.bailed = None
        self.read_tap()

    def read_tap(self):
        count = 0
        for line in self.out.splitlines():
            case, plan = CASE.match(line), PLAN.match(line)
            if case:
                count += 1
                bad, number, title, reason = case.groups()
                title = title or reason or "case %s" % (number or count)  # cmocka puts the name where the reason goes
                if bad:
                    self.failed.append(title)
                elif reason is not None:
                    self.skipped.append((title, reason if reason != title else ""))
                else:
                    self.passed.append(title)
            elif plan and self.plan is None:
                self.plan, self.plan_skip = int(plan.group(1)), plan.group(2)
            elif line.startswith("Bail out!"):
                self.bailed = line[len("Bail out!"):].strip()

        if self.bailed is not None:
            self.failed.append("gave up: " + (self.bailed or "without a reason"))
        elif self.plan == 0 and count == 0 and self.code == 0:
            self.skipped.append((self.name, self.plan_skip or ""))
        elif self.plan is None:
            self.failed.append("said nothing about what it would test; " + self.ending())
        elif count != self.plan:
            self.failed.append("ran %d of %d cases; %s" % (count, self.plan, self.ending()))
        elif self.code != 0 and not self.failed:
            self.failed.append("every case is fine, but " + self.ending())
        if self.result in ("TIMEOUT", "INTERRUPT", "ERROR") and not self.failed:
            self.failed.append(self.ending())

    def ending(self):
        if self.result == "TIMEOUT":
            return "the program took too long and was stopped"
        if self.result == "INTERRUPT":
            return "the run was interrupted"
        if self.code is not None and self.code < 0:
            return "the program was ended by signal %d" % -self.code
        return "the program ended with code %s (%s)" % (self.code, self.result)


def shown(text):
    """Indented; of much, the beginning (a sanitizer says the worst first) and the end."""
    lines = text.rstrip().splitlines()
    if len(lines) > HEAD_LINES + TAIL_LINES:
        left_out = "… %d lines left out; meson-logs/testlog.txt has all …" % (len(lines) - HEAD_LINES - TAIL_LINES)
        lines = lines[:HEAD_LINES] + [left_out] + lines[-TAIL_LINES:]
    return "\n".join("    " + line for line in lines)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            return [Program(json.loads(line)) for line in log if line.strip()]
    except FileNotFoundError:
        return []


def main():
    path, status = sys.argv[1], int(sys.argv[2])
    programs = read(path)
    passed = sum(len(p.passed) for p in programs)
    failed = sum(len(p.failed) for p in programs)
    skipped = sum(len(p.skipped) for p in programs)

    if skipped:
        print("\nSkipped:")
        for program in programs:
            for title, reason in program.skipped:
                where = program.name if title == program.name else "%s: %s" % (program.name, title)
                print("  %s (%s)" % (where, reason or "no reason given"))

    for program in programs:
        if program.failed:
            print("\nFailed: %s" % program.name)
            for title in program.failed:
                print("  %s" % title)
            print(shown(program.out))
            if program.err.strip():
                print("  its standard error:\n" + shown(program.err))

    if not programs:
        failed += 1
        print("\nFailed: no test ran (see %s)" % path.replace("testlog.json", "testlog.txt"))
    elif status != 0 and failed == 0:
        failed += 1
        print("\nFailed: `meson test` ended with %d, though no test program says why" % status)

    print("\n%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
