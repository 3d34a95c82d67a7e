#include "sidecar/sidecar_int.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/test.h"

static struct omq_delivery delivery(const void *body, size_t size)
{
    static const struct omq_property properties[] = {{"region", "e\"u"}, {"a\nb", "\x01x"}};
    return (struct omq_delivery){
        .queue = {"T", "broker-a", 3},
        .offset = 17,
        .id = "ID1",
        .body = body,
        .body_size = size,
        .tag = "t",
        .keys = "k1 k2",
        .properties = properties,
        .n_properties = 2,
        .attempt = 2,
        .born_ms = 5,
    };
}

static void a_message_is_one_line_of_json(void **state)
{
    (void)state;
    struct omq_delivery d = delivery("{\"a\":\n1}", 8);
    struct buf out = buf_upto(1 << 20);
    line_write(&out, &d, BYTES("order:1"), 99);
    assert_bytes_equal(
        buf_bytes(&out),
        BYTES(
            "{\"id\":\"ID1\",\"key\":\"order:1\",\"topic\":\"T\",\"tag\":\"t\",\"keys\":\"k1 k2\","
            "\"props\":{\"region\":\"e\\\"u\",\"a\\u000ab\":\"\\u0001x\"},\"attempt\":2,"
            "\"fence\":99,\"broker\":\"broker-a\",\"queue\":3,\"offset\":17,\"born_ms\":5,"
            "\"body\":\"{\\\"a\\\":\\u000a1}\"}\n"));
    buf_clear(&out);
}

/* Bodies of chance, text or not: what is read back is what was written, and there is one end of
 * line, at the end. */
static void every_body_survives(void **state)
{
    (void)state;
    struct dice dice = test_dice();
    for (int round = 0; round < 2000; round++) {
        uint8_t body[64];
        size_t size = dice_below(&dice, sizeof body);
        bool ascii = dice_below(&dice, 2);
        for (size_t i = 0; i < size; i++)
            body[i] = (uint8_t)dice_below(&dice, ascii ? 128 : 256);
        cleanup(free_at) uint8_t *exact = test_copy(body, size);
        struct omq_delivery d = delivery(exact, size);
        struct buf out = buf_upto(1 << 20);
        struct arena arena;
        const struct json *read;
        arena_init(&arena, 1 << 20);
        line_write(&out, &d, BYTES("k"), 0);
        assert_ptr_equal(memchr(out.at, '\n', out.len), out.at + out.len - 1);
        assert_int_equal(json_parse(buf_bytes(&out), &arena, &read, NULL), OK);
        const struct json *text = json_member(read, "body");
        assert_true((text != NULL) != (json_member(read, "body64") != NULL));
        if (ascii)
            assert_non_null(text);
        if (text)
            assert_bytes_equal(text->text, bytes_of(exact, size));
        arena_clear(&arena);
        buf_clear(&out);
    }
}

static enum err answer_of(const char *line, struct answer *out)
{
    static struct arena arena;
    struct fault why = {0};
    arena_clear(&arena);
    arena_init(&arena, 1 << 20);
    enum err err = line_read(bytes_str(line), &arena, out, &why);
    assert_true((err != OK) == (why.text[0] != 0));
    return err;
}

static void answers_are_read(void **state)
{
    (void)state;
    struct answer a;
    assert_int_equal(answer_of("{\"id\":\"1\",\"result\":\"done\"}", &a), OK);
    assert_int_equal(a.kind, SIDECAR_DONE);
    assert_int_equal(a.after_ms, -1);
    assert_bytes_equal(a.id, BYTES("1"));
    assert_int_equal(
        answer_of("{\"why\":\"full\",\"after_ms\":250,\"result\":\"later\",\"id\":\"x\"}", &a), OK);
    assert_int_equal(a.kind, SIDECAR_LATER);
    assert_int_equal(a.after_ms, 250);
    assert_bytes_equal(a.why, BYTES("full"));
    assert_int_equal(answer_of("{\"id\":\"1\",\"result\":\"already\"}", &a), OK);
    assert_int_equal(answer_of("{\"id\":\"1\",\"result\":\"failed\"}", &a), OK);
}

static void what_is_no_answer_is_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {"",
                                        "hello",
                                        "null",
                                        "[]",
                                        "{}",
                                        "{\"id\":\"1\"}",
                                        "{\"result\":\"done\"}",
                                        "{\"id\":1,\"result\":\"done\"}",
                                        "{\"id\":\"1\",\"result\":\"perhaps\"}",
                                        "{\"id\":\"1\",\"result\":\"done\"} x"};
    struct answer a;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_int_not_equal(answer_of(lines[i], &a), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_line_of_json),
        cmocka_unit_test(every_body_survives),
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(what_is_no_answer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
