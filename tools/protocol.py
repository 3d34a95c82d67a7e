"""Writes docs/protocol.md: what becomes of each request of the remoting protocol.

    python3 tools/protocol.py

What is answered, and on which port, is in the door's table; which names and numbers there are, in codes.h; what Apache's servers
answer, in a file that was captured from them. Why, and what differs, is in docs/protocol.notes.txt, and there is no way around
it: a request that Apache answers and we do not needs a reason, and a reason for something that is answered is an error.
"""

import dataclasses
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "protocol.md"
HEAD = ROOT / "docs" / "protocol.head.md"
NOTES = ROOT / "docs" / "protocol.notes.txt"
CAPTURED = ROOT / "tests" / "vectors" / "request_codes.txt"
DOOR = ROOT / "src" / "door" / "remoting"
SIDES = {"BROKER": "broker", "NAMES": "name server"}
OURS = range(10000, 11000)
NOTE = re.compile(r"^(differs|refused|sent) ([A-Z0-9_ ]+): (.+)$")


@dataclasses.dataclass
class Row:
    number: int
    name: str
    side: str            # who answers it here; "": nobody
    apache: str | None   # who answers it in Apache RocketMQ 5.5.0; None: not one of its requests
    sent: bool = False   # the broker sends it to clients
    differs: str = ""
    refused: str = ""

    def verdict(self):
        if self.number in OURS:
            return "ours"
        if self.side:
            return "with a difference" if self.differs else "as Apache"
        return "sent to clients" if self.sent else "refused"

    def remark(self):
        if self.side or self.sent:
            return self.differs
        if self.refused:
            return self.refused
        return "not a request of 5.5.0" if self.apache is None else "Apache's servers refuse it too"


class Wrong(Exception):
    pass


def rows():
    """Every request, by number."""
    codes = re.findall(r"X\((\w+), (\d+)\)", (ROOT / "src" / "remoting" / "codes.h").read_text().split("RESPONSE_CODES")[0])
    sides = dict(re.findall(r"\{REQ_(\w+), SIDE_(\w+),", (DOOR / "table.c").read_text()))
    captured = {name: who for _, name, who in (line.split("\t") for line in CAPTURED.read_text().splitlines())}
    found = {name: Row(int(number), name, SIDES.get(sides.get(name), ""), captured.get(name)) for name, number in codes}
    for text in (each.read_text() for each in DOOR.glob("*.c") if each.name not in ("table.c", "table_test.c")):
        for name in re.findall(r"REQ_(\w+)", text):
            found[name].sent = True
    _read_notes(found)
    for row in found.values():
        if row.apache and not row.side and not row.refused:
            raise Wrong("%s: Apache's %s answers it; say in %s why ours does not" % (row.name, row.apache, NOTES.name))
    return sorted(found.values(), key=lambda row: row.number)


def _read_notes(found):
    text = re.sub(r"\n[ ]+", " ", NOTES.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        note = NOTE.match(line)
        if not note:
            raise Wrong("%s: %s" % (NOTES.name, line))
        kind, names, words = note.groups()
        for name in names.split():
            row = found.get(name)
            if not row:
                raise Wrong("%s: no request is called %s" % (NOTES.name, name))
            if (kind == "differs") != bool(row.side) and kind != "sent":
                raise Wrong("%s: %s is %s" % (NOTES.name, name, "answered" if row.side else "not answered"))
            if kind == "sent" and not row.sent:
                raise Wrong("%s: %s is not sent" % (NOTES.name, name))
            if row.differs or row.refused:
                raise Wrong("%s: two notes for %s" % (NOTES.name, name))
            setattr(row, "refused" if kind == "refused" else "differs", words)


def render():
    table = rows()
    theirs = [row for row in table if row.apache is not None]
    counts = {verdict: sum(row.verdict() == verdict for row in theirs) for verdict in
              ("as Apache", "with a difference", "sent to clients", "refused")}
    also = sum(row.verdict() == "refused" and not row.apache for row in theirs)
    out = [HEAD.read_text(encoding="utf-8").rstrip(), "",
           "Of the %d requests of Apache RocketMQ 5.5.0, %d are answered as Apache does, %d with a difference, %d are sent by the "
           "broker to clients, and %d are refused; %d of these Apache's own name server and broker refuse as well."
           % (len(theirs), *counts.values(), also), "",
           "| Code | Request | Apache 5.5.0 | Here | Port | Remarks |", "|---|---|---|---|---|---|"]
    out += ["| %d | %s | %s | %s | %s | %s |"
            % (row.number, row.name, "-" if row.apache is None else row.apache or "nobody", row.verdict(), row.side, row.remark())
            for row in table]
    return "\n".join(line.rstrip() for line in out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.exit(0)
