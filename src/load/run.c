/* run.c - a run from its options to its result: phases, the clock of the intervals, sums. */
#include "load/raw_int.h"

#include "base/dice.h"
#include "msg/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LOOK_NS       (5 * NS_OF_MS) /* how often it is looked whether a phase is over */
#define ANSWERS_MS    60000          /* the longest wait for answers */
#define OWED_MS       10000          /* so long what was due before the end may still begin */
#define QUIET_NS      (3 * UINT64_C(1000000000)) /* nothing more comes after such a silence */
#define BACKLOG_MS    10000                      /* what was acknowledged can be read by then */
#define POINTS_MAX    1000000
#define FILL_BATCH    32
#define FILL_SIZE_MAX 16384 /* bigger ones are sent one by one */

uint64_t run_ns(const struct run *run)
{
    return clock_ns(run->clock);
}

/* ---- options ---- */

void load_defaults(const struct load_options *given, struct load_options *out)
{
    struct load_options o = *given;
    o.topics = o.topics ? o.topics : 1;
    o.group = o.group ? o.group : "oncemq-bench";
    o.connections = o.connections ? o.connections : 1;
    o.in_flight = o.in_flight ? o.in_flight : 32;
    o.batch = o.batch ? o.batch : o.kind == LOAD_CONSUME ? 32 : 1;
    o.size = o.size ? o.size : 1024;
    o.interval_ms = o.interval_ms ? o.interval_ms : 1000;
    o.run_ms = o.run_ms || o.count || o.kind == LOAD_CONSUME ? o.run_ms : 10000;
    *out = o;
}

static enum err options_check(const struct load_options *options, struct fault *why)
{
    const struct load_options o = *options;
    bool sends = o.kind == LOAD_SEND || o.kind == LOAD_E2E;
    if (o.kind == LOAD_ONCE ? !o.once : !o.client || !o.topic || !o.topic[0])
        return fault_set(why, ERR_INVALID, "a load needs %s",
                         o.kind == LOAD_ONCE ? "options of its store" : "a client and a topic");
    if (o.kind != LOAD_ONCE && strlen(o.topic) > LOAD_TOPIC_MAX)
        return fault_set(why, ERR_INVALID, "a topic has at most %d bytes here", LOAD_TOPIC_MAX);
    if (o.topics > LOAD_TOPICS_MAX || o.connections > LOAD_CONNECTIONS_MAX ||
        o.in_flight > LOAD_IN_FLIGHT_MAX || o.batch > LOAD_BATCH_MAX || o.size > LOAD_SIZE_MAX ||
        o.interval_ms < LOAD_INTERVAL_LEAST)
        return fault_set(
            why, ERR_INVALID,
            "at most %d topics, %d connections, %d in flight, %d in a batch, %u bytes, "
            "and no interval below %d ms",
            LOAD_TOPICS_MAX, LOAD_CONNECTIONS_MAX, LOAD_IN_FLIGHT_MAX, LOAD_BATCH_MAX,
            LOAD_SIZE_MAX, LOAD_INTERVAL_LEAST);
    if (!o.raw && o.connections > LOAD_CLIENTS_MAX)
        return fault_set(why, ERR_INVALID, "at most %d connections, unless they are raw",
                         LOAD_CLIENTS_MAX);
    if (!(o.rate >= 0 && o.rate <= 1e9))
        return fault_set(why, ERR_INVALID, "a rate is above 0, and at most a thousand million");
    if (sends && o.batch > 1 && (uint64_t)o.batch * o.size > LOAD_SIZE_MAX)
        return fault_set(why, ERR_INVALID, "a batch of %u times %u bytes is more than %u", o.batch,
                         o.size, LOAD_SIZE_MAX);
    if (o.raw && (o.kind == LOAD_ONCE || o.client->tls || o.client->access_key))
        return fault_set(why, ERR_INVALID,
                         "a raw load knows neither TLS, nor signed requests, nor stores of claims");
    uint64_t hands = o.kind == LOAD_ONCE              ? o.in_flight
                     : sends && !o.raw && o.batch > 1 ? (uint64_t)o.in_flight * o.connections
                                                      : 0;
    if (hands > LOAD_HANDS_MAX)
        return fault_set(why, ERR_INVALID, "%llu threads would be needed, and %d may be",
                         (unsigned long long)hands, LOAD_HANDS_MAX);
    if (o.kind == LOAD_E2E && o.size < LOAD_STAMP_SIZE)
        return fault_set(why, ERR_INVALID,
                         "a message that tells when it was sent has %d bytes or "
                         "more",
                         LOAD_STAMP_SIZE);
    return OK;
}

/* ---- collecting ---- */

struct measuring {
    struct run *run;
    struct load_result *result;
    struct span *all, *now;
    enum load_phase phase;
    uint64_t phase_ns;  /* when it began */
    uint64_t ticked_ns; /* when the last point ended */
    double cpu_s;       /* when it began to be measured */
    bool counts;        /* it has begun to be */
};

static double cpu_seconds(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) < 0)
        return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void collect(struct measuring *m)
{
    struct run *run = m->run;
    span_clear(m->now);
    for (size_t i = 0; i < run->n_parts; i++) {
        struct lane *lane;
        for (size_t k = 0; (lane = run->parts[i]->lane(run->parts[i], k)) != NULL; k++)
            lane_collect(lane, m->now);
    }
}

static void progress_tell(struct measuring *m, uint64_t now, double span_s)
{
    const struct load_options *o = &m->run->options;
    if (!o->progress)
        return;
    const struct histogram *took = &m->now->times[LOAD_TOOK];
    bool measures = m->phase == LOAD_MEASURE;
    uint64_t all = o->kind == LOAD_CONSUME ? m->run->backlog : o->count;
    const struct load_progress p = {
        .phase = m->phase,
        .seconds = (double)(now - m->phase_ns) / NS_OF_S,
        .of_seconds = m->phase == LOAD_WARM ? (double)o->warm_ms / 1e3
                      : measures            ? (double)o->run_ms / 1e3
                                            : 0,
        .messages = m->phase == LOAD_WARM ? m->all->warm : m->all->messages,
        .of_messages = measures ? all : 0,
        .failures = m->all->failures,
        .per_second = span_s > 0 ? (double)(m->now->messages + m->now->warm) / span_s : 0,
        .p50_ns = histogram_at(took, 0.5),
        .p99_ns = histogram_at(took, 0.99),
        .most_ns = took->most,
    };
    o->progress(o->user, &p);
}

static enum err point_add(struct measuring *m, uint64_t now, double span_s)
{
    struct load_result *r = m->result;
    if (r->n_points == POINTS_MAX)
        return OK;
    if ((r->n_points & (r->n_points - 1)) == 0) { /* room for 1, 2, 4 … */
        size_t cap = r->n_points ? r->n_points * 2 : 1;
        struct load_point *bigger = realloc(r->points, cap * sizeof *bigger);
        if (!bigger)
            return ERR_NO_MEMORY;
        r->points = bigger;
    }
    const struct histogram *took = &m->now->times[LOAD_TOOK];
    r->points[r->n_points++] = (struct load_point){
        .at_s = (double)(now - m->run->from_ns) / NS_OF_S,
        .span_s = span_s,
        .messages = m->now->messages,
        .failures = m->now->failures,
        .p50_ns = histogram_at(took, 0.5),
        .p99_ns = histogram_at(took, 0.99),
        .most_ns = took->most,
    };
    return OK;
}

/* The end of an interval, or of a part of one. */
static enum err tick(struct measuring *m, uint64_t now, bool point)
{
    double span_s = (double)(now - m->ticked_ns) / NS_OF_S;
    enum err err = OK;
    collect(m);
    span_add(m->all, m->now);
    if (point && m->phase != LOAD_WARM && span_s > 0)
        err = point_add(m, now, span_s);
    progress_tell(m, now, span_s);
    m->ticked_ns = now;
    return err;
}

/* ---- phases ---- */

static bool stopped(const struct run *run)
{
    return run->options.stopped && run->options.stopped(run->options.user);
}

static bool parts_idle(const struct run *run, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!run->parts[i]->idle(run->parts[i]))
            return false;
    return true;
}

static void phase_set(struct measuring *m, enum load_phase phase, uint64_t now)
{
    m->phase = phase;
    m->phase_ns = now;
    if (phase == LOAD_MEASURE) {
        m->counts = true;
        m->cpu_s = cpu_seconds();
        m->result->begin_ms =
            clock_ms(m->run->clock) - (int64_t)((now - m->run->from_ns) / NS_OF_MS);
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Warms and measures: until the time is over, or all have come to their end. */
static enum err measure(struct measuring *m)
{
    struct run *run = m->run;
    uint64_t every = run->options.interval_ms * NS_OF_MS;
    uint64_t next = run->begin_ns + every, now = run_ns(run);
    enum err err = OK;
    m->ticked_ns = run->begin_ns;
    phase_set(m, run->from_ns > run->begin_ns ? LOAD_WARM : LOAD_MEASURE, run->begin_ns);
    while (!err && now < run->until_ns && !stopped(run) && !parts_idle(run, 1)) {
        if (m->phase == LOAD_WARM && now >= run->from_ns) {
            err = tick(m, now, false);
            phase_set(m, LOAD_MEASURE, now);
            m->ticked_ns = run->from_ns;
            next = run->from_ns + every;
        } else if (now >= next) {
            err = tick(m, now, true);
            next = now - (now - next) % every + every;
        }
        uint64_t wake = least(least(next, run->until_ns), now + LOOK_NS);
        if (m->phase == LOAD_WARM)
            wake = least(wake, run->from_ns);
        sleep_until(wake);
        now = run_ns(run);
    }
    m->result->stopped = stopped(run);
    return err;
}

/* Nothing more begins but what was due before the end, at a rate: answers, then messages that are
 * on their way, are waited for. */
static enum err drain(struct measuring *m)
{
    struct run *run = m->run;
    uint64_t every = run->options.interval_ms * NS_OF_MS, now = run_ns(run);
    uint64_t give_up = now + ANSWERS_MS * NS_OF_MS, heard_ns = now, heard = 0;
    bool whole = now - m->ticked_ns >= every / 2;
    enum err err = tick(m, now, whole || m->result->n_points == 0);
    phase_set(m, LOAD_DRAIN, now);
    bool owes = run->options.rate > 0 && !m->result->stopped;
    uint64_t owes_until = now + OWED_MS * NS_OF_MS;
    while (!parts_idle(run, run->n_parts)) {
        if (!owes || now >= owes_until || stopped(run))
            atomic_store(&run->ending, true);
        if (parts_idle(run, 1) || now >= give_up)
            atomic_store(&run->settled, true);
        uint64_t taken = atomic_load(&run->taken);
        heard_ns = taken != heard || !atomic_load(&run->settled) ? now : heard_ns;
        heard = taken;
        if (now - heard_ns >= QUIET_NS)
            atomic_store(&run->given_up, true);
        if (now >= give_up && atomic_load(&run->given_up))
            break;
        if (now - m->ticked_ns >= every)
            err = tick(m, now, false);
        sleep_until(now + LOOK_NS);
        now = run_ns(run);
    }
    atomic_store(&run->given_up, true);
    return err;
}

static void sum_up(struct measuring *m)
{
    struct run *run = m->run;
    struct load_result *r = m->result;
    const struct span *all = m->all;
    uint64_t end = run_ns(run);
    r->stored += atomic_load(&run->stored);
    if (!m->counts) /* stopped before */
        return;
    bool counted_out = run->options.count > 0 && atomic_load(&run->issued) >= run->options.count;
    bool whole = run->until_ns != UINT64_MAX && !r->stopped && !counted_out;
    if (all->last_ns > 0) /* what came to its end before its time was no longer */
        end = whole && all->last_ns < run->until_ns ? run->until_ns : all->last_ns;
    r->cpu_seconds = cpu_seconds() - m->cpu_s;
    r->seconds = end > run->from_ns ? (double)(end - run->from_ns) / NS_OF_S : 0;
    r->messages = all->messages;
    r->bytes = all->messages * run->options.size;
    r->failures = all->failures;
    r->sent = all->sent;
    uint64_t taken = atomic_load(&run->taken);
    r->missing = run->options.kind == LOAD_E2E && all->sent > taken ? all->sent - taken : 0;
    r->out_of_row = all->out_of_row;
    (void)snprintf(r->failure, sizeof r->failure, "%s", run->failure);
    for (int i = 0; i < LOAD_TIMES; i++)
        *r->times[i] = all->times[i];
}

static enum err run_measured(struct run *run, struct load_result *result)
{
    struct measuring m = {.run = run, .result = result};
    m.all = calloc(1, sizeof *m.all);
    m.now = calloc(1, sizeof *m.now);
    enum err err = m.all && m.now ? OK : ERR_NO_MEMORY;
    if (!err) {
        const struct load_options *o = &run->options;
        run->begin_ns = run_ns(run);
        run->from_ns = run->begin_ns + o->warm_ms * NS_OF_MS;
        run->until_ns = o->run_ms ? run->from_ns + o->run_ms * NS_OF_MS : UINT64_MAX;
        for (size_t i = run->n_parts; i-- > 0;)
            run->parts[i]->begin(run->parts[i]);
        err = measure(&m);
        if (!err)
            err = drain(&m);
        atomic_store(&run->ending, true);
        atomic_store(&run->given_up, true);
        uint64_t now = run_ns(run);
        if (!err)
            err = tick(&m, now, false);
        sum_up(&m);
    }
    free(m.all);
    free(m.now);
    return err;
}

/* ---- filling ---- */

/* What the run in the run hears goes to that around it. */
struct filling {
    const struct load_options *outer;
};

static void fill_progress(void *user, const struct load_progress *now)
{
    const struct load_options *outer = ((struct filling *)user)->outer;
    struct load_progress p = *now;
    p.phase = LOAD_FILL;
    p.of_messages = outer->fill;
    p.of_seconds = 0;
    if (outer->progress)
        outer->progress(outer->user, &p);
}

static bool fill_stopped(void *user)
{
    const struct load_options *outer = ((struct filling *)user)->outer;
    return outer->stopped && outer->stopped(outer->user);
}

static enum err fill(const struct run *run, struct load_result *result, struct fault *why)
{
    const struct load_options *o = &run->options;
    struct load_result filled;
    struct filling filling = {o};
    struct load_options with = {
        .kind = LOAD_SEND,
        .client = o->client,
        .topic = o->topic,
        .topics = o->topics,
        .group = o->group,
        .connections = o->connections < 4 ? o->connections : 4,
        .in_flight = 8,
        .batch = o->size <= FILL_SIZE_MAX ? FILL_BATCH : 1,
        .size = o->size,
        .count = o->fill,
        .interval_ms = o->interval_ms,
        .progress = fill_progress,
        .stopped = fill_stopped,
        .user = &filling,
    };
    enum err err = load_run(&with, &filled, why);
    if (err)
        return err;
    result->stored += filled.stored;
    if (filled.failures > 0)
        err = fault_set(why, ERR_IO, "the backlog could not be written: %s", filled.failure);
    load_result_clear(&filled);
    return err;
}

/* What was acknowledged can be read a moment later. */
static enum err backlog_find(struct run *run, struct fault *why)
{
    uint64_t give_up = run_ns(run) + BACKLOG_MS * NS_OF_MS;
    const struct load_options *o = &run->options;
    enum err err = OK;
    while (!err && run->backlog < o->fill && run_ns(run) < give_up && !stopped(run)) {
        sleep_until(run_ns(run) + LOOK_NS);
        err = places_measure(run, why);
    }
    if (!err && run->backlog == 0)
        err = fault_set(why, ERR_NOT_FOUND, "topic %s has no messages to take", run->topics[0]);
    if (!err && o->count > 0)
        run->backlog = least(run->backlog, o->count);
    return err;
}

/* ---- the whole ---- */

static enum err parts_open(struct run *run, struct fault *why)
{
    const struct load_options *o = &run->options;
    struct part **next = run->parts;
    enum err err = OK;
    if (o->kind == LOAD_ONCE)
        err = claims_open(run, next++, why);
    else if (o->kind != LOAD_CONSUME && o->raw)
        err = raw_open(run, &role_send, next++, why);
    else if (o->kind != LOAD_CONSUME)
        err = o->batch > 1 ? batches_open(run, next++, why) : senders_open(run, next++, why);
    run->n_parts = err ? 0 : (size_t)(next - run->parts);
    if (!err && (o->kind == LOAD_CONSUME || o->kind == LOAD_E2E))
        err = o->raw ? raw_open(run, &role_pull, &run->parts[run->n_parts], why)
                     : readers_open(run, &run->parts[run->n_parts], why);
    if (!err && (o->kind == LOAD_CONSUME || o->kind == LOAD_E2E))
        run->n_parts++;
    return err;
}

static void run_clear(struct run *run)
{
    for (size_t i = 0; i < run->n_parts; i++)
        run->parts[i]->close(run->parts[i]);
    omq_client_close(run->client);
    for (unsigned i = 0; run->queues && i < run->options.topics; i++)
        omq_queues_free(run->queues[i]);
    free(run->queues);
    free(run->places);
    free(run->topics);
    room_clear(&run->room);
}

static enum err run_all(struct run *run, struct load_result *result, struct fault *why)
{
    const struct load_options *o = &run->options;
    const struct load_progress preparing = {.phase = LOAD_PREPARE};
    enum err err = OK;
    if (o->progress)
        o->progress(o->user, &preparing);
    if (o->kind == LOAD_CONSUME && o->fill > 0)
        err = fill(run, result, why);
    if (!err && o->kind != LOAD_ONCE)
        err = topics_prepare(run, why);
    if (!err && o->kind == LOAD_CONSUME)
        err = backlog_find(run, why);
    if (!err)
        err = parts_open(run, why);
    return err ? err : run_measured(run, result);
}

enum err load_run(const struct load_options *options, struct load_result *out, struct fault *why)
{
    struct load_result result = {0};
    struct run run = {.clock = clock_system(), .id = dice_seed_from_os() | 1};
    load_defaults(options, &run.options);
    enum err err = options_check(&run.options, why);
    if (err)
        return err;
    room_init(&run.room, "load run", ROOM_LEAF);
    for (int i = 0; !err && i < LOAD_TIMES; i++) {
        result.times[i] = calloc(1, sizeof *result.times[i]);
        err = result.times[i] ? OK : ERR_NO_MEMORY;
    }
    if (!err)
        err = run_all(&run, &result, why);
    run_clear(&run);
    if (err)
        load_result_clear(&result);
    else
        *out = result;
    return err;
}

void load_result_clear(struct load_result *result)
{
    for (int i = 0; i < LOAD_TIMES; i++)
        free(result->times[i]);
    free(result->points);
    *result = (struct load_result){0};
}
