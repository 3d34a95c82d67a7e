#include "once/decide.h"
#include "once/redis_test.h"

#define IDS    4
#define TOKENS 3
#define TURNS  8000
#define FINER  999 /* microseconds of the script's clock that decide() does not see */

static int64_t to_i64(const redisReply *reply)
{
    int64_t n = 0;
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer;
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_true(bytes_to_i64(bytes_of(reply->str, reply->len), &n));
    return n;
}

static int64_t server_time(redisContext *link)
{
    redisReply *reply = test_ask(link, "TIME");
    int64_t ms = to_i64(reply->element[0]) * 1000 + to_i64(reply->element[1]) / 1000;
    freeReplyObject(reply);
    return ms;
}

/* What Redis has, in the words of decide.h. */
static struct stored stored(redisContext *link, const char *key)
{
    redisReply *reply = test_ask(link, "HMGET %s s t f u p", key);
    struct stored row = {0};
    if (reply->element[0]->type == REDIS_REPLY_STRING) {
        row.state = (int)to_i64(reply->element[0]);
        row.token = strtoull(reply->element[1]->str, NULL, 10);
        row.fence = to_i64(reply->element[2]);
        row.until_ms = to_i64(reply->element[3]);
        row.fingerprint = strtoull(reply->element[4]->str, NULL, 10);
    }
    freeReplyObject(reply);
    return row;
}

/* Time goes by, and clocks are set back: the row's end into the past, its fence into the future. */
static void disturb(redisContext *link, struct dice *dice, const char *key, struct stored *row)
{
    if (row->state == ONCE_ABSENT)
        return;
    if (dice_below(dice, 4) == 0) {
        row->until_ms = (int64_t)dice_below(dice, 2) + 1;
        (void)test_do(link, "HSET %s u %lld", key, (long long)row->until_ms);
    }
    if (dice_below(dice, 16) == 0) {
        row->fence += INT64_C(100000000000000);
        (void)test_do(link, "HSET %s f %lld", key, (long long)row->fence);
    }
    if (row->fence > INT64_C(8000000000000000)) { /* keep below 2^53 */
        row->fence = 1;
        (void)test_do(link, "HSET %s f 1", key);
    }
}

static void assert_between(int64_t low, int64_t value, int64_t high)
{
    if (value < low || value > high)
        fail_msg("%" PRId64 " is not within %" PRId64 " and %" PRId64, value, low, high);
}

static void assert_same_row(const struct stored *a, const struct stored *got,
                            const struct stored *b)
{
    assert_int_equal(got->state, a->state);
    assert_true(got->token == a->token);
    assert_true(got->fingerprint == a->fingerprint);
    assert_between(a->fence, got->fence, b->fence + FINER);
    assert_between(a->until_ms, got->until_ms, b->until_ms);
}

static void assert_same_answer(const struct op *a, const struct op *got, const struct op *b)
{
    assert_int_equal(got->outcome, a->outcome);
    assert_int_equal(a->outcome, b->outcome); /* nothing ends while we look */
    assert_int_equal(got->state, a->state);
    assert_between(a->fence, got->fence, b->fence + FINER);
    assert_between(b->left_ms, got->left_ms, a->left_ms); /* later, less is left */
    assert_true(got->fingerprint == a->fingerprint);
}

/* A key that is there always has an end: that of the mark, or of a claim's row. */
static void assert_forgotten_in_time(redisContext *link, const char *key, const struct stored *row,
                                     int64_t keep_ms)
{
    int64_t from = server_time(link);
    long long left = test_do(link, "PTTL %s", key);
    int64_t to = server_time(link);
    int64_t end = row->until_ms + (row->state == ONCE_CONSUMING ? keep_ms : 0);
    if (row->state == ONCE_ABSENT)
        assert_int_equal(left, -2);
    else
        assert_between(from + left - 2000, end, to + left + 2000);
}

/* The script and decide() side by side: random operations of three tokens on four ids. The clock of
 * the server is read before and after each operation, and decide() asked with both: what Redis says
 * and has lies between. Now and then a row is made old, or has a fence beyond the clock. */
static void script_says_what_decide_says(void **state)
{
    (void)state;
    struct test_log log = {0};
    struct store_settings settings = test_settings(&log);
    struct store *store = test_open(&settings);
    struct conn *conn = test_connect(store);
    redisContext *link = test_link();
    struct dice dice = test_dice();
    static const enum op_kind kinds[] = {OP_CLAIM,  OP_CLAIM, OP_CLAIM,   OP_RENEW,   OP_FINISH,
                                         OP_FINISH, OP_LOOK,  OP_RELEASE, OP_RELEASE, OP_FORGET};
    struct op bases[IDS];
    uint64_t tokens[TOKENS];
    for (size_t i = 0; i < IDS; i++)
        bases[i] = test_op(&dice, OP_CLAIM);
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = bases[0].token + i; /* the same as doubles */

    uint64_t outcomes[OUT_FAILED + 1] = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        struct op op = bases[dice_below(&dice, IDS)];
        char key[128];
        test_key(&op, key);
        op.kind = kinds[dice_below(&dice, sizeof kinds / sizeof *kinds)];
        op.token = tokens[dice_below(&dice, TOKENS)];
        op.fingerprint = dice_next(&dice);
        op.forget = dice_below(&dice, 4) == 0;
        struct op early = op, late = op;
        struct stored before = stored(link, key), after_early, after_late;
        disturb(link, &dice, key, &before);

        int64_t from = server_time(link);
        (void)test_run(conn, &op);
        int64_t to = server_time(link);
        bool changed = decide(&before, from, false, &early, &after_early);
        (void)decide(&before, to, false, &late, &after_late);
        struct stored after = stored(link, key);
        assert_same_answer(&early, &op, &late);
        assert_same_row(&after_early, &after, &after_late);
        if (changed)
            assert_forgotten_in_time(link, key, &after, op.retention_ms);
        outcomes[op.outcome]++;
    }
    for (int i = OUT_OK; i <= OUT_ABSENT; i++)
        assert_true(outcomes[i] > 20); /* every answer was among them */

    redisFree(link);
    DRIVER->disconnect(conn);
    DRIVER->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(script_says_what_decide_says),
    };
    return cmocka_run_group_tests_name("once/redis_decide", tests, NULL, NULL);
}
