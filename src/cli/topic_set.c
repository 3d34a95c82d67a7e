/* topic_set.c - making and changing topics.
 *
 * What is wished is held against what each broker has; only what differs is asked for. So the same
 * command twice does nothing the second time, and says so.
 */
#include "cli/topic_int.h"

#include "remoting/codes.h"

#include <stdlib.h>

#define QUEUES_DEFAULT 8 /* as Apache's own tool makes topics */
#define QUEUES_MAX     65536
#define ATTRIBUTES_MAX 64
#define ROUTE_LOOK_MS  10

const struct column topic_set_columns[] = {
    {"topic", COLUMN_TEXT, "TOPIC", "its name"},
    {"broker", COLUMN_TEXT, "BROKER", "where"},
    {"result", COLUMN_TEXT, "RESULT", "created, changed, unchanged or failed"},
    {"write_queues", COLUMN_NUMBER, "WRITE", "queues that are written"},
    {"read_queues", COLUMN_NUMBER, "READ", "queues that are read"},
    {"perm", COLUMN_TEXT, "PERM", "r: may be read, w: may be written"},
    {"order", COLUMN_BOOL, "ORDER", "whether its queues are for ordered messages"},
    {"attributes", COLUMN_MAP, "ATTRIBUTES", "its attributes"},
    {NULL},
};

const struct opt topic_set_options[] = {
    {"queues", OPT_NUMBER, "N", "queues to write and to read, on each broker"},
    {"write-queues", OPT_NUMBER, "N", "queues to write"},
    {"read-queues", OPT_NUMBER, "N", "queues to read"},
    {"perm", OPT_TEXT, "PERM", "rw, r, w or none"},
    {"order", OPT_CHOICE, "YES", "whether its queues are for ordered messages",
     .choices = "yes|no"},
    {"type", OPT_CHOICE, "TYPE", "what it is for: the attribute message.type",
     .choices = "NORMAL|FIFO|DELAY|TRANSACTION|MIXED"},
    {"dedup", OPT_TEXT, "KEY",
     "recognise messages that were stored before by UNIQ_KEY or by this property; OFF: do not "
     "(OnceMQ's attribute dedup.key)"},
    {"attribute", OPT_TEXT, "+K=V|-K", "set an attribute, or take it away", .many = true},
    {"cluster", OPT_TEXT, "NAME", "on the brokers of this cluster"},
    {"broker", OPT_TEXT, "NAME", "on this broker: its name or host:port", .many = true},
    {NULL},
};

struct attribute {
    const char *key, *value; /* value NULL: to be taken away */
};

struct wish {
    int64_t read, write; /* -1: nothing was said */
    int32_t perm, order;
    struct attribute attributes[ATTRIBUTES_MAX];
    size_t n_attributes;
};

/* What is asked of one broker. */
struct change {
    const struct admin_broker *broker;
    const struct admin_topic *now; /* NULL: it does not have the topic */
    struct admin_topic then;       /* but for the attributes */
    const char *attributes;        /* "+k=v,-k2": those that differ */
    bool differs, done;
};

/* ---- what is wished ---- */

static int attribute_add(struct cli *cli, struct wish *w, const char *key, const char *value)
{
    if (w->n_attributes == ATTRIBUTES_MAX)
        return cli_fail(cli, STATUS_USAGE, NULL, "more than %d attributes", ATTRIBUTES_MAX);
    if (!*key || strpbrk(key, "+-,=") == key || strpbrk(key, ",") ||
        (value && (!*value || strchr(value, ','))))
        return cli_fail(cli, STATUS_USAGE,
                        "--attribute +dedup.key=UNIQ_KEY, --attribute -dedup.key",
                        "an attribute is +NAME=VALUE or -NAME, without commas");
    w->attributes[w->n_attributes++] = (struct attribute){key, value};
    return STATUS_OK;
}

static int attribute_read(struct cli *cli, struct wish *w, const char *text)
{
    if (*text == '-')
        return attribute_add(cli, w, text + 1, NULL);
    text += *text == '+';
    const char *equals = strchr(text, '=');
    if (!equals)
        return attribute_add(cli, w, "", "");
    return attribute_add(cli, w, admin_format(cli, "%.*s", (int)(equals - text), text), equals + 1);
}

static int wish_read(struct cli *cli, struct wish *w)
{
    int64_t both = arg_number(cli, "queues", -1);
    const char *perm = arg_text(cli, "perm", NULL), *order = arg_text(cli, "order", NULL), *text;
    *w = (struct wish){.read = arg_number(cli, "read-queues", both),
                       .write = arg_number(cli, "write-queues", both),
                       .perm = -1,
                       .order = order ? strcmp(order, "yes") == 0 : -1};
    if (w->read > QUEUES_MAX || w->write > QUEUES_MAX || w->read == 0 || w->write == 0)
        return cli_fail(cli, STATUS_USAGE, NULL, "a topic has 1 to %d queues on a broker",
                        QUEUES_MAX);
    if (perm && !admin_perm_value(perm, &w->perm))
        return cli_fail(cli, STATUS_USAGE, NULL, "--perm is rw, r, w or none");
    int status = STATUS_OK;
    if (arg_has(cli, "type"))
        status = attribute_add(cli, w, "message.type", arg_text(cli, "type", NULL));
    if (!status && arg_has(cli, "dedup"))
        status = attribute_add(cli, w, "dedup.key", arg_text(cli, "dedup", NULL));
    for (size_t i = 0; !status && (text = arg_nth(cli, "attribute", i)); i++)
        status = attribute_read(cli, w, text);
    return status;
}

/* ---- what differs ---- */

static void change_plan(struct cli *cli, const struct wish *w, struct change *c)
{
    const struct admin_topic fresh = {.read_queues = QUEUES_DEFAULT,
                                      .write_queues = QUEUES_DEFAULT,
                                      .perm = PERM_READ | PERM_WRITE};
    c->then = c->now ? *c->now : fresh;
    if (w->read >= 0)
        c->then.read_queues = (int32_t)w->read;
    if (w->write >= 0)
        c->then.write_queues = (int32_t)w->write;
    if (w->perm >= 0)
        c->then.perm = w->perm;
    if (w->order >= 0)
        c->then.order = w->order != 0;
    c->attributes = "";
    for (size_t i = 0; i < w->n_attributes; i++) {
        const struct attribute *a = &w->attributes[i];
        const char *now = c->now ? admin_attribute(cli, c->now, a->key) : "";
        if (strcmp(now, a->value ? a->value : "") != 0)
            c->attributes = admin_format(cli, "%s%s%c%s%s%s", c->attributes,
                                         *c->attributes ? "," : "", a->value ? '+' : '-', a->key,
                                         a->value ? "=" : "", a->value ? a->value : "");
    }
    c->differs = !c->now || *c->attributes || c->then.read_queues != c->now->read_queues ||
                 c->then.write_queues != c->now->write_queues || c->then.perm != c->now->perm ||
                 c->then.order != c->now->order;
}

static int shrinking_confirm(struct cli *cli, const char *topic, const struct change *changes,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct change *c = &changes[i];
        if (c->now && c->then.read_queues < c->now->read_queues)
            return cli_confirm(
                cli,
                "%s has %d queues to read on broker %s; with %d, nobody will read what "
                "is in the others. Go on?",
                topic, c->now->read_queues, printable(cli, bytes_str(c->broker->name)),
                c->then.read_queues);
    }
    return STATUS_OK;
}

/* ---- doing it ---- */

static struct admin_ask change_ask(struct cli *cli, const char *topic, const struct change *c)
{
    const struct admin_topic *t = &c->then;
    return (struct admin_ask){
        .server = c->broker->master,
        .broker = c->broker->name,
        .request = REQ_UPDATE_AND_CREATE_TOPIC,
        .fields = admin_fields(cli, ASK("topic", topic, "defaultTopic", "TBW102", "readQueueNums",
                                        admin_format(cli, "%d", t->read_queues), "writeQueueNums",
                                        admin_format(cli, "%d", t->write_queues), "perm",
                                        admin_format(cli, "%d", t->perm), "topicFilterType",
                                        t->multi_tag ? "MULTI_TAG" : "SINGLE_TAG", "topicSysFlag",
                                        admin_format(cli, "%d", t->sys_flag), "order",
                                        t->order ? "true" : "false", "attributes", c->attributes)),
    };
}

static int changes_make(struct cli *cli, const char *topic, struct change *changes, size_t n)
{
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (changes[i].differs)
            asks[count++] = change_ask(cli, topic, &changes[i]);
    int status = count > 0 ? admin_ask_all(cli, asks, count) : STATUS_OK;
    if (status)
        return status;
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (changes[i].differs)
            changes[i].done = asks[count++].code == OMQ_OK;
    return admin_verdict(cli, asks, count);
}

static bool route_has(const struct admin_route *route, const struct change *c)
{
    for (size_t i = 0; i < route->n_queues; i++)
        if (strcmp(route->queues[i].broker, c->broker->name) == 0 &&
            route->queues[i].read_queues == c->then.read_queues &&
            route->queues[i].write_queues == c->then.write_queues &&
            route->queues[i].perm == c->then.perm)
            return true;
    return false;
}

/* Brokers tell the name servers in a moment of their own; whoever sends next asks these. */
static void route_await(struct cli *cli, const char *topic, const struct change *changes, size_t n)
{
    int64_t until = now_ms() + cli_timeout_ms(cli);
    do {
        struct admin_round round;
        struct admin_route route;
        struct omq_error why;
        admin_round_begin(cli, &round);
        bool all = admin_route_try(cli, topic, &route, &why) == OMQ_OK;
        for (size_t i = 0; all && i < n; i++)
            all = !changes[i].done || route_has(&route, &changes[i]);
        admin_round_end(cli, &round);
        if (all)
            return;
        cli_wait(cli, ROUTE_LOOK_MS);
    } while (now_ms() < until && !cli_stopped(cli));
    cli_note(cli, "the name servers do not know of it yet");
}

/* Attributes are shown as the broker has them now. */
static void changes_show(struct cli *cli, const char *topic, const struct admin_cluster *on,
                         const struct change *changes, size_t n)
{
    struct admin_topic *after = NULL;
    size_t n_after = 0;
    if (admin_none(admin_topic_config(cli, on, topic, &after, &n_after)))
        n_after = 0;
    for (size_t i = 0; i < n; i++) {
        const struct change *c = &changes[i];
        const struct admin_topic *now = c->done ? &c->then : c->now;
        for (size_t k = 0; k < n_after; k++)
            if (strcmp(after[k].broker, c->broker->name) == 0)
                now = &after[k];
        row_begin(cli);
        put_text(cli, "topic", topic);
        put_text(cli, "broker", c->broker->name);
        put_text(cli, "result", admin_change_text(c->differs, c->done, c->now != NULL));
        if (now) {
            put_number(cli, "write_queues", now->write_queues);
            put_number(cli, "read_queues", now->read_queues);
            put_text(cli, "perm", admin_perm_text(now->perm));
            put_bool(cli, "order", now->order);
            topic_attributes_put(cli, now);
        }
        row_end(cli);
    }
}

/* Which of the brokers take part. Without --broker and --cluster a topic is made where there is one
 * cluster only; in which of several, nobody can guess. */
static int changes_plan(struct cli *cli, const char *topic, const struct admin_cluster *on,
                        bool create, struct change **out, size_t *n)
{
    struct wish wish;
    struct admin_topic *configs;
    size_t n_configs;
    int status = wish_read(cli, &wish);
    if (!status)
        status = admin_whole(cli, admin_topic_config(cli, on, topic, &configs, &n_configs));
    if (status)
        return status;
    *out = admin_alloc(cli, on->n, sizeof **out);
    *n = 0;
    for (size_t b = 0; b < on->n; b++) {
        struct change *c = &(*out)[*n];
        *c = (struct change){.broker = &on->brokers[b]};
        for (size_t i = 0; i < n_configs; i++)
            if (strcmp(configs[i].broker, c->broker->name) == 0)
                c->now = &configs[i];
        if (!create && !c->now)
            continue;
        if (c->now && !c->now->whole) /* all of it is written back */
            return cli_fail(cli, STATUS_FAILED, "oncemq doctor looks closer",
                            "nothing was done, for broker %s does not tell how many queues %s has",
                            printable(cli, bytes_str(c->broker->name)), topic);
        change_plan(cli, &wish, c);
        (*n)++;
    }
    return *n > 0 ? STATUS_OK : admin_topic_missing(cli, topic);
}

static int topic_change(struct cli *cli, bool create)
{
    const char *topic = arg_at(cli, 0);
    struct admin_cluster on;
    struct change *changes;
    size_t n;
    int status = admin_topic_check(cli, topic);
    if (!status && topic_is_system(bytes_str(topic)))
        status = cli_fail(cli, STATUS_USAGE, NULL, "%s is a topic of the system", topic);
    if (!status)
        status = admin_chosen(cli, &on);
    if (!status && create && !arg_has(cli, "cluster") && !arg_has(cli, "broker") &&
        strcmp(on.brokers[0].cluster, on.brokers[on.n - 1].cluster) != 0)
        status = cli_fail(cli, STATUS_USAGE, "oncemq cluster shows them",
                          "there are several clusters: say which with --cluster");
    if (!status)
        status = admin_masters(cli, &on);
    if (!status)
        status = changes_plan(cli, topic, &on, create, &changes, &n);
    if (!status)
        status = shrinking_confirm(cli, topic, changes, n);
    if (status)
        return status;
    status = changes_make(cli, topic, changes, n);
    if (!admin_none(status))
        route_await(cli, topic, changes, n);
    changes_show(cli, topic, &on, changes, n);
    return status;
}

int topic_create(struct cli *cli)
{
    return topic_change(cli, true);
}

int topic_set(struct cli *cli)
{
    return topic_change(cli, false);
}
