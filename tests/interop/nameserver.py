#!/usr/bin/env python3
"""Our name server between an Apache broker and the official Java client and admin tool.

Two oncemqd processes with the role `names` stand side by side and know nothing of each other. An Apache broker
registers with both; the Java client and mqadmin find it through them. Then one name server is killed and comes back,
and in the end the broker is killed too. What mqadmin prints and changes is compared with what the name server answers
to raw requests.

ENDPOINT=apache takes Apache's own name servers in place of ours, to prove the test itself. ENDPOINT=host:port uses one
name server that is already there and skips what needs two, or needs to kill one.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

ENDPOINT = os.environ.get("ENDPOINT")
MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
REGISTER_PERIOD = 10  # seconds, the shortest that Apache's broker allows
CLUSTER, BROKER = "DefaultCluster", "broker-a"


class Given:
    """A name server that somebody else runs."""

    def __init__(self, address):
        self.names = address


class ApacheNames:
    """Apache's name server with the face of a Daemon."""

    def __init__(self):
        self.server = apache.NameServer()
        self.names = self.server.address
        self.name, self.tail, self.kill9, self.start = \
            "namesrv", self.server.tail, self.server.kill9, self.server.start


class Scene:
    """What the tests of this file share."""
    servers = []
    broker = None
    trip = None


scene = Scene()


def name_server(number):
    if ENDPOINT == "apache":
        return tap.watch(ApacheNames())
    if ENDPOINT:
        return Given(ENDPOINT)
    port, = process.free_ports()
    return tap.watch(Daemon(roles="names", settings={"namesrvListenPort": port}, name="names%d" % number))


def addresses():
    return ";".join(server.names for server in scene.servers)


def ask(server, code, ext=None):
    with remoting.Client(server.names) as client:
        return client.request(code, ext)


def route(server, topic):
    """The route of a topic as a document, or None when there is none."""
    answer = ask(server, remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if answer.code == remoting.TOPIC_NOT_EXIST:
        return None
    tap.equal(answer.code, remoting.SUCCESS, "code of the route of %s" % topic)
    return answer.json()


def mqadmin(*args):
    """Run one command of the unchanged admin tool with the first name server; returns what it printed."""
    child = apache.java("mqadmin", MQADMIN, *args, "-n", scene.servers[0].names, home=process.temp_folder())
    status, out = child.finish(60)
    text = out + "\n".join(child.tail())
    tap.check(status == 0 and "Exception" not in text, "mqadmin %s: status %s\n%s" % (" ".join(args), status, text))
    return out


def words(text):
    """The lines of a printed table, split at blanks."""
    return [line.split() for line in text.splitlines()]


def need_broker():
    if not scene.broker:
        tap.skip("no broker registered")


def need_two():
    need_broker()
    if len(scene.servers) < 2:
        tap.skip("one given name server only")


def round_trip(topic, patience=0):
    """Send to a topic and receive from it with the Java client that lives through all tests.

    A failed try is repeated for up to `patience` seconds."""
    if not scene.trip:
        scene.trip = tap.watch(apache.java("roundtrip", "oncemq.interop.RoundTrip", addresses(),
                                           home=process.temp_folder(), stdin=subprocess.PIPE))
        scene.trip.wait_line(lambda line: line == "started", 60)

    def once():
        scene.trip.process.stdin.write(topic.encode() + b"\n")
        scene.trip.process.stdin.flush()
        answer = scene.trip.wait_line(lambda line: line.startswith(("ok ", "failed ")) and line, 120)
        if answer != "ok " + topic:
            tap.note(answer)
        return answer == "ok " + topic

    process.wait_until(once, patience, "a round trip of %s" % topic, pause=1)


@tap.test("an Apache broker registers with every name server it is given")
def register():
    scene.servers = [name_server(number) for number in range(1 if ENDPOINT and ENDPOINT != "apache" else 2)]
    known = route(scene.servers[0], "TBW102")
    if known:
        tap.skip("the given name server has brokers already: %s" % [each["brokerName"] for each in known["brokerDatas"]])
    broker = tap.watch(apache.Broker(addresses(), name=BROKER, registerNameServerPeriod=REGISTER_PERIOD * 1000))
    for server in scene.servers:
        broker.wait_registered(server.names)
        data = route(server, "TBW102")
        tap.equal([(each["brokerName"], each["cluster"], each["brokerAddrs"]) for each in data["brokerDatas"]],
                  [(BROKER, CLUSTER, {"0": broker.announced})], "brokers of TBW102")
        tap.equal([(each["brokerName"], each["readQueueNums"], each["writeQueueNums"], each["perm"])
                   for each in data["queueDatas"]], [(BROKER, 8, 8, 7)], "queues of TBW102")
    scene.broker = broker


@tap.test("a Java client finds the broker through us, creates a topic and gets its messages back")
def client_round_trip():
    need_broker()
    round_trip("InteropFirst")
    for server in scene.servers:
        process.wait_until(lambda each=server: route(each, "InteropFirst"), 30, "the new topic at %s" % server.names)


@tap.test("mqadmin topicRoute, topicList and clusterList show the broker and its topics")
def listings():
    need_broker()
    tap.check(scene.broker.announced in mqadmin("topicRoute", "-t", "InteropFirst"), "no address in topicRoute")
    topics = mqadmin("topicList").split()
    for topic in ("InteropFirst", "TBW102", "%RETRY%round_trip_InteropFirst"):
        tap.check(topic in topics, "no %s in topicList: %s" % (topic, topics))
    tap.check("InteropFirst" in mqadmin("topicList", "-c").split(), "no topic in topicList -c")
    # clusterList also asks the broker itself, at the address it got from us.
    rows = [row for row in words(mqadmin("clusterList")) if row[:3] == [CLUSTER, BROKER, "0"]]
    tap.check(rows and rows[0][3] == scene.broker.announced, "clusterList shows %s" % rows)


@tap.test("mqadmin wipeWritePerm takes the write permission of all topics away, addWritePerm gives it back")
def write_permission():
    need_broker()
    before = route(scene.servers[0], "InteropFirst")["queueDatas"][0]["perm"]
    tap.equal(before, 6, "permission before")
    tap.check("wipe write perm of broker[%s]" % BROKER in mqadmin("wipeWritePerm", "-b", BROKER), "no confirmation")
    tap.equal(route(scene.servers[0], "InteropFirst")["queueDatas"][0]["perm"], 4, "permission after the wipe")
    tap.check("add write perm of broker[%s]" % BROKER in mqadmin("addWritePerm", "-b", BROKER), "no confirmation")
    tap.equal(route(scene.servers[0], "InteropFirst")["queueDatas"][0]["perm"], 6, "permission after the restore")


@tap.test("mqadmin updateKvConfig, deleteKvConfig and updateOrderConf keep and remove values")
def key_values():
    need_broker()
    for key, value in (("colour", "green and 绿"), ("gone", "soon")):
        mqadmin("updateKvConfig", "-s", "Interop", "-k", key, "-v", value)
        answer = ask(scene.servers[0], remoting.GET_KV_CONFIG, {"namespace": "Interop", "key": key})
        tap.equal((answer.code, answer.ext.get("value")), (0, value), "value of %s" % key)
    mqadmin("deleteKvConfig", "-s", "Interop", "-k", "gone")
    answer = ask(scene.servers[0], remoting.GET_KV_CONFIG, {"namespace": "Interop", "key": "gone"})
    tap.equal(answer.code, remoting.QUERY_NOT_FOUND, "code of a deleted key")
    mqadmin("updateOrderConf", "-m", "put", "-t", "InteropFirst", "-v", BROKER + ":4")
    tap.check(BROKER + ":4" in mqadmin("updateOrderConf", "-m", "get", "-t", "InteropFirst"), "no order configuration")
    mqadmin("updateOrderConf", "-m", "delete", "-t", "InteropFirst")


@tap.test("with one of two name servers killed the client still finds new topics")
def one_killed():
    need_two()
    scene.servers[0].kill9()
    # Calls that meet the dead one fail. The client takes the servers in turn, and with several calls on their way it may
    # meet the dead one many times before one of them stays with the other.
    round_trip("InteropSecond", patience=120)
    tap.check(route(scene.servers[1], "InteropSecond"), "no route at the name server that lives")


@tap.test("a name server that comes back learns all routes from the next registration and still has its key values")
def one_back():
    need_two()
    scene.servers[0].start()
    tap.equal(ask(scene.servers[0], remoting.GET_KV_CONFIG, {"namespace": "Interop", "key": "colour"}).ext.get("value"),
              "green and 绿", "value of colour after a crash")
    for topic in ("InteropFirst", "InteropSecond"):
        process.wait_until(lambda name=topic: route(scene.servers[0], name), 3 * REGISTER_PERIOD, "route of %s" % topic)
        tap.equal(route(scene.servers[0], topic), route(scene.servers[1], topic), "route of %s" % topic)


@tap.test("a broker that is killed is gone from all routes at once")
def broker_killed():
    need_broker()
    scene.broker.kill9()
    for server in scene.servers:
        process.wait_until(lambda each=server: route(each, "InteropFirst") is None, 30, "no route at %s" % server.names)
        tap.equal(ask(server, remoting.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"], {}, "known brokers")
    tap.check(BROKER not in mqadmin("clusterList"), "mqadmin still knows the broker")


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
