"""Pictures of the report, as SVG without anything around it."""

import math

COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8e5ea2", "#b8860b", "#2f4f4f", "#d1478c", "#5f6caf")
PANEL_W, PANEL_H, LEFT, TOP, GAP = 380, 300, 60, 40, 90
FONT = 'font-family="sans-serif" font-size="12"'


def text(x, y, words, anchor="start", extra=""):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" %s %s>%s</text>' % (x, y, anchor, FONT, extra, words)


def line(x1, y1, x2, y2, colour="#ddd"):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>' % (x1, y1, x2, y2, colour)


def short(value):
    for unit, name in ((1000000, "M"), (1000, "k")):
        if value >= unit:
            return "%g%s" % (value / unit, name)
    return "%g" % value


class Panel:
    """One pair of axes: x is a logarithm, y begins at nothing."""

    def __init__(self, left, title, x_max, y_max):
        self.left, self.decades, self.y_max = left, math.log10(x_max), y_max
        self.parts = [text(left + PANEL_W / 2, TOP - 16, title, "middle", 'font-weight="bold"')]
        for decade in range(int(self.decades) + 1):
            x = self.x(10 ** decade)
            self.parts += [line(x, TOP, x, TOP + PANEL_H), text(x, TOP + PANEL_H + 16, short(10 ** decade), "middle")]
        step = 0.5 if y_max <= 4 else 1 if y_max <= 8 else math.ceil(y_max / 8)
        value = 0.0
        while value <= y_max:
            y = self.y(value)
            colour = "#999" if value == 1 else "#ddd"
            self.parts += [line(left, y, left + PANEL_W, y, colour), text(left - 6, y + 4, "%g" % value, "end")]
            value += step

    def x(self, value):
        return self.left + PANEL_W * math.log10(max(value, 1)) / self.decades

    def y(self, value):
        return TOP + PANEL_H * (1 - value / self.y_max)

    def curve(self, points, colour):
        places = " ".join("%.1f,%.1f" % (self.x(x), self.y(y)) for x, y in points)
        self.parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (places, colour))
        self.parts += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (self.x(x), self.y(y), colour) for x, y in points]


def whole(width, height, parts):
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">'
            '<rect width="100%%" height="100%%" fill="white"/>%s</svg>\n' % (width, height, width, height, "".join(parts)))


def save(path, picture):
    with open(path, "w", encoding="utf-8") as sink:
        sink.write(picture)


def cost(found, path):
    """Processor time for a request as a multiple of that at the smallest size: sends, and pulls."""
    shown = {name: one["measured"] for name, one in found.items() if "measured" in one and len(one["measured"]["sizes"]) > 2}
    panels, parts = [("send", "send: times the smallest size's cost"), ("pull", "pull: times the smallest size's cost")], []
    most = max([2.0] + [r["to_first"] for m in shown.values() for verb, _ in panels for r in m["verbs"][verb]]) * 1.05
    x_max = max([10] + [m["sizes"][-1] for m in shown.values()])
    for i, (verb, title) in enumerate(panels):
        panel = Panel(LEFT + i * (PANEL_W + GAP), title, x_max, most)
        for colour, (name, m) in zip(COLOURS, shown.items()):
            panel.curve([(size, r["to_first"]) for size, r in zip(m["sizes"], m["verbs"][verb])], colour)
        parts += panel.parts
    for i, (colour, name) in enumerate(zip(COLOURS, shown)):
        x = LEFT + i * 115
        parts += ['<rect x="%d" y="%d" width="12" height="12" fill="%s"/>' % (x, TOP + PANEL_H + 36, colour),
                  text(x + 17, TOP + PANEL_H + 46, name)]
    save(path, whole(2 * PANEL_W + GAP + LEFT + 30, TOP + PANEL_H + 64, parts))


def memory(found, path):
    """Bytes of memory for one more of each."""
    from scaling.report import memory_each
    rows = [(one["measured"]["what"], memory_each(one["measured"])) for one in found.values()
            if "measured" in one and one["measured"]["memory_told"]]
    most = max([1.0] + [value for _, value in rows])
    parts = [text(20, 24, "memory of its own for one more, bytes", extra='font-weight="bold"')]
    for i, (what, value) in enumerate(rows):
        y = 44 + i * 30
        width = 420 * max(value, 0) / most
        parts += [text(170, y + 14, what, "end"), text(186 + width, y + 14, "{:,}".format(round(value))),
                  '<rect x="180" y="%d" width="%.1f" height="20" fill="%s"/>' % (y, width, COLOURS[0])]
    save(path, whole(680, 60 + 30 * len(rows), parts))
