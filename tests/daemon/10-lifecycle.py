"""The daemon as its operator meets it: starting, settings, readiness, refusals, stopping."""

import os
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def config_file(text):
    path = os.path.join(process.temp_folder(), "broker.conf")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def must_refuse(args, *needles):
    """The daemon does not start, ends quickly, and its one complaint holds all the needles."""
    status, out, complaint = daemons.run("--data", process.temp_folder(), *args)
    tap.check(status not in (0, None), "started although it should not have: %r" % out)
    for needle in needles:
        tap.check(needle in complaint, "%r is missing in %r" % (needle, complaint))


@tap.test("with both roles it prints one ready line with both addresses, and both answer")
def _():
    with daemons.Daemon() as d:
        tap.check(d.names and d.broker, "addresses %r %r" % (d.names, d.broker))
        with r.Client(d.names) as client:
            tap.equal(client.request(r.GET_BROKER_CLUSTER_INFO).code, r.SUCCESS)
        with r.Client(d.broker) as client:
            tap.equal(client.request(99999).code, r.REQUEST_CODE_NOT_SUPPORTED)


@tap.test("when it says ready, its own name server already knows its broker")
def _():
    with daemons.Daemon() as d, r.Client(d.names) as client:
        route = client.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        tap.equal(route.code, r.SUCCESS, "code of the first route question")
        tap.equal(route.json()["brokerDatas"][0]["brokerAddrs"], {"0": d.broker}, "addresses")


@tap.test("a role that was not asked for does not listen")
def _():
    with daemons.Daemon(roles="names") as d:
        tap.check(d.names and not d.broker, "addresses %r %r" % (d.names, d.broker))
    with daemons.Daemon(roles="broker") as d:
        tap.check(d.broker and not d.names, "addresses %r %r" % (d.names, d.broker))


@tap.test("it serves on IPv6 as well, and ids carry the longer address")
def _():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        tap.skip("no IPv6 loopback here")
    with daemons.Daemon(args=["--bind", "::1"]) as d:
        tap.check(d.broker.startswith("[::1]:"), "broker at %s" % d.broker)
        with r.Client(d.names) as names, r.Client(d.broker) as client:
            route = names.request(r.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).json()
            tap.equal(route["brokerDatas"][0]["brokerAddrs"], {"0": d.broker}, "addresses")
            sent = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Six", b"x", queue_id=0))
            tap.equal((sent.code, len(sent.ext["msgId"])), (r.SUCCESS, 56), "send")
            found = client.request(33, {"offset": int(sent.ext["msgId"][40:], 16)})
            message, = r.messages(found.body)
            tap.equal((message.body, message.offset_id, message.born_host[0]), (b"x", sent.ext["msgId"], "::1"), "message")


@tap.test("SIGTERM ends it with status 0 and leaves a folder that was closed cleanly")
def _():
    with daemons.Daemon() as d:
        tap.check(os.path.exists(os.path.join(d.folder, "abort")), "no abort file while it runs")
        d.stop()
        tap.check(not os.path.exists(os.path.join(d.folder, "abort")), "abort file after a clean stop")
        d.start()
        tap.check("clean=yes" in d.read_log().splitlines()[-1] or "clean=yes" in d.read_log(), "not opened as clean")


@tap.test("SIGTERM is obeyed while clients are connected and pulls wait")
def _():
    with daemons.Daemon() as d:
        clients = [r.Client(d.broker) for _ in range(4)]
        clients[0].request(r.SEND_MESSAGE_V2, *r.send_v2("T", b"x", queue_id=0))
        for client in clients:
            client.send(r.PULL_MESSAGE, {"consumerGroup": "g", "topic": "T", "queueId": 1, "queueOffset": 0,
                                         "maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0,
                                         "suspendTimeoutMillis": 20000, "subscription": "*", "subVersion": 0})
        tap.equal(clients[0].request(r.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).code, r.SUCCESS)
        d.stop()
        for client in clients:
            client.wait_closed()


@tap.test("a second SIGTERM ends it at once even when a client does not read")
def _():
    with daemons.Daemon() as d:
        os.kill(d.pid, signal.SIGTERM)
        os.kill(d.pid, signal.SIGTERM)
        status = d.child.wait(20)
        tap.check(status in (0, 128 + signal.SIGTERM, -signal.SIGTERM), "status %r" % status)
        d.child = None


@tap.test("a data folder in use is refused with the pid of its user")
def _():
    with daemons.Daemon() as d:
        must_refuse(["--data", d.folder, "--set", "listenPort=0", "--set", "namesrvListenPort=0"], str(d.pid), d.folder)
        must_refuse(["--data", d.folder, "--roles", "names", "--set", "namesrvListenPort=0"], str(d.pid))
        must_refuse(["--data", d.folder, "--roles", "broker", "--set", "listenPort=0"], str(d.pid))


@tap.test("a port in use is refused with its key")
def _():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        must_refuse(["--set", "namesrvListenPort=0", "--set", "listenPort=%d" % taken.getsockname()[1]], "listenPort")


@tap.test("a value that makes no sense is refused with file, line, key and what would be valid")
def _():
    path = config_file("# ours\nbrokerName=b\nflushDiskType=SOMETIMES\n")
    must_refuse(["-c", path], "%s:3" % path, "flushDiskType", "SYNC_FLUSH", "ASYNC_FLUSH")
    path = config_file("listenPort=123456\n")
    must_refuse(["-c", path], "%s:1" % path, "listenPort", "65535")
    must_refuse(["--set", "deleteWhen=25"], "deleteWhen", "hours")
    must_refuse(["--set", "messageDelayLevel=1s 5x"], "messageDelayLevel")
    must_refuse(["--set", "autoCreateTopicEnable=perhaps"], "autoCreateTopicEnable", "true")


@tap.test("unknown options, keys, roles and files are refused or named")
def _():
    must_refuse(["--no-such-option"], "no-such-option")
    must_refuse(["--set", "noSuchKey=1"], "noSuchKey")
    must_refuse(["--roles", "names,king"], "king")
    must_refuse(["-c", "does-not-exist.conf"], "does-not-exist.conf")
    must_refuse(["surprise"], "surprise")
    must_refuse(["--ready-fd", "77"], "77")
    must_refuse(["--bind", "no such host"], "no such host")


@tap.test("options that make no sense are refused before anything is touched")
def _():
    must_refuse(["--print-config=xml"], "xml", "md")
    must_refuse(["--roles", "names,"], "names,")
    must_refuse(["--roles", ""], "names, broker")
    must_refuse(["--data", ""], "storePathRootDir", "empty")
    must_refuse(["--bind", ""], "bindAddress", "empty")
    must_refuse(["--set", "=1"], "KEY=VALUE")
    must_refuse(["--io-threads", "65"], "ioThreads=65", "64")
    must_refuse(["--set", "brokerClusterName="], "brokerClusterName")
    must_refuse(["--set", "brokerName=" + "x" * 256], "brokerName", "255")
    must_refuse(["--set", "mappedFileSizeConsumeQueue=6000001"], "mappedFileSizeConsumeQueue", "20")
    must_refuse(["--set", "outputMaxBytes=1048576"], "outputMaxBytes", "outputHighBytes")


@tap.test("addresses that make no sense are refused before the store is opened")
def _():
    ports = ["--set", "listenPort=0", "--set", "namesrvListenPort=0"]
    for wrong in ("nobody", "127.0.0.1:0", "127.0.0.1:70000", ";".join("127.0.0.1:%d" % i for i in range(1, 20))):
        status, _, complaint = daemons.run("--data", process.temp_folder(), *ports, "--set", "namesrvAddr=" + wrong)
        tap.equal(status, 1, "status with namesrvAddr=%s" % wrong)
        tap.check("namesrvAddr=" in complaint and "store open" not in complaint, complaint)
        tap.check("not host:port" in complaint or "more than 16" in complaint, complaint)
    must_refuse([*ports, "--set", "brokerIP1=0.0.0.0"], "brokerIP1=0.0.0.0", "wildcard")
    must_refuse([*ports, "--bind", "192.0.2.1"], "192.0.2.1")


@tap.test("configurations that are no files, or have no end, are refused")
def _():
    must_refuse(["-c", process.temp_folder()], "Is a directory")
    must_refuse(["-c", "/dev/zero"], "/dev/zero", "1 MiB")
    must_refuse(["-c", config_file("a=b\n" * 300000)], "1 MiB")
    must_refuse(["-c", config_file("listenPort=\0")], "zero byte")


@tap.test("a data folder that cannot be one is refused with its name")
def _():
    path = config_file("")
    must_refuse(["--data", path], path, "Not a directory")
    must_refuse(["--data", path + "/below"], path, "Not a directory")


@tap.test("it runs with closed standard files, and no line of the log goes astray")
def _():
    for closed in ("2>&-", "0<&- 1>&- 2>&-"):
        folder = process.temp_folder()
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        script = 'exec "$0" "$@" ' + closed
        command = ["sh", "-c", script, os.environ["ONCEMQD"], "--data", folder, "--set", "listenPort=0", "--set",
                   "namesrvListenPort=0", "--set", "logLevel=debug", "--ready-fd", str(write_end)]
        with process.Child("oncemqd", command, os.path.join(folder, "log"), pass_fds=[write_end]) as child:
            os.close(write_end)
            with os.fdopen(read_end) as ready:
                address = ready.read().partition("names ")[2].partition(",")[0]
            with r.Client(address) as client:
                tap.equal(client.request(r.GET_BROKER_CLUSTER_INFO).code, r.SUCCESS)
            tap.equal(child.stop(), 0, "status with %s" % closed)


@tap.test("--ready-fd may be standard error, and the log still goes there and nowhere else")
def _():
    with daemons.Daemon(args=["--ready-fd", "2"], settings={"logLevel": "debug"}) as d:
        with r.Client(d.names) as client:  # would get the place of a closed descriptor
            with r.Client(d.names) as other:
                other.request(r.GET_BROKER_CLUSTER_INFO)
            process.wait_until(lambda: "connection closed" in d.read_log(), 20, "a line about the other")
            tap.equal(client.request(r.GET_BROKER_CLUSTER_INFO).code, r.SUCCESS)
        tap.check("ready: " in d.read_log(), "no ready line on standard error")


@tap.test("the broker stays registered however short idle connections may live")
def _():
    with daemons.Daemon(settings={"serverChannelMaxIdleTimeSeconds": 1}) as d:
        with r.Client(d.names) as idle:
            idle.wait_closed()  # so a whole period has passed
        tap.check("unregistered" not in d.read_log(), "the broker lost its registration")


@tap.test("an existing broker.conf works as it is; a key that we do not know is a warning that names it")
def _():
    path = config_file("brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
                       "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n"
                       "pullThreadPoolQueueCapacity=100000\nautoCreateTopicEnabel=false\n")
    with daemons.Daemon(args=["-c", path]) as d:
        log = d.read_log()
        tap.check("pullThreadPoolQueueCapacity" in log, "the unknown key is not named")
        tap.check("autoCreateTopicEnable?" in log, "the nearest key is not suggested")
        with r.Client(d.names) as client:
            clusters = client.request(r.GET_BROKER_CLUSTER_INFO).json()
        tap.equal(list(clusters["brokerAddrTable"]), ["broker-a"], "brokers")


@tap.test("--print-config shows every key, and what it prints can be read back")
def _():
    status, out, _ = daemons.run("--set", "brokerName=printed", "--print-config")
    tap.equal(status, 0, "status")
    for needle in ("brokerName=printed", "listenPort=10911", "flushDiskType=ASYNC_FLUSH"):
        tap.check(needle in out, "%r is missing" % needle)
    status, again, complaint = daemons.run("-c", config_file(out), "--print-config")
    tap.equal((status, complaint), (0, ""), "reading it back")
    tap.equal(again, out, "the second print")


@tap.test("docs/configuration.md holds exactly the table that the daemon prints")
def _():
    _, table, _ = daemons.run("--print-config=md")
    with open(os.path.join(DOCS, "configuration.md"), encoding="utf-8") as source:
        tap.check(table in source.read(), "run `make docs`: the table is out of date")


@tap.test("--ready-fd and systemd's notify protocol both tell readiness")
def _():
    folder = process.temp_folder()
    path = os.path.join(folder, "notify")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(20)
        command = [os.environ["ONCEMQD"], "--data", folder, "--set", "listenPort=0", "--set", "namesrvListenPort=0",
                   "--ready-fd", str(write_end)]
        log = os.path.join(folder, "log")
        child = process.Child("oncemqd", command, log,
                              env=dict(os.environ, NOTIFY_SOCKET=path), pass_fds=[write_end])
        with child:
            os.close(write_end)
            tap.equal(notify.recv(100), b"READY=1", "first notification")
            with os.fdopen(read_end) as ready:
                tap.check(ready.read().startswith("ready: names 127.0.0.1:"), "ready line")
            tap.equal(child.stop(), 0, "status")
            tap.equal(notify.recv(100), b"STOPPING=1", "last notification")


def priorities(pid):
    """How nice each thread of a process is, beyond its first."""
    found = {}
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, task)) as source:
            found[int(task)] = int(source.read().rpartition(")")[2].split()[16])
    return sorted(nice - found[pid] for task, nice in found.items() if task != pid)


@tap.test("only the thread that nobody waits for, the flusher of an asynchronous broker, stands back for the others")
def _():
    for kind, back in (("ASYNC_FLUSH", 1), ("SYNC_FLUSH", 0)):
        with daemons.Daemon(settings={"flushDiskType": kind}) as daemon:
            process.wait_until(lambda one=daemon, n=back: sum(each > 0 for each in priorities(one.child.pid)) == n, 20,
                               "%d threads of %s at a lower priority" % (back, kind))


tap.main()
