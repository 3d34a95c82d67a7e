/* steps_test.c - handlers in steps, on the memory store and on one that goes away. */
#include "once/fake_test.h"

#include <stdio.h>

static const struct once_message message = {.topic = "T", .keys = "k", .body = "b", .body_size = 1};

struct calls {
    int n;
    char keys[8][80];
    const char *result;
    int says;
    struct fake *breaks; /* the store goes away while the step is at it */
};

static int call(void *user, const char *key, struct once_bytes *result)
{
    struct calls *c = user;
    (void)snprintf(c->keys[c->n++], sizeof c->keys[0], "%s", key);
    *result = (struct once_bytes){c->result, c->result ? strlen(c->result) : 0};
    if (c->breaks) {
        atomic_store(&c->breaks->run_fails, ERR_IO);
        atomic_store(&c->breaks->connect_fails, ERR_IO);
    }
    return c->says;
}

static struct once *opened(void)
{
    struct once *once;
    struct once_options o = {.store = "memory:", .group = "g"};
    assert_int_equal(once_open(&o, &once, NULL), ONCE_OK);
    return once;
}

static void finished_steps_are_not_called_again(void **state)
{
    (void)state;
    struct once *once = opened();
    struct calls one = {.result = "stock 5"}, two = {.says = ONCE_FAILED};
    char first_key[80] = "";
    for (int delivery = 1; delivery <= 3; delivery++) {
        struct once_run *run;
        struct once_bytes result = {0};
        struct once_error why;
        assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
        assert_int_equal(once_step(run, "check", call, &one, &result, &why), ONCE_OK);
        assert_int_equal(result.size, 7);
        assert_memory_equal(result.at, "stock 5", 7);
        one.result = "another"; /* what was recorded counts */
        if (delivery == 1)
            (void)snprintf(first_key, sizeof first_key, "%s", once_step_key(run, "lock"));
        assert_string_equal(once_step_key(run, "lock"), first_key);
        assert_ptr_equal(once_step_key(run, "lock"), once_step_key(run, "lock"));
        two.says = delivery < 3 ? ONCE_FAILED : ONCE_DONE;
        int code = once_step(run, "lock", call, &two, NULL, &why);
        assert_int_equal(code, delivery < 3 ? ONCE_INVALID : ONCE_OK);
        (void)once_end(run, code ? ONCE_FAILED : ONCE_DONE, NULL);
    }
    assert_int_equal(one.n, 1);
    assert_int_equal(two.n, 3);
    for (int i = 0; i < 3; i++) /* the service sees one key, whenever it is called */
        assert_string_equal(two.keys[i], first_key);
    assert_string_not_equal(one.keys[0], two.keys[0]);
    once_close(once);
}

static void results_have_a_limit(void **state)
{
    (void)state;
    struct once *once = opened();
    struct once_run *run;
    struct once_error why;
    struct once_bytes result;
    static char big[ONCE_RESULT_MAX + 2];
    memset(big, 'r', sizeof big - 1);
    struct calls c = {.result = big};
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_step(run, "big", call, &c, NULL, &why), ONCE_STORE);
    assert_non_null(strstr(why.text, "was done"));
    big[ONCE_RESULT_MAX] = 0;
    assert_int_equal(once_step(run, "big", call, &c, &result, &why), ONCE_OK);
    assert_int_equal(result.size, ONCE_RESULT_MAX);
    struct calls none = {0};
    assert_int_equal(once_step(run, "none", call, &none, &result, &why), ONCE_OK);
    assert_int_equal(result.size, 0);
    assert_int_equal(once_step(run, "none", call, &none, &result, &why), ONCE_OK);
    assert_int_equal(none.n, 1);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

static void a_lost_claim_does_no_more_steps(void **state)
{
    (void)state;
    struct clock_manual clock;
    clock_manual_init(&clock, 1700000000000);
    struct once_parts parts = {.clock = &clock.clock, .no_keeper = true};
    struct once_options o = {.store = "memory:", .group = "g"};
    struct once *once;
    struct once_run *run;
    struct once_error why;
    struct calls c = {0};
    assert_int_equal(once_open_with(&o, &parts, &once, NULL), ONCE_OK);
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    clock_manual_advance(&clock, 30000);
    assert_int_equal(once_step(run, "s", call, &c, NULL, &why), ONCE_LOST);
    assert_int_equal(c.n, 0);
    assert_int_equal(once_end(run, ONCE_FAILED, NULL), ONCE_RETRY);
    /* Forgotten by an operator while the step is done: it cannot be recorded. */
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_forget(once, "k", 1, NULL), ONCE_OK);
    assert_int_equal(once_step(run, "s", call, &c, NULL, &why), ONCE_STORE);
    assert_non_null(strstr(why.text, "was done"));
    assert_true(once_run_lost(run));
    struct once_answer a;
    assert_int_equal(once_end(run, ONCE_DONE, &a), ONCE_LATER);
    assert_int_equal(a.cause, ONCE_LOST_CLAIM);
    once_close(once);
}

static void a_store_that_goes_away_is_told_apart(void **state)
{
    (void)state;
    struct fake fake = {0};
    struct once_options o = {
        .store = "x", .group = "g", .user = &fake, .wait_ms = 50, .expiry_ms = 500};
    struct once_parts parts = {.driver = &fake_driver};
    struct once *once;
    struct once_run *run;
    struct once_error why;
    struct calls c = {.breaks = &fake};
    assert_int_equal(once_open_with(&o, &parts, &once, NULL), ONCE_OK);
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_step(run, "s", call, &c, NULL, &why), ONCE_STORE);
    assert_non_null(strstr(why.text, "was done"));
    assert_int_equal(once_step(run, "t", call, &c, NULL, &why), ONCE_STORE);
    assert_non_null(strstr(why.text, "not done"));
    assert_int_equal(c.n, 1);
    (void)once_end(run, ONCE_FAILED, NULL);
    once_close(once);
}

static void the_table_has_no_steps(void **state)
{
    (void)state;
    struct once *once;
    struct once_run *run;
    struct once_error why;
    struct calls c = {0};
    struct once_options o = {.store = "memory:", .group = "g", .mode = ONCE_TABLE};
    assert_int_equal(once_open(&o, &once, NULL), ONCE_OK);
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_step(run, "s", call, &c, NULL, &why), ONCE_MISUSE);
    assert_int_equal(c.n, 0);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("ID-10 H-31", finished_steps_are_not_called_again),
        cmocka_unit_test(results_have_a_limit),
        cmocka_unit_test(a_lost_claim_does_no_more_steps),
        cmocka_unit_test(a_store_that_goes_away_is_told_apart),
        cmocka_unit_test(the_table_has_no_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
