/* buf.h - a growing buffer with a ceiling, for bodies whose size is not known beforehand.
 *
 * Like `struct wr` it fails once and stays failed: `buf.err` tells whether memory or the ceiling
 * was the reason. Not for the hot path.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/bytes.h"
#include "base/err.h"

struct buf {
    uint8_t *at;
    size_t len, cap, max;
    enum err err;
};

/* An empty buffer that will not grow beyond `max` bytes. */
static inline struct buf buf_upto(size_t max)
{
    return (struct buf){.max = max};
}

void buf_clear(struct buf *b);               /* frees; may be used again */
uint8_t *buf_space(struct buf *b, size_t n); /* n more bytes to fill, or NULL */
void buf_add(struct buf *b, struct bytes more);
void buf_add_str(struct buf *b, const char *text);
void buf_add_u8(struct buf *b, uint8_t v);
void buf_add_u32(struct buf *b, uint32_t v); /* big-endian */
void buf_add_u64(struct buf *b, uint64_t v);
void buf_printf(struct buf *b, const char *format, ...) printf_like(2, 3);

static inline struct bytes buf_bytes(const struct buf *b)
{
    return (struct bytes){b->at, b->len};
}

#endif
