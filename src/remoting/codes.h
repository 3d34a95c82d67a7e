/* codes.h - the numbers of the protocol, as lists so that each number has its name in one place.
 *
 * The names are Apache RocketMQ's, also of the codes that nobody sends any more. A few response
 * codes had another meaning in 4.9 (209 to 211: failures of ACL configuration). Codes beyond 32767
 * do not fit into a binary header. 10000 to 10999 are our own (docs/requests.md); Apache
 * RocketMQ 5.5.0 has none there.
 */
#ifndef REMOTING_CODES_H
#define REMOTING_CODES_H

#define REQUEST_CODES(X)                                                                           \
    X(SEND_MESSAGE, 10)                                                                            \
    X(PULL_MESSAGE, 11)                                                                            \
    X(QUERY_MESSAGE, 12)                                                                           \
    X(QUERY_BROKER_OFFSET, 13)                                                                     \
    X(QUERY_CONSUMER_OFFSET, 14)                                                                   \
    X(UPDATE_CONSUMER_OFFSET, 15)                                                                  \
    X(UPDATE_AND_CREATE_TOPIC, 17)                                                                 \
    X(UPDATE_AND_CREATE_TOPIC_LIST, 18)                                                            \
    X(GET_ALL_TOPIC_CONFIG, 21)                                                                    \
    X(GET_TOPIC_CONFIG_LIST, 22)                                                                   \
    X(GET_TOPIC_NAME_LIST, 23)                                                                     \
    X(UPDATE_BROKER_CONFIG, 25)                                                                    \
    X(GET_BROKER_CONFIG, 26)                                                                       \
    X(TRIGGER_DELETE_FILES, 27)                                                                    \
    X(GET_BROKER_RUNTIME_INFO, 28)                                                                 \
    X(SEARCH_OFFSET_BY_TIMESTAMP, 29)                                                              \
    X(GET_MAX_OFFSET, 30)                                                                          \
    X(GET_MIN_OFFSET, 31)                                                                          \
    X(GET_EARLIEST_MSG_STORETIME, 32)                                                              \
    X(VIEW_MESSAGE_BY_ID, 33)                                                                      \
    X(HEART_BEAT, 34)                                                                              \
    X(UNREGISTER_CLIENT, 35)                                                                       \
    X(CONSUMER_SEND_MSG_BACK, 36)                                                                  \
    X(END_TRANSACTION, 37)                                                                         \
    X(GET_CONSUMER_LIST_BY_GROUP, 38)                                                              \
    X(CHECK_TRANSACTION_STATE, 39)                                                                 \
    X(NOTIFY_CONSUMER_IDS_CHANGED, 40)                                                             \
    X(LOCK_BATCH_MQ, 41)                                                                           \
    X(UNLOCK_BATCH_MQ, 42)                                                                         \
    X(GET_ALL_CONSUMER_OFFSET, 43)                                                                 \
    X(GET_ALL_DELAY_OFFSET, 45)                                                                    \
    X(CHECK_CLIENT_CONFIG, 46)                                                                     \
    X(GET_CLIENT_CONFIG, 47)                                                                       \
    X(UPDATE_AND_CREATE_ACL_CONFIG, 50)                                                            \
    X(DELETE_ACL_CONFIG, 51)                                                                       \
    X(GET_BROKER_CLUSTER_ACL_INFO, 52)                                                             \
    X(UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, 53)                                                        \
    X(GET_BROKER_CLUSTER_ACL_CONFIG, 54)                                                           \
    X(GET_TIMER_CHECK_POINT, 60)                                                                   \
    X(GET_TIMER_METRICS, 61)                                                                       \
    X(PUT_KV_CONFIG, 100)                                                                          \
    X(GET_KV_CONFIG, 101)                                                                          \
    X(DELETE_KV_CONFIG, 102)                                                                       \
    X(REGISTER_BROKER, 103)                                                                        \
    X(UNREGISTER_BROKER, 104)                                                                      \
    X(GET_ROUTEINFO_BY_TOPIC, 105)                                                                 \
    X(GET_BROKER_CLUSTER_INFO, 106)                                                                \
    X(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 200)                                                    \
    X(GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 201)                                                       \
    X(GET_TOPIC_STATS_INFO, 202)                                                                   \
    X(GET_CONSUMER_CONNECTION_LIST, 203)                                                           \
    X(GET_PRODUCER_CONNECTION_LIST, 204)                                                           \
    X(WIPE_WRITE_PERM_OF_BROKER, 205)                                                              \
    X(GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 206)                                                     \
    X(DELETE_SUBSCRIPTIONGROUP, 207)                                                               \
    X(GET_CONSUME_STATS, 208)                                                                      \
    X(SUSPEND_CONSUMER, 209)                                                                       \
    X(RESUME_CONSUMER, 210)                                                                        \
    X(RESET_CONSUMER_OFFSET_IN_CONSUMER, 211)                                                      \
    X(RESET_CONSUMER_OFFSET_IN_BROKER, 212)                                                        \
    X(ADJUST_CONSUMER_THREAD_POOL, 213)                                                            \
    X(WHO_CONSUME_THE_MESSAGE, 214)                                                                \
    X(DELETE_TOPIC_IN_BROKER, 215)                                                                 \
    X(DELETE_TOPIC_IN_NAMESRV, 216)                                                                \
    X(REGISTER_TOPIC_IN_NAMESRV, 217)                                                              \
    X(GET_KVLIST_BY_NAMESPACE, 219)                                                                \
    X(RESET_CONSUMER_CLIENT_OFFSET, 220)                                                           \
    X(GET_CONSUMER_STATUS_FROM_CLIENT, 221)                                                        \
    X(INVOKE_BROKER_TO_RESET_OFFSET, 222)                                                          \
    X(INVOKE_BROKER_TO_GET_CONSUMER_STATUS, 223)                                                   \
    X(GET_TOPICS_BY_CLUSTER, 224)                                                                  \
    X(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, 225)                                               \
    X(QUERY_TOPIC_CONSUME_BY_WHO, 300)                                                             \
    X(REGISTER_FILTER_SERVER, 301)                                                                 \
    X(REGISTER_MESSAGE_FILTER_CLASS, 302)                                                          \
    X(QUERY_CONSUME_TIME_SPAN, 303)                                                                \
    X(GET_SYSTEM_TOPIC_LIST_FROM_NS, 304)                                                          \
    X(GET_SYSTEM_TOPIC_LIST_FROM_BROKER, 305)                                                      \
    X(CLEAN_EXPIRED_CONSUMEQUEUE, 306)                                                             \
    X(GET_CONSUMER_RUNNING_INFO, 307)                                                              \
    X(QUERY_CORRECTION_OFFSET, 308)                                                                \
    X(CONSUME_MESSAGE_DIRECTLY, 309)                                                               \
    X(SEND_MESSAGE_V2, 310)                                                                        \
    X(GET_UNIT_TOPIC_LIST, 311)                                                                    \
    X(GET_HAS_UNIT_SUB_TOPIC_LIST, 312)                                                            \
    X(GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, 313)                                                     \
    X(CLONE_GROUP_OFFSET, 314)                                                                     \
    X(VIEW_BROKER_STATS_DATA, 315)                                                                 \
    X(CLEAN_UNUSED_TOPIC, 316)                                                                     \
    X(GET_BROKER_CONSUME_STATS, 317)                                                               \
    X(UPDATE_NAMESRV_CONFIG, 318)                                                                  \
    X(GET_NAMESRV_CONFIG, 319)                                                                     \
    X(SEND_BATCH_MESSAGE, 320)                                                                     \
    X(QUERY_CONSUME_QUEUE, 321)                                                                    \
    X(QUERY_DATA_VERSION, 322)                                                                     \
    X(RESUME_CHECK_HALF_MESSAGE, 323)                                                              \
    X(SEND_REPLY_MESSAGE, 324)                                                                     \
    X(SEND_REPLY_MESSAGE_V2, 325)                                                                  \
    X(PUSH_REPLY_MESSAGE_TO_CLIENT, 326)                                                           \
    X(ADD_WRITE_PERM_OF_BROKER, 327)                                                               \
    X(GET_ALL_PRODUCER_INFO, 328)                                                                  \
    X(DELETE_EXPIRED_COMMITLOG, 329)                                                               \
    X(QUERY_TOPICS_BY_CONSUMER, 343)                                                               \
    X(QUERY_SUBSCRIPTION_BY_CONSUMER, 345)                                                         \
    X(GET_TOPIC_CONFIG, 351)                                                                       \
    X(GET_SUBSCRIPTIONGROUP_CONFIG, 352)                                                           \
    X(UPDATE_AND_GET_GROUP_FORBIDDEN, 353)                                                         \
    X(CHECK_ROCKSDB_CQ_WRITE_PROGRESS, 354)                                                        \
    X(EXPORT_ROCKSDB_CONFIG_TO_JSON, 355)                                                          \
    X(LITE_PULL_MESSAGE, 361)                                                                      \
    X(RECALL_MESSAGE, 370)                                                                         \
    X(QUERY_ASSIGNMENT, 400)                                                                       \
    X(SET_MESSAGE_REQUEST_MODE, 401)                                                               \
    X(GET_ALL_MESSAGE_REQUEST_MODE, 402)                                                           \
    X(UPDATE_AND_CREATE_STATIC_TOPIC, 513)                                                         \
    X(GET_BROKER_MEMBER_GROUP, 901)                                                                \
    X(ADD_BROKER, 902)                                                                             \
    X(REMOVE_BROKER, 903)                                                                          \
    X(BROKER_HEARTBEAT, 904)                                                                       \
    X(NOTIFY_MIN_BROKER_ID_CHANGE, 905)                                                            \
    X(EXCHANGE_BROKER_HA_INFO, 906)                                                                \
    X(GET_BROKER_HA_STATUS, 907)                                                                   \
    X(RESET_MASTER_FLUSH_OFFSET, 908)                                                              \
    X(CONTROLLER_ALTER_SYNC_STATE_SET, 1001)                                                       \
    X(CONTROLLER_ELECT_MASTER, 1002)                                                               \
    X(CONTROLLER_REGISTER_BROKER, 1003)                                                            \
    X(CONTROLLER_GET_REPLICA_INFO, 1004)                                                           \
    X(CONTROLLER_GET_METADATA_INFO, 1005)                                                          \
    X(CONTROLLER_GET_SYNC_STATE_DATA, 1006)                                                        \
    X(GET_BROKER_EPOCH_CACHE, 1007)                                                                \
    X(NOTIFY_BROKER_ROLE_CHANGED, 1008)                                                            \
    X(UPDATE_CONTROLLER_CONFIG, 1009)                                                              \
    X(GET_CONTROLLER_CONFIG, 1010)                                                                 \
    X(CLEAN_BROKER_DATA, 1011)                                                                     \
    X(CONTROLLER_GET_NEXT_BROKER_ID, 1012)                                                         \
    X(CONTROLLER_APPLY_BROKER_ID, 1013)                                                            \
    X(BROKER_CLOSE_CHANNEL_REQUEST, 1014)                                                          \
    X(CHECK_NOT_ACTIVE_BROKER_REQUEST, 1015)                                                       \
    X(GET_BROKER_LIVE_INFO_REQUEST, 1016)                                                          \
    X(GET_SYNC_STATE_DATA_REQUEST, 1017)                                                           \
    X(RAFT_BROKER_HEART_BEAT_EVENT_REQUEST, 1018)                                                  \
    X(UPDATE_COLD_DATA_FLOW_CTR_CONFIG, 2001)                                                      \
    X(REMOVE_COLD_DATA_FLOW_CTR_CONFIG, 2002)                                                      \
    X(GET_COLD_DATA_FLOW_CTR_INFO, 2003)                                                           \
    X(SET_COMMITLOG_READ_MODE, 2004)                                                               \
    X(AUTH_CREATE_USER, 3001)                                                                      \
    X(AUTH_UPDATE_USER, 3002)                                                                      \
    X(AUTH_DELETE_USER, 3003)                                                                      \
    X(AUTH_GET_USER, 3004)                                                                         \
    X(AUTH_LIST_USER, 3005)                                                                        \
    X(AUTH_CREATE_ACL, 3006)                                                                       \
    X(AUTH_UPDATE_ACL, 3007)                                                                       \
    X(AUTH_DELETE_ACL, 3008)                                                                       \
    X(AUTH_GET_ACL, 3009)                                                                          \
    X(AUTH_LIST_ACL, 3010)                                                                         \
    X(ONCE_ADVANCE_CLOCK, 10001)                                                                   \
    X(POP_MESSAGE, 200050)                                                                         \
    X(ACK_MESSAGE, 200051)                                                                         \
    X(PEEK_MESSAGE, 200052)                                                                        \
    X(CHANGE_MESSAGE_INVISIBLETIME, 200053)                                                        \
    X(NOTIFICATION, 200054)                                                                        \
    X(POLLING_INFO, 200055)                                                                        \
    X(POP_ROLLBACK, 200056)                                                                        \
    X(BATCH_ACK_MESSAGE, 200151)

/* The negative ones never travel: they are how a client tells its own failures. */
#define RESPONSE_CODES(X)                                                                          \
    X(SUCCESS, 0)                                                                                  \
    X(SYSTEM_ERROR, 1)                                                                             \
    X(SYSTEM_BUSY, 2)                                                                              \
    X(REQUEST_CODE_NOT_SUPPORTED, 3)                                                               \
    X(TRANSACTION_FAILED, 4)                                                                       \
    X(FLUSH_DISK_TIMEOUT, 10)                                                                      \
    X(SLAVE_NOT_AVAILABLE, 11)                                                                     \
    X(FLUSH_SLAVE_TIMEOUT, 12)                                                                     \
    X(MESSAGE_ILLEGAL, 13)                                                                         \
    X(SERVICE_NOT_AVAILABLE, 14)                                                                   \
    X(VERSION_NOT_SUPPORTED, 15)                                                                   \
    X(NO_PERMISSION, 16)                                                                           \
    X(TOPIC_NOT_EXIST, 17)                                                                         \
    X(TOPIC_EXIST_ALREADY, 18)                                                                     \
    X(PULL_NOT_FOUND, 19)                                                                          \
    X(PULL_RETRY_IMMEDIATELY, 20)                                                                  \
    X(PULL_OFFSET_MOVED, 21)                                                                       \
    X(QUERY_NOT_FOUND, 22)                                                                         \
    X(SUBSCRIPTION_PARSE_FAILED, 23)                                                               \
    X(SUBSCRIPTION_NOT_EXIST, 24)                                                                  \
    X(SUBSCRIPTION_NOT_LATEST, 25)                                                                 \
    X(SUBSCRIPTION_GROUP_NOT_EXIST, 26)                                                            \
    X(FILTER_DATA_NOT_EXIST, 27)                                                                   \
    X(FILTER_DATA_NOT_LATEST, 28)                                                                  \
    X(INVALID_PARAMETER, 29)                                                                       \
    X(TRANSACTION_SHOULD_COMMIT, 200)                                                              \
    X(TRANSACTION_SHOULD_ROLLBACK, 201)                                                            \
    X(TRANSACTION_STATE_UNKNOW, 202)                                                               \
    X(TRANSACTION_STATE_GROUP_WRONG, 203)                                                          \
    X(NO_BUYER_ID, 204)                                                                            \
    X(NOT_IN_CURRENT_UNIT, 205)                                                                    \
    X(CONSUMER_NOT_ONLINE, 206)                                                                    \
    X(CONSUME_MSG_TIMEOUT, 207)                                                                    \
    X(NO_MESSAGE, 208)                                                                             \
    X(POLLING_FULL, 209)                                                                           \
    X(POLLING_TIMEOUT, 210)                                                                        \
    X(BROKER_NOT_EXIST, 211)                                                                       \
    X(BROKER_DISPATCH_NOT_COMPLETE, 212)                                                           \
    X(BROADCAST_CONSUMPTION, 213)                                                                  \
    X(FLOW_CONTROL, 215)                                                                           \
    X(NOT_LEADER_FOR_QUEUE, 501)                                                                   \
    X(ILLEGAL_OPERATION, 604)                                                                      \
    X(GO_AWAY, 1500)                                                                               \
    X(CONTROLLER_FENCED_MASTER_EPOCH, 2000)                                                        \
    X(CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, 2001)                                                \
    X(CONTROLLER_INVALID_MASTER, 2002)                                                             \
    X(CONTROLLER_INVALID_REPLICAS, 2003)                                                           \
    X(CONTROLLER_MASTER_NOT_AVAILABLE, 2004)                                                       \
    X(CONTROLLER_INVALID_REQUEST, 2005)                                                            \
    X(CONTROLLER_BROKER_NOT_ALIVE, 2006)                                                           \
    X(CONTROLLER_NOT_LEADER, 2007)                                                                 \
    X(CONTROLLER_BROKER_METADATA_NOT_EXIST, 2008)                                                  \
    X(CONTROLLER_INVALID_CLEAN_BROKER_METADATA, 2009)                                              \
    X(CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, 2010)                                               \
    X(CONTROLLER_MASTER_STILL_EXIST, 2011)                                                         \
    X(CONTROLLER_ELECT_MASTER_FAILED, 2012)                                                        \
    X(CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, 2013)                                                \
    X(CONTROLLER_BROKER_ID_INVALID, 2014)                                                          \
    X(CONTROLLER_JRAFT_INTERNAL_ERROR, 2015)                                                       \
    X(CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS, 2016)                                                \
    X(USER_NOT_EXIST, 3001)                                                                        \
    X(POLICY_NOT_EXIST, 3002)                                                                      \
    X(RPC_UNKNOWN, -1000)                                                                          \
    X(RPC_ADDR_IS_NULL, -1002)                                                                     \
    X(RPC_SEND_TO_CHANNEL_FAILED, -1004)                                                           \
    X(RPC_TIME_OUT, -1006)

enum request_code {
#define CODE_ENUM(name, number) REQ_##name = number,
    REQUEST_CODES(CODE_ENUM)
#undef CODE_ENUM
};

enum response_code {
#define CODE_ENUM(name, number) RES_##name = number,
    RESPONSE_CODES(CODE_ENUM)
#undef CODE_ENUM
};

#endif
