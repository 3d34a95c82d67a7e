"""POP as a client sees it: messages with their handles, acknowledgements, changes of their invisible time.

A `Popper` is one connection of one group. `pop()` gives a list of `Held`: the message and what must be shown to
acknowledge it, made from the answer's startOffsetInfo and msgOffsetInfo the way the Java client does it; a message of a
retry topic brings its handle along in its properties.
"""

import base64
import dataclasses
import json
import time

from . import remoting as r

POP_MESSAGE, ACK_MESSAGE, PEEK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME = 200050, 200051, 200052, 200053
NOTIFICATION, POLLING_INFO, BATCH_ACK_MESSAGE = 200054, 200055, 200151
QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE = 400, 401, 402
MESSAGE_ILLEGAL, GROUP_NOT_EXIST, PARSE_FAILED, INVALID_PARAMETER = 13, 26, 23, 29
NO_MESSAGE, POLLING_FULL, POLLING_TIMEOUT = 208, 209, 210


@dataclasses.dataclass
class Held:
    message: r.Message
    handle: str
    topic: str      # where it was read: the retry topic, perhaps
    queue: int
    offset: int

    @property
    def body(self):
        return self.message.body


def info(text):
    """"0 3 17;1 0 4,5" as {("0", 3): "17", ("1", 0): "4,5"}."""
    items = [item.split(" ") for item in (text or "").split(";") if item]
    return {(kind, int(queue)): rest for kind, queue, rest in items}


def real_topic(topic, group, kind):
    return topic if kind == "0" else "%%RETRY%%%s%s%s" % (group, "_" if kind == "1" else "+", topic)


class Popper:
    def __init__(self, address, group="g", topic="T", broker="broker-a", timeout=30):
        self.client = r.Client(address, timeout=timeout)
        self.group, self.topic, self.broker = group, topic, broker

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def request(self, count=32, invisible_ms=60000, poll_ms=0, queue=-1, mode=0, **fields):
        return POP_MESSAGE, {"consumerGroup": self.group, "topic": self.topic, "queueId": queue, "maxMsgNums": count,
                             "invisibleTime": invisible_ms, "pollTime": poll_ms, "bornTime": int(time.time() * 1000),
                             "initMode": mode, **fields}

    def answer(self, **wish):
        return self.client.request(*self.request(**wish))

    def pop(self, **wish):
        answer = self.answer(**wish)
        if answer.code in (POLLING_TIMEOUT, r.PULL_NOT_FOUND):
            return []
        if answer.code != r.SUCCESS:
            raise AssertionError("pop is refused with %d (%s)" % (answer.code, answer.remark))
        return self.held(answer)

    def held(self, answer):
        starts, offsets = info(answer.ext["startOffsetInfo"]), info(answer.ext["msgOffsetInfo"])
        left = {key: [int(number) for number in text.split(",")] for key, text in offsets.items()}
        result = []
        for message in r.messages(answer.body):
            handle = message.properties.get("POP_CK")
            kind = handle.split(" ")[4] if handle else "0"
            key = (kind, message.queue_id)
            assert left[key].pop(0) == message.queue_offset, "offsets and messages differ"
            handle = handle or " ".join(str(part) for part in (
                starts[key], answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"], kind,
                self.broker, message.queue_id, message.queue_offset))
            result.append(Held(message, handle, real_topic(self.topic, self.group, kind), message.queue_id,
                               message.queue_offset))
        assert not any(left.values()), "offsets without messages: %s" % left
        return result

    def ack_request(self, held, **fields):
        return ACK_MESSAGE, {"consumerGroup": self.group, "topic": held.topic, "queueId": held.queue,
                             "extraInfo": held.handle, "offset": held.offset, **fields}

    def ack(self, held, **fields):
        return self.client.request(*self.ack_request(held, **fields))

    def batch_ack(self, held, **fields):
        """All of one queue and one pop as one."""
        start, popped, invisible, revive, kind = held[0].handle.split(" ")[:5]
        bits = 0
        for each in held:
            bits |= 1 << (each.offset - int(start))
        text = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
        ack = {"c": self.group, "t": self.topic, "r": kind, "so": int(start), "q": held[0].queue, "rq": int(revive),
               "pt": int(popped), "it": int(invisible), "b": text, **fields}
        body = json.dumps({"brokerName": self.broker, "acks": [ack]}).encode()
        return self.client.request(BATCH_ACK_MESSAGE, {}, body)

    def change(self, held, invisible_ms, **fields):
        """The answer; the held message has its new handle then."""
        answer = self.client.request(CHANGE_MESSAGE_INVISIBLETIME, {
            "consumerGroup": self.group, "topic": held.topic, "queueId": held.queue, "extraInfo": held.handle,
            "offset": held.offset, "invisibleTime": invisible_ms, **fields})
        if answer.code == r.SUCCESS and "popTime" in answer.ext:
            parts = held.handle.split(" ")
            held.handle = " ".join([str(held.offset), answer.ext["popTime"], answer.ext["invisibleTime"],
                                    answer.ext["reviveQid"], *parts[4:]])
        return answer
