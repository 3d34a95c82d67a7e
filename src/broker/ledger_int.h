/* ledger_int.h - the room of the once ledger. */
#ifndef BROKER_LEDGER_INT_H
#define BROKER_LEDGER_INT_H

#include "broker/broker_int.h"
#include "broker/ledger.h"

#define LEDGER_BIRTH BYTES("ONCE_BIRTH") /* property of each record */

struct ledger_room {
    bool on;
    uint64_t seed;
    atomic_bool topic_known;
    _Atomic int64_t ahead_ms; /* of the ledger's time over the clock that never jumps */

    struct room room; /* and from here on what it guards */
    struct ledger *ledger;
    struct queue *queue; /* NULL: nothing was ever written */
    uint64_t birth;      /* 0: none yet */
    uint64_t end;        /* where the last record ends in the log */
};

int64_t ledger_now_ms(struct broker *b);

#endif
