#!/usr/bin/env python3
"""liboncemq from another language: through ctypes, with nothing but the library itself.

    ffi.py library name-server topic

The structures are written down as oncemq.h has them; members that are not used still stand in their places.
"""

import ctypes
import sys
import threading
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p


def structure(name, *members):
    """`kind.name` for each member, or `kind.name * n` for an array."""
    return type(name, (ctypes.Structure,), {"_fields_": list(members)})


def many(kind, names):
    return [(name, kind) for name in names.split()]


Error = structure("Error", ("code", c_int), ("response_code", c_int), ("text", c_char * 504))
ClientOptions = structure(
    "ClientOptions", *many(c_char_p, "names names_url instance unit ip access_key secret_key security_token"),
    ("tls", c_bool), *many(c_char_p, "tls_ca tls_cert tls_key"), ("tls_insecure", c_bool),
    *many(c_int, "timeout_ms route_every_ms heartbeat_every_ms"), ("state_dir", c_char_p),
    *many(c_void_p, "log user"), ("reserved", c_void_p * 8))
Property = structure("Property", *many(c_char_p, "name value"))
Queue = structure("Queue", *many(c_char_p, "topic broker"), ("id", c_int32))
Message = structure(
    "Message", ("topic", c_char_p), ("body", c_char_p), ("body_size", c_size_t), *many(c_char_p, "tag keys"),
    ("properties", POINTER(Property)), ("n_properties", c_size_t), ("flag", c_int32), ("sharding_key", c_char_p),
    ("queue", POINTER(Queue)), ("delay_level", c_int), *many(c_int64, "delay_ms deliver_ms"), ("no_wait", c_bool),
    ("id", c_char_p), ("reserved", c_void_p * 4))
Receipt = structure(
    "Receipt", ("stored", c_int), ("id", c_char * 64), ("offset_id", c_char * 64), ("broker", c_char * 256),
    ("queue_id", c_int32), ("queue_offset", c_int64), ("duplicate", c_bool), ("recall", c_char * 512),
    ("transaction", c_char * 64))
ProducerOptions = structure(
    "ProducerOptions", ("group", c_char_p), *many(c_int, "timeout_ms try_timeout_ms retries"),
    *many(c_bool, "retry_same_broker_first retry_not_stored retry_undone"), ("retry_table", c_char_p), ("retry_table_mib", c_int),
    ("avoid_slow", c_bool), ("compress_over", c_size_t),
    *many(c_int, "compression compression_level"), ("max_message_size", c_size_t),
    *many(c_int, "max_in_flight queues"), ("trace", c_bool), ("trace_topic", c_char_p),
    *many(c_void_p, "choose check user"), ("reserved", c_void_p * 8))
Sent = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Receipt), POINTER(Error))


class Failed(Exception):
    pass


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.omq_code_text.restype = self.c.omq_version.restype = self.c.omq_client_id.restype = c_char_p

    def call(self, name, *args):
        why = Error()
        code = getattr(self.c, name)(*args, byref(why))
        if code:
            raise Failed("%s: %s" % (self.c.omq_code_text(code).decode(), why.text.decode()))


def main(path, names, topic):
    library = Library(path)
    client, producer = c_void_p(), c_void_p()
    library.call("omq_client_open", byref(ClientOptions(names=names.encode())), byref(client))
    library.call("omq_producer_open", client, byref(ProducerOptions(group=b"python", retries=1)), byref(producer))

    pairs = (Property * 1)(Property(b"colour", b"green"))
    message = Message(topic=topic.encode(), body=b"from Python", body_size=11, tag=b"py", properties=pairs, n_properties=1)
    receipt = Receipt()
    library.call("omq_send", producer, byref(message), byref(receipt))
    print(receipt.id.decode())

    stored, all_there = [], threading.Event()

    @Sent
    def sent(_user, got, why):
        stored.append(got.contents.id if got else why.contents.text)
        if len(stored) == 50:
            all_there.set()

    for _ in range(50):
        library.call("omq_send_async", producer, byref(message), sent, None)
    print(all_there.wait(30), len(set(stored)))
    try:
        library.call("omq_send", producer, byref(Message(body=b"x", body_size=1)), None)
    except Failed as reason:
        print(reason)
    library.c.omq_producer_close(producer)
    library.c.omq_client_close(client)


if __name__ == "__main__":
    main(*sys.argv[1:])
