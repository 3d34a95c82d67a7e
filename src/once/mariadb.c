/* mariadb.c - the engine for MariaDB and MySQL: connections, transactions, dialect. */
#include "once/mariadb_int.h"

#include "once.h"

#include <inttypes.h>
#include <mysqld_error.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define OLDEST         50700 /* MySQL 5.7: several GET_LOCK by one session */
#define SILENCE_S      30    /* shorter is not taken for death */
#define SILENCE_LONG_S 600   /* with handlers, whose statements may take their time */

/* ---- connecting ---- */

static unsigned seconds(int ms)
{
    return ms > 1000 ? ((unsigned)ms + 999) / 1000 : 1;
}

static void set_options(MYSQL *mysql, const struct mariadb_url *u,
                        const struct store_settings *settings)
{
    unsigned connect_s = u->connect_s ? u->connect_s : seconds(settings->wait_ms);
    unsigned silence_s = settings->transactions ? SILENCE_LONG_S : SILENCE_S;
    if (silence_s < seconds(settings->wait_ms) * 4)
        silence_s = seconds(settings->wait_ms) * 4;
    if (u->read_s)
        silence_s = u->read_s;
    unsigned off = 0;
    my_bool yes = 1;
    unsigned protocol = u->socket ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;

    (void)mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    (void)mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &connect_s);
    (void)mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &silence_s);
    (void)mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &silence_s);
    (void)mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &off); /* no server reads our files */
    /* "localhost" with a port means that port, not the library's own socket. */
    if (u->socket || u->port)
        (void)mysql_options(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    if (u->tls)
        (void)mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &yes);
    if (u->verify)
        (void)mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
    if (u->ca)
        (void)mysql_options(mysql, MYSQL_OPT_SSL_CA, u->ca);
}

static enum err unreachable(struct sql_conn *conn, struct fault *why)
{
    enum err err = mariadb_error(conn, why);
    return err == ERR_INVALID || err == ERR_BUSY ? ERR_IO : err;
}

/* What the server is set to, as far as it decides whether we can keep our promises. */
struct server {
    int64_t flush; /* 1: a commit that was answered is on the disk */
    bool statements_in_log;
};

static bool see_server(void *user, const struct sql_value *columns, size_t n)
{
    struct server *s = (struct server *)user;
    if (n == 3 && columns[0].type == SQL_INT)
        s->flush = columns[0].number;
    s->statements_in_log =
        n == 3 && columns[1].number == 1 && bytes_equal(columns[2].bytes, BYTES("STATEMENT"));
    return false;
}

static enum err check_server(struct sql_conn *conn, const struct store_settings *settings,
                             struct fault *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct server server = {.flush = 1};
    size_t failed;
    struct sql_call look = {.text = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit,"
                                    " @@GLOBAL.log_bin, @@SESSION.binlog_format",
                            .row = see_server,
                            .user = &server};
    enum err err = mariadb_run(conn, &look, 1, &failed, why);
    if (err == ERR_IO)
        return err;
    if (server.statements_in_log)
        return fault_set(why, ERR_UNSUPPORTED,
                         "MariaDB: binlog_format is STATEMENT, with which READ COMMITTED cannot "
                         "write; it must be MIXED or ROW");
    if (server.flush != 1 && !atomic_flag_test_and_set(&warned))
        settings->log(settings->log_user, ONCE_WARN,
                      "innodb_flush_log_at_trx_commit is not 1: what was recorded as done can be "
                      "forgotten when the machine of the database stops");
    return OK;
}

/* What a session of ours is set to; mariadb_int.h tells why it never commits by itself. A value
 * that does not fit is an error (H-16). */
static enum err settle(struct sql_conn *conn, int wait_ms, struct fault *why)
{
    char text[320];
    snprintf(text, sizeof text,
             "SET SESSION autocommit = 0, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,"
             "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'), foreign_key_checks = 1,"
             " innodb_lock_wait_timeout = %u, lock_wait_timeout = %u",
             seconds(wait_ms), seconds(wait_ms));
    enum err err = mariadb_tell(conn, text, why);
    if (!err)
        err = mariadb_tell(conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", why);
    return err;
}

static void my_disconnect(struct sql_conn *conn)
{
    if (!conn)
        return;
    mariadb_forget(conn);
    if (conn->mysql)
        mysql_close(conn->mysql);
    buf_clear(&conn->text);
    free(conn);
}

static void disconnect_at(struct sql_conn **conn)
{
    my_disconnect(*conn);
}

static enum err my_connect(const struct store_settings *settings, struct sql_conn **out,
                           struct fault *why)
{
    struct mariadb_url u;
    enum err err = mariadb_url_read(settings->url, &u, why);
    if (err)
        return err;
    cleanup(disconnect_at) struct sql_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return ERR_NO_MEMORY;
    conn->text = buf_upto(MARIADB_TEXT_MAX);
    conn->savepoints = settings->transactions;
    conn->mysql = mysql_init(NULL);
    if (!conn->mysql)
        return ERR_NO_MEMORY;
    set_options(conn->mysql, &u, settings);
    if (!mysql_real_connect(conn->mysql, *u.host ? u.host : NULL, u.user, u.password, u.database,
                            u.port, u.socket, 0))
        return unreachable(conn, why);
    if (mysql_get_server_version(conn->mysql) < OLDEST)
        return fault_set(why, ERR_UNSUPPORTED, "%s is too old: MySQL 5.7 or MariaDB is needed",
                         mysql_get_server_info(conn->mysql));
    conn->blocks = mariadb_connection(conn->mysql);
    unsigned can = 0; /* the upper half of MariaDB's capabilities; MySQL has none */
    if (conn->blocks &&
        !mariadb_get_infov(conn->mysql, MARIADB_CONNECTION_EXTENDED_SERVER_CAPABILITIES, &can))
        conn->bulk = can & (unsigned)(MARIADB_CLIENT_STMT_BULK_OPERATIONS >> 32);
    err = settle(conn, settings->wait_ms, why);
    if (!err)
        err = check_server(conn, settings, why);
    if (err)
        return err;
    *out = take(&conn);
    return OK;
}

static bool my_healthy(struct sql_conn *conn)
{
    return !conn->dead && !conn->transaction && mysql_ping(conn->mysql) == 0;
}

/* ---- transactions ---- */

static enum err my_begin(struct sql_conn *conn, bool writes, struct fault *why)
{
    (void)writes;
    if (conn->dead || conn->transaction)
        return fault_set(why, ERR_IO, "MariaDB: the connection is not free");
    conn->transaction = conn->begin_due = true;
    return OK;
}

static void *my_native(struct sql_conn *conn)
{
    /* A handler that gets the connection before any statement of ours still is in a transaction
     * that can be told from another. */
    struct sql_call nothing = {.text = "DO 0"};
    size_t failed;
    if (conn->begin_due)
        (void)mariadb_run(conn, &nothing, 1, &failed, NULL);
    conn->handed_out = conn->transaction;
    return conn->mysql;
}

static void ended(struct sql_conn *conn)
{
    conn->transaction = conn->begin_due = conn->spoiled = conn->handed_out = false;
}

static void my_rollback(struct sql_conn *conn)
{
    bool nothing = conn->begin_due || !conn->transaction;
    ended(conn);
    if (nothing)
        return;
    conn->ready = false;
    if (!conn->dead && mariadb_tell(conn, "ROLLBACK", NULL) != OK)
        conn->dead = true;
}

/* A deadlock in a statement of the handler has rolled back all of the transaction, the mark too. A
 * handler that went on is in another one by now, and committing that would leave half an effect
 * without a mark. The savepoint with which it began tells: it is gone with its transaction, and
 * where it cannot be released nothing is committed. That of the next transaction is set in the same
 * trip. (If only that fails, we say that the commit has failed and it has not: the message comes
 * again and finds its mark.) */
static enum err commit_if_ours(struct sql_conn *conn, struct fault *why)
{
    static const char release[] = "RELEASE SAVEPOINT once";
    static const char all[] =
        "BEGIN NOT ATOMIC RELEASE SAVEPOINT once; COMMIT; SAVEPOINT once; END";
    enum err err =
        conn->blocks ? mariadb_tell_again(conn, all, why) : mariadb_tell(conn, release, why);
    if (err && conn->blocks && !conn->dead && mysql_errno(conn->mysql) == ER_PARSE_ERROR) {
        conn->blocks = false; /* some modes speak another dialect */
        err = mariadb_tell(conn, release, why);
    }
    if (!err && !conn->blocks)
        return mariadb_tell(conn, "COMMIT", why);
    conn->ready = !err;
    if (!err)
        return OK;
    if (!conn->dead && mysql_errno(conn->mysql) == ER_SP_DOES_NOT_EXIST)
        return fault_set(why, ERR_BUSY,
                         "MariaDB: the transaction was rolled back before its commit: a deadlock, "
                         "or its handler ended it");
    return err;
}

static enum err my_commit(struct sql_conn *conn, struct fault *why)
{
    if (conn->begin_due) { /* nothing was done in it */
        ended(conn);
        return OK;
    }
    if (conn->dead)
        return fault_set(why, ERR_IO, "MariaDB: the connection was lost before the commit");
    conn->ready = false;
    enum err err;
    if (conn->spoiled)
        err = fault_set(why, ERR_INVALID,
                        "the transaction was rolled back: a statement in it had failed");
    else if (conn->handed_out && conn->savepoints)
        err = commit_if_ours(conn, why);
    else
        err = mariadb_tell(conn, "COMMIT", why);
    if (err)
        my_rollback(conn);
    ended(conn);
    return err;
}

/* ---- who lives ---- */

static bool first_number(void *user, const struct sql_value *columns, size_t n)
{
    *(int64_t *)user = n == 1 && columns[0].type == SQL_INT ? columns[0].number : 0;
    return false;
}

static enum err ask_lock(struct sql_conn *conn, const char *text, uint32_t instance, int64_t *got,
                         struct fault *why)
{
    char name[32];
    snprintf(name, sizeof name, "once.live.%08x", instance);
    size_t failed;
    struct sql_call call = {
        .text = text,
        .n_params = 1,
        .params = {{.type = SQL_TEXT, .bytes = bytes_str(name)}},
        .row = first_number,
        .user = got,
    };
    *got = 0;
    return mariadb_run(conn, &call, 1, &failed, why);
}

/* Whoever has the lock can only be an earlier session of this instance, whose end the server has
 * not seen yet, because the network is silent: it is ended, or the lock would go with it some day.
 */
static enum err take_lock_over(struct sql_conn *conn, uint32_t instance, struct fault *why)
{
    int64_t session, got;
    enum err err = ask_lock(conn, "SELECT IS_USED_LOCK(?)", instance, &session, why);
    if (!err && session > 0) {
        char kill[48];
        snprintf(kill, sizeof kill, "KILL CONNECTION %" PRId64, session);
        (void)mariadb_tell(conn, kill, NULL); /* it may be gone by now */
    }
    if (!err)
        err = ask_lock(conn, "SELECT GET_LOCK(?, 2)", instance, &got, why);
    if (err || got == 1)
        return err;
    return fault_set(why, ERR_BUSY, "MariaDB: another session has the lock of this instance");
}

static enum err my_live(struct sql_conn *conn, uint32_t instance, struct fault *why)
{
    int64_t got = 0;
    /* Between two claims it is silent for as long as a handler takes, and must not be closed. */
    enum err err = mariadb_tell(conn, "SET SESSION wait_timeout = 31536000", why);
    if (!err)
        err = ask_lock(conn, "SELECT GET_LOCK(?, 0)", instance, &got, why);
    return err || got == 1 ? err : take_lock_over(conn, instance, why);
}

static bool my_gone(struct sql_conn *conn, uint32_t instance)
{
    int64_t is_free = 0;
    return ask_lock(conn, "SELECT IS_FREE_LOCK(?)", instance, &is_free, NULL) == OK && is_free == 1;
}

/* ---- dialect ---- */

#define TEXT_OF(number)    TEXT_OF_IT(number)
#define TEXT_OF_IT(number) #number

static const char *const create[] = {
    "CREATE TABLE IF NOT EXISTS {birth} (\n"
    "    one    BIGINT NOT NULL PRIMARY KEY,\n"
    "    number BIGINT NOT NULL UNIQUE\n"
    ") ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS {claims} (\n"
    "    id          BINARY(32) NOT NULL PRIMARY KEY,\n"
    "    name        VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n"
    "    state       BIGINT NOT NULL,\n"
    "    token       BIGINT NOT NULL,\n"
    "    fence       BIGINT NOT NULL,\n"
    "    until_ms    BIGINT NOT NULL,\n"
    "    keep_ms     BIGINT NOT NULL,\n"
    "    fingerprint BIGINT NOT NULL,\n"
    "    birth       BIGINT NOT NULL,\n"
    "    KEY {keep} (birth, keep_ms),\n"
    "    FOREIGN KEY (birth) REFERENCES {birth} (number)\n"
    ") ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS {steps} (\n"
    "    id     BINARY(32) NOT NULL,\n"
    "    step   VARBINARY(64) NOT NULL,\n"
    "    result MEDIUMBLOB NOT NULL,\n"
    "    PRIMARY KEY (id, step)\n"
    ") ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS {places} (\n"
    "    id    BINARY(32) NOT NULL PRIMARY KEY,\n"
    "    name  VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,\n"
    "    epoch BIGINT NOT NULL,\n"
    "    next  BIGINT NOT NULL,\n"
    "    done  MEDIUMBLOB NOT NULL\n"
    ") ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS {outbox} (\n"
    "    number  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,\n"
    "    id      BINARY(32) NOT NULL,\n"
    "    message LONGBLOB NOT NULL\n"
    ") ENGINE = InnoDB",
    NULL,
};

#define STRAIGHT_FINISH                                                                            \
    "UPDATE {claims} FORCE INDEX (PRIMARY) SET keep_ms = IF(keep_ms BETWEEN {now} + ? AND"         \
    " {now} + ?, keep_ms, {now} + ?), until_ms = {now} + ?, state = ? WHERE state IN"              \
    " (?, ?) AND "
#define BORN "(SELECT number FROM {birth} WHERE one = 1) = ?"

const struct sql_engine sql_engine_mariadb = {
    .name = "mariadb",
    .connect = my_connect,
    .disconnect = my_disconnect,
    .healthy = my_healthy,
    .native = my_native,
    .run = mariadb_run,
    .begin = my_begin,
    .commit = my_commit,
    .rollback = my_rollback,
    .live = my_live,
    .gone = my_gone,
    .quote = '`',
    /* From UTC, because local time has an hour twice a year that comes twice or not at all. */
    .now_ms = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)",
    .for_update = " FOR UPDATE",
    .create = create,
    .births = true,
    .check_claims = "SELECT name, id, state, token, fence, until_ms, keep_ms, fingerprint, birth"
                    " FROM {claims} WHERE id = ?",
    .sweep_find = "SELECT id FROM {claims} WHERE birth = (SELECT number FROM {birth} WHERE one = 1)"
                  " AND keep_ms <= ? ORDER BY keep_ms LIMIT ?",
    /* The table has one unique key only, so no other conflict can be taken for this one. */
    .insert_claim = "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms,"
                    " fingerprint, birth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                    " ON DUPLICATE KEY UPDATE id = {claims}.id",
    .insert_mark =
        "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms,"
        " fingerprint, birth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ? * IF(ABS({now} - ?) < " TEXT_OF(
            SQL_GUESS_MS) ", 1, NULL)) ON DUPLICATE KEY UPDATE id = {claims}.id",
    /* LAST_INSERT_ID(n) puts n into the answer. */
    .straight_claim = "INSERT INTO {claims} (id, name, state, token, fence, until_ms, keep_ms,"
                      " fingerprint, birth) VALUES (?, ?, ?, ?, LAST_INSERT_ID({now}) * 1000,"
                      " {now} + ?, {now} + ?, ?, ?) ON DUPLICATE KEY UPDATE id = {claims}.id",
    .straight_finish = STRAIGHT_FINISH "id = ? AND token = ? AND " BORN,
    /* By the primary key, so in the order of the ids. A token is in no two claims. */
    .straight_finish_many = STRAIGHT_FINISH "id IN (?*) AND token IN (?*) AND " BORN,
    .straight_commit = "COMMIT",
};

static enum err open_store(const struct store_settings *settings, struct store **out,
                           struct fault *why)
{
    return sql_open(&sql_engine_mariadb, settings, out, why);
}

static enum err ask(const struct store_settings *settings, struct sql_call *call, struct fault *why)
{
    return sql_ask(&sql_engine_mariadb, settings, call, why);
}

static enum err quote(const char *name, char *out, size_t size)
{
    return sql_quote('`', name, out, size);
}

/* What commits before it does anything. */
static const char *const ends[] = {
    "ALTER",
    "ANALYZE",
    "CREATE",
    "DROP",
    "FLUSH",
    "GRANT",
    "LOCK",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "REVOKE",
    "SET AUTOCOMMIT",
    "SET PASSWORD",
    "STOP",
    "TRUNCATE",
    "UNLOCK",
    "SET SESSION AUTOCOMMIT",
    "SET @@AUTOCOMMIT",
    NULL,
};

ONCE_DRIVER_EXPORT(mariadb);
const struct once_driver once_driver_mariadb = {
    SQL_DRIVER("mariadb", open_store, quote, " FOR UPDATE"), .ask = ask, .ends = ends};
