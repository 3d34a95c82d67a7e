#include "store/test_house.h"

#include "base/crc32.h"

#include <stdio.h>

/* Sends n messages, in calls of some, and dispatches them. */
static void fill(struct house *h, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i += 25)
        house_must_send(h, i, i + 25 < from + n ? 25 : (size_t)(from + n - i));
    house_dispatch(h);
}

static void check_all(struct house *h, uint64_t n)
{
    cleanup(free_at) uint8_t *seen = calloc(n, 1);
    assert_int_equal(house_read_all(h, seen, n), n);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(seen[i], 1);
}

/* A clean stop leaves a mark, and the next start hardly reads anything. */
static void a_clean_stop_is_opened_without_reading_the_log(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    assert_true(house_has(&h, "abort"));
    assert_true(house_has(&h, "lock"));
    fill(&h, 0, 1000);
    uint64_t end = store_confirmed(h.store);
    house_must_close(&h);
    assert_false(house_has(&h, "abort"));
    house_must_open(&h);
    assert_true(h.report.clean);
    assert_int_equal(h.report.log_end, end);
    assert_int_equal(h.report.examined_bytes, 0);
    assert_int_equal(h.report.cut_bytes, 0);
    assert_int_equal(h.report.queues, HOUSE_TOPICS * HOUSE_QUEUES);
    assert_string_equal(h.report.note, "");
    check_all(&h, 1000);
    fill(&h, 1000, 100); /* offsets go on */
    check_all(&h, 1100);
    house_must_close(&h);
    house_clear(&h);
}

/* The process ends without a word; the kernel has all it was given, dispatched or not. */
static void after_a_crash_everything_written_is_there(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 500);
    house_must_send(&h, 500, 200); /* not dispatched */
    uint64_t end = store_confirmed(h.store);
    house_crash(&h);
    house_must_open(&h);
    assert_false(h.report.clean);
    assert_int_equal(h.report.log_end, end);
    assert_int_equal(h.report.examined_bytes, end);
    check_all(&h, 700);
    house_clear(&h);
}

/* ST-7: `abort` is there while the store is open and after a crash, not after a clean stop. Either
 * way the file made ahead does not count: the log ends where it ended. */
static void a_file_made_ahead_is_nothing_to_recover(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 500);
    for (int clean = 0; clean < 2; clean++) {
        store_keep_turn(h.store);
        uint64_t end = store_confirmed(h.store);
        char ahead[PATH_SIZE];
        fileset_path(ahead, LOG_FOLDER, h.store->log.end);
        assert_true(house_has(&h, "abort"));
        if (clean)
            house_must_close(&h);
        else
            house_crash(&h);
        assert_int_equal(house_has(&h, "abort"), !clean);
        assert_int_equal(house_size(&h, ahead), HOUSE_LOG_FILE);
        house_must_open(&h);
        assert_int_equal(h.report.clean, clean);
        assert_int_equal(h.report.log_end, end);
        assert_int_equal(h.report.cut_bytes, 0);
        assert_string_equal(h.report.note, "");
        check_all(&h, 500);
    }
    house_must_close(&h);
    house_clear(&h);
}

/* With a checkpoint only the files since then are read: what came after it, and the part of a file
 * in front of that, however long the log is. */
static void a_crash_is_recovered_from_the_checkpoint(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 2000);
    clock_manual_advance(&h.clock, 61000);
    (void)store_flush_turn(h.store);
    fill(&h, 2000, 1);
    clock_manual_advance(&h.clock, 61000);
    (void)store_flush_turn(h.store);
    store_keep_turn(h.store);
    uint64_t kept = store_confirmed(h.store);
    fill(&h, 2001, 400);
    uint64_t end = store_confirmed(h.store);
    house_crash(&h);
    house_must_open(&h);
    assert_int_equal(h.report.log_end, end);
    assert_true(h.report.examined_bytes >= end - kept);
    assert_true(h.report.examined_bytes <= end - kept + HOUSE_LOG_FILE);
    assert_true(kept > 4 * (uint64_t)HOUSE_LOG_FILE); /* and that is not the whole log */
    assert_string_equal(h.report.note, "");
    check_all(&h, 2401);

    /* a checkpoint that is not there costs time, nothing else */
    house_crash(&h);
    house_remove(&h, "checkpoint");
    house_must_open(&h);
    assert_int_equal(h.report.examined_bytes, end);
    check_all(&h, 2401);
    house_clear(&h);
}

/* Every byte of the last two records is changed in turn. The record in front is always there; what
 * is changed is cut off where the format can tell, and never worse than that. */
static void a_changed_tail_is_cut_and_never_a_crash(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 18);
    struct stored out[2];
    uint64_t end;
    assert_int_equal(house_send(&h, 18, 2, out, &end), OK);
    uint64_t first = (uint64_t)out[0].position;
    house_crash(&h);
    size_t cut = 0;
    for (uint64_t at = first; at < end; at++) {
        house_flip(&h, "commitlog/00000000000000000000", at, 0x20);
        house_must_open(&h);
        assert_true(h.report.log_end >= first);
        assert_true(h.report.log_end <= end);
        cut += h.report.log_end < end;
        if (h.report.log_end < end) {
            assert_int_equal(h.report.cut_bytes, end - h.report.log_end);
            assert_int_equal(house_read_all(&h, NULL, 0), h.report.log_end == first ? 18 : 19);
        }
        house_crash(&h);
        /* put back what was there */
        house_remove(&h, "commitlog");
        house_remove(&h, "consumequeue");
        house_must_open(&h);
        fill(&h, 0, 18);
        uint64_t again;
        assert_int_equal(house_send(&h, 18, 2, out, &again), OK);
        assert_int_equal(again, end);
        house_crash(&h);
    }
    assert_true(cut > 100); /* sizes, magic, position, CRC, body; the rest nobody can tell */
    house_clear(&h);
}

/* The last record is torn at a sector, which falls into each of its parts in turn: header, body,
 * topic, properties. The CRC sees only the body; nothing of such a record may be taken. */
static void a_torn_tail_is_cut(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    static const uint8_t body[1024] = {1};
    char props[121];
    memset(props, 'p', sizeof props);
    for (size_t size = 0; size < 2 * 512; size += 3) {
        house_must_send(&h, 0, 1);
        uint64_t before = store_confirmed(h.store), end;
        struct draft d = {
            .queue = store_queue(h.store, BYTES("Torn"), 0),
            .topic = BYTES("Torn"),
            .body = bytes_of(body, size),
            .props = bytes_of(props, sizeof props),
            .body_crc = crc32_positive(bytes_of(body, size)),
            .born_host.ip_len = 4,
            .store_host.ip_len = 4,
        };
        struct stored out;
        assert_int_equal(store_append(h.store, &d, 1, &out, &end), OK);
        uint64_t sector = end - end % 512;
        bool torn = sector > (uint64_t)out.position && sector < end;
        char path[PATH_SIZE];
        fileset_path(path, "commitlog", sector - sector % HOUSE_LOG_FILE);
        house_crash(&h);
        if (torn)
            house_truncate(&h, path, sector % HOUSE_LOG_FILE);
        house_must_open(&h);
        assert_int_equal(h.report.log_end, torn ? before : end);
        assert_int_equal(house_size(&h, path), HOUSE_LOG_FILE);
        house_remove(&h, "commitlog");
        store_abandon(take(&h.store));
        house_must_open(&h);
    }
    house_clear(&h);
}

/* Queue files are derived: gone, short or damaged, after a clean stop or a crash, they come back.
 */
static void lost_queue_files_are_built_again(void **state)
{
    (void)state;
    static const char *const lost[] = {
        "consumequeue",
        "consumequeue/%T%_1",
        "consumequeue/%T%_1/0",
        "consumequeue/%T%_1/0/00000000000000000000",
        "consumequeue/%T%_1/0/00000000000000002000",
    };
    for (size_t i = 0; i < 2 * sizeof lost / sizeof lost[0]; i++) {
        struct house h;
        if (i == 6)
            continue; /* after a crash nothing tells that a queue began earlier */
        house_init(&h, 1);
        house_must_open(&h);
        fill(&h, 0, 800);
        if (i % 2) {
            house_must_close(&h);
        } else {
            clock_manual_advance(&h.clock, 61000); /* with a checkpoint that knows nothing of it */
            (void)store_flush_turn(h.store);
            store_keep_turn(h.store);
            fill(&h, 800, 1);
            house_crash(&h);
        }
        house_remove(&h, lost[i / 2]);
        house_must_open(&h);
        check_all(&h, i % 2 ? 800 : 801);
        house_clear(&h);
    }
}

static void damaged_queue_files_are_built_again(void **state)
{
    (void)state;
    const char *file = "consumequeue/%T%_1/0/00000000000000000000";
    for (int clean = 0; clean < 2; clean++) {
        struct house h;
        house_init(&h, 1);
        house_must_open(&h);
        fill(&h, 0, 800);
        house_must_close(&h);
        house_truncate(&h, file, 777);
        if (!clean) {
            house_must_open(&h);
            house_crash(&h);
            house_truncate(&h, file, 1234);
        }
        house_must_open(&h);
        check_all(&h, 800);
        house_must_close(&h);
        house_truncate(&h, file, 4000);
        assert_int_equal(house_open(&h), ERR_MISMATCH); /* that is another setting, or not ours */
        assert_non_null(strstr(h.why.text, "4000"));
        house_clear(&h);
    }
}

/* Units that point behind the log's end, or nowhere: cut, and built again from what is there. */
static void units_past_the_log_are_cut(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 900);
    char last[PATH_SIZE];
    uint64_t base = h.store->log.end - HOUSE_LOG_FILE;
    fileset_path(last, "commitlog", base);
    house_must_close(&h);
    house_remove(&h, last); /* and with it the end */
    assert_int_equal(house_open(&h), ERR_DAMAGED);
    assert_non_null(strstr(h.why.text, "its end is missing"));
    assert_int_equal(house_open(&h), ERR_DAMAGED); /* the second time as well */
    house_remove(&h, "checkpoint");                /* it is to go on without */
    house_must_open(&h);
    assert_true(h.report.log_end <= base);
    uint64_t there = house_read_all(&h, NULL, 0);
    assert_true(there > 0 && there < 900);
    fill(&h, there, 100);
    check_all(&h, there + 100);
    house_must_close(&h);

    house_remove(&h, "commitlog"); /* no log: no queues */
    house_remove(&h, "checkpoint");
    house_must_open(&h);
    assert_int_equal(h.report.log_end, 0);
    assert_int_equal(house_read_all(&h, NULL, 0), 0);
    fill(&h, 0, 50);
    check_all(&h, 50);
    house_clear(&h);
}

/* A file is missing in the middle of what was on disk: that is for a human. */
static void a_hole_in_the_log_is_refused(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 900);
    house_must_close(&h);
    house_remove(&h, "commitlog/00000000000000065536");
    assert_int_equal(house_open(&h), ERR_DAMAGED);
    assert_non_null(strstr(h.why.text, "commitlog/00000000000000065536 is missing"));
    assert_int_equal(house_open(&h), ERR_DAMAGED); /* also now that it looks like a crash */
    assert_true(house_has(&h, "commitlog/00000000000000131072"));
    house_clear(&h);
}

/* All of it is missing, as when its disk is not mounted: the queues stay as they are, and the start
 * is refused until somebody says that these messages do not count. */
static void a_log_that_is_gone_is_refused(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_close(&h);
    house_must_open(&h); /* a folder without messages may be opened again */
    fill(&h, 0, 100);
    house_must_close(&h);
    assert_true(house_has(&h, "commitlog/00000000000000000000"));
    house_remove(&h, "commitlog/00000000000000000000");
    if (house_has(&h, "commitlog/00000000000000065536"))
        house_remove(&h, "commitlog/00000000000000065536");
    assert_int_equal(house_open(&h), ERR_DAMAGED);
    assert_non_null(strstr(h.why.text, "Is its disk mounted?"));
    house_remove(&h, "checkpoint");
    house_must_open(&h);
    check_all(&h, 0);
    house_clear(&h);
}

/* A failed write is wiped by cutting its file and making it long again. A crash between the two
 * leaves it short, and behind it may stand the next file, made ahead and empty. */
static void a_log_file_that_a_crash_left_short_gets_its_length(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct house h;
        house_init(&h, 1);
        house_must_open(&h);
        house_must_send(&h, 0, 20);
        uint64_t written = position_get(&h.store->positions.written);
        assert_true(written < HOUSE_LOG_FILE);
        if (ahead)
            assert_int_equal(log_make_ahead(h.store, NULL), OK);
        house_crash(&h);
        house_truncate(&h, "commitlog/00000000000000000000", written + 100);
        house_must_open(&h);
        check_all(&h, 20);
        house_clear(&h);
    }
}

/* With records behind it a short file has lost some, and that is not ours to repair. */
static void a_short_log_file_before_others_is_refused(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 800);
    assert_true(position_get(&h.store->positions.written) > HOUSE_LOG_FILE);
    house_crash(&h);
    house_truncate(&h, "commitlog/00000000000000000000", HOUSE_LOG_FILE / 2);
    assert_int_equal(house_open(&h), ERR_MISMATCH);
    house_clear(&h);
}

static void log_files_of_another_size_are_refused(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 300);
    house_must_close(&h);
    h.options.log_file_size = 2 * HOUSE_LOG_FILE;
    assert_int_equal(house_open(&h), ERR_MISMATCH);
    h.options.log_file_size = HOUSE_LOG_FILE / 2;
    assert_int_equal(house_open(&h), ERR_MISMATCH);
    h.options.log_file_size = 100;
    assert_int_equal(house_open(&h), ERR_INVALID);
    h.options.log_file_size = HOUSE_LOG_FILE;
    h.options.queue_file_size = 999;
    assert_int_equal(house_open(&h), ERR_INVALID);
    h.options.queue_file_size = HOUSE_QUEUE_FILE;
    house_must_open(&h);
    check_all(&h, 300);
    house_clear(&h);
}

/* A record in the middle is damaged, whole ones stand behind it: said with position and file. What
 * the checkpoint knows to have been on disk is moved aside, not destroyed. */
static void damage_in_the_middle_is_reported(void **state)
{
    (void)state;
    for (int flushed = 0; flushed < 2; flushed++) {
        struct house h;
        house_init(&h, 1);
        house_must_open(&h);
        fill(&h, 0, 30);
        struct stored out[500];
        uint64_t end;
        assert_int_equal(house_send(&h, 30, 500, out, &end), OK);
        uint64_t at = (uint64_t)out[20].position;
        if (flushed) {
            clock_manual_advance(&h.clock, 61000);
            house_must_send(&h, 530, 1);
            (void)store_flush_turn(h.store);
            store_keep_turn(h.store);
        }
        house_crash(&h);
        assert_true(at < HOUSE_LOG_FILE);
        house_flip(&h, "commitlog/00000000000000000000", at + 100, 0xff);
        house_must_open(&h);
        assert_int_equal(h.report.log_end, at);
        char wanted[160];
        (void)snprintf(wanted, sizeof wanted,
                       "log damaged at position %llu (file 00000000000000000000), readable again "
                       "at %llu; cut there%s",
                       (unsigned long long)at, (unsigned long long)out[21].position,
                       flushed ? ", the rest was moved aside" : "");
        assert_string_equal(h.report.note, wanted);
        check_all(&h, 50);

        char aside[128];
        (void)snprintf(aside, sizeof aside, "commitlog-cut-%020llu/%020llu", (unsigned long long)at,
                       (unsigned long long)at);
        assert_int_equal(house_has(&h, aside), flushed);
        (void)snprintf(aside, sizeof aside, "commitlog-cut-%020llu/00000000000000065536",
                       (unsigned long long)at);
        assert_int_equal(house_has(&h, aside), flushed);
        assert_false(house_has(&h, "commitlog/00000000000000065536"));
        fill(&h, 50, 100);
        check_all(&h, 150);
        house_clear(&h);
    }
}

/* Nothing of the part that was cut off comes back, though new records end where old ones begin: the
 * same messages are sent again after each cut, so every old record would fit. */
static void nothing_that_was_cut_comes_back(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct stored out[60];
    uint64_t end;
    assert_int_equal(house_send(&h, 0, 60, out, &end), OK);
    for (size_t keep = 59; keep > 1; keep -= 2) {
        house_crash(&h);
        house_flip(&h, "commitlog/00000000000000000000", (uint64_t)out[keep].position + 4, 1);
        house_must_open(&h);
        check_all(&h, keep);
        house_must_send(&h, keep, 1); /* exactly what stood there */
        house_crash(&h);
        house_must_open(&h);
        check_all(&h, keep + 1);
        house_must_send(&h, keep + 1, 59 - keep);
    }
    house_clear(&h);
}

/* The log's first files were removed by age, and the queue files are lost: queues start at the
 * offset of their first record, with fillers in front, as Apache has it. */
static void queues_of_a_log_that_begins_later(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 1000);
    int64_t max = queue_max(store_queue(h.store, BYTES("%T%_1"), 0));
    house_must_close(&h);
    house_remove(&h, "commitlog/00000000000000000000");
    for (int lost = 0; lost < 2; lost++) {
        if (lost)
            house_remove(&h, "consumequeue");
        house_must_open(&h);
        assert_int_equal(h.report.log_first, HOUSE_LOG_FILE);
        struct queue *queue = store_queue(h.store, BYTES("%T%_1"), 0);
        int64_t min = queue_min(h.store, queue);
        assert_true(min > 0 && min < max);
        assert_int_equal(queue_max(queue), max);
        uint64_t there = house_read_all(&h, NULL, 0);
        assert_true(there > 500 && there < 1000);
        struct read_request request = {0, 32, 1 << 20, NULL, NULL};
        struct read_result got;
        store_read(h.store, queue, &request, &got);
        assert_int_equal(got.status, READ_TOO_SMALL);
        assert_int_equal(got.next, min);
        if (lost) {
            struct unit unit;
            assert_int_equal(queue_unit_at(h.store, queue, min - 1, &unit, NULL), OK);
            assert_int_equal(unit.position, 0);
            assert_int_equal(unit.size, UNIT_FILLER);
        }
        house_must_close(&h);
        house_must_open(&h); /* fillers are counted like others */
        assert_int_equal(queue_min(h.store, store_queue(h.store, BYTES("%T%_1"), 0)), min);
        assert_int_equal(h.report.examined_bytes, 0);
        house_crash(&h);
        house_must_open(&h);
        assert_int_equal(queue_min(h.store, store_queue(h.store, BYTES("%T%_1"), 0)), min);
        assert_int_equal(house_read_all(&h, NULL, 0), there);
        house_must_close(&h);
    }
    house_clear(&h);
}

/* Somebody made the checkpoint longer: it cannot be read, and the next one that is written can. */
static void a_checkpoint_of_another_size_is_written_anew(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    fill(&h, 0, 100);
    house_must_close(&h);
    house_truncate(&h, "checkpoint", 2 * CHECKPOINT_SIZE);
    house_must_open(&h);
    house_must_close(&h);
    assert_int_equal(house_size(&h, "checkpoint"), CHECKPOINT_SIZE);
    struct checkpoint c;
    assert_int_equal(checkpoint_read(h.disk, &c, NULL), OK);
    assert_true(c.sealed);
    assert_int_equal(c.sealed_units, 100);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_stop_is_opened_without_reading_the_log),
        cmocka_unit_test(a_checkpoint_of_another_size_is_written_anew),
        test_of_row("FR-2", after_a_crash_everything_written_is_there),
        cmocka_unit_test(a_file_made_ahead_is_nothing_to_recover),
        test_of_row("ST-8", a_crash_is_recovered_from_the_checkpoint),
        cmocka_unit_test(a_changed_tail_is_cut_and_never_a_crash),
        cmocka_unit_test(a_torn_tail_is_cut),
        cmocka_unit_test(lost_queue_files_are_built_again),
        cmocka_unit_test(damaged_queue_files_are_built_again),
        cmocka_unit_test(units_past_the_log_are_cut),
        cmocka_unit_test(a_hole_in_the_log_is_refused),
        cmocka_unit_test(a_log_that_is_gone_is_refused),
        cmocka_unit_test(a_log_file_that_a_crash_left_short_gets_its_length),
        cmocka_unit_test(a_short_log_file_before_others_is_refused),
        cmocka_unit_test(log_files_of_another_size_are_refused),
        cmocka_unit_test(damage_in_the_middle_is_reported),
        cmocka_unit_test(nothing_that_was_cut_comes_back),
        cmocka_unit_test(queues_of_a_log_that_begins_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
