/* serial_test.c - numbers, their ids, and what is left of them. */
#include "base/test.h"
#include "cli/serial.h"

#define ID "0A00000700014F1C0EAA08F3B112FFFE"

static void assert_left(struct serial *s, uint64_t end, const char *wanted)
{
    struct buf text = buf_upto(1000);
    assert_int_equal(serial_text(s, end, &text), wanted[0] != 0);
    buf_add_u8(&text, 0);
    assert_string_equal((const char *)text.at, wanted);
    buf_clear(&text);
}

static void ids_follow_from_numbers(void **state)
{
    (void)state;
    struct serial s;
    char id[SERIAL_ID_MAX];
    assert_int_equal(serial_init(&s, ID, 10), OK);
    assert_true(serial_id(&s, 1, id));
    assert_string_equal(id, ID);
    assert_true(serial_id(&s, 3, id)); /* the counter runs over into the time */
    assert_string_equal(id, "0A00000700014F1C0EAA08F3B1130000");
    serial_clear(&s);
    assert_int_equal(serial_init(&s, "mine", 1), OK);
    assert_true(serial_id(&s, 1, id));
    assert_false(serial_id(&s, 2, id));
    serial_clear(&s);
}

static void what_comes_back_is_left(void **state)
{
    (void)state;
    struct serial s;
    bool unsure;
    assert_int_equal(serial_init(&s, ID, 9), OK);
    for (uint64_t n = 1; n <= 7; n++)
        assert_int_equal(serial_next(&s, &unsure), n);
    assert_int_equal(serial_back(&s, 5, true), OK);
    assert_int_equal(serial_back(&s, 2, false), OK);
    assert_int_equal(serial_back(&s, 4, true), OK);
    assert_left(&s, 9, ID "/2,4-5?,8-9");
    assert_left(&s, 7, ID "/2,4-5?"); /* the input ended earlier than was said */
    serial_clear(&s);

    assert_int_equal(serial_init(&s, ID, 1), OK);
    assert_int_equal(serial_next(&s, &unsure), 1);
    assert_int_equal(serial_next(&s, &unsure), 0);
    assert_left(&s, 1, "");
    serial_clear(&s);
}

static void what_is_left_is_read_back(void **state)
{
    (void)state;
    struct serial s;
    bool unsure;
    assert_int_equal(serial_parse(&s, ID "/2,4-5?,8-"), OK);
    assert_left(&s, SERIAL_END, ID "/2,4-5?,8-");
    const uint64_t numbers[] = {2, 4, 5, 8, 9};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(serial_peek(&s), numbers[i]);
        assert_int_equal(serial_next(&s, &unsure), numbers[i]);
        assert_int_equal(unsure, numbers[i] == 4 || numbers[i] == 5);
    }
    assert_left(&s, SERIAL_END, ID "/10-");
    serial_clear(&s);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",        ID,         ID "/",     "/1",        ID "/0",
                                        ID "/2,1", ID "/3-2",  ID "/1,,",  ID "/1,",    ID "/1x",
                                        ID "/-1",  ID "/1-,5", ID "/1??",  ID "/1-2-3", ID "/1 ",
                                        ID "/1;2", ID "/1,1?", ID "/1-3,3"};
    struct serial s;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(serial_parse(&s, wrong[i]), ERR_MALFORMED);
    assert_int_equal(serial_parse(&s, ID "/99999999999999999999"), ERR_MALFORMED);
    assert_int_equal(serial_parse(&s, ID ID "/1"), ERR_MALFORMED); /* no id is so long */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_follow_from_numbers),
        cmocka_unit_test(what_comes_back_is_left),
        cmocka_unit_test(what_is_left_is_read_back),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests_name("serial", tests, NULL, NULL);
}
