/* trace.c - trace records as Java's TraceDataEncoder writes and reads them. */
#include "client/parts_int.h"

#include <inttypes.h>

#define FIELD_END  1
#define RECORD_END 2

void trace_init(struct trace_batch *t)
{
    *t = (struct trace_batch){.body = buf_upto(TRACE_BODY_MAX), .keys = buf_upto(TRACE_KEYS_MAX)};
}

void trace_clear(struct trace_batch *t)
{
    buf_clear(&t->body);
    buf_clear(&t->keys);
    t->n = 0;
}

static void cut_back(struct trace_batch *t, size_t body_len, size_t keys_len)
{
    t->body.len = body_len;
    t->keys.len = keys_len;
    t->body.err = t->keys.err = OK;
}

void trace_reset(struct trace_batch *t)
{
    cut_back(t, 0, 0);
    t->n = 0;
}

/* ---- the body ---- */

static void add_text(struct buf *b, struct bytes text)
{
    if (text.len == 0)
        text = BYTES("null");
    uint8_t *to = buf_space(b, text.len + 1);
    if (!to)
        return;
    for (size_t i = 0; i < text.len; i++)
        to[i] = text.at[i] == FIELD_END || text.at[i] == RECORD_END ? ' ' : text.at[i];
    to[text.len] = FIELD_END;
}

static void add_number(struct buf *b, int64_t n)
{
    char digits[24];
    struct wr w = wr_over(digits, sizeof digits);
    wr_i64(&w, n);
    add_text(b, wr_bytes(&w));
}

static void add_truth(struct buf *b, bool truth)
{
    add_text(b, truth ? BYTES("true") : BYTES("false"));
}

/* Time, region, group: the beginning of all but SubAfter. */
static void add_origin(struct buf *b, const struct trace_record *r)
{
    add_number(b, r->time_ms);
    add_text(b, r->region);
    add_text(b, r->group);
}

static void add_message(struct buf *b, const struct trace_record *r)
{
    add_text(b, r->topic);
    add_text(b, r->id);
    add_text(b, r->tags);
    add_text(b, r->keys);
    add_text(b, r->store_host);
}

static void add_pub(struct buf *b, const struct trace_record *r)
{
    add_text(b, BYTES("Pub"));
    add_origin(b, r);
    add_message(b, r);
    add_number(b, r->body_size);
    add_number(b, r->cost_ms);
    add_number(b, r->type);
    add_text(b, r->offset_id);
    add_truth(b, r->success);
}

static void add_before(struct buf *b, const struct trace_record *r)
{
    add_text(b, BYTES("SubBefore"));
    add_origin(b, r);
    add_text(b, r->request_id);
    add_text(b, r->id);
    add_number(b, r->retry);
    add_text(b, r->keys);
}

static void add_after(struct buf *b, const struct trace_record *r)
{
    add_text(b, BYTES("SubAfter"));
    add_text(b, r->request_id);
    add_text(b, r->id);
    add_number(b, r->cost_ms);
    add_truth(b, r->success);
    add_text(b, r->keys);
    add_number(b, r->result);
    add_number(b, r->time_ms);
    add_text(b, r->group);
}

static void add_end_transaction(struct buf *b, const struct trace_record *r)
{
    static const char *const states[] = {
        [TRACE_COMMITTED] = "COMMIT_MESSAGE",
        [TRACE_ROLLED_BACK] = "ROLLBACK_MESSAGE",
        [TRACE_UNDECIDED] = "UNKNOW",
    };
    add_text(b, BYTES("EndTransaction"));
    add_origin(b, r);
    add_message(b, r);
    add_number(b, r->type);
    add_text(b, r->transaction);
    add_text(b, bytes_str(states[r->state]));
    add_truth(b, r->from_check);
}

static void add_recall(struct buf *b, const struct trace_record *r)
{
    add_text(b, BYTES("Recall"));
    add_origin(b, r);
    add_text(b, r->topic);
    add_text(b, r->id);
    add_truth(b, r->success);
}

static enum err add_record(struct buf *b, const struct trace_record *r)
{
    static void (*const adds[])(struct buf * b, const struct trace_record *r) = {
        [TRACE_PUB] = add_pub,         [TRACE_SUB_BEFORE] = add_before,
        [TRACE_SUB_AFTER] = add_after, [TRACE_END_TRANSACTION] = add_end_transaction,
        [TRACE_RECALL] = add_recall,
    };
    adds[r->kind](b, r);
    if (!b->err)
        b->at[b->len - 1] = RECORD_END;
    return b->err;
}

/* ---- the keys ---- */

/* The next word of a text with blanks, which loses it; empty: there is none. What would end a
 * property ends a word. */
static struct bytes word_next(struct bytes *rest)
{
    size_t start = 0, end;
    while (start < rest->len && rest->at[start] <= ' ')
        start++;
    for (end = start; end < rest->len && rest->at[end] > ' ';)
        end++;
    struct bytes word = bytes_of(rest->at + start, end - start);
    *rest = bytes_from(*rest, end);
    return word;
}

static bool has_word(struct bytes words, struct bytes wanted)
{
    for (struct bytes word; (word = word_next(&words)).len > 0;)
        if (bytes_equal(word, wanted))
            return true;
    return false;
}

static enum err add_words(struct buf *keys, struct bytes words)
{
    for (struct bytes word; (word = word_next(&words)).len > 0;) {
        if (has_word(buf_bytes(keys), word))
            continue;
        uint8_t *to = buf_space(keys, word.len + (keys->len > 0));
        if (!to)
            return keys->err;
        if (to > keys->at)
            *to++ = ' ';
        memcpy(to, word.at, word.len);
    }
    return OK;
}

static bool has_keys(enum trace_kind kind)
{
    return kind != TRACE_RECALL;
}

enum err trace_add(struct trace_batch *t, const struct trace_record *r)
{
    size_t body_len = t->body.len, keys_len = t->keys.len;
    enum err err = add_record(&t->body, r);
    if (!err)
        err = add_words(&t->keys, r->id);
    if (!err && has_keys(r->kind))
        err = add_words(&t->keys, r->keys);
    if (err == ERR_TOO_BIG && t->n == 0 && t->body.err == OK)
        err = t->keys.err = OK; /* it may be found by those that did fit */
    if (err)
        cut_back(t, body_len, keys_len);
    else
        t->n++;
    return err;
}
