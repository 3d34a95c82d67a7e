/* trace.c - `oncemq trace`: the story of one message. */
#include "cli/commands_int.h"
#include "cli/dlq_int.h"
#include "cli/find.h"
#include "cli/message.h"
#include "cli/trace_int.h"

#include <stdlib.h>
#include <string.h>

#define BODY_MAX 1000

static const struct column copy_columns[] = {
    {"kind", COLUMN_TEXT, "KIND",
     "message; resent (from the dead letters); waiting (was put aside until its time); retry; dead "
     "letter; note (that the letter was dropped, or sent back before others)"},
    {"topic", COLUMN_TEXT, "TOPIC", "where this copy stands"},
    {"broker", COLUMN_TEXT, "BROKER", "on which broker"},
    {"queue", COLUMN_NUMBER, "QUEUE", "in which queue"},
    {"offset", COLUMN_NUMBER, "OFFSET", "at which place"},
    {"offset_id", COLUMN_TEXT, NULL, "the id of that place"},
    {"stored_ms", COLUMN_TIME, "STORED", "since when"},
    {"failed", COLUMN_NUMBER, "FAILED", "attempts of the group that had failed before it"},
    {NULL},
};

static const struct column group_columns[] = {
    {"group", COLUMN_TEXT, "GROUP", "a group that reads the topic"},
    {"state", COLUMN_TEXT, "STATE",
     "consumed; filtered out (by tag); not yet consumed; retrying; dead letter; dropped (from the "
     "dead letters); broadcast (each member for itself); never read"},
    {"attempts", COLUMN_NUMBER, "ATTEMPTS", "deliveries to this group that are known of"},
    {"offset", COLUMN_NUMBER, "OFFSET", "how far the group is in the message's queue"},
    {"behind", COLUMN_NUMBER, "BEFORE IT",
     "messages of the queue that it will get before this one"},
    {"members", COLUMN_NUMBER, "MEMBERS", "members that are connected now"},
    {"expression", COLUMN_TEXT, "FILTER", "what they subscribe to in the topic"},
    {NULL},
};

static const struct column event_columns[] = {
    {"time_ms", COLUMN_TIME, "TIME", "when it was told"},
    {"event", COLUMN_TEXT, "EVENT",
     "sent, begun (given to a handler), done, failed, committed, rolled back, undecided, recalled"},
    {"group", COLUMN_TEXT, "GROUP", "whose client it was"},
    {"client", COLUMN_TEXT, "CLIENT", "the address of that client"},
    {"attempt", COLUMN_NUMBER, "ATTEMPT", "begun: 1 for the first delivery"},
    {"cost_ms", COLUMN_DURATION, "TOOK", "how long it took"},
    {"result", COLUMN_TEXT, "RESULT", "done, failed: what the handler did, as Java names it"},
    {NULL},
};

static const struct column trace_columns[] = {
    {"id", COLUMN_TEXT, "ID", "its unique id"},
    {"state", COLUMN_TEXT, "State", "stored; waiting (for its time of delivery)"},
    {"deliver_ms", COLUMN_TIME, "Due", "waiting: when it is to be delivered, if that is known"},
    {"topic", COLUMN_TEXT, "Topic", "the topic it was sent to"},
    {"tag", COLUMN_TEXT, "Tag", "its tag"},
    {"keys", COLUMN_TEXT, "Keys", "its keys"},
    {"born_ms", COLUMN_TIME, "Sent", "when it was sent"},
    {"born_host", COLUMN_TEXT, "From", "from where"},
    {"stored_ms", COLUMN_TIME, "Stored", "when it was stored"},
    {"broker", COLUMN_TEXT, "Broker", "where"},
    {"queue", COLUMN_NUMBER, "Queue", "in which queue"},
    {"offset", COLUMN_NUMBER, "Offset", "at which place"},
    {"offset_id", COLUMN_TEXT, "Offset id", "the id of that place"},
    {"attempt", COLUMN_NUMBER, NULL, "1 for the first delivery"},
    {"body_size", COLUMN_SIZE, "Size", "the size of its body"},
    {"body", COLUMN_TEXT, "Body", "its body, if that is UTF-8"},
    {"body64", COLUMN_TEXT, NULL, "its body in base64, if it is not UTF-8"},
    {"properties", COLUMN_MAP, "Properties", "all its properties, also the protocol's own"},
    {"copies", COLUMN_LIST, "Copies", "all that is stored under its id", copy_columns},
    {"groups", COLUMN_LIST, "Groups", "what the groups that read the topic made of it",
     group_columns},
    {"events", COLUMN_LIST, "Events", "what its clients told, if they were set to (message trace)",
     event_columns},
    {NULL},
};

/* ---- copies ---- */

static const char *copy_text(enum copy_kind kind)
{
    static const char *const texts[] = {"message", "resent",      "waiting",
                                        "retry",   "dead letter", "note"};
    return texts[kind];
}

/* The group of a topic such as %RETRY%group, which is where a waiting copy goes. */
static const char *retry_group(struct story *story, const char *topic)
{
    if (!topic || !bytes_start(bytes_str(topic), RETRY_PREFIX))
        return NULL;
    const char *group = topic + RETRY_PREFIX.len;
    size_t len = strlen(group), own = strlen(story->topic);
    if (len > own + 1 && strcmp(group + len - own, story->topic) == 0 &&
        (group[len - own - 1] == '_' || group[len - own - 1] == '+'))
        return admin_format(story->cli, "%.*s", (int)(len - own - 1), group); /* pop has its own */
    return group;
}

static struct copy copy_of(struct story *story, const char *topic, const char *group,
                           const struct omq_delivery *d)
{
    struct copy copy = {.topic = topic, .group = group, .message = d, .dropped = -1};
    struct bytes name = bytes_str(topic);
    if (bytes_start(name, RETRY_PREFIX))
        copy.kind = COPY_RETRY;
    else if (bytes_start(name, DLQ_PREFIX)) {
        int64_t letter;
        enum noted how = note_of(d, topic, &letter);
        copy.kind = how == NOTED_NOT ? COPY_DEAD : COPY_NOTE;
        if (how == NOTED_DROPPED)
            copy.dropped = letter;
    } else if (strcmp(topic, story->topic) != 0) {
        copy.kind = COPY_WAITING;
        copy.group = retry_group(story, omq_delivery_property(d, "REAL_TOPIC"));
    } else if (omq_delivery_property(d, "ONCEMQ_DEAD_LETTER"))
        copy.kind = COPY_RESENT;
    return copy;
}

int story_keep(struct story *story, struct omq_found found)
{
    struct omq_found *more = realloc(story->founds, (story->n_founds + 1) * sizeof *more);
    if (!more) {
        omq_found_free(&found);
        return cli_fail(story->cli, STATUS_FAILED, NULL, "no memory for messages");
    }
    story->founds = more;
    more[story->n_founds++] = found;
    return STATUS_OK;
}

static int found_keep(struct story *story, struct omq_found found, const char *topic,
                      const char *group)
{
    int status = story_keep(story, found);
    if (status || found.n == 0)
        return status;
    struct copy *copies = admin_alloc(story->cli, story->n_copies + found.n, sizeof *copies);
    if (story->n_copies > 0)
        memcpy(copies, story->copies, story->n_copies * sizeof *copies);
    story->copies = copies;
    for (size_t i = 0; i < found.n; i++)
        copies[story->n_copies++] = copy_of(story, topic, group, found.messages[i]);
    return STATUS_OK;
}

int story_look(struct story *story, const char *topic, const char *group)
{
    struct omq_found found;
    int status = find_in(story->cli, &(struct omq_query){.topic = topic, .id = story->id}, &found);
    return status ? status : found_keep(story, found, topic, group);
}

static int by_storing(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    int64_t s = x->message->stored_ms, t = y->message->stored_ms;
    return (s > t) - (s < t);
}

static void copies_put(struct story *story)
{
    struct cli *cli = story->cli;
    struct copy *sorted = admin_alloc(cli, story->n_copies, sizeof *sorted);
    memcpy(sorted, story->copies, story->n_copies * sizeof *sorted);
    qsort(sorted, story->n_copies, sizeof *sorted, by_storing);
    list_open(cli, "copies");
    for (size_t i = 0; i < story->n_copies; i++) {
        const struct omq_delivery *d = sorted[i].message;
        row_begin(cli);
        put_text(cli, "kind", copy_text(sorted[i].kind));
        put_text(cli, "topic", sorted[i].topic);
        put_text(cli, "broker", d->queue.broker[0] ? d->queue.broker : NULL);
        put_number(cli, "queue", d->queue.id);
        put_number(cli, "offset", d->offset);
        put_text(cli, "offset_id", d->offset_id);
        put_number(cli, "stored_ms", d->stored_ms);
        put_number(cli, "failed", d->attempt - 1);
        row_end(cli);
    }
    list_close(cli);
}

/* ---- finding it ---- */

static const char *const waiting_topics[] = {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"};
#define N_WAITING (sizeof waiting_topics / sizeof *waiting_topics)

/* One that waits for its time stands elsewhere, and says where it will go. */
static int find_waiting(struct story *story, const char *id)
{
    for (size_t i = 0; i < N_WAITING && story->n_copies == 0; i++) {
        struct omq_found found;
        int status =
            find_in(story->cli, &(struct omq_query){.topic = waiting_topics[i], .id = id}, &found);
        if (status)
            return status;
        const char *real =
            found.n > 0 ? omq_delivery_property(found.messages[0], "REAL_TOPIC") : NULL;
        story->topic = real ? admin_format(story->cli, "%s", real) : "";
        story->id = id;
        status = found_keep(story, found, waiting_topics[i], NULL);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* The message itself, first among its copies. By the id of a place, the place may be a retry or a
 * dead letter: then the message is looked for by the unique id found there. */
static int find_first(struct story *story, const char *id, const char *topic)
{
    struct cli *cli = story->cli;
    struct omq_found found;
    int status = find_message(cli, id, topic, &found);
    if (status)
        return status;
    if (found.n == 0) {
        omq_found_free(&found);
        return find_waiting(story, id);
    }
    story->id = admin_format(cli, "%s", found.messages[0]->id);
    story->topic = admin_format(cli, "%s", found.messages[0]->queue.topic);
    status = story_look(story, story->topic, NULL);
    if (status || story->n_copies > 0) {
        omq_found_free(&found);
        return status;
    }
    return found_keep(story, found, story->topic, NULL); /* the index does not have it (yet) */
}

int story_find(struct story *story, const char *id, const char *topic)
{
    int status = find_first(story, id, topic);
    if (status || story->n_copies == 0)
        return status;
    for (size_t i = 0; !status && i < N_WAITING; i++)
        if (story->copies[0].kind != COPY_WAITING ||
            strcmp(story->copies[0].topic, waiting_topics[i]) != 0)
            status = story_look(story, waiting_topics[i], NULL);
    return status;
}

void story_close(struct story *story)
{
    for (size_t i = 0; i < story->n_founds; i++)
        omq_found_free(&story->founds[i]);
    free(story->founds);
}

static int find_or_fail(struct story *story, const char *id, const char *topic)
{
    int status = story_find(story, id, topic);
    if (status || story->n_copies > 0)
        return status;
    return cli_fail(story->cli, STATUS_NOT_FOUND,
                    "brokers find a message by its id as long as they keep it; --topic names the "
                    "topic it was sent to",
                    "there is no message with the id %s", printable(story->cli, bytes_str(id)));
}

/* ---- telling it ---- */

static void message_head(struct story *story)
{
    struct cli *cli = story->cli;
    const struct omq_delivery *d = story->copies[0].message;
    bool waits = story->copies[0].kind == COPY_WAITING;
    message_put(cli, d, BODY_MAX);
    put_text(cli, "id", story->id);
    put_text(cli, "topic", story->topic);
    put_text(cli, "state", waits ? "waiting" : "stored");
    const char *due = waits ? omq_delivery_property(d, "TIMER_OUT_MS") : NULL;
    int64_t due_ms;
    if (due && bytes_to_i64(bytes_str(due), &due_ms))
        put_number(cli, "deliver_ms", due_ms);
}

static int groups_put(struct story *story, const struct admin_names *groups)
{
    struct cli *cli = story->cli;
    struct group_state *states;
    int status = story_group_states(story, groups, &states);
    if (admin_none(status))
        return status;
    list_open(cli, "groups");
    for (size_t i = 0; i < groups->n; i++) {
        const struct group_state *s = &states[i];
        row_begin(cli);
        put_text(cli, "group", s->group);
        put_text(cli, "state", s->state);
        put_number(cli, "attempts", s->attempts);
        if (s->offset >= 0) {
            put_number(cli, "offset", s->offset);
            put_number(cli, "behind", s->behind);
        }
        put_number(cli, "members", s->members);
        if (s->expression)
            put_text(cli, "expression", s->expression);
        row_end(cli);
    }
    list_close(cli);
    return status;
}

static void event_put(struct cli *cli, const struct told *t)
{
    static const char *const results[] = {"SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL",
                                          "FAILED"};
    const struct trace_event *e = &t->event;
    row_begin(cli);
    if (e->time_ms > 0)
        put_number(cli, "time_ms", e->time_ms);
    put_text(cli, "event", told_text(t));
    if (e->group.len > 0)
        put_bytes(cli, "group", e->group);
    put_text(cli, "client", t->client);
    if (e->retries >= 0)
        put_number(cli, "attempt", e->retries < INT64_MAX ? e->retries + 1 : e->retries);
    if (e->cost_ms >= 0)
        put_number(cli, "cost_ms", e->cost_ms);
    if (e->result >= 0 && e->result < 5)
        put_text(cli, "result", results[e->result]);
    row_end(cli);
}

static int events_put(struct story *story)
{
    struct told *told;
    size_t n;
    int status = story_events(story, arg_text(story->cli, "trace-topic", TRACE_TOPIC), &told, &n);
    if (status)
        return status;
    list_open(story->cli, "events");
    for (size_t i = 0; i < n; i++)
        event_put(story->cli, &told[i]);
    list_close(story->cli);
    return STATUS_OK;
}

static int trace_run(struct cli *cli)
{
    struct story story = {.cli = cli};
    struct admin_names groups = {0};
    cli_catch_stop(cli);
    int status = admin_cluster(cli, &story.cluster);
    if (!admin_none(status))
        status =
            admin_join(status, find_or_fail(&story, arg_at(cli, 0), arg_text(cli, "topic", NULL)));
    if (!status)
        status = story_groups(&story, &groups);
    if (!admin_none(status) && story.n_copies > 0) {
        row_begin(cli);
        message_head(&story);
        copies_put(&story);
        status = admin_join(status, groups_put(&story, &groups));
        if (!admin_none(status))
            status = admin_join(status, events_put(&story));
        row_end(cli);
    }
    story_close(&story);
    return status;
}

static const struct opt trace_options[] = {
    {"topic", OPT_TEXT, "TOPIC", "the topic it was sent to; default: all topics are asked",
     .letter = 't'},
    {"trace-topic", OPT_TEXT, "TOPIC", "where clients send their trace; RMQ_SYS_TRACE_TOPIC"},
    {NULL},
};

const struct command trace_commands[] = {
    {
        .name = "trace",
        .arguments = "ID",
        .summary = "the story of a message: where it is, who consumed it, retries, dead letters",
        .text =
            "The id is the message's unique id, or the id of a place where it stands (offset id). "
            "Of each group that reads the topic it is said whether it has the message behind it: "
            "its offset, its retries and dead letters are looked at. Clients that send message "
            "trace (oncemq send --trace, and the trace options of RocketMQ's clients) add what "
            "they did and when.",
        .examples = "oncemq trace 0A0000070001B1AAC2EE55C3A1F20000\n"
                    "oncemq trace 0A0000070001B1AAC2EE55C3A1F20000 --topic orders --json",
        .options = trace_options,
        .shape = SHAPE_ONE,
        .columns = trace_columns,
        .run = trace_run,
    },
    {NULL},
};
