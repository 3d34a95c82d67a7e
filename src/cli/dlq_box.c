/* dlq_box.c - the dead letters of a group, and how far they are settled. */
#include "cli/dlq_int.h"

#include "remoting/codes.h"

#include <stdlib.h>
#include <string.h>

#define MARK_GROUP    "TOOLS_CONSUMER"
#define ROUTE_LOOK_MS 50

/* ---- marks ---- */

static const char *const *queue_fields(struct cli *cli, const struct omq_queue *queue,
                                       const char *name, const char *value)
{
    return admin_fields(cli, ASK("consumerGroup", MARK_GROUP, "topic", queue->topic, "queueId",
                                 admin_format(cli, "%d", queue->id), name, value));
}

static const char *master_of(const struct admin_cluster *on, const char *broker)
{
    const struct admin_broker *b = admin_broker_find(on, broker);
    return b ? b->master : NULL;
}

static int no_master(struct cli *cli, const struct omq_queue *queue)
{
    return cli_fail(cli, STATUS_UNREACHABLE, "oncemq cluster shows who is there",
                    "broker %s has no master just now: what is settled there is not known",
                    queue->broker);
}

int box_marks_ask(struct cli *cli, const struct admin_cluster *on, const struct omq_queue *queues,
                  size_t n, int64_t *marks)
{
    struct admin_ask *asks = admin_alloc(cli, n + 1, sizeof *asks);
    for (size_t i = 0; i < n; i++) {
        asks[i] = (struct admin_ask){
            .server = master_of(on, queues[i].broker),
            .broker = queues[i].broker,
            .request = REQ_QUERY_CONSUMER_OFFSET,
            .fields = queue_fields(cli, &queues[i], "setZeroIfNotFound", "false"),
            .absent = RES_QUERY_NOT_FOUND,
        };
        if (!asks[i].server)
            return no_master(cli, &queues[i]);
    }
    int status = n > 0 ? admin_ask_all(cli, asks, n) : STATUS_OK;
    if (!status && n > 0)
        status = admin_verdict(cli, asks, n);
    for (size_t i = 0; !status && i < n; i++) {
        const char *offset = admin_answer_field(&asks[i], "offset");
        if (!offset || !bytes_to_i64(bytes_str(offset), &marks[i]) || marks[i] < 0)
            marks[i] = -1;
    }
    return status;
}

/* What is left of a topic's queues, by their marks and notes. */
static int left_of(struct cli *cli, const struct admin_topic_stats *stats,
                   const struct omq_queue *queues, const int64_t *marks, int64_t *left)
{
    *left = 0;
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_queue_stats *q = &stats->queues[i];
        int64_t from = marks[i] > q->min ? marks[i] : q->min;
        struct notes notes = {.next = from};
        struct omq_error why;
        if (notes_read(cli, &queues[i], q->max, &notes, &why)) {
            notes_clear(&notes);
            return cli_fail_omq(cli, &why, NULL);
        }
        if (q->max > from)
            *left = admin_sum(*left, q->max - from - notes_count(&notes, from, q->max));
        notes_clear(&notes);
    }
    return STATUS_OK;
}

int box_left(struct cli *cli, const struct admin_cluster *on, const struct admin_topic_stats *stats,
             size_t n, int64_t *left)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += stats[i].n;
    struct omq_queue *queues = admin_alloc(cli, total + 1, sizeof *queues);
    int64_t *marks = admin_alloc(cli, total + 1, sizeof *marks);
    total = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < stats[i].n; k++)
            queues[total++] = (struct omq_queue){stats[i].topic, stats[i].queues[k].broker,
                                                 stats[i].queues[k].queue};
    int status = box_marks_ask(cli, on, queues, total, marks);
    total = 0;
    for (size_t i = 0; !status && i < n; i++) {
        status = left_of(cli, &stats[i], queues + total, marks + total, &left[i]);
        total += stats[i].n;
    }
    return status;
}

int box_mark(struct box *box)
{
    struct cli *cli = box->cli;
    struct admin_ask *asks = admin_alloc(cli, box->scan.n + 1, sizeof *asks);
    size_t n = 0;
    for (size_t i = 0; i < box->scan.n; i++) {
        const struct omq_queue *queue = &box->scan.queues[i].queue;
        if (box->marks[i].now <= box->marks[i].told)
            continue;
        asks[n++] = (struct admin_ask){
            .server = master_of(&box->cluster, queue->broker),
            .broker = queue->broker,
            .request = REQ_UPDATE_CONSUMER_OFFSET,
            .fields = queue_fields(cli, queue, "commitOffset",
                                   admin_format(cli, "%lld", (long long)box->marks[i].now)),
        };
    }
    int status = n > 0 ? admin_ask_all(cli, asks, n) : STATUS_OK;
    for (size_t i = 0, k = 0; !status && i < box->scan.n; i++)
        if (box->marks[i].now > box->marks[i].told && asks[k++].code == OMQ_OK)
            box->marks[i].told = box->marks[i].now;
    return status || n == 0 ? status : admin_verdict(cli, asks, n);
}

/* ---- opening ---- */

static struct admin_ask readable_ask(struct cli *cli, const struct admin_cluster *on,
                                     const struct admin_topic *t)
{
    return (struct admin_ask){
        .server = master_of(on, t->broker),
        .broker = t->broker,
        .request = REQ_UPDATE_AND_CREATE_TOPIC,
        .fields = admin_fields(cli, ASK("topic", t->topic, "defaultTopic", "TBW102",
                                        "readQueueNums", admin_format(cli, "%d", t->read_queues),
                                        "writeQueueNums", admin_format(cli, "%d", t->write_queues),
                                        "perm", admin_format(cli, "%d", t->perm | PERM_READ),
                                        "topicFilterType", "SINGLE_TAG", "topicSysFlag",
                                        admin_format(cli, "%d", t->sys_flag), "order",
                                        t->order ? "true" : "false")),
    };
}

/* Until the name servers tell of a readable queue on each of these brokers. */
static int readable_await(struct box *box, size_t brokers)
{
    struct cli *cli = box->cli;
    int64_t until = now_ms() + cli_timeout_ms(cli);
    for (;;) {
        struct admin_round round;
        struct admin_route route;
        struct omq_error why;
        size_t readable = 0;
        admin_round_begin(cli, &round);
        bool known = admin_route_try(cli, box->topic, &route, &why) == OMQ_OK;
        for (size_t i = 0; known && i < route.n_queues; i++)
            readable += (route.queues[i].perm & PERM_READ) != 0;
        admin_round_end(cli, &round);
        if (readable >= brokers)
            return STATUS_OK;
        if (now_ms() >= until || cli_stopped(cli))
            return cli_fail(cli, STATUS_FAILED, "try again in a moment",
                            "%s was made readable, but the name servers do not know of it yet",
                            box->topic);
        cli_wait(cli, ROUTE_LOOK_MS);
    }
}

static int make_readable(struct box *box, const struct admin_topic *topics, size_t n)
{
    struct cli *cli = box->cli;
    struct admin_ask *asks = admin_alloc(cli, n, sizeof *asks);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (topics[i].whole && !(topics[i].perm & PERM_READ) &&
            master_of(&box->cluster, topics[i].broker))
            asks[count++] = readable_ask(cli, &box->cluster, &topics[i]);
    if (count == 0)
        return STATUS_OK;
    int status = admin_ask_all(cli, asks, count);
    if (!status)
        status = admin_verdict(cli, asks, count);
    if (status)
        return status;
    cli_note(cli, "%s could not be read, and can be now (permission r)", box->topic);
    return readable_await(box, count);
}

static int scan_marked(struct box *box, bool whole)
{
    struct cli *cli = box->cli;
    int status = scan_open(&box->scan, cli, box->topic);
    if (status)
        return status;
    size_t n = box->scan.n;
    box->marks = admin_alloc(cli, n + 1, sizeof *box->marks);
    box->notes = admin_alloc(cli, n + 1, sizeof *box->notes);
    struct omq_queue *queues = admin_alloc(cli, n + 1, sizeof *queues);
    int64_t *marks = admin_alloc(cli, n + 1, sizeof *marks);
    for (size_t i = 0; i < n; i++)
        queues[i] = box->scan.queues[i].queue;
    status = box_marks_ask(cli, &box->cluster, queues, n, marks);
    for (size_t i = 0; !status && i < n; i++) {
        struct scan_queue *q = &box->scan.queues[i];
        int64_t mark = marks[i] > 0 ? marks[i] : 0;
        box->marks[i] = (struct mark){mark, mark};
        if (marks[i] > q->next && !whole)
            q->next = marks[i];
        struct omq_error why;
        box->notes[i].next = q->next;
        if (notes_read(cli, &q->queue, q->end, &box->notes[i], &why))
            status = cli_fail_omq(cli, &why, NULL);
    }
    return status;
}

/* By the list of all groups: Apache's broker makes a group that it is asked for by name. */
static bool group_is_known(struct box *box)
{
    struct admin_group *groups;
    size_t n;
    if (admin_none(admin_groups(box->cli, &box->cluster, &groups, &n)))
        return true; /* as far as we know */
    for (size_t i = 0; i < n; i++)
        if (strcmp(groups[i].group, box->group) == 0)
            return true;
    return false;
}

int box_open(struct box *box, struct cli *cli, const char *group, bool whole)
{
    *box = (struct box){.cli = cli, .group = group, .topic = admin_format(cli, "%%DLQ%%%s", group)};
    struct admin_topic *topics;
    size_t n;
    int status = admin_group_check(cli, group);
    if (!status)
        status = admin_cluster(cli, &box->cluster);
    if (!status)
        status = admin_topic_config(cli, &box->cluster, box->topic, &topics, &n);
    if (status)
        return status;
    if (n == 0) /* no letter so far; or nobody has heard of the group */
        return group_is_known(box) ? STATUS_OK : admin_group_missing(cli, &box->cluster, group);
    status = make_readable(box, topics, n);
    return status ? status : scan_marked(box, whole);
}

void box_close(struct box *box)
{
    for (size_t i = 0; box->notes && i < box->scan.n; i++)
        notes_clear(&box->notes[i]);
    scan_close(&box->scan);
}

/* ---- what is in it ---- */

void box_notes_refresh(struct box *box)
{
    int status;
    struct omq_client *client = cli_client(box->cli, &status);
    for (size_t i = 0; i < box->scan.n; i++) {
        const struct omq_queue *queue = &box->scan.queues[i].queue;
        struct omq_error why;
        int64_t end;
        if (!omq_offset(client, queue, OMQ_END, &end, &why))
            (void)notes_read(box->cli, queue, end, &box->notes[i], &why);
    }
}

uint64_t box_unsettled(const struct box *box)
{
    uint64_t left = 0;
    for (size_t i = 0; i < box->scan.n; i++) {
        const struct scan_queue *q = &box->scan.queues[i];
        int64_t from = q->next > box->marks[i].told ? q->next : box->marks[i].told;
        if (q->end > from)
            left += (uint64_t)(q->end - from - notes_count(&box->notes[i], from, q->end));
    }
    return left;
}

int box_next(struct box *box, const struct omq_delivery **out, size_t *queue, enum noted *how)
{
    for (;;) {
        struct scan_queue *q;
        int status = scan_next(&box->scan, out, &q);
        if (status || !*out)
            return status;
        *queue = (size_t)(q - box->scan.queues);
        *how = notes_say(&box->notes[*queue], (*out)->offset);
        if (*how != NOTE_ITSELF)
            return STATUS_OK;
    }
}

int box_groups(struct cli *cli, struct admin_names *out)
{
    const char *group = arg_at(cli, 0);
    if (!group == !arg_has(cli, "all"))
        return cli_fail(cli, STATUS_USAGE, "oncemq dlq list shows who has dead letters",
                        "whose dead letters? Name a group, or say --all");
    *out = (struct admin_names){admin_alloc(cli, 1, sizeof *out->names), 0};
    if (group) {
        out->names[out->n++] = group;
        return STATUS_OK;
    }
    struct admin_names topics;
    int status = admin_topics(cli, &topics);
    if (admin_none(status))
        return status;
    out->names = admin_alloc(cli, topics.n + 1, sizeof *out->names);
    for (size_t i = 0; i < topics.n; i++)
        if (bytes_start(bytes_str(topics.names[i]), DLQ_PREFIX))
            out->names[out->n++] = topics.names[i] + DLQ_PREFIX.len;
    return STATUS_OK;
}

/* ---- letters ---- */

static bool has_word(const char *words, const char *wanted)
{
    size_t len = strlen(wanted);
    for (const char *at = words; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, wanted, len) == 0 && (at[len] == ' ' || !at[len]))
            return true;
    }
    return false;
}

bool letter_wanted(const struct cli *cli, const struct omq_delivery *d)
{
    const char *text;
    if (!arg_has(cli, "key") && !arg_has(cli, "id"))
        return true;
    for (size_t i = 0; (text = arg_nth(cli, "key", i)); i++)
        if (has_word(d->keys, text))
            return true;
    for (size_t i = 0; (text = arg_nth(cli, "id", i)); i++)
        if (strcmp(letter_id(d), text) == 0 || strcmp(d->offset_id, text) == 0)
            return true;
    return false;
}

const char *letter_origin(const struct omq_delivery *d)
{
    const char *topic = omq_delivery_property(d, "DLQ_ORIGIN_TOPIC");
    if (!topic || !*topic)
        topic = omq_delivery_property(d, "RETRY_TOPIC");
    return topic && *topic && !bytes_start(bytes_str(topic), DLQ_PREFIX) ? topic : NULL;
}

const char *letter_id(const struct omq_delivery *d)
{
    const char *id = omq_delivery_property(d, "UNIQ_KEY");
    if (!id || !*id)
        id = omq_delivery_property(d, "ORIGIN_MESSAGE_ID");
    return id && *id ? id : d->offset_id;
}
