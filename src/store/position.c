/* position.c - the named positions of the log, and who waits for `confirmed` to pass one.
 *
 * A position is written by one and read by many: published with release, read with acquire, and it
 * only rises. Waits are kept in order, so completing looks at those that are passed and one more.
 */
#include "store/store_int.h"

uint64_t position_get(const _Atomic uint64_t *position)
{
    return atomic_load_explicit(position, memory_order_acquire);
}

void position_raise(_Atomic uint64_t *position, uint64_t to)
{
    invariant(to >= atomic_load_explicit(position, memory_order_relaxed)); /* positions only rise */
    atomic_store_explicit(position, to, memory_order_release);
}

uint64_t store_confirmed(struct store *store)
{
    return position_get(&store->positions.confirmed);
}

uint64_t store_first(struct store *store)
{
    return position_get(&store->positions.first);
}

uint64_t store_flushed(struct store *store)
{
    return position_get(&store->positions.flushed);
}

bool positions_written(struct store *store, uint64_t end, size_t records)
{
    struct tail *tail = &store->tail;
    room_held(&tail->room);
    position_raise(&store->positions.written, end);
    if (!store->options.sync_flush) {
        position_raise(&store->positions.confirmed, end);
        return false;
    }
    tail->records += records;
    return flush_ask(tail);
}

bool store_await(struct store *store, struct store_wait *wait)
{
    struct tail *tail = &store->tail;
    room_enter(&tail->room);
    bool passed = store_confirmed(store) >= wait->position, ring = false;
    if (!passed) {
        struct link *after = tail->waits.head.prev; /* nearly always the last one */
        while (after != &tail->waits.head &&
               list_entry(after, struct store_wait, link)->position > wait->position)
            after = after->prev;
        wait->link = (struct link){after, after->next};
        after->next->prev = &wait->link;
        after->next = &wait->link;
        ring = flush_ask(tail);
    }
    room_leave(&tail->room);
    if (ring)
        flush_ring(store);
    return passed;
}

static void tell_all(struct list *waits, enum err err)
{
    for (struct link *k; (k = list_pop(waits)) != NULL;) {
        struct store_wait *wait = list_entry(k, struct store_wait, link);
        wait->done(wait, err); /* may free it */
    }
}

void waits_complete(struct store *store)
{
    struct tail *tail = &store->tail;
    struct list passed, lost;
    list_init(&passed);
    list_init(&lost);

    room_enter(&tail->room);
    uint64_t confirmed = store_confirmed(store);
    list_each(k, &tail->waits) {
        if (list_entry(k, struct store_wait, link)->position > confirmed)
            break;
        list_remove(k);
        list_add_tail(&passed, k);
    }
    if (store_failed(store))
        list_append_all(&lost, &tail->waits);
    room_leave(&tail->room);

    tell_all(&passed, OK);
    tell_all(&lost, (enum err)atomic_load_explicit(&store->failed, memory_order_acquire));
}

bool store_failed(struct store *store)
{
    return atomic_load_explicit(&store->failed, memory_order_acquire) != OK;
}

void store_fail(struct store *store, enum err err, const struct fault *why)
{
    room_enter(&store->cache.room);
    if (!store_failed(store)) {
        store->reason = *why;
        atomic_store_explicit(&store->failed, (int)err, memory_order_release);
    }
    room_leave(&store->cache.room);
}

enum err store_trouble(struct store *store, struct fault *why)
{
    room_enter(&store->cache.room);
    enum err err = (enum err)atomic_load_explicit(&store->failed, memory_order_acquire);
    if (!err)
        err = (enum err)atomic_load_explicit(&store->derived.trouble, memory_order_acquire);
    if (err && why)
        *why = store->reason;
    room_leave(&store->cache.room);
    return err;
}

enum err store_state(struct store *store, struct fault *why)
{
    enum err err = store_trouble(store, why);
    return err ? err : disk_state(store, why);
}

void put_off_set(struct store *store, enum put_off_of of, enum err err, const struct fault *why)
{
    struct put_off *p = &store->put_off[of];
    if (!err && !p->err)
        return; /* nearly always */
    room_enter(&store->cache.room);
    *p = (struct put_off){err, *why};
    room_leave(&store->cache.room);
}

enum err store_put_off(struct store *store, struct fault *why)
{
    enum err err = OK;
    room_enter(&store->cache.room);
    for (size_t i = 0; i < PUT_OFFS && !err; i++) {
        err = store->put_off[i].err;
        if (err)
            *why = store->put_off[i].why;
    }
    room_leave(&store->cache.room);
    return err;
}
