/* utf8.h - UTF-8, as far as a reader of escapes needs it: check one character or a text, write one.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/bytes.h"

/* The length of the well-formed character at `at`, 1 to 4, or 0 when there is none: `at` is the
 * end, a byte is missing or out of place, the form is longer than needed, or it encodes a surrogate
 * or something above U+10FFFF. */
static inline size_t utf8_length(const uint8_t *at, const uint8_t *end)
{
    size_t left = (size_t)(end - at);
    if (left == 0)
        return 0;
    uint8_t first = at[0];
    if (first < 0x80)
        return 1;

    size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || left < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] >= 0xa0))
        return 0;
    if ((first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] >= 0x90))
        return 0;
    return length;
}

/* All of it is. */
static inline bool utf8_valid(struct bytes text)
{
    for (const uint8_t *at = text.at, *end = at + text.len; at < end;) {
        size_t n = utf8_length(at, end);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* Writes the character in one to four bytes and returns how many. It is no surrogate. */
static inline size_t utf8_put(uint8_t to[4], uint32_t c)
{
    if (c < 0x80) {
        to[0] = (uint8_t)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {[2] = 0xc0, [3] = 0xe0, [4] = 0xf0};
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        to[i] = (uint8_t)(0x80 | (c & 0x3f));
    to[0] = (uint8_t)(first[length] | c);
    return length;
}

#define UTF8_REPLACEMENT 0xfffd /* stands for what cannot be said */

/* The value of four hexadecimal digits, as in \u20ac; -1 if they are not there. */
static inline int32_t utf8_hex4(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 4)
        return -1;
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        uint8_t letter = c | 0x20;
        if (c >= '0' && c <= '9')
            unit = unit * 16 + (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            unit = unit * 16 + (letter - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

/* The character of the escape \uXXXX at *at, whose digits have been checked. *at moves behind it,
 * or behind two when they are a surrogate pair. Half a pair is U+FFFD: a Java String may hold one,
 * UTF-8 may not. */
static inline uint32_t utf8_take_escape(const uint8_t **at, const uint8_t *end)
{
    uint32_t unit = (uint32_t)utf8_hex4(*at + 2, end);
    *at += 6;
    if (unit < 0xd800 || unit > 0xdfff)
        return unit;
    if (unit <= 0xdbff && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        int32_t low = utf8_hex4(*at + 2, end);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *at += 6;
            return 0x10000 + ((unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        }
    }
    return UTF8_REPLACEMENT;
}

#endif
