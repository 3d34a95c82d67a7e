/* block.h - sixteen bytes looked at in one go.
 *
 * Text from the wire is searched for the few bytes that end it, and most of it is longer than a
 * word and shorter than a line. A search compares all sixteen bytes at once and tells where the
 * first hit is. The compiler makes it a handful of vector instructions wherever there are any; the
 * caller sees to it that sixteen bytes are there.
 */
#ifndef BASE_BLOCK_H
#define BASE_BLOCK_H

#include <stdint.h>
#include <string.h>

#define BLOCK 16

typedef int8_t block_bytes __attribute__((vector_size(BLOCK)));

#define BLOCK_OF(c) ((block_bytes){c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c})

static inline block_bytes block_load(const uint8_t *at)
{
    block_bytes b;
    memcpy(&b, at, sizeof b);
    return b;
}

/* A bit for each byte below zero, which is what a comparison makes of a hit; the first is the
 * lowest.
 */
static inline unsigned block_mask(block_bytes hits)
{
#ifdef __SSE2__
    typedef char native __attribute__((vector_size(BLOCK)));
    return (unsigned)__builtin_ia32_pmovmskb128((native)hits);
#else
    unsigned mask = 0;
    for (unsigned i = 0; i < BLOCK; i++)
        mask |= (unsigned)(hits[i] < 0) << i;
    return mask;
#endif
}

/* The place of the first byte that is not zero in what a comparison made; BLOCK: none. */
static inline unsigned block_first(block_bytes hits)
{
#ifdef __SSE2__
    return (unsigned)__builtin_ctz(block_mask(hits) | 1u << BLOCK);
#else
    uint64_t half[2];
    memcpy(half, &hits, sizeof half);
    if (half[0])
        return (unsigned)__builtin_ctzll(half[0]) >> 3;
    return half[1] ? 8 + ((unsigned)__builtin_ctzll(half[1]) >> 3) : BLOCK;
#endif
}

/* The first quote, backslash, control character or byte beyond ASCII: where plain JSON text ends.
 * As signed numbers, bytes beyond ASCII are less than a blank, too. */
static inline unsigned block_text_end(const uint8_t *at)
{
    block_bytes b = block_load(at);
    return block_first(
        (block_bytes)((b < BLOCK_OF(' ')) | (b == BLOCK_OF('"')) | (b == BLOCK_OF('\\'))));
}

/* A bit for each byte that is one of two. */
static inline unsigned block_either_mask(const uint8_t *at, int8_t one, int8_t other)
{
    block_bytes b = block_load(at);
    return block_mask((block_bytes)((b == BLOCK_OF(one)) | (b == BLOCK_OF(other))));
}

#endif
