/* segment.c - rows of files of one size, and the cache of those that are open.
 *
 * A store may have a hundred thousand queue files, so none is open without a reason: the cache
 * keeps the last used ones, as many as it was told. Falling out of it only drops the cache's count;
 * a reader that holds a slice keeps file and mapping alive.
 *
 * Mapping a file, touching a page of it and unmapping it costs ten times a read of some bytes, and
 * each mapping has tables of its own. So the file of a queue is read until it was used HOT_USES
 * times, and mapped then, if fewer than HOT_MAX are.
 *
 * Files are made in full size and full of zeros, because Apache RocketMQ refuses others.
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void segment_release(struct counted *owner)
{
    struct segment *seg = list_entry(owner, struct segment, owner);
    const struct vfs_calls *calls = seg->vfs->calls;
    const uint8_t *map = atomic_load_explicit(&seg->map, memory_order_acquire);
    if (map)
        calls->unmap(seg->file, map, seg->size);
    calls->close(seg->file);
    free(seg);
}

void segment_drop(struct segment *seg)
{
    if (seg)
        counted_drop(&seg->owner);
}

void segment_drop_at(struct segment **seg)
{
    segment_drop(*seg);
}

/* ---- cache ---- */

void cache_init(struct cache *c, struct vfs *vfs, size_t max)
{
    *c = (struct cache){.vfs = vfs, .max = max ? max : OPEN_FILES_LEAST};
    room_init(&c->room, "files", ROOM_FILES);
    list_init(&c->aged);
}

/* Room: files. The caller gets the cache's count and drops it outside. */
static struct segment *cache_take_out(struct cache *c, struct segment *seg)
{
    room_held(&c->room);
    list_remove(&seg->by_set);
    list_remove(&seg->by_age);
    c->n--;
    c->n_hot -= atomic_load_explicit(&seg->hot, memory_order_relaxed);
    return seg;
}

static struct segment *cache_take_oldest(struct cache *c)
{
    return cache_take_out(c, list_entry(list_first(&c->aged), struct segment, by_age));
}

void cache_clear(struct cache *c)
{
    room_enter(&c->room);
    while (!list_empty(&c->aged)) {
        struct segment *seg = cache_take_oldest(c);
        segment_drop(seg);
    }
    room_leave(&c->room);
    room_clear(&c->room);
}

/* Room: files. */
static void segment_used(struct cache *c, struct segment *seg)
{
    if (seg->uses < HOT_USES)
        seg->uses++;
    else if (c->n_hot < HOT_MAX && !atomic_load_explicit(&seg->hot, memory_order_relaxed)) {
        atomic_store_explicit(&seg->hot, true, memory_order_relaxed);
        c->n_hot++;
    }
}

/* Room: files. Held for the caller; NULL when it is not open. */
static struct segment *cache_find(struct cache *c, struct fileset *set, uint64_t base)
{
    room_held(&c->room);
    list_each(k, &set->open) {
        struct segment *seg = list_entry(k, struct segment, by_set);
        if (seg->base != base)
            continue;
        list_remove(&seg->by_age);
        list_add_tail(&c->aged, &seg->by_age);
        segment_used(c, seg);
        counted_hold(&seg->owner);
        return seg;
    }
    return NULL;
}

/* Takes over `seg`, which is new and held by the caller alone, and returns what the caller is to
 * use: another one if somebody was faster. A file that was removed while it was opened is not kept
 * beyond its use: its space would stay taken. */
static struct segment *cache_add(struct cache *c, struct fileset *set, struct segment *seg)
{
    struct segment *out_of_place = NULL;
    room_enter(&c->room);
    struct segment *there = cache_find(c, set, seg->base);
    if (there) {
        out_of_place = seg;
    } else if (seg->base < set->first || seg->base >= set->end) {
        there = seg;
    } else {
        there = seg;
        counted_hold(&seg->owner); /* the cache's own */
        list_add_tail(&set->open, &seg->by_set);
        list_add_tail(&c->aged, &seg->by_age);
        if (++c->n > c->max)
            out_of_place = cache_take_oldest(c);
    }
    room_leave(&c->room);
    segment_drop(out_of_place);
    return there;
}

/* Closes a file of the set, unless a reader still holds it. */
void cache_forget(struct cache *c, struct fileset *set, uint64_t base)
{
    room_enter(&c->room);
    struct segment *seg = cache_find(c, set, base);
    if (seg)
        segment_drop(cache_take_out(c, seg)); /* not the last count: cache_find gave us one */
    room_leave(&c->room);
    segment_drop(seg);
}

/* ---- segment ---- */

void fileset_path(char out[PATH_SIZE], const char *folder, uint64_t base)
{
    int len = snprintf(out, PATH_SIZE, "%s/%020" PRIu64, folder, base);
    invariant(len > 0);
    invariant(len < PATH_SIZE);
}

static enum err segment_new(struct vfs *vfs, const char *path, enum vfs_mode mode, uint64_t base,
                            uint64_t size, struct segment **out, struct fault *why)
{
    cleanup(free_at) struct segment *seg = calloc(1, sizeof *seg);
    if (!seg)
        return ERR_NO_MEMORY;
    enum err err = vfs->calls->open(vfs, path, mode, &seg->file, why);
    if (err)
        return err;
    counted_init(&seg->owner, segment_release);
    seg->vfs = vfs;
    seg->base = base;
    seg->size = size;
    *out = take(&seg);
    return OK;
}

/* A file of another size would be a SIGBUS for whoever reads behind its end. */
static enum err segment_check_size(struct segment *seg, const char *path, struct fault *why)
{
    uint64_t size;
    enum err err = seg->vfs->calls->size(seg->file, &size, why);
    if (err)
        return err;
    if (size != seg->size)
        return fault_set(why, ERR_DAMAGED, "%s has %" PRIu64 " bytes and should have %" PRIu64,
                         path, size, seg->size);
    return OK;
}

enum err segment_get(struct cache *c, struct fileset *set, uint64_t position, struct segment **out,
                     struct fault *why)
{
    uint64_t base = position - position % set->file_size;
    room_enter(&c->room);
    bool inside = position >= set->first && position < set->end;
    struct segment *seg = inside ? cache_find(c, set, base) : NULL;
    room_leave(&c->room);
    if (!inside)
        return fault_set(why, ERR_NOT_FOUND, "%s has no file for %" PRIu64, set->folder, position);
    if (seg) {
        *out = seg;
        return OK;
    }

    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    enum err err = segment_new(c->vfs, path, VFS_WRITE, base, set->file_size, &seg, why);
    if (err)
        return err;
    err = segment_check_size(seg, path, why);
    if (err) {
        segment_drop(seg);
        return err;
    }
    *out = cache_add(c, set, seg);
    return OK;
}

/* The row has one more file, which is open. */
static struct segment *segment_join(struct cache *c, struct fileset *set, struct segment *seg)
{
    room_enter(&c->room);
    if (set->first == set->end)
        set->first = seg->base;
    set->end = seg->base + set->file_size;
    room_leave(&c->room);
    return cache_add(c, set, seg);
}

enum err segment_make(struct cache *c, struct fileset *set, uint64_t base, struct segment **out,
                      struct fault *why)
{
    room_enter(&c->room);
    bool empty = set->first == set->end;
    invariant(base % set->file_size == 0);
    invariant(empty || base == set->end);
    room_leave(&c->room);

    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    enum err err = empty ? c->vfs->calls->mkdir(c->vfs, set->folder, why) : OK;
    struct segment *seg;
    if (!err)
        err = segment_new(c->vfs, path, VFS_FRESH, base, set->file_size, &seg, why);
    if (err)
        return err;
    err = c->vfs->calls->resize(seg->file, set->file_size, why);
    if (err) {
        segment_drop(seg);
        (void)c->vfs->calls->remove(c->vfs, path, NULL); /* else the next attempt empties it */
        return err;
    }
    *out = segment_join(c, set, seg);
    return OK;
}

enum err segment_make_ahead(struct cache *c, const struct fileset *set, uint64_t base,
                            struct fault *why)
{
    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    const struct vfs_calls *calls = c->vfs->calls;
    struct vfs_file *file;
    enum err err = calls->mkdir(c->vfs, set->folder, why);
    if (!err)
        err = calls->open(c->vfs, path, VFS_CREATE, &file, why);
    if (err)
        return err;
    err = calls->resize(file, set->file_size, why);
    if (!err)
        err = calls->sync(file, why);
    calls->close(file);
    return err ? err : calls->sync_dir(c->vfs, set->folder, why);
}

enum err segment_adopt(struct cache *c, struct fileset *set, uint64_t base, struct segment **out,
                       struct fault *why)
{
    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    struct segment *seg;
    enum err err = segment_new(c->vfs, path, VFS_WRITE, base, set->file_size, &seg, why);
    if (err)
        return err;
    err = segment_check_size(seg, path, why);
    if (err)
        segment_drop(seg);
    else
        *out = segment_join(c, set, seg);
    return err;
}

enum err segment_map(struct segment *seg, const uint8_t **out, struct fault *why)
{
    const uint8_t *map = atomic_load_explicit(&seg->map, memory_order_acquire);
    if (map) {
        *out = map;
        return OK;
    }
    const uint8_t *fresh;
    enum err err = seg->vfs->calls->map(seg->file, seg->size, &fresh, why);
    if (err)
        return err;
    if (atomic_compare_exchange_strong_explicit(&seg->map, &map, fresh, memory_order_acq_rel,
                                                memory_order_acquire)) {
        *out = fresh;
    } else { /* somebody else mapped it meanwhile */
        seg->vfs->calls->unmap(seg->file, fresh, seg->size);
        *out = map;
    }
    return OK;
}

bool segment_hot(struct segment *seg)
{
    return atomic_load_explicit(&seg->hot, memory_order_relaxed);
}

/* An iovec has no const. */
static struct iovec part_of(const uint8_t *at, size_t len)
{
    struct iovec part = {.iov_len = len};
    memcpy(&part.iov_base, &at, sizeof part.iov_base);
    return part;
}

enum err segment_write(struct segment *seg, uint64_t position, struct bytes bytes, size_t zeros,
                       struct fault *why)
{
    static const uint8_t nothing[STONE];
    invariant(position >= seg->base);
    invariant(position - seg->base <= seg->size);
    invariant(bytes.len <= seg->size - (position - seg->base));
    invariant(zeros <= seg->size - (position - seg->base) - bytes.len);
    invariant(zeros <= sizeof nothing);
    struct iovec parts[] = {part_of(bytes.at, bytes.len), part_of(nothing, zeros)};
    return seg->vfs->calls->write(seg->file, position - seg->base, parts, zeros ? 2 : 1, why);
}

enum err segment_read(struct segment *seg, uint64_t position, void *into, size_t n,
                      struct fault *why)
{
    invariant(position >= seg->base);
    return seg->vfs->calls->read(seg->file, position - seg->base, into, n, why);
}

enum err segment_sync(struct segment *seg, struct fault *why)
{
    return seg->vfs->calls->sync(seg->file, why);
}
