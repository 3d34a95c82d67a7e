/* head_binary_test.c - the binary header. */
#include "remoting/head_test.h"

static void reads_what_the_java_client_sends(void **state)
{
    (void)state;
    struct bytes whole = vector_load("send_message_v2_binary_request");
    struct frame frame = vector_frame(whole);
    struct decoded *d = decode_exact(frame.form, frame.head);
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.form, HEAD_BINARY);
    assert_int_equal(d->head.code, 310);
    assert_int_equal(d->head.version, 513);
    assert_int_equal(d->head.language, 0);
    assert_int_equal(d->head.flag, 0);
    assert_int_equal(d->head.n_fields, 13);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("vector_producer"));
    assert_bytes_equal(head_field(&d->head, BYTES("k")), BYTES("false"));
    assert_true(bytes_start(head_field(&d->head, BYTES("i")),
                            BYTES("Größe\00112 \"inch\" \\ 标\2colour\1green\2")));
    assert_round_trip(&d->head);
    decoded_free(d);
    vector_free(whole);
}

static void reads_every_vector(void **state)
{
    (void)state;
    static const char *const names[] = {
        "get_routeinfo_binary_request",
        "get_routeinfo_binary_response",
        "heart_beat_push_consumer_binary_request",
        "heart_beat_push_consumer_binary_response",
        "pull_message_binary_request",
        "pull_message_binary_response",
        "register_broker_binary_request",
        "register_broker_binary_response",
        "send_batch_message_binary_request",
        "send_batch_message_binary_response",
        "send_message_v2_binary_response",
        "unknown_topic_binary_request",
        "unknown_topic_binary_response",
        "update_consumer_offset_binary_request",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bytes whole = vector_load(names[i]);
        struct frame frame = vector_frame(whole);
        struct decoded *d = decode_exact(frame.form, frame.head);
        assert_int_equal(frame.form, HEAD_BINARY);
        assert_int_equal(d->err, OK);
        assert_int_equal(d->head.version, 513);
        assert_int_equal(d->head.flag & FLAG_RESPONSE, strstr(names[i], "_response") != NULL);
        assert_round_trip(&d->head);
        decoded_free(d);
        vector_free(whole);
    }
}

/* Apache's own bytes come out of our writer, but for our version number. */
static void writes_what_an_apache_broker_writes(void **state)
{
    (void)state;
    const char *names[] = {"heart_beat_push_consumer_binary_response",
                           "send_message_v2_binary_response"};
    for (size_t i = 0; i < 2; i++) {
        struct bytes whole = vector_load(names[i]);
        struct decoded *d = decode_exact(HEAD_BINARY, vector_frame(whole).head);
        uint8_t room[1024];
        struct wr w = wr_over(room, sizeof room);
        head_write_back(&d->head, HEAD_BINARY, &w);
        assert_int_equal(wr_len(&w), whole.len);
        assert_int_equal(load_u16(room + 11), HEAD_VERSION);
        store_u16(room + 11, 513);
        assert_memory_equal(room, whole.at, whole.len);
        decoded_free(d);
        vector_free(whole);
    }
}

/* ---- made by hand ---- */

struct draft_head {
    uint8_t room[4096];
    struct wr w;
};

static void begin(struct draft_head *h, uint16_t code, struct bytes remark)
{
    h->w = wr_over(h->room, sizeof h->room);
    wr_u16(&h->w, code);
    wr_u8(&h->w, 9);
    wr_u16(&h->w, 317);
    wr_u32(&h->w, 0xfffffffe);
    wr_u32(&h->w, 2);
    wr_u32(&h->w, (uint32_t)remark.len);
    wr_bytes_of(&h->w, remark);
}

static void add(struct wr *w, struct bytes name, struct bytes value)
{
    wr_u16(w, (uint16_t)name.len);
    wr_bytes_of(w, name);
    wr_u32(w, (uint32_t)value.len);
    wr_bytes_of(w, value);
}

static void reads_signed_numbers(void **state)
{
    (void)state;
    struct draft_head h;
    begin(&h, 0xffff, BYTES("oh"));
    wr_u32(&h.w, 0);
    struct decoded *d = decode_exact(HEAD_BINARY, wr_bytes(&h.w));
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.code, -1);
    assert_int_equal(d->head.opaque, -2);
    assert_int_equal(d->head.flag, 2);
    assert_int_equal(d->head.language, 9);
    assert_bytes_equal(d->head.remark, BYTES("oh"));
    assert_int_equal(d->head.n_fields, 0);
    decoded_free(d);
}

static void an_empty_value_is_absent_and_the_last_wins(void **state)
{
    (void)state;
    struct draft_head h;
    uint8_t block[64];
    struct wr fields = wr_over(block, sizeof block);
    add(&fields, BYTES("a"), BYTES("1"));
    add(&fields, BYTES("empty"), BYTES(""));
    add(&fields, BYTES("a"), BYTES("2"));
    begin(&h, 1, BYTES(""));
    wr_u32(&h.w, (uint32_t)wr_len(&fields));
    wr_bytes_of(&h.w, wr_bytes(&fields));
    struct decoded *d = decode_exact(HEAD_BINARY, wr_bytes(&h.w));
    assert_int_equal(d->err, OK);
    assert_int_equal(d->head.n_fields, 2);
    assert_null(head_field(&d->head, BYTES("empty")).at);
    assert_bytes_equal(head_field(&d->head, BYTES("a")), BYTES("2"));
    decoded_free(d);
}

/* One raw field block. */
static enum err with_block(struct bytes block)
{
    struct draft_head h;
    begin(&h, 1, BYTES(""));
    wr_u32(&h.w, (uint32_t)block.len);
    wr_bytes_of(&h.w, block);
    return decode_err(HEAD_BINARY, wr_bytes(&h.w));
}

static void refuses_lengths_that_lie(void **state)
{
    (void)state;
    assert_int_equal(with_block(BYTES("\0\1a\0\0\0\1b")), OK);
    assert_int_equal(with_block(BYTES("\0\1a\0\0\0\2b")), ERR_MALFORMED);
    assert_int_equal(with_block(BYTES("\0\1a\0\0\0\1bc")), ERR_MALFORMED);
    assert_int_equal(with_block(BYTES("\0\0\0\0\0\1b")), ERR_MALFORMED); /* no name */
    assert_int_equal(with_block(BYTES("\xff\xff\0\0\0\1b")), ERR_MALFORMED);
    assert_int_equal(with_block(BYTES("\0\1a\xff\xff\xff\xff")), ERR_MALFORMED);
    assert_int_equal(with_block(BYTES("\0\1a\x80\0\0\0")), ERR_MALFORMED);

    struct draft_head h;
    begin(&h, 1, BYTES(""));
    wr_u32(&h.w, 0);
    wr_u8(&h.w, 0); /* one byte behind the end */
    assert_int_equal(decode_err(HEAD_BINARY, wr_bytes(&h.w)), ERR_MALFORMED);
    begin(&h, 1, BYTES(""));
    store_u32(h.w.at - 4, 0xffffffff); /* the remark */
    wr_u32(&h.w, 0);
    assert_int_equal(decode_err(HEAD_BINARY, wr_bytes(&h.w)), ERR_MALFORMED);
}

/* A name of 32768 bytes is negative for Java, also when the bytes are there. */
static void refuses_a_negative_name_length(void **state)
{
    (void)state;
    size_t size = 21 + 2 + 32768 + 4 + 1;
    uint8_t *head = calloc(1, size);
    store_u32(head + 17, (uint32_t)(size - 21));
    store_u16(head + 21, 32768);
    store_u32(head + 23 + 32768, 1);
    assert_int_equal(decode_err(HEAD_BINARY, bytes_of(head, size)), ERR_MALFORMED);
    free(head);
}

static void bounds_the_fields(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        uint8_t block[1024];
        struct wr fields = wr_over(block, sizeof block);
        for (int i = 0; i < HEAD_FIELDS_MAX + more; i++)
            add(&fields, BYTES("name"), BYTES("v"));
        assert_int_equal(with_block(wr_bytes(&fields)), more ? ERR_TOO_BIG : OK);
    }
}

static void refuses_every_prefix(void **state)
{
    (void)state;
    struct bytes whole = vector_load("pull_message_binary_response");
    struct bytes head = vector_frame(whole).head;
    for (size_t cut = 0; cut < head.len; cut++)
        assert_int_equal(decode_err(HEAD_BINARY, bytes_of(head.at, cut)), ERR_MALFORMED);
    vector_free(whole);
}

static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct bytes whole = vector_load("pull_message_binary_response");
    struct bytes head = vector_frame(whole).head;
    uint8_t *bytes = test_copy(head.at, head.len);
    for (size_t at = 0; at < head.len; at++) {
        for (int change = 1; change < 256; change++) {
            bytes[at] = (uint8_t)(head.at[at] ^ change);
            struct decoded *d = decode_exact(HEAD_BINARY, bytes_of(bytes, head.len));
            if (d->err == OK) {
                uint8_t room[1024];
                struct wr w = wr_over(room, sizeof room);
                head_write_back(&d->head, HEAD_BINARY, &w);
                struct decoded *again = decode_exact(HEAD_BINARY, vector_frame(wr_bytes(&w)).head);
                assert_int_equal(again->err, OK);
                assert_heads_equal(&d->head, &again->head);
                decoded_free(again);
            }
            decoded_free(d);
        }
        bytes[at] = head.at[at];
    }
    free(bytes);
    vector_free(whole);
}

/* The opaque comes before everything that can be wrong. */
static void keeps_opaque_and_flag_of_what_it_refuses(void **state)
{
    (void)state;
    struct draft_head h;
    begin(&h, 310, BYTES("remark"));
    struct decoded *d = decode_exact(HEAD_BINARY, wr_bytes(&h.w)); /* the fields are missing */
    assert_int_equal(d->err, ERR_MALFORMED);
    assert_int_equal(d->head.opaque, -2);
    assert_int_equal(d->head.flag, 2);
    decoded_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_java_client_sends),
        cmocka_unit_test(reads_every_vector),
        cmocka_unit_test(writes_what_an_apache_broker_writes),
        cmocka_unit_test(reads_signed_numbers),
        cmocka_unit_test(an_empty_value_is_absent_and_the_last_wins),
        cmocka_unit_test(refuses_lengths_that_lie),
        cmocka_unit_test(refuses_a_negative_name_length),
        cmocka_unit_test(bounds_the_fields),
        cmocka_unit_test(refuses_every_prefix),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(keeps_opaque_and_flag_of_what_it_refuses),
    };
    return cmocka_run_group_tests_name("remoting/head_binary", tests, NULL, NULL);
}
