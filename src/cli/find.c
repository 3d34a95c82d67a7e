/* find.c - messages by their ids.
 *
 * Both kinds of id look alike: 32 hexadecimal digits. The id of a place begins with the address of
 * a broker, so it is one if a broker of this cluster has that address; all others are unique ids.
 */
#include "cli/find.h"

#include "base/addr.h"

#include <stdlib.h>
#include <string.h>

int find_in(struct cli *cli, const struct omq_query *query, struct omq_found *out)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    struct omq_error why;
    *out = (struct omq_found){0};
    if (!client)
        return status;
    int code = omq_query(client, query, out, &why);
    return code && code != OMQ_NO_TOPIC ? cli_fail_omq(cli, &why, NULL) : STATUS_OK;
}

static bool is_place(struct cli *cli, const char *id, int *status)
{
    struct addr host;
    int64_t position;
    char address[ADDR_TEXT_MAX];
    struct admin_cluster cluster;
    if (id_parse(bytes_str(id), &host, &position))
        return false;
    addr_format(&host, address);
    *status = admin_cluster(cli, &cluster);
    if (admin_none(*status))
        return false;
    for (size_t i = 0; i < cluster.n; i++)
        for (size_t k = 0; k < cluster.brokers[i].n_addresses; k++)
            if (strcmp(cluster.brokers[i].addresses[k].address, address) == 0)
                return true;
    return false;
}

static int find_place(struct cli *cli, const char *id, const char *topic, struct omq_found *out)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    struct omq_error why;
    struct omq_delivery **list = malloc(sizeof *list);
    if (!client || !list) {
        free(list);
        return client ? cli_fail(cli, STATUS_FAILED, NULL, "no memory for a message") : status;
    }
    int code = omq_view(client, topic, id, list, &why);
    if (code) {
        free(list);
        return code == OMQ_NOT_FOUND ? STATUS_OK : cli_fail_omq(cli, &why, NULL);
    }
    *out = (struct omq_found){list, 1};
    return STATUS_OK;
}

static int find_anywhere(struct cli *cli, const char *id, struct omq_found *out)
{
    struct admin_names topics;
    int status = admin_topics(cli, &topics);
    if (admin_none(status))
        return status;
    struct progress progress;
    progress_begin(&progress, cli, "looking through topics", topics.n);
    status = STATUS_OK;
    for (size_t i = 0; !status && out->n == 0 && i < topics.n && !cli_stopped(cli); i++) {
        progress_move(&progress, i);
        if (!admin_topic_is_system(NULL, topics.names[i]))
            status = find_in(cli, &(struct omq_query){.topic = topics.names[i], .id = id}, out);
    }
    progress_end(&progress);
    return status;
}

int find_message(struct cli *cli, const char *id, const char *topic, struct omq_found *out)
{
    *out = (struct omq_found){0};
    int status = STATUS_OK;
    if (is_place(cli, id, &status))
        return find_place(cli, id, topic, out);
    if (admin_none(status))
        return status;
    return topic ? find_in(cli, &(struct omq_query){.topic = topic, .id = id}, out)
                 : find_anywhere(cli, id, out);
}
