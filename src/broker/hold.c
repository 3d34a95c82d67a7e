/* hold.c - readers that wait for a message to arrive.
 *
 * A hold stands in two lists: that of its queue (of a pop, that of its crowd: pophold.c), and that
 * of the slot of time its deadline falls into. Whoever takes it out of the second has the right to
 * wake it; that happens under the key, so a hold is woken once. Until it is woken it then stands in
 * a list of the waker's own, by `by_queue`.
 *
 * Nothing is missed between a reader's look at the queue and its hold: the dispatcher first
 * publishes the queue's end and then enters the room; broker_hold looks at the end inside the room.
 * Whichever comes second sees the other.
 */
#include "broker/pop_int.h"

#include <stdlib.h>

#define CATCH_UP_STEPS 1000 /* of somebody else's, at most */

static enum err hold_add(struct broker *b, struct hold *hold);
static void arrivals_meet(struct broker *b, const struct arrival *news, size_t n,
                          struct list *woken);

enum err broker_hold(struct broker *b, struct hold *hold, uint64_t wait_ms)
{
    if (!b->set.long_polling)
        wait_ms = b->set.short_polling_ms;
    if (wait_ms > HOLD_MAX_MS)
        wait_ms = HOLD_MAX_MS;
    hold->by_queue = hold->by_time = (struct link){0};
    hold->deadline_ns = clock_ns(b->clock) + wait_ms * 1000000;

    room_enter(&b->room);
    enum err err = hold_add(b, hold);
    room_leave(&b->room);
    return err;
}

enum err broker_hold_time(struct broker *b, struct hold *hold, uint64_t wait_ms)
{
    hold->by_queue = hold->by_time = (struct link){0};
    hold->deadline_ns = clock_ns(b->clock) + wait_ms * 1000000;
    room_enter(&b->room);
    enum err err = b->n_holds < b->set.max_holds ? OK : ERR_BUSY;
    if (!err)
        hold_time(b, hold);
    room_leave(&b->room);
    return err;
}

enum err broker_hold_again(struct broker *b, struct hold *hold)
{
    if (clock_ns(b->clock) >= hold->deadline_ns)
        return ERR_TIMEOUT;
    hold->by_queue = hold->by_time = (struct link){0};
    room_enter(&b->room);
    enum err err = hold_add(b, hold);
    room_leave(&b->room);
    return err;
}

bool broker_unhold(struct broker *b, struct hold *hold)
{
    room_enter(&b->room);
    bool waits = link_in_list(&hold->by_time);
    if (waits) {
        hold_untime(b, hold);
        list_remove(&hold->by_queue);
    }
    room_leave(&b->room);
    return waits;
}

void broker_dispatch_turn(struct broker *b)
{
    struct arrival news[ARRIVALS_MAX];
    size_t n;
    while ((n = store_dispatch_turn(b->store, news)) > 0) {
        struct list woken;
        list_init(&woken);
        room_enter(&b->room);
        numbers_arrived(b, news, n);
        if (b->n_holds > 0)
            arrivals_meet(b, news, n, &woken);
        room_leave(&b->room);
        holds_wake(&woken);
        timers_arrived(b, news, n);
    }
}

void broker_catch_up(struct broker *b)
{
    uint64_t upto = store_confirmed(b->store);
    for (int i = 0; i < CATCH_UP_STEPS && !store_dispatch_reached(b->store, upto); i++) {
        if (i > 0 && store_dispatch_stuck(b->store))
            return; /* each turn reads all that waits once more; the answer is what there is */
        broker_dispatch_turn(b);
    }
}

void broker_hold_turn(struct broker *b)
{
    struct list woken;
    list_init(&woken);
    uint64_t now_ns = clock_ns(b->clock);
    uint64_t now_tick = now_ns / HOLD_SLOT_NS;

    room_enter(&b->room);
    uint64_t tick = b->hold_tick; /* once more: something in it may have been due later */
    if (now_tick - tick >= HOLD_SLOTS)
        tick = now_tick - (HOLD_SLOTS - 1);
    for (; tick <= now_tick; tick++) {
        list_each(k, &b->hold_slots[tick % HOLD_SLOTS]) {
            struct hold *hold = list_entry(k, struct hold, by_time);
            if (hold->deadline_ns > now_ns)
                continue; /* in a later round */
            hold_untime(b, hold);
            list_remove(&hold->by_queue);
            list_add_tail(&woken, &hold->by_queue);
        }
    }
    b->hold_tick = now_tick;
    numbers_turn(b);
    room_leave(&b->room);
    holds_wake(&woken);
}

/* ---- inside ---- */

/* Room: core. */
static struct waiting *waiting_need(struct broker *b, struct queue *queue)
{
    room_held(&b->room);
    struct waiting *waiting = map_get(&b->waiting, pointer_key(&queue));
    if (waiting)
        return waiting;
    waiting = calloc(1, sizeof *waiting);
    if (!waiting)
        return NULL;
    waiting->queue = queue;
    list_init(&waiting->holds);
    if (map_put(&b->waiting, pointer_key(&waiting->queue), waiting)) {
        free(waiting);
        return NULL;
    }
    return waiting;
}

/* Room: core. */
static enum err hold_add(struct broker *b, struct hold *hold)
{
    room_held(&b->room);
    if (queue_max(hold->queue) > hold->offset)
        return ERR_STALE;
    if (b->n_holds >= b->set.max_holds)
        return ERR_BUSY;
    struct waiting *waiting = waiting_need(b, hold->queue);
    if (!waiting)
        return ERR_NO_MEMORY;
    list_add_tail(&waiting->holds, &hold->by_queue);
    hold_time(b, hold);
    return OK;
}

/* Room: core. */
void hold_time(struct broker *b, struct hold *hold)
{
    room_held(&b->room);
    list_add_tail(&b->hold_slots[hold->deadline_ns / HOLD_SLOT_NS % HOLD_SLOTS], &hold->by_time);
    b->n_holds++;
}

/* Room: core. Out of time: from here on the caller alone may wake it. */
void hold_untime(struct broker *b, struct hold *hold)
{
    room_held(&b->room);
    invariant(b->n_holds > 0);
    list_remove(&hold->by_time);
    b->n_holds--;
    if (hold->crowd) {
        hold->crowd->n--;
        b->pop->n_holds--;
    }
}

/* Of several new messages only the last one's tag is known, and of none the properties: then the
 * reader has to look itself. */
static bool arrival_concerns(const struct arrival *news, const struct hold *hold)
{
    if (hold->offset >= news->max)
        return false;
    return news->count != 1 || filter_wants(hold->filter, news->tags_code);
}

/* Room: core. Bounded by ARRIVALS_MAX and maxHolds. */
static void arrivals_meet(struct broker *b, const struct arrival *news, size_t n,
                          struct list *woken)
{
    room_held(&b->room);
    for (size_t i = 0; i < n; i++) {
        if (b->pop->n_holds > 0)
            pop_arrived(b, &news[i], woken);
        struct waiting *waiting = map_get(&b->waiting, pointer_key(&news[i].queue));
        if (!waiting)
            continue;
        list_each(k, &waiting->holds) {
            struct hold *hold = list_entry(k, struct hold, by_queue);
            if (!arrival_concerns(&news[i], hold))
                continue;
            hold_untime(b, hold);
            list_remove(&hold->by_queue);
            list_add_tail(woken, &hold->by_queue);
        }
    }
}

/* Room: core. */
void holds_take(struct broker *b, struct queue *queue, struct list *woken)
{
    room_held(&b->room);
    struct waiting *waiting = map_get(&b->waiting, pointer_key(&queue));
    if (!waiting)
        return;
    list_each(k, &waiting->holds)
        hold_untime(b, list_entry(k, struct hold, by_queue));
    list_append_all(woken, &waiting->holds);
}

/* No key held. A hold may be gone as soon as it was woken. */
void holds_wake(struct list *woken)
{
    for (struct link *k; (k = list_pop(woken));) {
        struct hold *hold = list_entry(k, struct hold, by_queue);
        hold->wake(hold);
    }
}
