/* pop_int.h - POP: messages that are handed out for a time.
 *
 * A group that pops owns no queues: each member asks for messages of any queue, gets some, and they
 * are invisible to the others until they are acknowledged or their time is up. What was handed out
 * together from one queue is one *mark* (Apache's check-point):
 *
 *     T ──pop──> mark(start, offsets, pop time, invisible time) ──ack, ack …──> finished
 *                   │ └──change invisible time──> a new mark for that message, the old one is acked
 *                   └──time is up──> what is not acked: a copy in %RETRY%group_T, or %DLQ%group
 *
 * Marks are in memory and in the log. A mark, and each acknowledgement, is a record of the topic
 * rmq_sys_REVIVE_LOG_<cluster> in Apache's form, written when it happens and not, as by Apache,
 * through its timers. All records of one topic and group go to one of its queues, so an
 * acknowledgement always stands behind its mark.
 *
 * Order. A mark is written before its messages leave, and only then does the group's offset move;
 * an acknowledgement is answered when its record is as safe as a message would be. What is revived
 * is written together with the acknowledgement of what it replaces, the latter last. So whatever a
 * crash takes away, a message is in front of the group's offset, or in a mark, or in a copy.
 *
 * After a start the marks are read from the revive queues again, from the oldest that was not
 * finished on (the offset of CID_RMQ_SYS_REVIVE_GROUP, one less than that, as Apache counts), and
 * groups are put behind what their marks hold. Both numbers are saved in one file, and there they
 * never are ahead of the disk (pop_settle).
 *
 * Records that others wrote, an Apache broker's timers, may arrive in the revive queues at any
 * time: popread.c follows them.
 *
 *     pop.c        the verbs: pop, peek           poprevive.c  what becomes of marks in time
 *     popack.c     acknowledge, change the time   popread.c    the records: start, and others'
 *     popmark.c    marks in memory                poptext.c    the records as text
 *     pophold.c    pops that wait                 poporder.c   consumption in order
 *
 * Room: core, for all of struct pop_room. The turn's own memory is in struct pop_turn.
 */
#ifndef BROKER_POP_INT_H
#define BROKER_POP_INT_H

#include "broker/broker_int.h"

#define REVIVE_GROUP      BYTES("CID_RMQ_SYS_REVIVE_GROUP")
#define REVIVE_QUEUES_MAX 64
#define POP_KEY_MAX       (2 * NAME_MAX_ANY + 16)
#define ATTEMPT_MAX       128
#define MARK_TEXT_MAX     16384 /* of one record: three names, 32 numbers */

struct pop_order; /* poporder.c */

/* One queue as one group pops it. */
struct pop_queue {
    struct queue *queue;
    bool busy; /* somebody is popping just now */
    size_t n_marks;
    int64_t saved;          /* the group's offset: what the file may say … */
    int64_t settles;        /* … and will say when the log is flushed so far as it was then */
    int64_t moved_ms;       /* handles up to this time may be of messages in another mark now … */
    int64_t moved_until_ms; /* … and until then look as if they were done with */
    struct pop_order *order;
    int32_t queue_id;
    struct bytes topic, group; /* in the text */
    size_t key_len;
    char text[]; /* topic@group@queue, and there are no others like it */
};

struct mark_key {
    const struct pop_queue *queue;
    int64_t start, pop_ms;
};

/* What was handed out together from one queue. */
struct mark {
    struct mark_key key;
    struct pop_queue *queue;
    struct link by_record; /* in revive_queue.open */
    int64_t bound;         /* its record does not stand before this offset */
    size_t heap_at;
    int64_t invisible_ms, revive_ms; /* when it is looked at again */
    int32_t revive_id;
    uint32_t acked;   /* bit i: message i */
    uint32_t writing; /* acknowledgements under way, */
    uint32_t claimed; /* for these messages; */
    uint32_t moving;  /* and these are on their way into another mark, */
    uint32_t moved;   /* and these are there, or in a copy: acked, but by no acknowledgement */
    uint32_t n;
    bool written;     /* its record is in the log */
    bool reviving;    /* its time is up and somebody is at it */
    bool restored;    /* from before the start: it may have been revived already */
    bool foreign;     /* by somebody else's timer: its acknowledgements come a little later */
    int32_t tries;    /* to revive it */
    uint32_t diffs[]; /* offsets less the start, rising */
};

struct revive_queue {
    struct queue *queue; /* NULL: there is none yet */
    struct list open;    /* marks, by bounds that never fall */
    int64_t next;        /* our own records stand before this */
    int64_t at;          /* everything before this has been read */
    int64_t ours;        /* from here on our own records are in memory already */
    int64_t saved, settles;
    int64_t foreign_ms;  /* the latest time for which somebody else's record was meant … */
    uint64_t foreign_ns; /* … and when the last of them was seen */
};

/* Where messages of a topic stand for those who pop: in the topic itself, or, when they come again,
 * in the group's retry topic for it. That has two forms (enableRetryTopicV2); the number of each is
 * the one that handles of messages have for it. */
enum pop_place { POP_TOPIC, POP_RETRY_V1, POP_RETRY_V2, POP_PLACES };

/* The pops of one group that wait for messages of one topic. */
struct pop_crowd {
    struct list holds;
    uint32_t n;
    struct link by[POP_PLACES]; /* in the pop_topics by which arrivals find it */
    struct bytes topic, group;
    size_t key_len;
    char text[]; /* topic@group */
};
struct pop_topic {
    struct list crowds[POP_PLACES]; /* whose it is, as what */
    size_t name_len;
    char name[];
};

struct pop_turn; /* poprevive.c */

struct pop_room {
    struct map queues;  /* topic@group@queue → struct pop_queue */
    struct map marks;   /* struct mark_key → struct mark */
    struct mark **heap; /* of the marks, the next to be looked at first */
    size_t n_heap, cap_heap;
    size_t messages; /* in flight */
    struct map crowds, topics;
    uint32_t n_holds;
    char revive_topic[NAME_MAX_ANY + 1];
    struct revive_queue revive[REVIVE_QUEUES_MAX];
    int32_t n_revive;
    uint64_t end;             /* our last record ends there in the log */
    uint64_t settles;         /* `settles` of queues is what was so when the log ended there … */
    uint64_t settles_known;   /* … and it knows of all marks before this position */
    size_t unwritten;         /* marks whose records are on their way … */
    uint64_t unwritten_since; /* … to a place behind this position */
    bool unsettled;
    int64_t opened_ms;
    uint64_t known; /* position: the file's offsets know of all marks before it */
    /* numbers */
    uint64_t popped, acked, revived, dead, late;
    struct pop_turn *turn;
};

/* ---- popmark.c, room: core ---- */

must_check enum err pop_init(struct broker *b); /* empty; the files come next */
must_check enum err pop_open(struct broker *b, struct fault *why);
void pop_free(struct broker *b); /* no key needed: at the end */
struct bytes pop_key(uint8_t text[POP_KEY_MAX], struct bytes topic, struct bytes group,
                     int32_t queue_id);
struct pop_queue *pop_queue_find(struct broker *b, struct bytes topic, struct bytes group,
                                 int32_t queue_id);
/* NULL: no memory. */
struct pop_queue *pop_queue_need(struct broker *b, struct bytes topic, struct bytes group,
                                 int32_t queue_id, struct queue *queue);
/* Which revive queue takes the records of a topic and group. */
int32_t revive_id_of(struct broker *b, struct bytes topic, struct bytes group);

struct mark_wish {
    struct pop_queue *queue;
    int64_t start, pop_ms, invisible_ms;
    int32_t revive_id;
    uint32_t n; /* room for so many messages */
};
/* A mark whose record will be written now: it has its place, and nobody sees it yet. ERR_EXISTS:
 * there is one of that start and time. ERR_BUSY: too many are in flight. */
must_check enum err mark_make(struct broker *b, const struct mark_wish *wish, bool limited,
                              struct mark **out, struct fault *why);
struct mark *mark_find(struct broker *b, const struct pop_queue *queue, int64_t start,
                       int64_t pop_ms);
/* Somebody else has written it there. */
void mark_stands(struct broker *b, struct mark *mark, int64_t offset);
/* Its record is in the log. */
void mark_written(struct broker *b, struct mark *mark);
/* -1: that message is not in it. */
int mark_index(const struct mark *mark, int64_t offset);
/* An acknowledgement, or a new mark, for some of them is written now: the first of the two keeps it
 * from being revived. */
void mark_claim(struct mark *mark, uint32_t bits, bool moving);
void mark_unclaim(struct mark *mark, uint32_t moved);
/* These are in another mark now: whoever shows this one's handle is late. */
void mark_moved(struct mark *mark, uint32_t bits);
/* Bits of messages that are done with. Frees the mark when it is finished. */
void mark_done(struct broker *b, struct mark *mark, uint32_t bits);
void mark_free(struct broker *b, struct mark *mark);
void mark_retime(struct broker *b, struct mark *mark, int64_t revive_ms);
static inline uint32_t mark_all(const struct mark *mark)
{
    return mark->n >= 32 ? UINT32_MAX : (1u << mark->n) - 1;
}
/* Records of ours are in the log: up to which offset of a revive queue, and where it ended. */
void pop_wrote(struct broker *b, int32_t revive_id, int64_t last_offset, uint64_t end);
/* What the file may say of a group's offset. */
int64_t pop_saved_offset(struct broker *b, const struct progress *p, const struct place *place);
/* Some group's offset has moved, by whomever. */
void pop_moved(struct broker *b);
/* Before the offsets are saved. */
void pop_settle(struct broker *b);
void pop_settle_all(struct broker *b); /* no key held: everything is flushed, nobody pops */
bool pop_unsettled(const struct broker *b);

/* ---- poptext.c: records of the revive topic ---- */

#define TAG_CK    BYTES("ck")
#define TAG_ACK   BYTES("ack")
#define TAG_BATCH BYTES("bAck")
#define TAG_ORDER BYTES("order") /* our own: how far a group has come in order */

enum mark_kind { MARK_NONE, MARK_CK, MARK_ACKS, MARK_ORDER };

struct mark_record {
    enum mark_kind kind;
    struct bytes topic, group;
    int32_t queue_id;
    int64_t start, pop_ms, invisible_ms;
    uint32_t n;
    int64_t offsets[POP_MAX]; /* of the messages, or of those that are acknowledged */
    int32_t tries;
    int64_t from_start, from_pop_ms; /* the mark that had its message before; -1: none */
    int64_t next;                    /* MARK_ORDER: the group's offset */
    const struct json *order;
};
/* Pure. MARK_NONE: a record that means nothing to us. ERR_MALFORMED, ERR_TOO_BIG. */
must_check enum err mark_record_read(struct bytes tag, struct bytes body, struct arena *arena,
                                     struct mark_record *out);

/* Drafts of such records, and their text. */
#define MARK_DESK_MAX 256
struct mark_note {
    struct buf body;
    char props[64];
    int32_t revive_id;
};
struct mark_desk {
    struct draft drafts[MARK_DESK_MAX];
    struct stored stored[MARK_DESK_MAX];
    struct mark_note notes[MARK_DESK_MAX];
    struct pop_queue *queues[POP_MAX]; /* of a pop: those it has taken, by part … */
    struct queue *handles[POP_MAX];    /* (the same, which a peek does not hold) … */
    struct mark *marks[POP_MAX];       /* … and what it takes from them */
    struct counting counting[POP_MAX];
    size_t n;
};
/* Each adds one record, of which there may be MARK_DESK_MAX. ERR_NO_MEMORY. `from`: the mark that
 * its message is taken from, or NULL. */
must_check enum err desk_add_ck(struct broker *b, struct mark_desk *d, const struct mark *mark,
                                const struct mark *from);
must_check enum err desk_add_acks(struct broker *b, struct mark_desk *d, const struct mark *mark,
                                  uint32_t bits);
must_check enum err desk_add_order(struct broker *b, struct mark_desk *d, const struct pop_queue *q,
                                   int64_t next);
/* Writes them all; none was written unless OK. No key held. */
must_check enum err desk_write(struct broker *b, struct mark_desk *d, uint64_t *end);
/* Room: core, afterwards. */
void desk_wrote(struct broker *b, const struct mark_desk *d, uint64_t end);

/* ---- popread.c ---- */

/* Room: core, at the start. */
must_check enum err pop_replay(struct broker *b, struct fault *why);
/* No key held: the turn. What others have written since. */
void pop_follow(struct broker *b, struct service_turn *out);

/* ---- pophold.c, room: core ---- */

void pop_arrived(struct broker *b, const struct arrival *news, struct list *woken);
/* One more of those that wait: something is left. */
void pop_wake_one(struct broker *b, struct bytes topic, struct bytes group, struct list *woken);
uint32_t pop_waiting(struct broker *b, const struct pop *pop);
void pop_crowds_tidy(struct broker *b);
void pop_crowds_clear(struct broker *b); /* no key needed: at the end */

/* ---- pop.c ---- */

/* %RETRY%group_topic or %RETRY%group+topic; the topic itself if it is one. Empty: too long. */
struct bytes pop_retry_name(uint8_t text[NAME_MAX_ANY], struct bytes topic, struct bytes group,
                            enum pop_place place);
/* Room: core. Whether a pop would find something now; `*until_ms`: else not before. */
bool pop_any(struct broker *b, const struct pop *pop, int64_t *until_ms);

/* ---- poprevive.c ---- */

void pop_turn_free(struct pop_turn *turn);

/* ---- poporder.c, room: core ---- */

struct order_hand { /* what is handed out, in order */
    int64_t pop_ms, invisible_ms;
    struct bytes attempt;
    const int64_t *offsets;
    uint32_t n;
};
/* Whether messages that were handed out keep the others back; until when. */
bool order_blocks(struct broker *b, const struct pop_queue *q, struct bytes attempt,
                  int64_t *until_ms);
/* How often each has been handed out before is in `counts`. */
must_check enum err order_hand_out(struct broker *b, struct pop_queue *q,
                                   const struct order_hand *hand, int32_t *counts);
/* The group's next offset; ERR_NOT_FOUND: it was not handed out so. */
must_check enum err order_ack(struct broker *b, struct pop_queue *q, int64_t offset, int64_t pop_ms,
                              int64_t *next);
must_check enum err order_retime(struct broker *b, struct pop_queue *q, int64_t offset,
                                 int64_t pop_ms, int64_t visible_ms);
bool order_is_over(struct broker *b, const struct pop_queue *q);
struct json_out;
void order_write(const struct pop_order *order, struct json_out *w);
/* The later of the two, or both together; takes over `other`. */
void order_merge(struct pop_queue *q, struct pop_order *other);
must_check enum err order_read(const struct json *node, struct pop_order **out);

#endif
