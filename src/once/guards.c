/* guards.c - tables that can tell by themselves whether something was done.
 *
 * A guard is an UPDATE that changes a row only from the state that it expects. No row changed can
 * mean two things (H-20): it was done before, or it cannot be done yet. So the row is looked at,
 * locked, as it is now and not as the transaction saw it when it began.
 */
#include "once/once_int.h"
#include "once/sql.h"

#include <stdio.h>

#define QUOTED_MAX 300

static int in_transaction(const struct once_run *run, const int *out, struct once_error *why)
{
    if (!run || !out)
        return once_fail(why, ONCE_INVALID, "run and out are required");
    if (!run->conn)
        return once_fail(why, ONCE_MISUSE,
                         "guards need a transaction: ONCE_TRANSACTION or ONCE_OFFSET");
    return ONCE_OK;
}

static int quote(const struct once_run *run, const char *what, const char *name, char *out,
                 struct once_error *why)
{
    if (name && run->once->driver->quote(name, out, QUOTED_MAX) == OK)
        return ONCE_OK;
    return once_fail(why, ONCE_INVALID, "%s is no name of a table or column", what);
}

static struct sql_value text_value(const char *text)
{
    return (struct sql_value){.type = SQL_TEXT, .bytes = bytes_str(text)};
}

static struct sql_value int_value(int64_t number)
{
    return (struct sql_value){.type = SQL_INT, .number = number};
}

/* What stands in a column now. */
struct now {
    bool found;
    bool (*reached)(const void *user, const struct sql_value *value);
    const void *user;
    bool is;
};

static bool now_row(void *user, const struct sql_value *columns, size_t n)
{
    struct now *now = user;
    now->found = true;
    now->is = n > 0 && now->reached && now->reached(now->user, &columns[0]);
    return false;
}

/* A change of one column of one row, from a value that is expected. */
struct change {
    const char *table, *key_column, *key, *column;
    const char *called; /* the column's name among the options */
    struct sql_value from, to;
};

static int not_one_row(struct once_run *run, uint64_t changed, struct once_error *why)
{
    run->broken = ERR_INVALID;
    (void)fault_set(&run->op.why, ERR_INVALID,
                    "a guard changed %llu rows: key_column does not name one row",
                    (unsigned long long)changed);
    return once_fail(why, ONCE_INVALID, "%s", run->op.why.text);
}

/* Changes the row; if there was nothing to change, what does it say? */
static int apply(struct once_run *run, const struct change *change, struct now *now, int *out,
                 struct once_error *why)
{
    char table[QUOTED_MAX], key[QUOTED_MAX], column[QUOTED_MAX], sql[4 * QUOTED_MAX + 100];
    int bad = quote(run, "table", change->table, table, why);
    bad = bad ? bad : quote(run, "key_column", change->key_column, key, why);
    bad = bad ? bad : quote(run, change->called, change->column, column, why);
    if (bad)
        return bad;
    (void)snprintf(sql, sizeof sql, "UPDATE %s SET %s = ? WHERE %s = ? AND %s = ?", table, column,
                   key, column);
    struct sql_call update = {.text = sql, .once = true, .n_params = 3};
    update.params[0] = change->to;
    update.params[1] = text_value(change->key);
    update.params[2] = change->from;
    bad = transaction_call(run, &update, why);
    if (bad)
        return bad;
    if (update.changed > 1)
        return not_one_row(run, update.changed, why);
    *out = ONCE_APPLIED;
    if (update.changed == 1)
        return ONCE_OK;
    (void)snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE %s = ?%s", column, table, key,
                   run->once->driver->for_update);
    struct sql_call look = {.text = sql, .once = true, .n_params = 1, .row = now_row, .user = now};
    look.params[0] = text_value(change->key);
    bad = transaction_call(run, &look, why);
    *out = now->found && now->is ? ONCE_ALREADY : ONCE_NOT_YET;
    return bad;
}

/* ---- states ---- */

static bool value_is(const struct sql_value *value, const char *text)
{
    char number[24];
    struct bytes have = value->bytes;
    if (value->type == SQL_INT) {
        int n = snprintf(number, sizeof number, "%lld", (long long)value->number);
        have = bytes_of(number, (size_t)n);
    }
    return value->type != SQL_NULL && bytes_equal(have, bytes_str(text));
}

static bool state_reached(const void *user, const struct sql_value *value)
{
    const struct once_state_guard *guard = user;
    if (value_is(value, guard->to))
        return true;
    for (const char *const *beyond = guard->beyond; beyond && *beyond; beyond++) {
        if (value_is(value, *beyond))
            return true;
    }
    return false;
}

int once_guard_state(struct once_run *run, const struct once_state_guard *guard, int *out,
                     struct once_error *why)
{
    int bad = in_transaction(run, out, why);
    if (bad)
        return bad;
    if (!guard || !guard->key || !guard->from || !guard->to)
        return once_fail(why, ONCE_INVALID, "a guard needs table, columns, key, from and to");
    const struct change change = {.table = guard->table,
                                  .key_column = guard->key_column,
                                  .key = guard->key,
                                  .column = guard->state_column,
                                  .called = "state_column",
                                  .from = text_value(guard->from),
                                  .to = text_value(guard->to)};
    struct now now = {.reached = state_reached, .user = guard};
    return apply(run, &change, &now, out, why);
}

/* ---- versions ---- */

static bool version_reached(const void *user, const struct sql_value *value)
{
    int64_t expected = *(const int64_t *)user, number = value->number;
    if (value->type != SQL_INT && !bytes_to_i64(value->bytes, &number))
        return false;
    return value->type != SQL_NULL && number > expected;
}

int once_guard_version(struct once_run *run, const struct once_version_guard *guard, int *out,
                       struct once_error *why)
{
    int bad = in_transaction(run, out, why);
    if (bad)
        return bad;
    if (!guard || !guard->key || guard->expected == INT64_MAX)
        return once_fail(why, ONCE_INVALID, "a guard needs table, columns, key and version");
    const struct change change = {.table = guard->table,
                                  .key_column = guard->key_column,
                                  .key = guard->key,
                                  .column = guard->version_column,
                                  .called = "version_column",
                                  .from = int_value(guard->expected),
                                  .to = int_value(guard->expected + 1)};
    struct now now = {.reached = version_reached, .user = &guard->expected};
    return apply(run, &change, &now, out, why);
}

/* ---- locks ---- */

int once_guard_lock(struct once_run *run, const char *table, const char *key_column,
                    const char *key, int *out, struct once_error *why)
{
    int bad = in_transaction(run, out, why);
    if (bad)
        return bad;
    if (!key)
        return once_fail(why, ONCE_INVALID, "a lock needs table, column and key");
    char quoted[QUOTED_MAX], column[QUOTED_MAX], sql[2 * QUOTED_MAX + 100];
    bad = quote(run, "table", table, quoted, why);
    bad = bad ? bad : quote(run, "key_column", key_column, column, why);
    if (bad)
        return bad;
    (void)snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE %s = ?%s", column, quoted, column,
                   run->once->driver->for_update);
    struct now now = {0};
    struct sql_call look = {.text = sql, .once = true, .n_params = 1, .row = now_row, .user = &now};
    look.params[0] = text_value(key);
    bad = transaction_call(run, &look, why);
    if (!bad)
        *out = now.found ? ONCE_APPLIED : ONCE_NOT_YET;
    return bad;
}
