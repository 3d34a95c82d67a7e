/* props.c - NAME \1 VALUE \2 NAME \1 VALUE \2 …
 *
 * 5.x clients end every pair with \2, 4.9 clients leave the last one out. There is no escaping.
 */
#include "base/block.h"
#include "msg/msg.h"

#define AFTER_NAME  '\1'
#define AFTER_VALUE '\2'

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

static inline bool is_separator(uint8_t c)
{
    return (uint8_t)(c - AFTER_NAME) <= AFTER_VALUE - AFTER_NAME;
}

static inline const uint8_t *name_end(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= BLOCK; at += BLOCK) {
        unsigned n = block_either(at, AFTER_NAME, AFTER_VALUE);
        if (n < BLOCK)
            return at + n;
    }
    while (at < end && !is_separator(*at))
        at++;
    return at;
}

/* NULL: it ends with the text. Most values are short, but one may be long. */
static inline const uint8_t *value_end(const uint8_t *at, const uint8_t *end)
{
    for (int i = 0; i < 3 && end - at >= BLOCK; i++, at += BLOCK) {
        unsigned n = block_either(at, AFTER_VALUE, AFTER_VALUE);
        if (n < BLOCK)
            return at + n;
    }
    return at < end ? memchr(at, AFTER_VALUE, (size_t)(end - at)) : NULL;
}

bool props_next(struct bytes *rest, struct prop *out)
{
    const uint8_t *at = rest->at, *end = rest->len ? at + rest->len : at;
    while (at < end) {
        const uint8_t *name = at;
        at = name_end(at, end);
        if (at == end)
            break;
        struct prop pair = {.name = bytes_of(name, (size_t)(at - name))};
        bool has_value = *at++ == AFTER_NAME;
        if (!has_value)
            continue;
        const uint8_t *stop = value_end(at, end);
        pair.value = bytes_of(at, (size_t)((stop ? stop : end) - at));
        at = stop ? stop + 1 : end;
        if (pair.name.len == 0 || pair.value.len == 0)
            continue;
        *rest = bytes_of(at, (size_t)(end - at));
        *out = pair;
        return true;
    }
    *rest = bytes_of(end, 0);
    return false;
}

bool props_get(struct bytes text, struct bytes name, struct bytes *value)
{
    bool found = false;
    struct prop pair;
    while (props_next(&text, &pair)) {
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
    struct prop pair;
    while (props_next(&text, &pair)) {
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
