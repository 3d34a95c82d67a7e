/* desk.c - exactly once, many batches at a time.
 *
 *     row of the hands ── asked for ──► admitted ── handler ──► ended ── told ──► loop
 *                        many at a time           one by one         many at a time
 *
 * libonce asks its store over a network, or waits for a disk: that takes as long for one batch as
 * for ten. So a hand that begins a batch takes along those that wait behind it, unless other hands
 * have nothing to do, asks for all of them, and lays them on the desk. From there they are taken
 * one by one by whoever comes: a handler that does not come back holds up nothing but its own
 * batch. What handlers are done with is laid beside it and told together: when there is nothing
 * left to run, or the first of it has waited for LINGER_NS.
 *
 * A hand leaves the desk when nothing lies there any more. One that goes into a handler while
 * something does calls for another, if one is idle.
 */
#include "client/consumer_int.h"

#define TOGETHER  256 /* messages; as many as libonce hands to a store at a time */
#define LINGER_NS 500000

static void help_run(struct task *task);

void desk_init(struct desk *desk, struct exact *exact)
{
    room_init(&desk->room, "desk", ROOM_LEAF);
    list_init(&desk->admitted);
    list_init(&desk->ended);
    desk->help.run = help_run;
    desk->exact = exact;
}

void desk_clear(struct desk *desk)
{
    room_clear(&desk->room);
}

static struct omq_batch *batch_at(struct link *k)
{
    return list_entry(k, struct omq_batch, link);
}

/* ---- what lies there ---- */

/* What to do next, for who comes with a batch that has run (or NULL): run `*batch`, or tell of
 * `ended`. False: nothing lies there. `*help`: there is more than that to do. */
static bool desk_next(struct desk *desk, struct omq_batch **batch, struct list *ended, bool *help)
{
    uint64_t now_ns = *batch ? clock_ns((*batch)->clock) : 0;
    room_enter(&desk->room);
    if (*batch && list_empty(&desk->ended))
        desk->since_ns = now_ns;
    if (*batch)
        list_add_tail(&desk->ended, &(*batch)->link);
    *batch = NULL;
    if (list_empty(&desk->admitted) || now_ns > desk->since_ns + LINGER_NS)
        list_append_all(ended, &desk->ended);
    if (list_empty(ended) && !list_empty(&desk->admitted))
        *batch = batch_at(list_pop(&desk->admitted));
    *help = *batch && !desk->helping && hands_idle() &&
            !(list_empty(&desk->admitted) && list_empty(&desk->ended));
    desk->helping |= *help;
    room_leave(&desk->room);
    return *batch || !list_empty(ended);
}

static void desk_tell(struct list *ended)
{
    struct omq_batch *some[TOGETHER];
    while (!list_empty(ended)) {
        size_t n = 0;
        while (n < TOGETHER && !list_empty(ended))
            some[n++] = batch_at(list_pop(ended));
        exact_end(some, n);
        struct omq_batch *back = batches_over(some, n);
        if (back)
            loop_post(back->consumer->client->loop, &back->post);
    }
}

/* Until nothing lies there. */
static void desk_serve(struct desk *desk)
{
    struct omq_batch *batch = NULL;
    struct list ended;
    bool help;
    list_init(&ended);
    while (desk_next(desk, &batch, &ended, &help)) {
        if (help) {
            (void)exact_hold(desk->exact);
            hands_help(&desk->help);
        }
        if (batch)
            batch_work(batch);
        else
            desk_tell(&ended);
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

/* ---- the way there ---- */

/* It, and what may go along with it. */
static size_t batches_begin(struct omq_batch *first, struct desk *desk, struct omq_batch **out)
{
    size_t most = exact_together(desk->exact) ? TOGETHER / (size_t)first->size : 1;
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
