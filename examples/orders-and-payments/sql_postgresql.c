/* sql_postgresql.c - sql.h by libpq. */
#include "sql.h"

#include <libpq-fe.h>
#include <stdio.h>

static PGresult *ask(PGconn *db, const char *statement, int n, const char *const *values)
{
    PGresult *result = PQexecParams(db, statement, n, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return result;
    (void)fprintf(stderr, "%s: %s", statement, PQerrorMessage(db));
    PQclear(result);
    return NULL;
}

bool sql_do(void *db, const char *statement, const char *first, const char *second)
{
    const char *values[] = {first, second};
    PGresult *result = ask(db, statement, second ? 2 : first ? 1 : 0, values);
    PQclear(result);
    return result != NULL;
}

void *sql_open(const char *store)
{
    PGconn *db = PQconnectdb(store);
    if (PQstatus(db) == CONNECTION_OK &&
        sql_do(db, "SET client_min_messages = warning", NULL, NULL))
        return db;
    (void)fprintf(stderr, "%s", PQerrorMessage(db));
    PQfinish(db);
    return NULL;
}

bool sql_print(void *db, const char *query)
{
    PGresult *result = ask(db, query, 0, NULL);
    for (int i = 0; result && i < PQnfields(result); i++)
        (void)printf("%s%s", i > 0 ? " " : "", PQgetvalue(result, 0, i));
    (void)printf("\n");
    PQclear(result);
    return result != NULL;
}

void sql_close(void *db)
{
    PQfinish(db);
}
