/* filter.c - which messages a reader wants, by the hash of their tag.
 *
 * Up to FILTER_TAGS_MAX tags are kept as their hashes. Beyond that `codes` becomes a set of bits,
 * one for each tag: it lets a few messages through that nobody asked for, never the other way
 * round. That is within the protocol: hashes collide anyway, so every client compares the text
 * itself.
 */
#include "broker/broker_int.h"

#include <assert.h>

#define SET_BITS (FILTER_TAGS_MAX * 32u)

/* FILTER_TAGS_MAX codes of 32 bits: as many bits as the codes would take. */
static_assert((SET_BITS & (SET_BITS - 1)) == 0, "the hash is cut by a mask");

static uint32_t set_bit(int32_t code)
{
    return ((uint32_t)code * 0x9e3779b1u >> 16) & (SET_BITS - 1);
}

static void set_add(struct filter *f, int32_t code)
{
    uint32_t bit = set_bit(code);
    f->codes[bit / 32] = (int32_t)((uint32_t)f->codes[bit / 32] | 1u << bit % 32);
}

static bool set_has(const struct filter *f, int32_t code)
{
    uint32_t bit = set_bit(code);
    return ((uint32_t)f->codes[bit / 32] >> bit % 32 & 1u) != 0;
}

static void filter_add(struct filter *f, int32_t code)
{
    if (f->n < FILTER_TAGS_MAX) {
        f->codes[f->n++] = code;
        return;
    }
    if (f->n == FILTER_TAGS_MAX) { /* the exact ones become bits like the rest */
        struct filter exact = *f;
        memset(f->codes, 0, sizeof f->codes);
        for (uint32_t i = 0; i < FILTER_TAGS_MAX; i++)
            set_add(f, exact.codes[i]);
        f->n++;
    }
    set_add(f, code);
}

/* As Java's String.trim: everything up to the blank. */
static struct bytes trim(struct bytes b)
{
    while (b.len > 0 && b.at[0] <= ' ')
        b = bytes_from(b, 1);
    while (b.len > 0 && b.at[b.len - 1] <= ' ')
        b.len--;
    return b;
}

/* Cuts off what stands before the next `||`. */
static struct bytes next_tag(struct bytes *rest)
{
    size_t i = 0;
    while (i + 1 < rest->len && !(rest->at[i] == '|' && rest->at[i + 1] == '|'))
        i++;
    bool more = i + 1 < rest->len;
    struct bytes tag = bytes_of(rest->at, more ? i : rest->len);
    *rest = bytes_from(*rest, more ? i + 2 : rest->len);
    return trim(tag);
}

enum err filter_parse(struct bytes expression, struct bytes type, struct filter *out,
                      struct fault *why)
{
    if (type.len > 0 && !bytes_equal(type, BYTES("TAG")))
        return fault_set(why, ERR_UNSUPPORTED,
                         "expressions of type %.*s are not supported, only TAG", BRIEF(type));

    struct filter f = {0};
    if (expression.len == 0 || bytes_equal(expression, BYTES("*"))) {
        f.all = true;
        *out = f;
        return OK;
    }
    while (expression.len > 0) { /* each turn eats a byte or more */
        struct bytes tag = next_tag(&expression);
        if (tag.len > 0)
            filter_add(&f, (int32_t)tags_code(tag));
    }
    if (f.n == 0)
        return fault_set(why, ERR_MALFORMED, "the expression names no tag; * stands for all");
    *out = f;
    return OK;
}

bool filter_wants(const struct filter *f, int64_t tags_code)
{
    if (f->all)
        return true;
    int32_t code = (int32_t)tags_code;
    if (f->n > FILTER_TAGS_MAX)
        return set_has(f, code);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->codes[i] == code)
            return true;
    return false;
}
