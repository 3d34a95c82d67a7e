/* trouble_test.c - runs on a store that goes away, comes back, is emptied; and checkers of one's
 * own. */
#include "once/fake_test.h"

#include <stdio.h>
#include <unistd.h>

struct rig {
    struct fake fake;
    struct once *once;
};

static void rig_open(struct rig *rig, struct once_options o)
{
    *rig = (struct rig){0};
    o.store = "x";
    o.group = "g";
    o.user = &rig->fake;
    if (!o.wait_ms)
        o.wait_ms = 100;
    struct once_parts parts = {.driver = &fake_driver};
    struct once_error why = {0};
    assert_int_equal(once_open_with(&o, &parts, &rig->once, &why), ONCE_OK);
}

static void go_down(struct rig *rig)
{
    atomic_store(&rig->fake.connect_fails, ERR_IO);
    atomic_store(&rig->fake.run_fails, ERR_IO);
}

static void come_back(struct rig *rig)
{
    atomic_store(&rig->fake.connect_fails, OK);
    atomic_store(&rig->fake.run_fails, OK);
}

static struct once_message message(const char *key)
{
    return (struct once_message){.topic = "T", .keys = key, .body = "b", .body_size = 1};
}

static int counts(void *user, struct once_run *run)
{
    (void)run;
    ++*(int *)user;
    return ONCE_DONE;
}

/* As a queue would bring it. */
static void do_until_free(struct rig *rig, const struct once_message *m, int *runs, int most_ms)
{
    struct once_answer a;
    while (once_do(rig->once, m, counts, runs, &a) == ONCE_LATER) {
        assert_int_equal(a.cause, ONCE_RUNNING);
        assert_true(a.wait_ms <= most_ms);
        wait_ns((uint64_t)a.wait_ms * NS_PER_MS);
    }
    assert_int_equal(a.verdict, ONCE_ACK);
}

static struct once_stats stats_of(struct once *once)
{
    struct once_stats s;
    once_stats(once, &s);
    return s;
}

static void while_the_store_is_down_nothing_runs(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){0});
    struct once_message m = message("k");
    struct once_answer a;
    int runs = 0;
    go_down(&rig);
    int64_t last = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_LATER);
        assert_int_equal(a.cause, ONCE_DOWN);
        assert_int_equal(a.why.code, ONCE_STORE);
        assert_true(a.wait_ms > 0 && a.wait_ms <= 45000);
        last = a.wait_ms;
    }
    assert_int_equal(runs, 0);
    assert_true(last >= 250);
    assert_int_equal(stats_of(rig.once).store_errors >= 5, true);
    come_back(&rig);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(runs, 1);
    once_close(rig.once);
}

static void by_choice_everything_runs_and_is_counted(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){.open_when_down = true});
    struct once_message m = message("k"), n = message("l");
    struct once_answer a;
    struct once_run *run;
    int runs = 0;
    go_down(&rig);
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    assert_int_equal(a.cause, ONCE_DOWN);
    assert_false(once_run_lost(run));
    assert_int_equal(once_run_fence(run), 0);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_DOWN);
    assert_int_equal(once_begin(rig.once, &n, &run, &a), ONCE_RUN);
    come_back(&rig); /* in time to be told */
    (void)usleep(600000);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(once_do(rig.once, &n, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_DUPLICATE);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_FIRST); /* that one the store never heard of */
    assert_int_equal(runs, 1);
    assert_int_equal(stats_of(rig.once).ran_without_store, 2);
    once_close(rig.once);
}

static void *back_soon(void *arg)
{
    struct rig *rig = arg;
    (void)usleep(700000);
    come_back(rig);
    return NULL;
}

static void what_was_done_is_told_again_until_the_store_knows(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){.expiry_ms = 30000});
    struct once_message m = message("k");
    struct once_answer a;
    struct once_run *run;
    pthread_t thread;
    int runs = 0;
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    go_down(&rig);
    assert_int_equal(pthread_create(&thread, NULL, back_soon, &rig), 0);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_FIRST);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(runs, 0);
    once_close(rig.once);
}

static void what_the_store_never_heard_is_unsure(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){.expiry_ms = 700});
    struct once_message m = message("k");
    struct once_answer a;
    struct once_run *run;
    int runs = 0;
    uint64_t before = wait_now_ns();
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    go_down(&rig);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_LATER);
    assert_true(wait_now_ns() - before >= 700 * NS_PER_MS); /* not before the claim has expired */
    assert_int_equal(a.cause, ONCE_UNSURE);
    assert_true(a.wait_ms > 0);
    come_back(&rig); /* perhaps a renewal that was on its way arrives now: one expiry more */
    do_until_free(&rig, &m, &runs, 700);
    assert_int_equal(runs, 1); /* the second time: said, and counted */
    assert_int_equal(stats_of(rig.once).unsure, 1);
    once_close(rig.once);
}

static void a_lost_release_ends_with_the_claim(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){.expiry_ms = 400});
    struct once_message m = message("k");
    struct once_answer a;
    struct once_run *run;
    int runs = 0;
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    go_down(&rig);
    assert_int_equal(once_end(run, ONCE_FAILED, &a), ONCE_RETRY);
    assert_int_equal(a.cause, ONCE_FAILED_RUN);
    come_back(&rig);
    do_until_free(&rig, &m, &runs, 400);
    assert_int_equal(runs, 1);
    once_close(rig.once);
}

/* A store error while B claims what A runs. */
static void an_error_of_one_leaves_the_claims_of_others(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){0});
    struct once_message m = message("k"), n = message("l");
    struct once_answer a;
    struct once_run *run;
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    go_down(&rig);
    int runs = 0;
    assert_int_equal(once_do(rig.once, &n, counts, &runs, &a), ONCE_LATER);
    come_back(&rig);
    struct once_look look;
    assert_int_equal(once_look(rig.once, "k", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_CONSUMING);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    once_close(rig.once);
}

/* False: it was lost while the store was there, as when the machine stands still for so long. */
static bool hears_in_time(unsigned expiry_ms)
{
    struct rig rig;
    rig_open(&rig, (struct once_options){.expiry_ms = expiry_ms});
    struct once_message m = message("k");
    struct once_answer a;
    struct once_run *run;
    assert_int_equal(once_begin(rig.once, &m, &run, &a), ONCE_RUN);
    (void)usleep(2 * expiry_ms * 1000);
    bool kept = !once_run_lost(run);
    go_down(&rig);
    uint64_t before = wait_now_ns(), looked = before;
    while (!once_run_lost(run)) {
        assert_true(looked - before <= (expiry_ms + 1) * NS_PER_MS);
        (void)usleep(1000);
        looked = wait_now_ns();
    }
    come_back(&rig);
    (void)once_end(run, ONCE_FAILED, &a);
    once_close(rig.once);
    return kept;
}

static void a_handler_hears_that_its_claim_could_not_be_renewed(void **state)
{
    (void)state;
    assert_true(hears_in_time(300) || hears_in_time(1000) || hears_in_time(3000));
}

static void an_emptied_store_stops_everything_until_accepted(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct once_options){.open_when_down = true});
    struct once_message m = message("k");
    struct once_answer a;
    int runs = 0;
    atomic_store(&rig.fake.run_fails, ERR_STALE);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_LATER);
    assert_int_equal(a.cause, ONCE_EMPTIED);
    assert_int_equal(a.why.code, ONCE_WIPED);
    atomic_store(&rig.fake.run_fails, OK);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_LATER);
    assert_int_equal(runs, 0); /* also not by open_when_down */
    assert_int_equal(once_accept_wiped(rig.once, NULL), ONCE_OK);
    assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(runs, 1);
    once_close(rig.once);
}

/* Every single request of begin and end fails once, in all ways: the effect is recorded once. */
static void an_error_at_any_request_costs_a_moment(void **state)
{
    (void)state;
    static const enum err errors[] = {ERR_IO, ERR_BUSY};
    for (int kind = 0; kind < 4; kind++) {
        for (int at = 1; at <= 3; at++) {
            struct rig rig;
            rig_open(&rig, (struct once_options){.wait_ms = 2000});
            rig.fake.run_fails_at = at;
            rig.fake.mute = kind % 2;
            atomic_store(&rig.fake.run_fails, errors[kind / 2]);
            struct once_message m = message("k");
            struct once_answer a;
            int runs = 0;
            for (int i = 0; i < 3; i++)
                assert_int_equal(once_do(rig.once, &m, counts, &runs, &a), ONCE_ACK);
            assert_int_equal(runs, 1);
            assert_int_equal(stats_of(rig.once).duplicates, 2);
            once_close(rig.once);
        }
    }
}

/* ---- a checker of one's own ---- */

struct shelf { /* one key, no more */
    struct once_claim claim;
    int state, closed, sweeps;
    int says; /* what the next call says: ONCE_STORE */
};

static int shelf_begin(void *self, const struct once_claim *claim, struct once_found *out)
{
    struct shelf *s = self;
    if (s->says)
        return s->says;
    *out = (struct once_found){.state = s->state, .left_ms = 500};
    out->fingerprint = s->claim.fingerprint;
    if (s->state == ONCE_ABSENT) {
        s->claim = *claim;
        s->state = ONCE_CONSUMING;
        out->fence = 42;
    }
    return ONCE_OK;
}

static int shelf_done(void *self, const struct once_claim *claim)
{
    struct shelf *s = self;
    if (claim->token != s->claim.token)
        return ONCE_LOST;
    s->state = ONCE_CONSUMED;
    return s->says;
}

static int shelf_failed(void *self, const struct once_claim *claim)
{
    struct shelf *s = self;
    if (claim->token != s->claim.token)
        return ONCE_LOST;
    s->state = ONCE_ABSENT;
    return s->says;
}

static void shelf_close(void *self)
{
    ((struct shelf *)self)->closed++;
}

static int fails(void *user, struct once_run *run)
{
    (void)user;
    (void)run;
    return ONCE_FAILED;
}

static const struct once_checker shelf_checker = {
    .begin = shelf_begin, .done = shelf_done, .failed = shelf_failed, .close = shelf_close};

static void a_checker_of_ones_own_is_a_store(void **state)
{
    (void)state;
    struct shelf shelf = {0};
    struct once_options o = {.checker = &shelf_checker, .checker_self = &shelf, .group = "g"};
    struct once *once;
    struct once_message m = message("k"), n = message("k");
    struct once_answer a;
    struct once_run *run;
    int runs = 0;
    n.body = "c";
    assert_int_equal(once_open(&o, &once, NULL), ONCE_OK);
    assert_int_equal(once_do(once, &m, fails, NULL, &a), ONCE_RETRY);
    assert_int_equal(once_begin(once, &m, &run, &a), ONCE_RUN);
    assert_int_equal(once_run_fence(run), 42);
    assert_string_equal(shelf.claim.name, "k");
    struct once_error why;
    assert_int_equal(once_step(run, "s", NULL, NULL, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(once_do(once, &m, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_DUPLICATE);
    assert_int_equal(once_do(once, &n, counts, &runs, &a), ONCE_ACK);
    assert_int_equal(a.cause, ONCE_OTHER_BODY);
    shelf.says = ONCE_STORE;
    assert_int_equal(once_do(once, &m, counts, &runs, &a), ONCE_LATER);
    assert_int_equal(a.cause, ONCE_DOWN);
    assert_int_equal(runs, 0);
    once_close(once);
    assert_int_equal(shelf.closed, 1);
    struct once_checker half = shelf_checker;
    half.done = NULL;
    o.checker = &half;
    assert_int_equal(once_open(&o, &once, &why), ONCE_INVALID);
    o.checker = &shelf_checker;
    o.store = "memory:";
    assert_int_equal(once_open(&o, &once, &why), ONCE_INVALID);
    o.store = NULL;
    o.mode = ONCE_TRANSACTION;
    assert_int_equal(once_open(&o, &once, &why), ONCE_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("H-11", while_the_store_is_down_nothing_runs),
        test_of_row("H-11", by_choice_everything_runs_and_is_counted),
        test_of_row("H-10", what_was_done_is_told_again_until_the_store_knows),
        test_of_row("H-10", what_the_store_never_heard_is_unsure),
        test_of_row("H-5", a_lost_release_ends_with_the_claim),
        test_of_row("H-27", an_error_of_one_leaves_the_claims_of_others),
        test_of_row("H-1", a_handler_hears_that_its_claim_could_not_be_renewed),
        test_of_row("H-13", an_emptied_store_stops_everything_until_accepted),
        cmocka_unit_test(an_error_at_any_request_costs_a_moment),
        test_of_row("ID-28", a_checker_of_ones_own_is_a_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
