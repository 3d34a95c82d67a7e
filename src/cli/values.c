/* values.c - numbers, sizes, durations and times as people write them. */
#include "cli/cli.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct unit {
    const char *name;
    double times;
};

/* Digits with at most one point; `*end` is behind them. */
static bool digits(const char *text, double *out, const char **end)
{
    size_t n = strspn(text, "0123456789.");
    const char *point = memchr(text, '.', n);
    if (n == 0 || n > 20 || *text == '.' ||
        (point && memchr(point + 1, '.', n - (size_t)(point + 1 - text))))
        return false;
    char number[24];
    memcpy(number, text, n);
    number[n] = 0;
    *out = strtod(number, NULL);
    *end = text + n;
    return true;
}

static const struct unit *unit_find(const struct unit *units, const char *name, size_t len)
{
    for (; units->name; units++)
        if (strlen(units->name) == len && strncasecmp(units->name, name, len) == 0)
            return units;
    return NULL;
}

static bool whole(double value, int64_t *out)
{
    if (value < 0 || value > 9e18 || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}

static bool with_unit(const char *text, const struct unit *units, int64_t *out)
{
    double value;
    const char *rest;
    int64_t exact;
    if (bytes_to_i64(bytes_str(text), &exact) && exact >= 0) {
        *out = exact;
        return true;
    }
    if (!digits(text, &value, &rest))
        return false;
    const struct unit *unit = unit_find(units, rest, strlen(rest));
    return unit && whole(value * unit->times, out);
}

bool value_number(const char *text, int64_t *out)
{
    static const struct unit units[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {NULL, 0}};
    return with_unit(text, units, out);
}

bool value_size(const char *text, int64_t *out)
{
    static const struct unit units[] = {
        {"", 1},       {"b", 1},       {"k", 1024},     {"kb", 1024},
        {"kib", 1024}, {"m", 1048576}, {"mb", 1048576}, {"mib", 1048576},
        {"g", 0x1p30}, {"gb", 0x1p30}, {"gib", 0x1p30}, {NULL, 0},
    };
    return with_unit(text, units, out);
}

/* What is longer or later than this is a mistake; and it can be added to a time. */
#define SPAN_MAX INT64_C(315360000000000) /* ms: 10,000 years */
#define TIME_MAX INT64_C(253402300799999) /* ms since 1970: the year 9999 */

bool value_duration(const char *text, int64_t *ms)
{
    static const struct unit units[] = {{"ms", 1},    {"s", 1000},   {"m", 60000}, {"h", 3600000.0},
                                        {"d", 864e5}, {"w", 6048e5}, {NULL, 0}};
    int64_t seconds;
    if (bytes_to_i64(bytes_str(text), &seconds) && seconds >= 0 && seconds < INT64_MAX / 1000) {
        *ms = seconds * 1000;
        return *ms <= SPAN_MAX;
    }
    double sum = 0;
    do { /* 1h30m */
        double value;
        const char *name;
        if (!digits(text, &value, &name))
            return false;
        size_t len = strcspn(name, "0123456789.");
        const struct unit *unit = unit_find(units, name, len);
        if (!unit)
            return false;
        sum += value * unit->times;
        text = name + len;
    } while (*text);
    return sum <= (double)SPAN_MAX && whole(round(sum), ms);
}

/* A date, a time of day or both, in this machine's time zone unless it ends in Z or an offset. */
static bool calendar(const char *text, int64_t now, int64_t *ms)
{
    static const char *const forms[] = {
        "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M",
        "%Y-%m-%d",          "%H:%M:%S",          "%H:%M"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        time_t today = (time_t)(now / 1000);
        struct tm tm;
        (void)localtime_r(&today, &tm);
        tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
        tm.tm_isdst = -1;
        const char *rest = strptime(text, forms[i], &tm);
        if (!rest)
            continue;
        double fraction = 0;
        if (*rest == '.' && isdigit((unsigned char)rest[1])) {
            char *end;
            fraction = strtod(rest, &end);
            rest = end;
        }
        struct tm zone = {0};
        bool fixed = *rest == 'Z' || *rest == '+' || *rest == '-';
        const char *end = fixed ? strptime(rest, "%z", &zone) : rest;
        if (!end || *end)
            continue;
        time_t seconds = fixed ? timegm(&tm) - zone.tm_gmtoff : mktime(&tm);
        *ms = (int64_t)seconds * 1000 + (int64_t)(fraction * 1000);
        return *ms >= 0;
    }
    return false;
}

bool value_time(const char *text, int64_t now, int64_t *ms)
{
    int64_t span;
    if (strcmp(text, "now") == 0) {
        *ms = now;
        return true;
    }
    if ((*text == '-' || *text == '+') && value_duration(text + 1, &span)) {
        *ms = *text == '-' ? now - span : now + span;
        return *ms >= 0 && *ms <= TIME_MAX;
    }
    if (bytes_to_i64(bytes_str(text), ms))
        return *ms >= 100000000000 && *ms <= TIME_MAX; /* 1973: what is less is no number of ms */
    return calendar(text, now, ms);
}

/* ---- what was probably meant ---- */

#define WORD_MAX 40

/* How many letters have to be changed, added, dropped or swapped. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), rows[3][WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        size_t far = distance(word, words[i]);
        if (strlen(word) >= 3 && strncmp(words[i], word, strlen(word)) == 0)
            far = 1; /* the beginning of a long one */
        if (far < least) {
            least = far;
            best = words[i];
        }
    }
    return best;
}
