/* body_lock_test.c - which queues a client wants to lock, and which it got. */
#include "remoting/body_test.h"

/* As the Java client 5.5.0 sends it. */
#define REQUEST                                                                                    \
    BYTES("{\"clientId\":\"127.0.0.1@7\",\"consumerGroup\":\"g\",\"mqSet\":[{\"brokerName\":"      \
          "\"broker-a\",\"queueId\":3,\"topic\":\"T\"},{\"brokerName\":\"broker-a\",\"queueId\":"  \
          "0,\"topic\":\"%RETRY%g\"}],\"onlyThisBroker\":false}")

static enum err read_it(struct bytes body, struct arena *arena)
{
    struct lock_batch b;
    return lock_batch_read(body, arena, &b);
}

static void reads_what_a_java_client_sends(void **state)
{
    struct desk *d = *state;
    struct lock_batch b;
    assert_int_equal(lock_batch_read(REQUEST, &d->arena, &b), OK);
    assert_bytes_equal(b.group, BYTES("g"));
    assert_bytes_equal(b.client_id, BYTES("127.0.0.1@7"));
    assert_int_equal(b.n_queues, 2);
    assert_bytes_equal(b.queues[0].topic, BYTES("T"));
    assert_bytes_equal(b.queues[0].broker, BYTES("broker-a"));
    assert_int_equal(b.queues[0].queue_id, 3);
    assert_bytes_equal(b.queues[1].topic, BYTES("%RETRY%g"));
}

static void writes_what_it_read(void **state)
{
    struct desk *d = *state;
    struct lock_batch b;
    assert_int_equal(lock_batch_read(REQUEST, &d->arena, &b), OK);
    lock_batch_write(&d->out, &b);
    assert_bytes_equal(buf_bytes(&d->out), REQUEST);
}

/* An empty set is written as such: clients take an absent one for null. */
static void writes_the_queues_that_were_locked(void **state)
{
    struct desk *d = *state;
    struct queue_name *queues;
    size_t n;
    locked_write(&d->out, NULL, 0);
    assert_bytes_equal(buf_bytes(&d->out), BYTES("{\"lockOKMQSet\":[]}"));
    d->out.len = 0;
    locked_write(&d->out, &(struct queue_name){BYTES("T"), BYTES("b"), 2}, 1);
    assert_bytes_equal(
        buf_bytes(&d->out),
        BYTES("{\"lockOKMQSet\":[{\"brokerName\":\"b\",\"queueId\":2,\"topic\":\"T\"}]}"));
    assert_int_equal(locked_read(buf_bytes(&d->out), &d->arena, &queues, &n), OK);
    assert_int_equal(n, 1);
    assert_int_equal(queues[0].queue_id, 2);
}

static void refuses_what_names_no_queue(void **state)
{
    struct desk *d = *state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"consumerGroup\":\"g\"}",
        "{\"consumerGroup\":\"\",\"clientId\":\"c\"}",
        "{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":{}}",
        "{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":[1]}",
        "{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":[{\"topic\":\"T\"}]}",
        "{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":[{\"queueId\":1}]}",
        "{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":[{\"topic\":\"T\",\"queueId\":-1}]}",
        ("{\"consumerGroup\":\"g\",\"clientId\":\"c\",\"mqSet\":"
         "[{\"topic\":\"T\",\"queueId\":2147483648}]}"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_it(bytes_str(bad[i]), &d->arena), ERR_MALFORMED);
}

/* What is written is read back; the list of those who write no tables is read as well. */
static void tells_offsets_of_queues(void **state)
{
    struct desk *d = *state;
    struct queue_offset given[] = {{{BYTES("T"), BYTES("broker-a"), 0}, 5},
                                   {{BYTES("T"), BYTES("broker-a"), 1}, INT64_MAX}};
    queue_offsets_write(&d->out, "offsetTable", given, 2);
    assert_true(bytes_equal(
        buf_bytes(&d->out),
        BYTES(
            "{\"offsetTable\":{{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"T\"}:5,"
            "{\"brokerName\":\"broker-a\",\"queueId\":1,\"topic\":\"T\"}:9223372036854775807}}")));
    struct queue_offset *read;
    size_t n;
    assert_int_equal(queue_offsets_read(buf_bytes(&d->out), "offsetTable", &d->arena, &read, &n),
                     OK);
    assert_int_equal(n, 2);
    assert_int_equal(read[1].offset, INT64_MAX);
    assert_int_equal(read[1].queue.queue_id, 1);
    assert_int_equal(
        queue_offsets_read(BYTES("{\"offsetTable\":[{\"brokerName\":\"b\",\"offset\":7,"
                                 "\"queueId\":3,\"topic\":\"T\"}]}"),
                           "offsetTable", &d->arena, &read, &n),
        OK);
    assert_int_equal(read[0].offset, 7);
    static const char *const bad[] = {"{}",
                                      "{\"offsetTable\":5}",
                                      "{\"offsetTable\":{\"x\":5}}",
                                      "{\"offsetTable\":{0:5}}",
                                      "{\"offsetTable\":{{\"topic\":\"T\",\"queueId\":0}:-1}}",
                                      "{\"offsetTable\":{{\"topic\":\"T\",\"queueId\":0}:null}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(queue_offsets_read(bytes_str(bad[i]), "offsetTable", &d->arena, &read, &n),
                         ERR_MALFORMED);
}

static void keeps_the_laws_of_readers(void **state)
{
    struct desk *d = *state;
    refuses_prefixes(REQUEST, read_it, &d->arena);
    survives_changes(REQUEST, read_it, &d->arena);
    bounded_by_the_arena(REQUEST, read_it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(reads_what_a_java_client_sends),
        CASE(writes_what_it_read),
        CASE(writes_the_queues_that_were_locked),
        CASE(refuses_what_names_no_queue),
        CASE(tells_offsets_of_queues),
        CASE(keeps_the_laws_of_readers),
    };
    return cmocka_run_group_tests_name("body_lock", tests, NULL, NULL);
}
