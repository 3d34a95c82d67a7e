#include "daemon/watch.h"

#include "base/map.h"
#include "base/room.h"

#include <stdlib.h>

#define QUEUES_MAX 65536
#define FORGET     20 /* rounds without anybody asking */

struct watched {
    int32_t number;
    unsigned idle;               /* rounds */
    bool fresh;                  /* nobody has asked a name server yet */
    struct assign_queue *queues; /* the texts follow them in the same allocation; NULL: not known */
    size_t n;
    size_t name_len;
    char name[];
};

struct watch {
    struct room room;
    struct map topics; /* name → struct watched */
    int32_t next;
};

enum err watch_open(uint64_t seed, struct watch **out)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return ERR_NO_MEMORY;
    room_init(&w->room, "watch", ROOM_LEAF);
    map_init(&w->topics, seed);
    *out = w;
    return OK;
}

static void watched_free(struct watched *t)
{
    if (t)
        free(t->queues);
    free(t);
}

void watch_close(struct watch *w)
{
    if (!w)
        return;
    struct watched *t;
    for (size_t i = 0; (t = map_next(&w->topics, &i));)
        watched_free(t);
    map_clear(&w->topics);
    room_clear(&w->room);
    free(w);
}

/* Room: watch. NULL: no memory, or too many. */
static struct watched *watched_add(struct watch *w, struct bytes topic)
{
    struct watched *t = w->topics.n < WATCH_MAX ? calloc(1, sizeof *t + topic.len) : NULL;
    if (!t)
        return NULL;
    t->number = w->next;
    w->next = (w->next + 1) & 0xFFFFFF;
    t->fresh = true;
    t->name_len = topic.len;
    memcpy(t->name, topic.at, topic.len);
    if (map_put(&w->topics, bytes_of(t->name, t->name_len), t)) {
        free(t);
        return NULL;
    }
    return t;
}

static enum err queues_copy(const struct watched *t, struct arena *arena,
                            struct assign_queue **queues, size_t *n)
{
    struct assign_queue *copy = arena_alloc(arena, (t->n + 1) * sizeof *copy);
    if (!copy)
        return ERR_TOO_BIG;
    for (size_t i = 0; i < t->n; i++) {
        copy[i] = t->queues[i];
        copy[i].broker = i > 0 && bytes_equal(copy[i - 1].broker, t->queues[i].broker)
                             ? copy[i - 1].broker
                             : arena_copy(arena, t->queues[i].broker);
        if (!copy[i].broker.at)
            return ERR_TOO_BIG;
    }
    *queues = copy;
    *n = t->n;
    return OK;
}

enum err watch_find(struct watch *w, struct bytes topic, struct arena *arena,
                    struct assign_queue **queues, size_t *n, bool *ask)
{
    room_enter(&w->room);
    struct watched *t = map_get(&w->topics, topic);
    *ask = !t;
    if (!t)
        t = watched_add(w, topic);
    if (t)
        t->idle = 0;
    enum err err = t && t->queues ? queues_copy(t, arena, queues, n) : ERR_NOT_FOUND;
    room_leave(&w->room);
    return err;
}

void watch_each(struct watch *w, bool all,
                void (*ask)(void *user, struct bytes topic, int32_t number), void *user)
{
    room_enter(&w->room);
    struct watched **list = calloc(w->topics.n + 1, sizeof(struct watched *)), *t;
    size_t n = 0;
    for (size_t i = 0; list && (t = map_next(&w->topics, &i));)
        list[n++] = t;
    for (size_t i = 0; i < n; i++) {
        t = list[i];
        struct bytes name = bytes_of(t->name, t->name_len);
        if (all && t->idle++ > FORGET) {
            (void)map_remove(&w->topics, name);
            watched_free(t);
        } else if (all || t->fresh) {
            t->fresh = false;
            ask(user, name, t->number);
        }
    }
    room_leave(&w->room);
    free(list);
}

/* How many queues a route has, and how many bytes the names of its brokers. */
static size_t route_size(const struct route *route, size_t *texts)
{
    size_t n = 0;
    *texts = 0;
    for (size_t i = 0; route && i < route->n_queues; i++) {
        const struct route_queues *q = &route->queues[i];
        if (!(q->perm & PERM_READ) || q->read_queues <= 0)
            continue;
        n += (size_t)q->read_queues;
        *texts += q->broker_name.len;
    }
    return n;
}

static void queues_set(struct watched *t, const struct route *route)
{
    size_t texts, n = route_size(route, &texts);
    struct assign_queue *queues =
        n > 0 && n <= QUEUES_MAX ? calloc(1, n * sizeof *queues + texts) : NULL;
    free(t->queues);
    t->queues = queues;
    t->n = 0;
    uint8_t *room = queues ? (uint8_t *)&queues[n] : NULL;
    for (size_t i = 0; queues && i < route->n_queues; i++) {
        const struct route_queues *q = &route->queues[i];
        if (!(q->perm & PERM_READ) || q->read_queues <= 0)
            continue;
        struct bytes name = bytes_of(room, q->broker_name.len);
        memcpy(room, q->broker_name.at, q->broker_name.len);
        room += name.len;
        for (int32_t id = 0; id < q->read_queues; id++)
            queues[t->n++] = (struct assign_queue){name, id};
    }
}

void watch_learn(struct watch *w, int32_t number, const struct route *route)
{
    room_enter(&w->room);
    struct watched *t;
    for (size_t i = 0; (t = map_next(&w->topics, &i));)
        if (t->number == number)
            queues_set(t, route);
    room_leave(&w->room);
}
