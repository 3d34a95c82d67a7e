/* body_common.c - what several bodies have in them: arrays, lists of texts, tables of pairs. */
#include "remoting/bodies_int.h"

enum err object_parse(struct bytes body, struct arena *arena, const struct json **out)
{
    const struct json *doc;
    enum err err = json_parse(body, arena, &doc, NULL);
    if (err)
        return err;
    if (doc->type != JSON_OBJECT)
        return ERR_MALFORMED;
    *out = doc;
    return OK;
}

enum err array_alloc(const struct json *node, struct arena *arena, size_t each, void **out,
                     size_t *n)
{
    *out = NULL;
    *n = 0;
    if (!node || node->type == JSON_NULL)
        return OK;
    if (node->type != JSON_ARRAY)
        return ERR_MALFORMED;
    if (node->n == 0)
        return OK;
    void *room = node->n > SIZE_MAX / each ? NULL : arena_alloc(arena, node->n * each);
    if (!room)
        return ERR_TOO_BIG;
    *out = room;
    *n = node->n;
    return OK;
}

enum err texts_read(const struct json *node, struct arena *arena, struct bytes **out, size_t *n)
{
    void *room;
    enum err err = array_alloc(node, arena, sizeof **out, &room, n);
    if (err)
        return err;
    *out = room;
    struct bytes *text = room;
    json_each(item, *n ? node : NULL) {
        if (item->type != JSON_STRING)
            return ERR_MALFORMED;
        *text++ = item->text;
    }
    return OK;
}

void texts_write(struct json_out *w, const struct bytes *texts, size_t n)
{
    json_open_array(w);
    for (size_t i = 0; i < n; i++)
        json_put_text(w, texts[i]);
    json_close_array(w);
}

void topic_list_write(struct buf *out, const struct bytes *topics, size_t n,
                      struct bytes broker_addr)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    if (broker_addr.len > 0)
        json_text_member(&w, "brokerAddr", broker_addr);
    json_key(&w, "topicList");
    texts_write(&w, topics, n);
    json_close(&w);
}

void kv_table_write(struct buf *out, const struct kv *pairs, size_t n)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "table");
    json_open(&w);
    for (size_t i = 0; i < n; i++) {
        json_key_text(&w, pairs[i].key);
        json_put_text(&w, pairs[i].value);
    }
    json_close(&w);
    json_close(&w);
}

void consumer_list_write(struct buf *out, const struct bytes *client_ids, size_t n)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "consumerIdList");
    texts_write(&w, client_ids, n);
    json_close(&w);
}

enum err consumer_list_read(struct bytes body, struct arena *arena, struct bytes **client_ids,
                            size_t *n)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    return texts_read(json_member(doc, "consumerIdList"), arena, client_ids, n);
}
