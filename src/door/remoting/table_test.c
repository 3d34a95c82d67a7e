/* Which code is served on which side. The lists here are the promise; the table has to keep it. */
#include "base/test.h"
#include "door/remoting/door_int.h"

static const int32_t broker_codes[] = {
    REQ_SEND_MESSAGE,
    REQ_SEND_MESSAGE_V2,
    REQ_SEND_BATCH_MESSAGE,
    REQ_PULL_MESSAGE,
    REQ_LITE_PULL_MESSAGE,
    REQ_RECALL_MESSAGE,
    REQ_QUERY_MESSAGE,
    REQ_VIEW_MESSAGE_BY_ID,
    REQ_QUERY_CONSUMER_OFFSET,
    REQ_UPDATE_CONSUMER_OFFSET,
    REQ_SEARCH_OFFSET_BY_TIMESTAMP,
    REQ_GET_MAX_OFFSET,
    REQ_GET_MIN_OFFSET,
    REQ_HEART_BEAT,
    REQ_GET_EARLIEST_MSG_STORETIME,
    REQ_UNREGISTER_CLIENT,
    REQ_CONSUMER_SEND_MSG_BACK,
    REQ_END_TRANSACTION,
    REQ_RESUME_CHECK_HALF_MESSAGE,
    REQ_GET_CONSUMER_LIST_BY_GROUP,
    REQ_CHECK_CLIENT_CONFIG,
    REQ_ONCE_ADVANCE_CLOCK,
    REQ_ONCE_CHAOS,
    REQ_ONCE_LEDGER,
    REQ_ONCE_PRESENT,
    REQ_LOCK_BATCH_MQ,
    REQ_UNLOCK_BATCH_MQ,
    REQ_UPDATE_AND_CREATE_TOPIC,
    REQ_GET_ALL_TOPIC_CONFIG,
    REQ_GET_BROKER_CONFIG,
    REQ_GET_BROKER_RUNTIME_INFO,
    REQ_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    REQ_GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    REQ_GET_TOPIC_STATS_INFO,
    REQ_GET_CONSUMER_CONNECTION_LIST,
    REQ_GET_PRODUCER_CONNECTION_LIST,
    REQ_DELETE_SUBSCRIPTIONGROUP,
    REQ_GET_CONSUME_STATS,
    REQ_DELETE_TOPIC_IN_BROKER,
    REQ_INVOKE_BROKER_TO_RESET_OFFSET,
    REQ_QUERY_TOPIC_CONSUME_BY_WHO,
    REQ_CLEAN_EXPIRED_CONSUMEQUEUE,
    REQ_GET_CONSUMER_RUNNING_INFO,
    REQ_SEND_REPLY_MESSAGE,
    REQ_SEND_REPLY_MESSAGE_V2,
    REQ_DELETE_EXPIRED_COMMITLOG,
    REQ_GET_TOPIC_CONFIG,
    REQ_GET_SUBSCRIPTIONGROUP_CONFIG,
    REQ_UPDATE_BROKER_CONFIG,
    REQ_QUERY_CONSUME_TIME_SPAN,
    REQ_GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    REQ_CONSUME_MESSAGE_DIRECTLY,
    REQ_CLONE_GROUP_OFFSET,
    REQ_VIEW_BROKER_STATS_DATA,
    REQ_CLEAN_UNUSED_TOPIC,
    REQ_GET_BROKER_CONSUME_STATS,
    REQ_GET_ALL_PRODUCER_INFO,
    REQ_QUERY_TOPICS_BY_CONSUMER,
    REQ_QUERY_SUBSCRIPTION_BY_CONSUMER,
    REQ_QUERY_ASSIGNMENT,
    REQ_SET_MESSAGE_REQUEST_MODE,
    REQ_GET_ALL_MESSAGE_REQUEST_MODE,
    REQ_POP_MESSAGE,
    REQ_ACK_MESSAGE,
    REQ_PEEK_MESSAGE,
    REQ_CHANGE_MESSAGE_INVISIBLETIME,
    REQ_NOTIFICATION,
    REQ_POLLING_INFO,
    REQ_BATCH_ACK_MESSAGE,
};

static const int32_t names_codes[] = {
    REQ_PUT_KV_CONFIG,
    REQ_GET_KV_CONFIG,
    REQ_DELETE_KV_CONFIG,
    REQ_GET_KVLIST_BY_NAMESPACE,
    REQ_REGISTER_BROKER,
    REQ_UNREGISTER_BROKER,
    REQ_BROKER_HEARTBEAT,
    REQ_QUERY_DATA_VERSION,
    REQ_GET_BROKER_MEMBER_GROUP,
    REQ_GET_ROUTEINFO_BY_TOPIC,
    REQ_GET_BROKER_CLUSTER_INFO,
    REQ_WIPE_WRITE_PERM_OF_BROKER,
    REQ_ADD_WRITE_PERM_OF_BROKER,
    REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    REQ_DELETE_TOPIC_IN_NAMESRV,
    REQ_REGISTER_TOPIC_IN_NAMESRV,
    REQ_GET_TOPICS_BY_CLUSTER,
    REQ_GET_SYSTEM_TOPIC_LIST_FROM_NS,
    REQ_GET_UNIT_TOPIC_LIST,
    REQ_GET_HAS_UNIT_SUB_TOPIC_LIST,
    REQ_GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    REQ_UPDATE_NAMESRV_CONFIG,
    REQ_GET_NAMESRV_CONFIG,
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool promised(const int32_t *codes, size_t n, int32_t code)
{
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == code)
            return true;
    }
    return false;
}

/* A row in the wrong place would be missed by the search. */
static void finds_each_code_on_its_own_side_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(broker_codes); i++) {
        assert_non_null(table_find(SIDE_BROKER, broker_codes[i]));
        assert_null(table_find(SIDE_NAMES, broker_codes[i]));
    }
    for (size_t i = 0; i < COUNT(names_codes); i++) {
        assert_non_null(table_find(SIDE_NAMES, names_codes[i]));
        assert_null(table_find(SIDE_BROKER, names_codes[i]));
    }
}

/* Everything from far below zero to beyond the POP codes, and the ends of the range. */
static void finds_nothing_else(void **state)
{
    (void)state;
    for (int32_t code = -70000; code < 300000; code++) {
        assert_int_equal(table_find(SIDE_BROKER, code) != NULL,
                         promised(broker_codes, COUNT(broker_codes), code));
        assert_int_equal(table_find(SIDE_NAMES, code) != NULL,
                         promised(names_codes, COUNT(names_codes), code));
    }
    static const int32_t ends[] = {INT32_MIN, INT32_MIN + 1, INT32_MAX - 1, INT32_MAX};
    for (size_t i = 0; i < COUNT(ends); i++) {
        assert_null(table_find(SIDE_BROKER, ends[i]));
        assert_null(table_find(SIDE_NAMES, ends[i]));
    }
}

static void every_code_has_a_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(broker_codes); i++)
        assert_non_null(request_name(broker_codes[i]));
    for (size_t i = 0; i < COUNT(names_codes); i++)
        assert_non_null(request_name(names_codes[i]));
}

/* The header of SEND_MESSAGE has long names, that of its successors has letters. */
static void sends_are_read_in_their_own_spelling(void **state)
{
    (void)state;
    assert_ptr_equal(table_find(SIDE_BROKER, REQ_SEND_MESSAGE), send_message);
    assert_ptr_equal(table_find(SIDE_BROKER, REQ_SEND_MESSAGE_V2), send_message_v2);
    assert_ptr_equal(table_find(SIDE_BROKER, REQ_SEND_BATCH_MESSAGE), send_message_v2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_each_code_on_its_own_side_only),
        cmocka_unit_test(finds_nothing_else),
        cmocka_unit_test(every_code_has_a_name),
        cmocka_unit_test(sends_are_read_in_their_own_spelling),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
