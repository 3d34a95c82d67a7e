"""The store on Redis, when something happens to the server: restarts, kills, fail-overs, full memory, wrong passwords,
servers that lie. The driver is loaded as the core loads it, in a process of its own (hand.c)."""

import os
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from harness import certs, process, redis, tap  # noqa: E402

RELEASE = os.environ.get("REDIS_RELEASE") or None
FOREVER = 60


class Hand:
    """A process with the driver in it; see hand.c."""

    def __init__(self, url=None, **options):
        folder = process.temp_folder("oncemq-hand-")
        self.child = process.Child("hand", [os.environ["HAND"], os.environ["DRIVER"], "once_driver_redis"],
                                   os.path.join(folder, "log"), stdin=subprocess.PIPE)
        if url:
            tap.equal(self.open(url, **options), "OK", "open")

    def say(self, *words):
        self.child.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.child.process.stdin.flush()

    def read(self):
        line = self.child.read_line(FOREVER)
        if line is None:
            raise process.Failed("the hand ended: %s\n%s" % (self.child.exit_code, "\n".join(self.child.tail())))
        return line

    def do(self, *words):
        self.say(*words)
        return self.read()

    def open(self, url, **options):
        return self.do("open", url, *("%s=%s" % item for item in options.items()))

    def run(self, *ops):
        return self.do("run", *ops)

    def logged(self, level):
        return [line[2:] for line in self.child.tail(100) if line.startswith("%d " % level)]

    def close(self):
        """The end of its input ends it, and the sanitizers have the last word."""
        self.child.process.stdin.close()
        status = self.child.wait(FOREVER)
        tap.equal(status, 0, "status of the hand\n" + "\n".join(self.child.tail()))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.child.kill9()
        else:
            self.close()


def server(**options):
    return redis.Redis(RELEASE, **options)


def version():
    text = subprocess.run([redis.program(RELEASE), "--version"], capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.search(r"v=(\d+)\.(\d+)", text).groups())


def needs_tls():
    if certs.missing():
        tap.skip(certs.missing())
    if version() < (6, 0) or RELEASE:
        tap.skip("this redis-server is built without TLS")


def has(text, *parts):
    for part in parts:
        tap.check(part in text, "%r is not in %r" % (part, text))


# ---- restarts ----

@tap.test("a restart of the server costs a connection and nothing that was answered")
def _():
    with server() as store, Hand(store.url) as hand:
        tap.equal(hand.run("claim:a:1", "claim:b:2", "finish:c:3"), "OK OK LOST")
        tap.equal(hand.run("finish:a:1"), "OK")
        tap.equal(hand.do("healthy"), "yes")
        store.restart()
        has(hand.run("claim:a:4"), "ERR_IO", "127.0.0.1:%d" % store.port)
        tap.equal(hand.do("healthy"), "no")
        has(hand.run("claim:a:4"), "ERR_IO")  # this connection is of no use any more
        tap.equal(hand.do("connect"), "OK")
        tap.equal(hand.run("claim:a:4", "claim:b:5", "renew:b:2"), "DONE BUSY OK")


@tap.test("a server that is gone is told at once, at open and in the run, and its return is enough")
def _():
    with server() as store, Hand(store.url) as hand:
        tap.equal(hand.run("claim:a:1"), "OK")
        store.kill9()
        has(hand.run("renew:a:1"), "ERR_IO")
        has(hand.do("connect"), "ERR_IO cannot reach Redis at 127.0.0.1:%d" % store.port)
        with Hand() as late:
            has(late.open(store.url), "ERR_IO cannot reach Redis")
        store.start()
        tap.equal(hand.do("connect"), "OK")
        tap.equal(hand.run("renew:a:1"), "OK")


@tap.test("kill -9 of a server that syncs its log: every mark that was answered is there")
def _():
    with server() as store, Hand(store.url) as hand:
        for turn in range(3):
            with store.client() as client:
                before = client.ask("DBSIZE")
                hand.say("flood", "k%d-" % turn)
                process.wait_until(lambda: client.ask("DBSIZE") > before + 150, FOREVER, "marks come", pause=0.001)
            store.kill9()
            done, _, why = hand.read().split(" ", 2)
            tap.check(int(done) > 100, "%s done; %s" % (done, why))
            store.start()
            tap.equal(hand.do("connect"), "OK")
            for first in range(0, int(done), 50):
                part = range(first, min(first + 50, int(done)))
                tap.equal(hand.run(*("claim:k%d-%d:999999" % (turn, n) for n in part)), " ".join(["DONE"] * len(part)))


# ---- stores that forget ----

@tap.test("H-13 FLUSHALL in the run pauses it, with a sentence; accepting goes on")
def _():
    with server() as store, Hand(store.url) as hand:
        hand.say("flood", "k")
        with store.client() as client:
            process.wait_until(lambda: client.ask("DBSIZE") > 50, FOREVER, "marks come", pause=0.001)
            client.ask("FLUSHALL")
        has(hand.read(), "emptied", "once:birth")
        has(hand.run("claim:k1:7"), "ERR_STALE")
        with store.client() as client:  # what was claimed meanwhile was let go again
            for key in client.ask("KEYS", "*"):
                tap.equal(client.ask("HGET", key, "s"), b"3", "state of %r" % key)
        tap.equal(hand.do("accept"), "OK")
        tap.equal(hand.run("claim:k1:7"), "OK")


@tap.test("H-13 a restart without persistence is an emptied store, and is warned of at open")
def _():
    with server(settings={"appendonly": "no"}) as store, Hand(store.url) as hand:
        has("\n".join(hand.logged(2)), "writes nothing to its disk", "appendonly")
        tap.equal(hand.run("claim:a:1"), "OK")
        store.restart(hard=True)
        has(hand.run("claim:a:2"), "ERR_IO")
        tap.equal(hand.do("connect"), "OK")
        has(hand.run("claim:a:2"), "ERR_STALE")


@tap.test("H-13 a server that evicts is warned of; one that keeps everything is not; one that does not tell is mentioned")
def _():
    with server(settings={"maxmemory-policy": "allkeys-lru"}) as store, Hand(store.url) as hand:
        has("\n".join(hand.logged(2)), "maxmemory-policy allkeys-lru", "noeviction")
    with server() as store, Hand(store.url) as hand:
        tap.equal(hand.logged(2) + hand.logged(1), [], "what was logged")
    with server(settings={"rename-command": 'CONFIG ""'}) as store, Hand(store.url) as hand:
        tap.equal(hand.logged(2), [], "warnings")
        has("\n".join(hand.logged(1)), "CONFIG GET")


# ---- replicas ----

def follower(store, **options):
    replica = server(replica_of=store, name="replica", settings={"appendonly": "no"}, **options)
    process.wait_until(lambda: b"master_link_status:up" in replica.command("INFO", "replication"), FOREVER, "replica in sync")
    return replica


@tap.test("H-12 with WAIT a write counts when the replicas have it, and not before")
def _():
    with server() as store:
        with Hand() as hand:  # none yet
            has(hand.open(store.url, replicas=1, wait=500), "ERR_IO", "0 of 1 replicas")
        with follower(store) as replica, Hand(store.url, replicas=1, wait=3000) as hand:
            tap.equal(hand.run("claim:a:1", "claim:b:2"), "OK OK")
            tap.equal(hand.run("finish:a:1"), "OK")
            replica.pause()
            tap.equal(hand.run("finish:b:2", "claim:c:3", "look:a:0", "claim:a:9"), "FAILED FAILED OK DONE")
            has(hand.do("why"), "0 of 1 replicas", "counts as not done")
            replica.resume()
            # The claim was let go again; the mark is said once more, on another connection.
            tap.equal(hand.do("connect"), "OK")
            tap.equal(hand.run("claim:c:4", "finish:b:2"), "OK OK")
            store.kill9()
            replica.command("REPLICAOF", "NO", "ONE")
            tap.equal(hand.open(replica.url), "OK")
            tap.equal(hand.run("claim:a:5", "claim:b:5", "claim:c:5"), "DONE DONE BUSY")


@tap.test("a replica is refused at open, and a master that becomes one is left")
def _():
    with server() as store, follower(store) as replica, Hand(store.url) as hand:
        with Hand() as late:
            has(late.open(replica.url), "ERR_IO", "replica", "READONLY")
        tap.equal(hand.run("claim:a:1"), "OK")
        store.command("REPLICAOF", "127.0.0.1", replica.port)
        has(hand.run("finish:a:1"), "ERR_IO", "replica")
        has(hand.run("finish:a:1"), "ERR_IO")


@tap.test("a master that becomes a replica and is empty meanwhile was not emptied")
def _():
    with server() as store, server() as other, Hand(store.url) as hand:
        tap.equal(hand.run("claim:a:1"), "OK")
        store.command("REPLICAOF", "127.0.0.1", other.port)
        process.wait_until(lambda: "master_link_status:up" in str(store.command("INFO", "replication")), 20,
                           "it has copied its empty master")
        has(hand.run("finish:a:1"), "ERR_IO", "has become a replica")


# ---- refusals ----

@tap.test("a full memory refuses one operation with a sentence, and changes nothing")
def _():
    with server() as store, Hand(store.url) as hand:
        tap.equal(hand.run("claim:a:1", "claim:d:4"), "OK OK")
        tap.equal(hand.run("finish:d:4"), "OK")
        store.command("CONFIG", "SET", "maxmemory", "1")
        tap.equal(hand.run("finish:a:1", "claim:b:2", "renew:a:1", "put:a:1", "look:a:0", "claim:d:5"),
                  "FAILED FAILED FAILED FAILED OK DONE")
        has(hand.do("why"), "memory is full", "OOM")
        with Hand() as late:
            has(late.open(store.url, table="other"), "ERR_IO", "memory is full")
        store.command("CONFIG", "SET", "maxmemory", "0")
        tap.equal(hand.run("claim:b:3", "finish:a:1"), "OK OK")


@tap.test("a disk that cannot be written refuses with a sentence")
def _():
    with server(settings={"appendonly": "no", "save": "3600 1"}) as store, Hand(store.url) as hand:
        tap.equal(hand.run("claim:a:1"), "OK")
        os.rmdir(store.folder)
        store.command("BGSAVE")
        process.wait_until(lambda: b"rdb_last_bgsave_status:err" in store.command("INFO", "persistence"), FOREVER, "it fails")
        tap.equal(hand.run("finish:a:1"), "FAILED")
        has(hand.do("why"), "disk", "MISCONF")


@tap.test("a server without scripts is refused at open")
def _():
    for command in ("SCRIPT", "EVALSHA"):
        for plain in (0, 1):
            with server(settings={"rename-command": '%s ""' % command}) as store, Hand() as hand:
                text = hand.open(store.url, plain=plain)
                tap.check(text.startswith("ERR_"), text)
                has(text, "unknown command")


# ---- who may come in ----

@tap.test("passwords: right ones open, wrong and missing ones are told, and no sentence has them")
def _():
    with server(password="s3cret/@ %") as store, Hand() as hand:
        place = "127.0.0.1:%d" % store.port
        tap.equal(hand.open(store.url), "OK")
        tap.equal(hand.run("claim:a:1"), "OK")
        tap.equal(hand.open("redis://default:s3cret%%2F@%%20%%25@%s" % place), "OK")
        for url in ("redis://:hunter2@%s", "redis://default:hunter2@%s", "redis://ann:hunter2@%s"):
            text = hand.open(url % place)
            has(text, "ERR_DENIED", place)
            tap.check("hunter2" not in text and "s3cret" not in text, text)
        has(hand.open("redis://%s" % place), "ERR_DENIED", "password")
    with server() as store, Hand() as hand:
        text = hand.open("redis://:hunter2@127.0.0.1:%d" % store.port)
        has(text, "ERR_DENIED", "no password is set")
    with server(settings={"rename-command": 'AUTH ""'}) as store, Hand() as hand:  # this error quotes its arguments
        text = hand.open("redis://:hunter2@127.0.0.1:%d" % store.port)
        tap.check("hunter2" not in text, text)


@tap.test("users of an access list: what they need suffices, what they lack is told")
def _():
    if version() < (6, 0):
        with server() as store, Hand() as hand:
            has(hand.open("redis://ann:pw@127.0.0.1:%d" % store.port), "ERR_DENIED", "before 6")
        return
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/once/redis.md")) as manual:
        needed = re.search(r"ACL SETUSER once (.*)", manual.read()).group(1).replace(">password", ">pw")
    users = {"ann": needed, "bob": needed + " -evalsha", "cid": needed.replace("~once:*", "~other:*"),
             "dee": needed + " +info +client +config|get", "eve": needed.replace("~once:*", "~once:* ~a") + " +pttl +wait"}
    with server(users=users) as store, Hand() as hand:
        url = "redis://%s:pw@127.0.0.1:" + str(store.port)
        tap.equal(hand.open(url % "dee", takeover=1), "OK")
        tap.equal(hand.run("claim:c:0x100000001"), "OK")
        tap.equal(hand.logged(1) + hand.logged(2), [], "what was logged")
        has(hand.open(url % "eve", plain=1, replicas=1, wait=500), "ERR_IO", "0 of 1 replicas")
        tap.equal(hand.open(url % "eve", plain=1), "OK")
        tap.equal(hand.run("claim:a:1"), "OK")
        tap.equal(hand.run("claim:a:2", "look:a:2", "finish:a:1"), "BUSY OK OK")
        tap.equal(hand.run("claim:a:2", "release:a:2"), "DONE OK")
        tap.equal(hand.open(url % "ann"), "OK")
        has("\n".join(hand.logged(1)), "CONFIG GET")
        tap.equal(hand.run("claim:a:1", "put:b:1"), "OK LOST")
        tap.equal(hand.run("put:a:1"), "OK")
        tap.equal(hand.run("finish:a:1"), "OK")
        tap.equal(hand.open(url % "ann", takeover=1), "OK")  # cannot tell who is gone, and says so
        has("\n".join(hand.logged(1)), "run id")
        tap.equal(hand.run("claim:b:1", "look:a:0", "get:a:1"), "OK OK ABSENT")
        has(hand.open(url % "bob"), "ERR_", "NOPERM")
        has(hand.open(url % "cid"), "ERR_DENIED", "NOPERM")


@tap.test("databases are apart, one that is not there is told, and a socket is as good as a port")
def _():
    with server() as store, Hand() as hand:
        tap.equal(hand.open(store.url + "/3"), "OK")
        tap.equal(hand.run("claim:a:1"), "OK")
        tap.equal(hand.open("redis+unix://%s?db=3" % store.socket_path), "OK")
        tap.equal(hand.run("claim:a:2"), "BUSY")
        tap.equal(hand.open(store.url), "OK")
        tap.equal(hand.run("claim:a:2"), "OK")
        has(hand.open(store.url + "/999"), "ERR_INVALID", "database 999")
        has(hand.open("redis+unix://%s-not" % store.socket_path), "ERR_IO")
        has(hand.open("redis://127.0.0.1:1"), "ERR_IO cannot reach Redis at 127.0.0.1:1")
        has(hand.open("redis://no.such.host.invalid"), "ERR_IO", "no.such.host.invalid")


@tap.test("a server is reached by its IPv6 address")
def _():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        tap.skip("no IPv6 here: %s" % error)
    with server(settings={"bind": "127.0.0.1 ::1"}) as store, Hand("redis://[::1]:%d" % store.port) as hand:
        tap.equal(hand.run("claim:a:1"), "OK")
        store.kill9()
        has(hand.do("connect"), "ERR_IO", "[::1]:%d" % store.port)


@tap.test("one node that has all slots of a cluster serves: a script touches one key")
def _():
    with server(settings={"cluster-enabled": "yes"}) as store, Hand() as hand:
        has(hand.open(store.url), "ERR_IO", "cluster")
        store.command("CLUSTER", "ADDSLOTS", *range(16384))
        process.wait_until(lambda: b"cluster_state:ok" in store.command("CLUSTER", "INFO"), FOREVER, "cluster is up")
        tap.equal(hand.open(store.url), "OK")
        tap.equal(hand.run("claim:a:1", "claim:b:2", "claim:c:3"), "OK OK OK")
        tap.equal(hand.run("put:a:1", "finish:b:2", "release:c:3"), "OK OK OK")


# ---- takeover ----

@tap.test("H-24 kill -9 of a holder: another takes its claim at once; after a restart of the server nobody does")
def _():
    with server() as store:
        first, second = Hand(store.url, takeover=1), Hand(store.url, takeover=1)
        tap.equal(first.run("claim:a:0x1100000001", "claim:b:0x1100000002"), "OK OK")
        tap.equal(second.run("claim:a:0x2200000001"), "BUSY")
        first.child.kill9()
        process.wait_until(lambda: second.run("claim:a:0x2200000002") == "OK", 10, "the claim is taken", pause=0.001)
        store.restart()
        has(second.run("claim:b:0x2200000003"), "ERR_IO")
        tap.equal(second.do("connect"), "OK")
        for _ in range(20):
            tap.equal(second.run("claim:b:0x2200000003"), "BUSY")
        second.close()


@tap.test("a server that closes silent connections: who is silent is not taken for dead")
def _():
    with server(settings={"timeout": "5"}) as store, Hand(store.url, takeover=1) as first:
        has("\n".join(first.logged(1)), "timeout")
        tap.equal(first.run("claim:a:0x1100000001"), "OK")
        process.wait_until(lambda: len(store.command("CLIENT", "LIST").splitlines()) == 1, FOREVER,
                           "no connection is left but the one that asks")
        with Hand(store.url, takeover=1) as second:
            tap.equal(second.run("claim:a:0x2200000001"), "BUSY")
            has(first.run("finish:a:0x1100000001"), "ERR_IO")
            tap.equal(first.do("connect"), "OK")
            tap.equal(first.run("finish:a:0x1100000001"), "OK")


# ---- servers that lie ----

class Liar:
    """Stands before a real server and hands on what is said, unless `lie(words)` has an answer: bytes, or None to be honest,
    or CUT to hang up."""

    CUT = object()

    def __init__(self, store, lie):
        self.store, self.lie = store, lie
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "redis://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                there, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(there,), daemon=True).start()

    def _serve(self, there):
        honest = socket.create_connection(("127.0.0.1", self.store.port))
        for end in (there, honest):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        commands, answers = there.makefile("rb"), honest.makefile("rb")
        try:
            while True:
                head = commands.readline()
                if not head:
                    break
                words = []
                for _ in range(int(head[1:])):
                    words.append(commands.read(int(commands.readline()[1:]) + 2)[:-2])
                lie = self.lie([word.decode(errors="replace") for word in words])
                if lie is Liar.CUT:
                    break
                if lie is None:
                    honest.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
                    lie = self._answer(answers)
                there.sendall(lie)
        except OSError:
            pass
        finally:
            # Not shutdown: unread input makes this a reset, the harder end.
            there.close(), commands.close(), honest.close(), answers.close()

    def _answer(self, answers):
        line = answers.readline()
        if line[:1] == b"$" and line != b"$-1\r\n":
            return line + answers.read(int(line[1:]) + 2)
        if line[:1] == b"*":
            return line + b"".join(self._answer(answers) for _ in range(int(line[1:])))
        return line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


@tap.test("what a server never says is refused: wrong kinds, wrong sizes, bytes that are no protocol")
def _():
    lies = [b"+OK\r\n", b":7\r\n", b":-1\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n:1\r\n", b"*3\r\n:9\r\n:1\r\n:1\r\n",
            b"*4\r\n:3\r\n:0\r\n:5\r\n$30\r\n" + b"9" * 30 + b"\r\n", b"*4\r\n:3\r\n:0\r\n:5\r\n$1\r\nx\r\n",
            b"*5\r\n:2\r\n:0\r\n:5\r\n:1\r\n:1\r\n", b"*3\r\n$1\r\n1\r\n:1\r\n:1\r\n", b"*1\r\n*1\r\n*1\r\n:1\r\n", b"-ERR no\r\n", b"-\r\n",
            b"garbage\r\n", b"\0\0\0\0\r\n"]
    current = [None]
    with server() as store, Liar(store, lambda words: current[0] if words[0] == "EVALSHA" else None) as liar:
        with Hand(liar.url, wait=2000) as hand:
            for lie in lies:
                for kind in ("claim", "renew", "look"):
                    current[0] = lie
                    text = hand.run("%s:a:1" % kind)
                    good = text == "FAILED" or text.startswith("ERR_IO")
                    if kind == "renew" and lie == b":1\r\n":
                        good = True
                    tap.check(good, "%s was told %r and says %s" % (kind, lie, text))
                    current[0] = None
                    if text.startswith("ERR_IO"):
                        tap.equal(hand.do("connect"), "OK")
            tap.equal(hand.run("claim:z:1"), "OK")
            current[0] = b"$999999999999\r\nx\r\n"  # more than will ever come
            has(hand.run("claim:a:1"), "ERR_IO")


@tap.test("a server that is loading, or busy, or lost its master is left for another connection")
def _():
    current = [None]
    with server() as store, Liar(store, lambda words: current[0] if words[0] == "EVALSHA" else None) as liar:
        with Hand(liar.url) as hand:
            for word in ("LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down", "BUSY a script",
                         "CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys",
                         "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY You can't write"):
                current[0] = ("-%s\r\n" % word).encode()
                has(hand.run("claim:a:1"), "ERR_IO", word.split(" ")[0])
                current[0] = None
                tap.equal(hand.do("connect"), "OK")
            for word in ("NOREPLICAS Not enough good replicas", "MOVED 1 10.0.0.1:6379", "CROSSSLOT Keys", "NOPERM this user",
                         "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM command not allowed"):
                current[0] = ("-%s\r\n" % word).encode()
                tap.equal(hand.run("claim:a:1"), "FAILED")
                has(hand.do("why"), word[:30])
            current[0] = None
            tap.equal(hand.run("claim:a:1"), "OK")
        # At open: it is not ours to say when it is ready.
        liar.lie = lambda words: b"-LOADING Redis is loading the dataset in memory\r\n"
        with Hand() as hand:
            has(hand.open(liar.url), "ERR_IO", "LOADING")
            has(hand.open(liar.url.replace("//", "//:pw@")), "ERR_IO", "LOADING")


@tap.test("a server that forgets its scripts at once is not asked for ever")
def _():
    with server() as store, Liar(store, lambda words: None) as liar, Hand(liar.url) as hand:
        liar.lie = lambda words: b"-NOSCRIPT No matching script\r\n" if words[0] == "EVALSHA" else None
        has(hand.run("claim:a:1"), "ERR_IO", "scripts")


@tap.test("a server that hangs up in the middle of a batch: the same batch again does no harm")
def _():
    count = [0]

    def lie(words):
        count[0] += words[0] == "EVALSHA"
        return Liar.CUT if words[0] == "EVALSHA" and count[0] == 3 else None
    with server() as store, Liar(store, lambda words: None) as liar, Hand(liar.url) as hand:
        liar.lie = lie
        batch = ["claim:%s:%d" % (key, number) for number, key in enumerate("abcde", 1)]
        has(hand.run(*batch), "ERR_IO")
        has(hand.run(*batch), "ERR_IO")  # the process lives: no SIGPIPE
        tap.equal(hand.do("connect"), "OK")
        tap.equal(hand.run(*batch), "OK OK OK OK OK")
        tap.equal(hand.run("claim:a:9"), "BUSY")


@tap.test("a server that says nothing is given up after its time")
def _():
    with socket.create_server(("127.0.0.1", 0)) as silent, Hand() as hand:
        begin = time.monotonic()
        has(hand.open("redis://127.0.0.1:%d" % silent.getsockname()[1], wait=200), "ERR_IO", "in time")
        tap.check(0.15 < time.monotonic() - begin < 30, "it took %g s" % (time.monotonic() - begin))
    with server() as store, Hand(store.url, wait=1500) as hand:
        store.pause()
        has(hand.run("claim:a:1"), "ERR_IO", "in time")
        store.resume()
        has(hand.run("claim:a:1"), "ERR_IO")  # late answers are never taken for others
        tap.equal(hand.do("connect"), "OK")
        tap.equal(hand.run("claim:a:1"), "OK")


# ---- TLS ----

def tls(authority, identity, port, **settings):
    return {"tls-port": port, "tls-cert-file": identity.cert, "tls-key-file": identity.key, "tls-ca-cert-file": authority.cert,
            **settings}


@tap.test("over TLS everything works as without it: batches, a restart, a server that hangs up")
def _():
    needs_tls()
    authority, port = certs.Authority(), process.free_ports(2)[1]
    own = authority.issue("consumer")
    ours = "ca=%s&cert=%s&key=%s" % (authority.cert, own.cert, own.key)
    with server(settings=tls(authority, authority.issue("server"), port)) as store:
        with Hand("rediss://localhost:%d/2?%s" % (port, ours)) as hand:
            tap.equal(hand.run("claim:a:1", "claim:b:2"), "OK OK")
            tap.equal(hand.run("finish:a:1", "claim:a:3", "claim:b:4"), "OK DONE BUSY")
            many = ["claim:k%d:%d" % (i, i + 10) for i in range(60)]
            tap.equal(hand.run(*many), " ".join(["OK"] * 60))
            store.restart(hard=True)
            has(hand.run("claim:c:1"), "ERR_IO")
            tap.equal(hand.do("connect"), "OK")
            tap.equal(hand.run("claim:c:1", "claim:a:5"), "OK DONE")
            store.pause()
            has(hand.run("claim:d:1"), "ERR_IO", "in time")
            store.resume()
        has(store.command("INFO", "keyspace").decode(), "db2:keys=")


@tap.test("a server that cannot show who it is is refused, and so are we without a certificate where one is wanted")
def _():
    needs_tls()
    authority, stranger, port = certs.Authority(), certs.Authority("stranger"), process.free_ports(2)[1]
    open_to_all = tls(authority, authority.issue("server", "DNS:elsewhere"), port, **{"tls-auth-clients": "no"})
    with server(settings=open_to_all) as store, Hand() as hand:
        url = "rediss://127.0.0.1:%d" % port
        has(hand.open("%s?ca=%s" % (url, authority.cert)), "ERR_DENIED", "mismatch", "127.0.0.1:%d" % port)
        has(hand.open("%s?ca=%s" % (url, stranger.cert)), "ERR_DENIED", "certificate")
        has(hand.open(url), "ERR_DENIED", "certificate")
        has(hand.open("%s?ca=%s/none" % (url, authority.cert)), "ERR_INVALID", "ca=")
        has(hand.open("%s?ca=%s&cert=%s&key=%s" % (url, authority.cert, stranger.cert, authority.key)), "ERR_INVALID", "key=")
        has(hand.open("rediss://127.0.0.1:%d?ca=%s" % (store.port, authority.cert), wait=1000), "ERR_IO", "TLS")
    with server(settings=tls(authority, authority.issue("server"), port)), Hand() as hand:
        has(hand.open("rediss://127.0.0.1:%d?ca=%s" % (port, authority.cert)), "ERR_IO")


# ---- the library ----

@tap.test("the library shows its driver and the form of it, and is linked with nothing but hiredis, OpenSSL and libc")
def _():
    shown = subprocess.run(["nm", "-D", "--defined-only", os.environ["DRIVER"]], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in shown.splitlines() if "__odr_asan" not in line]
    tap.equal(sorted(names), ["once_driver_redis", "once_form_redis"], "symbols")
    needed = subprocess.run(["objdump", "-p", os.environ["DRIVER"]], capture_output=True, text=True, check=True).stdout
    libraries = {line.split()[1].split(".so")[0] for line in needed.splitlines() if "NEEDED" in line}
    tap.equal(libraries - {"libasan", "libubsan", "libc", "libhiredis", "libssl", "libcrypto"}, set(), "libraries")


try:
    redis.program(RELEASE)
except redis.Unavailable as reason:
    tap.skip_all(str(reason))
tap.main()
