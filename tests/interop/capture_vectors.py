#!/usr/bin/env python3
"""Capture byte vectors for the codec tests from Apache RocketMQ and its Java client.

Not a test: it writes tests/vectors. A name server and a broker of Apache run on 127.0.0.2 while the client is told
127.0.0.1, where two relays listen on the same port numbers, pass everything on and keep each frame. For ports and
addresses that say nothing of the machine run it in a network namespace of its own:

    unshare -n sh -c 'ip link set lo up && tests/interop/capture_vectors.py'

The run with binary headers has them on all three sides; by default servers answer in JSON whatever the request was.

Files: NAME.hex, first line a `#` comment, then one frame in hexadecimal, 32 bytes per line. facts.txt holds message ids
and tag hashes computed by Java. With --sequence the request codes of the run are printed instead, in order.
"""

import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness import apache, process, proxy, remoting  # noqa: E402

NAMES_PORT, BROKER_PORT = 9876, 10911
VECTORS = ROOT / "vectors"
TOPIC = "VectorTopic"


def run_client(serialize):
    """All frames between client, name server and broker in one run, in order. All three write headers that way."""
    frames = []
    properties = ["rocketmq.serialize.type=%s" % serialize]
    with apache.NameServer(NAMES_PORT, "127.0.0.2", properties) as names:
        with proxy.Relay("names", "127.0.0.1:%d" % NAMES_PORT, names.address, frames), \
             proxy.Relay("broker", "127.0.0.1:%d" % BROKER_PORT, "127.0.0.2:%d" % BROKER_PORT, frames):
            with apache.Broker("127.0.0.1:%d" % NAMES_PORT, BROKER_PORT, "127.0.0.2",
                               properties=properties) as broker:
                broker.wait_registered(names.address)
                home = process.temp_folder()
                client = apache.java("client", "oncemq.interop.VectorClient", "127.0.0.1:%d" % NAMES_PORT, home=home,
                                     properties=properties)
                status, out = client.finish(120)
                if status != 0 or "done" not in out:
                    raise SystemExit("client failed: %s" % client.tail())
    return frames


def pick(frames, code, where=lambda command: True, relay=None):
    """The first request with a code that fulfils a condition, and its response if there is one."""
    for at, frame in enumerate(frames):
        command = frame.command
        if command.is_response or command.code != code or (relay and frame.relay != relay) or not where(command):
            continue
        for later in frames[at + 1:]:
            answer = later.command
            same = (later.relay, later.connection) == (frame.relay, frame.connection)
            if same and later.to_server != frame.to_server and answer.is_response and answer.opaque == command.opaque:
                return frame.raw, later.raw
        return frame.raw, None
    raise SystemExit("no request %d among the frames" % code)


def save(name, what, raw):
    if raw is None:
        raise SystemExit("no frame for %s" % name)
    remoting.decode(raw)
    text = "# %s\n%s\n" % (what, "\n".join(textwrap.wrap(raw.hex(), 64)))
    (VECTORS / (name + ".hex")).write_text(text)


def save_json(frames):
    def pair(name, what, *args, **kwargs):
        request, response = pick(frames, *args, **kwargs)
        save(name + "_request", what, request)
        if response:
            save(name + "_response", "response to: " + what, response)

    by_key = lambda key: lambda c: remoting.properties(c.ext.get("i", "")).get("KEYS") == key  # noqa: E731
    has_group = lambda field: lambda c: c.json().get(field)  # noqa: E731
    pair("get_routeinfo", "GET_ROUTEINFO_BY_TOPIC (105) of TBW102 by a producer", 105,
         lambda c: c.ext["topic"] == "TBW102")
    pair("get_routeinfo_unknown", "GET_ROUTEINFO_BY_TOPIC (105) of a topic that does not exist yet", 105,
         lambda c: c.ext["topic"] == TOPIC)
    pair("send_message_v2_json", "SEND_MESSAGE_V2 (310), JSON header, keys, tag and user properties", 310,
         by_key("order-1"))
    pair("send_message_v2_json_unicode", "SEND_MESSAGE_V2 (310), JSON header, Chinese tag, keys and emoji body", 310,
         by_key("钥匙"))
    pair("send_message_v2_json_compressed", "SEND_MESSAGE_V2 (310), JSON header, zlib body of 5000 bytes", 310,
         by_key("big"))
    pair("send_message_v2_json_oneway", "SEND_MESSAGE_V2 (310), JSON header, sent oneway", 310, by_key("oneway-1"))
    pair("send_batch_message_json", "SEND_BATCH_MESSAGE (320), JSON header, three messages", 320)
    pair("heart_beat_producer", "HEART_BEAT (34) of a producer", 34, has_group("producerDataSet"))
    pair("heart_beat_push_consumer", "HEART_BEAT (34) of a push consumer", 34, has_group("consumerDataSet"))
    pair("pull_message_found", "PULL_MESSAGE (11) that finds several messages", 11, found_many(frames))
    pair("pull_message_commit", "PULL_MESSAGE (11) that carries a commit offset", 11,
         lambda c: int(c.ext["sysFlag"]) & 1)
    pair("query_consumer_offset", "QUERY_CONSUMER_OFFSET (14) of a new group", 14, lambda c: c.ext["topic"] == TOPIC)
    pair("update_consumer_offset", "UPDATE_CONSUMER_OFFSET (15), sent by a timer", 15,
         lambda c: c.ext["topic"] == TOPIC and c.ext["commitOffset"] != "0")
    pair("get_consumer_list_by_group", "GET_CONSUMER_LIST_BY_GROUP (38)", 38)
    pair("notify_consumer_ids_changed", "NOTIFY_CONSUMER_IDS_CHANGED (40), from the broker, oneway", 40)
    pair("consumer_send_msg_back", "CONSUMER_SEND_MSG_BACK (36)", 36)
    pair("unregister_client_producer", "UNREGISTER_CLIENT (35) of a producer", 35, lambda c: "producerGroup" in c.ext)
    pair("unregister_client_consumer", "UNREGISTER_CLIENT (35) of a consumer", 35, lambda c: "consumerGroup" in c.ext)
    pair("register_broker_json", "REGISTER_BROKER (103) of an Apache broker, JSON body", 103)
    pair("register_broker_json_one_topic", "REGISTER_BROKER (103) after one topic changed: only that topic in the body",
         103, lambda c: len(c.json()["topicConfigSerializeWrapper"]["topicConfigTable"]) == 1)
    pair("get_broker_cluster_info", "GET_BROKER_CLUSTER_INFO (106) by a broker; integer keys without quotes", 106)


def save_binary(frames):
    keyed = lambda c: remoting.properties(c.ext.get("i", "")).get("KEYS") == "order-1"  # noqa: E731
    for name, what, code, where in (
            ("send_message_v2_binary", "SEND_MESSAGE_V2 (310), binary header", 310, keyed),
            ("send_batch_message_binary", "SEND_BATCH_MESSAGE (320), binary header", 320, lambda c: True),
            ("pull_message_binary", "PULL_MESSAGE (11), binary header", 11, found_many(frames)),
            ("get_routeinfo_binary", "GET_ROUTEINFO_BY_TOPIC (105), binary header", 105,
             lambda c: c.serialize == "rocketmq" and c.ext["topic"] == "TBW102"),
            ("heart_beat_push_consumer_binary", "HEART_BEAT (34), binary header without fields", 34,
             lambda c: c.json().get("consumerDataSet")),
            ("register_broker_binary", "REGISTER_BROKER (103) of an Apache broker, binary header", 103, lambda c: True),
            ("unknown_topic_binary", "GET_ROUTEINFO_BY_TOPIC (105) of an unknown topic, binary header", 105,
             lambda c: c.ext["topic"] == TOPIC),
            ("update_consumer_offset_binary", "UPDATE_CONSUMER_OFFSET (15), binary header", 15,
             lambda c: c.ext["topic"] == TOPIC)):
        request, response = pick(frames, code, where)
        save(name + "_request", what, request)
        if response:
            save(name + "_response", "response to: " + what, response)


def found_many(frames):
    """A condition for pull requests whose answer holds at least five messages."""
    good = {answer.command.opaque for answer in frames
            if answer.relay == "broker" and not answer.to_server and answer.command.is_response
            and answer.command.code == 0 and answer.command.remark == "FOUND"
            and len(remoting.messages(answer.command.body)) >= 5}
    return lambda command: command.opaque in good


def save_facts():
    child = apache.java("facts", "oncemq.interop.VectorFacts", home=process.temp_folder())
    status, out = child.finish(60)
    if status != 0:
        raise SystemExit("facts failed: %s" % child.tail())
    lines = []
    for line in out.splitlines():
        kind, given, result = line.split("\t")
        if kind == "register-compressed":
            save("register_broker_compressed_request",
                 "REGISTER_BROKER (103), body made by Java's RegisterBrokerBody.encode(true)", bytes.fromhex(result))
        else:
            lines.append(line + "\n")
    (VECTORS / "facts.txt").write_text(
        "# Computed by Java: id = MessageDecoder.createMessageId(address port offset), tag = String.hashCode().\n"
        "# kind TAB input TAB result\n" + "".join(lines))


def print_sequence(frames):
    start = frames[0].time
    for frame in frames:
        command = frame.command
        print("%7.3f %-6s #%d %s %s code=%d flag=%d v=%d opaque=%d %s %s body=%d %s" % (
            frame.time - start, frame.relay, frame.connection, "->" if frame.to_server else "<-", command.serialize,
            command.code, command.flag, command.version, command.opaque, command.remark, command.ext,
            len(command.body), command.body[:300] if frame.command.body[:1] in b"{[" else ""))


def main():
    if "--sequence" in sys.argv:
        print_sequence(run_client("ROCKETMQ" if "--binary" in sys.argv else "JSON"))
        return
    VECTORS.mkdir(exist_ok=True)
    save_json(run_client("JSON"))
    save_binary(run_client("ROCKETMQ"))
    save_facts()
    print("%d files" % len(list(VECTORS.glob("*.hex"))))


if __name__ == "__main__":
    main()
