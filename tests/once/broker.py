"""The driver for `broker:` by itself: which broker it takes, what it says when that has no ledger, what becomes of claims when a
connection breaks, and brokers that lie. What all stores promise is in the other files of this folder."""

import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import stage  # noqa: E402
from harness import certs, daemon, fake, process, proxy, remoting as r, tap  # noqa: E402

LEDGER, PRESENT = 10010, 10011
NOT_SUPPORTED, ILLEGAL, BUSY = 3, 604, 2
GRACE = 2.0


class Hand:
    """A process with the driver in it; see hand.c."""

    def __init__(self, url=None, **options):
        folder = process.temp_folder("oncemq-hand-")
        self.child = process.Child("hand", [os.environ["HAND"], os.environ["DRIVER"], "once_driver_broker"],
                                   os.path.join(folder, "log"), stdin=subprocess.PIPE)
        if url:
            tap.equal(self.open(url, **options), "OK", "open")

    def do(self, *words):
        self.child.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.child.process.stdin.flush()
        line = self.child.read_line(60)
        if line is None:
            raise process.Failed("the hand ended: %s\n%s" % (self.child.exit_code, "\n".join(self.child.tail())))
        return line

    def open(self, url, **options):
        return self.do("open", url, *("%s=%s" % item for item in options.items()))

    def run(self, *ops):
        return self.do("run", *ops)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.child.kill9()
            return
        self.child.process.stdin.close()
        tap.equal(self.child.wait(60), 0, "status of the hand\n" + "\n".join(self.child.tail()))


def token(instance, number=1):
    return instance << 32 | number


class Once:
    """Made when it is first asked for."""

    def __init__(self, make):
        self.make, self.made = make, None

    def __call__(self):
        if self.made is None:
            self.made = tap.watch(self.make())
        return self.made


first = Once(lambda: daemon.Daemon(settings={"brokerName": "first"}))
second = Once(lambda: daemon.Daemon(roles="broker", settings={"brokerName": "second", "namesrvAddr": first().names}, name="second"))


def url(name="", servers=None):
    return "broker://%s/%s" % (servers or first().names, name)


def names_of(**brokers):
    """A name server that knows these brokers."""
    table = {name: {"brokerName": name, "brokerAddrs": {"0": address}} for name, address in brokers.items()}
    return tap.watch(Closing(fake.Fake(lambda request: fake.reply(body=r.dumps({"brokerAddrTable": table})))))


class Closing:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def tail(self, lines=30):
        return []


@tap.test("the only broker is taken, or the one that is named; the name servers come from the URL or from ONCEMQ_NAMES")
def _():
    with Hand() as hand:
        for each in (url(), "broker://" + first().names, url("first"), "broker://127.0.0.1:1;%s/first" % first().names):
            tap.equal(hand.open(each), "OK", each)
            tap.equal(hand.run("look:k:1"), "ABSENT", each)
        tap.check(hand.open(url("third")).startswith("ERR_IO the name servers know no master of broker third"), "another")
        tap.check(hand.open("broker:a/b").startswith("ERR_INVALID the store's URL"), "not a URL")
        tap.check(hand.open("broker://127.0.0.1:1/").startswith("ERR_IO"), "nobody there")
    os.environ["ONCEMQ_NAMES"] = first().names
    with Hand("broker:") as hand:
        tap.equal(hand.run("look:k:1"), "ABSENT")
    with Hand("broker:first") as hand:
        tap.equal(hand.run("look:k:1"), "ABSENT")
    del os.environ["ONCEMQ_NAMES"]


@tap.test("of several brokers one has to be named, each has its own keys, and one that moves is found again")
def _():
    with Hand(url()) as early:
        second()
        process.wait_until(lambda: early.do("open", url()).startswith("ERR_INVALID"), 30, "both are known")
        said = early.open(url())
        tap.check("2 brokers (first, second)" in said and "broker:NAME" in said, said)
        with Hand(url("second")) as hand:
            tap.equal(hand.run("claim:several:1"), "OK")
            tap.equal(early.open(url("first")), "OK")
            tap.equal(early.run("claim:several:2"), "OK", "the other broker knows nothing of it")
            second().stop()
            tap.check(hand.run("look:several:1").startswith("ERR_IO"), "it is gone")
            second().start(same_ports=False)
            process.wait_until(lambda: hand.do("connect") == "OK" and hand.run("claim:several:3") == "BUSY", 30, "found again")


@tap.test("a broker without a ledger is refused with what to do")
def _():
    with tap.watch(daemon.Daemon(settings={"onceLedgerEnable": "false"})) as off, Hand() as hand:
        said = hand.open(url(servers=off.names))
        tap.check(said.startswith("ERR_UNSUPPORTED") and "onceLedgerEnable" in said and "name another store" in said, said)
        subprocess.run([os.environ["ONCEMQ"], "--names", off.names, "topic", "create", "T"], check=True, capture_output=True, timeout=60)
        done = subprocess.run([os.environ["ONCEMQ"], "--names", off.names, "run", "--topic", "T", "--group", "g", "--exec", "true"],
                              capture_output=True, text=True, timeout=60, check=False)
        tap.check(done.returncode == 2 and "name another store" in done.stderr, "oncemq run: %d %s" % (done.returncode, done.stderr))
    with fake.Fake(lambda _: fake.reply(NOT_SUPPORTED)) as old, Hand() as hand:
        said = hand.open(url(servers=names_of(old=old.address).address))
        tap.check(said.startswith("ERR_UNSUPPORTED broker old at %s keeps no ledger" % old.address), said)


@tap.test("a claim whose connection is cut is free after the grace, long before its expiry; its owner has lost it")
def _():
    with proxy.Relay("line", "127.0.0.1:0", first().broker) as line:
        mine = url(servers=names_of(first=line.address).address)
        with Hand(mine, instance=11) as cut, Hand(url("first"), instance=12) as other:
            tap.equal(cut.run("claim:cut:%d" % token(11)), "OK")
            tap.equal(other.run("claim:cut:%d" % token(12)), "BUSY", "while it is there")
            begin = time.monotonic()
            line.close()
            process.wait_until(lambda: other.run("claim:cut:%d" % token(12)) == "OK", 30, "free", pause=0.05)
            tap.check(GRACE - 0.5 < time.monotonic() - begin < 20, "%.1f s" % (time.monotonic() - begin))
            again = proxy.Relay("line", line.address, first().broker)
            process.wait_until(lambda: cut.do("connect") == "OK", 30, "back")
            tap.equal(cut.run("renew:cut:%d" % token(11), "finish:other:%d" % token(11)), "LOST LOST", "what it had")
            again.close()


def blinks(line, cut, other, key):
    """Whether a claim outlives four cuts. None: its owner, held up by the machine, was not back in time."""
    process.wait_until(lambda: cut.do("connect") == "OK", 30, "connected")
    tap.equal(cut.run("claim:%s:%d" % (key, token(21))), "OK")
    for _ in range(4):
        seen, kept, until = len(line.frames), True, time.monotonic() + GRACE * 0.6
        for number in list(line.pairs):
            line.cut(number)
        while kept and time.monotonic() < until:
            kept = other.run("claim:%s:%d" % (key, token(22))) == "BUSY"
            time.sleep(0.1)
        if not any(each.to_server and each.time < until and each.command.code == PRESENT for each in line.frames[seen:]):
            return None
        if not kept:
            return False
    return True


@tap.test("a connection that is cut and comes back within the grace keeps its claims")
def _():
    with proxy.Relay("line", "127.0.0.1:0", first().broker) as line:
        with Hand(url(servers=names_of(first=line.address).address), instance=21) as cut, Hand(url("first"), instance=22) as other:
            for number in range(5):
                key = "blink%d" % number
                kept = blinks(line, cut, other, key)
                if kept is not None:
                    break
            tap.check(kept, "it has come back: %s" % kept)
            process.wait_until(lambda: cut.do("connect") == "OK", 30, "back")
            tap.equal(cut.run("finish:%s:%d" % (key, token(21))), "OK")
            tap.equal(other.run("claim:%s:%d" % (key, token(22))), "DONE")


@tap.test("presence is asked for ahead of the operations on each connection, and again as soon as it is answered")
def _():
    codes, quick = [], []

    def answer(request):
        codes.append((request.line, request.code))
        if request.code == PRESENT:
            tap.equal((request.ext["instance"], request.ext["waitMillis"]), ("31", "30000"), "fields")
            quick.append(request)
            return fake.reply(ext={"birth": 5}) if len(quick) < 20 else None
        return fake.reply(ext={"birth": 5, "timestamp": 1}, body=outcomes(request))

    with fake.Fake(answer) as broker:
        with Hand(url(servers=names_of(x=broker.address).address), instance=31) as hand:
            tap.equal(hand.run("claim:k:1"), "OK")
            process.wait_until(lambda: len(quick) >= 20, 30, "asked again and again")
        tap.equal(codes[0][1], PRESENT, "the first request")
        tap.equal({line for line, _ in codes}, {1}, "connections")


def outcomes(request, outcome=1):
    n = struct.unpack(">H", request.body[2:4])[0]
    return b"\1\0" + struct.pack(">H", n) + n * (struct.pack(">BBqqQI", outcome, 0, 7, 0, 0, 0) + b"\0\0\0")


@tap.test("what a broker says wrongly is no answer: cut, too few, too many, of another version; other refusals have their meaning")
def _():
    said = []

    def answer(request):
        if request.code == PRESENT:
            return None
        if not said or request.body[2:4] == b"\0\0":
            return fake.reply(ext={"birth": 5}, body=outcomes(request))
        return said[0](request)

    def good(request):
        return fake.reply(ext={"birth": 5}, body=outcomes(request))

    lies = {
        "a byte short": lambda q: fake.reply(body=outcomes(q)[:-1]),
        "a byte more": lambda q: fake.reply(body=outcomes(q) + b"\0"),
        "one for two": lambda q: fake.reply(body=b"\1\0\0\1" + outcomes(q)[4:]),
        "version": lambda q: fake.reply(body=b"\2" + outcomes(q)[1:]),
        "no body": lambda q: fake.reply(),
        "an outcome that is none": lambda q: fake.reply(body=outcomes(q, 77)),
        "hangs up": lambda q: fake.CUT,
    }
    with fake.Fake(answer) as broker, Hand(url(servers=names_of(x=broker.address).address), wait=3000) as hand:
        for what, lie in lies.items():
            said[:] = [lie]
            tap.check(hand.run("claim:a:1", "get:b:1").startswith("ERR_IO"), what)
            said[:] = [good]
            tap.equal(hand.do("connect"), "OK", what)
            tap.equal(hand.run("claim:a:1", "claim:b:1"), "OK OK", what)
        said[:] = [lambda q: fake.reply(ILLEGAL, remark="birth")]
        tap.check(hand.run("claim:a:1").startswith("ERR_STALE"), "emptied")
        said[:] = [lambda q: fake.reply(BUSY, remark="later")]
        tap.check(hand.run("claim:a:1").startswith("ERR_BUSY"), "busy")
        said[:] = [lambda q: None]
        begin = time.monotonic()
        tap.check(hand.run("claim:a:1").startswith("ERR_IO"), "silence")
        tap.check(time.monotonic() - begin < 15, "in time")


@tap.test("steps of 64 KiB, sixty at a time: requests and answers stay below what a frame may hold")
def _():
    with Hand(url("first"), instance=41) as hand:
        keys = ["big%02d" % n for n in range(60)]
        every = lambda kind: ["%s:%s:%d" % (kind, key, token(41, n + 1)) for n, key in enumerate(keys)]  # noqa: E731
        tap.equal(hand.do("size", 65536), "OK")
        for kind in ("claim", "put", "get"):
            tap.equal(hand.run(*every(kind)), " ".join(["OK"] * 60), kind)
        tap.equal(hand.do("size", 6), "OK")
        tap.equal(hand.run(*every("finish")), " ".join(["OK"] * 60), "finish")


@tap.test("a store that was closed with a presence under way is gone at once")
def _():
    with Hand(url("first"), instance=51) as hand:
        for number in range(20):
            tap.equal(hand.do("close"), "OK")
            tap.equal(hand.open(url("first"), instance=51), "OK")
            tap.equal(hand.run("claim:close%d:%d" % (number, token(51))), "OK")


@tap.test("oncemq run: without a store it is the broker's ledger, by the same name servers and by TLS")
def _():
    if certs.missing():
        tap.skip(certs.missing())
    authority = certs.Authority()
    server = authority.issue("server")
    safe = daemon.Daemon(settings={"tls.server.mode": "enforcing", "tls.enable": "true", "tls.client.trustCertPath": authority.cert,
                                   "tls.client.authServer": "true",
                                   "tls.server.certPath": server.cert, "tls.server.keyPath": server.key})
    with tap.watch(safe):
        common = [os.environ["ONCEMQ"], "--names", safe.names, "--tls", "--tls-ca", authority.cert]
        home = process.temp_folder()

        def oncemq(*args):
            done = subprocess.run([*common, *args], cwd=home, env=dict(os.environ, HOME=home, XDG_CONFIG_HOME=home),
                                  capture_output=True, text=True, timeout=60, check=False)
            tap.equal(done.returncode, 0, done.stderr)
            return done.stderr

        for _ in range(2):
            oncemq("send", "Tasks", "same", "--key", "k1")
        said = oncemq("run", "--topic", "Tasks", "--group", "workers", "--from", "first", "--exec", "true", "--count", "2")
        tap.check("done 1, already done 1" in said, said)
        tap.equal(os.listdir(home), [], "files of its own")


tap.main()
