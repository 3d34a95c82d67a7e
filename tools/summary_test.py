#!/usr/bin/env python3
"""tools/summary.py against logs as Meson writes them: what counts as passed, failed, skipped. Speaks TAP itself."""

import json
import os
import subprocess
import sys
import tempfile

SUMMARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "summary.py")


def entry(stdout, code=0, result="OK", name="unit", stderr=""):
    return {"name": name, "stdout": stdout, "stderr": stderr, "result": result, "returncode": code}


# title, log entries, exit code of meson, closing line, some text that must be shown
CASES = [
    ("cases are counted, not programs",
     [entry("1..2\nok 1 - a\nok 2 - b\n"), entry("1..1\nok 1 - c\n")], 0,
     "3 passed, 0 failed, 0 skipped", ""),
    ("a failure shows its output and its standard error",
     [entry("1..2\nok 1 - a\nnot ok 2 - b\n# 3 != 4\n", 1, "ERROR", stderr="a.c:7: error")], 1,
     "1 passed, 1 failed, 0 skipped", "a.c:7: error"),
    ("a skip shows its reason",
     [entry("1..2\nok 1 - a\nok 2 - java # SKIP mvn is missing\n")], 0,
     "1 passed, 0 failed, 1 skipped", "unit: java (mvn is missing)"),
    ("a whole program may be skipped",
     [entry("1..0 # SKIP no Go here\n", 0, "SKIP", name="interop/go")], 0,
     "0 passed, 0 failed, 1 skipped", "interop/go (no Go here)"),
    ("cmocka's skip, with the name in place of the reason",
     [entry("1..1\nok 1 # SKIP reads_ipv6\n", 0, "SKIP")], 0,
     "0 passed, 0 failed, 1 skipped", "reads_ipv6"),
    ("a program that says nothing has failed",
     [entry("", 0, "SKIP")], 0,
     "0 passed, 1 failed, 0 skipped", "said nothing"),
    ("a crash before the plan has failed",
     [entry("", -11, "ERROR")], 1,
     "0 passed, 1 failed, 0 skipped", "signal 11"),
    ("a crash in the middle keeps what had passed",
     [entry("1..3\nok 1 - a\n", -6, "ERROR")], 1,
     "1 passed, 1 failed, 0 skipped", "ran 1 of 3 cases"),
    ("a leak found after the last case has failed",
     [entry("1..1\nok 1 - a\n", 1, "ERROR", stderr="LeakSanitizer")], 1,
     "1 passed, 1 failed, 0 skipped", "every case is fine, but"),
    ("a program that took too long has failed",
     [entry("1..2\nok 1 - a\n", -15, "TIMEOUT")], 1,
     "1 passed, 1 failed, 0 skipped", "took too long"),
    ("giving up has failed",
     [entry("1..2\nok 1 - a\nBail out! no port\n", 0, "ERROR")], 1,
     "1 passed, 1 failed, 0 skipped", "no port"),
    ("a name may hold a number sign",
     [entry("1..1\nok 1 - queue #3 is read\n")], 0,
     "1 passed, 0 failed, 0 skipped", ""),
    ("no test at all has failed", [], 1,
     "0 passed, 1 failed, 0 skipped", "no test ran"),
    ("meson's own failure is not lost",
     [entry("1..1\nok 1 - a\n")], 2,
     "1 passed, 1 failed, 0 skipped", "ended with 2"),
]


def main():
    bad = 0
    print("1..%d" % len(CASES))
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, entries, status, closing, shown) in enumerate(CASES, 1):
            path = os.path.join(folder, "%d.json" % number)
            with open(path, "w", encoding="utf-8") as log:
                log.writelines(json.dumps(e) + "\n" for e in entries)
            run = subprocess.run([sys.executable, SUMMARY, path, str(status)], capture_output=True, text=True,
                                 check=False)
            lines = run.stdout.rstrip("\n").split("\n")
            good = (lines[-1] == closing and shown in run.stdout
                    and run.returncode == (0 if " 0 failed" in closing else 1))
            print("%sok %d - %s" % ("" if good else "not ", number, title))
            if not good:
                bad += 1
                print("\n".join("# " + line for line in (run.stdout + run.stderr).split("\n")))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
