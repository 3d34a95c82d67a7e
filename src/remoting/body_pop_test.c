/* POP's handles and bodies: what is read, what is refused, what is written. */
#include "remoting/body_test.h"

static void a_handle_is_eight_parts(void **state)
{
    (void)state;
    struct pop_handle h;
    assert_int_equal(pop_handle_read(BYTES("10 1794770000000 60000 3 0 broker-a 2 11"), &h), OK);
    assert_int_equal(h.start, 10);
    assert_int_equal(h.pop_ms, 1794770000000);
    assert_int_equal(h.invisible_ms, 60000);
    assert_int_equal(h.revive_id, 3);
    static const char *const bad[] = {"",
                                      "10",
                                      "10 1 2 3",
                                      "10 1 2 3 0",
                                      "a 1 2 3 0 b 2 11",
                                      "10 1 2 x 0 b 2 11",
                                      "10  1 2 3 0 b 2 11",
                                      " 10 1 2 3 0 b",
                                      "10 1 2 3 0 ",
                                      "99999999999999999999 1 2 3 0 b 2 11",
                                      "10 1 2 99999999999 0 b 2 11"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pop_handle_read(bytes_str(bad[i]), &h), ERR_MALFORMED);
}

static void a_handle_says_where_its_message_stands(void **state)
{
    (void)state;
    struct pop_place p;
    assert_int_equal(pop_place_read(BYTES("10 1794770000000 60000 3 2 broker-a 7 11"), &p), OK);
    assert_int_equal(p.kind, 2);
    assert_int_equal(p.queue_id, 7);
    assert_int_equal(p.offset, 11);
    static const char *const bad[] = {"",
                                      "1 2 3",
                                      "1 2 3 4 0 b 7",
                                      "1 2 3 4 0 b 7 11 12",
                                      "1 2 3 4 3 b 7 11",
                                      "1 2 3 4 -1 b 7 11",
                                      "1 2 3 4 x b 7 11",
                                      "1 2 3 4 0 b -7 11",
                                      "1 2 3 4 0 b 7 -11",
                                      "1 2 3 4 0 b 7 99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pop_place_read(bytes_str(bad[i]), &p), ERR_MALFORMED);
}

static void where_a_pop_began_is_found_by_its_queue(void **state)
{
    (void)state;
    int64_t start;
    struct bytes info = BYTES("0 3 17;1 5 9;0 5 20;0 6 x;nothing");
    assert_int_equal(pop_start_find(info, 3, &start), OK);
    assert_int_equal(start, 17);
    assert_int_equal(pop_start_find(info, 5, &start), OK); /* the retry topic's is another */
    assert_int_equal(start, 20);
    assert_int_equal(pop_start_find(info, 6, &start), ERR_MALFORMED);
    assert_int_equal(pop_start_find(info, 7, &start), ERR_NOT_FOUND);
    assert_int_equal(pop_start_find((struct bytes){0}, 3, &start), ERR_NOT_FOUND);
}

static void many_are_acknowledged_by_bits(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct batch_ack *acks;
    size_t n;
    struct bytes body =
        BYTES("{\"brokerName\":\"b\",\"acks\":[{\"c\":\"g\",\"t\":\"T\",\"r\":\"1\",\"so\":10,"
              "\"q\":4,\"rq\":3,\"pt\":5,\"it\":7,\"b\":\"BQI=\"}]}");
    assert_int_equal(batch_acks_read(body, &arena, &acks, &n), OK);
    assert_int_equal(n, 1);
    assert_bytes_equal(acks[0].group, BYTES("g"));
    assert_bytes_equal(acks[0].topic, BYTES("T"));
    assert_bytes_equal(acks[0].retry, BYTES("1"));
    assert_int_equal(acks[0].queue_id, 4);
    assert_int_equal(acks[0].handle.revive_id, 3);
    assert_int_equal(acks[0].handle.pop_ms, 5);
    assert_int_equal(acks[0].n, 3); /* 05 02 */
    assert_int_equal(acks[0].offsets[0], 10);
    assert_int_equal(acks[0].offsets[1], 12);
    assert_int_equal(acks[0].offsets[2], 19);

    assert_int_equal(batch_acks_read(BYTES("{}"), &arena, &acks, &n), OK);
    assert_int_equal(n, 0);
    static const char *const bad[] = {
        "[]",
        "{\"acks\":7}",
        "{\"acks\":[7]}",
        "{\"acks\":[{}]}",
        "{\"acks\":[{\"c\":\"g\",\"t\":\"T\",\"q\":0,\"rq\":0,\"b\":\"?\"}]}",
        "{\"acks\":[{\"c\":\"g\",\"t\":\"T\",\"q\":99999999999,\"rq\":0,\"b\":\"\"}]}",
        ("{\"acks\":[{\"c\":\"g\",\"t\":\"T\",\"q\":0,\"rq\":0,\"so\":9223372036854775807,\"b\":"
         "\"Ag\"}]}"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(batch_acks_read(bytes_str(bad[i]), &arena, &acks, &n), ERR_MALFORMED);
    assert_int_equal(batch_acks_read(BYTES("{\"acks\":[{\"c\":\"g\",\"t\":\"T\",\"q\":0,\"rq\":0,"
                                           "\"b\":\"////////\"}]}"),
                                     &arena, &acks, &n),
                     ERR_TOO_BIG); /* 48 at once */
    arena_clear(&arena);
}

static void assignments_are_asked_for_and_told(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    struct assignment_query q;
    assert_int_equal(
        assignment_query_read(BYTES("{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"messageModel\":"
                                    "\"CLUSTERING\",\"strategyName\":\"AVG\",\"topic\":\"T\"}"),
                              &arena, &q),
        OK);
    assert_bytes_equal(q.strategy, BYTES("AVG"));
    assert_false(q.broadcasting);
    assert_int_equal(assignment_query_read(BYTES("{}"), &arena, &q), ERR_MALFORMED);
    struct buf out = buf_upto(1 << 16);
    struct queue_name queue = {BYTES("T"), BYTES("b"), -1};
    assignment_write(&out, &queue, 1, true);
    assert_bytes_equal(buf_bytes(&out),
                       BYTES("{\"messageQueueAssignments\":[{\"messageQueue\":{"
                             "\"brokerName\":\"b\",\"queueId\":-1,\"topic\":\"T\"},\"mode\":"
                             "\"POP\"}]}"));
    buf_clear(&out);
    assignment_write(&out, NULL, 0, false);
    assert_bytes_equal(buf_bytes(&out), BYTES("{}"));
    buf_clear(&out);
    struct mode_body m;
    assert_int_equal(mode_body_read(BYTES("{\"topic\":\"T\",\"consumerGroup\":\"g\",\"mode\":"
                                          "\"POP\",\"popShareQueueNum\":2}"),
                                    &arena, &m),
                     OK);
    assert_true(m.pops);
    assert_int_equal(m.share, 2);
    assert_int_equal(mode_body_read(BYTES("{\"topic\":\"T\",\"consumerGroup\":\"g\",\"mode\":"
                                          "\"GRAB\"}"),
                                    &arena, &m),
                     ERR_MALFORMED);
    arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_says_where_its_message_stands),
        cmocka_unit_test(where_a_pop_began_is_found_by_its_queue),
        cmocka_unit_test(a_handle_is_eight_parts),
        cmocka_unit_test(many_are_acknowledged_by_bits),
        cmocka_unit_test(assignments_are_asked_for_and_told),
    };
    return cmocka_run_group_tests_name("remoting/body_pop", tests, NULL, NULL);
}
