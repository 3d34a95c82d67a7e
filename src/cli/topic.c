/* topic.c - topics: what there is, and making, changing and deleting them. */
#include "cli/admin.h"
#include "cli/commands_int.h"

#include <string.h>

static const struct column list_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its name"},
    {NULL},
};

static const struct opt list_options[] = {
    {"all", OPT_SWITCH, NULL, "also the system's own, retry topics and dead letters",
     .letter = 'a'},
    {NULL},
};

/* Topics that are no user's: retries, dead letters, what brokers keep for themselves. */
static bool is_system(const char *topic)
{
    static const char *const names[] = {
        "TBW102",        "SELF_TEST_TOPIC",    "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(topic, names[i]) == 0)
            return true;
    return strncmp(topic, "RMQ_SYS_", 8) == 0 || strncmp(topic, "rmq_sys_", 8) == 0 ||
           topic[0] == '%';
}

static int topic_list(struct cli *cli)
{
    struct admin_names topics;
    int status = admin_topics(cli, &topics);
    for (size_t i = 0; !status && i < topics.n; i++) {
        if (!arg_has(cli, "all") && is_system(topics.names[i]))
            continue;
        row_begin(cli);
        put_text(cli, "topic", topics.names[i]);
        row_end(cli);
    }
    return status;
}

const struct command topic_commands[] = {
    {
        .name = "topic list",
        .summary = "the topics of all brokers",
        .options = list_options,
        .shape = SHAPE_LIST,
        .columns = list_columns,
        .run = topic_list,
    },
    {NULL},
};
