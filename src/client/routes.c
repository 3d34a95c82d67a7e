/* routes.c - which brokers have a topic.
 *
 * A route is asked for when a topic is first used and looked at again every route_every_ms. Whoever
 * uses one holds a count of it and may go on with it while the cache has a newer one already. What
 * was known stays known while no name server answers. */
#include "client/client_int.h"

#include <stdlib.h>

#define ROUTE_MEMORY (16u << 20)
#define QUEUES_MAX   65536 /* of one broker */

/* ---- from the answer to a route ---- */

static void route_release(struct counted *counted)
{
    struct topic_route *route = list_entry(counted, struct topic_route, counted);
    struct arena arena = route->arena;
    arena_clear(&arena); /* the route itself is in it */
}

static int by_name(const void *a, const void *b)
{
    return bytes_compare(((const struct topic_broker *)a)->name,
                         ((const struct topic_broker *)b)->name);
}

static enum err brokers_make(struct topic_route *out, const struct route *route)
{
    out->brokers = arena_alloc(&out->arena, (route->n_brokers + 1) * sizeof *out->brokers);
    if (!out->brokers)
        return ERR_TOO_BIG;
    for (size_t i = 0; i < route->n_brokers; i++) {
        const struct route_broker *from = &route->brokers[i];
        struct topic_broker *to = &out->brokers[out->n_brokers++];
        to->name = from->name;
        to->others = arena_alloc(&out->arena, (from->n_addrs + 1) * sizeof *to->others);
        to->other_ids = arena_alloc(&out->arena, (from->n_addrs + 1) * sizeof *to->other_ids);
        if (!to->others || !to->other_ids)
            return ERR_TOO_BIG;
        for (size_t k = 0; k < from->n_addrs; k++) {
            if (from->addrs[k].id == 0) {
                to->master = from->addrs[k].addr;
                continue;
            }
            to->other_ids[to->n_others] = (int64_t)from->addrs[k].id;
            to->others[to->n_others++] = from->addrs[k].addr;
        }
    }
    qsort(out->brokers, out->n_brokers, sizeof *out->brokers, by_name);
    return OK;
}

static bool broker_index(const struct topic_route *route, struct bytes name, uint32_t *out)
{
    for (size_t i = 0; i < route->n_brokers; i++) {
        if (bytes_equal(route->brokers[i].name, name)) {
            *out = (uint32_t)i;
            return true;
        }
    }
    return false;
}

static enum err queues_add(struct topic_route *route, struct topic_queue **list, size_t *n,
                           uint32_t broker, int32_t queues)
{
    if (queues < 0 || queues > QUEUES_MAX)
        return ERR_MALFORMED;
    struct topic_queue *grown =
        arena_alloc(&route->arena, (*n + (size_t)queues + 1) * sizeof *grown);
    if (!grown)
        return ERR_TOO_BIG;
    if (*n > 0)
        memcpy(grown, *list, *n * sizeof *grown);
    for (int32_t i = 0; i < queues; i++)
        grown[(*n)++] = (struct topic_queue){.broker = broker, .id = i};
    *list = grown;
    return OK;
}

/* "broker-a:4;broker-b:4": an ordered topic has exactly these, also while a broker is away. */
static enum err ordered_make(struct topic_route *out, struct bytes conf)
{
    while (conf.len > 0) {
        const uint8_t *end = memchr(conf.at, ';', conf.len);
        struct bytes item = {conf.at, end ? (size_t)(end - conf.at) : conf.len};
        conf = bytes_from(conf, item.len + (end != NULL));
        const uint8_t *colon = memrchr(item.at, ':', item.len);
        int32_t queues;
        uint32_t broker;
        if (!colon || !bytes_to_i32(bytes_from(item, (size_t)(colon - item.at) + 1), &queues))
            continue;
        item.len = (size_t)(colon - item.at);
        if (!broker_index(out, item, &broker))
            continue;
        enum err err = queues_add(out, &out->write, &out->n_write, broker, queues);
        if (err)
            return err;
    }
    return OK;
}

static int by_broker(const void *a, const void *b)
{
    return bytes_compare(((const struct route_queues *)a)->broker_name,
                         ((const struct route_queues *)b)->broker_name);
}

static enum err queues_make(struct topic_route *out, const struct route *route)
{
    bool ordered = route->order_conf.len > 0;
    enum err err = ordered ? ordered_make(out, route->order_conf) : OK;
    if (route->n_queues > 0) /* else it is NULL, which qsort does not take */
        qsort(route->queues, route->n_queues, sizeof *route->queues, by_broker);
    for (size_t i = 0; !err && i < route->n_queues; i++) {
        const struct route_queues *q = &route->queues[i];
        uint32_t broker;
        if (!broker_index(out, q->broker_name, &broker))
            continue;
        if (q->perm & PERM_READ)
            err = queues_add(out, &out->read, &out->n_read, broker, q->read_queues);
        if (!err && !ordered && q->perm & PERM_WRITE && out->brokers[broker].master.len > 0)
            err = queues_add(out, &out->write, &out->n_write, broker, q->write_queues);
    }
    return err;
}

/* Text with an end, in the arena; NULL: no room. */
static const char *text_of(struct arena *arena, struct bytes b)
{
    char *text = arena_alloc(arena, b.len + 1);
    if (text && b.len > 0)
        memcpy(text, b.at, b.len);
    return text;
}

static enum err names_make(struct topic_route *out, const char *topic, const char *const *brokers,
                           const struct topic_queue *queues, size_t n, struct omq_queue **names)
{
    *names = arena_alloc(&out->arena, (n + 1) * sizeof **names);
    for (size_t i = 0; *names && i < n; i++)
        (*names)[i] = (struct omq_queue){
            .topic = topic, .broker = brokers[queues[i].broker], .id = queues[i].id};
    return *names ? OK : ERR_TOO_BIG;
}

static enum err all_names_make(struct topic_route *out, struct bytes topic)
{
    const char *topic_text = text_of(&out->arena, topic);
    const char **brokers = arena_alloc(&out->arena, (out->n_brokers + 1) * sizeof *brokers);
    if (!topic_text || !brokers)
        return ERR_TOO_BIG;
    for (size_t i = 0; i < out->n_brokers; i++) {
        brokers[i] = text_of(&out->arena, out->brokers[i].name);
        if (!brokers[i])
            return ERR_TOO_BIG;
    }
    enum err err =
        names_make(out, topic_text, brokers, out->write, out->n_write, &out->write_names);
    if (!err)
        err = names_make(out, topic_text, brokers, out->read, out->n_read, &out->read_names);
    return err;
}

static struct topic_route *route_alloc(void)
{
    struct arena arena;
    arena_init(&arena, ROUTE_MEMORY);
    struct topic_route *route = arena_alloc(&arena, sizeof *route);
    if (!route)
        return NULL;
    route->arena = arena;
    counted_init(&route->counted, route_release);
    return route;
}

enum err route_make(struct bytes topic, struct bytes body, struct topic_route **out)
{
    struct topic_route *made = route_alloc();
    if (!made)
        return ERR_NO_MEMORY;
    made->text = arena_copy(&made->arena, body);
    struct route route;
    enum err err =
        body.len > 0 && !made->text.at ? ERR_TOO_BIG : route_read(made->text, &made->arena, &route);
    if (!err)
        err = brokers_make(made, &route);
    if (!err)
        err = queues_make(made, &route);
    if (!err)
        err = all_names_make(made, topic);
    if (err)
        counted_drop(&made->counted);
    else
        *out = made;
    return err;
}

enum err route_make_template(const struct topic_route *template, struct bytes topic, int32_t queues,
                             struct topic_route **out)
{
    struct topic_route *made;
    enum err err = route_make(topic, template->text, &made);
    if (err)
        return err;
    size_t kept = 0;
    for (size_t i = 0; i < made->n_write; i++) {
        if (made->write[i].id >= queues)
            continue;
        made->write_names[kept] = made->write_names[i];
        made->write[kept++] = made->write[i];
    }
    made->n_write = kept;
    *out = made;
    return OK;
}

/* ---- the cache ---- */

struct route_entry {
    struct omq_client *client;
    struct topic_route *route; /* NULL: not known */
    struct list wants;         /* by link */
    struct name_call call;
    bool asking;
    size_t topic_len;
    char topic[];
};

static void wants_tell(struct route_entry *entry, const struct answer *answer)
{
    struct list ready;
    list_init(&ready);
    list_append_all(&ready, &entry->wants);
    while (!list_empty(&ready)) {
        struct route_want *want = list_entry(list_pop(&ready), struct route_want, link);
        if (entry->route)
            counted_hold(&entry->route->counted);
        want->ready(want, entry->route, answer);
    }
}

static void put_topic(const struct call *call, struct frame_out *frame)
{
    const struct name_call *outer = list_entry(call, struct name_call, call);
    const struct route_entry *entry = list_entry(outer, struct route_entry, call);
    frame_put(frame, BYTES("topic"), bytes_of(entry->topic, entry->topic_len));
}

static void entry_answered(struct name_call *call, const struct answer *answer)
{
    struct route_entry *entry = list_entry(call, struct route_entry, call);
    struct omq_client *client = entry->client;
    entry->asking = false;
    struct answer told = *answer;
    struct topic_route *fresh = NULL;
    if (!answer->err && answer->head->code == RES_SUCCESS) {
        bool same = entry->route && bytes_equal(entry->route->text, answer->body);
        told.err =
            same ? OK : route_make(bytes_of(entry->topic, entry->topic_len), answer->body, &fresh);
        told.err = told.err == ERR_TOO_BIG ? ERR_MALFORMED : told.err; /* no topic is that big */
        told.reason = "the name server's answer cannot be read";
    } else if (!answer->err && answer->head->code == RES_TOPIC_NOT_EXIST && entry->route) {
        counted_drop(&take(&entry->route)->counted);
    }
    if (fresh) {
        if (entry->route)
            counted_drop(&entry->route->counted);
        entry->route = fresh;
    }
    if (told.err && !client->closing)
        client_log(client, OMQ_WARN, "no news of the route of topic %s: %s", entry->topic,
                   told.reason);
    wants_tell(entry, &told);
}

static void entry_ask(struct route_entry *entry, uint64_t timeout_ms)
{
    if (entry->asking)
        return;
    entry->asking = true;
    entry->call = (struct name_call){
        .call = {.code = REQ_GET_ROUTEINFO_BY_TOPIC, .put = put_topic, .room = entry->topic_len},
        .done = entry_answered,
    };
    name_call_start(entry->client, &entry->call, timeout_ms);
}

static struct route_entry *entry_need(struct omq_client *client, struct bytes topic)
{
    struct route_entry *entry = map_get(&client->routes, topic);
    if (entry)
        return entry;
    entry = calloc(1, sizeof *entry + topic.len + 1);
    if (!entry)
        return NULL;
    entry->client = client;
    list_init(&entry->wants);
    entry->topic_len = topic.len;
    memcpy(entry->topic, topic.at, topic.len);
    if (map_put(&client->routes, bytes_of(entry->topic, entry->topic_len), entry)) {
        free(entry);
        return NULL;
    }
    return entry;
}

void route_get(struct omq_client *client, struct bytes topic, bool fresh, struct route_want *want,
               uint64_t timeout_ms)
{
    loop_here(client->loop);
    struct route_entry *entry = entry_need(client, topic);
    if (!entry) {
        want->ready(want, NULL,
                    &(struct answer){.err = ERR_NO_MEMORY, .reason = err_text(ERR_NO_MEMORY)});
        return;
    }
    if (entry->route && !fresh) {
        counted_hold(&entry->route->counted);
        want->ready(want, entry->route, NULL);
        return;
    }
    list_add_tail(&entry->wants, &want->link);
    entry_ask(entry, timeout_ms);
}

struct topic_route *route_cached(struct omq_client *client, struct bytes topic)
{
    struct route_entry *entry = map_get(&client->routes, topic);
    if (!entry || !entry->route)
        return NULL;
    counted_hold(&entry->route->counted);
    return entry->route;
}

void routes_refresh(struct omq_client *client)
{
    struct route_entry *entry;
    for (size_t i = 0; (entry = map_next(&client->routes, &i));)
        entry_ask(entry, (uint64_t)client->options.timeout_ms);
}

void routes_each(struct omq_client *client,
                 void (*each)(void *user, struct bytes address, bool master), void *user)
{
    const struct route_entry *entry;
    for (size_t i = 0; (entry = map_next(&client->routes, &i));) {
        for (size_t k = 0; entry->route && k < entry->route->n_brokers; k++) {
            const struct topic_broker *broker = &entry->route->brokers[k];
            if (broker->master.len > 0)
                each(user, broker->master, true);
            for (size_t j = 0; j < broker->n_others; j++)
                each(user, broker->others[j], false);
        }
    }
}

void routes_close(struct omq_client *client)
{
    struct route_entry *entry;
    for (size_t i = 0; (entry = map_next(&client->routes, &i));) {
        invariant(list_empty(&entry->wants) && !entry->asking); /* the calls ended before */
        if (entry->route)
            counted_drop(&entry->route->counted);
        free(entry);
    }
    map_clear(&client->routes);
}
