"""Offsets in the handler's own transaction (mode offset), on the database that STORE names."""

import random
import time

import stage
from stage import tap


def worker(group):
    return stage.Worker(stage.store(), "offset", group)


def play(w, offset, effect, queue=0, floor=0):
    answer = w.at(queue, offset, effect, floor)
    if answer.verdict == "RUN":
        w.effect(effect)
        answer = w.end()
    return answer


def take(w, first=0, queue=0):
    word, start = w.do("take", queue, first).split()
    tap.equal(word, "start", "answer")
    return int(start)


@tap.test("ID-5 each offset has one effect, in whatever order and however often it comes")
def _():
    group = stage.name("order")
    w = worker(group)
    tap.equal(take(w, 5), 5, "start of a new queue")
    for offset in (5, 7, 6, 9, 5, 7):
        play(w, offset, "%s-%d" % (group, offset))
    tap.equal([w.count("%s-%d" % (group, offset)) for offset in range(5, 10)], [1, 1, 1, 0, 1], "effects")
    w.kill9()
    after = worker(group)
    tap.equal(take(after), 8, "start: the first that is not done")
    tap.equal(play(after, 8, group + "-8").cause, "first", "cause")
    tap.equal(play(after, 9, group + "-9").cause, "duplicate", "cause")
    tap.equal(take(after), 10, "start")
    tap.equal(take(after, 3, queue=1), 3, "another queue")
    after.close()


@tap.test("H-29 who lost the queue can commit nothing more")
def _():
    group = stage.name("owner")
    old, new = worker(group), worker(group)
    take(old)
    tap.equal(old.at(0, 0, "k").verdict, "RUN", "verdict")
    old.effect(group + "-0")
    if stage.KIND == "sqlite":      # one writer at a time: the queue can be taken when this transaction is over
        tap.equal(old.end("failed").verdict, "RETRY", "verdict")
        tap.equal(take(new), 0, "start")
    else:
        tap.equal(take(new), 0, "start")
        answer = old.end()
        tap.equal((answer.verdict, answer.cause), ("LATER", "lost"), "verdict")
    tap.equal(play(new, 0, group + "-0").cause, "first", "cause")
    tap.equal(new.count(group + "-0"), 1, "effects")
    tap.equal(old.at(0, 1, "k").cause, "lost", "cause")
    old.close()
    new.close()


@tap.test("what was never delivered is passed over by the floor")
def _():
    group = stage.name("floor")
    w = worker(group)
    take(w)
    tap.equal(play(w, 10, group + "-10", floor=10).cause, "first", "cause")
    tap.equal(take(w), 11, "start")
    w.close()


@tap.test("H-29 workers killed at any moment: every offset has one effect, and there is no gap")
def _():
    seed = random.randrange(1 << 32)
    tap.note("seed %d" % seed)
    dice = random.Random(seed)
    group = stage.name("gaps")
    count = 60
    w, kills = None, 0
    while True:
        w = w or worker(group)
        start = take(w)
        if start == count:
            break
        waiting = list(range(start, min(start + 8, count)))
        dice.shuffle(waiting)
        for offset in waiting:
            effect = "%s-%d" % (group, offset)
            if dice.random() < 0.2:
                w.say("at", 0, offset, 0, effect)
                w.say("effect", effect)
                w.say("end", "done")
                time.sleep(dice.random() ** 3 * 0.02)
                w.kill9()
                w, kills = None, kills + 1
                break
            tap.equal(play(w, offset, effect).verdict, "ACK", "verdict")
    tap.note("%d kills" % kills)
    tap.equal([w.count("%s-%d" % (group, offset)) for offset in range(count)], [1] * count, "effects")
    w.close()


tap.main()
