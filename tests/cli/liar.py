"""Servers that lie: every command meets answers with numbers that no server means, and of a shape that none has. It says
what is wrong or shows what it was told, escaped; it does not fall over, and it does not take long."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, remoting, tap  # noqa: E402
from harness.crowd import Crowd  # noqa: E402

cluster = cli.Cluster(args=["--clock", "virtual"])
ID = "0A0000070001B1AAC2EE55C3A1F20001"
COMMANDS = [
    ["topic", "list", "-a"], ["topic", "show", "Orders"],
    ["group", "list"], ["group", "show", "billing"], ["group", "reset", "billing", "--to", "earliest", "--dry-run"],
    ["group", "reset", "billing", "--to", "offset:3", "--yes"],
    ["cluster"], ["broker", "config"], ["lag", "--queues"], ["top", "--once", "--interval", "10ms"], ["doctor", "--wait", "0s"], ["clock", "show"],
    ["send", "Orders", "hello", "--count", "3"], ["consume", "Orders", "--end"], ["query", "Orders", "--key", "order-1"], ["query", ID, "--topic", "Orders"],
    ["dlq", "list"], ["dlq", "show", "billing"], ["dlq", "resend", "billing", "--dry-run"],
]


def every(value, number, text):
    """The same JSON with other numbers and texts."""
    if isinstance(value, dict):
        return {key: every(each, number, text) for key, each in value.items()}
    if isinstance(value, list):
        return [every(each, number, text) for each in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)) or value.lstrip("-").isdigit():
        return str(number) if isinstance(value, str) else number
    return text(value)


def with_numbers(number, text=lambda value: value):
    def lie(said):
        ext = every(said.ext, number, lambda value: value)
        try:
            body = remoting.dumps(every(json.loads(said.body), number, text))
        except ValueError:
            body = said.body[:-1] + b"\xff"
        return remoting.Command(said.code, ext, body if said.body else b"", remark=said.remark)
    return lie


LIES = {
    "the least number": with_numbers(-2**63),
    "the greatest number": with_numbers(2**63 - 1),
    "a number that is none": with_numbers(10**30, lambda value: value + "\x1b[2J"),
    "another shape": lambda said: remoting.Command(said.code, {}, b'[{"a":[]},null,7]', remark="\x1b[2J"),
    "half of it": lambda said: remoting.Command(said.code, said.ext, said.body[:len(said.body) // 2], remark=said.remark),
}


class Liar:
    """A name server and a broker that say what real ones do; then one of them lies."""

    def __init__(self):
        self.lies = {}  # by the address of the server that is asked
        self.broker = fake.Fake(lambda request: self.answer(cluster.broker, request))
        self.names = fake.Fake(lambda request: self.answer(cluster.names, request))

    def answer(self, server, request):
        with remoting.Client(server) as real:
            said = real.request(request.code, request.ext, request.body)
        said.body = said.body.replace(cluster.broker.encode(), self.broker.address.encode())
        return self.lies.get(server, lambda plain: plain)(said)


liar = Liar()


def survives(*args):
    result = cluster.run(*args, "-n", liar.names.address, "--timeout", "500ms", timeout=30)
    tap.check(result.status in range(cli.OK, cli.DECLINED + 1) and "Sanitizer" not in result.err and "runtime error" not in result.err, result)
    tap.check("\x1b" not in result.out + result.err, "escape sequences reach a terminal: %r" % result)


@tap.test("a cluster is prepared")
def _():
    with Crowd(cluster.broker) as crowd:
        crowd.topic("Orders")
        crowd.group("billing")
        cluster.wait_route("Orders")
        crowd.send("Orders", 5, queue=0, properties={"KEYS": "order-1", "TAGS": "paid", "UNIQ_KEY": ID})
        crowd.commit("billing", "Orders", 2)
    for command in COMMANDS:
        survives(*command)


def check(name):
    for server in (cluster.broker, cluster.names):
        liar.lies = {server: LIES[name]}
        for command in COMMANDS:
            if server == cluster.broker or command[0] in ("topic", "cluster", "doctor", "send"):
                survives(*command)


for each in LIES:
    tap.test("no command falls over when a server says %s" % each)(lambda name=each: check(name))

@tap.test("queues that a broker does not tell the number of are not written back as none")
def _():
    liar.lies = {cluster.broker: LIES["the least number"]}
    result = cluster.run("topic", "set", "Orders", "--perm", "r", "-n", liar.names.address, status=cli.FAILED)
    tap.check("nothing was done" in result.err, result)
    tap.equal([each["read_queues"] for each in cluster.json("topic", "show", "Orders")["brokers"]], [4])


tap.main()
