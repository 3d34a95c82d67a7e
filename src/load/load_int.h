/* load_int.h - the inside of the load generator.
 *
 * A *lane* is a row of messages with a schedule and a tally: one connection's, one thread's.
 * *Parts* are what makes the load: senders, batch senders, readers, claims; each owns its lanes.
 * run.c leads them through the phases and collects the tallies once an interval.
 *
 *     sender ─┐ lane ─ tally ─┐
 *     sender ─┤ lane ─ tally ─┼─ collected into a span, once an interval ─► point, result
 *     reader ─┘ lane ─ tally ─┘
 */
#ifndef LOAD_LOAD_INT_H
#define LOAD_LOAD_INT_H

#include "base/clock.h"
#include "base/room.h"
#include "load/load.h"

#include <pthread.h>
#include <stdatomic.h>

#define NS_OF_S  1e9
#define NS_OF_MS UINT64_C(1000000)
#define HOLD_NS  (10 * NS_OF_MS) /* after a failure a lane waits so long: no hot loop */

struct run;

/* ---- lanes: lane.c ---- */

/* What came in since it was collected last. */
struct span {
    struct histogram times[LOAD_TIMES];
    uint64_t messages, failures, sent, out_of_row;
    uint64_t warm;    /* messages that were due while warming: for progress alone */
    uint64_t last_ns; /* when the last one was done */
};
void span_add(struct span *into, const struct span *from);
void span_clear(struct span *span);

/* Who records holds the room; who collects takes the other side. */
struct tally {
    struct room room; /* rank of the core: the library is called from inside */
    struct span *sides;
    unsigned side;
};

struct lane {
    struct tally tally; /* its room is the lane's */
    struct run *run;
    unsigned index, of; /* which one of how many share the rate */
    uint64_t next;      /* how many rounds it has claimed */
    uint64_t hold_ns;
    bool over;
};

must_check enum err lane_init(struct lane *lane, struct run *run, unsigned index, unsigned of);
void lane_clear(struct lane *lane);

enum claim {
    CLAIM_GO,   /* `*due_ns` is when it was due */
    CLAIM_WAIT, /* `*due_ns` is when to ask again */
    CLAIM_OVER,
};
/* Room: the lane's. May the next round, of `options.batch` messages, begin? */
enum claim lane_claim(struct lane *lane, uint64_t now_ns, uint64_t *due_ns);
/* Not in its room: waits for it. False: it is over. */
bool lane_wait(struct lane *lane, uint64_t *due_ns);

/* Room: the lane's. Something that was due then is done now. */
void lane_done(struct lane *lane, enum load_times times, uint64_t due_ns, uint64_t now_ns);
void lane_messages(struct lane *lane, uint64_t due_ns, uint64_t now_ns, uint64_t n);
void lane_sent(struct lane *lane, uint64_t due_ns, uint64_t n); /* LOAD_E2E: acknowledged */
void lane_late(struct lane *lane, uint64_t due_ns, uint64_t now_ns);
void lane_failed(struct lane *lane, uint64_t due_ns, uint64_t now_ns, const char *why);
void lane_out_of_row(struct lane *lane);

/* Takes what came in into `into`. */
void lane_collect(struct lane *lane, struct span *into);

/* ---- parts ---- */

struct part {
    void (*begin)(struct part *part); /* run.begin_ns is set */
    /* Nothing is under way, and nothing more begins. */
    bool (*idle)(struct part *part);
    void (*close)(struct part *part);                  /* frees it */
    struct lane *(*lane)(struct part *part, size_t i); /* NULL: there are no more */
};

must_check enum err senders_open(struct run *run, struct part **out, struct fault *why);
must_check enum err batches_open(struct run *run, struct part **out, struct fault *why);
must_check enum err readers_open(struct run *run, struct part **out, struct fault *why);
must_check enum err claims_open(struct run *run, struct part **out, struct fault *why);

/* ---- threads, one for each lane: hands.c ---- */

struct hands;
struct hand {
    struct lane lane;
    struct hands *hands;
    unsigned number;
    pthread_t thread;
    bool started;
    atomic_bool ended;
};
struct hands {
    struct part part;
    struct run *run;
    struct hand *all;
    unsigned n;
    void (*work)(struct hand *hand);   /* until lane_wait says that it is over */
    void (*gone)(struct hands *hands); /* all have ended: free what is the owner's, and `hands` */
};
must_check enum err hands_init(struct hands *hands, struct run *run, unsigned n, unsigned of);
void hands_clear(struct hands *hands); /* joins */

/* ---- topics and clients: topics.c ---- */

/* Makes them, and finds their queues, which go to `queues`. */
must_check enum err topics_prepare(struct run *run, struct fault *why);
/* Where the queues begin and end now, and how many messages are between. */
must_check enum err places_measure(struct run *run, struct fault *why);
/* What libraries say, as ours. */
enum err fault_omq(struct fault *why, const struct omq_error *error);
must_check enum err client_make(const struct load_options *options, struct omq_client **out,
                                struct fault *why);
must_check enum err producer_make(struct run *run, struct omq_client *client,
                                  struct omq_producer **out, struct fault *why);

struct place {
    struct omq_queue queue; /* in an allocation of the run's */
    int64_t begin, end;     /* when the run began */
};

/* Bodies. */
void body_fill(uint8_t *body, size_t size);
struct stamp {
    uint64_t run, due_ns, number;
};
void stamp_put(uint8_t *body, const struct stamp *stamp);
struct stamp stamp_get(const uint8_t *body);

/* ---- the run: run.c ---- */

#define RUN_PARTS 2

struct run {
    struct load_options options; /* with the defaults filled in */
    struct clock *clock;
    uint64_t id; /* so that messages of others are told apart */
    struct part *parts[RUN_PARTS];
    size_t n_parts;

    char (*topics)[LOAD_NAME_SIZE];
    struct omq_client *client; /* for what is asked beside the load */
    struct omq_queue **queues; /* of each topic, as the library gave them */
    struct place *places;      /* all of them in one row */
    size_t n_places;
    uint64_t backlog; /* LOAD_CONSUME: how many there are to be taken */

    uint64_t begin_ns, from_ns, until_ns; /* load begins; counts from here; UINT64_MAX: no end */
    atomic_bool ending;                   /* nothing more begins */
    atomic_bool settled;                  /* all sends are answered: `acked` is final */
    atomic_bool given_up;                 /* what has not come by now does not come */
    _Atomic uint64_t issued;              /* of `count` */
    _Atomic uint64_t numbers;             /* of messages that were sent, warming included */
    _Atomic uint64_t acked, taken;        /* measured: LOAD_E2E, LOAD_CONSUME */
    _Atomic uint64_t stored;

    struct room room; /* leaf: `failure` */
    char failure[512];
};

uint64_t run_ns(const struct run *run);
const char *run_topic(const struct run *run, uint64_t number);
void sleep_until(uint64_t ns); /* of the monotonic clock */

#endif
