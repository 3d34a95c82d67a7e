"""oncemq store check and dump: folders at rest, in use and damaged. Nothing is ever changed."""

import base64
import json
import os
import shutil
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import cli, daemon as daemons, process, remoting as r, tap  # noqa: E402

LOG_FILE, COUNT = 65536, 400
SETTINGS = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 2000}
COMPRESSED = 1
ESCAPE = "\x1b]0;owned\x07"
oncemq = cli.Cluster(start=False)


def send(client, topic, body, number, **fields):
    properties = {"TAGS": "TagA", "KEYS": "order-%d" % number, "UNIQ_KEY": "7F0000010A2B18B4AAC2%012X" % number}
    answer = client.request(r.SEND_MESSAGE_V2, *r.send_v2(topic, body, properties, number % 2, **fields))
    tap.equal(answer.code, r.SUCCESS, "send code")


def fill(daemon):
    with r.Client(daemon.broker) as client:
        for number in range(COUNT):
            send(client, "Orders" if number % 4 else "Others", b"number %d " % number * 20, number)
        send(client, "Odd", b"\xff\x00\x80", 0)
        send(client, "Odd", ("a title: " + ESCAPE).encode(), 1)
        send(client, "Odd", zlib.compress(b"long " * 100), 2, sysFlag=COMPRESSED)


with daemons.Daemon(settings=SETTINGS) as daemon:
    fill(daemon)
    daemon.stop()
    sound = daemon.folder
ALL = COUNT + 3


def copy():
    target = os.path.join(process.temp_folder(), "data")
    shutil.copytree(sound, target)
    return target


def digest(folder):
    found = {}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            info = os.stat(path)
            found[path] = (info.st_size, info.st_mtime_ns, info.st_mode, zlib.crc32(open(path, "rb").read()) if name in files else 0)
    return found


def unchanged(folder, run):
    before = digest(folder)
    result = run()
    tap.equal(digest(folder), before, "the folder")
    return result


def flip(folder, position):
    path = os.path.join(folder, "commitlog", "%020d" % (position - position % LOG_FILE))
    with open(path, "r+b") as file:
        file.seek(position % LOG_FILE)
        byte = file.read(1)[0]
        file.seek(position % LOG_FILE)
        file.write(bytes([byte ^ 1]))


def dump(folder, *args, **more):
    return unchanged(folder, lambda: oncemq.json("store", "dump", folder, *args, **more))


messages = dump(sound)


@tap.test("a sound folder is called sound, as a sheet and as JSON")
def _():
    found = unchanged(sound, lambda: oncemq.json("store", "check", sound))
    tap.equal((found["state"], found["damages"], found["findings"], found["clean_stop"]), ("ok", 0, [], True))
    tap.equal((found["records"], found["units"], found["log_file_size"]), (ALL, ALL, LOG_FILE))
    sheet = oncemq.ok("store", "check", sound).out
    tap.check("State" in sheet and "Records          %d" % ALL in sheet, sheet)


@tap.test("damage is named with its file and place, with status 1, and is the same as oncemqd --check finds")
def _():
    folder = copy()
    flip(folder, messages[50]["position"] + 4)
    found = unchanged(folder, lambda: oncemq.json("store", "check", folder, status=cli.FAILED))
    status, lines, _ = daemons.run("--check", folder)
    tap.equal((status, found["state"]), (1, "bad"))
    said = ["%s: %s%s: %s" % (each["grade"], each["file"], "" if each["at"] is None else " at %d" % each["at"], each["text"])
            for each in found["findings"]]
    tap.equal(said, lines.splitlines()[:-1])
    tap.equal(len(said), found["damages"] + found["notes"])
    tap.check("damaged" in oncemq.run("store", "check", folder, status=cli.FAILED).err, "no word of damage")


@tap.test("dump shows every message of the log in its order, with all that is known of it")
def _():
    tap.equal(len(messages), ALL)
    places = [each["position"] for each in messages]
    tap.equal(places, sorted(places))
    first = messages[1]
    tap.equal((first["topic"], first["queue"], first["offset"], first["tag"], first["keys"]), ("Orders", 1, 0, "TagA", "order-1"))
    tap.equal((first["id"], first["properties"]["KEYS"], first["body"]), ("7F0000010A2B18B4AAC2%012X" % 1, "order-1", None))
    tap.equal(first["offset_id"], r.message_id(r.split_address(first["store_host"]), first["position"]))
    tap.equal(first["body_size"], len(b"number 1 ") * 20)
    lines = oncemq.ok("store", "dump", sound).out.splitlines()
    tap.equal(len(lines), ALL)
    tap.check("Orders" in lines[1] and "order-1" in lines[1], lines[1])


@tap.test("dump takes a topic, a queue, a place to begin and a count")
def _():
    tap.equal(len(dump(sound, "--topic", "Orders")), COUNT * 3 // 4)
    queue = dump(sound, "--topic", "Orders", "--queue", "1", "--from", "20", "--count", "5")
    tap.equal([(each["queue"], each["offset"]) for each in queue], [(1, n) for n in range(20, 25)])
    tap.equal(dump(sound, "--from", str(messages[300]["position"])), messages[300:])
    tap.equal(dump(sound, "--from", str(messages[300]["position"] + 1)), messages[301:])
    tap.equal(dump(sound, "--topic", "Nobody"), [])
    tap.check("--topic" in oncemq.run("store", "dump", sound, "--queue", "1", status=cli.USAGE).err, "a queue without a topic")


@tap.test("dump shows bodies: text as it is, other bytes as base64, compressed ones expanded; a terminal gets no control characters")
def _():
    odd = {each["keys"]: each for each in dump(sound, "--topic", "Odd", "--body")}
    tap.equal(base64.b64decode(odd["order-0"]["body64"]), b"\xff\x00\x80")
    tap.equal((odd["order-1"]["body"], odd["order-1"]["body64"]), ("a title: " + ESCAPE, None))
    tap.equal(odd["order-2"]["body"], "long " * 100)
    with oncemq.terminal("store", "dump", sound, "--topic", "Odd", "--body") as terminal:
        tap.equal(terminal.end(), cli.OK)
        tap.check("a title: \\x1b]0;owned\\x07" in terminal.text and ESCAPE not in terminal.text, terminal.text)


@tap.test("dump goes on behind damage, says where it was, and ends with status 1")
def _():
    folder = copy()
    flip(folder, messages[50]["position"] + 4)
    flip(folder, messages[200]["position"] + 4)
    result = unchanged(folder, lambda: oncemq.run("store", "dump", folder, status=cli.FAILED))
    tap.equal(len(result.out.splitlines()), ALL - 2)
    tap.check("damage: commitlog/" in result.err and "goes on at %d" % messages[51]["position"] in result.err, result.err)
    tap.check("in 2 places" in result.err, result.err)
    shown = dump(folder, status=cli.FAILED)
    tap.equal([each["position"] for each in shown], [each["position"] for i, each in enumerate(messages) if i not in (50, 200)])


@tap.test("a folder that a daemon uses can be dumped while it goes on, and is not checked")
def _():
    folder = copy()
    with daemons.Daemon(settings=SETTINGS, folder=folder) as daemon:
        with r.Client(daemon.broker) as client:
            send(client, "Live", b"now", 1)
            live = oncemq.json("store", "dump", folder, "--topic", "Live", "--body")
            tap.equal([each["body"] for each in live], ["now"])
            refused = oncemq.run("store", "check", folder, status=cli.FAILED)
            tap.check(str(daemon.pid) in refused.err and "store dump" in refused.err, refused)
            send(client, "Live", b"and then", 2)
        daemon.stop()
    tap.equal(len(oncemq.json("store", "dump", folder, "--topic", "Live")), 2)
    tap.equal(oncemq.json("store", "check", folder)["damages"], 0)


@tap.test("what is no store is refused, and nothing is made")
def _():
    folder = process.temp_folder()
    for command in ("check", "dump"):
        missing = os.path.join(folder, "missing")
        tap.check("missing" in oncemq.run("store", command, missing, status=cli.NOT_FOUND).err, "the folder is not named")
        tap.check("commitlog" in oncemq.run("store", command, folder, status=cli.NOT_FOUND).err, "what is missing is not named")
        tap.equal(json.loads(oncemq.run("store", command, folder, "--json", status=cli.NOT_FOUND).err)["error"], "not_found")
        oncemq.run("store", command, __file__, status=cli.FAILED)
        tap.equal(os.listdir(folder), [])
        oncemq.run("store", command, status=cli.USAGE)


@tap.test("a reader that has enough ends a dump quietly")
def _():
    done = subprocess.run(["sh", "-c", '"$0" store dump "$1" | head -n 3', oncemq.binary, sound], capture_output=True, text=True,
                          env=oncemq.env(), timeout=60, check=False)
    tap.equal((len(done.stdout.splitlines()), done.stderr), (3, ""))


tap.main()
