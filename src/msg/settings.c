/* settings.c - topic and group settings as topics.json, subscriptionGroup.json and registrations
 * carry them: members in alphabetical order, as fastjson writes them. What is absent or unreadable
 * takes Apache's default.
 */
#include "base/json.h"
#include "msg/msg.h"

#define OBJECT_MAX 65536 /* bytes of an object that is carried along as text */

static int32_t int32_of(const struct json *object, const char *name, int32_t fallback)
{
    int64_t v = json_int(json_member(object, name), fallback);
    return v >= INT32_MIN && v <= INT32_MAX ? (int32_t)v : fallback;
}

static bool bool_of(const struct json *object, const char *name, bool fallback)
{
    return json_bool(json_member(object, name), fallback);
}

static struct bytes name_of(const struct json *object, const char *member, struct bytes name)
{
    return name.len > 0 ? name : json_text(json_member(object, member), name);
}

/* The object written compactly into the arena; nothing for {} and for what is no object. */
static enum err object_read(const struct json *node, struct arena *arena, struct bytes *out)
{
    *out = (struct bytes){0};
    if (!node || node->type != JSON_OBJECT || node->n == 0)
        return OK;

    struct buf text = buf_upto(OBJECT_MAX);
    json_put(&(struct json_out){.buf = &text}, node);
    enum err err = text.err;
    if (!err) {
        *out = arena_copy(arena, buf_bytes(&text));
        err = out->at ? OK : ERR_TOO_BIG;
    }
    buf_clear(&text);
    return err;
}

struct group_settings group_settings_default(struct bytes name)
{
    return (struct group_settings){
        .name = name,
        .consume_enable = true,
        .from_min_enable = true,
        .broadcast_enable = true,
        .notify_changes = true,
        .retry_queues = 1,
        .retry_max = 16,
        .slow_broker_id = 1,
        .consume_timeout_min = 15,
    };
}

enum err topic_settings_read(const struct json *node, struct bytes name, struct arena *arena,
                             struct topic_settings *out)
{
    struct topic_settings t = {
        .name = name_of(node, "topicName", name),
        .read_queues = int32_of(node, "readQueueNums", 16),
        .write_queues = int32_of(node, "writeQueueNums", 16),
        .perm = int32_of(node, "perm", PERM_READ | PERM_WRITE),
        .sys_flag = int32_of(node, "topicSysFlag", 0),
        .order = bool_of(node, "order", false),
    };
    struct bytes filter = json_text(json_member(node, "topicFilterType"), BYTES(""));
    t.multi_tag = bytes_equal(filter, BYTES("MULTI_TAG"));

    enum err err = object_read(json_member(node, "attributes"), arena, &t.attributes);
    if (err)
        return err;
    *out = t;
    return OK;
}

enum err group_settings_read(const struct json *node, struct bytes name, struct arena *arena,
                             struct group_settings *out)
{
    struct group_settings g = group_settings_default(name_of(node, "groupName", name));
    g.consume_enable = bool_of(node, "consumeEnable", g.consume_enable);
    g.from_min_enable = bool_of(node, "consumeFromMinEnable", g.from_min_enable);
    g.broadcast_enable = bool_of(node, "consumeBroadcastEnable", g.broadcast_enable);
    g.orderly = bool_of(node, "consumeMessageOrderly", g.orderly);
    g.notify_changes = bool_of(node, "notifyConsumerIdsChangedEnable", g.notify_changes);
    g.retry_queues = int32_of(node, "retryQueueNums", g.retry_queues);
    g.retry_max = int32_of(node, "retryMaxTimes", g.retry_max);
    g.broker_id = json_int(json_member(node, "brokerId"), g.broker_id);
    g.slow_broker_id =
        json_int(json_member(node, "whichBrokerWhenConsumeSlowly"), g.slow_broker_id);
    g.sys_flag = int32_of(node, "groupSysFlag", g.sys_flag);
    g.consume_timeout_min = int32_of(node, "consumeTimeoutMinute", g.consume_timeout_min);
    enum err err = object_read(json_member(node, "attributes"), arena, &g.attributes);
    if (!err)
        err = object_read(json_member(node, "groupRetryPolicy"), arena, &g.retry_policy);
    if (err)
        return err;
    *out = g;
    return OK;
}

struct data_version data_version_read(const struct json *node)
{
    return (struct data_version){
        .state = json_int(json_member(node, "stateVersion"), 0),
        .timestamp = json_int(json_member(node, "timestamp"), 0),
        .counter = json_int(json_member(node, "counter"), 0),
    };
}

static void object_write(struct json_out *w, const char *name, struct bytes text,
                         struct bytes fallback)
{
    json_key(w, name);
    buf_add(w->buf, text.len > 0 ? text : fallback); /* an object as text already */
    w->comma = true;
}

void topic_settings_write(struct json_out *w, const struct topic_settings *t)
{
    json_open(w);
    object_write(w, "attributes", t->attributes, BYTES("{}"));
    json_bool_member(w, "order", t->order);
    json_int_member(w, "perm", t->perm);
    json_int_member(w, "readQueueNums", t->read_queues);
    json_text_member(w, "topicFilterType", t->multi_tag ? BYTES("MULTI_TAG") : BYTES("SINGLE_TAG"));
    json_text_member(w, "topicName", t->name);
    json_int_member(w, "topicSysFlag", t->sys_flag);
    json_int_member(w, "writeQueueNums", t->write_queues);
    json_close(w);
}

void group_settings_write(struct json_out *w, const struct group_settings *g)
{
    json_open(w);
    object_write(w, "attributes", g->attributes, BYTES("{}"));
    json_int_member(w, "brokerId", g->broker_id);
    json_bool_member(w, "consumeBroadcastEnable", g->broadcast_enable);
    json_bool_member(w, "consumeEnable", g->consume_enable);
    json_bool_member(w, "consumeFromMinEnable", g->from_min_enable);
    json_bool_member(w, "consumeMessageOrderly", g->orderly);
    json_int_member(w, "consumeTimeoutMinute", g->consume_timeout_min);
    json_text_member(w, "groupName", g->name);
    object_write(w, "groupRetryPolicy", g->retry_policy, BYTES("{\"type\":\"CUSTOMIZED\"}"));
    json_int_member(w, "groupSysFlag", g->sys_flag);
    json_bool_member(w, "notifyConsumerIdsChangedEnable", g->notify_changes);
    json_int_member(w, "retryMaxTimes", g->retry_max);
    json_int_member(w, "retryQueueNums", g->retry_queues);
    json_int_member(w, "whichBrokerWhenConsumeSlowly", g->slow_broker_id);
    json_close(w);
}

void data_version_write(struct json_out *w, const struct data_version *v)
{
    json_open(w);
    json_int_member(w, "counter", v->counter);
    json_int_member(w, "stateVersion", v->state);
    json_int_member(w, "timestamp", v->timestamp);
    json_close(w);
}
