/* subs.c - what a group subscribes to. Expressions are compiled once, when they are new. */
#include "broker/broker_int.h"

#include <stdlib.h>

enum err subs_check(const struct membership *m, struct fault *why)
{
    if (m->without_subs)
        return OK;
    if (m->n_subs > GROUP_SUBS)
        return fault_set(why, ERR_TOO_BIG, "group [%.*s] subscribes to %zu topics, more than %d",
                         BRIEF(m->group), m->n_subs, GROUP_SUBS);
    for (size_t i = 0; i < m->n_subs; i++) {
        const struct subscription *s = &m->subs[i];
        if (s->topic.len == 0 || s->topic.len > NAME_MAX_ANY)
            return fault_set(why, ERR_INVALID,
                             "group [%.*s] subscribes to a topic whose name has %zu bytes",
                             BRIEF(m->group), s->topic.len);
        if (s->expression.len > SUB_MAX)
            return fault_set(why, ERR_TOO_BIG,
                             "the expression of group [%.*s] for topic [%.*s] has %zu bytes",
                             BRIEF(m->group), BRIEF(s->topic), s->expression.len);
    }
    return OK;
}

const struct sub *subs_find(const struct crowd *crowd, struct bytes topic)
{
    return map_get(&crowd->subs, topic);
}

void subs_clear(struct crowd *crowd)
{
    struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));)
        free(sub);
    map_clear(&crowd->subs);
}

/* An expression that cannot be used does not keep the client out of its group: its pulls are told.
 */
static void sub_compile(struct sub *sub, const struct subscription *s)
{
    sub->version = s->version;
    sub->filter_err = filter_parse(s->expression, s->expression_type, &sub->filter, NULL);
}

static enum err sub_add(struct crowd *crowd, const struct subscription *s)
{
    struct sub *sub = calloc(1, sizeof *sub + s->topic.len);
    if (!sub)
        return ERR_NO_MEMORY;
    sub->topic_len = s->topic.len;
    memcpy(sub->topic, s->topic.at, s->topic.len);
    sub_compile(sub, s);
    sub->wanted = true;
    enum err err = map_put(&crowd->subs, bytes_of(sub->topic, sub->topic_len), sub);
    if (err)
        free(sub);
    return err;
}

/* True when one had to go. */
static bool subs_sweep(struct crowd *crowd)
{
    struct sub *unwanted[GROUP_SUBS];
    size_t n = 0;
    struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));)
        if (!sub->wanted)
            unwanted[n++] = sub;
    for (size_t i = 0; i < n; i++) {
        (void)map_remove(&crowd->subs, bytes_of(unwanted[i]->topic, unwanted[i]->topic_len));
        free(unwanted[i]);
    }
    return n > 0;
}

/* Room: core. Those that stay are brought up to date first, so that there are never too many. */
enum err subs_update(struct broker *b, struct crowd *crowd, const struct membership *m,
                     bool *changed)
{
    room_held(&b->room);
    struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));)
        sub->wanted = false;
    for (size_t i = 0; i < m->n_subs; i++) {
        sub = map_get(&crowd->subs, m->subs[i].topic);
        if (!sub)
            continue;
        sub->wanted = true;
        if (m->subs[i].version > sub->version)
            sub_compile(sub, &m->subs[i]);
    }
    bool differs = subs_sweep(crowd);
    for (size_t i = 0; i < m->n_subs; i++) {
        if (map_get(&crowd->subs, m->subs[i].topic))
            continue;
        enum err err = sub_add(crowd, &m->subs[i]);
        if (err)
            return err;
        differs = true;
    }
    *changed = differs;
    return OK;
}
