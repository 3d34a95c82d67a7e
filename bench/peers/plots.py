"""Plots as SVG, written by hand: nothing is needed to make them or to look at them.

In the manner of `oncemq bench --plot`: thin lines, logarithmic axes for what differs by powers of ten, colours that follow
the reader's light or dark preference.
"""

import html
import math
import os

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, BARS = 760, 360, 90, 560, 56, 310, 270
COLOURS = {"oncemq": "a", "apache": "b", "apache-tuned": "c", "nats": "d", "redis": "e", "kafka": "f", "bare": "g", "limits": "h"}
STYLE = """<style>
:root{--ink:#1b1f24;--dim:#69727d;--line:#dfe3e8;--paper:#fff;--a:#0b6bcb;--b:#d9730d;--c:#b4232c;--d:#2f9e44;--e:#9c36b5;--f:#868e96;--g:#1b1f24;--h:#69727d}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--dim:#98a2ad;--line:#2f363e;--paper:#14181d;--a:#5aa9f0;--b:#f0a04b;--c:#f0656d;--d:#69db7c;--e:#da77f2;--f:#adb5bd;--g:#e6e9ed;--h:#98a2ad}}
text{font:12px system-ui,sans-serif;fill:var(--dim)}.head{font-size:16px;font-weight:600;fill:var(--ink)}
.left{text-anchor:end}.under{text-anchor:middle}path{fill:none;stroke-width:1.8;stroke-linejoin:round}.grid{stroke:var(--line);stroke-width:1}
.paper{fill:var(--paper)}%s</style>
""" % "".join(".s%s{stroke:var(--%s)}.f%s{fill:var(--%s)}" % (key, key, key, key) for key in "abcdefgh")


def text(x, y, kind, words):
    return '<text x="%.1f" y="%.1f" class="%s">%s</text>\n' % (x, y, kind, html.escape(words))


def thousands(value):
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return "%.3g %s" % (value / size, unit)
    return "%.3g" % value


def microseconds(value):
    return "%.3g s" % (value / 1e6) if value >= 1e6 else "%.3g ms" % (value / 1e3) if value >= 1e3 else "%.3g µs" % value


class Decades:
    """A logarithmic axis over all values, from bottom to top or from left to right."""

    def __init__(self, values, begin, end):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.begin, self.end = begin, end

    def at(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def steps(self):
        return [10.0 ** power for power in range(self.low, self.high + 1)]


def page(title, body, height=HEIGHT):
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">\n%s'
            '<rect class="paper" width="%d" height="%d"/>\n%s%s</svg>\n'
            % (WIDTH, height, WIDTH, height, html.escape(title), STYLE, WIDTH, height, text(LEFT, 26, "head", title), body))


def lines(title, series, ticks, unit):
    """series: (key, label, [(x, y)]), x in 0..1; ticks: (x, words)."""
    values = [y for _, _, points in series for _, y in points if y > 0]
    if not values:
        return None
    axis = Decades(values, BOTTOM, TOP)
    body = "".join('<path class="grid" d="M%d %.1fH%d"/>\n%s' % (LEFT, axis.at(step), RIGHT, text(LEFT - 8, axis.at(step) + 4, "left", unit(step)))
                   for step in axis.steps())
    body += "".join(text(LEFT + x * (RIGHT - LEFT), BOTTOM + 20, "under", words) for x, words in ticks)
    for row, (key, label, points) in enumerate(series):
        path = " ".join("%s%.1f %.1f" % ("L" if i else "M", LEFT + x * (RIGHT - LEFT), axis.at(y)) for i, (x, y) in enumerate(points) if y > 0)
        colour = COLOURS.get(key, "h")
        body += '<path class="s%s" d="%s"/>\n' % (colour, path)
        body += '<path class="s%s" d="M%d %dh20"/>\n%s' % (colour, RIGHT + 16, TOP + 8 + 22 * row, text(RIGHT + 44, TOP + 12 + 22 * row, "", label))
    return page(title, body)


def bars(title, rows, unit):
    """rows: (key, label, value, what); bars on a logarithmic axis, each with its value behind it."""
    values = [value for _, _, value, _ in rows if value]
    if not values:
        return None
    axis = Decades([*values, min(values) / 2], BARS, 660)
    height = TOP + 26 * len(rows) + 30
    body = "".join('<path class="grid" d="M%.1f %dV%d"/>\n%s' % (axis.at(step), TOP - 8, height - 30, text(axis.at(step), height - 12, "under", unit(step)))
                   for step in axis.steps())
    for number, (key, label, value, what) in enumerate(rows):
        y = TOP + 26 * number
        body += text(BARS - 10, y + 12, "left", "%s%s" % (label, what))
        if value:
            body += '<rect class="f%s" x="%.1f" y="%d" width="%.1f" height="16"/>\n' % (COLOURS.get(key, "h"), axis.begin, y, max(1, axis.at(value) - axis.begin))
            body += text(axis.at(value) + 6, y + 13, "", unit(value))
    return page(title, body, height)


def draw(folder, book, peers):
    pictures = {"throughput": throughput(book, peers), "latency": latency(book, peers), "memory": memory(book, peers), "startup": startup(book, peers)}
    for name, svg in pictures.items():
        if svg:
            with open(os.path.join(folder, name + ".svg"), "w") as out:
                out.write(svg)


def throughput(book, peers):
    sizes = [("128", "128 B"), ("1k", "1 KiB"), ("4k", "4 KiB"), ("64k", "64 KiB")]
    series = []
    for peer in peers:
        points = [(i / 3, book.median(peer.key, "send-%s-8x32" % size, "per_second")) for i, (size, _) in enumerate(sizes)]
        points = [(x, y) for x, y in points if y]
        if points:
            series.append((peer.key, peer.label, points))
    return lines("Acknowledged messages a second by size, 8 × 32 under way", series,
                 [(i / 3, words) for i, (_, words) in enumerate(sizes)], thousands)


def latency(book, peers):
    """The end-to-end distribution at 1,000 messages a second; the axis is that of nines."""
    parts = [("p50_us", 0.301, "50 %"), ("p90_us", 1.0, "90 %"), ("p99_us", 2.0, "99 %"), ("p999_us", 3.0, "99.9 %")]
    series = []
    for peer in peers:
        points = [((at - 0.301) / 2.699, book.median(peer.key, "e2e-1000", field)) for field, at, _ in parts]
        points = [(x, y) for x, y in points if y]
        if points:
            series.append((peer.key, peer.label, points))
    return lines("End to end at 1,000 messages a second: not exceeded by so many", series,
                 [((at - 0.301) / 2.699, words) for _, at, words in parts], microseconds)


def memory(book, peers):
    rows = []
    for peer in peers:
        if peer.key in ("bare", "limits"):
            continue
        rows.append((peer.key, peer.label, book.median(peer.key, "start", "rss"), ", idle"))
        rows.append((peer.key, peer.label, book.median(peer.key, "send-1k-8x32", "anon"), ", loaded, anonymous"))
    return bars("Memory: resident when idle, anonymous under 1 KiB sends", [row for row in rows if row[2]], lambda value: thousands(value) + "B")


def startup(book, peers):
    rows = [(peer.key, peer.label, (book.median(peer.key, "start", "start_ms") or 0) * 1000, "") for peer in peers]
    return bars("From nothing to the first acknowledged message", [row for row in rows if row[2]], microseconds)
