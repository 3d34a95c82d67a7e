"""A TCP relay that remembers every remoting frame that passes it, and can lose some.

`Relay(listen, target)` accepts on one address, connects each connection to the other and copies frames both ways
unchanged. It appends a `Passed` for each to `frames`, in the order of arrival. Those for which `lose(passed)` is true go
no further; those for which `late(passed)` gives seconds go on that much later, behind others perhaps; `cut(number)` ends a
connection. It runs in daemon threads of the test program and ends with `close()`. Close it before the server behind it is
killed: a Java client that is accepted and then dropped dials again at once, without end.
"""

import dataclasses
import itertools
import socket
import threading
import time

from . import remoting


@dataclasses.dataclass
class Passed:
    """One frame seen on the way."""
    time: float
    relay: str
    connection: int
    to_server: bool
    raw: bytes

    @property
    def command(self):
        return remoting.decode(self.raw)


class Relay:
    def __init__(self, name, listen, target, frames=None):
        self.name, self.target = name, remoting.split_address(target)
        self.frames = [] if frames is None else frames
        self.lose, self.late = lambda passed: False, lambda passed: 0
        self.sockets, self.numbers, self.pairs = [], itertools.count(1), {}
        self.listener = socket.create_server(remoting.split_address(listen))
        self.address = "%s:%d" % self.listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            try:
                outer = socket.create_connection(self.target, 5)
            except OSError:
                inner.close()
                continue
            outer.settimeout(None)
            self.sockets += [inner, outer]
            number = next(self.numbers)
            self.pairs[number] = (inner, outer)
            for source, sink, to_server in ((inner, outer, True), (outer, inner, False)):
                threading.Thread(target=self._copy, args=(number, source, sink, to_server), daemon=True).start()

    def _copy(self, number, source, sink, to_server):
        buffer, key = remoting.FrameBuffer(), threading.Lock()
        try:
            while data := source.recv(65536):
                buffer.feed(data)
                while whole := buffer.pop():
                    passed = Passed(time.monotonic(), self.name, number, to_server, whole)
                    self.frames.append(passed)
                    if self.lose(passed):
                        continue
                    if pause := self.late(passed):
                        threading.Timer(pause, self._send, (sink, key, whole)).start()
                    else:
                        self._send(sink, key, whole)
        except OSError:
            pass
        self.cut(number)

    @staticmethod
    def _send(sink, key, whole):
        with key:
            try:
                sink.sendall(whole)
            except OSError:
                pass  # whoever reads from it hears of it

    def cut(self, number):
        """End one connection, on both sides."""
        for end in self.pairs[number]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        for each in [self.listener, *self.sockets]:
            try:
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept() or recv()
            except OSError:
                pass
            each.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class ByteRelay(Relay):
    """The same for bytes of any kind: `seen` has what has passed in each direction, by connection. Connection n is cut
    when `limits[n]` bytes have passed in both."""

    def __init__(self, name, listen, target, limits=None):
        self.seen, self.limits = {}, limits or {}
        super().__init__(name, listen, target)

    def _copy(self, number, source, sink, to_server):
        mine = self.seen.setdefault((number, to_server), bytearray())
        try:
            while data := source.recv(65536):
                limit = self.limits.get(number)
                if limit is not None:
                    passed = sum(len(self.seen.get((number, way), b"")) for way in (True, False))
                    data = data[:max(limit - passed, 0)]
                mine += data
                sink.sendall(data)
                if limit is not None and passed + len(data) >= limit:
                    break
        except OSError:
            pass
        self.cut(number)
