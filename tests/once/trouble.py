"""Processes that are slow, stores that are gone, clocks that are wrong: on the store that STORE names."""

import os
import time

import stage
from stage import process, tap

EXPIRY = 800


def worker(mode, group, file=None, **options):
    return stage.Worker(stage.store(), mode, group, file, **{"expiry": EXPIRY, **options})


def begin_when_free(w, key):
    """The next delivery that is not told to wait."""
    deadline = time.monotonic() + 30
    while (answer := w.begin(key)).verdict == "LATER":
        tap.check(time.monotonic() < deadline, "not free: %r" % answer)
        time.sleep(0.05)
    return answer


def overtaken(group):
    """A process stopped in its handler for longer than its claim; another has begun."""
    slow, quick = worker("lease", group), worker("lease", group, expiry=20000)
    first = slow.begin("k")
    tap.equal(first.verdict, "RUN", "verdict")
    slow.stop()
    second = begin_when_free(quick, "k")
    tap.equal(second.verdict, "RUN", "verdict")
    tap.check(second.fence > first.fence, "fences %d, %d" % (first.fence, second.fence))
    slow.go_on()
    process.wait_until(lambda: slow.do("lost") == "1", 30, "the slow one is told")
    return slow, quick


@tap.test("H-1 a handler that was overtaken is told, and its result is not recorded")
def _():
    slow, quick = overtaken(stage.name("lost"))
    answer = slow.end()
    tap.equal((answer.verdict, answer.cause), ("LATER", "lost"), "verdict")
    tap.equal(slow.stats()["lost"], 1, "lost claims")
    tap.equal(quick.end().verdict, "ACK", "verdict of the other")
    tap.equal(slow.begin("k").cause, "duplicate", "cause")
    slow.close()
    quick.close()


@tap.test("H-2 a late failure does not free the claim of who came after")
def _():
    group = stage.name("late")
    slow, quick = overtaken(group)
    tap.equal(slow.end("failed").cause, "lost", "cause")
    third = worker("lease", group)
    tap.equal(third.begin("k").cause, "running", "cause")
    tap.equal(quick.end().verdict, "ACK", "verdict")
    for w in (slow, quick, third):
        w.close()


@tap.test("H-3 a late success does not stand for who came after and failed")
def _():
    group = stage.name("late")
    slow, quick = overtaken(group)
    tap.equal(quick.end("failed").verdict, "RETRY", "verdict")
    tap.equal(slow.end().cause, "lost", "cause")
    third = worker("lease", group)
    tap.equal(third.begin("k").verdict, "RUN", "verdict")
    tap.equal(third.end().verdict, "ACK", "verdict")
    for w in (slow, quick, third):
        w.close()


@tap.test("ID-10 a step that was finished before the process died is not done again")
def _():
    group = stage.name("steps")
    w = worker("lease", group, expiry=4000)
    tap.equal(w.begin("k").verdict, "RUN", "verdict")
    tap.equal(w.do("step", "lock", "first"), "called first", "step")
    w.kill9()
    after = worker("lease", group, expiry=20000)
    tap.equal(begin_when_free(after, "k").verdict, "RUN", "verdict")
    tap.equal(after.do("step", "lock", "second"), "recorded first", "step")
    tap.equal(after.do("step", "pay", "third"), "called third", "step")
    tap.equal(after.end().verdict, "ACK", "verdict")
    after.close()


@tap.test("H-22 what the consumers' own clocks say does not matter")
def _():
    group = stage.name("clock")
    program = os.environ["SKEWED"]
    if stage.KIND == "sqlite":
        tap.skip("SQLite's clock is the machine's")
    ahead = worker("lease", group, program=program, env={"SKEW_S": "3600"}, expiry=120000)
    behind = worker("lease", group, program=program, env={"SKEW_S": "-3600"}, expiry=120000)
    for first, second, key in ((ahead, behind, "a"), (behind, ahead, "b")):
        tap.equal(first.begin(key).verdict, "RUN", "verdict")
        answer = second.begin(key)
        tap.equal(answer.cause, "running", "cause")
        tap.check(answer.wait_ms <= 120000, "wait of %d ms" % answer.wait_ms)
        tap.equal(first.end().verdict, "ACK", "verdict")
        tap.equal(second.begin(key).cause, "duplicate", "cause")
    ahead.close()
    behind.close()


@tap.test("H-33 what is past its retention is swept away")
def _():
    group = stage.name("sweep")
    w = worker("lease", group, retention=5000, short=1)
    for number in range(20):
        tap.equal(w.play("k%d" % number).verdict, "ACK", "verdict")
    tap.equal(w.do("look", "k19").split()[0], "consumed", "state")
    process.wait_until(lambda: w.do("look", "k19") in ("consumed 0", "absent 0"), 30, "the retention is over")
    other = worker("lease", group)      # its first sweep comes at once
    process.wait_until(lambda: all(other.do("look", "k%d" % number) == "absent 0" for number in range(20)), 30,
                       "all are gone")
    w.close()
    other.close()


def needs_server():
    if not stage.SERVER:
        tap.skip("SQLite has no server")


@tap.test("H-11 H-27 while the store is down nothing runs, and then everything does")
def _():
    needs_server()
    group = stage.name("down")
    for mode in stage.MODES:
        w = worker(mode, group, wait=500)
        tap.equal(w.play(group + "-before").verdict, "ACK", "verdict")
        stage.store().kill9()
        for _ in range(3):
            answer = w.begin(group)
            tap.equal((answer.verdict, answer.cause), ("LATER", "down"), "verdict in mode " + mode)
            tap.check(answer.wait_ms > 0 and answer.rest, "a wait and a reason: %r" % answer)
        stage.store().start()
        tap.equal(w.play_until_done(group).cause, "first", "cause")
        tap.equal(w.count(group), 1, "effects")
        tap.equal(w.play(group + "-before").cause, "duplicate", "cause")
        tap.check(w.stats()["store_errors"] > 0, "errors are counted")
        w.close()
        group = stage.name("down")


@tap.test("H-11 by choice, everything runs while the store is down, and is counted")
def _():
    needs_server()
    w = worker("lease", stage.name("open"), open=1, wait=500)
    stage.store().kill9()
    answer = w.begin("k")
    tap.equal((answer.verdict, answer.cause), ("RUN", "down"), "verdict")
    w.effect("k")
    tap.equal(w.end().verdict, "ACK", "verdict")
    tap.equal(w.stats()["ran_without_store"], 1, "counted")
    stage.store().start()
    keys = iter(range(1000))
    process.wait_until(lambda: w.play("l%d" % next(keys)).cause == "first", 30, "it is asked again")
    w.close()


@tap.test("H-10 the store goes down under a handler: in lease mode its result waits, a transaction is tried again")
def _():
    needs_server()
    for mode in stage.MODES:
        group = stage.name("under")
        w = worker(mode, group, wait=500, expiry=20000)
        tap.equal(w.begin(group).verdict, "RUN", "verdict")
        w.effect(group)
        stage.store().kill9()
        w.say("end", "done")
        time.sleep(1)
        stage.store().start()
        answer = w.answer()
        if mode == "transaction":
            tap.check(answer.verdict in ("LATER", "RETRY"), "verdict %r" % answer)
        else:
            tap.equal((answer.verdict, answer.cause), ("ACK", "first"), "verdict in mode " + mode)
        w.play_until_done(group)
        tap.equal(w.count(group), 1, "effects in mode " + mode)
        w.close()


@tap.test("H-10 the store stays down: the delivery is not acknowledged, and this is counted as unsure")
def _():
    needs_server()
    w = worker("lease", stage.name("unsure"), wait=500)
    tap.equal(w.begin("k").verdict, "RUN", "verdict")
    w.effect("k")
    stage.store().kill9()
    answer = w.answer(w.do("end", "done"))
    tap.check(answer.verdict == "LATER" and answer.cause in ("unsure", "lost"), "verdict %r" % answer)
    stage.store().start()
    tap.equal(w.play_until_done("k").verdict, "ACK", "verdict")
    w.close()


@tap.test("H-1 a store that does not answer: the handler is told that its claim is lost")
def _():
    needs_server()
    w = worker("lease", stage.name("mute"), wait=300)
    tap.equal(w.begin("k").verdict, "RUN", "verdict")
    stage.store().pause()
    try:
        process.wait_until(lambda: w.do("lost") == "1", 30, "told")
    finally:
        stage.store().resume()
    w.play_until_done("other")
    w.close()


@tap.test("H-13 a store that was emptied stops consumption until somebody says that it may go on")
def _():
    w = worker("lease", stage.name("wiped"))
    tap.equal(w.play("k").verdict, "ACK", "verdict")
    if stage.KIND == "redis":
        stage.store().command("FLUSHALL")
    elif stage.KIND == "broker":
        stage.store().empty()
    else:
        for table in ("claims", "steps", "birth"):
            w.do("sql", "DELETE FROM once_%s" % table)
    process.wait_until(lambda: w.begin("k").cause == "emptied", 30, "noticed")
    answer = w.begin("l")
    tap.equal((answer.verdict, answer.cause), ("LATER", "emptied"), "verdict")
    tap.equal(w.do("accept"), "ok", "accepted")
    tap.equal(w.play("k").cause, "first", "cause")
    w.close()


tap.main()
