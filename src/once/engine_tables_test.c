/* engine_tables_test.c - the dialect of any engine: the tables that it creates, what they tell
 * apart, and its clock. */
#include "once/engine_test.h"

static char *table_text(const char *text)
{
    char *whole = sql_text(dialect.engine, "once", text);
    assert_non_null(whole);
    return whole;
}

static void *create_tables(void *at)
{
    (void)at;
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    begin(conn);
    for (size_t i = 0; dialect.engine->create[i]; i++) {
        char *text = table_text(dialect.engine->create[i]);
        struct sql_call call = {.text = text, .once = true};
        good(run1(conn, &call, &why), &why);
        free(text);
    }
    commit(conn);
    bye(conn);
    return NULL;
}

static void tables_can_be_created_by_several_at_once_and_again(void **state)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, create_tables, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)create_tables(NULL);
    (void)state;
}

#define BIRTH 9

/* Tables without claims, of that birth. */
static void empty_tables(struct sql_conn *conn)
{
    static const char *const texts[] = {"DELETE FROM {claims}", "DELETE FROM {birth}",
                                        "INSERT INTO {birth} (one, number) VALUES (1, 9)"};
    (void)create_tables(NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *text = table_text(texts[i]);
        (void)done(conn, (struct sql_call){.text = text, .once = true});
        free(text);
    }
}

static struct sql_call claim_call(const char *insert, const uint8_t *id, int64_t state)
{
    struct sql_call call = {.text = insert,
                            VALUES(blob(id, 32), words("name"), num(state), num(-2), num(3), num(4),
                                   num(5), num(6), num(BIRTH))};
    call.n_params -= !dialect.engine->births;
    return call;
}

static void a_claim_is_inserted_unless_it_is_there(void **state)
{
    char *insert = table_text(dialect.engine->insert_claim);
    struct sql_conn *conn = fresh();
    empty_tables(conn);
    uint8_t id[32] = {0};
    for (int i = 0; i < 3; i++) {
        id[31] = (uint8_t)i;
        struct sql_call call = claim_call(insert, id, 1);
        begin(conn);
        assert_int_equal(done(conn, call), 1);
        assert_int_equal(done(conn, call), 0); /* and the transaction goes on */
        commit(conn);
        call.params[2] = num(2);
        assert_int_equal(done(conn, call), 0);
    }
    char *count = table_text("SELECT count(*) FROM {claims} WHERE state = 1");
    assert_int_equal(number_of(conn, count), 3);
    free(count);
    free(insert);
    bye(conn);
    (void)state;
}

/* The database itself refuses a claim that names another birth, and keeps the one that is named. */
static void a_claim_of_another_birth_is_refused(void **state)
{
    struct sql_conn *conn = fresh();
    struct fault why = {0};
    uint8_t id[32] = {1};
    if (dialect.engine->births) {
        char *insert = table_text(dialect.engine->insert_claim);
        char *forget = table_text("DELETE FROM {birth}");
        struct sql_call call = claim_call(insert, id, 1), gone = {.text = forget};
        empty_tables(conn);
        call.params[8] = num(BIRTH + 1);
        assert_int_equal(run1(conn, &call, &why), ERR_INVALID);
        call.params[8] = num(BIRTH);
        assert_int_equal(done(conn, call), 1);
        assert_int_equal(run1(conn, &gone, &why), ERR_INVALID);
        free(forget);
        free(insert);
    }
    bye(conn);
    (void)state;
}

/* Engines may send them together; each has its own count all the same. */
static void many_of_one_text_are_counted_each(void **state)
{
    enum { N = 100 };
    char *insert = table_text(dialect.engine->insert_claim);
    char *update = table_text("UPDATE {claims} SET state = ? WHERE id = ? AND state = ?");
    struct sql_conn *conn = fresh();
    empty_tables(conn);
    static uint8_t ids[N][32];
    struct sql_call *calls = calloc(N, sizeof *calls);
    assert_non_null(calls);
    size_t failed;
    struct fault why = {0};
    int64_t model[2][N]; /* the state of what is there; -1: nothing */
    memset(model, 0xff, sizeof model);
    for (int turn = 0; turn < 3; turn++) { /* none is there, every seventh, all are */
        begin(conn);
        bool inserted[N], updated[N];
        for (int i = 0; i < N; i++) {
            int kind = turn > 0 || i % 7 == 0;
            ids[i][0] = (uint8_t)i;
            ids[i][1] = (uint8_t)kind;
            calls[i] = claim_call(insert, ids[i], i);
            inserted[i] = model[kind][i] < 0;
            model[kind][i] = inserted[i] ? i : model[kind][i];
            updated[i] = model[kind][i] == (i % 3 ? i : 1000);
            model[kind][i] = updated[i] && i % 5 == 0 ? 7 : model[kind][i];
        }
        good(dialect.engine->run(conn, calls, N, &failed, &why), &why);
        for (int i = 0; i < N; i++)
            assert_int_equal(calls[i].changed, inserted[i]);
        for (int i = 0; i < N; i++) /* to what it is already, but for every fifth */
            calls[i] = (struct sql_call){
                .text = update,
                VALUES(num(i % 5 ? i : 7), blob(ids[i], 32), num(i % 3 ? i : 1000))};
        good(dialect.engine->run(conn, calls, N, &failed, &why), &why);
        for (int i = 0; i < N; i++)
            assert_int_equal(calls[i].changed, updated[i]);
        commit(conn);
    }
    free(calls);
    free(update);
    free(insert);
    bye(conn);
    (void)state;
}

static void one_of_many_that_fails_has_its_place(void **state)
{
    enum { N = 12 };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1000))});
    for (size_t bad = 0; bad < N; bad++) {
        struct sql_call calls[N];
        for (size_t i = 0; i < N; i++)
            calls[i] =
                (struct sql_call){.text = insert_id, VALUES(num(i == bad ? 1000 : (int64_t)i))};
        size_t failed = 99;
        struct fault why = {0};
        begin(conn);
        assert_int_equal(dialect.engine->run(conn, calls, N, &failed, &why), ERR_EXISTS);
        assert_int_equal(failed, bad);
        dialect.engine->rollback(conn);
        assert_int_equal(things(conn), 1);
    }
    bye(conn);
    (void)state;
}

/* Ids that differ in one bit, in what would be a letter's case, or in a blank at the end. */
static void ids_are_bytes(void **state)
{
    static const char *const ends[] = {"a", "A", "a ", "a  ", "\xc3\xa4", "\xc3\x84", "\xe4"};
    (void)create_tables(NULL);
    char *insert = table_text("INSERT INTO {steps} (id, step, result) VALUES (?, ?, ?)");
    char *clear = table_text("DELETE FROM {steps}");
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = clear});
    uint8_t id[32];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        memset(id, 'x', sizeof id);
        memcpy(id + 28, ends[i], strlen(ends[i]));
        assert_int_equal(
            done(conn, (struct sql_call){.text = insert,
                                         VALUES(blob(id, 32), blob("s", 1), blob("", 0))}),
            1);
        assert_int_equal(
            done(conn, (struct sql_call){.text = insert,
                                         VALUES(blob("0123456789abcdef0123456789abcdef", 32),
                                                blob(ends[i], strlen(ends[i])), blob("", 0))}),
            1);
    }
    free(clear);
    free(insert);
    bye(conn);
    (void)state;
}

/* A value that does not fit is an error and not a shorter value. */
static void nothing_is_cut(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    struct sql_call call = {.text = insert_thing,
                            VALUES(num(1), null(), words("0123456789+"), null())};
    struct fault why = {0};
    assert_int_equal(run1(conn, &call, &why), ERR_INVALID);
    assert_int_equal(things(conn), 0);
    bye(conn);
    (void)state;
}

/* Another unique key of a user's table is no sign of a duplicate message: it is told as what it
 * is. */
static void another_unique_key_is_an_error(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = "CREATE UNIQUE INDEX only_one ON things (number)"});
    (void)done(conn,
               (struct sql_call){.text = insert_thing, VALUES(num(1), num(5), null(), null())});
    struct sql_call call = {.text = insert_thing, VALUES(num(2), num(5), null(), null())};
    struct fault why = {0};
    begin(conn);
    assert_int_equal(run1(conn, &call, &why), ERR_EXISTS);
    dialect.engine->rollback(conn);
    assert_int_equal(things(conn), 1);
    bye(conn);
    (void)state;
}

/* docs/once-sql.md has the very statements that are run, in their order. */
static void the_manual_has_the_sql_that_is_run(void **state)
{
    static char manual[64 << 10];
    FILE *file = fopen(ONCE_SQL_MANUAL, "re");
    assert_non_null(file);
    size_t size = fread(manual, 1, sizeof manual - 1, file);
    assert_true(size > 0 && feof(file));
    (void)fclose(file);
    const char *at = strstr(manual, dialect.heading);
    assert_non_null(at);
    for (size_t i = 0; dialect.engine->create[i]; i++) {
        char *whole = table_text(dialect.engine->create[i]);
        at = strstr(at, whole);
        if (!at)
            fail_msg("docs/once-sql.md has not, in its place: %s", whole);
        at += strlen(whole);
        assert_int_equal(*at, ';');
        free(whole);
    }
    (void)state;
}

static void the_clock_is_real_and_one_in_a_statement(void **state)
{
    struct sql_conn *conn = fresh();
    char *text = table_text("SELECT {now}, {now}, {now} - {now}");
    int64_t before = 0;
    begin(conn);
    for (int i = 0; i < 20; i++) { /* it goes on within a transaction */
        struct seen seen = {0};
        int64_t asked = now_ms(CLOCK_REALTIME);
        (void)done(conn, (struct sql_call){.text = text, .row = see, .user = &seen});
        assert_int_equal(seen.last[0].type, SQL_INT);
        int64_t now = seen.last[0].number;
        assert_true(now == seen.last[1].number);
        assert_int_equal(seen.last[2].number, 0);
        assert_true(now >= asked - 50 && now <= now_ms(CLOCK_REALTIME) + 50);
        assert_true(now >= before);
        before = now;
        seen_clear(&seen);
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
    }
    commit(conn);
    free(text);
    bye(conn);
    (void)state;
}

size_t table_cases(struct CMUnitTest out[ENGINE_CASES_MAX])
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(tables_can_be_created_by_several_at_once_and_again),
        cmocka_unit_test(the_manual_has_the_sql_that_is_run),
        cmocka_unit_test(a_claim_is_inserted_unless_it_is_there),
        test_of_row("H-13", a_claim_of_another_birth_is_refused),
        cmocka_unit_test(many_of_one_text_are_counted_each),
        cmocka_unit_test(one_of_many_that_fails_has_its_place),
        test_of_row("H-17", ids_are_bytes),
        test_of_row("H-16", nothing_is_cut),
        test_of_row("H-19", another_unique_key_is_an_error),
        cmocka_unit_test(the_clock_is_real_and_one_in_a_statement),
    };
    memcpy(out, cases, sizeof cases);
    return sizeof cases / sizeof cases[0];
}
