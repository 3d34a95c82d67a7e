/* example_sqlite.h - SQLite in three words, for the programs whose books are in a file. What goes
 * wrong is said on standard error. */
#ifndef EXAMPLE_SQLITE_H
#define EXAMPLE_SQLITE_H

#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* Statements, with %Q for text, which SQLite quotes. If one of them gives a row, its first value is
 * in `out`, which may be NULL and is "" if there is none. */
static inline bool sql_get(sqlite3 *db, char *out, size_t size, const char *form, ...)
{
    va_list args;
    va_start(args, form);
    char *text = sqlite3_vmprintf(form, args);
    va_end(args);
    char **table = NULL;
    int rows = 0;
    bool good = text && sqlite3_get_table(db, text, &table, &rows, NULL, NULL) == SQLITE_OK;
    if (!good)
        (void)fprintf(stderr, "%s: %s\n", text, sqlite3_errmsg(db));
    if (good && out) /* the names of the columns stand before the first row */
        (void)snprintf(out, size, "%s", rows > 0 && table[1] ? table[1] : "");
    sqlite3_free_table(table);
    sqlite3_free(text);
    return good;
}

#define sql_do(db, ...) sql_get(db, NULL, 0, __VA_ARGS__)

/* Opens a file and makes what is missing in it; NULL: it cannot. */
static inline sqlite3 *sql_open(const char *file, const char *tables)
{
    sqlite3 *db;
    if (sqlite3_open(file, &db) == SQLITE_OK && sqlite3_busy_timeout(db, 10000) == SQLITE_OK &&
        sqlite3_exec(db, tables, NULL, NULL, NULL) == SQLITE_OK)
        return db;
    (void)fprintf(stderr, "%s: %s\n", file, sqlite3_errmsg(db));
    (void)sqlite3_close(db);
    return NULL;
}

#endif
