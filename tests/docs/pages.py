#!/usr/bin/env python3
"""What the pages of documentation have in common: each is run, each is found, and links lead somewhere."""

import re
import sys

import page
import stage
from harness import tap

ROOT = stage.ROOT
sys.path.insert(0, str(ROOT / "tools"))
import api  # noqa: E402

LINK = re.compile(r"\]\(([^)\s]+)\)")
SHORTEST_REASON = 8
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages():
    """Every page that a user reads, but the parts that others are made of."""
    found = [*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted(each for each in found if not each.name.endswith(".head.md"))


def original(path):
    """What a page is a translation of, or None."""
    name = re.sub(r"\.[a-z]{2}-[A-Z]{2}\.md$", ".md", path.name)
    return path.with_name(name) if name != path.name else None


def prose(path):
    """A page without its blocks, where brackets mean nothing."""
    return page.FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path):
    """The names that headings have in links."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose(path))}


@tap.test("every block of commands is run, or says why not")
def _():
    listed = re.findall(r"'\.\./\.\./([^']+\.md)'", (ROOT / "tests" / "docs" / "meson.build").read_text())
    unlisted, unsaid = [], []
    for path in pages():
        name, steps = str(path.relative_to(ROOT)), page.steps(path.read_text(encoding="utf-8"))
        if any(step.kind != "skip" for step in steps) and name not in listed and not original(path):
            unlisted.append(name)
        unsaid += ["%s:%d" % (name, step.line) for step in steps if step.kind == "skip" and len(step.why_not) < SHORTEST_REASON]
    tap.equal(unlisted, [], "pages that are not in tests/docs/meson.build")
    tap.equal(unsaid, [], "blocks that are not run, without a reason")


@tap.test("links lead somewhere, to a heading too")
def _():
    broken = []
    for path in pages():
        for link in LINK.findall(prose(path)):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = path.parent / target if target else path
            if not there.exists() or anchor and there.suffix == ".md" and anchor not in anchors(there):
                broken.append("%s: %s" % (path.relative_to(ROOT), link))
    tap.equal(broken, [], "broken links")


@tap.test("a page in another language has the commands of its original, and leads to the same places")
def _():
    translated = [each for each in pages() if original(each)]
    tap.check(translated, "there is one")
    for path in translated:
        here, there = (each.read_text(encoding="utf-8") for each in (path, original(path)))
        tap.equal(page.commands(here), page.commands(there), "blocks of %s" % path.name)
        links = set(LINK.findall(prose(original(path)))) - {path.name}
        tap.equal(sorted(links - set(LINK.findall(prose(path)))), [], "links that %s lacks" % path.name)
        tap.equal(len(HEADING.findall(prose(path))), len(HEADING.findall(prose(original(path)))), "headings of %s" % path.name)


@tap.test("docs/README.md leads to every page")
def _():
    index = ROOT / "docs" / "README.md"
    led = {(index.parent / link).resolve() for link in LINK.findall(prose(index))}
    tap.equal([str(each.relative_to(ROOT)) for each in pages() if index.parent in each.parents and each != index and each not in led],
              [], "pages that it does not name")


@tap.test("docs/api is what the headers say today")
def _():
    for stem in api.HEADERS:
        written = (ROOT / "docs" / "api" / (stem + ".md")).read_text(encoding="utf-8")
        tap.check(written == api.render(stem), "run `make docs`: docs/api/%s.md is out of date" % stem)


@tap.test("docs/api has every function and every struct of the headers")
def _():
    for stem in api.HEADERS:
        header = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / (stem + ".h")).read_text(encoding="utf-8"), flags=re.DOTALL)
        written = (ROOT / "docs" / "api" / (stem + ".md")).read_text(encoding="utf-8")
        headings = set(re.split(r", ", ", ".join(re.findall(r"^### (.+)$", written, re.MULTILINE))))
        declared = set(re.findall(r"(?:OMQ|ONCE)_API[^;]*?\b((?:omq|once)_\w+)\(", header))
        declared |= {" ".join(each) for each in re.findall(r"^(struct|enum) (\w+) \{", header, re.MULTILINE)}
        tap.check(len(declared) > 30, "%d found in %s.h" % (len(declared), stem))
        tap.equal(sorted(declared - headings), [], "without a heading")


if __name__ == "__main__":
    tap.main()
