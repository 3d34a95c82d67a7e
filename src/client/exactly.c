/* exactly.c - the consumer asks libonce before the application sees a message, and tells it
 * afterwards what came of it.
 *
 *     batch ── exact_begin ──► those that may run ── handler ──► exact_end ──► outcomes
 *                   └─► done already, being done elsewhere, without a key: outcomes
 *
 * All of this happens in the hands (or on the thread that takes batches), never on the loop: a
 * store may take its time. What libonce says is what becomes of the message:
 *
 *     ACK     done                       LATER   it stays here until then; no attempt was made
 *     RETRY   failed                     BURY    a dead letter
 *
 * In order, nothing runs behind a message that is neither done nor may run.
 */
#include "base/counted.h"
#include "client/consumer_int.h"
#include "once.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define NO_MEMORY_PAUSE_MS 1000
#define MARK_PAUSE_MS      1000
#define REST_MOST_MS       3600000 /* a store may say anything; then it is asked again */

struct exact {
    struct counted counted;
    struct once *once;
    int mode;
    bool renewed;              /* claims, as long as they are ours */
    struct omq_client *client; /* for who knows that the consumer is open */
    /* For the others: a handler that was left behind comes here when both are gone. */
    struct clock *clock;
    void (*log)(void *user, int level, const char *line);
    void *user;
    atomic_bool quiet; /* nobody is to hear of it any more */
    struct desk desk;
};

static_assert(sizeof(struct omq_property) == sizeof(struct once_property) &&
                  offsetof(struct omq_property, value) == offsetof(struct once_property, value),
              "properties are handed through as they are");

/* ---- life ---- */

static void exact_release(struct counted *counted)
{
    struct exact *exact = list_entry(counted, struct exact, counted);
    once_close(exact->once);
    desk_clear(&exact->desk);
    free(exact);
}

struct exact *exact_hold(struct exact *exact)
{
    if (exact)
        counted_hold(&exact->counted);
    return exact;
}

void exact_drop(struct exact *exact)
{
    if (exact)
        counted_drop(&exact->counted);
}

void exact_leave(struct exact *exact)
{
    if (exact)
        atomic_store(&exact->quiet, true);
    exact_drop(exact);
}

bool exact_by_offset(const struct exact *exact)
{
    return exact && exact->mode == ONCE_OFFSET;
}

struct desk *exact_desk(struct exact *exact)
{
    return exact ? &exact->desk : NULL;
}

bool exact_together(const struct exact *exact)
{
    return exact->mode != ONCE_TRANSACTION && exact->mode != ONCE_OFFSET;
}

bool exact_ahead(const struct exact *exact)
{
    return exact->renewed;
}

static void log_line(void *user, int level, const char *line)
{
    const struct exact *exact = user;
    char text[1024];
    if (!exact->log || atomic_load(&exact->quiet))
        return;
    (void)snprintf(text, sizeof text, "once: %s", line);
    exact->log(exact->user, level, text); /* the levels are the same */
}

/* From the first delivery to the last retry. */
static int64_t whole_ladder_ms(int32_t retries)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < retries && sum < INT64_C(365) * 24 * 3600 * 1000; i++)
        sum += ladder_ms(i);
    return sum;
}

/* The broker that brings the messages remembers what was done, too; but it has no transactions. */
static void choose_store(struct once_options *with, const struct omq_client *client)
{
    bool transactions = with->mode == ONCE_TRANSACTION || with->mode == ONCE_OFFSET;
    if (!with->store && !with->checker && !transactions)
        with->store = "broker:";
    if (!with->client)
        with->client = &client->options;
}

int exact_open(struct omq_consumer *consumer, const struct once_options *options,
               struct omq_error *why)
{
    struct omq_consumer_options *o = &consumer->options;
    struct once_options with = *options;
    struct once_error error;
    struct exact *exact = calloc(1, sizeof *exact);
    if (!exact)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for consumer %s", consumer->group);
    exact->client = consumer->client;
    exact->clock = consumer->client->clock;
    exact->log = consumer->client->options.log;
    exact->user = consumer->client->options.user;
    with.group = with.group ? with.group : consumer->group;
    if (!with.ladder_ms && !o->ordered)
        with.ladder_ms = whole_ladder_ms(o->max_attempts);
    with.takeover = with.takeover || o->ordered;
    choose_store(&with, consumer->client);
    if (!with.log) {
        with.log = log_line;
        with.user = exact;
    }
    if (with.mode == ONCE_OFFSET && (!o->handle || o->pop)) {
        free(exact);
        return omq_fail(why, OMQ_INVALID, "ONCE_OFFSET wants a handler, and goes not with pop");
    }
    int code = once_open(&with, &exact->once, &error);
    if (code) {
        free(exact);
        return omq_fail(why,
                        code == ONCE_STORE       ? OMQ_NETWORK
                        : code == ONCE_NO_MEMORY ? OMQ_NO_MEMORY
                                                 : OMQ_INVALID,
                        "consumer %s: once: %s", consumer->group, error.text);
    }
    counted_init(&exact->counted, exact_release);
    if (desk_init(&exact->desk, exact, o->handle ? consumer->client : NULL)) {
        exact_drop(exact);
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for consumer %s", consumer->group);
    }
    exact->mode = with.mode;
    exact->renewed =
        with.mode == ONCE_LEASE && !with.plain && !(with.checker && !with.checker->renew);
    consumer->exact = exact;
    o->once = NULL; /* the application's */
    if (!exact_together(exact))
        o->batch = 1;
    return OMQ_OK;
}

struct once *omq_consumer_once(const struct omq_consumer *consumer)
{
    return consumer && consumer->exact ? consumer->exact->once : NULL;
}

/* ---- before ---- */

static struct once_message message_of(const struct omq_batch *batch, const struct held *held)
{
    const struct omq_delivery *d = &held->delivery;
    const struct omq_queue *place = &held->parcel->queue; /* which may be the retry topic's */
    bool by_offset = exact_by_offset(batch->exact);
    return (struct once_message){
        .topic = by_offset ? place->topic : d->queue.topic,
        .tag = d->tag,
        .keys = d->keys,
        .id = d->id,
        .body = d->body,
        .body_size = d->body_size,
        .properties = (const struct once_property *)d->properties,
        .n_properties = d->n_properties,
        .attempt = d->attempt,
        .broker = place->broker,
        .queue = place->id,
        .offset = d->offset,
        .floor = batch->floor > 0 ? batch->floor : 0,
    };
}

static void rest(const struct omq_batch *batch, struct held *held, int64_t ms)
{
    held->outcome = OUTCOME_LATER;
    uint64_t rest_ms = ms < 0 ? 0 : ms < REST_MOST_MS ? (uint64_t)ms : REST_MOST_MS;
    held->rest_ns = clock_ns(batch->exact->clock) + rest_ms * 1000000;
}

static void follow(struct omq_batch *batch, struct held *held, const struct once_answer *answer)
{
    switch (answer->verdict) {
    case ONCE_ACK:
        held->outcome = OUTCOME_DONE;
        break;
    case ONCE_LATER:
        batch->lost |= exact_by_offset(batch->exact) && answer->cause == ONCE_LOST_CLAIM;
        rest(batch, held, answer->wait_ms);
        break;
    case ONCE_BURY:
        held->outcome = OUTCOME_DEAD;
        break;
    default:
        held->outcome = OUTCOME_FAILED;
        break;
    }
}

/* Its place is marked, and that is all there is still to do with it. */
static void mark_buried(struct omq_batch *batch, struct held *held)
{
    struct once_message m = message_of(batch, held);
    struct once_answer answer = {0};
    struct once_run *run = NULL;
    if (once_begin(batch->exact->once, &m, &run, &answer) == ONCE_RUN)
        (void)once_end(run, ONCE_DONE, &answer);
    follow(batch, held, &answer);
    if (answer.verdict != ONCE_ACK) /* one dead letter of it is enough */
        rest(batch, held, answer.wait_ms > MARK_PAUSE_MS ? answer.wait_ms : MARK_PAUSE_MS);
}

/* In order: what may run behind the first that must wait is let go again. */
static void keep_order(struct omq_batch *batch, struct once_run **runs,
                       const struct once_answer *answers, size_t n)
{
    size_t first = 0;
    while (first < n && (answers[first].verdict == ONCE_RUN || answers[first].verdict == ONCE_ACK))
        first++;
    for (size_t i = first + 1; i < n; i++) {
        struct once_answer ignored;
        if (runs[i])
            (void)once_end(runs[i], ONCE_FAILED, &ignored);
        if (runs[i] || answers[i].verdict != ONCE_ACK)
            rest(batch, batch->held[i], 0);
        runs[i] = NULL;
    }
}

/* Those that run go to the front, in their order. */
static void sort_out(struct omq_batch *batch, struct once_run **runs, size_t n)
{
    size_t front = 0;
    for (size_t i = 0; i < n; i++) {
        struct held *held = batch->held[i];
        held->delivery.run = runs[i];
        if (!runs[i])
            continue;
        memmove(&batch->held[front + 1], &batch->held[front], (i - front) * sizeof batch->held[0]);
        batch->held[front++] = held;
    }
    for (size_t i = 0; i < n; i++)
        batch->messages[i] = &batch->held[i]->delivery;
    batch->readable = front;
}

/* One is the rule, and needs no memory. */
static void begin_one(struct omq_batch *batch)
{
    struct held *held = batch->held[0];
    struct once_message m = message_of(batch, held);
    struct once_answer answer = {0};
    struct once_run *run = NULL;
    if (once_begin(batch->exact->once, &m, &run, &answer) != ONCE_RUN)
        follow(batch, held, &answer);
    sort_out(batch, &run, 1);
}

static void begun(struct omq_batch *batch, struct once_run **runs,
                  const struct once_answer *answers)
{
    size_t n = batch->readable;
    for (size_t i = 0; i < n; i++)
        if (!runs[i])
            follow(batch, batch->held[i], &answers[i]);
    if (batch->ordered)
        keep_order(batch, runs, answers, n);
    sort_out(batch, runs, n);
}

static void begin_never(struct omq_batch *batch)
{
    for (size_t i = 0; i < batch->readable; i++)
        rest(batch, batch->held[i], NO_MEMORY_PAUSE_MS);
    batch->readable = 0;
}

static void begin_many(struct omq_batch *const *batches, size_t n, size_t total)
{
    cleanup(free_at) struct once_message *messages = malloc(total * sizeof *messages);
    cleanup(free_at) struct once_answer *answers = malloc(total * sizeof *answers);
    cleanup(free_at) struct once_run **runs = malloc(total * sizeof *runs);
    bool room = messages && answers && runs;
    size_t at = 0;
    for (size_t i = 0; i < n && room; i++)
        for (size_t k = 0; k < batches[i]->readable; k++)
            messages[at++] = message_of(batches[i], batches[i]->held[k]);
    if (room)
        once_begin_all(batches[0]->exact->once, messages, total, runs, answers);
    at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t some = batches[i]->readable;
        if (room)
            begun(batches[i], &runs[at], &answers[at]);
        else
            begin_never(batches[i]);
        at += some;
    }
}

static size_t readable_of(struct omq_batch *const *batches, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += batches[i]->readable;
    return total;
}

void exact_begin(struct omq_batch *const *batches, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct omq_batch *batch = batches[i];
        if (batch->readable == 0 || !batch->held[0]->buried)
            continue;
        mark_buried(batch, batch->held[0]);
        batch->readable = 0;
    }
    size_t total = readable_of(batches, n);
    if (n > 0 && total > 1 && exact_together(batches[0]->exact))
        begin_many(batches, n, total);
    else
        for (size_t i = 0; i < n; i++)
            if (batches[i]->readable > 0)
                begin_one(batches[i]);
}

/* ---- after ---- */

static int result_of(const struct held *held)
{
    return held->outcome == OUTCOME_DONE ? ONCE_DONE : ONCE_FAILED;
}

/* ONCE_RUN: the store has no answer for it yet. */
static void ended(struct omq_batch *batch, struct held *held, const struct once_answer *answer,
                  int64_t *wait_ms)
{
    if (!held->delivery.run)
        return;
    if (answer->verdict == ONCE_RUN) {
        *wait_ms = answer->wait_ms;
        return;
    }
    held->delivery.run = NULL;
    follow(batch, held, answer);
}

static void end_each(struct omq_batch *batch, int64_t *wait_ms)
{
    for (size_t i = 0; i < batch->readable; i++) {
        struct once_answer answer = {0};
        struct held *held = batch->held[i];
        int result = result_of(held);
        if (exact_together(batch->exact))
            once_end_all(&held->delivery.run, &result, 1, &answer);
        else if (held->delivery.run)
            (void)once_end(held->delivery.run, result, &answer);
        ended(batch, held, &answer, wait_ms);
    }
}

/* False: no memory. */
static bool end_many(struct omq_batch *const *batches, size_t n, size_t total, int64_t *wait_ms)
{
    cleanup(free_at) struct once_run **runs = malloc(total * sizeof *runs);
    cleanup(free_at) struct once_answer *answers = malloc(total * sizeof *answers);
    cleanup(free_at) int *results = malloc(total * sizeof *results);
    if (!runs || !answers || !results)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < batches[i]->readable; k++, at++) {
            runs[at] = batches[i]->held[k]->delivery.run; /* NULL: it was answered before */
            results[at] = result_of(batches[i]->held[k]);
        }
    once_end_all(runs, results, total, answers);
    at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < batches[i]->readable; k++, at++)
            ended(batches[i], batches[i]->held[k], &answers[at], wait_ms);
    return true;
}

static bool is_over(const struct omq_batch *batch)
{
    bool over = true;
    for (size_t k = 0; k < batch->readable; k++)
        over = over && !batch->held[k]->delivery.run;
    return over;
}

size_t exact_end(struct omq_batch **batches, size_t n, int64_t *wait_ms)
{
    size_t total = readable_of(batches, n), over = 0;
    bool together = total > 1 && exact_together(batches[0]->exact);
    if (!together || !end_many(batches, n, total, wait_ms))
        for (size_t i = 0; i < n; i++)
            end_each(batches[i], wait_ms);
    for (size_t i = 0; i < n; i++) {
        struct omq_batch *batch = batches[i];
        if (!is_over(batch))
            continue;
        batches[i] = batches[over];
        batches[over++] = batch;
    }
    return over;
}

void exact_give_up(struct omq_batch **batches, size_t n)
{
    int64_t ignored;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < batches[i]->readable; k++)
            batches[i]->held[k]->outcome = OUTCOME_FAILED; /* for libonce: the claim is let go */
    size_t over = exact_end(batches, n, &ignored);
    invariant(over == n); /* what failed is told once */
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < batches[i]->readable; k++)
            rest(batches[i], batches[i]->held[k], 0);
        batches[i]->readable = 0;
    }
}

bool exact_lost(const struct omq_batch *batch)
{
    bool lost = false;
    for (size_t i = 0; i < batch->readable; i++)
        lost |= once_run_lost(batch->held[i]->delivery.run);
    return lost;
}

/* ---- where to begin ---- */

struct taking {
    struct task task;
    struct post post;
    struct lane *lane;
    struct exact *exact;
    int64_t offset;
    enum take how;
    bool known;
    void (*then)(struct lane *lane, bool known, int64_t offset);
};

static void taken(struct post *post)
{
    struct taking *taking = list_entry(post, struct taking, post);
    struct lane *lane = taking->lane;
    struct omq_consumer *consumer = lane->consumer;
    lane->out--;
    lane->taking = false;
    if (lane->state != LANE_DROPPED)
        taking->then(lane, taking->known, taking->offset);
    lane_idle(lane);
    exact_drop(taking->exact);
    free(taking);
    consumer->running--;
    consumer_calm(consumer);
}

/* An operator wants to go on at `end`: all before it counts as done. To mark the last place says
 * so. */
static int pass_over(struct once *once, const struct omq_queue *queue, int64_t end,
                     struct once_error *why)
{
    struct once_message last = {
        .topic = queue->topic,
        .broker = queue->broker,
        .queue = queue->id,
        .offset = end - 1,
        .floor = end - 1,
    };
    struct once_answer answer = {0};
    struct once_run *run = NULL;
    if (once_begin(once, &last, &run, &answer) == ONCE_RUN)
        (void)once_end(run, ONCE_DONE, &answer);
    *why = answer.why;
    return answer.verdict == ONCE_ACK ? ONCE_OK : ONCE_STORE;
}

static int take_to(const struct taking *taking, int64_t *start, struct once_error *why)
{
    const struct omq_queue *queue = &taking->lane->queue;
    struct once *once = taking->exact->once;
    int code =
        once_queue_take(once, queue->topic, queue->broker, queue->id, taking->offset, start, why);
    if (code || taking->how != TAKE_ORDERED)
        return code;
    if (*start > taking->offset)
        client_log(taking->exact->client, OMQ_WARN,
                   "%s:%d of topic %s goes on at offset %lld: the database says that what is "
                   "before it is done, so that does not run again",
                   queue->broker, queue->id, queue->topic, (long long)*start);
    if (*start >= taking->offset)
        return code;
    *start = taking->offset;
    return pass_over(once, queue, taking->offset, why);
}

static void take_run(struct task *task)
{
    struct taking *taking = list_entry(task, struct taking, task);
    const struct omq_queue *queue = &taking->lane->queue;
    struct omq_client *client = taking->exact->client;
    struct once_error why;
    int64_t start;
    int code = take_to(taking, &start, &why);
    taking->known = !code;
    if (code)
        client_log(client, OMQ_WARN, "where to begin in %s:%d of topic %s is not known yet: %s",
                   queue->broker, queue->id, queue->topic, why.text);
    else
        taking->offset = start;
    loop_post(client->loop, &taking->post);
}

bool exact_take(struct lane *lane, int64_t offset, enum take how,
                void (*then)(struct lane *lane, bool known, int64_t offset))
{
    struct omq_consumer *consumer = lane->consumer;
    struct taking *taking = calloc(1, sizeof *taking);
    if (!taking)
        return false;
    taking->task.run = take_run;
    taking->post.run = taken;
    taking->lane = lane;
    taking->exact = exact_hold(consumer->exact);
    taking->offset = offset;
    taking->how = how;
    taking->then = then;
    lane->out++;
    lane->taking = true;
    consumer->running++;
    hands_give(consumer->hands, &taking->task);
    return true;
}

static bool is_take(struct task *task, void *user)
{
    (void)user;
    return task->run == take_run;
}

/* They may stand behind handlers that never return. */
void exact_recall(struct omq_consumer *consumer)
{
    struct list tasks;
    list_init(&tasks);
    if (consumer->exact && consumer->hands)
        hands_recall(consumer->hands, is_take, NULL, &tasks);
    while (!list_empty(&tasks))
        taken(&list_entry(list_pop(&tasks), struct taking, task.link)->post);
}
