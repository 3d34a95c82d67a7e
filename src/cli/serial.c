/* serial.c - numbers of messages, and what is left of them. */
#include "cli/serial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTED_DIGITS 12
#define RANGES_MAX     ((size_t)1 << 24)

static enum err range_add(struct ranges *r, struct range range)
{
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 16;
        struct range *more = cap <= RANGES_MAX ? realloc(r->at, cap * sizeof *more) : NULL;
        if (!more)
            return ERR_NO_MEMORY;
        r->at = more;
        r->cap = cap;
    }
    r->at[r->n++] = range;
    return OK;
}

enum err serial_init(struct serial *s, const char *id, uint64_t count)
{
    *s = (struct serial){0};
    if (strlen(id) >= sizeof s->id)
        return ERR_TOO_BIG;
    memcpy(s->id, id, strlen(id) + 1);
    return count == 0 ? OK : range_add(&s->wanted, (struct range){1, count, false});
}

void serial_clear(struct serial *s)
{
    free(s->wanted.at);
    free(s->back.at);
    *s = (struct serial){0};
}

/* ---- from text ---- */

static bool number_read(const char **at, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    unsigned long long number = strtoull(*at, &end, 10);
    if (end - *at > 19 || number == 0)
        return false;
    *out = number;
    *at = end;
    return true;
}

static bool range_read(const char **at, struct range *out)
{
    *out = (struct range){0};
    if (!number_read(at, &out->first))
        return false;
    out->last = out->first;
    if (**at == '-') {
        ++*at;
        out->last = SERIAL_END;
        if (**at >= '0' && **at <= '9' && !number_read(at, &out->last))
            return false;
    }
    out->unsure = **at == '?';
    *at += out->unsure;
    return out->last >= out->first;
}

enum err serial_parse(struct serial *s, const char *text)
{
    *s = (struct serial){0};
    const char *slash = strrchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : 0;
    if (len == 0 || len >= sizeof s->id)
        return ERR_MALFORMED;
    memcpy(s->id, text, len);
    const char *at = slash + 1;
    uint64_t above = 0;
    for (;;) {
        struct range range;
        if (!range_read(&at, &range) || range.first <= above || (*at && *at != ',')) {
            serial_clear(s);
            return ERR_MALFORMED;
        }
        enum err err = range_add(&s->wanted, range);
        if (err) {
            serial_clear(s);
            return err;
        }
        above = range.last;
        if (!*at)
            return OK;
        at++;
    }
}

/* ---- giving out ---- */

uint64_t serial_peek(const struct serial *s)
{
    if (s->at == s->wanted.n)
        return 0;
    return s->next ? s->next : s->wanted.at[s->at].first;
}

uint64_t serial_next(struct serial *s, bool *unsure)
{
    uint64_t number = serial_peek(s);
    if (number == 0)
        return 0;
    const struct range *range = &s->wanted.at[s->at];
    *unsure = range->unsure;
    s->next = number + 1;
    if (number == range->last) {
        s->at++;
        s->next = 0;
    }
    return number;
}

bool serial_id(const struct serial *s, uint64_t number, char out[SERIAL_ID_MAX])
{
    size_t len = strlen(s->id);
    memcpy(out, s->id, len + 1);
    if (number == 1)
        return true;
    if (len < COUNTED_DIGITS ||
        strspn(s->id + len - COUNTED_DIGITS, "0123456789ABCDEFabcdef") != COUNTED_DIGITS)
        return false;
    uint64_t low = strtoull(s->id + len - COUNTED_DIGITS, NULL, 16) + (number - 1);
    (void)snprintf(out + len - COUNTED_DIGITS, COUNTED_DIGITS + 1, "%012" PRIX64,
                   low & 0xffffffffffff);
    return true;
}

/* ---- what is left ---- */

enum err serial_back(struct serial *s, uint64_t number, bool unsure)
{
    return range_add(&s->back, (struct range){number, number, unsure});
}

static int by_first(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void range_put(struct buf *out, const struct range *r, const char *id, bool *some)
{
    if (*some)
        buf_add_u8(out, ',');
    else
        buf_printf(out, "%s/", id);
    *some = true;
    buf_printf(out, "%" PRIu64, r->first);
    if (r->last == SERIAL_END)
        buf_add_u8(out, '-');
    else if (r->last > r->first)
        buf_printf(out, "-%" PRIu64, r->last);
    if (r->unsure)
        buf_add_u8(out, '?');
}

bool serial_text(struct serial *s, uint64_t end, struct buf *out)
{
    bool some = false;
    if (s->back.n > 0)
        qsort(s->back.at, s->back.n, sizeof *s->back.at, by_first);
    for (size_t i = 0; i < s->back.n;) {
        struct range joined = s->back.at[i++];
        while (i < s->back.n && s->back.at[i].first == joined.last + 1 &&
               s->back.at[i].unsure == joined.unsure)
            joined.last = s->back.at[i++].last;
        range_put(out, &joined, s->id, &some);
    }
    for (size_t i = s->at; i < s->wanted.n; i++) {
        struct range rest = s->wanted.at[i];
        if (i == s->at && s->next)
            rest.first = s->next;
        if (rest.first <= end)
            range_put(out, &rest, s->id, &some);
    }
    return some;
}
