/* What is in the handler's own transaction. */
#include "suite.h"

#include <stdio.h>
#include <string.h>

static void a_failure_leaves_neither_mark_nor_effect(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig), .result = ONCE_FAILED};
    struct once_look look;
    assert_int_equal(deliver(once, "k", &work).verdict, ONCE_RETRY);
    assert_int_equal(effects_of(rig, &work), 0);
    assert_int_equal(once_look(once, "k", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_ABSENT);
    once_close(once);
}

static void a_conflict_of_another_unique_key_is_a_failure(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    char sql[200];
    const char *scope = scope_new(rig);
    (void)snprintf(sql, sizeof sql, "INSERT INTO names VALUES ('%s')", scope);
    business_do(rig->url, "%s", sql);
    struct work work = {.rig = rig, .key = scope, .sql = sql};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(deliver(once, "k", &work).verdict, ONCE_RETRY);
    assert_int_equal(effects_of(rig, &work), 0);
    business_do(rig->url, "DELETE FROM names WHERE u = '%s'", scope);
    assert_int_equal(deliver(once, "k", &work).verdict, ONCE_ACK);
    assert_int_equal(effects_of(rig, &work), 1);
    once_close(once);
}

/* A handler whose work was committed and that says "failed" the next time is not asked again. */
static void the_effect_and_its_mark_are_one(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig)};
    struct once_look look;
    assert_int_equal(deliver(once, "k", &work).cause, ONCE_FIRST);
    assert_int_equal(once_look(once, "k", 1, &look, NULL), ONCE_OK);
    assert_int_equal(look.state, ONCE_CONSUMED);
    work.result = ONCE_FAILED;
    assert_int_equal(deliver(once, "k", &work).cause, ONCE_DUPLICATE);
    assert_int_equal(effects_of(rig, &work), 1);
    once_close(once);
}

/* ---- many copies of many keys ---- */

struct storm {
    const struct rig *rig;
    struct once *once[2];
    char scope[80];
    _Atomic unsigned next;
};

#define STORM_KEYS   40
#define STORM_COPIES 4

static void *storm_thread(void *user)
{
    struct storm *storm = user;
    for (;;) {
        unsigned i = atomic_fetch_add(&storm->next, 1);
        if (i >= STORM_KEYS * STORM_COPIES)
            return NULL;
        char key[120];
        (void)snprintf(key, sizeof key, "%s-%u", storm->scope, i / STORM_COPIES);
        struct work work = {.rig = storm->rig, .key = key};
        (void)deliver_until_done(storm->once[i % 2], key, &work);
    }
}

static void copies_at_once_are_one_effect_and_no_error(void **state)
{
    const struct rig *rig = *state;
    struct storm storm = {.rig = rig};
    struct once_stats stats[2];
    (void)snprintf(storm.scope, sizeof storm.scope, "%s", scope_new(rig));
    for (size_t i = 0; i < 2; i++)
        storm.once[i] = rig_open(rig, (struct once_options){.group = storm.scope});
    threads_run(16, storm_thread, &storm);
    assert_int_equal(
        business_number(rig->url, "SELECT COUNT(*) FROM effects WHERE k LIKE '%s-%%'", storm.scope),
        STORM_KEYS);
    for (size_t i = 0; i < 2; i++)
        once_stats(storm.once[i], &stats[i]);
    assert_int_equal(stats[0].first_runs + stats[1].first_runs, STORM_KEYS);
    assert_int_equal(stats[0].released + stats[1].released, 0); /* no handler was told to fail */
    for (size_t i = 0; i < 2; i++)
        once_close(storm.once[i]);
}

/* Not ours: what the usual recipe does, kept here to show why it is not enough. */
static void to_look_and_then_to_insert_is_not_enough(void **state)
{
    const struct rig *rig = *state;
    const char *key = scope_new(rig);
    bool seen[2];
    for (size_t i = 0; i < 2; i++) /* two consumers of the same message, at the same time */
        seen[i] = business_number(rig->url, "SELECT COUNT(*) FROM effects WHERE k = '%s'", key) > 0;
    for (size_t i = 0; i < 2; i++)
        if (!seen[i])
            business_do(rig->url, "INSERT INTO effects VALUES ('%s')", key);
    assert_int_equal(business_number(rig->url, "SELECT COUNT(*) FROM effects WHERE k = '%s'", key),
                     2);
}

/* ---- guards ---- */

struct guarded {
    const struct rig *rig;
    const char *order;
    int guard; /* which: 0 state, 1 version, 2 lock */
    const char *from, *to;
    int64_t version;
    int found;
};

static int guard_handler(void *user, struct once_run *run)
{
    struct guarded *g = user;
    struct once_error why = {0};
    const char *const beyond[] = {"shipped", NULL};
    struct once_state_guard state = {.table = "orders",
                                     .key_column = "id",
                                     .key = g->order,
                                     .state_column = "status",
                                     .from = g->from,
                                     .to = g->to,
                                     .beyond = beyond};
    struct once_version_guard version = {.table = "orders",
                                         .key_column = "id",
                                         .key = g->order,
                                         .version_column = "version",
                                         .expected = g->version};
    int err = g->guard == 0   ? once_guard_state(run, &state, &g->found, &why)
              : g->guard == 1 ? once_guard_version(run, &version, &g->found, &why)
                              : once_guard_lock(run, "orders", "id", g->order, &g->found, &why);
    if (err)
        fail_msg("%s", why.text);
    return g->found == ONCE_NOT_YET ? ONCE_FAILED : ONCE_DONE;
}

static int guard(struct once *once, const char *key, struct guarded *g)
{
    struct once_message m = message_of(key);
    struct once_answer answer;
    return once_do(once, &m, guard_handler, g, &answer);
}

static void a_state_moves_on_once(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct guarded g = {.rig = rig, .order = scope_new(rig), .from = "unpaid", .to = "paid"};
    /* H-20: "paid" before "created" is no duplicate. */
    assert_int_equal(guard(once, "1", &g), ONCE_RETRY);
    assert_int_equal(g.found, ONCE_NOT_YET);
    business_do(rig->url, "INSERT INTO orders VALUES ('%s', 'new', 7)", g.order);
    assert_int_equal(guard(once, "1", &g), ONCE_RETRY);
    business_do(rig->url, "UPDATE orders SET status = 'unpaid' WHERE id = '%s'", g.order);
    assert_int_equal(guard(once, "1", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_APPLIED);
    assert_int_equal(guard(once, "2", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_ALREADY);
    business_do(rig->url, "UPDATE orders SET status = 'shipped' WHERE id = '%s'", g.order);
    assert_int_equal(guard(once, "3", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_ALREADY);
    once_close(once);
}

static void a_version_is_taken_once(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct guarded g = {.rig = rig, .order = scope_new(rig), .guard = 1, .version = 7};
    assert_int_equal(guard(once, "1", &g), ONCE_RETRY);
    business_do(rig->url, "INSERT INTO orders VALUES ('%s', 'new', 7)", g.order);
    assert_int_equal(guard(once, "1", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_APPLIED);
    assert_int_equal(guard(once, "2", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_ALREADY);
    assert_int_equal(
        business_number(rig->url, "SELECT version FROM orders WHERE id = '%s'", g.order), 8);
    g.version = 9;
    assert_int_equal(guard(once, "3", &g), ONCE_RETRY);
    assert_int_equal(g.found, ONCE_NOT_YET);
    once_close(once);
}

static void a_row_that_is_there_can_be_locked(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct guarded g = {.rig = rig, .order = scope_new(rig), .guard = 2};
    assert_int_equal(guard(once, "1", &g), ONCE_RETRY);
    assert_int_equal(g.found, ONCE_NOT_YET);
    business_do(rig->url, "INSERT INTO orders VALUES ('%s', 'new', 7)", g.order);
    assert_int_equal(guard(once, "1", &g), ONCE_ACK);
    assert_int_equal(g.found, ONCE_APPLIED);
    once_close(once);
}

static int bad_name_handler(void *table, struct once_run *run)
{
    struct once_error why = {0};
    int found;
    assert_int_not_equal(once_guard_lock(run, table, "id", "1", &found, &why), ONCE_OK);
    assert_true(why.text[0] != 0);
    return ONCE_FAILED;
}

/* Each in a transaction of its own: PostgreSQL's is over after an error. */
static void names_are_never_pasted(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    char tables[][40] = {"orders; DROP TABLE orders", "orders\" --", "orders` --", "",
                         "no_such_table"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct once_message m = message_of("k");
        struct once_answer answer;
        assert_int_equal(once_do(once, &m, bad_name_handler, tables[i], &answer), ONCE_RETRY);
    }
    assert_true(business_number(rig->url, "SELECT COUNT(*) FROM orders") >= 0);
    once_close(once);
}

/* ---- the outbox ---- */

static int outbox_handler(void *user, struct once_run *run)
{
    struct work *work = user;
    struct once_property property = {"region", "eu"};
    struct once_message next = {.topic = "Next",
                                .tag = "t",
                                .keys = work->key,
                                .body = "a\0b",
                                .body_size = 3,
                                .properties = &property,
                                .n_properties = 1};
    atomic_fetch_add(&work->runs, 1);
    assert_int_equal(once_outbox_add(run, &next, NULL), ONCE_OK);
    assert_int_equal(once_outbox_add(run, &next, NULL), ONCE_OK);
    return work->result;
}

struct sent {
    const char *key;
    unsigned n, refuse;
    char ids[4][128];
};

static const char *property(const struct once_message *m, const char *name)
{
    for (size_t i = 0; i < m->n_properties; i++)
        if (strcmp(m->properties[i].name, name) == 0)
            return m->properties[i].value;
    return "";
}

static int outbox_send(void *user, const struct once_message *m)
{
    struct sent *sent = user;
    if (strcmp(m->keys, sent->key) != 0)
        return 0; /* another case's */
    if (sent->refuse > 0) {
        sent->refuse--;
        return -1;
    }
    assert_string_equal(m->topic, "Next");
    assert_string_equal(m->tag, "t");
    assert_int_equal(m->body_size, 3);
    assert_memory_equal(m->body, "a\0b", 3);
    assert_string_equal(property(m, "region"), "eu");
    assert_in_range(sent->n, 0, 3);
    (void)snprintf(sent->ids[sent->n++], sizeof sent->ids[0], "%s", property(m, "ONCE_ID"));
    return 0;
}

static void outbox_empty(struct once *once, struct sent *sent)
{
    struct once_error why = {0};
    if (once_outbox_send(once, 100, outbox_send, sent, NULL, &why))
        fail_msg("%s", why.text);
}

static void what_is_to_be_sent_exists_if_the_effect_does(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig), .result = ONCE_FAILED};
    struct sent sent = {.key = work.key};
    struct once_message m = message_of("k");
    struct once_answer answer;
    assert_int_equal(once_do(once, &m, outbox_handler, &work, &answer), ONCE_RETRY);
    outbox_empty(once, &sent);
    assert_int_equal(sent.n, 0);
    work.result = ONCE_DONE;
    assert_int_equal(once_do(once, &m, outbox_handler, &work, &answer), ONCE_ACK);
    sent.refuse = 1;
    outbox_empty(once, &sent);
    assert_int_equal(sent.n, 0);
    outbox_empty(once, &sent);
    assert_int_equal(sent.n, 2);
    assert_true(sent.ids[0][0] != 0);
    assert_string_not_equal(sent.ids[0], sent.ids[1]);
    outbox_empty(once, &sent);
    assert_int_equal(sent.n, 2);
    once_close(once);
}

/* ---- statements of one's own ---- */

struct statement {
    const struct work *work;
    const char *sql;
    struct once_value values[33];
    size_t n;
    uint64_t changed;
    struct once_error why;
    int code;
};

static int statement_handler(void *user, struct once_run *run)
{
    struct statement *s = user;
    s->code = once_execute(run, s->sql, s->values, s->n, &s->changed, &s->why);
    return s->code ? ONCE_FAILED : s->work->result;
}

static struct once_value text_value(const char *text)
{
    return (struct once_value){.type = ONCE_TEXT, .bytes = text, .size = strlen(text)};
}

static int execute(struct once *once, const char *key, struct statement *s)
{
    struct once_message m = message_of(key);
    struct once_answer answer;
    return once_do(once, &m, statement_handler, s, &answer);
}

/* A question mark in quotes, names and comments is none; values are never code. */
static void a_statement_is_part_of_the_transaction(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig)};
    char hostile[120];
    (void)snprintf(hostile, sizeof hostile, "%s'); DELETE FROM effects; -- ? \\", work.key);
    struct statement s = {.work = &work,
                          .sql = "INSERT /* what? */ INTO effects (k) -- why?\n"
                                 "SELECT ? WHERE '?' <> 'it''s ?' AND ? = 7",
                          .values = {text_value(hostile), {.type = ONCE_INT, .number = 7}},
                          .n = 2};
    work.result = ONCE_FAILED;
    assert_int_equal(execute(once, "k", &s), ONCE_RETRY);
    assert_int_equal(
        business_number(rig->url, "SELECT count(*) FROM effects WHERE k LIKE '%s%%'", work.key), 0);
    work.result = ONCE_DONE;
    if (execute(once, "k", &s) != ONCE_ACK)
        fail_msg("%s", s.why.text);
    assert_int_equal(s.changed, 1);
    assert_int_equal(execute(once, "k", &s), ONCE_ACK); /* a duplicate */
    assert_int_equal(
        business_number(rig->url, "SELECT count(*) FROM effects WHERE k LIKE '%s%%'", work.key), 1);
    once_close(once);
}

/* Numbers fit columns of text and of numbers, and nothing is nothing. */
static void values_fit_their_columns(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    char id[100];
    (void)snprintf(id, sizeof id, "%s", scope_new(rig));
    struct work work = {.rig = rig, .key = id};
    struct statement s = {.work = &work,
                          .sql = "INSERT INTO orders (id, status, version) VALUES (?, ?, ?)",
                          .values = {text_value(id), {.type = ONCE_INT, .number = -17}, {0}},
                          .n = 3};
    if (execute(once, "insert", &s) != ONCE_ACK)
        fail_msg("%s", s.why.text);
    s.sql = "UPDATE orders SET version = ? WHERE id = ? AND status = ? AND version IS NULL";
    s.values[0] = text_value("4611686018427387905");
    s.values[1] = text_value(id);
    s.values[2] = (struct once_value){.type = ONCE_INT, .number = -17};
    if (execute(once, "update", &s) != ONCE_ACK)
        fail_msg("%s", s.why.text);
    assert_int_equal(s.changed, 1);
    assert_int_equal(business_number(rig->url,
                                     "SELECT version - 4611686018427387904 FROM orders WHERE id = "
                                     "'%s'",
                                     id),
                     1);
    once_close(once);
}

static void a_statement_that_cannot_be_is_refused(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    struct work work = {.rig = rig, .key = scope_new(rig)};
    static const struct {
        const char *sql;
        size_t n;
        int code;
        bool mariadb; /* alone commits by the way */
    } cases[] = {{"COMMIT", 0, ONCE_MISUSE},
                 {"  rollback;", 0, ONCE_MISUSE},
                 {";\f\vRollback", 0, ONCE_MISUSE},
                 {"/**/COMMIT", 0, ONCE_MISUSE},
                 {"-- all of it\n END", 0, ONCE_MISUSE},
                 {"/* one /* and one within */ */commit", 0, ONCE_MISUSE},
                 {"/* one /* and none within */commit", 0, ONCE_MISUSE},
                 {"/*!50000 commit */", 0, ONCE_MISUSE},
                 {"ROLLBACK/* and chain */", 0, ONCE_MISUSE},
                 {" truncate table effects", 0, ONCE_MISUSE, true},
                 {"CREATE  TABLE t (i INT)", 0, ONCE_MISUSE, true},
                 {"#\nSET/**/autocommit=1", 0, ONCE_MISUSE, true},
                 {"SET autocommit=1", 0, ONCE_MISUSE, true},
                 {"CREATE /*M!999999 TEMPORARY */ TABLE t (i INT)", 0, ONCE_MISUSE, true},
                 {"SELECT ?", 33, ONCE_INVALID},
                 {"INSERT INTO effects (k) VALUES (?, ?)", 1, ONCE_INVALID},
                 {"INSERT INTO no_such_table (k) VALUES (?)", 1, 0},
                 {"this is no SQL", 0, ONCE_INVALID}};
    bool commits = strncmp(rig->url, "mysql:", 6) == 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct statement s = {.work = &work, .sql = cases[i].sql, .n = cases[i].n};
        if (cases[i].mariadb && !commits)
            continue;
        for (size_t v = 0; v < 33; v++)
            s.values[v] = text_value("x");
        assert_int_equal(execute(once, "k", &s), ONCE_RETRY);
        assert_true(s.code != ONCE_OK && strlen(s.why.text) > 5);
        if (cases[i].code)
            assert_int_equal(s.code, cases[i].code);
    }
    assert_int_equal(once_execute(NULL, "SELECT 1", NULL, 0, NULL, NULL), ONCE_INVALID);
    once_close(once);
}

/* ---- looking from outside ---- */

struct looked {
    size_t n, most;
    char texts[4][64];
    int64_t numbers[4];
};

static int look_row(void *user, const struct once_value *columns, size_t n)
{
    struct looked *l = user;
    assert_int_equal(n, 2);
    assert_in_range(l->n, 0, 3);
    assert_int_equal(columns[0].type, ONCE_TEXT);
    assert_int_equal(columns[1].type, ONCE_INT);
    (void)snprintf(l->texts[l->n], sizeof l->texts[0], "%.*s", (int)columns[0].size,
                   (const char *)columns[0].bytes);
    l->numbers[l->n++] = columns[1].number;
    return l->n == l->most;
}

/* Two orders of this test's own, and what three questions say of them. */
static void a_look_from_outside_sees_what_was_committed(void **state)
{
    const struct rig *rig = *state;
    struct once *once = rig_open(rig, (struct once_options){0});
    char id[100], sql[300];
    (void)snprintf(id, sizeof id, "%s", scope_new(rig));
    struct work work = {.rig = rig, .key = id};
    struct statement s = {.work = &work,
                          .sql = "INSERT INTO orders (id, status, version) VALUES (?, 'new', 3)",
                          .values = {text_value(id)},
                          .n = 1};
    assert_int_equal(execute(once, "look", &s), ONCE_ACK);
    struct once_error why;
    struct looked l = {.most = 9};
    (void)snprintf(sql, sizeof sql,
                   "SELECT status, SUM(version) FROM orders WHERE id = '%s' GROUP BY status "
                   "UNION ALL SELECT 'more', 4 ORDER BY 2",
                   id);
    if (once_select(rig->url, sql, look_row, &l, &why))
        fail_msg("%s", why.text);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.texts[0], "new");
    assert_int_equal(l.numbers[0], 3);
    assert_int_equal(l.numbers[1], 4);
    l = (struct looked){.most = 1};
    assert_int_equal(once_select(rig->url, sql, look_row, &l, &why), ONCE_OK);
    assert_int_equal(l.n, 1);
    assert_true(once_select(rig->url, "SELECT k FROM no_such_table", look_row, &l, &why) !=
                ONCE_OK);
    assert_true(strlen(why.text) > 5);
    assert_int_equal(once_select("memory:", "SELECT 1", look_row, &l, &why), ONCE_UNSUPPORTED);
    assert_int_equal(once_select(rig->url, NULL, look_row, &l, NULL), ONCE_INVALID);
    once_close(once);
}

const struct suite_case transaction_cases[] = {
    {"ID-8 ID-27 a failure leaves neither mark nor effect",
     a_failure_leaves_neither_mark_nor_effect, TRANSACTION},
    {"H-19 a conflict of another unique key is a failure, not a duplicate",
     a_conflict_of_another_unique_key_is_a_failure, TRANSACTION},
    {"DS-9 the effect and its mark are one", the_effect_and_its_mark_are_one, TRANSACTION},
    {"H-18 H-21 copies at once are one effect and no error",
     copies_at_once_are_one_effect_and_no_error, TRANSACTION},
    {"ID-6 to look and then to insert is not enough", to_look_and_then_to_insert_is_not_enough,
     TRANSACTION},
    {"ID-3 H-20 a state moves on once, and too early is no duplicate", a_state_moves_on_once,
     TRANSACTION},
    {"ID-4 a version is taken once", a_version_is_taken_once, TRANSACTION},
    {"ID-7 a row that is there can be locked", a_row_that_is_there_can_be_locked, TRANSACTION},
    {"names of tables are never pasted into SQL", names_are_never_pasted, TRANSACTION},
    {"H-30 what is to be sent exists if the effect does",
     what_is_to_be_sent_exists_if_the_effect_does, TRANSACTION},
    {"a statement of one's own is part of the transaction, and its values are never code",
     a_statement_is_part_of_the_transaction, TRANSACTION},
    {"values fit their columns", values_fit_their_columns, TRANSACTION},
    {"a statement that cannot be is refused", a_statement_that_cannot_be_is_refused, TRANSACTION},
    {"a look from outside sees what was committed", a_look_from_outside_sees_what_was_committed,
     TRANSACTION},
    {0},
};
