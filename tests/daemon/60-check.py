"""oncemqd --check DIR: what is sound is called sound, what is damaged is named, and nothing is changed."""

import os
import shutil
import struct
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, process, remoting as r, tap  # noqa: E402

LOG_FILE, QUEUE_FILE, COUNT = 65536, 4000, 400
SIZES = {"mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": QUEUE_FILE}
LOG, QUEUE = "commitlog/%020d", "consumequeue/Checked/%d/%020d"
UNIT = struct.Struct(">QIq")
GET_RUNTIME = 28


def fill(daemon, first=0, count=COUNT):
    with r.Client(daemon.broker) as client:
        opaques = [client.send(r.SEND_MESSAGE_V2, *r.send_v2("Checked", b"number %d " % n * 20, {"TAGS": "TagA"}, n % 2))
                   for n in range(first, first + count)]
        for opaque in opaques:
            tap.equal(client.wait(opaque).code, r.SUCCESS, "send code")


def unit(folder, queue, offset):
    with open(os.path.join(folder, QUEUE % (queue, 0)), "rb") as file:
        file.seek(offset * UNIT.size)
        return UNIT.unpack(file.read(UNIT.size))


def filed(folder):
    """Whether the last units are in their files, where they get to within a second or so."""
    try:
        return all(unit(folder, queue, COUNT // 2 - 1)[1] for queue in (0, 1))
    except (FileNotFoundError, struct.error):
        return False


def made(hard):
    """A folder with some hundred messages, left by a clean stop or by SIGKILL."""
    with daemons.Daemon(settings=SIZES) as daemon:
        fill(daemon)
        if hard:
            process.wait_until(lambda: filed(daemon.folder), 20, "units in their files")
        daemon.kill9() if hard else daemon.stop()
        return daemon.folder


folders = {"clean": made(False), "killed": made(True)}


def copy(which):
    target = os.path.join(process.temp_folder(), "data")
    shutil.copytree(folders[which], target)
    return target


def digest(folder):
    """path -> size, content and time of change of everything below a folder."""
    found = {}
    for root, names, files in os.walk(folder):
        for name in names + files:
            path = os.path.join(root, name)
            info = os.stat(path)
            crc = zlib.crc32(open(path, "rb").read()) if name in files else 0
            found[os.path.relpath(path, folder)] = (info.st_size, crc, info.st_mtime_ns, info.st_mode)
    return found


def check(folder, status, digested=True):
    """Run it, and see that the folder is as it was; returns its lines."""
    before = digested and digest(folder)
    found, out, errors = daemons.run("--check", folder)
    tap.equal(found, status, "status (%s%s)" % (out, errors))
    tap.equal(digested and digest(folder), before, "folder afterwards")
    return out.splitlines() if status < 2 else errors.splitlines()


def change(folder, path, at, with_=0x10):
    with open(os.path.join(folder, path), "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ with_]))


def says(lines, *parts):
    tap.check(any(all(part in line for part in parts) for line in lines), "%r says nothing of %r" % (lines, parts))


@tap.test("a folder that was closed is sound, and the summary counts what is in it")
def _():
    lines = check(copy("clean"), 0)
    tap.equal(len(lines), 1, "lines (%s)" % lines)
    tap.check(lines[0].startswith("sound: %d records" % COUNT), lines[0])
    tap.check("%d units in 2 queues" % COUNT in lines[0] and "last stop clean" in lines[0], lines[0])


@tap.test("a folder that was killed is sound, with a note")
def _():
    lines = check(copy("killed"), 0)
    says(lines, "note: abort")
    says(lines, "sound: %d records" % COUNT, "not clean")


@tap.test("a changed bit in the middle of the log is named, and where it goes on")
def _():
    folder = copy("clean")
    position, size, _ = unit(folder, 0, 50)
    change(folder, LOG % (position - position % LOG_FILE), position % LOG_FILE + 100)
    lines = check(folder, 1)
    says(lines, "damage: commitlog/", " at %d: " % (position % LOG_FILE), "goes on at %d" % (position + size))
    says(lines, "damage: consumequeue/Checked/0", "messages 50 to 50", "not in the log")
    says(lines, "damaged: %d records" % (COUNT - 1))


@tap.test("a torn tail after a crash is a note, and the daemon starts")
def _():
    folder = copy("killed")
    position, size, _ = max(unit(folder, queue, COUNT // 2 - 1) for queue in (0, 1))
    path = os.path.join(folder, LOG % (position - position % LOG_FILE))
    with open(path, "r+b") as file:
        file.seek(position % LOG_FILE + size // 2)
        file.write(bytes(size - size // 2))
    lines = check(folder, 0)
    says(lines, "note: commitlog/", " at %d: " % (position % LOG_FILE), "no record")
    says(lines, "sound: %d records" % (COUNT - 1))
    with daemons.Daemon(settings=SIZES, folder=folder) as daemon:
        fill(daemon, COUNT, 10)
        daemon.stop()
    says(check(folder, 0), "sound: %d records" % (COUNT + 9))


@tap.test("a log file that is missing, or has another size, is named")
def _():
    folder = copy("clean")
    os.truncate(os.path.join(folder, LOG % LOG_FILE), LOG_FILE - 1000)
    says(check(folder, 1), "damage: " + LOG % LOG_FILE, "%d bytes" % (LOG_FILE - 1000))
    os.unlink(os.path.join(folder, LOG % LOG_FILE))
    says(check(folder, 1), "damage: " + LOG % LOG_FILE, "is missing")


@tap.test("a wrong unit and a missing queue file are named")
def _():
    folder = copy("clean")
    change(folder, QUEUE % (1, 0), 20 * 7 + 6)
    says(check(folder, 1), "damage: consumequeue/Checked/1 at %d" % (20 * 7), "1 units do not fit")
    os.unlink(os.path.join(folder, QUEUE % (1, 0)))
    lines = check(folder, 1)
    says(lines, "damage: consumequeue", "units when they were closed")


@tap.test("timers are counted, and what is wrong with their files is named")
def _():
    with daemons.Daemon(settings=SIZES) as daemon:
        with r.Client(daemon.broker) as client:
            for n in range(20):
                command = client.request(r.SEND_MESSAGE_V2, *r.send_v2("Timed", b"x", {"TIMER_DELAY_SEC": str(600 + n)}, 0))
                tap.equal(command.code, r.SUCCESS, "send code")
            process.wait_until(lambda: client.request(GET_RUNTIME).json()["table"]["timersPending"] == "20", 20, "timers")
        daemon.stop()
        folder = daemon.folder
    lines = check(folder, 0)
    tap.check("; 20 timers in 1 files; " in lines[-1], lines)
    log = "timerlog/%020d" % 0
    change(folder, log, 52 * 7 + 29, 0x40)
    says(check(folder, 1, False), "damage: timerlog at %d: 1 timers lead to no message" % (52 * 7))
    change(folder, log, 52 * 7 + 29, 0x40)
    change(folder, log, 52 * 7 + 3)
    says(check(folder, 1, False), "damage: timerlog at %d: what is here is no timer" % (52 * 7))
    change(folder, log, 52 * 7 + 3)
    change(folder, "config/timercheck", 0, 0x80)
    says(check(folder, 1, False), "damage: config/timercheck")


@tap.test("a folder in use is refused with the pid of who uses it")
def _():
    with daemons.Daemon(settings=SIZES) as daemon:
        fill(daemon, 0, 10)
        status, out, errors = daemons.run("--check", daemon.folder)
        tap.equal((status, out), (2, ""), "status and output")
        tap.check("in use by process %d" % daemon.pid in errors, errors)
        fill(daemon, 10, 10)
        daemon.stop()


@tap.test("what is no store is refused, and no folder is made")
def _():
    empty = process.temp_folder()
    says(check(empty, 2), "there is no store")
    missing = os.path.join(empty, "missing")
    status, _, errors = daemons.run("--check", missing)
    tap.equal((status, os.path.exists(missing)), (2, False), "status, and whether it is there (%s)" % errors)
    status, _, errors = daemons.run("--check")
    tap.equal(status, 2, "status without a folder (%s)" % errors)


@tap.test("a folder without a lock, or one that may not be written, is checked all the same")
def _():
    folder = copy("clean")
    os.unlink(os.path.join(folder, "lock"))
    says(check(folder, 0), "sound:")
    for root, names, files in os.walk(folder):
        for name in names + files:
            os.chmod(os.path.join(root, name), 0o555 if name in names else 0o444)
    says(check(folder, 0), "sound:")


tap.main()
