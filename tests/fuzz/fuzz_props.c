/* Any bytes as properties. The first byte is the length of a name, which comes next; the rest is
 * the text in which it is looked for, removed and added. */
#include "msg/msg.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count_others(struct bytes text, struct bytes name)
{
    struct props_walk walk = props_walk(text);
    struct prop pair;
    size_t n = 0;
    while (props_next(&walk, &pair)) {
        invariant(pair.name.len > 0);
        invariant(pair.value.len > 0);
        n += !bytes_equal(pair.name, name);
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rd r = rd_over(bytes_of(data, size));
    struct bytes name = rd_take(&r, rd_u8(&r));
    struct bytes text = rd_take(&r, rd_left(&r));
    if (r.bad)
        return 0;

    struct bytes value;
    if (props_get(text, name, &value)) {
        invariant(value.at > text.at);
        invariant(value.at + value.len <= text.at + text.len);
    }

    size_t room_size = size + name.len + 8;
    uint8_t *room = malloc(room_size);
    invariant(room);
    struct wr w = wr_over(room, room_size);
    props_add_all_but(&w, text, name);
    invariant(!w.full);
    invariant(!props_get(wr_bytes(&w), name, &value));
    invariant(count_others(wr_bytes(&w), name) == count_others(text, name));

    bool possible = name.len > 0 && !memchr(name.at, 1, name.len) && !memchr(name.at, 2, name.len);
    props_add(&w, name, BYTES("v"));
    invariant(!w.full);
    invariant(props_get(wr_bytes(&w), name, &value) == possible);
    invariant(!possible || bytes_equal(value, BYTES("v")));
    free(room);
    return 0;
}
