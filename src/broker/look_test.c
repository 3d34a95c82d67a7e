/* What an operator sees: queues, progress of groups, who is connected, lists over all of them. */
#include "broker/rig_test.h"

static struct arena arena;

static int open_all(void **state)
{
    arena_init(&arena, 1 << 20);
    return rig_open(state);
}

static int close_all(void **state)
{
    arena_clear(&arena);
    return rig_close(state);
}

static void join(struct rig *rig, struct session *s, const char *id, const char *group,
                 const char *topic)
{
    struct client client = {.session = &s->counted, .id = bytes_str(id), .version = 453};
    struct subscription sub = {
        .topic = bytes_str(topic), .expression = BYTES("*"), .expression_type = BYTES("TAG")};
    struct membership m = {.group = bytes_str(group), .subs = &sub, .n_subs = 1};
    session_init(s);
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);
    assert_int_equal(broker_producer_seen(rig->broker, &client, BYTES("pg"), NULL), OK);
}

static void commit(struct rig *rig, const char *group, const char *topic, int64_t offset)
{
    struct group_settings set = group_settings_default(bytes_str(group));
    if (!rig_group(rig, group))
        rig_group_put(rig, &set);
    struct commit c = {.group = bytes_str(group), .topic = bytes_str(topic), .offset = offset};
    assert_int_equal(broker_offset_commit(rig->broker, &c, NULL), OK);
}

static void queues_show_where_they_begin_and_end_and_how_fast_they_grow(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 3, PERM_READ | PERM_WRITE);
    for (int i = 0; i < 4; i++)
        rig_send(rig, "T", "", "x");
    struct queue_stat *stats;
    size_t n;
    double rate;
    assert_int_equal(broker_topic_stats(rig->broker, BYTES("T"), &arena, &stats, &n, &rate, NULL),
                     OK);
    assert_int_equal(n, 3);
    assert_int_equal(stats[0].min, 0);
    assert_int_equal(stats[0].max, 4);
    assert_int_equal(stats[0].last_ms, START_MS);
    assert_int_equal(stats[2].max, 0);
    assert_int_equal(stats[2].last_ms, 0);
    assert_true(rate == 4);
    assert_int_equal(broker_topic_stats(rig->broker, BYTES("No"), &arena, &stats, &n, &rate, NULL),
                     ERR_UNKNOWN_TOPIC);
}

static void progress_is_of_topics_that_a_group_reads(void **state)
{
    struct rig *rig = *state;
    struct session s;
    for (int i = 0; i < 5; i++)
        rig_send(rig, "T", "", "x");
    rig_send(rig, "U", "", "x");
    commit(rig, "g", "T", 3);
    commit(rig, "g", "U", 1);
    struct consume_stat *stats;
    size_t n;
    double rate;
    struct bytes topic = BYTES("T");
    assert_int_equal(
        broker_consume_stats(rig->broker, BYTES("g"), &topic, 1, false, &arena, &stats, &n, &rate),
        OK);
    assert_int_equal(n, 4); /* an automatic topic has so many queues here */
    assert_int_equal(stats[0].max, 5);
    assert_int_equal(stats[0].offset, 3);
    assert_int_equal(stats[0].last_ms, START_MS);
    assert_int_equal(stats[1].max, 0);
    assert_true(rate == 0);
    assert_int_equal(
        broker_consume_stats(rig->broker, BYTES("g"), NULL, 0, false, &arena, &stats, &n, &rate),
        OK);
    assert_int_equal(n, 8);
    join(rig, &s, "c@1", "g", "T"); /* its members decide now */
    assert_int_equal(
        broker_consume_stats(rig->broker, BYTES("g"), NULL, 0, false, &arena, &stats, &n, &rate),
        OK);
    assert_int_equal(n, 4);
    topic = BYTES("U");
    assert_int_equal(
        broker_consume_stats(rig->broker, BYTES("g"), &topic, 1, false, &arena, &stats, &n, &rate),
        OK);
    assert_int_equal(n, 0);
    assert_int_equal(
        broker_consume_stats(rig->broker, BYTES("g"), &topic, 1, true, &arena, &stats, &n, &rate),
        OK);
    assert_int_equal(n, 4);
    broker_session_gone(rig->broker, &s.counted);
}

static void groups_and_topics_find_each_other(void **state)
{
    struct rig *rig = *state;
    struct session s;
    rig_send(rig, "T", "", "x");
    rig_send(rig, "U", "", "x");
    commit(rig, "g2", "T", 1);
    commit(rig, "g1", "T", 0);
    commit(rig, "g1", "U", 0);
    join(rig, &s, "c@1", "g3", "T");
    struct bytes *names;
    size_t n;
    assert_int_equal(broker_topic_groups(rig->broker, BYTES("T"), &arena, &names, &n), OK);
    assert_int_equal(n, 3);
    assert_bytes_equal(names[0], BYTES("g1"));
    assert_bytes_equal(names[2], BYTES("g3"));
    assert_int_equal(broker_group_topics(rig->broker, BYTES("g1"), &arena, &names, &n), OK);
    assert_int_equal(n, 2);
    assert_bytes_equal(names[1], BYTES("U"));
    assert_int_equal(broker_group_topics(rig->broker, BYTES("none"), &arena, &names, &n), OK);
    assert_int_equal(n, 0);
    assert_int_equal(broker_producer_groups(rig->broker, &arena, &names, &n), OK);
    assert_int_equal(n, 1);
    assert_bytes_equal(names[0], BYTES("pg"));
    struct group_topic *pairs;
    assert_int_equal(broker_all_progress(rig->broker, false, &arena, &pairs, &n), OK);
    assert_int_equal(n, 3);
    assert_bytes_equal(pairs[0].group, BYTES("g1"));
    assert_bytes_equal(pairs[0].topic, BYTES("T"));
    assert_bytes_equal(pairs[2].group, BYTES("g2"));
    assert_int_equal(broker_all_progress(rig->broker, true, &arena, &pairs, &n), OK);
    assert_int_equal(n, 0); /* none of them is for ordered messages */
    broker_session_gone(rig->broker, &s.counted);
}

static void members_are_shown_with_their_last_sign_of_life(void **state)
{
    struct rig *rig = *state;
    struct session s;
    join(rig, &s, "c@1", "g", "T");
    clock_manual_advance(&rig->clock, 5000);
    struct connections c;
    assert_int_equal(broker_connections(rig->broker, BYTES("g"), true, &arena, &c), OK);
    assert_int_equal(c.n, 1);
    assert_bytes_equal(c.list[0].client_id, BYTES("c@1"));
    assert_int_equal(c.list[0].seen_ms, START_MS);
    assert_int_equal(c.n_subs, 1);
    assert_bytes_equal(c.subs[0].topic, BYTES("T"));
    assert_int_equal(broker_connections(rig->broker, BYTES("no"), true, &arena, &c), ERR_NOT_FOUND);
    int32_t version = 0;
    struct counted *session =
        broker_consumer_session(rig->broker, BYTES("g"), BYTES("c@1"), &version);
    assert_ptr_equal(session, &s.counted);
    assert_int_equal(version, 453);
    counted_drop(session);
    assert_null(broker_consumer_session(rig->broker, BYTES("g"), BYTES("c@2"), &version));
    session = broker_producer_session(rig->broker, BYTES("c@1"));
    assert_ptr_equal(session, &s.counted);
    counted_drop(session);
    broker_session_gone(rig->broker, &s.counted);
}

static void spans_of_time_tell_how_old_the_next_message_is(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 2, PERM_READ | PERM_WRITE);
    rig_send(rig, "T", "", "x");
    clock_manual_advance(&rig->clock, 1000);
    rig_send(rig, "T", "", "x");
    commit(rig, "g", "T", 1);
    clock_manual_advance(&rig->clock, 500);
    struct time_span *spans;
    size_t n;
    assert_int_equal(
        broker_time_spans(rig->broker, BYTES("g"), BYTES("T"), &arena, &spans, &n, NULL), OK);
    assert_int_equal(n, 2);
    assert_int_equal(spans[0].first_ms, START_MS);
    assert_int_equal(spans[0].last_ms, START_MS + 1000);
    assert_int_equal(spans[0].consumed_ms, START_MS);
    assert_int_equal(spans[0].delay_ms, 500);
    assert_int_equal(spans[1].first_ms, -1);
    assert_int_equal(spans[1].delay_ms, 0);
    assert_int_equal(
        broker_time_spans(rig->broker, BYTES("g"), BYTES("No"), &arena, &spans, &n, NULL),
        ERR_UNKNOWN_TOPIC);
}

/* What does not fit into the arena is an error, and nothing is half shown. */
static void lists_that_do_not_fit_are_refused(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    commit(rig, "g", "T", 1);
    struct arena small;
    arena_init(&small, 8);
    struct bytes *names;
    struct group_topic *pairs;
    struct time_span *spans;
    size_t n;
    assert_int_equal(broker_system_topics(rig->broker, &small, &names, &n), ERR_TOO_BIG);
    assert_int_equal(broker_group_topics(rig->broker, BYTES("g"), &small, &names, &n), ERR_TOO_BIG);
    assert_int_equal(broker_all_progress(rig->broker, false, &small, &pairs, &n), ERR_TOO_BIG);
    assert_int_equal(
        broker_time_spans(rig->broker, BYTES("g"), BYTES("T"), &small, &spans, &n, NULL),
        ERR_TOO_BIG);
    arena_clear(&small);
}

#define look_test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        look_test(queues_show_where_they_begin_and_end_and_how_fast_they_grow),
        look_test(progress_is_of_topics_that_a_group_reads),
        look_test(groups_and_topics_find_each_other),
        look_test(members_are_shown_with_their_last_sign_of_life),
        look_test(spans_of_time_tell_how_old_the_next_message_is),
        look_test(lists_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
