/* index_int.h - finding messages by key. Nobody outside the store includes it.
 *
 * The index is a row of files, each a hash table from `topic#key` to positions in the log, exactly
 * as Apache RocketMQ lays them out, so that either opens the other's:
 *
 *     header   40 bytes: times and positions of the first and the last entry, how many there are
 *     slots    4 bytes each: the newest entry of a chain; 0: none
 *     entries  20 bytes each: hash, position, seconds since the file's first entry, the next older
 *              entry of the chain. Number 0 is never used, and the header's count starts at 1.
 *
 * Only the newest file grows; when it is full the next one is begun. Entries are appended and never
 * change. Everything is derived: what is in doubt after a crash is dropped and comes from the log
 * again.
 *
 * Writing. The dispatcher adds records in the order of the log. Their keys wait until
 * index_turn_end, leave in one write for each file, and only then their slots are set, so whatever
 * a slot leads to is in the file. What is in the index is at any instant a prefix of the keys of
 * the log: all of the records that start below `next`, and the first `part` keys of the one at
 * `next`. A record that is offered again is passed over as far as it is in, so after an error the
 * caller comes again with everything since the last turn that went well.
 *
 * The slots of a file that is not finished live in memory (a *table*: anonymous pages that cost
 * nothing before they are touched). They reach the disk twice: when the file is full, and on a
 * clean stop. After a crash they are made again from the entries, so nothing depends on them. A
 * file is *sealed* once it is full and all of it is on disk; then its table goes.
 *
 * On disk. A header is written only after the entries that it counts were synced; that is the one
 * promise recovery needs. It then believes the header of the newest file, drops the last record (of
 * which a crash may have kept only the first keys), and tells from where the log must be added
 * again. A row is believed as far as it makes sense: what stands behind a file that is damaged or
 * not full is removed.
 *
 * The end position in our headers is that of the last record looked at, with keys or not: a log
 * without keys need not be read again at every start. Apache's is that of the last entry, and it
 * understands both.
 *
 * Reading. A query takes each file with a count, newest first, and walks its chain through a shared
 * read-only mapping. Chains lead to ever smaller numbers; a link that does not is damage and ends
 * the walk. So a walk ends, and never leaves the file.
 *
 * Rooms: `room` (leaf) guards the row of files, their headers and tables, `next` and `part`; it is
 * entered for a few instructions. `flushing` (files) keeps apart those who write headers and seal;
 * it alone is held while waiting for the disk, by the keeper - and by the dispatcher only when it
 * has filled a file before the keeper sealed the one before.
 *
 * Threads: index_query from any. index_add and index_turn_end by one at a time (the store's derived
 * room). index_flush and index_remove_before from any, beside all of these.
 */
#ifndef STORE_INDEX_INT_H
#define STORE_INDEX_INT_H

#include "base/clock.h"
#include "base/counted.h"
#include "base/room.h"
#include "base/vfs.h"
#include "msg/msg.h"
#include "store/store.h"

#include <stdatomic.h>

#define INDEX_FOLDER      "index"
#define INDEX_QUERY_MAX   64         /* Apache's maxMsgsNumBatch */
#define INDEX_NUMBERS_MAX (1u << 30) /* slots, and entries, of one file */

struct index;

/* Apache's maxHashSlotNum and maxIndexNum: 5,000,000 and 20,000,000. They must not change between
 * two starts: files of another size are taken for damaged, and built again from the log. */
struct index_shape {
    uint32_t slots;
    uint32_t entries; /* numbers, of which 0 is not used */
};

struct index_options {
    struct vfs *vfs; /* of the store's root folder; stays the caller's */
    struct clock *clock;
    struct index_shape shape;
};

/* What opening found. */
struct index_report {
    size_t files;
    size_t removed;   /* files that could not be used */
    uint64_t dropped; /* entries that were in doubt, unless their file was removed at once */
    /* Add the log again from the record at this position on (it may lie before the log's first, or
     * 0: all of the log). Records that are in already are passed over. */
    uint64_t redo;
    char note[160]; /* damage that was found, in words; empty: none */
};

struct index_query {
    struct bytes topic, key;
    uint32_t max;             /* at most INDEX_QUERY_MAX count */
    int64_t begin_ms, end_ms; /* both included; times are cut to seconds since a file's first */
};

struct index_result {
    size_t n;
    uint64_t positions[INDEX_QUERY_MAX]; /* rising. Other keys with the same hash are among them */
    /* Of the newest file, for the response; 0: no files. */
    int64_t end_ms;
    uint64_t end_position;
};

struct index_flushed {
    uint64_t position; /* records that start below are in the index, and on disk */
    int64_t sealed_ms; /* end of the newest sealed file, for Apache's checkpoint; 0: none */
};

/* `clean`: the last stop was, and index_close() went well; then nothing but headers is read.
 * `log_end` is where the log ends after its own recovery: what points there or behind is dropped.
 * Nothing may be added before the log was added again from report->redo on. */
must_check enum err index_open(const struct index_options *options, bool clean, uint64_t log_end,
                               struct index **out, struct index_report *report, struct fault *why);

/* Writes everything and frees. On an error it is freed as well, but the stop was not a clean one
 * and the next index_open() must be told so. ERR_STALE: the last turn failed half-way and was not
 * made good. Nobody else is inside by now. */
must_check enum err index_close(struct index *index, struct fault *why);
/* Frees and touches nothing on disk: what a crash does. */
void index_abandon(struct index *index);

/* Takes up the keys of a record: UNIQ_KEY, then each word of KEYS. Records come in the order of the
 * log. An error (ERR_DISK_FULL, ERR_IO, ERR_NO_MEMORY) means the same as from index_turn_end. */
must_check enum err index_add(struct index *index, const struct record *record, struct fault *why);
/* The same, when its properties were looked through already. */
must_check enum err index_add_marked(struct index *index, const struct record *record,
                                     const struct marks *marks, struct fault *why);
/* The same, when its keys were hashed already. */
struct index_item {
    uint64_t position;
    uint32_t size;
    int64_t store_ms;
};
must_check enum err index_add_hashes(struct index *index, const struct index_item *item,
                                     const uint32_t *hashes, size_t n, struct fault *why);
/* The next key of KEYS: they stand between blanks. False: there is no more. */
bool keys_next(struct bytes *words, struct bytes *key);

/* Makes what was added visible. After an error the first so many keys are in, the others are
 * forgotten: come again with every record since the last turn that went well. Whoever goes on
 * without them instead has an index that lacks them. */
must_check enum err index_turn_end(struct index *index, struct fault *why);

/* Records that start below are in. */
uint64_t index_next_position(struct index *index);

/* ERR_IO, ERR_NO_MEMORY: a file could not be mapped. */
must_check enum err index_query(struct index *index, const struct index_query *query,
                                struct index_result *out);

/* By interval. When a sync has failed once, nothing can be said about what is on disk: this and
 * index_close() fail from then on, while adding and asking go on. */
must_check enum err index_flush(struct index *index, struct index_flushed *out, struct fault *why);

/* Removes files, oldest first, that point only below `position`; never the newest. */
must_check enum err index_remove_before(struct index *index, uint64_t position, struct fault *why);

/* ---- index_format.c: the bytes. Pure functions. ---- */

#define INDEX_HEADER_SIZE 40
#define INDEX_ENTRY_SIZE  20
#define INDEX_MS_MAX      (INT64_MAX / 4) /* beyond any date, and seconds can be added */
#define INDEX_CELL_SIZE   4               /* a slot; the header takes ten of them */
#define INDEX_CELL_FIRST  (INDEX_HEADER_SIZE / INDEX_CELL_SIZE)

struct index_header {
    int64_t begin_ms, end_ms;
    uint64_t begin_position, end_position;
    uint32_t slot_count; /* slots in use; nothing depends on it */
    uint32_t count;      /* the next entry's number */
};

struct index_entry {
    uint32_t hash; /* at most INT32_MAX */
    uint64_t position;
    uint32_t seconds; /* since the file's begin_ms */
    uint32_t prev;
};

uint64_t index_file_size(const struct index_shape *shape);
uint64_t index_entry_at(const struct index_shape *shape, uint32_t number);
/* ERR_MALFORMED: too short. ERR_DAMAGED: numbers that cannot be. */
must_check enum err index_header_decode(struct bytes in, const struct index_shape *shape,
                                        struct index_header *out);
void index_header_encode(const struct index_header *head, uint8_t out[INDEX_HEADER_SIZE]);
struct index_entry index_entry_load(const uint8_t *at);
void index_entry_save(uint8_t *at, const struct index_entry *entry);
/* Java's hash of `topic#key`, without its sign. */
uint32_t index_hash(struct bytes topic, struct bytes key);
/* The same for who comes with many keys of one topic. */
uint32_t index_hash_near(struct key_topic *last, struct bytes topic, struct bytes key);
/* Apache 5.5 has the tag of each message in its index as well, as `topic#T#tag`. Ours has not. */
uint32_t index_hash_tag(struct bytes topic, struct bytes tag);
uint32_t index_seconds(const struct index_header *head, int64_t store_ms);

struct index_table;

/* What a query sees of one file. */
struct index_view {
    const struct index_shape *shape;
    struct index_header head;
    const uint8_t *map;              /* index_file_size bytes */
    const struct index_table *table; /* NULL: the slots are in the mapping */
};

bool index_view_in_time(const struct index_view *view, const struct index_query *query);
/* Adds what it finds to `out`, newest first, up to query->max of all. */
void index_view_search(const struct index_view *view, uint32_t hash,
                       const struct index_query *query, struct index_result *out);

/* ---- index_table.c: slots in memory ---- */

#define INDEX_PAGE       4096
#define INDEX_PAGE_CELLS (INDEX_PAGE / INDEX_CELL_SIZE)

/* The image of the first bytes of a file, header included (left empty), in the byte order of the
 * disk. After a clean stop it starts out empty, and a page is copied from the file when it is first
 * changed. */
struct index_table {
    struct counted owner; /* the file has one count, and so has every query that reads it */
    const struct index_shape *shape;
    uint32_t pages;
    uint32_t known; /* what a page in the file may name: entries below */
    bool lazy;      /* pages that are not marked in `loaded` are in the file; else they are empty */
    _Atomic uint32_t *cells;  /* set by the dispatcher, read by anybody */
    _Atomic uint64_t *loaded; /* a bit for each page */
    uint64_t *dirty;          /* likewise. Dispatcher; then whoever seals the full file */
};

/* `known` > 0: lazy, over a file with that count. NULL: no memory. */
struct index_table *index_table_new(const struct index_shape *shape, uint32_t known);
void index_table_drop(struct index_table *table); /* NULL is fine */
uint32_t index_table_get(const struct index_table *table, const uint8_t *map, uint32_t slot);
/* Only by who writes. `map` is needed by a lazy table alone. */
void index_table_set(struct index_table *table, const uint8_t *map, uint32_t slot, uint32_t number);

/* Enters the entries of a file into an empty table that is not lazy, as far as they make sense:
 * returns the count that is sound. `head->slot_count` becomes what was found. */
uint32_t index_table_build(struct index_table *table, const uint8_t *map,
                           struct index_header *head);
/* Takes the entries back that point at `position` or behind; `head` counts those that stay. */
void index_table_cut(struct index_table *table, const uint8_t *map, struct index_header *head,
                     uint64_t position);
/* Marks exactly the pages that are not in the file as they are here. */
void index_table_compare(struct index_table *table, const uint8_t *map);
/* Writes the dirty pages. */
must_check enum err index_table_write(struct index_table *table, struct vfs *vfs,
                                      struct vfs_file *file, struct fault *why);

/* ---- index_file.c ---- */

#define INDEX_PATH_SIZE 32

struct index_file {
    struct counted owner; /* the row has one count, and so has everybody who uses it */
    struct vfs *vfs;
    const struct index_shape *shape;
    struct vfs_file *file;
    uint64_t name;              /* yyyyMMddHHmmssSSS as a number */
    uint64_t order;             /* in the row: the newer, the greater */
    const uint8_t *_Atomic map; /* NULL until somebody reads */

    /* Room: index. The dispatcher alone changes them, so it may look without. */
    struct index_header head;
    struct index_table *table; /* NULL: sealed */

    /* Room: flushing */
    uint8_t on_disk[INDEX_HEADER_SIZE]; /* the header that was synced last */
    bool in_folder;                     /* the folder on disk knows it */
};

static inline bool index_full(const struct index_file *file)
{
    return file->head.count >= file->shape->entries;
}

void index_path(char out[INDEX_PATH_SIZE], uint64_t name);
/* A file full of zeros but for its header. */
must_check enum err index_file_make(struct vfs *vfs, const struct index_shape *shape, uint64_t name,
                                    const struct index_header *head, struct index_file **out,
                                    struct fault *why);
/* ERR_DAMAGED: not one of ours. It has no table yet. */
must_check enum err index_file_open(struct vfs *vfs, const struct index_shape *shape, uint64_t name,
                                    struct index_file **out, struct fault *why);
void index_file_drop(struct index_file *file); /* NULL is fine */
must_check enum err index_file_map(struct index_file *file, const uint8_t **out, struct fault *why);
must_check enum err index_file_write(struct index_file *file, uint64_t at, const void *bytes,
                                     size_t n, struct fault *why);
/* Room: flushing. Brings entries and then the header `head` to the disk. `with`: the slots, too.
 * *lost: a sync failed, so what was written may be gone. */
must_check enum err index_file_flush(struct index_file *file, const struct index_header *head,
                                     struct index_table *with, bool *lost, struct fault *why);

/* ---- index_load.c: at the start ---- */

/* The names of the files, rising; what has another form is left out. Free `*out`. */
must_check enum err index_names(struct vfs *vfs, uint64_t **out, size_t *n, struct fault *why);

must_check enum err index_load(struct index *index, bool clean, uint64_t log_end,
                               struct index_report *report, struct fault *why);

/* ---- index.c ---- */

#define INDEX_PENDING_MAX 4096
#define INDEX_RECENT      (2 * INDEX_PENDING_MAX) /* a power of two */

/* A key on its way into a file. */
struct index_key {
    uint64_t position;
    int64_t store_ms;
    uint32_t hash, slot;
};

/* Slots whose newest entry is not written yet. One whose number is below the file's count is
 * written, so it counts as empty and nobody needs to clean up between turns. */
struct index_recent {
    uint32_t slot, number;
};

struct index {
    struct index_options options;
    struct vfs *vfs;
    struct index_shape shape;

    struct room room;
    struct index_file **files; /* oldest first. Room: index */
    size_t n, cap;             /* likewise */
    uint64_t next; /* Room: index; changed by the dispatcher alone, who may look without */
    uint32_t part; /* likewise */

    struct room flushing;
    bool lost; /* a sync failed. Room: flushing */

    /* The dispatcher's own. */
    struct index_file *newest; /* the row's last, which nobody else takes away; NULL: no files */
    uint64_t orders;
    struct key_topic topic; /* of the last key */
    size_t n_pending;
    bool seen; /* records were added since the last turn; the last of them: */
    uint64_t seen_position, seen_end;
    struct index_key pending[INDEX_PENDING_MAX];
    uint8_t bytes[INDEX_PENDING_MAX * INDEX_ENTRY_SIZE];
    struct index_recent recent[INDEX_RECENT];
};

/* Puts a file at the end of the row; its count becomes the row's. */
must_check enum err index_append_file(struct index *index, struct index_file *file);

#endif
