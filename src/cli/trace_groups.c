/* trace_groups.c - what each group made of a message. */
#include "cli/trace_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Groups that have offsets in the topic or read it, without those of tools. */
int story_groups(struct story *story, struct admin_names *groups)
{
    struct cli *cli = story->cli;
    struct admin_names *names;
    int status = admin_topic_groups(cli, &story->cluster, &story->topic, 1, &names);
    if (admin_none(status))
        return status;
    *groups = (struct admin_names){admin_alloc(cli, names->n + 1, sizeof *groups->names), 0};
    for (size_t i = 0; i < names->n; i++)
        if (!admin_group_is_system(names->names[i]))
            groups->names[groups->n++] = names->names[i];
    for (size_t i = 0; i < groups->n; i++) {
        const char *group = groups->names[i];
        const char *const topics[] = {admin_format(cli, "%%RETRY%%%s", group),
                                      admin_format(cli, "%%DLQ%%%s", group),
                                      admin_format(cli, "%%RETRY%%%s_%s", group, story->topic),
                                      admin_format(cli, "%%RETRY%%%s+%s", group, story->topic)};
        for (size_t k = 0; !admin_none(status) && k < sizeof topics / sizeof *topics; k++)
            status = admin_join(status, story_look(story, topics[k], group));
    }
    return status;
}

/* How far the group is where a copy stands; -1: it has no offset there. */
static int64_t offset_at(const struct admin_consume_stats *stats, const struct copy *copy)
{
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_progress *q = &stats->queues[i];
        if (strcmp(q->topic, copy->topic) == 0 && q->queue == copy->message->queue.id &&
            strcmp(q->broker, copy->message->queue.broker) == 0)
            return q->offset;
    }
    return -1;
}

static bool takes_tag(const char *expression, const char *tag)
{
    size_t len = strlen(tag);
    if (strcmp(expression, "*") == 0 || !*expression)
        return true;
    for (const char *at = expression; *at; at += strcspn(at, "|")) {
        at += strspn(at, "| ");
        size_t end = strcspn(at, "| ");
        if (end == len && strncmp(at, tag, len) == 0)
            return true;
    }
    return false;
}

static const struct admin_subscription *subscribed(const struct admin_consumers *consumers,
                                                   const char *topic)
{
    for (size_t i = 0; i < consumers->n_subscriptions; i++)
        if (strcmp(consumers->subscriptions[i].topic, topic) == 0)
            return &consumers->subscriptions[i];
    return NULL;
}

/* What there is of a group: its retries, its dead letter. */
struct trail {
    const struct copy *retry; /* the last one */
    const struct copy *dead;
    bool dropped;
    size_t retries, waits;
    int32_t attempts;
};

static bool note_is_of(const struct copy *note, const struct copy *letter)
{
    return note->dropped == letter->message->offset && strcmp(note->topic, letter->topic) == 0 &&
           note->message->queue.id == letter->message->queue.id &&
           strcmp(note->message->queue.broker, letter->message->queue.broker) == 0;
}

static struct trail trail_of(const struct story *story, const char *group)
{
    struct trail t = {.attempts = 0};
    for (size_t i = 0; i < story->n_copies; i++) {
        const struct copy *c = &story->copies[i];
        if (!c->group || strcmp(c->group, group) != 0)
            continue;
        if (c->message->attempt - 1 > t.attempts)
            t.attempts = c->message->attempt - 1; /* that many have failed */
        if (c->kind == COPY_RETRY) {
            t.retries++;
            t.retry = c;
        }
        t.waits += c->kind == COPY_WAITING;
        if (c->kind == COPY_DEAD)
            t.dead = c;
    }
    for (size_t i = 0; t.dead && i < story->n_copies; i++)
        t.dropped = t.dropped || note_is_of(&story->copies[i], t.dead);
    return t;
}

static const char *state_of(const struct trail *t, const struct copy *message, int64_t offset,
                            const struct admin_consume_stats *stats,
                            const struct admin_consumers *consumers,
                            const struct admin_subscription *sub)
{
    if (strcmp(consumers->model, "BROADCASTING") == 0)
        return "broadcast";
    if (t->dead && (!t->retry || t->retry->message->stored_ms <= t->dead->message->stored_ms))
        return t->dropped ? "dropped" : "dead letter";
    if (t->waits > t->retries)
        return "retrying";
    if (t->retry)
        return offset_at(stats, t->retry) > t->retry->message->offset ? "consumed" : "retrying";
    if (offset < 0)
        return "never read";
    if (offset <= message->message->offset)
        return "not yet consumed";
    bool tags = sub && strcmp(sub->type, "SQL92") != 0;
    return tags && !takes_tag(sub->expression, message->message->tag) ? "filtered out" : "consumed";
}

static struct group_state state_make(const struct story *story, const char *group,
                                     const struct admin_consume_stats *stats,
                                     const struct admin_consumers *consumers)
{
    const struct copy *message = &story->copies[0];
    const struct admin_subscription *sub = subscribed(consumers, story->topic);
    struct trail trail = trail_of(story, group);
    int64_t offset = offset_at(stats, message), behind = message->message->offset - offset;
    const char *state = state_of(&trail, message, offset, stats, consumers, sub);
    return (struct group_state){
        .group = group,
        .state = state,
        .attempts = trail.attempts + (strcmp(state, "consumed") == 0),
        .offset = offset,
        .behind = behind > 0 ? behind : 0,
        .members = (int64_t)consumers->n,
        .expression = sub ? sub->expression : NULL,
    };
}

int story_group_states(struct story *story, const struct admin_names *groups,
                       struct group_state **out)
{
    struct cli *cli = story->cli;
    struct admin_consume_stats *stats = NULL;
    struct admin_consumers *consumers = NULL;
    int status = STATUS_OK;
    *out = admin_alloc(cli, groups->n + 1, sizeof **out);
    if (groups->n > 0) {
        status = admin_consume_stats(cli, &story->cluster, groups->names, groups->n, NULL, &stats);
        if (!admin_none(status))
            status = admin_join(status, admin_consumers(cli, &story->cluster, groups->names,
                                                        groups->n, &consumers));
        if (admin_none(status))
            return status;
    }
    for (size_t i = 0; i < groups->n; i++)
        (*out)[i] = state_make(story, groups->names[i], &stats[i], &consumers[i]);
    return status;
}
