/* execute.c - a statement of the application's own in the run's transaction. */
#include "once/once_int.h"
#include "once/sql.h"

#include <stdlib.h>

/* Drivers know prepared statements by the address of their text, which must live as long as the
 * connections do: so each text is kept once. A program that makes up ever new ones is not served
 * worse than before, only not remembered. */
static const char *text_kept(struct once *once, const char *sql)
{
    const char *found = NULL;
    invariant(pthread_mutex_lock(&once->texts_key) == 0);
    for (size_t i = 0; i < once->n_texts && !found; i++)
        if (strcmp(once->texts[i], sql) == 0)
            found = once->texts[i];
    if (!found && once->n_texts < ONCE_TEXTS_MAX) {
        found = once->texts[once->n_texts] = strdup(sql);
        once->n_texts += found != NULL;
    }
    invariant(pthread_mutex_unlock(&once->texts_key) == 0);
    return found;
}

void texts_clear(struct once *once)
{
    while (once->n_texts > 0)
        free(once->texts[--once->n_texts]);
}

static bool value_take(const struct once_value *from, struct sql_value *to)
{
    static const enum sql_type types[] = {[ONCE_NULL] = SQL_NULL,
                                          [ONCE_INT] = SQL_INT,
                                          [ONCE_TEXT] = SQL_TEXT,
                                          [ONCE_BLOB] = SQL_BLOB};
    if (from->type < ONCE_NULL || from->type > ONCE_BLOB ||
        (from->type >= ONCE_TEXT && from->size > 0 && !from->bytes))
        return false;
    *to = (struct sql_value){.type = types[from->type], .number = from->number};
    if (from->type >= ONCE_TEXT)
        to->bytes = bytes_of(from->bytes, from->size);
    return true;
}

int once_execute(struct once_run *run, const char *sql, const struct once_value *values, size_t n,
                 uint64_t *changed, struct once_error *why)
{
    if (!run || !sql || (n > 0 && !values))
        return once_fail(why, ONCE_INVALID, "run, a statement and its values are required");
    if (!run->conn)
        return once_fail(why, ONCE_MISUSE,
                         "a statement needs a transaction: ONCE_TRANSACTION or ONCE_OFFSET");
    if (n > SQL_PARAMS_MAX)
        return once_fail(why, ONCE_INVALID, "%zu values are too many: %d at most", n,
                         SQL_PARAMS_MAX);
    if (ends_transaction(sql, run->once->driver->ends))
        return once_fail(why, ONCE_MISUSE,
                         "this would end the transaction, which only once_begin and once_end "
                         "begin and end: %.40s",
                         sql);
    const char *kept = text_kept(run->once, sql);
    struct sql_call call = {
        .text = kept ? kept : sql, .once = !kept, .foreign = true, .n_params = n};
    for (size_t i = 0; i < n; i++)
        if (!value_take(&values[i], &call.params[i]))
            return once_fail(why, ONCE_INVALID, "value %zu has no such type, or no bytes", i + 1);
    int code = transaction_call(run, &call, why);
    if (!code && changed)
        *changed = call.changed;
    return code;
}
