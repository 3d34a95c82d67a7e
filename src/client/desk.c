/* desk.c - exactly once, many batches at a time.
 *
 *     row of the hands ── asked for ──► admitted ── handler ──► ended ── told ──► loop
 *                        many at a time    │      one by one         many at a time
 *                                          └─► given up: halted, or the claim was lost
 *
 * libonce asks its store over a network, or waits for a disk: that takes as long for one batch as
 * for ten. So a hand that begins a batch takes along those that wait behind it, unless other hands
 * have nothing to do, asks for all of them, and lays them on the desk. From there they are taken
 * one by one by whoever comes: a handler that does not come back holds up nothing but its own
 * batch. What waits there has a claim, so that is done only where claims are renewed; and whether
 * it still has it is looked at once more before its handler begins.
 *
 * What handlers are done with is laid beside it and told together: when there is nothing left to
 * run, or LINGER_NS after the first of those handlers has begun. So what took longer than that is
 * told before the next handler begins. Where that one takes long and no hand comes by, the clerk, a
 * thread that runs no handlers, tells it CLERK_NS after. What the store has no answer for stays
 * here as unsure; the clerk tells it again a while later, and it keeps nobody waiting but itself.
 *
 * A hand leaves the desk when nothing lies there any more. One that goes into a handler while
 * something does calls for another. A consumer that is paused or closed halts its desk: nothing
 * begins any more, and what was admitted goes back to the loop as if nobody had asked for it.
 */
#include "client/consumer_int.h"

#define TOGETHER  256 /* messages; as many as libonce hands to a store at a time */
#define LINGER_NS 500000
#define CLERK_NS  10000000

static void help_run(struct task *task);
static void clerk_run(struct task *task);

enum err desk_init(struct desk *desk, struct exact *exact, struct omq_client *client)
{
    room_init(&desk->room, "desk", ROOM_LEAF);
    list_init(&desk->admitted);
    list_init(&desk->ended);
    list_init(&desk->unsure);
    desk->help.run = help_run;
    desk->clerk.run = clerk_run;
    desk->exact = exact;
    desk->clock = client ? client->clock : NULL;
    return client ? hands_open(client, 1, false, &desk->clerks) : OK;
}

void desk_close(struct desk *desk)
{
    if (desk)
        hands_close(take(&desk->clerks));
}

void desk_clear(struct desk *desk)
{
    hands_leave(desk->clerks, 1); /* which may be this thread */
    room_clear(&desk->room);
}

static struct omq_batch *batch_at(struct link *k)
{
    return list_entry(k, struct omq_batch, link);
}

/* ---- what lies there ---- */

/* For who comes by: a batch to run; or what is to be given up and told. */
struct next {
    struct omq_batch *batch;
    struct list back, ended;
    bool help;  /* another hand shall come for what is left */
    bool clerk; /* and the clerk for what has ended, if none does */
};

/* Room: the desk. It has run. */
static void desk_lay(struct desk *desk, struct omq_batch *batch)
{
    uint64_t begun_ns = atomic_load_explicit(&batch->held[0]->begun_ns, memory_order_relaxed);
    if (list_empty(&desk->ended) || begun_ns < desk->since_ns)
        desk->since_ns = begun_ns;
    list_add_tail(&desk->ended, &batch->link);
}

/* `next->batch` has run, or is NULL. False: nothing is to be done, or not yet. */
static bool desk_next(struct desk *desk, struct next *next)
{
    uint64_t now_ns = clock_ns(desk->clock);
    room_enter(&desk->room);
    if (next->batch)
        desk_lay(desk, next->batch);
    next->batch = NULL;
    if (desk->halted)
        list_append_all(&next->back, &desk->admitted);
    if (list_empty(&desk->admitted) || now_ns > desk->since_ns + LINGER_NS)
        list_append_all(&next->ended, &desk->ended);
    bool tell = !list_empty(&next->ended) || !list_empty(&next->back);
    if (!tell && !list_empty(&desk->admitted))
        next->batch = batch_at(list_pop(&desk->admitted));
    bool left = !list_empty(&desk->ended), more = left || !list_empty(&desk->admitted);
    /* Also if no hand is idle just now: one may be about to be, and nobody would wake it later. */
    next->help = more && !tell && !desk->helping;
    next->clerk = left && !desk->clerking;
    desk->helping |= next->help;
    desk->clerking |= next->clerk;
    room_leave(&desk->room);
    return tell || next->batch;
}

/* So that a hand which has other batches to run does that first. */
static void desk_call(struct desk *desk)
{
    (void)exact_hold(desk->exact);
    hands_help(&desk->help);
}

static void clerk_call(struct desk *desk)
{
    (void)exact_hold(desk->exact);
    hands_give(desk->clerks, &desk->clerk);
}

static size_t some_of(struct list *list, struct omq_batch **some)
{
    size_t n = 0;
    while (n < TOGETHER && !list_empty(list))
        some[n++] = batch_at(list_pop(list));
    return n;
}

static void desk_give_up(struct list *back)
{
    struct omq_batch *some[TOGETHER];
    size_t n;
    while ((n = some_of(back, some)) > 0) {
        exact_give_up(some, n);
        for (size_t i = 0; i < n; i++)
            batch_work(some[i]); /* nothing of it is left to run */
        batches_send(batches_over(some, n));
    }
}

static void desk_tell(struct desk *desk, struct list *ended)
{
    struct omq_batch *some[TOGETHER];
    size_t n;
    while ((n = some_of(ended, some)) > 0) {
        int64_t wait_ms = 0;
        size_t left = batches_tell(some, n, &wait_ms);
        if (left == 0)
            continue;
        room_enter(&desk->room);
        desk->again_ns = clock_ns(desk->clock) + (uint64_t)wait_ms * 1000000;
        for (size_t i = 0; i < left; i++)
            list_add_tail(&desk->unsure, &some[i]->link);
        bool call = !desk->clerking;
        desk->clerking = true;
        room_tell(&desk->room); /* it may have meant to sleep longer */
        room_leave(&desk->room);
        if (call)
            clerk_call(desk);
    }
}

/* False: its claim was lost while it waited; it is to be asked for again. */
static bool desk_work(struct omq_batch *batch)
{
    struct list back;
    if (!exact_lost(batch)) {
        batch_work(batch);
        return true;
    }
    list_init(&back);
    list_add_tail(&back, &batch->link);
    desk_give_up(&back);
    return false;
}

/* Until there is nothing to do. */
static void desk_serve(struct desk *desk)
{
    struct next next = {0};
    list_init(&next.back);
    list_init(&next.ended);
    for (;;) {
        bool some = desk_next(desk, &next);
        if (next.help)
            desk_call(desk);
        if (next.clerk)
            clerk_call(desk);
        if (!some)
            return;
        desk_tell(desk, &next.ended);
        desk_give_up(&next.back);
        if (next.batch && !desk_work(next.batch))
            next.batch = NULL;
    }
}

static void help_run(struct task *task)
{
    struct desk *desk = list_entry(task, struct desk, help);
    room_enter(&desk->room);
    desk->helping = false;
    room_leave(&desk->room);
    desk_serve(desk);
    exact_drop(desk->exact);
}

/* ---- the clerk ---- */

/* Room: the desk. Takes what is due into `ended`. How long nothing is; 0: there is nothing. */
static uint64_t clerk_next(struct desk *desk, struct list *ended)
{
    uint64_t now_ns = clock_ns(desk->clock), due_ns = desk->since_ns + CLERK_NS;
    uint64_t next_ns = UINT64_MAX;
    if (!list_empty(&desk->ended) && now_ns >= due_ns)
        list_append_all(ended, &desk->ended);
    if (!list_empty(&desk->unsure) && now_ns >= desk->again_ns)
        list_append_all(ended, &desk->unsure);
    if (!list_empty(&desk->ended))
        next_ns = due_ns;
    if (!list_empty(&desk->unsure) && desk->again_ns < next_ns)
        next_ns = desk->again_ns;
    return next_ns == UINT64_MAX ? 0 : next_ns - now_ns;
}

/* Until nothing waits for its time. */
static void clerk_run(struct task *task)
{
    struct desk *desk = list_entry(task, struct desk, clerk);
    struct list ended;
    list_init(&ended);
    room_enter(&desk->room);
    for (;;) {
        uint64_t pause_ns = clerk_next(desk, &ended);
        if (!list_empty(&ended)) {
            room_leave(&desk->room);
            desk_tell(desk, &ended);
            room_enter(&desk->room);
        } else if (pause_ns > 0) {
            room_wait_ns(&desk->room, pause_ns);
        } else {
            break;
        }
    }
    desk->clerking = false;
    room_leave(&desk->room);
    exact_drop(desk->exact);
}

/* ---- pausing and closing ---- */

void desk_halt(struct desk *desk, bool halted)
{
    if (!desk)
        return;
    room_enter(&desk->room);
    desk->halted = halted;
    room_leave(&desk->room);
}

/* What the store has no answer for is left to the clerk: a close waits for a store no longer than
 * for a handler. */
void desk_empty(struct desk *desk)
{
    struct list back, ended;
    if (!desk)
        return;
    list_init(&back);
    list_init(&ended);
    room_enter(&desk->room);
    list_append_all(&back, &desk->admitted);
    list_append_all(&ended, &desk->ended);
    list_append_all(&ended, &desk->unsure);
    room_tell(&desk->room);
    room_leave(&desk->room);
    desk_tell(desk, &ended);
    desk_give_up(&back);
}

/* ---- the way there ---- */

/* It, and what may go along with it. */
static size_t batches_begin(struct omq_batch *first, struct desk *desk, struct omq_batch **out)
{
    size_t most = exact_ahead(desk->exact) ? TOGETHER / (size_t)first->size : 1;
    size_t n = 0;
    struct list tasks;
    list_init(&tasks);
    out[n++] = first;
    if (most > 1)
        hands_more(batch_of_desk, desk, most - 1, &tasks);
    while (!list_empty(&tasks))
        out[n++] = list_entry(list_pop(&tasks), struct omq_batch, task.link);
    for (size_t i = 0; i < n; i++)
        batch_ready(out[i]);
    return n;
}

void desk_run(struct omq_batch *batch)
{
    struct exact *exact = exact_hold(batch->exact);
    struct desk *desk = exact_desk(exact);
    struct omq_batch *some[TOGETHER];
    size_t n = batches_begin(batch, desk, some);
    exact_begin(some, n);
    room_enter(&desk->room);
    for (size_t i = 0; i < n; i++)
        list_add_tail(&desk->admitted, &some[i]->link);
    room_leave(&desk->room);
    desk_serve(desk);
    exact_drop(exact);
}
