#include "store/vfs_fault.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define SECTOR 512

/* What a sector held before a write that is not on disk yet. */
struct old {
    uint64_t sector;
    uint8_t bytes[SECTOR];
};

struct fault_node { /* one path */
    struct fault_node *next;
    char path[320];
    bool unsure; /* its folder does not know it yet */
    struct old *olds;
    size_t n, cap;
};

struct fault_removed { /* a file that may come back */
    struct fault_removed *next;
    char path[320], trash[32];
};

struct fault_folder { /* a folder that may go */
    struct fault_folder *next;
    char path[320];
};

struct vfs_file {
    struct vfs_fault *disk;
    struct fault_node *node;
    struct vfs_file *below;
};

static const struct vfs_calls fault_calls;

static struct vfs_fault *fault_of(struct vfs *v)
{
    return (struct vfs_fault *)v;
}

static void *allocate(size_t size)
{
    void *p = calloc(1, size);
    invariant(p != NULL);
    return p;
}

struct vfs_fault *vfs_fault_new(struct vfs *below, uint64_t seed)
{
    struct vfs_fault *f = allocate(sizeof *f);
    f->vfs.calls = &fault_calls;
    f->below = below;
    f->dice = dice_seeded(seed);
    invariant(pthread_mutex_init(&f->lock, NULL) == 0);
    return f;
}

static void forget_all(struct vfs_fault *f)
{
    for (struct fault_node *n; (n = f->nodes) != NULL;) {
        f->nodes = n->next;
        free(n->olds);
        free(n);
    }
    for (struct fault_removed *r; (r = f->removed) != NULL;) {
        f->removed = r->next;
        free(r);
    }
    for (struct fault_folder *d; (d = f->folders) != NULL;) {
        f->folders = d->next;
        free(d);
    }
}

void vfs_fault_free(struct vfs_fault *f)
{
    forget_all(f);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

void vfs_fault_plan(struct vfs_fault *f, unsigned long at, unsigned long times, enum err err)
{
    f->operations = 0;
    f->fail_at = at;
    f->fail_times = times;
    f->fail_with = err;
}

/* Counts an operation. True: this one fails. */
static bool fails(struct vfs_fault *f)
{
    unsigned long n = ++f->operations;
    return f->fail_at && n >= f->fail_at && n - f->fail_at < f->fail_times;
}

static enum err failing(const struct vfs_fault *f, struct fault *why)
{
    return fault_set(why, f->fail_with, "the test made operation %lu fail", f->operations);
}

#define LOCKED(f) (void)pthread_mutex_lock(&(f)->lock)
#define UNLOCK(f) (void)pthread_mutex_unlock(&(f)->lock)

/* ---- what was before ---- */

static struct fault_node *node_of(struct vfs_fault *f, const char *path)
{
    for (struct fault_node *n = f->nodes; n; n = n->next)
        if (strcmp(n->path, path) == 0)
            return n;
    struct fault_node *n = allocate(sizeof *n);
    (void)snprintf(n->path, sizeof n->path, "%s", path);
    n->next = f->nodes;
    f->nodes = n;
    return n;
}

static void node_settle(struct fault_node *n)
{
    n->n = 0;
}

static void remember(struct vfs_file *file, uint64_t from, uint64_t to, bool zeros_too)
{
    const struct vfs_calls *calls = file->disk->below->calls;
    struct fault_node *n = file->node;
    uint64_t size = 0;
    invariant(calls->size(file->below, &size, NULL) == OK);
    for (uint64_t sector = from / SECTOR; sector * SECTOR < to; sector++) {
        struct old old = {.sector = sector};
        uint64_t at = sector * SECTOR;
        if (at < size) {
            size_t len = size - at < SECTOR ? (size_t)(size - at) : SECTOR;
            invariant(calls->read(file->below, at, old.bytes, len, NULL) == OK);
        }
        static const uint8_t zeros[SECTOR];
        if (!zeros_too && memcmp(old.bytes, zeros, SECTOR) == 0)
            continue;
        if (n->n == n->cap) {
            n->cap = n->cap ? n->cap * 2 : 16;
            n->olds = realloc(n->olds, n->cap * sizeof *n->olds);
            invariant(n->olds != NULL);
        }
        n->olds[n->n++] = old;
    }
}

static void folder_of(const char *path, char out[320])
{
    const char *slash = strrchr(path, '/');
    (void)snprintf(out, 320, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

static bool is_in(const char *path, const char *folder)
{
    char own[320];
    folder_of(path, own);
    return strcmp(own, folder) == 0;
}

/* ---- calls ---- */

static enum err fault_open(struct vfs *v, const char *path, enum vfs_mode mode,
                           struct vfs_file **out, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    struct vfs_file *file = allocate(sizeof *file);
    struct vfs_file *probe;
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    if (!err) {
        bool there = f->below->calls->open(f->below, path, VFS_READ, &probe, NULL) == OK;
        if (there)
            f->below->calls->close(probe);
        file->disk = f;
        file->node = node_of(f, path);
        enum vfs_mode below = mode == VFS_FRESH ? VFS_CREATE : mode;
        if (mode == VFS_AROUND)
            below = VFS_WRITE; /* writes are torn at sectors */
        err = f->below->calls->open(f->below, path, below, &file->below, why);
        if (!err && mode == VFS_FRESH) {
            uint64_t size = 0;
            invariant(f->below->calls->size(file->below, &size, NULL) == OK);
            remember(file, 0, size, false);
            err = f->below->calls->resize(file->below, 0, why);
        }
        if (!err && !there)
            file->node->unsure = true;
    }
    UNLOCK(f);
    if (err)
        free(file);
    else
        *out = file;
    return err;
}

static void fault_close(struct vfs_file *file)
{
    if (!file)
        return;
    file->disk->below->calls->close(file->below);
    free(file);
}

static enum err fault_size(struct vfs_file *file, uint64_t *out, struct fault *why)
{
    return file->disk->below->calls->size(file->below, out, why);
}

static enum err fault_resize(struct vfs_file *file, uint64_t size, struct fault *why)
{
    struct vfs_fault *f = file->disk;
    LOCKED(f);
    uint64_t before = 0;
    enum err err = fails(f) ? failing(f, why) : f->below->calls->size(file->below, &before, why);
    if (!err && size < before)
        remember(file, size, before, false);
    if (!err)
        err = f->below->calls->resize(file->below, size, why);
    UNLOCK(f);
    return err;
}

/* How much of a write gets through: nothing, all, or up to the end of some sector. */
static size_t some_sectors(struct vfs_fault *f, uint64_t at, size_t len)
{
    uint64_t end = at + dice_below(&f->dice, len + SECTOR);
    end -= end % SECTOR;
    if (end <= at)
        return 0;
    return end - at < len ? (size_t)(end - at) : len;
}

/* One that fails may have cleared a part. */
static enum err fault_clear(struct vfs_file *file, uint64_t at, uint64_t n, struct fault *why)
{
    struct vfs_fault *f = file->disk;
    if (!f->below->calls->clear)
        return fault_set(why, ERR_UNSUPPORTED, "the disk below makes no holes");
    LOCKED(f);
    f->clears++;
    bool failed = fails(f);
    if (failed)
        n = some_sectors(f, at, n);
    enum err err = OK;
    if (n) {
        remember(file, at, at + n, false);
        err = f->below->calls->clear(file->below, at, n, why);
    }
    if (failed)
        err = failing(f, why);
    UNLOCK(f);
    return err;
}

/* Nothing is safe because of it, and nothing is different. One that fails has reserved a part. */
static enum err fault_reserve(struct vfs_file *file, uint64_t at, uint64_t n, struct fault *why)
{
    struct vfs_fault *f = file->disk;
    if (!f->below->calls->reserve)
        return fault_set(why, ERR_UNSUPPORTED, "the disk below reserves nothing");
    LOCKED(f);
    f->reserves++;
    bool failed = fails(f);
    if (failed)
        n = some_sectors(f, at, n);
    enum err err = n ? f->below->calls->reserve(file->below, at, n, why) : OK;
    if (failed)
        err = failing(f, why);
    UNLOCK(f);
    return err;
}

/* All parts in one; its memory is the caller's. */
static struct iovec together(const struct iovec *parts, int n)
{
    struct iovec whole = {0};
    for (int i = 0; i < n; i++)
        whole.iov_len += parts[i].iov_len;
    whole.iov_base = allocate(whole.iov_len + 1);
    uint8_t *at = whole.iov_base;
    for (int i = 0; i < n; at += parts[i++].iov_len)
        memcpy(at, parts[i].iov_base, parts[i].iov_len);
    return whole;
}

static enum err fault_write(struct vfs_file *file, uint64_t at, const struct iovec *parts, int n,
                            struct fault *why)
{
    struct vfs_fault *f = file->disk;
    struct iovec part = together(parts, n);
    cleanup(free_at) void *bytes = part.iov_base;
    LOCKED(f);
    f->writes++;
    bool failed = fails(f);
    if (failed)
        part.iov_len = some_sectors(f, at, part.iov_len);
    enum err err = OK;
    if (part.iov_len) {
        remember(file, at, at + part.iov_len, true);
        err = f->below->calls->write(file->below, at, &part, 1, why);
    }
    if (failed)
        err = failing(f, why);
    UNLOCK(f);
    return err;
}

static enum err fault_read(struct vfs_file *file, uint64_t at, void *into, size_t n,
                           struct fault *why)
{
    struct vfs_fault *f = file->disk;
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    UNLOCK(f);
    return err ? err : f->below->calls->read(file->below, at, into, n, why);
}

static enum err fault_sync(struct vfs_file *file, struct fault *why)
{
    struct vfs_fault *f = file->disk;
    LOCKED(f);
    f->syncs++;
    enum err err = fails(f) ? failing(f, why) : OK;
    if (!err)
        node_settle(file->node);
    UNLOCK(f);
    return err;
}

/* Nothing is safe because of it. */
static enum err fault_push(struct vfs_file *file, uint64_t at, uint64_t n, struct fault *why)
{
    struct vfs_fault *f = file->disk;
    LOCKED(f);
    f->pushes++;
    enum err err = fails(f) ? failing(f, why) : OK;
    UNLOCK(f);
    return err ? err : f->below->calls->push(file->below, at, n, why);
}

static enum err fault_map(struct vfs_file *file, uint64_t size, const uint8_t **out,
                          struct fault *why)
{
    struct vfs_fault *f = file->disk;
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    UNLOCK(f);
    return err ? err : f->below->calls->map(file->below, size, out, why);
}

static void fault_unmap(struct vfs_file *file, const uint8_t *at, uint64_t size)
{
    file->disk->below->calls->unmap(file->below, at, size);
}

static enum err fault_lock(struct vfs_file *file, struct fault *why)
{
    return file->disk->below->calls->lock(file->below, why);
}

static void ignore_name(void *user, const char *name, bool is_dir)
{
}

static enum err fault_mkdir(struct vfs *v, const char *path, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    char part[320];
    for (size_t i = 1; !err && i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        (void)snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (f->below->calls->list(f->below, part, ignore_name, NULL, NULL) == OK)
            continue;
        struct fault_folder *d = allocate(sizeof *d);
        (void)snprintf(d->path, sizeof d->path, "%s", part);
        d->next = f->folders; /* the deepest first */
        f->folders = d;
        err = f->below->calls->mkdir(f->below, part, why);
    }
    UNLOCK(f);
    return err;
}

static enum err fault_rename(struct vfs *v, const char *from, const char *to, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : f->below->calls->rename(f->below, from, to, why);
    if (!err)
        node_settle(node_of(f, from));
    UNLOCK(f);
    return err;
}

static enum err fault_remove(struct vfs *v, const char *path, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    struct fault_removed *r = allocate(sizeof *r);
    (void)snprintf(r->path, sizeof r->path, "%s", path);
    (void)snprintf(r->trash, sizeof r->trash, "trash-%lu", f->operations);
    enum err err =
        fails(f) ? failing(f, why) : f->below->calls->rename(f->below, path, r->trash, why);
    if (!err) {
        node_settle(node_of(f, path));
        r->next = f->removed;
        f->removed = r;
    } else {
        free(r);
    }
    UNLOCK(f);
    return err;
}

static enum err fault_sync_dir(struct vfs *v, const char *path, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    for (struct fault_node *n = f->nodes; !err && n; n = n->next)
        if (is_in(n->path, path))
            n->unsure = false;
    for (struct fault_removed **at = &f->removed, *r; !err && (r = *at) != NULL;) {
        if (!is_in(r->path, path)) {
            at = &r->next;
            continue;
        }
        (void)f->below->calls->remove(f->below, r->trash, NULL);
        *at = r->next;
        free(r);
    }
    for (struct fault_folder **at = &f->folders, *d; !err && (d = *at) != NULL;) {
        if (!is_in(d->path, path)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        free(d);
    }
    UNLOCK(f);
    return err;
}

static enum err fault_sync_all(struct vfs *v, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    f->syncs++;
    enum err err = fails(f) ? failing(f, why) : OK;
    for (struct fault_node *n = f->nodes; !err && n; n = n->next) {
        node_settle(n);
        n->unsure = false;
    }
    for (struct fault_removed *r; !err && (r = f->removed) != NULL;) {
        (void)f->below->calls->remove(f->below, r->trash, NULL);
        f->removed = r->next;
        free(r);
    }
    for (struct fault_folder *d; !err && (d = f->folders) != NULL;) {
        f->folders = d->next;
        free(d);
    }
    UNLOCK(f);
    return err;
}

static enum err fault_list(struct vfs *v, const char *path,
                           void (*each)(void *user, const char *name, bool is_dir), void *user,
                           struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    UNLOCK(f);
    return err ? err : f->below->calls->list(f->below, path, each, user, why);
}

static enum err fault_space(struct vfs *v, struct vfs_space *out, struct fault *why)
{
    struct vfs_fault *f = fault_of(v);
    LOCKED(f);
    enum err err = fails(f) ? failing(f, why) : OK;
    UNLOCK(f);
    if (err || !f->space)
        return err ? err : f->below->calls->space(f->below, out, why);
    *out = f->space(f->space_user);
    return OK;
}

/* ---- power loss ---- */

/* Each sector keeps one of the things it held since the last sync. */
static void tear(struct vfs_fault *f, struct fault_node *n)
{
    const struct vfs_calls *calls = f->below->calls;
    struct vfs_file *file;
    uint64_t size = 0;
    if (n->n == 0 || calls->open(f->below, n->path, VFS_WRITE, &file, NULL))
        return;
    invariant(calls->size(file, &size, NULL) == OK);
    bool nothing_got_there = dice_below(&f->dice, 4) == 0;
    for (size_t i = 0; i < n->n; i++) {
        size_t versions = 0, seen = 0; /* of this sector, and how many stand in front of i */
        for (size_t k = 0; k < n->n; k++) {
            versions += n->olds[k].sector == n->olds[i].sector;
            seen += k < i && n->olds[k].sector == n->olds[i].sector;
        }
        if (seen > 0) /* decided with the first */
            continue;
        size_t keep = nothing_got_there ? 0 : (size_t)dice_below(&f->dice, versions + 1);
        for (size_t k = i; k < n->n; k++) {
            if (n->olds[k].sector != n->olds[i].sector || keep-- > 0)
                continue;
            uint64_t at = n->olds[k].sector * SECTOR;
            if (at < size) {
                struct iovec part = {n->olds[k].bytes,
                                     size - at < SECTOR ? (size_t)(size - at) : SECTOR};
                invariant(calls->write(file, at, &part, 1, NULL) == OK);
            }
            break;
        }
    }
    calls->close(file);
}

struct children {
    char names[64][64];
    size_t n;
};

static void children_add(void *user, const char *name, bool is_dir)
{
    struct children *c = user;
    invariant(c->n < 64);
    (void)snprintf(c->names[c->n++], sizeof c->names[0], "%s", name);
}

static void remove_tree(struct vfs *v, const char *path)
{
    struct children c = {.n = 0};
    char below[384];
    if (v->calls->list(v, path, children_add, &c, NULL) == OK)
        for (size_t i = 0; i < c.n; i++) {
            (void)snprintf(below, sizeof below, "%s/%s", path, c.names[i]);
            remove_tree(v, below);
        }
    (void)v->calls->remove(v, path, NULL);
}

void vfs_fault_power_loss(struct vfs_fault *f)
{
    const struct vfs_calls *calls = f->below->calls;
    for (struct fault_node *n = f->nodes; n; n = n->next) {
        tear(f, n);
        if (n->unsure && dice_below(&f->dice, 2))
            (void)calls->remove(f->below, n->path, NULL);
    }
    for (struct fault_removed *r = f->removed; r; r = r->next) {
        struct vfs_file *there;
        bool taken = calls->open(f->below, r->path, VFS_READ, &there, NULL) == OK;
        if (taken)
            calls->close(there);
        if (taken || dice_below(&f->dice, 2) ||
            calls->rename(f->below, r->trash, r->path, NULL) != OK)
            (void)calls->remove(f->below, r->trash, NULL);
    }
    for (struct fault_folder *d = f->folders; d; d = d->next)
        if (dice_below(&f->dice, 2))
            remove_tree(f->below, d->path);
    forget_all(f);
    vfs_fault_plan(f, 0, 0, OK);
}

static const struct vfs_calls fault_calls = {
    .open = fault_open,
    .close = fault_close,
    .size = fault_size,
    .resize = fault_resize,
    .clear = fault_clear,
    .reserve = fault_reserve,
    .write = fault_write,
    .read = fault_read,
    .sync = fault_sync,
    .push = fault_push,
    .map = fault_map,
    .unmap = fault_unmap,
    .lock = fault_lock,
    .mkdir = fault_mkdir,
    .rename = fault_rename,
    .remove = fault_remove,
    .sync_all = fault_sync_all,
    .sync_dir = fault_sync_dir,
    .list = fault_list,
    .space = fault_space,
};
