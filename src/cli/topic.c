/* topic.c - topics: what there is. */
#include "cli/topic_int.h"

#include <string.h>

const char *topic_type(struct cli *cli, const struct admin_topic *topic)
{
    const char *type = admin_attribute(cli, topic, "message.type");
    return *type ? type : "NORMAL"; /* what Apache's broker takes it for */
}

void topic_attributes_put(struct cli *cli, const struct admin_topic *topic)
{
    json_each(node, topic->attributes)
        put_entry(cli, "attributes", json_text(node->key, BYTES("")), json_text(node, BYTES("")));
}

/* ---- topic list ---- */

static const struct column list_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its name"},
    {"type", COLUMN_TEXT, "TYPE", "what it is for: NORMAL, FIFO, DELAY, TRANSACTION, MIXED"},
    {"perm", COLUMN_TEXT, "PERM", "r: may be read, w: may be written, on any broker"},
    {"write_queues", COLUMN_NUMBER, "QUEUES", "queues that are written, of all brokers"},
    {"read_queues", COLUMN_NUMBER, NULL, "queues that are read, of all brokers"},
    {"brokers", COLUMN_NUMBER, "BROKERS", "how many brokers have it"},
    {"messages", COLUMN_NUMBER, "MESSAGES", "with --long: how many are stored", .optional = true},
    {"rate", COLUMN_REAL, "IN/S", "with --long: messages a second", .optional = true},
    {"last", COLUMN_TIME, "LAST", "with --long: when the newest was stored", .optional = true},
    {"groups", COLUMN_NUMBER, "GROUPS", "with --long: how many groups read it", .optional = true},
    {NULL},
};

static const struct opt list_options[] = {
    {"all", OPT_SWITCH, NULL, "also the system's own, retry topics and dead letters",
     .letter = 'a'},
    {"long", OPT_SWITCH, NULL, "also messages, rate, last message and groups of each",
     .letter = 'l'},
    {"cluster", OPT_TEXT, "NAME", "only of this cluster"},
    {"broker", OPT_TEXT, "NAME", "only of this broker: its name or host:port", .many = true},
    {NULL},
};

struct list {
    struct admin_names names; /* to be shown */
    struct admin_topic *configs;
    size_t n_configs;
    struct admin_topic_stats *stats; /* of each name; NULL: without --long */
    struct admin_names *groups;
};

/* Those of the brokers, and those that only the name servers know of, if nothing was chosen. */
static int list_names(struct cli *cli, const struct admin_cluster *on, struct list *list)
{
    struct admin_names known = {0};
    if (!arg_has(cli, "broker") && !arg_has(cli, "cluster")) {
        int status = admin_topics(cli, &known);
        if (status)
            return status;
    }
    const char **names = admin_alloc(cli, known.n + list->n_configs, sizeof *names);
    size_t n = 0, a = 0, b = 0;
    while (a < known.n || b < list->n_configs) {
        int order = a == known.n           ? 1
                    : b == list->n_configs ? -1
                                           : strcmp(known.names[a], list->configs[b].topic);
        const char *name = order <= 0 ? known.names[a++] : list->configs[b].topic;
        while (b < list->n_configs && strcmp(list->configs[b].topic, name) == 0)
            b++;
        if (*name && (arg_has(cli, "all") || !admin_topic_is_system(on, name)))
            names[n++] = name;
    }
    list->names = (struct admin_names){names, n};
    return STATUS_OK;
}

static void config_row(struct cli *cli, const struct admin_topic *configs, size_t n)
{
    if (n == 0)
        return;
    int64_t read = 0, write = 0;
    int32_t perm = 0;
    for (size_t i = 0; i < n; i++) {
        read += configs[i].read_queues;
        write += configs[i].write_queues;
        perm |= configs[i].perm;
    }
    put_text(cli, "type", topic_type(cli, &configs[0]));
    put_text(cli, "perm", admin_perm_text(perm));
    put_number(cli, "write_queues", write);
    put_number(cli, "read_queues", read);
    put_number(cli, "brokers", (int64_t)n);
}

static void list_show(struct cli *cli, const struct list *list)
{
    size_t at = 0;
    for (size_t i = 0; i < list->names.n; i++) {
        const char *name = list->names.names[i];
        while (at < list->n_configs && strcmp(list->configs[at].topic, name) < 0)
            at++;
        size_t end = at;
        while (end < list->n_configs && strcmp(list->configs[end].topic, name) == 0)
            end++;
        row_begin(cli);
        put_text(cli, "topic", name);
        config_row(cli, list->configs + at, end - at);
        if (list->stats) {
            put_number(cli, "messages", list->stats[i].messages);
            put_real(cli, "rate", list->stats[i].put_tps);
            if (list->stats[i].last_ms > 0)
                put_number(cli, "last", list->stats[i].last_ms);
            put_number(cli, "groups", (int64_t)list->groups[i].n);
        }
        row_end(cli);
        at = end;
    }
}

static int topic_list(struct cli *cli)
{
    struct admin_cluster on;
    struct list list = {0};
    int status = admin_chosen(cli, &on);
    if (!status)
        status = admin_topic_configs(cli, &on, &list.configs, &list.n_configs);
    if (!admin_none(status))
        status = admin_join(status, list_names(cli, &on, &list));
    if (admin_none(status))
        return status;
    const char *const *names = list.names.names;
    if (arg_has(cli, "long"))
        status = admin_join(status, admin_topic_stats(cli, &on, names, list.names.n, &list.stats));
    if (arg_has(cli, "long") && !admin_none(status))
        status =
            admin_join(status, admin_topic_groups(cli, &on, names, list.names.n, &list.groups));
    if (!admin_none(status))
        list_show(cli, &list);
    return status;
}

/* ---- topic show ---- */

static const struct column broker_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "its name"},
    {"cluster", COLUMN_TEXT, "CLUSTER", "the cluster it belongs to"},
    {"address", COLUMN_TEXT, "ADDRESS", "host:port of its master"},
    {"write_queues", COLUMN_NUMBER, "WRITE", "queues that are written"},
    {"read_queues", COLUMN_NUMBER, "READ", "queues that are read"},
    {"perm", COLUMN_TEXT, "PERM", "r: may be read, w: may be written"},
    {"order", COLUMN_BOOL, "ORDER", "whether its queues are for ordered messages"},
    {NULL},
};

static const struct column queue_columns[] = {
    {"broker", COLUMN_TEXT, "BROKER", "its broker"},
    {"queue", COLUMN_NUMBER, "QUEUE", "its number"},
    {"min", COLUMN_NUMBER, "FIRST", "offset of its first message"},
    {"max", COLUMN_NUMBER, "END", "offset that the next message will have"},
    {"messages", COLUMN_NUMBER, "MESSAGES", "how many are stored"},
    {"last", COLUMN_TIME, "LAST", "when the newest was stored"},
    {NULL},
};

static const struct column group_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "a group that reads it, or did"},
    {"clients", COLUMN_NUMBER, "CLIENTS", "how many consumers are connected"},
    {"lag", COLUMN_NUMBER, "LAG", "messages of this topic that it has not consumed"},
    {NULL},
};

static const struct column show_columns[] = {
    {"topic", COLUMN_TEXT, "Topic", "its name"},
    {"type", COLUMN_TEXT, "Type", "what it is for: NORMAL, FIFO, DELAY, TRANSACTION, MIXED"},
    {"messages", COLUMN_NUMBER, "Messages", "how many are stored"},
    {"rate", COLUMN_REAL, "In/s", "messages a second, of the last minute"},
    {"last", COLUMN_TIME, "Last", "when the newest was stored"},
    {"attributes", COLUMN_MAP, "Attributes", "its attributes"},
    {"brokers", COLUMN_LIST, "Brokers", "who has it", broker_columns},
    {"queues", COLUMN_LIST, "Queues", "all of them", queue_columns},
    {"groups", COLUMN_LIST, "Groups", "who reads it", group_columns},
    {NULL},
};

static void show_brokers(struct cli *cli, const struct admin_cluster *on,
                         const struct admin_topic *configs, size_t n)
{
    list_open(cli, "brokers");
    for (size_t i = 0; i < n; i++) {
        const struct admin_broker *broker = admin_broker_find(on, configs[i].broker);
        row_begin(cli);
        put_text(cli, "broker", configs[i].broker);
        put_text(cli, "cluster", broker ? broker->cluster : NULL);
        put_text(cli, "address", broker ? broker->master : NULL);
        put_number(cli, "write_queues", configs[i].write_queues);
        put_number(cli, "read_queues", configs[i].read_queues);
        put_text(cli, "perm", admin_perm_text(configs[i].perm));
        put_bool(cli, "order", configs[i].order);
        row_end(cli);
    }
    list_close(cli);
}

static void show_queues(struct cli *cli, const struct admin_topic_stats *stats)
{
    list_open(cli, "queues");
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_queue_stats *q = &stats->queues[i];
        row_begin(cli);
        put_text(cli, "broker", q->broker);
        put_number(cli, "queue", q->queue);
        put_number(cli, "min", q->min);
        put_number(cli, "max", q->max);
        put_number(cli, "messages", q->max - q->min);
        if (q->last_ms > 0)
            put_number(cli, "last", q->last_ms);
        row_end(cli);
    }
    list_close(cli);
}

static int show_groups(struct cli *cli, const struct admin_cluster *on, const char *topic)
{
    struct admin_names *groups;
    struct admin_consume_stats *progress = NULL;
    struct admin_consumers *consumers = NULL;
    int status = admin_topic_groups(cli, on, &topic, 1, &groups);
    if (admin_none(status))
        return status;
    const char *const *names = groups->names;
    status = admin_join(status, admin_consume_stats(cli, on, names, groups->n, topic, &progress));
    if (!admin_none(status))
        status = admin_join(status, admin_consumers(cli, on, names, groups->n, &consumers));
    if (admin_none(status))
        return status;
    list_open(cli, "groups");
    for (size_t i = 0; i < groups->n; i++) {
        row_begin(cli);
        put_text(cli, "group", names[i]);
        put_number(cli, "clients", (int64_t)consumers[i].n);
        put_number(cli, "lag", progress[i].lag);
        row_end(cli);
    }
    list_close(cli);
    return status;
}

static int topic_show(struct cli *cli)
{
    const char *topic = arg_at(cli, 0);
    struct admin_cluster on;
    struct admin_topic *configs;
    struct admin_topic_stats *stats;
    size_t n = 0;
    int status = admin_topic_check(cli, topic);
    if (!status)
        status = admin_cluster(cli, &on);
    if (!status)
        status = admin_topic_config(cli, &on, topic, &configs, &n);
    if (admin_none(status))
        return status;
    if (n == 0)
        return admin_topic_missing(cli, topic);
    status = admin_join(status, admin_topic_stats(cli, &on, &topic, 1, &stats));
    if (admin_none(status))
        return status;
    row_begin(cli);
    put_text(cli, "topic", topic);
    put_text(cli, "type", topic_type(cli, &configs[0]));
    put_number(cli, "messages", stats->messages);
    put_real(cli, "rate", stats->put_tps);
    if (stats->last_ms > 0)
        put_number(cli, "last", stats->last_ms);
    topic_attributes_put(cli, &configs[0]);
    show_brokers(cli, &on, configs, n);
    show_queues(cli, stats);
    status = admin_join(status, show_groups(cli, &on, topic));
    row_end(cli);
    return status;
}

/* ---- the table ---- */

const struct command topic_commands[] = {
    {
        .name = "topic list",
        .summary = "the topics of all brokers",
        .text = "Asks each broker once. --long asks each broker about each topic.",
        .examples = "oncemq topic list\noncemq topic list --long --json",
        .options = list_options,
        .shape = SHAPE_LIST,
        .columns = list_columns,
        .run = topic_list,
    },
    {
        .name = "topic show",
        .arguments = "TOPIC",
        .summary = "one topic: its brokers, queues and groups",
        .examples = "oncemq topic show orders",
        .shape = SHAPE_ONE,
        .columns = show_columns,
        .run = topic_show,
    },
    {
        .name = "topic create",
        .arguments = "TOPIC",
        .summary = "make a topic, or see to it that it is as wished",
        .text =
            "On all brokers of the cluster, or on those that --broker names. A topic that is there "
            "keeps "
            "what no option speaks of; one that is as wished already is left alone. RESULT says "
            "what was done on each broker: created, changed or unchanged. Returns when the name "
            "servers know it.\n\n"
            "Fewer queues to read than before ask for confirmation: what is in the others is not "
            "read any "
            "more.",
        .examples = "oncemq topic create orders --queues 16\n"
                    "oncemq topic create payments --type FIFO --dedup UNIQ_KEY",
        .options = topic_set_options,
        .shape = SHAPE_LIST,
        .columns = topic_set_columns,
        .run = topic_create,
    },
    {
        .name = "topic set",
        .arguments = "TOPIC",
        .summary = "change a topic, on the brokers that have it",
        .examples = "oncemq topic set orders --perm r\n"
                    "oncemq topic set orders --attribute +dedup.key=orderId\n"
                    "oncemq topic set orders --attribute -dedup.key",
        .options = topic_set_options,
        .shape = SHAPE_LIST,
        .columns = topic_set_columns,
        .run = topic_set,
    },
    {
        .name = "topic delete",
        .arguments = "TOPIC…",
        .summary = "delete topics with their messages",
        .text = "On the brokers first, then in the name servers. Asks first, and says how many "
                "messages and "
                "which groups are concerned.",
        .examples = "oncemq topic delete orders",
        .options = topic_delete_options,
        .shape = SHAPE_LIST,
        .columns = topic_delete_columns,
        .run = topic_delete,
    },
    {NULL},
};
