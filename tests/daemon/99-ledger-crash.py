"""The three laws of the once ledger, whatever happens to the broker and its clients: two commits for one key never both
succeed; no key stays blocked longer than its expiry, or the grace of an owner that is gone; every confirmed completion
survives.

Clients claim, renew, finish and release a few keys; requests are left unanswered, connections are cut, the broker is killed
or stopped with requests under way, its clock is ahead, set back or jumps, its disk is full, its log is deleted up to its
snapshot. What is known is only what was answered, and each answer is judged by what had been answered before its request was
sent. Seeded: LEDGER_SEED begins with that one, LEDGER_ROUNDS says how many (5).
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, fulldisk, ledger as l, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK, GET_BROKER_RUNTIME_INFO = 10001, 28
GRACE_MS, HOUR_MS, DAY_MS = 2000, 3600000, 86400000
KEEP_MS = 300 * DAY_MS  # of a mark: longer than any round
STEPS = 60


class Key:
    def __init__(self, name):
        self.name = name
        self.owners = []        # (answered, token, fence) of each claim that was told
        self.ends = set()       # tokens that have asked to finish it
        self.done = None        # (answered, token): this one has
        self.until = 0          # the ledger's time after which no claim can last, but for …
        self.under_way = set()  # … requests whose answer is not known
        self.hold = None        # (answered, token, until): nobody may take it earlier

    def check(self, good, what, *more):
        tap.check(good, "%s: %s %s" % (self.name, what, more))


class Sent:
    """A request under way."""
    def __init__(self, world, client, kind, key, token, expiry):
        self.kind, self.key, self.token, self.expiry, self.client = kind, key, token, expiry, client
        self.number, self.after = world.tick(), world.now
        key.under_way.add(self)


class Worker:
    """A client: one connection at a time, tokens of its own, and the keys that it believes to have."""
    def __init__(self, world, number, stays):
        self.world, self.number, self.stays, self.last = world, number, stays, 0
        self.claimer, self.open, self.mine = None, [], {}
        self.connect()

    def connect(self):
        self.claimer = l.Claimer(self.world.daemon.broker, "g", self.number)
        if self.stays:
            self.claimer.present()
            self.claimer.client.request(l.LEDGER, self.claimer.fields(), l.body([]))  # behind it: it has arrived

    def token(self):
        self.last += 1
        return self.number << 32 | self.last

    def send(self, kind, key, token, expiry=30000):
        sent = Sent(self.world, self, kind, key, token, expiry)
        if kind == l.FINISH:
            key.ends.add(token)
        op = self.claimer.op(kind, key.name, token=token, expiry=expiry, retention=KEEP_MS, result=b"%d" % token if kind == l.FINISH else b"")
        self.open.append((self.claimer.client.send(l.LEDGER, self.claimer.fields(), l.body([op])), sent))

    def answers(self):
        """Waits for all of them. What is refused as a whole may have happened or not."""
        lost, self.open, waiting = [], [], self.open
        for opaque, sent in waiting:
            answer = self.claimer.client.wait(opaque)
            if answer.code == r.SUCCESS:
                self.world.judge(sent, l.outcomes(answer.body)[0], int(answer.ext["timestamp"]))
            else:
                lost.append(sent)
        self.world.settle(lost)

    def cut(self):
        """The broker is through with all that was sent, and nobody has heard it."""
        lost, self.open = [sent for _, sent in self.open], []
        self.claimer.client.socket.shutdown(1)
        self.claimer.client.wait_closed(20)
        self.claimer.close()
        self.connect()
        self.world.settle(lost)


class World:
    def __init__(self, seed, disk):
        self.dice, self.disk, self.number, self.now = random.Random(seed), disk, 0, 0
        self.ahead, self.old_results, self.lives = 0, False, 0
        self.daemon = daemons.Daemon(start=False, env=disk.env)
        self.keys = [Key("%d-%d" % (seed, i)) for i in range(8)]
        self.spare = 1000
        self.begin()
        self.workers = [Worker(self, 1 + i, i % 2 == 1) for i in range(4)]

    def tick(self):
        self.number += 1
        return self.number

    # ---- the broker

    def begin(self):
        self.daemon.args = ["--clock", "virtual+%d" % self.ahead]
        self.daemon.settings = {"flushDiskType": self.dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"]), "mappedFileSizeCommitLog": 1 << 20,
                                "deleteWhen": ";".join("%02d" % hour for hour in range(24))}
        self.daemon.start()
        self.lives += 1
        self.client = r.Client(self.daemon.broker, timeout=20)
        self.time()  # of another life: it may be earlier than what was told

    def advance(self, ms):
        self.ahead += ms
        tap.equal(self.client.request(ADVANCE_CLOCK, {"advanceMillis": ms}).code, r.SUCCESS, "advance")

    def restart(self):
        """With requests under way, or not."""
        how = self.dice.choice(["kill", "kill", "stop"])
        lost = [sent for worker in self.workers for _, sent in worker.open]
        self.daemon.kill9() if how == "kill" else self.daemon.stop()
        self.client.close()
        self.ahead = max(0, self.ahead + self.dice.choice([0, 0, 0, -HOUR_MS, 60000]))
        self.begin()
        for worker in self.workers:
            worker.open = []
            worker.claimer.close()
            worker.connect()
        self.settle(lost)
        for key in self.keys:
            key.until = max(key.until, self.time() + GRACE_MS)  # a start gives everybody the time to come back

    def time(self):
        answer = self.client.request(l.LEDGER, {"group": "g"}, l.body([]))
        tap.equal(answer.code, r.SUCCESS, answer.remark)
        self.now = int(answer.ext["timestamp"])
        return self.now

    def instances(self):
        return int(self.client.request(GET_BROKER_RUNTIME_INFO).json()["table"]["onceInstances"])

    # ---- what is known

    def settle(self, lost):
        """They have happened, or not, and will not any more."""
        now = self.time() if lost else 0
        for sent in lost:
            key = sent.key
            key.under_way.discard(sent)
            if sent.kind in (l.CLAIM, l.RENEW):
                key.until = max(key.until, now + sent.expiry)
            elif key.hold and key.hold[1] == sent.token:
                key.hold = None  # free, perhaps

    def judge(self, sent, told, now):
        key, self.now = sent.key, max(self.now, now)
        key.under_way.discard(sent)
        done = key.done if key.done and key.done[0] < sent.number else None
        {l.CLAIM: self.claimed, l.RENEW: self.renewed, l.FINISH: self.finished, l.RELEASE: self.released}[sent.kind](key, sent, told, now, done)

    def held(self, key, sent, now):
        """Somebody's claim that cannot have ended when this was answered: not by its owner's word, either."""
        if not key.hold or key.hold[0] > sent.number or now >= key.hold[2]:
            return None
        ends = any(each.token == key.hold[1] and each.kind in (l.RELEASE, l.FINISH) for each in key.under_way)
        return None if ends else key.hold

    def overtaken(self, key, sent):
        mine = [fence for _, token, fence in key.owners if token == sent.token]
        return mine and any(answered < sent.number and fence > mine[-1] for answered, _, fence in key.owners)

    def take(self, key, sent, now):
        key.until = max(key.until, now + sent.expiry)
        key.hold = None if sent.client.stays else (self.tick(), sent.token, sent.after + sent.expiry)

    def claimed(self, key, sent, told, now, done):
        if told.outcome == l.DONE:
            if told.result == b"" and self.old_results:
                return
            token = int(told.result)
            key.check(token in key.ends, "done by somebody who never was", token)
            key.check(not key.done or key.done[1] == token, "done twice", key.done, token)
            key.done = key.done or (self.tick(), token)
            return
        key.check(not done, "a completion is lost", done, told)
        if told.outcome == l.BUSY:
            key.check(key.under_way or now <= key.until, "blocked for too long", now - key.until)
            return
        key.check(told.outcome == l.OK, "claim", told)
        hold = self.held(key, sent, now)
        key.check(not hold or hold[1] == sent.token, "taken from its owner", hold, now)
        known = [fence for _, token, fence in key.owners if token == sent.token]
        again = known and told.fence == known[-1]  # else it is claimed anew, perhaps by the same token
        before = max((fence for answered, _, fence in key.owners if answered < sent.number), default=0)
        key.check(again or told.fence > before, "the fence went back", told.fence, before)
        self.take(key, sent, now)
        if not again:
            key.owners.append((self.tick(), sent.token, told.fence))
        sent.client.mine[key] = sent.token

    def ended(self, key, sent, told, now, done):
        """Of a token that is told to have lost it."""
        key.check(told.outcome == l.LOST, "outcome", told)
        hold = self.held(key, sent, now)
        key.check(not hold or hold[1] != sent.token, "lost before its end", hold, now)
        sent.client.mine.pop(key, None)

    def renewed(self, key, sent, told, now, done):
        if told.outcome != l.OK:
            self.ended(key, sent, told, now, done)
            return
        key.check(not done and not self.overtaken(key, sent), "renewed by one who had lost it", done, key.owners)
        self.take(key, sent, now)

    def finished(self, key, sent, told, now, done):
        if told.outcome != l.OK:
            key.check(not done or done[1] != sent.token, "a completion is lost", done)
            self.ended(key, sent, told, now, done)
            return
        key.check(not key.done or key.done[1] == sent.token, "two commits", key.done, sent.token)
        key.check(not self.overtaken(key, sent), "a commit by one who had lost it", key.owners)
        key.done = key.done or (self.tick(), sent.token)
        key.hold = None

    def released(self, key, sent, told, now, done):
        if told.outcome != l.OK:
            self.ended(key, sent, told, now, done)
            return
        key.check(not done, "released what was done", done)
        key.hold = None
        sent.client.mine.pop(key, None)

    # ---- steps

    def ask(self):
        worker = self.dice.choice(self.workers)
        key = self.dice.choice(list(worker.mine) or self.keys) if self.dice.random() < 0.6 else self.dice.choice(self.keys)
        expiry = self.dice.choice([500, 5000, 30000])
        token = worker.mine.get(key)
        if token is None:
            worker.send(l.CLAIM, key, worker.token(), expiry)
        else:
            worker.send(self.dice.choice([l.CLAIM, l.RENEW, l.FINISH, l.FINISH, l.FINISH, l.RELEASE]), key, token, expiry)
        if self.dice.random() < 0.8:
            worker.answers()

    def wait(self):
        self.advance(self.dice.choice([100, 600, GRACE_MS + 1, 6000, 31000]))

    def save(self):
        """An hour without a snapshot is one too many; after days the log is deleted up to it."""
        days = self.dice.random() < 0.3
        self.old_results |= days
        self.advance(4 * DAY_MS if days else HOUR_MS + 1)
        for worker in self.workers:
            worker.answers()

    def takes(self):
        self.spare += 1
        op = l.Op(l.CLAIM, l.key_id("probe", str(self.spare)), token=1, expiry=1)
        return self.client.request(l.LEDGER, {"group": "g"}, l.body([op])).code == r.SUCCESS

    def full(self):
        """Nothing is taken, and of the log the last file is left, behind a snapshot."""
        self.old_results = True
        self.disk.fill(95)
        self.advance(11000)  # it looks every ten seconds
        process.wait_until(lambda: not self.takes(), 20, "the disk is full")
        for _ in range(5):
            self.ask()
        for worker in self.workers:
            worker.answers()
        self.disk.fill(50)
        self.advance(11000)
        process.wait_until(self.takes, 20, "there is space again")

    def vanish(self):
        """Who was there and is gone blocks a key for the grace and no longer, whenever its claim would end."""
        self.spare += 1
        key = Key("spare-%d" % self.spare)
        gone = Worker(self, self.spare, True)
        gone.send(l.CLAIM, key, gone.token(), DAY_MS)
        gone.answers()
        if not key.owners:
            gone.claimer.close()  # the disk is full
            return
        heirs = self.workers[self.dice.randrange(len(self.workers))]
        before = self.instances()
        gone.claimer.close()
        if self.dice.random() < 0.4:
            self.restart()
        else:
            process.wait_until(lambda: self.instances() < before, 10, "the broker has noticed")
        heirs.answers()
        begin = self.time()
        self.advance(GRACE_MS - 500 if self.dice.random() < 0.5 else GRACE_MS + 1)
        key.until = begin + GRACE_MS
        heirs.send(l.CLAIM, key, heirs.token())
        heirs.answers()
        self.keys.append(key)

    def end(self):
        """All that was told is so, once more after a crash; and what is not done is free when its time is over."""
        self.restart()
        self.advance(31000)
        for key in self.keys:
            self.workers[0].mine.pop(key, None)
            self.workers[0].send(l.CLAIM, key, self.workers[0].token())
        self.workers[0].answers()
        for key in self.keys:
            if not key.done and key in self.workers[0].mine:
                self.workers[0].send(l.FINISH, key, self.workers[0].mine[key])
        self.workers[0].answers()
        for key in self.keys:
            tap.check(key.done, "%s is not done at the end" % key.name)

    def close(self):
        for worker in self.workers:
            worker.claimer.close()
        self.client.close()
        self.daemon.kill9()


def round_(seed, disk):
    disk.fill(50)
    world = World(seed, disk)
    tap.watch(world.daemon)
    steps = [(70, world.ask), (10, world.wait), (2, world.save), (4, world.restart), (2, world.full), (4, world.vanish),
             (8, lambda: world.dice.choice(world.workers).cut())]
    try:
        for _ in range(STEPS):
            world.dice.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
        world.end()
        print("# LEDGER_SEED=%d: %d requests on %d keys, %d lives, %s" % (
            seed, world.number, len(world.keys), world.lives,
            "a snapshot" if os.path.exists(os.path.join(world.daemon.folder, "config", "onceLedger")) else "no snapshot"), flush=True)
    finally:
        world.close()
    tap.unwatch(world.daemon)


@tap.test("clients, brokers, clocks and disks fail at any step: the three laws hold")
def _():
    rounds, seed = int(os.environ.get("LEDGER_ROUNDS", 5)), int(os.environ.get("LEDGER_SEED", time.time_ns() % 1000000))
    with fulldisk.FullDisk() as disk:
        for i in range(rounds):
            print("# LEDGER_SEED=%d …" % (seed + i), flush=True)
            round_(seed + i, disk)


tap.main()
