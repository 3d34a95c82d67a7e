/* decide_test.c - every state, operation, token and time: what the rules say is laid down here once
 * more, as a table of sentences. */
#include "once/decide.h"
#include "once/once_int.h"

#include "base/test.h"

#define NOW INT64_C(1700000000000)

enum { MINE = 7, THEIRS = 8 };

static struct stored stored_of(int state, uint64_t token, int64_t until_ms)
{
    return (struct stored){state, token, 5000, until_ms, 99};
}

static void assert_same(const struct stored *a, const struct stored *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->token, b->token);
    assert_int_equal(a->fence, b->fence);
    assert_int_equal(a->until_ms, b->until_ms);
    assert_int_equal(a->fingerprint, b->fingerprint);
}

static struct op op_of(enum op_kind kind)
{
    struct op op = {.kind = kind, .token = MINE, .fingerprint = 11, .expiry_ms = 30, .rows = 1};
    op.retention_ms = 1000;
    return op;
}

/* Whoever has not the token changes nothing; whoever has it and is CONSUMING may do everything. */
static void only_the_holder_changes_a_claim(void **state)
{
    (void)state;
    static const enum op_kind kinds[] = {OP_RENEW, OP_FINISH, OP_RELEASE};
    static const int64_t untils[] = {NOW - 1, NOW, NOW + 1};
    for (size_t k = 0; k < 3; k++) {
        for (int s = ONCE_ABSENT; s <= ONCE_RELEASED; s++) {
            for (int t = 0; t < 6; t++) {
                bool mine = t % 2 == 0;
                struct stored before = stored_of(s, mine ? MINE : THEIRS, untils[t / 2]), after;
                if (s == ONCE_ABSENT)
                    before = (struct stored){0};
                struct op op = op_of(kinds[k]);
                bool changed = decide(&before, NOW, false, &op, &after);
                bool holds = s == ONCE_CONSUMING && mine; /* expired or not: nobody took it */
                bool said = mine && ((kinds[k] == OP_FINISH && s == ONCE_CONSUMED) ||
                                     (kinds[k] == OP_RELEASE && s == ONCE_RELEASED));
                assert_int_equal(op.outcome, holds || said ? OUT_OK : OUT_LOST);
                assert_int_equal(changed, holds);
                if (!changed)
                    assert_same(&after, &before);
            }
        }
    }
}

static void a_holder_renews_finishes_releases(void **state)
{
    (void)state;
    struct stored before = stored_of(ONCE_CONSUMING, MINE, NOW + 1), after;
    struct op op = op_of(OP_RENEW);
    assert_true(decide(&before, NOW, false, &op, &after));
    assert_int_equal(after.state, ONCE_CONSUMING);
    assert_int_equal(after.until_ms, NOW + 30);
    assert_int_equal(after.fence, 5000);
    op = op_of(OP_FINISH);
    assert_true(decide(&before, NOW, false, &op, &after));
    assert_int_equal(after.state, ONCE_CONSUMED);
    assert_int_equal(after.until_ms, NOW + 1000);
    assert_int_equal(after.fingerprint, 99);
    op = op_of(OP_RELEASE);
    assert_true(decide(&before, NOW, false, &op, &after));
    assert_int_equal(after.state, ONCE_RELEASED);
    assert_int_equal(after.fence, 5000);
    op = op_of(OP_RELEASE);
    op.forget = true;
    assert_true(decide(&before, NOW, false, &op, &after));
    assert_int_equal(after.state, ONCE_ABSENT);
}

/* The claim: who gets it, over what, when. */
static void a_claim_is_given_when_it_is_free(void **state)
{
    (void)state;
    static const struct {
        int state;
        uint64_t token;
        int64_t until_ms;
        bool gone, takeover;
        enum op_outcome outcome;
    } cases[] = {
        {ONCE_ABSENT, 0, 0, false, false, OUT_OK},
        {ONCE_RELEASED, THEIRS, NOW + 1, false, false, OUT_OK},
        {ONCE_RELEASED, MINE, NOW - 1, false, false, OUT_OK},
        {ONCE_CONSUMING, THEIRS, NOW + 1, false, false, OUT_BUSY},
        {ONCE_CONSUMING, THEIRS, NOW, false, false, OUT_OK},
        {ONCE_CONSUMING, THEIRS, NOW - 1, false, false, OUT_OK},
        {ONCE_CONSUMING, THEIRS, NOW + 1, true, false, OUT_BUSY},
        {ONCE_CONSUMING, THEIRS, NOW + 1, false, true, OUT_BUSY},
        {ONCE_CONSUMING, THEIRS, NOW + 1, true, true, OUT_OK},
        {ONCE_CONSUMING, MINE, NOW + 1, false, false, OUT_OK}, /* asked twice */
        {ONCE_CONSUMING, MINE, NOW - 1, false, false, OUT_OK},
        {ONCE_CONSUMED, THEIRS, NOW + 1, false, false, OUT_DONE},
        {ONCE_CONSUMED, MINE, NOW + 1, false, false, OUT_DONE},
        {ONCE_CONSUMED, THEIRS, NOW + 1, true, true, OUT_DONE},
        {ONCE_CONSUMED, THEIRS, NOW, false, false, OUT_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stored before = stored_of(cases[i].state, cases[i].token, cases[i].until_ms), after;
        if (cases[i].state == ONCE_ABSENT)
            before = (struct stored){0};
        struct op op = op_of(OP_CLAIM);
        op.takeover = cases[i].takeover;
        bool changed = decide(&before, NOW, cases[i].gone, &op, &after);
        assert_int_equal(op.outcome, cases[i].outcome);
        assert_int_equal(changed, cases[i].outcome == OUT_OK);
        if (!changed) {
            assert_same(&after, &before);
            assert_int_equal(op.left_ms, 1);
            continue;
        }
        assert_int_equal(after.state, ONCE_CONSUMING);
        assert_int_equal(after.token, MINE);
        assert_int_equal(after.until_ms, NOW + 30);
        assert_int_equal(op.fence, after.fence);
        bool other_never_ended = cases[i].state == ONCE_CONSUMING && cases[i].token == THEIRS;
        assert_int_equal(op.state == ONCE_CONSUMING, other_never_ended);
    }
}

/* By the clock, and by one where the clock does not help; over any order of clocks. */
static void fences_only_grow(void **state)
{
    (void)state;
    struct stored s = {0};
    int64_t last = 0;
    struct dice dice = test_dice();
    for (int i = 0; i < 1000; i++) {
        int64_t now = (int64_t)dice_below(&dice, 1000) + (i % 3 ? NOW : 0);
        struct op op = op_of(OP_CLAIM);
        op.token = (uint64_t)i + 1;
        s.until_ms = 0; /* free again */
        assert_true(decide(&s, now, false, &op, &s));
        assert_true(op.fence > last);
        last = op.fence;
    }
}

static void times_do_not_overflow(void **state)
{
    (void)state;
    static const int64_t nows[] = {INT64_MIN, -1, 0, INT64_MAX - 1, INT64_MAX};
    for (size_t i = 0; i < 5; i++) {
        struct stored s = {0};
        struct op op = op_of(OP_CLAIM);
        op.expiry_ms = INT64_MAX;
        assert_true(decide(&s, nows[i], false, &op, &s));
        assert_true(s.fence > 0);
        assert_true(s.until_ms >= nows[i]);
    }
}

static void looking_changes_nothing_and_forgetting_everything(void **state)
{
    (void)state;
    for (int s = ONCE_ABSENT; s <= ONCE_RELEASED; s++) {
        struct stored before = stored_of(s, THEIRS, NOW + 5), after;
        struct op op = op_of(OP_LOOK);
        assert_false(decide(&before, NOW, false, &op, &after));
        assert_same(&after, &before);
        assert_int_equal(op.outcome, s == ONCE_ABSENT ? OUT_ABSENT : OUT_OK);
        assert_int_equal(op.state, s);
        assert_int_equal(op.left_ms, 5);
        op = op_of(OP_FORGET);
        assert_int_equal(decide(&before, NOW, false, &op, &after), s != ONCE_ABSENT);
        assert_int_equal(op.outcome, OUT_OK);
        assert_int_equal(after.state, ONCE_ABSENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("H-2 H-3 H-27", only_the_holder_changes_a_claim),
        cmocka_unit_test(a_holder_renews_finishes_releases),
        cmocka_unit_test(a_claim_is_given_when_it_is_free),
        cmocka_unit_test(fences_only_grow),
        cmocka_unit_test(times_do_not_overflow),
        cmocka_unit_test(looking_changes_nothing_and_forgetting_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
