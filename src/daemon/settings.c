#include "daemon/settings.h"

#include "namesrv/namesrv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_UNIT   20
#define ANSWER_EXTRA (1 << 20) /* what an answer has besides one whole message */

static const char *const flush_types[] = {"ASYNC_FLUSH", "SYNC_FLUSH", NULL};
static const char *const broker_roles[] = {"ASYNC_MASTER", "SYNC_MASTER", "SLAVE", NULL};
static const char *const tls_modes[] = {"disabled", "permissive", "enforcing", NULL};
static const char *const tls_asks[] = {"none", "optional", "require", NULL};
static const char *const request_modes[] = {"PULL", "POP", NULL};
static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static int64_t unit_ms(char unit)
{
    switch (unit) {
    case 's':
        return 1000;
    case 'm':
        return 60 * 1000;
    case 'h':
        return 3600 * 1000;
    case 'd':
        return 24 * 3600 * 1000;
    default:
        return 0;
    }
}

/* "1s 5s 10s 30s 1m …": numbers with a unit of s, m, h or d. How many; 0: it is no such list. */
static size_t read_delays(const char *value, int64_t out[DELAY_LEVELS_MAX])
{
    size_t n = 0;
    for (const char *at = value; *at; n++) {
        char *end;
        long number = strtol(at, &end, 10);
        bool good = end != at && number > 0 && number <= 1000000 && unit_ms(*end) &&
                    (!end[1] || end[1] == ' ') && n < DELAY_LEVELS_MAX;
        if (!good)
            return 0;
        out[n] = number * unit_ms(*end);
        at = end + 1;
        at += strspn(at, " ");
    }
    return n;
}

static enum err check_delay_levels(const char *value, struct fault *why)
{
    int64_t delays[DELAY_LEVELS_MAX];
    return read_delays(value, delays)
               ? OK
               : fault_set(why, ERR_INVALID,
                           "1 to %d delays such as \"1s 5s 2m 1h 1d\", separated by blanks",
                           DELAY_LEVELS_MAX);
}

size_t settings_delays(const struct settings *settings, int64_t out[DELAY_LEVELS_MAX])
{
    return read_delays(settings->delay_levels, out);
}

/* "04" or "02;14": hours of the day, bit h for hour h. */
static bool read_hours(const char *value, uint32_t *out)
{
    uint32_t hours = 0;
    for (const char *at = value;; at++) {
        char *end;
        long hour = strtol(at, &end, 10);
        if (end == at || hour < 0 || hour > 23 || (*end && *end != ';'))
            return false;
        hours |= 1u << hour;
        if (!*end)
            break;
        at = end;
    }
    *out = hours;
    return true;
}

static enum err check_hours(const char *value, struct fault *why)
{
    uint32_t hours;
    return read_hours(value, &hours)
               ? OK
               : fault_set(why, ERR_INVALID, "hours of the day, 00 to 23, separated by semicolons");
}

/* Control characters separate the properties of a message, where some of these texts go, and would
 * break lines of the log. */
static bool is_plain(const char *value)
{
    for (const char *at = value; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return strlen(value) <= NAMES_TEXT_MAX;
}

static enum err check_text(const char *value, struct fault *why)
{
    return is_plain(value) ? OK
                           : fault_set(why, ERR_INVALID, "at most %d bytes, no control characters",
                                       NAMES_TEXT_MAX);
}

static enum err check_dedup_key(const char *value, struct fault *why)
{
    return !value[0] || prop_name_valid(bytes_str(value))
               ? OK
               : fault_set(why, ERR_INVALID, "UNIQ_KEY or a property's name of at most %d bytes",
                           PROP_NAME_MAX);
}

static enum err check_name(const char *value, struct fault *why)
{
    return value[0] ? check_text(value, why)
                    : fault_set(why, ERR_INVALID, "a name of at least one letter");
}

static enum err check_topic(const char *value, struct fault *why)
{
    return topic_name_check(bytes_str(value), why);
}

static enum err check_not_empty(const char *value, struct fault *why)
{
    return value[0] ? OK : fault_set(why, ERR_INVALID, "it must not be empty");
}

/* Its limits have been checked before. */
static enum err check_queue_file(const char *value, struct fault *why)
{
    return strtoll(value, NULL, 10) % QUEUE_UNIT == 0
               ? OK
               : fault_set(why, ERR_INVALID, "a multiple of %d, the size of an entry", QUEUE_UNIT);
}

#define AT(member) offsetof(struct settings, member)
#define INT(key, member, initial, min, max, help)                                                  \
    {                                                                                              \
        key, CONF_INT, AT(member), initial, min, max, NULL, NULL, help                             \
    }
#define CHECKED_INT(key, member, initial, min, max, check, help)                                   \
    {                                                                                              \
        key, CONF_INT, AT(member), initial, min, max, NULL, check, help                            \
    }
#define BOOL(key, member, initial, help)                                                           \
    {                                                                                              \
        key, CONF_BOOL, AT(member), initial, 0, 0, NULL, NULL, help                                \
    }
#define TEXT(key, member, initial, check, help)                                                    \
    {                                                                                              \
        key, CONF_TEXT, AT(member), initial, 0, 0, NULL, check, help                               \
    }
#define CHOICE(key, member, initial, choices, help)                                                \
    {                                                                                              \
        key, CONF_CHOICE, AT(member), initial, 0, 0, choices, NULL, help                           \
    }

/* The same for keys that can change while the daemon runs. Whoever makes one live also sees to it
 * that the change arrives: config.h tells how. */
#define LIVE_INT(key, member, initial, min, max, help)                                             \
    {                                                                                              \
        key, CONF_INT, AT(member), initial, min, max, NULL, NULL, help, true                       \
    }
#define LIVE_BOOL(key, member, initial, help)                                                      \
    {                                                                                              \
        key, CONF_BOOL, AT(member), initial, 0, 0, NULL, NULL, help, true                          \
    }
#define LIVE_TEXT(key, member, initial, check, help)                                               \
    {                                                                                              \
        key, CONF_TEXT, AT(member), initial, 0, 0, NULL, check, help, true                         \
    }
#define LIVE_CHOICE(key, member, initial, choices, help)                                           \
    {                                                                                              \
        key, CONF_CHOICE, AT(member), initial, 0, 0, choices, NULL, help, true                     \
    }

#define GIB (1024LL * 1024 * 1024)

static const struct conf_option options[] = {
    TEXT("bindAddress", bind_address, "127.0.0.1", check_not_empty,
         "address to listen on (--bind); 0.0.0.0 or :: for all"),
    INT("listenPort", listen_port, "10911", 0, 65535, "port of the broker; 0 takes any free one"),
    INT("namesrvListenPort", names_port, "9876", 0, 65535,
        "port of the name server in this process; 0 takes any free one"),
    INT("httpPort", http_port, "-1", -1, 65535,
        "port of the once ledger over HTTP (docs/once-http.md); -1: none, 0 takes any free one"),
    TEXT("namesrvAddr", names_addr, "", NULL,
         "name servers to register with, host:port joined by semicolons; one in this process is "
         "added by itself"),
    TEXT("brokerClusterName", cluster, "DefaultCluster", check_name,
         "cluster this broker belongs to"),
    TEXT("brokerName", broker_name, "", check_text,
         "name of the broker; empty: this machine's name"),
    INT("brokerId", broker_id, "0", 0, INT32_MAX, "0 for a master, above it for a slave"),
    CHOICE("brokerRole", broker_role, "ASYNC_MASTER", broker_roles,
           "role in replication; replication is not in effect yet, so both masters are alike and "
           "SLAVE does not start"),
    TEXT("brokerIP1", broker_ip1, "", NULL,
         "address told to clients; empty: bindAddress, or this machine's first address when that "
         "is a wildcard; auto: the one by which a client has reached our name server"),
    TEXT("regionId", region, "DefaultRegion", check_text,
         "region that is written into each message's MSG_REGION"),
    INT("registerNameServerPeriod", register_period_ms, "30000", 10000, 60000,
        "how often the broker tells the name servers about itself, in ms"),

    INT("ioThreads", io_threads, "0", 0, 64,
        "network threads (--io-threads); 0: one for each core, at most 8"),
    INT("maxConnections", max_connections, "10000", 1, 1000000,
        "connections at once, all ports together"),
    INT("serverChannelMaxIdleTimeSeconds", idle_seconds, "120", 1, 86400,
        "a connection without a byte in either direction for so long is closed"),
    INT("outputHighBytes", out_high_bytes, "1048576", 65536, GIB,
        "a connection with more unsent output than this is not read any further until it has "
        "drained"),
    INT("outputMaxBytes", out_max_bytes, "67108864", 1048576, 16 * GIB,
        "a connection with more unsent output than this is closed"),

    CHOICE("tls.server.mode", tls_mode, "permissive", tls_modes,
           "once there is a certificate: permissive serves plain and TLS connections on the same "
           "ports, enforcing refuses plain ones, disabled refuses TLS"),
    TEXT("tls.server.certPath", tls_cert, "", NULL,
         "PEM file of our certificate, with those that lead to its authority; read again on "
         "SIGHUP, as the next two; empty: TLS is not offered"),
    TEXT("tls.server.keyPath", tls_key, "", NULL, "PEM file of its key, without a password"),
    TEXT("tls.server.trustCertPath", tls_trust, "", NULL,
         "PEM file of authorities for clients' certificates; empty: the system's"),
    CHOICE("tls.server.need.client.auth", tls_client_auth, "none", tls_asks,
           "whether clients are asked for a certificate, or have to show one"),
    BOOL("tls.server.authClient", tls_auth_client, "false",
         "whether it must be signed by one of these authorities; false: any will do"),
    BOOL("tls.test.mode.enable", tls_test, "false",
         "offer TLS with a certificate made up at the start, whatever tls.server.certPath says: "
         "for tests, since nobody can tell it from anybody else's (Apache: true)"),
    BOOL("tls.enable", tls_enable, "false",
         "speak TLS with the name servers to register with, the one in this process included"),
    BOOL("tls.client.authServer", tls_auth_server, "false",
         "whether their certificates have to be good, and for the name in namesrvAddr"),
    TEXT("tls.client.trustCertPath", tls_own_trust, "", NULL,
         "PEM file of authorities for that; empty: the system's"),
    TEXT("tls.client.certPath", tls_own_cert, "", NULL,
         "PEM file of the certificate to show to them, if they ask"),
    TEXT("tls.client.keyPath", tls_own_key, "", NULL, "PEM file of its key"),

    LIVE_BOOL("autoCreateTopicEnable", auto_topics, "true",
              "create a topic when the first message for it arrives"),
    LIVE_BOOL("autoCreateSubscriptionGroup", auto_groups, "true",
              "create a subscription group when its first consumer comes"),
    INT("defaultTopicQueueNums", default_queues, "8", 1, 1024,
        "queues of TBW102, the most an automatic topic gets"),
    LIVE_INT(
        "accessMessageInMemoryMaxRatio", recent_ratio, "40", 0, 100,
        "a group without offsets begins with a queue's first message while that and all that came "
        "after it are within so many percent of this machine's memory, else with its last; 0: "
        "however much it is"),
    LIVE_INT("brokerPermission", broker_perm, "6", 0, 7,
             "4 read, 2 write, 6 both, for the whole broker"),
    LIVE_INT(
        "dlqPerm", dlq_perm, "2", 0, 7,
        "permission of a group's dead letters (%DLQ%…) when they come to be: 2 keeps them from "
        "being read until an operator allows it, 6 is what Apache has"),
    /* What the name servers are told in one frame of 16 MiB holds so many, however long the names.
     * A broker that has more may be unable to register, and consumers of new groups bring topics.
     */
    LIVE_INT("maxTopics", max_topics, "30000", 1, 10000000,
             "topics at most, those for retries included; more are refused"),
    LIVE_INT("maxGroups", max_groups, "100000", 1, 10000000,
             "subscription groups at most; more are refused"),
    LIVE_INT("maxClients", max_clients, "100000", 1, 10000000,
             "memberships of clients in groups at most; more are refused"),
    LIVE_INT(
        "channelExpiredTimeout", client_expire_ms, "120000", 1000, 86400000,
        "a client without a heartbeat for so long leaves its groups and is disconnected, in ms"),
    /* Apache's is a property of its Java: rocketmq.broker.rebalance.lockMaxLiveTime. */
    LIVE_INT(
        "rebalanceLockMaxLiveTime", lock_life_ms, "60000", 1000, 86400000,
        "a queue that is consumed in order is given to another member when the one that has it has "
        "not asked again for so long, in ms; clients trust a lock for 30 s"),
    LIVE_BOOL("storeReplyMessageEnable", store_replies, "true",
              "keep replies of request-reply as messages too"),
    LIVE_BOOL(
        "useServerSideResetOffset", server_side_reset, "true",
        "a reset of offsets counts at once and is told with the next pull; false: the members of "
        "the group are told to see to it"),
    BOOL("traceOn", trace_on, "true",
         "value of TRACE_ON that clients are told: whether those that trace their messages shall "
         "do so"),
    LIVE_BOOL(
        "traceTopicEnable", trace_topic, "false",
        "have the topic for traces from the start; otherwise it comes to be with the first trace, "
        "where topics may"),
    TEXT("msgTraceTopicName", trace_topic_name, "RMQ_SYS_TRACE_TOPIC", check_topic,
         "name of that topic"),

    LIVE_INT("maxMessageSize", max_message_size, "4194304", 1024, 15 * 1024 * 1024,
             "largest message body, in bytes"),
    LIVE_BOOL(
        "brokerFastFailureEnable", fast_failure, "true",
        "SYNC_FLUSH: refuse sends with SYSTEM_BUSY while the disk does not keep up, by the next "
        "two"),
    LIVE_INT("sendThreadPoolQueueCapacity", max_sends_waiting, "10000", 1, 10000000,
             "… when so many wait for the disk"),
    LIVE_INT("osPageCacheBusyTimeOutMills", max_send_wait_ms, "1000", 1, 3600000,
             "… or when one has waited for so long, in ms"),
    LIVE_BOOL("longPollingEnable", long_polling, "true",
              "let a pull wait for a message as long as its client allows"),
    LIVE_INT("shortPollingTimeMills", short_polling_ms, "1000", 1, 60000,
             "how long a pull waits when longPollingEnable is false"),
    LIVE_BOOL("enablePropertyFilter", sql92, "true",
              "let consumers choose messages by SQL92 expressions over their properties"),
    LIVE_INT("maxWaitingPulls", max_holds, "100000", 1, 10000000,
             "pulls that may wait at once; more are told at once that there is nothing"),
    LIVE_INT("popPollingSize", max_pop_waiting, "1024", 1, 1000000,
             "pops of one group that may wait for one topic; more are told POLLING_FULL"),
    LIVE_INT("popFromRetryProbability", pop_retry_chance, "20", 0, 100,
             "how often, in percent, a pop looks for messages that come again before new ones"),
    LIVE_BOOL(
        "enableRetryTopicV2", pop_retry_v2, "false",
        "messages that were popped and not acknowledged wait in %RETRY%group+topic instead of "
        "%RETRY%group_topic, which may be two groups' and topics' at once"),
    LIVE_BOOL("retrieveMessageFromPopRetryTopicV1", pop_retry_v1_too, "true",
              "… and pops still look for those that wait in the other"),
    LIVE_INT(
        "maxPopInFlight", max_pop_marks, "1000000", 1, 100000000,
        "batches of popped messages that may be in flight; more pops are told POLLING_FULL. One "
        "takes up to 300 bytes of memory"),
    INT("maxPopInvisibleSec", max_invisible_sec, "259200", 1, 31622400,
        "the longest time for which a popped message may be invisible, in seconds"),
    LIVE_CHOICE(
        "defaultMessageRequestMode", request_mode, "PULL", request_modes,
        "how groups read that let the broker decide, unless an operator says otherwise for a "
        "topic and group (mqadmin setConsumeMode)"),
    LIVE_INT("defaultPopShareQueueNum", pop_share, "-1", -1, 1000000,
             "POP by default: so many further members share a queue; -1 or 0: all"),
    LIVE_BOOL("serverLoadBalancerEnable", server_balance, "true",
              "divide queues among the members that let the broker decide; false: each gets all"),
    TEXT("messageDelayLevel", delay_levels,
         "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", check_delay_levels,
         "the delay ladder, level 1 first; retries begin at level 3"),
    LIVE_BOOL("rejectTransactionMessage", txn_reject, "false", "refuse transactional messages"),
    LIVE_INT("transactionTimeOut", txn_timeout_ms, "6000", 0, 86400000,
             "a transaction without a decision for so long is asked for, in ms"),
    LIVE_INT("transactionCheckInterval", txn_interval_ms, "30000", 10, 86400000,
             "how often producers are asked for their transactions, in ms"),
    LIVE_INT("transactionCheckMax", txn_check_max, "15", 1, 1000000,
             "… and how many times each, before it is moved to TRANS_CHECK_MAX_TIME_TOPIC"),
    INT("maxOpenTransactions", max_halves, "1000000", 1, 100000000,
        "transactions without a decision at most, about 100 bytes of memory each; more are refused "
        "with SYSTEM_BUSY"),
    TEXT("dedupKey", dedup_key, "", check_dedup_key,
         "what tells that a message was stored before and must not be again: UNIQ_KEY, for the "
         "producers' own retries, or the name of a property, such as an order number; empty: "
         "nothing. A topic's attribute dedup.key decides for itself (OFF: nothing)"),
    INT("dedupWindowSeconds", dedup_window_seconds, "600", 1, 604800,
        "… for so long after it was stored"),
    INT("dedupMaxKeys", dedup_max_keys, "1000000", 1000, 16000000,
        "… but for no more messages than this, with at most 24 bytes of memory each; the oldest "
        "are forgotten, with a warning"),
    BOOL("onceLedgerEnable", ledger, "true",
         "keep the once ledger: claims and marks of consumers whose effects happen once, without a "
         "database of their own"),
    LIVE_INT("onceMaxKeys", ledger_max_keys, "10000000", 1000, 1000000000,
             "… of so many keys and steps at most, with 75 to 86 bytes of memory each; more are "
             "refused"),
    LIVE_INT("onceGraceMillis", ledger_grace_ms, "2000", 100, 3600000,
             "… and when a client has been gone for so long, in ms, its claims are free, before "
             "their end"),

    BOOL("timerWheelEnable", timers, "true",
         "deliver messages at a time of their own (TIMER_DELAY_SEC, TIMER_DELAY_MS, "
         "TIMER_DELIVER_MS); false: they are refused"),
    LIVE_INT("timerMaxDelaySec", timer_max_s, "259200", 1, 3155760000,
             "longest time that such a message may be ahead, in seconds: up to 100 years"),
    INT("timerRollWindowSlot", timer_window_s, "172800", 2, 604740,
        "one that waits longer than so many seconds is stored again then, so that it is not "
        "deleted with what is old; two thirds of fileReservedTime at most count"),
    LIVE_BOOL("recallMessageEnable", recalls, "false",
              "let producers take back a message that waits for its time"),

    TEXT("storePathRootDir", data, "data", check_not_empty, "folder of all data (--data)"),
    CHOICE("flushDiskType", flush_type, "ASYNC_FLUSH", flush_types,
           "SYNC_FLUSH answers a producer only when its message is on the disk"),
    INT("mappedFileSizeCommitLog", log_file_size, "1073741824", 65536, INT32_MAX,
        "bytes of one log file; fixed once a folder has been written"),
    CHECKED_INT("mappedFileSizeConsumeQueue", queue_file_size, "6000000", QUEUE_UNIT, GIB,
                check_queue_file,
                "bytes of one queue file, a multiple of 20; fixed once a folder has been written"),
    LIVE_INT("flushIntervalCommitLog", flush_interval_ms, "500", 1, 600000,
             "ASYNC_FLUSH: flush the log this often, in ms"),
    LIVE_INT("flushCommitLogLeastPages", flush_least_pages, "4", 0, 1000000,
             "… if at least so many 4 KiB pages are new"),
    LIVE_INT("flushCommitLogThoroughInterval", flush_thorough_interval_ms, "10000", 1, 3600000,
             "… and whatever there is this often, in ms"),
    LIVE_INT("flushIntervalConsumeQueue", queue_flush_interval_ms, "1000", 1, 600000,
             "flush the queues this often, in ms"),
    LIVE_INT("flushConsumerOffsetInterval", save_offsets_ms, "5000", 100, 600000,
             "save topics, groups and offsets this often, in ms"),
    BOOL("messageIndexEnable", index_enable, "true",
         "keep an index, so that messages are found by key"),
    INT("maxHashSlotNum", index_slots, "5000000", 16, 1000000000,
        "slots of one index file; when changed, the index is built again from the log"),
    INT("maxIndexNum", index_entries, "20000000", 16, 1000000000,
        "keys of one index file; when changed, the index is built again from the log"),
    LIVE_INT("fileReservedTime", reserved_hours, "72", 1, 1000000,
             "hours a message is kept, consumed or not; whole log files are deleted, and never the "
             "last"),
    LIVE_TEXT(
        "deleteWhen", delete_when, "04", check_hours,
        "hours of the day, local time, in which to delete what is older, separated by semicolons"),
    LIVE_INT(
        "diskMaxUsedSpaceRatio", disk_max_used, "75", 0, 100,
        "percent of the disk in use above which it is deleted at any hour; counts as 10 to 95"),
    LIVE_INT("diskSpaceCleanForciblyRatio", disk_forced, "85", 0, 100,
             "… above which the oldest is deleted whatever its age; counts as 30 to 85"),
    LIVE_INT(
        "diskSpaceWarningLevelRatio", disk_warning, "90", 0, 100,
        "… above which no messages are taken either, until the ratio before is met; counts as 35 "
        "to 90"),

    LIVE_BOOL("orderMessageEnable", order_enable, "false",
              "name server: routes carry the settings of ordered topics"),
    LIVE_BOOL(
        "supportActingMaster", acting_master, "false",
        "name server: show the first slave as master where a broker allows it and has no master"),

    LIVE_CHOICE("logLevel", log_level, "info", log_levels, "least important lines that are logged"),
};

const struct conf_table settings_table = {options, sizeof options / sizeof options[0]};
static_assert(sizeof options / sizeof options[0] <= SETTINGS_MAX,
              "whoever has a mark for each key");

uint32_t settings_delete_hours(const struct settings *s)
{
    uint32_t hours = 0;
    invariant(read_hours(s->delete_when, &hours)); /* it was checked when it was set */
    return hours;
}

bool settings_offer_tls(const struct settings *s)
{
    return s->tls_mode != TLS_DISABLED && (s->tls_test || s->tls_cert[0] || s->tls_key[0]);
}

enum err settings_check(const struct settings *s, struct fault *why)
{
    /* One that is not congested yet may be given one more answer, and that must not end it: the
     * client would come back and ask for the same message. */
    int64_t least = s->out_high_bytes + s->max_message_size + ANSWER_EXTRA;
    if (s->out_max_bytes < least)
        return fault_set(why, ERR_INVALID,
                         "outputMaxBytes=%" PRId64 " is too little for outputHighBytes=%" PRId64
                         " and maxMessageSize=%" PRId64 ": it must be at least %" PRId64,
                         s->out_max_bytes, s->out_high_bytes, s->max_message_size, least);
    if (s->tls_mode == TLS_ENFORCING && !settings_offer_tls(s))
        return fault_set(why, ERR_INVALID,
                         "tls.server.mode=enforcing needs a certificate: set tls.server.certPath "
                         "and tls.server.keyPath");
    return OK;
}
