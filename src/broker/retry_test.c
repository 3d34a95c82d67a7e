/* Messages that are given back: the ladder of retries, and the dead letters at its end. */
#include "broker/later_test.h"
#include "store/vfs_fault.h"

#define KEY "7F0000010A2B18B4AAC2000000000001"

static const int64_t ladder_s[] = {10,  30,  60,  120, 180,  240,  300,  360,
                                   420, 480, 540, 600, 1200, 1800, 3600, 7200};

static enum err give_back(struct rig *rig, const struct send_back *back, struct fault *why)
{
    uint64_t end = 0;
    enum err err = broker_send_back(rig->broker, rig->desk, back, &end, why);
    broker_dispatch_turn(rig->broker);
    return err;
}

/* Gives back the newest message of a queue, as its consumer would; its number of tries before. */
static int32_t give_back_last(struct rig *rig, const char *topic, const char *group, int32_t max)
{
    struct slice got;
    struct record record = later_record(rig, topic, 0, later_count(rig, topic, 0) - 1, &got);
    struct send_back back = {.group = bytes_str(group),
                             .position = record.position,
                             .max_reconsume_times = max,
                             .has_max_reconsume_times = max >= 0};
    assert_bytes_equal(later_prop(record.props, "UNIQ_KEY"), BYTES(KEY));
    counted_drop(got.owner);
    struct fault why = {0};
    assert_int_equal(give_back(rig, &back, &why), OK);
    return record.reconsume_times;
}

static int64_t send_one(struct rig *rig, const char *topic)
{
    later_send(rig, topic, "KEYS\1k1 k2\2TAGS\1A\2own\1v\2UNIQ_KEY\1" KEY "\2WAIT\1true\2",
               "hello");
    struct slice got;
    struct record record = later_record(rig, topic, 0, later_count(rig, topic, 0) - 1, &got);
    counted_drop(got.owner);
    return record.position;
}

/* The next retry comes after exactly so long. */
static void comes_after(struct rig *rig, const char *retry, int64_t ms)
{
    int64_t before = later_count(rig, retry, 0);
    clock_manual_advance(&rig->clock, ms - 1);
    assert_int_equal(later_turn(rig), 0);
    clock_manual_advance(&rig->clock, 1);
    assert_int_equal(later_turn(rig), 1);
    assert_int_equal(later_count(rig, retry, 0), before + 1);
}

/* 17 executions at cumulative 0, 10, 40, 100 … 17,140 s, the same id in all, then one dead letter.
 */
static void RT_4_RT_5_RT_7_DS_11_DL_2_sixteen_retries_and_then_the_dead_letters(void **state)
{
    struct rig *rig = *state;
    static const int64_t cumulative_s[] = {10,   40,   100,  220,  400,  640,  940,  1300,
                                           1720, 2200, 2740, 3340, 4540, 6340, 9940, 17140};
    send_one(rig, "T");
    assert_false(rig_topic(rig, "%RETRY%g", NULL));
    int executions = 1;
    assert_int_equal(give_back_last(rig, "T", "g", -1), 0);
    assert_true(rig_topic(rig, "%RETRY%g", NULL));
    for (int i = 0; i < 16; i++) {
        assert_false(rig_topic(rig, "%DLQ%g", NULL));
        comes_after(rig, "%RETRY%g", ladder_s[i] * 1000);
        assert_int_equal(clock_ms(&rig->clock.clock) - START_MS, cumulative_s[i] * 1000);
        executions++;
        assert_int_equal(give_back_last(rig, "%RETRY%g", "g", -1), i + 1);
    }
    assert_int_equal(executions, 17);
    assert_int_equal(later_count(rig, "%DLQ%g", 0), 1);
    struct slice got;
    struct record dead = later_record(rig, "%DLQ%g", 0, 0, &got);
    assert_bytes_equal(later_prop(dead.props, "UNIQ_KEY"), BYTES(KEY));
    assert_bytes_equal(later_prop(dead.props, "DLQ_ORIGIN_TOPIC"), BYTES("T"));
    assert_bytes_equal(later_prop(dead.props, "DLQ_ORIGIN_MESSAGE_ID"), BYTES(KEY));
    assert_int_equal(dead.reconsume_times, 17);
    counted_drop(got.owner);
    clock_manual_advance(&rig->clock, 100 * 3600 * 1000);
    assert_int_equal(later_turn(rig), 0);
}

static void RT_8_more_than_sixteen_retries_come_every_two_hours(void **state)
{
    struct rig *rig = *state;
    send_one(rig, "T");
    give_back_last(rig, "T", "g", 20);
    for (int i = 0; i < 20; i++) {
        comes_after(rig, "%RETRY%g", (i < 16 ? ladder_s[i] : 7200) * 1000);
        give_back_last(rig, "%RETRY%g", "g", 20);
    }
    assert_int_equal(later_count(rig, "%RETRY%g", 0), 20);
    assert_int_equal(later_count(rig, "%DLQ%g", 0), 1);
}

static void RT_6_retries_use_the_ladder_from_its_third_level_on(void **state)
{
    struct rig *rig = *state;
    static const int64_t four[] = {1000, 2000, 3000, 4000};
    rig->delays_ms = four;
    rig->n_delays = 4;
    rig_again(rig);
    send_one(rig, "T");
    give_back_last(rig, "T", "g", -1);
    for (int i = 0; i < 4; i++) {
        comes_after(rig, "%RETRY%g", i == 0 ? 3000 : 4000);
        give_back_last(rig, "%RETRY%g", "g", -1);
    }
}

/* Field by field what Apache RocketMQ 5.5.0 was seen to store; DLQ_ORIGIN_… is ours. */
static void records_are_as_apache_stores_them(void **state)
{
    struct rig *rig = *state;
    int64_t position = send_one(rig, "T");
    struct send_back back = {.group = BYTES("g"), .position = position, .delay_level = 1};
    char text[1024], wanted[1024], id[ID_TEXT_MAX];
    (void)id_format(&rig->options.host, position, id);
    assert_int_equal(give_back(rig, &back, NULL), OK);
    clock_manual_advance(&rig->clock, 1000);
    assert_int_equal(later_turn(rig), 1);

    struct slice got;
    struct record r = later_record(rig, "%RETRY%g", 0, 0, &got);
    snprintf(wanted, sizeof wanted,
             "CLUSTER=DefaultCluster DELAY=1 KEYS=k1 k2 MSG_REGION=DefaultRegion "
             "ORIGIN_MESSAGE_ID=%s REAL_QID=0 REAL_TOPIC=%%RETRY%%g RETRY_TOPIC=T TAGS=A "
             "TRACE_ON=true UNIQ_KEY=" KEY " WAIT=false own=v",
             id);
    assert_string_equal(later_props(r.props, text), wanted);
    assert_int_equal(r.reconsume_times, 1);
    assert_int_equal(r.born_ms, START_MS);
    assert_int_equal(r.born_host.port, 4711);
    assert_bytes_equal(r.body, BYTES("hello"));
    back.position = r.position;
    counted_drop(got.owner);

    back.delay_level = -1;
    assert_int_equal(give_back(rig, &back, NULL), OK);
    r = later_record(rig, "%DLQ%g", 0, 0, &got);
    snprintf(wanted, sizeof wanted,
             "CLUSTER=DefaultCluster DELAY=0 DLQ_ORIGIN_MESSAGE_ID=" KEY " DLQ_ORIGIN_TOPIC=T "
             "KEYS=k1 k2 MSG_REGION=DefaultRegion ORIGIN_MESSAGE_ID=%s REAL_QID=0 "
             "REAL_TOPIC=%%RETRY%%g RETRY_TOPIC=T TAGS=A TRACE_ON=true UNIQ_KEY=" KEY
             " WAIT=false own=v",
             id);
    assert_string_equal(later_props(r.props, text), wanted);
    assert_int_equal(r.reconsume_times, 2);
    counted_drop(got.owner);
}

static void the_consumer_may_choose_the_level(void **state)
{
    struct rig *rig = *state;
    struct send_back back = {.group = BYTES("g"), .position = send_one(rig, "T")};
    back.delay_level = 2;
    assert_int_equal(give_back(rig, &back, NULL), OK);
    comes_after(rig, "%RETRY%g", 5000);
    back.delay_level = 1000;
    assert_int_equal(give_back(rig, &back, NULL), OK);
    comes_after(rig, "%RETRY%g", 7200 * 1000);
}

/* Its own number of retries, of which none is one. */
static void the_limit_is_the_request_s_or_the_group_s(void **state)
{
    struct rig *rig = *state;
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_max = 0;
    rig_group_put(rig, &set);
    struct send_back back = {.group = BYTES("g"), .position = send_one(rig, "T")};
    assert_int_equal(give_back(rig, &back, NULL), OK);
    assert_int_equal(later_count(rig, "%DLQ%g", 0), 1);
    back.max_reconsume_times = 1;
    back.has_max_reconsume_times = true;
    assert_int_equal(give_back(rig, &back, NULL), OK);
    assert_int_equal(later_count(rig, "%DLQ%g", 0), 1);
    assert_int_equal(later_count(rig, "SCHEDULE_TOPIC_XXXX", 2), 1);
}

static void what_cannot_be_given_back_is_refused_with_a_reason(void **state)
{
    struct rig *rig = *state;
    int64_t position = send_one(rig, "T");
    struct fault why = {0};
    const int64_t nowhere[] = {position + 1, -1, INT64_MIN, INT64_MAX,
                               (int64_t)store_confirmed(rig->store)};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        struct send_back back = {.group = BYTES("g"), .position = nowhere[i]};
        assert_int_equal(give_back(rig, &back, &why), ERR_NOT_FOUND);
        assert_non_null(strstr(why.text, "look message by offset failed"));
    }
    struct send_back back = {.group = BYTES("no good"), .position = position};
    assert_int_equal(give_back(rig, &back, &why), ERR_UNKNOWN_GROUP);
    back.group = BYTES("");
    assert_int_equal(give_back(rig, &back, &why), ERR_UNKNOWN_GROUP);
    back.group = BYTES("g");
    rig_topic_put(rig, "%RETRY%g", 1, PERM_READ);
    assert_int_equal(give_back(rig, &back, &why), ERR_DENIED);
    rig->options.auto_groups = false;
    rig->options.perm = PERM_READ;
    rig_again(rig);
    back.group = BYTES("stranger");
    assert_int_equal(give_back(rig, &back, &why), ERR_UNKNOWN_GROUP);
    back.group = BYTES("TOOLS_CONSUMER");
    assert_int_equal(give_back(rig, &back, &why), ERR_DENIED);
}

static void a_group_without_retry_queues_wants_no_retries(void **state)
{
    struct rig *rig = *state;
    struct group_settings set = group_settings_default(BYTES("g"));
    set.retry_queues = 0;
    rig_group_put(rig, &set);
    struct send_back back = {.group = BYTES("g"), .position = send_one(rig, "T")};
    uint64_t end = 1, before = store_confirmed(rig->store);
    assert_int_equal(broker_send_back(rig->broker, rig->desk, &back, &end, NULL), OK);
    assert_int_equal(end, 0);
    assert_int_equal(store_confirmed(rig->store), before);
    assert_false(rig_topic(rig, "%RETRY%g", NULL));
}

/* A message whose properties have no room for more is refused, not cut. */
static void properties_that_are_full_are_refused(void **state)
{
    struct rig *rig = *state;
    size_t len = RECORD_PROPS_MAX - rig->broker->added.len - sizeof "UNIQ_KEY" - 34;
    cleanup(free_at) char *props = malloc(len + 1);
    assert_non_null(props);
    memset(props, 'v', len);
    memcpy(props, "own\1", 4);
    props[len] = 0;
    struct produce r = later_send(rig, "T", props, "x");
    struct send_back back = {.group = BYTES("g"),
                             .position = desk_stored(rig->desk)[r.first].position};
    struct fault why = {0};
    assert_int_equal(give_back(rig, &back, &why), ERR_TOO_BIG);
    assert_non_null(strstr(why.text, "properties"));
}

/* ---- the consumer's own way: a send to the retry topic ---- */

/* Witness: seen with Apache RocketMQ 5.5.0; the limit must be passed, not reached. */
static void a_send_that_was_tried_too_often_is_a_dead_letter(void **state)
{
    struct rig *rig = *state;
    static const struct {
        int32_t tries, max; /* max below 0: the group's */
        bool dead;
    } cases[] = {{16, -9, false}, {17, -9, true}, {3, 2, true}, {2, 2, false}, {17, 20, false}};
    char text[1024];
    int64_t dead = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct produce r = rig_message("%RETRY%g", "hello");
        r.props = BYTES("DELAY\1"
                        "5\2RETRY_TOPIC\1T\2ORIGIN_MESSAGE_ID\1abc\2UNIQ_KEY\1" KEY "\2");
        r.reconsume_times = cases[i].tries;
        r.has_max_reconsume_times = cases[i].max >= 0;
        r.max_reconsume_times = cases[i].max;
        assert_int_equal(rig_produce(rig, &r), OK);
        broker_dispatch_turn(rig->broker);
        dead += cases[i].dead;
        assert_int_equal(later_count(rig, "%DLQ%g", 0), dead);
        assert_int_equal(later_count(rig, "SCHEDULE_TOPIC_XXXX", 4), (int64_t)i + 1 - dead);
    }
    struct slice got;
    struct record record = later_record(rig, "%DLQ%g", 0, 0, &got);
    assert_string_equal(later_props(record.props, text),
                        "CLUSTER=DefaultCluster DELAY=-1 DLQ_ORIGIN_MESSAGE_ID=" KEY
                        " DLQ_ORIGIN_TOPIC=T MSG_REGION=DefaultRegion ORIGIN_MESSAGE_ID=abc "
                        "RETRY_TOPIC=T TRACE_ON=true UNIQ_KEY=" KEY);
    assert_int_equal(record.reconsume_times, 17);
    counted_drop(got.owner);
}

/* Client 4.9.8 sends with the limit just reached, client 5.x passes it; while a queue of the group
 * is locked both are dead letters. Witness: the line "Group has unexpired lock record" in Apache's
 * log. */
static void a_send_of_a_group_that_consumes_in_order_is_a_dead_letter(void **state)
{
    struct rig *rig = *state;
    rig_topic_put(rig, "T", 1, PERM_READ | PERM_WRITE);
    struct lock_wish wish = {.topic = BYTES("T")};
    assert_int_equal(broker_lock(rig->broker, BYTES("g"), BYTES("one"), &wish, 1, NULL), OK);
    assert_true(wish.granted);
    for (int64_t n = 1; n <= 2; n++) {
        struct produce r = rig_message("%RETRY%g", "hello");
        r.props = BYTES("DELAY\1"
                        "5\2RETRY_TOPIC\1T\2");
        r.reconsume_times = r.max_reconsume_times = 2;
        r.has_max_reconsume_times = true;
        assert_int_equal(rig_produce(rig, &r), OK);
        broker_dispatch_turn(rig->broker);
        assert_int_equal(later_count(rig, "%DLQ%g", 0), 1);
        assert_int_equal(later_count(rig, "SCHEDULE_TOPIC_XXXX", 4), n - 1);
        clock_manual_advance(&rig->clock, 60001); /* nobody renews the lock */
    }
}

static void a_send_to_a_retry_topic_without_delay_keeps_what_it_says(void **state)
{
    struct rig *rig = *state;
    later_send(rig, "%RETRY%g", "DELAY\1-1\2", "x");
    struct slice got;
    struct record record = later_record(rig, "%RETRY%g", 0, 0, &got);
    assert_bytes_equal(later_prop(record.props, "DELAY"), BYTES("-1"));
    counted_drop(got.owner);
}

/* ---- dead letters ---- */

/* One topic for the group, whoever gave up and wherever the messages came from. */
static void DL_1_DL_3_DL_4_one_topic_holds_the_dead_letters_of_a_group(void **state)
{
    struct rig *rig = *state;
    static const char *const topics[] = {"A", "B"};
    for (int i = 0; i < 2; i++) {
        struct send_back back = {
            .group = BYTES("g"), .position = send_one(rig, topics[i]), .delay_level = -1};
        assert_int_equal(give_back(rig, &back, NULL), OK);
    }
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "%DLQ%g", &t));
    assert_int_equal(t.read_queues, 1);
    assert_int_equal(t.write_queues, 1);
    assert_int_equal(later_count(rig, "%DLQ%g", 0), 2);
    for (int i = 0; i < 2; i++) {
        struct slice got;
        struct record record = later_record(rig, "%DLQ%g", 0, i, &got);
        assert_bytes_equal(later_prop(record.props, "DLQ_ORIGIN_TOPIC"), bytes_str(topics[i]));
        assert_bytes_equal(later_prop(record.props, "RETRY_TOPIC"), bytes_str(topics[i]));
        counted_drop(got.owner);
    }
    clock_manual_advance(&rig->clock, 100 * 3600 * 1000);
    assert_int_equal(later_turn(rig), 0);
    assert_int_equal(later_count(rig, "%RETRY%g", 0), 0); /* what members read gets none */
}

static void DL_6_dead_letters_are_not_readable_until_an_operator_allows_it(void **state)
{
    struct rig *rig = *state;
    struct send_back back = {
        .group = BYTES("g"), .position = send_one(rig, "T"), .delay_level = -1};
    assert_int_equal(give_back(rig, &back, NULL), OK);
    struct topic_settings t = {0};
    assert_true(rig_topic(rig, "%DLQ%g", &t));
    assert_int_equal(t.perm, PERM_WRITE);
    struct pull pull = rig_pull("g", "%DLQ%g", 0);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), ERR_DENIED);
    rig_topic_put(rig, "%DLQ%g", 1, PERM_READ | PERM_WRITE);
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    assert_int_equal(got.read.count, 1);
    rig_drop(&got.read);

    rig->options.dlq_perm = PERM_READ | PERM_WRITE;
    rig_again(rig);
    back.group = BYTES("h");
    assert_int_equal(give_back(rig, &back, NULL), OK);
    assert_true(rig_topic(rig, "%DLQ%h", &t));
    assert_int_equal(t.perm, PERM_READ | PERM_WRITE);
}

/* A disk with room, whatever the one of this machine has. */
static struct vfs_space plenty(void *user)
{
    (void)user;
    return (struct vfs_space){.total = 1000, .free = 900, .available = 900};
}

/* Nobody looks at the topic when log files are deleted: a dead letter goes with its neighbours. */
static void DL_5_dead_letters_are_kept_as_long_as_other_messages(void **state)
{
    struct rig *rig = *state;
    struct vfs_fault *fault = vfs_fault_new(rig->vfs, 1);
    fault->space = plenty;
    rig->store_vfs = &fault->vfs;
    rig->reserved_ms = 72 * 3600 * 1000;
    rig_again(rig);
    struct send_back back = {
        .group = BYTES("g"), .position = send_one(rig, "T"), .delay_level = -1};
    assert_int_equal(give_back(rig, &back, NULL), OK);
    cleanup(free_at) char *big = malloc(3 << 20);
    assert_non_null(big);
    memset(big, 'b', 3 << 20);
    big[(3 << 20) - 1] = 0;
    struct queue *dead = store_queue_find(rig->store, BYTES("%DLQ%g"), 0);
    struct queue *other = store_queue_find(rig->store, BYTES("T"), 0);
    for (int i = 0; i < 3; i++)
        later_send(rig, "U", "", big); /* more than one log file */
    for (int hours = 71; hours <= 74; hours += 3) {
        clock_manual_advance(&rig->clock, (hours == 71 ? 71 : 3) * 3600 * 1000);
        later_send(rig, "U", "", "x");
        for (int i = 0; i < 100; i++) {
            struct store_cleaned cleaned;
            store_flush_turn(rig->store);
            store_keep_turn(rig->store);
            store_clean_turn(rig->store, &cleaned);
            clock_manual_advance(&rig->clock, 1000);
        }
        assert_int_equal(queue_min(rig->store, dead), hours > 72);
        assert_int_equal(queue_min(rig->store, other), hours > 72);
    }
    rig_stop(rig);
    rig->broker = NULL;
    vfs_fault_free(fault);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(RT_4_RT_5_RT_7_DS_11_DL_2_sixteen_retries_and_then_the_dead_letters),
        rig_test(RT_8_more_than_sixteen_retries_come_every_two_hours),
        rig_test(RT_6_retries_use_the_ladder_from_its_third_level_on),
        rig_test(records_are_as_apache_stores_them),
        rig_test(the_consumer_may_choose_the_level),
        rig_test(the_limit_is_the_request_s_or_the_group_s),
        rig_test(what_cannot_be_given_back_is_refused_with_a_reason),
        rig_test(a_group_without_retry_queues_wants_no_retries),
        rig_test(properties_that_are_full_are_refused),
        rig_test(a_send_that_was_tried_too_often_is_a_dead_letter),
        rig_test(a_send_of_a_group_that_consumes_in_order_is_a_dead_letter),
        rig_test(a_send_to_a_retry_topic_without_delay_keeps_what_it_says),
        rig_test(DL_1_DL_3_DL_4_one_topic_holds_the_dead_letters_of_a_group),
        rig_test(DL_6_dead_letters_are_not_readable_until_an_operator_allows_it),
        rig_test(DL_5_dead_letters_are_kept_as_long_as_other_messages),
    };
    return cmocka_run_group_tests_name("broker/retry", tests, NULL, NULL);
}
