/* take.c - batches for those who take them themselves, and finish them when they like. */
#include "client/consumer_int.h"

#include <time.h>

/* A message that is put off stays here no longer without being seen. */
#define REST_MAX_MS 3600000
#define TOGETHER    256 /* batches */

bool consumer_entered(struct omq_consumer *consumer)
{
    room_enter(&consumer->room);
    bool open = !consumer->shut;
    consumer->inside += open;
    room_leave(&consumer->room);
    return open;
}

void consumer_left(struct omq_consumer *consumer)
{
    room_enter(&consumer->room);
    consumer->inside--;
    room_tell(&consumer->room);
    room_leave(&consumer->room);
}

/* The first batches that wait to be taken, at most `max`. */
static size_t ready_wait(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out,
                         size_t max)
{
    struct clock *clock = consumer->client->clock;
    uint64_t until = clock_ns(clock) + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    size_t n = 0;
    room_enter(&consumer->room);
    while (!consumer->shut && (consumer->halted || list_empty(&consumer->ready))) {
        uint64_t now = clock_ns(clock);
        if (now >= until)
            break;
        room_wait_ns(&consumer->room, until - now);
    }
    while (!consumer->shut && !consumer->halted && n < max && !list_empty(&consumer->ready))
        out[n++] = list_entry(list_pop(&consumer->ready), struct omq_batch, link);
    room_leave(&consumer->room);
    return n;
}

/* Those that closing did not wait for, and those that are over before the application has seen
 * them. */
static void put_away(struct omq_batch *batch, bool ours)
{
    if (ours) {
        omq_batch_finish(batch, OMQ_LATER, 0);
        return;
    }
    batch_judge(batch, OMQ_LATER, 0);
    if (batch->exact)
        exact_give_up(&batch, 1);
    const struct omq_batch *back = batches_over(&batch, 1);
    invariant(!back);
}

/* Of those that were waiting, what is for the application; the others are over. */
static size_t admit_all(struct omq_batch **batches, size_t n)
{
    size_t kept = 0;
    struct exact *exact = n > 0 ? batches[0]->exact : NULL;
    for (size_t i = 0; i < n; i++)
        batch_ready(batches[i]);
    if (exact)
        exact_begin(batches, n);
    for (size_t i = 0; i < n; i++) {
        struct omq_batch *batch = batches[i];
        bool ours = batch_take(batch);
        if (ours && batch->readable > 0)
            batches[kept++] = batch;
        else
            put_away(batch, ours);
    }
    return kept;
}

int consumer_take(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out, size_t max,
                  size_t *n, struct omq_error *why)
{
    if (!consumer_entered(consumer))
        return omq_fail(why, OMQ_CLOSED, "it is closed");
    if (consumer->options.handle) {
        consumer_left(consumer);
        return omq_fail(why, OMQ_MISUSE, "this consumer has a handler, which gets all messages");
    }
    uint64_t until =
        clock_ns(consumer->client->clock) + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    size_t taken = 0;
    for (uint64_t now = 0; taken == 0 && (now == 0 || now < until);) {
        now = clock_ns(consumer->client->clock);
        int left_ms = now < until ? (int)((until - now + 999999) / 1000000) : 0;
        size_t some = ready_wait(consumer, left_ms, out, max);
        if (some == 0)
            break;
        taken = admit_all(out, some);
    }
    bool shut = consumer->shut;
    consumer_left(consumer);
    if (taken == 0)
        return omq_fail(why, shut ? OMQ_CLOSED : OMQ_TIMEOUT,
                        shut ? "it is closed" : "no message in time");
    *n = taken;
    return OMQ_OK;
}

int omq_consumer_take_all(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out,
                          size_t max, size_t *n, struct omq_error *why)
{
    if (!consumer || !out || !n || max == 0)
        return omq_fail(why, OMQ_INVALID, "no consumer, or no place for the batches");
    if (loop_is_mine(consumer->client->loop))
        return omq_fail(why, OMQ_MISUSE, "messages cannot be waited for in this callback");
    return consumer_take(consumer, timeout_ms, out, max, n, why);
}

int omq_consumer_take(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out,
                      struct omq_error *why)
{
    size_t n;
    return omq_consumer_take_all(consumer, timeout_ms, out, 1, &n, why);
}

const struct omq_delivery *const *omq_batch_messages(const struct omq_batch *batch, size_t *n)
{
    if (n)
        *n = batch ? batch->readable : 0;
    return batch ? batch->messages : NULL;
}

/* What the application says of each of its messages, if that is neither done nor failed. */
static void batch_except(struct omq_batch *batch, const struct omq_ending *ending)
{
    uint64_t rest_ms = ending->after_ms < 0             ? 0
                       : ending->after_ms < REST_MAX_MS ? (uint64_t)ending->after_ms
                                                        : REST_MAX_MS;
    uint64_t until_ns = clock_ns(batch->clock) + rest_ms * 1000000;
    for (size_t i = ending->done; i < batch->readable; i++) {
        struct held *held = batch->held[i];
        if (held->outcome != OUTCOME_FAILED) /* libonce has its own reasons */
            continue;
        held->outcome = ending->result == OMQ_DEAD ? OUTCOME_DEAD : OUTCOME_LATER;
        held->rest_ns = until_ns;
    }
}

/* Those that the loop waits for, all of one consumer, go back together. Closing waits for their
 * post, and then for us to be out of the consumer. */
void batches_send(struct omq_batch *first)
{
    if (!first)
        return;
    struct omq_consumer *consumer = first->consumer;
    room_enter(&consumer->room);
    consumer->inside++;
    room_leave(&consumer->room);
    loop_post(consumer->client->loop, &first->post);
    consumer_left(consumer);
}

size_t batches_tell(struct omq_batch **batches, size_t n, int64_t *wait_ms)
{
    size_t over = exact_end(batches, n, wait_ms);
    batches_send(batches_over(batches, over));
    memmove(batches, batches + over, (n - over) * sizeof(struct omq_batch *));
    return n - over;
}

/* Until all have gone back. */
static void tell_on(struct omq_batch **batches, size_t n, int64_t wait_ms)
{
    while (n > 0) {
        struct timespec pause = {wait_ms / 1000, wait_ms % 1000 * 1000000};
        (void)nanosleep(&pause, NULL);
        n = batches_tell(batches, n, &wait_ms);
    }
}

/* The first of them that are of one consumer, at most TOGETHER. How many that was. */
static size_t finish_some(const struct omq_ending *endings, size_t n)
{
    struct omq_batch *some[TOGETHER];
    size_t n_some = 0, i = 0;
    for (; i < n && n_some < TOGETHER; i++) {
        struct omq_batch *batch = endings[i].batch;
        if (!batch)
            continue;
        if (n_some > 0 && some[0]->consumer != batch->consumer)
            break;
        batch_judge(batch, endings[i].result == OMQ_DONE ? OMQ_DONE : OMQ_LATER, endings[i].done);
        some[n_some++] = batch;
    }
    int64_t wait_ms = 0;
    bool exactly = n_some > 0 && some[0]->exact;
    size_t over = exactly ? exact_end(some, n_some, &wait_ms) : n_some;
    for (size_t k = 0; k < i; k++)
        if (endings[k].batch && (endings[k].result == OMQ_DEFER || endings[k].result == OMQ_DEAD))
            batch_except(endings[k].batch, &endings[k]);
    batches_send(batches_over(some, over));
    tell_on(some + over, n_some - over, wait_ms);
    return i;
}

void omq_batch_finish_all(const struct omq_ending *endings, size_t n)
{
    size_t done = 0;
    while (endings && done < n)
        done += finish_some(endings + done, n - done);
}

void omq_batch_finish(struct omq_batch *batch, int result, size_t done)
{
    struct omq_ending ending = {.batch = batch, .result = result, .done = done};
    omq_batch_finish_all(&ending, 1);
}
