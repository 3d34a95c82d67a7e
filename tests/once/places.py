"""A consumer in mode offset, and one whose store is slow: what the broker, an operator and a close do to it. On SQLite, whose
file the test itself may open."""

import os
import sqlite3
import time

import plays
import stage
from harness import process, remoting as r, tap

INVOKE_BROKER_TO_RESET_OFFSET = 222


class Scene:
    """A daemon, a topic with one queue, a group."""

    def __init__(self):
        self.group = self.topic = stage.name("places")
        self.daemon = plays.start_daemon()
        self.file = os.path.join(process.temp_folder(), "effects")
        self.sent = 0
        plays.make_topic(self.daemon, self.topic, 1)

    def send(self, n):
        plays.send(self.daemon, self.topic, ["k%d" % (self.sent + i) for i in range(n)], 1)
        self.sent += n

    def start(self, mode="offset", **options):
        return tap.watch(plays.Consumer(self.daemon, self.group, self.topic, mode, self.file, **options).wait_ready())

    def database(self, **more):
        return sqlite3.connect(stage.store().url.split(":", 1)[1], timeout=30, **more)

    def ask(self, sql, *values):
        base = self.database()
        try:
            with base:
                return base.execute(sql, values).fetchall()
        finally:
            base.close()

    def effects(self):
        return [row[0] for row in self.ask("SELECT k FROM effects WHERE k LIKE ? ORDER BY rowid", self.topic + "-%")]

    def place(self):
        return self.ask("SELECT next FROM once_places WHERE name LIKE ?", self.topic + "@%")[0][0]

    def wait_effects(self, n, timeout=60):
        process.wait_until(lambda: len(self.effects()) >= n, timeout, "%d effects" % n, pause=0.1)

    def reset(self, offset):
        """As an operator does it."""
        with r.Client(self.daemon.broker) as client:
            answer = client.request(INVOKE_BROKER_TO_RESET_OFFSET, {
                "topic": self.topic, "group": self.group, "timestamp": 0, "isForce": True, "queueId": 0, "offset": offset})
            tap.equal(answer.code, r.SUCCESS, "reset: %s" % answer.remark)


@tap.test("DS-9 ONCE_OFFSET: a handler that takes longer than its time-out has one effect, and nothing is given back")
def _():
    scene = Scene()
    scene.send(1)
    consumer = scene.start(timeout=500, sleep=2900)
    scene.wait_effects(1)
    process.wait_until(lambda: plays.lag(scene.daemon, scene.group, scene.topic, 1) == 0, 30, "acknowledged")
    scene.send(1)
    scene.wait_effects(2)           # a message that came back would be here by now: the ladder is a second
    tap.equal(len(scene.effects()), 2, "effects")
    tap.equal(consumer.close()["handled"], 2, "handled")


@tap.test("H-29 ONCE_OFFSET: who finds that another took its queue, and has it still, takes it again")
def _():
    for ordered in (0, 1):
        scene = Scene()
        scene.send(3)
        consumer = scene.start(ordered=ordered)
        scene.wait_effects(3)
        scene.ask("UPDATE once_places SET epoch = epoch + 1000 WHERE name LIKE ?", scene.topic + "@%")
        scene.send(3)
        scene.wait_effects(6)
        tap.equal(len(set(scene.effects())), 6, "different effects")
        if ordered:
            places = [each.split("-k")[1].split("-")[0] for each in scene.effects()]
            tap.equal(places, ["0", "1", "2", "3", "4", "5"], "in order")
        tap.equal(consumer.close()["first_runs"], 6, "first runs")


@tap.test("ONCE_OFFSET: an operator's reset forwards reaches the database; one backwards runs nothing twice")
def _():
    scene = Scene()
    scene.send(2)
    consumer = scene.start(sleep=900, threads=1)
    scene.wait_effects(2)
    scene.reset(0)
    scene.send(1)
    scene.wait_effects(3)
    tap.equal(len(set(scene.effects())), 3, "different effects")
    consumer.kill9()
    scene.send(40)
    again = scene.start(sleep=900, threads=1)
    scene.wait_effects(4)
    scene.reset(43)
    process.wait_until(lambda: scene.place() == 43, 30, "the place in the database", pause=0.1)
    seen = len(scene.effects())
    again.kill9()
    last = scene.start()
    scene.send(1)
    process.wait_until(lambda: scene.place() == 44, 60, "the one behind", pause=0.1)
    tap.equal(len(scene.effects()), seen + 1, "effects")
    last.close()


@tap.test("H-35 ONCE_OFFSET: a broker whose queue ends before what is done: its messages do not count as done")
def _():
    scene = Scene()
    scene.send(1)
    first = scene.start()
    scene.wait_effects(1)
    first.close()
    scene.ask("UPDATE once_places SET next = 100 WHERE name LIKE ?", scene.topic + "@%")
    scene.send(2)
    second = scene.start()
    process.wait_until(lambda: any("nothing of this queue runs" in line for line in second.tail(200)), 30, "said so")
    tap.equal(plays.lag(scene.daemon, scene.group, scene.topic, 1), 2, "not acknowledged")
    tap.equal(second.close()["duplicates"], 0, "duplicates")


@tap.test("a close does not wait for a slow store, and no handler is called after it")
def _():
    for mode in ("lease", "transaction", "offset"):
        scene = Scene()
        consumer = scene.start(mode, close=200, linger=4000)
        process.wait_until(lambda: plays.lag(scene.daemon, scene.group, scene.topic, 1) == 0, 30, "it has begun")
        base = scene.database(isolation_level=None)
        base.execute("BEGIN EXCLUSIVE")
        scene.send(1)
        time.sleep(0.5)             # it asks whether that may run
        consumer.child.process.stdin.close()
        consumer.child.wait_line(lambda line: line == "closed", 30)
        base.execute("ROLLBACK")
        base.close()
        tap.equal(consumer.child.wait_line(lambda line: line.startswith("called") and line, 30), "called 0", mode)
        tap.equal(consumer.child.wait(30), 0, "status\n" + "\n".join(consumer.tail()))


@tap.test("ONCE_OFFSET: a close does not wait for ever behind a handler that does")
def _():
    scene = Scene()
    scene.send(1)
    consumer = scene.start(threads=1, hang="k0", close=500, linger=1)
    consumer.child.wait_line(lambda line: line == "at k0", 30)
    scene.reset(1)
    scene.send(1)                   # then the database is asked, in the only hand
    time.sleep(0.5)
    consumer.child.process.stdin.close()
    consumer.child.wait_line(lambda line: line == "closed", 30)
    consumer.kill9()


tap.main()
