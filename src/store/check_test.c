#include "store/check_rig_test.h"
#include "store/index_int.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST  "commitlog/00000000000000000000"
#define SECOND "commitlog/00000000000000065536"
#define QUEUE  "consumequeue/%T%_0/0/00000000000000000000"

static uint64_t place_of(uint64_t n) /* of message n in its log file */
{
    return (uint64_t)stored[n].position % HOUSE_LOG_FILE;
}

static void path_of(uint64_t n, char out[64])
{
    (void)snprintf(out, 64, "commitlog/%020" PRIu64, (uint64_t)stored[n].position - place_of(n));
}

/* ---- sound ---- */

static void a_sound_folder_has_nothing_to_tell(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    must_find(&h, 0, 0);
    assert_true(found.sum.clean);
    assert_int_equal(found.sum.records, N);
    assert_int_equal(found.sum.units, N);
    assert_int_equal(found.sum.queues, HOUSE_TOPICS * HOUSE_QUEUES);
    assert_int_equal(found.sum.log_file_size, HOUSE_LOG_FILE);
    assert_int_equal(found.sum.queue_file_size, HOUSE_QUEUE_FILE);
    assert_int_equal(found.sum.log_first, 0);
    assert_int_equal(found.sum.log_end, stored[N - 1].position + stored[N - 1].size);
    assert_true(found.sum.log_files >= 2);
    assert_int_equal(found.done, found.of);
    house_must_open(&h); /* and it is as it was */
    assert_int_equal(house_read_all(&h, NULL, 0), N);
    house_clear(&h);
}

/* What a crash leaves is no damage: the mark, units that were not written yet, a torn record. */
static void what_a_crash_leaves_is_no_damage(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, false); /* dispatched, but the keeper did not come */
    must_find(&h, 0, 1 + HOUSE_TOPICS * HOUSE_QUEUES);
    must_say(CHECK_NOTE, "abort", -1, "not clean");
    must_say(CHECK_NOTE, "consumequeue/", -2, "have no unit");
    assert_false(found.sum.clean);
    assert_int_equal(found.sum.records, N);

    house_must_open(&h);
    house_crash(&h);
    must_find(&h, 0, 1);
    house_must_open(&h);
    house_must_send(&h, N, 50); /* not dispatched */
    house_crash(&h);
    must_find(&h, 0, 1 + HOUSE_TOPICS * HOUSE_QUEUES);
    must_say(CHECK_NOTE, "consumequeue/", -2, "have no unit");
    assert_int_equal(found.sum.records, N + 50);

    char path[64];
    house_must_open(&h);
    uint64_t end;
    assert_int_equal(house_send(&h, N + 50, 1, stored, &end), OK);
    house_dispatch(&h);
    assert_int_equal(shelves_file(h.store, NULL), OK);
    house_crash(&h);
    path_of(0, path);
    house_flip(&h, path, place_of(0) + 9, 1);
    must_find(&h, 0, 3);
    must_say(CHECK_NOTE, path, (int64_t)place_of(0), "no record");
    must_say(CHECK_NOTE, "consumequeue/", -2, "have no message");
    house_clear(&h);
}

/* Nothing was ever written, or there is no store at all. */
static void an_empty_folder_is_no_store(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    assert_int_equal(check(&h), ERR_NOT_FOUND);
    assert_non_null(strstr(found.why.text, "no store"));
    assert_false(house_has(&h, "lock"));
    assert_int_equal(h.disk->calls->mkdir(h.disk, "commitlog", NULL), OK);
    must_find(&h, 0, 0);
    assert_int_equal(found.sum.records, 0);
    assert_false(house_has(&h, "lock"));
    house_clear(&h);
}

/* ---- the log ---- */

/* Whichever protected byte of a record changes, it is named, with the place where reading goes on,
 * and all others are counted. */
static void a_changed_bit_is_found_and_the_rest_is_read(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    const uint64_t places[] = {1, 3, 5, 9, 30, 35};
    for (uint64_t n = 10; n < N - 1; n += 331) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            char path[64], next[32];
            path_of(n, path);
            house_flip(&h, path, place_of(n) + places[i], 0x10);
            must_find(&h, 2, 0);
            (void)snprintf(next, sizeof next, "goes on at %lld", (long long)stored[n + 1].position);
            must_say(CHECK_DAMAGE, path, (int64_t)place_of(n), next);
            must_say(CHECK_DAMAGE, "consumequeue/", -2, "not in the log");
            assert_int_equal(found.sum.records, N - 1);
            house_flip(&h, path, place_of(n) + places[i], 0x10);
        }
    }
    must_find(&h, 0, 0);
    house_clear(&h);
}

/* The last record of a folder that was closed cleanly was there once. */
static void a_damaged_end_is_known_from_queues_and_seal(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    char path[64];
    path_of(N - 1, path);
    house_flip(&h, path, place_of(N - 1) + 9, 1);
    must_find(&h, 2, 1);
    must_say(CHECK_NOTE, path, (int64_t)place_of(N - 1), "no record");
    must_say(CHECK_DAMAGE, "commitlog", stored[N - 1].position, "when it was closed");
    must_say(CHECK_DAMAGE, "consumequeue/", -2, "have no message");
    house_clear(&h);
}

/* The checkpoint of a store that crashed tells how far it was on the disk. */
static void a_log_shorter_than_its_checkpoint_is_damaged(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    uint64_t end;
    assert_int_equal(house_send(&h, 0, 1, stored, &end), OK);
    clock_manual_advance(&h.clock, 10000);
    assert_int_equal(house_send(&h, 1, 1, stored + 1, &end), OK);
    house_dispatch(&h);
    clock_manual_advance(&h.clock, 61000);
    (void)store_flush_turn(h.store);
    store_keep_turn(h.store);
    house_crash(&h);
    must_find(&h, 0, 1);
    house_flip(&h, FIRST, (uint64_t)stored[1].position + 9, 1);
    must_find(&h, 1, 3);
    must_say(CHECK_DAMAGE, "checkpoint", 0, "on the disk");
    house_clear(&h);
}

/* Apache's broker does not wipe what it cuts off: a whole record may stand behind the end. */
static void a_record_of_an_earlier_life_is_no_damage(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    char full[512], path[64];
    path_of(N - 1, path);
    house_path(&h, path, full);
    cleanup(close_at) int fd = open(full, O_RDWR | O_CLOEXEC);
    uint8_t record[4096];
    uint32_t size = stored[N - 1].size;
    assert_true(size <= sizeof record);
    assert_int_equal(pread(fd, record, size, (off_t)place_of(N - 1)), size);
    uint64_t behind = place_of(N - 1) + size + 100;
    assert_true(behind + size + RECORD_BLANK_SIZE < HOUSE_LOG_FILE);
    record_place(record, 7, (int64_t)(stored[N - 1].position + size + 100), stored[N - 1].store_ms);
    assert_int_equal(pwrite(fd, record, size, (off_t)behind), size);
    must_find(&h, 0, 1);
    must_say(CHECK_NOTE, path, (int64_t)(place_of(N - 1) + size), "cut off earlier");
    assert_int_equal(found.sum.records, N);
    house_clear(&h);
}

static void a_missing_or_short_log_file_is_named(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    house_truncate(&h, SECOND, HOUSE_LOG_FILE - 1);
    assert_int_equal(check(&h), OK);
    must_say(CHECK_DAMAGE, SECOND, -1, "bytes, the others");
    must_say(CHECK_DAMAGE, "consumequeue/", -2, "not in the log");
    house_remove(&h, SECOND);
    assert_int_equal(check(&h), OK);
    must_say(CHECK_DAMAGE, SECOND, -1, "is missing");
    must_say(CHECK_DAMAGE, "consumequeue/", -2, "not in the log");
    assert_int_equal(found.sum.log_end, stored[N - 1].position + stored[N - 1].size);
    house_clear(&h);
}

/* ---- queues ---- */

/* Each of the three fields of a unit, and a unit that is gone. */
static void a_wrong_unit_is_found(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    const uint64_t places[] = {6, 10, 19};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        house_flip(&h, QUEUE, 5 * UNIT_SIZE + places[i], 1);
        must_find(&h, 1, 0);
        must_say(CHECK_DAMAGE, "consumequeue/%T%_0/0", 5 * UNIT_SIZE, "do not fit");
        house_flip(&h, QUEUE, 5 * UNIT_SIZE + places[i], 1);
    }
    house_truncate(&h, QUEUE, 98 * UNIT_SIZE);
    house_truncate(&h, QUEUE, HOUSE_QUEUE_FILE);
    must_find(&h, 2, 0);
    must_say(CHECK_DAMAGE, "consumequeue/%T%_0/0", 98 * UNIT_SIZE, "2 messages");
    must_say(CHECK_DAMAGE, "consumequeue", -1, "when they were closed");
    house_clear(&h);
}

static void a_missing_or_short_queue_file_is_named(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    house_truncate(&h, QUEUE, HOUSE_QUEUE_FILE - UNIT_SIZE);
    must_find(&h, 3, 0);
    must_say(CHECK_DAMAGE, QUEUE, -1, "bytes, the others");
    must_say(CHECK_DAMAGE, "consumequeue/%T%_0/0", 0, "100 messages");
    house_remove(&h, QUEUE);
    must_find(&h, 2, 0);
    must_say(CHECK_DAMAGE, "consumequeue/%T%_0/0", 0, "100 messages");
    house_remove(&h, "consumequeue/%T%_0/0");
    must_find(&h, 1, 1);
    must_say(CHECK_NOTE, "consumequeue/%T%_0/0", -1, "no files");
    must_say(CHECK_DAMAGE, "consumequeue", -1, "when they were closed");
    house_remove(&h, "consumequeue");
    must_find(&h, 1, HOUSE_TOPICS * HOUSE_QUEUES);
    house_clear(&h);
}

/* A unit that points behind the log, in a queue that has nothing to do there. */
static void a_unit_without_a_message_is_found(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    char path[512], full[512];
    struct stat s;
    for (unsigned i = 0; i < 10; i++) { /* the last file of the queue */
        (void)snprintf(path, sizeof path, "consumequeue/%%T%%_0/0/%020u", i * HOUSE_QUEUE_FILE);
        house_path(&h, path, full);
        if (stat(full, &s) != 0)
            break;
        cleanup(close_at) int fd = open(full, O_RDWR | O_CLOEXEC);
        uint8_t unit[UNIT_SIZE];
        assert_int_equal(pread(fd, unit, UNIT_SIZE, HOUSE_QUEUE_FILE - UNIT_SIZE), UNIT_SIZE);
        if (unit_load(unit).size > 0)
            continue;
        unit_save(unit, &(struct unit){1u << 30, 200, 0});
        assert_int_equal(pwrite(fd, unit, UNIT_SIZE, HOUSE_QUEUE_FILE - UNIT_SIZE), UNIT_SIZE);
    }
    must_find(&h, 2, 0);
    must_say(CHECK_DAMAGE, "consumequeue/%T%_0/0", -2, "for position 1073741824");
    house_clear(&h);
}

/* ---- the index ---- */

#define INDEX_SHAPE ((struct index_shape){16, 300})

/* The first file of the index, which is full, or the last one, which is not. */
static void index_path_of(struct house *h, bool last, char out[INDEX_PATH_SIZE])
{
    cleanup(free_at) uint64_t *names = NULL;
    size_t n;
    assert_int_equal(index_names(h->disk, &names, &n, NULL), OK);
    assert_true(n > 1);
    index_path(out, names[last ? n - 1 : 0]);
}

static void flip_and_find(struct house *h, const char *path, uint64_t at)
{
    house_flip(h, path, at, 0x10);
    assert_int_equal(check(h), OK);
    if (found.sum.damages == 0)
        print_error("byte %llu of %s\n", (unsigned long long)at, path);
    assert_true(found.sum.damages > 0);
    must_say(CHECK_DAMAGE, "index", -2, "");
    house_flip(h, path, at, 0x10);
}

/* Every byte of the header but those that nothing depends on (how many slots are in use; the last
 * milliseconds of the end), every slot, and every byte of some entries. */
static void a_changed_bit_of_the_index_is_found(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    must_find(&h, 0, 0);
    assert_true(found.sum.index_files > 1);
    assert_true(found.sum.index_entries >= N);
    const struct index_shape shape = INDEX_SHAPE;
    const uint32_t numbers[] = {1, 2, 7, 50};
    for (int last = 0; last < 2; last++) {
        char path[INDEX_PATH_SIZE];
        index_path_of(&h, last, path);
        for (uint64_t at = 0; at < INDEX_HEADER_SIZE; at++) {
            bool idle = at == 14 || at == 15 || (at >= 32 && at < 36);
            if (!idle)
                flip_and_find(&h, path, at);
        }
        house_flip(&h, path, 35, 0x10);
        must_find(&h, 0, 1);
        must_say(CHECK_NOTE, path, 32, "slots are in use");
        house_flip(&h, path, 35, 0x10);
        for (uint64_t at = INDEX_HEADER_SIZE; at < index_entry_at(&shape, 0); at += 3)
            flip_and_find(&h, path, at);
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            for (uint64_t k = 0; k < INDEX_ENTRY_SIZE; k++)
                if (numbers[i] > 1 || k < 12 || k >= 16) /* the first one's seconds: see the code */
                    flip_and_find(&h, path, index_entry_at(&shape, numbers[i]) + k);
    }
    must_find(&h, 0, 0);
    house_clear(&h);
}

static void a_missing_or_short_index_file_is_named(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    char first[INDEX_PATH_SIZE], last[INDEX_PATH_SIZE];
    index_path_of(&h, false, first);
    index_path_of(&h, true, last);
    house_truncate(&h, last, house_size(&h, last) - 1);
    must_find(&h, 1, 0);
    must_say(CHECK_DAMAGE, last, -1, "bytes and should have");
    house_truncate(&h, first, 0);
    must_find(&h, 2, 0);
    must_say(CHECK_DAMAGE, first, -1, "bytes and should have");
    house_remove(&h, "index"); /* a store without one is sound: it may keep none */
    must_find(&h, 0, 0);
    house_clear(&h);
}

/* After a crash the newest file is built again whatever it holds; a full one is believed. */
static void after_a_crash_only_full_index_files_count(void **state)
{
    (void)state;
    struct house h;
    house_filled(&h, true);
    house_must_open(&h);
    house_crash(&h);
    must_find(&h, 0, 1);
    char first[INDEX_PATH_SIZE], last[INDEX_PATH_SIZE];
    index_path_of(&h, false, first);
    index_path_of(&h, true, last);
    const struct index_shape shape = INDEX_SHAPE;
    house_flip(&h, last, INDEX_HEADER_SIZE + 3, 1); /* slots are not on disk before a clean stop */
    must_find(&h, 0, 1);
    house_flip(&h, last, index_entry_at(&shape, 5) + 11, 1);
    must_find(&h, 0, 2);
    must_say(CHECK_NOTE, last, -2, "builds it again");
    house_flip(&h, first, index_entry_at(&shape, 5) + 11, 1);
    must_find(&h, 1, 2);
    must_say(CHECK_DAMAGE, first, -2, "");
    house_clear(&h);
}

/* ---- any damage ---- */

/* A byte anywhere, in any file, is changed to anything: the check ends, and a start that would not
 * find everything is never called sound. */
static void ends_whatever_is_changed(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    struct house h;
    house_filled(&h, true);
    char index[INDEX_PATH_SIZE];
    index_path_of(&h, dice_below(&dice, 2) == 0, index);
    const char *const files[] = {FIRST, SECOND, QUEUE, "checkpoint", index};
    for (int i = 0; i < 150; i++) {
        const char *file = files[dice_below(&dice, 5)];
        uint64_t at = dice_below(&dice, house_size(&h, file));
        uint8_t with = (uint8_t)(1 + dice_below(&dice, 255));
        house_flip(&h, file, at, with);
        assert_int_equal(check(&h), OK);
        if (file == files[2]) /* every byte of this one counts */
            assert_true(found.sum.damages > 0);
        house_flip(&h, file, at, with);
    }
    must_find(&h, 0, 0);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_folder_has_nothing_to_tell),
        cmocka_unit_test(what_a_crash_leaves_is_no_damage),
        cmocka_unit_test(an_empty_folder_is_no_store),
        cmocka_unit_test(a_changed_bit_is_found_and_the_rest_is_read),
        cmocka_unit_test(a_damaged_end_is_known_from_queues_and_seal),
        cmocka_unit_test(a_log_shorter_than_its_checkpoint_is_damaged),
        cmocka_unit_test(a_record_of_an_earlier_life_is_no_damage),
        cmocka_unit_test(a_missing_or_short_log_file_is_named),
        cmocka_unit_test(a_wrong_unit_is_found),
        cmocka_unit_test(a_missing_or_short_queue_file_is_named),
        cmocka_unit_test(a_unit_without_a_message_is_found),
        cmocka_unit_test(a_changed_bit_of_the_index_is_found),
        cmocka_unit_test(a_missing_or_short_index_file_is_named),
        cmocka_unit_test(after_a_crash_only_full_index_files_count),
        cmocka_unit_test(ends_whatever_is_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
