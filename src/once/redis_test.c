#include "once/redis_test.h"

#include <inttypes.h>
#include <pthread.h>

/* One store, two connections and the test's own. */
struct scene {
    struct test_log log;
    struct store_settings settings;
    struct store *store;
    struct conn *a, *b;
    redisContext *link;
    struct dice dice;
};

static int set_up_with(void **state, bool takeover)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->settings = test_settings(&s->log);
    s->settings.takeover = takeover;
    s->store = test_open(&s->settings);
    s->a = test_connect(s->store);
    s->b = test_connect(s->store);
    s->link = test_link();
    s->dice = test_chance();
    *state = s;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, false);
}

static int set_up_takeover(void **state)
{
    return set_up_with(state, true);
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    DRIVER->disconnect(s->a);
    DRIVER->disconnect(s->b);
    DRIVER->close(s->store);
    redisFree(s->link);
    free(s);
    return 0;
}

/* The same id, claimed by somebody else. */
static struct op rival_of(struct scene *s, const struct op *op)
{
    struct op rival = *op;
    rival.kind = OP_CLAIM;
    rival.token = dice_next(&s->dice) | UINT64_C(0x8000000000000000);
    return rival;
}

static void claims_renews_finishes_and_then_it_is_done(void **state)
{
    struct scene *s = *state;
    struct op op = test_op(&s->dice, OP_LOOK);
    assert_int_equal(test_run(s->a, &op), OUT_ABSENT);
    assert_int_equal(op.state, ONCE_ABSENT);
    assert_int_equal(test_as(s->a, &op, OP_CLAIM), OUT_OK);
    assert_true(op.fence > INT64_C(1600000000000000)); /* by the clock, in microseconds */
    int64_t fence = op.fence;
    assert_int_equal(test_as(s->b, &op, OP_LOOK), OUT_OK);
    assert_int_equal(op.state, ONCE_CONSUMING);
    assert_true(op.fence == fence);
    assert_true(op.left_ms > HOUR - 60000 && op.left_ms <= HOUR);
    assert_int_equal(test_as(s->b, &op, OP_RENEW), OUT_OK);
    assert_int_equal(test_as(s->a, &op, OP_FINISH), OUT_OK);
    assert_int_equal(test_as(s->b, &op, OP_FINISH), OUT_OK); /* the answer had been lost */
    assert_int_equal(test_as(s->a, &op, OP_RENEW), OUT_LOST);
    assert_int_equal(test_as(s->a, &op, OP_RELEASE), OUT_LOST);

    uint64_t fingerprint = op.fingerprint;
    struct op again = rival_of(s, &op);
    again.fingerprint = 1;
    assert_int_equal(test_run(s->b, &again), OUT_DONE);
    assert_true(again.fingerprint == fingerprint);
    assert_true(again.left_ms > 2 * HOUR - 60000 && again.left_ms <= 2 * HOUR);
    assert_int_equal(test_as(s->a, &again, OP_LOOK), OUT_OK);
    assert_int_equal(again.state, ONCE_CONSUMED);
    assert_int_equal(test_as(s->a, &again, OP_FORGET), OUT_OK);
    assert_int_equal(test_as(s->a, &again, OP_LOOK), OUT_ABSENT);
}

static void a_running_key_is_busy_and_a_repeated_claim_is_not(void **state)
{
    struct scene *s = *state;
    struct op op = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &op), OUT_OK);
    int64_t fence = op.fence;
    struct op other = rival_of(s, &op);
    assert_int_equal(test_run(s->b, &other), OUT_BUSY);
    assert_true(other.left_ms > HOUR - 60000 && other.left_ms <= HOUR);
    assert_int_equal(test_run(s->b, &op), OUT_OK); /* the answer had been lost */
    assert_true(op.fence == fence);
    /* A token that differs in its last bit is another, though not as a double. */
    other.token = op.token ^ 1;
    assert_int_equal(test_run(s->b, &other), OUT_BUSY);
}

static void a_released_key_can_be_claimed_with_a_higher_fence(void **state)
{
    struct scene *s = *state;
    for (int forget = 0; forget < 2; forget++) {
        struct op op = test_op(&s->dice, OP_CLAIM);
        assert_int_equal(test_run(s->a, &op), OUT_OK);
        int64_t fence = op.fence;
        op.forget = forget;
        assert_int_equal(test_as(s->a, &op, OP_RELEASE), OUT_OK);
        assert_int_equal(test_as(s->b, &op, OP_RELEASE), OUT_OK); /* the answer had been lost */
        assert_int_equal(test_as(s->a, &op, OP_LOOK), forget ? OUT_ABSENT : OUT_OK);
        assert_int_equal(op.state, forget ? ONCE_ABSENT : ONCE_RELEASED);
        struct op next = rival_of(s, &op);
        assert_int_equal(test_run(s->b, &next), OUT_OK);
        assert_true(next.fence > fence); /* also in the same millisecond */
    }
}

/* Lease runs out while A works; B gets in; A's late words change nothing. */
static void an_expired_claim_is_taken_and_its_late_holder_changes_nothing(void **state)
{
    struct scene *s = *state;
    struct op a = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &a), OUT_OK);
    test_expire(s->link, &a);
    assert_int_equal(test_as(s->a, &a, OP_RENEW), OUT_OK); /* nobody had taken it */
    test_expire(s->link, &a);
    struct op b = rival_of(s, &a);
    assert_int_equal(test_run(s->b, &b), OUT_OK);
    assert_true(b.fence > a.fence);
    static const enum op_kind late[] = {OP_RENEW, OP_FINISH, OP_RELEASE, OP_STEP_PUT};
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        a.step = BYTES("late");
        assert_int_equal(test_as(s->a, &a, late[i]), OUT_LOST);
    }
    assert_int_equal(test_as(s->a, &a, OP_STEP_GET), OUT_ABSENT);
    /* H-2: A's release has not made room for C. */
    struct op c = rival_of(s, &a);
    assert_int_equal(test_run(s->a, &c), OUT_BUSY);
    assert_int_equal(test_as(s->b, &b, OP_FINISH), OUT_OK);
    assert_int_equal(test_run(s->a, &c), OUT_DONE);
}

/* A finishes; B, who had claimed after A's expiry, fails and releases: the mark, or B's claim, is
 * never undone by who has not the token. */
static void done_is_the_end(void **state)
{
    struct scene *s = *state;
    struct op a = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &a), OUT_OK);
    assert_int_equal(test_as(s->a, &a, OP_FINISH), OUT_OK);
    struct op b = rival_of(s, &a);
    assert_int_equal(test_run(s->b, &b), OUT_DONE);
    for (int forget = 0; forget < 2; forget++) {
        b.forget = forget;
        assert_int_equal(test_as(s->b, &b, OP_RELEASE), OUT_LOST);
    }
    assert_int_equal(test_as(s->b, &b, OP_FINISH), OUT_LOST);
    struct op next = rival_of(s, &a);
    assert_int_equal(test_run(s->b, &next), OUT_DONE);
}

/* B's claim fails within the store: A's row is as it was. */
static void an_error_in_a_claim_leaves_the_holders_row_alone(void **state)
{
    struct scene *s = *state;
    char key[128];
    struct op a = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &a), OUT_OK);
    (void)test_do(s->link, "HSET %s t nonsense", test_key(&a, key)); /* an answer nobody reads */
    struct op b = rival_of(s, &a);
    assert_int_equal(test_run(s->b, &b), OUT_FAILED);
    assert_true(b.why.text[0] != 0);
    assert_int_equal(test_as(s->b, &b, OP_RELEASE), OUT_LOST);
    (void)test_do(s->link, "HSET %s t %llu", key, (unsigned long long)a.token);
    assert_int_equal(test_as(s->a, &a, OP_FINISH), OUT_OK);
}

static void a_key_of_another_kind_is_refused_alone(void **state)
{
    struct scene *s = *state;
    char key[128];
    struct op good = test_op(&s->dice, OP_CLAIM), bad = test_op(&s->dice, OP_CLAIM);
    (void)test_do(s->link, "SET %s x", test_key(&bad, key));
    struct op *ops[] = {&bad, &good};
    assert_int_equal(DRIVER->run(s->a, ops, 2, NULL), OK);
    assert_int_equal(bad.outcome, OUT_FAILED);
    assert_non_null(strstr(bad.why.text, "WRONGTYPE"));
    assert_int_equal(good.outcome, OUT_OK);
}

/* ---- steps ---- */

static void steps_keep_64_kib_with_zeros_until_the_message_is_done(void **state)
{
    struct scene *s = *state;
    cleanup(free_at) uint8_t *big = malloc(ONCE_RESULT_MAX);
    assert_non_null(big);
    for (size_t i = 0; i < ONCE_RESULT_MAX; i++)
        big[i] = (uint8_t)(i % 7 == 0 ? 0 : dice_next(&s->dice));
    struct op op = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &op), OUT_OK);
    op.step = BYTES("a name of sixty-four bytes, which is as long as one may well be.");
    assert_int_equal(op.step.len, ONCE_STEP_MAX);
    assert_int_equal(test_as(s->a, &op, OP_STEP_GET), OUT_ABSENT);
    op.result = bytes_of(big, ONCE_RESULT_MAX);
    assert_int_equal(test_as(s->a, &op, OP_STEP_PUT), OUT_OK);
    op.result = BYTES("second"); /* a step that is there stays as it is */
    assert_int_equal(test_as(s->a, &op, OP_STEP_PUT), OUT_OK);
    op.result = (struct bytes){0};
    assert_int_equal(test_as(s->a, &op, OP_RELEASE), OUT_OK);

    struct op next = rival_of(s, &op);
    assert_int_equal(test_run(s->b, &next), OUT_OK);
    assert_int_equal(test_as(s->b, &next, OP_STEP_GET), OUT_OK);
    assert_int_equal(next.result.len, ONCE_RESULT_MAX);
    assert_memory_equal(next.result.at, big, ONCE_RESULT_MAX);
    free((void *)next.result.at);
    next.step = BYTES("empty");
    next.result = (struct bytes){0};
    assert_int_equal(test_as(s->b, &next, OP_STEP_PUT), OUT_OK);
    assert_int_equal(test_as(s->b, &next, OP_STEP_GET), OUT_OK);
    assert_int_equal(next.result.len, 0);
    free((void *)next.result.at);
    next.result = (struct bytes){0};

    char key[128];
    assert_int_equal(test_as(s->b, &next, OP_FINISH), OUT_OK);
    assert_int_equal(test_as(s->b, &next, OP_STEP_GET), OUT_ABSENT);
    assert_int_equal(test_do(s->link, "HLEN %s", test_key(&next, key)), 8);
    assert_int_equal(test_as(s->b, &next, OP_STEP_PUT), OUT_LOST);
}

/* ---- batches ---- */

static void a_batch_of_256_is_answered_each_to_its_own(void **state)
{
    struct scene *s = *state;
    struct op *all = calloc(ONCE_OPS_MAX, sizeof *all);
    struct op *ops[ONCE_OPS_MAX];
    assert_non_null(all);
    for (size_t i = 0; i < ONCE_OPS_MAX; i++) {
        all[i] = test_op(&s->dice, OP_CLAIM);
        ops[i] = &all[i];
    }
    assert_int_equal(DRIVER->run(s->a, ops, ONCE_OPS_MAX, NULL), OK);
    static const enum op_kind kinds[] = {OP_RENEW, OP_FINISH,   OP_RELEASE,  OP_LOOK,
                                         OP_SWEEP, OP_STEP_PUT, OP_STEP_GET, OP_FORGET};
    for (size_t i = 0; i < ONCE_OPS_MAX; i++) {
        assert_int_equal(all[i].outcome, OUT_OK);
        all[i].kind = kinds[i % 8];
        all[i].step = BYTES("s");
        all[i].rows = 5;
    }
    assert_int_equal(DRIVER->run(s->a, ops, ONCE_OPS_MAX, NULL), OK);
    for (size_t i = 0; i < ONCE_OPS_MAX; i++) {
        assert_int_equal(all[i].outcome, all[i].kind == OP_STEP_GET ? OUT_ABSENT : OUT_OK);
        if (all[i].kind == OP_SWEEP)
            assert_int_equal(all[i].rows, 0);
        all[i].kind = OP_CLAIM;
        all[i].token ^= 1;
    }
    static const enum op_outcome then[] = {OUT_BUSY, OUT_DONE, OUT_OK,   OUT_BUSY,
                                           OUT_BUSY, OUT_BUSY, OUT_BUSY, OUT_OK};
    assert_int_equal(DRIVER->run(s->b, ops, ONCE_OPS_MAX, NULL), OK);
    for (size_t i = 0; i < ONCE_OPS_MAX; i++)
        assert_int_equal(all[i].outcome, then[i % 8]);
    free(all);
}

static void flushed_scripts_are_loaded_again(void **state)
{
    struct scene *s = *state;
    struct op one = test_op(&s->dice, OP_CLAIM), two = test_op(&s->dice, OP_FORGET);
    struct op *ops[] = {&one, &two};
    (void)test_do(s->link, "SCRIPT FLUSH");
    assert_int_equal(DRIVER->run(s->a, ops, 2, NULL), OK);
    assert_int_equal(one.outcome, OUT_OK);
    assert_int_equal(two.outcome, OUT_OK);
    (void)test_do(s->link, "SCRIPT FLUSH");
    assert_int_equal(test_as(s->b, &one, OP_FINISH), OUT_OK);
}

struct contender {
    struct conn *conn;
    struct op op;
    pthread_barrier_t *start;
    enum err err;
};

static void *contend(void *user)
{
    struct contender *c = user;
    struct op *ops[] = {&c->op};
    pthread_barrier_wait(c->start);
    c->err = DRIVER->run(c->conn, ops, 1, NULL);
    return NULL;
}

/* 64 connections, each in a thread of its own, ask for the same key at once. */
static void of_64_who_ask_at_once_one_may_run(void **state)
{
    enum { N = 64, TIMES = 5 };
    struct scene *s = *state;
    struct contender who[N];
    for (int i = 0; i < N; i++)
        who[i].conn = test_connect(s->store);
    for (int t = 0; t < TIMES; t++) {
        pthread_barrier_t start;
        pthread_t threads[N];
        assert_int_equal(pthread_barrier_init(&start, NULL, N), 0);
        struct op op = test_op(&s->dice, OP_CLAIM);
        for (int i = 0; i < N; i++) {
            who[i].op = rival_of(s, &op);
            who[i].start = &start;
            assert_int_equal(pthread_create(&threads[i], NULL, contend, &who[i]), 0);
        }
        int ran = 0, busy = 0;
        for (int i = 0; i < N; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(who[i].err, OK);
            ran += who[i].op.outcome == OUT_OK;
            busy += who[i].op.outcome == OUT_BUSY;
        }
        assert_int_equal(ran, 1);
        assert_int_equal(busy, N - 1);
        pthread_barrier_destroy(&start);
    }
    for (int i = 0; i < N; i++)
        DRIVER->disconnect(who[i].conn);
}

/* ---- an emptied store ---- */

static enum err run_one(struct conn *conn, struct op *op, struct fault *why)
{
    struct op *ops[] = {op};
    return DRIVER->run(conn, ops, 1, why);
}

static void an_emptied_store_pauses_everybody_until_it_is_accepted(void **state)
{
    struct scene *s = *state;
    struct op op = test_op(&s->dice, OP_CLAIM);
    assert_int_equal(test_run(s->a, &op), OUT_OK);
    assert_int_equal(test_as(s->a, &op, OP_FINISH), OUT_OK);
    (void)test_do(s->link, "FLUSHALL");

    struct op again = rival_of(s, &op);
    struct fault why = {0};
    assert_int_equal(run_one(s->a, &again, &why), ERR_STALE);
    assert_int_equal(again.outcome, OUT_NONE);
    assert_non_null(strstr(why.text, "emptied"));
    again.kind = OP_LOOK;
    assert_int_equal(run_one(s->b, &again, &why), ERR_STALE);

    /* Somebody who starts now gives the store a new number: for us it is still another store. */
    struct store *late = test_open(&s->settings);
    struct conn *conn = test_connect(late);
    struct op free_again = rival_of(s, &op);
    assert_int_equal(run_one(s->b, &again, &why), ERR_STALE);
    /* What our claim had left there is gone: it was taken back. */
    assert_int_equal(test_run(conn, &free_again), OUT_OK);
    assert_int_equal(DRIVER->accept(s->store, s->a, &why), OK);
    again.kind = OP_CLAIM;
    assert_int_equal(run_one(s->b, &again, &why), OK);
    assert_int_equal(again.outcome, OUT_BUSY);
    DRIVER->disconnect(conn);
    DRIVER->close(late);
}

/* ---- takeover ---- */

static struct op claim_of(struct scene *s, uint32_t instance)
{
    struct op op = test_op(&s->dice, OP_CLAIM);
    op.token = (uint64_t)instance << 32 | (uint32_t)dice_next(&s->dice);
    op.takeover = true;
    return op;
}

static uint32_t some_instance(struct scene *s)
{
    return (uint32_t)dice_below(&s->dice, UINT32_MAX) + 1;
}

static void a_claim_of_a_process_that_is_gone_is_taken_at_once(void **state)
{
    struct scene *s = *state;
    struct op a = claim_of(s, some_instance(s)), b = claim_of(s, some_instance(s));
    memcpy(b.id, a.id, sizeof b.id);
    assert_int_equal(test_run(s->a, &a), OUT_OK);
    assert_int_equal(test_run(s->b, &b), OUT_BUSY); /* it lives */
    struct conn *gone = s->a;
    s->a = test_connect(s->store);
    DRIVER->disconnect(gone);
    b.takeover = false;
    assert_int_equal(test_run(s->b, &b), OUT_BUSY);
    b.takeover = true;
    enum op_outcome outcome = test_run(s->b, &b);
    while (outcome == OUT_BUSY) /* the server has yet to notice */
        outcome = test_run(s->b, &b);
    assert_int_equal(outcome, OUT_OK);
    assert_true(b.fence > a.fence);
    assert_int_equal(test_as(s->a, &a, OP_FINISH), OUT_LOST);
}

/* A holder that has announced itself in an earlier run of the server, or nowhere, is not judged by
 * who is connected now. */
static void a_claim_from_before_a_restart_is_left_to_its_expiry(void **state)
{
    struct scene *s = *state;
    char key[128];
    static const char *const homes[] = {"12345", "", NULL};
    for (size_t i = 0; i < 3; i++) {
        struct op a = claim_of(s, some_instance(s)), b = claim_of(s, some_instance(s));
        memcpy(b.id, a.id, sizeof b.id);
        assert_int_equal(test_run(s->a, &a), OUT_OK);
        if (homes[i])
            (void)test_do(s->link, "HSET %s h %s", test_key(&a, key), homes[i]);
        else
            (void)test_do(s->link, "HDEL %s h", test_key(&a, key));
        DRIVER->disconnect(s->a);
        s->a = test_connect(s->store);
        for (int n = 0; n < 20; n++)
            assert_int_equal(test_run(s->b, &b), OUT_BUSY);
        test_expire(s->link, &a);
        assert_int_equal(test_run(s->b, &b), OUT_OK);
    }
}

/* A store that was opened without it does not announce itself, and is never taken from. */
static void who_does_not_announce_itself_is_not_taken_from(void **state)
{
    struct scene *s = *state;
    struct store_settings quiet = s->settings;
    quiet.takeover = false;
    struct store *store = test_open(&quiet);
    struct conn *conn = test_connect(store);
    struct op a = claim_of(s, some_instance(s)), b = claim_of(s, some_instance(s));
    memcpy(b.id, a.id, sizeof b.id);
    assert_int_equal(test_run(conn, &a), OUT_OK);
    DRIVER->disconnect(conn);
    DRIVER->close(store);
    for (int n = 0; n < 20; n++)
        assert_int_equal(test_run(s->b, &b), OUT_BUSY);
}

#define CASE(f)          cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define TAKEOVER(f)      cmocka_unit_test_setup_teardown(f, set_up_takeover, tear_down)
#define ROW_CASE(row, f) ((struct CMUnitTest){row " " #f, f, set_up, tear_down, NULL})
#define ROW_TAKE(row, f) ((struct CMUnitTest){row " " #f, f, set_up_takeover, tear_down, NULL})

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW_CASE("H-4", claims_renews_finishes_and_then_it_is_done),
        ROW_CASE("H-7", a_running_key_is_busy_and_a_repeated_claim_is_not),
        CASE(a_released_key_can_be_claimed_with_a_higher_fence),
        ROW_CASE("H-1 H-2", an_expired_claim_is_taken_and_its_late_holder_changes_nothing),
        ROW_CASE("H-3", done_is_the_end),
        ROW_CASE("H-27", an_error_in_a_claim_leaves_the_holders_row_alone),
        CASE(a_key_of_another_kind_is_refused_alone),
        CASE(steps_keep_64_kib_with_zeros_until_the_message_is_done),
        CASE(a_batch_of_256_is_answered_each_to_its_own),
        CASE(flushed_scripts_are_loaded_again),
        ROW_CASE("ID-20", of_64_who_ask_at_once_one_may_run),
        ROW_CASE("H-13", an_emptied_store_pauses_everybody_until_it_is_accepted),
        ROW_TAKE("H-24", a_claim_of_a_process_that_is_gone_is_taken_at_once),
        TAKEOVER(a_claim_from_before_a_restart_is_left_to_its_expiry),
        TAKEOVER(who_does_not_announce_itself_is_not_taken_from),
    };
    return cmocka_run_group_tests_name("once/redis", tests, NULL, NULL);
}
