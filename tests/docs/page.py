"""A page of documentation as steps that can be run, and the comparison of what it promises with what came.

A step is a fenced block of `sh`, with what stands around it:

    <!-- not run: it needs root -->        the block below is shown only; the reason is for the reader of the source
    <!-- status: 1 -->                     the last command of the block below ends so; without it, every one with 0
    <!-- terminal: broker, until: ready --> the block below runs in a terminal of its own, in the page's folder, and stays;
                                           the page goes on when a line with that text has come
    <!-- ctrl-c: broker -->                a step by itself: Ctrl-C in that terminal, which must end with status 0
    <!-- kill: broker -->                  the same with SIGKILL, whatever the status

A block of `text` right after a step is what it prints: `…` in a line stands for any text, a line that is nothing but `…`
for any lines. Of a terminal it is what has come so far; end it with a line of `…` where more may follow. Comments are invisible to who reads the page; several may stand above one block.
"""

import dataclasses
import re

FENCE = re.compile(r"^(?P<mark>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=mark)[ ]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
RULE = re.compile(r"^(not run|status|terminal|ctrl-c|kill):\s*(.+)$", re.DOTALL)
TERMINAL = re.compile(r"^(\S+), until: (.+)$")
ANY_LINES, ANY = "…", "…"


class Wrong(Exception):
    """The page is not written as this file says."""


@dataclasses.dataclass
class Step:
    line: int                      # of the page, for messages
    kind: str                      # run, terminal, skip, ctrl-c, kill
    text: str = ""                 # what is typed
    expected: str | None = None    # what it prints, if the page says
    status: int = 0
    name: str = ""                 # of the terminal
    until: str = ""
    why_not: str = ""


def steps(text):
    """All steps of a page, in order."""
    found, rules, at = [], {}, 0
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        between = text[at:fence.start()]
        previous = found[-1] if found and not COMMENT.sub("", between).strip() else None
        _read_rules(between, line, rules, found)
        info = fence["info"].strip()
        if info == "sh":
            found.append(_step(line, fence["text"], rules))
            rules = {}
        elif info == "text" and previous and previous.kind in ("run", "terminal") and previous.expected is None:
            previous.expected = fence["text"]
        if rules:
            raise Wrong("line %d: %s stands above a block that is not `sh`" % (line, ", ".join(rules)))
        at = fence.end()
    _read_rules(text[at:], text.count("\n") + 1, rules, found)
    if rules:
        raise Wrong("the end: %s has no block below" % ", ".join(rules))
    return found


def _read_rules(between, line, rules, found):
    for comment in COMMENT.findall(between):
        rule = RULE.match(comment)
        if not rule:
            continue
        name, value = rule.groups()
        if name in ("ctrl-c", "kill"):
            found.append(Step(line, name, name=value))
        elif name in rules:
            raise Wrong("line %d: two of %s" % (line, name))
        else:
            rules[name] = value


def _step(line, text, rules):
    if "not run" in rules:
        return Step(line, "skip", text, why_not=rules["not run"])
    if "terminal" in rules:
        match = TERMINAL.match(rules["terminal"])
        if not match:
            raise Wrong("line %d: expected `terminal: NAME, until: TEXT`" % line)
        return Step(line, "terminal", text, name=match[1], until=match[2])
    return Step(line, "run", text, status=int(rules.get("status", "0")))


def pattern(expected):
    """What a page shows as an expression over what was printed."""
    lines = expected.rstrip("\n").split("\n")
    parts = []
    for line in lines:
        if line.strip() == ANY_LINES:
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(part) for part in line.rstrip().split(ANY)) + r"[ ]*\n")
    return re.compile("".join(parts))


def agrees(expected, printed):
    """Whether a block printed what the page shows; blank lines at the end do not count."""
    return pattern(expected).fullmatch(printed.rstrip("\n") + "\n") is not None


def commands(text):
    """The blocks of a page without their comments and blanks: what two languages' pages have to share."""
    return [(fence["info"].strip(), tuple(_bare(fence["text"]))) for fence in FENCE.finditer(text)]


def _bare(block):
    for line in block.split("\n"):
        line = re.sub(r"(^|\s+)(#|//)\s.*$", "", line).rstrip()
        if line:
            yield line
