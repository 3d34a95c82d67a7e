/* doctor_topics.c - topics: whether name servers and brokers know the same ones, and whether they
 * can be written and read. */
#include "cli/doctor_int.h"

#include <stdlib.h>

/* What any name server knows. */
static bool is_known(const struct doctor *d, const char *topic)
{
    for (size_t i = 0; i < d->servers.n; i++)
        if (names_have(&d->topics[i], topic))
            return true;
    return false;
}

static bool is_seen_before(const struct doctor *d, size_t server, const char *topic)
{
    for (size_t i = 0; i < server; i++)
        if (names_have(&d->topics[i], topic))
            return true;
    return false;
}

/* Both lists are sorted by topic. */
static bool broker_has(const struct admin_topic *topics, size_t n, const char *topic)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(topics[middle].topic, topic);
        if (order == 0)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void route_check(struct doctor *d, const struct admin_topic *topics, size_t n)
{
    size_t known = 0;
    check_begin(d, "topic.route");
    for (size_t s = 0; s < d->servers.n; s++)
        for (size_t i = 0; i < d->topics[s].n; i++) {
            const char *topic = d->topics[s].names[i];
            if (admin_topic_is_system(&d->all, topic) || is_seen_before(d, s, topic))
                continue;
            known++;
            if (d->up.n == d->all.n && !broker_has(topics, n, topic))
                wrong(d, HEALTH_BAD, topic,
                      "oncemq topic create makes it anew, oncemq topic delete takes it from the "
                      "name servers",
                      "the name servers know it, but no broker has it");
        }
    for (size_t i = 0; i < n; i++)
        if (!admin_topic_is_system(&d->all, topics[i].topic) && !is_known(d, topics[i].topic))
            wrong(d, HEALTH_WARN, topics[i].topic,
                  "a new topic is registered within moments, any other within half a minute; if it "
                  "stays, look at the broker's log",
                  "the broker %s has it, but no name server knows it: clients do not find it",
                  topics[i].broker);
    check_end(d, "name servers and brokers know the same topics (%zu)", known);
}

static void permission_look(struct doctor *d, const struct admin_topic *t)
{
    if ((t->perm & 6) != 6)
        wrong(d, HEALTH_WARN, t->topic,
              "oncemq topic set TOPIC --perm rw, if it is to be used again", "on %s it %s",
              t->broker,
              t->perm & 4   ? "can be read only: sends are refused"
              : t->perm & 2 ? "can be written only: nobody reads what is sent"
                            : "can be neither written nor read");
    if (t->read_queues < t->write_queues)
        wrong(d, HEALTH_BAD, t->topic,
              "oncemq topic set TOPIC with as many queues to read as to write",
              "on %s %d queues are written and %d read: what is in the others reaches nobody",
              t->broker, t->write_queues, t->read_queues);
}

static void permission_check(struct doctor *d, const struct admin_topic *topics, size_t n)
{
    size_t looked = 0;
    check_begin(d, "topic.permission");
    for (size_t i = 0; i < n; i++) {
        if (admin_topic_is_system(&d->all, topics[i].topic))
            continue;
        permission_look(d, &topics[i]);
        looked++;
    }
    check_end(d, "all topics of all brokers (%zu) can be written and read", looked);
}

void doctor_topics(struct doctor *d)
{
    struct admin_topic *topics;
    size_t n;
    if (admin_none(admin_topic_configs(d->cli, &d->up, &topics, &n)))
        return;
    route_check(d, topics, n);
    permission_check(d, topics, n);
}
