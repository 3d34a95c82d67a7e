/* shelf.c - the newest units of a busy queue, in memory until there are many to write.
 *
 * A write of some units costs about as much as one of a page, and a turn of dispatch brings each
 * busy queue a few. So they are put on a *shelf* first, where readers find them, and go to the file
 * together: when the shelf is full, and once a second in any case (the keeper). A shelf is filled
 * once: when its units are in the file the queue lets go of it, and the next ones get a new one.
 * It is counted, so a reader may go on using it; one that nobody uses any more is kept for the next
 * queue, so that a busy broker allocates none.
 *
 * There are at most SHELVES_MAX, for whichever queues come first in that second; the others write
 * as they go. So memory does not grow with the number of queues.
 *
 * What stands on a shelf is lost when the process ends, and what is in the file but not synced when
 * the power does: to recovery it is the same, since units are derived and the checkpoint only
 * speaks for what is on disk. A shelf that cannot be written (a full disk) stays where it is and is
 * readable; nothing fails but what needs it written.
 */
#include "store/store_int.h"

#include <stdlib.h>

#define SLICE 64 /* written in one visit to the room, so that dispatch does not wait for all */

static void shelf_release(struct counted *owner)
{
    free(list_entry(owner, struct shelf, owner));
}

static struct shelf *shelf_get(const struct queue *queue)
{
    return atomic_load_explicit(&queue->shelf, memory_order_relaxed);
}

/* ---- readers ---- */

struct shelf *shelf_hold(struct store *store, struct queue *queue)
{
    /* None: then what was on it is in the file, and we see that, too. */
    if (!atomic_load_explicit(&queue->shelf, memory_order_acquire))
        return NULL;
    room_enter(&store->cache.room);
    struct shelf *shelf = shelf_get(queue);
    if (shelf)
        counted_hold(&shelf->owner);
    room_leave(&store->cache.room);
    return shelf;
}

void shelf_drop_at(struct shelf **shelf)
{
    if (*shelf)
        counted_drop(&(*shelf)->owner);
}

struct unit shelf_unit(const struct shelf *shelf, int64_t offset)
{
    invariant(offset >= shelf->from);
    invariant(offset - shelf->from < SHELF_UNITS);
    return unit_load(shelf->units + (size_t)(offset - shelf->from) * UNIT_SIZE);
}

/* ---- the writing side ---- */

int64_t queue_filed(const struct queue *queue)
{
    const struct shelf *shelf = shelf_get(queue);
    return shelf ? shelf->from : atomic_load_explicit(&queue->max, memory_order_relaxed);
}

/* A reader that finds the shelf holds it before we are in `files`, or does not find it. */
static void shelf_set(struct store *store, struct queue *queue, struct shelf *shelf)
{
    room_enter(&store->cache.room);
    atomic_store_explicit(&queue->shelf, shelf, memory_order_release);
    room_leave(&store->cache.room);
}

static struct shelf *shelf_make(struct derived *derived)
{
    struct link *spare = list_pop(&derived->spares);
    if (!spare)
        return malloc(sizeof(struct shelf));
    derived->n_spares--;
    return list_entry(spare, struct shelf, link);
}

/* NULL: there are enough, or there is no memory; then it goes without. */
static struct shelf *shelf_new(struct store *store, struct queue *queue)
{
    struct derived *derived = &store->derived;
    if (derived->n_shelves >= derived->shelves_max)
        return NULL;
    struct shelf *shelf = shelf_make(derived);
    if (!shelf)
        return NULL;
    counted_init(&shelf->owner, shelf_release);
    shelf->queue = queue;
    shelf->from = atomic_load_explicit(&queue->max, memory_order_relaxed);
    list_add_tail(&derived->shelves, &shelf->link);
    derived->n_shelves++;
    shelf_set(store, queue, shelf);
    return shelf;
}

/* Readers find it no more, so whether one holds it can only change from yes to no. */
static void shelf_forget(struct store *store, struct shelf *shelf)
{
    struct derived *derived = &store->derived;
    shelf_set(store, shelf->queue, NULL);
    list_remove(&shelf->link);
    derived->n_shelves--;
    bool ours = atomic_load_explicit(&shelf->owner.holders, memory_order_acquire) == 1;
    if (!ours || derived->n_spares == SPARES_MAX) {
        counted_drop(&shelf->owner);
        return;
    }
    list_add_tail(&derived->spares, &shelf->link);
    derived->n_spares++;
}

enum err shelf_file(struct store *store, struct queue *queue, struct fault *why)
{
    room_held(&store->derived.room);
    struct shelf *shelf = shelf_get(queue);
    if (!shelf)
        return OK;
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    struct bytes units = bytes_of(shelf->units, (size_t)(max - shelf->from) * UNIT_SIZE);
    enum err err = units_write(store, queue, shelf->from, units, why);
    if (!err)
        shelf_forget(store, shelf);
    return err;
}

enum err shelf_take(struct store *store, struct queue *queue, struct bytes units, bool *taken,
                    struct fault *why)
{
    room_held(&store->derived.room);
    struct shelf *shelf = shelf_get(queue);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    size_t used = shelf ? (size_t)(max - shelf->from) * UNIT_SIZE : 0;
    size_t size = store->derived.shelf_units * UNIT_SIZE;
    if (used + units.len > size) {
        enum err err = shelf_file(store, queue, why);
        if (err)
            return err;
        shelf = NULL;
        used = 0;
    }
    if (!shelf && units.len <= size)
        shelf = shelf_new(store, queue);
    *taken = shelf != NULL;
    if (shelf)
        memcpy(shelf->units + used, units.at, units.len);
    return OK;
}

/* The oldest stand first, so those that are there now are through after as many as there are. */
enum err shelves_file(struct store *store, struct fault *why)
{
    struct derived *derived = &store->derived;
    enum err err = OK;
    room_enter(&derived->room);
    for (size_t left = derived->n_shelves; left > 0 && !err; left--) {
        struct link *oldest = list_first(&derived->shelves);
        if (!oldest)
            break;
        err = shelf_file(store, list_entry(oldest, struct shelf, link)->queue, why);
        if (left % SLICE == 0) {
            room_leave(&derived->room);
            room_enter(&derived->room);
        }
    }
    room_leave(&derived->room);
    return err;
}

void shelves_forget(struct store *store)
{
    for (struct link *k; (k = list_first(&store->derived.shelves)) != NULL;)
        shelf_forget(store, list_entry(k, struct shelf, link));
    for (struct link *k; (k = list_pop(&store->derived.spares)) != NULL;)
        free(list_entry(k, struct shelf, link));
}
