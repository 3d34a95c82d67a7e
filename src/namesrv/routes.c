/* routes.c - which topic lies where: taking it in from registrations, telling it to clients. */
#include "namesrv/names_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { FLAG_UNIT = 1, FLAG_UNIT_SUB = 2 }; /* topicSysFlag */

/* The brokers of a group find each other by this topic; it is never told with an acting master. */
#define SYNC_GROUP_PREFIX BYTES("rmq_sys_SYNC_BROKER_MEMBER_")

/* What new topics are modelled on, where a broker makes them on first use. */
#define TEMPLATE_TOPIC  BYTES("TBW102")
#define SHOWN_TOPIC_MAX 160 /* bytes of a topic in a sentence */

static const struct place *place_find(const struct topic *topic, const struct team *team);
static enum err place_put(struct names *names, struct bytes topic, const struct place *place);
static void place_remove(struct names *names, struct topic *topic, const struct team *team,
                         struct list *empty);
static void forget_empty(struct names *names, struct list *empty);
static enum err show_route(const struct names *names, const struct topic *topic,
                           struct arena *arena, struct route *out);
static enum err unknown_topic(const struct names *names, struct bytes topic, struct fault *why);

/* ---- questions ---- */

enum err names_route(struct names *names, struct bytes topic, struct arena *arena,
                     struct route *out, struct fault *why)
{
    room_enter(&names->room);
    const struct topic *known = map_get(&names->topics, topic);
    enum err err = known ? show_route(names, known, arena, out) : unknown_topic(names, topic, why);
    room_leave(&names->room);
    return err;
}

static bool same_zone(struct bytes a, struct bytes b)
{
    return a.len == b.len &&
           (a.len == 0 || strncasecmp((const char *)a.at, (const char *)b.at, a.len) == 0);
}

void route_keep_zone(struct route *route, struct bytes zone)
{
    size_t n_queues = 0;
    for (size_t i = 0; i < route->n_queues; i++) {
        bool kept = true;
        for (size_t k = 0; k < route->n_brokers; k++) {
            const struct route_broker *broker = &route->brokers[k];
            if (bytes_equal(broker->name, route->queues[i].broker_name))
                kept = broker->addrs[0].id != 0 || same_zone(broker->zone, zone);
        }
        if (kept)
            route->queues[n_queues++] = route->queues[i];
    }
    route->n_queues = n_queues;

    size_t n_brokers = 0;
    for (size_t k = 0; k < route->n_brokers; k++) {
        const struct route_broker *broker = &route->brokers[k];
        if (broker->addrs[0].id != 0 || same_zone(broker->zone, zone))
            route->brokers[n_brokers++] = *broker;
    }
    route->n_brokers = n_brokers;
}

static bool topic_in_cluster(const struct topic *topic, struct bytes cluster)
{
    for (size_t i = 0; i < topic->n; i++)
        if (team_in_cluster(topic->places[i].team, cluster))
            return true;
    return false;
}

/* As Apache, for the flags it asks the first place only. */
static bool topic_wanted(const struct topic *topic, enum names_topics which, struct bytes cluster)
{
    int32_t flags = topic->places[0].sys_flag;
    switch (which) {
    case NAMES_ALL:
        return true;
    case NAMES_OF_CLUSTER:
        return topic_in_cluster(topic, cluster);
    case NAMES_UNIT:
        return flags & FLAG_UNIT;
    case NAMES_UNIT_SUB:
        return flags & FLAG_UNIT_SUB;
    case NAMES_UNIT_SUB_ONLY:
        return (flags & FLAG_UNIT_SUB) && !(flags & FLAG_UNIT);
    case NAMES_SYSTEM:
        break;
    }
    return false;
}

static enum err list_topics(struct names *names, enum names_topics which, struct bytes cluster,
                            struct arena *arena, struct bytes **topics, size_t *n)
{
    room_enter(&names->room);
    struct bytes *list = arena_alloc(arena, names->topics.n * sizeof *list);
    enum err err = list ? OK : ERR_TOO_BIG;
    size_t found = 0;
    const struct topic *topic;
    for (size_t i = 0; !err && (topic = map_next(&names->topics, &i));) {
        if (!topic_wanted(topic, which, cluster))
            continue;
        if (!names_keep(arena, topic->name, &list[found++]))
            err = ERR_TOO_BIG;
    }
    room_leave(&names->room);
    if (err)
        return err;
    if (found > 0)
        qsort(list, found, sizeof *list, names_compare);
    *topics = list;
    *n = found;
    return OK;
}

/* Each cluster's name and its brokers' names, as topics of these names exist in every broker. */
static enum err list_system(struct names *names, struct arena *arena, struct bytes **topics,
                            size_t *n, struct bytes *addr)
{
    struct route_broker *brokers;
    struct cluster_names *clusters;
    size_t n_brokers, n_clusters, n_names = 0, found = 0;
    enum err err = names_clusters(names, arena, &brokers, &n_brokers, &clusters, &n_clusters);
    if (err)
        return err;
    for (size_t i = 0; i < n_clusters; i++)
        n_names += 1 + clusters[i].n_brokers;
    struct bytes *list = arena_alloc(arena, n_names * sizeof *list);
    if (!list)
        return ERR_TOO_BIG;
    for (size_t i = 0; i < n_clusters; i++) {
        list[found++] = clusters[i].cluster;
        for (size_t k = 0; k < clusters[i].n_brokers; k++)
            list[found++] = clusters[i].brokers[k];
    }
    if (found > 0)
        qsort(list, found, sizeof *list, names_compare);

    size_t distinct = 0;
    for (size_t i = 0; i < found; i++)
        if (distinct == 0 || !bytes_equal(list[distinct - 1], list[i]))
            list[distinct++] = list[i];
    *topics = list;
    *n = distinct;
    *addr = n_brokers > 0 ? brokers[0].addrs[0].addr : (struct bytes){0};
    return OK;
}

enum err names_topic_list(struct names *names, enum names_topics which, struct bytes cluster,
                          struct arena *arena, struct bytes **topics, size_t *n, struct bytes *addr)
{
    if (which == NAMES_SYSTEM)
        return list_system(names, arena, topics, n, addr);
    *addr = (struct bytes){0};
    return list_topics(names, which, cluster, arena, topics, n);
}

/* ---- changes by an operator ---- */

static size_t change_perms(struct names *names, const struct team *team, int32_t keep, int32_t add)
{
    size_t n = 0;
    struct topic *topic;
    for (size_t i = 0; (topic = map_next(&names->topics, &i));) {
        for (size_t k = 0; k < topic->n; k++) {
            if (topic->places[k].team != team)
                continue;
            topic->places[k].perm = (topic->places[k].perm & keep) | add;
            n++;
        }
    }
    return n;
}

size_t names_write_perm(struct names *names, struct bytes broker, bool allow)
{
    room_enter(&names->room);
    const struct team *team = team_find(names, broker);
    size_t n = 0;
    if (team && allow)
        n = change_perms(names, team, 0, PERM_READ | PERM_WRITE); /* and no other bit, as Apache */
    else if (team)
        n = change_perms(names, team, ~PERM_WRITE, 0);
    room_leave(&names->room);
    return n;
}

void names_delete_topic(struct names *names, struct bytes topic, struct bytes cluster)
{
    room_enter(&names->room);
    struct list empty;
    list_init(&empty);
    struct topic *known = map_get(&names->topics, topic);
    for (size_t i = known ? known->n : 0; i-- > 0;) {
        const struct team *team = known->places[i].team;
        if (cluster.len == 0 || team_in_cluster(team, cluster))
            place_remove(names, known, team, &empty);
    }
    forget_empty(names, &empty);
    room_leave(&names->room);
}

/* Room: routes. */
static enum err add_topic(struct names *names, struct bytes topic, const struct route *route,
                          struct fault *why)
{
    room_held(&names->room);
    for (size_t i = 0; i < route->n_queues; i++)
        if (!team_find(names, route->queues[i].broker_name))
            return fault_set(why, ERR_NOT_FOUND,
                             "topic %.*s cannot lie on broker %.*s, which is not registered",
                             SHOWN(topic), SHOWN(route->queues[i].broker_name));
    if (!map_get(&names->topics, topic) && names->topics.n >= NAMES_TOPICS_MAX)
        return fault_set(why, ERR_TOO_BIG, "%d topics are known, which is the maximum",
                         NAMES_TOPICS_MAX);
    if (names->n_places + route->n_queues > NAMES_SERVES_MAX)
        return fault_set(why, ERR_TOO_BIG, "the brokers' topics are more than %d together",
                         NAMES_SERVES_MAX);
    for (size_t i = 0; i < route->n_queues; i++) {
        const struct route_queues *q = &route->queues[i];
        enum err err = place_put(names, topic,
                                 &(struct place){team_find(names, q->broker_name), q->read_queues,
                                                 q->write_queues, q->perm, q->sys_flag});
        if (err)
            return err;
    }
    return OK;
}

enum err names_add_topic(struct names *names, struct bytes topic, const struct route *route,
                         struct fault *why)
{
    if (topic.len == 0)
        return fault_set(why, ERR_INVALID, "the topic has no name");
    if (topic.len > NAMES_TOPIC_MAX)
        return fault_set(why, ERR_TOO_BIG, "the topic's name has %zu bytes, more than %d",
                         topic.len, NAMES_TOPIC_MAX);
    room_enter(&names->room);
    enum err err = add_topic(names, topic, route, why);
    room_leave(&names->room);
    return err;
}

/* ---- for registrations ---- */

/* Room: routes. A topic named twice is counted twice: near the limit that refuses too early. */
enum err routes_check(const struct names *names, const struct team *team,
                      const struct topic_settings *topics, size_t n, struct fault *why)
{
    room_held(&names->room);
    size_t new_topics = 0, new_places = 0;
    for (size_t i = 0; i < n; i++) {
        const struct topic *known = map_get(&names->topics, topics[i].name);
        if (!known)
            new_topics++;
        if (!known || !team || !place_find(known, team))
            new_places++;
    }
    if (names->topics.n + new_topics > NAMES_TOPICS_MAX)
        return fault_set(why, ERR_TOO_BIG,
                         "%zu topics are known and %zu would be new, which is more than %d",
                         names->topics.n, new_topics, NAMES_TOPICS_MAX);
    if (names->n_places + new_places > NAMES_SERVES_MAX)
        return fault_set(why, ERR_TOO_BIG, "the brokers' topics would be more than %d together",
                         NAMES_SERVES_MAX);
    return OK;
}

/* Room: routes. */
enum err routes_take(struct names *names, const struct team *team,
                     const struct topic_settings *topics, size_t n, bool changed, int32_t perm_mask)
{
    room_held(&names->room);
    for (size_t i = 0; i < n; i++) {
        const struct topic_settings *t = &topics[i];
        const struct topic *known = map_get(&names->topics, t->name);
        if (!changed && known && place_find(known, team))
            continue; /* an operator may have changed its permission: that holds for now */
        enum err err = place_put(names, t->name,
                                 &(struct place){team, t->read_queues, t->write_queues,
                                                 t->perm & perm_mask, t->sys_flag});
        if (err)
            return err;
    }
    return OK;
}

/* Room: routes. */
void routes_wipe(struct names *names, const struct team *team)
{
    room_held(&names->room);
    (void)change_perms(names, team, ~PERM_WRITE, 0);
}

/* Room: routes. */
void routes_forget(struct names *names, const struct team *team, enum loss how)
{
    room_held(&names->room);
    struct list empty;
    list_init(&empty);
    struct topic *topic;
    for (size_t i = 0; (topic = map_next(&names->topics, &i));)
        place_remove(names, topic, team, &empty);
    list_each(k, &empty)
        lost_add(names, list_entry(k, struct topic, empty)->name, team, how);
    forget_empty(names, &empty);
}

static void topic_free(struct topic *topic)
{
    free(topic->places);
    free(topic);
}

void routes_clear(struct names *names)
{
    struct topic *topic;
    for (size_t i = 0; (topic = map_next(&names->topics, &i));)
        topic_free(topic);
    map_clear(&names->topics);
    names->n_places = 0;
}

/* ---- topics and places ---- */

/* Where the team stands or would stand among the places of the topic. */
static size_t place_index(const struct topic *topic, struct bytes team)
{
    size_t low = 0, high = topic->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(topic->places[middle].team->name, team) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct place *place_find(const struct topic *topic, const struct team *team)
{
    size_t index = place_index(topic, team->name);
    return index < topic->n && topic->places[index].team == team ? &topic->places[index] : NULL;
}

static enum err topic_new(struct names *names, struct bytes name, struct topic **out)
{
    cleanup(free_at) struct topic *topic = calloc(1, sizeof *topic + name.len);
    if (!topic)
        return ERR_NO_MEMORY;
    uint8_t *behind = (uint8_t *)(topic + 1);
    topic->name = put_behind(&behind, name);
    enum err err = map_put(&names->topics, topic->name, topic);
    if (err)
        return err;
    lost_forget(names, name);
    *out = take(&topic);
    return OK;
}

static enum err places_grow(struct topic *topic)
{
    size_t cap = topic->cap ? topic->cap * 2 : 1; /* most topics lie on one broker or a few */
    struct place *places = realloc(topic->places, cap * sizeof *places);
    if (!places)
        return ERR_NO_MEMORY;
    topic->places = places;
    topic->cap = cap;
    return OK;
}

/* Adds or replaces. */
static enum err place_put(struct names *names, struct bytes name, const struct place *place)
{
    invariant(place->team != NULL);
    struct topic *topic = map_get(&names->topics, name);
    enum err err = topic ? OK : topic_new(names, name, &topic);
    if (err)
        return err;
    size_t index = place_index(topic, place->team->name);
    if (index < topic->n && topic->places[index].team == place->team) {
        topic->places[index] = *place;
        return OK;
    }
    if (topic->n == topic->cap)
        err = places_grow(topic);
    if (err) {
        if (topic->n == 0) {
            (void)map_remove(&names->topics, topic->name);
            topic_free(topic);
        }
        return err;
    }
    memmove(topic->places + index + 1, topic->places + index,
            (topic->n - index) * sizeof *topic->places);
    topic->places[index] = *place;
    topic->n++;
    names->n_places++;
    return OK;
}

/* Topics that have lost their last place go into `empty`: the caller may be walking the map. */
static void place_remove(struct names *names, struct topic *topic, const struct team *team,
                         struct list *empty)
{
    const struct place *place = place_find(topic, team);
    if (!place)
        return;
    size_t index = (size_t)(place - topic->places);
    topic->n--;
    names->n_places--;
    memmove(topic->places + index, topic->places + index + 1,
            (topic->n - index) * sizeof *topic->places);
    if (topic->n == 0)
        list_add_tail(empty, &topic->empty);
}

static void forget_empty(struct names *names, struct list *empty)
{
    for (struct link *k; (k = list_pop(empty));) {
        struct topic *topic = list_entry(k, struct topic, empty);
        (void)map_remove(&names->topics, topic->name);
        topic_free(topic);
    }
}

/* ---- telling a route ---- */

/* Clients write to id 0 only. With no master there, the smallest id is shown in its place, once the
 * topic's write permission there has been taken away. */
static void show_acting(struct route_broker *broker, const struct place *place)
{
    if (broker->acting_master && broker->addrs[0].id != 0 && !(place->perm & PERM_WRITE))
        broker->addrs[0].id = 0;
}

/* Room: routes. */
static enum err show_route(const struct names *names, const struct topic *topic,
                           struct arena *arena, struct route *out)
{
    room_held(&names->room);
    struct route route = {0};
    route.brokers = arena_alloc(arena, topic->n * sizeof *route.brokers);
    route.queues = arena_alloc(arena, topic->n * sizeof *route.queues);
    if (!route.brokers || !route.queues)
        return ERR_TOO_BIG;
    bool acting = names->options.acting_master && !bytes_start(topic->name, SYNC_GROUP_PREFIX);
    for (size_t i = 0; i < topic->n; i++) {
        const struct place *place = &topic->places[i];
        struct route_broker *broker = &route.brokers[route.n_brokers++];
        enum err err = team_show(place->team, arena, broker);
        if (err)
            return err;
        if (acting)
            show_acting(broker, place);
        route.queues[route.n_queues++] = (struct route_queues){
            broker->name, place->read_queues, place->write_queues, place->perm, place->sys_flag};
    }
    const struct bytes *order = NULL;
    if (names->options.order_enable)
        order = kvset_get(&names->settings, ORDER_SPACE, topic->name);
    if (order && !names_keep(arena, *order, &route.order_conf))
        return ERR_TOO_BIG;
    *out = route;
    return OK;
}

/* Room: routes. The official clients show the remark to their users, and some look for its
 * beginning; so that comes first and then what is the matter: the broker was lost, or there is
 * none, or nobody makes topics on first use. Brokers that do have the topic that new ones are
 * modelled on. */
static enum err unknown_topic(const struct names *names, struct bytes topic, struct fault *why)
{
    room_held(&names->room);
    char reason[320] = "no broker is registered here";
    size_t n = names->teams.n;
    bool lost = lost_tell(names, topic, reason, sizeof reason);
    bool made_on_use = map_get(&names->topics, TEMPLATE_TOPIC) != NULL;
    if (!lost && n > 0)
        (void)snprintf(
            reason, sizeof reason, "%zu broker%s registered here and none has it; %s", n,
            n == 1 ? " is" : "s are",
            made_on_use
                ? "it is created when the first message is sent to it"
                : "none creates topics on first use (autoCreateTopicEnable), so it has to be "
                  "created before");
    if (topic.len > SHOWN_TOPIC_MAX)
        topic.len = SHOWN_TOPIC_MAX;
    return fault_set(why, ERR_UNKNOWN_TOPIC,
                     "No topic route info in name server for the topic: %.*s; %s", BYTES_ARG(topic),
                     reason);
}
