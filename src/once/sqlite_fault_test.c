/* SQLite stores on a disk that fails, and in processes that are killed, at every point of a commit:
 * a batch happens whole or not at all, and what was answered is there. */
#include "once/sql_folder_test.h"

#include <sys/wait.h>

enum { BATCH = 8 };

/* A file with something in it: every second key is another's, or ours to finish. */
static void prepare(struct rig *rig)
{
    rig_open(rig);
    for (int i = 0; i < BATCH; i += 2)
        assert_int_equal(ask(rig->conn, OP_CLAIM, i, 10), OUT_OK);
    (void)rig_exec(rig, "CREATE TABLE {plain} (n INTEGER)");
}

/* Claims of the odd keys, and the ends of the even ones. */
static enum err run_batch(struct conn *conn, enum op_outcome *outcomes, struct fault *why)
{
    struct op ops[BATCH], *list[BATCH];
    for (int i = 0; i < BATCH; i++) {
        ops[i] = op_of(i % 2 ? OP_CLAIM : OP_FINISH, i, 10);
        list[i] = &ops[i];
    }
    enum err err = sql_run(conn, list, BATCH, why);
    for (int i = 0; i < BATCH; i++)
        outcomes[i] = ops[i].outcome;
    return err;
}

/* How many of the batch's changes are there. */
static int changes(struct conn *conn)
{
    int n = 0;
    for (int i = 0; i < BATCH; i++)
        n += state_of(conn, i) == (i % 2 ? ONCE_CONSUMING : ONCE_CONSUMED);
    return n;
}

static void assert_sound(struct rig *rig, bool answered)
{
    int n = changes(rig->conn);
    assert_true(n == BATCH || (n == 0 && !answered));
    enum op_outcome outcomes[BATCH];
    assert_int_equal(run_batch(rig->conn, outcomes, NULL), OK); /* it may be repeated */
    for (int i = 0; i < BATCH; i++)
        assert_int_equal(outcomes[i], OUT_OK);
    assert_int_equal(changes(rig->conn), BATCH);
}

/* The n-th write fails, for n = 0, 1, 2 … until none does. */
static void a_failing_disk_changes_all_or_nothing(void **state)
{
    static const enum disk_fault faults[] = {DISK_FAILS, DISK_FULL, DISK_SLIPS, DISK_TEARS};
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        int points = 0;
        for (long n = 0;; n++) {
            struct rig rig;
            struct fault why = {0};
            enum op_outcome outcomes[BATCH];
            prepare(&rig);
            disk.fault = faults[f];
            disk.happened = false;
            disk.left = n;
            enum err err = run_batch(rig.conn, outcomes, &why);
            disk.left = -1;
            if (!disk.happened) {
                assert_int_equal(err, OK);
                rig_disconnect(&rig);
                break;
            }
            points++;
            assert_true(err == ERR_IO || err == ERR_DISK_FULL);
            assert_int_not_equal(strlen(why.text), 0);
            for (int i = 0; i < BATCH; i++)
                assert_int_equal(outcomes[i], OUT_NONE);
            assert_sound(&rig, false); /* on this very connection */
            rig_disconnect(&rig);
            rig_connect(&rig);
            assert_sound(&rig, true);
            rig_disconnect(&rig);
        }
        assert_true(points >= 3);
    }
}

/* Runs `work` in a child that is killed at its n-th write. Returns whether it was; `*answered`:
 * whether it had said it was done. */
static bool killed_at(struct rig *rig, long n, bool (*work)(struct rig *), bool *answered)
{
    int said[2];
    assert_int_equal(pipe(said), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        rig_connect(rig);
        disk.fault = DISK_KILLS;
        disk.left = n;
        bool good = work(rig);
        disk.left = -1;
        (void)!write(said[1], good ? "y" : "n", 1);
        _exit(0);
    }
    (void)close(said[1]);
    char byte = 0;
    *answered = read(said[0], &byte, 1) == 1;
    (void)close(said[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(!*answered || byte == 'y');
    return WIFSIGNALED(status);
}

static bool work_batch(struct rig *rig)
{
    enum op_outcome outcomes[BATCH];
    return run_batch(rig->conn, outcomes, NULL) == OK && outcomes[0] == OUT_OK;
}

static void a_process_killed_in_a_batch_leaves_all_or_nothing(void **state)
{
    for (long n = 0;; n++) {
        struct rig rig;
        bool answered;
        prepare(&rig);
        rig_disconnect(&rig);
        bool killed = killed_at(&rig, n, work_batch, &answered);
        assert_int_equal(killed, !answered);
        rig_connect(&rig);
        assert_sound(&rig, answered);
        rig_disconnect(&rig);
        if (!killed) {
            assert_true(n >= 3);
            break;
        }
    }
}

static bool work_transaction(struct rig *rig)
{
    struct op op = op_of(OP_FINISH, 100, 10);
    if (sql_begin(rig->conn, &op, NULL) || op.outcome != OUT_OK)
        return false;
    (void)rig_exec(rig, "INSERT INTO {plain} (n) VALUES (1)");
    return sql_commit(rig->conn, NULL) == OK;
}

/* The effect is there if and only if the mark is, and the message that comes again runs if and only
 * if it is not. */
static void a_process_killed_in_a_transaction_has_its_effect_once(void **state)
{
    for (long n = 0;; n++) {
        struct rig rig;
        bool answered;
        prepare(&rig);
        rig_disconnect(&rig);
        bool killed = killed_at(&rig, n, work_transaction, &answered);
        rig_connect(&rig);
        int64_t effects = rig_number(&rig, "SELECT COUNT(*) FROM {plain}");
        assert_int_equal(effects, state_of(rig.conn, 100) == ONCE_CONSUMED);
        assert_true(effects == 1 || !answered);
        struct op op = op_of(OP_FINISH, 100, 20);
        assert_int_equal(sql_begin(rig.conn, &op, NULL), OK);
        assert_int_equal(op.outcome, effects ? OUT_DONE : OUT_OK);
        if (op.outcome == OUT_OK) {
            (void)rig_exec(&rig, "INSERT INTO {plain} (n) VALUES (1)");
            assert_int_equal(sql_commit(rig.conn, NULL), OK);
        }
        assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 1);
        rig_disconnect(&rig);
        if (!killed) {
            assert_true(n >= 3);
            break;
        }
    }
}

static bool work_open(struct rig *rig)
{
    return ask(rig->conn, OP_CLAIM, 1, 10) == OUT_OK;
}

/* Killed while the tables are made: whoever comes next makes them, and knows the birth. */
static void a_process_killed_while_it_creates_leaves_a_store_that_opens(void **state)
{
    for (long n = 0;; n++) {
        struct rig rig = {.settings = {.create = true, .wait_ms = 200, .log = rig_log}};
        rig_settings(&rig);
        rig.settings.url = rig.url;
        rig.settings.table = rig.table;
        pid_t pid = fork_child();
        if (pid == 0) {
            disk.fault = DISK_KILLS;
            disk.left = n;
            rig_connect(&rig);
            (void)work_open(&rig);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        rig_connect(&rig);
        assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {birth}"), 1);
        assert_int_not_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_NONE);
        rig_disconnect(&rig);
        if (!WIFSIGNALED(status)) {
            assert_int_equal(status, 0);
            assert_true(n >= 8);
            break;
        }
    }
}

/* What is shared by all of a batch is the sync: one, however many there are. */
static void a_batch_costs_one_sync(void **state)
{
    struct rig rig;
    rig_open(&rig);
    static struct op ops[64];
    struct op *list[64];
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1000, 10), OUT_OK); /* the WAL has begun */
    for (int i = 0; i < 64; i++) {
        ops[i] = op_of(OP_CLAIM, i, 10);
        list[i] = &ops[i];
    }
    disk.syncs = 0;
    assert_int_equal(sql_run(rig.conn, list, 64, NULL), OK);
    assert_int_equal(disk.syncs, 1);
    for (int i = 0; i < 64; i++)
        ops[i].kind = OP_LOOK;
    assert_int_equal(sql_run(rig.conn, list, 64, NULL), OK);
    assert_int_equal(disk.syncs, 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(ask(rig.conn, OP_FINISH, i, 10), OUT_OK);
    assert_int_equal(disk.syncs, 11); /* one after the other: each is on the disk */
    rig_disconnect(&rig);
}

/* ---- commits that are gathered (sqlite_wal.c) ---- */

enum { WIDE = 64, ROWS = 40 * WIDE };

static enum err claim_wide(struct conn *conn, int from, struct op *ops, struct fault *why)
{
    struct op *list[WIDE];
    for (int i = 0; i < WIDE; i++) {
        ops[i] = op_of(OP_CLAIM, (from + i) * 7919, 10); /* anywhere among the ids */
        list[i] = &ops[i];
    }
    return sql_run(conn, list, WIDE, why);
}

/* So many claims that those of a batch stand on some 40 pages of the index: more than is gathered
 * at a time. */
static void prepare_wide(struct rig *rig)
{
    static struct op ops[WIDE];
    rig_open(rig);
    for (int from = 0; from < ROWS; from += WIDE)
        assert_int_equal(claim_wide(rig->conn, from, ops, NULL), OK);
}

static void a_commit_is_few_writes_and_one_sync(void **state)
{
    struct rig rig;
    static struct op ops[WIDE];
    prepare_wide(&rig);
    disk.writes = disk.syncs = 0;
    assert_int_equal(claim_wide(rig.conn, ROWS, ops, NULL), OK);
    assert_in_range(disk.writes, 2, 4);
    assert_int_equal(disk.syncs, 1);
    rig_disconnect(&rig);
}

/* Commits are padded there, with a sync in the middle, and what comes behind it has none. */
static void nothing_is_gathered_on_a_disk_that_harms_neighbours(void **state)
{
    struct rig rig;
    static struct op ops[WIDE];
    disk.harms = true;
    prepare_wide(&rig);
    disk.writes = disk.syncs = 0;
    assert_int_equal(claim_wide(rig.conn, ROWS, ops, NULL), OK);
    assert_true(disk.writes > 50);
    assert_int_equal(state_of(rig.other, ROWS * 7919), ONCE_CONSUMING);
    rig_disconnect(&rig);
    disk.harms = false;
}

/* A handler may have set synchronous to what it liked: its connection gathers nothing, since there
 * may be no sync before others see the commit. */
static void a_connection_that_a_handler_had_gathers_nothing(void **state)
{
    struct rig rig;
    static struct op ops[WIDE];
    prepare_wide(&rig);
    assert_non_null(sql_native(rig.conn));
    (void)rig_exec(&rig, "PRAGMA synchronous = OFF");
    disk.writes = disk.syncs = 0;
    assert_int_equal(claim_wide(rig.conn, ROWS, ops, NULL), OK);
    assert_true(disk.writes > 50);
    assert_int_equal(disk.syncs, 0);
    assert_int_equal(state_of(rig.other, ROWS * 7919), ONCE_CONSUMING);
    rig_disconnect(&rig);
}

/* Nor does one whose handler has left its transaction, by whatever words: it may have set what is
 * refused within. */
static void a_connection_whose_transaction_was_left_gathers_nothing(void **state)
{
    struct rig rig;
    static struct op ops[WIDE];
    static const char *const words[] = {"/**/ROLLBACK", "PRAGMA synchronous = OFF"};
    prepare_wide(&rig);
    assert_int_equal(sql_begin(rig.conn, NULL, NULL), OK);
    for (int i = 0; i < 2; i++) {
        struct sql_call call = {.text = words[i], .once = true, .foreign = true};
        assert_int_equal(sql_call(rig.conn, &call, NULL), OK);
    }
    sql_rollback(rig.conn);
    disk.writes = disk.syncs = 0;
    assert_int_equal(claim_wide(rig.conn, ROWS, ops, NULL), OK);
    assert_true(disk.writes > 50);
    assert_int_equal(state_of(rig.other, ROWS * 7919), ONCE_CONSUMING);
    rig_disconnect(&rig);
}

/* As another connection sees it. */
static void assert_wide(struct rig *rig, int from, int wanted)
{
    for (int i = 0; i < WIDE; i++)
        assert_int_equal(state_of(rig->other, (from + i) * 7919), wanted);
    assert_int_equal(state_of(rig->other, (from - 1) * 7919), ONCE_CONSUMING);
}

static bool row_is_ok(void *user, const struct sql_value *columns, size_t n)
{
    *(bool *)user = n == 1 && bytes_equal(columns[0].bytes, BYTES("ok"));
    return true;
}

static void assert_intact(struct rig *rig)
{
    bool intact = false;
    struct sql_call call = {
        .text = "PRAGMA integrity_check", .once = true, .row = row_is_ok, .user = &intact};
    assert_int_equal(sql_call(rig->other, &call, NULL), OK);
    assert_true(intact);
}

/* The n-th piece or sync fails, for n = 0, 1, 2 …; then the same batch again, on this very
 * connection. Returns at how many points it failed. `restarts`: each commit copies the WAL back, so
 * that the next begins it anew; if that fails the commit is there all the same. */
static int fail_wide(enum disk_fault fault, bool restarts)
{
    static struct op ops[WIDE];
    struct rig rig;
    prepare_wide(&rig);
    if (restarts)
        (void)rig_exec(&rig, "PRAGMA wal_autocheckpoint = 10");
    int points = 0, from = ROWS;
    for (bool happens = true; happens; from += WIDE) {
        struct fault why = {0};
        disk.fault = fault;
        disk.happened = false;
        disk.left = restarts ? 7L * points : points;
        enum err err = claim_wide(rig.conn, from, ops, &why);
        disk.left = -1;
        happens = disk.happened;
        assert_true(restarts ? err == OK || happens : (err != OK) == happens);
        points += happens;
        if (err) {
            assert_wide(&rig, from, ONCE_ABSENT);
            assert_int_equal(claim_wide(rig.conn, from, ops, &why), OK);
        }
        assert_wide(&rig, from, ONCE_CONSUMING);
    }
    assert_intact(&rig);
    rig_disconnect(&rig);
    rig_connect(&rig);
    assert_wide(&rig, from - WIDE, ONCE_CONSUMING);
    assert_intact(&rig);
    rig_disconnect(&rig);
    return points;
}

static void a_gathered_write_that_fails_is_the_failure_of_its_commit(void **state)
{
    static const enum disk_fault faults[] = {DISK_FAILS, DISK_FULL, DISK_SLIPS, DISK_TEARS};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_in_range(fail_wide(faults[i], false), 60, 200);
}

static void a_wal_that_begins_anew_loses_nothing_of_what_was_gathered(void **state)
{
    static const enum disk_fault faults[] = {DISK_FAILS, DISK_SLIPS, DISK_TEARS};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_in_range(fail_wide(faults[i], true), 20, 200);
}

static int64_t other_number(struct rig *rig, const char *text)
{
    int64_t number = INT64_MIN;
    struct sql_call call = {.text = text, .once = true, .row = rig_row_number, .user = &number};
    assert_int_equal(sql_call(rig->other, &call, NULL), OK);
    return number;
}

/* All rows twice in one transaction. */
static enum err number_rows(struct conn *conn, int64_t number)
{
    enum err err = sql_begin(conn, NULL, NULL);
    for (int last = 0; !err && last < 2; last++) {
        struct sql_call call = {.text = "UPDATE once_claims SET fingerprint = ?", .n_params = 1};
        call.params[0] = (struct sql_value){.type = SQL_INT, .number = last ? number : -1};
        err = sql_call(conn, &call, NULL);
    }
    if (!err)
        return sql_commit(conn, NULL);
    sql_rollback(conn);
    return err;
}

/* What does not fit into the cache is written before the commit; the commit writes some of it over,
 * and reads it back for its checksums. */
static void a_commit_over_what_was_spilled_is_whole_or_not_there(void **state)
{
    struct rig rig;
    prepare_wide(&rig);
    (void)rig_exec(&rig, "PRAGMA cache_size = 10");
    int64_t there = 77;
    int points = 0;
    for (bool happens = true; happens; points++) {
        disk.fault = DISK_SLIPS;
        disk.happened = false;
        disk.left = 3L * points;
        enum err err = number_rows(rig.conn, 1000 + points);
        disk.left = -1;
        happens = disk.happened;
        assert_int_equal(err != OK, happens);
        there = happens ? there : 1000 + points;
        assert_int_equal(other_number(&rig, "SELECT MIN(fingerprint) FROM once_claims"), there);
        assert_int_equal(other_number(&rig, "SELECT MAX(fingerprint) FROM once_claims"), there);
    }
    assert_true(points > 50);
    assert_intact(&rig);
    rig_disconnect(&rig);
}

static bool work_numbers(struct rig *rig)
{
    (void)rig_exec(rig, "PRAGMA cache_size = 10");
    return number_rows(rig->conn, 2000) == OK;
}

/* Whoever comes next has nothing but the file and its WAL, whose checksums must be right. */
static void a_process_killed_over_what_was_spilled_leaves_all_or_nothing(void **state)
{
    bool killed = true;
    for (long n = 0; killed; n += 29) {
        struct rig rig;
        bool answered;
        prepare_wide(&rig);
        rig_disconnect(&rig);
        killed = killed_at(&rig, n, work_numbers, &answered);
        assert_int_equal(killed, !answered);
        rig_connect(&rig);
        int64_t least = other_number(&rig, "SELECT MIN(fingerprint) FROM once_claims");
        assert_int_equal(other_number(&rig, "SELECT MAX(fingerprint) FROM once_claims"), least);
        assert_true(least == 2000 || (least == 77 && !answered));
        assert_intact(&rig);
        rig_disconnect(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_disk_changes_all_or_nothing),
        cmocka_unit_test(a_process_killed_in_a_batch_leaves_all_or_nothing),
        cmocka_unit_test(a_process_killed_in_a_transaction_has_its_effect_once),
        cmocka_unit_test(a_process_killed_while_it_creates_leaves_a_store_that_opens),
        cmocka_unit_test(a_batch_costs_one_sync),
        cmocka_unit_test(a_commit_is_few_writes_and_one_sync),
        cmocka_unit_test(nothing_is_gathered_on_a_disk_that_harms_neighbours),
        cmocka_unit_test(a_connection_that_a_handler_had_gathers_nothing),
        cmocka_unit_test(a_connection_whose_transaction_was_left_gathers_nothing),
        cmocka_unit_test(a_wal_that_begins_anew_loses_nothing_of_what_was_gathered),
        cmocka_unit_test(a_gathered_write_that_fails_is_the_failure_of_its_commit),
        cmocka_unit_test(a_commit_over_what_was_spilled_is_whole_or_not_there),
        cmocka_unit_test(a_process_killed_over_what_was_spilled_leaves_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
