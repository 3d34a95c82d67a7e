#!/usr/bin/env python3
"""The Node client (ali-ons), unchanged, on our daemon.

The client is the package in node/package-lock.json; node/ is a puppet around it that this script leads
(harness/puppet.py). It makes no topics and has neither one-way nor batch sends, no orderly and no pull consumer. What
every language can do is in plays.py. stage.py says where it is played: ENDPOINT=apache takes Apache's servers, to prove the tests themselves,
and ENDPOINT=host:port a name server that is already there.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import puppet, tap  # noqa: E402
from interop import plays, stage  # noqa: E402


play = plays.Once(lambda: plays.Play(plays.stage(), puppet.start_node, creates=False))


def own():
    """The play, where the broker is ours to stop and configure."""
    play().stage.need_own()
    return play()


@tap.test("Node: id, keys, tag, properties and body arrive unchanged")
def _():
    plays.properties_survive(play(), play().topic("Properties"))


@tap.test("Node: what is sent one by one and all at once arrives once, where the answer says")
def _():
    plays.all_ways_arrive(play(), ["sync", "async"])


@tap.test("Node: a compressed body and one near 4 MiB arrive as they were")
def _():
    plays.large_bodies_arrive(play())


@tap.test("Node: a body over the limit is refused, and the connection goes on")
def _():
    plays.too_large_is_refused(play(), "")


@tap.test("Node: two instances of a group share the queues; when one is killed, the other gets what it had not finished")
def _():
    plays.instances_share_and_one_dies(play())


@tap.test("Node: broadcasting reaches every instance")
def _():
    plays.broadcast_reaches_all(play())


@tap.test("Node: a subscription to tags gets these and no others")
def _():
    plays.tags_filter(play())


@tap.test("Node: a subscription in SQL92 gets what its expression is true for")
def _():
    plays.sql_filters(play())


@tap.test("Node: a delayed message is not delivered before its time")
def _():
    plays.delayed_is_never_early(play())


@tap.test("Node: a failed message comes back on the ladder with the same id and a higher count")
def _():
    plays.retries_come_back(own())


@tap.test("Node: after the last retry a message is a dead letter, which nobody can read before an operator allows it")
def _():
    plays.dead_letters(own())


@tap.test("Node: a consumer begins at the first message, at the end, or at a time; a new group of a young topic at the first")
def _():
    plays.begins_where_told(play())


@tap.test("Node: a group goes on where it stopped after a restart of its client")
def _():
    plays.offsets_survive(play(), restart=False)


@tap.test("Node: no acknowledged message is missing after a SIGKILL of the broker; clients recover by themselves")
def _():
    plays.crash_loses_nothing(own())


@tap.test("Node: a group goes on where it stopped after a restart of the broker")
def _():
    plays.offsets_survive(own(), restart=True)


@tap.test("Node: client and broker end well after all this")
def _():
    plays.ends_well(play())


if __name__ == "__main__":
    stage.run(puppet.missing_node())
