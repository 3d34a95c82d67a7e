/* options_test.c - what once_open takes and refuses; through the public header, but for the load of
 * drivers. */
#include "once/once_int.h"

#include "base/test.h"

#include <stdio.h>

static struct once_options good(void)
{
    return (struct once_options){.store = "memory:", .group = "g"};
}

static char logged[4096];

static void log_line(void *user, int level, const char *line)
{
    (void)user;
    size_t n = strlen(logged);
    (void)snprintf(logged + n, sizeof logged - n, "%d %s\n", level, line);
}

/* Refused with a sentence that has `word` in it. */
static void refused(const struct once_options *o, int code, const char *word)
{
    struct once *once = NULL;
    struct once_error why = {0};
    assert_int_equal(once_open(o, &once, &why), code);
    assert_int_equal(why.code, code);
    assert_null(once);
    if (!strstr(why.text, word))
        print_error("%s\n", why.text);
    assert_non_null(strstr(why.text, word));
    assert_int_equal(once_open(o, &once, NULL), code);
}

static void opened(const struct once_options *o)
{
    struct once *once = NULL;
    struct once_error why = {0};
    if (once_open(o, &once, &why) != ONCE_OK)
        print_error("%s\n", why.text);
    assert_non_null(once);
    once_close(once);
}

static void the_least_that_is_needed_works(void **state)
{
    (void)state;
    struct once_options o = good();
    opened(&o);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    struct once_options o = good();
    o.expiry_ms = -1;
    refused(&o, ONCE_INVALID, "expiry_ms");
    o = good();
    o.retention_ms = INT64_MAX;
    refused(&o, ONCE_INVALID, "retention_ms");
    o = good();
    o.ladder_ms = -5;
    refused(&o, ONCE_INVALID, "ladder_ms");
    o = good();
    o.connections = 100000;
    refused(&o, ONCE_INVALID, "connections");
    o = good();
    o.wait_ms = -1;
    refused(&o, ONCE_INVALID, "wait_ms");
    o = good();
    o.sweep_rows = -1;
    refused(&o, ONCE_INVALID, "sweep_rows");
    o = good();
    o.mode = 4;
    refused(&o, ONCE_INVALID, "mode");
    o = good();
    o.no_key = ONCE_BY_SUPPRESSION; /* that would be H-15 by choice */
    refused(&o, ONCE_INVALID, "no_key");
    o = good();
    o.other_body = ONCE_BY_MESSAGE_ID;
    refused(&o, ONCE_INVALID, "other_body");
}

static void names_are_checked(void **state)
{
    (void)state;
    struct once_options o = good();
    o.group = NULL;
    refused(&o, ONCE_INVALID, "group");
    o.group = "";
    refused(&o, ONCE_INVALID, "group");
    o = good();
    o.scope = "";
    refused(&o, ONCE_INVALID, "scope");
    static const char *const tables[] = {
        "",    "a b", "a;DROP TABLE x",
        "a\"", "a`",  "täble",
        "a.b", "a-b", "a234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        o = good();
        o.table = tables[i];
        refused(&o, ONCE_INVALID, "table");
    }
    o.table = "a23456789012345678901234567890123456789012345678";
    opened(&o);
    o.table = "_Z9";
    opened(&o);
}

static void a_constant_key_or_a_wrong_one_is_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"order", "", "{body.", "{nosuch}", "{{}}"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct once_options o = good();
        o.key = keys[i];
        refused(&o, ONCE_INVALID, "key: ");
    }
}

static void a_retention_below_the_ladder_is_refused_or_a_warning(void **state)
{
    (void)state;
    struct once_options o = good();
    o.retention_ms = 3600000;
    refused(&o, ONCE_INVALID, "ladder");
    o.ladder_ms = 3600000;
    opened(&o);
    o.ladder_ms = 0;
    o.retention_short = true;
    o.log = log_line;
    logged[0] = 0;
    opened(&o);
    assert_non_null(strstr(logged, "late deliveries"));
    o = good();
    o.log = log_line;
    logged[0] = 0;
    opened(&o);
    assert_string_equal(logged, "");
}

static void stores_are_found_by_their_url(void **state)
{
    (void)state;
    struct once_options o = good();
    static const char *const odd[] = {"", "x", "http://a", "Memory:", "://", "redis", "sqlite"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        o.store = odd[i];
        refused(&o, ONCE_INVALID, "store");
    }
    o.store = "nosuch://user:secret@host";
    struct once *once;
    struct once_error why;
    assert_int_equal(once_open(&o, &once, &why), ONCE_INVALID);
    assert_null(strstr(why.text, "secret"));
}

static void a_driver_that_is_not_there_is_named(void **state)
{
    (void)state;
    assert_int_equal(setenv("ONCE_DRIVERS", "/nonexistent", 1), 0);
    static const struct {
        const char *url, *file, *needs;
    } cases[] = {{"sqlite:x.db", "libonce-sqlite.so.0", "libsqlite3"},
                 {"redis://u:secret@h", "libonce-redis.so.0", "libhiredis"},
                 {"postgres://u:secret@h/d", "libonce-postgresql.so.0", "libpq"},
                 {"postgresql://u:secret@h/d", "libonce-postgresql.so.0", "libpq"},
                 {"mysql://u:secret@h/d", "libonce-mariadb.so.0", "libmariadb"},
                 {"mariadb://u:secret@h/d", "libonce-mariadb.so.0", "libmariadb"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct once_options o = good();
        struct once *once = NULL;
        struct once_error why = {0};
        o.store = cases[i].url;
        int code = once_open(&o, &once, &why);
        if (code == ONCE_STORE || (code == ONCE_OK && once))
            return; /* they are installed on this machine, where any library is found */
        assert_int_equal(code, ONCE_UNSUPPORTED);
        assert_non_null(strstr(why.text, cases[i].file));
        assert_non_null(strstr(why.text, cases[i].needs));
        assert_null(strstr(why.text, "secret"));
    }
}

static void modes_that_a_store_cannot_do_are_refused(void **state)
{
    (void)state;
    struct once_options o = good();
    o.mode = ONCE_TRANSACTION;
    refused(&o, ONCE_UNSUPPORTED, "transactions");
    o.mode = ONCE_OFFSET;
    refused(&o, ONCE_UNSUPPORTED, "transactions");
    o = good();
    o.plain = true;
    refused(&o, ONCE_UNSUPPORTED, "plain");
    o.mode = ONCE_TABLE;
    refused(&o, ONCE_UNSUPPORTED, "plain");
}

/* What plain forms are for, without their servers. */
static void the_plain_forms_have_their_stores_and_times(void **state)
{
    (void)state;
    const struct once_driver redis = {.name = "redis"}, mariadb = {.name = "mariadb", .sql = true};
    struct once_options o = {.store = "x", .group = "g", .plain = true}, whole;
    assert_int_equal(options_take(&o, &whole, NULL), ONCE_OK);
    assert_int_equal(whole.expiry_ms, 3600000);
    assert_int_equal(whole.retention_ms, 3600000);
    assert_int_equal(options_suit(&whole, &redis, NULL), ONCE_OK);
    assert_int_equal(options_suit(&whole, &mariadb, NULL), ONCE_UNSUPPORTED);
    whole.mode = ONCE_TABLE;
    assert_int_equal(options_suit(&whole, &redis, NULL), ONCE_UNSUPPORTED);
    assert_int_equal(options_suit(&whole, &mariadb, NULL), ONCE_OK);
    whole.plain = false;
    whole.mode = ONCE_TRANSACTION;
    assert_int_equal(options_suit(&whole, &mariadb, NULL), ONCE_OK);
    whole.open_when_down = true;
    assert_int_equal(options_suit(&whole, &mariadb, NULL), ONCE_UNSUPPORTED);
    options_clear(&whole);
}

static void defaults_are_as_the_manual_says(void **state)
{
    (void)state;
    struct once_options o = {.group = "g"}, w;
    assert_int_equal(options_take(&o, &w, NULL), ONCE_OK);
    assert_string_equal(w.store, "sqlite:once.db");
    assert_string_equal(w.scope, "g");
    assert_string_equal(w.prefix, "");
    assert_string_equal(w.key, "{key}");
    assert_string_equal(w.table, "once");
    assert_int_equal(w.expiry_ms, 30000);
    assert_int_equal(w.retention_ms, 72 * 3600 * 1000);
    assert_int_equal(w.ladder_ms, 17140000);
    assert_int_equal(w.connections, 50);
    assert_int_equal(w.wait_ms, 3000);
    assert_int_equal(w.sweep_rows, 1000);
    options_clear(&w);
    o.mode = ONCE_TABLE;
    assert_int_equal(options_take(&o, &w, NULL), ONCE_OK);
    assert_int_equal(w.expiry_ms, 3600000);
    options_clear(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_that_is_needed_works),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(names_are_checked),
        test_of_row("H-15", a_constant_key_or_a_wrong_one_is_refused),
        test_of_row("H-9", a_retention_below_the_ladder_is_refused_or_a_warning),
        cmocka_unit_test(stores_are_found_by_their_url),
        cmocka_unit_test(a_driver_that_is_not_there_is_named),
        test_of_row("ID-9", modes_that_a_store_cannot_do_are_refused),
        test_of_row("ID-15", the_plain_forms_have_their_stores_and_times),
        test_of_row("H-32", defaults_are_as_the_manual_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
