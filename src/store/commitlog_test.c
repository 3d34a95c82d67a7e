#include "store/test_house.h"

#include "base/crc32.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

/* What is appended is read back, byte for byte, at the offsets and positions that were told. */
static void reads_back_what_was_appended(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    assert_true(h.report.clean);
    struct stored out[32];
    uint64_t end = 0, before = 0;
    for (uint64_t n = 0; n < 640; n += 32) {
        assert_int_equal(house_send(&h, n, 32, out, &end), OK);
        assert_true(end > before);
        before = end;
        assert_int_equal(store_confirmed(h.store), end);
        for (size_t i = 0; i < 32; i++) {
            struct slice slice;
            struct record r;
            assert_int_equal(store_read_at(h.store, out[i].position, &slice), OK);
            assert_int_equal(slice.bytes.len, out[i].size);
            assert_int_equal(record_decode(slice.bytes, &r), OK);
            assert_int_equal(message_check(&r), n + i);
            assert_int_equal(r.queue_offset, out[i].queue_offset);
            assert_int_equal(r.store_ms, out[i].store_ms);
            counted_drop(slice.owner);
        }
    }
    house_dispatch(&h);
    uint8_t seen[640] = {0};
    assert_int_equal(house_read_all(&h, seen, 640), 640);
    for (size_t i = 0; i < 640; i++)
        assert_int_equal(seen[i], 1);
    house_must_close(&h);
    house_clear(&h);
}

/* A draft of a given size for one queue; the body is a part of `body`. */
static struct draft plain(struct house *h, const uint8_t *body, size_t len)
{
    struct draft d = {
        .queue = store_queue(h->store, BYTES("Plain"), 3),
        .topic = BYTES("Plain"),
        .queue_id = 3,
        .body = bytes_of(body, len),
        .born_host = {.ip_len = 4},
        .store_host = {.ip_len = 4},
    };
    assert_non_null(d.queue);
    d.body_crc = crc32_positive(d.body);
    return d;
}

/* Units of three with bodies of all sizes, over some files: each unit is contiguous and in one
 * file, and where the next one did not fit, a blank record of exactly the rest closes the file. */
static void never_splits_a_unit_over_files(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct dice dice = test_dice();
    static uint8_t body[8000];
    uint64_t previous_end = 0;
    for (int i = 0; i < 60; i++) {
        struct draft d[3];
        struct stored out[3];
        uint64_t end;
        for (size_t k = 0; k < 3; k++) {
            d[k] = plain(&h, body, (size_t)dice_below(&dice, sizeof body));
            d[k].with_next = k < 2;
        }
        assert_int_equal(store_append(h.store, d, 3, out, &end), OK);
        assert_int_equal(out[1].position, out[0].position + out[0].size);
        assert_int_equal(out[2].position, out[1].position + out[1].size);
        assert_int_equal(out[0].position / HOUSE_LOG_FILE, (end - 1) / HOUSE_LOG_FILE);
        assert_int_equal(out[1].queue_offset, out[0].queue_offset + 1);
        if ((uint64_t)out[0].position != previous_end) { /* a new file was begun */
            assert_int_equal(out[0].position % HOUSE_LOG_FILE, 0);
            struct segment *seg;
            const uint8_t *map;
            assert_int_equal(segment_get(&h.store->cache, &h.store->log, previous_end, &seg, NULL),
                             OK);
            assert_int_equal(segment_map(seg, &map, NULL), OK);
            const uint8_t *blank = map + previous_end % HOUSE_LOG_FILE;
            assert_int_equal(load_u32(blank), HOUSE_LOG_FILE - previous_end % HOUSE_LOG_FILE);
            assert_int_equal(load_u32(blank + 4), RECORD_MAGIC_BLANK);
            segment_drop(seg);
        }
        previous_end = end;
    }
    assert_true(previous_end > 5 * HOUSE_LOG_FILE);
    assert_true(house_has(&h, "commitlog/00000000000000065536"));
    assert_int_equal(house_size(&h, "commitlog/00000000000000065536"), HOUSE_LOG_FILE);
    house_clear(&h);
}

/* A record that is too big is refused alone; a unit that is too big is refused whole. The others of
 * the call are stored, and offsets have no gap. */
static void refuses_what_is_too_big_and_stores_the_rest(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    static uint8_t body[40000];
    struct draft d[6];
    for (size_t i = 0; i < 6; i++)
        d[i] = plain(&h, body, 100);
    d[1] = plain(&h, body, h.options.max_record_size);
    d[3] = plain(&h, body, h.options.max_record_size / 2);
    d[3].with_next = true;
    d[4] = plain(&h, body, h.options.max_record_size / 2);
    struct stored out[6];
    uint64_t end;
    assert_int_equal(store_append(h.store, d, 6, out, &end), OK);
    const enum err wanted[6] = {OK, ERR_TOO_BIG, OK, ERR_TOO_BIG, ERR_TOO_BIG, OK};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(out[i].err, wanted[i]);
    assert_int_equal(out[0].queue_offset, 0);
    assert_int_equal(out[2].queue_offset, 1);
    assert_int_equal(out[5].queue_offset, 2);
    assert_int_equal(end, out[5].position + out[5].size);

    d[0].props = bytes_of(body, RECORD_PROPS_MAX + 1);
    assert_int_equal(store_append(h.store, d, 1, out, &end), OK);
    assert_int_equal(out[0].err, ERR_TOO_BIG);
    assert_int_equal(end, out[5].position + out[5].size);
    house_clear(&h);
}

/* Prepared and rolled back records have no place in a queue; the others do not notice them. */
static void gives_no_offset_to_prepared_and_rolled_back_records(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    const int32_t flags[6] = {0, SYS_TX_PREPARED, SYS_TX_COMMIT, SYS_TX_ROLLBACK,
                              0, SYS_TX_PREPARED};
    const int64_t offsets[6] = {0, 0, 1, 0, 2, 0};
    struct draft d[6];
    struct stored out[6];
    uint64_t end;
    for (size_t i = 0; i < 6; i++) {
        d[i] = plain(&h, (const uint8_t *)"body", 4);
        d[i].sys_flag = flags[i];
    }
    assert_int_equal(store_append(h.store, d, 6, out, &end), OK);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(out[i].queue_offset, offsets[i]);
    house_dispatch(&h);
    assert_int_equal(queue_max(d[0].queue), 3);
    assert_int_equal(position_get(&h.store->positions.dispatched), end);
    house_must_close(&h);
    house_must_open(&h); /* the trailing prepared record is the log's end, not the queue's */
    assert_int_equal(h.report.log_end, end);
    assert_int_equal(queue_max(store_queue(h.store, BYTES("Plain"), 3)), 3);
    house_clear(&h);
}

/* The clock goes back; store times do not. */
static void never_lets_store_times_fall(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct stored first, second;
    uint64_t end;
    assert_int_equal(house_send(&h, 0, 1, &first, &end), OK);
    clock_manual_advance(&h.clock, -5000);
    assert_int_equal(house_send(&h, 1, 1, &second, &end), OK);
    assert_int_equal(second.store_ms, first.store_ms);
    house_must_close(&h);
    house_must_open(&h);
    assert_int_equal(house_send(&h, 2, 1, &second, &end), OK);
    assert_int_equal(second.store_ms, first.store_ms);
    house_clear(&h);
}

/* A name becomes a folder. One that would lead elsewhere gets no queue. */
static void refuses_names_that_cannot_be_folders(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    char longest[256];
    memset(longest, 'x', sizeof longest);
    assert_null(store_queue(h.store, BYTES(""), 0));
    assert_null(store_queue(h.store, BYTES("."), 0));
    assert_null(store_queue(h.store, BYTES(".."), 0));
    assert_null(store_queue(h.store, BYTES("a/b"), 0));
    assert_null(store_queue(h.store, BYTES("a\0b"), 0));
    assert_null(store_queue(h.store, bytes_of(longest, 256), 0));
    assert_null(store_queue(h.store, BYTES("T"), -1));
    assert_null(store_queue_find(h.store, BYTES("T"), 0));
    struct queue *queue = store_queue(h.store, BYTES("T"), 0);
    assert_non_null(queue);
    assert_ptr_equal(store_queue_find(h.store, BYTES("T"), 0), queue);
    assert_ptr_equal(store_queue(h.store, BYTES("T"), 0), queue);
    assert_non_null(store_queue(h.store, bytes_of(longest, 255), INT32_MAX));
    assert_non_null(store_queue(h.store, BYTES("%RETRY%a|b"), 0));
    house_clear(&h);
}

/* The disk is full for a while, at every operation of an append that begins a new file. Nothing of
 * the refused call is ever seen: not now, and not after a crash, though records of the same size
 * came to the same places. */
static void a_failed_write_leaves_nothing(void **state)
{
    (void)state;
    bool finished = false;
    for (unsigned long at = 1; !finished; at++) {
        struct house h;
        house_init(&h, at);
        house_must_open(&h);
        house_must_send(&h, 0, 200);
        vfs_fault_plan(h.fault, at, 1, ERR_DISK_FULL);
        struct stored out[120];
        uint64_t end, before = store_confirmed(h.store);
        enum err err = house_send(&h, 1000, 120, out, &end);
        vfs_fault_plan(h.fault, 0, 0, OK);
        finished = err == OK;
        if (!finished) {
            assert_int_equal(err, ERR_DISK_FULL);
            assert_int_equal(store_confirmed(h.store), before);
            house_must_send(&h, 200, 1); /* there is room again */
            house_dispatch(&h);
            assert_int_equal(house_read_all(&h, NULL, 0), 201);
            house_crash(&h);
            house_must_open(&h);
            uint8_t seen[201] = {0};
            assert_int_equal(house_read_all(&h, seen, 201), 201);
        }
        house_clear(&h);
    }
}

/* The disk of a test. It may make no holes, and it looks at the size of the log's first file after
 * each call that could change it. */
static struct {
    struct vfs_calls calls;
    const struct vfs_calls *below;
    const struct house *house; /* NULL: it does not look */
} disk;

static void disk_look(void)
{
    if (disk.house)
        assert_int_equal(house_size(disk.house, "commitlog/00000000000000000000"), HOUSE_LOG_FILE);
}

static enum err disk_resize(struct vfs_file *f, uint64_t size, struct fault *why)
{
    enum err err = disk.below->resize(f, size, why);
    disk_look();
    return err;
}

static enum err disk_clear(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    enum err err = disk.below->clear(f, at, n, why);
    disk_look();
    return err;
}

static enum err disk_refuses(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    (void)f, (void)at, (void)n;
    return fault_set(why, ERR_IO, "this file system makes no holes");
}

static void disk_under(struct house *h)
{
    disk.below = h->fault->vfs.calls;
    disk.calls = *disk.below;
    disk.calls.resize = disk_resize;
    disk.calls.clear = disk_clear;
    disk.house = NULL;
    h->fault->vfs.calls = &disk.calls;
}

#define ALIKE 8 /* messages that differ in their numbers only */

/* They are stored once, and refused the next time, when so many operations of the disk fail. The
 * end of the log is returned. */
static uint64_t store_some_and_be_refused(struct house *h, struct draft d[ALIKE],
                                          unsigned long failures)
{
    static uint8_t body[300];
    struct stored out[ALIKE];
    uint64_t end, nobody;
    for (size_t i = 0; i < ALIKE; i++)
        d[i] = plain(h, body, sizeof body);
    assert_int_equal(store_append(h->store, d, ALIKE, out, &end), OK);
    vfs_fault_plan(h->fault, 1, failures, ERR_DISK_FULL);
    assert_int_equal(store_append(h->store, d, ALIKE, out, &nobody), ERR_DISK_FULL);
    return end;
}

/* The same, where the refused message and the next one are alike but for their numbers: the stale
 * record would fit exactly behind the new one. On disks that make holes, on those that say they
 * cannot, and on those that never heard of it. */
static void stale_records_are_not_revived(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct house h;
        house_init(&h, seed); /* the seed says how much of the failed write gets through */
        disk_under(&h);
        disk.calls.clear = seed % 3 == 0 ? NULL : seed % 3 == 1 ? disk_refuses : disk_clear;
        house_must_open(&h);
        struct draft d[ALIKE];
        struct stored out;
        uint64_t end = store_some_and_be_refused(&h, d, 1);
        vfs_fault_plan(h.fault, 0, 0, OK);
        assert_int_equal(store_append(h.store, d, 1, &out, &end), OK);
        assert_int_equal(out.queue_offset, 8);
        house_crash(&h);
        house_must_open(&h);
        assert_int_equal(queue_max(store_queue(h.store, BYTES("Plain"), 3)), 9);
        assert_int_equal(h.report.log_end, end);
        house_clear(&h);
    }
}

/* Whoever opens or maps the log while it is wiped would take a short file for damage, and a store
 * with a damaged log takes nothing more. */
static void the_log_keeps_its_size_while_it_is_wiped(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.sync_flush = true; /* then closing wipes the rest of the file, too */
    disk_under(&h);
    house_must_open(&h);
    house_must_send(&h, 0, 1);
    disk.house = &h;
    struct draft d[ALIKE];
    (void)store_some_and_be_refused(&h, d, 1);
    vfs_fault_plan(h.fault, 0, 0, OK);
    house_must_send(&h, 1, 1);
    assert_int_equal(h.fault->clears, 1);
    house_must_close(&h);
    assert_int_equal(h.fault->clears, 2);
    house_must_open(&h); /* which cuts what is behind the end, and the queues */
    assert_true(h.fault->clears > 2);
    house_clear(&h);
}

/* Nobody appends any more, and the process is killed or stops in order: whatever of the refused
 * records had got to the file, it was gone before their sender knew. */
static void what_was_refused_stays_away_when_nothing_follows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 80; seed++) {
        struct house h;
        house_init(&h, seed);
        h.options.sync_flush = seed % 4 < 2;
        house_must_open(&h);
        struct draft d[ALIKE];
        uint64_t end = store_some_and_be_refused(&h, d, 1);
        vfs_fault_plan(h.fault, 0, 0, OK);
        if (seed % 2)
            house_crash(&h);
        else
            house_must_close(&h);
        house_must_open(&h);
        assert_int_equal(h.report.log_end, end);
        assert_int_equal(queue_max(store_queue(h.store, BYTES("Plain"), 3)), ALIKE);
        house_clear(&h);
    }
}

/* The disk did not let it be wiped at once. Closing does it, also when the store has failed
 * meanwhile; and if there is still no way, closing says so. */
static void closing_wipes_what_a_refused_append_left(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 80; seed++) {
        struct house h;
        house_init(&h, seed);
        house_must_open(&h);
        struct draft d[ALIKE];
        uint64_t end = store_some_and_be_refused(&h, d, ULONG_MAX);
        assert_true(h.store->tail.soiled);
        enum err wanted = (enum err[]){OK, ERR_IO, ERR_DISK_FULL}[seed % 3];
        if (wanted != ERR_DISK_FULL)
            vfs_fault_plan(h.fault, wanted ? 1 : 0, 1, wanted);
        if (wanted == ERR_IO)
            assert_int_equal(store_flush_all(h.store, NULL), ERR_IO);
        assert_int_equal(store_close(take(&h.store), &h.why), wanted);
        assert_int_equal(strstr(h.why.text, "refused append") != NULL, wanted == ERR_DISK_FULL);
        vfs_fault_plan(h.fault, 0, 0, OK);
        house_must_open(&h);
        if (wanted != ERR_DISK_FULL) {
            assert_int_equal(h.report.log_end, end);
            assert_int_equal(queue_max(store_queue(h.store, BYTES("Plain"), 3)), ALIKE);
        }
        house_clear(&h);
    }
}

/* ---- threads ---- */

#define WRITERS    4
#define PER_WRITER 1500

struct crowd {
    struct house *h;
    atomic_uint next_number;
    atomic_uint finished;
};

/* Appends and dispatches, as an I/O thread does. */
static void *writer(void *user)
{
    struct crowd *crowd = user;
    struct arrival *news = calloc(ARRIVALS_MAX, sizeof *news);
    struct message_room room;
    for (int i = 0; i < PER_WRITER; i++) {
        struct draft d = house_message(crowd->h, atomic_fetch_add(&crowd->next_number, 1), &room);
        struct stored out;
        uint64_t end;
        invariant(store_append(crowd->h->store, &d, 1, &out, &end) == OK);
        while (store_dispatch_turn(crowd->h->store, news) > 0)
            ;
    }
    free(news);
    atomic_fetch_add(&crowd->finished, 1);
    return NULL;
}

/* Follows all queues and drops what it has read. */
static void *follower(void *user)
{
    struct crowd *crowd = user;
    struct queue *queues[HOUSE_TOPICS * HOUSE_QUEUES];
    int64_t at[HOUSE_TOPICS * HOUSE_QUEUES] = {0};
    struct read_result *got = calloc(1, sizeof *got);
    for (unsigned i = 0; i < HOUSE_TOPICS * HOUSE_QUEUES; i++) {
        char topic[16];
        (void)snprintf(topic, sizeof topic, "%%T%%_%u", i / HOUSE_QUEUES);
        queues[i] = store_queue(crowd->h->store, bytes_str(topic), (int32_t)(i % HOUSE_QUEUES));
    }
    for (unsigned count = 0; count < WRITERS * PER_WRITER;) {
        for (size_t i = 0; i < HOUSE_TOPICS * HOUSE_QUEUES; i++) {
            struct read_request request = {at[i], 32, 64 << 10, NULL, NULL};
            store_read(crowd->h->store, queues[i], &request, got);
            if (got->status != READ_FOUND)
                continue;
            for (size_t k = 0; k < got->n_slices; k++) {
                struct record r;
                invariant(record_decode(got->slices[k].bytes, &r) == OK);
                invariant(record_body_intact(&r));
                counted_drop(got->slices[k].owner);
            }
            at[i] = got->next;
            count += got->count;
        }
    }
    free(got);
    return NULL;
}

/* When all writers have returned, everything is dispatched without anybody else's help, and the
 * follower has seen each message. */
static void many_threads_append_while_one_reads(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct crowd crowd = {.h = &h};
    pthread_t threads[WRITERS], reader;
    assert_int_equal(pthread_create(&reader, NULL, follower, &crowd), 0);
    for (size_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer, &crowd), 0);
    for (size_t i = 0; i < WRITERS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(position_get(&h.store->positions.dispatched), store_confirmed(h.store));
    (void)pthread_join(reader, NULL);
    cleanup(free_at) uint8_t *seen = calloc(WRITERS * PER_WRITER, 1);
    assert_int_equal(house_read_all(&h, seen, WRITERS * PER_WRITER), WRITERS * PER_WRITER);
    for (size_t i = 0; i < WRITERS * PER_WRITER; i++)
        assert_int_equal(seen[i], 1);
    house_must_close(&h);
    house_clear(&h);
}

/* ---- the next file ---- */

static ino_t inode(const struct house *h, const char *path)
{
    char full[512];
    struct stat s;
    house_path(h, path, full);
    assert_int_equal(stat(full, &s), 0);
    return s.st_ino;
}

static size_t log_files(const struct house *h)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n;
    assert_int_equal(fileset_list(h->disk, LOG_FOLDER, &bases, &n, NULL), OK);
    return n;
}

/* ST-4: files have one size and are named by their first position, in 20 digits. The keeper makes
 * the next one; the append that needs it takes that very file. */
static void the_next_file_is_made_ahead(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    store_keep_turn(h.store);
    assert_int_equal(house_size(&h, "commitlog/00000000000000000000"), HOUSE_LOG_FILE);
    assert_int_equal(h.store->log.end, 0); /* not in the row yet */
    ino_t first = inode(&h, "commitlog/00000000000000000000");
    house_must_send(&h, 0, 1);
    assert_int_equal(inode(&h, "commitlog/00000000000000000000"), first);
    store_keep_turn(h.store);
    assert_int_equal(house_size(&h, "commitlog/00000000000000065536"), HOUSE_LOG_FILE);
    assert_int_equal(h.store->log.end, HOUSE_LOG_FILE);
    ino_t second = inode(&h, "commitlog/00000000000000065536");

    uint64_t n = 1;
    while (h.store->log.end == HOUSE_LOG_FILE)
        house_must_send(&h, n++, 1);
    assert_int_equal(inode(&h, "commitlog/00000000000000065536"), second);
    store_keep_turn(h.store);
    unsigned long operations = h.fault->operations;
    store_keep_turn(h.store); /* once is enough */
    assert_int_equal(h.fault->operations, operations);
    assert_int_equal(log_files(&h), 3);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), n);
    house_must_close(&h);
    house_clear(&h);
}

/* Nobody made it yet; or it is not as it was left. */
static void an_append_makes_the_next_file_itself(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    uint64_t n = 0;
    for (int how = 0; how < 3; how++) {
        char path[PATH_SIZE];
        fileset_path(path, LOG_FOLDER, h.store->log.end);
        if (how > 0)
            store_keep_turn(h.store);
        if (how == 1)
            house_remove(&h, path);
        if (how == 2)
            house_truncate(&h, path, 4711);
        for (uint64_t end = h.store->log.end; h.store->log.end == end;)
            house_must_send(&h, n++, 1);
        assert_int_equal(house_size(&h, path), HOUSE_LOG_FILE);
    }
    assert_int_equal(log_files(&h), 3);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), n);
    house_must_close(&h);
    house_clear(&h);
}

/* A disk without room for the next file is told, and appends go on in this one. */
static void no_room_for_the_next_file_is_told(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 0, 1);
    struct store_cleaned got;
    for (unsigned long at = 1; at <= 5; at++) {
        vfs_fault_plan(h.fault, at, ULONG_MAX, ERR_DISK_FULL);
        store_keep_turn(h.store);
        vfs_fault_plan(h.fault, 0, 0, OK);
        store_clean_turn(h.store, &got);
        assert_int_equal(got.ahead, ERR_DISK_FULL);
        assert_string_not_equal(got.ahead_why.text, "");
        assert_int_equal(store_state(h.store, NULL), OK);
        house_must_send(&h, at, 1);
        clock_manual_advance(&h.clock, 1000); /* it is not tried before */
    }
    store_keep_turn(h.store);
    store_clean_turn(h.store, &got);
    assert_int_equal(got.ahead, OK);
    assert_int_equal(log_files(&h), 2);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), 6);
    house_must_close(&h);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_appended),
        cmocka_unit_test(never_splits_a_unit_over_files),
        cmocka_unit_test(refuses_what_is_too_big_and_stores_the_rest),
        cmocka_unit_test(gives_no_offset_to_prepared_and_rolled_back_records),
        cmocka_unit_test(never_lets_store_times_fall),
        cmocka_unit_test(refuses_names_that_cannot_be_folders),
        cmocka_unit_test(a_failed_write_leaves_nothing),
        cmocka_unit_test(stale_records_are_not_revived),
        cmocka_unit_test(the_log_keeps_its_size_while_it_is_wiped),
        cmocka_unit_test(what_was_refused_stays_away_when_nothing_follows),
        cmocka_unit_test(closing_wipes_what_a_refused_append_left),
        cmocka_unit_test(many_threads_append_while_one_reads),
        cmocka_unit_test(the_next_file_is_made_ahead),
        cmocka_unit_test(an_append_makes_the_next_file_itself),
        cmocka_unit_test(no_room_for_the_next_file_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
