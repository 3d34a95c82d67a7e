/* execute.c - a statement of the application's own in the run's transaction. */
#include "once/once_int.h"
#include "once/sql.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

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

/* Behind a comment of any dialect; `sql` itself: there is none. MariaDB does what stands in the
 * comments that begin with an exclamation mark, so of these only the beginning is passed over. Only
 * PostgreSQL has comments within comments: `nested`. */
static const char *behind_comment(const char *sql, bool nested)
{
    if (strncmp(sql, "--", 2) == 0 || *sql == '#')
        return sql + strcspn(sql, "\n");
    if (strncmp(sql, "*/", 2) == 0)
        return sql + 2;
    if (strncmp(sql, "/*!", 3) == 0)
        return sql + 3 + strspn(sql + 3, "0123456789");
    if (strncmp(sql, "/*M!", 4) == 0)
        return sql + 4 + strspn(sql + 4, "0123456789");
    if (strncmp(sql, "/*", 2) != 0)
        return sql;
    unsigned depth = 1;
    for (sql += 2; *sql && depth > 0; sql++) {
        bool opens = nested && strncmp(sql, "/*", 2) == 0, shuts = strncmp(sql, "*/", 2) == 0;
        depth += opens;
        depth -= shuts;
        sql += opens || shuts;
    }
    return sql;
}

/* Where the next word of a statement begins. */
static const char *next_word(const char *sql, bool nested)
{
    for (const char *before = NULL; before != sql;) {
        before = sql;
        sql += strspn(sql, " \t\r\n\f\v(;");
        sql = behind_comment(sql, nested);
    }
    return sql;
}

/* Whether these words are the first ones of a statement; between them stands a blank. */
static bool begins_with(const char *sql, const char *words, bool nested)
{
    sql = next_word(sql, nested);
    for (; *words; words++) {
        const char *before = sql;
        sql = *words == ' ' ? next_word(sql, nested) : sql + 1;
        if (*words == ' ' ? sql == before : strncasecmp(before, words, 1) != 0)
            return false;
    }
    return !isalnum((unsigned char)*sql) && *sql != '_' && *sql != '$' && (signed char)*sql >= 0;
}

/* As any of the databases would read it. */
static bool may_begin_with(const char *sql, const char *words)
{
    return begins_with(sql, words, false) || begins_with(sql, words, true);
}

/* A table of this connection alone, which commits nothing. It must be so for each version of
 * MariaDB: what stands in a comment may not be done by this one. */
static bool is_temporary(const char *sql)
{
    const char *word = strcasestr(sql, "TEMPORARY"), *mark = strstr(sql, "/*!");
    const char *own_mark = strstr(sql, "/*M!");
    return (begins_with(sql, "CREATE TEMPORARY", false) ||
            begins_with(sql, "DROP TEMPORARY", false)) &&
           (!mark || mark > word) && (!own_mark || own_mark > word);
}

/* What ends a transaction is for once_end to say, also where it does so by the way: then the mark
 * would be committed although the handler fails later. */
static bool ends_it(const struct once_driver *driver, const char *sql)
{
    static const char *const words[] = {"COMMIT", "ROLLBACK", "BEGIN", "START",
                                        "END",    "ABORT",    "XA",    NULL};
    for (size_t i = 0; words[i]; i++)
        if (may_begin_with(sql, words[i]))
            return true;
    if (is_temporary(sql))
        return false;
    for (size_t i = 0; driver->ends && driver->ends[i]; i++)
        if (may_begin_with(sql, driver->ends[i]))
            return true;
    return false;
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
    if (ends_it(run->once->driver, sql))
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
