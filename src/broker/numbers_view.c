/* numbers_view.c - what was counted, for whoever asks. numbers.c tells the model. */
#include "broker/broker_int.h"

#include <stdlib.h>

/* ---- counters ---- */

static uint64_t peek(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void numbers_now(struct broker *b, uint64_t now[FLOW_WIDTH])
{
    room_held(&b->room);
    now[FLOW_IN] = b->numbers.put;
    now[FLOW_IN_SIZE] = b->numbers.put_size;
    now[FLOW_OUT] = peek(&b->numbers.got);
    now[FLOW_OUT_SIZE] = peek(&b->numbers.got_size);
}

void lane_now(const struct lane *lane, uint64_t now[FLOW_WIDTH])
{
    now[FLOW_IN] = lane->in;
    now[FLOW_IN_SIZE] = lane->in_size;
    now[FLOW_OUT] = peek(&lane->out);
    now[FLOW_OUT_SIZE] = peek(&lane->out_size);
}

void flow_now(const struct flow *flow, uint64_t now[FLOW_WIDTH])
{
    memset(now, 0, FLOW_WIDTH * sizeof *now);
    list_each(k, &flow->lanes) {
        uint64_t part[FLOW_WIDTH];
        lane_now(list_entry(k, struct lane, in_flow), part);
        for (size_t i = 0; i < FLOW_WIDTH; i++)
            now[i] += part[i];
    }
}

void tally_now(const struct tally *tally, uint64_t now[TALLY_WIDTH])
{
    now[TALLY_NUMS] = peek(&tally->nums);
    now[TALLY_SIZE] = peek(&tally->size);
    now[TALLY_TIMES] = peek(&tally->times);
    now[TALLY_NS] = peek(&tally->ns);
    now[TALLY_BACK] = tally->back;
}

/* ---- windows ---- */

/* One statistic: counters, which of them, and by which other one it is divided for an average. */
struct view {
    uint64_t now[TALLY_WIDTH];
    struct history *past; /* NULL: everything came since the start */
    size_t spans;
    size_t value, times; /* times SIZE_MAX: each is counted by itself */
    uint64_t divide;     /* the value, to have its unit */
};

/* Room: core. */
static struct stat_window window_of(struct broker *b, const struct view *v, enum span span)
{
    room_held(&b->room);
    static const uint64_t zeros[TALLY_WIDTH];
    const struct numbers *s = &b->numbers;
    uint64_t up_ns = clock_ns(b->clock) - s->boot_ns, tick = up_ns / TICK_NS;
    if (span >= v->spans)
        return (struct stat_window){0};
    if (v->past)
        history_note(v->past, tick, v->now); /* if its round has not come by yet */
    const uint64_t *then = v->past ? history_then(v->past, span, tick) : zeros;
    uint64_t sum = (v->now[v->value] - then[v->value]) / v->divide;
    uint64_t times = v->times == SIZE_MAX ? sum : v->now[v->times] - then[v->times];
    return (struct stat_window){
        .sum = sum,
        .per_second = (double)sum / span_seconds(span, up_ns),
        .average = times ? (double)sum / (double)times : 0,
    };
}

double numbers_topic_rate(struct broker *b, struct bytes topic)
{
    room_held(&b->room);
    const struct flow *flow = map_get(&b->numbers.flows, topic);
    if (!flow)
        return 0;
    struct view v = {
        .past = flow->past, .spans = 1, .value = FLOW_IN, .times = SIZE_MAX, .divide = 1};
    flow_now(flow, v.now);
    return window_of(b, &v, SPAN_MINUTE).per_second;
}

double numbers_group_rate(struct broker *b, struct bytes group, struct bytes topic)
{
    const struct progress *p = progress_find(b, group, topic);
    if (!p || !p->tally)
        return 0;
    struct view v = {
        .past = p->tally->past, .spans = 1, .value = TALLY_NUMS, .times = TALLY_TIMES, .divide = 1};
    tally_now(p->tally, v.now);
    return window_of(b, &v, SPAN_MINUTE).per_second;
}

/* ---- statistics by name ---- */

/* The names are Apache's (Stats, BrokerStatsManager). Its QUEUE_GET_… have the group at the end of
 * their keys as well; ours are of all groups together. GROUP_GET_LATENCY is in ms. Parts of the
 * times (TOPIC_PUT_LATENCY_99 …) are latency.c's. */
static const struct {
    const char *name;
    enum owner owner;
    size_t value, times;
    uint64_t divide;
} stats[] = {
    {"TOPIC_PUT_NUMS", OWNER_TOPIC, FLOW_IN, SIZE_MAX, 1},
    {"TOPIC_PUT_SIZE", OWNER_TOPIC, FLOW_IN_SIZE, FLOW_IN, 1},
    {"QUEUE_PUT_NUMS", OWNER_QUEUE, FLOW_IN, SIZE_MAX, 1},
    {"QUEUE_PUT_SIZE", OWNER_QUEUE, FLOW_IN_SIZE, FLOW_IN, 1},
    {"QUEUE_GET_NUMS", OWNER_QUEUE, FLOW_OUT, SIZE_MAX, 1},
    {"QUEUE_GET_SIZE", OWNER_QUEUE, FLOW_OUT_SIZE, FLOW_OUT, 1},
    {"GROUP_GET_NUMS", OWNER_GROUP, TALLY_NUMS, TALLY_TIMES, 1},
    {"GROUP_GET_SIZE", OWNER_GROUP, TALLY_SIZE, TALLY_TIMES, 1},
    {"GROUP_GET_LATENCY", OWNER_GROUP, TALLY_NS, TALLY_TIMES, 1000000},
    {"SNDBCK_PUT_NUMS", OWNER_GROUP, TALLY_BACK, SIZE_MAX, 1},
    {"BROKER_PUT_NUMS", OWNER_BROKER, FLOW_IN, SIZE_MAX, 1},
    {"BROKER_GET_NUMS", OWNER_BROKER, FLOW_OUT, SIZE_MAX, 1},
};

/* Room: core. */
static bool flow_view(struct broker *b, struct bytes topic, struct view *v)
{
    const struct flow *flow = map_get(&b->numbers.flows, topic);
    if (!flow)
        return false;
    flow_now(flow, v->now);
    v->past = flow->past;
    v->spans = SPANS;
    return true;
}

bool stat_key_queue(struct bytes key, struct bytes *topic, int32_t *queue_id)
{
    const uint8_t *at = memchr(key.at, '@', key.len);
    size_t len = at ? (size_t)(at - key.at) : 0;
    *topic = bytes_of(key.at, len);
    return at && bytes_to_i32(bytes_from(key, len + 1), queue_id);
}

/* Room: core. */
static bool lane_view(struct broker *b, struct bytes key, struct view *v)
{
    struct bytes topic;
    int32_t queue_id;
    if (!stat_key_queue(key, &topic, &queue_id))
        return false;
    const struct flow *flow = map_get(&b->numbers.flows, topic);
    if (!flow)
        return false;
    list_each(k, &flow->lanes) {
        const struct lane *lane = list_entry(k, struct lane, in_flow);
        if (lane->queue_id != queue_id)
            continue;
        lane_now(lane, v->now);
        v->past = lane->past;
        v->spans = 1;
        return true;
    }
    return false;
}

/* Room: core. Progress has the same key. */
static bool tally_view(struct broker *b, struct bytes key, struct view *v)
{
    const struct progress *p = map_get(&b->progress, key);
    if (!p || !p->tally)
        return false;
    tally_now(p->tally, v->now);
    v->past = p->tally->past;
    v->spans = SPANS;
    return true;
}

/* Room: core. */
static bool broker_view_of(struct broker *b, struct bytes key, struct view *v)
{
    if (!bytes_equal(key, bytes_str(b->set.cluster)))
        return false;
    numbers_now(b, v->now);
    v->past = b->numbers.past;
    v->spans = SPANS;
    return true;
}

/* Room: core. */
static bool view_find(struct broker *b, enum owner owner, struct bytes key, struct view *v)
{
    room_held(&b->room);
    switch (owner) {
    case OWNER_TOPIC:
        return flow_view(b, key, v);
    case OWNER_QUEUE:
        return lane_view(b, key, v);
    case OWNER_GROUP:
        return tally_view(b, key, v);
    case OWNER_BROKER:
        return broker_view_of(b, key, v);
    }
    return false;
}

enum err broker_stat(struct broker *b, struct bytes name, struct bytes key,
                     struct stat_windows *out, struct fault *why)
{
    size_t i = 0, n = sizeof stats / sizeof *stats;
    while (i < n && !bytes_equal(name, bytes_str(stats[i].name)))
        i++;
    bool found = i == n && latency_stat(b, name, key, out) == OK;
    if (i < n && key.len > 0) {
        struct view v = {
            .value = stats[i].value, .times = stats[i].times, .divide = stats[i].divide};
        room_enter(&b->room);
        found = view_find(b, stats[i].owner, key, &v);
        if (found) {
            out->minute = window_of(b, &v, SPAN_MINUTE);
            out->hour = window_of(b, &v, SPAN_HOUR);
            out->day = window_of(b, &v, SPAN_DAY);
        }
        room_leave(&b->room);
    }
    return found ? OK
                 : fault_set(why, ERR_NOT_FOUND, "The stats <%.*s> <%.*s> not exist", BRIEF(name),
                             BRIEF(key));
}

/* ---- the broker as a whole ---- */

/* Room: core. */
static void rates(struct broker *b, struct broker_numbers *out)
{
    static const uint64_t spans_ns[3] = {TICK_NS, 6 * TICK_NS, 60 * TICK_NS};
    const struct numbers *s = &b->numbers;
    uint64_t now_ns = clock_ns(b->clock);
    size_t oldest = s->n > SAMPLES ? s->n - SAMPLES : 0;
    for (size_t k = 0; k < 3; k++) {
        size_t at = s->n - 1;
        while (at > oldest && now_ns - s->samples[at % SAMPLES].at_ns < spans_ns[k])
            at--;
        const struct sample *then = &s->samples[at % SAMPLES];
        double seconds = (double)(now_ns - then->at_ns) / 1e9;
        out->put_rates[k] = seconds > 0 ? (double)(out->put - then->put) / seconds : 0;
        out->got_rates[k] = seconds > 0 ? (double)(out->got - then->got) / seconds : 0;
    }
    out->up_ms = (int64_t)((now_ns - s->boot_ns) / 1000000);
}

/* Room: core. */
static void counts(struct broker *b, struct broker_numbers *out)
{
    const struct numbers *s = &b->numbers;
    uint64_t now[FLOW_WIDTH];
    numbers_now(b, now);
    out->put = now[FLOW_IN];
    out->put_size = now[FLOW_IN_SIZE];
    out->got = now[FLOW_OUT];
    out->got_size = now[FLOW_OUT_SIZE];
    memcpy(out->put_mornings, s->put_mornings, sizeof out->put_mornings);
    memcpy(out->got_mornings, s->got_mornings, sizeof out->got_mornings);
    rates(b, out);
    out->topics = b->topics.n;
    out->groups = b->groups.n;
    out->clients = b->members.n;
    out->holds = b->n_holds;
    out->differing = s->differing;
    txn_numbers(b->txn, out);
    pop_numbers(b, out);
}

/* No key held. -1: there is no message. */
static int64_t earliest_ms(struct broker *b)
{
    struct slice slice;
    if (store_read_at(b->store, (int64_t)store_first(b->store), &slice))
        return -1;
    struct record record;
    int64_t ms = record_decode(slice.bytes, &record) ? -1 : record.store_ms;
    counted_drop(slice.owner);
    return ms;
}

void broker_numbers(struct broker *b, struct broker_numbers *out)
{
    *out = (struct broker_numbers){.boot_ms = b->numbers.boot_ms, .now_ms = clock_ms(b->clock)};
    room_enter(&b->room);
    counts(b, out);
    room_leave(&b->room);
    dedup_numbers(b, out);
    ledger_room_numbers(b, out);
    timers_numbers(b, out);
    spread_view(&b->numbers.sends, &out->sends);
    spread_view(&b->numbers.pulls, &out->pulls);
    out->log_first = store_first(b->store);
    out->log_end = store_confirmed(b->store);
    out->earliest_ms = earliest_ms(b);
    struct vfs_space space;
    if (!b->vfs->calls->space(b->vfs, &space, NULL) && space.total > 0)
        out->disk_used = (double)(space.total - space.free) / (double)space.total;
}
