#!/usr/bin/env python3
"""docs/protocol.md tells the truth: about a running daemon, about Apache RocketMQ's list of codes, and about its servers.

    tests/docs/codes.py --capture      asks Apache's name server and broker again, and writes tests/vectors/request_codes.txt
"""

import struct
import sys
import zipfile

import stage
from harness import apache, remoting, tap
from harness.daemon import Daemon

sys.path.insert(0, str(stage.ROOT / "tools"))
import protocol  # noqa: E402

NOT_SUPPORTED = remoting.REQUEST_CODE_NOT_SUPPORTED
CLASS = "org/apache/rocketmq/remoting/protocol/RequestCode.class"
# How many bytes the constants of a class file have behind their tag; 1 is text and says so itself.
CONSTANT_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def answered(address, code):
    """Whether a server knows a request. It gets no fields, so that it does nothing."""
    with remoting.Client(address, timeout=20) as client:
        answer = client.request(code, {})
        return answer.code != NOT_SUPPORTED, answer.remark or ""


@tap.test("docs/protocol.md is what the source says today")
def _():
    written = protocol.PAGE.read_text(encoding="utf-8")
    tap.check(written == protocol.render(), "run `make docs`: docs/protocol.md is out of date")


@tap.test("a daemon answers exactly what docs/protocol.md says it answers, on that port, and names what it refuses")
def _():
    wrong = []
    with Daemon() as daemon:
        for row in protocol.rows():
            for side, address in (("broker", daemon.broker), ("name server", daemon.names)):
                known, remark = answered(address, row.number)
                if known != (row.side == side):
                    wrong.append("%d %s: the %s %s it" % (row.number, row.name, side, "answers" if known else "refuses"))
                if not known and row.name not in remark:
                    wrong.append("%d: %r does not name %s" % (row.number, remark, row.name))
    tap.equal(wrong, [], "differences")


@tap.test("docs/protocol.md has every request of Apache RocketMQ 5.5.0, by the class of its jar")
def _():
    reason = apache.missing()
    if reason:
        tap.skip(reason)
    [jar] = [each for each in apache.classpath().split(":") if "/rocketmq-remoting-5.5.0.jar" in each]
    theirs = constants(zipfile.ZipFile(jar).read(CLASS))
    tap.check(len(theirs) > 150, "%d constants" % len(theirs))
    ours = {row.name: row.number for row in protocol.rows() if row.apache is not None}
    tap.equal(sorted(theirs.items() - ours.items()), [], "missing or of another number here")
    tap.equal(sorted(ours.items() - theirs.items()), [], "said to be Apache's, and is not")


def constants(data):
    """The whole numbers that a class file declares as constants, by name."""
    count, at, pool, index = struct.unpack_from(">H", data, 8)[0], 10, {}, 1
    while index < count:
        tag = data[at]
        size = 2 + struct.unpack_from(">H", data, at + 1)[0] if tag == 1 else CONSTANT_SIZES[tag]
        pool[index] = data[at + 3:at + 1 + size].decode() if tag == 1 else data[at + 1:at + 1 + size]
        at += 1 + size
        index += 2 if tag in (5, 6) else 1
    at += 6
    at += 2 + 2 * struct.unpack_from(">H", data, at)[0]
    found = {}
    [fields] = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(fields):
        _, name, _, attributes = struct.unpack_from(">HHHH", data, at)
        at += 8
        for _ in range(attributes):
            kind, size = struct.unpack_from(">HI", data, at)
            if pool[kind] == "ConstantValue":
                [found[pool[name]]] = struct.unpack(">i", pool[struct.unpack_from(">H", data, at + 6)[0]])
            at += 6 + size
    return found


def capture():
    [jar] = [each for each in apache.classpath().split(":") if "/rocketmq-remoting-5.5.0.jar" in each]
    codes = sorted(constants(zipfile.ZipFile(jar).read(CLASS)).items(), key=lambda each: each[1])
    with apache.NameServer() as names, apache.Broker(names.address) as broker:
        broker.wait_registered(names.address)
        servers = (("broker", broker.address), ("name server", names.address))
        lines = ["%d\t%s\t%s\n" % (code, name, ", ".join(side for side, address in servers if answered(address, code)[0]))
                 for name, code in codes]
    protocol.CAPTURED.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    capture() if sys.argv[1:] == ["--capture"] else tap.main()
