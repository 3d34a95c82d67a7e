/* sql_int.h - what the files of the SQL stores share.
 *
 *     sql_text.c     the statements, with the names of this store's tables in them
 *     sql_open.c     opening, tables, birth, connections, the keeper of takeover
 *     sql.c          batches: read the rows, decide, write by compare-and-set, commit once
 *     sql_straight.c what needs no reading first
 *     sql_sweep.c    forgetting what has ended
 *     sql_txn.c      marks in the caller's transaction
 *     sql_place.c    places in queues, with what is done beyond them
 *     sql_plain.c    a table of the plain form, as it is
 *
 * A batch is one transaction:
 *
 *     begin │ now, birth, rows of all ids │ decide each │ INSERT, UPDATE, DELETE │ commit
 *                    ▲                                              │
 *                    └───────── rows that another was quicker with ─┘
 *
 * Between reading a row and writing it another process may have changed it. So each write names all
 * that was read (state, token, fence, until): where nothing matches any more nothing is written,
 * and the operation is decided anew. Naming the token alone would not do: a finish, or a renewal,
 * keeps token and fence, and a claim that was decided before it would undo it.
 *
 * Where an engine can, the commit goes with the writes; with straight ones that is the whole batch
 * in one trip. What was lost to another is then read and
 * decided in a transaction of its own: the operations of a batch need nothing of each other.
 *
 * Ids are written in their own order by everybody, so two batches do not wait for each other.
 */
#ifndef ONCE_SQL_INT_H
#define ONCE_SQL_INT_H

#include "once/decide.h"
#include "once/sql.h"

#include <pthread.h>
#include <stdatomic.h>

#define SQL_CALLS   64  /* statements handed to an engine at once */
#define SQL_ROUNDS  16  /* how often a lost race is run again */
#define SQL_READ_IN 12  /* ids read by one statement */
#define SWEEP_ROWS  100 /* by one transaction */
#define KEEP_LONGER 64  /* a row may outlive its mark by such a part of its retention */
#define WINDOW_SIZE 512 /* bytes */
#define WINDOW_BITS (WINDOW_SIZE * 8)

/* In a row: ONCE_CONSUMING by a process that the engine knows to live (`live`), so that its end can
 * be seen. Of a claim without it nobody can tell, and it is left alone until it expires. */
#define ROW_WATCHED 4

enum sql_name {
    T_CLOCK,
    T_BIRTH,
    T_INSERT,
    T_READ_ONE,
    T_READ_LOCKED,
    T_READ_MANY,
    T_UPDATE,
    T_DELETE,
    T_MARK, /* the engine's; NULL where it has none */
    T_STEP_GET,
    T_STEP_HAS,
    T_STEP_PUT,
    T_STEPS_DELETE,
    T_SWEEP_FIND,
    T_SWEEP_DELETE,
    T_PLACE_READ,
    T_PLACE_LOCKED,
    T_PLACE_INSERT,
    T_PLACE_UPDATE,
    T_PLACE_TAKE,
    T_CHECK_CLAIMS, /* the columns of each table, of no row */
    T_CHECK_STEPS,
    T_CHECK_PLACES,
    T_CHECK_OUTBOX,
    T_CHECK_BIRTH,
    T_PLAIN_CHECK,
    T_PLAIN_FIND,
    T_PLAIN_INSERT,
    T_PLAIN_DELETE,
    T_INSERT_MANY, /* this and what follows: the engine's; NULL where it has none */
    T_UPDATE_MANY,
    T_COMMIT,
    T_TICK,
    T_STRAIGHT_CLAIM,
    T_STRAIGHT_FINISH,
    T_STRAIGHT_FINISH_MANY,
    T_STRAIGHT_COMMIT,
    T_COUNT,
};

/* Any thread. */
struct store {
    const struct sql_engine *engine;
    struct store_settings settings; /* url and table are copies */
    char *texts[T_COUNT];
    _Atomic int64_t birth;
    _Atomic uint32_t generation; /* grows by sql_accept: older connections are made anew */

    pthread_mutex_t keeper_key; /* guards what follows; held while the keeper is asked */
    struct sql_conn *keeper;    /* says that this process lives; NULL until it must */
    uint32_t keeper_instance;
    int64_t keeper_seen_ms; /* when it was last known to be well */
};

/* One operation of a batch. */
struct slot {
    struct op *op;
    uint64_t fingerprint; /* the op's own: decide() writes the stored one over it */
    struct stored before, after;
    int64_t keep_before_ms, keep_after_ms;
    int64_t row_before, row_after; /* the state as the row has it: ROW_WATCHED */
    bool settled;                  /* nothing more to do */
    bool durable;                  /* and committed: not to be taken back */
    bool dirty;                    /* `after` has to be written */
    bool found;                    /* a step, or a plain key, is there */
    bool odd;                      /* the row cannot be one of ours */
    uint64_t changed;
    int64_t told; /* with it */
};

/* One thread at a time. */
struct conn {
    struct store *store;
    struct sql_conn *sql; /* NULL: it could not be made anew */
    uint32_t generation;

    int64_t now_ms, birth; /* of the last T_CLOCK or T_TICK; birth 0: there was no row */
    int64_t birth_asked;   /* by T_TICK */
    int64_t now_seen_ms;   /* when that was, by a clock of ours; 0: never */

    struct sql_call calls[SQL_CALLS];
    size_t n_calls;
    struct slot *failed; /* whose statement did, after an error of conn_flush */
    struct slot slots[ONCE_OPS_MAX];
    size_t n_slots;
    bool committed; /* what the batch has written, with the writes */
};

/* ---- statements ---- */

must_check enum err sql_texts_make(struct store *store);

/* The next statement to be run with conn_flush, in order. When there is no room, what is there is
 * run first. `slot`, if not NULL, gets the number of rows that were changed. */
must_check enum err conn_add(struct conn *c, enum sql_name name, struct slot *slot,
                             struct sql_call **out, struct fault *why);
/* Runs what was added. ERR_STALE: also when the tables are not there any more. */
must_check enum err conn_flush(struct conn *c, struct fault *why);
void conn_drop(struct conn *c); /* forgets what was added */

void call_int(struct sql_call *call, int64_t number);
void call_birth(const struct conn *c, struct sql_call *call); /* if the engine has births */
void call_bytes(struct sql_call *call, const void *at, size_t size);
void call_text(struct sql_call *call, const char *text);
int64_t value_int(const struct sql_value *value); /* 0 if it is none */

/* ---- connections ---- */

/* Before anything else is done: a connection older than the last sql_accept is made anew. */
must_check enum err conn_fresh(struct conn *c, struct fault *why);
/* Adds the question for clock and birth; conn_born judges the answer after conn_flush. conn_tick is
 * the same for straight writes. */
must_check enum err conn_ask_clock(struct conn *c, struct fault *why);
must_check enum err conn_tick(struct conn *c, struct fault *why);
must_check enum err conn_born(struct conn *c, struct fault *why);
/* The server's clock as far as this connection knows; false: it does not. */
bool conn_guess_now(const struct conn *c, int64_t *out);
/* Takeover is asked for, and this engine can. */
bool store_watches(const struct store *store);
/* This process lives: told before its claims can be seen, and looked after when they are renewed.
 */
must_check enum err store_live(struct store *store, uint32_t instance, struct fault *why);

/* ---- rows of claims ---- */

void slot_read(struct slot *slot, const struct sql_value *columns, size_t n);
must_check enum err slot_insert(struct conn *c, struct slot *slot, struct fault *why);
must_check enum err slot_update(struct conn *c, struct slot *slot, struct fault *why);
int64_t add_ms(int64_t a, int64_t b); /* stays within bounds */

/* Settles what it can of a batch. */
must_check enum err sql_straight(struct conn *c, struct fault *why);
/* The state that the row of a new claim has. */
int64_t claim_state(const struct conn *c, const struct op *op);

must_check enum err sql_sweep(struct conn *c, struct op *op, struct fault *why);
must_check enum err sql_plain_run(struct conn *c, struct op *const *ops, size_t n,
                                  struct fault *why);

/* ---- what is done of a queue: all before `next`, and the offsets next + i whose bit i is set ----
 */

struct window {
    int64_t next;
    uint8_t bits[WINDOW_SIZE];
};

enum window_state { WINDOW_FREE, WINDOW_DONE, WINDOW_FAR };

must_check enum err window_load(struct window *w, int64_t next, struct bytes bits,
                                struct fault *why);
size_t window_used(const struct window *w);         /* bytes up to the last that is not 0 */
void window_floor(struct window *w, int64_t floor); /* nothing before it will come */
enum window_state window_look(const struct window *w, int64_t offset);
void window_mark(struct window *w, int64_t offset); /* one that is free */

#endif
