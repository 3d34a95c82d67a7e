/* tags.c - the tag hash that queues filter by.
 *
 * Java's String.hashCode: h = 31 * h + c over UTF-16 code units, wrapping at 32 bits. What is not
 * UTF-8 counts as U+FFFD, one for each byte that fits nowhere, as it would decode in Java.
 */
#include "base/utf8.h"
#include "msg/msg.h"

/* `len` is what utf8_length said. */
static uint32_t character(const uint8_t *at, size_t len)
{
    static const uint8_t first_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = at[0] & first_bits[len];
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (at[i] & 0x3f);
    return c;
}

/* Goes on from a character that is not ASCII. */
static uint32_t wide_code(uint32_t hash, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        size_t len = utf8_length(at, end);
        uint32_t c = len ? character(at, len) : 0xfffd;
        if (c >= 0x10000) {
            c -= 0x10000;
            hash = 31 * hash + (0xd800 + (c >> 10));
            c = 0xdc00 + (c & 0x3ff);
        }
        hash = 31 * hash + c;
        at += len ? len : 1;
    }
    return hash;
}

int64_t tags_code(struct bytes tags)
{
    uint32_t hash = 0;
    for (size_t i = 0; i < tags.len; i++) {
        if (tags.at[i] >= 0x80)
            return (int32_t)wide_code(hash, tags.at + i, tags.at + tags.len);
        hash = 31 * hash + tags.at[i];
    }
    return (int32_t)hash;
}
