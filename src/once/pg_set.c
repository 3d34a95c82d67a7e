/* pg_set.c - calls of one statement as one statement over a set.
 *
 *     INSERT … VALUES (a, 1)
 *     INSERT … VALUES (b, 2)    become    INSERT … SELECT * FROM unnest({a, b, …}, {1, 2, …})
 *     …
 *
 * For the server a row of a set is a fraction of a statement. The values go as one array for each
 * parameter, in the binary form of arrays; what comes back are the keys of the rows that were
 * written, and whose key does not come has changed nothing.
 *
 * Rows are written in the order of the arrays, so that two who write the same rows do not wait for
 * each other crosswise: see `plan` in pg.c for what keeps the server to that.
 */
#include "once/pg_int.h"

#include <stdlib.h>

#define SET_MIN    4  /* fewer are quicker one by one */
#define ARRAY_HEAD 20 /* dimensions, a flag, the type, how many, from where they are counted */

static struct bytes key_of(const struct sql_call *call)
{
    for (size_t i = 0; i < call->n_params; i++)
        if (call->params[i].type == SQL_BLOB)
            return call->params[i].bytes;
    return (struct bytes){0};
}

static bool same_kind(const struct sql_call *a, const struct sql_call *b)
{
    bool same = b->many && a->many == b->many && a->n_params == b->n_params && !b->row;
    for (size_t i = 0; same && i < a->n_params; i++)
        same = a->params[i].type == b->params[i].type && b->params[i].type != SQL_NULL;
    return same;
}

/* Keys must rise: a key that came twice could not be told apart in the answer. */
size_t pg_set_size(const struct sql_conn *conn, const struct sql_call *calls, size_t n)
{
    size_t size = 0;
    while (conn->alone && size < n && same_kind(&calls[0], &calls[size]) &&
           (size == 0 || bytes_compare(key_of(&calls[size - 1]), key_of(&calls[size])) < 0))
        size++;
    return size < SET_MIN ? 1 : size;
}

static bool row_written(void *user, const struct sql_value *columns, size_t n)
{
    struct pg_set *set = user;
    for (size_t i = 0; n == 1 && i < set->n; i++) { /* they come in order, as a rule */
        struct sql_call *call = &set->calls[(set->next + i) % set->n];
        if (bytes_equal(key_of(call), columns[0].bytes)) {
            call->changed = 1;
            set->next += i + 1;
            break;
        }
    }
    return true;
}

void pg_set_over(struct pg_set *set, struct sql_call *calls, size_t n)
{
    *set = (struct pg_set){.calls = calls, .n = n};
    set->call = (struct sql_call){.text = calls[0].many,
                                  .many = calls[0].many,
                                  .n_params = calls[0].n_params,
                                  .row = row_written,
                                  .user = set};
    for (size_t p = 0; p < set->call.n_params; p++)
        set->call.params[p].type = SQL_BLOB;
    for (size_t i = 0; i < n; i++)
        calls[i].changed = 0;
}

static size_t value_size(const struct sql_value *v)
{
    return v->type == SQL_INT ? 8 : v->bytes.len;
}

static struct bytes add_array(struct wr *w, const struct pg_set *set, size_t param)
{
    static const uint32_t types[] = {
        [SQL_INT] = OID_INT8, [SQL_TEXT] = OID_TEXT, [SQL_BLOB] = OID_BYTEA};
    size_t from = wr_len(w);
    wr_u32(w, 1);
    wr_u32(w, 0);
    wr_u32(w, types[set->calls[0].params[param].type]);
    wr_u32(w, (uint32_t)set->n);
    wr_u32(w, 1);
    for (size_t i = 0; i < set->n; i++) {
        const struct sql_value *v = &set->calls[i].params[param];
        wr_u32(w, (uint32_t)value_size(v));
        if (v->type == SQL_INT)
            wr_u64(w, (uint64_t)v->number);
        else
            wr_bytes_of(w, v->bytes);
    }
    return bytes_from(wr_bytes(w), from);
}

enum err pg_set_fill(struct pg_set *set)
{
    size_t size = 0;
    for (size_t p = 0; p < set->call.n_params; p++) {
        size += ARRAY_HEAD;
        for (size_t i = 0; i < set->n; i++)
            size += 4 + value_size(&set->calls[i].params[p]);
    }
    if (size > INT32_MAX)
        return ERR_TOO_BIG;
    set->arrays = malloc(size);
    if (!set->arrays)
        return ERR_NO_MEMORY;
    struct wr w = wr_over(set->arrays, size);
    for (size_t p = 0; p < set->call.n_params; p++)
        set->call.params[p].bytes = add_array(&w, set, p);
    invariant(!w.full && wr_len(&w) == size);
    return OK;
}

void pg_set_clear(struct pg_set *set)
{
    free(set->arrays);
}
