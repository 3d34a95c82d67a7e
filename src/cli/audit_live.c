/* audit_live.c - the messages and the ledger of brokers that run. */
#include "cli/admin.h"
#include "cli/audit_int.h"
#include "cli/scan.h"

#include <string.h>

/* ---- messages ---- */

static struct audit_message message_of(const struct omq_delivery *d)
{
    return (struct audit_message){
        .id = bytes_str(d->id),
        .keys = bytes_str(d->keys),
        .body = bytes_of(d->body, d->body_size),
        .resent = omq_delivery_property(d, "ONCEMQ_DEAD_LETTER") != NULL,
        .place = d->offset,
    };
}

static int scan_range(struct scan *scan)
{
    struct cli *cli = scan->cli;
    int status = STATUS_OK;
    if (arg_has(cli, "from"))
        status = scan_begin_at(scan, arg_number(cli, "from", 0));
    if (!status && arg_has(cli, "to"))
        status = scan_end_at(scan, arg_number(cli, "to", 0));
    return status;
}

static int topic_read(struct audit *a, const char *name)
{
    struct audit_topic *topic = audit_topic(a, bytes_str(name));
    struct scan scan = {0};
    int status = topic ? scan_open(&scan, a->cli, name) : STATUS_FAILED;
    if (!status)
        status = scan_range(&scan);
    uint32_t *lanes = admin_alloc(a->cli, scan.n + 1, sizeof *lanes);
    for (size_t i = 0; !status && i < scan.n; i++)
        status =
            audit_lane(a, topic, scan.queues[i].queue.broker, scan.queues[i].queue.id, &lanes[i]);
    struct progress progress;
    progress_begin(&progress, a->cli, admin_format(a->cli, "reading %s", name), scan_left(&scan));
    uint64_t done = 0;
    const struct omq_delivery *d = NULL;
    struct scan_queue *q;
    while (!status && !(status = scan_next(&scan, &d, &q)) && d && !cli_stopped(a->cli)) {
        struct audit_message m = message_of(d);
        status = audit_see(a, lanes[q - scan.queues], &m);
        progress_move(&progress, ++done);
    }
    progress_end(&progress);
    scan_close(&scan);
    return status;
}

/* ---- the ledger ---- */

static int ledger_read(struct audit *a)
{
    struct admin_route route;
    struct omq_error why;
    if (admin_route_try(a->cli, LEDGER_TOPIC, &route, &why)) /* Apache's brokers have none */
        return STATUS_OK;
    struct scan scan;
    int status = scan_open(&scan, a->cli, LEDGER_TOPIC);
    if (!status)
        status = scan_range(&scan);
    struct progress progress;
    progress_begin(&progress, a->cli, "reading the ledger", scan_left(&scan));
    uint64_t done = 0;
    const struct omq_delivery *d = NULL;
    a->ledger = true;
    while (!status && !(status = scan_next(&scan, &d, NULL)) && d && !cli_stopped(a->cli)) {
        status = audit_record(a, bytes_of(d->body, d->body_size));
        progress_move(&progress, ++done);
    }
    progress_end(&progress);
    scan_close(&scan);
    return status;
}

/* ---- what brokers have refused ---- */

static int refused_read(struct audit *a, const struct admin_cluster *cluster)
{
    struct admin_node *nodes;
    size_t n;
    int status = admin_runtime(a->cli, cluster, false, false, &nodes, &n);
    for (size_t i = 0; !admin_none(status) && i < n; i++) {
        int64_t refused = admin_value_number(&nodes[i], "duplicatesRefused", -1);
        if (refused >= 0)
            a->refused = admin_sum(a->refused < 0 ? 0 : a->refused, refused);
    }
    return status;
}

int audit_live(struct audit *a)
{
    struct cli *cli = a->cli;
    struct admin_cluster cluster;
    struct admin_names topics = {0};
    int status = admin_cluster(cli, &cluster);
    if (!admin_none(status))
        status = admin_join(status, refused_read(a, &cluster));
    if (!admin_none(status) && arg_count(cli) == 0)
        status = admin_join(status, admin_topics(cli, &topics));
    if (admin_none(status))
        return status;
    for (size_t i = 0; arg_at(cli, i) && !admin_none(status); i++)
        status = admin_join(status, topic_read(a, arg_at(cli, i)));
    for (size_t i = 0; i < topics.n && !admin_none(status) && !cli_stopped(cli); i++)
        if (!admin_topic_is_system(&cluster, topics.names[i]))
            status = admin_join(status, topic_read(a, topics.names[i]));
    return admin_none(status) ? status : admin_join(status, ledger_read(a));
}

int audit_live_show(struct audit *a, const struct audit_lane *lane, int64_t place, audit_put *put)
{
    int status;
    struct omq_client *client = cli_client(a->cli, &status);
    struct omq_read read = {
        .queue = {lane->topic->name, lane->broker, lane->queue}, .offset = place, .max = 1};
    struct omq_found found = {0};
    struct omq_error why;
    int64_t next;
    if (!client || omq_read(client, &read, &found, &next, &why))
        return STATUS_NOT_FOUND; /* it was there; an example less is no failure */
    bool there = found.n > 0 && found.messages[0]->offset == place;
    if (there) {
        const struct omq_delivery *d = found.messages[0];
        put(a->cli, bytes_str(d->id), bytes_str(d->keys), d->stored_ms, lane->queue, place);
    }
    omq_found_free(&found);
    return there ? STATUS_OK : STATUS_NOT_FOUND;
}
