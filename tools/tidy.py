#!/usr/bin/env python3
"""The house rules that a script can check. Prints what breaks them as `file:line: what`, and fails if anything does.

    tools/tidy.py [--tap]         --tap: one TAP case per rule, for `meson test`

Each rule is one function that yields (file, line, what); a rule that only wants to be heard yields a `Hint`, which is
shown and does not fail. Everything is read once; a run takes well under two seconds.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED_FOLDERS = {".git", "__pycache__", "node_modules", "target", "data", "corpus", "vectors", ".cache"}
TEXT_ENDINGS = (".c", ".h", ".py", ".sh", ".md", ".txt", ".build", ".java", ".go", ".js", ".xml", ".json", ".yml")
CODE_ENDINGS = (".c", ".h", ".py", ".sh", ".java", ".go", ".js", ".build")

FILE_LINES_MAX, FILE_LINES_HINT = 1000, 600
FUNCTION_LINES_MAX, FUNCTION_LINES_HINT = 90, 70
COLUMNS_MAX = 100

BANNED = {
    "strcpy": "memcpy with a checked length",
    "strcat": "struct wr or struct buf",
    "sprintf": "snprintf",
    "vsprintf": "vsnprintf",
    "gets": "a bounded read",
    "atoi": "bytes_to_i32",
    "atol": "bytes_to_i64",
    "alloca": "the request's arena",
    "strtok": "struct rd",
    "rand": "struct dice",
}
BANNED_CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(BANNED))
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Comments, strings and characters: blanked before looking for code.
NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}*-])/(wo" r"rk|ho" r"me|ro" r"ot|Us" r"ers)/")


class Hint(str):
    """Something to think about, not a fault."""


class Source:
    """One file of ours, read once."""

    def __init__(self, path):
        self.path = path
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()
        self.name = os.path.basename(path)
        self.is_c = path.endswith((".c", ".h"))
        self.code = NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), self.text) if self.is_c else ""

    def line_of(self, position):
        return self.text.count("\n", 0, position) + 1


def all_sources():
    for folder, folders, files in os.walk(ROOT):
        top = folder == ROOT
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not (top and f.startswith("build")))
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name.endswith(TEXT_ENDINGS) or name in ("Makefile", "run"):
                yield Source(path)


def layers():
    table = {}
    with open(os.path.join(ROOT, "tools/layers.txt"), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                module, _, used = line.partition(":")
                table[module.strip()] = set(used.split())
    return table


def module_of(path, table):
    """The folder of src/ that a path (without src/) lives in: `door/remoting` for door/remoting/send.c."""
    folder = os.path.dirname(path)
    while folder and folder not in table:
        folder = os.path.dirname(folder)
    return folder


def includes_point_downwards(sources):
    """an #include goes only where tools/layers.txt allows, and private headers stay in their folder"""
    table = layers()
    for source in sources:
        if not source.is_c or not source.path.startswith("src/"):
            continue
        here = module_of(source.path[len("src/"):], table)
        if not here:
            yield source.path, 1, "this folder is not in tools/layers.txt"
            continue
        for match in INCLUDE.finditer(source.text):
            header, line = match.group(1), source.line_of(match.start())
            there = module_of(header, table) if "/" in header else here
            if there == "":
                if os.path.exists(os.path.join(ROOT, "include", header)):
                    continue
                yield source.path, line, 'no module holds "%s"; write the path from src/' % header
            elif there != here and header.endswith("_int.h"):
                yield source.path, line, '"%s" is private to %s' % (header, there)
            elif there != here and there not in table[here] and "everything" not in table[here]:
                yield source.path, line, "%s may not use %s (tools/layers.txt)" % (here, there)


def no_banned_calls(sources):
    """no call that forgets lengths or hides state"""
    for source in sources:
        for match in BANNED_CALL.finditer(source.code):
            name = match.group(1)
            yield source.path, source.line_of(match.start()), "%s is banned; use %s" % (name, BANNED[name])


def files_are_one_thing(sources):
    """a file ends before %d lines, a function before %d""" % (FILE_LINES_MAX, FUNCTION_LINES_MAX)
    for source in sources:
        if not source.path.endswith(CODE_ENDINGS):
            continue
        count = len(source.lines)
        if count > FILE_LINES_MAX:
            yield source.path, 1, "%d lines: this is two things" % count
        elif count > FILE_LINES_HINT:
            yield source.path, 1, Hint("%d lines: is this two things?" % count)
        if source.is_c:
            yield from functions_fit(source)


def functions_fit(source):
    # In our form a function's braces stand alone in column 0; so do those of nothing else.
    opened = None
    for number, line in enumerate(source.code.split("\n"), 1):
        if line.rstrip() == "{":
            opened = number
        elif line.startswith("}") and opened is not None:
            size, where = number - opened - 1, opened
            opened = None
            if size > FUNCTION_LINES_MAX:
                yield source.path, where, "a function of %d lines; a screen has about %d" % (size, FUNCTION_LINES_HINT)
            elif size > FUNCTION_LINES_HINT:
                yield source.path, where, Hint("a function of %d lines; a screen has about 70" % size)


def sources_say_what_they_are(sources):
    """every header opens with `/* its_name.h - …`, and every module has one for the others"""
    modules = {}
    headers = {source.path for source in sources if source.path.endswith(".h")}
    for source in sources:
        if not source.is_c or not source.path.startswith(("src/", "include/", "tests/", "bench/")):
            continue
        first = source.lines[0] if source.lines else ""
        if source.name.endswith(".h") and not first.startswith("/* %s - " % source.name):
            yield source.path, 1, "the first line should begin `/* %s - `" % source.name
        elif not first.startswith("/*") and not source.name.endswith("_test.c") and source.path[:-1] + "h" not in headers:
            yield source.path, 1, Hint("could open with a comment that says what lives here")
        if source.path.startswith("src/"):
            modules.setdefault(os.path.dirname(source.path), set()).add(source.name)
    for folder, names in sorted(modules.items()):
        public = [name for name in names if name.endswith(".h") and not name.endswith("_int.h")]
        if not public and os.path.basename(folder) not in ("daemon", "cli", "client"):  # client's is in include/
            yield folder, 1, "the module has no public header"


def tests_are_registered(sources):
    """every test is named in its folder's meson.build, so that it cannot be forgotten"""
    builds = {os.path.dirname(source.path): source.text for source in sources if source.name == "meson.build"}
    for source in sources:
        folder, stem = os.path.split(source.path.rpartition(".")[0])
        if folder == "tests/fuzz" and stem.startswith("fuzz_"):
            name = stem[len("fuzz_"):]
        elif folder.startswith("src/") and stem.endswith("_test") and source.name.endswith(".c"):
            name = stem[:-len("_test")]
        elif folder.startswith("tests/") and re.match(r"\d\d-", stem):
            name = stem
        else:
            continue
        if not re.search(r"'%s(_test)?(\.\w+)?'" % re.escape(name), builds.get(folder, "")):
            yield source.path, 1, "is not in %s/meson.build, so it never runs" % folder


def nothing_unfinished(sources):
    """no leftover marks; what is left to do is an issue"""
    for source in sources:
        for match in UNFINISHED.finditer(source.text):
            yield source.path, source.line_of(match.start()), "%s: do it, or open an issue" % match.group()


def nothing_of_this_machine(sources):
    """no path of somebody's machine"""
    for source in sources:
        for match in MACHINE_PATH.finditer(source.text):
            yield source.path, source.line_of(match.start()), "%s… is a path of one machine" % match.group()


def lines_are_clean(sources):
    """no tab, no blank at the end of a line, no line of C beyond column %d""" % COLUMNS_MAX
    for source in sources:
        if not source.path.endswith(CODE_ENDINGS):
            continue
        tabs_allowed = source.path.endswith(".go")
        for number, line in enumerate(source.lines, 1):
            if line != line.rstrip():
                yield source.path, number, "blank at the end of the line"
            if "\t" in line and not tabs_allowed:
                yield source.path, number, "tab"
            if source.is_c and len(line) > COLUMNS_MAX:
                yield source.path, number, "%d columns; the page has %d" % (len(line), COLUMNS_MAX)


RULES = [
    includes_point_downwards,
    no_banned_calls,
    files_are_one_thing,
    sources_say_what_they_are,
    tests_are_registered,
    nothing_unfinished,
    nothing_of_this_machine,
    lines_are_clean,
]


def main():
    tap = "--tap" in sys.argv[1:]
    sources = list(all_sources())
    faults = 0
    if tap:
        print("1..%d" % len(RULES))
    for number, rule in enumerate(RULES, 1):
        found = list(rule(sources))
        bad = [entry for entry in found if not isinstance(entry[2], Hint)]
        faults += len(bad)
        for path, line, what in found:
            kind = "hint: " if isinstance(what, Hint) else ""
            print("%s%s:%d: %s%s" % ("# " if tap else "", path, line, kind, what))
        if tap:
            print("%sok %d - %s" % ("not " if bad else "", number, rule.__name__.replace("_", " ")))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
