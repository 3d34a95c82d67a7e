#!/usr/bin/env python3
"""The pure parts of our client against the classes of the Java client: the same questions, the same answers.

Questions by chance go to ClientOracle.java and to client_parts.c (CLIENT_PARTS, the built program), which understand the
same lines. SEED=… repeats a run.

    tests/interop/client_parts.py --write      writes tests/vectors/compressed.txt
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from harness import apache, tap  # noqa: E402

TYPES = {"ZLIB": 0x301, "LZ4": 0x101, "ZSTD": 0x201}
WORDS = ["order-7", "a", "", "中文", "🚀x", "k1 k2", "k1  k1 k3 ", "DefaultRegion", "0A0B0C0D1234DEADBEEF92C53E000000", "é"]


def lines_through(command, questions):
    text = "\n".join(questions) + "\n"
    ran = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                         timeout=300)
    if ran.returncode != 0:
        raise AssertionError("%s ended with status %d: %s" % (command[0], ran.returncode, ran.stderr[-2000:].decode()))
    answers = ran.stdout.decode().split("\n")[:-1]
    tap.equal(len(answers), len(questions), "answers")
    return answers


def java(questions):
    with tempfile.TemporaryDirectory(prefix="oncemq-parts-") as home:
        return lines_through(["java", "-Xmx512m", *apache.QUICK, "-Duser.home=%s" % home, "-cp", apache.classpath(),
                              "oncemq.interop.ClientOracle"], questions)


def ours(questions):
    return lines_through([os.environ["CLIENT_PARTS"]], questions)


def compare(questions, refused=(0, 0)):
    """Ask both; the first answer that differs fails the test. Java refuses at least and at most so many of them."""
    theirs, mine = java(questions), ours(questions)
    least, most = refused
    tap.check(least <= theirs.count("X") <= most, "Java refuses %d of %d" % (theirs.count("X"), len(theirs)))
    for question, wanted, found in zip(questions, theirs, mine):
        tap.check(found == wanted, "%.600r\nJava says %.600r\nwe say    %.600r" % (question, wanted, found))


def dice():
    reason = apache.missing()
    if reason:
        tap.skip(reason)
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    tap.note("SEED=%d" % seed)
    return random.Random(seed)


# ---- sharing queues ----

ROOMS = ["hz", "sh", "bj", "sz", "中"]


def queues_of(chance):
    """Sorted queues of some brokers, most of them called room@name, some oddly."""
    brokers = set()
    for _ in range(chance.choice([1, 2, 3, 6])):
        name = "broker-%s" % chance.choice("abcdefgh")
        form = chance.choice(["%s@%s"] * 12 + ["%s%s", "%s@%s@", "%s@x@%s", "%s@@%s", "%s@%s@@"])
        brokers.add(form % (chance.choice(ROOMS), name))
    most = chance.choice([1, 2, 4, 8, 16])
    return ["%s:%d" % (broker, i) for broker in sorted(brokers) for i in range(chance.randint(1, most))]


def clients_of(chance):
    count = chance.choice([1, 1, 2, 3, 3, 5, 8, 20, 60])
    clients = ["%s@10.0.%d.%d@%d#%d" % (chance.choice(ROOMS), chance.randrange(3), chance.randrange(250),
                                        chance.randrange(1, 99999), chance.randrange(1 << 40)) for _ in range(count)]
    return sorted(set(clients))


def share_questions(chance, count):
    for _ in range(count):
        queues, clients, topic = queues_of(chance), clients_of(chance), "Topic%d" % chance.randrange(50)
        if chance.random() < 0.02:
            queues = []
        if chance.random() < 0.02:
            clients = []
        rooms = ",".join(chance.sample(ROOMS, chance.randint(1, 3)))
        nodes = chance.choice([10, 10, 10, 1, 3, 100])
        kind, argument = chance.choice([
            ("averagely", ""), ("circle", ""), ("room", rooms), ("hash", nodes), ("hash", nodes),
            ("nearby-averagely", ""), ("nearby-circle", ""), ("nearby-hash", nodes), ("nearby-room", rooms)])
        stranger = chance.random() < 0.03
        members = ["10.9.9.9@1"] if stranger or not clients else clients if len(clients) < 9 else chance.sample(clients, 8)
        for me in members + ([""] if chance.random() < 0.02 else []):
            yield "\t".join(["share", kind, str(argument), me, ",".join(clients), topic, ",".join(queues)])


@tap.test("LB-4 LB-5 LB-7 LB-8 LB-9: each strategy gives each member the queues that the Java client would take, in the same order")
def _():
    chance = dice()
    questions = list(share_questions(chance, 900))
    tap.note("%d questions" % len(questions))
    compare(questions, refused=(1, len(questions) // 4))


@tap.test("LB-6: what was configured is what a member takes")
def _():
    chance = dice()
    questions = []
    for _ in range(100):
        queues = queues_of(chance)
        chosen = chance.sample(queues, chance.randint(0, len(queues)))
        questions.append("\t".join(["share", "config", ",".join(chosen), "me", "me,you", "T", ",".join(queues)]))
    compare(questions)


@tap.test("names are in the order of Java's strings, also beyond the first plane of Unicode")
def _():
    chance = dice()
    letters = "aAzZ09-_@%#\u00e9\u4e2d\ud7ff\ue000\ufffd\uffff\U00010000\U0001f680\U0010ffff"
    compare(["sort\t" + ",".join("".join(chance.choice(letters) for _ in range(chance.randint(1, 4))) for _ in range(40))
             for _ in range(50)])


# ---- picking queues ----

@tap.test("the queue of a message is the one that Java's producer picks, with slow and unreachable brokers too")
def _():
    chance = dice()
    brokers = ["broker-a", "broker-b", "broker-c"]
    questions = []
    for _ in range(500):
        known = chance.sample(brokers, chance.randint(1, 3))
        queues = ["%s:%d" % (broker, i) for broker in sorted(known) for i in range(chance.randint(1, 4))]
        slow, unreachable = (",".join(b for b in brokers if chance.random() < 0.4) for _ in range(2))
        lasts = ",".join(chance.choice(["", "", *brokers]) for _ in range(12))
        avoid = chance.choice(["true", "false"])
        questions.append("\t".join(["pick", str(chance.randrange(1000)), avoid, slow, unreachable, ",".join(queues), lasts]))
    compare(questions)


@tap.test("messages with a sharding key go to the queue that Java's selector by hash picks")
def _():
    chance = dice()
    keys = WORDS + ["polygenelubricants", "order-created", "标签"] + ["order-%d" % chance.randrange(10 ** 9) for _ in range(300)]
    compare(["key\t%s\t%d" % (key, chance.choice([1, 2, 3, 7, 8, 16, 1000])) for key in keys])


@tap.test("a slow or failing broker is left out as long as by the Java client")
def _():
    dice()
    edges = (50, 100, 550, 1000, 1800, 2000, 3000, 5000, 10000, 15000)
    times = [0, 1] + [edge + step for edge in edges for step in (-1, 0, 1)] + [60000]
    compare(["fault\t%d\t%s" % (took, failed) for took in times for failed in ("true", "false")])


# ---- bodies ----

def bodies(chance):
    yield b"x"
    yield b"hello" * 4
    yield bytes(100000)
    for size in (4096, 70000, 300000, 4 << 20):
        words = [chance.randbytes(chance.randint(1, 12)) for _ in range(200)]
        yield b" ".join(chance.choice(words) for _ in range(size // 6))[:size]
    yield chance.randbytes(50000)


@tap.test("bodies that either client compressed are the same again when either expands them")
def _():
    chance = dice()
    plain = [(kind, body) for body in bodies(chance) for kind in TYPES]
    questions = ["compress\t%s\t%d\t%s" % (kind, chance.choice([1, 5, 9]), body.hex()) for kind, body in plain]
    for maker, reader in ((java, ours), (ours, java)):
        packed = maker(questions)
        back = reader(["expand\t%d\t%s" % (TYPES[kind], each) for (kind, _), each in zip(plain, packed)])
        for (kind, body), each in zip(plain, back):
            tap.check(each == body.hex(), "%s of %d bytes: %.80s" % (kind, len(body), each))


# ---- trace and ids ----

def trace_question(chance):
    def word():
        return chance.choice(WORDS)

    texts = [word() for _ in range(10)]
    numbers = [chance.randrange(1 << 22), chance.randrange(5000), chance.randrange(17), chance.randrange(5),
               chance.randrange(3), chance.randrange(5)]
    kind = chance.choice(["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"])
    texts[3] = chance.choice([w for w in WORDS if " " not in w])  # an id has no blanks
    if kind == "Recall":
        texts[5] = ""  # Java sets no keys there
    flags = [chance.choice(["true", "false"]) for _ in range(2)]
    return "\t".join(["trace", kind, str(chance.randrange(1 << 41)), *texts, *map(str, numbers), *flags])


@tap.test("trace records are byte for byte those of Java's encoder, and its decoder reads ours")
def _():
    chance = dice()
    questions = [trace_question(chance) for _ in range(400)]
    compare(questions)
    records = [answer.split(" ")[0] for answer in ours(questions)]
    several = ["untrace\t" + "".join(chance.sample(records, 5)) for _ in range(50)]
    decoded = java(["untrace\t" + record for record in records] + several)
    tap.check("X" not in decoded, "Java cannot decode %r" % records[decoded.index("X")] if "X" in decoded else "")
    for question, fields in zip(questions, decoded):
        asked, found = question.split("\t")[1:], fields.split("|")
        tap.equal(found[0], asked[0], "kind")
        tap.equal(found[5], asked[5] or "null", "id")
    for answer in decoded[len(records):]:
        tap.equal(answer.count(";"), 4, "records after the first")


@tap.test("Java's client takes our unique ids apart as its own")
def _():
    chance = dice()
    parts = [("%d.%d.%d.%d" % tuple(chance.randbytes(4)), chance.randrange(1 << 16)) for _ in range(50)]
    made = ours(["newid\t%s\t%d" % part for part in parts])
    for (address, pid), answer in zip(parts, java(["id\t" + each for each in made])):
        tap.equal(answer, "%s %d" % (address, pid), "parts")


# ---- vectors ----

def vectors():
    """Bodies whose bytes compress_test.c knows: 'a', and letters in turn in every second hundred."""
    sizes = (1, 20, 1000, 5000)
    whole = [bytes(97 + i % 26 * (i // 100 % 2) for i in range(size)) for size in sizes]
    asked = [(kind, body) for kind in TYPES for body in whole]
    for (kind, body), packed in zip(asked, java(["compress\t%s\t5\t%s" % (kind, body.hex()) for kind, body in asked])):
        yield "0x%x\t%d\t%s\n" % (TYPES[kind], len(body), packed)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        comment = "# Written by tests/interop/client_parts.py --write; README.md has the form.\n"
        (TESTS / "vectors" / "compressed.txt").write_text(comment + "".join(vectors()))
    else:
        tap.main()
