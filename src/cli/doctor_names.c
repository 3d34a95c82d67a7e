/* doctor_names.c - name servers: whether each answers, and whether all say the same.
 *
 * They know nothing of each other: every broker registers with each of them, so a broker that does
 * not reach one is there for some clients and gone for the others.
 */
#include "cli/doctor_int.h"
#include "remoting/codes.h"

#include <stdlib.h>

#define ROUTES_MAX 1000 /* topics whose routes are compared */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct admin_names names_take(struct cli *cli, const struct json *list)
{
    struct admin_names names = {admin_alloc(cli, list ? list->n : 0, sizeof *names.names), 0};
    json_each(node, list)
        names.names[names.n++] = admin_text(cli, node);
    if (names.n > 0)
        qsort(names.names, names.n, sizeof *names.names, by_text);
    return names;
}

static void servers_ask(struct doctor *d)
{
    struct cli *cli = d->cli;
    d->servers = admin_name_servers(cli);
    size_t n = d->servers.n;
    d->clusters = admin_alloc(cli, n, sizeof *d->clusters);
    d->topics = admin_alloc(cli, n, sizeof *d->topics);
    d->answers = admin_alloc(cli, n, sizeof *d->answers);
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    for (size_t i = 0; i < n; i++)
        asks[i] = (struct admin_ask){.server = d->servers.names[i],
                                     .request = REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER};
    if (admin_ask_all(cli, asks, n))
        return;
    for (size_t i = 0; i < n; i++) {
        struct omq_error why = asks[i].why;
        d->answers[i] = asks[i].code == OMQ_OK &&
                        admin_cluster_of(cli, d->servers.names[i], &d->clusters[i], &why) == OMQ_OK;
        if (d->answers[i])
            d->topics[i] = names_take(cli, json_member(asks[i].json, "topicList"));
        else
            wrong(d, HEALTH_BAD, d->servers.names[i],
                  "start it, or take it out of -n, ONCEMQ_NAMES and the settings of brokers and "
                  "clients",
                  "%s", why.text);
        d->n_answering += d->answers[i];
    }
}

/* ---- brokers ---- */

/* The brokers and addresses that any name server knows. */
static void clusters_join(struct doctor *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->servers.n; i++)
        n += d->clusters[i].n;
    d->all = (struct admin_cluster){admin_alloc(d->cli, n, sizeof *d->all.brokers), 0};
    for (size_t i = 0; i < d->servers.n; i++)
        for (size_t k = 0; k < d->clusters[i].n; k++)
            if (!admin_broker_find(&d->all, d->clusters[i].brokers[k].name))
                d->all.brokers[d->all.n++] = d->clusters[i].brokers[k];
}

static bool has_address(const struct admin_broker *broker, const struct admin_address *address)
{
    for (size_t i = 0; broker && i < broker->n_addresses; i++)
        if (broker->addresses[i].id == address->id &&
            strcmp(broker->addresses[i].address, address->address) == 0)
            return true;
    return false;
}

/* An address that server `i` knows: who of the others does not. Told once, for the first that knows
 * it. */
static void address_look(struct doctor *d, size_t i, const struct admin_broker *broker,
                         const struct admin_address *address)
{
    for (size_t k = 0; k < d->servers.n; k++) {
        bool known = !d->answers[k] ||
                     has_address(admin_broker_find(&d->clusters[k], broker->name), address);
        if (known && k < i && d->answers[k])
            return;
    }
    for (size_t k = 0; k < d->servers.n; k++)
        if (d->answers[k] &&
            !has_address(admin_broker_find(&d->clusters[k], broker->name), address))
            wrong(d, HEALTH_BAD, d->servers.names[k],
                  "name all name servers in namesrvAddr of the broker, and see whether it reaches "
                  "this one",
                  "the broker %s at %s is not registered here, but with %s it is", broker->name,
                  address->address, d->servers.names[i]);
}

static void registered_check(struct doctor *d)
{
    check_begin(d, "names.brokers");
    for (size_t i = 0; i < d->servers.n; i++)
        for (size_t b = 0; b < d->clusters[i].n; b++)
            for (size_t k = 0; k < d->clusters[i].brokers[b].n_addresses; k++)
                address_look(d, i, &d->clusters[i].brokers[b],
                             &d->clusters[i].brokers[b].addresses[k]);
    if (d->all.n == 0)
        wrong(d, HEALTH_BAD, NULL,
              "start oncemqd, or name the name servers in a broker's namesrvAddr",
              "no broker has registered");
    check_end(d, "all brokers (%zu) are registered with all name servers (%zu)", d->all.n,
              d->n_answering);
}

/* ---- topics and routes ---- */

static const char *queue_text(struct cli *cli, const struct json *queue)
{
    return admin_format(cli, "%s read %lld write %lld perm %lld",
                        admin_text(cli, json_member(queue, "brokerName")),
                        (long long)json_int(json_member(queue, "readQueueNums"), 0),
                        (long long)json_int(json_member(queue, "writeQueueNums"), 0),
                        (long long)json_int(json_member(queue, "perm"), 0));
}

/* A route in one line that is the same for the same route. */
static const char *route_text(struct cli *cli, const struct json *route)
{
    const struct json *list = json_member(route, "queueDatas");
    const char **parts = admin_alloc(cli, list ? list->n : 0, sizeof *parts), *text = "";
    size_t n = 0;
    json_each(queue, list)
        parts[n++] = queue_text(cli, queue);
    if (n > 0)
        qsort(parts, n, sizeof *parts, by_text);
    for (size_t i = 0; i < n; i++)
        text = admin_format(cli, "%s%s%s", text, i > 0 ? "; " : "", parts[i]);
    return text;
}

static void routes_compare(struct doctor *d, size_t first, size_t other, size_t *compared)
{
    const struct admin_names *topics = &d->topics[first];
    size_t n = 0, most = topics->n < ROUTES_MAX ? topics->n : ROUTES_MAX;
    struct admin_ask *asks = admin_alloc(d->cli, 2 * most, sizeof *asks);
    const char **names = admin_alloc(d->cli, most, sizeof *names);
    for (size_t i = 0; i < most; i++) {
        if (!names_have(&d->topics[other], topics->names[i]))
            continue;
        const char *const *fields = admin_fields(d->cli, ASK("topic", topics->names[i]));
        asks[2 * n] = (struct admin_ask){.server = d->servers.names[first],
                                         .request = REQ_GET_ROUTEINFO_BY_TOPIC,
                                         .fields = fields};
        asks[2 * n + 1] = asks[2 * n];
        asks[2 * n + 1].server = d->servers.names[other];
        names[n++] = topics->names[i];
    }
    if (admin_ask_all(d->cli, asks, 2 * n))
        return;
    for (size_t i = 0; i < n; i++) {
        if (asks[2 * i].code || asks[2 * i + 1].code)
            continue;
        const char *here = route_text(d->cli, asks[2 * i].json),
                   *there = route_text(d->cli, asks[2 * i + 1].json);
        ++*compared;
        if (strcmp(here, there) != 0)
            wrong(d, HEALTH_BAD, names[i],
                  "wait half a minute for the next registration; if it stays, restart the broker "
                  "that differs, or give its permission back (mqadmin addWritePerm)",
                  "%s says %s, %s says %s", d->servers.names[first], here, d->servers.names[other],
                  there);
    }
}

static void missing_tell(struct doctor *d, size_t has, size_t lacks)
{
    for (size_t i = 0; i < d->topics[has].n; i++)
        if (!names_have(&d->topics[lacks], d->topics[has].names[i]))
            wrong(d, HEALTH_BAD, d->topics[has].names[i],
                  "wait half a minute for the next registration; if it stays, look at the broker's "
                  "log and namesrvAddr",
                  "%s knows this topic, %s does not", d->servers.names[has],
                  d->servers.names[lacks]);
}

static void agreement_check(struct doctor *d)
{
    check_begin(d, "names.routes");
    size_t first = 0, compared = 0;
    while (!d->answers[first])
        first++;
    for (size_t i = first + 1; i < d->servers.n; i++) {
        if (!d->answers[i])
            continue;
        missing_tell(d, first, i);
        missing_tell(d, i, first);
        routes_compare(d, first, i, &compared);
    }
    check_end(d, "all name servers (%zu) agree about all topics (%zu)", d->n_answering,
              d->topics[first].n);
}

void doctor_names(struct doctor *d)
{
    check_begin(d, "names.answer");
    servers_ask(d);
    check_end(d, "all name servers answer (%zu)", d->servers.n);
    if (d->n_answering == 0)
        return;
    clusters_join(d);
    registered_check(d);
    if (d->n_answering > 1)
        agreement_check(d);
}
