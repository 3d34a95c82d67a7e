/* Retention, and a disk that fills up. The clock is the test's, the disk says what the test wants.
 */
#include "store/test_house.h"

#include <stdio.h>
#include <time.h>

#define MINUTE_MS 60000
#define ANY_HOUR  0xffffffu

/* A store whose disk is `used` percent full; each log file that is gone makes it `relief` less. */
struct scene {
    struct house h;
    unsigned used, relief;
    struct store_cleaned got;
};

static struct vfs_space scene_space(void *user)
{
    struct scene *s = user;
    uint64_t gone = position_get(&s->h.store->positions.first) / HOUSE_LOG_FILE;
    uint64_t used = s->used - gone * s->relief;
    return (struct vfs_space){
        .total = 1100, .free = 1100 - 10 * used, .available = 1000 - 10 * used};
}

static void scene_open(struct scene *s)
{
    *s = (struct scene){.used = 50};
    house_init(&s->h, 1);
    s->h.fault->space = scene_space;
    s->h.fault->space_user = s;
    s->h.options.retention = (struct store_retention){
        .reserved_ms = MINUTE_MS,
        .delete_hours = ANY_HOUR,
        .disk_max_used = 75,
        .disk_forced = 85,
        .disk_warning = 90,
    };
    house_must_open(&s->h);
}

static void scene_clear(struct scene *s)
{
    house_must_close(&s->h);
    house_clear(&s->h);
}

/* Sends n messages, a second apart in calls of 25, and dispatches and flushes them. */
static void scene_fill(struct scene *s, uint64_t from, uint64_t n)
{
    for (uint64_t i = from; i < from + n; i += 25) {
        clock_manual_advance(&s->h.clock, 1000);
        house_must_send(&s->h, i, 25);
    }
    house_dispatch(&s->h);
    clock_manual_advance(&s->h.clock, 10000);
    (void)store_flush_turn(s->h.store);
}

/* One round, and the sweep to its end. */
static void scene_round(struct scene *s)
{
    struct store_cleaned more;
    clock_manual_advance(&s->h.clock, 10000);
    store_clean_turn(s->h.store, &s->got);
    assert_true(s->got.looked);
    while (s->h.store->cleaner.sweep) {
        store_clean_turn(s->h.store, &more);
        assert_false(more.looked);
        s->got.queue_files += more.queue_files;
    }
}

static uint64_t log_files(struct scene *s)
{
    return (s->h.store->log.end - s->h.store->log.first) / HOUSE_LOG_FILE;
}

/* What is on disk and what is in the row are the same files. */
static void check_files(struct house *h, const struct fileset *set)
{
    uint64_t *bases;
    size_t n;
    assert_int_equal(fileset_list(h->disk, set->folder, &bases, &n, NULL), OK);
    assert_int_equal(n, (set->end - set->first) / set->file_size);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bases[i], set->first + i * set->file_size);
    free(bases);
}

static void check_queue(void *user, struct bytes topic, int32_t queue_id, struct queue *queue)
{
    struct house *h = user;
    (void)topic, (void)queue_id;
    check_files(h, &queue->files);
    uint64_t size = queue->files.file_size;
    int64_t min = queue_min(h->store, queue), units = (int64_t)(size / UNIT_SIZE);
    if (queue->files.end - queue->files.first > size)
        assert_true((int64_t)(queue->files.first / UNIT_SIZE) + units > min);
    struct unit unit;
    if (min < queue_max(queue)) {
        assert_int_equal(queue_unit_at(h->store, queue, min, &unit, NULL), OK);
        assert_true(unit.position >= h->store->log.first);
    }
    if (min > (int64_t)(queue->files.first / UNIT_SIZE)) {
        assert_int_equal(queue_unit_at(h->store, queue, min - 1, &unit, NULL), OK);
        assert_true(unit_is_filler(&unit) || unit.position < h->store->log.first);
    }
    if (min == 0)
        return;
    struct read_request request = {.offset = min - 1, .max_count = 32, .max_bytes = 1 << 20};
    static struct read_result got;
    store_read(h->store, queue, &request, &got);
    assert_int_equal(got.status, READ_TOO_SMALL);
    assert_int_equal(got.next, min);
}

/* Everything agrees: files, bounds, minima; and all of it can be read. Returns how many messages
 * there are. */
static uint64_t check_in_line(struct house *h)
{
    check_files(h, &h->store->log);
    assert_int_equal(position_get(&h->store->positions.first), h->store->log.first);
    store_each_queue(h->store, check_queue, h);
    return house_read_all(h, NULL, 0);
}

/* ---- age ---- */

static size_t index_files(struct scene *s)
{
    cleanup(names_clear) struct names names = {0};
    assert_int_equal(names_list(s->h.disk, "index", false, &names, NULL), OK);
    return names.n;
}

/* With a retention of a minute, files whose messages are older are gone although nobody has
 * consumed them; what is younger stays, and offsets go on. */
static void what_is_older_than_the_retention_is_gone(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    scene_fill(&s, 0, 1000);
    clock_manual_advance(&s.h.clock, MINUTE_MS);
    scene_fill(&s, 1000, 750); /* 30 s */
    struct queue *queue = store_queue_find(s.h.store, BYTES("%T%_0"), 0);
    int64_t max = queue_max(queue);
    uint64_t files = log_files(&s);
    size_t of_index = index_files(&s);
    scene_round(&s);
    assert_int_equal(s.got.err, OK);
    assert_true(index_files(&s) > 0 && index_files(&s) < of_index);
    assert_true(s.got.log_files > 2 && s.got.log_files < files);
    assert_true(s.got.queue_files > 0);
    assert_int_equal(s.got.log_first, s.got.log_files * HOUSE_LOG_FILE);
    uint64_t there = check_in_line(&s.h);
    assert_true(there >= 750 && there < 1000); /* and some in the file that has both */
    assert_int_equal(queue_max(queue), max);
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0); /* nothing more is old enough */

    house_must_close(&s.h); /* the next start counts the same */
    house_must_open(&s.h);
    assert_int_equal(s.h.report.examined_bytes, 0);
    assert_int_equal(check_in_line(&s.h), there);
    house_crash(&s.h);
    house_must_open(&s.h);
    assert_string_equal(s.h.report.note, "");
    assert_int_equal(check_in_line(&s.h), there);
    scene_fill(&s, 1750, 25);
    assert_int_equal(check_in_line(&s.h), there + 25);
    scene_clear(&s);
}

/* Everything is old: at most ten files in a round, and the last one stays. Queues that have nothing
 * in it are empty and keep their end, over a stop and a crash. */
static void an_empty_queue_keeps_its_end(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    scene_fill(&s, 0, 4000);
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    uint64_t files = log_files(&s);
    assert_true(files > 21);
    scene_round(&s);
    assert_int_equal(s.got.log_files, 10);
    while (s.got.log_files > 0)
        scene_round(&s);
    assert_int_equal(log_files(&s), 1);
    assert_true(check_in_line(&s.h) > 0);

    int64_t max[HOUSE_TOPICS * HOUSE_QUEUES];
    for (int i = 0; i < HOUSE_TOPICS * HOUSE_QUEUES; i++) {
        char topic[16];
        (void)snprintf(topic, sizeof topic, "%%T%%_%d", i / HOUSE_QUEUES);
        max[i] = queue_max(store_queue_find(s.h.store, bytes_str(topic), i % HOUSE_QUEUES));
    }
    uint64_t n = 4002; /* all for one queue */
    while (log_files(&s) < 3) {
        clock_manual_advance(&s.h.clock, 1000);
        house_must_send(&s.h, n, 1);
        n += HOUSE_TOPICS * HOUSE_QUEUES;
    }
    clock_manual_advance(&s.h.clock, 10000 + 2 * MINUTE_MS);
    house_dispatch(&s.h);
    (void)store_flush_turn(s.h.store);
    scene_round(&s);
    assert_int_equal(log_files(&s), 1);
    for (int stop = 0; stop < 3; stop++) {
        (void)check_in_line(&s.h);
        int empty = 0;
        for (int i = 0; i < HOUSE_TOPICS * HOUSE_QUEUES; i++) {
            char topic[16];
            (void)snprintf(topic, sizeof topic, "%%T%%_%d", i / HOUSE_QUEUES);
            struct queue *queue = store_queue_find(s.h.store, bytes_str(topic), i % HOUSE_QUEUES);
            assert_true(queue_max(queue) >= max[i]);
            empty += queue_min(s.h.store, queue) == queue_max(queue);
        }
        assert_true(empty > 0);
        if (stop == 0)
            house_must_close(&s.h);
        else
            house_crash(&s.h);
        house_must_open(&s.h);
    }
    scene_clear(&s);
}

/* A sweep is done in steps. A stop between two of them is clean all the same, and the next start
 * goes on with it. */
static void a_sweep_is_done_in_steps(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    house_must_close(&s.h);
    s.h.options.queue_file_size = 10 * UNIT_SIZE;
    house_must_open(&s.h);
    scene_fill(&s, 0, 500);
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    store_clean_turn(s.h.store, &s.got);
    assert_true(s.got.log_files > 0);
    assert_int_equal(s.got.queue_files, 32);
    assert_non_null(s.h.store->cleaner.sweep);
    house_must_close(&s.h);
    house_must_open(&s.h);
    assert_int_equal(s.h.report.examined_bytes, 0);
    assert_string_equal(s.h.report.note, "");
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    assert_true(s.got.queue_files > 0);
    assert_int_equal(s.h.store->cleaner.swept, s.h.store->log.first);
    store_each_queue(s.h.store, check_queue, &s.h);
    scene_clear(&s);
}

/* What is not on disk or not in its queue stays, however old it is and however full the disk. */
static void what_is_not_flushed_or_dispatched_stays(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    for (uint64_t n = 0; n < 500; n += 25)
        house_must_send(&s.h, n, 25);
    s.used = 99;
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    assert_true(s.got.pressed);
    house_dispatch(&s.h);
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    assert_int_equal(check_in_line(&s.h), 500);
    (void)store_flush_turn(s.h.store);
    scene_round(&s);
    assert_true(s.got.log_files > 0);
    assert_false(s.got.pressed);
    (void)check_in_line(&s.h);
    scene_clear(&s);
}

/* Noon of a summer's day where it is 14 h in UTC: the hour is that of the wall clock. */
static void deletes_in_its_hours_only(void **state)
{
    (void)state;
    assert_int_equal(setenv("TZ", "TEST+02", 1), 0);
    tzset();
    struct scene s;
    scene_open(&s);
    s.h.store->options.retention.delete_hours = 1u << 4 | 1u << 12;
    scene_fill(&s, 0, 1000);
    int64_t day_ms = 24 * 60 * (int64_t)MINUTE_MS;
    int64_t now_ms = clock_ms(&s.h.clock.clock);
    clock_manual_advance(&s.h.clock, 2 * day_ms - now_ms % day_ms + 3 * 60 * (int64_t)MINUTE_MS);
    unsigned deleted_in = 0; /* hours, by bits */
    for (unsigned utc = 3; utc < 27; utc++) {
        scene_round(&s);
        if (s.got.log_files > 0) {
            deleted_in |= 1u << (utc + 24 - 2) % 24;
            scene_fill(&s, 0, 1000);
        }
        int64_t rest = 60 * (int64_t)MINUTE_MS - clock_ms(&s.h.clock.clock) % (60 * MINUTE_MS);
        clock_manual_advance(&s.h.clock, rest);
    }
    assert_int_equal(deleted_in, 1u << 4 | 1u << 12);

    clock_manual_advance(&s.h.clock, 60 * MINUTE_MS);
    store_clean_request(s.h.store); /* at any hour, but what is young stays */
    s.h.store->options.retention.reserved_ms = day_ms;
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    s.h.store->options.retention.reserved_ms = MINUTE_MS;
    scene_round(&s);
    assert_true(s.got.log_files > 0);
    (void)check_in_line(&s.h);
    for (int i = 2; i < 20; i++)
        scene_round(&s);
    scene_fill(&s, 0, 1000);
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    scene_round(&s); /* the 20 rounds are over */
    assert_int_equal(s.got.log_files, 0);
    scene_clear(&s);
    assert_int_equal(unsetenv("TZ"), 0);
    tzset();
}

/* ---- space ---- */

/* Used and available, not total: 10 % of this disk are not for us. */
static void counts_percent_as_apache_does(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    for (s.used = 1; s.used <= 100; s.used++) {
        scene_round(&s);
        assert_int_equal(s.got.used_percent, s.used);
    }
    s.used = 50;
    scene_round(&s);
    scene_clear(&s);
}

/* Over the first limit at any hour what is old goes; over the second what is young, too, until
 * there is enough room. */
static void a_fuller_disk_deletes_more(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    s.h.store->options.retention.delete_hours = 0;
    scene_fill(&s, 0, 1000);
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    scene_fill(&s, 1000, 500); /* 20 s */
    s.used = 75;
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    s.used = 76;
    scene_round(&s);
    assert_true(s.got.log_files > 0);
    assert_true(check_in_line(&s.h) >= 500);
    s.used = 85;
    scene_round(&s);
    assert_int_equal(s.got.log_files, 0);
    assert_true(s.got.pressed);

    uint64_t gone = s.h.store->log.first / HOUSE_LOG_FILE;
    s.relief = 1;
    s.used = 88 + (unsigned)gone;
    scene_round(&s);
    assert_int_equal(s.got.log_files, 3);
    assert_int_equal(s.got.used_percent, 85);
    assert_false(s.got.refusing);
    (void)check_in_line(&s.h);

    s.relief = 0;
    s.used = 89;
    while (log_files(&s) > 1)
        scene_round(&s);
    scene_round(&s); /* and never the last */
    assert_int_equal(log_files(&s), 1);
    (void)check_in_line(&s.h);
    scene_clear(&s);
}

/* Appends are refused with the measured cause, reading goes on; they are taken again when there is
 * room, not a little earlier. A stop meanwhile is a clean one. */
static void a_nearly_full_disk_refuses_appends(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    scene_fill(&s, 0, 25);
    struct stored out[1];
    uint64_t end;
    s.used = 90;
    scene_round(&s);
    assert_int_equal(store_state(s.h.store, NULL), OK);
    s.used = 91;
    scene_round(&s);
    assert_true(s.got.refusing);
    assert_int_equal(house_send(&s.h, 25, 1, out, &end), ERR_DISK_FULL);
    struct fault why = {0};
    assert_int_equal(store_state(s.h.store, &why), ERR_DISK_FULL);
    assert_non_null(strstr(why.text, "91 %"));
    assert_int_equal(check_in_line(&s.h), 25);
    s.used = 86;
    scene_round(&s);
    assert_int_equal(house_send(&s.h, 25, 1, out, &end), ERR_DISK_FULL);
    vfs_fault_plan(s.h.fault, 1, 1, ERR_IO); /* not knowing changes nothing */
    scene_round(&s);
    assert_int_equal(s.got.err, ERR_IO);
    assert_int_equal(s.got.used_percent, 0);
    assert_true(s.got.refusing);

    house_must_close(&s.h);
    house_must_open(&s.h);
    assert_true(s.h.report.clean);
    s.used = 95;
    scene_round(&s);
    assert_true(s.got.refusing);
    s.used = 85;
    scene_round(&s);
    assert_false(s.got.refusing);
    house_must_send(&s.h, 25, 1);
    house_dispatch(&s.h);
    assert_int_equal(check_in_line(&s.h), 26);
    scene_clear(&s);
}

/* Limits that make no sense are brought into Apache's. */
static void limits_are_clamped(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    house_must_close(&s.h);
    const struct store_retention *r;
    s.h.options.retention.disk_max_used = s.h.options.retention.disk_forced =
        s.h.options.retention.disk_warning = 100;
    house_must_open(&s.h);
    r = &s.h.store->options.retention;
    assert_int_equal(r->disk_max_used * 10000 + r->disk_forced * 100 + r->disk_warning, 958590);
    house_must_close(&s.h);
    s.h.options.retention.disk_max_used = s.h.options.retention.disk_forced =
        s.h.options.retention.disk_warning = 0;
    house_must_open(&s.h);
    r = &s.h.store->options.retention;
    assert_int_equal(r->disk_max_used * 10000 + r->disk_forced * 100 + r->disk_warning, 103035);
    scene_clear(&s);
}

/* ---- readers ---- */

/* Whoever has a slice keeps it, and the space with it; the file is gone all the same. */
static void a_slice_outlives_its_file(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    scene_fill(&s, 0, 500);
    struct slice slice;
    assert_int_equal(store_read_at(s.h.store, 0, &slice), OK);
    struct record r;
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    scene_round(&s);
    assert_true(s.got.log_files > 0);
    assert_false(house_has(&s.h, "commitlog/00000000000000000000"));
    assert_int_equal(record_decode(slice.bytes, &r), OK);
    assert_int_equal(message_check(&r), 0);
    counted_drop(slice.owner);
    assert_int_equal(store_read_at(s.h.store, 0, &slice), ERR_NOT_FOUND);
    scene_clear(&s);
}

/* A record that cannot be read has no time; the next file's is as good. */
static void damage_does_not_stop_retention(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    scene_fill(&s, 0, 500);
    assert_true(log_files(&s) > 3);
    house_flip(&s.h, "commitlog/00000000000000065536", 100, 1);
    clock_manual_advance(&s.h.clock, 2 * MINUTE_MS);
    scene_round(&s);
    assert_int_equal(log_files(&s), 1);
    (void)check_in_line(&s.h);
    scene_clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("ST-10", what_is_older_than_the_retention_is_gone),
        cmocka_unit_test(an_empty_queue_keeps_its_end),
        cmocka_unit_test(a_sweep_is_done_in_steps),
        cmocka_unit_test(what_is_not_flushed_or_dispatched_stays),
        cmocka_unit_test(deletes_in_its_hours_only),
        cmocka_unit_test(counts_percent_as_apache_does),
        cmocka_unit_test(a_fuller_disk_deletes_more),
        cmocka_unit_test(a_nearly_full_disk_refuses_appends),
        cmocka_unit_test(limits_are_clamped),
        cmocka_unit_test(a_slice_outlives_its_file),
        cmocka_unit_test(damage_does_not_stop_retention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
