/* pop.c - POP: taking messages of any queue of a topic, for a time.
 *
 * One visit to the room before reading and one after writing. In the first the queues that have
 * something are taken (`busy`: nobody else gets the same messages meanwhile) and each gets its
 * mark; then, without a key, they are read and the marks are written, with one write for all
 * queues; in the second the group's offsets move and the queues are given free. A queue that is
 * busy is passed by: nobody waits for anybody.
 *
 * With a chance of one in five (popFromRetryProbability) the group's retry topic comes first,
 * otherwise it is asked for what is missing. It has two forms, see broker_options.pop_retry_v2. Of
 * the second what is there is always taken: a broker that had it switched on once shall not keep
 * messages to itself, as Apache's does.
 */
#include "broker/pop_int.h"

#include <stdlib.h>

/* The queues that a pop may take from, in its order. */
struct walk {
    struct broker *b;
    const struct pop *pop;
    void (*visit)(struct walk *walk, struct topic *topic, int32_t queue_id, enum pop_place place);
    uint64_t throw; /* where to begin */
    /* taking */
    struct mark_desk *desk;
    struct popped *out;
    bool filtered;
    int64_t covered; /* messages in what was taken */
    bool uninit;     /* a queue whose beginning must be found first */
    enum err err;
    struct fault *why;
    /* looking */
    bool any;
    int64_t until_ms;
};

struct bytes pop_retry_name(uint8_t text[NAME_MAX_ANY], struct bytes topic, struct bytes group,
                            enum pop_place place)
{
    if (bytes_start(topic, RETRY_PREFIX))
        return topic;
    struct wr w = wr_over(text, NAME_MAX_ANY);
    wr_bytes_of(&w, RETRY_PREFIX);
    wr_bytes_of(&w, group);
    wr_u8(&w, place == POP_RETRY_V2 ? '+' : '_');
    wr_bytes_of(&w, topic);
    return w.full ? (struct bytes){0} : wr_bytes(&w);
}

/* ---- the walk; room: core ---- */

static void walk_topic(struct walk *w, struct topic *topic, int32_t only, enum pop_place place)
{
    int32_t n = topic ? topic->set.read_queues : 0;
    if (only >= 0 && only < n)
        w->visit(w, topic, only, place);
    for (int32_t i = 0; only < 0 && i < n; i++)
        w->visit(w, topic, (int32_t)((w->throw +(uint64_t)i) % (uint64_t)n), place);
}

/* What comes again, in either form; which of them is first is up to chance. */
static void walk_retries(struct walk *w)
{
    struct broker *b = w->b;
    const struct pop *pop = w->pop;
    if (pop->ordered || bytes_start(pop->topic, RETRY_PREFIX))
        return;
    for (unsigned i = 0; i < 2; i++) {
        enum pop_place place = (w->throw +i) % 2 ? POP_RETRY_V2 : POP_RETRY_V1;
        if (place == POP_RETRY_V1 && b->set.pop_retry_v2 && !b->set.pop_retry_v1_too)
            continue;
        uint8_t text[NAME_MAX_ANY];
        struct bytes name = pop_retry_name(text, pop->topic, pop->group, place);
        walk_topic(w, topic_find(b, name), -1, place);
    }
}

static void walk(struct walk *w)
{
    struct broker *b = w->b;
    const struct pop *pop = w->pop;
    w->throw = dice_below(&b->dice, 100);
    bool retry_first = w->throw < b->set.pop_retry_chance && !pop->ordered;
    if (retry_first)
        walk_retries(w);
    walk_topic(w, topic_find(b, pop->topic), pop->queue_id < 0 ? -1 : pop->queue_id, POP_TOPIC);
    if (!retry_first)
        walk_retries(w);
}

/* Where the group goes on; -1: that must be found out without the key. */
static int64_t queue_place(struct walk *w, const struct topic *topic, int32_t queue_id,
                           struct queue *queue, enum pop_place place)
{
    struct broker *b = w->b;
    int64_t min = queue_min(b->store, queue), max = queue_max(queue);
    int64_t offset = progress_get(b, w->pop->group, topic->set.name, queue_id);
    if (offset < 0 && w->pop->from_max && place == POP_TOPIC)
        return -1;
    return offset < min ? min : offset > max ? max : offset;
}

/* ---- the checks, in the order of Apache's PopMessageProcessor ---- */

/* Room: core. */
static enum err pop_allow(struct broker *b, const struct pop *pop, struct fault *why)
{
    room_held(&b->room);
    if (!(b->set.perm & PERM_READ))
        return fault_set(why, ERR_DENIED, "this broker may not be read from (brokerPermission)");
    const struct topic *topic = topic_find(b, pop->topic);
    if (!topic)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist, apply first please!",
                         BRIEF(pop->topic));
    if (!(topic->set.perm & PERM_READ))
        return fault_set(why, ERR_DENIED, "the topic[%.*s] peeking message is forbidden",
                         BRIEF(pop->topic));
    if (pop->queue_id >= topic->set.read_queues)
        return fault_set(why, ERR_INVALID,
                         "queueId[%d] is illegal, topic:[%.*s] topicConfig.readQueueNums:[%d]",
                         pop->queue_id, BRIEF(pop->topic), topic->set.read_queues);
    struct group *group;
    enum err err = group_need(b, pop->group, &group, why);
    if (err == ERR_INVALID)
        err = ERR_UNKNOWN_GROUP; /* as Apache calls a name that cannot be */
    if (err)
        return err;
    if (!group->set.consume_enable)
        return fault_set(why, ERR_DENIED, "subscription group no permission, %.*s",
                         BRIEF(pop->group));
    return OK;
}

static enum err numbers_check(struct broker *b, const struct pop *pop, struct fault *why)
{
    if (pop->max_count < 1 || pop->max_count > POP_MAX)
        return fault_set(why, ERR_INVALID, "pop message's num is %u, it must be 1 to %d",
                         pop->max_count, POP_MAX);
    if (!pop->peeks && (pop->invisible_ms <= 0 || pop->invisible_ms > b->set.max_invisible_ms))
        return fault_set(why, ERR_INVALID, "invisibleTime is %lld ms, it must be 1 to %lld",
                         (long long)pop->invisible_ms, (long long)b->set.max_invisible_ms);
    return OK;
}

/* ---- taking; room: core ---- */

static enum err part_take(struct walk *w, struct pop_queue *q, int64_t start)
{
    w->desk->handles[w->out->n_parts] = q->queue;
    const struct pop *pop = w->pop;
    struct mark_wish wish = {
        q, start, w->out->pop_ms, pop->invisible_ms, w->out->revive_id, pop->max_count};
    struct mark *mark = NULL;
    enum err err = OK;
    do
        err = pop->ordered || pop->peeks ? OK : mark_make(w->b, &wish, true, &mark, w->why);
    while (err == ERR_EXISTS && w->out->n_parts == 0 && ++wish.pop_ms); /* put back, by somebody */
    if (err)
        return err;
    w->out->pop_ms = wish.pop_ms;
    w->desk->marks[w->out->n_parts] = mark;
    w->desk->queues[w->out->n_parts] = q;
    if (!pop->peeks)
        q->busy = true;
    return OK;
}

static void queue_take(struct walk *w, struct topic *topic, int32_t queue_id, enum pop_place place)
{
    struct broker *b = w->b;
    const struct pop *pop = w->pop;
    struct popped *out = w->out;
    struct queue *queue = topic_queue(b, topic, queue_id);
    if (!queue || w->err)
        return;
    struct place *known = place_of(progress_find(b, pop->group, topic->set.name), queue_id);
    bool moved = !pop->peeks && known && known->reset;
    if (moved)
        known->reset = false; /* that is to say: it is told now */
    int64_t start = queue_place(w, topic, queue_id, queue, place), max = queue_max(queue);
    if (start < 0) {
        w->uninit |= max > 0;
        return;
    }
    struct pop_queue *q = pop_queue_find(b, topic->set.name, pop->group, queue_id);
    if (q && moved)
        free(take(&q->order)); /* what was handed out before is no longer waited for */
    if (start >= max)
        return;
    bool blocked = pop->ordered && q && order_blocks(b, q, pop->attempt_id, &w->until_ms);
    if (!blocked)
        out->rest += max - start;
    bool enough = w->filtered && place == POP_TOPIC ? false : w->covered >= pop->max_count;
    if (blocked || enough || out->n_parts == POP_MAX || (q && q->busy))
        return;
    struct commit begin = {NULL, pop->group, topic->set.name, queue_id, start};
    if (progress_get(b, pop->group, topic->set.name, queue_id) < 0 && !pop->peeks)
        w->err = progress_set(b, &begin);
    if (!w->err && !q)
        q = pop_queue_need(b, topic->set.name, pop->group, queue_id, queue);
    if (!q)
        w->err = ERR_NO_MEMORY;
    enum err err = w->err ? w->err : part_take(w, q, start);
    if (err == ERR_EXISTS)
        return;
    w->err = err;
    if (err)
        return;
    if (q->saved < 0)
        q->saved = q->settles = start;
    w->desk->counting[out->n_parts] =
        counting_begin(b, topic, queue_id, queue, progress_need(b, pop->group, topic->set.name));
    out->parts[out->n_parts++] =
        (struct pop_part){.queue_id = queue_id, .retry = (uint8_t)place, .start = start};
    if (!w->filtered || place != POP_TOPIC)
        w->covered += max - start;
}

/* Room: core. Gives everything back. */
static void parts_release(struct broker *b, struct mark_desk *desk, size_t n, bool peeks)
{
    room_held(&b->room);
    for (size_t i = 0; i < n; i++) {
        if (!peeks)
            desk->queues[i]->busy = false;
        if (desk->marks[i])
            mark_free(b, desk->marks[i]);
        counting_drop(&desk->counting[i]);
    }
}

static enum err parts_choose(struct walk *w, struct fault *why)
{
    struct broker *b = w->b;
    struct popped *out = w->out;
    w->uninit = false;
    w->covered = 0;
    out->n_parts = 0;
    out->rest = 0;
    room_enter(&b->room);
    enum err err = pop_allow(b, w->pop, why);
    if (!err) {
        walk(w);
        err = w->err;
    }
    if (err && out->n_parts > 0 && err == ERR_BUSY)
        err = OK; /* what was taken before is enough */
    else if (err)
        parts_release(b, w->desk, out->n_parts, w->pop->peeks);
    room_leave(&b->room);
    return err;
}

/* A new group in queues that have messages already. Witness: PopMessageProcessor.getInitOffset. */
static enum err places_init(struct broker *b, const struct pop *pop)
{
    room_enter(&b->room);
    const struct topic *topic = topic_find(b, pop->topic);
    int32_t n = topic ? topic->set.read_queues : 0;
    room_leave(&b->room);
    enum err err = OK;
    for (int32_t i = 0; !err && i < n; i++) {
        struct queue *queue = store_queue_find(b->store, pop->topic, i);
        if (!queue || (pop->queue_id >= 0 && pop->queue_id != i))
            continue;
        int64_t max = queue_max(queue);
        bool recent = queue_is_recent(b, pop->topic, i);
        struct commit place = {NULL, pop->group, pop->topic, i, recent || max < 1 ? 0 : max - 1};
        room_enter(&b->room);
        if (progress_get(b, pop->group, pop->topic, i) < 0 && topic_find(b, pop->topic))
            err = progress_set(b, &place);
        room_leave(&b->room);
    }
    return err;
}

/* ---- reading; no key held ---- */

static bool wants(void *user, int64_t tags_code)
{
    return filter_wants(user, tags_code);
}

static bool wants_props(void *user, struct bytes props)
{
    return filter_wants_props(user, props);
}

/* The messages of a result: their offsets, and which of its slices are needed. */
static void part_fill(struct popped *out, struct pop_part *part, struct read_result *read)
{
    for (size_t i = 0; i < read->n_slices; i++) {
        struct bytes rest = read->slices[i].bytes;
        struct record record;
        uint32_t before = out->n;
        while (rest.len > 0 && out->n < POP_MAX && record_decode(rest, &record) == OK) {
            rest = bytes_from(rest, record.size);
            out->offsets[out->n++] = record.queue_offset;
        }
        if (out->n == before || out->n_slices == POP_MAX) { /* never: a slice has whole records */
            out->n = before;
            read->next = part->n ? out->offsets[out->n - 1] + 1 : part->start;
            for (; i < read->n_slices; i++)
                counted_drop(read->slices[i].owner);
            return;
        }
        part->n += out->n - before;
        part->n_slices++;
        out->slices[out->n_slices++] = read->slices[i];
        out->size += read->slices[i].bytes.len;
    }
}

/* Where the group goes on after this part. */
static int64_t part_read(struct walk *w, struct pop_part *part, struct queue *queue,
                         struct filter *filter, struct counting *counting)
{
    struct popped *out = w->out;
    if (out->n >= w->pop->max_count || out->size >= PULL_BYTES)
        return part->start;
    struct filter *f = part->retry ? NULL : filter;
    struct read_request request = {
        .offset = part->start,
        .max_count = w->pop->max_count - out->n,
        .max_bytes = (uint32_t)(PULL_BYTES - out->size),
        .wants = f && !filter_by_props(f) ? wants : NULL,
        .user = f,
        .wants_props = filter_by_props(f) ? wants_props : NULL,
    };
    struct read_result read;
    uint64_t began_ns = clock_ns(w->b->peer_clock);
    store_read(w->b->store, queue, &request, &read);
    if (read.status == READ_FOUND)
        numbers_got(w->b, counting, read.count, read.size, clock_ns(w->b->peer_clock) - began_ns);
    if (read.status == READ_FOUND)
        part_fill(out, part, &read);
    else if (read.status != READ_NONE_MATCHED && read.status != READ_GONE)
        return part->start;
    return read.next > part->start ? read.next : part->start;
}

static void parts_drop(struct popped *out)
{
    for (size_t i = 0; i < out->n_slices; i++)
        counted_drop(out->slices[i].owner);
    out->n_slices = 0;
    out->n = 0;
}

/* ---- writing and finishing ---- */

static enum err marks_write(struct walk *w, uint64_t *end)
{
    struct mark_desk *desk = w->desk;
    const struct popped *out = w->out;
    enum err err = OK;
    const int64_t *offsets = out->offsets;
    desk->n = 0;
    for (size_t i = 0; !err && i < out->n_parts; i++) {
        const struct pop_part *part = &out->parts[i];
        struct mark *mark = desk->marks[i];
        for (uint32_t k = 0; mark && k < part->n; k++)
            mark->diffs[k] = (uint32_t)(offsets[k] - part->start);
        offsets += part->n;
        if (!mark || part->n == 0)
            continue;
        mark->n = part->n;
        err = desk_add_ck(w->b, desk, mark, NULL);
    }
    return err ? err : desk_write(w->b, desk, end);
}

/* Room: core. What was handed out in order keeps the rest of its queue back. */
static enum err parts_order(struct walk *w)
{
    struct popped *out = w->out;
    enum err err = OK;
    uint32_t at = 0;
    for (size_t i = 0; !err && i < out->n_parts; i++) {
        struct order_hand hand = {out->pop_ms, w->pop->invisible_ms, w->pop->attempt_id,
                                  out->offsets + at, out->parts[i].n};
        if (hand.n > 0)
            err = order_hand_out(w->b, w->desk->queues[i], &hand, out->counts + at);
        at += hand.n;
    }
    return err;
}

/* Room: core. The groups' offsets move, the queues are free again. */
static void parts_finish(struct walk *w, const int64_t *next, struct list *woken)
{
    struct broker *b = w->b;
    const struct pop *pop = w->pop;
    bool left = false;
    for (size_t i = 0; i < w->out->n_parts; i++) {
        const struct pop_part *part = &w->out->parts[i];
        struct pop_queue *q = w->desk->queues[i];
        struct commit commit = {NULL, q->group, q->topic, q->queue_id, next[i]};
        struct mark *mark = w->desk->marks[i];
        if (mark && part->n > 0)
            mark_written(b, mark);
        else if (mark)
            mark_free(b, mark);
        /* An operator may have moved it meanwhile. In order it moves with what is acknowledged. */
        bool stays = (pop->ordered && part->n > 0) || next[i] <= part->start ||
                     progress_get(b, q->group, q->topic, q->queue_id) < 0 || /* or deleted it */
                     progress_was_reset(b, q->group, q->topic, q->queue_id);
        enum err err = stays ? OK : progress_set(b, &commit);
        invariant(!err); /* it is there: nothing has to be allocated */
        q->busy = false;
        left |= !pop->ordered && queue_max(q->queue) > next[i];
    }
    b->pop->popped += w->out->n;
    b->pop->unsettled = true;
    if (left)
        pop_wake_one(b, pop->topic, pop->group, woken);
}

/* Parts that have nothing are of no interest to the caller. */
static void parts_tidy(struct popped *out)
{
    size_t n = 0;
    for (size_t i = 0; i < out->n_parts; i++)
        if (out->parts[i].n > 0)
            out->parts[n++] = out->parts[i];
    out->n_parts = n;
    out->rest -= out->n < out->rest ? out->n : out->rest;
}

static enum err parts_hand_out(struct walk *w, struct filter *filter, struct fault *why)
{
    struct broker *b = w->b;
    struct popped *out = w->out;
    int64_t next[POP_MAX];
    uint64_t end = 0;
    for (size_t i = 0; i < out->n_parts; i++) {
        struct counting *counting = &w->desk->counting[i];
        next[i] = part_read(w, &out->parts[i], w->desk->handles[i], filter, counting);
        counting_drop(counting);
    }
    if (w->pop->peeks)
        return OK;
    enum err err = marks_write(w, &end);
    struct list woken;
    list_init(&woken);
    room_enter(&b->room);
    if (!err && w->pop->ordered)
        err = parts_order(w);
    if (err) {
        parts_release(b, w->desk, out->n_parts, false);
    } else {
        parts_finish(w, next, &woken);
        desk_wrote(b, w->desk, end);
    }
    room_leave(&b->room);
    holds_wake(&woken);
    if (err) {
        parts_drop(out);
        return fault_set(why, err, "what was popped cannot be noted: %s", err_text(err));
    }
    return OK;
}

enum err broker_pop(struct broker *b, struct mark_desk *desk, const struct pop *pop,
                    struct popped *out, struct fault *why)
{
    enum err err = numbers_check(b, pop, why);
    struct filter *filter = NULL;
    if (!err && pop->has_expression)
        err = filter_make(&b->filters, pop->expression, pop->expression_type, &filter, why);
    if (err)
        return err;
    *out = (struct popped){
        .pop_ms = clock_ms(b->clock),
        .revive_id = pop->ordered ? POP_ORDERED : revive_id_of(b, pop->topic, pop->group),
    };
    struct walk w = {.b = b,
                     .pop = pop,
                     .visit = queue_take,
                     .desk = desk,
                     .out = out,
                     .filtered = filter != NULL,
                     .why = why};
    err = parts_choose(&w, why);
    if (!err && w.uninit && out->n_parts == 0) {
        err = places_init(b, pop);
        if (!err)
            err = parts_choose(&w, why);
    }
    if (!err && out->n_parts > 0)
        err = parts_hand_out(&w, filter, why);
    if (err) {
        filter_drop(filter);
        return err;
    }
    parts_tidy(out);
    out->filter = filter;
    return OK;
}

/* ---- looking ---- */

static void queue_look(struct walk *w, struct topic *topic, int32_t queue_id, enum pop_place place)
{
    struct broker *b = w->b;
    struct queue *queue = topic_queue(b, topic, queue_id);
    if (!queue || w->any)
        return;
    int64_t offset = queue_place(w, topic, queue_id, queue, place);
    if (queue_max(queue) <= (offset < 0 ? 0 : offset))
        return;
    const struct pop_queue *q = pop_queue_find(b, topic->set.name, w->pop->group, queue_id);
    if (q && q->busy)
        return; /* whoever is there will see to the rest */
    if (q && w->pop->ordered && order_blocks(b, q, w->pop->attempt_id, &w->until_ms))
        return;
    w->any = true;
}

bool pop_any(struct broker *b, const struct pop *pop, int64_t *until_ms)
{
    room_held(&b->room);
    struct walk w = {.b = b, .pop = pop, .visit = queue_look, .until_ms = INT64_MAX};
    walk(&w);
    *until_ms = w.until_ms;
    return w.any;
}

enum err broker_pop_look(struct broker *b, const struct pop *pop, bool *found, uint32_t *waiting,
                         struct fault *why)
{
    room_enter(&b->room);
    enum err err = pop_allow(b, pop, why);
    int64_t until_ms;
    if (!err) {
        *found = pop_any(b, pop, &until_ms);
        *waiting = pop_waiting(b, pop);
    }
    room_leave(&b->room);
    return err;
}
