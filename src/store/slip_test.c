/* slip_test.c - records that the dispatcher need not read. What it makes of them is compared with
 * the log by all tests of the store: two of three messages of theirs have slips. */
#include "store/test_house.h"

#include <stdlib.h>

static struct arrival news[ARRIVALS_MAX];

struct rig {
    struct house h;
    struct message_room *rooms;
    struct draft *drafts;
    struct stored *out;
};

#define MOST (SLIPS_MAX + 100)

static void rig_init(struct rig *r)
{
    house_init(&r->h, 1);
    r->h.options.index_slots = 1000;
    r->h.options.index_entries = 2 * MOST;
    house_must_open(&r->h);
    r->rooms = calloc(MOST, sizeof *r->rooms);
    r->drafts = calloc(MOST, sizeof *r->drafts);
    r->out = calloc(MOST, sizeof *r->out);
    assert_true(r->rooms && r->drafts && r->out);
}

static void rig_clear(struct rig *r)
{
    house_clear(&r->h);
    free(r->rooms);
    free(r->drafts);
    free(r->out);
}

/* Messages from..from+n-1, all with their marks. */
static enum err send_marked(struct rig *r, uint64_t from, size_t n)
{
    uint64_t end;
    for (size_t i = 0; i < n; i++) {
        r->drafts[i] = house_message(&r->h, from + i, &r->rooms[i]);
        r->drafts[i].marks = house_marks(&r->drafts[i]);
        assert_true(r->drafts[i].marks.known);
    }
    return store_append(r->h.store, r->drafts, n, r->out, &end);
}

static void must_send_marked(struct rig *r, uint64_t from, size_t n)
{
    assert_int_equal(send_marked(r, from, n), OK);
}

/* Everything can be read and found by its key, and a start from the log alone agrees. */
static void must_have(struct rig *r, uint64_t n)
{
    house_dispatch(&r->h);
    assert_int_equal(house_read_all(&r->h, NULL, 0), n);
    house_crash(&r->h);
    house_must_open(&r->h);
    assert_int_equal(house_read_all(&r->h, NULL, 0), n);
}

static void nothing_is_read_where_all_have_one(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    for (uint64_t n = 0; n < 1000; n += 100) {
        must_send_marked(&r, n, 100);
        assert_int_equal(r.h.store->slips.bare, 0);
        assert_true(store_dispatch_turn(r.h.store, news) > 0);
        assert_int_equal(r.h.store->derived.window.len, 0);
    }
    assert_int_equal(r.h.store->slips.taken, 1000);
    must_have(&r, 1000);
    rig_clear(&r);
}

/* Nobody dispatches, so the ring is full at last: what finds no place is read. Then it goes on. */
static void a_full_ring_loses_nothing(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    must_send_marked(&r, 0, 40);
    house_dispatch(&r.h); /* so that the ring does not begin at its start */
    must_send_marked(&r, 40, MOST);
    assert_int_equal(r.h.store->slips.put, 40 + SLIPS_MAX);
    assert_true(r.h.store->slips.bare > 0);
    house_dispatch(&r.h);
    must_send_marked(&r, 40 + MOST, 60);
    assert_int_equal(r.h.store->slips.put, 100 + SLIPS_MAX);
    must_have(&r, 100 + MOST);
    rig_clear(&r);
}

/* Other messages get the places of those whose write failed: their slips, if they were believed,
 * would lead into other queues. */
static void a_failed_append_leaves_none(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r);
    must_send_marked(&r, 0, 7);
    vfs_fault_plan(r.h.fault, 1, 1, ERR_IO);
    assert_int_not_equal(send_marked(&r, 7, 20), OK);
    assert_int_equal(r.h.store->slips.put, 7);
    house_must_send(&r.h, 7, 1); /* wipes what may be left; 7 has its marks */
    must_send_marked(&r, 8, 20);
    assert_int_equal(r.h.store->slips.put, 28);
    must_have(&r, 28);
    rig_clear(&r);
}

/* With more keys than a slip takes a message has none, and with as many it has. */
static void many_keys_are_read(void **state)
{
    (void)state;
    struct key_topic last = {0};
    struct marks marks = {.unique = BYTES("u"), .keys = BYTES("a  b c ")};
    struct draft_marks m;
    draft_marks_of(&last, BYTES("T"), &marks, &m);
    assert_true(m.known);
    assert_int_equal(m.n_keys, DRAFT_KEYS_MAX);
    marks.keys = BYTES("a b c d");
    draft_marks_of(&last, BYTES("T"), &marks, &m);
    assert_false(m.known);
    marks.unique = (struct bytes){0};
    draft_marks_of(&last, BYTES("T"), &marks, &m);
    assert_true(m.known);
    marks.keys = (struct bytes){0};
    draft_marks_of(&last, BYTES("T"), &marks, &m);
    assert_int_equal(m.n_keys, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_read_where_all_have_one),
        cmocka_unit_test(a_full_ring_loses_nothing),
        cmocka_unit_test(a_failed_append_leaves_none),
        cmocka_unit_test(many_keys_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
