/* names.c - what topics and groups may be called, and which names are the system's.
 *
 * The names that depend on configuration (cluster, broker, reply topic) are known to the broker.
 */
#include "msg/msg.h"

static bool character_allowed(uint8_t c)
{
    uint8_t lower = c | 0x20;
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '%' || c == '|';
}

static enum err name_check(struct bytes name, const char *what, size_t max, struct fault *why)
{
    if (name.len == 0)
        return fault_set(why, ERR_INVALID, "the %s has no name", what);
    if (name.len > max)
        return fault_set(why, ERR_TOO_BIG, "the %s's name has %zu bytes, more than %zu", what,
                         name.len, max);
    for (size_t i = 0; i < name.len; i++) {
        if (!character_allowed(name.at[i]))
            return fault_set(why, ERR_INVALID,
                             "the %s's name has a character (byte %zu) that is none of "
                             "a-z A-Z 0-9 _ - %% |",
                             what, i);
    }
    return OK;
}

enum err topic_name_check(struct bytes name, struct fault *why)
{
    bool of_group = bytes_start(name, RETRY_PREFIX) || bytes_start(name, DLQ_PREFIX);
    return name_check(name, "topic", of_group ? NAME_RETRY_MAX : NAME_TOPIC_MAX, why);
}

enum err group_name_check(struct bytes name, struct fault *why)
{
    return name_check(name, "group", NAME_GROUP_MAX, why);
}

struct system_topic {
    const char *name;
    bool refuses_clients;
};

static const struct system_topic system_topics[] = {
    {"SCHEDULE_TOPIC_XXXX", true},
    {"RMQ_SYS_TRANS_HALF_TOPIC", true},
    {"RMQ_SYS_TRANS_OP_HALF_TOPIC", true},
    {"TRANS_CHECK_MAX_TIME_TOPIC", true},
    {"SELF_TEST_TOPIC", true},
    {"OFFSET_MOVED_EVENT", true},
    {"rmq_sys_ONCE_LEDGER", true}, /* our own: src/ledger */
    /* A record that was sent there could name any REAL_TOPIC. No client has a reason to:
     * a message gets there by its timer, a recall by RECALL_MESSAGE. */
    {"rmq_sys_wheel_timer", true},
    {"TBW102", false},
    {"BenchmarkTest", false},
    {"RMQ_SYS_TRACE_TOPIC", false},
    {"CHECKPOINT_TOPIC", false},
};

static const struct system_topic *system_topic_find(struct bytes name)
{
    for (size_t i = 0; i < sizeof system_topics / sizeof *system_topics; i++)
        if (bytes_equal(name, bytes_str(system_topics[i].name)))
            return &system_topics[i];
    return NULL;
}

bool topic_is_system(struct bytes name)
{
    return system_topic_find(name) || bytes_start(name, BYTES("rmq_sys_"));
}

bool topic_refuses_clients(struct bytes name)
{
    const struct system_topic *topic = system_topic_find(name);
    return topic && topic->refuses_clients;
}
