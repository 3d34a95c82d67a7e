/* sql_sweep.c - forgetting what has ended: few rows by each transaction, found by an index, oldest
 * first, and the steps with their claims. A row that somebody took while it was looked at stays,
 * and so do its steps. */
#include "once/sql_int.h"

struct ids {
    uint8_t at[SWEEP_ROWS][ONCE_ID_SIZE];
    size_t n;
};

static bool row_id(void *user, const struct sql_value *columns, size_t n)
{
    struct ids *ids = user;
    if (n == 1 && columns[0].bytes.len == ONCE_ID_SIZE)
        memcpy(ids->at[ids->n++], columns[0].bytes.at, ONCE_ID_SIZE);
    return ids->n < SWEEP_ROWS;
}

static enum err find(struct conn *c, size_t limit, struct ids *ids, struct fault *why)
{
    ids->n = 0;
    enum err err = conn_ask_clock(c, why);
    if (!err)
        err = conn_flush(c, why);
    if (!err)
        err = conn_born(c, why);
    struct sql_call *call;
    if (!err)
        err = conn_add(c, T_SWEEP_FIND, NULL, &call, why);
    if (err)
        return err;
    call_int(call, c->now_ms);
    call_int(call, (int64_t)limit);
    call->row = row_id;
    call->user = ids;
    return conn_flush(c, why);
}

static enum err remove_rows(struct conn *c, const struct ids *ids, uint64_t *deleted,
                            struct fault *why)
{
    enum err err = OK;
    struct sql_call *call;
    for (size_t i = 0; !err && i < ids->n; i++) {
        c->slots[i] = (struct slot){.changed = 0};
        err = conn_add(c, T_SWEEP_DELETE, &c->slots[i], &call, why);
        if (err)
            break;
        call_bytes(call, ids->at[i], ONCE_ID_SIZE);
        call_int(call, c->now_ms);
    }
    if (!err)
        err = conn_flush(c, why);
    for (size_t i = 0; !err && i < ids->n; i++) {
        if (c->slots[i].changed == 0)
            continue;
        ++*deleted;
        err = conn_add(c, T_STEPS_DELETE, NULL, &call, why);
        if (!err)
            call_bytes(call, ids->at[i], ONCE_ID_SIZE);
    }
    return err ? err : conn_flush(c, why);
}

enum err sql_sweep(struct conn *c, struct op *op, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    struct ids ids = {.n = SWEEP_ROWS};
    uint64_t swept = 0;
    size_t wanted = op->rows > 0 ? (size_t)op->rows : 0;
    enum err err = OK;
    while (!err && swept < wanted) {
        size_t limit = wanted - swept < SWEEP_ROWS ? wanted - swept : SWEEP_ROWS;
        uint64_t deleted = 0;
        err = find(c, limit, &ids, why);
        if (err || ids.n == 0)
            break;
        err = engine->begin(c->sql, true, why);
        if (!err)
            err = remove_rows(c, &ids, &deleted, why);
        if (!err)
            err = engine->commit(c->sql, why);
        if (err)
            engine->rollback(c->sql);
        else
            swept += deleted;
        if (ids.n < limit || deleted == 0)
            break;
    }
    conn_drop(c);
    if (err)
        return err;
    op->rows = (int)swept;
    op->outcome = OUT_OK;
    return OK;
}
