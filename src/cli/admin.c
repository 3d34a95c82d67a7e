/* admin.c - asking, and what the name servers know. */
#include "cli/admin_int.h"
#include "cli/cli_int.h"

#include <stdarg.h>
#include <stdlib.h>

#define ROUND_MAX ((size_t)1 << 30)

bool admin_none(int status)
{
    return status != STATUS_OK && status != STATUS_PARTLY;
}

int admin_join(int a, int b)
{
    if (admin_none(a) || b == STATUS_OK)
        return a;
    return b;
}

/* ---- memory ---- */

void *admin_alloc(struct cli *cli, size_t n, size_t size)
{
    void *memory = n < SIZE_MAX / size ? arena_alloc(&cli->arena, (n + 1) * size) : NULL;
    if (!memory)
        exit(cli_fail(cli, STATUS_FAILED, NULL, "no memory for what the servers answered"));
    return memory;
}

char *admin_format(struct cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = admin_alloc(cli, n > 0 ? (size_t)n : 0, 1);
    va_start(args, format);
    (void)vsnprintf(text, n > 0 ? (size_t)n + 1 : 1, format, args);
    va_end(args);
    return text;
}

const char *admin_text(struct cli *cli, const struct json *node)
{
    struct bytes text = json_text(node, BYTES(""));
    char *copy = admin_alloc(cli, text.len, 1);
    if (text.len > 0)
        memcpy(copy, text.at, text.len);
    return copy;
}

double admin_real(const struct json *node)
{
    struct bytes text = json_text(node, BYTES(""));
    char copy[64];
    if (text.len == 0 || text.len >= sizeof copy)
        return 0;
    memcpy(copy, text.at, text.len);
    copy[text.len] = 0;
    double value = strtod(copy, NULL);
    return value > -1e300 && value < 1e300 ? value : 0;
}

void admin_round_begin(struct cli *cli, struct admin_round *round)
{
    round->kept = cli->arena;
    arena_init(&cli->arena, ROUND_MAX);
}

void admin_round_end(struct cli *cli, struct admin_round *round)
{
    arena_clear(&cli->arena);
    cli->arena = round->kept;
}

/* ---- asking ---- */

const char *const *admin_fields(struct cli *cli, const char *const *fields)
{
    size_t n = 0;
    while (fields[n])
        n++;
    const char **copy = admin_alloc(cli, n, sizeof *copy);
    memcpy(copy, fields, n * sizeof *copy);
    return copy;
}

static void question_fill(struct cli *cli, const struct admin_ask *ask, struct omq_question *q)
{
    size_t n = 0;
    while (ask->fields && ask->fields[n])
        n++;
    struct omq_property *fields = admin_alloc(cli, n / 2, sizeof *fields);
    for (size_t i = 0; i + 1 < n; i += 2)
        fields[i / 2] = (struct omq_property){ask->fields[i], ask->fields[i + 1]};
    *q = (struct omq_question){.server = ask->server,
                               .request = ask->request,
                               .fields = fields,
                               .n_fields = n / 2,
                               .body = ask->body.at,
                               .body_size = ask->body.len};
}

static const char *text_copy(struct cli *cli, const char *text)
{
    return admin_format(cli, "%s", text);
}

/* Into the arena, for the answer's own memory goes now. */
static void answer_take(struct cli *cli, struct admin_ask *ask, const struct omq_answer *answer)
{
    char *text = admin_alloc(cli, answer->body_size, 1);
    if (answer->body_size > 0)
        memcpy(text, answer->body, answer->body_size);
    ask->text = bytes_of(text, answer->body_size);
    struct omq_property *fields = admin_alloc(cli, answer->n_fields, sizeof *fields);
    for (size_t i = 0; i < answer->n_fields; i++)
        fields[i] = (struct omq_property){text_copy(cli, answer->fields[i].name),
                                          text_copy(cli, answer->fields[i].value)};
    ask->answer_fields = fields;
    ask->n_answer_fields = answer->n_fields;
    if (ask->raw || ask->text.len == 0 || !json_parse(ask->text, &cli->arena, &ask->json, NULL))
        return;
    ask->json = NULL;
    ask->code = OMQ_PROTOCOL;
    ask->why = (struct omq_error){.code = OMQ_PROTOCOL};
    (void)snprintf(ask->why.text, sizeof ask->why.text,
                   "the answer of %.200s to request %d cannot be read",
                   ask->server ? ask->server : "the name servers", ask->request);
}

int admin_ask_all(struct cli *cli, struct admin_ask *asks, size_t n)
{
    int status;
    struct omq_client *client = cli_client(cli, &status);
    if (!client)
        return status;
    struct omq_question *questions = admin_alloc(cli, n, sizeof *questions);
    for (size_t i = 0; i < n; i++)
        question_fill(cli, &asks[i], &questions[i]);
    struct omq_error why;
    if (omq_call_all(client, questions, n, 0, &why))
        return cli_fail_omq(cli, &why, NULL);
    for (size_t i = 0; i < n; i++) {
        struct admin_ask *ask = &asks[i];
        ask->code = questions[i].code;
        ask->why = questions[i].why;
        ask->json = NULL;
        if (ask->code == OMQ_OK)
            answer_take(cli, ask, questions[i].answer);
        else if (ask->absent && ask->why.response_code == ask->absent)
            ask->code = OMQ_OK;
        omq_answer_free(questions[i].answer);
    }
    return STATUS_OK;
}

int admin_ask(struct cli *cli, const char *server, int request, const char *const *fields,
              struct bytes body, const struct json **out, struct omq_error *why)
{
    struct admin_ask ask = {.server = server, .request = request, .fields = fields, .body = body};
    int status = admin_ask_all(cli, &ask, 1);
    if (status)
        exit(status); /* it has been said; there is nothing to close yet */
    *out = ask.json;
    *why = ask.why;
    return ask.code;
}

const char *admin_answer_field(const struct admin_ask *ask, const char *name)
{
    for (size_t i = 0; i < ask->n_answer_fields; i++)
        if (strcmp(ask->answer_fields[i].name, name) == 0)
            return ask->answer_fields[i].value;
    return NULL;
}

static void failure_say(struct cli *cli, int status, const struct admin_ask *ask)
{
    const char *text = printable(cli, bytes_str(ask->why.text));
    if (!ask->server) {
        (void)cli_fail_omq(cli, &ask->why, NULL);
        return;
    }
    const char *hint = NULL;
    if (status_of(ask->code) == STATUS_UNREACHABLE)
        hint =
            "the name servers say that it is there: is it alive, and can this machine reach that "
            "address?";
    if (ask->broker)
        (void)cli_fail(cli, status, hint, "broker %s: %s", printable(cli, bytes_str(ask->broker)),
                       text);
    else
        (void)cli_fail(cli, status, hint, "%s", text);
}

static bool same_server(const struct admin_ask *a, const struct admin_ask *b)
{
    return a->server == b->server || (a->server && b->server && strcmp(a->server, b->server) == 0);
}

int admin_verdict(struct cli *cli, const struct admin_ask *asks, size_t n)
{
    size_t failed = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (asks[i].code) {
            failed++;
            first = i;
        }
    if (failed == 0)
        return STATUS_OK;
    int status = failed < n ? STATUS_PARTLY : status_of(asks[first].code);
    const struct admin_ask **said = admin_alloc(cli, failed, sizeof *said);
    size_t n_said = 0;
    for (size_t i = first; i < n; i++) {
        bool new = asks[i].code != OMQ_OK;
        for (size_t k = 0; new &&k < n_said; k++)
            new = !same_server(said[k], &asks[i]);
        if (!new)
            continue;
        said[n_said++] = &asks[i];
        failure_say(cli, status, &asks[i]);
    }
    return status;
}

static bool is_lost(const struct admin_ask *ask)
{
    return ask->code && status_of(ask->code) == STATUS_UNREACHABLE;
}

/* Those behind the first name, of brokers that answered about it. */
static int rest_ask(struct cli *cli, struct admin_ask *asks, size_t n, size_t per)
{
    struct admin_ask *rest = admin_alloc(cli, n, sizeof *rest);
    size_t n_rest = 0;
    for (size_t i = per; i < n; i++)
        if (!is_lost(&asks[i % per]))
            rest[n_rest++] = asks[i];
    int status = admin_ask_all(cli, rest, n_rest);
    n_rest = 0;
    for (size_t i = per; !status && i < n; i++) {
        const struct admin_ask *first = &asks[i % per];
        if (is_lost(first)) {
            asks[i].code = first->code;
            asks[i].why = first->why;
        } else
            asks[i] = rest[n_rest++];
    }
    return status;
}

int admin_each(struct cli *cli, const struct admin_cluster *on, struct admin_ask like,
               const char *field, const char *const *names, size_t n, struct admin_ask **out,
               size_t *per)
{
    struct admin_ask *asks = admin_alloc(cli, n * on->n, sizeof *asks);
    size_t count = 0;
    *out = asks;
    *per = 0;
    for (size_t b = 0; b < on->n; b++)
        *per += admin_reader(&on->brokers[b]) != NULL;
    if (*per == 0)
        return cli_fail(cli, STATUS_UNREACHABLE, NULL, "no broker is left to be asked");
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < on->n; b++) {
            like.server = admin_reader(&on->brokers[b]);
            like.broker = on->brokers[b].name;
            if (field)
                like.fields = admin_fields(cli, ASK(field, names[i]));
            if (like.server)
                asks[count++] = like;
        }
    if (count == 0)
        return STATUS_OK;
    int status = admin_ask_all(cli, asks, *per);
    if (!status && count > *per)
        status = rest_ask(cli, asks, count, *per);
    for (size_t b = 0, k = 0; !status && b < on->n; b++)
        if (admin_reader(&on->brokers[b]))
            on->brokers[b].lost = is_lost(&asks[k++]);
    return status ? status : admin_verdict(cli, asks, count);
}

size_t admin_count(const struct admin_ask *asks, size_t n, const char *table)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct json *node = json_member(asks[i].json, table);
        count += node ? node->n : 0;
    }
    return count;
}

int admin_lists(struct cli *cli, const struct admin_cluster *on, struct admin_ask like,
                const char *field, const char *list, const char *const *names, size_t n,
                struct admin_names **out)
{
    struct admin_ask *asks;
    size_t per;
    int status = admin_each(cli, on, like, field, names, n, &asks, &per);
    if (admin_none(status))
        return status;
    *out = admin_alloc(cli, n, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        struct admin_names *found = &(*out)[i];
        size_t count = admin_count(asks + i * per, per, list);
        *found = (struct admin_names){admin_alloc(cli, count, sizeof *found->names), 0};
        for (size_t b = 0; b < per; b++)
            json_each(node, json_member(asks[i * per + b].json, list))
                found->names[found->n++] = admin_text(cli, node);
        admin_names_tidy(found);
    }
    return status;
}

int32_t admin_small(const struct json *node)
{
    int64_t value = json_int(node, 0);
    return value >= 0 && value <= INT32_MAX ? (int32_t)value : 0;
}

int64_t admin_number(const struct json *node)
{
    int64_t value = json_int(node, 0);
    return value >= 0 ? value : 0;
}

int64_t admin_time(const struct json *node)
{
    const int64_t last = 253402300799999; /* of the year 9999 */
    int64_t ms = json_int(node, -1);
    return ms >= 0 && ms <= last ? ms : -1;
}

int64_t admin_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

struct admin_queue admin_queue_key(struct cli *cli, const struct json *key)
{
    return (struct admin_queue){admin_text(cli, json_member(key, "topic")),
                                admin_text(cli, json_member(key, "brokerName")),
                                admin_small(json_member(key, "queueId"))};
}

/* ---- the cluster ---- */

static int by_cluster(const void *a, const void *b)
{
    const struct admin_broker *x = a, *y = b;
    int order = strcmp(x->cluster, y->cluster);
    return order ? order : strcmp(x->name, y->name);
}

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const struct admin_address *)a)->id, y = ((const struct admin_address *)b)->id;
    return (x > y) - (x < y);
}

static void broker_take(struct cli *cli, const struct json *node, struct admin_broker *broker)
{
    const struct json *addresses = json_member(node, "brokerAddrs");
    *broker = (struct admin_broker){
        .name = admin_text(cli, json_member(node, "brokerName")),
        .cluster = admin_text(cli, json_member(node, "cluster")),
        .addresses = admin_alloc(cli, addresses ? addresses->n : 0, sizeof *broker->addresses)};
    json_each(address, addresses) {
        int64_t id = json_int(address->key, -1); /* an element of an array has no key */
        const char *text = admin_text(cli, address);
        if (id < 0 || !*text)
            continue;
        broker->addresses[broker->n_addresses++] = (struct admin_address){id, text};
        if (id == 0)
            broker->master = text;
    }
    qsort(broker->addresses, broker->n_addresses, sizeof *broker->addresses, by_id);
}

static void brokers_take(struct cli *cli, const struct json *list, struct admin_cluster *out)
{
    size_t n = list ? list->n : 0;
    *out = (struct admin_cluster){admin_alloc(cli, n, sizeof *out->brokers), 0};
    json_each(node, list)
        broker_take(cli, node, &out->brokers[out->n++]);
    qsort(out->brokers, out->n, sizeof *out->brokers, by_cluster);
}

int admin_cluster_of(struct cli *cli, const char *name_server, struct admin_cluster *out,
                     struct omq_error *why)
{
    const struct json *body;
    int code = admin_ask(cli, name_server, REQ_GET_BROKER_CLUSTER_INFO, NULL, (struct bytes){0},
                         &body, why);
    if (!code)
        brokers_take(cli, json_member(body, "brokerAddrTable"), out);
    return code;
}

int admin_cluster(struct cli *cli, struct admin_cluster *out)
{
    struct omq_error why;
    if (admin_cluster_of(cli, NULL, out, &why))
        return cli_fail_omq(cli, &why, NULL);
    return out->n > 0
               ? STATUS_OK
               : cli_fail(cli, STATUS_NOT_FOUND,
                          "start oncemqd, or tell the brokers where the name server is",
                          "no broker has registered with the name servers at %s", cli_names(cli));
}

static bool is_given(const struct cli *cli, const char *option)
{
    return opt_find(cli->command, bytes_str(option)) && arg_has(cli, option);
}

static bool is_chosen(const struct cli *cli, const struct admin_broker *broker)
{
    const char *name;
    if (is_given(cli, "cluster") && strcmp(arg_text(cli, "cluster", ""), broker->cluster) != 0)
        return false;
    bool chosen = !is_given(cli, "broker");
    for (size_t i = 0; !chosen && (name = arg_nth(cli, "broker", i)); i++) {
        chosen = strcmp(name, broker->name) == 0;
        for (size_t k = 0; k < broker->n_addresses; k++)
            chosen = chosen || strcmp(name, broker->addresses[k].address) == 0;
    }
    return chosen;
}

int admin_chosen(struct cli *cli, struct admin_cluster *out)
{
    struct admin_cluster all;
    int status = admin_cluster(cli, &all);
    if (status)
        return status;
    *out = (struct admin_cluster){admin_alloc(cli, all.n, sizeof *out->brokers), 0};
    for (size_t i = 0; i < all.n; i++)
        if (is_chosen(cli, &all.brokers[i]))
            out->brokers[out->n++] = all.brokers[i];
    if (out->n > 0)
        return STATUS_OK;
    return cli_fail(cli, STATUS_NOT_FOUND, "oncemq cluster shows what there is",
                    "there is no such broker or cluster");
}

int admin_whole(struct cli *cli, int status)
{
    return status != STATUS_PARTLY
               ? status
               : cli_fail(cli, STATUS_UNREACHABLE, "--broker names those that are to take part",
                          "nothing was changed, for not all brokers answer");
}

int admin_masters(struct cli *cli, const struct admin_cluster *on)
{
    for (size_t i = 0; i < on->n; i++)
        if (!on->brokers[i].master)
            return cli_fail(cli, STATUS_UNREACHABLE, "oncemq cluster shows what there is",
                            "broker %s has no master just now; nothing was changed",
                            printable(cli, bytes_str(on->brokers[i].name)));
    return STATUS_OK;
}

const struct admin_broker *admin_broker_find(const struct admin_cluster *in, const char *name)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->brokers[i].name, name) == 0)
            return &in->brokers[i];
    return NULL;
}

const char *admin_reader(const struct admin_broker *broker)
{
    if (broker->lost)
        return NULL;
    if (broker->master)
        return broker->master;
    return broker->n_addresses > 0 ? broker->addresses[0].address : NULL;
}

struct admin_names admin_name_servers(struct cli *cli)
{
    const char *text = cli_names(cli);
    struct admin_names out = {admin_alloc(cli, strlen(text), sizeof *out.names), 0};
    while (*text) {
        text += strspn(text, "; ");
        size_t len = strcspn(text, "; ");
        if (len > 0)
            out.names[out.n++] = admin_format(cli, "%.*s", (int)len, text);
        text += len;
    }
    return out;
}

int admin_name_servers_ask(struct cli *cli, struct admin_name_server **out, size_t *n)
{
    struct admin_names names = admin_name_servers(cli);
    struct admin_ask *asks = admin_alloc(cli, names.n, sizeof *asks);
    for (size_t i = 0; i < names.n; i++)
        asks[i] =
            (struct admin_ask){.server = names.names[i], .request = REQ_GET_BROKER_CLUSTER_INFO};
    int status = admin_ask_all(cli, asks, names.n);
    if (status)
        return status;
    *out = admin_alloc(cli, names.n, sizeof **out);
    *n = names.n;
    for (size_t i = 0; i < names.n; i++) {
        struct admin_name_server *server = &(*out)[i];
        *server = (struct admin_name_server){names.names[i], asks[i].code, asks[i].why, {0}};
        brokers_take(cli, json_member(asks[i].json, "brokerAddrTable"), &server->knows);
    }
    return STATUS_OK;
}

int admin_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void admin_names_tidy(struct admin_names *names)
{
    size_t kept = 0;
    if (names->n > 0)
        qsort(names->names, names->n, sizeof *names->names, admin_by_name);
    for (size_t i = 0; i < names->n; i++)
        if (kept == 0 || strcmp(names->names[i], names->names[kept - 1]) != 0)
            names->names[kept++] = names->names[i];
    names->n = kept;
}

int admin_topics(struct cli *cli, struct admin_names *out)
{
    const struct json *body;
    struct omq_error why;
    if (admin_ask(cli, NULL, REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL, (struct bytes){0}, &body,
                  &why))
        return cli_fail_omq(cli, &why, NULL);
    const struct json *list = json_member(body, "topicList");
    *out = (struct admin_names){admin_alloc(cli, list ? list->n : 0, sizeof *out->names), 0};
    json_each(node, list)
        out->names[out->n++] = admin_text(cli, node);
    admin_names_tidy(out);
    return STATUS_OK;
}

int admin_route(struct cli *cli, const char *topic, struct admin_route *out)
{
    struct omq_error why;
    return admin_route_try(cli, topic, out, &why) ? cli_fail_omq(cli, &why, NULL) : STATUS_OK;
}

int admin_route_try(struct cli *cli, const char *topic, struct admin_route *out,
                    struct omq_error *why)
{
    const struct json *body;
    int code = admin_ask(cli, NULL, REQ_GET_ROUTEINFO_BY_TOPIC, ASK("topic", topic),
                         (struct bytes){0}, &body, why);
    if (code)
        return code;
    brokers_take(cli, json_member(body, "brokerDatas"), &out->on);
    const struct json *list = json_member(body, "queueDatas");
    out->queues = admin_alloc(cli, list ? list->n : 0, sizeof *out->queues);
    out->n_queues = 0;
    json_each(node, list)
        out->queues[out->n_queues++] = (struct admin_route_queues){
            .broker = admin_text(cli, json_member(node, "brokerName")),
            .read_queues = admin_small(json_member(node, "readQueueNums")),
            .write_queues = admin_small(json_member(node, "writeQueueNums")),
            .perm = admin_small(json_member(node, "perm")),
            .sys_flag = admin_small(json_member(node, "topicSysFlag")),
        };
    return OMQ_OK;
}
