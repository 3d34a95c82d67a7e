/* sql_places_test.h - what must be true of places in queues, on every SQL store.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef ONCE_SQL_PLACES_TEST_H
#define ONCE_SQL_PLACES_TEST_H

#include "once/sql_rig_test.h"

static struct place place_of(int queue, int64_t epoch, int64_t offset, int64_t floor)
{
    struct op op = op_of(OP_LOOK, queue, 1);
    struct place place = {.name = "t/b/0", .epoch = epoch, .offset = offset, .floor = floor};
    memcpy(place.id, op.id, sizeof place.id);
    return place;
}

static int64_t take_queue(struct conn *conn, int queue, int64_t first, int64_t *start)
{
    struct fault why = {0};
    struct place place = place_of(queue, 0, first, 0);
    if (sql_place_take(conn, &place, &why))
        fail_msg("%s", why.text);
    *start = place.offset;
    return place.epoch;
}

/* In a transaction of its own. `keep` false: it is rolled back. */
static enum op_outcome mark_place(struct conn *conn, struct place place, bool keep)
{
    struct fault why = {0};
    enum op_outcome outcome = OUT_NONE;
    if (sql_begin(conn, NULL, &why))
        fail_msg("%s", why.text);
    enum err err = sql_place_mark(conn, &place, &outcome, &why);
    if (err && err != ERR_BUSY)
        fail_msg("%s", why.text);
    if (err)
        outcome = OUT_BUSY;
    if (outcome == OUT_OK && keep)
        assert_int_equal(sql_commit(conn, NULL), OK);
    else
        sql_rollback(conn);
    return outcome;
}

static void the_next_offset_is_the_first_that_is_not_done(void **state)
{
    struct rig rig;
    rig_open(&rig);
    int64_t start, epoch = take_queue(rig.conn, 1, 100, &start);
    assert_int_equal(start, 100);
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 102, 0), true), OUT_OK);
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 101, 0), true), OUT_OK);
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 101, 0), true), OUT_DONE);
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 99, 0), true), OUT_DONE);
    assert_int_equal(rig_number(&rig, "SELECT next FROM {places}"), 100); /* the gap counts */
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 100, 0), false), OUT_OK);
    assert_int_equal(rig_number(&rig, "SELECT next FROM {places}"), 100); /* rolled back */
    assert_int_equal(mark_place(rig.conn, place_of(1, epoch, 100, 0), true), OUT_OK);
    epoch = take_queue(rig.conn, 1, 5, &start);
    assert_int_equal(start, 103);
    rig_disconnect(&rig);
}

static void a_former_owner_of_a_queue_commits_nothing(void **state)
{
    struct rig rig;
    rig_open(&rig);
    int64_t start, old = take_queue(rig.conn, 1, 0, &start);
    assert_int_equal(mark_place(rig.conn, place_of(1, old, 0, 0), true), OUT_OK);
    int64_t new = take_queue(rig.other, 1, 0, &start);
    assert_true(new > old);
    assert_int_equal(start, 1);
    assert_int_equal(mark_place(rig.conn, place_of(1, old, 1, 0), true), OUT_LOST);
    assert_int_equal(mark_place(rig.conn, place_of(2, old, 1, 0), true), OUT_LOST); /* nobody's */
    assert_int_equal(mark_place(rig.other, place_of(1, new, 1, 0), true), OUT_OK);

    enum op_outcome outcome;
    struct place place = place_of(1, old, 1, 0);
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, NULL), OK);
    assert_int_equal(outcome, OUT_LOST);
    place = place_of(1, new, 1, 0);
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, NULL), OK);
    assert_int_equal(outcome, OUT_DONE);
    place = place_of(1, new, 2, 0);
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, NULL), OK);
    assert_int_equal(outcome, OUT_OK);
    assert_int_equal(mark_place(rig.other, place, true), OUT_OK); /* a look changed nothing */
    rig_disconnect(&rig);
}

/* Even one whose row was deleted: the next owner's epoch is none that ever was. */
static void an_epoch_never_comes_back(void **state)
{
    struct rig rig;
    rig_open(&rig);
    int64_t start, epoch = take_queue(rig.conn, 1, 0, &start);
    for (int i = 0; i < 20; i++) {
        int64_t next = take_queue(i % 2 ? rig.conn : rig.other, 1, 0, &start);
        assert_true(next > epoch);
        epoch = next;
    }
    (void)rig_exec(&rig, "UPDATE {places} SET epoch = 1");
    assert_true(take_queue(rig.conn, 1, 0, &start) > epoch - 30);
    rig_disconnect(&rig);
}

static void offsets_that_cannot_be_are_refused(void **state)
{
    struct rig rig;
    rig_open(&rig);
    int64_t start, epoch = take_queue(rig.conn, 1, 10, &start);
    enum op_outcome outcome = OUT_NONE;
    struct fault why = {0};
    struct place place = place_of(1, epoch, -1, 0);
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, &why), ERR_INVALID);
    place.offset = INT64_MAX;
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, &why), ERR_INVALID);
    assert_int_equal(sql_place_take(rig.conn, &place, &why), ERR_INVALID);
    place.offset = 10 + 4096; /* too far ahead of one that is not done */
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, &why), ERR_BUSY);
    assert_non_null(strstr(why.text, "4106"));
    assert_int_equal(mark_place(rig.conn, place, true), OUT_BUSY);
    place.floor = 11; /* unless that one never comes */
    assert_int_equal(mark_place(rig.conn, place, true), OUT_OK);
    place.offset = 50;
    place.floor = INT64_MAX; /* a message that is here has come, whatever the floor */
    assert_int_equal(mark_place(rig.conn, place, true), OUT_OK);
    assert_int_equal(rig_number(&rig, "SELECT next FROM {places}"), 51);
    (void)rig_exec(&rig, "UPDATE {places} SET next = -5");
    assert_int_equal(sql_place_look(rig.conn, &place, &outcome, &why), ERR_DAMAGED);
    rig_disconnect(&rig);
}

/* Any order of marks, roll-backs, restarts and changes of owner, beside a list of what was done. */
static void places_are_those_of_a_list(void **state)
{
    enum { SPAN = 300 };
    struct rig rig;
    rig_open(&rig);
    struct dice dice = test_dice();
    bool done[SPAN] = {false};
    int64_t start, old = 0, epoch = take_queue(rig.conn, 1, 0, &start), first = 0;
    struct conn *owner = rig.conn;
    for (int i = 0; i < 700; i++) {
        int64_t offset = first + (int64_t)dice_below(&dice, 40);
        if (offset >= SPAN)
            offset = SPAN - 1;
        uint64_t chance = dice_below(&dice, 20);
        if (chance == 0) {
            old = epoch;
            owner = owner == rig.conn ? rig.other : rig.conn;
            epoch = take_queue(owner, 1, 0, &start);
            assert_int_equal(start, first);
        } else if (chance == 1 && old) {
            assert_int_equal(mark_place(rig.conn, place_of(1, old, offset, 0), true), OUT_LOST);
        } else {
            bool keep = dice_below(&dice, 4) > 0;
            int64_t floor = dice_below(&dice, 30) == 0 && offset < first + 3 ? offset : 0;
            enum op_outcome got = mark_place(owner, place_of(1, epoch, offset, floor), keep);
            bool was = offset < first || done[offset];
            assert_int_equal(got, was ? OUT_DONE : OUT_OK);
            if (was || !keep)
                continue;
            for (int64_t o = 0; o < floor; o++)
                done[o] = true;
            done[offset] = true;
        }
        while (first < SPAN && done[first])
            first++;
        assert_int_equal(rig_number(&rig, "SELECT next FROM {places}"), first);
        if (first == SPAN)
            break;
    }
    rig_disconnect(&rig);
}

#define SQL_PLACE_CASES                                                                            \
    test_of_row("H-29", the_next_offset_is_the_first_that_is_not_done),                            \
        test_of_row("H-29", a_former_owner_of_a_queue_commits_nothing),                            \
        cmocka_unit_test(an_epoch_never_comes_back),                                               \
        cmocka_unit_test(offsets_that_cannot_be_are_refused),                                      \
        test_of_row("H-29", places_are_those_of_a_list)

#endif
