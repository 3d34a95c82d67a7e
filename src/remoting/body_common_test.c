/* body_common_test.c - lists and tables. */
#include "remoting/body_test.h"

static void writes_the_consumer_list_as_apache_does(void **state)
{
    struct desk *d = *state;
    struct bytes frame = vector_load("get_consumer_list_by_group_response");
    struct bytes id = BYTES("127.0.0.1@consumer-1");
    consumer_list_write(&d->out, &id, 1);
    assert_bytes_equal(buf_bytes(&d->out), vector_body(frame));
    vector_free(frame);
}

static void writes_topic_lists(void **state)
{
    struct desk *d = *state;
    struct bytes topics[] = {BYTES("a"), BYTES("b\"")};
    topic_list_write(&d->out, topics, 2, (struct bytes){0});
    assert_bytes_equal(buf_bytes(&d->out), BYTES("{\"topicList\":[\"a\",\"b\\\"\"]}"));
    buf_clear(&d->out);
    topic_list_write(&d->out, NULL, 0, BYTES("1.2.3.4:5"));
    assert_bytes_equal(buf_bytes(&d->out),
                       BYTES("{\"brokerAddr\":\"1.2.3.4:5\",\"topicList\":[]}"));
}

static void writes_tables(void **state)
{
    struct desk *d = *state;
    struct kv pairs[] = {{BYTES("k"), BYTES("v")}, {BYTES("l"), BYTES("")}};
    kv_table_write(&d->out, pairs, 2);
    assert_bytes_equal(buf_bytes(&d->out), BYTES("{\"table\":{\"k\":\"v\",\"l\":\"\"}}"));
    buf_clear(&d->out);
    kv_table_write(&d->out, NULL, 0);
    assert_bytes_equal(buf_bytes(&d->out), BYTES("{\"table\":{}}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(writes_the_consumer_list_as_apache_does),
        CASE(writes_topic_lists),
        CASE(writes_tables),
    };
    return cmocka_run_group_tests_name("remoting/body_common", tests, NULL, NULL);
}
