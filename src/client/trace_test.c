/* trace_test.c - trace records byte for byte, and what does not fit. The records below were
 * compared with Java's TraceDataEncoder, as tests/interop/client_parts.py does with many more. */
#include "client/parts_int.h"

#include "base/test.h"

static const struct trace_record sample = {
    .time_ms = 1700000000000,
    .region = {(const uint8_t *)"R", 1},
    .group = {(const uint8_t *)"g", 1},
    .topic = {(const uint8_t *)"T", 1},
    .id = {(const uint8_t *)"ID1", 3},
    .tags = {(const uint8_t *)"tag", 3},
    .keys = {(const uint8_t *)"k1 k2", 5},
    .store_host = {(const uint8_t *)"10.0.0.1:10911", 14},
    .offset_id = {(const uint8_t *)"OFF", 3},
    .request_id = {(const uint8_t *)"REQ", 3},
    .transaction = {(const uint8_t *)"TX", 2},
    .body_size = 5,
    .cost_ms = 7,
    .retry = 2,
    .success = true,
};

static void assert_record(struct trace_record r, const char *body, const char *keys)
{
    struct trace_batch t;
    trace_init(&t);
    assert_int_equal(trace_add(&t, &r), OK);
    assert_int_equal(t.n, 1);
    assert_bytes_equal(buf_bytes(&t.body), bytes_str(body));
    assert_bytes_equal(buf_bytes(&t.keys), bytes_str(keys));
    trace_clear(&t);
}

static void each_kind_has_its_fields(void **state)
{
    (void)state;
    struct trace_record r = sample;
    r.kind = TRACE_PUB;
    r.type = TRACE_DELAY;
    assert_record(r,
                  "Pub\1"
                  "1700000000000\1R\1g\1T\1ID1\1tag\1k1 k2\1"
                  "10.0.0.1:10911\1"
                  "5\1"
                  "7\1"
                  "3\1OFF\1true\2",
                  "ID1 k1 k2");
    r.kind = TRACE_SUB_BEFORE;
    assert_record(r,
                  "SubBefore\1"
                  "1700000000000\1R\1g\1REQ\1ID1\1"
                  "2\1k1 k2\2",
                  "ID1 k1 k2");
    r.kind = TRACE_SUB_AFTER;
    r.result = TRACE_FAILED;
    r.success = false;
    assert_record(r,
                  "SubAfter\1REQ\1ID1\1"
                  "7\1"
                  "false\1k1 k2\1"
                  "4\1"
                  "1700000000000\1g\2",
                  "ID1 k1 k2");
    r.kind = TRACE_END_TRANSACTION;
    r.type = TRACE_COMMIT;
    r.state = TRACE_ROLLED_BACK;
    r.from_check = true;
    assert_record(r,
                  "EndTransaction\1"
                  "1700000000000\1R\1g\1T\1ID1\1tag\1k1 k2\1"
                  "10.0.0.1:10911\1"
                  "2\1TX\1ROLLBACK_MESSAGE\1true\2",
                  "ID1 k1 k2");
    r.kind = TRACE_RECALL;
    assert_record(r,
                  "Recall\1"
                  "1700000000000\1R\1g\1T\1ID1\1"
                  "false\2",
                  "ID1");
}

static void what_is_missing_is_null(void **state)
{
    (void)state;
    assert_record((struct trace_record){.kind = TRACE_SUB_BEFORE},
                  "SubBefore\1"
                  "0\1null\1null\1null\1null\1"
                  "0\1null\2",
                  "");
    assert_record((struct trace_record){.kind = TRACE_PUB},
                  "Pub\1"
                  "0\1null\1null\1null\1null\1null\1null\1null\1"
                  "0\1"
                  "0\1"
                  "0\1null\1"
                  "false\2",
                  "");
}

/* A property may hold the byte 1, and so may the keys that came with a message from elsewhere. */
static void a_field_cannot_break_out(void **state)
{
    (void)state;
    struct trace_record r = {.kind = TRACE_RECALL,
                             .topic = BYTES("T\1x\2Pub"),
                             .id = BYTES("I\1D"),
                             .group = BYTES("\2")};
    assert_record(r,
                  "Recall\1"
                  "0\1null\1 \1T x Pub\1I D\1"
                  "false\2",
                  "I D");
}

static void several_records_have_each_key_once(void **state)
{
    (void)state;
    struct trace_batch t;
    trace_init(&t);
    struct trace_record r = sample;
    r.kind = TRACE_RECALL;
    assert_int_equal(trace_add(&t, &r), OK);
    r.kind = TRACE_SUB_BEFORE;
    r.keys = BYTES("  k2 ID1  k k2 ID");
    assert_int_equal(trace_add(&t, &r), OK);
    assert_int_equal(t.n, 2);
    assert_bytes_equal(buf_bytes(&t.keys), BYTES("ID1 k2 k ID"));
    trace_reset(&t);
    assert_int_equal(t.n, 0);
    assert_int_equal(trace_add(&t, &r), OK);
    assert_bytes_equal(buf_bytes(&t.keys), BYTES("ID1 k2 k ID"));
    trace_clear(&t);
}

/* What has no room is left to the next batch, whole; and those before it stay as they were. */
static void a_full_batch_says_so(void **state)
{
    (void)state;
    struct trace_batch t;
    trace_init(&t);
    struct trace_record r = sample;
    r.kind = TRACE_PUB;
    size_t each = 0;
    enum err err = OK;
    while ((err = trace_add(&t, &r)) == OK && t.n < 10000)
        each = t.body.len / t.n;
    assert_int_equal(err, ERR_TOO_BIG);
    assert_int_equal(t.n, TRACE_BODY_MAX / each);
    assert_int_equal(t.body.len, t.n * each);
    assert_int_equal(t.body.at[t.body.len - 1], 2);
    assert_bytes_equal(buf_bytes(&t.keys), BYTES("ID1 k1 k2"));
    trace_reset(&t);
    assert_int_equal(trace_add(&t, &r), OK);
    trace_clear(&t);
}

/* Messages may have 32 KiB of keys. Two of them do not share a batch; one that has too many for its
 * own is found by the first. */
static void keys_have_a_limit_of_their_own(void **state)
{
    (void)state;
    static uint8_t many[30000];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 100 == 99 ? ' ' : (uint8_t)('a' + (i / 100) % 26 + (i % 100 == i / 2600));
    struct trace_batch t;
    trace_init(&t);
    struct trace_record r = sample;
    r.kind = TRACE_SUB_AFTER;
    assert_int_equal(trace_add(&t, &r), OK);
    r.keys = bytes_of(many, sizeof many);
    assert_int_equal(trace_add(&t, &r), ERR_TOO_BIG);
    assert_bytes_equal(buf_bytes(&t.keys), BYTES("ID1 k1 k2"));
    assert_int_equal(t.n, 1);
    trace_reset(&t);
    assert_int_equal(trace_add(&t, &r), OK);
    assert_true(t.keys.len > TRACE_KEYS_MAX - 200 && t.keys.len <= TRACE_KEYS_MAX);
    assert_true(bytes_start(buf_bytes(&t.keys), BYTES("ID1 ")));
    assert_true(t.body.len > sizeof many);
    memset(many, 'z', 200); /* one key more, longer than what is left */
    r.keys = bytes_of(many, 200);
    assert_int_equal(trace_add(&t, &r), ERR_TOO_BIG);
    assert_int_equal(t.n, 1);
    trace_clear(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_fields),
        cmocka_unit_test(what_is_missing_is_null),
        cmocka_unit_test(a_field_cannot_break_out),
        cmocka_unit_test(several_records_have_each_key_once),
        cmocka_unit_test(a_full_batch_says_so),
        cmocka_unit_test(keys_have_a_limit_of_their_own),
    };
    return cmocka_run_group_tests_name("client/trace", tests, NULL, NULL);
}
