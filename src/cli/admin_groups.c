/* admin_groups.c - what brokers know of groups and of clients. */
#include "cli/admin_int.h"

#include <stdlib.h>

/* Apache's broker makes these at its start, or for tools. */
bool admin_group_is_system(const char *group)
{
    static const char *const names[] = {"TOOLS_CONSUMER",     "FILTERSRV_CONSUMER",
                                        "SELF_TEST_C_GROUP",  "SELF_TEST_P_GROUP",
                                        "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER",
                                        "CID_SYS_RMQ_TRANS",  "CID_DefaultHeartBeatSyncerTopic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(group, names[i]) == 0)
            return true;
    struct bytes name = bytes_str(group);
    return bytes_start(name, BYTES("CID_RMQ_SYS_")) || bytes_start(name, BYTES("CID_ONSAPI_")) ||
           bytes_start(name, BYTES("CID_ONS-HTTP-PROXY"));
}

/* ---- settings ---- */

static int by_group(const void *a, const void *b)
{
    const struct admin_group *x = a, *y = b;
    int order = strcmp(x->group, y->group);
    return order ? order : strcmp(x->broker, y->broker);
}

static void group_take(struct cli *cli, const struct json *node, const char *name,
                       const char *broker, struct admin_group *out)
{
    *out = (struct admin_group){.group = name, .broker = broker, .json = node};
    if (group_settings_read(node, bytes_str(name), &cli->arena, &out->set))
        out->set = group_settings_default(bytes_str(name));
}

int admin_groups(struct cli *cli, const struct admin_cluster *on, struct admin_group **out,
                 size_t *n)
{
    struct admin_ask *asks;
    size_t per;
    int status =
        admin_each(cli, on, (struct admin_ask){.request = REQ_GET_ALL_SUBSCRIPTIONGROUP_CONFIG},
                   NULL, NULL, 1, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, admin_count(asks, per, "subscriptionGroupTable"), sizeof **out);
    *n = 0;
    for (size_t b = 0; b < per; b++)
        json_each(node, json_member(asks[b].json, "subscriptionGroupTable"))
            group_take(cli, node, admin_text(cli, node->key), asks[b].broker, &(*out)[(*n)++]);
    qsort(*out, *n, sizeof **out, by_group);
    return status;
}

/* Out of the whole table: Apache's broker makes a group that it is asked about by name
 * (GET_SUBSCRIPTIONGROUP_CONFIG with autoCreateSubscriptionGroup). */
int admin_group_config(struct cli *cli, const struct admin_cluster *on, const char *group,
                       struct admin_group **out, size_t *n)
{
    size_t all, kept = 0;
    int status = admin_groups(cli, on, out, &all);
    if (admin_none(status))
        return status;
    for (size_t i = 0; i < all; i++)
        if (strcmp((*out)[i].group, group) == 0)
            (*out)[kept++] = (*out)[i];
    *n = kept;
    return status;
}

/* ---- progress ---- */

static int by_place(const void *a, const void *b)
{
    const struct admin_progress *x = a, *y = b;
    int order = strcmp(x->topic, y->topic);
    if (order == 0)
        order = strcmp(x->broker, y->broker);
    return order ? order : (x->queue > y->queue) - (x->queue < y->queue);
}

static void progress_take(struct cli *cli, const struct json *body, const char *broker,
                          struct admin_consume_stats *out)
{
    out->tps += admin_real(json_member(body, "consumeTps"));
    json_each(node, json_member(body, "offsetTable")) {
        struct admin_queue key = admin_queue_key(cli, node->key);
        struct admin_progress *p = &out->queues[out->n++];
        *p = (struct admin_progress){
            .topic = key.topic,
            .broker = broker,
            .queue = key.queue,
            .offset = admin_number(json_member(node, "consumerOffset")),
            .pull_offset = admin_number(json_member(node, "pullOffset")),
            .end = admin_number(json_member(node, "brokerOffset")),
            .last_ms = admin_number(json_member(node, "lastTimestamp")),
        };
        p->lag = p->end > p->offset ? p->end - p->offset : 0;
        out->lag = admin_sum(out->lag, p->lag);
    }
}

static void progress_only(struct admin_consume_stats *stats, const char *topic)
{
    size_t kept = 0;
    stats->lag = 0;
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_progress *p = &stats->queues[i];
        if (strcmp(p->topic, topic) != 0)
            continue;
        stats->lag = admin_sum(stats->lag, p->lag);
        stats->queues[kept++] = *p;
    }
    stats->n = kept;
}

int admin_consume_stats(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                        size_t n, const char *topic, struct admin_consume_stats **out)
{
    struct admin_ask *asks;
    size_t per;
    int status = admin_each(cli, on, (struct admin_ask){.request = REQ_GET_CONSUME_STATS},
                            "consumerGroup", groups, n, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, n, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        struct admin_consume_stats *stats = &(*out)[i];
        size_t count = admin_count(asks + i * per, per, "offsetTable");
        *stats = (struct admin_consume_stats){
            .group = groups[i], .queues = admin_alloc(cli, count, sizeof *stats->queues)};
        for (size_t b = 0; b < per; b++)
            progress_take(cli, asks[i * per + b].json, asks[i * per + b].broker, stats);
        if (topic)
            progress_only(stats, topic);
        qsort(stats->queues, stats->n, sizeof *stats->queues, by_place);
    }
    return status;
}

int admin_group_topics(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                       size_t n, struct admin_names **out)
{
    return admin_lists(cli, on, (struct admin_ask){.request = REQ_QUERY_TOPICS_BY_CONSUMER},
                       "group", "topicList", groups, n, out);
}

/* ---- clients ---- */

static int by_client(const void *a, const void *b)
{
    const struct admin_client *x = a, *y = b;
    int order = strcmp(x->group, y->group);
    return order ? order : strcmp(x->id, y->id);
}

/* One that is connected to several brokers is told of once. */
static size_t clients_tidy(struct admin_client *clients, size_t n)
{
    size_t kept = 0;
    qsort(clients, n, sizeof *clients, by_client);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || by_client(&clients[i], &clients[kept - 1]) != 0)
            clients[kept++] = clients[i];
    return kept;
}

static struct admin_client client_take(struct cli *cli, const struct json *node, const char *group,
                                       const char *broker, const char *address_name)
{
    const char *address = admin_text(cli, json_member(node, address_name));
    return (struct admin_client){
        .group = group,
        .broker = broker,
        .id = admin_text(cli, json_member(node, "clientId")),
        .address = *address == '/' ? address + 1 : address, /* as Java shows one */
        .language = admin_text(cli, json_member(node, "language")),
        .version = admin_small(json_member(node, "version")),
        .seen_ms = admin_number(json_member(node, "lastUpdateTimestamp")),
    };
}

static int by_subscription(const void *a, const void *b)
{
    return strcmp(((const struct admin_subscription *)a)->topic,
                  ((const struct admin_subscription *)b)->topic);
}

static void subscriptions_tidy(struct admin_consumers *c)
{
    size_t kept = 0;
    qsort(c->subscriptions, c->n_subscriptions, sizeof *c->subscriptions, by_subscription);
    for (size_t i = 0; i < c->n_subscriptions; i++)
        if (kept == 0 || by_subscription(&c->subscriptions[i], &c->subscriptions[kept - 1]) != 0)
            c->subscriptions[kept++] = c->subscriptions[i];
    c->n_subscriptions = kept;
}

static void consumers_take(struct cli *cli, const struct admin_ask *ask,
                           struct admin_consumers *out)
{
    json_each(node, json_member(ask->json, "connectionSet"))
        out->clients[out->n++] = client_take(cli, node, out->group, ask->broker, "clientAddr");
    json_each(node, json_member(ask->json, "subscriptionTable")) {
        const char *type = admin_text(cli, json_member(node, "expressionType"));
        out->subscriptions[out->n_subscriptions++] = (struct admin_subscription){
            .topic = admin_text(cli, node->key),
            .expression = admin_text(cli, json_member(node, "subString")),
            .type = *type ? type : "TAG",
        };
    }
    if (!ask->json)
        return;
    out->consume_type = admin_text(cli, json_member(ask->json, "consumeType"));
    out->model = admin_text(cli, json_member(ask->json, "messageModel"));
    out->from = admin_text(cli, json_member(ask->json, "consumeFromWhere"));
}

int admin_consumers(struct cli *cli, const struct admin_cluster *on, const char *const *groups,
                    size_t n, struct admin_consumers **out)
{
    struct admin_ask *asks,
        like = {.request = REQ_GET_CONSUMER_CONNECTION_LIST, .absent = RES_CONSUMER_NOT_ONLINE};
    size_t per;
    int status = admin_each(cli, on, like, "consumerGroup", groups, n, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, n, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        struct admin_consumers *c = &(*out)[i];
        const struct admin_ask *own = asks + i * per;
        *c = (struct admin_consumers){
            .group = groups[i],
            .clients = admin_alloc(cli, admin_count(own, per, "connectionSet"), sizeof *c->clients),
            .subscriptions = admin_alloc(cli, admin_count(own, per, "subscriptionTable"),
                                         sizeof *c->subscriptions),
            .consume_type = "",
            .model = "",
            .from = "",
        };
        for (size_t b = 0; b < per; b++)
            consumers_take(cli, &own[b], c);
        c->n = clients_tidy(c->clients, c->n);
        subscriptions_tidy(c);
    }
    return status;
}

int admin_producers(struct cli *cli, const struct admin_cluster *on, struct admin_client **out,
                    size_t *n)
{
    struct admin_ask *asks;
    size_t per, count = 0;
    int status = admin_each(cli, on, (struct admin_ask){.request = REQ_GET_ALL_PRODUCER_INFO}, NULL,
                            NULL, 1, &asks, &per);
    if (admin_none(status))
        return status;
    for (size_t b = 0; b < per; b++)
        json_each(group, json_member(asks[b].json, "data"))
            count += group->n;
    *out = admin_alloc(cli, count, sizeof **out);
    *n = 0;
    for (size_t b = 0; b < per; b++)
        json_each(group, json_member(asks[b].json, "data")) {
            const char *name = admin_text(cli, group->key);
            json_each(node, group)
                (*out)[(*n)++] = client_take(cli, node, name, asks[b].broker, "remoteIP");
        }
    *n = clients_tidy(*out, *n);
    return status;
}

/* The place in a list of releases: from 4.0.0 on ten patches of ten minors each, and before each
 * release its snapshot. */
const char *admin_version(struct cli *cli, int32_t version)
{
    const int32_t first = 212, last = 612;
    if (version < first || version > last)
        return admin_format(cli, "%d", version);
    int32_t release = (version - first) / 2;
    return admin_format(cli, "%d.%d.%d%s", 4 + release / 100, release / 10 % 10, release % 10,
                        (version - first) % 2 ? "" : "-SNAPSHOT");
}
