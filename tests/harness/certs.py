"""Certificates for a test, made on the spot with the openssl command.

    authority = certs.Authority()
    server = authority.issue("server", "IP:127.0.0.1,DNS:localhost")
    ... server.cert, server.key, authority.cert: paths of PEM files
"""

import collections
import os
import shutil
import ssl
import subprocess

from . import process

Identity = collections.namedtuple("Identity", "cert key")


def missing():
    """The reason why there are none here, or None."""
    return None if shutil.which("openssl") else "openssl is not on PATH"


def _openssl(*args):
    done = subprocess.run(["openssl", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    if done.returncode != 0:
        raise process.Failed("openssl %s: %s" % (args[0], done.stdout.decode(errors="replace")))


class Authority:
    """One that signs; also its own certificate and key."""

    def __init__(self, name="authority"):
        self.folder = process.temp_folder("oncemq-certs-")
        self.cert, self.key = self._path(name + ".pem"), self._path(name + ".key")
        _openssl("req", "-x509", *self._new(name, self.key), "-out", self.cert, "-days", "2")

    def _path(self, name):
        return os.path.join(self.folder, name)

    @staticmethod
    def _new(name, key):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-subj", "/CN=" + name)

    def issue(self, name, names="IP:127.0.0.1,DNS:localhost"):
        """A certificate for these names, signed by this authority. Issued again under the same name it is another."""
        cert, key, wish, words = (self._path(name + end) for end in (".pem", ".key", ".csr", ".ext"))
        _openssl("req", "-new", *self._new(name, key), "-out", wish)
        with open(words, "w") as out:
            out.write("subjectAltName=%s\n" % names)
        _openssl("x509", "-req", "-in", wish, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", "2",
                 "-extfile", words, "-out", cert)
        return Identity(cert, key)

    def context(self, identity=None):
        """For remoting.Client: trusts this authority only."""
        context = ssl.create_default_context(cafile=self.cert)
        if identity:
            context.load_cert_chain(identity.cert, identity.key)
        return context


def careless():
    """A context that is content with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
