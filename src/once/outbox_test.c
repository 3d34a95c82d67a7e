/* outbox_test.c - a message as bytes and back. */
#include "once/once_int.h"

#include "base/test.h"

static const struct once_property properties[] = {{"a", "1"}, {"empty", ""}};
static const struct once_message whole = {.topic = "T",
                                          .tag = "t",
                                          .keys = "k l",
                                          .id = "",
                                          .body = "b\0c",
                                          .body_size = 3,
                                          .properties = properties,
                                          .n_properties = 2};

static struct buf encoded(const struct once_message *m)
{
    struct buf b = buf_upto(OUTBOX_MESSAGE_MAX);
    outbox_encode(m, &b);
    assert_int_equal(b.err, OK);
    return b;
}

static void comes_back_as_it_was(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf b = encoded(&whole);
    static struct outbox_message m;
    assert_int_equal(outbox_decode(buf_bytes(&b), &m), OK);
    assert_string_equal(m.message.topic, "T");
    assert_string_equal(m.message.tag, "t");
    assert_string_equal(m.message.keys, "k l");
    assert_string_equal(m.message.id, "");
    assert_int_equal(m.message.body_size, 3);
    assert_memory_equal(m.message.body, "b\0c", 3);
    assert_int_equal(m.message.n_properties, 2);
    assert_string_equal(m.message.properties[0].name, "a");
    assert_string_equal(m.message.properties[1].value, "");
    cleanup(buf_clear) struct buf least = encoded(&(struct once_message){.topic = "T"});
    assert_int_equal(outbox_decode(buf_bytes(&least), &m), OK);
    assert_null(m.message.tag);
    assert_null(m.message.keys);
    assert_int_equal(m.message.body_size, 0);
    assert_int_equal(m.message.n_properties, 0);
}

/* Every prefix is refused, and so is one byte more. Each sits in its own exact allocation. */
static void refuses_what_is_cut_or_longer(void **state)
{
    (void)state;
    cleanup(buf_clear) struct buf b = encoded(&whole);
    static struct outbox_message m;
    for (size_t cut = 0; cut < b.len; cut++) {
        cleanup(free_at) uint8_t *exact = test_copy(b.at, cut);
        assert_int_equal(outbox_decode(bytes_of(exact, cut), &m), ERR_MALFORMED);
    }
    buf_add_u8(&b, 0);
    assert_int_equal(outbox_decode(buf_bytes(&b), &m), ERR_MALFORMED);
}

static void refuses_what_is_too_big(void **state)
{
    (void)state;
    static struct once_property many[OUTBOX_PROPERTIES_MAX + 1];
    struct once_message m = {.topic = "T", .properties = many};
    for (size_t i = 0; i <= OUTBOX_PROPERTIES_MAX; i++)
        many[i] = (struct once_property){"n", "v"};
    m.n_properties = OUTBOX_PROPERTIES_MAX;
    cleanup(buf_clear) struct buf fits = encoded(&m);
    static struct outbox_message out;
    assert_int_equal(outbox_decode(buf_bytes(&fits), &out), OK);
    m.n_properties++;
    struct buf b = buf_upto(OUTBOX_MESSAGE_MAX);
    outbox_encode(&m, &b);
    assert_int_equal(b.err, ERR_TOO_BIG);
    buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_was),
        cmocka_unit_test(refuses_what_is_cut_or_longer),
        cmocka_unit_test(refuses_what_is_too_big),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
