/* parts_int.h - the pure parts of the client: what it decides, without the network it decides
 * about.
 *
 *     share    which queues of a topic are mine, among the members of a group
 *     pick     which queue a message goes to
 *     faults   which brokers to leave out for a while
 *     trace    what is told about messages, as bytes
 *
 * Everything here is a function of its arguments: no socket, no lock, no clock (time comes in as
 * `now_ms`, of any clock that does not jump), no logging. Members of a group compute their shares
 * each for itself and must come to the same result, also beside Java clients; so shares and the
 * choice by key are the Java client's (5.5.0), to the last queue. tests/interop/client_parts.py
 * holds them against it.
 *
 * Threads: any, on different objects; on the same one only where it says so.
 */
#ifndef CLIENT_PARTS_INT_H
#define CLIENT_PARTS_INT_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/dice.h"
#include "base/err.h"
#include "oncemq.h"

#include <stdatomic.h>

/* ---- share: the queues of a topic among the members of a group ----
 *
 * Every member knows the same sorted queues and the same sorted client ids and takes its part of
 * them, so that together they take each queue once, without a word between them:
 *
 *     averagely     a run of neighbours each; the first members take one more each if it does not
 *                   work out
 *     by circle     dealt like cards
 *     by config     what was configured, whatever the others do
 *     by room       of brokers called room@name those whose room is listed; dealt in runs, what is
 *                   left over one each
 *     room nearby   the queues of a room among the clients of that room; those of a room without
 *                   clients among all. How they are dealt is another of these strategies
 *     by hash       clients stand on a ring of hashes, at several places each; a queue belongs to
 *                   the next client on the ring
 */
struct share_rule {
    enum omq_share kind;
    const struct omq_queue *config; /* by config; queues that the topic has not are left out */
    size_t n_config;
    const char *rooms; /* by room: "room1,room2" */
    /* Room nearby: in which room is this broker, or (broker NULL) this client? The answer is copied
     * before the next question. */
    const char *(*room_of)(void *user, const char *broker, const char *client_id);
    void *user;
    enum omq_share nearby; /* within a room: averagely, by circle, by room or by hash */
    int hash_nodes;        /* places of a client on the ring; 0: 10, Java's default */
};

struct share_table {
    const struct omq_queue *queues; /* sorted by queue_compare */
    size_t n_queues;
    const char *const *clients; /* sorted by name_compare */
    size_t n_clients;
    const char *me;
};

/* Writes the indexes of my queues to `mine`, which has room for all, in the order in which Java
 * lists them. None when I am not among the clients (but by config Java does not ask). ERR_INVALID:
 * no queues, no clients, no me, a rule that lacks what it needs, a broker or client in no room. */
must_check enum err share_mine(const struct share_rule *rule, const struct share_table *table,
                               size_t *mine, size_t *n_mine);

/* The order of Java's strings, by UTF-16 units: beyond U+FFFF it is not that of the bytes. */
int name_compare(const char *a, const char *b);
int queue_compare(const struct omq_queue *a, const struct omq_queue *b); /* topic, broker, id */

/* ---- faults: brokers to leave out for a while ----
 *
 * After each send the producer notes how long the broker took. One that was slow is left out for a
 * time that grows with its slowness; one that failed counts as if it had taken ten seconds. These
 * are the steps of the Java client 5.x:
 *
 *     took at least      550   1,800   3,000   5,000   15,000 ms
 *     is left out for  2,000   5,000   6,000  10,000   30,000 ms
 *
 * A later, quicker answer does not shorten it. Beside that a broker may be out of reach, which
 * lasts until somebody reaches it; it counts only when no broker is left that is not slow.
 *
 * Only brokers with a fault are in the table; it has a limit, and the fault that ends first makes
 * room for a new one. Threads: one at a time; the caller's lock.
 */
#define FAULTS_MAX        1024
#define FAULTS_FAILURE_MS 10000

struct fault_entry {
    char *broker;
    int64_t until_ms;
    bool reachable;
};
struct faults {
    struct fault_entry *entries; /* zeros: empty */
    size_t n, cap;
};
void faults_clear(struct faults *f);

enum sent { SENT, SENT_FAILED, SENT_UNREACHABLE };
/* ERR_NO_MEMORY: the fault is forgotten, nothing else is lost. */
must_check enum err faults_note(struct faults *f, const char *broker, enum sent how,
                                int64_t took_ms, int64_t now_ms);
bool faults_slow(const struct faults *f, const char *broker, int64_t now_ms);
bool faults_unreachable(const struct faults *f, const char *broker);
void faults_reached(struct faults *f, const char *broker); /* somebody did */
void faults_forget(struct faults *f, const char *broker);  /* it is in no route any more */

/* ---- pick: the queue of a message ----
 *
 * Round robin over the queues in the route's order, from a random start, so that many producers do
 * not all begin at the same broker. A retry takes the next queue of another broker, if there is
 * one. With `faults`: the next queue whose broker is neither slow nor the last one; else one that
 * is reachable and not the last one; else the next.
 */
struct pick {
    _Atomic uint32_t turn;
};
void pick_init(struct pick *p, struct dice *dice);

/* Any thread. `last` is the broker of the try before, or NULL; `faults` may be NULL.
 * ERR_NOT_FOUND: there are no queues. */
must_check enum err pick_next(struct pick *p, const struct omq_queue *queues, size_t n,
                              const char *last, const struct faults *faults, int64_t now_ms,
                              size_t *out);
/* Messages with the same key go to the same queue, the one that Java's SelectMessageQueueByHash
 * takes. n > 0. */
size_t pick_by_key(struct bytes key, size_t n);

/* ---- trace: what is told about messages ----
 *
 * One trace message has several records in its body, and as its keys the ids and keys of all
 * messages it tells about, so that it can be found by each of them. A record is text:
 *
 *     field \1 field \1 … field \2
 *
 * What is missing is the word null: Java's reader loses empty fields at the end of a record. The
 * bytes 1 and 2 inside a field become blanks.
 */
#define TRACE_BODY_MAX 128000 /* what Java's trace producer allows itself */
#define TRACE_KEYS_MAX 24576  /* all properties of a message have 32,767 */

enum trace_kind {
    TRACE_PUB,
    TRACE_SUB_BEFORE,
    TRACE_SUB_AFTER,
    TRACE_END_TRANSACTION,
    TRACE_RECALL
};
enum trace_type { TRACE_NORMAL, TRACE_HALF, TRACE_COMMIT, TRACE_DELAY, TRACE_ORDER };
enum trace_state { TRACE_COMMITTED, TRACE_ROLLED_BACK, TRACE_UNDECIDED };
/* What became of a handler's call. */
enum trace_result { TRACE_DONE, TRACE_TIMEOUT, TRACE_EXCEPTION, TRACE_NULL, TRACE_FAILED };

/* P, B, A, E, R: the kinds that have it, in their order above. Empty text: missing. */
struct trace_record {
    enum trace_kind kind;
    int64_t time_ms;            /* all */
    struct bytes region;        /* P B E R */
    struct bytes group;         /* all */
    struct bytes topic;         /* P E R */
    struct bytes id;            /* all; the message's unique id */
    struct bytes tags;          /* P E */
    struct bytes keys;          /* P B A E */
    struct bytes store_host;    /* P E */
    struct bytes offset_id;     /* P */
    struct bytes request_id;    /* B A: the same in both ties them together */
    struct bytes transaction;   /* E */
    int32_t body_size, cost_ms; /* P, P A */
    int32_t retry;              /* B: how often it was delivered before */
    enum trace_type type;       /* P E */
    enum trace_state state;     /* E */
    enum trace_result result;   /* A */
    bool success;               /* P A R */
    bool from_check;            /* E */
};

struct trace_batch {
    struct buf body, keys; /* keys: words with blanks between them, each once */
    size_t n;              /* records in it */
};
void trace_init(struct trace_batch *t);
void trace_clear(struct trace_batch *t); /* frees; may be used again */
void trace_reset(struct trace_batch *t); /* empty again, memory kept */

/* ERR_TOO_BIG: it has no room beside those before: send them, and begin anew. In an empty batch
 * only keys can be too many; those that do not fit are left out there. ERR_NO_MEMORY. */
must_check enum err trace_add(struct trace_batch *t, const struct trace_record *r);

#endif
