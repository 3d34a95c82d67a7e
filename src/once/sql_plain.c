/* sql_plain.c - a table (id, k, update_at) of other programs, as it is.
 *
 * A key is in the table or it is not: there is no owner, no expiry, no state. So a claim inserts
 * it, and whoever finds it there is told DONE; a release deletes it. What `k` holds to be equal is
 * for the column to say (case, blanks), and what is too long for it is refused: never is a key cut,
 * nor an error ignored (H-16).
 *
 * Not to be had in this form, whoever writes the program: a process that dies in its handler leaves
 * a key that is taken for done (H-6), and so is a claim whose answer was lost on its way.
 */
#include "once/sql_int.h"

#include "once.h"

#include <stdlib.h>

static bool row_found(void *user, const struct sql_value *columns, size_t n)
{
    struct slot *slot = user;
    slot->found = true;
    return false;
}

static enum err ask(struct conn *c, enum sql_name name, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, name, slot, &call, why);
    if (err)
        return err;
    call->params[0] = (struct sql_value){.type = SQL_TEXT, .bytes = slot->op->plain};
    call->n_params = 1;
    if (name == T_PLAIN_FIND)
        call->row = row_found;
    return OK;
}

/* What of it is written, if anything. */
static enum sql_name decide_plain(struct slot *slot)
{
    struct op *op = slot->op;
    op->left_ms = op->fence = 0;
    op->state = ONCE_ABSENT;
    switch (op->kind) {
    case OP_CLAIM:
        op->outcome = slot->found ? OUT_DONE : OUT_OK;
        return slot->found ? T_COUNT : T_PLAIN_INSERT;
    case OP_LOOK:
        op->state = slot->found ? ONCE_CONSUMED : ONCE_ABSENT;
        op->outcome = slot->found ? OUT_OK : OUT_ABSENT;
        return T_COUNT;
    case OP_RELEASE:
    case OP_FORGET:
        op->outcome = OUT_OK;
        return T_PLAIN_DELETE;
    case OP_RENEW:
    case OP_FINISH:
        op->outcome = OUT_OK;
        return T_COUNT;
    case OP_SWEEP:
        op->rows = 0;
        op->outcome = OUT_OK;
        return T_COUNT;
    case OP_STEP_GET:
    case OP_STEP_PUT:
        break;
    }
    op->outcome = OUT_FAILED;
    (void)fault_set(&op->why, ERR_UNSUPPORTED, "a table of the plain form has no steps");
    return T_COUNT;
}

static enum err plain_steps(struct conn *c, struct slot *slots, size_t n, struct fault *why)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++) {
        slots[i].found = false;
        if (slots[i].op->kind == OP_CLAIM || slots[i].op->kind == OP_LOOK)
            err = ask(c, T_PLAIN_FIND, &slots[i], why);
    }
    if (!err)
        err = conn_flush(c, why);
    for (size_t i = 0; !err && i < n; i++) {
        enum sql_name name = decide_plain(&slots[i]);
        if (name != T_COUNT)
            err = ask(c, name, &slots[i], why);
    }
    return err ? err : conn_flush(c, why);
}

static enum err plain_batch(struct conn *c, struct slot *slots, size_t n, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    enum err err = engine->begin(c->sql, true, why);
    if (!err)
        err = plain_steps(c, slots, n, why);
    if (!err)
        err = engine->commit(c->sql, why);
    if (!err)
        return OK;
    conn_drop(c);
    engine->rollback(c->sql);
    for (size_t i = 0; i < n; i++)
        slots[i].op->outcome = OUT_NONE;
    return err;
}

/* Errors that are one operation's own. */
static bool is_own(enum err err)
{
    return err == ERR_EXISTS || err == ERR_INVALID || err == ERR_TOO_BIG || err == ERR_RANGE;
}

/* By itself: a key that is there although it was not found is found the second time, or else it is
 * another unique key that is in the way, which must not be taken for this one (H-19). */
static enum err plain_one(struct conn *c, struct slot *slot, struct fault *why)
{
    enum err err = plain_batch(c, slot, 1, why);
    if (err == ERR_EXISTS)
        err = plain_batch(c, slot, 1, why);
    if (!is_own(err))
        return err;
    slot->op->outcome = OUT_FAILED;
    if (why)
        slot->op->why = *why;
    return OK;
}

static int by_key(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return bytes_compare(x->op->plain, y->op->plain);
}

enum err sql_plain_run(struct conn *c, struct op *const *ops, size_t n, struct fault *why)
{
    struct fault unused = {0};
    if (!why)
        why = &unused;
    for (size_t i = 0; i < n; i++)
        c->slots[i] = (struct slot){.op = ops[i]};
    qsort(c->slots, n, sizeof c->slots[0], by_key);
    enum err err = plain_batch(c, c->slots, n, why);
    if (!is_own(err))
        return err;
    err = OK;
    for (size_t i = 0; !err && i < n; i++)
        err = plain_one(c, &c->slots[i], why);
    return err;
}
