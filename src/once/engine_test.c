/* engine_test.c - statements on any engine: values, counts, pipelines, transactions. */
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
    };
    memcpy(out, cases, sizeof cases);
    return sizeof cases / sizeof cases[0];
}

int run_engine_tests(const char *name, const struct CMUnitTest *own, size_t n)
{
    struct CMUnitTest all[ENGINE_CASES_MAX * 4];
    if (n > ENGINE_CASES_MAX)
        return 1;
    size_t count = statement_cases(all);
    memcpy(all + count, own, n * sizeof *own);
    count += n;
    count += table_cases(all + count);
    count += trouble_cases(all + count);
    return _cmocka_run_group_tests(name, all, count, NULL, NULL);
}
