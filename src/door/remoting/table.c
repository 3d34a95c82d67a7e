/* table.c - which request code is answered by which handler, on which side. */
#include "door/remoting/door_int.h"

#include <stdlib.h>

struct row {
    int32_t code;
    enum door_side side;
    handler *fn;
};

/* By rising code, for bsearch; no code is served on both sides. */
static const struct row rows[] = {
    {REQ_SEND_MESSAGE, SIDE_BROKER, send_message},
    {REQ_PULL_MESSAGE, SIDE_BROKER, pull_message},
    {REQ_QUERY_MESSAGE, SIDE_BROKER, query_by_key},
    {REQ_QUERY_CONSUMER_OFFSET, SIDE_BROKER, offset_query},
    {REQ_UPDATE_CONSUMER_OFFSET, SIDE_BROKER, offset_update},
    {REQ_UPDATE_AND_CREATE_TOPIC, SIDE_BROKER, admin_topic_set},
    {REQ_GET_ALL_TOPIC_CONFIG, SIDE_BROKER, admin_topics},
    {REQ_UPDATE_BROKER_CONFIG, SIDE_BROKER, runtime_config_change},
    {REQ_GET_BROKER_CONFIG, SIDE_BROKER, runtime_config},
    {REQ_GET_BROKER_RUNTIME_INFO, SIDE_BROKER, runtime_info},
    {REQ_SEARCH_OFFSET_BY_TIMESTAMP, SIDE_BROKER, offset_search},
    {REQ_GET_MAX_OFFSET, SIDE_BROKER, offset_max},
    {REQ_GET_MIN_OFFSET, SIDE_BROKER, offset_min},
    {REQ_GET_EARLIEST_MSG_STORETIME, SIDE_BROKER, offset_earliest},
    {REQ_VIEW_MESSAGE_BY_ID, SIDE_BROKER, query_by_id},
    {REQ_HEART_BEAT, SIDE_BROKER, client_heartbeat},
    {REQ_UNREGISTER_CLIENT, SIDE_BROKER, client_unregister},
    {REQ_CONSUMER_SEND_MSG_BACK, SIDE_BROKER, send_back},
    {REQ_END_TRANSACTION, SIDE_BROKER, txn_ends},
    {REQ_GET_CONSUMER_LIST_BY_GROUP, SIDE_BROKER, client_list},
    {REQ_LOCK_BATCH_MQ, SIDE_BROKER, lock_batch},
    {REQ_UNLOCK_BATCH_MQ, SIDE_BROKER, unlock_batch},
    {REQ_CHECK_CLIENT_CONFIG, SIDE_BROKER, client_check},
    {REQ_PUT_KV_CONFIG, SIDE_NAMES, route_kv_put},
    {REQ_GET_KV_CONFIG, SIDE_NAMES, route_kv_get},
    {REQ_DELETE_KV_CONFIG, SIDE_NAMES, route_kv_delete},
    {REQ_REGISTER_BROKER, SIDE_NAMES, route_register},
    {REQ_UNREGISTER_BROKER, SIDE_NAMES, route_unregister},
    {REQ_GET_ROUTEINFO_BY_TOPIC, SIDE_NAMES, route_by_topic},
    {REQ_GET_BROKER_CLUSTER_INFO, SIDE_NAMES, route_clusters},
    {REQ_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SIDE_BROKER, admin_group_set},
    {REQ_GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SIDE_BROKER, admin_groups},
    {REQ_GET_TOPIC_STATS_INFO, SIDE_BROKER, admin_topic_stats},
    {REQ_GET_CONSUMER_CONNECTION_LIST, SIDE_BROKER, crowd_consumers},
    {REQ_GET_PRODUCER_CONNECTION_LIST, SIDE_BROKER, crowd_producers},
    {REQ_WIPE_WRITE_PERM_OF_BROKER, SIDE_NAMES, route_wipe_write},
    {REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, SIDE_NAMES, route_topics_all},
    {REQ_DELETE_SUBSCRIPTIONGROUP, SIDE_BROKER, admin_group_delete},
    {REQ_GET_CONSUME_STATS, SIDE_BROKER, admin_consume_stats},
    {REQ_DELETE_TOPIC_IN_BROKER, SIDE_BROKER, admin_topic_delete},
    {REQ_DELETE_TOPIC_IN_NAMESRV, SIDE_NAMES, route_topic_delete},
    {REQ_REGISTER_TOPIC_IN_NAMESRV, SIDE_NAMES, route_topic_add},
    {REQ_GET_KVLIST_BY_NAMESPACE, SIDE_NAMES, route_kv_list},
    {REQ_INVOKE_BROKER_TO_RESET_OFFSET, SIDE_BROKER, admin_reset},
    {REQ_GET_TOPICS_BY_CLUSTER, SIDE_NAMES, route_topics_of_cluster},
    {REQ_QUERY_TOPIC_CONSUME_BY_WHO, SIDE_BROKER, admin_topic_groups},
    {REQ_QUERY_CONSUME_TIME_SPAN, SIDE_BROKER, survey_time_span},
    {REQ_GET_SYSTEM_TOPIC_LIST_FROM_NS, SIDE_NAMES, route_topics_system},
    {REQ_GET_SYSTEM_TOPIC_LIST_FROM_BROKER, SIDE_BROKER, survey_system_topics},
    {REQ_CLEAN_EXPIRED_CONSUMEQUEUE, SIDE_BROKER, runtime_clean_queues},
    {REQ_GET_CONSUMER_RUNNING_INFO, SIDE_BROKER, crowd_running_info},
    {REQ_CONSUME_MESSAGE_DIRECTLY, SIDE_BROKER, crowd_consume_directly},
    {REQ_SEND_MESSAGE_V2, SIDE_BROKER, send_message_v2},
    {REQ_GET_UNIT_TOPIC_LIST, SIDE_NAMES, route_topics_unit},
    {REQ_GET_HAS_UNIT_SUB_TOPIC_LIST, SIDE_NAMES, route_topics_unit_sub},
    {REQ_GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, SIDE_NAMES, route_topics_unit_sub_only},
    {REQ_CLONE_GROUP_OFFSET, SIDE_BROKER, admin_clone},
    {REQ_VIEW_BROKER_STATS_DATA, SIDE_BROKER, survey_stat},
    {REQ_CLEAN_UNUSED_TOPIC, SIDE_BROKER, runtime_clean_topics},
    {REQ_GET_BROKER_CONSUME_STATS, SIDE_BROKER, survey_consume_stats},
    {REQ_UPDATE_NAMESRV_CONFIG, SIDE_NAMES, runtime_config_change},
    {REQ_GET_NAMESRV_CONFIG, SIDE_NAMES, runtime_config},
    {REQ_SEND_BATCH_MESSAGE, SIDE_BROKER, send_message_v2},
    {REQ_QUERY_DATA_VERSION, SIDE_NAMES, route_version},
    {REQ_RESUME_CHECK_HALF_MESSAGE, SIDE_BROKER, txn_resume},
    {REQ_SEND_REPLY_MESSAGE, SIDE_BROKER, reply_send},
    {REQ_SEND_REPLY_MESSAGE_V2, SIDE_BROKER, reply_send_v2},
    {REQ_ADD_WRITE_PERM_OF_BROKER, SIDE_NAMES, route_add_write},
    {REQ_GET_ALL_PRODUCER_INFO, SIDE_BROKER, survey_producers},
    {REQ_DELETE_EXPIRED_COMMITLOG, SIDE_BROKER, runtime_delete_expired},
    {REQ_QUERY_TOPICS_BY_CONSUMER, SIDE_BROKER, survey_group_topics},
    {REQ_QUERY_SUBSCRIPTION_BY_CONSUMER, SIDE_BROKER, survey_subscription},
    {REQ_GET_TOPIC_CONFIG, SIDE_BROKER, admin_topic_get},
    {REQ_GET_SUBSCRIPTIONGROUP_CONFIG, SIDE_BROKER, admin_group_get},
    {REQ_LITE_PULL_MESSAGE, SIDE_BROKER, pull_message},
    {REQ_RECALL_MESSAGE, SIDE_BROKER, send_recall},
    {REQ_QUERY_ASSIGNMENT, SIDE_BROKER, assignment_query},
    {REQ_SET_MESSAGE_REQUEST_MODE, SIDE_BROKER, mode_set},
    {REQ_GET_ALL_MESSAGE_REQUEST_MODE, SIDE_BROKER, modes_all},
    {REQ_GET_BROKER_MEMBER_GROUP, SIDE_NAMES, route_members},
    {REQ_BROKER_HEARTBEAT, SIDE_NAMES, route_heartbeat},
    {REQ_ONCE_ADVANCE_CLOCK, SIDE_BROKER, clock_advance},
    {REQ_ONCE_LEDGER, SIDE_BROKER, once_ledger},
    {REQ_ONCE_PRESENT, SIDE_BROKER, once_present},
    {REQ_ONCE_CHAOS, SIDE_BROKER, chaos_request},
    {REQ_POP_MESSAGE, SIDE_BROKER, pop_message},
    {REQ_ACK_MESSAGE, SIDE_BROKER, ack_message},
    {REQ_PEEK_MESSAGE, SIDE_BROKER, peek_message},
    {REQ_CHANGE_MESSAGE_INVISIBLETIME, SIDE_BROKER, change_invisible},
    {REQ_NOTIFICATION, SIDE_BROKER, pop_notification},
    {REQ_POLLING_INFO, SIDE_BROKER, polling_info},
    {REQ_BATCH_ACK_MESSAGE, SIDE_BROKER, batch_ack_message},
};

static int by_code(const void *a, const void *b)
{
    int32_t x = ((const struct row *)a)->code, y = ((const struct row *)b)->code;
    return (x > y) - (x < y);
}

handler *table_find(enum door_side side, int32_t code)
{
    const struct row wanted = {.code = code};
    const struct row *row =
        bsearch(&wanted, rows, sizeof rows / sizeof rows[0], sizeof rows[0], by_code);
    return row && row->side == side ? row->fn : NULL;
}
