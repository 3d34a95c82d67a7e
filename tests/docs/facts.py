#!/usr/bin/env python3
"""Names that pages rest on are real: settings, numbers of a broker, lines of the log, the unit for systemd."""

import re
import shutil
import subprocess

import page
import stage
from harness import daemon as daemons, process, remoting, tap

ROOT = stage.ROOT
DOCS = ROOT / "docs"
GET_BROKER_RUNTIME_INFO = 28
NAMED = re.compile(r"`([a-z]+[A-Z][A-Za-z0-9]*)(?:=[^`]*)?`")
BESIDE = re.compile(r"`(\w+)`(?: hours)?(?: \(|, )([0-9][0-9,]*)(?: %)?\)")
# Names of Apache's that stand there because OnceMQ has no such thing.
APACHE_ONLY = {"storePathCommitLog", "storePathConsumeQueue", "storeType", "sendMessageThreadPoolNums"}


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def settings():
    """Key -> default."""
    _, out, _ = daemons.run("--print-config")
    return dict(re.findall(r"^([A-Za-z0-9.]+)=(.*)$", out, re.MULTILINE))


def numbers():
    with daemons.Daemon() as daemon, remoting.Client(daemon.broker) as client:
        return set(client.request(GET_BROKER_RUNTIME_INFO).json()["table"])


def admin_commands():
    table = read("administration.md").split("## Commands")[1].split("## Statistics")[0]
    return set(re.findall(r"\b[a-z]+[A-Z]\w+", table))


def literals():
    """All string literals of the daemon, those side by side as one; places for values are one character."""
    text = ""
    for source in (ROOT / "src").rglob("*.c"):
        text += re.sub(r'"\s*\n?\s*"', "", source.read_text(encoding="utf-8")) + "\n"
    return re.sub(r"%[a-z0-9.*]+|%\" PRI\w+ \"?", "\0", text.replace('\\"', '"'))


@tap.test("every setting, number and command that a page names is one")
def _():
    known = set(settings()) | numbers() | admin_commands() | APACHE_ONLY
    tap.check("flushDiskType" in known and "putLatency99" in known and "consumerProgress" in known, "something is known")
    for name in ("concepts.md", "operations.md", "migrating.md"):
        words = set(NAMED.findall(page.FENCE.sub("", read(name))))
        tap.check(words, "%s names something" % name)
        tap.equal(sorted(words - known), [], "unknown names in %s" % name)


@tap.test("a number that a page has beside a setting is its default")
def _():
    defaults, told = settings(), 0
    for path in DOCS.rglob("*.md"):
        text = page.FENCE.sub("", path.read_text(encoding="utf-8"))
        for name, number in BESIDE.findall(text):
            if name in defaults:
                told += 1
                tap.equal(number.replace(",", ""), defaults[name].lstrip("0"), "%s in %s" % (name, path.name))
    tap.check(told > 6, "%d numbers" % told)


@tap.test("every line of the log that docs/operations.md explains is in the source")
def _():
    source = literals()
    rows = re.findall(r"^\| (`[^|]+) \|", read("operations.md").split("Lines of the log worth an alarm")[1], re.MULTILINE)
    lines = [line for row in rows for line in re.findall(r"`([^`]+)`", row)]
    tap.check(len(lines) > 12, "%d lines" % len(lines))
    for line in lines:
        parts = [part for part in re.split(r"\s*…\s*|reason=$", line) if part.strip()]
        pattern = r"[\s\S]{0,600}?".join(re.escape(part.strip()) for part in parts).replace(r"consumers", r"(?:consumers|\0)")
        tap.check(re.search(pattern, source), "no such line: %s" % line)


@tap.test("the unit that is installed is one that systemd takes")
def _():
    if not shutil.which("systemd-analyze"):
        tap.skip("systemd-analyze is not on PATH")
    unit = (ROOT / "packaging" / "systemd" / "oncemqd.service.in").read_text(encoding="utf-8")
    path = process.temp_folder() + "/oncemqd.service"
    with open(path, "w", encoding="utf-8") as out:
        out.write(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit))  # what is installed is another machine's matter
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60, check=False)
    wrong = [line for line in done.stderr.splitlines() if "oncemqd.service" in line and "man " not in line]
    tap.equal(wrong, [], "what systemd says")


if __name__ == "__main__":
    tap.main()
