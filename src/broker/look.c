/* look.c - what an operator wants to see: queues, progress of groups, who is connected.
 *
 * The core tells which queues and offsets there are; where queues end, and when their messages were
 * stored, is asked of the store afterwards, without the key.
 */
#include "broker/broker_int.h"

#include <stdlib.h>

/* ---- queues ---- */

/* No key held: this may wait for a page of the log. */
static int64_t last_ms(struct broker *b, struct queue *queue, int64_t next)
{
    int64_t ms = next > 0 ? queue_store_time(b->store, queue, next - 1) : 0;
    return ms > 0 ? ms : 0;
}

enum err broker_topic_stats(struct broker *b, struct bytes name, struct arena *arena,
                            struct queue_stat **out, size_t *n, double *per_second,
                            struct fault *why)
{
    room_enter(&b->room);
    const struct topic *topic = topic_find(b, name);
    int32_t width = topic ? topic_width(topic) : -1;
    *per_second = numbers_topic_rate(b, name);
    room_leave(&b->room);
    if (width < 0)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist", BRIEF(name));

    struct queue_stat *stats = arena_alloc(arena, ((size_t)width + 1) * sizeof *stats);
    if (!stats)
        return ERR_TOO_BIG;
    for (int32_t i = 0; i < width; i++) {
        struct queue *queue = store_queue_find(b->store, name, i);
        if (!queue)
            continue; /* nothing was ever there: zeros */
        stats[i].min = queue_min(b->store, queue);
        stats[i].max = queue_max(queue);
        stats[i].last_ms = last_ms(b, queue, stats[i].max);
    }
    *out = stats;
    *n = (size_t)width;
    return OK;
}

/* ---- progress ---- */

struct wanted {
    struct bytes *topics;
    size_t n, queues;
};

/* Room: core. */
static enum err wanted_add(struct broker *b, struct wanted *w, const struct crowd *crowd,
                           struct bytes name, bool all, struct arena *arena)
{
    room_held(&b->room);
    const struct topic *topic = topic_find(b, name);
    bool left_out = !all && crowd && crowd->subs.n > 0 && !subs_find(crowd, name);
    if (!topic || left_out || topic->set.read_queues <= 0)
        return OK;
    w->topics[w->n] = arena_copy(arena, name);
    if (!w->topics[w->n].at)
        return ERR_TOO_BIG;
    w->n++;
    w->queues += (size_t)topic->set.read_queues;
    return OK;
}

/* Room: core. */
static enum err wanted_find(struct broker *b, struct bytes group, const struct bytes *topics,
                            size_t n, bool all, struct arena *arena, struct wanted *w)
{
    room_held(&b->room);
    const struct crowd *crowd = consumers_find(b, group);
    w->topics = arena_alloc(arena, (n ? n : b->progress.n + 1) * sizeof *w->topics);
    if (!w->topics)
        return ERR_TOO_BIG;
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++)
        err = wanted_add(b, w, crowd, topics[i], all, arena);
    const struct progress *p;
    for (size_t i = 0; !err && n == 0 && (p = map_next(&b->progress, &i));) {
        struct bytes topic, its_group;
        progress_names(p, &topic, &its_group);
        if (p->n > 0 && bytes_equal(its_group, group))
            err = wanted_add(b, w, crowd, topic, all, arena);
    }
    return err;
}

/* Room: core. */
static enum err progress_copy(struct broker *b, struct bytes group, const struct wanted *w,
                              struct arena *arena, struct consume_stat **out, size_t *n)
{
    room_held(&b->room);
    struct consume_stat *stats = arena_alloc(arena, (w->queues + 1) * sizeof *stats);
    if (!stats)
        return ERR_TOO_BIG;
    size_t at = 0;
    for (size_t t = 0; t < w->n; t++) {
        const struct topic *topic = topic_find(b, w->topics[t]);
        for (int32_t q = 0; q < topic->set.read_queues; q++) {
            int64_t offset = progress_get(b, group, w->topics[t], q);
            stats[at++] = (struct consume_stat){
                .topic = w->topics[t], .queue_id = q, .offset = offset < 0 ? 0 : offset};
        }
    }
    *out = stats;
    *n = at;
    return OK;
}

enum err broker_consume_stats(struct broker *b, struct bytes group, const struct bytes *topics,
                              size_t n_topics, bool all, struct arena *arena,
                              struct consume_stat **out, size_t *n, double *per_second)
{
    struct wanted w = {0};
    *per_second = 0;
    struct consume_stat *stats = NULL;
    size_t count = 0;
    room_enter(&b->room);
    enum err err = wanted_find(b, group, topics, n_topics, all, arena, &w);
    if (!err)
        err = progress_copy(b, group, &w, arena, &stats, &count);
    for (size_t i = 0; !err && i < w.n; i++)
        *per_second += numbers_group_rate(b, group, w.topics[i]);
    room_leave(&b->room);
    if (err)
        return err;
    for (size_t i = 0; i < count; i++) {
        struct queue *queue = store_queue_find(b->store, stats[i].topic, stats[i].queue_id);
        if (!queue)
            continue;
        stats[i].max = queue_max(queue);
        stats[i].last_ms = last_ms(b, queue, stats[i].offset);
    }
    *out = stats;
    *n = count;
    return OK;
}

/* ---- groups of a topic ---- */

static enum err name_add(struct arena *arena, struct bytes *names, size_t *n, struct bytes name)
{
    names[*n] = arena_copy(arena, name);
    return names[(*n)++].at ? OK : ERR_TOO_BIG;
}

enum err broker_topic_groups(struct broker *b, struct bytes topic, struct arena *arena,
                             struct bytes **out, size_t *n)
{
    size_t at = 0;
    enum err err = OK;
    room_enter(&b->room);
    struct bytes *names = arena_alloc(arena, (b->consumers.n + b->progress.n + 1) * sizeof *names);
    if (!names)
        err = ERR_TOO_BIG;
    const struct crowd *crowd;
    for (size_t i = 0; !err && (crowd = map_next(&b->consumers, &i));)
        if (subs_find(crowd, topic))
            err = name_add(arena, names, &at, bytes_of(crowd->name, crowd->name_len));
    const struct progress *p;
    for (size_t i = 0; !err && (p = map_next(&b->progress, &i));) {
        struct bytes its_topic, group;
        progress_names(p, &its_topic, &group);
        if (p->n > 0 && group.len && bytes_equal(its_topic, topic))
            err = name_add(arena, names, &at, group);
    }
    room_leave(&b->room);
    if (err)
        return err;
    *n = names_tidy(names, at);
    *out = names;
    return OK;
}

/* ---- connections ---- */

/* Room: core. */
static enum err members_copy(struct broker *b, const struct crowd *crowd, struct arena *arena,
                             struct connections *out)
{
    room_held(&b->room);
    int64_t now_ms = clock_ms(b->peer_clock);
    uint64_t now_ns = clock_ns(b->peer_clock);
    out->list = arena_alloc(arena, (crowd->n_members + 1) * sizeof *out->list);
    if (!out->list)
        return ERR_TOO_BIG;
    list_each(k, &crowd->members) {
        const struct member *m = list_entry(k, struct member, in_crowd);
        struct connection *c = &out->list[out->n];
        if (!m->id)
            continue; /* there was no memory for it */
        *c = (struct connection){.addr = m->addr, .language = m->language, .version = m->version};
        c->seen_ms = now_ms - (int64_t)((now_ns - m->seen_ns) / 1000000);
        c->client_id = arena_copy(arena, bytes_of(m->id, m->id_len));
        if (!c->client_id.at)
            return ERR_TOO_BIG;
        out->n++;
    }
    return OK;
}

/* Room: core. */
static enum err subs_copy(const struct crowd *crowd, struct arena *arena, struct connections *out)
{
    out->subs = arena_alloc(arena, (crowd->subs.n + 1) * sizeof *out->subs);
    if (!out->subs)
        return ERR_TOO_BIG;
    const struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));) {
        struct subscription *s = &out->subs[out->n_subs++];
        *s = (struct subscription){.version = sub->version};
        s->topic = arena_copy(arena, bytes_of(sub->topic, sub->topic_len));
        if (!s->topic.at)
            return ERR_TOO_BIG;
        if (!sub->shown)
            continue;
        const char *text = sub->shown->text;
        s->expression_type = arena_copy(arena, bytes_of(text, sub->shown->type_len));
        s->expression =
            arena_copy(arena, bytes_of(text + sub->shown->type_len, sub->shown->expression_len));
    }
    return OK;
}

enum err broker_connections(struct broker *b, struct bytes group, bool consumers,
                            struct arena *arena, struct connections *out)
{
    *out = (struct connections){0};
    room_enter(&b->room);
    const struct crowd *crowd = map_get(consumers ? &b->consumers : &b->producers, group);
    enum err err = crowd ? members_copy(b, crowd, arena, out) : ERR_NOT_FOUND;
    if (!err && consumers) {
        out->broadcasting = crowd->broadcasting;
        out->pops = crowd->pops;
        out->actively = crowd->actively;
        out->from_where = arena_copy(arena, bytes_str(crowd->from_where));
        err = subs_copy(crowd, arena, out);
    }
    room_leave(&b->room);
    return err;
}

struct counted *broker_consumer_session(struct broker *b, struct bytes group,
                                        struct bytes client_id, int32_t *version)
{
    struct counted *session = NULL;
    room_enter(&b->room);
    const struct crowd *crowd = consumers_find(b, group);
    if (crowd) {
        list_each(k, &crowd->members) {
            const struct member *m = list_entry(k, struct member, in_crowd);
            if (!m->id || !bytes_equal(bytes_of(m->id, m->id_len), client_id))
                continue;
            session = m->session; /* the newest, if it is there twice */
            *version = m->version;
        }
    }
    if (session)
        counted_hold(session);
    room_leave(&b->room);
    return session;
}

struct counted *broker_producer_session(struct broker *b, struct bytes client_id)
{
    struct counted *session = NULL;
    room_enter(&b->room);
    const struct member *member = map_get(&b->callers, client_id);
    if (member) {
        session = member->session;
        counted_hold(session);
    }
    room_leave(&b->room);
    return session;
}
