"""Retention and a disk that fills up, in a real daemon. A module that is preloaded says how full the disk is; the keeper
looks every ten seconds, so each step takes up to that long."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import daemon as daemons, fulldisk, process, remoting as r, tap  # noqa: E402

SERVICE_NOT_AVAILABLE = 14
ROUND_S = 25  # of ten seconds, and a machine that is busy
FILE = 65536


def pull(client, offset):
    return client.request(r.PULL_MESSAGE, {
        "consumerGroup": "g", "topic": "Kept", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0})


def send(client):
    return client.request(r.SEND_MESSAGE_V2, *r.send_v2("Kept", b"k" * 1000, queue_id=0))


def offset_of(client, code):
    return int(client.request(code, {"topic": "Kept", "queueId": 0}).ext["offset"])


def log_files(daemon):
    folder = os.path.join(daemon.folder, "commitlog")
    return sorted(int(name) for name in os.listdir(folder)) if os.path.isdir(folder) else []


@tap.test("a disk that fills up: old files go, then messages are refused, then they are taken again")
def _():
    with fulldisk.FullDisk() as disk:
        settings = {"mappedFileSizeCommitLog": FILE, "flushCommitLogThoroughInterval": 100}
        with daemons.Daemon(settings=settings, env=disk.env) as d, r.Client(d.broker) as client:
            process.wait_until(lambda: log_files(d) == [0], 20, "the first log file, ahead of the first message")
            for _ in range(300):
                tap.equal(send(client).code, r.SUCCESS, "answer")
            end = log_files(d)[-1]
            tap.check(end > 4 * FILE, "files %s" % log_files(d))

            disk.fill(89)  # above diskSpaceCleanForciblyRatio: whatever the age, and all but the last
            process.wait_until(lambda: log_files(d)[0] >= end - FILE, ROUND_S, "old files gone")
            process.wait_until(lambda: offset_of(client, r.GET_MIN_OFFSET) > 0, 20, "a later first offset")
            first = offset_of(client, r.GET_MIN_OFFSET)
            tap.equal(offset_of(client, r.GET_MAX_OFFSET), 300, "maximum offset")
            gone = pull(client, 0)
            tap.equal((gone.code, gone.ext["nextBeginOffset"]), (r.PULL_OFFSET_MOVED, str(first)), "pull from the start")
            tap.equal(pull(client, first).code, r.SUCCESS, "pull of what is left")
            process.wait_until(lambda: "old files deleted log_files=" in d.read_log(), 20, "a line about it")

            disk.fill(95)
            process.wait_until(lambda: send(client).code == SERVICE_NOT_AVAILABLE, ROUND_S, "a refusal")
            tap.check("95 %" in send(client).remark, "remark %r" % send(client).remark)
            process.wait_until(lambda: "store takes no messages" in d.read_log(), 20, "a line about it")
            first = offset_of(client, r.GET_MIN_OFFSET)  # what was sent meanwhile may have begun another file
            tap.equal(pull(client, first).code, r.SUCCESS, "pull while messages are refused")

            disk.fill(60)
            process.wait_until(lambda: send(client).code == r.SUCCESS, ROUND_S, "messages taken again")
            process.wait_until(lambda: "store takes messages again disk_used=60%" in d.read_log(), 20, "a line about it")
            d.restart()
            with r.Client(d.broker) as again:
                tap.equal(offset_of(again, r.GET_MIN_OFFSET), first, "minimum offset after a restart")
                tap.equal(pull(again, first).code, r.SUCCESS, "pull after a restart")


tap.main()
