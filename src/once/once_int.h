/* once_int.h - the inside of libonce.
 *
 *     application ── message ──► run.c ── op ──► crew.c ── ops ──► a driver (driver.h)
 *                                 │                 ▲
 *                      running.c: what runs here    └── keeper.c: renewals, sweeps
 *
 * A run is one permission to call the handler. From once_begin to once_end it stands in the table
 * of what runs in this process (running.c), under its id: a second delivery of the same key is told
 * "later" there, and the store is not asked. The store decides everything else; what it was told
 * and what it answered is in the run's `op`.
 *
 * Three things are known of a claim by this process's own clock, which goes on while the machine
 * sleeps as the store's does, and each errs on the safe side:
 *     valid_ns   until here it is surely ours: asked + expiry. Beyond it the handler is told to
 * stop over_ns    from here on it may be another's: answered + expiry. So long a finish is repeated
 *     lost       the store said so: nothing that this run says counts any more
 *
 * Transactions (transaction.c) have no claim: their mark becomes visible with the commit. They take
 * a connection out of the pool (pool.c) from begin to end.
 *
 * Threads: the application's, and the keeper. Locks, none of which is held while a store is asked:
 *     running    64, one for each part of the table; leaves
 *     crew.key   what waits for the store, the connections that are free for it; a leaf
 *     pool.key   idle connections of transactions; a leaf
 *     keeper     its sleep; a leaf
 *     places     epochs of the queues that are ours; a leaf
 *     texts      the application's own statements; a leaf
 */
#ifndef ONCE_INT_H
#define ONCE_INT_H

#include "base/bell.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/dice.h"
#include "base/list.h"
#include "base/map.h"
#include "once.h"
#include "once/driver.h"
#include "once/key.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#define NS_PER_MS      UINT64_C(1000000)
#define ONCE_TEXTS_MAX 64 /* statements of the application that are kept prepared */

/* ---- numbers (stats.c) ---- */

enum tally_of {
    TALLY_FIRST,
    TALLY_DUPLICATE,
    TALLY_OTHER_BODY,
    TALLY_BUSY,
    TALLY_LOST,
    TALLY_RELEASED,
    TALLY_NO_KEY,
    TALLY_UNSURE,
    TALLY_STORE_ERROR,
    TALLY_WITHOUT_STORE,
    TALLY_SWEPT,
    TALLY_OVERTAKEN,
    TALLY_STORE_NS,
    TALLY_STORE_CALLS,
    TALLY_N,
};

/* Threads count in different places, so that counting costs nothing. */
#define TALLY_SHARDS 16
struct tally {
    struct {
        _Alignas(64) _Atomic uint64_t n[TALLY_N];
    } shard[TALLY_SHARDS];
};

void tally_add(struct tally *t, enum tally_of what, uint64_t n);
/* A number that no other thread of this process gets. */
uint32_t thread_number(void);

/* ---- waiting (wait.c): by the kernel's monotonic clock, whatever clock the claims have ---- */

uint64_t wait_now_ns(void);
void wait_ns(uint64_t ns);

/* When to knock again at a door that was shut. Its owner's lock guards it. */
struct gate {
    unsigned fails;
    uint64_t since_ns; /* when it was shut first; 0: it is open */
    uint64_t next_ns;  /* not before */
    uint64_t most_ms;  /* between two knocks; half a second at most */
    struct dice dice;
};
void gate_shut(struct gate *gate, uint64_t now_ns);
void gate_open(struct gate *gate);

/* ---- the crew (crew.c): operations that wait at the same time go to the store together ---- */

#define CREW_LANES_MAX 4

struct crew_settings {
    const struct once_driver *driver;
    struct store *store;
    int lanes; /* connections in use at the same time; 0: 1 */
    int wait_ms;
    void (*log)(void *user, int level, const char *line);
    void *log_user;
};
struct crew;

must_check enum err crew_open(const struct crew_settings *settings, struct crew **out,
                              struct fault *why);
void crew_close(struct crew *crew);
/* Asks the store, together with whoever else waits, and again within `wait_ms` if it can be. On an
 * error, those that were answered all the same have an outcome that is not OUT_NONE. ERR_IO: the
 * store cannot be reached; ERR_STALE: it was emptied; ERR_BUSY: it would not stop saying so. */
must_check enum err crew_run(struct crew *crew, struct op *const *ops, size_t n, int wait_ms,
                             struct fault *why);
/* After ERR_STALE. */
must_check enum err crew_accept(struct crew *crew, struct fault *why);
bool crew_stale(const struct crew *crew);
void crew_set_stale(struct crew *crew);

/* ---- connections of transactions (pool.c) ---- */

struct pool;

must_check enum err pool_open(const struct once_driver *driver, struct store *store, int max,
                              struct pool **out);
void pool_close(struct pool *pool);
/* ERR_TIMEOUT: all were in use for `wait_ms`; else what connect said. */
must_check enum err pool_take(struct pool *pool, int wait_ms, struct conn **out, struct fault *why);
void pool_give(struct pool *pool, struct conn *conn, bool usable);

/* ---- runs ---- */

struct note { /* something that lives as long as its run */
    struct note *next;
    char name[ONCE_STEP_MAX + 1]; /* of the step whose key it is; else empty */
    char text[];
};

struct once_run {
    struct once *once;
    struct once_run *next; /* in running */
    struct buf key;        /* prefix and key, then a NUL that is not counted */
    int attempt;
    bool without_store; /* open_when_down: there is no claim */
    bool overtook;      /* an earlier run of the key never ended */
    _Atomic bool lost;
    _Atomic uint64_t valid_ns, over_ns; /* see above */
    uint64_t limit_ns;                  /* ending: until here the store is told again and again */
    struct note *notes;

    /* transactions */
    struct conn *conn;
    struct place place; /* ONCE_OFFSET */
    enum err broken;    /* a statement of ours failed (op.why): it can only be rolled back */
    uint32_t outbox;    /* messages put there so far */

    struct op op; /* last: see op_clear */
};
/* More than that and it is out of what malloc keeps for each thread, which is most of its cost. */
static_assert(sizeof(struct once_run) <= 1024, "a run is allocated for each message");

/* ---- what runs here (running.c) ---- */

#define RUNNING_SHARDS  64
#define RUNNING_BUCKETS 64

struct running {
    struct running_shard {
        _Alignas(64) pthread_mutex_t key;
        bool closed;
        size_t n;
        struct once_run *bucket[RUNNING_BUCKETS];
    } shard[RUNNING_SHARDS];
    _Atomic size_t left; /* closed: how many have yet to end */
};

void running_init(struct running *r);
void running_clear(struct running *r);
/* ERR_EXISTS: one with its id runs; ERR_CLOSED. */
must_check enum err running_add(struct running *r, struct once_run *run);
/* True: it was the last one of a closed table. */
bool running_remove(struct running *r, struct once_run *run);
/* Nobody gets in any more. How many are inside: the last of them is told so by running_remove. */
size_t running_shut(struct running *r);
size_t running_count(struct running *r);
bool running_idle(struct running *r, size_t shard);
/* Renewals of claims that are valid no longer than `before_ns`, as operations; at most `max`, of
 * one shard. The run itself may end meanwhile. */
size_t running_collect(struct running *r, size_t shard, uint64_t before_ns, struct op *out,
                       size_t max);
/* What became of a renewal, if the run is still there. */
void running_renewed(struct running *r, const struct op *op, uint64_t valid_ns, uint64_t over_ns);

/* ---- the keeper (keeper.c) ---- */

struct keeper {
    pthread_mutex_t key;
    pthread_cond_t news;
    pthread_t thread;
    bool started, stop;
    uint64_t sweep_ns; /* when to sweep next */
};

must_check enum err keeper_start(struct once *once, struct fault *why);
void keeper_stop(struct once *once);
/* One round: renews what is due, sweeps if it is time. */
void keeper_turn(struct once *once);

/* ---- the whole ---- */

/* The outbox's statements, which must live as long as the connections do. */
struct outbox_sql {
    char table[256], insert[320], select[340], remove[320];
};
must_check int outbox_init(struct once *once, struct once_error *why);

struct once {
    const struct once_driver *driver;
    struct store *store;
    struct clock *clock; /* of claims */
    struct crew *crew;
    struct pool *pool; /* ONCE_TRANSACTION, ONCE_OFFSET */
    struct outbox_sql outbox;
    struct key *key;
    struct once_options with; /* defaults filled in, texts our own */
    bool renews;
    bool names; /* the store shows names to people */
    uint32_t instance;
    _Atomic uint64_t down_ns; /* since when the store gives no answers, 0: it does */
    _Atomic bool closing;

    struct running running;
    struct keeper keeper;
    struct tally tally;

    pthread_mutex_t texts_key;
    char *texts[ONCE_TEXTS_MAX]; /* of once_execute (execute.c) */
    size_t n_texts;

    pthread_mutex_t places_key;
    struct map places; /* id of a queue -> struct taken (transaction.c) */
};

/* What a test may own. Zero: the real thing. */
struct once_parts {
    const struct once_driver *driver; /* instead of the one that the URL names */
    struct clock *clock;
    bool no_keeper; /* the test calls keeper_turn */
};
must_check int once_open_with(const struct once_options *options, const struct once_parts *parts,
                              struct once **out, struct once_error *why);
void once_free(struct once *once); /* once nothing runs */

/* ---- options (options.c), drivers (load.c) ---- */

/* A copy with all defaults, checked for itself. */
must_check int options_take(const struct once_options *from, struct once_options *to,
                            struct once_error *why);
void options_clear(struct once_options *o);
/* Whether this store can do that. */
must_check int options_suit(const struct once_options *o, const struct once_driver *driver,
                            struct once_error *why);
/* The driver that a URL names. */
must_check int driver_find(const char *url, const struct once_driver **out, struct once_error *why);

extern const struct once_driver once_driver_memory;
extern const struct once_driver once_driver_checker;
/* ---- errors, logs (error.c) ---- */

int once_fail(struct once_error *why, int code, const char *format, ...) printf_like(3, 4);
int once_code_of(enum err err);
/* An error of the store in the application's words. */
int once_fail_store(struct once_error *why, enum err err, const struct fault *fault);
void once_log(const struct once *once, int level, const char *format, ...) printf_like(3, 4);

/* ---- asking the store (ask.c) ---- */

struct span {
    uint64_t asked_ns, answered_ns; /* by once.clock */
};
/* crew_run, measured and counted; `span` may be NULL. */
must_check enum err store_ask(struct once *once, struct op *const *ops, size_t n, int wait_ms,
                              struct span *span, struct fault *why);
/* Counts an answer, and remembers since when there is none. */
void store_note(struct once *once, enum err err, const struct fault *why);
uint64_t token_next(struct once *once);

/* Verdicts; each returns its own. */
int answer_set(struct once_answer *answer, int verdict, int cause, int64_t wait_ms);
/* The store said err: later. */
int answer_down(struct once *once, struct once_answer *answer, enum err err,
                const struct fault *fault);
/* A mark was found, of a message with that fingerprint. */
int answer_done(struct once_run *run, struct once_answer *answer, uint64_t mine, uint64_t theirs);
int answer_running(struct once *once, struct once_answer *answer, int64_t left_ms);
int answer_lost(struct once *once, struct once_answer *answer);
int64_t about_ms(int64_t ms); /* not everybody at the same moment */

/* ---- runs (run.c) ---- */

/* Out of the table, and freed. The last one of a closed `once` frees that too. */
void run_forget(struct once_run *run);
struct note *run_note(struct once_run *run, const void *text, size_t size);
/* The key is there: its NUL, id and name. */
must_check enum err run_name(struct once_run *run);

/* ---- transactions (transaction.c) ---- */

int transaction_begin(struct once_run *run, struct once_answer *answer);
int transaction_end(struct once_run *run, int result, struct once_answer *answer);
/* ONCE_OFFSET: the message's place becomes the run's key. ERR_DENIED: its queue is not ours. */
must_check enum err place_of(struct once_run *run, const struct once_message *message,
                             struct fault *why);
void places_clear(struct once *once);
/* A statement in the run's transaction; a failure is remembered. */
must_check int transaction_call(struct once_run *run, struct sql_call *call,
                                struct once_error *why);

void texts_clear(struct once *once); /* execute.c */
/* ends.c: whether this statement ends the transaction that it is in, in any of the databases, or by
 * one of `more` first words, as in struct once_driver (NULL: none). */
bool ends_transaction(const char *sql, const char *const *more);

/* outbox_code.c: a message as bytes. Texts of a decoded one are slices of the input. */
#define OUTBOX_MESSAGE_MAX    (8 << 20)
#define OUTBOX_PROPERTIES_MAX 512
struct outbox_message {
    struct once_message message;
    struct once_property properties[OUTBOX_PROPERTIES_MAX + 1]; /* one more: ONCE_ID */
};
void outbox_encode(const struct once_message *message, struct buf *out);
must_check enum err outbox_decode(struct bytes in, struct outbox_message *out);

void hex_of(const uint8_t *at, size_t n, char *out); /* 2 n characters and a NUL */

#endif
