/* assign.c - which queues a client of a group reads, and in which way, as the broker sees it.
 *
 * A client of 5.x may leave both to the broker: it asks for its queues (QUERY_ASSIGNMENT) and is
 * told for each whether to pull it or to pop. How a group is to read a topic is an operator's wish
 * (SET_MESSAGE_REQUEST_MODE), kept in config/messageRequestMode.json in Apache's form.
 *
 * The division is a pure function of the sorted queues and the sorted client ids, the same that
 * clients use themselves, so all members come to the same result without speaking to each other.
 * Pops need no division: every member may ask any queue (queue -1 of each broker), unless the
 * operator wants each queue to be shared by a few members only (popShareQueueNum).
 * Witness: QueryAssignmentProcessor of 5.5.0.
 */
#include "broker/tables_int.h"

#include <stdlib.h>

struct mode {
    struct request_mode set; /* its slices point into the text */
    char text[];             /* topic@group */
};

/* ---- the division; pure ---- */

bool assign_has(enum assign_strategy strategy, size_t n_queues, size_t n_clients, size_t client,
                size_t queue)
{
    if (n_clients == 0 || client >= n_clients || queue >= n_queues)
        return false;
    if (strategy == ASSIGN_CIRCLE)
        return queue % n_clients == client;
    /* The first `more` clients get one more than the others; consecutive queues. */
    size_t share = n_queues / n_clients, more = n_queues % n_clients;
    size_t first = client * share + (client < more ? client : more);
    return queue >= first && queue < first + share + (client < more);
}

bool assign_strategy_find(struct bytes name, enum assign_strategy *out)
{
    if (bytes_equal(name, BYTES("AVG")))
        *out = ASSIGN_AVERAGE;
    else if (bytes_equal(name, BYTES("AVG_BY_CIRCLE")))
        *out = ASSIGN_CIRCLE;
    else
        return false;
    return true;
}

/* A queue is shared by its own client and those that come before it in the list. */
static bool shared_has(const struct assign *a, size_t n_clients, size_t client, size_t queue)
{
    size_t share = (size_t)a->mode.share;
    if (n_clients > a->n_queues)
        return client % a->n_queues == queue; /* so that nobody is left without */
    for (size_t i = 0; i <= share; i++)
        if (assign_has(a->strategy, a->n_queues, n_clients, (client + i) % n_clients, queue))
            return true;
    return false;
}

static void assign_divide(struct assign *a, size_t n_clients, size_t client)
{
    bool pops = a->mode.pops;
    bool all = pops && (a->mode.share <= 0 || (size_t)a->mode.share + 1 >= n_clients);
    for (size_t i = 0; i < a->n_queues; i++) {
        struct assign_queue queue = a->queues[i];
        bool again = a->n > 0 && bytes_equal(a->assigned[a->n - 1].broker, queue.broker);
        if (all && again)
            continue; /* one for each broker stands for all its queues */
        if (all)
            queue.queue_id = -1;
        else if (pops ? !shared_has(a, n_clients, client, i)
                      : !assign_has(a->strategy, a->n_queues, n_clients, client, i))
            continue;
        a->assigned[a->n++] = queue;
    }
}

/* ---- asking ---- */

static int by_broker(const void *a, const void *b)
{
    const struct assign_queue *x = a, *y = b;
    int order = bytes_compare(x->broker, y->broker);
    return order ? order : (x->queue_id > y->queue_id) - (x->queue_id < y->queue_id);
}

enum err broker_assign(struct broker *b, struct assign *a, struct arena *arena)
{
    broker_mode_get(b, a->topic, a->group, &a->mode);
    a->assigned = arena_alloc(arena, (a->n_queues + 1) * sizeof *a->assigned);
    if (!a->assigned)
        return ERR_TOO_BIG;
    a->n = 0;
    if (a->n_queues == 0)
        return ERR_NOT_FOUND;
    qsort(a->queues, a->n_queues, sizeof *a->queues, by_broker);
    if (a->broadcasting || !b->set.server_balance) {
        memcpy(a->assigned, a->queues, a->n_queues * sizeof *a->queues);
        a->n = a->n_queues;
        return OK;
    }
    struct bytes *ids;
    size_t n_clients, client = 0;
    enum err err = broker_consumer_ids(b, a->group, arena, &ids, &n_clients);
    if (err)
        return err;
    while (client < n_clients && !bytes_equal(ids[client], a->client_id))
        client++;
    assign_divide(a, n_clients, client);
    return OK;
}

/* ---- how a group reads a topic ---- */

static struct bytes mode_key(uint8_t text[PROGRESS_KEY_MAX], struct bytes topic, struct bytes group)
{
    struct wr w = wr_over(text, PROGRESS_KEY_MAX);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '@');
    wr_bytes_of(&w, group);
    return w.full ? (struct bytes){0} : wr_bytes(&w);
}

/* Room: core. Adds or replaces. */
enum err mode_put(struct broker *b, const struct request_mode *set)
{
    room_held(&b->room);
    uint8_t text[PROGRESS_KEY_MAX];
    struct bytes key = mode_key(text, set->topic, set->group);
    struct mode *mode = key.len ? calloc(1, sizeof *mode + key.len) : NULL;
    if (!mode)
        return ERR_NO_MEMORY;
    mode->set = *set;
    memcpy(mode->text, key.at, key.len);
    mode->set.topic = bytes_of(mode->text, set->topic.len);
    mode->set.group = bytes_of(mode->text + set->topic.len + 1, set->group.len);
    struct mode *old = map_remove(&b->modes, key);
    enum err err = map_put(&b->modes, bytes_of(mode->text, key.len), mode);
    free(old);
    if (err)
        free(mode);
    return err;
}

enum err broker_mode_set(struct broker *b, const struct request_mode *mode, struct fault *why)
{
    if (bytes_start(mode->topic, RETRY_PREFIX))
        return fault_set(why, ERR_DENIED, "retry topic is not allowed to set mode");
    room_enter(&b->room);
    enum err err = OK;
    struct group *group;
    uint8_t text[PROGRESS_KEY_MAX];
    bool known = map_get(&b->modes, mode_key(text, mode->topic, mode->group));
    if (!topic_find(b, mode->topic))
        err = fault_set(why, ERR_UNKNOWN_TOPIC, "topic[%.*s] not exist", BRIEF(mode->topic));
    else if (group_need(b, mode->group, &group, why))
        err = fault_set(why, ERR_UNKNOWN_GROUP, "subscription group does not exist");
    else if (!known && b->modes.n >= b->set.max_groups)
        err = fault_set(why, ERR_BUSY, "%zu modes are set, as many as groups may be (maxGroups)",
                        b->modes.n);
    else
        err = mode_put(b, mode);
    if (!err)
        b->tables[TABLE_MODES].changes++;
    room_leave(&b->room);
    if (!err && b->out && b->out->tables_changed)
        b->out->tables_changed(b->out->user);
    return err;
}

void broker_mode_get(struct broker *b, struct bytes topic, struct bytes group,
                     struct request_mode *out)
{
    uint8_t text[PROGRESS_KEY_MAX];
    *out = (struct request_mode){.topic = topic, .group = group};
    out->pops = b->set.default_pops && !bytes_start(topic, RETRY_PREFIX);
    out->share = out->pops ? b->set.default_share : 0;
    room_enter(&b->room);
    const struct mode *mode = map_get(&b->modes, mode_key(text, topic, group));
    if (mode) {
        out->pops = mode->set.pops;
        out->share = mode->set.share;
    }
    room_leave(&b->room);
}

void modes_clear(struct broker *b)
{
    struct mode *mode;
    for (size_t i = 0; (mode = map_next(&b->modes, &i));)
        free(mode);
    map_clear(&b->modes);
}

/* ---- the table ---- */

static int by_topic(const void *a, const void *b)
{
    const struct mode *x = *(struct mode *const *)a, *y = *(struct mode *const *)b;
    int order = bytes_compare(x->set.topic, y->set.topic);
    return order ? order : bytes_compare(x->set.group, y->set.group);
}

static void mode_write(const struct request_mode *m, struct json_out *w)
{
    json_key_text(w, m->group);
    json_open(w);
    json_text_member(w, "consumerGroup", m->group);
    json_text_member(w, "mode", m->pops ? BYTES("POP") : BYTES("PULL"));
    json_int_member(w, "popShareQueueNum", m->share);
    json_text_member(w, "topic", m->topic);
    json_close(w);
}

/* Room: core. Groups of one topic stand under its name. */
void modes_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    struct mode **list = calloc(b->modes.n + 1, sizeof(struct mode *)), *mode;
    size_t n = 0;
    if (!list) {
        w->buf->err = ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; (mode = map_next(&b->modes, &i));)
        list[n++] = mode;
    qsort(list, n, sizeof *list, by_topic);
    json_open(w);
    json_key(w, "messageRequestModeMap");
    json_open(w);
    for (size_t i = 0; i < n; i++) {
        struct bytes topic = list[i]->set.topic;
        if (i == 0 || !bytes_equal(list[i - 1]->set.topic, topic)) {
            json_key_text(w, topic);
            json_open(w);
        }
        mode_write(&list[i]->set, w);
        if (i + 1 == n || !bytes_equal(list[i + 1]->set.topic, topic))
            json_close(w);
    }
    json_close(w);
    json_close(w);
    free(list);
}
