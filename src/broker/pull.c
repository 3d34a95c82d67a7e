/* pull.c - may this group read this queue, from where, and which messages? */
#include "broker/broker_int.h"

/* What the core says of a pull: all of the result but the messages. */
struct allowed {
    struct queue *queue;
    struct filter *filter; /* a count of it */
    int32_t topic_sys_flag, group_sys_flag;
    bool reset;
    int64_t reset_to;
    struct counting counting; /* where it is counted */
};

static enum err pull_allow(struct broker *b, const struct pull *pull, enum err filter_err,
                           struct allowed *out, struct fault *why);

static bool wants(void *user, int64_t tags_code)
{
    return filter_wants(user, tags_code);
}

static bool wants_props(void *user, struct bytes props)
{
    return filter_wants_props(user, props);
}

/* The read itself happens without the key: what it touches never changes. */
enum err broker_pull(struct broker *b, const struct pull *pull, struct pulled *out,
                     struct fault *why)
{
    struct allowed a = {0};
    uint64_t began_ns = clock_ns(b->peer_clock);
    enum err filter_err = OK; /* told in its turn; compiling is not for the core */
    if (pull->has_expression)
        filter_err =
            filter_make(&b->filters, pull->expression, pull->expression_type, &a.filter, why);
    room_enter(&b->room);
    enum err err = pull_allow(b, pull, filter_err, &a, why);
    room_leave(&b->room);
    if (err) {
        filter_drop(a.filter);
        counting_drop(&a.counting);
        return err;
    }

    out->queue = a.queue;
    out->filter = a.filter;
    out->topic_sys_flag = a.topic_sys_flag;
    out->group_sys_flag = a.group_sys_flag;
    out->reset = a.reset;
    if (a.reset) {
        out->read = (struct read_result){.status = READ_TOO_SMALL, .next = a.reset_to};
        out->read.min = queue_min(b->store, a.queue);
        out->read.max = queue_max(a.queue);
        counting_drop(&a.counting);
        return OK;
    }
    uint32_t count = pull->max_count < PULL_COUNT ? pull->max_count : PULL_COUNT;
    struct read_request request = {
        .offset = pull->offset,
        .max_count = count ? count : 1,
        .max_bytes = PULL_BYTES,
        .wants = a.filter && !filter_by_props(a.filter) ? wants : NULL,
        .user = a.filter,
        .wants_props = filter_by_props(a.filter) ? wants_props : NULL,
    };
    store_read(b->store, out->queue, &request, &out->read);
    numbers_got(b, &a.counting, out->read.count, out->read.size,
                clock_ns(b->peer_clock) - began_ns);
    return OK;
}

/* ---- the checks, in the order of Apache's PullMessageProcessor ---- */

/* Room: core. What the group said in its heartbeats decides. */
static enum err filter_from_group(struct broker *b, const struct pull *pull,
                                  const struct group *group, struct filter **out, struct fault *why)
{
    room_held(&b->room);
    const struct crowd *crowd = consumers_find(b, pull->group);
    if (!crowd)
        return fault_set(why, ERR_NOT_SUBSCRIBED, "the consumer's group info not exist: %.*s",
                         BRIEF(pull->group));
    if (crowd->broadcasting && !group->set.broadcast_enable)
        return fault_set(why, ERR_DENIED,
                         "the consumer group[%.*s] can not consume by broadcast way",
                         BRIEF(pull->group));
    const struct sub *sub = subs_find(crowd, pull->topic);
    if (!sub)
        return fault_set(why, ERR_NOT_SUBSCRIBED,
                         "the consumer group[%.*s] is not subscribed to topic[%.*s]",
                         BRIEF(pull->group), BRIEF(pull->topic));
    if (sub->version < pull->sub_version)
        return fault_set(why, ERR_STALE,
                         "the consumer's subscription not latest: known is %lld, the pull has %lld",
                         (long long)sub->version, (long long)pull->sub_version);
    const struct verdict *v = &sub->verdict;
    if (v->err) /* Apache's words for it end with the question mark */
        return fault_set(why, v->err == ERR_MALFORMED ? ERR_NOT_FOUND : v->err,
                         "The broker's consumer filter data is not exist!Your expression may be "
                         "wrong! The subscription of group[%.*s] to topic[%.*s] cannot be used: %s",
                         BRIEF(pull->group), BRIEF(pull->topic),
                         v->reason && v->reason[0] ? v->reason : err_text(v->err));
    filter_hold(v->filter);
    *out = v->filter;
    return OK;
}

static enum err topic_check(const struct pull *pull, const struct topic *topic, struct fault *why)
{
    if (!(topic->set.perm & PERM_READ))
        return fault_set(why, ERR_DENIED, "the topic[%.*s] pulling message is forbidden",
                         BRIEF(pull->topic));
    if (pull->queue_id < 0 || pull->queue_id >= topic->set.read_queues)
        return fault_set(why, ERR_INVALID,
                         "queueId[%d] is illegal, topic:[%.*s] readQueueNums:[%d]", pull->queue_id,
                         BRIEF(pull->topic), topic->set.read_queues);
    return OK;
}

/* Room: core. `filter_err` is what became of the pull's own expression; its sentence is in `why`.
 */
static enum err pull_allow(struct broker *b, const struct pull *pull, enum err filter_err,
                           struct allowed *out, struct fault *why)
{
    room_held(&b->room);
    if (!(b->set.perm & PERM_READ))
        return fault_set(why, ERR_DENIED, "this broker may not be read from (brokerPermission)");
    struct group *group;
    enum err err = group_need(b, pull->group, &group, why);
    if (err)
        return err;
    if (!group->set.consume_enable)
        return fault_set(why, ERR_DENIED, "subscription group no permission, %.*s",
                         BRIEF(pull->group));
    struct topic *topic = topic_find(b, pull->topic);
    if (!topic)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist, apply first please!",
                         BRIEF(pull->topic));
    err = topic_check(pull, topic, why);
    if (err)
        return err;
    err = pull->has_expression ? filter_err : filter_from_group(b, pull, group, &out->filter, why);
    if (err)
        return err;
    out->queue = topic_queue(b, topic, pull->queue_id);
    if (!out->queue)
        return fault_set(why, ERR_NO_MEMORY, "queue %d of topic[%.*s] cannot be opened",
                         pull->queue_id, BRIEF(pull->topic));
    out->topic_sys_flag = topic->set.sys_flag;
    out->group_sys_flag = group->set.sys_flag;

    struct progress *progress = progress_need(b, pull->group, pull->topic);
    struct place *place = place_of(progress, pull->queue_id);
    out->counting = counting_begin(b, topic, pull->queue_id, out->queue, progress);
    out->reset = place && place->reset;
    if (out->reset) { /* it is told now; what it carries along is from before */
        place->reset = false;
        out->reset_to = place->offset;
        return OK;
    }

    /* What a pull carries along may be older than what somebody asked for explicitly. Nobody has
     * come further than the queue: kept, such a number could not be put right by later pulls. */
    if (pull->commit && pull->commit_offset >= 0 && pull->commit_offset <= queue_max(out->queue) &&
        pull->commit_offset > (place ? place->offset : -1))
        return progress_set(b, &(struct commit){pull->session, pull->group, pull->topic,
                                                pull->queue_id, pull->commit_offset});
    return OK;
}
