/* group_reset.c - moving a group to another place in its topics.
 *
 * First the plan: each queue's bounds, where the group is, where it is to go. Then, unless
 * --dry-run, the brokers are told, topic by topic (INVOKE_BROKER_TO_RESET_OFFSET), and tell the
 * consumers. For a time that is one request for all queues of a broker; for an offset, or one
 * queue, it is one for each queue, which only brokers know that reset on their side
 * (useServerSideResetOffset, Apache RocketMQ 5). A broker that leaves it to the consumers says that
 * none is there when the group is offline: then the offsets are written as a consumer would.
 */
#include "cli/group_int.h"

#include "remoting/bodies.h"
#include "remoting/codes.h"

#include <inttypes.h>
#include <string.h>

const struct column group_reset_columns[] = {
    {"group", COLUMN_TEXT, NULL, "its name"},
    {"topic", COLUMN_TEXT, "TOPIC", "the topic"},
    {"broker", COLUMN_TEXT, "BROKER", "the queue's broker"},
    {"queue", COLUMN_NUMBER, "QUEUE", "the queue's number"},
    {"min", COLUMN_NUMBER, "FIRST", "offset of its first message"},
    {"max", COLUMN_NUMBER, "END", "offset that the next message will have"},
    {"old", COLUMN_NUMBER, "OLD", "where the group was; null: it had no offset"},
    {"new", COLUMN_NUMBER, "NEW", "where it is now, or would be"},
    {"move", COLUMN_NUMBER, "MOVE", "messages that it skips; negative: that it consumes again"},
    {"result", COLUMN_TEXT, "RESULT", "planned, reset or failed"},
    {NULL},
};

const struct opt group_reset_options[] = {
    {"to", OPT_TEXT, "WHERE",
     "earliest, latest, a time (-1h, 14:30, 2026-11-16T14:30:00Z) or offset:N"},
    {"topic", OPT_TEXT, "TOPIC", "only in this topic", .many = true},
    {"queue", OPT_NUMBER, "N", "only the queue of this number"},
    {"dry-run", OPT_SWITCH, NULL, "only show what would be done"},
    {"cluster", OPT_TEXT, "NAME", "only on the brokers of this cluster"},
    {"broker", OPT_TEXT, "NAME", "only on this broker: its name or host:port", .many = true},
    {NULL},
};

enum where { WHERE_EARLIEST, WHERE_LATEST, WHERE_TIME, WHERE_OFFSET };

struct place {
    const char *topic;
    const struct admin_broker *broker;
    int32_t queue;
    int64_t min, max, old, new; /* old -1: there is none */
    bool done;
};

struct plan {
    const char *group;
    enum where where;
    int64_t value;           /* ms since 1970, or an offset */
    struct admin_cluster on; /* that know the group */
    struct admin_names topics;
    struct place *places; /* by topic, broker and queue */
    size_t n;
};

/* ---- where to ---- */

static int where_read(struct cli *cli, struct plan *plan)
{
    const char *text = arg_text(cli, "to", NULL);
    if (!text)
        return cli_fail(cli, STATUS_USAGE, "--to earliest, --to latest, --to -1h, --to offset:1200",
                        "where to? --to is missing");
    if (strcmp(text, "earliest") == 0)
        plan->where = WHERE_EARLIEST;
    else if (strcmp(text, "latest") == 0)
        plan->where = WHERE_LATEST;
    else if (strncmp(text, "offset:", 7) == 0 && bytes_to_i64(bytes_str(text + 7), &plan->value) &&
             plan->value >= 0)
        plan->where = WHERE_OFFSET;
    else if (value_time(text, now_ms(), &plan->value) && plan->value >= 0)
        plan->where = WHERE_TIME;
    else
        return cli_fail(cli, STATUS_USAGE, NULL,
                        "--to is earliest, latest, a time (-1h, 14:30, 2026-11-16T14:30:00Z) or "
                        "offset:N");
    return STATUS_OK;
}

/* The brokers that know the group. */
static int brokers_find(struct cli *cli, struct plan *plan)
{
    struct admin_cluster all;
    struct admin_group *known;
    size_t n;
    int status = admin_chosen(cli, &all);
    if (!status)
        status = admin_masters(cli, &all);
    if (!status)
        status = admin_whole(cli, admin_group_config(cli, &all, plan->group, &known, &n));
    if (status)
        return status;
    plan->on = (struct admin_cluster){admin_alloc(cli, n, sizeof *plan->on.brokers), 0};
    for (size_t i = 0; i < n; i++)
        plan->on.brokers[plan->on.n++] = *admin_broker_find(&all, known[i].broker);
    return n > 0 ? STATUS_OK : admin_group_missing(cli, &all, plan->group);
}

static int topics_find(struct cli *cli, struct plan *plan)
{
    const char *name;
    size_t n = 0;
    while (arg_nth(cli, "topic", n))
        n++;
    plan->topics.names = admin_alloc(cli, n, sizeof *plan->topics.names);
    while ((name = arg_nth(cli, "topic", plan->topics.n))) {
        int status = admin_topic_check(cli, name);
        if (status)
            return status;
        plan->topics.names[plan->topics.n++] = name;
    }
    if (n > 0)
        return STATUS_OK;
    struct admin_names *found;
    int status = admin_whole(cli, admin_group_topics(cli, &plan->on, &plan->group, 1, &found));
    if (status)
        return status;
    plan->topics.names = admin_alloc(cli, found->n, sizeof *plan->topics.names);
    for (size_t i = 0; i < found->n; i++)
        if (!admin_topic_is_system(NULL, found->names[i]))
            plan->topics.names[plan->topics.n++] = found->names[i];
    return plan->topics.n > 0
               ? STATUS_OK
               : cli_fail(cli, STATUS_NOT_FOUND, "--topic names one in which it is to begin",
                          "group %s has no offsets in any topic", plan->group);
}

/* ---- the plan ---- */

static bool is_read(const struct admin_topic *configs, size_t n, const struct admin_queue_stats *q)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(configs[i].broker, q->broker) == 0)
            return q->queue < configs[i].read_queues;
    return false;
}

static int places_find(struct cli *cli, struct plan *plan)
{
    struct admin_topic_stats *stats;
    int status = admin_whole(
        cli, admin_topic_stats(cli, &plan->on, plan->topics.names, plan->topics.n, &stats));
    size_t max = 0;
    for (size_t t = 0; !status && t < plan->topics.n; t++)
        max += stats[t].n;
    plan->places = admin_alloc(cli, max, sizeof *plan->places);
    int64_t only = arg_number(cli, "queue", -1);
    for (size_t t = 0; !status && t < plan->topics.n; t++) {
        struct admin_topic *configs;
        size_t n;
        const char *topic = plan->topics.names[t];
        status = admin_whole(cli, admin_topic_config(cli, &plan->on, topic, &configs, &n));
        if (!status && n == 0 && arg_has(cli, "topic"))
            return admin_topic_missing(cli, topic);
        for (size_t i = 0; !status && i < stats[t].n; i++) {
            const struct admin_queue_stats *q = &stats[t].queues[i];
            if (is_read(configs, n, q) && (only < 0 || only == q->queue))
                plan->places[plan->n++] =
                    (struct place){.topic = topic,
                                   .broker = admin_broker_find(&plan->on, q->broker),
                                   .queue = q->queue,
                                   .min = q->min,
                                   .max = q->max,
                                   .old = -1};
        }
    }
    if (!status && plan->n == 0)
        status = cli_fail(cli, STATUS_NOT_FOUND, "oncemq topic show lists the queues",
                          "there is no such queue");
    return status;
}

static int64_t offset_of(const struct admin_ask *ask, int64_t fallback)
{
    const char *text = admin_answer_field(ask, "offset");
    int64_t offset;
    return text && bytes_to_i64(bytes_str(text), &offset) && offset >= 0 ? offset : fallback;
}

/* Where the group is, and for a time where that is: two questions for each queue. */
static int places_ask(struct cli *cli, struct plan *plan)
{
    bool by_time = plan->where == WHERE_TIME;
    struct admin_ask *asks = admin_alloc(cli, plan->n * 2, sizeof *asks);
    for (size_t i = 0; i < plan->n; i++) {
        const struct place *p = &plan->places[i];
        const char *queue = admin_format(cli, "%d", p->queue);
        asks[i] = (struct admin_ask){
            .server = p->broker->master,
            .broker = p->broker->name,
            .request = REQ_QUERY_CONSUMER_OFFSET,
            .absent = RES_QUERY_NOT_FOUND,
            .fields = admin_fields(cli, ASK("consumerGroup", plan->group, "topic", p->topic,
                                            "queueId", queue, "setZeroIfNotFound", "false")),
        };
        asks[plan->n + i] = asks[i];
        asks[plan->n + i].request = REQ_SEARCH_OFFSET_BY_TIMESTAMP;
        asks[plan->n + i].fields =
            admin_fields(cli, ASK("topic", p->topic, "queueId", queue, "timestamp",
                                  admin_format(cli, "%" PRId64, plan->value)));
    }
    size_t n = by_time ? plan->n * 2 : plan->n;
    int status = admin_ask_all(cli, asks, n);
    if (!status)
        status = admin_whole(cli, admin_verdict(cli, asks, n));
    for (size_t i = 0; !status && i < plan->n; i++) {
        struct place *p = &plan->places[i];
        p->old = offset_of(&asks[i], -1);
        p->new = plan->where == WHERE_EARLIEST ? p->min
                 : plan->where == WHERE_LATEST ? p->max
                 : by_time                     ? offset_of(&asks[plan->n + i], p->max)
                                               : plan->value;
        p->new = p->new < p->min ? p->min : p->new > p->max ? p->max : p->new;
    }
    return status;
}

static int64_t moved(const struct place *p)
{
    return p->old < 0 ? 0 : p->new - p->old;
}

static void plan_show(struct cli *cli, const struct plan *plan, bool dry)
{
    for (size_t i = 0; i < plan->n; i++) {
        const struct place *p = &plan->places[i];
        row_begin(cli);
        put_text(cli, "group", plan->group);
        put_text(cli, "topic", p->topic);
        put_text(cli, "broker", p->broker->name);
        put_number(cli, "queue", p->queue);
        put_number(cli, "min", p->min);
        put_number(cli, "max", p->max);
        if (p->old >= 0) {
            put_number(cli, "old", p->old);
            put_number(cli, "move", moved(p));
        }
        put_number(cli, "new", p->new);
        put_text(cli, "result", dry ? "planned" : p->done ? "reset" : "failed");
        row_end(cli);
    }
}

static int plan_confirm(struct cli *cli, const struct plan *plan, size_t clients)
{
    double again = 0, skipped = 0;
    for (size_t i = 0; i < plan->n; i++) {
        int64_t move = moved(&plan->places[i]);
        again += move < 0 ? -(double)move : 0;
        skipped += move > 0 ? (double)move : 0;
    }
    return cli_confirm(cli,
                       "reset group %s in %zu queues of %s: %.0f messages will be consumed again, "
                       "%.0f skipped; %zu consumers are connected. Go on?",
                       plan->group, plan->n,
                       admin_list_text(cli, plan->topics.names, plan->topics.n, 5), again, skipped,
                       clients);
}

/* ---- doing it ---- */

static struct admin_ask reset_ask(struct cli *cli, const struct plan *plan, const struct place *p,
                                  bool one_queue)
{
    const char *time = plan->where == WHERE_EARLIEST ? "0"
                       : plan->where == WHERE_TIME   ? admin_format(cli, "%" PRId64, plan->value)
                                                     : "-1";
    const char *queue = admin_format(cli, "%d", p->queue),
               *offset = admin_format(cli, "%" PRId64, p->new);
    return (struct admin_ask){
        .server = p->broker->master,
        .broker = p->broker->name,
        .request = REQ_INVOKE_BROKER_TO_RESET_OFFSET,
        .fields = admin_fields(cli, one_queue ? ASK("topic", p->topic, "group", plan->group,
                                                    "timestamp", time, "isForce", "true", "queueId",
                                                    queue, "offset", offset)
                                              : ASK("topic", p->topic, "group", plan->group,
                                                    "timestamp", time, "isForce", "true")),
    };
}

static struct admin_ask write_ask(struct cli *cli, const struct plan *plan, const struct place *p)
{
    return (struct admin_ask){
        .server = p->broker->master,
        .broker = p->broker->name,
        .request = REQ_UPDATE_CONSUMER_OFFSET,
        .fields = admin_fields(cli, ASK("consumerGroup", plan->group, "topic", p->topic, "queueId",
                                        admin_format(cli, "%d", p->queue), "commitOffset",
                                        admin_format(cli, "%" PRId64, p->new))),
    };
}

/* What the broker says it has set is what is shown. */
static void answer_take(struct cli *cli, const struct admin_ask *ask, struct place *places,
                        size_t n)
{
    struct queue_offset *offsets;
    size_t n_offsets;
    if (queue_offsets_read(ask->text, "offsetTable", &cli->arena, &offsets, &n_offsets))
        return;
    for (size_t i = 0; i < n_offsets; i++)
        for (size_t k = 0; k < n; k++)
            if (offsets[i].queue.queue_id == places[k].queue)
                places[k].new = offsets[i].offset;
}

/* The offsets of an offline group, as one of its consumers would write them. */
static int places_write(struct cli *cli, const struct plan *plan, struct place *places, size_t n)
{
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    for (size_t i = 0; i < n; i++)
        asks[i] = write_ask(cli, plan, &places[i]);
    int status = admin_ask_all(cli, asks, n);
    for (size_t i = 0; !status && i < n; i++)
        places[i].done = asks[i].code == OMQ_OK;
    return status ? status : admin_verdict(cli, asks, n);
}

static int queues_reset(struct cli *cli, const struct plan *plan, struct place *places, size_t n)
{
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    for (size_t i = 0; i < n; i++)
        asks[i] = reset_ask(cli, plan, &places[i], true);
    int status = admin_ask_all(cli, asks, n);
    for (size_t i = 0; !status && i < n; i++)
        places[i].done = asks[i].code == OMQ_OK;
    return status ? status : admin_verdict(cli, asks, n);
}

/* All queues of one topic on one broker. */
static int topic_reset(struct cli *cli, const struct plan *plan, struct place *places, size_t n)
{
    struct admin_ask ask = reset_ask(cli, plan, &places[0], false);
    int status = admin_ask_all(cli, &ask, 1);
    if (status)
        return status;
    if (ask.code && ask.why.response_code == RES_CONSUMER_NOT_ONLINE)
        return places_write(cli, plan, places, n);
    for (size_t i = 0; i < n; i++)
        places[i].done = ask.code == OMQ_OK;
    if (!ask.code)
        answer_take(cli, &ask, places, n);
    return admin_verdict(cli, &ask, 1);
}

/* Single queues can be moved by a broker that does it itself, or for an offline group by us. */
static int queues_check(struct cli *cli, const struct plan *plan, size_t clients, bool *ourselves)
{
    struct admin_node *nodes;
    size_t n;
    int status = admin_whole(cli, admin_settings(cli, &plan->on, false, &nodes, &n));
    *ourselves = false;
    for (size_t i = 0; !status && i < n; i++) {
        if (strcmp(admin_value(&nodes[i], "useServerSideResetOffset", ""), "true") == 0)
            continue;
        if (clients > 0)
            return cli_fail(
                cli, STATUS_FAILED,
                "stop its consumers, or reset all queues, to a time, earliest or latest",
                "broker %s cannot move single queues of a group that is connected; "
                "nothing was changed",
                printable(cli, bytes_str(nodes[i].broker->name)));
        *ourselves = true;
    }
    return status;
}

static int plan_do(struct cli *cli, struct plan *plan, size_t clients)
{
    bool single = plan->where == WHERE_OFFSET || arg_has(cli, "queue"), ourselves = false;
    int status = single ? queues_check(cli, plan, clients, &ourselves) : STATUS_OK;
    if (status)
        return status;
    size_t done = 0, end;
    for (size_t at = 0; at < plan->n; at = end) {
        struct place *first = &plan->places[at];
        for (end = at; end < plan->n && plan->places[end].topic == first->topic &&
                       plan->places[end].broker == first->broker;)
            end++;
        int here = !single     ? topic_reset(cli, plan, first, end - at)
                   : ourselves ? places_write(cli, plan, first, end - at)
                               : queues_reset(cli, plan, first, end - at);
        status = status ? status : here;
    }
    for (size_t i = 0; i < plan->n; i++)
        done += plan->places[i].done;
    return done > 0 && status ? STATUS_PARTLY : status;
}

int group_reset(struct cli *cli)
{
    struct plan plan = {.group = arg_at(cli, 0)};
    struct admin_consumers *consumers;
    bool dry = arg_has(cli, "dry-run");
    int status = admin_group_check(cli, plan.group);
    if (!status)
        status = where_read(cli, &plan);
    if (!status)
        status = brokers_find(cli, &plan);
    if (!status)
        status = topics_find(cli, &plan);
    if (!status)
        status = places_find(cli, &plan);
    if (!status)
        status = places_ask(cli, &plan);
    if (!status)
        status = admin_whole(cli, admin_consumers(cli, &plan.on, &plan.group, 1, &consumers));
    if (!status && !dry)
        status = plan_confirm(cli, &plan, consumers->n);
    if (status)
        return status;
    if (!dry)
        status = plan_do(cli, &plan, consumers->n);
    plan_show(cli, &plan, dry);
    return status;
}
