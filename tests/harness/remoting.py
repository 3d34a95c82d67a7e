"""The remoting protocol as a client sees it, in plain Python.

This codec is written from the protocol's description and from captured bytes, never from the C sources, so that a
mistake there cannot hide behind the same mistake here. It is strict where it reads an answer of ours and permissive
where a test wants to send something odd: `frame()` accepts any header bytes and any claimed lengths.

Model:

* A `Command` is one frame: header fields (code, flag, opaque, remark, ext ...) and a body.
* `encode()` and `decode()` translate between a Command and bytes; the header is JSON or the binary ROCKETMQ form.
* A `Client` is one blocking TCP connection. `request()` sends a command and waits for the answer with its opaque;
  answers to other requests and requests that the server starts itself are kept aside (`replies`, `pushed`).
* Message records (`messages()`), property text (`properties()`) and client batches (`batch()`) are functions on bytes.

All integers on the wire are big-endian.
"""

import dataclasses
import itertools
import json
import re
import socket
import struct
import time
import zlib

JSON, ROCKETMQ = 0, 1
SERIALIZE = {"json": JSON, "rocketmq": ROCKETMQ}
LANGUAGES = ("JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS").split()
RESPONSE, ONEWAY = 1, 2
VERSION = 479
FRAME_MAX = 16 * 1024 * 1024

# Request codes used by tests.
SEND_MESSAGE, PULL_MESSAGE, QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 10, 11, 14, 15
UPDATE_AND_CREATE_TOPIC, SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET = 17, 29, 30, 31
HEART_BEAT, UNREGISTER_CLIENT, CONSUMER_SEND_MSG_BACK, GET_CONSUMER_LIST_BY_GROUP = 34, 35, 36, 38
NOTIFY_CONSUMER_IDS_CHANGED, CHECK_CLIENT_CONFIG = 40, 46
PUT_KV_CONFIG, GET_KV_CONFIG, DELETE_KV_CONFIG, REGISTER_BROKER, UNREGISTER_BROKER = 100, 101, 102, 103, 104
GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO = 105, 106
WIPE_WRITE_PERM_OF_BROKER, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, DELETE_TOPIC_IN_NAMESRV = 205, 206, 216
GET_KVLIST_BY_NAMESPACE, GET_TOPICS_BY_CLUSTER, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 219, 224, 310, 320
QUERY_DATA_VERSION, ADD_WRITE_PERM_OF_BROKER, BROKER_HEARTBEAT = 322, 327, 904

# Response codes used by tests.
SUCCESS, SYSTEM_ERROR, REQUEST_CODE_NOT_SUPPORTED, NO_PERMISSION, TOPIC_NOT_EXIST = 0, 1, 3, 16, 17
PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED, QUERY_NOT_FOUND = 19, 20, 21, 22

# Letters of the SEND_MESSAGE_V2 header, in the order of the alphabet.
SEND_V2_LETTERS = dict(zip(
    "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
    "reconsumeTimes unitMode maxReconsumeTimes batch bname".split(), "abcdefghijklmn"))


class Malformed(Exception):
    """Bytes that are not what the protocol says they should be."""


class Closed(Exception):
    """The peer closed the connection."""


@dataclasses.dataclass
class Command:
    code: int
    ext: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: int = VERSION
    serialize: str = "json"

    @property
    def is_response(self):
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self):
        return bool(self.flag & ONEWAY)

    def json(self):
        """The body as a document, in fastjson's dialect."""
        return loads(self.body.decode())


# Frames -------------------------------------------------------------------------------------------------------------

def frame(header, body=b"", serialize="json", total=None, header_length=None):
    """A frame around raw header bytes. The two lengths may be forged."""
    kind = SERIALIZE.get(serialize, serialize)
    total = 4 + len(header) + len(body) if total is None else total
    header_length = len(header) if header_length is None else header_length
    return struct.pack(">II", total & 0xFFFFFFFF, kind << 24 | header_length & 0xFFFFFF) + header + body


def encode(command):
    header = encode_binary(command) if command.serialize == "rocketmq" else encode_json(command)
    return frame(header, command.body, command.serialize)


def encode_json(command):
    members = {"code": command.code, "language": command.language, "version": command.version,
               "opaque": command.opaque, "flag": command.flag,
               "serializeTypeCurrentRPC": command.serialize.upper()}
    if command.remark is not None:
        members["remark"] = command.remark
    if command.ext:
        members["extFields"] = {key: as_text(value) for key, value in command.ext.items() if value is not None}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def encode_binary(command):
    remark = (command.remark or "").encode()
    fields = b"".join(struct.pack(">H", len(key.encode())) + key.encode()
                      + struct.pack(">I", len(as_text(value).encode())) + as_text(value).encode()
                      for key, value in command.ext.items() if value is not None)
    head = struct.pack(">hBhii", command.code, LANGUAGES.index(command.language), command.version,
                       command.opaque, command.flag)
    return head + struct.pack(">I", len(remark)) + remark + struct.pack(">I", len(fields)) + fields


def as_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def decode(data):
    """One whole frame, including its length word."""
    if len(data) < 8:
        raise Malformed("a frame has at least 8 bytes, not %d" % len(data))
    total, word = struct.unpack_from(">II", data)
    kind, header_length = word >> 24, word & 0xFFFFFF
    if total != len(data) - 4:
        raise Malformed("length word says %d, frame has %d" % (total, len(data) - 4))
    if header_length > total - 4:
        raise Malformed("header of %d bytes in a frame of %d" % (header_length, total))
    header, body = data[8:8 + header_length], data[8 + header_length:]
    if kind == JSON:
        return decode_json(header, body)
    if kind == ROCKETMQ:
        return decode_binary(header, body)
    raise Malformed("unknown serialize type %d" % kind)


def decode_json(header, body):
    try:
        members = json.loads(header)
    except ValueError as error:
        raise Malformed("header is not JSON: %s" % error) from error
    return Command(code=members["code"], ext=members.get("extFields") or {}, body=body, opaque=members["opaque"],
                   flag=members.get("flag", 0), remark=members.get("remark"), language=members.get("language"),
                   version=members.get("version"), serialize="json")


def decode_binary(header, body):
    reader = Reader(header)
    code, language, version, opaque, flag = struct.unpack(">hBhii", reader.take(13))
    remark = reader.take(reader.u32()).decode() or None
    fields = Reader(reader.take(reader.u32()))
    reader.end()
    ext = {}
    while fields.left():
        key = fields.take(fields.u16()).decode()
        ext[key] = fields.take(fields.u32()).decode()
    name = LANGUAGES[language] if language < len(LANGUAGES) else str(language)
    return Command(code=code, ext=ext, body=body, opaque=opaque, flag=flag, remark=remark, language=name,
                   version=version, serialize="rocketmq")


class Reader:
    """A cursor over bytes that refuses to read past its end."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def left(self):
        return len(self.data) - self.at

    def take(self, count):
        if count < 0 or count > self.left():
            raise Malformed("%d bytes wanted, %d left" % (count, self.left()))
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, size, signed=False):
        return int.from_bytes(self.take(size), "big", signed=signed)

    def u8(self):
        return self.number(1)

    def u16(self):
        return self.number(2)

    def u32(self):
        return self.number(4)

    def i32(self):
        return self.number(4, True)

    def i64(self):
        return self.number(8, True)

    def end(self):
        if self.left():
            raise Malformed("%d bytes too many" % self.left())


# Bodies -------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(true|false|null)|([{}\[\]:,]))')


def loads(text):
    """A document in fastjson's dialect: integers and whole objects may stand as keys.

    An integer key becomes its text; an object key becomes its compact JSON text with sorted members.
    """
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise Malformed("not a JSON token at %d: %r" % (at, text[at:at + 20]))
        tokens.append(match.group().strip())
        at = match.end()
    value, rest = _value(tokens, 0)
    if rest != len(tokens):
        raise Malformed("text after the document: %r" % tokens[rest])
    return value


def _value(tokens, at):
    if at >= len(tokens):
        raise Malformed("document ends early")
    token = tokens[at]
    if token == "{":
        return _members(tokens, at + 1)
    if token == "[":
        return _elements(tokens, at + 1)
    if token in "}]:,":
        raise Malformed("unexpected %r" % token)
    return json.loads(token), at + 1


def _members(tokens, at):
    members = {}
    while tokens[at] != "}":
        key, at = _value(tokens, at)
        if tokens[at] != ":":
            raise Malformed("no colon after key %r" % (key,))
        value, at = _value(tokens, at + 1)
        if isinstance(key, dict):
            key = json.dumps(key, sort_keys=True, separators=(",", ":"))
        members[str(key)] = value
        at = _next(tokens, at, "}")
    return members, at + 1


def _elements(tokens, at):
    elements = []
    while tokens[at] != "]":
        value, at = _value(tokens, at)
        elements.append(value)
        at = _next(tokens, at, "]")
    return elements, at + 1


def _next(tokens, at, end):
    if at < len(tokens) and tokens[at] == "," and at + 1 < len(tokens) and tokens[at + 1] != end:
        return at + 1
    if at < len(tokens) and tokens[at] == end:
        return at
    raise Malformed("comma or %r expected" % end)


def dumps(value):
    """A body in strict, compact JSON, which every reader of the dialect takes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# Messages -----------------------------------------------------------------------------------------------------------

MAGIC_V1, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
COMPRESSED, BORN_V6, STORE_V6, COMPRESS_TYPE = 0x01, 0x10, 0x20, 0x700


@dataclasses.dataclass
class Message:
    topic: str
    body: bytes
    properties: dict
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    flag: int
    born_time: int
    born_host: tuple
    store_time: int
    store_host: tuple
    reconsume_times: int
    prepared_offset: int
    body_crc: int
    stored_body: bytes
    size: int

    @property
    def unique_key(self):
        return self.properties.get("UNIQ_KEY")

    @property
    def offset_id(self):
        return message_id(self.store_host, self.physical_offset)


def messages(data):
    """All records of a pull body, in order. Sizes, magic and body CRC are checked."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        if size < 91 or at + size > len(data):
            raise Malformed("record of %d bytes, %d left" % (size, len(data) - at))
        found.append(_record(Reader(data[at:at + size])))
        at += size
    return found


def _record(reader):
    size, magic, crc, queue_id, flag = (reader.u32() for _ in range(5))
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Malformed("magic %08x" % magic)
    queue_offset, physical_offset, sys_flag, born_time = reader.i64(), reader.i64(), reader.u32(), reader.i64()
    born_host = _host(reader, sys_flag & BORN_V6)
    store_time = reader.i64()
    store_host = _host(reader, sys_flag & STORE_V6)
    reconsume_times, prepared_offset = reader.i32(), reader.i64()
    stored = reader.take(reader.u32())
    topic = reader.take(reader.u8() if magic == MAGIC_V1 else reader.u16()).decode()
    text = reader.take(reader.u16())
    reader.end()
    if zlib.crc32(stored) & 0x7FFFFFFF != crc:
        raise Malformed("body CRC does not match")
    return Message(topic, _plain(stored, sys_flag), properties(text), queue_id, queue_offset, physical_offset,
                   sys_flag, flag, born_time, born_host, store_time, store_host, reconsume_times, prepared_offset,
                   crc, stored, size)


def _host(reader, v6):
    address = socket.inet_ntop(socket.AF_INET6 if v6 else socket.AF_INET, reader.take(16 if v6 else 4))
    return address, reader.u32()


def _plain(stored, sys_flag):
    """The body as sent by the application; only zlib can be undone with the standard library."""
    if sys_flag & COMPRESSED and sys_flag & COMPRESS_TYPE in (0, 0x300):
        return zlib.decompress(stored)
    return stored


def properties(text):
    """Property text to a dict; malformed items are skipped and the last duplicate wins, as in the Java reader."""
    text = text.decode() if isinstance(text, bytes) else text
    pairs = (item.split("\x01", 1) for item in text.split("\x02") if "\x01" in item)
    return {name: value for name, value in pairs if name and value}


def property_text(table):
    return "".join("%s\x01%s\x02" % (name, as_text(value)) for name, value in table.items())


def batch(items):
    """The body of SEND_BATCH_MESSAGE from (body, properties) pairs."""
    out = bytearray()
    for body, table in items:
        text = property_text(table).encode()
        out += struct.pack(">IIIII", 22 + len(body) + len(text), 0, 0, 0, len(body)) + body
        out += struct.pack(">H", len(text)) + text
    return bytes(out)


def message_id(host, physical_offset):
    """The offset message id: address, port and log position in upper-case hexadecimal."""
    address, port = host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (socket.inet_pton(family, address) + struct.pack(">Iq", port, physical_offset)).hex().upper()


def tag_hash(tag):
    """Java's String.hashCode, over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = tag.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2]):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


# Connections --------------------------------------------------------------------------------------------------------

def split_address(address):
    """'host:port' to a socket address."""
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


class FrameBuffer:
    """Cuts a byte stream into frames."""

    def __init__(self):
        self.data = bytearray()

    def feed(self, data):
        self.data += data

    def pop(self):
        """The next whole frame as bytes, or None."""
        if len(self.data) < 4:
            return None
        total = int.from_bytes(self.data[:4], "big")
        if total > FRAME_MAX:
            raise Malformed("frame of %d bytes" % total)
        if len(self.data) < 4 + total:
            return None
        whole = bytes(self.data[:4 + total])
        del self.data[:4 + total]
        return whole


class Client:
    """One blocking connection. Not for use by several threads. `tls` is an ssl.SSLContext."""

    def __init__(self, address, timeout=20.0, tls=None):
        self.timeout = timeout
        self.socket = socket.create_connection(split_address(address), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            plain = self.socket
            try:
                self.socket = tls.wrap_socket(plain, server_hostname=split_address(address)[0])
            except OSError:
                plain.close()
                raise
        self.buffer = FrameBuffer()
        self.opaques = itertools.count(1)
        self.replies = {}
        self.pushed = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send_raw(self, data):
        self.socket.settimeout(self.timeout)
        self.socket.sendall(data)

    def send(self, code, ext=None, body=b"", oneway=False, serialize="json", version=VERSION):
        """Send a request without waiting; returns its opaque for wait()."""
        command = Command(code, ext or {}, body, next(self.opaques), ONEWAY if oneway else 0, serialize=serialize,
                          version=version)
        self.send_raw(encode(command))
        return command.opaque

    def request(self, code, ext=None, body=b"", oneway=False, serialize="json", timeout=None, version=VERSION):
        """Send a request and return its response, or None for a oneway request."""
        opaque = self.send(code, ext, body, oneway, serialize, version)
        return None if oneway else self.wait(opaque, timeout)

    def wait(self, opaque, timeout=None):
        """The response to an earlier send()."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while opaque not in self.replies:
            self._sort(self._receive(deadline))
        return self.replies.pop(opaque)

    def wait_pushed(self, code, timeout=None):
        """The next request of the given code that the server starts on this connection."""
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            for command in self.pushed:
                if command.code == code:
                    self.pushed.remove(command)
                    return command
            self._sort(self._receive(deadline))

    def respond(self, request, code=SUCCESS, ext=None, body=b"", remark=None):
        """Answer a request that the server started."""
        self.send_raw(encode(Command(code, ext or {}, body, request.opaque, RESPONSE, remark)))

    def wait_closed(self, timeout=None):
        """Read until the peer closes; frames that still arrive are kept. Raises TimeoutError if it does not."""
        deadline = time.monotonic() + (timeout or self.timeout)
        try:
            while True:
                self._sort(self._receive(deadline))
        except (Closed, ConnectionResetError):
            return

    def _sort(self, command):
        if command.is_response:
            self.replies[command.opaque] = command
        else:
            self.pushed.append(command)

    def _receive(self, deadline):
        while True:
            whole = self.buffer.pop()
            if whole is not None:
                return decode(whole)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame in time")
            self.socket.settimeout(left)
            data = self.socket.recv(65536)
            if not data:
                raise Closed("peer closed the connection")
            self.buffer.feed(data)


def send_v2(topic, body, properties=None, queue_id=-1, group="test_producer", **fields):
    """Header fields and body of a SEND_MESSAGE_V2 request: `client.request(SEND_MESSAGE_V2, *send_v2(...))`."""
    long_names = {"producerGroup": group, "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                  "queueId": queue_id, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0,
                  "properties": property_text(properties or {}), "reconsumeTimes": 0, "unitMode": False,
                  "batch": False}
    long_names.update(fields)
    return {SEND_V2_LETTERS[name]: value for name, value in long_names.items()}, body
