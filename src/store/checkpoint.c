/* checkpoint.c - the three small files of the root folder.
 *
 * - checkpoint: how far log and queues are on disk, as store times; 4096 bytes, the first 40 are
 *   Apache's.
 * - abort: there while a store is open; the next open must distrust everything.
 * - lock: locked while a store is open.
 *
 * A clean stop seals the checkpoint: where the log ended and how many units all queues had. When
 * the next start counts less, queue files were lost in between.
 */
#include "base/crc32.h"
#include "store/store_int.h"

#include <stdio.h>
#include <unistd.h>

#define SEAL_AT    2048 /* far from anything Apache may add */
#define SEAL_MAGIC 0x4f4d5131u
#define SEAL_SIZE  32
#define SLACK_MS   3000 /* store times are not a sharp line: Apache's own margin */

enum err checkpoint_read(struct vfs *vfs, struct checkpoint *out, struct fault *why)
{
    cleanup(free_at) uint8_t *text = NULL;
    size_t len = 0;
    enum err err = vfs_read_all(vfs, "checkpoint", CHECKPOINT_SIZE, &text, &len, why);
    if (err == ERR_NOT_FOUND || err == ERR_TOO_BIG || (!err && len != CHECKPOINT_SIZE)) {
        *out = (struct checkpoint){0}; /* nothing is known: recovery starts at the first file */
        fault_forget(why);
        return OK;
    }
    if (err)
        return err;

    struct rd r = rd_over(bytes_of(text, len));
    struct checkpoint c = {0};
    c.log_ms = (int64_t)rd_u64(&r);
    c.queues_ms = (int64_t)rd_u64(&r);
    c.index_ms = (int64_t)rd_u64(&r);
    c.master_flushed = rd_u64(&r);
    c.confirmed = rd_u64(&r);

    struct bytes seal = bytes_of(text + SEAL_AT, SEAL_SIZE);
    struct rd s = rd_over(seal);
    uint32_t magic = rd_u32(&s);
    c.sealed_first = rd_u64(&s);
    c.sealed_end = rd_u64(&s);
    c.sealed_units = rd_u64(&s);
    uint32_t crc = rd_u32(&s);
    c.sealed = magic == SEAL_MAGIC && crc == crc32_of(bytes_of(seal.at, SEAL_SIZE - 4));
    *out = c;
    return OK;
}

enum err checkpoint_write(struct vfs *vfs, const struct checkpoint *c, struct fault *why)
{
    uint8_t text[CHECKPOINT_SIZE] = {0};
    struct wr w = wr_over(text, SEAL_AT);
    wr_u64(&w, (uint64_t)c->log_ms);
    wr_u64(&w, (uint64_t)c->queues_ms);
    wr_u64(&w, (uint64_t)c->index_ms);
    wr_u64(&w, c->master_flushed);
    wr_u64(&w, c->confirmed);
    if (c->sealed) {
        struct wr s = wr_over(text + SEAL_AT, SEAL_SIZE);
        wr_u32(&s, SEAL_MAGIC);
        wr_u64(&s, c->sealed_first);
        wr_u64(&s, c->sealed_end);
        wr_u64(&s, c->sealed_units);
        wr_u32(&s, crc32_of(wr_bytes(&s)));
    }

    struct vfs_file *file;
    enum err err = vfs->calls->open(vfs, "checkpoint", VFS_CREATE, &file, why);
    if (err)
        return err;
    struct iovec part = {text, sizeof text};
    uint64_t size;
    err = vfs->calls->size(file, &size, why);
    if (!err && size > CHECKPOINT_SIZE) /* one of another size is not read */
        err = vfs->calls->resize(file, CHECKPOINT_SIZE, why);
    if (!err)
        err = vfs->calls->write(file, 0, &part, 1, why);
    if (!err)
        err = vfs->calls->sync(file, why);
    vfs->calls->close(file);
    return err;
}

int64_t checkpoint_start_ms(const struct checkpoint *c)
{
    int64_t least = c->log_ms < c->queues_ms ? c->log_ms : c->queues_ms;
    return least > SLACK_MS ? least - SLACK_MS : 0;
}

bool checkpoint_has(const struct checkpoint *c, int64_t store_ms)
{
    return store_ms + SLACK_MS <= c->log_ms;
}

/* ---- lock and abort ---- */

static enum err write_text(struct vfs *vfs, struct vfs_file *file, char *text, size_t len,
                           struct fault *why)
{
    struct iovec part = {text, len};
    enum err err = vfs->calls->resize(file, len, why);
    return err ? err : vfs->calls->write(file, 0, &part, 1, why);
}

enum err lock_take(struct vfs *vfs, struct vfs_file **out, struct fault *why)
{
    struct vfs_file *file;
    char text[] = "lock";
    enum err err = vfs->calls->open(vfs, "lock", VFS_CREATE, &file, why);
    if (err)
        return err;
    err = vfs->calls->lock(file, why);
    if (!err)
        err = write_text(vfs, file, text, strlen(text), why);
    if (err)
        vfs->calls->close(file);
    else
        *out = file;
    return err;
}

enum err abort_exists(struct vfs *vfs, bool *out, struct fault *why)
{
    struct vfs_file *file;
    enum err err = vfs->calls->open(vfs, "abort", VFS_READ, &file, why);
    if (!err)
        vfs->calls->close(file);
    if (err && err != ERR_NOT_FOUND)
        return err;
    fault_forget(why);
    *out = !err;
    return OK;
}

/* It is on disk before anything else changes: without it a power loss would look like a clean stop.
 */
enum err abort_write(struct vfs *vfs, struct fault *why)
{
    char pid[24];
    int len = snprintf(pid, sizeof pid, "%ld", (long)getpid());
    struct vfs_file *file;
    enum err err = vfs->calls->open(vfs, "abort", VFS_FRESH, &file, why);
    if (err)
        return err;
    err = write_text(vfs, file, pid, (size_t)len, why);
    if (!err)
        err = vfs->calls->sync(file, why);
    vfs->calls->close(file);
    return err ? err : vfs->calls->sync_dir(vfs, ".", why);
}

enum err abort_remove(struct vfs *vfs, struct fault *why)
{
    enum err err = vfs->calls->remove(vfs, "abort", why);
    return err ? err : vfs->calls->sync_dir(vfs, ".", why);
}
