/* recover.c - finding out at the start where the log ends, and bringing the queues in line.
 *
 * There is one way, with different places to start from: cut all queues at a position, then read
 * the log from there on, verify each record and put it into its queue, until something is not a
 * record. There the log ends; what stands behind is cut off.
 *
 *     stopped cleanly   start where the queues end, so nearly nothing is left to read
 *     crashed           start at the newest file that began before the checkpoint
 *     queues not whole  start at the first file. Noticed by a file that is missing or short, by a
 *                       record whose offset is not its queue's next, or by the seal of a clean stop
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One recovery on its way. */
struct recovery {
    struct store *store;
    struct store_report *report;
    bool trusted;        /* a clean stop: the queues are taken as they are */
    bool incomplete;     /* queue files were missing: everything is built again */
    uint64_t start, end; /* where reading started, and where the last record ended */
    uint64_t misplaced;  /* records that are not at their own offset of the queue */
    uint64_t nameless;   /* records whose topic cannot be a folder, and so have no queue */
};

static enum err log_load(struct store *store, struct store_report *report, struct fault *why);
static enum err choose_start(struct recovery *rec, struct fault *why);
static enum err build(struct recovery *rec, struct fault *why);
static enum err settle(struct recovery *rec, struct fault *why);

enum err store_recover(struct store *store, struct store_report *report, struct fault *why)
{
    struct recovery rec = {.store = store, .report = report, .trusted = report->clean};
    enum err err = log_load(store, report, why); /* changes nothing after a clean stop */
    if (!err)
        err = abort_write(store->vfs, why);
    if (!err)
        err = queues_load(store, &rec.incomplete, why);
    if (err)
        return err;

    room_enter(&store->derived.room);
    if (store->log.first == store->log.end)
        err = queues_remove(store, why);
    else
        err = choose_start(&rec, why);
    if (!err)
        err = build(&rec, why);
    if (!err)
        err = settle(&rec, why);
    if (!err)
        err = keys_open(store, report, why);
    room_leave(&store->derived.room);
    return err;
}

/* ---- the log's files ---- */

static enum err log_file_check(struct store *store, uint64_t base, bool last, bool clean,
                               struct fault *why)
{
    uint64_t wanted = store->log.file_size, size;
    char path[PATH_SIZE];
    fileset_path(path, LOG_FOLDER, base);
    struct vfs_file *file;
    enum err err = store->vfs->calls->open(store->vfs, path, VFS_WRITE, &file, why);
    if (err)
        return err;
    err = store->vfs->calls->size(file, &size, why);
    if (!err && size != wanted) {
        if (last && size < wanted && !clean) /* the crash came while it was made, or cut */
            err = store->vfs->calls->resize(file, wanted, why);
        else
            err = fault_set(why, ERR_MISMATCH,
                            "%s has %" PRIu64 " bytes, but log files are set to have %" PRIu64,
                            path, size, wanted);
    }
    store->vfs->calls->close(file);
    return err;
}

/* A last file of no bytes was just being made. Apache removes it, too. */
static enum err drop_empty_last(struct store *store, const uint64_t *bases, size_t *n,
                                struct fault *why)
{
    char path[PATH_SIZE];
    uint64_t size;
    if (*n == 0)
        return OK;
    fileset_path(path, LOG_FOLDER, bases[*n - 1]);
    enum err err = vfs_file_size(store->vfs, path, &size, why);
    if (err || size > 0)
        return err;
    --*n;
    return store->vfs->calls->remove(store->vfs, path, why);
}

/* The place in the list of the file that was written last. A file that was made ahead has nothing
 * in it yet; the one before it may be short all the same. */
static enum err written_last(struct store *store, const uint64_t *bases, size_t n, size_t *out,
                             struct fault *why)
{
    uint8_t start[RECORD_BLANK_SIZE] = {0};
    char path[PATH_SIZE];
    uint64_t size;
    struct vfs_file *file;
    *out = n - 1;
    if (n == 1)
        return OK;
    fileset_path(path, LOG_FOLDER, bases[n - 1]);
    enum err err = store->vfs->calls->open(store->vfs, path, VFS_READ, &file, why);
    if (err)
        return err;
    err = store->vfs->calls->size(file, &size, why);
    if (!err && size >= sizeof start)
        err = store->vfs->calls->read(file, 0, start, sizeof start, why);
    store->vfs->calls->close(file);
    *out -= load_u64(start) == 0;
    return err;
}

/* What stands at a position; a record only if all of it is there. Its slices are not to be used. */
static enum err sight_at(struct store *store, uint64_t position, enum log_sight *sight,
                         struct record *out, struct fault *why)
{
    const uint8_t *map;
    cleanup(segment_drop_at) struct segment *seg = NULL;
    enum err err = segment_get(&store->cache, &store->log, position, &seg, why);
    if (!err)
        err = segment_map(seg, &map, why);
    if (err)
        return err;
    *sight = log_look(map, seg->base, seg->size, position, out);
    if (*sight == SIGHT_RECORD && !log_record_whole(map, out))
        *sight = SIGHT_BAD;
    return OK;
}

/* A power loss may take away a file that was new, and leave the one after it. What stands behind
 * such a hole was never flushed; if the checkpoint says it was, the file was lost in another way,
 * and that is not ours to repair. */
static enum err log_hole(struct store *store, uint64_t missing, const uint64_t *bases, size_t n,
                         struct store_report *report, struct fault *why)
{
    struct fileset *log = &store->log;
    log->first = bases[0]; /* just long enough to look into it */
    log->end = bases[0] + log->file_size;
    struct record r;
    enum log_sight sight;
    enum err err = sight_at(store, bases[0], &sight, &r, why);
    log->first = log->end = 0;
    if (err)
        return err;
    if (report->clean || (sight == SIGHT_RECORD && checkpoint_has(&store->checkpoint, r.store_ms)))
        return fault_set(why, ERR_DAMAGED, LOG_FOLDER "/%020" PRIu64 " is missing", missing);
    return damage_hole(store, missing, bases, n, report, why);
}

/* No file at all: a new folder, or one whose log stands on a disk that is not mounted. The last
 * file is never cleaned away, so a checkpoint that knows of records tells them apart. */
static enum err log_missing(const struct store *store, struct fault *why)
{
    if (store->checkpoint.log_ms <= 0)
        return OK;
    return fault_set(why, ERR_DAMAGED,
                     LOG_FOLDER
                     " has no files, but the checkpoint knows of messages up to %" PRId64
                     " ms since 1970. Is its disk mounted? Bring the files back; to begin "
                     "anew without these messages, remove the checkpoint",
                     store->checkpoint.log_ms);
}

/* After a clean stop the checkpoint knows where the log ended. Files that its end stood in do not
 * go away by themselves. */
static enum err log_end_check(const struct store *store, bool clean, struct fault *why)
{
    const struct checkpoint *c = &store->checkpoint;
    if (!clean || !c->sealed || store->log.end >= c->sealed_end)
        return OK;
    return fault_set(why, ERR_DAMAGED,
                     LOG_FOLDER " has files up to position %" PRIu64
                                ", but the last stop left it at %" PRIu64
                                ": its end is missing. Bring the files back; to go on without what "
                                "was in them, remove the checkpoint",
                     store->log.end, c->sealed_end);
}

static enum err log_load(struct store *store, struct store_report *report, struct fault *why)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n, last;
    struct fileset *log = &store->log;
    enum err err = fileset_list(store->vfs, LOG_FOLDER, &bases, &n, why);
    if (!err)
        err = drop_empty_last(store, bases, &n, why);
    if (err)
        return err;
    if (n == 0)
        return log_missing(store, why);
    err = written_last(store, bases, n, &last, why);
    if (err)
        return err;
    for (size_t i = 0; i < n; i++) {
        uint64_t wanted = bases[0] + i * log->file_size;
        if (bases[i] % log->file_size != 0)
            return fault_set(why, ERR_MISMATCH,
                             LOG_FOLDER "/%020" PRIu64 " does not fit a log file size of %" PRIu64,
                             bases[i], log->file_size);
        if (bases[i] != wanted) {
            err = log_hole(store, wanted, bases + i, n - i, report, why);
            n = i;
        } else {
            err = log_file_check(store, bases[i], i >= last, report->clean, why);
        }
        if (err)
            return err;
    }
    log->first = bases[0];
    log->end = bases[0] + n * log->file_size;
    atomic_store(&store->positions.first, log->first);
    return log_end_check(store, report->clean, why);
}

/* ---- where to start ---- */

/* The newest file that began before the checkpoint: everything in front of it is on disk, in the
 * queues as well. */
static enum err start_after_crash(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    int64_t safe_ms = checkpoint_start_ms(&store->checkpoint);
    rec->start = store->log.end;
    while (rec->start > store->log.first) {
        rec->start -= store->log.file_size;
        struct record r;
        enum log_sight sight;
        enum err err = sight_at(store, rec->start, &sight, &r, why);
        if (err)
            return err;
        if (sight == SIGHT_RECORD && r.store_ms > 0 && r.store_ms <= safe_ms)
            return OK;
    }
    return OK;
}

/* The end of the queues is the end of a record, if everything is as it should be. */
static enum err start_after_clean_stop(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    uint64_t queues_end = 0, last = 0;
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older) {
        enum err err = queue_measure(store, queue, why);
        if (err)
            return err;
        if (queue->log_end > queues_end) {
            struct unit unit;
            err = queue_unit_at(store, queue, queue_max(queue) - 1, &unit, why);
            if (err)
                return err;
            queues_end = queue->log_end;
            last = unit.position;
        }
    }
    rec->start = store->log.first;
    rec->trusted = false;
    if (queues_end == 0 || last < store->log.first || last >= store->log.end)
        return OK;

    struct record r;
    enum log_sight sight;
    enum err err = sight_at(store, last, &sight, &r, why);
    if (err || sight != SIGHT_RECORD || last + r.size != queues_end)
        return err;
    rec->start = queues_end;
    rec->trusted = true;
    store->tail.last_ms = store->derived.dispatched_ms = r.store_ms;
    return OK;
}

static enum err choose_start(struct recovery *rec, struct fault *why)
{
    rec->start = rec->store->log.first;
    if (rec->incomplete) {
        rec->trusted = false;
        return OK;
    }
    return rec->trusted ? start_after_clean_stop(rec, why) : start_after_crash(rec, why);
}

/* ---- reading ---- */

/* Puts a record into its queue. ERR_STALE: the queue does not go on here, so its files lack
 * something. */
static enum err record_restore(struct recovery *rec, const struct record *r, struct fault *why)
{
    struct store *store = rec->store;
    struct turn *turn = store->derived.turn;
    store->derived.dispatched_ms = r->store_ms;
    if (r->store_ms > store->tail.last_ms)
        store->tail.last_ms = r->store_ms;
    if (!record_has_unit(r))
        return OK;

    struct queue *queue;
    enum err err = queue_get(store, r->topic, r->queue_id, &queue);
    if (err == ERR_INVALID) {
        rec->nameless++;
        return OK;
    }
    if (!err && turn_full(turn))
        err = turn_write(store, NULL, NULL, why);
    if (err)
        return err;

    if (r->queue_offset != turn_next(turn, queue)) {
        if (rec->start > store->log.first)
            return ERR_STALE;
        bool fresh = queue->turn != turn->number && queue->log_end <= store->log.first;
        if (fresh && r->queue_offset >= 0 && r->queue_offset < INT64_MAX / UNIT_SIZE / 2)
            err = queue_restart(store, queue, r->queue_offset,
                                why); /* what came before is not in the log */
        else
            rec->misplaced++; /* as Apache does: it takes the next place, whatever it says itself */
    }
    struct marks marks = props_marks(r->props);
    struct unit unit = unit_for(&store->options, r, &marks);
    if (!err)
        turn_add(store, queue, &unit);
    return err;
}

static enum err scan_file(struct recovery *rec, uint64_t *at, bool *ended, struct fault *why)
{
    struct store *store = rec->store;
    cleanup(segment_drop_at) struct segment *seg = NULL;
    const uint8_t *map;
    enum err err = segment_get(&store->cache, &store->log, *at, &seg, why);
    if (!err)
        err = segment_map(seg, &map, why);
    while (!err && !*ended && *at < seg->base + seg->size) {
        struct record r;
        enum log_sight sight = log_look(map, seg->base, seg->size, *at, &r);
        if (sight == SIGHT_RECORD && log_record_whole(map, &r)) {
            err = record_restore(rec, &r, why);
            *at += r.size;
            rec->end = *at;
        } else if (sight == SIGHT_BLANK) {
            *at = seg->base + seg->size;
        } else {
            *ended = true;
        }
    }
    return err;
}

static enum err scan(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    uint64_t at = rec->end = rec->start;
    rec->misplaced = rec->nameless = 0;
    bool ended = false;
    enum err err = OK;
    while (!err && !ended && at < store->log.end)
        err = scan_file(rec, &at, &ended, why);
    if (err)
        turn_forget(store->derived.turn);
    else
        err = turn_write(store, NULL, NULL, why);
    for (struct queue *q = queue_newest(store); !err && q; q = q->older)
        err = queue_find_min(store, q, why);
    return err;
}

/* True when a clean stop left the same log, but other queues. */
static bool seal_broken(const struct recovery *rec)
{
    const struct checkpoint *c = &rec->store->checkpoint;
    if (!rec->trusted || !c->sealed)
        return false;
    if (c->sealed_first != rec->store->log.first || c->sealed_end != rec->end)
        return false; /* Apache had it in between */
    return queues_units(rec->store) != c->sealed_units;
}

/* The checkpoint says that units of old records are on disk, and the next crash would believe it.
 * So it has to be taken back before they are cut to be built again. */
static enum err checkpoint_take_back(struct store *store, struct fault *why)
{
    if (store->checkpoint.queues_ms == 0)
        return OK;
    store->checkpoint.queues_ms = 0;
    return checkpoint_write(store->vfs, &store->checkpoint, why);
}

static enum err cut_queues(struct recovery *rec, struct fault *why)
{
    if (rec->trusted)
        return OK;
    if (rec->start == rec->store->log.first) {
        enum err err = checkpoint_take_back(rec->store, why);
        if (err)
            return err;
    }
    for (struct queue *queue = queue_newest(rec->store); queue; queue = queue->older) {
        bool incomplete = false;
        enum err err = queue_cut(rec->store, queue, rec->start, &incomplete, why);
        if (err)
            return err;
        if (incomplete && rec->start > rec->store->log.first)
            return ERR_STALE;
    }
    return OK;
}

/* Reads the log from the start that was chosen; if that was too late, from its first file. */
static enum err build(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    if (store->log.first == store->log.end)
        return OK;
    enum err err = cut_queues(rec, why);
    if (!err)
        err = scan(rec, why);
    if (err != ERR_STALE && (err || !seal_broken(rec)))
        return err;

    rec->start = store->log.first;
    rec->trusted = false;
    rec->incomplete = true;
    err = cut_queues(rec, why);
    return err ? err : scan(rec, why);
}

/* ---- the end ---- */

static void write_note(const struct recovery *rec)
{
    struct store_report *report = rec->report;
    size_t size = sizeof report->note;
    if (report->note[0])
        return; /* damage is worse */
    if (rec->misplaced)
        (void)snprintf(report->note, size,
                       "%" PRIu64 " records are not at the queue offset they carry",
                       rec->misplaced);
    else if (rec->nameless)
        (void)snprintf(report->note, size,
                       "%" PRIu64 " records have a topic that cannot be a queue", rec->nameless);
    else if (rec->incomplete)
        (void)snprintf(report->note, size,
                       "queue files were missing or damaged, all were built again from the log");
}

/* Everything that was read counts as flushed from now on, so it has to be on the disk. */
static enum err log_settle(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    enum err err = damage_look(store, rec->end, rec->report, why);
    if (!err)
        err = fileset_cut(&store->cache, &store->log, rec->end, why);
    if (!err)
        err = fileset_sync(&store->cache, &store->log, rec->start, rec->end + 1, why);
    if (!err)
        err = store->vfs->calls->sync_dir(store->vfs, LOG_FOLDER, why);
    if (!err)
        store->flusher.folder_synced = store->log.end;
    return err;
}

static enum err settle(struct recovery *rec, struct fault *why)
{
    struct store *store = rec->store;
    struct positions *p = &store->positions;
    if (store->log.first != store->log.end) {
        enum err err = log_settle(rec, why);
        if (err)
            return err;
    }
    atomic_store(&p->written, rec->end);
    atomic_store(&p->flushed, rec->end);
    atomic_store(&p->confirmed, rec->end);
    atomic_store(&p->dispatched, rec->end);
    atomic_store(&store->flusher.flushed_ms, store->tail.last_ms);

    struct store_report *report = rec->report;
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older) {
        queue->next = queue_max(queue);
        report->queues++;
    }
    report->log_first = store->log.first;
    report->log_end = rec->end;
    report->examined_bytes = rec->end - rec->start;
    write_note(rec);
    return OK;
}
