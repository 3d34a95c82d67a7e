/* Blocks of the log that are there before they are needed. That nothing is lost because of them is
 * in power_test, fault_test and model_test, whose stores reserve as well.
 */
#include "store/test_house.h"

#include <limits.h>
#include <sys/stat.h>

#define FILE_SIZE (1u << 20)
#define LEAST     (FILE_SIZE / 256)

/* The disk of a test: notes what is reserved, and may have little room. */
static struct {
    struct vfs_calls calls;
    const struct vfs_calls *below;
    unsigned times;
    uint64_t bytes;
    uint64_t used, available;
    bool refuses;
} disk;

static enum err disk_reserve(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    disk.times++;
    disk.bytes += n;
    if (disk.refuses)
        return fault_set(why, ERR_DISK_FULL, "no blocks are left");
    enum err err = disk.below->reserve(f, at, n, why);
    return err == ERR_UNSUPPORTED ? OK : err; /* the folder of the tests is in memory */
}

static enum err disk_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    (void)v;
    (void)why;
    *out = (struct vfs_space){disk.used + disk.available, disk.available, disk.available};
    return OK;
}

static void open_house(struct house *h)
{
    house_init(h, 1);
    disk.below = h->fault->vfs.calls;
    disk.calls = *disk.below;
    disk.calls.reserve = disk_reserve;
    disk.calls.space = disk_space;
    disk.times = 0;
    disk.bytes = 0;
    disk.used = 0;
    disk.refuses = false;
    disk.available = UINT64_C(1) << 40;
    h->fault->vfs.calls = &disk.calls;
    h->options.log_file_size = FILE_SIZE;
    house_must_open(h);
}

static uint64_t written(const struct house *h)
{
    return position_get(&h->store->positions.written);
}

/* Sends until the log ends at `end` or later; returns the number of the next message. */
static uint64_t send_upto(struct house *h, uint64_t n, uint64_t end)
{
    while (written(h) < end)
        house_must_send(h, n++, 1);
    return n;
}

static void everything_is_there(struct house *h, uint64_t n)
{
    house_dispatch(h);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_must_close(h);
    house_must_open(h);
    assert_true(h->report.clean);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_must_close(h);
    house_clear(h);
}

/* Nothing for a store that writes little. From then on four times as much as was written since the
 * start, in few steps, over the end of a file into the next one, and never more than a file's
 * worth. */
static void reserves_some_times_as_much_as_was_written(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, LEAST / 2);
    store_keep_turn(h.store);
    assert_int_equal(disk.times, 0);

    while (written(&h) < 3 * FILE_SIZE) {
        n = send_upto(&h, n, written(&h) + LEAST / 2);
        store_keep_turn(h.store);
        uint64_t lead = written(&h) < FILE_SIZE / 4 ? 4 * written(&h) : FILE_SIZE;
        uint64_t there = h.store->blocks.upto - written(&h);
        assert_true(written(&h) < LEAST || there + LEAST >= lead / 2);
        assert_true(there <= lead);
    }
    assert_true(disk.bytes <= h.store->blocks.upto); /* no part of it twice */
    assert_true(disk.times < 30);

    unsigned times = disk.times;
    for (int i = 0; i < 10; i++)
        store_keep_turn(h.store);
    assert_int_equal(disk.times, times);
    everything_is_there(&h, n);
}

/* What a clean stop leaves has no blocks that nothing is in, and no file that nothing is in. */
static void a_clean_stop_gives_back_what_was_reserved(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE * 3 / 4);
    store_keep_turn(h.store);
    assert_true(h.store->blocks.upto > FILE_SIZE);
    char last[PATH_SIZE], ahead[PATH_SIZE], full[512];
    fileset_path(last, LOG_FOLDER, 0);
    fileset_path(ahead, LOG_FOLDER, FILE_SIZE);
    assert_true(house_has(&h, ahead));

    uint64_t end = written(&h);
    house_must_close(&h);
    assert_false(house_has(&h, ahead));
    assert_int_equal(house_size(&h, last), FILE_SIZE);
    struct stat s;
    house_path(&h, last, full);
    assert_int_equal(stat(full, &s), 0);
    assert_true((uint64_t)s.st_blocks * 512 < end + FILE_SIZE / 8);
    house_must_open(&h);
    assert_true(h.report.clean);
    house_must_send(&h, n++, 1);
    everything_is_there(&h, n);
}

/* On a disk with little room left it would be others' messages that go for it, or nothing more
 * could be stored at all. However often it is asked. */
static void takes_only_a_small_part_of_what_is_left(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    disk.available = 2 * FILE_SIZE;
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    for (int i = 0; i < 100; i++) {
        uint64_t before = disk.bytes;
        store_keep_turn(h.store);
        disk.available -= disk.bytes - before;
        disk.used += disk.bytes - before;
    }
    assert_in_range(disk.bytes, FILE_SIZE / 9, FILE_SIZE / 8);
    everything_is_there(&h, n);
}

/* Above disk_max_used messages are deleted before their time, above disk_forced whatever their age,
 * and above disk_warning none is taken. Empty blocks are never the reason, whichever of the three
 * is the lowest. */
static void does_not_make_the_disk_fuller_than_is_good_for_messages(void **state)
{
    (void)state;
    static const unsigned limits[][3] = {{75, 85, 90}, {95, 80, 90}, {95, 85, 70}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const unsigned *l = limits[i];
        unsigned most = l[0] < l[1] ? l[0] : l[1];
        most = most < l[2] ? most : l[2];
        struct house h;
        open_house(&h);
        retention_take(h.store, &(struct store_retention){.disk_max_used = l[0],
                                                          .disk_forced = l[1],
                                                          .disk_warning = l[2]});
        disk.available = 100 * FILE_SIZE;
        disk.used = disk.available / (100 - most) * most;
        uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
        store_keep_turn(h.store);
        assert_int_equal(disk.times, 0);
        disk.used -= 10 * FILE_SIZE;
        clock_manual_advance(&h.clock, 20000);
        store_keep_turn(h.store);
        assert_true(disk.times > 0);
        everything_is_there(&h, n);
    }
}

/* What others write later fills the disk beside the empty blocks: these count as free, or messages
 * would be refused and deleted for their sake. */
static void what_is_reserved_counts_as_free(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    retention_take(h.store, &(struct store_retention){
                                .disk_max_used = 75, .disk_forced = 85, .disk_warning = 90});
    disk.used = 50 * FILE_SIZE;
    disk.available = 50 * FILE_SIZE;
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    store_keep_turn(h.store);
    uint64_t reserved = h.store->blocks.upto - written(&h);
    assert_in_range(reserved, FILE_SIZE / 2, FILE_SIZE);

    unsigned warning = h.store->options.retention.disk_warning;
    disk.available = (100 - warning) * FILE_SIZE - reserved;
    disk.used = 100 * FILE_SIZE - disk.available;
    struct store_cleaned out;
    clock_manual_advance(&h.clock, 20000);
    store_clean_turn(h.store, &out);
    assert_true(out.looked);
    assert_int_equal(out.used_percent, warning);
    assert_false(out.refusing);
    everything_is_there(&h, n);
}

/* An append that the disk refuses is cut away, and all that is behind it. */
static void what_was_cut_away_is_not_counted(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    store_keep_turn(h.store);
    assert_true(log_reserved(h.store) > 0);
    vfs_fault_plan(h.fault, 1, 1, ERR_DISK_FULL);
    struct stored out;
    uint64_t end;
    assert_int_equal(house_send(&h, n, 1, &out, &end), ERR_DISK_FULL);
    vfs_fault_plan(h.fault, 0, 0, OK);
    assert_int_equal(log_reserved(h.store), 0);
    store_keep_turn(h.store);
    assert_true(log_reserved(h.store) > 0);
    everything_is_there(&h, n);
}

/* A disk that has no more blocks keeps those that it has found: it is not asked again and again. */
static void a_refusal_is_the_end_for_a_while(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    disk.refuses = true;
    for (int i = 0; i < 10; i++)
        store_keep_turn(h.store);
    assert_int_equal(disk.times, 1);
    disk.refuses = false;
    clock_manual_advance(&h.clock, 20000);
    store_keep_turn(h.store);
    assert_true(disk.times > 1);
    assert_true(h.store->blocks.upto > written(&h));
    everything_is_there(&h, n);
}

/* A file system that has to read for it would wait behind the flush, and appends with it. */
static void waits_for_a_flush_that_is_under_way(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    atomic_store(&h.store->flusher.syncing, true);
    store_keep_turn(h.store);
    assert_int_equal(disk.times, 0);
    atomic_store(&h.store->flusher.syncing, false);
    store_keep_turn(h.store);
    assert_true(disk.times > 0);
    everything_is_there(&h, n);
}

/* Nor does it do so where each message is synced. */
static void reserves_nothing_with_synchronous_flush(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    h.store->options.sync_flush = true;
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    store_keep_turn(h.store);
    assert_int_equal(disk.times, 0);
    (void)store_flush_turn(h.store);
    everything_is_there(&h, n);
}

/* Whichever operation fails, and once or from then on: nobody is told, and messages are stored. */
static void a_disk_that_fails_costs_only_speed(void **state)
{
    (void)state;
    static const enum err errs[] = {ERR_DISK_FULL, ERR_IO, ERR_BUSY, ERR_UNSUPPORTED};
    bool failed = true;
    for (unsigned long at = 1; failed; at++) {
        struct house h;
        open_house(&h);
        store_keep_turn(h.store); /* the file behind is made */
        uint64_t n = send_upto(&h, 0, FILE_SIZE * 3 / 4);
        vfs_fault_plan(h.fault, at, at % 2 ? ULONG_MAX : 1, errs[at % 4]);
        store_keep_turn(h.store); /* opens and reserves in both files */
        failed = h.fault->operations >= at;
        vfs_fault_plan(h.fault, 0, 0, OK);
        assert_int_equal(store_state(h.store, NULL), OK);
        n = send_upto(&h, n, 2 * FILE_SIZE);
        store_keep_turn(h.store);
        everything_is_there(&h, n);
    }
}

/* A process that ends at any moment leaves blocks behind the end of the log. They are zeros, and
 * the next start takes none of them for a message. */
static void a_crash_leaves_nothing_to_read(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE * 3 / 4);
    store_keep_turn(h.store);
    house_crash(&h);
    house_must_open(&h);
    assert_false(h.report.clean);
    n = send_upto(&h, n, FILE_SIZE + FILE_SIZE / 4);
    everything_is_there(&h, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserves_some_times_as_much_as_was_written),
        cmocka_unit_test(a_clean_stop_gives_back_what_was_reserved),
        cmocka_unit_test(takes_only_a_small_part_of_what_is_left),
        cmocka_unit_test(does_not_make_the_disk_fuller_than_is_good_for_messages),
        cmocka_unit_test(what_is_reserved_counts_as_free),
        cmocka_unit_test(what_was_cut_away_is_not_counted),
        cmocka_unit_test(a_refusal_is_the_end_for_a_while),
        cmocka_unit_test(waits_for_a_flush_that_is_under_way),
        cmocka_unit_test(reserves_nothing_with_synchronous_flush),
        cmocka_unit_test(a_disk_that_fails_costs_only_speed),
        cmocka_unit_test(a_crash_leaves_nothing_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
