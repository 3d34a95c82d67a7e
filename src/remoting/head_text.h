/* head_text.h - texts and numbers of a JSON header, for those who read one: head_json.c, and
 * head_again.c where it is like the one before. */
#ifndef REMOTING_HEAD_TEXT_H
#define REMOTING_HEAD_TEXT_H

#include "base/block.h"
#include "base/utf8.h"
#include "remoting/remoting_int.h"

/* A header on its way. */
struct scan {
    const uint8_t *at, *end;
    struct wr *spare;
    const uint8_t *opaque; /* the digits of that member, if they are only digits; or NULL */
};

/* What a backslash and this letter stand for; 0: no escape. */
static const uint8_t simple_escapes[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

/* The escape at `*at`, which is a backslash. Never makes more bytes than it eats: six become three
 * at most, a pair of six becomes four. False if it is no escape. */
static inline bool escape_copy(const uint8_t **at, const uint8_t *end, uint8_t **to)
{
    const uint8_t *in = *at;
    if (end - in < 2)
        return false;
    if (in[1] != 'u') {
        uint8_t c = simple_escapes[in[1]];
        *(*to)++ = c;
        *at += 2;
        return c != 0;
    }
    if (utf8_hex4(in + 2, end) < 0)
        return false;
    *to += utf8_put(*to, utf8_take_escape(at, end));
    return true;
}

/* Up to the first byte that is not plain. */
static inline const uint8_t *plain_end(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= BLOCK; at += BLOCK) {
        unsigned plain = block_text_end(at);
        if (plain < BLOCK)
            return at + plain;
    }
    for (; end - at >= 8; at += 8) {
        uint64_t stops = word_stops(word_load(at));
        if (stops)
            return at + word_plain(stops);
    }
    while (at < end && !byte_stops(*at))
        at++;
    return at;
}

/* What is not plain and no closing quote: an escape, a character beyond ASCII, or a fault. */
static inline bool odd_copy(const uint8_t **at, const uint8_t *end, uint8_t **to)
{
    if (**at == '\\')
        return escape_copy(at, end, to);
    size_t len = **at < 0x20 ? 0 : utf8_length(*at, end);
    memcpy(*to, *at, len);
    *at += len;
    *to += len;
    return len > 0;
}

/* \u0001 and \u0002 stand between properties: every send has some of them. The byte it stands for;
 * 0: it is another one. `at` has eight bytes. */
static inline uint8_t separator_escape(const uint8_t *at)
{
    const uint64_t six = 0x0000ffffffffffff, one = 0x31303030755c; /* \u0001, its end first */
    uint64_t more = (word_load(at) & six) - one; /* of the last digit, if the rest is the same */
    return more == 0 ? 1 : more == (uint64_t)1 << 40 ? 2 : 0;
}

/* One character, or the escape of one. */
static inline bool one_copy(const uint8_t **at, const uint8_t *end, uint8_t **to)
{
    if (byte_stops(**at))
        return odd_copy(at, end, to);
    *(*to)++ = *(*at)++;
    return true;
}

/* Text that has escapes, or is not ASCII. There is room for as many bytes as are left of the input,
 * and never more are written than were read, so sixteen can be stored where fewer count. */
static inline enum err text_copy(struct scan *s, struct bytes *out)
{
    const uint8_t *at = s->at, *end = s->end;
    if (!s->spare || s->spare->full || wr_room(s->spare) < (size_t)(end - at))
        return ERR_TOO_BIG;
    uint8_t *first = s->spare->at, *to = first;
    while (end - at >= BLOCK + 8) { /* what stops a block has eight bytes, too */
        unsigned plain = block_text_end(at);
        memcpy(to, at, BLOCK);
        at += plain;
        to += plain;
        if (plain == BLOCK)
            continue;
        uint8_t separator = separator_escape(at);
        if (separator) {
            *to++ = separator;
            at += 6;
        } else if (*at == '"') {
            break;
        } else if (!odd_copy(&at, end, &to)) {
            return ERR_MALFORMED;
        }
    }
    while (at < end && *at != '"')
        if (!one_copy(&at, end, &to))
            return ERR_MALFORMED;
    if (at >= end)
        return ERR_MALFORMED;
    *out = bytes_of(first, (size_t)(to - first));
    s->spare->at = to;
    s->at = at + 1;
    return OK;
}

/* From behind the opening quote to behind the closing one. */
static inline enum err text_read(struct scan *s, struct bytes *out)
{
    /* One character is the length of most names and values of a send. Asking for it first lets the
     * processor run ahead, where it would have to wait for the search to tell a length. */
    const uint8_t *at = s->at;
    if (s->end - at >= 2 && at[1] == '"' && !byte_stops(at[0]))
        at++;
    else
        at = plain_end(at, s->end);
    if (at == s->end)
        return ERR_MALFORMED;
    if (*at != '"')
        return text_copy(s, out);
    *out = bytes_of(s->at, (size_t)(at - s->at));
    s->at = at + 1;
    return OK;
}

/* Up to ten digits with a comma behind them, as nearly all numbers of a header are. False: it is
 * written otherwise; nothing was read. */
static inline bool digits_take(struct scan *s, int32_t *out)
{
    const uint8_t *at = s->at, *end = s->end - at > 10 ? at + 10 : s->end;
    uint64_t value = 0;
    if (at == end || *at == '0')
        return false; /* a zero is followed by nothing; number_read knows that */
    if (end - at >= 8 && eight_digits(at, &value))
        at += 8;
    for (uint8_t digit; at < end && (digit = (uint8_t)(*at - '0')) <= 9; at++)
        value = value * 10 + digit;
    if (at == s->at || at == s->end || *at != ',' || value > INT32_MAX)
        return false;
    *out = (int32_t)value;
    s->at = at;
    return true;
}

#endif
