/* select.c - a question to a database, beside all runs and stores. */
#include "once/once_int.h"
#include "once/sql.h"

#define WAIT_MS 3000 /* for a connection or a locked file */

struct look {
    once_row *row;
    void *user;
};

static void log_nothing(void *user, int level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static bool row_give(void *user, const struct sql_value *columns, size_t n)
{
    static const int types[] = {[SQL_NULL] = ONCE_NULL,
                                [SQL_INT] = ONCE_INT,
                                [SQL_TEXT] = ONCE_TEXT,
                                [SQL_BLOB] = ONCE_BLOB};
    const struct look *look = user;
    struct once_value values[SQL_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < n; i++)
        values[i] = (struct once_value){.type = types[columns[i].type],
                                        .number = columns[i].number,
                                        .bytes = columns[i].bytes.at,
                                        .size = columns[i].bytes.len};
    return look->row(look->user, values, n) == 0;
}

int once_select(const char *store, const char *sql, once_row *row, void *user,
                struct once_error *why)
{
    if (!store || !sql || !row)
        return once_fail(why, ONCE_INVALID, "a store, a statement and `row` are required");
    const struct once_driver *driver = NULL;
    int bad = driver_find(store, &driver, why);
    if (bad)
        return bad;
    if (!driver->ask)
        return once_fail(why, ONCE_UNSUPPORTED,
                         "a question in SQL is for sqlite:, postgresql:// or mysql://");
    const struct store_settings settings = {
        .url = store, .table = "once", .wait_ms = WAIT_MS, .looks = true, .log = log_nothing};
    struct look look = {row, user};
    struct sql_call call = {
        .text = sql, .once = true, .foreign = true, .row = row_give, .user = &look};
    struct fault fault = {0};
    enum err err = driver->ask(&settings, &call, &fault);
    return err ? once_fail(why, once_code_of(err), "%s", fault.text[0] ? fault.text : err_text(err))
               : ONCE_OK;
}
