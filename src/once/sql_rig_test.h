/* sql_rig_test.h - a store under test and short words for what is asked of it, for any engine.
 *
 * Only for the x_test.c files of this folder. A program says where stores are: rig_settings() fills
 * url and table of a fresh, empty one.
 */
#ifndef ONCE_SQL_RIG_TEST_H
#define ONCE_SQL_RIG_TEST_H

#include "base/test.h"
#include "once.h"
#include "once/sql.h"

#include <stdio.h>
#include <string.h>

#define FAR_MS 3600000

struct rig {
    const struct sql_engine *engine;
    struct store_settings settings;
    char url[512], table[49];
    const char *plain_create; /* a table {plain} as other programs make it */
    struct store *store;
    struct conn *conn, *other; /* two connections, as of two processes */
};

static inline void rig_log(void *user, int level, const char *line)
{
}

/* The program's own: engine, url, table, plain_create. */
static void rig_settings(struct rig *rig);

static inline void rig_connect(struct rig *rig)
{
    struct fault why = {0};
    if (sql_open(rig->engine, &rig->settings, &rig->store, &why) ||
        sql_connect(rig->store, &rig->conn, &why) || sql_connect(rig->store, &rig->other, &why))
        fail_msg("%s", why.text);
}

static inline void rig_open(struct rig *rig)
{
    *rig = (struct rig){.settings = {.create = true, .wait_ms = 200, .log = rig_log}};
    rig_settings(rig);
    rig->settings.url = rig->url;
    rig->settings.table = rig->table;
    rig_connect(rig);
}

static inline void rig_disconnect(struct rig *rig)
{
    sql_disconnect(rig->conn);
    sql_disconnect(rig->other);
    sql_close(rig->store);
}

/* One statement with names in braces; it must go well. Returns the rows changed. */
static inline uint64_t rig_exec(struct rig *rig, const char *text)
{
    struct fault why = {0};
    cleanup(free_at) char *whole = sql_text(rig->engine, rig->table, text);
    struct sql_call call = {.text = whole, .once = true};
    if (sql_call(rig->conn, &call, &why))
        fail_msg("%s: %s", whole, why.text);
    return call.changed;
}

/* The same by somebody who brings back an old copy, whose rows name whatever they name. */
static inline void rig_restore(struct rig *rig, const char *text)
{
    if (rig->engine->births)
        (void)rig_exec(rig, "SET foreign_key_checks = 0");
    (void)rig_exec(rig, text);
    if (rig->engine->births)
        (void)rig_exec(rig, "SET foreign_key_checks = 1");
}

static inline bool rig_row_number(void *user, const struct sql_value *columns, size_t n)
{
    assert_int_equal(columns[0].type, SQL_INT);
    *(int64_t *)user = columns[0].number;
    return false;
}

static inline int64_t rig_number(struct rig *rig, const char *text)
{
    struct fault why = {0};
    int64_t number = INT64_MIN;
    cleanup(free_at) char *whole = sql_text(rig->engine, rig->table, text);
    struct sql_call call = {.text = whole, .once = true, .row = rig_row_number, .user = &number};
    if (sql_call(rig->conn, &call, &why))
        fail_msg("%s: %s", whole, why.text);
    return number;
}

/* ---- operations ---- */

static inline struct op op_of(enum op_kind kind, int key, uint64_t token)
{
    struct op op = {.kind = kind,
                    .name = "a key",
                    .token = token,
                    .fingerprint = 77,
                    .expiry_ms = FAR_MS,
                    .retention_ms = 2 * (int64_t)FAR_MS};
    for (int i = 0; i < ONCE_ID_SIZE; i++)
        op.id[i] = (uint8_t)(key >> (i % 4 * 8)) ^ (uint8_t)(i * 37);
    return op;
}

static inline enum err run_of(struct conn *conn, struct op *op, struct fault *why)
{
    struct op *ops[] = {op};
    return sql_run(conn, ops, 1, why);
}

/* Runs one that must not fail as a whole. */
static inline enum op_outcome do_op(struct conn *conn, struct op *op)
{
    struct fault why = {0};
    if (run_of(conn, op, &why))
        fail_msg("%s", why.text);
    return op->outcome;
}

static inline enum op_outcome ask(struct conn *conn, enum op_kind kind, int key, uint64_t token)
{
    struct op op = op_of(kind, key, token);
    return do_op(conn, &op);
}

static inline int state_of(struct conn *conn, int key)
{
    struct op op = op_of(OP_LOOK, key, 1);
    return do_op(conn, &op) == OUT_ABSENT ? ONCE_ABSENT : op.state;
}

static inline int64_t fence_of(struct conn *conn, int key)
{
    struct op op = op_of(OP_LOOK, key, 1);
    (void)do_op(conn, &op);
    return op.fence;
}

/* Every claim and mark has ended a while ago, by the store's clock; rows are kept all the same. */
static inline void time_passes(struct rig *rig)
{
    (void)rig_exec(rig, "UPDATE {claims} SET until_ms = 1");
}

static inline enum op_outcome step_put(struct conn *conn, int key, uint64_t token, const char *step,
                                       const char *result)
{
    struct op op = op_of(OP_STEP_PUT, key, token);
    op.step = bytes_str(step);
    op.result = bytes_str(result);
    return do_op(conn, &op);
}

/* "" and false when there is none. */
static inline bool step_is(struct conn *conn, int key, const char *step, const char *wanted)
{
    struct op op = op_of(OP_STEP_GET, key, 1);
    op.step = bytes_str(step);
    bool found = do_op(conn, &op) == OUT_OK;
    bool equal = found && bytes_equal(op.result, bytes_str(wanted));
    if (found)
        free((uint8_t *)op.result.at);
    return equal;
}

#endif
