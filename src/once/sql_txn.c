/* sql_txn.c - the caller's own transaction, with a mark in it.
 *
 * The mark is an ordinary row, CONSUMED from its first moment. It is inserted before the handler
 * runs: whoever comes with the same id waits for that row and no other (H-18, H-21), and finds it
 * done, or, after a rollback, gets it.
 */
#include "once/sql_int.h"

#include "once.h"

static bool row_mark(void *user, const struct sql_value *columns, size_t n)
{
    slot_read(user, columns, n);
    return false;
}

/* What the row shall be, if it may be ours. */
static enum op_outcome decide_mark(struct slot *slot, int64_t now_ms)
{
    struct op claim = *slot->op;
    claim.kind = OP_CLAIM;
    (void)decide(&slot->before, now_ms, false, &claim, &slot->after);
    slot->op->left_ms = claim.left_ms;
    if (claim.outcome == OUT_DONE)
        slot->op->fingerprint = claim.fingerprint;
    slot->after.state = ONCE_CONSUMED;
    slot->row_after = ONCE_CONSUMED;
    slot->after.fingerprint = slot->op->fingerprint;
    slot->after.until_ms = add_ms(now_ms, slot->op->retention_ms);
    slot->keep_after_ms = slot->after.until_ms;
    return claim.outcome;
}

/* Reads the row. */
static enum err mark_read(struct conn *c, struct slot *slot, struct fault *why)
{
    slot->before = (struct stored){.state = ONCE_ABSENT};
    slot->odd = false;
    enum err err = conn_ask_clock(c, why);
    struct sql_call *call;
    if (!err)
        err = conn_add(c, T_READ_ONE, NULL, &call, why);
    if (err)
        return err;
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call->row = row_mark;
    call->user = slot;
    err = conn_flush(c, why);
    return err ? err : conn_born(c, why);
}

static enum err mark_write(struct conn *c, struct slot *slot, struct fault *why)
{
    slot->changed = 0;
    enum err err =
        slot->before.state == ONCE_ABSENT ? slot_insert(c, slot, why) : slot_update(c, slot, why);
    return err ? err : conn_flush(c, why);
}

/* After a guess that went well: is the time what it should be? */
static enum err mark_correct(struct conn *c, struct slot *slot, struct fault *why)
{
    int64_t right = add_ms(c->now_ms, slot->op->retention_ms);
    if (slot->after.until_ms > right - SQL_GUESS_MS &&
        slot->after.until_ms < add_ms(right, SQL_GUESS_MS))
        return OK;
    slot->before = slot->after;
    slot->row_before = slot->row_after;
    slot->after.until_ms = slot->keep_after_ms = right;
    return mark_write(c, slot, why);
}

/* One statement that inserts if clock and birth are what we think. If they are not it fails, and
 * with it the transaction, in which nothing else was done yet: it begins anew, and the row is read,
 * which tells. */
static enum err mark_insert(struct conn *c, struct slot *slot, int64_t now_ms, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    enum err err = slot_insert(c, slot, why);
    if (err)
        return err;
    struct sql_call *call = &c->calls[c->n_calls - 1];
    call->text = c->store->texts[T_MARK];
    call->many = NULL;
    call_int(call, now_ms);
    err = conn_flush(c, why);
    if (err != ERR_INVALID)
        return err;
    conn_drop(c);
    engine->rollback(c->sql);
    slot->changed = 0;
    return engine->begin(c->sql, true, why);
}

/* Where the server's clock can be guessed, the mark is inserted at once, as if nothing were there,
 * which is how it nearly always is. `changed` of the slot tells. */
static enum err mark_guess(struct conn *c, struct slot *slot, struct fault *why)
{
    int64_t now_ms;
    slot->before = (struct stored){.state = ONCE_ABSENT};
    if (!conn_guess_now(c, &now_ms))
        return OK;
    (void)decide_mark(slot, now_ms);
    if (c->store->texts[T_MARK])
        return mark_insert(c, slot, now_ms, why);
    enum err err = conn_ask_clock(c, why);
    if (!err)
        err = slot_insert(c, slot, why);
    if (!err)
        err = conn_flush(c, why);
    if (!err)
        err = conn_born(c, why);
    return err || slot->changed == 0 ? err : mark_correct(c, slot, why);
}

static enum err mark(struct conn *c, struct op *op, struct fault *why)
{
    struct slot slot = {.op = op};
    enum err err = mark_guess(c, &slot, why);
    for (int round = 0; !err && slot.changed == 0; round++) {
        if (round == SQL_ROUNDS)
            return fault_set(why, ERR_BUSY, "others were quicker %d times", SQL_ROUNDS);
        err = mark_read(c, &slot, why);
        if (err)
            return err;
        if (slot.odd)
            return fault_set(why, ERR_DAMAGED, "the row of %s is none of ours: its state is odd",
                             op->name ? op->name : "this key");
        op->outcome = decide_mark(&slot, c->now_ms);
        if (op->outcome != OUT_OK)
            return OK;
        err = mark_write(c, &slot, why);
    }
    op->outcome = OUT_OK;
    return err;
}

static enum err check_birth(struct conn *c, struct fault *why)
{
    enum err err = conn_ask_clock(c, why);
    if (!err)
        err = conn_flush(c, why);
    return err ? err : conn_born(c, why);
}

enum err sql_begin(struct conn *conn, struct op *op, struct fault *why)
{
    const struct sql_engine *engine = conn->store->engine;
    if (op)
        op->outcome = OUT_NONE;
    enum err err = conn_fresh(conn, why);
    if (err)
        return err;
    if (conn->store->settings.plain)
        return fault_set(why, ERR_UNSUPPORTED, "the plain form has no marks in transactions");
    err = engine->begin(conn->sql, true, why);
    if (!err)
        err = op ? mark(conn, op, why) : check_birth(conn, why);
    if (!err && (!op || op->outcome == OUT_OK))
        return OK;
    conn_drop(conn);
    engine->rollback(conn->sql);
    if (op && err)
        op->outcome = OUT_NONE;
    if (op && err == ERR_BUSY) {
        op->outcome = OUT_BUSY; /* for how long, nobody can say: as long again as we waited */
        op->left_ms = conn->store->settings.wait_ms;
        err = OK;
    }
    return err;
}

enum err sql_commit(struct conn *conn, struct fault *why)
{
    const struct sql_engine *engine = conn->store->engine;
    enum err err = engine->commit(conn->sql, why);
    if (err)
        engine->rollback(conn->sql);
    return err;
}

void sql_rollback(struct conn *conn)
{
    conn->store->engine->rollback(conn->sql);
}

void *sql_native(struct conn *conn)
{
    return conn->store->engine->native(conn->sql);
}

enum err sql_call(struct conn *conn, struct sql_call *call, struct fault *why)
{
    size_t failed;
    return conn->store->engine->run(conn->sql, call, 1, &failed, why);
}
