"""The option `once` of a consumer: with the store that STORE names, on a real daemon."""

import os
import time

import plays
import stage
from harness import process, remoting as r, tap

QUEUES = 4


class Scene:
    """A daemon, a topic, a group, and a file for effects."""

    def __init__(self, **settings):
        self.group = self.topic = stage.name("consumer")
        self.daemon = plays.start_daemon(**settings)
        self.file = os.path.join(process.temp_folder(), "effects")
        plays.make_topic(self.daemon, self.topic, QUEUES)

    def send(self, keys, queues=QUEUES, **more):
        plays.send(self.daemon, self.topic, keys, queues, **more)

    def start(self, mode="lease", **options):
        return tap.watch(plays.Consumer(self.daemon, self.group, self.topic, mode, self.file, **options).wait_ready())

    def effects(self):
        return {key: len(lines) for key, lines in plays.effects(self.file).items()}

    def lag(self):
        return plays.lag(self.daemon, self.group, self.topic, QUEUES)

    def wait_done(self, n, timeout=60):
        process.wait_until(lambda: len(self.effects()) == n and self.lag() == 0, timeout, "%d effects" % n, pause=0.1)


@tap.test("DS-3 DS-10 ID-19 ID-29 a business event that was sent three times has one effect")
def _():
    scene = Scene()
    scene.send(["k%d" % (number % 100) for number in range(300)])
    consumer = scene.start()
    scene.wait_done(100)
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    numbers = consumer.close()
    tap.equal((numbers["first_runs"], numbers["handled"]), (100, 100), "runs")
    tap.equal(numbers["duplicates"], 200, "duplicates suppressed")


@tap.test("DS-10 keyed by the message's id, it has three")
def _():
    scene = Scene()
    scene.send(["k", "k", "k"])
    consumer = scene.start(key="{msgid}")
    process.wait_until(lambda: scene.effects() == {"k": 3}, 30, "three effects")
    consumer.close()


@tap.test("H-23 batches: what fails in a batch comes again alone")
def _():
    scene = Scene()
    scene.send(["k%d" % number for number in range(320)])
    consumer = scene.start(batch=32, fail=5)
    scene.wait_done(320)
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    consumer.close()


@tap.test("H-8 a process is killed in its handler, with three retries and a claim of four seconds: the message is not burnt")
def _():
    scene = Scene()
    scene.send(["hang"])
    first = scene.start(hang="hang", retries=3, expiry=4000)
    first.child.wait_line(lambda line: line == "at hang", 30)
    second = scene.start(retries=3, expiry=4000)
    first.kill9()
    scene.send(["k1", "k2"])
    scene.wait_done(3)
    tap.equal(scene.effects(), {"hang": 1, "k1": 1, "k2": 1}, "effects")
    tap.equal(second.close()["lost"], 0, "lost")


@tap.test("a process is killed in a long handler: what it had finished before is marked, and does not run again")
def _():
    # What is told in pairs would be marked in one of these cases by chance.
    plans = [(Scene(), ["k%d" % number for number in range(n)]) for n in (3, 4)]
    firsts = []
    for scene, keys in plans:
        scene.send([*keys, "hang"], queues=1)
        firsts.append(scene.start(threads=1, sleep=50, hang="hang", expiry=3000))
    for first in firsts:
        first.child.wait_line(lambda line: line == "at hang", 30)
        first.kill9()
    seconds = [scene.start(expiry=3000) for scene, _ in plans]
    for (scene, keys), second in zip(plans, seconds):
        scene.wait_done(len(keys) + 1)
        tap.equal(scene.effects(), {key: 1 for key in [*keys, "hang"]}, "effects")
        second.close()


@tap.test("a close that leaves a handler behind lets go of what waited behind it: the next member has it at once")
def _():
    scene = Scene()
    keys = ["k%d" % number for number in range(20)]
    scene.send(["first"], queues=1)
    first = scene.start(threads=1, sleep=3000, hang="hang", close=300, linger=300000, expiry=120000)
    process.wait_until(lambda: first.numbers()["handled"] == 1, 30, "the only hand is busy, so that the others are there when it comes")
    scene.send(["hang", *keys], queues=1)
    first.child.wait_line(lambda line: line == "at hang", 30)
    tap.equal(first.numbers()["running"], 21, "claims of the one that hangs and of those behind it")
    first.child.process.stdin.close()
    first.child.wait_line(lambda line: line == "closed", 30)
    second = scene.start(expiry=120000)
    process.wait_until(lambda: set(scene.effects()) == {"first", *keys}, 30, "the others have run", pause=0.1)
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    first.kill9()
    second.close()


@tap.test("H-24 in order, the next member goes on as soon as the process is gone")
def _():
    # How long a broker keeps the lock of a member that is gone is its own affair: here not long.
    scene = Scene(rebalanceLockMaxLiveTime=5000)
    scene.send(["a", "b", "c", "d", "hang", "e", "f", "g"])
    first = scene.start(ordered=1, lock=4000, hang="hang", expiry=120000)
    first.child.wait_line(lambda line: line == "at hang", 30)
    process.wait_until(lambda: scene.lag() == 1, 30, "the others are done and marked", pause=0.1)
    second = scene.start(ordered=1, lock=4000, expiry=120000)
    first.kill9()
    begin = time.monotonic()
    scene.wait_done(8, 100)
    tap.note("%.1f s after its death" % (time.monotonic() - begin))
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    second.close()


@tap.test("H-9 H-35 the group's offsets are set back to the beginning: everything comes again, and has no second effect")
def _():
    scene = Scene()
    keys = ["k%d" % number for number in range(100)]
    scene.send(keys)
    consumer = scene.start()
    scene.wait_done(100)
    consumer.close()
    with r.Client(scene.daemon.broker) as client:
        for queue in range(QUEUES):
            answer = client.request(r.UPDATE_CONSUMER_OFFSET, {
                "consumerGroup": scene.group, "topic": scene.topic, "queueId": queue, "commitOffset": 0})
            tap.equal(answer.code, r.SUCCESS, "set back")
    tap.equal(plays.lag(scene.daemon, scene.group, scene.topic, QUEUES), 100, "to be consumed again")
    again = scene.start()
    scene.wait_done(100)
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    numbers = again.close()
    tap.equal((numbers["handled"], numbers["duplicates"]), (0, 100), "handled and suppressed")


@tap.test("H-28 a dead letter that is sent again is suppressed if it was done, and runs if it had failed")
def _():
    scene = Scene()
    scene.send(["done"])
    good = scene.start(retries=1)
    scene.wait_done(1)
    good.close()
    scene.send(["failed"])
    bad = scene.start(retries=1, fail=100)
    process.wait_until(lambda: plays.stored(scene.daemon, "%DLQ%" + scene.group) == 1, 60, "a dead letter")
    bad.close()
    scene.send(["done", "failed"])      # with ids of their own, as every resend has
    after = scene.start(retries=1)
    scene.wait_done(2)
    tap.equal(scene.effects(), {"done": 1, "failed": 1}, "effects")
    tap.equal(after.close()["duplicates"], 1, "suppressed")


if stage.KIND == "broker":
    @tap.test("without a store on a broker without a ledger: not opened, and told what to do")
    def _():
        scene = Scene(onceLedgerEnable="false")
        consumer = tap.watch(plays.Consumer(scene.daemon, scene.group, scene.topic, "lease", scene.file))
        tap.equal(consumer.child.wait(60), 1, "status")
        tap.check(any("keeps no ledger" in line and "name another store" in line for line in consumer.tail()), consumer.tail())


@tap.test("pop: copies are suppressed as well")
def _():
    scene = Scene()
    scene.send(["k%d" % (number % 50) for number in range(100)])
    consumer = scene.start(pop=1)
    process.wait_until(lambda: len(scene.effects()) == 50 and consumer.numbers()["duplicates"] == 50, 60, "all were seen")
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    consumer.close()


@tap.test("H-8 pop: what is being done elsewhere waits here, and the broker counts no attempt")
def _():
    scene = Scene()
    worker = stage.Worker(plays.store_of(scene.daemon), "lease", scene.group, expiry=4000)
    tap.equal(worker.begin("k").verdict, "RUN", "verdict")
    scene.send(["k"])
    consumer = scene.start(pop=1)
    process.wait_until(lambda: consumer.numbers()["busy"] >= 2, 30, "told later, twice")
    tap.equal(worker.end("failed").verdict, "RETRY", "verdict")
    process.wait_until(lambda: scene.effects() == {"k": 1}, 60, "the effect")
    with r.Client(scene.daemon.broker) as client:
        for name in ("%%RETRY%%%s_%s" % (scene.group, scene.topic), "%%RETRY%%%s+%s" % (scene.group, scene.topic)):
            end = client.request(r.GET_MAX_OFFSET, {"topic": name, "queueId": 0})
            tap.check(end.code != r.SUCCESS or int(end.ext["offset"]) == 0, "it went through " + name)
    consumer.close()
    worker.close()


@tap.test("H-11 the store is down: nothing runs, no attempt is counted, nothing becomes a dead letter, and then all run")
def _():
    if not stage.SERVER:
        tap.skip("SQLite has no server")
    scene = Scene()
    consumer = scene.start(retries=1, store=stage.store())
    stage.store().kill9()
    scene.send(["k%d" % number for number in range(50)])
    process.wait_until(lambda: consumer.numbers()["store_errors"] >= 50, 60, "every message has asked in vain", pause=0.1)
    tap.equal((consumer.numbers()["handled"], scene.effects()), (0, {}), "handled, and effects")
    stage.store().start()
    scene.wait_done(50)
    tap.equal(set(scene.effects().values()), {1}, "effects of a key")
    consumer.close()


tap.main()
