/* business.h - the part of a program that libonce knows nothing of: tables of its own in the same
 * database, reached through the client libraries themselves.
 *
 *     effects   k                       one row for each effect; nothing keeps it from being twice
 *     orders    id, status, version     rows that can tell by themselves what was done
 *     names     u                       unique: something else that may be violated
 *
 * Statements are literals of the tests; nothing here is a model for handling strangers' values.
 */
#ifndef TESTS_ONCE_BUSINESS_H
#define TESTS_ONCE_BUSINESS_H

#include <stdbool.h>

enum database { DB_NONE, DB_SQLITE, DB_POSTGRESQL, DB_MARIADB };

enum database business_of(const char *url);
/* Makes the tables, unless they are there. Ends the program if it cannot. */
void business_open(const char *url);
/* On the connection of a run. False: refused; the words go to the log. */
bool business_run(enum database db, void *connection, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* On a connection of its own: the first column of the first row as a number; -1: no row. */
long business_number(const char *url, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void business_do(const char *url, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
