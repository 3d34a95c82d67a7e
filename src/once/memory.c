/* memory.c - the store that is this process: for tests, and for programs of one process.
 *
 * 64 shards with a lock each; the first byte of an id chooses. A shard is an index of rows:
 *
 *     slot[tag …] ── number ──► row     a slot has 32 bits of the id, so that nearly always it
 *     slot[tag …]                       tells by itself that a key is new: of many rows, one that
 *     free                              is looked at is one that is not in the processor's cache.
 *                                       Rows stand in pages of 256 and never move
 *
 * A tag says where its slot would like to stand; what finds that taken stands behind it (linear
 * probing, at most three quarters full), and moves up when a place before it becomes free. Growing
 * goes by the tags alone. A row is 56 bytes, of the id 16 (ids are SHA-256; half of one is as good
 * here). Steps are few and big: they are kept aside, by id.
 *
 * What has expired goes in two ways: each new row looks at two others, so that the table cannot
 * grow faster than it is swept; and OP_SWEEP looks at all.
 *
 * Time is the wall clock when the store was opened, and from then on the monotonic one: nobody's
 * correction of the clock ends a claim.
 */
#include "once/decide.h"
#include "once/once_int.h"

#include <assert.h>
#include <stdlib.h>

#define SHARDS    64
#define ID_KEPT   16
#define PAGE_ROWS 256
#define NONE      UINT32_MAX
#define SLOTS_FEW 16
#define LOOK_AT   2 /* rows, for each that is added */

struct slot {
    uint32_t tag;
    uint32_t number; /* of the row; NONE: the slot is free */
};

struct row {
    uint8_t id[ID_KEPT];
    uint64_t token;
    int64_t fence;
    int64_t until_ms;
    uint64_t fingerprint;
    uint32_t next; /* among the free ones */
    uint8_t state; /* ONCE_ABSENT: free */
    bool stepped;  /* has steps */
};
static_assert(sizeof(struct row) == 56, "a million rows and their slots stay below 100 MB");

struct step {
    struct step *next;
    size_t name_size, size;
    uint8_t at[]; /* name, result */
};

struct steps { /* of one id */
    uint8_t id[ID_KEPT];
    struct step *first;
};

struct shard {
    _Alignas(64) pthread_mutex_t key;
    struct slot *slot;
    uint32_t n_slots; /* 0, or a power of two */
    uint32_t n;       /* rows in use */
    uint32_t top;     /* rows that were ever in use */
    uint32_t free;    /* first of the free ones below top */
    uint32_t look;    /* the next one to be looked at */
    uint32_t n_pages;
    struct row **page;
    struct map steps;
};

struct store {
    struct shard shard[SHARDS];
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

static struct row *row_at(const struct shard *shard, uint32_t number)
{
    return &shard->page[number / PAGE_ROWS][number % PAGE_ROWS];
}

static uint32_t tag_of(const uint8_t *id)
{
    return load_u32(id + 4);
}

/* The slot of this id, or the free one where the search for it ends: some always are. */
static struct slot *slot_find(const struct shard *shard, const uint8_t *id)
{
    uint32_t mask = shard->n_slots - 1, tag = tag_of(id), i = tag & mask;
    for (; shard->slot[i].number != NONE; i = (i + 1) & mask) {
        if (shard->slot[i].tag == tag &&
            memcmp(row_at(shard, shard->slot[i].number)->id, id, ID_KEPT) == 0)
            break;
    }
    return &shard->slot[i];
}

static struct row *row_find(const struct shard *shard, const uint8_t *id)
{
    if (shard->n_slots == 0)
        return NULL;
    const struct slot *slot = slot_find(shard, id);
    return slot->number == NONE ? NULL : row_at(shard, slot->number);
}

static enum err slots_grow(struct shard *shard)
{
    uint32_t n = shard->n_slots ? shard->n_slots * 2 : SLOTS_FEW, mask = n - 1;
    struct slot *grown = malloc((size_t)n * sizeof *grown);
    if (!grown) /* one more will do, as long as one stays free */
        return shard->n + 1 < shard->n_slots ? OK : ERR_NO_MEMORY;
    memset(grown, 0xff, (size_t)n * sizeof *grown); /* NONE */
    for (uint32_t old = 0; old < shard->n_slots; old++) {
        if (shard->slot[old].number == NONE)
            continue;
        uint32_t i = shard->slot[old].tag & mask;
        while (grown[i].number != NONE)
            i = (i + 1) & mask;
        grown[i] = shard->slot[old];
    }
    free(shard->slot);
    shard->slot = grown;
    shard->n_slots = n;
    return OK;
}

/* What stands behind it and would rather stand here, or before, moves up. */
static void slot_free(struct shard *shard, struct slot *slot)
{
    uint32_t mask = shard->n_slots - 1, hole = (uint32_t)(slot - shard->slot);
    for (uint32_t i = (hole + 1) & mask; shard->slot[i].number != NONE; i = (i + 1) & mask) {
        uint32_t way = (i - shard->slot[i].tag) & mask; /* from where it would like to stand */
        if (way < ((i - hole) & mask))
            continue;
        shard->slot[hole] = shard->slot[i];
        hole = i;
    }
    shard->slot[hole].number = NONE;
}

static enum err page_add(struct shard *shard)
{
    struct row **page = realloc(shard->page, (shard->n_pages + 1) * sizeof(struct row *));
    if (!page)
        return ERR_NO_MEMORY;
    shard->page = page;
    page[shard->n_pages] = malloc(PAGE_ROWS * sizeof(struct row));
    if (!page[shard->n_pages])
        return ERR_NO_MEMORY;
    shard->n_pages++;
    return OK;
}

/* A row for this id, which has none. NULL: out of memory. */
static struct row *row_add(struct shard *shard, const uint8_t *id)
{
    if (shard->n >= shard->n_slots / 4 * 3 && slots_grow(shard) != OK)
        return NULL;
    uint32_t number = shard->free;
    if (number != NONE)
        shard->free = row_at(shard, number)->next;
    else if (shard->top == shard->n_pages * PAGE_ROWS && page_add(shard) != OK)
        return NULL;
    else
        number = shard->top++;
    struct row *row = row_at(shard, number);
    *row = (struct row){.state = ONCE_ABSENT};
    memcpy(row->id, id, ID_KEPT);
    __builtin_prefetch(row + 1, 1); /* probably the next one to be written */
    *slot_find(shard, id) = (struct slot){tag_of(id), number};
    shard->n++;
    return row;
}

static void steps_drop(struct shard *shard, struct row *row)
{
    if (!row->stepped)
        return;
    row->stepped = false;
    struct steps *steps = map_remove(&shard->steps, bytes_of(row->id, ID_KEPT));
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
    struct slot *slot = slot_find(shard, row->id);
    row->state = ONCE_ABSENT;
    row->next = shard->free;
    shard->free = slot->number;
    slot_free(shard, slot);
    shard->n--;
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
    for (int i = 0; i < LOOK_AT && shard->top > 0; i++) {
        if (shard->look >= shard->top)
            shard->look = 0;
        struct row *row = row_at(shard, shard->look++);
        __builtin_prefetch(row + LOOK_AT); /* the shard's next turn is some messages away */
        if (is_over(store, row, now))
            row_drop(shard, row);
    }
}

static void sweep(struct store *store, struct op *op, int64_t now)
{
    int most = op->rows;
    op->rows = 0;
    for (size_t i = 0; i < SHARDS && op->rows < most; i++) {
        struct shard *shard = &store->shard[i];
        enter(shard);
        for (uint32_t r = 0; r < shard->top && op->rows < most; r++) {
            struct row *row = row_at(shard, r);
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
    struct step *step = step_find(map_get(&shard->steps, bytes_of(op->id, ID_KEPT)), op->step);
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
    struct steps *steps = map_get(&shard->steps, bytes_of(row->id, ID_KEPT));
    if (steps)
        return steps;
    steps = calloc(1, sizeof *steps);
    if (!steps)
        return NULL;
    memcpy(steps->id, row->id, ID_KEPT);
    if (map_put(&shard->steps, bytes_of(steps->id, ID_KEPT), steps) != OK) {
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
    struct row *row = row_find(shard, op->id);
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
        row = row_add(shard, op->id);
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
    struct shard *shard = &store->shard[op->id[0] % SHARDS];
    if (op->kind == OP_CLAIM &&
        op->retention_ms > atomic_load_explicit(&store->keep_ms, memory_order_relaxed))
        atomic_store_explicit(&store->keep_ms, op->retention_ms, memory_order_relaxed);
    enter(shard);
    if (op->kind == OP_STEP_GET)
        step_get(shard, op);
    else if (op->kind == OP_STEP_PUT)
        step_put(shard, row_find(shard, op->id), op);
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
    for (size_t i = 0; i < SHARDS; i++) {
        store->shard[i].free = NONE;
        map_init(&store->shard[i].steps, seed);
        invariant(pthread_mutex_init(&store->shard[i].key, NULL) == 0);
    }
    *out = store;
    return OK;
}

static void memory_close(struct store *store)
{
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &store->shard[i];
        for (uint32_t r = 0; r < shard->top; r++)
            steps_drop(shard, row_at(shard, r));
        for (uint32_t p = 0; p < shard->n_pages; p++)
            free(shard->page[p]);
        free(shard->page);
        free(shard->slot);
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
