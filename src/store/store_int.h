/* store_int.h - what the files of this folder share. Nobody outside includes it.
 *
 * From below: segment.c keeps files, open and mapped ones with a count, so many at a time as it was
 * allowed; commitlog.c owns the end of the log, ahead.c what is in front of it; position.c and
 * flush.c the positions and who waits for them; queue.c the queues, shelf.c their newest units;
 * dispatch.c brings records into queues; read.c reads; clean.c removes what is old; recover.c and
 * checkpoint.c find out at the start where everything ended.
 */
#ifndef STORE_STORE_INT_H
#define STORE_STORE_INT_H

#include "base/map.h"
#include "base/room.h"
#include "store/store.h"

#include <stdatomic.h>

#define OPEN_FILES_LEAST 512 /* kept open between uses, over log and queues; more if allowed */
#define PATH_SIZE        384 /* consumequeue/, a name of 255, a queue number, a file's name */

#define LOG_FOLDER   "commitlog"
#define QUEUE_FOLDER "consumequeue"

/* For a failure that turned out to be none. */
static inline void fault_forget(struct fault *why)
{
    if (why)
        *why = (struct fault){0};
}

/* ---- segment.c, fileset.c: files of one size in a row ---- */

/* A row of files of equal size, each named after the place of its first byte in the row. Only the
 * bounds are kept: files are opened when they are needed. */
struct fileset {
    const char *folder;
    uint64_t file_size;
    /* Where the first file starts and the last one ends; equal: no files. Changed inside the room
     * by whoever owns the row (the tail, or derived), who may therefore look at them without it. */
    uint64_t first, end;
    struct list open; /* its segments in the cache. Room: files */
};

/* One open file. The cache has one count, and so has everybody who uses it or keeps a slice of its
 * mapping; the last one closes it. */
struct segment {
    struct counted owner;
    struct link by_set; /* in fileset.open. Room: files */
    struct link by_age; /* in cache.aged. Room: files */
    struct vfs *vfs;
    struct vfs_file *file;
    uint64_t base, size;
    const uint8_t *_Atomic map; /* NULL until somebody reads */
    _Atomic bool hot;           /* it is worth a mapping. Set in files */
    unsigned uses;              /* up to HOT_USES. Room: files */
};

#define HOT_USES 4
#define HOT_MAX  512

struct cache {
    struct room room; /* files */
    struct vfs *vfs;
    struct list aged; /* longest unused first */
    size_t n, max;
    size_t n_hot; /* of them */
};

void cache_init(struct cache *c, struct vfs *vfs, size_t max); /* 0: OPEN_FILES_LEAST */
void cache_clear(struct cache *c); /* segments that somebody still holds live on */

/* The file that contains `position`, with one count for the caller. ERR_NOT_FOUND outside the
 * bounds; ERR_DAMAGED when its size is not what it must be. */
must_check enum err segment_get(struct cache *c, struct fileset *set, uint64_t position,
                                struct segment **out, struct fault *why);
/* Makes the next file (any file if there is none yet), full of zeros. */
must_check enum err segment_make(struct cache *c, struct fileset *set, uint64_t base,
                                 struct segment **out, struct fault *why);
/* Makes a file that will be the next one, and puts it on the disk; it is not in the row before it
 * is adopted. One that is there keeps what it has. */
must_check enum err segment_make_ahead(struct cache *c, const struct fileset *set, uint64_t base,
                                       struct fault *why);
/* Takes it into the row. ERR_NOT_FOUND, ERR_DAMAGED: it is not there, or not of full size. */
must_check enum err segment_adopt(struct cache *c, struct fileset *set, uint64_t base,
                                  struct segment **out, struct fault *why);
must_check enum err segment_map(struct segment *seg, const uint8_t **out, struct fault *why);
bool segment_hot(struct segment *seg); /* better mapped than read, if it is read in small pieces */
#define STONE (128u << 10)             /* the log is paved with them: see commitlog.c */
/* Writes some bytes, and zeros behind them. */
must_check enum err segment_write(struct segment *seg, uint64_t position, struct bytes bytes,
                                  size_t zeros, struct fault *why);
must_check enum err segment_read(struct segment *seg, uint64_t position, void *into, size_t n,
                                 struct fault *why);
must_check enum err segment_sync(struct segment *seg, struct fault *why);
void segment_drop(struct segment *seg); /* NULL is fine */
void segment_drop_at(struct segment **seg);
/* Closes a file, unless a reader still holds it. */
void cache_forget(struct cache *c, struct fileset *set, uint64_t base);

/* Everything from `position` on is gone: later files are removed, the rest of the file that
 * contains it becomes zeros. Nobody may be reading that part. */
must_check enum err fileset_cut(struct cache *c, struct fileset *set, uint64_t position,
                                struct fault *why);
/* Forgets and removes all of its files. */
must_check enum err fileset_remove(struct cache *c, struct fileset *set, struct fault *why);
/* Removes the first file, which is not the last. Only when that is sure to last does the row begin
 * later, so a power loss never leaves a hole. Nobody else may change the start of the row; `owner`
 * is the room of whoever looks at it, and not held by the caller. */
must_check enum err fileset_shift(struct cache *c, struct fileset *set, struct room *owner,
                                  struct fault *why);
void fileset_bounds(struct cache *c, const struct fileset *set, uint64_t *first, uint64_t *end);
/* Syncs the files that hold any byte of [from, to); what is out of bounds does not matter. */
must_check enum err fileset_sync(struct cache *c, struct fileset *set, uint64_t from, uint64_t to,
                                 struct fault *why);

/* Names in a folder, copied, so that the folder may change while we go through them. */
struct names {
    char **at;
    size_t n, cap;
    enum err err;
};
must_check enum err names_list(struct vfs *vfs, const char *folder, bool folders, struct names *out,
                               struct fault *why);
void names_clear(struct names *names);
/* The bases of a folder's files, rising; other names are left out. Free `*out`. */
must_check enum err fileset_list(struct vfs *vfs, const char *folder, uint64_t **out, size_t *n,
                                 struct fault *why);
void fileset_path(char out[PATH_SIZE], const char *folder, uint64_t base);
must_check enum err vfs_file_size(struct vfs *vfs, const char *path, uint64_t *out,
                                  struct fault *why);

/* ---- queue.c ---- */

#define UNIT_SIZE   20
#define UNIT_FILLER 0x7fffffffu /* size in the units before a queue's first one */

struct unit {
    uint64_t position;
    uint32_t size;
    int64_t tags_code;
};

struct queue {
    struct fileset files;
    struct queue *older; /* in store.queues_all, which only grows */
    struct bytes topic;
    int32_t queue_id;
    int64_t next; /* the next offset to give out. Room: tail */
    void *note;   /* the user's */

    _Atomic int64_t min, max;    /* published by dispatch */
    struct shelf *_Atomic shelf; /* the last units, if not in the file. Set in derived and files */

    /* Room: derived */
    uint64_t log_end;   /* where the last record in it ends; 0: none */
    int64_t synced;     /* offsets below are on the disk */
    bool cut;           /* shortened since the last sync */
    uint64_t known_end; /* files up to here are known to their folder on disk */
    int64_t
        syncing; /* what `synced` and `known_end` become when the sync that runs has gone well */
    uint64_t syncing_end;
    struct link dirty; /* in derived.dirty */
    uint32_t shelved;  /* units that its last shelves held, about, when they went */
    uint64_t turn;     /* the dispatch turn that `slot` is of */
    uint32_t slot;

    char folder[]; /* consumequeue/TOPIC/ID; the part after the first slash is its key */
};

/* ERR_INVALID when the name cannot be a folder. */
must_check enum err queue_get(struct store *store, struct bytes topic, int32_t queue_id,
                              struct queue **out);
struct unit unit_load(const uint8_t *at);
void unit_save(uint8_t *at, const struct unit *unit);
bool unit_is_filler(const struct unit *unit);

/* Room: derived. Appends and publishes; `units` are UNIT_SIZE bytes each. */
must_check enum err queue_append(struct store *store, struct queue *queue, const uint8_t *units,
                                 size_t n, struct fault *why);
/* Room: derived. The queue has nothing worth keeping and goes on at `offset`. */
must_check enum err queue_restart(struct store *store, struct queue *queue, int64_t offset,
                                  struct fault *why);
/* Room: derived. Writes whole units to their place in the files, and publishes nothing. */
must_check enum err units_write(struct store *store, struct queue *queue, int64_t offset,
                                struct bytes units, struct fault *why);
void queue_mark_dirty(struct store *store, struct queue *queue);
/* Not in a room: syncs what is not on disk. `least` units, or else it can wait. */
must_check enum err queues_sync(struct store *store, int64_t least, struct fault *why);
/* Keeper only. The same, and a failure is the store's; with `least` 1 raises `kept`. What is on
 * disk then belongs to records up to `*queues_ms`. */
must_check enum err queues_keep(struct store *store, int64_t least, int64_t *queues_ms);

/* ---- shelf.c: units that are not in their file yet ---- */

#define SHELF_UNITS 200 /* the biggest: with the rest of it less than a page */
#define SHELF_LEAST 8
#define SHELF_SMALL 32                   /* up to here they double, beyond it they are big */
#define SHELF_ROOM  (2048 * SHELF_UNITS) /* units of all shelves: 8 MiB */
#define SPARES_MAX  16 /* big shelves kept for the next queue that needs one: two topics' worth */

/* Units from offset `from` up to the queue's end. */
struct shelf {
    struct counted owner; /* the queue, and readers */
    struct link link;     /* in derived.shelves, or in derived.spares */
    struct queue *queue;
    int64_t from;
    uint32_t size; /* units it has place for */
    uint8_t units[];
};

/* Any thread. The queue's shelf, held, or NULL. Whoever has read the queue's end *before* finds
 * what is in front of it on the shelf from `from` on, and else in the files. */
struct shelf *shelf_hold(struct store *store, struct queue *queue);
void shelf_drop_at(struct shelf **shelf); /* NULL is fine */
struct unit shelf_unit(const struct shelf *shelf, int64_t offset);
/* Room: derived. Offsets below are in the files. */
int64_t queue_filed(const struct queue *queue);
/* Room: derived. Puts units behind the queue's end, which the caller publishes; not `taken`: they
 * are to be written, and nothing is on a shelf. After an error nothing has changed. */
must_check enum err shelf_take(struct store *store, struct queue *queue, struct bytes units,
                               bool *taken, struct fault *why);
/* Room: derived. Writes what is on the queue's shelf to its files. */
must_check enum err shelf_file(struct store *store, struct queue *queue, struct fault *why);
/* Not in a room. The same for all: what was dispatched when it began is in the files then. */
must_check enum err shelves_file(struct store *store, struct fault *why);
void shelves_forget(struct store *store); /* at the end */

/* queue_load.c: at the start */
must_check enum err queues_load(struct store *store, bool *incomplete, struct fault *why);
must_check enum err queues_remove(struct store *store, struct fault *why);
/* Finds where a queue ends. After a clean stop the first empty unit tells. */
must_check enum err queue_measure(struct store *store, struct queue *queue, struct fault *why);
/* Room: derived. Keeps the units that point below `position`, as far as they make sense, and cuts
 * the rest. */
must_check enum err queue_cut(struct store *store, struct queue *queue, uint64_t position,
                              bool *incomplete, struct fault *why);
must_check enum err queue_find_min(struct store *store, struct queue *queue, struct fault *why);
/* While the store is open. Not in a room, but one at a time. */
must_check enum err queue_raise_min(struct store *store, struct queue *queue, struct fault *why);
/* Any thread. The offset is below a queue_max that was read before. */
must_check enum err queue_unit_at(struct store *store, struct queue *queue, int64_t offset,
                                  struct unit *out, struct fault *why);

/* ---- commitlog.c: the end of the log ---- */

/* A piece of the log in memory: the first `len` bytes are those from position `from` on, all of
 * one file. Zeroed: empty. */
struct window {
    uint8_t *at;
    size_t size, len;
    uint64_t from;
};

static inline bool window_has(const struct window *w, uint64_t position)
{
    return position >= w->from && position - w->from < w->len;
}

/* ---- slip.c: what is known of a record when it is appended ---- */

/* What some turns of all loops bring, batches of small messages too: what has no room is read
 * again, which costs more than all else that dispatch does. */
#define SLIPS_MAX 8192

struct slip {
    struct queue *queue;
    uint64_t position;
    int64_t queue_offset, store_ms;
    uint32_t size;
    struct draft_marks marks;
};

struct slips {
    _Atomic uint64_t put; /* so many were ever. Room: tail */
    _Atomic uint64_t
        bare; /* behind the start of the last record without one; 0: none. Room: tail */
    _Atomic uint64_t taken;    /* their places may be used again. The dispatcher's … */
    uint64_t next;             /* … and this, too: it is past those in front */
    struct slip at[SLIPS_MAX]; /* round and round */
};
/* Room: tail. An append's slips are nobody's before they are published: not if it fails. */
struct slips_put {
    uint64_t n, bare;
};
/* For so many more. */
bool slips_have_room(const struct slips *s, const struct slips_put *put, size_t n);
struct slips_put slips_begin(const struct slips *s);
void slip_put(struct slips *s, struct slips_put *put, const struct draft *draft,
              const struct stored *stored);
void slips_publish(struct slips *s, const struct slips_put *put);
/* The dispatcher. Some record from there on may have none. */
bool slips_lack(const struct slips *s, uint64_t from);
/* The slip of the record at `position`, which is not in front of one asked for before in this turn;
 * NULL: none. It is there until slips_used. */
const struct slip *slip_at(struct slips *s, uint64_t position);
/* The turn is over: those of what is dispatched are not needed any more. */
void slips_used(struct slips *s, uint64_t dispatched);

/* ---- sheet.c ---- */

#define SHEETS 16 /* more than there are loops */
struct sheet {
    atomic_flag taken; /* by somebody who writes on it: it is that one's alone */
    uint8_t *at;
    size_t len, size;
};
/* All of these records, without their places, and their sizes in `out`; NULL: they have to be
 * written inside. */
struct sheet *sheet_write(struct store *store, const struct draft *drafts, size_t n,
                          struct stored *out);
void sheet_put_back(struct sheet *sheet); /* or NULL */
void sheets_clear(struct sheet *sheets);

/* commitlog.c: how many drafts belong together, and how many bytes they take, each in `out`. Zero
 * bytes: they do not fit anywhere. */
size_t unit_measure(const struct store *store, const struct draft *drafts, size_t n,
                    struct stored *out, uint64_t *size);
struct record draft_record(const struct draft *d);

#define GATHER_MOST_NS UINT64_C(20000000)

/* The flusher waits for those that it has just told: see flush.c. It alone uses it. */
struct gathering {
    uint64_t until_ns;     /* 0: it does not */
    uint64_t expected;     /* so many, if all come */
    uint64_t flushed;      /* what tail.records was for the last flush */
    unsigned alone, tries; /* how often in a row few of them came; of so many times */
    uint64_t most_ns;      /* no wait is longer, whatever the clock says a sync took */
};

struct tail {
    struct room room;
    struct segment *seg; /* the file that `written` is in; NULL: not open */
    /* Records of one call on their way to the file, behind those of the calls before. Outside of
     * a call all of it is written, so the dispatcher may take it away and need not map the file. */
    struct window window;
    int64_t last_ms; /* store time of the last record */
    bool soiled;     /* a failed write may have left bytes behind the end */
    uint64_t ahead;  /* the file behind the last one has been made and ends here; 0: it has not */
    uint64_t paved;  /* zeros were written up to here */

    struct list waits; /* struct store_wait, by rising position */
    bool flush_asked;  /* somebody wants the flusher before its time */
    bool rung;         /* and has told it, since it looked */
    uint64_t records;  /* that were appended since the start */
    uint64_t wake_at;  /* the flusher need not be woken before there are so many */
    struct gathering gathering;
};

enum log_sight {
    SIGHT_RECORD, /* a whole record that belongs there */
    SIGHT_BLANK,  /* the file is over */
    SIGHT_EMPTY,  /* zeros: nothing was ever written */
    SIGHT_BAD,
};

/* Bytes of the log that stand in one file, wherever they are in memory. */
struct stretch {
    const uint8_t *at; /* the byte at `from` */
    uint64_t from, end, file_end;
};

/* What stands at a position. Does not look at what the record carries. */
enum log_sight stretch_look(const struct stretch *s, uint64_t position, struct record *out);
/* One step over records that were verified before: the one at `*at`, which moves behind it; its
 * size is 0 when the file was over instead. ERR_DAMAGED: it is none any more. */
must_check enum err stretch_step(const struct stretch *s, uint64_t *at, struct record *out,
                                 struct fault *why);
/* All of the log file that contains `position`. The caller drops `*seg`. */
must_check enum err log_stretch(struct store *store, uint64_t position, struct segment **seg,
                                struct stretch *out, struct fault *why);
/* The same as stretch_look for a mapped log file. */
enum log_sight log_look(const uint8_t *map, uint64_t base, uint64_t file_size, uint64_t position,
                        struct record *out);

/* The CRC of a record covers its body alone. When the power goes, a sector with a part of its topic
 * or properties may be missing: then it reads as zeros, which neither of them has. */
bool log_record_whole(const uint8_t *map, const struct record *record);

/* Room: tail, or nobody else is inside. Bytes behind the end are gone when this returns OK. */
must_check enum err tail_wipe(struct store *store, struct fault *why);

/* ---- ahead.c: the log file behind the last one, and zeros in front of the end ---- */

#define FILL_PIECE (256u << 10)

/* Who writes zeros: see ahead.c. */
struct filler {
    struct room room; /* leaf */
    /* Zeros are written here and behind it, and nowhere else: what is in front is claimed. It
     * changes in the tail's room and in this one, so either will do to read it. */
    uint64_t free;
};

/* Keeper only. Sees to it that the file behind the last one is there before it is needed. */
must_check enum err log_make_ahead(struct store *store, struct fault *why);
/* Room: tail. Before anything is written in front of `end`: when it returns, no zeros go there any
 * more. */
void fill_claim(struct store *store, uint64_t end);
/* Keeper only. Fills the log from about `from` in the direction of `wanted`, for a while and while
 * nobody waits for the disk; `*upto` is moved to where it got. False: the disk refused, and what
 * was filled may be gone. */
bool log_fill(struct store *store, uint64_t from, uint64_t wanted, uint64_t *upto);
/* Nobody appends or keeps any more. What was filled or reserved and is not used becomes as if it
 * never was. */
must_check enum err log_trim(struct store *store, struct fault *why);

/* ---- log_blocks.c ---- */

/* Keeper only. */
struct log_blocks {
    uint64_t began;                   /* where the log ended when the store was opened */
    uint64_t upto;                    /* its blocks are there up to here */
    uint64_t again_ns;                /* the disk has refused; not before then */
    uint64_t seen_ns, seen_synced_ns; /* when the flusher was looked at, and what it told */
    bool found;                       /* a piece that was refused may have got some */
    _Atomic bool lost;                /* by whoever cut the log's end. Room: tail */
};

void log_blocks_init(struct store *store); /* at the end of opening */
/* Sees to it that the log has blocks where it will go on. */
void log_prepare(struct store *store);
/* So many bytes on the disk are only waiting for messages. Keeper only. */
uint64_t log_reserved(struct store *store);

/* ---- position.c, flush.c ---- */

struct positions {
    _Atomic uint64_t first; /* where the log begins */
    _Atomic uint64_t written, flushed, confirmed, dispatched;
};

/* What the flusher sleeps at. Not the tail's room: it would have to get past everybody who appends
 * to go to sleep, and whoever leaves a room that is waited for pays for it. */
struct bell {
    struct room room; /* leaf */
    bool rung;
};

struct flusher {
    atomic_flag busy; /* somebody is in store_flush_turn */
    struct bell bell;
    uint64_t last_ns, thorough_ns;
    uint64_t
        folder_synced; /* log files up to here are known to their folder on disk. Flusher only */
    _Atomic int64_t flushed_ms; /* store time of the last flushed record */
    _Atomic bool syncing;       /* the log is on its way to the disk */
    _Atomic uint64_t synced_ns; /* so long it was, in all */
};

/* What is tried again. Its owner alone sets it, in the room `files`. */
struct put_off {
    enum err err;
    struct fault why;
};
enum put_off_of { PUT_OFF_FLUSH, PUT_OFF_KEEP, PUT_OFFS };
void put_off_set(struct store *store, enum put_off_of of, enum err err, const struct fault *why);

void position_raise(_Atomic uint64_t *position, uint64_t to);
uint64_t position_get(const _Atomic uint64_t *position);
/* Room: tail. Something was written up to `end`: so many records. True: as flush_ask says. */
must_check bool positions_written(struct store *store, uint64_t end, size_t records);
/* Room: tail. Somebody wants a flush. True: the caller is to ring when it has left the room, which
 * is where the flusher goes first. */
must_check bool flush_ask(struct tail *tail);
void flush_ring(struct store *store);
void waits_complete(struct store *store);
must_check enum err log_flush(struct store *store, uint64_t upto, int64_t upto_ms,
                              struct fault *why);
/* The store takes no more messages; the first reason stays. */
void store_fail(struct store *store, enum err err, const struct fault *why);
bool store_failed(struct store *store);
/* store_state without what only a nearly full disk is the reason of. */
enum err store_trouble(struct store *store, struct fault *why);
uint64_t ms_between(uint64_t earlier_ns, uint64_t later_ns);

/* ---- dispatch.c ---- */

#define TURN_UNITS 4096
#define TURN_BYTES (4u << 20)

struct pending {
    struct queue *queue;
    uint32_t count;
    uint32_t start; /* where its units stand in `sorted` */
    uint64_t log_end, size;
    int64_t tags_code;
};

/* The units of one turn, by queue. */
struct turn {
    uint64_t number;
    size_t n, n_slots;
    struct pending slots[ARRIVALS_MAX];
    uint32_t slot_of[TURN_UNITS];
    struct unit units[TURN_UNITS];
    uint8_t sorted[TURN_UNITS * UNIT_SIZE];
};

#define RECENT_QUEUES 4096 /* a power of two */

struct derived {
    struct room room;
    struct turn *turn;
    struct window window; /* taken from the tail; whoever is inside store_dispatch_turn */
    struct queue *recent[RECENT_QUEUES]; /* of the last records, by what their names hash to */
    struct list dirty;                   /* queues with something that is not on disk */
    struct list shelves;                 /* the oldest first */
    size_t n_shelves;
    size_t shelf_room;  /* units that more of them may have; 0 while opening */
    struct list spares; /* big shelves that nobody uses */
    size_t n_spares;
    size_t shelf_units;       /* that one holds; tests have smaller ones */
    int64_t dispatched_ms;    /* store time of the last dispatched record */
    _Atomic unsigned callers; /* of store_dispatch_turn since the one inside came */
    _Atomic int trouble;      /* enum err: why dispatch is stuck; OK: it is not */
};

bool turn_full(const struct turn *turn);
/* The offset that the next unit of this queue gets. */
int64_t turn_next(const struct turn *turn, const struct queue *queue);
/* Takes up a record. */
void turn_add(struct store *store, struct queue *queue, const struct unit *unit);
struct unit unit_for(const struct store_options *options, const struct record *record,
                     const struct marks *marks);
/* What a record's unit has as its third field: the hash of its tag, or in the topic of delayed
 * messages the time when it is due. */
int64_t unit_tags(const struct store_options *options, const struct record *record,
                  const struct marks *marks);
/* Writes the units and empties the turn. What could be written is in `out`, if there is one. */
must_check enum err turn_write(struct store *store, struct arrival *out, size_t *n_out,
                               struct fault *why);
void turn_forget(struct turn *turn);
bool record_has_unit(const struct record *record);

/* ---- checkpoint.c ---- */

#define CHECKPOINT_SIZE 4096

struct checkpoint {
    int64_t log_ms;    /* records up to this store time are on disk */
    int64_t queues_ms; /* and their units */
    int64_t index_ms;
    uint64_t master_flushed, confirmed; /* Apache's replication keeps them here; carried along */
    /* Ours, in bytes that Apache leaves alone: how a clean stop left the folder. */
    bool sealed;
    uint64_t sealed_first, sealed_end; /* of the log */
    uint64_t sealed_units;             /* that could be read, in all queues */
};

must_check enum err checkpoint_read(struct vfs *vfs, struct checkpoint *out, struct fault *why);
must_check enum err checkpoint_write(struct vfs *vfs, const struct checkpoint *c,
                                     struct fault *why);
int64_t checkpoint_start_ms(const struct checkpoint *c); /* where a crash recovery starts */
/* Units that can be read, in all queues. */
uint64_t queues_units(struct store *store);
/* True when a record of that time was on disk for certain. */
bool checkpoint_has(const struct checkpoint *c, int64_t store_ms);
must_check enum err lock_take(struct vfs *vfs, struct vfs_file **out, struct fault *why);
must_check enum err abort_exists(struct vfs *vfs, bool *out, struct fault *why);
must_check enum err abort_write(struct vfs *vfs, struct fault *why);
must_check enum err abort_remove(struct vfs *vfs, struct fault *why);

/* ---- keys.c: the index as the store uses it ---- */

struct index;

/* Room: derived. After an error every record since the last good turn comes again. */
must_check enum err keys_add(struct store *store, const struct record *record,
                             const struct marks *marks, struct fault *why);
must_check enum err keys_add_slip(struct store *store, const struct slip *slip, struct fault *why);
must_check enum err keys_turn_end(struct store *store, struct fault *why);
/* After the log and the queues are settled. */
must_check enum err keys_open(struct store *store, struct store_report *report, struct fault *why);
void keys_keep(struct store *store); /* keeper */
must_check enum err keys_forget(struct store *store, uint64_t first, struct fault *why);
must_check enum err keys_close(struct store *store, struct fault *why);
void keys_abandon(struct store *store);

/* ---- recover.c ---- */

must_check enum err store_recover(struct store *store, struct store_report *report,
                                  struct fault *why);

/* damage.c: says in the report what stands behind the end, and keeps what is worth keeping. */
must_check enum err damage_look(struct store *store, uint64_t end, struct store_report *report,
                                struct fault *why);
/* Moves n files aside that stand behind a missing one. */
must_check enum err damage_hole(struct store *store, uint64_t missing, const uint64_t *bases,
                                size_t n, struct store_report *report, struct fault *why);

/* ---- clean.c ---- */

struct cleaner {
    _Atomic unsigned full; /* percent of the disk in use when appends were stopped; 0: they go on */
    _Atomic unsigned manual; /* rounds that somebody asked for */
    _Atomic int64_t hold_ms; /* what is stored from then on does not go for its age */
    /* Keeper only. */
    uint64_t last_ns;
    struct queue *sweep;  /* the next queue to bring in line; NULL: none */
    uint64_t sweep_first; /* where the log began when the sweep did */
    bool sweep_failed;    /* something could not be done: another sweep is needed */
    uint64_t swept;       /* every queue is in line with a log that begins here */
    uint64_t minima;      /* … or at least its minimum is */
};

void clean_init(struct store *store); /* at the end of opening */
void retention_take(struct store *store, const struct store_retention *now);
/* Before the seal: whatever was not swept yet gets its minimum, so that the next start counts the
 * same. */
must_check enum err clean_minima(struct store *store, struct fault *why);
/* As Apache counts: whole percent, rounded up, of what is there for us or taken. 0: the disk does
 * not say. */
unsigned disk_percent(const struct vfs_space *space);
/* ERR_DISK_FULL while appends are refused because the disk is nearly full. */
enum err disk_state(struct store *store, struct fault *why);

/* ---- store.c ---- */

struct store {
    struct store_options options;
    struct vfs *vfs;
    struct cache cache;
    struct fileset log;
    struct positions positions;
    struct tail tail;
    struct slips slips; /* from the tail to the dispatcher */
    struct sheet sheets[SHEETS];
    struct flusher flusher;
    struct filler filler;
    struct log_blocks blocks;
    struct derived derived;
    struct index *index; /* NULL: none is kept */
    struct cleaner cleaner;
    struct map queues;                /* by key. Room: files */
    struct queue *_Atomic queues_all; /* newest first */

    _Atomic uint32_t record_max; /* options.max_record_size, which may grow */

    _Atomic int failed;  /* enum err: sticky */
    struct fault reason; /* of failed or trouble. Room: files */
    struct put_off put_off[PUT_OFFS];

    struct vfs_file *lock;
    struct checkpoint checkpoint;       /* keeper only */
    uint64_t kept_ns, kept_thorough_ns; /* keeper only */
    uint64_t kept;  /* the units of everything in front of it are on disk. Keeper only */
    enum err ahead; /* why there is no log file ahead. Keeper only */
    struct fault ahead_why;
};

static inline struct queue *queue_newest(struct store *store)
{
    return atomic_load_explicit(&store->queues_all, memory_order_acquire);
}

/* Lets everything go and touches nothing on disk: what a crash does. */
void store_abandon(struct store *store);

#endif
