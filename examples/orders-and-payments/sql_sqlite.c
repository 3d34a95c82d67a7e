/* sql_sqlite.c - sql.h by SQLite. */
#include "sql.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static bool failed(sqlite3 *db, const char *statement)
{
    (void)fprintf(stderr, "%s: %s\n", statement, sqlite3_errmsg(db));
    return false;
}

bool sql_do(void *db, const char *statement, const char *first, const char *second)
{
    sqlite3_stmt *ready;
    if (sqlite3_prepare_v2(db, statement, -1, &ready, NULL))
        return failed(db, statement);
    /* To SQLite these are names, and their numbers go by where they stand. What is not in the
     * statement has number 0, which is refused. */
    (void)sqlite3_bind_text(ready, sqlite3_bind_parameter_index(ready, "$1"), first, -1, NULL);
    (void)sqlite3_bind_text(ready, sqlite3_bind_parameter_index(ready, "$2"), second, -1, NULL);
    (void)sqlite3_step(ready);
    return sqlite3_finalize(ready) == SQLITE_OK || failed(db, statement);
}

void *sql_open(const char *store)
{
    sqlite3 *db;
    const char *file = strchr(store, ':');
    if (file && sqlite3_open(file + 1, &db) == SQLITE_OK) {
        (void)sqlite3_busy_timeout(db, 10000);
        return db;
    }
    (void)fprintf(stderr, "%s: expected sqlite:FILE\n", store);
    return NULL;
}

static int print_row(void *user, int n, char **values, char **names)
{
    (void)user, (void)names;
    for (int i = 0; i < n; i++)
        (void)printf("%s%s", i > 0 ? " " : "", values[i]);
    return printf("\n") < 0;
}

bool sql_print(void *db, const char *query)
{
    return sqlite3_exec(db, query, print_row, NULL, NULL) == SQLITE_OK || failed(db, query);
}

void sql_close(void *db)
{
    (void)sqlite3_close(db);
}
