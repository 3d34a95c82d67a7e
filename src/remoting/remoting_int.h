/* remoting_int.h - what the files of the codec share. */
#ifndef REMOTING_REMOTING_INT_H
#define REMOTING_REMOTING_INT_H

#include "remoting/remoting.h"

#define LANGUAGE_OTHER 7

uint8_t language_number(struct bytes name); /* LANGUAGE_OTHER for what nobody knows */

/* head_decode_json, which also tells where the opaque number stands, if it has only digits. */
must_check enum err head_decode_noting(struct bytes in, struct wr *spare, struct head *out,
                                       const uint8_t **opaque);

/* Eight bytes as a number whose lowest byte is the first. */
static inline uint64_t word_load(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* A bit for each byte of `word` at which plain text ends: a quote, a backslash, a control
 * character, anything beyond ASCII. The lowest bit is always right; those above it may be wrong,
 * because a borrow runs upwards - so only the lowest may be used. 0: all eight are plain. */
static inline uint64_t word_stops(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    return ((quote - ones) | (backslash - ones) | (word - ones * 0x20) | word) & highs;
}

/* How many plain bytes come before the first stop. */
static inline size_t word_plain(uint64_t stops)
{
    return (size_t)__builtin_ctzll(stops) >> 3;
}

static inline bool byte_stops(uint8_t c)
{
    return c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
}

#endif
