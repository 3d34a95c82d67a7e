/* props.c - properties found, added and left out; props.h tells how they are written. */
#include "base/block.h"
#include "msg/msg.h"

#define AFTER_NAME  PROP_AFTER_NAME
#define AFTER_VALUE PROP_AFTER_VALUE

/* Fewer bytes than a block. Where there is a whole block in front of `end`, it is that one, without
 * what was looked at before. */
static uint64_t stops_last(const uint8_t *start, const uint8_t *at, const uint8_t *end)
{
    size_t left = (size_t)(end - at);
    if (end - start >= BLOCK)
        return block_either_mask(end - BLOCK, AFTER_NAME, AFTER_VALUE) >> (BLOCK - left);
    uint64_t stops = 0;
    for (size_t i = 0; i < left; i++)
        stops |= (uint64_t)(at[i] == AFTER_NAME || at[i] == AFTER_VALUE) << i;
    return stops;
}

uint64_t props_stops(const uint8_t *start, const uint8_t *at, const uint8_t *end)
{
    uint64_t stops = 0;
    size_t i = 0, left = (size_t)(end - at);
    for (; i < PROPS_KNOWN && left - i >= BLOCK; i += BLOCK)
        stops |= (uint64_t)block_either_mask(at + i, AFTER_NAME, AFTER_VALUE) << i;
    return i < PROPS_KNOWN && i < left ? stops | stops_last(start, at + i, end) << i : stops;
}

/* Cuts the next item off, without its separator. False at the end. */
static bool item_next(struct bytes *rest, struct bytes *item)
{
    if (rest->len == 0)
        return false;
    const uint8_t *stop = memchr(rest->at, AFTER_VALUE, rest->len);
    size_t len = stop ? (size_t)(stop - rest->at) : rest->len;
    *item = bytes_of(rest->at, len);
    *rest = bytes_from(*rest, stop ? len + 1 : len);
    return true;
}

/* False if there is no separator in it. */
static bool item_split(struct bytes item, struct prop *out)
{
    const uint8_t *stop = item.len ? memchr(item.at, AFTER_NAME, item.len) : NULL;
    if (!stop)
        return false;
    size_t name_len = (size_t)(stop - item.at);
    *out = (struct prop){bytes_of(item.at, name_len), bytes_from(item, name_len + 1)};
    return true;
}

bool props_get(struct bytes text, struct bytes name, struct bytes *value)
{
    bool found = false;
    struct props_walk walk = props_walk(text);
    struct prop pair;
    while (props_next(&walk, &pair)) {
        if (bytes_equal(pair.name, name)) {
            *value = pair.value;
            found = true;
        }
    }
    return found;
}

struct marks props_marks(struct bytes text)
{
    struct marks m = {0};
    struct props_walk walk = props_walk(text);
    struct prop pair;
    while (props_next(&walk, &pair)) {
        if (bytes_equal(pair.name, PROP_UNIQ_KEY))
            m.unique = pair.value;
        else if (bytes_equal(pair.name, PROP_KEYS))
            m.keys = pair.value;
        else if (bytes_equal(pair.name, PROP_TAGS))
            m.tags = pair.value;
        else if (bytes_equal(pair.name, PROP_DELAY))
            m.delay = pair.value;
    }
    return m;
}

static void end_last_pair(struct wr *w)
{
    if (wr_len(w) > 0 && w->at[-1] != AFTER_VALUE)
        wr_u8(w, AFTER_VALUE);
}

void props_add(struct wr *w, struct bytes name, struct bytes value)
{
    end_last_pair(w);
    wr_bytes_of(w, name);
    wr_u8(w, AFTER_NAME);
    wr_bytes_of(w, value);
    wr_u8(w, AFTER_VALUE);
}

void props_add_int(struct wr *w, struct bytes name, int64_t value)
{
    uint8_t text[24];
    struct wr digits = wr_over(text, sizeof text);
    wr_i64(&digits, value);
    props_add(w, name, wr_bytes(&digits));
}

/* Drops by name alone, also where the value is empty: what a reader skips today another might not
 * tomorrow. Everything else stays as it is, readable or not. */
void props_add_all_but(struct wr *w, struct bytes text, struct bytes name)
{
    struct bytes item;
    while (item_next(&text, &item)) {
        struct prop pair;
        if (item_split(item, &pair) && bytes_equal(pair.name, name))
            continue;
        end_last_pair(w);
        wr_bytes_of(w, item);
        wr_u8(w, AFTER_VALUE);
    }
}

bool prop_name_valid(struct bytes name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] <= ' ' || name.at[i] == 0x7f)
            return false;
    return name.len > 0 && name.len <= PROP_NAME_MAX;
}
