/* admin_topics.c - what brokers know of topics. */
#include "cli/admin_int.h"

#include <stdlib.h>

static bool is_of_cluster(const struct admin_broker *broker, struct bytes name)
{
    struct bytes cluster = bytes_str(broker->cluster);
    return bytes_equal(name, cluster) || bytes_equal(name, bytes_str(broker->name)) ||
           (bytes_start(name, cluster) &&
            bytes_equal(bytes_from(name, cluster.len), BYTES("_REPLY_TOPIC")));
}

bool admin_topic_is_system(const struct admin_cluster *on, const char *topic)
{
    struct bytes name = bytes_str(topic);
    for (size_t i = 0; on && i < on->n; i++)
        if (is_of_cluster(&on->brokers[i], name))
            return true;
    return topic_is_system(name) || bytes_start(name, RETRY_PREFIX) ||
           bytes_start(name, DLQ_PREFIX) || bytes_start(name, BYTES("RMQ_SYS_"));
}

/* ---- settings ---- */

static int by_topic(const void *a, const void *b)
{
    const struct admin_topic *x = a, *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order : strcmp(x->broker, y->broker);
}

static bool is_small(const struct json *node)
{
    return json_int(node, -1) >= 0 && json_int(node, -1) <= INT32_MAX;
}

static void topic_take(struct cli *cli, const struct json *node, const char *broker,
                       struct admin_topic *out)
{
    const struct json *attributes = json_member(node, "attributes");
    const char *name = admin_text(cli, json_member(node, "topicName"));
    *out = (struct admin_topic){
        .topic = *name || !node->key ? name : admin_text(cli, node->key),
        .broker = broker,
        .read_queues = admin_small(json_member(node, "readQueueNums")),
        .write_queues = admin_small(json_member(node, "writeQueueNums")),
        .perm = admin_small(json_member(node, "perm")),
        .sys_flag = admin_small(json_member(node, "topicSysFlag")),
        .order = json_bool(json_member(node, "order"), false),
        .multi_tag = bytes_equal(json_text(json_member(node, "topicFilterType"), BYTES("")),
                                 BYTES("MULTI_TAG")),
        .whole = is_small(json_member(node, "readQueueNums")) &&
                 is_small(json_member(node, "writeQueueNums")) &&
                 is_small(json_member(node, "perm")),
        .attributes = attributes && attributes->type == JSON_OBJECT ? attributes : NULL,
    };
}

int admin_topic_configs(struct cli *cli, const struct admin_cluster *on, struct admin_topic **out,
                        size_t *n)
{
    struct admin_ask *asks;
    size_t per;
    int status = admin_each(cli, on, (struct admin_ask){.request = REQ_GET_ALL_TOPIC_CONFIG}, NULL,
                            NULL, 1, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, admin_count(asks, per, "topicConfigTable"), sizeof **out);
    *n = 0;
    for (size_t b = 0; b < per; b++)
        json_each(node, json_member(asks[b].json, "topicConfigTable"))
            topic_take(cli, node, asks[b].broker, &(*out)[(*n)++]);
    qsort(*out, *n, sizeof **out, by_topic);
    return status;
}

int admin_topic_config(struct cli *cli, const struct admin_cluster *on, const char *topic,
                       struct admin_topic **out, size_t *n)
{
    struct admin_ask *asks, like = {.request = REQ_GET_TOPIC_CONFIG, .absent = RES_TOPIC_NOT_EXIST};
    size_t per;
    int status = admin_each(cli, on, like, "topic", &topic, 1, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, per, sizeof **out);
    *n = 0;
    for (size_t b = 0; b < per; b++)
        if (asks[b].json) {
            topic_take(cli, asks[b].json, asks[b].broker, &(*out)[*n]);
            (*out)[(*n)++].topic = topic;
        }
    qsort(*out, *n, sizeof **out, by_topic);
    return status;
}

const char *admin_attribute(struct cli *cli, const struct admin_topic *topic, const char *name)
{
    return admin_text(cli, json_member(topic->attributes, name));
}

/* ---- how far it is ---- */

static int by_queue(const void *a, const void *b)
{
    const struct admin_queue_stats *x = a, *y = b;
    int order = strcmp(x->broker, y->broker);
    return order ? order : (x->queue > y->queue) - (x->queue < y->queue);
}

static void stats_take(struct cli *cli, const struct json *body, const char *broker,
                       struct admin_topic_stats *out)
{
    out->put_tps += admin_real(json_member(body, "topicPutTps"));
    json_each(node, json_member(body, "offsetTable")) {
        struct admin_queue key = admin_queue_key(cli, node->key);
        struct admin_queue_stats *q = &out->queues[out->n++];
        *q = (struct admin_queue_stats){
            .broker = broker,
            .queue = key.queue,
            .min = admin_number(json_member(node, "minOffset")),
            .max = admin_number(json_member(node, "maxOffset")),
            .last_ms = admin_number(json_member(node, "lastUpdateTimestamp")),
        };
        if (q->max < q->min)
            q->max = q->min;
        out->messages = admin_sum(out->messages, q->max - q->min);
        if (q->last_ms > out->last_ms)
            out->last_ms = q->last_ms;
    }
}

int admin_topic_stats(struct cli *cli, const struct admin_cluster *on, const char *const *topics,
                      size_t n, struct admin_topic_stats **out)
{
    struct admin_ask *asks,
        like = {.request = REQ_GET_TOPIC_STATS_INFO, .absent = RES_TOPIC_NOT_EXIST};
    size_t per;
    int status = admin_each(cli, on, like, "topic", topics, n, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, n, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        struct admin_topic_stats *stats = &(*out)[i];
        size_t count = admin_count(asks + i * per, per, "offsetTable");
        *stats = (struct admin_topic_stats){
            .topic = topics[i], .queues = admin_alloc(cli, count, sizeof *stats->queues)};
        for (size_t b = 0; b < per; b++)
            stats_take(cli, asks[i * per + b].json, asks[i * per + b].broker, stats);
        qsort(stats->queues, stats->n, sizeof *stats->queues, by_queue);
    }
    return status;
}

int admin_topic_groups(struct cli *cli, const struct admin_cluster *on, const char *const *topics,
                       size_t n, struct admin_names **out)
{
    return admin_lists(cli, on,
                       (struct admin_ask){.request = REQ_QUERY_TOPIC_CONSUME_BY_WHO,
                                          .absent = RES_TOPIC_NOT_EXIST},
                       "topic", "groupList", topics, n, out);
}
