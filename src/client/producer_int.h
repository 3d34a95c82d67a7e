/* producer_int.h - a message on its way.
 *
 * On the application's thread a message becomes a *draft* (what is sent beside what the application
 * said) and the draft a *job*: one allocation with copies of everything. From then on the loop has
 * it:
 *
 *     route    from the cache, or asked for; an unknown topic goes where TBW102 is
 *     queue    as told, by sharding key, else the next in turn
 *     call     SEND_MESSAGE_V2 and its answer, as often as the producer may try
 *     end      the waiter is told, or the callback given to the hands
 *
 * All tries of a job have the same unique id. A try whose answer did not come may have been stored:
 * a retry then makes a second copy with the same id, which a broker with producer dedup, or a
 * consumer with once.h, takes for what it is. */
#ifndef CLIENT_PRODUCER_INT_H
#define CLIENT_PRODUCER_INT_H

#include "client/client_int.h"

#define EXTRA_MAX 6

/* What we add to a message: properties of the protocol, flags, another request code. */
struct draft {
    const struct omq_message *message;
    char id[64]; /* filled by draft_begin: the message's own id, or a new one */
    struct omq_property extra[EXTRA_MAX];
    size_t n_extra;
    int32_t sys_flag;
    int32_t request; /* 0: REQ_SEND_MESSAGE_V2 */
};

/* Checks the message and gives it its id. */
int draft_begin(struct draft *draft, struct omq_producer *producer,
                const struct omq_message *message, struct omq_error *why);
void draft_add(struct draft *draft, const char *name, const char *value); /* both stay */
size_t draft_props_room(const struct draft *draft);                       /* an upper bound */
void draft_props_write(const struct draft *draft, struct wr *w);

enum job_how {
    JOB_WAITED, /* a thread waits, and frees it */
    JOB_CALLED, /* the hands call `done` and free it */
    JOB_ONEWAY,
    JOB_OURS, /* a message of our own: nobody is told */
    JOB_KEPT, /* from the retry table: resend.c is told */
};

struct job {
    struct post post;
    struct task task;
    struct link link; /* in producer.jobs */
    struct call call;
    struct route_want want;
    struct omq_producer *producer;
    struct topic_route *route; /* a count, while it is needed */
    enum job_how how;
    struct waiter *waiter;
    omq_sent *done;
    void *user;
    int code; /* what came of it: enum omq_code */
    struct omq_receipt receipt;
    struct omq_receipt *kept; /* of a try that was stored less well than it should be */
    struct omq_error *why;    /* NULL: it has not failed, or there is no memory for a sentence */
    char *offset_ids;         /* of a batch: as the answer lists them */
    char region[32];          /* of the answer, for traces */
    bool untraced;            /* the broker does not want it traced */

    uint64_t until_ns, begun_ns; /* of all tries; of this one */
    int tries_left;
    bool template; /* the route is that of TBW102 */
    bool calling;
    bool tried;        /* receipt.broker is that of the last try */
    bool maybe_stored; /* by a try whose answer did not come */
    bool same;         /* the next try goes where the last one went */
    bool introduced;   /* a broker must know us before it gets the message */
    const struct topic_queue *queue;
    int32_t pinned_id; /* -1: any */
    bool sharded;
    bool late; /* its producer had parted when it ended */
    struct bytes shard_key;
    struct omq_message *copy; /* for `choose` */

    int32_t request, sys_flag, flag;
    int64_t born_ms;
    size_t plain_size; /* of the body, before it was compressed */
    bool batch;
    struct bytes group, topic, pinned_broker, body, props;
    uint8_t *space; /* where the properties stand, and behind their room the body */
    uint8_t text[];
};

/* From a draft; the application's thread. */
int job_make(struct omq_producer *producer, const struct draft *draft, struct job **out,
             struct omq_error *why);
/* The properties and the body are filled by the caller, in `space`, who also sets their lengths.
 * `like` says where it goes. */
struct job *job_alloc(struct omq_producer *producer, const struct omq_message *like,
                      size_t props_room, size_t body_room);
void job_free(struct job *job);

/* Posts it and waits for its end. The job is still there; the caller frees it. */
int job_run(struct job *job, uint64_t timeout_ms, struct omq_error *why);
/* Loop. For messages of our own. */
void job_begin_here(struct job *job, uint64_t timeout_ms);
/* Loop. Ends what is under way. */
void jobs_end(struct omq_producer *producer);

/* INVALID for none, CLOSED for one that is closed, MISUSE where `waits` and the caller is the loop
 * that would have to work meanwhile. */
int producer_check(const struct omq_producer *producer, bool waits, struct omq_error *why);

/* ---- compression: compress.c ---- */

/* Any thread. NULL: send it as it is. Freed by buf_clear. */
bool producer_compress(struct omq_producer *producer, struct bytes plain, struct buf *out);
void compressors_clear(struct omq_producer *producer);

/* ---- the local retry table: resend.c, its file: kept.c ---- */

struct kept_record {
    int32_t sys_flag, flag;
    struct bytes topic, props, body;
    bool sent;
    size_t size; /* in the file */
};
must_check enum err kept_read(struct bytes in, struct kept_record *out); /* ERR_MALFORMED */
struct kept;
must_check enum err kept_open(const char *path, uint64_t max, struct kept **out,
                              struct omq_error *why);
void kept_close(struct kept *kept); /* NULL is fine */
/* Any thread. False: the file is full, or cannot be written. */
bool kept_add(struct kept *kept, const struct kept_record *record);
size_t kept_waiting(struct kept *kept);
/* The first from `*at` on that was not sent, its texts in `room`; `*at` says where it stands.
 * ERR_NOT_FOUND: there is none. */
must_check enum err kept_next(struct kept *kept, uint64_t *at, struct buf *room,
                              struct kept_record *out);
void kept_sent(struct kept *kept, uint64_t at);

must_check enum err resend_open(struct omq_producer *producer, struct omq_error *why);
void resend_start(struct resend *resend); /* loop; NULL is fine */
/* Any thread: its callback is about to hear of a failure. True: it is in the table instead. */
bool resend_keep(const struct job *job);
void resend_over(const struct job *job);  /* loop: one of the table's has ended */
void resend_stop(struct resend *resend);  /* loop; NULL is fine */
void resend_close(struct resend *resend); /* when nothing is under way; NULL is fine */

/* ---- recalls: recall.c ---- */

#define RECALL_MAX 1024
/* The broker that a handle names, in `room`; false: it is no handle of this topic. */
bool recall_read(struct bytes text, struct bytes topic, uint8_t room[RECALL_MAX],
                 struct bytes *broker);

/* ---- what servers ask of producers ---- */

void serve_check(const struct asked *asked); /* transaction.c: CHECK_TRANSACTION_STATE */
void serve_reply(const struct asked *asked); /* request.c: PUSH_REPLY_MESSAGE_TO_CLIENT */

/* ---- traces of what was sent: tracer.c; loop ---- */

must_check enum err tracer_open(struct omq_producer *producer); /* any thread */
void tracer_close(struct tracer *tracer);                       /* NULL is fine */
void tracer_note(const struct job *job);
/* The decision about a transaction. */
void tracer_note_end(struct omq_producer *producer, const struct trace_record *record);
void tracer_flush(struct omq_producer *producer);

#endif
