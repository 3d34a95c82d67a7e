/* work.c - messages on their way through the application's hands, and back. */
#include "base/json.h"
#include "client/consumer_int.h"

#include <stdlib.h>

#define TAKE_AGAIN_MS 2000

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
    batch->clock = lane->consumer->client->clock;
    batch->held = (struct held **)(batch->messages + n);
    batch->exact = exact_hold(lane->consumer->exact);
    batch->handle = lane->consumer->options.handle;
    batch->user = lane->consumer->options.user;
    batch->ordered = lane->consumer->options.ordered;
    batch->size = n;
    batch->floor = lane_offset(lane);
    return batch;
}

static void batch_give(struct omq_batch *batch)
{
    struct omq_consumer *consumer = batch->consumer;
    batch->lane->out++;
    consumer->running++;
    list_add_tail(&consumer->batches, &batch->all);
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
    if (!answer->err && answer->head->code == RES_SUCCESS) { /* else the next tick tries again */
        lane_answered(lane, lane->before_offset, lane->before_moves);
        lane_give(lane);
    }
    consumer_calm(lane->consumer);
}

/* True: all that is there may be given away now. */
static bool was_told(struct lane *lane)
{
    if (lane->consumer->options.acknowledge != OMQ_BEFORE || list_empty(&lane->held))
        return true;
    int64_t end = list_entry(lane->held.head.prev, struct held, link)->delivery.offset + 1;
    if (lane->told >= end)
        return true;
    if (!lane->telling && !lane->consumer->closing && offset_tell_first(lane, end, told_before))
        lane->telling = true;
    return false;
}

void work_give(struct lane *lane)
{
    if (was_told(lane))
        lane_give(lane);
}

static bool may_give(const struct lane *lane)
{
    const struct omq_consumer *consumer = lane->consumer;
    if (consumer->closing || consumer->paused || lane->state == LANE_DROPPED || !lane->started ||
        lane->suspended || lane->leaving)
        return false;
    return !consumer->options.ordered ||
           (lane->out == 0 && (!consumer_locks(consumer) || lane_locked(lane)));
}

/* Before it, none is free. */
static struct link *first_free(const struct lane *lane)
{
    return lane->given ? lane->given->next : lane->held.head.next;
}

/* In order nothing is given away while something is out; else everything that is there. */
static void lane_give(struct lane *lane)
{
    const struct omq_consumer *consumer = lane->consumer;
    size_t most = (size_t)consumer->options.batch;
    bool before = consumer->options.acknowledge == OMQ_BEFORE;
    bool gap = false; /* one that is free was passed over */
    struct omq_batch *batch = NULL;
    uint64_t now = clock_ns(consumer->client->clock);
    if (!may_give(lane))
        return;
    for (struct link *k = first_free(lane), *next; k != &lane->held.head; k = next) {
        struct held *held = list_entry(k, struct held, link);
        bool out = held->taken || held->returning;
        next = k->next;
        if (!out && held->rest_ns > now) {
            gap = true;
            lane_wake(lane, held->rest_ns);
            if (consumer->options.ordered)
                break;
            continue;
        }
        if (!out && before && held->delivery.offset >= lane->told)
            break; /* it came after the broker was told */
        if (!out && !batch && !(batch = batch_make(lane, most)))
            return; /* no memory: the next arrival, or the next tick, tries again */
        if (!gap)
            lane->given = k;
        if (out)
            continue;
        held->taken = true;
        batch->held[batch->n++] = held;
        if (before)
            held_forget(lane, held);
        if (batch->n < most)
            continue;
        batch_give(take(&batch));
        if (consumer->options.ordered)
            return;
    }
    if (batch)
        batch_give(batch);
}

/* ---- in the hands, which may be the application's own threads ---- */

static void batch_mark(struct omq_batch *batch)
{
    struct omq_client *client = batch->consumer->client;
    for (size_t i = 0; i < batch->n; i++)
        atomic_store_explicit(&batch->held[i]->begun_ns, HELD_WAITS, memory_order_relaxed);
    atomic_fetch_sub_explicit(&client->stats.waiting, batch->n, memory_order_relaxed);
}

/* Expands what is compressed. What cannot be expanded goes behind the others, and fails; in order
 * everything behind the first such message waits until that is out of the way. */
static void batch_expand(struct omq_batch *batch)
{
    size_t readable = 0, looked = 0;
    uint64_t now = clock_ns(batch->consumer->client->clock);
    for (size_t i = 0; i < batch->n; i++) {
        batch->held[i]->outcome = OUTCOME_LATER;
        batch->held[i]->rest_ns = 0;
    }
    for (; looked < batch->n; looked++) {
        struct held *held = batch->held[looked];
        held->outcome = OUTCOME_FAILED;
        if (held->until_ns && now >= held->until_ns)
            continue; /* it is somebody else's by now */
        if (held_expand(held)) {
            client_log(batch->consumer->client, OMQ_ERROR,
                       "the body of message %s of topic %s is damaged; it is not delivered",
                       held->delivery.id, held->delivery.queue.topic);
            held->damaged = true;
            if (batch->consumer->options.ordered)
                break;
            continue;
        }
        memmove(&batch->held[readable + 1], &batch->held[readable],
                (looked - readable) * sizeof batch->held[0]);
        batch->held[readable++] = held;
    }
    for (size_t i = 0; i < batch->n; i++)
        batch->messages[i] = &batch->held[i]->delivery;
    batch->readable = readable;
}

void batch_judge(struct omq_batch *batch, int result, size_t done)
{
    batch->result = result;
    batch->done = done;
    for (size_t i = 0; i < batch->readable; i++)
        batch->held[i]->outcome = result == OMQ_DONE || i < done ? OUTCOME_DONE : OUTCOME_FAILED;
}

/* Nobody but the one who has it knows it any more. */
static void batch_free(struct omq_batch *batch)
{
    free(batch->direct);
    exact_drop(batch->exact);
    for (size_t i = 0; i < batch->n; i++)
        held_free(batch->held[i]);
    free(batch);
}

struct omq_batch *batches_over(struct omq_batch *const *batches, size_t n)
{
    struct omq_batch *first = NULL, **end = &first;
    for (size_t i = 0; i < n; i++) {
        struct omq_batch *batch = batches[i];
        int taken = BATCH_TAKEN;
        batch->with = NULL;
        if (!atomic_compare_exchange_strong(&batch->state, &taken, BATCH_OVER)) {
            batch_free(batch);
            continue;
        }
        *end = batch;
        end = &batch->with;
    }
    return first;
}

void batch_ready(struct omq_batch *batch)
{
    batch_mark(batch);
    batch_expand(batch);
    atomic_store(&batch->state, BATCH_ASKING);
}

bool batch_take(struct omq_batch *batch)
{
    int asking = BATCH_ASKING;
    uint64_t now = clock_ns(batch->clock);
    for (size_t i = 0; i < batch->n; i++)
        atomic_store_explicit(&batch->held[i]->begun_ns, now, memory_order_relaxed);
    return atomic_compare_exchange_strong(&batch->state, &asking, BATCH_TAKEN);
}

void batch_work(struct omq_batch *batch)
{
    size_t done = 0;
    int result = OMQ_LATER;
    if (batch_take(batch) && batch->readable > 0)
        result = batch->handle(batch->user, batch->messages, batch->readable, &done);
    batch_judge(batch, result, done);
}

static void batch_run(struct task *task)
{
    struct omq_batch *batch = list_entry(task, struct omq_batch, task);
    if (batch->exact) {
        desk_run(batch);
        return;
    }
    batch_ready(batch);
    batch_work(batch);
    batches_send(batches_over(&batch, 1));
}

bool batch_of_desk(struct task *task, void *desk)
{
    const struct omq_batch *batch = list_entry(task, struct omq_batch, task);
    return task->run == batch_run && batch->exact && exact_desk(batch->exact) == desk;
}

/* ---- and back, on the loop ---- */

static void batch_gone(struct omq_batch *batch)
{
    list_remove(&batch->all);
    batch->lane->out--;
    batch->consumer->running--;
    exact_drop(batch->exact);
    free(batch->direct);
    free(batch);
}

/* ---- out of turn ---- */

static void direct_answer(const struct omq_batch *batch)
{
    struct omq_client *client = batch->consumer->client;
    uint64_t begun = atomic_load_explicit(&batch->held[0]->begun_ns, memory_order_relaxed);
    bool done = batch->held[0]->outcome == OUTCOME_DONE;
    struct buf body = buf_upto(1024);
    struct json_out w = {.buf = &body};
    json_open(&w);
    json_bool_member(&w, "autoCommit", true);
    json_text_member(&w, "consumeResult", done ? BYTES("CR_SUCCESS") : BYTES("CR_LATER"));
    json_bool_member(&w, "order", batch->consumer->options.ordered);
    json_int_member(&w, "spentTimeMills", (int64_t)((clock_ns(client->clock) - begun) / 1000000));
    json_close(&w);
    asked_answer_later(client, batch->direct, RES_SUCCESS, (struct bytes){0}, buf_bytes(&body));
    buf_clear(&body);
}

/* In a lane of its own that was dropped already, so that whatever comes of the message is
 * forgotten. */
enum err work_direct(struct omq_consumer *consumer, struct held *held, struct asked_later *asked)
{
    enum err err = lane_open(consumer, &held->delivery.queue, 0);
    struct lane *lane = err ? NULL : list_entry(consumer->lanes.head.prev, struct lane, link);
    struct omq_batch *batch = lane ? batch_make(lane, 1) : NULL;
    if (batch) {
        held->done = held->taken = true;
        batch->held[batch->n++] = held;
        batch->direct = asked;
        atomic_fetch_add_explicit(&consumer->client->stats.waiting, 1, memory_order_relaxed);
        batch_give(batch);
    }
    if (lane)
        lane_drop(lane);
    if (!batch) {
        held_free(held);
        free(asked);
        return ERR_NO_MEMORY;
    }
    return OK;
}

/* By offset: whoever took the queue has it, or had it for a moment; the next round of rebalancing
 * tells. If it is ours, it is taken again. */
static void lane_take_again(struct lane *lane)
{
    struct omq_consumer *consumer = lane->consumer;
    if (lane->state == LANE_DROPPED || !lane->started || lane->taking || consumer->closing)
        return;
    client_log(consumer->client, OMQ_WARN, "%s:%d of topic %s was taken by another member",
               lane->queue.broker, lane->queue.id, lane->queue.topic);
    lane_ask_again(lane);
    lane_rest(lane, TAKE_AGAIN_MS);
    rebalance(consumer);
}

/* What came of one batch. Its lane, which stays until it was looked at, is then due. */
static void batch_settle(struct omq_batch *batch, struct lane **due)
{
    struct lane *lane = batch->lane;
    bool failed = false;
    if (!lane->due) {
        lane->due = true;
        lane->out++;
        lane->next_due = *due;
        *due = lane;
    }
    consumer_trace(batch);
    if (batch->direct)
        direct_answer(batch);
    for (size_t i = 0; i < batch->n; i++)
        failed |= held_over(lane, batch->held[i]);
    lane->due_failed |= failed;
    lane->due_lost |= batch->lost;
    batch_gone(batch);
}

static void lane_settle(struct lane *lane)
{
    struct omq_consumer *consumer = lane->consumer;
    bool failed = lane->due_failed, lost = lane->due_lost;
    lane->due = lane->due_failed = lane->due_lost = false;
    lane->out--;
    lane->consumed_ms = clock_ms(consumer->client->clock);
    if (lost)
        lane_take_again(lane);
    if (lane->state != LANE_DROPPED && consumer->options.ordered && failed) {
        lane->suspended = true;
        lane_wake(lane, clock_ns(consumer->client->clock) +
                            (uint64_t)consumer->options.suspend_ms * 1000000);
    } else if (lane->state != LANE_DROPPED) {
        work_give(lane);
    }
    lane_emptier(lane);
    lane_idle(lane);
}

/* A batch, and those of the same consumer that came with it: each lane is looked at once. */
static void batch_back(struct post *post)
{
    struct omq_batch *batch = list_entry(post, struct omq_batch, post);
    struct omq_consumer *consumer = batch->consumer;
    struct lane *due = NULL;
    consumer->running++; /* ours, until we are done with it */
    while (batch) {
        struct omq_batch *next = batch->with;
        batch_settle(batch, &due);
        batch = next;
    }
    while (due) {
        struct lane *lane = due;
        due = lane->next_due;
        lane_settle(lane);
    }
    consumer->running--;
    consumer_calm(consumer);
}

/* ---- taking back what nobody has begun ---- */

static bool of_lane(struct task *task, void *lane)
{
    const struct omq_batch *batch = list_entry(task, struct omq_batch, task);
    if (task->run != batch_run)
        return false;
    return !lane || (batch->lane == lane && !batch->direct);
}

static void batch_unmake(struct omq_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct held *held = batch->held[i];
        held->taken = false;
        batch->lane->given = NULL;
        if (!held->done)
            continue;
        atomic_fetch_sub_explicit(&batch->consumer->client->stats.waiting, 1, memory_order_relaxed);
        held_free(held);
    }
    struct lane *lane = batch->lane;
    batch_gone(batch);
    lane_let_go(lane);
}

static void recall(struct omq_consumer *consumer, const struct lane *lane)
{
    struct list tasks, ready;
    list_init(&tasks);
    list_init(&ready);
    if (consumer->hands)
        hands_recall(consumer->hands, of_lane, (void *)lane, &tasks);
    room_enter(&consumer->room);
    list_each(k, &consumer->ready) {
        if (!of_lane(&list_entry(k, struct omq_batch, link)->task, (void *)lane))
            continue;
        list_remove(k);
        list_add_tail(&ready, k);
    }
    room_leave(&consumer->room);
    while (!list_empty(&tasks))
        batch_unmake(list_entry(list_pop(&tasks), struct omq_batch, task.link));
    while (!list_empty(&ready))
        batch_unmake(list_entry(list_pop(&ready), struct omq_batch, link));
}

void work_recall(struct omq_consumer *consumer, const struct lane *lane)
{
    loop_here(consumer->client->loop);
    if (consumer->options.acknowledge != OMQ_BEFORE)
        recall(consumer, lane);
}

static bool batch_leave(struct omq_batch *batch)
{
    int state = atomic_load(&batch->state);
    while (state != BATCH_OVER)
        if (atomic_compare_exchange_weak(&batch->state, &state, BATCH_LEFT))
            return true;
    return false;
}

/* What it works on is not done, and comes again: its lanes do not rise beyond it. */
bool work_abandon(struct omq_consumer *consumer)
{
    bool all = true;
    recall(consumer, NULL);
    list_each(k, &consumer->batches) {
        struct omq_batch *batch = list_entry(k, struct omq_batch, all);
        struct lane *lane = batch->lane;
        if (atomic_load(&batch->state) == BATCH_OUT) {
            all = false; /* whoever makes it ready needs the consumer */
            continue;
        }
        for (size_t i = 0; i < batch->n; i++) { /* before it may be freed */
            struct held *held = batch->held[i];
            if (held->done)
                continue;
            lane->floor = held->delivery.offset < lane->floor ? held->delivery.offset : lane->floor;
            held_forget(lane, held);
        }
        list_remove(&batch->all);
        if (!batch_leave(batch))
            continue; /* it is on its way back just now */
        lane->out--;
        consumer->running--;
        consumer->stuck += consumer->hands != NULL;
        lane_idle(lane);
    }
    return all;
}
