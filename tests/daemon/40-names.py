"""The name server in raw frames: every request code it knows, in both header forms, with brokers that are played here."""

import os
import socket
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

GET_SYSTEM_TOPIC_LIST_FROM_NS, GET_UNIT_TOPIC_LIST, GET_HAS_UNIT_SUB_TOPIC_LIST = 304, 311, 312
GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, REGISTER_TOPIC_IN_NAMESRV, GET_BROKER_MEMBER_GROUP = 313, 217, 901
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors")
FORMS = ("json", "rocketmq")
READ, WRITE = 4, 2


# Brokers played by the test ------------------------------------------------------------------------------------------

def topic(name, queues=4, perm=6, flag=0):
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": flag, "order": False, "attributes": {}}


USUAL = (topic("T1", 4), topic("T2", 8))


def version(counter=1, state=0):
    return {"counter": counter, "stateVersion": state, "timestamp": 1700000000000}


def json_body(topics, told):
    return r.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": told, "topicConfigTable": {each["topicName"]: each for each in topics},
        "mappingDataVersion": version(), "topicQueueMappingInfoMap": {}, "topicQueueMappingDetailMap": {}}})


def packed_body(topics, told, attributes=True):
    """The compressed form; 4.9 brokers leave the attributes and the static topics out."""
    def sized(data):
        return struct.pack(">I", len(data)) + data
    lines = [("%(topicName)s %(readQueueNums)d %(writeQueueNums)d %(perm)d %(topicFilterType)s" % each
              + (" {}" if attributes else "")).encode() for each in topics]
    plain = sized(r.dumps(told)) + struct.pack(">I", len(lines)) + b"".join(map(sized, lines)) + sized(b"[]")
    return zlib.compress(plain + (struct.pack(">I", 0) if attributes else b""))


def broker_fields(name="a", addr="10.0.0.1:1", broker_id=0, cluster="C1", **more):
    return {"brokerName": name, "brokerAddr": addr, "clusterName": cluster, "haServerAddr": "10.0.9.9:2",
            "brokerId": broker_id, **more}


def register(client, name="a", addr="10.0.0.1:1", broker_id=0, topics=USUAL, told=None, serialize="json", **more):
    return client.request(r.REGISTER_BROKER, broker_fields(name, addr, broker_id, **more),
                          json_body(topics, told or version()), serialize=serialize)


def registered(client, *args, **more):
    answer = register(client, *args, **more)
    tap.equal(answer.code, r.SUCCESS, "code of a registration (%s)" % answer.remark)
    return answer


def ask(client, code, ext=None, body=b"", **more):
    answer = client.request(code, ext, body, **more)
    tap.equal(answer.code, r.SUCCESS, "code of %d (%s)" % (code, answer.remark))
    return answer


def route(client, name, **more):
    """The route as {broker: (addresses, read queues, write queues, perm)}, or None."""
    answer = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": name, **more.pop("ext", {})}, **more)
    if answer.code == r.TOPIC_NOT_EXIST:
        return None
    tap.equal(answer.code, r.SUCCESS, "code of a route (%s)" % answer.remark)
    found = answer.json()
    tap.equal([each["brokerName"] for each in found["brokerDatas"]],
              [each["brokerName"] for each in found["queueDatas"]], "brokers of the queues")
    return {data["brokerName"]: (data["brokerAddrs"], queues["readQueueNums"], queues["writeQueueNums"], queues["perm"])
            for data, queues in zip(found["brokerDatas"], found["queueDatas"])}


def topics_of(client, code, ext=None, **more):
    return ask(client, code, ext, **more).json()["topicList"]


class Server:
    """A fresh name server and one connection to it for each name that is asked for."""

    def __init__(self, **settings):
        self.daemon = tap.watch(daemons.Daemon(roles="names", settings=settings))
        self.clients = []

    def connect(self):
        self.clients.append(r.Client(self.daemon.names))
        return self.clients[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.close()
        self.daemon.kill9()
        tap.unwatch(self.daemon)


# Registering ---------------------------------------------------------------------------------------------------------

@tap.test("a broker registers and is found, through both header forms")
def _():
    for form in FORMS:
        with Server() as server:
            broker, client = server.connect(), server.connect()
            tap.equal(route(client, "T1", serialize=form), None, "route before")
            answer = registered(broker, serialize=form)
            tap.equal((answer.ext, answer.body, answer.serialize), ({}, b"", form), "what a master is told")
            tap.equal(route(client, "T1", serialize=form), {"a": ({"0": "10.0.0.1:1"}, 4, 4, 6)}, "route")
            tap.equal(route(client, "T2", serialize=form), {"a": ({"0": "10.0.0.1:1"}, 8, 8, 6)}, "route")


@tap.test("all forms of the registration body are read: JSON, compressed of 5.x and of 4.9, the old table, none")
def _():
    with Server() as server:
        broker, client = server.connect(), server.connect()
        bodies = [("5.x", packed_body(USUAL, version()), True, r.VERSION),
                  ("4.9", packed_body(USUAL, version(), attributes=False), True, 399),
                  ("json", json_body(USUAL, version()), False, 399),
                  ("ancient", r.dumps({"dataVersion": version(), "topicConfigTable": {
                      each["topicName"]: each for each in USUAL}}), False, 36)]
        for number, (name, body, compressed, spoken) in enumerate(bodies):
            addr = "10.0.1.%d:1" % number
            ask(broker, r.REGISTER_BROKER, broker_fields(name, addr, compressed=compressed), body, version=spoken)
            tap.equal(route(client, "T2")[name], ({"0": addr}, 8, 8, 6), "route of %s" % name)
        ask(broker, r.REGISTER_BROKER, broker_fields("silent", "10.0.2.1:1"))
        tap.check("silent" not in route(client, "T1"), "a broker that told no topics serves one")
        tap.check("silent" in ask(client, r.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"], "it is not listed")


@tap.test("the registrations of a real Apache broker are taken as they were captured")
def _():
    def captured(name):
        with open(os.path.join(VECTORS, "register_broker_%s_request.hex" % name), encoding="ascii") as source:
            return r.decode(bytes.fromhex("".join(line for line in source if not line.startswith("#"))))
    for name in ("json", "binary", "compressed"):
        with Server() as server:
            client = server.connect()
            frame = captured(name)
            client.send_raw(r.encode(frame))
            answer = client.wait(frame.opaque)
            tap.equal(answer.code, r.SUCCESS, "code of %s (%s)" % (name, answer.remark))
            found = topics_of(client, r.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            tap.check(len(found) > 0, "no topics from %s" % name)
            table = ask(client, r.GET_BROKER_CLUSTER_INFO).json()["brokerAddrTable"]
            tap.equal(table[frame.ext["brokerName"]]["brokerAddrs"],
                      {str(frame.ext["brokerId"]): frame.ext["brokerAddr"]}, "addresses of %s" % name)


@tap.test("the checksum of a registration counts, and zero means none")
def _():
    with Server() as server:
        client = server.connect()
        body = json_body(USUAL, version())
        good = zlib.crc32(body) & 0x7FFFFFFF
        wrong = client.request(r.REGISTER_BROKER, broker_fields(bodyCrc32=good ^ 1), body)
        tap.equal((wrong.code, wrong.remark), (r.SYSTEM_ERROR, "crc32 not match"), "answer to a wrong sum")
        tap.equal(route(client, "T1"), None, "route after a wrong sum")
        ask(client, r.REGISTER_BROKER, broker_fields(bodyCrc32=good), body)
        ask(client, r.REGISTER_BROKER, broker_fields(bodyCrc32=0), body)


@tap.test("a slave is told where its master is, and the route has both")
def _():
    with Server() as server:
        master, slave = server.connect(), server.connect()
        tap.equal(registered(slave, "a", "10.0.0.2:1", 1).ext, {}, "what a slave without master is told")
        registered(master)
        told = registered(slave, "a", "10.0.0.2:1", 1)
        tap.equal(told.ext, {"masterAddr": "10.0.0.1:1", "haServerAddr": "10.0.9.9:2"}, "what a slave is told")
        tap.equal(route(slave, "T1"), {"a": ({"0": "10.0.0.1:1", "1": "10.0.0.2:1"}, 4, 4, 6)}, "route")
        ask(master, r.UNREGISTER_BROKER, broker_fields())
        tap.equal(route(slave, "T1"), {"a": ({"1": "10.0.0.2:1"}, 4, 4, 6)}, "route without the master")
        registered(slave, "a", "10.0.0.2:1", 0)
        tap.equal(route(slave, "T1"), {"a": ({"0": "10.0.0.2:1"}, 4, 4, 6)}, "route after the slave took over")


@tap.test("a slave of 5.x without a master makes the topics readable, an older one does not")
def _():
    with Server() as server:
        old, new = server.connect(), server.connect()
        registered(old, "old", "10.0.0.2:1", 1)
        registered(new, "new", "10.0.0.3:1", 1, enableActingMaster=False)
        tap.equal(route(new, "T1"), {"new": ({"1": "10.0.0.3:1"}, 4, 4, READ)}, "route")


@tap.test("a table with one topic updates a known broker and is refused from a new one")
def _():
    with Server() as server:
        client = server.connect()
        refused = register(client, topics=[topic("T1")])
        tap.equal(refused.code, r.SYSTEM_ERROR, "code")
        tap.check(refused.remark.startswith("register broker failed"), "remark %r" % refused.remark)
        tap.equal(ask(client, r.GET_BROKER_CLUSTER_INFO).json(), {"brokerAddrTable": {}, "clusterAddrTable": {}}, "trace")
        registered(client)
        registered(client, topics=[topic("T3", 2)], told=version(2))
        tap.equal(sorted(topics_of(client, r.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)), ["T1", "T2", "T3"], "topics")


@tap.test("an address with an older state does not take an id, and is told that all is well")
def _():
    with Server() as server:
        holder, other = server.connect(), server.connect()
        registered(holder, told=version(state=5))
        registered(other, addr="10.0.0.2:1", told=version(state=4))
        tap.equal(route(other, "T1"), {"a": ({"0": "10.0.0.1:1"}, 4, 4, 6)}, "route")
        tap.check("10.0.0.2:1" in server.daemon.read_log(), "the log does not name the refused broker")
        registered(other, addr="10.0.0.2:1", told=version(state=6))
        tap.equal(route(other, "T1"), {"a": ({"0": "10.0.0.2:1"}, 4, 4, 6)}, "route after a newer state")


# Leaving -------------------------------------------------------------------------------------------------------------

@tap.test("a broker is forgotten the moment its connection closes, and only what came by that connection")
def _():
    with Server() as server:
        one, two, client = server.connect(), server.connect(), server.connect()
        registered(one, "a", "10.0.0.1:1")
        registered(two, "b", "10.0.0.2:1")
        one.close()
        process.wait_until(lambda: "a" not in route(client, "T1"), 20, "broker a is forgotten")
        tap.equal(route(client, "T1"), {"b": ({"0": "10.0.0.2:1"}, 4, 4, 6)}, "route")
        again = server.connect()
        registered(again, "b", "10.0.0.2:1")
        two.close()
        third = server.connect()
        registered(third, "c", "10.0.0.3:1")
        third.close()
        process.wait_until(lambda: "c" not in route(client, "T1"), 20, "broker c is forgotten")
        tap.equal(list(route(client, "T1")), ["b"], "brokers after the first of two connections closed")


@tap.test("a broker that falls silent is forgotten after its own patience, and a word keeps it")
def _():
    with Server() as server:
        broker, client = server.connect(), server.connect()
        registered(broker, "short", "10.0.0.1:1", heartbeatTimeoutMillis=1000)
        registered(broker, "kept", "10.0.0.2:1", heartbeatTimeoutMillis=8000)
        registered(broker, "asks", "10.0.0.3:1", heartbeatTimeoutMillis=8000)
        registered(broker, "usual", "10.0.0.4:1")

        def gone():
            broker.request(r.BROKER_HEARTBEAT, broker_fields("kept", "10.0.0.2:1"), oneway=True)
            ask(broker, r.QUERY_DATA_VERSION, broker_fields("asks", "10.0.0.3:1"), r.dumps(version()))
            return "short" not in route(client, "T1")
        process.wait_until(gone, 20, "the silent broker is forgotten", pause=0.3)
        tap.equal(sorted(route(client, "T1")), ["asks", "kept", "usual"], "who is left")


@tap.test("unregistering takes the address, and with the last one the topics and the cluster")
def _():
    with Server() as server:
        client = server.connect()
        registered(client)
        for form in FORMS:
            ask(client, r.UNREGISTER_BROKER, broker_fields("nobody", "10.0.0.7:1"), serialize=form)
        tap.equal(list(route(client, "T1")), ["a"], "brokers")
        ask(client, r.UNREGISTER_BROKER, broker_fields(), serialize="rocketmq")
        tap.equal(route(client, "T1"), None, "route")
        tap.equal(ask(client, r.GET_BROKER_CLUSTER_INFO).json(), {"brokerAddrTable": {}, "clusterAddrTable": {}}, "clusters")


# Questions -----------------------------------------------------------------------------------------------------------

@tap.test("QUERY_DATA_VERSION says whether there is news and what is known")
def _():
    with Server() as server:
        client = server.connect()
        for form in FORMS:
            unknown = ask(client, r.QUERY_DATA_VERSION, broker_fields(), r.dumps(version()), serialize=form)
            tap.equal((unknown.ext, unknown.body), ({"changed": "true"}, b""), "answer to a stranger")
        registered(client)
        same = ask(client, r.QUERY_DATA_VERSION, broker_fields(), r.dumps(version()))
        tap.equal((same.ext, same.json()), ({"changed": "false"}, version()), "no news")
        other = ask(client, r.QUERY_DATA_VERSION, broker_fields(), r.dumps(version(2)))
        tap.equal((other.ext, other.json()), ({"changed": "true"}, version()), "news")


@tap.test("the keys of brokerAddrs are quoted for those who read strict JSON, and plain for the others")
def _():
    quoted, plain = b'"brokerAddrs":{"0":"10.0.0.1:1"}', b'"brokerAddrs":{0:"10.0.0.1:1"}'
    with Server() as server:
        client = server.connect()
        registered(client)
        for form in FORMS:
            for spoken, strict, wanted in ((401, False, quoted), (400, False, plain), (121, True, quoted),
                                           (513, True, quoted), (0, False, plain)):
                ext = {"topic": "T1", **({"acceptStandardJsonOnly": "true"} if strict else {})}
                body = ask(client, r.GET_ROUTEINFO_BY_TOPIC, ext, version=spoken, serialize=form).body
                tap.check(wanted in body, "version %d, strict %s: %r" % (spoken, strict, body))
                tap.check(b" " not in body, "a blank in %r: the Go client takes this apart as text" % body)


@tap.test("an unknown topic is answered with the words clients look for and a reason")
def _():
    with Server() as server:
        client = server.connect()
        begin = "No topic route info in name server for the topic: "
        for form in FORMS:
            answer = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "Nöwhere"}, serialize=form)
            tap.equal((answer.code, answer.remark),
                      (r.TOPIC_NOT_EXIST, begin + "Nöwhere; no broker is registered here"), "answer")
        registered(client)
        answer = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "T9"})
        tap.equal(answer.remark, begin + "T9; 1 broker is registered here and none has it; none creates topics on first "
                  "use (autoCreateTopicEnable), so it has to be created before", "remark")


@tap.test("clusters, member groups and topic lists tell what is there")
def _():
    with Server() as server:
        client = server.connect()
        flags = [topic("Unit", flag=1), topic("Sub", flag=2), topic("Both", flag=3)]
        registered(client, topics=flags)
        registered(client, "b", "10.0.0.2:1", cluster="C2", topics=[*USUAL], __ZONE_NAME="east")
        registered(client, "b", "10.0.0.3:1", 1, cluster="C2", topics=[*USUAL], __ZONE_NAME="east")
        for form in FORMS:
            info = ask(client, r.GET_BROKER_CLUSTER_INFO, serialize=form)
            tap.equal(info.json(), {
                "brokerAddrTable": {
                    "a": {"brokerAddrs": {"0": "10.0.0.1:1"}, "brokerName": "a", "cluster": "C1",
                          "enableActingMaster": False},
                    "b": {"brokerAddrs": {"0": "10.0.0.2:1", "1": "10.0.0.3:1"}, "brokerName": "b", "cluster": "C2",
                          "enableActingMaster": False, "zoneName": "east"}},
                "clusterAddrTable": {"C1": ["a"], "C2": ["b"]}}, "cluster info")
            group = ask(client, GET_BROKER_MEMBER_GROUP, {"clusterName": "C2", "brokerName": "b"}, serialize=form).json()
            tap.equal(group, {"brokerMemberGroup": {"brokerAddrs": {"0": "10.0.0.2:1", "1": "10.0.0.3:1"},
                                                    "brokerName": "b", "cluster": "C2"}}, "members")
            nobody = ask(client, GET_BROKER_MEMBER_GROUP, {"clusterName": "C2", "brokerName": "x"}, serialize=form).json()
            tap.equal(nobody["brokerMemberGroup"]["brokerAddrs"], {}, "members of nobody")
            everything = ["Both", "Sub", "T1", "T2", "Unit"]
            lists = ((r.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, everything),
                     (r.GET_TOPICS_BY_CLUSTER, {"cluster": "C2"}, ["T1", "T2"]),
                     (r.GET_TOPICS_BY_CLUSTER, {"cluster": "C9"}, []),
                     (GET_UNIT_TOPIC_LIST, None, ["Both", "Unit"]),
                     (GET_HAS_UNIT_SUB_TOPIC_LIST, None, ["Both", "Sub"]),
                     (GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, ["Sub"]),
                     (GET_SYSTEM_TOPIC_LIST_FROM_NS, None, ["C1", "C2", "a", "b"]))
            for code, ext, wanted in lists:
                tap.equal(topics_of(client, code, ext, serialize=form), wanted, "list of %d" % code)
            system = ask(client, GET_SYSTEM_TOPIC_LIST_FROM_NS, serialize=form).json()
            tap.check(system["brokerAddr"] in ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"), "address %r" % system)


@tap.test("a client in a zone is shown its own zone's brokers")
def _():
    with Server() as server:
        client = server.connect()
        registered(client, "a", "10.0.0.1:1", __ZONE_NAME="east")
        registered(client, "b", "10.0.0.2:1", __ZONE_NAME="west")
        tap.equal(list(route(client, "T1")), ["a", "b"], "without a zone")
        tap.equal(list(route(client, "T1", ext={"__ZONE_MODE": "true", "__ZONE_NAME": "EAST"})), ["a"], "east")
        tap.equal(list(route(client, "T1", ext={"__ZONE_NAME": "west"})), ["a", "b"], "without the mode")


# Operators -----------------------------------------------------------------------------------------------------------

@tap.test("write permission is taken and given back, and lasts until the broker has news")
def _():
    with Server() as server:
        client = server.connect()
        registered(client)
        for form in FORMS:
            tap.equal(ask(client, r.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"}, serialize=form).ext,
                      {"wipeTopicCount": "2"}, "count")
            tap.equal(route(client, "T1")["a"][3], READ, "permission")
            registered(client)
            tap.equal(route(client, "T1")["a"][3], READ, "permission after the same registration")
            tap.equal(ask(client, r.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"}, serialize=form).ext,
                      {"addTopicCount": "2"}, "count")
            tap.equal(route(client, "T1")["a"][3], READ | WRITE, "permission given back")
        ask(client, r.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
        registered(client, told=version(2))
        tap.equal(route(client, "T1")["a"][3], READ | WRITE, "permission after news")
        tap.equal(ask(client, r.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "x"}).ext, {"wipeTopicCount": "0"}, "nobody's")


@tap.test("topics are deleted, everywhere or in a cluster, and added by hand")
def _():
    with Server() as server:
        client = server.connect()
        registered(client, "a", "10.0.0.1:1")
        registered(client, "b", "10.0.0.2:1", cluster="C2")
        ask(client, r.DELETE_TOPIC_IN_NAMESRV, {"topic": "T1", "clusterName": "C2"})
        tap.equal(list(route(client, "T1")), ["a"], "brokers after C2's was deleted")
        ask(client, r.DELETE_TOPIC_IN_NAMESRV, {"topic": "T1"}, serialize="rocketmq")
        tap.equal(route(client, "T1"), None, "route")
        ask(client, r.DELETE_TOPIC_IN_NAMESRV, {"topic": "never was"})
        for form in FORMS:
            body = r.dumps({"queueDatas": [{"brokerName": "b", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6,
                                            "topicSysFlag": 0}]})
            ask(client, REGISTER_TOPIC_IN_NAMESRV, {"topic": "By hand " + form}, body, serialize=form)
            tap.equal(route(client, "By hand " + form), {"b": ({"0": "10.0.0.2:1"}, 2, 3, 6)}, "route")
        body = r.dumps({"queueDatas": [{"brokerName": "x", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6}]})
        refused = client.request(REGISTER_TOPIC_IN_NAMESRV, {"topic": "T5"}, body)
        tap.check(refused.code == r.SYSTEM_ERROR and "broker x" in refused.remark, "answer %r" % refused)


@tap.test("settings are put, got, listed and deleted, through both header forms")
def _():
    with Server() as server:
        client = server.connect()
        for form in FORMS:
            where = {"namespace": "N " + form, "key": 'k "ü" \\'}
            missing = client.request(r.GET_KV_CONFIG, where, serialize=form)
            tap.equal((missing.code, missing.remark),
                      (r.QUERY_NOT_FOUND, "No config item, Namespace: N %s Key: k \"ü\" \\" % form), "nothing there")
            missing = client.request(r.GET_KVLIST_BY_NAMESPACE, where, serialize=form)
            tap.equal((missing.code, missing.remark), (r.QUERY_NOT_FOUND, "No config item, Namespace: N %s" % form), "list")
            ask(client, r.PUT_KV_CONFIG, {**where, "value": "v1\n绿"}, serialize=form)
            tap.equal(ask(client, r.GET_KV_CONFIG, where, serialize=form).ext, {"value": "v1\n绿"}, "value")
            ask(client, r.PUT_KV_CONFIG, {**where, "value": "v2"}, serialize=form)
            ask(client, r.PUT_KV_CONFIG, {**where, "key": "other", "value": "x"}, serialize=form)
            listed = ask(client, r.GET_KVLIST_BY_NAMESPACE, where, serialize=form).json()
            tap.equal(listed, {"table": {'k "ü" \\': "v2", "other": "x"}}, "list")
            for key in (where["key"], "other", "never was"):
                ask(client, r.DELETE_KV_CONFIG, {**where, "key": key}, serialize=form)
            tap.equal(ask(client, r.GET_KVLIST_BY_NAMESPACE, where, serialize=form).json(), {"table": {}}, "emptied")


@tap.test("ordered topics are told to brokers with their registration, and to clients if enabled")
def _():
    for enabled in (False, True):
        with Server(orderMessageEnable="true" if enabled else "false") as server:
            client = server.connect()
            ask(client, r.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "a:4;b:4"})
            tap.equal(registered(client).json(), {"table": {"T1": "a:4;b:4"}}, "what the broker is told")
            found = ask(client, r.GET_ROUTEINFO_BY_TOPIC, {"topic": "T1"}).json()
            tap.equal(found.get("orderTopicConf"), "a:4;b:4" if enabled else None, "what the client is told")
            found = ask(client, r.GET_ROUTEINFO_BY_TOPIC, {"topic": "T2"}).json()
            tap.check("orderTopicConf" not in found, "an order for T2: %r" % found)


@tap.test("settings outlive a restart and a SIGKILL; routes do not, and come back with the next registration")
def _():
    with Server() as server:
        client = server.connect()
        where = {"namespace": "N", "key": "k"}
        registered(client)
        for number, hard in enumerate((False, True, True)):
            ask(client, r.PUT_KV_CONFIG, {**where, "value": "v%d" % number})
            server.daemon.restart(hard=hard)
            client = server.connect()
            tap.equal(ask(client, r.GET_KV_CONFIG, where).ext["value"], "v%d" % number, "value after a restart")
            tap.equal(route(client, "T1"), None, "route after a restart")
        registered(client)
        tap.equal(list(route(client, "T1")), ["a"], "brokers")


# Side by side, and strangers -----------------------------------------------------------------------------------------

@tap.test("two name servers know nothing of each other, and one that is gone takes nothing with it")
def _():
    with Server() as one, Server() as two:
        at_one, at_two = one.connect(), two.connect()
        registered(at_one)
        tap.equal(route(at_two, "T1"), None, "route at the second")
        registered(at_two)
        ask(at_one, r.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
        tap.equal(at_two.request(r.GET_KV_CONFIG, {"namespace": "N", "key": "k"}).code, r.QUERY_NOT_FOUND, "its setting")
        one.daemon.kill9()
        tap.equal(list(route(at_two, "T1")), ["a"], "brokers at the second")
        one.daemon.start()
        at_one = one.connect()
        tap.equal(route(at_one, "T1"), None, "route at the first, right after its start")
        registered(at_one)
        tap.equal(route(at_one, "T1"), route(at_two, "T1"), "routes of both")


@tap.test("a broker's codes are not known here, and one-way requests are never answered")
def _():
    with Server() as server:
        client = server.connect()
        answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2("T1", b"x"))
        tap.equal(answer.code, r.REQUEST_CODE_NOT_SUPPORTED, "code")
        for code in (r.GET_BROKER_CLUSTER_INFO, r.GET_ROUTEINFO_BY_TOPIC, r.REGISTER_BROKER):
            client.send(code, {"topic": "T1"}, oneway=True)
        client.send(r.REGISTER_BROKER, broker_fields(), json_body(USUAL, version()), oneway=True)
        tap.equal(list(route(client, "T1")), ["a"], "brokers after a one-way registration")
        tap.equal(client.replies, {}, "answers to one-way requests")


@tap.test("what is missing or makes no sense is refused with a remark that names it, and changes nothing")
def _():
    with Server() as server:
        client = server.connect()
        body = json_body(USUAL, version())
        for name in ("brokerName", "brokerAddr", "clusterName", "brokerId"):
            for code in (r.REGISTER_BROKER, r.UNREGISTER_BROKER, r.QUERY_DATA_VERSION):
                fields = broker_fields()
                del fields[name]
                answer = client.request(code, fields, body)
                tap.check(answer.code == r.SYSTEM_ERROR and name in answer.remark, "%d without %s: %r" % (code, name, answer))
        for code, name in ((r.GET_ROUTEINFO_BY_TOPIC, "topic"), (r.DELETE_TOPIC_IN_NAMESRV, "topic"),
                           (REGISTER_TOPIC_IN_NAMESRV, "topic"), (r.GET_TOPICS_BY_CLUSTER, "cluster"),
                           (r.WIPE_WRITE_PERM_OF_BROKER, "brokerName"), (r.ADD_WRITE_PERM_OF_BROKER, "brokerName"),
                           (GET_BROKER_MEMBER_GROUP, "clusterName"), (r.BROKER_HEARTBEAT, "clusterName"),
                           (r.PUT_KV_CONFIG, "namespace"), (r.GET_KV_CONFIG, "namespace"),
                           (r.DELETE_KV_CONFIG, "namespace"), (r.GET_KVLIST_BY_NAMESPACE, "namespace")):
            for form in FORMS:
                answer = client.request(code, serialize=form)
                tap.check(answer.code == r.SYSTEM_ERROR and name in answer.remark, "%d: %r" % (code, answer))
        odd = [(broker_fields(broker_id="x"), body, "brokerId"), (broker_fields(broker_id=-1), body, "negative"),
               (broker_fields(addr="nowhere"), body, "host:port"), (broker_fields("x" * 300), body, "255"),
               (broker_fields(), b"{", "body"), (broker_fields(), b"[]", "body"),
               (broker_fields(compressed=True), body, "compressed"),
               (broker_fields(compressed=True), packed_body(USUAL, version())[:-7], "compressed")]
        for fields, data, word in odd:
            answer = client.request(r.REGISTER_BROKER, fields, data)
            tap.check(answer.code == r.SYSTEM_ERROR and word in answer.remark, "wanted %r: %r" % (word, answer))
        for code, word in ((r.QUERY_DATA_VERSION, "data version"), (REGISTER_TOPIC_IN_NAMESRV, "route")):
            answer = client.request(code, {**broker_fields(), "topic": "T"}, b"\xff\xfe")
            tap.check(answer.code == r.SYSTEM_ERROR and word in answer.remark, "%d: %r" % (code, answer))
        long_value = client.request(r.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "x" * 70000})
        tap.check(long_value.code == r.SYSTEM_ERROR and "65536" in long_value.remark, "answer %r" % long_value)
        tap.equal(ask(client, r.GET_BROKER_CLUSTER_INFO).json(), {"brokerAddrTable": {}, "clusterAddrTable": {}}, "trace")


@tap.test("a zlib body that inflates to a flood is refused and the name server goes on")
def _():
    with Server() as server:
        client = server.connect()
        flood = zlib.compress(b"\0" * (256 << 20))
        answer = client.request(r.REGISTER_BROKER, broker_fields(compressed=True), flood, timeout=20)
        tap.equal(answer.code, r.SYSTEM_ERROR, "code (%s)" % answer.remark)
        registered(client)


@tap.test("a cluster of a thousand topics on ten brokers is told in full")
def _():
    with Server() as server:
        client = server.connect()
        topics = [topic("topic-%04d" % number) for number in range(1000)]
        for number in range(10):
            registered(client, "broker-%d" % number, "10.0.0.%d:1" % number, topics=topics)
        tap.equal(topics_of(client, r.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), [each["topicName"] for each in topics], "topics")
        tap.equal(list(route(client, "topic-0999")), ["broker-%d" % number for number in range(10)], "brokers")


@tap.test("fifty connections register and leave at once, and nothing is left of them")
def _():
    with Server() as server:
        client = server.connect()
        for _ in range(3):
            brokers = [server.connect() for _ in range(50)]
            waiting = [each.send(r.REGISTER_BROKER, broker_fields("b%d" % number, "10.0.0.1:%d" % (number + 1)),
                                 json_body(USUAL, version())) for number, each in enumerate(brokers)]
            for each, opaque in zip(brokers, waiting):
                tap.equal(each.wait(opaque).code, r.SUCCESS, "code")
            tap.equal(len(route(client, "T1")), 50, "brokers")
            for each in brokers:
                each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.close()
            process.wait_until(lambda: route(client, "T1") is None, 20, "all brokers are forgotten")


if __name__ == "__main__":
    tap.main()
