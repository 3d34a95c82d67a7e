#include "base/base64.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
static const char *const alphabets[] = {[BASE64_TEXT] = LETTERS "+/", [BASE64_URL] = LETTERS "-_"};

size_t base64_write(enum base64 alphabet, struct bytes in, char *out)
{
    const char *letters = alphabets[alphabet];
    size_t n = 0;
    for (size_t i = 0; i < in.len; i += 3) {
        size_t left = in.len - i;
        uint32_t v = (uint32_t)in.at[i] << 16;
        v |= left > 1 ? (uint32_t)in.at[i + 1] << 8 : 0;
        v |= left > 2 ? in.at[i + 2] : 0;
        out[n++] = letters[v >> 18];
        out[n++] = letters[v >> 12 & 63];
        out[n++] = left > 1 ? letters[v >> 6 & 63] : '=';
        out[n++] = left > 2 ? letters[v & 63] : '=';
    }
    return n;
}

int base64_digit(enum base64 alphabet, uint8_t letter)
{
    const char *found = letter ? strchr(alphabets[alphabet], letter) : NULL;
    return found ? (int)(found - alphabets[alphabet]) : -1;
}

bool base64_read(enum base64 alphabet, struct bytes in, uint8_t *out, size_t *n)
{
    while (in.len > 0 && in.at[in.len - 1] == '=' && in.len % 4 != 1)
        in.len--;
    if (in.len % 4 == 1)
        return false;
    uint32_t v = 0;
    *n = 0;
    for (size_t i = 0; i < in.len; i++) {
        int digit = base64_digit(alphabet, in.at[i]);
        if (digit < 0)
            return false;
        v = v << 6 | (uint32_t)digit;
        if (i % 4 > 0) /* the second letter brings the first byte */
            out[(*n)++] = (uint8_t)(v >> (6 - 2 * (i % 4)));
    }
    return true;
}
