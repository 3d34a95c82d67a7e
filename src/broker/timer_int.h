/* timer_int.h - what the files of the timer service share; timer.c tells the model. */
#ifndef BROKER_TIMER_INT_H
#define BROKER_TIMER_INT_H

#include "broker/produce_int.h"
#include "store/timers.h"

#define TIMER_BATCH  256
#define TIMER_BUFFER (1u << 20)    /* records that are looked at in one go; a bigger one alone */
#define TIMER_CHUNK  (512u * 1024) /* units in memory, at most: 20 MB */
#define RECALLS_MAX  500000        /* that are not over, at most */
#define TIMER_FILE   (100u << 20)  /* of the timers' log: mappedFileSizeTimerLog */
#define RECORD_MOST  (64u << 20)   /* nothing bigger is taken for a record's size */
#define DUE_NEVER    INT64_MAX

/* A unit whose time is near. */
struct timed {
    struct timer_key key;
    int64_t position, write_ms;
    uint32_t size, magic;
};

/* What can be saved: how far it was at one moment, and how much of the message log has to be on the
 * disk before that may be said. */
struct timer_mark {
    struct timer_check check;
    uint64_t end;
    bool there;
};

/* A recall that is not over: its key is the topic, '+' and the message's unique key. */
struct recall_entry {
    int64_t fresh;  /* a record of this position says so and has no unit yet; -1: none */
    bool near;      /* there is a unit that says so, … */
    int64_t second; /* … in this slot at the latest */
    size_t len;
    char key[];
};

struct timers {
    /* The turn's own; at opening and closing nobody else is there. */
    struct timerlog *log; /* NULL: no message with a time of its own was ever seen */
    struct timerwheel *wheel;
    int64_t window_ms;              /* no record waits longer for its unit's time than this */
    int64_t next_offset;            /* the queue's records in front of it have units */
    struct timer_key done;          /* units up to this one are over … */
    struct timer_key past;          /* … and those in front of past_at up to this one */
    int64_t past_at;                /* 0: the clock did not go back lately */
    _Atomic int64_t doubt_position; /* records in front of it may have been delivered before */
    uint64_t end;                   /* of the last record read or written, in the log */
    struct timed *near;             /* a heap, the first is due first */
    size_t n, cap;
    int64_t loaded;         /* slots up to this second are in it … */
    bool more;              /* … but not all of the last one */
    struct timer_key bound; /* then: nothing behind this key is in it */
    int64_t cleared;        /* slots in front of it are empty */
    int64_t *seen;          /* positions of records behind next_offset that have a unit, rising */
    size_t n_seen, seen_cap;
    int64_t seen_until; /* and the offset behind the last of them */
    uint64_t wheel_ns;  /* when the wheel's file was last written */
    char note[256];     /* what timers_start had to repair */
    enum err trouble;
    uint64_t retry_ns;
    unsigned pause_ms;
    uint8_t *buffer;
    size_t buffer_size;
    uint8_t *text; /* properties of one batch */
    struct draft drafts[TIMER_BATCH];
    struct stored stored[TIMER_BATCH];
    struct timed batch[TIMER_BATCH];

    /* The keeper's own. */
    struct timer_mark candidate;
    struct timer_check saved;
    bool saved_there;

    _Atomic uint64_t pending, delivered, recalled, rolled, lost;
    _Atomic int64_t behind;      /* records of the queue that have no unit yet */
    _Atomic int64_t soonest_ms;  /* due time of what was sent since the last turn, the nearest */
    _Atomic int64_t sleep_to_ms; /* when the turn comes by itself */
    struct queue *_Atomic queue; /* where the messages wait; NULL: not known yet */

    struct room room; /* what a recall decides by */
    struct map recalls;
    int64_t passed_ms;   /* what is due up to this time has been decided */
    uint64_t recall_end; /* of the last recall's record */
    struct timer_mark mark;
};

/* ---- times ---- */

/* Ours say a millisecond in TIMER_OUT_MS, the one in front of that in which they are due. Apache's
 * say a full second, and are due when it is over. */
static inline int64_t timer_due(int64_t time_ms)
{
    return time_ms % TIMER_SECOND ? time_ms + 1 : time_ms + TIMER_SECOND;
}

/* The time to say for something due then; a full second is left to Apache, so that becomes due a
 * millisecond later. */
static inline int64_t timer_time(int64_t due_ms)
{
    int64_t time_ms = due_ms > 0 ? due_ms - 1 : 1;
    return time_ms % TIMER_SECOND ? time_ms : time_ms + 1;
}

static inline bool key_before(const struct timer_key *a, const struct timer_key *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->at < b->at;
}

/* The slot that a key belongs to. */
static inline int64_t key_second(const struct timer_key *key)
{
    return (key->due_ms - 1) / TIMER_SECOND;
}

static inline bool timer_is_done(const struct timers *t, const struct timer_key *key)
{
    return !key_before(&t->done, key) || (key->at < t->past_at && !key_before(&t->past, key));
}

/* ---- timer_open.c ---- */

/* Reads what an earlier life left, or begins; `note` hears of what had to be repaired. */
must_check enum err timers_start(struct broker *b, struct fault *why);
/* The units cannot be read any more: all is taken from the queue once more. Tells the operator. */
must_check enum err timers_again(struct broker *b, bool *more, struct fault *why);
/* At the end of a turn: what could be saved now. */
void timers_mark_set(struct broker *b);

/* ---- timer_near.c ---- */

must_check enum err near_push(struct timers *t, const struct timed *timed);
struct timed near_pop(struct timers *t);
/* Brings slots into the heap that begin before `upto_ms`. */
must_check enum err near_load(struct broker *b, int64_t upto_ms, struct fault *why);
/* Slots that are over are emptied. */
void near_clear(struct timers *t);
void near_forget(struct timers *t);

/* ---- timer_take.c ---- */

/* Gives units to what stands in the queue. True: there is more, or it has to wait. */
must_check enum err timers_take(struct broker *b, bool *more, struct service_turn *out);
/* The time that a record says. */
must_check bool timers_out_ms(const struct record *record, int64_t *out_ms);
/* The record of a unit, copied to the buffer from `*used` on, which moves behind it.
 * ERR_TOO_BIG: there is no room for it behind what is there. */
must_check enum err timers_record(struct broker *b, int64_t position, uint32_t size, size_t *used,
                                  struct record *out);

/* ---- recall.c ---- */

/* A delete unit was made, is loaded, or is put in again late. */
must_check enum err recall_note(struct broker *b, const struct record *record, int64_t second,
                                bool near);
/* Room: recall. Whether this message was recalled. */
bool recall_hits(struct timers *t, const struct record *record);
/* Those of slots in front of `second` are over. */
void recalls_sweep(struct timers *t, int64_t second);
void recalls_clear(struct timers *t);

#endif
