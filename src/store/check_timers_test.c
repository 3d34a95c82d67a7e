/* What a check says about the files of timed messages. The folder has a timer for each of its
 * messages, three of them in a second, as a broker would have left them. */
#include "store/check_rig_test.h"
#include "store/timers.h"

#define BEGIN_S   INT64_C(1700000000)
#define IN_SECOND 3
#define FILE_SIZE 1000 /* 18 units, and a blank of 64 bytes */
#define IN_FILE   18
#define LOG       "timerlog/00000000000000000000"
#define LOG_2     "timerlog/00000000000000001000"
#define WHEEL     "timerwheel"

static int64_t end; /* of the units */

static void check_save(struct house *h, const struct timer_check *check)
{
    assert_int_equal(timercheck_write(h->disk, check, 1, NULL), OK);
}

static struct timer_check check_ours(void)
{
    return (struct timer_check){
        .read_ms = 1,
        .log_end = end,
        .ours = true,
        .clean = true,
        .done = {.due_ms = 1, .at = -1},
    };
}

static void house_timed(struct house *h, bool clean)
{
    house_filled(h, true);
    if (!clean) {
        house_must_open(h);
        house_crash(h);
    }
    struct timerlog *log;
    struct timerwheel *wheel;
    assert_int_equal(timerlog_open(h->disk, FILE_SIZE, &log, NULL), OK);
    assert_int_equal(timerwheel_open(h->disk, &wheel, NULL), OK);
    for (int64_t i = 0; i < N; i++) {
        struct timer_slot slot;
        bool there = timerwheel_get(wheel, BEGIN_S + i / IN_SECOND, &slot);
        struct timer_unit unit = {
            .prev = slot.last,
            .magic = TIMER_PLAIN,
            .write_ms = BEGIN_S * 1000,
            .time_ms = BEGIN_S * 1000 + i / IN_SECOND * 1000 + i % IN_SECOND,
            .position = stored[i].position,
            .size = stored[i].size,
        };
        int64_t at;
        assert_int_equal(timerlog_add(log, &unit, &at, NULL), OK);
        slot.first = there ? slot.first : at;
        slot.last = at;
        slot.count++;
        assert_true(timerwheel_put(wheel, &slot));
    }
    assert_int_equal(timerlog_write(log, NULL), OK);
    assert_int_equal(timerwheel_write(wheel, NULL), OK);
    end = timerlog_end(log);
    timerlog_close(log);
    timerwheel_close(wheel);
    enum err err = h->disk->calls->mkdir(h->disk, "config", NULL);
    assert_true(err == OK || err == ERR_EXISTS);
    struct timer_check check = check_ours();
    check_save(h, &check);
}

static void sound_timers_have_nothing_to_tell(void **state)
{
    (void)state;
    struct house h;
    house_timed(&h, true);
    must_find(&h, 0, 0);
    assert_int_equal(found.sum.timer_units, N);
    assert_int_equal(found.sum.timer_files, (N + IN_FILE - 1) / IN_FILE);
    house_clear(&h);
}

/* What is behind the place that the check names is made again, and so is the wheel. */
static void what_a_crash_leaves_of_timers_is_no_damage(void **state)
{
    (void)state;
    struct house h;
    house_timed(&h, false);
    must_find(&h, 0, 1);
    struct timer_check check = check_ours();
    check.log_end = 5 * TIMER_UNIT_SIZE;
    check_save(&h, &check);
    house_flip(&h, LOG, 5 * TIMER_UNIT_SIZE, 1);
    house_flip(&h, WHEEL, (uint64_t)(BEGIN_S % TIMER_SLOTS) * TIMER_SLOT_SIZE + 16, 1);
    must_find(&h, 0, 1);
    assert_int_equal(found.sum.timer_units, 5);
    house_clear(&h);
}

/* Whether or not the stop was clean: what the check speaks of was on the disk. */
static void a_timer_that_cannot_be_is_found(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct house h;
        house_timed(&h, clean);
        house_flip(&h, LOG, 3 * TIMER_UNIT_SIZE + 28 + 7, 0x40); /* the position */
        must_find(&h, 1, !clean);
        must_say(CHECK_DAMAGE, "timerlog", 3 * TIMER_UNIT_SIZE, "1 timers lead to no message");
        house_flip(&h, LOG_2, 2 * TIMER_UNIT_SIZE + 3, 1); /* the unit's own size */
        must_find(&h, clean ? 3 : 2, !clean);
        must_say(CHECK_DAMAGE, "timerlog", FILE_SIZE + 2 * TIMER_UNIT_SIZE, "is no timer");
        assert_int_equal(found.sum.timer_units, IN_FILE + 2);
        house_clear(&h);
    }
}

static void missing_and_short_files_of_timers_are_named(void **state)
{
    (void)state;
    struct house h;
    house_timed(&h, true);
    house_remove(&h, LOG_2);
    assert_int_equal(check(&h), OK);
    must_say(CHECK_DAMAGE, LOG_2, -1, "is missing");
    must_say(CHECK_DAMAGE, "timerlog", FILE_SIZE, "go on to");
    house_clear(&h);

    house_timed(&h, true);
    house_truncate(&h, LOG_2, FILE_SIZE - 1);
    assert_int_equal(check(&h), OK);
    must_say(CHECK_DAMAGE, LOG_2, -1, "999 bytes");
    must_say(CHECK_DAMAGE, "timerlog", FILE_SIZE, "go on to");
    house_clear(&h);

    house_timed(&h, true);
    house_remove(&h, "timerlog");
    assert_int_equal(check(&h), OK);
    must_say(CHECK_DAMAGE, "timerlog", 0, "go on to");
    house_clear(&h);

    house_timed(&h, true);
    house_truncate(&h, WHEEL, 100);
    must_find(&h, 0, 1);
    must_say(CHECK_NOTE, WHEEL, -1, "makes it anew");
    house_remove(&h, WHEEL);
    must_find(&h, 0, 0);
    house_clear(&h);
}

static void a_check_of_timers_that_cannot_be_is_found(void **state)
{
    (void)state;
    struct house h;
    house_timed(&h, true);
    struct timer_check check = check_ours();
    check.queue_offset = 7; /* there is no such queue */
    check_save(&h, &check);
    must_find(&h, 1, 0);
    must_say(CHECK_DAMAGE, TIMER_CHECK_PATH, -1, "7 timed messages");
    check = check_ours();
    check.log_end += TIMER_UNIT_SIZE;
    check_save(&h, &check);
    must_find(&h, 1, 0);
    must_say(CHECK_DAMAGE, "timerlog", end, "go on to");
    house_truncate(&h, TIMER_CHECK_PATH, 10);
    must_find(&h, 1, 0);
    must_say(CHECK_DAMAGE, TIMER_CHECK_PATH, -1, "cannot be");
    house_remove(&h, TIMER_CHECK_PATH);
    must_find(&h, 0, 0);
    house_clear(&h);
}

static void a_slot_that_leads_elsewhere_is_found(void **state)
{
    (void)state;
    struct house h;
    house_timed(&h, true);
    uint64_t at = (uint64_t)((BEGIN_S + 9) % TIMER_SLOTS) * TIMER_SLOT_SIZE;
    house_flip(&h, WHEEL, at + 16 + 7, 52); /* another unit, of another second */
    must_find(&h, 1, 0);
    must_say(CHECK_DAMAGE, WHEEL, (int64_t)at, "1 slots lead to no timer of their second");
    house_flip(&h, WHEEL, at + 16, 0x80); /* none at all: Apache has such slots */
    must_find(&h, 0, 0);
    house_clear(&h);
}

/* A byte anywhere is changed to anything: the check ends. */
static void ends_whatever_is_changed(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct house h;
    house_timed(&h, true);
    uint64_t slots = (uint64_t)(BEGIN_S % TIMER_SLOTS) * TIMER_SLOT_SIZE;
    const char *const files[] = {LOG, LOG_2, TIMER_CHECK_PATH, WHEEL};
    for (int i = 0; i < 40; i++) {
        const char *file = files[dice_below(&dice, 4)];
        uint64_t at = file == files[3] ? slots + dice_below(&dice, 300 * TIMER_SLOT_SIZE)
                                       : dice_below(&dice, i % 2 ? 100 : house_size(&h, file));
        uint8_t with = (uint8_t)(1 + dice_below(&dice, 255));
        house_flip(&h, file, at, with);
        assert_int_equal(check(&h), OK);
        house_flip(&h, file, at, with);
    }
    must_find(&h, 0, 0);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_timers_have_nothing_to_tell),
        cmocka_unit_test(what_a_crash_leaves_of_timers_is_no_damage),
        cmocka_unit_test(a_timer_that_cannot_be_is_found),
        cmocka_unit_test(missing_and_short_files_of_timers_are_named),
        cmocka_unit_test(a_check_of_timers_that_cannot_be_is_found),
        cmocka_unit_test(a_slot_that_leads_elsewhere_is_found),
        cmocka_unit_test(ends_whatever_is_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
