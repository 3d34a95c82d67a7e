"""`make bench-peers`: OnceMQ and its peers side by side. README.md in this folder explains; the environment chooses:

    ROUNDS=3  PEERS='oncemq apache …'  WORK='targets' or beginnings of names  QUICK=1  RESUME=1  MINUTES=12
    OUT=folder  TIME=seconds of a measurement
"""

import datetime
import os
import platform
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests"))

from . import rounds, work as works  # noqa: E402
from .bare import Bare, Limits  # noqa: E402
from .book import Book  # noqa: E402
from .kafka import Kafka  # noqa: E402
from .nats import Nats  # noqa: E402
from .ours import OnceMQ  # noqa: E402
from .redis import Redis  # noqa: E402
from .report import Report  # noqa: E402
from .targets import targets  # noqa: E402
from .theirs import Apache, Tuned  # noqa: E402

BUSY_LOAD = 1.5  # more than that before it begins: others work here as well
ALL = [OnceMQ, Bare, Limits, Apache, Tuned, Nats, Redis, Kafka]


def chosen_peers(words, length):
    """(those that are there, those that are not with the reason). OnceMQ is always one of them."""
    words = [OnceMQ.key, *words.replace(",", " ").split()] if words.strip() else [each.key for each in ALL]
    unknown = set(words) - {each.key for each in ALL}
    if unknown:
        sys.exit("no such peer: %s. There are: %s" % (" ".join(sorted(unknown)), " ".join(each.key for each in ALL)))
    here, gone = [], []
    for kind in ALL:
        if kind.key not in words:
            continue
        peer = kind(length)
        reason = peer.missing()
        if reason:
            print("%s is left out: %s" % (peer.label, reason), flush=True)
            gone.append([peer.label, reason])
        else:
            here.append(peer)
    return here, gone


def processor():
    with open("/proc/cpuinfo") as source:
        for line in source:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def load():
    return "%.1f" % os.getloadavg()[0]


def main():
    quick = bool(os.environ.get("QUICK"))
    count = int(os.environ.get("ROUNDS") or (1 if quick else 3))
    chosen = works.chosen(os.environ.get("WORK", ""))
    if quick:
        chosen = [work.quick() for work in chosen]
    folder = os.path.abspath(os.environ.get("OUT") or os.path.join(HERE, "..", "report"))
    os.makedirs(folder, exist_ok=True)
    peers, gone = chosen_peers(os.environ.get("PEERS", ""), works.Length.of(quick))
    book = Book(os.path.join(folder, "rounds.json"), resume=bool(os.environ.get("RESUME")))
    gone += [pair for pair in book.about.get("left_out", []) if pair[0] not in {peer.label for peer in peers} | dict(gone).keys()]
    versions = {**book.about.get("versions", {}), **{peer.key: peer.version() for peer in peers}}
    book.about.update(date=datetime.date.today().isoformat(), processor=processor(), cores=os.cpu_count(),
                      kernel=platform.release(), versions=versions, left_out=gone)
    book.about.setdefault("load_before", load())
    book.about["busy"] = book.about.get("busy", False) or os.getloadavg()[0] > BUSY_LOAD
    before = len(book.rows)
    try:
        rounds.run(book, peers, chosen, count, warm=not quick, seconds=60 * float(os.environ.get("MINUTES") or 0))
    finally:  # also what was measured before it was interrupted
        if len(book.rows) > before:
            book.about["load_after"] = load()
        book.save()
        tell(book, folder, None if quick or os.environ.get("OUT") else os.path.join(HERE, "..", "..", "docs", "performance.md"))


def tell(book, folder, page):
    """The whole book, with what earlier runs have put into it. The page gets the targets."""
    measured = [work for work in works.WORKS if any(row["work"] == work.name for row in book.rows)]
    report = Report(book, [kind(works.Length()) for kind in ALL], measured)
    report.write(folder)
    if page:
        report.write_page(page)
    for target in targets(book, measured):
        if target.values:
            print("%-12s %s: %.3g%s (goal %s %.3g)" % (target.verdict.strip("*"), target.text, target.measured, target.unit,
                                                       "≥" if target.least else "≤", target.goal))
    print("report: %s" % os.path.join(os.path.relpath(folder), "README.md"))


main()
