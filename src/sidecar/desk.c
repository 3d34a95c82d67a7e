/* desk.c - jobs: from the consumer to whoever works on them, and back.
 *
 * A job waits in one of three places: `ready`, from where desk_next takes it; behind another in its
 * lane; or `resting`, because it has to come later and keeps its place in the lane. */
#include "sidecar/sidecar_int.h"

#include "base/clock.h"
#include "base/dice.h"
#include "once/key.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_MS        1000 /* the consumer is asked for so long at a time */
#define ORDER_AHEAD    1024 /* beyond what runs, so that one value does not stop others */
#define LATER_MAX_MS   3600000
#define LATER_LEAST_MS 10
#define DOWN_MS        1000

struct lane { /* all jobs of one value; the first of them runs, rests or is ready */
    struct list waiting;
    bool taken;         /* there is a first */
    struct bytes value; /* behind it */
};

uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

void fate_set(struct fate *fate, int kind, int64_t after_ms, const char *format, ...)
{
    va_list args;
    fate->kind = kind;
    fate->after_ms = after_ms;
    va_start(args, format);
    (void)vsnprintf(fate->why, sizeof fate->why, format, args);
    va_end(args);
}

enum err desk_open(struct sidecar *s)
{
    struct desk *desk = &s->desk;
    const struct sidecar_options *o = &s->with;
    room_init(&desk->room, "sidecar desk", ROOM_CORE);
    list_init(&desk->ready);
    list_init(&desk->resting);
    list_init(&desk->spare);
    map_init(&desk->lanes, dice_seed_from_os());
    desk->limit = (size_t)o->parallel;
    if (o->worker == SIDECAR_PIPE)
        desk->limit *= (size_t)o->in_flight;
    if (s->order)
        desk->limit += ORDER_AHEAD;
    desk->last_ns = now_ns();
    return OK;
}

void desk_clear(struct sidecar *s)
{
    struct desk *desk = &s->desk;
    struct link *k;
    while ((k = list_pop(&desk->spare)))
        free(list_entry(k, struct job, link));
    size_t i = 0;
    for (struct lane *lane; (lane = map_next(&desk->lanes, &i));)
        free(lane);
    map_clear(&desk->lanes);
    room_clear(&desk->room);
}

/* ---- messages as libonce sees them ---- */

static struct once_message message_of(const struct omq_delivery *d)
{
    return (struct once_message){
        .topic = d->queue.topic,
        .tag = d->tag,
        .keys = d->keys,
        .id = d->id,
        .body = d->body,
        .body_size = d->body_size,
        .properties = (const struct once_property *)d->properties, /* of the same form */
        .n_properties = d->n_properties,
        .attempt = d->attempt,
        .broker = d->queue.broker,
        .queue = d->queue.id,
        .offset = d->offset,
    };
}

/* ---- lanes ---- */

/* Room: the desk. The lane of a value; NULL: no memory. */
static struct lane *lane_of(struct desk *desk, struct bytes value)
{
    struct lane *lane = map_get(&desk->lanes, value);
    if (lane)
        return lane;
    lane = calloc(1, sizeof *lane + value.len);
    if (!lane)
        return NULL;
    list_init(&lane->waiting);
    lane->value = bytes_of(memcpy(lane + 1, value.at, value.len), value.len);
    if (map_put(&desk->lanes, lane->value, lane)) {
        free(lane);
        return NULL;
    }
    return lane;
}

/* Room: the desk. The first of its lane has ended: the next may begin. */
static void lane_next(struct desk *desk, struct lane *lane)
{
    struct link *next = list_pop(&lane->waiting);
    if (next) {
        list_add_tail(&desk->ready, next);
        return;
    }
    (void)map_remove(&desk->lanes, lane->value);
    free(lane);
}

/* Room: the desk. */
static void job_place(struct desk *desk, struct job *job, struct bytes value)
{
    job->lane = value.len ? lane_of(desk, value) : NULL;
    bool waits = job->lane && job->lane->taken;
    list_add_tail(waits ? &job->lane->waiting : &desk->ready, &job->link);
    if (job->lane)
        job->lane->taken = true;
}

/* ---- taking ---- */

static struct job *job_new(struct desk *desk, struct omq_batch *batch)
{
    struct link *spare = list_pop(&desk->spare);
    struct job *job = spare ? list_entry(spare, struct job, link) : malloc(sizeof *job);
    if (!job)
        return NULL;
    *job = (struct job){.batch = batch, .d = omq_batch_messages(batch, NULL)[0]};
    return job;
}

/* The value by which it is ordered; a message that has none is in no order. */
static void order_value(const struct sidecar *s, const struct omq_delivery *d, struct buf *out)
{
    struct once_message m = message_of(d);
    struct fault ignored;
    out->len = 0;
    if (key_make(s->order, &m, out, &ignored))
        out->len = 0;
}

static void put_off(struct omq_batch *batch, int64_t after_ms)
{
    struct omq_ending ending = {.batch = batch, .result = OMQ_DEFER, .after_ms = after_ms};
    omq_batch_finish_all(&ending, 1);
}

static void jobs_add(struct sidecar *s, struct omq_batch *const *batches, size_t n)
{
    struct desk *desk = &s->desk;
    cleanup(buf_clear) struct buf value = buf_upto(KEY_MAX);
    for (size_t i = 0; i < n; i++) {
        if (s->order)
            order_value(s, omq_batch_messages(batches[i], NULL)[0], &value);
        room_enter(&desk->room);
        struct job *job = desk->stopping ? NULL : job_new(desk, batches[i]);
        if (job) {
            desk->held++;
            job_place(desk, job, buf_bytes(&value));
        }
        room_leave(&desk->room);
        if (!job)
            put_off(batches[i], DOWN_MS);
    }
}

/* Room: the desk. What has rested long enough is ready. In how many ms the next one is. */
static int rest_over(struct desk *desk)
{
    uint64_t now = now_ns();
    for (struct link *k; (k = list_first(&desk->resting));) {
        struct job *job = list_entry(k, struct job, link);
        if (job->not_before_ns > now) {
            uint64_t ms = (job->not_before_ns - now) / NS_PER_MS + 1;
            return ms < LOOK_MS ? (int)ms : LOOK_MS;
        }
        list_remove(k);
        list_add_tail(&desk->ready, k);
    }
    return LOOK_MS;
}

/* Room: the desk. How many more may be taken: no more than shall ever end. */
static size_t desk_space(const struct sidecar *s)
{
    const struct desk *desk = &s->desk;
    size_t space = desk->held < desk->limit ? desk->limit - desk->held : 0;
    uint64_t most = s->with.stop_after, sure = desk->ended + desk->held;
    if (most > 0 && (sure >= most || most - sure < space))
        space = sure < most ? (size_t)(most - sure) : 0;
    return space < TAKE_MAX ? space : TAKE_MAX;
}

/* Room: the desk, which is left meanwhile. Whoever leads goes to the consumer for all. */
static void lead(struct sidecar *s, int wait_ms)
{
    struct desk *desk = &s->desk;
    struct omq_batch *batches[TAKE_MAX];
    size_t n = 0, space = desk_space(s);
    desk->leading = true;
    room_leave(&desk->room);
    int code = omq_consumer_take_all(s->consumer, wait_ms, batches, space, &n, NULL);
    if (code == OMQ_OK)
        jobs_add(s, batches, n);
    room_enter(&desk->room);
    desk->leading = false;
    if (code == OMQ_OK || desk->held > 0)
        desk->last_ns = now_ns();
    else if (s->with.idle_ms > 0 &&
             now_ns() - desk->last_ns >= (uint64_t)s->with.idle_ms * NS_PER_MS)
        desk->stopping = true;
    if (code == OMQ_CLOSED)
        desk->stopping = true;
    room_tell(&desk->room);
}

static int look_ms(const struct sidecar *s, int rest_ms)
{
    int idle_ms = s->with.idle_ms;
    return idle_ms > 0 && idle_ms < rest_ms ? idle_ms : rest_ms;
}

size_t desk_next(struct sidecar *s, struct job **out, size_t max)
{
    struct desk *desk = &s->desk;
    size_t n = 0;
    room_enter(&desk->room);
    while (!desk->stopping) {
        int rest_ms = rest_over(desk);
        if (!list_empty(&desk->ready))
            break;
        if (!desk->leading && desk_space(s) > 0)
            lead(s, look_ms(s, rest_ms));
        else
            room_wait(&desk->room, rest_ms);
    }
    while (!desk->stopping && n < max && !list_empty(&desk->ready))
        out[n++] = list_entry(list_pop(&desk->ready), struct job, link);
    if (n > 0 && !desk->stopping)
        room_tell(&desk->room); /* somebody else may lead now, or take what is left */
    room_leave(&desk->room);
    return n;
}

/* ---- ending ---- */

/* What is told to the consumer. */
static struct omq_ending ending_of(const struct sidecar *s, const struct job *job,
                                   const struct fate *fate, int once_verdict)
{
    struct omq_ending ending = {.batch = job->batch, .result = OMQ_LATER};
    if (fate->kind == SIDECAR_DONE || fate->kind == SIDECAR_ALREADY)
        ending.result = OMQ_DONE;
    else if (fate->kind == SIDECAR_LATER)
        ending.result = OMQ_DEFER;
    else if (once_verdict == ONCE_BURY)
        ending.result = OMQ_DEAD;
    ending.after_ms = fate->after_ms >= 0 ? fate->after_ms : s->with.later_ms;
    if (ending.after_ms > LATER_MAX_MS) /* who says so may be wrong; it can say so again */
        ending.after_ms = LATER_MAX_MS;
    if (ending.after_ms <
        LATER_LEAST_MS) /* one that always says "at once" would keep a core busy */
        ending.after_ms = LATER_LEAST_MS;
    return ending;
}

static bool is_last(const struct sidecar *s, const struct job *job)
{
    return job->d->attempt > s->with.max_attempts;
}

static void tell(struct sidecar *s, const struct job *job, const struct fate *fate,
                 const struct omq_ending *ending)
{
    int kind = fate->kind;
    atomic_fetch_add_explicit(&s->fates[kind], 1, memory_order_relaxed);
    if (kind == SIDECAR_FAILED && (ending->result == OMQ_DEAD || is_last(s, job))) {
        kind = SIDECAR_DEAD;
        atomic_fetch_add_explicit(&s->fates[kind], 1, memory_order_relaxed);
    }
    if (!s->with.event)
        return;
    struct sidecar_event event = {
        .fate = kind,
        .of = job->d,
        .key = job->key ? job->key : "",
        .fence = job->fence,
        .took_ms = job->begun_ns ? (int64_t)((now_ns() - job->begun_ns) / NS_PER_MS) : 0,
        .after_ms = kind == SIDECAR_LATER ? ending->after_ms : 0,
        .why = fate->why,
    };
    s->with.event(s->with.user, &event);
}

static void job_free_text(struct job *job)
{
    free(take(&job->key));
}

/* Room: the desk. It keeps its place in the lane; the batch stays ours. */
static void job_rest(struct desk *desk, struct job *job, int64_t after_ms)
{
    job->not_before_ns = now_ns() + (uint64_t)after_ms * NS_PER_MS;
    job->begun_ns = 0;
    job_free_text(job);
    struct link *before = &desk->resting.head;
    list_each(k, &desk->resting) {
        if (list_entry(k, struct job, link)->not_before_ns > job->not_before_ns) {
            before = k;
            break;
        }
    }
    job->link = (struct link){before->prev, before};
    job->link.prev->next = &job->link;
    before->prev = &job->link;
}

/* Room: the desk. */
static void job_gone(struct desk *desk, struct job *job)
{
    job_free_text(job);
    if (job->lane)
        lane_next(desk, job->lane);
    list_add_tail(&desk->spare, &job->link);
    desk->held--;
}

/* They have fates, and their runs are over: back to the consumer, or to rest. */
static void jobs_over(struct sidecar *s, struct job *const *jobs, struct omq_ending *endings,
                      size_t n)
{
    struct desk *desk = &s->desk;
    room_enter(&desk->room);
    for (size_t i = 0; i < n; i++)
        if (jobs[i]->lane && endings[i].result == OMQ_DEFER && !desk->stopping) {
            job_rest(desk, jobs[i], endings[i].after_ms);
            endings[i].batch = NULL;
        }
    room_leave(&desk->room);
    omq_batch_finish_all(endings, n);
    room_enter(&desk->room);
    for (size_t i = 0; i < n; i++) {
        if (!endings[i].batch)
            continue;
        desk->ended += endings[i].result != OMQ_DEFER;
        job_gone(desk, jobs[i]);
    }
    desk->last_ns = now_ns();
    if (s->with.stop_after > 0 && desk->ended >= s->with.stop_after)
        desk->stopping = true;
    room_tell(&desk->room);
    room_leave(&desk->room);
}

/* ---- beginning ---- */

/* libonce says that it does not run. */
static void fate_of_answer(const struct once_answer *answer, struct fate *fate)
{
    switch (answer->verdict) {
    case ONCE_ACK:
        fate_set(fate, SIDECAR_ALREADY, 0, "%s", once_cause_text(answer->cause));
        break;
    case ONCE_LATER:
        fate_set(fate, SIDECAR_LATER, answer->wait_ms, "%s%s%s", once_cause_text(answer->cause),
                 answer->why.text[0] ? ": " : "", answer->why.text);
        break;
    default:
        fate_set(fate, SIDECAR_FAILED, 0, "%s", answer->why.text);
        break;
    }
}

static void begin_refused(struct sidecar *s, struct job *job, const struct once_answer *answer)
{
    struct fate fate;
    fate_of_answer(answer, &fate);
    struct omq_ending ending = ending_of(s, job, &fate, answer->verdict);
    tell(s, job, &fate, &ending);
    jobs_over(s, &job, &ending, 1);
}

static void job_begun(struct sidecar *s, struct job *job, struct once_run *run, uint64_t at_ns)
{
    job->run = run;
    job->begun_ns = at_ns;
    if (s->with.event) { /* the run is gone when the event is told */
        job->key = strdup(once_run_key(run));
        job->fence = once_run_fence(run);
    }
    atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
}

size_t desk_begin(struct sidecar *s, struct job **jobs, size_t n)
{
    struct once_message messages[TAKE_MAX] = {{0}};
    struct once_run *runs[TAKE_MAX] = {NULL};
    invariant(n <= TAKE_MAX);
    struct once_answer one, *answers = n == 1 ? &one : malloc(n * sizeof *answers);
    size_t begun = 0;
    for (size_t i = 0; i < n; i++)
        messages[i] = message_of(jobs[i]->d);
    if (n == 1)
        (void)once_begin(s->once, &messages[0], &runs[0], &answers[0]);
    else if (answers)
        once_begin_all(s->once, messages, n, runs, answers);
    uint64_t at_ns = now_ns();
    for (size_t i = 0; i < n; i++) {
        struct once_answer none = {.verdict = ONCE_LATER, .cause = ONCE_DOWN, .wait_ms = DOWN_MS};
        if (answers && answers[i].verdict == ONCE_RUN) {
            job_begun(s, jobs[i], runs[i], at_ns);
            jobs[begun++] = jobs[i];
        } else
            begin_refused(s, jobs[i], answers ? &answers[i] : &none);
    }
    if (n != 1)
        free(answers);
    return begun;
}

/* ---- ending, with a fate ---- */

/* What the worker said, and what libonce says to it. */
static void fate_settle(struct fate *fate, const struct once_answer *answer)
{
    bool done = fate->kind == SIDECAR_DONE || fate->kind == SIDECAR_ALREADY;
    if (answer->verdict == ONCE_ACK && done)
        return;
    if (done || answer->verdict == ONCE_LATER) /* it was lost, or nobody knows; or the database */
        fate_of_answer(answer, fate);          /* had its own reasons for what failed */
}

/* Tells libonce. Those that it has no answer for stay, in front: how many, and when to ask again.
 * The others are over. */
static size_t end_some(struct sidecar *s, struct job **jobs, struct fate *fates, size_t n,
                       struct once_answer *answers, int64_t *wait_ms)
{
    struct omq_ending endings[TAKE_MAX];
    struct once_run *runs[TAKE_MAX] = {NULL};
    struct job *over[TAKE_MAX];
    int results[TAKE_MAX] = {0};
    size_t n_over = 0, left = 0;
    for (size_t i = 0; i < n; i++) {
        runs[i] = jobs[i]->run;
        results[i] = fates[i].kind <= SIDECAR_ALREADY ? ONCE_DONE : ONCE_FAILED;
    }
    once_end_all(runs, results, n, answers);
    for (size_t i = 0; i < n; i++) {
        struct job *job = jobs[i];
        struct fate fate = fates[i];
        if (answers[i].verdict == ONCE_RUN) {
            *wait_ms = answers[i].wait_ms;
            jobs[left] = job;
            fates[left++] = fate;
            continue;
        }
        job->run = NULL;
        fate_settle(&fate, &answers[i]);
        endings[n_over] = ending_of(s, job, &fate, answers[i].verdict);
        tell(s, job, &fate, &endings[n_over]);
        over[n_over++] = job;
    }
    atomic_fetch_sub_explicit(&s->running, n_over, memory_order_relaxed);
    jobs_over(s, over, endings, n_over);
    return left;
}

void desk_end(struct sidecar *s, struct job **jobs, struct fate *fates, size_t n)
{
    struct once_answer one;
    struct once_answer *many = n > 1 ? malloc(TAKE_MAX * sizeof *many) : NULL;
    size_t step = many ? TAKE_MAX : 1; /* without memory one by one */
    for (size_t i = 0; i < n; i += step) {
        size_t left = n - i < step ? n - i : step;
        int64_t wait_ms = 0;
        while ((left = end_some(s, jobs + i, fates + i, left, many ? many : &one, &wait_ms)) > 0) {
            struct timespec pause = {wait_ms / 1000, wait_ms % 1000 * 1000000};
            (void)nanosleep(&pause, NULL);
        }
    }
    free(many);
}

/* ---- stopping ---- */

/* What nobody has begun is given back: of `ready`, `resting` and the lanes. */
void desk_stop(struct sidecar *s)
{
    struct desk *desk = &s->desk;
    struct list waiting, back;
    list_init(&waiting);
    list_init(&back);
    room_enter(&desk->room);
    desk->stopping = true;
    list_append_all(&waiting, &desk->ready);
    list_append_all(&waiting, &desk->resting);
    size_t i = 0;
    for (struct lane *lane; (lane = map_next(&desk->lanes, &i));)
        list_append_all(&waiting, &lane->waiting);
    room_leave(&desk->room);
    for (struct link *k; (k = list_pop(&waiting));) {
        put_off(list_entry(k, struct job, link)->batch, 0);
        list_add_tail(&back, k);
    }
    room_enter(&desk->room);
    for (struct link *k; (k = list_pop(&back));) {
        atomic_fetch_add_explicit(&s->given_back, 1, memory_order_relaxed);
        list_add_tail(&desk->spare, k);
        desk->held--;
    }
    room_tell(&desk->room);
    room_leave(&desk->room);
}

void sidecar_stop(struct sidecar *s)
{
    room_enter(&s->desk.room);
    s->desk.stopping = true;
    room_tell(&s->desk.room);
    room_leave(&s->desk.room);
}

bool sidecar_wait(struct sidecar *s, int timeout_ms)
{
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    room_enter(&s->desk.room);
    for (uint64_t now; !s->desk.stopping && (now = now_ns()) < until;)
        room_wait_ns(&s->desk.room,
                     until - now < LOOK_MS * NS_PER_MS ? until - now : LOOK_MS * NS_PER_MS);
    bool stopping = s->desk.stopping;
    room_leave(&s->desk.room);
    return stopping;
}
