"""Addresses: what clients are told where the broker is, and a name server that moves."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402


def at(host, address):
    return "%s:%s" % (host, address.rsplit(":", 1)[1])


def told(names, host=None):
    """Every address of the broker that a name server gives away, in each of its answers."""
    with r.Client(at(host, names) if host else names) as client:
        route = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        tap.equal(route.code, r.SUCCESS, "route (%s)" % route.remark)
        [broker] = route.json()["brokerDatas"]
        clusters = client.request(r.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"]
        group = client.request(901, {"clusterName": broker["cluster"], "brokerName": broker["brokerName"]}).json()
        system = client.request(304).json()
    return {broker["brokerAddrs"]["0"], clusters[broker["brokerName"]]["brokerAddrs"]["0"],
            group["brokerMemberGroup"]["brokerAddrs"]["0"], system["brokerAddr"]}


@tap.test("brokerIP1=auto: each client is told the address by which it has reached us")
def _():
    with daemons.Daemon(args=["--bind", "0.0.0.0"], settings={"brokerIP1": "auto"}) as d:
        ids = set()
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            broker = at(host, d.broker)
            tap.equal(told(d.names, host), {broker}, "told to who came by %s" % host)
            with r.Client(broker) as client:
                sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("T", b"x", queue_id=0))
                tap.equal(sent.code, r.SUCCESS, "send")
                ids.add(sent.ext["msgId"][:16])
        tap.equal(len(ids), 1, "addresses in message ids: they are stored, and the same for everybody")
        d.restart()
        tap.equal(told(d.names, "127.0.0.2"), {at("127.0.0.2", d.broker)}, "told after a restart")


class Network:
    """A network of its own behind a pair of virtual cables, as a container has it. Needs the right to make one."""
    def __init__(self):
        self.name = "oncemq-%d" % os.getpid()
        self.cable = "omq%d" % os.getpid()
        third = os.getpid() % 250
        self.here, self.there = "10.213.%d.1" % third, "10.213.%d.2" % third

    def run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def __enter__(self):
        try:
            made = self.run("ip", "netns", "add", self.name)
        except FileNotFoundError:
            tap.skip("ip is missing")
        if made.returncode != 0:
            tap.skip("no right to make a network: %s" % made.stderr)
        steps = (("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name),
                 ("ip", "addr", "add", self.here + "/24", "dev", self.cable),
                 ("ip", "link", "set", self.cable, "up"),
                 ("ip", "netns", "exec", self.name, "ip", "addr", "add", self.there + "/24", "dev", "eth0"),
                 ("ip", "netns", "exec", self.name, "ip", "link", "set", "eth0", "up"))
        for step in steps:
            done = self.run(*step)
            if done.returncode != 0:
                self.__exit__()
                tap.skip("no such network here: %s" % done.stderr)
        return self

    def __exit__(self, *_):
        self.run("ip", "netns", "del", self.name)  # the cable goes with it

    def ask(self, address):
        """The addresses that a client in there is told."""
        code = ("import sys; sys.path.insert(0, %r)\nfrom harness import remoting as r\n"
                "with r.Client(%r, timeout=20) as c:\n"
                "    route = c.request(r.GET_ROUTEINFO_BY_TOPIC, {'topic': 'TBW102'}).json()\n"
                "told = route['brokerDatas'][0]['brokerAddrs']['0']\n"
                "with r.Client(told, timeout=20) as c:\n"
                "    print(told, c.request(r.SEND_MESSAGE_V2, *r.send_v2('T', b'x', queue_id=0)).code)\n")
        tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        done = self.run("ip", "netns", "exec", self.name, sys.executable, "-c", code % (tests, address))
        tap.equal(done.returncode, 0, "status (%s)" % done.stderr)
        return done.stdout.split()


@tap.test("with auto a client in a container's network finds the broker, and one on this machine does as well")
def _():
    with Network() as network, daemons.Daemon(args=["--bind", "0.0.0.0"], settings={"brokerIP1": "auto"}) as d:
        tap.equal(network.ask(at(network.here, d.names)), [at(network.here, d.broker), "0"], "told in there")
        tap.equal(told(d.names, "127.0.0.1"), {at("127.0.0.1", d.broker)}, "told here")


@tap.test("a fixed address is told to everybody, whichever way they came")
def _():
    for settings in ({"brokerIP1": "127.0.0.9"}, {}):
        with daemons.Daemon(args=["--bind", "0.0.0.0"], settings=settings) as d:
            answers = [told(d.names, host) for host in ("127.0.0.1", "127.0.0.2")]
            tap.equal(answers[0], answers[1], "answers")
            if settings:
                tap.equal(answers[0], {at("127.0.0.9", d.broker)}, "address")


@tap.test("with auto other name servers are told the address by which they were reached")
def _():
    with daemons.Daemon(roles="names", args=["--bind", "127.0.0.5"], name="names") as names:
        # From 127.0.0.1 to 127.0.0.5: the kernel gives loopback connections the address they go to.
        settings = {"brokerIP1": "auto", "namesrvAddr": names.names}
        with daemons.Daemon(args=["--bind", "0.0.0.0"], settings=settings) as d:
            def known():
                with r.Client(names.names) as client:
                    return client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == r.SUCCESS
            process.wait_until(known, 20, "the other name server knows the broker")
            with r.Client(names.names) as client:
                route = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).json()
            host = route["brokerDatas"][0]["brokerAddrs"]["0"].rsplit(":", 1)
            tap.check(host[0] in ("127.0.0.1", "127.0.0.5") and host[1] == d.broker.rsplit(":", 1)[1], "told %s" % host)
            d.stop()
            with r.Client(names.names) as client:
                gone = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                tap.equal(gone.code, r.TOPIC_NOT_EXIST, "route after it has said goodbye")


@tap.test("a name server given by its name is looked up again when it cannot be reached")
def _():
    module = os.environ.get("MOVING_NAME_MODULE")
    if not module:
        tap.skip("MOVING_NAME_MODULE does not name moving_name.so")
    with tempfile.NamedTemporaryFile("w", prefix="oncemq-moving-") as file:
        def lead_to(address):
            file.seek(0)
            file.write(address + "\n")
            file.truncate()
            file.flush()

        def knows(server):
            with r.Client(server.names) as client:
                return client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == r.SUCCESS

        lead_to("127.0.0.6")
        env = {"LD_PRELOAD": module, "MOVING_NAME": file.name,
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with daemons.Daemon(roles="names", args=["--bind", "127.0.0.6"], name="before") as before:
            port = before.names.rsplit(":", 1)[1]
            with daemons.Daemon(roles="broker", settings={"namesrvAddr": "moving.test:" + port}, env=env) as d:
                tap.watch(d)
                process.wait_until(lambda: knows(before), 20, "the first name server knows the broker")
                with daemons.Daemon(roles="names", args=["--bind", "127.0.0.7"], settings={"namesrvListenPort": port},
                                    name="after") as after:
                    lead_to("127.0.0.7")
                    before.kill9()
                    process.wait_until(lambda: knows(after), 30, "the second one does, too")
                process.wait_until(lambda: "name server has moved" in d.read_log(), 20, "a line about it")
                d.stop()


tap.main()
