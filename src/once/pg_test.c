/* pg_test.c - the PostgreSQL engine on a real server. */
#include "once/engine_test.h"
#include "once/pg_int.h"

const struct dialect dialect = {
    .engine = &sql_engine_pg,
    .heading = "## PostgreSQL",
    .things = "CREATE TABLE things (id bigint PRIMARY KEY, number bigint, words varchar(10),"
              " bytes bytea)",
    .sleep = "SELECT pg_sleep(10)",
    .forbidden = "SELECT rolname FROM pg_authid",
    .odd_names = "SELECT '?''' AS \"a?\"\"b\", ? + 1",
};

static void native_exec(struct sql_conn *conn, const char *text, ExecStatusType wanted)
{
    PGconn *pg = dialect.engine->native(conn);
    PGresult *r = PQexec(pg, text);
    assert_int_equal(PQresultStatus(r), wanted);
    PQclear(r);
}

/* Also one that gets it before any statement of ours. */
static void a_handler_uses_the_connection_within_the_transaction(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (int statements = 0; statements < 2; statements++) {
        begin(conn);
        if (statements)
            (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
        native_exec(conn, "INSERT INTO things (id) VALUES (2)", PGRES_COMMAND_OK);
        dialect.engine->rollback(conn);
        assert_int_equal(things(conn), 0);
    }
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    native_exec(conn, "INSERT INTO things (id) VALUES (2)", PGRES_COMMAND_OK);
    native_exec(conn, "SAVEPOINT a", PGRES_COMMAND_OK);
    native_exec(conn, "INSERT INTO things (id) VALUES (2)", PGRES_FATAL_ERROR);
    native_exec(conn, "ROLLBACK TO a", PGRES_COMMAND_OK);
    commit(conn);
    assert_int_equal(things(conn), 2);
    bye(conn);
    (void)state;
}

/* PostgreSQL answers their COMMIT without an error. */
static void a_handler_that_goes_on_after_an_error_is_not_done(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    fresh_things(conn);
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    native_exec(conn, "SELECT 1/0", PGRES_FATAL_ERROR);
    assert_int_equal(dialect.engine->commit(conn, &why), ERR_INVALID);
    assert_int_equal(things(conn), 0);

    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    native_exec(conn, "ROLLBACK", PGRES_COMMAND_OK); /* it must not, but it can */
    assert_int_equal(dialect.engine->commit(conn, &why), ERR_INVALID);
    assert_true(dialect.engine->healthy(conn));
    bye(conn);
    (void)state;
}

static void a_handler_that_leaves_the_connection_busy_spoils_it(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    begin(conn);
    (void)done(conn, (struct sql_call){.text = "SELECT 1"});
    assert_true(PQsendQuery(dialect.engine->native(conn), "SELECT 1"));
    assert_int_not_equal(dialect.engine->commit(conn, &why), OK);
    assert_false(dialect.engine->healthy(conn));
    bye(conn);
    (void)state;
}

static void what_is_read_only_says_so(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    fresh_things(conn);
    begin(conn);
    (void)done(conn, (struct sql_call){.text = "SET TRANSACTION READ ONLY"});
    struct sql_call call = {.text = insert_id, VALUES(num(1))};
    assert_int_equal(run1(conn, &call, &why), ERR_READ_ONLY);
    dialect.engine->rollback(conn);
    bye(conn);
    (void)state;
}

static void serialisation_failures_are_busy(void **state)
{
    struct sql_conn *a = fresh(), *b = fresh();
    struct fault why = {0};
    fresh_things(a);
    (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(1))});
    begin(a);
    (void)done(a, (struct sql_call){.text = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"});
    assert_int_equal(things(a), 1);
    struct sql_call set = {.text = set_number, VALUES(num(1), num(1))};
    (void)done(b, set);
    assert_int_equal(run1(a, &set, &why), ERR_BUSY);
    dialect.engine->rollback(a);
    bye(b);
    bye(a);
    (void)state;
}

/* Keys of a user's table have all kinds of types, and come as text. */
static void a_text_fits_every_type(void **state)
{
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = "DROP TABLE IF EXISTS kinds"});
    (void)done(conn, (struct sql_call){.text = "CREATE TABLE kinds (a integer, b numeric, c uuid,"
                                               " d char(3), e text)"});
    struct sql_value id = words("11111111-2222-3333-4444-555555555555");
    assert_int_equal(
        done(conn, (struct sql_call){.text = "INSERT INTO kinds VALUES (?,?,?,?,?)",
                                     .once = true,
                                     VALUES(words("7"), words("7.5"), id, words("x"), words("y"))}),
        1);
    struct seen seen = {0};
    (void)done(conn,
               (struct sql_call){.text = "SELECT a, b, c, e FROM kinds WHERE a = ? AND"
                                         " b = ? AND c = ? AND d = ? AND e = ?",
                                 .once = true,
                                 VALUES(words("7"), words("7.50"), id, words("x"), words("y")),
                                 .row = see,
                                 .user = &seen});
    assert_int_equal(seen.rows, 1);
    assert_int_equal(seen.last[0].number, 7);
    assert_bytes_equal(seen.last[1].bytes, BYTES("7.5"));
    assert_bytes_equal(seen.last[2].bytes, id.bytes);
    seen_clear(&seen);
    bye(conn);
    (void)state;
}

static void a_text_with_a_zero_byte_is_refused(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    struct sql_call call = {.text = "SELECT ?", .once = true, VALUES(words(""))};
    call.params[0].bytes = BYTES("a\0b");
    assert_int_equal(run1(conn, &call, &why), ERR_INVALID);
    assert_int_equal(number_of(conn, "SELECT 1"), 1);
    bye(conn);
    (void)state;
}

/* NULL where a number stood the last time: another statement for the server. */
static void types_of_a_text_may_change(void **state)
{
    static const char text[] = "INSERT INTO things (id, number) VALUES (?, ?)";
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = text, VALUES(num(1), null())});
    (void)done(conn, (struct sql_call){.text = text, VALUES(num(2), num(2))});
    (void)done(conn, (struct sql_call){.text = text, VALUES(num(3), words("3"))});
    assert_int_equal(number_of(conn, "SELECT sum(number)::bigint FROM things"), 5);
    bye(conn);
    (void)state;
}

/* A server told not to wait for its disk waits for ours. */
static void commits_are_on_the_disk(void **state)
{
    char url[256];
    snprintf(url, sizeof url, "%s?options=-csynchronous_commit%%3Doff", store_url());
    struct store_settings settings = settings_for(url);
    struct sql_conn *conn = NULL;
    struct fault why = {0};
    good(dialect.engine->connect(&settings, &conn, &why), &why);
    struct seen seen = {0};
    (void)done(conn,
               (struct sql_call){.text = "SHOW synchronous_commit", .row = see, .user = &seen});
    assert_bytes_equal(seen.last[0].bytes, BYTES("on"));
    seen_clear(&seen);
    bye(conn);
    (void)state;
}

/* A connection that a handler may get is planned for as the server likes; ours, by the key. */
static void only_connections_of_our_own_have_their_plans_bent(void **state)
{
    for (int ours = 0; ours < 2; ours++) {
        struct store_settings settings = settings_for(store_url());
        settings.transactions = !ours;
        struct sql_conn *conn = NULL;
        struct fault why = {0};
        good(dialect.engine->connect(&settings, &conn, &why), &why);
        assert_int_equal(number_of(conn, "SELECT count(*) FROM pg_settings WHERE setting = 'off' "
                                         "AND name IN ('enable_seqscan', 'enable_bitmapscan', "
                                         "'enable_hashjoin', 'enable_mergejoin')"),
                         ours ? 4 : 0);
        bye(conn);
    }
    (void)state;
}

static bool add_line(void *user, const struct sql_value *columns, size_t n)
{
    char *plan = user;
    size_t used = strlen(plan);
    assert_int_equal(n, 1);
    (void)snprintf(plan + used, 2000 - used, "%.*s|", (int)columns[0].bytes.len,
                   (const char *)columns[0].bytes.at);
    return true;
}

/* Of a table that the server knows nothing about, and of one that it knows to be small. The order
 * of a set is that in which its rows are locked. */
static void rows_are_found_by_the_key_in_the_order_of_the_set(void **state)
{
    struct store_settings settings = settings_for(store_url());
    settings.transactions = false;
    settings.table = "planned";
    struct sql_conn *conn = NULL;
    struct fault why = {0};
    good(dialect.engine->connect(&settings, &conn, &why), &why);
    for (const char *const *text = dialect.engine->create; *text; text++) {
        cleanup(free_at) char *whole = sql_text(dialect.engine, settings.table, *text);
        (void)done(conn, (struct sql_call){.text = whole, .once = true});
    }
    for (int known = 0; known < 2; known++) {
        char plan[2000] = "", text[1500] = "EXPLAIN (COSTS OFF) ";
        cleanup(free_at) char *update =
            sql_text(dialect.engine, settings.table, dialect.engine->update_many);
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s", update);
        struct sql_call call = {.text = text, .once = true, .row = add_line, .user = plan};
        for (call.n_params = 0; call.n_params < 11; call.n_params++)
            call.params[call.n_params] = words("{}");
        (void)done(conn, call);
        const char *outer = strstr(plan, "Function Scan on u");
        assert_true(strstr(plan, "Nested Loop") && outer);
        assert_non_null(strstr(outer, "Index Scan using planned_claims_pkey"));
        if (!known)
            (void)done(conn, (struct sql_call){.text = "INSERT INTO planned_claims SELECT "
                                                       "int4send(i), '', 1, 1, 1, 1, 1, 1 FROM "
                                                       "generate_series(1, 20) AS i"});
        (void)done(conn, (struct sql_call){.text = "ANALYZE planned_claims"});
    }
    bye(conn);
    (void)state;
}

static void a_silent_server_is_taken_for_gone(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    control("pause");
    conn->silence_ms = 300;
    struct sql_call call = {.text = "SELECT 1"};
    enum err asked = run1(conn, &call, &why);
    struct sql_conn *none = NULL;
    struct store_settings settings = settings_for(store_url());
    enum err connected = dialect.engine->connect(&settings, &none, &why);
    control("resume");
    assert_int_equal(asked, ERR_IO);
    assert_int_equal(connected, ERR_IO);
    assert_false(dialect.engine->healthy(conn));
    bye(conn);
    (void)state;
}

/* The codes that no test can bring about here. */
static void codes_have_their_meaning(void **state)
{
    assert_int_equal(pg_error("53100"), ERR_DISK_FULL);
    assert_int_equal(pg_error("57P01"), ERR_IO);
    assert_int_equal(pg_error("57P03"), ERR_IO);
    assert_int_equal(pg_error("57014"), ERR_BUSY);
    assert_int_equal(pg_error("08006"), ERR_IO);
    assert_int_equal(pg_error("42501"), ERR_DENIED);
    assert_int_equal(pg_error("23503"), ERR_INVALID);
    assert_int_equal(pg_error(NULL), ERR_IO);
    (void)state;
}

/* Whatever the server does to sessions that are silent; it does so from PostgreSQL 14 on. */
static void a_sign_of_life_is_not_closed_for_its_silence(void **state)
{
    struct sql_conn *conn = fresh();
    const char *closes = "SELECT count(*) FROM pg_settings WHERE name = 'idle_session_timeout' AND "
                         "setting <> '0'";
    (void)done(conn, (struct sql_call){.text = "SELECT set_config(name, '3000', false) FROM "
                                               "pg_settings WHERE name = 'idle_session_timeout'"});
    assert_int_equal(dialect.engine->live(conn, 77, NULL), OK);
    assert_int_equal(number_of(conn, closes), 0);
    bye(conn);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_handler_uses_the_connection_within_the_transaction),
        cmocka_unit_test(a_sign_of_life_is_not_closed_for_its_silence),
        test_of_row("H-19", a_handler_that_goes_on_after_an_error_is_not_done),
        cmocka_unit_test(a_handler_that_leaves_the_connection_busy_spoils_it),
        cmocka_unit_test(what_is_read_only_says_so),
        cmocka_unit_test(serialisation_failures_are_busy),
        cmocka_unit_test(a_text_fits_every_type),
        cmocka_unit_test(a_text_with_a_zero_byte_is_refused),
        cmocka_unit_test(types_of_a_text_may_change),
        cmocka_unit_test(commits_are_on_the_disk),
        cmocka_unit_test(only_connections_of_our_own_have_their_plans_bent),
        cmocka_unit_test(rows_are_found_by_the_key_in_the_order_of_the_set),
        cmocka_unit_test(a_silent_server_is_taken_for_gone),
        cmocka_unit_test(codes_have_their_meaning),
    };
    return run_engine_tests("postgresql", own, sizeof own / sizeof own[0]);
}
