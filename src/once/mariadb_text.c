/* mariadb_text.c - statements as text, with their values in them.
 *
 * A set of calls becomes one statement, their `many`, in which `?` is the value that all of them
 * have and `?*` the list of what each has: "… SET a = ? WHERE id IN (?*)". Prepared, it has lists
 * of a fixed length, in which the last value is repeated.
 */
#include "once/mariadb_int.h"
#include "once/sql_scan.h"

static void write_hex(struct buf *out, struct bytes b)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t *to = buf_space(out, b.len * 2);
    for (size_t i = 0; to && i < b.len; i++) {
        *to++ = (uint8_t)digits[b.at[i] >> 4];
        *to++ = (uint8_t)digits[b.at[i] & 15];
    }
}

static void write_value(struct buf *out, const struct sql_value *v)
{
    switch (v->type) {
    case SQL_NULL:
        buf_add_str(out, "NULL");
        break;
    case SQL_INT:
        buf_printf(out, "%lld", (long long)v->number);
        break;
    case SQL_TEXT:
    case SQL_BLOB: /* the word before it says what the bytes are: else x'…' can be a number */
        buf_add_str(out, v->type == SQL_TEXT ? "_utf8mb4 x'" : "_binary x'");
        write_hex(out, v->bytes);
        buf_add_u8(out, '\'');
        break;
    }
}

/* What stands at a `?`, or at a `?*`. */
static void write_values(struct buf *out, const struct sql_call *calls, size_t n, size_t param)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_add_u8(out, ',');
        write_value(out, &calls[i].params[param]);
    }
}

/* A `?` counts where it is code. */
enum err mariadb_write(struct buf *out, const struct sql_call *calls, size_t n, struct fault *why)
{
    const char *text = n > 1 ? calls->many : calls->text;
    size_t used = 0;
    out->len = 0;
    for (size_t at = 0, skip; text[at]; at += skip ? skip : 1) {
        skip = sql_scan(SQL_MARIADB, text, at);
        if (skip == SIZE_MAX) /* not closed: the server says so */
            skip = strlen(text + at);
        if (skip)
            buf_add(out, bytes_of(text + at, skip));
        else if (text[at] != '?')
            buf_add_u8(out, (uint8_t)text[at]);
        else if (used < calls->n_params) {
            bool list = n > 1 && text[at + 1] == '*';
            write_values(out, calls, list ? n : 1, used++);
            at += list;
        } else
            return mariadb_does_not_fit(calls, why);
    }
    return used == calls->n_params ? out->err : mariadb_does_not_fit(calls, why);
}

/* A `many` as it is prepared. */
enum err mariadb_write_set(struct buf *out, const char *many, size_t length)
{
    out->len = 0;
    for (size_t at = 0, skip; many[at]; at += skip ? skip : 1) {
        skip = sql_scan(SQL_MARIADB, many, at);
        invariant(skip != SIZE_MAX); /* it is a text of ours */
        if (skip) {
            buf_add(out, bytes_of(many + at, skip));
            continue;
        }
        buf_add_u8(out, (uint8_t)many[at]);
        if (many[at] != '?' || many[at + 1] != '*')
            continue;
        for (size_t i = 1; i < length; i++)
            buf_add_str(out, ",?");
        at++;
    }
    return out->err;
}

bool mariadb_is_list(const char *many, size_t param)
{
    for (const char *at = strchr(many, '?'); at; at = strchr(at + 1, '?')) {
        bool list = at[1] == '*';
        if (param-- == 0)
            return list;
        at += list;
    }
    return false;
}

bool mariadb_set_takes(const struct sql_call *first, const struct sql_call *other)
{
    bool same = true;
    for (size_t i = 0; same && i < first->n_params; i++)
        same =
            mariadb_is_list(first->many, i) || (first->params[i].type == SQL_INT &&
                                                first->params[i].number == other->params[i].number);
    return same;
}
