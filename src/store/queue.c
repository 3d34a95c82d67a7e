/* queue.c - the rows of units, one for each topic and queue number.
 *
 * A handle is small and lives as long as the store; files are opened when needed. Only dispatch
 * writes. `max` is published after the units are in the file or on the queue's shelf (shelf.c), so
 * whoever reads it may read them.
 */
#include "store/store_int.h"

#include <assert.h>
#include <stdlib.h>

#define NAME_MAX_LEN 255 /* what a file system takes as one name */
#define KEY_MAX      (NAME_MAX_LEN + 1 + 11)

static_assert(8 + 4 + 8 == UNIT_SIZE, "a consume queue unit is 20 bytes on disk");

struct unit unit_load(const uint8_t *at)
{
    return (struct unit){load_u64(at), load_u32(at + 8), (int64_t)load_u64(at + 12)};
}

void unit_save(uint8_t *at, const struct unit *unit)
{
    store_u64(at, unit->position);
    store_u32(at + 8, unit->size);
    store_u64(at + 12, (uint64_t)unit->tags_code);
}

bool unit_is_filler(const struct unit *unit)
{
    return unit->position == 0 && unit->size == UNIT_FILLER;
}

/* ---- handles ---- */

/* A topic's name becomes the name of a folder: it must stay one, whoever chose it. */
static bool name_is_folder(struct bytes name)
{
    if (name.len == 0 || name.len > NAME_MAX_LEN)
        return false;
    if (bytes_equal(name, BYTES(".")) || bytes_equal(name, BYTES("..")))
        return false;
    return !memchr(name.at, '/', name.len) && !memchr(name.at, '\0', name.len);
}

/* TOPIC/ID */
static struct bytes key_of(struct bytes topic, int32_t queue_id, uint8_t buffer[KEY_MAX])
{
    struct wr w = wr_over(buffer, KEY_MAX);
    wr_bytes_of(&w, topic);
    wr_u8(&w, '/');
    wr_i64(&w, queue_id);
    return wr_bytes(&w);
}

static struct queue *find(struct store *store, struct bytes key)
{
    room_enter(&store->cache.room);
    struct queue *queue = map_get(&store->queues, key);
    room_leave(&store->cache.room);
    return queue;
}

struct queue *store_queue_find(struct store *store, struct bytes topic, int32_t queue_id)
{
    uint8_t buffer[KEY_MAX];
    if (!name_is_folder(topic) || queue_id < 0)
        return NULL;
    return find(store, key_of(topic, queue_id, buffer));
}

static struct queue *queue_new(const struct store *store, struct bytes key, size_t topic_len,
                               int32_t queue_id)
{
    struct queue *queue = calloc(1, sizeof *queue + sizeof QUEUE_FOLDER + key.len + 1);
    if (!queue)
        return NULL;
    struct wr w = wr_over(queue->folder, sizeof QUEUE_FOLDER + key.len);
    wr_bytes_of(&w, BYTES(QUEUE_FOLDER "/"));
    queue->topic = bytes_of(w.at, topic_len);
    wr_bytes_of(&w, key);
    queue->queue_id = queue_id;
    queue->files =
        (struct fileset){.folder = queue->folder, .file_size = store->options.queue_file_size};
    list_init(&queue->files.open);
    return queue;
}

enum err queue_get(struct store *store, struct bytes topic, int32_t queue_id, struct queue **out)
{
    if (!name_is_folder(topic) || queue_id < 0)
        return ERR_INVALID;
    uint8_t buffer[KEY_MAX];
    struct bytes key = key_of(topic, queue_id, buffer);
    struct queue *queue = find(store, key);
    if (queue) {
        *out = queue;
        return OK;
    }

    cleanup(free_at) struct queue *fresh = queue_new(store, key, topic.len, queue_id);
    if (!fresh)
        return ERR_NO_MEMORY;
    enum err err = OK;
    room_enter(&store->cache.room);
    queue = map_get(&store->queues, key);
    if (!queue) {
        err = map_put(&store->queues, bytes_of(fresh->topic.at, key.len), fresh);
        if (!err) {
            queue = take(&fresh);
            queue->older = atomic_load_explicit(&store->queues_all, memory_order_relaxed);
            atomic_store_explicit(&store->queues_all, queue, memory_order_release);
        }
    }
    room_leave(&store->cache.room);
    if (!err)
        *out = queue;
    return err;
}

struct queue *store_queue(struct store *store, struct bytes topic, int32_t queue_id)
{
    struct queue *queue;
    return queue_get(store, topic, queue_id, &queue) == OK ? queue : NULL;
}

int64_t queue_min(struct store *store, struct queue *queue)
{
    (void)store;
    return atomic_load_explicit(&queue->min, memory_order_acquire);
}

int64_t queue_max(struct queue *queue)
{
    return atomic_load_explicit(&queue->max, memory_order_acquire);
}

void *queue_note(const struct queue *queue)
{
    return queue->note;
}

void queue_note_set(struct queue *queue, void *note)
{
    queue->note = note;
}

void store_each_queue(struct store *store,
                      void (*each)(void *user, struct bytes topic, int32_t queue_id,
                                   struct queue *queue),
                      void *user)
{
    for (struct queue *queue = queue_newest(store); queue; queue = queue->older)
        each(user, queue->topic, queue->queue_id, queue);
}

/* ---- writing ---- */

void queue_mark_dirty(struct store *store, struct queue *queue)
{
    room_held(&store->derived.room);
    if (!link_in_list(&queue->dirty))
        list_add_tail(&store->derived.dirty, &queue->dirty);
}

/* The file that the byte at `at` of the queue goes to, which may be a new one. */
static enum err file_for(struct store *store, struct queue *queue, uint64_t at,
                         struct segment **out, struct fault *why)
{
    struct fileset *files = &queue->files;
    if (files->first == files->end || at == files->end)
        return segment_make(&store->cache, files, at - at % files->file_size, out, why);
    return segment_get(&store->cache, files, at, out, why);
}

enum err units_write(struct store *store, struct queue *queue, int64_t offset, struct bytes units,
                     struct fault *why)
{
    room_held(&store->derived.room);
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    while (units.len > 0) {
        cleanup(segment_drop_at) struct segment *seg = NULL;
        enum err err = file_for(store, queue, at, &seg, why);
        if (err)
            return err;
        uint64_t left = seg->base + seg->size - at;
        size_t fits = units.len < left ? units.len : (size_t)left;
        err = segment_write(seg, at, bytes_of(units.at, fits), 0, why);
        if (err)
            return err;
        at += fits;
        units = bytes_from(units, fits);
    }
    return OK;
}

enum err queue_append(struct store *store, struct queue *queue, const uint8_t *units, size_t n,
                      struct fault *why)
{
    room_held(&store->derived.room);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    struct bytes bytes = bytes_of(units, n * UNIT_SIZE);
    bool taken;
    enum err err = shelf_take(store, queue, bytes, &taken, why);
    if (!err && !taken)
        err = units_write(store, queue, max, bytes, why);
    if (err)
        return err;
    atomic_store_explicit(&queue->max, max + (int64_t)n, memory_order_release);
    queue_mark_dirty(store, queue);
    return OK;
}

/* Fillers from the start of the file up to `offset`, a few thousand at a time. */
static enum err fill(struct segment *seg, uint64_t upto, struct fault *why)
{
    uint8_t fillers[512 * UNIT_SIZE];
    const struct unit filler = {0, UNIT_FILLER, 0};
    for (size_t i = 0; i < sizeof fillers; i += UNIT_SIZE)
        unit_save(fillers + i, &filler);

    for (uint64_t at = seg->base; at < upto;) {
        size_t n = upto - at < sizeof fillers ? (size_t)(upto - at) : sizeof fillers;
        enum err err = segment_write(seg, at, bytes_of(fillers, n), 0, why);
        if (err)
            return err;
        at += n;
    }
    return OK;
}

enum err queue_restart(struct store *store, struct queue *queue, int64_t offset, struct fault *why)
{
    room_held(&store->derived.room);
    enum err err = fileset_remove(&store->cache, &queue->files, why);
    if (err)
        return err;
    uint64_t at = (uint64_t)offset * UNIT_SIZE;
    cleanup(segment_drop_at) struct segment *seg = NULL;
    err = file_for(store, queue, at, &seg, why);
    if (!err)
        err = fill(seg, at, why);
    if (err)
        return err;
    queue->log_end = 0;
    queue->known_end = 0;
    queue->synced = (int64_t)(seg->base / UNIT_SIZE);
    queue->cut = true;
    atomic_store_explicit(&queue->max, offset, memory_order_release);
    atomic_store_explicit(&queue->min, offset, memory_order_release);
    queue_mark_dirty(store, queue);
    return OK;
}
