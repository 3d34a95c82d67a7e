/* engine_test.c - statements on any engine: values, counts, pipelines, transactions, dialect. */
#include "once/engine_test.h"

const char insert_id[] = "INSERT INTO things (id) VALUES (?)";
const char insert_thing[] = "INSERT INTO things (id, number, words, bytes) VALUES (?, ?, ?, ?)";
const char set_number[] = "UPDATE things SET number = ? WHERE id = ?";
static const char read_thing[] = "SELECT number, words, bytes FROM things WHERE id = ?";

static void check_value(const struct sql_value *got, const struct sql_value *wanted)
{
    assert_int_equal(got->type, wanted->type);
    if (wanted->type == SQL_INT)
        assert_true(got->number == wanted->number);
    else if (wanted->type != SQL_NULL)
        assert_bytes_equal(got->bytes, wanted->bytes);
}

/* Numbers to their ends, text beyond ASCII, bytes with zeros, 64 KiB, and nothing, which is not
 * NULL. */
static void values_come_back_as_they_went(void **state)
{
    static uint8_t big[64 << 10];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 7);
    struct sql_value rows[][3] = {
        {num(0), words("plain"), blob("a\0b", 3)},
        {num(-1), words("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), blob("\0", 1)},
        {num(INT64_MIN), words(""), blob("", 0)},
        {num(INT64_MAX), words("'; -- \\\""), blob("'\"\\`?\n", 6)},
        {null(), null(), null()},
        {num(5), null(), blob(big, sizeof big)},
        {null(), words("?"), blob("\xff\xfe", 2)},
    };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(done(conn, (struct sql_call){.text = insert_thing,
                                                      VALUES(num((int64_t)i), rows[i][0],
                                                             rows[i][1], rows[i][2])}),
                         1);
        struct seen seen = {0};
        (void)done(conn,
                   (struct sql_call){
                       .text = read_thing, VALUES(num((int64_t)i)), .row = see, .user = &seen});
        assert_int_equal(seen.rows, 1);
        assert_int_equal(seen.columns, 3);
        for (size_t c = 0; c < 3; c++)
            check_value(&seen.last[c], &rows[i][c]);
        struct sql_call once = {.text = read_thing, .once = true, VALUES(num((int64_t)i))};
        once.row = see;
        once.user = &seen;
        (void)done(conn, once); /* the same, if the statement is not remembered */
        assert_int_equal(seen.rows, 2);
        for (size_t c = 0; c < 3; c++)
            check_value(&seen.last[c], &rows[i][c]);
        seen_clear(&seen);
    }
    bye(conn);
    (void)state;
}

static void a_question_mark_in_quotes_is_no_value(void **state)
{
    struct sql_conn *conn = fresh();
    struct seen seen = {0};
    (void)done(conn, (struct sql_call){
                         .text = dialect.odd_names, VALUES(num(41)), .row = see, .user = &seen});
    assert_int_equal(seen.rows, 1);
    check_value(&seen.last[0], &(struct sql_value){.type = SQL_TEXT, .bytes = BYTES("?'")});
    assert_int_equal(seen.last[1].number, 42);
    seen_clear(&seen);
    bye(conn);
    (void)state;
}

static void values_must_be_as_many_as_there_are_places(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    struct fault why = {0};
    struct sql_call few = {.text = "INSERT INTO things (id, number) VALUES (?, ?)", VALUES(num(1))};
    struct sql_call many = {.text = "INSERT INTO things (id) VALUES (?)", VALUES(num(1), num(2))};
    assert_int_equal(run1(conn, &few, &why), ERR_INVALID);
    assert_int_equal(run1(conn, &many, &why), ERR_INVALID);
    assert_int_equal(things(conn), 0);
    bye(conn);
    (void)state;
}

/* An UPDATE counts the rows that it found, also where nothing differs afterwards: a renewal in the
 * same millisecond is none that found nothing. */
static void rows_are_counted_as_found(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (int i = 0; i < 3; i++)
        assert_int_equal(done(conn, (struct sql_call){.text = insert_id, VALUES(num(i))}), 1);
    struct sql_call set = {.text = set_number, VALUES(num(7), num(1))};
    assert_int_equal(done(conn, set), 1);
    assert_int_equal(done(conn, set), 1);
    set.params[1] = num(99);
    assert_int_equal(done(conn, set), 0);
    assert_int_equal(done(conn, (struct sql_call){.text = "SELECT id FROM things"}), 0);
    assert_int_equal(
        done(conn, (struct sql_call){.text = "DELETE FROM things WHERE id < ?", VALUES(num(2))}),
        2);
    bye(conn);
    (void)state;
}

static void rows_end_when_told(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    for (int i = 0; i < 5; i++)
        (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(i))});
    struct seen seen = {.stop_after = 2};
    (void)done(conn, (struct sql_call){
                         .text = "SELECT id FROM things ORDER BY id", .row = see, .user = &seen});
    assert_int_equal(seen.rows, 2);
    assert_int_equal(seen.last[0].number, 1);
    seen_clear(&seen);
    assert_int_equal(things(conn), 5); /* the connection is in step */
    bye(conn);
    (void)state;
}

/* ---- many at once ---- */

static void pipelines_of_256_keep_their_order(void **state)
{
    enum { N = 256 };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    struct sql_call *calls = calloc(N, sizeof *calls);
    struct seen *seen = calloc(N, sizeof *seen);
    assert_true(calls && seen);
    size_t failed;
    struct fault why = {0};
    for (int turn = 0; turn < 2; turn++) { /* the second time, statements are known */
        for (int i = 0; i < N; i++)
            calls[i] = (struct sql_call){
                .text = insert_thing, VALUES(num(turn * N + i), num(-i), null(), blob("four", 4))};
        begin(conn);
        good(dialect.engine->run(conn, calls, N, &failed, &why), &why);
        for (int i = 0; i < N; i++)
            assert_int_equal(calls[i].changed, 1);
        commit(conn);
    }
    for (int i = 0; i < N; i++)
        calls[i] =
            (struct sql_call){.text = read_thing, VALUES(num(N + i)), .row = see, .user = &seen[i]};
    good(dialect.engine->run(conn, calls, N, &failed, &why), &why);
    for (int i = 0; i < N; i++) {
        assert_int_equal(seen[i].rows, 1);
        assert_int_equal(seen[i].last[0].number, -i);
        seen_clear(&seen[i]);
    }
    free(calls);
    free(seen);
    bye(conn);
    (void)state;
}

/* More bytes both ways than sockets hold: who sends must not wait for who answers. */
static void pipelines_of_megabytes_do_not_stand_still(void **state)
{
    enum { N = 128, SIZE = 64 << 10 };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    uint8_t *big = calloc(1, SIZE);
    struct sql_call *calls = calloc(N * 2, sizeof *calls);
    struct seen seen = {0};
    assert_true(big && calls);
    for (int i = 0; i < N; i++) {
        calls[i * 2] = (struct sql_call){.text = insert_thing,
                                         VALUES(num(i), null(), null(), blob(big, SIZE))};
        calls[i * 2 + 1] =
            (struct sql_call){.text = read_thing, VALUES(num(i)), .row = see, .user = &seen};
    }
    size_t failed;
    struct fault why = {0};
    good(dialect.engine->run(conn, calls, (size_t)N * 2, &failed, &why), &why);
    assert_int_equal(seen.rows, N);
    assert_int_equal(seen.last[2].bytes.len, SIZE);
    seen_clear(&seen);
    free(calls);
    free(big);
    bye(conn);
    (void)state;
}

/* The failure is told with its place, what stood before it is not there either, and the connection
 * can be used. Every place is tried. */
static void a_pipeline_ends_at_its_first_failure(void **state)
{
    enum { N = 9 };
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1000))});
    for (size_t bad = 0; bad < N; bad++) {
        struct sql_call calls[N];
        for (size_t i = 0; i < N; i++)
            calls[i] = (struct sql_call){.text = i % 2 ? insert_thing : insert_id,
                                         VALUES(num((int64_t)i), null(), null(), null())};
        for (size_t i = 0; i < N; i += 2)
            calls[i].n_params = 1;
        calls[bad].params[0] = num(1000);
        size_t failed = 99;
        struct fault why = {0};
        assert_int_equal(dialect.engine->run(conn, calls, N, &failed, &why), ERR_EXISTS);
        assert_int_equal(failed, bad);
        assert_true(why.text[0] != 0);
        assert_int_equal(things(conn), 1);
    }
    bye(conn);
    (void)state;
}

/* Also where it is found here that a call cannot be sent. */
static void a_call_that_cannot_be_sent_has_its_place(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    struct sql_call calls[] = {
        {.text = insert_id, VALUES(num(1))},
        {.text = "INSERT INTO things (id) VALUES (?, ?)", VALUES(num(2))},
        {.text = insert_id, VALUES(num(3))},
    };
    size_t failed = 99;
    struct fault why = {0};
    begin(conn);
    assert_int_equal(dialect.engine->run(conn, calls, 3, &failed, &why), ERR_INVALID);
    assert_int_equal(failed, 1);
    dialect.engine->rollback(conn);
    assert_int_equal(things(conn), 0);
    bye(conn);
    (void)state;
}

static void texts_need_not_be_remembered(void **state)
{
    struct sql_conn *conn = fresh();
    for (int i = 0; i < 300; i++) { /* more than any table of statements has places */
        char text[64];
        snprintf(text, sizeof text, "SELECT %d + ?", i);
        struct seen seen = {0};
        struct sql_call call = {
            .text = text, .once = true, VALUES(num(1)), .row = see, .user = &seen};
        (void)done(conn, call);
        assert_int_equal(seen.last[0].number, i + 1);
        seen_clear(&seen);
    }
    bye(conn);
    (void)state;
}

static void remembered_texts_may_be_many(void **state)
{
    struct sql_conn *conn = fresh();
    static char texts[300][32];
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 300; i++) {
            snprintf(texts[i], sizeof texts[i], "SELECT %d", i);
            struct seen seen = {0};
            (void)done(conn, (struct sql_call){.text = texts[i], .row = see, .user = &seen});
            assert_int_equal(seen.last[0].number, i);
            seen_clear(&seen);
        }
    bye(conn);
    (void)state;
}

/* ---- transactions ---- */

static void transactions_are_whole(void **state)
{
    struct sql_conn *conn = fresh(), *other = fresh();
    fresh_things(conn);
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    assert_int_equal(things(other), 0);
    dialect.engine->rollback(conn);
    assert_int_equal(things(conn), 0);
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(2))});
    commit(conn);
    assert_int_equal(things(other), 2);
    begin(conn);
    commit(conn); /* of nothing */
    begin(conn);
    dialect.engine->rollback(conn);
    dialect.engine->rollback(conn); /* of nothing at all */
    assert_true(dialect.engine->healthy(conn));
    bye(other);
    bye(conn);
    (void)state;
}

/* Nothing more can be done in it, and a commit says so instead of keeping half. */
static void a_transaction_with_a_failure_is_rolled_back(void **state)
{
    struct sql_conn *conn = fresh();
    fresh_things(conn);
    begin(conn);
    (void)done(conn, (struct sql_call){.text = insert_id, VALUES(num(1))});
    struct sql_call again = {.text = insert_id, VALUES(num(1))};
    struct sql_call other = {.text = insert_id, VALUES(num(2))};
    struct fault why = {0};
    assert_int_equal(run1(conn, &again, &why), ERR_EXISTS);
    assert_int_equal(run1(conn, &other, &why), ERR_INVALID);
    assert_int_equal(dialect.engine->commit(conn, &why), ERR_INVALID);
    assert_int_equal(things(conn), 0);
    assert_true(dialect.engine->healthy(conn));
    bye(conn);
    (void)state;
}

/* A row that another has committed since the transaction began is seen by its next statement. */
static void a_transaction_sees_what_others_committed(void **state)
{
    struct sql_conn *conn = fresh(), *other = fresh();
    fresh_things(conn);
    begin(conn);
    assert_int_equal(things(conn), 0);
    (void)done(other, (struct sql_call){.text = insert_id, VALUES(num(1))});
    assert_int_equal(things(conn), 1);
    commit(conn);
    bye(other);
    bye(conn);
    (void)state;
}

/* ---- dialect ---- */

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

static void a_claim_is_inserted_unless_it_is_there(void **state)
{
    (void)create_tables(NULL);
    char *insert = table_text(dialect.engine->insert_claim);
    char *clear = table_text("DELETE FROM {claims}");
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = clear});
    uint8_t id[32] = {0};
    for (int i = 0; i < 3; i++) {
        id[31] = (uint8_t)i;
        struct sql_call call = {
            .text = insert,
            VALUES(blob(id, 32), words("name"), num(1), num(-2), num(3), num(4), num(5), num(6))};
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
    free(clear);
    free(insert);
    bye(conn);
    (void)state;
}

/* Engines may send them together; each has its own count all the same. */
static void many_of_one_text_are_counted_each(void **state)
{
    enum { N = 100 };
    (void)create_tables(NULL);
    char *insert = table_text(dialect.engine->insert_claim);
    char *clear = table_text("DELETE FROM {claims}");
    char *update = table_text("UPDATE {claims} SET state = ? WHERE id = ? AND state = ?");
    struct sql_conn *conn = fresh();
    (void)done(conn, (struct sql_call){.text = clear});
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
            calls[i] = (struct sql_call){.text = insert,
                                         VALUES(blob(ids[i], 32), words("name"), num(i), num(-i),
                                                num(3), num(4), num(5), num(6))};
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
    free(clear);
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
    for (int i = 0; i < 20; i++) {
        struct seen seen = {0};
        (void)done(conn, (struct sql_call){.text = text, .row = see, .user = &seen});
        assert_int_equal(seen.last[0].type, SQL_INT);
        int64_t now = seen.last[0].number;
        assert_true(now == seen.last[1].number);
        assert_int_equal(seen.last[2].number, 0);
        assert_true(llabs(now_ms(CLOCK_REALTIME) - now) < 5000);
        assert_true(now >= before);
        before = now;
        seen_clear(&seen);
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
    }
    assert_true(now_ms(CLOCK_REALTIME) - before < 1000); /* it goes on within a transaction */
    commit(conn);
    free(text);
    bye(conn);
    (void)state;
}

size_t statement_cases(struct CMUnitTest out[ENGINE_CASES_MAX])
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(values_come_back_as_they_went),
        cmocka_unit_test(a_question_mark_in_quotes_is_no_value),
        cmocka_unit_test(values_must_be_as_many_as_there_are_places),
        cmocka_unit_test(rows_are_counted_as_found),
        cmocka_unit_test(rows_end_when_told),
        cmocka_unit_test(pipelines_of_256_keep_their_order),
        cmocka_unit_test(pipelines_of_megabytes_do_not_stand_still),
        cmocka_unit_test(a_pipeline_ends_at_its_first_failure),
        cmocka_unit_test(a_call_that_cannot_be_sent_has_its_place),
        cmocka_unit_test(texts_need_not_be_remembered),
        cmocka_unit_test(remembered_texts_may_be_many),
        cmocka_unit_test(transactions_are_whole),
        cmocka_unit_test(a_transaction_with_a_failure_is_rolled_back),
        cmocka_unit_test(a_transaction_sees_what_others_committed),
        cmocka_unit_test(tables_can_be_created_by_several_at_once_and_again),
        cmocka_unit_test(the_manual_has_the_sql_that_is_run),
        cmocka_unit_test(a_claim_is_inserted_unless_it_is_there),
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

int run_engine_tests(const char *name, const struct CMUnitTest *own, size_t n)
{
    struct CMUnitTest all[ENGINE_CASES_MAX * 3];
    if (n > ENGINE_CASES_MAX)
        return 1;
    size_t count = statement_cases(all);
    memcpy(all + count, own, n * sizeof *own);
    count += n;
    count += trouble_cases(all + count);
    return _cmocka_run_group_tests(name, all, count, NULL, NULL);
}
