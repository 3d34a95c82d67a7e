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
 * A lane that is taken away from us is dropped: what nobody has begun is called back, the broker is
 * told its offset, and what hands still work on is finished and forgotten; whoever has the queue
 * now gets it again. In order a lane stays, giving nothing away, until its handler is back: only
 * then is the offset told, and after the broker's answer the lock given up.
 *
 * A batch belongs to whoever works on it, from the moment it is taken until it is over. Closing
 * waits for it; when the time for that is up, the batch is left to its worker, who frees it and
 * touches nothing else (`state` decides which of the two it is). One that was left while a store
 * was asked whether it may run does not run.
 */
#ifndef CLIENT_CONSUMER_INT_H
#define CLIENT_CONSUMER_INT_H

#include "client/client_int.h"
#include "client/parts_int.h"

struct lane;

/* ---- messages: delivery.c ---- */

/* The answer to a pull: records, shared by the messages made from them. Any thread. */
struct parcel {
    struct counted counted;
    struct omq_queue queue; /* where they were read from; its texts are behind the records */
    size_t len;
    uint8_t bytes[];
};
struct parcel *parcel_make(struct bytes records, const struct omq_queue *queue);

/* What came of a message. */
enum outcome {
    OUTCOME_FAILED, /* it comes again, and an attempt was made */
    OUTCOME_DONE,
    OUTCOME_LATER, /* it stays here until rest_ns; no attempt was made */
    OUTCOME_DEAD,
};

/* In begun_ns: nobody has it; it is being made ready, or waits on the desk. */
enum { HELD_FREE, HELD_WAITS };

struct held {
    struct link link; /* in lane.held, by offset */
    struct parcel *parcel;
    uint8_t *unpacked; /* its body, when that was compressed; else it is in the parcel */
    size_t size;
    int64_t position;             /* in the broker's log */
    int32_t reconsumed;           /* how often it was given back before */
    int32_t sys_flag;             /* how its body is compressed, if it is */
    bool taken;                   /* in a batch */
    bool done;                    /* not in the lane any more; whoever still works on it frees it */
    bool returning;               /* its handler takes too long: the broker is asked to take it */
    bool damaged;                 /* its body is not the one that was stored */
    _Atomic uint64_t begun_ns;    /* when its handler began; or HELD_FREE, HELD_WAITS */
    int outcome;                  /* enum outcome: what came of it, when its batch is over */
    bool buried;                  /* a dead letter already; only its place is still to be marked */
    uint64_t rest_ns;             /* nobody gets it before then */
    char *handle;                 /* pop: by which the broker finds it; else NULL */
    uint64_t until_ns;            /* pop: until then it is ours; else 0 */
    struct omq_delivery delivery; /* its texts are behind it */
};
/* ERR_NO_MEMORY. */
must_check enum err held_make(struct parcel *parcel, const struct record *record,
                              struct held **out);
/* Any thread. Expands the body if it is compressed; ERR_MALFORMED, ERR_TOO_BIG, ERR_NO_MEMORY. */
must_check enum err held_expand(struct held *held);
void held_free(struct held *held);

/* ---- subscriptions: subs.c ---- */

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
/* `consumer` NULL: it is used as a filter alone. */
must_check enum err sub_make(struct omq_consumer *consumer, const char *topic,
                             const char *expression, bool sql, struct sub **out);
void sub_free(struct sub *sub);
struct sub *sub_find(struct omq_consumer *consumer, const char *topic);
bool sub_wants(const struct sub *sub, const char *tag);
struct heart_subscription;
void sub_describe(const struct sub *sub, struct heart_subscription *out);
int subscription_check(const struct omq_subscription *s, struct omq_error *why);
/* A broker, if one can be reached, is asked whether it understands what is in SQL. */
int subscriptions_ask(struct omq_client *client, const struct omq_consumer_options *o,
                      struct omq_error *why);
int consumer_subscribe(struct omq_consumer *consumer, const struct omq_subscription *s,
                       struct omq_error *why);

/* ---- the consumer: consumer.c ---- */

struct omq_consumer {
    struct omq_client *client;
    struct link link;  /* in client.consumers, or as a husk in client.gone */
    _Atomic bool over; /* somebody closes it, or has */

    /* Room: what the application's threads share with the loop. */
    struct room room;
    struct list ready; /* struct omq_batch, by link: for omq_consumer_take */
    _Atomic bool shut; /* closed */
    unsigned inside;   /* threads of the application that are in here */

    /* All that follows is cleared when a husk is used again. */
    struct omq_consumer_options options;
    bool halted; /* room: nothing is to be taken just now */
    char *group, *retry_topic, *rooms;
    struct omq_queue *config_queues; /* copies; their texts are behind them */
    struct hands *hands;             /* NULL: the application takes batches itself */
    struct local *local;             /* broadcast: its own offsets */
    struct omq_producer *traces;     /* carries message trace; NULL: there is none */
    struct exact *exact;             /* exactly once; NULL: without */
    bool reads;                      /* it is a reader: reader.c */
    bool sql;                        /* what is said of queues that are assigned … */
    const char *wanted;              /* … by the application; valid while it is opened … */
    char *expression;                /* … and a copy; NULL: all of them */
    int commit_every_ms;             /* -1: never by itself */

    /* The loop's own. */
    struct list subs, lanes, batches;
    struct timer *rebalance_timer, *commit_timer, *lock_timer, *expiry_timer, *close_timer;
    unsigned rounds;      /* of rebalancing, one for each topic, that are under way */
    bool rebalance_again; /* something has changed meanwhile, or a round failed */
    bool paused, closing;
    bool assigned; /* a reader's queues are given, not shared */
    bool rested;   /* closing: what was said of that before has had the time to arrive … */
    bool pausing;  /* … or is given it just now */
    bool settling; /* closing: the brokers were told how far it came in one queue of each topic … */
    bool settled;     /* … and in all of them */
    size_t running;   /* batches that are out, and calls that are waited for */
    unsigned stuck;   /* closing: handlers that did not come back in time */
    int64_t start_ms; /* when it was opened */
    uint64_t beat_ns; /* when a broker that does not know us was told last */
    struct waiter *leaving;
};

/* Loop. Something has ended: if the consumer is closing and nothing is left, whoever waits for that
 * is told. */
void consumer_calm(struct omq_consumer *consumer);
void consumers_free(struct omq_client *client); /* those that were closed */

/* For readers, which are consumers of another face. */
/* A husk, or a new one; NULL: no memory. */
struct omq_consumer *consumer_new(struct omq_client *client);
/* It owns `consumer`, also when it fails. */
must_check enum err consumer_begin(struct omq_consumer *consumer, struct omq_error *why);
void consumer_end(struct omq_consumer *consumer); /* once: whoever sets `over` */
int consumer_take(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out, size_t max,
                  size_t *n, struct omq_error *why);
/* False: it is closed. Else the loop waits for consumer_left. */
bool consumer_entered(struct omq_consumer *consumer);
void consumer_left(struct omq_consumer *consumer);

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
    bool taking;         /* the database is asked where to begin */
    struct timer *timer; /* until the next pull … */
    bool full;           /* … which waits because too much is held */
    struct timer *again; /* until what failed is given away again */
    uint64_t again_ns;   /* when that is; 0: it is not running */
    bool suspended;      /* … and nothing else in the meantime: the queue is consumed in order */
    bool leaving;        /* in order: it is not ours any more, but something of it is out */
    struct list held;
    struct link *given; /* of those: it and all before it are out, or on their way back; or NULL */
    size_t n_held, bytes_held;
    size_t out;          /* batches of it that are out, and messages on their way back */
    int64_t floor;       /* its offset does not rise beyond this: what a stuck handler has */
    int64_t next;        /* where the next pull begins */
    int64_t seen;        /* behind the last message that was held */
    int64_t told;        /* what the broker was told last; -1: nothing … */
    int64_t sure;        /* … and what it has answered, or said itself: others may ask it first */
    bool heard;          /* it has answered one: it has a table for this group and topic */
    unsigned moves;      /* how often it was set elsewhere: what was told before is then no news */
    bool started;        /* `next` is known … */
    bool begun;          /* … or was, before the lock was lost */
    int64_t pull_broker; /* which replica to pull from */
    uint64_t pulled_ns, said_ns; /* when it last pulled; when the offset was said one way */
    bool last_told;              /* at the close */
    bool pull_tells;             /* the last pull said how far it had come */
    int64_t pulled_ms, consumed_ms, locked_ms; /* for operators */

    struct call before; /* at most once: the broker is told that what was read is done … */
    int64_t before_offset;
    unsigned before_moves;
    bool telling; /* … and has not answered yet */

    bool locked; /* ordered: the broker gives this queue to nobody else */
    uint64_t locked_ns;
    bool wanted; /* while rebalancing */

    struct lane *next_due; /* while batches that came back together are looked at */
    bool due, due_failed, due_lost;
};

/* It asks where to begin after `pause_ms`: whoever had it may have something to tell first. */
must_check enum err lane_open(struct omq_consumer *consumer, const struct omq_queue *queue,
                              uint64_t pause_ms);
struct lane *lane_find(struct omq_consumer *consumer, const struct omq_queue *queue);
void lane_leave(struct lane *lane); /* drops it as soon as that may be */
void lane_stay(struct lane *lane);  /* it is ours after all */
void lane_ask_again(
    struct lane *lane); /* it was another's for a while, who may have come further */
void lane_idle(
    struct lane *lane); /* something of it has come back: if it is leaving, perhaps now */
void lane_drop(struct lane *lane); /* now */
bool lane_locked(const struct lane *lane);
void lane_move(struct lane *lane, int64_t offset);  /* goes on there, and tells the broker */
void lane_reset(struct lane *lane, int64_t offset); /* the same, whatever it is doing */
void held_add(struct lane *lane, struct held *held);
void lane_go(struct lane *lane);              /* something has changed: pull, or give away */
int64_t lane_offset(const struct lane *lane); /* what is done up to; -1: nothing is known */
/* The broker has answered that it has stored `offset`, which it was told after so many moves. */
void lane_answered(struct lane *lane, int64_t offset, unsigned moves);
void lane_emptier(struct lane *lane); /* something was let go: if it was full, it pulls */
void lane_rest(struct lane *lane, uint64_t ms);
void lane_wake(struct lane *lane, uint64_t at_ns); /* gives away again then, at the latest */
void lane_let_go(struct lane *lane); /* frees it if it was dropped and nobody needs it */
struct bytes lane_broker(struct lane *lane, bool master, struct topic_route **route);

/* ---- batches: work.c ---- */

enum batch_state {
    BATCH_OUT,    /* on its way to somebody, or being made ready, which is quick: not left yet */
    BATCH_ASKING, /* made ready: what may run is asked of libonce, or was, and waits on the desk */
    BATCH_TAKEN,  /* the application has it */
    BATCH_OVER,   /* on its way back to the loop */
    BATCH_LEFT,   /* the consumer is gone: whoever has it frees it */
};

struct omq_batch {
    struct task task;
    struct post post;
    struct link link; /* in consumer.ready, or on a desk */
    struct link all;  /* in consumer.batches */
    struct omq_consumer *consumer;
    struct lane *lane;
    struct omq_batch *with;     /* the next of those that come back together */
    struct clock *clock;        /* the client's, which may be gone */
    _Atomic int state;          /* enum batch_state */
    struct asked_later *direct; /* an operator wants to know what comes of it; else NULL */
    struct exact *exact;        /* held, since a stuck handler may outlive its consumer; or NULL */
    /* The consumer's, for the same reason. */
    int (*handle)(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done);
    void *user;
    bool ordered;
    size_t size;   /* how many messages it may have */
    int64_t floor; /* of its lane: nothing before that comes any more */
    bool lost;     /* by_offset: another has taken the queue */
    int result;
    size_t done, n;
    size_t readable;    /* the first of them, which the application gets: what comes of the others
                           is known already */
    struct held **held; /* in the order of `messages` */
    const struct omq_delivery *messages[];
};
/* Any thread. Its bodies are expanded; what may run is to be asked next, and its consumer may be
 * gone from now on. */
void batch_ready(struct omq_batch *batch);
/* It becomes the application's. False: closing did not wait for that; nothing of it may run. */
must_check bool batch_take(struct omq_batch *batch);
/* Hands: the handler gets it, unless it was left; batch_judge. */
void batch_work(struct omq_batch *batch);
/* What the application says of it, and of each of its messages. */
void batch_judge(struct omq_batch *batch, int result, size_t done);
/* They are over. Those of them that the loop waits for, as a chain; the others were left, and are
 * freed. */
must_check struct omq_batch *batches_over(struct omq_batch *const *batches, size_t n);
/* Sends that chain to the loop; NULL is fine. Its consumer, and the client, may be gone when this
 * returns, but not earlier. */
void batches_send(struct omq_batch *first);
/* Hands, or the application: libonce is told what came of them, and those that it has answered go
 * back. The others are in front then: how many, and when they are to be told again. */
must_check size_t batches_tell(struct omq_batch **batches, size_t n, int64_t *wait_ms);
/* Whether a task is a batch that goes over this desk. */
bool batch_of_desk(struct task *task, void *desk);
/* Loop: one message out of turn, which is in no lane; what comes of it is answered. Takes over
 * both. */
must_check enum err work_direct(struct omq_consumer *consumer, struct held *held,
                                struct asked_later *asked);
void work_give(struct lane *lane); /* loop: what may be given away now */
/* Loop: takes back what nobody has begun, of a lane or (NULL) of all. What was acknowledged before
 * is not taken back: nobody else would get it. */
void work_recall(struct omq_consumer *consumer, const struct lane *lane);
/* Loop: closing has waited long enough. False: not for all; to be called again in a moment. */
must_check bool work_abandon(struct omq_consumer *consumer);

/* ---- what becomes of a message: back.c; loop ---- */

void held_forget(struct lane *lane, struct held *held); /* out of the lane, but not freed */
void held_finish(struct lane *lane, struct held *held); /* the same, and freed */
void held_wait(struct lane *lane, struct held *held);   /* it stays, without an attempt */
/* Its handler is done: goes by its outcome. True: an attempt has failed. */
bool held_over(struct lane *lane, struct held *held);
/* Makes it a dead letter, then acknowledges it. False: not now. */
bool work_bury(struct lane *lane, struct held *held);
/* Gives back what handlers take too long for. */
void work_expire(struct omq_consumer *consumer);

/* ---- offsets.c, rebalance.c ---- */

/* What the broker is to be told; -1: nothing. In order that is the affair of whoever has the lock:
 * one that was cut off and comes back late must not say what it did meanwhile. */
int64_t offset_due(const struct lane *lane);
void offsets_start(struct lane *lane);            /* finds where to begin, then lane_go */
void offsets_tell(struct omq_consumer *consumer); /* loop: all lanes, without waiting */
void offset_tell(struct lane *lane);              /* one */
/* Loop: all, with answers, as `running`; or those alone that go ahead. */
void offsets_settle(struct omq_consumer *consumer, bool ahead);
/* The first word of a group about a topic is answered before the others are said. Of several that
 * came together, Apache's broker (5.5.0) was seen to answer all and to keep but one. */
bool offset_goes_ahead(const struct lane *lane);
bool offset_is_due(const struct lane *lane); /* the broker has not answered it yet */
/* Loop: so long the last word waits, so that a pull or a word without an answer, which said less,
 * does not overtake it: Apache's broker has several threads for those. */
uint64_t offsets_rest_ms(const struct omq_consumer *consumer);
void offset_say(struct lane *lane); /* as offset_tell, also if it does not commit by itself */
/* Loop: one, with an answer, of which `over` (or NULL) hears. False: there is nothing to tell, or
 * nobody. */
bool offset_settle(struct lane *lane, void (*over)(void *user, const struct answer *answer),
                   void *user);
/* Tells the broker that everything before `offset` is done, and calls `done` with its answer.
 * False: nobody can be told. */
must_check bool offset_tell_first(struct lane *lane, int64_t offset,
                                  void (*done)(struct call *, const struct answer *));
void rebalance(struct omq_consumer *consumer);   /* loop */
void route_of_sub(struct sub *sub);              /* loop: asks for it, unless that is under way */
void locks_renew(struct omq_consumer *consumer); /* loop: of all lanes */
void unlock(struct lane *lane);                  /* loop */
void lanes_lose(struct omq_consumer *consumer, const char *topic);     /* loop: unsubscribed */
void consumers_changed(struct omq_client *client, struct bytes group); /* loop, code 40 */

/* ---- exactly once: exactly.c ---- */

must_check int exact_open(struct omq_consumer *consumer, const struct once_options *options,
                          struct omq_error *why);
void exact_drop(struct exact *exact);  /* the last one to drop it closes it */
void exact_leave(struct exact *exact); /* the same, for the consumer: it logs nothing any more */
struct exact *exact_hold(struct exact *exact);
bool exact_by_offset(
    const struct exact *exact); /* places in the database count, not the broker's */
/* Whether many messages can be asked for at once: transactions are one by one. */
bool exact_together(const struct exact *exact);
/* Whether that may be done for messages that run later: their claims are renewed meanwhile. */
bool exact_ahead(const struct exact *exact);
struct desk *exact_desk(struct exact *exact); /* NULL: none */
/* Hands: of those that the application would get, only the ones that may run stay in front. All
 * are of one `exact`. */
void exact_begin(struct omq_batch *const *batches, size_t n);
bool exact_lost(const struct omq_batch *batch); /* the claim of one of its messages */
/* Hands: the application is done with them. Sets the outcome of each message, unless the store has
 * no answer: those batches go behind the others and are to be ended again after `*wait_ms`. How
 * many have ended. */
must_check size_t exact_end(struct omq_batch **batches, size_t n, int64_t *wait_ms);
/* Hands, or who closes: nothing of them runs. Their claims are let go; the messages stay here, and
 * this was no attempt. */
void exact_give_up(struct omq_batch **batches, size_t n);
/* Loop: by_offset: asks the database where to begin, then calls `then` on the loop. It is `offset`
 * if the database knows nothing of the queue; or, by an operator's order, if it is not so far yet:
 * what lies between counts as done. False: no memory. */
enum take { TAKE_KNOWN, TAKE_ORDERED };
must_check bool exact_take(struct lane *lane, int64_t offset, enum take how,
                           void (*then)(struct lane *lane, bool known, int64_t offset));
void exact_recall(struct omq_consumer *consumer); /* loop: closing: what was not asked yet */

/* ---- the desk: desk.c ---- */

struct desk {
    struct room room;
    struct list admitted, ended, unsure; /* struct omq_batch, by link */
    uint64_t since_ns;                   /* when the first handler of `ended` began */
    uint64_t again_ns;                   /* when `unsure` is told again */
    bool halted;                         /* nothing begins: what was admitted is given up */
    bool helping;  /* `help` waits for a hand, or has one that has not looked yet */
    bool clerking; /* `clerk` is on its way, or there */
    struct task help, clerk;
    struct hands *clerks; /* one thread */
    struct exact *exact;  /* whose it is */
    struct clock *clock;
};
/* `client`: NULL where no hands are, and the desk is never used. */
must_check enum err desk_init(struct desk *desk, struct exact *exact, struct omq_client *client);
/* When no hand is left, and nothing on the desk: waits for the clerk. */
void desk_close(struct desk *desk);
void desk_clear(struct desk *desk); /* the last one, on any thread */
/* Hands: a batch of a consumer with `exact`, and what else waits. */
void desk_run(struct omq_batch *batch);
/* Loop: pausing, closing, going on. A hand that comes by gives up what waits. */
void desk_halt(struct desk *desk, bool halted);
/* Closing, any thread but the loop: what lies there is given up or told, though no hand may ever
 * come by again. */
void desk_empty(struct desk *desk);

/* ---- message trace: consumer_trace.c ---- */

int consumer_trace_open(struct omq_consumer *consumer, struct omq_error *why);
void consumer_trace(const struct omq_batch *batch); /* loop: it has come back */

/* ---- pop: pop.c. Loop ---- */

void pop_go(struct lane *lane);
bool pop_full(const struct lane *lane); /* too much to take more */
int64_t ladder_ms(int32_t reconsumed);  /* how long the broker waits after so many tries */
/* Somebody has worked on it: enum outcome. */
void pop_over(struct lane *lane, struct held *held, int outcome);

/* ---- broadcast: local.c ---- */

/* Reads what this client has kept of its group. ERR_NO_MEMORY, ERR_DAMAGED, ERR_IO; `why` has the
 * sentence. */
must_check enum err local_open(struct omq_consumer *consumer, struct omq_error *why);
/* Loop. -1: nothing is kept. */
int64_t local_offset(const struct omq_consumer *consumer, const struct omq_queue *queue);
void local_save(struct omq_consumer *consumer); /* loop: if something has changed */
void local_close(struct local *local);

/* ---- what brokers ask of consumers: serve_consumer.c. Loop ---- */

void serve_reset(const struct asked *asked);        /* 220: go on elsewhere */
void serve_status(const struct asked *asked);       /* 221: how far are you? */
void serve_running_info(const struct asked *asked); /* 307 */
void serve_directly(const struct asked *asked);     /* 309: handle this message now */

#endif
