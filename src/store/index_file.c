/* index_file.c - one file of the index: making, opening, mapping, bringing to the disk. */
#include "store/index_int.h"

#include "base/list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void index_path(char out[INDEX_PATH_SIZE], uint64_t name)
{
    int len = snprintf(out, INDEX_PATH_SIZE, INDEX_FOLDER "/%017" PRIu64, name);
    invariant(len > 0);
    invariant(len < INDEX_PATH_SIZE);
}

static void file_release(struct counted *owner)
{
    struct index_file *file = list_entry(owner, struct index_file, owner);
    const uint8_t *map = atomic_load_explicit(&file->map, memory_order_acquire);
    if (map)
        file->vfs->calls->unmap(file->file, map, index_file_size(file->shape));
    if (file->file)
        file->vfs->calls->close(file->file);
    index_table_drop(file->table);
    free(file);
}

static struct index_file *file_new(struct vfs *vfs, const struct index_shape *shape, uint64_t name)
{
    struct index_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    counted_init(&file->owner, file_release);
    file->vfs = vfs;
    file->shape = shape;
    file->name = name;
    return file;
}

void index_file_drop(struct index_file *file)
{
    if (file)
        counted_drop(&file->owner);
}

static void file_drop_at(struct index_file **file)
{
    index_file_drop(*file);
}

/* ---- making and opening ---- */

static enum err file_fill(struct index_file *file, const char *path, struct fault *why)
{
    const struct vfs_calls *calls = file->vfs->calls;
    uint8_t header[INDEX_HEADER_SIZE];
    index_header_encode(&file->head, header);
    enum err err = calls->resize(file->file, index_file_size(file->shape), why);
    if (!err)
        err = index_file_write(file, 0, header, sizeof header, why);
    if (err)
        (void)calls->remove(file->vfs, path, NULL); /* the next attempt makes it again */
    return err;
}

enum err index_file_make(struct vfs *vfs, const struct index_shape *shape, uint64_t name,
                         const struct index_header *head, struct index_file **out,
                         struct fault *why)
{
    cleanup(file_drop_at) struct index_file *file = file_new(vfs, shape, name);
    if (!file)
        return ERR_NO_MEMORY;
    file->head = *head;
    file->table = index_table_new(shape, 0);
    if (!file->table)
        return ERR_NO_MEMORY;

    char path[INDEX_PATH_SIZE];
    index_path(path, name);
    enum err err = vfs->calls->mkdir(vfs, INDEX_FOLDER, why);
    if (!err)
        err = vfs->calls->open(vfs, path, VFS_FRESH, &file->file, why);
    if (!err)
        err = file_fill(file, path, why);
    if (err)
        return err;
    *out = take(&file);
    return OK;
}

/* The first and the last entry are where the header says. Two reads find most of what can be wrong
 * with a file that is otherwise believed. */
static enum err file_check_ends(struct index_file *file, struct fault *why)
{
    const struct index_header *head = &file->head;
    uint32_t ends[2] = {1, head->count - 1};
    for (size_t i = 0; i < 2 && head->count > 1; i++) {
        uint8_t bytes[INDEX_ENTRY_SIZE];
        enum err err = file->vfs->calls->read(file->file, index_entry_at(file->shape, ends[i]),
                                              bytes, sizeof bytes, why);
        if (err)
            return err;
        struct index_entry e = index_entry_load(bytes);
        if (e.hash > INT32_MAX || e.prev >= ends[i] || e.position < head->begin_position ||
            e.position > head->end_position || (i == 0 && e.position != head->begin_position))
            return fault_set(why, ERR_DAMAGED, "entry %" PRIu32 " is not what the header says",
                             ends[i]);
    }
    return OK;
}

static enum err file_check(struct index_file *file, struct fault *why)
{
    const struct vfs_calls *calls = file->vfs->calls;
    uint64_t size, wanted = index_file_size(file->shape);
    enum err err = calls->size(file->file, &size, why);
    if (err)
        return err;
    if (size != wanted)
        return fault_set(why, ERR_DAMAGED, "it has %" PRIu64 " bytes and should have %" PRIu64,
                         size, wanted);
    err = calls->read(file->file, 0, file->on_disk, INDEX_HEADER_SIZE, why);
    if (err)
        return err;
    err = index_header_decode(bytes_of(file->on_disk, INDEX_HEADER_SIZE), file->shape, &file->head);
    if (err)
        return fault_set(why, ERR_DAMAGED, "its header cannot be");
    return file_check_ends(file, why);
}

enum err index_file_open(struct vfs *vfs, const struct index_shape *shape, uint64_t name,
                         struct index_file **out, struct fault *why)
{
    cleanup(file_drop_at) struct index_file *file = file_new(vfs, shape, name);
    if (!file)
        return ERR_NO_MEMORY;
    char path[INDEX_PATH_SIZE];
    index_path(path, name);
    enum err err = vfs->calls->open(vfs, path, VFS_WRITE, &file->file, why);
    if (!err)
        err = file_check(file, why);
    if (err)
        return fault_add(why, err, "%s", path);
    *out = take(&file);
    return OK;
}

/* ---- reading and writing ---- */

enum err index_file_map(struct index_file *file, const uint8_t **out, struct fault *why)
{
    const struct vfs_calls *calls = file->vfs->calls;
    const uint8_t *map = atomic_load_explicit(&file->map, memory_order_acquire), *fresh;
    if (map) {
        *out = map;
        return OK;
    }
    enum err err = calls->map(file->file, index_file_size(file->shape), &fresh, why);
    if (err)
        return err;
    if (atomic_compare_exchange_strong_explicit(&file->map, &map, fresh, memory_order_acq_rel,
                                                memory_order_acquire)) {
        *out = fresh;
    } else { /* somebody else mapped it meanwhile */
        calls->unmap(file->file, fresh, index_file_size(file->shape));
        *out = map;
    }
    return OK;
}

enum err index_file_write(struct index_file *file, uint64_t at, const void *bytes, size_t n,
                          struct fault *why)
{
    invariant(at + n <= index_file_size(file->shape));
    struct iovec part = {.iov_len = n};
    memcpy(&part.iov_base, &bytes, sizeof part.iov_base); /* an iovec has no const */
    return file->vfs->calls->write(file->file, at, &part, 1, why);
}

static enum err file_sync(struct index_file *file, bool *lost, struct fault *why)
{
    enum err err = file->vfs->calls->sync(file->file, why);
    if (err)
        *lost = true;
    return err;
}

static enum err folder_sync(struct index_file *file, struct fault *why)
{
    struct vfs *vfs = file->vfs;
    enum err err = file->in_folder ? OK : vfs->calls->sync_dir(vfs, INDEX_FOLDER, why);
    if (!err && !file->in_folder)
        err = vfs->calls->sync_dir(vfs, ".", why); /* the folder itself may be new */
    if (!err)
        file->in_folder = true;
    return err;
}

enum err index_file_flush(struct index_file *file, const struct index_header *head,
                          struct index_table *with, bool *lost, struct fault *why)
{
    uint8_t header[INDEX_HEADER_SIZE];
    index_header_encode(head, header);
    enum err err = with ? index_table_write(with, file->vfs, file->file, why) : OK;
    if (!err && !with && memcmp(header, file->on_disk, sizeof header) == 0)
        return OK;
    if (!err)
        err = file_sync(file, lost, why); /* entries first: see index_int.h */
    if (!err)
        err = index_file_write(file, 0, header, sizeof header, why);
    if (!err)
        err = file_sync(file, lost, why);
    if (!err)
        err = folder_sync(file, why);
    if (err)
        return err;
    memcpy(file->on_disk, header, sizeof header);
    return OK;
}
