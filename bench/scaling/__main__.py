"""Measures, counts, and writes the report; see __init__.py."""

import argparse
import os
import platform
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests"))
from harness import process  # noqa: E402
from scaling import count, report, sizes, subject  # noqa: E402

OUT = os.path.join(HERE, "..", "report")
AFTERMATH_S = 12  # new files are made, and statistics have had their first tick
IDLE_S = 31  # the broker tells the name server about its topics every 30 s


def say(text):
    print("%s %s" % (time.strftime("%H:%M:%S"), text), flush=True)


def subjects_of(dimension):
    """One for each size, grown."""
    made = []
    for size in dimension.sizes:
        begin = time.monotonic()
        settings, args = dimension.daemon(size) if dimension.daemon else ({}, ())
        one = subject.Subject(size, {"size": sizes.BODY, **dimension.load(size)}, settings, args)
        made.append(one)
        empty = one.memory()["RssAnon"]
        one.connect()
        one.turn("send", dimension.first)
        if dimension.prepare:
            dimension.prepare(one)
        say("%s %d: ready in %.1f s, %.1f MB of its own, %.1f when it was empty"
            % (dimension.name, size, time.monotonic() - begin, one.memory()["RssAnon"], empty))
    return made


def idle_of(made):
    """All at once: none of them does anything."""
    time.sleep(AFTERMATH_S)
    before = [one.cpu_ns() for one in made]
    begin = time.monotonic()
    time.sleep(IDLE_S)
    span = time.monotonic() - begin
    return [(one.cpu_ns() - cpu) / 1e6 / span for one, cpu in zip(made, before)]


def rounds_of(dimension, made, rounds):
    """{verb: [[result of each size] for each round]}. The first round is for warming."""
    results = {verb: [] for verb in dimension.verbs}
    for number in range(-1, rounds):
        for verb in dimension.verbs:
            row = [None] * len(made)
            for i in range(len(made)) if number % 2 else reversed(range(len(made))):
                row[i] = made[i].measure(verb, sizes.COUNTS[verb])
            if number >= 0:
                results[verb].append(row)
                say("%s %s: us of the server %s" % (dimension.name, verb, " ".join("%.2f" % one["cpu_us"] for one in row)))
    return results


def median(results, verb, i, key):
    return statistics.median(row[i][key] for row in results[verb])


def kernel_share(results):
    """Of the server's time, all rounds together."""
    both = [(one["user"], one["system"]) for one in results]
    user, system = (sum(column) for column in zip(*both))
    return system / max(1, user + system)


def measure(dimension, rounds):
    made = []
    try:
        made = subjects_of(dimension)
        idle = idle_of(made)
        memory = [one.memory() for one in made]
        results = rounds_of(dimension, made, rounds)
    finally:
        for one in made:
            one.close()
    return {
        "name": dimension.name, "title": dimension.title, "what": dimension.what, "sizes": list(dimension.sizes),
        "memory_told": dimension.memory, "idle_ms": idle, "memory_mb": memory, "rounds": rounds,
        "load": os.getloadavg()[0],
        "verbs": {verb: [{
            "cpu_us": median(results, verb, i, "cpu_us"),
            "per_second": median(results, verb, i, "per_second"),
            "kernel": kernel_share(row[i] for row in results[verb]),
            "to_first": statistics.median(row[i]["cpu_us"] / row[0]["cpu_us"] for row in results[verb]),
            "rounds": [row[i]["cpu_us"] for row in results[verb]],
        } for i in range(len(dimension.sizes))] for verb in dimension.verbs},
    }


def main():
    parser = argparse.ArgumentParser(prog="scaling")
    parser.add_argument("dimensions", nargs="*", help="of %s; all" % ", ".join(d.name for d in sizes.DIMENSIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-counts", action="store_true", help="leave callgrind out")
    parser.add_argument("--only-counts", action="store_true")
    parser.add_argument("--out", default=OUT)
    given = parser.parse_args()
    if not subject.GENERATOR or not os.environ.get("ONCEMQD"):
        sys.exit("scaling: ONCEMQD and BENCH_BROKER have to name the programs")
    unknown = set(given.dimensions) - {d.name for d in sizes.DIMENSIONS}
    if unknown:
        sys.exit("scaling: no such dimension: %s" % ", ".join(sorted(unknown)))
    os.makedirs(given.out, exist_ok=True)
    book = report.Book(os.path.join(given.out, "scaling.json"))
    book.machine = "%d cores, %s" % (os.cpu_count(), platform.release())
    for dimension in sizes.DIMENSIONS:
        if given.dimensions and dimension.name not in given.dimensions:
            continue
        if not given.only_counts:
            book.put(dimension.name, "measured", measure(dimension, given.rounds))
        if not given.no_counts and not count.missing():
            book.put(dimension.name, "counted", count.count(dimension, say))
        book.save()
    if count.missing():
        say("instructions were not counted: %s" % count.missing())
    report.write(book, given.out)


if __name__ == "__main__":
    try:
        main()
    except process.Failed as failed:
        sys.exit("scaling: %s" % failed)
