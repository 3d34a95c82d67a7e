"""`oncemq top`: the live view in a pseudo-terminal, one picture of it in a pipe, and --json."""

import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, remoting, tap  # noqa: E402
from harness.crowd import Crowd  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.screen import Screen  # noqa: E402

cluster = cli.Cluster()
crowd = Crowd(cluster.broker)
QUICK = ("--interval", "200ms")

crowd.topic("Orders", queues=4)
crowd.topic("Quiet", queues=1)
crowd.group("billing")
crowd.send("Orders", 10, queue=1)
crowd.commit("billing", "Orders", 3, queue=1)
cluster.wait_route("Orders")
cluster.wait_route("Quiet")
billing = crowd.member("billing", ["Orders"])


def named(records, **fields):
    found = [each for each in records if all(each[key] == value for key, value in fields.items())]
    tap.equal(len(found), 1, "how many there are of %s in %s" % (fields, records))
    return found[0]


def live(*args, rows=20, columns=110, **env):
    terminal = cluster.terminal("top", *QUICK, *args, env=env, rows=rows, columns=columns)
    return terminal, Screen(terminal, rows, columns)


@tap.test("--json tells brokers, topics, groups and queues, with lag and rates")
def _():
    with cluster.start("top", "--json", "--interval", "300ms", "--count", "24") as top:
        lines = [top.read_line(20)]
        crowd.send("Orders", 20, queue=2)
        crowd.commit("billing", "Orders", 5, queue=1)
        while True:
            line = top.read_line(20)
            if line is None:
                break
            lines.append(line)
        tap.equal(top.wait(10), cli.OK)
    objects = cli.check_form("top", "\n".join(lines))
    tap.equal(len(objects), 24, "objects")
    last = objects[-1]
    broker = last["brokers"][0]
    tap.check(broker["up"] and broker["send_99_ms"] is not None and 0 < broker["disk"] < 1, broker)
    tap.equal(broker["duplicates"], None if cluster.apache else 0)
    tap.check("Orders" in [each["topic"] for each in last["topics"]] and "TBW102" not in [each["topic"] for each in last["topics"]], last["topics"])
    orders = named(last["topics"], topic="Orders")
    tap.equal((orders["queues"], orders["messages"]), (4, 30))
    tap.check(cluster.apache or orders["send_99_ms"] > 0, orders)
    group = named(last["groups"], group="billing", topic="Orders")
    tap.equal((group["lag"], group["members"]), (25, 1))
    tap.check(group["behind"] > 0, group)
    queue = named(last["queues"], group="billing", topic="Orders", queue=1)
    tap.equal((queue["offset"], queue["end"], queue["lag"]), (5, 10, 5))
    tap.check(max(named(each["topics"], topic="Orders")["in"] for each in objects if named(each["topics"], topic="Orders")["in"]) > 0, objects)
    moved = [named(each["groups"], group="billing", topic="Orders")["out"] for each in objects]
    tap.check(max(each for each in moved if each is not None) > 0, moved)


@tap.test("one picture in a pipe has tables without sequences, and --view and --group choose")
def _():
    out = cluster.ok("top", *QUICK).out
    tap.check("\033" not in out, out)
    for title in ("BROKER", "TOPIC", "GROUP"):
        tap.check(re.search("^%s " % title, out, re.M), out)
    queues = cluster.ok("top", "--once", "--view", "queues", "--group", "billing", *QUICK).out.splitlines()
    tap.check(queues[0].startswith("GROUP") and len(queues) == 5, queues)
    tap.equal(cluster.ok("top", "--once", "--view", "groups", "--group", "nobody", *QUICK).out.count("\n"), 1)


@tap.test("the screen shows groups, keys change the view, the order and the place; q leaves everything as it was")
def _():
    terminal, screen = live()
    with terminal:
        screen.wait(lambda s: s.row_of("billing"))
        tap.check(screen.alternate and screen.hidden, "neither the alternate screen nor a hidden cursor")
        tap.check(screen.lines[0].startswith("oncemq top  %s" % cluster.names), screen.text)
        tap.check("lag" in screen.lines[1] and "duplicates suppressed" in screen.lines[1], screen.text)
        for key, title in (("t", "TOPIC"), ("u", "GROUP"), ("b", "BROKER"), ("g", "GROUP")):
            terminal.type(key)
            screen.wait(lambda s, title=title: s.lines[2].startswith(title))
        terminal.type("s")
        screen.wait_text("by BEHIND")
        terminal.type("p")
        screen.wait_text("PAUSED")
        terminal.type("p").type("h")
        screen.wait_text("this, and back")
        terminal.type("?q")
        tap.equal(terminal.end(), cli.OK)
        screen.text
        tap.check(not screen.alternate and not screen.hidden, "the terminal is not as it was")


@tap.test("only what has changed is written: an idle cluster costs a few bytes, and nothing is wiped")
def _():
    terminal, screen = live("--topic", "Quiet")
    with terminal:
        screen.wait_text("groups 0-0 of 0")
        wiped, before = screen.wiped, len(terminal.text)
        clock = screen.lines[0]
        for _ in range(3):  # the clock of the first line moves
            screen.wait(lambda s, was=clock: s.lines[0] != was)
            clock = screen.lines[0]
        tap.equal(screen.wiped, wiped, "wiped")
        tap.check(len(terminal.text) - before < 3000, "%d bytes were written" % (len(terminal.text) - before))
        terminal.type("q").end()


@tap.test("a resized terminal is drawn anew, down to a few columns and one row")
def _():
    terminal, screen = live()
    with terminal:
        screen.wait(lambda s: s.row_of("billing"))
        for rows, columns in ((10, 60), (4, 20), (2, 8), (1, 1), (30, 140)):
            screen.resize(rows, columns)
            screen.wait(lambda s: s.lines[0].startswith("oncemq top"[:columns]))
        screen.wait(lambda s: s.row_of("billing"))
        terminal.type("q")
        tap.equal(terminal.end(), cli.OK)


@tap.test("Ctrl-C and SIGTERM put the terminal back")
def _():
    for number in (None, signal.SIGTERM):
        terminal, screen = live()
        with terminal:
            screen.wait_text("GROUP")
            terminal.type("\003") if number is None else terminal.signal(number)
            tap.equal(terminal.end(), cli.INTERRUPTED)
            screen.text
            tap.check(not screen.alternate and not screen.hidden, "the terminal is not as it was")


@tap.test("Ctrl-Z gives the shell its terminal, fg takes it again")
def _():
    shell = 'set -m; "$0" top --interval 200ms; echo "now the shell"; fg >/dev/null; echo "over"'
    terminal = cli.Terminal(["bash", "-c", shell, cluster.binary], cluster.env(), rows=20, columns=110)
    screen = Screen(terminal, 20, 110)
    with terminal:
        screen.wait_text("GROUP")
        terminal.type("\032")
        terminal.expect("now the shell")
        screen.wait(lambda s: s.alternate and s.row_of("billing"), what="the screen did not come back")
        tap.check("\033[?1049l" in terminal.text[:terminal.text.index("now the shell")], "the shell wrote on our screen")
        terminal.type("q")
        terminal.expect("over")


@tap.test("thousands of rows are scrolled through, the arrows, pages, Home and End go where they say")
def _():
    crowd.topic("Wide", queues=1000)
    for group in ("one", "two", "three"):
        crowd.group(group)
        for queue in (0, 999):
            crowd.commit(group, "Wide", 0, queue=queue)
    terminal, screen = live("--view", "queues", "--topic", "Wide", rows=15)
    with terminal:
        total = int(screen.wait(lambda s: re.search(r"queues 1-11 of ([3-9]\d{3})", s.text)).group(1))  # its digits may come one by one
        terminal.type("\033[B")
        screen.wait_text("queues 2-12 of")
        terminal.type("j\033[A")
        screen.wait_text("queues 2-12 of")
        terminal.type("\033[6~")
        screen.wait_text("queues 13-23 of")
        terminal.type("\033[F")
        screen.wait_text("queues %d-%d of" % (total - 10, total))
        terminal.type("\033[H")
        screen.wait_text("queues 1-11 of")
        terminal.type("q").end()


@tap.test("more topics and groups than are asked after at once: each has its own numbers")
def _():
    crowd.group("last")
    for n in range(70):
        crowd.topic("Many-%02d" % n, queues=1 + n % 3)
        crowd.send("Many-%02d" % n, 1 + n % 5, queue=0)
        crowd.commit("last", "Many-%02d" % n, 1, queue=0)
    cluster.wait_route("Many-69")
    shown = cluster.json("top", "--once", *QUICK, command="top")[-1]
    for n in range(70):
        topic = named(shown["topics"], topic="Many-%02d" % n)
        tap.equal((topic["queues"], topic["messages"]), (1 + n % 3, 1 + n % 5))
        tap.equal(named(shown["groups"], group="last", topic="Many-%02d" % n)["members"], 0, "members")


def one_broker(name, address):
    """A name server that knows one broker, and no topics."""
    table = {"brokerAddrTable": {name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": address}}}, "clusterAddrTable": {"c": [name]}}
    bodies = {remoting.GET_BROKER_CLUSTER_INFO: table, remoting.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {"topicList": []}}
    return lambda request: fake.reply(body=remoting.dumps(bodies[request.code]))


@tap.test("text of strangers cannot move the cursor")
def _():
    with fake.Fake(one_broker("\033[2Jevil\nname", "127.0.0.1:1")) as names:
        terminal, screen = live("--view", "brokers", ONCEMQ_NAMES=names.address)
        with terminal:
            screen.wait(lambda s: s.row_of("?[2Jevil?name"))
            terminal.type("q")
            tap.equal(terminal.end(), cli.OK)


@tap.test("a broker that hangs keeps nobody from leaving")
def _():
    with fake.Fake(lambda request: None) as broker, fake.Fake(one_broker("b", broker.address)) as names:
        terminal, screen = live("--timeout", "10m", ONCEMQ_NAMES=names.address)
        with terminal:
            screen.wait_text("looking")
            broker.wait(28)
            terminal.type("q")
            tap.equal(terminal.end(), cli.OK)
            screen.text
            tap.check(not screen.alternate, "the terminal is not as it was")


@tap.test("a broker that goes away is shown as gone, and comes back")
def _():
    if cluster.apache:
        tap.skip("one broker is enough for this")
    terminal, screen = live("--view", "brokers")
    with terminal:
        screen.wait_text(" ok ")
        cluster.daemon.kill9()
        screen.wait_text("do not answer")
        screen.wait_text("gone")
        terminal.type("g")
        screen.wait_text("does not answer at %s" % cluster.broker)
        cluster.daemon.start()
        screen.wait(lambda s: s.row_of("billing") and "not answer" not in s.text, timeout=40)
        terminal.type("q")
        tap.equal(terminal.end(), cli.OK)


@tap.test("a broker that the name servers have forgotten is gone, not unheard of, and comes back")
def _():
    with Daemon(roles="names") as names, Daemon(roles="broker", settings={"namesrvAddr": names.names, "brokerName": "far"}) as broker:
        terminal, screen = live("--view", "brokers", ONCEMQ_NAMES=names.names)
        with terminal:
            screen.wait(lambda s: s.row_of("far") and " ok " in s.row_of("far"))
            broker.kill9()
            screen.wait(lambda s: s.row_of("far") and " gone " in s.row_of("far"))
            terminal.type("t")
            screen.wait_text("broker far is gone")
            terminal.type("b")
            broker.start()
            screen.wait(lambda s: s.row_of("far") and " ok " in s.row_of("far"), timeout=60)
            terminal.type("q")
            tap.equal(terminal.end(), cli.OK)


@tap.test("without name servers one picture is a failure, with status 4")
def _():
    nowhere = cli.Cluster(start=False)
    tap.check("127.0.0.1:1" in nowhere.run("top", "--once", status=cli.UNREACHABLE).err, "where we looked is not said")


tap.main()
