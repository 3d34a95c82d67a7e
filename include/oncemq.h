/* oncemq.h - liboncemq, the C client of OnceMQ and of Apache RocketMQ.
 *
 * This header is the manual. Read it once from top to bottom; each rule is said in one place.
 *
 *     struct omq_client *client;          connections and threads, shared by what is made from it
 *     struct omq_producer *producer;      sends
 *     struct omq_consumer *consumer;      receives: messages come to your handler, on its threads
 *     struct omq_reader *reader;          receives: you ask for messages when you want them
 *
 *     struct omq_client_options to = {.names = "127.0.0.1:9876"};
 *     struct omq_producer_options as = {.group = "shop"};
 *     struct omq_client *client;
 *     struct omq_producer *producer;
 *     struct omq_error why;
 *     if (omq_client_open(&to, &client, &why) || omq_producer_open(client, &as, &producer, &why))
 *         errx(1, "%s", why.text);
 *     struct omq_message m = {.topic = "Orders", .body = "hello", .body_size = 5};
 *     if (omq_send(producer, &m, NULL, &why))
 *         errx(1, "%s", why.text);
 *     omq_producer_close(producer);
 *     omq_client_close(client);
 *
 * The rules
 *
 * Zero is the default. Every options struct works with nothing but what is marked "required"; a
 * number that is 0 and a pointer that is NULL mean the default that stands beside it. Structs may
 * grow in later releases by their `reserved` members only: leave those zero.
 *
 * Errors. A function that can fail returns an enum omq_code, 0 for success. Its last parameter,
 * which may be NULL, gets the sentence: what happened, where, and what to do. Outputs are written
 * on success only.
 *
 * Memory. What you hand in is copied before the call returns and stays yours. What you get as
 * `const` belongs to the library and is valid as long as the function that gave it says. Text is
 * UTF-8 with a NUL at its end.
 *
 * Threads. All functions may be called from any thread at any time. No function blocks longer than
 * its timeout; those without one of their own have that of their producer or client. A close is the
 * last call on what it closes, and what is still under way elsewhere ends with OMQ_CLOSED. A call
 * that comes later all the same says OMQ_CLOSED as well, until the client is closed or something
 * new is opened on it, which may get the same address. After a close has returned, no callback of
 * what was closed begins or runs, but for a handler that was not waited for any longer
 * (`close_ms`).
 *
 * Callbacks run on threads of the library and may take their time, but for `choose`, `room_of` and
 * `log`: those run where the network's work is done, which one thread does at a time, of the
 * library or one of yours that waits in a call (`log` on others, too, at the same time), so they
 * must be quick, and a call that waits says OMQ_MISUSE there. A callback may call everything else
 * but an open or a close of what belongs to its own client: an open says OMQ_MISUSE, a close does
 * nothing but tell `log`.
 *
 * Nothing is global: two clients in one process know nothing of each other. The library installs no
 * signal handlers, writes to no terminal, and forks fine before the first client is opened.
 *
 * How often a message takes effect
 *
 *     at most once    .acknowledge = OMQ_BEFORE: a crash in the handler loses the message
 *     at least once   the default: acknowledged after the handler; a crash brings it again
 *     exactly once    with once.h: delivered at least once, the effect happens once
 */
#ifndef ONCEMQ_H
#define ONCEMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct once; /* once.h */
struct once_run;
struct once_options;

#define OMQ_API     __attribute__((visibility("default")))
#define OMQ_VERSION "0.1.0"

OMQ_API const char *omq_version(void); /* of the library that is loaded */

/* ---- errors ---- */

enum omq_code {
    OMQ_OK = 0,
    OMQ_INVALID, /* an argument; nothing was done */
    OMQ_MISUSE,  /* a call that cannot be made here: from its own callback, after a close */
    OMQ_NO_MEMORY,
    OMQ_TIMEOUT,  /* no answer in time; a message may have been stored all the same */
    OMQ_NETWORK,  /* no server can be reached; nothing was done by any of the tries */
    OMQ_LOST,     /* the connection broke before the answer; a message may have been stored */
    OMQ_NO_TOPIC, /* there is no such topic, and it is not made by sending */
    OMQ_NO_GROUP,
    OMQ_DENIED, /* by a permission of the broker, the topic or the group */
    OMQ_TOO_BIG,
    OMQ_BUSY,    /* the broker or a limit of this client is full; try later */
    OMQ_REFUSED, /* the broker says no for another reason; the sentence has its words */
    OMQ_NOT_FOUND,
    OMQ_PROTOCOL, /* a server's answer cannot be read */
    OMQ_CLOSED,
    OMQ_KEPT, /* not sent yet: the message is in the producer's retry table, and will be */
};

struct omq_error {
    int code;          /* enum omq_code */
    int response_code; /* the broker's own, of remoting; 0: it was not the broker */
    char text[504];
};

OMQ_API const char *omq_code_text(int code); /* "timeout"; never NULL */

/* ---- the client ---- */

struct omq_client;

enum omq_level { OMQ_DEBUG, OMQ_INFO, OMQ_WARN, OMQ_ERROR };

struct omq_client_options {
    const char *names;     /* required, or names_url: name servers, "host:port;host:port" */
    const char *names_url; /* if there are no `names`: a page that lists them in the same form,
                              "http://host:port/path" (not https); read every two minutes */
    const char *instance;  /* part of the client id; default: process id and a number. Must differ
                              between processes of one machine, and stay for OMQ_BROADCAST */
    const char *unit;      /* added to the client id */
    const char *ip;        /* the first part of the client id; default: the first address of this
                              machine that others can reach, 127.0.0.1 if it has none */
    const char *access_key, *secret_key, *security_token; /* sign every request (ACL) */
    /* TLS (1.2 or later) with name servers and brokers, all of them. A server's certificate has to
     * be signed by an authority and to be for the name, or the address, by which the server is
     * reached: `names` has those of the name servers, and brokers tell theirs (brokerIP1), which
     * are addresses as a rule. */
    bool tls;
    const char *tls_ca;             /* PEM file; default: the system's authorities */
    const char *tls_cert, *tls_key; /* PEM files, if the server wants to know who we are; the key
                                       has no password */
    bool tls_insecure;              /* do not look at the server's certificate: for tests */
    int timeout_ms;                 /* of a request that has no timeout of its own; 3,000 */
    int route_every_ms;             /* how often routes are looked at again; 30,000 */
    int heartbeat_every_ms;         /* 30,000 */
    const char *state_dir; /* offsets of broadcast consumers; default ~/.rocketmq_offsets */

    /* What the library would like to tell: lost connections, decisions that did not arrive.
     * Default: nobody. */
    void (*log)(void *user, int level, const char *line);
    void *user;
    void *reserved[8];
};

/* Asks no server yet: one that is down now may be up when it is needed. */
OMQ_API int omq_client_open(const struct omq_client_options *options, struct omq_client **out,
                            struct omq_error *why);
/* Closes what was made from it and is still open, as its own close would, then itself. NULL is
 * fine. */
OMQ_API void omq_client_close(struct omq_client *client);
OMQ_API const char *omq_client_id(const struct omq_client *client); /* "10.0.0.7@4711#1" */

/* ---- messages ---- */

struct omq_property {
    const char *name, *value; /* neither is empty or has the bytes 1 or 2 in it */
};

/* A place in a topic. */
struct omq_queue {
    const char *topic, *broker;
    int32_t id;
};

/* A message to be sent. */
struct omq_message {
    const char *topic; /* required */
    const void *body;
    size_t body_size;
    const char *tag;  /* one word, for consumers to choose by */
    const char *keys; /* words to find it by later, with blanks between them: an order number */
    const struct omq_property *properties; /* your own; names in capitals may be the protocol's */
    size_t n_properties;
    int32_t flag; /* yours; handed through */

    /* Order: messages with the same key go to the same queue, in the order of the calls of one
     * thread. Or exactly there. A message with such a place is never tried elsewhere. */
    const char *sharding_key;
    const struct omq_queue *queue; /* its topic is not looked at */

    /* Later. At most one of them. */
    int delay_level;    /* 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h */
    int64_t delay_ms;   /* from now on */
    int64_t deliver_ms; /* at this time, in ms since 1970 */

    bool no_wait;   /* with SYNC_FLUSH: do not wait for the disk or a replica */
    const char *id; /* its unique id; default: a new one. The same id for all tries of one send */
    void *reserved[4];
};

enum omq_stored {
    OMQ_STORED,          /* as safe as the broker is set to make it */
    OMQ_STORED_NO_FLUSH, /* stored, but the disk did not answer in time */
    OMQ_STORED_NO_COPY,  /* stored, but the replica did not answer in time, or there is none */
};

struct omq_receipt {
    int stored;         /* enum omq_stored */
    char id[64];        /* the message's unique id: consumers see the same */
    char offset_id[64]; /* where it stands: for omq_view and mqadmin */
    char broker[256];
    int32_t queue_id;
    int64_t queue_offset;
    bool duplicate;   /* the broker had it already, from an earlier try (producer dedup) */
    char recall[512]; /* for omq_recall; empty unless it is to be delivered later */
    char transaction[64];
};

/* ---- producers ---- */

struct omq_producer;

enum omq_compression { OMQ_ZLIB, OMQ_LZ4, OMQ_ZSTD };
enum omq_decision { OMQ_UNKNOWN, OMQ_COMMIT, OMQ_ROLLBACK };

struct omq_delivery;

struct omq_producer_options {
    const char *group;  /* required: programs that send the same kind of message */
    int timeout_ms;     /* of a send with all its tries; 3,000 */
    int try_timeout_ms; /* of each try but the last, for brokers that take messages and say nothing;
                           0: all the time there is, so that a slow broker gets no second copy */

    /* Further tries; 2; -1: none. Made, while there is time, when a broker cannot be reached, when
     * a connection breaks before the answer, and when a broker refuses for a reason of its own
     * (busy, no permission, no such topic). Each has the message's id again and goes to another
     * broker if there is one, so a message may be stored twice under one id. A message with a queue
     * or a sharding_key is tried again only if the first try surely did nothing. */
    int retries;
    /* For brokers with producer dedup, which know their own messages only: the second try goes to
     * the same queue. Then nothing is stored twice, and messages with a place are retried, too. */
    bool retry_same_broker_first;
    bool retry_not_stored; /* also when the answer is other than OMQ_STORED */
    bool retry_undone;     /* only when no try before can have done anything: never a second copy */
    /* A local retry table: a file for messages of omq_send_async that come to nothing for a reason
     * that may pass (OMQ_TIMEOUT, OMQ_NETWORK, OMQ_LOST, OMQ_BUSY, OMQ_CLOSED). Their `done` hears
     * OMQ_KEPT, and they are sent again every second, each under its id, until a broker has them:
     * by this producer, or by the next one that opens the file. What has a queue or a sharding_key
     * is not kept: later ones would overtake it. The file outlives the program, not a power cut. */
    const char *retry_table;
    int retry_table_mib;     /* at most so much of it; 64; beyond, `done` hears the failure */
    bool avoid_slow;         /* leave out brokers that were slow or gone for a while */
    size_t compress_over;    /* bodies from this size on, if they shrink; 4,096; SIZE_MAX: never */
    int compression;         /* enum omq_compression */
    int compression_level;   /* 5 */
    size_t max_message_size; /* of a body, or of one request of a batch; 4 MiB, at most 8 MiB */
    int max_in_flight;       /* of omq_send_async and omq_send_oneway; beyond: OMQ_BUSY; 65,535 */
    int queues;              /* of a topic that is made by sending to it; 4 */
    bool trace;              /* send message trace */
    const char *trace_topic; /* RMQ_SYS_TRACE_TOPIC */

    /* Chooses the queue of a message with a sharding key: an index, taken modulo n. Default: a
     * hash, the Java client's SelectMessageQueueByHash. */
    size_t (*choose)(void *user, const struct omq_message *message, const struct omq_queue *queues,
                     size_t n);
    /* For transactions: what became of this one? Asked, on a thread of its own, when a broker has
     * waited too long, also about messages of another member of the group that is gone. */
    int (*check)(void *user, const struct omq_delivery *half); /* enum omq_decision */
    void *user;
    void *reserved[8];
};

OMQ_API int omq_producer_open(struct omq_client *client, const struct omq_producer_options *options,
                              struct omq_producer **out, struct omq_error *why);
/* Waits for what is on its way, at most its timeout; what is left then ends with OMQ_CLOSED. */
OMQ_API void omq_producer_close(struct omq_producer *producer);

/* Sends and waits for the answer. `receipt` may be NULL. */
OMQ_API int omq_send(struct omq_producer *producer, const struct omq_message *message,
                     struct omq_receipt *receipt, struct omq_error *why);

/* Sends; `done` is called exactly once, unless this returns an error. `receipt` is NULL when `why`
 * is not. Both last as long as the call. */
typedef void omq_sent(void *user, const struct omq_receipt *receipt, const struct omq_error *why);
OMQ_API int omq_send_async(struct omq_producer *producer, const struct omq_message *message,
                           omq_sent *done, void *user, struct omq_error *why);

/* Sends and asks for no answer: it may be lost. */
OMQ_API int omq_send_oneway(struct omq_producer *producer, const struct omq_message *message,
                            struct omq_error *why);

/* Messages of one topic, without delay, all with the same queue, sharding_key and no_wait, in as
 * few requests as their size allows; each request goes to one queue. `receipts` (NULL, or n of
 * them) has one for each. On an error `*n_sent` (may be NULL) says how many were stored before it,
 * and their receipts are filled. */
OMQ_API int omq_send_batch(struct omq_producer *producer, const struct omq_message *messages,
                           size_t n, struct omq_receipt *receipts, size_t *n_sent,
                           struct omq_error *why);

/* Takes back a message with delay_ms or deliver_ms that has not been delivered. OMQ_NOT_FOUND: too
 * late. */
OMQ_API int omq_recall(struct omq_producer *producer, const char *topic, const char *recall,
                       struct omq_error *why);

/* A transaction: the message, which has no delay, is stored out of sight, `local` is called, and
 * what it decides makes the message visible or undone. OMQ_UNKNOWN, or a decision that gets lost:
 * the broker asks `check`, which the producer must have. `local` runs on the calling thread, unless
 * the message is not OMQ_STORED: then it is not called, and the decision is OMQ_ROLLBACK. `receipt`
 * and `decision` may be NULL. */
typedef int omq_local(void *user, const struct omq_message *message,
                      const struct omq_receipt *receipt); /* enum omq_decision */
OMQ_API int omq_send_transaction(struct omq_producer *producer, const struct omq_message *message,
                                 omq_local *local, void *user, struct omq_receipt *receipt,
                                 int *decision, struct omq_error *why);

/* Request and reply: waits for a consumer's answer to this very message, `timeout_ms` in all (0:
 * the producer's). `*reply` is freed with omq_delivery_free. */
OMQ_API int omq_request(struct omq_producer *producer, const struct omq_message *message,
                        int timeout_ms, struct omq_delivery **reply, struct omq_error *why);
/* Answers a message that somebody waits for. OMQ_INVALID: nobody does. */
OMQ_API int omq_reply(struct omq_producer *producer, const struct omq_delivery *to,
                      const void *body, size_t body_size, struct omq_error *why);

/* The queues of a topic that can be written to, as the name servers know them now; freed with
 * omq_queues_free. */
OMQ_API int omq_topic_queues(struct omq_client *client, const char *topic,
                             struct omq_queue **queues, size_t *n, struct omq_error *why);
/* The same of those that can be read, which is what omq_reader_assign and omq_read want. */
OMQ_API int omq_topic_readable(struct omq_client *client, const char *topic,
                               struct omq_queue **queues, size_t *n, struct omq_error *why);
OMQ_API void omq_queues_free(struct omq_queue *queues);

/* ---- received messages ---- */

/* A message that has arrived. Its parts are valid as long as it is: in a handler, until it returns;
 * else until it is freed. */
struct omq_delivery {
    struct omq_queue queue; /* its topic is the one it was sent to, also when it comes again */
    int64_t offset;
    const char *id;        /* the same in all deliveries of one message */
    const char *offset_id; /* where this copy of it stands */
    const void *body;
    size_t body_size;
    const char *tag, *keys;                /* "" if there is none */
    const struct omq_property *properties; /* all of them, also the protocol's own */
    size_t n_properties;
    int32_t flag;
    int32_t attempt; /* 1: the first time */
    int64_t born_ms, stored_ms;
    const char *born_host;
    struct once_run *run; /* with `once`: to be asked for fence, connection, steps; else NULL */
};
OMQ_API const char *omq_delivery_property(const struct omq_delivery *delivery,
                                          const char *name); /* NULL: there is none */
/* A copy that lives until it is freed; NULL: no memory. */
OMQ_API struct omq_delivery *omq_delivery_copy(const struct omq_delivery *delivery);
OMQ_API void omq_delivery_free(struct omq_delivery *delivery);

/* ---- consumers: messages come to you ---- */

struct omq_consumer;

enum omq_start { OMQ_FROM_LAST, OMQ_FROM_FIRST, OMQ_FROM_TIME };
enum omq_spread { OMQ_CLUSTER, OMQ_BROADCAST }; /* each message to one member, or to each */
enum omq_acknowledge { OMQ_AFTER, OMQ_BEFORE };
enum omq_result {
    OMQ_DONE,
    OMQ_LATER, /* it failed */
    OMQ_DEFER, /* of struct omq_ending only: not now; it was no attempt */
    OMQ_DEAD,  /* of struct omq_ending only: a dead letter at once */
};

/* How the queues of a topic are shared among the members of a group. All members must say the
 * same; these are the Java client's strategies, queue by queue. */
enum omq_share {
    OMQ_AVERAGELY,
    OMQ_BY_CIRCLE,
    OMQ_BY_CONFIG,
    OMQ_BY_ROOM,
    OMQ_BY_ROOM_NEARBY,
    OMQ_BY_HASH,
};

struct omq_subscription {
    const char *topic;      /* required */
    const char *expression; /* "tag" or "tag || tag"; NULL or "*": all */
    bool sql;               /* it is an SQL92 expression over properties instead */
};

struct omq_consumer_options {
    const char *group; /* required: programs that do the same with the same messages */
    const struct omq_subscription *subscriptions; /* required; the same in all members */
    size_t n_subscriptions;

    /* Called with 1 to `batch` messages of one queue, on one of `threads` threads, perhaps before
     * omq_consumer_open has returned; NULL: you take them yourself (omq_consumer_take). OMQ_DONE:
     * all of them are done. OMQ_LATER: those from `*done` on (0 when called) come again, after a
     * growing pause. In order: the queue waits `suspend_ms` and they come again before all others.
     * Broadcast, or OMQ_BEFORE: what fails is passed over. A message whose body is damaged is never
     * handed in; it becomes a dead letter. */
    int (*handle)(void *user, const struct omq_delivery *const *messages, size_t n, size_t *done);
    void *user;

    bool ordered;            /* one message of a queue at a time, in order; else many at once */
    int spread, acknowledge; /* enum omq_spread, enum omq_acknowledge. A broadcast member keeps its
                                offsets in a file (state_dir) under its client id */
    int start;               /* a new group's first message: enum omq_start */
    int64_t start_ms;        /* for OMQ_FROM_TIME, in ms since 1970; half an hour ago */
    int threads;             /* 20 */
    int batch;               /* 1 */
    int max_attempts;        /* retries, then it becomes a dead letter; 16; in order: for ever */
    int timeout_ms;          /* of a handler; then the message comes again elsewhere; 15 min */
    int suspend_ms;          /* 1,000 */
    int lock_ms;             /* in order: how long a queue is ours since its broker said so; renewed
                                after two thirds. Below the broker's own 60,000; 30,000 */
    int pull_batch;          /* 32 */
    int max_messages, max_mib, max_span; /* waiting here for each queue; 1,000, 100, 2,000 */
    bool pop; /* the broker keeps the accounts: no queue belongs to anybody. Goes with neither
                 ordered, OMQ_BROADCAST nor OMQ_BEFORE; `timeout_ms` is `invisible_ms` */
    int invisible_ms;        /* with pop: how long a message is ours; 5,000 to 300,000; 60,000 */
    int close_ms;            /* how long a close waits for handlers that run; 30,000 */
    bool trace;              /* send message trace */
    const char *trace_topic; /* RMQ_SYS_TRACE_TOPIC */

    int share;                             /* enum omq_share */
    const struct omq_queue *config_queues; /* OMQ_BY_CONFIG */
    size_t n_config_queues;
    const char *rooms; /* OMQ_BY_ROOM: "room1,room2"; brokers are called room@name */
    /* OMQ_BY_ROOM_NEARBY: in which room is this broker, or (broker NULL) this client? The answer is
     * copied before the next question. */
    const char *(*room_of)(void *user, const char *broker, const char *client_id);
    int nearby_share; /* within a room; OMQ_AVERAGELY */
    int hash_nodes;   /* OMQ_BY_HASH; 10 */

    /* Exactly once: the handler is called only for what is not done yet; see once.h, whose options
     * these are (`group`, `ladder_ms`, `client` and `log` are filled in). Without a `store` it is
     * remembered by the broker itself, broker:, which must be OnceMQ (an error says so, and then
     * another store has to be named); with transactions and offsets in sqlite:once.db. What is done
     * already is acknowledged; what is being done elsewhere comes again without counting an
     * attempt. Messages that wait are asked for together, 256 at most, if their claims are renewed:
     * their `run` begins then, `timeout_ms` with the handler. What took less than half a
     * millisecond may be marked together with the next messages. With transactions and offsets the
     * handler gets one message at a time, writes through messages[0]->run, and `batch` counts as 1.
     * ONCE_OFFSET: what fails is tried again here after `suspend_ms`, has no `timeout_ms`, and
     * wants `handle`. Goes with neither OMQ_BROADCAST nor OMQ_BEFORE. */
    const struct once_options *once;
    void *reserved[7];
};

/* For once_stats and the like, as long as the consumer is open; NULL: it was opened without. */
OMQ_API struct once *omq_consumer_once(const struct omq_consumer *consumer);

/* Waits for no server, except that a broker is asked whether it understands an SQL92 expression, if
 * one can be reached. Messages come when the topic has been found. */
OMQ_API int omq_consumer_open(struct omq_client *client, const struct omq_consumer_options *options,
                              struct omq_consumer **out, struct omq_error *why);
/* Begins no further message, waits for handlers that run and batches that are taken (`close_ms`),
 * tells the broker how far it came, and has its answer. What nobody had begun comes to another
 * member. A handler that runs longer is left alone: what it returns counts no more, and its
 * messages come again; `user` must outlive it. */
OMQ_API void omq_consumer_close(struct omq_consumer *consumer);
/* No handler begins after a pause has returned; those that run go on. Nothing is lost or given up.
 */
OMQ_API void omq_consumer_pause(struct omq_consumer *consumer);
OMQ_API void omq_consumer_resume(struct omq_consumer *consumer);
/* Adds a topic, or changes its expression. All members of a group must do the same. */
OMQ_API int omq_consumer_subscribe(struct omq_consumer *consumer,
                                   const struct omq_subscription *subscription,
                                   struct omq_error *why);
OMQ_API int omq_consumer_unsubscribe(struct omq_consumer *consumer, const char *topic,
                                     struct omq_error *why);

/* Without `handle`: for languages whose functions cannot be called from foreign threads. Waits for
 * the next messages, at most `timeout_ms`; OMQ_TIMEOUT: none, OMQ_CLOSED: there will be none. Each
 * batch is finished once, which frees it: from any thread, in any order, also after the close;
 * `result` and `done` as for the handler. */
struct omq_batch;
OMQ_API int omq_consumer_take(struct omq_consumer *consumer, int timeout_ms, struct omq_batch **out,
                              struct omq_error *why);
OMQ_API const struct omq_delivery *const *omq_batch_messages(const struct omq_batch *batch,
                                                             size_t *n);
OMQ_API void omq_batch_finish(struct omq_batch *batch, int result, size_t done);

/* The same for many batches at a time, for programs that have many under way: what is there is
 * taken at once, at most `max`; and what has ended goes back together. What is put off with
 * OMQ_DEFER stays here and comes again after `after_ms`, an hour at most; in order, nothing of its
 * queue comes before it. */
OMQ_API int omq_consumer_take_all(struct omq_consumer *consumer, int timeout_ms,
                                  struct omq_batch **out, size_t max, size_t *n,
                                  struct omq_error *why);
struct omq_ending {
    struct omq_batch *batch;
    int result;  /* enum omq_result */
    size_t done; /* as for the handler: what is said is said of those from here on */
    int64_t after_ms;
    void *reserved[2];
};
OMQ_API void omq_batch_finish_all(const struct omq_ending *endings, size_t n);

/* ---- readers: you ask for messages ----
 *
 * A reader gives nothing back to the broker: a batch that is finished with OMQ_LATER comes again
 * here, at once, from `done` on. What is finished is what is committed, up to the first message of
 * each queue that is not: by itself every commit_every_ms and at the close, or when you say so.
 */
struct omq_reader;

struct omq_reader_options {
    const char *group; /* required */
    int start;         /* as for consumers */
    int64_t start_ms;
    int commit_every_ms;       /* 5,000; -1: by you alone, also at the close */
    int pull_batch;            /* and the most that one take gives; 10 */
    int max_messages, max_mib; /* waiting here for each queue; 1,000, 100 */
    int share;                 /* of subscribed topics: OMQ_AVERAGELY, OMQ_BY_CIRCLE, OMQ_BY_HASH */
    bool sql;                  /* of queues that are assigned: as for subscriptions */
    const char *expression;
    void *reserved[7];
};
OMQ_API int omq_reader_open(struct omq_client *client, const struct omq_reader_options *options,
                            struct omq_reader **out, struct omq_error *why);
/* Does not wait for batches that are taken: they may be finished later, and come again. */
OMQ_API void omq_reader_close(struct omq_reader *reader);
/* Either topics, shared with the other members of the group … */
OMQ_API int omq_reader_subscribe(struct omq_reader *reader,
                                 const struct omq_subscription *subscription,
                                 struct omq_error *why);
/* … or exactly these queues, instead of those before. The group's other members do not hear of it.
 */
OMQ_API int omq_reader_assign(struct omq_reader *reader, const struct omq_queue *queues, size_t n,
                              struct omq_error *why);
/* The next messages of one queue, as omq_consumer_take. */
OMQ_API int omq_reader_take(struct omq_reader *reader, int timeout_ms, struct omq_batch **out,
                            struct omq_error *why);
/* Goes on there; what was taken before does not count any more. OMQ_NOT_FOUND: the queue is not the
 * reader's just now. */
OMQ_API int omq_reader_seek(struct omq_reader *reader, const struct omq_queue *queue,
                            int64_t offset, struct omq_error *why);
OMQ_API int omq_reader_commit(struct omq_reader *reader, struct omq_error *why); /* and waits */
OMQ_API int omq_reader_commit_async(struct omq_reader *reader, struct omq_error *why);
/* What the broker has; OMQ_NOT_FOUND: nothing. */
OMQ_API int omq_reader_committed(struct omq_reader *reader, const struct omq_queue *queue,
                                 int64_t *offset, struct omq_error *why);
enum omq_bound { OMQ_BEGIN, OMQ_END };
OMQ_API int omq_offset(struct omq_client *client, const struct omq_queue *queue, int bound,
                       int64_t *offset, struct omq_error *why);
/* The first message stored at that time or later. */
OMQ_API int omq_offset_at(struct omq_client *client, const struct omq_queue *queue, int64_t time_ms,
                          int64_t *offset, struct omq_error *why);

/* ---- looking things up, numbers ---- */

/* The message with that offset_id of a receipt, freed with omq_delivery_free. `topic` may be NULL.
 * The broker is found by the id, so queue.broker is "". */
OMQ_API int omq_view(struct omq_client *client, const char *topic, const char *offset_id,
                     struct omq_delivery **out, struct omq_error *why);

/* Messages that were found, in the order of their storing; freed with omq_found_free. A body that
 * cannot be expanded is as it was stored. */
struct omq_found {
    struct omq_delivery **messages;
    size_t n;
};
OMQ_API void omq_found_free(struct omq_found *found); /* what is in it; not itself */

/* The messages of a topic with that word among their keys, or with that unique id: all brokers of
 * the topic are asked, and all have answered. None is no error. A message is found some moments
 * after it was stored, when its broker has dispatched it. */
struct omq_query {
    const char *topic;        /* required */
    const char *key, *id;     /* one of them is required */
    int64_t begin_ms, end_ms; /* when it was stored; 0: at any time */
    int max;                  /* from each broker, which may have a limit of its own; 32 */
    void *reserved[4];
};
OMQ_API int omq_query(struct omq_client *client, const struct omq_query *query,
                      struct omq_found *out, struct omq_error *why);

/* What stands in a queue from an offset on, asked by nobody in particular: nothing is committed,
 * and no group hears of it. `*next` is where to go on: behind what was found and what the filter
 * left out, or where the queue begins or ends now if the offset is not in it. */
struct omq_read {
    struct omq_queue queue; /* required; see omq_topic_readable */
    int64_t offset;
    int max;                               /* messages; 32; brokers give fewer at a time */
    const struct omq_subscription *filter; /* its topic is not looked at; NULL: all */
    int wait_ms;                           /* for the next one, at the end of the queue */
    void *reserved[4];
};
OMQ_API int omq_read(struct omq_client *client, const struct omq_read *read, struct omq_found *out,
                     int64_t *next, struct omq_error *why);

/* Any request of the remoting protocol, by its number: what administration is made of. `server` is
 * "host:port" of a broker or a name server; NULL: any of the name servers. A value of a field may
 * be empty. Waits at most `timeout_ms` (0: the client's). A server's no is an error with its
 * `response_code`. Freed with omq_answer_free. */
struct omq_answer {
    const char *remark; /* "" if there is none */
    const struct omq_property *fields;
    size_t n_fields;
    const void *body; /* with a NUL behind it that is not counted */
    size_t body_size;
};
OMQ_API int omq_call(struct omq_client *client, const char *server, int request,
                     const struct omq_property *fields, size_t n_fields, const void *body,
                     size_t body_size, int timeout_ms, struct omq_answer **out,
                     struct omq_error *why);
OMQ_API const char *omq_answer_field(const struct omq_answer *answer, const char *name); /* NULL */

/* Many requests, of one server or of several: up to 64 are under way at a time, and a server that
 * is silent keeps none of the others waiting. `timeout_ms` is of each. OMQ_OK: each was asked, and
 * has its own `code`; otherwise none was. */
struct omq_question {
    const char *server; /* NULL: any of the name servers */
    int request;
    const struct omq_property *fields;
    size_t n_fields;
    const void *body;
    size_t body_size;
    uint64_t reserved[2];

    /* Filled in. */
    int code;                  /* an enum omq_code */
    struct omq_answer *answer; /* NULL unless `code` is OMQ_OK; omq_answer_free */
    struct omq_error why;      /* unless it is */
};
OMQ_API int omq_call_all(struct omq_client *client, struct omq_question *questions, size_t n,
                         int timeout_ms, struct omq_error *why);
/* One, without waiting: `done` is called exactly once, unless this returns an error. `answer` is
 * NULL when `why` is not. Both last as long as the call. */
typedef void omq_called(void *user, const struct omq_answer *answer, const struct omq_error *why);
OMQ_API int omq_call_async(struct omq_client *client, const struct omq_question *question,
                           int timeout_ms, omq_called *done, void *user, struct omq_error *why);
OMQ_API void omq_answer_free(struct omq_answer *answer);

/* Since the client was opened, but for `connections`, `waiting` and `kept`, which are as of now. */
struct omq_stats {
    uint64_t sent, send_retries, send_failures; /* messages, tries beyond the first, messages */
    uint64_t received, handled;                 /* messages from brokers; those that are done */
    uint64_t sent_back, dead; /* given back to brokers; of these, for the last time */
    uint64_t connections, reconnects;
    uint64_t waiting; /* messages here that no handler has seen yet */
    uint64_t kept;    /* messages in the retry tables of its producers */
    uint64_t reserved[6];
};
OMQ_API void omq_client_stats(const struct omq_client *client, struct omq_stats *out);

#ifdef __cplusplus
}
#endif

#endif
