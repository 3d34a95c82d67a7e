/* topic_delete.c - deleting topics: on the brokers, then in every name server. */
#include "cli/topic_int.h"

#include "remoting/codes.h"

#define NAMES_SHOWN 5

const struct column topic_delete_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its name"},
    {"server", COLUMN_TEXT, "SERVER", "a broker's name, or a name server's address"},
    {"result", COLUMN_TEXT, "RESULT", "deleted or failed"},
    {NULL},
};

const struct opt topic_delete_options[] = {
    {"cluster", OPT_TEXT, "NAME", "only on the brokers of this cluster"},
    {NULL},
};

/* One topic: the brokers that have it. */
struct doomed {
    const char *topic;
    struct admin_topic *configs;
    size_t n;
};

static int doomed_find(struct cli *cli, const struct admin_cluster *on, struct doomed *list,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct doomed *d = &list[i];
        d->topic = arg_at(cli, i);
        int status = admin_topic_check(cli, d->topic);
        if (!status && topic_is_system(bytes_str(d->topic)))
            status = cli_fail(cli, STATUS_USAGE, NULL, "%s is a topic of the system", d->topic);
        if (!status)
            status = admin_whole(cli, admin_topic_config(cli, on, d->topic, &d->configs, &d->n));
        if (status)
            return status;
        if (d->n == 0)
            return admin_topic_missing(cli, d->topic);
    }
    return STATUS_OK;
}

static int delete_confirm(struct cli *cli, const struct admin_cluster *on,
                          const struct doomed *list, size_t n)
{
    const char **topics = admin_alloc(cli, n, sizeof *topics);
    for (size_t i = 0; i < n; i++)
        topics[i] = list[i].topic;
    struct admin_topic_stats *stats;
    struct admin_names *groups;
    int status = admin_whole(cli, admin_topic_stats(cli, on, topics, n, &stats));
    if (!status)
        status = admin_whole(cli, admin_topic_groups(cli, on, topics, n, &groups));
    if (status)
        return status;
    int64_t messages = 0;
    const char *readers = "";
    for (size_t i = 0; i < n; i++) {
        messages =
            stats[i].messages > INT64_MAX - messages ? INT64_MAX : messages + stats[i].messages;
        if (groups[i].n > 0)
            readers = admin_format(cli, "%s; %s is read by %s", readers, topics[i],
                                   admin_list_text(cli, groups[i].names, groups[i].n, NAMES_SHOWN));
    }
    return cli_confirm(cli, "delete %s%s with %lld messages%s?",
                       n == 1 ? "topic " : admin_format(cli, "%zu topics: ", n),
                       admin_list_text(cli, topics, n, NAMES_SHOWN), (long long)messages, readers);
}

static void result_put(struct cli *cli, const char *topic, const struct admin_ask *asks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row_begin(cli);
        put_text(cli, "topic", topic);
        put_text(cli, "server", asks[i].broker ? asks[i].broker : asks[i].server);
        put_text(cli, "result", asks[i].code ? "failed" : "deleted");
        row_end(cli);
    }
}

/* Asks all and tells how it went. */
static int all_delete(struct cli *cli, const char *topic, struct admin_ask *asks, size_t n)
{
    int status = admin_ask_all(cli, asks, n);
    if (status)
        return status;
    result_put(cli, topic, asks, n);
    return admin_verdict(cli, asks, n);
}

/* A broker that still has it would tell the name servers again. */
static int topic_forget(struct cli *cli, const struct admin_cluster *on, const struct doomed *d)
{
    struct admin_names names = admin_name_servers(cli);
    struct admin_ask *asks = admin_alloc(cli, d->n + names.n, sizeof *asks);
    const char *cluster = arg_text(cli, "cluster", NULL);
    for (size_t i = 0; i < d->n; i++) {
        const struct admin_broker *broker = admin_broker_find(on, d->configs[i].broker);
        asks[i] = (struct admin_ask){.server = admin_reader(broker),
                                     .broker = broker->name,
                                     .request = REQ_DELETE_TOPIC_IN_BROKER,
                                     .fields = admin_fields(cli, ASK("topic", d->topic))};
    }
    int status = all_delete(cli, d->topic, asks, d->n);
    if (status)
        return status;
    for (size_t i = 0; i < names.n; i++)
        asks[i] = (struct admin_ask){
            .server = names.names[i],
            .request = REQ_DELETE_TOPIC_IN_NAMESRV,
            .fields = admin_fields(cli, cluster ? ASK("topic", d->topic, "clusterName", cluster)
                                                : ASK("topic", d->topic))};
    return all_delete(cli, d->topic, asks, names.n);
}

int topic_delete(struct cli *cli)
{
    struct admin_cluster on;
    size_t n = arg_count(cli), done = 0;
    struct doomed *list = admin_alloc(cli, n, sizeof *list);
    int status = admin_chosen(cli, &on);
    if (!status)
        status = doomed_find(cli, &on, list, n);
    if (!status)
        status = delete_confirm(cli, &on, list, n);
    for (; !status && done < n; done++)
        status = topic_forget(cli, &on, &list[done]);
    return status && done > 1 ? STATUS_PARTLY : status;
}
