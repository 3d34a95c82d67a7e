/* wire.c - operations on the ledger and their answers, as bytes. */
#include "ledger/wire.h"

#include "ledger/text_int.h"
#include "once.h"

#define VERSION   1
#define HEAD      4
#define OP_FIXED  (1 + 1 + ONCE_ID_SIZE + 8 + 8 + 8 + 8)
#define OUT_FIXED (1 + 1 + 8 + 8 + 8)

enum op_flag { FLAG_FORGET = 1, FLAG_TAKEOVER = 2 };

static struct bytes text_of(const char *text, size_t max)
{
    return text_cut(bytes_str(text), max);
}

/* ---- asking ---- */

size_t wire_ask_size(struct op *const *ops, size_t n)
{
    size_t size = HEAD;
    for (size_t i = 0; i < n; i++)
        size += OP_FIXED + TEXT_ROOM(ONCE_NAME_MAX) + 2 * TEXT_ROOM(LEDGER_TEXT_MAX) +
                TEXT_ROOM(ONCE_STEP_MAX) + BLOB_ROOM(ops[i]->result.len);
    return size;
}

static void head_write(struct wr *w, size_t n)
{
    wr_u8(w, VERSION);
    wr_u8(w, 0);
    wr_u16(w, (uint16_t)n);
}

void wire_ask_write(struct wr *w, struct op *const *ops, size_t n)
{
    head_write(w, n);
    for (size_t i = 0; i < n; i++) {
        const struct op *op = ops[i];
        bool carries = op->kind == OP_FINISH || op->kind == OP_STEP_PUT;
        wr_u8(w, (uint8_t)op->kind);
        wr_u8(w, (uint8_t)((op->forget ? FLAG_FORGET : 0) | (op->takeover ? FLAG_TAKEOVER : 0)));
        wr_bytes_of(w, bytes_of(op->id, sizeof op->id));
        wr_u64(w, op->token);
        wr_u64(w, op->fingerprint);
        wr_u64(w, (uint64_t)op->expiry_ms);
        wr_u64(w, (uint64_t)op->retention_ms);
        text_write(w, text_of(op->name, ONCE_NAME_MAX));
        text_write(w, text_of(op->topic, LEDGER_TEXT_MAX));
        text_write(w, text_of(op->message, LEDGER_TEXT_MAX));
        text_write(w, text_cut(op->step, ONCE_STEP_MAX));
        blob_write(w, carries ? op->result : (struct bytes){0});
    }
}

static const char *text_at(struct rd *r, size_t max, bool *too_big)
{
    struct bytes text = text_read(r);
    *too_big |= text.len > max;
    return r->bad ? "" : (const char *)text.at;
}

/* OK also when the reader has gone bad: the caller asks it. */
static enum err op_read(struct rd *r, struct op *op)
{
    bool too_big = false;
    op_clear(op);
    op->kind = (enum op_kind)rd_u8(r);
    uint8_t flags = rd_u8(r);
    op->forget = flags & FLAG_FORGET;
    op->takeover = flags & FLAG_TAKEOVER;
    struct bytes id = rd_take(r, ONCE_ID_SIZE);
    if (id.at)
        memcpy(op->id, id.at, sizeof op->id);
    op->token = rd_u64(r);
    op->fingerprint = rd_u64(r);
    op->expiry_ms = (int64_t)rd_u64(r);
    op->retention_ms = (int64_t)rd_u64(r);
    op->name = text_at(r, ONCE_NAME_MAX, &too_big);
    op->topic = text_at(r, LEDGER_TEXT_MAX, &too_big);
    op->message = text_at(r, LEDGER_TEXT_MAX, &too_big);
    op->step = text_read(r);
    op->result = blob_read(r);
    if (r->bad)
        return ERR_MALFORMED;
    if (op->kind >= OP_SWEEP)
        return ERR_UNSUPPORTED;
    size_t result_max = op->kind == OP_STEP_PUT ? ONCE_RESULT_MAX : LEDGER_RESULT_MAX;
    if (too_big || op->step.len > ONCE_STEP_MAX || op->result.len > result_max)
        return ERR_TOO_BIG;
    return OK;
}

static enum err head_read(struct rd *r, size_t *n)
{
    uint8_t version = rd_u8(r);
    (void)rd_u8(r);
    *n = rd_u16(r);
    if (r->bad)
        return ERR_MALFORMED;
    return version == VERSION ? OK : ERR_UNSUPPORTED;
}

enum err wire_ask_read(struct bytes body, struct op *ops, size_t max, size_t *n)
{
    struct rd r = rd_over(body);
    size_t count;
    enum err err = head_read(&r, &count);
    if (!err && count > max)
        err = ERR_TOO_BIG;
    for (size_t i = 0; !err && i < count; i++)
        err = op_read(&r, &ops[i]);
    if (!err && rd_left(&r) > 0)
        err = ERR_MALFORMED;
    if (!err)
        *n = count;
    return err;
}

/* ---- answering ---- */

size_t wire_answer_size(struct op *const *ops, size_t n)
{
    size_t size = HEAD;
    for (size_t i = 0; i < n; i++)
        size += OUT_FIXED + BLOB_ROOM(ops[i]->result.len) + TEXT_ROOM(LEDGER_WHY_MAX);
    return size;
}

static bool brings_result(const struct op *op)
{
    return (op->kind == OP_CLAIM && op->outcome == OUT_DONE) ||
           (op->kind == OP_STEP_GET && op->outcome == OUT_OK);
}

void wire_answer_write(struct wr *w, struct op *const *ops, size_t n)
{
    head_write(w, n);
    for (size_t i = 0; i < n; i++) {
        const struct op *op = ops[i];
        wr_u8(w, (uint8_t)op->outcome);
        wr_u8(w, (uint8_t)op->state);
        wr_u64(w, (uint64_t)op->fence);
        wr_u64(w, (uint64_t)op->left_ms);
        wr_u64(w, op->fingerprint);
        blob_write(w, brings_result(op) ? op->result : (struct bytes){0});
        text_write(w, text_of(op->outcome == OUT_FAILED ? op->why.text : "", LEDGER_WHY_MAX));
    }
}

static enum err outcome_read(struct rd *r, struct op *op)
{
    uint8_t outcome = rd_u8(r), state = rd_u8(r);
    int64_t fence = (int64_t)rd_u64(r), left_ms = (int64_t)rd_u64(r);
    uint64_t fingerprint = rd_u64(r);
    struct bytes result = blob_read(r), why = text_read(r);
    if (r->bad || outcome == OUT_NONE || outcome > OUT_FAILED || state > ONCE_RELEASED ||
        left_ms < 0)
        return ERR_MALFORMED;
    op->outcome = (enum op_outcome)outcome;
    op->state = state;
    op->fence = fence;
    op->left_ms = left_ms;
    if (op->outcome == OUT_DONE)
        op->fingerprint = fingerprint;
    if (brings_result(op))
        op->result = result;
    if (op->outcome == OUT_FAILED)
        (void)fault_set(&op->why, ERR_IO, "%.*s", BYTES_ARG(why));
    return OK;
}

enum err wire_answer_read(struct bytes body, struct op *const *ops, size_t n)
{
    struct rd r = rd_over(body);
    size_t count;
    enum err err = head_read(&r, &count);
    if (!err && count != n)
        err = ERR_MALFORMED;
    for (size_t i = 0; !err && i < n; i++)
        err = outcome_read(&r, ops[i]);
    return !err && rd_left(&r) > 0 ? ERR_MALFORMED : err;
}
