/* settings_test.c - settings of topics and groups, in the form Apache's files have them. */
#include "base/json.h"
#include "base/test.h"
#include "msg/msg.h"

/* As in topics.json and subscriptionGroup.json of a 5.3.3 broker, without their blanks. */
static const char topic_text[] =
    "{\"attributes\":{\"message.type\":\"FIFO\"},\"order\":true,\"perm\":7,\"readQueueNums\":4,"
    "\"topicFilterType\":\"MULTI_TAG\",\"topicName\":\"T\",\"topicSysFlag\":3,"
    "\"writeQueueNums\":8}";
static const char group_text[] =
    "{\"attributes\":{},\"brokerId\":0,\"consumeBroadcastEnable\":true,\"consumeEnable\":true,"
    "\"consumeFromMinEnable\":true,\"consumeMessageOrderly\":false,\"consumeTimeoutMinute\":15,"
    "\"groupName\":\"g\",\"groupRetryPolicy\":{\"type\":\"CUSTOMIZED\"},\"groupSysFlag\":0,"
    "\"notifyConsumerIdsChangedEnable\":true,\"retryMaxTimes\":16,\"retryQueueNums\":1,"
    "\"whichBrokerWhenConsumeSlowly\":1}";

struct desk {
    struct arena arena;
    struct buf out;
};

static int set_up(void **state)
{
    struct desk *d = calloc(1, sizeof *d);
    arena_init(&d->arena, 1 << 20);
    d->out = buf_upto(1 << 20);
    *state = d;
    return 0;
}

static int tear_down(void **state)
{
    struct desk *d = *state;
    arena_clear(&d->arena);
    buf_clear(&d->out);
    free(d);
    return 0;
}

static const struct json *parsed(struct desk *d, const char *text)
{
    const struct json *node;
    assert_int_equal(json_parse(bytes_str(text), &d->arena, &node, NULL), OK);
    return node;
}

static void a_topic_goes_both_ways(void **state)
{
    struct desk *d = *state;
    struct topic_settings t;
    assert_int_equal(topic_settings_read(parsed(d, topic_text), BYTES("T"), &d->arena, &t), OK);
    assert_bytes_equal(t.name, BYTES("T"));
    assert_int_equal(t.read_queues, 4);
    assert_int_equal(t.write_queues, 8);
    assert_int_equal(t.perm, 7);
    assert_int_equal(t.sys_flag, 3);
    assert_true(t.order);
    assert_true(t.multi_tag);
    assert_bytes_equal(t.attributes, BYTES("{\"message.type\":\"FIFO\"}"));

    topic_settings_write(&(struct json_out){.buf = &d->out}, &t);
    assert_bytes_equal(buf_bytes(&d->out), bytes_str(topic_text));
}

static void a_group_goes_both_ways(void **state)
{
    struct desk *d = *state;
    struct group_settings g;
    assert_int_equal(group_settings_read(parsed(d, group_text), BYTES("g"), &d->arena, &g), OK);
    group_settings_write(&(struct json_out){.buf = &d->out}, &g);
    assert_bytes_equal(buf_bytes(&d->out), bytes_str(group_text));

    /* Everything other than it was, so that nothing is mixed up. */
    g = (struct group_settings){
        .name = BYTES("h"),
        .orderly = true,
        .retry_queues = 2,
        .retry_max = -1,
        .broker_id = 5,
        .slow_broker_id = 6,
        .sys_flag = 7,
        .consume_timeout_min = 8,
        .attributes = BYTES("{\"a\":\"b\"}"),
        .retry_policy = BYTES("{\"exponentialRetryPolicy\":{\"max\":9},\"type\":\"EXPONENTIAL\"}"),
    };
    buf_clear(&d->out);
    group_settings_write(&(struct json_out){.buf = &d->out}, &g);
    const struct json *node;
    assert_int_equal(json_parse(buf_bytes(&d->out), &d->arena, &node, NULL), OK);
    struct group_settings again;
    assert_int_equal(group_settings_read(node, BYTES(""), &d->arena, &again), OK);
    assert_bytes_equal(again.attributes, g.attributes);
    assert_bytes_equal(again.retry_policy, g.retry_policy);
    assert_bytes_equal(again.name, g.name);
    assert_false(again.consume_enable || again.from_min_enable || again.broadcast_enable);
    assert_false(again.notify_changes);
    assert_true(again.orderly);
    assert_int_equal(again.retry_queues, 2);
    assert_int_equal(again.retry_max, -1);
    assert_int_equal(again.broker_id, 5);
    assert_int_equal(again.slow_broker_id, 6);
    assert_int_equal(again.sys_flag, 7);
    assert_int_equal(again.consume_timeout_min, 8);
}

/* What 4.9 does not write, and what makes no sense. */
static void absent_members_take_the_defaults(void **state)
{
    struct desk *d = *state;
    const char *nonsense = "{\"perm\":99999999999,\"attributes\":null,"
                           "\"readQueueNums\":\"many\",\"topicFilterType\":[]}";
    const char *odd[] = {"{}", "[]", "null", nonsense};
    for (size_t i = 0; i < 4; i++) {
        struct topic_settings t;
        assert_int_equal(topic_settings_read(parsed(d, odd[i]), BYTES("T"), &d->arena, &t), OK);
        assert_int_equal(t.read_queues, 16);
        assert_int_equal(t.write_queues, 16);
        assert_int_equal(t.perm, 6);
        assert_false(t.order || t.multi_tag);
        assert_int_equal(t.attributes.len, 0);
    }
    struct group_settings g;
    assert_int_equal(group_settings_read(parsed(d, "{}"), BYTES("g"), &d->arena, &g), OK);
    group_settings_write(&(struct json_out){.buf = &d->out}, &g);
    assert_bytes_equal(buf_bytes(&d->out), bytes_str(group_text));
}

/* The key wins over the name inside; without a key the name inside counts. */
static void the_name_is_the_key(void **state)
{
    struct desk *d = *state;
    struct topic_settings t;
    const struct json *node = parsed(d, topic_text);
    assert_int_equal(topic_settings_read(node, BYTES("key"), &d->arena, &t), OK);
    assert_bytes_equal(t.name, BYTES("key"));
    assert_int_equal(topic_settings_read(node, BYTES(""), &d->arena, &t), OK);
    assert_bytes_equal(t.name, BYTES("T"));
}

static void attributes_that_find_no_room_are_an_error(void **state)
{
    struct desk *d = *state;
    struct arena full;
    arena_init(&full, 8);
    struct topic_settings t = {.perm = 77};
    const struct json *node = parsed(d, topic_text);
    assert_int_equal(topic_settings_read(node, BYTES("T"), &full, &t), ERR_TOO_BIG);
    assert_int_equal(t.perm, 77);
    arena_clear(&full);
}

static void a_data_version_goes_both_ways(void **state)
{
    struct desk *d = *state;
    const char *text = "{\"counter\":5,\"stateVersion\":2,\"timestamp\":1794770173872}";
    struct data_version v = data_version_read(parsed(d, text));
    assert_int_equal(v.counter, 5);
    assert_int_equal(v.state, 2);
    assert_int_equal(v.timestamp, 1794770173872);
    data_version_write(&(struct json_out){.buf = &d->out}, &v);
    assert_bytes_equal(buf_bytes(&d->out), bytes_str(text));

    v = data_version_read(NULL);
    assert_true(v.counter == 0 && v.state == 0 && v.timestamp == 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_topic_goes_both_ways),
        CASE(a_group_goes_both_ways),
        CASE(absent_members_take_the_defaults),
        CASE(the_name_is_the_key),
        CASE(attributes_that_find_no_room_are_an_error),
        CASE(a_data_version_goes_both_ways),
    };
    return cmocka_run_group_tests_name("msg/settings", tests, NULL, NULL);
}
