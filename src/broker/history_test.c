/* What a counter did in the last minute, hour and day, against a counter whose every tick is kept.
 */
#include "broker/history.h"

#include "base/dice.h"
#include "base/test.h"

#include <stdlib.h>

#define MINUTE 6
#define HOUR   360
#define DAY    8640

static uint64_t since(const struct history *h, enum span span, uint64_t tick, uint64_t now)
{
    return now - history_then(h, span, tick)[0];
}

static void a_counter_that_rises_evenly_shows_its_rate(void **state)
{
    struct history *h = history_make(1, SPANS, 0);
    assert_non_null(h);
    uint64_t tick = 0;
    for (; tick < 3 * DAY; tick++)
        history_note(h, tick, &(uint64_t){tick * 100});
    tick--;
    uint64_t now = tick * 100;
    assert_int_equal(since(h, SPAN_MINUTE, tick, now), MINUTE * 100);
    assert_in_range(since(h, SPAN_HOUR, tick, now), HOUR * 100, (HOUR + HOUR / 6) * 100);
    assert_in_range(since(h, SPAN_DAY, tick, now), DAY * 100, (DAY + HOUR) * 100);
    uint64_t up_ns = tick * TICK_NS;
    assert_true(span_seconds(SPAN_MINUTE, up_ns) == 60);
    assert_true((double)since(h, SPAN_DAY, tick, now) / span_seconds(SPAN_DAY, up_ns) == 10);
    history_free(h);
}

/* Made in the middle of things: what its counter shows came just now. */
static void a_new_history_counts_from_zero_and_a_pause_empties_it(void **state)
{
    const uint64_t made = 5 * DAY + 17;
    struct history *h = history_make(2, SPANS, made);
    assert_non_null(h);
    history_note(h, made, (uint64_t[]){7, 70});
    for (enum span span = 0; span < SPANS; span++) {
        assert_int_equal(history_then(h, span, made)[0], 0);
        assert_int_equal(history_then(h, span, made)[1], 0);
    }
    uint64_t later = made + 2 * MINUTE;
    history_note(h, later, (uint64_t[]){7, 70});
    assert_int_equal(history_then(h, SPAN_MINUTE, later)[1], 70);
    assert_int_equal(history_then(h, SPAN_HOUR, later)[1], 0);
    later += 100 * DAY; /* nobody noted anything in between */
    history_note(h, later, (uint64_t[]){9, 90});
    for (enum span span = 0; span < SPANS; span++)
        assert_int_equal(history_then(h, span, later)[0], 9);
    history_free(h);
}

/* By chance, with ticks left out; a model keeps what the counter showed in each tick. */
static void any_course_shows_what_the_model_shows(void **state)
{
    static uint64_t shown[2 * DAY];
    static const uint64_t steps[SPANS] = {1, 60, 360}, kept[SPANS] = {7, 7, 25};
    struct dice dice = dice_seeded(4711);
    for (int course = 0; course < 20; course++) {
        uint64_t value = 0, tick = 0, noted = 0;
        struct history *h = history_make(1, SPANS, 0);
        shown[0] = 0;
        while ((tick += 1 + dice_below(&dice, dice_below(&dice, 2) ? 3 : 900)) < 2 * DAY) {
            value += dice_below(&dice, 1000);
            for (uint64_t t = noted + 1; t <= tick; t++)
                shown[t] = value; /* what was not noted is taken to have been so all along */
            noted = tick;
            history_note(h, tick, &value);
            for (enum span span = 0; span < SPANS; span++) {
                uint64_t step = tick / steps[span];
                uint64_t oldest = step >= kept[span] - 1 ? step - (kept[span] - 1) : 0;
                assert_int_equal(history_then(h, span, tick)[0], shown[oldest * steps[span]]);
            }
        }
        history_free(h);
    }
}

static void the_first_second_is_a_second(void **state)
{
    assert_true(span_seconds(SPAN_MINUTE, 0) == 1);
    assert_true(span_seconds(SPAN_DAY, TICK_NS / 2) == 5);
    assert_true(span_seconds(SPAN_MINUTE, 7 * TICK_NS + TICK_NS / 2) == 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_that_rises_evenly_shows_its_rate),
        cmocka_unit_test(a_new_history_counts_from_zero_and_a_pause_empties_it),
        cmocka_unit_test(any_course_shows_what_the_model_shows),
        cmocka_unit_test(the_first_second_is_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
