/* numbers.c - how much goes through this broker: what is counted, where, and what it costs.
 *
 * Counters only rise, from zero at the start, and each stands where something passes anyway:
 *
 *     lane     a queue       in: counted by the dispatcher's news, which enters the core anyway, so
 *                            whoever stores something (a send, a delay level, a retry, a service of
 *                            tomorrow) is counted without knowing of it; out: by whoever reads
 *     flow     a topic       the lanes of its queues
 *     tally    topic@group   what a group has read of a topic, and what it gave back
 *     broker                 all together, and the times that sends and pulls took
 *
 * A queue's note points to its lane and a group's progress to its tally, so the way of a message
 * has no lookup for this: some additions, and no key that is not held anyway. What is counted
 * without the key is atomic and relaxed.
 *
 * Every ten seconds a round goes over all flows and tallies, some at a time, and notes their
 * counters in histories (history.h). A sum over a minute, an hour or a day, and a rate, is what a
 * counter shows now less what the history says: it is right at any moment, and the first message
 * shows at once. A history is made when its counter first shows something. That bounds the memory
 * by what is in use: 0.7 KiB a queue, 1.2 KiB a topic, 1.7 KiB a topic@group. Deleting a topic or a
 * group's offsets forgets the counters with them.
 *
 * How long things took is counted in the same places: latency.c.
 *
 * Who asks: numbers_view.c, by the names that Apache's broker has for statistics, for mqadmin; and
 * broker_numbers() with everything about the broker as a whole, where services show their own
 * numbers too. How far a group is behind is no counter: look.c finds it from its offsets.
 */
#include "broker/broker_int.h"

#include <stdlib.h>
#include <time.h>

#define ROUND_STEP 256 /* flows, or tallies, that are looked at in one turn */

/* ---- lanes and flows ---- */

/* Room: core. The flow of a topic that exists; NULL: it does not, or no memory. */
static struct flow *flow_need(struct broker *b, struct bytes topic)
{
    room_held(&b->room);
    struct flow *flow = map_get(&b->numbers.flows, topic);
    if (flow || !topic_find(b, topic))
        return flow;
    flow = calloc(1, sizeof *flow + topic.len);
    if (!flow)
        return NULL;
    list_init(&flow->lanes);
    flow->name_len = topic.len;
    memcpy(flow->name, topic.at, topic.len);
    if (map_put(&b->numbers.flows, bytes_of(flow->name, flow->name_len), flow)) {
        free(flow);
        return NULL;
    }
    return flow;
}

/* Room: core. The queue's first message, or its first since the topic was made anew. */
static struct lane *lane_make(struct broker *b, struct lane *lane, struct queue *queue,
                              struct bytes topic, int32_t queue_id)
{
    room_held(&b->room);
    struct flow *flow = flow_need(b, topic);
    if (!lane && flow) {
        lane = calloc(1, sizeof *lane);
        if (!lane)
            return NULL;
        lane->queue = queue;
        lane->queue_id = queue_id;
        lane->older = b->numbers.lanes;
        b->numbers.lanes = lane;
        queue_note_set(queue, lane);
    }
    if (!flow)
        return NULL;
    lane->flow = flow;
    list_add_tail(&flow->lanes, &lane->in_flow);
    return lane;
}

/* Room: core. */
static inline struct lane *lane_need(struct broker *b, struct queue *queue, struct bytes topic,
                                     int32_t queue_id)
{
    struct lane *lane = queue_note(queue);
    return lane && lane->flow ? lane : lane_make(b, lane, queue, topic, queue_id);
}

struct lane *numbers_lane(struct broker *b, struct queue *queue, struct bytes topic,
                          int32_t queue_id)
{
    room_held(&b->room);
    return lane_need(b, queue, topic, queue_id);
}

void numbers_arrived(struct broker *b, const struct arrival *news, size_t n)
{
    room_held(&b->room);
    for (size_t i = 0; i < n; i++) {
        b->numbers.put += news[i].count;
        b->numbers.put_size += news[i].size;
        struct lane *lane = lane_need(b, news[i].queue, news[i].topic, news[i].queue_id);
        if (!lane)
            continue;
        lane->in += news[i].count;
        lane->in_size += news[i].size;
    }
}

static void times_clear(struct times *times)
{
    for (size_t i = 0; i < LATENCY_BUCKETS; i++)
        atomic_store_explicit(&times->buckets[i], 0, memory_order_relaxed);
}

void numbers_forget(struct broker *b, struct bytes topic)
{
    room_held(&b->room);
    struct flow *flow = map_remove(&b->numbers.flows, topic);
    if (!flow)
        return;
    for (struct link *k; (k = list_pop(&flow->lanes));) {
        struct lane *lane = list_entry(k, struct lane, in_flow);
        lane->flow = NULL;
        lane->in = lane->in_size = 0;
        atomic_store_explicit(&lane->out, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->out_size, 0, memory_order_relaxed);
        times_clear(&lane->puts);
        times_clear(&lane->gets);
        history_free(lane->past);
        lane->past = NULL;
    }
    history_free(flow->past);
    free(flow);
}

/* ---- tallies ---- */

static void tally_free(struct counted *counted)
{
    struct tally *tally = list_entry(counted, struct tally, counted);
    history_free(tally->past);
    free(tally);
}

void tally_drop(struct tally *tally)
{
    if (tally)
        counted_drop(&tally->counted);
}

/* Room: core. NULL: no memory. */
static struct tally *tally_need(struct progress *p)
{
    if (p->tally)
        return p->tally;
    p->tally = calloc(1, sizeof *p->tally);
    if (p->tally)
        counted_init(&p->tally->counted, tally_free);
    return p->tally;
}

struct counting counting_begin(struct broker *b, const struct topic *topic, int32_t queue_id,
                               struct queue *queue, struct progress *progress)
{
    struct counting counting = {
        .lane = lane_need(b, queue, topic->set.name, queue_id),
        .tally = progress ? tally_need(progress) : NULL,
    };
    if (counting.tally)
        counted_hold(&counting.tally->counted);
    return counting;
}

static inline void bump(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

void counting_drop(struct counting *counting)
{
    tally_drop(counting->tally);
    *counting = (struct counting){0};
}

void numbers_got(struct broker *b, struct counting *counting, uint32_t count, uint64_t size,
                 uint64_t ns)
{
    if (count > 0) {
        bump(&b->numbers.got, count);
        bump(&b->numbers.got_size, size);
        if (counting->lane) {
            bump(&counting->lane->out, count);
            bump(&counting->lane->out_size, size);
            times_add(&counting->lane->gets, ns);
        }
        if (counting->tally) {
            bump(&counting->tally->times, 1);
            bump(&counting->tally->nums, count);
            bump(&counting->tally->size, size);
            bump(&counting->tally->ns, ns);
            times_add(&counting->tally->gets, ns);
        }
        spread_add(&b->numbers.pulls, ns, 1);
    }
    counting_drop(counting);
}

void numbers_back(struct broker *b, struct bytes group, struct bytes topic)
{
    room_held(&b->room);
    struct progress *p = progress_need(b, group, topic);
    struct tally *tally = p ? tally_need(p) : NULL;
    if (tally)
        tally->back++;
}

/* ---- rounds ---- */

static struct sample sample_now(struct broker *b)
{
    return (struct sample){
        .at_ns = clock_ns(b->clock),
        .put = b->numbers.put,
        .got = atomic_load_explicit(&b->numbers.got, memory_order_relaxed),
    };
}

static int64_t local_day(struct broker *b)
{
    time_t now = (time_t)(clock_ms(b->clock) / 1000);
    struct tm local;
    return localtime_r(&now, &local) ? local.tm_year * 366 + local.tm_yday : 0;
}

void numbers_init(struct broker *b)
{
    struct numbers *s = &b->numbers;
    s->boot_ms = clock_ms(b->clock);
    s->samples[0] = sample_now(b);
    s->boot_ns = s->samples[0].at_ns;
    s->n = 1;
    s->day = local_day(b);
    s->stage = ROUND_OVER;
    map_init(&s->flows, dice_next(&b->dice));
}

void numbers_clear(struct broker *b)
{
    struct numbers *s = &b->numbers;
    struct flow *flow;
    for (size_t i = 0; (flow = map_next(&s->flows, &i));) {
        history_free(flow->past);
        free(flow);
    }
    map_clear(&s->flows);
    for (struct lane *lane; (lane = s->lanes);) {
        s->lanes = lane->older;
        queue_note_set(lane->queue, NULL);
        history_free(lane->past);
        free(lane);
    }
    history_free(s->past);
}

/* Without memory there is no history, and sums are those since the start. */
static void past_note(struct history **past, size_t width, size_t spans, uint64_t tick,
                      const uint64_t *now)
{
    bool any = false;
    for (size_t i = 0; i < width; i++)
        any |= now[i] != 0;
    if (!*past && any)
        *past = history_make(width, spans, tick);
    if (*past)
        history_note(*past, tick, now);
}

/* Room: core. */
static void flow_note(struct flow *flow, uint64_t tick)
{
    uint64_t now[FLOW_WIDTH];
    list_each(k, &flow->lanes) {
        struct lane *lane = list_entry(k, struct lane, in_flow);
        lane_now(lane, now);
        past_note(&lane->past, FLOW_WIDTH, 1, tick, now);
    }
    flow_now(flow, now);
    past_note(&flow->past, FLOW_WIDTH, SPANS, tick, now);
}

static void tally_note(struct tally *tally, uint64_t tick)
{
    uint64_t now[TALLY_WIDTH];
    tally_now(tally, now);
    past_note(&tally->past, TALLY_WIDTH, SPANS, tick, now);
}

/* Room: core. What is a tick old is noted once; a table that grows meanwhile may move something
 * past us, which is then noted in the next round and shows a longer step. */
static void round_step(struct broker *b)
{
    struct numbers *s = &b->numbers;
    for (int i = 0; i < ROUND_STEP && s->stage != ROUND_OVER; i++) {
        struct flow *flow = s->stage == ROUND_FLOWS ? map_next(&s->flows, &s->at) : NULL;
        struct progress *p = s->stage == ROUND_TALLIES ? map_next(&b->progress, &s->at) : NULL;
        if (flow) {
            flow_note(flow, s->tick);
        } else if (p) {
            if (p->tally)
                tally_note(p->tally, s->tick);
        } else {
            s->stage++;
            s->at = 0;
        }
    }
}

static void day_turn(struct broker *b)
{
    struct numbers *s = &b->numbers;
    int64_t today = local_day(b);
    if (today == s->day)
        return;
    s->day = today;
    s->put_mornings[1] = s->put_mornings[0];
    s->got_mornings[1] = s->got_mornings[0];
    s->put_mornings[0] = s->put;
    s->got_mornings[0] = atomic_load_explicit(&s->got, memory_order_relaxed);
}

void numbers_turn(struct broker *b)
{
    room_held(&b->room);
    struct numbers *s = &b->numbers;
    if (s->stage != ROUND_OVER) {
        round_step(b);
        return;
    }
    uint64_t tick = (clock_ns(b->clock) - s->boot_ns) / TICK_NS;
    if (tick == s->tick)
        return;
    s->tick = tick;
    s->stage = ROUND_FLOWS;
    s->at = 0;
    s->samples[s->n++ % SAMPLES] = sample_now(b);
    uint64_t now[FLOW_WIDTH];
    numbers_now(b, now);
    past_note(&s->past, FLOW_WIDTH, SPANS, tick, now);
    day_turn(b);
    round_step(b);
}
