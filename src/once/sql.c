/* sql.c - batches of operations on an SQL store, one transaction each. The model is in sql_int.h.
 */
#include "once/sql_int.h"

#include "once.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- rows ---- */

int64_t add_ms(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

void slot_read(struct slot *slot, const struct sql_value *columns, size_t n)
{
    if (n != 7)
        return;
    int64_t state = slot->row_before = value_int(&columns[1]);
    if (state == ROW_WATCHED)
        state = ONCE_CONSUMING;
    slot->odd = state < ONCE_CONSUMING || state > ONCE_RELEASED;
    slot->before = (struct stored){
        .state = (int)state,
        .token = (uint64_t)value_int(&columns[2]),
        .fence = value_int(&columns[3]),
        .until_ms = value_int(&columns[4]),
        .fingerprint = (uint64_t)value_int(&columns[6]),
    };
    slot->keep_before_ms = value_int(&columns[5]);
}

enum err slot_insert(struct conn *c, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_INSERT, slot, &call, why);
    if (err)
        return err;
    call->many = c->store->texts[T_INSERT_MANY];
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call_text(call, slot->op->name);
    call_int(call, slot->row_after);
    call_int(call, (int64_t)slot->after.token);
    call_int(call, slot->after.fence);
    call_int(call, slot->after.until_ms);
    call_int(call, slot->keep_after_ms);
    call_int(call, (int64_t)slot->after.fingerprint);
    call_birth(c, call);
    return OK;
}

static void where_unchanged(struct sql_call *call, const struct slot *slot)
{
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call_int(call, slot->row_before);
    call_int(call, (int64_t)slot->before.token);
    call_int(call, slot->before.fence);
    call_int(call, slot->before.until_ms);
}

enum err slot_update(struct conn *c, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_UPDATE, slot, &call, why);
    if (err)
        return err;
    call->many = c->store->texts[T_UPDATE_MANY];
    call_int(call, slot->row_after);
    call_int(call, (int64_t)slot->after.token);
    call_int(call, slot->after.fence);
    call_int(call, slot->after.until_ms);
    call_int(call, slot->keep_after_ms);
    call_int(call, (int64_t)slot->after.fingerprint);
    where_unchanged(call, slot);
    return OK;
}

static enum err slot_delete(struct conn *c, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_DELETE, slot, &call, why);
    if (!err)
        where_unchanged(call, slot);
    return err;
}

static enum err slot_put_step(struct conn *c, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_STEP_PUT, slot, &call, why);
    if (err)
        return err;
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call_bytes(call, slot->op->step.at, slot->op->step.len);
    call_bytes(call, slot->op->result.at, slot->op->result.len);
    return OK;
}

/* ---- reading ---- */

static int by_id(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return memcmp(x->op->id, y->op->id, ONCE_ID_SIZE);
}

static bool row_claim(void *user, const struct sql_value *columns, size_t n)
{
    struct conn *c = user;
    if (n == 0 || columns[0].bytes.len != ONCE_ID_SIZE)
        return true;
    size_t low = 0, high = c->n_slots;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(c->slots[middle].op->id, columns[0].bytes.at, ONCE_ID_SIZE) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < c->n_slots; low++) {
        struct slot *slot = &c->slots[low];
        if (memcmp(slot->op->id, columns[0].bytes.at, ONCE_ID_SIZE) != 0)
            break;
        if (!slot->settled)
            slot_read(slot, columns, n);
    }
    return true;
}

/* The result of a step, kept in its operation. Freed by batch_undo if the batch comes to nothing.
 */
static bool row_result(void *user, const struct sql_value *columns, size_t n)
{
    struct slot *slot = user;
    struct bytes result = n == 1 ? columns[0].bytes : (struct bytes){0};
    uint8_t *copy = malloc(result.len + 1);
    slot->found = true;
    slot->odd = !copy;
    if (!copy)
        return false;
    if (result.len)
        memcpy(copy, result.at, result.len);
    slot->op->result = (struct bytes){copy, result.len};
    return false;
}

static bool row_found(void *user, const struct sql_value *columns, size_t n)
{
    struct slot *slot = user;
    slot->found = true;
    return false;
}

static enum err ask_step(struct conn *c, struct slot *slot, struct fault *why)
{
    bool get = slot->op->kind == OP_STEP_GET;
    struct sql_call *call;
    enum err err = conn_add(c, get ? T_STEP_GET : T_STEP_HAS, slot, &call, why);
    if (err)
        return err;
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call_bytes(call, slot->op->step.at, slot->op->step.len);
    call->row = get ? row_result : row_found;
    return OK;
}

/* Whoever puts a step locks the claim first, so that it stays its own until the commit. */
static enum err ask_locked(struct conn *c, struct slot *slot, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, T_READ_LOCKED, NULL, &call, why);
    if (err)
        return err;
    call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    call->row = row_claim;
    call->user = c;
    return ask_step(c, slot, why);
}

/* The rows of up to SQL_READ_IN ids by one statement; what is over repeats the last. */
static enum err ask_rows(struct conn *c, struct slot *const *slots, size_t n, struct fault *why)
{
    struct sql_call *call;
    enum err err = conn_add(c, n == 1 ? T_READ_ONE : T_READ_MANY, NULL, &call, why);
    if (err)
        return err;
    for (size_t i = 0; i < (n == 1 ? 1 : SQL_READ_IN); i++)
        call_bytes(call, slots[i < n ? i : n - 1]->op->id, ONCE_ID_SIZE);
    call->row = row_claim;
    call->user = c;
    return OK;
}

static enum err read_rows(struct conn *c, struct fault *why)
{
    struct slot *many[SQL_READ_IN];
    size_t n = 0;
    enum err err = conn_ask_clock(c, why);
    for (size_t i = 0; !err && i < c->n_slots; i++) {
        struct slot *slot = &c->slots[i];
        if (slot->settled)
            continue;
        slot->before = (struct stored){.state = ONCE_ABSENT};
        slot->row_before = ONCE_ABSENT;
        slot->found = slot->odd = slot->dirty = false;
        slot->changed = 0;
        if (slot->op->kind == OP_STEP_GET) {
            err = ask_step(c, slot, why);
        } else if (slot->op->kind == OP_STEP_PUT) {
            err = ask_locked(c, slot, why);
        } else {
            many[n++] = slot;
            if (n == SQL_READ_IN) {
                err = ask_rows(c, many, n, why);
                n = 0;
            }
        }
    }
    if (!err && n > 0)
        err = ask_rows(c, many, n, why);
    if (!err)
        err = conn_flush(c, why);
    return err ? err : conn_born(c, why);
}

/* ---- deciding ---- */

/* Claims whose process is watched, and that watch others'. */
static bool watches(const struct conn *c, const struct op *op)
{
    return op->kind == OP_CLAIM && op->takeover && store_watches(c->store);
}

static bool is_gone(struct conn *c, const struct slot *slot)
{
    const struct stored *s = &slot->before;
    if (!watches(c, slot->op))
        return false;
    if (slot->row_before != ROW_WATCHED || s->until_ms <= c->now_ms)
        return false;
    if (s->token >> 32 == slot->op->token >> 32)
        return false; /* our own process */
    return c->store->engine->gone(c->sql, (uint32_t)(s->token >> 32));
}

int64_t claim_state(const struct conn *c, const struct op *op)
{
    return watches(c, op) ? ROW_WATCHED : ONCE_CONSUMING;
}

static int64_t row_state(const struct conn *c, const struct slot *slot)
{
    if (slot->after.state != ONCE_CONSUMING)
        return slot->after.state;
    return slot->op->kind == OP_CLAIM ? claim_state(c, slot->op) : slot->row_before;
}

/* From when on the row may be swept. */
static int64_t keep_ms(const struct slot *slot)
{
    const struct stored *after = &slot->after;
    int64_t longer;
    if (after->state == ONCE_CONSUMING && slot->op->kind == OP_CLAIM)
        return add_ms(after->until_ms, slot->op->retention_ms);
    if (after->state == ONCE_CONSUMING) {
        if (__builtin_sub_overflow(slot->keep_before_ms, slot->before.until_ms, &longer) ||
            longer < 0)
            longer = 0;
        return add_ms(after->until_ms, longer);
    }
    /* A claim's row is kept for as long as the mark will be, and its expiry. Where that is hardly
     * longer it stays as it is: an index entry that does not move is half of an UPDATE saved. */
    if (slot->before.state != ONCE_ABSENT &&
        !__builtin_sub_overflow(slot->keep_before_ms, after->until_ms, &longer) && longer >= 0 &&
        longer <= slot->op->retention_ms / KEEP_LONGER)
        return slot->keep_before_ms;
    return after->until_ms;
}

static bool same(const struct slot *slot)
{
    const struct stored *a = &slot->before, *b = &slot->after;
    return slot->row_before == slot->row_after && a->token == b->token && a->fence == b->fence &&
           a->until_ms == b->until_ms && a->fingerprint == b->fingerprint &&
           slot->keep_before_ms == slot->keep_after_ms;
}

static void decide_step(struct slot *slot)
{
    struct op *op = slot->op;
    bool held = slot->before.state == ONCE_CONSUMING && slot->before.token == op->token;
    if (op->kind == OP_STEP_GET)
        op->outcome = slot->found ? OUT_OK : OUT_ABSENT;
    else
        op->outcome = held ? OUT_OK : OUT_LOST;
    slot->dirty = op->kind == OP_STEP_PUT && held && !slot->found;
    slot->settled = !slot->dirty;
}

static enum err decide_slot(struct conn *c, struct slot *slot)
{
    struct op *op = slot->op;
    bool step = op->kind == OP_STEP_GET || op->kind == OP_STEP_PUT;
    if (slot->odd && op->kind == OP_STEP_GET)
        return ERR_NO_MEMORY;
    if (slot->odd && op->kind != OP_FORGET) {
        op->outcome = OUT_FAILED;
        slot->settled = true;
        (void)fault_set(&op->why, ERR_DAMAGED, "the row of %s is none of ours: its state is odd",
                        op->name ? op->name : "this key");
        return OK;
    }
    if (step) {
        decide_step(slot);
        return OK;
    }
    slot->dirty = decide(&slot->before, c->now_ms, is_gone(c, slot), op, &slot->after);
    slot->keep_after_ms = keep_ms(slot);
    slot->row_after = row_state(c, slot);
    slot->dirty = slot->dirty && !same(slot);
    slot->settled = !slot->dirty;
    return OK;
}

/* ---- writing ---- */

static enum err write_slot(struct conn *c, struct slot *slot, struct fault *why)
{
    if (slot->op->kind == OP_STEP_PUT)
        return slot_put_step(c, slot, why);
    if (slot->before.state == ONCE_ABSENT)
        return slot_insert(c, slot, why);
    if (slot->after.state == ONCE_ABSENT)
        return slot_delete(c, slot, why);
    return slot_update(c, slot, why);
}

/* With the row go its steps; a claim over a mark that has ended begins anew. */
static bool deletes(const struct slot *slot)
{
    bool anew = slot->before.state == ONCE_CONSUMED && slot->after.state == ONCE_CONSUMING;
    return slot->dirty && slot->op->kind != OP_STEP_PUT &&
           (slot->after.state == ONCE_ABSENT || anew);
}

/* The commit with the writes, unless the steps of a deleted claim have to go first. */
static enum err add_commit(struct conn *c, bool *added, struct fault *why)
{
    struct sql_call *call;
    *added = c->store->texts[T_COMMIT] != NULL;
    for (size_t i = 0; i < c->n_slots; i++)
        *added = *added && !deletes(&c->slots[i]);
    return *added ? conn_add(c, T_COMMIT, NULL, &call, why) : OK;
}

/* The steps of claims that were deleted. */
static enum err delete_steps(struct conn *c, struct fault *why)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < c->n_slots; i++) {
        struct slot *slot = &c->slots[i];
        if (!deletes(slot) || slot->changed == 0)
            continue;
        struct sql_call *call;
        err = conn_add(c, T_STEPS_DELETE, NULL, &call, why);
        if (!err)
            call_bytes(call, slot->op->id, ONCE_ID_SIZE);
    }
    return err ? err : conn_flush(c, why);
}

static void slot_undo(struct slot *slot)
{
    struct op *op = slot->op;
    if (op->kind == OP_STEP_GET) {
        free((uint8_t *)op->result.at); /* NULL from fill() on, until there is one */
        op->result = (struct bytes){0};
    }
    op->fingerprint = slot->fingerprint;
    op->outcome = OUT_NONE;
}

static enum err write_rows(struct conn *c, struct fault *why)
{
    /* New rows first: an engine may send many of one statement together. */
    enum err err = OK;
    for (int fresh = 1; fresh >= 0; fresh--)
        for (size_t i = 0; !err && i < c->n_slots; i++)
            if (c->slots[i].dirty && (c->slots[i].before.state == ONCE_ABSENT) == fresh)
                err = write_slot(c, &c->slots[i], why);
    bool last = false;
    if (!err)
        err = add_commit(c, &last, why);
    if (!err)
        err = conn_flush(c, why);
    c->committed = last && !err;
    if (!err)
        err = delete_steps(c, why);
    if (err)
        return err;
    for (size_t i = 0; i < c->n_slots; i++) {
        struct slot *slot = &c->slots[i];
        if (slot->dirty) {
            slot->settled = slot->changed > 0;
            slot->dirty = false;
            if (!slot->settled)
                slot_undo(slot); /* another was quicker: once more */
        }
        slot->durable = slot->durable || (c->committed && slot->settled);
    }
    return OK;
}

/* ---- a batch ---- */

static size_t left_of(const struct conn *c)
{
    size_t left = 0;
    for (size_t i = 0; i < c->n_slots; i++)
        left += !c->slots[i].settled;
    return left;
}

/* Reads, decides, writes, until every operation is settled. */
static enum err rounds(struct conn *c, struct fault *why)
{
    for (int round = 0; round < SQL_ROUNDS; round++) {
        if (left_of(c) == 0)
            return OK;
        enum err err = c->committed ? c->store->engine->begin(c->sql, true, why) : OK;
        c->committed = false;
        if (!err)
            err = read_rows(c, why);
        bool dirty = false;
        for (size_t i = 0; !err && i < c->n_slots; i++) {
            if (!c->slots[i].settled)
                err = decide_slot(c, &c->slots[i]);
            dirty |= c->slots[i].dirty;
        }
        if (err || !dirty)
            return err;
        err = write_rows(c, why);
        if (err || left_of(c) == 0)
            return err;
    }
    return fault_set(why, ERR_BUSY, "others were quicker %d times", SQL_ROUNDS);
}

static bool only_reads(const struct conn *c)
{
    for (size_t i = 0; i < c->n_slots; i++)
        if (c->slots[i].op->kind != OP_LOOK && c->slots[i].op->kind != OP_STEP_GET)
            return false;
    return true;
}

static enum err run_batch(struct conn *c, struct fault *why)
{
    const struct sql_engine *engine = c->store->engine;
    qsort(c->slots, c->n_slots, sizeof c->slots[0], by_id);
    bool reads = only_reads(c);
    c->committed = false;
    enum err err = reads ? OK : engine->begin(c->sql, true, why);
    if (!err && c->store->texts[T_STRAIGHT_CLAIM])
        err = sql_straight(c, why);
    if (!err)
        err = rounds(c, why);
    if (!err && !reads && !c->committed)
        err = engine->commit(c->sql, why);
    if (!err)
        return OK;
    conn_drop(c);
    if (!reads)
        engine->rollback(c->sql);
    for (size_t i = 0; i < c->n_slots; i++)
        if (!c->slots[i].durable)
            slot_undo(&c->slots[i]);
    return err;
}

/* What no statement is needed for: a step that cannot be stored. */
static bool refused(struct op *op)
{
    if (op->kind != OP_STEP_GET && op->kind != OP_STEP_PUT)
        return false;
    if (op->step.len > 0 && op->step.len <= ONCE_STEP_MAX &&
        (op->kind == OP_STEP_GET || op->result.len <= ONCE_RESULT_MAX))
        return false;
    op->outcome = OUT_FAILED;
    (void)fault_set(&op->why, ERR_TOO_BIG, "a step has a name of 1 to %d bytes and a result of %d",
                    ONCE_STEP_MAX, ONCE_RESULT_MAX);
    return true;
}

static enum err fill(struct conn *c, struct op *const *ops, size_t n, struct fault *why)
{
    c->n_slots = 0;
    for (size_t i = 0; i < n; i++) {
        struct op *op = ops[i];
        if (op->kind == OP_STEP_GET)
            op->result = (struct bytes){0};
        if (op->kind == OP_SWEEP || refused(op))
            continue;
        c->slots[c->n_slots++] = (struct slot){.op = op, .fingerprint = op->fingerprint};
        if (!watches(c, op) && !(op->kind == OP_RENEW && store_watches(c->store)))
            continue;
        enum err err = store_live(c->store, (uint32_t)(op->token >> 32), why);
        if (err)
            return err;
    }
    return OK;
}

enum err sql_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    invariant(n <= ONCE_OPS_MAX);
    for (size_t i = 0; i < n; i++)
        ops[i]->outcome = OUT_NONE;
    enum err err = conn_fresh(conn, why);
    if (err)
        return err;
    if (conn->store->settings.plain)
        return sql_plain_run(conn, ops, n, why);
    err = fill(conn, ops, n, why);
    if (!err && conn->n_slots > 0)
        err = run_batch(conn, why);
    for (size_t i = 0; !err && i < n; i++)
        if (ops[i]->kind == OP_SWEEP)
            err = sql_sweep(conn, ops[i], why);
    return err;
}
