/* top_survey.c - one look at a cluster: top_int.h tells the model. */
#include "cli/top_int.h"
#include "remoting/codes.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define BATCH 32 /* topics or groups that are asked after at once */

static uint64_t ticks_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static const struct json *ask(struct survey *s, const char *server, int request,
                              const char *const *fields)
{
    const struct json *body;
    struct omq_error why;
    return admin_ask(&s->cli, server, request, fields, (struct bytes){0}, &body, &why) ? NULL
                                                                                       : body;
}

static const char *text_copy(struct survey *s, const char *text)
{
    char *copy = admin_alloc(&s->cli, strlen(text), 1);
    memcpy(copy, text, strlen(text));
    return copy;
}

/* A second; NAN: nothing to compare with. A counter that went back began anew. */
static double rate(int64_t now, int64_t then, uint64_t now_ns, uint64_t then_ns)
{
    if (now_ns <= then_ns)
        return NAN;
    return now > then ? (double)(now - then) * 1e9 / (double)(now_ns - then_ns) : 0;
}

static double add(double sum, double more)
{
    return isnan(more) ? sum : isnan(sum) ? more : sum + more;
}

/* ---- brokers ---- */

static bool is_asked(const struct top_broker *b, bool up)
{
    return b->address && !b->forgotten && (b->up || !up);
}

/* The same question to each; who has no address, or is not `up`, has no answer. */
static struct admin_ask *brokers_ask(struct survey *s, struct admin_ask like, bool up)
{
    struct admin_ask *asks = admin_alloc(&s->cli, s->n_brokers, sizeof *asks),
                     *some = admin_alloc(&s->cli, s->n_brokers, sizeof *some);
    size_t n = 0;
    for (size_t i = 0; i < s->n_brokers; i++) {
        like.server = s->brokers[i].address;
        if (is_asked(&s->brokers[i], up))
            some[n++] = like;
    }
    bool failed = admin_ask_all(&s->cli, some, n);
    n = 0;
    for (size_t i = 0; !failed && i < s->n_brokers; i++)
        if (is_asked(&s->brokers[i], up))
            asks[i] = some[n++];
    return asks;
}

static double real_of(const struct json *table, const char *name)
{
    struct bytes text = json_text(json_member(table, name), BYTES(""));
    char number[32] = "";
    if (text.len == 0 || text.len >= sizeof number)
        return NAN;
    memcpy(number, text.at, text.len);
    char *end;
    double value = strtod(number, &end);
    return *end ? NAN : value;
}

static const struct top_broker *broker_then(const struct survey *then, const char *name)
{
    for (size_t i = 0; then && i < then->n_brokers; i++)
        if (strcmp(then->brokers[i].name, name) == 0)
            return &then->brokers[i];
    return NULL;
}

static void broker_take(struct survey *s, const struct survey *then, struct top_broker *b,
                        const struct json *body)
{
    const struct json *table = json_member(body, "table");
    b->in = b->out = b->refused = b->put_99 = b->get_99 = b->disk = NAN;
    b->version = "";
    b->duplicates = -1;
    if (!table)
        return;
    b->up = true;
    b->version = admin_text(&s->cli, json_member(table, "brokerVersionDesc"));
    b->ours = strncmp(b->version, "OnceMQ", 6) == 0;
    int64_t clock_ms = admin_time(json_member(table, "currentTimestamp"));
    b->ahead_ms = clock_ms < 0 ? 0 : clock_ms - now_ms();
    b->put = admin_number(json_member(table, "msgPutTotalTodayNow"));
    b->got = admin_number(json_member(table, "msgGetTotalTodayNow"));
    b->duplicates = json_int(json_member(table, "duplicatesRefused"), -1);
    if (b->duplicates >= 0) /* at the producer, and at consumers by the once ledger */
        b->duplicates = admin_sum(b->duplicates, json_int(json_member(table, "onceSuppressed"), 0));
    b->put_99 = real_of(table, "putLatency99");
    b->get_99 = real_of(table, "getLatency99");
    b->disk = real_of(table, "commitLogDiskRatio");
    const struct top_broker *old = broker_then(then, b->name);
    if (!old || !old->up)
        return;
    b->in = rate(b->put, old->put, s->at_ns, then->at_ns);
    b->out = rate(b->got, old->got, s->at_ns, then->at_ns);
    if (b->duplicates >= 0)
        b->refused = rate(b->duplicates, old->duplicates, s->at_ns, then->at_ns);
}

/* What was there before and is not any more. */
static void broker_keep(struct survey *s, const struct top_broker *old, bool forgotten)
{
    s->brokers[s->n_brokers++] = (struct top_broker){
        .name = text_copy(s, old->name),
        .cluster = text_copy(s, old->cluster),
        .address = old->address ? text_copy(s, old->address) : NULL,
        .forgotten = forgotten,
    };
}

/* The name servers forget a broker at once when its connection breaks. Whoever looks at it just
 * then wants to see that it is gone, so it stays, and is not asked, until they know it again. */
static void brokers_list(struct survey *s, const struct survey *then)
{
    bool silent = admin_cluster_of(&s->cli, NULL, &s->cluster, &s->trouble) != OMQ_OK;
    if (silent)
        s->cluster = (struct admin_cluster){0};
    else
        s->trouble = (struct omq_error){0};
    const struct admin_broker *found = s->cluster.brokers;
    s->brokers =
        admin_alloc(&s->cli, s->cluster.n + (then ? then->n_brokers : 0), sizeof *s->brokers);
    for (size_t i = 0; i < s->cluster.n; i++)
        s->brokers[s->n_brokers++] = (struct top_broker){
            .name = found[i].name, .cluster = found[i].cluster, .address = found[i].master};
    for (size_t i = 0; then && i < then->n_brokers; i++)
        if (!admin_broker_find(&s->cluster, then->brokers[i].name))
            broker_keep(s, &then->brokers[i], !silent);
}

static void cluster_take(struct survey *s, const struct survey *then)
{
    brokers_list(s, then);
    s->in = s->out = s->refused = NAN;
    s->duplicates = -1;
    struct admin_ask *asks =
        brokers_ask(s, (struct admin_ask){.request = REQ_GET_BROKER_RUNTIME_INFO}, false);
    for (size_t i = 0; i < s->n_brokers; i++) {
        struct top_broker *b = &s->brokers[i];
        broker_take(s, then, b, asks[i].json);
        s->in = add(s->in, b->in);
        s->out = add(s->out, b->out);
        s->refused = add(s->refused, b->refused);
        if (b->duplicates >= 0)
            s->duplicates = admin_sum(s->duplicates < 0 ? 0 : s->duplicates, b->duplicates);
    }
}

/* ---- queues and groups ---- */

static int queue_order(const void *a, const void *b)
{
    const struct top_queue *x = a, *y = b;
    int order = strcmp(x->group, y->group);
    order = order ? order : strcmp(x->topic, y->topic);
    order = order ? order : strcmp(x->broker, y->broker);
    return order ? order : (x->queue > y->queue) - (x->queue < y->queue);
}

static int group_order(const void *a, const void *b)
{
    const struct top_group *x = a, *y = b;
    int order = strcmp(x->group, y->group);
    return order ? order : strcmp(x->topic, y->topic);
}

static bool is_wanted(const struct survey *s, const struct survey_plan *plan, const char *group,
                      const char *topic)
{
    if ((plan->group && strcmp(plan->group, group) != 0) ||
        (plan->topic && strcmp(plan->topic, topic) != 0))
        return false;
    return plan->all || plan->group || plan->topic || !admin_topic_is_system(&s->cluster, topic) ||
           strncmp(topic, "%RETRY%", 7) == 0;
}

static size_t entries_count(const struct json *list)
{
    size_t n = 0;
    json_each(one, list)
        json_each(topics, one)
            json_each(stats, topics)
                n += json_member(stats, "offsetTable") ? json_member(stats, "offsetTable")->n : 0;
    return n;
}

/* One entry of a group's offsetTable; its key is the queue. */
static void queue_take(struct survey *s, const struct top_broker *broker, const char *group,
                       const struct json *entry)
{
    struct top_queue *q = &s->queues[s->n_queues++];
    *q = (struct top_queue){
        .group = group,
        .topic = admin_text(&s->cli, json_member(entry->key, "topic")),
        .broker = broker->name,
        .queue = json_int(json_member(entry->key, "queueId"), -1),
        .end = admin_number(json_member(entry, "brokerOffset")),
        .offset = admin_number(json_member(entry, "consumerOffset")),
        .in = NAN,
        .out = NAN,
    };
    int64_t last_ms = admin_number(json_member(entry, "lastTimestamp"));
    q->lag = q->end > q->offset ? q->end - q->offset : 0;
    int64_t behind_ms = admin_sum(s->at_ms, broker->ahead_ms) - last_ms;
    q->behind_ms = q->lag > 0 && last_ms > 0 ? (behind_ms > 0 ? behind_ms : 0)
                   : q->lag > 0              ? -1
                                             : 0;
}

static void queues_take(struct survey *s, const struct survey_plan *plan)
{
    struct admin_ask like = {.request = REQ_GET_BROKER_CONSUME_STATS,
                             .fields = ASK("isOrder", "false")};
    struct admin_ask *asks = brokers_ask(s, like, true);
    size_t n = 0;
    for (size_t i = 0; i < s->n_brokers; i++)
        n += entries_count(json_member(asks[i].json, "consumeStatsList"));
    s->queues = admin_alloc(&s->cli, n, sizeof *s->queues);
    for (size_t i = 0; i < s->n_brokers; i++)
        json_each(one, json_member(asks[i].json, "consumeStatsList"))
            json_each(topics, one) {
                const char *group = admin_text(&s->cli, topics->key);
                json_each(stats, topics)
                    json_each(entry, json_member(stats, "offsetTable")) {
                        queue_take(s, &s->brokers[i], group, entry);
                        const struct top_queue *q = &s->queues[s->n_queues - 1];
                        s->n_queues -= !is_wanted(s, plan, group, q->topic);
                    }
            }
    qsort(s->queues, s->n_queues, sizeof *s->queues, queue_order);
}

static void queue_rates(struct survey *s, const struct survey *then)
{
    for (size_t i = 0; i < s->n_queues; i++) {
        struct top_queue *q = &s->queues[i];
        const struct top_queue *old =
            then && then->n_queues > 0
                ? bsearch(q, then->queues, then->n_queues, sizeof *q, queue_order)
                : NULL;
        if (!old)
            continue;
        q->in = rate(q->end, old->end, s->at_ns, then->at_ns);
        q->out = rate(q->offset, old->offset, s->at_ns, then->at_ns);
    }
}

static void groups_make(struct survey *s, const struct survey *then)
{
    s->groups = admin_alloc(&s->cli, s->n_queues, sizeof *s->groups);
    struct top_group *g = NULL;
    for (size_t i = 0; i < s->n_queues; i++) {
        const struct top_queue *q = &s->queues[i];
        if (!g || strcmp(g->group, q->group) != 0 || strcmp(g->topic, q->topic) != 0) {
            g = &s->groups[s->n_groups++];
            *g = (struct top_group){.group = q->group,
                                    .topic = q->topic,
                                    .members = -1,
                                    .in = NAN,
                                    .out = NAN,
                                    .get_99 = NAN};
            const struct top_group *old =
                then && then->n_groups > 0
                    ? bsearch(g, then->groups, then->n_groups, sizeof *g, group_order)
                    : NULL;
            if (old) {
                g->members = old->members;
                g->get_99 = old->get_99;
            }
        }
        g->queues++;
        g->end = admin_sum(g->end, q->end);
        g->offset = admin_sum(g->offset, q->offset);
        g->lag = admin_sum(g->lag, q->lag);
        g->behind_ms = q->behind_ms > g->behind_ms ? q->behind_ms : g->behind_ms;
        g->in = add(g->in, q->in);
        g->out = add(g->out, q->out);
        s->lag = admin_sum(s->lag, q->lag);
    }
}

/* ---- topics ---- */

static int topic_order(const void *a, const void *b)
{
    return strcmp(((const struct top_topic *)a)->name, ((const struct top_topic *)b)->name);
}

static bool topic_wanted(const struct survey *s, const struct survey_plan *plan, const char *topic)
{
    if (plan->topic)
        return strcmp(plan->topic, topic) == 0;
    for (size_t i = 0; plan->group && i < s->n_groups; i++)
        if (strcmp(s->groups[i].topic, topic) == 0)
            return true;
    return !plan->group && (plan->all || !admin_topic_is_system(&s->cluster, topic));
}

static void topics_list(struct survey *s, const struct survey *then, const struct survey_plan *plan)
{
    const struct json *body = ask(s, NULL, REQ_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NULL);
    const struct json *list = json_member(body, "topicList");
    size_t n = list ? list->n : !body && then ? then->n_topics : 0;
    s->topics = admin_alloc(&s->cli, n, sizeof *s->topics);
    json_each(name, list) {
        const char *text = admin_text(&s->cli, name);
        if (topic_wanted(s, plan, text))
            s->topics[s->n_topics++].name = text;
    }
    for (size_t i = 0; !body && i < n; i++)
        s->topics[s->n_topics++].name = text_copy(s, then->topics[i].name);
    qsort(s->topics, s->n_topics, sizeof *s->topics, topic_order);
    for (size_t i = 0; i < s->n_topics; i++) {
        struct top_topic *t = &s->topics[i];
        const struct top_topic *old =
            then && then->n_topics > 0
                ? bsearch(t, then->topics, then->n_topics, sizeof *t, topic_order)
                : NULL;
        const char *name = t->name;
        *t = old ? *old : (struct top_topic){.in = NAN, .put_99 = NAN, .get_99 = NAN};
        t->name = name;
        t->out = NAN;
    }
}

/* What is asked of each broker that is there about one topic, and about one group. */
enum topic_question { TOPIC_QUEUES, TOPIC_PUT_99, TOPIC_GET_99, TOPIC_QUESTIONS };
enum group_question { GROUP_MEMBERS, GROUP_GET_99, GROUP_QUESTIONS };

/* In ms; NAN: the broker has no such statistic. The highest of all brokers counts. */
static double latency_of(const struct json *body, double sofar)
{
    const struct json *minute = json_member(body, "statsMinute");
    double found = minute ? real_of(minute, "avgpt") : NAN;
    return isnan(sofar) || found > sofar ? found : sofar;
}

static struct admin_ask stat_ask(struct survey *s, const char *stat, const char *key)
{
    return (struct admin_ask){.request = REQ_VIEW_BROKER_STATS_DATA,
                              .fields =
                                  admin_fields(&s->cli, ASK("statsName", stat, "statsKey", key))};
}

static const char *topic_name(const struct survey *s, size_t row)
{
    return s->topics[row].name;
}

static const char *group_name(const struct survey *s, size_t row)
{
    return s->groups[row].group;
}

static void topic_asks(struct survey *s, size_t row, struct admin_ask *asks)
{
    const char *name = s->topics[row].name;
    asks[TOPIC_QUEUES] = (struct admin_ask){
        .request = REQ_GET_TOPIC_STATS_INFO,
        .fields = admin_fields(&s->cli, ASK("topic", name)),
    };
    asks[TOPIC_PUT_99] = stat_ask(s, "TOPIC_PUT_LATENCY_99", name);
    asks[TOPIC_GET_99] = stat_ask(s, "TOPIC_GET_LATENCY_99", name);
}

static void group_asks(struct survey *s, size_t row, struct admin_ask *asks)
{
    const struct top_group *g = &s->groups[row];
    asks[GROUP_MEMBERS] = (struct admin_ask){
        .request = REQ_GET_CONSUMER_LIST_BY_GROUP,
        .fields = admin_fields(&s->cli, ASK("consumerGroup", g->group)),
    };
    asks[GROUP_GET_99] =
        stat_ask(s, "GROUP_GET_LATENCY_99", admin_format(&s->cli, "%s@%s", g->topic, g->group));
}

/* Puts `per` questions about each of n rows to each broker that is there, all at once; statistics
 * of ours only to our own. The answers stand by row, broker and question. */
static struct admin_ask *details_ask(struct survey *s, struct admin_ask *about, size_t n,
                                     size_t per)
{
    size_t all = n * s->n_brokers * per, n_some = 0;
    struct admin_ask *asks = admin_alloc(&s->cli, all, sizeof *asks),
                     *some = admin_alloc(&s->cli, all, sizeof *some);
    size_t *where = admin_alloc(&s->cli, all, sizeof *where);
    for (size_t i = 0; i < all; i++) {
        const struct top_broker *b = &s->brokers[i / per % s->n_brokers];
        struct admin_ask ask = about[i / per / s->n_brokers * per + i % per];
        ask.server = b->address;
        if (!b->up || (ask.request == REQ_VIEW_BROKER_STATS_DATA && !b->ours))
            continue;
        where[n_some] = i;
        some[n_some++] = ask;
    }
    if (admin_ask_all(&s->cli, some, n_some) == STATUS_OK)
        for (size_t i = 0; i < n_some; i++)
            asks[where[i]] = some[i];
    return asks;
}

static void topic_learn(struct survey *s, size_t row, const struct admin_ask *answers)
{
    struct top_topic *t = &s->topics[row];
    struct top_topic now = {
        .name = t->name, .in = NAN, .out = t->out, .put_99 = NAN, .get_99 = NAN};
    for (size_t i = 0; i < s->n_brokers; i++, answers += TOPIC_QUESTIONS) {
        json_each(queue, json_member(answers[TOPIC_QUEUES].json, "offsetTable")) {
            int64_t end = admin_number(json_member(queue, "maxOffset")),
                    first = admin_number(json_member(queue, "minOffset"));
            now.queues++;
            now.end = admin_sum(now.end, end);
            now.messages = admin_sum(now.messages, end > first ? end - first : 0);
        }
        now.put_99 = latency_of(answers[TOPIC_PUT_99].json, now.put_99);
        now.get_99 = latency_of(answers[TOPIC_GET_99].json, now.get_99);
    }
    now.at_ns = ticks_ns();
    if (t->at_ns && now.queues == t->queues)
        now.in = rate(now.end, t->end, now.at_ns, t->at_ns);
    *t = now;
}

static void group_learn(struct survey *s, size_t row, const struct admin_ask *answers)
{
    struct top_group *g = &s->groups[row];
    g->members = 0;
    g->get_99 = NAN;
    for (size_t i = 0; i < s->n_brokers; i++, answers += GROUP_QUESTIONS) {
        /* A broker without members refuses; members are with all of them. */
        const struct json *list = json_member(answers[GROUP_MEMBERS].json, "consumerIdList");
        int64_t here = list ? (int64_t)list->n : 0;
        g->members = here > g->members ? here : g->members;
        g->get_99 = latency_of(answers[GROUP_GET_99].json, g->get_99);
    }
}

static void topics_out(struct survey *s)
{
    for (size_t i = 0; i < s->n_groups; i++) {
        const struct top_topic key = {.name = s->groups[i].topic};
        struct top_topic *t =
            s->n_topics > 0 ? bsearch(&key, s->topics, s->n_topics, sizeof *t, topic_order) : NULL;
        if (t)
            t->out = add(t->out, s->groups[i].out);
    }
}

/* ---- one by one ---- */

/* Rows that are asked after one by one, some at a time: topics, or groups. */
struct detail {
    size_t n, questions;
    const char *(*name)(const struct survey *s, size_t row); /* they stand by it */
    void (*asks)(struct survey *s, size_t row, struct admin_ask *asks);
    void (*learn)(struct survey *s, size_t row, const struct admin_ask *answers);
};

/* The first row whose name is not before `name`; 0 when all are. */
static size_t row_from(const struct survey *s, const struct detail *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->name(s, i), name) >= 0)
            return i;
    return 0;
}

/* Some rows, from `at` on; as many as were asked after. */
static size_t batch_take(struct survey *s, const struct detail *d, size_t at, size_t left)
{
    size_t n = left < BATCH ? left : BATCH;
    struct admin_ask *about = admin_alloc(&s->cli, n * d->questions, sizeof *about);
    for (size_t i = 0; i < n; i++)
        d->asks(s, (at + i) % d->n, about + i * d->questions);
    const struct admin_ask *answers = details_ask(s, about, n, d->questions);
    for (size_t i = 0; i < n; i++)
        d->learn(s, (at + i) % d->n, answers + i * s->n_brokers * d->questions);
    return n;
}

/* Goes on where `next` says, until all are done or time is up, and says where to go on then. */
static void detail_take(struct survey *s, const struct detail *d, struct survey_next *next,
                        int64_t until_ms)
{
    size_t at = row_from(s, d, next->name), done = 0;
    while (done < d->n && now_ms() <= until_ms)
        done += batch_take(s, d, at + done, d->n - done);
    if (d->n > 0)
        (void)snprintf(next->name, sizeof next->name, "%s", d->name(s, (at + done) % d->n));
}

/* Topics for two thirds of the time, then groups. */
static void details_take(struct survey *s, struct survey_plan *plan)
{
    int64_t began = now_ms();
    const struct detail topics = {s->n_topics, TOPIC_QUESTIONS, topic_name, topic_asks,
                                  topic_learn};
    const struct detail groups = {s->n_groups, GROUP_QUESTIONS, group_name, group_asks,
                                  group_learn};
    detail_take(s, &topics, &plan->next_topic, admin_sum(began, plan->budget_ms / 3 * 2));
    detail_take(s, &groups, &plan->next_group, admin_sum(began, plan->budget_ms));
}

/* ---- a survey ---- */

void survey_open(struct survey *s, const struct cli *cli)
{
    *s = (struct survey){.cli = *cli};
    arena_init(&s->cli.arena, (size_t)1 << 30);
}

void survey_close(struct survey *s)
{
    arena_clear(&s->cli.arena);
}

void survey_take(struct survey *s, const struct survey *then, struct survey_plan *plan)
{
    struct cli cli = s->cli;
    arena_reset(&cli.arena);
    *s = (struct survey){.cli = cli, .at_ns = ticks_ns(), .at_ms = now_ms()};
    cluster_take(s, then);
    queues_take(s, plan);
    queue_rates(s, then);
    groups_make(s, then);
    topics_list(s, then, plan);
    topics_out(s);
    details_take(s, plan);
}
