/* check_index.c - is the index what the log says?
 *
 * Each file is looked at by itself: the header, the row of entries with their chains (the same way
 * in which a start after a crash makes the slots again), the slots, and for each entry whose record
 * is still in the log, that the record has such a key and the time is its own.
 *
 * The numbers of slots and entries are nowhere in a file. Files of Apache's default size have its
 * default numbers; for others the one place is searched at which entries make sense.
 *
 * After a crash the files from the first that is not full on are what the next start examines and
 * builds again, so whatever is wrong there is a note. Where the log cannot be read, that has been
 * told, and what an entry leads to is not asked.
 */
#include "store/check_int.h"
#include "store/index_int.h"

#include <inttypes.h>
#include <stdio.h>

#define DEFAULT_SLOTS   5000000u
#define DEFAULT_ENTRIES 20000000u
#define SHAPE_ENTRIES   1000 /* so many are looked at to tell a shape from chance */
#define SECOND_MS       1000

/* One file on its way. */
struct look {
    struct check *c;
    struct index_shape shape;
    char path[INDEX_PATH_SIZE];
    bool firm; /* what is wrong with it is damage */
    const uint8_t *map;
    struct index_header head;

    struct segment *seg; /* the log file that was needed last */
    struct stretch log;
    /* Entries that lead to no record, and that do not fit theirs: how many, the first. */
    uint64_t n_lost, n_wrong;
    uint32_t lost, wrong;
};

static void table_drop_at(struct index_table **table)
{
    index_table_drop(*table);
}

static void say(struct look *l, int64_t at, const char *text)
{
    check_say(l->c, l->firm ? CHECK_DAMAGE : CHECK_NOTE, l->path, at, "%s%s", text,
              l->firm ? "" : "; the next start builds it again");
}

/* ---- slots and entries: how many ---- */

/* The slot of a file's last entry leads to it. Entries alone may be taken for some where there are
 * none: a single slot in use, in the place of the hash, looks like one of the log's first record.
 */
static bool slot_fits(const uint8_t *map, const struct index_shape *shape, uint32_t last)
{
    uint32_t slot = index_entry_load(map + index_entry_at(shape, last)).hash % shape->slots;
    return load_u32(map + INDEX_HEADER_SIZE + (uint64_t)slot * INDEX_CELL_SIZE) == last;
}

static bool shape_fits(const uint8_t *map, const struct index_shape *shape,
                       const struct index_header *head)
{
    uint32_t last = head->count - 1, some = last < SHAPE_ENTRIES ? last : SHAPE_ENTRIES;
    uint64_t position = head->begin_position;
    if (index_entry_load(map + index_entry_at(shape, last)).hash == 0)
        return false;
    for (uint32_t number = 1; number <= some; number++) {
        struct index_entry e = index_entry_load(map + index_entry_at(shape, number));
        if (number == 1 && (e.hash == 0 || e.position != head->begin_position || e.prev != 0))
            return false;
        if (e.hash > INT32_MAX || e.prev >= number || e.position < position ||
            e.position > head->end_position)
            return false;
        struct index_entry before = index_entry_load(map + index_entry_at(shape, e.prev));
        if (e.prev > 0 && before.hash % shape->slots != e.hash % shape->slots)
            return false;
        position = e.position;
    }
    return true;
}

/* What a file tells about its shape. */
enum telling {
    TELLS_NOTHING, /* it has no entries */
    TELLS_SHAPE,
    TELLS_LIES, /* it says it has some, but they are nowhere */
};

/* The first shape of a file of `size` bytes that fits its header, its entries and, if it has them
 * on disk, the slot of the last. */
static enum telling shape_search(const uint8_t *map, uint64_t size, bool by_slot,
                                 struct index_shape *out)
{
    const struct index_shape any = {INDEX_NUMBERS_MAX, INDEX_NUMBERS_MAX};
    struct bytes header = bytes_of(map, INDEX_HEADER_SIZE);
    struct index_header head, same;
    if (index_header_decode(header, &any, &head))
        return TELLS_LIES;
    uint64_t rest = size - INDEX_HEADER_SIZE;
    for (uint64_t slots = 1; head.count > 1 && slots * INDEX_CELL_SIZE < rest; slots++) {
        uint64_t left = rest - slots * INDEX_CELL_SIZE, entries = left / INDEX_ENTRY_SIZE;
        if (entries < head.count)
            break;
        struct index_shape shape = {(uint32_t)slots, (uint32_t)entries};
        if (left % INDEX_ENTRY_SIZE == 0 && index_header_decode(header, &shape, &same) == OK &&
            shape_fits(map, &shape, &head) &&
            (!by_slot || slot_fits(map, &shape, head.count - 1))) {
            *out = shape;
            return TELLS_SHAPE;
        }
    }
    return head.count > 1 ? TELLS_LIES : TELLS_NOTHING;
}

static enum err shape_of_file(struct check *c, uint64_t name, struct index_shape *out,
                              enum telling *telling, struct fault *why)
{
    struct vfs *vfs = c->store->vfs;
    char path[INDEX_PATH_SIZE];
    struct vfs_file *file;
    uint64_t size;
    const uint8_t *map;
    index_path(path, name);
    enum err err = vfs->calls->open(vfs, path, VFS_READ, &file, why);
    if (err)
        return err;
    err = vfs->calls->size(file, &size, why);
    const struct index_shape usual = {DEFAULT_SLOTS, DEFAULT_ENTRIES};
    *telling = TELLS_LIES;
    if (!err && size == index_file_size(&usual)) {
        *out = usual;
        *telling = TELLS_SHAPE;
    } else if (!err && size > INDEX_HEADER_SIZE && size / INDEX_CELL_SIZE < INDEX_NUMBERS_MAX) {
        err = vfs->calls->map(file, size, &map, why);
        if (!err) {
            *telling = shape_search(map, size, true, out);
            if (*telling == TELLS_LIES) /* it was not closed, or the slot is damaged */
                *telling = shape_search(map, size, false, out);
            vfs->calls->unmap(file, map, size);
        }
    }
    vfs->calls->close(file);
    return err;
}

/* ---- entries and the log ---- */

static bool has_key(const struct record *r, uint32_t hash)
{
    struct marks marks = props_marks(r->props);
    if (marks.unique.len && index_hash(r->topic, marks.unique) == hash)
        return true;
    if (marks.tags.len && index_hash_tag(r->topic, marks.tags) == hash)
        return true;
    for (struct bytes words = marks.keys; words.len > 0;) {
        const uint8_t *blank = memchr(words.at, ' ', words.len);
        size_t len = blank ? (size_t)(blank - words.at) : words.len;
        if (len > 0 && index_hash(r->topic, bytes_of(words.at, len)) == hash)
            return true;
        words = bytes_from(words, blank ? len + 1 : len);
    }
    return false;
}

/* The record that an entry leads to. False: there is none, or it cannot be asked for. */
static enum err record_of(struct look *l, uint64_t position, struct record *out, bool *found,
                          struct fault *why)
{
    enum err err = OK;
    *found = false;
    if (!l->seg || position < l->log.from || position >= l->log.end) {
        segment_drop(take(&l->seg));
        err = log_stretch(l->c->store, position, &l->seg, &l->log, why);
    }
    if (err == ERR_NOT_FOUND || err == ERR_DAMAGED) {
        fault_forget(why);
        return OK;
    }
    if (!err)
        *found =
            position < l->c->sum.log_end && stretch_look(&l->log, position, out) == SIGHT_RECORD;
    return err;
}

/* The file's times are those of its first and last entry, but a start after a crash knows the
 * latter only to a second. Of the first entry Apache has other seconds: see index_seconds. */
static bool times_fit(const struct look *l, uint32_t number, const struct index_entry *e,
                      const struct record *r)
{
    const struct index_header *head = &l->head;
    if (number == head->count - 1 &&
        (head->end_ms > r->store_ms || r->store_ms - head->end_ms >= SECOND_MS))
        return false;
    if (number == 1)
        return head->begin_ms == r->store_ms;
    return e->seconds == index_seconds(head, r->store_ms);
}

static enum err entry_check(struct look *l, uint32_t number, struct fault *why)
{
    struct index_entry e = index_entry_load(l->map + index_entry_at(&l->shape, number));
    struct record r;
    bool found;
    if (e.position < l->c->sum.log_first)
        return OK; /* its record is gone, as it should be */
    enum err err = record_of(l, e.position, &r, &found, why);
    if (err || (!found && !l->c->log_whole))
        return err;
    if (!found && l->n_lost++ == 0)
        l->lost = number;
    if (found && !(has_key(&r, e.hash) && times_fit(l, number, &e, &r)) && l->n_wrong++ == 0)
        l->wrong = number;
    return OK;
}

static void tell_entries(struct look *l)
{
    char text[160];
    if (l->n_lost > 0) {
        (void)snprintf(text, sizeof text,
                       "%" PRIu64
                       " entries have no message in the log, the first is number %" PRIu32,
                       l->n_lost, l->lost);
        say(l, (int64_t)index_entry_at(&l->shape, l->lost), text);
    }
    if (l->n_wrong > 0) {
        (void)snprintf(text, sizeof text,
                       "%" PRIu64
                       " entries do not fit their messages, the first is number %" PRIu32,
                       l->n_wrong, l->wrong);
        say(l, (int64_t)index_entry_at(&l->shape, l->wrong), text);
    }
}

/* ---- one file ---- */

/* Only a file that is full, or was closed, has its slots on disk. */
static void slots_check(struct look *l, const struct index_table *table, uint32_t slot_count)
{
    uint64_t n = 0, at = 0;
    for (uint32_t slot = 0; slot < l->shape.slots; slot++) {
        uint64_t place = INDEX_HEADER_SIZE + (uint64_t)slot * INDEX_CELL_SIZE;
        if (load_u32(l->map + place) != index_table_get(table, l->map, slot) && n++ == 0)
            at = place;
    }
    char text[120];
    (void)snprintf(text, sizeof text, "%" PRIu64 " slots do not lead to their newest entry", n);
    if (n > 0)
        say(l, (int64_t)at, text);
    if (n == 0 && slot_count != l->head.slot_count)
        check_say(l->c, CHECK_NOTE, l->path, INDEX_HEADER_SIZE - 8,
                  "says that %" PRIu32 " slots are in use, and it is %" PRIu32
                  "; nothing depends on it",
                  l->head.slot_count, slot_count);
}

static enum err file_walk(struct look *l, struct fault *why)
{
    cleanup(table_drop_at) struct index_table *table = index_table_new(&l->shape, 0);
    if (!table)
        return ERR_NO_MEMORY;
    struct index_header built = l->head;
    uint32_t sound = index_table_build(table, l->map, &built);
    enum err err = OK;
    for (uint32_t number = 1; !err && number < sound; number++)
        err = entry_check(l, number, why);
    segment_drop(take(&l->seg));
    if (err)
        return err;
    tell_entries(l);
    l->c->sum.index_entries += sound - 1;
    char text[120];
    (void)snprintf(text, sizeof text,
                   "entry %" PRIu32 " of %" PRIu32 " makes no sense, and was not read, nor those "
                   "behind it",
                   sound, l->head.count - 1);
    if (sound < l->head.count)
        say(l, (int64_t)index_entry_at(&l->shape, sound), text);
    else if (!l->c->aborted || l->head.count == l->shape.entries)
        slots_check(l, table, built.slot_count);
    return OK;
}

/* Where a file says that it ends a record begins: that of its last entry, or a later one that has
 * no keys. */
static enum err end_check(struct look *l, struct fault *why)
{
    uint64_t end = l->head.end_position;
    struct record r;
    bool found;
    if (!l->c->log_whole || end < l->c->sum.log_first || (l->head.count <= 1 && end == 0))
        return OK;
    enum err err = record_of(l, end, &r, &found, why);
    segment_drop(take(&l->seg));
    if (!err && !found)
        say(l, INDEX_HEADER_SIZE - 16, "no record of the log begins where it says that it ends");
    return err;
}

/* What stands in front of a file. */
struct front {
    uint64_t end; /* the position in its header */
    bool full;
};

static enum err file_check(struct look *l, uint64_t name, struct front *front, struct fault *why)
{
    struct index_file *file;
    struct fault wrong = {0};
    index_path(l->path, name);
    l->n_lost = l->n_wrong = 0;
    enum err err = index_file_open(l->c->store->vfs, &l->shape, name, &file, &wrong);
    if (err == ERR_DAMAGED) {
        say(l, -1, wrong.text);
        return OK;
    }
    if (err && why)
        *why = wrong;
    if (err)
        return err;
    l->head = file->head;
    if (!front->full)
        say(l, -1, "the file in front of it is not full");
    if (file->head.begin_position < front->end)
        say(l, INDEX_HEADER_SIZE - 24, "begins before the file in front of it ends");
    l->firm = l->firm || (front->full && index_full(file));
    *front = (struct front){file->head.end_position, front->full && index_full(file)};
    err = index_file_map(file, &l->map, why);
    if (!err)
        err = file_walk(l, why);
    if (!err)
        err = end_check(l, why);
    index_file_drop(file);
    return err;
}

enum err check_index(struct check *c, struct fault *why)
{
    cleanup(free_at) uint64_t *names = NULL;
    struct look l = {.c = c, .path = INDEX_FOLDER, .firm = !c->aborted};
    bool known = false, lies = false;
    size_t n;
    enum err err = index_names(c->store->vfs, &names, &n, why);
    for (size_t i = 0; !err && !known && i < n; i++) {
        enum telling telling = TELLS_LIES;
        err = shape_of_file(c, names[i], &l.shape, &telling, why);
        known = !err && telling == TELLS_SHAPE;
        lies = lies || (!err && telling == TELLS_LIES);
    }
    if (err)
        return err;
    c->sum.index_files = n;
    if (!known && lies)
        say(&l, -1, "its files do not tell how many slots they have, and were not read");
    struct front front = {.full = true};
    for (size_t i = 0; !err && known && i < n; i++) {
        if (c->aborted && !front.full)
            break; /* as a crash leaves it; the next start removes the rest */
        l.firm = !c->aborted;
        err = file_check(&l, names[i], &front, why);
    }
    return err;
}
