/* misuse_test.c - calls that make no sense have a defined result: through the public header only.
 */
#include "once.h"

#include "base/test.h"

#include <string.h>

static const struct once_options options = {.store = "memory:", .group = "g"};
static const struct once_message message = {.topic = "T", .keys = "k", .body = "b", .body_size = 1};

static struct once *opened(void)
{
    struct once *once;
    assert_int_equal(once_open(&options, &once, NULL), ONCE_OK);
    return once;
}

static int done(void *user, struct once_run *run)
{
    (void)user;
    (void)run;
    return ONCE_DONE;
}

static int step(void *user, const char *key, struct once_bytes *result)
{
    (void)user;
    (void)result;
    assert_int_equal(strlen(key), 64);
    return ONCE_DONE;
}

static int send(void *user, const struct once_message *m)
{
    (void)user;
    (void)m;
    return 0;
}

static void null_is_an_argument_like_any_other(void **state)
{
    (void)state;
    struct once *once = NULL;
    struct once_run *run = NULL;
    struct once_error why;
    struct once_answer a;
    assert_int_equal(once_open(NULL, &once, &why), ONCE_INVALID);
    assert_int_equal(once_open(&options, NULL, &why), ONCE_INVALID);
    once_close(NULL);
    assert_int_equal(once_do(NULL, &message, done, NULL, &a), ONCE_LATER);
    assert_int_equal(a.why.code, ONCE_INVALID);
    assert_int_equal(once_begin(NULL, &message, &run, &a), ONCE_LATER);
    assert_int_equal(once_end(NULL, ONCE_DONE, &a), ONCE_LATER);
    once_begin_all(NULL, &message, 1, &run, &a);
    assert_int_equal(a.verdict, ONCE_LATER);
    once = opened();
    assert_int_equal(once_do(once, NULL, done, NULL, &a), ONCE_LATER);
    assert_int_equal(once_do(once, &message, NULL, NULL, &a), ONCE_LATER);
    assert_int_equal(once_begin(once, &message, NULL, &a), ONCE_LATER);
    once_begin_all(once, NULL, 1, &run, &a);
    once_begin_all(once, NULL, 0, &run, &a);
    once_end_all(NULL, NULL, 1, NULL);
    run = NULL;
    once_end_all(&run, &(int){ONCE_DONE}, 1, &a);
    struct once_stats stats = {.duplicates = 5};
    once_stats(NULL, &stats);
    assert_int_equal(stats.duplicates, 0);
    once_stats(once, NULL);
    struct once_look look;
    assert_int_equal(once_look(NULL, "k", 1, &look, &why), ONCE_INVALID);
    assert_int_equal(once_look(once, NULL, 1, &look, &why), ONCE_INVALID);
    assert_int_equal(once_look(once, "k", 1, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_forget(NULL, "k", 1, &why), ONCE_INVALID);
    assert_int_equal(once_accept_wiped(NULL, &why), ONCE_INVALID);
    assert_int_equal(once_accept_wiped(once, &why), ONCE_OK); /* nothing was emptied */
    assert_string_equal(once_run_key(NULL), "");
    assert_int_equal(once_run_key_size(NULL), 0);
    assert_int_equal(once_run_fence(NULL), 0);
    assert_int_equal(once_run_attempt(NULL), 0);
    assert_false(once_run_lost(NULL));
    assert_false(once_run_overtook(NULL));
    assert_null(once_run_connection(NULL));
    assert_int_equal(once_step(NULL, "s", step, NULL, NULL, &why), ONCE_INVALID);
    assert_string_equal(once_step_key(NULL, "s"), "");
    assert_int_equal(once_do(once, &message, done, NULL, NULL), ONCE_ACK); /* no answer wanted */
    once_close(once);
}

static void what_needs_a_transaction_says_so(void **state)
{
    (void)state;
    struct once *once = opened();
    struct once_run *run;
    struct once_error why;
    int out;
    int64_t start;
    const struct once_state_guard states = {"t", "k", "1", "s", "a", "b", NULL};
    const struct once_version_guard versions = {"t", "k", "1", "v", 3};
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_null(once_run_connection(run));
    assert_int_equal(once_guard_state(run, &states, &out, &why), ONCE_MISUSE);
    assert_int_equal(once_guard_version(run, &versions, &out, &why), ONCE_MISUSE);
    assert_int_equal(once_guard_lock(run, "t", "k", "1", &out, &why), ONCE_MISUSE);
    assert_int_equal(once_guard_lock(NULL, "t", "k", "1", &out, &why), ONCE_INVALID);
    assert_int_equal(once_outbox_add(run, &message, &why), ONCE_MISUSE);
    assert_int_equal(once_outbox_add(run, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_outbox_send(once, 1, send, NULL, NULL, &why), ONCE_MISUSE);
    assert_int_equal(once_outbox_send(NULL, 1, send, NULL, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_queue_take(once, "T", "b", 0, 0, &start, &why), ONCE_MISUSE);
    assert_int_equal(once_queue_take(NULL, "T", "b", 0, 0, &start, &why), ONCE_INVALID);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

static void names_of_steps_are_1_to_64_bytes(void **state)
{
    (void)state;
    struct once *once = opened();
    struct once_run *run;
    struct once_error why;
    char name[66];
    memset(name, 'n', sizeof name);
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_step(run, NULL, step, NULL, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_step(run, "", step, NULL, NULL, &why), ONCE_INVALID);
    name[65] = 0;
    assert_int_equal(once_step(run, name, step, NULL, NULL, &why), ONCE_INVALID);
    assert_string_equal(once_step_key(run, name), "");
    name[64] = 0;
    assert_int_equal(once_step(run, name, step, NULL, NULL, &why), ONCE_OK);
    assert_int_equal(once_step(run, "s", NULL, NULL, NULL, &why), ONCE_INVALID);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

static void a_run_that_outlives_the_close_ends_well(void **state)
{
    (void)state;
    struct once *once = opened();
    struct once_run *runs[2], *late;
    struct once_answer a;
    struct once_message other = message;
    other.keys = "l";
    assert_int_equal(once_begin(once, &message, &runs[0], NULL), ONCE_RUN);
    assert_int_equal(once_begin(once, &other, &runs[1], NULL), ONCE_RUN);
    once_close(once); /* not yet gone: two runs hold it */
    other.keys = "m";
    assert_int_equal(once_begin(once, &other, &late, &a), ONCE_LATER);
    assert_int_equal(a.why.code, ONCE_CLOSED);
    assert_null(late);
    assert_int_equal(once_end(runs[0], ONCE_DONE, &a), ONCE_ACK);
    assert_int_equal(once_end(runs[1], ONCE_FAILED, &a), ONCE_RETRY); /* and now it is gone */
}

static void every_code_and_cause_has_words(void **state)
{
    (void)state;
    for (int code = -1; code <= ONCE_CLOSED + 1; code++)
        assert_true(strlen(once_code_text(code)) > 1);
    for (int cause = ONCE_FIRST; cause <= ONCE_CONFLICT; cause++) {
        assert_true(strlen(once_cause_text(cause)) > 1);
        assert_null(strchr(once_cause_text(cause), ' '));
    }
    assert_non_null(once_cause_text(-1));
    assert_non_null(once_cause_text(999));
}

static void keys_of_any_bytes_are_keys(void **state)
{
    (void)state;
    static char big[1 << 16];
    struct once *once;
    struct once_options o = options;
    o.key = "{body.k}";
    assert_int_equal(once_open(&o, &once, NULL), ONCE_OK);
    int runs = 0;
    static const char *const bodies[] = {"{\"k\":\"a\\u0000b\"}", "{\"k\":\"a\\u0000c\"}",
                                         "{\"k\":\"a\"}", "{\"k\":\"A\"}", "{\"k\":\"a \"}"};
    for (size_t i = 0; i < 5; i++) {
        struct once_run *run;
        struct once_message m = {.body = bodies[i], .body_size = strlen(bodies[i])};
        runs += once_begin(once, &m, &run, NULL) == ONCE_RUN;
        if (i == 0) {
            assert_int_equal(once_run_key_size(run), 3);
            assert_memory_equal(once_run_key(run), "a\0b", 4);
        }
        assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    }
    assert_int_equal(runs, 5);
    memset(big, 'x', sizeof big);
    memcpy(big, "{\"k\":\"", 6);
    memcpy(big + sizeof big - 2, "\"}", 2);
    struct once_message m = {.body = big, .body_size = sizeof big};
    assert_int_equal(once_do(once, &m, done, NULL, NULL), ONCE_ACK);
    once_close(once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_an_argument_like_any_other),
        cmocka_unit_test(what_needs_a_transaction_says_so),
        cmocka_unit_test(names_of_steps_are_1_to_64_bytes),
        cmocka_unit_test(a_run_that_outlives_the_close_ends_well),
        cmocka_unit_test(every_code_and_cause_has_words),
        test_of_row("H-16 H-17", keys_of_any_bytes_are_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
