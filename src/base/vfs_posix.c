/* vfs_posix.c - vfs on the kernel's files, below one folder that is held open. */
#include "base/vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PARTS_AT_ONCE 64

struct posix {
    struct vfs vfs;
    int dir;
    char *folder; /* only for sentences */
};

struct vfs_file {
    int fd;
    char *name; /* with the folder; only for sentences */
};

static const struct vfs_calls posix_calls;

/* Runs a call again for as long as a signal interrupts it. */
#define AGAIN(call)                                                                                \
    __extension__({                                                                                \
        __typeof__(call) again_;                                                                   \
        do                                                                                         \
            again_ = (call);                                                                       \
        while (again_ < 0 && errno == EINTR);                                                      \
        again_;                                                                                    \
    })

static struct posix *posix_of(struct vfs *v)
{
    return (struct posix *)v;
}

/* "" is the folder itself, as "." is. */
static const char *inside(const char *path)
{
    return path[0] ? path : ".";
}

/* Makes one folder; one that is there already is fine. */
static int make_folder(int at, const char *path)
{
    if (mkdirat(at, path, 0755) == 0)
        return 0;
    struct stat s;
    if (errno != EEXIST || fstatat(at, path, &s, 0) < 0)
        return -1;
    if (S_ISDIR(s.st_mode))
        return 0;
    errno = ENOTDIR;
    return -1;
}

/* Makes a folder with all its parents; `shown` is what a sentence calls it. */
static enum err make_folders(int at, const char *path, const char *shown, struct fault *why)
{
    cleanup(free_at) char *copy = strdup(path);
    if (!copy)
        return ERR_NO_MEMORY;
    for (char *slash = copy; (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
        *slash = '\0';
        if (make_folder(at, copy) < 0)
            return fault_os(why, "making folder %s", shown);
    }
    if (make_folder(at, copy) < 0)
        return fault_os(why, "making folder %s", shown);
    return OK;
}

enum err vfs_posix_open(const char *folder, struct vfs **out, struct fault *why)
{
    enum err err = make_folders(AT_FDCWD, inside(folder), folder, why);
    return err ? err : vfs_posix_find(folder, out, why);
}

enum err vfs_posix_find(const char *folder, struct vfs **out, struct fault *why)
{
    cleanup(free_at) struct posix *p = calloc(1, sizeof *p);
    cleanup(free_at) char *name = strdup(folder);
    if (!p || !name)
        return ERR_NO_MEMORY;
    p->vfs.calls = &posix_calls;
    p->dir = AGAIN(open(inside(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (p->dir < 0)
        return fault_os(why, "opening folder %s", folder);
    p->folder = take(&name);
    *out = &take(&p)->vfs;
    return OK;
}

static void posix_dispose(struct vfs *v)
{
    if (!v)
        return;
    struct posix *p = posix_of(v);
    (void)close(p->dir);
    free(p->folder);
    free(p);
}

/* ---- one file ---- */

static enum err posix_open(struct vfs *v, const char *path, enum vfs_mode mode,
                           struct vfs_file **out, struct fault *why)
{
    static const int flags[] = {
        [VFS_READ] = O_RDONLY,
        [VFS_WRITE] = O_RDWR,
        [VFS_AROUND] = O_RDWR | O_DIRECT,
        [VFS_CREATE] = O_RDWR | O_CREAT,
        [VFS_FRESH] = O_RDWR | O_CREAT | O_TRUNC,
    };
    struct posix *p = posix_of(v);
    cleanup(free_at) struct vfs_file *f = calloc(1, sizeof *f);
    cleanup(free_at) char *name = NULL;
    if (!f || asprintf(&name, "%s/%s", p->folder, path) < 0) {
        name = NULL;
        return ERR_NO_MEMORY;
    }
    f->fd = AGAIN(openat(p->dir, path, flags[mode] | O_CLOEXEC, 0644));
    if (f->fd < 0 && errno == EINVAL && mode == VFS_AROUND) /* this file system cannot */
        f->fd = AGAIN(openat(p->dir, path, flags[VFS_WRITE] | O_CLOEXEC, 0644));
    if (f->fd < 0)
        return fault_os(why, "opening %s", name);
    f->name = take(&name);
    *out = take(&f);
    return OK;
}

static void posix_close(struct vfs_file *f)
{
    if (!f)
        return;
    (void)close(f->fd);
    free(f->name);
    free(f);
}

static enum err posix_size(struct vfs_file *f, uint64_t *out, struct fault *why)
{
    struct stat s;
    if (fstat(f->fd, &s) < 0)
        return fault_os(why, "asking for the size of %s", f->name);
    *out = (uint64_t)s.st_size;
    return OK;
}

static enum err posix_resize(struct vfs_file *f, uint64_t size, struct fault *why)
{
    if (AGAIN(ftruncate(f->fd, (off_t)size)) < 0)
        return fault_os(why, "resizing %s to %" PRIu64 " bytes", f->name, size);
    return OK;
}

static enum err posix_clear(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (AGAIN(fallocate(f->fd, mode, (off_t)at, (off_t)n)) < 0)
        return fault_os(why, "clearing %s from %" PRIu64 " on", f->name, at);
    return OK;
}

/* A file system that lives in memory would take that memory now. */
static enum err posix_reserve(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    struct statfs s;
    if (fstatfs(f->fd, &s) < 0)
        return fault_os(why, "asking what file system %s is on", f->name);
    if (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC)
        return fault_set(why, ERR_UNSUPPORTED, "%s is in memory", f->name);
    if (AGAIN(fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n)) < 0)
        return fault_os(why, "reserving %" PRIu64 " bytes of %s", n, f->name);
    return OK;
}

/* The parts from number i on, of which the first `skip` bytes are written already. */
static int gather(const struct iovec *parts, int n, int i, size_t skip, struct iovec *window)
{
    int count = 0;
    for (; i < n && count < PARTS_AT_ONCE; i++, skip = 0) {
        if (parts[i].iov_len > skip)
            window[count++] =
                (struct iovec){(char *)parts[i].iov_base + skip, parts[i].iov_len - skip};
    }
    return count;
}

static enum err posix_write(struct vfs_file *f, uint64_t at, const struct iovec *parts, int n,
                            struct fault *why)
{
    int i = 0;
    size_t skip = 0; /* of part i */
    struct iovec window[PARTS_AT_ONCE];
    for (int count; (count = gather(parts, n, i, skip, window)) > 0;) {
        ssize_t done = AGAIN(pwritev(f->fd, window, count, (off_t)at));
        if (done == 0)
            errno = EIO; /* the kernel never says so; if it did we would turn here for ever */
        if (done <= 0)
            return fault_os(why, "writing %s at %" PRIu64, f->name, at);
        at += (uint64_t)done;
        skip += (size_t)done;
        while (i < n && skip >= parts[i].iov_len)
            skip -= parts[i++].iov_len;
    }
    return OK;
}

static enum err posix_read(struct vfs_file *f, uint64_t at, void *into, size_t n, struct fault *why)
{
    for (uint8_t *to = into; n > 0;) {
        ssize_t done = AGAIN(pread(f->fd, to, n, (off_t)at));
        if (done < 0)
            return fault_os(why, "reading %s at %" PRIu64, f->name, at);
        if (done == 0)
            return fault_set(why, ERR_RANGE, "reading %s: it ends at %" PRIu64 ", %zu bytes early",
                             f->name, at, n);
        to += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return OK;
}

/* A file system that cannot tell says that everything was. */
static uint64_t posix_next_data(struct vfs_file *f, uint64_t at)
{
    struct stat s;
    off_t found = lseek(f->fd, (off_t)at, SEEK_DATA);
    if (found >= 0)
        return (uint64_t)found;
    return errno == ENXIO && fstat(f->fd, &s) == 0 && (uint64_t)s.st_size > at ? (uint64_t)s.st_size
                                                                               : at;
}

static enum err posix_sync(struct vfs_file *f, struct fault *why)
{
    if (AGAIN(fdatasync(f->fd)) < 0)
        return fault_os(why, "syncing %s", f->name);
    return OK;
}

static enum err posix_push(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why)
{
    const unsigned all =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (AGAIN(sync_file_range(f->fd, (off_t)at, (off_t)n, all)) < 0) {
        bool about_bytes = errno == EIO || errno == ENOSPC || errno == EDQUOT;
        enum err err = fault_os(why, "writing out %s", f->name);
        return about_bytes ? err : ERR_UNSUPPORTED;
    }
    (void)posix_fadvise(f->fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
    return OK;
}

/* The size is checked because a touch behind the end of the file would be a SIGBUS. */
static enum err posix_map(struct vfs_file *f, uint64_t size, const uint8_t **out, struct fault *why)
{
    uint64_t there = 0;
    enum err err = posix_size(f, &there, why);
    if (err)
        return err;
    if (size == 0 || size > there)
        return fault_set(why, ERR_RANGE, "mapping %" PRIu64 " bytes of %s, which has %" PRIu64,
                         size, f->name, there);
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (at == MAP_FAILED)
        return fault_os(why, "mapping %s", f->name);
    *out = at;
    return OK;
}

static void posix_unmap(struct vfs_file *f, const uint8_t *at, uint64_t size)
{
    (void)f;
    void *mapped;
    memcpy(&mapped, &at, sizeof mapped); /* munmap takes no const */
    invariant(munmap(mapped, size) == 0);
}

/* A record lock, because that is what Java's FileLock makes and sees: neither an Apache broker nor
 * one of ours can start on a folder that the other is using. */
static enum err posix_lock(struct vfs_file *f, struct fault *why)
{
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    struct flock wanted = whole;
    if (AGAIN(fcntl(f->fd, F_SETLK, &wanted)) == 0)
        return OK;
    if (errno != EACCES && errno != EAGAIN)
        return fault_os(why, "locking %s", f->name);

    struct flock holder = whole;
    if (fcntl(f->fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK && holder.l_pid > 0)
        return fault_set(why, ERR_IN_USE, "%s is in use by process %ld", f->name,
                         (long)holder.l_pid);
    return fault_set(why, ERR_IN_USE, "%s is in use by another process",
                     f->name); /* gone, or not of our machine */
}

/* ---- names ---- */

static enum err posix_mkdir(struct vfs *v, const char *path, struct fault *why)
{
    struct posix *p = posix_of(v);
    enum err err = make_folders(p->dir, inside(path), path, why);
    return err ? fault_add(why, err, "in %s", p->folder) : OK;
}

static enum err posix_rename(struct vfs *v, const char *from, const char *to, struct fault *why)
{
    struct posix *p = posix_of(v);
    if (renameat(p->dir, from, p->dir, to) < 0)
        return fault_os(why, "renaming %s/%s to %s", p->folder, from, to);
    return OK;
}

static enum err posix_remove(struct vfs *v, const char *path, struct fault *why)
{
    struct posix *p = posix_of(v);
    if (unlinkat(p->dir, path, 0) == 0)
        return OK;
    if (errno == EISDIR && unlinkat(p->dir, path, AT_REMOVEDIR) == 0)
        return OK;
    return fault_os(why, "removing %s/%s", p->folder, path);
}

static enum err posix_sync_dir(struct vfs *v, const char *path, struct fault *why)
{
    struct posix *p = posix_of(v);
    cleanup(close_at) int dir =
        AGAIN(openat(p->dir, inside(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (dir < 0)
        return fault_os(why, "opening folder %s/%s", p->folder, path);
    if (AGAIN(fsync(dir)) < 0)
        return fault_os(why, "syncing folder %s/%s", p->folder, path);
    return OK;
}

static enum err posix_sync_all(struct vfs *v, struct fault *why)
{
    struct posix *p = posix_of(v);
    if (AGAIN(syncfs(p->dir)) < 0)
        return fault_os(why, "syncing the disk of %s", p->folder);
    return OK;
}

static bool is_folder(int dir, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    struct stat s;
    return fstatat(dir, entry->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
}

static enum err posix_list(struct vfs *v, const char *path,
                           void (*each)(void *user, const char *name, bool is_dir), void *user,
                           struct fault *why)
{
    struct posix *p = posix_of(v);
    cleanup(close_at) int fd =
        AGAIN(openat(p->dir, inside(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return fault_os(why, "opening folder %s/%s", p->folder, path);
    (void)take_fd(&fd); /* closedir closes it */

    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(user, entry->d_name, is_folder(dirfd(dir), entry));
    }
    enum err err = errno ? fault_os(why, "reading folder %s/%s", p->folder, path) : OK;
    (void)closedir(dir);
    return err;
}

static enum err posix_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    struct posix *p = posix_of(v);
    struct statvfs s;
    if (AGAIN(fstatvfs(p->dir, &s)) < 0)
        return fault_os(why, "asking for the space on the disk of %s", p->folder);
    uint64_t unit = s.f_frsize;
    *out = (struct vfs_space){s.f_blocks * unit, s.f_bfree * unit, s.f_bavail * unit};
    return OK;
}

static const struct vfs_calls posix_calls = {
    .open = posix_open,
    .close = posix_close,
    .size = posix_size,
    .resize = posix_resize,
    .clear = posix_clear,
    .reserve = posix_reserve,
    .write = posix_write,
    .read = posix_read,
    .next_data = posix_next_data,
    .sync = posix_sync,
    .push = posix_push,
    .map = posix_map,
    .unmap = posix_unmap,
    .lock = posix_lock,
    .mkdir = posix_mkdir,
    .rename = posix_rename,
    .remove = posix_remove,
    .sync_all = posix_sync_all,
    .sync_dir = posix_sync_dir,
    .list = posix_list,
    .space = posix_space,
    .dispose = posix_dispose,
};
