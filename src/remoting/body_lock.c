/* body_lock.c - lists and tables of queues: LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (which queues a
 * client of a group asks for, and which it got), offsets. */
#include "base/json.h"
#include "remoting/bodies_int.h"

static enum err queue_name_read(const struct json *node, struct queue_name *out)
{
    if (node->type != JSON_OBJECT)
        return ERR_MALFORMED;
    out->topic = json_text(json_member(node, "topic"), BYTES(""));
    out->broker = json_text(json_member(node, "brokerName"), BYTES(""));
    int64_t queue_id = json_int(json_member(node, "queueId"), -1);
    if (out->topic.len == 0 || queue_id < 0 || queue_id > INT32_MAX)
        return ERR_MALFORMED;
    out->queue_id = (int32_t)queue_id;
    return OK;
}

static enum err queue_names_read(const struct json *node, struct arena *arena,
                                 struct queue_name **out, size_t *n)
{
    void *room;
    enum err err = array_alloc(node, arena, sizeof **out, &room, n);
    if (err)
        return err;
    struct queue_name *queue = *out = room;
    json_each(item, *n ? node : NULL) {
        err = queue_name_read(item, queue++);
        if (err)
            return err;
    }
    return OK;
}

void queue_name_write(struct json_out *w, const struct queue_name *queue)
{
    json_open(w);
    json_text_member(w, "brokerName", queue->broker);
    json_int_member(w, "queueId", queue->queue_id);
    json_text_member(w, "topic", queue->topic);
    json_close(w);
}

static void queue_names_write(struct json_out *w, const struct queue_name *queues, size_t n)
{
    json_open_array(w);
    for (size_t i = 0; i < n; i++)
        queue_name_write(w, &queues[i]);
    json_close_array(w);
}

enum err lock_batch_read(struct bytes body, struct arena *arena, struct lock_batch *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    struct lock_batch b = {
        .group = json_text(json_member(doc, "consumerGroup"), BYTES("")),
        .client_id = json_text(json_member(doc, "clientId"), BYTES("")),
    };
    if (b.group.len == 0 || b.client_id.len == 0)
        return ERR_MALFORMED;
    err = queue_names_read(json_member(doc, "mqSet"), arena, &b.queues, &b.n_queues);
    if (err)
        return err;
    *out = b;
    return OK;
}

void lock_batch_write(struct buf *out, const struct lock_batch *batch)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_text_member(&w, "clientId", batch->client_id);
    json_text_member(&w, "consumerGroup", batch->group);
    json_key(&w, "mqSet");
    queue_names_write(&w, batch->queues, batch->n_queues);
    json_bool_member(&w, "onlyThisBroker", false);
    json_close(&w);
}

void locked_write(struct buf *out, const struct queue_name *queues, size_t n)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "lockOKMQSet");
    queue_names_write(&w, queues, n);
    json_close(&w);
}

enum err locked_read(struct bytes body, struct arena *arena, struct queue_name **out, size_t *n)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    return err ? err : queue_names_read(json_member(doc, "lockOKMQSet"), arena, out, n);
}

/* ---- offsets ---- */

static enum err queue_offset_read(const struct json *item, bool table, struct queue_offset *out)
{
    const struct json *queue = table ? item->key : item;
    enum err err = queue ? queue_name_read(queue, &out->queue) : ERR_MALFORMED;
    out->offset = json_int(table ? item : json_member(item, "offset"), -1);
    return err || out->offset >= 0 ? err : ERR_MALFORMED;
}

enum err queue_offsets_read(struct bytes body, const char *name, struct arena *arena,
                            struct queue_offset **out, size_t *n)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    const struct json *list = json_member(doc, name);
    bool table = list && list->type == JSON_OBJECT;
    if (!table && !(list && list->type == JSON_ARRAY))
        return ERR_MALFORMED;
    struct queue_offset *all = arena_alloc(arena, (list->n + 1) * sizeof *all);
    if (!all)
        return ERR_TOO_BIG;
    size_t i = 0;
    json_each(item, list) {
        err = queue_offset_read(item, table, &all[i++]);
        if (err)
            return err;
    }
    *out = all;
    *n = i;
    return OK;
}

void queue_offsets_write(struct buf *out, const char *name, const struct queue_offset *offsets,
                         size_t n)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, name);
    json_open(&w);
    for (size_t i = 0; i < n; i++) {
        queue_name_write(&w, &offsets[i].queue);
        json_key_object(&w);
        json_put_int(&w, offsets[i].offset);
    }
    json_close(&w);
    json_close(&w);
}
