/* head_stamp.c - an answer that is given again and again.
 *
 * Of the answers to a million sends everything is the same but a few values. So all that is the
 * same is written once, by those who write any frame, and cut where a value goes in: the *pieces*.
 * A frame is then the pieces and the values in turn. It is the frame that frame_begin, frame_put
 * and frame_end_head would have made, byte for byte.
 *
 * In JSON only, and only with values that need no escape: they are looked at as they are copied.
 * Whoever stamps is told otherwise and writes the frame in the ordinary way.
 */
#include "base/block.h"
#include "remoting/head_put.h"

#define OPAQUE "\"opaque\":"

/* A piece ends here, and a value follows. */
static void cut(struct frame_stamp *stamp, size_t at)
{
    stamp->ends[stamp->n_places++] = (uint16_t)at;
}

void frame_stamp_make(struct frame_stamp *stamp, const struct head_start *head,
                      const struct field *fields, size_t n)
{
    *stamp = (struct frame_stamp){0};
    struct wr w = wr_over(stamp->text, STAMP_TEXT);
    struct frame_out f;
    struct head_start zero = *head;
    zero.opaque = 0;
    frame_begin(&f, &w, HEAD_JSON, &zero);
    const uint8_t *opaque = memmem(stamp->text, wr_len(&w), OPAQUE, sizeof OPAQUE - 1);
    invariant(n < STAMP_PLACES);
    invariant(opaque || w.full);
    if (w.full)
        return;
    /* The 0 that stands there goes. */
    size_t at = (size_t)(opaque - stamp->text) + sizeof OPAQUE - 1;
    cut(stamp, at);
    memmove(stamp->text + at, stamp->text + at + 1, wr_len(&w) - at - 1);
    w.at--;
    for (size_t i = 0; i < n; i++) {
        frame_put(&f, fields[i].name, fields[i].value);
        if (!fields[i].value.at)
            cut(stamp, wr_len(&w) - 1); /* in front of the closing quote */
    }
    frame_end_head(&f, 0);
    cut(stamp, wr_len(&w));
    stamp->n_places--; /* nothing follows the last piece */
    stamp->usable = !w.full;
}

/* Steps of two blocks, so up to STAMP_STEP - 1 bytes more than asked for; both sides have them. */
static inline uint8_t *steps_copy(uint8_t *to, const uint8_t *from, size_t n)
{
    uint8_t *end = to + n;
    for (; to < end; to += STAMP_STEP, from += STAMP_STEP)
        memcpy(to, from, STAMP_STEP);
    return end;
}

/* NULL: it needs escapes, or is not ASCII. The last step looks at bytes a second time rather than
 * at fewer. */
static inline uint8_t *plain_put(uint8_t *to, struct bytes text)
{
    const uint8_t *at = text.at;
    size_t n = text.len, i = 0;
    if (n < BLOCK)
        return text_is_plain(text) ? text_put(to, text) : NULL;
    for (; n - i > BLOCK; i += BLOCK) {
        memcpy(to + i, at + i, BLOCK);
        if (block_text_end(at + i) < BLOCK)
            return NULL;
    }
    memcpy(to + n - BLOCK, at + n - BLOCK, BLOCK);
    return block_text_end(at + n - BLOCK) < BLOCK ? NULL : to + n;
}

bool frame_stamp_write(const struct frame_stamp *stamp, struct wr *w, int32_t opaque,
                       const struct stamp_value *values)
{
    size_t n = stamp->n_places, size = (size_t)stamp->ends[n] + STAMP_STEP;
    for (size_t i = 0; i + 1 < n; i++)
        size += values[i].text.len;
    if (!stamp->usable || w->full || wr_room(w) < size + n * DIGITS_MOST)
        return false;

    uint8_t *start = w->at, *at = steps_copy(start, stamp->text, stamp->ends[0]);
    at = i64_put(at, opaque);
    for (size_t i = 1; i <= n; i++, values++) {
        size_t from = stamp->ends[i - 1];
        at = steps_copy(at, stamp->text + from, stamp->ends[i] - from);
        if (i == n)
            break;
        at = values->is_number ? i64_put(at, values->number) : plain_put(at, values->text);
        if (!at)
            return false;
    }
    size_t len = (size_t)(at - start);
    store_u32(start, (uint32_t)(len - 4));
    store_u32(start + 4, (uint32_t)HEAD_JSON << 24 | (uint32_t)(len - FRAME_PREFIX));
    w->at = at;
    return true;
}
