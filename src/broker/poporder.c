/* poporder.c - POP in order: a queue gives out nothing while what it gave out last is being worked
 * on.
 *
 * For each queue and group there is one *order*: the messages that were handed out last, which of
 * them are acknowledged, until when each is invisible, how often it was handed out before. The
 * group's offset does not move when messages are handed out but when they are acknowledged, to the
 * first that is not. So nothing has to be written for a message to come again: when its time is up
 * the queue is read from there once more. A client whose answer got lost may ask again at once if
 * it shows the same attempt id.
 *
 * Orders are kept in config/consumerOrderInfo.json in Apache's form. What is acknowledged between
 * two saves is in the log, as a record of the revive topic that has the whole order in it (TAGS
 * "order", ours alone: an Apache broker passes it over). Witness: ConsumerOrderInfoManager
 * of 5.5.0.
 */
#include "broker/pop_int.h"
#include "broker/tables_int.h"

#include <stdlib.h>

#define FORGET_MS (24 * 3600 * INT64_C(1000))

struct pop_order {
    int64_t pop_ms, invisible_ms, last_ms;
    uint32_t n, acked;
    int64_t offsets[POP_MAX];
    int64_t visible_ms[POP_MAX]; /* 0: with the others */
    int32_t counts[POP_MAX];
    size_t attempt_len;
    char attempt[ATTEMPT_MAX];
};

static struct bytes attempt_of(const struct pop_order *o)
{
    return bytes_of(o->attempt, o->attempt_len);
}

static bool is_acked(const struct pop_order *o, uint32_t i)
{
    return o->acked & 1u << i;
}

static int64_t visible_at(const struct pop_order *o, uint32_t i)
{
    return o->visible_ms[i] ? o->visible_ms[i] : o->pop_ms + o->invisible_ms;
}

static int index_of(const struct pop_order *o, int64_t offset)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->offsets[i] == offset)
            return (int)i;
    return -1;
}

bool order_blocks(struct broker *b, const struct pop_queue *q, struct bytes attempt,
                  int64_t *until_ms)
{
    room_held(&b->room);
    const struct pop_order *o = q->order;
    if (!o || (attempt.len > 0 && bytes_equal(attempt, attempt_of(o))))
        return false;
    int64_t now_ms = clock_ms(b->clock), latest = 0;
    for (uint32_t i = 0; i < o->n; i++)
        if (!is_acked(o, i) && visible_at(o, i) > latest)
            latest = visible_at(o, i);
    if (latest <= now_ms)
        return false;
    if (latest < *until_ms)
        *until_ms = latest;
    return true;
}

enum err order_hand_out(struct broker *b, struct pop_queue *q, const struct order_hand *hand,
                        int32_t *counts)
{
    room_held(&b->room);
    struct pop_order *o = calloc(1, sizeof *o);
    if (!o)
        return ERR_NO_MEMORY;
    o->pop_ms = hand->pop_ms;
    o->invisible_ms = hand->invisible_ms;
    o->last_ms = clock_ms(b->clock);
    o->n = hand->n;
    if (hand->attempt.len > 0 && hand->attempt.len <= ATTEMPT_MAX) {
        o->attempt_len = hand->attempt.len;
        memcpy(o->attempt, hand->attempt.at, hand->attempt.len);
    }
    const struct pop_order *old = q->order;
    bool again = old && o->attempt_len > 0 && bytes_equal(attempt_of(o), attempt_of(old));
    for (uint32_t i = 0; i < hand->n; i++) {
        int at = old ? index_of(old, hand->offsets[i]) : -1;
        o->offsets[i] = hand->offsets[i];
        o->counts[i] = counts[i] = at < 0 ? 0 : old->counts[at] + !again;
    }
    free(q->order);
    q->order = o;
    table_changed(b, TABLE_ORDERS);
    return OK;
}

/* The first that is not acknowledged, or what comes behind them all. */
static int64_t order_next(const struct pop_order *o)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (!is_acked(o, i))
            return o->offsets[i];
    return o->n ? o->offsets[o->n - 1] + 1 : 0;
}

enum err order_ack(struct broker *b, struct pop_queue *q, int64_t offset, int64_t pop_ms,
                   int64_t *next)
{
    room_held(&b->room);
    struct pop_order *o = q->order;
    int at = o && o->pop_ms == pop_ms ? index_of(o, offset) : -1;
    if (at < 0)
        return ERR_NOT_FOUND;
    o->acked |= 1u << at;
    *next = order_next(o);
    table_changed(b, TABLE_ORDERS);
    return OK;
}

enum err order_retime(struct broker *b, struct pop_queue *q, int64_t offset, int64_t pop_ms,
                      int64_t visible_ms)
{
    room_held(&b->room);
    struct pop_order *o = q->order;
    int at = o && o->pop_ms == pop_ms ? index_of(o, offset) : -1;
    if (at < 0 || is_acked(o, (uint32_t)at))
        return ERR_NOT_FOUND;
    o->visible_ms[at] = visible_ms;
    table_changed(b, TABLE_ORDERS);
    return OK;
}

void order_merge(struct pop_queue *q, struct pop_order *other)
{
    if (q->order && q->order->pop_ms == other->pop_ms)
        other->acked |= q->order->acked;
    if (q->order && q->order->pop_ms > other->pop_ms) {
        free(other);
        return;
    }
    free(q->order);
    q->order = other;
}

/* Nothing of it is waited for, or nobody has come for a day. */
bool order_is_over(struct broker *b, const struct pop_queue *q)
{
    const struct pop_order *o = q->order;
    uint32_t all = o && o->n < 32 ? (1u << o->n) - 1 : UINT32_MAX;
    return !o || (o->acked & all) == all || clock_ms(b->clock) - o->last_ms > FORGET_MS;
}

/* ---- as text ---- */

/* Offsets are the first and the distances of the others from it. */
void order_write(const struct pop_order *o, struct json_out *w)
{
    json_open(w);
    if (o->attempt_len)
        json_text_member(w, "a", attempt_of(o));
    json_int_member(w, "cm", o->acked);
    json_int_member(w, "i", o->invisible_ms);
    json_int_member(w, "l", o->last_ms);
    json_key(w, "o");
    json_open_array(w);
    for (uint32_t i = 0; i < o->n; i++)
        json_put_int(w, i ? o->offsets[i] - o->offsets[0] : o->offsets[0]);
    json_close_array(w);
    json_key(w, "oc");
    json_open(w);
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->counts[i] == 0)
            continue;
        json_key_int(w, o->offsets[i]);
        json_put_int(w, o->counts[i]);
    }
    json_close(w);
    json_key(w, "ot");
    json_open(w);
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->visible_ms[i] == 0)
            continue;
        json_key_int(w, o->offsets[i]);
        json_put_int(w, o->visible_ms[i]);
    }
    json_close(w);
    json_int_member(w, "popTime", o->pop_ms);
    json_close(w);
}

/* Numbers by offset: {5:1,6:2}. */
static int64_t number_of(const struct json *object, int64_t offset)
{
    json_each(node, object && object->type == JSON_OBJECT ? object : NULL) {
        int64_t key;
        if (bytes_to_i64(node->key->text, &key) && key == offset)
            return json_int(node, 0);
    }
    return 0;
}

static enum err offsets_read(const struct json *node, struct pop_order *o)
{
    const struct json *list = json_member(node, "o");
    if (!list || list->type != JSON_ARRAY || list->n > POP_MAX)
        return ERR_MALFORMED;
    json_each(item, list) {
        int64_t value = json_int(item, -1);
        if (value < 0 || value > INT64_MAX / 4)
            return ERR_MALFORMED;
        o->offsets[o->n] = o->n ? o->offsets[0] + value : value;
        o->n++;
    }
    return OK;
}

enum err order_read(const struct json *node, struct pop_order **out)
{
    struct pop_order *o = calloc(1, sizeof *o);
    if (!o)
        return ERR_NO_MEMORY;
    const int64_t far = INT64_MAX / 4;
    o->pop_ms = json_int(json_member(node, "popTime"), 0);
    o->invisible_ms = json_int(json_member(node, "i"), 0);
    o->last_ms = json_int(json_member(node, "l"), 0);
    o->acked = (uint32_t)json_int(json_member(node, "cm"), 0);
    struct bytes attempt = json_text(json_member(node, "a"), (struct bytes){0});
    if (attempt.len <= ATTEMPT_MAX && attempt.len > 0) {
        memcpy(o->attempt, attempt.at, attempt.len);
        o->attempt_len = attempt.len;
    }
    enum err err = node->type == JSON_OBJECT ? offsets_read(node, o) : ERR_MALFORMED;
    if (o->pop_ms < 0 || o->pop_ms > far || o->invisible_ms < -far || o->invisible_ms > far)
        err = ERR_MALFORMED;
    if (err) {
        free(o);
        return err;
    }
    for (uint32_t i = 0; i < o->n; i++) {
        int64_t count = number_of(json_member(node, "oc"), o->offsets[i]);
        o->counts[i] = count < 0 || count > 1000000 ? 0 : (int32_t)count;
        o->visible_ms[i] = number_of(json_member(node, "ot"), o->offsets[i]);
    }
    *out = o;
    return OK;
}

/* ---- the table ---- */

static int by_text(const void *a, const void *b)
{
    const struct pop_queue *x = *(struct pop_queue *const *)a, *y = *(struct pop_queue *const *)b;
    int order = bytes_compare(x->topic, y->topic);
    if (!order)
        order = bytes_compare(x->group, y->group);
    return order ? order : (x->queue_id > y->queue_id) - (x->queue_id < y->queue_id);
}

static bool same_group(const struct pop_queue *x, const struct pop_queue *y)
{
    return bytes_equal(x->topic, y->topic) && bytes_equal(x->group, y->group);
}

/* Room: core. Queues of one topic and group stand under one name. */
void orders_write(struct broker *b, struct json_out *w)
{
    room_held(&b->room);
    struct pop_queue **list = calloc(b->pop->queues.n + 1, sizeof(struct pop_queue *)), *q;
    size_t n = 0;
    if (!list) {
        w->buf->err = ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; (q = map_next(&b->pop->queues, &i));)
        if (!order_is_over(b, q))
            list[n++] = q;
    qsort(list, n, sizeof *list, by_text);
    json_open(w);
    json_key(w, "table");
    json_open(w);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !same_group(list[i - 1], list[i])) {
            json_key_text(w, bytes_of(list[i]->text, list[i]->topic.len + list[i]->group.len + 1));
            json_open(w);
        }
        json_key_int(w, list[i]->queue_id);
        order_write(list[i]->order, w);
        if (i + 1 == n || !same_group(list[i], list[i + 1]))
            json_close(w);
    }
    json_close(w);
    json_close(w);
    free(list);
}
