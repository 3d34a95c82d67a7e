"""The cluster and settings of brokers from the command line."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, fake, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

cluster = cli.Cluster()


def setting(name):
    [row] = cluster.json("broker", "config", name)
    return row["value"]


@tap.test("cluster: name servers and brokers that answer")
def _():
    seen = cluster.json("cluster")
    tap.equal([(s["address"], s["state"], s["brokers"]) for s in seen["name_servers"]], [(cluster.names, "ok", 1)])
    [broker] = seen["brokers"]
    tap.equal((broker["cluster"], broker["id"], broker["address"], broker["state"], broker["error"]),
              ("DefaultCluster", 0, cluster.broker, "ok", None))
    tap.check(("OnceMQ" in broker["version"] or "V5_5_0" in broker["version"]) and broker["up"] >= 0 and 0 <= broker["disk"] <= 100, broker)
    text = cluster.ok("cluster").out
    tap.check(text.startswith("Name servers\n") and cluster.broker in text, text)


@tap.test("cluster: who does not answer is bad, with the reason, and the status is 5")
def _():
    seen = cluster.json("cluster", "-n", "127.0.0.1:1;" + cluster.names, status=cli.PARTLY)
    tap.equal([(s["address"], s["state"]) for s in seen["name_servers"]], [("127.0.0.1:1", "bad"), (cluster.names, "ok")])
    tap.check("refused" in seen["name_servers"][0]["error"].lower(), seen)
    cluster.run("cluster", "-n", "127.0.0.1:1;127.0.0.1:2", status=cli.UNREACHABLE)

    def other(request):
        return fake.reply(body=r.dumps({"brokerAddrTable": {"ghost": {"brokerName": "ghost", "cluster": "c", "brokerAddrs": {"1": "127.0.0.1:1"}}}}))
    server = fake.Fake(other)
    seen = cluster.json("cluster", "-n", cluster.names + ";" + server.address, status=cli.PARTLY)
    tap.equal([s["state"] for s in seen["name_servers"]], ["ok", "warn"], "they know different brokers")
    ghost = [b for b in seen["brokers"] if b["broker"] == "ghost"][0]
    tap.equal((ghost["id"], ghost["state"], ghost["version"]), (1, "bad", None))
    server.close()


@tap.test("broker config: all, some, and a name that is not there")
def _():
    rows = cluster.json("broker", "config")
    names = [row["name"] for row in rows]
    tap.check(len(names) > 50 and names == sorted(names) and all(row["address"] == cluster.broker for row in rows), names)
    tap.equal([row["name"] for row in cluster.json("broker", "config", "fileReservedTime", "deleteWhen")], ["fileReservedTime", "deleteWhen"])
    result = cluster.run("broker", "config", "fileReservedTme", status=cli.NOT_FOUND)
    tap.check("did you mean fileReservedTime" in result.err, result)


@tap.test("broker config NAME=VALUE asks with what it was, changes, and shows what counts now")
def _():
    before = setting("fileReservedTime")
    with cluster.terminal("broker", "config", "fileReservedTime=49") as t:
        t.expect("fileReservedTime=49 (now %s)" % before).expect("[y/N]").type("n\n")
        tap.equal(t.end(), cli.DECLINED)
    cluster.run("broker", "config", "fileReservedTime=49", status=cli.DECLINED)
    tap.equal(setting("fileReservedTime"), before)
    rows = cluster.json("broker", "config", "fileReservedTime=49", "deleteWhen=05", "--yes")
    tap.equal([(row["name"], row["value"], row["was"], row["result"]) for row in rows],
              [("fileReservedTime", "49", before, "changed"), ("deleteWhen", "05", "04", "changed")])
    tap.equal(setting("fileReservedTime"), "49")
    [row] = cluster.json("broker", "config", "fileReservedTime=49", "--yes")
    tap.equal(row["result"], "unchanged")


@tap.test("broker config: what the broker refuses, or does not do, is said")
def _():
    result = cluster.run("broker", "config", "fileReservedTime=soon", "--yes", status=cli.FAILED)
    tap.check("failed" in result.out and "fileReservedTime" in result.err, result)
    tap.equal(setting("fileReservedTime"), "49")
    cluster.run("broker", "config", "noSuchSetting=1", "--yes", status=cli.NOT_FOUND)
    for args in (("=1",), ("deleteWhen=05", "fileReservedTime"), ("deleteWhen=05\nfileReservedTime=1",)):
        cluster.run("broker", "config", *args, "--yes", status=cli.USAGE)


@tap.test("broker config of several brokers, and of one of them")
def _():
    if cluster.apache:
        tap.skip("one broker of Apache's is enough for this machine")
    with Daemon(roles="broker", settings={"namesrvAddr": cluster.names, "brokerName": "second"}) as second:
        def brokers(*args):
            return [row["broker"] for row in cluster.json("broker", "config", "deleteWhen", *args)]
        process.wait_until(lambda: len(brokers()) == 2, 10, "both brokers", pause=0.1)
        tap.equal(brokers("--broker", "second"), ["second"])
        tap.equal([b["broker"] for b in cluster.json("cluster")["brokers"]].count("second"), 1)
        rows = cluster.json("broker", "config", "deleteWhen=03", "--broker", "second", "--yes")
        tap.equal([(row["broker"], row["value"]) for row in rows], [("second", "03")])
        tap.equal(sorted(row["value"] for row in cluster.json("broker", "config", "deleteWhen")), ["03", "05"])
        tap.equal(len(cluster.json("broker", "config", "deleteWhen=06", "--yes")), 2)
        second.stop()


@tap.test("settings that are no properties are read with care")
def _():
    def answer(request):
        if request.code == 106:
            return fake.reply(body=r.dumps({"brokerAddrTable": {"b": {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": server.address}}}}))
        return fake.reply(body=body)
    for body, wanted in ((b"", []), (b"\n\n=\n==\n", []), (b"a=b\\\\", [("a", "b\\")]), (b"# x\n!y\na = 1\r\nb=c\\:d\\=e\n", [("a", "1"), ("b", "c:d=e")]),
                         (b"a\\=b=c", [("a=b", "c")]), (b"k=\x1b[2J\xff z", None), (b"a=\\n\\u20ac\nb=1", [("a", "\n\u20ac"), ("b", "1")])):
        server = fake.Fake(answer)
        result = cluster.run("broker", "config", "-n", server.address, status=cli.OK)
        tap.check("\033" not in result.out, result)
        if wanted is not None:
            tap.equal([(row["name"], row["value"]) for row in cluster.json("broker", "config", "-n", server.address)], wanted, body)
        server.close()
    for body in (b"a=\x00", b"a=\\u12"):
        server = fake.Fake(answer)
        tap.check("broker b: its settings:1:" in cluster.run("broker", "config", "-n", server.address, status=cli.FAILED).err, body)
        server.close()


tap.main()
