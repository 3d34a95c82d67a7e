/* Units on a shelf are there for readers, and get to their files in time. */
#include "store/test_house.h"

#include <pthread.h>
#include <sched.h>

enum { LANES = HOUSE_TOPICS * HOUSE_QUEUES }; /* so far apart are two messages of one queue */

static struct queue *queue_of_message(struct house *h, uint64_t n)
{
    char topic[16];
    struct queue *queue = store_queue_find(h->store, message_topic(n, topic), message_queue(n));
    assert_non_null(queue);
    return queue;
}

/* Messages that all go to the queue of message 0. */
static void send_to_first(struct house *h, uint64_t from, uint64_t count)
{
    for (uint64_t n = from; n < from + count; n++)
        house_must_send(h, n * LANES, 1);
    house_dispatch(h);
}

static int64_t filed(struct house *h, struct queue *queue)
{
    room_enter(&h->store->derived.room);
    int64_t offset = queue_filed(queue);
    room_leave(&h->store->derived.room);
    return offset;
}

static void keep(struct house *h, int64_t after_ms)
{
    clock_manual_advance(&h->clock, after_ms);
    store_keep_turn(h->store);
}

/* Everything that can be asked about a queue, with its first units in the file and its last ones on
 * the shelf: a batch over the seam, times, the queue's minimum. */
static void readers_see_no_seam(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    for (uint64_t n = 0; n < 20; n++) {
        if (n == 12)
            assert_int_equal(shelves_file(h.store, NULL), OK);
        send_to_first(&h, n, 1);
        clock_manual_advance(&h.clock, 1000);
    }
    struct queue *queue = queue_of_message(&h, 0);
    assert_int_equal(filed(&h, queue), 12);
    assert_int_equal(queue_max(queue), 20);
    static struct read_result got;
    for (int64_t from = 0; from < 20; from++) {
        struct read_request request = {.offset = from, .max_count = 32, .max_bytes = 1 << 20};
        store_read(h.store, queue, &request, &got);
        assert_int_equal(got.status, READ_FOUND);
        assert_int_equal(got.count, 20 - from);
        for (size_t i = 0; i < got.n_slices; i++)
            counted_drop(got.slices[i].owner);
        int64_t ms = queue_store_time(h.store, queue, from), next_ms;
        assert_int_equal(queue_search_time(h.store, queue, ms), from);
        assert_int_equal(queue_due(h.store, queue, from, 32, INT64_MAX, &next_ms), 20 - from);
    }
    assert_int_equal(house_read_all(&h, NULL, 0), 20);
    house_clear(&h);
}

/* A queue's units go to the file together: one write for a shelf. */
static void a_full_shelf_is_written_once(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.log_file_size = 4u << 20;
    h.options.queue_file_size = 20000;
    h.options.index_slots = h.options.index_entries = 0;
    house_must_open(&h);
    unsigned long before = h.fault->writes;
    send_to_first(&h, 0, SHELF_UNITS); /* each is a write to the log */
    assert_int_equal(h.fault->writes, before + SHELF_UNITS);
    struct queue *queue = queue_of_message(&h, 0);
    assert_int_equal(filed(&h, queue), 0);
    send_to_first(&h, SHELF_UNITS, 1);
    assert_int_equal(h.fault->writes, before + SHELF_UNITS + 2);
    assert_int_equal(filed(&h, queue), SHELF_UNITS);
    assert_int_equal(house_read_all(&h, NULL, 0), SHELF_UNITS + 1);
    house_clear(&h);
}

/* Once a second everything gets to its file, whoever is quiet or busy. */
static void the_keeper_clears_all_shelves(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    for (uint64_t n = 0; n < 5; n++) {
        house_must_send(&h, n * 30, 30);
        house_dispatch(&h);
        assert_int_equal(h.store->derived.n_shelves, LANES);
        keep(&h, 1000);
        assert_int_equal(h.store->derived.n_shelves, 0);
        assert_true(list_empty(&h.store->derived.shelves));
        for (uint64_t i = 0; i < LANES; i++)
            assert_int_equal(filed(&h, queue_of_message(&h, i)),
                             queue_max(queue_of_message(&h, i)));
    }
    assert_int_equal(house_read_all(&h, NULL, 0), 150);
    house_clear(&h);
}

/* More busy queues than shelves: those that find none write as they go. */
static void queues_without_a_shelf_write_at_once(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.shelf_units = SHELF_LEAST;
    h.shelf_room = 2 * SHELF_LEAST;
    house_must_open(&h);
    for (uint64_t n = 0; n < 10; n++) {
        house_must_send(&h, n * 30, 30);
        house_dispatch(&h);
        assert_int_equal(h.store->derived.n_shelves, 2);
        if (n == 4)
            keep(&h, 1000);
    }
    size_t whole = 0;
    for (uint64_t i = 0; i < LANES; i++)
        whole += filed(&h, queue_of_message(&h, i)) == queue_max(queue_of_message(&h, i));
    assert_int_equal(whole, LANES - 2);
    assert_int_equal(house_read_all(&h, NULL, 0), 300);
    house_must_close(&h);
    house_must_open(&h);
    assert_true(h.report.clean);
    assert_int_equal(h.report.examined_bytes, 0); /* the queues are whole */
    assert_int_equal(house_read_all(&h, NULL, 0), 300);
    house_clear(&h);
}

/* One message for each of many queues: nothing is written but the log, until the keeper comes. */
static void many_quiet_queues_have_small_shelves(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.log_file_size = 4u << 20;
    h.options.index_slots = h.options.index_entries = 0;
    house_must_open(&h);
    enum { QUEUES = 5000 };
    static struct arrival news[ARRIVALS_MAX];
    unsigned long before = h.fault->writes;
    for (int32_t i = 0; i < QUEUES; i++) {
        struct draft d = {
            .queue = store_queue(h.store, BYTES("Wide"), i), .topic = BYTES("Wide"), .queue_id = i};
        d.born_host.ip_len = d.store_host.ip_len = 4;
        struct stored out;
        uint64_t end;
        assert_int_equal(store_append(h.store, &d, 1, &out, &end), OK);
    }
    while (store_dispatch_turn(h.store, news) > 0)
        continue;
    assert_int_equal(h.fault->writes, before + QUEUES);
    assert_int_equal(h.store->derived.n_shelves, QUEUES);
    assert_int_equal(h.store->derived.shelf_room, SHELF_ROOM - QUEUES * SHELF_LEAST);
    assert_int_equal(shelves_file(h.store, NULL), OK);
    assert_int_equal(h.fault->writes, before + 2 * QUEUES);
    assert_int_equal(h.store->derived.shelf_room, SHELF_ROOM);
    house_must_close(&h);
    house_clear(&h);
}

/* A shelf that is full is replaced by a bigger one, in the same place of the row: the keeper finds
 * what waits longest in front. Who holds the small one goes on reading from it. */
static void a_shelf_grows_in_its_place(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 0, LANES);
    house_dispatch(&h);
    struct queue *queue = queue_of_message(&h, 0);
    struct shelf *small = shelf_hold(h.store, queue);
    assert_int_equal(small->size, SHELF_LEAST);
    struct unit first = shelf_unit(small, 0);
    send_to_first(&h, 1, SHELF_LEAST);
    struct shelf *big = shelf_hold(h.store, queue);
    assert_int_equal(big->size, SHELF_LEAST * 2);
    assert_ptr_equal(list_first(&h.store->derived.shelves), &big->link);
    assert_int_equal(h.store->derived.n_shelves, LANES);
    assert_int_equal(shelf_unit(small, 0).position, first.position);
    assert_int_equal(shelf_unit(big, 0).position, first.position);
    assert_int_equal(filed(&h, queue), 0);
    shelf_drop_at(&small);
    shelf_drop_at(&big);

    assert_int_equal(shelves_file(h.store, NULL), OK);
    send_to_first(&h, SHELF_LEAST + 1, 1); /* begins as big as the one before it */
    big = shelf_hold(h.store, queue);
    assert_int_equal(big->size, SHELF_LEAST * 2);
    shelf_drop_at(&big);
    assert_int_equal(house_read_all(&h, NULL, 0), LANES + SHELF_LEAST + 1);
    house_clear(&h);
}

/* Who holds a shelf may go on reading from it when its units are in the file and the queue has
 * another one. */
static void a_reader_keeps_the_shelf_it_holds(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    send_to_first(&h, 0, 5);
    struct queue *queue = queue_of_message(&h, 0);
    struct shelf *held = shelf_hold(h.store, queue);
    assert_non_null(held);
    struct unit before = shelf_unit(held, 4), now;
    assert_int_equal(shelves_file(h.store, NULL), OK);
    assert_null(shelf_hold(h.store, queue));
    send_to_first(&h, 5, 5);
    assert_int_equal(shelf_unit(held, 4).position, before.position);
    assert_int_equal(queue_unit_at(h.store, queue, 4, &now, NULL), OK);
    assert_int_equal(now.position, before.position);
    assert_int_equal(queue_unit_at(h.store, queue, 5, &now, NULL), OK);
    assert_true(now.position > before.position);
    shelf_drop_at(&held);
    house_clear(&h);
}

/* A queue that fills one big shelf after the other has the same one, unless a reader still needs
 * it. */
static void a_shelf_that_nobody_holds_is_used_again(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.log_file_size = 4u << 20;
    h.options.queue_file_size = 20000;
    house_must_open(&h);
    enum { BIG = 2 * SHELF_SMALL + 2 }; /* it stays one that has big shelves for a while */
    send_to_first(&h, 0, BIG);
    struct queue *queue = queue_of_message(&h, 0);
    const struct shelf *first = atomic_load(&queue->shelf);
    assert_int_equal(shelves_file(h.store, NULL), OK);
    send_to_first(&h, BIG, 1);
    assert_ptr_equal(atomic_load(&queue->shelf), first);
    send_to_first(&h, BIG + 1, SHELF_UNITS);
    assert_ptr_equal(atomic_load(&queue->shelf), first);

    struct shelf *held = shelf_hold(h.store, queue);
    int64_t position = shelf_unit(held, held->from).position;
    assert_int_equal(shelves_file(h.store, NULL), OK);
    send_to_first(&h, BIG + SHELF_UNITS + 1, 1);
    assert_ptr_not_equal(atomic_load(&queue->shelf), first);
    assert_int_equal(shelf_unit(held, held->from).position, position);
    shelf_drop_at(&held);
    assert_int_equal(house_read_all(&h, NULL, 0), BIG + SHELF_UNITS + 2);
    house_clear(&h);
}

/* However many queues were busy, few shelves are kept. */
static void only_some_shelves_are_kept(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 0, LANES * (SHELF_SMALL + 1));
    house_dispatch(&h);
    assert_int_equal(h.store->derived.n_shelves, LANES);
    h.store->derived.n_spares = SPARES_MAX - 2; /* as if so many had been there */
    assert_int_equal(shelves_file(h.store, NULL), OK);
    assert_int_equal(h.store->derived.n_spares, SPARES_MAX);
    size_t kept = 0;
    list_each(k, &h.store->derived.spares)
        kept++;
    assert_int_equal(kept, 2);
    house_clear(&h);
}

/* The end of the process takes the shelves with it, and a power loss more: what was confirmed is
 * back after opening, and the checkpoint did not speak for it. */
static void a_crash_takes_the_shelves_and_no_message(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct house h;
        house_init(&h, seed);
        h.options.sync_flush = true;
        house_must_open(&h);
        for (uint64_t n = 0; n < 300; n += 30) {
            house_must_send(&h, n, 30);
            (void)store_flush_turn(h.store);
            house_dispatch(&h);
            if (n == 120)
                keep(&h, 61000); /* the checkpoint */
        }
        assert_int_equal(h.store->derived.n_shelves, LANES);
        house_crash(&h);
        if (seed % 2)
            vfs_fault_power_loss(h.fault);
        house_must_open(&h);
        assert_int_equal(house_read_all(&h, NULL, 0), 300);
        house_clear(&h);
    }
}

/* A disk that takes nothing more: what is on shelves stays readable, the checkpoint stays behind,
 * and nothing is given up. When there is room again all of it gets to its file. */
static void a_shelf_that_cannot_be_written_stays(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.shelf_units = 10;
    house_must_open(&h);
    send_to_first(&h, 0, 5);
    (void)store_flush_turn(h.store);
    keep(&h, 61000);
    int64_t claimed = h.store->checkpoint.queues_ms;
    send_to_first(&h, 5, 10);
    struct queue *queue = queue_of_message(&h, 0);
    assert_int_equal(filed(&h, queue), 5);

    house_must_send(&h, 15 * LANES, 1);
    vfs_fault_plan(h.fault, 1, 1000000, ERR_DISK_FULL);
    house_dispatch(&h); /* there is no place for the 16th */
    assert_int_equal(queue_max(queue), 15);
    assert_int_equal(store_state(h.store, NULL), ERR_DISK_FULL);
    keep(&h, 61000);
    assert_false(store_failed(h.store));
    struct fault why = {0};
    assert_int_equal(store_put_off(h.store, &why), ERR_DISK_FULL);
    assert_int_equal(h.store->checkpoint.queues_ms, claimed);
    assert_int_equal(filed(&h, queue), 5);

    vfs_fault_plan(h.fault, 0, 0, OK);
    assert_int_equal(house_read_all(&h, NULL, 0), 15);
    house_dispatch(&h);
    assert_int_equal(store_state(h.store, NULL), OK);
    assert_int_equal(house_read_all(&h, NULL, 0), 16);
    keep(&h, 61000);
    assert_int_equal(store_put_off(h.store, &why), OK);
    assert_int_equal(filed(&h, queue), 16);
    assert_true(h.store->checkpoint.queues_ms > claimed);
    house_must_close(&h);
    house_clear(&h);
}

/* ---- beside each other ---- */

struct scene {
    struct house *h;
    _Atomic bool stop;
};

static void *keep_on(void *arg)
{
    struct scene *s = arg;
    while (!atomic_load(&s->stop)) {
        assert_int_equal(shelves_file(s->h->store, NULL), OK);
        (void)sched_yield();
    }
    return NULL;
}

/* Looks at the end of a queue again and again, while it grows and its shelves come and go. */
static void *read_on(void *arg)
{
    struct scene *s = arg;
    while (!atomic_load(&s->stop)) {
        struct queue *queue = queue_of_message(s->h, 0);
        int64_t max = queue_max(queue);
        uint64_t last = 0;
        for (int64_t at = max > 50 ? max - 50 : 0; at < max; at++) {
            struct unit unit;
            assert_int_equal(queue_unit_at(s->h->store, queue, at, &unit, NULL), OK);
            assert_true(unit.size > 0);
            assert_true(unit.position >= last);
            last = unit.position + unit.size;
        }
    }
    return NULL;
}

static void readers_beside_dispatch_and_keeper(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.shelf_units = 7;
    house_must_open(&h);
    send_to_first(&h, 0, 1);
    struct scene s = {.h = &h};
    pthread_t threads[3];
    assert_int_equal(pthread_create(&threads[0], NULL, keep_on, &s), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_on, &s), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, read_on, &s), 0);
    for (uint64_t n = 1; n < 1500; n += 3)
        send_to_first(&h, n, 3);
    atomic_store(&s.stop, true);
    for (size_t i = 0; i < 3; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(house_read_all(&h, NULL, 0), 1501);
    house_must_close(&h);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_no_seam),
        cmocka_unit_test(a_full_shelf_is_written_once),
        cmocka_unit_test(the_keeper_clears_all_shelves),
        cmocka_unit_test(queues_without_a_shelf_write_at_once),
        cmocka_unit_test(many_quiet_queues_have_small_shelves),
        cmocka_unit_test(a_shelf_grows_in_its_place),
        cmocka_unit_test(a_reader_keeps_the_shelf_it_holds),
        cmocka_unit_test(a_shelf_that_nobody_holds_is_used_again),
        cmocka_unit_test(only_some_shelves_are_kept),
        cmocka_unit_test(a_crash_takes_the_shelves_and_no_message),
        cmocka_unit_test(a_shelf_that_cannot_be_written_stays),
        cmocka_unit_test(readers_beside_dispatch_and_keeper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
