/* What another process may do between the moment a row is read and the moment it is written, on an
 * engine whose transactions protect from nothing: the writes alone have to. */
#include "once/sql_folder_test.h"

#include <string.h>

static void (*meanwhile)(void); /* done once, right before the next write */
static struct rig us, them;     /* the same file */

static bool is_write(const struct sql_call *call)
{
    return strncmp(call->text, "SELECT", 6) != 0;
}

static enum err racy_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                         struct fault *why)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++) {
        void (*now)(void) = is_write(&calls[i]) ? meanwhile : NULL;
        if (now) {
            meanwhile = NULL;
            now();
        }
        err = sql_engine_sqlite.run(conn, &calls[i], 1, failed, why);
        *failed = i;
    }
    return err;
}

static enum err racy_begin(struct sql_conn *conn, bool writes, struct fault *why)
{
    return OK;
}

static enum err racy_commit(struct sql_conn *conn, struct fault *why)
{
    return OK;
}

static void racy_rollback(struct sql_conn *conn)
{
}

static struct sql_engine racy;

static void race_open(void)
{
    rig_open(&them);
    racy = sql_engine_sqlite;
    racy.run = racy_run;
    racy.begin = racy_begin;
    racy.commit = racy_commit;
    racy.rollback = racy_rollback;
    us = them;
    us.engine = &racy;
    us.settings.url = us.url;
    us.settings.table = us.table;
    rig_connect(&us);
    meanwhile = NULL;
}

static void race_close(void)
{
    assert_null(meanwhile); /* it did happen */
    rig_disconnect(&us);
    rig_disconnect(&them);
}

static void they_claim(void)
{
    assert_int_equal(ask(them.conn, OP_CLAIM, 1, 20), OUT_OK);
}

static void they_finish(void)
{
    assert_int_equal(ask(them.conn, OP_FINISH, 1, 20), OUT_OK);
}

static void they_renew(void)
{
    assert_int_equal(ask(them.conn, OP_RENEW, 1, 20), OUT_OK);
}

static void of_two_first_claims_one_gets_it(void **state)
{
    race_open();
    meanwhile = they_claim;
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_BUSY);
    race_close();
}

/* Finishing leaves token and fence as they were: to compare these alone would undo it. */
static void a_claim_does_not_overwrite_a_finish_that_came_between(void **state)
{
    race_open();
    they_claim();
    time_passes(&them);
    meanwhile = they_finish;
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_DONE);
    assert_int_equal(state_of(them.conn, 1), ONCE_CONSUMED);
    race_close();
}

static void a_claim_does_not_overwrite_a_renewal_that_came_between(void **state)
{
    race_open();
    they_claim();
    time_passes(&them);
    meanwhile = they_renew;
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_BUSY);
    race_close();
}

static void a_finish_that_is_overtaken_is_lost(void **state)
{
    race_open();
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_OK);
    time_passes(&them);
    meanwhile = they_claim;
    assert_int_equal(ask(us.conn, OP_FINISH, 1, 10), OUT_LOST);
    assert_int_equal(state_of(them.conn, 1), ONCE_CONSUMING);
    assert_int_equal(ask(them.conn, OP_RENEW, 1, 20), OUT_OK);
    race_close();
}

static void a_release_that_is_overtaken_deletes_nothing(void **state)
{
    race_open();
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(step_put(us.conn, 1, 10, "a", "x"), OUT_OK);
    time_passes(&them);
    meanwhile = they_claim;
    struct op op = op_of(OP_RELEASE, 1, 10);
    op.forget = true;
    assert_int_equal(do_op(us.conn, &op), OUT_LOST);
    assert_int_equal(ask(them.conn, OP_RENEW, 1, 20), OUT_OK);
    assert_true(step_is(them.conn, 1, "a", "x"));
    race_close();
}

static void a_sweep_leaves_what_was_taken_meanwhile(void **state)
{
    race_open();
    assert_int_equal(ask(us.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(step_put(us.conn, 1, 10, "a", "x"), OUT_OK);
    (void)rig_exec(&them, "UPDATE {claims} SET until_ms = 1, keep_ms = 1");
    meanwhile = they_claim;
    struct op sweep = {.kind = OP_SWEEP, .rows = 10};
    assert_int_equal(do_op(us.conn, &sweep), OUT_OK);
    assert_int_equal(sweep.rows, 0);
    assert_int_equal(ask(them.conn, OP_RENEW, 1, 20), OUT_OK);
    assert_true(step_is(them.conn, 1, "a", "x"));
    race_close();
}

/* One of a batch loses; the others are not touched by that, and the loser's own body is what it was
 * when it is decided again. */
static void of_a_batch_only_the_loser_is_decided_again(void **state)
{
    race_open();
    meanwhile = they_claim;
    struct op ops[] = {op_of(OP_CLAIM, 0, 10), op_of(OP_CLAIM, 1, 10), op_of(OP_CLAIM, 2, 10)};
    struct op *list[] = {&ops[0], &ops[1], &ops[2]};
    assert_int_equal(sql_run(us.conn, list, 3, NULL), OK);
    assert_int_equal(ops[0].outcome, OUT_OK);
    assert_int_equal(ops[1].outcome, OUT_BUSY);
    assert_int_equal(ops[2].outcome, OUT_OK);
    race_close();
}

static void they_mark(void)
{
    struct op op = op_of(OP_FINISH, 1, 20);
    assert_int_equal(sql_begin(them.conn, &op, NULL), OK);
    assert_int_equal(op.outcome, OUT_OK);
    assert_int_equal(sql_commit(them.conn, NULL), OK);
}

/* Once with the clock asked first, once with the clock guessed. */
static void of_two_marks_one_is_written(void **state)
{
    for (int guess = 0; guess < 2; guess++) {
        race_open();
        struct op op = op_of(OP_FINISH, 2, 10);
        if (guess)
            assert_int_equal(sql_begin(us.conn, &op, NULL), OK);
        meanwhile = they_mark;
        op = op_of(OP_FINISH, 1, 10);
        assert_int_equal(sql_begin(us.conn, &op, NULL), OK);
        assert_int_equal(op.outcome, OUT_DONE);
        meanwhile = NULL;
        race_close();
    }
}

static int64_t their_epoch;

static void they_take(void)
{
    struct place place = {.offset = 3};
    assert_int_equal(sql_place_take(them.conn, &place, NULL), OK);
    their_epoch = place.epoch;
}

/* Of a new queue and of one that is known. */
static void of_two_owners_the_later_has_the_higher_epoch(void **state)
{
    for (int known = 0; known < 2; known++) {
        race_open();
        if (known)
            they_take();
        meanwhile = they_take;
        struct place place = {.offset = 7};
        enum err err = sql_place_take(us.conn, &place, NULL);
        assert_int_equal(err, known ? ERR_BUSY : OK); /* no lock here keeps them apart: once more */
        if (err)
            assert_int_equal(sql_place_take(us.conn, &place, NULL), OK);
        assert_true(place.epoch > their_epoch);
        assert_int_equal(place.offset, 3);

        enum op_outcome outcome;
        meanwhile = they_take;
        assert_int_equal(sql_place_mark(us.conn, &place, &outcome, NULL), OK);
        assert_int_equal(outcome, OUT_LOST);
        race_close();
    }
}

static void they_never_stop(void)
{
    (void)rig_exec(&them, "UPDATE {claims} SET until_ms = until_ms + 1");
    meanwhile = they_never_stop;
}

static void who_always_loses_is_told_busy(void **state)
{
    race_open();
    they_claim();
    time_passes(&them);
    meanwhile = they_never_stop;
    struct fault why = {0};
    struct op op = op_of(OP_CLAIM, 1, 10);
    op.fingerprint = 5;
    assert_int_equal(run_of(us.conn, &op, &why), ERR_BUSY);
    assert_int_equal(op.outcome, OUT_NONE);
    assert_int_equal(op.fingerprint, 5);
    meanwhile = NULL;
    race_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_first_claims_one_gets_it),
        test_of_row("H-3", a_claim_does_not_overwrite_a_finish_that_came_between),
        cmocka_unit_test(a_claim_does_not_overwrite_a_renewal_that_came_between),
        test_of_row("H-3", a_finish_that_is_overtaken_is_lost),
        test_of_row("H-2", a_release_that_is_overtaken_deletes_nothing),
        cmocka_unit_test(a_sweep_leaves_what_was_taken_meanwhile),
        cmocka_unit_test(of_a_batch_only_the_loser_is_decided_again),
        test_of_row("H-18", of_two_marks_one_is_written),
        test_of_row("H-29", of_two_owners_the_later_has_the_higher_epoch),
        cmocka_unit_test(who_always_loses_is_told_busy),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
