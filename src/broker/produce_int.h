/* produce_int.h - the desk, shared by desk.c (preparing), produce.c (placing and storing) and
 * retry.c (messages that come back); copy.c, shared by all who move records. */
#ifndef BROKER_PRODUCE_INT_H
#define BROKER_PRODUCE_INT_H

#include "broker/broker_int.h"

/* What the messages of a request are recognised by: produce.dedup. */
enum { DEDUP_NONE, DEDUP_UNIQ_KEY, DEDUP_PROPERTY };

/* What one message is recognised by, and what became of that; dedup.c. */
struct dedup_note {
    struct bytes key;   /* its own UNIQ_KEY, or what the topic chose; empty: it has none */
    uint32_t place;     /* so many before it in its batch have the same UNIQ_KEY */
    uint32_t followers; /* of the first one with a key: so many more of the batch have it */
    uint64_t number;    /* in the table; 0: it is not */
    uint32_t request;   /* that it belongs to */
    uint32_t twin;      /* of a message that came earlier in this turn */
    int32_t queue_id;   /* of the first one; where it is: desk.firsts */
    enum { NOTE_NEW, NOTE_KNOWN, NOTE_TWIN } fate;
};

struct desk {
    struct broker *broker;
    struct id_maker ids;
    int64_t now_ms;
    struct draft *drafts;  /* of this turn, n of them */
    struct stored *stored; /* their answers */
    size_t n, cap;
    size_t n_halves; /* among them */
    uint8_t *text;   /* their properties */
    size_t text_cap;
    struct wr w;                   /* the free rest of it */
    uint8_t topic[NAME_RETRY_MAX]; /* the last name that was looked at and found good … */
    size_t topic_len;              /* … 0: none was */
    struct key_topic key_topic;    /* of the last marks */
    /* Only while some topic has dedup. */
    bool noting;
    const struct topic *chosen; /* the topic that was asked last, while the core is held … */
    struct bytes chosen_by;     /* … and what it said */
    uint8_t chosen_dedup;
    bool by_property;         /* it was said in this turn */
    bool guarded;             /* one of this turn's requests is for such a topic */
    bool all_new;             /* … and nothing in this turn was stored before */
    struct dedup_note *notes; /* one for each draft, before any is taken out; … */
    uint64_t *hashes;         /* … what the table knows it by; … */
    struct stored *firsts;    /* … and of what was stored before, the answer */
    uint32_t *places;         /* a hash set of the keys of one batch */
    size_t notes_cap, n_noted;
    uint32_t request;    /* whose messages are being noted … */
    struct bytes hashed; /* … their topic … */
    uint64_t topic_hash; /* … and its hash, where those of the keys begin */
};

/* Fills the desk with the messages of all requests that are not refused yet; first and count of a
 * request say which. Refuses what the message itself makes impossible. No key held. */
void desk_prepare(struct desk *desk, struct produce *requests, size_t n);

/* Makes room for so many messages with that much text, and forgets what was there. */
must_check bool desk_clear(struct desk *desk, size_t messages, size_t text);
/* Where the properties of a single message go on: there is room for r->gap bytes. */
struct wr desk_props(struct desk *desk, const struct produce *r);

/* Properties that mean something to a broker. */
enum prop_kind {
    KIND_OTHER,
    KIND_OURS, /* set by the broker alone: dropped */
    KIND_UNIQ_KEY,
    KIND_TAGS,
    KIND_KEYS,
    KIND_WAIT,
    KIND_DELAY,
    KIND_REAL, /* where a message goes that is elsewhere for the time being */
    KIND_HALF,
    KIND_GROUP, /* of producers */
    KIND_IMMUNITY,
    KIND_TXN, /* what the broker notes on half messages */
    KIND_TIMER,
    KIND_TIMED, /* its timer is already over */
    KIND_TIMER_DELETE,
    KIND_INNER,
    KINDS,
};
/* Appends the properties that can be read, without those whose kind has its bit in `drop`. */
void props_keep(struct wr *w, struct bytes props, uint32_t drop);

/* ---- delay.c ---- */

/* Sends a draft that has its topic and queue through a delay level (above the ladder: its last)
 * instead. `props` are its properties and are finished here, but for storing them in it. NULL
 * queue: no memory. */
void delay_divert(struct broker *b, struct draft *draft, int32_t level, struct wr *props);

/* ---- txn.c, room: core ---- */

#define HALF_TOPIC BYTES("RMQ_SYS_TRANS_HALF_TOPIC")

/* Makes a draft that has its topic and queue a half message instead; r->half is its entry, and the
 * caller must call txn_arrived. As delay_divert otherwise. ERR_BUSY, ERR_NO_MEMORY. */
must_check enum err txn_divert(struct broker *b, struct produce *r, struct draft *draft,
                               struct wr *props);
/* It is in the log; NULL: it is not. */
void txn_arrived(struct broker *b, struct produce *r, const struct stored *stored);
/* ---- timer.c ---- */

/* The same for a draft that shall come at a time of its own. */
void timers_divert(struct broker *b, struct draft *draft, int64_t due_ms, struct wr *props);

/* ---- copy.c ---- */

/* A draft like the record, for another place. NULL queue: no memory, or a name that cannot be. */
void copy_draft(struct broker *b, const struct record *record, struct bytes topic, int32_t queue_id,
                struct draft *out);
/* Whether the log has this very copy of the record already. Reads the index and the log: only for
 * what may have been done before the last stop. */
must_check bool copy_known(struct broker *b, const struct record *record,
                           const struct draft *draft);

/* ---- dedup_desk.c: no key held ---- */

#define PROP_DEDUP_PLACE BYTES("DEDUP_PLACE")
#define DEDUP_PLACE_TEXT (sizeof "DEDUP_PLACE" + 12)
/* Makes room for notes about so many messages, if somebody may want them. */
must_check bool notes_clear(struct desk *desk, size_t messages);
void notes_free(struct desk *desk);
/* The next request begins; it has so many messages. */
void notes_request(struct desk *desk, const struct produce *r, size_t index);
/* Notes the UNIQ_KEY that the next draft came with; its place. */
uint32_t note_key(struct desk *desk, const struct produce *r, struct bytes key);
void notes_move(struct desk *desk, size_t to, size_t from, size_t n);

/* ---- dedup.c ---- */

/* Room: core. Whether and by what the messages of a request are recognised. */
void dedup_choose(struct desk *desk, struct produce *r, const struct topic *topic);
/* Enters the room of dedup and takes those drafts out of the desk that were stored before. */
void dedup_begin(struct desk *desk, struct produce *requests, size_t n, uint64_t *end);
/* The drafts that were left have been stored, or not: `err`. Everybody gets their answer into
 * desk->stored, and the room is left. */
void dedup_end(struct desk *desk, struct produce *requests, size_t n, enum err err);

/* ---- retry.c ---- */

/* Room: core. The group's settings; made if that is allowed. ERR_UNKNOWN_GROUP with Apache's words
 * whatever is wrong with the name. */
must_check enum err retry_group(struct broker *b, struct bytes name, struct group **out,
                                struct fault *why);
/* Room: core. Makes a message that was sent to a group's retry topic a dead letter of the group. */
must_check enum err dead_divert(struct broker *b, struct bytes group, struct draft *draft,
                                struct wr *props, struct after *after, struct fault *why);
/* Finishes the properties; ERR_TOO_BIG. */
must_check enum err draft_props(struct draft *draft, const struct wr *props, struct fault *why);

#endif
