"""The tests of the command line once more, on Apache's own name server and broker, which they share. Each case of the files
below is a case here; what needs servers of its own is skipped."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import apache, process, tap  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = sys.argv[1:] or ["topics", "groups", "brokers", "send", "consume", "query", "dlq", "trace", "why", "audit", "run", "forms"]
RESULT = re.compile(r"^(not )?ok \d+ - (.*?)(?: # SKIP ?(.*))?$")


def play(name, servers, folder):
    """Runs one file and gives its cases: (failed, sentence, reason of a skip or None, lines that follow)."""
    env = dict(os.environ, ENDPOINT="apache", SERVERS=servers, SERVER_FOLDER=folder)
    done = subprocess.run([sys.executable, os.path.join(HERE, name + ".py")], env=env, capture_output=True, text=True, timeout=280,
                          preexec_fn=process.die_with_parent, check=False)
    cases = []
    for line in done.stdout.splitlines():
        result = RESULT.match(line)
        if result:
            cases.append([bool(result.group(1)), result.group(2), result.group(3), []])
        elif cases:
            cases[-1][3].append(line)
    if done.returncode and not any(case[0] for case in cases):
        cases.append([True, "it ends well", None, ["# status %d" % done.returncode, *("# " + line for line in done.stderr.splitlines())]])
    return cases


def main():
    missing = apache.missing()
    if missing:
        print("1..0 # SKIP %s" % missing)
        return 0
    with apache.NameServer() as names, apache.Broker(names.address) as broker:
        broker.wait_registered(names.address)
        count, failed = 0, False
        for name in FILES:
            for bad, sentence, skipped, lines in play(name, "%s,%s" % (names.address, broker.address), os.path.join(broker.home, "store")):
                count += 1
                failed = failed or bad
                print("%sok %d - %s: %s%s" % ("not " if bad else "", count, name, sentence, "" if skipped is None else " # SKIP " + skipped))
                print("\n".join(lines), flush=True)
        print("1..%d" % count)
        return 1 if failed else 0


tap.note("Apache's servers are shared by %s" % ", ".join(FILES))
sys.exit(main())
