/* pool.c - connections of transactions: each is one run's from begin to end.
 *
 * At most `max` at a time; POOL_IDLE are kept when nobody needs them, the last one given back is
 * taken first. One that has rested is asked whether it still lives before it is used. */
#include "once/once_int.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define POOL_IDLE      5
#define POOL_REST_MS   1000
#define KNOCK_TAKES_MS 100

struct pool {
    const struct once_driver *driver;
    struct store *store;
    pthread_mutex_t key;
    pthread_cond_t news; /* one was given back */
    int max, n;          /* n: all there are, in use and idle */
    struct {
        struct conn *conn;
        uint64_t since_ns;
    } idle[POOL_IDLE];
    int n_idle;
    struct gate gate;
    struct fault last;
};

static void enter(struct pool *pool)
{
    invariant(pthread_mutex_lock(&pool->key) == 0);
}

static void leave(struct pool *pool)
{
    invariant(pthread_mutex_unlock(&pool->key) == 0);
}

enum err pool_open(const struct once_driver *driver, struct store *store, int max,
                   struct pool **out)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return ERR_NO_MEMORY;
    pool->driver = driver;
    pool->store = store;
    pool->max = max;
    pool->gate.most_ms = UINT64_MAX;
    pthread_condattr_t attr;
    invariant(pthread_mutex_init(&pool->key, NULL) == 0);
    invariant(pthread_condattr_init(&attr) == 0);
    invariant(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    invariant(pthread_cond_init(&pool->news, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
    *out = pool;
    return OK;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    invariant(pool->n == pool->n_idle); /* nothing runs */
    for (int i = 0; i < pool->n_idle; i++)
        pool->driver->disconnect(pool->idle[i].conn);
    (void)pthread_cond_destroy(&pool->news);
    (void)pthread_mutex_destroy(&pool->key);
    free(pool);
}

/* With the key: waits for one that is idle, or for room for a new one. */
static enum err wait_for_place(struct pool *pool, uint64_t until_ns, struct fault *why)
{
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    while (pool->n_idle == 0 && pool->n >= pool->max) {
        if (pthread_cond_timedwait(&pool->news, &pool->key, &until) == ETIMEDOUT)
            return fault_set(why, ERR_TIMEOUT,
                             "all %d connections to the store are in use; more workers than "
                             "connections, or handlers that take long",
                             pool->max);
    }
    return OK;
}

/* With the key. One that was idle, and lives. */
static struct conn *take_idle(struct pool *pool)
{
    while (pool->n_idle > 0) {
        pool->n_idle--;
        struct conn *conn = pool->idle[pool->n_idle].conn;
        uint64_t rest_ns = wait_now_ns() - pool->idle[pool->n_idle].since_ns;
        if (!pool->driver->healthy || rest_ns < POOL_REST_MS * NS_PER_MS)
            return conn;
        leave(pool);
        bool healthy = pool->driver->healthy(conn);
        if (!healthy)
            pool->driver->disconnect(conn);
        enter(pool);
        if (healthy)
            return conn;
        pool->n--;
    }
    return NULL;
}

/* With the key. While the store is away one knocks at a time, and everybody waits for one knock. */
static enum err wait_for_gate(struct pool *pool, uint64_t until_ns, struct fault *why)
{
    uint64_t now_ns = wait_now_ns(), next_ns = pool->gate.next_ns;
    if (next_ns > until_ns)
        next_ns = until_ns;
    if (now_ns < next_ns) {
        leave(pool);
        wait_ns(next_ns - now_ns);
        enter(pool);
        now_ns = wait_now_ns();
    }
    if (pool->gate.since_ns == 0)
        return OK;
    if (now_ns < pool->gate.next_ns) {
        if (why)
            *why = pool->last;
        return ERR_IO;
    }
    pool->gate.next_ns = now_ns + KNOCK_TAKES_MS * NS_PER_MS;
    return OK;
}

static void place_free(struct pool *pool)
{
    pool->n--;
    (void)pthread_cond_signal(&pool->news);
}

/* With the key. */
static enum err connect_new(struct pool *pool, uint64_t until_ns, struct conn **out,
                            struct fault *why)
{
    pool->n++; /* its place, also while it waits: others come meanwhile */
    if (pool->gate.since_ns != 0 && wait_for_gate(pool, until_ns, why) != OK) {
        place_free(pool);
        return ERR_IO;
    }
    struct fault fault = {0};
    leave(pool);
    enum err err = pool->driver->connect(pool->store, out, &fault);
    enter(pool);
    if (err == OK) {
        gate_open(&pool->gate);
        return OK;
    }
    place_free(pool);
    gate_shut(&pool->gate, wait_now_ns());
    pool->last = fault;
    if (why)
        *why = fault;
    return err == ERR_NO_MEMORY || err == ERR_STALE ? err : ERR_IO;
}

enum err pool_take(struct pool *pool, int wait_ms, struct conn **out, struct fault *why)
{
    uint64_t until_ns = wait_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
    struct conn *conn = NULL;
    enter(pool);
    enum err err;
    do {
        err = wait_for_place(pool, until_ns, why);
        if (err == OK)
            conn = take_idle(pool);
        /* While an idle one was looked at, others may have taken what was free. */
    } while (err == OK && !conn && pool->n >= pool->max);
    if (err == OK && !conn)
        err = connect_new(pool, until_ns, &conn, why);
    leave(pool);
    if (err == OK)
        *out = conn;
    return err;
}

void pool_give(struct pool *pool, struct conn *conn, bool usable)
{
    uint64_t now_ns = wait_now_ns();
    enter(pool);
    usable = usable && pool->n_idle < POOL_IDLE;
    if (usable) {
        pool->idle[pool->n_idle].conn = conn;
        pool->idle[pool->n_idle++].since_ns = now_ns;
    } else
        pool->n--;
    (void)pthread_cond_signal(&pool->news);
    leave(pool);
    if (!usable)
        pool->driver->disconnect(conn);
}
