#include "store/test_house.h"

#include "base/crc32.h"

#include <stdio.h>

/* Sends one message to the queue Q/0 with a given tag and size. */
static struct stored send_one(struct house *h, const char *tag, size_t body_size)
{
    static uint8_t body[4096];
    char props[64];
    int len = snprintf(props, sizeof props, "TAGS\1%s\2", tag);
    struct draft d = {
        .queue = store_queue(h->store, BYTES("Q"), 0),
        .topic = BYTES("Q"),
        .body = bytes_of(body, body_size),
        .props = bytes_of(props, (size_t)len),
        .born_host = {.ip_len = 4},
        .store_host = {.ip_len = 4},
    };
    d.body_crc = crc32_positive(d.body);
    struct stored out;
    uint64_t end;
    assert_int_equal(store_append(h->store, &d, 1, &out, &end), OK);
    assert_int_equal(out.err, OK);
    return out;
}

static struct read_result got;

/* Reads Q/0 and drops the slices; what is left are the numbers. */
static void read_q(struct house *h, struct read_request request)
{
    memset(&got, 0xee, sizeof got);
    store_read(h->store, store_queue(h->store, BYTES("Q"), 0), &request, &got);
    for (size_t i = 0; i < got.n_slices; i++)
        counted_drop(got.slices[i].owner);
}

static void check(enum read_status status, int64_t next, int64_t min, int64_t max, uint32_t count)
{
    assert_int_equal(got.status, status);
    assert_int_equal(got.next, next);
    assert_int_equal(got.min, min);
    assert_int_equal(got.max, max);
    assert_int_equal(got.count, count);
}

#define ALL 32, 1u << 20, NULL, NULL

/* Every row of the table of corrected offsets (remoting.md 14). */
static void tells_where_a_wrong_offset_should_go_on(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    read_q(&h, (struct read_request){0, ALL});
    check(READ_EMPTY, 0, 0, 0, 0);
    read_q(&h, (struct read_request){7, ALL});
    check(READ_EMPTY, 0, 0, 0, 0);

    for (int i = 0; i < 10; i++)
        (void)send_one(&h, "a", 10);
    read_q(&h, (struct read_request){0, ALL}); /* written, but not dispatched */
    check(READ_EMPTY, 0, 0, 0, 0);
    house_dispatch(&h);
    read_q(&h, (struct read_request){-1, ALL});
    check(READ_TOO_SMALL, 0, 0, 10, 0);
    read_q(&h, (struct read_request){10, ALL});
    check(READ_AT_END, 10, 0, 10, 0);
    read_q(&h, (struct read_request){11, ALL});
    check(READ_TOO_LARGE, 10, 0, 10, 0);
    read_q(&h, (struct read_request){9, ALL});
    check(READ_FOUND, 10, 0, 10, 1);
    read_q(&h, (struct read_request){0, ALL});
    check(READ_FOUND, 10, 0, 10, 10);
    house_clear(&h);
}

/* Neighbours in the log are one slice; count and bytes bound the answer, but the first always
 * comes. */
static void bounds_an_answer_by_count_and_bytes(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    uint32_t size = 0;
    for (int i = 0; i < 20; i++)
        size = send_one(&h, "a", 1000).size;
    house_dispatch(&h);

    read_q(&h, (struct read_request){0, 5, 1u << 20, NULL, NULL});
    check(READ_FOUND, 5, 0, 20, 5);
    assert_int_equal(got.n_slices, 1);
    assert_int_equal(got.size, 5 * size);
    assert_int_equal(got.slices[0].bytes.len, 5 * size);
    read_q(&h, (struct read_request){0, 32, 3 * size, NULL, NULL});
    check(READ_FOUND, 3, 0, 20, 3);
    read_q(&h, (struct read_request){0, 32, 3 * size - 1, NULL, NULL});
    check(READ_FOUND, 2, 0, 20, 2);
    read_q(&h, (struct read_request){0, 32, 1, NULL, NULL});
    check(READ_FOUND, 1, 0, 20, 1);
    read_q(&h, (struct read_request){0, 0, 1, NULL, NULL});
    check(READ_NONE_MATCHED, 0, 0, 20, 0);
    house_clear(&h);
}

static bool wants_code(void *user, int64_t tags_code_of_unit)
{
    int64_t wanted;
    memcpy(&wanted, user, sizeof wanted);
    return tags_code_of_unit == wanted;
}

/* What a filter of properties was shown. */
struct shown {
    const char *wanted; /* as text of the whole properties */
    int count;
};

static bool wants_text(void *user, struct bytes props)
{
    struct shown *shown = user;
    shown->count++;
    return bytes_equal(props, bytes_str(shown->wanted));
}

/* Asked only about what the tag let through, and no further than the answer goes. */
static void filters_by_properties_in_the_log(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    static const char *const tags[] = {"a", "b", "a", "c", "b", "a"};
    for (int i = 0; i < 6; i++)
        (void)send_one(&h, tags[i], 10);
    house_dispatch(&h);

    struct shown shown = {.wanted = "TAGS\1a\2"};
    struct read_request request = {0, 32, 1u << 20, NULL, &shown, wants_text};
    read_q(&h, request);
    check(READ_FOUND, 6, 0, 6, 3);
    assert_int_equal(shown.count, 6);
    assert_int_equal(got.n_slices, 3); /* what stands between them is not sent */

    shown.count = 0;
    request.max_count = 2;
    read_q(&h, request);
    check(READ_FOUND, 3, 0, 6, 2);
    assert_int_equal(shown.count, 3);

    shown.wanted = "nothing";
    read_q(&h, request);
    check(READ_NONE_MATCHED, 6, 0, 6, 0);
    house_clear(&h);
}

/* The filter sees so many units, and so many bytes of properties, in one read. */
static void bounds_what_a_filter_is_shown(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    for (int i = 0; i < 1000; i++)
        (void)send_one(&h, "a", 10);
    house_dispatch(&h);
    struct shown shown = {.wanted = "nothing"};
    struct read_request request = {0, 32, 1u << 20, NULL, &shown, wants_text};
    read_q(&h, request);
    check(READ_NONE_MATCHED, 800, 0, 1000, 0);
    assert_int_equal(shown.count, 800);
    request.offset = 800;
    read_q(&h, request);
    check(READ_NONE_MATCHED, 1000, 0, 1000, 0);

    enum { SIZE = 30000 };
    static uint8_t props[SIZE];
    memset(props, 'x', sizeof props);
    struct draft d = {
        .queue = store_queue(h.store, BYTES("Q"), 0),
        .topic = BYTES("Q"),
        .body = BYTES("b"),
        .props = bytes_of(props, sizeof props),
        .born_host = {.ip_len = 4},
        .store_host = {.ip_len = 4},
    };
    d.body_crc = crc32_positive(d.body);
    for (int i = 0; i < 60; i++) {
        struct stored out;
        uint64_t end;
        assert_int_equal(store_append(h.store, &d, 1, &out, &end), OK);
        assert_int_equal(out.err, OK);
    }
    house_dispatch(&h);
    int once = (1 << 20) / SIZE + 1;
    shown.count = 0;
    request.offset = 1000;
    read_q(&h, request);
    check(READ_NONE_MATCHED, 1000 + once, 0, 1060, 0);
    assert_int_equal(shown.count, once);
    request.offset = 1000 + once;
    read_q(&h, request);
    check(READ_NONE_MATCHED, 1060, 0, 1060, 0);
    house_clear(&h);
}

/* The filter sees the unit's tag hash only. An answer stops after a bounded number of units,
 * wherever it is, and says where to go on. */
static void filters_by_tag_in_the_queue(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    for (int i = 0; i < 3000; i++)
        (void)send_one(&h, i % 1000 == 999 ? "rare" : "often", 10);
    house_dispatch(&h);
    int64_t rare = tags_code(BYTES("rare")), none = tags_code(BYTES("none"));

    read_q(&h, (struct read_request){0, 32, 1u << 20, wants_code, &rare});
    check(READ_NONE_MATCHED, 800, 0, 3000, 0);
    read_q(&h, (struct read_request){800, 32, 1u << 20, wants_code, &rare});
    check(READ_FOUND, 1600, 0, 3000, 1);
    read_q(&h, (struct read_request){999, 32, 1u << 20, wants_code, &rare});
    check(READ_FOUND, 1799, 0, 3000, 1);
    read_q(&h, (struct read_request){2900, 32, 1u << 20, wants_code, &none});
    check(READ_NONE_MATCHED, 3000, 0, 3000, 0);

    /* every other one: each is a slice of its own */
    int64_t often = tags_code(BYTES("often"));
    read_q(&h, (struct read_request){0, 32, 1u << 20, wants_code, &often});
    check(READ_FOUND, 32, 0, 3000, 32);
    assert_int_equal(got.n_slices, 1);
    for (int i = 0; i < 300; i++)
        (void)send_one(&h, i % 2 ? "odd" : "even", 10);
    house_dispatch(&h);
    int64_t odd = tags_code(BYTES("odd"));
    read_q(&h, (struct read_request){3000, 1000, 1u << 20, wants_code, &odd});
    check(READ_FOUND, 3000 + 2 * READ_SLICES_MAX + 1, 0, 3300, READ_SLICES_MAX);
    assert_int_equal(got.n_slices, READ_SLICES_MAX);
    house_clear(&h);
}

/* A slice outlives everything but the vfs: its file is out of the cache, the store is closed. */
static void a_slice_keeps_its_file(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    house_must_send(&h, 5, 1);
    struct slice slice;
    assert_int_equal(store_read_at(h.store, 0, &slice), OK);
    house_must_close(&h);
    struct record r;
    assert_int_equal(record_decode(slice.bytes, &r), OK);
    assert_int_equal(message_check(&r), 5);
    counted_drop(slice.owner);
    house_clear(&h);
}

static void reads_by_position_only_what_is_a_record(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct stored out[200];
    uint64_t end;
    assert_int_equal(house_send(&h, 0, 200, out, &end), OK);
    struct slice slice;
    assert_int_equal(store_read_at(h.store, -1, &slice), ERR_NOT_FOUND);
    assert_int_equal(store_read_at(h.store, (int64_t)end, &slice), ERR_NOT_FOUND);
    assert_int_equal(store_read_at(h.store, INT64_MAX, &slice), ERR_NOT_FOUND);
    assert_int_equal(store_read_at(h.store, out[3].position + 1, &slice), ERR_DAMAGED);
    for (int64_t at = 0; at < 3000; at++) { /* any position a stranger may ask for */
        enum err err = store_read_at(h.store, at, &slice);
        assert_true(err == OK || err == ERR_DAMAGED);
        if (!err)
            counted_drop(slice.owner);
    }
    house_flip(&h, "commitlog/00000000000000000000", (uint64_t)out[1].position + 92, 1);
    assert_int_equal(store_read_at(h.store, out[1].position, &slice), ERR_DAMAGED);
    house_clear(&h);
}

/* A unit whose record is not there is passed over; the reader is never stuck and never gets
 * rubbish. */
static void passes_over_units_without_a_record(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    for (int i = 0; i < 250; i++)
        (void)send_one(&h, "a", 10);
    house_dispatch(&h);
    house_flip(&h, "consumequeue/Q/0/00000000000000000000", 3 * UNIT_SIZE + 3,
               0x40); /* position far away */
    house_flip(&h, "consumequeue/Q/0/00000000000000000000", 5 * UNIT_SIZE + 7,
               0x01); /* position by one */
    house_flip(&h, "consumequeue/Q/0/00000000000000000000", 7 * UNIT_SIZE + 11,
               0x01); /* size by one */
    read_q(&h, (struct read_request){0, ALL});
    check(READ_FOUND, 35, 0, 250, 32);
    read_q(&h, (struct read_request){3, 1, 1, NULL, NULL});
    check(READ_FOUND, 5, 0, 250, 1);

    house_remove(&h, "consumequeue/Q/0/00000000000000002000");
    store_abandon(take(&h.store)); /* so that it is not open any more */
    house_must_open(&h);           /* and is built again */
    read_q(&h, (struct read_request){100, ALL});
    check(READ_FOUND, 132, 0, 250, 32);
    house_remove(&h, "consumequeue/Q/0/00000000000000002000");
    cache_forget(&h.store->cache, &store_queue(h.store, BYTES("Q"), 0)->files, 2000);
    read_q(&h, (struct read_request){100, ALL}); /* gone while we run: go on in the next file */
    check(READ_GONE, 200, 0, 250, 0);
    read_q(&h, (struct read_request){99, ALL});
    check(READ_FOUND, 100, 0, 250, 1);
    house_clear(&h);
}

/* No memory, no file handle: the reader gets nothing, and is not sent past what it has not seen. */
static void a_read_that_fails_stays_where_it_is(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    (void)send_one(&h, "a", 10);
    house_must_close(&h);
    house_must_open(&h);
    for (unsigned long at = 1;; at++) {
        cache_forget(&h.store->cache, &store_queue(h.store, BYTES("Q"), 0)->files, 0);
        cache_forget(&h.store->cache, &h.store->log, 0);
        vfs_fault_plan(h.fault, at, 1, ERR_IO);
        read_q(&h, (struct read_request){0, ALL});
        vfs_fault_plan(h.fault, 0, 0, OK);
        if (got.status == READ_FOUND)
            break;
        check(READ_NONE_MATCHED, 0, 0, 1, 0);
        assert_true(at < 20);
    }
    house_clear(&h);
}

/* Five messages a second, times with gaps and repeats. */
static void finds_offsets_by_store_time(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    struct queue *queue = store_queue(h.store, BYTES("Q"), 0);
    assert_int_equal(queue_search_time(h.store, queue, 0), 0);
    assert_int_equal(queue_store_time(h.store, queue, 0), -1);
    int64_t start = clock_ms(&h.clock.clock);
    for (int i = 0; i < 300; i++) {
        (void)send_one(&h, "a", 10);
        if (i % 5 == 4)
            clock_manual_advance(&h.clock, 1000);
    }
    house_dispatch(&h);
    assert_int_equal(queue_search_time(h.store, queue, 0), 0);
    assert_int_equal(queue_search_time(h.store, queue, start), 0);
    assert_int_equal(queue_search_time(h.store, queue, start + 1), 5);
    assert_int_equal(queue_search_time(h.store, queue, start + 1000), 5);
    assert_int_equal(queue_search_time(h.store, queue, start + 30500), 155);
    assert_int_equal(queue_search_time(h.store, queue, start + 59000), 295);
    assert_int_equal(queue_search_time(h.store, queue, start + 59001), 300);
    assert_int_equal(queue_store_time(h.store, queue, 0), start);
    assert_int_equal(queue_store_time(h.store, queue, 299), start + 59000);
    assert_int_equal(queue_store_time(h.store, queue, 300), -1);
    assert_int_equal(queue_store_time(h.store, queue, -1), -1);
    house_clear(&h);
}

static size_t mapped(struct queue *queue)
{
    size_t n = 0;
    list_each(k, &queue->files.open)
        n += atomic_load(&list_entry(k, struct segment, by_set)->map) != NULL;
    return n;
}

/* The queue's file is read at first and mapped when it has been used often: every piece of it is
 * the same either way, over its end and the shelf behind it. */
static void reads_and_maps_the_same_units(void **state)
{
    (void)state;
    struct house h;
    house_init(&h, 1);
    house_must_open(&h);
    enum { N = 230 }; /* two files of 100 units and a bit */
    for (int i = 0; i < N; i++)
        (void)send_one(&h, "a", 10);
    house_dispatch(&h);
    assert_int_equal(shelves_file(h.store, NULL), OK);
    for (int i = 0; i < 5; i++)
        (void)send_one(&h, "a", 10);
    house_dispatch(&h);
    struct queue *queue = store_queue(h.store, BYTES("Q"), 0);
    assert_int_equal(mapped(queue), 0);
    for (int round = 0; round < 2 * HOT_USES; round++) {
        for (int64_t at = 0; at < N + 5; at += 32) {
            uint32_t n = N + 5 - at < 32 ? (uint32_t)(N + 5 - at) : 32;
            read_q(&h, (struct read_request){at, ALL});
            check(READ_FOUND, at + n, 0, N + 5, n);
        }
    }
    assert_int_equal(mapped(queue), 3); /* all of them */
    size_t hot = h.store->cache.n_hot;
    assert_int_equal(fileset_remove(&h.store->cache, &queue->files, NULL), OK);
    assert_int_equal(h.store->cache.n_hot, hot - 3);
    house_clear(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_where_a_wrong_offset_should_go_on),
        cmocka_unit_test(bounds_an_answer_by_count_and_bytes),
        cmocka_unit_test(filters_by_properties_in_the_log),
        cmocka_unit_test(bounds_what_a_filter_is_shown),
        cmocka_unit_test(filters_by_tag_in_the_queue),
        cmocka_unit_test(a_slice_keeps_its_file),
        cmocka_unit_test(reads_by_position_only_what_is_a_record),
        cmocka_unit_test(passes_over_units_without_a_record),
        cmocka_unit_test(a_read_that_fails_stays_where_it_is),
        cmocka_unit_test(finds_offsets_by_store_time),
        cmocka_unit_test(reads_and_maps_the_same_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
