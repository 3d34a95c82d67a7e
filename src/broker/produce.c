/* produce.c - accepting messages.
 *
 *     check      names and sizes, which need nothing but the request      no key
 *     prepare    properties and CRC, at the desk                          no key
 *     place      topic, permission, queue; detours (delay, half           core
 *                messages, dead letters)
 *     dedup      what was stored before is left out, where that is wanted dedup
 *     store      all that is left, at once                                the log's own
 */
#include "broker/produce_int.h"

/* The topic of the last request, while the core is held. */
struct placing {
    struct bytes name;
    struct topic *topic; /* NULL: none */
};

static enum err request_check(struct desk *desk, struct produce *r);
static enum err request_place(struct desk *desk, struct produce *r, struct placing *last,
                              struct after *after);
static void requests_store(struct desk *desk, struct produce *requests, size_t n, uint64_t *end);
static void halves_arrived(struct desk *desk, struct produce *requests, size_t n);

void broker_produce(struct broker *b, struct desk *desk, struct produce *requests, size_t n,
                    uint64_t *end)
{
    struct after after;
    after_init(&after);
    *end = 0;
    for (size_t i = 0; i < n; i++) {
        requests[i].known = 0;
        requests[i].dedup = DEDUP_NONE;
        requests[i].err = request_check(desk, &requests[i]);
    }
    desk_prepare(desk, requests, n);

    size_t kept = 0; /* the drafts of refused requests are left out */
    struct placing last = {0};
    room_enter(&b->room);
    for (size_t i = 0; i < n; i++) {
        struct produce *r = &requests[i];
        if (!r->err)
            r->err = request_place(desk, r, &last, &after);
        if (r->err)
            continue;
        if (r->first != kept) {
            memmove(&desk->drafts[kept], &desk->drafts[r->first], r->count * sizeof *desk->drafts);
            if (desk->noting)
                notes_move(desk, kept, r->first, r->count);
        }
        r->first = (uint32_t)kept;
        kept += r->count;
    }
    room_leave(&b->room);
    after_run(b, &after);
    desk->n = kept;
    if (kept > 0)
        requests_store(desk, requests, n, end);
    if (desk->n_halves > 0)
        halves_arrived(desk, requests, n);
}

/* ---- what the request alone shows ---- */

static enum err topic_check(struct produce *r)
{
    if (topic_name_check(r->topic, &r->why))
        return ERR_INVALID; /* too long or ill-formed, the sentence tells */
    if (topic_refuses_clients(r->topic))
        return fault_set(&r->why, ERR_DENIED, "Sending message to topic[%.*s] is forbidden.",
                         BRIEF(r->topic));
    return OK;
}

/* What comes to a desk is mostly for the topic that the last one was for: its name is looked at
 * once. */
static enum err topic_check_once(struct desk *desk, struct produce *r)
{
    if (desk->topic_len > 0 && bytes_equal(r->topic, bytes_of(desk->topic, desk->topic_len)))
        return OK;
    enum err err = topic_check(r);
    if (err)
        return err;
    invariant(r->topic.len <= sizeof desk->topic); /* names have a longest */
    memcpy(desk->topic, r->topic.at, r->topic.len);
    desk->topic_len = r->topic.len;
    return OK;
}

static enum err request_check(struct desk *desk, struct produce *r)
{
    const struct broker *b = desk->broker;
    enum err err = topic_check_once(desk, r);
    if (err)
        return err;
    if (r->body.len > b->set.max_message_size)
        return fault_set(&r->why, ERR_TOO_BIG,
                         "the body has %zu bytes, more than %u (maxMessageSize)", r->body.len,
                         b->set.max_message_size);
    if (r->props.len > RECORD_PROPS_MAX)
        return fault_set(&r->why, ERR_TOO_BIG, "the properties have %zu bytes, more than %d",
                         r->props.len, RECORD_PROPS_MAX);
    if (r->batch && bytes_start(r->topic, RETRY_PREFIX))
        return fault_set(&r->why, ERR_MALFORMED, "batch request does not support retry group");
    if (r->batch && r->topic.len > NAME_TOPIC_MAX)
        return fault_set(&r->why, ERR_MALFORMED,
                         "a batch to a topic whose name has more than %d bytes", NAME_TOPIC_MAX);
    return OK;
}

/* ---- topic and queue ---- */

/* Room: core. A message that a consumer gave up is for its own group, and not for ever. Witness:
 * SendMessageProcessor.handleRetryAndDLQ, where the limit must be passed; by send-back it is enough
 * to reach it. */
static enum err retry_check(struct broker *b, struct produce *r, bool *dead)
{
    room_held(&b->room);
    struct group *group;
    enum err err = retry_group(b, bytes_from(r->topic, RETRY_PREFIX.len), &group, &r->why);
    if (err)
        return err;
    int32_t max = r->has_max_reconsume_times ? r->max_reconsume_times : group->set.retry_max;
    /* A group that holds queue locks consumes in order: it tries again by itself, and sends a
     * message here only when it gives it up. */
    *dead = r->reconsume_times > max || locks_any(b, group->set.name);
    return OK;
}

/* Room: core. */
static enum err queue_choose(struct broker *b, const struct topic *topic, const struct produce *r,
                             int32_t *out, struct fault *why)
{
    room_held(&b->room);
    if (r->queue_id >= topic_width(topic))
        return fault_set(why, ERR_INVALID,
                         "request queueId[%d] is illegal, topic[%.*s] has %d queues", r->queue_id,
                         BRIEF(r->topic), topic_width(topic));
    if (r->queue_id >= 0) {
        *out = r->queue_id;
        return OK;
    }
    if (topic->set.write_queues <= 0)
        return fault_set(why, ERR_INVALID, "topic[%.*s] has no queue to write to", BRIEF(r->topic));
    *out = (int32_t)dice_below(&b->dice, (uint64_t)topic->set.write_queues);
    return OK;
}

/* Room: core. Finishes a message whose way is not straight: to the dead letters, through a delay
 * level, or, when it turns out that it is neither, as it was sent. */
static enum err request_divert(struct desk *desk, struct produce *r, bool dead, struct after *after)
{
    struct broker *b = desk->broker;
    struct draft *draft = &desk->drafts[r->first];
    struct wr props = desk_props(desk, r);
    enum err err = OK;
    if (dead) {
        props_add(&props, PROP_DELAY, BYTES("-1"));
        err = dead_divert(b, bytes_from(r->topic, RETRY_PREFIX.len), draft, &props, after, &r->why);
        r->stored_queue_id = draft->queue_id;
    } else if (r->is_half) {
        err = txn_divert(b, r, draft, &props);
        desk->n_halves += !err;
    } else if (r->delay_level > 0) {
        delay_divert(b, draft, r->delay_level, &props);
    } else if (r->timer_due_ms > 0) {
        timers_divert(b, draft, r->timer_due_ms, &props);
        if (r->delay_given)
            props_add_int(&props, PROP_DELAY, r->delay_level);
    } else if (r->delay_given) {
        props_add_int(&props, PROP_DELAY, r->delay_level);
    }
    if (!err && !draft->queue)
        err = fault_set(&r->why, ERR_NO_MEMORY, "no memory for a queue");
    return err ? err : draft_props(draft, &props, &r->why);
}

/* The entries of half messages learn their places, or are let go. */
static void halves_arrived(struct desk *desk, struct produce *requests, size_t n)
{
    struct broker *b = desk->broker;
    room_enter(&b->room);
    for (size_t i = 0; i < n; i++) {
        struct produce *r = &requests[i];
        if (r->half)
            txn_arrived(b, r, r->err ? NULL : &desk->stored[r->first]);
    }
    room_leave(&b->room);
}

/* Room: core. The topic of a request, which may be written to; `dead`: it is to go to the dead
 * letters instead. */
static enum err topic_place(struct broker *b, struct produce *r, struct after *after,
                            struct topic **out, bool *dead)
{
    room_held(&b->room);
    if (!(b->set.perm & PERM_WRITE))
        return fault_set(&r->why, ERR_DENIED,
                         "this broker may not be written to (brokerPermission)");
    enum err err = bytes_start(r->topic, RETRY_PREFIX) ? retry_check(b, r, dead) : OK;
    if (!err)
        err = topic_for_send(b, r, after, out, &r->why);
    if (!err && !((*out)->set.perm & PERM_WRITE))
        err = fault_set(&r->why, ERR_DENIED, "the topic[%.*s] sending message is forbidden",
                        BRIEF(r->topic));
    return err;
}

/* Room: core. What comes in one turn is mostly for one topic: it is asked for once. Where messages
 * are tried again depends on more than their topic. */
static enum err topic_place_once(struct broker *b, struct produce *r, struct placing *last,
                                 struct after *after, bool *dead)
{
    if (last->topic && bytes_equal(last->name, r->topic))
        return OK;
    last->topic = NULL;
    enum err err = topic_place(b, r, after, &last->topic, dead);
    if (err)
        last->topic = NULL;
    last->name = r->topic;
    return err;
}

/* Room: core. */
static enum err request_place(struct desk *desk, struct produce *r, struct placing *last,
                              struct after *after)
{
    struct broker *b = desk->broker;
    room_held(&b->room);
    bool dead = false;
    if (bytes_start(r->topic, RETRY_PREFIX))
        last->topic = NULL;
    enum err err = topic_place_once(b, r, last, after, &dead);
    if (err)
        return err;
    struct topic *topic = last->topic;
    err = queue_choose(b, topic, r, &r->stored_queue_id, &r->why);
    if (err)
        return err;
    struct queue *queue = topic_queue(b, topic, r->stored_queue_id);
    if (!queue)
        return fault_set(&r->why, ERR_NO_MEMORY, "queue %d of topic[%.*s] cannot be opened",
                         r->stored_queue_id, BRIEF(r->topic));
    r->lane = numbers_lane(b, queue, topic->set.name, r->stored_queue_id);
    for (uint32_t i = 0; i < r->count; i++) {
        struct draft *draft = &desk->drafts[r->first + i];
        draft->queue = queue;
        draft->queue_id = r->stored_queue_id;
        if (topic->set.multi_tag)
            draft->sys_flag |= SYS_MULTI_TAGS;
    }
    if (desk->noting)
        dedup_choose(desk, r, topic);
    return r->gap ? request_divert(desk, r, dead, after) : OK;
}

/* ---- the log ---- */

/* Nothing was stored: everybody gets the reason. */
static void requests_fail(struct desk *desk, struct produce *requests, size_t n, enum err err)
{
    struct fault state = {0};
    (void)store_state(desk->broker->store, &state);
    for (size_t i = 0; i < n; i++) {
        if (requests[i].err || requests[i].known == requests[i].count)
            continue;
        requests[i].err = fault_set(&requests[i].why, err, "the message was not stored: %s",
                                    state.text[0] ? state.text : err_text(err));
    }
}

static void request_answer(const struct desk *desk, struct produce *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        enum err err = desk->stored[r->first + i].err;
        if (err) {
            r->err = fault_set(&r->why, err, "the message was not stored: its record is %s",
                               err_text(err));
            return;
        }
    }
    r->queue_offset = desk->stored[r->first].queue_offset;
    if (r->timer_due_ms > 0)
        timers_sent(desk->broker, r->timer_due_ms);
}

static void requests_store(struct desk *desk, struct produce *requests, size_t n, uint64_t *end)
{
    struct broker *b = desk->broker;
    if (desk->guarded)
        dedup_begin(desk, requests, n, end);
    uint64_t upto = *end;
    enum err err = OK;
    if (desk->n > 0)
        err = store_append(b->store, desk->drafts, desk->n, desk->stored, &upto);
    if (desk->guarded)
        dedup_end(desk, requests, n, err);
    if (err)
        requests_fail(desk, requests, n, err);
    *end = upto;
    for (size_t i = 0; i < n; i++)
        if (!requests[i].err)
            request_answer(desk, &requests[i]);
}
