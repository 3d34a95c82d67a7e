/* Pulling: who may read what, from where, and which messages. */
#include "broker/rig_test.h"

static enum err pull_into(struct rig *rig, const struct pull *pull, struct pulled *got,
                          const char *word)
{
    struct fault why = {0};
    enum err err = broker_pull(rig->broker, pull, got, &why);
    if (err && word && !strstr(why.text, word))
        fail_msg("'%s' does not say '%s'", why.text, word);
    if (!err)
        filter_drop(take(&got->filter));
    return err;
}

static void what_was_sent_is_pulled_in_order(void **state)
{
    struct rig *rig = *state;
    static const char *const bodies[] = {"one", "two", "three"};
    for (int i = 0; i < 3; i++)
        rig_send(rig, "T", "", bodies[i]);
    struct pull pull = rig_pull("g", "T", 0);
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_FOUND);
    assert_int_equal(got.read.count, 3);
    assert_int_equal(got.read.next, 3);
    assert_int_equal(got.read.min, 0);
    assert_int_equal(got.read.max, 3);
    assert_int_equal(got.topic_sys_flag, 0);
    assert_int_equal(got.group_sys_flag, 0);
    struct record records[4];
    assert_int_equal(rig_records(&got.read, records, 4), 3);
    for (int i = 0; i < 3; i++) {
        assert_bytes_equal(records[i].body, bytes_str(bodies[i]));
        assert_int_equal(records[i].queue_offset, i);
    }
    rig_drop(&got.read);

    rig_again(rig); /* and they are still there after a stop */
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 3);
    rig_drop(&got.read);
}

static void a_message_is_seen_only_after_dispatch(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("T", "x");
    assert_int_equal(rig_produce(rig, &r), OK);
    struct pull pull = rig_pull("g", "T", 0);
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_not_equal(got.read.status, READ_FOUND);
    broker_dispatch_turn(rig->broker);
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_FOUND);
    rig_drop(&got.read);
}

static void an_answer_has_at_most_32_messages_and_256_kib(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 40; i++)
        rig_send(rig, "many", "", "x");
    struct pull pull = rig_pull("g", "many", 0);
    static const struct {
        uint32_t asked, got;
    } cases[] = {{1000, 32}, {UINT32_MAX, 32}, {5, 5}, {1, 1}, {0, 1}};
    struct pulled got;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pull.max_count = cases[i].asked;
        assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
        assert_int_equal(got.read.count, cases[i].got);
        rig_drop(&got.read);
    }

    cleanup(free_at) char *big = malloc(100 << 10);
    assert_non_null(big);
    memset(big, 'b', 100 << 10);
    big[(100 << 10) - 1] = 0;
    for (int i = 0; i < 4; i++)
        rig_send(rig, "big", "", big);
    pull = rig_pull("g", "big", 0);
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 2);
    assert_true(got.read.size <= PULL_BYTES);
    rig_drop(&got.read);
}

static void offsets_outside_the_queue_are_corrected(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 3; i++)
        rig_send(rig, "T", "", "x");
    static const struct {
        int32_t queue;
        int64_t offset;
        enum read_status status;
        int64_t next;
    } cases[] = {
        {0, 3, READ_AT_END, 3},     {0, 4, READ_TOO_LARGE, 3}, {0, INT64_MAX, READ_TOO_LARGE, 3},
        {0, -1, READ_TOO_SMALL, 0}, {1, 0, READ_EMPTY, 0},     {1, 5, READ_EMPTY, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pull pull = rig_pull("g", "T", cases[i].offset);
        pull.queue_id = cases[i].queue;
        struct pulled got;
        assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
        assert_int_equal(got.read.status, cases[i].status);
        assert_int_equal(got.read.next, cases[i].next);
        assert_non_null(got.queue);
    }
}

static void tags_choose_the_messages(void **state)
{
    struct rig *rig = *state;
    static const char *const tags[] = {"A", "B", "A", "C"};
    for (int i = 0; i < 4; i++)
        rig_send(rig, "T", tags[i], tags[i]);
    struct pull pull = rig_pull("g", "T", 0);
    pull.expression = BYTES("A || C");
    pull.expression_type = BYTES("TAG");
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 3);
    assert_int_equal(got.read.next, 4);
    rig_drop(&got.read);

    pull.expression = BYTES("D");
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_NONE_MATCHED);
    assert_int_equal(got.read.next, 4);
}

static void send_with(struct rig *rig, const char *props)
{
    struct produce r = rig_message("T", props);
    r.props = bytes_str(props);
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
}

/* By the request's expression and by the group's. */
static void sql92_chooses_the_messages(void **state)
{
    struct rig *rig = *state;
    static const char *const props[] = {"a\0015\2", "a\0017\2", "b\0017\2", "a\1x\2",
                                        "a\0018\2b\1y\2"};
    for (int i = 0; i < 5; i++)
        send_with(rig, props[i]);
    struct session session;
    session_init(&session);
    struct client client = {.session = &session.counted, .id = BYTES("c1")};
    struct subscription sub = {BYTES("T"), BYTES("a > 5"), BYTES("SQL92"), 5};
    struct membership m = {.group = BYTES("g"), .subs = &sub, .n_subs = 1};
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);

    struct pull pull = rig_pull("g", "T", 0);
    pull.expression = BYTES("a > 5");
    pull.expression_type = BYTES("SQL92");
    for (int i = 0; i < 2; i++) {
        struct pulled got;
        pull.has_expression = i == 0;
        assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
        assert_int_equal(got.read.count, 2);
        assert_int_equal(got.read.next, 5);
        struct record records[2];
        assert_int_equal(rig_records(&got.read, records, 2), 2);
        assert_int_equal(records[0].queue_offset, 1);
        assert_int_equal(records[1].queue_offset, 4);
        rig_drop(&got.read);
    }
    pull.has_expression = true;
    pull.expression = BYTES("c IS NOT NULL");
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.status, READ_NONE_MATCHED);
    assert_int_equal(got.read.next, 5);
    broker_session_gone(rig->broker, &session.counted);
    assert_int_equal(rig->broker->filters.size, 0);
}

/* Where it is switched off, nobody is let in: neither by request nor by heartbeat. */
static void sql92_can_be_switched_off(void **state)
{
    struct rig *rig = *state;
    rig->options.sql92 = false;
    rig_again(rig);
    send_with(rig, "a\0017\2");
    struct session session;
    session_init(&session);
    struct client client = {.session = &session.counted, .id = BYTES("c1")};
    struct subscription sub = {BYTES("T"), BYTES("a > 5"), BYTES("SQL92"), 5};
    struct membership m = {.group = BYTES("g"), .subs = &sub, .n_subs = 1};
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);
    struct pull pull = rig_pull("g", "T", 0);
    pull.expression = BYTES("a > 5");
    pull.expression_type = BYTES("SQL92");
    for (int i = 0; i < 2; i++) {
        struct pulled got;
        pull.has_expression = i == 0;
        assert_int_equal(pull_into(rig, &pull, &got, "does not support"), ERR_UNSUPPORTED);
    }
    broker_session_gone(rig->broker, &session.counted);
}

/* Each refusal, in the order of the checks: what is wrong with the first hides the later ones. */
static void a_pull_is_checked_step_by_step(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 2, PERM_READ | PERM_WRITE);
    rig_topic_put(rig, "writeonly", 2, PERM_WRITE);
    struct group_settings off = group_settings_default(BYTES("off"));
    off.consume_enable = false;
    rig_group_put(rig, &off);

    struct pulled got;
    struct pull pull = rig_pull("off", "nothing", 0);
    assert_int_equal(pull_into(rig, &pull, &got, "no permission"), ERR_DENIED);
    pull = rig_pull("g", "nothing", 0);
    pull.queue_id = -1;
    assert_int_equal(pull_into(rig, &pull, &got, "nothing"), ERR_UNKNOWN_TOPIC);
    pull = rig_pull("g", "writeonly", 0);
    pull.queue_id = -1;
    assert_int_equal(pull_into(rig, &pull, &got, "forbidden"), ERR_DENIED);
    pull = rig_pull("g", "T", 0);
    pull.expression = BYTES("||");
    static const int32_t bad_ids[] = {-1, 2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad_ids / sizeof *bad_ids; i++) {
        pull.queue_id = bad_ids[i];
        assert_int_equal(pull_into(rig, &pull, &got, "queueId"), ERR_INVALID);
    }
    pull.queue_id = 1;
    assert_int_equal(pull_into(rig, &pull, &got, "tag"), ERR_MALFORMED);
    pull.expression_type = BYTES("SQL92");
    assert_int_equal(pull_into(rig, &pull, &got, "line 1, column 1"), ERR_MALFORMED);
    pull.expression_type = BYTES("XPATH");
    assert_int_equal(pull_into(rig, &pull, &got, "XPATH"), ERR_MALFORMED);

    rig->options.perm = PERM_WRITE;
    rig->options.sql92 = false;
    rig_again(rig);
    pull = rig_pull("off", "nothing", 0);
    assert_int_equal(pull_into(rig, &pull, &got, "brokerPermission"), ERR_DENIED);
}

/* Without an expression in the request the group's heartbeats decide. */
static void the_group_s_own_subscription_counts_otherwise(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "A", "a");
    rig_send(rig, "T", "B", "b");
    struct pull pull = rig_pull("g", "T", 0);
    pull.has_expression = false;
    pull.sub_version = 5;
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, "group info not exist"), ERR_NOT_SUBSCRIBED);

    struct session session;
    session_init(&session);
    struct client client = {.session = &session.counted, .id = BYTES("c1")};
    struct subscription subs[] = {{BYTES("T"), BYTES("B"), BYTES("TAG"), 5},
                                  {BYTES("S"), BYTES("a=1 OR"), BYTES("SQL92"), 5}};
    struct membership m = {.group = BYTES("g"), .subs = subs, .n_subs = 2};
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 1);
    rig_drop(&got.read);
    pull.sub_version = 4;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
    rig_drop(&got.read);
    pull.sub_version = 6;
    assert_int_equal(pull_into(rig, &pull, &got, "not latest"), ERR_STALE);

    rig_topic_put(rig, "S", 1, PERM_READ | PERM_WRITE);
    rig_topic_put(rig, "U", 1, PERM_READ | PERM_WRITE);
    pull = rig_pull("g", "U", 0);
    pull.has_expression = false;
    assert_int_equal(pull_into(rig, &pull, &got, "not subscribed"), ERR_NOT_SUBSCRIBED);
    pull.topic = BYTES("S"); /* what cannot be filtered is not delivered unfiltered */
    assert_int_equal(pull_into(rig, &pull, &got,
                               "cannot be used: Invalid MessageSelector: line 1, "
                               "column 7"),
                     ERR_NOT_FOUND);

    struct group_settings set = group_settings_default(BYTES("g"));
    set.broadcast_enable = false;
    rig_group_put(rig, &set);
    m.broadcasting = true;
    assert_int_equal(broker_consumer_seen(rig->broker, &client, &m, NULL), OK);
    pull.topic = BYTES("T");
    assert_int_equal(pull_into(rig, &pull, &got, "broadcast"), ERR_DENIED);
    broker_session_gone(rig->broker, &session.counted);
}

static void a_pull_commits_forwards_and_not_beyond_the_end(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 3; i++)
        rig_send(rig, "T", "", "x");
    static const struct {
        bool commit;
        int64_t offset, after;
    } steps[] = {{false, 2, -1}, {true, -1, -1},       {true, 0, 0}, {true, 2, 2}, {true, 1, 2},
                 {false, 3, 2},  {true, INT64_MAX, 2}, {true, 4, 2}, {true, 3, 3}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct pull pull = rig_pull("g", "T", 0);
        pull.commit = steps[i].commit;
        pull.commit_offset = steps[i].offset;
        struct pulled got;
        assert_int_equal(pull_into(rig, &pull, &got, NULL), OK);
        rig_drop(&got.read);
        assert_int_equal(rig_offset(rig, "g", "T", 0), steps[i].after);
    }
}

static void a_refused_pull_commits_nothing(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "T", "", "x");
    struct pull pull = rig_pull("g", "T", 0);
    pull.commit = true;
    pull.commit_offset = 1;
    pull.expression = BYTES("||");
    struct pulled got;
    assert_int_equal(pull_into(rig, &pull, &got, NULL), ERR_MALFORMED);
    assert_int_equal(rig_offset(rig, "g", "T", 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(what_was_sent_is_pulled_in_order),
        rig_test(a_message_is_seen_only_after_dispatch),
        rig_test(an_answer_has_at_most_32_messages_and_256_kib),
        rig_test(offsets_outside_the_queue_are_corrected),
        rig_test(tags_choose_the_messages),
        rig_test(sql92_chooses_the_messages),
        rig_test(sql92_can_be_switched_off),
        rig_test(a_pull_is_checked_step_by_step),
        rig_test(the_group_s_own_subscription_counts_otherwise),
        rig_test(a_pull_commits_forwards_and_not_beyond_the_end),
        rig_test(a_refused_pull_commits_nothing),
    };
    return cmocka_run_group_tests_name("broker/pull", tests, NULL, NULL);
}
