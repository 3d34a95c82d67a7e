"""Frames that get lost between a client and its broker.

A third broker stands behind a relay: it listens on 127.0.0.2 and tells clients 127.0.0.1, where the relay has the same
port. The relay counts frames and loses those that a scenario picks. These scenarios run alone.
"""

import contextlib

from harness import apache, process, proxy, remoting, tap
from harness.daemon import Daemon

from .scenario import scenario
from .stage import APACHE_SETTINGS, BROKER_SETTINGS, Broker


@contextlib.contextmanager
def behind_relay(play):
    """A broker with a topic of one queue, and the relay before it."""
    play.stage.need_own("a broker behind a relay is needed")
    port = apache.Broker.free_port()
    inner, outer = "127.0.0.2", "127.0.0.1:%d" % port
    if play.stage.kind == "apache":
        server = apache.Broker(play.stage.names, port, inner, "broker-r", **APACHE_SETTINGS, **BROKER_SETTINGS)
    else:
        server = Daemon(roles="broker", name="broker-r", settings={
            "listenPort": port, "bindAddress": inner, "brokerIP1": "127.0.0.1", "brokerName": "broker-r",
            "namesrvAddr": play.stage.names, **BROKER_SETTINGS})
    tap.watch(server)
    with proxy.Relay("broker-r", outer, "%s:%d" % (inner, port)) as relay:
        broker = Broker("broker-r", outer, server)
        play.stage.brokers.append(broker)
        try:
            yield relay, play.topic(queues=1, brokers=[broker])
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
        sent, = play.call("send", topic=topic, count=1, first=10, patience=30, producer=play.unique("hasty"), limit=1500)
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
