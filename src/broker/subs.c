/* subs.c - what a group subscribes to.
 *
 * Expressions are compiled once, when they are new, and outside the core: subs_prepare looks which
 * ones are, leaves, and makes them ready; subs_update puts them in their places. In between another
 * member may have changed the group, so the second decides anew and the first only saves it work.
 */
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

/* ---- expressions ---- */

static void verdict_clear(struct verdict *v)
{
    filter_drop(v->filter);
    free(v->reason);
    *v = (struct verdict){0};
}

/* An expression that cannot be used does not keep the client out of its group: its pulls are told.
 */
static void ready_make(struct broker *b, const struct subscription *s, struct sub_ready *ready)
{
    struct fault why = {0};
    struct verdict *v = &ready->verdict;
    v->err = filter_make(&b->filters, s->expression, s->expression_type, &v->filter, &why);
    if (v->err)
        v->reason = strdup(why.text);
    ready->made = true;
}

/* Room: core. Which of them the group has already. */
static void subs_look(struct broker *b, const struct membership *m, struct subs_ready *ready)
{
    room_held(&b->room);
    const struct crowd *crowd = consumers_find(b, m->group);
    for (size_t i = 0; crowd && i < m->n_subs; i++) {
        const struct sub *sub = subs_find(crowd, m->subs[i].topic);
        ready->each[i].known = sub && sub->version >= m->subs[i].version;
    }
}

/* Clients add their group's retry topic themselves, some only a moment after their start. */
static bool is_retry(struct bytes topic)
{
    return bytes_start(topic, RETRY_PREFIX);
}

enum err subs_prepare(struct broker *b, const struct membership *m, struct subs_ready *out)
{
    *out = (struct subs_ready){0};
    if (m->without_subs)
        return OK;
    out->each = calloc(m->n_subs + 1, sizeof *out->each);
    if (!out->each)
        return ERR_NO_MEMORY;
    out->n = m->n_subs;
    room_enter(&b->room);
    subs_look(b, m, out);
    room_leave(&b->room);
    for (size_t i = 0; i < m->n_subs; i++) {
        const struct subscription *s = &m->subs[i];
        struct sub_ready *ready = &out->each[i];
        ready->mark = bytes_hash(s->topic, filter_mark(s->expression, s->expression_type));
        out->mark += is_retry(s->topic) ? 0 : ready->mark;
        if (!ready->known)
            ready_make(b, s, ready);
    }
    return OK;
}

void subs_ready_clear(struct subs_ready *ready)
{
    for (size_t i = 0; i < ready->n; i++)
        verdict_clear(&ready->each[i].verdict);
    free(ready->each);
}

/* ---- the group's table ---- */

static struct sub_shown *shown_make(const struct subscription *s)
{
    size_t type = s->expression_type.len < SUB_SHOWN ? s->expression_type.len : SUB_SHOWN;
    size_t expression = s->expression.len < SUB_SHOWN ? s->expression.len : SUB_SHOWN;
    struct sub_shown *shown = malloc(sizeof *shown + type + expression);
    if (!shown)
        return NULL;
    shown->type_len = type;
    shown->expression_len = expression;
    struct wr w = wr_over(shown->text, type + expression);
    wr_bytes_of(&w, bytes_of(s->expression_type.at, type));
    wr_bytes_of(&w, bytes_of(s->expression.at, expression));
    return shown;
}

static void sub_free(struct sub *sub)
{
    verdict_clear(&sub->verdict);
    free(sub->shown);
    free(sub);
}

void subs_clear(struct crowd *crowd)
{
    struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));)
        sub_free(sub);
    map_clear(&crowd->subs);
}

/* Room: core. */
static void sub_set(struct broker *b, struct sub *sub, const struct subscription *s,
                    struct sub_ready *ready)
{
    room_held(&b->room);
    if (!ready->made) /* it was known, and went while nobody looked */
        ready_make(b, s, ready);
    verdict_clear(&sub->verdict);
    sub->verdict = ready->verdict;
    ready->verdict = (struct verdict){0};
    ready->made = false;
    sub->version = s->version;
    sub->mark = ready->mark;
    free(sub->shown);
    sub->shown = shown_make(s);
}

/* Room: core. */
static enum err sub_add(struct broker *b, struct crowd *crowd, const struct subscription *s,
                        struct sub_ready *ready)
{
    room_held(&b->room);
    struct sub *sub = calloc(1, sizeof *sub + s->topic.len);
    if (!sub)
        return ERR_NO_MEMORY;
    sub->topic_len = s->topic.len;
    memcpy(sub->topic, s->topic.at, s->topic.len);
    sub_set(b, sub, s, ready);
    sub->wanted = true;
    enum err err = map_put(&crowd->subs, bytes_of(sub->topic, sub->topic_len), sub);
    if (err)
        sub_free(sub);
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
        sub_free(unwanted[i]);
    }
    return n > 0;
}

/* Room: core. Those that stay are brought up to date first, so that there are never too many. */
enum err subs_update(struct broker *b, struct crowd *crowd, const struct membership *m,
                     struct subs_ready *ready, bool *changed)
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
            sub_set(b, sub, &m->subs[i], &ready->each[i]);
    }
    bool differs = subs_sweep(crowd);
    for (size_t i = 0; i < m->n_subs; i++) {
        if (map_get(&crowd->subs, m->subs[i].topic))
            continue;
        enum err err = sub_add(b, crowd, &m->subs[i], &ready->each[i]);
        if (err)
            return err;
        differs = true;
    }
    *changed = differs;
    return OK;
}

struct bytes subs_differ(const struct crowd *crowd, const struct membership *m,
                         const struct subs_ready *ready)
{
    for (size_t i = 0; i < m->n_subs; i++) {
        const struct sub *sub = subs_find(crowd, m->subs[i].topic);
        if ((!sub || sub->mark != ready->each[i].mark) && !is_retry(m->subs[i].topic))
            return m->subs[i].topic;
    }
    const struct sub *sub;
    for (size_t i = 0; (sub = map_next(&crowd->subs, &i));) {
        struct bytes topic = bytes_of(sub->topic, sub->topic_len);
        bool there = is_retry(topic);
        for (size_t j = 0; j < m->n_subs && !there; j++)
            there = bytes_equal(m->subs[j].topic, topic);
        if (!there)
            return topic;
    }
    return (struct bytes){0};
}
