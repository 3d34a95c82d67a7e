/* sql92_number.c - numbers in text, as Java's Integer, Long and Double read them.
 *
 * A double is first taken apart: sign, significant digits, exponent. Up to fifteen digits and a
 * small power of ten are exact in a double, so that one multiplication gives the right result; that
 * is nearly all there ever is. The rest goes to strtod in a form of our own, of bounded length:
 * digits behind those that can matter are there only as "more than nothing".
 */
#include "broker/sql92_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS_MAX   800     /* no halfway point between two doubles has more than 768 */
#define EXPONENT_MAX 1000000 /* beyond this only the sign of the exponent matters */

static bool whole_read(struct bytes text, uint64_t above, uint64_t below, int64_t *out)
{
    bool minus = text.len > 0 && text.at[0] == '-';
    if (minus || (text.len > 0 && text.at[0] == '+'))
        text = bytes_from(text, 1);
    if (text.len == 0)
        return false;
    uint64_t limit = minus ? below : above, n = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = text.at[i] - (unsigned)'0';
        if (digit > 9 || n > (limit - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *out = minus ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

bool java_int(struct bytes text, int64_t *out)
{
    return whole_read(text, INT32_MAX, UINT64_C(1) << 31, out);
}

bool java_long(struct bytes text, int64_t *out)
{
    return whole_read(text, INT64_MAX, UINT64_C(1) << 63, out);
}

/* ---- doubles ---- */

/* What stands in a number before its exponent. */
struct digits {
    int64_t scale;  /* how many places the point stands right of the last digit kept; may be < 0 */
    size_t n;       /* without leading zeros */
    bool any, more; /* there was a digit at all; what was left out is not zero */
    char text[DIGITS_MAX + 1];
};

static int digit_of(uint8_t c, int base)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void digits_add(struct digits *d, uint8_t c, bool after_point)
{
    d->any = true;
    if (d->n == 0 && c == '0') {
        d->scale -= after_point;
    } else if (d->n < DIGITS_MAX) {
        d->text[d->n++] = (char)c;
        d->scale -= after_point;
    } else {
        d->more = d->more || c != '0';
        d->scale += !after_point;
    }
}

/* Digits with at most one point among them. */
static void digits_read(struct rd *r, int base, struct digits *d)
{
    bool after_point = false;
    d->scale = 0;
    d->n = 0;
    d->any = d->more = false;
    for (; r->at < r->end; r->at++) {
        if (*r->at == '.' && !after_point)
            after_point = true;
        else if (digit_of(*r->at, base) >= 0)
            digits_add(d, *r->at, after_point);
        else
            break;
    }
}

/* The letter (in small) and behind it a whole number. True, and 0: no such letter. */
static bool exponent_read(struct rd *r, uint8_t letter, bool *found, int64_t *out)
{
    *found = r->at < r->end && (*r->at | 0x20) == letter;
    *out = 0;
    if (!*found)
        return true;
    r->at++;
    bool minus = r->at < r->end && *r->at == '-';
    if (minus || (r->at < r->end && *r->at == '+'))
        r->at++;
    const uint8_t *first = r->at;
    for (; r->at < r->end && digit_of(*r->at, 10) >= 0; r->at++)
        if (*out < EXPONENT_MAX)
            *out = *out * 10 + digit_of(*r->at, 10);
    if (minus)
        *out = -*out;
    return r->at > first;
}

static double digits_slow(struct digits *d, const char *prefix, char letter, int64_t exponent)
{
    char text[DIGITS_MAX + 32];
    if (d->more) {
        d->text[d->n++] = '1';
        exponent -= letter == 'p' ? 4 : 1;
    }
    (void)snprintf(text, sizeof text, "%s%.*s%c%lld", prefix, (int)d->n, d->text, letter,
                   (long long)exponent);
    return strtod(text, NULL);
}

static double decimal_value(struct digits *d, int64_t exponent)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (d->n == 0)
        return 0;
    if (d->n > 15 || exponent > 22 || exponent < -22)
        return digits_slow(d, "", 'e', exponent);
    int64_t whole = 0;
    for (size_t i = 0; i < d->n; i++)
        whole = whole * 10 + (d->text[i] - '0');
    return exponent < 0 ? (double)whole / powers[-exponent] : (double)whole * powers[exponent];
}

/* Without sign and blanks around it. */
static bool magnitude_read(struct rd *r, double *out)
{
    struct digits d;
    bool found;
    int64_t exponent;
    bool hex = rd_left(r) > 2 && r->at[0] == '0' && (r->at[1] | 0x20) == 'x';
    if (hex)
        r->at += 2;
    digits_read(r, hex ? 16 : 10, &d);
    if (!d.any || !exponent_read(r, hex ? 'p' : 'e', &found, &exponent))
        return false;
    if (hex && !found)
        return false;
    if (r->at < r->end && ((*r->at | 0x20) == 'f' || (*r->at | 0x20) == 'd'))
        r->at++;
    if (r->at != r->end)
        return false;
    if (hex)
        *out = d.n ? digits_slow(&d, "0x", 'p', exponent + 4 * d.scale) : 0;
    else
        *out = decimal_value(&d, exponent + d.scale);
    return true;
}

bool java_double(struct bytes text, double *out)
{
    while (text.len > 0 && text.at[0] <= ' ')
        text = bytes_from(text, 1);
    while (text.len > 0 && text.at[text.len - 1] <= ' ')
        text.len--;
    bool minus = text.len > 0 && text.at[0] == '-';
    if (minus || (text.len > 0 && text.at[0] == '+'))
        text = bytes_from(text, 1);

    double value;
    struct rd r = rd_over(text);
    if (bytes_equal(text, BYTES("NaN")))
        value = (double)NAN;
    else if (bytes_equal(text, BYTES("Infinity")))
        value = (double)INFINITY;
    else if (!magnitude_read(&r, &value))
        return false;
    *out = minus ? -value : value;
    return true;
}

int java_compare(double a, double b)
{
    if (a < b)
        return -1;
    if (a > b)
        return 1;
    if (isnan(a) || isnan(b))
        return !!isnan(a) - !!isnan(b);
    return !!signbit(b) - !!signbit(a); /* equal, or zeros */
}
