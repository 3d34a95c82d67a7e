/* disk_test.h - a disk that fails at the n-th operation that writes.
 *
 * Only for the x_test.c files of this folder. There is one such disk in a program.
 */
#ifndef BROKER_DISK_TEST_H
#define BROKER_DISK_TEST_H

#include "base/vfs.h"

static struct {
    struct vfs vfs;
    struct vfs_calls calls;
    struct vfs *inner;
    int left;   /* operations until one fails, and all after it; negative: none will */
    bool blind; /* nothing that is not mapped yet can be */
} disk;

static inline enum err disk_step(struct fault *why)
{
    if (disk.left != 0) {
        disk.left -= disk.left > 0;
        return OK;
    }
    return fault_set(why, ERR_IO, "the disk fails");
}

static inline enum err disk_open(struct vfs *v, const char *path, enum vfs_mode mode,
                                 struct vfs_file **out, struct fault *why)
{
    enum err err = mode == VFS_READ ? OK : disk_step(why);
    return err ? err : disk.inner->calls->open(disk.inner, path, mode, out, why);
}

static inline enum err disk_write(struct vfs_file *f, uint64_t at, const struct iovec *parts, int n,
                                  struct fault *why)
{
    enum err err = disk_step(why);
    return err ? err : disk.inner->calls->write(f, at, parts, n, why);
}

static inline enum err disk_sync(struct vfs_file *f, struct fault *why)
{
    enum err err = disk_step(why);
    return err ? err : disk.inner->calls->sync(f, why);
}

static inline enum err disk_rename(struct vfs *v, const char *from, const char *to,
                                   struct fault *why)
{
    enum err err = disk_step(why);
    return err ? err : disk.inner->calls->rename(disk.inner, from, to, why);
}

static inline enum err disk_remove(struct vfs *v, const char *path, struct fault *why)
{
    return disk.inner->calls->remove(disk.inner, path, why);
}

static inline enum err disk_sync_dir(struct vfs *v, const char *path, struct fault *why)
{
    enum err err = disk_step(why);
    return err ? err : disk.inner->calls->sync_dir(disk.inner, path, why);
}

static inline enum err disk_mkdir(struct vfs *v, const char *path, struct fault *why)
{
    return disk.inner->calls->mkdir(disk.inner, path, why);
}

static inline enum err disk_list(struct vfs *v, const char *path,
                                 void (*each)(void *user, const char *name, bool is_dir),
                                 void *user, struct fault *why)
{
    return disk.inner->calls->list(disk.inner, path, each, user, why);
}

static inline enum err disk_map(struct vfs_file *f, uint64_t size, const uint8_t **out,
                                struct fault *why)
{
    return disk.blind ? fault_set(why, ERR_NO_MEMORY, "the disk cannot be mapped")
                      : disk.inner->calls->map(f, size, out, why);
}

/* The same files, seen through the disk. */
static inline struct vfs *disk_over(struct vfs *inner)
{
    disk.inner = inner;
    disk.left = -1;
    disk.blind = false;
    disk.calls = *inner->calls;
    disk.calls.open = disk_open;
    disk.calls.write = disk_write;
    disk.calls.sync = disk_sync;
    disk.calls.map = disk_map;
    disk.calls.rename = disk_rename;
    disk.calls.remove = disk_remove;
    disk.calls.sync_dir = disk_sync_dir;
    disk.calls.mkdir = disk_mkdir;
    disk.calls.list = disk_list;
    disk.vfs.calls = &disk.calls;
    return &disk.vfs;
}

#endif
