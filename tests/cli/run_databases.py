"""`oncemq run --sql` on servers: values of all kinds, and a sidecar that is killed in the middle of a thousand messages."""

import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, process, remoting as r, servers, tap  # noqa: E402

cluster = cli.Cluster()
MANY = 1000


class PostgreSQL(servers.PostgreSQL):
    client = shutil.which("psql")

    def ask(self, sql):
        return subprocess.run([self.client, self.url, "-X", "-At", "-c", sql], check=True, capture_output=True, text=True).stdout.strip()


class MariaDB(servers.MariaDB):
    client = shutil.which("mariadb") or shutil.which("mysql")

    def ask(self, sql):
        return subprocess.run([self.client, "--protocol=tcp", "-h", "127.0.0.1", "-P", str(self.port), "-u", servers.USER,
                               "--password=" + servers.PASSWORD, self.database, "-N", "-B", "-e", sql],
                              check=True, capture_output=True, text=True).stdout.strip().replace("\t", "|")


def send(topic, bodies, **properties):
    with r.Client(cluster.broker) as client:
        for number, body in enumerate(bodies):
            more = dict(properties, UNIQ_KEY="%s%024X" % (topic[:2].encode().hex().upper() * 2, number))
            answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, json.dumps(body).encode(), more))
            tap.equal(answer.code, r.SUCCESS, "code of a send")
    cluster.wait_route(topic)


def args(server, topic, group, sql, *more):
    return ["run", "--topic", topic, "--group", group, "--from", "first", "--key", "{body.id}", "--store", server.url, "--create",
            "--sql", sql, *more]


def values(server, insert):
    """Text, numbers, truth, nothing, JSON and code of a stranger's, into columns of their types."""
    server.ask("CREATE TABLE paid (id VARCHAR(40), amount DECIMAL(10,2), big BIGINT, good BOOLEAN, note TEXT, more TEXT, region TEXT)")
    hostile = "x'); DROP TABLE paid; -- \\ ? :key"
    body = {"id": 1, "amount": 12.50, "big": 4611686018427387905, "good": True, "note": hostile, "more": {"a": [1, "ü"]}}
    send("Values" + server.name, [body, body, {"id": "two", "amount": 3, "good": False}], region="eu")
    topic = "Values" + server.name
    events = cluster.json(*args(server, topic, "values", insert, "--parallel", "1", "--count", "3"), command="run")
    tap.equal((events[-1]["done"], events[-1]["already"]), (2, 1), events)
    tap.equal(server.ask("SELECT id, amount, big, note, more, region FROM paid WHERE good"),
              "1|12.50|4611686018427387905|%s|%s|eu" % (hostile.replace("\\", "\\\\") if server.name == "mariadb" else hostile,
                                                       '{"a":[1,"ü"]}'))
    tap.equal(server.ask("SELECT id FROM paid WHERE NOT good AND big IS NULL AND note IS NULL"), "two")


def killed(server):
    """Sidecars are killed while they write; rows are neither lost nor doubled."""
    server.ask("CREATE TABLE done (id INT)")
    topic = "Killed" + server.name
    send(topic, [{"id": i} for i in range(MANY)])
    command = args(server, topic, "killed", "INSERT INTO done (id) VALUES (:body.id)", "--json")
    for _ in range(3):
        child = cluster.start(*command)
        child.wait_line(lambda line: json.loads(line)["event"] in ("done", "already"), 30)
        child.process.send_signal(signal.SIGKILL)
        child.wait(10)
        tap.unwatch(child)
    child = cluster.start(*command)
    process.wait_until(lambda: int(server.ask("SELECT count(*) FROM done")) >= MANY, 60, "all rows")
    child.process.send_signal(signal.SIGTERM)
    tap.equal(child.finish(40)[0], 0, "status of a stop")
    tap.equal(server.ask("SELECT count(*), count(DISTINCT id) FROM done"), "%d|%d" % (MANY, MANY))


def need(kind):
    if kind.missing or not kind.client:
        tap.skip(kind.missing or "its command line is missing")
    return kind(durable=False)


@tap.test("on PostgreSQL values have the types of their columns, and a sidecar killed in the middle neither loses nor doubles a row")
def _():
    with need(PostgreSQL) as server:
        values(server, "INSERT INTO paid SELECT :body.id, :body.amount, :body.big::bigint, :body.good, :body.note, :body.more, "
                       ":prop.region /* :none ? */ WHERE $$:key$$ <> ':id'")
        killed(server)


@tap.test("on MariaDB values have the types of their columns, and a sidecar killed in the middle neither loses nor doubles a row")
def _():
    with need(MariaDB) as server:
        values(server, "INSERT INTO paid VALUES (:body.id, :body.amount, :body.big, :body.good, :body.note, :body.more, "
                       ":prop.region) # :none ?")
        killed(server)


tap.main()
