"""The report: scaling.json with everything, scaling.md with tables, pictures beside it."""

import json
import os
import time

from scaling import plot

VERBS = {"send": "send", "pull": "pull of 8", "seek": "pull of 8 anywhere", "time": "timed send"}


class Book:
    """What was measured, by dimension. One that is measured again replaces the older."""

    def __init__(self, path):
        self.path, self.machine, self.found = path, "", {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as source:
                self.found = json.load(source)["dimensions"]

    def put(self, name, kind, what):
        if what:
            self.found.setdefault(name, {})[kind] = {**what, "at": time.strftime("%Y-%m-%d %H:%M")}

    def save(self):
        with open(self.path, "w", encoding="utf-8") as sink:
            json.dump({"machine": self.machine, "dimensions": self.found}, sink, indent=1)
            sink.write("\n")


def number(value):
    return "{:,}".format(value)


def row(cells):
    return "| %s |\n" % " | ".join(cells)


def cost_table(measured):
    """Cost relative to the smallest size, microseconds in brackets."""
    sizes = measured["sizes"]
    text = row(["", *map(number, sizes)]) + row(["---"] * (len(sizes) + 1))
    for verb, results in measured["verbs"].items():
        text += row([VERBS[verb], *("%.2f (%.2f µs)" % (one["to_first"], one["cpu_us"]) for one in results)])
        text += row(["… the kernel's part of it", *("%.0f %%" % (100 * one["kernel"]) for one in results)])
    text += row(["idle, ms of a second", *("%.2f" % one for one in measured["idle_ms"])])
    text += row(["memory of its own, MB", *("%.1f" % one["RssAnon"] for one in measured["memory_mb"])])
    return text


def counted_lines(counted):
    text = ""
    small, large = map(number, counted["sizes"])
    for verb, one in counted["verbs"].items():
        more = ", ".join("`%s` %+.0f" % (f["function"], f["more"]) for f in one["grown"][:4])
        text += "- %s: %.0f instructions at %s, %.0f at %s (%.2f times)%s\n" % (
            VERBS[verb], one["small"], small, one["large"], large, one["large"] / one["small"],
            "; most of it: " + more if more else "")
    return text


def memory_each(measured):
    """Bytes for one more of it, where there are many: between the two largest sizes."""
    sizes, memory = measured["sizes"], measured["memory_mb"]
    return (memory[-1]["RssAnon"] - memory[-2]["RssAnon"]) * 1048576 / (sizes[-1] - sizes[-2])


def summary(found):
    text = row(["What grows", "from, to", "send", "pull", "instructions: send", "pull", "memory for one"])
    text += row(["---"] * 7)
    for name, one in found.items():
        measured, counted = one.get("measured"), one.get("counted")
        if not measured:
            continue
        times = {verb: "%.2f" % results[-1]["to_first"] for verb, results in measured["verbs"].items()}
        steps = {verb: "%.2f" % (c["large"] / c["small"]) for verb, c in counted["verbs"].items()} if counted else {}
        memory = "%s bytes" % number(round(memory_each(measured))) if measured["memory_told"] else ""
        text += row([name, "%s, %s" % (number(measured["sizes"][0]), number(measured["sizes"][-1])), times["send"],
                     times["pull"], steps.get("send", ""), steps.get("pull", ""), memory])
    return text


def write(book, folder):
    book.save()
    found = book.found
    text = "# As things grow\n\n"
    text += "Written by `make bench-scaling`; how it is measured is told in bench/scaling/__init__.py, what it means in "
    text += "docs/performance.md. The machine: %s.\n\n" % book.machine
    text += "The server's processor time for a request at the largest size, as a multiple of that at the smallest:\n\n"
    text += summary(found) + "\n![cost](scaling-cost.svg)\n\n![memory](scaling-memory.svg)\n"
    for name, one in found.items():
        measured, counted = one.get("measured"), one.get("counted")
        if not measured:
            continue
        text += "\n## %s\n\n%s. %s, medians of %d rounds, load average %.1f.\n\n" % (
            name, measured["title"], measured["at"], measured["rounds"], measured["load"])
        text += cost_table(measured)
        if counted:
            text += "\n" + counted_lines(counted)
        if name == "io-threads":
            text += "\nRequests in a second, for orientation: " + "; ".join(
                "%s %s" % (VERBS[verb], ", ".join(number(round(r["per_second"])) for r in results))
                for verb, results in measured["verbs"].items()) + "\n"
    with open(os.path.join(folder, "scaling.md"), "w", encoding="utf-8") as sink:
        sink.write(text)
    plot.cost(found, os.path.join(folder, "scaling-cost.svg"))
    plot.memory(found, os.path.join(folder, "scaling-memory.svg"))
