/* route.c - the name server's side of the wire.
 *
 * Failures are told with Apache's codes: TOPIC_NOT_EXIST, QUERY_NOT_FOUND, and SYSTEM_ERROR for
 * everything else; a broker that registers knows no others.
 */
#include "base/crc32.h"
#include "door/remoting/door_int.h"

#include <inttypes.h>
#include <stdio.h>

#define VERSION_QUOTED_KEYS 401 /* V4_9_4: from here on clients get brokerAddrs as proper JSON */

static void fail(const struct request *rq, enum err err, const struct fault *why)
{
    int32_t code = err == ERR_UNKNOWN_TOPIC ? RES_TOPIC_NOT_EXIST
                   : err == ERR_NOT_FOUND   ? RES_QUERY_NOT_FOUND
                                            : RES_SYSTEM_ERROR;
    answer(rq, code, fault_remark(err, why));
}

/* Answers with a body that was just written, or with the reason why it could not be. */
static void answer_written(const struct request *rq, const struct buf *body)
{
    if (body->err == ERR_TOO_BIG)
        answer(rq, RES_SYSTEM_ERROR, "the answer is too big for a frame");
    else if (body->err)
        fail(rq, body->err, NULL);
    else
        answer_body(rq, buf_bytes(body));
}

/* A line for the operator about something that was changed from outside. */
static void log_change(const struct door *door, const struct request *rq, const char *what,
                       const char *key, struct bytes value)
{
    char peer[ADDR_TEXT_MAX];
    addr_format(conn_peer(rq->session->conn), peer);
    log_event(door->log, LOG_INFO, "%s %s=%s conn=%" PRIu64 " peer=%s", what, key, LOG_QUOTE(value),
              (uint64_t)conn_id(rq->session->conn), peer);
}

/* brokerIP1=auto: whoever asks is told to find the broker of this house where it has found this
 * name server. A machine has many addresses, and which of them a client can reach is known by that
 * alone. The name server itself knows one, by which the broker has registered here. */
static void tell_own_address(const struct door *door, const struct request *rq, struct bytes *addr)
{
    char own[ADDR_TEXT_MAX], told[ADDR_TEXT_MAX];
    struct addr local = *conn_local(rq->session->conn);
    addr_format(&door->options.host, own);
    if (!bytes_equal(*addr, bytes_str(own)) || local.ip_len == 0)
        return;
    local.port = door->options.host.port;
    addr_format(&local, told);
    struct bytes copy = arena_copy(rq->arena, bytes_str(told));
    if (copy.at)
        *addr = copy;
}

static void tell_own_addresses(const struct door *door, const struct request *rq,
                               struct route_broker *brokers, size_t n)
{
    for (size_t i = 0; door->options.own_address && i < n; i++) {
        if (!bytes_equal(brokers[i].name, bytes_str(door->options.broker_name)))
            continue;
        for (size_t k = 0; k < brokers[i].n_addrs; k++)
            tell_own_address(door, rq, &brokers[i].addrs[k].addr);
    }
}

/* ---- brokers ---- */

static struct names_broker broker_named(const struct request *rq, const struct broker_fields *f)
{
    return (struct names_broker){
        .cluster = f->cluster,
        .name = f->broker_name,
        .addr = f->broker_addr,
        .ha_addr = f->ha_addr,
        .zone = f->zone,
        .id = f->broker_id,
        .timeout_ms = f->heartbeat_timeout_ms,
        .acting_told = head_field(rq->head, BYTES("enableActingMaster")).at != NULL,
        .acting_master = f->acting_master,
        .conn = conn_id(rq->session->conn),
    };
}

static void log_registered(const struct door *door, const struct names_broker *b, size_t n_topics)
{
    log_event(door->log, LOG_INFO,
              "broker registered cluster=%s broker=%s id=%" PRId64 " addr=%s topics=%zu"
              " conn=%" PRIu64,
              LOG_QUOTE(b->cluster), LOG_QUOTE(b->name), b->id, LOG_QUOTE(b->addr), n_topics,
              b->conn);
}

static void log_refused(struct door *door, const struct names_broker *b, const char *reason)
{
    log_limited(
        door->log, &door->bad_input, LOG_WARN,
        "broker refused cluster=%s broker=%s id=%" PRId64 " addr=%s conn=%" PRIu64 " reason=\"%s\"",
        LOG_QUOTE(b->cluster), LOG_QUOTE(b->name), b->id, LOG_QUOTE(b->addr), b->conn, reason);
}

/* The body of a registration; a broker without one has no topics to tell. */
static enum err registration_of(const struct request *rq, const struct broker_fields *f,
                                struct registration *out, struct fault *why)
{
    if (f->body_crc != 0 && (uint32_t)f->body_crc != crc32_positive(rq->body))
        return fault_set(why, ERR_MISMATCH, "crc32 not match"); /* Apache's words */
    if (rq->body.len == 0)
        return OK;
    enum err err = registration_read(rq->body, f->compressed, rq->head->version, rq->arena, out);
    if (err)
        return fault_set(why, err, "the %sbody of the registration cannot be read: %s",
                         f->compressed ? "compressed " : "", err_text(err));
    return OK;
}

static void answer_registered(const struct request *rq, const struct names_registered *told)
{
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    if (told->any_order)
        kv_table_write(&body, told->order, told->n_order);
    if (body.err) {
        answer_written(rq, &body);
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0},
                     told->master_addr.len + told->ha_addr.len))
        return;
    if (told->ha_addr.len)
        frame_put(&r.frame, BYTES("haServerAddr"), told->ha_addr);
    if (told->master_addr.len)
        frame_put(&r.frame, BYTES("masterAddr"), told->master_addr);
    reply_end_body(&r, buf_bytes(&body));
}

void route_register(struct door *door, struct request *rq)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &register_broker_table, &f))
        return;
    struct names_broker broker = broker_named(rq, &f);
    struct registration registration = {0};
    struct names_registered told = {0};
    struct fault why = {0};
    enum err err = registration_of(rq, &f, &registration, &why);
    if (!err)
        err = names_register(door->names, &broker, &registration.version, registration.topics,
                             registration.n_topics, rq->arena, &told, &why);
    if (err)
        log_refused(door, &broker, fault_remark(err, &why));
    else if (told.arrived)
        log_registered(door, &broker, registration.n_topics);

    /* Apache tells a broker whose id has a newer holder that all is well, and forgets it. */
    if (err && err != ERR_STALE)
        fail(rq, err, &why);
    else
        answer_registered(rq, &told);
}

void route_unregister(struct door *door, struct request *rq)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &unregister_broker_table, &f))
        return;
    struct names_broker broker = broker_named(rq, &f);
    names_unregister(door->names, &broker);
    log_change(door, rq, "broker unregistered", "addr", broker.addr);
    answer(rq, RES_SUCCESS, NULL);
}

void route_heartbeat(struct door *door, struct request *rq)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &broker_heartbeat_table, &f))
        return;
    struct names_broker broker = broker_named(rq, &f);
    names_heartbeat(door->names, &broker);
    answer(rq, RES_SUCCESS, NULL);
}

void route_version(struct door *door, struct request *rq)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &broker_version_table, &f))
        return;
    struct data_version mine, known;
    enum err err = data_version_body_read(rq->body, rq->arena, &mine);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR, "the data version in the body cannot be read");
        return;
    }
    struct names_broker broker = broker_named(rq, &f);
    bool changed = true;
    err = names_version(door->names, &broker, &mine, &changed, &known);

    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    if (!err)
        data_version_body_write(&body, &known);
    if (body.err) {
        answer_written(rq, &body);
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_bool(&r.frame, BYTES("changed"), changed);
    reply_end_body(&r, buf_bytes(&body));
}

void route_members(struct door *door, struct request *rq)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &broker_group_table, &f))
        return;
    struct route_broker group = {.name = f.broker_name};
    enum err err = names_members(door->names, f.broker_name, rq->arena, &group);
    if (err && err != ERR_NOT_FOUND) { /* a broker that nobody knows has no members */
        fail(rq, err, NULL);
        return;
    }
    group.cluster = f.cluster;
    tell_own_addresses(door, rq, &group, 1);
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    member_group_write(&body, &group);
    answer_written(rq, &body);
}

void route_clusters(struct door *door, struct request *rq)
{
    struct route_broker *brokers;
    struct cluster_names *clusters;
    size_t n_brokers, n_clusters;
    enum err err =
        names_clusters(door->names, rq->arena, &brokers, &n_brokers, &clusters, &n_clusters);
    if (err) {
        fail(rq, err, NULL);
        return;
    }
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    tell_own_addresses(door, rq, brokers, n_brokers);
    cluster_info_write(&body, brokers, n_brokers, clusters, n_clusters);
    answer_written(rq, &body);
}

/* ---- routes ---- */

/* A client that lives in a zone wants the brokers of its zone (Apache's ZoneRouteRPCHook). */
static void keep_zone(const struct request *rq, struct route *route)
{
    struct bytes mode = head_field(rq->head, BYTES("__ZONE_MODE"));
    struct bytes zone = head_field(rq->head, BYTES("__ZONE_NAME"));
    if (mode.len == 4 && strncasecmp((const char *)mode.at, "true", 4) == 0 && zone.len > 0)
        route_keep_zone(route, zone);
}

static bool can_be_written(const struct route *route)
{
    for (size_t i = 0; i < route->n_queues; i++)
        if (route->queues[i].perm & PERM_WRITE && route->queues[i].write_queues > 0)
            return true;
    return false;
}

/* A producer that finds no queue to write to says "No route info of this topic" all by itself. The
 * route is given all the same, since consumers ask for it with the same request; the remark is for
 * whoever looks why. */
static void answer_route(const struct request *rq, const struct route *route,
                         const struct buf *body)
{
    struct return_address to = return_address_of(rq);
    struct reply r;
    struct bytes remark = {0};
    if (!can_be_written(route))
        remark = BYTES(
            "no queue of this topic can be written to: its permission has no 2 (write) on any "
            "of its brokers, or there are no write queues");
    if (body->err)
        answer_written(rq, body);
    else if (reply_begin(&r, &to, RES_SUCCESS, remark, 0))
        reply_end_body(&r, buf_bytes(body));
}

void route_by_topic(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &route_table, &f))
        return;
    struct route route;
    struct fault why = {0};
    enum err err = names_route(door->names, f.topic, rq->arena, &route, &why);
    if (err) {
        fail(rq, err, &why);
        return;
    }
    keep_zone(rq, &route);
    tell_own_addresses(door, rq, route.brokers, route.n_brokers);
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    route_write(&body, &route, f.standard_json || rq->head->version >= VERSION_QUOTED_KEYS);
    answer_route(rq, &route, &body);
}

static void answer_topics(struct door *door, const struct request *rq, enum names_topics which,
                          struct bytes cluster)
{
    struct bytes *topics, addr;
    size_t n;
    enum err err = names_topic_list(door->names, which, cluster, rq->arena, &topics, &n, &addr);
    if (err) {
        fail(rq, err, NULL);
        return;
    }
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    if (door->options.own_address)
        tell_own_address(door, rq, &addr);
    topic_list_write(&body, topics, n, addr);
    answer_written(rq, &body);
}

void route_topics_all(struct door *door, struct request *rq)
{
    answer_topics(door, rq, NAMES_ALL, (struct bytes){0});
}

void route_topics_of_cluster(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (request_fields(rq, &cluster_topics_table, &f))
        answer_topics(door, rq, NAMES_OF_CLUSTER, f.cluster);
}

void route_topics_system(struct door *door, struct request *rq)
{
    answer_topics(door, rq, NAMES_SYSTEM, (struct bytes){0});
}

void route_topics_unit(struct door *door, struct request *rq)
{
    answer_topics(door, rq, NAMES_UNIT, (struct bytes){0});
}

void route_topics_unit_sub(struct door *door, struct request *rq)
{
    answer_topics(door, rq, NAMES_UNIT_SUB, (struct bytes){0});
}

void route_topics_unit_sub_only(struct door *door, struct request *rq)
{
    answer_topics(door, rq, NAMES_UNIT_SUB_ONLY, (struct bytes){0});
}

/* ---- an operator's changes ---- */

static void change_write(struct door *door, struct request *rq, bool allow, struct bytes counter)
{
    struct broker_fields f = {0};
    if (!request_fields(rq, &broker_perm_table, &f))
        return;
    size_t n = names_write_perm(door->names, f.broker_name, allow);
    log_change(door, rq, allow ? "write permission given back" : "write permission taken", "broker",
               f.broker_name);
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        return;
    frame_put_int(&r.frame, counter, (int64_t)n);
    reply_end(&r, 0);
}

void route_wipe_write(struct door *door, struct request *rq)
{
    change_write(door, rq, false, BYTES("wipeTopicCount"));
}

void route_add_write(struct door *door, struct request *rq)
{
    change_write(door, rq, true, BYTES("addTopicCount"));
}

void route_topic_delete(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &delete_topic_table, &f))
        return;
    names_delete_topic(door->names, f.topic, f.cluster);
    log_change(door, rq, "topic deleted", "topic", f.topic);
    answer(rq, RES_SUCCESS, NULL);
}

void route_topic_add(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &delete_topic_table, &f))
        return;
    struct route route;
    struct fault why = {0};
    enum err err = route_read(rq->body, rq->arena, &route);
    if (err) {
        answer(rq, RES_SYSTEM_ERROR, "the route in the body cannot be read");
        return;
    }
    err = names_add_topic(door->names, f.topic, &route, &why);
    if (err)
        answer(rq, RES_SYSTEM_ERROR, fault_remark(err, &why));
    else
        answer(rq, RES_SUCCESS, NULL);
}

void route_kv_put(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &kv_put_table, &f))
        return;
    struct fault why = {0};
    enum err err = names_kv_put(door->names, f.space, f.key, f.value, &why);
    if (err) {
        fail(rq, err, &why);
        return;
    }
    log_change(door, rq, "setting changed", "key", f.key);
    answer(rq, RES_SUCCESS, NULL);
}

void route_kv_delete(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &kv_key_table, &f))
        return;
    struct fault why = {0};
    enum err err = names_kv_delete(door->names, f.space, f.key, &why);
    if (err) {
        fail(rq, err, &why);
        return;
    }
    log_change(door, rq, "setting deleted", "key", f.key);
    answer(rq, RES_SUCCESS, NULL);
}

/* Apache's words, which its own tools show. */
static void no_config_item(const struct request *rq, struct bytes space, struct bytes key)
{
    struct fault why;
    (void)fault_set(&why, ERR_NOT_FOUND, "No config item, Namespace: %.*s%s%.*s",
                    (int)(space.len < 200 ? space.len : 200), (const char *)space.at,
                    key.len ? " Key: " : "", (int)(key.len < 200 ? key.len : 200),
                    key.len ? (const char *)key.at : "");
    fail(rq, ERR_NOT_FOUND, &why);
}

void route_kv_get(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &kv_key_table, &f))
        return;
    struct bytes value;
    enum err err = names_kv_get(door->names, f.space, f.key, rq->arena, &value);
    if (err == ERR_NOT_FOUND) {
        no_config_item(rq, f.space, f.key);
        return;
    }
    if (err) {
        fail(rq, err, NULL);
        return;
    }
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (!reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, value.len))
        return;
    frame_put(&r.frame, BYTES("value"), value);
    reply_end(&r, 0);
}

void route_kv_list(struct door *door, struct request *rq)
{
    struct name_fields f = {0};
    if (!request_fields(rq, &kv_list_table, &f))
        return;
    struct kv *pairs;
    size_t n;
    enum err err = names_kv_list(door->names, f.space, rq->arena, &pairs, &n);
    if (err == ERR_NOT_FOUND) {
        no_config_item(rq, f.space, (struct bytes){0});
        return;
    }
    if (err) {
        fail(rq, err, NULL);
        return;
    }
    cleanup(buf_clear) struct buf body = buf_upto(BODY_MAX);
    kv_table_write(&body, pairs, n);
    answer_written(rq, &body);
}
