/* doctor_groups.c - groups: lag and whether it grows, members and what they subscribe to, retries
 * and dead letters.
 *
 * Whether a lag grows takes two looks with some time between them; members are asked in that time.
 */
#include "cli/dlq_int.h"
#include "cli/doctor_int.h"
#include "cli/out_int.h"
#include "remoting/codes.h"

#include <stdlib.h>

#define MEMBERS_MAX 512 /* that are asked what they subscribe to */
#define SOON        0.8 /* of the retention */

struct crowd {
    struct admin_group *settings;
    size_t n_settings;
    const char **groups; /* by name, each once; those of the system are left out */
    size_t n;
    struct admin_consume_stats *before, *now;
    struct admin_consumers *members;
};

static bool is_retry(const char *topic)
{
    return strncmp(topic, "%RETRY%", 7) == 0;
}

/* ---- lag ---- */

static int64_t lag_of(const struct admin_consume_stats *stats, bool retries)
{
    int64_t lag = 0;
    for (size_t i = 0; i < stats->n; i++)
        if (is_retry(stats->queues[i].topic) == retries)
            lag = admin_sum(lag, stats->queues[i].lag);
    return lag;
}

/* How long ago what it consumed last was stored, where it is behind most. */
static int64_t age_of(const struct admin_consume_stats *stats)
{
    int64_t oldest = 0, now = now_ms();
    for (size_t i = 0; i < stats->n; i++) {
        const struct admin_progress *p = &stats->queues[i];
        if (p->lag > 0 && p->last_ms > 0 && now - p->last_ms > oldest)
            oldest = now - p->last_ms;
    }
    return oldest;
}

static void lag_look(struct doctor *d, const struct crowd *c, size_t i)
{
    int64_t lag = lag_of(&c->now[i], false), before = lag_of(&c->before[i], false);
    int64_t age = age_of(&c->now[i]);
    size_t members = c->members[i].n;
    char text[32];
    duration_text(age, text);
    if (d->retention_ms > 0 && lag > 0 && (double)age > SOON * (double)d->retention_ms)
        wrong(d, HEALTH_BAD, c->groups[i],
              "consume, or raise fileReservedTime (oncemq broker config) before it is too late",
              "it has %lld messages before it; what it consumed last is %s old, and messages are "
              "kept for %lld h",
              (long long)lag, text, (long long)(d->retention_ms / 3600000));
    else if (lag > before && lag >= d->lag_most / 10)
        wrong(d, HEALTH_WARN, c->groups[i],
              members > 0
                  ? "add members or make the handler faster; oncemq top --group shows it live"
                  : "start its consumers",
              "its lag grows: %lld, %lld more than a moment ago; %zu members", (long long)lag,
              (long long)(lag - before), members);
    else if (lag >= d->lag_most)
        wrong(d, HEALTH_WARN, c->groups[i],
              "add members or make the handler faster; oncemq group reset skips what is not needed",
              "it has %lld messages before it; %zu members", (long long)lag, members);
}

static void lag_check(struct doctor *d, const struct crowd *c)
{
    int64_t most = 0;
    check_begin(d, "group.lag");
    for (size_t i = 0; i < c->n; i++) {
        int64_t lag = lag_of(&c->now[i], false);
        most = lag > most ? lag : most;
        lag_look(d, c, i);
    }
    check_end(d, "the longest lag of all groups (%zu) is %lld", c->n, (long long)most);
}

/* ---- members ---- */

static void members_check(struct doctor *d, const struct crowd *c)
{
    size_t idle = 0;
    check_begin(d, "group.members");
    for (size_t i = 0; i < c->n; i++) {
        int64_t lag = admin_sum(lag_of(&c->now[i], false), lag_of(&c->now[i], true));
        if (c->members[i].n > 0)
            continue;
        idle++;
        if (lag > 0)
            wrong(d, HEALTH_WARN, c->groups[i],
                  "start its consumers; if it is not needed any more: oncemq group delete",
                  "nobody consumes, and %lld messages wait", (long long)lag);
    }
    for (size_t i = 0; i < c->n_settings; i++)
        if (!admin_group_is_system(c->settings[i].group) && !c->settings[i].set.consume_enable)
            wrong(d, HEALTH_WARN, c->settings[i].group, "oncemq group set GROUP, if it is to go on",
                  "consuming is switched off on %s", c->settings[i].broker);
    check_end(d, "no messages wait for groups without members (%zu of %zu)", idle, c->n);
}

/* ---- retries and dead letters ---- */

static void retry_check(struct doctor *d, const struct crowd *c)
{
    int64_t limit = d->lag_most / 100 > 1 ? d->lag_most / 100 : 1, sum = 0;
    check_begin(d, "group.retries");
    for (size_t i = 0; i < c->n; i++) {
        int64_t lag = lag_of(&c->now[i], true);
        sum = admin_sum(sum, lag);
        if (lag >= limit)
            wrong(
                d, HEALTH_WARN, c->groups[i],
                "the handler fails: look at its log; what fails 16 times goes to the dead letters",
                "%lld messages wait to be tried again", (long long)lag);
    }
    check_end(d, "messages that wait to be tried again: %lld", (long long)sum);
}

static void dead_check(struct doctor *d)
{
    struct admin_names dead = {0};
    for (size_t s = 0; s < d->servers.n && dead.n == 0; s++) {
        if (!d->answers[s])
            continue;
        dead.names = admin_alloc(d->cli, d->topics[s].n, sizeof *dead.names);
        for (size_t i = 0; i < d->topics[s].n; i++)
            if (strncmp(d->topics[s].names[i], "%DLQ%", 5) == 0)
                dead.names[dead.n++] = d->topics[s].names[i];
    }
    struct admin_topic_stats *stats = NULL;
    if (dead.n > 0 && admin_none(admin_topic_stats(d->cli, &d->up, dead.names, dead.n, &stats)))
        return;
    int64_t *left = admin_alloc(d->cli, dead.n, sizeof *left);
    if (dead.n > 0 && box_left(d->cli, &d->up, stats, dead.n, left))
        return;
    check_begin(d, "group.dead_letters");
    for (size_t i = 0; i < dead.n; i++)
        if (left[i] > 0)
            wrong(d, HEALTH_WARN, dead.names[i] + 5,
                  "oncemq dlq show GROUP shows them, oncemq dlq resend GROUP sends them again, "
                  "oncemq dlq drop "
                  "GROUP passes over them",
                  "%lld messages were given up and wait among its dead letters",
                  (long long)left[i]);
    check_end(d, "there are no dead letters that are not settled");
}

/* ---- subscriptions ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What a member says it subscribes to, in one line that is the same for the same. */
static const char *subscriptions_text(struct cli *cli, const struct json *info)
{
    const struct json *set = json_member(info, "subscriptionSet");
    const char **parts = admin_alloc(cli, set ? set->n : 0, sizeof *parts), *text = "";
    size_t n = 0;
    json_each(one, set) {
        const char *topic = admin_text(cli, json_member(one, "topic"));
        if (!is_retry(topic))
            parts[n++] =
                admin_format(cli, "%s %s", topic, admin_text(cli, json_member(one, "subString")));
    }
    if (n > 0)
        qsort(parts, n, sizeof *parts, by_text);
    for (size_t i = 0; i < n; i++)
        text = admin_format(cli, "%s%s%s", text, i > 0 ? ", " : "", parts[i]);
    return text;
}

static size_t members_asks(struct doctor *d, const struct crowd *c, struct admin_ask *asks,
                           const struct admin_client **who)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; c->members[i].n > 1 && k < c->members[i].n && n < MEMBERS_MAX; k++) {
            const struct admin_client *m = &c->members[i].clients[k];
            const struct admin_broker *at = admin_broker_find(&d->up, m->broker);
            if (!at || !admin_reader(at))
                continue;
            asks[n] = (struct admin_ask){
                .server = admin_reader(at),
                .request = REQ_GET_CONSUMER_RUNNING_INFO,
                .fields = admin_fields(d->cli, ASK("consumerGroup", c->groups[i], "clientId", m->id,
                                                   "jstackEnable", "false"))};
            who[n++] = m;
        }
    return n;
}

static void subscriptions_check(struct doctor *d, const struct crowd *c)
{
    struct admin_ask *asks = admin_alloc(d->cli, MEMBERS_MAX, sizeof *asks);
    const struct admin_client **who = admin_alloc(d->cli, MEMBERS_MAX, sizeof(void *));
    size_t n = members_asks(d, c, asks, who), silent = 0;
    if (admin_ask_all(d->cli, asks, n))
        return;
    check_begin(d, "group.subscriptions");
    for (size_t i = 0, first = 0; i < n; i++) {
        silent += asks[i].code != OMQ_OK;
        if (strcmp(who[first]->group, who[i]->group) != 0 || asks[first].code)
            first = i; /* the first of its group that answers */
        if (i == first || asks[i].code)
            continue;
        const char *one = subscriptions_text(d->cli, asks[first].json),
                   *other = subscriptions_text(d->cli, asks[i].json);
        if (strcmp(one, other) != 0)
            wrong(d, HEALTH_BAD, who[i]->group,
                  "give all members of a group the same subscriptions: brokers keep the last one "
                  "they hear of, and messages are passed over",
                  "%s subscribes to %s, %s to %s", who[first]->id, one, who[i]->id, other);
    }
    check_end(d, "all members of a group subscribe to the same (asked: %zu%s)", n,
              silent ? admin_format(d->cli, ", of which %zu did not tell", silent) : "");
}

/* ---- all ---- */

static int crowd_take(struct doctor *d, struct crowd *c)
{
    struct cli *cli = d->cli;
    int status = admin_groups(cli, &d->up, &c->settings, &c->n_settings);
    if (admin_none(status))
        return status;
    c->groups = admin_alloc(cli, c->n_settings, sizeof *c->groups);
    for (size_t i = 0; i < c->n_settings; i++) {
        const char *group = c->settings[i].group;
        bool again = c->n > 0 && strcmp(c->groups[c->n - 1], group) == 0;
        if (!again && !admin_group_is_system(group))
            c->groups[c->n++] = group;
    }
    int64_t began = now_ms(), wait = arg_number(cli, "wait", 2000);
    status = admin_consume_stats(cli, &d->up, c->groups, c->n, NULL, &c->before);
    if (!admin_none(status))
        status = admin_consumers(cli, &d->up, c->groups, c->n, &c->members);
    if (admin_none(status))
        return status;
    if (c->n > 0)
        cli_wait(cli, began + wait - now_ms());
    return admin_consume_stats(cli, &d->up, c->groups, c->n, NULL, &c->now);
}

void doctor_groups(struct doctor *d)
{
    struct crowd c = {0};
    if (admin_none(crowd_take(d, &c)))
        return;
    lag_check(d, &c);
    members_check(d, &c);
    retry_check(d, &c);
    dead_check(d);
    subscriptions_check(d, &c);
}
