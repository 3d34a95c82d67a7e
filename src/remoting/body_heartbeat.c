/* body_heartbeat.c - HEART_BEAT: who a client is, what it produces and what it consumes; and
 * CHECK_CLIENT_CONFIG: one subscription that is asked about beforehand. */
#include "base/json.h"
#include "remoting/bodies.h"
#include "remoting/bodies_int.h"

static const char *const consume_types[] = {"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"};
static const char *const message_models[] = {"BROADCASTING", "CLUSTERING"};

/* The place of `node`'s text in a list of names; `fallback` if it is not there, -1 if it is none of
 * them. */
static int choice(const struct json *node, const char *const *names, int n, int fallback)
{
    if (!node || node->type == JSON_NULL)
        return fallback;
    struct bytes text = json_text(node, BYTES(""));
    for (int i = 0; i < n; i++)
        if (bytes_equal(text, bytes_str(names[i])))
            return i;
    return -1;
}

static enum err subscription_read(const struct json *node, struct arena *arena,
                                  struct heart_subscription *out)
{
    if (node->type != JSON_OBJECT)
        return ERR_MALFORMED;
    out->topic = json_text(json_member(node, "topic"), BYTES(""));
    out->expression = json_text(json_member(node, "subString"), BYTES("*"));
    out->expression_type = json_text(json_member(node, "expressionType"), BYTES("TAG"));
    if (out->expression_type.len == 0)
        out->expression_type = BYTES("TAG");
    out->version = json_int(json_member(node, "subVersion"), 0);
    if (out->topic.len == 0)
        return ERR_MALFORMED;
    return texts_read(json_member(node, "tagsSet"), arena, &out->tags, &out->n_tags);
}

static enum err consumer_read(const struct json *node, struct arena *arena,
                              struct heart_consumer *out)
{
    if (node->type != JSON_OBJECT)
        return ERR_MALFORMED;
    out->group = json_text(json_member(node, "groupName"), BYTES(""));
    out->from_where =
        json_text(json_member(node, "consumeFromWhere"), BYTES("CONSUME_FROM_LAST_OFFSET"));
    out->unit_mode = json_bool(json_member(node, "unitMode"), false);
    int type = choice(json_member(node, "consumeType"), consume_types, 3, CONSUME_PASSIVELY);
    int model = choice(json_member(node, "messageModel"), message_models, 2, MODEL_CLUSTERING);
    if (out->group.len == 0 || type < 0 || model < 0)
        return ERR_MALFORMED;
    out->type = (enum consume_type)type;
    out->model = (enum message_model)model;

    const struct json *subs = json_member(node, "subscriptionDataSet");
    void *room;
    enum err err = array_alloc(subs, arena, sizeof *out->subs, &room, &out->n_subs);
    if (err)
        return err;
    struct heart_subscription *sub = out->subs = room;
    json_each(item, out->n_subs ? subs : NULL) {
        err = subscription_read(item, arena, sub++);
        if (err)
            return err;
    }
    return OK;
}

enum err heartbeat_read(struct bytes body, struct arena *arena, struct heartbeat *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;

    struct heartbeat h = {
        .client_id = json_text(json_member(doc, "clientID"), BYTES("")),
        .fingerprint = (int32_t)json_int(json_member(doc, "heartbeatFingerprint"), 0),
        .without_sub = json_bool(json_member(doc, "withoutSub"), false),
    };
    if (h.client_id.len == 0)
        return ERR_MALFORMED;

    const struct json *producers = json_member(doc, "producerDataSet");
    void *room;
    err = array_alloc(producers, arena, sizeof *h.producers, &room, &h.n_producers);
    if (err)
        return err;
    struct bytes *producer = h.producers = room;
    json_each(item, h.n_producers ? producers : NULL) {
        *producer = json_text(json_member(item, "groupName"), BYTES(""));
        if (producer++->len == 0)
            return ERR_MALFORMED;
    }

    const struct json *consumers = json_member(doc, "consumerDataSet");
    err = array_alloc(consumers, arena, sizeof *h.consumers, &room, &h.n_consumers);
    if (err)
        return err;
    struct heart_consumer *consumer = h.consumers = room;
    json_each(item, h.n_consumers ? consumers : NULL) {
        err = consumer_read(item, arena, consumer++);
        if (err)
            return err;
    }
    *out = h;
    return OK;
}

/* ---- writing, for the client ---- */

void heart_subscription_write(struct json_out *w, const struct heart_subscription *sub)
{
    json_open(w);
    json_bool_member(w, "classFilterMode", false);
    json_key(w, "codeSet");
    json_open_array(w);
    for (size_t i = 0; i < sub->n_tags; i++)
        json_put_int(w, tags_code(sub->tags[i]));
    json_close_array(w);
    json_text_member(w, "expressionType", sub->expression_type);
    json_text_member(w, "subString", sub->expression);
    json_int_member(w, "subVersion", sub->version);
    json_key(w, "tagsSet");
    json_open_array(w);
    for (size_t i = 0; i < sub->n_tags; i++)
        json_put_text(w, sub->tags[i]);
    json_close_array(w);
    json_text_member(w, "topic", sub->topic);
    json_close(w);
}

static void consumer_write(struct json_out *w, const struct heart_consumer *c)
{
    json_open(w);
    json_text_member(w, "consumeFromWhere", c->from_where);
    json_text_member(w, "consumeType", bytes_str(consume_types[c->type]));
    json_text_member(w, "groupName", c->group);
    json_text_member(w, "messageModel", bytes_str(message_models[c->model]));
    json_key(w, "subscriptionDataSet");
    json_open_array(w);
    for (size_t i = 0; i < c->n_subs; i++)
        heart_subscription_write(w, &c->subs[i]);
    json_close_array(w);
    json_bool_member(w, "unitMode", c->unit_mode);
    json_close(w);
}

void heartbeat_write(struct buf *out, const struct heartbeat *h)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_text_member(&w, "clientID", h->client_id);
    json_key(&w, "consumerDataSet");
    json_open_array(&w);
    for (size_t i = 0; i < h->n_consumers; i++)
        consumer_write(&w, &h->consumers[i]);
    json_close_array(&w);
    json_int_member(&w, "heartbeatFingerprint", h->fingerprint);
    json_key(&w, "producerDataSet");
    json_open_array(&w);
    for (size_t i = 0; i < h->n_producers; i++) {
        json_open(&w);
        json_text_member(&w, "groupName", h->producers[i]);
        json_close(&w);
    }
    json_close_array(&w);
    json_bool_member(&w, "withoutSub", h->without_sub);
    json_close(&w);
}

/* ---- CHECK_CLIENT_CONFIG ---- */

enum err client_check_read(struct bytes body, struct arena *arena, struct client_check *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;
    struct client_check c = {
        .client_id = json_text(json_member(doc, "clientId"), BYTES("")),
        .group = json_text(json_member(doc, "group"), BYTES("")),
    };
    const struct json *sub = json_member(doc, "subscriptionData");
    c.has_sub = sub && sub->type != JSON_NULL;
    if (c.has_sub)
        err = subscription_read(sub, arena, &c.sub);
    if (!err)
        *out = c;
    return err;
}

void client_check_write(struct buf *out, const struct client_check *check)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_text_member(&w, "clientId", check->client_id);
    json_text_member(&w, "group", check->group);
    if (check->has_sub) {
        json_key(&w, "subscriptionData");
        heart_subscription_write(&w, &check->sub);
    }
    json_close(&w);
}
