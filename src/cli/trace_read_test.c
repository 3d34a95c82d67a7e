/* trace_read_test.c - message trace, as clients of several ages write it. */
#include "base/test.h"
#include "cli/trace_read.h"

#define F "\1"
#define R "\2"

static void reads_what_clients_of_today_write(void **state)
{
    (void)state;
    struct bytes body =
        BYTES("Pub" F "1700000000000" F "DefaultRegion" F "shop" F "Orders" F "ID1" F "t" F "k" F
              "127.0.0.1:10911" F "5" F "12" F "0" F "OFF1" F "true" F "10.0.0.7" R "SubBefore" F
              "1700000000100" F "null" F "billing" F "REQ" F "ID1" F "2" F "k" R "SubAfter" F
              "REQ" F "ID1" F "33" F "false" F "k" F "4" F "1700000000133" F "billing" R
              "EndTransaction" F "1700000000200" F "r" F "shop" F "Orders" F "ID1" F "t" F "k" F
              "h" F "2" F "TX" F "COMMIT_MESSAGE" F "false" R "Recall" F "1700000000300" F "r" F
              "shop" F "Orders" F "ID1" F "true" R);
    struct trace_event e;
    assert_true(trace_event_next(&body, &e));
    assert_int_equal(e.kind, EVENT_SENT);
    assert_int_equal(e.time_ms, 1700000000000);
    assert_int_equal(e.cost_ms, 12);
    assert_true(e.success && bytes_equal(e.group, BYTES("shop")));
    assert_true(bytes_equal(e.topic, BYTES("Orders")) && bytes_equal(e.id, BYTES("ID1")));
    assert_true(trace_event_next(&body, &e));
    assert_int_equal(e.kind, EVENT_BEGUN);
    assert_int_equal(e.retries, 2);
    assert_true(trace_event_next(&body, &e));
    assert_int_equal(e.kind, EVENT_FINISHED);
    assert_int_equal(e.result, 4);
    assert_int_equal(e.time_ms, 1700000000133);
    assert_true(!e.success && bytes_equal(e.group, BYTES("billing")));
    assert_true(trace_event_next(&body, &e));
    assert_int_equal(e.kind, EVENT_DECIDED);
    assert_true(bytes_equal(e.state, BYTES("COMMIT_MESSAGE")));
    assert_true(trace_event_next(&body, &e));
    assert_int_equal(e.kind, EVENT_RECALLED);
    assert_false(trace_event_next(&body, &e));
}

/* Before 4.7 a Pub had no offset id; SubAfter had neither result nor time. */
static void reads_what_older_clients_wrote(void **state)
{
    (void)state;
    struct bytes body = BYTES("Pub" F "1" F "r" F "g" F "T" F "ID" F "t" F "k" F "h" F "5" F "7" F
                              "0" F "true" R "SubAfter" F "REQ" F "ID" F "3" F "true" F "k" R);
    struct trace_event e;
    assert_true(trace_event_next(&body, &e));
    assert_true(e.kind == EVENT_SENT && e.success);
    assert_true(trace_event_next(&body, &e));
    assert_true(e.kind == EVENT_FINISHED && e.success);
    assert_int_equal(e.result, -1);
    assert_int_equal(e.time_ms, 0);
}

/* Every prefix, each in an exact allocation: nothing is read behind its end, and what is not a
 * record is passed over. */
static void nonsense_is_passed_over(void **state)
{
    (void)state;
    static const char whole[] = "Pub" F "x" R R F R "SubBefore" F F F F F F F R "Hello" F "you" R
                                "SubAfter" F "a" F "b" F "-" F "maybe" F "c" R "Pub";
    struct trace_event e;
    for (size_t cut = 0; cut <= sizeof whole - 1; cut++) {
        uint8_t *exact = test_copy((const uint8_t *)whole, cut);
        struct bytes rest = bytes_of(exact, cut);
        size_t n = 0;
        while (trace_event_next(&rest, &e))
            n++;
        assert_true(n <= 2);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_clients_of_today_write),
        cmocka_unit_test(reads_what_older_clients_wrote),
        cmocka_unit_test(nonsense_is_passed_over),
    };
    return cmocka_run_group_tests_name("trace_read", tests, NULL, NULL);
}
