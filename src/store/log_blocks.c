/* log_blocks.c - blocks of the log before they are needed.
 *
 * A log file has its full size from the start and no blocks. To find some for each write, and to
 * write down where they are when they go to the disk, takes the file system a third of a write's
 * time; and while it does so for half a second's worth of messages at once, whoever appends waits
 * for it, up to 30 ms. Reserved blocks are just there. They read as zeros, as what they replace
 * did, so no reader and no recovery sees a difference.
 *
 * The price is room on the disk that nothing is in, so it is paid only by those who write much:
 * as many bytes are reserved in front of the log's end as this store has written since it was
 * opened, at most a file's worth. That doubles, so it is done some ten times and hardly ever again;
 * an idle store reserves nothing. Never more than a small part of what the disk has left, and never
 * so much that the disk is fuller than messages may be deleted for (disk_max_used); and a clean
 * stop gives all of it back (log_trim).
 *
 * With synchronous flush nothing is reserved: there it is the sync that costs, which takes longer
 * for a block that was reserved and is written for the first time than for a new one (0.83 of the
 * messages a second); blocks that are filled (ahead.c) are what helps.
 *
 * A disk that cannot reserve, or has no room, is a slower one and nothing else.
 */
#include "store/store_int.h"

#define LEAST_PART 256 /* of a file: with less than that written nothing is reserved */
#define DISK_PART  16  /* of the room on the disk: more than that is never reserved at once */

void log_blocks_init(struct store *store)
{
    uint64_t written = position_get(&store->positions.written);
    store->blocks = (struct log_blocks){.began = written, .upto = written};
}

/* Until where blocks should be there, as the row of files has room for it. */
static uint64_t blocks_wanted(struct store *store, uint64_t written)
{
    struct tail *tail = &store->tail;
    uint64_t size = store->log.file_size, lead = written - store->blocks.began;
    room_enter(&tail->room);
    uint64_t end = tail->ahead ? tail->ahead : store->log.end;
    room_leave(&tail->room);
    lead = lead < size / LEAST_PART ? 0 : lead < size ? lead : size;
    return written + lead < end ? written + lead : end;
}

/* In one file. The disk may refuse. */
static void blocks_reserve(struct store *store, uint64_t from, uint64_t upto)
{
    const struct vfs_calls *calls = store->vfs->calls;
    uint64_t base = from - from % store->log.file_size;
    char path[PATH_SIZE];
    struct vfs_file *file;
    fileset_path(path, LOG_FOLDER, base);
    if (calls->open(store->vfs, path, VFS_WRITE, &file, NULL) != OK)
        return;
    enum err err = calls->reserve(file, from - base, upto - from, NULL);
    (void)err;
    calls->close(file);
}

/* The disk has room for `n` bytes that nothing is in. */
static bool disk_has(struct store *store, uint64_t n)
{
    struct vfs_space space;
    if (store->vfs->calls->space(store->vfs, &space, NULL) != OK ||
        n > space.available / DISK_PART || n > space.free)
        return false;
    space.free -= n;
    space.available -= n;
    return disk_percent(&space) <= store->options.retention.disk_max_used;
}

void log_reserve(struct store *store)
{
    struct log_blocks *b = &store->blocks;
    if (store->options.sync_flush || !store->vfs->calls->reserve)
        return;
    uint64_t written = position_get(&store->positions.written), size = store->log.file_size;
    uint64_t from = b->upto > written ? b->upto : written, wanted = blocks_wanted(store, written);
    if (wanted <= from || from - written > (wanted - written) / 2)
        return;
    if (!disk_has(store, wanted - from))
        return;
    b->upto = wanted;
    for (uint64_t at = from, next; at < wanted; at = next) {
        next = at - at % size + size;
        next = next < wanted ? next : wanted;
        blocks_reserve(store, at, next);
    }
}
