/* clean.c - retention: what is old goes, and a disk that is nearly full is noticed in time.
 *
 * Every ten seconds a *round* looks at the disk and, when it is the hour or space is short, deletes
 * log files from the front. A *sweep* then brings index and queues in line with the log's new
 * start: it raises each queue's minimum and removes the files in front of it, some queues at a
 * time.
 *
 * A file's age is that of its last record, by the store time that records carry. Apache goes by the
 * time the file was last modified, which is the same until somebody copies or restores a folder:
 * then everything would be kept for another three days. Store times only rise, so the first record
 * of the next file tells, and nothing has to be searched.
 *
 * Each step leaves a folder that opens. A log file goes only when the units of its records are on
 * disk, or a queue that is empty by then could give out offsets twice; the units go only when the
 * log file is gone for certain. Of a row only its first file is ever in doubt (fileset_shift).
 */
#include "store/store_int.h"

#include <time.h>

#define ROUND_MS       10000 /* Apache's cleanResourceInterval */
#define ROUND_FILES    10    /* of the log, in one round: Apache's deleteFileBatchMax */
#define MANUAL_ROUNDS  20    /* Apache's MAX_MANUAL_DELETE_FILE_TIMES */
#define SWEEP_QUEUES   1024  /* in one turn */
#define SWEEP_REMOVALS 32    /* in one turn: each waits for the disk */

static void round_run(struct store *store, struct store_cleaned *out);
static void sweep_start(struct store *store, struct store_cleaned *out);
static void sweep_run(struct store *store, struct store_cleaned *out);

static unsigned clamp(unsigned value, unsigned least, unsigned most)
{
    return value < least ? least : value > most ? most : value;
}

void retention_take(struct store *store, const struct store_retention *now)
{
    struct store_retention *r = &store->options.retention;
    r->reserved_ms = now->reserved_ms;
    r->delete_hours = now->delete_hours;
    r->disk_max_used = clamp(now->disk_max_used, 10, 95);
    r->disk_forced = clamp(now->disk_forced, 30, 85);
    r->disk_warning = clamp(now->disk_warning, 35, 90);
}

void clean_init(struct store *store)
{
    retention_take(store, &store->options.retention);
    store_clean_hold(store, INT64_MAX);
    store->cleaner.last_ns = clock_ns(store->options.clock);
    store->cleaner.minima = position_get(&store->positions.first); /* recovery found them */
}

void store_clean_turn(struct store *store, struct store_cleaned *out)
{
    struct cleaner *c = &store->cleaner;
    *out = (struct store_cleaned){.ahead = store->ahead};
    if (store->ahead)
        out->ahead_why = store->ahead_why;
    uint64_t now_ns = clock_ns(store->options.clock);
    if (!store_failed(store)) { /* else somebody has to look at it: everything stays as it is */
        if (ms_between(c->last_ns, now_ns) >= ROUND_MS) {
            c->last_ns = now_ns;
            round_run(store, out);
        }
        sweep_run(store, out);
    }
    out->refusing = atomic_load_explicit(&c->full, memory_order_relaxed) != 0;
    out->log_first = position_get(&store->positions.first);
}

void store_clean_hold(struct store *store, int64_t from_ms)
{
    atomic_store_explicit(&store->cleaner.hold_ms, from_ms, memory_order_relaxed);
}

uint64_t store_clean_reach(struct store *store)
{
    uint64_t size = store->log.file_size;
    uint64_t most = position_get(&store->positions.first) + ROUND_FILES * size;
    uint64_t last = position_get(&store->positions.flushed) / size * size; /* that file stays */
    return most < last ? most : last;
}

void store_clean_request(struct store *store)
{
    atomic_store_explicit(&store->cleaner.manual, MANUAL_ROUNDS, memory_order_relaxed);
}

/* The first trouble of a turn is the one to tell. */
static void note(struct store_cleaned *out, enum err err, const struct fault *why)
{
    if (out->err)
        return;
    out->err = err;
    out->why = *why;
}

/* ---- the disk ---- */

unsigned disk_percent(const struct vfs_space *space)
{
    if (space->total == 0 || space->free > space->total)
        return 0;
    uint64_t used = space->total - space->free, whole = used + space->available;
    while (whole > UINT64_MAX / 100) {
        used >>= 1;
        whole >>= 1;
    }
    return whole ? (unsigned)((used * 100 + whole - 1) / whole) : 0;
}

/* Blocks that are reserved for the log cost nothing more when messages come: they are as good as
 * free, and no message goes for their sake. */
static void space_give_back(struct store *store, struct vfs_space *space)
{
    uint64_t n = log_reserved(store);
    if (space->free > space->total || n > space->total - space->free)
        return;
    space->free += n;
    space->available += n;
}

/* Decides whether appends are taken. False: nothing is known. */
static bool disk_look(struct store *store, unsigned *used, struct store_cleaned *out)
{
    const struct store_retention *r = &store->options.retention;
    struct fault why = {0};
    struct vfs_space space;
    enum err err = store->vfs->calls->space(store->vfs, &space, &why);
    if (err)
        note(out, err, &why);
    else
        space_give_back(store, &space);
    *used = err ? 0 : disk_percent(&space);
    if (*used == 0)
        return false;
    if (*used > r->disk_warning)
        atomic_store_explicit(&store->cleaner.full, *used, memory_order_relaxed);
    else if (*used <= r->disk_forced)
        atomic_store_explicit(&store->cleaner.full, 0, memory_order_relaxed);
    out->used_percent = *used;
    return true;
}

enum err disk_state(struct store *store, struct fault *why)
{
    const struct store_retention *r = &store->options.retention;
    unsigned full = atomic_load_explicit(&store->cleaner.full, memory_order_relaxed);
    if (!full)
        return OK;
    return fault_set(why, ERR_DISK_FULL,
                     "%u %% of the disk are in use; above %u %% no messages are taken, until it is "
                     "%u %% or less",
                     full, r->disk_warning, r->disk_forced);
}

/* ---- a round: the log ---- */

static bool is_the_hour(const struct store *store)
{
    time_t now = (time_t)(clock_ms(store->options.clock) / 1000);
    struct tm local;
    return localtime_r(&now, &local) && store->options.retention.delete_hours >> local.tm_hour & 1;
}

static bool take_manual(struct cleaner *c)
{
    unsigned rounds = atomic_load_explicit(&c->manual, memory_order_relaxed);
    while (rounds > 0)
        if (atomic_compare_exchange_weak_explicit(&c->manual, &rounds, rounds - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

/* Nothing in front of `base`, where a file begins, is newer than this. A damaged record must not
 * stop retention for ever, so it is passed over. */
static int64_t time_of_next(struct store *store, uint64_t base)
{
    uint64_t end = store_confirmed(store);
    for (uint64_t at = base; at < end; at += store->log.file_size) {
        struct slice slice;
        if (store_read_at(store, (int64_t)at, &slice) != OK)
            continue;
        struct record r;
        enum err err = record_decode(slice.bytes, &r);
        counted_drop(slice.owner);
        invariant(err == OK); /* store_read_at has seen it */
        return r.store_ms;
    }
    room_enter(&store->tail.room);
    int64_t last_ms = store->tail.last_ms;
    room_leave(&store->tail.room);
    return last_ms;
}

/* What is not flushed or not dispatched has to stay; and with it the last file, since one that was
 * dispatched to its end has a record behind it. */
static bool first_may_go(struct store *store, bool at_once)
{
    const struct store_retention *r = &store->options.retention;
    uint64_t end = position_get(&store->positions.first) + store->log.file_size;
    if (end > position_get(&store->positions.flushed) ||
        end > position_get(&store->positions.dispatched))
        return false;
    if (!at_once) {
        int64_t next_ms = time_of_next(store, end);
        if (next_ms + r->reserved_ms >= clock_ms(store->options.clock) ||
            next_ms >= atomic_load_explicit(&store->cleaner.hold_ms, memory_order_relaxed))
            return false;
    }
    int64_t queues_ms;
    if (end > store->kept && queues_keep(store, 1, &queues_ms) != OK)
        return false;
    return end <= store->kept;
}

/* Apache deletes ten files once the disk is too full, needed or not. We look again after each. */
static void delete_log_files(struct store *store, unsigned used, struct store_cleaned *out)
{
    const struct store_retention *r = &store->options.retention;
    while (out->log_files < ROUND_FILES) {
        struct fault why = {0};
        bool at_once = used > r->disk_warning || used > r->disk_forced;
        if (!first_may_go(store, at_once))
            return;
        enum err err = fileset_shift(&store->cache, &store->log, &store->tail.room, &why);
        if (err) {
            note(out, err, &why);
            return;
        }
        position_raise(&store->positions.first,
                       position_get(&store->positions.first) + store->log.file_size);
        out->log_files++;
        if (at_once && !disk_look(store, &used, out))
            return;
    }
}

static void round_run(struct store *store, struct store_cleaned *out)
{
    struct cleaner *c = &store->cleaner;
    unsigned used;
    (void)disk_look(store, &used, out);
    out->looked = true;
    bool over = used > store->options.retention.disk_max_used;
    bool manual = take_manual(c); /* counts down whatever the hour is */
    if (over || manual || is_the_hour(store))
        delete_log_files(store, used, out);
    out->pressed = over && out->log_files == 0;

    if (!c->sweep && c->swept != position_get(&store->positions.first))
        sweep_start(store, out);
}

/* ---- a sweep: the queues ---- */

/* The minimum goes first, so that a reader is told where to go on before a file is missing. False:
 * so much was removed that the rest has to wait. */
static bool queue_clean(struct store *store, struct queue *queue, struct store_cleaned *out,
                        enum err *err, struct fault *why)
{
    *err = queue_raise_min(store, queue, why);
    while (!*err) {
        uint64_t first, end, size = queue->files.file_size;
        fileset_bounds(&store->cache, &queue->files, &first, &end);
        uint64_t min = (uint64_t)queue_min(store, queue) * UNIT_SIZE;
        if (end - first <= size || first + size > min)
            return true;
        if (out->queue_files == SWEEP_REMOVALS)
            return false;
        *err = fileset_shift(&store->cache, &queue->files, &store->derived.room, why);
        if (!*err)
            out->queue_files++;
    }
    return true;
}

/* The index follows at once: it has few files. */
static void sweep_start(struct store *store, struct store_cleaned *out)
{
    struct cleaner *c = &store->cleaner;
    struct fault why = {0};
    c->sweep_first = position_get(&store->positions.first);
    c->sweep = queue_newest(store); /* newer ones have nothing that is old */
    enum err err = keys_forget(store, c->sweep_first, &why);
    if (err)
        note(out, err, &why);
    c->sweep_failed = err != OK;
}

static void sweep_run(struct store *store, struct store_cleaned *out)
{
    struct cleaner *c = &store->cleaner;
    if (!c->sweep)
        return;
    for (unsigned n = 0; n < SWEEP_QUEUES && c->sweep; n++) {
        struct fault why = {0};
        enum err err;
        if (!queue_clean(store, c->sweep, out, &err, &why))
            return;
        if (err) { /* the next round starts another sweep */
            note(out, err, &why);
            c->sweep_failed = true;
        }
        c->sweep = c->sweep->older;
    }
    if (!c->sweep && !c->sweep_failed)
        c->swept = c->minima = c->sweep_first;
}

enum err clean_minima(struct store *store, struct fault *why)
{
    struct cleaner *c = &store->cleaner;
    if (c->minima == position_get(&store->positions.first))
        return OK;
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older) {
        enum err err = queue_raise_min(store, queue, why);
        if (err)
            return err;
    }
    return OK;
}
