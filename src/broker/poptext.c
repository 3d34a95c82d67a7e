/* poptext.c - the records of the revive topic: marks, acknowledgements, and the desk on which they
 * are written.
 *
 * A record's TAGS say what it is, its body is JSON with Apache's short names (PopCheckPoint,
 * AckMsg, BatchAckMsg of 5.5.0). TIMER_DELIVER_MS is the time at which it was written. Apache's own
 * records have the time for which they were meant there, and its reviver takes the latest it has
 * seen for the present; with the time of writing it goes on from our folder without reviving
 * anything early. A mark that takes a message over from another names that one ("fs", "fp", ours
 * alone), so that half of the write is as good as the whole. They have no UNIQ_KEY: nobody looks
 * for them, and each would be an entry of the index.
 */
#include "broker/pop_int.h"

#include "base/crc32.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

#define DIFF_MAX INT32_MAX

/* ---- reading ---- */

static int64_t number(const struct json *doc, const char *name, const char *long_name)
{
    const struct json *node = json_member(doc, name);
    return json_int(node ? node : json_member(doc, long_name), -1);
}

static struct bytes text(const struct json *doc, const char *name, const char *long_name)
{
    const struct json *node = json_member(doc, name);
    return json_text(node ? node : json_member(doc, long_name), (struct bytes){0});
}

/* Messages by their distance from the start; none named: one after the other, as 4.9 meant it. */
static enum err ck_offsets(const struct json *doc, struct mark_record *out)
{
    int64_t n = number(doc, "n", "num");
    const struct json *diffs = json_member(doc, "d");
    bool listed = diffs && diffs->type == JSON_ARRAY && diffs->n > 0;
    if (listed)
        n = diffs->n > POP_MAX ? -1 : (int64_t)diffs->n;
    if (n < 0 || n > POP_MAX)
        return ERR_TOO_BIG;
    for (; !listed && out->n < n; out->n++)
        out->offsets[out->n] = out->start + out->n;
    json_each(node, listed ? diffs : NULL) {
        int64_t diff = json_int(node, -1);
        bool rises = out->n == 0 || out->start + diff > out->offsets[out->n - 1];
        if (diff < 0 || diff > DIFF_MAX || !rises)
            return ERR_MALFORMED;
        out->offsets[out->n++] = out->start + diff;
    }
    return OK;
}

static enum err ack_offsets(const struct json *doc, bool many, struct mark_record *out)
{
    const struct json *list = json_member(doc, "aol");
    if (!list)
        list = json_member(doc, "ackOffsetList");
    if (!many) {
        out->offsets[out->n++] = number(doc, "ao", "ackOffset");
        return out->offsets[0] < 0 ? ERR_MALFORMED : OK;
    }
    if (!list || list->type != JSON_ARRAY)
        return ERR_MALFORMED;
    if (list->n > POP_MAX)
        return ERR_TOO_BIG;
    json_each(node, list)
        out->offsets[out->n++] = json_int(node, -1);
    return OK;
}

static bool in_sane_bounds(const struct mark_record *r)
{
    const int64_t far = INT64_MAX / 4;
    return r->topic.len > 0 && r->topic.len <= NAME_MAX_ANY && r->group.len > 0 &&
           r->group.len <= NAME_MAX_ANY && r->queue_id >= 0 && r->queue_id < QUEUES_MAX &&
           r->start >= 0 && r->start < far && r->pop_ms >= 0 && r->pop_ms < far &&
           r->invisible_ms > -far && r->invisible_ms < far && r->next >= 0 && r->next < far;
}

enum err mark_record_read(struct bytes tag, struct bytes body, struct arena *arena,
                          struct mark_record *out)
{
    static const struct {
        struct bytes tag;
        enum mark_kind kind;
    } kinds[] = {{{(const uint8_t *)"ck", 2}, MARK_CK},
                 {{(const uint8_t *)"ack", 3}, MARK_ACKS},
                 {{(const uint8_t *)"bAck", 4}, MARK_ACKS},
                 {{(const uint8_t *)"order", 5}, MARK_ORDER}};
    struct mark_record r = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (bytes_equal(tag, kinds[i].tag))
            r.kind = kinds[i].kind;
    if (r.kind == MARK_NONE) {
        *out = r;
        return OK;
    }
    const struct json *doc;
    enum err err = json_parse(body, arena, &doc, NULL);
    if (err || doc->type != JSON_OBJECT)
        return err ? err : ERR_MALFORMED;
    r.topic = text(doc, "t", "topic");
    r.group = text(doc, "c", "consumerGroup");
    int64_t queue_id = number(doc, "q", "queueId");
    r.queue_id = queue_id < 0 || queue_id > INT32_MAX ? -1 : (int32_t)queue_id;
    bool is_hand = r.kind == MARK_CK || r.kind == MARK_ACKS;
    r.start = is_hand ? number(doc, "so", "startOffset") : 0;
    r.pop_ms = is_hand ? number(doc, "pt", "popTime") : 0;
    r.invisible_ms = r.kind == MARK_CK ? json_int(json_member(doc, "it"), 0) : 0;
    r.next = is_hand ? 0 : number(doc, "o", "o");
    r.from_start = number(doc, "fs", "fs");
    r.from_pop_ms = number(doc, "fp", "fp");
    int64_t tries = json_int(json_member(doc, "rp"), 0);
    r.tries = tries < 0 || tries > 127 ? 127 : (int32_t)tries;
    r.order = json_member(doc, "oi");
    if (!in_sane_bounds(&r))
        return ERR_MALFORMED;
    if (r.kind == MARK_CK)
        err = ck_offsets(doc, &r);
    else if (r.kind == MARK_ACKS)
        err = ack_offsets(doc, bytes_equal(tag, TAG_BATCH), &r);
    if (!err)
        *out = r;
    return err;
}

/* ---- the desk ---- */

enum err mark_desk_open(struct mark_desk **out)
{
    struct mark_desk *d = calloc(1, sizeof *d);
    if (!d)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < MARK_DESK_MAX; i++)
        d->notes[i].body = buf_upto(MARK_TEXT_MAX);
    *out = d;
    return OK;
}

void mark_desk_close(struct mark_desk *d)
{
    for (size_t i = 0; d && i < MARK_DESK_MAX; i++)
        buf_clear(&d->notes[i].body);
    free(d);
}

static struct json_out note_begin(struct mark_desk *d, int32_t revive_id)
{
    invariant(d->n < MARK_DESK_MAX);
    struct mark_note *note = &d->notes[d->n];
    note->body.len = 0;
    note->body.err = OK;
    note->revive_id = revive_id;
    return (struct json_out){.buf = &note->body};
}

/* Finishes what note_begin began. */
static enum err note_end(struct broker *b, struct mark_desk *d, const char *tag)
{
    struct mark_note *note = &d->notes[d->n];
    if (note->body.err)
        return note->body.err;
    int64_t now_ms = clock_ms(b->clock);
    int props = snprintf(note->props, sizeof note->props, "TAGS\1%s\2TIMER_DELIVER_MS\1%lld\2", tag,
                         (long long)now_ms);
    struct bytes topic = bytes_str(b->pop->revive_topic), body = buf_bytes(&note->body);
    struct draft *draft = &d->drafts[d->n];
    *draft = (struct draft){
        .queue = store_queue(b->store, topic, note->revive_id),
        .topic = topic,
        .body = body,
        .props = bytes_of(note->props, (size_t)props),
        .body_crc = crc32_positive(body),
        .queue_id = note->revive_id,
        .born_ms = now_ms,
        .born_host = b->set.host,
        .store_host = b->set.host,
    };
    if (!draft->queue)
        return ERR_NO_MEMORY;
    d->n++;
    return OK;
}

static void names_put(struct broker *b, struct json_out *w, const struct pop_queue *q)
{
    json_text_member(w, "bn", bytes_str(b->set.name));
    json_text_member(w, "c", q->group);
}

enum err desk_add_ck(struct broker *b, struct mark_desk *d, const struct mark *mark,
                     const struct mark *from)
{
    struct json_out w = note_begin(d, mark->revive_id);
    json_open(&w);
    json_int_member(&w, "bm", 0);
    names_put(b, &w, mark->queue);
    json_key(&w, "d");
    json_open_array(&w);
    for (uint32_t i = 0; i < mark->n; i++)
        json_put_int(&w, mark->diffs[i]);
    json_close_array(&w);
    if (from) {
        json_int_member(&w, "fp", from->key.pop_ms);
        json_int_member(&w, "fs", from->key.start);
    }
    json_int_member(&w, "it", mark->invisible_ms);
    json_int_member(&w, "n", mark->n);
    json_int_member(&w, "pt", mark->key.pop_ms);
    json_int_member(&w, "q", mark->queue->queue_id);
    json_int_member(&w, "reviveTime", mark->key.pop_ms + mark->invisible_ms);
    json_int_member(&w, "ro", 0);
    json_int_member(&w, "so", mark->key.start);
    json_text_member(&w, "t", mark->queue->topic);
    json_close(&w);
    return note_end(b, d, "ck");
}

enum err desk_add_acks(struct broker *b, struct mark_desk *d, const struct mark *mark,
                       uint32_t bits)
{
    bool one = (bits & (bits - 1)) == 0;
    struct json_out w = note_begin(d, mark->revive_id);
    json_open(&w);
    json_int_member(&w, "ao", one ? mark->key.start + mark->diffs[__builtin_ctz(bits)] : -1);
    if (!one) {
        json_key(&w, "aol");
        json_open_array(&w);
        for (uint32_t i = 0; i < mark->n; i++)
            if (bits & 1u << i)
                json_put_int(&w, mark->key.start + mark->diffs[i]);
        json_close_array(&w);
    }
    names_put(b, &w, mark->queue);
    json_int_member(&w, "pt", mark->key.pop_ms);
    json_int_member(&w, "q", mark->queue->queue_id);
    json_int_member(&w, "so", mark->key.start);
    json_text_member(&w, "t", mark->queue->topic);
    json_close(&w);
    return note_end(b, d, one ? "ack" : "bAck");
}

enum err desk_add_order(struct broker *b, struct mark_desk *d, const struct pop_queue *q,
                        int64_t next)
{
    struct json_out w = note_begin(d, revive_id_of(b, q->topic, q->group));
    json_open(&w);
    names_put(b, &w, q);
    json_int_member(&w, "o", next);
    json_key(&w, "oi");
    order_write(q->order, &w);
    json_int_member(&w, "q", q->queue_id);
    json_text_member(&w, "t", q->topic);
    json_close(&w);
    return note_end(b, d, "order");
}

enum err desk_write(struct broker *b, struct mark_desk *d, uint64_t *end)
{
    *end = 0;
    if (d->n == 0)
        return OK;
    enum err err = store_append(b->store, d->drafts, d->n, d->stored, end);
    for (size_t i = 0; !err && i < d->n; i++)
        err = d->stored[i].err; /* none is: they are small */
    return err;
}

/* Room: core. */
void desk_wrote(struct broker *b, const struct mark_desk *d, uint64_t end)
{
    room_held(&b->room);
    for (size_t i = 0; i < d->n; i++)
        pop_wrote(b, d->notes[i].revive_id, d->stored[i].queue_offset, end);
}
