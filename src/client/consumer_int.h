/* consumer_int.h - the push consumer: queues that are ours, what was read from them, and who works
 * on it.
 *
 *     rebalance   which queues are ours                     loop
 *     lane        one of them: where to begin, pulling      loop
 *     held        messages of a lane that are not done       loop
 *     batch       some of them on their way through a hand   hands, or omq_consumer_take
 *     offsets     how far each lane is done                  loop
 *
 * A lane pulls as long as it may: not too many messages, not too many bytes, not too far ahead of
 * the oldest that is not done. What it has read is held in order of offset, given away in batches,
 * and let go when done. The lane's offset, which is what the broker is told, is that of the first
 * message that is still held: whatever happens to this process, everything from there on comes
 * again.
 *
 * A lane that is taken away from us is dropped: nothing more is given away from it, the broker is
 * told its offset, and what hands still work on is finished and forgotten.
 */
#ifndef CLIENT_CONSUMER_INT_H
#define CLIENT_CONSUMER_INT_H

#include "client/client_int.h"
#include "client/parts_int.h"

struct lane;

/* ---- messages: delivery.c ---- */

/* The answer to a pull: records, shared by the messages made from them. */
struct parcel {
    struct counted counted;
    size_t len;
    uint8_t bytes[];
};
struct parcel *parcel_make(struct bytes records);

struct held {
    struct link link; /* in lane.held, by offset */
    struct parcel *parcel;
    uint8_t *unpacked; /* its body, when that was compressed; else it is in the parcel */
    size_t size;
    int64_t position;   /* in the broker's log */
    int32_t reconsumed; /* how often it was given back before */
    int32_t sys_flag;   /* how its body is compressed, if it is */
    bool taken;         /* in a batch */
    bool done;          /* by the time-out; whoever still works on it is too late */
    uint64_t taken_ns;
    struct omq_delivery delivery; /* its texts are behind it */
};
/* ERR_MALFORMED, ERR_NO_MEMORY. `queue` names where it was read from and outlives it. */
must_check enum err held_make(struct parcel *parcel, const struct record *record,
                              const struct omq_queue *queue, struct held **out);
/* Any thread. Expands the body if it is compressed; ERR_MALFORMED, ERR_TOO_BIG, ERR_NO_MEMORY. */
must_check enum err held_expand(struct held *held);
void held_free(struct held *held);

/* ---- subscriptions ---- */

struct sub {
    struct link link; /* in consumer.subs */
    struct omq_consumer *consumer;
    char *topic, *expression;
    bool sql;
    int64_t version;
    char *tag_text;     /* what the tags are slices of */
    struct bytes *tags; /* none: all messages */
    size_t n_tags;
    struct route_want want;
    bool wanting; /* its route has been asked for */
    bool gone;    /* unsubscribed; freed when the route comes */
};
must_check enum err sub_make(struct omq_consumer *consumer, const char *topic,
                             const char *expression, bool sql, struct sub **out);
void sub_free(struct sub *sub);
struct sub *sub_find(struct omq_consumer *consumer, const char *topic);
bool sub_wants(const struct sub *sub, const char *tag);

/* ---- the consumer: consumer.c ---- */

struct omq_consumer {
    struct omq_client *client;
    struct link link; /* in client.consumers */
    struct omq_consumer_options options;
    char *group, *retry_topic, *rooms;
    struct hands *hands; /* NULL: the application takes batches itself */

    /* Room: ready batches, for omq_consumer_take. */
    struct room room;
    struct list ready; /* struct omq_batch, by link */
    bool shut;

    /* The loop's own. */
    struct list subs, lanes;
    struct timer *rebalance_timer, *commit_timer, *lock_timer, *expiry_timer;
    unsigned rounds;      /* of rebalancing, one for each topic, that are under way */
    bool rebalance_again; /* something has changed meanwhile, or a round failed */
    bool paused, closing;
    size_t running; /* batches that are out, and messages on their way back */
    struct waiter *leaving;

    struct {
        _Atomic uint64_t received, handled, sent_back;
    } stats;
};

/* Loop. Something has ended: if the consumer is closing and nothing is left, whoever waits for that
 * is told. */
void consumer_calm(struct omq_consumer *consumer);

/* Whether queues must be locked at their brokers. */
static inline bool consumer_locks(const struct omq_consumer *consumer)
{
    return consumer->options.ordered && consumer->options.spread == OMQ_CLUSTER;
}

/* ---- lanes: lane.c ---- */

enum lane_state {
    LANE_STARTING, /* where to begin is being asked */
    LANE_PULLING,  /* a pull is under way */
    LANE_RESTING,  /* until its timer rings */
    LANE_DROPPED,
};

struct lane {
    struct link link; /* in consumer.lanes */
    struct omq_consumer *consumer;
    struct omq_queue queue; /* its texts are behind the lane */
    bool retry;             /* of the group's retry topic */
    enum lane_state state;
    struct call call; /* at most one: a question or a pull */
    bool calling;
    struct timer *timer; /* until the next pull */
    struct timer *again; /* until what failed is given away again */
    bool suspended;      /* … and nothing else in the meantime: the queue is consumed in order */
    struct list held;
    size_t n_held, bytes_held;
    size_t out;          /* batches of it that are out */
    int64_t next;        /* where the next pull begins */
    int64_t seen;        /* behind the last message that was held */
    int64_t told;        /* what the broker was told last; -1: nothing */
    bool started;        /* `next` is known */
    int64_t pull_broker; /* which replica to pull from */
    uint64_t pulled_ns;

    struct call before; /* at most once: the broker is told that what was read is done … */
    int64_t before_offset;
    bool telling; /* … and has not answered yet */

    bool locked; /* ordered: the broker gives this queue to nobody else */
    uint64_t locked_ns;
    bool wanted; /* while rebalancing */
};

must_check enum err lane_open(struct omq_consumer *consumer, const struct omq_queue *queue);
void lane_drop(struct lane *lane);
void lane_go(struct lane *lane);              /* something has changed: pull, or give away */
int64_t lane_offset(const struct lane *lane); /* what is done up to; -1: nothing is known */
void lane_rest(struct lane *lane, uint64_t ms);
void lane_let_go(struct lane *lane); /* frees it if it was dropped and nobody needs it */
struct bytes lane_broker(struct lane *lane, bool master, struct topic_route **route);

/* ---- batches: work.c ---- */

struct omq_batch {
    struct task task;
    struct post post;
    struct link link; /* in consumer.ready */
    struct omq_consumer *consumer;
    struct lane *lane;
    int result;
    size_t done, n;
    size_t readable;    /* the first of them: the others' bodies cannot be expanded */
    struct held **held; /* in the order of `messages` */
    const struct omq_delivery *messages[];
};
void work_give(struct lane *lane); /* loop: what may be given away now */
void work_expire(struct omq_consumer *consumer);
void batches_drop(struct omq_consumer *consumer); /* those nobody has taken, when it closes */

/* ---- offsets.c, rebalance.c ---- */

void offsets_start(struct lane *lane);            /* finds where to begin, then lane_go */
void offsets_tell(struct omq_consumer *consumer); /* loop: all lanes, without waiting */
void offset_tell(struct lane *lane);              /* one */
/* Tells the broker that everything before `offset` is done, and calls `done` with its answer.
 * False: nobody can be told. */
must_check bool offset_tell_first(struct lane *lane, int64_t offset,
                                  void (*done)(struct call *, const struct answer *));
void rebalance(struct omq_consumer *consumer);                         /* loop */
void locks_renew(struct omq_consumer *consumer);                       /* loop: of all lanes */
void unlock(struct lane *lane);                                        /* loop */
void consumers_changed(struct omq_client *client, struct bytes group); /* loop, code 40 */

#endif
