#include "store/test_house.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

struct waiting {
    struct store_wait wait;
    int called;
    enum err err;
    unsigned long syncs; /* that the disk had seen when it was called */
    struct house *h;
};

static void note_done(struct store_wait *wait, enum err err)
{
    struct waiting *w = list_entry(wait, struct waiting, wait);
    w->called++;
    w->err = err;
    w->syncs = w->h->fault->syncs;
}

static void open_house(struct house *h, bool sync_flush)
{
    house_init(h, 1);
    h->options.sync_flush = sync_flush;
    house_must_open(h);
}

static struct waiting send_and_wait(struct house *h, uint64_t n)
{
    struct stored out;
    struct waiting w = {.h = h, .wait.done = note_done};
    assert_int_equal(house_send(h, n, 1, &out, &w.wait.position), OK);
    return w;
}

/* Several appends, one sync. Until it has happened nobody is told and nothing can be read. */
static void one_sync_confirms_all_that_waits(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, true);
    struct waiting w[20];
    for (size_t i = 0; i < 20; i++)
        w[i] = send_and_wait(&h, i);
    for (size_t i = 20; i-- > 0;) /* in any order */
        assert_false(store_await(h.store, &w[i].wait));
    assert_int_equal(store_confirmed(h.store), 0);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), 0);

    unsigned long before = h.fault->syncs;
    (void)store_flush_turn(h.store);
    assert_int_equal(h.fault->syncs, before + 1);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(w[i].called, 1);
        assert_int_equal(w[i].err, OK);
        assert_int_equal(w[i].syncs, before + 1);
    }
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), 20);

    struct waiting late = {.h = &h,
                           .wait = {.position = store_confirmed(h.store), .done = note_done}};
    assert_true(store_await(h.store, &late.wait)); /* has passed: never called */
    (void)store_flush_turn(h.store);
    assert_int_equal(late.called, 0);
    assert_int_equal(h.fault->syncs, before + 1); /* nothing new, nothing synced */
    house_must_close(&h);
    house_clear(&h);
}

/* The log spans files: a flush covers all of them. */
static void a_flush_reaches_over_files(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, true);
    house_must_send(&h, 0, 800);
    assert_true(position_get(&h.store->positions.written) > 2 * HOUSE_LOG_FILE);
    (void)store_flush_turn(h.store);
    assert_int_equal(store_confirmed(h.store), position_get(&h.store->positions.written));
    house_crash(&h);
    vfs_fault_power_loss(h.fault);
    house_must_open(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), 800);
    house_clear(&h);
}

/* The disk refuses one sync, and would do the next: it is not asked again. Those who wait are told,
 * nothing more is accepted, what was confirmed can still be read; the folder does not look clean.
 */
static void a_failed_sync_is_for_good(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, true);
    house_must_send(&h, 0, 10);
    (void)store_flush_turn(h.store);
    house_dispatch(&h);
    struct waiting w = send_and_wait(&h, 10);
    assert_false(store_await(h.store, &w.wait));
    vfs_fault_plan(h.fault, 1, 1, ERR_IO);
    (void)store_flush_turn(h.store);
    vfs_fault_plan(h.fault, 0, 0, OK);
    assert_int_equal(w.called, 1);
    assert_int_equal(w.err, ERR_IO);

    struct fault why = {0};
    struct stored out;
    uint64_t end;
    assert_int_equal(store_state(h.store, &why), ERR_IO);
    assert_string_not_equal(why.text, "");
    assert_int_equal(house_send(&h, 11, 1, &out, &end), ERR_READ_ONLY);
    unsigned long syncs = h.fault->syncs;
    struct waiting late = {.h = &h, .wait = {.position = w.wait.position, .done = note_done}};
    assert_false(store_await(h.store, &late.wait));
    (void)store_flush_turn(h.store);
    assert_int_equal(late.err, ERR_IO);
    assert_int_equal(h.fault->syncs, syncs);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), 10);
    assert_int_equal(store_close(take(&h.store), &why), ERR_IO);
    assert_true(house_has(&h, "abort"));
    house_clear(&h);
}

/* The process has no file handle left to open a folder with: that is no failed sync. Nobody is told
 * anything before a later turn has done it all, and then the store is as it was. */
static void a_sync_that_could_not_begin_is_tried_again(void **state)
{
    (void)state;
    for (unsigned long folder = 2; folder <= 3;
         folder++) { /* after the file: commitlog, and ours */
        struct house h;
        open_house(&h, true);
        struct waiting w = send_and_wait(&h, 0);
        assert_false(store_await(h.store, &w.wait));
        vfs_fault_plan(h.fault, folder, 1, ERR_BUSY);
        assert_true(store_flush_turn(h.store) < 100); /* soon */
        assert_int_equal(w.called, 0);
        assert_int_equal(store_confirmed(h.store), 0);
        assert_int_equal(store_state(h.store, NULL), OK);
        struct fault why = {0};
        assert_int_equal(store_put_off(h.store, &why), ERR_BUSY);
        assert_non_null(strstr(why.text, "operation"));
        (void)store_flush_turn(h.store);
        assert_int_equal(store_put_off(h.store, &why), OK);
        assert_int_equal(w.called, 1);
        assert_int_equal(w.err, OK);
        house_must_send(&h, 1, 1);
        house_must_close(&h);
        house_clear(&h);
    }
}

/* The same for the folders of queues; what could not be synced is still there to be synced. */
static void queues_whose_folders_cannot_be_opened_stay_dirty(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.index_slots = 0;
    house_must_open(&h);
    house_must_send(&h, 0, HOUSE_TOPICS * HOUSE_QUEUES);
    house_dispatch(&h);
    (void)store_flush_turn(h.store);
    struct fault why = {0};
    int64_t queues_ms;
    vfs_fault_plan(h.fault, 2, 1, ERR_BUSY); /* behind the sync of the first queue's file */
    assert_int_equal(queues_keep(h.store, 1, &queues_ms), ERR_BUSY);
    assert_int_equal(store_state(h.store, &why), OK);
    assert_int_equal(h.store->kept, 0);
    unsigned long syncs = h.fault->syncs;
    assert_int_equal(queues_keep(h.store, 1, &queues_ms), OK);
    assert_int_equal(h.fault->syncs, syncs + HOUSE_TOPICS * HOUSE_QUEUES);
    assert_int_equal(h.store->kept, store_confirmed(h.store));
    house_must_close(&h);
    house_clear(&h);
}

/* Asynchronous: by interval if there are enough pages, by the long interval whatever there is. */
static void asynchronous_flush_keeps_its_intervals(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, false);
    const _Atomic uint64_t *flushed = &h.store->positions.flushed;
    house_must_send(&h, 0, 1);
    assert_int_equal(store_flush_turn(h.store), 500);
    clock_manual_advance(&h.clock, 499);
    assert_int_equal(store_flush_turn(h.store), 1);
    clock_manual_advance(&h.clock, 1);
    assert_int_equal(store_flush_turn(h.store), 500);
    assert_int_equal(position_get(flushed), 0); /* not four pages yet */

    house_must_send(&h, 1, 100);
    assert_int_equal(store_flush_turn(h.store), 500);
    assert_int_equal(position_get(flushed), 0);
    clock_manual_advance(&h.clock, 500);
    (void)store_flush_turn(h.store);
    assert_int_equal(position_get(flushed), store_confirmed(h.store));

    house_must_send(&h, 200, 1);
    for (int ms = 0; ms < 9500; ms += 500) {
        clock_manual_advance(&h.clock, 500);
        (void)store_flush_turn(h.store);
        assert_int_not_equal(position_get(flushed), store_confirmed(h.store));
    }
    clock_manual_advance(&h.clock, 500);
    (void)store_flush_turn(h.store);
    assert_int_equal(position_get(flushed), store_confirmed(h.store));
    house_clear(&h);
}

/* ---- threads ---- */

#define SENDERS    3
#define PER_SENDER 300

struct shared {
    struct house *h;
    atomic_bool stop;
    atomic_uint number, turns;
};

static void *flusher(void *user)
{
    struct shared *s = user;
    while (!atomic_load(&s->stop)) {
        atomic_fetch_add(&s->turns, 1);
        store_flush_wait(s->h->store, store_flush_turn(s->h->store) ? 10000 : 0);
    }
    (void)store_flush_turn(s->h->store);
    return NULL;
}

struct blocking {
    struct store_wait wait;
    atomic_int done;
};

static void unblock(struct store_wait *wait, enum err err)
{
    atomic_store(&list_entry(wait, struct blocking, wait)->done, err ? -1 : 1);
}

/* Sends one message after the other, each when the one before is safe. */
static void *sender(void *user)
{
    struct shared *s = user;
    struct message_room room;
    for (int i = 0; i < PER_SENDER; i++) {
        struct draft d = house_message(s->h, atomic_fetch_add(&s->number, 1), &room);
        struct stored out;
        struct blocking b = {.wait.done = unblock};
        invariant(store_append(s->h->store, &d, 1, &out, &b.wait.position) == OK);
        if (store_await(s->h->store, &b.wait))
            continue;
        while (atomic_load(&b.done) == 0)
            (void)sched_yield();
        invariant(atomic_load(&b.done) == 1);
        invariant(store_confirmed(s->h->store) >= b.wait.position);
    }
    return NULL;
}

/* With a flusher that sleeps ten seconds when not woken, this ends at once or not at all. */
static void an_append_wakes_the_flusher(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, true);
    struct shared s = {.h = &h};
    pthread_t flush, senders[SENDERS];
    assert_int_equal(pthread_create(&flush, NULL, flusher, &s), 0);
    for (size_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_create(&senders[i], NULL, sender, &s), 0);
    for (size_t i = 0; i < SENDERS; i++)
        (void)pthread_join(senders[i], NULL);
    atomic_store(&s.stop, true);
    store_flush_wake(h.store);
    (void)pthread_join(flush, NULL);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), SENDERS * PER_SENDER);
    house_must_close(&h);
    house_clear(&h);
}

/* ---- gathering ---- */

/* A disk whose syncs take their time, by the clock of the test. */
static struct {
    struct vfs_calls calls;
    enum err (*sync)(struct vfs_file *f, struct fault *why);
    struct clock_manual *clock;
    uint64_t takes_ms;
    void (*meanwhile)(struct house *h);
    struct house *house;
} slow;

static enum err slow_sync(struct vfs_file *f, struct fault *why)
{
    clock_manual_advance(slow.clock, slow.takes_ms);
    if (slow.meanwhile)
        slow.meanwhile(slow.house);
    return slow.sync(f, why);
}

static void open_slow_house(struct house *h, uint64_t sync_ms)
{
    house_init(h, 1);
    slow.calls = *h->fault->vfs.calls;
    slow.sync = slow.calls.sync;
    slow.calls.sync = slow_sync;
    slow.clock = &h->clock;
    slow.takes_ms = sync_ms;
    slow.meanwhile = NULL;
    slow.house = h;
    h->fault->vfs.calls = &slow.calls;
    h->options.sync_flush = true;
    house_must_open(h);
}

static void *wait_once(void *user)
{
    struct house *h = user;
    store_flush_wait(h->store, 10000);
    room_enter(&h->store->tail.room);
    invariant(h->store->tail.records == 40);
    room_leave(&h->store->tail.room);
    return NULL;
}

/* Twenty were confirmed, so twenty more are waited for: one of them alone does not start the next
 * sync, the last one does. By the clock the flusher would have half a day. */
static void waits_for_those_it_has_told(void **state)
{
    (void)state;
    struct house h;
    open_slow_house(&h, 24 * 3600 * 1000);
    h.store->tail.gathering.most_ns = UINT64_MAX;
    house_must_send(&h, 0, 20);
    (void)store_flush_turn(h.store);
    pthread_t flusher;
    assert_int_equal(pthread_create(&flusher, NULL, wait_once, &h), 0);
    for (uint64_t n = 20; n < 40; n++)
        house_must_send(&h, n, 1);
    (void)pthread_join(flusher, NULL);
    unsigned long syncs = h.fault->syncs;
    (void)store_flush_turn(h.store);
    assert_int_equal(h.fault->syncs, syncs + 1);
    assert_int_equal(store_confirmed(h.store), position_get(&h.store->positions.written));
    house_must_close(&h);
    house_clear(&h);
}

/* Nobody comes: the patience is halved each time, and full again when most have come. Whoever wants
 * to stop does not wait for it. */
static void is_less_patient_when_few_come(void **state)
{
    (void)state;
    struct house h;
    open_slow_house(&h, 4);
    const struct gathering *g = &h.store->tail.gathering;
    uint64_t patience_ns = 2000000;
    for (uint64_t n = 0; n < 40; n += 10, patience_ns /= 2) {
        house_must_send(&h, n, 10);
        (void)store_flush_turn(h.store);
        assert_int_equal(g->until_ns - clock_ns(h.options.clock), patience_ns);
        store_flush_wait(h.store, 0);
        assert_int_equal(g->until_ns, 0);
    }
    house_must_send(&h, 40, 10);
    (void)store_flush_turn(h.store);
    house_must_send(&h, 50, 6);
    store_flush_wait(h.store, 10000);
    assert_int_equal(g->alone, 0);

    slow.takes_ms = 24 * 3600 * 1000;
    h.store->tail.gathering.most_ns = UINT64_MAX;
    (void)store_flush_turn(h.store);
    store_flush_wake(h.store);
    store_flush_wait(h.store, 10000);
    house_must_close(&h);
    house_clear(&h);
}

static void one_more(struct house *h)
{
    slow.meanwhile = NULL;
    house_must_send(h, 10, 1);
}

/* One has come while the sync ran, so the next begins at once and not when those that were told
 * have come again. After that one, during which nobody comes, they are waited for. */
static void whoever_has_come_waits_for_nobody(void **state)
{
    (void)state;
    struct house h;
    open_slow_house(&h, 4);
    const struct gathering *g = &h.store->tail.gathering;
    house_must_send(&h, 0, 10);
    slow.meanwhile = one_more;
    (void)store_flush_turn(h.store);
    assert_int_equal(g->until_ns, 0);
    store_flush_wait(h.store, INT_MAX); /* the one has rung */
    (void)store_flush_turn(h.store);
    assert_int_equal(store_confirmed(h.store), position_get(&h.store->positions.written));
    assert_true(g->until_ns > 0);
    assert_int_equal(g->expected, 1);
    house_must_close(&h);
    house_clear(&h);
}

/* The disk stood still for a day, or the clock was put forward while it worked: who comes alone
 * afterwards is not made to wait for half of that. */
static void never_waits_long_whatever_a_sync_took(void **state)
{
    (void)state;
    struct house h;
    open_slow_house(&h, 24 * 3600 * 1000);
    const struct gathering *g = &h.store->tail.gathering;
    house_must_send(&h, 0, 10);
    (void)store_flush_turn(h.store);
    assert_int_equal(g->until_ns - clock_ns(h.options.clock), GATHER_MOST_NS);
    house_must_send(&h, 10, 1);
    store_flush_wait(h.store, 10000);
    assert_int_equal(g->until_ns, 0);
    (void)store_flush_turn(h.store);
    assert_int_equal(store_confirmed(h.store), position_get(&h.store->positions.written));
    house_must_close(&h);
    house_clear(&h);
}

/* ---- queues ---- */

/* A queue with two pages of news is synced at the next interval, one with less after a minute; then
 * the checkpoint tells how far both are. */
static void keeps_queues_and_checkpoint_by_interval(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.queue_file_size = 60000;
    h.options.log_file_size = 8u << 20; /* one is enough, and the next is made by the first turn */
    h.options.index_slots = 0;          /* it has syncs of its own */
    house_must_open(&h);
    house_must_send(&h, 0, 6);
    house_dispatch(&h);
    store_keep_turn(h.store);
    clock_manual_advance(&h.clock, 1000);
    unsigned long syncs = h.fault->syncs;
    store_keep_turn(h.store);
    assert_int_equal(h.fault->syncs, syncs);

    for (uint64_t n = 6; n < 6006; n += 100)
        house_must_send(&h, n, 100);
    house_dispatch(&h);
    store_keep_turn(h.store); /* too early */
    assert_int_equal(h.fault->syncs, syncs);
    clock_manual_advance(&h.clock, 1000);
    store_keep_turn(h.store);
    assert_int_equal(h.fault->syncs, syncs + HOUSE_TOPICS * HOUSE_QUEUES);
    assert_false(house_has(&h, "checkpoint"));

    house_must_send(&h, 6006, 1);
    house_dispatch(&h);
    (void)store_flush_turn(h.store);
    clock_manual_advance(&h.clock, 60000);
    store_keep_turn(h.store);
    struct checkpoint c;
    assert_int_equal(checkpoint_read(h.options.vfs, &c, NULL), OK);
    assert_int_equal(c.queues_ms, 1700000002000);
    assert_int_equal(c.log_ms, 1700000002000);
    assert_false(c.sealed);
    assert_int_equal(house_size(&h, "checkpoint"), 4096);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("FR-1", one_sync_confirms_all_that_waits),
        cmocka_unit_test(a_flush_reaches_over_files),
        cmocka_unit_test(a_failed_sync_is_for_good),
        cmocka_unit_test(a_sync_that_could_not_begin_is_tried_again),
        cmocka_unit_test(queues_whose_folders_cannot_be_opened_stay_dirty),
        test_of_row("FR-2", asynchronous_flush_keeps_its_intervals),
        cmocka_unit_test(an_append_wakes_the_flusher),
        cmocka_unit_test(waits_for_those_it_has_told),
        cmocka_unit_test(is_less_patient_when_few_come),
        cmocka_unit_test(whoever_has_come_waits_for_nobody),
        cmocka_unit_test(never_waits_long_whatever_a_sync_took),
        cmocka_unit_test(keeps_queues_and_checkpoint_by_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
