"""Transactions: what producers decide, what they are asked, and who is asked when one is gone."""

from harness import process, tap

from .puppet import Puppet
from .scenario import LABEL, scenario
from .stage import CHECKS

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


def transactor(play, group, where=None, **decides):
    name = play.unique("transactor")
    (where or play.puppet).call("transactor", producer=name, group=group, **decides)
    return name


def transact(play, name, topic, count, where=None):
    results = (where or play.puppet).call("transact", producer=name, topic=topic, count=count)
    tap.equal({each["status"] for each in results}, {"SEND_OK"}, "status of the half messages")
    for each in results:
        tap.equal(each["transaction"], each["id"], "transaction id")
    return results


@scenario("TX-1", "what is committed comes once with all it had, what is rolled back never")
def commit_and_rollback(play):
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    name = transactor(play, play.group(), decides="commit,rollback")
    sent = {each["number"]: each for each in transact(play, name, topic, 40)}
    listener.wait_all(range(0, 40, 2))
    tap.equal(sorted(listener.numbers()), list(range(0, 40, 2)), "numbers received")
    for got in listener.received():
        tap.check(got["intact"], "message %d is damaged" % got["number"])
        tap.equal(got["id"], sent[got["number"]]["id"], "id of message %d" % got["number"])
    tap.equal(play.call("asked", producer=name), [], "questions")


@scenario("TX-1", "unknown is asked for: commit at once, rollback, commit at the second time; each has its effect once",
          slow=True)
def answers_count(play):
    play.stage.need_own("the interval of questions is set")
    topic = play.topic(queues=2)
    listener = play.listen(topic, play.group())
    name = transactor(play, play.group(), later="commit,rollback,second")
    sent = {each["number"]: each for each in transact(play, name, topic, 9)}
    listener.wait_all([0, 2, 3, 5, 6, 8])
    tap.equal(sorted(listener.numbers()), [0, 2, 3, 5, 6, 8], "numbers received")
    asked = play.call("asked", producer=name)
    for number in range(9):  # one more may come while an answer is on its way
        times = [each["times"] for each in asked if each["number"] == number]
        wanted = [1, 2] if number % 3 == 2 else [1]
        tap.equal(times[:len(wanted)], wanted, "questions for %d" % number)
        tap.check(len(times) <= len(wanted) + 1, "%d was asked for %s times" % (number, times))
    for each in asked:
        tap.equal((each["topic"], each["id"]), (topic, sent[each["number"]]["id"]), "topic and id in the question")


@scenario("TX-1", "who never knows is asked %d times (transactionCheckMax), then the message is moved aside" % CHECKS, slow=True)
def given_up(play):
    play.stage.need_own("the number of questions is set")
    topic = play.topic(queues=1)
    listener = play.listen(topic, play.group())
    name = transactor(play, play.group())
    sent, = transact(play, name, topic, 1)

    def aside():
        return play.stage.route(GIVEN_UP) and [each for each in play.records(GIVEN_UP) if each.unique_key == sent["id"]]
    found = process.wait_until(aside, 60, "moved aside", pause=0.5)
    tap.equal([each["times"] for each in play.call("asked", producer=name)], list(range(1, CHECKS + 1)), "questions")
    tap.equal(len(found), 1, "messages moved aside")
    tap.equal((found[0].properties["REAL_TOPIC"], found[0].properties["PGROUP"][:8]), (topic, play.name[:8]), "where it was for")
    tap.equal(listener.numbers(), [], "numbers received")


@scenario("RM-3", "the producer is killed after its half messages; another one of its group is asked, and each arrives once",
          slow=True)
def producer_dies(play):
    play.stage.need_own("the interval of questions is set")
    topic, group = play.topic(queues=2), play.group()
    listener = play.listen(topic, play.group())
    doomed = Puppet("doomed-%s" % LABEL[play.version], play.stage.names, play.version)
    first = transactor(play, group, where=doomed, later="unknown")
    transact(play, first, topic, 6, where=doomed)
    doomed.kill9()
    heir = transactor(play, group, later="commit")
    play.call("transact", producer=heir, topic=play.topic(queues=1), count=1)   # it meets both brokers by a heartbeat
    listener.wait_all(range(6))
    tap.equal(sorted(listener.numbers()), list(range(6)), "numbers received")
    asked = play.call("asked", producer=heir)
    tap.equal({each["number"] for each in asked if each["topic"] == topic}, set(range(6)), "questions to the other")
