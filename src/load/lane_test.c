/* Schedules and tallies, with the clock in the test's hands. */
#include "base/test.h"
#include "load/load_int.h"

#define MS NS_OF_MS

static struct run run_of(struct load_options options, uint64_t from_ms, uint64_t until_ms)
{
    struct run run = {.clock = clock_system(), .begin_ns = 1000 * MS};
    load_defaults(&options, &run.options);
    run.from_ns = run.begin_ns + from_ms * MS;
    run.until_ns = until_ms ? run.begin_ns + until_ms * MS : UINT64_MAX;
    room_init(&run.room, "run", ROOM_LEAF);
    return run;
}

static enum claim claim(struct lane *lane, uint64_t at_ms, uint64_t *due_ms)
{
    uint64_t due_ns = 0;
    room_enter(&lane->tally.room);
    enum claim got = lane_claim(lane, (1000 + at_ms) * MS, &due_ns);
    room_leave(&lane->tally.room);
    *due_ms = due_ns / MS - 1000;
    return got;
}

/* A hundred a second over two lanes: each has every other one, in turn. */
static void a_rate_is_shared_by_lanes_and_kept_to(void **state)
{
    (void)state;
    struct run run = run_of((struct load_options){.rate = 100}, 0, 0);
    struct lane lanes[2];
    uint64_t due;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(lane_init(&lanes[i], &run, i, 2), OK);
    assert_int_equal(claim(&lanes[0], 0, &due), CLAIM_GO);
    assert_int_equal(due, 0);
    assert_int_equal(claim(&lanes[0], 0, &due), CLAIM_WAIT);
    assert_int_equal(due, 20);
    assert_int_equal(claim(&lanes[1], 9, &due), CLAIM_WAIT);
    assert_int_equal(due, 10);
    assert_int_equal(claim(&lanes[1], 10, &due), CLAIM_GO);

    /* Nobody came for a second: all that was due meanwhile is handed out with its own time. */
    for (uint64_t k = 1; k <= 50; k++) {
        assert_int_equal(claim(&lanes[0], 1000, &due), CLAIM_GO);
        assert_int_equal(due, k * 20);
    }
    assert_int_equal(claim(&lanes[0], 1000, &due), CLAIM_WAIT);
    for (unsigned i = 0; i < 2; i++)
        lane_clear(&lanes[i]);
    room_clear(&run.room);
}

static void batches_are_due_as_their_messages_are(void **state)
{
    (void)state;
    struct run run = run_of((struct load_options){.rate = 100, .batch = 10}, 0, 0);
    struct lane lane;
    uint64_t due;
    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    assert_int_equal(claim(&lane, 0, &due), CLAIM_GO);
    assert_int_equal(claim(&lane, 99, &due), CLAIM_WAIT);
    assert_int_equal(due, 100);
    lane_clear(&lane);
    room_clear(&run.room);
}

static void it_ends_by_count_by_time_and_when_told(void **state)
{
    (void)state;
    struct run run = run_of((struct load_options){.count = 3}, 5, 0);
    struct lane lane;
    uint64_t due;
    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    for (int i = 0; i < 9; i++) /* the warming does not count */
        assert_int_equal(claim(&lane, 1, &due), CLAIM_GO);
    for (int i = 0; i < 3; i++)
        assert_int_equal(claim(&lane, 6, &due), CLAIM_GO);
    assert_int_equal(claim(&lane, 6, &due), CLAIM_OVER);
    assert_true(lane.over);
    lane_clear(&lane);

    run.options.count = 0;
    run.until_ns = run.begin_ns + 10 * MS;
    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    assert_int_equal(claim(&lane, 9, &due), CLAIM_GO);
    assert_int_equal(claim(&lane, 10, &due), CLAIM_OVER);
    lane_clear(&lane);

    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    atomic_store(&run.ending, true);
    assert_int_equal(claim(&lane, 1, &due), CLAIM_OVER);
    lane_clear(&lane);
    room_clear(&run.room);
}

/* What was due in time and is asked for late is still sent: its lateness is what is measured. */
static void what_was_due_before_the_end_is_not_dropped(void **state)
{
    (void)state;
    struct run run = run_of((struct load_options){.rate = 100}, 0, 100);
    struct lane lane;
    uint64_t due;
    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    for (uint64_t k = 0; k < 10; k++) {
        assert_int_equal(claim(&lane, 5000, &due), CLAIM_GO);
        assert_int_equal(due, k * 10);
    }
    assert_int_equal(claim(&lane, 5000, &due), CLAIM_OVER);
    lane_clear(&lane);
    room_clear(&run.room);
}

static void times_count_from_when_they_were_due_and_not_while_warming(void **state)
{
    (void)state;
    struct run run = run_of((struct load_options){.rate = 100}, 100, 0);
    struct span *span = calloc(1, sizeof *span);
    struct lane lane;
    assert_non_null(span);
    assert_int_equal(lane_init(&lane, &run, 0, 1), OK);
    room_enter(&lane.tally.room);
    lane_done(&lane, LOAD_TOOK, 1090 * MS, 1110 * MS); /* due while it was warming */
    lane_messages(&lane, 1090 * MS, 1110 * MS, 1);
    lane_done(&lane, LOAD_TOOK, 1100 * MS, 1600 * MS);
    lane_messages(&lane, 1100 * MS, 1600 * MS, 1);
    lane_failed(&lane, 1200 * MS, 1700 * MS, "no");
    room_leave(&lane.tally.room);
    lane_collect(&lane, span);
    assert_int_equal(span->messages, 1);
    assert_int_equal(span->warm, 1);
    assert_int_equal(span->failures, 1);
    assert_int_equal(span->times[LOAD_TOOK].count, 1);
    assert_int_equal(span->times[LOAD_TOOK].most, 500 * MS);
    assert_int_equal(span->last_ns, 1700 * MS);
    assert_string_equal(run.failure, "no");

    uint64_t due; /* after a failure there is a pause */
    assert_int_equal(claim(&lane, 701, &due), CLAIM_WAIT);
    assert_int_equal(due, 710);
    span_clear(span);
    lane_collect(&lane, span); /* and it was taken: nothing is counted twice */
    assert_int_equal(span->messages + span->failures + span->times[LOAD_TOOK].count, 0);
    free(span);
    lane_clear(&lane);
    room_clear(&run.room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_shared_by_lanes_and_kept_to),
        cmocka_unit_test(batches_are_due_as_their_messages_are),
        cmocka_unit_test(it_ends_by_count_by_time_and_when_told),
        cmocka_unit_test(what_was_due_before_the_end_is_not_dropped),
        cmocka_unit_test(times_count_from_when_they_were_due_and_not_while_warming),
    };
    return cmocka_run_group_tests_name("lane", tests, NULL, NULL);
}
