/* fields.h - what the fields of each request are called, as data.
 *
 * A request's fields become a struct through a table: name, type, place, whether it must be there.
 * Reading goes once over the decoded head; numbers are decimal text, booleans are true only for
 * "true" in any case, exactly as Apache's broker reads them. A missing or unreadable field is named
 * in the answer instead of being guessed.
 */
#ifndef REMOTING_FIELDS_H
#define REMOTING_FIELDS_H

#include "remoting/remoting.h"

enum field_type { FIELD_TEXT, FIELD_INT, FIELD_LONG, FIELD_BOOL };

struct field_rule {
    struct bytes name;
    enum field_type type;
    bool required;
    size_t offset; /* of struct bytes, int32_t, int64_t or bool in the struct */
};

struct field_table {
    const struct field_rule *rules;
    size_t n;
};

/* `out` has been filled with defaults by the caller. ERR_MALFORMED with the sentence for the
 * remark. */
must_check enum err fields_read(const struct field_table *table, const struct head *head, void *out,
                                struct fault *why);

struct send_fields {
    struct bytes producer_group, topic, default_topic, props, broker_name;
    int32_t default_topic_queues, queue_id, sys_flag, flag, reconsume_times, max_reconsume_times;
    int64_t born_ms;
    bool unit_mode, batch;
};
#define NO_MAX_RECONSUME INT32_MIN /* the default of max_reconsume_times */
/* The same in long names (SEND_MESSAGE, SEND_REPLY_MESSAGE) and in letters (SEND_MESSAGE_V2,
 * SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2). */
extern const struct field_table send_fields_long, send_fields_letters;

struct send_back_fields { /* 36 */
    struct bytes group, origin_id, origin_topic;
    int64_t position;
    int32_t delay_level, max_reconsume_times;
    bool unit_mode;
};
extern const struct field_table send_back_table;

struct end_fields { /* 37 */
    struct bytes group, topic, msg_id, transaction_id;
    int64_t offset, position; /* of the half message */
    int32_t decision;
    bool checked;
};
extern const struct field_table end_transaction_table;

struct resume_fields { /* 323 */
    struct bytes topic, msg_id;
};
extern const struct field_table resume_check_table;

struct recall_fields { /* 370 */
    struct bytes group, topic, handle;
};
extern const struct field_table recall_table;

struct pull_fields {
    struct bytes group, topic, subscription, expression_type;
    int32_t queue_id, max_count, sys_flag;
    int64_t offset, commit_offset, suspend_ms, sub_version;
};
extern const struct field_table pull_fields_table;
enum {
    PULL_COMMIT = 1,
    PULL_SUSPEND = 2,
    PULL_SUBSCRIPTION = 4,
    PULL_CLASS_FILTER = 8,
    PULL_LITE = 16
};

struct pop_fields { /* 200050, 200052, 200054, 200055 */
    struct bytes group, topic, expression, expression_type, attempt_id;
    int32_t queue_id, max_count, init_mode;
    int64_t invisible_ms, poll_ms, born_ms;
    bool order;
};
extern const struct field_table pop_message_table, peek_message_table, notification_table,
    polling_info_table;

struct ack_fields { /* 200051, 200053 */
    struct bytes group, topic, handle;
    int32_t queue_id;
    int64_t offset, invisible_ms;
};
extern const struct field_table ack_message_table, change_invisible_table;

struct offset_fields { /* 14, 15, 29, 30, 31, 32 */
    struct bytes group, topic, boundary;
    int32_t queue_id;
    int64_t commit_offset, timestamp;
    bool set_zero_if_not_found;
};
extern const struct field_table query_offset_table, update_offset_table, search_offset_table,
    queue_table;

struct query_fields { /* 12, 33 */
    struct bytes topic, key;
    int32_t max;
    int64_t begin_ms, end_ms, offset;
    bool unique;
};
extern const struct field_table query_message_table, view_message_table;

struct topic_fields { /* 17; 202, 215, 300 and 351 have the topic alone */
    struct bytes topic, default_topic, filter_type, attributes;
    int32_t read_queues, write_queues, perm, sys_flag;
    bool order;
};
extern const struct field_table create_topic_table, topic_table;

struct group_fields { /* 203, 204, 207, 208, 222, 303, 307, 309, 314, 317, 343, 345, 352 */
    struct bytes group, topic, topics, client_id, msg_id, from_group;
    int32_t queue_id;
    int64_t timestamp, offset;
    bool clean_offsets, force, offline, ordered;
};
extern const struct field_table consumers_table, producers_table, delete_group_table,
    consume_stats_table, reset_offset_table, running_info_table, group_table, group_topic_table,
    clone_offset_table, consume_directly_table, broker_consume_stats_table;

struct stats_fields { /* 315 */
    struct bytes name, key;
};
extern const struct field_table stats_table;

struct client_fields { /* 35, 38 */
    struct bytes client_id, producer_group, consumer_group;
};
extern const struct field_table unregister_client_table, consumer_list_table;

struct clock_fields { /* 10001 */
    int64_t ms;
};
extern const struct field_table advance_clock_table;

struct chaos_fields { /* 10020 */
    struct bytes action, topic, group;
    int64_t plan, seed, twice, twice_later, later_ms, drop_acks, drop_responses, delay_min_ms,
        delay_max_ms, kills, rebalances, life_ms;
};
extern const struct field_table chaos_table;

struct ledger_fields { /* 10010 */
    struct bytes group;
    int64_t birth;
};
struct present_fields { /* 10011 */
    struct bytes name;
    int64_t instance, wait_ms;
};
extern const struct field_table ledger_table, present_table;

struct broker_fields { /* 103, 104, 322, 904, 901, 205, 327 */
    struct bytes broker_name, broker_addr, cluster, ha_addr, zone;
    int64_t broker_id, heartbeat_timeout_ms;
    int32_t body_crc;
    bool compressed, acting_master;
};
extern const struct field_table register_broker_table, unregister_broker_table,
    broker_version_table, broker_heartbeat_table, broker_group_table, broker_perm_table;

struct name_fields { /* 105, 216, 217, 224, 100, 101, 102, 219 */
    struct bytes topic, cluster, space, key, value;
    bool standard_json;
};
extern const struct field_table route_table, delete_topic_table, cluster_topics_table, kv_put_table,
    kv_key_table, kv_list_table;

#endif
