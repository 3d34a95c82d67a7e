/* log_blocks.c - blocks of the log before they are needed: how many, and when.
 *
 * A log file has its full size from the start and no blocks. To find some for each write, and to
 * write down where they are when they go to the disk, takes the file system a third of a write's
 * time; and while it does so for half a second's worth of messages at once, whoever appends waits
 * for it, up to 30 ms. Reserved blocks are just there. They read as zeros, as what they replace
 * did, so no reader and no recovery sees a difference.
 *
 * The price is room on the disk that nothing is in, so it is paid only by those who write much:
 * four times as many bytes are reserved in front of the log's end as this store has written since
 * it was opened, at most a file's worth. So it is done some few times and hardly ever again; an
 * idle store reserves nothing. Never more than a small part of what the disk has left, and never
 * so much that the disk is fuller than messages are deleted or refused for; whoever looks how full
 * it is later counts what is reserved as free (clean.c). And a clean stop gives all of it back
 * (log_trim).
 *
 * It goes piece by piece, since a file system may let nobody write into a file while it looks for
 * blocks for it, and one that runs out of them, or whose owner may have no more, keeps what it has
 * found: so the first refusal ends it for a while. And it is done between flushes: behind half a
 * second's messages the file system would wait 20 to 140 ms for the map of its free blocks, and
 * whoever appends with it.
 *
 * With synchronous flush blocks are filled instead (ahead.c): there it is the sync that costs,
 * which takes longer for a block that was reserved and is written for the first time than for a new
 * one (0.83 of the messages a second), and half as long for one that has zeros. They go as far as
 * the file behind the last one, since a load that never pauses leaves no time to go on.
 *
 * A disk that cannot reserve, or has no room, is a slower one and nothing else.
 */
#include "store/store_int.h"

#define LEAST_PART   256 /* of a file: with less than that written nothing is reserved */
#define LEAD         4   /* times what was written, */
#define MOST_FILLED  2   /* and no more files than that: the last one and the one behind it */
#define DISK_PART    16  /* of the room on the disk: more than that is never reserved */
#define PIECE        (32u << 20)
#define AGAIN_MS     10000 /* after the disk refused */
#define PRESSED_PART 4     /* of the time: zeros are not for whoever needs the disk for longer */

void log_blocks_init(struct store *store)
{
    uint64_t written = position_get(&store->positions.written);
    store->blocks = (struct log_blocks){
        .began = written, .upto = written, .seen_ns = clock_ns(store->options.clock)};
}

/* Until where blocks should be there, as the row of files has room for it. */
static uint64_t blocks_wanted(struct store *store, uint64_t written)
{
    struct tail *tail = &store->tail;
    uint64_t size = store->log.file_size, since = written - store->blocks.began;
    uint64_t most = store->options.sync_flush ? MOST_FILLED * size : size;
    room_enter(&tail->room);
    uint64_t end = tail->ahead ? tail->ahead : store->log.end;
    room_leave(&tail->room);
    uint64_t lead = since < size / LEAST_PART ? 0 : since < most / LEAD ? LEAD * since : most;
    return written + lead < end ? written + lead : end;
}

/* One piece, in one file. False: the disk refused. */
static bool piece_reserve(struct store *store, uint64_t from, uint64_t upto)
{
    const struct vfs_calls *calls = store->vfs->calls;
    uint64_t base = from - from % store->log.file_size;
    char path[PATH_SIZE];
    struct vfs_file *file;
    fileset_path(path, LOG_FOLDER, base);
    if (calls->open(store->vfs, path, VFS_WRITE, &file, NULL) != OK)
        return false;
    enum err err = calls->reserve(file, from - base, upto - from, NULL);
    calls->close(file);
    return err == OK;
}

/* So many of `n` bytes more may be reserved on this disk. */
static uint64_t disk_allows(struct store *store, uint64_t n)
{
    uint64_t already = log_reserved(store), in_all;
    const struct store_retention *r = &store->options.retention;
    unsigned most = r->disk_max_used < r->disk_forced ? r->disk_max_used : r->disk_forced;
    most = most < r->disk_warning ? most : r->disk_warning;
    struct vfs_space space;
    if (store->vfs->calls->space(store->vfs, &space, NULL) != OK)
        return 0;
    in_all = (space.available + already) / DISK_PART;
    if (n > in_all || in_all - n < already)
        n = in_all > already ? in_all - already : 0;
    if (n > space.free || n > space.available)
        return 0;
    space.free -= n;
    space.available -= n;
    return disk_percent(&space) <= most ? n : 0;
}

/* What was behind the log's end is gone if it was cut there since. */
static void blocks_look(struct store *store)
{
    struct log_blocks *b = &store->blocks;
    if (atomic_exchange(&b->lost, false))
        b->upto = position_get(&store->positions.written);
}

/* Up to where they are there. */
static uint64_t blocks_end(struct store *store, uint64_t written)
{
    blocks_look(store);
    return store->blocks.upto > written ? store->blocks.upto : written;
}

/* Reserves them up to `end`, between flushes. False: the disk refused. */
static bool log_reserve(struct store *store, uint64_t from, uint64_t end)
{
    struct log_blocks *b = &store->blocks;
    uint64_t size = store->log.file_size;
    const _Atomic bool *syncing = &store->flusher.syncing;
    bool fine = true;
    for (uint64_t at = from, next; fine && at < end && !atomic_load(syncing); at = next) {
        next = at - at % size + size;
        next = next - at > PIECE ? at + PIECE : next;
        next = next < end ? next : end;
        b->found = true;
        fine = piece_reserve(store, at, next);
        if (fine)
            b->upto = next;
    }
    return fine;
}

/* Since it was looked at before, the flusher had the disk for more than a part of the time: then a
 * moment in which nobody waits is over before a piece is written. */
static bool disk_pressed(struct store *store, uint64_t now_ns)
{
    struct log_blocks *b = &store->blocks;
    uint64_t synced_ns = atomic_load(&store->flusher.synced_ns);
    uint64_t spent = now_ns - b->seen_ns, syncing = synced_ns - b->seen_synced_ns;
    b->seen_ns = now_ns;
    b->seen_synced_ns = synced_ns;
    return syncing > spent / PRESSED_PART;
}

/* Whether this is the time for it. */
static bool may_prepare(struct store *store, bool fills, uint64_t now_ns)
{
    if (now_ns < store->blocks.again_ns)
        return false;
    if (!fills)
        return store->vfs->calls->reserve != NULL;
    return !disk_pressed(store, now_ns) &&
           !atomic_load_explicit(&store->cleaner.full, memory_order_relaxed);
}

void log_prepare(struct store *store)
{
    struct log_blocks *b = &store->blocks;
    uint64_t now_ns = clock_ns(store->options.clock);
    bool fills = store->options.sync_flush;
    if (!may_prepare(store, fills, now_ns))
        return;
    uint64_t written = position_get(&store->positions.written);
    uint64_t wanted = blocks_wanted(store, written), from = blocks_end(store, written);
    uint64_t least = fills ? FILL_PIECE : (wanted - written) / 2;
    least = least < store->log.file_size ? least : store->log.file_size;
    if (wanted <= from || wanted - from < least)
        return;
    uint64_t end = from + disk_allows(store, wanted - from);
    if (blocks_end(store, written) != from)
        return; /* the log was cut meanwhile */
    bool fine = end > from;
    if (fine && !fills) {
        fine = log_reserve(store, from, end);
    } else if (fine) {
        fine = log_fill(store, from, end, &b->upto);
        if (!fine)
            atomic_store(&b->lost, true);
    }
    b->again_ns = fine ? 0 : now_ns + AGAIN_MS * UINT64_C(1000000);
}

uint64_t log_reserved(struct store *store)
{
    uint64_t written = position_get(&store->positions.written);
    return blocks_end(store, written) - written;
}
