#include "base/bytes.h"

#define DIGITS_SURE 18 /* so many always fit, whatever they are */

bool bytes_to_i64(struct bytes text, int64_t *out)
{
    bool minus = text.len > 0 && text.at[0] == '-';
    size_t i = minus ? 1 : 0, sure = text.len < i + DIGITS_SURE ? text.len : i + DIGITS_SURE;
    if (i == text.len)
        return false;

    uint64_t value = 0, limit = (uint64_t)INT64_MAX + (minus ? 1 : 0);
    for (uint64_t eight; sure - i >= 8 && eight_digits(text.at + i, &eight); i += 8)
        value = value * 100000000 + eight;
    for (; i < sure; i++) {
        unsigned digit = (unsigned)text.at[i] - '0';
        if (digit > 9)
            return false;
        value = value * 10 + digit;
    }
    for (; i < text.len; i++) {
        unsigned digit = (unsigned)text.at[i] - '0';
        if (digit > 9 || value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = (int64_t)(minus ? 0 - value : value);
    return true;
}

bool bytes_to_i32(struct bytes text, int32_t *out)
{
    int64_t wide;
    if (!bytes_to_i64(text, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *out = (int32_t)wide;
    return true;
}

/* Eight digits as text, the first in the lowest byte. What is below 10^8 is halved three times, all
 * halves at once: 10486 / 2^20 and 103 / 2^10 are a hundredth and a tenth, as exactly as it takes.
 */
static inline uint64_t eight_text(uint64_t v)
{
    uint64_t x = v / 10000 | v % 10000 << 32;
    uint64_t high = x * 10486 >> 20 & 0x0000007f0000007fu;
    x = high | (x - high * 100) << 16;
    high = x * 103 >> 10 & 0x000f000f000f000fu;
    return high | (x - high * 10) << 8;
}

/* Below 10^8, and how many digits that takes. */
static inline uint8_t *few_put(uint8_t *at, uint64_t v)
{
    uint64_t text = eight_text(v);
    unsigned zeros = (unsigned)__builtin_ctzll(text | (uint64_t)1 << 56) & 56;
    text = (text + 0x3030303030303030u) >> zeros;
    memcpy(at, &text, sizeof text);
    return at + 8 - zeros / 8;
}

uint8_t *i64_put(uint8_t *at, int64_t v)
{
    const uint64_t tens = 100000000;
    if (v >= 0 && v <= 9) { /* most numbers of an answer */
        *at = (uint8_t)('0' + v);
        return at + 1;
    }
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (v < 0)
        *at++ = '-';
    if (rest < tens)
        return few_put(at, rest);
    at = rest < tens * tens ? few_put(at, rest / tens) : i64_put(at, (int64_t)(rest / tens));
    uint64_t text = eight_text(rest % tens) + 0x3030303030303030u;
    memcpy(at, &text, sizeof text);
    return at + 8;
}

void wr_i64(struct wr *w, int64_t v)
{
    uint8_t digits[DIGITS_MOST];
    wr_bytes_of(w, bytes_of(digits, (size_t)(i64_put(digits, v) - digits)));
}
