/* chaos_words.c - shares, rates and ranges. */
#include "cli/chaos_int.h"

#include <math.h>
#include <stdlib.h>

#define WHOLE 1000000

/* Digits, perhaps with a point in them; `*rest` is behind them. */
static bool real(const char *text, double *out, const char **rest)
{
    size_t n = strspn(text, "0123456789.");
    char number[24];
    char *end;
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    *out = strtod(number, &end);
    *rest = text + n;
    return *end == 0;
}

bool chaos_share(const char *text, int64_t *millionths)
{
    double share;
    const char *rest;
    if (!real(text, &share, &rest) || (*rest && strcmp(rest, "%") != 0))
        return false;
    share = share * WHOLE / (*rest ? 100 : 1);
    if (share > WHOLE)
        return false;
    *millionths = llround(share);
    return true;
}

bool chaos_rate(const char *text, int64_t *a_minute)
{
    double rate;
    const char *rest;
    if (!real(text, &rate, &rest))
        return false;
    if (strcmp(rest, "/s") == 0)
        rate *= 60;
    else if (*rest && strcmp(rest, "/min") != 0)
        return false;
    if (rate > 6000)
        return false;
    *a_minute = llround(rate);
    return *a_minute > 0 || rate == 0;
}

bool chaos_range(const char *text, int64_t *min_ms, int64_t *max_ms)
{
    const char *dots = strstr(text, "..");
    char from[32];
    *min_ms = 0;
    if (dots) {
        size_t n = (size_t)(dots - text);
        if (n >= sizeof from)
            return false;
        memcpy(from, text, n);
        from[n] = 0;
        if (!value_duration(from, min_ms))
            return false;
        text = dots + 2;
    }
    return value_duration(text, max_ms) && *min_ms <= *max_ms && *max_ms <= 60000;
}
