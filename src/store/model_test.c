/* Random operations on a store, each answer compared with that of a simple model.
 *
 * One seed chooses the sizes of all files, how many queues there are and how long messages are
 * kept; then some hundred operations follow: append, dispatch, flush, keep, clean, move the clock,
 * every way to ask, stop and start. No operation fails and no power is lost here (fault_test and
 * power_test do that), so every answer is known exactly.
 *
 * MODEL_SEEDS=n runs so many seeds, TEST_SEED=n that one (with MODEL_SEEDS: from it on).
 */
#include "store/test_house.h"
#include "store/test_model.h"

#include <stdio.h>

#define SEEDS     240
#define CALL_MAX  40 /* drafts in one call */
#define KEPT_MAX  8
#define READ_MAX  2000
#define START_MS  1700000000000
#define REOPENING 40 /* one in so many operations */

struct life {
    struct house h;
    struct model m;
    struct dice dice;
    struct {
        struct slice slice;
        uint64_t entry;
    } kept[KEPT_MAX]; /* a slice stays good whatever becomes of its file */
    size_t n_kept;
};

static struct model_room rooms[CALL_MAX];

/* How much was there to compare: a model test that deletes nothing proves nothing. */
static struct {
    uint64_t messages, refused, log_files, found, starts;
} seen;

static uint64_t below(struct life *l, uint64_t n)
{
    return dice_below(&l->dice, n);
}

static uint32_t any_queue(struct life *l)
{
    return (uint32_t)below(l, l->m.n_queues);
}

static struct queue *handle(struct life *l, uint32_t queue)
{
    char topic[160];
    struct queue *q =
        store_queue(l->h.store, model_topic(&l->m, queue, topic), model_queue_id(&l->m, queue));
    assert_non_null(q);
    return q;
}

static int64_t now_ms(struct life *l)
{
    return clock_ms(&l->h.clock.clock);
}

static int64_t mono_ms(struct life *l)
{
    return (int64_t)(clock_ns(&l->h.clock.clock) / 1000000);
}

/* ---- storing ---- */

static size_t drafts_make(struct life *l, struct draft *drafts, uint32_t *queues)
{
    size_t n = 1 + (size_t)below(l, below(l, 8) ? 8 : CALL_MAX);
    for (size_t i = 0; i < n; i++) {
        bool tied = i > 0 && drafts[i - 1].with_next;
        queues[i] = tied ? queues[i - 1] : any_queue(l);
        drafts[i] = model_draft(&l->m, l->m.next_number + i, queues[i], &rooms[i]);
        drafts[i].queue = handle(l, queues[i]);
        drafts[i].with_next = below(l, 4) == 0;
    }
    return n;
}

static void append(struct life *l)
{
    static struct draft drafts[CALL_MAX];
    struct stored got[CALL_MAX], wanted[CALL_MAX];
    uint32_t queues[CALL_MAX];
    uint64_t end = 0;
    size_t n = drafts_make(l, drafts, queues);
    enum err err = store_append(l->h.store, drafts, n, got, &end);
    assert_int_equal(err, l->m.full ? ERR_DISK_FULL : OK);
    if (err)
        return;
    model_append(&l->m, drafts, queues, n, now_ms(l), wanted);
    assert_int_equal(end, l->m.written);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].err, wanted[i].err);
        seen.refused += got[i].err != OK;
        assert_int_equal(got[i].position, wanted[i].position);
        assert_int_equal(got[i].queue_offset, wanted[i].queue_offset);
        assert_int_equal(got[i].store_ms, wanted[i].store_ms);
        assert_int_equal(got[i].size, wanted[i].size);
    }
}

/* ---- turns ---- */

/* What is told adds up to what is new, and no end is told that is not there. */
static void dispatch(struct life *l)
{
    static struct arrival news[ARRIVALS_MAX];
    uint64_t wanted = model_dispatch(&l->m), told = 0;
    for (size_t n; (n = store_dispatch_turn(l->h.store, news)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            told += news[i].count;
            assert_int_equal(news[i].max, queue_max(news[i].queue));
        }
    }
    assert_int_equal(told, wanted);
    assert_int_equal(position_get(&l->h.store->positions.dispatched), l->m.dispatched);
}

/* When it is due is not the model's business, how far it goes is. */
static void flush(struct life *l)
{
    (void)store_flush_turn(l->h.store);
    uint64_t flushed = position_get(&l->h.store->positions.flushed);
    assert_true(flushed == l->m.written || (!l->m.sync_flush && flushed == l->m.flushed));
    l->m.flushed = flushed;
    if (l->m.sync_flush)
        l->m.confirmed = flushed;
    assert_int_equal(store_confirmed(l->h.store), l->m.confirmed);
}

/* The disk below, but as full as the model says. */
static struct vfs_calls disk_calls;
static const struct model *disk_model;

static enum err disk_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    (void)v, (void)why;
    uint64_t free = 1000 - 10 * disk_model->used;
    *out = (struct vfs_space){1000, free, free};
    return OK;
}

/* Now and then the wall clock is set back. */
static void move_clock(struct life *l)
{
    static const uint64_t steps[] = {3, 900, 12000, 70000};
    clock_manual_advance(&l->h.clock, (int64_t)below(l, steps[below(l, 4)]));
    if (below(l, 20) == 0)
        atomic_fetch_sub(&l->h.clock.wall_ms, (int64_t)below(l, 30000));
}

/* ---- asking ---- */

static void same_message(struct life *l, const struct model_entry *e, struct bytes bytes)
{
    static struct model_room room;
    struct record r;
    assert_int_equal(record_decode(bytes, &r), OK);
    struct draft d = model_draft(&l->m, e->number, e->queue, &room);
    assert_int_equal(r.size, e->size);
    assert_int_equal(r.position, e->position);
    assert_int_equal(r.queue_offset, e->offset);
    assert_int_equal(r.store_ms, e->store_ms);
    assert_int_equal(r.queue_id, d.queue_id);
    assert_int_equal(r.flag, d.flag);
    assert_int_equal(r.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6), d.sys_flag);
    assert_int_equal(r.born_ms, d.born_ms);
    assert_int_equal(r.reconsume_times, d.reconsume_times);
    assert_int_equal(r.prepared_position, d.prepared_position);
    assert_int_equal(r.born_host.ip_len, d.born_host.ip_len);
    assert_int_equal(r.store_host.ip_len, d.store_host.ip_len);
    assert_bytes_equal(r.topic, d.topic);
    assert_bytes_equal(r.body, d.body);
    assert_bytes_equal(r.props, d.props);
}

/* Reads and compares; returns where to go on. */
static int64_t read_once(struct life *l, uint32_t queue, const struct read_request *request)
{
    static struct read_result got, wanted;
    static uint32_t picked[READ_MAX];
    assert_true(request->max_count <= READ_MAX);
    store_read(l->h.store, handle(l, queue), request, &got);
    model_read(&l->m, queue, request, &wanted, picked);
    assert_int_equal(got.status, wanted.status);
    assert_int_equal(got.next, wanted.next);
    assert_int_equal(got.min, wanted.min);
    assert_int_equal(got.max, wanted.max);
    assert_int_equal(got.count, wanted.count);
    assert_int_equal(got.size, wanted.size);
    assert_int_equal(got.n_slices, wanted.n_slices);
    size_t n = 0;
    for (size_t i = 0; i < got.n_slices; i++) {
        struct bytes rest = got.slices[i].bytes;
        while (rest.len > 0) {
            assert_true(n < wanted.count);
            const struct model_entry *e = &l->m.log[picked[n++]];
            same_message(l, e, rest);
            rest = bytes_from(rest, e->size);
        }
        counted_drop(got.slices[i].owner);
    }
    assert_int_equal(n, wanted.count);
    return got.next;
}

struct taste {
    uint64_t modulus, rest;
};

static bool tastes(void *user, int64_t tags_code)
{
    const struct taste *taste = user;
    return (uint64_t)tags_code % taste->modulus == taste->rest;
}

static struct read_request any_request(struct life *l, int64_t offset, struct taste *taste)
{
    static const uint32_t counts[] = {0, 1, 5, 32, READ_MAX}, sizes[] = {1, 1000, 20000, 1u << 30};
    struct read_request request = {.offset = offset, .user = taste};
    request.max_count = counts[below(l, 5)];
    request.max_bytes = sizes[below(l, 4)];
    taste->modulus = 1 + below(l, 6);
    taste->rest = below(l, taste->modulus);
    request.wants = below(l, 2) ? tastes : NULL;
    return request;
}

static int64_t any_offset(struct life *l, uint32_t queue)
{
    const struct model_queue *q = &l->m.queues[queue];
    return q->min - 3 + (int64_t)below(l, (uint64_t)(q->n - q->min) + 7);
}

static void read_some(struct life *l)
{
    struct taste taste;
    uint32_t queue = any_queue(l);
    struct read_request request = any_request(l, any_offset(l, queue), &taste);
    (void)read_once(l, queue, &request);
}

/* Mostly at the edge of when something was stored. */
static int64_t any_time(struct life *l)
{
    if (l->m.n == 0 || below(l, 4) == 0)
        return START_MS - 40000 + (int64_t)below(l, (uint64_t)mono_ms(l) + 50000);
    return l->m.log[below(l, l->m.n)].store_ms - 1 + (int64_t)below(l, 3);
}

static void ask_times(struct life *l)
{
    uint32_t queue = any_queue(l);
    struct queue *q = handle(l, queue);
    for (int i = 0; i < 4; i++) {
        int64_t offset = any_offset(l, queue);
        int64_t ms = model_store_time(&l->m, queue, offset);
        assert_int_equal(queue_store_time(l->h.store, q, offset), ms);
        int64_t ts = any_time(l);
        assert_int_equal(queue_search_time(l->h.store, q, ts), model_search_time(&l->m, queue, ts));
    }
}

/* A is in B; both rise. */
static bool within(const int64_t *a, size_t n_a, const int64_t *b, size_t n_b)
{
    size_t i = 0;
    for (size_t k = 0; k < n_b && i < n_a; k++)
        i += a[i] == b[k];
    return i == n_a;
}

/* Over all time the answer is exact. Otherwise times are cut to seconds since a file's first. */
static void query_key(struct life *l, uint32_t queue, uint64_t number)
{
    enum { MANY = 4096 };
    static int64_t sure[MANY], maybe[MANY];
    char topic[160], key[32];
    struct store_query q = {
        .topic = model_topic(&l->m, queue, topic),
        .key = model_key(number, key),
        .max = 1 + (uint32_t)below(l, STORE_QUERY_MAX + 5),
        .end_ms = INT64_MAX - 1000,
    };
    struct store_found found;
    enum err err = store_query(l->h.store, &q, &found);
    assert_int_equal(err, l->h.options.index_slots ? OK : ERR_UNSUPPORTED);
    if (err)
        return;
    size_t max = q.max < STORE_QUERY_MAX ? q.max : STORE_QUERY_MAX;
    size_t n = model_query(&l->m, q.topic, q.key, 0, INT64_MAX, max, sure);
    assert_int_equal(found.n, n);
    seen.found += n;
    assert_true(within(found.positions, n, sure, n));
    assert_true(found.end_position <= (int64_t)l->m.dispatched);

    q.max = STORE_QUERY_MAX;
    q.begin_ms = any_time(l);
    q.end_ms = below(l, 4) ? any_time(l) : q.begin_ms + (int64_t)below(l, 60000);
    assert_int_equal(store_query(l->h.store, &q, &found), OK);
    size_t n_sure = model_query(&l->m, q.topic, q.key, q.begin_ms + 999, q.end_ms, MANY, sure);
    size_t n_maybe = model_query(&l->m, q.topic, q.key, q.begin_ms, q.end_ms + 999, MANY, maybe);
    assert_true(within(found.positions, found.n, maybe, n_maybe));
    if (n_maybe <= STORE_QUERY_MAX)
        assert_true(within(sure, n_sure, found.positions, found.n));
    else
        assert_true(found.n >= (n_sure < STORE_QUERY_MAX ? n_sure : STORE_QUERY_MAX));
}

static void read_position(struct life *l, int64_t position)
{
    struct slice slice;
    const struct model_entry *e = model_at(&l->m, position);
    enum err err = store_read_at(l->h.store, position, &slice);
    if (!e) {
        bool outside = position < (int64_t)l->m.first || position >= (int64_t)l->m.confirmed;
        assert_true(err == ERR_NOT_FOUND || (err == ERR_DAMAGED && !outside));
        return;
    }
    assert_int_equal(err, OK);
    assert_int_equal(slice.bytes.len, e->size);
    same_message(l, e, slice.bytes);
    if (l->n_kept < KEPT_MAX && below(l, 4) == 0) {
        l->kept[l->n_kept].entry = (uint64_t)(e - l->m.log);
        l->kept[l->n_kept++].slice = slice;
    } else {
        counted_drop(slice.owner);
    }
}

static void drop_kept(struct life *l)
{
    while (l->n_kept > 0) {
        struct slice *slice = &l->kept[--l->n_kept].slice;
        same_message(l, &l->m.log[l->kept[l->n_kept].entry], slice->bytes);
        counted_drop(slice->owner);
    }
}

static void read_positions(struct life *l)
{
    read_position(l, (int64_t)below(l, l->m.written + 100) - 50);
    if (l->m.n == 0)
        return;
    for (int i = 0; i < 4; i++)
        read_position(l, l->m.log[below(l, l->m.n)].position);
}

/* ---- stop and start ---- */

static void all_matches(struct life *l)
{
    for (uint32_t queue = 0; queue < l->m.n_queues; queue++) {
        struct taste taste;
        struct read_request request = any_request(l, l->m.queues[queue].min, &taste);
        request.max_count = 1 + request.max_count % 32;
        request.wants = NULL;
        do {
            request.offset = read_once(l, queue, &request);
        } while (request.offset < l->m.queues[queue].max);
    }
    for (uint64_t key = 0; key < MODEL_KEYS; key++)
        query_key(l, any_queue(l), key);
    read_positions(l);
    ask_times(l);
}

static void on_found(void *user, const struct check_finding *f)
{
    (void)user;
    if (f->grade == CHECK_DAMAGE)
        print_error("%s at %" PRId64 ": %s\n", f->file, f->at, f->text);
}

static void check_folder(struct life *l, bool was_clean)
{
    static const struct check_calls calls = {on_found, NULL, NULL};
    struct check_summary sum;
    assert_int_equal(store_check(l->h.disk, &calls, &sum, &l->h.why), OK);
    assert_int_equal(sum.damages, 0);
    assert_int_equal(sum.clean, was_clean);
    assert_int_equal(sum.records, model_log_count(&l->m));
    assert_int_equal(sum.log_end, l->m.written);
    if (was_clean) {
        assert_int_equal(sum.notes, 0);
        assert_int_equal(sum.units, model_units(&l->m));
    }
}

static void reopen(struct life *l)
{
    bool stop = below(l, 2);
    if (stop)
        house_must_close(&l->h);
    else
        house_crash(&l->h);
    model_reopen(&l->m, mono_ms(l));
    if (below(l, 2) && l->m.n > 0)
        check_folder(l, stop);
    house_must_open(&l->h);
    seen.starts++;
    assert_int_equal(l->h.report.clean, stop);
    assert_int_equal(l->h.report.log_first, l->m.first);
    assert_int_equal(l->h.report.log_end, l->m.written);
    assert_int_equal(l->h.report.cut_bytes, 0);
    assert_string_equal(l->h.report.note, "");
    all_matches(l);
}

/* A sweep may take some turns. Sometimes it does not come to its end. */
static void clean(struct life *l)
{
    static const unsigned levels[] = {50, 50, 50, 75, 76, 86, 91};
    struct store_cleaned got;
    if (below(l, 4) == 0)
        l->m.used = levels[below(l, 7)];
    if (below(l, 8) == 0) {
        store_clean_request(l->h.store);
        l->m.manual = 20;
    }
    model_clean(&l->m, now_ms(l), mono_ms(l));
    bool patient = below(l, 6);
    do {
        store_clean_turn(l->h.store, &got);
        assert_int_equal(got.err, OK);
        assert_int_equal(got.log_first, l->m.first);
        assert_int_equal(got.refusing, l->m.full);
    } while (got.queue_files > 0 && patient);
    assert_int_equal(store_state(l->h.store, NULL), l->m.full ? ERR_DISK_FULL : OK);
    if (!patient)
        reopen(l);
}

/* ---- lives ---- */

static void step(struct life *l)
{
    if (below(l, REOPENING) == 0) {
        reopen(l);
        return;
    }
    switch (below(l, 16)) {
    default:
        append(l);
        break;
    case 5:
    case 6:
        dispatch(l);
        break;
    case 7:
        flush(l);
        break;
    case 8:
        store_keep_turn(l->h.store);
        break;
    case 9:
        move_clock(l);
        break;
    case 10:
        clean(l);
        break;
    case 11:
    case 12:
        read_some(l);
        break;
    case 13:
        ask_times(l);
        break;
    case 14:
        query_key(l, any_queue(l), below(l, MODEL_KEYS + 1));
        break;
    case 15:
        read_positions(l);
        if (below(l, 8) == 0)
            drop_kept(l);
        break;
    }
}

static void seed_run(uint64_t seed)
{
    static const uint64_t queue_files[] = {60, 200, 400, 2000};
    static const uint32_t shapes[][2] = {{0, 0}, {1, 5}, {4, 30}, {16, 300}, {1000, 100}};
    static struct life l;
    l = (struct life){.dice = dice_seeded(seed)};
    house_init(&l.h, seed);
    house_vary_shelves(&l.h, seed);
    model_init(&l.m, seed);
    struct store_options *o = &l.h.options;
    size_t shape = (size_t)below(&l, 5);
    o->log_file_size = l.m.log_file_size;
    o->queue_file_size = queue_files[below(&l, 4)];
    o->max_record_size = l.m.record_max;
    o->sync_flush = l.m.sync_flush;
    o->index_slots = shapes[shape][0];
    o->index_entries = shapes[shape][1];
    o->delays_ms = l.m.delays_ms;
    o->n_delays = MODEL_DELAYS;
    o->retention =
        (struct store_retention){l.m.reserved_ms, l.m.any_hour ? 0xffffff : 0, 75, 85, 90};
    disk_calls = *l.h.disk->calls;
    disk_calls.space = disk_space;
    disk_model = &l.m;
    l.h.disk->calls = &disk_calls;
    o->vfs = l.h.disk; /* nothing fails here, so nobody has to stand in front of it */

    house_must_open(&l.h);
    model_reopen(&l.m, mono_ms(&l));
    for (int steps = 50 + (int)below(&l, 350); steps > 0; steps--)
        step(&l);
    reopen(&l);
    drop_kept(&l);
    seen.messages += l.m.n;
    seen.log_files += l.m.first / l.m.log_file_size;
    house_clear(&l.h);
    model_clear(&l.m);
}

static uint64_t current_seed;

static int say_seed(void **state)
{
    (void)state;
    print_message("# last was TEST_SEED=%" PRIu64 "\n", current_seed);
    return 0;
}

static void answers_as_the_model_does(void **state)
{
    (void)state;
    const char *given = getenv("TEST_SEED"), *many = getenv("MODEL_SEEDS");
    uint64_t first = given ? strtoull(given, NULL, 0) : dice_seed_from_os() >> 20;
    uint64_t count = many ? strtoull(many, NULL, 0) : given ? 1 : SEEDS;
    print_message("# TEST_SEED=%" PRIu64 " and the next, %" PRIu64 " in all\n", first, count);
    for (current_seed = first; current_seed < first + count; current_seed++)
        seed_run(current_seed);
    print_message("# %" PRIu64 " messages stored, %" PRIu64 " refused, %" PRIu64
                  " found by key, %" PRIu64 " log files deleted, %" PRIu64 " starts\n",
                  seen.messages, seen.refused, seen.found, seen.log_files, seen.starts);
    if (count >= SEEDS)
        assert_true(seen.refused && seen.found > seen.starts && seen.log_files > count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(answers_as_the_model_does, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
