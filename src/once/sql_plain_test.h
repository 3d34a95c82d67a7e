/* sql_plain_test.h - what must be true of a table of the plain form, on every SQL store.
 *
 * Only for the x_test.c files of this folder.
 */
#ifndef ONCE_SQL_PLAIN_TEST_H
#define ONCE_SQL_PLAIN_TEST_H

#include "once/sql_rig_test.h"

static void plain_open(struct rig *rig)
{
    rig_open(rig);
    (void)rig_exec(rig, rig->plain_create);
    rig_disconnect(rig);
    rig->settings.plain = true;
    rig_connect(rig);
}

static struct op plain_op(enum op_kind kind, const char *key)
{
    struct op op = op_of(kind, 0, 10);
    op.plain = bytes_str(key);
    return op;
}

static enum op_outcome plain_ask(struct conn *conn, enum op_kind kind, const char *key)
{
    struct op op = plain_op(kind, key);
    return do_op(conn, &op);
}

static void a_plain_key_is_there_or_it_is_not(void **state)
{
    struct rig rig;
    plain_open(&rig);
    assert_int_equal(plain_ask(rig.conn, OP_LOOK, "a"), OUT_ABSENT);
    assert_int_equal(plain_ask(rig.conn, OP_CLAIM, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.other, OP_CLAIM, "a"), OUT_DONE);
    assert_int_equal(plain_ask(rig.other, OP_LOOK, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.conn, OP_RENEW, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.conn, OP_FINISH, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.other, OP_CLAIM, "a"), OUT_DONE);
    assert_int_equal(plain_ask(rig.conn, OP_RELEASE, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.other, OP_CLAIM, "a"), OUT_OK);
    assert_int_equal(plain_ask(rig.conn, OP_FORGET, "a"), OUT_OK);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 0);
    assert_int_equal(plain_ask(rig.conn, OP_STEP_PUT, "a"), OUT_FAILED);
    assert_int_equal(sql_begin(rig.conn, NULL, NULL), ERR_UNSUPPORTED);
    rig_disconnect(&rig);
}

static void rows_of_other_programs_count(void **state)
{
    struct rig rig;
    plain_open(&rig);
    (void)rig_exec(&rig, "INSERT INTO {plain} (k) VALUES ('theirs')");
    struct op theirs = plain_op(OP_CLAIM, "theirs"), ours = plain_op(OP_CLAIM, "ours");
    struct op *ops[] = {&theirs, &ours};
    assert_int_equal(sql_run(rig.conn, ops, 2, NULL), OK);
    assert_int_equal(theirs.outcome, OUT_DONE);
    assert_int_equal(ours.outcome, OUT_OK);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain} WHERE k = 'ours'"), 1);
    rig_disconnect(&rig);
}

/* One key of a batch is refused by the table; the others are served all the same. */
static void a_plain_key_that_the_table_refuses_is_refused_alone(void **state)
{
    struct rig rig;
    plain_open(&rig);
    struct op ops[5];
    static const char *const keys[] = {"same", "b", "same", "d", "e"};
    struct op *list[5];
    for (int i = 0; i < 5; i++) {
        ops[i] = plain_op(OP_CLAIM, keys[i]);
        list[i] = &ops[i];
    }
    assert_int_equal(sql_run(rig.conn, list, 5, NULL), OK);
    assert_int_equal((ops[0].outcome == OUT_OK) + (ops[2].outcome == OUT_OK), 1);
    assert_int_equal((ops[0].outcome == OUT_DONE) + (ops[2].outcome == OUT_DONE), 1);
    assert_int_equal(ops[1].outcome, OUT_OK);
    assert_int_equal(ops[3].outcome, OUT_OK);
    assert_int_equal(ops[4].outcome, OUT_OK);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), 4);
    rig_disconnect(&rig);
}

/* What is one key is for the column to say; whatever it says, nothing is lost and nothing refused.
 */
static void plain_keys_are_equal_where_the_column_says_so(void **state)
{
    struct rig rig;
    plain_open(&rig);
    struct op ops[] = {plain_op(OP_CLAIM, "Order-a"), plain_op(OP_CLAIM, "order-A")};
    struct op *list[] = {&ops[0], &ops[1]};
    assert_int_equal(sql_run(rig.conn, list, 2, NULL), OK);
    int ours = 0, done = 0;
    for (int i = 0; i < 2; i++) {
        ours += ops[i].outcome == OUT_OK;
        done += ops[i].outcome == OUT_DONE;
    }
    assert_int_equal(ours + done, 2);
    assert_int_equal(rig_number(&rig, "SELECT COUNT(*) FROM {plain}"), ours);
    rig_disconnect(&rig);
}

static void long_plain_keys_never_fall_together(void **state)
{
    struct rig rig;
    plain_open(&rig);
    char a[301], b[301];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    a[299] = 'a';
    a[300] = b[300] = '\0';
    enum op_outcome first = plain_ask(rig.conn, OP_CLAIM, a);
    enum op_outcome second = plain_ask(rig.conn, OP_CLAIM, b);
    assert_int_equal(first, second); /* both stored, or both refused; never one for the other */
    assert_true(first == OUT_OK || first == OUT_FAILED);
    rig_disconnect(&rig);
}

static void a_plain_table_that_is_not_there_is_told(void **state)
{
    struct rig rig;
    rig_open(&rig);
    rig_disconnect(&rig);
    rig.settings.plain = true;
    struct fault why = {0};
    assert_int_equal(sql_open(rig.engine, &rig.settings, &rig.store, &why), ERR_NOT_FOUND);
    assert_non_null(strstr(why.text, "update_at"));
}

#define SQL_PLAIN_CASES                                                                            \
    test_of_row("ID-25", a_plain_key_is_there_or_it_is_not),                                       \
        cmocka_unit_test(rows_of_other_programs_count),                                            \
        cmocka_unit_test(a_plain_key_that_the_table_refuses_is_refused_alone),                     \
        cmocka_unit_test(plain_keys_are_equal_where_the_column_says_so),                           \
        test_of_row("H-16", long_plain_keys_never_fall_together),                                  \
        cmocka_unit_test(a_plain_table_that_is_not_there_is_told)

#endif
