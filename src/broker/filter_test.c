/* Which tags an expression takes. */
#include "base/test.h"
#include "broker/broker_int.h"

#include <stdio.h>

static struct filters filters = {.sql92 = true};

static struct filter *made(const char *expression, const char *type)
{
    struct filter *f;
    struct fault why = {0};
    if (filter_make(&filters, bytes_str(expression), bytes_str(type), &f, &why))
        fail_msg("%s: %s", expression, why.text);
    return f;
}

static bool takes(const char *expression, const char *tag)
{
    struct filter *f = made(expression, "TAG");
    bool wants = filter_wants(f, tags_code(bytes_str(tag)));
    filter_drop(f);
    return wants;
}

static void a_star_or_nothing_takes_all(void **state)
{
    (void)state;
    assert_true(takes("*", "TagA"));
    assert_true(takes("*", ""));
    assert_true(takes("", "TagA"));
    assert_null(made("*", ""));
    assert_null(made("", "TAG"));
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
        struct filter *f;
        struct fault why = {0};
        assert_int_equal(filter_make(&filters, bytes_str(bad[i]), BYTES("TAG"), &f, &why),
                         ERR_MALFORMED);
        assert_true(why.text[0]);
    }
}

static enum err refused(struct filters *by, const char *expression, const char *type,
                        const char *says)
{
    struct filter *f;
    struct fault why = {0};
    enum err err = filter_make(by, bytes_str(expression), bytes_str(type), &f, &why);
    if (!strstr(why.text, says))
        fail_msg("%s", why.text);
    return err;
}

static void other_types_are_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(refused(&filters, "a", "XPATH", "XPATH"), ERR_MALFORMED);
    struct filters off = {.sql92 = false};
    assert_int_equal(refused(&off, "a = 5", "SQL92",
                             "The broker does not support consumer to filter message by SQL92"),
                     ERR_UNSUPPORTED);
}

static void sql92_looks_at_the_properties_alone(void **state)
{
    (void)state;
    struct filter *f = made("a > 4 AND TAGS = 'x'", "SQL92");
    assert_true(filter_by_props(f));
    assert_true(filter_wants(f, 4711));
    assert_true(filter_wants_props(f, BYTES("a\0015\2TAGS\1x\2")));
    assert_false(filter_wants_props(f, BYTES("a\0014\2TAGS\1x\2")));
    assert_false(filter_wants_props(f, BYTES("TAGS\1x\2")));       /* null is not true */
    assert_false(filter_wants_props(f, BYTES("a\1z\2TAGS\1x\2"))); /* nor is a failure */
    filter_drop(f);
    struct filter *tags = made("x", "TAG");
    assert_false(filter_by_props(tags));
    assert_true(filter_wants_props(tags, BYTES("TAGS\1y\2")));
    filter_drop(tags);
    assert_int_equal(refused(&filters, "a = 5 AND", "SQL92",
                             "Invalid MessageSelector: line 1, column 10: a value is missing"),
                     ERR_MALFORMED);
    assert_int_equal(refused(&filters, "", "SQL92", "column 1"), ERR_MALFORMED);
}

/* What compiled expressions take is counted, given back and limited. */
static void the_memory_of_expressions_is_bounded(void **state)
{
    (void)state;
    struct filters few = {.sql92 = true};
    struct filter *f;
    assert_int_equal(filter_make(&few, BYTES("a = 5"), BYTES("SQL92"), &f, NULL), OK);
    size_t one = few.size;
    assert_true(one > 0);
    filter_hold(f);
    filter_drop(f);
    assert_int_equal(few.size, one);
    filter_drop(f);
    assert_int_equal(few.size, 0);

    few.size = FILTERS_SIZE_MAX - one + 1;
    assert_int_equal(refused(&few, "a = 5", "SQL92", "no more room"), ERR_BUSY);
    assert_int_equal(few.size, FILTERS_SIZE_MAX - one + 1);
    few.size--;
    assert_int_equal(filter_make(&few, BYTES("a = 5"), BYTES("SQL92"), &f, NULL), OK);
    filter_drop(f);
}

static uint64_t mark(const char *expression, const char *type)
{
    return filter_mark(bytes_str(expression), bytes_str(type));
}

static void the_same_tags_have_the_same_mark(void **state)
{
    (void)state;
    assert_true(mark("A || B", "TAG") == mark("B||A", ""));
    assert_true(mark("*", "TAG") == mark("", "TAG"));
    assert_true(mark("A", "TAG") != mark("B", "TAG"));
    assert_true(mark("A", "TAG") != mark("A || B", "TAG"));
    assert_true(mark("A", "TAG") != mark("A", "SQL92"));
    assert_true(mark("a = 1", "SQL92") != mark("a = 2", "SQL92"));
}

#define EXACT_TAGS 32

/* Beyond the exact list none of the wanted ones may be lost, and few of the others come through. */
static void many_tags_lose_none(void **state)
{
    (void)state;
    for (int n = EXACT_TAGS - 1; n <= 100; n++) {
        char text[2048] = "", tag[16];
        for (int i = 0; i < n; i++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%stag-%d", i ? "||" : "", i);
        }
        struct filter *f = made(text, "TAG");
        for (int i = 0; i < n; i++) {
            snprintf(tag, sizeof tag, "tag-%d", i);
            assert_true(filter_wants(f, tags_code(bytes_str(tag))));
        }
        int extra = 0;
        for (int i = 0; i < 1000; i++) {
            snprintf(tag, sizeof tag, "other-%d", i);
            extra += filter_wants(f, tags_code(bytes_str(tag)));
        }
        assert_true(n <= EXACT_TAGS ? extra == 0 : extra < 250);
        filter_drop(f);
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
        cmocka_unit_test(sql92_looks_at_the_properties_alone),
        cmocka_unit_test(the_memory_of_expressions_is_bounded),
        cmocka_unit_test(the_same_tags_have_the_same_mark),
        cmocka_unit_test(many_tags_lose_none),
    };
    return cmocka_run_group_tests_name("broker/filter", tests, NULL, NULL);
}
