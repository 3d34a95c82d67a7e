"""The servers under test: three name servers and two brokers with topics over both.

Which ones is told by the environment variable ENDPOINT: nothing, our own oncemqd; `apache`, Apache's servers, started for
the purpose, which proves the tests; host:port, a name server that somebody else runs, with whatever brokers it knows.
What can be done to them differs, and a scenario says what it needs with `need_own()`.
"""

import os

from harness import apache, process, remoting, tap
from harness.daemon import Daemon

ENDPOINT = os.environ.get("ENDPOINT")
CLUSTER = "DefaultCluster"
# Level 2 differs from the others, so that a level is seen to matter; retries use levels 3 to 18.
LADDER = "1s 2s" + " 1s" * 16
CHECKS = 3  # a transaction without an answer is given up after so many questions
# Apache's broker refuses requests that waited 200 ms for a thread, and has no SQL92 filters unless told.
APACHE_SETTINGS = {"enablePropertyFilter": "true", "waitTimeMillsInSendQueue": 20000, "waitTimeMillsInPullQueue": 20000,
                   "osPageCacheBusyTimeOutMills": 20000}
BROKER_SETTINGS = {"messageDelayLevel": LADDER, "flushConsumerOffsetInterval": 1000, "registerNameServerPeriod": 10000,
                   "recallMessageEnable": "true",
                   "transactionTimeOut": 1000, "transactionCheckInterval": 2000, "transactionCheckMax": CHECKS}


class Broker:
    """One broker: its name, its address, and with luck the process behind it."""

    def __init__(self, name, address, server=None):
        self.name, self.address, self.server = name, address, server

    def restart(self):
        """In good order. Apache's broker may take a minute to stop."""
        self.server.stop(*([120] if ENDPOINT == "apache" else []))
        self.server.start()

    def request(self, code, ext=None, body=b""):
        with remoting.Client(self.address) as client:
            return client.request(code, ext, body)


class Stage:
    def __init__(self):
        self.name_servers, self.brokers = [], []
        self.kind = "ours" if not ENDPOINT else ENDPOINT if ENDPOINT == "apache" else "given"
        {"ours": self._start_ours, "apache": self._start_apache, "given": self._find_given}[self.kind]()

    @property
    def names(self):
        return ";".join(server.address for server in self.name_servers)

    @property
    def own(self):
        return self.kind != "given"

    def need_own(self, why):
        """Skip a scenario that needs servers which were started here."""
        if not self.own:
            tap.skip("%s, and the servers are not ours" % why)

    def _start_ours(self):
        for number, port in enumerate(process.free_ports(3)):
            daemon = Daemon(roles="names", settings={"namesrvListenPort": port}, name="names-%d" % number)
            self.name_servers.append(Broker(daemon.name, daemon.names, tap.watch(daemon)))
        for name in ("broker-a", "broker-b"):
            port, = process.free_ports()
            settings = {"listenPort": port, "brokerName": name, "namesrvAddr": self.names, **BROKER_SETTINGS}
            daemon = Daemon(roles="broker", settings=settings, name=name)
            self.brokers.append(Broker(name, daemon.broker, tap.watch(daemon)))
        self._wait_registered()

    def _start_apache(self):
        for _ in range(3):
            server = tap.watch(apache.NameServer())
            self.name_servers.append(Broker("namesrv", server.address, server))
        for name in ("broker-a", "broker-b"):
            server = tap.watch(apache.Broker(self.names, name=name, **APACHE_SETTINGS, **BROKER_SETTINGS))
            self.brokers.append(Broker(name, server.announced, server))
        self._wait_registered()

    def _find_given(self):
        self.name_servers.append(Broker("given", ENDPOINT))
        known = self.name_servers[0].request(remoting.GET_BROKER_CLUSTER_INFO).json()
        for name, data in sorted(known["brokerAddrTable"].items()):
            self.brokers.append(Broker(name, data["brokerAddrs"]["0"]))
        tap.check(self.brokers, "the name server %s knows no broker" % ENDPOINT)

    def _wait_registered(self):
        for broker in self.brokers:
            self.wait_route("TBW102", lambda route, name=broker.name: name in route)

    def create_topic(self, topic, queues, brokers=None, perm=6):
        """Make a topic with so many queues on each of the brokers, and wait until all name servers know it."""
        brokers = brokers or self.brokers
        for broker in brokers:
            answer = broker.request(remoting.UPDATE_AND_CREATE_TOPIC, {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
                "perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
            tap.equal((answer.code, answer.remark), (remoting.SUCCESS, answer.remark), "answer to topic creation")
        self.wait_route(topic, lambda route: all(route.get(broker.name) == (queues, perm) for broker in brokers))
        return topic

    def route(self, topic, server=None):
        """Broker name -> (queues, permission) of a topic; empty when there is none."""
        answer = (server or self.name_servers[0]).request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code == remoting.TOPIC_NOT_EXIST:
            return {}
        return {each["brokerName"]: (each["writeQueueNums"], each["perm"]) for each in answer.json()["queueDatas"]}

    def wait_route(self, topic, condition, timeout=40):
        for server in self.name_servers:
            process.wait_until(lambda each=server: condition(self.route(topic, each)), timeout,
                               "route of %s at %s" % (topic, server.address), pause=0.1)
