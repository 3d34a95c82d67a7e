/* mariadb_int.h - the engine for MariaDB and MySQL: mariadb.c connects and holds transactions,
 * mariadb_run.c runs statements, mariadb_prepared.c has those that are prepared, mariadb_text.c
 * those that are text, mariadb_url.c reads URLs.
 *
 * n calls are sent, then n answers read, which is one round trip. Statements that write are
 * prepared once and sent by number, as half of what a server does for a small INSERT as text is
 * reading it; so are sets (mariadb_text.c). (The library reads the answer to a prepared statement
 * at once, unless it is told to leave that to others.) Those that give rows, or are not remembered,
 * are sent as text, with values as hexadecimal literals and decimal numbers: nothing in a value can
 * be taken for SQL.
 *
 * A server goes on with the next statement after one has failed, and after a deadlock it does so
 * outside of the transaction, which it has rolled back. So the session never commits by itself
 * (autocommit = 0): whatever came after is rolled back too, and a transaction in which something
 * has failed is `spoiled` and can only be rolled back, as in PostgreSQL.
 *
 * A handler's transaction begins with a savepoint, by which its commit knows it again. On MariaDB
 * the commit before has set it already (`ready`), so that it costs no statement of its own; between
 * transactions it holds no lock and no view of the data.
 */
#ifndef ONCE_MARIADB_INT_H
#define ONCE_MARIADB_INT_H

#include "base/buf.h"
#include "once/sql.h"

#include <mysql.h>

#define MARIADB_TEXT_MAX (256 << 20) /* of one statement; the server has its own limit below it */

/* ---- mysql://user:password@host:port/database?socket=PATH ---- */

#define MARIADB_URL_MAX 2048

struct mariadb_url {
    char text[MARIADB_URL_MAX]; /* all others point into it, decoded */
    const char *user, *password, *host, *database;
    const char *socket, *ca; /* or NULL */
    unsigned port;           /* 0: none was given */
    unsigned connect_s;      /* 0: none was given */
    unsigned read_s;
    bool tls, verify;
};

/* ERR_INVALID with a sentence that repeats nothing of the URL but names of options. */
enum err mariadb_url_read(const char *url, struct mariadb_url *out, struct fault *why);

/* ---- statements ---- */

#define MARIADB_STATEMENTS_MAX 32 /* prepared by a connection; beyond it they are sent as text */

struct mariadb_statement {
    const char *text; /* as sql.c has it: its address is its name, */
    size_t length;    /* of a `many` with that of its lists; else 0 */
    MYSQL_STMT *prepared;
};

struct sql_conn {
    MYSQL *mysql;
    struct buf text; /* the statement that is being written */
    struct mariadb_statement statements[MARIADB_STATEMENTS_MAX];
    size_t n_statements;
    bool bulk;        /* the server takes many sets of values at once */
    bool blocks;      /* the server takes BEGIN NOT ATOMIC … END, as MariaDB does */
    bool transaction; /* begin() was said */
    bool begin_due;   /* … and not sent yet */
    bool spoiled;     /* a statement in it has failed */
    bool savepoints;  /* each transaction begins with one: handlers will use it */
    bool ready;       /* … and the next one's is set */
    bool handed_out;  /* a handler has used the connection in this transaction */
    bool dead;
};

enum err mariadb_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                     struct fault *why);
/* One statement without values, as it is. */
enum err mariadb_tell(struct sql_conn *conn, const char *text, struct fault *why);
/* The same, for a text that lives as long as the connection: it is prepared. */
enum err mariadb_tell_again(struct sql_conn *conn, const char *text, struct fault *why);
/* What the last error means, with the server's words. */
enum err mariadb_error(struct sql_conn *conn, struct fault *why);

enum err mariadb_failed(struct sql_conn *conn, unsigned code, const char *words, struct fault *why);
enum err mariadb_does_not_fit(const struct sql_call *call, struct fault *why);

/* ---- as text ---- */

/* The call with its values in it; of several, their `many`. */
enum err mariadb_write(struct buf *out, const struct sql_call *calls, size_t n, struct fault *why);
/* Whether the other can be in one set with it: what is no list in `many` is the same. */
bool mariadb_set_takes(const struct sql_call *first, const struct sql_call *other);
/* Whether parameter `param` of a `many` is a list. */
bool mariadb_is_list(const char *many, size_t param);
/* A `many` with lists of so many parameters. */
enum err mariadb_write_set(struct buf *out, const char *many, size_t length);

/* ---- prepared statements ---- */

/* While nothing is under way: prepares the call's text, if that is worth while. */
void mariadb_prepare(struct sql_conn *conn, const struct sql_call *call);
/* The same for the first n as a set, which has a `many`. */
void mariadb_prepare_set(struct sql_conn *conn, const struct sql_call *calls, size_t n);
void mariadb_forget(struct sql_conn *conn); /* all of them */
MYSQL_STMT *mariadb_prepared(const struct sql_conn *conn,
                             const struct sql_call *call); /* or NULL */
MYSQL_STMT *mariadb_prepared_set(const struct sql_conn *conn, const struct sql_call *calls,
                                 size_t n);                /* or NULL */
size_t mariadb_prepared_size(const struct sql_call *call); /* about what it takes to send it */

/* These send, and leave the answer, a count of rows, to be read. */
enum err mariadb_send_prepared(struct sql_conn *conn, MYSQL_STMT *prepared, struct sql_call *call,
                               struct fault *why);
/* So many of the first can go together, as a set or in bulk; 1: only by itself. */
size_t mariadb_together(const struct sql_conn *conn, const struct sql_call *calls, size_t n);
enum err mariadb_send_bulk(struct sql_conn *conn, const struct sql_call *calls, size_t n,
                           struct fault *why);
enum err mariadb_send_set(struct sql_conn *conn, MYSQL_STMT *prepared, const struct sql_call *calls,
                          size_t n, struct fault *why);

#endif
