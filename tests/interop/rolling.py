#!/usr/bin/env python3
"""A cluster moves broker by broker, as docs/migrating.md says: ours joins one of Apache's at Apache's name server, Apache's broker is
closed for writing and drained, and then it goes. And the name server's settings move with their file."""

import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, process, remoting as r, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402

TOPIC, CLUSTER = "Moving", "DefaultCluster"
READ, BOTH = 4, 6


def ask(address, code, ext=None, body=b""):
    with r.Client(address) as client:
        return client.request(code, ext, body)


def perms(names):
    """Broker name -> permission of the topic, as clients are told."""
    answer = ask(names, r.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    return {each["brokerName"]: each["perm"] for each in answer.json()["queueDatas"]} if answer.code == r.SUCCESS else {}


def make_topic(address):
    answer = ask(address, r.UPDATE_AND_CREATE_TOPIC, {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": BOTH,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False})
    tap.equal(answer.code, r.SUCCESS, "making the topic: %s" % answer.remark)


@tap.test("ours joins Apache's cluster, Apache's broker is closed for writing, and goes")
def rolling():
    with apache.NameServer() as names, apache.Broker(names.address, name="broker-a") as theirs:
        theirs.wait_registered(names.address)
        settings = {"namesrvAddr": names.address, "brokerName": "broker-b", "brokerClusterName": CLUSTER}
        with Daemon(roles="broker", settings=settings) as ours:
            for broker in (theirs.announced, ours.broker):
                make_topic(broker)
            process.wait_until(lambda: perms(names.address) == {"broker-a": BOTH, "broker-b": BOTH}, 60, "a route to both")
            clusters = ask(names.address, r.GET_BROKER_CLUSTER_INFO).json()
            tap.equal(sorted(clusters["clusterAddrTable"][CLUSTER]), ["broker-a", "broker-b"], "the cluster")
            for broker in (theirs.announced, ours.broker):
                tap.equal(ask(broker, r.SEND_MESSAGE_V2, *r.send_v2(TOPIC, b"moving", queue_id=0)).code, r.SUCCESS, "send")

            tap.equal(ask(names.address, r.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}).code, r.SUCCESS, "wiping")
            tap.equal(perms(names.address), {"broker-a": READ, "broker-b": BOTH}, "permissions while it is drained")
            theirs.kill9()  # a stop takes Apache's broker half a minute, and clients see the same
            process.wait_until(lambda: perms(names.address) == {"broker-b": BOTH}, 60, "a route to ours alone")


@tap.test("the key/value settings of Apache's name server are ours when their file is")
def key_values():
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC, "value": "broker-a:2"}
    with apache.NameServer() as names:
        tap.equal(ask(names.address, r.PUT_KV_CONFIG, put).code, r.SUCCESS, "putting it")
        written = os.path.join(names.home, "namesrv", "kvConfig.json")
        process.wait_until(lambda: os.path.exists(written), 10, "Apache's file")
        folder = process.temp_folder()
        target = os.path.join(folder, "data", "namesrv", "config", "kvConfig.json")
        os.makedirs(os.path.dirname(target))
        shutil.copyfile(written, target)
    with Daemon(roles="names", folder=os.path.join(folder, "data")) as ours:
        answer = ask(ours.names, r.GET_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC})
        tap.equal((answer.code, answer.ext.get("value")), (r.SUCCESS, "broker-a:2"), "the setting")


if __name__ == "__main__":
    reason = apache.missing()
    if reason:
        tap.skip_all(reason)
    tap.main()
