/* dedup_int.h - messages that were stored before are not stored again: the model, and what the
 * files of it share.
 *
 * A producer that gets no answer sends again, and cannot know that the first try was stored. Such a
 * message has a *name*: the topic it was sent to and its UNIQ_KEY, which clients keep over their
 * retries, or the value of a property that the topic names, such as an order number. If a message
 * of the same name was stored within the window (dedupWindowSeconds), nothing is stored; the answer
 * is that of the first one.
 *
 *     name ──hash──> table: slots in the order of the log ──position──> record: is it that name?
 *
 * The table (dedup_table.c) only points at records. Whether one has the name is decided by the
 * record itself, so that two names with one hash do no harm: a message is never taken for another.
 *
 * Room: dedup (1, never together with the core). It is entered before a loop's turn looks for the
 * names of its messages and left when they are stored and in the table. So two loops with the same
 * message at the same moment come one after the other, the second finds what the first has really
 * stored, and the table is in the order of the log. What is serialized by this are appends, which
 * are serialized anyway. The second one's answer waits until the first one's record is confirmed.
 * Whoever sends to topics without dedup never enters.
 *
 * Several messages of one batch may share their UNIQ_KEY. The second, third … of a batch with the
 * same key are told apart by a number, their *place*, which the desk puts into the property
 * DEDUP_PLACE: the log must be able to tell it. A message that goes into another batch, or alone,
 * when it is sent again is recognised all the same.
 *
 * A delayed message, which waits in a system topic (REAL_TOPIC), has the name it was sent under.
 * The copy that is delivered is not another message and has no name. Nor have messages for %RETRY%
 * and %DLQ%, which keep the UNIQ_KEY on purpose; nor those that can be taken back after they were
 * stored: transactional ones and those with a time of their own. If the first one is rolled back or
 * recalled, what is sent again must come.
 *
 * After a start the table is filled from the log before anything is served (dedup_load.c).
 *
 * Time is that of the clock that never goes back; after a start a record is as old as its store
 * time says, but not younger than new. A key is kept for the window and at most 1/64 longer.
 */
#ifndef BROKER_DEDUP_INT_H
#define BROKER_DEDUP_INT_H

#include "broker/produce_int.h"

#include <assert.h>
#include <stdalign.h>

/* ---- dedup_table.c: hash → positions of the log ----
 *
 * Slots stand in the order in which they came, which is that of the log and of time, and have a
 * running number each. So the oldest are let go by raising one number, however many they are. Slots
 * of one bucket are chained from the newest to the oldest by the distance between them; a chain
 * ends where it leaves the living. So nothing is ever unlinked.
 *
 *     heads  [ 7 ][ - ][ 9 ][ 8 ] …        a bucket's newest slot
 *     slots  … first=4 [4][5][6][7][8][9] next=10
 *                       ^───────┘ back=3   … and the one before it in its bucket
 *
 * Buckets grow one by one (linear hashing): each new one takes its share of the chain of the one
 * that it is split from, and when there are too many the last one's chain is merged back. So there
 * is no moment at which all of the table is moved.
 *
 * A look for a key that is not there, as nearly all are, is one access to memory at a place that
 * nobody could foresee: the head's. Heads are one array that never moves, in large pages where the
 * kernel has them (base/reserve.h), and are fetched while the message is still being prepared.
 *
 * Memory: 14 bytes a slot, 4 a bucket, two to two and a quarter buckets a slot: 22 to 23 bytes a
 * key, in small pieces that come and go with the keys.
 */
struct dedup_slot {
    uint32_t low;  /* 48 bits of the position: those above are the newest one's, or one less */
    uint32_t hash; /* bits DEDUP_HASH_BIT to …+31: the bucket's, and more to tell others by */
    uint32_t back;
    uint16_t high;
} __attribute__((packed));
static_assert(sizeof(struct dedup_slot) == 14, "the promise of 24 bytes a key");
#define DEDUP_HASH_BIT 10
#define DEDUP_KEYS_MAX 16000000 /* by the numbers in heads */

struct dedup_table {
    uint64_t first, next;      /* numbers of the oldest slot and of the one to come */
    struct dedup_slot **slots; /* a ring of chunks */
    size_t slots_cap;          /* a power of two, or zero */
    uint64_t chunk_first, chunk_next;
    uint32_t *heads; /* they never move, so that one may point at them without the room */
    uint32_t buckets, buckets_most, hand;
    uint64_t owed;   /* to the sweep */
    uint64_t newest; /* the highest position */
    size_t bytes;    /* of all of it */
};

void dedup_table_init(struct dedup_table *t, uint64_t max_keys); /* more only make it slower */
void dedup_table_close(struct dedup_table *t);
void dedup_table_clear(struct dedup_table *t); /* empty, and without memory */
/* So many bytes of the heads, from the first on, stay in use for now: base/reserve.h. */
size_t dedup_table_full(const struct dedup_table *t);
static inline uint64_t dedup_table_count(const struct dedup_table *t)
{
    return t->next - t->first;
}
/* Room for so many more. Call it before adding, and not between adding and taking back. */
must_check enum err dedup_table_reserve(struct dedup_table *t, size_t more);
/* Adds one, with a position or with a value that is kept until that is known. Its number. */
uint64_t dedup_table_add(struct dedup_table *t, uint64_t hash, uint64_t value);
/* The same, if a glance tells that none can be found that has this hash; 0: it does not. */
uint64_t dedup_table_add_new(struct dedup_table *t, uint64_t hash, uint64_t value);
#define DEDUP_VALUE_MAX ((UINT64_C(1) << 48) - 2)
uint64_t dedup_table_value(const struct dedup_table *t, uint64_t number);
/* Positions come in rising order. */
void dedup_table_set(struct dedup_table *t, uint64_t number, uint64_t position);
void dedup_table_void(struct dedup_table *t, uint64_t number); /* it is not found any more */
/* Takes back the one that was added last. */
void dedup_table_take_back(struct dedup_table *t, uint64_t hash);
/* Lets go of all before this number. */
void dedup_table_forget(struct dedup_table *t, uint64_t before);
/* Gives back memory that is not needed, in so many small steps at most. */
void dedup_table_tend(struct dedup_table *t, size_t steps);

/* The newest that may have this hash, but older than `before` (0: any); 0: there is none. */
uint64_t dedup_table_find(const struct dedup_table *t, uint64_t hash, uint64_t before);
uint64_t dedup_table_position(const struct dedup_table *t, uint64_t number);

/* Where heads are. Whoever will look for a key soon has the processor fetch its head meanwhile,
 * outside the room; if that is not the right one any more nothing is lost. */
struct dedup_hint {
    _Atomic(uint32_t *) heads;
    _Atomic uint32_t buckets;
};
void dedup_hint_show(struct dedup_hint *hint, const struct dedup_table *t);
void dedup_hint_fetch(const struct dedup_hint *hint, uint64_t hash);

/* ---- dedup.c ---- */

#define DEDUP_TICKS 64 /* the window is aged in so many steps */
#define DEDUP_MARKS (DEDUP_TICKS + 3)

struct dedup_mark {
    int64_t ms;      /* of the clock that never goes back */
    uint64_t number; /* of the first slot from then on */
};

#define DEDUP_LINES 128 /* processors fetch cache lines by two */
struct dedup {
    uint64_t seed, max_keys;
    int64_t window_ms, tick_ms;
    size_t firm;            /* so many bytes of the heads are in large pages; the keeper's own */
    struct dedup_hint hint; /* read by everybody, so not in a cache line that is written often */

    alignas(DEDUP_LINES) struct room room; /* and from here on what it guards */
    struct dedup_table table;
    struct dedup_mark marks[DEDUP_MARKS];
    size_t n_marks;
    int64_t now_ms; /* when the turn entered that is inside */
    uint64_t duplicates;
    uint64_t displaced, displaced_told; /* keys; of which the operator knows */
    int64_t warned_ms;
};

/* What a message is known by. */
struct dedup_name {
    struct bytes topic, key;
    uint32_t place;
    int32_t queue_id; /* not part of it: where the message is, or will be */
};

uint64_t dedup_hash(const struct dedup *d, const struct dedup_name *name);
/* False: it has none, or is the copy of a message that has. */
bool dedup_name_of(const struct record *record, struct bytes by, struct dedup_name *out);
/* A system topic in which messages for others wait. */
bool dedup_waits_there(struct bytes topic);
/* Room: core. By what messages of a topic are recognised; empty: they are not. */
struct bytes dedup_by(struct broker *b, const struct topic *topic);

/* Room: dedup. */
int64_t dedup_now_ms(struct broker *b);
void dedup_mark(struct dedup *d, int64_t now_ms); /* what is added from here on is of now */
void dedup_age(struct dedup *d, int64_t now_ms);  /* forgets what is older than the window */
/* Lets go of the oldest if there are too many. True: the operator should hear of it. */
bool dedup_fit(struct dedup *d, int64_t now_ms, struct fault *warning);

#endif
