/* chaos_plan.c - which fault is for whom. No clock, no dice, no I/O. */
#include "door/remoting/chaos_int.h"

#include "base/map.h"

#include <stdlib.h>

#define LIFE_MAX_MS  3600000
#define DELAY_MAX_MS 60000
#define A_MINUTE_MAX 6000

static bool name_take(char *to, struct bytes name)
{
    if (name.len > CHAOS_NAME_MAX || (name.len > 0 && memchr(name.at, 0, name.len)))
        return false;
    if (name.len > 0)
        memcpy(to, name.at, name.len);
    to[name.len] = 0;
    return true;
}

static bool number_take(uint32_t *to, int64_t number, int64_t max)
{
    *to = (uint32_t)number;
    return number >= 0 && number <= max;
}

enum err chaos_plan_read(const struct chaos_fields *f, struct chaos_plan *out, struct fault *why)
{
    struct chaos_plan p = {.seed = (uint64_t)f->seed};
    if (!name_take(p.topic, f->topic) || !name_take(p.group, f->group) ||
        (p.topic[0] == 0 && p.group[0] == 0))
        return fault_set(why, ERR_INVALID, "a plan needs the name of a topic, a group, or both");
    if (!number_take(&p.twice, f->twice, CHAOS_WHOLE) ||
        !number_take(&p.later, f->twice_later, CHAOS_WHOLE) ||
        !number_take(&p.drop_acks, f->drop_acks, CHAOS_WHOLE) ||
        !number_take(&p.drop_answers, f->drop_responses, CHAOS_WHOLE))
        return fault_set(why, ERR_INVALID, "a share is told in millionths, from 0 to %d",
                         CHAOS_WHOLE);
    if (!number_take(&p.later_ms, f->later_ms, LIFE_MAX_MS) ||
        !number_take(&p.delay_min_ms, f->delay_min_ms, DELAY_MAX_MS) ||
        !number_take(&p.delay_max_ms, f->delay_max_ms, DELAY_MAX_MS) ||
        p.delay_min_ms > p.delay_max_ms)
        return fault_set(why, ERR_INVALID,
                         "a delay is at most %d ms, from the shortest to the longest, and a later "
                         "copy at most %d ms later",
                         DELAY_MAX_MS, LIFE_MAX_MS);
    if (!number_take(&p.kills, f->kills, A_MINUTE_MAX) ||
        !number_take(&p.rebalances, f->rebalances, A_MINUTE_MAX))
        return fault_set(why, ERR_INVALID,
                         "connections are killed and groups rebalanced at most %d times a minute",
                         A_MINUTE_MAX);
    if (!number_take(&p.life_ms, f->life_ms, LIFE_MAX_MS) || p.life_ms == 0)
        return fault_set(why, ERR_INVALID, "a plan lives for 1 to %d ms", LIFE_MAX_MS);
    *out = p;
    return OK;
}

static uint64_t stir(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t chaos_number(const struct chaos_plan *plan, enum chaos_kind kind, uint64_t what,
                      uint64_t bound)
{
    invariant(bound > 0);
    uint64_t x = stir(plan->seed + UINT64_C(0x9e3779b97f4a7c15));
    return stir(stir(x ^ ((uint64_t)kind + 1) << 56) ^ what) % bound;
}

bool chaos_hits(const struct chaos_plan *plan, enum chaos_kind kind, uint64_t what)
{
    uint32_t share = kind == CHAOS_TWICE     ? plan->twice
                     : kind == CHAOS_LATER   ? plan->later
                     : kind == CHAOS_ANSWERS ? plan->drop_answers
                     : kind == CHAOS_ACKS    ? plan->drop_acks
                                             : 0;
    return share > 0 && chaos_number(plan, kind, what, CHAOS_WHOLE) < share;
}

uint64_t chaos_message(struct bytes props, struct bytes body)
{
    struct marks marks = props_marks(props);
    if (marks.keys.len > 0)
        return bytes_hash(body, bytes_hash(marks.keys, 1));
    return marks.unique.len > 0 ? bytes_hash(marks.unique, 2) : bytes_hash(body, 3);
}

uint64_t chaos_place(struct bytes group, struct bytes topic, int32_t queue_id, int64_t offset)
{
    uint64_t where = bytes_hash(topic, bytes_hash(group, 4));
    return stir(stir(where + (uint64_t)(uint32_t)queue_id) + (uint64_t)offset);
}

uint64_t chaos_due(uint32_t a_minute, uint64_t ms)
{
    return (ms * a_minute + 30000) / 60000;
}

bool chaos_sends_to(const struct chaos_plan *plan, struct bytes topic)
{
    return plan->topic[0] && bytes_equal(topic, bytes_str(plan->topic));
}

bool chaos_reads(const struct chaos_plan *plan, struct bytes group, struct bytes topic)
{
    return (plan->group[0] == 0 || bytes_equal(group, bytes_str(plan->group))) &&
           (plan->topic[0] == 0 || bytes_equal(topic, bytes_str(plan->topic)) ||
            bytes_start(topic, RETRY_PREFIX));
}

/* ---- what was there before ---- */

bool chaos_seen_add(struct chaos_seen *seen, uint64_t number)
{
    if (!seen->at)
        seen->at = calloc(CHAOS_SEEN_MAX, sizeof *seen->at);
    if (!seen->at)
        return false;
    number += number == 0;
    size_t i = stir(number) & (CHAOS_SEEN_MAX - 1);
    for (; seen->at[i]; i = (i + 1) & (CHAOS_SEEN_MAX - 1))
        if (seen->at[i] == number)
            return false;
    if (seen->n >= CHAOS_SEEN_MAX / 4 * 3)
        return false;
    seen->at[i] = number;
    seen->n++;
    return true;
}

void chaos_seen_clear(struct chaos_seen *seen)
{
    free(seen->at);
    *seen = (struct chaos_seen){0};
}
