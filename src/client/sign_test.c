/* sign_test.c - signatures as the Java client's AclUtils and AclSigner make them. */
#include "client/producer_int.h"

#include "base/test.h"

static const struct omq_client_options keys = {.access_key = "ak1", .secret_key = "sk1"};

/* A request with its header only, as it is before it is signed. */
static struct bytes unsigned_frame(uint8_t *room, size_t size, const struct field *fields, size_t n)
{
    struct wr w = wr_over(room, size);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.code = 11, .opaque = 7});
    for (size_t i = 0; i < n; i++)
        frame_put(&f, fields[i].name, fields[i].value);
    sign_put(&f, &keys);
    frame_end_head(&f, 4);
    assert_false(w.full);
    return wr_bytes(&w);
}

/* The values of AccessKey, queueId and topic, whatever their order in the header, then the body. */
static void the_known_request_has_the_known_signature(void **state)
{
    (void)state;
    const struct field orders[2][2] = {
        {{BYTES("topic"), BYTES("TopicTest")}, {BYTES("queueId"), BYTES("0")}},
        {{BYTES("queueId"), BYTES("0")}, {BYTES("topic"), BYTES("TopicTest")}},
    };
    for (size_t i = 0; i < 2; i++) {
        uint8_t room[512];
        char signature[SIGNATURE_MAX];
        struct bytes frame = unsigned_frame(room, sizeof room, orders[i], 2);
        assert_int_equal(sign_frame(&keys, frame, BYTES("BODY"), signature), OK);
        assert_string_equal(signature, "Gxm4Qrla+KI1HusDvAeCukjW0Kg=");
    }
}

static void what_is_no_frame_is_not_signed(void **state)
{
    (void)state;
    uint8_t room[512];
    const struct field field = {BYTES("topic"), BYTES("T")};
    struct bytes whole = unsigned_frame(room, sizeof room, &field, 1);
    for (size_t cut = 0; cut < whole.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(whole.at, cut);
        char signature[SIGNATURE_MAX];
        assert_int_not_equal(sign_frame(&keys, bytes_of(exact, cut), BYTES(""), signature), OK);
    }
}

/* The handle is base64url of "v1 topic broker time id". */
static void a_recall_names_its_broker(void **state)
{
    (void)state;
    uint8_t room[RECALL_MAX];
    struct bytes broker;
    struct bytes good = BYTES("djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAwIDdGMDA=");
    assert_true(recall_read(good, BYTES("T"), room, &broker));
    assert_true(bytes_equal(broker, BYTES("broker-a")));
    assert_false(recall_read(good, BYTES("Other"), room, &broker));
    assert_false(recall_read(BYTES(""), BYTES("T"), room, &broker));
    assert_false(recall_read(BYTES("===="), BYTES("T"), room, &broker));
    assert_false(recall_read(BYTES("djEgVCBi!!!"), BYTES("T"), room, &broker));
    for (size_t cut = 0; cut + 12 < good.len; cut++)
        assert_false(recall_read(bytes_of(good.at, cut), BYTES("T"), room, &broker));
    char big[2 * RECALL_MAX];
    memset(big, 'A', sizeof big);
    assert_false(recall_read(bytes_of(big, sizeof big), BYTES("T"), room, &broker));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_known_request_has_the_known_signature),
        cmocka_unit_test(what_is_no_frame_is_not_signed),
        cmocka_unit_test(a_recall_names_its_broker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
