/* admin.c - asking, and what the name servers know. */
#include "cli/admin.h"

#include "remoting/codes.h"

#include <stdlib.h>

int admin_ask(struct cli *cli, const char *server, int request, const char *const *fields,
              struct bytes body, const struct json **out, struct omq_error *why)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    if (!client)
        exit(status); /* it has been said; there is nothing to close yet */
    struct omq_property list[32];
    size_t n = 0;
    for (; fields && fields[0]; fields += 2) {
        invariant(n < sizeof list / sizeof *list);
        list[n++] = (struct omq_property){fields[0], fields[1]};
    }
    struct omq_answer *answer;
    int code = omq_call(client, server, request, list, n, body.at, body.len, 0, &answer, why);
    if (code)
        return code;
    struct bytes copy = arena_copy(&cli->arena, bytes_of(answer->body, answer->body_size));
    omq_answer_free(answer);
    *out = NULL;
    if (copy.len > 0 && json_parse(copy, &cli->arena, out, NULL)) {
        *why = (struct omq_error){.code = OMQ_PROTOCOL};
        (void)snprintf(why->text, sizeof why->text, "the answer of %s to request %d cannot be read",
                       server ? server : "the name servers", request);
        return OMQ_PROTOCOL;
    }
    return OMQ_OK;
}

const char *admin_text(struct cli *cli, const struct json *node)
{
    struct bytes text = json_text(node, BYTES(""));
    char *copy = arena_alloc(&cli->arena, text.len + 1);
    if (!copy)
        return "";
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    return copy;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int admin_topics(struct cli *cli, struct admin_names *out)
{
    const struct json *body;
    struct omq_error why;
    if (admin_ask(cli, NULL, REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL, (struct bytes){0}, &body,
                  &why))
        return cli_fail_omq(cli, &why, NULL);
    const struct json *list = json_member(body, "topicList");
    size_t n = list ? list->n : 0, i = 0;
    const char **names = arena_alloc(&cli->arena, (n + 1) * sizeof *names);
    if (!names)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory for the list of topics");
    json_each(node, list)
        names[i++] = admin_text(cli, node);
    qsort(names, n, sizeof *names, by_name);
    *out = (struct admin_names){names, n};
    return STATUS_OK;
}

static int by_cluster(const void *a, const void *b)
{
    const struct admin_broker *x = a, *y = b;
    int order = strcmp(x->cluster, y->cluster);
    return order ? order : strcmp(x->name, y->name);
}

static int broker_take(struct cli *cli, const struct json *node, struct admin_broker *broker)
{
    const struct json *addresses = json_member(node, "brokerAddrs");
    *broker = (struct admin_broker){.name = admin_text(cli, json_member(node, "brokerName")),
                                    .cluster = admin_text(cli, json_member(node, "cluster"))};
    size_t n = addresses ? addresses->n : 0;
    broker->addresses = arena_alloc(&cli->arena, (n + 1) * sizeof *broker->addresses);
    if (!broker->addresses)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory for the list of brokers");
    json_each(address, addresses) {
        struct admin_address *a = &broker->addresses[broker->n_addresses++];
        *a = (struct admin_address){json_int(address->key, -1), admin_text(cli, address)};
        if (a->id == 0)
            broker->master = a->address;
    }
    return STATUS_OK;
}

int admin_cluster(struct cli *cli, struct admin_cluster *out)
{
    const struct json *body;
    struct omq_error why;
    if (admin_ask(cli, NULL, REQ_GET_BROKER_CLUSTER_INFO, NULL, (struct bytes){0}, &body, &why))
        return cli_fail_omq(cli, &why, NULL);
    const struct json *table = json_member(body, "brokerAddrTable");
    size_t n = table ? table->n : 0;
    *out = (struct admin_cluster){arena_alloc(&cli->arena, (n + 1) * sizeof *out->brokers), 0};
    if (!out->brokers)
        return cli_fail(cli, STATUS_FAILED, NULL, "no memory for the list of brokers");
    json_each(node, table) {
        int status = broker_take(cli, node, &out->brokers[out->n++]);
        if (status)
            return status;
    }
    qsort(out->brokers, out->n, sizeof *out->brokers, by_cluster);
    return STATUS_OK;
}
