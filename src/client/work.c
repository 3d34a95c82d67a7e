/* work.c - messages on their way through the application's hands, and back. */
#include "client/consumer_int.h"

#include <stdlib.h>

#define EXPIRED_LEVEL 3 /* the delay of a message whose handler takes too long */
#define EXPIRED_LOOKS 16
#define DEAD_LEVEL    (-1) /* no further try: a dead letter */

static void lane_give(struct lane *lane);
static void batch_run(struct task *task);
static void batch_back(struct post *post);

/* ---- giving away ---- */

static struct omq_batch *batch_make(struct lane *lane, size_t n)
{
    struct omq_batch *batch =
        calloc(1, sizeof *batch + n * sizeof batch->messages[0] + n * sizeof *batch->held);
    if (!batch)
        return NULL;
    batch->task.run = batch_run;
    batch->post.run = batch_back;
    batch->consumer = lane->consumer;
    batch->lane = lane;
    batch->held = (struct held **)(batch->messages + n);
    return batch;
}

static void batch_give(struct omq_batch *batch)
{
    struct omq_consumer *consumer = batch->consumer;
    batch->lane->out++;
    consumer->running++;
    if (consumer->hands) {
        hands_give(consumer->hands, &batch->task);
        return;
    }
    room_enter(&consumer->room);
    list_add_tail(&consumer->ready, &batch->link);
    room_tell_one(&consumer->room);
    room_leave(&consumer->room);
}

/* ---- at most once: the broker hears that they are done before anybody sees them ---- */

static void told_before(struct call *call, const struct answer *answer)
{
    struct lane *lane = list_entry(call, struct lane, before);
    lane->telling = false;
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
        return;
    }
    if (answer->err || answer->head->code != RES_SUCCESS)
        return; /* the next tick tries again */
    lane->told = lane->before_offset;
    lane_give(lane);
}

/* True: all that is there may be given away now. */
static bool may_give(struct lane *lane)
{
    if (lane->consumer->options.acknowledge != OMQ_BEFORE || list_empty(&lane->held))
        return true;
    int64_t end = list_entry(lane->held.head.prev, struct held, link)->delivery.offset + 1;
    if (lane->told >= end)
        return true;
    if (!lane->telling && offset_tell_first(lane, end, told_before)) {
        lane->telling = true;
        lane->before_offset = end;
    }
    return false;
}

/* Room for nobody but the application: whatever becomes of them, they do not come again. */
static void held_forget(struct lane *lane, struct held *held)
{
    list_remove(&held->link);
    lane->n_held--;
    lane->bytes_held -= held->size;
    held->done = true;
}

void work_give(struct lane *lane)
{
    if (may_give(lane))
        lane_give(lane);
}

/* In order nothing is given away while something is out; else everything that is there. */
static void lane_give(struct lane *lane)
{
    const struct omq_consumer *consumer = lane->consumer;
    size_t most = (size_t)consumer->options.batch;
    bool ordered = consumer->options.ordered;
    bool before = consumer->options.acknowledge == OMQ_BEFORE;
    struct omq_batch *batch = NULL;
    if (consumer->closing || consumer->paused || lane->state == LANE_DROPPED || lane->suspended ||
        (ordered && lane->out > 0))
        return;
    list_each(k, &lane->held) {
        struct held *held = list_entry(k, struct held, link);
        if (held->taken)
            continue;
        if (before && held->delivery.offset >= lane->told)
            break; /* it came after the broker was told */
        if (!batch && !(batch = batch_make(lane, most)))
            return; /* no memory: the next arrival, or the next tick, tries again */
        held->taken = true;
        held->taken_ns = clock_ns(consumer->client->clock);
        batch->messages[batch->n] = &held->delivery;
        batch->held[batch->n++] = held;
        if (before)
            held_forget(lane, held);
        if (batch->n < most)
            continue;
        batch_give(take(&batch));
        if (ordered)
            return;
    }
    if (batch)
        batch_give(batch);
}

/* ---- in the hands ---- */

/* Expands what is compressed; what cannot be expanded goes behind the others, and fails. */
static void batch_expand(struct omq_batch *batch)
{
    size_t readable = 0;
    for (size_t i = 0; i < batch->n; i++) {
        struct held *held = batch->held[i];
        if (held_expand(held)) {
            client_log(batch->consumer->client, OMQ_ERROR,
                       "the body of message %s cannot be expanded; it is given back",
                       held->delivery.id);
            continue;
        }
        memmove(&batch->held[readable + 1], &batch->held[readable],
                (i - readable) * sizeof batch->held[0]);
        batch->held[readable++] = held;
    }
    for (size_t i = 0; i < batch->n; i++)
        batch->messages[i] = &batch->held[i]->delivery;
    batch->readable = readable;
}

static void batch_run(struct task *task)
{
    struct omq_batch *batch = list_entry(task, struct omq_batch, task);
    struct omq_consumer *consumer = batch->consumer;
    size_t done = 0;
    batch_expand(batch);
    if (batch->readable > 0)
        batch->result = consumer->options.handle(consumer->options.user, batch->messages,
                                                 batch->readable, &done);
    batch->done = done;
    loop_post(consumer->client->loop, &batch->post);
}

/* ---- and back, on the loop ---- */

static void running_less(struct omq_consumer *consumer)
{
    consumer->running--;
    consumer_calm(consumer);
}

static void held_finish(struct lane *lane, struct held *held)
{
    if (!held->done) {
        list_remove(&held->link);
        lane->n_held--;
        lane->bytes_held -= held->size;
    }
    held_free(held);
}

/* A message on its way back to the broker. */
struct back {
    struct call call;
    struct lane *lane;
    struct held *held; /* NULL: the time-out has let it go already */
    int64_t position;
    int32_t level, max;
};

static void put_back(const struct call *call, struct frame_out *f)
{
    const struct back *back = list_entry(call, struct back, call);
    const struct lane *lane = back->lane;
    frame_put(f, BYTES("group"), bytes_str(lane->consumer->group));
    frame_put_int(f, BYTES("offset"), back->position);
    frame_put_int(f, BYTES("delayLevel"), back->level);
    frame_put(f, BYTES("originTopic"), bytes_str(lane->queue.topic));
    frame_put_bool(f, BYTES("unitMode"), false);
    frame_put_int(f, BYTES("maxReconsumeTimes"), back->max);
    frame_put(f, BYTES("bname"), bytes_str(lane->queue.broker));
}

static void back_done(struct call *call, const struct answer *answer)
{
    struct back *back = list_entry(call, struct back, call);
    struct lane *lane = back->lane;
    struct held *held = back->held;
    bool taken_back = !answer->err && answer->head->code == RES_SUCCESS;
    lane->out--;
    if (taken_back)
        atomic_fetch_add_explicit(&lane->consumer->stats.sent_back, 1, memory_order_relaxed);
    if (held && (taken_back || held->done)) {
        held_finish(lane, held);
    } else if (held) { /* here again, with the next tick */
        held->taken = false;
        held->reconsumed++;
        held->delivery.attempt++;
    }
    free(back);
    running_less(lane->consumer);
    if (lane->state == LANE_DROPPED)
        lane_let_go(lane);
}

/* False: no memory, or nobody to give it to. */
static bool send_back(struct lane *lane, struct held *held, int64_t position, int32_t level)
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct back *back = address.len ? calloc(1, sizeof *back) : NULL;
    if (back) {
        *back = (struct back){
            .call = {.code = REQ_CONSUMER_SEND_MSG_BACK,
                     .put = put_back,
                     .room = strlen(lane->consumer->group) + strlen(lane->queue.topic) +
                             strlen(lane->queue.broker),
                     .done = back_done},
            .lane = lane,
            .held = held,
            .position = position,
            .level = level,
            .max = lane->consumer->options.max_attempts,
        };
        lane->out++;
        lane->consumer->running++;
        call_start(client, address, &back->call, (uint64_t)client->options.timeout_ms);
    }
    if (route)
        counted_drop(&route->counted);
    return back != NULL;
}

static void held_failed(struct lane *lane, struct held *held)
{
    const struct omq_consumer *consumer = lane->consumer;
    if (held->done || lane->state == LANE_DROPPED) {
        held_finish(lane, held); /* it comes again by itself, to whoever has the queue now */
    } else if (consumer->options.ordered && held->reconsumed < consumer->options.max_attempts) {
        held->taken = false;
        held->reconsumed++;
        held->delivery.attempt++;
    } else if (consumer->options.ordered) {
        held->taken = send_back(lane, held, held->position, DEAD_LEVEL);
    } else if (consumer->options.spread == OMQ_BROADCAST) {
        client_log(consumer->client, OMQ_WARN,
                   "message %s failed and is not delivered again: broadcast", held->delivery.id);
        held_finish(lane, held);
    } else if (!send_back(lane, held, held->position, 0)) {
        held->taken = false;
    }
}

static void batch_back(struct post *post)
{
    struct omq_batch *batch = list_entry(post, struct omq_batch, post);
    struct omq_consumer *consumer = batch->consumer;
    struct lane *lane = batch->lane;
    bool all = batch->result == OMQ_DONE;
    bool failed = false;
    for (size_t i = 0; i < batch->n; i++) {
        if (i < batch->readable && (all || i < batch->done)) {
            held_finish(lane, batch->held[i]);
            atomic_fetch_add_explicit(&consumer->stats.handled, 1, memory_order_relaxed);
        } else {
            held_failed(lane, batch->held[i]);
            failed = true;
        }
    }
    free(batch);
    lane->out--;
    running_less(consumer);
    if (lane->state == LANE_DROPPED) {
        lane_let_go(lane);
    } else if (consumer->options.ordered && failed) {
        lane->suspended = true;
        timer_start(lane->again, (uint64_t)consumer->options.suspend_ms, 0);
    } else {
        work_give(lane);
    }
}

void batches_drop(struct omq_consumer *consumer)
{
    struct list left;
    list_init(&left);
    room_enter(&consumer->room);
    list_append_all(&left, &consumer->ready);
    consumer->shut = true;
    room_tell(&consumer->room);
    room_leave(&consumer->room);
    while (!list_empty(&left)) {
        struct omq_batch *batch = list_entry(list_pop(&left), struct omq_batch, link);
        struct lane *lane = batch->lane;
        for (size_t i = 0; i < batch->n; i++) {
            batch->held[i]->taken = false;
            if (batch->held[i]->done)
                held_free(batch->held[i]);
        }
        free(batch);
        lane->out--;
        consumer->running--;
        lane_let_go(lane);
    }
}

/* ---- handlers that take too long ---- */

/* The message is given back and let go, so that the queue's offset can move on; whoever still works
 * on it may finish, and then its effect may happen twice. */
void work_expire(struct omq_consumer *consumer)
{
    if (consumer->options.ordered || consumer->options.spread != OMQ_CLUSTER)
        return;
    uint64_t now = clock_ns(consumer->client->clock);
    uint64_t patience = (uint64_t)consumer->options.timeout_ms * 1000000;
    list_each(l, &consumer->lanes) {
        struct lane *lane = list_entry(l, struct lane, link);
        int looks = EXPIRED_LOOKS;
        list_each(k, &lane->held) {
            struct held *held = list_entry(k, struct held, link);
            if (looks-- == 0 || !held->taken || now - held->taken_ns < patience)
                break;
            if (!send_back(lane, NULL, held->position, EXPIRED_LEVEL))
                break;
            client_log(consumer->client, OMQ_WARN,
                       "message %s is given back: its handler has worked on it for %d s",
                       held->delivery.id, consumer->options.timeout_ms / 1000);
            list_remove(&held->link);
            lane->n_held--;
            lane->bytes_held -= held->size;
            held->done = true;
        }
    }
}

/* ---- for those who take batches themselves ---- */

int omq_consumer_take(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out,
                      struct omq_error *why)
{
    if (!consumer || !out)
        return omq_fail(why, OMQ_INVALID, "no consumer, or no place for the batch");
    if (consumer->hands)
        return omq_fail(why, OMQ_MISUSE, "this consumer has a handler, which gets all messages");
    uint64_t until =
        clock_ns(consumer->client->clock) + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    struct link *first;
    room_enter(&consumer->room);
    while (!(first = list_pop(&consumer->ready)) && !consumer->shut) {
        uint64_t now = clock_ns(consumer->client->clock);
        if (now >= until)
            break;
        room_wait_ns(&consumer->room, until - now);
    }
    bool shut = consumer->shut;
    room_leave(&consumer->room);
    if (!first)
        return omq_fail(why, shut ? OMQ_CLOSED : OMQ_TIMEOUT,
                        shut ? "the consumer is closed" : "no message in time");
    *out = list_entry(first, struct omq_batch, link);
    batch_expand(*out);
    return OMQ_OK;
}

const struct omq_delivery *const *omq_batch_messages(const struct omq_batch *batch, size_t *n)
{
    if (n)
        *n = batch ? batch->readable : 0;
    return batch ? batch->messages : NULL;
}

void omq_batch_finish(struct omq_batch *batch, int result, size_t done)
{
    if (!batch)
        return;
    batch->result = result;
    batch->done = done;
    loop_post(batch->consumer->client->loop, &batch->post);
}
