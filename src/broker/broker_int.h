/* broker_int.h - what the files of this folder share: the core room and what stands in it.
 *
 * Everything below `room` in struct broker is touched with the core's key in hand; a function that
 * needs it says so with room_held() in its first line. What must happen once the key is given back
 * (telling clients, telling name servers, letting sessions go) is collected in a `struct after`.
 */
#ifndef BROKER_BROKER_INT_H
#define BROKER_BROKER_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/dice.h"
#include "base/list.h"
#include "base/map.h"
#include "base/room.h"
#include "broker/broker.h"
#include "broker/numbers_int.h"

#define NAME_MAX_ANY  255   /* topics and groups, also those that files bring along */
#define QUEUES_MAX    65536 /* of one topic; Java itself warns above 32767 */
#define PULL_COUNT    32    /* maxTransferCountOnMessageInMemory */
#define PULL_BYTES    (256u << 10)
#define BATCH_MAX     32768 /* messages in one request: 4 MiB hold no more with their keys */
#define GROUP_SUBS    1024  /* topics that one group may subscribe to */
#define SUB_MAX       16384 /* bytes of one expression */
#define HOLD_SLOTS    512
#define HOLD_SLOT_NS  UINT64_C(100000000)
#define HOLD_MAX_MS   (3600u * 1000)
#define DELAY_LEVELS  64              /* of the ladder, at most */
#define TEMPLATE_NAME BYTES("TBW102") /* what new topics are modelled on */

/* For "%.*s": a stranger's name, cut so that the sentence stays readable. */
#define BRIEF(b)                                                                                   \
    (int)((b).len < 128 ? (b).len : 128), (const char *)((b).at ? (b).at : (const uint8_t *)"")

/* A pointer as the key of a map: its own bytes, which must stay where they are. */
static inline struct bytes pointer_key(const void *pointer_to_pointer)
{
    return bytes_of(pointer_to_pointer, sizeof(void *));
}

/* ---- what stands in the core ---- */

struct topic {
    struct topic_settings set; /* its slices point into this allocation */
    struct queue **queues;     /* handles by queue number, filled on first use */
    int32_t n_queues;
    bool rescued;       /* by topics_add_stored, which may still find more queues of it */
    struct bytes dedup; /* what the topic says of it; empty: as the broker's settings say */
    char text[];
};

/* A deleted topic; tombs.c. */
struct tomb {
    int64_t end;   /* of all its queues together, when it was deleted */
    int64_t found; /* while counting: the same now */
    bool seen;     /* while counting: the store has a queue of it */
    size_t name_len;
    char name[];
};

struct group {
    struct group_settings set; /* its slices point into this allocation */
    char text[];
};

/* How far one group has come in one topic. Queue numbers in files are anybody's, so they are
 * searched for and never used as an index. */
struct place {
    int32_t queue_id;
    int64_t offset;
    bool reset;               /* by an operator, and no reader has been told yet */
    const struct counted *by; /* who came so far: to be compared with others, never looked into */
};
struct progress {
    struct place *places; /* by queue number, rising */
    size_t n, cap;        /* n 0: the group has read here, and committed nothing */
    struct tally *tally;  /* how much it has read; NULL: nothing */
    size_t key_len;
    char key[]; /* topic@group */
};
#define PROGRESS_KEY_MAX (2 * NAME_MAX_ANY + 1)

/* A compiled expression, or why there is none. */
struct verdict {
    struct filter *filter; /* a count of it */
    enum err err;
    char *reason; /* of `err`; NULL: no memory for it */
};

#define SUB_SHOWN 1024 /* bytes of an expression that are kept as text */
struct sub_shown {
    size_t type_len, expression_len;
    char text[]; /* the type, the expression */
};

struct sub {
    int64_t version;
    uint64_t mark; /* the same for the same topic and expression */
    bool wanted;   /* while a heartbeat is worked in: it still names this topic */
    struct verdict verdict;
    struct sub_shown *shown; /* what an operator sees of it; NULL: there was no memory */
    size_t topic_len;
    char topic[];
};

/* The clients of one group: its consumers or its producers. Exists while it has members. */
struct crowd {
    bool consumes, broadcasting, pops, actively;
    char from_where[32]; /* CONSUME_FROM_…, as the last member said it */
    struct list members;
    size_t n_members;
    struct map speakers; /* client id → the member that spoke last under it */
    struct map subs;     /* topic → struct sub; consumers only, at most GROUP_SUBS */
    size_t name_len;
    char name[];
};

/* One client in one crowd. */
struct member {
    struct link in_crowd, in_session;
    struct link
        by_time; /* in broker.members_by_time, longest silent first; afterwards in after.gone */
    struct {
        const struct crowd *crowd;
        const struct counted *session;
    } key; /* in broker.members */
    struct crowd *crowd;
    struct visitor *visitor;
    struct counted *session; /* one count is ours */
    uint64_t seen_ns;
    uint64_t warned_ns; /* when its namesake was last told of; 0: never */
    uint64_t mark;      /* of all it subscribes to; 0: nothing yet */
    bool expired;       /* it goes because it was silent */
    char *id;
    size_t id_len;
    uint8_t language;
    int32_t version;
    struct addr addr;
};

/* All memberships of one connection. Exists while there is one. */
struct visitor {
    const struct counted *session; /* the key in broker.visitors */
    struct list members;
};

/* The readers that wait for one queue. Once made it stays: there are never more than queues. */
struct waiting {
    struct queue *queue; /* the key in broker.waiting */
    struct list holds;
};

/* What all filters share. No key: counts are atomic. */
#define FILTERS_SIZE_MAX (64u << 20) /* compiled SQL92 in all; more is refused */
struct filters {
    atomic_bool sql92;
    _Atomic size_t size;
};

#define TABLES 6

struct table {
    struct data_version version;
    uint64_t changes, saved; /* equal: the file is up to date */
};

struct broker {
    struct store *store;
    struct vfs *vfs;
    struct clock *clock;
    struct clock *peer_clock; /* what depends on clients speaking up in time goes by this one */
    const struct broker_out *out;
    struct broker_options set; /* its texts are copies */
    char *texts[5];
    struct buf added; /* properties that every message gets, as text */
    char note[512];
    struct filters filters;

    struct numbers numbers;     /* partly in the room */
    struct dedup *dedup;        /* has a room of its own */
    _Atomic bool dedup_used;    /* some topic has it, or had */
    struct ledger_room *ledger; /* has a room of its own, too */

    struct room room; /* core */
    struct dice dice;
    struct table tables[TABLES];
    struct map topics, groups;       /* name → struct topic, struct group */
    struct map tombs;                /* name → struct tomb */
    struct buf forbidden;            /* forbiddenTable of subscriptionGroup.json, kept as it was */
    struct map progress;             /* topic@group → struct progress */
    struct map consumers, producers; /* group → struct crowd */
    struct map members;              /* crowd and session → struct member */
    struct map visitors;             /* session → struct visitor */
    struct map callers;              /* client id → struct member: as a producer, heard of last */
    struct list members_by_time;
    struct map waiting; /* queue → struct waiting */
    struct list hold_slots[HOLD_SLOTS];
    uint64_t hold_tick; /* the slot that was looked at last */
    uint32_t n_holds;
    int64_t delay_saved[DELAY_LEVELS]; /* by level; -1: not in the table */
    struct delay *delay;               /* delay.c; but for opening, broker_delay_turn's own */
    struct txn *txn;                   /* txn.c */
    struct pop_room *pop;              /* pop_int.h */
    struct map modes;                  /* topic@group → struct mode; assign.c */
    struct timers *timer;              /* timer.c */
    struct map lock_groups;            /* group → struct lock_group */
    struct list locks_by_time;
    uint32_t n_locks;
};

/* ---- afterwards ---- */

/* A group's members are to be told. The sessions are counted. */
struct notice {
    struct notice *next;
    size_t n, group_len;
    struct counted **sessions;
    char group[];
};

/* A sentence for broker_out.warn. */
struct warning {
    struct warning *next;
    char text[512];
};

struct after {
    struct notice *notices;
    struct warning *warnings;
    struct list gone;  /* members that are no more, by their by_time */
    struct list woken; /* holds, by their by_queue */
    bool topics_changed, tables_changed;
};

void after_init(struct after *after);
/* Keeps a sentence until the key is back; without memory it is lost. */
void after_warn(struct after *after, const char *format, ...) __attribute__((format(printf, 2, 3)));
void after_run(struct broker *b, struct after *after); /* no key held */

/* ---- topics.c, room: core ---- */

struct topic *topic_find(struct broker *b, struct bytes name);
/* Adds or replaces, without asking for the limit. */
must_check enum err topic_put(struct broker *b, const struct topic_settings *set,
                              struct topic **out);
/* A new one: limit, version, news. */
must_check enum err topic_create(struct broker *b, const struct topic_settings *set,
                                 struct after *after, struct topic **out, struct fault *why);
/* The topic a message is sent to, made from its template if it is new. */
must_check enum err topic_for_send(struct broker *b, const struct produce *r, struct after *after,
                                   struct topic **out, struct fault *why);
/* Adds %RETRY%group if there is none. NULL: the group does not want one. */
must_check enum err topic_for_retry(struct broker *b, const struct group *group,
                                    struct after *after, struct topic **out, struct fault *why);
/* Adds %DLQ%group if there is none. */
must_check enum err topic_for_dead(struct broker *b, struct bytes group, struct after *after,
                                   struct topic **out, struct fault *why);
/* The handle; NULL: no memory. `queue_id` is below topic_width(). */
struct queue *topic_queue(struct broker *b, struct topic *topic, int32_t queue_id);
int32_t topic_width(const struct topic *topic); /* the larger of its two queue counts */
must_check enum err topics_add_system(struct broker *b);
/* A topic that has messages but no settings: a crash came between the two. */
must_check enum err topics_add_stored(struct broker *b);
void topic_free(struct topic *topic);

/* ---- tombs.c, room: core ---- */

bool tomb_find(struct broker *b, struct bytes name);
must_check enum err tomb_make(struct broker *b, struct bytes name, struct fault *why);
/* Without asking for the limit. */
must_check enum err tomb_put(struct broker *b, struct bytes name, int64_t end);
void tomb_remove(struct broker *b, struct bytes name);
void tombs_tidy(struct broker *b);  /* lets go of those that are not needed */
void tombs_clear(struct broker *b); /* no key needed: at the end */

/* ---- hold.c ---- */

/* Room: core. Takes all readers that wait at the queue, to be woken by holds_wake. */
void holds_take(struct broker *b, struct queue *queue, struct list *woken);
void holds_wake(struct list *woken); /* no key held */
/* Room: core. Into its slot of time, and out of it: from then on the caller alone may wake it. */
void hold_time(struct broker *b, struct hold *hold);
void hold_untime(struct broker *b, struct hold *hold);

/* Waits for its time alone. As broker_hold. */
must_check enum err broker_hold_time(struct broker *b, struct hold *hold, uint64_t wait_ms);

/* ---- groups.c, room: core ---- */

struct group *group_find(struct broker *b, struct bytes name);
must_check enum err group_put(struct broker *b, const struct group_settings *set,
                              struct group **out);
/* The group, made if it is new and that is allowed. */
must_check enum err group_need(struct broker *b, struct bytes name, struct group **out,
                               struct fault *why);
must_check enum err groups_add_system(struct broker *b);

/* ---- clients.c, room: core ---- */

const struct crowd *consumers_find(struct broker *b, struct bytes group);
bool consumer_is(struct broker *b, struct bytes group, const struct counted *session);
void clients_clear(struct broker *b);             /* no key needed: at the end */
size_t names_tidy(struct bytes *names, size_t n); /* sorts, each once; how many are left */

/* ---- subs.c: what a group subscribes to ---- */

/* One subscription of a heartbeat, made ready before the core is entered. */
struct sub_ready {
    uint64_t mark;
    bool known; /* the group has it already, or something newer */
    bool made;  /* `verdict` is there */
    struct verdict verdict;
};
struct subs_ready {
    uint64_t mark; /* of them all, in whatever order */
    size_t n;
    struct sub_ready *each; /* one for each of membership.subs */
};

must_check enum err subs_check(const struct membership *m, struct fault *why); /* no key needed */
/* No key held. Compiles what is new: that may take a while. */
must_check enum err subs_prepare(struct broker *b, const struct membership *m,
                                 struct subs_ready *out);
void subs_ready_clear(struct subs_ready *ready);
/* Room: core. The last heartbeat of any member decides for the whole group. `*changed`: topics came
 * or went, not merely another expression for one of them. */
must_check enum err subs_update(struct broker *b, struct crowd *crowd, const struct membership *m,
                                struct subs_ready *ready, bool *changed);
/* Room: core. A topic that the group does not have in the same way; none: they are alike. */
struct bytes subs_differ(const struct crowd *crowd, const struct membership *m,
                         const struct subs_ready *ready);
const struct sub *subs_find(const struct crowd *crowd, struct bytes topic);
void subs_clear(struct crowd *crowd);

/* ---- filter.c; the filters may be NULL: all messages ---- */

/* As broker_filter_check; `*out` is a count. */
must_check enum err filter_make(struct filters *filters, struct bytes expression, struct bytes type,
                                struct filter **out, struct fault *why);
void filter_hold(struct filter *filter);
bool filter_by_props(const struct filter *f); /* tags say nothing, the properties decide */
bool filter_wants(const struct filter *f, int64_t tags_code);
bool filter_wants_props(const struct filter *f, struct bytes props);
/* The same number for expressions that mean the same, as far as that is easy to say: tags in any
 * order. */
uint64_t filter_mark(struct bytes expression, struct bytes type);

/* ---- order.c, room: core ---- */

void locks_expire(struct broker *b);                  /* lets go of those not renewed for 60 s */
bool locks_any(struct broker *b, struct bytes group); /* the group consumes in order */
void locks_clear(struct broker *b);                   /* no key needed: at the end */

/* ---- offsets.c, room: core ---- */

struct progress *progress_find(struct broker *b, struct bytes group, struct bytes topic);
/* Made if there is none; NULL: no memory. */
struct progress *progress_need(struct broker *b, struct bytes group, struct bytes topic);
struct place *place_of(struct progress *p, int32_t queue_id); /* NULL: none; `p` may be NULL */
/* -1: none is stored. */
int64_t progress_get(struct broker *b, struct bytes group, struct bytes topic, int32_t queue_id);
must_check enum err progress_set(struct broker *b, const struct commit *commit);
/* From a file: the whole entry, replacing one of the same key. */
must_check enum err progress_put(struct broker *b, struct bytes key, const struct place *places,
                                 size_t n);
void progress_free(struct progress *p);
/* All of a topic, or of a group: the one that has a name. */
must_check enum err progress_remove(struct broker *b, struct bytes topic, struct bytes group);
/* An operator puts it anywhere; a reader is told with its next pull, and what it commits until then
 * is what it knew before, and is not taken. */
must_check enum err progress_reset(struct broker *b, struct bytes group, struct bytes topic,
                                   int32_t queue_id, int64_t offset);
bool progress_was_reset(struct broker *b, struct bytes group, struct bytes topic, int32_t queue_id);
/* Whether a group without an offset would begin with the queue's first message. No key needed. */
bool queue_is_recent(struct broker *b, struct bytes topic, int32_t queue_id);
/* Splits topic@group. */
void progress_names(const struct progress *p, struct bytes *topic, struct bytes *group);

/* ---- assign.c, room: core ---- */

must_check enum err mode_put(struct broker *b, const struct request_mode *set);
void modes_clear(struct broker *b); /* no key needed: at the end */

/* ---- popmark.c, room: core ---- */

void pop_numbers(struct broker *b, struct broker_numbers *out);

/* ---- delay.c ---- */

/* Room: core, when the table has been loaded. */
must_check enum err delay_open(struct broker *b);
/* Makes the table say how far the deliveries have come, now that nobody delivers any more and the
 * log is flushed. */
void delay_settle(struct broker *b);
bool delay_unsettled(const struct broker *b);
void delay_free(struct delay *delay);

/* ---- txn.c ---- */

/* Room: core, when the tables have been loaded. */
must_check enum err txn_open(struct broker *b);
bool txn_unsettled(const struct broker *b);
/* As delay_settle. */
void txn_settle_last(struct broker *b);
void txn_free(struct txn *txn);
void txn_numbers(const struct txn *txn, struct broker_numbers *out); /* room: core */
/* ---- timer.c, timer_open.c ---- */

/* No key held, and nobody else is there. */
must_check enum err timers_open(struct broker *b, struct fault *why);
/* Saves how far the timers have come; the keeper. */
must_check enum err timers_keep(struct broker *b, struct fault *why);
/* The same, exactly, now that nobody delivers any more. */
void timers_settle(struct broker *b);
void timers_free(struct timers *timer);
/* A message that is due then was stored; its queue does not show it yet. */
void timers_sent(struct broker *b, int64_t due_ms);
void timers_arrived(struct broker *b, const struct arrival *news, size_t n); /* no key held */
void timers_numbers(struct broker *b, struct broker_numbers *out);

/* ---- dedup.c ---- */

must_check enum err dedup_open(struct broker *b);
void dedup_close(struct broker *b);
/* Room: core. What a topic's attributes say of it, in the arena; empty: nothing. */
struct bytes dedup_of_topic(struct broker *b, const struct topic_settings *set,
                            struct arena *arena);
void dedup_numbers(struct broker *b, struct broker_numbers *out);
/* dedup_load.c: fills the table from the log, before anybody sends. */
must_check enum err dedup_load(struct broker *b, struct fault *why);

/* ---- ledger.c, ledger_load.c ---- */

must_check enum err ledger_room_open(struct broker *b);
void ledger_room_close(struct broker *b);
void ledger_room_tune(struct broker *b, const struct broker_options *now);
void ledger_room_numbers(struct broker *b, struct broker_numbers *out);
/* At a stop, when nobody asks any more: so that the next start has little to read. */
must_check enum err ledger_save_last(struct broker *b, struct fault *why);
/* No key held, and nobody else is there: the snapshot, and what the log has behind it. */
must_check enum err ledger_replay(struct broker *b, struct fault *why);

/* ---- save.c, room: core ---- */

must_check enum err tables_load(struct broker *b, struct fault *why);
/* The table is no longer what its file says; its version goes up. */
void table_changed(struct broker *b, enum table_name which);

#endif
