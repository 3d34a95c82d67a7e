"""Where a page is played: a fresh folder that looks like a clone with a build, and shells in it.

    with Stage(page_text) as stage:
        stage.run(step) ...

The programs of PROGRAMS (paths joined by colons) are found on PATH and in `build/`, `examples/` and `docs/` are there too. All of the page's
blocks share one shell, as they would in one terminal; variables, folders and background jobs last from block to block.

**Ports.** A page says 127.0.0.1:9876, and every machine has that port once. So each port that a page names is replaced by a free
one where it is typed, and put back in what is printed; a daemon that is started without ports gets the replacements of its
defaults, and so does whoever looks at ONCEMQ_NAMES. `make run` and `make build` are what they are in a clone that is built.

Everything that was started is in the shells' process groups, and these are killed at the end, by a guard should the test itself be
killed.
"""

import os
import pathlib
import re
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import process  # noqa: E402

import page  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES_PORT, BROKER_PORT = "9876", "10911"
PORT = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=localhost:)|(?<=istenPort=))([1-9]\d{3,4})\b")
PATIENCE = 60

# oncemqd as the page knows it, on ports that are free, and with small log files, because copying and checking 1 GiB of holes
# takes its time. What the caller names, also in a file, is the caller's.
DAEMON = """#!/bin/bash
given="$* $(for word; do [ "${word#--}" = "$word" ] && [ -f "$word" ] && cat "$word"; done 2>/dev/null)"
own=()
[[ $given == *namesrvListenPort=* ]] || own+=(--set namesrvListenPort=%(names)s)
[[ " $given" == *[!v]listenPort=* ]] || own+=(--set listenPort=%(broker)s)
[[ $given == *mappedFileSizeCommitLog=* ]] || own+=(--set mappedFileSizeCommitLog=16777216)
exec %(program)s "${own[@]}" "$@"
"""

MAKE = """#!/bin/bash
case "$*" in
run) exec oncemqd --data ./data ;;
build) ;;
*) echo "make $*: mark this block as not run, and say why" >&2; exit 2 ;;
esac
"""


class Stage:
    def __init__(self, text):
        self.folder = pathlib.Path(process.temp_folder("oncemq-page-"))
        self.ports = self._choose_ports(text)
        self.terminals = {}
        self._furnish()
        self.shell = Shell(self.folder, self.env())

    def _choose_ports(self, text):
        named = {NAMES_PORT, BROKER_PORT}
        for step in page.steps(text):
            named |= set(PORT.findall(step.text))
        return dict(zip(sorted(named), map(str, process.free_ports(len(named)))))

    def _furnish(self):
        build = self.folder / "build"
        build.mkdir()
        if not os.environ.get("PROGRAMS"):
            raise process.Failed("no programs to play a page with: set PROGRAMS to the paths of oncemqd and oncemq, a colon between")
        for program in map(os.path.abspath, os.environ["PROGRAMS"].split(":")):
            name = os.path.basename(program)
            if name == "oncemqd":
                ports = {"names": self.ports[NAMES_PORT], "broker": self.ports[BROKER_PORT]}
                _script(build / name, DAEMON % dict(ports, program=program))
            else:
                (build / name).symlink_to(program)
        _script(build / "make", MAKE)
        for name in ("examples", "docs", "include", "README.md"):
            (self.folder / name).symlink_to(ROOT / name)

    def env(self):
        """Little of who runs the test: its language, colours and contexts must not show."""
        kept = {name: os.environ[name] for name in os.environ
                if name in ("TMPDIR", "USER", "LANG") or name.startswith(("ASAN_", "UBSAN_", "LSAN_", "ONCE_", "PAGE_"))}
        return dict(kept, PATH="%s:%s" % (self.folder / "build", os.environ["PATH"]), HOME=str(self.folder),
                    LC_ALL="C.UTF-8", ONCEMQ_NAMES="127.0.0.1:" + self.ports[NAMES_PORT])

    def typed(self, text):
        return self._swap(text, self.ports)

    def shown(self, text):
        """What a reader would have seen: the page's ports."""
        return self._swap(text, {mine: theirs for theirs, mine in self.ports.items()})

    @staticmethod
    def _swap(text, ports):
        return re.sub(r"(?<!\d)(%s)(?!\d)" % "|".join(ports), lambda match: ports[match[1]], text)

    def run(self, step):
        """One step. Raises process.Failed with what was printed when it went another way than the page says."""
        {"run": self._run, "terminal": self._open, "ctrl-c": self._end, "kill": self._end,
         "skip": lambda _: None}[step.kind](step)

    def _run(self, step):
        status, printed = self.shell.run(self.typed(step.text), step.status == 0)
        printed = self.shown(printed)
        if status != step.status:
            raise process.Failed("line %d: status %s, not %d, of\n%s\nwhich printed\n%s"
                                 % (step.line, status, step.status, step.text, printed))
        if step.expected is not None and not page.agrees(step.expected, printed):
            raise process.Failed("line %d:\n%s\nprinted\n%s\nand not\n%s"
                                 % (step.line, step.text, printed, step.expected))

    def _open(self, step):
        terminal = self.terminals[step.name] = Shell(self.folder, self.env())
        terminal.begin(self.typed(step.text))
        if not terminal.read_until(lambda text: step.until in text, PATIENCE):
            raise process.Failed("line %d: no %r from\n%s\nwhich printed\n%s"
                                 % (step.line, step.until, step.text, self.shown(terminal.unread)))
        shows = lambda text: step.expected is None or page.agrees(step.expected, self.shown(text))  # noqa: E731
        if not terminal.read_until(shows, PATIENCE):
            raise process.Failed("line %d:\n%s\nprinted\n%s\nand not\n%s"
                                 % (step.line, step.text, self.shown(terminal.unread), step.expected))

    def _end(self, step):
        terminal = self.terminals.pop(step.name, None)
        if not terminal:
            raise process.Failed("line %d: no terminal %s" % (step.line, step.name))
        status = terminal.end(signal.SIGINT if step.kind == "ctrl-c" else signal.SIGKILL)
        if step.kind == "ctrl-c" and status != 0:
            raise process.Failed("line %d: %s ended with %s after Ctrl-C; it printed\n%s"
                                 % (step.line, step.name, status, self.shown(terminal.unread)))

    def close(self):
        for shell in [*self.terminals.values(), self.shell]:
            shell.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Shell:
    """One terminal: a bash in a process group of its own, whose output and errors come together as they would there."""

    def __init__(self, folder, env):
        self.log = os.path.join(process.temp_folder(), "shell.log")
        self.process = subprocess.Popen([shutil.which("bash") or "sh", "--norc", "--noprofile"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=env,
                                        start_new_session=True, preexec_fn=process.die_with_parent)
        self.pidfd = os.pidfd_open(self.process.pid)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.guard = subprocess.Popen(["sh", "-c", "read _; kill -9 -%d" % self.process.pid], stdin=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, start_new_session=True)
        self.unread, self.blocks = "", 0

    def run(self, text, strict):
        """Type a block and wait for its end: its status and what it printed. Strictly, the first failure ends the shell."""
        self.blocks += 1
        mark = "==== block %d of %d ended:" % (self.blocks, self.process.pid)
        call = ("set -e; . %s; set +e" if strict else ". %s") % (self._write(text) + " </dev/null")
        self._type('%s\nprintf "\\n%s %%s\\n" $?\n' % (call, mark))
        ended = re.compile(r"\n%s (\d+)\n" % re.escape(mark))
        if not self.read_until(ended.search, PATIENCE):
            return self.process.poll(), self.unread
        end = ended.search(self.unread)
        printed, self.unread = self.unread[:end.start()], self.unread[end.end():]
        return int(end[1]), printed

    def begin(self, text):
        """Type a block that stays. The last command takes the shell's place, so that Ctrl-C reaches it alone."""
        self._type("exec bash --norc --noprofile -e %s </dev/null\n" % self._write(text))

    def _write(self, text):
        path = os.path.join(os.path.dirname(self.log), "block-%d.sh" % self.blocks)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def _type(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def read_until(self, accept, patience):
        """Read into `unread` until accept() likes it; False after that many seconds, or when the shell has ended without."""
        deadline = time.monotonic() + patience
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            ready.register(self.pidfd, selectors.EVENT_READ)
            while not accept(self.unread):
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    return False
                ended = self.process.poll() is not None  # asked before the last read, so that nothing is missed
                data = self.process.stdout.read()
                self.unread += (data or b"").decode(errors="replace")
                if ended:
                    return bool(accept(self.unread))
        return True

    def end(self, signal_number):
        """The signal to all that run in this terminal, as the terminal's driver sends it, and the status."""
        os.killpg(self.process.pid, signal_number)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = "none within %d s" % PATIENCE
        self.kill()
        return status

    def kill(self):
        self.guard.kill()
        self.guard.wait()
        self.guard.stdin.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.pidfd)
        self.process.stdin.close()
        self.process.stdout.close()


def _script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
