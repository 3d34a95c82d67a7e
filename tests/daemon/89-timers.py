"""Messages with a time of their own: when they come, recalls, refusals, kill -9. Rows by their numbers."""

import base64
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK, RECALL_MESSAGE, RUNTIME_INFO = 10001, 370, 28
NO_PERMISSION, MESSAGE_ILLEGAL, TOPIC_NOT_EXIST, ILLEGAL_OPERATION = 16, 13, 17, 604
SUSPEND, SUBSCRIPTION = 2, 4
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
WHEEL = "rmq_sys_wheel_timer"


def virtual(**settings):
    return daemons.Daemon(args=["--clock", "virtual"], settings={"recallMessageEnable": "true", **settings})


def advance(client, ms):
    tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": int(ms)}).code, r.SUCCESS, "advance")


def ask(client, topic, body=b"x", queue=0, **properties):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, queue))


def send(client, topic, body=b"x", queue=0, **properties):
    answer = ask(client, topic, body, queue, **properties)
    tap.equal(answer.code, r.SUCCESS, "send (%s)" % answer.remark)
    return answer


def recall(client, topic, handle, group="PG"):
    return client.request(RECALL_MESSAGE, {"producerGroup": group, "topic": topic, "recallHandle": handle})


def pull(client, topic, offset, queue=0, wait_ms=0, group="reader"):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION | (SUSPEND if wait_ms else 0), "commitOffset": 0, "suspendTimeoutMillis": wait_ms,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG"})


def count(client, topic, queue=0):
    return int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def read(client, topic, queue=0):
    found, at = [], 0
    while at < count(client, topic, queue):
        answer = pull(client, topic, at, queue)
        tap.equal(answer.code, r.SUCCESS, "pull (%s)" % answer.remark)
        found += r.messages(answer.body)
        at = int(answer.ext["nextBeginOffset"])
    return found


def wait_count(client, topic, number, queue=0, timeout=60):
    process.wait_until(lambda: count(client, topic, queue) >= number, timeout, "%d messages in %s" % (number, topic))


def handle_of(answer):
    return base64.urlsafe_b64decode(answer.ext["recallHandle"]).decode().split(" ")


def due_of(answer):
    return int(handle_of(answer)[3])


def make_handle(*parts):
    return base64.urlsafe_b64encode(" ".join(str(part) for part in ("v1",) + parts).encode()).decode()


@tap.test("a waiting consumer gets a message after 1, 20, 700 and 1200 ms, not before, and soon")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker, timeout=40) as client:
        number = 0
        for delay in (1, 20, 700, 1200):
            late = []
            while len(late) < 3 and (not late or late[-1] >= 2000):    # a busy machine; the bench measures
                answer = send(client, "T", b"later", TIMER_DELAY_MS=delay)
                got = pull(client, "T", number, wait_ms=30000)
                tap.equal(got.code, r.SUCCESS, "pull")
                came, = r.messages(got.body)
                number += 1
                late.append(came.store_time - due_of(answer))
                tap.check(late[-1] >= 0, "early by %d ms" % -late[-1])
                tap.equal(came.properties["TIMER_DELAY_MS"], str(delay), "property")
                tap.check(came.store_time - came.born_time >= delay or delay < 20, "born %d" % came.born_time)
            tap.check(late[-1] < 2000, "late by %s ms" % late)


@tap.test("SEC, MS and DELIVER; a delay level wins; the past is now")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        now = int(time.time() * 1000)
        for properties, seconds in (({"TIMER_DELAY_SEC": 30}, 30), ({"TIMER_DELAY_MS": 40000}, 40),
                                    ({"TIMER_DELIVER_MS": now + 50000}, 50),
                                    ({"TIMER_DELIVER_MS": 5, "TIMER_DELAY_MS": 5, "TIMER_DELAY_SEC": 60}, 60)):
            answer = send(client, "T", b"%d" % seconds, **properties)
            tap.check(abs(due_of(answer) - now - seconds * 1000) < 10000, "due %d" % due_of(answer))
        answer = send(client, "T", b"level", DELAY=5, TIMER_DELAY_SEC=5)
        tap.check("recallHandle" not in answer.ext, "a handle of a delayed message")
        answer = send(client, "T", b"past", TIMER_DELIVER_MS=5)
        tap.check("recallHandle" not in answer.ext, "a handle of a message that is there")
        tap.equal([m.body for m in read(client, "T")], [b"past"], "at once")
        advance(client, 61000)
        wait_count(client, "T", 6)
        tap.equal(sorted(m.body for m in read(client, "T")), [b"30", b"40", b"50", b"60", b"level", b"past"], "bodies")


@tap.test("what cannot be is refused: no number, too far ahead, in a batch, switched off")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        for wish in ({"TIMER_DELAY_SEC": "soon"}, {"TIMER_DELIVER_MS": "12x"}, {"TIMER_DELAY_MS": "1.5"},
                     {"TIMER_DELAY_SEC": 259201}, {"TIMER_DELAY_MS": 10**18}, {"TIMER_DELIVER_MS": 2**63 - 1},
                     {"TIMER_DELIVER_MS": 5, "TIMER_DEL_UNIQKEY": "u"}):
            answer = ask(client, "T", **wish)
            tap.equal(answer.code, MESSAGE_ILLEGAL, "%s (%s)" % (wish, answer.remark))
        tap.equal(ask(client, "T", TIMER_DELAY_SEC=259200).code, r.SUCCESS, "as far as allowed")
    with tap.watch(virtual(timerMaxDelaySec=400 * 86400)) as d, r.Client(d.broker) as client:
        tap.equal(ask(client, "T", TIMER_DELAY_SEC=399 * 86400).code, r.SUCCESS, "a year")
        tap.equal(ask(client, "T", TIMER_DELAY_SEC=401 * 86400).code, MESSAGE_ILLEGAL, "more than a year")
    with tap.watch(virtual(timerWheelEnable="false")) as d, r.Client(d.broker) as client:
        tap.equal(ask(client, "T", TIMER_DELAY_SEC=1).code, r.SYSTEM_ERROR, "switched off")


@tap.test("a recalled message never comes, its neighbours do; also over kill -9")
def _():
    d = tap.watch(virtual(flushDiskType="SYNC_FLUSH"))
    with r.Client(d.broker) as client:
        answers = [send(client, "T", b"%d" % number, TIMER_DELAY_SEC=100 + number % 3) for number in range(30)]
        for answer in answers[::2]:
            got = recall(client, "T", answer.ext["recallHandle"])
            tap.equal(got.code, r.SUCCESS, "recall (%s)" % got.remark)
            tap.equal(got.ext["msgId"], handle_of(answer)[4], "msgId")
    d.restart(hard=True)
    with r.Client(d.broker) as client:
        advance(client, 110000)
        wait_count(client, "T", 15)
        advance(client, 10000)
        tap.equal(sorted(int(m.body) for m in read(client, "T")), list(range(1, 30, 2)), "what came")
        got = recall(client, "T", answers[1].ext["recallHandle"])
        tap.equal(got.code, ILLEGAL_OPERATION, "recall of a delivered one (%s)" % got.remark)
    d.stop()


@tap.test("a recall at the last moment is yes and the message never comes, or no and it does")
def _():
    dice = random.Random(SEED)
    with tap.watch(daemons.Daemon(settings={"recallMessageEnable": "true"})) as d, r.Client(d.broker, timeout=20) as client:
        waiting = []
        for number in range(400):
            answer = send(client, "T", b"%d" % number, TIMER_DELAY_MS=dice.randrange(700, 1700))
            waiting.append((due_of(answer) - dice.randrange(-1, 5), number, answer.ext["recallHandle"]))
        asked = []
        for at, number, handle in sorted(waiting):
            time.sleep(max(0, at / 1000 - time.time()))
            asked.append((number, client.send(RECALL_MESSAGE, {"producerGroup": "PG", "topic": "T", "recallHandle": handle})))
        answers = {number: client.wait(opaque).code for number, opaque in asked}
        tap.check(set(answers.values()) <= {r.SUCCESS, ILLEGAL_OPERATION}, "codes %s" % set(answers.values()))
        no = {number for number, code in answers.items() if code != r.SUCCESS}
        tap.note("%d in time, %d too late" % (len(answers) - len(no), len(no)))
        send(client, "T", b"-1", TIMER_DELAY_MS=300)
        wait_count(client, "T", len(no) + 1)
        tap.equal({int(m.body) for m in read(client, "T")}, no | {-1}, "what came")


@tap.test("a recall that cannot be has its answer")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        answer = send(client, "T", TIMER_DELAY_SEC=60)
        send(client, "U", TIMER_DELAY_SEC=60)
        version, topic, broker, due, key = handle_of(answer)
        tap.equal((version, topic), ("v1", "T"), "handle")
        good = make_handle(topic, broker, due, key)
        tap.equal(good, answer.ext["recallHandle"], "the handle's form")
        for topic_asked, handle, code in (
                ("T", "", ILLEGAL_OPERATION), ("T", "####", ILLEGAL_OPERATION), ("T", good[:12], ILLEGAL_OPERATION),
                ("T", make_handle(topic, broker, due), ILLEGAL_OPERATION),
                ("T", make_handle(topic, broker, "soon", key), ILLEGAL_OPERATION),
                ("T", make_handle(topic, broker, 5, key), ILLEGAL_OPERATION),
                ("T", make_handle(topic, broker, int(due) + 259200000, key), ILLEGAL_OPERATION),
                ("T", make_handle(topic, "elsewhere", due, key), ILLEGAL_OPERATION),
                ("T", make_handle("U", broker, due, key), ILLEGAL_OPERATION),
                ("U", good, ILLEGAL_OPERATION), ("Nowhere", good, TOPIC_NOT_EXIST),
                ("T", make_handle(topic, broker, due, "k" * 2000), ILLEGAL_OPERATION)):
            got = recall(client, topic_asked, handle)
            tap.equal(got.code, code, "recall of %.40s in %s (%s)" % (handle, topic_asked, got.remark))
            tap.check("MSG_REGION" in got.ext and "msgId" not in got.ext, "fields %s" % got.ext)
        advance(client, 61000)
        wait_count(client, "T", 1)
    with tap.watch(virtual(recallMessageEnable="false")) as d, r.Client(d.broker) as client:
        answer = send(client, "T", TIMER_DELAY_SEC=60)
        tap.equal(recall(client, "T", answer.ext["recallHandle"]).code, NO_PERMISSION, "switched off")


@tap.test("DE-2 of 1,000 random times in a minute none is early, none is lost over kill -9, none comes twice")
def _():
    dice = random.Random(SEED)
    tap.note("SEED=%d" % SEED)
    d = tap.watch(virtual(flushDiskType="SYNC_FLUSH"))
    due, ahead, kills = {}, 0, sorted(dice.sample(range(1, 66), 6))
    client = r.Client(d.broker, timeout=20)
    for step in range(75):
        for number in range(len(due), min(len(due) + 40, 1000)):
            body = b"%d" % number
            due[body] = due_of(send(client, "T", body, TIMER_DELAY_MS=dice.randrange(1000, 60000)))
        ms = dice.randrange(500, 1500)
        advance(client, ms)
        ahead += ms
        if step in kills:
            client.close()
            d.kill9()
            d.args = ["--clock", "virtual+%d" % ahead]
            client = r.Client(d.start().broker, timeout=20)
    advance(client, 60000)
    wait_count(client, "T", 1000)
    found = read(client, "T")
    client.close()
    tap.equal(len({m.properties["UNIQ_KEY"] for m in found}), len(found), "none twice")
    tap.equal({m.body for m in found}, set(due), "none lost")
    tap.equal([m.body for m in found if m.store_time < due[m.body]], [], "early ones")
    d.stop()


@tap.test("many for the same moment come all, once, also when it stops in the middle; the operator sees how many wait")
def _():
    d = tap.watch(virtual())
    with r.Client(d.broker, timeout=40) as client:
        at, number = int(time.time() * 1000) + 600000, 5000
        pending = [client.send(r.SEND_MESSAGE_V2, *r.send_v2("T", b"%d" % n, {"TIMER_DELIVER_MS": at}, 0))
                   for n in range(number)]
        for opaque in pending:
            tap.equal(client.wait(opaque).code, r.SUCCESS, "send")

        def waiting():
            return int(client.request(RUNTIME_INFO).json()["table"]["timerCongestNum"])
        process.wait_until(lambda: waiting() == number, 20, "all of them are counted")
        advance(client, 600000)
    d.args = ["--clock", "virtual+600000"]
    d.restart()
    with r.Client(d.broker, timeout=40) as client:
        wait_count(client, "T", number)
        tap.equal(sorted(int(m.body) for m in read(client, "T")), list(range(number)), "bodies")
    d.stop()


tap.main()
