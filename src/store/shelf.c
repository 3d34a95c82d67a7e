/* shelf.c - the newest units of a busy queue, in memory until there are many to write.
 *
 * A write of some units costs about as much as one of a page, and a turn of dispatch brings each
 * busy queue a few. So they are put on a *shelf* first, where readers find them, and go to the file
 * together: when the shelf is full, and once a second in any case (the keeper). A shelf is filled
 * once: when its units are in the file the queue lets go of it, and the next ones get a new one.
 * It is counted, so a reader may go on using it; a big one that nobody uses any more is kept for
 * the next queue, so that a busy broker allocates none.
 *
 * There may be tens of thousands of queues that get a message or two a second, and a few that get
 * most of them. So a shelf is as big as its queue needs: it begins with about what those before it
 * held when they went, SHELF_LEAST units at least, and is replaced by a bigger one when it is full,
 * up to SHELF_UNITS. All together have place for SHELF_ROOM units; queues that find none left write
 * as they go. So memory does not grow with the number of queues.
 *
 * What stands on a shelf is lost when the process ends, and what is in the file but not synced when
 * the power does: to recovery it is the same, since units are derived and the checkpoint only
 * speaks for what is on disk. A shelf that cannot be written (a full disk) stays where it is and is
 * readable; nothing fails but what needs it written.
 */
#include "store/store_int.h"

#include <stdlib.h>

/* Who writes all shelves lets dispatch go first: after so many of them, and when that has taken so
 * long, which is one new file or some. It steps aside for as long as it takes to wake a thread. */
#define VISIT_SHELVES 64
#define VISIT_NS      UINT64_C(200000)
#define STEP_ASIDE_NS UINT64_C(100000)

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
    invariant(offset - shelf->from < shelf->size);
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

/* A size that has place for so many units. */
static uint32_t size_for(const struct derived *derived, size_t units)
{
    size_t size = SHELF_LEAST;
    while (size < units && size < SHELF_SMALL)
        size *= 2;
    return (uint32_t)(size < units || size > derived->shelf_units ? derived->shelf_units : size);
}

/* In no list, and no queue's. NULL: no room or no memory is left; then it goes without. */
static struct shelf *shelf_make(struct derived *derived, struct queue *queue, uint32_t size)
{
    if (size > derived->shelf_room)
        return NULL;
    struct link *spare = size > SHELF_SMALL ? list_pop(&derived->spares) : NULL;
    derived->n_spares -= spare != NULL;
    struct shelf *shelf = spare ? list_entry(spare, struct shelf, link)
                                : malloc(sizeof *shelf + (size_t)size * UNIT_SIZE);
    if (!shelf)
        return NULL;
    counted_init(&shelf->owner, shelf_release);
    shelf->queue = queue;
    shelf->size = size;
    derived->shelf_room -= size;
    return shelf;
}

/* In no list, and no queue's any more. Readers find it no more, so whether one holds it can only
 * change from yes to no. */
static void shelf_let_go(struct derived *derived, struct shelf *shelf)
{
    derived->shelf_room += shelf->size;
    bool ours = atomic_load_explicit(&shelf->owner.holders, memory_order_acquire) == 1;
    if (!ours || shelf->size <= SHELF_SMALL || derived->n_spares == SPARES_MAX) {
        counted_drop(&shelf->owner);
        return;
    }
    list_add_tail(&derived->spares, &shelf->link);
    derived->n_spares++;
}

/* Place for at least `units`, and rather for as many as the one before it held. */
static struct shelf *shelf_new(struct store *store, struct queue *queue, size_t units)
{
    struct derived *derived = &store->derived;
    uint32_t least = size_for(derived, units), wish = size_for(derived, queue->shelved);
    struct shelf *shelf = wish > least ? shelf_make(derived, queue, wish) : NULL;
    if (!shelf)
        shelf = shelf_make(derived, queue, least);
    if (!shelf)
        return NULL;
    shelf->from = atomic_load_explicit(&queue->max, memory_order_relaxed);
    list_add_tail(&derived->shelves, &shelf->link);
    derived->n_shelves++;
    shelf_set(store, queue, shelf);
    return shelf;
}

/* A bigger one with the same units takes its place, also in the row of those that wait to be
 * written: or the keeper might go by. NULL: all is as it was. Readers may hold the old one, which
 * has all that was published while it was there. */
static struct shelf *shelf_grow(struct store *store, struct shelf *old, size_t used, size_t units)
{
    struct shelf *shelf =
        shelf_make(&store->derived, old->queue, size_for(&store->derived, used + units));
    if (!shelf)
        return NULL;
    shelf->from = old->from;
    memcpy(shelf->units, old->units, used * UNIT_SIZE);
    list_replace(&old->link, &shelf->link);
    shelf_set(store, shelf->queue, shelf);
    shelf_let_go(&store->derived, old);
    return shelf;
}

static void shelf_forget(struct store *store, struct shelf *shelf)
{
    struct derived *derived = &store->derived;
    shelf_set(store, shelf->queue, NULL);
    list_remove(&shelf->link);
    derived->n_shelves--;
    shelf_let_go(derived, shelf);
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
    if (!err) {
        uint32_t n = (uint32_t)(max - shelf->from); /* a busy one may just have begun */
        queue->shelved = n > queue->shelved / 2 ? n : queue->shelved / 2;
        shelf_forget(store, shelf);
    }
    return err;
}

enum err shelf_take(struct store *store, struct queue *queue, struct bytes units, bool *taken,
                    struct fault *why)
{
    room_held(&store->derived.room);
    struct shelf *shelf = shelf_get(queue);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    size_t used = shelf ? (size_t)(max - shelf->from) : 0, n = units.len / UNIT_SIZE;
    size_t most = store->derived.shelf_units;
    if (shelf && used + n > shelf->size)
        shelf = used + n <= most ? shelf_grow(store, shelf, used, n) : NULL;
    if (!shelf && used > 0) {
        enum err err = shelf_file(store, queue, why);
        if (err)
            return err;
        used = 0;
    }
    if (!shelf && n <= most)
        shelf = shelf_new(store, queue, n);
    *taken = shelf != NULL;
    if (shelf)
        memcpy(shelf->units + used * UNIT_SIZE, units.at, units.len);
    return OK;
}

/* Room: derived. It is left meanwhile. Merely leaving it would not do: we were back before the one
 * who waits is awake, and it would wait for all of them. */
static void step_aside(struct derived *derived)
{
    if (atomic_load_explicit(&derived->callers, memory_order_relaxed) > 0)
        room_wait_ns(&derived->room, STEP_ASIDE_NS);
}

/* The oldest stand first, so those that are there now are through after as many as there are. */
enum err shelves_file(struct store *store, struct fault *why)
{
    struct derived *derived = &store->derived;
    enum err err = OK;
    room_enter(&derived->room);
    uint64_t since = clock_ns(store->options.clock);
    size_t visited = 0;
    for (size_t left = derived->n_shelves; left > 0 && !err; left--) {
        struct link *oldest = list_first(&derived->shelves);
        if (!oldest)
            break;
        err = shelf_file(store, list_entry(oldest, struct shelf, link)->queue, why);
        if (++visited < VISIT_SHELVES && clock_ns(store->options.clock) - since < VISIT_NS)
            continue;
        step_aside(derived);
        since = clock_ns(store->options.clock);
        visited = 0;
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
