#!/usr/bin/env python3
"""TLS at the doors of oncemqd, as Apache has it: one port for plain and for TLS, told from the first byte; its three modes,
its settings under Apache's names; certificates that are replaced; peers that do it wrong."""

import os
import pathlib
import signal
import socket
import ssl
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import certs, process, remoting, tap  # noqa: E402
from harness.daemon import Daemon, run  # noqa: E402

reason = certs.missing()
if reason:
    tap.skip_all(reason)
    tap.main()

authority = certs.Authority()
server = authority.issue("server")
CERT = {"tls.server.certPath": server.cert, "tls.server.keyPath": server.key}


def asks(address, tls=None):
    """One question that both doors answer, or the error."""
    with remoting.Client(address, tls=tls) as client:
        return client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code


def refused(address, tls=None):
    try:
        asks(address, tls)
    except (OSError, remoting.Closed) as error:
        return str(error)
    raise AssertionError("%s was not refused" % address)


def store_and_read(broker, tls):
    """A message of a megabyte there and back."""
    body = os.urandom(1 << 20)
    with remoting.Client(broker, tls=tls) as client:
        answer = client.request(remoting.SEND_MESSAGE_V2, *remoting.send_v2("Tls", body, queue_id=0))
        tap.equal(answer.code, remoting.SUCCESS, "code of a send")
        fields = {"consumerGroup": "g", "topic": "Tls", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
                  "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
                  "expressionType": "TAG"}
        answer = client.request(remoting.PULL_MESSAGE, fields)
        tap.equal([each.body == body for each in remoting.messages(answer.body)], [True], "what comes back")


@tap.test("permissive, the default: both doors serve plain and TLS connections on the same port")
def _():
    with tap.watch(Daemon(settings=CERT)) as d:
        for tls in (None, authority.context()):
            tap.equal(asks(d.names, tls), remoting.SUCCESS, "code of the name server")
        store_and_read(d.broker, authority.context())
        with remoting.Client(d.broker) as plain:
            tap.equal(plain.request(remoting.GET_MAX_OFFSET, {"topic": "Tls", "queueId": 0}).ext["offset"], "1", "offset")


@tap.test("enforcing: plain connections are closed, and the broker registers by TLS")
def _():
    with tap.watch(Daemon(settings={**CERT, "tls.server.mode": "enforcing", "tls.enable": "true",
                                    "tls.client.authServer": "true", "tls.client.trustCertPath": authority.cert})) as d:
        tap.equal(asks(d.names, authority.context()), remoting.SUCCESS, "code of the name server")
        store_and_read(d.broker, authority.context())
        refused(d.names)
        refused(d.broker)
        tap.check("speaks plainly where TLS is demanded" in d.read_log(), "a line in the log")
        d.stop()


@tap.test("without a certificate, or disabled, TLS is refused and plain connections are as ever")
def _():
    for settings in ({}, {**CERT, "tls.server.mode": "disabled"}):
        with tap.watch(Daemon(settings=settings)) as d:
            refused(d.names, certs.careless())
            tap.equal(asks(d.names), remoting.SUCCESS, "code of the name server")
            tap.check("TLS is not offered here" in d.read_log(), "a line in the log")


@tap.test("clients have to show a certificate that is good, where that is demanded; any will do where it is not looked at")
def _():
    demanding = {**CERT, "tls.server.need.client.auth": "require", "tls.server.authClient": "true",
                 "tls.server.trustCertPath": authority.cert}
    member, stranger = authority.issue("member", "DNS:member"), certs.Authority("stranger")
    with tap.watch(Daemon(settings=demanding)) as d:
        refused(d.names, authority.context())
        refused(d.names, authority.context(stranger))
        tap.equal(asks(d.names, authority.context(member)), remoting.SUCCESS, "code for a member")
        log = d.read_log()
        tap.check("shows no certificate" in log or "not signed by" in log, "a line in the log")
    with tap.watch(Daemon(settings={**CERT, "tls.server.need.client.auth": "require"})) as d:
        refused(d.names, authority.context())
        tap.equal(asks(d.names, authority.context(stranger)), remoting.SUCCESS, "code for a stranger")


@tap.test("in test mode there is TLS without any file, for who does not look")
def _():
    with tap.watch(Daemon(settings={"tls.test.mode.enable": "true"})) as d:
        tap.equal(asks(d.names, certs.careless()), remoting.SUCCESS, "code of the name server")
        refused(d.names, authority.context())
        tap.check("for tests only" in d.read_log(), "a warning in the log")


def fingerprint(address):
    with remoting.Client(address, tls=authority.context()) as client:
        return client.socket.getpeercert(True)


@tap.test("SIGHUP reads the certificate again; who is connected stays, and files that are no good change nothing")
def _():
    mine = authority.issue("mine")
    with tap.watch(Daemon(settings={"tls.server.certPath": mine.cert, "tls.server.keyPath": mine.key})) as d:
        with remoting.Client(d.names, tls=authority.context()) as old:
            before = fingerprint(d.names)
            authority.issue("mine")
            os.kill(d.pid, signal.SIGHUP)
            process.wait_until(lambda: fingerprint(d.names) != before, 10, "another certificate")
            after = fingerprint(d.names)
            with open(mine.key, "w") as out:
                out.write("nonsense\n")
            os.kill(d.pid, signal.SIGHUP)
            process.wait_until(lambda: "certificate not renewed" in d.read_log(), 10, "a line in the log")
            tap.equal(fingerprint(d.names), after, "certificate")
            answer = old.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
            tap.equal(answer.code, remoting.SUCCESS, "code on the old connection")
        d.stop()


@tap.test("without certificates SIGHUP, as from a terminal that is closed, changes nothing")
def _():
    with tap.watch(Daemon()) as d:
        os.kill(d.pid, signal.SIGHUP)
        process.wait_until(lambda: "SIGHUP nothing to read again" in d.read_log(), 10, "a line in the log")
        with remoting.Client(d.names) as client:
            tap.equal(client.request(remoting.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code, remoting.SUCCESS, "code")
        d.stop()


@tap.test("settings that cannot work are refused at the start, by their names")
def _():
    folder = process.temp_folder()
    for settings, words in (
            ({"tls.server.mode": "enforcing"}, "tls.server.mode=enforcing needs a certificate"),
            ({**CERT, "tls.server.mode": "enforcing"}, "set tls.enable=true as well"),
            ({"tls.server.certPath": server.cert}, "the key is missing"),
            ({"tls.server.keyPath": server.key}, "needs a certificate"),
            ({**CERT, "tls.server.keyPath": authority.key}, authority.key),
            ({**CERT, "tls.server.certPath": folder + "/nowhere.pem"}, folder + "/nowhere.pem"),
            ({"tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": folder + "/no.pem"},
             folder + "/no.pem"),
            ({"tls.server.mode": "strict"}, "tls.server.mode")):
        args = [word for pair in settings.items() for word in ("--set", "%s=%s" % pair)]
        status, _, said = run("--data", folder, "--set", "listenPort=0", "--set", "namesrvListenPort=0", *args)
        tap.check(status != 0 and words in said, "status %d, said %r, wanted %r" % (status, said, words))


def knows_broker(names):
    try:
        return asks(names, authority.context()) == remoting.SUCCESS
    except OSError:
        return False


@tap.test("a broker whose name server's certificate is not good says so, and registers once it is")
def _():
    other = certs.Authority("other")
    mine = other.issue("names")
    with tap.watch(Daemon(roles="names", settings={"tls.server.certPath": mine.cert, "tls.server.keyPath": mine.key,
                                                   "tls.server.mode": "enforcing"}, name="names")) as names:
        settings = {"namesrvAddr": names.names, "tls.enable": "true", "tls.client.authServer": "true",
                    "tls.client.trustCertPath": authority.cert}
        with tap.watch(Daemon(roles="broker", settings=settings, name="broker")) as broker:
            process.wait_until(lambda: "is not signed by an authority in " + authority.cert in broker.read_log(), 20,
                               "a line in the log")
            good = authority.issue("good")
            for now, before in zip(good, mine):
                os.replace(now, before)
            os.kill(names.pid, signal.SIGHUP)
            process.wait_until(lambda: knows_broker(names.names), 20, "a route", 0.2)


def hello():
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certs.careless().wrap_bio(incoming, outgoing)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@tap.test("half handshakes, garbage and floods of them harm nobody else")
def _():
    with tap.watch(Daemon(settings=CERT)) as d:
        first = hello()
        waiting = []
        for size in (1, 2, 5, 6, 100, len(first) - 1, len(first)):
            s = socket.create_connection(remoting.split_address(d.broker))
            s.sendall(first[:size])
            waiting.append(s)
        for bad in (b"\x16" + os.urandom(500), b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x16\x03\x01\x00\x00" * 1000,
                    first + os.urandom(1000), b"\x16\x03\x03\x40\x00\x01\xff\xff\xff" + bytes(16379)):
            with socket.create_connection(remoting.split_address(d.broker)) as s:
                s.settimeout(10)
                try:
                    s.sendall(bad)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
                except ConnectionError:
                    pass
        store_and_read(d.broker, authority.context())
        for each in waiting:
            each.close()
        d.stop()


tap.main()
