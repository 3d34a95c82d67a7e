"""What a person sees of a program that fills the terminal: enough of a terminal to be its screen.

    with cluster.terminal("top", rows=20, columns=80) as t:
        screen = Screen(t, rows=20, columns=80)
        screen.wait(lambda s: "GROUP" in s.text)

It knows what oncemq writes: the alternate screen, moving to a row and a column, wiping a line or everything, styles. What
it does not know is a failure, so that nothing is written which only some terminals understand.
"""

import fcntl
import re
import struct
import termios
import time

from . import process

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    def __init__(self, terminal, rows, columns):
        self.terminal, self.rows, self.columns = terminal, rows, columns
        self.alternate, self.hidden = False, False
        self.settling = False  # what was on its way when the size changed may be too large
        self.written = 0   # bytes of the terminal's output that were looked at
        self.wiped = 0     # how often everything was
        self._wipe()

    def _wipe(self):
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.row = self.column = 0

    def resize(self, rows, columns):
        self._take()
        self.rows, self.columns, self.settling = rows, columns, True
        self._wipe()
        fcntl.ioctl(self.terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))  # which sends SIGWINCH

    @property
    def lines(self):
        self._take()
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def text(self):
        return "\n".join(self.lines)

    def _take(self):
        text = self.terminal.text
        at = self.written
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found:
                self._sequence(*found.groups())
                at = found.end()
            elif text[at] == "\x1b" and len(text) - at < 20:
                break  # the rest of it is still to come
            else:
                self._character(text[at])
                at += 1
        self.written = at

    def _sequence(self, arguments, letter):
        what = arguments + letter
        if what in ("?1049h", "?1049l"):
            self.alternate = what.endswith("h")
        elif what in ("?25l", "?25h"):
            self.hidden = what.endswith("l")
        elif what == "2J":
            self._wipe()
            self.wiped += 1
            self.settling = False
        elif letter == "H":
            self.row, self.column = (int(each) - 1 for each in arguments.split(";"))
        elif what == "K" and self.row < self.rows:
            self.cells[self.row][self.column:] = [" "] * (self.columns - min(self.column, self.columns))
        elif letter != "m" and what not in ("?7l", "?7h", "K"):
            raise process.Failed("an unknown sequence: %r" % what)

    def _character(self, character):
        if character == "\n" and self.row + 1 == self.rows and not self.alternate:
            self.cells = self.cells[1:] + [[" "] * self.columns]
        elif character == "\n":
            self.row += 1
        elif character == "\r":
            self.column = 0
        elif self.row < self.rows and self.column < self.columns:
            self.cells[self.row][self.column] = character
            self.column += 1
        elif not self.settling and (self.row >= self.rows or self.alternate):
            raise process.Failed("%r is written outside of the screen, at %d, %d" % (character, self.row, self.column))

    def wait(self, condition, timeout=20, what=None):
        """Until condition(self) is true; gives that."""
        deadline = time.monotonic() + timeout
        while True:
            found = condition(self)
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0 or (not self.terminal._read(min(left, 0.2)) and self.terminal._over()):
                raise process.Failed("%s; on the screen is:\n%s" % (what or "it did not come", self.text))

    def wait_text(self, text, timeout=20):
        return self.wait(lambda s: text in s.text, timeout, "%r did not come" % text)

    def row_of(self, text):
        """The line that begins with it; None: there is none."""
        return next((line for line in self.lines if line.startswith(text)), None)
