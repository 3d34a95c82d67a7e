/* fileset.c - rows of files of one size: cutting, syncing, and what a folder holds.
 *
 * Cutting makes a hole of the rest of a file: that leaves zeros and costs nothing, however much
 * there was. Nothing of an earlier life can then be taken for a record.
 */
#include "store/store_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Removes the last file. It is out of bounds before it is gone, so nobody opens it any more. */
static enum err fileset_pop(struct cache *c, struct fileset *set, struct fault *why)
{
    room_enter(&c->room);
    set->end -= set->file_size;
    uint64_t base = set->end;
    room_leave(&c->room);

    cache_forget(c, set, base);
    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    enum err err = c->vfs->calls->remove(c->vfs, path, why);
    if (err == ERR_NOT_FOUND) {
        fault_forget(why);
        err = OK;
    }
    if (!err)
        return OK;
    room_enter(&c->room);
    set->end += set->file_size;
    room_leave(&c->room);
    return err;
}

/* Everything from `into` on becomes zeros. A file of full size keeps it all the time: whoever opens
 * or maps it just then would take a short one for damage. Only one that a crash left with another
 * size, or that is on a file system without holes, is made shorter and longer again. */
static enum err file_clear(struct vfs *vfs, struct vfs_file *file, uint64_t into, uint64_t full,
                           struct fault *why)
{
    const struct vfs_calls *calls = vfs->calls;
    uint64_t size;
    enum err err = calls->size(file, &size, why);
    if (err)
        return err;
    if (size == full && calls->clear && calls->clear(file, into, full - into, NULL) == OK)
        return OK;
    err = calls->resize(file, into, why);
    return err ? err : calls->resize(file, full, why);
}

enum err fileset_cut(struct cache *c, struct fileset *set, uint64_t position, struct fault *why)
{
    bool removed = false;
    while (set->end > set->first && set->end - set->file_size > position) {
        enum err err = fileset_pop(c, set, why);
        if (err)
            return err;
        removed = true;
    }
    if (removed) {
        enum err err = c->vfs->calls->sync_dir(c->vfs, set->folder, why);
        if (err)
            return err;
    }
    if (position < set->first || position >= set->end)
        return OK;

    char path[PATH_SIZE];
    uint64_t base = position - position % set->file_size;
    fileset_path(path, set->folder, base);
    struct vfs_file
        *file; /* opened anew: a crash may have left it short, which segment_get refuses */
    enum err err = c->vfs->calls->open(c->vfs, path, VFS_WRITE, &file, why);
    if (err)
        return err;
    err = file_clear(c->vfs, file, position - base, set->file_size, why);
    c->vfs->calls->close(file);
    return err;
}

enum err fileset_remove(struct cache *c, struct fileset *set, struct fault *why)
{
    bool removed = false;
    while (set->end > set->first) {
        enum err err = fileset_pop(c, set, why);
        if (err)
            return err;
        removed = true;
    }
    return removed ? c->vfs->calls->sync_dir(c->vfs, set->folder, why) : OK;
}

enum err fileset_shift(struct cache *c, struct fileset *set, struct room *owner, struct fault *why)
{
    room_enter(&c->room);
    uint64_t base = set->first;
    invariant(set->end - set->first > set->file_size); /* the last file is never removed */
    room_leave(&c->room);

    char path[PATH_SIZE];
    fileset_path(path, set->folder, base);
    enum err err = c->vfs->calls->remove(c->vfs, path, why);
    if (err == ERR_NOT_FOUND) { /* it went the last time, and the folder could not be synced */
        fault_forget(why);
        err = OK;
    }
    if (!err)
        err = c->vfs->calls->sync_dir(c->vfs, set->folder, why);
    if (err)
        return err;

    room_enter(owner);
    room_enter(&c->room);
    set->first = base + set->file_size;
    room_leave(&c->room);
    room_leave(owner);
    cache_forget(c, set, base);
    return OK;
}

void fileset_bounds(struct cache *c, const struct fileset *set, uint64_t *first, uint64_t *end)
{
    room_enter(&c->room);
    *first = set->first;
    *end = set->end;
    room_leave(&c->room);
}

enum err fileset_sync(struct cache *c, struct fileset *set, uint64_t from, uint64_t to,
                      struct fault *why)
{
    room_enter(&c->room);
    from = from > set->first ? from : set->first;
    to = to < set->end ? to : set->end;
    room_leave(&c->room);
    for (uint64_t at = from - from % set->file_size; at < to; at += set->file_size) {
        struct segment *seg;
        enum err err = segment_get(c, set, at, &seg, why);
        if (err)
            return err;
        err = segment_sync(seg, why);
        segment_drop(seg);
        if (err)
            return err;
    }
    return OK;
}

/* ---- names ---- */

struct names_wanted {
    struct names *names;
    bool folders;
};

static void names_add(void *user, const char *name, bool is_dir)
{
    struct names_wanted *wanted = user;
    struct names *names = wanted->names;
    if (is_dir != wanted->folders || names->err)
        return;
    if (names->n == names->cap) {
        size_t cap = names->cap ? names->cap * 2 : 16;
        char **bigger = realloc(names->at, cap * sizeof *bigger);
        if (!bigger) {
            names->err = ERR_NO_MEMORY;
            return;
        }
        names->at = bigger;
        names->cap = cap;
    }
    char *copy = strdup(name);
    if (copy)
        names->at[names->n++] = copy;
    else
        names->err = ERR_NO_MEMORY;
}

void names_clear(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct names){0};
}

enum err names_list(struct vfs *vfs, const char *folder, bool folders, struct names *out,
                    struct fault *why)
{
    cleanup(names_clear) struct names names = {0};
    enum err err =
        vfs->calls->list(vfs, folder, names_add, &(struct names_wanted){&names, folders}, why);
    if (!err)
        err = names.err;
    if (err && err != ERR_NOT_FOUND)
        return err;
    if (err)
        fault_forget(why); /* no folder has no names */
    *out = names;
    names = (struct names){0};
    return OK;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* 20 digits and nothing else. */
static bool name_to_base(const char *name, uint64_t *out)
{
    int64_t value;
    if (strlen(name) != 20 || strspn(name, "0123456789") != 20 ||
        !bytes_to_i64(bytes_str(name), &value))
        return false;
    *out = (uint64_t)value;
    return true;
}

enum err fileset_list(struct vfs *vfs, const char *folder, uint64_t **out, size_t *n,
                      struct fault *why)
{
    cleanup(names_clear) struct names names = {0};
    enum err err = names_list(vfs, folder, false, &names, why);
    if (err)
        return err;
    uint64_t *bases = calloc(names.n + 1, sizeof *bases);
    if (!bases)
        return ERR_NO_MEMORY;
    size_t count = 0;
    for (size_t i = 0; i < names.n; i++)
        count += name_to_base(names.at[i], &bases[count]);
    qsort(bases, count, sizeof *bases, by_value);
    *out = bases;
    *n = count;
    return OK;
}

enum err vfs_file_size(struct vfs *vfs, const char *path, uint64_t *out, struct fault *why)
{
    struct vfs_file *file;
    enum err err = vfs->calls->open(vfs, path, VFS_READ, &file, why);
    if (err)
        return err;
    err = vfs->calls->size(file, out, why);
    vfs->calls->close(file);
    return err;
}
