/* pophold.c - pops that wait: for any queue of a topic, or of its retry topic.
 *
 * The pops of one group for one topic are a *crowd*. An arrival finds the crowds by the name of its
 * topic, which is the topic of some and the retry topic of others, and wakes one member of each
 * (and all those that only want to be told). The one that is woken takes what it can, and if
 * something is left it wakes the next: a message does not make a hundred consumers look.
 *
 * Nothing is missed: broker_pop_hold looks for messages inside the room, where the dispatcher comes
 * after it has published a queue's end; and a queue that is busy then is looked at by whoever is
 * popping from it before it is given free.
 */
#include "broker/pop_int.h"

#include <stdlib.h>

static struct bytes crowd_key(uint8_t text[POP_KEY_MAX], struct bytes topic, struct bytes group)
{
    struct wr w = wr_over(text, POP_KEY_MAX);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '@');
    wr_bytes_of(&w, group);
    return w.full ? (struct bytes){0} : wr_bytes(&w);
}

/* Room: core. */
static struct pop_topic *pop_topic_need(struct broker *b, struct bytes name)
{
    struct pop_topic *t = map_get(&b->pop->topics, name);
    if (t)
        return t;
    t = calloc(1, sizeof *t + name.len);
    if (!t)
        return NULL;
    for (int i = 0; i < POP_PLACES; i++)
        list_init(&t->crowds[i]);
    t->name_len = name.len;
    memcpy(t->name, name.at, name.len);
    if (map_put(&b->pop->topics, bytes_of(t->name, t->name_len), t)) {
        free(t);
        return NULL;
    }
    return t;
}

static struct pop_crowd *crowd_find(struct broker *b, struct bytes topic, struct bytes group)
{
    uint8_t text[POP_KEY_MAX];
    return map_get(&b->pop->crowds, crowd_key(text, topic, group));
}

/* Room: core. NULL: no memory. */
static struct pop_crowd *crowd_need(struct broker *b, struct bytes topic, struct bytes group)
{
    struct pop_crowd *crowd = crowd_find(b, topic, group);
    if (crowd)
        return crowd;
    uint8_t text[POP_KEY_MAX], retry[NAME_MAX_ANY];
    struct bytes key = crowd_key(text, topic, group);
    struct pop_topic *topics[POP_PLACES] = {pop_topic_need(b, topic)};
    for (enum pop_place i = POP_RETRY_V1; i < POP_PLACES; i++) {
        struct bytes name = pop_retry_name(retry, topic, group, i);
        topics[i] = name.len ? pop_topic_need(b, name) : topics[0];
    }
    crowd = topics[0] && topics[1] && topics[2] ? calloc(1, sizeof *crowd + key.len) : NULL;
    if (!crowd)
        return NULL;
    memcpy(crowd->text, key.at, key.len);
    crowd->key_len = key.len;
    crowd->topic = bytes_of(crowd->text, topic.len);
    crowd->group = bytes_of(crowd->text + topic.len + 1, group.len);
    list_init(&crowd->holds);
    if (map_put(&b->pop->crowds, bytes_of(crowd->text, key.len), crowd)) {
        free(crowd);
        return NULL;
    }
    for (int i = 0; i < POP_PLACES; i++)
        list_add_tail(&topics[i]->crowds[i], &crowd->by[i]);
    return crowd;
}

/* Room: core. */
static enum err pop_hold_add(struct broker *b, const struct pop *pop, struct hold *hold,
                             uint64_t until_ns)
{
    room_held(&b->room);
    int64_t until_ms = INT64_MAX;
    if (pop_any(b, pop, &until_ms))
        return ERR_STALE;
    if (b->n_holds >= b->set.max_holds)
        return ERR_BUSY;
    struct pop_crowd *crowd = crowd_need(b, pop->topic, pop->group);
    if (!crowd)
        return ERR_NO_MEMORY;
    if (crowd->n >= b->set.max_pop_waiting)
        return ERR_BUSY;
    if (until_ms != INT64_MAX) { /* what keeps the others back becomes visible sooner */
        int64_t wait_ms = until_ms - clock_ms(b->clock);
        uint64_t visible_ns = clock_ns(b->clock) + (uint64_t)(wait_ms > 0 ? wait_ms : 0) * 1000000;
        until_ns = visible_ns < until_ns ? visible_ns : until_ns;
    }
    hold->deadline_ns = until_ns;
    hold->crowd = crowd;
    hold->queue_id = pop->queue_id;
    crowd->n++;
    b->pop->n_holds++;
    list_add_tail(&crowd->holds, &hold->by_queue);
    hold_time(b, hold);
    return OK;
}

enum err broker_pop_hold(struct broker *b, const struct pop *pop, struct hold *hold,
                         uint64_t until_ns)
{
    uint64_t now_ns = clock_ns(b->clock);
    if (now_ns >= until_ns)
        return ERR_TIMEOUT;
    if (!b->set.long_polling && until_ns > now_ns + b->set.short_polling_ms * 1000000)
        until_ns = now_ns + b->set.short_polling_ms * 1000000;
    hold->by_queue = hold->by_time = (struct link){0};
    room_enter(&b->room);
    enum err err = pop_hold_add(b, pop, hold, until_ns);
    room_leave(&b->room);
    return err;
}

int64_t broker_pop_patience(struct broker *b, int64_t born_ms, int64_t poll_ms, uint64_t *until_ns)
{
    /* The client's time of asking is by its own clock, like its signs of life. */
    int64_t now_ms = clock_ms(b->peer_clock);
    if (born_ms <= 0)
        born_ms = now_ms;
    int64_t left;
    if (__builtin_sub_overflow(born_ms, now_ms, &left) ||
        __builtin_add_overflow(left, poll_ms, &left))
        left = poll_ms < 0 || born_ms < 0 ? INT64_MIN / 2 : HOLD_MAX_MS;
    int64_t most = poll_ms < HOLD_MAX_MS ? poll_ms : HOLD_MAX_MS;
    int64_t wait = left < most ? left : most; /* not longer than asked for, whatever its clock */
    *until_ns = clock_ns(b->clock) + (uint64_t)(wait > 0 ? wait : 0) * 1000000;
    return left;
}

/* ---- waking; room: core ---- */

static void pop_hold_take(struct broker *b, struct hold *hold, struct list *woken)
{
    hold_untime(b, hold);
    list_remove(&hold->by_queue);
    list_add_tail(woken, &hold->by_queue);
}

static bool hold_wants(const struct hold *hold, const struct arrival *news, bool retry)
{
    if (!retry && hold->queue_id >= 0 && hold->queue_id != news->queue_id)
        return false;
    return retry || news->count != 1 || filter_wants(hold->filter, news->tags_code);
}

static void crowd_arrived(struct broker *b, struct pop_crowd *crowd, const struct arrival *news,
                          bool retry, struct list *woken)
{
    bool one = false;
    list_each(k, &crowd->holds) {
        struct hold *hold = list_entry(k, struct hold, by_queue);
        if ((one && !hold->only_tells) || !hold_wants(hold, news, retry))
            continue;
        one |= !hold->only_tells;
        pop_hold_take(b, hold, woken);
    }
}

void pop_arrived(struct broker *b, const struct arrival *news, struct list *woken)
{
    room_held(&b->room);
    struct pop_topic *t = map_get(&b->pop->topics, news->topic);
    if (!t)
        return;
    for (int i = 0; i < POP_PLACES; i++)
        list_each(k, &t->crowds[i])
            crowd_arrived(b, list_entry(k - i, struct pop_crowd, by), news, i != POP_TOPIC, woken);
}

void pop_wake_one(struct broker *b, struct bytes topic, struct bytes group, struct list *woken)
{
    room_held(&b->room);
    struct pop_crowd *crowd = b->pop->n_holds > 0 ? crowd_find(b, topic, group) : NULL;
    if (!crowd)
        return;
    list_each(k, &crowd->holds) {
        struct hold *hold = list_entry(k, struct hold, by_queue);
        if (hold->only_tells)
            continue;
        pop_hold_take(b, hold, woken);
        return;
    }
}

/* ---- how many wait ---- */

uint32_t pop_waiting(struct broker *b, const struct pop *pop)
{
    room_held(&b->room);
    const struct pop_crowd *crowd = crowd_find(b, pop->topic, pop->group);
    uint32_t n = 0;
    if (!crowd)
        return 0;
    list_each(k, &crowd->holds) {
        const struct hold *hold = list_entry(k, struct hold, by_queue);
        n += !hold->only_tells && hold->queue_id == pop->queue_id;
    }
    return n;
}

/* ---- tidying ---- */

static void crowd_free(struct broker *b, struct pop_crowd *crowd)
{
    for (int i = 0; i < POP_PLACES; i++)
        list_remove(&crowd->by[i]);
    (void)map_remove(&b->pop->crowds, bytes_of(crowd->text, crowd->key_len));
    free(crowd);
}

static void pop_topics_tidy(struct broker *b)
{
    struct pop_topic **empty = calloc(b->pop->topics.n + 1, sizeof(struct pop_topic *)), *t;
    size_t n = 0;
    for (size_t i = 0; empty && (t = map_next(&b->pop->topics, &i));)
        if (list_empty(&t->crowds[0]) && list_empty(&t->crowds[1]) && list_empty(&t->crowds[2]))
            empty[n++] = t;
    for (size_t i = 0; i < n; i++) {
        (void)map_remove(&b->pop->topics, bytes_of(empty[i]->name, empty[i]->name_len));
        free(empty[i]);
    }
    free(empty);
}

void pop_crowds_tidy(struct broker *b)
{
    room_held(&b->room);
    struct pop_crowd **empty = calloc(b->pop->crowds.n + 1, sizeof(struct pop_crowd *)), *crowd;
    size_t n = 0;
    for (size_t i = 0; empty && (crowd = map_next(&b->pop->crowds, &i));)
        if (crowd->n == 0)
            empty[n++] = crowd;
    for (size_t i = 0; i < n; i++)
        crowd_free(b, empty[i]);
    free(empty);
    if (n > 0)
        pop_topics_tidy(b);
}

void pop_crowds_clear(struct broker *b)
{
    size_t i;
    void *each;
    for (i = 0; (each = map_next(&b->pop->crowds, &i));)
        free(each);
    for (i = 0; (each = map_next(&b->pop->topics, &i));)
        free(each);
    map_clear(&b->pop->crowds);
    map_clear(&b->pop->topics);
}
