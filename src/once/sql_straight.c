/* sql_straight.c - claims and finishes that are written without reading first.
 *
 * Nearly every claim is of a key that nobody has, and nearly every finish of a claim that is one's
 * own still. So these are written as if it were so, each by a statement that does nothing where it
 * is not:
 *
 *     claim     INSERT, unless the id is there
 *     finish    UPDATE, where it is claimed by this token
 *
 * Clock and birth are read by the same round trip, and the statements reckon with that clock; or,
 * where the database can hold a row to the store's birth, each statement has its own clock and a
 * claim tells it with its count, so that nothing is read at all. An operation whose statement has
 * changed nothing is read and decided like all others; so are those that were counted together with
 * it, which is no harm: of a claim or a finish that was made already the rules say that it is.
 *
 * Where nothing else is in the batch and the engine can, the commit goes with them. It does not
 * wait to hear whether they went well. If one has failed, the others may be committed all the same,
 * and are asked again like the one that was not; each stands for itself.
 */
#include "once/sql_int.h"

#include "once.h"

#define LONG_MS (INT64_MAX / 8) /* a sum of three is in bounds */
#define CLOCK_MS                                                                                   \
    INT64_C(1000000000000) /* in 2001: what a statement tells and is less is no clock */

static bool fits(int64_t ms)
{
    return ms >= 0 && ms < LONG_MS;
}

static bool is_straight(const struct slot *slot)
{
    const struct op *op = slot->op;
    return fits(op->retention_ms) &&
           (op->kind == OP_FINISH || (op->kind == OP_CLAIM && fits(op->expiry_ms)));
}

static enum err add_claim(struct conn *c, struct slot *slot, struct fault *why)
{
    const struct op *op = slot->op;
    struct sql_call *call;
    enum err err = conn_add(c, T_STRAIGHT_CLAIM, slot, &call, why);
    if (err)
        return err;
    call->counted_together = true;
    call_bytes(call, op->id, ONCE_ID_SIZE);
    call_text(call, op->name);
    call_int(call, claim_state(c, op));
    call_int(call, (int64_t)op->token);
    call_int(call, op->expiry_ms);
    call_int(call, op->expiry_ms + op->retention_ms);
    call_int(call, (int64_t)op->fingerprint);
    call_birth(c, call);
    return OK;
}

static enum err add_finish(struct conn *c, struct slot *slot, struct fault *why)
{
    const struct op *op = slot->op;
    struct sql_call *call;
    enum err err = conn_add(c, T_STRAIGHT_FINISH, slot, &call, why);
    if (err)
        return err;
    call->counted_together = true;
    call->many = c->store->texts[T_STRAIGHT_FINISH_MANY];
    call_int(call, op->retention_ms); /* the same as keep_ms() in sql.c */
    call_int(call, op->retention_ms + op->retention_ms / KEEP_LONGER);
    call_int(call, op->retention_ms);
    call_int(call, op->retention_ms);
    call_int(call, ONCE_CONSUMED);
    call_int(call, ONCE_CONSUMING);
    call_int(call, ROW_WATCHED);
    call_bytes(call, op->id, ONCE_ID_SIZE);
    call_int(call, (int64_t)op->token);
    call_birth(c, call);
    return OK;
}

static enum err add_all(struct conn *c, enum op_kind kind, size_t *n, struct fault *why)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < c->n_slots; i++) {
        struct slot *slot = &c->slots[i];
        if (slot->op->kind != kind || !is_straight(slot))
            continue;
        if ((*n)++ == 0 && c->store->texts[T_TICK])
            err = conn_tick(c, why);
        if (!err)
            err = kind == OP_CLAIM ? add_claim(c, slot, why) : add_finish(c, slot, why);
    }
    return err;
}

static enum err add_commit(struct conn *c, size_t n, bool *added, struct fault *why)
{
    struct sql_call *call;
    *added = n == c->n_slots && c->store->texts[T_STRAIGHT_COMMIT];
    if (!*added)
        return OK;
    enum err err = conn_add(c, T_STRAIGHT_COMMIT, NULL, &call, why);
    if (!err)
        call->commits = true;
    return err;
}

/* It was as it nearly always is: the rules say what that means. */
static void settle(struct slot *slot, int64_t now_ms)
{
    struct op *op = slot->op;
    slot->before = (struct stored){.state = ONCE_ABSENT};
    if (op->kind == OP_FINISH)
        slot->before = (struct stored){.state = ONCE_CONSUMING, .token = op->token};
    (void)decide(&slot->before, now_ms, false, op, &slot->after);
    invariant(op->outcome == OUT_OK);
    slot->settled = true;
}

/* With a tick one looks whether the store is still the one that was opened. Without, the database
 * has refused claims of another; what it refused is read, and the reading looks. */
static enum err look(struct conn *c, enum err err, struct fault *why)
{
    if (err && err != ERR_INVALID)
        return err;
    if (c->store->texts[T_TICK]) /* without a birth there is no clock to write */
        return conn_born(c, why) == OK ? err : ERR_STALE;
    if (!err)
        return OK;
    conn_drop(c);
    c->store->engine->rollback(c->sql);
    return c->store->engine->begin(c->sql, true, why);
}

enum err sql_straight(struct conn *c, struct fault *why)
{
    size_t n = 0;
    bool last = false;
    for (size_t i = 0; i < c->n_slots; i++)
        c->slots[i].changed = 0;
    enum err err = add_all(c, OP_CLAIM, &n, why);
    if (!err)
        err = add_all(c, OP_FINISH, &n, why);
    if (n == 0)
        return err;
    if (!err)
        err = add_commit(c, n, &last, why);
    if (!err)
        err = conn_flush(c, why);
    bool written = !err;
    c->committed = last && written;
    err = look(c, err, why);
    bool tick = c->store->texts[T_TICK];
    for (size_t i = 0; written && !err && i < c->n_slots; i++) {
        struct slot *slot = &c->slots[i];
        int64_t now_ms = tick ? c->now_ms : slot->told;
        bool told = now_ms > (tick ? 0 : CLOCK_MS); /* else the fence of a claim is not known */
        if (is_straight(slot) && slot->changed > 0 && (told || slot->op->kind == OP_FINISH))
            settle(slot, now_ms);
        slot->durable = slot->settled && c->committed;
    }
    return err;
}
