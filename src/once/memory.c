/* memory.c - the store that is this process: for tests, and for programs of one process.
 *
 * 64 shards with a lock each; the first byte of an id chooses. A shard is a table of rows (rows.h).
 * Steps are few and big: they are kept aside, by id.
 *
 * What has expired goes in two ways: each new row looks at two others, so that the table cannot
 * grow faster than it is swept; and OP_SWEEP looks at all.
 *
 * Time is the wall clock when the store was opened, and from then on the monotonic one: nobody's
 * correction of the clock ends a claim.
 */
#include "once/decide.h"
#include "once/once_int.h"
#include "once/rows.h"

#include <stdlib.h>

#define LOOK_AT 2 /* rows, for each that is added */

struct step {
    struct step *next;
    size_t name_size, size;
    uint8_t at[]; /* name, result */
};

struct steps { /* of one id */
    uint8_t id[ROWS_ID_SIZE];
    struct step *first;
};

struct shard {
    _Alignas(64) pthread_mutex_t key;
    struct rows rows;
    uint32_t look; /* the next one to be looked at */
    struct map steps;
};

struct store {
    struct shard shard[ROWS_SHARDS];
    struct clock *clock;
    int64_t ahead_ms;        /* of wall over monotonic time, when it was opened */
    _Atomic int64_t keep_ms; /* how long a claim may outlive its expiry */
};

static void enter(struct shard *shard)
{
    invariant(pthread_mutex_lock(&shard->key) == 0);
}

static void leave(struct shard *shard)
{
    invariant(pthread_mutex_unlock(&shard->key) == 0);
}

static int64_t now_ms(const struct store *store)
{
    return (int64_t)(clock_ns(store->clock) / NS_PER_MS) + store->ahead_ms;
}

/* ---- rows ---- */

static void steps_drop(struct shard *shard, struct row *row)
{
    if (!row->stepped)
        return;
    row->stepped = false;
    struct steps *steps = map_remove(&shard->steps, bytes_of(row->id, ROWS_ID_SIZE));
    while (steps && steps->first) {
        struct step *step = steps->first;
        steps->first = step->next;
        free(step);
    }
    free(steps);
}

static void row_drop(struct shard *shard, struct row *row)
{
    steps_drop(shard, row);
    rows_drop(&shard->rows, row);
}

/* A claim whose end has passed is its holder's as long as nobody takes it: it stays for the time
 * that a mark would. */
static bool is_over(const struct store *store, const struct row *row, int64_t now)
{
    int64_t keep_ms =
        row->state == ONCE_CONSUMING
            ? atomic_load_explicit(&((struct store *)store)->keep_ms, memory_order_relaxed)
            : 0;
    return row->state != ONCE_ABSENT && row->until_ms <= now && now - row->until_ms >= keep_ms;
}

static void look_around(const struct store *store, struct shard *shard, int64_t now)
{
    for (int i = 0; i < LOOK_AT && shard->rows.top > 0; i++) {
        if (shard->look >= shard->rows.top)
            shard->look = 0;
        struct row *row = rows_at(&shard->rows, shard->look++);
        __builtin_prefetch(row + LOOK_AT); /* the shard's next turn is some messages away */
        if (is_over(store, row, now))
            row_drop(shard, row);
    }
}

static void sweep(struct store *store, struct op *op, int64_t now)
{
    int most = op->rows;
    op->rows = 0;
    for (size_t i = 0; i < ROWS_SHARDS && op->rows < most; i++) {
        struct shard *shard = &store->shard[i];
        enter(shard);
        for (uint32_t r = 0; r < shard->rows.top && op->rows < most; r++) {
            struct row *row = rows_at(&shard->rows, r);
            if (is_over(store, row, now)) {
                row_drop(shard, row);
                op->rows++;
            }
        }
        leave(shard);
    }
    op->outcome = OUT_OK;
}

/* ---- steps ---- */

static struct step *step_find(const struct steps *steps, struct bytes name)
{
    struct step *step = steps ? steps->first : NULL;
    while (step && !bytes_equal(bytes_of(step->at, step->name_size), name))
        step = step->next;
    return step;
}

static void no_memory(struct op *op)
{
    op->outcome = OUT_FAILED;
    (void)fault_set(&op->why, ERR_NO_MEMORY, "out of memory");
}

static void step_get(struct shard *shard, struct op *op)
{
    struct step *step = step_find(map_get(&shard->steps, bytes_of(op->id, ROWS_ID_SIZE)), op->step);
    op->outcome = OUT_ABSENT;
    if (!step)
        return;
    uint8_t *copy = malloc(step->size + 1); /* of nothing there is a copy too */
    if (!copy) {
        no_memory(op);
        return;
    }
    memcpy(copy, step->at + step->name_size, step->size);
    op->result = bytes_of(copy, step->size);
    op->outcome = OUT_OK;
}

static struct steps *steps_of(struct shard *shard, struct row *row)
{
    struct steps *steps = map_get(&shard->steps, bytes_of(row->id, ROWS_ID_SIZE));
    if (steps)
        return steps;
    steps = calloc(1, sizeof *steps);
    if (!steps)
        return NULL;
    memcpy(steps->id, row->id, ROWS_ID_SIZE);
    if (map_put(&shard->steps, bytes_of(steps->id, ROWS_ID_SIZE), steps) != OK) {
        free(steps);
        return NULL;
    }
    row->stepped = true;
    return steps;
}

static void step_put(struct shard *shard, struct row *row, struct op *op)
{
    op->outcome = OUT_LOST;
    if (!row || row->state != ONCE_CONSUMING || row->token != op->token)
        return;
    struct steps *steps = steps_of(shard, row);
    op->outcome = OUT_OK;
    if (steps && step_find(steps, op->step))
        return;
    struct step *step = steps ? malloc(sizeof *step + op->step.len + op->result.len) : NULL;
    if (!step) {
        no_memory(op);
        return;
    }
    *step = (struct step){steps->first, op->step.len, op->result.len};
    if (op->step.len)
        memcpy(step->at, op->step.at, op->step.len);
    if (op->result.len)
        memcpy(step->at + op->step.len, op->result.at, op->result.len);
    steps->first = step;
}

/* ---- operations ---- */

static void apply(struct store *store, struct shard *shard, struct op *op, int64_t now)
{
    struct row *row = rows_find(&shard->rows, op->id);
    struct stored s = {.state = ONCE_ABSENT};
    if (row)
        s = (struct stored){row->state, row->token, row->fence, row->until_ms, row->fingerprint};
    if (!decide(&s, now, false, op, &s))
        return;
    if (s.state == ONCE_ABSENT) {
        if (row)
            row_drop(shard, row);
        return;
    }
    if (!row) {
        look_around(store, shard, now);
        row = rows_add(&shard->rows, op->id);
    }
    if (!row) {
        no_memory(op);
        return;
    }
    row->state = (uint8_t)s.state;
    row->token = s.token;
    row->fence = s.fence;
    row->until_ms = s.until_ms;
    row->fingerprint = s.fingerprint;
    if (s.state == ONCE_CONSUMED)
        steps_drop(shard, row); /* nobody will ask for them any more */
}

static void op_run(struct store *store, struct op *op)
{
    int64_t now = now_ms(store);
    if (op->kind == OP_SWEEP) {
        sweep(store, op, now);
        return;
    }
    struct shard *shard = &store->shard[rows_shard(op->id)];
    if (op->kind == OP_CLAIM &&
        op->retention_ms > atomic_load_explicit(&store->keep_ms, memory_order_relaxed))
        atomic_store_explicit(&store->keep_ms, op->retention_ms, memory_order_relaxed);
    enter(shard);
    if (op->kind == OP_STEP_GET)
        step_get(shard, op);
    else if (op->kind == OP_STEP_PUT)
        step_put(shard, rows_find(&shard->rows, op->id), op);
    else
        apply(store, shard, op, now);
    leave(shard);
}

static enum err memory_run(struct conn *conn, struct op *const *ops, size_t n, struct fault *why)
{
    (void)why;
    struct store *store = (struct store *)(void *)conn;
    for (size_t i = 0; i < n; i++)
        op_run(store, ops[i]);
    return OK;
}

static enum err memory_open(const struct store_settings *settings, struct store **out,
                            struct fault *why)
{
    struct store *store = aligned_alloc(64, sizeof *store);
    if (!store)
        return fault_set(why, ERR_NO_MEMORY, "out of memory");
    memset(store, 0, sizeof *store);
    store->clock = settings->clock ? settings->clock : clock_system();
    store->ahead_ms = clock_ms(store->clock) - (int64_t)(clock_ns(store->clock) / NS_PER_MS);
    uint64_t seed = dice_seed_from_os();
    for (size_t i = 0; i < ROWS_SHARDS; i++) {
        rows_init(&store->shard[i].rows, seed);
        map_init(&store->shard[i].steps, seed);
        invariant(pthread_mutex_init(&store->shard[i].key, NULL) == 0);
    }
    *out = store;
    return OK;
}

static void memory_close(struct store *store)
{
    for (size_t i = 0; i < ROWS_SHARDS; i++) {
        struct shard *shard = &store->shard[i];
        for (uint32_t r = 0; r < shard->rows.top; r++)
            steps_drop(shard, rows_at(&shard->rows, r));
        rows_clear(&shard->rows);
        map_clear(&shard->steps);
        (void)pthread_mutex_destroy(&shard->key);
    }
    free(store);
}

/* All threads share the one connection, which is the store itself. */
static enum err memory_connect(struct store *store, struct conn **out, struct fault *why)
{
    (void)why;
    *out = (struct conn *)(void *)store;
    return OK;
}

static void memory_disconnect(struct conn *conn)
{
    (void)conn;
}

const struct once_driver once_driver_memory = {
    .name = "memory",
    .direct = true,
    .open = memory_open,
    .close = memory_close,
    .connect = memory_connect,
    .disconnect = memory_disconnect,
    .run = memory_run,
};
