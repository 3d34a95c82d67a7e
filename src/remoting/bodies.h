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

/* ---- CHECK_CLIENT_CONFIG ---- */

struct client_check {
    struct bytes client_id, group;
    bool has_sub;
    struct heart_subscription sub;
};

must_check enum err client_check_read(struct bytes body, struct arena *arena,
                                      struct client_check *out);

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
struct json_out;
void queue_name_write(struct json_out *w, const struct queue_name *queue);

/* ---- groups ---- */

/* {"consumerIdList":[…]} */
void consumer_list_write(struct buf *out, const struct bytes *client_ids, size_t n);

#endif
