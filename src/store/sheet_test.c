/* sheet_test.c - records that are written down outside of the tail's room, and those that cannot
 * be. That they are what they should be is in all tests of the store: whatever leaves a slip comes
 * from a sheet.
 */
#include "store/test_house.h"

#include <pthread.h>
#include <stdlib.h>

#define LOG_FILE (64u << 10)
#define MOST     4000
#define THREADS  4
#define EACH     500

struct batch {
    struct message_room *rooms;
    struct draft *drafts;
    struct stored *out;
};

static void batch_init(struct batch *b)
{
    b->rooms = calloc(MOST, sizeof *b->rooms);
    b->drafts = calloc(MOST, sizeof *b->drafts);
    b->out = calloc(MOST, sizeof *b->out);
    assert_true(b->rooms && b->drafts && b->out);
}

/* A store with log files of this size; 0: as ever. */
static void begin(struct house *h, struct batch *b, uint64_t log_file_size)
{
    house_init(h, 1);
    if (log_file_size)
        h->options.log_file_size = log_file_size;
    h->options.index_entries = 4 * SLIPS_MAX;
    house_must_open(h);
    batch_init(b);
}

static void batch_clear(struct batch *b)
{
    free(b->rooms);
    free(b->drafts);
    free(b->out);
}

/* Messages from..from+n-1, all with their marks. */
static enum err send(struct house *h, struct batch *b, uint64_t from, size_t n)
{
    uint64_t end;
    for (size_t i = 0; i < n; i++) {
        b->drafts[i] = house_message(h, from + i, &b->rooms[i]);
        b->drafts[i].marks = house_marks(&b->drafts[i]);
    }
    return store_append(h->store, b->drafts, n, b->out, &end);
}

/* All are there, and for whoever has nothing but the log. Nobody has kept a sheet. */
static void must_have(struct house *h, uint64_t n)
{
    for (size_t i = 0; i < SHEETS; i++)
        assert_false(atomic_flag_test_and_set(&h->store->sheets[i].taken));
    house_dispatch(h);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_crash(h);
    house_must_open(h);
    assert_int_equal(house_read_all(h, NULL, 0), n);
    house_clear(h);
}

static void a_sheet_goes_into_one_file_or_is_written_anew(void **state)
{
    (void)state;
    struct house h;
    struct batch b;
    begin(&h, &b, LOG_FILE);
    uint64_t n = 0;
    for (; position_get(&h.store->positions.written) < 6 * LOG_FILE; n += 37)
        assert_int_equal(send(&h, &b, n, 37), OK);
    assert_true(h.store->sheets[0].size > 0);
    batch_clear(&b);
    must_have(&h, n);
}

/* Then it is as it is without: too much for one, or none is free. */
static void what_goes_on_no_sheet_is_written_inside(void **state)
{
    (void)state;
    struct house h;
    struct batch b;
    begin(&h, &b, 0);
    assert_int_equal(send(&h, &b, 0, MOST), OK);
    assert_true((uint64_t)b.out[MOST - 1].position > 512u << 10);
    assert_int_equal(h.store->sheets[0].size, 0);

    for (size_t i = 0; i < SHEETS; i++)
        assert_false(atomic_flag_test_and_set(&h.store->sheets[i].taken));
    assert_int_equal(send(&h, &b, MOST, 10), OK);
    for (size_t i = 0; i < SHEETS; i++)
        atomic_flag_clear(&h.store->sheets[i].taken);
    assert_int_equal(h.store->sheets[0].size, 0);
    assert_int_equal(send(&h, &b, MOST + 10, 10), OK);
    assert_true(h.store->sheets[0].size > 0);
    batch_clear(&b);
    must_have(&h, MOST + 20);
}

/* The dispatcher reads what has no slip, and rather from the window than from the file. */
static void what_finds_no_slip_goes_into_the_window(void **state)
{
    (void)state;
    struct house h;
    struct batch b;
    begin(&h, &b, 64u << 20);
    uint64_t n = 0;
    for (; n + 100 < SLIPS_MAX; n += 100) {
        assert_int_equal(send(&h, &b, n, 100), OK);
        assert_int_equal(h.store->tail.window.len, 0);
    }
    for (int i = 0; i < 2; i++, n += 100) {
        assert_int_equal(send(&h, &b, n, 100), OK);
        assert_true(h.store->tail.window.len > 0);
    }
    batch_clear(&b);
    must_have(&h, n);
}

/* Its places are given to others, its sheet as well. */
static void a_write_that_fails_leaves_nothing(void **state)
{
    (void)state;
    struct house h;
    struct batch b;
    begin(&h, &b, 0);
    assert_int_equal(send(&h, &b, 0, 7), OK);
    vfs_fault_plan(h.fault, 1, 1, ERR_DISK_FULL);
    assert_int_not_equal(send(&h, &b, 7, 20), OK);
    vfs_fault_plan(h.fault, 0, 0, OK);
    assert_int_equal(send(&h, &b, 7, 3), OK);
    assert_int_equal(send(&h, &b, 10, 17), OK);
    batch_clear(&b);
    must_have(&h, 27);
}

struct sender {
    struct house *h;
    uint64_t from;
    pthread_t thread;
};

static void *send_some(void *user)
{
    struct sender *s = user;
    struct batch b;
    batch_init(&b);
    for (uint64_t n = 0; n < EACH; n += 10)
        assert_int_equal(send(s->h, &b, s->from + n, 10), OK);
    batch_clear(&b);
    return NULL;
}

/* Each on a sheet of its own, into the same queues. */
static void many_write_at_the_same_time(void **state)
{
    (void)state;
    struct house h;
    struct sender senders[THREADS];
    house_init(&h, 1);
    house_must_open(&h);
    for (uint64_t i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){.h = &h, .from = i * EACH};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_some, &senders[i]), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(senders[i].thread, NULL), 0);
    must_have(&h, THREADS * EACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sheet_goes_into_one_file_or_is_written_anew),
        cmocka_unit_test(what_goes_on_no_sheet_is_written_inside),
        cmocka_unit_test(what_finds_no_slip_goes_into_the_window),
        cmocka_unit_test(a_write_that_fails_leaves_nothing),
        cmocka_unit_test(many_write_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
