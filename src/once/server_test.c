/* server_test.c - the SQL stores over a database server: what is true of all of them. Built once
 * for each ENGINE; tests/once/engines.py has the server. */
#include "once/sql_cases_test.h"
#include "once/sql_places_test.h"
#include "once/sql_plain_test.h"

/* As programs in other languages make it. */
static const char *plain_create(const struct sql_engine *engine)
{
    return strcmp(engine->name, "postgresql") == 0
               ? "CREATE TABLE {plain} (id BIGSERIAL PRIMARY KEY, k VARCHAR(100) NOT NULL UNIQUE, "
                 "update_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"
               : "CREATE TABLE {plain} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, k "
                 "VARCHAR(100) NOT NULL, update_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON "
                 "UPDATE CURRENT_TIMESTAMP, UNIQUE KEY uniq_k (k))";
}

/* Other tables for each store. */
static void rig_settings(struct rig *rig)
{
    static int stores;
    const char *url = getenv("STORE_URL");
    assert_non_null(url);
    rig->engine = &ENGINE;
    rig->plain_create = plain_create(rig->engine);
    rig->settings.transactions = true;
    (void)snprintf(rig->url, sizeof rig->url, "%s", url);
    (void)snprintf(rig->table, sizeof rig->table, "Store_%d", stores++);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQL_CASES,
        SQL_PLACE_CASES,
        SQL_PLAIN_CASES,
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
