/* once.h - libonce: a message may come twice; its effect happens once.
 *
 * This header is the manual. Read it once from top to bottom; each rule is said in one place.
 *
 * Queues deliver at least once: a producer repeats a send whose answer was lost, an acknowledgement
 * gets lost, a consumer restarts, an upstream system sends the same event twice. libonce stands
 * between the queue and your handler, asks a store that all consumers share "may this run now?",
 * and remembers the answer. It needs no broker: it works with any queue that redelivers what was
 * not acknowledged. (A consumer of oncemq.h does all of this by itself, with its option `once`.)
 *
 *     struct once_options with = {.store = "redis://127.0.0.1", .group = "coupons",
 *                                 .key = "coupon:{body.taskId}"};
 *     struct once *once;
 *     struct once_error why;
 *     if (once_open(&with, &once, &why))
 *         errx(1, "%s", why.text);
 *
 *     for each delivery:
 *         struct once_message m = {.topic = …, .body = …, .body_size = …};
 *         struct once_answer answer;
 *         switch (once_do(once, &m, handler, user, &answer)) {
 *         case ONCE_ACK:   acknowledge: it is done, by us now or by somebody before
 *         case ONCE_LATER: bring it again in answer.wait_ms; this counts as no attempt
 *         case ONCE_RETRY: it failed: bring it again as the queue does with failures
 *         case ONCE_BURY:  never: put it aside for people to look at
 *         }
 *
 * The modes, and what each can promise
 *
 *     ONCE_LEASE        the state lock. A claim with an expiry is renewed while the handler runs;
 *                       a crash frees it, a success leaves a mark that is kept for `retention_ms`.
 *                       Any effect, in any system. Not promised: an effect whose process died
 *                       between the effect and the mark happens again; so may one whose handler
 *                       outlived its claim, which is then told and counted.
 *     ONCE_TABLE        the dedup table: the same without renewal. `expiry_ms` must be longer than
 *                       any handler runs.
 *     ONCE_TRANSACTION  the mark is a row written in the same database transaction as your writes:
 *                       the module opens it, you write through the connection, the module commits.
 *                       Exactly once for what is in that database; nothing is said of the rest.
 *     ONCE_OFFSET       instead of a row for each message, the place reached in each queue is
 *                       written in your transaction. As above; but it knows one message by its
 *                       place, so an event that was sent twice is two events.
 *
 * Steps (ONCE_LEASE only) split a handler that calls several services; guards (within a
 * transaction) are for tables that can tell by themselves whether something was done.
 *
 * The rules
 *
 * Zero is the default. Every options struct works with nothing but what is marked "required".
 * Structs may grow in later releases by their `reserved` members only: leave those zero.
 *
 * Errors. A function that can fail returns an enum once_code, 0 for success. Its last parameter,
 * which may be NULL, gets the sentence: what happened, where, and what to do.
 *
 * Memory. What you hand in is copied or used before the call returns and stays yours. What you get
 * as `const` belongs to the library and lives as long as what it was asked of.
 *
 * Threads. All functions may be called from any thread; one struct once_run is one thread's at a
 * time. The module has one thread of its own for each struct once (two with a store that shares
 * commits; with broker: two more, of its client), which renews claims and sweeps the store; it runs
 * no code of yours but `log`.
 *
 * Processes. A struct once belongs to the process that opened it: a child made by fork() touches
 * none of its parent's, not even to close it, and opens its own.
 *
 * Time. Whether a claim has expired is judged by the store's clock, never by this machine's.
 */
#ifndef ONCE_H
#define ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_API __attribute__((visibility("default")))

/* ---- errors ---- */

enum once_code {
    ONCE_OK = 0,
    ONCE_INVALID, /* an argument, an option, an expression; nothing was done */
    ONCE_MISUSE,  /* a call that cannot be made here: a guard without a transaction */
    ONCE_NO_MEMORY,
    ONCE_STORE,       /* the store cannot be reached, or says no; the sentence has its words */
    ONCE_WIPED,       /* the store was emptied under us: what was done before is forgotten */
    ONCE_LOST,        /* the claim is not ours any more */
    ONCE_BUSY,        /* somebody else is at it; try later */
    ONCE_UNSUPPORTED, /* this store cannot do this mode, or was not built in */
    ONCE_CLOSED,
};

struct once_error {
    int code; /* enum once_code */
    char text[508];
};

ONCE_API const char *once_code_text(int code); /* never NULL */

/* ---- options ---- */

enum once_mode { ONCE_LEASE, ONCE_TABLE, ONCE_TRANSACTION, ONCE_OFFSET };
enum once_level { ONCE_DEBUG, ONCE_INFO, ONCE_WARN, ONCE_ERROR };

/* What becomes of a message whose key cannot be made, or whose body differs from the one that was
 * done under its key. */
enum once_policy {
    ONCE_BY_RETRY,       /* the queue's retries, then its dead letters */
    ONCE_BY_DEAD_LETTER, /* at once */
    ONCE_BY_MESSAGE_ID,  /* no key: the message's own id is taken instead */
    ONCE_BY_SUPPRESSION, /* another body: it counts as a duplicate, is counted and logged */
};

struct once_checker;       /* a store of your own: below */
struct omq_client_options; /* oncemq.h */

struct once_options {
    /* Where it is remembered:
     *
     *     broker:[NAME]                  the ledger of an OnceMQ broker: nothing else to run. By
     * its name, where a cluster has several. The default of a consumer of oncemq.h
     *     broker://host:port[;host:port]/[NAME]         the same, by these name servers
     *     memory:                        this process only; for tests, and for one process
     *     sqlite:FILE                    one machine; no server. Default: sqlite:once.db
     *     redis://[user:password@]host[:port][/db]
     *     rediss://…[?ca=FILE&cert=FILE&key=FILE]       the same over TLS
     *     redis+unix://[user:password@]/path[?db=N]
     *     postgresql://user:password@host:port/database?…       libpq's own form
     *     mysql://user:password@host[:port]/database            also MariaDB; socket=PATH as option
     */
    const char *store;
    const struct once_checker *checker; /* instead of `store` */
    void *checker_self;

    const char *group;  /* required: the consumer group */
    const char *scope;  /* within which a key is one: groups that share a scope share effects, and a
                           group that is renamed keeps its own by it. Default: the group */
    const char *prefix; /* put before every key */

    /* The key: text with parts of the message in it, "order:{body.orderId}:{prop.region}".
     *
     *     {key} {tag} {topic} {msgid}    KEYS, TAGS, topic, unique id
     *     {prop.NAME}                    a property
     *     {body.PATH}                    of a JSON body: names and indexes, a.b[0].c, ["odd name"]
     *     {{ and }}                      a brace; within a part, \ escapes the next character
     *
     * "$.path" alone means {body.path}. An expression without any part is refused: all messages
     * would be one. Default: "{key}". */
    const char *key;
    int no_key;     /* a part is missing, null or empty: enum once_policy, ONCE_BY_RETRY */
    int other_body; /* ONCE_BY_SUPPRESSION; ONCE_BY_RETRY means suppression as well */

    int mode;             /* enum once_mode */
    int64_t expiry_ms;    /* of a claim that nobody renews; lease 30,000; table 3,600,000 */
    int64_t retention_ms; /* how long done is remembered; default 72 h, RocketMQ's own retention */
    int64_t ladder_ms;    /* the longest time over which the queue brings a message again; default
                             17,140,000: sixteen retries. Retention below it is refused … */
    bool retention_short; /* … unless this is set; then it is a warning */
    bool open_when_down;  /* store down: run all the same, counted. Default: LATER, nothing runs */
    bool takeover; /* a claim whose process is gone is taken at once, not at its expiry, where
                      the store can tell. On broker: always so, and two seconds after its
                      connection was lost */

    bool create;        /* make what the store needs; the SQL is in docs/once.md. Always so for
                           sqlite: */
    const char *table;  /* SQL: first part of the tables' names; Redis: of the keys'. "once" */
    bool plain;         /* ONCE_LEASE on Redis: the well-known "0"/"1" state lock under exactly
                           prefix + key; ONCE_TABLE on SQL: a table (id, k, update_at) as it is.
                           Shared with programs that know no better, so without owner tokens and
                           not renewed. The lock's expiry and retention are 3,600,000 by default,
                           as everybody's; that is short, so it is a warning */
    int connections;    /* 50 at most; 5 are kept when idle */
    int wait_ms;        /* for a connection or a locked row, then LATER; 3,000 */
    int redis_replicas; /* WAIT for so many after each write; 0 */
    int sweep_rows;     /* forgotten per second at most; 1,000 */

    void (*log)(void *user, int level, const char *line);
    void *user;
    /* broker: name servers, TLS and keys of the client that asks it, which is one of its own. What
     * the URL names goes first. Default: the name servers ONCEMQ_NAMES, else 127.0.0.1:9876, and
     * the keys ONCEMQ_ACCESS_KEY, ONCEMQ_SECRET_KEY and ONCEMQ_SECURITY_TOKEN. A consumer of
     * oncemq.h fills in its own client's. */
    const struct omq_client_options *client;
    void *reserved[7];
};

struct once;

/* Reaches the store, and checks its version, tables and settings. A store that is down now is an
 * error, ONCE_STORE; one that goes down later is waited for. */
ONCE_API int once_open(const struct once_options *options, struct once **out,
                       struct once_error *why);
/* Every run shall have ended: one that has not keeps the store open until it has, is not renewed
 * any more, and what begins meanwhile is told LATER with ONCE_CLOSED. NULL is fine. */
ONCE_API void once_close(struct once *once);

/* ---- messages, verdicts ---- */

struct once_property {
    const char *name, *value;
};

struct once_message {
    const char *topic, *tag, *keys, *id; /* NULL counts as missing */
    const void *body;
    size_t body_size;
    const struct once_property *properties;
    size_t n_properties;
    int attempt; /* 1: the first; told to the handler, nothing else */

    /* ONCE_OFFSET: the place of the message. Nothing of this queue before `floor` will come any
     * more; 0 when that is not known. */
    const char *broker;
    int queue;
    int64_t offset, floor;
    void *reserved[4];
};

/* What to do with the message. */
enum once_verdict {
    ONCE_RUN,   /* of once_begin: run the handler, then once_end. Of once_end_all: end it again */
    ONCE_ACK,   /* done, now or before: acknowledge */
    ONCE_LATER, /* bring it again in wait_ms, without counting an attempt */
    ONCE_RETRY, /* failed: as the queue does with failures */
    ONCE_BURY,  /* put it aside */
};

/* Why. */
enum once_cause {
    ONCE_FIRST,      /* RUN; ACK: the handler ran and its effect is recorded */
    ONCE_DUPLICATE,  /* ACK: it was done before */
    ONCE_OTHER_BODY, /* ACK, BURY: it was done before, with another body */
    ONCE_RUNNING,    /* LATER: somebody is at it */
    ONCE_NO_KEY,     /* RETRY, BURY */
    ONCE_DOWN,       /* LATER: the store cannot be asked. RUN, then ACK: nor did it matter, by
                        open_when_down */
    ONCE_EMPTIED,    /* LATER: the store was emptied; see once_accept_wiped */
    ONCE_FAILED_RUN, /* RETRY: the handler said so */
    ONCE_LOST_CLAIM, /* LATER: the claim was lost; what the handler did is not recorded */
    ONCE_UNSURE,     /* LATER: the handler is done, but the store could not be told in time: in
                        ONCE_LEASE and ONCE_TABLE it may run again. RUN: of once_end_all, not told
                        yet */
    ONCE_CONFLICT,   /* LATER: the database asks to try the transaction again */
};

struct once_answer {
    int verdict, cause;
    int64_t wait_ms;       /* LATER; RUN, of once_end_all */
    struct once_error why; /* its text is empty where there is nothing to say */
};

/* One word: "first", "duplicate", "other-body", "running", "no-key", "down", "emptied", "failed",
 * "lost", "unsure", "conflict". */
ONCE_API const char *once_cause_text(int cause);

/* ---- running ---- */

struct once_run;

enum once_result { ONCE_DONE, ONCE_FAILED };

typedef int once_handler(void *user, struct once_run *run); /* enum once_result */

/* All of it: begin, the handler if it may run, end. Returns the verdict, never ONCE_RUN. */
ONCE_API int once_do(struct once *once, const struct once_message *message, once_handler *handler,
                     void *user, struct once_answer *answer);

/* The same in two halves. ONCE_RUN: `*run` is ours until once_end, which frees it. */
ONCE_API int once_begin(struct once *once, const struct once_message *message,
                        struct once_run **run, struct once_answer *answer);
/* `result` other than ONCE_DONE is a failure. In ONCE_TRANSACTION and ONCE_OFFSET this is where the
 * transaction is committed or rolled back. Before it returns ONCE_ACK the store has it. */
ONCE_API int once_end(struct once_run *run, int result, struct once_answer *answer);
/* Many at once, for one round trip: `runs` (NULL where the verdict is not RUN) and `answers` have n
 * places. Not for transactions. Of equal keys the first may run. once_end_all tells the store once,
 * and what that has no answer for keeps the others from nothing: its verdict is ONCE_RUN, and the
 * run still ours. End it again with the same result: after wait_ms with once_end_all, or with
 * once_end, which waits for the answer. Both give up when the claim may be another's. */
ONCE_API void once_begin_all(struct once *once, const struct once_message *messages, size_t n,
                             struct once_run **runs, struct once_answer *answers);
ONCE_API void once_end_all(struct once_run *const *runs, const int *results, size_t n,
                           struct once_answer *answers);

/* What a handler may ask. */
ONCE_API const char *once_run_key(const struct once_run *run); /* prefix and key, with a NUL */
ONCE_API size_t once_run_key_size(const struct once_run *run);
/* ONCE_LEASE: grows with every claim of the key: a service that remembers the highest it has seen
 * can refuse a late one. 0 in plain form and in transactions. */
ONCE_API int64_t once_run_fence(const struct once_run *run);
ONCE_API int once_run_attempt(const struct once_run *run);
/* The claim is gone, or could not be renewed for as long as it was valid: stop, and change nothing
 * more. What the handler returns is recorded only if nobody else has begun meanwhile. */
ONCE_API bool once_run_lost(const struct once_run *run);
/* An earlier run of this key began and never ended: its process died, or was stopped for longer
 * than its claim. Whether its effect happened is for the handler to find out; counted as
 * `overtaken`. */
ONCE_API bool once_run_overtook(const struct once_run *run);
/* The open connection of a transaction: PGconn *, MYSQL *, sqlite3 *; else NULL. Do not commit,
 * roll back or close it; savepoints are fine. */
ONCE_API void *once_run_connection(struct once_run *run);

/* ---- steps ---- */

struct once_bytes {
    const void *at;
    size_t size;
};

/* Does one step of a handler: calls a service with `idempotency_key`, which is the same whenever
 * this step of this message is tried, and says what came of it. `result` (64 KiB at most, must live
 * until it returns) is recorded. */
typedef int once_step_fn(void *user, const char *idempotency_key, struct once_bytes *result);

/* Runs `fn`, unless the step was finished by an earlier delivery: then its recorded result is
 * given. `result` may be NULL; what it gives lives as long as the run. ONCE_STORE: the store does
 * not answer; the sentence says whether the step was done. ONCE_LOST: not done, since the claim is
 * gone. ONCE_INVALID: `fn` did not say ONCE_DONE: the step comes again with the next delivery. In
 * each case the handler returns ONCE_FAILED. Names are 1 to 64 bytes. A run that goes on without
 * the store (open_when_down) runs its steps and records nothing. */
ONCE_API int once_step(struct once_run *run, const char *name, once_step_fn *fn, void *user,
                       struct once_bytes *result, struct once_error *why);
ONCE_API const char *once_step_key(struct once_run *run, const char *name); /* lives like the run */

/* ---- guards, within a transaction ---- */

enum once_guard {
    ONCE_APPLIED, /* one row was changed, or is locked now */
    ONCE_ALREADY, /* the row is in that state, or beyond: a duplicate; go on, return ONCE_DONE */
    ONCE_NOT_YET, /* there is no such row, or it is not so far: return ONCE_FAILED, it comes again
                   */
};

/* UPDATE table SET state_column = to WHERE key_column = key AND state_column = from. Names are
 * quoted, values are bound: nothing is pasted. */
struct once_state_guard {
    const char *table, *key_column, *key;
    const char *state_column, *from, *to;
    const char *const *beyond; /* states that come after `to`, ended by NULL; or NULL */
};
ONCE_API int once_guard_state(struct once_run *run, const struct once_state_guard *guard, int *out,
                              struct once_error *why);

/* … SET version_column = expected + 1 WHERE key_column = key AND version_column = expected. */
struct once_version_guard {
    const char *table, *key_column, *key;
    const char *version_column;
    int64_t expected;
};
ONCE_API int once_guard_version(struct once_run *run, const struct once_version_guard *guard,
                                int *out, struct once_error *why);

/* SELECT … FOR UPDATE: APPLIED, or NOT_YET when there is no row, which locks nothing. */
ONCE_API int once_guard_lock(struct once_run *run, const char *table, const char *key_column,
                             const char *key, int *out, struct once_error *why);

/* ---- statements of your own, within a transaction ---- */

enum once_type { ONCE_NULL, ONCE_INT, ONCE_TEXT, ONCE_BLOB };

struct once_value {
    int type;       /* enum once_type */
    int64_t number; /* INT */
    const void *bytes;
    size_t size; /* TEXT (UTF-8; without a NUL), BLOB */
};

/* Runs one statement in the run's transaction, for programs that do not want to know which database
 * it is. Each `?` in it (in quotes and comments it is none) stands for a value, which is bound and
 * never pasted; 32 at most. On PostgreSQL a number takes whatever type its place has. Rows that it
 * gives are passed over. One that would end the transaction is refused, also if it does so by the
 * way, as TRUNCATE does on MariaDB. `changed` (may be NULL) is how many it inserted, changed or
 * deleted; on MariaDB, of an UPDATE those that it found. After an error nothing of the transaction
 * can be committed: return ONCE_FAILED. If the database could not be reached, or asks to try it
 * again, once_end then says LATER, since that was not the message's fault. */
ONCE_API int once_execute(struct once_run *run, const char *sql, const struct once_value *values,
                          size_t n, uint64_t *changed, struct once_error *why);

/* Asks the database behind a store's URL (sqlite:, postgresql:// or mysql://) a question, beside
 * all runs and over a connection of its own: for tests that compare what has happened with what
 * should have. No tables of the module are needed there, and an SQLite file is only read. `row` is
 * called for each row, ten columns at most, whose values last as long as the call; other than 0
 * ends it.
 */
typedef int once_row(void *user, const struct once_value *columns, size_t n);
ONCE_API int once_select(const char *store, const char *sql, once_row *row, void *user,
                         struct once_error *why);

/* ---- the outbox: what is to be sent once the transaction has happened ---- */

/* Writes a message into the outbox in the run's transaction: it exists if and only if the effect
 * does. Its id is derived from the run's key and its number in the run. */
ONCE_API int once_outbox_add(struct once_run *run, const struct once_message *message,
                             struct once_error *why);
/* Hands at most `max` waiting messages, oldest first, to `send`, and forgets those for which it
 * says 0. A crash in between sends one again, with the same id, which goes along as the property
 * ONCE_ID. `sent` may be NULL. One caller at a time across all processes; ONCE_BUSY: another is. */
ONCE_API int once_outbox_send(struct once *once, size_t max,
                              int (*send)(void *user, const struct once_message *message),
                              void *user, size_t *sent, struct once_error *why);

/* ---- offsets ---- */

/* ONCE_OFFSET: this queue is ours from now on; who had it before can commit nothing more. `start`
 * is where to begin; `first` if nothing is known of the queue. */
ONCE_API int once_queue_take(struct once *once, const char *topic, const char *broker, int queue,
                             int64_t first, int64_t *start, struct once_error *why);

/* ---- looking, numbers ---- */

enum once_state { ONCE_ABSENT, ONCE_CONSUMING, ONCE_CONSUMED, ONCE_RELEASED };
struct once_look {
    int state; /* enum once_state */
    int64_t fence;
    int64_t left_ms; /* of the claim, or of the mark */
};
/* What the store has under this key (without prefix). */
ONCE_API int once_look(struct once *once, const void *key, size_t key_size, struct once_look *out,
                       struct once_error *why);
/* Forgets a key, whoever has it: for operators. */
ONCE_API int once_forget(struct once *once, const void *key, size_t key_size,
                         struct once_error *why);
/* After ONCE_EMPTIED: goes on, knowing that what was done before is forgotten. */
ONCE_API int once_accept_wiped(struct once *once, struct once_error *why);

struct once_stats {
    uint64_t first_runs, duplicates, other_bodies, busy, lost, released, no_key;
    uint64_t unsure, store_errors, ran_without_store, swept, overtaken;
    uint64_t running;               /* now */
    uint64_t store_ns, store_calls; /* time spent waiting for the store */
    uint64_t reserved[7];
};
ONCE_API void once_stats(const struct once *once, struct once_stats *out);

/* ---- a store of your own ----
 *
 * Four functions that decide by themselves; examples/once/checker.c is a whole one. Each is called
 * from any thread. `id` is 32 bytes, one for each key of a scope; `name` is for people.
 */
struct once_claim {
    uint8_t id[32];
    const char *name;
    uint64_t token;       /* whose claim: different for each claim that was ever made */
    uint64_t fingerprint; /* of the body */
    int64_t expiry_ms, retention_ms;
};
struct once_found {
    int state; /* ONCE_ABSENT: it is ours now; ONCE_CONSUMING, ONCE_CONSUMED */
    int64_t fence, left_ms;
    uint64_t fingerprint;
};
struct once_checker {
    /* All say 0, ONCE_STORE or ONCE_LOST (the claim is not that token's). */
    int (*begin)(void *self, const struct once_claim *claim, struct once_found *out);
    int (*renew)(void *self, const struct once_claim *claim); /* NULL: claims are not renewed */
    int (*done)(void *self, const struct once_claim *claim);
    int (*failed)(void *self, const struct once_claim *claim);
    int (*sweep)(void *self, int rows); /* NULL: nothing to sweep */
    void (*close)(void *self);          /* NULL: nothing to close */
    void *reserved[4];
};

#ifdef __cplusplus
}
#endif

#endif
