/* txn_end.c - commits and rollbacks, and what an operator takes up again.
 *
 * An end names its half by position and offset. It is looked at without any key; then the core is
 * asked whether the transaction is open, and it is taken; then all commits and one op record go to
 * the log at once; then the entries are removed, or given back if the log refuses.
 *
 * A producer may say the same twice: it tried again, or it was asked although it had answered. The
 * second finds no entry. A commit is then well if the message is there, and a rollback if it is
 * not.
 */
#include "broker/txn_int.h"

#include <stdlib.h>

/* One end on its way. */
struct work {
    struct txn_end *end;
    struct slice slice; /* of the record; no owner: there is none */
    struct record record;
    struct half *half;        /* taken */
    int64_t position, offset; /* of its present copy */
    bool maybe_ended;
    bool stores; /* its message is among the drafts */
};

static void work_drop(struct work *w)
{
    if (w->slice.owner)
        counted_drop(w->slice.owner);
    w->slice.owner = NULL;
}

/* ---- looking ---- */

static enum err work_read(struct broker *b, struct work *w, int64_t position)
{
    work_drop(w);
    enum err err = position < 0 ? ERR_NOT_FOUND : store_read_at(b->store, position, &w->slice);
    if (err)
        w->slice.owner = NULL;
    if (!err)
        err = record_decode(w->slice.bytes, &w->record);
    if (err || !record_is_half(&w->record) || w->record.position != position)
        return fault_set(&w->end->why, ERR_NOT_FOUND,
                         "Find prepared transaction message failed: there is none at position "
                         "%lld",
                         (long long)position);
    return OK;
}

/* Whether what the producer calls it is what it is called. After a power loss the place may be
 * another's. Some clients send nothing, or the offset id. */
static bool id_fits(const struct txn_end *end, const struct record *half)
{
    struct bytes key = {0};
    char id[ID_TEXT_MAX];
    size_t len = id_format(&half->store_host, half->position, id);
    (void)props_get(half->props, PROP_UNIQ_KEY, &key);
    const struct bytes *given = end->transaction_id.len ? &end->transaction_id : &end->msg_id;
    return given->len == 0 || bytes_equal(*given, key) || bytes_equal(end->msg_id, key) ||
           bytes_equal(*given, bytes_of(id, len));
}

/* Witness for order and words: EndTransactionProcessor.checkPrepareMessage and
 * rejectCommitOrRollback. */
static enum err work_look(struct broker *b, struct work *w)
{
    struct txn_end *end = w->end;
    enum err err = work_read(b, w, end->position);
    if (err)
        return err;
    struct bytes group = {0};
    (void)props_get(w->record.props, PROP_PGROUP, &group);
    if (end->group.len == 0 || !bytes_equal(group, end->group))
        return fault_set(&end->why, ERR_INVALID, "The producer group wrong");
    if (w->record.queue_offset != end->offset)
        return fault_set(&end->why, ERR_INVALID, "The transaction state table offset wrong");
    if (!id_fits(end, &w->record))
        return fault_set(&end->why, ERR_INVALID,
                         "The transaction id wrong: another message is at position %lld",
                         (long long)end->position);
    struct half half = {0};
    half_read(&w->record, &half);
    if (!end->checked && half.immunity_s > 0 &&
        clock_ms(b->clock) - half.first_ms > half_immunity_ms(b, &half))
        return fault_set(&end->why, ERR_STALE,
                         "too late: the time that its producer had wanted "
                         "(CHECK_IMMUNITY_TIME_IN_SECONDS) is over, the answer to a check decides");
    return OK;
}

/* Room: core. */
static enum err work_take(struct broker *b, struct work *w)
{
    room_held(&b->room);
    struct half *half = half_find(b->txn, record_root(&w->record));
    if (!half)
        return OK; /* it has ended */
    if (half->taken)
        return fault_set(&w->end->why, ERR_BUSY,
                         "this transaction is being ended or asked for at this moment; try again");
    half->taken = true;
    w->half = half;
    w->position = half->position;
    w->offset = half->offset;
    w->maybe_ended = half->maybe_ended;
    return OK;
}

/* ---- deciding ---- */

static enum err work_repeated(struct broker *b, struct work *w)
{
    struct txn_end *end = w->end;
    bool committed = half_committed(b, &w->record);
    if (end->commits == committed)
        return OK;
    return committed
               ? fault_set(&end->why, ERR_INVALID,
                           "this transaction was committed before and cannot be rolled back")
               : fault_set(&end->why, ERR_INVALID,
                           "this transaction is not open: it was rolled back, or it was given up "
                           "and is in TRANS_CHECK_MAX_TIME_TOPIC");
}

/* Adds the message to the drafts, unless it is there already. */
static enum err work_commit(struct broker *b, struct desk *desk, struct work *w)
{
    if (w->position != w->end->position) {
        enum err err = work_read(b, w, w->position);
        if (err)
            return err;
    }
    if (w->maybe_ended && half_committed(b, &w->record))
        return OK;
    size_t size = w->record.props.len + TXN_COPY_TEXT;
    if (size > wr_room(&desk->w))
        return fault_set(&w->end->why, ERR_NO_MEMORY, "no memory to prepare the message");
    struct wr props = wr_over(desk->w.at, wr_room(&desk->w));
    enum err err = commit_draft(b, &w->record, &props, &desk->drafts[desk->n], &w->end->why);
    if (err)
        return err;
    desk->w.at = props.at;
    desk->n++;
    w->stores = true;
    return OK;
}

/* ---- storing ---- */

static void works_fail(struct broker *b, struct work *works, size_t n, enum err err)
{
    struct fault state = {0};
    (void)store_state(b->store, &state);
    for (size_t i = 0; i < n; i++)
        if (works[i].half && !works[i].end->err)
            works[i].end->err =
                fault_set(&works[i].end->why, err, "the transaction was not ended: %s",
                          state.text[0] ? state.text : err_text(err));
}

/* All commits and one op record. The op record is the last: see txn.c. */
static void works_store(struct broker *b, struct desk *desk, struct work *works, size_t n,
                        uint64_t *end)
{
    uint8_t text[OP_TEXT];
    struct wr ops = wr_over(text, sizeof text);
    for (size_t i = 0; i < n; i++)
        if (works[i].half && !works[i].end->err)
            ops_add(&ops, works[i].offset);
    if (wr_len(&ops) == 0)
        return;
    struct draft *op = &desk->drafts[desk->n++];
    op_draft(b, wr_bytes(&ops), op);
    uint64_t upto;
    enum err err = op->queue ? store_append(b->store, desk->drafts, desk->n, desk->stored, &upto)
                             : ERR_NO_MEMORY;
    if (err) {
        works_fail(b, works, n, err);
        return;
    }
    for (size_t i = 0; i < desk->n; i++)
        invariant(desk->stored[i].err == OK); /* draft_check has seen that each fits */
    *end = upto > *end ? upto : *end;
}

/* Room: core. */
static void works_settle(struct broker *b, const struct desk *desk, struct work *works, size_t n,
                         uint64_t end)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    if (end > 0)
        txn_stored(t, &desk->stored[desk->n - 1], end);
    for (size_t i = 0; i < n; i++) {
        struct work *w = &works[i];
        if (!w->half)
            continue;
        if (w->end->err) {
            w->half->taken = false;
            continue;
        }
        half_end(t, w->half);
        t->committed += w->end->commits;
        t->rolled_back += !w->end->commits;
    }
}

static bool works_prepare(struct desk *desk, const struct work *works, size_t n)
{
    size_t text = 0;
    for (size_t i = 0; i < n; i++)
        if (!works[i].end->err)
            text += works[i].record.props.len + 2 * TXN_COPY_TEXT;
    return desk_clear(desk, n + 1, text);
}

static void works_run(struct broker *b, struct desk *desk, struct work *works, size_t n,
                      uint64_t *end)
{
    bool fits = works_prepare(desk, works, n);
    room_enter(&b->room);
    for (size_t i = 0; i < n; i++)
        if (!works[i].end->err)
            works[i].end->err = fits ? work_take(b, &works[i]) : ERR_NO_MEMORY;
    room_leave(&b->room);

    uint64_t upto = 0;
    for (size_t i = 0; i < n; i++) {
        struct work *w = &works[i];
        if (w->end->err)
            continue;
        if (!w->half)
            w->end->err = work_repeated(b, w);
        else if (w->end->commits)
            w->end->err = work_commit(b, desk, w);
    }
    if (fits)
        works_store(b, desk, works, n, &upto);

    room_enter(&b->room);
    works_settle(b, desk, works, n, upto);
    room_leave(&b->room);
    *end = upto > *end ? upto : *end;
}

void broker_txn_end(struct broker *b, struct desk *desk, struct txn_end *ends, size_t n,
                    uint64_t *end)
{
    *end = 0;
    for (size_t first = 0; first < n; first += TXN_BATCH) {
        struct work works[TXN_BATCH];
        size_t count = n - first < TXN_BATCH ? n - first : TXN_BATCH;
        for (size_t i = 0; i < count; i++) {
            works[i] = (struct work){.end = &ends[first + i]};
            works[i].end->why.text[0] = 0;
            works[i].end->err = work_look(b, &works[i]);
        }
        works_run(b, desk, works, count, end);
        for (size_t i = 0; i < count; i++)
            work_drop(&works[i]);
    }
}

/* ---- taking up again ---- */

/* A half that was given up, or one that is open. Its place in its queue is looked at, because an id
 * names any bytes of the log. */
static enum err resume_read(struct broker *b, int64_t position, struct slice *slice,
                            struct record *record, struct fault *why)
{
    enum err err = position < 0 ? ERR_NOT_FOUND : store_read_at(b->store, position, slice);
    if (err)
        return fault_set(why, ERR_NOT_FOUND, "no message is at position %lld", (long long)position);
    err = record_decode(slice->bytes, record);
    bool here = !err && record->position == position &&
                (record_is_half(record) || bytes_equal(record->topic, GIVEN_UP_TOPIC));
    struct queue *queue = here ? store_queue_find(b->store, record->topic, record->queue_id) : NULL;
    struct read_result read = {.status = READ_EMPTY};
    if (queue)
        store_read(b->store, queue,
                   &(struct read_request){.offset = record->queue_offset, .max_count = 1}, &read);
    struct record there;
    here = read.status == READ_FOUND && !record_decode(read.slices[0].bytes, &there) &&
           there.position == position;
    for (size_t i = 0; read.status == READ_FOUND && i < read.n_slices; i++)
        counted_drop(read.slices[i].owner);
    if (here)
        return OK;
    counted_drop(slice->owner);
    return fault_set(why, ERR_NOT_FOUND,
                     "the message at position %lld is neither a half nor one that was given up",
                     (long long)position);
}

/* Room: core. Takes the transaction, or makes an entry for it. */
static enum err resume_take(struct broker *b, const struct record *record, struct half **out,
                            int64_t *old, struct fault *why)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    struct half *half = half_find(t, record_root(record));
    *old = -1;
    if (half && half->taken)
        return fault_set(why, ERR_BUSY, "this transaction is being ended at this moment");
    if (!half && record_is_half(record))
        return fault_set(why, ERR_INVALID,
                         "this transaction has ended, or its message is in "
                         "TRANS_CHECK_MAX_TIME_TOPIC: name it there");
    if (half) {
        *old = half->offset;
        half->taken = true;
        *out = half;
        return OK;
    }
    enum err err = half_make(t, out);
    if (!err && t->expected++ == 0)
        t->expected_from = t->next;
    return err;
}

/* Room: core. */
static void resume_settle(struct broker *b, const struct record *record, struct half *half,
                          int64_t old, const struct desk *desk, uint64_t end)
{
    room_held(&b->room);
    struct txn *t = b->txn;
    const struct stored *copy = desk->stored;
    if (old < 0)
        t->expected--;
    half->taken = false;
    if (end == 0) {
        if (old < 0)
            free(half);
        return;
    }
    half->checks = 0;
    if (old >= 0) {
        txn_stored(t, &copy[1], end);
        half_place(t, half, copy->position, copy->queue_offset, copy->store_ms);
        return;
    }
    half_read(record, half);
    half->checks = 0;
    half->maybe_ended = true;
    half->position = copy->position;
    half->offset = copy->queue_offset;
    half->first_ms = half->copied_ms = copy->store_ms; /* it has all its time again */
    half_add(t, half);
}

/* One more copy, with no questions counted, and an op record for the one before if there is one. */
static enum err resume_store(struct broker *b, struct desk *desk, const struct record *record,
                             int64_t old, uint64_t *end, struct fault *why)
{
    uint8_t text[OP_TEXT];
    struct wr ops = wr_over(text, sizeof text);
    enum err err = half_draft(b, record, HALF_TOPIC, 0, &desk->w, &desk->drafts[desk->n++], why);
    if (!err && old >= 0) {
        ops_add(&ops, old);
        op_draft(b, wr_bytes(&ops), &desk->drafts[desk->n++]);
    }
    if (!err && !desk->drafts[desk->n - 1].queue)
        err = ERR_NO_MEMORY;
    return err ? err : store_append(b->store, desk->drafts, desk->n, desk->stored, end);
}

static enum err resume_run(struct broker *b, struct desk *desk, const struct record *record,
                           uint64_t *end, struct fault *why)
{
    struct half *half = NULL;
    int64_t old = -1;
    uint64_t upto = 0;
    if (half_committed(b, record))
        return fault_set(why, ERR_INVALID, "this transaction was committed before");
    if (!desk_clear(desk, 2, record->props.len + TXN_COPY_TEXT))
        return ERR_NO_MEMORY;
    room_enter(&b->room);
    enum err err = resume_take(b, record, &half, &old, why);
    room_leave(&b->room);
    if (err)
        return err;
    err = resume_store(b, desk, record, old, &upto, why);
    room_enter(&b->room);
    resume_settle(b, record, half, old, desk, err ? 0 : upto);
    room_leave(&b->room);
    if (!err)
        *end = upto;
    return err;
}

enum err broker_txn_resume(struct broker *b, struct desk *desk, int64_t position, uint64_t *end,
                           struct fault *why)
{
    struct slice slice;
    struct record record;
    enum err err = resume_read(b, position, &slice, &record, why);
    if (err)
        return err;
    err = resume_run(b, desk, &record, end, why);
    counted_drop(slice.owner);
    return err;
}
