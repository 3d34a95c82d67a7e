/* The log file behind the last one, and zeros in front of the log's end. That the file is made at
 * all is in commitlog_test, that a power loss takes nothing because of it in power_test.
 */
#include "store/test_house.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#define FILE_SIZE (4 * FILL_PIECE)

/* The disk of a test, with something done at each write and push. */
static struct {
    struct vfs_calls calls;
    const struct vfs_calls *below;
    void (*at_write)(struct house *h, size_t size);
    void (*at_push)(struct house *h);
    struct house *house;
    int64_t push_ms, sync_ms;         /* so long they take, by the clock of the test */
    unsigned write_fails, push_fails; /* the how manieth from now on; 0: none */
    bool failed, behind;              /* it has come to that; one was into the file behind */
    enum err push_err;
    uint64_t room, available; /* 0: what the disk below says */
} disk;

static enum err disk_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    if (!disk.available)
        return disk.below->space(v, out, why);
    *out = (struct vfs_space){disk.room, disk.available, disk.available};
    return OK;
}

static bool fails_now(unsigned *left)
{
    disk.failed = disk.failed || *left == 1;
    return *left > 0 && --*left == 0;
}

static enum err disk_write(struct vfs_file *f, uint64_t at, const struct iovec *parts, int n,
                           struct fault *why)
{
    if (disk.at_write)
        disk.at_write(disk.house, parts[0].iov_len);
    if (fails_now(&disk.write_fails))
        return fault_set(why, ERR_DISK_FULL, "a test's disk is full");
    return disk.below->write(f, at, parts, n, why);
}

static enum err disk_push(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    clock_manual_advance(&disk.house->clock, disk.push_ms);
    disk.behind = disk.behind || at == 0;
    if (fails_now(&disk.push_fails))
        return fault_set(why, disk.push_err, "a test's disk is broken");
    if (disk.at_push)
        disk.at_push(disk.house);
    return disk.below->push(f, at, n, why);
}

static enum err disk_sync(struct vfs_file *f, struct fault *why)
{
    clock_manual_advance(&disk.house->clock, disk.sync_ms);
    return disk.below->sync(f, why);
}

static void open_house(struct house *h, uint64_t file_size)
{
    house_init(h, 1);
    disk.below = h->fault->vfs.calls;
    disk.calls = *disk.below;
    disk.calls.write = disk_write;
    disk.calls.push = disk_push;
    disk.calls.sync = disk_sync;
    disk.calls.space = disk_space;
    disk.available = 0;
    disk.house = h;
    disk.at_write = NULL;
    disk.at_push = NULL;
    disk.push_ms = disk.sync_ms = 0;
    disk.write_fails = disk.push_fails = 0;
    disk.failed = disk.behind = false;
    disk.push_err = ERR_IO;
    h->fault->vfs.calls = &disk.calls;
    h->options.log_file_size = file_size;
    h->options.sync_flush = true;
    house_must_open(h);
}

static uint64_t written(const struct house *h)
{
    return position_get(&h->store->positions.written);
}

/* Sends until the log ends at `end` or later, and brings it to the disk; returns the number of the
 * next message. */
static uint64_t send_upto(struct house *h, uint64_t n, uint64_t end)
{
    while (written(h) < end)
        house_must_send(h, n++, 1);
    (void)store_flush_turn(h->store);
    return n;
}

static uint64_t blocks_of(const struct house *h, const char *path)
{
    char full[512];
    struct stat s;
    house_path(h, path, full);
    assert_int_equal(stat(full, &s), 0);
    return (uint64_t)s.st_blocks;
}

/* Blocks that the file behind the last one has on the disk. Whatever it has: all of it is zeros. */
static uint64_t blocks_ahead(const struct house *h)
{
    char path[PATH_SIZE];
    fileset_path(path, LOG_FOLDER, h->store->log.end);
    assert_int_equal(house_size(h, path), h->options.log_file_size);
    cleanup(free_at) uint8_t *all = NULL;
    size_t len;
    assert_int_equal(vfs_read_all(h->disk, path, h->options.log_file_size, &all, &len, NULL), OK);
    assert_int_equal(all[0], 0);
    assert_memory_equal(all, all + 1, len - 1);
    return blocks_of(h, path);
}

static void everything_is_there(struct house *h, uint64_t n)
{
    (void)store_flush_turn(h->store);
    house_dispatch(h);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_must_close(h);
    house_must_open(h);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_must_close(h);
    house_clear(h);
}

/* An empty log has nothing filled, one that grows four times as much as was written since it was
 * opened, up to the end of the file behind the last one; and what is filled once is not filled
 * again. */
static void fills_by_what_was_written(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILL_PIECE / 8);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 0);

    for (uint64_t end = FILL_PIECE / 2; end <= FILE_SIZE * 2; end += FILL_PIECE / 2) {
        n = send_upto(&h, n, end);
        store_keep_turn(h.store);
        uint64_t upto = h.store->blocks.upto, wanted = 5 * written(&h), ahead = h.store->tail.ahead;
        wanted = wanted < written(&h) + 2 * FILE_SIZE ? wanted : written(&h) + 2 * FILE_SIZE;
        wanted = wanted < ahead ? wanted : ahead;
        assert_in_range(upto, wanted - FILL_PIECE + 1, wanted);
        unsigned long operations = h.fault->operations;
        store_keep_turn(h.store);
        assert_int_equal(h.fault->operations, operations);
    }
    char last[PATH_SIZE];
    fileset_path(last, LOG_FOLDER, h.store->log.end - FILE_SIZE);
    assert_int_equal(blocks_of(&h, last), FILE_SIZE / 512);
    assert_int_equal(blocks_ahead(&h), FILE_SIZE / 512);
    everything_is_there(&h, n);
}

/* Who stops and starts again has the blocks of the last file anew. */
static void fills_the_rest_of_a_file_after_a_start(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 4);
    house_must_close(&h);
    house_must_open(&h);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 0);
    n = send_upto(&h, n, FILE_SIZE / 2);
    store_keep_turn(h.store);
    char last[PATH_SIZE];
    fileset_path(last, LOG_FOLDER, 0);
    assert_true(h.fault->pushes > 0);
    assert_true(blocks_of(&h, last) > FILE_SIZE * 3 / 4 / 512);
    everything_is_there(&h, n);
}

/* A clean stop leaves no block without records, and the log as it was. */
static void a_clean_stop_gives_back_what_was_filled(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE * 3 / 4);
    store_keep_turn(h.store);
    n = send_upto(&h, n, FILE_SIZE + 1); /* into a file that is full of zeros */
    store_keep_turn(h.store);
    char last[PATH_SIZE], ahead[PATH_SIZE];
    fileset_path(last, LOG_FOLDER, FILE_SIZE);
    fileset_path(ahead, LOG_FOLDER, 2 * FILE_SIZE);
    assert_true(blocks_of(&h, last) >= FILE_SIZE / 512);
    assert_true(house_has(&h, ahead));

    (void)store_flush_turn(h.store);
    house_must_close(&h);
    assert_int_equal(house_size(&h, last), FILE_SIZE);
    assert_true(blocks_of(&h, last) < FILL_PIECE / 512);
    assert_false(house_has(&h, ahead));
    house_must_open(&h);
    assert_true(h.report.clean);
    house_must_send(&h, n++, 1);
    everything_is_there(&h, n);
}

/* When nobody waits for syncs it would be work for nothing. */
static void fills_nothing_where_nobody_waits_for_syncs(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    h.store->options.sync_flush = false;
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 0);
    everything_is_there(&h, n);
}

/* It would take the room that is left. */
static void fills_nothing_on_a_full_disk(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    atomic_store(&h.store->cleaner.full, 91);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 0);
    assert_int_equal(blocks_ahead(&h), 0);
    atomic_store(&h.store->cleaner.full, 0);
    store_keep_turn(h.store);
    assert_true(blocks_ahead(&h) > 0);
    everything_is_there(&h, n);
}

/* A sixteenth of what the disk has left, and once, however often it is asked and whatever others
 * take of the disk meanwhile. */
static void fills_a_small_part_of_the_disk_once(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store);
    disk.room = disk.available = UINT64_C(16) * 3 * FILL_PIECE;
    retention_take(h.store, &(struct store_retention){
                                .disk_max_used = 75, .disk_forced = 85, .disk_warning = 90});
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    for (int i = 0; i < 100; i++) {
        unsigned long before = h.fault->pushes;
        store_keep_turn(h.store);
        disk.available -= (h.fault->pushes - before) * FILL_PIECE + 4096;
        clock_manual_advance(&h.clock, 11000);
    }
    assert_in_range(h.fault->pushes, 1, 3);
    everything_is_there(&h, n);
}

static void one_more(struct house *h)
{
    disk.at_push = NULL;
    house_must_send(h, 1000000, 1);
}

/* Somebody waits for a sync: no piece is begun before it is over. */
static void fills_only_while_nobody_waits_for_the_disk(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    house_must_send(&h, n++, 1);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 0);
    (void)store_flush_turn(h.store);
    disk.at_push = one_more; /* while the first piece goes to the disk */
    store_keep_turn(h.store);
    assert_int_equal(h.fault->pushes, 1);
    (void)store_flush_turn(h.store);
    store_keep_turn(h.store);
    assert_true(h.fault->pushes > 4);
    assert_int_equal(blocks_ahead(&h), FILE_SIZE / 512);
    everything_is_there(&h, n + 1);
}

/* Syncs take a third of the time: nothing is filled in the moments between them. They take a sixth:
 * it is. */
static void fills_nothing_for_who_needs_the_disk_all_the_time(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    store_keep_turn(h.store); /* makes the file behind */
    disk.sync_ms = 50;
    uint64_t n = 0;
    for (int64_t pause_ms = 50; pause_ms <= 300; pause_ms += 250) {
        n = send_upto(&h, n, written(&h) + FILE_SIZE / 4);
        clock_manual_advance(&h.clock, pause_ms);
        store_keep_turn(h.store);
        assert_int_equal(h.fault->pushes > 0, pause_ms > 50);
    }
    disk.sync_ms = 0;
    everything_is_there(&h, n);
}

/* A piece that takes long is the only one of its turn. */
static void leaves_a_slow_disk_alone(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, FILE_SIZE);
    uint64_t n = send_upto(&h, 0, FILE_SIZE / 2);
    disk.push_ms = 3;
    for (unsigned turns = 1; turns <= 4; turns++) {
        store_keep_turn(h.store);
        assert_int_equal(h.fault->pushes, turns);
    }
    everything_is_there(&h, n);
}

/* Bytes behind the log's end that have blocks, in the last file and the one behind. */
static uint64_t blocks_free(const struct house *h)
{
    char last[PATH_SIZE];
    fileset_path(last, LOG_FOLDER, h->store->log.end - h->options.log_file_size);
    uint64_t there = blocks_of(h, last) * 512, ours = written(h) % h->options.log_file_size;
    return (there > ours ? there - ours : 0) + blocks_ahead(h) * 512;
}

/* Half of the last file is written, and the one behind is made. */
static uint64_t half_a_file(struct house *h)
{
    open_house(h, FILE_SIZE);
    store_keep_turn(h->store);
    return send_upto(h, 0, FILE_SIZE / 2);
}

/* After some seconds both files are filled, and the log goes on through them. */
static void fills_later(struct house *h, uint64_t n)
{
    clock_manual_advance(&h->clock, 11000);
    store_keep_turn(h->store);
    assert_int_equal(blocks_ahead(h), FILE_SIZE / 512);
    everything_is_there(h, send_upto(h, n, FILE_SIZE * 2 + 1));
}

/* Whichever piece cannot be written: nobody is told, since nothing is lost. The file that it was
 * about gives its blocks back, and for some seconds none are taken. */
static void a_disk_that_is_full_costs_only_speed(void **state)
{
    (void)state;
    bool failed = true;
    for (unsigned at = 1; failed; at++) {
        struct house h;
        uint64_t n = half_a_file(&h);
        disk.write_fails = at;
        store_keep_turn(h.store);
        disk.write_fails = 0;
        failed = disk.failed;
        assert_true(failed || at > 4);
        assert_int_equal(store_state(h.store, NULL), OK);
        if (failed) {
            assert_true(blocks_free(&h) <= FILE_SIZE);
            unsigned long pushes = h.fault->pushes;
            store_keep_turn(h.store);
            assert_int_equal(h.fault->pushes, pushes);
        }
        fills_later(&h, n);
    }
}

/* The file cannot be opened just then, for want of a handle. */
static void fills_when_there_is_a_handle(void **state)
{
    (void)state;
    struct house h;
    uint64_t n = half_a_file(&h);
    vfs_fault_plan(h.fault, 1, ULONG_MAX, ERR_BUSY);
    store_keep_turn(h.store);
    vfs_fault_plan(h.fault, 0, 0, OK);
    assert_int_equal(store_state(h.store, NULL), OK);
    assert_int_equal(h.fault->pushes, 0);
    fills_later(&h, n);
}

/* Nothing is said of any bytes where the file system cannot do that at all. */
static void a_disk_that_cannot_push_is_slow_and_well(void **state)
{
    (void)state;
    struct house h;
    uint64_t n = half_a_file(&h);
    disk.push_fails = 1;
    disk.push_err = ERR_UNSUPPORTED;
    store_keep_turn(h.store);
    assert_true(disk.failed && !disk.behind);
    assert_int_equal(store_state(h.store, NULL), OK);
    fills_later(&h, n);
}

/* That bytes cannot be brought to the disk may be said of a record's, and nobody else may be told:
 * in the last file it is as if a sync had failed. What was acknowledged is there when it is opened
 * anew. In the file behind there are no records, and it costs only speed. */
static void a_push_that_fails_beside_records_is_believed(void **state)
{
    (void)state;
    bool failed = true, seen[2] = {false, false};
    for (unsigned at = 1; failed; at++) {
        struct house h;
        uint64_t n = half_a_file(&h);
        disk.push_fails = at;
        store_keep_turn(h.store);
        disk.push_fails = 0;
        failed = disk.failed;
        assert_int_equal(store_state(h.store, NULL) != OK, failed && !disk.behind);
        seen[disk.behind] = failed || seen[disk.behind];
        if (!failed || disk.behind) {
            fills_later(&h, n);
            continue;
        }
        struct stored out;
        uint64_t end;
        assert_int_not_equal(house_send(&h, n, 1, &out, &end), OK);
        house_crash(&h);
        house_must_open(&h);
        everything_is_there(&h, n);
    }
    assert_true(seen[false] && seen[true]);
}

/* ---- zeros and records ---- */

static struct {
    struct house *house;
    atomic_bool go, done;
    uint64_t sent, claimed;
} taker;

/* Sends until the log grows into what is just being filled. */
static void *take_it(void *unused)
{
    (void)unused;
    while (!atomic_load(&taker.go))
        (void)sched_yield();
    while (written(taker.house) <= taker.claimed) {
        struct stored out;
        uint64_t end;
        invariant(house_send(taker.house, 1000000 + taker.sent++, 1, &out, &end) == OK);
    }
    atomic_store(&taker.done, true);
    return NULL;
}

/* In the midst of a piece: whoever wants its place has the time to take it, if it can. */
static void let_it_be_taken(struct house *h, size_t size)
{
    if (size != FILL_PIECE || atomic_load(&taker.go))
        return;
    taker.claimed = h->store->filler.free;
    atomic_store(&taker.go, true);
    for (int i = 0; i < 2000 && !atomic_load(&taker.done); i++)
        (void)sched_yield();
    assert_false(atomic_load(&taker.done));
    assert_in_range(written(h), 0, taker.claimed);
}

/* An append that grows into a piece while that is written comes after it: else the zeros would come
 * over its record. In the last file, and where the file behind is filled. */
static void no_record_comes_under_the_zeros(void **state)
{
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        struct house h;
        open_house(&h, FILE_SIZE);
        store_keep_turn(h.store);
        uint64_t n = send_upto(&h, 0, behind ? FILE_SIZE - 3000 : FILE_SIZE / 2);
        assert_int_equal(h.store->log.end, FILE_SIZE);
        taker.house = &h;
        taker.sent = 0;
        atomic_store(&taker.go, false);
        atomic_store(&taker.done, false);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_it, NULL), 0);
        disk.at_write = let_it_be_taken;
        store_keep_turn(h.store);
        disk.at_write = NULL;
        assert_true(atomic_load(&taker.go));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(written(&h) > taker.claimed);
        everything_is_there(&h, n + taker.sent);
    }
}

#define RACE_MESSAGES 3000

static void *keep_keeping(void *user)
{
    struct house *h = user;
    while (!atomic_load(&taker.done))
        store_keep_turn(h->store);
    return NULL;
}

/* The same by chance, over some hundred files. */
static void files_are_filled_beside_appends(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, 32u << 10);
    atomic_store(&taker.done, false);
    pthread_t keeper;
    assert_int_equal(pthread_create(&keeper, NULL, keep_keeping, &h), 0);
    for (uint64_t n = 0; n < RACE_MESSAGES; n += 4) {
        house_must_send(&h, n, 4);
        (void)store_flush_turn(h.store);
    }
    atomic_store(&taker.done, true);
    assert_int_equal(pthread_join(keeper, NULL), 0);
    print_message("# %lu pieces were filled, in %llu files\n", h.fault->pushes,
                  (unsigned long long)(h.store->log.end / h.options.log_file_size));
    everything_is_there(&h, RACE_MESSAGES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_by_what_was_written),
        cmocka_unit_test(fills_the_rest_of_a_file_after_a_start),
        cmocka_unit_test(a_clean_stop_gives_back_what_was_filled),
        cmocka_unit_test(fills_nothing_where_nobody_waits_for_syncs),
        cmocka_unit_test(fills_nothing_on_a_full_disk),
        cmocka_unit_test(fills_a_small_part_of_the_disk_once),
        cmocka_unit_test(fills_only_while_nobody_waits_for_the_disk),
        cmocka_unit_test(fills_nothing_for_who_needs_the_disk_all_the_time),
        cmocka_unit_test(leaves_a_slow_disk_alone),
        cmocka_unit_test(a_disk_that_is_full_costs_only_speed),
        cmocka_unit_test(fills_when_there_is_a_handle),
        cmocka_unit_test(a_disk_that_cannot_push_is_slow_and_well),
        cmocka_unit_test(a_push_that_fails_beside_records_is_believed),
        cmocka_unit_test(no_record_comes_under_the_zeros),
        cmocka_unit_test(files_are_filled_beside_appends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
