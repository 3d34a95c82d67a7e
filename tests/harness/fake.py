"""Servers that answer as a test says: for what no honest server does, or only once in a long while.

    broker = Fake(lambda request: sent(request) if request.code == remoting.SEND_MESSAGE_V2 else reply())
    names = Fake(routes({"broker-a": broker.address}))

`Fake(answer)` listens on a free port of loopback and calls `answer(request)` for each frame that comes. What it returns
is sent back: a Command (its opaque and flag are filled in), bytes as they are, or a list of such; None keeps silent and
CUT hangs up. All requests are kept in `requests`. It runs in daemon threads and ends with `close()`.
"""

import socket
import threading

from . import process, remoting

CUT = object()


def reply(code=remoting.SUCCESS, ext=None, body=b"", remark=None):
    return remoting.Command(code, ext or {}, body, remark=remark)


def sent(request, offset=0, **ext):
    """What a broker says to a message that it has stored."""
    queue = request.ext.get("e", request.ext.get("queueId", "0"))
    place = {"msgId": remoting.message_id(("127.0.0.1", 10911), 4096), "queueId": queue, "queueOffset": offset}
    return reply(ext={**place, **ext})


def route(brokers, queues=4, perm=6):
    """The body of a route: broker names with their addresses; a list of addresses has the master first."""
    datas, numbers = [], []
    for name, addresses in brokers.items():
        addresses = addresses if isinstance(addresses, list) else [addresses]
        datas.append({"cluster": "c", "brokerName": name,
                      "brokerAddrs": {str(i): address for i, address in enumerate(addresses) if address}})
        numbers.append({"brokerName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
                        "topicSysFlag": 0})
    return remoting.dumps({"brokerDatas": datas, "queueDatas": numbers, "filterServerTable": {}})


def routes(brokers, queues=4):
    """A name server that has every topic on these brokers. `brokers` may be changed later."""
    def answer(request):
        if request.code != remoting.GET_ROUTEINFO_BY_TOPIC:
            return reply()
        return reply(body=route(brokers, queues))
    return answer


class Fake:
    def __init__(self, answer, port=0):
        self.answer, self.requests = answer, []
        self.listener = socket.create_server(("127.0.0.1", port or process.free_ports(1)[0]))
        self.address = "%s:%d" % self.listener.getsockname()[:2]
        self.sockets, self.accepted, self.closed = [], 0, False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(peer)
            self.accepted += 1
            threading.Thread(target=self._serve, args=(peer, self.accepted), daemon=True).start()

    def _serve(self, peer, line):
        buffer = remoting.FrameBuffer()
        try:
            while data := peer.recv(65536):
                buffer.feed(data)
                while whole := buffer.pop():
                    request = remoting.decode(whole)
                    request.line = line  # the how manyth connection it came by
                    self.requests.append(request)
                    if not self._give(peer, request, self.answer(request)):
                        peer.close()
                        return
        except OSError:
            pass
        peer.close()

    def _give(self, peer, request, given):
        """False: hang up."""
        for each in given if isinstance(given, list) else [given]:
            if each is CUT:
                return False
            if isinstance(each, remoting.Command):
                each.opaque, each.flag = request.opaque, remoting.RESPONSE
                each = remoting.encode(each)
            if each is not None:
                peer.sendall(each)
        return True

    def push(self, code, ext=None, body=b"", oneway=True):
        """A request from the server, on its newest connection."""
        flag = remoting.ONEWAY if oneway else 0
        self.sockets[-1].sendall(remoting.encode(remoting.Command(code, ext or {}, body, 4711, flag)))

    def answer_late(self, request, given):
        """What was not answered when it came, on the connection it came by."""
        self._give(self.sockets[request.line - 1], request, given)

    def cut(self):
        """Hangs up on everybody; new connections are taken."""
        for each in self.sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def of(self, code):
        """The requests of that code so far."""
        return [each for each in list(self.requests) if each.code == code]

    def wait(self, code, count=1, timeout=30):
        """Wait for so many requests of that code, and return them."""
        return process.wait_until(lambda: len(self.of(code)) >= count and self.of(code), timeout,
                                  "%d requests of code %d" % (count, code), pause=0.01)

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept(), which keeps it open
        except OSError:
            pass
        self.listener.close()
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
