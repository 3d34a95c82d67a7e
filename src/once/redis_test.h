/* redis_test.h - what the tests of the Redis store share. They ask a real server, whose URL is in
 * the environment (ONCE_REDIS; tests/once/with_redis.py starts one), through struct once_driver as
 * the core does, and beside it through a connection of their own.
 *
 * Only for redis*_test.c.
 */
#ifndef ONCE_REDIS_TEST_H
#define ONCE_REDIS_TEST_H

#include "base/test.h"
#include "once/redis_int.h"

#include <stdio.h>

#define DRIVER (&once_driver_redis)
#define HOUR   3600000

/* The last line of each level that the driver has logged. */
struct test_log {
    char last[ONCE_ERROR + 1][512];
};

static inline void test_log_line(void *user, int level, const char *line)
{
    struct test_log *log = user;
    (void)snprintf(log->last[level], sizeof log->last[level], "%s", line);
}

static inline struct store_settings test_settings(struct test_log *log)
{
    const char *url = getenv("ONCE_REDIS");
    assert_non_null(url);
    return (struct store_settings){
        .url = url, .table = "once", .wait_ms = 5000, .log = test_log_line, .log_user = log};
}

static inline struct store *test_open(const struct store_settings *settings)
{
    struct store *store = NULL;
    struct fault why = {0};
    if (DRIVER->open(settings, &store, &why))
        fail_msg("%s", why.text);
    return store;
}

static inline struct conn *test_connect(struct store *store)
{
    struct conn *conn = NULL;
    struct fault why = {0};
    if (DRIVER->connect(store, &conn, &why))
        fail_msg("%s", why.text);
    return conn;
}

/* A connection of the test's own, to put things into the server and look at them. */
static inline redisContext *test_link(void)
{
    struct redis_url url;
    assert_int_equal(redis_url_parse(getenv("ONCE_REDIS"), &url, NULL), OK);
    redisContext *link = redisConnect(url.host, url.port);
    assert_non_null(link);
    assert_int_equal(link->err, 0);
    return link;
}

static inline redisReply *test_ask(redisContext *link, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(link, format, args);
    va_end(args);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    return reply;
}

/* An answer that is of no interest, or a number. */
#define test_do(link, ...)                                                                         \
    __extension__({                                                                                \
        redisReply *reply_ = test_ask(link, __VA_ARGS__);                                          \
        long long number_ = reply_->integer;                                                       \
        freeReplyObject(reply_);                                                                   \
        number_;                                                                                   \
    })

static inline struct dice test_chance(void)
{
    return dice_seeded(dice_seed_from_os());
}

/* An operation on a new id. */
static inline struct op test_op(struct dice *dice, enum op_kind kind)
{
    struct op op = {.kind = kind,
                    .name = "order:12",
                    .fingerprint = dice_next(dice),
                    .token = dice_next(dice) | UINT64_C(0x8000000000000000),
                    .expiry_ms = HOUR,
                    .retention_ms = 2 * HOUR};
    for (size_t i = 0; i < sizeof op.id; i++)
        op.id[i] = (uint8_t)dice_next(dice);
    return op;
}

static inline enum op_outcome test_run(struct conn *conn, struct op *op)
{
    struct op *ops[] = {op};
    struct fault why = {0};
    enum err err = DRIVER->run(conn, ops, 1, &why);
    if (err)
        fail_msg("%s: %s", err_text(err), why.text);
    return op->outcome;
}

/* The same operation again as another kind. */
static inline enum op_outcome test_as(struct conn *conn, struct op *op, enum op_kind kind)
{
    op->kind = kind;
    return test_run(conn, op);
}

/* The whole name of an operation's key. */
static inline const char *test_key(const struct op *op, char key[128])
{
    int len = snprintf(key, 128, "once:{");
    for (size_t i = 0; i < sizeof op->id; i++)
        len += snprintf(key + len, 128 - (size_t)len, "%02x", op->id[i]);
    (void)snprintf(key + len, 128 - (size_t)len, "}");
    return key;
}

/* Moves the end of a claim or mark into the past, as if its time had gone by. */
static inline void test_expire(redisContext *link, const struct op *op)
{
    char key[128];
    assert_int_equal(test_do(link, "HSET %s u 1", test_key(op, key)), 0);
}

#endif
