/* head_put.h - texts of a JSON header, for those who write one: head_write.c, head_stamp.c. */
#ifndef REMOTING_HEAD_PUT_H
#define REMOTING_HEAD_PUT_H

#include "base/block.h"
#include "remoting/remoting_int.h"

static inline uint64_t half_load(const uint8_t *at)
{
    uint32_t half;
    memcpy(&half, at, sizeof half);
    return half;
}

/* True if nothing in it needs an escape, which is so of nearly all ids, words and names. The last
 * step looks at bytes a second time rather than at fewer. */
static inline bool text_is_plain(struct bytes text)
{
    size_t n = text.len;
    if (n >= BLOCK) {
        for (size_t i = 0; n - i > BLOCK; i += BLOCK)
            if (block_text_end(text.at + i) < BLOCK)
                return false;
        return block_text_end(text.at + n - BLOCK) == BLOCK;
    }
    if (n >= 8)
        return !word_stops(word_load(text.at)) && !word_stops(word_load(text.at + n - 8));
    if (n >= 4)
        return !word_stops(half_load(text.at) | half_load(text.at + n - 4) << 32);
    for (size_t i = 0; i < n; i++)
        if (byte_stops(text.at[i]))
            return false;
    return true;
}

/* Copies without a call what is short, and returns what is behind it. */
static inline uint8_t *text_put(uint8_t *to, struct bytes text)
{
    size_t n = text.len;
    if (n > 2 * BLOCK) {
        memcpy(to, text.at, n);
    } else if (n >= BLOCK) {
        block_bytes first = block_load(text.at), last = block_load(text.at + n - BLOCK);
        memcpy(to, &first, BLOCK);
        memcpy(to + n - BLOCK, &last, BLOCK);
    } else if (n >= 8) {
        uint64_t first = word_load(text.at), last = word_load(text.at + n - 8);
        memcpy(to, &first, 8);
        memcpy(to + n - 8, &last, 8);
    } else if (n >= 4) {
        uint32_t first = (uint32_t)half_load(text.at), last = (uint32_t)half_load(text.at + n - 4);
        memcpy(to, &first, 4);
        memcpy(to + n - 4, &last, 4);
    } else {
        for (size_t i = 0; i < n; i++)
            to[i] = text.at[i];
    }
    return to + n;
}

#endif
