/* popack.c - acknowledging messages, and changing for how long they are invisible.
 *
 * Whoever acknowledges shows the handle it got with the message: start and time of a mark. Nothing
 * in a handle is believed; it only finds the mark, and the message must be in it. One that finds
 * nothing may be late, forged, or sent twice. If the group has been there, and by what the handle
 * says itself its time is not up and it is not from before our start, the mark can only have been
 * finished, and the acknowledgement has been done already, unless messages of that time were given
 * another mark since. Otherwise the message comes, or has come, again, and the consumer hears that
 * (Apache's broker says yes to all of them).
 *
 * Between finding the mark and having written the acknowledgement the key is given back; `writing`
 * keeps the mark from being revived meanwhile. Acknowledgements of the same mark in one turn become
 * one record.
 */
#include "broker/pop_int.h"

/* ---- finding; room: core ---- */

static enum err place_check(struct broker *b, struct bytes topic_name, int32_t queue_id,
                            struct queue **out, struct fault *why)
{
    struct topic *topic = topic_find(b, topic_name);
    if (!topic)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist, apply first please!",
                         BRIEF(topic_name));
    if (queue_id < 0 || queue_id >= topic->set.read_queues)
        return fault_set(why, ERR_INVALID,
                         "queueId[%d] is illegal, topic:[%.*s] topicConfig.readQueueNums:[%d]",
                         queue_id, BRIEF(topic_name), topic->set.read_queues);
    *out = topic_queue(b, topic, queue_id);
    return *out ? OK : ERR_NO_MEMORY;
}

/* It was handed out since we are here, and by its own words its time is not up. */
static bool handle_is_young(struct broker *b, const struct handle *h)
{
    int64_t now_ms = clock_ms(b->clock), until;
    return h->pop_ms > b->pop->opened_ms && h->pop_ms <= now_ms &&
           !__builtin_add_overflow(h->pop_ms, h->invisible_ms, &until) && until > now_ms;
}

static enum err handle_late(struct broker *b, int64_t offset, struct fault *why)
{
    b->pop->late++;
    return fault_set(why, ERR_NOT_FOUND,
                     "the message at offset %lld is not in flight by this handle: its time is up, "
                     "and it comes again",
                     (long long)offset);
}

static struct mark *handle_mark(struct broker *b, struct bytes topic, struct bytes group,
                                int32_t queue_id, const struct handle *h)
{
    const struct pop_queue *q = pop_queue_find(b, topic, group, queue_id);
    struct mark *mark = q ? mark_find(b, q, h->start, h->pop_ms) : NULL;
    return mark && mark->written && !mark->reviving ? mark : NULL;
}

/* ---- in order; room: core ---- */

static void ack_in_order(struct broker *b, struct mark_desk *desk, struct ack *a,
                         struct list *woken)
{
    struct pop_queue *q = pop_queue_find(b, a->topic, a->group, a->queue_id);
    int64_t next = -1, until_ms;
    for (uint32_t i = 0; !a->err && i < a->n; i++) {
        int64_t place = progress_get(b, a->group, a->topic, a->queue_id);
        if (a->offsets[i] < place)
            continue; /* done with already */
        a->err = q ? order_ack(b, q, a->offsets[i], a->handle.pop_ms, &next) : ERR_NOT_FOUND;
    }
    if (a->err == ERR_NOT_FOUND)
        a->err = handle_late(b, a->offsets[0], &a->why);
    if (!a->err && next < 0 && q && q->order) { /* it may not be in the log yet */
        int64_t place = progress_get(b, a->group, a->topic, a->queue_id);
        a->err = desk_add_order(b, desk, q, place);
        a->stored = !a->err;
    }
    if (a->err || next < 0)
        return;
    struct commit commit = {NULL, a->group, a->topic, a->queue_id, next};
    if (!progress_was_reset(b, a->group, a->topic, a->queue_id))
        a->err = progress_set(b, &commit);
    if (!a->err)
        a->err = desk_add_order(b, desk, q, next);
    a->stored = !a->err;
    b->pop->acked += a->n;
    if (!order_blocks(b, q, (struct bytes){0}, &until_ms))
        pop_wake_one(b, a->topic, a->group, woken);
}

/* ---- acknowledging ---- */

/* Room: core. Which messages of which mark. */
static void ack_find(struct broker *b, struct ack *a)
{
    struct mark *mark = handle_mark(b, a->topic, a->group, a->queue_id, &a->handle);
    if (!mark) {
        int64_t place = progress_get(b, a->group, a->topic, a->queue_id);
        const struct pop_queue *q = pop_queue_find(b, a->topic, a->group, a->queue_id);
        bool moved = q && a->handle.pop_ms <= q->moved_ms; /* or it may be */
        if (place <= a->offsets[a->n - 1] || moved || !handle_is_young(b, &a->handle))
            a->err = handle_late(b, a->offsets[0], &a->why);
        return;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        int at = mark_index(mark, a->offsets[i]);
        bool gone = at < 0 || (mark->moving | mark->moved) & 1u << at;
        if (gone && !a->lenient) {
            a->err = handle_late(b, a->offsets[i], &a->why);
            return;
        }
        a->bits |= gone ? 0 : 1u << at;
    }
    a->bits &= ~mark->acked;
    if (a->bits == 0)
        return;
    a->mark = mark;
    mark_claim(mark, a->bits, false);
}

/* Room: core. */
static void ack_take(struct broker *b, struct mark_desk *desk, struct ack *a, struct list *woken)
{
    struct queue *queue;
    a->err = place_check(b, a->topic, a->queue_id, &queue, &a->why);
    if (a->err)
        return;
    int64_t min = queue_min(b->store, queue), max = queue_max(queue);
    for (uint32_t i = 0; i < a->n && !a->lenient; i++) {
        if (a->offsets[i] >= min && a->offsets[i] <= max)
            continue;
        a->err = fault_set(
            &a->why, ERR_RANGE, "offset is illegal, key:%.*s@%d, commit:%lld, store:%lld~%lld",
            BRIEF(a->topic), a->queue_id, (long long)a->offsets[i], (long long)min, (long long)max);
        return;
    }
    if (a->n == 0)
        return;
    if (a->handle.revive_id == POP_ORDERED)
        ack_in_order(b, desk, a, woken);
    else
        ack_find(b, a);
}

/* One record for each mark; acknowledgements of the same one mostly stand together. */
static enum err acks_note(struct broker *b, struct mark_desk *desk, struct ack *acks, size_t n)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++) {
        uint32_t bits = 0;
        if (!acks[i].mark || acks[i].stored)
            continue;
        for (size_t k = i; k < n; k++) {
            if (acks[k].mark != acks[i].mark)
                continue;
            bits |= acks[k].bits;
            acks[k].stored = true;
        }
        err = desk_add_acks(b, desk, acks[i].mark, bits);
    }
    return err;
}

/* Room: core. What was done before is as safe as our last record. */
static void ack_done(struct broker *b, struct ack *a, enum err err, uint64_t *end)
{
    if (!a->mark && !a->err && !a->stored) {
        a->stored = true;
        *end = *end > b->pop->end ? *end : b->pop->end;
    }
    if (!a->mark)
        return;
    mark_unclaim(a->mark, 0);
    a->err = err;
    a->stored = !err;
    b->pop->acked += err ? 0 : (uint64_t)__builtin_popcount(a->bits & ~a->mark->acked);
    mark_done(b, a->mark, err ? 0 : a->bits);
}

void broker_ack(struct broker *b, struct mark_desk *desk, struct ack *acks, size_t n, uint64_t *end)
{
    invariant(n <= MARK_DESK_MAX);
    struct list woken;
    list_init(&woken);
    desk->n = 0;
    room_enter(&b->room);
    for (size_t i = 0; i < n; i++) {
        acks[i].err = OK;
        acks[i].stored = false;
        acks[i].mark = NULL;
        acks[i].bits = 0;
        ack_take(b, desk, &acks[i], &woken);
    }
    room_leave(&b->room);

    enum err err = acks_note(b, desk, acks, n);
    if (!err)
        err = desk_write(b, desk, end);
    else
        *end = 0;
    room_enter(&b->room);
    if (!err)
        desk_wrote(b, desk, *end);
    for (size_t i = 0; i < n; i++) {
        if (!acks[i].mark && acks[i].stored && err)
            acks[i].err = err; /* in order: it counts, but not after a crash */
        ack_done(b, &acks[i], err, end);
    }
    room_leave(&b->room);
    holds_wake(&woken);
}

/* ---- changing the time ---- */

/* Room: core. The old mark and the new one. */
static enum err retime_take(struct broker *b, struct retime *r, struct mark **old,
                            struct mark **fresh, struct fault *why)
{
    struct queue *queue;
    enum err err = place_check(b, r->topic, r->queue_id, &queue, why);
    if (err)
        return err;
    if (r->offset < queue_min(b->store, queue) || r->offset >= queue_max(queue))
        return fault_set(why, ERR_RANGE, "there is no message at offset %lld",
                         (long long)r->offset);
    if (r->invisible_ms < 0 || r->invisible_ms > b->set.max_invisible_ms)
        return fault_set(why, ERR_MALFORMED, "invisibleTime is %lld ms, it must be 0 to %lld",
                         (long long)r->invisible_ms, (long long)b->set.max_invisible_ms);
    if (r->handle.revive_id == POP_ORDERED)
        return OK;
    struct mark *mark = handle_mark(b, r->topic, r->group, r->queue_id, &r->handle);
    int at = mark ? mark_index(mark, r->offset) : -1;
    if (at < 0 || (mark->acked | mark->claimed | mark->moving) & 1u << at)
        return handle_late(b, r->offset, why);
    int64_t now_ms = clock_ms(b->clock), later_ms = mark->key.pop_ms + 1;
    struct mark_wish wish = {.queue = mark->queue,
                             .start = r->offset,
                             .pop_ms =
                                 now_ms > later_ms ? now_ms : later_ms, /* a handle of its own */
                             .invisible_ms = r->invisible_ms,
                             .revive_id = mark->revive_id,
                             .n = 1};
    while ((err = mark_make(b, &wish, false, fresh, why)) == ERR_EXISTS)
        wish.pop_ms++;
    if (err)
        return err;
    (*fresh)->diffs[0] = 0;
    mark_claim(mark, 1u << at, true);
    *old = mark;
    r->renewed = (struct handle){r->offset, wish.pop_ms, r->invisible_ms, mark->revive_id};
    return OK;
}

/* Room: core. In order nothing new is handed out; the time is counted from the old one. */
static enum err retime_in_order(struct broker *b, struct retime *r, struct fault *why)
{
    struct pop_queue *q = pop_queue_find(b, r->topic, r->group, r->queue_id);
    int64_t visible_ms = clock_ms(b->clock) + r->invisible_ms;
    enum err err = q ? order_retime(b, q, r->offset, r->handle.pop_ms, visible_ms) : ERR_NOT_FOUND;
    if (err == ERR_NOT_FOUND)
        return handle_late(b, r->offset, why);
    r->renewed = r->handle;
    r->renewed.invisible_ms = visible_ms - r->handle.pop_ms;
    return err;
}

enum err broker_retime(struct broker *b, struct mark_desk *desk, struct retime *r, uint64_t *end,
                       struct fault *why)
{
    struct mark *old = NULL, *fresh = NULL;
    struct list woken;
    list_init(&woken);
    *end = 0;
    room_enter(&b->room);
    enum err err = retime_take(b, r, &old, &fresh, why);
    if (!err && !old) {
        err = retime_in_order(b, r, why);
        pop_wake_one(b, r->topic, r->group, &woken); /* it may become visible sooner */
    }
    room_leave(&b->room);
    holds_wake(&woken);
    if (err || !old)
        return err;

    uint32_t bit = 1u << mark_index(old, r->offset);
    desk->n = 0;
    err = desk_add_ck(b, desk, fresh, old); /* first: half of it must keep the message */
    if (!err)
        err = desk_add_acks(b, desk, old, bit);
    if (!err)
        err = desk_write(b, desk, end);
    room_enter(&b->room);
    mark_unclaim(old, bit);
    if (err)
        mark_free(b, fresh);
    else
        mark_written(b, fresh);
    if (!err)
        desk_wrote(b, desk, *end);
    if (!err)
        mark_moved(old, bit);
    mark_done(b, old, err ? 0 : bit);
    room_leave(&b->room);
    return err ? fault_set(why, err, "the new time cannot be noted: %s", err_text(err)) : OK;
}
