"""A bad line between a client and a server: it delays, halves and cuts what passes, by chance with a seed.

`Wire(target, seed)` listens on a free port, or the one it is given, and copies bytes both ways, knowing nothing of frames: a piece may leave in
several parts, some time later, or not at all, because the connection breaks in the middle of it. `calm()` makes it an
honest relay. It runs in daemon threads and ends with `close()`.
"""

import random
import socket
import threading
import time

from . import process, remoting


class Wire:
    def __init__(self, target, seed, delay=0.02, cut=0.1, port=None):
        self.target, self.chance = remoting.split_address(target), random.Random(seed)
        self.delay, self.cut, self.cuts = delay, cut, 0
        self.listener = socket.create_server(("127.0.0.1", port or process.free_ports(1)[0]))
        self.address = "%s:%d" % self.listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def calm(self):
        self.delay = self.cut = 0

    def _accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
                outer = socket.create_connection(self.target, 5)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                continue
            outer.settimeout(None)
            for source, sink in ((inner, outer), (outer, inner)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source, sink):
        try:
            while data := source.recv(4096):
                while data:
                    part = self.chance.randint(1, len(data)) if self.delay and self.chance.random() < 0.3 else len(data)
                    if self.delay and self.chance.random() < 0.2:
                        time.sleep(self.chance.random() * self.delay)
                    broken = self.chance.random() < self.cut
                    sink.sendall(data[:self.chance.randint(0, part) if broken else part])
                    if broken:
                        self.cuts += 1
                        raise OSError("cut")
                    data = data[part:]
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
