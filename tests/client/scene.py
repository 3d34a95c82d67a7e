"""A producer of liboncemq before servers of the test's own: a name server and a broker, or several (harness/fake.py)."""

import os
import time

from harness import daemon, puppet, remoting, tap
from harness.fake import Fake, reply, routes, sent

# enum omq_code
(INVALID, MISUSE, NO_MEMORY, TIMEOUT, NETWORK, LOST, NO_TOPIC, NO_GROUP, DENIED, TOO_BIG, BUSY, REFUSED, NOT_FOUND,
 PROTOCOL, CLOSED, KEPT) = range(1, 17)

SENDS = (remoting.SEND_MESSAGE_V2, remoting.SEND_BATCH_MESSAGE)


def known(settings):
    """Those that the daemon under test has; none where it is another."""
    text = "" if os.environ.get("ENDPOINT") else daemon.run("--print-config")[1]
    return {name: value for name, value in settings.items() if "\n%s=" % name in text}


def broker(answer=sent):
    """A broker that answers to messages as `answer` says, and well to everything else."""
    return Fake(lambda request: answer(request) if request.code in SENDS else reply())


class Scene:
    """`broker` answers the messages to broker-a; `others` has more brokers by their names. `names` stands in for the
    name server's answers."""
    count = 0

    def __init__(self, answer=sent, names=None, timeout_ms=10000, retries=-1, brokers=None, others=(), **options):
        Scene.count += 1
        self.broker = broker(answer)
        self.others = {name: broker(each) for name, each in dict(others).items()}
        self.brokers = brokers if brokers is not None else {
            "broker-a": self.broker.address, **{name: each.address for name, each in self.others.items()}}
        self.names = Fake(names or routes(self.brokers))
        self.puppet = tap.watch(puppet.start_c("c%d" % Scene.count, self.names.address))
        self.puppet.call("client", name="k", **{k: options.pop(k) for k in list(options) if k in CLIENT_OPTIONS})
        self.puppet.call("producer", name="p", client="k", group="g", timeout_ms=timeout_ms, retries=retries, **options)

    def send(self, mode="sync", timeout=30, **more):
        return self.puppet.call("send", timeout=timeout, name="p", mode=mode,
                                messages=[puppet.message(more.pop("topic", "T"), b"body", **more)])[0]

    def refused(self, *codes, within=20, **more):
        begin = time.monotonic()
        try:
            self.send(**more)
        except puppet.Refused as error:
            tap.check(error.code in codes, "code %s of %r, wanted %s" % (error.code, str(error), codes))
            tap.check(time.monotonic() - begin < within, "it took %.1f s" % (time.monotonic() - begin))
            return error
        raise AssertionError("it was not refused")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.puppet.end()
                tap.unwatch(self.puppet)
            else:
                self.puppet.kill9()
        finally:
            for each in (self.broker, self.names, *self.others.values()):
                each.close()

    def sends(self, name="broker-a"):
        """The messages that a broker has got."""
        fake = self.broker if name == "broker-a" else self.others[name]
        return [each for each in list(fake.requests) if each.code in SENDS]


def id_of(request):
    return remoting.properties(request.ext["i"])["UNIQ_KEY"]


CLIENT_OPTIONS = {"access_key", "secret_key", "security_token", "route_every_ms", "heartbeat_every_ms", "names",
                  "names_url", "client_timeout_ms"}
