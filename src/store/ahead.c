/* ahead.c - the log file behind the last one.
 *
 * The keeper makes it before it is needed, so that no append waits for it. It is not in the row
 * yet: the append that needs it takes it, and opening throws it away.
 *
 * With synchronous flush it is *filled* as well: zeros are written to it, which is what stands
 * there anyway. The sync of a block that was written before brings its bytes to the disk and that
 * is all; the first one of a new block also has the file system write down where the block is,
 * which takes half as long again. The price is that everything is written twice, so it is done
 * where it costs least:
 *
 *     in the next file, never in the one that is appended to: a sync of that one would have to wait
 *     for the zeros, and costs as much as it saves;
 *     as far as the last file is used, and a bit more: a store that is idle fills nothing;
 *     while nobody waits for the disk: under a load that never pauses the syncs would become slower
 *     by the zeros for the next file than faster by those in the last one;
 *     past the kernel's memory, where the file system lets us, for less processor time;
 *     a piece at a time, which is on the disk before the next is begun: so a sync finds at most one
 *     in front of it. A disk that takes long for a piece gets one a turn.
 *
 * Zeros must never meet records. A piece is written inside the filler's room, and whoever takes the
 * file into the row closes that room for it first: that waits for one piece at most, and only if
 * the log has grown by a file faster than it could be filled.
 *
 * Whatever fails here costs speed and nothing else: the file becomes as if it were just made. And a
 * clean stop takes all blocks back that have no records: a folder at rest is no bigger for it, and
 * the next start has nothing to cut, which takes some file systems a part of a second.
 */
#include "store/store_int.h"

#define LEAD          (64u << 20)         /* that it is filled ahead of the last file's use */
#define TURN_NS       UINT64_C(100000000) /* the keeper has more to do */
#define PIECE_LONG_NS UINT64_C(2000000)   /* a disk that takes as long has enough to do */
#define FILL_ALIGN    4096u               /* for writes past the kernel's memory */

/* The keeper may meet an append here that makes the same file itself, so it neither empties nor
 * removes anything: whoever comes first, the file has its full size and what was written. */
enum err log_make_ahead(struct store *store, struct fault *why)
{
    struct tail *tail = &store->tail;
    room_enter(&tail->room);
    uint64_t base = store->log.end, end = base + store->log.file_size;
    bool there = tail->ahead == end;
    room_leave(&tail->room);
    if (there)
        return OK;
    enum err err = segment_make_ahead(&store->cache, &store->log, base, why);
    if (err)
        return err;
    room_enter(&tail->room);
    if (store->log.end == base) {
        tail->ahead = end;
        fill_open(&store->filler, base); /* in the tail's room: nobody can have taken it before */
    }
    room_leave(&tail->room);
    return OK;
}

/* ---- filling ---- */

void fill_open(struct filler *f, uint64_t base)
{
    room_enter(&f->room);
    f->open = true;
    f->base = base;
    f->done = 0;
    room_leave(&f->room);
}

void fill_close(struct filler *f)
{
    room_enter(&f->room);
    f->open = false;
    room_leave(&f->room);
}

/* All that was appended is on the disk, so nobody waits for it. */
static bool log_at_rest(struct store *store)
{
    uint64_t flushed = position_get(&store->positions.flushed); /* first: it follows the other */
    return position_get(&store->positions.written) == flushed;
}

/* How many bytes of the file ahead are to be filled. */
static uint64_t fill_wanted(struct store *store)
{
    struct tail *tail = &store->tail;
    uint64_t size = store->log.file_size;
    room_enter(&tail->room);
    bool last = store->log.first != store->log.end;
    uint64_t used = last ? position_get(&store->positions.written) - (store->log.end - size) : 0;
    room_leave(&tail->room);
    uint64_t wanted = used + (used < LEAD ? used : LEAD);
    return wanted < size ? wanted - wanted % FILL_PIECE : size - size % FILL_ALIGN;
}

/* Filler's room. Without its blocks the file is full of zeros, whatever became of those that were
 * written; if not even that can be done it has the wrong size, and whoever needs it makes it anew.
 */
static void fill_give_up(struct store *store, struct vfs_file *file)
{
    struct filler *f = &store->filler;
    const struct vfs_calls *calls = store->vfs->calls;
    room_held(&f->room);
    f->open = false;
    if (calls->resize(file, 0, NULL) == OK)
        (void)calls->resize(file, store->log.file_size, NULL);
}

/* One piece. False: there is nothing more to fill in this file. */
static bool fill_piece(struct store *store, struct vfs_file *file, uint64_t base, uint64_t wanted)
{
    static _Alignas(FILL_ALIGN) const uint8_t zeros[FILL_PIECE];
    struct filler *f = &store->filler;
    const struct vfs_calls *calls = store->vfs->calls;
    uint64_t at = f->done, n = wanted - at < FILL_PIECE ? wanted - at : FILL_PIECE;
    struct iovec part = {.iov_len = n};
    const uint8_t *from = zeros;
    memcpy(&part.iov_base, &from, sizeof part.iov_base); /* an iovec has no const */

    room_enter(&f->room);
    bool ours = f->open && f->base == base;
    if (ours && calls->write(file, at, &part, 1, NULL) != OK) {
        fill_give_up(store, file);
        ours = false;
    }
    room_leave(&f->room);
    if (!ours)
        return false;
    f->done += n;
    if (calls->push(file, at, n, NULL) == OK)
        return true;
    room_enter(&f->room);
    if (f->open && f->base == base)
        fill_give_up(store, file);
    room_leave(&f->room);
    return false;
}

void log_fill_ahead(struct store *store)
{
    struct filler *f = &store->filler;
    struct clock *clock = store->options.clock;
    if (!store->options.sync_flush ||
        atomic_load_explicit(&store->cleaner.full, memory_order_relaxed))
        return;
    room_enter(&f->room);
    bool open = f->open;
    uint64_t base = f->base;
    room_leave(&f->room);
    uint64_t wanted = open ? fill_wanted(store) : 0;
    if (wanted <= f->done || !log_at_rest(store))
        return;

    char path[PATH_SIZE];
    struct vfs_file *file;
    fileset_path(path, LOG_FOLDER, base);
    if (store->vfs->calls->open(store->vfs, path, VFS_AROUND, &file, NULL) != OK)
        return; /* the next turn may have a handle for it */
    uint64_t began_ns = clock_ns(clock), now_ns = began_ns, before_ns;
    do {
        before_ns = now_ns;
        if (!fill_piece(store, file, base, wanted))
            break;
        now_ns = clock_ns(clock);
    } while (f->done < wanted && log_at_rest(store) && now_ns - before_ns < PIECE_LONG_NS &&
             now_ns - began_ns < TURN_NS);
    store->vfs->calls->close(file);
}

/* ---- the end ---- */

/* The zeros behind the end are on the disk before anything says that this was a clean stop. */
enum err log_trim(struct store *store, struct fault *why)
{
    struct tail *tail = &store->tail;
    uint64_t written = position_get(&store->positions.written);
    bool spare = store->options.sync_flush || store->blocks.upto > written || store->blocks.found;
    if (!spare || store->log.first == store->log.end)
        return OK;
    char path[PATH_SIZE];
    fileset_path(path, LOG_FOLDER, store->log.end);
    if (tail->ahead)
        (void)store->vfs->calls->remove(store->vfs, path, NULL); /* else the next start does */
    tail->ahead = 0;
    enum err err = fileset_cut(&store->cache, &store->log, written, why);
    return err ? err : fileset_sync(&store->cache, &store->log, written, written + 1, why);
}
