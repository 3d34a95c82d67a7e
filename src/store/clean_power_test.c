/* Retention under power loss, failing operations, and beside everybody else.
 *
 * One seed is a folder and several lives in it. A life sends, flushes, dispatches, keeps and cleans
 * with files so small and a retention so short that there is always something to delete, and ends
 * by power loss at some operation, by the end of the process, or cleanly. Afterwards the store
 * opens; what is in the log from its first position on is there, in order and with the right bytes;
 * only files that were to go have gone; and no queue has forgotten an offset that it gave to a
 * message that is deleted.
 */
#include "store/test_house.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define SEEDS       12
#define LIVES       6
#define SENT_MAX    20000
#define RETENTION   20000
#define SMALL_FILE  (8u << 10)
#define SMALL_QUEUE 400u /* 20 units */

struct sent {
    uint64_t position, end; /* UINT64_MAX: nobody was told that it is stored */
    int64_t offset;
};

struct life {
    struct house h;
    struct dice dice;
    struct sent *sent; /* by number of the message */
    uint64_t n;
    uint64_t flushed; /* everything in front of it was on disk */
    uint64_t first;   /* where the log began when it was last looked at */
    bool cleaned; /* the last thing that was done is a clean turn, which may have got half-way */
};

static void life_init(struct life *l, uint64_t seed, bool sync_flush)
{
    *l = (struct life){.dice = dice_seeded(seed)};
    l->sent = calloc(SENT_MAX, sizeof *l->sent);
    assert_non_null(l->sent);
    house_init(&l->h, seed);
    house_vary_shelves(&l->h, seed);
    l->h.options.sync_flush = sync_flush;
    l->h.options.log_file_size = SMALL_FILE;
    l->h.options.queue_file_size = SMALL_QUEUE;
    l->h.options.retention = (struct store_retention){RETENTION, 0xffffff, 95, 85, 90};
}

static void life_clear(struct life *l)
{
    house_clear(&l->h);
    free(l->sent);
}

static bool life_send(struct life *l)
{
    struct stored out[12];
    size_t count = 1 + (size_t)dice_below(&l->dice, 12);
    uint64_t end;
    enum err err = house_send(&l->h, l->n, count, out, &end);
    for (size_t i = 0; i < count; i++, l->n++) {
        if (err)
            l->sent[l->n] = (struct sent){UINT64_MAX, UINT64_MAX, 0};
        else
            l->sent[l->n] = (struct sent){(uint64_t)out[i].position, end, out[i].queue_offset};
    }
    return !err;
}

/* False: the power is gone. */
static bool life_step(struct life *l)
{
    struct house *h = &l->h;
    bool power = true;
    l->cleaned = false;
    switch (dice_below(&l->dice, 8)) {
    default:
        power = life_send(l);
        break;
    case 3:
        clock_manual_advance(&h->clock, (int64_t)dice_below(&l->dice, 4000));
        break;
    case 4:
        (void)store_flush_turn(h->store);
        break;
    case 5:
        house_dispatch(h);
        break;
    case 6:
        store_keep_turn(h->store);
        break;
    case 7:
        l->cleaned = true;
        struct store_cleaned got;
        store_clean_turn(h->store, &got);
        power = !got.err;
        break;
    }
    l->flushed = position_get(&h->store->positions.flushed);
    l->first = position_get(&h->store->positions.first);
    return power && store_state(h->store, NULL) == OK;
}

/* Each queue's end lies behind everything that was ever flushed to it. */
static void check_offset(struct life *l, uint64_t n)
{
    char topic[16];
    struct queue *queue = store_queue_find(l->h.store, message_topic(n, topic), message_queue(n));
    assert_non_null(queue);
    assert_true(queue_max(queue) > l->sent[n].offset);
}

/* `sure`: nothing that was written may be missing, since the kernel had it all. */
static void life_check(struct life *l, bool sure)
{
    struct house *h = &l->h;
    house_dispatch(h);
    uint64_t first = h->report.log_first, end = h->report.log_end;
    if (first != l->first)
        assert_true(l->cleaned && first == l->first + SMALL_FILE);
    cleanup(free_at) uint8_t *seen = calloc(l->n + 1, 1);
    (void)house_read_all(h, seen, l->n);
    for (uint64_t n = 0; n < l->n; n++) {
        struct sent *sent = &l->sent[n];
        if (sent->position == UINT64_MAX) { /* whether it is there is open, but it stays so */
            if (!seen[n])
                sent->offset = -1;
            continue;
        }
        if (sent->position < first || sent->end <= l->flushed || sure)
            check_offset(l, n);
        if (sent->position >= first && (sent->end <= l->flushed || sure))
            assert_int_equal(seen[n], 1);
        assert_int_equal(seen[n], sent->position >= first && sent->position < end);
        if (sent->position >= end)
            *sent = (struct sent){UINT64_MAX, UINT64_MAX, -1}; /* lost: its place is taken anew */
    }
    l->first = first;
    l->flushed = end;
    l->cleaned = false;
}

static void life_run(struct life *l)
{
    struct house *h = &l->h;
    uint64_t ending = dice_below(&l->dice, 4);
    unsigned long at = 1 + (unsigned long)dice_below(&l->dice, 500);
    vfs_fault_plan(h->fault, ending > 1 ? at : 0, ULONG_MAX, ERR_IO);
    bool sure = false;
    if (house_open(h) == OK) {
        bool power = true;
        for (int steps = 40 + (int)dice_below(&l->dice, 300); power && steps > 0; steps--)
            power = life_step(l);
        sure = ending < 2;
        if (ending == 0)
            house_must_close(h);
        else
            house_crash(h);
    }
    if (ending > 1)
        vfs_fault_power_loss(h->fault);
    vfs_fault_plan(h->fault, 0, 0, OK);
    house_must_open(h);
    life_check(l, sure);
    if (dice_below(&l->dice, 2))
        house_must_close(h);
    else
        house_crash(h);
}

static uint64_t current_seed, deleted;

static void seeds_run(bool sync_flush)
{
    const char *only = getenv("TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 0) : dice_seed_from_os() >> 20;
    print_message("# seeds from %" PRIu64 " on; one alone: TEST_SEED=...\n", first);
    deleted = 0;
    for (current_seed = first; current_seed < first + (only ? 1 : SEEDS); current_seed++) {
        struct life l;
        life_init(&l, current_seed, sync_flush);
        for (int i = 0; i < LIVES; i++)
            life_run(&l);
        deleted += l.first / SMALL_FILE;
        life_clear(&l);
    }
    print_message("# %" PRIu64 " log files were deleted\n", deleted);
    assert_true(only || deleted > SEEDS);
}

static int say_seed(void **state)
{
    (void)state;
    print_message("# last seed was %" PRIu64 "\n", current_seed);
    return 0;
}

static void a_power_loss_leaves_what_is_to_stay_under_sync_flush(void **state)
{
    (void)state;
    seeds_run(true);
}

static void a_power_loss_leaves_what_is_to_stay_under_async_flush(void **state)
{
    (void)state;
    seeds_run(false);
}

/* A queue of which everything was deleted before the keeper came to sync it: after a power loss it
 * must not give out its offsets again. */
static void a_power_loss_leaves_an_empty_queue_its_end(void **state)
{
    (void)state;
    enum { LANES = HOUSE_TOPICS * HOUSE_QUEUES }; /* so far apart are two messages of one queue */
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct life l;
        struct house *h = &l.h;
        struct store_cleaned got;
        char topic[16];
        life_init(&l, seed, true);
        house_must_open(h);
        for (uint64_t n = 0; n < 10; n++)
            house_must_send(h, n * LANES, 1);
        for (uint64_t n = 1; h->store->log.end < 4 * SMALL_FILE; n += LANES)
            house_must_send(h, n, 1);
        (void)store_flush_turn(h->store);
        house_dispatch(h);
        clock_manual_advance(&h->clock, RETENTION + 1);
        store_clean_turn(h->store, &got);
        assert_int_equal(got.log_files, 3);
        house_crash(h);
        vfs_fault_power_loss(h->fault);
        house_must_open(h);
        struct queue *queue = store_queue_find(h->store, message_topic(0, topic), message_queue(0));
        assert_non_null(queue);
        assert_int_equal(queue_max(queue), 10);
        assert_int_equal(queue_min(h->store, queue), 10);
        life_clear(&l);
    }
}

/* Nothing was ever flushed, so any of it may be gone; but what a power loss takes from the front
 * would look as if it had been deleted. */
static void a_power_loss_leaves_the_log_its_beginning(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct life l;
        life_init(&l, seed, false);
        house_must_open(&l.h);
        for (uint64_t n = 0; l.h.store->log.end < 4 * SMALL_FILE; n++)
            house_must_send(&l.h, n, 1);
        house_crash(&l.h);
        vfs_fault_power_loss(l.h.fault);
        house_must_open(&l.h);
        assert_int_equal(l.h.report.log_first, 0);
        life_clear(&l);
    }
}

/* ---- operation n fails ---- */

static void live(struct house *h)
{
    struct stored out[40];
    struct store_cleaned got;
    uint64_t end;
    for (unsigned i = 0; i < 6; i++) {
        (void)house_send(h, i * 40, 40, out, &end);
        clock_manual_advance(&h->clock, 11000);
        (void)store_flush_turn(h->store);
        house_dispatch(h);
        store_keep_turn(h->store);
        store_clean_turn(h->store, &got);
    }
}

/* False: nothing failed. Whatever did, the store goes on or says why not; and opens again. */
static bool fails_at(unsigned long at, unsigned long times, enum err err)
{
    struct life l;
    life_init(&l, at, true);
    house_must_open(&l.h);
    vfs_fault_plan(l.h.fault, at, times, err);
    live(&l.h);
    bool failed = l.h.fault->operations >= at;
    vfs_fault_plan(l.h.fault, 0, 0, OK);
    if (at % 2 || store_close(take(&l.h.store), &l.h.why) != OK) {
        if (l.h.store)
            house_crash(&l.h);
    }
    house_must_open(&l.h);
    house_dispatch(&l.h);
    (void)house_read_all(&l.h, NULL, 0);
    live(&l.h); /* what could not be removed is, now */
    assert_int_equal(store_state(l.h.store, NULL), OK);
    assert_true(l.h.store->cleaner.swept > 0);
    assert_int_equal(l.h.store->cleaner.swept, l.h.store->log.first);
    (void)house_read_all(&l.h, NULL, 0);
    house_must_close(&l.h);
    life_clear(&l);
    return failed;
}

static void whatever_fails_it_opens_again(void **state)
{
    (void)state;
    unsigned long once = 1, for_good = 1;
    while (fails_at(once, 1, ERR_IO))
        once += 1 + once / 12;
    while (fails_at(for_good, ULONG_MAX, ERR_DISK_FULL))
        for_good += 1 + for_good / 12;
    assert_true(once > 100 && for_good > 100);
}

/* ---- beside the others ---- */

struct scene {
    struct house *h;
    _Atomic bool stop;
    _Atomic uint64_t read;
    _Atomic unsigned turns; /* of the keeper */
};

/* Time goes by a little faster than files fill, and not faster than the keeper can follow. */
static void *send_all(void *arg)
{
    struct scene *s = arg;
    for (uint64_t n = 0; n < 3000; n += 20) {
        house_must_send(s->h, n, 20);
        clock_manual_advance(&s->h->clock, 2000);
        for (unsigned seen = atomic_load(&s->turns); atomic_load(&s->turns) < seen + 2;)
            (void)sched_yield();
        (void)store_flush_turn(s->h->store);
        house_dispatch(s->h);
    }
    atomic_store(&s->stop, true);
    return NULL;
}

/* Follows one queue, and may be overtaken by what is deleted. */
static void *read_along(void *arg)
{
    struct scene *s = arg;
    static struct read_result got;
    char topic[16];
    struct queue *queue = store_queue(s->h->store, message_topic(0, topic), message_queue(0));
    struct read_request request = {.max_count = 32, .max_bytes = 1 << 20};
    while (!atomic_load(&s->stop)) {
        store_read(s->h->store, queue, &request, &got);
        for (size_t i = 0; got.status == READ_FOUND && i < got.n_slices; i++) {
            struct bytes rest = got.slices[i].bytes;
            while (rest.len > 0) {
                struct record r;
                assert_int_equal(record_decode(rest, &r), OK);
                (void)message_check(&r);
                rest = bytes_from(rest, r.size);
                atomic_fetch_add(&s->read, 1);
            }
            counted_drop(got.slices[i].owner);
        }
        request.offset = got.next;
    }
    return NULL;
}

static void cleans_beside_senders_and_readers(void **state)
{
    (void)state;
    struct life l;
    struct scene s = {.h = &l.h};
    life_init(&l, 1, false);
    house_must_open(s.h);
    pthread_t sender, reader;
    assert_int_equal(pthread_create(&sender, NULL, send_all, &s), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_along, &s), 0);
    struct store_cleaned got;
    unsigned log_files = 0;
    while (!atomic_load(&s.stop)) {
        store_keep_turn(s.h->store);
        store_clean_turn(s.h->store, &got);
        assert_int_equal(got.err, OK);
        log_files += got.log_files;
        atomic_fetch_add(&s.turns, 1);
    }
    (void)pthread_join(sender, NULL);
    (void)pthread_join(reader, NULL);
    assert_true(log_files > 10);
    assert_true(atomic_load(&s.read) > 0);
    (void)house_read_all(s.h, NULL, 0);
    house_must_close(s.h);
    life_clear(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_power_loss_leaves_what_is_to_stay_under_sync_flush, say_seed),
        cmocka_unit_test_teardown(a_power_loss_leaves_what_is_to_stay_under_async_flush, say_seed),
        cmocka_unit_test(a_power_loss_leaves_an_empty_queue_its_end),
        cmocka_unit_test(a_power_loss_leaves_the_log_its_beginning),
        cmocka_unit_test(whatever_fails_it_opens_again),
        cmocka_unit_test(cleans_beside_senders_and_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
