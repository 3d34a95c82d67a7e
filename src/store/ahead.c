/* ahead.c - the log file behind the last one, and zeros in front of the log's end.
 *
 * The keeper makes the next file before it is needed, so that no append waits for it. It is not in
 * the row yet: the append that needs it takes it, and opening throws it away.
 *
 * With synchronous flush the log is *filled* as well: zeros are written in front of its end, which
 * is what stands there anyway. The sync of a block that was written before brings its bytes to the
 * disk and that is all; the first one of a new block also has the file system write down where the
 * block is, which takes as long again. The price is that everything is written twice, so it is done
 * where it costs least:
 *
 *     as far as log_blocks.c says: a store that is idle fills nothing;
 *     while nobody waits for the disk, and not at all while somebody does for much of the time:
 *     under a load that never pauses the syncs would become slower by the zeros than faster by what
 *     was filled;
 *     past the kernel's memory, where the file system lets us, for less processor time;
 *     a piece at a time, whose bytes are on the disk before the next is begun: so a sync finds
 *     those of one piece in front of it at most. A disk that takes long for a piece gets one a
 *     turn. An append to the same file may have to wait for that piece, since a file system may let
 *     nobody else write to it meanwhile.
 *
 * Zeros must never meet records. So appends *claim* the log, some MiB at a time, before they write:
 * a piece begins behind what is claimed, and is written inside the filler's room, where claims are
 * made.
 *
 * A piece that cannot be written costs speed and nothing else: what is not claimed becomes as if it
 * were just made. That one cannot be brought to the disk may be said of records of the same file,
 * and whoever is told it is the only one: in the row it is believed as that of a failed sync. A
 * clean stop takes all blocks back that have no records: a folder at rest is no bigger for it, and
 * the next start has nothing to cut, which takes some file systems a part of a second.
 */
#include "store/store_int.h"

#define TURN_NS       UINT64_C(100000000) /* the keeper has more to do */
#define PIECE_LONG_NS UINT64_C(2000000)   /* a disk that takes as long has enough to do */
#define FILL_ALIGN    4096u               /* for writes past the kernel's memory */
#define CLAIM_PART    256                 /* of a file: more than is written is claimed by that */

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
    if (store->log.end == base)
        tail->ahead = end;
    room_leave(&tail->room);
    return OK;
}

/* ---- filling ---- */

void fill_claim(struct store *store, uint64_t end)
{
    struct filler *f = &store->filler;
    room_held(&store->tail.room);
    if (end <= f->free || !store->options.sync_flush)
        return;
    room_enter(&f->room);
    f->free = end + store->log.file_size / CLAIM_PART;
    room_leave(&f->room);
}

/* All that was appended is on the disk, so nobody waits for it. */
static bool log_at_rest(struct store *store)
{
    uint64_t flushed = position_get(&store->positions.flushed); /* first: it follows the other */
    return position_get(&store->positions.written) == flushed;
}

/* Zeros go into one file at a time, in whole pages. */
struct piece {
    uint64_t base, into;
    size_t n;
};

/* The first at `at` or behind it that is free. */
static struct piece piece_at(struct store *store, uint64_t at)
{
    struct filler *f = &store->filler;
    uint64_t size = store->log.file_size, usable = size - size % FILL_ALIGN;
    room_enter(&f->room);
    at = at > f->free ? at : f->free;
    room_leave(&f->room);
    uint64_t into = (at % size + FILL_ALIGN - 1) / FILL_ALIGN * FILL_ALIGN;
    if (into >= usable) {
        at = at - at % size + size;
        into = 0;
    }
    uint64_t n = usable - into;
    return (struct piece){at - at % size, into, n < FILL_PIECE ? (size_t)n : FILL_PIECE};
}

/* Filler's room. Without its blocks the file is full of zeros, whatever became of those that were
 * written. One that nobody has claimed is not in the row, so it may have the wrong size for it:
 * then whoever needs it makes it anew. */
static void fill_give_up(struct store *store, struct vfs_file *file, uint64_t base)
{
    struct filler *f = &store->filler;
    const struct vfs_calls *calls = store->vfs->calls;
    uint64_t size = store->log.file_size, from = f->free > base ? f->free - base : 0;
    room_held(&f->room);
    if (from >= size || (calls->clear && calls->clear(file, from, size - from, NULL) == OK))
        return;
    if (from == 0 && calls->resize(file, 0, NULL) == OK)
        (void)calls->resize(file, size, NULL);
}

/* Whether an append may have been to the file at `base`. */
static bool in_row(struct store *store, uint64_t base)
{
    room_enter(&store->tail.room);
    bool in = base < store->log.end;
    room_leave(&store->tail.room);
    return in;
}

/* False: the disk refused. Whether it was still free is not told: if not, it will be passed. */
static bool piece_fill(struct store *store, struct vfs_file *file, const struct piece *p)
{
    static _Alignas(FILL_ALIGN) const uint8_t zeros[FILL_PIECE];
    struct filler *f = &store->filler;
    const struct vfs_calls *calls = store->vfs->calls;
    struct iovec part = {.iov_len = p->n};
    const uint8_t *from = zeros;
    memcpy(&part.iov_base, &from, sizeof part.iov_base); /* an iovec has no const */

    room_enter(&f->room);
    bool ours = p->base + p->into >= f->free;
    bool fine = !ours || calls->write(file, p->into, &part, 1, NULL) == OK;
    if (!fine)
        fill_give_up(store, file, p->base);
    room_leave(&f->room);
    if (!ours || !fine)
        return fine;
    struct fault why = {0};
    enum err err = calls->push(file, p->into, p->n, &why);
    if (err == OK)
        return true;
    if (err != ERR_UNSUPPORTED && in_row(store, p->base))
        store_fail(store, err, &why);
    room_enter(&f->room);
    fill_give_up(store, file, p->base);
    room_leave(&f->room);
    return false;
}

bool log_fill(struct store *store, uint64_t from, uint64_t wanted, uint64_t *upto)
{
    struct clock *clock = store->options.clock;
    const struct vfs_calls *calls = store->vfs->calls;
    uint64_t began_ns = clock_ns(clock), now_ns = began_ns, before_ns;
    struct vfs_file *file = NULL;
    uint64_t base = 0;
    bool fine = true;
    do {
        struct piece p = piece_at(store, from);
        if (p.base + p.into + p.n > wanted || !log_at_rest(store))
            break;
        if (file && base != p.base)
            calls->close(take(&file));
        if (!file) {
            char path[PATH_SIZE];
            base = p.base;
            fileset_path(path, LOG_FOLDER, base);
            if (calls->open(store->vfs, path, VFS_AROUND, &file, NULL) != OK) {
                file = NULL;
                break; /* the next turn may have a handle for it */
            }
        }
        before_ns = now_ns;
        fine = piece_fill(store, file, &p);
        from = p.base + p.into + p.n;
        if (fine)
            *upto = from;
        now_ns = clock_ns(clock);
    } while (fine && now_ns - before_ns < PIECE_LONG_NS && now_ns - began_ns < TURN_NS);
    if (file)
        calls->close(file);
    return fine;
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
