/* Which tags an expression takes. */
#include "base/test.h"
#include "broker/broker_int.h"

#include <stdio.h>

static struct filter parsed(const char *expression)
{
    struct filter f;
    struct fault why = {0};
    assert_int_equal(filter_parse(bytes_str(expression), BYTES("TAG"), &f, &why), OK);
    return f;
}

static bool takes(const char *expression, const char *tag)
{
    struct filter f = parsed(expression);
    return filter_wants(&f, tags_code(bytes_str(tag)));
}

static void a_star_or_nothing_takes_all(void **state)
{
    (void)state;
    assert_true(takes("*", "TagA"));
    assert_true(takes("*", ""));
    assert_true(takes("", "TagA"));
    struct filter f;
    assert_int_equal(filter_parse((struct bytes){0}, (struct bytes){0}, &f, NULL), OK);
    assert_true(f.all);
}

static void tags_are_separated_by_two_bars_and_trimmed(void **state)
{
    (void)state;
    assert_true(takes("TagA", "TagA"));
    assert_false(takes("TagA", "TagB"));
    assert_true(takes("TagA||TagB", "TagB"));
    assert_true(takes(" TagA ||\tTagB ", "TagA"));
    assert_true(takes("TagA || TagB || ", "TagB"));
    assert_true(takes("|| TagA", "TagA"));
    assert_true(takes("a|b", "a|b")); /* one bar is a letter like any other */
    assert_true(takes("A|||B", "|B"));
    assert_false(takes("TagA || TagB", "TagC"));
}

static void a_message_without_a_tag_matches_no_list(void **state)
{
    (void)state;
    assert_false(takes("TagA", ""));
}

static void an_expression_that_names_no_tag_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"||", " ", " || ", "||||"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct filter f;
        struct fault why = {0};
        assert_int_equal(filter_parse(bytes_str(bad[i]), BYTES("TAG"), &f, &why), ERR_MALFORMED);
        assert_true(why.text[0]);
    }
}

static void other_types_are_refused_by_name(void **state)
{
    (void)state;
    struct filter f;
    struct fault why = {0};
    assert_int_equal(filter_parse(BYTES("a > 5"), BYTES("SQL92"), &f, &why), ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "SQL92"));
}

/* Beyond the exact list none of the wanted ones may be lost, and few of the others come through. */
static void many_tags_lose_none(void **state)
{
    (void)state;
    for (int n = FILTER_TAGS_MAX - 1; n <= 100; n++) {
        char text[2048] = "", tag[16];
        for (int i = 0; i < n; i++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%stag-%d", i ? "||" : "", i);
        }
        struct filter f = parsed(text);
        for (int i = 0; i < n; i++) {
            snprintf(tag, sizeof tag, "tag-%d", i);
            assert_true(filter_wants(&f, tags_code(bytes_str(tag))));
        }
        int extra = 0;
        for (int i = 0; i < 1000; i++) {
            snprintf(tag, sizeof tag, "other-%d", i);
            extra += filter_wants(&f, tags_code(bytes_str(tag)));
        }
        assert_true(n <= FILTER_TAGS_MAX ? extra == 0 : extra < 250);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_or_nothing_takes_all),
        cmocka_unit_test(tags_are_separated_by_two_bars_and_trimmed),
        cmocka_unit_test(a_message_without_a_tag_matches_no_list),
        cmocka_unit_test(an_expression_that_names_no_tag_is_refused),
        cmocka_unit_test(other_types_are_refused_by_name),
        cmocka_unit_test(many_tags_lose_none),
    };
    return cmocka_run_group_tests_name("broker/filter", tests, NULL, NULL);
}
