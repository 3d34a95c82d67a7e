#include "base/test.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <time.h>

#define NOW 1763294400000LL /* 2025-11-16T12:00:00Z */

static void numbers_may_have_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t number;
    } good[] = {{"0", 0},        {"100", 100},   {"10k", 10000},
                {"2M", 2000000}, {"1.5k", 1500}, {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {
        "", "-1", "k", "1.5", "1..5k", "10x", "9223372036854775808", "1e3", " 1", ".5k"};
    int64_t n;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(value_number(good[i].text, &n));
        assert_int_equal(n, good[i].number);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(value_number(bad[i], &n));
}

static void sizes_are_powers_of_two(void **state)
{
    (void)state;
    int64_t n;
    assert_true(value_size("4k", &n) && n == 4096);
    assert_true(value_size("4KiB", &n) && n == 4096);
    assert_true(value_size("1.5MiB", &n) && n == 1572864);
    assert_true(value_size("1g", &n) && n == 1LL << 30);
    assert_false(value_size("4 k", &n));
    assert_false(value_size("kib", &n));
}

static void durations_add_up_and_a_bare_number_is_seconds(void **state)
{
    (void)state;
    int64_t ms;
    assert_true(value_duration("90s", &ms) && ms == 90000);
    assert_true(value_duration("90", &ms) && ms == 90000);
    assert_true(value_duration("1h30m", &ms) && ms == 5400000);
    assert_true(value_duration("250ms", &ms) && ms == 250);
    assert_true(value_duration("1m250ms", &ms) && ms == 60250);
    assert_true(value_duration("1.5s", &ms) && ms == 1500);
    assert_true(value_duration("2d", &ms) && ms == 172800000);
    static const char *const bad[] = {"",     "s",  "-1s",    "1y",
                                      "1h30", "h1", "1h 30m", "99999999999999999999d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(value_duration(bad[i], &ms));
}

static void times_are_absolute_or_told_from_now(void **state)
{
    (void)state;
    int64_t ms;
    assert_int_equal(setenv("TZ", "Asia/Shanghai", 1), 0); /* UTC+8, no summer time */
    tzset();
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"now", NOW},
        {"-1h", NOW - 3600000},
        {"+90s", NOW + 90000},
        {"1763294400000", NOW},
        {"2025-11-16T12:00:00Z", NOW},
        {"2025-11-16T12:00:00.250Z", NOW + 250},
        {"2025-11-16T13:00:00+01:00", NOW},
        {"2025-11-16T20:00:00", NOW},
        {"2025-11-16 20:00", NOW},
        {"20:00", NOW},
        {"20:00:01", NOW + 1000},
        {"2025-11-16", NOW - 20 * 3600000LL},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!value_time(good[i].text, NOW, &ms))
            fail_msg("%s is no time", good[i].text);
        assert_int_equal(ms, good[i].ms);
    }
    static const char *const bad[] = {
        "",  "yesterday", "12",          "25:00",           "2025-13-01", "2025-11-16T12:00:00X",
        "-", "-1",        "2025-11-16T", "-99999999999999d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (value_time(bad[i], NOW, &ms) && i != 7) /* -1: a second ago */
            fail_msg("%s is a time: %lld", bad[i], (long long)ms);
}

static void the_nearest_word_is_near(void **state)
{
    (void)state;
    static const char *const words[] = {"topic list", "topic create", "group list", "send"};
    assert_string_equal(nearest_word("topic lst", words, 4), "topic list");
    assert_string_equal(nearest_word("sned", words, 4), "send");
    assert_string_equal(nearest_word("topic", words, 4), "topic list");
    assert_null(nearest_word("zzzzzz", words, 4));
    assert_null(
        nearest_word("a very long word that nobody would ever have meant to say here", words, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_may_have_a_unit),
        cmocka_unit_test(sizes_are_powers_of_two),
        cmocka_unit_test(durations_add_up_and_a_bare_number_is_seconds),
        cmocka_unit_test(times_are_absolute_or_told_from_now),
        cmocka_unit_test(the_nearest_word_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
