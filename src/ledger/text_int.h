/* text_int.h - texts and blobs of wire.h and entry.h. */
#ifndef LEDGER_TEXT_INT_H
#define LEDGER_TEXT_INT_H

#include "base/bytes.h"

#define TEXT_ROOM(n) (2 + (n) + 1)
#define BLOB_ROOM(n) (4 + (n))

static inline struct bytes text_cut(struct bytes text, size_t max)
{
    return bytes_of(text.at, text.len < max ? text.len : max);
}

static inline void text_write(struct wr *w, struct bytes text)
{
    wr_u16(w, (uint16_t)text.len);
    wr_bytes_of(w, text);
    wr_u8(w, 0);
}

/* Without a NUL inside, with one behind it. */
static inline struct bytes text_read(struct rd *r)
{
    struct bytes text = rd_take(r, rd_u16(r));
    if (rd_u8(r) != 0 || (text.len > 0 && memchr(text.at, 0, text.len)))
        r->bad = true;
    return text;
}

static inline void blob_write(struct wr *w, struct bytes blob)
{
    wr_u32(w, (uint32_t)blob.len);
    wr_bytes_of(w, blob);
}

static inline struct bytes blob_read(struct rd *r)
{
    return rd_take(r, rd_u32(r));
}

#endif
