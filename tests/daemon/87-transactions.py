"""Transaction messages in raw frames: ends, questions, every refusal, restarts and SIGKILL. Rows by their numbers."""

import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK, END_TRANSACTION, CHECK_TRANSACTION_STATE, RESUME = 10001, 37, 39, 323
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
SYSTEM_BUSY, MESSAGE_ILLEGAL, ILLEGAL_OPERATION = 2, 13, 604
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
LIVES = int(os.environ.get("LIVES", "4"))


def virtual(**settings):
    return daemons.Daemon(args=["--clock", "virtual"], settings=settings)


def advance(client, seconds):
    tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": int(seconds * 1000)}).code, r.SUCCESS, "advance")


def half_fields(key, topic="T", group="pg", body=b"x", **properties):
    table = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group, **properties}
    table = {name: value for name, value in table.items() if value is not None}
    return r.send_v2(topic, body, table, 0, group=group or "pg", sysFlag=4)


def half(client, key, **more):
    answer = client.request(r.SEND_MESSAGE_V2, *half_fields(key, **more))
    tap.equal(answer.code, r.SUCCESS, "half message (%s)" % answer.remark)
    return answer


def end_fields(answer, decision, group="pg", **more):
    """The end of a half by its answer, or by the question for it."""
    place = answer.ext
    fields = {"producerGroup": group, "topic": "T", "commitOrRollback": decision, "fromTransactionCheck": False,
              "tranStateTableOffset": place.get("tranStateTableOffset") or place["queueOffset"],
              "commitLogOffset": place.get("commitLogOffset") or int(place["msgId"][-16:], 16),
              "msgId": place["transactionId"], "transactionId": place["transactionId"], **more}
    return {name: value for name, value in fields.items() if value is not None}


def end(client, answer, decision, **more):
    return client.request(END_TRANSACTION, end_fields(answer, decision, **more))


def join(client, group="pg", name="p@1"):
    body = r.dumps({"clientID": name, "producerDataSet": [{"groupName": group}], "consumerDataSet": []})
    tap.equal(client.request(r.HEART_BEAT, {}, body).code, r.SUCCESS, "heartbeat")


def count(client, topic, queue=0):
    return int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def pull(client, topic, offset, queue=0, wait_ms=0):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": "reader", "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 6 if wait_ms else 4, "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subscription": "*",
        "subVersion": 0, "expressionType": "TAG"})


def wait_count(client, topic, number):
    """An end is answered when it is stored; another thread may bring it to its queue a moment later."""
    process.wait_until(lambda: count(client, topic) >= number, 20, "%d messages in %s" % (number, topic), pause=0.01)
    tap.equal(count(client, topic), number, "messages in %s" % topic)


def read(client, topic, queue=0, number=0):
    """All of a queue, when there are so many."""
    wait_count(client, topic, number) if number else None
    found, at = [], 0
    while at < count(client, topic, queue):
        answer = pull(client, topic, at, queue)
        tap.equal(answer.code, r.SUCCESS, "pull (%s)" % answer.remark)
        found += r.messages(answer.body)
        at = int(answer.ext["nextBeginOffset"])
    return found


@tap.test("TX-1 a waiting consumer gets what is committed, and never what is rolled back")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker, timeout=20) as client, r.Client(d.broker) as reader:
        one, two = half(client, "K1", body=b"one", TAGS="A", own="v"), half(client, "K2", body=b"two")
        tap.equal([a.ext["queueOffset"] for a in (one, two)], ["0", "1"], "offsets in the queue of halves")
        tap.equal((one.ext["queueId"], one.ext["transactionId"]), ("0", "K1"), "queue and transaction")
        tap.equal(pull(client, "T", 0).code, r.PULL_NOT_FOUND, "pull while it is open")
        waiting = reader.send(r.PULL_MESSAGE, {
            "consumerGroup": "reader", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 6,
            "commitOffset": 0, "suspendTimeoutMillis": 15000, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG"})
        tap.equal(end(client, two, ROLLBACK).code, r.SUCCESS, "rollback")
        client.request(END_TRANSACTION, end_fields(one, COMMIT), oneway=True)
        message, = r.messages(reader.wait(waiting, 20).body)
        tap.equal((message.body, message.sys_flag, message.properties["own"], message.properties["TRAN_MSG"]),
                  (b"one", 8, "v", "true"), "message")
        tap.equal(message.prepared_offset, int(one.ext["msgId"][-16:], 16), "prepared offset")
        tap.check("REAL_TOPIC" not in message.properties, "REAL_TOPIC is still there")
        tap.equal(end(client, one, COMMIT).code, r.SUCCESS, "commit said again")
        tap.equal(end(client, one, ROLLBACK).code, r.SYSTEM_ERROR, "rollback of what was committed")
        tap.equal(end(client, two, COMMIT).code, r.SYSTEM_ERROR, "commit of what was rolled back")
        wait_count(client, "T", 1)


@tap.test("TX-1 unknown is asked for fifteen times, then moved aside with a line in the log")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker, timeout=20) as client:
        join(client)
        sent = half(client, "K1", body=b"whole body", own="v")
        tap.equal(end(client, sent, UNKNOWN).code, r.SUCCESS, "unknown")
        for number in range(1, 16):
            advance(client, 30)
            check = client.wait_pushed(CHECK_TRANSACTION_STATE, 20)
            message, = r.messages(check.body)
            tap.equal((check.is_oneway, check.ext["topic"], check.ext["msgId"], check.ext["transactionId"]),
                      (True, HALF, "K1", "K1"), "question")
            tap.equal((message.topic, message.queue_id, message.body, message.properties["own"], message.sys_flag),
                      ("T", 0, b"whole body", "v", 0), "message in the question")
            tap.equal(message.properties["TRANSACTION_CHECK_TIMES"], str(number), "number of the question")
            tap.equal((message.queue_offset, message.physical_offset),
                      (int(check.ext["tranStateTableOffset"]), int(check.ext["commitLogOffset"])), "its place")
            tap.equal(check.ext["offsetMsgId"], message.offset_id, "offset id")
        advance(client, 30)
        process.wait_until(lambda: count(client, GIVEN_UP) == 1, 20, "given up")
        process.wait_until(lambda: "transaction given up" in d.read_log(), 10, "a line in the log")
        aside, = read(client, GIVEN_UP)
        tap.equal((aside.body, aside.properties["REAL_TOPIC"], aside.properties["TRANSACTION_CHECK_TIMES"]),
                  (b"whole body", "T", "15"), "set aside")
        tap.equal(client.pushed, [], "further questions")
        tap.equal(count(client, "T"), 0, "messages")

        tap.equal(client.request(RESUME, {"topic": GIVEN_UP, "msgId": aside.offset_id}).code, r.SUCCESS, "resume")
        advance(client, 30)
        again = client.wait_pushed(CHECK_TRANSACTION_STATE, 20)
        tap.equal(end(client, again, COMMIT, fromTransactionCheck=True).code, r.SUCCESS, "commit after all")
        tap.equal([m.body for m in read(client, "T", number=1)], [b"whole body"], "messages")
        for bad in ("zz", sent.ext["msgId"], aside.offset_id):
            refused = client.request(RESUME, {"topic": GIVEN_UP, "msgId": bad})
            tap.equal(refused.code, r.SYSTEM_ERROR, "resume of %s" % bad)
            tap.check(refused.remark, "a refusal without a reason")


@tap.test("RM-3 the producer is gone: another member of its group is asked and commits, once")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker, timeout=20) as second, r.Client(d.broker) as stranger:
        first = r.Client(d.broker)
        join(first, name="p@1")
        join(stranger, group="others", name="p@3")
        half(first, "K1", body=b"orphan")
        join(second, name="p@2")
        first.close()
        process.wait_until(lambda: len(second.request(204, {"producerGroup": "pg"}).json()["connectionSet"]) == 1, 10,
                           "the first is gone")
        advance(second, 30)
        check = second.wait_pushed(CHECK_TRANSACTION_STATE, 20)
        for _ in range(2):
            second.request(END_TRANSACTION, end_fields(check, COMMIT, fromTransactionCheck=True), oneway=True)
        tap.equal([m.body for m in read(second, "T", number=1)], [b"orphan"], "messages")
        advance(second, 60)
        stranger.request(ADVANCE_CLOCK, {"advanceMillis": 0})
        tap.equal((second.pushed, stranger.pushed), ([], []), "further questions")
        wait_count(second, "T", 1)


@tap.test("half messages that cannot be are refused by the protocol's codes, and nothing is stored")
def _():
    with tap.watch(daemons.Daemon(settings={"maxOpenTransactions": 2})) as d, r.Client(d.broker) as client:
        batch = r.batch([(b"b", {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "B"})])
        cases = [
            ("without a group", half_fields("K", group=None), r.SEND_MESSAGE_V2, MESSAGE_ILLEGAL, "PGROUP"),
            ("with a delay", half_fields("K", DELAY=1), r.SEND_MESSAGE_V2, MESSAGE_ILLEGAL, "delayed"),
            ("with a timer", half_fields("K", TIMER_DELAY_SEC=1), r.SEND_MESSAGE_V2, MESSAGE_ILLEGAL, "delayed"),
            ("in a batch", r.send_v2("T", batch, {"UNIQ_KEY": "BB"}, 0, batch=True), r.SEND_BATCH_MESSAGE,
             MESSAGE_ILLEGAL, "batch"),
            ("by its flag alone", r.send_v2("T", b"x", {}, 0, sysFlag=4), r.SEND_MESSAGE_V2, MESSAGE_ILLEGAL, "TRAN_MSG"),
            ("committed by its flag", r.send_v2("T", b"x", {}, 0, sysFlag=8), r.SEND_MESSAGE_V2, MESSAGE_ILLEGAL,
             "TRAN_MSG"),
            ("to the topic of halves", half_fields("K", topic=HALF), r.SEND_MESSAGE_V2, r.NO_PERMISSION, "forbidden"),
        ]
        for what, request, code, wanted, word in cases:
            got = client.request(code, *request)
            tap.equal(got.code, wanted, "a half %s (%s)" % (what, got.remark))
            tap.check(word in got.remark, "%r says nothing of %s" % (got.remark, word))
        tap.equal(count(client, HALF), 0, "halves")
        for key in ("K1", "K2"):
            half(client, key)
        full = client.request(r.SEND_MESSAGE_V2, *half_fields("K3"))
        tap.equal(full.code, SYSTEM_BUSY, "beyond the limit (%s)" % full.remark)
        tap.check("maxOpenTransactions" in full.remark, "it does not say what to change")
        d.stop()
        d.settings["rejectTransactionMessage"] = "true"
        d.start()
        with r.Client(d.broker) as late:
            got = late.request(r.SEND_MESSAGE_V2, *half_fields("K4"))
            tap.equal((got.code, "forbidden" in got.remark), (r.NO_PERMISSION, True), "rejectTransactionMessage")


@tap.test("ends that cannot be are refused by the protocol's codes, and the transaction stays open")
def _():
    with tap.watch(virtual()) as d, r.Client(d.broker) as client:
        good, other = half(client, "K1"), half(client, "K2")
        plain = client.request(r.SEND_MESSAGE_V2, *r.send_v2("T", b"plain", {"UNIQ_KEY": "P"}, 0))
        inside = int(good.ext["msgId"][-16:], 16) + 7
        cases = [
            ({"producerGroup": "other"}, "group wrong"), ({"producerGroup": None}, "group wrong"),
            ({"tranStateTableOffset": 99}, "offset wrong"), ({"tranStateTableOffset": -1}, "offset wrong"),
            ({"commitLogOffset": int(plain.ext["msgId"][-16:], 16)}, "Find prepared"),
            ({"commitLogOffset": inside}, "Find prepared"), ({"commitLogOffset": -1}, "Find prepared"),
            ({"commitLogOffset": 1 << 62}, "Find prepared"),
            ({"commitLogOffset": int(other.ext["msgId"][-16:], 16)}, "offset wrong"),
            ({"msgId": "K2", "transactionId": "K2"}, "id wrong"),
            ({"commitOrRollback": 7}, "commitOrRollback"), ({"commitOrRollback": None}, "commitOrRollback"),
            ({"commitOrRollback": "commit"}, "commitOrRollback"), ({"commitLogOffset": None}, "commitLogOffset"),
            ({"tranStateTableOffset": "many"}, "tranStateTableOffset"),
        ]
        for wrong, words in cases:
            got = end(client, good, COMMIT, **wrong)
            tap.equal(got.code, r.SYSTEM_ERROR, "%s (%s)" % (wrong, got.remark))
            tap.check(words in got.remark, "%s: %r says nothing of %r" % (wrong, got.remark, words))
        late = half(client, "K3", CHECK_IMMUNITY_TIME_IN_SECONDS=20)
        advance(client, 21)
        tap.equal(end(client, late, COMMIT).code, ILLEGAL_OPERATION, "too late, as its producer had wanted")
        wait_count(client, "T", 1)
        tap.equal(end(client, good, COMMIT, msgId=None, transactionId=None).code, r.SUCCESS, "without an id")
        tap.equal(end(client, other, COMMIT, transactionId=None, msgId=other.ext["msgId"]).code, r.SUCCESS, "by offset id")
        wait_count(client, "T", 3)
        process.wait_until(lambda: "transaction not ended" in d.read_log(), 10, "a line for the operator")


@tap.test("many ends in one write, mixed with sends, happen in one read; all are answered")
def _():
    with tap.watch(daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH"})) as d, r.Client(d.broker, timeout=30) as client:
        sends = [client.send(r.SEND_MESSAGE_V2, *half_fields("K%d" % n, body=b"%d" % n)) for n in range(300)]
        halves = [client.wait(opaque) for opaque in sends]
        raw, opaques = b"", []
        for number, sent in enumerate(halves):
            for code, request in ((END_TRANSACTION, (end_fields(sent, COMMIT if number % 3 else ROLLBACK), b"")),
                                  (r.SEND_MESSAGE_V2, r.send_v2("P", b"p%d" % number, {}, 0))):
                opaque = next(client.opaques)
                raw += r.encode(r.Command(code, request[0], request[1], opaque))
                opaques.append(opaque)
        client.send_raw(raw)
        tap.equal({client.wait(opaque).code for opaque in opaques}, {r.SUCCESS}, "codes")
        tap.equal(sorted(int(m.body) for m in read(client, "T", number=200)), [n for n in range(300) if n % 3], "committed")
        wait_count(client, "P", 300)


@tap.test("a restart at every point: open ones are asked for, ended ones are not, none comes twice")
def _():
    with tap.watch(virtual(flushConsumerOffsetInterval=100)) as d:
        for hard in (False, True):
            with r.Client(d.broker) as client:
                before = count(client, "T")
                halves = {name: half(client, "%s%s" % (name, hard), body=name.encode())
                          for name in ("committed", "rolled", "open", "asked")}
                end(client, halves["committed"], COMMIT)
                end(client, halves["rolled"], ROLLBACK)
                join(client)
                advance(client, 40)
                for _ in range(2):
                    client.wait_pushed(CHECK_TRANSACTION_STATE, 20)
            d.restart(hard=hard)
            with r.Client(d.broker, timeout=20) as client:
                tap.equal(count(client, "T"), before + 1, "messages after the restart")
                tap.equal(end(client, halves["open"], COMMIT).code, r.SUCCESS, "commit by the first copy's place")
                join(client)
                advance(client, 40)
                check = client.wait_pushed(CHECK_TRANSACTION_STATE, 20)
                tap.equal(r.messages(check.body)[0].properties["TRANSACTION_CHECK_TIMES"], "2", "number of the question")
                tap.equal(end(client, check, COMMIT, fromTransactionCheck=True).code, r.SUCCESS, "commit by the question")
                tap.equal(sorted(m.body for m in read(client, "T", number=before + 3)[before:]),
                          [b"asked", b"committed", b"open"], "messages")
                tap.equal(client.pushed, [], "further questions")


class Producer(threading.Thread):
    """Sends halves and ends them as its dice say, until the connection dies. It answers questions from the same memory,
    which all producers share."""

    def __init__(self, address, name, decisions, seed):
        super().__init__(daemon=True)
        self.address, self.label, self.decisions, self.seed = address, name, decisions, seed
        self.sent = {}

    def run(self):
        dice = random.Random(self.seed)
        try:
            with r.Client(self.address, timeout=10) as client:
                for number in range(100000):
                    key = "%s-%d" % (self.label, number)
                    self.decisions[key] = decision = dice.choice((COMMIT, COMMIT, ROLLBACK, UNKNOWN))
                    answer = client.request(r.SEND_MESSAGE_V2, *half_fields(key, body=key.encode()))
                    if answer.code != r.SUCCESS:
                        continue
                    self.sent[key] = decision
                    if decision != UNKNOWN and dice.randrange(4):
                        client.request(END_TRANSACTION, end_fields(answer, decision), oneway=dice.randrange(2) == 0)
        except (OSError, r.Closed, TimeoutError):
            return


def answer_all(d, decisions, sent):
    """Asked again and again, the group says what it knows, until only those are open of which it knows nothing."""
    with r.Client(d.broker, timeout=30) as client:
        join(client)
        wanted = {key for key in sent if decisions[key] == COMMIT}

        def settled():
            advance(client, 31)
            client.request(ADVANCE_CLOCK, {"advanceMillis": 0})
            checks, client.pushed = client.pushed, []
            for check in checks:
                decision = decisions[check.ext["msgId"]]
                if decision != UNKNOWN:
                    end(client, check, decision, fromTransactionCheck=True)
            return wanted <= {m.body.decode() for m in read(client, "T")}
        process.wait_until(settled, 60, "all that was decided", pause=0.1)
        return [m.body.decode() for m in read(client, "T")]


def lives(settings):
    dice = random.Random(SEED)
    tap.note("seed %d (set SEED to repeat, LIVES for more)" % SEED)
    decisions, sent = {}, {}
    with tap.watch(virtual(transactionCheckMax=1000, mappedFileSizeCommitLog=1 << 20, flushConsumerOffsetInterval=100,
                           **settings)) as d:
        for life in range(LIVES):
            crowd = [Producer(d.broker, "%d.%d" % (life, i), decisions, dice.randrange(1 << 31)) for i in range(3)]
            for producer in crowd:
                producer.start()
            enough = dice.randrange(30, 400)    # the moment of death is what is being tested
            process.wait_until(lambda: sum(len(each.sent) for each in crowd) >= enough, 60, "%d halves" % enough, pause=0.001)
            d.kill9()
            for producer in crowd:
                producer.join(20)
                sent.update(producer.sent)
            d.start()
            found = answer_all(d, decisions, sent)
            tap.equal(sorted(key for key in set(found) if found.count(key) > 1), [], "messages that came twice")
            tap.equal([key for key in found if decisions[key] != COMMIT], [], "messages that nobody committed")
        tap.note("%d halves, %d messages" % (len(sent), len(found)))
        tap.check(len(found) > 10 * LIVES, "only %d messages: nothing was tested" % len(found))


@tap.test("SIGKILL under load: each committed message is there once, no other ever")
def _():
    lives({})


@tap.test("SYNC_FLUSH, SIGKILL under load: each committed message is there once, no other ever")
def _():
    lives({"flushDiskType": "SYNC_FLUSH"})


tap.main()
