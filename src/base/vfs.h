/* vfs.h - files as a parameter.
 *
 * The store does everything on disk through this table of functions, so that a test can stand
 * between it and the disk: fail operation n, tear a write, forget what was not synced. Writing goes
 * through write(), reading through a shared read-only mapping; the kernel keeps the two in step.
 * A full or failing disk is therefore an error code and never a signal. Paths are relative to the
 * folder the vfs was opened on; "" is that folder itself. A name that was made, renamed or removed
 * is sure to survive a loss of power only after sync_dir() of its folder.
 *
 * ERR_BUSY from any call: there was no free handle to open something with. Nothing was done, a sync
 * was not even begun, so it may be tried again. That is not so for any other failure of a sync.
 *
 * Each implementation has its own `struct vfs_file`; it goes back only to the vfs it came from.
 *
 * Threads: any, also on one file; the caller keeps close() and unmap() apart from the rest.
 */
#ifndef BASE_VFS_H
#define BASE_VFS_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>
#include <sys/uio.h>

struct vfs_file;

enum vfs_mode {
    VFS_READ,   /* must exist */
    VFS_WRITE,  /* must exist */
    VFS_AROUND, /* must exist; past the kernel's memory, where the file system can: memory, place
                   and length of what is written are multiples of 4096 */
    VFS_CREATE, /* created if missing, kept if there */
    VFS_FRESH   /* created or emptied */
};

struct vfs {
    const struct vfs_calls *calls;
};

/* Of the disk that a folder is on, in bytes. What is free is not all available: some is kept for
 * the system. */
struct vfs_space {
    uint64_t total, free, available;
};

struct vfs_calls {
    enum err (*open)(struct vfs *v, const char *path, enum vfs_mode mode, struct vfs_file **out,
                     struct fault *why);
    void (*close)(struct vfs_file *f);
    enum err (*size)(struct vfs_file *f, uint64_t *out, struct fault *why);
    enum err (*resize)(struct vfs_file *f, uint64_t size, struct fault *why);
    /* Makes zeros of n bytes that are in the file; what others see of its size never changes. NULL,
     * or an error: it cannot, and some of them may be zeros now. */
    enum err (*clear)(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why);
    /* Sees to it that n bytes of the file have their place on the disk: what is written there later
     * needs none to be found. Nothing that can be read changes. NULL, or an error: it cannot, and
     * some of them may have one now. */
    enum err (*reserve)(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why);
    /* All of it or an error; a short write is continued inside. */
    enum err (*write)(struct vfs_file *f, uint64_t at, const struct iovec *parts, int n,
                      struct fault *why);
    /* All n bytes; ERR_RANGE if the file ends before. */
    enum err (*read)(struct vfs_file *f, uint64_t at, void *into, size_t n, struct fault *why);
    /* Where, from `at` on, something was written, as far as the disk knows: in front of it there
     * are zeros that need not be read. The file's size when there is nothing. NULL: nobody knows.
     */
    uint64_t (*next_data)(struct vfs_file *f, uint64_t at);
    enum err (*sync)(struct vfs_file *f, struct fault *why); /* fdatasync */
    /* Brings some bytes to the disk, waits for them and forgets them in memory, but promises
     * nothing: it leaves less to do for a later sync. ERR_UNSUPPORTED: it cannot do that. Any other
     * error may be about other bytes of the file, and a later sync need not tell it again. */
    enum err (*push)(struct vfs_file *f, uint64_t at, uint64_t n, struct fault *why);
    /* The first `size` bytes, read only, shared with writers; ERR_RANGE if the file is shorter.
     * When it is made shorter while it is mapped, the part that was cut off must not be touched. */
    enum err (*map)(struct vfs_file *f, uint64_t size, const uint8_t **out, struct fault *why);
    void (*unmap)(struct vfs_file *f, const uint8_t *at, uint64_t size);
    /* Exclusive lock on byte 0, against other processes; ERR_IN_USE with the holder's pid in the
     * sentence. It lasts until close() of any handle of that file in this process: open it once. */
    enum err (*lock)(struct vfs_file *f, struct fault *why);
    /* With parents; fine if it is there. */
    enum err (*mkdir)(struct vfs *v, const char *path, struct fault *why);
    enum err (*rename)(struct vfs *v, const char *from, const char *to, struct fault *why);
    /* A file or an empty folder. */
    enum err (*remove)(struct vfs *v, const char *path, struct fault *why);
    /* Everything on this disk at once: for when there would be very many to sync one by one. */
    enum err (*sync_all)(struct vfs *v, struct fault *why);
    enum err (*sync_dir)(struct vfs *v, const char *path, struct fault *why);
    /* Names in a folder, in no order, without "." and ".."; ERR_NOT_FOUND if there is no folder.
     * `each` must not change the folder. */
    enum err (*list)(struct vfs *v, const char *path,
                     void (*each)(void *user, const char *name, bool is_dir), void *user,
                     struct fault *why);
    enum err (*space)(struct vfs *v, struct vfs_space *out, struct fault *why);
    void (*dispose)(struct vfs *v);
};

/* The kernel's files below a folder, which is made if it is missing. */
must_check enum err vfs_posix_open(const char *folder, struct vfs **out, struct fault *why);
/* The same for one that must be there. */
must_check enum err vfs_posix_find(const char *folder, struct vfs **out, struct fault *why);

/* ---- over any vfs ---- */

/* The caller frees *out, which has a zero behind its end. ERR_TOO_BIG above `max`. */
must_check enum err vfs_read_all(struct vfs *v, const char *path, size_t max, uint8_t **out,
                                 size_t *len, struct fault *why);

/* Replaces a file so that at any instant, also after power loss, either the old or the new content
 * is there as `path`: the old one copied to path.bak, the new one to path.tmp, synced, renamed, and
 * the folder synced. Two calls for one path must not overlap. */
must_check enum err vfs_replace(struct vfs *v, const char *path, struct bytes content,
                                struct fault *why);

#endif
