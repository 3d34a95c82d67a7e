#include "business.h"

#include <err.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_MAX 1000

enum database business_of(const char *url)
{
    if (strncmp(url, "sqlite:", 7) == 0)
        return DB_SQLITE;
    if (strncmp(url, "postgres", 8) == 0)
        return DB_POSTGRESQL;
    return strncmp(url, "mysql:", 6) == 0 ? DB_MARIADB : DB_NONE;
}

/* ---- one statement on any connection; the first value as a number ---- */

static bool run_sqlite(sqlite3 *db, const char *sql, long *number)
{
    sqlite3_stmt *statement = NULL;
    bool good = sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK;
    int step = good ? sqlite3_step(statement) : SQLITE_ERROR;
    if (step == SQLITE_ROW && number)
        *number = (long)sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        warnx("%s: %s", sql, sqlite3_errmsg(db));
    return step == SQLITE_ROW || step == SQLITE_DONE;
}

static bool run_pg(PGconn *db, const char *sql, long *number)
{
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK && PQntuples(result) > 0 && number)
        *number = strtol(PQgetvalue(result, 0, 0), NULL, 10);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        warnx("%s: %s", sql, PQerrorMessage(db));
    PQclear(result);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

static bool run_mysql(MYSQL *db, const char *sql, long *number)
{
    if (mysql_query(db, sql)) {
        warnx("%s: %s", sql, mysql_error(db));
        return false;
    }
    MYSQL_RES *result = mysql_store_result(db);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    if (row && row[0] && number)
        *number = strtol(row[0], NULL, 10);
    mysql_free_result(result);
    return true;
}

static bool run(enum database kind, void *db, const char *sql, long *number)
{
    switch (kind) {
    case DB_SQLITE:
        return run_sqlite(db, sql, number);
    case DB_POSTGRESQL:
        return run_pg(db, sql, number);
    case DB_MARIADB:
        return run_mysql(db, sql, number);
    case DB_NONE:
        break;
    }
    return false;
}

bool business_run(enum database db, void *connection, const char *format, ...)
{
    char sql[SQL_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    return run(db, connection, sql, NULL);
}

/* ---- connections of its own ---- */

/* %40 becomes @, in place. */
static char *decoded(char *text)
{
    char *out = text;
    for (const char *at = text; *at; at++) {
        unsigned byte;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1) {
            *out++ = (char)byte;
            at += 2;
        } else {
            *out++ = *at;
        }
    }
    *out = 0;
    return text;
}

/* mysql://user:password@host:port/database, as the harness writes it. */
static MYSQL *dial_mysql(const char *url)
{
    char user[64], password[64], host[128], database[64];
    unsigned port = 0;
    if (sscanf(url, "mysql://%63[^:]:%63[^@]@%127[^:]:%u/%63s", user, password, host, &port,
               database) != 5)
        errx(1, "%s: not understood", url);
    MYSQL *db = mysql_init(NULL);
    if (!mysql_real_connect(db, host, user, decoded(password), database, port, NULL, 0))
        errx(1, "%s: %s", url, mysql_error(db));
    return db;
}

static void *dial(const char *url)
{
    sqlite3 *lite = NULL;
    PGconn *pg;
    switch (business_of(url)) {
    case DB_SQLITE:
        if (sqlite3_open(url + 7, &lite) != SQLITE_OK)
            errx(1, "%s: %s", url, sqlite3_errmsg(lite));
        (void)sqlite3_busy_timeout(lite, 20000);
        return lite;
    case DB_POSTGRESQL:
        pg = PQconnectdb(url);
        if (PQstatus(pg) != CONNECTION_OK)
            errx(1, "%s: %s", url, PQerrorMessage(pg));
        return pg;
    case DB_MARIADB:
        return dial_mysql(url);
    case DB_NONE:
        break;
    }
    errx(1, "%s: no database", url);
}

static void hang_up(enum database kind, void *db)
{
    if (kind == DB_SQLITE)
        (void)sqlite3_close(db);
    else if (kind == DB_POSTGRESQL)
        PQfinish(db);
    else
        mysql_close(db);
}

static long number_of(const char *url, const char *format, va_list args)
{
    char sql[SQL_MAX];
    long number = -1;
    (void)vsnprintf(sql, sizeof sql, format, args);
    void *db = dial(url);
    if (!run(business_of(url), db, sql, &number))
        errx(1, "%s: %s", url, sql);
    hang_up(business_of(url), db);
    return number;
}

long business_number(const char *url, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    long number = number_of(url, format, args);
    va_end(args);
    return number;
}

void business_do(const char *url, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)number_of(url, format, args);
    va_end(args);
}

void business_open(const char *url)
{
    if (business_of(url) == DB_NONE)
        return;
    business_do(url, "CREATE TABLE IF NOT EXISTS effects (k VARCHAR(200))");
    business_do(url, "CREATE TABLE IF NOT EXISTS orders (id VARCHAR(100) PRIMARY KEY, status "
                     "VARCHAR(20), version BIGINT)");
    business_do(url, "CREATE TABLE IF NOT EXISTS names (u VARCHAR(100) PRIMARY KEY)");
}
