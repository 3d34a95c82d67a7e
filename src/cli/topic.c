/* topic.c - topics: what there is, and making, changing and deleting them. */
#include "cli/admin.h"
#include "cli/commands_int.h"

static const struct column list_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its name"},
    {NULL},
};

static const struct opt list_options[] = {
    {"all", OPT_SWITCH, NULL, "also the system's own, retry topics and dead letters",
     .letter = 'a'},
    {NULL},
};

static int topic_list(struct cli *cli)
{
    struct admin_names topics;
    int status = admin_topics(cli, &topics);
    for (size_t i = 0; !status && i < topics.n; i++) {
        if (!arg_has(cli, "all") && admin_topic_is_system(topics.names[i]))
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
