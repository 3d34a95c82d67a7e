/* pg.c - the PostgreSQL engine: connections, transactions, dialect. pg_run.c runs statements. */
#include "once/pg_int.h"

#include "once.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define OLDEST       90500      /* ON CONFLICT */
#define LOCK_CLASS   1869505381 /* "once": the first half of our advisory locks */
#define SILENCE_MIN  30000      /* shorter is not taken for death */
#define CONNECT_MIN  2000       /* as libpq has it */
#define PASSWORD_TIP "special characters of a name or password are written as %%NN, an @ as %%40"

/* ---- connecting ---- */

/* Sentences of libpq about a URL that it cannot read repeat parts of it, and those may be parts of
 * the password. So such a URL is refused here, in our own words. */
static enum err url_check(const char *url, int *connect_ms, struct fault *why)
{
    const char *start = strstr(url, "://");
    size_t authority = start ? strcspn(start + 3, "/?") : 0;
    size_t ats = 0;
    for (size_t i = 0; i < authority; i++)
        ats += start[3 + i] == '@';
    if (ats > 1)
        return fault_set(why, ERR_INVALID,
                         "the URL of the store has more than one @: " PASSWORD_TIP);

    char *words = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &words);
    PQfreemem(words);
    if (!options)
        return fault_set(why, ERR_INVALID,
                         "the URL of the store cannot be read by libpq: " PASSWORD_TIP);
    bool good = true;
    for (PQconninfoOption *o = options; o->keyword; o++) {
        if (!o->val)
            continue;
        if (strcmp(o->keyword, "port") == 0)
            good = good && strspn(o->val, "0123456789,") == strlen(o->val);
        int32_t seconds;
        if (strcmp(o->keyword, "connect_timeout") == 0 &&
            bytes_to_i32(bytes_str(o->val), &seconds) && seconds > 0 && seconds < 3600)
            *connect_ms = seconds * 1000;
    }
    PQconninfoFree(options);
    return good ? OK
                : fault_set(why, ERR_INVALID,
                            "the port in the URL of the store is no number: " PASSWORD_TIP);
}

/* The words of a server that refused to talk to us: "…: FATAL:  28P01: password …", because the
 * verbosity is set so. NULL: there is no code in them. */
static const char *code_in(const char *words, char code[6])
{
    for (const char *at = strstr(words, ":  "); at; at = strstr(at + 1, ":  ")) {
        size_t n = 0;
        while (n < 5 && (isdigit((unsigned char)at[3 + n]) || isupper((unsigned char)at[3 + n])))
            n++;
        if (n == 5 && at[8] == ':') {
            memcpy(code, at + 3, 5);
            code[5] = 0;
            return code;
        }
    }
    return NULL;
}

static enum err unreachable(PGconn *pg, struct fault *why)
{
    const char *words = PQerrorMessage(pg);
    char code[6];
    enum err err = PQconnectionNeedsPassword(pg) ? ERR_DENIED : pg_error(code_in(words, code));
    if (err == ERR_INVALID || err == ERR_BUSY)
        err = ERR_IO;
    return fault_set(why, err, "PostgreSQL: %.*s", (int)strcspn(words, "\n"), words);
}

/* Defaults stand before the URL, so that what the URL says wins. */
static PGconn *start(const char *url)
{
    static const char *const keywords[] = {"client_encoding",
                                           "fallback_application_name",
                                           "keepalives",
                                           "keepalives_idle",
                                           "keepalives_interval",
                                           "keepalives_count",
                                           "tcp_user_timeout",
                                           "dbname",
                                           NULL};
    const char *const values[] = {"UTF8", "libonce", "1", "30", "10", "3", "60000", url, NULL};
    return PQconnectStartParams(keywords, values, 1);
}

static enum err shake_hands(PGconn *pg, int connect_ms, struct fault *why)
{
    if (!pg)
        return ERR_NO_MEMORY;
    (void)PQsetErrorVerbosity(pg, PQERRORS_VERBOSE);
    int64_t deadline_ms = pg_clock_ms() + connect_ms;
    if (PQstatus(pg) == CONNECTION_BAD)
        return unreachable(pg, why);
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED)
            return unreachable(pg, why);
        if (!pg_wait(pg, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline_ms))
            return fault_set(why, ERR_IO, "PostgreSQL: no answer within %d ms", connect_ms);
        next = PQconnectPoll(pg);
    }
    (void)PQsetErrorVerbosity(pg, PQERRORS_DEFAULT);
    if (PQserverVersion(pg) < OLDEST)
        return fault_set(why, ERR_UNSUPPORTED, "PostgreSQL %d is too old: 9.5 or later is needed",
                         PQserverVersion(pg));
    return OK;
}

static void quiet(void *user, const PGresult *notice)
{
    (void)user;
    (void)notice;
}

/* What a session of ours is set to. A server that was told not to wait for its disk is told to do
 * so for us: a mark that was acknowledged must not be lost. Milder forms (local, remote_write) are
 * somebody's choice and stay. */
static enum err settle(struct sql_conn *conn, int wait_ms, struct fault *why)
{
    /* Sets are joined with the table by its key, in the order of the set. A planner that has seen
     * the table small would rather read all of it, in any order, and would keep to that while it
     * grows. Only where no handler has statements of its own. */
    static const char plan[] =
        "SELECT set_config(name, CASE vartype WHEN 'bool' THEN 'off' ELSE 'force_generic_plan' "
        "END, false) FROM pg_settings WHERE name IN ('enable_seqscan', 'enable_bitmapscan', "
        "'enable_hashjoin', 'enable_mergejoin', 'plan_cache_mode')";
    char wait[16];
    snprintf(wait, sizeof wait, "%d", wait_ms > 0 ? wait_ms : 1);
    struct sql_call calls[] = {
        {.text = "SELECT set_config('lock_timeout', ?, false)",
         .n_params = 1,
         .params = {{.type = SQL_TEXT, .bytes = bytes_str(wait)}}},
        {.text = "SELECT set_config('synchronous_commit', 'on', false)"
                 " WHERE current_setting('synchronous_commit') = 'off'"},
        {.text = "SELECT set_config('default_transaction_isolation', 'read committed', false)"},
        {.text = plan},
    };
    size_t n = sizeof calls / sizeof calls[0], failed;
    for (size_t i = 0; i < n; i++)
        calls[i].once = true;
    return pg_run(conn, calls, conn->alone ? n : n - 1, &failed, why);
}

static void pg_disconnect(struct sql_conn *conn)
{
    if (!conn)
        return;
    PQfinish(conn->pg);
    free(conn);
}

static void disconnect_at(struct sql_conn **conn)
{
    pg_disconnect(*conn);
}

static enum err pg_connect(const struct store_settings *settings, struct sql_conn **out,
                           struct fault *why)
{
    int connect_ms = settings->wait_ms > CONNECT_MIN ? settings->wait_ms : CONNECT_MIN;
    enum err err = url_check(settings->url, &connect_ms, why);
    if (err)
        return err;
    cleanup(disconnect_at) struct sql_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ERR_NO_MEMORY;
    int patience = settings->wait_ms < INT32_MAX / 4 ? settings->wait_ms * 4 : INT32_MAX;
    conn->silence_ms = patience > SILENCE_MIN ? patience : SILENCE_MIN;
    conn->alone = !settings->transactions;
    conn->pg = start(settings->url);
    err = shake_hands(conn->pg, connect_ms, why);
    if (err)
        return err;
    (void)PQsetNoticeReceiver(conn->pg, quiet, NULL);
    err = settle(conn, settings->wait_ms, why);
    if (err)
        return err;
    *out = take(&conn);
    return OK;
}

/* Looks for the end that a server sends when it goes; asks nothing. Its last words come first, so
 * what is there is read until there is no more. */
static bool pg_healthy(struct sql_conn *conn)
{
    struct pollfd at = {.fd = PQsocket(conn->pg), .events = POLLIN};
    if (conn->dead || at.fd < 0)
        return false;
    while (poll(&at, 1, 0) > 0)
        if (!PQconsumeInput(conn->pg)) {
            conn->dead = true;
            return false;
        }
    return PQstatus(conn->pg) == CONNECTION_OK && PQtransactionStatus(conn->pg) == PQTRANS_IDLE &&
           PQpipelineStatus(conn->pg) == PQ_PIPELINE_OFF;
}

/* ---- transactions ---- */

static enum err tell(struct sql_conn *conn, const char *text, struct fault *why)
{
    struct sql_call call = {.text = text};
    size_t failed;
    return pg_run(conn, &call, 1, &failed, why);
}

static enum err pg_begin(struct sql_conn *conn, bool writes, struct fault *why)
{
    (void)writes;
    if (conn->dead || PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
        return fault_set(why, ERR_IO, "PostgreSQL: the connection is not free");
    conn->begin_due = true;
    return OK;
}

static void *pg_native(struct sql_conn *conn)
{
    /* A handler that gets the connection before any statement of ours still is in a transaction;
     * should this fail, so does all that follows. */
    if (conn->begin_due && tell(conn, "SELECT", NULL) != OK)
        conn->dead = true;
    return conn->pg;
}

static void pg_rollback(struct sql_conn *conn)
{
    conn->begin_due = false;
    if (!conn->dead && PQtransactionStatus(conn->pg) != PQTRANS_IDLE &&
        tell(conn, "ROLLBACK", NULL) != OK)
        conn->dead = true;
}

/* PostgreSQL answers COMMIT of a failed transaction with ROLLBACK and no error: a handler that went
 * on after an error of its own would be taken for done. So the state is looked at first. */
static enum err pg_commit(struct sql_conn *conn, struct fault *why)
{
    if (conn->begin_due) { /* nothing was done in it */
        conn->begin_due = false;
        return OK;
    }
    if (conn->dead || PQstatus(conn->pg) == CONNECTION_BAD) {
        conn->dead = true;
        return fault_set(why, ERR_IO, "PostgreSQL: the connection was lost before the commit");
    }
    PGTransactionStatusType state = PQtransactionStatus(conn->pg);
    if (state == PQTRANS_INTRANS)
        return tell(conn, "COMMIT", why);
    pg_rollback(conn);
    return fault_set(why, ERR_INVALID,
                     state == PQTRANS_INERROR
                         ? "the transaction was rolled back: a statement in it had failed"
                         : "the transaction was ended, or left in the middle, by its handler");
}

/* ---- who lives ---- */

static bool first_number(void *user, const struct sql_value *columns, size_t n)
{
    *(int64_t *)user = n == 1 && columns[0].type == SQL_INT ? columns[0].number : 0;
    return false;
}

/* One advisory lock for each instance: shared by the sessions of that instance, and had alone for
 * the length of a statement by whoever looks whether it is free. */
static struct sql_call lock_call(const char *text, uint32_t instance, int64_t *got)
{
    return (struct sql_call){
        .text = text,
        .n_params = 2,
        .params = {{.type = SQL_INT, .number = LOCK_CLASS},
                   {.type = SQL_INT, .number = (int32_t)instance}},
        .row = first_number,
        .user = got,
    };
}

static enum err pg_live(struct sql_conn *conn, uint32_t instance, struct fault *why)
{
    int64_t one = 0;
    size_t failed;
    /* Between two claims it is silent for as long as a handler takes, and must not be closed. */
    struct sql_call calls[] = {
        {.text = "SELECT set_config(name, '0', false) FROM pg_settings"
                 " WHERE name = 'idle_session_timeout'"}, /* from 14 on */
        lock_call("SELECT 1 FROM pg_advisory_lock_shared(?::int, ?::int)", instance, &one),
    };
    enum err err = pg_run(conn, calls, 2, &failed, why);
    conn->lives = conn->lives || !err;
    conn->instance = err ? conn->instance : instance;
    return err;
}

static bool pg_gone(struct sql_conn *conn, uint32_t instance)
{
    if (conn->lives && conn->instance == instance)
        return false;
    int64_t free_of_owners = 0;
    size_t failed;
    struct sql_call call =
        lock_call("SELECT pg_try_advisory_xact_lock(?::int, ?::int)", instance, &free_of_owners);
    return pg_run(conn, &call, 1, &failed, NULL) == OK && free_of_owners == 1;
}

/* ---- dialect ---- */

static const char *const create[] = {
    /* Two that create at once would trip over each other: IF NOT EXISTS does not wait. */
    "SELECT pg_advisory_xact_lock(1869505381, 0)",
    "CREATE TABLE IF NOT EXISTS {claims} (\n"
    "    id          bytea  NOT NULL PRIMARY KEY,\n"
    "    name        text   NOT NULL,\n"
    "    state       bigint NOT NULL,\n"
    "    token       bigint NOT NULL,\n"
    "    fence       bigint NOT NULL,\n"
    "    until_ms    bigint NOT NULL,\n"
    "    keep_ms     bigint NOT NULL,\n"
    "    fingerprint bigint NOT NULL\n"
    ")",
    "CREATE INDEX IF NOT EXISTS {keep} ON {claims} (keep_ms)",
    "CREATE TABLE IF NOT EXISTS {steps} (\n"
    "    id     bytea NOT NULL,\n"
    "    step   bytea NOT NULL,\n"
    "    result bytea NOT NULL,\n"
    "    PRIMARY KEY (id, step)\n"
    ")",
    "CREATE TABLE IF NOT EXISTS {places} (\n"
    "    id    bytea  NOT NULL PRIMARY KEY,\n"
    "    name  text   NOT NULL,\n"
    "    epoch bigint NOT NULL,\n"
    "    next  bigint NOT NULL,\n"
    "    done  bytea  NOT NULL\n"
    ")",
    "CREATE TABLE IF NOT EXISTS {outbox} (\n"
    "    number  bigserial NOT NULL PRIMARY KEY,\n"
    "    id      bytea     NOT NULL,\n"
    "    message bytea     NOT NULL\n"
    ")",
    "CREATE TABLE IF NOT EXISTS {birth} (\n"
    "    one    bigint NOT NULL PRIMARY KEY,\n"
    "    number bigint NOT NULL\n"
    ")",
    NULL,
};

const struct sql_engine sql_engine_pg = {
    .name = "postgresql",
    .connect = pg_connect,
    .disconnect = pg_disconnect,
    .healthy = pg_healthy,
    .native = pg_native,
    .run = pg_run,
    .begin = pg_begin,
    .commit = pg_commit,
    .rollback = pg_rollback,
    .live = pg_live,
    .gone = pg_gone,
    .quote = '"',
    /* Not now(), which stands still throughout a transaction. */
    .now_ms = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint",
    .for_update = " FOR UPDATE",
    .create = create,
    .insert_claim = "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms,"
                    " fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
    .insert_many = "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms,"
                   " fingerprint) SELECT * FROM unnest(?::bytea[], ?::text[], ?::bigint[],"
                   " ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])"
                   " ON CONFLICT (id) DO NOTHING RETURNING id",
    .update_many = "UPDATE {claims} AS c SET state = u.state, token = u.token, fence = u.fence,"
                   " until_ms = u.until_ms, keep_ms = u.keep_ms, fingerprint = u.fingerprint"
                   " FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[],"
                   " ?::bigint[], ?::bytea[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[])"
                   " AS u (state, token, fence, until_ms, keep_ms, fingerprint, id, old_state,"
                   " old_token, old_fence, old_until) WHERE c.id = u.id AND c.state = u.old_state"
                   " AND c.token = u.old_token AND c.fence = u.old_fence AND"
                   " c.until_ms = u.old_until RETURNING c.id",
    .commit_text = "COMMIT",
};

static enum err open_store(const struct store_settings *settings, struct store **out,
                           struct fault *why)
{
    return sql_open(&sql_engine_pg, settings, out, why);
}

static enum err ask(const struct store_settings *settings, struct sql_call *call, struct fault *why)
{
    return sql_ask(&sql_engine_pg, settings, call, why);
}

static enum err quote(const char *name, char *out, size_t size)
{
    return sql_quote('"', name, out, size);
}

ONCE_DRIVER_EXPORT(postgresql);
const struct once_driver once_driver_postgresql = {
    SQL_DRIVER("postgresql", open_store, quote, " FOR UPDATE"), .ask = ask};
