/* why_answer.c - what became of a message in a group: the last thing that happened, in words. */
#include "cli/why_int.h"

#include "once.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char levels_default[] =
    "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"; /* messageDelayLevel */

const char *why_time(struct cli *cli, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char text[64];
    if (ms < 0 || !localtime_r(&seconds, &tm) || !strftime(text, sizeof text, "%F %T", &tm))
        return "an unknown time";
    return admin_format(cli, "%s.%03d", text, (int)(ms % 1000));
}

/* ---- copies that wait ---- */

static int64_t level_ms(const char *levels, int64_t level)
{
    char word[32];
    for (; level > 1; level--) {
        levels += strcspn(levels, " ");
        levels += strspn(levels, " ");
    }
    int64_t ms;
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(levels, " "), levels);
    return *word && value_duration(word, &ms) ? ms : -1;
}

int64_t why_due_ms(struct why *w, const struct copy *copy)
{
    const struct omq_delivery *d = copy->message;
    const char *out_ms = omq_delivery_property(d, "TIMER_OUT_MS");
    int64_t ms;
    if (out_ms)
        return bytes_to_i64(bytes_str(out_ms), &ms) ? ms + 1 : -1;
    struct admin_node *nodes;
    size_t n;
    const char *levels = levels_default;
    if (!admin_none(admin_settings(w->cli, &w->cluster, false, &nodes, &n)))
        for (size_t i = 0; i < n; i++)
            if (strcmp(nodes[i].broker->name, d->queue.broker) == 0)
                levels = admin_value(&nodes[i], "messageDelayLevel", levels);
    ms = level_ms(levels, (int64_t)d->queue.id + 1); /* a level is a queue of its topic */
    return ms < 0 ? -1 : d->stored_ms + ms;
}

static const struct copy *last_copy(const struct story *story, const char *group,
                                    enum copy_kind kind)
{
    const struct copy *last = NULL;
    for (size_t i = 0; i < story->n_copies; i++) {
        const struct copy *c = &story->copies[i];
        if (c->kind == kind && (!group || (c->group && strcmp(c->group, group) == 0)) &&
            (!last || c->message->stored_ms >= last->message->stored_ms))
            last = c;
    }
    return last;
}

/* "; the next attempt is at …", or nothing. */
static const char *next_try(struct why *w, const struct story *story, const char *group)
{
    const struct copy *waits = last_copy(story, group, COPY_WAITING);
    const struct copy *there = last_copy(story, group, COPY_RETRY);
    if (there && (!waits || there->message->stored_ms > waits->message->stored_ms))
        return admin_format(w->cli, "; its next attempt is ready since %s",
                            why_time(w->cli, there->message->stored_ms));
    int64_t due_ms = waits ? why_due_ms(w, waits) : -1;
    return due_ms < 0
               ? ""
               : admin_format(w->cli, "; its next attempt is at %s", why_time(w->cli, due_ms));
}

/* ---- the ledger ---- */

static bool of_group(const struct ledger_entry *e, const char *group)
{
    return bytes_equal(e->group, bytes_str(group));
}

static bool same_key(const struct ledger_entry *a, const struct ledger_entry *b)
{
    return memcmp(a->id, b->id, sizeof a->id) == 0;
}

/* The last claim, or told duplicate, of this message in this group. */
static const struct ledger_entry *own_entry(const struct why *w, const struct story *story,
                                            const char *group, bool claims)
{
    const struct ledger_entry *own = NULL;
    for (size_t i = 0; i < w->entries.n; i++) {
        const struct ledger_entry *e = &w->entries.at[i];
        if (of_group(e, group) && bytes_equal(e->message, bytes_str(story->id)) &&
            (!claims || e->event == EVENT_CLAIMED))
            own = e;
    }
    return own;
}

/* The last entry before `end` that ended a claim of that key as done. */
static const struct ledger_entry *done_before(const struct why *w, const struct ledger_entry *end)
{
    for (const struct ledger_entry *e = end; e-- > w->entries.at;)
        if (e->event == EVENT_DONE && same_key(e, end))
            return e;
    return NULL;
}

/* The claim that an entry of its token belongs to. */
static const struct ledger_entry *claim_of(const struct why *w, const struct ledger_entry *of)
{
    for (const struct ledger_entry *e = of; e-- > w->entries.at;)
        if (e->event == EVENT_CLAIMED && same_key(e, of) && e->token == of->token)
            return e;
    return NULL;
}

/* What came of a claim: the last entry of its token; the claim itself if there is none. */
static const struct ledger_entry *claim_end(const struct why *w, const struct ledger_entry *claim)
{
    const struct ledger_entry *end = claim;
    for (const struct ledger_entry *e = claim; e < w->entries.at + w->entries.n; e++)
        if (same_key(e, claim) && e->token == claim->token && e->event != EVENT_STEP &&
            e->event != EVENT_SUPPRESSED && !(end->event == EVENT_DONE && e->event == EVENT_LOST))
            end = e;
    return end;
}

/* The claim by somebody else that took the key away. */
static const struct ledger_entry *taken_by(const struct why *w, const struct ledger_entry *claim)
{
    for (const struct ledger_entry *e = claim; e < w->entries.at + w->entries.n; e++)
        if (e->event == EVENT_CLAIMED && same_key(e, claim) && e->token != claim->token)
            return e;
    return NULL;
}

static const char *who(struct why *w, const struct ledger_entry *e)
{
    const struct ledger_entry *claim = e->event == EVENT_CLAIMED ? e : claim_of(w, e);
    if (claim && claim->client.len > 0)
        return printable(w->cli, claim->client);
    return admin_format(w->cli, "instance %08" PRIx32, (uint32_t)(e->token >> 32));
}

static struct answer duplicate_answer(struct why *w, const struct story *story,
                                      const struct ledger_entry *own)
{
    struct cli *cli = w->cli;
    const struct ledger_entry *done = done_before(w, own);
    const struct ledger_entry *claim = done ? claim_of(w, done) : NULL;
    const char *key = printable(cli, own->name);
    if (!done)
        return (struct answer){"suppressed",
                               admin_format(cli,
                                            "the effect of key %s was there already when it was "
                                            "delivered at %s; what did it is not in the ledger any "
                                            "more",
                                            key, why_time(cli, own->at_ms))};
    bool itself = claim && bytes_equal(claim->message, bytes_str(story->id));
    const char *by = itself ? "this very message"
                     : claim && claim->message.len > 0
                         ? admin_format(cli, "message %s", printable(cli, claim->message))
                         : "another delivery";
    if (own->event == EVENT_REFUSED)
        return (struct answer){
            "refused", admin_format(cli,
                                    "%s had done key %s at %s (%s), with another body: this one "
                                    "was refused at %s",
                                    by, key, why_time(cli, done->at_ms), who(w, done),
                                    why_time(cli, own->at_ms))};
    return (struct answer){itself ? "done" : "suppressed",
                           admin_format(cli,
                                        "%s had done key %s at %s (%s): its delivery at %s was "
                                        "suppressed",
                                        by, key, why_time(cli, done->at_ms), who(w, done),
                                        why_time(cli, own->at_ms))};
}

static const char *overtook_text(struct why *w, const struct ledger_entry *claim)
{
    if (!(claim->flags & LEDGER_OVERTOOK))
        return "";
    const struct ledger_entry *before = NULL;
    for (const struct ledger_entry *e = claim; e-- > w->entries.at && !before;)
        if (e->event == EVENT_CLAIMED && same_key(e, claim))
            before = e;
    return admin_format(
        w->cli, "; a run of %s before it never ended%s: its effect may have happened as well",
        before ? who(w, before) : "another client",
        claim->flags & LEDGER_OWNER_GONE ? ", its client was gone" : "");
}

static struct answer running_answer(struct why *w, const struct ledger_entry *claim,
                                    const struct ledger_entry *end)
{
    struct cli *cli = w->cli;
    const struct ledger_entry *other = taken_by(w, claim);
    if (other)
        return (struct answer){
            "unsure", admin_format(cli,
                                   "claimed at %s by %s, which never ended it; %s has taken the "
                                   "key at %s: the effect may have happened twice",
                                   why_time(cli, claim->at_ms), who(w, claim), who(w, other),
                                   why_time(cli, other->at_ms))};
    bool over = end->until_ms <= w->now_ms;
    return (struct answer){
        over ? "abandoned" : "running",
        admin_format(cli,
                     over ? "claimed at %s by %s, which has not ended it; its claim is over since "
                            "%s, and the next delivery takes it"
                          : "claimed at %s by %s, which is at it; its claim holds until %s unless "
                            "it is renewed",
                     why_time(cli, claim->at_ms), who(w, claim), why_time(cli, end->until_ms))};
}

static struct answer claim_answer(struct why *w, const struct story *story, const char *group,
                                  const struct ledger_entry *claim)
{
    struct cli *cli = w->cli;
    const struct ledger_entry *end = claim_end(w, claim);
    switch (end->event) {
    case EVENT_DONE:
        return (struct answer){
            claim->flags & LEDGER_OVERTOOK ? "unsure" : "done",
            admin_format(cli, "done at %s by %s, under key %s with fence %" PRId64 "%s",
                         why_time(cli, end->at_ms), who(w, end), printable(cli, claim->name),
                         claim->fence, overtook_text(w, claim))};
    case EVENT_RELEASED:
        return (struct answer){"failed", admin_format(cli, "its handler failed at %s (%s)%s",
                                                      why_time(cli, end->at_ms), who(w, end),
                                                      next_try(w, story, group))};
    case EVENT_FORGOTTEN:
        return (struct answer){"forgotten",
                               admin_format(cli, "its key was forgotten by an operator at %s",
                                            why_time(cli, end->at_ms))};
    case EVENT_LOST: {
        const struct ledger_entry *other = taken_by(w, claim);
        return (struct answer){
            "unsure",
            admin_format(
                cli,
                "%s lost its claim while it was at it, and noticed at %s%s: the effect may "
                "have happened twice",
                who(w, claim), why_time(cli, end->at_ms),
                other ? admin_format(cli, "; %s had taken it at %s", who(w, other),
                                     why_time(cli, other->at_ms))
                      : "")};
    }
    default:
        return running_answer(w, claim, end);
    }
}

/* ---- without the ledger ---- */

static struct answer plain_answer(struct why *w, const struct story *story,
                                  const struct group_state *s)
{
    struct cli *cli = w->cli;
    const struct omq_delivery *d = story->copies[0].message;
    const char *because = "";
    if (strcmp(s->state, "consumed") == 0)
        because = "the group's offset is past it; what came of it nobody has written down (a "
                  "consumer with store broker: does)";
    else if (strcmp(s->state, "not yet consumed") == 0)
        because =
            s->members == 0
                ? admin_format(cli,
                               "no member of the group is connected; %" PRId64
                               " messages of its queue come before it",
                               s->behind)
                : admin_format(cli, "%" PRId64 " messages of its queue come before it", s->behind);
    else if (strcmp(s->state, "retrying") == 0)
        because = admin_format(cli, "%" PRId64 " attempts have failed%s", s->attempts,
                               next_try(w, story, s->group));
    else if (strcmp(s->state, "filtered out") == 0)
        because = admin_format(cli, "its tag \"%s\" is not among what the group subscribes to: %s",
                               d->tag, s->expression ? s->expression : "");
    else if (strcmp(s->state, "never read") == 0)
        because = "the group has read nothing of its queue";
    else if (strcmp(s->state, "broadcast") == 0)
        because = "each member reads for itself, and keeps its own offset";
    return (struct answer){s->state, because};
}

static struct answer dead_answer(struct why *w, const struct story *story, const char *group,
                                 const struct copy *dead)
{
    (void)story;
    return (struct answer){
        "dead letter",
        admin_format(w->cli, "given up at %s after %d failed attempts: oncemq dlq show %s",
                     why_time(w->cli, dead->message->stored_ms), dead->message->attempt - 1,
                     group)};
}

struct answer why_answer(struct why *w, struct story *story, const char *group,
                         const struct group_state *s)
{
    const struct ledger_entry *own = own_entry(w, story, group, false);
    const struct copy *dead = last_copy(story, group, COPY_DEAD);
    bool done = own && own->event == EVENT_CLAIMED && claim_end(w, own)->event == EVENT_DONE;
    if (dead && s && strcmp(s->state, "dead letter") == 0 && !done)
        return dead_answer(w, story, group, dead);
    if (own && (own->event == EVENT_SUPPRESSED || own->event == EVENT_REFUSED))
        return duplicate_answer(w, story, own);
    const struct ledger_entry *claim = own_entry(w, story, group, true);
    if (claim)
        return claim_answer(w, story, group, claim);
    return s ? plain_answer(w, story, s) : (struct answer){"unknown", ""};
}
