"""`oncemq audit`: planted duplicates are found, all of them and no others, on brokers and in folders."""

import hashlib
import os
import random
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, daemon as daemons, process, remoting as r, tap  # noqa: E402

MANY, PLANTED = int(os.environ.get("AUDIT_MESSAGES", "60000")), 137
seed = int(os.environ.get("TEST_SEED", random.SystemRandom().randrange(1 << 48)))
dice = random.Random(seed)
tap.note("TEST_SEED=%d" % seed)
cluster = cli.Cluster(args=["--clock", "virtual"])


def data_folder():
    """Of the broker."""
    return os.environ["SERVER_FOLDER"] if cluster.given else cluster.daemon.folder


def unique(number):
    return "7F0000010A2B18B4AAC2%012X" % number


def send(client, topic, items):
    """Messages as (number, key, body), spread over queues."""
    for at in range(0, len(items), 200):
        body = r.batch([(text, {"UNIQ_KEY": unique(number), **({"KEYS": key} if key else {})}) for number, key, text in items[at:at + 200]])
        fields, _ = r.send_v2(topic, body, queue_id=(at // 200) % 4, batch=True)
        tap.equal(client.request(r.SEND_BATCH_MESSAGE, fields, body).code, r.SUCCESS, "batch")


def plant(topic, many, planted):
    """So many messages, of which so many are copies of others, by id and by key; shuffled."""
    items = [(n, "order-%d" % n if n % 3 else "", b"message %d" % n) for n in range(many - planted)]
    by_id = planted // 2
    keyed = [each for each in items if each[1]]
    copies = dice.sample(items, by_id)
    copies += [(many + i, key, text) for i, (_, key, text) in enumerate(dice.sample(keyed, planted - by_id))]
    items += copies
    dice.shuffle(items)
    # The same key with another body, and the same id with another body, as in a batch that shares one: no duplicates.
    decoys = [(2 * many + i, "order-1", b"another %d" % i) for i in range(20)] + [(3 * many, "", b"part %d" % i) for i in range(20)]
    with r.Client(cluster.broker) as client:
        send(client, topic, items + decoys)
    return by_id, planted - by_id, many + len(decoys)


def topic_of(audit, name):
    return next(each for each in audit["topics"] if each["topic"] == name)


@tap.test("%d planted duplicates among %d messages: %d are found, with examples that are there" % (PLANTED, MANY, PLANTED))
def _():
    by_id, by_key, messages = plant("Audited", MANY, PLANTED)
    cluster.wait_route("Audited")
    process.wait_until(lambda: cluster.json("audit", "Audited")["messages"] == messages, 30, "all are in their queues")
    audit = cluster.json("audit", "Audited")
    tap.equal([audit["messages"], audit["sent_twice"]], [messages, PLANTED])
    found = topic_of(audit, "Audited")
    tap.equal([found["messages"], found["sent_twice"], found["by_id"], found["by_key"]], [messages, PLANTED, by_id, by_key])
    copies = [each for each in audit["copies"] if each["topic"] == "Audited"]
    tap.equal(len(copies), 20, "ten pairs")
    for first, second in zip(copies[::2], copies[1::2]):
        tap.equal(first["kind"], second["kind"])
        same = "id" if first["kind"] == "id" else "keys"
        tap.check(first[same] and first[same] == second[same], (first, second))
        tap.check((first["queue"], first["offset"]) != (second["queue"], second["offset"]), "one and the same place")


@tap.test("the folder says the same as the broker, also while it is in use")
def _():
    live, still = cluster.json("audit", "Audited"), cluster.json("audit", "--dir", data_folder(), "Audited")
    for each in ("messages", "sent_twice", "topics"):
        tap.equal(still[each], live[each], each)
    tap.equal(still["refused_at_producer"], None)
    tap.check(all(each["id"] for each in still["copies"]), "a copy without its id")


@tap.test("dead letters that were sent back, and what brokers keep for themselves, are no duplicates")
def _():
    before = cluster.json("audit")["resent"]
    cluster.ok("send", "Calm", "m{n}", "--count", "50", "--key", "k{n}")
    with r.Client(cluster.broker) as client:
        for back in ({}, {"ONCEMQ_DEAD_LETTER": "0/17"}):
            answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Calm", b"back", {"UNIQ_KEY": unique(1), **back}, 0))
            tap.equal(answer.code, r.SUCCESS)
    process.wait_until(lambda: cluster.json("audit", "Calm")["resent"] > 0, 30, "it is in its queue")
    audit = cluster.json("audit")
    tap.equal(audit["resent"], before + 1)
    tap.equal(topic_of(audit, "Calm")["sent_twice"], 0)
    tap.equal({each["topic"] for each in audit["topics"]} & {"Audited", "Calm"}, {"Audited", "Calm"})
    tap.check(not any(each["topic"].startswith(("%", "rmq_sys_", "RMQ_SYS_")) for each in audit["topics"]), audit["topics"])


@tap.test("a time, a topic that is not there, a folder that is none")
def _():
    tap.equal(cluster.json("audit", "Audited", "--from", "+1h")["messages"], 0)
    tap.equal(cluster.json("audit", "Audited", "--to", "-1h")["messages"], 0)
    tap.equal(cluster.json("audit", "--dir", data_folder(), "--from", "+1h")["messages"], 0)
    tap.equal(cluster.run("audit", "Nowhere").status, cli.NOT_FOUND)
    tap.equal(cluster.run("audit", "--dir", "/nowhere").status, cli.NOT_FOUND)


# ---- the ledger ----

EVENTS = {"claimed": 1, "renewed": 2, "done": 3, "released": 4, "forgotten": 5, "step": 6, "suppressed": 7, "refused": 8, "lost": 9}
OVERTOOK = 2


def entry(event, key, group="billing", flags=0, token=7):
    def text(value):
        return struct.pack(">H", len(value)) + value.encode() + b"\0"
    fixed = struct.pack(">BBH32sQqqqQ", EVENTS[event], 1, flags, hashlib.sha256(key.encode()).digest(), token, 1, 2, 1700000000000, 3)
    return fixed + text(group) + text("here@1") + text(key) + text("Orders") + text("") + text("") + struct.pack(">I", 0)


def ledger_folder(records):
    """A folder whose log has such records, as the ledger writes them: stored under a name of the same length, and renamed."""
    if cluster.apache:
        tap.skip("it is not about Apache's servers")
    alias = "ledger_made_by_test"
    folder = tempfile.mkdtemp(dir=cluster.home)
    with daemons.Daemon(folder=folder, settings={"mappedFileSizeCommitLog": 1 << 20}) as other, r.Client(other.broker) as client:
        for entries in records:
            body = struct.pack(">BBH", 1, 0, len(entries)) + b"".join(entries)
            fields, body = r.send_v2(alias, body, {"UNIQ_KEY": unique(1)}, 0)
            tap.equal(client.request(r.SEND_MESSAGE_V2, fields, body).code, r.SUCCESS)
        other.stop()
    name = os.path.join(folder, "commitlog", "%020d" % 0)
    with open(name, "r+b") as file:
        text = file.read()
        tap.equal(text.count(alias.encode()), len(records), "places to rename")
        file.seek(0)
        file.write(text.replace(alias.encode(), b"rmq_sys_ONCE_LEDGER"))
    return folder


@tap.test("what the ledger tells: delivered again, suppressed, refused, unsure; retries of failures are none of it")
def _():
    folder = ledger_folder([
        [entry("claimed", "plain"), entry("done", "plain")],
        [entry("claimed", "dup"), entry("done", "dup"), entry("suppressed", "dup"), entry("suppressed", "dup")],
        [entry("claimed", "failed"), entry("released", "failed"), entry("claimed", "failed"), entry("done", "failed")],
        [entry("claimed", "other body"), entry("done", "other body"), entry("refused", "other body")],
        [entry("claimed", "slow"), entry("claimed", "slow", flags=OVERTOOK, token=8), entry("lost", "slow"), entry("done", "slow", token=8)],
        [entry("claimed", "guessed"), entry("lost", "guessed", token=9), entry("done", "guessed"), entry("lost", "guessed")],  # never had it; has done it
        [entry("claimed", "plain", "shipping"), entry("done", "plain", "shipping")],
    ])
    audit = cluster.json("audit", "--dir", folder)
    billing, shipping = sorted(audit["groups"], key=lambda each: each["group"])
    tap.equal(billing, {"group": "billing", "keys": 6, "done": 6, "delivered_again": 4, "suppressed": 2, "refused": 1, "unsure": 1})
    tap.equal(shipping, {"group": "shipping", "keys": 1, "done": 1, "delivered_again": 0, "suppressed": 0, "refused": 0, "unsure": 0})
    tap.equal([audit["state"], audit["delivered_again"], audit["suppressed"], audit["unsure"], audit["bad_records"]], ["warn", 4, 2, 1, 0])
    tap.equal([each["key"] for each in audit["doubts"]], ["slow", "slow", "guessed", "guessed"])
    shown = cluster.ok("audit", "--dir", folder).out
    tap.check("billing" in shown and "lost while its handler ran" in shown, shown)


@tap.test("records of the ledger that cannot be read are counted, and the others are")
def _():
    folder = ledger_folder([[entry("claimed", "a"), entry("done", "a")[:-1]], [entry("claimed", "b"), entry("done", "b")]])
    audit = cluster.json("audit", "--dir", folder)
    tap.equal([audit["bad_records"], audit["groups"][0]["keys"], audit["state"]], [1, 1, "warn"])


tap.main()
