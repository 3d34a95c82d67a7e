/* The engine on SQLite: files, wrong and removed and damaged ones, processes that share one, what a
 * commit costs, and the SQL that docs/once-sql.md shows. */
#include "once/sql_folder_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

extern const struct once_driver once_driver_sqlite;

/* ---- opening ---- */

static enum err open_url(const char *url, struct fault *why)
{
    struct store_settings settings = {.url = url, .table = "once", .wait_ms = 100, .log = rig_log};
    struct store *store;
    *why = (struct fault){0};
    enum err err = once_driver_sqlite.open(&settings, &store, why);
    if (!err)
        once_driver_sqlite.close(store);
    return err;
}

static void assert_refused(const char *url, enum err err, const char *words)
{
    struct fault why;
    assert_int_equal(open_url(url, &why), err);
    if (!strstr(why.text, words))
        fail_msg("%s: %s", url, why.text);
}

static void wrong_urls_are_told_what_is_right(void **state)
{
    assert_refused("sqlite:", ERR_INVALID, "sqlite:once.db");
    assert_refused("sqlite::memory:", ERR_INVALID, "use memory:");
    assert_refused("sqlite://host/file", ERR_INVALID, "no host");
    assert_refused("redis://host", ERR_INVALID, "sqlite:FILE");
    static char longest[6000] = "sqlite:/";
    memset(longest + 8, 'x', sizeof longest - 9);
    assert_refused(longest, ERR_INVALID, "too long");
}

static void files_that_cannot_be_opened_are_told(void **state)
{
    char url[400];
    (void)snprintf(url, sizeof url, "sqlite:%s/no/such/folder.db", folder);
    assert_refused(url, ERR_IO, "No such file or directory");
    (void)snprintf(url, sizeof url, "sqlite:%s", folder);
    assert_refused(url, ERR_IO, folder);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
}

static void a_file_that_is_no_database_is_left_as_it_is(void **state)
{
    struct rig rig = {0};
    rig_settings(&rig);
    const char *words =
        "This is a shopping list, and it is long enough to be looked at: milk, eggs.";
    write_file(rig_path(&rig), words);
    assert_refused(rig.url, ERR_DAMAGED, "not one of SQLite's");
    struct stat st;
    assert_int_equal(stat(rig_path(&rig), &st), 0);
    assert_int_equal(st.st_size, (off_t)strlen(words));
}

/* Names that mean something to SQLite are files here, relative ones too. */
static void odd_names_are_files(void **state)
{
    char here[400];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    static const char *const names[] = {"file:x?mode=memory", ":odd", "a b%20'\".db"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char url[100];
        struct fault why;
        (void)snprintf(url, sizeof url, "sqlite:%s", names[i]);
        assert_int_equal(open_url(url, &why), OK);
        assert_int_equal(access(names[i], F_OK), 0);
    }
    assert_int_equal(chdir(here), 0);
}

/* Connections that are made later are to the same file, though the program has moved. */
static void a_relative_path_is_one_file_for_ever(void **state)
{
    char here[400];
    assert_non_null(getcwd(here, sizeof here));
    struct store_settings settings = {
        .url = "sqlite:relative.db", .table = "once", .wait_ms = 100, .log = rig_log};
    struct store *store;
    struct conn *conn;
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(once_driver_sqlite.open(&settings, &store, NULL), OK);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(sql_connect(store, &conn, NULL), OK);
    assert_int_equal(ask(conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_not_equal(access("relative.db", F_OK), 0);
    sql_disconnect(conn);
    sql_close(store);
}

/* In a child, as somebody who may only read it. */
static void a_file_that_can_only_be_read_is_told(void **state)
{
    struct rig rig;
    rig_open(&rig);
    rig_disconnect(&rig);
    assert_int_equal(chmod(rig_path(&rig), 0444), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        struct fault why;
        if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(9);
        enum err err = open_url(rig.url, &why);
        if (err == ERR_IO || err == ERR_DENIED)
            _exit(2); /* the folder of the tests itself is closed to others */
        _exit(err == ERR_READ_ONLY && strstr(why.text, "can only be read") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(chmod(folder, 0700), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        return; /* for this user nothing is read-only */
    assert_int_equal(status, 0);
}

static void a_store_is_in_wal_mode_with_full_syncs(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(rig_number(&rig, "PRAGMA synchronous"), 2);
    sqlite3_stmt *stmt;
    sqlite3 *db = sql_native(rig.conn);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "wal");
    (void)sqlite3_finalize(stmt);
    rig_disconnect(&rig);
}

/* Whatever the application has made the default for its own connections. */
static void readers_wait_for_no_writer_where_caches_are_shared(void **state)
{
    struct rig rig;
    struct op mark = op_of(OP_FINISH, 1, 10);
    assert_int_equal(sqlite3_enable_shared_cache(1), SQLITE_OK);
    rig_open(&rig);
    assert_int_equal(sql_begin(rig.conn, &mark, NULL), OK);
    assert_int_equal(mark.outcome, OUT_OK);
    assert_int_equal(state_of(rig.other, 1), ONCE_ABSENT);
    assert_int_equal(sql_commit(rig.conn, NULL), OK);
    assert_int_equal(state_of(rig.other, 1), ONCE_CONSUMED);
    rig_disconnect(&rig);
    assert_int_equal(sqlite3_enable_shared_cache(0), SQLITE_OK);
}

/* Beside the machine's clock: a millisecond is one. */
static void the_clock_counts_milliseconds_since_1970(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < 100; i++) {
        struct timespec before, after;
        (void)clock_gettime(CLOCK_REALTIME, &before);
        int64_t now_ms = rig_number(&rig, "SELECT {now}");
        (void)clock_gettime(CLOCK_REALTIME, &after);
        assert_true(now_ms >= before.tv_sec * 1000 + before.tv_nsec / 1000000 - 1);
        assert_true(now_ms <= after.tv_sec * 1000 + after.tv_nsec / 1000000 + 1);
    }
    rig_disconnect(&rig);
}

static bool row_plan(void *user, const struct sql_value *columns, size_t n)
{
    char detail[200];
    (void)snprintf(detail, sizeof detail, "%.*s", BYTES_ARG(columns[n - 1].bytes));
    *(bool *)user |= strstr(detail, "once_claims_keep") != NULL;
    return true;
}

static void a_sweep_goes_by_its_index(void **state)
{
    struct rig rig;
    rig_open(&rig);
    bool indexed = false;
    struct sql_call call = {.text = "EXPLAIN QUERY PLAN SELECT id FROM once_claims WHERE keep_ms "
                                    "<= 5 ORDER BY keep_ms LIMIT 9",
                            .once = true,
                            .row = row_plan,
                            .user = &indexed};
    assert_int_equal(sql_call(rig.conn, &call, NULL), OK);
    assert_true(indexed);
    rig_disconnect(&rig);
}

/* ---- what a commit is ---- */

static int count_commit(void *user)
{
    ++*(int *)user;
    return 0;
}

static void a_batch_is_one_commit_and_a_batch_of_looks_none(void **state)
{
    struct rig rig;
    rig_open(&rig);
    int commits = 0;
    (void)sqlite3_commit_hook(sql_native(rig.conn), count_commit, &commits);
    static struct op ops[64];
    struct op *list[64];
    for (int i = 0; i < 64; i++) {
        ops[i] = op_of(OP_CLAIM, i, 10);
        list[i] = &ops[i];
    }
    assert_int_equal(sql_run(rig.conn, list, 64, NULL), OK);
    assert_int_equal(commits, 1);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(ops[i].outcome, OUT_OK);
        ops[i].kind = i % 2 ? OP_FINISH : OP_RENEW;
        ops[i].expiry_ms++;
    }
    assert_int_equal(sql_run(rig.conn, list, 64, NULL), OK);
    assert_int_equal(commits, 2);
    for (int i = 0; i < 64; i++)
        ops[i].kind = OP_LOOK;
    assert_int_equal(sql_run(rig.conn, list, 64, NULL), OK);
    assert_int_equal(commits, 2);
    (void)sqlite3_commit_hook(sql_native(rig.conn), NULL, NULL);
    rig_disconnect(&rig);
}

static int see_pages(void *user, sqlite3 *db, const char *name, int pages)
{
    *(int *)user = pages;
    return SQLITE_OK;
}

static void run_all(struct conn *conn, struct op *ops, enum op_kind kind, int from, int n)
{
    struct op *list[ONCE_OPS_MAX] = {0};
    for (int i = 0; i < n; i++) {
        ops[i] = op_of(kind, (from + i) * 7919, 10); /* anywhere among the ids */
        ops[i].expiry_ms = ops[i].retention_ms / 1000;
        list[i] = &ops[i];
    }
    assert_int_equal(sql_run(conn, list, (size_t)n, NULL), OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(ops[i].outcome, OUT_OK);
}

/* Pages are what a batch costs. 64 rows that were claimed last stand on two or three of them,
 * however far apart their ids are. */
static void a_batch_of_finishes_touches_few_pages(void **state)
{
    struct rig rig;
    static struct op ops[ONCE_OPS_MAX];
    int pages = 0;
    rig_open(&rig);
    (void)sqlite3_wal_hook(sql_native(rig.conn), see_pages, &pages);
    for (int from = 0; from < 40 * 64; from += 64)
        run_all(rig.conn, ops, OP_CLAIM, from, 64);
    int before = pages;
    run_all(rig.conn, ops, OP_FINISH, 39 * 64, 64);
    assert_in_range(pages - before, 1, 6);
    rig_disconnect(&rig);
}

/* A file whose claims stand in the order of their ids, as all did once. */
static void a_file_of_an_older_form_goes_on(void **state)
{
    struct rig rig;
    static struct op ops[ONCE_OPS_MAX];
    rig_open(&rig);
    (void)rig_exec(&rig, "DROP TABLE {claims}");
    (void)rig_exec(&rig, "CREATE TABLE {claims} (id BLOB NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
                         "state INTEGER NOT NULL, token INTEGER NOT NULL, fence INTEGER NOT NULL, "
                         "until_ms INTEGER NOT NULL, keep_ms INTEGER NOT NULL, fingerprint INTEGER "
                         "NOT NULL) WITHOUT ROWID");
    rig_disconnect(&rig);
    rig_connect(&rig);
    run_all(rig.conn, ops, OP_CLAIM, 0, 64);
    run_all(rig.conn, ops, OP_FINISH, 0, 64);
    assert_int_equal(rig_number(&rig, "SELECT count(*) FROM {claims} WHERE state = 2"), 64);
    rig_disconnect(&rig);
}

/* A handler forgot a SELECT in the middle, and set a time-out of its own. The connection is as good
 * as new after that. */
static void what_a_handler_leaves_open_harms_nobody(void **state)
{
    for (int end = 0; end < 2; end++) {
        struct rig rig;
        rig_open(&rig);
        sqlite3 *db = sql_native(rig.conn);
        sqlite3_stmt *stmt;
        assert_int_equal(sql_begin(rig.conn, NULL, NULL), OK);
        (void)sqlite3_busy_timeout(db, 0);
        const char *text = "SELECT 1 UNION SELECT number FROM once_birth";
        assert_int_equal(sqlite3_prepare_v2(db, text, -1, &stmt, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
        if (end)
            assert_int_equal(sql_commit(rig.conn, NULL), OK);
        else
            sql_rollback(rig.conn);
        assert_int_equal(ask(rig.other, OP_CLAIM, 1, 10), OUT_OK);
        assert_int_equal(ask(rig.conn, OP_CLAIM, 2, 20), OUT_OK);
        (void)sqlite3_finalize(stmt);
        rig_disconnect(&rig);
    }
}

/* A handler ends the transaction, or SQLite did when the disk was full, and writes on: nothing of
 * it is kept, with the mark or without, and nothing is taken for done. */
static void a_transaction_that_was_ended_by_the_handler_is_not_committed(void **state)
{
    static const char *const ends[] = {"COMMIT", "ROLLBACK", "ROLLBACK; BEGIN"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct rig rig;
        rig_open(&rig);
        (void)rig_exec(&rig, "CREATE TABLE {plain} (n INTEGER)");
        struct op op = op_of(OP_FINISH, 1, 10);
        struct fault why = {0};
        sqlite3 *db = sql_native(rig.conn);
        assert_int_equal(sql_begin(rig.conn, &op, NULL), OK);
        (void)sqlite3_exec(db, "INSERT INTO once VALUES (1)", NULL, NULL, NULL);
        (void)sqlite3_exec(db, ends[i], NULL, NULL, NULL);
        (void)sqlite3_exec(db, "INSERT INTO once VALUES (2)", NULL, NULL, NULL);
        assert_int_equal(sql_commit(rig.conn, &why), ERR_INVALID);
        assert_non_null(strstr(why.text, "over before its commit"));
        assert_int_equal(state_of(rig.other, 1), ONCE_ABSENT);
        assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 0);
        assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 20), OUT_OK); /* the connection is good */
        rig_disconnect(&rig);
    }
}

static void another_writer_is_waited_for_and_then_told(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(sql_begin(rig.other, NULL, NULL), OK);
    struct fault why = {0};
    struct op op = op_of(OP_CLAIM, 1, 10);
    assert_int_equal(run_of(rig.conn, &op, &why), ERR_BUSY);
    assert_int_equal(op.outcome, OUT_NONE);
    assert_non_null(strstr(why.text, "wait_ms"));
    assert_int_equal(state_of(rig.conn, 1), ONCE_ABSENT); /* to look is possible */
    struct place place = {.offset = 1};
    assert_int_equal(sql_place_take(rig.conn, &place, &why), ERR_BUSY);
    sql_rollback(rig.other);
    assert_int_equal(run_of(rig.conn, &op, &why), OK);
    assert_int_equal(op.outcome, OUT_OK);
    assert_true(sql_healthy(rig.conn));
    rig_disconnect(&rig);
}

/* ---- removed, replaced and damaged files ---- */

static void a_removed_file_is_an_emptied_store(void **state)
{
    struct rig rig;
    rig_open(&rig);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 10), OUT_OK);
    assert_int_equal(unlink(rig_path(&rig)), 0);
    struct fault why = {0};
    struct op op = op_of(OP_CLAIM, 1, 20), look = op_of(OP_LOOK, 1, 1);
    assert_int_equal(run_of(rig.other, &op, &why), ERR_STALE);
    assert_non_null(strstr(why.text, "removed or replaced"));
    assert_int_equal(run_of(rig.conn, &look, &why), ERR_STALE);
    assert_int_equal(sql_begin(rig.conn, NULL, &why), ERR_STALE);

    struct conn *fresh; /* a new connection finds another file, and is not fooled by it */
    assert_int_equal(sql_connect(rig.store, &fresh, &why), OK);
    assert_int_equal(run_of(fresh, &op, &why), ERR_STALE);

    assert_int_equal(sql_accept(rig.store, fresh, &why), OK);
    assert_int_equal(run_of(fresh, &op, &why), OK);
    assert_int_equal(op.outcome, OUT_OK);
    assert_int_equal(ask(rig.conn, OP_CLAIM, 1, 30), OUT_BUSY); /* all see the new one */
    assert_int_equal(ask(rig.other, OP_CLAIM, 1, 30), OUT_BUSY);
    sql_disconnect(fresh);
    rig_disconnect(&rig);
}

/* Each page of a filled file is overwritten in turn: never a crash, never another's claim; either
 * the damage is told, or the row is as it was. */
static void a_damaged_file_is_told_or_harmless(void **state)
{
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask(rig.conn, OP_CLAIM, i, 10), OUT_OK);
    rig_disconnect(&rig); /* the WAL is in the file now */
    struct stat st;
    assert_int_equal(stat(rig_path(&rig), &st), 0);
    cleanup(free_at) char *whole = malloc((size_t)st.st_size);
    cleanup(close_at) int fd = open(rig_path(&rig), O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, whole, (size_t)st.st_size, 0), st.st_size);
    int told = 0;
    for (off_t page = 0; page < st.st_size; page += 4096) {
        char junk[4096];
        memset(junk, 0xa5, sizeof junk);
        assert_int_equal(pwrite(fd, junk, sizeof junk, page), (ssize_t)sizeof junk);
        struct fault why = {0};
        struct store *store = NULL;
        struct conn *conn = NULL;
        enum err err = sql_open(rig.engine, &rig.settings, &store, &why);
        if (!err)
            err = sql_connect(store, &conn, &why);
        for (int i = 0; !err && i < 60; i++) {
            struct op op = op_of(OP_CLAIM, i, 20);
            err = run_of(conn, &op, &why);
            assert_true(err || op.outcome == OUT_BUSY || op.outcome == OUT_FAILED);
        }
        told += err != OK;
        if (err)
            assert_int_not_equal(strlen(why.text), 0);
        if (conn)
            sql_disconnect(conn);
        if (store)
            sql_close(store);
        assert_int_equal(pwrite(fd, whole, (size_t)st.st_size, 0), st.st_size);
    }
    assert_true(told >= 3); /* the header, the schema, the claims */
}

static void a_full_disk_is_told_and_survived(void **state)
{
    struct rig rig;
    rig_open(&rig);
    rig_disconnect(&rig); /* SQLite does not live on in a child */
    pid_t pid = fork_child();
    if (pid == 0) { /* the limit is a process's own */
        struct rlimit limit = {200 << 10, RLIM_INFINITY};
        struct fault why = {0};
        (void)signal(SIGXFSZ, SIG_IGN);
        rig_connect(&rig);
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        enum err err = OK;
        int done = 0;
        for (; !err && done < 2000; done++) {
            struct op op = op_of(OP_CLAIM, done, 10);
            err = run_of(rig.conn, &op, &why);
        }
        bool told = err == ERR_DISK_FULL && strstr(why.text, "make room");
        limit.rlim_cur = RLIM_INFINITY;
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        for (int i = 0; i < done - 1; i++)
            told = told && ask(rig.other, OP_CLAIM, i, 20) == OUT_BUSY;
        told = told && ask(rig.conn, OP_CLAIM, done - 1, 20) == OUT_OK;
        if (!told)
            print_error("after %d: %s: %s\n", done, err_text(err), why.text);
        _exit(told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- processes ---- */

/* Six processes open a file that is not there yet, and claim the same keys: one gets each. */
static void processes_that_begin_at_once_share_the_keys(void **state)
{
    enum { PROCESSES = 6, KEYS = 60 };
    struct rig rig = {.settings = {.create = true, .wait_ms = 20000, .log = rig_log}};
    rig_settings(&rig);
    rig.settings.url = rig.url;
    rig.settings.table = rig.table;
    (void)unlink(rig_path(&rig));
    int begin[2], end[2];
    assert_int_equal(pipe(begin) | pipe(end), 0);
    pid_t pids[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        pids[p] = fork_child();
        if (pids[p] != 0)
            continue;
        char byte;
        (void)close(begin[1]);
        (void)!read(begin[0], &byte, 1); /* until the parent closes its end */
        rig_connect(&rig);
        uint8_t got[KEYS];
        for (int i = 0; i < KEYS; i++)
            got[i] = ask(rig.conn, OP_CLAIM, i, 10 + (uint64_t)p) == OUT_OK;
        _exit(write(end[1], got, sizeof got) == (ssize_t)sizeof got ? 0 : 1);
    }
    (void)close(begin[0]);
    (void)close(begin[1]);
    int sums[KEYS] = {0};
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        uint8_t got[KEYS];
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        assert_int_equal(status, 0);
        assert_int_equal(read(end[0], got, sizeof got), (ssize_t)sizeof got);
        for (int i = 0; i < KEYS; i++)
            sums[i] += got[i];
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(sums[i], 1);
    (void)close(end[0]);
    (void)close(end[1]);
}

/* A child that claims and then waits to be killed. */
static pid_t claim_in_child(struct rig *rig, uint32_t instance, bool takeover)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork_child();
    if (pid == 0) {
        rig->settings.takeover = takeover;
        rig_connect(rig);
        struct op op = op_of(OP_CLAIM, (int)instance, (uint64_t)instance << 32 | 1);
        op.takeover = takeover;
        (void)!write(ready[1], do_op(rig->conn, &op) == OUT_OK ? "y" : "n", 1);
        for (;;)
            (void)pause();
    }
    char byte = 0;
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    (void)close(ready[0]);
    return pid;
}

static void kill_child(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static enum op_outcome take_from(struct rig *rig, uint32_t instance)
{
    struct op op = op_of(OP_CLAIM, (int)instance, (uint64_t)1 << 32 | 5);
    op.takeover = true;
    return do_op(rig->conn, &op);
}

static void the_claim_of_a_dead_process_is_taken_at_once(void **state)
{
    struct rig rig;
    rig_open(&rig);
    rig_disconnect(&rig);
    pid_t watched = claim_in_child(&rig, 7, true), other = claim_in_child(&rig, 0xfffffff9u, true);
    rig.settings.takeover = true;
    rig_connect(&rig);
    assert_int_equal(take_from(&rig, 7), OUT_BUSY);
    assert_int_equal(take_from(&rig, 0xfffffff9u), OUT_BUSY);
    kill_child(watched);
    assert_int_equal(take_from(&rig, 0xfffffff9u), OUT_BUSY); /* that one lives */
    assert_int_equal(take_from(&rig, 7), OUT_OK);
    kill_child(other);
    struct op op = op_of(OP_CLAIM, (int)0xfffffff9u, (uint64_t)1 << 32 | 6);
    assert_int_equal(do_op(rig.conn, &op), OUT_BUSY); /* nobody asked for a takeover */
    assert_int_equal(take_from(&rig, 0xfffffff9u), OUT_OK);
    rig_disconnect(&rig);
}

/* Of a process that does not take part nobody can say whether it lives. */
static void a_claim_without_a_sign_of_life_is_left_alone(void **state)
{
    struct rig rig;
    rig_open(&rig);
    rig_disconnect(&rig);
    pid_t pid = claim_in_child(&rig, 7, false);
    rig.settings.takeover = true;
    rig_connect(&rig);
    assert_int_equal(take_from(&rig, 7), OUT_BUSY);
    kill_child(pid);
    assert_int_equal(take_from(&rig, 7), OUT_BUSY);
    rig_disconnect(&rig);
}

/* ---- the manual ---- */

/* docs/once-sql.md has the very statements that are run, in their order. */
static void the_manual_has_the_sql_that_is_run(void **state)
{
    int fd = open(ONCE_SQL_MANUAL, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    static char manual[64 << 10];
    ssize_t size = read(fd, manual, sizeof manual - 1);
    assert_true(size > 0);
    (void)close(fd);
    const char *at = strstr(manual, "## SQLite");
    assert_non_null(at);
    for (const char *const *text = sql_engine_sqlite.create; *text; text++) {
        cleanup(free_at) char *whole = sql_text(&sql_engine_sqlite, "once", *text);
        at = strstr(at, whole);
        if (!at)
            fail_msg("docs/once-sql.md has not, in its place: %s", whole);
        at += strlen(whole);
        assert_int_equal(*at, ';');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_urls_are_told_what_is_right),
        cmocka_unit_test(files_that_cannot_be_opened_are_told),
        cmocka_unit_test(a_file_that_is_no_database_is_left_as_it_is),
        cmocka_unit_test(odd_names_are_files),
        cmocka_unit_test(a_relative_path_is_one_file_for_ever),
        cmocka_unit_test(a_file_that_can_only_be_read_is_told),
        cmocka_unit_test(a_store_is_in_wal_mode_with_full_syncs),
        cmocka_unit_test(readers_wait_for_no_writer_where_caches_are_shared),
        test_of_row("H-22", the_clock_counts_milliseconds_since_1970),
        test_of_row("H-33", a_sweep_goes_by_its_index),
        cmocka_unit_test(a_batch_is_one_commit_and_a_batch_of_looks_none),
        cmocka_unit_test(a_batch_of_finishes_touches_few_pages),
        cmocka_unit_test(a_file_of_an_older_form_goes_on),
        cmocka_unit_test(a_transaction_that_was_ended_by_the_handler_is_not_committed),
        cmocka_unit_test(what_a_handler_leaves_open_harms_nobody),
        cmocka_unit_test(another_writer_is_waited_for_and_then_told),
        test_of_row("H-13", a_removed_file_is_an_emptied_store),
        cmocka_unit_test(a_damaged_file_is_told_or_harmless),
        cmocka_unit_test(a_full_disk_is_told_and_survived),
        cmocka_unit_test(processes_that_begin_at_once_share_the_keys),
        test_of_row("H-24", the_claim_of_a_dead_process_is_taken_at_once),
        cmocka_unit_test(a_claim_without_a_sign_of_life_is_left_alone),
        cmocka_unit_test(the_manual_has_the_sql_that_is_run),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
