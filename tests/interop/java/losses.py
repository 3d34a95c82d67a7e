"""Frames that get lost between a client and its broker.

A third broker stands behind a relay: it listens on 127.0.0.2 and tells clients 127.0.0.1, where the relay has the same
port. The relay counts frames and loses those that a scenario picks. These scenarios run alone.
"""

import contextlib
import threading

from harness import apache, process, proxy, remoting, tap
from harness.daemon import Daemon

from .scenario import NEW, scenario
from .stage import APACHE_SETTINGS, BROKER_SETTINGS, Broker


PRODUCERS = 20


@contextlib.contextmanager
def behind_relay(play, queues=1, **settings):
    """A broker with a topic of so many queues, and the relay before it."""
    play.stage.need_own("a broker behind a relay is needed")
    port = apache.Broker.free_port()
    inner, outer = "127.0.0.2", "127.0.0.1:%d" % port
    if play.stage.kind == "apache":
        server = apache.Broker(play.stage.names, port, inner, "broker-r", **APACHE_SETTINGS, **BROKER_SETTINGS)
    else:
        server = Daemon(roles="broker", name="broker-r", settings={
            "listenPort": port, "bindAddress": inner, "brokerIP1": "127.0.0.1", "brokerName": "broker-r",
            "namesrvAddr": play.stage.names, **BROKER_SETTINGS, **settings})
    tap.watch(server)
    with proxy.Relay("broker-r", outer, "%s:%d" % (inner, port)) as relay:
        broker = Broker("broker-r", outer, server)
        play.stage.brokers.append(broker)
        try:
            yield relay, play.topic(queues=queues, brokers=[broker])
        finally:
            play.stage.brokers.remove(broker)
            relay.close()
            server.kill9()
            tap.unwatch(server)


def answers_lost(code, count):
    """Lose the answers to the first requests with that code."""
    asked = set()

    def lose(passed):
        command = passed.command
        key = (passed.connection, command.opaque)
        if passed.to_server and command.code == code and len(asked) < count:
            asked.add(key)
        return not passed.to_server and command.is_response and key in asked
    return lose


@scenario("DS-4 DS-6 DS-7", "a one-way send is not answered; a lost answer makes a second copy with the same id; a lost commit "
          "brings the same ids again", alone=True)
def lost_frames(play):
    with behind_relay(play) as (relay, topic):
        # DS-4
        play.send(topic, 10, mode="oneway")
        process.wait_until(lambda: play.stored(topic) == 10, 20, "one-way messages stored")
        sends = {(each.connection, each.command.opaque) for each in list(relay.frames)
                 if each.to_server and each.command.code == remoting.SEND_MESSAGE_V2 and each.command.is_oneway}
        tap.equal(len(sends), 10, "one-way requests")
        answered = [each for each in list(relay.frames) if not each.to_server and each.command.is_response
                    and (each.connection, each.command.opaque) in sends]
        tap.equal(answered, [], "answers to one-way requests")

        # DS-6: the application sends the same message again after the time is over.
        relay.lose = answers_lost(remoting.SEND_MESSAGE_V2, 1)
        sent, = play.call("send", topic=topic, count=1, first=10, patience=60, producer=play.unique("hasty"), limit=6000)
        copies = [each for each in play.records(topic) if each.properties["number"] == "10"]
        tap.equal([each.unique_key for each in copies], [sent["id"]] * 2, "ids of the copies")
        tap.equal([each.queue_offset for each in copies], [10, 11], "places of the copies")

        # DS-7: commits travel as requests of their own and with pulls.
        relay.lose = lambda passed: passed.to_server and (
            passed.command.code == remoting.UPDATE_CONSUMER_OFFSET or passed.command.code == remoting.PULL_MESSAGE
            and int(passed.command.ext["sysFlag"]) & 1)
        group = play.group()
        first = play.listen(topic, group)
        first.wait_all(range(11))
        first.stop()
        relay.lose = lambda passed: False
        tap.equal(sum(play.committed(group, topic).values()), 0, "offset at the broker")
        second = play.listen(topic, group)
        second.wait_all(range(11))
        tap.equal({each["id"] for each in second.received()}, {each["id"] for each in first.received()}, "ids")
        second.stop()


class FirstAnswersCut:
    """Cuts the connection instead of letting the answer to the first try of a message pass, for one message in `one_in`."""

    def __init__(self, relay, one_in):
        self.relay, self.one_in, self.lock = relay, one_in, threading.Lock()
        self.tries, self.cut, self.told = {}, {}, 0

    def __call__(self, passed):
        command, place = passed.command, (passed.connection, passed.command.opaque)
        with self.lock:
            if passed.to_server and command.code == remoting.SEND_MESSAGE_V2:
                properties = remoting.properties(command.ext["i"])
                key = properties["UNIQ_KEY"]
                self.tries[key] = self.tries.get(key, 0) + 1
                if self.tries[key] == 1 and int(properties["number"]) % self.one_in == 0:
                    self.cut[place] = key
            elif not passed.to_server and command.is_response:
                self.told += command.ext.get("DUPLICATES") == "1"
        lost = not passed.to_server and place in self.cut
        if lost:
            self.relay.cut(passed.connection)
        return lost


def each_stored_once(play, count, one_in):
    """So many messages; the first answer to one in `one_in` is cut off on the way."""
    if play.stage.kind == "apache":
        tap.skip("Apache RocketMQ has no producer dedup")
    with behind_relay(play, 4, dedupKey="UNIQ_KEY") as (relay, topic):
        relay.lose = cutter = FirstAnswersCut(relay, one_in)
        share = count // PRODUCERS  # each has a connection of its own; one that Java's client forgets to fail costs its limit
        sends = [play.puppet.start("send", topic=topic, count=share, first=number * share, retries=5, limit=3000, patience=60,
                                   producer=play.unique("retrying")) for number in range(PRODUCERS)]
        results = [each for future in sends for each in future.result(90)]
        tap.equal([each for each in results if "error" in each][:2], [], "sends that failed")
        again = sum(number - 1 for number in cutter.tries.values())
        tap.note("%d connections cut, %d messages tried again, %d answers tell of it" % (len(cutter.cut), again, cutter.told))
        tap.equal((len(cutter.tries), len(cutter.cut)), (count, count // one_in), "messages, first answers cut")
        tap.check(again >= cutter.told >= count // one_in, "fewer duplicates than first answers that were cut")
        tap.equal(play.stored(topic), count, "messages stored")
        relay.lose = lambda passed: False
        listener = play.listen(topic, play.group())
        listener.wait_all(range(count))
        received = listener.received()
        tap.equal((len(received), len({each["id"] for each in received})), (count, count), "messages received, distinct ids")
        places = {each["id"]: (each["queue"], each["offset"]) for each in results}
        tap.equal(len(set(places.values())), count, "places that the producer was told")
        listener.stop()


@scenario("DS-6", "with producer dedup 10,000 messages are stored once each, though many first answers are cut off on the way",
          versions=(NEW,), alone=True)
def many_first_answers_cut(play):
    each_stored_once(play, 10000, 4)


@scenario("DS-6", "with producer dedup messages are stored once each, though every first answer is cut off on the way",
          versions=(NEW,), alone=True)
def all_first_answers_cut(play):
    each_stored_once(play, 400, 1)
