/* driver.h - what a store must be able to do, and nothing more.
 *
 * The core (once.c and the modes) decides what is asked; a driver asks it of one kind of server. A
 * driver never sees options, messages or handlers: only operations on ids.
 *
 *     worker ── op ──►  crew (crew.c)  ── ops, many at once ──►  driver.run(conn, ops, n)
 *
 * Operations of different workers that wait at the same time are handed to the driver together, so
 * that they share a round trip (Redis: one pipeline) or a commit (SQL: one transaction). The driver
 * runs them on one connection, which is one thread's at a time, in such a way that each is atomic
 * by itself and what it answers is durable when run() returns.
 *
 * A driver is a shared library of its own, libonce-NAME.so, with the one symbol `once_driver_NAME`;
 * it uses nothing of the core but this header and decide.h, and links only the client library of
 * its server (and OpenSSL, where that has no TLS). `memory` is part of the core.
 *
 * State of a key in any store:
 *
 *     absent ──claim──► CONSUMING (token, fence, until) ──finish──► CONSUMED (until: the mark's
 * end) │    ▲ release│    │claim, by another token, once `until` has passed or it is free ▼    │
 *                        RELEASED (or absent again: `forget`)
 *
 * Whether `until` has passed is for the store's clock to say. CONSUMED is the end: nothing leads
 * back but the sweep, once its `until` has passed. Whoever has not the token changes nothing.
 *
 * The fence of a claim is the larger of the store's clock in microseconds and the fence before plus
 * one, so it grows also over a row that was swept, and over a clock that was set back.
 */
#ifndef ONCE_DRIVER_H
#define ONCE_DRIVER_H

#include "once/op.h"

struct clock;
struct omq_client_options;

/* What a store is opened with: the parts of the URL and of the options that it needs. */
struct store_settings {
    const char *url;   /* whole, as given: checked for its scheme only */
    const char *table; /* checked: 1 to 48 of A-Z a-z 0-9 _ */
    bool create, plain, takeover;
    bool looks;  /* to be read only, and without tables of ours: once_select */
    int wait_ms; /* for a locked row; also the time-out of a connect */
    int redis_replicas;
    bool transactions;   /* will be used for ONCE_TRANSACTION or ONCE_OFFSET */
    struct clock *clock; /* for a store without one of its own: memory */
    const void *own;     /* for a driver that needs more than a URL: the adapter of checkers */
    const char *group;   /* the consumer group */
    uint32_t instance;   /* the upper half of all tokens of this opening */
    const struct omq_client_options *client;              /* may be NULL; once.h */
    void (*log)(void *user, int level, const char *line); /* never NULL */
    void *log_user;
};

struct store; /* a driver's own: shared by its connections, any thread */
struct conn;  /* a driver's own: one thread at a time */

/* One row of ONCE_OFFSET. */
struct place {
    uint8_t id[ONCE_ID_SIZE]; /* SHA-256 of scope, topic, broker, queue */
    const char *name;
    int64_t epoch;         /* of whoever took the queue last; only its commits are accepted */
    int64_t offset, floor; /* as in struct once_message */
};

struct sql_value; /* sql.h: bound values, for guards and the outbox */
struct sql_call;

struct once_driver {
    const char *name; /* "redis" */
    bool direct;      /* run() is quick: called by each worker itself, all on the one connection */
    bool sql;         /* has the functions of transactions below */
    bool watches; /* knows by itself whose process is gone: claims are always made with takeover */
    bool any_order; /* batches come as they are, not sorted by id */
    int lanes;      /* batches that may be under way at the same time; 0: 1 */

    /* The first connection is made here, so that wrong settings show. `why` is a sentence without
     * passwords. ERR_IO: cannot be reached; ERR_DENIED; ERR_UNSUPPORTED: too old; ERR_NOT_FOUND:
     * tables are missing and `create` is not set; ERR_INVALID: the URL. */
    enum err (*open)(const struct store_settings *settings, struct store **out, struct fault *why);
    void (*close)(struct store *store); /* all connections are closed */
    enum err (*connect)(struct store *store, struct conn **out, struct fault *why);
    void (*disconnect)(struct conn *conn);
    bool (*healthy)(
        struct conn *conn); /* asked before it is used again after a pause; may be NULL */

    /* Runs `n` operations, all of different ids except sweeps, and sets each one's outcome. On an
     * error nothing is known of those whose outcome is OUT_NONE:
     *     ERR_IO     the connection is unusable: it will be thrown away, the operations repeated on
     *                another (all of them may be repeated: a claim by the token that has it is OK)
     *     ERR_BUSY   a deadlock or the like: nothing was done, they are repeated on this one
     *     ERR_STALE  the store was emptied since it was opened (H-13)
     */
    enum err (*run)(struct conn *conn, struct op *const *ops, size_t n, struct fault *why);

    /* After ERR_STALE: from now on what is there counts. */
    enum err (*accept)(struct store *store, struct conn *conn, struct fault *why);

    /* ---- transactions; NULL where `sql` is not set ---- */

    /* Opens a transaction and writes the mark of `op` (kind OP_FINISH) into it. op->outcome:
     * OUT_OK; OUT_DONE: there is one, the transaction is over; OUT_BUSY: the row is locked
     * (wait_ms), the transaction is over. `op` may be NULL: no mark (ONCE_OFFSET). */
    enum err (*begin)(struct conn *conn, struct op *op, struct fault *why);
    /* ERR_BUSY: it conflicts with another, was rolled back, and may be tried again. ERR_IO: nobody
     * knows whether it was committed. Anything else: it was rolled back (so also when a server
     * answers the commit of a failed transaction with a roll-back, as PostgreSQL does). */
    enum err (*commit)(struct conn *conn, struct fault *why);
    void (*rollback)(struct conn *conn);
    void *(*native)(struct conn *conn); /* PGconn *, MYSQL *, sqlite3 * */

    /* In an open transaction: marks the place as done. `outcome`: OUT_OK; OUT_DONE: it was;
     * OUT_LOST: another has taken the queue. */
    enum err (*place_mark)(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                           struct fault *why);
    /* Without a transaction: the same question, changing nothing. */
    enum err (*place_look)(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                           struct fault *why);
    /* Takes the queue: a new epoch, and where to begin. place->offset is used if nothing is known.
     */
    enum err (*place_take)(struct conn *conn, struct place *place, struct fault *why);

    /* In an open transaction: one statement, with `?` for values and names already quoted. */
    enum err (*call)(struct conn *conn, struct sql_call *call, struct fault *why);
    /* `name` as an identifier of this dialect; ERR_INVALID: empty, too long or with a NUL. A dot
     * separates schema and table. */
    enum err (*quote)(const char *name, char *out, size_t size);
    /* One statement over a connection of its own, which no store is needed for. */
    enum err (*ask)(const struct store_settings *settings, struct sql_call *call,
                    struct fault *why);
    const char *for_update; /* " FOR UPDATE", or "" where a transaction locks everything anyway */
    /* First words of statements that commit by the way, ended by NULL; NULL: there are none. */
    const char *const *ends;
};

/* Which form of this header a library was built with: beside the driver it has `once_form_NAME`,
 * and one that says otherwise than the core is not used, since its functions would be called for
 * what they are not. Raise the number when a meaning changes; what grows is seen by its size. */
#define ONCE_DRIVER_FORM                                                                           \
    (2u << 24 | (uint32_t)sizeof(struct once_driver) << 12 | (uint32_t)sizeof(struct op))
#define ONCE_DRIVER_EXPORT(name)                                                                   \
    __attribute__((visibility("default"))) extern const struct once_driver once_driver_##name;     \
    __attribute__((visibility("default"))) extern const uint32_t once_form_##name;                 \
    const uint32_t once_form_##name = ONCE_DRIVER_FORM

#endif
