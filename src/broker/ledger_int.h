/* ledger_int.h - the room of the once ledger. */
#ifndef BROKER_LEDGER_INT_H
#define BROKER_LEDGER_INT_H

#include "broker/broker_int.h"
#include "broker/ledger.h"
#include "ledger/snapshot.h"

#define LEDGER_BIRTH BYTES("ONCE_BIRTH") /* property of each record */

struct ledger_room {
    bool on;
    uint64_t seed;
    atomic_bool topic_known;
    _Atomic int64_t ahead_ms; /* of the ledger's time over the clock that never jumps */

    struct room room; /* and from here on what it guards */
    struct ledger *ledger;
    struct queue *queue;          /* NULL: nothing was ever written */
    uint64_t birth;               /* 0: none yet */
    uint64_t end;                 /* where the last record ends in the log */
    int64_t next_offset;          /* in the queue, behind it */
    uint64_t tail;                /* bytes of records that the snapshot does not know … */
    uint64_t tail_first;          /* … none of which stands before this position */
    struct ledger_saving *saving; /* the keeper's own: ledger_save.c */
    uint64_t full_told;           /* the keeper's: refusals that the operator knows of */
};

/* A number that no other ledger has had, not this one's earlier life either. */
uint64_t ledger_birth_make(struct broker *b);

int64_t ledger_now_ms(struct broker *b);
enum err ledger_table_open(struct broker *b); /* an empty one, in place of what is there */

/* ---- ledger_save.c ---- */

/* Into the table. ERR_NOT_FOUND: there is none; ERR_DAMAGED, ERR_UNSUPPORTED: the table has part of
 * it. */
must_check enum err ledger_saved_read(struct broker *b, struct snapshot_head *head,
                                      struct fault *why);
/* All at once; the log is flushed. */
must_check enum err ledger_save_now(struct broker *b, struct fault *why);
must_check enum err ledger_saving_make(struct broker *b);
void ledger_saving_free(struct broker *b);

#endif
