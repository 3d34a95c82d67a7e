/* index.c - finding messages by key: adding, asking, flushing. The model is in index_int.h. */
#include "store/index_int.h"

#include <stdlib.h>
#include <time.h>

/* Full files whose tables may wait for the keeper. Beyond, the dispatcher seals them itself. */
#define UNSEALED_MAX 1

static enum err pending_write(struct index *index, struct fault *why);
static enum err file_begin(struct index *index, struct fault *why);
static enum err files_flush(struct index *index, bool all_slots, struct fault *why);

/* ---- life ---- */

enum err index_open(const struct index_options *options, bool clean, uint64_t log_end,
                    struct index **out, struct index_report *report, struct fault *why)
{
    const struct index_shape *shape = &options->shape;
    if (shape->slots == 0 || shape->slots > INDEX_NUMBERS_MAX || shape->entries < 2 ||
        shape->entries > INDEX_NUMBERS_MAX)
        return fault_set(why, ERR_INVALID, "an index of %u slots and %u entries cannot be",
                         (unsigned)shape->slots, (unsigned)shape->entries);
    struct index *index = calloc(1, sizeof *index);
    if (!index)
        return ERR_NO_MEMORY;
    index->options = *options;
    index->vfs = options->vfs;
    index->shape = *shape;
    room_init(&index->room, "index", ROOM_LEAF);
    room_init(&index->flushing, "index flushing", ROOM_FILES);

    struct index_report found = {0};
    enum err err = index_load(index, clean, log_end, &found, why);
    if (err) {
        index_abandon(index);
        return err;
    }
    *report = found;
    *out = index;
    return OK;
}

void index_abandon(struct index *index)
{
    if (!index)
        return;
    for (size_t i = 0; i < index->n; i++)
        index_file_drop(index->files[i]);
    room_clear(&index->room);
    room_clear(&index->flushing);
    free(index->files);
    free(index);
}

enum err index_close(struct index *index, struct fault *why)
{
    room_enter(&index->flushing);
    enum err err = files_flush(index, true, why);
    room_leave(&index->flushing);
    if (!err && index->part > 0)
        err = fault_set(why, ERR_STALE, "the index lacks keys of its last record");
    index_abandon(index);
    return err;
}

enum err index_append_file(struct index *index, struct index_file *file)
{
    struct index_file **grown = NULL, **old = NULL;
    room_enter(&index->room);
    size_t cap = index->n < index->cap ? 0 : index->cap * 2 + 8; /* meanwhile it can only shrink */
    room_leave(&index->room);
    if (cap) {
        grown = calloc(cap, sizeof(struct index_file *));
        if (!grown)
            return ERR_NO_MEMORY;
    }
    room_enter(&index->room);
    if (grown) {
        old = index->files;
        if (index->n)
            memcpy(grown, old, index->n * sizeof(struct index_file *));
        index->files = grown;
        index->cap = cap;
    }
    file->order = ++index->orders;
    index->files[index->n++] = file;
    room_leave(&index->room);
    index->newest = file;
    free(old);
    return OK;
}

/* ---- adding ---- */

/* Everything since the last turn that went well will be added again. */
static void turn_drop(struct index *index)
{
    index->n_pending = 0;
    index->seen = false;
    memset(index->recent, 0, sizeof index->recent);
}

static enum err hash_add(struct index *index, const struct index_item *item, uint32_t hash,
                         uint32_t *skip, struct fault *why)
{
    if (*skip > 0) {
        --*skip;
        return OK;
    }
    if (index->n_pending == INDEX_PENDING_MAX) {
        enum err err = pending_write(index, why);
        if (err)
            return err;
    }
    uint32_t slot = hash % index->shape.slots;
    const struct index_file *newest = index->newest;
    if (newest && !index_full(newest)) /* by the time it is needed it is there */
        __builtin_prefetch(&newest->table->cells[slot + INDEX_CELL_FIRST], 1);
    int64_t store_ms = item->store_ms > 0 ? item->store_ms : 0;
    store_ms = store_ms < INDEX_MS_MAX ? store_ms : INDEX_MS_MAX;
    index->pending[index->n_pending++] = (struct index_key){item->position, store_ms, hash, slot};
    return OK;
}

bool keys_next(struct bytes *words, struct bytes *key)
{
    while (words->len > 0) {
        const uint8_t *blank = memchr(words->at, ' ', words->len);
        size_t len = blank ? (size_t)(blank - words->at) : words->len;
        *key = bytes_of(words->at, len);
        *words = bytes_from(*words, blank ? len + 1 : len);
        if (len > 0)
            return true;
    }
    return false;
}

/* False: the record is in already. Else so many of its keys are. */
static bool item_begin(struct index *index, const struct index_item *item, uint32_t *skip)
{
    uint64_t position = item->position;
    if (position < index->next) {
        if (position + item->size > index->next) { /* a clean stop knows no size of the last one */
            room_enter(&index->room);
            index->next = position + item->size;
            room_leave(&index->room);
        }
        return false;
    }
    invariant(!index->seen || position >= index->seen_end); /* the order of the log */
    *skip = position == index->next ? index->part : 0;
    return true;
}

static enum err item_end(struct index *index, const struct index_item *item, enum err err)
{
    if (err) {
        turn_drop(index);
        return err;
    }
    index->seen = true;
    index->seen_position = item->position;
    index->seen_end = item->position + (item->size ? item->size : 1);
    return OK;
}

enum err index_add(struct index *index, const struct record *r, struct fault *why)
{
    struct marks marks = props_marks(r->props);
    return index_add_marked(index, r, &marks, why);
}

enum err index_add_marked(struct index *index, const struct record *r, const struct marks *marks,
                          struct fault *why)
{
    invariant(r->position >= 0);
    struct index_item item = {(uint64_t)r->position, r->size, r->store_ms};
    uint32_t skip;
    if (!item_begin(index, &item, &skip))
        return OK;
    bool rolled_back = (r->sys_flag & SYS_TX_MASK) == SYS_TX_ROLLBACK;
    struct bytes unique = marks->unique, words = marks->keys, key;
    enum err err = OK;
    if (!rolled_back && unique.len)
        err = hash_add(index, &item, index_hash_near(&index->topic, r->topic, unique), &skip, why);
    while (!rolled_back && !err && keys_next(&words, &key))
        err = hash_add(index, &item, index_hash_near(&index->topic, r->topic, key), &skip, why);
    return item_end(index, &item, err);
}

enum err index_add_hashes(struct index *index, const struct index_item *item,
                          const uint32_t *hashes, size_t n, struct fault *why)
{
    uint32_t skip;
    if (!item_begin(index, item, &skip))
        return OK;
    enum err err = OK;
    for (size_t i = 0; i < n && !err; i++)
        err = hash_add(index, item, hashes[i], &skip, why);
    return item_end(index, item, err);
}

enum err index_turn_end(struct index *index, struct fault *why)
{
    if (!index->seen)
        return OK;
    enum err err = pending_write(index, why);
    if (!err && !index->newest)
        err = file_begin(index, why);
    if (err) {
        turn_drop(index);
        return err;
    }
    struct index_file *newest = index->newest;
    room_enter(&index->room);
    index->next = index->seen_end;
    index->part = 0;
    if (!index_full(newest))
        newest->head.end_position = index->seen_position;
    room_leave(&index->room);
    index->seen = false;
    return OK;
}

uint64_t index_next_position(struct index *index)
{
    room_enter(&index->room);
    uint64_t next = index->next;
    room_leave(&index->room);
    return next;
}

/* ---- from pending keys to entries ---- */

/* What the slot of a key leads to, and from now on it leads to `number`. */
static uint32_t recent_swap(struct index *index, const struct index_file *file, const uint8_t *map,
                            uint32_t slot, uint32_t number)
{
    uint32_t at = slot * 0x9e3779b1u / (UINT32_MAX / INDEX_RECENT + 1);
    for (;; at = (at + 1) % INDEX_RECENT) { /* at most half of it is in use */
        struct index_recent *cell = &index->recent[at];
        if (cell->number < file->head.count) {
            *cell = (struct index_recent){slot, number};
            return index_table_get(file->table, map, slot);
        }
        if (cell->slot == slot) {
            uint32_t before = cell->number;
            cell->number = number;
            return before;
        }
    }
}

/* Entries for the first n keys, in index->bytes; `head` becomes what it is with them. */
static void keys_encode(struct index *index, const struct index_file *file, const uint8_t *map,
                        size_t n, struct index_header *head)
{
    for (size_t i = 0; i < n; i++) {
        const struct index_key *key = &index->pending[i];
        uint32_t prev = recent_swap(index, file, map, key->slot, head->count);
        struct index_entry e = {key->hash, key->position, index_seconds(head, key->store_ms), prev};
        index_entry_save(index->bytes + i * INDEX_ENTRY_SIZE, &e);
        if (head->count == 1) {
            head->begin_ms = key->store_ms;
            head->begin_position = key->position;
        }
        head->slot_count += prev == 0;
        head->count++;
        head->end_ms = key->store_ms;
        head->end_position = key->position;
    }
}

/* The first n keys are in: the slots first, since what they lead to is written. */
static void keys_publish(struct index *index, struct index_file *file, const uint8_t *map, size_t n,
                         const struct index_header *head)
{
    for (size_t i = 0; i < n; i++)
        index_table_set(file->table, map, index->pending[i].slot, file->head.count + (uint32_t)i);

    uint64_t last = index->pending[n - 1].position;
    uint32_t same = 0; /* keys of the last record */
    while (same < n && index->pending[n - 1 - same].position == last)
        same++;
    room_enter(&index->room);
    file->head = *head;
    index->part = last == index->next ? index->part + same : same;
    index->next = last;
    room_leave(&index->room);

    index->n_pending -= n;
    memmove(index->pending, index->pending + n, index->n_pending * sizeof *index->pending);
}

/* Writes what fits in the newest file. */
static enum err keys_write(struct index *index, struct fault *why)
{
    struct index_file *file = index->newest;
    const uint8_t *map = NULL;
    enum err err = file->table->lazy ? index_file_map(file, &map, why) : OK;
    if (err)
        return err;
    size_t room = file->shape->entries - file->head.count;
    size_t n = index->n_pending < room ? index->n_pending : room;
    struct index_header head = file->head;
    keys_encode(index, file, map, n, &head);
    err = index_file_write(file, index_entry_at(file->shape, file->head.count), index->bytes,
                           n * INDEX_ENTRY_SIZE, why);
    if (err)
        return err;
    keys_publish(index, file, map, n, &head);
    return OK;
}

/* After an error the caller drops the turn; what is published stays. */
static enum err pending_write(struct index *index, struct fault *why)
{
    while (index->n_pending > 0) {
        enum err err = OK;
        if (!index->newest || index_full(index->newest))
            err = file_begin(index, why);
        if (!err)
            err = keys_write(index, why);
        if (err)
            return err;
    }
    return OK;
}

/* ---- the next file ---- */

/* Local time as in Apache's names, and always after the newest: they are sorted by name. */
static uint64_t next_name(struct index *index)
{
    int64_t now_ms = clock_ms(index->options.clock);
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm t = {0};
    (void)localtime_r(&seconds, &t);
    uint64_t name = (uint64_t)t.tm_year + 1900;
    name = name * 100 + (uint64_t)t.tm_mon + 1;
    name = name * 100 + (uint64_t)t.tm_mday;
    name = name * 100 + (uint64_t)t.tm_hour;
    name = name * 100 + (uint64_t)t.tm_min;
    name = name * 100 + (uint64_t)t.tm_sec;
    name = name * 1000 + (uint64_t)(now_ms % 1000);
    const struct index_file *newest = index->newest;
    return newest && name <= newest->name ? newest->name + 1 : name;
}

static size_t unsealed_full(struct index *index)
{
    size_t count = 0;
    room_enter(&index->room);
    for (size_t i = 0; i < index->n; i++)
        count += index->files[i]->table && index_full(index->files[i]);
    room_leave(&index->room);
    return count;
}

static enum err file_begin(struct index *index, struct fault *why)
{
    enum err err = OK;
    if (unsealed_full(index) > UNSEALED_MAX) {
        room_enter(&index->flushing);
        err = index->lost ? OK : files_flush(index, false, why);
        if (index->lost) /* they never will be; rather memory for a table than no index */
            err = OK;
        room_leave(&index->flushing);
    }
    if (err)
        return err;

    struct index_header head = {.count = 1};
    const struct index_file *newest = index->newest;
    if (newest) {
        head.begin_ms = head.end_ms = newest->head.end_ms;
        head.begin_position = head.end_position = newest->head.end_position;
    }
    struct index_file *file;
    err = index_file_make(index->vfs, &index->shape, next_name(index), &head, &file, why);
    if (err)
        return err;
    err = index_append_file(index, file);
    if (err) {
        char path[INDEX_PATH_SIZE];
        index_path(path, file->name);
        (void)index->vfs->calls->remove(index->vfs, path, NULL);
        index_file_drop(file);
        return err;
    }
    memset(index->recent, 0, sizeof index->recent); /* numbers start again */
    return OK;
}

/* ---- asking ---- */

/* One file of a query, held. */
struct visit {
    struct index_file *file;
    struct index_table *table;
    struct index_view view;
};

/* The newest file that is older than `order`. */
static bool visit_start(struct index *index, uint64_t order, struct visit *out)
{
    *out = (struct visit){0};
    room_enter(&index->room);
    size_t i = index->n;
    while (i > 0 && index->files[i - 1]->order >= order)
        i--;
    if (i > 0) {
        out->file = index->files[i - 1];
        out->table = out->file->table;
        out->view.head = out->file->head;
        counted_hold(&out->file->owner);
        if (out->table)
            counted_hold(&out->table->owner);
    }
    room_leave(&index->room);
    out->view.shape = &index->shape;
    out->view.table = out->table;
    return out->file != NULL;
}

static void visit_end(struct visit *v)
{
    index_table_drop(v->table);
    index_file_drop(v->file);
}

static int by_position(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

enum err index_query(struct index *index, const struct index_query *query, struct index_result *out)
{
    struct index_result found = {0};
    uint32_t hash = index_hash(query->topic, query->key);
    uint32_t max = query->max < INDEX_QUERY_MAX ? query->max : INDEX_QUERY_MAX;
    bool first = true, go_on = true;
    uint64_t order = UINT64_MAX;
    struct visit v;
    for (; go_on && visit_start(index, order, &v); visit_end(&v)) {
        if (first) {
            found.end_ms = v.view.head.end_ms;
            found.end_position = v.view.head.end_position;
        }
        first = false;
        order = v.file->order;
        if (v.view.head.count > 1 && found.n < max && index_view_in_time(&v.view, query)) {
            enum err err = index_file_map(v.file, &v.view.map, NULL);
            if (err) {
                visit_end(&v);
                return err;
            }
            index_view_search(&v.view, hash, query, &found);
        }
        go_on = found.n < max && v.view.head.begin_ms >= query->begin_ms;
    }
    if (found.n)
        qsort(found.positions, found.n, sizeof *found.positions, by_position);
    *out = found;
    return OK;
}

/* ---- to the disk ---- */

/* Room: index. The oldest file that is newer than `order` and not sealed, held. */
static struct index_file *unsealed_next(struct index *index, uint64_t order,
                                        struct index_header *head)
{
    room_held(&index->room);
    for (size_t i = 0; i < index->n; i++) {
        struct index_file *file = index->files[i];
        if (file->order <= order || !file->table)
            continue;
        counted_hold(&file->owner);
        *head = file->head;
        return file;
    }
    return NULL;
}

/* Room: flushing. All of the file is on disk; who asks reads its slots there from now on. */
static void file_seal(struct index *index, struct index_file *file)
{
    room_held(&index->flushing);
    room_enter(&index->room);
    struct index_table *table = take(&file->table);
    room_leave(&index->room);
    index_table_drop(table);
}

/* Room: flushing. Oldest first, because a header is believed only if the file before is full. */
static enum err files_flush(struct index *index, bool all_slots, struct fault *why)
{
    room_held(&index->flushing);
    if (index->lost)
        return fault_set(why, ERR_IO, "a sync of the index has failed before");
    uint64_t order = 0;
    enum err err = OK;
    while (!err) {
        struct index_header head;
        room_enter(&index->room);
        struct index_file *file = unsealed_next(index, order, &head);
        room_leave(&index->room);
        if (!file)
            break;
        order = file->order;
        bool full = head.count == index->shape.entries;
        err = index_file_flush(file, &head, full || all_slots ? file->table : NULL, &index->lost,
                               why);
        if (!err && full)
            file_seal(index, file);
        index_file_drop(file);
    }
    return err;
}

enum err index_flush(struct index *index, struct index_flushed *out, struct fault *why)
{
    room_enter(&index->flushing);
    struct index_flushed done = {.position = index_next_position(index)};
    enum err err = files_flush(index, false, why);
    room_enter(&index->room);
    for (size_t i = 0; i < index->n; i++)
        if (!index->files[i]->table)
            done.sealed_ms = index->files[i]->head.end_ms;
    room_leave(&index->room);
    room_leave(&index->flushing);
    if (!err)
        *out = done;
    return err;
}

enum err index_remove_before(struct index *index, uint64_t position, struct fault *why)
{
    bool changed = false;
    enum err err = OK;
    room_enter(&index->flushing);
    while (!err) {
        room_enter(&index->room);
        struct index_file *oldest = index->n > 1 ? index->files[0] : NULL;
        bool goes = oldest && !oldest->table && oldest->head.end_position < position;
        room_leave(&index->room);
        if (!goes)
            break;
        char path[INDEX_PATH_SIZE];
        index_path(path, oldest->name);
        err = index->vfs->calls->remove(index->vfs, path, why);
        if (err)
            break;
        changed = true;
        room_enter(&index->room);
        index->n--;
        memmove(index->files, index->files + 1, index->n * sizeof(struct index_file *));
        room_leave(&index->room);
        index_file_drop(oldest);
    }
    if (!err && changed)
        err = index->vfs->calls->sync_dir(index->vfs, INDEX_FOLDER, why);
    room_leave(&index->flushing);
    return err;
}
