/* memory_test.c - the memory store: held against the rules in decide.c over random operations, and
 * its size at a million keys. */
#include "once/decide.h"
#include "once/once_int.h"

#include "base/test.h"

#include <malloc.h>
#include <stdio.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

struct rig {
    struct clock_manual clock;
    struct store *store;
    struct conn *conn;
};

static void rig_open(struct rig *rig)
{
    clock_manual_init(&rig->clock, 1700000000000);
    struct store_settings s = {.clock = &rig->clock.clock};
    assert_int_equal(once_driver_memory.open(&s, &rig->store, NULL), OK);
    assert_int_equal(once_driver_memory.connect(rig->store, &rig->conn, NULL), OK);
}

static void rig_close(struct rig *rig)
{
    once_driver_memory.disconnect(rig->conn);
    once_driver_memory.close(rig->store);
}

static void run(struct rig *rig, struct op *op)
{
    struct op *ops[] = {op};
    op->outcome = OUT_NONE;
    assert_int_equal(once_driver_memory.run(rig->conn, ops, 1, NULL), OK);
}

static struct op op_of(enum op_kind kind, uint64_t key, uint64_t token)
{
    struct op op = {.kind = kind, .name = "", .token = token, .fingerprint = token};
    op.expiry_ms = 100;
    op.retention_ms = 1000;
    op.rows = 100;
    uint64_t hash = (key + 1) * UINT64_C(0x9e3779b97f4a7c15);
    store_u64(op.id, hash);
    store_u64(op.id + 8, key);
    return op;
}

/* 50 keys, 5 tokens, time that goes on: what the store says is what decide says to a plain array.
 */
static void does_what_the_rules_say(void **state)
{
    (void)state;
    enum { KEYS = 50, OPS = 50000 };
    struct rig rig;
    rig_open(&rig);
    struct dice dice = test_dice();
    struct stored model[KEYS] = {0};
    for (int i = 0; i < OPS; i++) {
        size_t key = dice_below(&dice, KEYS);
        enum op_kind kind = (enum op_kind)dice_below(&dice, OP_FORGET + 1);
        struct op got = op_of(kind, key, 1 + dice_below(&dice, 5));
        got.forget = dice_below(&dice, 4) == 0;
        struct op wanted = got;
        int64_t now = clock_ms(&rig.clock.clock);
        struct op look = op_of(OP_LOOK, key, 0);
        run(&rig, &look);
        if (look.outcome == OUT_ABSENT && model[key].state != ONCE_ABSENT) {
            int64_t keep_ms = model[key].state == ONCE_CONSUMING ? 1000 : 0;
            assert_true(model[key].until_ms + keep_ms <= now); /* it was swept, and might be */
            model[key] = (struct stored){0};
        }
        (void)decide(&model[key], now, false, &wanted, &model[key]);
        run(&rig, &got);
        assert_int_equal(got.outcome, wanted.outcome);
        assert_int_equal(got.fence, wanted.fence);
        assert_int_equal(got.left_ms, wanted.left_ms);
        assert_int_equal(got.fingerprint, wanted.fingerprint);
        assert_int_equal(got.state, wanted.state);
        if (dice_below(&dice, 20) == 0)
            clock_manual_advance(&rig.clock, (int64_t)dice_below(&dice, 60));
    }
    rig_close(&rig);
}

/* Keys of one shard that want to stand in the same few places of its index, at its end and over it:
 * whatever comes and goes, each is found as long as it is there and not after that. */
static void finds_keys_that_stand_in_each_others_way(void **state)
{
    (void)state;
    enum { KEYS = 600, OPS = 60000 };
    struct rig rig;
    rig_open(&rig);
    struct dice dice = test_dice();
    bool there[KEYS] = {false};
    for (int i = 0; i < OPS; i++) {
        size_t key = dice_below(&dice, KEYS);
        bool grows = i / 5000 % 2 == 0;
        bool claims = dice_below(&dice, 4) < (grows ? 3 : 1);
        struct op op = op_of(claims ? OP_CLAIM : OP_FORGET, key, 9);
        store_u64(op.id, 0xffffffff - key % 7); /* the shard, then the tag */
        struct op look = op;
        run(&rig, &op);
        there[key] = claims;
        look.kind = OP_LOOK;
        run(&rig, &look);
        assert_int_equal(look.outcome, claims ? OUT_OK : OUT_ABSENT);
    }
    for (size_t key = 0; key < KEYS; key++) {
        struct op look = op_of(OP_LOOK, key, 0);
        store_u64(look.id, 0xffffffff - key % 7);
        run(&rig, &look);
        assert_int_equal(look.outcome, there[key] ? OUT_OK : OUT_ABSENT);
    }
    rig_close(&rig);
}

static void sweeps_what_has_ended_and_nothing_else(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (uint64_t i = 0; i < 300; i++) { /* a third done, a third failed, a third left as it is */
        struct op op = op_of(OP_CLAIM, i, 9);
        run(&rig, &op);
        op.kind = OP_FINISH;
        if (i % 3 == 0)
            run(&rig, &op);
        op.kind = OP_RELEASE;
        if (i % 3 == 1)
            run(&rig, &op);
    }
    struct op sweep = op_of(OP_SWEEP, 0, 0);
    clock_manual_advance(&rig.clock, 999);
    run(&rig, &sweep);
    assert_int_equal(sweep.rows, 0);
    clock_manual_advance(&rig.clock, 1);
    int swept = 0;
    do {
        sweep.rows = 30;
        run(&rig, &sweep);
        assert_true(sweep.rows <= 30);
        swept += sweep.rows;
    } while (sweep.rows > 0);
    assert_int_equal(swept, 200);
    /* A claim that has expired is still its holder's: for so long as a mark would live. */
    clock_manual_advance(&rig.clock, 99);
    struct op finish = op_of(OP_FINISH, 2, 9);
    run(&rig, &finish);
    assert_int_equal(finish.outcome, OUT_OK);
    clock_manual_advance(&rig.clock, 1);
    sweep.rows = 1000;
    run(&rig, &sweep);
    assert_int_equal(sweep.rows, 99);
    rig_close(&rig);
}

/* Nobody sweeps: rows that come look after rows that go. */
static void does_not_grow_while_what_was_there_has_ended(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    for (uint64_t i = 0; i < 200000; i++) {
        struct op op = op_of(OP_CLAIM, i, 9);
        run(&rig, &op);
        op.kind = OP_FINISH;
        run(&rig, &op);
        clock_manual_advance(&rig.clock, 1); /* so about 1,000 live at a time */
    }
    struct op sweep = op_of(OP_SWEEP, 0, 0);
    sweep.rows = 1000000;
    clock_manual_advance(&rig.clock, 1000000);
    run(&rig, &sweep);
    assert_true(sweep.rows < 5000);
    rig_close(&rig);
}

static void put(struct rig *rig, uint64_t key, uint64_t token, const char *name, const char *result,
                enum op_outcome wanted)
{
    struct op op = op_of(OP_STEP_PUT, key, token);
    op.step = bytes_str(name);
    op.result = bytes_str(result);
    run(rig, &op);
    assert_int_equal(op.outcome, wanted);
}

static void get(struct rig *rig, uint64_t key, const char *name, const char *wanted)
{
    struct op op = op_of(OP_STEP_GET, key, 0);
    op.step = bytes_str(name);
    run(rig, &op);
    assert_int_equal(op.outcome, wanted ? OUT_OK : OUT_ABSENT);
    if (wanted)
        assert_bytes_equal(op.result, bytes_str(wanted));
    if (wanted)
        free((void *)op.result.at);
}

static void steps_are_their_holders_and_live_like_the_row(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    put(&rig, 1, 9, "a", "x", OUT_LOST); /* no claim, no step */
    struct op op = op_of(OP_CLAIM, 1, 9);
    run(&rig, &op);
    put(&rig, 1, 9, "a", "first", OUT_OK);
    put(&rig, 1, 9, "a", "second", OUT_OK); /* said again: the first stays */
    put(&rig, 1, 9, "b", "", OUT_OK);
    put(&rig, 1, 8, "c", "x", OUT_LOST);
    get(&rig, 1, "a", "first");
    get(&rig, 1, "b", "");
    get(&rig, 1, "c", NULL);
    get(&rig, 2, "a", NULL);
    op.kind = OP_RELEASE; /* the next delivery finds them */
    run(&rig, &op);
    get(&rig, 1, "a", "first");
    put(&rig, 1, 9, "d", "x", OUT_LOST);
    op = op_of(OP_CLAIM, 1, 10);
    run(&rig, &op);
    get(&rig, 1, "a", "first");
    op.kind = OP_FORGET;
    run(&rig, &op);
    get(&rig, 1, "a", NULL);
    op = op_of(OP_CLAIM, 1, 11);
    run(&rig, &op);
    put(&rig, 1, 11, "a", "again", OUT_OK);
    rig_close(&rig); /* with a step in it */
}

static void a_million_keys_take_less_than_100_mb(void **state)
{
    (void)state;
    if (SANITIZED)
        return; /* allocations are not what they are; bench_once looks, too */
    enum { KEYS = 1000000 };
    struct rig rig;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    rig_open(&rig);
    for (uint64_t i = 0; i < KEYS; i++) {
        struct op op = op_of(OP_CLAIM, i, 9);
        run(&rig, &op);
        op.kind = OP_FINISH;
        run(&rig, &op);
    }
    size_t each = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / KEYS;
    print_message("# %zu bytes for each key\n", each);
    assert_true(each < 100);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_what_the_rules_say),
        cmocka_unit_test(finds_keys_that_stand_in_each_others_way),
        test_of_row("H-33", sweeps_what_has_ended_and_nothing_else),
        cmocka_unit_test(does_not_grow_while_what_was_there_has_ended),
        cmocka_unit_test(steps_are_their_holders_and_live_like_the_row),
        cmocka_unit_test(a_million_keys_take_less_than_100_mb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
