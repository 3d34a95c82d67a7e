/* bodies.h - request and response bodies that have a structure of their own.
 *
 * Readers put everything into the request's arena; writers append compact JSON to a buffer. Both
 * are pure. Names and odd spellings are Apache RocketMQ's.
 */
#ifndef REMOTING_BODIES_H
#define REMOTING_BODIES_H

#include "base/arena.h"
#include "base/buf.h"
#include "msg/msg.h"
#include "msg/route.h"

/* ---- HEART_BEAT ---- */

enum consume_type { CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP };
enum message_model { MODEL_BROADCASTING, MODEL_CLUSTERING };

struct heart_subscription {
    struct bytes topic, expression, expression_type; /* TAG when absent */
    int64_t version;
    struct bytes *tags; /* tagsSet */
    size_t n_tags;
};

struct heart_consumer {
    struct bytes group, from_where;
    enum consume_type type;
    enum message_model model;
    bool unit_mode;
    struct heart_subscription *subs;
    size_t n_subs;
};

struct heartbeat {
    struct bytes client_id;
    struct bytes *producers; /* group names */
    size_t n_producers;
    struct heart_consumer *consumers;
    size_t n_consumers;
    int32_t fingerprint;
    bool without_sub;
};

must_check enum err heartbeat_read(struct bytes body, struct arena *arena, struct heartbeat *out);
void heartbeat_write(struct buf *out, const struct heartbeat *h);

/* ---- CHECK_CLIENT_CONFIG ---- */

struct client_check {
    struct bytes client_id, group;
    bool has_sub;
    struct heart_subscription sub;
};

must_check enum err client_check_read(struct bytes body, struct arena *arena,
                                      struct client_check *out);
void client_check_write(struct buf *out, const struct client_check *check);
struct json_out;
void heart_subscription_write(struct json_out *w, const struct heart_subscription *sub);

/* ---- REGISTER_BROKER ---- */

struct registration {
    struct data_version version;
    struct topic_settings *topics;
    size_t n_topics;
    struct bytes *filter_servers;
    size_t n_filter_servers;
};

/* `compressed` is the zlib form; what it inflates to is bounded by the arena. Old brokers (request
 * version below 37) send the topic table alone. */
must_check enum err registration_read(struct bytes body, bool compressed, int32_t request_version,
                                      struct arena *arena, struct registration *out);
void registration_write(struct buf *out, const struct registration *r); /* the JSON form */
must_check enum err data_version_body_read(struct bytes body, struct arena *arena,
                                           struct data_version *out);
void data_version_body_write(struct buf *out, const struct data_version *v);

/* ---- routes and clusters ---- */

void route_write(struct buf *out, const struct route *r, bool quoted_keys);
/* REGISTER_TOPIC_IN_NAMESRV, and the client. */
must_check enum err route_read(struct bytes body, struct arena *arena, struct route *out);

void cluster_info_write(struct buf *out, const struct route_broker *brokers, size_t n_brokers,
                        const struct cluster_names *clusters, size_t n_clusters);
void member_group_write(struct buf *out, const struct route_broker *broker);
/* {"topicList":[…]}, with "brokerAddr" when given */
void topic_list_write(struct buf *out, const struct bytes *topics, size_t n,
                      struct bytes broker_addr);
void kv_table_write(struct buf *out, const struct kv *pairs, size_t n); /* {"table":{…}} */

/* ---- LOCK_BATCH_MQ, UNLOCK_BATCH_MQ ---- */

struct queue_name {
    struct bytes topic, broker;
    int32_t queue_id;
};

struct lock_batch {
    struct bytes group, client_id;
    struct queue_name *queues;
    size_t n_queues;
};

must_check enum err lock_batch_read(struct bytes body, struct arena *arena, struct lock_batch *out);
void lock_batch_write(struct buf *out, const struct lock_batch *batch);
/* {"lockOKMQSet":[…]} */
void locked_write(struct buf *out, const struct queue_name *queues, size_t n);
must_check enum err locked_read(struct bytes body, struct arena *arena, struct queue_name **out,
                                size_t *n);
void queue_name_write(struct json_out *w, const struct queue_name *queue);

/* ---- POP ---- */

/* What a consumer shows of a message it got: the property POP_CK, the field extraInfo. */
struct pop_handle {
    int64_t start, pop_ms, invisible_ms;
    int32_t revive_id;
};
must_check enum err pop_handle_read(struct bytes text, struct pop_handle *out); /* ERR_MALFORMED */
/* What a consumer has to know of it. */
struct pop_place {
    int32_t
        kind; /* 0: the message stands in its topic, 1 and 2: in the group's retry topics of it */
    int32_t queue_id;
    int64_t offset;
};
must_check enum err pop_place_read(struct bytes text, struct pop_place *out); /* ERR_MALFORMED */
/* startOffsetInfo, "0 3 17;0 5 20": where a pop began in that queue. ERR_NOT_FOUND, ERR_MALFORMED.
 */
must_check enum err pop_start_find(struct bytes info, int32_t queue_id, int64_t *out);

#define BATCH_ACK_MAX 32
struct batch_ack {
    struct bytes group, topic, retry; /* "0": the topic itself, "1", "2": its retry topics */
    int32_t queue_id;
    struct pop_handle handle;
    uint32_t n;
    int64_t offsets[BATCH_ACK_MAX];
};
must_check enum err batch_acks_read(struct bytes body, struct arena *arena, struct batch_ack **out,
                                    size_t *n);

struct assignment_query {
    struct bytes topic, group, client_id, strategy;
    bool broadcasting;
};
must_check enum err assignment_query_read(struct bytes body, struct arena *arena,
                                          struct assignment_query *out);
/* `queues` NULL: nobody can say, the client keeps what it has. */
void assignment_write(struct buf *out, const struct queue_name *queues, size_t n, bool pops);

struct mode_body {
    struct bytes topic, group;
    bool pops;
    int32_t share;
};
must_check enum err mode_body_read(struct bytes body, struct arena *arena, struct mode_body *out);

/* ---- offsets of queues ---- */

/* {"<name>":{{queue}:5,…}}: RESET_CONSUMER_CLIENT_OFFSET ("offsetTable"),
 * GET_CONSUMER_STATUS_FROM_CLIENT ("messageQueueTable"), the file of a broadcast consumer. Some
 * brokers write a list of queues instead, each with its offset inside; that is read as well. */
struct queue_offset {
    struct queue_name queue;
    int64_t offset; /* not negative */
};
must_check enum err queue_offsets_read(struct bytes body, const char *name, struct arena *arena,
                                       struct queue_offset **out, size_t *n);
void queue_offsets_write(struct buf *out, const char *name, const struct queue_offset *offsets,
                         size_t n);

/* ---- groups ---- */

/* {"consumerIdList":[…]} */
void consumer_list_write(struct buf *out, const struct bytes *client_ids, size_t n);
must_check enum err consumer_list_read(struct bytes body, struct arena *arena,
                                       struct bytes **client_ids, size_t *n);

#endif
