#include "store/test_house.h"

#include "base/crc32.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void house_init(struct house *h, uint64_t seed)
{
    memset(h, 0, sizeof *h);
    const char *tmp = getenv("TMPDIR");
    if (!tmp || strlen(tmp) > 32) /* power and faults are simulated: no need to trouble a disk */
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(h->folder, sizeof h->folder, "%s/oncemq-store-XXXXXX", tmp);
    assert_non_null(mkdtemp(h->folder));
    assert_int_equal(vfs_posix_open(h->folder, &h->disk, &h->why), OK);
    h->fault = vfs_fault_new(h->disk, seed);
    clock_manual_init(&h->clock, 1700000000000);
    h->options = (struct store_options){
        .vfs = &h->fault->vfs,
        .clock = &h->clock.clock,
        .log_file_size = HOUSE_LOG_FILE,
        .queue_file_size = HOUSE_QUEUE_FILE,
        .flush_interval_ms = 500,
        .flush_least_pages = 4,
        .flush_thorough_interval_ms = 10000,
        .queue_flush_interval_ms = 1000,
        .max_record_size = 32u << 10,
        .index_slots = 16, /* small, so that files fill up and chains grow */
        .index_entries = 300,
    };
}

void house_vary_shelves(struct house *h, uint64_t seed)
{
    static const size_t units[] = {1, 3, 20, SHELF_UNITS}, most[] = {1, 3, 1024};
    h->shelf_units = units[seed % 4];
    h->shelf_room = most[seed % 3] * h->shelf_units;
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *where)
{
    (void)s, (void)type, (void)where;
    return remove(path);
}

void house_clear(struct house *h)
{
    if (h->store)
        store_abandon(h->store);
    vfs_fault_free(h->fault);
    h->disk->calls->dispose(h->disk);
    (void)nftw(h->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

enum err house_open(struct house *h)
{
    h->why = (struct fault){0};
    enum err err = store_open(&h->options, &h->store, &h->report, &h->why);
    if (!err && h->shelf_units)
        h->store->derived.shelf_units = h->shelf_units;
    if (!err && h->shelf_room)
        h->store->derived.shelf_room = h->shelf_room;
    return err;
}

void house_must_open(struct house *h)
{
    enum err err = house_open(h);
    if (err)
        print_error("%s: %s\n", err_text(err), h->why.text);
    assert_int_equal(err, OK);
}

void house_must_close(struct house *h)
{
    enum err err = store_close(take(&h->store), &h->why);
    if (err)
        print_error("%s: %s\n", err_text(err), h->why.text);
    assert_int_equal(err, OK);
}

void house_crash(struct house *h)
{
    store_abandon(take(&h->store));
}

/* ---- the folder ---- */

void house_path(const struct house *h, const char *path, char out[512])
{
    (void)snprintf(out, 512, "%s/%s", h->folder, path);
}

void house_flip(const struct house *h, const char *path, uint64_t at, uint8_t with)
{
    char full[512];
    house_path(h, path, full);
    cleanup(close_at) int fd = open(full, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= with;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

void house_remove(const struct house *h, const char *path)
{
    char full[512];
    house_path(h, path, full);
    assert_int_equal(nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void house_truncate(const struct house *h, const char *path, uint64_t size)
{
    char full[512];
    house_path(h, path, full);
    assert_int_equal(truncate(full, (off_t)size), 0);
}

uint64_t house_size(const struct house *h, const char *path)
{
    char full[512];
    struct stat s;
    house_path(h, path, full);
    assert_int_equal(stat(full, &s), 0);
    return (uint64_t)s.st_size;
}

bool house_has(const struct house *h, const char *path)
{
    char full[512];
    house_path(h, path, full);
    return access(full, F_OK) == 0;
}

/* ---- messages ---- */

struct bytes message_topic(uint64_t n, char out[16])
{
    int len = snprintf(out, 16, "%%T%%_%u", (unsigned)(n * 7 % HOUSE_TOPICS));
    return bytes_of(out, (size_t)len);
}

int32_t message_queue(uint64_t n)
{
    return (int32_t)(n * 11 / 3 % HOUSE_QUEUES);
}

/* Number, then bytes that follow from it. */
static struct bytes message_body(uint64_t n, uint8_t out[MESSAGE_MAX])
{
    struct dice dice = dice_seeded(n);
    size_t len = 8 + (size_t)dice_below(&dice, dice_below(&dice, 8) ? 200 : 1500);
    store_u64(out, n);
    for (size_t i = 8; i < len; i++)
        out[i] = (uint8_t)(dice.state >> (i % 7 * 8)) ^ (uint8_t)i;
    return bytes_of(out, len);
}

static struct bytes message_props(uint64_t n, char out[PROPS_MAX])
{
    struct dice dice = dice_seeded(~n);
    int len = snprintf(out, PROPS_MAX, "TAGS\1tag%u\2UNIQ_KEY\1%llu\2", (unsigned)(n % 4),
                       (unsigned long long)n);
    for (size_t more = (size_t)dice_below(&dice, 10); more-- > 0;) /* sometimes over some sectors */
        len += snprintf(out + len, PROPS_MAX - (size_t)len, "more%zu\1%064llx\2", more,
                        (unsigned long long)n);
    return bytes_of(out, (size_t)len);
}

struct draft_marks house_marks(const struct draft *d)
{
    struct key_topic topic = {0};
    struct marks marks = props_marks(d->props);
    struct draft_marks m;
    draft_marks_of(&topic, d->topic, &marks, &m);
    return m;
}

struct draft house_message(struct house *h, uint64_t n, struct message_room *room)
{
    struct draft d = {
        .topic = message_topic(n, room->topic),
        .queue_id = message_queue(n),
        .flag = (int32_t)n,
        .born_ms = 1600000000000 + (int64_t)n,
        .born_host = {.ip = {10, 0, 0, 1}, .ip_len = n % 5 ? 4 : 16, .port = 1234},
        .store_host = {.ip = {10, 0, 0, 2}, .ip_len = 4, .port = 10911},
        .body = message_body(n, room->body),
    };
    d.props = message_props(n, room->props);
    d.body_crc = crc32_positive(d.body);
    d.queue = store_queue(h->store, d.topic, d.queue_id);
    assert_non_null(d.queue);
    if (n % 3 > 0) /* in two of three dispatch need not read them */
        d.marks = house_marks(&d);
    return d;
}

enum err house_send(struct house *h, uint64_t from, size_t count, struct stored *out, uint64_t *end)
{
    cleanup(free_at) struct message_room *rooms = calloc(count, sizeof *rooms);
    cleanup(free_at) struct draft *drafts = calloc(count, sizeof *drafts);
    assert_true(rooms && drafts);
    for (size_t i = 0; i < count; i++)
        drafts[i] = house_message(h, from + i, &rooms[i]);
    return store_append(h->store, drafts, count, out, end);
}

void house_must_send(struct house *h, uint64_t from, size_t count)
{
    cleanup(free_at) struct stored *out = calloc(count, sizeof *out);
    uint64_t end;
    assert_int_equal(house_send(h, from, count, out, &end), OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(out[i].err, OK);
}

void house_dispatch(struct house *h)
{
    static struct arrival news[ARRIVALS_MAX];
    while (store_dispatch_turn(h->store, news) > 0)
        ;
}

uint64_t message_check(const struct record *r)
{
    struct message_room room;
    assert_true(r->body.len >= 8);
    uint64_t n = load_u64(r->body.at);
    assert_bytes_equal(r->body, message_body(n, room.body));
    assert_bytes_equal(r->topic, message_topic(n, room.topic));
    assert_int_equal(r->queue_id, message_queue(n));
    assert_int_equal(r->flag, (int32_t)n);
    assert_int_equal(r->born_ms, 1600000000000 + (int64_t)n);
    assert_bytes_equal(r->props, message_props(n, room.props));
    assert_true(record_body_intact(r));
    return n;
}

/* A message that can be read can also be found by its key. */
static void key_check(struct house *h, uint64_t n, const struct record *r)
{
    char key[24];
    struct store_query query = {
        .topic = r->topic,
        .key = bytes_of(key, (size_t)snprintf(key, sizeof key, "%llu", (unsigned long long)n)),
        .max = STORE_QUERY_MAX,
        .end_ms = INT64_MAX,
    };
    struct store_found found;
    assert_int_equal(store_query(h->store, &query, &found), OK);
    size_t hits = 0;
    for (size_t i = 0; i < found.n; i++)
        hits += found.positions[i] == r->position;
    assert_int_equal(hits, 1);
}

struct reader {
    struct house *h;
    uint8_t *seen;
    uint64_t n, count;
};

static void read_queue(void *user, struct bytes topic, int32_t queue_id, struct queue *queue)
{
    struct reader *reader = user;
    int64_t offset = queue_min(reader->h->store, queue);
    uint64_t last = 0;
    while (offset < queue_max(queue)) {
        struct read_request request = {.offset = offset, .max_count = 32, .max_bytes = 256 << 10};
        static _Thread_local struct read_result got;
        store_read(reader->h->store, queue, &request, &got);
        assert_int_equal(got.status, READ_FOUND);
        assert_int_equal(got.next, offset + got.count);
        for (size_t i = 0; i < got.n_slices; i++) {
            struct bytes rest = got.slices[i].bytes;
            while (rest.len > 0) {
                struct record r;
                assert_int_equal(record_decode(rest, &r), OK);
                uint64_t n = message_check(&r);
                if (reader->h->options.index_slots)
                    key_check(reader->h, n, &r);
                assert_bytes_equal(r.topic, topic);
                assert_int_equal(r.queue_id, queue_id);
                assert_int_equal(r.queue_offset, offset++);
                assert_true((uint64_t)r.position >= last);
                last = (uint64_t)r.position + r.size;
                if (reader->seen) {
                    assert_true(n < reader->n);
                    reader->seen[n]++;
                }
                reader->count++;
                rest = bytes_from(rest, r.size);
            }
            counted_drop(got.slices[i].owner);
        }
        assert_int_equal(offset, got.next);
    }
}

uint64_t house_read_all(struct house *h, uint8_t *seen, uint64_t n)
{
    struct reader reader = {h, seen, n, 0};
    store_each_queue(h->store, read_queue, &reader);
    return reader.count;
}
