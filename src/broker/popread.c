/* popread.c - reading the revive queues: all that is not done with at the start, and later what
 * others have written.
 *
 * At the start every record counts: marks, and what was acknowledged of them, in the order in which
 * it happened. A mark also says how far its group had come, which the file of offsets may not know
 * yet.
 *
 * Later our own records are in memory already and are passed over. Those of somebody else's timers
 * (they have TIMER_OUT_MS) become marks when they appear, a second before their time, and their
 * acknowledgements appear at their time. So such a mark is revived only when what is meant for
 * later has been seen, or when nothing has come for a while.
 */
#include "broker/pop_int.h"

#include <stdlib.h>

#define READ_COUNT  256
#define READ_BYTES  (1u << 20)
#define ROUNDS      64
#define RECORD_SIZE (1u << 20) /* memory to decode one */
#define TIMER_OUT   BYTES("TIMER_OUT_MS")
#define TIMER_FOR   BYTES("TIMER_DELIVER_MS")

struct reading {
    struct broker *b;
    int32_t id;
    bool starting;
    struct arena arena;
    uint64_t skipped;
};

/* ---- what records mean; room: core ---- */

/* The group has come at least to `next` (-1: wherever it is); to `first`, if nothing is known of
 * it. Its settings may have been too new to be saved. */
static struct pop_queue *group_reaches(struct broker *b, const struct mark_record *r, int64_t first,
                                       int64_t next)
{
    struct group_settings set = group_settings_default(r->group);
    struct group *group = group_find(b, r->group);
    if (!group && group_put(b, &set, &group))
        return NULL;
    int64_t now = progress_get(b, r->group, r->topic, r->queue_id);
    struct commit commit = {NULL, r->group, r->topic, r->queue_id, first};
    if (now < 0 && progress_set(b, &commit))
        return NULL;
    struct queue *queue = store_queue_find(b->store, r->topic, r->queue_id);
    struct pop_queue *q = pop_queue_need(b, r->topic, r->group, r->queue_id, queue);
    commit.offset = next;
    if (!q || (next > now && progress_set(b, &commit)))
        return NULL;
    return q;
}

/* The file's offsets do not know of it yet. What they know may be an operator's wish since. */
static bool is_news(const struct reading *read, const struct record *record)
{
    return read->starting && (uint64_t)record->position >= read->b->pop->known;
}

/* A timer brought it, of another broker or of one that was here before: ours are written when they
 * are made. */
static bool is_timed(const struct record *record)
{
    struct bytes value;
    return props_get(record->props, TIMER_OUT, &value);
}

static enum err mark_restore(struct reading *read, const struct mark_record *r,
                             const struct record *record)
{
    struct broker *b = read->b;
    if (r->n == 0 || !topic_find(b, r->topic))
        return OK;                       /* a topic that has been deleted since */
    bool handed_out = r->from_start < 0; /* else it was before, and may be behind the group now */
    int64_t next = handed_out && is_news(read, record) ? r->offsets[r->n - 1] + 1 : -1;
    struct pop_queue *q = group_reaches(b, r, r->start, next);
    if (!q)
        return ERR_NO_MEMORY;
    struct mark *mark = mark_find(b, q, r->start, r->pop_ms);
    if (mark && (mark->writing || mark->reviving))
        return OK; /* somebody is at it, and knows better */
    if (mark)
        mark_free(b, mark); /* what is written later counts */
    struct mark_wish wish = {q, r->start, r->pop_ms, r->invisible_ms, read->id, r->n};
    enum err err = mark_make(b, &wish, false, &mark, NULL);
    if (err)
        return err;
    for (uint32_t i = 0; i < r->n; i++)
        mark->diffs[i] = (uint32_t)(r->offsets[i] - r->start);
    mark_stands(b, mark, record->queue_offset);
    mark->tries = r->tries;
    mark->restored = true;
    mark->foreign = !read->starting || is_timed(record);
    mark_written(b, mark);
    int64_t offset = r->offsets[0];
    struct mark *from = mark_find(b, q, r->from_start, r->from_pop_ms);
    int at = from && from != mark ? mark_index(from, offset) : -1;
    if (at >= 0 && !from->reviving)
        mark_done(b, from, 1u << at); /* what says so itself may not have been written any more */
    return OK;
}

static void acks_restore(struct reading *read, const struct mark_record *r)
{
    struct broker *b = read->b;
    const struct pop_queue *q = pop_queue_find(b, r->topic, r->group, r->queue_id);
    struct mark *mark = q ? mark_find(b, q, r->start, r->pop_ms) : NULL;
    if (!mark || mark->reviving)
        return; /* done with already */
    uint32_t bits = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        int at = mark_index(mark, r->offsets[i]);
        bits |= at < 0 ? 0 : 1u << at;
    }
    mark_done(b, mark, bits);
}

/* What two acknowledgements at the same moment have written may stand in either order. */
static enum err order_restore(struct reading *read, const struct mark_record *r)
{
    struct broker *b = read->b;
    if (!topic_find(b, r->topic))
        return OK;
    struct pop_queue *q = group_reaches(b, r, r->next, r->next);
    if (!q)
        return ERR_NO_MEMORY;
    struct pop_order *order;
    if (r->order && order_read(r->order, &order) == OK)
        order_merge(q, order);
    return OK;
}

/* ---- one record ---- */

static void foreign_seen(struct reading *read, const struct record *record)
{
    struct revive_queue *r = &read->b->pop->revive[read->id];
    struct bytes value;
    int64_t meant_ms;
    r->foreign_ns = clock_ns(read->b->clock);
    if (props_get(record->props, TIMER_FOR, &value) && bytes_to_i64(value, &meant_ms) &&
        meant_ms > r->foreign_ms)
        r->foreign_ms = meant_ms;
}

/* Room: core. ERR_NO_MEMORY: it must be read again. */
static enum err record_take(struct reading *read, const struct record *record)
{
    struct broker *b = read->b;
    room_held(&b->room);
    struct bytes tag = {0};
    bool timed = is_timed(record);
    if (!read->starting && record->queue_offset >= b->pop->revive[read->id].ours && !timed)
        return OK;
    if (timed)
        foreign_seen(read, record);
    (void)props_get(record->props, PROP_TAGS, &tag);
    struct mark_record r;
    arena_reset(&read->arena);
    enum err err = mark_record_read(tag, record->body, &read->arena, &r);
    if (err) {
        read->skipped++;
        return err == ERR_NO_MEMORY ? err : OK;
    }
    if (r.kind == MARK_CK)
        err = mark_restore(read, &r, record);
    else if (r.kind == MARK_ACKS)
        acks_restore(read, &r);
    else if (r.kind == MARK_ORDER && is_news(read, record))
        err = order_restore(read, &r);
    return err;
}

/* Room: core. How many records of a result count; moves the queue's place on. */
static enum err records_take(struct reading *read, const struct read_result *got)
{
    struct revive_queue *r = &read->b->pop->revive[read->id];
    for (size_t i = 0; i < got->n_slices; i++) {
        struct bytes rest = got->slices[i].bytes;
        struct record record;
        while (rest.len > 0 && record_decode(rest, &record) == OK) {
            rest = bytes_from(rest, record.size);
            enum err err = record_take(read, &record);
            if (err)
                return err;
            r->at = record.queue_offset + 1;
        }
    }
    r->at = got->next;
    return OK;
}

/* No key needed: the place is moved by its only reader. False: there is nothing more, or what
 * stands there, which may be a mark, cannot be read just now. */
static bool batch_read(struct broker *b, const struct revive_queue *r, struct read_result *got,
                       enum err *err)
{
    int64_t min = queue_min(b->store, r->queue), at = r->at < min ? min : r->at;
    if (at >= queue_max(r->queue))
        return false;
    struct read_request request = {.offset = at, .max_count = READ_COUNT, .max_bytes = READ_BYTES};
    store_read(b->store, r->queue, &request, got);
    if (got->status == READ_FOUND)
        return true;
    got->n_slices = 0;
    if (got->next <= at)
        *err = ERR_IO;
    return got->next > at; /* what is gone is passed over */
}

static void batch_drop(const struct read_result *got)
{
    for (size_t i = 0; i < got->n_slices; i++)
        counted_drop(got->slices[i].owner);
}

/* No key needed. Whether there is anything but our own. */
static bool batch_is_foreign(const struct read_result *got, int64_t ours)
{
    for (size_t i = 0; i < got->n_slices; i++) {
        struct bytes rest = got->slices[i].bytes;
        struct record record;
        for (; rest.len > 0 && record_decode(rest, &record) == OK;
             rest = bytes_from(rest, record.size))
            if (record.queue_offset < ours || is_timed(&record))
                return true;
    }
    return false;
}

/* ---- the start ---- */

static enum err queue_replay(struct broker *b, int32_t id)
{
    struct revive_queue *r = &b->pop->revive[id];
    int64_t done = progress_get(b, REVIVE_GROUP, bytes_str(b->pop->revive_topic), id);
    r->queue = store_queue_find(b->store, bytes_str(b->pop->revive_topic), id);
    int64_t max = r->queue ? queue_max(r->queue) : 0;
    r->at = done < 0 ? 0 : done + 1 < max ? done + 1 : max;
    r->saved = r->settles = r->at;
    if (!r->queue)
        return OK;
    struct reading read = {.b = b, .id = id, .starting = true};
    arena_init(&read.arena, RECORD_SIZE);
    struct read_result got;
    enum err err = OK;
    while (!err && batch_read(b, r, &got, &err)) {
        err = records_take(&read, &got);
        batch_drop(&got);
    }
    arena_clear(&read.arena);
    r->next = r->ours = r->at;
    return err;
}

/* Room: core. */
enum err pop_replay(struct broker *b, struct fault *why)
{
    room_held(&b->room);
    b->pop->end = b->pop->settles = store_confirmed(b->store);
    for (int32_t i = 0; i < b->pop->n_revive; i++) {
        enum err err = queue_replay(b, i);
        if (err)
            return fault_set(why, err, "reading what was popped before the last stop: %s",
                             err_text(err));
    }
    b->pop->unsettled = b->pop->queues.n > 0;
    return OK;
}

/* ---- others ---- */

/* No key held; the turn. */
void pop_follow(struct broker *b, struct service_turn *out)
{
    for (int32_t i = 0; i < b->pop->n_revive; i++) {
        struct revive_queue *r = &b->pop->revive[i];
        if (!r->queue)
            r->queue = store_queue_find(b->store, bytes_str(b->pop->revive_topic), i);
        if (!r->queue)
            continue;
        struct reading read = {.b = b, .id = i};
        arena_init(&read.arena, RECORD_SIZE);
        struct read_result got;
        enum err err = OK;
        for (int round = 0; !err && round < ROUNDS && batch_read(b, r, &got, &err); round++) {
            bool foreign = batch_is_foreign(&got, r->ours);
            room_enter(&b->room);
            if (foreign)
                err = records_take(&read, &got);
            else
                r->at = got.next;
            room_leave(&b->room);
            batch_drop(&got);
        }
        arena_clear(&read.arena);
        out->skipped += read.skipped;
        if (err)
            out->err = err;
        else if (queue_max(r->queue) > r->at)
            out->next_ms = 0;
    }
}
