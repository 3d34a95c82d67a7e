/* Expressions against what Apache's own filter made of them, and what only ours promises: bounds,
 * and errors that say where. */
#include "broker/sql92.h"

#include "base/test.h"
#include "msg/msg.h"

#include <stdio.h>

static enum err compile(const char *text, struct sql92 **out, struct fault *why)
{
    return sql92_compile(bytes_str(text), out, why);
}

static enum sql92_result eval(const char *text, const char *props)
{
    struct sql92 *sql;
    struct fault why = {0};
    if (compile(text, &sql, &why))
        fail_msg("%s: %s", text, why.text);
    uint8_t *exact = test_copy(props, strlen(props));
    enum sql92_result result = sql92_eval(sql, bytes_of(exact, strlen(props)));
    free(exact);
    sql92_free(sql);
    return result;
}

/* ---- the vectors ---- */

/* Undoes the escapes of the file, in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        if (*at == '\\') {
            at++;
            *to++ = *at == 't'   ? '\t'
                    : *at == 'n' ? '\n'
                    : *at == 'r' ? '\r'
                    : *at == 'f' ? '\f'
                                 : *at;
        } else {
            *to++ = *at;
        }
    }
    *to = 0;
}

/* What we make of a line without its first letter: an expression and properties. */
static char result_of(char *line)
{
    uint8_t props[8192];
    struct wr w = wr_over(props, sizeof props);
    char *next = strchr(line, '\t');
    if (next)
        *next++ = 0;
    while (next) {
        char *pair = next;
        next = strchr(pair, '\t');
        if (next)
            *next++ = 0;
        char *value = strchr(pair, '=');
        assert_non_null(value);
        *value++ = 0;
        unescape(value);
        props_add(&w, bytes_str(pair), bytes_str(value));
    }
    assert_false(w.full);
    unescape(line);

    struct sql92 *sql;
    uint8_t *exact = test_copy(line, strlen(line));
    enum err err = sql92_compile(bytes_of(exact, strlen(line)), &sql, NULL);
    free(exact); /* nothing of it is needed any more */
    if (err)
        return 'X';
    char letter = "FTNE"[sql92_eval(sql, wr_bytes(&w))];
    sql92_free(sql);
    return letter;
}

/* SQL92_VECTORS=file takes other ones, as tests/interop/sql92.py does. */
static void has_the_results_of_apaches_filter(void **state)
{
    (void)state;
    const char *path = getenv("SQL92_VECTORS");
    FILE *in = fopen(path ? path : VECTORS "/sql92.txt", "r");
    assert_non_null(in);
    size_t size = 0, seen = 0, wrong = 0;
    char *line = NULL;
    for (ssize_t len; (len = getline(&line, &size, in)) > 0;) {
        if (line[0] == '#')
            continue;
        assert_true(len > 2 && line[len - 1] == '\n');
        line[len - 1] = 0;
        char *whole = strdup(line);
        char got = result_of(line + 2);
        if (got != whole[0] && ++wrong <= 20)
            print_error("ours is %c: %s\n", got, whole);
        free(whole);
        seen++;
    }
    free(line);
    (void)fclose(in);
    print_message("# %zu expressions\n", seen);
    assert_true(seen > 1000);
    assert_int_equal(wrong, 0);
}

/* ---- errors ---- */

static void an_error_names_its_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1, column 1: a value is missing; the expression ends there"},
        {"a = ", "line 1, column 5: a value is missing; the expression ends there"},
        {"a = 5 AND", "line 1, column 10: a value is missing"},
        {"a = 5 AND\n  b >< 4", "line 2, column 6: a value is missing at \"<\""},
        {"a = 'ä中' AND ?", "line 1, column 14: this is no part of an expression at \"?\""},
        {"a = 'x", "line 1, column 5: this is no part of an expression at \"'x\""},
        {"(a = 5", "line 1, column 7: a closing bracket is missing"},
        {"a > 'x'", "line 1, column 5: only numbers and properties can be compared with < or >"},
        {"a BETWEEN 5 AND 1", "line 1, column 11: the lower bound is above the upper one at \"5\""},
        {"a = NULL", "line 1, column 5: NULL is never equal to anything; write IS NULL"},
        {"a IN (5)", "line 1, column 7: a text in single quotes is missing at \"5\""},
        {"a NOT 5", "line 1, column 7: BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is missing"},
        {"a = 99999999999999999999", "line 1, column 5: this number is too large"},
        {"a OR 5", "line 1, column 6: this is neither true nor false at \"5\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sql92 *sql;
        struct fault why = {0};
        assert_int_equal(compile(cases[i].text, &sql, &why), ERR_MALFORMED);
        if (!strstr(why.text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, why.text);
    }
}

/* ---- bounds ---- */

static char *repeated(const char *before, size_t n, const char *piece, const char *after)
{
    size_t room = strlen(before) + n * strlen(piece) + strlen(after) + 1;
    char *text = malloc(room);
    assert_non_null(text);
    struct wr w = wr_over(text, room);
    wr_bytes_of(&w, bytes_str(before));
    for (size_t i = 0; i < n; i++)
        wr_bytes_of(&w, bytes_str(piece));
    wr_bytes_of(&w, bytes_str(after));
    wr_u8(&w, 0);
    assert_false(w.full);
    return text;
}

static enum err compiles(char *text)
{
    struct sql92 *sql = NULL;
    enum err err = sql92_compile(bytes_str(text), &sql, NULL);
    sql92_free(sql);
    free(text);
    return err;
}

static void what_is_too_long_or_too_deep_is_refused(void **state)
{
    (void)state;
    char *deep = repeated("", SQL92_DEPTH_MAX, "(", "TRUE");
    char *balanced = repeated(deep, SQL92_DEPTH_MAX, ")", "");
    free(deep);
    assert_int_equal(compiles(balanced), OK);
    assert_int_equal(compiles(repeated("", SQL92_DEPTH_MAX + 1, "(", "TRUE")), ERR_TOO_BIG);
    assert_int_equal(compiles(repeated("", SQL92_TEXT_MAX / 4, "NOT ", "")), ERR_TOO_BIG);
    assert_int_equal(compiles(repeated("", SQL92_TEXT_MAX, "-", "")), ERR_TOO_BIG);
    assert_int_equal(compiles(repeated("", 60, "a = 1 OR b = 2 AND c = (", "TRUE")), ERR_TOO_BIG);
    assert_int_equal(compiles(repeated("TRUE", SQL92_TEXT_MAX, " ", "")), ERR_TOO_BIG);
    assert_int_equal(compiles(repeated("TRUE", SQL92_TEXT_MAX - 4, " ", "")), OK);
}

static void a_long_row_of_alternatives_is_not_deep(void **state)
{
    (void)state;
    char *text = repeated("a = 1", 1600, " OR a = 2", " OR a = 3");
    assert_int_equal(eval(text, "a\0013\2"), SQL92_TRUE);
    assert_int_equal(eval(text, "a\0014\2"), SQL92_FALSE);
    free(text);
}

static void up_to_sixty_four_properties_can_be_named(void **state)
{
    (void)state;
    char text[SQL92_TEXT_MAX];
    for (int names = SQL92_NAMES_MAX; names <= SQL92_NAMES_MAX + 1; names++) {
        struct wr w = wr_over(text, sizeof text);
        for (int i = 0; i < names; i++) {
            char piece[32];
            (void)snprintf(piece, sizeof piece, "%sp%d = 1", i ? " OR " : "", i);
            wr_bytes_of(&w, bytes_str(piece));
        }
        wr_u8(&w, 0);
        assert_int_equal(eval("p63 = 1", "p63\0011\2"), SQL92_TRUE);
        struct sql92 *sql = NULL;
        assert_int_equal(compile(text, &sql, NULL), names <= SQL92_NAMES_MAX ? OK : ERR_TOO_BIG);
        if (sql)
            assert_int_equal(sql92_eval(sql, BYTES("x\0012\2p63\0011\2")), SQL92_TRUE);
        sql92_free(sql);
    }
}

/* ---- properties ---- */

static void of_a_property_that_is_there_twice_the_last_counts(void **state)
{
    (void)state;
    assert_int_equal(eval("a = 1", "a\0012\2a\0011\2"), SQL92_TRUE);
    assert_int_equal(eval("a = 1", "a\0011\2a\0012\2"), SQL92_FALSE);
    assert_int_equal(eval("a IS NULL", "a\1\2"), SQL92_TRUE);
    assert_int_equal(eval("a = 1", "a\0011"), SQL92_TRUE);
}

static void names_are_told_apart_by_case_and_length(void **state)
{
    (void)state;
    assert_int_equal(eval("A = 1", "a\0011\2"), SQL92_NULL);
    assert_int_equal(eval("ab = 1", "a\0011\2abc\0011\2"), SQL92_NULL);
    char *name = repeated("", 100, "n", "");
    char *text = repeated(name, 1, " = 1", ""), *props = repeated(name, 1, "\0011\2", "");
    assert_int_equal(eval(text, props), SQL92_TRUE);
    free(name);
    free(text);
    free(props);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_results_of_apaches_filter),
        cmocka_unit_test(an_error_names_its_line_and_column),
        cmocka_unit_test(what_is_too_long_or_too_deep_is_refused),
        cmocka_unit_test(a_long_row_of_alternatives_is_not_deep),
        cmocka_unit_test(up_to_sixty_four_properties_can_be_named),
        cmocka_unit_test(of_a_property_that_is_there_twice_the_last_counts),
        cmocka_unit_test(names_are_told_apart_by_case_and_length),
    };
    return cmocka_run_group_tests_name("broker/sql92", tests, NULL, NULL);
}
