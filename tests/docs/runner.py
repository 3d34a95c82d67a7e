#!/usr/bin/env python3
"""The runner of pages, by pages made up here: what it must notice, and what it must let pass."""

import page
import stage
from harness import process, tap

F = "```"


def play(text):
    with stage.Stage(text) as here:
        for step in page.steps(text):
            here.run(step)


def must_fail(text, *needles):
    try:
        play(text)
    except process.Failed as failed:
        for needle in needles:
            tap.check(needle in str(failed), "%r is missing in %s" % (needle, failed))
        return
    tap.check(False, "it passed")


def block(text, info="sh"):
    return "%s%s\n%s\n%s\n" % (F, info, text, F)


@tap.test("blocks share one shell, its folder and its jobs")
def _():
    play(block("mkdir inner && cd inner\nword=hello\ncat </dev/zero >/dev/null &\njob=$!")
         + "\nand then\n\n"
         + block("basename $PWD\necho $word\nkill $job && wait $job || echo $?") + "\n" + block("inner\nhello\n143", "text"))


@tap.test("a command that fails fails its page, wherever in its block it stands")
def _():
    must_fail(block("true\n\necho before\nfalse\necho after"), "line 1", "status 1", "before")
    must_fail(block("echo a") + block("exit 3"), "line 4", "status 3")
    must_fail(block("if"), "line 1")


@tap.test("a status that the page announces is demanded")
def _():
    play("<!-- status: 3 -->\n" + block("(exit 3)") + "\n" + block("echo goes on") + block("goes on", "text"))
    must_fail("<!-- status: 3 -->\n" + block("true"), "status 0, not 3")


@tap.test("output is compared, with errors among it and … for what varies")
def _():
    play(block("echo one; echo two >&2; echo three 3.5 s") + "\n" + block("one\ntwo\nthree … s", "text"))
    play(block("seq 100") + block("1\n…\n99\n100", "text"))
    must_fail(block("echo one; echo two") + block("one", "text"), "two")
    must_fail(block("seq 5") + block("1\n…\n4", "text"))
    must_fail(block("echo abc") + block("a…d", "text"))
    must_fail(block("true") + block("something", "text"))


@tap.test("a block of text that does not follow a command is the page's own matter")
def _():
    play(block("echo a") + "\nA file looks like this:\n\n" + block("b", "text"))
    play(block("a map", "text"))


@tap.test("a block that is not run has a reason, and is not run")
def _():
    text = "<!-- not run: it needs root -->\n" + block("exit 1")
    [step] = page.steps(text)
    tap.equal((step.kind, step.why_not), ("skip", "it needs root"), "the step")
    play(text)


@tap.test("a rule without its block is a mistake of the page, and so is half a rule")
def _():
    for text in ("<!-- status: 1 -->\n\nnothing", "<!-- status: 1 -->\n" + block("x", "text"),
                 "<!-- terminal: broker -->\n" + block("x"), "<!-- status: 1 --><!-- status: 2 -->\n" + block("x")):
        try:
            page.steps(text)
        except page.Wrong:
            continue
        tap.check(False, "accepted: %s" % text)
    tap.equal(len(page.steps("<!-- an ordinary comment: yes -->\n" + block("x"))), 1, "steps")


@tap.test("a daemon runs in a terminal of its own, on ports that are free, and the page sees its own ports")
def _():
    play("<!-- terminal: broker, until: ready: -->\n" + block("oncemqd --data ./data")
         + "\n" + block("test -d data/commitlog\ngrep -o 'names 127.0.0.1:9876' <<<\"names $ONCEMQ_NAMES\"\n"
                        "(exec 3<>/dev/tcp/127.0.0.1/9876) && (exec 3<>/dev/tcp/127.0.0.1/10911) && echo both listen")
         + block("names 127.0.0.1:9876\nboth listen", "text")
         + "\n<!-- ctrl-c: broker -->\n\n" + block("test ! -e data/abort")
         + "\n<!-- terminal: again, until: broker 127.0.0.1: -->\n" + block("echo listenPort=10921 >b.conf\nmake run")
         + "\n<!-- kill: again -->\n" + block("test -e data/abort"))


@tap.test("what a terminal shows is compared as well")
def _():
    opens = "<!-- terminal: a, until: two -->\n" + block("echo one; echo two; exec cat /dev/zero >/dev/null")
    play(opens + "\n" + block("one\ntwo", "text"))
    play(opens + "\n" + block("one\n…", "text"))


@tap.test("a port that the caller names is the caller's")
def _():
    play("<!-- terminal: broker, until: broker 127.0.0.1: -->\n"
         + block("printf 'listenPort=10921\\n' >b.conf\noncemqd -c b.conf --data ./one")
         + "\n<!-- terminal: names, until: ready: -->\n"
         + block("oncemqd --data ./two --roles names --set namesrvListenPort=9877")
         + block("(exec 3<>/dev/tcp/127.0.0.1/10921) && (exec 3<>/dev/tcp/127.0.0.1/9877) && echo both listen")
         + block("both listen", "text"))


@tap.test("a terminal that never says its word, or does not end well, fails the page")
def _():
    must_fail("<!-- terminal: a, until: ready -->\n" + block("echo steady; exit 1"), "steady")
    must_fail("<!-- terminal: a, until: ready -->\n" + block("trap 'exit 4' INT; echo ready; while :; do sleep 0.1; done")
              + "\n<!-- ctrl-c: a -->\n", "ended with 4")
    must_fail("\n<!-- ctrl-c: a -->\n", "no terminal a")


@tap.test("pages in two languages are compared by their commands, not by their comments")
def _():
    one = block("make run   # starts it\n# a remark\ncurl 'a#b'") + block("int x; // a number", "c")
    two = block("make run   # other words\ncurl 'a#b'") + block("int x; // another word", "c")
    tap.equal(page.commands(one), page.commands(two), "commands")
    tap.check(page.commands(one) != page.commands(two.replace("a#b", "a#c")), "a difference is seen")


if __name__ == "__main__":
    tap.main()
