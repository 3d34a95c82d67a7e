/* check.c - is a folder sound? Looks at everything and touches nothing.
 *
 * Whatever is opened goes through a guard: a vfs that opens for reading only and refuses each call
 * that would change something, so that the code below can be that of an open store.
 *
 * A finding is damage when there is evidence that something was stored: a record that follows, a
 * unit, the checkpoint or its seal. Rubbish behind the end of the log is what every crash leaves.
 */
#include "store/check_int.h"

#include "base/dice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the guard ---- */

struct guard {
    struct vfs vfs;
    struct vfs_calls calls;
    struct vfs *inner;
};

static enum err guard_open(struct vfs *v, const char *path, enum vfs_mode mode,
                           struct vfs_file **out, struct fault *why)
{
    struct guard *g = (struct guard *)v;
    invariant(mode == VFS_READ || mode == VFS_WRITE); /* a check makes no files */
    return g->inner->calls->open(g->inner, path, VFS_READ, out, why);
}

static enum err guard_list(struct vfs *v, const char *path,
                           void (*each)(void *user, const char *name, bool is_dir), void *user,
                           struct fault *why)
{
    struct guard *g = (struct guard *)v;
    return g->inner->calls->list(g->inner, path, each, user, why);
}

/* What is not set here is not there: a call that changes something would end the program. */
static void guard_init(struct guard *g, struct vfs *inner)
{
    *g = (struct guard){.inner = inner};
    g->vfs.calls = &g->calls;
    g->calls.open = guard_open;
    g->calls.list = guard_list;
    g->calls.close = inner->calls->close;
    g->calls.size = inner->calls->size;
    g->calls.read = inner->calls->read;
    g->calls.map = inner->calls->map;
    g->calls.unmap = inner->calls->unmap;
}

/* ---- findings ---- */

void check_say(struct check *c, enum check_grade grade, const char *file, int64_t at,
               const char *format, ...)
{
    uint64_t *count = grade == CHECK_DAMAGE ? &c->sum.damages : &c->sum.notes;
    ++*count;
    if (c->sum.damages + c->sum.notes > CHECK_FINDINGS_MAX)
        return;
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->calls->found(c->calls->user, &(struct check_finding){grade, file, at, text});
}

enum err check_sizes(struct check *c, const char *folder, const uint64_t *bases, size_t n,
                     uint64_t *most, struct fault *why)
{
    for (size_t i = 0; i < n; i++) {
        char path[PATH_SIZE];
        uint64_t size;
        fileset_path(path, folder, bases[i]);
        enum err err = vfs_file_size(c->store->vfs, path, &size, why);
        if (err)
            return err;
        *most = size > *most ? size : *most;
    }
    return OK;
}

enum err check_files(struct check *c, const char *folder, uint64_t file_size, const uint64_t *bases,
                     size_t n, struct fault *why)
{
    for (size_t i = 0; i < n; i++) {
        char path[PATH_SIZE];
        uint64_t size, wanted = i == 0 ? bases[0] : bases[i - 1] + file_size;
        if (bases[i] > wanted) {
            fileset_path(path, folder, wanted);
            check_say(c, CHECK_DAMAGE, path, -1, "is missing, and %020" PRIu64 " is there",
                      bases[i]);
        }
        fileset_path(path, folder, bases[i]);
        enum err err = vfs_file_size(c->store->vfs, path, &size, why);
        if (err)
            return err;
        if (bases[i] % file_size != 0)
            check_say(c, CHECK_DAMAGE, path, -1,
                      "has a name that does not fit files of %" PRIu64 " bytes", file_size);
        bool torn = c->aborted && i == n - 1; /* it was being made, or cut */
        if (size != file_size)
            check_say(c, torn ? CHECK_NOTE : CHECK_DAMAGE, path, -1,
                      "has %" PRIu64 " bytes, the others have %" PRIu64 "; it was not read", size,
                      file_size);
    }
    return OK;
}

/* ---- the three small files ---- */

/* A folder on a disk that cannot be written cannot be locked, and nobody has it open. */
static enum err lock_try(struct vfs *vfs, struct vfs_file **out, struct fault *why)
{
    struct vfs_file *file = NULL;
    struct fault locked = {0};
    enum err err = vfs->calls->open(vfs, "lock", VFS_WRITE, &file, &locked);
    *out = NULL;
    if (err == ERR_NOT_FOUND || (err && (locked.os == EROFS || locked.os == EACCES)))
        return OK;
    if (!err)
        err = vfs->calls->lock(file, &locked);
    if (err) {
        if (why)
            *why = locked;
        if (file)
            vfs->calls->close(file);
        return err;
    }
    *out = file;
    return OK;
}

static enum err look_at_checkpoint(struct check *c, struct fault *why)
{
    enum err err = abort_exists(c->store->vfs, &c->aborted, why);
    if (err)
        return err;
    uint64_t size = 0;
    err = vfs_file_size(c->store->vfs, "checkpoint", &size, why);
    if (err && err != ERR_NOT_FOUND)
        return err;
    fault_forget(why);
    if (size != CHECKPOINT_SIZE && c->n_bases > 0 && !c->aborted) /* a crash may come before it */
        check_say(c, CHECK_NOTE, "checkpoint", -1,
                  "has %" PRIu64 " bytes instead of %d; nothing is known from it", size,
                  CHECKPOINT_SIZE);
    err = checkpoint_read(c->store->vfs, &c->checkpoint, why);
    c->sum.clean = !c->aborted;
    if (!err && c->aborted)
        check_say(c, CHECK_NOTE, "abort", -1,
                  "is there: the last stop was not clean; the next start verifies the end of the "
                  "log");
    return err;
}

static enum err look_at_folders(struct check *c, struct fault *why)
{
    cleanup(names_clear) struct names folders = {0};
    enum err err = names_list(c->store->vfs, "", true, &folders, why);
    bool log = false;
    for (size_t i = 0; !err && i < folders.n; i++) {
        log = log || strcmp(folders.at[i], LOG_FOLDER) == 0;
        c->ext = c->ext || strcmp(folders.at[i], QUEUE_FOLDER "_ext") == 0;
        if (bytes_start(bytes_str(folders.at[i]), BYTES(LOG_FOLDER "-cut-")))
            check_say(c, CHECK_NOTE, folders.at[i], -1,
                      "holds what an earlier start has cut off the log");
    }
    if (!err && !log)
        err = fault_set(why, ERR_NOT_FOUND, "there is no store: no folder " LOG_FOLDER);
    return err;
}

/* ---- the whole ---- */

/* The log is shorter than something says it was. */
static void judge_end(struct check *c)
{
    const struct checkpoint *cp = &c->checkpoint;
    uint64_t end = c->sum.log_end;
    if (cp->sealed && !c->aborted && cp->sealed_first == c->sum.log_first) {
        if (end < cp->sealed_end)
            check_say(c, CHECK_DAMAGE, LOG_FOLDER, (int64_t)end,
                      "the log ended at position %" PRIu64
                      " when it was closed, and now at %" PRIu64,
                      cp->sealed_end, end);
        if (end == cp->sealed_end && c->sum.units != cp->sealed_units)
            check_say(c, CHECK_DAMAGE, QUEUE_FOLDER, -1,
                      "the queues had %" PRIu64 " units when they were closed, and now %" PRIu64,
                      cp->sealed_units, c->sum.units);
    }
    if (c->n_bases > 0 && checkpoint_has(cp, c->last_ms))
        check_say(c, CHECK_DAMAGE, "checkpoint", 0,
                  "says that records until %" PRId64 " ms were on the disk, and the last one is "
                  "of %" PRId64 " ms",
                  cp->log_ms, c->last_ms);
}

static enum err check_all(struct check *c, struct fault *why)
{
    enum err err = look_at_folders(c, why);
    if (!err)
        err = fileset_list(c->store->vfs, LOG_FOLDER, &c->bases, &c->n_bases, why);
    if (!err)
        err = look_at_checkpoint(c, why);
    if (!err)
        err = check_log_load(c, why);
    if (!err)
        err = check_queues_load(c, why);
    uint64_t told = c->sum.damages + c->sum.notes;
    if (!err)
        err = check_log_walk(c, why);
    c->log_whole = c->sum.damages + c->sum.notes == told;
    if (!err)
        err = check_queues_walk(c, why);
    if (!err)
        err = check_index(c, why);
    if (!err)
        err = check_timers(c, why);
    if (!err)
        judge_end(c);
    return err;
}

static void check_clear(struct check *c)
{
    struct store *store = c->store;
    cache_clear(&store->cache);
    for (struct queue *queue = queue_newest(store), *older; queue; queue = older) {
        older = queue->older;
        free(queue);
    }
    map_clear(&store->queues);
    free(c->rows);
    free(c->bases);
    free(store);
}

enum err store_check(struct vfs *vfs, const struct check_calls *calls, struct check_summary *out,
                     struct fault *why)
{
    struct guard guard;
    guard_init(&guard, vfs);
    struct check c = {.calls = calls, .gap = NO_GAP, .rebuilt_from = UINT64_MAX};
    c.store = calloc(1, sizeof *c.store);
    if (!c.store)
        return ERR_NO_MEMORY;
    c.store->vfs = &guard.vfs;
    cache_init(&c.store->cache, &guard.vfs, 0);
    map_init(&c.store->queues, dice_seed_from_os());
    c.store->log = (struct fileset){.folder = LOG_FOLDER};
    list_init(&c.store->log.open);

    struct vfs_file *lock;
    enum err err = lock_try(vfs, &lock, why);
    if (!err) {
        err = check_all(&c, why);
        if (lock)
            vfs->calls->close(lock);
    }
    if (!err)
        *out = c.sum;
    check_clear(&c);
    return err;
}
