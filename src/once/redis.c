/* redis.c - the store as a whole: what is asked of a server before it is relied upon. */
#include "once/redis_int.h"

#include "base/dice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_WAIT_MS 3000
#define WAIT_MS_MAX     3600000

static void say(const struct store *store, int level, const char *format, ...) printf_like(3, 4);

static void say(const struct store *store, int level, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    store->log(store->log_user, level, line);
}

/* ---- birth ---- */

static void ask_birth(struct conn *conn, const char *command, const uint64_t *born)
{
    wire_command(conn, born ? 3 : 1, command);
    char key[sizeof conn->store->table + 8];
    (void)snprintf(key, sizeof key, "%s:birth", conn->store->table);
    wire_arg_str(conn, key);
    if (born) {
        wire_arg_u64(conn, *born);
        wire_arg_str(conn, "NX");
    }
}

/* The store's number; the first who comes sets it. */
static enum err learn_birth(struct conn *conn, struct fault *why)
{
    struct dice dice = dice_seeded(dice_seed_from_os());
    uint64_t born = dice_next(&dice);
    ask_birth(conn, "SET", &born);
    ask_birth(conn, "GET", NULL);
    cleanup(reply_free) redisReply *set = NULL;
    cleanup(reply_free) redisReply *got = NULL;
    enum err err = wire_ask(conn, &set, why);
    if (err == OK)
        err = wire_answer(conn, &got, why);
    if (err)
        return err;
    if (set->type == REDIS_REPLY_ERROR)
        return wire_refused(conn, set, why);
    if (got->type != REDIS_REPLY_STRING)
        return wire_refused(conn, got, why);
    char *end;
    born = strtoull(got->str, &end, 10);
    if (got->len == 0 || *end)
        return fault_set(why, ERR_DAMAGED,
                         "Redis at %s has something under %s:birth that is not ours: remove it, or "
                         "choose another `table`",
                         conn->store->url.where, conn->store->table);
    atomic_store(&conn->store->birth, born);
    return OK;
}

/* ---- probe ---- */

/* A claim under an id that nobody has, and its end: what does not work shows now (H-4). */
static enum err probe(struct conn *conn, struct fault *why)
{
    struct dice dice = dice_seeded(dice_seed_from_os());
    char plain[sizeof conn->store->table + 32];
    (void)snprintf(plain, sizeof plain, "%s:probe:%016" PRIx64, conn->store->table,
                   dice_next(&dice));
    struct op op = {.name = "probe", .plain = bytes_str(plain), .expiry_ms = 10000, .rows = 1};
    for (size_t i = 0; i < sizeof op.id; i++)
        op.id[i] = (uint8_t)dice_below(&dice, 256);
    op.token = dice_next(&dice) & UINT32_MAX; /* of no instance */
    struct op *ops[] = {&op};
    static const enum op_kind kinds[] = {OP_CLAIM, OP_LOOK, OP_FORGET};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        op.kind = kinds[i];
        enum err err = redis_run(conn, ops, 1, why);
        if (err)
            return err;
        if (op.outcome == OUT_FAILED) {
            if (why)
                *why = op.why;
            return ERR_IO;
        }
        if (op.outcome != OUT_OK)
            return fault_set(why, ERR_UNSUPPORTED,
                             "Redis at %s does not keep what a script writes: it must be a Redis "
                             "5 or later, and take writes",
                             conn->store->url.where);
    }
    return OK;
}

/* ---- warnings ---- */

/* H-13: what makes marks disappear before their time. */
static enum err warn(struct conn *conn, struct fault *why)
{
    const struct store *store = conn->store;
    cleanup(reply_free) redisReply *eviction = NULL;
    cleanup(reply_free) redisReply *log = NULL;
    cleanup(reply_free) redisReply *dumps = NULL;
    const char *policy, *aof, *save;
    enum err err = wire_setting(conn, "maxmemory-policy", &eviction, &policy, why);
    if (err == OK)
        err = wire_setting(conn, "appendonly", &log, &aof, why);
    if (err == OK)
        err = wire_setting(conn, "save", &dumps, &save, why);
    if (err)
        return err;
    if (!policy || !aof || !save) {
        say(store, ONCE_INFO,
            "Redis at %s does not show its settings (CONFIG GET): whether it evicts keys, or loses "
            "them when it restarts, is not known",
            store->url.where);
        return OK;
    }
    if (strcmp(policy, "noeviction") != 0)
        say(store, ONCE_WARN,
            "Redis at %s has maxmemory-policy %s: when its memory is full it forgets what was "
            "done, "
            "and that is done again; set it to noeviction",
            store->url.where, policy);
    if (strcmp(aof, "yes") != 0 && save[0] == 0)
        say(store, ONCE_WARN,
            "Redis at %s writes nothing to its disk: when it restarts it has forgotten what was "
            "done; set appendonly to yes",
            store->url.where);
    return OK;
}

/* ---- the driver ---- */

static enum err check(const struct store_settings *settings, struct fault *why)
{
    if (settings->transactions)
        return fault_set(why, ERR_UNSUPPORTED,
                         "Redis cannot take part in transactions: use the mode lease");
    size_t len = strnlen(settings->table, sizeof((struct store *)NULL)->table);
    if (len == 0 || len >= sizeof((struct store *)NULL)->table)
        return fault_set(why, ERR_INVALID, "`table` has 1 to 48 characters");
    return OK;
}

static enum err get_ready(struct store *store, struct fault *why)
{
    struct conn *conn;
    enum err err = wire_open(store, &conn, why);
    if (err)
        return err;
    err = learn_birth(conn, why);
    if (err == OK)
        err = probe(conn, why);
    if (err == OK)
        err = warn(conn, why);
    if (err == OK && store->takeover && !conn->home)
        say(store, ONCE_INFO,
            "Redis at %s closes connections that are silent (timeout), or does not tell that "
            "(CONFIG GET) or its run id (INFO server): a claim whose process is gone is left to "
            "its expiry",
            store->url.where);
    wire_close(conn);
    return err;
}

static void redis_close(struct store *store)
{
    redis_tls_close(store);
    free(store);
}

static void close_at_end(struct store **store)
{
    if (*store)
        redis_close(*store);
}

static enum err redis_open(const struct store_settings *settings, struct store **out,
                           struct fault *why)
{
    enum err err = check(settings, why);
    if (err)
        return err;
    cleanup(close_at_end) struct store *store = calloc(1, sizeof *store);
    if (!store)
        return ERR_NO_MEMORY;
    err = redis_url_parse(settings->url, &store->url, why);
    if (err)
        return err;
    (void)snprintf(store->table, sizeof store->table, "%s", settings->table);
    store->plain = settings->plain;
    store->takeover = settings->takeover && !settings->plain;
    store->replicas = settings->redis_replicas > 0 ? settings->redis_replicas : 0;
    store->wait_ms = settings->wait_ms > 0 ? settings->wait_ms : DEFAULT_WAIT_MS;
    if (store->wait_ms > WAIT_MS_MAX)
        store->wait_ms = WAIT_MS_MAX;
    store->log = settings->log;
    store->log_user = settings->log_user;
    err = store->url.tls ? redis_tls_open(store, why) : OK;
    if (err == OK)
        err = get_ready(store, why);
    if (err)
        return err;
    *out = take(&store);
    return OK;
}

static bool redis_healthy(struct conn *conn)
{
    wire_command(conn, 0, "PING");
    cleanup(reply_free) redisReply *reply = NULL;
    return wire_ask(conn, &reply, NULL) == OK && reply->type == REDIS_REPLY_STATUS;
}

static enum err redis_accept(struct store *store, struct conn *conn, struct fault *why)
{
    (void)store;
    return learn_birth(conn, why);
}

ONCE_DRIVER_EXPORT(redis);
const struct once_driver once_driver_redis = {
    .name = "redis",
    .lanes = 2, /* the server works while callers are woken and ask again */
    .open = redis_open,
    .close = redis_close,
    .connect = wire_open,
    .disconnect = wire_close,
    .healthy = redis_healthy,
    .run = redis_run,
    .accept = redis_accept,
    .for_update = "",
};
