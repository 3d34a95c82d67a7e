/* engine_trouble_test.c - any engine when things go wrong: locks, deadlocks, refusals, servers that
 * go and come. Every kind of error is produced for real. */
#include "once/engine_test.h"

static enum err connect_to(const char *url, struct fault *why)
{
    struct store_settings settings = settings_for(url);
    struct sql_conn *conn = NULL;
    enum err err = dialect.engine->connect(&settings, &conn, why);
    if (!err)
        bye(conn);
    return err;
}

/* The URL with one part of it replaced. */
static char *url_with(const char *part, const char *instead)
{
    const char *url = store_url(), *at = strstr(url, part);
    assert_non_null(at);
    size_t size = strlen(url) + strlen(instead) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - url), url, instead, at + strlen(part));
    return out;
}

/* ---- locks ---- */

static void two_rows(struct sql_conn *conn)
{
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(2))});
}

static struct sql_call set(int64_t id, int64_t number)
{
    return (struct sql_call){.text = set_number, VALUES(num(number), num(id))};
}

static void waiting_for_a_row_ends(void **state)
{
    struct sql_conn *a = fresh(), *b = fresh();
    two_rows(a);
    begin(a);
    (void)done(a, set(1, 10));
    begin(b);
    (void)done(b, set(2, 20));
    struct fault why = {0};
    struct sql_call call = set(1, 11);
    int64_t start_ms = now_ms(CLOCK_MONOTONIC);
    assert_int_equal(run1(b, &call, &why), ERR_BUSY);
    int64_t took_ms = now_ms(CLOCK_MONOTONIC) - start_ms;
    assert_true(took_ms > WAIT_MS / 2 && took_ms < WAIT_MS * 10);
    dialect.engine->rollback(b); /* nothing of it stays, also where the server kept the rest */
    commit(a);
    assert_int_equal(number_of(b, "SELECT coalesce(sum(number), 0) FROM things"), 10);
    assert_true(dialect.engine->healthy(b));
    bye(b);
    bye(a);
    (void)state;
}

/* Both have a row and want the other's. One is told, the other goes on; of the first nothing stays,
 * nor of what it sent behind the statement that failed. */
static void a_deadlock_is_told_to_one(void **state)
{
    struct sql_conn *a = fresh_waiting(10000); /* longer than it takes to find a deadlock */
    struct elsewhere b = {.conn = fresh_waiting(10000), .call = set(1, 21)};
    two_rows(a);
    begin(a);
    (void)done(a, set(1, 10));
    begin(b.conn);
    (void)done(b.conn, set(2, 20));
    elsewhere_start(&b);
    struct sql_call calls[] = {set(2, 11), {.text = insert_id, VALUES(num(3))}};
    size_t failed = 9;
    struct fault why = {0};
    enum err mine = dialect.engine->run(a, calls, 2, &failed, &why);
    if (mine) {
        assert_int_equal(failed, 0);
        dialect.engine->rollback(a);
    } else
        commit(a);
    enum err theirs = elsewhere_end(&b);
    if (theirs)
        dialect.engine->rollback(b.conn);
    else
        commit(b.conn);
    assert_true((mine == ERR_BUSY) != (theirs == ERR_BUSY));
    assert_int_equal(things(a), mine ? 2 : 3);
    assert_int_equal(number_of(a, "SELECT sum(number) FROM things"), mine ? 41 : 21);
    bye(b.conn);
    bye(a);
    (void)state;
}

/* Who comes second with an id waits for the first, and then finds it taken, or free. */
static void a_second_insert_waits_for_the_first(void **state)
{
    struct sql_conn *a = fresh(), *admin = fresh();
    for (int kept = 0; kept < 2; kept++) {
        fresh_things(admin);
        begin(a);
        (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(1))});
        struct elsewhere b = {.conn = fresh_waiting(WAIT_LONG_MS),
                              .call = {.text = insert_id, VALUES(num(1))}};
        elsewhere_start(&b);
        struct timespec moment = {.tv_nsec = 100000000}; /* either order is right */
        nanosleep(&moment, NULL);
        if (kept)
            commit(a);
        else
            dialect.engine->rollback(a);
        assert_int_equal(elsewhere_end(&b), kept ? ERR_EXISTS : OK);
        assert_int_equal(things(admin), 1);
        bye(b.conn);
    }
    bye(admin);
    bye(a);
    (void)state;
}

/* One runs, several wait, and the first gives up: one of the others has it, and whoever does not is
 * told "exists" or "busy" and nothing else. */
static void waiters_of_a_rollback_get_one_winner(void **state)
{
    enum { N = 4 };
    struct sql_conn *a = fresh();
    fresh_things(a);
    begin(a);
    (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(1))});
    struct elsewhere waiters[N];
    for (int i = 0; i < N; i++) {
        waiters[i] = (struct elsewhere){.conn = fresh_waiting(WAIT_LONG_MS),
                                        .call = {.text = insert_id, VALUES(num(1))}};
        elsewhere_start(&waiters[i]);
    }
    struct timespec moment = {.tv_nsec = 100000000};
    nanosleep(&moment, NULL);
    dialect.engine->rollback(a);
    int winners = 0;
    for (int i = 0; i < N; i++) {
        enum err err = elsewhere_end(&waiters[i]);
        assert_true(err == OK || err == ERR_BUSY || err == ERR_EXISTS);
        winners += err == OK;
        assert_true(dialect.engine->healthy(waiters[i].conn));
        bye(waiters[i].conn);
    }
    assert_int_equal(winners, 1);
    assert_int_equal(things(a), 1);
    bye(a);
    (void)state;
}

/* ---- refusals ---- */

static void refusals_have_their_kinds(void **state)
{
    static const struct {
        const char *text;
        enum err err;
    } cases[] = {
        {"SELECT 1 FROM there_is_no_such_table", ERR_NOT_FOUND},
        {"SELECT there_is_no_such_column FROM things", ERR_INVALID},
        {"SELECT this is no SQL", ERR_INVALID},
        {"INSERT INTO things (number) VALUES (1)", ERR_INVALID}, /* id is missing */
    };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fault why = {0};
        struct sql_call call = {.text = cases[i].text};
        assert_int_equal(run1(conn, &call, &why), cases[i].err);
        assert_true(strlen(why.text) > 10);
    }
    struct fault why = {0};
    struct sql_call call = {.text = dialect.forbidden};
    assert_int_equal(run1(conn, &call, &why), ERR_DENIED);
    assert_int_equal(things(conn), 0);
    bye(conn);
    (void)state;
}

static void a_wrong_password_is_not_repeated(void **state)
{
    char *url = url_with("p%40ss", "secret123");
    struct fault why = {0};
    assert_int_equal(connect_to(url, &why), ERR_DENIED);
    assert_true(strlen(why.text) > 10);
    assert_null(strstr(why.text, "secret123"));
    free(url);
    (void)state;
}

/* Wherever a mistake in the URL is, no sentence shows the password. */
static void urls_that_cannot_be_read_are_refused(void **state)
{
    static const char *const tails[] = {
        "once:secret123%zz@127.0.0.1/x",      "once:secret123@secret456@127.0.0.1/x",
        "once:secret123/456@127.0.0.1/x",     "once:secret123@127.0.0.1:port/x",
        "once:secret123@127.0.0.1:99999/x",   "once:secret123@127.0.0.1/x?secret123=1",
        "once:secret123%00@127.0.0.1/x",      "once:secret123@[::1/x",
        "once:secret123@127.0.0.1:secret123",
    };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char url[128];
        const char *end = strstr(store_url(), "://");
        snprintf(url, sizeof url, "%.*s://%s", (int)(end - store_url()), store_url(), tails[i]);
        struct fault why = {0};
        enum err err = connect_to(url, &why);
        if (err != ERR_INVALID && err != ERR_IO)
            fail_msg("%s: %s: %s", url, err_text(err), why.text);
        assert_true(strlen(why.text) > 10);
        assert_null(strstr(why.text, "secret"));
    }
    (void)state;
}

static void a_database_that_is_not_there_is_told(void **state)
{
    char *url = strdup(store_url());
    assert_non_null(url);
    char *name = strrchr(url, '/');
    memset(name + 1, 'x', strlen(name + 1));
    struct fault why = {0};
    enum err err = connect_to(url, &why);
    assert_true(err == ERR_NOT_FOUND || err == ERR_DENIED); /* MariaDB says whose it is not */
    assert_non_null(strstr(why.text, name + 1));
    free(url);
    (void)state;
}

static void nobody_at_the_port_is_an_io_error(void **state)
{
    char *url = url_with("@127.0.0.1:", "@127.0.0.1:1");
    char *slash = strrchr(url, '/');
    memmove(strstr(url, "@127.0.0.1:1") + 12, slash, strlen(slash) + 1); /* port 1 */
    struct fault why = {0};
    assert_int_equal(connect_to(url, &why), ERR_IO);
    assert_null(strstr(why.text, "p@ss"));
    free(url);
    (void)state;
}

/* ---- who lives ---- */

static void an_instance_is_gone_when_its_session_is(void **state)
{
    struct sql_conn *a = fresh(), *b = fresh();
    struct fault why = {0};
    const uint32_t instance = 0xfedcba98;
    assert_true(dialect.engine->gone(b, instance));
    good(dialect.engine->live(a, instance, &why), &why);
    assert_false(dialect.engine->gone(b, instance));
    assert_true(dialect.engine->gone(b, instance - 1));
    begin(b); /* also in the middle of a transaction */
    assert_false(dialect.engine->gone(b, instance));
    commit(b);
    bye(a);
    int64_t deadline_ms = now_ms(CLOCK_MONOTONIC) + 10000;
    while (!dialect.engine->gone(b, instance)) { /* the server notices by and by */
        assert_true(now_ms(CLOCK_MONOTONIC) < deadline_ms);
        struct timespec moment = {.tv_nsec = 5000000};
        nanosleep(&moment, NULL);
    }
    bye(b);
    (void)state;
}

/* An instance whose connection was lost, but not for the server, says so on another. */
static void an_instance_can_say_it_again(void **state)
{
    struct sql_conn *a = fresh(), *again = fresh(), *b = fresh();
    struct fault why = {0};
    good(dialect.engine->live(a, 7, &why), &why);
    good(dialect.engine->live(again, 7, &why), &why);
    assert_false(dialect.engine->gone(b, 7));
    bye(a);
    struct timespec moment = {.tv_nsec = 200000000}; /* for the server to see its end */
    nanosleep(&moment, NULL);
    assert_false(dialect.engine->gone(b, 7));
    bye(again);
    bye(b);
    (void)state;
}

/* ---- servers that go ---- */

/* Killed in the middle of a statement: the connection is gone, what was committed is there, what
 * was not is not. */
static void a_server_that_is_killed_is_an_io_error(void **state)
{
    struct sql_conn *a = fresh();
    fresh_things(a);
    (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(1))});
    begin(a);
    (void)done(a, (struct sql_call){.text = insert_id, VALUES(num(2))});
    struct elsewhere b = {.conn = fresh(), .call = {.text = dialect.sleep}};
    elsewhere_start(&b);
    struct timespec moment = {.tv_nsec = 200000000}; /* either way it is lost */
    nanosleep(&moment, NULL);
    control("kill9");
    assert_int_equal(elsewhere_end(&b), ERR_IO);
    assert_true(strlen(b.why.text) > 10);
    assert_false(dialect.engine->healthy(b.conn));
    struct fault why = {0};
    assert_int_equal(dialect.engine->commit(a, &why), ERR_IO);
    dialect.engine->rollback(a); /* never fails */
    assert_false(dialect.engine->healthy(a));
    assert_int_equal(connect_to(store_url(), &why), ERR_IO);

    control("start");
    struct sql_conn *again = fresh();
    assert_int_equal(things(again), 1);
    bye(again);
    bye(b.conn);
    bye(a);
    (void)state;
}

static void a_server_that_was_restarted_shows_as_unhealthy(void **state)
{
    struct sql_conn *a = fresh(), *b = fresh();
    assert_true(dialect.engine->healthy(a));
    control("stop");
    control("start");
    assert_false(dialect.engine->healthy(a));
    struct fault why = {0};
    struct sql_call call = {.text = "SELECT 1"};
    assert_int_equal(run1(b, &call, &why), ERR_IO); /* also when nobody asked */
    assert_int_equal(run1(b, &call, &why), ERR_IO);
    begin(b = (bye(b), fresh()));
    commit(b);
    bye(b);
    bye(a);
    (void)state;
}

size_t trouble_cases(struct CMUnitTest out[ENGINE_CASES_MAX])
{
    const struct CMUnitTest cases[] = {
        test_of_row("H-21", waiting_for_a_row_ends),
        cmocka_unit_test(a_deadlock_is_told_to_one),
        test_of_row("H-18", a_second_insert_waits_for_the_first),
        test_of_row("H-21", waiters_of_a_rollback_get_one_winner),
        cmocka_unit_test(refusals_have_their_kinds),
        cmocka_unit_test(a_wrong_password_is_not_repeated),
        cmocka_unit_test(urls_that_cannot_be_read_are_refused),
        cmocka_unit_test(a_database_that_is_not_there_is_told),
        cmocka_unit_test(nobody_at_the_port_is_an_io_error),
        cmocka_unit_test(an_instance_is_gone_when_its_session_is),
        cmocka_unit_test(an_instance_can_say_it_again),
        cmocka_unit_test(a_server_that_is_killed_is_an_io_error),
        cmocka_unit_test(a_server_that_was_restarted_shows_as_unhealthy),
    };
    memcpy(out, cases, sizeof cases);
    return sizeof cases / sizeof cases[0];
}
