#!/usr/bin/env python3
"""Signed requests of liboncemq on Apache's broker, which looks at every signature (ACL 2.0)."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from client.scene import DENIED  # noqa: E402
from harness import apache, puppet, tap  # noqa: E402
from interop import plays  # noqa: E402

USER, SECRET = "rocketmq", "12345678"
GUARDED = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": USER, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": SECRET}),
}


class Guarded(apache.Broker):
    """It refuses the harness's own questions, too: an answer of any kind is a sign of life."""

    def probe(self, client):
        client.request(34)
        return True


def guarded():
    names = tap.watch(apache.NameServer())
    broker = tap.watch(Guarded(names.address, **GUARDED))
    broker.wait_registered(names.address)
    return names, broker


here = plays.Once(guarded)


def send(c, name, message, **options):
    c.call("producer", name=name, group="g", **options)
    return c.call("send", name=name, messages=[message])[0]


@tap.test("with the right keys messages are taken, big and small, with every kind of text in their fields")
def _():
    c = tap.watch(puppet.start_c("c", here()[0].address))
    for number, message in enumerate((
            puppet.message("Signed", b"x"), puppet.message("Signed", bytes(range(256)), tag="T", keys=["\u00e4 \"\\"]),
            puppet.message("Signed", size=100000, properties={"gr\u00f6\u00dfe": "\u5927\u5c0f \U0001F600"}))):
        receipt = send(c, "p%d" % number, message, access_key=USER, secret_key=SECRET)
        tap.check(receipt["offset"] >= 0, "receipt %s" % receipt)
    c.end()


@tap.test("with a wrong secret, or none, they are not")
def _():
    c = tap.watch(puppet.start_c("d", here()[0].address))
    for number, options in enumerate(({}, {"access_key": USER, "secret_key": "wrong"},
                                      {"access_key": "nobody", "secret_key": SECRET})):
        try:
            send(c, "p%d" % number, puppet.message("Signed", b"x"), **options)
            raise AssertionError("%s was taken" % options)
        except puppet.Refused as error:
            tap.equal(error.code, DENIED, "code of %s" % error)
    c.end()


reason = apache.missing()
if reason:
    tap.skip_all(reason)
tap.main()
