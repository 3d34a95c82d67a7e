/* The clock that can be put forward. The system's own is only looked at from both sides. */
#include "base/clock.h"
#include "base/test.h"

static void runs_with_the_systems_clock_and_a_lead(void **state)
{
    (void)state;
    struct clock_virtual c;
    clock_virtual_init(&c, 5000);
    int64_t wall_before = clock_ms(clock_system());
    uint64_t mono_before = clock_ns(clock_system());
    int64_t wall = clock_ms(&c.clock);
    uint64_t mono = clock_ns(&c.clock);
    assert_true(wall >= wall_before + 5000);
    assert_true(wall <= clock_ms(clock_system()) + 5000);
    assert_true(mono >= mono_before + 5000000000u);
    assert_true(mono <= clock_ns(clock_system()) + 5000000000u);
}

static void one_that_does_not_sleep_counts_at_least_as_much(void **state)
{
    (void)state;
    uint64_t mono = clock_ns(clock_system());
    uint64_t sleepless = clock_ns(clock_sleepless()); /* since the same start, with all sleep */
    assert_true(sleepless >= mono);
    assert_true(clock_ns(clock_sleepless()) >= sleepless);
}

static void jumps_by_what_it_is_told_in_both_readings(void **state)
{
    (void)state;
    struct clock_virtual c;
    clock_virtual_init(&c, 0);
    const int64_t three_days = 72 * 3600 * 1000;
    int64_t wall = clock_ms(&c.clock);
    uint64_t mono = clock_ns(&c.clock);
    assert_int_equal(clock_virtual_advance(&c, three_days), OK);
    assert_true(clock_ms(&c.clock) >= wall + three_days);
    assert_true(clock_ns(&c.clock) >= mono + (uint64_t)three_days * 1000000u);
    assert_int_equal(clock_virtual_advance(&c, 1), OK);
    assert_true(clock_ms(&c.clock) >= wall + three_days + 1);
}

/* Never back, and never so far that a reading in nanoseconds would not fit. */
static void refuses_to_go_back_or_too_far(void **state)
{
    (void)state;
    struct clock_virtual c;
    clock_virtual_init(&c, 7);
    static const int64_t bad[] = {0, -1, INT64_MIN, INT64_MAX, CLOCK_AHEAD_MAX_MS - 6};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(clock_virtual_advance(&c, bad[i]), ERR_RANGE);
    assert_int_equal(atomic_load(&c.ahead_ms), 7);
    assert_int_equal(clock_virtual_advance(&c, CLOCK_AHEAD_MAX_MS - 7), OK);
    assert_int_equal(clock_virtual_advance(&c, 1), ERR_RANGE);
    assert_true(clock_ns(&c.clock) > clock_ns(clock_system()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_with_the_systems_clock_and_a_lead),
        cmocka_unit_test(one_that_does_not_sleep_counts_at_least_as_much),
        cmocka_unit_test(jumps_by_what_it_is_told_in_both_readings),
        cmocka_unit_test(refuses_to_go_back_or_too_far),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
