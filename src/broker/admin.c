/* admin.c - what an operator changes: the settings of topics and groups.
 *
 * A change counts at once: tables are saved and name servers are told as soon as the key is given
 * back, and readers that wait at a changed topic are woken, so that they hear of it.
 *
 * A topic that is deleted leaves its messages in the log until retention takes them, and its queues
 * with them. That is what a topic looks like whose settings a crash took (topics_add_stored), so
 * its name is remembered in topics.json until no queue of it is left or the topic is made anew. A
 * topic made anew goes on where the old one ended.
 */
#include "broker/admin_int.h"
#include "broker/pop_int.h"

#include <stdlib.h>

/* ---- topics ---- */

/* Topics of ours whose names depend on our own. */
static bool topic_is_ours(const struct broker *b, struct bytes name)
{
    struct bytes cluster = bytes_str(b->set.cluster);
    struct bytes reply = BYTES("_REPLY_TOPIC");
    if (bytes_equal(name, cluster) || bytes_equal(name, bytes_str(b->set.name)))
        return true;
    return name.len == cluster.len + reply.len && bytes_start(name, cluster) &&
           bytes_equal(bytes_from(name, cluster.len), reply);
}

bool topic_is_own(const struct broker *b, struct bytes name)
{
    return topic_is_system(name) || topic_is_ours(b, name);
}

static enum err topic_may_change(const struct broker *b, struct bytes name, struct fault *why)
{
    if (topic_name_check(name, why))
        return ERR_INVALID; /* the sentence tells */
    if (topic_is_own(b, name))
        return fault_set(why, ERR_INVALID, "The topic[%.*s] is conflict with system topic.",
                         BRIEF(name));
    return OK;
}

static enum err settings_check(const struct topic_settings *set, struct fault *why)
{
    if (set->read_queues < 0 || set->read_queues > QUEUES_MAX || set->write_queues < 0 ||
        set->write_queues > QUEUES_MAX)
        return fault_set(why, ERR_INVALID, "%d read and %d write queues: 0 to %d are possible",
                         set->read_queues, set->write_queues, QUEUES_MAX);
    if (set->perm < 0 || set->perm > (PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT))
        return fault_set(why, ERR_INVALID, "perm %d: 2 (write), 4 (read) or 6 (both) are possible",
                         set->perm);
    return OK;
}

static bool settings_same(const struct topic_settings *a, const struct topic_settings *b)
{
    return a->read_queues == b->read_queues && a->write_queues == b->write_queues &&
           a->perm == b->perm && a->sys_flag == b->sys_flag && a->order == b->order &&
           a->multi_tag == b->multi_tag && bytes_equal(a->attributes, b->attributes);
}

/* Room: core. Holds are entered through the handles that the topic keeps. */
static void topic_wake(struct broker *b, const struct topic *topic, struct after *after)
{
    room_held(&b->room);
    for (int32_t i = 0; i < topic->n_queues; i++)
        if (topic->queues[i])
            holds_take(b, topic->queues[i], &after->woken);
}

/* Room: core. */
static enum err topic_change(struct broker *b, const struct topic_settings *wanted,
                             struct bytes changes, struct arena *arena, struct after *after,
                             struct fault *why)
{
    room_held(&b->room);
    struct topic_settings set = *wanted;
    struct topic *topic = topic_find(b, set.name);
    struct bytes current = topic ? topic->set.attributes : (struct bytes){0};
    enum err err = attributes_change(current, changes, !topic, arena, &set.attributes, why);
    if (err)
        return err;
    if (!topic)
        return topic_create(b, &set, after, &topic, why);
    if (settings_same(&topic->set, &set))
        return OK;
    topic_wake(b, topic, after);
    err = topic_put(b, &set, &topic);
    if (err)
        return err;
    table_changed(b, TABLE_TOPICS);
    after->topics_changed = true;
    return OK;
}

enum err broker_topic_set(struct broker *b, const struct topic_settings *set, struct bytes changes,
                          struct fault *why)
{
    enum err err = topic_may_change(b, set->name, why);
    if (!err)
        err = settings_check(set, why);
    if (err)
        return err;
    struct arena arena;
    arena_init(&arena, ATTRIBUTES_ARENA);
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    err = topic_change(b, set, changes, &arena, &after, why);
    room_leave(&b->room);
    after_run(b, &after);
    arena_clear(&arena);
    return err;
}

/* Room: core. */
static enum err topic_remove(struct broker *b, struct bytes name, struct after *after,
                             struct fault *why)
{
    room_held(&b->room);
    struct topic *topic = topic_find(b, name);
    if (!topic)
        return OK; /* as on an Apache broker */
    enum err err = tomb_make(b, name, why);
    if (!err)
        err = progress_remove(b, name, (struct bytes){0});
    if (err)
        return err;
    topic_wake(b, topic, after);
    numbers_forget(b, name);
    (void)map_remove(&b->topics, name);
    topic_free(topic);
    table_changed(b, TABLE_TOPICS);
    after->topics_changed = true;
    return OK;
}

/* Room: core. The topics in which what groups have popped of this one waits to come again; `found`
 * NULL: only how many there are. */
static size_t pop_retries(struct broker *b, struct bytes name, struct topic **found)
{
    room_held(&b->room);
    size_t n = 0;
    const struct progress *p;
    for (size_t i = 0; (p = map_next(&b->progress, &i));) {
        struct bytes key = bytes_of(p->key, p->key_len);
        if (key.len <= name.len || key.at[name.len] != '@' || !bytes_start(key, name))
            continue;
        for (enum pop_place place = POP_RETRY_V1; place < POP_PLACES; place++) {
            uint8_t text[NAME_MAX_ANY];
            struct topic *topic =
                topic_find(b, pop_retry_name(text, name, bytes_from(key, name.len + 1), place));
            if (topic && found)
                found[n] = topic;
            n += topic != NULL;
        }
    }
    return n;
}

/* Room: core. They go with it, as with Apache (clearRetryTopicWhenDeleteTopic). */
static enum err pop_retries_remove(struct broker *b, struct bytes name, struct after *after,
                                   struct fault *why)
{
    size_t n = bytes_start(name, RETRY_PREFIX) ? 0 : pop_retries(b, name, NULL);
    if (n == 0)
        return OK;
    cleanup(free_at) struct topic **found = calloc(n, sizeof(struct topic *));
    if (!found)
        return ERR_NO_MEMORY;
    (void)pop_retries(b, name, found);
    enum err err = OK;
    for (size_t i = 0; !err && i < n; i++) {
        char text[NAME_MAX_ANY]; /* the topic's own goes with it */
        struct bytes retry = found[i]->set.name;
        memcpy(text, retry.at, retry.len);
        err = topic_remove(b, bytes_of(text, retry.len), after, why);
    }
    return err;
}

enum err broker_topic_delete(struct broker *b, struct bytes name, struct fault *why)
{
    enum err err = topic_may_change(b, name, why);
    if (err)
        return err;
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    err = pop_retries_remove(b, name, &after, why);
    if (!err)
        err = topic_remove(b, name, &after, why);
    room_leave(&b->room);
    after_run(b, &after);
    return err;
}

enum err broker_topic_get(struct broker *b, struct bytes name, struct arena *arena,
                          struct topic_settings *out, struct fault *why)
{
    enum err err = OK;
    room_enter(&b->room);
    const struct topic *topic = topic_find(b, name);
    if (topic) {
        *out = topic->set;
        out->name = arena_copy(arena, topic->set.name);
        out->attributes = arena_copy(arena, topic->set.attributes);
        if (!out->name.at || (topic->set.attributes.len && !out->attributes.at))
            err = ERR_TOO_BIG;
    } else {
        err =
            fault_set(why, ERR_UNKNOWN_TOPIC, "No topic in this broker. topic: %.*s", BRIEF(name));
    }
    room_leave(&b->room);
    return err;
}

/* ---- groups ---- */

static enum err group_check(const struct group_settings *set, struct fault *why)
{
    if (group_name_check(set->name, why))
        return ERR_INVALID;
    if (set->retry_queues > QUEUES_MAX)
        return fault_set(why, ERR_INVALID, "%d retry queues: at most %d are possible",
                         set->retry_queues, QUEUES_MAX);
    if (set->attributes.len)
        return fault_set(why, ERR_INVALID, "unsupported key: a group has no attributes");
    return OK;
}

/* Room: core. */
static enum err group_change(struct broker *b, const struct group_settings *wanted,
                             struct fault *why)
{
    room_held(&b->room);
    const struct group *old = group_find(b, wanted->name);
    if (!old && b->groups.n >= b->set.max_groups)
        return fault_set(
            why, ERR_BUSY,
            "group [%.*s] cannot be created: the limit of %u groups (maxGroups) is reached",
            BRIEF(wanted->name), b->set.max_groups);
    struct group_settings set = *wanted;
    if (old)
        set.attributes = old->set.attributes; /* kept, as from a file; group_put copies first */
    struct group *made;
    enum err err = group_put(b, &set, &made);
    if (!err)
        table_changed(b, TABLE_GROUPS);
    return err;
}

enum err broker_group_set(struct broker *b, const struct group_settings *set, struct fault *why)
{
    enum err err = group_check(set, why);
    if (err)
        return err;
    struct after after;
    after_init(&after);
    room_enter(&b->room);
    err = group_change(b, set, why);
    room_leave(&b->room);
    after.tables_changed = !err;
    after_run(b, &after);
    return err;
}

enum err broker_group_delete(struct broker *b, struct bytes name, bool clean_offsets,
                             struct fault *why)
{
    struct after after;
    after_init(&after);
    enum err err = OK;
    room_enter(&b->room);
    if (clean_offsets)
        err = progress_remove(b, (struct bytes){0}, name);
    struct group *group = err ? NULL : map_remove(&b->groups, name);
    if (group) {
        free(group);
        table_changed(b, TABLE_GROUPS);
    }
    room_leave(&b->room);
    after.tables_changed = !err;
    after_run(b, &after);
    return err ? fault_set(why, err, "no memory to delete group [%.*s]", BRIEF(name)) : OK;
}

enum err broker_group_get(struct broker *b, struct bytes name, struct arena *arena,
                          struct group_settings *out, struct fault *why)
{
    enum err err = OK;
    room_enter(&b->room);
    const struct group *group = group_find(b, name);
    if (group) {
        *out = group->set;
        struct bytes *kept[] = {&out->name, &out->attributes, &out->retry_policy};
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            size_t len = kept[i]->len;
            *kept[i] = arena_copy(arena, *kept[i]);
            if (len && !kept[i]->at)
                err = ERR_TOO_BIG;
        }
    } else {
        err = fault_set(why, ERR_UNKNOWN_GROUP, "No group in this broker: %.*s", BRIEF(name));
    }
    room_leave(&b->room);
    return err;
}

/* ---- whole tables ---- */

enum err broker_table_write(struct broker *b, enum table_name which, struct buf *out)
{
    room_enter(&b->room);
    table_write(b, which, &(struct json_out){.buf = out});
    room_leave(&b->room);
    return out->err;
}
