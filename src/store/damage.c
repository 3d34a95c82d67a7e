/* damage.c - is what stands behind the end of the log a torn write, or more?
 *
 * A crash tears the last write: behind the end stand some bytes that are no record. When a whole
 * record stands there, something in front of it was damaged, and cutting takes away more than was
 * torn. It is always said; and if the checkpoint tells that the lost part was on disk once, it is
 * not destroyed but moved to commitlog-cut-POSITION/, for somebody to look at.
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define COPY_SIZE (1u << 20)

/* What was found behind the end. */
struct behind {
    uint64_t bytes_end; /* where the bytes that are not zero end */
    uint64_t record;    /* a whole record; 0: none */
    int64_t store_ms;   /* its time */
};

static bool whole_record(const uint8_t *map, const struct segment *seg, uint64_t at,
                         int64_t *store_ms)
{
    struct record r;
    if (log_look(map, seg->base, seg->size, at, &r) != SIGHT_RECORD || !log_record_whole(map, &r))
        return false;
    *store_ms = r.store_ms;
    return true;
}

/* Looks as far as one record can reach: behind a single damaged one the next begins by then. */
static void look_in_file(const struct segment *seg, const uint8_t *map, uint64_t end,
                         uint64_t reach, struct behind *b)
{
    uint64_t file_end = seg->base + seg->size;
    uint64_t stop = file_end - end > reach ? end + reach : file_end;
    const uint8_t magic = RECORD_MAGIC >> 24;
    for (uint64_t at = stop; at > end; at--) {
        if (map[at - 1 - seg->base]) {
            b->bytes_end = at;
            break;
        }
    }
    for (uint64_t at = end + 5;
         at < b->bytes_end;) { /* the first byte of the magic stands 4 behind the start */
        const uint8_t *hit = memchr(map + (at - seg->base), magic, b->bytes_end - at);
        if (!hit)
            return;
        at = seg->base + (uint64_t)(hit - map);
        if (whole_record(map, seg, at - 4, &b->store_ms)) {
            b->record = at - 4;
            return;
        }
        at++;
    }
}

static enum err look(struct store *store, uint64_t end, struct behind *b, struct fault *why)
{
    cleanup(segment_drop_at) struct segment *seg = NULL;
    const uint8_t *map;
    enum err err = segment_get(&store->cache, &store->log, end, &seg, why);
    if (!err)
        err = segment_map(seg, &map, why);
    if (err)
        return err;
    uint64_t most = atomic_load_explicit(&store->record_max, memory_order_relaxed);
    look_in_file(seg, map, end, most + RECORD_BLANK_SIZE, b);

    uint64_t next = seg->base + seg->size;
    if (b->record || next >= store->log.end)
        return OK;
    cleanup(segment_drop_at) struct segment *later = NULL;
    err = segment_get(&store->cache, &store->log, next, &later, why);
    if (!err)
        err = segment_map(later, &map, why);
    if (!err && whole_record(map, later, next, &b->store_ms)) {
        b->record = next;
        b->bytes_end = store->log.end;
    }
    return err;
}

/* ---- keeping what is cut ---- */

static enum err copy_rest(struct store *store, uint64_t from, uint64_t to, const char *path,
                          struct fault *why)
{
    cleanup(segment_drop_at) struct segment *seg = NULL;
    const uint8_t *map;
    enum err err = segment_get(&store->cache, &store->log, from, &seg, why);
    if (!err)
        err = segment_map(seg, &map, why);
    struct vfs_file *file;
    if (!err)
        err = store->vfs->calls->open(store->vfs, path, VFS_FRESH, &file, why);
    if (err)
        return err;
    for (uint64_t at = from; !err && at < to;) {
        size_t n = to - at < COPY_SIZE ? (size_t)(to - at) : COPY_SIZE;
        const uint8_t *start = map + (at - seg->base);
        struct iovec part = {NULL, n};
        memcpy(&part.iov_base, &start, sizeof start); /* an iovec has no const */
        err = store->vfs->calls->write(file, at - from, &part, 1, why);
        at += n;
    }
    if (!err)
        err = store->vfs->calls->sync(file, why);
    store->vfs->calls->close(file);
    return err;
}

static enum err sync_folders(struct store *store, const char *aside, struct fault *why)
{
    const char *const folders[] = {aside, LOG_FOLDER, "."};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        enum err err = store->vfs->calls->sync_dir(store->vfs, folders[i], why);
        if (err)
            return err;
    }
    return OK;
}

static enum err aside_make(struct store *store, uint64_t end, char folder[PATH_SIZE],
                           struct fault *why)
{
    (void)snprintf(folder, PATH_SIZE, LOG_FOLDER "-cut-%020" PRIu64, end);
    return store->vfs->calls->mkdir(store->vfs, folder, why);
}

static enum err aside_move(struct store *store, const char *folder, uint64_t base,
                           struct fault *why)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    fileset_path(from, LOG_FOLDER, base);
    fileset_path(to, folder, base);
    cache_forget(&store->cache, &store->log, base);
    return store->vfs->calls->rename(store->vfs, from, to, why);
}

/* The rest of the damaged file is copied, later files are moved as they are. */
static enum err keep(struct store *store, uint64_t end, struct fault *why)
{
    char folder[PATH_SIZE], to[PATH_SIZE];
    enum err err = aside_make(store, end, folder, why);
    if (err)
        return err;
    uint64_t size = store->log.file_size, file_end = end - end % size + size;
    fileset_path(to, folder, end);
    err = copy_rest(store, end, file_end, to, why);
    while (!err &&
           store->log.end > file_end) { /* the newest first, so that the row never has a hole */
        uint64_t base = store->log.end - size;
        err = aside_move(store, folder, base, why);
        if (err)
            break;
        room_enter(&store->cache.room);
        store->log.end = base;
        room_leave(&store->cache.room);
    }
    return err ? err : sync_folders(store, folder, why);
}

enum err damage_hole(struct store *store, uint64_t missing, const uint64_t *bases, size_t n,
                     struct store_report *report, struct fault *why)
{
    char folder[PATH_SIZE];
    enum err err = aside_make(store, missing, folder, why);
    for (size_t i = n; !err && i-- > 0;)
        err = aside_move(store, folder, bases[i], why);
    if (!err)
        err = sync_folders(store, folder, why);
    if (!err)
        (void)snprintf(report->note, sizeof report->note,
                       LOG_FOLDER
                       "/%020" PRIu64
                       " is missing; it and what follows was not flushed yet, %zu files were "
                       "moved aside",
                       missing, n);
    return err;
}

enum err damage_look(struct store *store, uint64_t end, struct store_report *report,
                     struct fault *why)
{
    struct behind b = {.bytes_end = end};
    if (end >= store->log.end)
        return OK;
    enum err err = look(store, end, &b, why);
    if (err)
        return err;
    report->cut_bytes = b.bytes_end - end;
    if (b.record == 0)
        return OK;

    bool was_on_disk = checkpoint_has(&store->checkpoint, b.store_ms);
    (void)snprintf(report->note, sizeof report->note,
                   "log damaged at position %" PRIu64 " (file %020" PRIu64
                   "), readable again at %" PRIu64 "; cut there%s",
                   end, end - end % store->log.file_size, b.record,
                   was_on_disk ? ", the rest was moved aside" : "");
    return was_on_disk ? keep(store, end, why) : OK;
}
