/* store.c - opening and closing. */
#include "store/store_int.h"

#include "base/dice.h"

#include <inttypes.h>
#include <stdlib.h>

#define LOG_FILE_LEAST 4096

static enum err options_check(const struct store_options *o, struct fault *why)
{
    if (o->log_file_size < LOG_FILE_LEAST || o->log_file_size > INT32_MAX)
        return fault_set(why, ERR_INVALID, "a log file has between %d and %d bytes, not %" PRIu64,
                         LOG_FILE_LEAST, INT32_MAX, o->log_file_size);
    if (o->queue_file_size < UNIT_SIZE || o->queue_file_size % UNIT_SIZE != 0)
        return fault_set(why, ERR_INVALID,
                         "the size of a queue file is a multiple of %d, not %" PRIu64, UNIT_SIZE,
                         o->queue_file_size);
    return OK;
}

void store_tune(struct store *store, const struct store_options *now)
{
    struct store_options *o = &store->options;
    o->flush_interval_ms = now->flush_interval_ms;
    o->flush_least_pages = now->flush_least_pages;
    o->flush_thorough_interval_ms = now->flush_thorough_interval_ms;
    o->queue_flush_interval_ms = now->queue_flush_interval_ms;
    retention_take(store, &now->retention);
    /* What is in the log already can always be stored once more: by a delay level, or a retry. */
    room_enter(&store->tail.room);
    if (now->max_record_size > atomic_load_explicit(&store->record_max, memory_order_relaxed))
        atomic_store_explicit(&store->record_max, now->max_record_size, memory_order_relaxed);
    room_leave(&store->tail.room);
    store_flush_wake(store); /* it may be asleep for longer than it should be now */
}

static struct store *store_new(const struct store_options *options)
{
    cleanup(free_at) struct store *store = calloc(1, sizeof *store);
    cleanup(free_at) struct turn *turn = calloc(1, sizeof *turn);
    if (!store || !turn)
        return NULL;
    store->options = *options;
    store->vfs = options->vfs;
    atomic_store(&store->record_max, options->max_record_size);
    cache_init(&store->cache, store->vfs, options->open_files);
    store->log = (struct fileset){.folder = LOG_FOLDER, .file_size = options->log_file_size};
    list_init(&store->log.open);
    room_init(&store->tail.room, "tail", ROOM_TAIL);
    list_init(&store->tail.waits);
    store->tail.gathering.most_ns = GATHER_MOST_NS;
    room_init(&store->flusher.bell.room, "bell", ROOM_LEAF);
    room_init(&store->filler.room, "filler", ROOM_LEAF);
    room_init(&store->derived.room, "derived", ROOM_DERIVED);
    list_init(&store->derived.dirty);
    list_init(&store->derived.shelves);
    list_init(&store->derived.spares);
    store->derived.shelf_units = SHELF_UNITS;
    map_init(&store->queues, dice_seed_from_os());
    turn->number = 1;
    store->derived.turn = take(&turn);
    atomic_flag_clear(&store->flusher.busy);
    uint64_t now_ns = clock_ns(options->clock);
    store->flusher.last_ns = store->flusher.thorough_ns = now_ns;
    store->kept_ns = store->kept_thorough_ns = now_ns;
    return take(&store);
}

enum err store_open(const struct store_options *options, struct store **out,
                    struct store_report *report, struct fault *why)
{
    enum err err = options_check(options, why);
    if (err)
        return err;
    struct store *store = store_new(options);
    if (!store)
        return ERR_NO_MEMORY;

    struct store_report found = {0};
    bool aborted;
    err = lock_take(store->vfs, &store->lock, why);
    if (!err)
        err = checkpoint_read(store->vfs, &store->checkpoint, why);
    if (!err)
        err = abort_exists(store->vfs, &aborted, why);
    if (!err) {
        found.clean = !aborted;
        err = store_recover(store, &found, why);
    }
    if (err) {
        store_abandon(store);
        return err;
    }
    store->checkpoint.sealed = false;
    clean_init(store);
    log_blocks_init(store);
    store->derived.shelf_room = SHELF_ROOM;
    if (report)
        *report = found;
    *out = store;
    return OK;
}

void store_abandon(struct store *store)
{
    keys_abandon(store);
    shelves_forget(store);
    segment_drop(store->tail.seg);
    cache_clear(&store->cache);
    for (struct queue *queue = atomic_load(&store->queues_all), *older; queue; queue = older) {
        older = queue->older;
        free(queue);
    }
    map_clear(&store->queues);
    room_clear(&store->tail.room);
    room_clear(&store->derived.room);
    room_clear(&store->flusher.bell.room);
    room_clear(&store->filler.room);
    if (store->lock)
        store->vfs->calls->close(store->lock);
    free(store->tail.window.at);
    free(store->derived.window.at);
    sheets_clear(store->sheets);
    free(store->derived.turn);
    free(store);
}

/* Brings the rest into the queues; whoever waited for it is gone by now. */
static enum err dispatch_rest(struct store *store, struct fault *why)
{
    cleanup(free_at) struct arrival *nobody = calloc(ARRIVALS_MAX, sizeof *nobody);
    if (!nobody)
        return ERR_NO_MEMORY;
    while (store_dispatch_turn(store, nobody) > 0)
        ;
    return store_trouble(store, why); /* that the disk is nearly full is none */
}

static enum err checkpoint_seal(struct store *store, struct fault *why)
{
    struct checkpoint *c = &store->checkpoint;
    c->log_ms = atomic_load(&store->flusher.flushed_ms);
    c->queues_ms = store->derived.dispatched_ms;
    c->sealed = true;
    c->sealed_first = position_get(&store->positions.first);
    c->sealed_end = position_get(&store->positions.dispatched);
    c->sealed_units = queues_units(store);
    return checkpoint_write(store->vfs, c, why);
}

/* Of what a refused append left, if the disk would not have it wiped at once. A store that has
 * failed needs it as well: it is opened again. */
static enum err last_wipe(struct store *store, struct fault *why)
{
    enum err err = store->tail.soiled ? tail_wipe(store, why) : OK;
    return err ? fault_add(why, err, "wiping what a refused append left behind the log") : OK;
}

enum err store_close(struct store *store, struct fault *why)
{
    enum err err = last_wipe(store, why);
    if (store_failed(store))
        err = store_trouble(store, why);
    if (!err)
        err = log_flush(store, position_get(&store->positions.written), store->tail.last_ms, why);
    if (err)
        store_fail(store, err, why ? why : &(struct fault){0});
    waits_complete(store);
    if (!err)
        err = dispatch_rest(store, why);
    if (!err)
        err = shelves_file(store, why);
    if (!err)
        err = queues_sync(store, 0, why);
    if (!err)
        err = clean_minima(store, why);
    if (!err)
        err = keys_close(store, why);
    if (!err)
        err = log_trim(store, why);
    if (!err)
        err = checkpoint_seal(store, why);
    if (!err)
        err = abort_remove(store->vfs, why);
    store_abandon(store);
    return err;
}
