/* tags_test.c - the tag hash against Java's own. */
#include "msg/msg.h"
#include "msg/vector_test.h"

/* Lines `tag TAB text TAB hash` of facts.txt, computed by Java. */
static void hashes_as_java_does(void **state)
{
    (void)state;
    char *text = vector_text("facts.txt"), *save = NULL;
    size_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *tag = line + 4, *hash = strrchr(line, '\t');
        if (strncmp(line, "tag\t", 4) != 0)
            continue;
        assert_true(hash >= tag);
        *hash++ = 0;
        assert_int_equal(tags_code(bytes_str(tag)), strtol(hash, NULL, 10));
        n++;
    }
    assert_true(n >= 12);
    free(text);
}

static void nothing_is_zero(void **state)
{
    (void)state;
    assert_int_equal(tags_code((struct bytes){0}), 0);
    assert_int_equal(tags_code(BYTES("")), 0);
}

/* Negative hashes keep their sign in 64 bits: that is what stands in the queue. */
static void keeps_the_sign(void **state)
{
    (void)state;
    assert_true(tags_code(BYTES("order-created")) == -392709271);
    assert_true(tags_code(BYTES("polygenelubricants")) == INT32_MIN);
}

/* A byte that fits nowhere counts as U+FFFD. */
static void hashes_what_is_not_utf8(void **state)
{
    (void)state;
    assert_int_equal(tags_code(BYTES("\xff")), 0xfffd);
    assert_int_equal(tags_code(BYTES("a\x80")), 31 * 'a' + 0xfffd);
    assert_int_equal(tags_code(BYTES("\xe6\xa0")), 31 * 0xfffd + 0xfffd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_as_java_does),
        cmocka_unit_test(nothing_is_zero),
        cmocka_unit_test(keeps_the_sign),
        cmocka_unit_test(hashes_what_is_not_utf8),
    };
    return cmocka_run_group_tests_name("msg/tags", tests, NULL, NULL);
}
