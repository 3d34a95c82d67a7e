/* cluster.c - the cluster at a glance: name servers and brokers, who answers and how they are. */
#include "cli/broker_int.h"

#include <string.h>

static const struct column server_columns[] = {
    {"address", COLUMN_TEXT, "ADDRESS", "host:port"},
    {"state", COLUMN_STATE, "STATE",
     "bad: it does not answer; warn: it knows other brokers than the others"},
    {"brokers", COLUMN_NUMBER, "BROKERS", "how many brokers it knows"},
    {"error", COLUMN_TEXT, "ERROR", "why it does not answer", .optional = true},
    {NULL},
};

static const struct column broker_columns[] = {
    {"cluster", COLUMN_TEXT, "CLUSTER", "its cluster"},
    {"broker", COLUMN_TEXT, "BROKER", "its name"},
    {"id", COLUMN_NUMBER, "ID", "0: the master; others are slaves"},
    {"address", COLUMN_TEXT, "ADDRESS", "host:port"},
    {"state", COLUMN_STATE, "STATE", "bad: it does not answer, or there is no master"},
    {"version", COLUMN_TEXT, "VERSION", "its version, as it says"},
    {"up", COLUMN_DURATION, "UP", "since when it runs"},
    {"in", COLUMN_REAL, "IN/S", "messages a second that it stores, of the last ten seconds"},
    {"out", COLUMN_REAL, "OUT/S", "messages a second that it hands out, of the last ten seconds"},
    {"in_today", COLUMN_NUMBER, NULL, "messages that it has stored since midnight"},
    {"out_today", COLUMN_NUMBER, NULL, "messages that it has handed out since midnight"},
    {"disk", COLUMN_REAL, "DISK %", "how full the disk of its log is"},
    {"error", COLUMN_TEXT, "ERROR", "why it does not answer", .optional = true},
    {NULL},
};

static const struct column columns[] = {
    {"name_servers", COLUMN_LIST, "Name servers", "those that were given", server_columns},
    {"brokers", COLUMN_LIST, "Brokers", "masters and slaves that they know", broker_columns},
    {NULL},
};

static bool knows_same(const struct admin_cluster *a, const struct admin_cluster *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->brokers[i].name, b->brokers[i].name) == 0 &&
               a->brokers[i].n_addresses == b->brokers[i].n_addresses;
    return same;
}

/* All brokers that any of them knows. The status of the whole: PARTLY if one is silent. */
static int servers_join(struct cli *cli, const struct admin_name_server *servers, size_t n,
                        struct admin_cluster *all)
{
    size_t max = 0, silent = 0;
    for (size_t i = 0; i < n; i++) {
        max += servers[i].knows.n;
        silent += servers[i].code != OMQ_OK;
    }
    *all = (struct admin_cluster){admin_alloc(cli, max, sizeof *all->brokers), 0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < servers[i].knows.n; k++)
            if (!admin_broker_find(all, servers[i].knows.brokers[k].name))
                all->brokers[all->n++] = servers[i].knows.brokers[k];
    if (silent == n)
        return cli_fail_omq(cli, &servers[0].why, NULL);
    return silent > 0 ? STATUS_PARTLY : STATUS_OK;
}

static void servers_show(struct cli *cli, const struct admin_name_server *servers, size_t n)
{
    const struct admin_name_server *first = NULL;
    list_open(cli, "name_servers");
    for (size_t i = 0; i < n; i++) {
        const struct admin_name_server *s = &servers[i];
        bool answers = s->code == OMQ_OK;
        if (answers && !first)
            first = s;
        row_begin(cli);
        put_text(cli, "address", s->address);
        put_text(cli, "state",
                 !answers                               ? "bad"
                 : knows_same(&first->knows, &s->knows) ? "ok"
                                                        : "warn");
        if (answers)
            put_number(cli, "brokers", (int64_t)s->knows.n);
        else
            put_text(cli, "error", s->why.text);
        row_end(cli);
    }
    list_close(cli);
}

static void today_put(struct cli *cli, const char *column, const struct admin_node *node,
                      const char *now, const char *morning)
{
    int64_t n = admin_value_number(node, now, -1), m = admin_value_number(node, morning, 0);
    if (n >= 0 && m >= 0 && n >= m)
        put_number(cli, column, n - m);
}

static void broker_row(struct cli *cli, const struct admin_node *node)
{
    row_begin(cli);
    put_text(cli, "cluster", node->broker->cluster);
    put_text(cli, "broker", node->broker->name);
    put_number(cli, "id", node->id);
    put_text(cli, "address", node->address);
    put_text(cli, "state", node->n > 0 && node->broker->master ? "ok" : "bad");
    if (node->n > 0) {
        int64_t booted = admin_value_number(node, "bootTimestamp", 0), now = now_ms();
        put_text(cli, "version", admin_value(node, "brokerVersionDesc", NULL));
        if (booted > 0 && booted <= now)
            put_number(cli, "up", now - booted);
        put_real(cli, "in", admin_value_real(node, "putTps", 0));
        put_real(cli, "out",
                 admin_value_real(node, "getTransferredTps",
                                  admin_value_real(node, "getTransferedTps", 0)));
        today_put(cli, "in_today", node, "msgPutTotalTodayNow", "msgPutTotalTodayMorning");
        today_put(cli, "out_today", node, "msgGetTotalTodayNow", "msgGetTotalTodayMorning");
        double full = admin_value_real(node, "commitLogDiskRatio", -1);
        if (full >= 0 && full <= 1)
            put_real(cli, "disk", (double)(int64_t)(full * 10000 + 0.5) / 100);
    } else
        put_text(cli, "error", *node->why.text ? node->why.text : "its answer has nothing in it");
    row_end(cli);
}

static int cluster(struct cli *cli)
{
    struct admin_name_server *servers;
    struct admin_cluster all;
    struct admin_node *nodes;
    size_t n, n_nodes;
    int status = admin_name_servers_ask(cli, &servers, &n);
    if (!status)
        status = servers_join(cli, servers, n, &all);
    if (admin_none(status))
        return status;
    status = admin_join(status, admin_runtime(cli, &all, true, true, &nodes, &n_nodes));
    if (admin_none(status))
        return status;
    row_begin(cli);
    servers_show(cli, servers, n);
    list_open(cli, "brokers");
    for (size_t i = 0; i < n_nodes; i++) {
        broker_row(cli, &nodes[i]);
        if (nodes[i].n == 0)
            status = STATUS_PARTLY;
    }
    list_close(cli);
    row_end(cli);
    if (all.n == 0)
        cli_note(cli, "no broker has registered with the name servers");
    return status;
}

const struct command cluster_commands[] = {
    {
        .name = "cluster",
        .summary = "name servers and brokers: who answers, versions, rates, disks",
        .text = "Each name server is asked, and each broker that one of them knows, slaves too. "
                "Status 5 "
                "when one does not answer.",
        .examples = "oncemq cluster -n 'ns1:9876;ns2:9876'",
        .shape = SHAPE_ONE,
        .columns = columns,
        .run = cluster,
    },
    {
        .name = "broker config",
        .arguments = "[NAME[=VALUE]…]",
        .summary = "show or change settings of brokers while they run",
        .text = "Without arguments all settings; with names these; with NAME=VALUE they are "
                "changed, after a "
                "question, on the masters that --broker and --cluster name, or on all. A name that "
                "the broker does "
                "not have is refused: Apache's broker would take it and do nothing. What was "
                "changed is read "
                "again, and WAS is what it was before.",
        .examples = "oncemq broker config --broker broker-a\n"
                    "oncemq broker config fileReservedTime deleteWhen\n"
                    "oncemq broker config fileReservedTime=48",
        .options = broker_config_options,
        .shape = SHAPE_LIST,
        .columns = broker_config_columns,
        .run = broker_config,
    },
    {NULL},
};
