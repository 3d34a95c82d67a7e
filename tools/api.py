#!/usr/bin/env python3
"""Writes docs/api/*.md from the public headers, which are the manual: the same words as pages, with headings and links.

    tools/api.py                  writes the pages

What it expects of a header: its first comment is the introduction, where a line without a full stop is a heading and what is
indented is code; a comment `/* ---- title ---- */` begins a section; a comment in the first column belongs to the
declarations below it, up to the next comment or empty line. Anything it cannot read is an error, so that nothing is left out in
silence.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = {"oncemq": "liboncemq, the C client", "once": "libonce, effects that happen once"}
MARKS = re.compile(r"\b(?:OMQ|ONCE)_API\s+")
SECTION = re.compile(r"^-{4} (.+?) -{4}\s*")
# A comment of its own, a preprocessor line, or a declaration with the comment that ends its last line.
PART = re.compile(r"(?P<comment>/\*.*?\*/)[ ]*\n|(?P<directive>#[^\n]*)\n|(?P<blank>[ ]*\n)", re.DOTALL)
NAME = re.compile(r"^(?:typedef\s[^(;]*?\b(?P<type>\w+)\(|(?P<kind>(?:struct|enum)\s+\w+)\s*(?:\{|;)|[^({]*?\b(?P<fn>\w+)\()",
                  re.DOTALL)
KNOWN_ONLY = re.compile(r"struct \w+;[^\n]*")  # names that stand there only to be known to the compiler


class Unreadable(Exception):
    pass


def render(stem):
    """The page of one header."""
    text = (ROOT / "include" / (stem + ".h")).read_text(encoding="utf-8")
    intro, rest = _split_intro(text, stem)
    sections = _sections(rest)
    out = ["# %s.h: %s" % (stem, HEADERS[stem]), "",
           "Written by `make docs` from [include/%s.h](../../include/%s.h), which is the manual; a test compares the two." % (stem, stem), ""]
    out += _contents(sections)
    out += _prose(intro, 2)
    for title, words, items in sections:
        out += ["## " + _capital(title), ""] + _prose(words, 3)
        for comment, declarations in items:
            out += ["### " + heading(declarations), ""] + _prose(comment, 4)
            out += ["```c", *[_bare(each) for each in declarations], "```", ""]
    return "\n".join(out).rstrip() + "\n"


def _split_intro(text, stem):
    end = text.index("*/")
    first = _comment(text[:end + 2])
    head, _, intro = first.partition("\n")
    if not head.startswith(stem + ".h - "):
        raise Unreadable("the first line of %s.h is %r" % (stem, head))
    body = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text[end + 2:], flags=re.DOTALL)
    return head[len(stem) + 5:] + "\n" + intro, body


def _comment(raw):
    """The words of a comment: without its stars, indentation within it kept."""
    lines = raw[2:-2].split("\n")
    return "\n".join(re.sub(r"^ ?\* ?", "", line).rstrip() if at else line.strip() for at, line in enumerate(lines)).strip("\n")


def _sections(text):
    """[(title, words, items)]; an item is a comment, which may be empty, and the declarations that stand below it."""
    found, item, at = [("version", "", [])], None, 0
    while at < len(text):
        part = PART.match(text, at)
        if not part:
            declaration, at = _declaration(text, at)
            if item is None:
                item = ("", [])
            if item not in found[-1][2]:
                found[-1][2].append(item)
            item[1].append(declaration)
            continue
        at = part.end()
        if part["comment"]:
            words = _comment(part["comment"]).strip()
            section = SECTION.match(words)
            if section:
                found.append((section[1], words[section.end():], []))
            item = None if section else (words, [])
        elif part["blank"] is not None:
            if item and not item[1]:
                raise Unreadable("a comment with nothing below it: %s" % item[0])
            item = None
    sections = [(title, words, [item for item in items if not all(map(KNOWN_ONLY.fullmatch, item[1]))])
                for title, words, items in found]
    return [section for section in sections if section[2]]


def _declaration(text, at):
    """From here to the end of its last line."""
    depth = 0
    for match in re.compile(r"/\*.*?\*/|[{}();]", re.DOTALL).finditer(text, at):
        mark = match.group()
        depth += (mark in "{(") - (mark in "})")
        if mark == ";" and depth == 0:
            tail = re.compile(r"[ ]*(?:/\*.*?\*/)?[ ]*\n", re.DOTALL).match(text, match.end())
            if not tail:
                raise Unreadable("after: %s" % text[at:match.end()])
            return text[at:tail.end()].rstrip(), tail.end()
    raise Unreadable("no end of: %s" % text[at:at + 80])


def _name(declaration):
    match = NAME.match(MARKS.sub("", declaration))
    if not match:
        raise Unreadable("no name in: %s" % declaration)
    return match["type"] or match["kind"] or match["fn"]


def _functions(declarations):
    return [_name(each) for each in declarations if MARKS.match(each)]


def heading(declarations):
    return ", ".join(_name(each) for each in declarations if not KNOWN_ONLY.fullmatch(each))


def _bare(declaration):
    """Without the mark of what is exported; what was aligned with it moves along."""
    mark = MARKS.match(declaration)
    if not mark:
        return declaration
    first, *others = declaration[mark.end():].split("\n")
    return "\n".join([first] + [line[mark.end():] if line[:mark.end()].isspace() else line.strip() for line in others])


def _prose(words, level):
    """Paragraphs, with what is indented as code and short lines of their own as headings."""
    out = []
    for paragraph in re.split(r"\n\s*\n", words.strip("\n")):
        for indented, lines in _runs(paragraph.split("\n")):
            if indented:
                if out[-2:-1] == ["```"]:  # goes on after an empty line
                    out[-2:] = [""]
                else:
                    out += ["```" + ("c" if "struct " in "".join(lines) else "text")]
                out += [line[4:] for line in lines] + ["```", ""]
            elif len(lines) == 1 and not re.search(r"[.:;]$", lines[0]) and level == 2:
                out += ["#" * level + " " + lines[0], ""]
            elif lines != [""]:
                out += [_escape(line) for line in lines] + [""]
    return out


def _runs(lines):
    """Neighbours that are indented alike."""
    runs = []
    for line in lines:
        indented = line.startswith("    ")
        if not runs or runs[-1][0] != indented:
            runs.append((indented, []))
        runs[-1][1].append(line)
    return runs


def _escape(line):
    parts = line.split("`")
    parts[::2] = [re.sub(r"[*<]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def _contents(sections):
    out = ["| Section | Functions |", "|---|---|"]
    for title, _, items in sections:
        names = ["[%s](#%s)" % (name, anchor(heading(declarations)))
                 for _, declarations in items for name in _functions(declarations)]
        out.append("| [%s](#%s) | %s |" % (_capital(title), anchor(title), ", ".join(names)))
    return out + [""]


def anchor(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _capital(text):
    return text[:1].upper() + text[1:]


def main():
    for stem in HEADERS:
        target = ROOT / "docs" / "api" / (stem + ".md")
        target.parent.mkdir(exist_ok=True)
        target.write_text(render(stem), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
