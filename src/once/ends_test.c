/* ends_test.c - which statements end a transaction, as any of the databases may read them. */
#include "base/test.h"
#include "once/once_int.h"

static const char *const more[] = {"CREATE", "DROP", "SET AUTOCOMMIT", "SET @@AUTOCOMMIT", NULL};

static void these_end_it(void **state)
{
    static const char *const all[] = {
        "COMMIT", " commit;", "Rollback to x", "\f\v(;END", "BEGIN;", "XA END 'x'", "abort",
        "START TRANSACTION", "COMMIT/**/", "commit-- x", "/**/COMMIT", "/* a */ /* b */ COMMIT",
        "-- a\nCOMMIT", "# a\n# b\n COMMIT", "--\rCOMMIT", "-- a\r\nCOMMIT",
        "/* a /* b */ */COMMIT", "/* a /* b */COMMIT",
        /* MariaDB does them, or passes over them, as its version is */
        "/*!COMMIT*/", "/*!50000 COMMIT */", "/*M!100100 COMMIT */", "/*! a */ COMMIT",
        "/*!999999 a */ COMMIT", "/*M!999999 a */ COMMIT", "/*!999999 a */ /*!50000 COMMIT */",
        "/*!50000 */ COMMIT",
        "/* 1 *//* 2 *//* 3 *//* 4 *//* 5 *//* 6 *//* 7 *//* 8 *//* 9 */ SELECT 1",
        /* only where they do so by the way */
        "CREATE TABLE t (i INT)", "drop table t", "SET autocommit = 1", "SET/**/autocommit=1",
        "set @@autocommit=0", "SET@@autocommit=0", "CREATE /*M!999999 TEMPORARY */ TABLE t (i INT)",
        "/* TEMPORARY */ CREATE /*M!999999 TEMPORARY */ TABLE t (i INT)",
        "/*!999999 CREATE TEMPORARY */ CREATE TABLE t (i INT)", "CREATE TEMPORARY_TABLE"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!ends_transaction(all[i], more))
            fail_msg("%s", all[i]);
    (void)state;
}

static void these_do_not(void **state)
{
    static const char *const all[] = {"",
                                      " ",
                                      "/*",
                                      "/*!",
                                      "--",
                                      "#",
                                      "/* COMMIT */",
                                      "-- COMMIT",
                                      "/* COMMIT */ SELECT 1",
                                      "SELECT 'COMMIT'",
                                      "COMMITS",
                                      "COMMIT_ALL",
                                      "commit$",
                                      "END\xc3\xa9",
                                      "UPDATE t SET commit = 1",
                                      "CREATE TEMPORARY TABLE t (i INT)",
                                      " create\ttemporary table t (i int)",
                                      "/* app */ -- x\n CREATE TEMPORARY TABLE t (i INT)",
                                      "DROP TEMPORARY TABLE t",
                                      "SET autocommits = 1",
                                      "SET names utf8",
                                      "INSERT INTO t VALUES (1) /* COMMIT */"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (ends_transaction(all[i], more))
            fail_msg("%s", all[i]);
    assert_false(ends_transaction("CREATE TABLE t (i INT)", NULL));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(these_end_it),
        cmocka_unit_test(these_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
