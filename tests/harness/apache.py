"""Apache RocketMQ beside us: its name server, its broker, its Java programs.

Everything comes from Maven Central through the pom in tests/interop, which names the one release we test against. For
an older release only the clients are fetched, and only the programs in oncemq.clients are compiled. The classpath and
our compiled Java programs are kept in a cache folder outside the source tree (ONCEMQ_INTEROP_CACHE, or
~/.cache/oncemq-interop), under a name made from the pom and the sources, so that only the first run needs Maven.

`missing()` says in words what keeps these tests from running here, or gives None.
"""

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess

from . import process, remoting

GET_BROKER_RUNTIME_INFO = 28
PROJECT = pathlib.Path(__file__).resolve().parent.parent / "interop"
MAVEN_TIMEOUT = 420

# How a JVM is started: small and quick to be ready, for tests, or as Apache's own script starts a broker, for
# measuring it. 2 GB of heap are what its container image takes.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
QUICK_SERVER = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", *QUICK)
FULL_SERVER = ("-server", "-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g", "-XX:+UseG1GC",
               "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
               "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:+AlwaysPreTouch",
               "-XX:-UseLargePages")


class Unavailable(Exception):
    """What Apache RocketMQ needs is not on this machine; the text says what."""


def missing(version=None):
    """The reason why Java tests cannot run here, or None."""
    try:
        classpath(version)
    except Unavailable as reason:
        return str(reason)
    return None


@functools.cache
def classpath(version=None):
    """Our Java programs and all jars, ready for `java -cp`; with a version, the clients of that release only."""
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            raise Unavailable("%s is not on PATH" % tool)
    folder = _cache_folder(version)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listing = folder / "classpath.txt"
        if not _complete(listing):
            _resolve(folder, listing, version)
        return "%s:%s" % (folder / "classes", listing.read_text().strip())


def _cache_folder(version):
    digest = hashlib.sha256((version or "").encode())
    for source in [PROJECT / "pom.xml", *sorted(each for each in PROJECT.glob("src/**/*") if each.is_file())]:
        digest.update(source.read_bytes())
    root = os.environ.get("ONCEMQ_INTEROP_CACHE") or os.path.expanduser("~/.cache/oncemq-interop")
    return pathlib.Path(root) / digest.hexdigest()[:16]


def _complete(listing):
    return listing.exists() and all(os.path.exists(jar) for jar in listing.read_text().strip().split(":"))


def _resolve(folder, listing, version):
    """Let Maven fetch the jars, compile our programs and write the classpath; the listing appears last and whole."""
    fresh = folder / "classpath.new"
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), "-Doncemq.build=%s" % folder,
               "-Dmdep.outputFile=%s" % fresh, "compile", "dependency:build-classpath"]
    if version:
        command += ["-Drocketmq.version=" + version, "-Doncemq.sources=oncemq/clients/*.java", "-P", "!servers"]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=MAVEN_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable("Maven did not finish within %d s" % MAVEN_TIMEOUT) from late
    if result.returncode != 0:
        output = result.stdout.decode(errors="replace")
        if "COMPILATION ERROR" in output:
            raise RuntimeError("the Java test programs do not compile:\n" + output[-4000:])
        errors = [line for line in output.splitlines() if "ERROR" in line] or [output[-200:]]
        raise Unavailable("Maven cannot provide Apache RocketMQ: %s" % errors[0][:200].strip())
    fresh.rename(listing)


def java(name, main, *args, home, properties=(), jvm=("-Xms64m", "-Xmx256m", *QUICK), env=None, stdin=None, version=None):
    """Start a Java program, with the clients of that version. Its home folder, and so its log files, is `home`."""
    options = [*jvm, "-Duser.home=%s" % home, "-Drocketmq.client.logRoot=%s/logs" % home,
               "-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=%s" % home]
    options += ["-D%s" % item for item in properties]
    command = ["java", *options, "-cp", classpath(version), main, *[str(arg) for arg in args]]
    log = os.path.join(home, "%s.log" % name)
    return process.Child(name, command, log, env=dict(os.environ, ROCKETMQ_HOME=home, **(env or {})), stdin=stdin)


class Server:
    """A Java server with a port that answers remoting requests. After kill9() it can start() again as it was."""

    def __init__(self, name, main, settings, address, home=None, ready_timeout=180, properties=(), jvm=QUICK_SERVER):
        self.name, self.main, self.properties, self.ready_timeout = name, main, properties, ready_timeout
        self.jvm = jvm
        self.home = home or process.temp_folder("oncemq-apache-")
        self.address = address
        self.config = os.path.join(self.home, "%s.conf" % name)
        with open(self.config, "w") as out:
            out.writelines("%s=%s\n" % pair for pair in settings.items() if pair[1] is not None)
        self.start()

    def start(self):
        self.child = java(self.name, self.main, "-c", self.config, home=self.home, properties=self.properties,
                          jvm=self.jvm)
        process.wait_until(self._ready, self.ready_timeout, "%s answers on %s" % (self.name, self.address))

    def _ready(self):
        if self.child.exit_code is not None:
            raise process.Failed("%s ended with status %d: %s" % (self.name, self.child.exit_code, self.tail(5)))
        return self.answers()

    def answers(self):
        try:
            with remoting.Client(self.address, timeout=2) as client:
                return self.probe(client)
        except (OSError, remoting.Closed):
            return False

    def probe(self, client):
        raise NotImplementedError

    def kill9(self):
        self.child.kill9()

    def stop(self, timeout=180):
        """SIGTERM. Its services are joined one after the other, which a busy machine draws out to more than half a minute."""
        return self.child.stop(timeout)

    def tail(self, lines=30):
        return self.child.tail(lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill9()


class NameServer(Server):
    """Apache's name server on a free port of loopback."""

    def __init__(self, port=None, bind="127.0.0.1", properties=(), **settings):
        port = port or process.free_ports()[0]
        super().__init__("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup",
                         {"listenPort": port, "bindAddress": bind, **settings}, "%s:%d" % (bind, port), properties=properties)

    def probe(self, client):
        return client.request(remoting.GET_BROKER_CLUSTER_INFO).code == remoting.SUCCESS


class Broker(Server):
    """Apache's broker. It binds to `bind` and announces 127.0.0.1, so that a relay can stand between. A setting that
    is None is left to its default."""

    def __init__(self, name_servers, port=None, bind="127.0.0.1", name="broker-a", properties=(), jvm=QUICK_SERVER,
                 **settings):
        port = port or self.free_port()
        home = process.temp_folder("oncemq-apache-")
        wanted = {
            "brokerClusterName": "DefaultCluster", "brokerName": name, "brokerId": 0, "brokerIP1": "127.0.0.1",
            "listenPort": port, "bindAddress": bind, "haListenPort": port + 1, "namesrvAddr": name_servers,
            "storePathRootDir": os.path.join(home, "store"), "autoCreateTopicEnable": "true",
            "mappedFileSizeCommitLog": 16 * 1024 * 1024, "mappedFileSizeConsumeQueue": 20 * 30000,
            "maxIndexNum": 10000, "maxHashSlotNum": 2500,
            # Small machines: no pre-touched pages, few threads, and no refusal on a disk that is rather full.
            "warmMapedFileEnable": "false", "transientStorePoolEnable": "false", "diskMaxUsedSpaceRatio": 98,
        }
        wanted.update(settings)
        self.announced = "127.0.0.1:%d" % port
        super().__init__(name, "org.apache.rocketmq.broker.BrokerStartup", wanted, "%s:%d" % (bind, port), home,
                         properties=properties, jvm=jvm)

    @staticmethod
    def free_port():
        """A port with free neighbours: two below is the fast port, one above is replication."""
        ports = process.free_ports(200)
        low = next((low for low, high in zip(ports, ports[3:]) if high == low + 3), None)
        process.give_back_ports(port for port in ports if low is None or not low <= port <= low + 3)
        if low is None:
            raise process.Failed("no four free ports in a row")
        return low + 2

    def probe(self, client):
        return client.request(remoting.GET_MAX_OFFSET, {"topic": "SELF_TEST_TOPIC", "queueId": 0}).code == 0

    def wait_registered(self, name_server, timeout=60):
        """Wait until a name server has a route to this broker.

        It answers clients a moment before it registers. After a send in that moment the broker was seen to stay unknown
        for seconds: a first registration of one single topic is refused by Apache's name server.
        """
        def known():
            with remoting.Client(name_server) as client:
                answer = client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                return answer.code == remoting.SUCCESS and self.announced in answer.body.decode()
        process.wait_until(known, timeout, "%s registered with %s" % (self.name, name_server))


def wait_dispatched(address):
    """A broker of Apache's has in its queues a moment later what it has said to have stored. A young one does not tell yet."""
    def reached():
        answer = client.request(GET_BROKER_RUNTIME_INFO)
        return answer.code == remoting.SUCCESS and answer.json()["table"].get("dispatchBehindBytes", "0") == "0"
    with remoting.Client(address) as client:
        process.wait_until(reached, 60, "the queues have what was stored", pause=0.01)
