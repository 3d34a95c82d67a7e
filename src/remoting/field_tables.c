/* field_tables.c - the names of the fields of each request.
 *
 * Fields that every 5.x request may carry (ns, nsd, bname, oway, lo) are left out where nobody asks
 * for them: a broker without static topics has no use for them, and unknown fields are passed over.
 */
#include "remoting/fields.h"

#define NEED true
#define MAY  false

#define TEXT(name_, need_, member_) RULE(FIELD_TEXT, name_, need_, member_)
#define INT(name_, need_, member_)  RULE(FIELD_INT, name_, need_, member_)
#define LONG(name_, need_, member_) RULE(FIELD_LONG, name_, need_, member_)
#define BOOL(name_, need_, member_) RULE(FIELD_BOOL, name_, need_, member_)
#define RULE(type_, name_, need_, member_)                                                         \
    {                                                                                              \
        .name = {(const uint8_t *)(name_), sizeof(name_) - 1}, .type = type_, .required = need_,   \
        .offset = offsetof(struct FIELDS, member_)                                                 \
    }
#define TABLE(name)                                                                                \
    const struct field_table name = {name##_rules, sizeof name##_rules / sizeof *name##_rules}

/* ---- sending ---- */

#define FIELDS send_fields

static const struct field_rule send_fields_long_rules[] = {
    TEXT("producerGroup", NEED, producer_group),
    TEXT("topic", NEED, topic),
    TEXT("defaultTopic", NEED, default_topic),
    INT("defaultTopicQueueNums", NEED, default_topic_queues),
    INT("queueId", NEED, queue_id),
    INT("sysFlag", NEED, sys_flag),
    LONG("bornTimestamp", NEED, born_ms),
    INT("flag", NEED, flag),
    TEXT("properties", MAY, props),
    INT("reconsumeTimes", MAY, reconsume_times),
    BOOL("unitMode", MAY, unit_mode),
    INT("maxReconsumeTimes", MAY, max_reconsume_times),
    BOOL("batch", MAY, batch),
    TEXT("bname", MAY, broker_name),
};
TABLE(send_fields_long);

static const struct field_rule send_fields_letters_rules[] = {
    TEXT("a", NEED, producer_group), TEXT("b", NEED, topic),
    TEXT("c", NEED, default_topic),  INT("d", NEED, default_topic_queues),
    INT("e", NEED, queue_id),        INT("f", NEED, sys_flag),
    LONG("g", NEED, born_ms),        INT("h", NEED, flag),
    TEXT("i", MAY, props),           INT("j", MAY, reconsume_times),
    BOOL("k", MAY, unit_mode),       INT("l", MAY, max_reconsume_times),
    BOOL("m", MAY, batch),           TEXT("n", MAY, broker_name),
};
TABLE(send_fields_letters);

#undef FIELDS

#define FIELDS send_back_fields

static const struct field_rule send_back_table_rules[] = {
    LONG("offset", NEED, position),
    TEXT("group", NEED, group),
    INT("delayLevel", NEED, delay_level),
    TEXT("originMsgId", MAY, origin_id),
    TEXT("originTopic", MAY, origin_topic),
    BOOL("unitMode", MAY, unit_mode),
    INT("maxReconsumeTimes", MAY, max_reconsume_times),
};
TABLE(send_back_table);

#undef FIELDS

#define FIELDS recall_fields

static const struct field_rule recall_table_rules[] = {
    TEXT("producerGroup", MAY, group),
    TEXT("topic", NEED, topic),
    TEXT("recallHandle", NEED, handle),
};
TABLE(recall_table);

#undef FIELDS

/* ---- transactions ---- */

#define FIELDS end_fields

static const struct field_rule end_transaction_table_rules[] = {
    TEXT("producerGroup", MAY,
         group), /* Apache's broker says that it is wrong, not that it lacks */
    TEXT("topic", MAY, topic),
    LONG("tranStateTableOffset", NEED, offset),
    LONG("commitLogOffset", NEED, position),
    INT("commitOrRollback", NEED, decision),
    BOOL("fromTransactionCheck", MAY, checked),
    TEXT("msgId", MAY, msg_id), /* Apache's broker does without */
    TEXT("transactionId", MAY, transaction_id),
};
TABLE(end_transaction_table);

#undef FIELDS
#define FIELDS resume_fields

static const struct field_rule resume_check_table_rules[] = {
    TEXT("topic", MAY, topic),
    TEXT("msgId", NEED, msg_id),
};
TABLE(resume_check_table);

#undef FIELDS

/* ---- pulling ---- */

#define FIELDS pull_fields

static const struct field_rule pull_fields_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    LONG("queueOffset", NEED, offset),
    INT("maxMsgNums", NEED, max_count),
    INT("sysFlag", NEED, sys_flag),
    LONG("commitOffset", NEED, commit_offset),
    LONG("suspendTimeoutMillis", NEED, suspend_ms),
    TEXT("subscription", MAY, subscription),
    LONG("subVersion", NEED, sub_version),
    TEXT("expressionType", MAY, expression_type),
};
TABLE(pull_fields_table);

#undef FIELDS

/* ---- popping ---- */

#define FIELDS pop_fields

static const struct field_rule pop_message_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    INT("maxMsgNums", NEED, max_count),
    LONG("invisibleTime", NEED, invisible_ms),
    LONG("pollTime", NEED, poll_ms),
    LONG("bornTime", MAY, born_ms),
    INT("initMode", NEED, init_mode),
    TEXT("expType", MAY, expression_type),
    TEXT("exp", MAY, expression),
    BOOL("order", MAY, order),
    TEXT("attemptId", MAY, attempt_id),
};
TABLE(pop_message_table);

static const struct field_rule peek_message_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    INT("maxMsgNums", NEED, max_count),
};
TABLE(peek_message_table);

static const struct field_rule notification_table_rules[] = {
    TEXT("consumerGroup", NEED, group), TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),     LONG("pollTime", NEED, poll_ms),
    LONG("bornTime", MAY, born_ms),     BOOL("order", MAY, order),
    TEXT("attemptId", MAY, attempt_id),
};
TABLE(notification_table);

static const struct field_rule polling_info_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
};
TABLE(polling_info_table);

#undef FIELDS

#define FIELDS ack_fields

static const struct field_rule ack_message_table_rules[] = {
    TEXT("consumerGroup", NEED, group), TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),     TEXT("extraInfo", NEED, handle),
    LONG("offset", NEED, offset),
};
TABLE(ack_message_table);

static const struct field_rule change_invisible_table_rules[] = {
    TEXT("consumerGroup", NEED, group), TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),     TEXT("extraInfo", NEED, handle),
    LONG("offset", NEED, offset),       LONG("invisibleTime", NEED, invisible_ms),
};
TABLE(change_invisible_table);

#undef FIELDS

/* ---- offsets ---- */

#define FIELDS offset_fields

static const struct field_rule query_offset_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    BOOL("setZeroIfNotFound", MAY, set_zero_if_not_found),
};
TABLE(query_offset_table);

static const struct field_rule update_offset_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    LONG("commitOffset", NEED, commit_offset),
};
TABLE(update_offset_table);

static const struct field_rule search_offset_table_rules[] = {
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
    LONG("timestamp", NEED, timestamp),
    TEXT("boundaryType", MAY, boundary),
};
TABLE(search_offset_table);

static const struct field_rule queue_table_rules[] = {
    TEXT("topic", NEED, topic),
    INT("queueId", NEED, queue_id),
};
TABLE(queue_table);

#undef FIELDS

/* ---- queries ---- */

#define FIELDS query_fields

static const struct field_rule query_message_table_rules[] = {
    TEXT("topic", NEED, topic),         TEXT("key", NEED, key),
    INT("maxNum", NEED, max),           LONG("beginTimestamp", NEED, begin_ms),
    LONG("endTimestamp", NEED, end_ms), BOOL("_UNIQUE_KEY_QUERY", MAY, unique),
};
TABLE(query_message_table);

static const struct field_rule view_message_table_rules[] = {
    LONG("offset", NEED, offset),
};
TABLE(view_message_table);

#undef FIELDS

/* ---- administration ---- */

#define FIELDS topic_fields

static const struct field_rule create_topic_table_rules[] = {
    TEXT("topic", NEED, topic),
    TEXT("defaultTopic", MAY, default_topic),
    INT("readQueueNums", NEED, read_queues),
    INT("writeQueueNums", NEED, write_queues),
    INT("perm", NEED, perm),
    TEXT("topicFilterType", NEED, filter_type),
    INT("topicSysFlag", MAY, sys_flag),
    BOOL("order", MAY, order),
    TEXT("attributes", MAY, attributes),
};
TABLE(create_topic_table);

static const struct field_rule topic_table_rules[] = {
    TEXT("topic", NEED, topic),
};
TABLE(topic_table);

#undef FIELDS
#define FIELDS group_fields

static const struct field_rule consumers_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
};
TABLE(consumers_table);

static const struct field_rule producers_table_rules[] = {
    TEXT("producerGroup", NEED, group),
};
TABLE(producers_table);

static const struct field_rule delete_group_table_rules[] = {
    TEXT("groupName", NEED, group), BOOL("cleanOffset", MAY, clean_offsets),
    BOOL("removeOffset", MAY, clean_offsets), /* 4.9 */
};
TABLE(delete_group_table);

static const struct field_rule consume_stats_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("topic", MAY, topic),
    TEXT("topicList", MAY, topics),
};
TABLE(consume_stats_table);

static const struct field_rule reset_offset_table_rules[] = {
    TEXT("group", NEED, group),   TEXT("topic", NEED, topic),    LONG("timestamp", NEED, timestamp),
    BOOL("isForce", NEED, force), INT("queueId", MAY, queue_id), LONG("offset", MAY, offset),
};
TABLE(reset_offset_table);

static const struct field_rule running_info_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("clientId", NEED, client_id),
};
TABLE(running_info_table);

static const struct field_rule group_table_rules[] = {
    TEXT("group", NEED, group),
};
TABLE(group_table);

static const struct field_rule group_topic_table_rules[] = {
    TEXT("group", NEED, group),
    TEXT("topic", NEED, topic),
};
TABLE(group_topic_table);

static const struct field_rule clone_offset_table_rules[] = {
    TEXT("srcGroup", NEED, from_group),
    TEXT("destGroup", NEED, group),
    TEXT("topic", MAY, topic),
    BOOL("offline", MAY, offline),
};
TABLE(clone_offset_table);

static const struct field_rule consume_directly_table_rules[] = {
    TEXT("consumerGroup", NEED, group),
    TEXT("clientId", MAY, client_id),
    TEXT("msgId", NEED, msg_id),
    TEXT("topic", MAY, topic),
};
TABLE(consume_directly_table);

static const struct field_rule broker_consume_stats_table_rules[] = {
    BOOL("isOrder", MAY, ordered),
};
TABLE(broker_consume_stats_table);

#undef FIELDS
#define FIELDS stats_fields

static const struct field_rule stats_table_rules[] = {
    TEXT("statsName", NEED, name),
    TEXT("statsKey", NEED, key),
};
TABLE(stats_table);

#undef FIELDS

/* ---- clients ---- */

#define FIELDS client_fields

static const struct field_rule unregister_client_table_rules[] = {
    TEXT("clientID", NEED, client_id),
    TEXT("producerGroup", MAY, producer_group),
    TEXT("consumerGroup", MAY, consumer_group),
};
TABLE(unregister_client_table);

static const struct field_rule consumer_list_table_rules[] = {
    TEXT("consumerGroup", NEED, consumer_group),
};
TABLE(consumer_list_table);

#undef FIELDS

/* ---- our own ---- */

#define FIELDS clock_fields

static const struct field_rule advance_clock_table_rules[] = {
    LONG("advanceMillis", NEED, ms),
};
TABLE(advance_clock_table);

#undef FIELDS
#define FIELDS chaos_fields

static const struct field_rule chaos_table_rules[] = {
    TEXT("action", NEED, action),
    LONG("plan", MAY, plan),
    TEXT("topic", MAY, topic),
    TEXT("group", MAY, group),
    LONG("seed", MAY, seed),
    LONG("twice", MAY, twice),
    LONG("twiceLater", MAY, twice_later),
    LONG("laterMillis", MAY, later_ms),
    LONG("dropAcks", MAY, drop_acks),
    LONG("dropResponses", MAY, drop_responses),
    LONG("delayMinMillis", MAY, delay_min_ms),
    LONG("delayMaxMillis", MAY, delay_max_ms),
    LONG("killsPerMinute", MAY, kills),
    LONG("rebalancesPerMinute", MAY, rebalances),
    LONG("lifeMillis", MAY, life_ms),
};
TABLE(chaos_table);

#undef FIELDS
#define FIELDS ledger_fields

static const struct field_rule ledger_table_rules[] = {
    TEXT("group", NEED, group),
    LONG("birth", MAY, birth),
};
TABLE(ledger_table);

#undef FIELDS
#define FIELDS present_fields

static const struct field_rule present_table_rules[] = {
    LONG("instance", NEED, instance),
    TEXT("name", MAY, name),
    LONG("waitMillis", NEED, wait_ms),
};
TABLE(present_table);

#undef FIELDS

/* ---- brokers, as they speak to a name server ---- */

#define FIELDS broker_fields

static const struct field_rule register_broker_table_rules[] = {
    TEXT("brokerName", NEED, broker_name),
    TEXT("brokerAddr", NEED, broker_addr),
    TEXT("clusterName", NEED, cluster),
    TEXT("haServerAddr", NEED, ha_addr),
    LONG("brokerId", NEED, broker_id),
    LONG("heartbeatTimeoutMillis", MAY, heartbeat_timeout_ms),
    BOOL("enableActingMaster", MAY, acting_master),
    BOOL("compressed", MAY, compressed),
    INT("bodyCrc32", MAY, body_crc),
    TEXT("__ZONE_NAME", MAY, zone),
};
TABLE(register_broker_table);

static const struct field_rule unregister_broker_table_rules[] = {
    TEXT("brokerName", NEED, broker_name),
    TEXT("brokerAddr", NEED, broker_addr),
    TEXT("clusterName", NEED, cluster),
    LONG("brokerId", NEED, broker_id),
};
TABLE(unregister_broker_table);

static const struct field_rule broker_version_table_rules[] = {
    TEXT("brokerName", NEED, broker_name),
    TEXT("brokerAddr", NEED, broker_addr),
    TEXT("clusterName", NEED, cluster),
    LONG("brokerId", NEED, broker_id),
};
TABLE(broker_version_table);

static const struct field_rule broker_heartbeat_table_rules[] = {
    TEXT("clusterName", NEED, cluster),
    TEXT("brokerAddr", NEED, broker_addr),
    TEXT("brokerName", NEED, broker_name),
};
TABLE(broker_heartbeat_table);

static const struct field_rule broker_group_table_rules[] = {
    TEXT("clusterName", NEED, cluster),
    TEXT("brokerName", NEED, broker_name),
};
TABLE(broker_group_table);

static const struct field_rule broker_perm_table_rules[] = {
    TEXT("brokerName", NEED, broker_name),
};
TABLE(broker_perm_table);

#undef FIELDS

/* ---- names: routes, topics, keys ---- */

#define FIELDS name_fields

static const struct field_rule route_table_rules[] = {
    TEXT("topic", NEED, topic),
    BOOL("acceptStandardJsonOnly", MAY, standard_json),
};
TABLE(route_table);

static const struct field_rule delete_topic_table_rules[] = {
    TEXT("topic", NEED, topic),
    TEXT("clusterName", MAY, cluster),
};
TABLE(delete_topic_table);

static const struct field_rule cluster_topics_table_rules[] = {
    TEXT("cluster", NEED, cluster),
};
TABLE(cluster_topics_table);

static const struct field_rule kv_put_table_rules[] = {
    TEXT("namespace", NEED, space),
    TEXT("key", NEED, key),
    TEXT("value", NEED, value),
};
TABLE(kv_put_table);

static const struct field_rule kv_key_table_rules[] = {
    TEXT("namespace", NEED, space),
    TEXT("key", NEED, key),
};
TABLE(kv_key_table);

static const struct field_rule kv_list_table_rules[] = {
    TEXT("namespace", NEED, space),
};
TABLE(kv_list_table);

#undef FIELDS
