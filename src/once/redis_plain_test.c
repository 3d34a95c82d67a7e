#include "once/redis_test.h"

#include <pthread.h>

/* The well-known state lock: what Java programs of this recipe find under their own keys. */

struct scene {
    struct test_log log;
    struct store *store;
    struct conn *conn;
    redisContext *link;
};

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    struct store_settings settings = test_settings(&s->log);
    settings.plain = true;
    s->store = test_open(&settings);
    s->conn = test_connect(s->store);
    s->link = test_link();
    (void)test_do(s->link, "DEL coupon_task_execute:idempotent:task12345");
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    DRIVER->disconnect(s->conn);
    DRIVER->close(s->store);
    redisFree(s->link);
    free(s);
    return 0;
}

static struct op plain_op(uint64_t token)
{
    return (struct op){.kind = OP_CLAIM,
                       .name = "task12345",
                       .plain = BYTES("coupon_task_execute:idempotent:task12345"),
                       .token = token,
                       .fingerprint = 77,
                       .expiry_ms = 3600000,
                       .retention_ms = 3600000};
}

static void assert_value(struct scene *s, const char *value)
{
    redisReply *reply = test_ask(s->link, "GET coupon_task_execute:idempotent:task12345");
    if (value) {
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        assert_string_equal(reply->str, value);
    } else
        assert_int_equal(reply->type, REDIS_REPLY_NIL);
    freeReplyObject(reply);
}

static void assert_left(long long left, long long whole)
{
    assert_true(left > whole - 60000 && left <= whole);
}

static void key_and_states_are_those_of_the_recipe(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1), copy = plain_op(2);
    assert_int_equal(test_run(s->conn, &op), OUT_OK);
    assert_int_equal(op.fence, 0);
    assert_value(s, "0");
    assert_left(test_do(s->link, "PTTL coupon_task_execute:idempotent:task12345"), 3600000);
    assert_int_equal(test_run(s->conn, &copy), OUT_BUSY);
    assert_left(copy.left_ms, 3600000);
    assert_int_equal(test_as(s->conn, &op, OP_LOOK), OUT_OK);
    assert_int_equal(op.state, ONCE_CONSUMING);

    op.retention_ms = 7200000; /* a fresh time-out, not the rest of the old one */
    assert_int_equal(test_as(s->conn, &op, OP_FINISH), OUT_OK);
    assert_value(s, "1");
    assert_left(test_do(s->link, "PTTL coupon_task_execute:idempotent:task12345"), 7200000);
    assert_int_equal(test_run(s->conn, &copy), OUT_DONE);
    assert_int_equal(copy.fingerprint, 77); /* none is known, so none differs */
    assert_int_equal(test_as(s->conn, &op, OP_LOOK), OUT_OK);
    assert_int_equal(op.state, ONCE_CONSUMED);
    assert_left(op.left_ms, 7200000);
    assert_int_equal(test_as(s->conn, &op, OP_FORGET), OUT_OK);
    assert_int_equal(test_as(s->conn, &op, OP_LOOK), OUT_ABSENT);
}

static void failure_deletes_the_key_and_the_retry_runs(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1);
    assert_int_equal(test_run(s->conn, &op), OUT_OK);
    assert_int_equal(test_as(s->conn, &op, OP_RELEASE), OUT_OK);
    assert_value(s, NULL);
    assert_int_equal(test_as(s->conn, &op, OP_CLAIM), OUT_OK);
}

/* Crash: nobody says anything more, and the key's own end lets the next one in. */
static void time_out_of_the_key_lets_the_next_one_in(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1), next = plain_op(2);
    op.expiry_ms = 120000;
    assert_int_equal(test_run(s->conn, &op), OUT_OK);
    assert_left(test_do(s->link, "PTTL coupon_task_execute:idempotent:task12345"), 120000);
    assert_int_equal(test_run(s->conn, &next), OUT_BUSY);
    assert_int_equal(test_as(s->conn, &op, OP_RENEW), OUT_OK); /* changes nothing */
    assert_left(test_do(s->link, "PTTL coupon_task_execute:idempotent:task12345"), 120000);
    (void)test_do(s->link, "PEXPIRE coupon_task_execute:idempotent:task12345 1");
    enum op_outcome outcome = OUT_BUSY;
    while (outcome == OUT_BUSY)
        outcome = test_run(s->conn, &next);
    assert_int_equal(outcome, OUT_OK);
}

static void keys_of_java_programs_are_understood(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1);
    (void)test_do(s->link, "SET coupon_task_execute:idempotent:task12345 0 PX 600000");
    assert_int_equal(test_run(s->conn, &op), OUT_BUSY);
    assert_left(op.left_ms, 600000);
    (void)test_do(s->link, "SET coupon_task_execute:idempotent:task12345 1 EX 3600");
    assert_int_equal(test_run(s->conn, &op), OUT_DONE);
    /* One without an end, which only a hand can have made: as if it had been set just now. */
    (void)test_do(s->link, "SET coupon_task_execute:idempotent:task12345 0");
    assert_int_equal(test_run(s->conn, &op), OUT_BUSY);
    assert_int_equal(op.left_ms, op.expiry_ms);
}

static void other_values_are_neither_run_nor_done(void **state)
{
    struct scene *s = *state;
    static const char *const commands[] = {
        "SET coupon_task_execute:idempotent:task12345 2",
        "SET coupon_task_execute:idempotent:task12345 00",
        "LPUSH coupon_task_execute:idempotent:task12345 0",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct op op = plain_op(1);
        (void)test_do(s->link, "DEL coupon_task_execute:idempotent:task12345");
        (void)test_do(s->link, commands[i]);
        assert_int_equal(test_run(s->conn, &op), OUT_FAILED);
        assert_true(op.why.text[0] != 0);
        assert_int_equal(test_as(s->conn, &op, OP_LOOK), OUT_FAILED);
    }
}

/* Blanks, zeros, line ends, 64 KiB: a key is bytes. */
static void keys_are_bytes(void **state)
{
    struct scene *s = *state;
    cleanup(free_at) uint8_t *big = malloc(64 << 10);
    assert_non_null(big);
    memset(big, 'k', 64 << 10);
    const struct bytes keys[] = {BYTES("odd \r\n*1\r\n\0key"), BYTES("odd \r\n*1\r\n\0kez"),
                                 bytes_of(big, 64 << 10), bytes_of(big, (64 << 10) - 1)};
    for (size_t i = 0; i < 4; i++) {
        struct op op = plain_op(1);
        op.plain = keys[i];
        assert_int_equal(test_run(s->conn, &op), OUT_OK);
        assert_int_equal(test_do(s->link, "EXISTS %b", keys[i].at, keys[i].len), 1);
        assert_int_equal(test_as(s->conn, &op, OP_CLAIM), OUT_BUSY);
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(test_do(s->link, "DEL %b", keys[i].at, keys[i].len), 1);
}

static void has_no_steps_and_says_so(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1);
    op.step = BYTES("s");
    assert_int_equal(test_as(s->conn, &op, OP_STEP_PUT), OUT_FAILED);
    assert_int_equal(test_as(s->conn, &op, OP_STEP_GET), OUT_FAILED);
    assert_non_null(strstr(op.why.text, "no steps"));
    assert_int_equal(test_as(s->conn, &op, OP_SWEEP), OUT_OK);
}

struct contender {
    struct conn *conn;
    struct op op;
    pthread_barrier_t *start;
};

static void *contend(void *user)
{
    struct contender *c = user;
    struct op *ops[] = {&c->op};
    pthread_barrier_wait(c->start);
    if (DRIVER->run(c->conn, ops, 1, NULL))
        c->op.outcome = OUT_NONE;
    return NULL;
}

static void of_64_who_ask_at_once_one_may_run(void **state)
{
    enum { N = 64 };
    struct scene *s = *state;
    struct contender who[N];
    pthread_barrier_t start;
    pthread_t threads[N];
    assert_int_equal(pthread_barrier_init(&start, NULL, N), 0);
    for (int i = 0; i < N; i++) {
        who[i] = (struct contender){test_connect(s->store), plain_op((uint64_t)i + 1), &start};
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &who[i]), 0);
    }
    int ran = 0, busy = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        ran += who[i].op.outcome == OUT_OK;
        busy += who[i].op.outcome == OUT_BUSY;
        DRIVER->disconnect(who[i].conn);
    }
    assert_int_equal(ran, 1);
    assert_int_equal(busy, N - 1);
    pthread_barrier_destroy(&start);
}

/* The recipe itself has holes; one that is closed is that an emptied store is noticed. */
static void an_emptied_store_is_noticed(void **state)
{
    struct scene *s = *state;
    struct op op = plain_op(1);
    struct op *ops[] = {&op};
    (void)test_do(s->link, "DEL once:birth");
    assert_int_equal(DRIVER->run(s->conn, ops, 1, NULL), ERR_STALE);
    assert_value(s, NULL); /* taken back */
    assert_int_equal(DRIVER->accept(s->store, s->conn, NULL), OK);
    assert_int_equal(test_run(s->conn, &op), OUT_OK);
}

#define CASE(row, f) ((struct CMUnitTest){row #f, f, set_up, tear_down, NULL})

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE("ID-17 ID-18 ID-21 ID-22 ", key_and_states_are_those_of_the_recipe),
        CASE("ID-23 ", failure_deletes_the_key_and_the_retry_runs),
        CASE("ID-24 ", time_out_of_the_key_lets_the_next_one_in),
        CASE("", keys_of_java_programs_are_understood),
        CASE("", other_values_are_neither_run_nor_done),
        CASE("", keys_are_bytes),
        CASE("", has_no_steps_and_says_so),
        CASE("ID-20 ", of_64_who_ask_at_once_one_may_run),
        CASE("H-13 ", an_emptied_store_is_noticed),
    };
    return cmocka_run_group_tests_name("once/redis_plain", tests, NULL, NULL);
}
