/* reset.c - an operator moves a group to another place in a topic.
 *
 * As Apache's broker of today does it (useServerSideResetOffset): the new offset is the group's at
 * once, what clients commit is not taken until one has been told with its next pull, and readers
 * that wait are woken to be told. Or as before 5.0: the offset stays, and every member of the group
 * is told to see to it, which takes at least one.
 */
#include "broker/broker_int.h"

#include <stdlib.h>

#define VERSION_OF_RESET 28 /* V3_0_7_SNAPSHOT: older clients do not know the request */

/* Room: core. */
static enum err names_find(struct broker *b, const struct offsets_reset *r, int32_t *queues,
                           struct fault *why)
{
    room_held(&b->room);
    const struct topic *topic = topic_find(b, r->topic);
    if (!topic)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "Topic %.*s does not exist", BRIEF(r->topic));
    if (!group_find(b, r->group))
        return fault_set(why, ERR_UNKNOWN_GROUP, "Group %.*s does not exist", BRIEF(r->group));
    *queues = b->set.client_side_reset ? topic->set.write_queues : topic->set.read_queues;
    if (*queues <= 0 || r->queue_id >= *queues)
        return fault_set(why, ERR_RANGE, "No queues to reset.");
    return OK;
}

/* No key held: looking for a time reads the log. */
static enum err place_find(struct broker *b, const struct offsets_reset *r, int32_t queue_id,
                           int64_t *out, struct fault *why)
{
    struct queue *queue = store_queue_find(b->store, r->topic, queue_id);
    int64_t min = queue ? queue_min(b->store, queue) : 0, max = queue ? queue_max(queue) : 0;
    int64_t found = max;
    if (r->queue_id >= 0 && r->offset != -1) {
        found = r->offset;
        if (found < min || found > max)
            return fault_set(why, ERR_RANGE,
                             "Target offset %lld not in consume queue range [%lld-%lld]",
                             (long long)found, (long long)min, (long long)max);
    } else if (queue && r->timestamp_ms != -1) {
        found = queue_search_time(b->store, queue, r->timestamp_ms);
    }
    *out = found < min ? min : found;
    return OK;
}

static enum err places_find(struct broker *b, struct offsets_reset *r, int32_t queues,
                            struct arena *arena, struct fault *why)
{
    int32_t first = r->queue_id < 0 ? 0 : r->queue_id;
    int32_t end = r->queue_id < 0 ? queues : first + 1;
    r->n = 0;
    r->places = arena_alloc(arena, (size_t)(end - first) * sizeof *r->places);
    if (!r->places)
        return ERR_TOO_BIG;
    for (int32_t q = first; q < end; q++) {
        struct place_reset *place = &r->places[r->n++];
        place->queue_id = q;
        enum err err = place_find(b, r, q, &place->offset, why);
        if (err)
            return err;
    }
    return OK;
}

/* Room: core. */
static enum err places_set(struct broker *b, const struct offsets_reset *r, struct after *after)
{
    room_held(&b->room);
    for (size_t i = 0; i < r->n; i++) {
        const struct place_reset *place = &r->places[i];
        enum err err = progress_reset(b, r->group, r->topic, place->queue_id, place->offset);
        if (err)
            return err;
        struct queue *queue = store_queue_find(b->store, r->topic, place->queue_id);
        if (queue)
            holds_take(b, queue, &after->woken);
    }
    return OK;
}

/* Room: core. Only a group that has been here can be sent elsewhere, and backwards unless forced.
 */
static enum err places_limit(struct broker *b, struct offsets_reset *r, struct fault *why)
{
    room_held(&b->room);
    for (size_t i = 0; i < r->n; i++) {
        int64_t now = progress_get(b, r->group, r->topic, r->places[i].queue_id);
        if (now < 0)
            return fault_set(why, ERR_MISMATCH, "THe consumer group <%.*s> not exist",
                             BRIEF(r->group));
        if (!r->force && r->places[i].offset > now)
            r->places[i].offset = now;
    }
    return OK;
}

/* Room: core. The sessions are counted. */
static enum err members_take(struct broker *b, const struct offsets_reset *r, struct arena *arena,
                             struct counted ***out, size_t *n, struct fault *why)
{
    room_held(&b->room);
    const struct crowd *crowd = consumers_find(b, r->group);
    if (!crowd)
        return fault_set(why, ERR_NOT_SUBSCRIBED,
                         "Consumer not online, so can not reset offset, Group: %.*s Topic: %.*s "
                         "Timestamp: %lld",
                         BRIEF(r->group), BRIEF(r->topic), (long long)r->timestamp_ms);
    list_each(k, &crowd->members) {
        int32_t version = list_entry(k, struct member, in_crowd)->version;
        if (version < VERSION_OF_RESET)
            return fault_set(why, ERR_UNSUPPORTED,
                             "the client does not support this feature. version=%d", version);
    }
    struct counted **sessions = arena_alloc(arena, crowd->n_members * sizeof(struct counted *));
    if (!sessions)
        return ERR_TOO_BIG;
    list_each(k, &crowd->members) {
        sessions[*n] = list_entry(k, struct member, in_crowd)->session;
        counted_hold(sessions[(*n)++]);
    }
    *out = sessions;
    return OK;
}

static enum err reset_by_clients(struct broker *b, struct offsets_reset *r, struct arena *arena,
                                 struct fault *why)
{
    struct counted **sessions = NULL;
    size_t n = 0;
    room_enter(&b->room);
    enum err err = places_limit(b, r, why);
    if (!err)
        err = members_take(b, r, arena, &sessions, &n, why);
    room_leave(&b->room);
    for (size_t i = 0; i < n; i++) {
        if (b->out && b->out->offsets_reset)
            b->out->offsets_reset(sessions[i], r);
        counted_drop(sessions[i]);
    }
    return err;
}

/* The topic may have been deleted while its queues were searched, and offsets are kept for known
 * ones only. */
static enum err reset_here(struct broker *b, const struct offsets_reset *r, struct fault *why)
{
    struct after after;
    int32_t queues;
    after_init(&after);
    room_enter(&b->room);
    enum err err = names_find(b, r, &queues, why);
    if (!err)
        err = places_set(b, r, &after);
    room_leave(&b->room);
    after.tables_changed = true;
    after_run(b, &after);
    return err;
}

enum err broker_offsets_reset(struct broker *b, struct offsets_reset *r, struct arena *arena,
                              struct fault *why)
{
    int32_t queues = 0;
    room_enter(&b->room);
    enum err err = names_find(b, r, &queues, why);
    room_leave(&b->room);
    if (!err)
        err = places_find(b, r, queues, arena, why);
    if (err)
        return err;
    return b->set.client_side_reset ? reset_by_clients(b, r, arena, why) : reset_here(b, r, why);
}

/* ---- from one group to another ---- */

/* Room: core. What of the one group is wanted; the caller frees the list. NULL: no memory. */
static const struct progress **clone_find(struct broker *b, const struct offsets_clone *c,
                                          size_t *n)
{
    room_held(&b->room);
    const struct crowd *crowd = consumers_find(b, c->from);
    const struct progress *p, **found = calloc(b->progress.n + 1, sizeof(struct progress *));
    *n = 0;
    for (size_t i = 0; found && (p = map_next(&b->progress, &i));) {
        struct bytes topic, group;
        progress_names(p, &topic, &group);
        bool named = c->topic.len == 0 || bytes_equal(topic, c->topic);
        bool subscribed = c->offline || !crowd || crowd->subs.n == 0 || subs_find(crowd, topic);
        if (named && subscribed && bytes_equal(group, c->from) && topic_find(b, topic))
            found[(*n)++] = p;
    }
    return found;
}

/* Room: core. */
static enum err clone_take(struct broker *b, const struct offsets_clone *c, size_t *queues,
                           struct fault *why)
{
    room_held(&b->room);
    if (!group_find(b, c->to))
        return fault_set(why, ERR_UNKNOWN_GROUP, "Group %.*s does not exist", BRIEF(c->to));
    size_t n;
    const struct progress **found = clone_find(b, c, &n);
    enum err err = found ? OK : ERR_NO_MEMORY;
    for (size_t i = 0; !err && i < n; i++) {
        struct bytes topic, group;
        progress_names(found[i], &topic, &group);
        for (size_t k = 0; !err && k < found[i]->n; k++) {
            const struct place *place = &found[i]->places[k];
            err = progress_set(
                b, &(struct commit){NULL, c->to, topic, place->queue_id, place->offset});
            *queues += !err;
        }
    }
    free(found);
    return err;
}

enum err broker_offsets_clone(struct broker *b, const struct offsets_clone *clone, size_t *queues,
                              struct fault *why)
{
    struct after after;
    after_init(&after);
    *queues = 0;
    room_enter(&b->room);
    enum err err = clone_take(b, clone, queues, why);
    room_leave(&b->room);
    after.tables_changed = true;
    after_run(b, &after);
    return err;
}
