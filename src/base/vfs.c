/* vfs.c - what can be said with the calls of any vfs: reading a whole file, replacing one. */
#include "base/vfs.h"

#include <stdio.h>
#include <stdlib.h>

/* A name with an ending: "config/topics.json" + ".tmp". NULL without memory; to be freed. */
static char *with_ending(const char *path, const char *ending)
{
    char *name;
    return asprintf(&name, "%s%s", path, ending) < 0 ? NULL : name;
}

static enum err read_whole(struct vfs *v, struct vfs_file *f, const char *path, size_t max,
                           uint8_t **out, size_t *len, struct fault *why)
{
    uint64_t size;
    enum err err = v->calls->size(f, &size, why);
    if (err)
        return err;
    if (size > max)
        return fault_set(why, ERR_TOO_BIG, "%s is bigger than %zu bytes", path, max);

    cleanup(free_at) uint8_t *text = malloc((size_t)size + 1);
    if (!text)
        return ERR_NO_MEMORY;
    err = v->calls->read(f, 0, text, (size_t)size, why);
    if (err)
        return err;
    text[size] = 0;
    *out = take(&text);
    *len = (size_t)size;
    return OK;
}

enum err vfs_read_all(struct vfs *v, const char *path, size_t max, uint8_t **out, size_t *len,
                      struct fault *why)
{
    struct vfs_file *f;
    enum err err = v->calls->open(v, path, VFS_READ, &f, why);
    if (err)
        return err;
    err = read_whole(v, f, path, max, out, len, why);
    v->calls->close(f);
    return err;
}

/* Puts `content` into path.tmp, onto the disk, and in the place of `path`. */
static enum err put_in_place(struct vfs *v, const char *path, struct bytes content,
                             struct fault *why)
{
    cleanup(free_at) char *tmp = with_ending(path, ".tmp");
    if (!tmp)
        return ERR_NO_MEMORY;

    struct vfs_file *f;
    enum err err = v->calls->open(v, tmp, VFS_FRESH, &f, why);
    if (err)
        return err;
    void *start;
    memcpy(&start, &content.at, sizeof start); /* an iovec has no const */
    const struct iovec whole = {start, content.len};
    err = v->calls->write(f, 0, &whole, 1, why);
    if (!err)
        err = v->calls->sync(f, why);
    v->calls->close(f);
    if (!err)
        err = v->calls->rename(v, tmp, path, why);
    if (err)
        (void)v->calls->remove(v, tmp,
                               NULL); /* half a file helps nobody, least of all a full disk */
    return err;
}

/* The old content is copied, not renamed, so that there is no instant without a file at `path`. An
 * empty file is what a lost write leaves behind; path.bak is then the better one and stays. */
static enum err keep_old(struct vfs *v, const char *path, struct fault *why)
{
    cleanup(free_at) char *bak = with_ending(path, ".bak");
    if (!bak)
        return ERR_NO_MEMORY;

    cleanup(free_at) uint8_t *old = NULL;
    size_t len = 0;
    enum err err = vfs_read_all(v, path, SIZE_MAX - 1, &old, &len, why);
    if (err == ERR_NOT_FOUND) {
        if (why)
            *why = (struct fault){0};
        return OK;
    }
    if (err || len == 0)
        return err;
    return put_in_place(v, bak, bytes_of(old, len), why);
}

enum err vfs_replace(struct vfs *v, const char *path, struct bytes content, struct fault *why)
{
    enum err err = keep_old(v, path, why);
    if (!err)
        err = put_in_place(v, path, content, why);
    if (err)
        return err;

    const char *slash = strrchr(path, '/');
    cleanup(free_at) char *folder = strndup(path, slash ? (size_t)(slash - path) : 0);
    if (!folder)
        return ERR_NO_MEMORY;
    return v->calls->sync_dir(v, folder, why);
}
