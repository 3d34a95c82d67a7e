/* filter.c - which messages a reader wants: by the hash of their tag, or by an SQL92 expression.
 *
 * Up to TAGS_MAX tags are kept as their hashes. Beyond that `codes` becomes a set of bits, one for
 * each tag: it lets a few messages through that nobody asked for, never the other way round. That
 * is within the protocol: hashes collide anyway, so every client compares the text itself.
 *
 * Nobody else compares what an expression says, so there the broker's answer is exact.
 */
#include "broker/broker_int.h"
#include "broker/sql92.h"

#include <assert.h>
#include <stdlib.h>

#define TAGS_MAX 32
#define SET_BITS (TAGS_MAX * 32u) /* as many bits as the codes would take */
static_assert((SET_BITS & (SET_BITS - 1)) == 0, "the hash is cut by a mask");

struct filter {
    struct counted counted;
    struct filters *filters;
    struct sql92 *sql; /* else tags */
    uint32_t n;        /* above TAGS_MAX: `codes` is a set of bits */
    int32_t codes[TAGS_MAX];
};

/* ---- tags ---- */

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

static void tag_add(struct filter *f, int32_t code)
{
    if (f->n < TAGS_MAX) {
        f->codes[f->n++] = code;
        return;
    }
    if (f->n == TAGS_MAX) { /* the exact ones become bits like the rest */
        int32_t exact[TAGS_MAX];
        memcpy(exact, f->codes, sizeof exact);
        memset(f->codes, 0, sizeof f->codes);
        for (uint32_t i = 0; i < TAGS_MAX; i++)
            set_add(f, exact[i]);
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

static enum err tags_read(struct filter *f, struct bytes expression, struct fault *why)
{
    while (expression.len > 0) { /* each turn eats a byte or more */
        struct bytes tag = next_tag(&expression);
        if (tag.len > 0)
            tag_add(f, (int32_t)tags_code(tag));
    }
    if (f->n == 0)
        return fault_set(why, ERR_MALFORMED, "the expression names no tag; * stands for all");
    return OK;
}

/* ---- SQL92 ---- */

static enum err sql_read(struct filter *f, struct bytes expression, struct fault *why)
{
    struct sql92 *sql;
    enum err err = sql92_compile(expression, &sql, why);
    if (err == ERR_NO_MEMORY)
        return err;
    if (err) /* Apache's words, and then where */
        return fault_add(why, ERR_MALFORMED, "Invalid MessageSelector");
    size_t size = sql92_size(sql);
    if (atomic_fetch_add(&f->filters->size, size) + size > FILTERS_SIZE_MAX) {
        atomic_fetch_sub(&f->filters->size, size);
        sql92_free(sql);
        return fault_set(why, ERR_BUSY, "there is no more room for expressions: they take %u MiB",
                         FILTERS_SIZE_MAX >> 20);
    }
    f->sql = sql;
    return OK;
}

/* ---- both ---- */

static bool is_tags(struct bytes type)
{
    return type.len == 0 || bytes_equal(type, BYTES("TAG"));
}

static bool is_all(struct bytes expression)
{
    return expression.len == 0 || bytes_equal(expression, BYTES("*"));
}

static void filter_release(struct counted *counted)
{
    struct filter *f = list_entry(counted, struct filter, counted);
    if (f->sql)
        atomic_fetch_sub(&f->filters->size, sql92_size(f->sql));
    sql92_free(f->sql);
    free(f);
}

enum err filter_make(struct filters *filters, struct bytes expression, struct bytes type,
                     struct filter **out, struct fault *why)
{
    bool tags = is_tags(type);
    if (tags && is_all(expression)) {
        *out = NULL;
        return OK;
    }
    if (!tags && !filters->sql92)
        return fault_set(why, ERR_UNSUPPORTED,
                         "The broker does not support consumer to filter message by %.*s "
                         "(enablePropertyFilter is false)",
                         BRIEF(type));
    if (!tags && !bytes_equal(type, BYTES("SQL92")))
        return fault_set(why, ERR_MALFORMED,
                         "expressions of type %.*s are not known, only TAG and SQL92", BRIEF(type));
    struct filter *f = calloc(1, sizeof *f);
    if (!f)
        return ERR_NO_MEMORY;
    counted_init(&f->counted, filter_release);
    f->filters = filters;
    enum err err = tags ? tags_read(f, expression, why) : sql_read(f, expression, why);
    if (err)
        filter_drop(f);
    else
        *out = f;
    return err;
}

enum err broker_filter_check(struct broker *b, struct bytes expression, struct bytes type,
                             struct fault *why)
{
    struct filter *f;
    enum err err = filter_make(&b->filters, expression, type, &f, why);
    if (!err)
        filter_drop(f);
    return err;
}

void filter_hold(struct filter *f)
{
    if (f)
        counted_hold(&f->counted);
}

void filter_drop(struct filter *f)
{
    if (f)
        counted_drop(&f->counted);
}

bool filter_by_props(const struct filter *f)
{
    return f && f->sql;
}

bool filter_wants(const struct filter *f, int64_t tags_code)
{
    if (!f || f->sql)
        return true;
    int32_t code = (int32_t)tags_code;
    if (f->n > TAGS_MAX)
        return set_has(f, code);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->codes[i] == code)
            return true;
    return false;
}

bool filter_wants_props(const struct filter *f, struct bytes props)
{
    return !filter_by_props(f) || sql92_eval(f->sql, props) == SQL92_TRUE;
}

uint64_t filter_mark(struct bytes expression, struct bytes type)
{
    if (!is_tags(type))
        return bytes_hash(expression, bytes_hash(type, 1));
    if (is_all(expression))
        return 0;
    uint64_t mark = 0;
    while (expression.len > 0) {
        struct bytes tag = next_tag(&expression);
        mark += tag.len > 0 ? bytes_hash(tag, 2) : 0;
    }
    return mark;
}
