/* latency.c - how long sends and pulls took: of a queue, a topic, a group, the broker.
 *
 * Times are counted in buckets of powers of two: bucket k has those below 2^k µs that are in no
 * bucket before, the last has the rest. Of sends: from their reading to their answer (so with the
 * disk, when that is waited for). Of pulls and pops: until the messages were found; not how long
 * one waited for the first to come.
 *
 * A queue has the times of its sends and pulls in its lane, and a topic those of its queues; a
 * group has its pulls in its tally. The sends of one turn were read and answered together, so they
 * are of one bucket: what a turn costs is one addition for each queue that it had, not for each
 * message.
 *
 * They are counted since the start. Whoever wants them of a minute asks twice.
 */
#include "broker/broker_int.h"

#define HEAPS 16 /* queues of one turn that are added up first */

static size_t bucket_of(uint64_t ns)
{
    uint64_t us = ns / 1000;
    size_t bucket = us ? 64 - (size_t)__builtin_clzll(us) : 0;
    return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

static inline void bump(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

void times_add(struct times *times, uint64_t ns)
{
    bump(&times->buckets[bucket_of(ns)], 1);
}

void spread_add(struct spread *spread, uint64_t ns, uint32_t n)
{
    bump(&spread->times.buckets[bucket_of(ns)], n);
    bump(&spread->sum_ns, ns * n);
}

/* The queues of a turn are few and come in any order. */
static void lanes_add(struct lane *const *lanes, size_t n, size_t bucket)
{
    struct lane *heaps[HEAPS];
    uint32_t counts[HEAPS], made = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < made && heaps[k] != lanes[i])
            k++;
        if (k < made) {
            counts[k]++;
        } else if (made < HEAPS) {
            heaps[made] = lanes[i];
            counts[made++] = 1;
        } else if (lanes[i]) {
            bump(&lanes[i]->puts.buckets[bucket], 1);
        }
    }
    for (uint32_t k = 0; k < made; k++)
        if (heaps[k])
            bump(&heaps[k]->puts.buckets[bucket], counts[k]);
}

void broker_sends_took(struct broker *b, uint64_t ns, struct lane *const *lanes, size_t n)
{
    spread_add(&b->numbers.sends, ns, (uint32_t)n);
    lanes_add(lanes, n, bucket_of(ns));
}

/* ---- for whoever asks ---- */

static void times_view(const struct times *times, struct latency *out)
{
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        uint64_t n = atomic_load_explicit(&times->buckets[i], memory_order_relaxed);
        out->buckets[i] += n;
        out->count += n;
    }
}

void spread_view(const struct spread *spread, struct latency *out)
{
    times_view(&spread->times, out);
    out->sum_us = atomic_load_explicit(&spread->sum_ns, memory_order_relaxed) / 1000;
}

uint64_t latency_quantile_us(const struct latency *latency, double part)
{
    uint64_t wanted = (uint64_t)((double)latency->count * part), seen = 0;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        seen += latency->buckets[i];
        if (latency->buckets[i] && seen >= wanted)
            return UINT64_C(1) << i;
    }
    return 0;
}

static const struct {
    const char *name;
    enum owner owner;
    bool puts;
} kinds[] = {{"TOPIC_PUT_LATENCY", OWNER_TOPIC, true},   {"TOPIC_GET_LATENCY", OWNER_TOPIC, false},
             {"QUEUE_PUT_LATENCY", OWNER_QUEUE, true},   {"QUEUE_GET_LATENCY", OWNER_QUEUE, false},
             {"GROUP_GET_LATENCY", OWNER_GROUP, false},  {"BROKER_PUT_LATENCY", OWNER_BROKER, true},
             {"BROKER_GET_LATENCY", OWNER_BROKER, false}};

/* Room: core. Of one queue, or (NULL) of all the topic's. */
static bool lanes_view(struct broker *b, struct bytes topic, const int32_t *queue_id, bool puts,
                       struct latency *out)
{
    room_held(&b->room);
    const struct flow *flow = map_get(&b->numbers.flows, topic);
    bool any = false;
    if (!flow)
        return false;
    list_each(k, &flow->lanes) {
        const struct lane *lane = list_entry(k, struct lane, in_flow);
        if (queue_id && lane->queue_id != *queue_id)
            continue;
        times_view(puts ? &lane->puts : &lane->gets, out);
        any = true;
    }
    return any;
}

/* Room: core. */
static bool latency_find(struct broker *b, size_t kind, struct bytes key, struct latency *out)
{
    room_held(&b->room);
    bool puts = kinds[kind].puts;
    struct bytes topic;
    int32_t queue_id;
    const struct progress *p;
    switch (kinds[kind].owner) {
    case OWNER_TOPIC:
        return lanes_view(b, key, NULL, puts, out);
    case OWNER_QUEUE:
        return stat_key_queue(key, &topic, &queue_id) && lanes_view(b, topic, &queue_id, puts, out);
    case OWNER_GROUP:
        p = map_get(&b->progress, key);
        if (p && p->tally)
            times_view(&p->tally->gets, out);
        return p && p->tally;
    case OWNER_BROKER:
        spread_view(puts ? &b->numbers.sends : &b->numbers.pulls, out);
        return bytes_equal(key, bytes_str(b->set.cluster));
    }
    return false;
}

enum err broker_latency(struct broker *b, struct bytes name, struct bytes key, struct latency *out)
{
    struct latency found = {0};
    size_t kind = 0, n = sizeof kinds / sizeof *kinds;
    while (kind < n && !bytes_equal(name, bytes_str(kinds[kind].name)))
        kind++;
    if (kind == n || key.len == 0)
        return ERR_NOT_FOUND;
    room_enter(&b->room);
    bool there = latency_find(b, kind, key, &found);
    room_leave(&b->room);
    if (!there)
        return ERR_NOT_FOUND;
    *out = found;
    return OK;
}

enum err latency_stat(struct broker *b, struct bytes name, struct bytes key,
                      struct stat_windows *out)
{
    static const struct {
        const char *suffix;
        double part;
    } parts[] = {{"_50", 0.5}, {"_99", 0.99}, {"_999", 0.999}, {"_MAX", 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct bytes suffix = bytes_str(parts[i].suffix);
        if (name.len <= suffix.len || !bytes_equal(bytes_from(name, name.len - suffix.len), suffix))
            continue;
        struct latency latency;
        enum err err = broker_latency(b, bytes_of(name.at, name.len - suffix.len), key, &latency);
        if (err)
            return err;
        double ms = (double)latency_quantile_us(&latency, parts[i].part) / 1000;
        struct stat_window since_start = {.sum = latency.count, .average = ms};
        *out = (struct stat_windows){since_start, since_start, since_start};
        return OK;
    }
    return ERR_NOT_FOUND;
}
