#include "base/bytes.h"

#define DIGITS_SURE 18 /* so many always fit, whatever they are */

bool bytes_to_i64(struct bytes text, int64_t *out)
{
    bool minus = text.len > 0 && text.at[0] == '-';
    size_t i = minus ? 1 : 0, sure = text.len < i + DIGITS_SURE ? text.len : i + DIGITS_SURE;
    if (i == text.len)
        return false;

    uint64_t value = 0, limit = (uint64_t)INT64_MAX + (minus ? 1 : 0);
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

void wr_i64(struct wr *w, int64_t v)
{
    if (v >= 0 && v <= 9) { /* most numbers of an answer */
        wr_u8(w, (uint8_t)('0' + v));
        return;
    }
    uint8_t digits[20];
    size_t at = sizeof digits;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (v < 0)
        digits[--at] = '-'; /* nineteen digits at most, so there is room */
    wr_bytes_of(w, bytes_of(digits + at, sizeof digits - at));
}
