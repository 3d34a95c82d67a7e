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
static bool transactions = true;

static void rig_settings(struct rig *rig)
{
    static int stores;
    const char *url = getenv("STORE_URL");
    assert_non_null(url);
    rig->engine = &ENGINE;
    rig->plain_create = plain_create(rig->engine);
    rig->settings.transactions = transactions;
    (void)snprintf(rig->url, sizeof rig->url, "%s", url);
    (void)snprintf(rig->table, sizeof rig->table, "Store_%d", stores++);
}

/* ---- a batch that meets others ---- */

/* What each of eight keys is when a batch asks for it, and what comes of that. */
enum { FRESH, FRESH_TOO, BUSY, DONE, EXPIRED, TAKEN, RENEWED, OURS, KINDS };
#define BATCH (8 * KINDS)
#define LATE  5 /* of the eight that are ours to finish, the one that another has taken */

static struct rig *meeting;
static bool met, tireless, reads_first = true;

static bool is_late(int key)
{
    return key == LATE * KINDS + OURS;
}

/* Others, after our batch has read and before it writes. */
static void meet(void)
{
    met = true;
    for (int key = 0; key < BATCH; key++) {
        if (key % KINDS == TAKEN || is_late(key))
            assert_int_equal(ask(meeting->other, OP_CLAIM, key, 30), OUT_OK);
        if (key % KINDS == RENEWED)
            assert_int_equal(ask(meeting->other, OP_RENEW, key, 20), OUT_OK);
    }
}

static enum err meeting_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                            struct fault *why)
{
    bool writes = false;
    for (size_t i = 0; i < n; i++)
        writes |= strncmp(calls[i].text, "INSERT", 6) == 0;
    if (writes && meeting && !met)
        meet();
    if (meeting && tireless && strncmp(calls[0].text, "SELECT", 6) != 0)
        (void)rig_exec(meeting, "UPDATE {claims} SET until_ms = until_ms + 1 WHERE token = 20");
    return ENGINE.run(conn, calls, n, failed, why);
}

static void prepare_keys(struct rig *rig)
{
    for (int key = 0; key < BATCH; key++) {
        int kind = key % KINDS;
        if (kind == EXPIRED || kind == RENEWED)
            assert_int_equal(ask(rig->other, OP_CLAIM, key, 20), OUT_OK);
        if (is_late(key))
            assert_int_equal(ask(rig->conn, OP_CLAIM, key, 10), OUT_OK);
    }
    time_passes(rig);
    for (int key = 0; key < BATCH; key++) {
        int kind = key % KINDS;
        if (kind == BUSY || kind == DONE)
            assert_int_equal(ask(rig->other, OP_CLAIM, key, 20), OUT_OK);
        if (kind == DONE)
            assert_int_equal(ask(rig->other, OP_FINISH, key, 20), OUT_OK);
        if (kind == OURS && !is_late(key))
            assert_int_equal(ask(rig->conn, OP_CLAIM, key, 10), OUT_OK);
    }
}

static void each_of_a_batch_has_its_own_fate(void **state)
{
    static const enum op_outcome outcomes[] = {OUT_OK, OUT_OK,   OUT_BUSY, OUT_DONE,
                                               OUT_OK, OUT_BUSY, OUT_BUSY, OUT_OK};
    static const uint64_t holders[] = {10, 10, 20, 20, 10, 30, 20, 10};
    static struct op ops[BATCH];
    struct op *list[BATCH];
    struct sql_engine engine = ENGINE;
    struct rig rig;
    engine.run = meeting_run;
    if (reads_first) /* so that others are met between reading and writing, not before both */
        engine.straight_claim = NULL;
    met = false;
    rig_open(&rig);
    rig_disconnect(&rig);
    rig.engine = &engine;
    rig_connect(&rig);
    prepare_keys(&rig);
    for (int key = 0; key < BATCH; key++) {
        ops[key] = op_of(key % KINDS == OURS ? OP_FINISH : OP_CLAIM, key, 10);
        list[key] = &ops[key];
    }
    meeting = &rig;
    assert_int_equal(sql_run(rig.conn, list, BATCH, NULL), OK);
    meeting = NULL;
    assert_true(met);
    for (int key = 0; key < BATCH; key++) {
        int kind = key % KINDS;
        assert_int_equal(ops[key].outcome, is_late(key) ? OUT_LOST : outcomes[kind]);
        uint64_t holder = is_late(key) ? 30 : holders[kind];
        assert_int_equal(ask(rig.other, OP_RENEW, key, holder),
                         kind == DONE || (kind == OURS && !is_late(key)) ? OUT_LOST : OUT_OK);
        assert_int_equal(state_of(rig.other, key), kind == DONE || (kind == OURS && !is_late(key))
                                                       ? ONCE_CONSUMED
                                                       : ONCE_CONSUMING);
        if (ops[key].outcome == OUT_OK && kind != OURS)
            assert_int_equal(ops[key].fence, fence_of(rig.other, key));
    }
    rig_disconnect(&rig);
}

/* Nine keys that are free and one that another writes to without end. */
static void who_always_loses_does_not_undo_the_others(void **state)
{
    struct op ops[10];
    struct op *list[10];
    struct sql_engine engine = ENGINE;
    struct rig rig, others;
    if (!engine.commit_text)
        return; /* all of a batch is one transaction: sql_race_test.c has that */
    rig_open(&others);
    assert_int_equal(ask(others.conn, OP_CLAIM, 0, 20), OUT_OK);
    time_passes(&others);
    rig = others;
    engine.run = meeting_run;
    rig.engine = &engine;
    rig.settings.url = rig.url;
    rig.settings.table = rig.table;
    rig_connect(&rig);
    for (int i = 0; i < 10; i++) {
        ops[i] = op_of(OP_CLAIM, i, 10);
        list[i] = &ops[i];
    }
    meeting = &others;
    met = tireless = true;
    assert_int_equal(sql_run(rig.conn, list, 10, NULL), ERR_BUSY);
    meeting = NULL;
    tireless = false;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ops[i].outcome, i == 0 ? OUT_NONE : OUT_OK);
        assert_int_equal(ask(others.conn, OP_FINISH, i, 10), i == 0 ? OUT_LOST : OUT_OK);
    }
    rig_disconnect(&rig);
    rig_disconnect(&others);
}

/* What a claim says of its fence is what the row has, and all of it is reckoned from one clock, the
 * server's; alone, a few, and so many that they go together; new ones and such as are finished. */
static void claims_tell_the_clock_that_they_were_written_with(void **state)
{
    static const int sizes[] = {1, 3, 25};
    static struct op ops[2 * 25];
    struct op *list[2 * 25];
    struct rig rig;
    struct fault why = {0};
    rig_open(&rig);
    for (int size = 0, first = 0; size < 3; first += sizes[size++]) {
        int n = sizes[size];
        for (int round = 0; round < 2; round++) { /* in the second they are finished */
            for (int i = 0; i < n; i++) {
                uint64_t token = 10 + (uint64_t)i;
                ops[i] = op_of(OP_CLAIM, first + i + round * 1000, token);
                ops[n + i] = op_of(OP_FINISH, first + i, token);
                list[i] = &ops[i];
                list[n + i] = &ops[n + i];
            }
            int64_t before = rig_number(&rig, "SELECT {now}");
            if (sql_run(rig.conn, list, (size_t)(round + 1) * (size_t)n, &why))
                fail_msg("%s", why.text);
            int64_t after = rig_number(&rig, "SELECT {now}");
            for (int i = 0; i < n; i++) {
                assert_int_equal(ops[i].outcome, OUT_OK);
                assert_in_range(ops[i].fence, before * 1000, after * 1000);
                assert_int_equal(ops[i].fence, fence_of(rig.other, first + i + round * 1000));
                assert_int_equal(state_of(rig.other, first + i), ONCE_CONSUMING + round);
            }
        }
    }
    assert_int_equal(ONCE_CONSUMED, ONCE_CONSUMING + 1);
    char text[160];
    (void)snprintf(text, sizeof text,
                   "SELECT COUNT(*) FROM {claims} WHERE (until_ms - %d) * 1000 = fence AND"
                   " keep_ms = until_ms + %lld",
                   FAR_MS, 2LL * FAR_MS);
    assert_int_equal(rig_number(&rig, text), 1 + 3 + 25);
    rig_disconnect(&rig);
}

static enum err silent_run(struct sql_conn *conn, struct sql_call *calls, size_t n, size_t *failed,
                           struct fault *why)
{
    enum err err = ENGINE.run(conn, calls, n, failed, why);
    for (size_t i = 0; i < n; i++)
        calls[i].told = 0;
    return err;
}

/* A server that does not tell: the row is read, and is the claim's all the same. */
static void a_claim_that_is_not_told_its_clock_asks_for_it(void **state)
{
    struct sql_engine engine = ENGINE;
    struct rig rig;
    engine.run = silent_run;
    rig_open(&rig);
    rig_disconnect(&rig);
    rig.engine = &engine;
    rig_connect(&rig);
    struct op claim = op_of(OP_CLAIM, 1, 10);
    int64_t before = rig_number(&rig, "SELECT {now}");
    assert_int_equal(do_op(rig.conn, &claim), OUT_OK);
    assert_true(claim.fence >= before * 1000);
    assert_int_equal(claim.fence, fence_of(rig.other, 1));
    assert_int_equal(ask(rig.conn, OP_FINISH, 1, 10), OUT_OK);
    assert_int_equal(state_of(rig.other, 1), ONCE_CONSUMED);
    rig_disconnect(&rig);
}

/* Rows without their birth: what docs/once-sql.md says gives it to them. */
static void tables_of_before_are_refused_and_can_be_brought_up(void **state)
{
    static const char *const before[] = {
        "DROP TABLE {claims}",
        "CREATE TABLE {claims} (id BINARY(32) NOT NULL PRIMARY KEY, name VARCHAR(255) CHARACTER SET"
        " ascii COLLATE ascii_bin NOT NULL, state BIGINT NOT NULL, token BIGINT NOT NULL, fence"
        " BIGINT NOT NULL, until_ms BIGINT NOT NULL, keep_ms BIGINT NOT NULL, fingerprint BIGINT"
        " NOT NULL, KEY {keep} (keep_ms)) ENGINE = InnoDB",
        "INSERT INTO {claims} VALUES (REPEAT('x', 32), 'x', 2, 1, 1, 1, 1, 1)",
    };
    static const char *const after[] = {
        "ALTER TABLE {birth} ADD UNIQUE (number)",
        "ALTER TABLE {claims} ADD COLUMN birth BIGINT NOT NULL, DROP KEY {keep}",
        "UPDATE {claims} SET birth = (SELECT number FROM {birth} WHERE one = 1)",
        "ALTER TABLE {claims} ADD KEY {keep} (birth, keep_ms)",
        "ALTER TABLE {claims} ADD FOREIGN KEY (birth) REFERENCES {birth} (number)",
    };
    struct rig rig;
    struct store *refused;
    struct fault why = {0};
    if (!ENGINE.births)
        return;
    rig_open(&rig);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        (void)rig_exec(&rig, before[i]);
    assert_int_equal(sql_open(rig.engine, &rig.settings, &refused, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "is not as docs/once"));
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++)
        (void)rig_exec(&rig, after[i]);
    rig_disconnect(&rig);
    rig_connect(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    struct op sweep = {.kind = OP_SWEEP, .rows = 100};
    assert_int_equal(do_op(rig.conn, &sweep), OUT_OK);
    assert_int_equal(sweep.rows, 1);
    rig_disconnect(&rig);
}

/* Without the key claims would go on in a store that was emptied. What asks for it leaves nothing.
 */
static void claims_that_are_not_held_to_a_birth_are_refused_at_the_start(void **state)
{
    struct rig rig;
    struct store *refused;
    struct fault why = {0};
    if (!ENGINE.births)
        return;
    rig_open(&rig);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {claims}"), 0);
    char drop[200]; /* by the name that the server gave it */
    (void)snprintf(drop, sizeof drop, "ALTER TABLE {claims} DROP FOREIGN KEY %s_claims_ibfk_1",
                   rig.settings.table);
    (void)rig_exec(&rig, drop);
    assert_int_equal(sql_open(rig.engine, &rig.settings, &refused, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "FOREIGN KEY (birth)"));
    (void)rig_exec(&rig,
                   "ALTER TABLE {claims} ADD FOREIGN KEY (birth) REFERENCES {birth} (number)");
    rig_disconnect(&rig);
    rig_connect(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    rig_disconnect(&rig);
}

static int no_transactions(void **state)
{
    transactions = false;
    return 0;
}

static int straight_writes(void **state)
{
    reads_first = false;
    return no_transactions(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQL_CASES,
        SQL_PLACE_CASES,
        SQL_PLAIN_CASES,
        cmocka_unit_test(each_of_a_batch_has_its_own_fate),
        cmocka_unit_test(who_always_loses_does_not_undo_the_others),
        cmocka_unit_test(claims_tell_the_clock_that_they_were_written_with),
        cmocka_unit_test(a_claim_that_is_not_told_its_clock_asks_for_it),
        cmocka_unit_test(tables_of_before_are_refused_and_can_be_brought_up),
        cmocka_unit_test(claims_that_are_not_held_to_a_birth_are_refused_at_the_start),
        /* Connections that no handler gets may work in another way. */
        cmocka_unit_test_setup(each_of_a_batch_has_its_own_fate, no_transactions),
        cmocka_unit_test_setup(each_of_a_batch_has_its_own_fate, straight_writes),
        cmocka_unit_test(outcomes_are_those_of_the_rules),
        cmocka_unit_test(a_full_batch_answers_each_operation_by_itself),
        cmocka_unit_test(two_operations_on_one_key_in_a_batch_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
