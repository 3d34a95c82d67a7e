/* ledger.h - the once ledger as verbs of the broker: ledger/ledger.h tells the model.
 *
 * What is decided stands in the log as records of the topic LEDGER_TOPIC, whose one queue can be
 * read like any other and cannot be sent to. All requests of a loop's turn share one visit to the
 * room `ledger` (1, never together with the core) and one append, over which the room is held.
 *
 * A ledger has a *birth*, a number that stands in each of its records. If a broker has lost what
 * its clients were told - its folder was emptied, its snapshot is gone and the log's beginning too
 * - it begins with another one, and whoever still knows the old one is told (ERR_STALE).
 *
 * Unused it costs nothing: topic, birth and memory come with the first request.
 */
#ifndef BROKER_LEDGER_H
#define BROKER_LEDGER_H

#include "base/arena.h"
#include "broker/broker.h"
#include "ledger/ledger.h"

/* A loop's own place to prepare entries: buffers that are used again and again. */
struct ledger_desk;
must_check enum err ledger_desk_open(struct ledger_desk **out);
void ledger_desk_close(struct ledger_desk *desk);

/* One request. */
struct ledger_ask {
    struct bytes group;
    uint64_t birth; /* that it expects; 0: any */
    struct op *ops;
    size_t n;
    struct arena *arena; /* for results that are brought back */
    size_t brought;      /* bytes of them: 0 */

    enum err err; /* of all of it; OK: each operation has its outcome. ERR_STALE: another birth;
                     ERR_DENIED: there is no ledger here; else what the log said */
    struct fault why;
};

struct ledger_told {
    uint64_t end;   /* what must be confirmed before any of these may be answered */
    uint64_t birth; /* of this ledger */
    int64_t now_ms; /* its time */
    int64_t grace_ms;
};

/* Runs all operations of one turn, in order. What the log refuses has not happened. With no
 * requests at all it only sees to it that there is a birth. */
void broker_ledger(struct broker *broker, struct ledger_desk *desk, struct ledger_ask *asks,
                   size_t n, struct ledger_told *out);

/* An instance is there, and calls itself so, from now until broker_absent. `hold` wakes when the
 * time is up, as one of broker_hold does (broker_unhold); nobody waits with a time of 0. ERR_BUSY:
 * too many are there, or wait; ERR_DENIED. */
must_check enum err broker_present(struct broker *broker, uint32_t instance, struct bytes name,
                                   struct hold *hold, uint64_t wait_ms, struct fault *why);
/* `hold` has woken, and shall once more; the instance stays there. ERR_BUSY. */
must_check enum err broker_present_more(struct broker *broker, struct hold *hold, uint64_t wait_ms);
void broker_absent(struct broker *broker, uint32_t instance);
int64_t broker_ledger_ms(
    struct broker *broker); /* the ledger's time, after a first broker_ledger */

/* Forgets what is over, in a bounded step. The keeper. */
void broker_ledger_turn(struct broker *broker);
/* Makes a snapshot when one is due, in bounded steps; before each turn of cleaning. The keeper. */
must_check enum err broker_ledger_save_turn(struct broker *broker, struct fault *why);

#endif
