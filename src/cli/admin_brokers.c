/* admin_brokers.c - brokers as a whole: their numbers, their settings, what they count. */
#include "base/conf.h"
#include "cli/admin_int.h"

#include <stdlib.h>

static int by_pair(const void *a, const void *b)
{
    return strcmp(((const struct admin_pair *)a)->name, ((const struct admin_pair *)b)->name);
}

static int nodes_ask(struct cli *cli, const struct admin_cluster *on, bool slaves,
                     struct admin_ask like, struct admin_node **out, struct admin_ask **asks,
                     size_t *n)
{
    size_t max = 0;
    for (size_t b = 0; b < on->n; b++)
        max += on->brokers[b].n_addresses;
    *out = admin_alloc(cli, max, sizeof **out);
    *asks = admin_alloc(cli, max, sizeof **asks);
    *n = 0;
    for (size_t b = 0; b < on->n; b++) {
        const struct admin_broker *broker = &on->brokers[b];
        for (size_t k = 0; k < broker->n_addresses; k++) {
            const struct admin_address *a = &broker->addresses[k];
            if (!slaves && a->address != admin_reader(broker))
                continue;
            like.server = a->address;
            like.broker = broker->name;
            (*out)[*n] = (struct admin_node){.broker = broker, .id = a->id, .address = a->address};
            (*asks)[(*n)++] = like;
        }
    }
    return admin_ask_all(cli, *asks, *n);
}

int admin_runtime(struct cli *cli, const struct admin_cluster *on, bool slaves, bool quiet,
                  struct admin_node **out, size_t *n)
{
    struct admin_ask *asks;
    int status = nodes_ask(
        cli, on, slaves, (struct admin_ask){.request = REQ_GET_BROKER_RUNTIME_INFO}, out, &asks, n);
    for (size_t i = 0; !status && i < *n; i++) {
        struct admin_node *node = &(*out)[i];
        const struct json *table = json_member(asks[i].json, "table");
        node->why = asks[i].why;
        node->pairs = admin_alloc(cli, table ? table->n : 0, sizeof *node->pairs);
        json_each(pair, table)
            node->pairs[node->n++] =
                (struct admin_pair){admin_text(cli, pair->key), admin_text(cli, pair)};
        qsort(node->pairs, node->n, sizeof *node->pairs, by_pair);
    }
    return status || quiet ? status : admin_verdict(cli, asks, *n);
}

struct taking {
    struct cli *cli;
    struct admin_node *node;
    size_t max;
};

static void setting_take(void *user, const char *key, const char *value)
{
    struct taking *t = user;
    if (t->node->n < t->max)
        t->node->pairs[t->node->n++] =
            (struct admin_pair){admin_format(t->cli, "%s", key), admin_format(t->cli, "%s", value)};
}

/* The body is the text of a Java properties file. */
static void settings_take(struct cli *cli, struct admin_ask *ask, struct admin_node *node)
{
    struct taking t = {.cli = cli, .node = node, .max = 1};
    struct fault why = {0};
    for (size_t i = 0; i < ask->text.len; i++)
        t.max += ask->text.at[i] == '\n' || ask->text.at[i] == '\r';
    node->pairs = admin_alloc(cli, t.max, sizeof *node->pairs);
    if (conf_each("its settings", ask->text, setting_take, &t, &why)) {
        ask->code = ask->why.code = OMQ_PROTOCOL;
        (void)snprintf(ask->why.text, sizeof ask->why.text, "%s", why.text);
        node->n = 0;
    }
    qsort(node->pairs, node->n, sizeof *node->pairs, by_pair);
}

int admin_settings(struct cli *cli, const struct admin_cluster *on, bool slaves,
                   struct admin_node **out, size_t *n)
{
    struct admin_ask *asks;
    int status =
        nodes_ask(cli, on, slaves,
                  (struct admin_ask){.request = REQ_GET_BROKER_CONFIG, .raw = true}, out, &asks, n);
    if (status)
        return status;
    for (size_t i = 0; i < *n; i++) {
        if (!asks[i].code)
            settings_take(cli, &asks[i], &(*out)[i]);
        (*out)[i].why = asks[i].why;
    }
    return admin_verdict(cli, asks, *n);
}

const char *admin_value(const struct admin_node *node, const char *name, const char *fallback)
{
    const struct admin_pair wanted = {.name = name},
                            *found = node->n > 0 ? bsearch(&wanted, node->pairs, node->n,
                                                           sizeof *node->pairs, by_pair)
                                                 : NULL;
    return found ? found->value : fallback;
}

double admin_value_real(const struct admin_node *node, const char *name, double fallback)
{
    const char *text = admin_value(node, name, NULL);
    char *end = NULL;
    double value = text ? strtod(text, &end) : fallback;
    return text && end != text && value > -1e300 && value < 1e300 ? value : fallback;
}

int64_t admin_value_number(const struct admin_node *node, const char *name, int64_t fallback)
{
    const char *text = admin_value(node, name, NULL);
    int64_t value;
    if (!text)
        return fallback;
    return bytes_to_i64(bytes_of(text, strspn(text, "-0123456789")), &value) ? value : fallback;
}

/* ---- what they count ---- */

static void stat_take(const struct json *body, struct admin_stat *out)
{
    const struct json *minute = json_member(body, "statsMinute"),
                      *hour = json_member(body, "statsHour"), *day = json_member(body, "statsDay");
    out->known = true;
    out->minute_tps += admin_real(json_member(minute, "tps"));
    out->hour_tps += admin_real(json_member(hour, "tps"));
    out->day_tps += admin_real(json_member(day, "tps"));
    int64_t *const sums[] = {&out->minute_sum, &out->hour_sum, &out->day_sum};
    const struct json *const spans[] = {minute, hour, day};
    for (size_t i = 0; i < 3; i++) {
        int64_t sum = admin_number(json_member(spans[i], "sum"));
        *sums[i] = admin_sum(*sums[i], sum);
    }
}

int admin_stats(struct cli *cli, const struct admin_cluster *on, struct admin_stat *stats, size_t n)
{
    struct admin_ask *asks = admin_alloc(cli, n * on->n, sizeof *asks);
    size_t per = 0;
    for (size_t b = 0; b < on->n; b++)
        per += admin_reader(&on->brokers[b]) != NULL;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < on->n; b++)
            if (admin_reader(&on->brokers[b]))
                asks[count++] = (struct admin_ask){
                    .server = admin_reader(&on->brokers[b]),
                    .broker = on->brokers[b].name,
                    .request = REQ_VIEW_BROKER_STATS_DATA,
                    .absent = RES_SYSTEM_ERROR, /* nothing counted under that name */
                    .fields = admin_fields(
                        cli, ASK("statsName", stats[i].name, "statsKey", stats[i].key)),
                };
    int status = admin_ask_all(cli, asks, count);
    if (status)
        return status;
    for (size_t k = 0; k < count; k++)
        if (asks[k].json)
            stat_take(asks[k].json, &stats[k / per]);
    return admin_verdict(cli, asks, count);
}
