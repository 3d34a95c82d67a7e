/* frame_test.c - cutting frames, and the names of the numbers. */
#include "remoting/codes.h"
#include "remoting/head_test.h"
#include "remoting/remoting_int.h"

static enum err split(const void *at, size_t len, struct frame *out, size_t *need)
{
    cleanup(free_at) uint8_t *exact = test_copy(at, len);
    *need = 0;
    return frame_split(bytes_of(exact, len), out, need);
}

static void cuts_a_frame(void **state)
{
    (void)state;
    struct bytes in = BYTES("\0\0\0\x09\0\0\0\2{}bodnext");
    struct frame f;
    size_t need;
    assert_int_equal(frame_split(in, &f, &need), OK);
    assert_int_equal(f.form, HEAD_JSON);
    assert_bytes_equal(f.head, BYTES("{}"));
    assert_bytes_equal(f.body, BYTES("bod"));
    assert_int_equal(f.size, 13);

    in = BYTES("\0\0\0\4\1\0\0\0");
    assert_int_equal(frame_split(in, &f, &need), OK);
    assert_int_equal(f.form, HEAD_BINARY);
    assert_int_equal(f.head.len, 0);
    assert_int_equal(f.body.len, 0);
    assert_int_equal(f.size, 8);
}

/* One buffer serves all frames of a stream, whatever their sizes. */
static void takes_frame_after_frame(void **state)
{
    (void)state;
    struct bytes one = vector_load("send_message_v2_json_request");
    static const char two[] = "\0\0\0\x29\0\0\0\x21{\"code\":7,\"remark\":\"a\\n\\u00fc b\"}bodi";
    cleanup(free_at) uint8_t *stream = malloc(one.len + sizeof two - 1);
    assert_non_null(stream);
    memcpy(stream, one.at, one.len);
    memcpy(stream + one.len, two, sizeof two - 1);
    struct bytes in = bytes_of(stream, one.len + sizeof two - 1);
    struct buf spare = buf_upto(FRAME_MAX);
    struct frame frame;
    struct head head;
    size_t need;
    assert_int_equal(frame_next(in, &spare, &frame, &head, &need), OK);
    assert_int_equal(head.code, 310);
    in = bytes_from(in, frame.size);
    assert_int_equal(frame_next(in, &spare, &frame, &head, &need), OK);
    assert_int_equal(head.code, 7);
    assert_bytes_equal(head.remark, BYTES("a\n\xc3\xbc b"));
    assert_bytes_equal(frame.body, BYTES("bodi"));
    in = bytes_from(in, frame.size);
    assert_int_equal(frame_next(in, &spare, &frame, &head, &need), ERR_INCOMPLETE);
    assert_int_equal(frame_next(BYTES("\0\0\0\6\0\0\0\2{]"), &spare, &frame, &head, &need),
                     ERR_MALFORMED);
    buf_clear(&spare);
    vector_free(one);
}

/* Of every vector; `need` is what the frame has as soon as four bytes are there. */
static void asks_for_what_is_missing(void **state)
{
    (void)state;
    struct bytes in = vector_load("send_message_v2_json_request");
    for (size_t cut = 0; cut < in.len; cut++) {
        struct frame f;
        size_t need;
        assert_int_equal(split(in.at, cut, &f, &need), ERR_INCOMPLETE);
        assert_int_equal(need, cut < 4 ? FRAME_PREFIX : in.len);
        assert_true(need > cut);
    }
    vector_free(in);
}

static void refuses_lengths_that_lie(void **state)
{
    (void)state;
    struct frame f;
    size_t need;
    assert_int_equal(split("\0\0\0\0", 4, &f, &need), ERR_MALFORMED);
    assert_int_equal(split("\0\0\0\3", 4, &f, &need), ERR_MALFORMED);
    assert_int_equal(split("\0\0\0\4\0\0\0\1", 8, &f, &need), ERR_MALFORMED); /* header > rest */
    assert_int_equal(split("\0\0\1\0\0\0\0\xfd", 8, &f, &need), ERR_MALFORMED);
    assert_int_equal(split("\0\0\1\0\0\0\0\xfc", 8, &f, &need), ERR_INCOMPLETE);
    assert_int_equal(split("\0\0\0\4\2\0\0\0", 8, &f, &need), ERR_MALFORMED); /* form 2 */
    assert_int_equal(split("\0\0\0\4\xff\0\0\0", 8, &f, &need), ERR_MALFORMED);
}

/* 16 MiB with the length word is the most; one more is refused at the fourth byte. */
static void bounds_the_size(void **state)
{
    (void)state;
    struct frame f;
    size_t need;
    assert_int_equal(split("\0\xff\xff\xfc", 4, &f, &need), ERR_INCOMPLETE);
    assert_int_equal(need, FRAME_MAX);
    assert_int_equal(split("\0\xff\xff\xfd", 4, &f, &need), ERR_TOO_BIG);
    assert_int_equal(split("\xff\xff\xff\xff", 4, &f, &need), ERR_TOO_BIG);
    assert_int_equal(split("GET ", 4, &f, &need), ERR_TOO_BIG);             /* HTTP */
    assert_int_equal(split("\x16\x03\x01\x02", 4, &f, &need), ERR_TOO_BIG); /* TLS */

    uint8_t *most = calloc(1, FRAME_MAX);
    store_u32(most, FRAME_MAX - 4);
    store_u32(most + 4, FRAME_MAX - 8);
    assert_int_equal(frame_split(bytes_of(most, FRAME_MAX), &f, &need), OK);
    assert_int_equal(f.head.len, FRAME_MAX - 8);
    free(most);
}

static void survives_every_one_byte_change(void **state)
{
    (void)state;
    struct bytes in = vector_load("send_message_v2_binary_request");
    uint8_t *bytes = test_copy(in.at, in.len);
    for (size_t at = 0; at < in.len; at++) {
        for (int change = 1; change < 256; change++) {
            bytes[at] = (uint8_t)(in.at[at] ^ change);
            struct frame f;
            size_t need = 0;
            enum err err = frame_split(bytes_of(bytes, in.len), &f, &need);
            if (err == OK) {
                assert_true(f.size <= in.len);
                assert_int_equal(8 + f.head.len + f.body.len, f.size);
                assert_ptr_equal(f.head.at, bytes + 8);
            } else if (err == ERR_INCOMPLETE) {
                assert_true(need > in.len && need <= FRAME_MAX);
            }
        }
        bytes[at] = in.at[at];
    }
    free(bytes);
    vector_free(in);
}

static void the_last_of_equal_fields_wins(void **state)
{
    (void)state;
    struct head h = {.n_fields = 3,
                     .fields = {{BYTES("a"), BYTES("first")},
                                {BYTES("b"), BYTES("other")},
                                {BYTES("a"), BYTES("last")}}};
    assert_bytes_equal(head_field(&h, BYTES("a")), BYTES("last"));
    assert_bytes_equal(head_field(&h, BYTES("b")), BYTES("other"));
    assert_null(head_field(&h, BYTES("c")).at);
}

static void names_the_numbers(void **state)
{
    (void)state;
    assert_string_equal(request_name(310), "SEND_MESSAGE_V2");
    assert_string_equal(request_name(REQ_BATCH_ACK_MESSAGE), "BATCH_ACK_MESSAGE");
    assert_int_equal(REQ_BATCH_ACK_MESSAGE, 200151);
    assert_null(request_name(16));
    assert_null(request_name(-1));
    assert_string_equal(response_name(0), "SUCCESS");
    assert_string_equal(response_name(17), "TOPIC_NOT_EXIST");
    assert_string_equal(response_name(-1006), "RPC_TIME_OUT");
    assert_null(response_name(214));

    assert_string_equal(language_name(0), "JAVA");
    assert_string_equal(language_name(9), "GO");
    assert_string_equal(language_name(13), "NODE_JS");
    assert_string_equal(language_name(14), "OTHER");
    assert_string_equal(language_name(255), "OTHER");
    for (uint8_t i = 0; i < 14; i++)
        assert_int_equal(language_number(bytes_str(language_name(i))), i);
    assert_int_equal(language_number(BYTES("COBOL")), LANGUAGE_OTHER);
    assert_int_equal(language_number((struct bytes){0}), LANGUAGE_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_a_frame),
        cmocka_unit_test(takes_frame_after_frame),
        cmocka_unit_test(asks_for_what_is_missing),
        cmocka_unit_test(refuses_lengths_that_lie),
        cmocka_unit_test(bounds_the_size),
        cmocka_unit_test(survives_every_one_byte_change),
        cmocka_unit_test(the_last_of_equal_fields_wins),
        cmocka_unit_test(names_the_numbers),
    };
    return cmocka_run_group_tests_name("remoting/frame", tests, NULL, NULL);
}
