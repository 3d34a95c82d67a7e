/* sql.h - the SQL stores: one set of rules, three engines.
 *
 *     driver.h           what the core asks
 *     sql.c              answers it with statements, the same for all    (this folder)
 *     sqlite.c pg.c mariadb.c    engines: run a statement on a connection, tell errors apart
 *
 * An engine knows its client library and dialect and nothing of claims. sql.c knows claims and no
 * library. A driver of one database is the struct once_driver that SQL_DRIVER below fills.
 *
 * The tables, for `table` = once (types by engine; the exact SQL is in docs/once.md and is what
 * `create` runs):
 *
 *     once_claims   id (32 bytes, primary key), name, state, token, fence, until_ms, keep_ms,
 *                   fingerprint; index on keep_ms
 *     once_steps    id, step (primary key: both), result
 *     once_places   id (primary key), name, epoch, next, done (bitmap of what is done beyond next)
 *     once_outbox   number (growing primary key), id, message
 *     once_birth    one (primary key, always 1), number: random, written when the tables are first
 *                   opened; a store that was emptied has another, or none (H-13)
 *
 * All but id, step, done, result, message (bytes) and name (text) are signed 64-bit numbers; tokens
 * and fingerprints are the same 64 bits. `until_ms` is when a claim or mark ends, `keep_ms` when
 * the sweep may take the row: later for a claim, since the steps of a process that died must be
 * there when its message comes again, and hardly later for a mark, where that spares the index a
 * change.
 *
 * Columns that hold ids and names are binary: keys that differ in case, in trailing blanks or
 * behind the hundredth character differ (H-16, H-17). No statement ignores errors: a conflict is
 * looked for on the named key only (H-19).
 *
 * What an engine sets on its connections: a statement of a transaction sees what others have
 * committed before it (READ COMMITTED: a row that was lost to another is read again in the same
 * transaction); a value that does not fit is an error and is never cut; a commit that was
 * answered is on the disk; waiting for a locked row ends after wait_ms.
 */
#ifndef ONCE_SQL_H
#define ONCE_SQL_H

#include "once/driver.h"

#define SQL_PARAMS_MAX  32
#define SQL_COLUMNS_MAX 10
#define SQL_GUESS_MS    1000 /* how far a guessed clock may be off */

enum sql_type { SQL_NULL, SQL_INT, SQL_TEXT, SQL_BLOB };

struct sql_value {
    enum sql_type type;
    int64_t number;
    struct bytes bytes; /* TEXT, BLOB */
};

/* One statement. `text` has `?` for parameters (an engine of another dialect rewrites them when it
 * prepares) and must be a string that lives as long as the connection: prepared statements are
 * remembered by its address, unless `once` is set. */
struct sql_call {
    const char *text;
    bool once;    /* text may be gone afterwards: do not remember it */
    bool foreign; /* an application's own: numbers may stand for columns of any type, rows are not
                     wanted, and nothing is known of what it does */
    /* The same over a set, for an engine that makes one statement of several such calls; how the
     * values stand in it is the engine's own (pg_set.c, mariadb_text.c). NULL: there is none. */
    const char *many;
    /* Several such in a row may be counted together: `changed` is 1 for each of them, or 0 for all
     * where one has changed nothing. */
    bool counted_together;
    bool commits; /* the transaction is over when this one went well */
    struct sql_value params[SQL_PARAMS_MAX];
    size_t n_params;

    /* Every row that comes, until it says false. Values live until it returns. NULL: none expected.
     */
    bool (*row)(void *user, const struct sql_value *columns, size_t n);
    void *user;

    uint64_t changed; /* out: rows inserted, changed, deleted */
    int64_t told;     /* out: a number that the statement tells beside that; 0: none */
};

struct sql_conn; /* an engine's own */

struct sql_engine {
    const char *name;
    enum err (*connect)(const struct store_settings *settings, struct sql_conn **out,
                        struct fault *why);
    void (*disconnect)(struct sql_conn *conn);
    bool (*healthy)(struct sql_conn *conn);
    void *(*native)(struct sql_conn *conn);

    /* Runs `n` statements one after the other, in as few round trips as the library can; stops at
     * the first that fails, whose place is `*failed`:
     *     ERR_IO       the connection is gone
     *     ERR_BUSY     deadlock, serialisation failure, lock time-out: a transaction must be rolled
     *                  back and may be tried again (1205, 1213, 40P01, 40001, 55P03, SQLITE_BUSY)
     *     ERR_EXISTS   a unique key was violated
     *     ERR_NOT_FOUND  no such table
     *     ERR_DISK_FULL, ERR_READ_ONLY, ERR_DENIED, ERR_INVALID: anything else, with the server's
     *                  words in `why`
     */
    enum err (*run)(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                    struct fault *why);

    /* Transactions. `writes`: take what a writer needs at once (SQLite: BEGIN IMMEDIATE). A BEGIN
     * may be kept back and sent with the first statements; there are some before `native` is used.
     */
    enum err (*begin)(struct sql_conn *conn, bool writes, struct fault *why);
    enum err (*commit)(struct sql_conn *conn, struct fault *why);
    void (*rollback)(struct sql_conn *conn); /* also after a failed statement; never fails: a
                                                connection that cannot is unhealthy afterwards */

    /* Takeover: this session says it lives, until it ends; is that one gone? Instances are the
     * upper halves of tokens. May be NULL: cannot tell. sql.c keeps one connection for `live` and
     * nothing else, and asks `gone` on others. */
    enum err (*live)(struct sql_conn *conn, uint32_t instance, struct fault *why);
    bool (*gone)(struct sql_conn *conn, uint32_t instance);

    /* Dialect. Texts may use {t} for the quoted first part of a table's name: "INSERT INTO
     * {t}_claims …" is not possible with quotes, so {claims} {steps} {places} {outbox} {birth}
     * {keep} (the index) stand for whole quoted names, {plain} for `table` itself, {now} for the
     * expression of the server's clock in milliseconds, and {lock} for `for_update`. */
    char quote;         /* '"' or '`' */
    const char *now_ms; /* an SQL expression, the same all through one statement */
    const char *for_update;
    const char *const *create; /* statements, ended by NULL; each may be repeated */
    /* Rows of claims name the birth of their store, and the database lets none in that names
     * another: each insert has it as one more value at its end, and no claim or mark can get into
     * an emptied store. Such an engine has its own texts for a look at the columns and for what the
     * sweep finds. */
    bool births;
    const char *check_claims, *sweep_find;
    /* As insert_claim below, for an engine with births, and fails with ERR_INVALID unless the
     * server's clock is within SQL_GUESS_MS of the last `?`: a transaction begins with this one
     * statement. NULL: clock and birth are asked for beside the insert. */
    const char *insert_mark;
    /* Inserts a row (id, name, state, token, fence, until_ms, keep_ms, fingerprint: eight `?` in
     * this order, and the birth) unless the id is there: `changed` is 0 then. The form differs
     * between dialects: ON CONFLICT (id) DO NOTHING. */
    const char *insert_claim;
    /* `many` of insert_claim, and of the UPDATE in sql_text.c with its eleven values; may be NULL.
     */
    const char *insert_many, *update_many;
    /* Straight writes (sql_straight.c), all of them or none. They reckon from the server's clock as
     * `tick` has read it, which stays in the session; without a tick, from that of their own
     * statement, and a claim tells it (`told` of its call).
     *     tick: SELECT clock, if the store's birth is ?; else no row, or NULL. Itself NULL: for an
     * engine with births, each of whose writes does nothing, or fails with ERR_INVALID, where the
     * birth of the store is not the one that it names.
     *     straight_claim: inserts, unless the id is there: id, name, state, token, until_ms and
     * keep_ms (as so long from now), fingerprint (and the birth). The fence is the clock in
     * microseconds.
     *     straight_finish: keep_ms stays if it is ? to ? from now, else it is ? from now (or
     * nothing is changed); until_ms is ? from now, the state ?; where that was ? or ?, and id and
     * token are these (and the birth). straight_finish_many: `many` of it; may be NULL.
     *     straight_commit: commits, to go last with those that `run` gets; NULL: a commit is a trip
     * of its own. For an engine on which, after a tick without a clock, none of them can write. It
     * may be run where one before it has failed, and so without it: all are asked again then. */
    const char *tick, *straight_claim, *straight_finish, *straight_finish_many, *straight_commit;
    /* A statement that commits, to go last with those that `run` gets: where one before it fails it
     * is not run. NULL: a commit is a trip of its own. */
    const char *commit_text;
};

/* What `struct once_driver` of an engine consists of; in the engine's file (the engine itself is
 * not static: its tests use it):
 *
 *     static enum err open(const struct store_settings *s, struct store **out, struct fault *why)
 *     {
 *         return sql_open(&sql_engine_pg, s, out, why);
 *     }
 *     static enum err quote(const char *name, char *out, size_t size)
 *     {
 *         return sql_quote('"', name, out, size);
 *     }
 *     const struct once_driver once_driver_postgresql = {
 *         SQL_DRIVER("postgresql", open, quote, " FOR UPDATE"), .ask = ask};
 */
#define SQL_DRIVER(name_, open_, quote_, for_update_)                                              \
    .name = (name_), .sql = true, .open = (open_), .close = sql_close, .connect = sql_connect,     \
    .disconnect = sql_disconnect, .healthy = sql_healthy, .run = sql_run, .accept = sql_accept,    \
    .begin = sql_begin, .commit = sql_commit, .rollback = sql_rollback, .native = sql_native,      \
    .place_mark = sql_place_mark, .place_look = sql_place_look, .place_take = sql_place_take,      \
    .call = sql_call, .quote = (quote_), .for_update = (for_update_)

extern const struct sql_engine sql_engine_sqlite, sql_engine_pg, sql_engine_mariadb;

enum err sql_open(const struct sql_engine *engine, const struct store_settings *settings,
                  struct store **out, struct fault *why);
void sql_close(struct store *store);
enum err sql_connect(struct store *store, struct conn **out, struct fault *why);
void sql_disconnect(struct conn *conn);
bool sql_healthy(struct conn *conn);
enum err sql_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why);
enum err sql_accept(struct store *store, struct conn *conn, struct fault *why);
enum err sql_begin(struct conn *conn, struct op *op, struct fault *why);
enum err sql_commit(struct conn *conn, struct fault *why);
void sql_rollback(struct conn *conn);
void *sql_native(struct conn *conn);
enum err sql_place_mark(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                        struct fault *why);
enum err sql_place_look(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                        struct fault *why);
enum err sql_place_take(struct conn *conn, struct place *place, struct fault *why);
enum err sql_call(struct conn *conn, struct sql_call *call, struct fault *why);
enum err sql_ask(const struct sql_engine *engine, const struct store_settings *settings,
                 struct sql_call *call, struct fault *why);
/* `name` between quotes, with quotes in it doubled; a dot separates schema and table. */
enum err sql_quote(char quote, const char *name, char *out, size_t size);
/* `text` with the names of `table` in place of {claims} and the rest: malloc'ed, or NULL. */
char *sql_text(const struct sql_engine *engine, const char *table, const char *text);

#endif
