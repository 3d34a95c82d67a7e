"""The report: what was measured as Markdown, every number beside its ratio to somebody else's of the same round."""

import os
import statistics

from . import plots, targets as goals

OURS = "oncemq"
BUSY = 0.9  # share of a core from which on the generator may have been the limit
SYNC = goals.SYNC
NEAR = 0.02  # a ratio so close to 1 is no difference
MARK_BEGIN, MARK_END = "<!-- bench-peers begins -->\n", "<!-- bench-peers ends -->\n"


def number(value):
    if value is None:
        return "–"
    if value >= 1e6:
        return "%.2f M" % (value / 1e6)
    if value >= 1e4:
        return "%.0f k" % (value / 1e3)
    return "%.0f" % value if value >= 100 else "%.3g" % value


def ratio(values):
    """The median and, behind it, the least and the most of the rounds."""
    if not values:
        return "–"
    middle = statistics.median(values)
    return "%.3g×" % middle if len(values) < 2 else "%.3g× (%.3g–%.3g)" % (middle, values[0], values[-1])


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|%s" % ("---|" * len(head))]
    return lines + ["| %s |" % " | ".join(row) for row in rows] + [""]


class Report:
    def __init__(self, book, peers, works):
        self.book, self.works = book, works
        self.peers = [peer for peer in peers if book.has_any(peer.key)]
        self.others = [peer for peer in self.peers if peer.key not in (OURS, "limits")]

    def write(self, folder):
        lines = self.heading() + ["## Targets", ""] + self.target_table() + self.behind() + self.rates() + self.latencies()
        lines += self.cpu() + self.memory() + self.notes()
        with open(os.path.join(folder, "README.md"), "w") as out:
            out.write("\n".join(lines))
        plots.draw(folder, self.book, self.peers)

    # ---- parts ----

    def heading(self):
        about = self.book.about
        versions = ", ".join("%s %s" % (peer.label, about["versions"].get(peer.key) or "") for peer in self.others
                             if peer.key != "bare")
        return ["# OnceMQ beside its peers", "",
                "Made by `make bench-peers`; [performance.md](../../docs/performance.md) explains how, and what to make of it.",
                "", "- %s; %s, %s cores, Linux %s" % (about["date"], about["processor"], about["cores"], about["kernel"]),
                "- load average before %s, after %s%s" % (about["load_before"], about.get("load_after", "?"),
                                                          "; the machine was busy" if about.get("busy") else ""),
                "- beside OnceMQ: %s" % versions,
                "- medians of %s; in brackets the least and the most of the rounds' ratios" % self.book.rounds(OURS), ""]

    def target_table(self):
        rows = []
        for target in goals.targets(self.book, self.works):
            goal = "%s %.3g%s" % ("≥" if target.least else "≤", target.goal, target.unit)
            measured = "–"
            if target.values:
                measured = "%.3g%s" % (target.measured, target.unit)
                if len(target.values) > 1:
                    measured += " (%.3g–%.3g)" % (target.values[0], target.values[-1])
            rows.append([target.text, goal, measured, target.verdict])
        return ["OnceMQ's number as a multiple of what is named.", ""] + table(["Target", "Goal", "Measured", ""], rows)

    def behind(self):
        """Every work in which another server did better, by median."""
        lines = []
        for work in self.works:
            for peer in self.others:
                if peer.key == "bare":
                    continue
                for field, what, sign in (("per_second", "messages per second", 1), ("p99_us", "p99", -1), ("cpu_us", "processor time", -1)):
                    if not self.tells(work, field):
                        continue
                    values = self.book.ratios(work.name, field, OURS, peer.key)
                    if values and (statistics.median(values) - 1) * sign < -NEAR:
                        lines.append("- %s: %s times the %s of %s" % (work.text, ratio(values).replace("×", ""), what, peer.label))
        return ["## Where OnceMQ is behind", ""] + (lines or ["Nowhere in this run."]) + [""]

    @staticmethod
    def tells(work, field):
        """Times of a full pipe tell the same as the rate, and where the rate is given it tells nothing."""
        if field == "p99_us":
            return bool(work.rate) or work.in_flight == 1
        return field != "per_second" or work.kind != "e2e"

    def write_page(self, path):
        """The targets between two marks of a page."""
        with open(path) as source:
            before, found, rest = source.read().partition(MARK_BEGIN)
        _, ended, after = rest.partition(MARK_END)
        if not found or not ended:
            return
        about = self.book.about
        lines = ["", "Run of %s, %s, %s cores of %s, load average before it %s%s:" % (
            about["date"], self.book.rounds(OURS), about["cores"], about["processor"], about["load_before"],
            "; others worked on the machine, so rates and tails mean little" if about.get("busy") else ""), ""]
        lines += self.target_table() + [line.replace("## ", "### ") for line in self.behind()]
        with open(path, "w") as out:
            out.write(before + MARK_BEGIN + "\n".join(lines) + MARK_END + after)

    def measured(self, field):
        return [work for work in self.works if self.book.values(OURS, work.name, field)]

    def rates(self):
        rows = []
        for work in self.measured("per_second"):
            if not self.tells(work, "per_second"):
                continue
            rows.append([work.text, number(self.book.median(OURS, work.name, "per_second"))]
                        + [ratio(self.book.ratios(work.name, "per_second", OURS, peer.key)) for peer in self.others])
        return ["## Messages per second", "", "More than 1× means that OnceMQ is faster.", "", "![by size](throughput.svg)", ""] + table(
            ["Work", "OnceMQ, a second"] + ["to " + peer.label for peer in self.others], rows)

    def latencies(self):
        rows = []
        others = [peer for peer in self.others if peer.key != "bare"]
        for work in self.measured("p99_us"):
            ours = [self.book.median(OURS, work.name, field) for field in ("p50_us", "p99_us", "p999_us")]
            row = [work.text, " / ".join(number(value) for value in ours)]
            for peer in others:
                each = [self.book.ratios(work.name, field, OURS, peer.key) for field in ("p50_us", "p99_us", "p999_us")]
                row.append(" / ".join("%.2g×" % statistics.median(values) if values else "–" for values in each))
            rows.append(row)
        return ["## Latency: p50 / p99 / p99.9", "",
                "Less than 1× means that OnceMQ is quicker. Without a rate these are times of a full pipe: who serves more messages "
                "with as many under way has shorter ones. Of `consume` it is the wait for the next batch.", "",
                "![distribution](latency.svg)", ""] + table(
                    ["Work", "OnceMQ, µs"] + ["to " + peer.label for peer in others], rows)

    def cpu(self):
        rows = []
        for work in self.measured("cpu_us"):
            rows.append([work.text, number(self.book.median(OURS, work.name, "cpu_us"))]
                        + [ratio(self.book.ratios(work.name, "cpu_us", OURS, peer.key)) for peer in self.others])
        return ["## The server's processor time", "", "Seconds for a million messages, all threads, user and system.", ""] + table(
            ["Work", "OnceMQ, s a million"] + ["to " + peer.label for peer in self.others], rows)

    def memory(self):
        rows, book = [], self.book
        busy = [work.name for work in self.works if work.kind not in ("start", "backlog")]
        ours = {field: book.most(OURS, field, busy) for field in ("rss", "anon")}
        idle = {peer.key: (book.median(peer.key, "start", "rss"), book.median(peer.key, "start", "anon")) for peer in self.peers}
        for peer in self.peers:
            if peer.key in ("bare", "limits"):
                continue
            loaded = {field: book.most(peer.key, field, busy) for field in ("rss", "anon")}
            start = book.median(peer.key, "start", "start_ms")
            cells = [number(start and start), self.share(book.median(OURS, "start", "start_ms"), start)]
            for value, base in ((idle[peer.key][0], idle[OURS][0]), (idle[peer.key][1], idle[OURS][1]),
                                (loaded["rss"], ours["rss"]), (loaded["anon"], ours["anon"])):
                cells.append("%s, %s" % (number(value and value / 1e6), self.share(base, value)))
            rows.append([peer.label, *cells])
        return ["## Start-up and memory", "",
                "Milliseconds from nothing to the first acknowledged message; megabytes resident and anonymous, idle and the most "
                "under load. The second number of each is OnceMQ's as a multiple of it. Resident memory has the mapped files in it, "
                "which the kernel takes back when it needs them.", "", "![memory](memory.svg) ![start-up](startup.svg)", ""] + table(
                    ["Server", "start, ms", "ours to it", "idle, resident", "idle, anonymous", "loaded, resident", "loaded, anonymous"], rows)

    @staticmethod
    def share(ours, theirs):
        return "%.3g×" % (ours / theirs) if ours and theirs else "–"

    def notes(self):
        lines = ["## Beside the numbers", ""]
        lines += ["- %s was left out: %s" % tuple(pair) for pair in self.book.about.get("left_out", [])]
        for row in self.book.failures():
            text = row.get("failed") or "%d messages were refused" % row["failures"]
            lines.append("- round %d, %s, %s: %s" % (row["round"] + 1, row["work"], row["peer"], text))
        syncs = [self.book.median("limits", SYNC, field) for field in ("syncs", "syncs_over")]
        if syncs[0] and syncs[1]:
            lines.append("- fdatasync behind 256 records of 1 KiB: %.0f a second in a file that grows, %.2g times that over blocks that were "
                         "written before" % (syncs[0], syncs[1] / syncs[0]))
        idle = self.book.median(OURS, "idle-5000", "idle_rss")
        if idle is not None:
            texts = ["%s %.1f MB" % (peer.label, self.book.median(peer.key, "idle-5000", "idle_rss") / 1e6) for peer in self.peers
                     if self.book.median(peer.key, "idle-5000", "idle_rss") is not None]
            lines.append("- 5,000 idle connections cost: %s" % ", ".join(texts))
        how = [row["limited_by"] for row in self.book.rows if row.get("limited_by")]
        if how:
            lines.append("- memory of the work `backlog` was limited by: %s" % how[0])
        busy = sorted({work.name for work in self.works for value in self.book.values(OURS, work.name, "generator").values()
                       if value > BUSY})
        if busy:
            lines.append("- the generator used more than nine tenths of a core, so OnceMQ may have had more to give: %s" % ", ".join(busy))
        return lines + [""]
