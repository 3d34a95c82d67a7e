/* transaction_test.c - transactions, places and their connections, on a driver that answers what
 * the test wrote down. Real databases are in tests/once. */
#include "once/once_int.h"
#include "once/sql.h"

#include "base/test.h"

#include <stdio.h>
#include <unistd.h>

/* What the next call of each kind says, and what was called. */
static struct script {
    enum err connect, begin, commit, mark, look, take, call;
    enum op_outcome begin_out, mark_out, look_out;
    uint64_t theirs; /* fingerprint of a mark that is there */
    int state;       /* OP_LOOK */
    int connects, live, begins, commits, rollbacks, marks, healths, calls;
    int begin_fails; /* so many times, then not any more */
    bool sick;
    int64_t epoch, left_ms;
    struct place marked;
    char sql[1000]; /* statements, each with a newline */
    uint64_t changed;
    const char *row; /* what a SELECT gives; NULL: no row */
} s;

static enum err t_open(const struct store_settings *settings, struct store **out, struct fault *why)
{
    (void)why;
    assert_true(settings->transactions);
    *out = (struct store *)(void *)&s;
    return OK;
}

static void t_close(struct store *store)
{
    (void)store;
    assert_int_equal(s.live, 0);
}

static enum err t_connect(struct store *store, struct conn **out, struct fault *why)
{
    (void)store;
    s.connects++;
    if (s.connect != OK)
        return fault_set(why, s.connect, "nobody at home");
    s.live++;
    *out = malloc(1);
    return OK;
}

static void t_disconnect(struct conn *conn)
{
    s.live--;
    free(conn);
}

static bool t_healthy(struct conn *conn)
{
    (void)conn;
    s.healths++;
    return !s.sick;
}

static enum err t_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    (void)conn;
    (void)why;
    for (size_t i = 0; i < n; i++) {
        ops[i]->outcome = OUT_OK;
        ops[i]->state = s.state;
        ops[i]->left_ms = s.left_ms;
        if (ops[i]->kind == OP_SWEEP)
            ops[i]->rows = 0;
    }
    return OK;
}

static enum err t_begin(struct conn *conn, struct op *op, struct fault *why)
{
    (void)conn;
    s.begins++;
    if (s.begin_fails > 0) {
        s.begin_fails--;
        return fault_set(why, ERR_IO, "gone");
    }
    if (s.begin != OK)
        return fault_set(why, s.begin, "no begin");
    if (op) {
        assert_int_equal(op->kind, OP_FINISH);
        op->outcome = s.begin_out;
        if (s.begin_out == OUT_DONE)
            op->fingerprint = s.theirs ? s.theirs : op->fingerprint;
    }
    return OK;
}

static enum err t_commit(struct conn *conn, struct fault *why)
{
    (void)conn;
    s.commits++;
    return s.commit == OK ? OK : fault_set(why, s.commit, "no commit");
}

static void t_rollback(struct conn *conn)
{
    (void)conn;
    s.rollbacks++;
}

static void *t_native(struct conn *conn)
{
    return conn;
}

static enum err t_mark(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                       struct fault *why)
{
    (void)conn;
    s.marks++;
    s.marked = *place;
    *outcome = s.mark_out;
    return s.mark == OK ? OK : fault_set(why, s.mark, "no mark");
}

static enum err t_look(struct conn *conn, const struct place *place, enum op_outcome *outcome,
                       struct fault *why)
{
    (void)conn;
    assert_int_equal(place->epoch, s.epoch);
    *outcome = s.look_out;
    return s.look == OK ? OK : fault_set(why, s.look, "no look");
}

static enum err t_take(struct conn *conn, struct place *place, struct fault *why)
{
    (void)conn;
    if (s.take != OK)
        return fault_set(why, s.take, "no take");
    place->epoch = ++s.epoch;
    place->offset += 100;
    return OK;
}

static enum err t_call(struct conn *conn, struct sql_call *call, struct fault *why)
{
    (void)conn;
    s.calls++;
    size_t n = strlen(s.sql);
    (void)snprintf(s.sql + n, sizeof s.sql - n, "%s\n", call->text);
    if (s.call != OK)
        return fault_set(why, s.call, "no call");
    call->changed = s.changed;
    struct sql_value value = {.type = SQL_TEXT, .bytes = bytes_str(s.row)};
    if (call->row && s.row)
        (void)call->row(call->user, &value, 1);
    return OK;
}

static enum err t_quote(const char *name, char *out, size_t size)
{
    if (!name[0] || strlen(name) + 3 > size || strchr(name, '"'))
        return ERR_INVALID;
    (void)snprintf(out, size, "\"%s\"", name);
    return OK;
}

static const struct once_driver scripted = {
    .name = "scripted",
    .sql = true,
    .open = t_open,
    .close = t_close,
    .connect = t_connect,
    .disconnect = t_disconnect,
    .healthy = t_healthy,
    .run = t_run,
    .begin = t_begin,
    .commit = t_commit,
    .rollback = t_rollback,
    .native = t_native,
    .place_mark = t_mark,
    .place_look = t_look,
    .place_take = t_take,
    .call = t_call,
    .quote = t_quote,
    .for_update = " FOR UPDATE",
};

static const struct once_message message = {.topic = "T",
                                            .keys = "k",
                                            .broker = "b",
                                            .queue = 3,
                                            .offset = 17,
                                            .floor = 9,
                                            .body = "b",
                                            .body_size = 1};

static struct once *opened(int mode)
{
    s = (struct script){.begin_out = OUT_OK, .mark_out = OUT_OK, .look_out = OUT_OK};
    struct once_options o = {.store = "x", .group = "g", .mode = mode, .wait_ms = 50};
    o.connections = 2;
    struct once_parts parts = {.driver = &scripted, .no_keeper = true};
    struct once *once;
    struct once_error why = {0};
    assert_int_equal(once_open_with(&o, &parts, &once, &why), ONCE_OK);
    if (mode == ONCE_OFFSET) {
        int64_t start;
        assert_int_equal(once_queue_take(once, "T", "b", 3, 5, &start, NULL), ONCE_OK);
        assert_int_equal(start, 105);
    }
    return once;
}

static int works(void *user, struct once_run *run)
{
    ++*(int *)user;
    assert_non_null(once_run_connection(run));
    assert_int_equal(once_run_fence(run), 0);
    assert_false(once_run_lost(run));
    return ONCE_DONE;
}

static int fails(void *user, struct once_run *run)
{
    ++*(int *)user;
    (void)run;
    return ONCE_FAILED;
}

static struct once_answer answer;

static void answers(struct once *once, once_handler *handler, int verdict, int cause, int runs)
{
    int n = 0;
    int got = once_do(once, &message, handler, &n, &answer);
    if (got != verdict || answer.cause != cause)
        print_error("verdict %d cause %s: %s\n", got, once_cause_text(answer.cause),
                    answer.why.text);
    assert_int_equal(got, verdict);
    assert_int_equal(answer.cause, cause);
    assert_int_equal(n, runs);
    struct once_stats stats;
    once_stats(once, &stats);
    assert_int_equal(stats.running, 0);
}

static void the_mark_is_committed_with_the_effect(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    assert_int_equal(s.begins, 1);
    assert_int_equal(s.commits, 1);
    answers(once, fails, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    assert_int_equal(s.commits, 1);
    assert_int_equal(s.rollbacks, 1);
    s.begin_out = OUT_DONE;
    answers(once, works, ONCE_ACK, ONCE_DUPLICATE, 0);
    s.theirs = 12345;
    answers(once, works, ONCE_ACK, ONCE_OTHER_BODY, 0);
    s.begin_out = OUT_BUSY;
    answers(once, works, ONCE_LATER, ONCE_RUNNING, 0);
    assert_true(answer.wait_ms > 0);
    once_close(once);
}

static void a_database_in_trouble_is_later_not_failure(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    s.begin = ERR_BUSY;
    answers(once, works, ONCE_LATER, ONCE_CONFLICT, 0);
    s.begin = ERR_STALE;
    answers(once, works, ONCE_LATER, ONCE_EMPTIED, 0);
    s.begin = OK;
    answers(once, works, ONCE_LATER, ONCE_EMPTIED, 0);
    assert_int_equal(once_accept_wiped(once, NULL), ONCE_OK);
    s.commit = ERR_BUSY;
    answers(once, works, ONCE_LATER, ONCE_CONFLICT, 1);
    s.commit = ERR_EXISTS; /* another unique key: the handler's mistake, never a duplicate */
    answers(once, works, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    assert_true(strlen(answer.why.text) > 0);
    s.commit = OK;
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    once_close(once);
}

static void a_commit_without_an_answer_is_looked_up(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    s.commit = ERR_IO;
    s.state = ONCE_CONSUMED;
    s.left_ms = 1000;
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    s.left_ms = 0; /* an old mark, over when this run began: the commit was lost */
    answers(once, works, ONCE_LATER, ONCE_UNSURE, 1);
    s.state = ONCE_ABSENT;
    answers(once, works, ONCE_LATER, ONCE_UNSURE, 1);
    assert_int_equal(s.rollbacks, 0);
    once_close(once);
}

static void dead_connections_are_replaced(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    int connects = s.connects;
    s.begin_fails = 1; /* the idle one */
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    assert_int_equal(s.connects, connects + 1);
    s.begin_fails = 100;
    s.connect = ERR_DENIED;
    answers(once, works, ONCE_LATER, ONCE_DOWN, 0);
    s.begin_fails = 0;
    s.connect = OK;
    (void)usleep(200000);
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    s.sick = true; /* after a roll-back it is looked at */
    answers(once, fails, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    assert_int_equal(s.live, 1); /* the crew's */
    once_close(once);
}

static void there_are_no_more_connections_than_allowed(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    struct once_run *runs[3];
    struct once_message m = message;
    static const char *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        m.keys = keys[i];
        int verdict = once_begin(once, &m, &runs[i], &answer);
        assert_int_equal(verdict, i < 2 ? ONCE_RUN : ONCE_LATER);
    }
    assert_int_equal(answer.cause, ONCE_DOWN);
    assert_int_equal(answer.why.code, ONCE_BUSY);
    assert_int_equal(once_end(runs[0], ONCE_DONE, NULL), ONCE_ACK);
    assert_int_equal(once_begin(once, &m, &runs[2], &answer), ONCE_RUN);
    assert_int_equal(once_end(runs[1], ONCE_DONE, NULL), ONCE_ACK);
    assert_int_equal(once_end(runs[2], ONCE_DONE, NULL), ONCE_ACK);
    struct once_run *two[2];
    struct once_message both[] = {message, message};
    struct once_answer a[2];
    once_begin_all(once, both, 2, two, a);
    assert_null(two[0]);
    assert_int_equal(a[1].why.code, ONCE_MISUSE);
    once_close(once);
}

static void a_key_that_runs_here_never_reaches_the_database(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    struct once_run *run, *other;
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    for (int i = 0; i < 15; i++)
        assert_int_equal(once_begin(once, &message, &other, NULL), ONCE_LATER);
    assert_int_equal(s.begins, 1);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

static void the_place_is_written_right_before_the_commit(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_OFFSET);
    answers(once, works, ONCE_ACK, ONCE_FIRST, 1);
    assert_int_equal(s.marks, 1);
    assert_int_equal(s.marked.offset, 17);
    assert_int_equal(s.marked.floor, 9);
    assert_int_equal(s.marked.epoch, 1);
    answers(once, fails, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    assert_int_equal(s.marks, 1);
    s.look_out = OUT_DONE;
    answers(once, works, ONCE_ACK, ONCE_DUPLICATE, 0);
    s.look_out = OUT_LOST;
    answers(once, works, ONCE_LATER, ONCE_LOST_CLAIM, 0);
    s.look_out = OUT_OK;
    int commits = s.commits;
    s.mark_out = OUT_LOST; /* taken from us while the handler ran */
    answers(once, works, ONCE_LATER, ONCE_LOST_CLAIM, 1);
    s.mark_out = OUT_DONE;
    answers(once, works, ONCE_ACK, ONCE_DUPLICATE, 1);
    s.mark_out = OUT_OK;
    s.mark = ERR_BUSY;
    answers(once, works, ONCE_LATER, ONCE_CONFLICT, 1);
    assert_int_equal(s.commits, commits); /* none of these was committed */
    once_close(once);
}

static void a_queue_that_was_not_taken_is_not_ours(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_OFFSET);
    struct once_message m = message;
    struct once_run *run;
    int64_t start;
    m.queue = 4;
    assert_int_equal(once_begin(once, &m, &run, &answer), ONCE_LATER);
    assert_int_equal(answer.cause, ONCE_LOST_CLAIM);
    assert_non_null(strstr(answer.why.text, "once_queue_take"));
    m = message;
    m.broker = NULL;
    assert_int_equal(once_begin(once, &m, &run, &answer), ONCE_RETRY);
    assert_int_equal(answer.cause, ONCE_NO_KEY);
    s.take = ERR_DENIED;
    assert_int_equal(once_queue_take(once, "T", "b", 4, 0, &start, NULL), ONCE_STORE);
    s.take = OK;
    assert_int_equal(once_queue_take(once, "T", "b", 3, 0, &start, NULL), ONCE_OK);
    assert_int_equal(once_queue_take(once, "T", "b", -1, 0, &start, NULL), ONCE_INVALID);
    assert_int_equal(once_begin(once, &message, &run, &answer), ONCE_RUN); /* with the new epoch */
    assert_string_equal(once_run_key(run), "T@b:3:17");
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

/* ---- guards ---- */

static const char *const beyond[] = {"shipped", NULL};
static const struct once_state_guard paid = {"shop.orders", "id",   "7",   "status",
                                             "new",         "paid", beyond};

static void guard_says(struct once_run *run, uint64_t changed, const char *row, int wanted)
{
    int out = -1;
    s.changed = changed;
    s.row = row;
    s.sql[0] = 0;
    assert_int_equal(once_guard_state(run, &paid, &out, NULL), ONCE_OK);
    assert_int_equal(out, wanted);
}

static void a_guard_tells_done_from_too_early(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    struct once_run *run;
    int out;
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    guard_says(run, 1, NULL, ONCE_APPLIED);
    assert_string_equal(s.sql, "UPDATE \"shop.orders\" SET \"status\" = ? WHERE \"id\" = ? AND "
                               "\"status\" = ?\n");
    guard_says(run, 0, "paid", ONCE_ALREADY);
    assert_non_null(strstr(s.sql, "SELECT \"status\" FROM \"shop.orders\" WHERE \"id\" = ? FOR "
                                  "UPDATE\n"));
    guard_says(run, 0, "shipped", ONCE_ALREADY);
    guard_says(run, 0, "draft", ONCE_NOT_YET);
    guard_says(run, 0, NULL, ONCE_NOT_YET); /* "paid" before "created" */
    const struct once_version_guard seven = {"t", "id", "7", "v", 7};
    s.changed = 0;
    static const struct {
        const char *row;
        int wanted;
    } versions[] = {{"8", ONCE_ALREADY},
                    {"7", ONCE_NOT_YET},
                    {"6", ONCE_NOT_YET},
                    {"x", ONCE_NOT_YET},
                    {NULL, ONCE_NOT_YET}};
    for (size_t i = 0; i < 5; i++) {
        s.row = versions[i].row;
        assert_int_equal(once_guard_version(run, &seven, &out, NULL), ONCE_OK);
        assert_int_equal(out, versions[i].wanted);
    }
    s.row = "7";
    assert_int_equal(once_guard_lock(run, "t", "id", "7", &out, NULL), ONCE_OK);
    assert_int_equal(out, ONCE_APPLIED);
    s.row = NULL;
    assert_int_equal(once_guard_lock(run, "t", "id", "7", &out, NULL), ONCE_OK);
    assert_int_equal(out, ONCE_NOT_YET);
    assert_int_equal(once_guard_lock(run, "t\"; DROP", "id", "7", &out, NULL), ONCE_INVALID);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

static int guard_and_go_on(void *user, struct once_run *run)
{
    int out;
    struct once_error why;
    ++*(int *)user;
    (void)once_guard_state(run, &paid, &out, &why);
    assert_int_equal(once_guard_state(run, &paid, &out, &why), ONCE_MISUSE); /* and none more */
    return ONCE_DONE; /* though the guard failed */
}

static void a_statement_that_failed_is_never_committed(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    s.call = ERR_BUSY;
    answers(once, guard_and_go_on, ONCE_LATER, ONCE_CONFLICT, 1);
    s.call = ERR_INVALID;
    answers(once, guard_and_go_on, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    s.call = OK;
    s.changed = 2; /* the column names no single row */
    answers(once, guard_and_go_on, ONCE_RETRY, ONCE_FAILED_RUN, 1);
    assert_int_equal(s.commits, 0);
    once_close(once);
}

static void what_goes_to_the_outbox_is_checked(void **state)
{
    (void)state;
    struct once *once = opened(ONCE_TRANSACTION);
    struct once_run *run;
    struct once_error why;
    assert_int_equal(once_begin(once, &message, &run, NULL), ONCE_RUN);
    assert_int_equal(once_outbox_add(run, &message, &why), ONCE_OK);
    assert_string_equal(s.sql, "INSERT INTO \"once_outbox\" (id, message) VALUES (?, ?)\n");
    struct once_message big = message;
    big.body_size = OUTBOX_MESSAGE_MAX;
    assert_int_equal(once_outbox_add(run, &big, &why), ONCE_INVALID);
    assert_int_equal(s.calls, 1);
    assert_int_equal(once_end(run, ONCE_DONE, NULL), ONCE_ACK);
    once_close(once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_row("ID-8", the_mark_is_committed_with_the_effect),
        test_of_row("H-19 H-21", a_database_in_trouble_is_later_not_failure),
        cmocka_unit_test(a_commit_without_an_answer_is_looked_up),
        cmocka_unit_test(dead_connections_are_replaced),
        test_of_row("ID-26", there_are_no_more_connections_than_allowed),
        test_of_row("H-21", a_key_that_runs_here_never_reaches_the_database),
        test_of_row("H-29", the_place_is_written_right_before_the_commit),
        test_of_row("H-29", a_queue_that_was_not_taken_is_not_ours),
        test_of_row("H-20", a_guard_tells_done_from_too_early),
        cmocka_unit_test(a_statement_that_failed_is_never_committed),
        cmocka_unit_test(what_goes_to_the_outbox_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
