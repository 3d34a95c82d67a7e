/* mariadb_test.c - the engine for MariaDB and MySQL on a real server. */
#include "once/engine_test.h"
#include "once/mariadb_int.h"

const struct dialect dialect = {
    .engine = &sql_engine_mariadb,
    .heading = "## MariaDB and MySQL",
    .things = "CREATE TABLE things (id BIGINT NOT NULL PRIMARY KEY, number BIGINT,"
              " words VARCHAR(10) CHARACTER SET utf8mb4, bytes MEDIUMBLOB) ENGINE=InnoDB",
    .sleep = "SELECT SLEEP(10)",
    .forbidden = "SELECT user FROM mysql.user",
    .odd_names = "SELECT '?''' AS `a?``b\"`, ? + 1",
};

static unsigned native_exec(struct sql_conn *conn, const char *text)
{
    MYSQL *mysql = dialect.engine->native(conn);
    return mysql_query(mysql, text) ? mysql_errno(mysql) : 0;
}

/* As many statements as a connection remembers. */
static void prepare_others(struct sql_conn *conn)
{
    static char texts[MARIADB_STATEMENTS_MAX][64];
    for (int i = 0; i < MARIADB_STATEMENTS_MAX; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "DELETE FROM things WHERE id = -%d", i + 1);
        (void)done(conn, (struct sql_call){.text = texts[i]});
    }
    assert_int_equal(conn->n_statements, MARIADB_STATEMENTS_MAX);
}

/* So many inserts and as many updates, with one more on either side; in the second round one row of
 * the former is there already, and one of the latter is not. */
static void count_together(struct sql_conn *conn, int n, bool prepared)
{
    static const char insert[] = "INSERT INTO things (id, number) VALUES (?, LAST_INSERT_ID(?)) ON"
                                 " DUPLICATE KEY UPDATE id = things.id";
    static const char set[] = "UPDATE things SET number = ? WHERE id = ?";
    static const char many[] = "UPDATE things SET number = ? WHERE id IN (?*)";
    static struct sql_call calls[2 * 64 + 2];
    fresh_things(conn);
    for (int there = 0; there < 2; there++) {
        calls[0] = (struct sql_call){.text = insert_id, VALUES(num(1000 + there))};
        for (int i = 0; i < n; i++) {
            int64_t id = i + there * (n - 1);
            calls[1 + i] = (struct sql_call){.text = insert, VALUES(num(id), num(7))};
            calls[1 + n + i] = (struct sql_call){
                .text = set, .many = many, VALUES(num(i == n - 1 ? 6 : 5), num(id + there))};
            calls[1 + i].counted_together = calls[1 + n + i].counted_together = true;
        }
        calls[2 * n + 1] = (struct sql_call){.text = insert_id, VALUES(num(2000 + there))};
        size_t failed;
        struct fault why = {0};
        begin(conn);
        good(dialect.engine->run(conn, calls, 2 * (size_t)n + 2, &failed, &why), &why);
        commit(conn);
        assert_int_equal(calls[0].changed, 1);
        assert_int_equal(calls[2 * n + 1].changed, 1);
        assert_int_equal(mariadb_prepared_set(conn, &calls[1 + n], (size_t)n - 1) != NULL,
                         prepared);
        for (int i = 0; i < n; i++) {
            assert_int_equal(calls[1 + i].changed, prepared || i == 0 ? !there : 1);
            assert_int_equal(calls[1 + i].told, 7);
            assert_int_equal(calls[1 + n + i].changed, !there || i < n - 1); /* the last: no row */
        }
    }
    assert_int_equal(number_of(conn, "SELECT COUNT(*) FROM things WHERE number = 5"), 2 * n - 2);
    assert_int_equal(number_of(conn, "SELECT COUNT(*) FROM things WHERE number = 6"), 1);
}

/* What is counted together has one count for all, whether it goes in bulk or as a set, prepared or
 * as text; what stands around it has its own. What differs in what a set has but once is in none. A
 * set that is prepared has more places than values. */
static void what_is_counted_together_is_done_by_all_or_said_of_none(void **state)
{
    static const int sizes[] = {5, 9, 20, 33, 64};
    struct sql_conn *conn = fresh();
    for (int i = 0; i < 5; i++)
        count_together(conn, sizes[i], true);
    bye(conn);
    conn = fresh();
    fresh_things(conn);
    prepare_others(conn);
    count_together(conn, 9, false);
    bye(conn);
    (void)state;
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
        assert_int_equal(native_exec(conn, "INSERT INTO things (id) VALUES (2)"), 0);
        dialect.engine->rollback(conn);
        assert_int_equal(things(conn), 0);
    }
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    assert_int_equal(native_exec(conn, "INSERT INTO things (id) VALUES (2)"), 0);
    assert_int_equal(native_exec(conn, "SAVEPOINT a"), 0);
    assert_int_equal(native_exec(conn, "INSERT INTO things (id) VALUES (3)"), 0);
    assert_int_equal(native_exec(conn, "ROLLBACK TO a"), 0);
    commit(conn);
    assert_int_equal(things(conn), 2);
    bye(conn);
    (void)state;
}

/* Whatever the server does to sessions that are silent. */
static void a_sign_of_life_is_not_closed_for_its_silence(void **state)
{
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = "SET SESSION wait_timeout = 3"});
    assert_int_equal(dialect.engine->live(conn, 77, NULL), OK);
    assert_true(number_of(conn, "SELECT @@SESSION.wait_timeout") > 86400);
    bye(conn);
    (void)state;
}

/* The handler's statements count rows as the library does by default: those that changed. */
static void a_handler_counts_rows_as_it_is_used_to(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    begin(conn);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(native_exec(conn, "UPDATE things SET number = 5 WHERE id = 1"), 0);
        assert_int_equal(mysql_affected_rows(dialect.engine->native(conn)), 1 - i);
    }
    commit(conn);
    bye(conn);
    (void)state;
}

/* A deadlock rolls back all of the handler's transaction, the mark too. A handler that does not
 * care and says that it is done has neither effect nor mark, and is told so. */
static void a_handler_that_goes_on_after_a_deadlock_is_not_done(void **state)
{
    struct sql_conn *a = fresh();
    int deadlocks = 0;
    for (int turn = 0; turn < 6 && deadlocks == 0; turn++) { /* until the server picks us */
        fresh_things(a);
        for (int i = 1; i <= 8; i++)
            (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(i))});
        begin(a);
        (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(100))}); /* the mark */
        assert_int_equal(native_exec(a, "UPDATE things SET number = 1 WHERE id = 1"), 0);
        struct elsewhere b = {.conn = fresh(),
                              .call = {.text = set_number, VALUES(num(2), num(1))}};
        begin(b.conn); /* heavier, so that the other is rolled back */
        (void)done(b.conn, (struct sql_call){
                               .text = "UPDATE things SET number = 2 WHERE id BETWEEN 2 AND 8"});
        elsewhere_start(&b);
        unsigned code = native_exec(a, "UPDATE things SET number = 1 WHERE id = 2");
        struct fault why = {0};
        if (code == 1213) {
            deadlocks++;
            assert_int_equal(elsewhere_end(&b), OK);
            commit(b.conn);
            assert_int_equal(native_exec(a, "INSERT INTO things (id) VALUES (101)"), 0);
            assert_int_equal(dialect.engine->commit(a, &why), ERR_BUSY);
            assert_int_equal(number_of(a, "SELECT count(*) FROM things WHERE id >= 100"), 0);
        } else {
            dialect.engine->rollback(a);
            (void)elsewhere_end(&b);
            dialect.engine->rollback(b.conn);
        }
        bye(b.conn);
    }
    assert_int_equal(deadlocks, 1);
    bye(a);
    (void)state;
}

/* Also on a server that cannot release and commit by one statement, as MySQL. */
static void a_handler_that_ends_the_transaction_is_told(void **state)
{
    for (int blocks = 1; blocks >= 0; blocks--) {
        struct sql_conn *conn = fresh();
        struct fault why = {0};
        fresh_things(conn);
        assert_true(conn->blocks);
        conn->blocks = blocks;
        for (int ends = 0; ends < 2; ends++) {
            begin(conn);
            (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1 - ends))});
            assert_int_equal(native_exec(conn, ends ? "ROLLBACK" : "DO 1"), 0);
            assert_int_equal(native_exec(conn, "INSERT INTO things (id) VALUES (2) ON DUPLICATE KEY"
                                               " UPDATE number = 1"),
                             0);
            assert_int_equal(dialect.engine->commit(conn, &why), ends ? ERR_BUSY : OK);
            assert_int_equal(number_of(conn, "SELECT COUNT(*) FROM things WHERE id = 2 AND number"
                                             " IS NULL"),
                             1);
            assert_int_equal(things(conn), 2);
        }
        assert_true(dialect.engine->healthy(conn));
        bye(conn);
    }
    (void)state;
}

/* Where the savepoint comes from the commit before, it tells just as well. */
static void a_later_transaction_is_told_from_another_too(void **state)
{
    static const char *const ends[] = {"ROLLBACK", "COMMIT",
                                       "CREATE OR REPLACE TABLE more (a INT)"};
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (int i = 0; i < 3; i++) {
        struct fault why = {0};
        for (int good = 0; good < 2; good++) {
            begin(conn);
            (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(10 * i + good))});
            assert_int_equal(native_exec(conn, "DO 1"), 0);
            commit(conn);
            assert_true(conn->ready);
        }
        begin(conn);
        dialect.engine->rollback(conn); /* of nothing: it is there for the next one */
        begin(conn);
        (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(10 * i + 2))});
        assert_int_equal(native_exec(conn, ends[i]), 0);
        assert_int_equal(native_exec(conn, "INSERT INTO things (id) VALUES (100)"), 0);
        assert_int_equal(dialect.engine->commit(conn, &why), ERR_BUSY);
        assert_false(conn->ready);
        assert_int_equal(number_of(conn, "SELECT COUNT(*) FROM things WHERE id = 100"), 0);
        assert_int_equal(things(conn), 2 * (i + 1) + i); /* what the handler committed is */
    }
    bye(conn);
    (void)state;
}

static void a_handler_that_leaves_the_connection_busy_spoils_it(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    begin(conn);
    (void)done(conn, (struct sql_call){.text = "SELECT 1"});
    assert_int_equal(native_exec(conn, "SELECT 1"), 0); /* its rows are not fetched */
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
    assert_int_equal(native_exec(conn, "START TRANSACTION READ ONLY"), 0);
    struct sql_call call = {.text = insert_id, VALUES(num(1))};
    assert_int_equal(run1(conn, &call, &why), ERR_READ_ONLY);
    dialect.engine->rollback(conn);
    bye(conn);
    (void)state;
}

/* Keys of a user's table have all kinds of types, and come as text. */
static void a_text_fits_every_type(void **state)
{
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = "DROP TABLE IF EXISTS kinds"});
    (void)done(conn, (struct sql_call){.text = "CREATE TABLE kinds (a BIGINT, b DECIMAL(9,2),"
                                               " c CHAR(3) CHARACTER SET latin1, d VARBINARY(9))"});
    assert_int_equal(done(conn, (struct sql_call){.text = "INSERT INTO kinds VALUES (?,?,?,?)",
                                                  .once = true,
                                                  VALUES(words("9007199254740993"), words("7.5"),
                                                         words("\xc3\xa4"), words("y"))}),
                     1);
    struct sql_call find = {
        .text = "SELECT a, b, c FROM kinds WHERE a = ? AND b = ? AND c = ? AND"
                " d = ?",
        .once = true,
        VALUES(words("9007199254740993"), words("7.50"), words("\xc3\xa4"), words("y"))};
    struct seen seen = {0};
    find.row = see;
    find.user = &seen;
    (void)done(conn, find);
    assert_int_equal(seen.rows, 1);
    assert_true(seen.last[0].number == 9007199254740993);
    assert_bytes_equal(seen.last[1].bytes, BYTES("7.50"));
    assert_bytes_equal(seen.last[2].bytes, BYTES("\xc3\xa4"));
    find.params[0] = words("9007199254740992"); /* equal, if both were taken for floats */
    (void)done(conn, find);
    assert_int_equal(seen.rows, 1);
    seen_clear(&seen);
    bye(conn);
    (void)state;
}

/* Modes of the server under which quotes and backslashes mean something else change nothing. */
static void values_are_safe_in_every_mode(void **state)
{
    static const char *const modes[] = {"ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT",
                                        ""};
    struct sql_conn *conn = fresh();
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        fresh_things(conn);
        (void)done(conn,
                   (struct sql_call){.text = "SET SESSION sql_mode = ?", VALUES(words(modes[i]))});
        struct sql_value odd = words("\\'\"`;--");
        (void)done(conn, (struct sql_call){.text = insert_thing,
                                           VALUES(num(1), null(), odd, blob("\\'\"\0x", 5))});
        struct seen seen = {0};
        (void)done(conn,
                   (struct sql_call){.text = "SELECT words, bytes FROM things WHERE words = ?",
                                     VALUES(odd),
                                     .row = see,
                                     .user = &seen});
        assert_bytes_equal(seen.last[0].bytes, odd.bytes);
        assert_bytes_equal(seen.last[1].bytes, BYTES("\\'\"\0x"));
        seen_clear(&seen);
    }
    bye(conn);
    (void)state;
}

static void a_socket_does_as_well(void **state)
{
    struct store_settings settings = settings_for(getenv("STORE_URL_SOCKET"));
    struct sql_conn *conn = NULL;
    struct fault why = {0};
    good(dialect.engine->connect(&settings, &conn, &why), &why);
    assert_int_equal(number_of(conn, "SELECT 1"), 1);
    bye(conn);
    (void)state;
}

static void a_silent_server_is_taken_for_gone(void **state)
{
    char url[256];
    snprintf(url, sizeof url, "%s?read_timeout=1&connect_timeout=1", store_url());
    struct store_settings settings = settings_for(url);
    struct sql_conn *conn = NULL, *none = NULL;
    struct fault why = {0};
    good(dialect.engine->connect(&settings, &conn, &why), &why);
    control("pause");
    struct sql_call call = {.text = "SELECT 1"};
    enum err asked = run1(conn, &call, &why);
    enum err connected = dialect.engine->connect(&settings, &none, &why);
    control("resume");
    assert_int_equal(asked, ERR_IO);
    assert_int_equal(connected, ERR_IO);
    assert_false(dialect.engine->healthy(conn));
    bye(conn);
    (void)state;
}

/* ---- URLs ---- */

static void urls_are_read(void **state)
{
    struct mariadb_url u;
    struct fault why = {0};
    good(mariadb_url_read("mysql://a%20b:p%40%3a%2F@host:3307/d%62?socket=%2Ftmp%2Fs&tls=verify",
                          &u, &why),
         &why);
    assert_string_equal(u.user, "a b");
    assert_string_equal(u.password, "p@:/");
    assert_string_equal(u.host, "host");
    assert_int_equal(u.port, 3307);
    assert_string_equal(u.database, "db");
    assert_string_equal(u.socket, "/tmp/s");
    assert_true(u.tls && u.verify);
    good(mariadb_url_read("mysql://[::1]:1/x", &u, &why), &why);
    assert_string_equal(u.host, "::1");
    assert_int_equal(u.port, 1);
    assert_string_equal(u.user, "");
    good(mariadb_url_read("mariadb:///x?socket=s", &u, &why), &why);
    assert_string_equal(u.host, "");
    (void)state;
}

static void urls_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "mysql:",
        "mysql://",
        "mysql://h",
        "mysql://h/",
        "mysql://h/a/b",
        "mysql://h:0/x",
        "mysql://h:65536/x",
        "mysql://h:/x",
        "mysql://h:1a/x",
        "mysql://h/%",
        "mysql://h/%4",
        "mysql://h/%4g",
        "mysql://h/a%00",
        "mysql://[::1/x",
        "mysql://[::1]a/x",
        "mysql://h/x?a",
        "mysql://h/x?a=1",
        "mysql://h/x?socket=",
        "mysql://h/x?tls=yes",
        "mysql://h/x?connect_timeout=0",
        "mysql://a@b@c/x",
        "postgresql://h/x",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mariadb_url u;
        struct fault why = {0};
        if (mariadb_url_read(bad[i], &u, &why) != ERR_INVALID || strlen(why.text) < 10)
            fail_msg("%s was read", bad[i]);
    }
    char *longest = calloc(1, MARIADB_URL_MAX + 1);
    assert_non_null(longest);
    memset(longest, 'x', MARIADB_URL_MAX);
    memcpy(longest, "mysql://h/", 10);
    struct mariadb_url u;
    assert_int_equal(mariadb_url_read(longest, &u, NULL), ERR_INVALID);
    longest[MARIADB_URL_MAX - 1] = 0;
    assert_int_equal(mariadb_url_read(longest, &u, NULL), OK);
    free(longest);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(what_is_counted_together_is_done_by_all_or_said_of_none),
        cmocka_unit_test(a_handler_uses_the_connection_within_the_transaction),
        cmocka_unit_test(a_sign_of_life_is_not_closed_for_its_silence),
        cmocka_unit_test(a_handler_counts_rows_as_it_is_used_to),
        test_of_row("H-21", a_handler_that_goes_on_after_a_deadlock_is_not_done),
        cmocka_unit_test(a_handler_that_ends_the_transaction_is_told),
        cmocka_unit_test(a_later_transaction_is_told_from_another_too),
        cmocka_unit_test(a_handler_that_leaves_the_connection_busy_spoils_it),
        cmocka_unit_test(what_is_read_only_says_so),
        cmocka_unit_test(a_text_fits_every_type),
        cmocka_unit_test(values_are_safe_in_every_mode),
        cmocka_unit_test(a_socket_does_as_well),
        cmocka_unit_test(a_silent_server_is_taken_for_gone),
        cmocka_unit_test(urls_are_read),
        cmocka_unit_test(urls_are_refused),
    };
    return run_engine_tests("mariadb", own, sizeof own / sizeof own[0]);
}
