/* offsets.c - how far each group has come in each queue, and where queues begin and end. */
#include "broker/pop_int.h"

#include <stdlib.h>

#define VERSION_COMMITS 500 /* the data version rises with every 500th commit, as Apache's does */

static struct place *progress_place(struct broker *b, struct bytes group, struct bytes topic,
                                    int32_t queue_id);
static enum err progress_make(struct broker *b, struct bytes key, struct progress **out);

/* Room: core. After a rebalance two members know of a queue: one that has it, and one that had it
 * and tells late how far it came. Only the first may take the group back. */
static bool commit_is_late(struct broker *b, const struct commit *c)
{
    room_held(&b->room);
    const struct place *place = progress_place(b, c->group, c->topic, c->queue_id);
    return place && c->offset < place->offset && place->by != c->session &&
           consumer_is(b, c->group, c->session) && consumer_is(b, c->group, place->by);
}

/* Room: core. */
static enum err commit_take(struct broker *b, const struct commit *c, struct fault *why)
{
    room_held(&b->room);
    const struct topic *topic = topic_find(b, c->topic);
    if (!group_find(b, c->group))
        return fault_set(why, ERR_UNKNOWN_GROUP, "group [%.*s] does not exist", BRIEF(c->group));
    if (!topic)
        return fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist, apply first please!",
                         BRIEF(c->topic));
    if (c->queue_id < 0 || c->queue_id >= topic_width(topic))
        return fault_set(why, ERR_INVALID, "queueId[%d] is illegal, topic[%.*s] has %d queues",
                         c->queue_id, BRIEF(c->topic), topic_width(topic));
    if (progress_was_reset(b, c->group, c->topic, c->queue_id))
        return OK; /* answered so by Apache's broker too: its reader will hear of the reset */
    bool known = c->forward && progress_get(b, c->group, c->topic, c->queue_id) >= c->offset;
    if (known || commit_is_late(b, c))
        return OK;
    return progress_set(b, c);
}

enum err broker_offset_commit(struct broker *b, const struct commit *commit, struct fault *why)
{
    if (commit->offset < 0)
        return fault_set(why, ERR_INVALID, "an offset of %lld cannot be committed",
                         (long long)commit->offset);
    room_enter(&b->room);
    enum err err = commit_take(b, commit, why);
    room_leave(&b->room);
    return err;
}

/* Witness: ConsumerManageProcessor.queryConsumerOffset. A queue that is empty counts as recent:
 * nothing is skipped by beginning at its first message. */
enum err broker_offset_query(struct broker *b, struct bytes group, struct bytes topic,
                             int32_t queue_id, bool zero_if_none, int64_t *out, struct fault *why)
{
    room_enter(&b->room);
    const struct topic *known = topic_find(b, topic);
    bool there = known && queue_id >= 0 && queue_id < topic_width(known);
    int64_t offset = progress_get(b, group, topic, queue_id);
    room_leave(&b->room);

    if (offset < 0 && there && zero_if_none && queue_is_recent(b, topic, queue_id))
        offset = 0;
    if (offset < 0)
        return fault_set(why, ERR_NOT_FOUND, "Not found, maybe this group consumer boot first");
    *out = offset;
    return OK;
}

/* The last message that was stored at that time or before; 0 when all came later, as on an Apache
 * broker. */
static int64_t last_until(struct broker *b, struct queue *queue, int64_t timestamp)
{
    int64_t next = timestamp < INT64_MAX ? queue_search_time(b->store, queue, timestamp + 1)
                                         : queue_max(queue);
    return next > queue_min(b->store, queue) ? next - 1 : 0;
}

/* A queue that is unknown begins and ends at 0, as on an Apache broker. */
enum err broker_bound(struct broker *b, struct bytes topic, int32_t queue_id,
                      enum queue_bound which, int64_t timestamp, int64_t *out, struct fault *why)
{
    (void)why;
    struct queue *queue = queue_id < 0 ? NULL : store_queue_find(b->store, topic, queue_id);
    if (!queue) {
        *out = which == BOUND_EARLIEST_TIME ? -1 : 0;
        return OK;
    }
    switch (which) {
    case BOUND_MIN:
        *out = queue_min(b->store, queue);
        break;
    case BOUND_MAX:
        *out = queue_max(queue);
        break;
    case BOUND_TIME:
        *out = queue_search_time(b->store, queue, timestamp);
        break;
    case BOUND_TIME_LAST:
        *out = last_until(b, queue, timestamp);
        break;
    case BOUND_EARLIEST_TIME:
        *out = queue_store_time(b->store, queue, queue_min(b->store, queue));
        break;
    }
    return OK;
}

/* The first message is still there, and not so much of the log has come after it that reading it
 * all would be a surprise. */
bool queue_is_recent(struct broker *b, struct bytes topic, int32_t queue_id)
{
    struct queue *queue = store_queue_find(b->store, topic, queue_id);
    if (!queue || queue_max(queue) == 0)
        return true;
    if (queue_min(b->store, queue) > 0)
        return false;
    if (b->set.recent_bytes == 0)
        return true;

    struct read_request request = {.max_count = 1};
    struct read_result first;
    store_read(b->store, queue, &request, &first);
    if (first.status != READ_FOUND)
        return false;
    struct record record;
    bool readable = record_decode(first.slices[0].bytes, &record) == OK;
    uint64_t end = store_confirmed(b->store);
    for (size_t i = 0; i < first.n_slices; i++)
        counted_drop(first.slices[i].owner);
    return readable && end - (uint64_t)record.position <= b->set.recent_bytes;
}

/* ---- the table ---- */

/* topic@group in `text`; empty when it does not fit, which no known name does. */
static struct bytes key_make(uint8_t text[PROGRESS_KEY_MAX], struct bytes group, struct bytes topic)
{
    struct wr w = wr_over(text, PROGRESS_KEY_MAX);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '@');
    wr_bytes_of(&w, group);
    return w.full ? (struct bytes){0} : wr_bytes(&w);
}

/* The first place whose queue number is not below. */
static size_t place_find(const struct progress *p, int32_t queue_id)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->places[middle].queue_id < queue_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Room: core. */
struct progress *progress_find(struct broker *b, struct bytes group, struct bytes topic)
{
    room_held(&b->room);
    uint8_t text[PROGRESS_KEY_MAX];
    return map_get(&b->progress, key_make(text, group, topic));
}

/* Room: core. */
struct progress *progress_need(struct broker *b, struct bytes group, struct bytes topic)
{
    room_held(&b->room);
    uint8_t text[PROGRESS_KEY_MAX];
    struct bytes key = key_make(text, group, topic);
    struct progress *p = map_get(&b->progress, key);
    if (!p && (key.len == 0 || progress_make(b, key, &p)))
        return NULL;
    return p;
}

struct place *place_of(struct progress *p, int32_t queue_id)
{
    size_t i = p ? place_find(p, queue_id) : 0;
    return p && i < p->n && p->places[i].queue_id == queue_id ? &p->places[i] : NULL;
}

/* Room: core. */
int64_t progress_get(struct broker *b, struct bytes group, struct bytes topic, int32_t queue_id)
{
    const struct place *place = progress_place(b, group, topic, queue_id);
    return place ? place->offset : -1;
}

/* Room: core. */
static struct place *progress_place(struct broker *b, struct bytes group, struct bytes topic,
                                    int32_t queue_id)
{
    return place_of(progress_find(b, group, topic), queue_id);
}

enum err progress_reset(struct broker *b, struct bytes group, struct bytes topic, int32_t queue_id,
                        int64_t offset)
{
    struct commit commit = {NULL, group, topic, queue_id, offset};
    enum err err = progress_set(b, &commit);
    if (!err)
        progress_place(b, group, topic, queue_id)->reset = true;
    return err;
}

bool progress_was_reset(struct broker *b, struct bytes group, struct bytes topic, int32_t queue_id)
{
    const struct place *place = progress_place(b, group, topic, queue_id);
    return place && place->reset;
}

/* Neither a topic nor a group has an @ in its name. */
void progress_names(const struct progress *p, struct bytes *topic, struct bytes *group)
{
    const char *at = memchr(p->key, '@', p->key_len);
    size_t len = at ? (size_t)(at - p->key) : p->key_len;
    *topic = bytes_of(p->key, len);
    *group = at ? bytes_of(at + 1, p->key_len - len - 1) : (struct bytes){0};
}

/* Room: core. */
enum err progress_remove(struct broker *b, struct bytes topic, struct bytes group)
{
    room_held(&b->room);
    struct progress **found = calloc(b->progress.n + 1, sizeof(struct progress *));
    if (!found)
        return ERR_NO_MEMORY;
    size_t n = 0;
    struct progress *p;
    for (size_t i = 0; (p = map_next(&b->progress, &i));) {
        struct bytes its_topic, its_group;
        progress_names(p, &its_topic, &its_group);
        if (topic.len ? bytes_equal(topic, its_topic) : bytes_equal(group, its_group))
            found[n++] = p;
    }
    for (size_t i = 0; i < n; i++) {
        (void)map_remove(&b->progress, bytes_of(found[i]->key, found[i]->key_len));
        progress_free(found[i]);
    }
    free(found);
    if (n > 0)
        table_changed(b, TABLE_OFFSETS);
    return OK;
}

void progress_free(struct progress *p)
{
    if (!p)
        return;
    tally_drop(p->tally);
    free(p->places);
    free(p);
}

static enum err progress_make(struct broker *b, struct bytes key, struct progress **out)
{
    struct progress *p = calloc(1, sizeof *p + key.len);
    if (!p)
        return ERR_NO_MEMORY;
    p->key_len = key.len;
    memcpy(p->key, key.at, key.len);
    enum err err = map_put(&b->progress, bytes_of(p->key, p->key_len), p);
    if (err) {
        free(p);
        return err;
    }
    *out = p;
    return OK;
}

static enum err place_set(struct progress *p, int32_t queue_id, int64_t offset,
                          const struct counted *by)
{
    size_t i = place_find(p, queue_id);
    if (i < p->n && p->places[i].queue_id == queue_id) {
        p->places[i].offset = offset;
        p->places[i].by = by;
        return OK;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 4;
        struct place *places = realloc(p->places, cap * sizeof *places);
        if (!places)
            return ERR_NO_MEMORY;
        p->places = places;
        p->cap = cap;
    }
    memmove(&p->places[i + 1], &p->places[i], (p->n - i) * sizeof *p->places);
    p->places[i] = (struct place){.queue_id = queue_id, .offset = offset, .by = by};
    p->n++;
    return OK;
}

/* Room: core. */
enum err progress_set(struct broker *b, const struct commit *c)
{
    room_held(&b->room);
    uint8_t text[PROGRESS_KEY_MAX];
    struct bytes key = key_make(text, c->group, c->topic);
    if (key.len == 0)
        return ERR_TOO_BIG;
    struct progress *p = map_get(&b->progress, key);
    enum err err = p ? OK : progress_make(b, key, &p);
    if (!err)
        err = place_set(p, c->queue_id, c->offset, c->session);
    if (err)
        return err;
    pop_moved(b);
    if (++b->tables[TABLE_OFFSETS].changes % VERSION_COMMITS == 0) {
        b->tables[TABLE_OFFSETS].version.counter++;
        b->tables[TABLE_OFFSETS].version.timestamp = clock_ms(b->clock);
    }
    return OK;
}

/* Room: core. */
enum err progress_put(struct broker *b, struct bytes key, const struct place *places, size_t n)
{
    room_held(&b->room);
    struct progress *p = map_get(&b->progress, key);
    enum err err = p ? OK : progress_make(b, key, &p);
    for (size_t i = 0; !err && i < n; i++)
        err = place_set(p, places[i].queue_id, places[i].offset, NULL);
    return err;
}
