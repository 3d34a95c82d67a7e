/* topics.c - the settings of topics, and how a topic comes to be. */
#include "broker/admin_int.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX 512

enum err broker_topics(struct broker *b, struct arena *arena, struct topic_settings **topics,
                       size_t *n, struct data_version *version)
{
    enum err err = OK;
    size_t at = 0;
    const int32_t both = PERM_READ | PERM_WRITE;

    room_enter(&b->room);
    struct topic_settings *copies = arena_alloc(arena, b->topics.n * sizeof *copies);
    const struct topic *topic;
    for (size_t i = 0; copies && (topic = map_next(&b->topics, &i));) {
        struct topic_settings *copy = &copies[at++];
        *copy = topic->set;
        copy->name = arena_copy(arena, topic->set.name);
        copy->attributes = arena_copy(arena, topic->set.attributes);
        if ((b->set.perm & both) != both) /* a broker being emptied is seen as such */
            copy->perm &= b->set.perm;
        if (!copy->name.at || !copy->attributes.at)
            err = ERR_TOO_BIG;
    }
    *version = b->tables[TABLE_TOPICS].version;
    room_leave(&b->room);

    if (!copies)
        err = ERR_TOO_BIG;
    if (err)
        return err;
    *topics = copies;
    *n = at;
    return OK;
}

/* ---- the table ---- */

/* Room: core. */
struct topic *topic_find(struct broker *b, struct bytes name)
{
    room_held(&b->room);
    return map_get(&b->topics, name);
}

int32_t topic_width(const struct topic *topic)
{
    int32_t r = topic->set.read_queues, w = topic->set.write_queues;
    return r > w ? r : w;
}

void topic_free(struct topic *topic)
{
    if (topic)
        free(topic->queues);
    free(topic);
}

/* Room: core. */
enum err topic_put(struct broker *b, const struct topic_settings *set, struct topic **out)
{
    room_held(&b->room);
    struct arena arena;
    arena_init(&arena, ATTRIBUTES_ARENA);
    struct bytes dedup = dedup_of_topic(b, set, &arena);
    size_t text = set->name.len + set->attributes.len + dedup.len;
    struct topic *topic = calloc(1, sizeof *topic + text);
    if (!topic) {
        arena_clear(&arena);
        return ERR_NO_MEMORY;
    }
    topic->set = *set;
    struct wr w = wr_over(topic->text, text);
    topic->set.name = bytes_of(w.at, set->name.len);
    wr_bytes_of(&w, set->name);
    topic->set.attributes = bytes_of(w.at, set->attributes.len);
    wr_bytes_of(&w, set->attributes);
    topic->dedup = bytes_of(w.at, dedup.len);
    wr_bytes_of(&w, dedup);
    arena_clear(&arena);

    struct topic *old = map_remove(&b->topics, set->name); /* its key is in it */
    enum err err = map_put(&b->topics, topic->set.name, topic);
    topic_free(old);
    if (err) {
        topic_free(topic);
        return err;
    }
    tomb_remove(b, topic->set.name);
    *out = topic;
    return OK;
}

/* Room: core. */
enum err topic_create(struct broker *b, const struct topic_settings *set, struct after *after,
                      struct topic **out, struct fault *why)
{
    room_held(&b->room);
    if (b->topics.n >= b->set.max_topics)
        return fault_set(
            why, ERR_BUSY,
            "topic[%.*s] cannot be created: the limit of %u topics (maxTopics) is reached",
            BRIEF(set->name), b->set.max_topics);
    enum err err = topic_put(b, set, out);
    if (err)
        return err;
    table_changed(b, TABLE_TOPICS);
    after->topics_changed = true;
    return OK;
}

/* Room: core. The slots grow by need, so a topic with a thousand unused queues costs nothing. */
struct queue *topic_queue(struct broker *b, struct topic *topic, int32_t queue_id)
{
    room_held(&b->room);
    invariant(queue_id >= 0 && queue_id < topic_width(topic));
    if (queue_id >= topic->n_queues) {
        int32_t n = queue_id < 8 ? 8 : queue_id + queue_id / 2 + 1;
        struct queue **queues = realloc(topic->queues, (size_t)n * sizeof(struct queue *));
        if (!queues)
            return NULL;
        memset(queues + topic->n_queues, 0, (size_t)(n - topic->n_queues) * sizeof(struct queue *));
        topic->queues = queues;
        topic->n_queues = n;
    }
    if (!topic->queues[queue_id])
        topic->queues[queue_id] = store_queue(b->store, topic->set.name, queue_id);
    return topic->queues[queue_id];
}

/* ---- creation on first use ---- */

static bool template_allows(struct broker *b, const struct topic *template)
{
    if (!b->set.auto_topics && bytes_equal(template->set.name, TEMPLATE_NAME))
        return false; /* it may stand in topics.json from a time when that was allowed */
    return (template->set.perm & PERM_INHERIT) != 0;
}

static enum err topic_unknown(struct broker *b, const struct produce *r, struct fault *why)
{
    const char *because = b->set.auto_topics ? "its default topic is no template here"
                                             : "automatic creation is off (autoCreateTopicEnable)";
    return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist, apply first please: %s",
                     BRIEF(r->topic), because);
}

/* Room: core. Witness: TopicConfigManager.createTopicInSendMessageMethod and
 * …SendMessageBackMethod. */
enum err topic_for_send(struct broker *b, const struct produce *r, struct after *after,
                        struct topic **out, struct fault *why)
{
    room_held(&b->room);
    struct topic *topic = topic_find(b, r->topic);
    if (topic) {
        *out = topic;
        return OK;
    }

    struct topic_settings set = {
        .name = r->topic, .perm = PERM_READ | PERM_WRITE, .read_queues = 1, .write_queues = 1};
    if (!bytes_start(r->topic, RETRY_PREFIX)) {
        const struct topic *template = topic_find(b, r->default_topic);
        if (!template || !template_allows(b, template))
            return topic_unknown(b, r, why);
        int32_t queues = r->default_queues;
        if (queues > template->set.write_queues)
            queues = template->set.write_queues;
        set.read_queues = set.write_queues = queues < 1 ? 1 : queues; /* none would be of no use */
        set.perm = template->set.perm & ~PERM_INHERIT;
        set.sys_flag = template->set.sys_flag;
        set.multi_tag = template->set.multi_tag;
    }
    return topic_create(b, &set, after, out, why);
}

/* Room: core. The topic called prefix and group, made if it is new; operators may forbid topics
 * that clients make, not these. */
static enum err topic_of_group(struct broker *b, struct bytes prefix, struct bytes group,
                               int32_t queues, int32_t perm, struct after *after,
                               struct topic **out, struct fault *why)
{
    room_held(&b->room);
    uint8_t text[TEXT_MAX];
    struct wr w = wr_over(text, sizeof text);
    wr_bytes_of(&w, prefix);
    wr_bytes_of(&w, group);
    *out = topic_find(b, wr_bytes(&w));
    if (*out)
        return OK;
    struct topic_settings set = {
        .name = wr_bytes(&w), .perm = perm, .read_queues = queues, .write_queues = queues};
    return topic_create(b, &set, after, out, why);
}

/* Room: core. */
enum err topic_for_retry(struct broker *b, const struct group *group, struct after *after,
                         struct topic **out, struct fault *why)
{
    *out = NULL;
    if (group->set.retry_queues <= 0)
        return OK; /* its operator does not want retries */
    return topic_of_group(b, RETRY_PREFIX, group->set.name, group->set.retry_queues,
                          PERM_READ | PERM_WRITE, after, out, why);
}

/* Room: core. */
enum err topic_for_dead(struct broker *b, struct bytes group, struct after *after,
                        struct topic **out, struct fault *why)
{
    return topic_of_group(b, DLQ_PREFIX, group, 1, b->set.dlq_perm, after, out, why);
}

/* ---- what every broker has ---- */

/* Room: core. Settings from a file win; what is missing is added and marked for saving. */
static enum err system_add(struct broker *b, const char *name, int32_t queues, int32_t perm)
{
    struct topic_settings set = {
        .name = bytes_str(name), .read_queues = queues, .write_queues = queues, .perm = perm};
    if (set.name.len == 0 || topic_find(b, set.name))
        return OK;
    struct topic *made;
    enum err err = topic_put(b, &set, &made);
    if (!err)
        b->tables[TABLE_TOPICS].changes++;
    return err;
}

/* Room: core. */
enum err topics_add_system(struct broker *b)
{
    room_held(&b->room);
    char reply[TEXT_MAX], revive[TEXT_MAX], members[TEXT_MAX];
    snprintf(reply, sizeof reply, "%s_REPLY_TOPIC", b->set.cluster);
    snprintf(revive, sizeof revive, "rmq_sys_REVIVE_LOG_%s", b->set.cluster);
    snprintf(members, sizeof members, "rmq_sys_SYNC_BROKER_MEMBER_%s", b->set.name);
    const int32_t both = PERM_READ | PERM_WRITE;
    const struct {
        const char *name;
        int32_t queues, perm;
    } all[] = {
        {b->set.auto_topics ? "TBW102" : "", b->set.default_queues, both | PERM_INHERIT},
        {"SELF_TEST_TOPIC", 1, both},
        {"BenchmarkTest", 1024, both},
        {b->set.cluster, 16, both | PERM_INHERIT},
        {b->set.name, 1, both | PERM_INHERIT},
        {"OFFSET_MOVED_EVENT", 1, both},
        {b->set.trace_topic ? b->set.trace_topic_name : "", 1, both},
        {"SCHEDULE_TOPIC_XXXX", 18, both},
        {reply, 1, both},
        {revive, 8, both},
        {members, 1, PERM_INHERIT},
        {"RMQ_SYS_TRANS_HALF_TOPIC", 1, both},
        {"RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, both},
        {"rmq_sys_wheel_timer", 1, both},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        enum err err = system_add(b, all[i].name, all[i].queues, all[i].perm);
        if (err)
            return err;
    }
    return OK;
}

/* ---- topics that only the log knows ---- */

struct found {
    struct broker *b;
    size_t n;
    enum err err;
};

static void stored_queue(void *user, struct bytes name, int32_t queue_id, struct queue *queue)
{
    struct found *found = user;
    struct broker *b = found->b;
    struct topic *topic = topic_find(b, name);
    if (found->err || queue_id < 0 || queue_id >= QUEUES_MAX || (topic && !topic->rescued))
        return;
    if (!topic && (tomb_find(b, name) || topic_name_check(name, NULL)))
        return;
    int32_t width = topic ? topic_width(topic) : 0;
    if (queue_id < width)
        return;
    struct topic_settings set = {
        .name = name,
        .read_queues = queue_id + 1,
        .write_queues = queue_id + 1,
        .perm = PERM_READ | PERM_WRITE,
    };
    found->n += !topic;
    found->err = topic_put(b, &set, &topic);
    if (!found->err)
        topic->rescued = true;
}

/* Room: core. Settings are saved a moment after they change, messages are kept from the first: what
 * a producer was told must be readable again, with as many queues as are known to have been used.
 */
enum err topics_add_stored(struct broker *b)
{
    room_held(&b->room);
    struct found found = {.b = b};
    tombs_tidy(b);
    store_each_queue(b->store, stored_queue, &found);
    if (found.n == 0)
        return found.err;
    table_changed(b, TABLE_TOPICS);
    size_t used = strlen(b->note);
    (void)snprintf(b->note + used, sizeof b->note - used,
                   "%s%zu topics had messages but no settings and were made anew", used ? "; " : "",
                   found.n);
    return found.err;
}
