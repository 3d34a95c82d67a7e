#!/usr/bin/env python3
"""liboncemq by TLS: on an oncemqd, or with ENDPOINT=apache on Apache's servers.

All servers here take plain connections as well, for the test's own questions, and demand a certificate of whoever speaks
TLS. That the library really does is seen on the wire between them.
"""

import os
import pathlib
import random
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import INVALID, LOST, NETWORK, TIMEOUT  # noqa: E402
from harness import certs, process, proxy, puppet, remoting, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from harness.wire import Wire  # noqa: E402
from interop import plays, stage  # noqa: E402
from interop.stage import unique  # noqa: E402

if certs.missing():
    stage.run(certs.missing())

authority, stranger = certs.Authority(), certs.Authority("stranger")
server, member = authority.issue("server"), authority.issue("member", "DNS:member")
SERVER = {"tls.server.certPath": server.cert, "tls.server.keyPath": server.key, "tls.server.need.client.auth": "require",
          "tls.server.authClient": "true", "tls.server.trustCertPath": authority.cert}
TRUSTING = {"tls": True, "tls_ca": authority.cert}
MEMBER = {**TRUSTING, "tls_cert": member.cert, "tls_key": member.key}


def servers():
    if stage.ENDPOINT == "apache":
        return stage.Stage(plays.SETTINGS, plays.APACHE_ONLY, properties=["tls.test.mode.enable=false"] + [
            "%s=%s" % pair for pair in SERVER.items()])
    return stage.Stage({**plays.SETTINGS, **SERVER})


play = plays.Once(lambda: plays.Play(servers(), lambda name, names: puppet.start_c(name, names, **MEMBER)))
count = iter(range(1000))


def attempt(names, within=15, **options):
    """One send by a client of its own; the receipt, or its refusal."""
    c = tap.watch(puppet.start_c("c%d" % next(count), names))
    begin = time.monotonic()
    try:
        c.call("producer", name="p", group="g", retries=-1, timeout_ms=5000, **options)
        return c.call("send", name="p", messages=[puppet.message(unique("Attempt"), b"x")])[0]
    except puppet.Refused as error:
        return error
    finally:
        tap.check(time.monotonic() - begin < within, "it took %.1f s" % (time.monotonic() - begin))
        c.end()
        tap.unwatch(c)


def refused(words, names, codes=(NETWORK,), **options):
    error = attempt(names, **options)
    tap.check(isinstance(error, puppet.Refused), "it was not refused: %s" % error)
    tap.check(error.code in codes and words in str(error), "code %s, %r; wanted %s, %r" % (error.code, error, codes, words))


def own():
    """For tests that need a server of ours."""
    if stage.ENDPOINT:
        tap.skip("on ours only")


@tap.test("what is sent by TLS arrives by TLS, once and whole, in every way of sending")
def _():
    plays.properties_survive(play(), unique("Properties"))
    plays.all_ways_arrive(play(), ["sync", "async", "oneway", "batch"])


@tap.test("compressed bodies and those near 4 MiB arrive as they were")
def _():
    plays.large_bodies_arrive(play())


@tap.test("nothing of it can be read on the wire")
def _():
    with proxy.ByteRelay("wire", "127.0.0.1:0", play().stage.names) as wire:
        tap.check(isinstance(attempt(wire.address, **MEMBER), dict), "a message is stored")
        by_plain = attempt(wire.address)
        tap.check(isinstance(by_plain, dict), "and so without TLS: %s" % by_plain)
        topic = unique("Attempt").encode()
        tap.equal((wire.seen[1, True][:1], topic in wire.seen[1, True] + wire.seen[1, False]), (b"\x16", False), "TLS")
        tap.check(topic in wire.seen[2, True], "and what it would look like")


@tap.test("a server that another authority has signed is refused, by the name of our file; not by who does not look")
def _():
    refused("is not signed by an authority in " + stranger.cert, play().stage.names, tls=True, tls_ca=stranger.cert)
    refused("is not signed by an authority that this system trusts", play().stage.names, tls=True)
    receipt = attempt(play().stage.names, **{**MEMBER, "tls_ca": None}, tls_insecure=True)
    tap.check(isinstance(receipt, dict), "who does not look: %s" % receipt)


@tap.test("a server that demands a certificate refuses who has none, or a wrong one, and the error says so")
def _():
    # In TLS 1.3 its word comes when the first request is already under way.
    refused("demand a certificate from us", play().stage.names, (NETWORK, LOST), **TRUSTING)
    refused("does not accept our certificate", play().stage.names, (NETWORK, LOST), **TRUSTING,
            tls_cert=stranger.cert, tls_key=stranger.key)


@tap.test("a certificate for another name is refused, with the names that it has")
def _():
    own()
    named = authority.issue("named", "DNS:broker.example,IP:127.0.0.1")
    settings = {"tls.server.certPath": named.cert, "tls.server.keyPath": named.key}
    with tap.watch(Daemon(settings=settings)) as d:
        port = d.names.rsplit(":", 1)[1]
        refused("the certificate of localhost:%s is not for that name: it is for \"broker.example, 127.0.0.1\"" % port,
                "localhost:" + port, **TRUSTING)
        tap.check(isinstance(attempt(d.names, **TRUSTING), dict), "by its address it is good")


@tap.test("files that are no good are refused when the client is opened, and so are options without tls")
def _():
    nowhere = os.path.join(authority.folder, "nowhere.pem")
    for options, words in (
            ({"tls": True, "tls_ca": nowhere}, nowhere), ({"tls": True, "tls_cert": member.cert}, "the key is missing"),
            ({"tls": True, "tls_cert": member.cert, "tls_key": server.key}, server.key),
            ({"tls_ca": authority.cert}, "`tls` itself is false"), ({"tls_insecure": True}, "`tls` itself is false")):
        refused(words, "127.0.0.1:1", (INVALID,), **options)


@tap.test("plain to a server that demands TLS, and TLS to one that has none, fail with a sentence, in time")
def _():
    own()
    settings = {**SERVER, "tls.server.need.client.auth": "none", "tls.server.mode": "enforcing", "tls.enable": "true"}
    with tap.watch(Daemon(settings=settings)) as strict, tap.watch(Daemon()) as plain:
        refused("perhaps it demands TLS", strict.names, (NETWORK, LOST))
        tap.check(isinstance(attempt(strict.names, **TRUSTING), dict), "it does")
        refused("perhaps it does not offer TLS", plain.names, **TRUSTING)


@tap.test("servers that answer a handshake with silence, with nonsense or by hanging up are left in time")
def _():
    own()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes the call, and nobody answers it
        refused("no answer to the TLS handshake", "127.0.0.1:%d" % silent.getsockname()[1], **TRUSTING)
    for words, said in (("is not TLS", b"220 mail.example\r\n"), ("hung up in the TLS handshake", b"")):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            c = tap.watch(puppet.start_c("c%d" % next(count), "127.0.0.1:%d" % listener.getsockname()[1]))
            c.call("producer", name="p", group="g", retries=-1, timeout_ms=5000, **TRUSTING)
            call = c.start("send", name="p", messages=[puppet.message("T", b"x")])
            peer, _ = listener.accept()
            peer.sendall(said)
            peer.shutdown(socket.SHUT_RDWR)
            try:
                c.finish(call)
                raise AssertionError("it was not refused")
            except puppet.Refused as error:
                tap.check(error.code == NETWORK and words in str(error), "code %s, %r" % (error.code, error))
            c.end()
            tap.unwatch(c)
            peer.close()


@tap.test("a connection that is cut anywhere in its handshake is made again")
def _():
    own()
    for limit in (1, 100, 600, 1000, 1500, 2000):
        with proxy.ByteRelay("wire", "127.0.0.1:0", play().stage.names, limits={1: limit, 2: limit}) as wire:
            c = tap.watch(puppet.start_c("c%d" % next(count), wire.address))
            c.call("producer", name="p", group="g", **MEMBER)

            def stored():
                try:
                    return c.call("send", name="p", messages=[puppet.message(unique("Cut"), b"x")])[0]
                except puppet.Refused as error:
                    return tap.check(error.code in (NETWORK, LOST, TIMEOUT), "code %s, %s" % (error.code, error))

            process.wait_until(stored, 30, "a receipt after cuts at %d bytes" % limit)
            c.end()
            tap.unwatch(c)


@tap.test("over a line that delays, halves and cuts, what is acknowledged is stored")
def _():
    own()
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    tap.note("SEED=%d" % seed)
    both = authority.issue("both", "IP:127.0.0.1,IP:127.0.0.2")
    port = process.free_ports(1)[0]
    # The broker announces the line's address instead of its own.
    settings = {"bindAddress": "127.0.0.2", "brokerIP1": "127.0.0.1", "listenPort": port,
                "tls.server.certPath": both.cert, "tls.server.keyPath": both.key}
    with tap.watch(Daemon(settings=settings)) as d, Wire("127.0.0.2:%d" % port, seed, cut=0.05, port=port) as wire:
        c = tap.watch(puppet.start_c("c%d" % next(count), d.names))
        c.call("producer", name="p", group="g", timeout_ms=4000, retries=5, **TRUSTING)
        codes = {}
        for number in range(10):
            ids = ["%d-%d" % (number, i) for i in range(100)]
            results = c.call("send", timeout=60, name="p", mode="async",
                             messages=[puppet.message("Bad", b"x" * 500, id=each) for each in ids])
            codes.update({each: result.get("code") for each, result in zip(ids, results)})
        tap.check(wire.cuts > 0, "the line was cut")
        wire.calm()
        receipts = c.call("send", timeout=60, name="p", mode="async", messages=[puppet.message("Bad", b"calm")] * 10)
        tap.check(all("code" not in each for each in receipts), "all arrive when the line is good again: %s" % receipts)
        c.end()
        tap.unwatch(c)
        with remoting.Client("127.0.0.2:%d" % port) as client:
            there = {record.unique_key for queue in range(4) for record in stage._read_queue(client, "Bad", queue)}
        acknowledged = {each for each, code in codes.items() if code is None}
        tap.note("%d of %d acknowledged, %d cuts" % (len(acknowledged), len(codes), wire.cuts))
        tap.check(acknowledged and acknowledged <= there, "missing: %s" % sorted(acknowledged - there)[:5])


@tap.test("a broker that is killed and started again is found again, and nothing that was acknowledged is missing")
def _():
    own()
    p = play()
    topic = p.topic("Killed")
    consumer = p.consumer("killed", topic)
    p.send(*plays.numbered(topic, 0, 100), mode="async")
    p.stage.broker.kill9()
    p.stage.start()

    def stored():
        try:
            return p.send(*plays.numbered(topic, 100, 1))
        except puppet.Refused as error:
            return tap.check(error.code in (NETWORK, LOST, TIMEOUT), "code %s, %s" % (error.code, error))

    process.wait_until(stored, 30, "a receipt after the crash")
    p.wait_bodies(consumer, plays.texts(0, 101))
    p.stop(consumer)


@tap.test("all ends well")
def _():
    plays.ends_well(play())


stage.run()
