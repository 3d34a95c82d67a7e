/* door.h - the remoting door: frames in, verbs to the name server and the broker, frames out.
 *
 * One door serves a whole house. Each listener stands at one of its *sides* (names or broker),
 * which decides which request codes are known there. A connection becomes a *session*; each loop
 * has a *seat*, the working memory its sessions share because only one of them runs at a time.
 *
 * All send requests found in one read are stored as one batch. Pulls that find nothing wait as a
 * hold of the broker's and are answered on their home loop when it wakes.
 *
 * Threads: sessions and seats belong to their loop. What services must tell a client (door_out) may
 * be called from any thread and is posted.
 */
#ifndef DOOR_REMOTING_DOOR_H
#define DOOR_REMOTING_DOOR_H

#include "broker/broker.h"
#include "io/io.h"
#include "namesrv/namesrv.h"

struct door;

enum door_side { SIDE_NAMES, SIDE_BROKER, DOOR_SIDES };

/* Somebody who must not be told of a change before it is safe. */
struct saved_wait {
    struct link link;
    /* Called once, on any thread. */
    void (*done)(struct saved_wait *wait, enum err err, const struct fault *why);
};

struct door_options {
    struct names *names;   /* NULL: no name server here */
    struct broker *broker; /* NULL: no broker here */
    struct store *store;   /* the broker's, for waiting on positions */
    struct loop *const *loops;
    size_t n_loops;
    struct clock *clock; /* the system's: how long somebody has been kept waiting */
    struct log *log;
    /* Puts the clock of messages forward and tells what it shows; NULL: it cannot be. ERR_RANGE: so
     * far it does not go. Any thread. */
    enum err (*advance_clock)(void *user, int64_t ms, int64_t *now_ms);
    /* All queues of a topic that may be read, as name servers elsewhere know it; ERR_NOT_FOUND: not
     * yet. Any thread. */
    enum err (*queues_elsewhere)(void *user, struct bytes topic, struct arena *arena,
                                 struct assign_queue **queues, size_t *n);
    void *user;
    bool chaos;       /* faults may be asked for: chaos_int.h */
    struct addr host; /* the broker's advertised address: part of message ids */
    const char *broker_name;
    bool own_address; /* routes to it have the address by which the client has reached us instead */
    const char *region; /* MSG_REGION of send answers */
    bool trace_on;
    /* Flow control: more sends than this wait for the disk, or one so long, and further ones are
     * refused.
     */
    atomic_bool fast_failure; /* what is atomic may change: door_tune */
    _Atomic size_t max_sends_waiting;
    _Atomic uint64_t max_send_wait_ms;
    atomic_bool store_replies;
    _Atomic uint32_t max_message_size;
    const char *version; /* of this software */
    /* All settings as a file of properties; NULL: none are told. Any thread. */
    void (*print_config)(void *user, struct buf *out, struct data_version *version);
    /* Changes settings, given as a file of properties: all of them or none. NULL: none can be.
     * ERR_INVALID (no such key, a value that makes no sense), ERR_DENIED (one that cannot change
     * now), ERR_NO_MEMORY. Any thread. */
    enum err (*change_config)(void *user, struct bytes text, struct fault *why);
    /* Calls `done` when everything that operators have changed so far is on the disk, or could not
     * be brought there. NULL: nobody waits for that. Any thread. */
    void (*await_saved)(void *user, struct saved_wait *wait);
};

/* Takes over what may change while the door is open. Any thread. */
void door_tune(struct door *door, const struct door_options *options);

must_check enum err door_open(const struct door_options *options, struct door **out);
/* The loops run no more and are about to be closed: nothing is posted from one to another now. */
void door_stop(struct door *door);
void door_close(struct door *door); /* after the loops have been closed */

extern const struct conn_ops door_ops;
void *door_context(struct door *door, enum door_side side); /* for listener_start */

/* What the broker must tell a client: broker_out.group_changed. */
void door_group_changed(struct counted *session, struct bytes group);
/* broker_out.offsets_reset. */
void door_offsets_reset(struct counted *session, const struct offsets_reset *reset);
/* broker_out.txn_check. */
bool door_txn_check(struct counted *session, const struct txn_check *check);
/* broker_out.session_expired: closes the connection of a client that has gone silent. */
void door_session_expired(struct counted *session);

#endif
