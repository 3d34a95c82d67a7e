/* server_test.c - the SQL stores over a database server: what is true of all of them. Built once
 * for each ENGINE; tests/once/engines.py has the server. */
#include "once/sql_cases_test.h"

/* Other tables for each store. */
static void rig_settings(struct rig *rig)
{
    static int stores;
    const char *url = getenv("STORE_URL");
    assert_non_null(url);
    rig->engine = &ENGINE;
    rig->settings.transactions = true;
    (void)snprintf(rig->url, sizeof rig->url, "%s", url);
    (void)snprintf(rig->table, sizeof rig->table, "Store_%d", stores++);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQL_CASES,
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
