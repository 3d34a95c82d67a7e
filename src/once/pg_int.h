/* pg_int.h - the PostgreSQL engine: pg.c connects and holds transactions, pg_run.c runs statements,
 * pg_set.c makes one of many.
 *
 * Every statement of ours travels in libpq's pipeline mode: n calls are sent, then n answers read,
 * which is one round trip. Between two calls of run() the pipeline is off, so that the connection
 * can be handed to a handler as an ordinary PGconn. BEGIN is kept back and sent before the first
 * statement of a transaction.
 *
 * Whoever waits here waits with an end: what the server does for us takes no longer than the lock
 * time-out, so a server that says nothing for `silence_ms` is taken for gone. What a handler does
 * with the connection is not timed.
 */
#ifndef ONCE_PG_INT_H
#define ONCE_PG_INT_H

#include "once/sql.h"

#include <libpq-fe.h>

/* Types that we send and read; the numbers are those of pg_type and never change. */
enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_NUMERIC = 1700
};

#define PG_STATEMENTS_MAX 128 /* remembered by a connection; beyond it they are sent whole */

/* A prepared statement. Types belong to it: NULL in the place of a number is another statement. */
struct pg_statement {
    const char *text; /* as sql.c has it: its address is its name */
    uint8_t types[SQL_PARAMS_MAX];
    size_t n_params;
    size_t asked_by; /* the call in the pipeline that prepares it, until `ready` */
    bool ready;
};

struct sql_conn {
    PGconn *pg;
    struct pg_statement statements[PG_STATEMENTS_MAX];
    size_t n_statements;
    int silence_ms;
    bool begin_due; /* BEGIN goes before the next statement */
    bool dead;      /* nothing more can be said on it */
    bool lives;     /* holds the lock of `instance` */
    bool alone;     /* no handler gets it: it may be set as our statements need it */
    uint32_t instance;
};

enum err pg_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                struct fault *why);

/* How many of the calls, from the first on, go as one set; 1: none, it goes by itself. */
size_t pg_set_size(const struct sql_conn *conn, const struct sql_call *calls, size_t n);

/* Those calls as one, whose values are arrays: text and many are the same. Its rows set `changed`
 * of each. */
struct pg_set {
    struct sql_call call;
    struct sql_call *calls;
    size_t n, next; /* the one that is expected to come */
    uint8_t *arrays;
};
void pg_set_over(struct pg_set *set, struct sql_call *calls, size_t n);
must_check enum err pg_set_fill(struct pg_set *set); /* what is needed to send it */
void pg_set_clear(struct pg_set *set);

/* Waits until the socket is ready for `events` (POLLIN …). False: not before the deadline. */
bool pg_wait(PGconn *pg, short events, int64_t deadline_ms);
int64_t pg_clock_ms(void);

/* What an SQLSTATE means to us; NULL: the connection is gone. */
enum err pg_error(const char *sqlstate);

#endif
