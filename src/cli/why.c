/* why.c - `oncemq why`: the life of one message, or of all messages of a key, and what became of it
 * in each group. */
#include "cli/why_int.h"

#include "cli/commands_int.h"
#include "cli/find.h"

#include <stdlib.h>
#include <string.h>

static const struct column message_columns[] = {
    {"id", COLUMN_TEXT, "ID", "its unique id"},
    {"topic", COLUMN_TEXT, "TOPIC", "the topic it was sent to"},
    {"keys", COLUMN_TEXT, "KEYS", "its keys"},
    {"state", COLUMN_TEXT, "STATE", "stored; waiting (for its time of delivery)"},
    {"stored_ms", COLUMN_TIME, "STORED", "when it was stored"},
    {"broker", COLUMN_TEXT, NULL, "where"},
    {"queue", COLUMN_NUMBER, "QUEUE", "in which queue"},
    {"offset", COLUMN_NUMBER, "OFFSET", "at which place"},
    {"due_ms", COLUMN_TIME, "DUE", "waiting: when it comes", .optional = true},
    {NULL},
};

static const struct column answer_columns[] = {
    {"id", COLUMN_TEXT, "MESSAGE", "the message"},
    {"group", COLUMN_TEXT, "GROUP", "a group that reads its topic; null: there is none"},
    {"state", COLUMN_TEXT, "STATE",
     "done; suppressed; refused; running; abandoned; failed; unsure; forgotten; dead letter; "
     "retrying; consumed; not yet consumed; filtered out; never read; broadcast; unread; waiting"},
    {"because", COLUMN_TEXT, "BECAUSE", "the same in a sentence"},
    {NULL},
};

static const struct column event_columns[] = {
    {"time_ms", COLUMN_TIME, "TIME", "when it happened"},
    {"event", COLUMN_TEXT, "EVENT",
     "stored, waiting, retry, dead letter, resent (copies); claimed, renewed, done, released, "
     "forgotten, step, suppressed, refused, lost (the ledger); sent, begun, done, failed … (what "
     "clients told: message trace)"},
    {"group", COLUMN_TEXT, "GROUP", "whose"},
    {"client", COLUMN_TEXT, "CLIENT", "by whom"},
    {"id", COLUMN_TEXT, "MESSAGE", "which message, if it is known"},
    {"detail", COLUMN_TEXT, "DETAIL", "the place, the fence and the end of a claim, and so on"},
    {NULL},
};

static const struct column columns[] = {
    {"subject", COLUMN_TEXT, "Asked for", "the id or key"},
    {"kind", COLUMN_TEXT, "Which is", "message; key"},
    {"messages", COLUMN_LIST, "Messages", "at most 16", message_columns},
    {"answers", COLUMN_LIST, "Answers", "what became of each, in each group", answer_columns},
    {"events", COLUMN_LIST, "Events", "all that is known, by time", event_columns},
    {NULL},
};

/* ---- events ---- */

struct line {
    int64_t time_ms;
    size_t number; /* of two at the same time the first was found first */
    const char *event, *group, *client, *id, *detail;
};

struct lines {
    struct line *at;
    size_t n, room;
};

static void line_add(struct cli *cli, struct lines *lines, struct line line)
{
    if (lines->n == lines->room) {
        size_t room = 2 * lines->room + 64;
        struct line *more = admin_alloc(cli, room, sizeof *more);
        if (lines->n > 0)
            memcpy(more, lines->at, lines->n * sizeof *more);
        lines->at = more;
        lines->room = room;
    }
    line.number = lines->n;
    lines->at[lines->n++] = line;
}

static int by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->time_ms != y->time_ms)
        return x->time_ms < y->time_ms ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void copies_tell(struct why *w, struct story *story, struct lines *lines)
{
    static const char *const events[] = {"stored", "resent", "waiting", "retry", "dead letter"};
    for (size_t i = 0; i < story->n_copies; i++) {
        const struct copy *c = &story->copies[i];
        int64_t due_ms = c->kind == COPY_WAITING ? why_due_ms(w, c) : -1;
        const char *place = admin_format(w->cli, "%s, queue %d, offset %lld", c->topic,
                                         c->message->queue.id, (long long)c->message->offset);
        if (due_ms >= 0)
            place = admin_format(w->cli, "until %s, in %s", why_time(w->cli, due_ms), place);
        line_add(w->cli, lines,
                 (struct line){.time_ms = c->message->stored_ms,
                               .event = events[c->kind],
                               .group = c->group,
                               .id = story->id,
                               .detail = place});
    }
}

static int clients_tell(struct why *w, struct story *story, struct lines *lines)
{
    struct told *told;
    size_t n;
    int status = story_events(story, TRACE_TOPIC, &told, &n);
    for (size_t i = 0; !status && i < n; i++) {
        const struct trace_event *e = &told[i].event;
        line_add(w->cli, lines,
                 (struct line){.time_ms = e->time_ms,
                               .event = told_text(&told[i]),
                               .group = admin_format(w->cli, "%.*s", BYTES_ARG(e->group)),
                               .client = told[i].client,
                               .id = story->id,
                               .detail = "told by the client"});
    }
    return status;
}

static const char *entry_detail(struct why *w, const struct ledger_entry *e)
{
    struct cli *cli = w->cli;
    const char *key = printable(cli, e->name);
    switch (e->event) {
    case EVENT_CLAIMED:
        return admin_format(cli, "key %s, fence %lld, until %s%s", key, (long long)e->fence,
                            why_time(cli, e->until_ms),
                            e->flags & LEDGER_OVERTOOK ? ", taken from a run that never ended"
                                                       : "");
    case EVENT_RENEWED:
        return admin_format(cli, "until %s", why_time(cli, e->until_ms));
    case EVENT_DONE:
        return admin_format(cli, "remembered until %s", why_time(cli, e->until_ms));
    case EVENT_STEP:
        return admin_format(cli, "%s", printable(cli, e->step));
    default:
        return e->name.len > 0 ? admin_format(cli, "key %s", key) : "";
    }
}

static void ledger_tells(struct why *w, struct lines *lines)
{
    for (size_t i = 0; i < w->entries.n; i++) {
        const struct ledger_entry *e = &w->entries.at[i];
        line_add(w->cli, lines,
                 (struct line){.time_ms = e->at_ms,
                               .event = ledger_event_text(e->event),
                               .group = (const char *)e->group.at,
                               .client = e->client.len > 0 ? (const char *)e->client.at : NULL,
                               .id = e->message.len > 0 ? (const char *)e->message.at : NULL,
                               .detail = entry_detail(w, e)});
    }
}

static int events_put(struct why *w)
{
    struct cli *cli = w->cli;
    struct lines lines = {0};
    int status = STATUS_OK;
    for (size_t i = 0; i < w->n; i++) {
        copies_tell(w, &w->stories[i], &lines);
        status = admin_join(status, clients_tell(w, &w->stories[i], &lines));
    }
    ledger_tells(w, &lines);
    if (lines.n > 0)
        qsort(lines.at, lines.n, sizeof *lines.at, by_time);
    list_open(cli, "events");
    for (size_t i = 0; i < lines.n; i++) {
        const struct line *line = &lines.at[i];
        row_begin(cli);
        put_number(cli, "time_ms", line->time_ms);
        put_text(cli, "event", line->event);
        put_text(cli, "group", line->group && *line->group ? line->group : NULL);
        put_text(cli, "client", line->client);
        put_text(cli, "id", line->id);
        put_text(cli, "detail", line->detail);
        row_end(cli);
    }
    list_close(cli);
    return status;
}

/* ---- answers ---- */

static void answer_put(struct cli *cli, const struct story *story, const char *group,
                       struct answer answer)
{
    row_begin(cli);
    put_text(cli, "id", story->id);
    put_text(cli, "group", group);
    put_text(cli, "state", answer.state);
    put_text(cli, "because", answer.because);
    row_end(cli);
}

static bool named(const struct admin_names *names, struct bytes name)
{
    for (size_t i = 0; i < names->n; i++)
        if (bytes_equal(bytes_str(names->names[i]), name))
            return true;
    return false;
}

/* Groups that only the ledger knows, because they read the topic no more. */
static size_t ledger_groups_put(struct why *w, struct story *story, const struct admin_names *known)
{
    struct admin_names seen = {admin_alloc(w->cli, w->entries.n + 1, sizeof(const char *)), 0};
    for (size_t i = 0; i < w->entries.n; i++) {
        const struct ledger_entry *e = &w->entries.at[i];
        if (!bytes_equal(e->message, bytes_str(story->id)) || named(known, e->group) ||
            named(&seen, e->group))
            continue;
        const char *group = (const char *)e->group.at;
        seen.names[seen.n++] = group;
        answer_put(w->cli, story, group, why_answer(w, story, group, NULL));
    }
    return seen.n;
}

static int story_answers_put(struct why *w, struct story *story)
{
    struct cli *cli = w->cli;
    struct admin_names groups = {0};
    struct group_state *states = NULL;
    int status = story_groups(story, &groups);
    if (!admin_none(status))
        status = admin_join(status, story_group_states(story, &groups, &states));
    if (admin_none(status))
        return status;
    bool waits = story->copies[0].kind == COPY_WAITING;
    int64_t due_ms = waits ? why_due_ms(w, &story->copies[0]) : -1;
    if (waits) {
        const char *because = due_ms < 0 ? "it waits for its time of delivery"
                                         : admin_format(cli, "it is delivered at %s, not before",
                                                        why_time(cli, due_ms));
        answer_put(cli, story, NULL, (struct answer){"waiting", because});
        return status;
    }
    for (size_t i = 0; i < groups.n; i++)
        answer_put(cli, story, groups.names[i], why_answer(w, story, groups.names[i], &states[i]));
    if (ledger_groups_put(w, story, &groups) + groups.n == 0)
        answer_put(
            cli, story, NULL,
            (struct answer){"unread", admin_format(cli, "no group reads topic %s",
                                                   printable(cli, bytes_str(story->topic)))});
    return status;
}

static int answers_put(struct why *w)
{
    int status = STATUS_OK;
    list_open(w->cli, "answers");
    for (size_t i = 0; i < w->n && !admin_none(status); i++)
        status = admin_join(status, story_answers_put(w, &w->stories[i]));
    list_close(w->cli);
    return status;
}

static void messages_put(struct why *w)
{
    struct cli *cli = w->cli;
    list_open(cli, "messages");
    for (size_t i = 0; i < w->n; i++) {
        const struct story *story = &w->stories[i];
        const struct omq_delivery *d = story->copies[0].message;
        bool waits = story->copies[0].kind == COPY_WAITING;
        row_begin(cli);
        put_text(cli, "id", story->id);
        put_text(cli, "topic", story->topic);
        put_text(cli, "keys", *d->keys ? d->keys : NULL);
        put_text(cli, "state", waits ? "waiting" : "stored");
        put_number(cli, "stored_ms", d->stored_ms);
        put_text(cli, "broker", d->queue.broker[0] ? d->queue.broker : NULL);
        put_number(cli, "queue", d->queue.id);
        put_number(cli, "offset", d->offset);
        int64_t due_ms = waits ? why_due_ms(w, &story->copies[0]) : -1;
        if (due_ms >= 0)
            put_number(cli, "due_ms", due_ms);
        row_end(cli);
    }
    list_close(cli);
}

/* ---- finding ---- */

/* One more message; none of that id is no failure. */
static int story_add(struct why *w, const char *id, const char *topic)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->stories[i].id, id) == 0)
            return STATUS_OK;
    w->more = w->n == WHY_STORIES_MAX;
    if (w->more)
        return STATUS_OK;
    struct story *story = &w->stories[w->n];
    *story = (struct story){.cli = w->cli, .cluster = w->cluster};
    int status = story_find(story, id, topic);
    if (!admin_none(status) && story->n_copies > 0)
        w->n++;
    else
        story_close(story);
    return status;
}

static int key_look(struct why *w, const char *topic, const char *key)
{
    struct omq_query query = {.topic = topic, .key = key, .max = WHY_STORIES_MAX + 1};
    struct omq_found found;
    int status = find_in(w->cli, &query, &found);
    if (status)
        return status;
    for (size_t i = 0; i < found.n && !status; i++)
        status = story_add(w, admin_format(w->cli, "%s", found.messages[i]->id), topic);
    omq_found_free(&found);
    return status;
}

/* Messages that have it among their keys, and those that the ledger has seen under that name. */
static int find_by_key(struct why *w, const char *key, const char *topic)
{
    struct cli *cli = w->cli;
    struct admin_names topics = {&topic, topic ? 1 : 0}, ids;
    struct admin_route route; /* a topic that is not there is said to be so */
    int status = topic ? admin_route(cli, topic, &route) : admin_topics(cli, &topics);
    for (size_t i = 0; i < topics.n && !admin_none(status) && !cli_stopped(cli); i++)
        if (topic || !admin_topic_is_system(&w->cluster, topics.names[i]))
            status = admin_join(status, key_look(w, topics.names[i], key));
    if (admin_none(status))
        return status;
    status = admin_join(status, why_ids(w, key, &ids));
    for (size_t i = 0; i < ids.n && !admin_none(status); i++)
        status = admin_join(status, story_add(w, ids.names[i], topic));
    return status;
}

/* The latest of the brokers' clocks, which may be virtual. */
static int64_t clock_of(struct why *w)
{
    struct admin_node *nodes;
    size_t n;
    int64_t latest = -1;
    if (!admin_none(admin_runtime(w->cli, &w->cluster, false, true, &nodes, &n)))
        for (size_t i = 0; i < n; i++) {
            int64_t ms = admin_value_number(&nodes[i], "currentTimestamp", -1);
            latest = ms > latest ? ms : latest;
        }
    return latest < 0 ? now_ms() : latest;
}

static int why_tell(struct why *w, const char *subject, bool by_key)
{
    struct cli *cli = w->cli;
    row_begin(cli);
    put_text(cli, "subject", subject);
    put_text(cli, "kind", by_key ? "key" : "message");
    messages_put(w);
    int status = answers_put(w);
    if (!admin_none(status))
        status = admin_join(status, events_put(w));
    row_end(cli);
    if (w->more)
        cli_note(cli, "there are more messages of this key; these are %d of them", WHY_STORIES_MAX);
    if (w->entries.cut)
        cli_note(cli, "the ledger has more entries than are shown");
    return status;
}

static int why_run(struct cli *cli)
{
    const char *subject = arg_at(cli, 0), *topic = arg_text(cli, "topic", NULL);
    struct why w = {.cli = cli};
    if (!subject[0])
        return cli_fail(cli, STATUS_USAGE, NULL, "an id or key is needed, and this one is empty");
    cli_catch_stop(cli);
    int status = admin_cluster(cli, &w.cluster);
    if (!admin_none(status) && !arg_has(cli, "key"))
        status = admin_join(status, story_add(&w, subject, topic));
    bool by_key = w.n == 0;
    if (!admin_none(status) && by_key)
        status = admin_join(status, find_by_key(&w, subject, topic));
    if (!admin_none(status))
        status = admin_join(status, why_ledger(&w, by_key ? subject : NULL));
    w.now_ms = admin_none(status) ? 0 : clock_of(&w);
    if (!admin_none(status) && w.n + w.entries.n > 0)
        status = admin_join(status, why_tell(&w, subject, by_key));
    else if (!admin_none(status))
        status = cli_fail(cli, STATUS_NOT_FOUND,
                          "messages are found by their unique id, the id of their place, a word of "
                          "their keys, or the key under which a consumer claimed them",
                          "there is no message with the id or key %s",
                          printable(cli, bytes_str(subject)));
    for (size_t i = 0; i < w.n; i++)
        story_close(&w.stories[i]);
    return status;
}

static const struct opt options[] = {
    {"topic", OPT_TEXT, "TOPIC", "the topic it was sent to; default: all topics are asked",
     .letter = 't'},
    {"key", OPT_SWITCH, NULL, "it is a key, also if it looks like an id", .letter = 'k'},
    {NULL},
};

const struct command why_commands[] = {
    {
        .name = "why",
        .arguments = "ID|KEY",
        .summary = "the life of a message, and why it had an effect or none",
        .text =
            "The argument is a message's unique id, the id of a place where it stands, or a key: a "
            "word of its keys, or the key under which a consumer claimed it. Of each group that "
            "reads its topic it is said what became of it and why: done, by whom; suppressed, "
            "because of which earlier delivery; running; failed, and when it is tried again; a "
            "dead letter; unsure.\n\nWhat is known comes from the copies that brokers keep, from "
            "the once ledger (consumers with store broker:) and from clients that send message "
            "trace. The ledger is read whole, which takes a while when it is long.",
        .examples = "oncemq why 0A0000070001B1AAC2EE55C3A1F20000\n"
                    "oncemq why order-17 --topic orders\n"
                    "oncemq why order-17 --json | jq -r '.answers[].because'",
        .options = options,
        .shape = SHAPE_ONE,
        .columns = columns,
        .run = why_run,
    },
    {NULL},
};
