"""Eight consumers, thousands of messages of which three in ten are copies; consumers, broker and store are killed
at random and started again. Afterwards the effects are counted. STORE and MODE say what is played."""

import os
import random
import time

import stage
from harness import process, tap

import plays

MODE = os.environ.get("MODE", "lease")
SEED = int(os.environ.get("TEST_SEED") or random.randrange(1 << 32))
MESSAGES, COPIES, QUEUES, CONSUMERS, KILLS = 2000, 0.3, 8, 8, 24


def messages(dice, prefix):
    fresh = ["%s-%d" % (prefix, number) for number in range(int(MESSAGES * (1 - COPIES)))]
    keys = fresh + [dice.choice(fresh) for _ in range(MESSAGES - len(fresh))]
    dice.shuffle(keys)
    return fresh, keys


def make_trouble(dice, daemon, consumers, start):
    """One thing that goes wrong."""
    what = dice.random()
    own = stage.KIND == "broker"        # then the broker is the store
    if what < (0.65 if own else 0.75) or (what >= 0.88 and not stage.SERVER):
        number = dice.randrange(len(consumers))
        consumers[number].kill9()
        consumers[number] = start()
        return "consumer"
    if what < 0.88 or own:
        for each in consumers if own else ():
            each.wait_ready()
        daemon.kill9()
        daemon.start()
        return "broker"
    for each in consumers:      # who finds no store when it begins may give up
        each.wait_ready()
    stage.store().kill9()
    time.sleep(dice.random())
    stage.store().start()
    return "store"


def counted(file, worker, prefix):
    """(effects, keys that had one)"""
    if MODE in ("transaction", "offset"):
        total, distinct = worker.do("rows", prefix).split()
        return int(total), int(distinct)
    found = plays.effects(file)
    return sum(map(len, found.values())), len(found)


@tap.test("DS-3 DS-7 DS-8 ID-5 H-29 %s on %s: consumers, broker and store are killed, every effect happens once" % (MODE, stage.KIND))
def _():
    tap.note("TEST_SEED=%d" % SEED)
    dice = random.Random(SEED)
    group = stage.name("history")
    file = os.path.join(process.temp_folder(), "effects")
    daemon = plays.start_daemon()
    plays.make_topic(daemon, group, QUEUES)
    fresh, keys = messages(dice, group)
    plays.send(daemon, group, keys, QUEUES)
    worker = stage.Worker(plays.store_of(daemon), MODE if stage.DATABASE else "lease", group + "-look")

    def start():
        return plays.Consumer(daemon, group, group, MODE, file, expiry=3000, threads=4, sleep=5, fail=3)

    consumers = [start() for _ in range(CONSUMERS)]
    for each in consumers:
        each.wait_ready()
    done = {}
    for _ in range(KILLS):
        time.sleep(dice.random() * 0.4)
        what = make_trouble(dice, daemon, consumers, start)
        done[what] = done.get(what, 0) + 1
    tap.note("killed: %s" % done)
    wanted = len(keys) if MODE == "offset" else len(fresh)
    process.wait_until(lambda: counted(file, worker, group)[1] == wanted and plays.lag(daemon, group, group, QUEUES) == 0,
                       180, "every message has had its effect, and was acknowledged", pause=0.5)
    total, distinct = counted(file, worker, group)
    sums = {}
    for each in consumers:
        for key, value in each.close().items():
            sums[key] = sums.get(key, 0) + value
    tap.note("those that lived at the end: %s" % sums)
    tap.equal(distinct, wanted, "messages with an effect")
    if MODE in ("transaction", "offset"):
        tap.equal(total, wanted, "effects")
        return
    twice = {key: lines for key, lines in plays.effects(file).items() if len(lines) > 1}
    tap.note("%d keys with a second effect, each after a run that never ended" % len(twice))
    for key, lines in twice.items():
        fences = [int(line[0]) for line in lines]
        tap.equal(fences, sorted(fences), "fences of " + key)
        tap.check(all(line[1:] == ["overtook"] for line in lines[1:]), "%s happened again unreported: %s" % (key, lines))


tap.main()
