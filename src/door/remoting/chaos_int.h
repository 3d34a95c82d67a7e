/* chaos_int.h - faults on purpose: what a consumer or a producer must bear, made to happen.
 *
 * For tests only, and only in a daemon that was started for it (--chaos): any other has no struct
 * chaos, and its handlers one branch more. A *plan* (ONCE_CHAOS, docs/requests.md) names a topic, a
 * group or both and how much of what shall go wrong with their requests, for how long:
 *
 *     twice            a second copy of a message is stored, at once or later, as by a producer
 *                      that has sent it again: same properties, so the same UNIQ_KEY, another
 *                      offset and mostly another queue. Of a plan without a topic: when the group
 *                      is given the message, and in its retry topic, as by a member whose handler
 *                      hangs
 *     dropped answers  a send is stored and not answered; its producer sends again
 *     dropped acks     a commit of an offset or an acknowledgement of a popped message is answered
 *                      and forgotten; a message given back is stored, and that not answered
 *     delay            a request is looked at later. Requests of one connection stay in their order
 *     kills            connections that speak of the topic or group are closed
 *     rebalances       a member that reads nothing joins the group for a moment, so queues move
 *
 * Whether a fault hits is no throw of dice but a function of the plan's seed, the fault's kind and
 * what it would hit: a message is known by its KEYS and body (without KEYS: its unique key), an
 * acknowledgement by group, topic, queue and offset. So the same messages meet the same faults
 * again, whatever the timing. Each is hit once by each kind of fault: whoever tries again gets
 * through. How many connections are killed and queues moved goes by time alone.
 *
 * Nothing stays behind. A plan ends by a request or when its life is over; what was still to come
 * comes then, the member that reads nothing leaves, and commits that were forgotten are made.
 *
 *     chaos_plan.c    what hits what; pure
 *     chaos.c         the request; requests of others as they come in
 *     chaos_line.c    what comes later: requests and copies
 *     chaos_force.c   what goes by time: kills, rebalances, the plan's end
 *
 * Threads: the plan and what it remembers stand in a room of their own, a leaf: nobody is called
 * while it is held. A seat's line is its loop's own.
 */
#ifndef DOOR_REMOTING_CHAOS_INT_H
#define DOOR_REMOTING_CHAOS_INT_H

#include "base/room.h"
#include "door/remoting/door_int.h"

#define CHAOS_NAME_MAX 255
#define CHAOS_WHOLE    1000000 /* a share of all */

/* ---- chaos_plan.c ---- */

struct chaos_plan {
    char topic[CHAOS_NAME_MAX + 1], group[CHAOS_NAME_MAX + 1]; /* "": any; not both */
    uint64_t seed;
    uint32_t twice, later, drop_acks, drop_answers; /* of CHAOS_WHOLE */
    uint32_t later_ms;                              /* a later copy comes up to so much later */
    uint32_t delay_min_ms, delay_max_ms;
    uint32_t kills, rebalances; /* a minute */
    uint32_t life_ms;
};

enum chaos_kind {
    CHAOS_TWICE,
    CHAOS_LATER,
    CHAOS_ANSWERS,
    CHAOS_ACKS,
    CHAOS_DELAYS,
    CHAOS_KILLS,
    CHAOS_REBALANCES,
    CHAOS_KINDS
};

/* From the fields of a request. ERR_INVALID: a number or a name that makes no sense. */
must_check enum err chaos_plan_read(const struct chaos_fields *f, struct chaos_plan *out,
                                    struct fault *why);
/* A number below `bound` (above 0) that depends on nothing else. */
uint64_t chaos_number(const struct chaos_plan *plan, enum chaos_kind kind, uint64_t what,
                      uint64_t bound);
/* Whether this fault is for this message or acknowledgement. */
bool chaos_hits(const struct chaos_plan *plan, enum chaos_kind kind, uint64_t what);
uint64_t chaos_message(struct bytes props, struct bytes body);
uint64_t chaos_place(struct bytes group, struct bytes topic, int32_t queue_id, int64_t offset);
/* How many times something that is due so often a minute was due in so many ms. The first comes
 * after half of the time between two. */
uint64_t chaos_due(uint32_t a_minute, uint64_t ms);
bool chaos_sends_to(const struct chaos_plan *plan, struct bytes topic);
bool chaos_reads(const struct chaos_plan *plan, struct bytes group, struct bytes topic);

/* Numbers that were there before; it does not grow. Starts as zeros. */
#define CHAOS_SEEN_MAX (1u << 18)
struct chaos_seen {
    uint64_t *at; /* 0: free */
    size_t n;
};
/* True: it is new, and in it now. False as well when it is full, or there is no memory. */
bool chaos_seen_add(struct chaos_seen *seen, uint64_t number);
void chaos_seen_clear(struct chaos_seen *seen);

/* ---- the engine ---- */

#define CHAOS_HELD_MAX     4096        /* queues with a commit that was forgotten */
#define CHAOS_SESSIONS_MAX 4096        /* connections that may be killed */
#define CHAOS_LINE_MAX     (64u << 20) /* bytes of what comes later */

struct chaos {
    struct door *door;
    struct timer *timer;     /* of the first seat */
    struct session *phantom; /* the member that reads nothing … */
    bool joined;             /* … is there; the first loop's own */
    uint64_t leave_ns;
    uint64_t forced[2]; /* kills, rebalances of this plan so far; the first loop's own */
    uint64_t forced_plan;

    atomic_bool on; /* there is a plan; looked at before the room is entered */
    _Atomic uint64_t counts[CHAOS_KINDS];
    _Atomic uint64_t left_out; /* faults that were not made, for want of room or a refusal */
    _Atomic uint64_t waiting;  /* requests and copies that come later */
    _Atomic size_t line_bytes;

    struct room room; /* a leaf */
    struct chaos_plan plan;
    uint64_t number; /* of the plan: the first is 1 */
    uint64_t began_ns;
    struct chaos_seen seen;
    struct list held;
    size_t n_held;
    struct session *sessions[CHAOS_SESSIONS_MAX]; /* each has its place in `chaos_at`; counted */
    size_t n_sessions;
};

/* The plan there is; false: none. `*number` (may be NULL) tells plans apart. */
bool chaos_now(struct chaos *chaos, struct chaos_plan *plan, uint64_t *number);
/* Whether the fault is made, here and now: it hits, for the first time, and is counted. */
bool chaos_strikes(struct chaos *chaos, const struct chaos_plan *plan, enum chaos_kind kind,
                   uint64_t what);
void chaos_counted(struct chaos *chaos, enum chaos_kind kind);
/* Ends plan `number`, or, 0, whichever there is. False: there is no such. */
bool chaos_end(struct chaos *chaos, uint64_t number);

/* chaos_line.c; loop: the session's. */

/* Looks at the request later. False: there is no room, look at it now. */
bool chaos_wait(struct chaos *chaos, struct session *session, const struct frame *frame,
                uint64_t delay_ms);
/* Stores a copy later (0: as soon as this turn is over). */
bool chaos_copy(struct chaos *chaos, struct seat *seat, const struct produce *p, uint64_t delay_ms);

/* chaos_force.c */
must_check enum err chaos_force_open(struct chaos *chaos);
void chaos_force_close(struct chaos *chaos);

#endif
