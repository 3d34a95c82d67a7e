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

/* Name servers may know one that no broker has any more. */
static bool is_named(struct cli *cli, const char *topic)
{
    struct admin_names names = {0};
    if (admin_topics(cli, &names))
        return false;
    for (size_t i = 0; i < names.n; i++)
        if (strcmp(names.names[i], topic) == 0)
            return true;
    return false;
}

static int topics_find(struct cli *cli, const struct admin_cluster *on, const char **topics,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct admin_topic *configs;
        size_t found = 0;
        topics[i] = arg_at(cli, i);
        int status = admin_topic_check(cli, topics[i]);
        if (!status && topic_is_system(bytes_str(topics[i])))
            status = cli_fail(cli, STATUS_USAGE, NULL, "%s is a topic of the system", topics[i]);
        if (!status)
            status = admin_whole(cli, admin_topic_config(cli, on, topics[i], &configs, &found));
        if (status)
            return status;
        if (found == 0 && !is_named(cli, topics[i]))
            return admin_topic_missing(cli, topics[i]);
    }
    return STATUS_OK;
}

static int delete_confirm(struct cli *cli, const struct admin_cluster *on,
                          const char *const *topics, size_t n)
{
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
        messages = admin_sum(messages, stats[i].messages);
        if (groups[i].n > 0)
            readers = admin_format(cli, "%s; %s is read by %s", readers, topics[i],
                                   admin_list_text(cli, groups[i].names, groups[i].n, NAMES_SHOWN));
    }
    return cli_confirm(cli, "delete %s%s with %lld messages%s?",
                       n == 1 ? "topic " : admin_format(cli, "%zu topics: ", n),
                       admin_list_text(cli, topics, n, NAMES_SHOWN), (long long)messages, readers);
}

static void result_put(struct cli *cli, const char *group, const char *topic,
                       const struct admin_ask *asks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row_begin(cli);
        if (group)
            put_text(cli, "group", group);
        put_text(cli, "topic", topic);
        put_text(cli, "server", asks[i].broker ? asks[i].broker : asks[i].server);
        put_text(cli, "result", asks[i].code ? "failed" : "deleted");
        row_end(cli);
    }
}

/* A broker that still had it would tell the name servers again, so these come last. */
int topic_forget(struct cli *cli, const struct admin_cluster *on, const char *group,
                 const char *topic)
{
    struct admin_names names = admin_name_servers(cli);
    struct admin_topic *configs;
    size_t n;
    int status = admin_topic_config(cli, on, topic, &configs, &n);
    if (status || (n == 0 && group)) /* a group may well have none */
        return status;
    struct admin_ask *asks = admin_alloc(cli, n + names.n, sizeof *asks);
    for (size_t i = 0; i < n; i++)
        asks[i] = (struct admin_ask){.server = admin_broker_find(on, configs[i].broker)->master,
                                     .broker = configs[i].broker,
                                     .request = REQ_DELETE_TOPIC_IN_BROKER,
                                     .fields = admin_fields(cli, ASK("topic", topic))};
    status = admin_ask_all(cli, asks, n);
    if (status)
        return status;
    result_put(cli, group, topic, asks, n);
    status = admin_verdict(cli, asks, n);
    if (status)
        return status;
    const char *cluster = arg_text(cli, "cluster", NULL);
    for (size_t i = 0; i < names.n; i++)
        asks[i] = (struct admin_ask){
            .server = names.names[i],
            .request = REQ_DELETE_TOPIC_IN_NAMESRV,
            .fields = admin_fields(cli, cluster ? ASK("topic", topic, "clusterName", cluster)
                                                : ASK("topic", topic))};
    status = admin_ask_all(cli, asks, names.n);
    if (status)
        return status;
    result_put(cli, group, topic, asks, names.n);
    return admin_verdict(cli, asks, names.n);
}

int topic_delete(struct cli *cli)
{
    struct admin_cluster on;
    size_t n = arg_count(cli), done = 0;
    const char **topics = admin_alloc(cli, n, sizeof *topics);
    int status = admin_chosen(cli, &on);
    if (!status)
        status = admin_masters(cli, &on);
    if (!status)
        status = topics_find(cli, &on, topics, n);
    if (!status)
        status = delete_confirm(cli, &on, topics, n);
    for (; !status && done < n; done++)
        status = topic_forget(cli, &on, NULL, topics[done]);
    return status && done > 1 ? STATUS_PARTLY : status;
}
