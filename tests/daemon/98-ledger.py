"""The once ledger through raw frames: the life of a claim, who may end it, who is there, and what is left after a crash."""

import os
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, ledger as l, process, remoting as r, tap  # noqa: E402

SYSTEM_ERROR, SYSTEM_BUSY, MESSAGE_ILLEGAL, VERSION_NOT_SUPPORTED, NO_PERMISSION = 1, 2, 13, 15, 16
INVALID_PARAMETER, ILLEGAL_OPERATION = 29, 604
GET_BROKER_RUNTIME_INFO = 28
ADVANCE_CLOCK = 10001
GRACE_MS = 10000  # longer than a machine stands still

shared = daemons.Daemon(settings={"onceGraceMillis": GRACE_MS}, args=["--clock", "virtual"])
tap.watch(shared)


def claimer(instance=1, group="g", daemon=shared):
    return l.Claimer(daemon.broker, group, instance)


def advance(client, ms):
    tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": ms}).code, r.SUCCESS, "advance")


def numbers(client):
    table = client.request(GET_BROKER_RUNTIME_INFO).json()["table"]
    return {name: int(value) for name, value in table.items() if name.startswith("once")}


def said(outcome, wanted, what):
    tap.equal(outcome.outcome, wanted, "%s: %s" % (what, outcome.why or "outcome"))
    return outcome


@tap.test("a claim, a renewal, its end; a duplicate is told and gets the result")
def _():
    with claimer(1) as a, claimer(2) as b:
        claim = said(a.claim("life", fingerprint=7), l.OK, "claim")
        tap.equal(claim.state, l.S_ABSENT, "what was there before")
        busy = said(b.claim("life", fingerprint=7), l.BUSY, "another's claim")
        tap.check(0 < busy.left <= 30000, "left %d" % busy.left)
        said(a.run(l.RENEW, "life", token=a.held, expiry=60000), l.OK, "renewal")
        tap.check(b.claim("life").left > 30000, "not renewed")
        said(a.finish("life", result=b"42"), l.OK, "end")
        said(a.finish("life", result=b"43"), l.OK, "the same said again")
        done = said(b.claim("life", fingerprint=7), l.DONE, "duplicate")
        tap.equal((done.result, done.fingerprint), (b"42", 7), "what it gets back")
        look = said(a.look("life"), l.OK, "look")
        tap.equal((look.state, look.fence), (l.S_CONSUMED, claim.fence), "what stands there")
        said(a.look("other"), l.ABSENT, "look at nothing")


@tap.test("released, forgotten, taken again: the fence only grows")
def _():
    with claimer(1) as a:
        fences = []
        for how in ({}, {"flags": 1}, {}):
            fences.append(said(a.claim("fence"), l.OK, "claim").fence)
            said(a.run(l.RELEASE, "fence", token=a.held, **how), l.OK, "release")
        fences.append(said(a.claim("fence"), l.OK, "claim").fence)
        said(a.run(l.FORGET, "fence"), l.OK, "forget")
        said(a.look("fence"), l.ABSENT, "look")
        fences.append(said(a.claim("fence"), l.OK, "claim").fence)
        tap.check(all(x < y for x, y in zip(fences, fences[1:])), "%s" % fences)


@tap.test("forged, stale and repeated tokens change nothing and are counted")
def _():
    with claimer(1) as a, claimer(2) as b:
        said(a.claim("forged"), l.OK, "claim")
        before = numbers(a.client)
        for kind in (l.RENEW, l.FINISH, l.RELEASE):
            said(b.run(kind, "forged", token=b.token()), l.LOST, "forged %d" % kind)
        said(b.run(l.STEP_PUT, "forged", token=b.token(), step="s", result=b"x"), l.LOST, "forged step")
        said(a.run(l.CLAIM, "forged", token=a.held), l.OK, "the same claim again")
        said(a.run(l.CLAIM, "forged", token=0), l.FAILED, "token 0")
        said(a.run(l.CLAIM, "forged-2", token=5, expiry=0), l.FAILED, "no expiry")
        said(a.run(l.CLAIM, "forged-2", token=5, expiry=-2**63), l.FAILED, "expiry below 0")
        said(a.run(l.RENEW, "forged", token=a.held, retention=-1), l.FAILED, "retention below 0")
        tap.equal(a.look("forged").state, l.S_CONSUMING, "state")
        now = numbers(a.client)
        tap.equal((now["onceLost"] - before["onceLost"], now["onceStaleTokens"] - before["onceStaleTokens"]), (1, 3), "counted")


@tap.test("another group's key of the same name is another key")
def _():
    with claimer(1, "group-a") as a, claimer(2, "group-b") as b:
        said(a.claim("mine"), l.OK, "claim")
        said(b.claim("mine"), l.OK, "the other's")
        said(b.finish("mine", a.held), l.LOST, "by the first one's token")


@tap.test("a key that ends is free for the next one, which hears of it; the first one has lost it")
def _():
    with claimer(1) as a, claimer(2) as b:
        first = said(a.claim("expires", expiry=5000), l.OK, "claim")
        advance(a.client, 5001)
        second = said(b.claim("expires"), l.OK, "taken")
        tap.equal(second.state, l.S_CONSUMING, "whose run never ended")
        tap.check(second.fence > first.fence, "fences %d %d" % (first.fence, second.fence))
        said(a.finish("expires"), l.LOST, "the first one's end")
        said(b.finish("expires"), l.OK, "the second one's")
        said(a.claim("late", expiry=5000), l.OK, "claim")
        advance(a.client, 60000)
        said(a.finish("late"), l.OK, "an end that is late, but nobody else was there")
        said(b.claim("late"), l.DONE, "duplicate")
        advance(a.client, 3600001)
        said(b.claim("late"), l.OK, "when the mark's time is over")
        said(a.claim("given up", expiry=5000), l.OK, "claim")
        said(a.run(l.RENEW, "given up", token=a.held, expiry=0), l.OK, "over, but not free")
        said(a.run(l.RENEW, "given up", token=a.held, expiry=-1), l.FAILED, "below 0")
        tap.equal(said(b.claim("given up"), l.OK, "the next one").state, l.S_CONSUMING, "hears of it")


@tap.test("two bodies under one key: refused and counted")
def _():
    with claimer(1) as a:
        before = numbers(a.client)
        said(a.claim("body", fingerprint=1), l.OK, "claim")
        said(a.finish("body"), l.OK, "end")
        tap.equal(said(a.claim("body", fingerprint=2), l.DONE, "another body").fingerprint, 1, "the first one's")
        said(a.claim("body", fingerprint=1), l.DONE, "the same")
        now = numbers(a.client)
        tap.equal((now["onceRefused"] - before["onceRefused"], now["onceSuppressed"] - before["onceSuppressed"]), (1, 1), "counted")


@tap.test("an owner that is gone: its claims are free after the grace, and not before")
def _():
    with claimer(71) as a, claimer(72) as b, claimer(73) as unseen:
        waiting = a.present()
        said(a.claim("gone", expiry=3600000), l.OK, "claim")
        said(unseen.claim("unseen", expiry=3600000), l.OK, "claim of one that never said it is there")
        advance(b.client, GRACE_MS * 2)
        said(b.claim("gone"), l.BUSY, "it is there")
        advance(b.client, 30000)
        answer = a.client.wait(waiting)
        tap.equal((answer.code, int(answer.ext["graceMillis"]), int(answer.ext["birth"])), (r.SUCCESS, GRACE_MS, b.seen_birth),
                  "when its time is up")
        a.present()
        a.claim("gone", token=a.held, expiry=3600000)  # behind it: it has arrived
        advance(b.client, GRACE_MS * 2)
        said(b.claim("gone"), l.BUSY, "it is there again")
        a.close()
        unseen.close()
        process.wait_until(lambda: numbers(b.client)["onceInstances"] == 0, 20, "the broker has noticed")
        said(b.claim("gone"), l.BUSY, "within the grace")
        advance(b.client, GRACE_MS + 1)
        tap.equal(said(b.claim("gone"), l.OK, "after it").state, l.S_CONSUMING, "whose run never ended")
        said(b.claim("unseen"), l.BUSY, "who was never there cannot be missed")
        told = [(e.event, e.flags & 7, e.client) for e in l.read_topic(b.client) if e.name == "gone"]
        tap.equal((told[0], told[-1]), (("claimed", l.WATCHED, "test"), ("claimed", l.OVERTOOK | l.OWNER_GONE, "")), "as the log tells")


@tap.test("an owner that is slow to ask again is there while its connection stands, and for as long again as it asked for")
def _():
    with claimer(74) as a, claimer(75) as b:
        def answered(waiting):
            tap.equal(a.client.wait(waiting).code, r.SUCCESS, "its time is up")
            said(a.claim("slow", token=a.held, expiry=3600000), l.OK, "still its own")  # and the answered one counts from now on

        waiting = a.present()
        said(a.claim("slow", expiry=3600000), l.OK, "claim")
        advance(b.client, 30000)
        answered(waiting)
        advance(b.client, 29000)
        said(b.claim("slow"), l.BUSY, "it has not asked for much longer than the grace")
        waiting = a.present()
        said(a.claim("slow", token=a.held, expiry=3600000), l.OK, "behind it: it has arrived")
        tap.equal(numbers(b.client)["onceInstances"], 1, "it is there")
        advance(b.client, 29000)
        said(b.claim("slow"), l.BUSY, "the new request is in the place of the old one")
        advance(b.client, 1000)
        answered(waiting)
        advance(b.client, 30000)
        process.wait_until(lambda: numbers(b.client)["onceInstances"] == 0, 20, "for ever it is not")
        said(b.claim("slow"), l.BUSY, "within the grace")
        advance(b.client, GRACE_MS + 1)
        said(b.claim("slow"), l.OK, "after it")


@tap.test("an owner that was answered and whose connection ends is gone after the grace")
def _():
    with claimer(76) as a, claimer(77) as b:
        waiting = a.present()
        said(a.claim("hangs up", expiry=3600000), l.OK, "claim")
        advance(b.client, 30000)
        tap.equal(a.client.wait(waiting).code, r.SUCCESS, "its time is up")
        said(a.look("hangs up"), l.OK, "it counts from now on")
        a.close()
        process.wait_until(lambda: numbers(b.client)["onceInstances"] == 0, 20, "the broker has noticed")
        said(b.claim("hangs up"), l.BUSY, "within the grace")
        advance(b.client, GRACE_MS + 1)
        said(b.claim("hangs up"), l.OK, "after it")


@tap.test("owners that ask again take no more room than before, on their connection and of maxWaitingPulls")
def _():
    with daemons.Daemon(args=["--clock", "virtual"], settings={"maxWaitingPulls": 16}) as d, claimer(1, daemon=d) as a, \
            claimer(2, daemon=d) as b:
        for _ in range(4):
            waiting = []
            for i in range(16):
                a.instance = 1000 + i
                waiting.append(a.present())
            said(a.look("behind them"), l.ABSENT, "look")
            tap.equal(numbers(b.client)["onceInstances"], 16, "that are there")
            advance(b.client, 30000)
            tap.equal({a.client.wait(each).code for each in waiting}, {r.SUCCESS}, "answers")
        tap.equal(numbers(b.client)["onceInstances"], 16, "that are there")
        a.instance = 1000
        tap.equal(a.client.wait(a.present(0)).code, r.SUCCESS, "one that goes")
        tap.equal(numbers(b.client)["onceInstances"], 15, "the others are there")


@tap.test("steps are kept with their values until the key is done")
def _():
    with claimer(1) as a:
        said(a.claim("steps"), l.OK, "claim")
        for name, value in (("one", b"1" * 65536), ("two", b"")):
            said(a.run(l.STEP_PUT, "steps", token=a.held, step=name, result=value), l.OK, "put")
            tap.equal(said(a.run(l.STEP_GET, "steps", step=name), l.OK, "get").result, value, name)
        said(a.run(l.STEP_PUT, "steps", token=a.held, step="two", result=b"other"), l.OK, "put again")
        tap.equal(a.run(l.STEP_GET, "steps", step="two").result, b"", "the first value stays")
        said(a.run(l.STEP_GET, "steps", step="three"), l.ABSENT, "one that never ran")
        said(a.run(l.RELEASE, "steps", token=a.held), l.OK, "release")
        said(a.claim("steps"), l.OK, "claim")
        tap.equal(len(a.run(l.STEP_GET, "steps", step="one").result), 65536, "after a release")
        said(a.finish("steps"), l.OK, "end")
        said(a.run(l.STEP_GET, "steps", step="one"), l.ABSENT, "after the end")


@tap.test("many operations of one request, each for itself and in order; results of the same turn too")
def _():
    with claimer(1) as a:
        ops = []
        for i in range(64):
            token = a.token()
            ops += [a.op(l.CLAIM, "many-%d" % i, token=token), a.op(l.FINISH, "many-%d" % i, token=token, result=b"r%d" % i),
                    a.op(l.CLAIM, "many-%d" % i, token=a.token())]
        got = a.ask(*ops)
        tap.equal([o.outcome for o in got], [l.OK, l.OK, l.DONE] * 64, "outcomes")
        tap.equal([o.result for o in got[2::3]], [b"r%d" % i for i in range(64)], "results")
        tap.equal(a.ask(), [], "no operations")


@tap.test("more values of steps than an answer can carry: those that fit come, the others are refused by name")
def _():
    with claimer(1) as a:
        said(a.claim("heavy"), l.OK, "claim")
        said(a.run(l.STEP_PUT, "heavy", token=a.held, step="s", result=b"x" * 65536), l.OK, "put")
        got = a.ask(*[a.op(l.STEP_GET, "heavy", step="s")] * 256)
        told = [o.outcome for o in got]
        tap.equal(told, [l.OK] * 128 + [l.FAILED] * 128, "outcomes")
        tap.equal({len(o.result) for o in got[:128]}, {65536}, "values")
        tap.check("fewer" in got[-1].why, got[-1].why)


@tap.test("a broker of small messages keeps what does not fit into one record in several")
def _():
    with daemons.Daemon(settings={"maxMessageSize": 65536}) as d:
        with claimer(1, daemon=d) as a:
            tokens = {"small-%d" % i: a.token() for i in range(256)}
            a.ask(*[a.op(l.CLAIM, key, token=token, topic="t" * 255, message="m" * 255) for key, token in tokens.items()])
            got = a.ask(*[a.op(l.FINISH, key, token=token, result=b"r" * 4096) for key, token in tokens.items()])
            tap.equal({o.outcome for o in got}, {l.OK}, "ends")
            said(a.claim("step"), l.OK, "claim")
            said(a.run(l.STEP_PUT, "step", token=a.held, step="s", result=b"x" * 65536), l.OK, "as big as a message may be")
        d.restart(hard=True)
        with claimer(2, daemon=d) as a:
            got = a.ask(*[a.op(l.CLAIM, key, token=a.token()) for key in tokens])
            tap.equal({(o.outcome, o.result) for o in got}, {(l.DONE, b"r" * 4096)}, "after a crash")


@tap.test("a broker of small log files keeps what fits into one, refuses by name what does not, and goes on")
def _():
    with daemons.Daemon(settings={"mappedFileSizeCommitLog": 65536}) as d:
        tap.watch(d)
        with claimer(1, daemon=d) as a:
            said(a.claim("step"), l.OK, "claim")
            for size, wanted in ((65536, l.FAILED), (60000, l.OK)):
                names = ["%d-%d" % (size, i) for i in range(20)]
                got = a.ask(*[a.op(l.STEP_PUT, "step", token=a.held, step=name, result=b"x" * size) for name in names])
                tap.equal([o.outcome for o in got], [wanted] * 20, "steps of %d bytes" % size)
            tap.check("mappedFileSizeCommitLog" in a.run(l.STEP_PUT, "step", token=a.held, step="s", result=b"x" * 65536).why, "by name")
            tokens = {"small-%d" % i: a.token() for i in range(256)}
            a.ask(*[a.op(l.CLAIM, key, token=token) for key, token in tokens.items()])
            got = a.ask(*[a.op(l.FINISH, key, token=token, result=b"r" * 4096) for key, token in tokens.items()])
            tap.equal({o.outcome for o in got}, {l.OK}, "ends")
        d.restart(hard=True)
        with claimer(2, daemon=d) as a:
            got = a.ask(*[a.op(l.CLAIM, key, token=a.token()) for key in tokens])
            tap.equal({(o.outcome, o.result) for o in got}, {(l.DONE, b"r" * 4096)}, "after a crash")
            tap.equal(len(a.run(l.STEP_GET, "step", step="60000-19").result), 60000, "a step")
        tap.unwatch(d)


@tap.test("requests sent one after the other without waiting are answered in order")
def _():
    with claimer(1) as a:
        token = a.token()
        sent = [a.client.send(l.LEDGER, a.fields(), l.body([a.op(kind, "row", token=token)])) for kind in (l.CLAIM, l.RENEW, l.FINISH)]
        tap.equal([l.outcomes(a.client.wait(o).body)[0].outcome for o in sent], [l.OK] * 3, "outcomes")


@tap.test("bodies and fields that cannot be are refused by name")
def _():
    with claimer(1) as a:
        good = l.body([a.op(l.CLAIM, "good", token=5)])

        def refused(code, fields, body, what):
            tap.equal(a.client.request(l.LEDGER, fields, body).code, code, what)
        fields = a.fields()
        for cut in range(len(good)):
            refused(SYSTEM_ERROR, fields, good[:cut], "cut to %d" % cut)
        refused(SYSTEM_ERROR, fields, good + b"x", "one more byte")
        refused(VERSION_NOT_SUPPORTED, fields, b"\2" + good[1:], "another version")
        refused(VERSION_NOT_SUPPORTED, fields, l.body([a.op(l.SWEEP, "x", token=5)]), "a sweep")
        refused(MESSAGE_ILLEGAL, fields, l.body([a.op(l.LOOK, "x")] * 257), "257 operations")
        refused(MESSAGE_ILLEGAL, fields, l.body([a.op(l.FINISH, "x", token=5, result=b"x" * 4097)]), "a result of 4097")
        refused(MESSAGE_ILLEGAL, fields, l.body([a.op(l.STEP_PUT, "x", token=5, step="s", result=b"x" * 65537)]), "a step's of 65537")
        refused(MESSAGE_ILLEGAL, fields, l.body([l.Op(l.CLAIM, bytes(32), 5, name="n" * 201)]), "a name of 201")
        refused(MESSAGE_ILLEGAL, fields, l.body([l.Op(l.CLAIM, bytes(32), 5, topic="t" * 256)]), "a topic of 256")
        refused(SYSTEM_ERROR, fields, struct.pack(">BBH", 1, 0, 0xffff), "so many that are not there")
        refused(SYSTEM_ERROR, {}, good, "no group")
        refused(INVALID_PARAMETER, {"group": "no such name!"}, good, "a group that cannot be")
        refused(INVALID_PARAMETER, {"group": "g" * 300}, good, "a group that is too long")
        refused(INVALID_PARAMETER, {"group": "g", "birth": -1}, good, "birth below 0")
        for wrong in ({"instance": 0}, {"instance": 2**32}, {"instance": 1, "waitMillis": -1}):
            tap.equal(a.client.request(l.PRESENT, {"waitMillis": 0, **wrong}).code, INVALID_PARAMETER, "%s" % wrong)
        tap.equal(a.client.request(l.PRESENT, {"waitMillis": 0}).code, SYSTEM_ERROR, "no instance")
        tap.equal(a.client.request(l.PRESENT, {"instance": 9, "waitMillis": 0}).code, r.SUCCESS, "there for a moment")
        said(a.look("good"), l.ABSENT, "nothing of that happened")


@tap.test("one connection says sixteen times that somebody is there, and not more")
def _():
    with claimer(1) as a, claimer(2) as b:
        waiting = []
        for i in range(16):
            a.instance = 1000 + i
            waiting.append(a.present())
        a.instance = 2000
        tap.equal(a.client.wait(a.present()).code, SYSTEM_BUSY, "one more")
        tap.equal(numbers(b.client)["onceInstances"], 16, "that are there")


@tap.test("another birth is told, and changes nothing")
def _():
    with claimer(1) as a:
        said(a.look("birth"), l.ABSENT, "look")
        a.birth = a.seen_birth
        said(a.claim("birth"), l.OK, "the right one")
        a.birth += 1
        answer = a.client.request(l.LEDGER, a.fields(), l.body([a.op(l.FINISH, "birth", token=a.held)]))
        tap.equal((answer.code, answer.remark), (ILLEGAL_OPERATION, "birth"), "the wrong one")
        a.birth = 0
        tap.equal(a.look("birth").state, l.S_CONSUMING, "state")


@tap.test("the ledger's topic can be read and not be sent to, by no detour either")
def _():
    detour = {"REAL_TOPIC": l.TOPIC, "REAL_QID": "0", "TIMER_OUT_MS": "1", "DELAY": "1"}
    with claimer(1) as a:
        said(a.claim("told", fingerprint=3, topic="Orders", message="M7"), l.OK, "claim")
        said(a.finish("told", result=b"r"), l.OK, "end")
        said(a.claim("told", topic="Orders", message="M8"), l.DONE, "duplicate")
        found = [(e.event, e.group, e.topic, e.message, e.result) for e in l.read_topic(a.client) if e.name == "told"]
        tap.equal(found, [("claimed", "g", "Orders", "M7", b""), ("done", "g", "", "", b"r"), ("suppressed", "g", "Orders", "M8", b"")],
                  "entries")
        for topic, way in ((l.TOPIC, {}), (l.TOPIC, {"TIMER_DELAY_MS": "1"}), (l.TOPIC, {"DELAY": "1"}), ("SCHEDULE_TOPIC_XXXX", detour),
                           ("rmq_sys_wheel_timer", detour)):
            sent = a.client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, b"x", way, 0))
            tap.equal(sent.code, NO_PERMISSION, "a send to %s with %s" % (topic, way))


@tap.test("after a crash and after a stop everything that was answered is there, and fences go on")
def _():
    with daemons.Daemon() as d:
        tap.watch(d)
        fences, birth, number, tokens = {}, None, 0, {}
        for hard in (True, False, True, True):
            with claimer(3, daemon=d) as a:
                birth = birth or (a.look("x"), a.seen_birth)[1]
                a.birth, a.last = birth, number
                for key, (token, state) in tokens.items():
                    if state == l.S_CONSUMED:
                        tap.equal(said(a.claim(key), l.DONE, key).result, key.encode(), "result")
                    else:
                        said(a.run(l.RENEW, key, token=token), l.OK, key)
                        tap.equal(said(a.run(l.STEP_GET, key, step="s"), l.OK, key).result, b"v", "step")
                    tap.equal(a.look(key).fence, fences[key], "fence of %s" % key)
                for key in ("c%d" % number, "d%d" % number):
                    fences[key] = said(a.claim(key), l.OK, "claim").fence
                    said(a.run(l.STEP_PUT, key, token=a.held, step="s", result=b"v"), l.OK, "step")
                    tokens[key] = (a.held, l.S_CONSUMING)
                said(a.finish(key, result=key.encode()), l.OK, "end")
                tokens[key] = (a.held, l.S_CONSUMED)
                number = a.last
            d.restart(hard=hard)
        tap.unwatch(d)


@tap.test("killed in the middle of thousands: what was told to be done is done")
def _():
    with daemons.Daemon() as d:
        tap.watch(d)
        for life in range(3):
            done, stop = [], threading.Event()

            def work(number, life=life, done=done, stop=stop):
                try:
                    with claimer(number, daemon=d) as a:
                        a.last = life * 1000000
                        for i in range(100000):
                            key = "k%d-%d-%d" % (life, number, i)
                            a.claim(key)
                            if a.finish(key).outcome == l.OK:
                                done.append(key)
                except (OSError, r.Closed):
                    stop.set()
            workers = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
            for worker in workers:
                worker.start()
            process.wait_until(lambda done=done: len(done) > 300, 20, "some are done")
            d.kill9()
            for worker in workers:
                worker.join()
            d.start()
            with claimer(9, daemon=d) as a:
                for from_ in range(0, len(done), 200):
                    part = done[from_:from_ + 200]
                    got = a.ask(*[a.op(l.CLAIM, key, token=a.token()) for key in part])
                    tap.equal([key for key, o in zip(part, got) if o.outcome != l.DONE], [], "not done any more")
        tap.unwatch(d)


@tap.test("a stop leaves a snapshot, a start reads it; one that is damaged does no harm while the log has everything")
def _():
    with daemons.Daemon() as d:
        tap.watch(d)
        path, keys = os.path.join(d.folder, "config", "onceLedger"), ["key-%d" % i for i in range(6000)]
        with claimer(1, daemon=d) as a:
            for first in range(0, len(keys), 120):
                part = keys[first:first + 120]
                ops = [a.op(kind, key, token=5) for key in part for kind in (l.CLAIM, l.FINISH)]
                tap.equal({o.outcome for o in a.ask(*ops)}, {l.OK}, "outcomes")
            birth = a.seen_birth
        tap.check(not os.path.exists(path), "there is one already")
        d.stop()
        tap.check(os.path.getsize(path) > 60 * len(keys), "%d bytes" % os.path.getsize(path))
        for spoil in (None, 200, 20):
            if spoil:
                with open(path, "r+b") as file:
                    file.seek(spoil)
                    file.write(b"spoiled")
            d.start()
            with claimer(2, daemon=d) as a:
                for first in range(0, len(keys), 250):
                    got = a.ask(*[a.op(l.LOOK, key) for key in keys[first:first + 250]])
                    tap.equal({o.state for o in got}, {l.S_CONSUMED}, "states")
                tap.equal(a.seen_birth, birth, "birth")
            tap.equal("config/onceLedger was damaged" in d.read_log(), bool(spoil), "the operator hears of it")
            d.stop()
        tap.unwatch(d)


@tap.test("SYNC_FLUSH: an answer comes when it is on the disk, and as fast as that")
def _():
    with daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH"}) as d, claimer(1, daemon=d) as a, claimer(2, daemon=d) as b:
        said(a.claim("sync"), l.OK, "claim")
        said(b.claim("sync"), l.BUSY, "another's")
        said(a.finish("sync", result=b"x"), l.OK, "end")
        tap.equal(said(b.claim("sync"), l.DONE, "duplicate").result, b"x", "result")
        d.restart(hard=True)
        with claimer(3, daemon=d) as c:
            tap.equal(said(c.claim("sync"), l.DONE, "duplicate").result, b"x", "result")


@tap.test("a full ledger refuses new keys by name and serves those it has; without one all are refused")
def _():
    with daemons.Daemon(settings={"onceMaxKeys": 1000}) as d:
        with claimer(1, daemon=d) as a:
            for part in range(4):
                got = a.ask(*[a.op(l.CLAIM, "f%d" % i, token=5) for i in range(part * 250, part * 250 + 250)])
                tap.equal({o.outcome for o in got}, {l.OK}, "outcomes")
            full = said(a.claim("one-more"), l.FAILED, "one more")
            tap.check("onceMaxKeys" in full.why, full.why)
            said(a.run(l.FORGET, "f0"), l.OK, "forget")
            said(a.claim("one-more"), l.OK, "in its place")
            tap.equal(numbers(a.client)["onceFull"], 1, "counted")
        d.stop()
        d.settings["onceLedgerEnable"] = "false"
        d.start()
        with claimer(1, daemon=d) as a:
            for code, fields in ((l.LEDGER, a.fields()), (l.PRESENT, {"instance": 1, "waitMillis": 0})):
                answer = a.client.request(code, fields, l.body([]))
                tap.equal(answer.code, NO_PERMISSION, "code")
                tap.check("onceLedgerEnable" in answer.remark, answer.remark)


tap.main()
