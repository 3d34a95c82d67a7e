#!/usr/bin/env python3
"""The official Java client 5.5.0 with its own TLS on oncemqd: as it comes, and with certificates on both sides."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import apache, certs, process, tap  # noqa: E402
from harness.daemon import Daemon  # noqa: E402
from interop.java import puppet as java  # noqa: E402


def there_and_back(name, names, *properties):
    """Sent and received by clients of one JVM, small and large."""
    jvm = java.Puppet(name, names, properties=["tls.enable=true", *properties])
    for size in (10, 200000):
        topic = "Tls%d" % size
        sent = jvm.call("send", topic=topic, count=20, size=size, producer="producers_%d" % size)
        tap.check(not [each for each in sent if "error" in each], "sends: %s" % sent[:2])
        listener = java.Listener(jvm, "listener%d" % size, topic=topic, group="group%d" % size)
        listener.wait_all(range(20))
        tap.check(all(each["intact"] for each in listener.received()), "all are intact")
        listener.stop()
    jvm.child.kill9()  # before its servers are gone: it would dial without end


def ports():
    """Outside the range of outgoing connections: a client that dials a dead port can otherwise meet itself."""
    return dict(zip(("listenPort", "namesrvListenPort"), process.free_ports(2)))


@tap.test("tls.enable=true and nothing else works where TLS is demanded and the certificate is made up")
def _():
    settings = {"tls.test.mode.enable": "true", "tls.server.mode": "enforcing", "tls.enable": "true", **ports()}
    with tap.watch(Daemon(settings=settings)) as d:
        there_and_back("tls", d.names)


@tap.test("with certificates on both sides that both look at")
def _():
    authority = certs.Authority()
    server, member = authority.issue("server"), authority.issue("member", "DNS:member")
    settings = {"tls.server.certPath": server.cert, "tls.server.keyPath": server.key, "tls.server.mode": "enforcing",
                "tls.server.need.client.auth": "require", "tls.server.authClient": "true",
                "tls.server.trustCertPath": authority.cert, "tls.enable": "true", "tls.client.authServer": "true",
                "tls.client.trustCertPath": authority.cert, "tls.client.certPath": member.cert,
                "tls.client.keyPath": member.key, **ports()}
    with tap.watch(Daemon(settings=settings)) as d:
        there_and_back("both", d.names, "tls.test.mode.enable=false", "tls.client.authServer=true",
                       "tls.client.trustCertPath=" + authority.cert, "tls.client.certPath=" + member.cert,
                       "tls.client.keyPath=" + member.key)


reason = apache.missing() or certs.missing()
if reason:
    tap.skip_all(reason)
tap.main()
