/* bench_once_bare.c - the loops that one would write by hand. */
#include "bench_once.h"
#include "once/redis_int.h"

#include <err.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PASTE_MAX 400

static void key_of(uint64_t number, char out[65])
{
    (void)snprintf(out, 65, "%064" PRIx64, number);
}

static bool starts(const char *url, const char *scheme)
{
    return strncmp(url, scheme, strlen(scheme)) == 0;
}

/* ---- Redis: 32 messages in a pipeline, the same scripts ---- */

struct bare_redis {
    redisContext *conn;
    char claim[41], finish[41];
};

static void script_load(redisContext *conn, const char *text, char sha[41])
{
    redisReply *reply = redisCommand(conn, "SCRIPT LOAD %s", text);
    if (!reply || reply->type != REDIS_REPLY_STRING)
        errx(1, "SCRIPT LOAD");
    (void)snprintf(sha, 41, "%s", reply->str);
    freeReplyObject(reply);
}

static bool redis_mine(const char *url)
{
    return starts(url, "redis:");
}

static void *redis_dial(const char *url)
{
    struct bare_redis *r = calloc(1, sizeof *r);
    char host[64];
    int port;
    if (!r || sscanf(url, "redis://%63[^:]:%d", host, &port) != 2)
        errx(1, "%s: not understood", url);
    r->conn = redisConnect(host, port);
    if (!r->conn || r->conn->err)
        errx(1, "%s: no connection", url);
    script_load(r->conn, redis_scripts[SCRIPT_CLAIM], r->claim);
    script_load(r->conn, redis_scripts[SCRIPT_FINISH], r->finish);
    return r;
}

static void redis_hang_up(void *conn)
{
    struct bare_redis *r = conn;
    redisFree(r->conn);
    free(r);
}

static void replies_read(redisContext *conn)
{
    for (int i = 0; i < PIPELINE; i++) {
        redisReply *reply;
        if (redisGetReply(conn, (void **)&reply) || reply->type == REDIS_REPLY_ERROR)
            errx(1, "Redis refuses");
        freeReplyObject(reply);
    }
}

static size_t redis_claims(void *conn, uint64_t number)
{
    struct bare_redis *r = conn;
    char id[65];
    for (uint64_t i = 0; i < PIPELINE; i++) {
        key_of(number + i, id);
        (void)redisAppendCommand(
            r->conn, "EVALSHA %s 1 bare:{%s} %" PRIu64 " %" PRIu64 " 30000 259200000 %s %s %s",
            r->claim, id, number + i + 1, number, "coupon:task", "", "");
    }
    replies_read(r->conn);
    for (uint64_t i = 0; i < PIPELINE; i++) {
        key_of(number + i, id);
        (void)redisAppendCommand(r->conn, "EVALSHA %s 1 bare:{%s} %" PRIu64 " 259200000", r->finish,
                                 id, number + i + 1);
    }
    replies_read(r->conn);
    return PIPELINE;
}

/* ---- statements, as text: what differs between the databases is how one runs them ---- */

#define MAKE_CLAIMS                                                                                \
    "CREATE TABLE IF NOT EXISTS bare_claims (id CHAR(64) PRIMARY KEY, name VARCHAR(200), state "   \
    "INT, token BIGINT, fence BIGINT, until_ms BIGINT)"
#define MAKE_EFFECTS "CREATE TABLE IF NOT EXISTS bare_effects (n BIGINT)"

static void claim_text(uint64_t number, int state, char out[PASTE_MAX])
{
    char id[65];
    key_of(number, id);
    (void)snprintf(out, PASTE_MAX,
                   "INSERT INTO bare_claims VALUES ('%s', 'coupon:task', %d, %" PRIu64
                   ", 1, 1763280000000)",
                   id, state, number);
}

static void finish_text(uint64_t number, char out[PASTE_MAX])
{
    char id[65];
    key_of(number, id);
    (void)snprintf(out, PASTE_MAX,
                   "UPDATE bare_claims SET state = 2, until_ms = 1763280000000 WHERE id = '%s' AND "
                   "token = %" PRIu64,
                   id, number);
}

static void effect_text(uint64_t number, char out[PASTE_MAX])
{
    (void)snprintf(out, PASTE_MAX, "INSERT INTO bare_effects VALUES (%" PRIu64 ")", number);
}

static bool run(const char *url, void *conn, const char *sql)
{
    if (starts(url, "sqlite:"))
        return sqlite3_exec(conn, sql, NULL, NULL, NULL) == SQLITE_OK;
    if (starts(url, "mysql:"))
        return mysql_query(conn, sql) == 0;
    PGresult *result = PQexec(conn, sql);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    return good;
}

bool bare_effect(const char *url, void *native, uint64_t number)
{
    char sql[PASTE_MAX];
    effect_text(number, sql);
    return run(url, native, sql);
}

static void must(const char *url, void *conn, const char *sql)
{
    if (!run(url, conn, sql))
        errx(1, "%s: refused", sql);
}

static size_t claims(const char *url, void *conn, uint64_t number)
{
    char sql[PASTE_MAX];
    claim_text(number, 1, sql);
    must(url, conn, sql);
    finish_text(number, sql);
    must(url, conn, sql);
    return 1;
}

static void transaction(const char *url, void *conn, uint64_t number)
{
    char sql[PASTE_MAX];
    must(url, conn, "BEGIN");
    claim_text(number, 2, sql);
    must(url, conn, sql);
    effect_text(number, sql);
    must(url, conn, sql);
    must(url, conn, "COMMIT");
}

/* ---- SQLite ---- */

static bool sqlite_mine(const char *url)
{
    return starts(url, "sqlite:");
}

/* In a file of its own: in a common one, whose WAL is copied back by whoever finds it long, each
 * would do a part of the other's work. */
static void *sqlite_dial(const char *url)
{
    sqlite3 *db;
    char path[PASTE_MAX];
    (void)snprintf(path, sizeof path, "%s.bare", url + strlen("sqlite:"));
    if (sqlite3_open(path, &db))
        errx(1, "%s: no connection", path);
    must(url, db, "PRAGMA journal_mode = WAL");
    must(url, db, "PRAGMA synchronous = FULL");
    must(url, db, MAKE_CLAIMS);
    return db;
}

static void sqlite_hang_up(void *conn)
{
    (void)sqlite3_close(conn);
}

static size_t sqlite_claims(void *conn, uint64_t number)
{
    return claims("sqlite:", conn, number);
}

/* ---- PostgreSQL ---- */

static bool pg_mine(const char *url)
{
    return starts(url, "postgres");
}

static void *pg_dial(const char *url)
{
    PGconn *db = PQconnectdb(url);
    if (PQstatus(db) != CONNECTION_OK)
        errx(1, "%s", PQerrorMessage(db));
    must(url, db, "SET client_min_messages = warning");
    must(url, db, MAKE_CLAIMS);
    must(url, db, MAKE_EFFECTS);
    return db;
}

static void pg_hang_up(void *conn)
{
    PQfinish(conn);
}

static size_t pg_claims(void *conn, uint64_t number)
{
    return claims("postgresql:", conn, number);
}

static void pg_transaction(void *conn, uint64_t number)
{
    transaction("postgresql:", conn, number);
}

/* ---- MariaDB: BENCH_MYSQL_USER, _PASSWORD, _PORT, _DATABASE, from bench/once.py ---- */

static bool mysql_mine(const char *url)
{
    return starts(url, "mysql:");
}

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        errx(1, "%s is not set; bench/once.py does that", name);
    return value;
}

static void *mysql_dial(const char *url)
{
    MYSQL *db = mysql_init(NULL);
    if (!mysql_real_connect(db, "127.0.0.1", setting("BENCH_MYSQL_USER"),
                            setting("BENCH_MYSQL_PASSWORD"), setting("BENCH_MYSQL_DATABASE"),
                            (unsigned)strtoul(setting("BENCH_MYSQL_PORT"), NULL, 10), NULL, 0))
        errx(1, "%s", mysql_error(db));
    must(url, db, MAKE_CLAIMS);
    must(url, db, MAKE_EFFECTS);
    return db;
}

static void mysql_hang_up(void *conn)
{
    mysql_close(conn);
}

static size_t mysql_claims(void *conn, uint64_t number)
{
    return claims("mysql:", conn, number);
}

static void mysql_transaction(void *conn, uint64_t number)
{
    transaction("mysql:", conn, number);
}

const struct bare bare_stores[] = {
    {.name = "redis",
     .mine = redis_mine,
     .open = redis_dial,
     .close = redis_hang_up,
     .claims = redis_claims,
     .one = true,
     .claim_target = 0.85,
     .claim_text = "a bare pipeline of 32"},
    {.name = "sqlite",
     .mine = sqlite_mine,
     .open = sqlite_dial,
     .close = sqlite_hang_up,
     .claims = sqlite_claims,
     .one = true,
     .claim_target = 8,
     .claim_text = "one statement a commit"},
    {.name = "postgresql",
     .mine = pg_mine,
     .open = pg_dial,
     .close = pg_hang_up,
     .claims = pg_claims,
     .transaction = pg_transaction,
     .claim_target = 2,
     .txn_target = 0.85,
     .claim_text = "one statement a commit, on as many connections"},
    {.name = "mariadb",
     .mine = mysql_mine,
     .open = mysql_dial,
     .close = mysql_hang_up,
     .claims = mysql_claims,
     .transaction = mysql_transaction,
     .claim_target = 2,
     .txn_target = 0.85,
     .claim_text = "one statement a commit, on as many connections"},
    {0},
};
