#include "base/bytes.h"

#define DIGITS_SURE 18 /* so many always fit, whatever they are */

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

/* "00", "01" … "99" */
static const char pairs[100][2] = {
#define TEN(t)                                                                                     \
    {t, '0'}, {t, '1'}, {t, '2'}, {t, '3'}, {t, '4'}, {t, '5'}, {t, '6'}, {t, '7'}, {t, '8'},      \
    {                                                                                              \
        t, '9'                                                                                     \
    }
    TEN('0'), TEN('1'), TEN('2'), TEN('3'), TEN('4'),
    TEN('5'), TEN('6'), TEN('7'), TEN('8'), TEN('9'),
#undef TEN
};

/* How many digits a number has that is not 0. Its bits tell within one (1233 / 4096 is the decimal
 * logarithm of 2), and a comparison tells the rest. */
static inline size_t digits_of(uint64_t v)
{
    static const uint64_t tens[] = {
#define TENS(n) n##u, n##0u, n##00u, n##000u, n##0000u
        TENS(1),
        TENS(100000),
        TENS(10000000000),
        TENS(1000000000000000),
#undef TENS
    };
    size_t bits = 64 - (size_t)__builtin_clzll(v), least = bits * 1233 >> 12;
    return least + (v >= tens[least]);
}

uint8_t *i64_put(uint8_t *at, int64_t v)
{
    if (v >= 0 && v <= 9) { /* most numbers of an answer */
        *at = (uint8_t)('0' + v);
        return at + 1;
    }
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    if (v < 0)
        *at++ = '-';
    uint8_t *end = at + digits_of(rest), *to = end;
    for (; rest >= 10; rest /= 100)
        memcpy(to -= 2, pairs[rest % 100], 2);
    if (to > at) /* their number is odd */
        *at = (uint8_t)('0' + rest);
    return end;
}

void wr_i64(struct wr *w, int64_t v)
{
    uint8_t digits[DIGITS_MOST];
    wr_bytes_of(w, bytes_of(digits, (size_t)(i64_put(digits, v) - digits)));
}
