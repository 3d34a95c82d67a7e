/* sql_cases_test.h - what must be true of every SQL store. A program includes it, says in
 * rig_settings() where its stores are, and adds SQL_CASES to its list.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef ONCE_SQL_CASES_TEST_H
#define ONCE_SQL_CASES_TEST_H

#include "once/decide.h"
#include "once/sql_int.h"
#include "once/sql_rig_test.h"

/* ---- claims ---- */

static void a_finished_key_is_done_for_everybody(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(state_of(rig.conn, 1), ONCE_ABSENT);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(state_of(rig.other, 1), ONCE_CONSUMING);

    struct op op = op_of(OP_CLAIM, 1, 20);
    assert_int_equal(do_op(rig.other, &op), OUT_BUSY);
    assert_in_range(op.left_ms, FAR_MS - 60000, FAR_MS);

    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK);
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK); /* said twice */
    op = op_of(OP_CLAIM, 1, 20);
    op.fingerprint = 5;
    assert_int_equal(do_op(rig.other, &op), OUT_DONE);
    assert_int_equal(op.fingerprint, 77);
    assert_in_range(op.left_ms, 2 * FAR_MS - 60000, 2 * FAR_MS);
    assert_int_equal(state_of(rig.other, 1), ONCE_CONSUMED);
    assert_int_equal(state_of(rig.other, 2), ONCE_ABSENT);
    rig_disconnect(&rig);
}

static void a_claim_asked_again_by_its_token_is_the_same_claim(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct op op = op_of(OP_CLAIM, 1, 10);
    assert_int_equal(do_op(rig.conn, &op), OUT_OK);
    int64_t fence = op.fence;
    assert_int_equal(do_op(rig.other, &op), OUT_OK);
    assert_int_equal(op.fence, fence);
    rig_disconnect(&rig);
}

static void a_released_key_is_free_and_its_fence_grows(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    int64_t fence = fence_of(rig.conn, 1);
    assert_true(fence > 0);
    assert_int_equal(ask(rig.conn, OP_RELEASE, 1, 10), OUT_OK);
    assert_int_equal(state_of(rig.conn, 1), ONCE_RELEASED);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_OK);
    assert_true(fence_of(rig.conn, 1) > fence);

    struct op op = op_of(OP_RELEASE, 1, 20);
    op.forget = true;
    assert_int_equal(do_op(rig.other, &op), OUT_OK);
    assert_int_equal(state_of(rig.conn, 1), ONCE_ABSENT);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims}"), 0);
    rig_disconnect(&rig);
}

/* The measured interleavings: A is late, B has its place. A can end nothing, C does not pass. */
static void a_late_owner_can_neither_finish_nor_free_its_successors_claim(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    time_passes(&rig);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_OK);
    assert_int_equal(ask(rig.conn, OP_RELEASE, 1, 10), OUT_LOST);
    assert_int_equal(ask(rig.conn, OP_RENEW, 1, 10), OUT_LOST);
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_LOST);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 30), OUT_BUSY);
    assert_int_equal(ask(rig.other, OP_RELEASE, 1, 20), OUT_OK);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 30), OUT_OK);
    rig_disconnect(&rig);
}

static void an_expired_claim_that_nobody_took_is_still_its_owners(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    time_passes(&rig);
    assert_int_equal(ask(rig.conn, OP_RENEW, 1, 10), OUT_OK);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_BUSY);
    time_passes(&rig);
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_DONE);
    rig_disconnect(&rig);
}

static void a_forgotten_key_is_as_new_with_its_steps(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(step_put(rig.conn, 1, 10, "a", "x"), OUT_OK);
    assert_int_equal(ask(rig.other, OP_FORGET, 1, 99), OUT_OK);
    assert_int_equal(ask(rig.other, OP_FORGET, 1, 99), OUT_OK);
    assert_int_equal(state_of(rig.conn, 1), ONCE_ABSENT);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {steps}"), 0);
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_LOST);
    rig_disconnect(&rig);
}

/* Random operations of four tokens on six keys, through two connections, beside a table of what
 * decide() says. */
static void outcomes_are_those_of_the_rules(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct dice dice = test_dice();
    struct stored model[6] = {{0}};
    for (int i = 0; i < 400; i++) {
        static const enum op_kind kinds[] = {OP_CLAIM, OP_RENEW, OP_FINISH, OP_RELEASE, OP_LOOK};
        int key = (int)dice_below(&dice, 6);
        struct stored *now = &model[key];
        if (dice_below(&dice, 6) == 0) {
            time_passes(&rig);
            for (int k = 0; k < 6; k++)
                model[k].until_ms = 1;
        }
        struct op op = op_of(kinds[dice_below(&dice, 5)], key, 10 + dice_below(&dice, 4));
        op.forget = dice_below(&dice, 3) == 0;
        struct op wanted = op;
        (void)decide(now, 1000000, false, &wanted, now);
        assert_int_equal(do_op(dice_below(&dice, 2) ? rig.conn : rig.other, &op), wanted.outcome);
        assert_int_equal(state_of(rig.conn, key), now->state);
    }
    rig_disconnect(&rig);
}

/* ---- batches ---- */

/* As many as there may be, mixed kinds, in any order: each gets its own answer. */
static void a_full_batch_answers_each_operation_by_itself(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct dice dice = test_dice();
    static struct op ops[ONCE_OPS_MAX];
    struct op *list[ONCE_OPS_MAX];
    for (int i = 0; i < ONCE_OPS_MAX; i++) {
        if (i % 4 == 1)
            assert_int_equal(ask(rig.conn, OP_CLAIM, i, 10), OUT_OK); /* another's */
        if (i % 4 == 2)
            assert_int_equal(ask(rig.conn, OP_CLAIM, i, 20), OUT_OK);
        ops[i] = op_of(i % 4 == 2 ? OP_FINISH : i % 4 == 3 ? OP_LOOK : OP_CLAIM, i, 20);
        list[i] = &ops[i];
    }
    for (size_t i = ONCE_OPS_MAX - 1; i > 0; i--) {
        size_t j = dice_below(&dice, i + 1);
        struct op *swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
    assert_int_equal(sql_run(rig.other, list, ONCE_OPS_MAX, NULL), OK);
    for (int i = 0; i < ONCE_OPS_MAX; i++) {
        static const enum op_outcome wanted[] = {OUT_OK, OUT_BUSY, OUT_OK, OUT_ABSENT};
        static const int states[] = {ONCE_CONSUMING, ONCE_CONSUMING, ONCE_CONSUMED, ONCE_ABSENT};
        assert_int_equal(ops[i].outcome, wanted[i % 4]);
        if (i % 16 < 4)
            assert_int_equal(state_of(rig.conn, i), states[i % 4]);
    }
    rig_disconnect(&rig);
}

/* The same id twice in a batch is not asked for, but a renewal may meet a step. */
static void two_operations_on_one_key_in_a_batch_follow_each_other(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int keys = 1; keys <= 8; keys += 7) {
        struct op ops[16];
        struct op *list[16];
        for (int i = 0; i < 2 * keys; i++) {
            ops[i] = op_of(OP_CLAIM, 100 * keys + i / 2, i % 2 ? 20 : 10);
            list[i] = &ops[i];
        }
        assert_int_equal(sql_run(rig.conn, list, 2 * (size_t)keys, NULL), OK);
        for (int i = 0; i < 2 * keys; i += 2) {
            enum op_outcome first = ops[i].outcome, second = ops[i + 1].outcome;
            assert_int_equal((first == OUT_OK) + (second == OUT_OK), 1);
            assert_int_equal((first == OUT_BUSY) + (second == OUT_BUSY), 1);
        }
    }
    rig_disconnect(&rig);
}

/* ---- steps ---- */

static void a_step_is_recorded_once_and_outlives_a_crash(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_false(step_is(rig.conn, 1, "lock", ""));
    assert_int_equal(step_put(rig.conn, 1, 10, "lock", "first"), OUT_OK);
    assert_int_equal(step_put(rig.conn, 1, 10, "lock", "second"), OUT_OK);
    assert_int_equal(step_put(rig.conn, 1, 10, "empty", ""), OUT_OK);
    assert_true(step_is(rig.other, 1, "lock", "first"));
    assert_true(step_is(rig.other, 1, "empty", ""));
    assert_false(step_is(rig.other, 1, "Lock", "first"));
    assert_false(step_is(rig.other, 2, "lock", "first"));

    const char *outlives = "SELECT keep_ms - until_ms FROM {claims}";
    assert_int_equal(rig_number(&rig, outlives), 2 * FAR_MS);
    assert_int_equal(ask(rig.conn, OP_RENEW, 1, 10), OUT_OK);
    assert_int_equal(rig_number(&rig, outlives), 2 * FAR_MS);
    time_passes(&rig); /* its process is dead; a sweep comes before the message does */
    struct op sweep = {.kind = OP_SWEEP, .rows = 100};
    assert_int_equal(do_op(rig.conn, &sweep), OUT_OK);
    assert_int_equal(sweep.rows, 0);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_OK);
    assert_true(step_is(rig.other, 1, "lock", "first"));
    assert_int_equal(step_put(rig.conn, 1, 10, "late", "x"), OUT_LOST);
    assert_false(step_is(rig.other, 1, "late", "x"));

    assert_int_equal(ask(rig.other, OP_RELEASE, 1, 20), OUT_OK);
    assert_true(step_is(rig.other, 1, "lock", "first")); /* the retry needs it */
    assert_int_equal(step_put(rig.other, 1, 20, "after", "x"), OUT_LOST);
    rig_disconnect(&rig);
}

/* A key whose mark has ended, and that nobody has swept, is as new; so are its steps. */
static void steps_end_with_their_mark(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(step_put(rig.conn, 1, 10, "lock", "first"), OUT_OK);
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK);
    time_passes(&rig);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 20), OUT_OK);
    assert_false(step_is(rig.other, 1, "lock", "first"));
    assert_int_equal(step_put(rig.other, 1, 20, "lock", "second"), OUT_OK);
    assert_true(step_is(rig.other, 1, "lock", "second"));
    rig_disconnect(&rig);
}

static void results_of_64_kib_fit_and_larger_ones_are_refused(void **state)
{
    struct rig rig;
    rig_open(&rig);
    static uint8_t large[ONCE_RESULT_MAX + 1];
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)i; /* zero bytes too */
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    struct op op = op_of(OP_STEP_PUT, 1, 10);
    op.step = bytes_str("s");
    op.result = bytes_of(large, ONCE_RESULT_MAX);
    assert_int_equal(do_op(rig.conn, &op), OUT_OK);
    struct op get = op_of(OP_STEP_GET, 1, 10);
    get.step = bytes_str("s");
    assert_int_equal(do_op(rig.conn, &get), OUT_OK);
    assert_true(bytes_equal(get.result, op.result));
    free((uint8_t *)get.result.at);

    op.step = bytes_str("t");
    op.result.len++;
    assert_int_equal(do_op(rig.conn, &op), OUT_FAILED);
    assert_non_null(strstr(op.why.text, "65536"));
    op.result.len = 1;
    op.step = bytes_of(large, ONCE_STEP_MAX + 1);
    assert_int_equal(do_op(rig.conn, &op), OUT_FAILED);
    op.step.len = 0;
    assert_int_equal(do_op(rig.conn, &op), OUT_FAILED);
    rig_disconnect(&rig);
}

/* ---- sweeping ---- */

static void a_sweep_takes_what_has_ended_and_nothing_else(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < 250; i++) {
        struct op op = op_of(OP_CLAIM, i, 10);
        op.retention_ms = i < 230 ? -FAR_MS : FAR_MS; /* rows of the first 230 may go at once */
        op.expiry_ms = i < 230 ? 0 : FAR_MS;
        assert_int_equal(do_op(rig.conn, &op), OUT_OK);
    }
    assert_int_equal(step_put(rig.conn, 3, 10, "a", "x"), OUT_OK);
    assert_int_equal(step_put(rig.conn, 240, 10, "a", "x"), OUT_OK);
    struct op sweep = {.kind = OP_SWEEP, .rows = 150};
    assert_int_equal(do_op(rig.conn, &sweep), OUT_OK);
    assert_int_equal(sweep.rows, 150);
    sweep.rows = 1000;
    assert_int_equal(do_op(rig.conn, &sweep), OUT_OK);
    assert_int_equal(sweep.rows, 80);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims}"), 20);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {steps}"), 1);
    assert_true(step_is(rig.conn, 240, "a", "x"));
    sweep.rows = 0;
    assert_int_equal(do_op(rig.conn, &sweep), OUT_OK);
    rig_disconnect(&rig);
}

/* The row of a mark goes when it ends, or a little later if that is where the claim's row stood. */
static void a_row_hardly_outlives_its_mark(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int late = 0; late < 2; late++) {
        struct op op = op_of(OP_CLAIM, 1, 10);
        op.expiry_ms = late ? op.retention_ms / 100 : op.retention_ms / 2;
        assert_int_equal(do_op(rig.conn, &op), OUT_OK);
        int64_t claimed = rig_number(&rig, "SELECT keep_ms FROM {claims}");
        assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK);
        int64_t until = rig_number(&rig, "SELECT until_ms FROM {claims}");
        assert_int_equal(rig_number(&rig, "SELECT keep_ms FROM {claims}"), late ? claimed : until);
        assert_int_equal(ask(rig.conn, OP_FORGET, 1, 10), OUT_OK);
    }
    rig_disconnect(&rig);
}

/* ---- emptied stores ---- */

static void an_emptied_store_is_noticed_and_can_be_accepted(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    (void)rig_exec(&rig, "DELETE FROM {claims}");
    (void)rig_exec(&rig, "DELETE FROM {birth}");
    struct fault why = {0};
    struct op op = op_of(OP_CLAIM, 1, 20), look = op_of(OP_LOOK, 1, 20);
    struct op sweep = {.kind = OP_SWEEP, .rows = 5};
    assert_int_equal(run_of(rig.other, &op, &why), ERR_STALE);
    assert_non_null(strstr(why.text, "emptied"));
    assert_int_equal(op.outcome, OUT_NONE);
    assert_int_equal(run_of(rig.other, &look, &why), ERR_STALE);
    assert_int_equal(run_of(rig.other, &sweep, &why), ERR_STALE);
    assert_int_equal(sql_begin(rig.other, NULL, &why), ERR_STALE);
    struct op mark = op_of(OP_FINISH, 1, 20);
    assert_int_equal(sql_begin(rig.conn, &mark, &why), ERR_STALE); /* which has a clock to guess */

    (void)rig_exec(&rig, "INSERT INTO {birth} (one, number) VALUES (1, 4)"); /* made anew */
    assert_int_equal(run_of(rig.other, &op, &why), ERR_STALE);
    assert_int_equal(sql_begin(rig.conn, &mark, &why), ERR_STALE);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims}"), 0);

    assert_int_equal(sql_accept(rig.store, rig.other, &why), OK);
    assert_int_equal(run_of(rig.other, &op, &why), OK);
    assert_int_equal(op.outcome, OUT_OK);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 30), OUT_BUSY); /* the other connection too */
    rig_disconnect(&rig);
}

/* Rows that came back without their birth, from an old copy: neither a finish nor a claim touches
 * them, also in a batch that is too large for one trip. */
static void nothing_is_written_to_a_store_of_another_birth(void **state)
{
    struct rig rig;
    static struct op ops[ONCE_OPS_MAX];
    struct op *list[ONCE_OPS_MAX];
    struct fault why = {0};
    rig_open(&rig);
    struct op claim = op_of(OP_CLAIM, 1, 10), finish = op_of(OP_FINISH, 1, 10);
    claim.retention_ms = finish.retention_ms = 1000 * (int64_t)FAR_MS; /* keep_ms stays */
    assert_int_equal(do_op(rig.conn, &claim), OUT_OK);
    rig_restore(&rig, "UPDATE {birth} SET number = 4");
    assert_int_equal(run_of(rig.conn, &finish, &why), ERR_STALE);
    for (int i = 0; i < ONCE_OPS_MAX; i++) {
        ops[i] = op_of(i < 200 ? OP_CLAIM : OP_FINISH, i + 10, 20);
        list[i] = &ops[i];
    }
    assert_int_equal(sql_run(rig.conn, list, ONCE_OPS_MAX, &why), ERR_STALE);
    for (int i = 0; i < 30; i++) { /* in one trip, with a finish that finds its row */
        ops[i] = i == 20 ? finish : op_of(i < 20 ? OP_CLAIM : OP_FINISH, i + 10, 20);
    }
    assert_int_equal(sql_run(rig.conn, list, 30, &why), ERR_STALE);
    assert_int_equal(sql_run(rig.conn, list + 20, 10, &why), ERR_STALE);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims}"), 1);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims} WHERE state = 2"), 0);
    rig_disconnect(&rig);
}

static void dropped_tables_are_an_emptied_store(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    (void)rig_exec(&rig, "DROP TABLE {claims}");
    (void)rig_exec(&rig, "DROP TABLE {birth}");
    struct fault why = {0};
    struct op op = op_of(OP_CLAIM, 1, 20);
    assert_int_equal(run_of(rig.other, &op, &why), ERR_STALE);
    assert_int_equal(sql_accept(rig.store, rig.other, &why), OK);
    assert_int_equal(run_of(rig.conn, &op, &why), OK);
    assert_int_equal(op.outcome, OUT_OK);
    rig_disconnect(&rig);
}

static void missing_tables_are_told_unless_they_may_be_created(void **state)
{
    struct rig rig = {.settings = {.wait_ms = 200, .log = rig_log}};
    struct fault why = {0};
    rig_settings(&rig);
    rig.settings.url = rig.url;
    rig.settings.table = rig.table;
    assert_int_equal(sql_open(rig.engine, &rig.settings, &rig.store, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "create"));
    rig.settings.create = true;
    rig_connect(&rig);
    rig_disconnect(&rig);
    rig.settings.create = false; /* they are there now */
    rig_connect(&rig);
    (void)rig_exec(&rig, "DROP TABLE {steps}");
    (void)rig_exec(&rig, "CREATE TABLE {steps} (id INTEGER)");
    rig_disconnect(&rig);
    rig.settings.create = true;
    assert_int_not_equal(sql_open(rig.engine, &rig.settings, &rig.store, &why), OK);
    assert_non_null(strstr(why.text, "is not as docs/once.md has it"));
}

/* ---- transactions ---- */

static void make_effects(struct rig *rig)
{
    (void)rig_exec(rig, "CREATE TABLE {plain} (n INTEGER NOT NULL PRIMARY KEY)");
}

static enum op_outcome begin_of(struct conn *conn, int key, uint64_t token)
{
    struct fault why = {0};
    struct op op = op_of(OP_FINISH, key, token);
    if (sql_begin(conn, &op, &why))
        fail_msg("%s", why.text);
    return op.outcome;
}

static void the_mark_and_the_effect_are_committed_together_or_not_at_all(void **state)
{
    struct rig rig;
    rig_open(&rig);
    make_effects(&rig);
    assert_int_equal(begin_of(rig.conn, 1, 10), OUT_OK);
    (void)rig_exec(&rig, "INSERT INTO {plain} (n) VALUES (1)");
    sql_rollback(rig.conn);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 0);
    assert_int_equal(state_of(rig.other, 1), ONCE_ABSENT);

    assert_int_equal(begin_of(rig.conn, 1, 11), OUT_OK);
    (void)rig_exec(&rig, "INSERT INTO {plain} (n) VALUES (1)");
    assert_int_equal(sql_commit(rig.conn, NULL), OK);
    assert_int_equal(state_of(rig.other, 1), ONCE_CONSUMED);
    assert_int_equal(begin_of(rig.other, 1, 12), OUT_DONE);
    assert_int_equal(begin_of(rig.conn, 1, 11), OUT_DONE);    /* its own, asked again */
    assert_int_equal(ask(rig.conn, OP_CLAIM, 2, 10), OUT_OK); /* no transaction is left open */
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 1);
    rig_disconnect(&rig);
}

/* All ways in which the mark's time is found: asked first, guessed, and guessed wrong. */
static void a_mark_lasts_as_long_as_its_retention(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int key = 1; key <= 4; key++) {
        if (key > 2) /* as if the server's clock had been set since it was seen */
            rig.conn->now_ms += key == 3 ? FAR_MS : -FAR_MS;
        assert_int_equal(begin_of(rig.conn, key, 10), OUT_OK);
        assert_int_equal(sql_commit(rig.conn, NULL), OK);
        struct op look = op_of(OP_LOOK, key, 1);
        assert_int_equal(do_op(rig.other, &look), OUT_OK);
        assert_in_range(look.left_ms, 2 * FAR_MS - 60000, 2 * FAR_MS + 2000);
    }
    time_passes(&rig);
    assert_int_equal(begin_of(rig.conn, 1, 20), OUT_OK); /* ended: it may be done again */
    assert_int_equal(sql_commit(rig.conn, NULL), OK);
    assert_int_equal(begin_of(rig.conn, 1, 21), OUT_DONE);
    rig_disconnect(&rig);
}

static void a_claim_of_another_mode_is_respected_by_marks(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(begin_of(rig.conn, 1, 20), OUT_BUSY);
    assert_int_equal(ask(rig.other, OP_RELEASE, 1, 10), OUT_OK);
    assert_int_equal(begin_of(rig.conn, 1, 20), OUT_OK);
    assert_int_equal(sql_commit(rig.conn, NULL), OK);
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 10), OUT_DONE);
    rig_disconnect(&rig);
}

/* A duplicate that comes while the first is in its transaction is told later, and nothing is
 * counted against it; after a rollback it may run. */
static void a_duplicate_of_an_open_transaction_is_busy(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(begin_of(rig.conn, 1, 10), OUT_OK);
    struct op op = op_of(OP_FINISH, 1, 20);
    assert_int_equal(sql_begin(rig.other, &op, NULL), OK);
    assert_int_equal(op.outcome, OUT_BUSY);
    assert_true(op.left_ms > 0);
    sql_rollback(rig.conn);
    assert_int_equal(begin_of(rig.other, 1, 20), OUT_OK);
    assert_int_equal(sql_commit(rig.other, NULL), OK);
    rig_disconnect(&rig);
}

/* The handler breaks a unique key of its own: that is its error, and no duplicate. */
static void another_unique_key_is_not_taken_for_a_duplicate(void **state)
{
    struct rig rig;
    rig_open(&rig);
    make_effects(&rig);
    (void)rig_exec(&rig, "INSERT INTO {plain} (n) VALUES (1)");
    assert_int_equal(begin_of(rig.conn, 1, 10), OUT_OK);
    cleanup(free_at) char *text = sql_text(rig.engine, rig.table, "INSERT INTO {plain} VALUES (1)");
    struct sql_call call = {.text = text, .once = true};
    assert_int_equal(sql_call(rig.conn, &call, NULL), ERR_EXISTS);
    sql_rollback(rig.conn);
    assert_int_equal(state_of(rig.other, 1), ONCE_ABSENT);
    assert_int_equal(begin_of(rig.conn, 1, 11), OUT_OK); /* its retry */
    assert_int_equal(sql_commit(rig.conn, NULL), OK);
    rig_disconnect(&rig);
}

#define SQL_CASES                                                                                  \
    cmocka_unit_test(a_finished_key_is_done_for_everybody),                                        \
        cmocka_unit_test(a_claim_asked_again_by_its_token_is_the_same_claim),                      \
        cmocka_unit_test(a_released_key_is_free_and_its_fence_grows),                              \
        test_of_row("H-2 H-3", a_late_owner_can_neither_finish_nor_free_its_successors_claim),     \
        cmocka_unit_test(an_expired_claim_that_nobody_took_is_still_its_owners),                   \
        cmocka_unit_test(a_forgotten_key_is_as_new_with_its_steps),                                \
        cmocka_unit_test(outcomes_are_those_of_the_rules),                                         \
        cmocka_unit_test(a_full_batch_answers_each_operation_by_itself),                           \
        cmocka_unit_test(two_operations_on_one_key_in_a_batch_follow_each_other),                  \
        cmocka_unit_test(a_step_is_recorded_once_and_outlives_a_crash),                            \
        cmocka_unit_test(steps_end_with_their_mark),                                               \
        cmocka_unit_test(results_of_64_kib_fit_and_larger_ones_are_refused),                       \
        test_of_row("H-33", a_sweep_takes_what_has_ended_and_nothing_else),                        \
        cmocka_unit_test(a_row_hardly_outlives_its_mark),                                          \
        test_of_row("H-13", nothing_is_written_to_a_store_of_another_birth),                       \
        test_of_row("H-13", an_emptied_store_is_noticed_and_can_be_accepted),                      \
        test_of_row("H-13", an_emptied_store_is_noticed_and_can_be_accepted),                      \
        test_of_row("H-13", dropped_tables_are_an_emptied_store),                                  \
        cmocka_unit_test(missing_tables_are_told_unless_they_may_be_created),                      \
        cmocka_unit_test(the_mark_and_the_effect_are_committed_together_or_not_at_all),            \
        cmocka_unit_test(a_mark_lasts_as_long_as_its_retention),                                   \
        cmocka_unit_test(a_claim_of_another_mode_is_respected_by_marks),                           \
        test_of_row("H-21", a_duplicate_of_an_open_transaction_is_busy),                           \
        test_of_row("H-19", another_unique_key_is_not_taken_for_a_duplicate)

#endif
