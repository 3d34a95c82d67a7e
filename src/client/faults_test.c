/* faults_test.c - how long brokers are left out, by a clock of the test. */
#include "client/parts_int.h"

#include "base/test.h"

#include <stdio.h>

static void note(struct faults *f, const char *broker, enum sent how, int64_t took_ms,
                 int64_t now_ms)
{
    assert_int_equal(faults_note(f, broker, how, took_ms, now_ms), OK);
}

/* The table of the Java client 5.x: slow from now on, until exactly then. */
static void the_slower_the_longer(void **state)
{
    (void)state;
    static const struct {
        int64_t took_ms, out_ms;
    } cases[] = {
        {0, 0},       {549, 0},     {550, 2000},   {1799, 2000},   {1800, 5000},   {2999, 5000},
        {3000, 6000}, {4999, 6000}, {5000, 10000}, {14999, 10000}, {15000, 30000}, {99999, 30000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct faults f = {0};
        note(&f, "a", SENT, cases[i].took_ms, 1000);
        assert_int_equal(faults_slow(&f, "a", 1000), cases[i].out_ms > 0);
        assert_int_equal(faults_slow(&f, "a", 1000 + cases[i].out_ms - 1), cases[i].out_ms > 0);
        assert_false(faults_slow(&f, "a", 1000 + cases[i].out_ms));
        assert_false(faults_slow(&f, "b", 1000));
        assert_false(faults_unreachable(&f, "a"));
        faults_clear(&f);
    }
}

static void a_failure_counts_as_ten_seconds(void **state)
{
    (void)state;
    struct faults f = {0};
    note(&f, "a", SENT_FAILED, 1, 0);
    assert_true(faults_slow(&f, "a", 9999));
    assert_false(faults_slow(&f, "a", 10000));
    assert_false(faults_unreachable(&f, "a"));
    faults_clear(&f);
}

static void a_quick_answer_does_not_shorten_it(void **state)
{
    (void)state;
    struct faults f = {0};
    note(&f, "a", SENT, 15000, 0);
    note(&f, "a", SENT, 3, 100);
    note(&f, "a", SENT, 600, 200);
    assert_true(faults_slow(&f, "a", 29999));
    note(&f, "a", SENT, 600, 29000); /* but a later fault makes it longer */
    assert_true(faults_slow(&f, "a", 30999));
    assert_false(faults_slow(&f, "a", 31000));
    faults_clear(&f);
}

static void out_of_reach_lasts_until_somebody_reaches_it(void **state)
{
    (void)state;
    struct faults f = {0};
    note(&f, "a", SENT_UNREACHABLE, 1, 0);
    assert_true(faults_unreachable(&f, "a"));
    assert_true(faults_slow(&f, "a", 9999));
    assert_false(faults_slow(&f, "a", 1000000));
    assert_true(faults_unreachable(&f, "a"));
    faults_reached(&f, "a");
    assert_false(faults_unreachable(&f, "a"));
    note(&f, "a", SENT_UNREACHABLE, 1, 0);
    note(&f, "a", SENT, 1, 0);
    assert_false(faults_unreachable(&f, "a"));
    note(&f, "a", SENT_UNREACHABLE, 1, 0);
    faults_forget(&f, "a");
    assert_false(faults_unreachable(&f, "a"));
    assert_false(faults_slow(&f, "a", 1));
    faults_reached(&f, "nobody");
    faults_forget(&f, "nobody");
    faults_clear(&f);
}

/* Names come from name servers, so there may be any number of them. */
static void the_table_has_a_limit(void **state)
{
    (void)state;
    struct faults f = {0};
    char name[32];
    note(&f, "first", SENT, 600, 0); /* ends first */
    for (int i = 0; i < 3 * FAULTS_MAX; i++) {
        snprintf(name, sizeof name, "broker-%d", i);
        note(&f, name, SENT_FAILED, 1, i);
        assert_true(f.n <= FAULTS_MAX);
        assert_true(faults_slow(&f, name, i));
    }
    assert_int_equal(f.n, FAULTS_MAX);
    assert_false(faults_slow(&f, "first", 1));
    faults_clear(&f);
}

/* A broker without a fault takes no place, and one whose fault is over gives its place away. */
static void only_faults_are_remembered(void **state)
{
    (void)state;
    struct faults f = {0};
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "broker-%d", i);
        note(&f, name, SENT, 10, i);
    }
    assert_int_equal(f.n, 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "broker-%d", i);
        note(&f, name, SENT, 600, i * 1000);
    }
    assert_true(f.n <= 3);
    faults_clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slower_the_longer),
        cmocka_unit_test(a_failure_counts_as_ten_seconds),
        cmocka_unit_test(a_quick_answer_does_not_shorten_it),
        cmocka_unit_test(out_of_reach_lasts_until_somebody_reaches_it),
        cmocka_unit_test(the_table_has_a_limit),
        cmocka_unit_test(only_faults_are_remembered),
    };
    return cmocka_run_group_tests_name("client/faults", tests, NULL, NULL);
}
