/* batch_test.c - batch bodies: golden bytes, captured ones, and all that must be refused. */
#include "msg/msg.h"
#include "msg/vector_test.h"

/* Two messages, checked by Apache's decoder: m0 with UNIQ_KEY=A, m1 with UNIQ_KEY=B and TAGS=TagB.
 */
static const char golden[] = "00000023 00000000 00000000 00000000 00000002 6d30"
                             "000b 554e49515f4b4559014102"
                             "0000002d 00000000 00000000 00000000 00000002 6d31"
                             "0015 554e49515f4b455901420254414753015461674202";

/* Reads all items and writes them again; false if something is refused. */
static bool rewrite(struct bytes in, struct wr *w, size_t *n)
{
    struct rd r = rd_over(in);
    struct batch_item item;
    bool more;
    for (*n = 0;; ++*n) {
        if (batch_next(&r, &item, &more) != OK)
            return false;
        if (!more)
            return true;
        batch_add(w, &item);
    }
}

static void reads_and_writes_the_golden_batch(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden);
    struct rd r = rd_over(in);
    struct batch_item item;
    bool more;
    assert_int_equal(batch_next(&r, &item, &more), OK);
    assert_true(more);
    assert_int_equal(item.flag, 0);
    assert_bytes_equal(item.body, BYTES("m0"));
    assert_bytes_equal(item.props, BYTES("UNIQ_KEY\1A\2"));
    assert_int_equal(batch_next(&r, &item, &more), OK);
    assert_true(more);
    assert_bytes_equal(item.body, BYTES("m1"));
    assert_bytes_equal(item.props, BYTES("UNIQ_KEY\1B\2TAGS\1TagB\2"));
    assert_int_equal(batch_next(&r, &item, &more), OK);
    assert_false(more);

    uint8_t room[80];
    struct wr w = wr_over(room, sizeof room);
    size_t n;
    assert_true(rewrite(in, &w, &n));
    assert_false(w.full);
    assert_int_equal(n, 2);
    assert_int_equal(wr_len(&w), in.len);
    assert_memory_equal(room, in.at, in.len);
    vector_free(in);
}

/* The body of a batch that the Java client sent is written back to the same bytes. */
static void reads_what_the_java_client_sends(void **state)
{
    (void)state;
    const char *names[] = {"send_batch_message_json_request", "send_batch_message_binary_request"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes frame = vector_load(names[i]), body = vector_body(frame);
        uint8_t room[4096];
        struct wr w = wr_over(room, sizeof room);
        size_t n;
        assert_true(rewrite(body, &w, &n));
        assert_true(n > 1);
        assert_int_equal(wr_len(&w), body.len);
        assert_memory_equal(room, body.at, body.len);
        vector_free(frame);
    }
}

/* A cut between two messages is a batch of one; every other one is refused. */
static void refuses_every_prefix(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden);
    for (size_t cut = 0; cut < in.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(in.at, cut);
        uint8_t room[80];
        struct wr w = wr_over(room, sizeof room);
        size_t n;
        assert_int_equal(rewrite(bytes_of(exact, cut), &w, &n), cut == 0 || cut == 35);
    }
    vector_free(in);
}

static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden);
    uint8_t *bytes = test_copy(in.at, in.len);
    for (size_t at = 0; at < in.len; at++) {
        for (int change = 1; change < 256; change++) {
            bytes[at] = (uint8_t)(in.at[at] ^ change);
            uint8_t once[80], twice[80];
            struct wr w = wr_over(once, sizeof once), again = wr_over(twice, sizeof twice);
            size_t n, m;
            if (rewrite(bytes_of(bytes, in.len), &w, &n)) {
                assert_true(rewrite(wr_bytes(&w), &again, &m));
                assert_int_equal(n, m);
                assert_int_equal(wr_len(&w), wr_len(&again));
                assert_memory_equal(once, twice, wr_len(&w));
            }
        }
        bytes[at] = in.at[at];
    }
    free(bytes);
    vector_free(in);
}

/* The total must be the sum of its parts, and properties end at 32767 bytes. */
static void refuses_sizes_that_lie(void **state)
{
    (void)state;
    struct bytes in = vector_from_hex(golden);
    uint8_t *bytes = test_copy(in.at, in.len);
    struct batch_item item;
    bool more;
    for (int wrong = -1; wrong <= 1; wrong += 2) {
        store_u32(bytes, (uint32_t)(35 + wrong));
        struct rd r = rd_over(bytes_of(bytes, in.len));
        assert_int_equal(batch_next(&r, &item, &more), ERR_MALFORMED);
    }
    free(bytes);
    vector_free(in);

    uint8_t *big = calloc(1, 22 + 32768);
    store_u32(big, 22 + 32768);
    store_u16(big + 20, 32768);
    struct rd r = rd_over(bytes_of(big, 22 + 32768));
    assert_int_equal(batch_next(&r, &item, &more), ERR_MALFORMED);
    free(big);
}

static void writes_nothing_when_it_does_not_fit(void **state)
{
    (void)state;
    struct batch_item item = {.body = BYTES("body"), .props = BYTES("a\1b\2")};
    uint8_t room[30];
    for (size_t size = 0; size < sizeof room; size++) {
        struct wr w = wr_over(room, size);
        batch_add(&w, &item);
        assert_true(w.full);
        assert_int_equal(wr_len(&w), 0);
    }
    struct wr w = wr_over(room, sizeof room);
    batch_add(&w, &item);
    assert_false(w.full);
    assert_int_equal(wr_len(&w), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_the_golden_batch),
        cmocka_unit_test(reads_what_the_java_client_sends),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(refuses_sizes_that_lie),
        cmocka_unit_test(writes_nothing_when_it_does_not_fit),
    };
    return cmocka_run_group_tests_name("msg/batch", tests, NULL, NULL);
}
