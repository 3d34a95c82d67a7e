#include "sidecar/sidecar_int.h"

#include "base/test.h"
#include "once/sql_scan.h"

#include <stdio.h>

static struct sql_script script;

static const char *refusal(int dialect, const char *text)
{
    static struct fault why;
    why.text[0] = 0;
    sql_script_clear(&script);
    assert_int_equal(sql_script_read(text, dialect, &script, &why), ERR_INVALID);
    return why.text;
}

static void reads(int dialect, const char *text)
{
    struct fault why = {0};
    sql_script_clear(&script);
    if (sql_script_read(text, dialect, &script, &why))
        fail_msg("%s: %s", text, why.text);
}

static void names_become_values(void **state)
{
    (void)state;
    reads(SQL_SQLITE, "INSERT INTO t VALUES (:body.a.b[2].c, :key,:prop.region, :body, :attempt)");
    assert_int_equal(script.n, 1);
    const struct sql_statement *s = &script.statements[0];
    assert_string_equal(s->text, "INSERT INTO t VALUES (?, ?,?, ?, ?)");
    assert_int_equal(s->n_values, 5);
    assert_int_equal(s->values[0].field, FIELD_BODY);
    assert_int_equal(s->values[0].n_steps, 4);
    assert_bytes_equal(s->values[0].steps[1].name, BYTES("b"));
    assert_null(s->values[0].steps[2].name.at);
    assert_int_equal(s->values[0].steps[2].index, 2);
    assert_int_equal(s->values[1].field, FIELD_KEY);
    assert_bytes_equal(s->values[2].steps[0].name, BYTES("region"));
    assert_int_equal(s->values[3].n_steps, 0);
    reads(SQL_SQLITE, "SELECT :prop.\"odd \\\"name\", :body[\"a b\"].\"c.d\"");
    assert_bytes_equal(script.statements[0].values[0].steps[0].name, BYTES("odd \"name"));
    assert_bytes_equal(script.statements[0].values[1].steps[1].name, BYTES("c.d"));
}

/* Quotes, comments, casts, assignments and slices of arrays are left as they are. */
static void what_only_looks_like_a_name_is_none(void **state)
{
    (void)state;
    static const struct {
        int dialect;
        const char *text;
    } same[] = {
        {SQL_POSTGRESQL, "SELECT ':key', \":id\", now()::date, a[1:2], x::text"},
        {SQL_POSTGRESQL, "SELECT $$ :key $$, $q$ ; :key $q$, E'\\' :key' -- :key ; ?"},
        {SQL_POSTGRESQL, "SELECT 1 /* ; :key /* :x */ */"},
        {SQL_MARIADB, "SET @a := 1 # :key ; ?"},
        {SQL_MARIADB, "SELECT 'it\\'s :key', `:id`"},
        {SQL_SQLITE, "SELECT [:key], `:id` /* ? */"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        reads(same[i].dialect, same[i].text);
        assert_int_equal(script.n, 1);
        assert_string_equal(script.statements[0].text, same[i].text);
        assert_int_equal(script.statements[0].n_values, 0);
    }
    reads(SQL_POSTGRESQL, "SELECT :key::text, (:body.n)::int");
    assert_string_equal(script.statements[0].text, "SELECT ?::text, (?)::int");
}

static void statements_are_divided(void **state)
{
    (void)state;
    reads(SQL_SQLITE, " ; INSERT INTO a VALUES (';', :key);\n UPDATE b SET c = :id ;; ");
    assert_int_equal(script.n, 2);
    assert_string_equal(script.statements[0].text, "INSERT INTO a VALUES (';', ?)");
    assert_string_equal(script.statements[1].text, "UPDATE b SET c = ? ");
}

/* No database runs a comment alone; MariaDB runs what is in one with an exclamation mark. */
static void a_comment_alone_is_no_statement(void **state)
{
    (void)state;
    reads(SQL_SQLITE, "-- first\nSELECT :key; /* that is all */ ; -- :key");
    assert_int_equal(script.n, 1);
    assert_string_equal(script.statements[0].text, "-- first\nSELECT ?");
    assert_non_null(strstr(refusal(SQL_SQLITE, "-- SELECT 1"), "no statement"));
    reads(SQL_SQLITE, "SELECT 1; - 1");
    assert_int_equal(script.n, 2);
    reads(SQL_MARIADB, "SELECT 1; # over\n; /* over */; /*!SELECT 2 */");
    assert_int_equal(script.n, 2);
    assert_string_equal(script.statements[1].text, "/*!SELECT 2 */");
}

static void mistakes_have_a_place(void **state)
{
    (void)state;
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT :kye"), "position 8"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT :kye"), ":kye"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT 'open"), "position 8"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT ?"), "position 8"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT :prop"), "position 8"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT :body.\"a"), "not closed"));
    assert_non_null(strstr(refusal(SQL_SQLITE, "SELECT :body[\"a\"x"), "index"));
    assert_non_null(strstr(refusal(SQL_SQLITE, ""), "no statement"));
    char many[400] = "SELECT :key";
    for (int i = 1; i < 33; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), ",:key");
    assert_non_null(strstr(refusal(SQL_SQLITE, many), "more than 32"));
}

static int clear(void **state)
{
    (void)state;
    sql_script_clear(&script);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_values),
        cmocka_unit_test(what_only_looks_like_a_name_is_none),
        cmocka_unit_test(statements_are_divided),
        cmocka_unit_test(a_comment_alone_is_no_statement),
        cmocka_unit_test(mistakes_have_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, clear);
}
