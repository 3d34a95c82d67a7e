/* The SQL stores over SQLite: what is true of all of them. */
#include "once/sql_cases_test.h"
#include "once/sql_folder_test.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQL_CASES,
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
