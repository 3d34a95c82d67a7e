#!/usr/bin/env python3
"""What a message costs, layer by layer: instructions, and how often the kernel, the allocator and locks are asked.

    COUNT_BROKER=build/tests/count/count_broker bench/layers.py [send] [send1] [pull]

Counted by callgrind on the paths of tests/count, with whole stacks: whatever runs belongs to the innermost function on its stack
that is the door of a layer, libraries included. So an instruction counts once, wherever a file begins or ends, and what memcpy costs
is told where it was asked for.
"""

import collections
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "tests")]
from harness import callgrind  # noqa: E402

# The doors, in the order in which a message passes them.
LAYERS = {
    "loop, receiving and sending": ["loop_run"],
    "session: frames cut, handler found": ["session_input"],
    "header decoded": ["head_decode", "head_decode_again"],
    "fields read": ["request_fields"],
    "send noted, its fate told": ["send_message_v2", "sends_flush"],
    "broker: topic, limits, properties": ["broker_produce"],
    "CRC of the body": ["crc32_of"],
    "store: append": ["store_append"],
    "broker: permission, subscription, offset": ["pull_message", "broker_pull"],
    "store: read": ["store_read"],
    "answer written": ["give", "answer_pulled"],
    "dispatch: slips taken, or records decoded": ["broker_dispatch_turn"],
    "dispatch: queues": ["turn_add", "turn_write"],
    "dispatch: index of keys": ["keys_add", "keys_add_slip", "keys_turn_end", "index_add_marked", "index_add_hashes", "index_turn_end"],
    "rooms entered and left": ["room_enter", "room_leave", "room_try", "room_enter_soon", "room_try_soon"],
}
DOOR = {name: layer for layer, names in LAYERS.items() for name in names}
SHORT, LONG = 2560, 2560 + 6400
WHAT = {"send": "send of 1 KiB, 8 connections with 32 in flight, JSON headers", "send1": "the same, 64 connections with one in flight",
        "pull": "message of a pull of 32"}


def layer_of(stack):
    """A stack as callgrind writes it: innermost first."""
    for name in stack.split("'"):
        if name in DOOR:
            return DOOR[name]
    return "loop, receiving and sending"


def measure(path):
    program = os.path.realpath(os.environ.get("COUNT_BROKER") or sys.exit("set COUNT_BROKER to the path of count_broker"))
    spent, n = callgrind.difference(program, path, "loop_run", SHORT, LONG, stacks=True), LONG - SHORT
    ours, libraries, asked = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    for (obj, _, name), cost in spent.cost.items():
        (ours if obj == program else libraries)[layer_of(name)] += cost / n
    for ((caller, _), (callee, name)), count in spent.calls.items():
        plain = callgrind.plain(name)
        if caller != callee and plain in callgrind.SYSTEM_CALLS | callgrind.ALLOCATIONS | callgrind.LOCKS:
            asked[layer_of(name)][plain] += count / n
    return ours, libraries, asked


def show(path):
    ours, libraries, asked = measure(path)
    total = sum(ours.values()) + sum(libraries.values())
    print("\n%s: what each message costs\n" % WHAT[path])
    print("| Layer | Instructions | of them in libraries | Share | Calls |")
    print("|---|---|---|---|---|")
    for layer in LAYERS:
        both = ours[layer] + libraries[layer]
        if both < 3:
            continue
        calls = ", ".join("%s %.3g" % item for item in asked[layer].most_common() if item[1] >= 0.0005)
        print("| %s | %.0f | %.0f | %.0f %% | %s |" % (layer, both, libraries[layer], 100 * both / total, calls))
    print("| all | %.0f | %.0f | 100 %% | |" % (total, sum(libraries.values())))


def main():
    for path in sys.argv[1:] or WHAT:
        show(path)


if __name__ == "__main__":
    if callgrind.missing():
        sys.exit("layers: %s" % callgrind.missing())
    main()
