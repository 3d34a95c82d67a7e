/* running.c - what runs in this process, by its id.
 *
 * Ids are hashes, so their bytes are the hash: the first chooses the shard, the second the bucket.
 */
#include "once/once_int.h"

static struct running_shard *shard_of(struct running *r, const uint8_t *id)
{
    return &r->shard[id[0] % RUNNING_SHARDS];
}

static struct once_run **bucket_of(struct running_shard *shard, const uint8_t *id)
{
    return &shard->bucket[id[1] % RUNNING_BUCKETS];
}

static struct once_run **find(struct running_shard *shard, const uint8_t *id)
{
    struct once_run **at = bucket_of(shard, id);
    while (*at && memcmp((*at)->op.id, id, ONCE_ID_SIZE) != 0)
        at = &(*at)->next;
    return at;
}

static void enter(struct running_shard *shard)
{
    invariant(pthread_mutex_lock(&shard->key) == 0);
}

static void leave(struct running_shard *shard)
{
    invariant(pthread_mutex_unlock(&shard->key) == 0);
}

void running_init(struct running *r)
{
    for (size_t i = 0; i < RUNNING_SHARDS; i++) {
        r->shard[i] = (struct running_shard){0};
        invariant(pthread_mutex_init(&r->shard[i].key, NULL) == 0);
    }
}

void running_clear(struct running *r)
{
    for (size_t i = 0; i < RUNNING_SHARDS; i++) {
        invariant(r->shard[i].n == 0);
        (void)pthread_mutex_destroy(&r->shard[i].key);
    }
}

enum err running_add(struct running *r, struct once_run *run)
{
    struct running_shard *shard = shard_of(r, run->op.id);
    enum err err = OK;
    enter(shard);
    struct once_run **at = find(shard, run->op.id);
    if (shard->closed)
        err = ERR_CLOSED;
    else if (*at)
        err = ERR_EXISTS;
    else {
        run->next = NULL;
        *at = run;
        shard->n++;
    }
    leave(shard);
    return err;
}

bool running_remove(struct running *r, struct once_run *run)
{
    struct running_shard *shard = shard_of(r, run->op.id);
    enter(shard);
    struct once_run **at = find(shard, run->op.id);
    invariant(*at == run);
    *at = run->next;
    shard->n--;
    bool closed = shard->closed;
    leave(shard);
    return closed && atomic_fetch_sub(&r->left, 1) == 1;
}

size_t running_shut(struct running *r)
{
    size_t n = 0;
    for (size_t i = 0; i < RUNNING_SHARDS; i++)
        enter(&r->shard[i]);
    for (size_t i = 0; i < RUNNING_SHARDS; i++) {
        r->shard[i].closed = true;
        n += r->shard[i].n;
    }
    atomic_store(&r->left, n);
    for (size_t i = 0; i < RUNNING_SHARDS; i++)
        leave(&r->shard[i]);
    return n;
}

size_t running_count(struct running *r)
{
    size_t n = 0;
    for (size_t i = 0; i < RUNNING_SHARDS; i++) {
        enter(&r->shard[i]);
        n += r->shard[i].n;
        leave(&r->shard[i]);
    }
    return n;
}

bool running_idle(struct running *r, size_t shard_number)
{
    struct running_shard *shard = &r->shard[shard_number];
    enter(shard);
    bool idle = shard->n == 0;
    leave(shard);
    return idle;
}

static struct op renewal_of(const struct once_run *run)
{
    struct op op = {
        .kind = OP_RENEW,
        .name = "", /* the run and its name may be gone before the store has answered */
        .token = run->op.token,
        .expiry_ms = run->op.expiry_ms,
        .retention_ms = run->op.retention_ms,
    };
    memcpy(op.id, run->op.id, ONCE_ID_SIZE);
    return op;
}

/* A claim that is being asked for has no end yet; one that runs without a store has none at all. */
static bool is_due(const struct once_run *run, uint64_t before_ns)
{
    uint64_t valid_ns = atomic_load_explicit(&run->valid_ns, memory_order_relaxed);
    return valid_ns != 0 && valid_ns < before_ns &&
           !atomic_load_explicit(&run->lost, memory_order_relaxed);
}

size_t running_collect(struct running *r, size_t shard_number, uint64_t before_ns, struct op *out,
                       size_t max)
{
    struct running_shard *shard = &r->shard[shard_number];
    size_t n = 0;
    enter(shard);
    for (size_t i = 0; i < RUNNING_BUCKETS && shard->n > 0; i++) {
        for (struct once_run *run = shard->bucket[i]; run && n < max; run = run->next) {
            if (is_due(run, before_ns))
                out[n++] = renewal_of(run);
        }
    }
    leave(shard);
    return n;
}

void running_renewed(struct running *r, const struct op *op, uint64_t valid_ns, uint64_t over_ns)
{
    struct running_shard *shard = shard_of(r, op->id);
    enter(shard);
    struct once_run *run = *find(shard, op->id);
    if (run && run->op.token == op->token) {
        if (op->outcome == OUT_OK) {
            atomic_store(&run->valid_ns, valid_ns);
            atomic_store(&run->over_ns, over_ns);
        } else if (op->outcome == OUT_LOST)
            atomic_store(&run->lost, true);
    }
    leave(shard);
}
