"""Messages with a time of their own, by the clients from 5.0 on: three ways to say it, and taking one back."""

import time

from harness import process, tap

from .puppet import Refused
from .scenario import NEW, scenario

DELAY_MS, PATIENT_MS = 3000, 12000  # the second is for what has to be done before it is over


@scenario("DE-2", "setDelayTimeMs, setDelayTimeSec and setDeliverTimeMs bring a message at its time, not before", versions=(NEW,))
def three_ways(play):
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    begin = time.time() * 1000
    play.send(topic, 5, delay_ms=DELAY_MS)
    play.send(topic, 5, first=5, delay_sec=DELAY_MS // 1000)
    play.send(topic, 5, first=10, deliver_in=DELAY_MS)
    sent = time.time() * 1000
    play.send(topic, 1, first=15)
    listener.wait_all(range(16))
    for got in listener.received():
        if got["number"] == 15:
            tap.check("TIMER_OUT_MS" not in got["properties"], "an ordinary message")
            continue
        tap.check(got["intact"], "the body of %d is not as sent" % got["number"])
        due = int(got["properties"].get("TIMER_DELIVER_MS", got["born"] + DELAY_MS))
        tap.check(got["stored"] >= max(due, begin + DELAY_MS), "%d is early by %d ms" % (got["number"], due - got["stored"]))
    tap.equal(len(listener.received()), 16, "deliveries")
    tap.note("the last was stored %.0f ms after the last was sent" % (max(each["stored"] for each in listener.received()) - sent))


@scenario("DE-2", "recallMessage takes a message back before its time; later, or with a wrong handle, it is told no",
          versions=(NEW,))
def taking_back(play):
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    sent = play.send(topic, 10, delay_ms=PATIENT_MS)
    tap.check(all(each["handle"] for each in sent), "handles %s" % sent)
    for each in sent[:5]:
        tap.equal(play.call("recall", topic=topic, handle=each["handle"], producer=play.name), each["id"], "recalled id")
    for wrong in ("nothing", sent[9]["handle"][:20]):
        refused(play, topic, wrong)
    listener.wait_all(range(5, 10))
    refused(play, topic, sent[5]["handle"])
    play.send(topic, 1, first=10, delay_ms=1500)
    process.wait_until(lambda: 10 in listener.numbers(), 30, "a message behind those that were recalled")
    tap.equal(sorted(listener.numbers()), list(range(5, 11)), "what came")


def refused(play, topic, handle):
    try:
        play.call("recall", topic=topic, handle=handle, producer=play.name)
    except Refused as answer:
        tap.note(str(answer)[:120])
    else:
        raise AssertionError("recalled by %s" % handle)
