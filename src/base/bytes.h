/* bytes.h - slices of memory, and the two cursors that read and write them.
 *
 * A `struct bytes` is a pointer and a length; it owns nothing. All decoding goes through `struct
 * rd`: it never reads past its end, and once it has failed it stays failed and yields zeros, so a
 * decoder reads straight down and asks once. `struct wr` is its mirror for writing into a buffer of
 * known size. Byte order is in no name: every RocketMQ format is big-endian.
 */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *at;
    size_t len;
};

/* A literal as bytes: BYTES("TBW102"). */
#define BYTES(literal) ((struct bytes){(const uint8_t *)(literal), sizeof(literal) - 1})
/* For "%.*s". */
#define BYTES_ARG(b) (int)(b).len, (const char *)(b).at

static inline struct bytes bytes_of(const void *at, size_t len)
{
    return (struct bytes){(const uint8_t *)at, len};
}

static inline struct bytes bytes_str(const char *text)
{
    return (struct bytes){(const uint8_t *)text, text ? strlen(text) : 0};
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    /* b's length: when b is a literal the compiler knows it, and no function is called. */
    return a.len == b.len && (b.len == 0 || memcmp(a.at, b.at, b.len) == 0);
}

static inline bool bytes_start(struct bytes whole, struct bytes prefix)
{
    return whole.len >= prefix.len &&
           (prefix.len == 0 || memcmp(whole.at, prefix.at, prefix.len) == 0);
}

/* The slice from `from` on; `from` is at most the length. */
static inline struct bytes bytes_from(struct bytes b, size_t from)
{
    return (struct bytes){b.at + from, b.len - from};
}

/* "true" in any case of letters, as Java's Boolean.parseBoolean. */
static inline bool bytes_true(struct bytes text)
{
    uint32_t word, yes;
    if (text.len != 4)
        return false;
    memcpy(&word, text.at, sizeof word);
    memcpy(&yes, "true", sizeof yes);
    return (word | 0x20202020) == yes;
}

static inline int bytes_compare(struct bytes a, struct bytes b)
{
    size_t shared = a.len < b.len ? a.len : b.len;
    int order = shared ? memcmp(a.at, b.at, shared) : 0;
    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

/* Decimal text, with an optional minus, nothing else around it. False if it does not fit. */
bool bytes_to_i64(struct bytes text, int64_t *out);
bool bytes_to_i32(struct bytes text, int32_t *out);

/* Eight digits as a number; false if they are none. Neighbours are joined first: pairs, fours. */
static inline bool eight_digits(const uint8_t *at, uint64_t *out)
{
    uint64_t word;
    memcpy(&word, at, sizeof word); /* the first digit in the lowest byte */
    const uint64_t high = 0xf0f0f0f0f0f0f0f0u, zeros = 0x3030303030303030u;
    if ((word & high) != zeros || ((word + 0x0606060606060606u) & high) != zeros)
        return false;
    word -= zeros;
    word = (word * 10 + (word >> 8)) & 0x00ff00ff00ff00ffu;
    word = (word * 100 + (word >> 16)) & 0x0000ffff0000ffffu;
    *out = (word * 10000 + (word >> 32)) & 0xffffffffu;
    return true;
}

/* ---- reading ---- */

struct rd {
    const uint8_t *at, *end;
    bool bad;
};

static inline struct rd rd_over(struct bytes b)
{
    static const uint8_t nothing[1];
    const uint8_t *at = b.at ? b.at : nothing;
    return (struct rd){at, at + (b.at ? b.len : 0), false};
}

static inline size_t rd_left(const struct rd *r)
{
    return (size_t)(r->end - r->at);
}

static inline struct bytes rd_take(struct rd *r, size_t n)
{
    if (r->bad || n > rd_left(r)) {
        r->bad = true;
        return (struct bytes){0};
    }
    struct bytes b = {r->at, n};
    r->at += n;
    return b;
}

static inline uint8_t rd_u8(struct rd *r)
{
    struct bytes b = rd_take(r, 1);
    return b.at ? b.at[0] : 0;
}

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap16(v);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap64(v);
}

static inline uint16_t rd_u16(struct rd *r)
{
    struct bytes b = rd_take(r, 2);
    return b.at ? load_u16(b.at) : 0;
}

static inline uint32_t rd_u32(struct rd *r)
{
    struct bytes b = rd_take(r, 4);
    return b.at ? load_u32(b.at) : 0;
}

static inline uint64_t rd_u64(struct rd *r)
{
    struct bytes b = rd_take(r, 8);
    return b.at ? load_u64(b.at) : 0;
}

/* ---- writing ---- */

/* Writes into a buffer of fixed size. When something does not fit, nothing more is written and
 * `full` stays set; the caller asks once at the end. */
struct wr {
    uint8_t *start, *at, *end;
    bool full;
};

static inline struct wr wr_over(void *buffer, size_t size)
{
    uint8_t *at = (uint8_t *)buffer;
    return (struct wr){at, at, at + size, false};
}

static inline size_t wr_len(const struct wr *w)
{
    return (size_t)(w->at - w->start);
}

static inline size_t wr_room(const struct wr *w)
{
    return (size_t)(w->end - w->at);
}

static inline struct bytes wr_bytes(const struct wr *w)
{
    return (struct bytes){w->start, wr_len(w)};
}

/* Space for n bytes, to be filled by the caller; NULL when it does not fit. */
static inline uint8_t *wr_space(struct wr *w, size_t n)
{
    if (w->full || n > wr_room(w)) {
        w->full = true;
        return NULL;
    }
    uint8_t *p = w->at;
    w->at += n;
    return p;
}

static inline void store_u16(uint8_t *p, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof v);
}

static inline void store_u64(uint8_t *p, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof v);
}

static inline void wr_u8(struct wr *w, uint8_t v)
{
    uint8_t *p = wr_space(w, 1);
    if (p)
        *p = v;
}

static inline void wr_u16(struct wr *w, uint16_t v)
{
    uint8_t *p = wr_space(w, 2);
    if (p)
        store_u16(p, v);
}

static inline void wr_u32(struct wr *w, uint32_t v)
{
    uint8_t *p = wr_space(w, 4);
    if (p)
        store_u32(p, v);
}

static inline void wr_u64(struct wr *w, uint64_t v)
{
    uint8_t *p = wr_space(w, 8);
    if (p)
        store_u64(p, v);
}

static inline void wr_bytes_of(struct wr *w, struct bytes b)
{
    uint8_t *p = wr_space(w, b.len);
    if (p && b.len)
        memcpy(p, b.at, b.len);
}

/* Decimal text. */
void wr_i64(struct wr *w, int64_t v);
#define DIGITS_MOST 20 /* with the sign */
/* The same where there is room for DIGITS_MOST; returns what is behind it. */
uint8_t *i64_put(uint8_t *at, int64_t v);

#endif
