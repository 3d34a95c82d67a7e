"""A daemon, messages in it, and consumers with `once`: what the plays about whole deliveries have in common."""

import collections
import os
import subprocess

import stage
from harness import daemon as daemons
from harness import process, remoting as r, tap

UPDATE_AND_CREATE_TOPIC = 17
LADDER = " ".join(["1s"] * 18)    # every retry after a second


def start_daemon(**settings):
    return tap.watch(daemons.Daemon(settings={"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": LADDER, **settings}))


def make_topic(daemon, topic, queues):
    with r.Client(daemon.broker) as client:
        answer = client.request(UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
        tap.equal(answer.code, r.SUCCESS, "topic made")


def send(daemon, topic, keys, queues, body=b"b"):
    """One message for each key, spread over the queues; ids of their own."""
    with r.Client(daemon.broker) as client:
        opaques = []
        for number, key in enumerate(keys):
            fields, data = r.send_v2(topic, body, {"KEYS": key, "UNIQ_KEY": "%s-%s-%d" % (topic, key, number)},
                                     number % queues)
            opaques.append(client.send(r.SEND_MESSAGE_V2, fields, data))
        for opaque in opaques:
            tap.equal(client.wait(opaque, 30).code, r.SUCCESS, "sent")


def lag(daemon, group, topic, queues):
    """How many messages of the topic and of the group's retries have not been acknowledged."""
    left = 0
    with r.Client(daemon.broker) as client:
        for name, n in ((topic, queues), ("%RETRY%" + group, 1)):
            for queue in range(n):
                place = {"topic": name, "queueId": queue}
                end = client.request(r.GET_MAX_OFFSET, place)
                done = client.request(r.QUERY_CONSUMER_OFFSET, {**place, "consumerGroup": group})
                if end.code == r.SUCCESS:
                    left += int(end.ext["offset"]) - (int(done.ext["offset"]) if done.code == r.SUCCESS else 0)
    return left


def stored(daemon, topic, queue=0):
    """How many messages a queue has; 0 if there is none such."""
    with r.Client(daemon.broker) as client:
        answer = client.request(r.GET_MAX_OFFSET, {"topic": topic, "queueId": queue})
        return int(answer.ext["offset"]) if answer.code == r.SUCCESS else 0


class Own:
    """The ledger of the daemon that brings the messages."""

    def __init__(self, daemon):
        self.url = stage.broker_url(daemon)


def store_of(daemon):
    """Where the consumers of a daemon remember what is done."""
    return Own(daemon) if stage.KIND == "broker" else stage.store()


class Consumer:
    """A process; see consumer.c. `store`: another than what is usual, which is "-", none named, for a broker's ledger."""

    def __init__(self, daemon, group, topic, mode, file, store=None, **options):
        self.log = os.path.join(process.temp_folder(), "consumer.log")
        url = store.url if store else "-" if stage.KIND == "broker" else stage.store().url
        command = [os.environ["CONSUMER"], daemon.names, group, topic, url, mode, file]
        command += ["%s=%s" % pair for pair in options.items()]
        self.child = process.Child("consumer", command, self.log, stdin=subprocess.PIPE)
        self.ready = False

    def wait_ready(self):
        if not self.ready:
            tap.equal(self.child.read_line(60), "ready", "first line\n" + "\n".join(self.child.tail()))
        self.ready = True
        return self

    def kill9(self):
        self.child.kill9()

    def numbers(self):
        self.child.process.stdin.write(b"\n")
        self.child.process.stdin.flush()
        return self._read()

    def _read(self):
        try:
            line = self.child.wait_line(lambda text: text.startswith("handled=") and text, 60)
        except process.Failed as failed:
            raise process.Failed("%s\n%s" % (failed, "\n".join(self.child.tail()))) from None
        return {key: int(value) for key, value in (pair.split("=") for pair in line.split())}

    def close(self):
        """An orderly end; what it has counted."""
        self.child.process.stdin.close()
        numbers = self._read()
        tap.equal(self.child.wait(60), 0, "status of the consumer\n" + "\n".join(self.child.tail()))
        return numbers

    def tail(self, lines=30):
        return self.child.tail(lines)


def effects(file):
    """key -> lines of the effects in a file."""
    found = collections.defaultdict(list)
    if os.path.exists(file):
        with open(file, encoding="ascii") as source:
            for line in source:
                key, *rest = line.split()
                found[key].append(rest)
    return found
