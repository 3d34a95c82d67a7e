"""Where a play of the interop tests is given: on our daemon, on Apache's servers, or on servers that are already there.

ENDPOINT chooses: nothing means an oncemqd (ONCEMQD names the binary), `apache` an Apache name server and broker started
for the purpose, `host:port` a name server that somebody else runs. On a given one nothing can be killed or configured;
tests that need it call `need_own()` and are skipped there. Names of topics and groups carry the time of the run, so that
a given one can be played on again and again.
"""

import os
import sys
import time

from harness import apache, process, remoting, tap
from harness.daemon import Daemon

ENDPOINT = os.environ.get("ENDPOINT")
RUN = "%x" % int(time.time())


def unique(name):
    return "%s_%s" % (name, RUN)


class Stage:
    """The servers of one play, with the settings that both kinds understand under the same names. `properties` are for
    the JVMs of Apache's."""

    def __init__(self, settings=None, apache_only=None, properties=()):
        self.server = self.broker = None
        self.ours = not ENDPOINT
        if ENDPOINT == "apache":
            self.server = tap.watch(apache.NameServer(properties=properties))
            self.names = self.server.address
            self.broker = tap.watch(apache.Broker(self.names, properties=properties,
                                                  **{**(settings or {}), **(apache_only or {})}))
            self.broker.wait_registered(self.names)
        elif ENDPOINT:
            self.names = ENDPOINT
        else:
            # Ports outside the range of outgoing connections: a client that dials a dead port can otherwise meet itself.
            broker, names = process.free_ports(2)
            self.broker = tap.watch(Daemon(settings={"listenPort": broker, "namesrvListenPort": names,
                                                     **(settings or {})}))
            self.names = self.broker.names

    def need_own(self):
        if not self.broker:
            tap.skip("the broker behind %s is not ours to stop or configure" % self.names)

    def restart(self):
        self.broker.stop()
        self.start()

    def start(self):
        """Start the broker again as it was. With our daemon the name server was gone as well."""
        self.broker.start()
        if self.server:
            self.broker.wait_registered(self.names)

    def ask(self, code, ext=None, **more):
        """One raw request to the name server."""
        with remoting.Client(self.names) as client:
            return client.request(code, ext, **more)

    def route(self, topic):
        """The route of a topic, or None."""
        answer = self.ask(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return answer.json() if answer.code == remoting.SUCCESS else None

    def broker_address(self):
        """The address the brokers announce; there is one broker in these plays."""
        return self.route("TBW102")["brokerDatas"][0]["brokerAddrs"]["0"]

    def send(self, topic, body):
        """One raw message, which makes the topic if there is none."""
        with remoting.Client(self.broker_address()) as client:
            answer = client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2(topic, body))
            tap.equal(answer.code, remoting.SUCCESS, "code of a send to %s" % topic)

    def settle(self):
        """Until all that was acknowledged can be read."""
        if not self.ours:
            apache.wait_dispatched(self.broker_address())

    def records(self, topic):
        """All stored records of a topic, pulled raw, queue by queue."""
        found = []
        self.settle()
        with remoting.Client(self.broker_address()) as client:
            for queue in range(self.route(topic)["queueDatas"][0]["readQueueNums"]):
                found += _read_queue(client, topic, queue)
        return found

    def has_booked(self, group, topic):
        """Whether the group's offsets are at the ends of all queues of the topic that hold anything."""
        with remoting.Client(self.broker_address()) as client:
            for queue in range(self.route(topic)["queueDatas"][0]["readQueueNums"]):
                place = {"topic": topic, "queueId": queue}
                end = int(client.request(remoting.GET_MAX_OFFSET, place).ext["offset"])
                booked = client.request(remoting.QUERY_CONSUMER_OFFSET, {**place, "consumerGroup": group})
                if end > 0 and (booked.code != remoting.SUCCESS or int(booked.ext["offset"]) != end):
                    return False
        return True

    def prepare_group(self, group, topic):
        """Let a group exist before its first real member comes.

        The broker makes a group's retry topic at the first heartbeat. The Go client looks for its route before that,
        when it starts, and then only every 30 s: a consumer of a new group would get its retries late.
        """
        subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG",
                        "classFilterMode": False, "codeSet": [], "tagsSet": []}
        consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                    "subscriptionDataSet": [subscription]}
        body = {"clientID": "prepare@%d" % os.getpid(), "producerDataSet": [], "consumerDataSet": [consumer]}
        with remoting.Client(self.broker_address()) as client:
            answer = client.request(remoting.HEART_BEAT, body=remoting.dumps(body))
            tap.equal(answer.code, remoting.SUCCESS, "code of a heartbeat")
        process.wait_until(lambda: self.route("%RETRY%" + group), 10, "route of the retry topic of %s" % group)


def pull_fields(topic, queue, offset):
    """A pull that brings its own subscription and does not wait."""
    return {"consumerGroup": "interop_reader", "topic": topic, "queueId": queue, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
            "subVersion": 0, "expressionType": "TAG"}


def _read_queue(client, topic, queue):
    found, offset = [], 0
    while True:
        answer = client.request(remoting.PULL_MESSAGE, pull_fields(topic, queue, offset))
        if answer.code != remoting.SUCCESS:
            return found
        found += remoting.messages(answer.body)
        offset = int(answer.ext["nextBeginOffset"])


def run(*reasons):
    """Run all tests, or skip them for the first reason there is. Apache's servers need Java even where clients do not."""
    missing = [reason for reason in (*reasons, apache.missing() if ENDPOINT == "apache" else None) if reason]
    if missing:
        tap.skip_all(missing[0])
    tap.main()


if __name__ == "__main__":
    sys.exit("this is no test; see README.md")
