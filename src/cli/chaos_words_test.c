#include "base/test.h"
#include "cli/chaos_int.h"

static void a_share_is_a_percentage_or_a_part_of_one(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t millionths;
    } good[] = {{"10%", 100000}, {"0.1", 100000}, {"100%", 1000000}, {"1", 1000000},
                {"0", 0},        {"0%", 0},       {"0.5%", 5000},    {"33.3%", 333000}};
    static const char *const bad[] = {"",     "%",    "101%", "1.1",
                                      "-1%",  "ten",  "10 %", "1e1",
                                      "10%%", "1..2", "nan",  "00000000000000000000000000001"};
    int64_t got;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(chaos_share(good[i].text, &got));
        assert_int_equal(got, good[i].millionths);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(chaos_share(bad[i], &got));
}

static void a_rate_is_told_by_the_minute_or_the_second(void **state)
{
    (void)state;
    int64_t got;
    assert_true(chaos_rate("6/min", &got) && got == 6);
    assert_true(chaos_rate("6", &got) && got == 6);
    assert_true(chaos_rate("0", &got) && got == 0);
    assert_true(chaos_rate("1.5/s", &got) && got == 90);
    static const char *const bad[] = {"", "/min", "6/h", "-6", "101/s", "6000.9/min", "0.1/min"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(chaos_rate(bad[i], &got));
}

static void a_range_has_two_ends_or_begins_at_nothing(void **state)
{
    (void)state;
    int64_t min, max;
    assert_true(chaos_range("0..50ms", &min, &max) && min == 0 && max == 50);
    assert_true(chaos_range("10ms..1s", &min, &max) && min == 10 && max == 1000);
    assert_true(chaos_range("50ms", &min, &max) && min == 0 && max == 50);
    static const char *const bad[] = {
        "",           "..", "5ms..", "..5ms",
        "50ms..10ms", "2h", "fast",  "11111111111111111111111111111111111111ms..5s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(chaos_range(bad[i], &min, &max));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_a_percentage_or_a_part_of_one),
        cmocka_unit_test(a_rate_is_told_by_the_minute_or_the_second),
        cmocka_unit_test(a_range_has_two_ends_or_begins_at_nothing),
    };
    return cmocka_run_group_tests_name("chaos_words", tests, NULL, NULL);
}
