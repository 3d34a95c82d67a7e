/* The files of timed messages: their layout, what damage does to them, and that a scan believes
 * nothing. */
#include "base/test.h"
#include "store/test_house.h"
#include "store/timers.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#define FILE_SIZE 1000 /* 18 units, and a blank of 64 bytes */
#define IN_FILE   18

struct disk {
    char folder[32];
    struct vfs *vfs;
};

static int disk_open(void **state)
{
    struct disk *d = calloc(1, sizeof *d);
    assert_non_null(d);
    snprintf(d->folder, sizeof d->folder, "/tmp/timers-test-XXXXXX");
    assert_non_null(mkdtemp(d->folder));
    assert_int_equal(vfs_posix_open(d->folder, &d->vfs, NULL), OK);
    assert_int_equal(d->vfs->calls->mkdir(d->vfs, "config", NULL), OK);
    *state = d;
    return 0;
}

static int entry_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static int disk_close(void **state)
{
    struct disk *d = *state;
    d->vfs->calls->dispose(d->vfs);
    (void)nftw(d->folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(d);
    return 0;
}

#define disk_test(name) cmocka_unit_test_setup_teardown(name, disk_open, disk_close)

static struct timer_unit unit_of(int64_t number)
{
    return (struct timer_unit){
        .prev = -1,
        .magic = TIMER_PLAIN,
        .write_ms = 1700000000000,
        .time_ms = 1700000000000 + number,
        .position = 1000 * number,
        .size = 300,
        .topic_hash = 84,
    };
}

static struct timerlog *log_with(struct disk *d, int64_t n)
{
    struct timerlog *log;
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, NULL), OK);
    for (int64_t i = 0; i < n; i++) {
        struct timer_unit unit = unit_of(i);
        int64_t at;
        assert_int_equal(timerlog_add(log, &unit, &at, NULL), OK);
        assert_int_equal(at, i / IN_FILE * FILE_SIZE + i % IN_FILE * TIMER_UNIT_SIZE);
    }
    assert_int_equal(timerlog_write(log, NULL), OK);
    return log;
}

static bool count_one(void *user, int64_t at, const struct timer_unit *unit)
{
    int64_t *n = user;
    assert_int_equal(unit->position, 1000 * *n);
    ++*n;
    return true;
}

static int64_t scan_all(struct timerlog *log, int64_t limit)
{
    int64_t n = 0;
    assert_int_equal(timerlog_scan(log, limit, count_one, &n, NULL), OK);
    return n;
}

static void put(struct disk *d, const char *path, uint64_t at, const void *bytes, size_t n)
{
    struct vfs_file *file;
    assert_int_equal(d->vfs->calls->open(d->vfs, path, VFS_CREATE, &file, NULL), OK);
    uint8_t copy[512];
    assert_true(n <= sizeof copy);
    memcpy(copy, bytes, n);
    struct iovec part = {copy, n};
    assert_int_equal(d->vfs->calls->write(file, at, &part, 1, NULL), OK);
    d->vfs->calls->close(file);
}

/* ---- units ---- */

/* Field by field what Apache RocketMQ 5.5.0 writes. */
static void a_unit_has_52_bytes(void **state)
{
    (void)state;
    struct timer_unit unit = {.prev = 0x0102030405060708,
                              .magic = TIMER_PLAIN | TIMER_DELETE,
                              .write_ms = 1000,
                              .time_ms = 1000 + 0x77,
                              .position = 0x1122334455667788,
                              .size = 0x99,
                              .topic_hash = 0xaabbccdd},
                      got;
    static const uint8_t wanted[TIMER_UNIT_SIZE] = {
        0,    0,    0,    52,   1,    2,    3, 4, 5,    6,    7,    8,    0,    0,    0,
        5,    0,    0,    0,    0,    0,    0, 3, 0xe8, 0,    0,    0,    0x77, 0x11, 0x22,
        0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0,    0x99, 0xaa, 0xbb, 0xcc, 0xdd};
    uint8_t text[TIMER_UNIT_SIZE];
    timer_unit_save(text, &unit);
    assert_memory_equal(text, wanted, sizeof wanted);
    assert_true(timer_unit_load(text, &got));
    timer_unit_save(text, &got);
    assert_memory_equal(text, wanted, sizeof wanted);
    for (size_t at = 0; at < 4; at++) { /* its size */
        uint8_t bad[TIMER_UNIT_SIZE];
        memcpy(bad, text, sizeof bad);
        bad[at] ^= 1;
        assert_false(timer_unit_load(bad, &got));
    }
    text[15] = 0x10; /* its magic */
    assert_false(timer_unit_load(text, &got));
}

/* A delay may be negative: the message came when its time was over. */
static void a_late_unit_keeps_its_time(void **state)
{
    (void)state;
    struct timer_unit unit = unit_of(0), got;
    unit.time_ms -= 5000;
    uint8_t text[TIMER_UNIT_SIZE];
    timer_unit_save(text, &unit);
    assert_true(timer_unit_load(text, &got));
    assert_int_equal(got.time_ms, unit.time_ms);
}

/* ---- the log ---- */

static void units_fill_files_with_a_blank_at_the_end(void **state)
{
    struct disk *d = *state;
    struct timerlog *log = log_with(d, 100);
    for (int64_t i = 99; i >= 0; i--) {
        struct timer_unit got;
        int64_t at = i / IN_FILE * FILE_SIZE + i % IN_FILE * TIMER_UNIT_SIZE;
        assert_int_equal(timerlog_read(log, at, &got, NULL), OK);
        assert_int_equal(got.position, 1000 * i);
    }
    struct timer_unit got;
    static const int64_t nowhere[] = {-52, -1, 1, 51, IN_FILE * TIMER_UNIT_SIZE, 999, 1001, 100000};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        assert_int_equal(timerlog_read(log, nowhere[i], &got, NULL), ERR_NOT_FOUND);
    timerlog_close(log);
    uint8_t *text;
    size_t len;
    assert_int_equal(
        vfs_read_all(d->vfs, "timerlog/00000000000000001000", 1 << 20, &text, &len, NULL), OK);
    assert_int_equal(len, FILE_SIZE);
    static const uint8_t blank[] = {0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0xcb, 0xd4, 0x31, 0x94};
    assert_memory_equal(text + IN_FILE * TIMER_UNIT_SIZE, blank, sizeof blank);
    free(text);
}

static void a_scan_finds_all_and_goes_on(void **state)
{
    struct disk *d = *state;
    timerlog_close(log_with(d, 50));
    struct timerlog *log;
    assert_int_equal(timerlog_open(d->vfs, 104857600, &log, NULL), OK); /* as the files are */
    assert_int_equal(scan_all(log, INT64_MAX), 50);
    struct timer_unit unit = unit_of(50);
    int64_t at;
    assert_int_equal(timerlog_add(log, &unit, &at, NULL), OK);
    assert_int_equal(at, 2 * FILE_SIZE + 14 * TIMER_UNIT_SIZE);
    timerlog_close(log);
}

/* What is behind the limit is cut, and cannot come back. */
static void a_scan_cuts_what_is_not_believed(void **state)
{
    struct disk *d = *state;
    timerlog_close(log_with(d, 50));
    struct timerlog *log;
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, NULL), OK);
    assert_int_equal(scan_all(log, FILE_SIZE + 3 * TIMER_UNIT_SIZE), IN_FILE + 3);
    assert_int_equal(timerlog_end(log), FILE_SIZE + 3 * TIMER_UNIT_SIZE);
    timerlog_close(log);
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, NULL), OK);
    assert_int_equal(scan_all(log, INT64_MAX), IN_FILE + 3);
    timerlog_close(log);
}

static void a_scan_ends_at_damage(void **state)
{
    struct disk *d = *state;
    timerlog_close(log_with(d, 50));
    static const uint8_t noise[] = {1, 2, 3};
    put(d, "timerlog/00000000000000001000", 4 * TIMER_UNIT_SIZE + 1, noise, sizeof noise);
    struct timerlog *log;
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, NULL), OK);
    assert_int_equal(scan_all(log, INT64_MAX), IN_FILE + 4);
    timerlog_close(log);
}

/* A chain that leads to itself, or forward, would never end. */
static void a_unit_may_not_point_forward(void **state)
{
    struct disk *d = *state;
    timerlog_close(log_with(d, 10));
    struct timer_unit unit = unit_of(5);
    unit.prev = 5 * TIMER_UNIT_SIZE;
    uint8_t text[TIMER_UNIT_SIZE];
    timer_unit_save(text, &unit);
    put(d, "timerlog/00000000000000000000", 5 * TIMER_UNIT_SIZE, text, sizeof text);
    struct timerlog *log;
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, NULL), OK);
    assert_int_equal(scan_all(log, INT64_MAX), 5);
    timerlog_close(log);
}

static void files_that_are_no_row_are_damaged(void **state)
{
    struct disk *d = *state;
    timerlog_close(log_with(d, 60));
    assert_int_equal(d->vfs->calls->remove(d->vfs, "timerlog/00000000000000001000", NULL), OK);
    struct timerlog *log;
    struct fault why = {0};
    assert_int_equal(timerlog_open(d->vfs, FILE_SIZE, &log, &why), ERR_DAMAGED);
    assert_non_null(strstr(why.text, "timerlog"));
}

static void old_files_go_when_their_records_are_gone(void **state)
{
    struct disk *d = *state;
    struct timerlog *log = log_with(d, 60);
    assert_int_equal(timerlog_shift(log, 1000 * (IN_FILE - 1), NULL), OK);
    assert_int_equal(timerlog_first(log), 0); /* its last record is still there */
    assert_int_equal(timerlog_shift(log, 1000 * (IN_FILE - 1) + 1, NULL), OK);
    assert_int_equal(timerlog_first(log), FILE_SIZE);
    assert_int_equal(timerlog_shift(log, INT64_MAX, NULL), OK);
    assert_int_equal(timerlog_first(log), 3 * FILE_SIZE); /* the last one stays */
    struct timer_unit got;
    assert_int_equal(timerlog_read(log, 0, &got, NULL), ERR_NOT_FOUND);
    assert_int_equal(timerlog_read(log, 3 * FILE_SIZE, &got, NULL), OK);
    timerlog_close(log);
}

/* ---- the wheel ---- */

static void slots_are_found_in_the_order_of_time(void **state)
{
    struct disk *d = *state;
    struct timerwheel *wheel;
    assert_int_equal(timerwheel_open(d->vfs, &wheel, NULL), OK);
    static const int64_t seconds[] = {1700000000, 1700000001, 1700000500, 1700604799, 1701209599};
    for (size_t i = 0; i < 5; i++) {
        struct timer_slot slot = {seconds[i], 52 * (int64_t)i, 104 * (int64_t)i, 3};
        assert_true(timerwheel_put(wheel, &slot));
    }
    int64_t at = 0;
    for (size_t i = 0; i < 5; i++) {
        at = timerwheel_next(wheel, at);
        assert_int_equal(at, seconds[i]);
        struct timer_slot slot;
        assert_true(timerwheel_get(wheel, at, &slot));
        assert_int_equal(slot.last, 104 * (int64_t)i);
        at++;
    }
    assert_int_equal(timerwheel_next(wheel, at), -1);
    struct timer_slot slot;
    assert_false(timerwheel_get(wheel, 1700000000 + TIMER_SLOTS, &slot));
    assert_false(timerwheel_put(wheel, &slot)); /* its place is taken */
    timerwheel_clear(wheel, 1700000000);
    assert_true(timerwheel_put(wheel, &slot));
    assert_int_equal(timerwheel_next(wheel, 1700000002), 1700000500);
    assert_int_equal(timerwheel_next(wheel, 1701209600), 1700000000 + TIMER_SLOTS);
    timerwheel_close(wheel);
}

static void the_wheel_is_written_as_apache_has_it(void **state)
{
    struct disk *d = *state;
    struct timerwheel *wheel;
    assert_int_equal(timerwheel_open(d->vfs, &wheel, NULL), OK);
    struct timer_slot slot = {TIMER_SLOTS + 7, 0x0102, 0x0304, 5}, gone = {3, 1, 1, 1};
    assert_true(timerwheel_put(wheel, &slot));
    assert_true(timerwheel_put(wheel, &gone));
    assert_int_equal(timerwheel_write(wheel, NULL), OK);
    timerwheel_clear(wheel, 3);
    assert_int_equal(timerwheel_write(wheel, NULL), OK);
    assert_int_equal(timerwheel_sync(wheel, NULL), OK);
    timerwheel_close(wheel);
    uint8_t *text;
    size_t len;
    assert_int_equal(vfs_read_all(d->vfs, "timerwheel", 1 << 26, &text, &len, NULL), OK);
    assert_int_equal(len, 38707200);
    static const uint8_t wanted[28] = {0, 0, 0, 0, 0, 0x12, 0x75, 0x07, 0, 0, 0, 0, 0, 0,
                                       1, 2, 0, 0, 0, 0,    0,    0,    3, 4, 0, 0, 0, 5};
    assert_memory_equal(text + 7 * 32, wanted, sizeof wanted);
    for (size_t i = 0; i < 32; i++)
        assert_int_equal(text[3 * 32 + i], 0);
    free(text);
}

/* ---- the check ---- */

static void a_check_is_ours_until_apache_writes_it(void **state)
{
    struct disk *d = *state;
    struct timer_check check = {.read_ms = 1000,
                                .log_end = 5200,
                                .queue_offset = 77,
                                .ours = true,
                                .clean = true,
                                .done = {1500, 104},
                                .past = {3000, 52},
                                .past_at = 9,
                                .doubt_position = 4711},
                       got;
    assert_int_equal(timercheck_read(d->vfs, &got, NULL), ERR_NOT_FOUND);
    assert_int_equal(timercheck_write(d->vfs, &check, 5, NULL), OK);
    assert_int_equal(timercheck_read(d->vfs, &got, NULL), OK);
    assert_true(got.ours && got.clean);
    assert_int_equal(got.read_ms, 1000);
    assert_int_equal(got.done.due_ms, 1500);
    assert_int_equal(got.done.at, 104);
    assert_int_equal(got.past.due_ms, 3000);
    assert_int_equal(got.past.at, 52);
    assert_int_equal(got.past_at, 9);
    assert_int_equal(got.doubt_position, 4711);

    uint8_t text[8] = {0, 0, 0, 0, 0, 0, 0x07, 0xd0};
    put(d, TIMER_CHECK_PATH, 0, text, sizeof text); /* its read time goes on */
    assert_int_equal(timercheck_read(d->vfs, &got, NULL), OK);
    assert_false(got.ours);
    assert_false(got.clean);
    assert_int_equal(got.read_ms, 2000);
    assert_int_equal(got.log_end, 5200);
    assert_int_equal(got.queue_offset, 77);
    assert_int_equal(got.done.due_ms, 0);
    text[0] = 0x80;
    put(d, TIMER_CHECK_PATH, 8, text, sizeof text);
    struct fault why = {0};
    assert_int_equal(timercheck_read(d->vfs, &got, &why), ERR_DAMAGED);
    assert_non_null(strstr(why.text, "timercheck"));
}

static void every_short_check_is_refused(void **state)
{
    (void)state;
    uint8_t text[TIMER_CHECK_SIZE];
    struct timer_check check = {.ours = true, .done = {1, 0}}, got;
    timercheck_encode(&check, 5, text);
    for (size_t cut = 0; cut < 400; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, text, cut);
        enum err err = timercheck_decode(bytes_of(exact, cut), &got);
        assert_int_equal(err, cut < 56 ? ERR_DAMAGED : OK);
        if (!err)
            assert_int_equal(got.ours, cut >= 256 + 60);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_has_52_bytes),
        cmocka_unit_test(a_late_unit_keeps_its_time),
        disk_test(units_fill_files_with_a_blank_at_the_end),
        disk_test(a_scan_finds_all_and_goes_on),
        disk_test(a_scan_cuts_what_is_not_believed),
        disk_test(a_scan_ends_at_damage),
        disk_test(a_unit_may_not_point_forward),
        disk_test(files_that_are_no_row_are_damaged),
        disk_test(old_files_go_when_their_records_are_gone),
        disk_test(slots_are_found_in_the_order_of_time),
        disk_test(the_wheel_is_written_as_apache_has_it),
        disk_test(a_check_is_ours_until_apache_writes_it),
        cmocka_unit_test(every_short_check_is_refused),
    };
    return cmocka_run_group_tests_name("store/timers", tests, NULL, NULL);
}
