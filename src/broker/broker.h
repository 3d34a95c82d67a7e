/* broker.h - the broker's services, as verbs.
 *
 * Doors translate protocols into these verbs and their results back; nothing here knows a socket, a
 * frame or a response code. A verb enters the core room, looks at the tables, leaves it, and only
 * then touches the log: nobody waits for the disk with the core's key in hand.
 *
 *     topics    settings of topics, made on first use where allowed
 *     groups    settings of subscription groups
 *     clients   who is connected, in which groups, subscribed to what
 *     offsets   how far each group has come in each queue
 *     holds     readers that wait for a message to arrive
 *     delays    messages that wait for their time; retries and dead letters
 *     txn       messages that wait for their producer's decision
 *     dedup     messages that were stored before are not stored again
 *     ledger    who is working on which key, and what is done (ledger.h)
 *     pop       messages that are handed out for a time, and come again unless acknowledged
 *     timers    messages with a time of their own; taking them back
 *     admin     what operators set, reset and ask for (admin.h); what was counted (numbers.h)
 *     tables    the four JSON files under config/, as Apache has them
 *
 * Room: core (1), one for all of the above but dedup and ledger, which have their own (1).
 * Threads: verbs from any thread. The turns at the end are called by whoever the house decides.
 */
#ifndef BROKER_BROKER_H
#define BROKER_BROKER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/dice.h"
#include "base/vfs.h"
#include "broker/admin.h"
#include "broker/numbers.h"
#include "msg/msg.h"
#include "store/store.h"

struct broker;
struct half;
struct lane;
struct offsets_reset;
struct txn_check;

/* What a service must tell the outside. Called with no key held, on any thread. */
struct broker_out {
    /* The members of a group have changed; `session` is one of them. */
    void (*group_changed)(struct counted *session, struct bytes group);
    /* Topics have changed: name servers should know. */
    void (*topics_changed)(void *user);
    /* Something an operator should know; one sentence. */
    void (*warn)(void *user, const char *text);
    /* A client was silent too long and is in no group any more: its connection should end. */
    void (*session_expired)(struct counted *session);
    /* Something is to be done sooner than the services' turns said. */
    void (*services_wake)(void *user);
    /* An operator has changed something else that should be on the disk soon. */
    void (*tables_changed)(void *user);
    /* An operator wants a group to go on elsewhere; `session` is one of its members, which shall
     * see to it. */
    void (*offsets_reset)(struct counted *session, const struct offsets_reset *reset);
    /* A producer is to say what became of a transaction. False: it cannot be told just now. */
    bool (*txn_check)(struct counted *session, const struct txn_check *check);
    void *user;
};

struct broker_options {
    struct store *store;
    struct vfs *vfs; /* of the data folder: config/… */
    struct clock *clock;
    struct clock *peer_clock; /* for signs of life of clients; NULL: the same */
    uint64_t seed;
    const struct broker_out *out;
    const char *cluster, *name, *region;
    struct addr host; /* what records carry as store host: the advertised address */
    /* What may change is copied by broker_tune; what of it is read without the key is atomic. */
    int32_t perm; /* brokerPermission */
    int32_t default_queues;
    int32_t dlq_perm; /* of the topics of dead letters, when they are made */
    bool auto_topics, auto_groups, trace_on;
    bool trace_topic; /* make the topic of that name, for traces of messages */
    const char *trace_topic_name;
    atomic_bool long_polling;
    bool sql92;                    /* enablePropertyFilter */
    atomic_bool client_side_reset; /* offsets are reset by the clients, as before 5.0 */
    _Atomic uint32_t max_message_size;
    _Atomic uint64_t short_polling_ms;
    /* A new group begins at 0 while no more of the log than this has come since (40 % of RAM);
     * 0: however much that is. */
    _Atomic uint64_t recent_bytes;
    uint64_t client_expire_ms; /* 120 s */
    uint64_t lock_life_ms;     /* 60 s */
    uint32_t max_holds, max_topics, max_groups, max_clients;
    /* Transactions. */
    atomic_bool txn_reject;           /* rejectTransactionMessage */
    _Atomic int64_t txn_timeout_ms;   /* no producer is asked before: 6 s */
    _Atomic int64_t txn_interval_ms;  /* how often they are: 30 s */
    _Atomic int32_t txn_check_max;    /* 15 */
    _Atomic int64_t reserved_ms;      /* fileReservedTime: nothing stays open for longer */
    uint32_t max_halves;              /* open at once */
    _Atomic uint32_t max_pop_marks;   /* check-points of POP in flight */
    _Atomic uint32_t max_pop_waiting; /* of one group for one topic: popPollingSize */
    atomic_bool server_balance;       /* queues are divided here; else each member gets all */
    atomic_bool default_pops; /* defaultMessageRequestMode: groups pop unless told otherwise … */
    _Atomic int32_t default_share; /* … each queue shared so: defaultPopShareQueueNum */
    atomic_uint pop_retry_chance;  /* percent: popFromRetryProbability */
    atomic_bool pop_retry_v2;      /* enableRetryTopicV2: %RETRY%group+topic … */
    atomic_bool pop_retry_v1_too; /* … retrieveMessageFromPopRetryTopicV1: and the other as well */
    int64_t max_invisible_ms;     /* 3 days, as far as Apache's timers go */
    /* By what messages are recognised that were stored before, where a topic does not say itself:
     * "UNIQ_KEY", or the name of a property; empty or NULL: not at all. */
    const char *dedup_key;
    uint64_t dedup_window_ms; /* 600 s */
    uint64_t dedup_max_keys;  /* 24 bytes each at most */
    /* Messages with a time of their own. */
    bool timers;                 /* timerWheelEnable */
    atomic_bool recalls;         /* recallMessageEnable */
    _Atomic int64_t timer_max_s; /* timerMaxDelaySec */
    int64_t timer_window_s;      /* timerRollWindowSlot; 0: Apache's two days */
    /* The once ledger (ledger.h). */
    bool ledger;                      /* onceLedgerEnable */
    _Atomic uint64_t ledger_max_keys; /* onceMaxKeys; 64 bytes each and a slot */
    _Atomic int64_t ledger_grace_ms;  /* onceGraceMillis */
};

must_check enum err broker_open(const struct broker_options *options, struct broker **out,
                                struct fault *why);
/* Saves the tables. No verb is running any more; holds that still wait are forgotten. */
must_check enum err broker_close(struct broker *broker, struct fault *why);
/* Takes over what may change while the broker runs; the rest of the options does not count. Any
 * thread. */
void broker_tune(struct broker *broker, const struct broker_options *options);
/* What opening had to repair, in words for the operator; empty: nothing. */
const char *broker_note(const struct broker *broker);

/* ---- producing ---- */

/* One send request and, afterwards, its fate. A batch is one request with many messages in its
 * body. */
struct produce {
    struct bytes group, topic, default_topic, body, props;
    int32_t default_queues, queue_id, sys_flag, flag, reconsume_times;
    int32_t max_reconsume_times; /* the client's own limit, if it named one */
    bool has_max_reconsume_times;
    int64_t born_ms;
    struct addr born_host;
    bool batch;

    /* Why it was refused; OK: stored, and the rest is valid.
     *
     *     ERR_INVALID       a parameter: topic name, queue id
     *     ERR_DENIED        a permission, or a topic that clients may not send to
     *     ERR_MALFORMED     the message itself
     *     ERR_TOO_BIG       its size
     *     ERR_UNSUPPORTED   a timed message
     *     ERR_BUSY          a limit of ours
     *
     * ERR_UNKNOWN_TOPIC, ERR_UNKNOWN_GROUP, ERR_NO_MEMORY, or what store_append said. */
    enum err err;
    struct fault why;        /* the sentence, when refused */
    int32_t stored_queue_id; /* of a delayed message or a half: where it will arrive */
    int64_t queue_offset;    /* of the first message; of those two, where it waits */
    uint32_t first, count;   /* its messages in desk->stored */
    bool wait;               /* the producer wants to wait for `confirmed` */
    char uniq_key[65];       /* transactionId of the answer */
    uint32_t known;          /* so many of its messages were stored before and are not again */
    uint8_t dedup;           /* the desk's note: what they are recognised by, if anything … */
    int64_t timer_due_ms;    /* it comes then and not before; 0: at once */

    /* The desk's notes. */
    struct lane *lane; /* where its time is counted: broker_sends_took */
    int32_t delay_level;
    bool delay_given;
    bool is_half;                     /* a transaction begins with it … */
    uint32_t immunity_s;              /* … that nobody is asked for so soon … */
    struct half *half;                /* … and this is its entry, while it is being stored */
    size_t gap;                       /* room behind the properties, for what is known only later */
    char dedup_by[PROP_NAME_MAX + 1]; /* … and this property, if it is one */
};

/* A loop's own place to prepare messages: buffers that are used again and again. */
struct desk;
must_check enum err desk_open(struct broker *broker, struct desk **out);
void desk_close(struct desk *desk);
const struct stored *desk_stored(const struct desk *desk); /* of the last broker_produce */

/* Stores all requests of one loop turn with one visit to the core and one to the log, in order.
 * Each request's fate is in itself; `*end` is the position that must be confirmed for all of them,
 * 0 when nothing was stored. A message that was stored before (dedup) has the fate of the first
 * one, and what must be confirmed is that. */
void broker_produce(struct broker *broker, struct desk *desk, struct produce *requests, size_t n,
                    uint64_t *end);

/* ---- taking back ---- */

/* A message that waits for its time shall not come. */
struct recall {
    struct bytes group, topic, handle;
    struct addr born_host;
};
struct recalled {
    uint64_t end; /* the position that must be confirmed before it is sure */
    char uniq_key[1024];
    size_t uniq_key_len;
};
/* OK: it was not delivered and never will be, once `end` is confirmed; a handle that names no
 * message is not noticed. ERR_DENIED (switched off), ERR_READ_ONLY, ERR_UNKNOWN_TOPIC, ERR_INVALID
 * (the handle, or too late), ERR_UNSUPPORTED, ERR_BUSY, ERR_NO_MEMORY, or what store_append said.
 */
must_check enum err broker_recall(struct broker *broker, const struct recall *recall,
                                  struct recalled *out, struct fault *why);
/* The handle of a timed message, for who sent it. Returns its length; 0: there is none. */
#define RECALL_HANDLE_MAX 1024
size_t broker_recall_handle(const struct broker *broker, struct bytes topic, int64_t due_ms,
                            struct bytes uniq_key, char out[RECALL_HANDLE_MAX]);

/* ---- giving back ---- */

/* A consumer could not use a message: it comes again later, or is a dead letter. */
struct send_back {
    struct bytes group;
    int64_t position;
    int32_t delay_level; /* 0: by the number of tries; below: dead at once */
    int32_t max_reconsume_times;
    bool has_max_reconsume_times; /* else the group's own limit counts */
};

/* `*end` is the position that must be confirmed before the consumer may forget the message; 0: the
 * group does not want retries. ERR_UNKNOWN_GROUP, ERR_DENIED, ERR_NOT_FOUND (no message is there),
 * ERR_TOO_BIG, ERR_BUSY, ERR_NO_MEMORY, or what store_append said. */
must_check enum err broker_send_back(struct broker *broker, struct desk *desk,
                                     const struct send_back *back, uint64_t *end,
                                     struct fault *why);

/* ---- transactions ---- */

/* What a producer says of one of its transactions; the fate of saying it, afterwards. */
struct txn_end {
    struct bytes group;
    struct bytes msg_id, transaction_id; /* either may be empty */
    int64_t position, offset;            /* of the half, as the send was answered */
    bool commits;                        /* else it is rolled back */
    bool checked;                        /* the broker had asked */

    /* OK: so it is, now or already. ERR_NOT_FOUND (no half is there), ERR_INVALID (another group's,
     * another message, or it has ended otherwise), ERR_STALE (too late, as its producer had wanted
     * it), ERR_BUSY (try again), or what the log said. */
    enum err err;
    struct fault why;
};
/* `*end` is the position that must be confirmed before any of them may be called ended; 0: none. */
void broker_txn_end(struct broker *broker, struct desk *desk, struct txn_end *ends, size_t n,
                    uint64_t *end);

/* A question to a producer. */
struct txn_check {
    const struct record *message; /* the half, with the topic and queue it is for */
    struct bytes group, unique_key;
};

/* An operator wants a transaction to be asked for again, which was given up: its record in
 * TRANS_CHECK_MAX_TIME_TOPIC, or a half that is open. ERR_NOT_FOUND, ERR_INVALID (it has ended),
 * ERR_BUSY, ERR_NO_MEMORY, or what the log said. */
must_check enum err broker_txn_resume(struct broker *broker, struct desk *desk, int64_t position,
                                      uint64_t *end, struct fault *why);

/* ---- consuming ---- */

/* Which messages a reader wants, by tag or by SQL92 (sql92.h). Made once from an expression, never
 * changed, counted; NULL stands for all messages. */
struct filter;
void filter_drop(struct filter *filter); /* NULL is fine */
/* Whether an expression could be subscribed to: OK, ERR_MALFORMED (the sentence says where),
 * ERR_UNSUPPORTED (SQL92 is switched off), ERR_BUSY (no room for it), ERR_NO_MEMORY. */
must_check enum err broker_filter_check(struct broker *broker, struct bytes expression,
                                        struct bytes type, struct fault *why);

struct pull {
    struct bytes group, topic;
    int32_t queue_id;
    int64_t offset;
    uint32_t max_count;
    const struct counted *session; /* of whoever pulls; NULL: nobody's */
    bool commit;                   /* store commit_offset as the group's */
    int64_t commit_offset;
    bool has_expression; /* else the group's own subscription counts */
    struct bytes expression, expression_type;
    int64_t sub_version;
};

struct pulled {
    struct read_result read; /* slices belong to the caller when status is READ_FOUND */
    struct queue *queue;
    struct filter *filter; /* one count is the caller's */
    int32_t topic_sys_flag, group_sys_flag;
    bool reset; /* nothing was read: an operator wants the group to go on at read.next */
};

/* ERR_DENIED, ERR_UNKNOWN_TOPIC, ERR_UNKNOWN_GROUP, ERR_INVALID (queue id, group name),
 * ERR_NOT_SUBSCRIBED, ERR_STALE, ERR_MALFORMED and ERR_UNSUPPORTED (the expression, as
 * broker_filter_check), ERR_NOT_FOUND (the group's own expression cannot be used), ERR_BUSY,
 * ERR_NO_MEMORY. */
must_check enum err broker_pull(struct broker *broker, const struct pull *pull, struct pulled *out,
                                struct fault *why);

/* A reader that waits. It is embedded in something of the door's, which stays the owner. */
struct pop_crowd;
struct hold {
    struct link by_queue, by_time;
    struct queue *queue;     /* of a pull */
    struct pop_crowd *crowd; /* of a pop */
    int32_t queue_id;        /* of a pop: this one, or any */
    bool only_tells;         /* of a pop: it takes nothing, others need not stand back */
    int64_t offset;          /* wakes when the queue has something at or after this */
    struct filter *filter;   /* stays as long as the hold waits */
    uint64_t deadline_ns;
    /* The wait is over: something arrived, or time is up. Called once, without a key, on any
     * thread. Until then the memory stays. */
    void (*wake)(struct hold *hold);
};
/* OK: waiting, `wake` will come. ERR_STALE: something is there already, read again. ERR_BUSY: too
 * many wait. */
must_check enum err broker_hold(struct broker *broker, struct hold *hold, uint64_t wait_ms);
/* Waits on, until the same deadline: for a reader that was woken and found nothing it wants. As
 * broker_hold; ERR_TIMEOUT: time is up. */
must_check enum err broker_hold_again(struct broker *broker, struct hold *hold);
/* True: it waits no more and `wake` will not be called. False: `wake` has been or is being called,
 * or it never waited. */
bool broker_unhold(struct broker *broker, struct hold *hold);

/* ---- POP: messages that are handed out for a time ---- */

#define POP_MAX     32  /* messages in one answer */
#define POP_ORDERED 999 /* revive_id of what is consumed in order */

struct pop {
    struct bytes group, topic;
    int32_t queue_id; /* below 0: any */
    uint32_t max_count;
    int64_t invisible_ms;
    bool from_max; /* a new group begins with the last message, else with the first there is */
    bool ordered;
    bool peeks;              /* nothing is handed out */
    struct bytes attempt_id; /* ordered: the same one may ask again */
    bool has_expression;     /* else all messages */
    struct bytes expression, expression_type;
};

/* Messages of one queue, in the order of the slices. */
struct pop_part {
    int32_t queue_id;
    uint8_t retry; /* of the group's retry topic for this topic: its first or its second form */
    int64_t start;
    uint32_t n;
    size_t n_slices;
};

struct popped {
    int64_t pop_ms, rest; /* when; how many messages are left there */
    int32_t revive_id;
    size_t n_parts;
    struct pop_part parts[POP_MAX];
    uint32_t n;
    int64_t offsets[POP_MAX];
    int32_t counts[POP_MAX]; /* ordered: how often each was handed out before */
    size_t n_slices;
    struct slice slices[POP_MAX]; /* the caller's to drop */
    uint64_t size;
    struct filter *filter; /* one count is the caller's */
};

/* Memory for what is written in between; one for each loop. */
struct mark_desk;
must_check enum err mark_desk_open(struct mark_desk **out);
void mark_desk_close(struct mark_desk *desk);

/* OK also when nothing was found. ERR_DENIED, ERR_UNKNOWN_TOPIC, ERR_UNKNOWN_GROUP, ERR_INVALID (a
 * number, a name), ERR_MALFORMED and ERR_UNSUPPORTED (the expression), ERR_BUSY (too many are in
 * flight), ERR_NO_MEMORY, or what store_append said. */
must_check enum err broker_pop(struct broker *broker, struct mark_desk *desk, const struct pop *pop,
                               struct popped *out, struct fault *why);
/* Waits, like broker_hold, for anything that such a pop would find, until clock_ns() is `until_ns`
 * or, in order, what keeps the others back becomes visible. ERR_STALE, ERR_BUSY, ERR_TIMEOUT. */
must_check enum err broker_pop_hold(struct broker *broker, const struct pop *pop, struct hold *hold,
                                    uint64_t until_ns);
/* How long a client that asked at `born_ms` for so long may still wait; below 0: so much too late.
 * `*until_ns` is for broker_pop_hold. */
int64_t broker_pop_patience(struct broker *broker, int64_t born_ms, int64_t poll_ms,
                            uint64_t *until_ns);
/* NOTIFICATION, POLLING_INFO: the same checks, nothing is taken. */
must_check enum err broker_pop_look(struct broker *broker, const struct pop *pop, bool *found,
                                    uint32_t *waiting, struct fault *why);

/* What a consumer shows of a message it was handed: Apache's POP_CK. */
struct handle {
    int64_t start, pop_ms, invisible_ms;
    int32_t revive_id;
};

/* Acknowledgements of messages of one queue that were handed out together. */
struct ack {
    struct bytes group, topic; /* the topic it was read from: a retry topic too */
    int32_t queue_id;
    struct handle handle;
    uint32_t n;
    const int64_t *offsets;
    bool lenient; /* of many at once: offsets outside the queue are passed over */

    /* OK: done, or had been. ERR_UNKNOWN_TOPIC; ERR_INVALID (queue id); ERR_RANGE (an offset that
     * the queue does not have); ERR_NOT_FOUND (not handed out so, or too long ago: it comes again);
     * or what store_append said. */
    enum err err;
    struct fault why;
    bool stored;       /* success may be told when the log is confirmed so far as broker_ack says */
    struct mark *mark; /* the broker's notes */
    uint32_t bits;
};
/* All of one turn, with one write; `*end` as in broker_produce. */
void broker_ack(struct broker *broker, struct mark_desk *desk, struct ack *acks, size_t n,
                uint64_t *end);

struct retime {
    struct bytes group, topic;
    int32_t queue_id;
    struct handle handle;
    int64_t offset, invisible_ms;
    /* Afterwards: the handle that counts from now on. */
    struct handle renewed;
};
/* As an ack's; ERR_MALFORMED: a time that cannot be. */
must_check enum err broker_retime(struct broker *broker, struct mark_desk *desk, struct retime *r,
                                  uint64_t *end, struct fault *why);

/* ---- offsets ---- */

struct commit {
    const struct counted *session; /* of whoever commits; NULL: nobody's */
    struct bytes group, topic;
    int32_t queue_id;
    int64_t offset;
    bool forward; /* nothing changes if the group has come so far already */
};
/* It may go back, if somebody asks for it: an operator, or the member that has the queue. A member
 * that has lost the queue to another may still tell what it knew before; then OK, and nothing has
 * changed. ERR_INVALID (a number), ERR_UNKNOWN_GROUP, ERR_UNKNOWN_TOPIC, ERR_NO_MEMORY. */
must_check enum err broker_offset_commit(struct broker *broker, const struct commit *commit,
                                         struct fault *why);
/* ERR_NOT_FOUND: none is stored, and the reader is to decide where to begin. */
must_check enum err broker_offset_query(struct broker *broker, struct bytes group,
                                        struct bytes topic, int32_t queue_id, bool zero_if_none,
                                        int64_t *out, struct fault *why);
enum queue_bound {
    BOUND_MIN,
    BOUND_MAX,
    BOUND_TIME,      /* the first message stored at that time or later */
    BOUND_TIME_LAST, /* the last one stored at that time or before */
    BOUND_EARLIEST_TIME,
};
must_check enum err broker_bound(struct broker *broker, struct bytes topic, int32_t queue_id,
                                 enum queue_bound which, int64_t timestamp, int64_t *out,
                                 struct fault *why);

/* ---- looking things up ---- */

/* One record by its position, without copying; the caller drops the slice's owner. */
must_check enum err broker_view(struct broker *broker, int64_t position, struct slice *out,
                                struct fault *why);

struct queried {
    size_t n; /* slices of one record each, the caller's to drop */
    struct slice slices[STORE_QUERY_MAX];
    uint64_t size;
    int64_t index_ms, index_position; /* how far the index goes */
};

/* By a word of KEYS or the unique key. ERR_NOT_FOUND, ERR_UNSUPPORTED (no index is kept). */
must_check enum err broker_query(struct broker *broker, const struct store_query *query,
                                 struct queried *out, struct fault *why);

/* ---- clients ---- */

/* A connected client as a door presents it. The broker keeps a count of `session` while it is
 * known. */
struct client {
    struct counted *session;
    struct bytes id;
    uint8_t language;
    int32_t version;
    struct addr addr;
};

struct subscription {
    struct bytes topic, expression, expression_type;
    int64_t version;
};

struct membership {
    struct bytes group;
    bool broadcasting, pops, actively;
    struct bytes from_where;
    bool without_subs; /* unchanged since the last time; keep them */
    const struct subscription *subs;
    size_t n_subs;
};

/* ERR_INVALID (a name), ERR_TOO_BIG (subscriptions), ERR_BUSY (a limit), ERR_UNKNOWN_GROUP. An
 * expression that cannot be used is told to those who pull by it, not here. */
must_check enum err broker_producer_seen(struct broker *broker, const struct client *client,
                                         struct bytes group, struct fault *why);
must_check enum err broker_consumer_seen(struct broker *broker, const struct client *client,
                                         const struct membership *m, struct fault *why);
void broker_client_leaves(struct broker *broker, struct counted *session, struct bytes client_id,
                          struct bytes producer_group, struct bytes consumer_group);
/* Its connection has closed. */
void broker_session_gone(struct broker *broker, struct counted *session);
/* Somebody joins a group as it is, to read nothing: its members share the queues out anew. For
 * tests. ERR_NOT_FOUND: nobody is in it. */
must_check enum err broker_consumer_joins(struct broker *broker, const struct client *client,
                                          struct bytes group);
/* Each id once, in order. ERR_NOT_FOUND: nobody. ERR_TOO_BIG: the arena. */
must_check enum err broker_consumer_ids(struct broker *broker, struct bytes group,
                                        struct arena *arena, struct bytes **ids, size_t *n);

/* ---- who reads what ---- */

/* How a group reads a topic: an operator's wish. */
struct request_mode {
    struct bytes topic, group;
    bool pops;     /* else it pulls */
    int32_t share; /* so many further members share a queue; 0: all */
};
/* ERR_DENIED (a retry topic), ERR_UNKNOWN_TOPIC, ERR_UNKNOWN_GROUP, ERR_BUSY, ERR_NO_MEMORY. */
must_check enum err broker_mode_set(struct broker *broker, const struct request_mode *mode,
                                    struct fault *why);
void broker_mode_get(struct broker *broker, struct bytes topic, struct bytes group,
                     struct request_mode *out);

enum assign_strategy { ASSIGN_AVERAGE, ASSIGN_CIRCLE };
bool assign_strategy_find(struct bytes name, enum assign_strategy *out);
/* Whether one of so many clients gets one of so many queues. Pure. */
bool assign_has(enum assign_strategy strategy, size_t n_queues, size_t n_clients, size_t client,
                size_t queue);

struct assign_queue {
    struct bytes broker;
    int32_t queue_id;
};
struct assign {
    struct bytes topic, group, client_id;
    enum assign_strategy strategy;
    bool broadcasting;
    struct assign_queue *queues; /* all of the topic; they are sorted */
    size_t n_queues;
    /* Afterwards. */
    struct request_mode mode;
    struct assign_queue *assigned; /* in the arena */
    size_t n;
};
/* ERR_NOT_FOUND: nobody can say, for want of queues or members. */
must_check enum err broker_assign(struct broker *broker, struct assign *a, struct arena *arena);

/* ---- ordered consumption ---- */

#define LOCK_BATCH_MAX 16384 /* queues in one request */

struct lock_wish {
    struct bytes topic;
    int32_t queue_id;
    bool granted; /* afterwards */
};
/* Takes or renews the locks of queues for a client of a group; one that another client has, or of a
 * queue that does not exist, is not granted. ERR_INVALID: a name, or too many at once. */
must_check enum err broker_lock(struct broker *broker, struct bytes group, struct bytes client_id,
                                struct lock_wish *wishes, size_t n, struct fault *why);
/* Whether any queue is locked for the group. */
bool broker_is_ordered(struct broker *broker, struct bytes group);
/* Gives back those that are the client's own. */
must_check enum err broker_unlock(struct broker *broker, struct bytes group, struct bytes client_id,
                                  const struct lock_wish *wishes, size_t n, struct fault *why);

/* ---- what the name servers are told ---- */

must_check enum err broker_topics(struct broker *broker, struct arena *arena,
                                  struct topic_settings **topics, size_t *n,
                                  struct data_version *version);

/* ---- the files ---- */

enum table_name {
    TABLE_TOPICS,
    TABLE_GROUPS,
    TABLE_OFFSETS,
    TABLE_DELAYS,
    TABLE_ORDERS,
    TABLE_MODES
};
/* Whether the text of a table's file can be read: OK or ERR_DAMAGED. Pure. */
must_check enum err table_check(enum table_name which, struct bytes text, struct fault *why);
/* The text as it would be in the file now. */
must_check enum err broker_table_write(struct broker *broker, enum table_name which,
                                       struct buf *out);

/* ---- turns ---- */

/* confirmed → queues → waiting readers, until nothing is left */
void broker_dispatch_turn(struct broker *broker);
/* The same as far as it is confirmed now, also when somebody else is at it: whoever asks next sees
 * what any producer was told before. It gives up when dispatch is stuck. */
void broker_catch_up(struct broker *broker);
void broker_hold_turn(struct broker *broker);   /* wakes readers whose time is up */
void broker_client_turn(struct broker *broker); /* forgets clients that were silent too long */
/* Writes the tables that changed. One caller at a time. */
must_check enum err broker_save_turn(struct broker *broker, struct fault *why);

/* Forgets what was stored too long ago to be recognised (dedup), and gives memory back. */
void broker_dedup_turn(struct broker *broker);

/* What a turn of a service did, for the operator. Services move messages that waited for something:
 * their time, a decision, an acknowledgement. */
struct service_turn {
    uint64_t done;    /* messages moved */
    uint64_t known;   /* not moved again: they had been before the last stop */
    uint64_t skipped; /* records that cannot be moved */
    int next_ms;      /* when it wants to be called again, at the latest */
    enum err err;     /* why something that should be done now is put off; it is tried again */
    struct fault why; /* … if it was tried in this turn */
};
/* Delivers delayed messages that are due. One caller at a time. */
void broker_delay_turn(struct broker *broker, struct service_turn *out);
/* Asks producers what became of their transactions. One caller at a time. */
void broker_txn_turn(struct broker *broker, struct service_turn *out);
/* Sees to popped messages that were not acknowledged in time. One caller at a time. */
void broker_pop_turn(struct broker *broker, struct service_turn *out);
/* The same for messages with a time of their own. */
void broker_timer_turn(struct broker *broker, struct service_turn *out);

#endif
