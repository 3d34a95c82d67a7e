/* store.h - the message store: one log, and what is derived from it.
 *
 * The log is one endless row of bytes, cut into files. Records are appended at the tail and never
 * change. Positions in it only ever rise, and each has a name:
 *
 *     written     handed to the kernel          flushed     on the disk
 *     confirmed   the one of the two that this store is set to wait for
 *     dispatched  in the queues
 *
 * A producer is answered when `confirmed` passes its record; a consumer sees it once `dispatched`
 * (never beyond `confirmed`) does. A *queue* is a row of 20-byte units (position, size, tag hash),
 * one for each message of one topic and queue number. Queues are derived: delete them, they are
 * rebuilt from the log.
 *
 * On disk everything is as Apache RocketMQ has it (README.md here), so either opens the other's
 * folder. A folder that was not closed cleanly has a file `abort`; opening it then verifies the log
 * from the checkpoint on, cuts a torn tail and brings the queues in line.
 *
 * Knows: record layout, files, fsync.  Does not know: sockets, topic settings, who asks.
 *
 * Rooms: tail (2) - end of the log, next offset of each queue; derived (3) - write side of the
 * queues; files (4) - lists of segments. Below the named positions everything is immutable, so
 * readers take no key beyond a few instructions in `files`. Threads: append, read, wait and
 * dispatch from any thread. The module starts none: somebody must call store_flush_turn,
 * store_dispatch_turn, store_keep_turn and store_clean_turn.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/clock.h"
#include "base/counted.h"
#include "base/list.h"
#include "base/vfs.h"
#include "msg/msg.h"

struct store;
struct queue; /* lives as long as the store */

/* How long messages are kept, consumed or not. Percentages are of the disk that the store is on and
 * are brought into Apache's limits: 10..95, 30..85, 35..90. */
struct store_retention {
    _Atomic int64_t reserved_ms; /* a log file may go when its last record is older: 72 h */
    /* … and then goes in these hours of the day, local time; bit h is hour h … */
    _Atomic uint32_t delete_hours;
    atomic_uint disk_max_used; /* … or at any hour above so many percent in use: 75 */
    atomic_uint disk_forced;   /* above it the oldest file goes whatever its age: 85 */
    atomic_uint disk_warning;  /* above it appends are refused too, until disk_forced is met: 90 */
};

struct store_options {
    struct vfs *vfs; /* of the store's root folder; stays the caller's */
    struct clock *clock;
    uint64_t log_file_size;   /* 1 GiB */
    uint64_t queue_file_size; /* 6,000,000 */
    bool sync_flush;          /* confirmed = flushed */
    uint32_t max_record_size; /* a record that is bigger is refused: 4 MiB + 64 KiB */
    /* What is atomic may change: store_tune. */
    _Atomic uint64_t flush_interval_ms; /* asynchronous: how often, 500 */
    _Atomic uint32_t flush_least_pages; /* … and only if that many 4 KiB pages are dirty, 4 */
    _Atomic uint64_t flush_thorough_interval_ms; /* … but whatever there is this often, 10000 */
    _Atomic uint64_t queue_flush_interval_ms;    /* 1000 */
    struct store_retention retention;
    uint32_t open_files;                 /* so many stay open between uses; 0: 512 */
    uint32_t index_slots, index_entries; /* of one index file: 5,000,000 and 20,000,000; 0: none */
    const int64_t *delays_ms;            /* by delay level, the first is level 1; kept */
    size_t n_delays;                     /* 0: Apache's ladder of 18 */
};

/* What opening found, for the operator. */
struct store_report {
    bool clean; /* the last stop was */
    uint64_t log_first, log_end;
    uint64_t examined_bytes; /* how much of the log was verified */
    uint64_t cut_bytes;      /* torn tail that was cut off (0: none) */
    size_t queues;
    char note[160]; /* damage that was found, in words; empty: none */
};

must_check enum err store_open(const struct store_options *options, struct store **out,
                               struct store_report *report, struct fault *why);

/* Flushes and dispatches everything, writes the checkpoint, removes `abort`, frees; on an error it
 * frees all the same and `abort` stays. Nobody else is inside by now. */
must_check enum err store_close(struct store *store, struct fault *why);

/* Takes over what may change while the store is open: times of flushing, retention, and the largest
 * record when that grows. Any thread. */
void store_tune(struct store *store, const struct store_options *options);

/* ---- queues ---- */

/* The handle of a queue, made if it is new; NULL: no memory, or a name that cannot be a folder. */
struct queue *store_queue(struct store *store, struct bytes topic, int32_t queue_id);
struct queue *store_queue_find(struct store *store, struct bytes topic,
                               int32_t queue_id);            /* or NULL */
int64_t queue_min(struct store *store, struct queue *queue); /* first offset still readable */
int64_t queue_max(struct queue *queue);                      /* next offset to become readable */
/* Something of the user's own that belongs to the queue; NULL at first. The user sees to it that
 * nobody looks while it is set. */
void *queue_note(const struct queue *queue);
void queue_note_set(struct queue *queue, void *note);

/* Every queue of the store, in no order. Not for the hot path. */
void store_each_queue(struct store *store,
                      void (*each)(void *user, struct bytes topic, int32_t queue_id,
                                   struct queue *queue),
                      void *user);

/* ---- append ---- */

/* What queues and index are made of, if it is known: then dispatch need not read the record.
 * Whoever prepares a plain message has read its properties and calls draft_marks_of; a draft that
 * leaves it out is as good. */
#define DRAFT_KEYS_MAX 4
struct draft_marks {
    bool known;
    uint8_t n_keys;
    uint32_t keys[DRAFT_KEYS_MAX]; /* their hashes, in the order of the index */
    int64_t tags_code;
};
/* Where the hashes of a topic's keys begin, for who comes with many of one topic. Starts as zeros.
 */
struct key_topic {
    uint8_t name[128];
    size_t len; /* 0: none yet */
    uint32_t hash;
};
void draft_marks_of(struct key_topic *last, struct bytes topic, const struct marks *marks,
                    struct draft_marks *out);

/* A message on its way into the log. The slices need to live until store_append returns. */
struct draft {
    struct queue *queue;
    struct bytes topic, body, props;
    uint32_t body_crc; /* crc32_positive(body), computed by the caller while the bytes are warm */
    int32_t queue_id, flag, sys_flag, reconsume_times;
    int64_t born_ms, prepared_position;
    struct addr born_host, store_host;
    struct draft_marks marks;
    bool with_next; /* the next draft belongs to the same unit: same queue, one file, all or nothing
                     */
};

struct stored {
    enum err err; /* this draft's own fate: OK, ERR_TOO_BIG, … */
    int64_t position, queue_offset, store_ms;
    uint32_t size;
};

/* Appends the drafts in order with one visit to the tail and, per log file touched, one write. On
 * OK each draft has its own answer in `out`, and `*end` is the position that `confirmed` must pass
 * for all of them. ERR_DISK_FULL, ERR_IO, ERR_NO_MEMORY, ERR_READ_ONLY: nothing was appended. */
must_check enum err store_append(struct store *store, const struct draft *drafts, size_t n,
                                 struct stored *out, uint64_t *end);

/* Whether its record is small enough to be appended. */
bool store_fits(const struct store *store, const struct draft *draft);
uint64_t store_biggest(const struct store *store); /* bytes that a record may have */

uint64_t store_confirmed(struct store *store);
uint64_t store_flushed(struct store *store); /* what a power loss cannot take any more */
uint64_t store_first(struct store *store);   /* where the log begins */

/* Waits for `confirmed` to reach a position, without blocking. */
struct store_wait {
    struct link link;
    uint64_t position;
    void (*done)(struct store_wait *wait,
                 enum err err); /* on the thread that raised it; no key held */
};
/* True: it has already passed and `done` will not be called. */
bool store_await(struct store *store, struct store_wait *wait);

/* ---- read ---- */

/* A run of whole records, contiguous in the log. `owner` keeps the mapping, even beyond the store's
 * life (not the vfs's); one count is the caller's. */
struct slice {
    struct bytes bytes;
    struct counted *owner;
};

enum read_status {
    READ_FOUND,
    READ_NONE_MATCHED, /* units were there, the filter took none; next == offset: not just now */
    READ_AT_END,       /* offset is the next one to come */
    READ_TOO_SMALL,    /* below the queue's minimum */
    READ_TOO_LARGE,    /* beyond its end */
    READ_EMPTY,        /* nothing was ever there */
    READ_GONE,         /* the log's part was removed meanwhile */
};

#define READ_SLICES_MAX 64

struct read_request {
    int64_t offset;
    uint32_t max_count;
    uint32_t max_bytes; /* the first message is returned whatever its size */
    /* May be NULL: takes all. Sees the queue's unit only, never the log. */
    bool (*wants)(void *user, int64_t tags_code);
    void *user;
    /* May be NULL. Asked about what `wants` took, for which the log is looked at. A read shows it
     * no more than a bounded number of bytes, and then says where to go on. */
    bool (*wants_props)(void *user, struct bytes props);
};

struct read_result {
    enum read_status status;
    int64_t next, min, max; /* where to go on; the queue's bounds */
    uint32_t count;
    uint64_t size;
    size_t n_slices;
    struct slice slices[READ_SLICES_MAX];
};

/* Straight from the mapped files, nothing is copied. On READ_FOUND the caller drops each slice's
 * owner. */
void store_read(struct store *store, struct queue *queue, const struct read_request *request,
                struct read_result *out);

/* One record by its position: OK, ERR_NOT_FOUND (outside the log), ERR_DAMAGED; anything else: it
 * cannot be read just now. */
must_check enum err store_read_at(struct store *store, int64_t position, struct slice *out);
/* The same for all that is written. What is not confirmed yet a power loss may take away: nobody
 * is told of it before `confirmed` has passed it. */
must_check enum err store_peek_at(struct store *store, int64_t position, struct slice *out);

/* Where the record of a queue's message stands; size 0: it cannot be told. */
struct queue_unit {
    int64_t position;
    uint32_t size;
};
/* Those from `offset` on, at most `max`; how many there are. */
size_t queue_units(struct store *store, struct queue *queue, int64_t offset, struct queue_unit *out,
                   size_t max);
/* Copies one record, or several in a row, out of the log: for those who read so much of it that it
 * must not stay mapped. Not verified. ERR_NOT_FOUND: that is not, or no longer, in one file of it.
 */
must_check enum err store_copy_at(struct store *store, int64_t position, uint8_t *into,
                                  uint64_t size);

/* First offset whose store time is >= ts; the queue's end when there is none. */
int64_t queue_search_time(struct store *store, struct queue *queue, int64_t ts);
/* Store time of a queue's message; -1 when there is none. */
int64_t queue_store_time(struct store *store, struct queue *queue, int64_t offset);

/* ---- messages that are to come later ---- */

/* Units of the topic of delayed messages carry the time they are due in place of the tag's hash.
 * Its queue n is that of delay level n + 1. */
#define SCHEDULE_TOPIC BYTES("SCHEDULE_TOPIC_XXXX")

/* The ladder: how many levels, and the delay of one; a level above the ladder is its last one. */
int32_t store_delay_levels(struct store *store);
int64_t store_delay_ms(struct store *store, int32_t level);

/* How many units from `offset` on, one after the other and at most `max`, are due at `upto_ms`. One
 * that cannot be read counts. `*next_ms`: when the first that is not is due; INT64_MAX: there is
 * none, or `max` came first. */
int64_t queue_due(struct store *store, struct queue *queue, int64_t offset, int64_t max,
                  int64_t upto_ms, int64_t *next_ms);

/* ---- by key ---- */

#define STORE_QUERY_MAX 64

struct store_query {
    struct bytes topic, key;  /* a word of KEYS, or the UNIQ_KEY */
    uint32_t max;             /* at most STORE_QUERY_MAX count */
    int64_t begin_ms, end_ms; /* store time, both included */
};

struct store_found {
    size_t n;
    int64_t positions[STORE_QUERY_MAX]; /* rising; other keys with the same hash are among them */
    int64_t end_ms, end_position;       /* how far the index goes; 0: it is empty */
};

/* Any thread, no key. ERR_UNSUPPORTED: this store keeps no index. */
must_check enum err store_query(struct store *store, const struct store_query *query,
                                struct store_found *out);

/* ---- background turns: bounded steps, called by whoever the house decides ---- */

/* News for waiting readers: this queue now ends at `max`. */
struct arrival {
    struct queue *queue;
    struct bytes topic; /* the queue's own copy */
    int32_t queue_id;
    int64_t max;       /* queue_max afterwards */
    int64_t tags_code; /* of the last message; exact when count is 1 */
    uint32_t count;
    uint64_t size; /* bytes of their records */
};
#define ARRIVALS_MAX 256

/* Brings what is confirmed into the queues. Returns the number of arrivals in `out` (ARRIVALS_MAX
 * slots, one a queue); 0: nothing to do, or somebody else is at it and will not miss it.
 * Call again while it returns more than 0. What goes wrong is the store's state: a log that cannot
 * be read stops it for good; a queue that cannot be written (a full disk) stops appends until a
 * later turn goes through, so somebody must keep calling. */
size_t store_dispatch_turn(struct store *store, struct arrival *out);
/* True: everything below `position` is in the queues. Waits for whoever is bringing it there just
 * now, if any. */
bool store_dispatch_reached(struct store *store, uint64_t position);
/* True: the last turn failed, and so would another one just now. */
bool store_dispatch_stuck(struct store *store);

/* Synchronous: flushes when somebody waits. Asynchronous: by interval. Completes passed waits.
 * Returns how many ms until it wants to be called again; store_flush_wait sleeps that long or until
 * an append needs it. */
int store_flush_turn(struct store *store);
void store_flush_wait(struct store *store, int timeout_ms);
void store_flush_wake(struct store *store); /* for stopping */
/* Flushes whatever is written, at once. For stopping: nobody else flushes or appends any more. */
must_check enum err store_flush_all(struct store *store, struct fault *why);

/* Flushes queues and writes the checkpoint, by interval; sees to it that the next log file is there
 * before it is needed. One thread: the keeper. */
void store_keep_turn(struct store *store);

/* What store_clean_turn found and did, for the operator. */
struct store_cleaned {
    bool looked;                     /* it was time to look at the disk */
    unsigned used_percent;           /* of the disk; 0: not known */
    bool refusing;                   /* appends are refused because of it */
    bool pressed;                    /* above disk_max_used, and there was nothing to delete */
    unsigned log_files, queue_files; /* deleted */
    uint64_t log_first;              /* where the log begins now */
    enum err err;                    /* what could not be done; it is tried again */
    struct fault why;
    enum err ahead; /* why the next log file cannot be made ahead; appends go on without */
    struct fault ahead_why;
};

/* Removes what is older than the retention says: log files from the front, at most 10 in 10
 * seconds, and then the queue files that point only there. The last file of a row stays, so an
 * empty queue keeps its end for ever; so does what is not yet flushed and dispatched. Also finds
 * out whether the disk is nearly full. Call it often: it knows when it is time. The keeper. */
void store_clean_turn(struct store *store, struct store_cleaned *out);
/* Records of this store time and later are still needed: they are not deleted for their age, only
 * when the disk is too full. INT64_MAX: none is. Any thread. */
void store_clean_hold(struct store *store, int64_t from_ms);
/* Before this position anything may be gone after the next turn of cleaning. Any thread. */
uint64_t store_clean_reach(struct store *store);
/* Deletes at any hour for the next 20 rounds (mqadmin deleteExpiredCommitLog). Any thread. */
void store_clean_request(struct store *store);

/* Why it stopped accepting messages: OK while it does. */
enum err store_state(struct store *store, struct fault *why);
/* What the flusher or the keeper could not do the last time, and will try again: for want of file
 * handles, or because a queue's file takes nothing. Nothing is lost by it yet. OK: nothing. */
enum err store_put_off(struct store *store, struct fault *why);

/* ---- checking a folder that nobody has open ---- */

enum check_grade {
    CHECK_NOTE,   /* worth knowing; nothing is lost that the next start does not bring back */
    CHECK_DAMAGE, /* something that was stored is not there as it should be */
};

struct check_finding {
    enum check_grade grade;
    const char *file; /* inside the folder */
    int64_t at;       /* byte of that file; -1: the file as such */
    const char *text;
};

struct check_summary {
    bool clean; /* the last stop was */
    uint64_t log_files, log_file_size, queue_file_size;
    uint64_t log_first, log_end; /* positions */
    uint64_t records, bytes;     /* that were read and verified */
    uint64_t queues, units;
    uint64_t index_files, index_entries;
    uint64_t timer_files, timer_units;
    uint64_t notes, damages; /* all of them, told or not */
};

#define CHECK_FINDINGS_MAX 1000 /* more are only counted */

struct check_calls {
    void (*found)(void *user, const struct check_finding *finding);
    /* Now and then: so many bytes of the log's files. May be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t of);
    void *user;
};

/* Reads everything and changes nothing: not a file, not a time of change. The sizes of files are
 * taken from the folder. OK whatever was found; ERR_IN_USE with the pid when somebody has it open,
 * ERR_NOT_FOUND when there is no store. */
must_check enum err store_check(struct vfs *vfs, const struct check_calls *calls,
                                struct check_summary *out, struct fault *why);

/* Both as a line for people, without its end; cut to fit. */
#define CHECK_TEXT_MAX 1024
void check_finding_text(const struct check_finding *finding, char out[CHECK_TEXT_MAX]);
void check_summary_text(const struct check_summary *summary, char out[CHECK_TEXT_MAX]);

/* ---- looking into a folder, also one that somebody has open ---- */

/* Which messages: all of the log, or those of a topic, or of one of its queues. The log alone is
 * asked, so a queue that is damaged, or not written yet, hides nothing; and what was in a topic
 * before it was deleted and made anew is still there. */
struct look_request {
    struct bytes topic; /* empty: all topics */
    int32_t queue_id;   /* -1: all queues */
    int64_t from;       /* with a queue its offset, else a position in the log; then the next one */
    uint64_t count;     /* at most; 0: all */
};

struct look_calls {
    /* What the record is made of is good until it returns. False: enough. */
    bool (*record)(void *user, const struct record *record);
    /* The log could not be read somewhere, and where it goes on. */
    void (*found)(void *user, const struct check_finding *finding);
    void *user;
};

struct look_summary {
    uint64_t log_files;
    uint64_t log_first, log_end; /* positions: where it begins, and how far was looked */
    uint64_t records;            /* that were handed out */
    uint64_t damages;
};

/* Reads the log from its first file to its last, changes nothing, locks nothing, and maps nothing:
 * whoever has the folder open may go on. What is appended meanwhile may be seen or not. Memory is
 * that of the longest record. ERR_NOT_FOUND when there is no store. */
must_check enum err store_look(struct vfs *vfs, const struct look_request *request,
                               const struct look_calls *calls, struct look_summary *out,
                               struct fault *why);

#endif
