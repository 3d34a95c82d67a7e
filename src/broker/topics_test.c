/* Topics that every broker has, topics that come to be, and what name servers are told. */
#include "broker/rig_test.h"

static void every_broker_has_the_system_topics(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *name;
        int32_t queues, perm;
    } wanted[] = {
        {"TBW102", 8, 7},
        {"SELF_TEST_TOPIC", 1, 6},
        {"BenchmarkTest", 1024, 6},
        {"DefaultCluster", 16, 7},
        {"broker-a", 1, 7},
        {"OFFSET_MOVED_EVENT", 1, 6},
        {"SCHEDULE_TOPIC_XXXX", 18, 6},
        {"DefaultCluster_REPLY_TOPIC", 1, 6},
        {"RMQ_SYS_TRANS_HALF_TOPIC", 1, 6},
        {"RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6},
        {"rmq_sys_wheel_timer", 1, 6},
        {"rmq_sys_REVIVE_LOG_DefaultCluster", 8, 6},
        {"rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct topic_settings t = {0};
        assert_true(rig_topic(rig, wanted[i].name, &t));
        assert_int_equal(t.read_queues, wanted[i].queues);
        assert_int_equal(t.write_queues, wanted[i].queues);
        assert_int_equal(t.perm, wanted[i].perm);
    }
    assert_int_equal(rig->broker->topics.n, sizeof wanted / sizeof *wanted);
}

static void a_file_from_before_wins_over_the_system_s_settings(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "SELF_TEST_TOPIC", 3, 4);
    room_enter(&rig->broker->room);
    table_changed(rig->broker, TABLE_TOPICS);
    room_leave(&rig->broker->room);
    rig_again(rig);
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "SELF_TEST_TOPIC", &t));
    assert_int_equal(t.read_queues, 3);
    assert_int_equal(t.perm, 4);
}

static void the_first_message_makes_a_topic_after_its_template(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("new", "x");
    assert_int_equal(rig_produce(rig, &r), OK);
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "new", &t));
    assert_int_equal(t.write_queues, 4);
    assert_int_equal(t.read_queues, 4);
    assert_int_equal(t.perm, PERM_READ | PERM_WRITE);
    assert_int_equal(rig->topics_changed, 1);

    assert_int_equal(rig_produce(rig, &r), OK);
    assert_int_equal(rig->topics_changed, 1); /* nothing new */
}

static void a_new_topic_has_no_more_queues_than_its_template_and_at_least_one(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *name;
        int32_t asked, got;
    } cases[] = {{"many", 1000000, 8}, {"none", 0, 1}, {"fewer", -5, 1}, {"some", 3, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct produce r = rig_message(cases[i].name, "x");
        r.default_queues = cases[i].asked;
        assert_int_equal(rig_produce(rig, &r), OK);
        struct topic_settings t = {0};
        assert_true(rig_topic(rig, cases[i].name, &t));
        assert_int_equal(t.write_queues, cases[i].got);
    }
}

static void without_automatic_creation_a_topic_stays_unknown(void **state)
{
    struct rig *rig = *state;
    rig->options.auto_topics = false; /* TBW102 is in topics.json by now */
    rig_again(rig);
    struct produce r = rig_message("new", "x");
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_TOPIC);
    assert_non_null(strstr(r.why.text, "new"));
    assert_non_null(strstr(r.why.text, "autoCreateTopicEnable"));
    assert_false(rig_topic(rig, "new", NULL));
    assert_int_equal(rig->topics_changed, 0);
}

static void a_default_topic_that_is_no_template_makes_nothing(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("new", "x");
    r.default_topic = BYTES("SELF_TEST_TOPIC"); /* there, but not to be inherited from */
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_TOPIC);
    r.default_topic = BYTES("nowhere");
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_TOPIC);
    r.default_topic = (struct bytes){0};
    assert_int_equal(rig_produce(rig, &r), ERR_UNKNOWN_TOPIC);
}

static void the_limit_of_topics_is_named(void **state)
{
    struct rig *rig = *state;
    rig->options.max_topics = (uint32_t)rig->broker->topics.n + 1;
    rig_again(rig);
    struct produce r = rig_message("one", "x");
    assert_int_equal(rig_produce(rig, &r), OK);
    r = rig_message("two", "x");
    assert_int_equal(rig_produce(rig, &r), ERR_BUSY);
    assert_non_null(strstr(r.why.text, "maxTopics"));
    r = rig_message("one", "x");
    assert_int_equal(rig_produce(rig, &r), OK); /* those that are there go on */
}

/* As after a crash before the settings were saved: the messages are there, topics.json is not. */
static void a_topic_that_only_the_log_knows_is_made_anew(void **state)
{
    struct rig *rig = *state;
    struct produce r = rig_message("lost", "x");
    r.queue_id = 2;
    assert_int_equal(rig_produce(rig, &r), OK);
    rig_send(rig, "lost", "", "y");
    rig_send(rig, "lost", "", "z");
    rig_stop(rig);
    assert_int_equal(rig->vfs->calls->remove(rig->vfs, "config/topics.json", NULL), OK);
    struct fault why = {0};
    assert_int_equal(rig_start(rig, &why), OK);
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "lost", &t));
    assert_int_equal(t.read_queues, 3);
    assert_int_equal(t.perm, PERM_READ | PERM_WRITE);
    assert_non_null(strstr(broker_note(rig->broker), "1 topics"));
    struct pull pull = rig_pull("g", "lost", 0);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 2);
    rig_drop(&got.read);
    rig_again(rig); /* from now on it is known */
    assert_string_equal(broker_note(rig->broker), "");
    assert_true(rig_topic(rig, "lost", NULL));
}

static void name_servers_are_told_every_topic(void **state)
{
    struct rig *rig = *state;
    rig_send(rig, "mine", "", "x");
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct topic_settings *topics;
    size_t n;
    struct data_version version;
    assert_int_equal(broker_topics(rig->broker, &arena, &topics, &n, &version), OK);
    assert_int_equal(n, rig->broker->topics.n);
    assert_int_equal(version.counter, 1);
    assert_int_equal(version.timestamp, START_MS);
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found = found || bytes_equal(topics[i].name, BYTES("mine"));
    assert_true(found);
    arena_clear(&arena);
}

static void a_broker_that_may_not_be_written_shows_it_in_its_topics(void **state)
{
    struct rig *rig = *state;
    rig->options.perm = PERM_READ;
    rig_again(rig);
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct topic_settings *topics;
    size_t n;
    struct data_version version;
    assert_int_equal(broker_topics(rig->broker, &arena, &topics, &n, &version), OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(topics[i].perm & PERM_WRITE, 0);
    arena_clear(&arena);
}

static void a_list_that_does_not_fit_is_an_error(void **state)
{
    struct rig *rig = *state;
    for (size_t max = 0; max < 1024; max += 16) {
        struct arena arena;
        arena_init(&arena, max);
        struct topic_settings *topics;
        size_t n;
        struct data_version version;
        assert_int_equal(broker_topics(rig->broker, &arena, &topics, &n, &version), ERR_TOO_BIG);
        arena_clear(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(every_broker_has_the_system_topics),
        rig_test(a_file_from_before_wins_over_the_system_s_settings),
        rig_test(the_first_message_makes_a_topic_after_its_template),
        rig_test(a_new_topic_has_no_more_queues_than_its_template_and_at_least_one),
        rig_test(without_automatic_creation_a_topic_stays_unknown),
        rig_test(a_default_topic_that_is_no_template_makes_nothing),
        rig_test(the_limit_of_topics_is_named),
        rig_test(a_topic_that_only_the_log_knows_is_made_anew),
        rig_test(name_servers_are_told_every_topic),
        rig_test(a_broker_that_may_not_be_written_shows_it_in_its_topics),
        rig_test(a_list_that_does_not_fit_is_an_error),
    };
    return cmocka_run_group_tests_name("broker/topics", tests, NULL, NULL);
}
