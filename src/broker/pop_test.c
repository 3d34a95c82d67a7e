/* POP: messages are handed out for a time, to one at a time, until they are acknowledged. */
#include "broker/pop_test.h"
#include "base/crc32.h"
#include "broker/crash_test.h"
#include "broker/disk_test.h"

static void send_some(struct popper *p, int n)
{
    char body[16];
    for (int i = 0; i < n; i++) {
        snprintf(body, sizeof body, "%d", i);
        send_to(p, i % 4, body);
    }
}

/* Ten messages in four queues: one consumer gets some, the other the rest, nobody anything twice.
 */
static void each_message_goes_to_one(void **state)
{
    struct popper *p = *state;
    send_some(p, 10);
    assert_int_equal(pop_count(p, "g", "T", 4, 60000), 4);
    struct held first[POP_MAX];
    memcpy(first, p->held, sizeof first);
    assert_int_equal(p->got.rest, 6);
    assert_int_equal(pop_count(p, "g", "T", 32, 60000), 6);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++)
            assert_string_not_equal(p->held[i].body, first[k].body);
    assert_int_equal(pop_count(p, "g", "T", 32, 60000), 0);
    assert_int_equal(pop_count(p, "other", "T", 32, 60000), 10);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 20);
}

static void what_is_acknowledged_does_not_come_again(void **state)
{
    struct popper *p = *state;
    send_some(p, 8);
    clock_manual_advance(&p->rig->clock, 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pop_ack(p, "g", &p->held[i]), OK);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK); /* its answer got lost */
    struct broker_numbers n = pop_numbers_of(p->rig);
    assert_int_equal(n.pop_in_flight, 0);
    assert_int_equal(n.pop_marks, 0);
    assert_int_equal(n.pop_acked, 8);
    clock_manual_advance(&p->rig->clock, 60000);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 0);
}

/* One of three is acknowledged. The other two come again through the retry topic, one try older,
 * with all that they had; and not before their time. */
static void what_is_not_acknowledged_comes_again(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 3; i++)
        rig_send(p->rig, "T", "A", i == 0 ? "a" : i == 1 ? "b" : "c");
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 3);
    int64_t popped_ms = p->got.pop_ms;
    assert_int_equal(pop_ack(p, "g", &p->held[1]), OK);
    clock_manual_advance(&p->rig->clock, 9999);
    assert_int_equal(pop_turn(p->rig), 0);
    clock_manual_advance(&p->rig->clock, 1);
    assert_int_equal(pop_turn(p->rig), 2);
    assert_int_equal(pop_numbers_of(p->rig).pop_revived, 2);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 0);

    struct slice slice;
    struct record first = later_record(p->rig, "%RETRY%g_T", 0, 0, &slice);
    char props[1024], want[64];
    snprintf(want, sizeof want, "1ST_POP_TIME=%lld ", (long long)popped_ms);
    later_props(first.props, props);
    assert_memory_equal(props, want, strlen(want));
    assert_non_null(strstr(props, "TAGS=A"));
    assert_non_null(strstr(props, "UNIQ_KEY="));
    assert_int_equal(first.reconsume_times, 1);
    counted_drop(slice.owner);

    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 2);
    assert_string_equal(p->held[0].body, "a");
    assert_string_equal(p->held[1].body, "c");
    assert_string_equal(p->held[0].topic, "%RETRY%g_T");
    assert_int_equal(p->held[0].tries, 1);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
    assert_int_equal(pop_ack(p, "g", &p->held[1]), OK);
    clock_manual_advance(&p->rig->clock, 60000);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_count(p, "other", "T", 32, 10000), 3); /* nobody else's business */
}

static void tries_end_in_the_dead_letters(void **state)
{
    struct popper *p = *state;
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_max = 2;
    rig_group_put(p->rig, &set);
    rig_send(p->rig, "T", "A", "x");
    for (int tries = 0; tries < 3; tries++) {
        assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
        assert_int_equal(p->held[0].tries, tries);
        clock_manual_advance(&p->rig->clock, 1000);
        assert_int_equal(pop_turn(p->rig), 1);
    }
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 0);
    assert_int_equal(pop_numbers_of(p->rig).pop_dead, 1);
    struct slice slice;
    struct record dead = later_record(p->rig, "%DLQ%g", 0, 0, &slice);
    assert_bytes_equal(dead.body, BYTES("x"));
    assert_int_equal(dead.reconsume_times, 3);
    assert_bytes_equal(later_prop(dead.props, "DLQ_ORIGIN_TOPIC"), BYTES("T"));
    counted_drop(slice.owner);
}

/* Longer and shorter than at first; the old handle is worth nothing then. */
static void the_time_can_be_changed(void **state)
{
    struct popper *p = *state;
    send_some(p, 2);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 2);
    struct held longer = p->held[0], shorter = p->held[1], old = p->held[0];
    assert_int_equal(pop_retime(p, "g", &longer, 60000), OK);
    assert_int_equal(pop_retime(p, "g", &longer, 60000), OK); /* in the same millisecond */
    assert_int_equal(pop_retime(p, "g", &shorter, 1000), OK);
    assert_int_equal(pop_retime(p, "g", &old, 1000), ERR_NOT_FOUND);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 2);
    clock_manual_advance(&p->rig->clock, 1001);
    assert_int_equal(pop_turn(p->rig), 1);
    clock_manual_advance(&p->rig->clock, 30000);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_ack(p, "g", &longer), OK);
    assert_int_equal(pop_ack(p, "g", &shorter), ERR_NOT_FOUND);
    clock_manual_advance(&p->rig->clock, 60000);
    assert_int_equal(pop_turn(p->rig), 0);
}

static void a_time_of_nothing_brings_it_back_at_once(void **state)
{
    struct popper *p = *state;
    send_some(p, 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 1);
    assert_int_equal(pop_retime(p, "g", &p->held[0], 0), OK);
    clock_manual_advance(&p->rig->clock, 1); /* two in one millisecond would be taken for one */
    assert_int_equal(pop_turn(p->rig), 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 1);
    assert_int_equal(p->held[0].tries, 1);
}

static void bad_numbers_are_refused(void **state)
{
    struct popper *p = *state;
    send_some(p, 1);
    struct pop pop = pop_wish("g", "T", 32, 10000);
    const int64_t times[] = {0, -1, INT64_MIN, INT64_C(366) * 24 * 3600 * 1000, INT64_MAX};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        pop.invisible_ms = times[i];
        assert_int_equal(pop_now(p, &pop), ERR_INVALID);
    }
    pop = pop_wish("g", "T", 33, 10000);
    assert_int_equal(pop_now(p, &pop), ERR_INVALID);
    pop = pop_wish("g", "T", 32, 10000);
    pop.queue_id = 4;
    assert_int_equal(pop_now(p, &pop), ERR_INVALID);
    pop = pop_wish("g", "nowhere", 32, 10000);
    assert_int_equal(pop_now(p, &pop), ERR_UNKNOWN_TOPIC);
    pop = pop_wish("g g", "T", 32, 10000);
    assert_int_equal(pop_now(p, &pop), ERR_UNKNOWN_GROUP);
    pop = pop_wish("g", "T", 32, 10000);
    pop.has_expression = true;
    pop.expression = BYTES("a = ");
    pop.expression_type = BYTES("SQL92");
    assert_int_equal(pop_now(p, &pop), ERR_MALFORMED);

    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 1);
    for (size_t i = 1; i < sizeof times / sizeof *times; i++)
        assert_int_equal(pop_retime(p, "g", &p->held[0], times[i]), ERR_MALFORMED);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
}

static void forged_handles_do_nothing(void **state)
{
    struct popper *p = *state;
    send_some(p, 4);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 4);
    const struct held good = p->held[0];
    struct held bad = good;
    bad.queue_id = 4;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_INVALID);
    bad.queue_id = -1;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_INVALID);
    bad = good;
    bad.offset = 17;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_RANGE);
    assert_int_equal(pop_retime(p, "g", &bad, 1000), ERR_RANGE);
    bad = good;
    bad.handle.pop_ms = START_MS + 1000000;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_NOT_FOUND);
    bad = good;
    bad.handle.pop_ms = START_MS - 1;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_NOT_FOUND);
    assert_int_equal(pop_retime(p, "g", &bad, 1000), ERR_NOT_FOUND);
    assert_int_equal(pop_ack(p, "somebody", &bad), ERR_NOT_FOUND);
    bad = good;
    bad.handle.start = INT64_MAX;
    bad.handle.invisible_ms = INT64_MAX;
    assert_int_equal(pop_ack(p, "g", &bad), ERR_NOT_FOUND);
    bad = good;
    bad.handle.revive_id = POP_ORDERED;
    assert_int_equal(pop_ack(p, "g", &bad), OK); /* behind the group already, and nothing happens */
    assert_int_equal(pop_retime(p, "g", &bad, 1000), ERR_NOT_FOUND);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 4);
    clock_manual_advance(&p->rig->clock, 10000);
    assert_int_equal(pop_turn(p->rig), 4);
    assert_int_equal(pop_ack(p, "g", &good), ERR_NOT_FOUND); /* too late */
}

/* One record for all acknowledgements of a mark in one turn, and one for a whole batch. */
static void acknowledgements_of_a_turn_share_a_record(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 32; i++)
        send_to(p, 0, "x");
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 32);
    struct ack acks[32];
    for (int i = 0; i < 32; i++)
        acks[i] = (struct ack){.group = BYTES("g"),
                               .topic = BYTES("T"),
                               .handle = p->held[i].handle,
                               .n = 1,
                               .offsets = &p->held[i].offset};
    int32_t revive_id = p->got.revive_id;
    broker_dispatch_turn(p->rig->broker);
    int64_t before = later_count(p->rig, "rmq_sys_REVIVE_LOG_DefaultCluster", revive_id);
    assert_int_equal(before, 1);
    uint64_t end;
    broker_ack(p->rig->broker, p->desk, acks, 32, &end);
    broker_dispatch_turn(p->rig->broker);
    for (int i = 0; i < 32; i++)
        assert_int_equal(acks[i].err, OK);
    assert_int_equal(later_count(p->rig, "rmq_sys_REVIVE_LOG_DefaultCluster", revive_id), 2);
    assert_int_equal(pop_numbers_of(p->rig).pop_marks, 0);
}

/* Witness: PopCheckPoint, AckMsg and BatchAckMsg as an Apache broker wrote them. */
static void records_are_as_apache_reads_them(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 3; i++)
        send_to(p, 1, "x");
    assert_int_equal(pop_count(p, "g", "T", 32, 60000), 3);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
    struct ack rest = {.group = BYTES("g"),
                       .topic = BYTES("T"),
                       .queue_id = 1,
                       .handle = p->held[0].handle,
                       .n = 2,
                       .offsets = (int64_t[]){1, 2}};
    uint64_t end;
    broker_ack(p->rig->broker, p->desk, &rest, 1, &end);
    broker_dispatch_turn(p->rig->broker);
    static const char *const bodies[] = {
        "{\"bm\":0,\"bn\":\"broker-a\",\"c\":\"g\",\"d\":[0,1,2],\"it\":60000,\"n\":3,"
        "\"pt\":1700000000000,\"q\":1,\"reviveTime\":1700000060000,\"ro\":0,\"so\":0,\"t\":\"T\"}",
        "{\"ao\":0,\"bn\":\"broker-a\",\"c\":\"g\",\"pt\":1700000000000,\"q\":1,\"so\":0,"
        "\"t\":\"T\"}",
        "{\"ao\":-1,\"aol\":[1,2],\"bn\":\"broker-a\",\"c\":\"g\",\"pt\":1700000000000,\"q\":1,"
        "\"so\":0,\"t\":\"T\"}"};
    static const char *const tags[] = {"ck", "ack", "bAck"};
    for (int i = 0; i < 3; i++) {
        struct slice slice;
        struct record r =
            later_record(p->rig, "rmq_sys_REVIVE_LOG_DefaultCluster", p->got.revive_id, i, &slice);
        assert_bytes_equal(r.body, bytes_str(bodies[i]));
        assert_bytes_equal(later_prop(r.props, "TAGS"), bytes_str(tags[i]));
        assert_bytes_equal(later_prop(r.props, "TIMER_DELIVER_MS"), BYTES("1700000000000"));
        counted_drop(slice.owner);
    }
}

/* A filter: what does not pass is passed over, and what comes again is not filtered again. */
static void only_what_was_asked_for_is_handed_out(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 6; i++)
        rig_send(p->rig, "T", i % 2 ? "A" : "B", i % 2 ? "a" : "b");
    struct pop pop = pop_wish("g", "T", 32, 1000);
    pop.has_expression = true;
    pop.expression = BYTES("A");
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(p->held[i].offset, 2 * i + 1);
    assert_int_equal(pop_ack(p, "g", &p->held[1]), OK);
    clock_manual_advance(&p->rig->clock, 1000);
    assert_int_equal(pop_turn(p->rig), 2);
    pop.expression = BYTES("B");
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 2);
    assert_string_equal(p->held[0].body, "a");
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 6);
}

/* A new group begins with the first message there is, or, if it asks for the end and the log has
 * grown a lot since, with the last. */
static void a_new_group_begins_where_it_wants(void **state)
{
    struct popper *p = *state;
    p->rig->options.recent_bytes = 1;
    rig_again(p->rig);
    for (int i = 0; i < 5; i++)
        rig_send(p->rig, "T", "", "x");
    struct pop pop = pop_wish("late", "T", 32, 1000);
    pop.from_max = true;
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 1);
    assert_int_equal(p->held[0].offset, 4);
    assert_int_equal(pop_count(p, "early", "T", 32, 1000), 5);
}

static void one_queue_alone_can_be_asked_for(void **state)
{
    struct popper *p = *state;
    send_some(p, 8);
    struct pop pop = pop_wish("g", "T", 32, 1000);
    pop.queue_id = 2;
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 2);
    assert_int_equal(p->held[0].queue_id, 2);
    pop.peeks = true;
    pop.queue_id = -1;
    pop.invisible_ms = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pop_now(p, &pop), OK);
        assert_int_equal(p->n, 6); /* and they stay */
    }
}

static void too_many_in_flight_are_refused(void **state)
{
    struct popper *p = *state;
    p->rig->options.max_pop_marks = 3;
    rig_again(p->rig);
    rig_topic_put(p->rig, "T", 4, PERM_READ | PERM_WRITE);
    send_some(p, 8);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 6); /* three queues */
    struct pop pop = pop_wish("g", "T", 32, 1000);
    assert_int_equal(pop_now(p, &pop), ERR_BUSY);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pop_ack(p, "g", &p->held[i]), OK);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 2);
}

/* An operator's reset counts for pops too, and an old mark does not undo it at the next start. */
static void a_reset_puts_a_group_elsewhere(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 5; i++)
        send_to(p, 0, "x");
    assert_int_equal(pop_count(p, "g", "T", 32, 60000), 5);
    struct offsets_reset reset = {
        .group = BYTES("g"), .topic = BYTES("T"), .queue_id = 0, .timestamp_ms = -1, .offset = 3};
    struct arena arena;
    arena_init(&arena, 1 << 20);
    assert_int_equal(broker_offsets_reset(p->rig->broker, &reset, &arena, NULL), OK);
    arena_clear(&arena);
    rig_again(p->rig);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 3);
    assert_int_equal(pop_count(p, "g", "T", 32, 60000), 2);
    assert_int_equal(p->held[0].offset, 3);
}

static void a_restart_remembers_what_is_in_flight(void **state)
{
    struct popper *p = *state;
    send_some(p, 8);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pop_ack(p, "g", &p->held[i]), OK);
    assert_int_equal(pop_retime(p, "g", &p->held[7], 20000), OK);
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 4);
    assert_int_equal(pop_count(p, "g", "T", 1, 10000), 0);
}

static void a_restart_keeps_handles_good(void **state)
{
    struct popper *p = *state;
    send_some(p, 8);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 8);
    struct held held[8];
    memcpy(held, p->held, sizeof held);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pop_ack(p, "g", &held[i]), OK);
    rig_again(p->rig);
    for (int i = 4; i < 7; i++)
        assert_int_equal(pop_ack(p, "g", &held[i]), OK);
    assert_int_equal(pop_ack(p, "g", &held[4]), ERR_NOT_FOUND); /* nobody can say any more */
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 1);
    clock_manual_advance(&p->rig->clock, 10000);
    assert_int_equal(pop_turn(p->rig), 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 1);
    assert_string_equal(p->held[0].body, held[7].body);
    assert_int_equal(pop_ack(p, "g", &p->held[0]), OK);
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_marks, 0);
    /* Nothing of all this will be read again. */
    const char *revive = "rmq_sys_REVIVE_LOG_DefaultCluster";
    for (int i = 0; i < 8; i++)
        if (later_count(p->rig, revive, i) > 0)
            assert_int_equal(rig_offset(p->rig, "CID_RMQ_SYS_REVIVE_GROUP", revive, i),
                             later_count(p->rig, revive, i) - 1);
}

/* Nothing can be written: nothing is handed out, nothing counts as acknowledged or changed, nothing
 * comes again. Then all of it does. */
static void a_disk_that_fails_puts_it_off(void **state)
{
    struct popper *p = *state;
    p->rig->store_vfs = disk_over(p->rig->vfs);
    rig_again(p->rig);
    rig_topic_put(p->rig, "T", 4, PERM_READ | PERM_WRITE);
    send_some(p, 8);
    struct pop pop = pop_wish("g", "T", 6, 1000);
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 6);
    struct held held[6];
    memcpy(held, p->held, sizeof held);

    disk.left = 0;
    assert_int_equal(pop_now(p, &pop), ERR_IO);
    assert_int_equal(pop_ack(p, "g", &held[0]), ERR_IO);
    assert_int_equal(pop_retime(p, "g", &held[1], 60000), ERR_IO);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 6);
    clock_manual_advance(&p->rig->clock, 1000);
    struct service_turn turn;
    broker_pop_turn(p->rig->broker, &turn);
    assert_int_equal(turn.done, 0);
    assert_int_equal(turn.err, ERR_IO);
    broker_pop_turn(p->rig->broker, &turn);
    assert_int_equal(turn.err, ERR_IO); /* still so, without trying */
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 6);

    disk.left = -1;
    clock_manual_advance(&p->rig->clock, 5000);
    (void)store_flush_turn(p->rig->store); /* the store gives itself another chance */
    broker_dispatch_turn(p->rig->broker);
    assert_int_equal(pop_ack(p, "g", &held[0]), OK); /* late, but nobody else has it yet */
    assert_int_equal(pop_turn(p->rig), 5);
    pop.max_count = 32;
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 7);
    p->rig->store_vfs = NULL;
    rig_again(p->rig);
}

/* Whoever acknowledges twice, because the answer has not come, waits for the same record. */
static void a_second_yes_is_as_safe_as_the_first(void **state)
{
    struct popper *p = *state;
    clock_manual_advance(&p->rig->clock, 5);
    send_to(p, 0, "x");
    send_to(p, 0, "y");
    assert_int_equal(pop_count(p, "g", "T", 2, 60000), 2);
    struct held x = p->held[0], y = p->held[1];
    uint64_t before = 0;
    struct held *row[] = {&x, &x, &y, &y}; /* the mark is there, the mark is gone */
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pop_ack(p, "g", row[i]), OK);
        assert_true(i % 2 ? p->end == before : p->end > before);
        before = p->end;
    }
    send_to(p, 1, "z");
    struct pop pop = pop_wish("h", "T", 1, 60000);
    pop.ordered = true;
    pop.queue_id = 1;
    assert_int_equal(pop_now(p, &pop), OK);
    assert_int_equal(p->n, 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pop_ack(p, "h", &p->held[0]), OK);
        assert_true(p->end > before);
        before = p->end;
    }
}

/* While something is in flight an operator moves the group ahead: a stop does not undo that. */
static void an_operator_is_not_forgotten(void **state)
{
    struct popper *p = *state;
    struct fault why = {0};
    for (int i = 0; i < 10; i++)
        send_to(p, 0, "x");
    assert_int_equal(pop_count(p, "g", "T", 1, 600000), 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(store_flush_all(p->rig->store, &why), OK);
        assert_int_equal(broker_save_turn(p->rig->broker, &why), OK);
    }
    struct commit move = {NULL, BYTES("g"), BYTES("T"), 0, 9};
    assert_int_equal(broker_offset_commit(p->rig->broker, &move, &why), OK);
    rig_again(p->rig);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 9);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
}

/* An operator moves the group back, and somebody wants more time for what it has from before: a
 * crash does not bring the group ahead again. */
static void more_time_moves_no_group(void **state)
{
    struct popper *p = *state;
    struct fault why = {0};
    struct vfs_fault *fault = fault_under(p->rig, 1);
    for (int i = 0; i < 10; i++)
        send_to(p, 0, "x");
    assert_int_equal(pop_count(p, "g", "T", 10, 600000), 10);
    struct held last = p->held[9];
    struct commit move = {NULL, BYTES("g"), BYTES("T"), 0, 2};
    assert_int_equal(broker_offset_commit(p->rig->broker, &move, &why), OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(store_flush_all(p->rig->store, &why), OK);
        assert_int_equal(broker_save_turn(p->rig->broker, &why), OK);
    }
    assert_int_equal(pop_retime(p, "g", &last, 500000), OK);
    fault_crash(p->rig, fault);
    assert_int_equal(rig_start(p->rig, &why), OK);
    assert_int_equal(rig_offset(p->rig, "g", "T", 0), 2);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 10);
    fault_over(p->rig, fault);
}

/* The handle of before says nothing any more: what is told yes by it would come again. */
static void an_old_handle_is_told_no(void **state)
{
    struct popper *p = *state;
    send_to(p, 0, "x");
    clock_manual_advance(&p->rig->clock, 5);
    assert_int_equal(pop_count(p, "g", "T", 1, 60000), 1);
    struct held old = p->held[0];
    clock_manual_advance(&p->rig->clock, 5);
    assert_int_equal(pop_retime(p, "g", &p->held[0], 10000), OK);
    clock_manual_advance(&p->rig->clock, 5);
    assert_int_equal(pop_ack(p, "g", &old), ERR_NOT_FOUND);
    clock_manual_advance(&p->rig->clock, 10000);
    assert_int_equal(pop_turn(p->rig), 1);
}

/* A message whose file cannot be mapped just now, for want of memory or handles, is not gone: it
 * comes again when it can be. */
static void what_cannot_be_read_just_now_comes_later(void **state)
{
    struct popper *p = *state;
    p->rig->store_vfs = disk_over(p->rig->vfs);
    rig_again(p->rig);
    send_to(p, 0, "x");
    rig_fill(p->rig, 3);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
    rig_again(p->rig);
    clock_manual_advance(&p->rig->clock, 1000);
    disk.blind = true;
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 1);
    disk.blind = false;
    clock_manual_advance(&p->rig->clock, 60000);
    assert_int_equal(pop_turn(p->rig), 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
    assert_string_equal(p->held[0].body, "x");
    p->rig->store_vfs = NULL;
    rig_again(p->rig);
}

/* Nor may a start go on without the marks that it cannot read. */
static void a_start_without_its_marks_is_none(void **state)
{
    struct popper *p = *state;
    struct rig *rig = p->rig;
    rig->store_vfs = disk_over(rig->vfs);
    rig_again(rig);
    send_to(p, 0, "x");
    assert_int_equal(pop_count(p, "g", "T", 32, 1000), 1);
    rig_fill(rig, 3);
    rig_stop(rig);
    struct fault why = {0};
    rig->store_open = &disk.blind;
    enum err err = rig_start(rig, &why);
    rig->store_open = NULL;
    disk.blind = false;
    assert_int_equal(err, ERR_IO);
    assert_int_equal(rig_start(rig, &why), OK);
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(pop_turn(rig), 1);
    rig->store_vfs = NULL;
    rig_again(rig);
}

/* Deleted while something was in flight: what was handed out is nobody's any more. */
static void a_deleted_topic_takes_its_marks_along(void **state)
{
    struct popper *p = *state;
    send_some(p, 4);
    assert_int_equal(pop_count(p, "g", "T", 2, 1000), 2);
    struct held held = p->held[0];
    assert_int_equal(broker_topic_delete(p->rig->broker, BYTES("T"), NULL), OK);
    assert_int_equal(pop_ack(p, "g", &held), ERR_UNKNOWN_TOPIC);
    clock_manual_advance(&p->rig->clock, 1000);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_numbers_of(p->rig).pop_marks, 0);
    assert_false(rig_topic(p->rig, "%RETRY%g_T", NULL));
    struct pop pop = pop_wish("g", "T", 32, 1000);
    assert_int_equal(pop_now(p, &pop), ERR_UNKNOWN_TOPIC);
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_marks, 0);
}

/* ---- others ---- */

/* A record as an Apache broker's timer brings it to the revive log. */
static void timer_brings(struct popper *p, const char *tag, int64_t meant_ms, const char *body)
{
    char props[128];
    int len =
        snprintf(props, sizeof props, "TAGS\1%s\2TIMER_DELIVER_MS\1%lld\2TIMER_OUT_MS\1%lld\2", tag,
                 (long long)meant_ms, (long long)meant_ms);
    struct bytes topic = BYTES("rmq_sys_REVIVE_LOG_DefaultCluster");
    struct draft draft = {.queue = store_queue(p->rig->store, topic, 5),
                          .topic = topic,
                          .body = bytes_str(body),
                          .props = bytes_of(props, (size_t)len),
                          .body_crc = crc32_positive(bytes_str(body)),
                          .queue_id = 5,
                          .born_host = p->rig->options.host,
                          .store_host = p->rig->options.host};
    struct stored stored;
    uint64_t end;
    assert_int_equal(store_append(p->rig->store, &draft, 1, &stored, &end), OK);
    broker_dispatch_turn(p->rig->broker);
}

/* Its mark comes a second before its time, its acknowledgements at its time: the message that was
 * acknowledged must not have been revived by then. */
static void what_somebody_else_popped_is_seen_to(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 3; i++)
        send_to(p, 0, i == 1 ? "acked" : "left");
    struct commit came = {NULL, BYTES("g"), BYTES("T"), 0, 3};
    struct group_settings set = group_settings_default(BYTES("g"));
    rig_group_put(p->rig, &set);
    assert_int_equal(broker_offset_commit(p->rig->broker, &came, NULL), OK);
    const int64_t popped_ms = START_MS - 60000, due_ms = START_MS + 1000;
    char text[256];
    snprintf(
        text, sizeof text,
        "{\"bm\":0,\"bn\":\"broker-a\",\"c\":\"g\",\"d\":[0,1,2],\"it\":61000,\"n\":3,\"pt\":%lld,"
        "\"q\":0,\"so\":0,\"t\":\"T\"}",
        (long long)popped_ms);
    timer_brings(p, "ck", due_ms - 1000, text);
    assert_int_equal(pop_turn(p->rig), 0);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 3);
    clock_manual_advance(&p->rig->clock, 1500);
    assert_int_equal(pop_turn(p->rig), 0); /* the others' acknowledgements may be on their way */
    snprintf(text, sizeof text,
             "{\"ao\":1,\"bn\":\"broker-a\",\"c\":\"g\",\"pt\":%lld,\"q\":0,\"so\":0,\"t\":\"T\"}",
             (long long)popped_ms);
    timer_brings(p, "ack", due_ms, text);
    timer_brings(p, "ck", due_ms, "{}"); /* and what makes no sense is passed over */
    timer_brings(p, "what", due_ms, "{}");
    clock_manual_advance(&p->rig->clock, 2000);
    assert_int_equal(pop_turn(p->rig), 0);
    clock_manual_advance(&p->rig->clock, 5000);
    assert_int_equal(pop_turn(p->rig), 2);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 2);
    assert_string_equal(p->held[0].body, "left");
    assert_string_equal(p->held[1].body, "left");
}

/* What is meant for later has been seen: nothing for this one can come any more. */
static void what_somebody_else_popped_does_not_wait_for_silence(void **state)
{
    struct popper *p = *state;
    send_to(p, 0, "x");
    send_to(p, 0, "y");
    struct commit came = {NULL, BYTES("g"), BYTES("T"), 0, 2};
    struct group_settings set = group_settings_default(BYTES("g"));
    rig_group_put(p->rig, &set);
    assert_int_equal(broker_offset_commit(p->rig->broker, &came, NULL), OK);
    char text[256];
    for (int i = 0; i < 2; i++) {
        snprintf(
            text, sizeof text,
            "{\"c\":\"g\",\"d\":[0],\"it\":1000,\"n\":1,\"pt\":%lld,\"q\":0,\"so\":%d,\"t\":\"T\"}",
            (long long)(START_MS + i * 4000 - 2000), i);
        timer_brings(p, "ck", START_MS + i * 4000 - 2000, text);
    }
    assert_int_equal(pop_turn(p->rig), 0);
    clock_manual_advance(&p->rig->clock, 1500);
    assert_int_equal(pop_turn(p->rig), 1); /* the first; the second says how late it is */
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 1);
}

/* Its mark was brought before the start, and its acknowledgements still wait in the wheel. */
static void what_somebody_else_popped_waits_after_a_start_too(void **state)
{
    struct popper *p = *state;
    for (int i = 0; i < 2; i++)
        send_to(p, 0, i == 1 ? "acked" : "left");
    struct commit came = {NULL, BYTES("g"), BYTES("T"), 0, 2};
    struct group_settings set = group_settings_default(BYTES("g"));
    rig_group_put(p->rig, &set);
    assert_int_equal(broker_offset_commit(p->rig->broker, &came, NULL), OK);
    const int64_t popped_ms = START_MS - 60000, due_ms = START_MS + 1000;
    char text[256];
    snprintf(text, sizeof text,
             "{\"bm\":0,\"c\":\"g\",\"d\":[0,1],\"it\":61000,\"n\":2,\"pt\":%lld,\"q\":0,"
             "\"so\":0,\"t\":\"T\"}",
             (long long)popped_ms);
    timer_brings(p, "ck", due_ms - 1000, text);
    rig_again(p->rig);
    assert_int_equal(pop_numbers_of(p->rig).pop_in_flight, 2);
    clock_manual_advance(&p->rig->clock, 1500);
    assert_int_equal(pop_turn(p->rig), 0);
    snprintf(text, sizeof text, "{\"ao\":1,\"c\":\"g\",\"pt\":%lld,\"q\":0,\"so\":0,\"t\":\"T\"}",
             (long long)popped_ms);
    timer_brings(p, "ack", due_ms, text);
    clock_manual_advance(&p->rig->clock, 2000);
    assert_int_equal(pop_turn(p->rig), 0);
    clock_manual_advance(&p->rig->clock, 5000);
    assert_int_equal(pop_turn(p->rig), 1);
    assert_int_equal(pop_count(p, "g", "T", 32, 10000), 1);
    assert_string_equal(p->held[0].body, "left");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        pop_case(each_message_goes_to_one),
        pop_case(what_is_acknowledged_does_not_come_again),
        pop_case(what_is_not_acknowledged_comes_again),
        pop_case(tries_end_in_the_dead_letters),
        pop_case(the_time_can_be_changed),
        pop_case(a_time_of_nothing_brings_it_back_at_once),
        pop_case(bad_numbers_are_refused),
        pop_case(forged_handles_do_nothing),
        pop_case(acknowledgements_of_a_turn_share_a_record),
        pop_case(records_are_as_apache_reads_them),
        pop_case(only_what_was_asked_for_is_handed_out),
        pop_case(a_new_group_begins_where_it_wants),
        pop_case(one_queue_alone_can_be_asked_for),
        pop_case(too_many_in_flight_are_refused),
        pop_case(a_reset_puts_a_group_elsewhere),
        pop_case(a_restart_remembers_what_is_in_flight),
        pop_case(a_restart_keeps_handles_good),
        pop_case(a_disk_that_fails_puts_it_off),
        pop_case(a_second_yes_is_as_safe_as_the_first),
        pop_case(an_operator_is_not_forgotten),
        pop_case(more_time_moves_no_group),
        pop_case(an_old_handle_is_told_no),
        pop_case(what_cannot_be_read_just_now_comes_later),
        pop_case(a_start_without_its_marks_is_none),
        pop_case(a_deleted_topic_takes_its_marks_along),
        pop_case(what_somebody_else_popped_is_seen_to),
        pop_case(what_somebody_else_popped_does_not_wait_for_silence),
        pop_case(what_somebody_else_popped_waits_after_a_start_too),
    };
    return cmocka_run_group_tests_name("broker/pop", tests, NULL, NULL);
}
