/* names_test.c - what topics and groups may be called. */
#include "base/test.h"
#include "msg/msg.h"

static uint8_t text[300];

static struct bytes long_name(struct bytes prefix, size_t len)
{
    memset(text, 'x', sizeof text);
    memcpy(text, prefix.at, prefix.len);
    return bytes_of(text, len);
}

static void accepts_the_allowed_characters(void **state)
{
    (void)state;
    struct bytes good[] = {BYTES("TopicTest"), BYTES("a"), BYTES("%RETRY%group"), BYTES("ns%topic"),
                           BYTES("A-Z_a-z|0-9")};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(topic_name_check(good[i], NULL), OK);
        assert_int_equal(group_name_check(good[i], NULL), OK);
    }
}

/* Every byte but the 66 that are allowed, in front, in the middle and at the end. */
static void refuses_every_other_character(void **state)
{
    (void)state;
    int allowed = 0;
    for (int c = 0; c < 256; c++) {
        bool good = false;
        for (size_t at = 0; at < 3; at++) {
            uint8_t name[3] = {'a', 'b', 'c'};
            name[at] = (uint8_t)c;
            enum err err = topic_name_check(bytes_of(name, 3), NULL);
            assert_true(err == OK || err == ERR_INVALID);
            assert_int_equal(group_name_check(bytes_of(name, 3), NULL), err);
            assert_true(at == 0 || good == (err == OK));
            good = err == OK;
        }
        allowed += good;
    }
    assert_int_equal(allowed, 26 + 26 + 10 + 4);
}

static void bounds_the_length(void **state)
{
    (void)state;
    struct fault why = {0};
    assert_int_equal(topic_name_check(BYTES(""), &why), ERR_INVALID);
    assert_string_equal(why.text, "the topic has no name");
    assert_int_equal(group_name_check(BYTES(""), &why), ERR_INVALID);

    assert_int_equal(topic_name_check(long_name(BYTES(""), 127), NULL), OK);
    assert_int_equal(topic_name_check(long_name(BYTES(""), 128), &why), ERR_TOO_BIG);
    assert_string_equal(why.text, "the topic's name has 128 bytes, more than 127");
    assert_int_equal(topic_name_check(long_name(BYTES("%RETRY%"), 255), NULL), OK);
    assert_int_equal(topic_name_check(long_name(BYTES("%RETRY%"), 256), NULL), ERR_TOO_BIG);
    assert_int_equal(topic_name_check(long_name(BYTES("%DLQ%"), 255), NULL), OK);
    assert_int_equal(topic_name_check(long_name(BYTES("%DLQ%"), 256), NULL), ERR_TOO_BIG);
    assert_int_equal(group_name_check(long_name(BYTES(""), 120), NULL), OK);
    assert_int_equal(group_name_check(long_name(BYTES("%RETRY%"), 121), NULL), ERR_TOO_BIG);
}

static void says_where_the_character_is(void **state)
{
    (void)state;
    struct fault why = {0};
    assert_int_equal(topic_name_check(BYTES("ab c"), &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "byte 2"));
}

static void knows_the_systems_topics(void **state)
{
    (void)state;
    assert_true(topic_is_system(BYTES("TBW102")));
    assert_true(topic_is_system(BYTES("SCHEDULE_TOPIC_XXXX")));
    assert_true(topic_is_system(BYTES("rmq_sys_wheel_timer")));
    assert_true(topic_is_system(BYTES("rmq_sys_")));
    assert_true(topic_is_system(BYTES("CHECKPOINT_TOPIC")));
    assert_false(topic_is_system(BYTES("TBW1020")));
    assert_false(topic_is_system(BYTES("TopicTest")));
    assert_false(topic_is_system(BYTES("%RETRY%group")));
    assert_false(topic_is_system(BYTES("")));

    assert_true(topic_refuses_clients(BYTES("SCHEDULE_TOPIC_XXXX")));
    assert_true(topic_refuses_clients(BYTES("RMQ_SYS_TRANS_HALF_TOPIC")));
    assert_true(topic_refuses_clients(BYTES("RMQ_SYS_TRANS_OP_HALF_TOPIC")));
    assert_true(topic_refuses_clients(BYTES("TRANS_CHECK_MAX_TIME_TOPIC")));
    assert_true(topic_refuses_clients(BYTES("SELF_TEST_TOPIC")));
    assert_true(topic_refuses_clients(BYTES("OFFSET_MOVED_EVENT")));
    assert_true(topic_refuses_clients(BYTES("rmq_sys_ONCE_LEDGER")));
    assert_true(topic_refuses_clients(BYTES("rmq_sys_wheel_timer")));
    assert_false(topic_refuses_clients(BYTES("TBW102"))); /* Apache's benchmark sends there */
    assert_false(topic_refuses_clients(BYTES("BenchmarkTest")));
    assert_false(topic_refuses_clients(BYTES("RMQ_SYS_TRACE_TOPIC")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_the_allowed_characters),
        cmocka_unit_test(refuses_every_other_character),
        cmocka_unit_test(bounds_the_length),
        cmocka_unit_test(says_where_the_character_is),
        cmocka_unit_test(knows_the_systems_topics),
    };
    return cmocka_run_group_tests_name("msg/names", tests, NULL, NULL);
}
