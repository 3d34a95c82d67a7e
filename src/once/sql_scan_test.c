#include "once/sql_scan.h"

#include "base/bytes.h"
#include "base/test.h"

/* Every byte of a statement that is code, as it stands; the rest as dots. */
static const char *code_of(enum sql_dialect dialect, const char *text)
{
    static char out[200];
    size_t n = 0;
    for (size_t at = 0, skip; text[at]; at += skip ? skip : 1) {
        skip = sql_scan(dialect, text, at);
        if (skip == SIZE_MAX)
            return "not closed";
        for (size_t i = 0; i < (skip ? skip : 1); i++)
            out[n++] = skip ? '.' : text[at];
    }
    out[n] = 0;
    return out;
}

static void quotes_and_comments_are_no_code(void **state)
{
    (void)state;
    for (int d = SQL_SQLITE; d <= SQL_MARIADB; d++) {
        assert_string_equal(code_of(d, "a = ?"), "a = ?");
        assert_string_equal(code_of(d, "a='it''s ?' b"), "a=......... b");
        assert_string_equal(code_of(d, "\"?\"=?"), "...=?");
        assert_string_equal(code_of(d, "a -- ?\nb"), "a ....\nb");
        assert_string_equal(code_of(d, "a -- ?"), "a ....");
        assert_string_equal(code_of(d, "a/*?*/b"), "a.....b");
        assert_string_equal(code_of(d, "a/b-c*d"), "a/b-c*d");
        assert_string_equal(code_of(d, "'open"), "not closed");
        assert_string_equal(code_of(d, "/* open"), "not closed");
    }
}

static void each_dialect_has_its_own(void **state)
{
    (void)state;
    assert_string_equal(code_of(SQL_MARIADB, "'a\\'?' b"), "...... b");
    assert_string_equal(code_of(SQL_SQLITE, "'a\\'? b"), "....? b");
    assert_string_equal(code_of(SQL_POSTGRESQL, "'a\\'? b"), "....? b");
    assert_string_equal(code_of(SQL_POSTGRESQL, "E'a\\'?' b"), "E...... b");
    assert_string_equal(code_of(SQL_POSTGRESQL, "nameE'a\\'?"), "nameE....?");
    assert_string_equal(code_of(SQL_POSTGRESQL, "$$ ? $$ ?"), "....... ?");
    assert_string_equal(code_of(SQL_POSTGRESQL, "$t$ $$ ? $t$ ?"), "............ ?");
    assert_string_equal(code_of(SQL_POSTGRESQL, "$1 a$b$c ?"), "$1 a$b$c ?");
    assert_string_equal(code_of(SQL_POSTGRESQL, "/* /* ? */ ? */ ?"), "............... ?");
    assert_string_equal(code_of(SQL_SQLITE, "/* /* ? */ ?"), ".......... ?");
    assert_string_equal(code_of(SQL_SQLITE, "[a?] `b?` ?"), ".... .... ?");
    assert_string_equal(code_of(SQL_MARIADB, "`b?` [a?] # ?\n?"), ".... [a?] ...\n?");
    assert_string_equal(code_of(SQL_MARIADB, "5--?"), "5--?");
    assert_string_equal(code_of(SQL_POSTGRESQL, "a[1] # b"), "a[1] # b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_and_comments_are_no_code),
        cmocka_unit_test(each_dialect_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
