/* back.c - what becomes of a message when its handler is done with it, or takes too long.
 *
 *     DONE            let go; the queue's offset moves on
 *     LATER           stays here, and is given away once more; no attempt
 *     FAILED          back to the broker, which sends it again later, or, where that would break an
 *                     order or a place, once more from here
 *     DEAD, too many  back to the broker as a dead letter
 *
 * A message is let go here only when the broker has it: until then nobody but this process knows
 * that it is not done. All of it on the client's loop.
 */
#include "client/consumer_int.h"

#include <stdlib.h>

#define EXPIRED_LEVEL 3 /* the delay of a message whose handler takes too long */
#define EXPIRED_LOOKS 16
#define DEAD_LEVEL    (-1) /* no further try: a dead letter */

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

void held_forget(struct lane *lane, struct held *held)
{
    if (lane->given == &held->link)
        lane->given = held->link.prev == &lane->held.head ? NULL : held->link.prev;
    list_remove(&held->link);
    lane->n_held--;
    lane->bytes_held -= held->size;
    held->done = true;
}

void held_finish(struct lane *lane, struct held *held)
{
    if (!held->done)
        held_forget(lane, held);
    held_free(held);
}

/* It stays here, and is given away once more; this was no attempt. */
void held_wait(struct lane *lane, struct held *held)
{
    held->taken = false;
    lane->given = NULL; /* whoever gives away next looks at all of them */
    if (atomic_exchange_explicit(&held->begun_ns, HELD_FREE, memory_order_relaxed) != HELD_FREE)
        count(&lane->consumer->client->stats.waiting, 1);
}

/* The same after an attempt. */
static void held_again(struct lane *lane, struct held *held)
{
    held->reconsumed++;
    held->delivery.attempt++;
    held_wait(lane, held);
}

/* Messages that fail are tried again here, not given back to the broker. */
static bool retries_here(const struct omq_consumer *consumer)
{
    return consumer->options.ordered || consumer->reads || exact_by_offset(consumer->exact);
}

/* A message on its way back to the broker. */
struct back {
    struct call call;
    struct lane *lane;
    struct held *held; /* NULL: its handler still has it, and may be back before the answer */
    int64_t position;
    int32_t level, max;
    bool last; /* it becomes a dead letter */
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

/* The broker has it, and its handler takes too long or has failed meanwhile: it is let go here.
 * Until the broker has it, nobody but this process knows that it is not done. */
static void late_returned(struct lane *lane, int64_t position, bool taken_back)
{
    list_each(k, &lane->held) {
        struct held *held = list_entry(k, struct held, link);
        if (!held->returning || held->position != position)
            continue;
        held->returning = false;
        lane->given = NULL;
        if (taken_back)
            held_forget(lane, held);
        if (!taken_back || held->taken)
            return; /* to be tried again; or whoever works on it frees it */
        atomic_fetch_sub_explicit(&lane->consumer->client->stats.waiting, 1, memory_order_relaxed);
        held_free(held);
        return;
    }
}

static void back_done(struct call *call, const struct answer *answer)
{
    struct back *back = list_entry(call, struct back, call);
    struct lane *lane = back->lane;
    struct omq_consumer *consumer = lane->consumer;
    struct held *held = back->held;
    bool taken_back = !answer->err && answer->head->code == RES_SUCCESS;
    if (taken_back) {
        count(&consumer->client->stats.sent_back, 1);
        count(&consumer->client->stats.dead, back->last);
    } else if (!consumer->closing) {
        client_log(consumer->client, OMQ_WARN,
                   "a message of %s:%d of topic %s could not be given back; it is tried again here",
                   lane->queue.broker, lane->queue.id, lane->queue.topic);
    }
    if (!held)
        late_returned(lane, back->position, taken_back);
    if (held && taken_back && !held->done && exact_by_offset(consumer->exact)) {
        held->buried = true; /* a dead letter, but the database does not know yet */
        held_wait(lane, held);
    } else if (held && held->handle && taken_back)
        pop_over(lane, held, OUTCOME_DONE);
    else if (held && (taken_back || held->done || held->handle))
        held_finish(lane, held);
    else if (held)
        held_again(lane, held); /* with the next tick */
    free(back);
    lane->out--;
    if (lane->state != LANE_DROPPED && taken_back)
        work_give(lane); /* in order the next one may come now */
    lane_idle(lane);
    consumer->running--;
    consumer_calm(consumer);
}

/* False: no memory, or nobody to give it to. */
static bool send_back(struct lane *lane, struct held *held, const struct held *of, int32_t level)
{
    struct omq_client *client = lane->consumer->client;
    struct topic_route *route;
    struct bytes address = lane_broker(lane, true, &route);
    struct back *back = address.len ? calloc(1, sizeof *back) : NULL;
    int32_t max = lane->consumer->options.max_attempts;
    if (back) {
        *back = (struct back){
            .call = {.code = REQ_CONSUMER_SEND_MSG_BACK,
                     .put = put_back,
                     .room = strlen(lane->consumer->group) + strlen(lane->queue.topic) +
                             strlen(lane->queue.broker),
                     .done = back_done},
            .lane = lane,
            .held = held,
            .position = of->position,
            .level = level,
            .max = max,
            .last = level == DEAD_LEVEL || of->reconsumed >= max,
        };
        lane->out++;
        lane->consumer->running++;
        call_start(client, address, &back->call, (uint64_t)client->options.timeout_ms);
    }
    if (route)
        counted_drop(&route->counted);
    return back != NULL;
}

bool work_bury(struct lane *lane, struct held *held)
{
    return send_back(lane, held, held, DEAD_LEVEL);
}

static void held_failed(struct lane *lane, struct held *held)
{
    const struct omq_consumer *consumer = lane->consumer;
    bool dead = held->damaged || held->outcome == OUTCOME_DEAD;
    bool more = consumer->reads || held->reconsumed < consumer->options.max_attempts;
    bool here = held->returning /* the broker's answer decides */ ||
                (retries_here(consumer) && more && !dead);
    bool last = dead || retries_here(consumer);
    if (here && exact_by_offset(consumer->exact))
        held->rest_ns =
            clock_ns(consumer->client->clock) + (uint64_t)consumer->options.suspend_ms * 1000000;
    if (held->done || lane->state == LANE_DROPPED) {
        held_finish(lane, held); /* it comes again by itself, to whoever has the queue now */
    } else if (!here && (consumer->reads || consumer->options.spread == OMQ_BROADCAST)) {
        client_log(consumer->client, OMQ_WARN, "message %s of topic %s is passed over",
                   held->delivery.id, held->delivery.queue.topic);
        held_finish(lane, held);
    } else if (here || !send_back(lane, held, held, last ? DEAD_LEVEL : 0)) {
        held_again(lane, held);
    }
}

bool held_over(struct lane *lane, struct held *held)
{
    bool gone = held->done || lane->state == LANE_DROPPED;
    bool failed = !held->handle && held->outcome != OUTCOME_DONE && held->outcome != OUTCOME_LATER;
    count(&lane->consumer->client->stats.handled, held->outcome == OUTCOME_DONE);
    if (held->handle)
        pop_over(lane, held, held->outcome);
    else if (held->outcome == OUTCOME_DONE || (held->outcome == OUTCOME_LATER && gone))
        held_finish(lane, held);
    else if (held->outcome == OUTCOME_LATER)
        held_wait(lane, held);
    else
        held_failed(lane, held);
    return failed;
}

/* ---- handlers that take too long ---- */

/* The message is given back and, once the broker has it, let go, so that the queue's offset can
 * move on; whoever still works on it may finish, and then its effect may happen twice. */
static void lane_expire(struct lane *lane, uint64_t now, uint64_t patience)
{
    const struct omq_consumer *consumer = lane->consumer;
    int looks = EXPIRED_LOOKS;
    list_each(k, &lane->held) {
        struct held *held = list_entry(k, struct held, link);
        uint64_t begun = atomic_load_explicit(&held->begun_ns, memory_order_relaxed);
        if (looks-- == 0 || !held->taken || begun <= HELD_WAITS || now - begun < patience)
            break;
        if (held->returning)
            continue;
        if (!send_back(lane, NULL, held, EXPIRED_LEVEL))
            break;
        held->returning = true;
        client_log(consumer->client, OMQ_WARN,
                   "message %s is given back: its handler has worked on it for %d s",
                   held->delivery.id, consumer->options.timeout_ms / 1000);
    }
}

/* By offset a message is known by its place: what the broker takes back would be another message,
 * with an effect of its own. */
void work_expire(struct omq_consumer *consumer)
{
    if (consumer->options.ordered || consumer->options.pop || consumer->reads ||
        consumer->options.spread != OMQ_CLUSTER || exact_by_offset(consumer->exact))
        return;
    uint64_t now = clock_ns(consumer->client->clock);
    uint64_t patience = (uint64_t)consumer->options.timeout_ms * 1000000;
    list_each(l, &consumer->lanes)
        lane_expire(list_entry(l, struct lane, link), now, patience);
}
