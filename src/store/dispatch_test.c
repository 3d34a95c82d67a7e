#include "store/test_house.h"

#include "base/crc32.h"

#include <limits.h>
#include <pthread.h>

static struct arrival news[ARRIVALS_MAX];

/* Each queue is named once, with its new end, the number of new messages and the last one's tag. */
static void tells_which_queues_have_grown(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    assert_int_equal(store_dispatch_turn(h.store, news), 0);
    house_must_send(&h, 0, 1);
    assert_int_equal(store_dispatch_turn(h.store, news), 1);
    char topic[16];
    assert_bytes_equal(news[0].topic, message_topic(0, topic));
    assert_int_equal(news[0].queue_id, message_queue(0));
    assert_ptr_equal(news[0].queue, store_queue(h.store, news[0].topic, news[0].queue_id));
    assert_int_equal(news[0].max, 1);
    assert_int_equal(news[0].count, 1);
    assert_int_equal(news[0].tags_code, tags_code(BYTES("tag0")));
    assert_int_equal(store_dispatch_turn(h.store, news), 0);

    house_must_send(&h, 1, 120);
    size_t n = store_dispatch_turn(h.store, news);
    assert_int_equal(n, HOUSE_TOPICS * HOUSE_QUEUES);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += news[i].count;
        assert_int_equal(news[i].max, queue_max(news[i].queue));
    }
    assert_int_equal(count, 120);
    assert_int_equal(store_dispatch_turn(h.store, news), 0);
    house_clear(&h);
}

/* The units of one turn and one queue leave in one write (two where a queue file ends), and so do
 * all of its keys, after the head of the first index file. */
static void writes_once_for_each_queue(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.queue_file_size = 20000;
    h.options.index_entries = 10000;
    house_must_open(&h);
    for (uint64_t n = 0; n < 2400; n += 100)
        house_must_send(&h, n, 100);
    unsigned long before = h.fault->writes;
    assert_int_equal(store_dispatch_turn(h.store, news), HOUSE_TOPICS * HOUSE_QUEUES);
    assert_int_equal(h.fault->writes, before + HOUSE_TOPICS * HOUSE_QUEUES + 2);
    assert_int_equal(house_read_all(&h, NULL, 0), 2400);
    house_clear(&h);
}

/* More queues than fit into one answer: the caller comes again until nothing is left. */
static void more_queues_than_one_turn_takes(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    enum { QUEUES = 3 * ARRIVALS_MAX + 7 };
    for (int32_t i = 0; i < QUEUES; i++) {
        struct draft d = {
            .queue = store_queue(h.store, BYTES("Wide"), i), .topic = BYTES("Wide"), .queue_id = i};
        d.born_host.ip_len = d.store_host.ip_len = 4;
        struct stored out;
        uint64_t end;
        assert_int_equal(store_append(h.store, &d, 1, &out, &end), OK);
    }
    size_t total = 0, turns = 0;
    for (size_t n; (n = store_dispatch_turn(h.store, news)) > 0; turns++)
        total += n;
    assert_int_equal(total, QUEUES);
    assert_int_equal(turns, 4);
    assert_int_equal(shelves_file(h.store, NULL), OK);
    assert_true(h.store->cache.n <= OPEN_FILES_LEAST); /* who was not used lately is closed */
    unsigned long syncs = h.fault->syncs;
    house_must_close(&h);
    assert_true(h.fault->syncs - syncs < 20); /* many queues are synced together */
    vfs_fault_power_loss(h.fault);            /* and that was a sync of all of them */
    house_must_open(&h);
    assert_int_equal(h.report.queues, QUEUES);
    assert_int_equal(h.report.examined_bytes, 0);
    house_clear(&h);
}

/* The disk has no room for a queue file, at each operation in turn: the store says so and takes no
 * messages, which would not be seen. When there is room the same turn goes through, and no unit is
 * there twice. */
static void goes_on_where_it_was_when_there_is_room_again(void **state)
{
    (void)state;
    for (unsigned long at = 1;; at++) {
        struct house h;
        house_init(&h, at);
        house_must_open(&h);
        house_must_send(&h, 0, 400);
        vfs_fault_plan(h.fault, at, ULONG_MAX, ERR_DISK_FULL);
        house_dispatch(&h);
        vfs_fault_plan(h.fault, 0, 0, OK);
        struct fault why = {0};
        bool stuck = store_state(h.store, &why) != OK;
        assert_int_equal(store_dispatch_stuck(h.store), stuck);
        if (stuck) {
            assert_int_equal(store_state(h.store, &why), ERR_DISK_FULL);
            struct stored out;
            uint64_t end;
            assert_int_equal(house_send(&h, 400, 1, &out, &end), ERR_DISK_FULL);
            if (at % 2)
                house_dispatch(&h);
            clock_manual_advance(&h.clock, 2000);
            store_keep_turn(h.store); /* by itself, if nobody calls dispatch */
            assert_int_equal(store_state(h.store, NULL), OK);
        }
        house_must_send(&h, 400, 50);
        house_dispatch(&h);
        assert_false(store_dispatch_stuck(h.store));
        uint8_t seen[450] = {0};
        assert_int_equal(house_read_all(&h, seen, 450), 450);
        house_must_close(&h);
        house_clear(&h);
        if (!stuck)
            break;
    }
}

/* A bit of the log changes on disk between append and dispatch, where it cannot be overlooked: the
 * store stops instead of filling queues with rubbish. The log has gone on to another file, so the
 * record is not in memory any more; and it has no slip (test_house.c). */
static void stops_at_a_log_that_cannot_be_read(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct stored out[20];
    uint64_t end;
    assert_int_equal(house_send(&h, 0, 20, out, &end), OK);
    house_must_send(&h, 20, 600);
    assert_true(store_confirmed(h.store) > HOUSE_LOG_FILE);
    house_flip(&h, "commitlog/00000000000000000000", (uint64_t)out[12].position + 5, 0x10);
    house_dispatch(&h);
    struct fault why = {0};
    assert_int_equal(store_state(h.store, &why), ERR_DAMAGED);
    assert_non_null(strstr(why.text, "position"));
    assert_true(store_dispatch_stuck(h.store));
    assert_int_equal(house_read_all(&h, NULL, 0), 12);
    assert_int_equal(house_send(&h, 620, 1, out, &end), ERR_READ_ONLY);
    house_clear(&h);
}

/* A failed sync stops appends for good, but what was confirmed before can still be brought to those
 * who read. */
static void a_failed_sync_does_not_make_it_stuck(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 0, 100);
    vfs_fault_plan(h.fault, 1, 1, ERR_IO);
    assert_int_equal(store_flush_all(h.store, NULL), ERR_IO);
    assert_int_equal(store_state(h.store, NULL), ERR_IO);
    assert_false(store_dispatch_stuck(h.store));
    house_dispatch(&h);
    assert_false(store_dispatch_stuck(h.store));
    assert_int_equal(house_read_all(&h, NULL, 0), 100);
    house_clear(&h);
}

/* What was just appended is dispatched from memory. With synchronous flush a part of that is not
 * confirmed yet: it stays unseen, and is there for the turn after the flush; and the log goes on
 * behind it meanwhile, over the end of a file. */
static void what_is_in_memory_waits_for_its_flush(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    h.options.sync_flush = true;
    house_must_open(&h);
    const struct window *taken = &h.store->derived.window;
    uint64_t sent = 0, in_memory = 0;
    while (store_confirmed(h.store) < 3 * HOUSE_LOG_FILE) {
        house_must_send(&h, sent, 7);
        (void)store_flush_turn(h.store);
        uint64_t confirmed = store_confirmed(h.store);
        house_must_send(&h, sent + 7, 5);
        house_dispatch(&h);
        in_memory += taken->len > 0 && taken->from + taken->len > confirmed;
        assert_int_equal(position_get(&h.store->positions.dispatched), confirmed);
        assert_int_equal(house_read_all(&h, NULL, 0), sent + 7);
        sent += 12;
    }
    assert_true(in_memory > 10);
    (void)store_flush_turn(h.store);
    house_dispatch(&h);
    assert_int_equal(house_read_all(&h, NULL, 0), sent);
    house_must_close(&h);
    house_clear(&h);
}

/* ---- threads ---- */

#define ROUNDS 2000
#define CROWD  3

struct rounds {
    struct house *h;
    pthread_barrier_t start, end;
    atomic_uint missed, number;
};

static void *append_and_dispatch(void *user)
{
    struct rounds *r = user;
    struct arrival *mine = calloc(ARRIVALS_MAX, sizeof *mine);
    struct message_room room;
    for (int i = 0; i < ROUNDS; i++) {
        struct draft d = house_message(r->h, atomic_fetch_add(&r->number, 1), &room);
        d.body = bytes_of(d.body.at, 8);
        d.body_crc = crc32_positive(d.body);
        struct stored out;
        uint64_t end;
        (void)pthread_barrier_wait(&r->start);
        invariant(store_append(r->h->store, &d, 1, &out, &end) == OK);
        while (store_dispatch_turn(r->h->store, mine) > 0)
            ;
        (void)pthread_barrier_wait(&r->end);
        if (position_get(&r->h->store->positions.dispatched) != store_confirmed(r->h->store))
            atomic_fetch_add(&r->missed, 1);
    }
    free(mine);
    return NULL;
}

/* All append and dispatch at the same moment, some thousand times: when everybody was told that
 * there is nothing more to do, nothing is left. */
static void nothing_is_left_when_everybody_has_returned(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct rounds r = {.h = &h};
    pthread_t threads[CROWD];
    assert_int_equal(pthread_barrier_init(&r.start, NULL, CROWD), 0);
    assert_int_equal(pthread_barrier_init(&r.end, NULL, CROWD), 0);
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, append_and_dispatch, &r), 0);
    for (size_t i = 0; i < CROWD; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&r.missed), 0);
    (void)pthread_barrier_destroy(&r.start);
    (void)pthread_barrier_destroy(&r.end);
    house_clear(&h);
}

/* A delayed message's unit has the time it is due in place of the tag's hash, by the ladder of this
 * store; whoever delivers finds the next one without touching the log. */
static void a_delayed_message_has_its_time_as_tag(void **state)
{
    (void)state;
    static const int64_t ladder[] = {700, 90000};
    static const struct {
        const char *topic, *props;
        int64_t by_default, by_ladder; /* behind the store time; 0: the tag counts */
    } cases[] = {
        {"SCHEDULE_TOPIC_XXXX", "DELAY\0011\2TAGS\1TagA\2", 1000, 700},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2DELAY\0012\2", 5000, 90000},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2DELAY\00118\2", 7200000, 90000},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2DELAY\001999\2", 7200000, 90000},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2DELAY\1-1\2", 0, 0},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2DELAY\1soon\2", 0, 0},
        {"SCHEDULE_TOPIC_XXXX", "TAGS\1TagA\2", 0, 0},
        {"Other", "TAGS\1TagA\2DELAY\0012\2", 0, 0}, /* it has been delivered */
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct house h;
        house_init(&h, 1);
        if (i % 2) {
            h.options.delays_ms = ladder;
            h.options.n_delays = 2;
        }
        house_must_open(&h);
        struct bytes topic = bytes_str(cases[i / 2].topic);
        struct draft d = {.queue = store_queue(h.store, topic, 1),
                          .topic = topic,
                          .queue_id = 1,
                          .props = bytes_str(cases[i / 2].props)};
        d.born_host.ip_len = d.store_host.ip_len = 4;
        struct stored out;
        uint64_t end;
        assert_int_equal(store_append(h.store, &d, 1, &out, &end), OK);
        house_dispatch(&h);
        struct unit unit;
        assert_int_equal(queue_unit_at(h.store, d.queue, 0, &unit, NULL), OK);
        int64_t delay = i % 2 ? cases[i / 2].by_ladder : cases[i / 2].by_default;
        assert_int_equal(unit.tags_code, delay ? out.store_ms + delay : tags_code(BYTES("TagA")));
        house_clear(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_which_queues_have_grown),
        cmocka_unit_test(a_delayed_message_has_its_time_as_tag),
        cmocka_unit_test(writes_once_for_each_queue),
        cmocka_unit_test(more_queues_than_one_turn_takes),
        cmocka_unit_test(goes_on_where_it_was_when_there_is_room_again),
        cmocka_unit_test(stops_at_a_log_that_cannot_be_read),
        cmocka_unit_test(a_failed_sync_does_not_make_it_stuck),
        cmocka_unit_test(what_is_in_memory_waits_for_its_flush),
        cmocka_unit_test(nothing_is_left_when_everybody_has_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
