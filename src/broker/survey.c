/* survey.c - what there is in the broker as a whole: which groups read which topics, who produces.
 *
 * Names are copied into the arena under the key, in one walk over a table; what has to be asked of
 * the store is asked afterwards, without it.
 */
#include "broker/admin_int.h"

#include <stdlib.h>

/* A list of names that grows to what was foreseen. */
struct names {
    struct arena *arena;
    struct bytes *list;
    size_t n;
    enum err err;
};

static struct names names_upto(struct arena *arena, size_t max)
{
    struct names names = {.arena = arena};
    names.list = arena_alloc(arena, (max + 1) * sizeof *names.list);
    names.err = names.list ? OK : ERR_TOO_BIG;
    return names;
}

static void names_add(struct names *names, struct bytes name)
{
    if (names->err)
        return;
    struct bytes copy = arena_copy(names->arena, name);
    if (copy.at)
        names->list[names->n++] = copy;
    else
        names->err = ERR_TOO_BIG;
}

static enum err names_give(struct names *names, struct bytes **out, size_t *n)
{
    if (names->err)
        return names->err;
    *n = names_tidy(names->list, names->n);
    *out = names->list;
    return OK;
}

enum err broker_group_topics(struct broker *b, struct bytes group, struct arena *arena,
                             struct bytes **out, size_t *n)
{
    room_enter(&b->room);
    const struct crowd *crowd = consumers_find(b, group);
    struct names names = names_upto(arena, b->progress.n + (crowd ? crowd->subs.n : 0));
    const struct sub *sub;
    for (size_t i = 0; crowd && (sub = map_next(&crowd->subs, &i));)
        names_add(&names, bytes_of(sub->topic, sub->topic_len));
    const struct progress *p;
    for (size_t i = 0; (p = map_next(&b->progress, &i));) {
        struct bytes topic, its_group;
        progress_names(p, &topic, &its_group);
        if (p->n > 0 && bytes_equal(its_group, group))
            names_add(&names, topic);
    }
    room_leave(&b->room);
    return names_give(&names, out, n);
}

enum err broker_system_topics(struct broker *b, struct arena *arena, struct bytes **out, size_t *n)
{
    room_enter(&b->room);
    struct names names = names_upto(arena, b->topics.n);
    const struct topic *topic;
    for (size_t i = 0; (topic = map_next(&b->topics, &i));)
        if (topic_is_own(b, topic->set.name))
            names_add(&names, topic->set.name);
    room_leave(&b->room);
    return names_give(&names, out, n);
}

enum err broker_producer_groups(struct broker *b, struct arena *arena, struct bytes **out,
                                size_t *n)
{
    room_enter(&b->room);
    struct names names = names_upto(arena, b->producers.n);
    const struct crowd *crowd;
    for (size_t i = 0; (crowd = map_next(&b->producers, &i));)
        names_add(&names, bytes_of(crowd->name, crowd->name_len));
    room_leave(&b->room);
    return names_give(&names, out, n);
}

static int by_group(const void *a, const void *b)
{
    const struct group_topic *x = a, *y = b;
    int order = bytes_compare(x->group, y->group);
    return order ? order : bytes_compare(x->topic, y->topic);
}

enum err broker_all_progress(struct broker *b, bool ordered, struct arena *arena,
                             struct group_topic **out, size_t *n)
{
    enum err err = OK;
    size_t at = 0;
    room_enter(&b->room);
    struct group_topic *pairs = arena_alloc(arena, (b->progress.n + 1) * sizeof *pairs);
    if (!pairs)
        err = ERR_TOO_BIG;
    const struct progress *p;
    for (size_t i = 0; !err && (p = map_next(&b->progress, &i));) {
        struct bytes topic_name, group;
        progress_names(p, &topic_name, &group);
        const struct topic *topic = topic_find(b, topic_name);
        if (p->n == 0 || !topic || !group_find(b, group) || (ordered && !topic->set.order))
            continue;
        pairs[at] = (struct group_topic){arena_copy(arena, group), arena_copy(arena, topic_name)};
        if (!pairs[at].group.at || !pairs[at].topic.at)
            err = ERR_TOO_BIG;
        at++;
    }
    room_leave(&b->room);
    if (err)
        return err;
    qsort(pairs, at, sizeof *pairs, by_group);
    *out = pairs;
    *n = at;
    return OK;
}

/* No key held. Witness: AdminBrokerProcessor.queryConsumeTimeSpan. */
static struct time_span span_of(struct broker *b, struct bytes topic, int32_t queue_id,
                                int64_t offset)
{
    struct queue *queue = store_queue_find(b->store, topic, queue_id);
    if (!queue)
        return (struct time_span){.first_ms = -1, .last_ms = -1, .consumed_ms = -1};
    int64_t max = queue_max(queue);
    struct time_span span = {
        .first_ms = queue_store_time(b->store, queue, queue_min(b->store, queue)),
        .last_ms = queue_store_time(b->store, queue, max - 1),
    };
    span.consumed_ms = offset > 0 ? queue_store_time(b->store, queue, offset - 1) : span.first_ms;
    int64_t next_ms = offset < max ? queue_store_time(b->store, queue, offset < 0 ? 0 : offset) : 0;
    if (next_ms > 0)
        span.delay_ms = clock_ms(b->clock) - next_ms;
    return span;
}

enum err broker_time_spans(struct broker *b, struct bytes group, struct bytes topic,
                           struct arena *arena, struct time_span **out, size_t *n,
                           struct fault *why)
{
    room_enter(&b->room);
    const struct topic *known = topic_find(b, topic);
    int32_t queues = known ? known->set.write_queues : -1;
    int64_t *offsets = known ? arena_alloc(arena, ((size_t)queues + 1) * sizeof *offsets) : NULL;
    for (int32_t i = 0; offsets && i < queues; i++)
        offsets[i] = progress_get(b, group, topic, i);
    room_leave(&b->room);
    if (!known)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist", BRIEF(topic));
    struct time_span *spans = arena_alloc(arena, ((size_t)queues + 1) * sizeof *spans);
    if (!offsets || !spans)
        return ERR_TOO_BIG;
    for (int32_t i = 0; i < queues; i++)
        spans[i] = span_of(b, topic, i, offsets[i]);
    *out = spans;
    *n = (size_t)queues;
    return OK;
}
