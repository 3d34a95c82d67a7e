/* sql.h - the little that shop.c wants of a database: sql_postgresql.c and sql_sqlite.c have it.
 * What can go wrong is said on standard error. */
#ifndef SQL_H
#define SQL_H

#include <stdbool.h>

/* One statement; $1 and $2 in it are these two, or fewer if it has fewer. `db` is the connection of
 * a transaction of libonce, or one of sql_open. */
bool sql_do(void *db, const char *statement, const char *first, const char *second);

void *sql_open(const char *store);           /* the URL that libonce has; NULL: it is not there */
bool sql_print(void *db, const char *query); /* its first row, with blanks between the columns */
void sql_close(void *db);

#endif
