/* queue_load.c - what the queues' files say at the start.
 *
 * Queues are derived, so nothing here has to be saved at any price: what does not make sense is cut
 * and rebuilt from the log. `incomplete` tells that units of old records are missing, so that it
 * takes the whole log to bring them back.
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_UNITS 3200 /* 64,000 bytes at a time */

/* ---- which queues, which files ---- */

/* A last file that is short was being cut, or made, when the process ended. */
static enum err file_lengthen(struct store *store, const char *path, uint64_t size,
                              struct fault *why)
{
    struct vfs_file *file;
    enum err err = store->vfs->calls->open(store->vfs, path, VFS_WRITE, &file, why);
    if (err)
        return err;
    err = store->vfs->calls->resize(file, size, why);
    store->vfs->calls->close(file);
    return err;
}

/* How many of the files, from the first on, are as they should be. */
static enum err files_count_good(struct store *store, const struct queue *queue,
                                 const uint64_t *bases, size_t n, size_t *good, bool *incomplete,
                                 struct fault *why)
{
    uint64_t wanted = queue->files.file_size;
    for (*good = 0; *good < n; ++*good) {
        uint64_t base = bases[*good], size;
        char path[PATH_SIZE];
        fileset_path(path, queue->folder, base);
        enum err err = vfs_file_size(store->vfs, path, &size, why);
        if (err)
            return err;
        if (base % wanted != 0 || size > wanted)
            return fault_set(why, ERR_MISMATCH,
                             "%s has %" PRIu64 " bytes, but queue files are set to have %" PRIu64,
                             path, size, wanted);
        if (base != bases[0] + *good * wanted)
            return OK;
        if (size == wanted)
            continue;
        *incomplete = true;
        if (*good + 1 < n)
            return OK;
        err = file_lengthen(store, path, wanted, why);
        if (err)
            return err;
    }
    return OK;
}

static enum err queue_load(struct store *store, struct queue *queue, bool *incomplete,
                           struct fault *why)
{
    cleanup(free_at) uint64_t *bases = NULL;
    size_t n, good;
    enum err err = fileset_list(store->vfs, queue->folder, &bases, &n, why);
    if (err || n == 0)
        return err;
    err = files_count_good(store, queue, bases, n, &good, incomplete, why);
    if (err)
        return err;
    for (size_t i = n; i-- > good;) {
        *incomplete = true;
        char path[PATH_SIZE];
        fileset_path(path, queue->folder, bases[i]);
        err = store->vfs->calls->remove(store->vfs, path, why);
        if (err)
            return err;
    }
    if (good > 0) {
        queue->files.first = bases[0];
        queue->files.end = bases[0] + good * queue->files.file_size;
        queue->known_end = queue->files.end;
    }
    return OK;
}

static enum err topic_load(struct store *store, const char *topic, bool *incomplete,
                           struct fault *why)
{
    char folder[PATH_SIZE];
    (void)snprintf(folder, sizeof folder, QUEUE_FOLDER "/%s", topic);
    cleanup(names_clear) struct names ids = {0};
    enum err err = names_list(store->vfs, folder, true, &ids, why);
    for (size_t i = 0; !err && i < ids.n; i++) {
        int32_t id;
        struct queue *queue;
        if (!bytes_to_i32(bytes_str(ids.at[i]), &id))
            continue; /* somebody else's folder */
        err = queue_get(store, bytes_str(topic), id, &queue);
        if (err == ERR_INVALID)
            return OK;
        if (!err)
            err = queue_load(store, queue, incomplete, why);
    }
    return err;
}

enum err queues_load(struct store *store, bool *incomplete, struct fault *why)
{
    cleanup(names_clear) struct names topics = {0};
    enum err err = names_list(store->vfs, QUEUE_FOLDER, true, &topics, why);
    for (size_t i = 0; !err && i < topics.n; i++)
        err = topic_load(store, topics.at[i], incomplete, why);
    return err;
}

enum err queues_remove(struct store *store, struct fault *why)
{
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older) {
        enum err err = fileset_remove(&store->cache, &queue->files, why);
        if (err)
            return err;
        queue->known_end = 0;
    }
    return OK;
}

/* ---- where they end ---- */

enum err queue_unit_at(struct store *store, struct queue *queue, int64_t offset, struct unit *out,
                       struct fault *why)
{
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    cleanup(shelf_drop_at) struct shelf *shelf = shelf_hold(store, queue);
    if (shelf && offset >= shelf->from) {
        *out = shelf_unit(shelf, offset);
        return OK;
    }
    cleanup(segment_drop_at) struct segment *seg = NULL;
    enum err err = segment_get(&store->cache, &queue->files, at, &seg, why);
    if (err)
        return err;
    uint8_t bytes[UNIT_SIZE];
    err = segment_read(seg, at, bytes, sizeof bytes, why);
    if (!err)
        *out = unit_load(bytes);
    return err;
}

/* The queue ends at `max`; `last` is the unit before it, size 0 when there is none. */
static void queue_set_end(struct queue *queue, int64_t max, const struct unit *last)
{
    atomic_store_explicit(&queue->max, max, memory_order_relaxed);
    queue->log_end = last->size == 0 || unit_is_filler(last) ? 0 : last->position + last->size;
    queue->synced = max;
}

enum err queue_measure(struct store *store, struct queue *queue, struct fault *why)
{
    const struct fileset *files = &queue->files;
    struct unit last = {0};
    if (files->first == files->end) {
        queue_set_end(queue, 0, &last);
        return OK;
    }
    /* Units below `low` are there, units from `high` on are not. */
    int64_t low = (int64_t)((files->end - files->file_size) / UNIT_SIZE),
            high = (int64_t)(files->end / UNIT_SIZE);
    /* Wider and wider steps from the front: most files are nearly empty, and for each look into a
     * hole the kernel fills pages with zeros. */
    int64_t step = 1;
    while (low < high) {
        int64_t half = (high - low) / 2, middle = low + (step <= half ? step - 1 : half);
        if (step <= half)
            step *= 2;
        struct unit unit;
        enum err err = queue_unit_at(store, queue, middle, &unit, why);
        if (err)
            return err;
        if (unit.size > 0)
            low = middle + 1;
        else
            high = middle;
    }
    if ((uint64_t)low * UNIT_SIZE > files->first) {
        enum err err = queue_unit_at(store, queue, low - 1, &last, why);
        if (err)
            return err;
    }
    queue_set_end(queue, low, &last);
    return OK;
}

/* Walks the units of one file for as long as they make sense and point below `position`. */
struct walk {
    uint64_t position;
    int64_t count;
    struct unit last; /* the last good one */
    uint64_t log_end; /* where its record ends */
    bool ended;
    bool hole; /* a unit makes no sense, and the one behind it does: no torn end, but damage */
};

static bool walk_takes(const struct walk *w, const struct unit *unit)
{
    if (unit->size == 0 || unit->size > INT32_MAX)
        return false;
    if (unit_is_filler(unit))
        return w->log_end == 0; /* only in front of everything */
    return unit->position >= w->log_end && unit->position < w->position;
}

static void walk_chunk(struct walk *w, const uint8_t *units, size_t n)
{
    for (size_t i = 0; i < n && !w->ended; i++) {
        struct unit unit = unit_load(units + i * UNIT_SIZE);
        if (walk_takes(w, &unit)) {
            w->last = unit;
            w->log_end = unit_is_filler(&unit) ? 0 : unit.position + unit.size;
            w->count++;
            continue;
        }
        w->ended = true;
        if (i + 1 < n) {
            struct unit behind = unit_load(units + (i + 1) * UNIT_SIZE);
            w->hole = walk_takes(w, &behind);
        }
    }
}

static enum err walk_file(struct store *store, struct queue *queue, uint64_t base, struct walk *w,
                          struct fault *why)
{
    cleanup(segment_drop_at) struct segment *seg = NULL;
    cleanup(free_at) uint8_t *chunk = malloc((CHUNK_UNITS + 1) * UNIT_SIZE);
    if (!chunk)
        return ERR_NO_MEMORY;
    enum err err = segment_get(&store->cache, &queue->files, base, &seg, why);
    for (uint64_t at = base; !err && !w->ended && at < base + seg->size;
         at += CHUNK_UNITS * UNIT_SIZE) {
        uint64_t left = base + seg->size - at;
        size_t n = left / UNIT_SIZE < CHUNK_UNITS ? (size_t)(left / UNIT_SIZE) : CHUNK_UNITS;
        err = segment_read(seg, at, chunk, n * UNIT_SIZE, why);
        if (!err)
            walk_chunk(w, chunk, n);
    }
    return err;
}

enum err queue_cut(struct store *store, struct queue *queue, uint64_t position, bool *incomplete,
                   struct fault *why)
{
    struct fileset *files = &queue->files;
    struct walk w = {.position = position};
    if (files->first == files->end) {
        queue_set_end(queue, 0, &w.last);
        return OK;
    }

    /* The first unit of a file is never torn: it starts a sector. So it tells which file to walk.
     */
    uint64_t base = files->end;
    struct unit first = {0};
    do {
        base -= files->file_size;
        enum err err = queue_unit_at(store, queue, (int64_t)(base / UNIT_SIZE), &first, why);
        if (err)
            return err;
    } while (base > files->first && !walk_takes(&w, &first));

    enum err err = walk_file(store, queue, base, &w, why);
    if (err)
        return err;
    if (w.hole)
        *incomplete = true;
    int64_t max = (int64_t)(base / UNIT_SIZE) + w.count;
    err = fileset_cut(&store->cache, files, (uint64_t)max * UNIT_SIZE, why);
    if (err)
        return err;
    queue_set_end(queue, max, &w.last);
    queue->synced = (int64_t)(base / UNIT_SIZE);
    if (queue->known_end > files->end)
        queue->known_end = files->end; /* a file that is made again is news to the folder */
    queue->cut = true;
    queue_mark_dirty(store, queue);
    return OK;
}

/* The first offset from `low` on that is still in the log. */
static enum err search_min(struct store *store, struct queue *queue, int64_t low, struct fault *why)
{
    uint64_t log_first = position_get(&store->positions.first);
    int64_t high = queue_max(queue);
    int64_t step = 0; /* the first guess is the first unit: nearly always right */
    while (low < high) {
        int64_t middle = low + step;
        struct unit unit;
        enum err err = queue_unit_at(store, queue, middle, &unit, why);
        if (err)
            return err;
        if (unit_is_filler(&unit) || unit.position < log_first)
            low = middle + 1;
        else
            high = middle;
        step = (high - low) / 2;
    }
    atomic_store_explicit(&queue->min, low, memory_order_release);
    return OK;
}

enum err queue_find_min(struct store *store, struct queue *queue, struct fault *why)
{
    return search_min(store, queue, (int64_t)(queue->files.first / UNIT_SIZE), why);
}

enum err queue_raise_min(struct store *store, struct queue *queue, struct fault *why)
{
    return search_min(store, queue, queue_min(store, queue), why);
}

uint64_t queues_units(struct store *store)
{
    uint64_t units = 0;
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older)
        units += (uint64_t)(queue_max(queue) - queue_min(store, queue));
    return units;
}
