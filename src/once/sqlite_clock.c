/* sqlite_clock.c - the clock of straight writes (sql_straight.c), which a session has to keep.
 *
 *     once_tick(ms)   keeps what the clock says, and gives it back
 *     once_now()      what was kept
 *
 * So all rows of a batch reckon from the same moment, and that is the one the batch was told.
 */
#include "once/sqlite_int.h"

static void tick(sqlite3_context *context, int n, sqlite3_value **values)
{
    struct sql_conn *c = sqlite3_user_data(context);
    c->tick_ms = sqlite3_value_int64(values[0]);
    sqlite3_result_int64(context, c->tick_ms);
}

static void now(sqlite3_context *context, int n, sqlite3_value **values)
{
    const struct sql_conn *c = sqlite3_user_data(context);
    sqlite3_result_int64(context, c->tick_ms);
}

int sqlite_clock(struct sql_conn *c)
{
    const int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY; /* of no use to a view or a trigger */
    int rc = sqlite3_create_function_v2(c->db, "once_tick", 1, flags, c, tick, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_create_function_v2(c->db, "once_now", 0, flags, c, now, NULL, NULL, NULL);
    return rc;
}
