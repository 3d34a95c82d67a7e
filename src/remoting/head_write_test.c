/* head_write_test.c - frames as we write them. */
#include "base/json.h"
#include "remoting/head_test.h"

static void writes_the_members_in_order(void **state)
{
    (void)state;
    uint8_t room[512];
    struct wr w = wr_over(room, sizeof room);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON,
                &(struct head_start){.code = 17,
                                     .opaque = -7,
                                     .flag = FLAG_RESPONSE,
                                     .remark = BYTES("no \"T\" \\ \n\x1f")});
    frame_put(&f, BYTES("msgId"), BYTES("7F\1"));
    frame_put_int(&f, BYTES("queueOffset"), INT64_MIN);
    frame_put_bool(&f, BYTES("yes"), true);
    frame_put_bool(&f, BYTES("no"), false);
    frame_end_head(&f, 5);
    wr_bytes_of(&w, BYTES("body."));
    assert_false(w.full);

    struct frame frame = vector_frame(wr_bytes(&w));
    assert_int_equal(frame.form, HEAD_JSON);
    assert_bytes_equal(frame.body, BYTES("body."));
    assert_bytes_equal(
        frame.head,
        BYTES("{\"code\":17,\"flag\":1,\"language\":\"JAVA\",\"opaque\":-7,\"version\":479,"
              "\"remark\":\"no \\\"T\\\" \\\\ \\u000a\\u001f\",\"extFields\":{"
              "\"msgId\":\"7F\\u0001\",\"queueOffset\":\"-9223372036854775808\","
              "\"yes\":\"true\",\"no\":\"false\"},\"serializeTypeCurrentRPC\":\"JSON\"}"));
}

static void leaves_out_what_is_not_there(void **state)
{
    (void)state;
    uint8_t room[256];
    struct wr w = wr_over(room, sizeof room);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.opaque = 1, .flag = 1});
    frame_end_head(&f, 0);
    assert_bytes_equal(vector_frame(wr_bytes(&w)).head,
                       BYTES("{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":1,"
                             "\"version\":479,\"serializeTypeCurrentRPC\":\"JSON\"}"));
}

static void writes_the_binary_form(void **state)
{
    (void)state;
    uint8_t room[256];
    struct wr w = wr_over(room, sizeof room);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_BINARY,
                &(struct head_start){.code = -1, .opaque = 2, .flag = 3, .remark = BYTES("r")});
    frame_put(&f, BYTES("ab"), BYTES("c"));
    frame_end_head(&f, 0);
    assert_int_equal(wr_len(&w), 8 + 21 + 1 + 9);
    assert_memory_equal(room,
                        "\0\0\0\x23\1\0\0\x1f"
                        "\xff\xff\0\1\xdf\0\0\0\2\0\0\0\3\0\0\0\1r\0\0\0\x09\0\2ab\0\0\0\1c",
                        39);
}

/* The POP codes: in binary they would arrive as others. */
static void falls_back_to_json_for_big_codes(void **state)
{
    (void)state;
    const int32_t codes[] = {32768, 200050, -32769};
    for (size_t i = 0; i < 3; i++) {
        uint8_t room[256];
        struct wr w = wr_over(room, sizeof room);
        struct frame_out f;
        frame_begin(&f, &w, HEAD_BINARY, &(struct head_start){.code = codes[i]});
        frame_put(&f, BYTES("a"), BYTES("b"));
        frame_end_head(&f, 0);
        struct frame frame = vector_frame(wr_bytes(&w));
        assert_int_equal(frame.form, HEAD_JSON);
        struct decoded *d = decode_exact(frame.form, frame.head);
        assert_int_equal(d->head.code, codes[i]);
        decoded_free(d);
    }
}

/* What is not UTF-8 becomes U+FFFD: the result is always proper JSON. Every pair of bytes, by our
 * own reader and by the general one. */
static void whatever_it_writes_is_json(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 16);
    for (unsigned pair = 0; pair < 65536; pair += pair % 256 == 255 ? 1 : 1 + pair % 3) {
        uint8_t text[12] = "plain text.", room[512];
        text[9] = (uint8_t)(pair >> 8);
        text[10] = (uint8_t)pair;
        struct wr w = wr_over(room, sizeof room);
        struct frame_out f;
        frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.remark = bytes_of(text, 11)});
        frame_put(&f, BYTES("name"), bytes_of(text, 11));
        frame_end_head(&f, 0);
        struct frame frame = vector_frame(wr_bytes(&w));
        struct decoded *d = decode_exact(frame.form, frame.head);
        assert_int_equal(d->err, OK);
        const struct json *doc;
        assert_int_equal(json_parse(frame.head, &arena, &doc, NULL), OK);
        assert_bytes_equal(json_text(json_member(doc, "remark"), BYTES("?")), d->head.remark);
        assert_bytes_equal(d->head.remark, head_field(&d->head, BYTES("name")));
        decoded_free(d);
        arena_reset(&arena);
    }
    arena_clear(&arena);
}

/* Every size that is too small is told, and nothing is written beyond it. */
static void a_full_buffer_is_told(void **state)
{
    (void)state;
    for (int form = HEAD_JSON; form <= HEAD_BINARY; form++) {
        struct head h = {.code = 1, .remark = BYTES("re\nmark"), .n_fields = 2};
        h.fields[0] = (struct field){BYTES("name"), BYTES("val\"ue")};
        h.fields[1] = (struct field){BYTES("other"), BYTES("\xff")};
        size_t size = 0;
        for (;; size++) {
            cleanup(free_at) uint8_t *room = malloc(size);
            struct wr w = wr_over(room, size);
            head_write_back(&h, form == HEAD_JSON ? HEAD_JSON : HEAD_BINARY, &w);
            if (!w.full)
                break;
        }
        assert_true(size > 60);
    }
}

static void refuses_a_frame_that_is_too_big(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        uint8_t room[256];
        struct wr w = wr_over(room, sizeof room);
        struct frame_out f;
        frame_begin(&f, &w, HEAD_BINARY, &(struct head_start){0});
        frame_end_head(&f, FRAME_MAX - 8 - 21 + (size_t)more);
        assert_int_equal(w.full, more);
    }
    uint8_t room[256];
    struct wr w = wr_over(room, sizeof room);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON, &(struct head_start){0});
    frame_end_head(&f, SIZE_MAX);
    assert_true(w.full);
}

static void refuses_a_name_that_is_too_long(void **state)
{
    (void)state;
    size_t size = 80000;
    uint8_t *name = calloc(1, 32768), *room = malloc(size);
    for (int more = 0; more < 2; more++) {
        struct wr w = wr_over(room, size);
        struct frame_out f;
        frame_begin(&f, &w, HEAD_BINARY, &(struct head_start){0});
        frame_put(&f, bytes_of(name, 32767 + (size_t)more), BYTES("v"));
        frame_end_head(&f, 0);
        assert_int_equal(w.full, more);
    }
    free(name);
    free(room);
}

/* Frames stand one behind the other in one buffer. */
static void writes_several_into_one_buffer(void **state)
{
    (void)state;
    uint8_t room[1024];
    struct wr w = wr_over(room, sizeof room);
    for (int i = 0; i < 4; i++) {
        struct frame_out f;
        frame_begin(&f, &w, i % 2 ? HEAD_BINARY : HEAD_JSON, &(struct head_start){.opaque = i});
        frame_put_int(&f, BYTES("i"), i);
        frame_end_head(&f, 1);
        wr_u8(&w, (uint8_t)i);
    }
    struct bytes rest = wr_bytes(&w);
    for (int i = 0; i < 4; i++) {
        struct frame frame;
        size_t need;
        assert_int_equal(frame_split(rest, &frame, &need), OK);
        struct decoded *d = decode_exact(frame.form, frame.head);
        assert_int_equal(d->err, OK);
        assert_int_equal(d->head.opaque, i);
        assert_int_equal(frame.body.at[0], i);
        decoded_free(d);
        rest = bytes_from(rest, frame.size);
    }
    assert_int_equal(rest.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_members_in_order),
        cmocka_unit_test(leaves_out_what_is_not_there),
        cmocka_unit_test(writes_the_binary_form),
        cmocka_unit_test(falls_back_to_json_for_big_codes),
        cmocka_unit_test(whatever_it_writes_is_json),
        cmocka_unit_test(a_full_buffer_is_told),
        cmocka_unit_test(refuses_a_frame_that_is_too_big),
        cmocka_unit_test(refuses_a_name_that_is_too_long),
        cmocka_unit_test(writes_several_into_one_buffer),
    };
    return cmocka_run_group_tests_name("remoting/head_write", tests, NULL, NULL);
}
