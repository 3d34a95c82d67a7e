/* room.h - state with one key.
 *
 * A room is a mutex that knows its name, its rank and who is inside. Rooms are entered in rising
 * rank only, and nobody waits for disk or peer inside one (the log's tail alone writes: that is its
 * work). Functions that need the key say so in their first line with room_held().
 *
 *     rank 0  a loop that takes guests
 *     rank 1  core, routes, dedup, ledger      rank 2  tail      rank 3  derived      rank 4  files
 *     leaf    a loop's mailbox: entered from anywhere, never left for another room
 */
#ifndef BASE_ROOM_H
#define BASE_ROOM_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum room_rank {
    ROOM_LOOP = 0,
    ROOM_CORE = 1,
    ROOM_ROUTES = 1,
    ROOM_DEDUP = 1,
    ROOM_LEDGER = 1,
    ROOM_TAIL = 2,
    ROOM_DERIVED = 3,
    ROOM_FILES = 4,
    ROOM_LEAF = 5
};

struct room {
    pthread_mutex_t key;
    pthread_cond_t news; /* for the few threads whose work is to wait for this room */
    const char *name;
    int rank;
    bool taken;
    const void *owner; /* the thread's own room_inside */
};

void room_init(struct room *r, const char *name, enum room_rank rank);
void room_clear(struct room *r);
void room_enter(struct room *r);
bool room_try(struct room *r); /* false at once when somebody is inside */
/* The same for a room that is in much use but never for long: they try for as long as it would cost
 * to sleep and be woken, before the one sleeps and the other is false. */
void room_enter_soon(struct room *r);
bool room_try_soon(struct room *r);
void room_leave(struct room *r);

/* The ranks this thread is inside of, one bit each. Each thread has its own, so its address names
 * the thread. */
extern _Thread_local unsigned room_inside;

static inline void room_held(const struct room *r) /* invariant: the calling thread is inside */
{
    invariant(r->taken);
    invariant(r->owner == &room_inside);
}

/* Waits inside the room for room_tell(), at most `timeout_ms` (<0: for ever). */
void room_wait(struct room *r, int timeout_ms);
void room_wait_ns(struct room *r, uint64_t timeout_ns);
void room_tell(struct room *r);
void room_tell_one(struct room *r); /* whoever waits is as good as any other */

#endif
