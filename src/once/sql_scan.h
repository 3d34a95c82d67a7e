/* sql_scan.h - which parts of a statement are code, and which are quoted or commented.
 *
 * Whoever looks for a parameter in a statement passes over these. What counts as a quote differs:
 *
 *     all           '…' and "…" with the quote doubled in it, -- to the end of the line, block
 *                   comments
 *     SQLite        also `…` and […]
 *     PostgreSQL    also $tag$…$tag$, E'…' with \, and comments within comments
 *     MariaDB       also `…`, # to the end of the line; '…' and "…" know \; -- wants a blank behind
 *
 * Pure: no I/O, no clock, no logging.
 */
#ifndef ONCE_SQL_SCAN_H
#define ONCE_SQL_SCAN_H

#include <stddef.h>

enum sql_dialect { SQL_SQLITE, SQL_POSTGRESQL, SQL_MARIADB };

/* The length of the quote or comment that begins at text[at]; 0: code stands there; SIZE_MAX: it is
 * never closed. */
size_t sql_scan(enum sql_dialect dialect, const char *text, size_t at);

#endif
