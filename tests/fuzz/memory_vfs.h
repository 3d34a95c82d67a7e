/* memory_vfs.h - a disk in memory, for targets that open a whole store some thousand times a
 * second.
 *
 * Each file is one allocation of exactly its size, so the address sanitizer sees a read one byte
 * behind it. A file that was removed stays until the end: somebody may have it mapped.
 */
#ifndef FUZZ_MEMORY_VFS_H
#define FUZZ_MEMORY_VFS_H

#include "base/vfs.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_FILES 512
#define MEMORY_MOST  (1u << 20) /* bytes of one file */

struct vfs_file {
    char path[400];
    uint8_t *at;
    size_t size, cap;
    uint8_t *before; /* what it was while it was smaller; somebody may have it mapped */
    bool removed;
};

struct memory_vfs {
    struct vfs vfs;
    struct vfs_file *files[MEMORY_FILES];
    size_t n;
};

static inline struct vfs_file *memory_find(struct memory_vfs *m, const char *path)
{
    for (size_t i = 0; i < m->n; i++) {
        if (!m->files[i]->removed && strcmp(m->files[i]->path, path) == 0)
            return m->files[i];
    }
    return NULL;
}

static inline enum err memory_resize(struct vfs_file *f, uint64_t size, struct fault *why)
{
    if (size > MEMORY_MOST)
        return fault_set(why, ERR_DISK_FULL, "%s would be too big", f->path);
    if (size > f->cap) {
        if (f->before)
            return fault_set(why, ERR_DISK_FULL, "%s has grown twice", f->path);
        uint8_t *bigger = calloc(1, size);
        invariant(bigger);
        if (f->size)
            memcpy(bigger, f->at, f->size);
        f->before = f->at;
        f->at = bigger;
        f->cap = size;
    } else if (size > f->size) {
        memset(f->at + f->size, 0, size - f->size);
    }
    f->size = size;
    return OK;
}

static inline enum err memory_open(struct vfs *v, const char *path, enum vfs_mode mode,
                                   struct vfs_file **out, struct fault *why)
{
    struct memory_vfs *m = (struct memory_vfs *)v;
    struct vfs_file *f = memory_find(m, path);
    if (!f && (mode == VFS_READ || mode == VFS_WRITE))
        return fault_set(why, ERR_NOT_FOUND, "opening %s: not there", path);
    if (f && mode == VFS_FRESH)
        f->size = 0;
    if (!f) {
        if (m->n == MEMORY_FILES)
            return fault_set(why, ERR_DISK_FULL, "no room for %s", path);
        f = calloc(1, sizeof *f);
        invariant(f);
        invariant(strlen(path) < sizeof f->path);
        memcpy(f->path, path, strlen(path));
        m->files[m->n++] = f;
    }
    *out = f;
    return OK;
}

static inline void memory_close(struct vfs_file *f)
{
    (void)f;
}

static inline enum err memory_size(struct vfs_file *f, uint64_t *out, struct fault *why)
{
    (void)why;
    *out = f->size;
    return OK;
}

static inline enum err memory_write(struct vfs_file *f, uint64_t at, const struct iovec *parts,
                                    int n, struct fault *why)
{
    for (int i = 0; i < n; i++) {
        size_t len = parts[i].iov_len;
        if (at + len > f->size) {
            enum err err = memory_resize(f, at + len, why);
            if (err)
                return err;
        }
        if (len)
            memcpy(f->at + at, parts[i].iov_base, len);
        at += len;
    }
    return OK;
}

static inline enum err memory_read(struct vfs_file *f, uint64_t at, void *into, size_t n,
                                   struct fault *why)
{
    if (at > f->size || n > f->size - at)
        return fault_set(why, ERR_RANGE, "%s ends before", f->path);
    if (n)
        memcpy(into, f->at + at, n);
    return OK;
}

static inline enum err memory_sync(struct vfs_file *f, struct fault *why)
{
    (void)f, (void)why;
    return OK;
}

static inline enum err memory_map(struct vfs_file *f, uint64_t size, const uint8_t **out,
                                  struct fault *why)
{
    if (size > f->size)
        return fault_set(why, ERR_RANGE, "%s is shorter", f->path);
    *out = f->at;
    return OK;
}

static inline void memory_unmap(struct vfs_file *f, const uint8_t *at, uint64_t size)
{
    (void)f, (void)at, (void)size;
}

static inline enum err memory_folder(struct vfs *v, const char *path, struct fault *why)
{
    (void)v, (void)path, (void)why;
    return OK; /* folders are there as soon as something is in them */
}

static inline enum err memory_remove(struct vfs *v, const char *path, struct fault *why)
{
    struct vfs_file *f = memory_find((struct memory_vfs *)v, path);
    if (!f)
        return fault_set(why, ERR_NOT_FOUND, "removing %s: not there", path);
    f->removed = true;
    return OK;
}

static inline enum err memory_rename(struct vfs *v, const char *from, const char *to,
                                     struct fault *why)
{
    struct memory_vfs *m = (struct memory_vfs *)v;
    struct vfs_file *f = memory_find(m, from), *there = memory_find(m, to);
    if (!f)
        return fault_set(why, ERR_NOT_FOUND, "renaming %s: not there", from);
    if (there)
        there->removed = true;
    memset(f->path, 0, sizeof f->path);
    invariant(strlen(to) < sizeof f->path);
    memcpy(f->path, to, strlen(to));
    return OK;
}

/* The name that file i adds to the folder; false: none, or one that an earlier file has added. */
static inline bool memory_entry(const struct memory_vfs *m, size_t i, const char *folder,
                                char name[400], bool *is_dir)
{
    size_t len = strlen(folder);
    const char *path = m->files[i]->path;
    if (m->files[i]->removed || strncmp(path, folder, len) != 0 || (len && path[len] != '/'))
        return false;
    path += len ? len + 1 : 0;
    size_t own = strcspn(path, "/");
    *is_dir = path[own] == '/';
    memcpy(name, path, own);
    name[own] = 0;
    return true;
}

static inline enum err memory_list(struct vfs *v, const char *path,
                                   void (*each)(void *user, const char *name, bool is_dir),
                                   void *user, struct fault *why)
{
    struct memory_vfs *m = (struct memory_vfs *)v;
    bool any = path[0] == 0;
    for (size_t i = 0; i < m->n; i++) {
        char name[400], other[400];
        bool is_dir, other_dir, again = false;
        if (!memory_entry(m, i, path, name, &is_dir))
            continue;
        for (size_t k = 0; k < i && !again; k++)
            again = memory_entry(m, k, path, other, &other_dir) && strcmp(name, other) == 0;
        if (!again)
            each(user, name, is_dir);
        any = true;
    }
    return any ? OK : fault_set(why, ERR_NOT_FOUND, "no folder %s", path);
}

static inline enum err memory_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    (void)v, (void)why;
    *out = (struct vfs_space){1u << 30, 1u << 29, 1u << 29};
    return OK;
}

static const struct vfs_calls memory_calls = {
    .open = memory_open,
    .close = memory_close,
    .size = memory_size,
    .resize = memory_resize,
    .write = memory_write,
    .read = memory_read,
    .sync = memory_sync,
    .map = memory_map,
    .unmap = memory_unmap,
    .lock = memory_sync,
    .mkdir = memory_folder,
    .rename = memory_rename,
    .remove = memory_remove,
    .sync_dir = memory_folder,
    .list = memory_list,
    .space = memory_space,
};

static inline void memory_init(struct memory_vfs *m)
{
    *m = (struct memory_vfs){.vfs = {&memory_calls}};
}

static inline void memory_clear(struct memory_vfs *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->files[i]->at);
        free(m->files[i]->before);
        free(m->files[i]);
    }
    m->n = 0;
}

/* A file with this content; whatever is missing to `size` is zeros. */
static inline void memory_put(struct memory_vfs *m, const char *path, struct bytes content,
                              size_t size)
{
    struct vfs_file *f = NULL;
    invariant(memory_open(&m->vfs, path, VFS_FRESH, &f, NULL) == OK);
    invariant(memory_resize(f, size, NULL) == OK);
    size_t n = content.len < size ? content.len : size;
    if (n)
        memcpy(f->at, content.at, n);
}

static inline void memory_copy(const struct memory_vfs *from, struct memory_vfs *to)
{
    memory_init(to);
    for (size_t i = 0; i < from->n; i++) {
        const struct vfs_file *f = from->files[i];
        if (!f->removed)
            memory_put(to, f->path, bytes_of(f->at, f->size), f->size);
    }
}

#endif
