/* txn_int.h - the open transactions, shared by txn.c (the table), txn_end.c (ends) and txn_check.c
 * (questions). The model is told in txn.c. */
#ifndef BROKER_TXN_INT_H
#define BROKER_TXN_INT_H

#include "broker/produce_int.h"

#define OP_TOPIC       BYTES("RMQ_SYS_TRANS_OP_HALF_TOPIC")
#define GIVEN_UP_TOPIC BYTES("TRANS_CHECK_MAX_TIME_TOPIC")
#define TXN_GROUP      BYTES("CID_RMQ_SYS_TRANS") /* whose offsets the two queues have */
#define TXN_BATCH      64                         /* transactions that are moved on at once */
#define OP_TEXT        (TXN_BATCH * 21)           /* their offsets as text */
#define TXN_COPY_TEXT  256 /* what a copy's properties have more than the record's */

#define PROP_PGROUP      BYTES("PGROUP")
#define PROP_TXN_ID      BYTES("__transactionId__")
#define PROP_CHECK_TIMES BYTES("TRANSACTION_CHECK_TIMES")
#define PROP_IMMUNITY    BYTES("CHECK_IMMUNITY_TIME_IN_SECONDS")

/* An open transaction. */
struct half {
    struct link by_offset;
    struct half *next;           /* of the same bucket */
    int64_t root;                /* position of its first copy: what it is known by */
    int64_t position, offset;    /* of its present one */
    int64_t first_ms, copied_ms; /* when it came, when the present copy was made */
    uint32_t immunity_s;         /* as its producer wants it; 0: as everybody's */
    int32_t checks;              /* how often it was asked for */
    bool taken;                  /* somebody is about to change it; nobody else may */
    bool maybe_ended;            /* it was found at the start: look before it is ended */
};

/* Where ends and questions stood at some moment: what concerns halves from `half` on is in the
 * other queue from `op` on. */
struct tide {
    int64_t half, op;
};
#define TIDES 64

struct txn {
    struct half **buckets;
    size_t n, n_buckets;
    struct list by_offset; /* and the cursor of the round */
    int64_t next, next_op; /* behind the last half and the last op record there are */
    size_t expected;       /* halves on their way into the log … */
    int64_t expected_from; /* … at this offset or behind it */
    uint64_t end;          /* of the log, behind the last end that was stored */

    struct tide tides[TIDES];
    size_t n_tides;
    struct tide mark; /* what may be saved when the log is flushed up to … */
    uint64_t mark_end;

    /* Of the turn. */
    struct link cursor; /* those before it have had their turn in this round */
    bool round;
    int64_t round_end; /* halves from here on came after the round began */
    uint64_t next_round_ns, retry_ns;
    enum err trouble;
    struct desk *desk; /* made when first needed */

    uint64_t committed, rolled_back, checks, given_up;
};

/* ---- txn.c, room: core ---- */

struct half *half_find(struct txn *t, int64_t root);
/* Puts it where its offset belongs. */
void half_place(struct txn *t, struct half *half, int64_t position, int64_t offset, int64_t now_ms);
void half_end(struct txn *t, struct half *half); /* and frees it */
/* Room for one more. It is not in the table yet. */
must_check enum err half_make(struct txn *t, struct half **out);
void half_add(struct txn *t, struct half *half);
int64_t half_of(const struct link *link); /* its offset */
/* An op record was stored. */
void txn_stored(struct txn *t, const struct stored *op, uint64_t end);
/* Makes what is on the disk what the table of offsets says. */
void txn_settle(struct broker *b);

/* ---- txn.c, no key needed ---- */

int64_t record_root(const struct record *record);
bool record_is_half(const struct record *record);
/* Fills in what the record says of a transaction, but for its place in the table. */
void half_read(const struct record *record, struct half *out);
/* The age that keeps it from being asked for. */
int64_t half_immunity_ms(const struct broker *b, const struct half *half);
/* The next offset of an op record's body; false: that was all. */
bool ops_next(struct bytes *rest, int64_t *out);
/* The op record of some halves: `offsets` as text, which stays the caller's. */
void op_draft(struct broker *b, struct bytes offsets, struct draft *out);
void ops_add(struct wr *w, int64_t offset);
/* The message as its consumers get it. `props`: room for its properties. ERR_DAMAGED, ERR_TOO_BIG,
 * ERR_NO_MEMORY. */
must_check enum err commit_draft(struct broker *b, const struct record *half, struct wr *props,
                                 struct draft *out, struct fault *why);
/* Another copy of the half, or its copy in the topic of those given up. */
must_check enum err half_draft(struct broker *b, const struct record *half, struct bytes topic,
                               int32_t checks, struct wr *props, struct draft *out,
                               struct fault *why);
/* Whether the log has the message of this half already. Reads the index and the log. */
must_check bool half_committed(struct broker *b, const struct record *half);

#endif
