/* tombs.c - deleted topics whose messages are still in the store (see admin.c).
 *
 * A tomb keeps how far the topic's queues went, all together, when it was deleted. If they go
 * further at the next start, the topic had been made anew by a message, and a crash took its
 * settings: then it is no deleted topic any more.
 *
 * Written into topics.json as "deletedTopics", a member that Apache's reader passes over.
 */
#include "broker/broker_int.h"

#include <stdlib.h>

/* Room: core. */
static void queue_count(void *user, struct bytes topic, int32_t queue_id, struct queue *queue)
{
    (void)queue_id;
    struct broker *b = user;
    struct tomb *tomb = map_get(&b->tombs, topic);
    if (!tomb)
        return;
    tomb->seen = true;
    tomb->found += queue_max(queue);
}

static void queues_count(struct broker *b)
{
    struct tomb *tomb;
    for (size_t i = 0; (tomb = map_next(&b->tombs, &i));) {
        tomb->seen = false;
        tomb->found = 0;
    }
    store_each_queue(b->store, queue_count, b);
}

void tombs_tidy(struct broker *b)
{
    room_held(&b->room);
    if (b->tombs.n == 0)
        return;
    queues_count(b);
    size_t n = 0;
    struct tomb *tomb, **unneeded = calloc(b->tombs.n, sizeof(struct tomb *));
    for (size_t i = 0; unneeded && (tomb = map_next(&b->tombs, &i));)
        if (!tomb->seen || tomb->found > tomb->end)
            unneeded[n++] = tomb;
    for (size_t i = 0; i < n; i++)
        tomb_remove(b, bytes_of(unneeded[i]->name, unneeded[i]->name_len));
    free(unneeded);
}

void broker_tombs_tidy(struct broker *b)
{
    room_enter(&b->room);
    tombs_tidy(b);
    room_leave(&b->room);
}

bool tomb_find(struct broker *b, struct bytes name)
{
    room_held(&b->room);
    return map_get(&b->tombs, name) != NULL;
}

void tomb_remove(struct broker *b, struct bytes name)
{
    room_held(&b->room);
    free(map_remove(&b->tombs, name));
}

enum err tomb_put(struct broker *b, struct bytes name, int64_t end)
{
    room_held(&b->room);
    tomb_remove(b, name);
    struct tomb *tomb = calloc(1, sizeof *tomb + name.len);
    if (!tomb)
        return ERR_NO_MEMORY;
    tomb->end = end;
    tomb->name_len = name.len;
    memcpy(tomb->name, name.at, name.len);
    enum err err = map_put(&b->tombs, bytes_of(tomb->name, tomb->name_len), tomb);
    if (err)
        free(tomb);
    return err;
}

enum err tomb_make(struct broker *b, struct bytes name, struct fault *why)
{
    room_held(&b->room);
    if (b->tombs.n >= b->set.max_topics)
        tombs_tidy(b);
    if (b->tombs.n >= b->set.max_topics)
        return fault_set(why, ERR_BUSY,
                         "topic[%.*s] cannot be deleted: %u deleted topics (maxTopics) still have "
                         "messages; try again when these are older than fileReservedTime",
                         BRIEF(name), b->set.max_topics);
    enum err err = tomb_put(b, name, 0);
    if (err)
        return err;
    queues_count(b);
    struct tomb *tomb = map_get(&b->tombs, name);
    tomb->end = tomb->found;
    if (!tomb->seen)
        tomb_remove(b, name);
    return OK;
}

void tombs_clear(struct broker *b)
{
    struct tomb *tomb;
    for (size_t i = 0; (tomb = map_next(&b->tombs, &i));)
        free(tomb);
    map_clear(&b->tombs);
}
