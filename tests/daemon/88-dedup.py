"""Messages that were stored before are not stored again: row DS-6 in raw frames, over restarts, kill -9 and SYNC_FLUSH."""

import json
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, remoting as r, tap  # noqa: E402

ADVANCE_CLOCK = 10001
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ON = {"dedupKey": "UNIQ_KEY"}
CONNECTIONS, KEYS, ROUNDS = 8, 400, 3


def ask(client, topic, key, queue=0, body=b"x", **properties):
    """Send without waiting; the opaque."""
    return client.send(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, {"UNIQ_KEY": key, **properties}, queue))


def send(client, topic, key, queue=0, **properties):
    return client.wait(ask(client, topic, key, queue, **properties))


def place(answer):
    tap.equal(answer.code, r.SUCCESS, "send (%s)" % answer.remark)
    return answer.ext["msgId"], answer.ext["queueId"], answer.ext["queueOffset"]


def count(client, topic, queues=4):
    return sum(int(client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])
               for queue in range(queues))


def make_topic(client, topic, attributes=""):
    answer = client.request(r.UPDATE_AND_CREATE_TOPIC, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": attributes})
    tap.equal(answer.code, r.SUCCESS, "topic (%s)" % answer.remark)


@tap.test("DS-6 without dedup a second try is a second copy; with it the answer is the first one's and says so")
def _():
    with tap.watch(daemons.Daemon()) as d, r.Client(d.broker) as client:
        make_topic(client, "Plain")
        make_topic(client, "Once", "+dedup.key=UNIQ_KEY")
        first, second = send(client, "Plain", "K"), send(client, "Plain", "K")
        tap.check(place(first) != place(second), "one copy")
        tap.check("DUPLICATES" not in second.ext, "told of duplicates")
        first, second = send(client, "Once", "K", 2), send(client, "Once", "K", 3)
        tap.equal(place(second), place(first), "answer")
        tap.equal((second.ext["transactionId"], second.ext["DUPLICATES"]), ("K", "1"), "unique key, duplicates")
        tap.check("DUPLICATES" not in first.ext, "the first one is told of duplicates")
        tap.equal((count(client, "Plain"), count(client, "Once")), (2, 1), "messages")
        d.stop()
    with open(os.path.join(d.folder, "config", "topics.json")) as file:
        saved = json.loads(file.read())["topicConfigTable"]["Once"]["attributes"]
    tap.equal(saved, {"dedup.key": "UNIQ_KEY"}, "attributes in topics.json")


@tap.test("a batch sent again has the same ids; what is missing of a batch is stored")
def _():
    with tap.watch(daemons.Daemon(settings=ON)) as d, r.Client(d.broker) as client:
        make_topic(client, "T")

        def batch(*keys):
            body = r.batch([(key.encode(), {"UNIQ_KEY": key}) for key in keys])
            ext, body = r.send_v2("T", body, {"UNIQ_KEY": "of the batch"}, 1, batch=True)
            return client.request(r.SEND_BATCH_MESSAGE, ext, body)

        first, again, more = batch("a", "b", "b"), batch("a", "b", "b"), batch("c", "b", "d")
        tap.equal(place(again), place(first), "answer")
        tap.equal(again.ext["DUPLICATES"], "3", "duplicates")
        tap.equal(place(more)[0].split(",")[1], place(first)[0].split(",")[1], "id of the one that was known")
        tap.equal((more.ext["DUPLICATES"], more.ext["queueOffset"]), ("1", "3"), "duplicates, offset")
        tap.equal(count(client, "T"), 5, "messages")


@tap.test("for ten minutes, and by a property of the message when the topic says so")
def _():
    with tap.watch(daemons.Daemon(args=["--clock", "virtual"])) as d, r.Client(d.broker) as client:
        make_topic(client, "Orders", "+dedup.key=order")
        first = send(client, "Orders", "a", 0, order="7")
        tap.equal(place(send(client, "Orders", "b", 1, order="7")), place(first), "answer")
        tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": 540 * 1000}).code, r.SUCCESS, "advance")
        tap.equal(place(send(client, "Orders", "c", 2, order="7")), place(first), "answer after nine minutes")
        tap.equal(client.request(ADVANCE_CLOCK, {"advanceMillis": 80 * 1000}).code, r.SUCCESS, "advance")
        tap.check(place(send(client, "Orders", "d", 0, order="7")) != place(first), "still known after ten minutes")
        tap.equal(count(client, "Orders"), 2, "messages")


def try_all(address, keys, answers, failures):
    """Send all keys on one connection, many at a time; what was answered with success is remembered."""
    try:
        with r.Client(address, timeout=20) as client:
            opaques = {key: ask(client, "T", key, random.randrange(4)) for key in keys}
            for key, opaque in opaques.items():
                answers.setdefault(key, set()).add(place(client.wait(opaque)))
    except (r.Closed, OSError):
        failures.append("closed")
    except Exception as error:
        failures.append(repr(error))


@tap.test("DS-6 many connections send the same keys at once, the broker is killed meanwhile: one copy of each (seed %d)" % SEED)
def _():
    random.seed(SEED)
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        with tap.watch(daemons.Daemon(settings={**ON, "flushDiskType": flush, "ioThreads": 2})) as d:
            with r.Client(d.broker) as client:
                make_topic(client, "T")
            answers, failures = {}, []
            for number in range(ROUNDS):
                threads = []
                for _ in range(CONNECTIONS):
                    keys = ["%032X" % (number * KEYS // 2 + key) for key in random.sample(range(KEYS), KEYS)]
                    threads.append(threading.Thread(target=try_all, args=(d.broker, keys, answers, failures)))
                for thread in threads:
                    thread.start()
                if number > 0:  # in the middle of it; what got no answer is tried again
                    while len(answers) < number * KEYS // 2 + KEYS // 4 * 3 and any(each.is_alive() for each in threads):
                        threads[0].join(0.001)
                    d.kill9()
                for thread in threads:
                    thread.join()
                if number > 0:
                    d.start()
                try_all(d.broker, keys, answers, failures)
            with r.Client(d.broker) as client:
                tap.equal(count(client, "T"), len(answers), "messages with %s" % flush)
            twice = {key: each for key, each in answers.items() if len(each) != 1}
            tap.equal(twice, {}, "keys with several answers")
            tap.equal(set(failures) - {"closed"}, set(), "what went wrong")
            tap.note("%s: %d keys, %d connections lost" % (flush, len(answers), len(failures)))


if __name__ == "__main__":
    tap.main()
