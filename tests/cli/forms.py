"""What docs/cli.md says of --json is what comes: every command that has a form there is run and held against it.

A command without an entry here fails the first test. Entries run in their order, on one cluster that was prepared for
them; what a command prints must have a record, or nothing was checked.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, remoting, tap  # noqa: E402
from harness.crowd import Crowd  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual", "--chaos"])
folder = os.path.join(cluster.home, "folder")  # of a daemon that is over


def prepare():
    with Crowd(cluster.broker) as crowd:
        crowd.topic("Orders")
        crowd.group("billing")
        crowd.group("failing", retryMaxTimes=0)
        cluster.wait_route("Orders")
        crowd.send("Orders", 5, queue=0, properties={"KEYS": "order-1", "TAGS": "paid", "UNIQ_KEY": "0A0000070001B1AAC2EE55C3A1F20001"})
        crowd.commit("billing", "Orders", 2)
        for number in range(2):
            bury(crowd, number)
    cluster.wait_route("%DLQ%failing")
    if not cluster.apache:
        with Daemon(folder=folder, settings={"mappedFileSizeCommitLog": 1 << 20}) as other, Crowd(other.broker) as crowd:
            crowd.topic("Orders")
            crowd.send("Orders", 2)
            other.stop()


def bury(crowd, offset):
    """A message that its group gives up at once."""
    pulled = crowd.ask(remoting.PULL_MESSAGE, {"consumerGroup": "failing", "topic": "Orders", "queueId": 0, "queueOffset": offset, "maxMsgNums": 1,
                                               "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 15000, "subscription": "*", "subVersion": 0,
                                               "expressionType": "TAG"})  # it waits: Apache's queues follow a moment later
    message = remoting.messages(pulled.body)[0]
    crowd.ask(remoting.CONSUMER_SEND_MSG_BACK, {"offset": message.physical_offset, "group": "failing", "delayLevel": -1, "unitMode": "false",
                                                "originMsgId": message.offset_id, "originTopic": "Orders", "maxReconsumeTimes": 0})


BENCH = ("--count", "50", "--warmup", "0s", "--in-flight", "4", "--size", "100")
ENTRIES = {
    "topic list": [],
    "topic show": ["Orders"],
    "topic create": ["Fresh"],
    "topic set": ["Fresh", "--perm", "r"],
    "topic delete": ["Fresh", "--yes"],
    "send": ["Orders", "hello", "--count", "3", "--each"],
    "consume": ["Orders", "--end"],
    "query": ["Orders", "--key", "order-1"],
    "run": ["--topic", "Orders", "--group", "sidecar", "--from", "first", "--key", "{msgid}", "--store", "memory:", "--exec", "true",
            "--count", "1"],
    "trace": ["0A0000070001B1AAC2EE55C3A1F20001"],
    "audit": [],
    "why": ["order-1"],
    "bench send": [*BENCH],
    "bench consume": ["--count", "50", "--size", "100"],
    "bench e2e": [*BENCH],
    "bench once": [*BENCH],
    "chaos": ["--topic", "Orders", "--twice", "50%", "--send", "5", "--duration", "200ms"],
    "store check": [folder],
    "store dump": [folder],
    "group list": [],
    "group show": ["billing"],
    "group set": ["Fresh", "--retry-max", "5"],
    "group delete": ["Fresh", "--yes"],
    "group reset": ["billing", "--topic", "Orders", "--to", "earliest", "--yes"],
    "cluster": [],
    "broker config": ["fileReservedTime"],
    "lag": ["--queues"],
    "dlq list": [],
    "dlq show": ["failing"],
    "dlq resend": ["failing", "--each", "--yes"],
    "dlq drop": ["failing", "--yes"],
    "top": ["--once", "--interval", "100ms"],
    "doctor": ["--wait", "0s"],
    "clock show": [],
    "clock advance": ["1s"],
    "context set": ["here", "names=127.0.0.1:9876"],
    "context list": [],
    "context use": ["here"],
    "context delete": ["here"],
}
STATUS = {"doctor": (cli.OK, cli.PARTLY, cli.FAILED)}  # what it may end with, if it is not OK alone
OWN = {"store check", "store dump", "clock advance", "chaos"}  # these have nothing to do with Apache's servers


@tap.test("every command with a documented form is run here, and nothing else")
def _():
    documented = set(cli.forms())
    tap.equal(documented - set(ENTRIES), set(), "commands without an entry in ENTRIES")
    tap.equal(set(ENTRIES) - documented, set(), "entries of no command")
    prepare()


def holds(command):
    if cluster.apache and command in OWN:
        tap.skip("it is not about Apache's servers")
    result = cluster.run(*command.split(), *ENTRIES[command], "--json")
    tap.check(result.status in STATUS.get(command, (cli.OK,)), result)
    value = cli.check_form(command, result.out)
    tap.check(value, "there is no record: %r" % result)
    tap.equal(result.err, "", "stderr of %s" % command)


for each in ENTRIES:
    tap.test("oncemq %s --json" % each)(lambda command=each: holds(command))

tap.main()
