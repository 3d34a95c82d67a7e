"""Tests as functions with sentences for names, and their results in the Test Anything Protocol.

    from harness import tap

    @tap.test("a name server forgets a broker whose connection closes")
    def _():
        ...

    tap.main()

A test fails by raising; `tap.check` and `tap.equal` raise with a message that shows what was there. `tap.skip(reason)`
ends a test as skipped, and `tap.skip_all(reason)` says before main() that none can run here. When a test fails, the
ends of the logs named by `tap.watch(...)` follow as comment lines. The exit status is 1 if anything failed.
"""

import sys
import time
import traceback

_tests = []
_watched = []
_skip_all = []


class Skip(Exception):
    """Raised inside a test that cannot run here."""


def test(sentence):
    """Register a function under a sentence that says what must be true."""
    def register(function):
        _tests.append((sentence, function))
        return function
    return register


def watch(source):
    """Show this log when a later test fails: an object with a tail() method, such as a Daemon or a Child."""
    if source not in _watched:
        _watched.append(source)
    return source


def unwatch(source):
    if source in _watched:
        _watched.remove(source)


def skip(reason):
    raise Skip(reason)


def skip_all(reason):
    _skip_all.append(reason)


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(found, wanted, what="value"):
    check(found == wanted, "%s is %r, wanted %r" % (what, found, wanted))


def note(text):
    """Comment lines for the reader."""
    for line in str(text).splitlines() or [""]:
        print("# %s" % line, flush=True)


def main():
    print("1..%d" % len(_tests), flush=True)
    failed = sum(not _run(number, *entry) for number, entry in enumerate(_tests, 1))
    sys.exit(1 if failed else 0)


def _run(number, sentence, function):
    """One test, one result line; True unless it failed."""
    if _skip_all:
        print("ok %d - %s # SKIP %s" % (number, sentence, _one_line(_skip_all[0])), flush=True)
        return True
    start = time.monotonic()
    try:
        function()
    except Skip as reason:
        print("ok %d - %s # SKIP %s" % (number, sentence, _one_line(reason)), flush=True)
        return True
    except Exception:  # noqa: BLE001 - whatever it was, the test failed and the others still run
        print("not ok %d - %s" % (number, sentence), flush=True)
        note(traceback.format_exc())
        _show_logs()
        return False
    print("ok %d - %s" % (number, sentence), flush=True)
    note("%.1f s" % (time.monotonic() - start))
    return True


def _one_line(reason):
    return " ".join(str(reason).split()).replace("#", "")


def _show_logs():
    for source in _watched:
        note("--- end of the log of %s" % getattr(source, "name", source))
        for line in source.tail():
            note(line)
