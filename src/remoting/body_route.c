/* body_route.c - routes and clusters: which brokers there are and which of them have a topic.
 *
 * brokerAddrs is taken apart as text by the official Go client (at commas and first colons), so
 * there must be no blank in it - and our writer makes none anywhere.
 */
#include "remoting/bodies_int.h"

static void addrs_write(struct json_out *w, const struct route_broker *b, bool quoted_keys)
{
    json_key(w, "brokerAddrs");
    json_open(w);
    for (size_t i = 0; i < b->n_addrs; i++) {
        if (quoted_keys)
            json_key_quoted(w, b->addrs[i].id);
        else
            json_key_int(w, b->addrs[i].id);
        json_put_text(w, b->addrs[i].addr);
    }
    json_close(w);
}

static void broker_write(struct json_out *w, const struct route_broker *b, bool quoted_keys)
{
    json_open(w);
    addrs_write(w, b, quoted_keys);
    json_text_member(w, "brokerName", b->name);
    json_text_member(w, "cluster", b->cluster);
    json_bool_member(w, "enableActingMaster", b->acting_master);
    if (b->zone.len > 0)
        json_text_member(w, "zoneName", b->zone);
    json_close(w);
}

void route_write(struct buf *out, const struct route *r, bool quoted_keys)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "brokerDatas");
    json_open_array(&w);
    for (size_t i = 0; i < r->n_brokers; i++)
        broker_write(&w, &r->brokers[i], quoted_keys);
    json_close_array(&w);

    json_key(&w, "filterServerTable");
    json_open(&w);
    json_close(&w);
    if (r->order_conf.at)
        json_text_member(&w, "orderTopicConf", r->order_conf);

    json_key(&w, "queueDatas");
    json_open_array(&w);
    for (size_t i = 0; i < r->n_queues; i++) {
        const struct route_queues *q = &r->queues[i];
        json_open(&w);
        json_text_member(&w, "brokerName", q->broker_name);
        json_int_member(&w, "perm", q->perm);
        json_int_member(&w, "readQueueNums", q->read_queues);
        json_int_member(&w, "topicSysFlag", q->sys_flag);
        json_int_member(&w, "writeQueueNums", q->write_queues);
        json_close(&w);
    }
    json_close_array(&w);
    json_close(&w);
}

/* ---- reading ---- */

static enum err broker_read(const struct json *node, struct arena *arena, struct route_broker *out)
{
    out->name = json_text(json_member(node, "brokerName"), BYTES(""));
    out->cluster = json_text(json_member(node, "cluster"), BYTES(""));
    out->zone = json_text(json_member(node, "zoneName"), BYTES(""));
    out->acting_master = json_bool(json_member(node, "enableActingMaster"), false);
    const struct json *addrs = json_member(node, "brokerAddrs");
    if (out->name.len == 0 || !addrs || addrs->type != JSON_OBJECT)
        return ERR_MALFORMED;
    if (addrs->n == 0)
        return OK;

    out->addrs = arena_alloc(arena, addrs->n * sizeof *out->addrs);
    if (!out->addrs)
        return ERR_TOO_BIG;
    json_each(item, addrs) {
        struct route_addr *a = &out->addrs[out->n_addrs++];
        a->addr = json_text(item, BYTES(""));
        if (a->addr.len == 0 || !bytes_to_i64(json_text(item->key, BYTES("")), &a->id))
            return ERR_MALFORMED;
    }
    return OK;
}

/* 4.x before 4.9 spelt the flag topicSynFlag. */
static enum err queues_read(const struct json *node, struct route_queues *out)
{
    const struct json *flag = json_member(node, "topicSysFlag");
    out->broker_name = json_text(json_member(node, "brokerName"), BYTES(""));
    out->read_queues = (int32_t)json_int(json_member(node, "readQueueNums"), 0);
    out->write_queues = (int32_t)json_int(json_member(node, "writeQueueNums"), 0);
    out->perm = (int32_t)json_int(json_member(node, "perm"), 0);
    out->sys_flag = (int32_t)json_int(flag ? flag : json_member(node, "topicSynFlag"), 0);
    return out->broker_name.len > 0 ? OK : ERR_MALFORMED;
}

enum err route_read(struct bytes body, struct arena *arena, struct route *out)
{
    const struct json *doc;
    enum err err = object_parse(body, arena, &doc);
    if (err)
        return err;

    struct route r = {0};
    const struct json *brokers = json_member(doc, "brokerDatas");
    const struct json *queues = json_member(doc, "queueDatas");
    void *room;
    err = array_alloc(brokers, arena, sizeof *r.brokers, &room, &r.n_brokers);
    if (err)
        return err;
    struct route_broker *broker = r.brokers = room;
    json_each(item, r.n_brokers ? brokers : NULL) {
        err = broker_read(item, arena, broker++);
        if (err)
            return err;
    }

    err = array_alloc(queues, arena, sizeof *r.queues, &room, &r.n_queues);
    if (err)
        return err;
    struct route_queues *queue = r.queues = room;
    json_each(item, r.n_queues ? queues : NULL) {
        err = queues_read(item, queue++);
        if (err)
            return err;
    }
    r.order_conf = json_text(json_member(doc, "orderTopicConf"), (struct bytes){0});
    *out = r;
    return OK;
}

/* ---- clusters ---- */

void cluster_info_write(struct buf *out, const struct route_broker *brokers, size_t n_brokers,
                        const struct cluster_names *clusters, size_t n_clusters)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "brokerAddrTable");
    json_open(&w);
    for (size_t i = 0; i < n_brokers; i++) {
        json_key_text(&w, brokers[i].name);
        broker_write(&w, &brokers[i], false);
    }
    json_close(&w);
    json_key(&w, "clusterAddrTable");
    json_open(&w);
    for (size_t i = 0; i < n_clusters; i++) {
        json_key_text(&w, clusters[i].cluster);
        texts_write(&w, clusters[i].brokers, clusters[i].n_brokers);
    }
    json_close(&w);
    json_close(&w);
}

void member_group_write(struct buf *out, const struct route_broker *broker)
{
    struct json_out w = {.buf = out};
    json_open(&w);
    json_key(&w, "brokerMemberGroup");
    json_open(&w);
    addrs_write(&w, broker, false);
    json_text_member(&w, "brokerName", broker->name);
    json_text_member(&w, "cluster", broker->cluster);
    json_close(&w);
    json_close(&w);
}
