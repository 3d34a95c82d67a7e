/* What goes through the broker is counted, by topic, queue, group and in all. */
#include "broker/rig_test.h"

#define BODY "0123456789"

static struct stat_windows stat_of(struct rig *rig, const char *name, const char *key)
{
    struct stat_windows out = {0};
    struct fault why = {0};
    if (broker_stat(rig->broker, bytes_str(name), bytes_str(key), &out, &why))
        fail_msg("%s", why.text);
    return out;
}

static bool stat_there(struct rig *rig, const char *name, const char *key)
{
    struct stat_windows out;
    return broker_stat(rig->broker, bytes_str(name), bytes_str(key), &out, NULL) == OK;
}

/* As the house does: often. */
static void time_passes(struct rig *rig, int64_t seconds)
{
    for (int64_t i = 0; i < seconds; i++) {
        clock_manual_advance(&rig->clock, 1000);
        broker_hold_turn(rig->broker);
    }
}

static void send_to(struct rig *rig, const char *topic, int32_t queue_id)
{
    struct produce r = rig_message(topic, BODY);
    r.queue_id = queue_id;
    assert_int_equal(rig_produce(rig, &r), OK);
    broker_dispatch_turn(rig->broker);
}

static uint32_t read_by(struct rig *rig, const char *group, const char *topic, int64_t offset)
{
    struct pull pull = rig_pull(group, topic, offset);
    struct pulled got;
    assert_int_equal(broker_pull(rig->broker, &pull, &got, NULL), OK);
    filter_drop(got.filter);
    rig_drop(&got.read);
    return got.read.count;
}

static void what_comes_in_shows_at_once_and_goes_out_of_the_spans(void **state)
{
    struct rig *rig = *state;
    assert_false(stat_there(rig, "TOPIC_PUT_NUMS", "T"));
    for (int i = 0; i < 6; i++)
        send_to(rig, "T", i % 2);
    struct stat_windows in = stat_of(rig, "TOPIC_PUT_NUMS", "T");
    assert_int_equal(in.minute.sum, 6);
    assert_int_equal(in.hour.sum, 6);
    assert_int_equal(in.day.sum, 6);
    assert_true(in.minute.per_second == 6);
    uint64_t size = stat_of(rig, "TOPIC_PUT_SIZE", "T").minute.sum;
    assert_int_equal(size, store_confirmed(rig->store));
    assert_int_equal(stat_of(rig, "QUEUE_PUT_NUMS", "T@0").minute.sum, 3);
    assert_int_equal(stat_of(rig, "QUEUE_PUT_SIZE", "T@1").minute.sum, size / 2);
    assert_false(stat_there(rig, "QUEUE_PUT_NUMS", "T@2"));
    assert_int_equal(stat_of(rig, "BROKER_PUT_NUMS", "DefaultCluster").day.sum, 6);

    time_passes(rig, 60);
    assert_true(stat_of(rig, "TOPIC_PUT_NUMS", "T").minute.per_second == 0.1);
    time_passes(rig, 20);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").minute.sum, 0);
    assert_int_equal(stat_of(rig, "QUEUE_PUT_NUMS", "T@0").minute.sum, 0);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").hour.sum, 6);
    time_passes(rig, 80 * 60);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").hour.sum, 0);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").day.sum, 6);
    clock_manual_advance(&rig->clock, INT64_C(26) * 3600 * 1000);
    broker_hold_turn(rig->broker);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").day.sum, 0);
    send_to(rig, "T", 0);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").day.sum, 1);
}

static void what_groups_read_is_counted_for_each_of_them(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 5; i++)
        send_to(rig, "T", 0);
    assert_int_equal(read_by(rig, "g1", "T", 0), 5);
    assert_int_equal(read_by(rig, "g2", "T", 3), 2);
    assert_int_equal(read_by(rig, "g1", "T", 5), 0); /* nothing there: no reading */
    struct stat_windows read = stat_of(rig, "GROUP_GET_NUMS", "T@g1");
    assert_int_equal(read.minute.sum, 5);
    assert_true(read.minute.average == 5);
    assert_int_equal(stat_of(rig, "GROUP_GET_NUMS", "T@g2").minute.sum, 2);
    assert_int_equal(stat_of(rig, "GROUP_GET_SIZE", "T@g1").day.sum, store_confirmed(rig->store));
    assert_int_equal(stat_of(rig, "GROUP_GET_LATENCY", "T@g1").day.sum, 0);
    assert_int_equal(stat_of(rig, "QUEUE_GET_NUMS", "T@0").minute.sum, 7);
    assert_int_equal(stat_of(rig, "BROKER_GET_NUMS", "DefaultCluster").minute.sum, 7);

    struct broker_numbers all;
    broker_numbers(rig->broker, &all);
    assert_int_equal(all.put, 5);
    assert_int_equal(all.got, 7);
    assert_int_equal(all.put_size, store_confirmed(rig->store));
    assert_int_equal(all.pulls.count, 2);

    /* A group that has only read has come nowhere, and nothing of it is saved. */
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct bytes *groups;
    size_t n;
    assert_int_equal(broker_topic_groups(rig->broker, BYTES("T"), &arena, &groups, &n), OK);
    assert_int_equal(n, 0);
    struct buf table = buf_upto(1 << 20);
    assert_int_equal(broker_table_write(rig->broker, TABLE_OFFSETS, &table), OK);
    assert_null(memmem(table.at, table.len, "T@g1", 4));
    buf_clear(&table);
    arena_clear(&arena);
}

static void a_deleted_topic_is_forgotten(void **state)
{
    struct rig *rig = *state;
    send_to(rig, "T", 0);
    send_to(rig, "U", 0);
    assert_int_equal(read_by(rig, "g", "T", 0), 1);
    time_passes(rig, 30);
    assert_int_equal(broker_topic_delete(rig->broker, BYTES("T"), NULL), OK);
    assert_false(stat_there(rig, "TOPIC_PUT_NUMS", "T"));
    assert_false(stat_there(rig, "QUEUE_PUT_NUMS", "T@0"));
    assert_false(stat_there(rig, "GROUP_GET_NUMS", "T@g"));
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "U").minute.sum, 1);
    assert_int_equal(stat_of(rig, "BROKER_PUT_NUMS", "DefaultCluster").minute.sum, 2);
    send_to(rig, "T", 0); /* made anew, it begins at zero */
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").day.sum, 1);
    assert_int_equal(stat_of(rig, "QUEUE_GET_NUMS", "T@0").minute.sum, 0);
    time_passes(rig, 120);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").minute.sum, 0);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "T").day.sum, 1);
}

static void what_is_given_back_is_counted(void **state)
{
    struct rig *rig = *state;
    send_to(rig, "T", 0);
    assert_int_equal(read_by(rig, "g", "T", 0), 1);
    struct send_back back = {.group = BYTES("g"), .position = 0};
    uint64_t end;
    assert_int_equal(broker_send_back(rig->broker, rig->desk, &back, &end, NULL), OK);
    broker_dispatch_turn(rig->broker);
    assert_int_equal(stat_of(rig, "SNDBCK_PUT_NUMS", "T@g").minute.sum, 1);
    assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX").minute.sum, 1);
}

static void what_is_unknown_is_told_by_name(void **state)
{
    struct rig *rig = *state;
    static const char *const wrong[][2] = {
        {"NO_SUCH", "T"},          {"TOPIC_PUT_NUMS", ""},   {"QUEUE_PUT_NUMS", "T"},
        {"QUEUE_PUT_NUMS", "T@x"}, {"GROUP_GET_NUMS", "T@"}, {"BROKER_PUT_NUMS", "other"},
    };
    send_to(rig, "T", 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct stat_windows out;
        struct fault why = {0};
        assert_int_equal(
            broker_stat(rig->broker, bytes_str(wrong[i][0]), bytes_str(wrong[i][1]), &out, &why),
            ERR_NOT_FOUND);
        assert_non_null(strstr(why.text, wrong[i][0]));
    }
}

/* Twice what it was at most, and never less. */
static void times_fall_into_buckets_of_powers_of_two(void **state)
{
    struct rig *rig = *state;
    struct broker_numbers all;
    struct lane *nowhere[98] = {0};
    broker_sends_took(rig->broker, 900, nowhere, 98); /* below a microsecond */
    broker_sends_took(rig->broker, 3000000, nowhere, 1);
    broker_sends_took(rig->broker, UINT64_C(3600) * 1000000000, nowhere, 1);
    broker_numbers(rig->broker, &all);
    assert_int_equal(all.sends.count, 100);
    assert_int_equal(all.sends.buckets[0], 98);
    assert_int_equal(all.sends.buckets[LATENCY_BUCKETS - 1], 1);
    assert_int_equal(latency_quantile_us(&all.sends, 0.5), 1);
    assert_int_equal(latency_quantile_us(&all.sends, 0.99), 4096);
    assert_int_equal(latency_quantile_us(&all.sends, 1), UINT64_C(1) << (LATENCY_BUCKETS - 1));
    assert_int_equal(latency_quantile_us(&all.pulls, 0.5), 0);
}

static struct latency latency_of(struct rig *rig, const char *name, const char *key)
{
    struct latency out;
    assert_int_equal(broker_latency(rig->broker, bytes_str(name), bytes_str(key), &out), OK);
    return out;
}

/* Sends of one turn to more queues than are added up at once, and some more. */
static void times_of_sends_are_of_their_queues_and_topics(void **state)
{
    struct rig *rig = *state;
    struct lane *lanes[100];
    size_t n = 0;
    rig_topic_put(rig, "T", 20, 6);
    for (int i = 0; i < 50; i++) {
        struct produce r = rig_message(i % 25 < 20 ? "T" : "U", "x");
        r.queue_id = i % 25 < 20 ? i % 25 : 0;
        assert_int_equal(rig_produce(rig, &r), OK);
        lanes[n++] = r.lane;
    }
    broker_sends_took(rig->broker, 3000, lanes, n);
    broker_sends_took(rig->broker, 500000000, lanes, 1);
    assert_int_equal(latency_of(rig, "QUEUE_PUT_LATENCY", "T@0").count, 3);
    assert_int_equal(latency_of(rig, "QUEUE_PUT_LATENCY", "T@19").count, 2);
    assert_int_equal(latency_of(rig, "QUEUE_PUT_LATENCY", "T@19").buckets[2], 2);
    assert_int_equal(latency_of(rig, "TOPIC_PUT_LATENCY", "T").count, 41);
    assert_int_equal(latency_of(rig, "TOPIC_PUT_LATENCY", "U").count, 10);
    assert_int_equal(latency_of(rig, "TOPIC_GET_LATENCY", "T").count, 0);
    assert_int_equal(latency_of(rig, "BROKER_PUT_LATENCY", "DefaultCluster").count, 51);

    struct stat_windows part = stat_of(rig, "QUEUE_PUT_LATENCY_50", "T@0");
    assert_int_equal(part.minute.sum, 3);
    assert_true(part.day.average == 0.004);
    assert_true(stat_of(rig, "QUEUE_PUT_LATENCY_MAX", "T@0").hour.average == 524.288);
    assert_true(stat_of(rig, "TOPIC_PUT_LATENCY_99", "U").hour.average == 0.004);

    assert_int_equal(broker_topic_delete(rig->broker, BYTES("T"), NULL), OK);
    assert_false(stat_there(rig, "TOPIC_PUT_LATENCY_50", "T"));
    assert_int_equal(latency_of(rig, "TOPIC_PUT_LATENCY", "U").count, 10);
}

static void times_of_pulls_are_of_their_queues_and_groups(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 3; i++)
        send_to(rig, "T", 0);
    assert_int_equal(read_by(rig, "g1", "T", 0), 3);
    assert_int_equal(read_by(rig, "g1", "T", 3), 0); /* nothing there: no reading */
    assert_int_equal(read_by(rig, "g2", "T", 0), 3);
    assert_int_equal(read_by(rig, "g2", "T", 1), 2);
    assert_int_equal(latency_of(rig, "GROUP_GET_LATENCY", "T@g1").count, 1);
    assert_int_equal(latency_of(rig, "GROUP_GET_LATENCY", "T@g2").count, 2);
    assert_int_equal(latency_of(rig, "QUEUE_GET_LATENCY", "T@0").count, 3);
    assert_int_equal(latency_of(rig, "TOPIC_GET_LATENCY", "T").count, 3);
    assert_int_equal(latency_of(rig, "BROKER_GET_LATENCY", "DefaultCluster").count, 3);
    assert_int_equal(stat_of(rig, "GROUP_GET_LATENCY_999", "T@g2").day.sum, 2);
    static const char *const wrong[][2] = {
        {"GROUP_GET_LATENCY_98", "T@g1"},
        {"GROUP_PUT_LATENCY_99", "T@g1"},
        {"QUEUE_GET_LATENCY_99", "T"},
        {"QUEUE_GET_LATENCY_99", "T@7"},
        {"_99", "T"},
        {"BROKER_PUT_LATENCY_99", "other"},
        {"TOPIC_PUT_LATENCY_99", ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(stat_there(rig, wrong[i][0], wrong[i][1]));
}

/* More topics and groups than one step of a round looks at. */
static void a_round_reaches_everybody(void **state)
{
    struct rig *rig = *state;
    rig->options.max_topics = rig->options.max_groups = 2000;
    rig_again(rig);
    char topic[16], group[16], key[32];
    for (int i = 0; i < 600; i++) {
        snprintf(topic, sizeof topic, "T%d", i);
        snprintf(group, sizeof group, "g%d", i);
        send_to(rig, topic, 0);
        assert_int_equal(read_by(rig, group, topic, 0), 1);
    }
    time_passes(rig, 100);
    for (int i = 0; i < 600; i++) {
        snprintf(topic, sizeof topic, "T%d", i);
        snprintf(key, sizeof key, "T%d@g%d", i, i);
        assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", topic).minute.sum, 0);
        assert_int_equal(stat_of(rig, "TOPIC_PUT_NUMS", topic).day.sum, 1);
        assert_int_equal(stat_of(rig, "GROUP_GET_NUMS", key).minute.sum, 0);
        assert_int_equal(stat_of(rig, "GROUP_GET_NUMS", key).hour.sum, 1);
    }
}

static void a_new_day_keeps_what_there_was_in_the_morning(void **state)
{
    struct rig *rig = *state;
    struct broker_numbers all;
    send_to(rig, "T", 0);
    clock_manual_advance(&rig->clock, INT64_C(24) * 3600 * 1000);
    broker_hold_turn(rig->broker);
    time_passes(rig, 1);
    send_to(rig, "T", 0);
    broker_numbers(rig->broker, &all);
    assert_int_equal(all.put, 2);
    assert_int_equal(all.put_mornings[0], 1);
    assert_int_equal(all.put_mornings[1], 0);
    clock_manual_advance(&rig->clock, INT64_C(24) * 3600 * 1000);
    broker_hold_turn(rig->broker);
    broker_numbers(rig->broker, &all);
    assert_int_equal(all.put_mornings[0], 2);
    assert_int_equal(all.put_mornings[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(what_comes_in_shows_at_once_and_goes_out_of_the_spans),
        rig_test(what_groups_read_is_counted_for_each_of_them),
        rig_test(a_deleted_topic_is_forgotten),
        rig_test(what_is_given_back_is_counted),
        rig_test(what_is_unknown_is_told_by_name),
        rig_test(times_fall_into_buckets_of_powers_of_two),
        rig_test(times_of_sends_are_of_their_queues_and_topics),
        rig_test(times_of_pulls_are_of_their_queues_and_groups),
        rig_test(a_round_reaches_everybody),
        rig_test(a_new_day_keeps_what_there_was_in_the_morning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
