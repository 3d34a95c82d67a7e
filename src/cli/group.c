/* group.c - groups of consumers: what there is. */
#include "cli/group_int.h"

#include <string.h>

/* ---- group list ---- */

static const struct column list_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "its name"},
    {"brokers", COLUMN_NUMBER, "BROKERS", "how many brokers know it"},
    {"enabled", COLUMN_BOOL, "ENABLED", "whether it may consume, on all of them"},
    {"retry_max", COLUMN_NUMBER, "RETRIES", "how often a message is tried again"},
    {"orderly", COLUMN_BOOL, "ORDERLY", "whether it consumes in order"},
    {"broadcast", COLUMN_BOOL, NULL, "whether it may consume as broadcast"},
    {"clients", COLUMN_NUMBER, "CLIENTS", "with --long: consumers that are connected",
     .optional = true},
    {"topics", COLUMN_NUMBER, "TOPICS", "with --long: topics that it has offsets in",
     .optional = true},
    {"lag", COLUMN_NUMBER, "LAG", "with --long: messages that it has not consumed",
     .optional = true},
    {"rate", COLUMN_REAL, "OUT/S", "with --long: messages a second", .optional = true},
    {NULL},
};

static const struct opt list_options[] = {
    {"all", OPT_SWITCH, NULL, "also those that brokers make for themselves", .letter = 'a'},
    {"long", OPT_SWITCH, NULL, "also clients, topics, lag and rate of each", .letter = 'l'},
    {"cluster", OPT_TEXT, "NAME", "only of this cluster"},
    {"broker", OPT_TEXT, "NAME", "only of this broker: its name or host:port", .many = true},
    {NULL},
};

static size_t topics_count(const struct admin_consume_stats *stats)
{
    size_t n = 0;
    for (size_t i = 0; i < stats->n; i++)
        n += i == 0 || strcmp(stats->queues[i].topic, stats->queues[i - 1].topic) != 0;
    return n;
}

/* The settings of one group on n brokers. */
static void list_row(struct cli *cli, const struct admin_group *groups, size_t n,
                     const struct admin_consume_stats *stats,
                     const struct admin_consumers *consumers)
{
    bool enabled = true;
    for (size_t i = 0; i < n; i++)
        enabled = enabled && groups[i].set.consume_enable;
    row_begin(cli);
    put_text(cli, "group", groups[0].group);
    put_number(cli, "brokers", (int64_t)n);
    put_bool(cli, "enabled", enabled);
    put_number(cli, "retry_max", groups[0].set.retry_max);
    put_bool(cli, "orderly", groups[0].set.orderly);
    put_bool(cli, "broadcast", groups[0].set.broadcast_enable);
    if (stats) {
        put_number(cli, "clients", (int64_t)consumers->n);
        put_number(cli, "topics", (int64_t)topics_count(stats));
        put_number(cli, "lag", stats->lag);
        put_real(cli, "rate", stats->tps);
    }
    row_end(cli);
}

static int group_list(struct cli *cli)
{
    struct admin_cluster on;
    struct admin_group *groups;
    struct admin_consume_stats *stats = NULL;
    struct admin_consumers *consumers = NULL;
    size_t n, n_names = 0;
    int status = admin_chosen(cli, &on);
    if (!status)
        status = admin_groups(cli, &on, &groups, &n);
    if (admin_none(status))
        return status;
    const char **names = admin_alloc(cli, n, sizeof *names);
    size_t *first = admin_alloc(cli, n, sizeof *first);
    for (size_t i = 0; i < n; i++)
        if ((i == 0 || strcmp(groups[i].group, groups[i - 1].group) != 0) &&
            (arg_has(cli, "all") || !admin_group_is_system(groups[i].group))) {
            first[n_names] = i;
            names[n_names++] = groups[i].group;
        }
    if (arg_has(cli, "long"))
        status = admin_join(status, admin_consume_stats(cli, &on, names, n_names, NULL, &stats));
    if (stats && !admin_none(status))
        status = admin_join(status, admin_consumers(cli, &on, names, n_names, &consumers));
    if (admin_none(status))
        return status;
    for (size_t i = 0; i < n_names; i++) {
        size_t end = first[i];
        while (end < n && strcmp(groups[end].group, names[i]) == 0)
            end++;
        list_row(cli, groups + first[i], end - first[i], stats ? &stats[i] : NULL,
                 consumers ? &consumers[i] : NULL);
    }
    return status;
}

/* ---- group show ---- */

void group_settings_put(struct cli *cli, const struct group_settings *set)
{
    put_bool(cli, "enabled", set->consume_enable);
    put_number(cli, "retry_max", set->retry_max);
    put_number(cli, "retry_queues", set->retry_queues);
    put_bool(cli, "orderly", set->orderly);
    put_bool(cli, "broadcast", set->broadcast_enable);
    put_bool(cli, "from_min", set->from_min_enable);
    put_number(cli, "consume_timeout", (int64_t)set->consume_timeout_min * 60000);
}

static const struct column broker_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "where"},
    GROUP_SETTINGS_COLUMNS,
    {NULL},
};

static const struct column client_columns[] = {
    {"client", COLUMN_TEXT, "CLIENT", "its id"},
    {"address", COLUMN_TEXT, "ADDRESS", "where it is connected from"},
    {"language", COLUMN_TEXT, "LANGUAGE", "of its library"},
    {"version", COLUMN_TEXT, "VERSION", "of its library"},
    {NULL},
};

static const struct column subscription_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "what it reads"},
    {"expression", COLUMN_TEXT, "FILTER", "which messages of it"},
    {"type", COLUMN_TEXT, "TYPE", "TAG or SQL92"},
    {NULL},
};

static const struct column queue_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its topic"},
    {"broker", COLUMN_TEXT, "BROKER", "its broker"},
    {"queue", COLUMN_NUMBER, "QUEUE", "its number"},
    {"offset", COLUMN_NUMBER, "OFFSET", "the next message to consume"},
    {"end", COLUMN_NUMBER, "END", "the offset that the next message will have"},
    {"lag", COLUMN_NUMBER, "LAG", "messages in between"},
    {"last", COLUMN_TIME, "LAST", "when the last message that was consumed was stored"},
    {NULL},
};

static const struct column show_columns[] = {
    {"group", COLUMN_TEXT, "Group", "its name"},
    {"clients_online", COLUMN_NUMBER, "Clients", "how many consumers are connected"},
    {"model", COLUMN_TEXT, "Model", "CLUSTERING or BROADCASTING; null while nobody is connected"},
    {"consume_type", COLUMN_TEXT, "Consumes", "CONSUME_PASSIVELY, CONSUME_ACTIVELY or CONSUME_POP"},
    {"from", COLUMN_TEXT, "Begins", "where a new group begins"},
    {"lag", COLUMN_NUMBER, "Lag", "messages that it has not consumed"},
    {"rate", COLUMN_REAL, "Out/s", "messages a second, of the last minute"},
    {"dead", COLUMN_NUMBER, "Dead letters", "messages in its %DLQ% topic"},
    {"brokers", COLUMN_LIST, "Brokers", "its settings on each broker", broker_columns},
    {"clients", COLUMN_LIST, "Clients", "who is connected", client_columns},
    {"subscriptions", COLUMN_LIST, "Subscriptions", "what they read", subscription_columns},
    {"queues", COLUMN_LIST, "Queues", "how far it is", queue_columns},
    {NULL},
};

static void show_brokers(struct cli *cli, const struct admin_group *groups, size_t n)
{
    list_open(cli, "brokers");
    for (size_t i = 0; i < n; i++) {
        row_begin(cli);
        put_text(cli, "broker", groups[i].broker);
        group_settings_put(cli, &groups[i].set);
        row_end(cli);
    }
    list_close(cli);
}

static void show_clients(struct cli *cli, const struct admin_consumers *c)
{
    list_open(cli, "clients");
    for (size_t i = 0; i < c->n; i++) {
        row_begin(cli);
        put_text(cli, "client", c->clients[i].id);
        put_text(cli, "address", c->clients[i].address);
        put_text(cli, "language", c->clients[i].language);
        put_text(cli, "version", admin_version(cli, c->clients[i].version));
        row_end(cli);
    }
    list_close(cli);
    list_open(cli, "subscriptions");
    for (size_t i = 0; i < c->n_subscriptions; i++) {
        row_begin(cli);
        put_text(cli, "topic", c->subscriptions[i].topic);
        put_text(cli, "expression", c->subscriptions[i].expression);
        put_text(cli, "type", c->subscriptions[i].type);
        row_end(cli);
    }
    list_close(cli);
}

static void show_queues(struct cli *cli, const struct admin_consume_stats *stats)
{
    list_open(cli, "queues");
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_progress *p = &stats->queues[i];
        row_begin(cli);
        put_text(cli, "topic", p->topic);
        put_text(cli, "broker", p->broker);
        put_number(cli, "queue", p->queue);
        put_number(cli, "offset", p->offset);
        put_number(cli, "end", p->end);
        put_number(cli, "lag", p->lag);
        if (p->last_ms > 0)
            put_number(cli, "last", p->last_ms);
        row_end(cli);
    }
    list_close(cli);
}

static void show_row(struct cli *cli, const char *group, const struct admin_consumers *consumers,
                     const struct admin_consume_stats *stats, const struct admin_topic_stats *dead)
{
    put_text(cli, "group", group);
    put_number(cli, "clients_online", (int64_t)consumers->n);
    if (consumers->n > 0) {
        put_text(cli, "model", consumers->model);
        put_text(cli, "consume_type", consumers->consume_type);
        put_text(cli, "from", consumers->from);
    }
    put_number(cli, "lag", stats->lag);
    put_real(cli, "rate", stats->tps);
    put_number(cli, "dead", dead->messages);
}

static int group_show(struct cli *cli)
{
    const char *group = arg_at(cli, 0), *dlq = admin_format(cli, "%%DLQ%%%s", group);
    struct admin_cluster on;
    struct admin_group *groups;
    struct admin_consume_stats *stats;
    struct admin_consumers *consumers;
    struct admin_topic_stats *dead;
    size_t n = 0;
    int status = admin_group_check(cli, group);
    if (!status)
        status = admin_cluster(cli, &on);
    if (!status)
        status = admin_group_config(cli, &on, group, &groups, &n);
    if (!admin_none(status))
        status = admin_join(status, admin_consumers(cli, &on, &group, 1, &consumers));
    if (!admin_none(status) && n == 0 && consumers->n == 0)
        return admin_group_missing(cli, &on, group);
    if (!admin_none(status))
        status = admin_join(status, admin_consume_stats(cli, &on, &group, 1, NULL, &stats));
    if (!admin_none(status))
        status = admin_join(status, admin_topic_stats(cli, &on, &dlq, 1, &dead));
    if (admin_none(status))
        return status;
    row_begin(cli);
    show_row(cli, group, consumers, stats, dead);
    show_brokers(cli, groups, n);
    show_clients(cli, consumers);
    show_queues(cli, stats);
    row_end(cli);
    return status;
}

/* ---- the table ---- */

const struct command group_commands[] = {
    {
        .name = "group list",
        .summary = "the groups of consumers that brokers know",
        .text = "Asks each broker once. --long asks each broker about each group.",
        .examples = "oncemq group list --long",
        .options = list_options,
        .shape = SHAPE_LIST,
        .columns = list_columns,
        .run = group_list,
    },
    {
        .name = "group show",
        .arguments = "GROUP",
        .summary = "one group: its settings, consumers, subscriptions and progress",
        .examples = "oncemq group show billing",
        .shape = SHAPE_ONE,
        .columns = show_columns,
        .run = group_show,
    },
    {
        .name = "group set",
        .arguments = "GROUP",
        .summary = "make a group, or change its settings",
        .text =
            "On all brokers, or on those that --cluster and --broker name. What no option speaks "
            "of stays "
            "as it is, or is the default where the group is new. RESULT says what was done on each "
            "broker: created, changed or unchanged.",
        .examples = "oncemq group set billing --retry-max 5\n"
                    "oncemq group set billing --enable no",
        .options = group_set_options,
        .shape = SHAPE_LIST,
        .columns = group_set_columns,
        .run = group_set,
    },
    {
        .name = "group delete",
        .arguments = "GROUP…",
        .summary = "delete groups with their offsets",
        .text = "Asks first, and says whether consumers are connected: these would make the group "
                "anew.",
        .examples = "oncemq group delete billing",
        .options = group_delete_options,
        .shape = SHAPE_LIST,
        .columns = group_delete_columns,
        .run = group_delete,
    },
    {
        .name = "group reset",
        .arguments = "GROUP",
        .summary = "let a group consume again, or skip, from some place on",
        .text = "Moves the group's offsets in the topics that --topic names, or in all that it has "
                "offsets in but "
                "its retry topic. WHERE is earliest (the first message there is), latest (behind "
                "the last "
                "one), a time (the first message stored then or later) or offset:N.\n\n"
                "Consumers that are connected are told and go on from there; a group without any "
                "finds the new "
                "offsets when it comes. --dry-run shows each queue's old and new offset and "
                "changes nothing; "
                "without it the same is asked about before anything is done.",
        .examples = "oncemq group reset billing --to -1h --dry-run\n"
                    "oncemq group reset billing --topic orders --to earliest\n"
                    "oncemq group reset billing --topic orders --broker broker-a --queue 3 --to "
                    "offset:1200",
        .options = group_reset_options,
        .shape = SHAPE_LIST,
        .columns = group_reset_columns,
        .run = group_reset,
    },
    {NULL},
};
