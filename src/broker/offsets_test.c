/* How far groups have come, and where queues begin and end. */
#include "broker/rig_test.h"

#define G BYTES("g")
#define T BYTES("T")

/* A group g, a topic T with four queues, three messages in queue 0. */
static int filled_open(void **state)
{
    rig_open(state);
    struct rig *rig = *state;
    for (int i = 0; i < 3; i++) {
        clock_manual_advance(&rig->clock, 1000);
        rig_send(rig, "T", "", "x");
    }
    struct group_settings set = group_settings_default(G);
    rig_group_put(rig, &set);
    return 0;
}

#define filled_test(name) cmocka_unit_test_setup_teardown(name, filled_open, rig_close)

static void what_was_committed_is_found_again(void **state)
{
    struct rig *rig = *state;
    for (int32_t queue = 3; queue >= 0; queue--)
        assert_int_equal(broker_offset_commit(
                             rig->broker, &(struct commit){NULL, G, T, queue, 10 + queue}, NULL),
                         OK);
    for (int32_t queue = 0; queue < 4; queue++)
        assert_int_equal(rig_offset(rig, "g", "T", queue), 10 + queue);
    assert_int_equal(rig_offset(rig, "other", "T", 0), -1);
    assert_int_equal(rig_offset(rig, "g", "U", 0), -1);
    rig_again(rig);
    for (int32_t queue = 0; queue < 4; queue++)
        assert_int_equal(rig_offset(rig, "g", "T", queue), 10 + queue);
}

static void an_explicit_commit_may_go_back_unless_it_says_otherwise(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, 0, 3}, NULL),
                     OK);
    assert_int_equal(broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, 0, 1}, NULL),
                     OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 1);

    struct commit commit = {NULL, G, T, 0, 2, .forward = true};
    assert_int_equal(broker_offset_commit(rig->broker, &commit, NULL), OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    commit.offset = 1;
    assert_int_equal(broker_offset_commit(rig->broker, &commit, NULL), OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
}

static enum err commit_by(struct rig *rig, const struct session *s, int64_t offset)
{
    struct commit commit = {s ? &s->counted : NULL, G, T, 0, offset};
    return broker_offset_commit(rig->broker, &commit, NULL);
}

/* A rebalance gave the queue from `a` to `b`; what `a` had finished before, it may tell late. */
static void a_member_that_lost_its_queue_does_not_take_the_group_back(void **state)
{
    struct rig *rig = *state;
    struct session a, b;
    struct session *both[] = {&a, &b};
    struct membership m = {.group = G};
    for (int i = 0; i < 2; i++) {
        session_init(both[i]);
        struct client client = {.session = &both[i]->counted, .id = bytes_str(i ? "b" : "a")};
        assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);
    }
    assert_int_equal(commit_by(rig, &a, 1), OK);
    struct pull pull = rig_pull("g", "T", 3);
    struct pulled got;
    pull.session = &b.counted;
    pull.commit = true;
    pull.commit_offset = 3;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(commit_by(rig, &a, 2), OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 3);
    assert_int_equal(commit_by(rig, &b, 2), OK); /* who has it may go back, … */
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    assert_int_equal(commit_by(rig, NULL, 1), OK); /* … and so may an operator, … */
    assert_int_equal(rig_offset(rig, "g", "T", 0), 1);
    assert_int_equal(commit_by(rig, &b, 3), OK);
    broker_session_gone(rig->broker, &b.counted); /* … or whoever is left */
    assert_int_equal(commit_by(rig, &a, 2), OK);
    assert_int_equal(rig_offset(rig, "g", "T", 0), 2);
    broker_session_gone(rig->broker, &a.counted);
}

static void a_commit_that_makes_no_sense_is_refused(void **state)
{
    struct rig *rig = *state;
    struct fault why = {0};
    assert_int_equal(broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, 0, -1}, &why),
                     ERR_INVALID);
    assert_int_equal(broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, 4, 1}, &why),
                     ERR_INVALID);
    assert_int_equal(broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, -1, 1}, &why),
                     ERR_INVALID);
    assert_int_equal(
        broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, INT32_MAX, 1}, &why),
        ERR_INVALID);
    assert_int_equal(
        broker_offset_commit(rig->broker, &(struct commit){NULL, BYTES("nobody"), T, 0, 1}, &why),
        ERR_UNKNOWN_GROUP);
    assert_int_equal(
        broker_offset_commit(rig->broker, &(struct commit){NULL, G, BYTES("nothing"), 0, 1}, &why),
        ERR_UNKNOWN_TOPIC);
    assert_true(why.text[0]);
    assert_int_equal(rig->broker->progress.n, 0); /* nothing is kept for strangers */
}

static void a_new_group_begins_at_zero_while_the_first_message_is_recent(void **state)
{
    struct rig *rig = *state;
    int64_t offset = 7;
    assert_int_equal(broker_offset_query(rig->broker, G, T, 0, false, &offset, NULL),
                     ERR_NOT_FOUND);
    assert_int_equal(offset, 7);
    assert_int_equal(broker_offset_query(rig->broker, G, T, 0, true, &offset, NULL), OK);
    assert_int_equal(offset, 0);
    assert_int_equal(broker_offset_query(rig->broker, G, T, 3, true, &offset, NULL),
                     OK); /* empty */
    assert_int_equal(offset, 0);

    struct fault why = {0};
    assert_int_equal(broker_offset_query(rig->broker, G, BYTES("nothing"), 0, true, &offset, &why),
                     ERR_NOT_FOUND);
    assert_int_equal(broker_offset_query(rig->broker, G, T, 4, true, &offset, &why), ERR_NOT_FOUND);
    assert_int_equal(broker_offset_query(rig->broker, G, T, -1, true, &offset, &why),
                     ERR_NOT_FOUND);
    assert_true(why.text[0]);
}

static void a_new_group_decides_itself_when_much_was_written_since(void **state)
{
    struct rig *rig = *state;
    rig->options.recent_bytes = 100; /* three messages are more */
    rig_again(rig);
    int64_t offset;
    assert_int_equal(broker_offset_query(rig->broker, G, T, 0, true, &offset, NULL), ERR_NOT_FOUND);
    rig->options.recent_bytes = 1 << 20;
    rig_again(rig);
    assert_int_equal(broker_offset_query(rig->broker, G, T, 0, true, &offset, NULL), OK);
}

static int64_t bound(struct rig *rig, struct bytes topic, int32_t queue, enum queue_bound which,
                     int64_t ts)
{
    int64_t at = -7;
    assert_int_equal(broker_bound(rig->broker, topic, queue, which, ts, &at, NULL), OK);
    return at;
}

static void bounds_are_those_of_the_queue(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(bound(rig, T, 0, BOUND_MIN, 0), 0);
    assert_int_equal(bound(rig, T, 0, BOUND_MAX, 0), 3);
    assert_int_equal(bound(rig, T, 0, BOUND_TIME, START_MS + 2000), 1);
    assert_int_equal(bound(rig, T, 0, BOUND_TIME_LAST, START_MS), 0);
    assert_int_equal(bound(rig, T, 0, BOUND_TIME_LAST, START_MS + 2000), 1);
    assert_int_equal(bound(rig, T, 0, BOUND_TIME_LAST, START_MS + 2999), 1);
    assert_int_equal(bound(rig, T, 0, BOUND_TIME_LAST, INT64_MAX), 2);
    assert_int_equal(bound(rig, T, 0, BOUND_EARLIEST_TIME, 0), START_MS + 1000);
}

static void an_unknown_queue_is_empty(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *topic;
        int32_t queue;
    } unknown[] = {{"T", 3}, {"T", 99}, {"T", -1}, {"nothing", 0}, {"", 0}, {"../..", 0}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct bytes topic = bytes_str(unknown[i].topic);
        assert_int_equal(bound(rig, topic, unknown[i].queue, BOUND_MIN, 0), 0);
        assert_int_equal(bound(rig, topic, unknown[i].queue, BOUND_MAX, 0), 0);
        assert_int_equal(bound(rig, topic, unknown[i].queue, BOUND_TIME, START_MS), 0);
        assert_int_equal(bound(rig, topic, unknown[i].queue, BOUND_TIME_LAST, START_MS), 0);
        assert_int_equal(bound(rig, topic, unknown[i].queue, BOUND_EARLIEST_TIME, 0), -1);
    }
}

static void the_version_rises_with_every_500th_commit(void **state)
{
    struct rig *rig = *state;
    int64_t before = rig->broker->tables[TABLE_OFFSETS].version.counter;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(
            broker_offset_commit(rig->broker, &(struct commit){NULL, G, T, 0, i}, NULL), OK);
    assert_int_equal(rig->broker->tables[TABLE_OFFSETS].version.counter, before + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        filled_test(what_was_committed_is_found_again),
        filled_test(an_explicit_commit_may_go_back_unless_it_says_otherwise),
        filled_test(a_member_that_lost_its_queue_does_not_take_the_group_back),
        filled_test(a_commit_that_makes_no_sense_is_refused),
        filled_test(a_new_group_begins_at_zero_while_the_first_message_is_recent),
        filled_test(a_new_group_decides_itself_when_much_was_written_since),
        filled_test(bounds_are_those_of_the_queue),
        filled_test(an_unknown_queue_is_empty),
        filled_test(the_version_rises_with_every_500th_commit),
    };
    return cmocka_run_group_tests_name("broker/offsets", tests, NULL, NULL);
}
