/* keeper.c - the module's own thread: keeps claims alive and sweeps what is forgotten.
 *
 * Four rounds for each third of the expiry. A round renews the claims of which more than a quarter
 * of their time is used up, all that there are in one go; so each is renewed before a third of it
 * is. Sweeps are small and many, as long as there is something to sweep; then by the minute.
 *
 * It tells no handler that its claim is lost: once_run_lost sees that by the clock, also when this
 * thread is kept waiting by a store that does not answer.
 */
#include "once/once_int.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define ROUND_LEAST_MS   5
#define ROUND_MOST_MS    1000
#define BATCHES_OF_SHARD 8
#define SWEEPS_A_SECOND  10 /* small ones, so that nothing waits long behind one */
#define SWEEP_BUSY_MS    (1000 / SWEEPS_A_SECOND)
#define SWEEP_LEAST_MS   1000
#define SWEEP_MOST_MS    60000

static uint64_t round_ms(const struct once *once)
{
    uint64_t ms = (uint64_t)once->with.expiry_ms / 12;
    if (!once->renews || ms > ROUND_MOST_MS)
        return ROUND_MOST_MS;
    return ms < ROUND_LEAST_MS ? ROUND_LEAST_MS : ms;
}

/* False: the store has no answer, which it need not be asked for again at once. */
static bool renew_some(struct once *once, struct op *ops, size_t n)
{
    struct op *row[ONCE_OPS_MAX];
    struct span span;
    struct fault why = {0};
    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        row[i] = &ops[i];
    int64_t wait_ms = once->with.expiry_ms / 3;
    if (wait_ms > once->with.wait_ms)
        wait_ms = once->with.wait_ms;
    enum err err = store_ask(once, row, n, (int)wait_ms, &span, &why);
    uint64_t expiry_ns = (uint64_t)once->with.expiry_ms * NS_PER_MS;
    for (size_t i = 0; i < n; i++)
        running_renewed(&once->running, &ops[i], span.asked_ns + expiry_ns,
                        span.answered_ns + expiry_ns);
    return err == OK;
}

/* What a shard has beyond a few batches is renewed in the next round. */
static size_t renew_shard(struct once *once, size_t shard, uint64_t before_ns, struct op *ops,
                          size_t n)
{
    for (int batch = 0; batch < BATCHES_OF_SHARD; batch++) {
        n += running_collect(&once->running, shard, before_ns, ops + n, ONCE_OPS_MAX - n);
        if (n < ONCE_OPS_MAX)
            return n;
        bool answered = renew_some(once, ops, n);
        n = 0;
        if (!answered)
            break;
    }
    return n;
}

static void renew(struct once *once)
{
    uint64_t left_ns = (uint64_t)once->with.expiry_ms * NS_PER_MS / 4 * 3;
    uint64_t before_ns = clock_ns(once->clock) + left_ns;
    struct op *ops = NULL; /* big, so only while there is something */
    size_t n = 0;
    for (size_t shard = 0; shard < RUNNING_SHARDS; shard++) {
        if (running_idle(&once->running, shard))
            continue;
        if (!ops)
            ops = calloc(ONCE_OPS_MAX, sizeof *ops);
        if (!ops)
            return; /* the next round may have more luck */
        n = renew_shard(once, shard, before_ns, ops, n);
    }
    if (n > 0)
        (void)renew_some(once, ops, n);
    free(ops);
}

/* Nothing was left to sweep: a small part of the time that marks live, later. */
static uint64_t sweep_idle_ms(const struct once *once)
{
    uint64_t ms = (uint64_t)once->with.retention_ms / 64;
    return ms < SWEEP_LEAST_MS ? SWEEP_LEAST_MS : ms > SWEEP_MOST_MS ? SWEEP_MOST_MS : ms;
}

static void sweep(struct once *once)
{
    uint64_t now_ns = clock_ns(once->clock);
    struct keeper *k = &once->keeper;
    if (now_ns < k->sweep_ns || crew_stale(once->crew))
        return;
    int rows = once->with.sweep_rows / SWEEPS_A_SECOND + 1;
    struct op op = {.kind = OP_SWEEP, .name = "", .rows = rows};
    op.retention_ms = once->with.retention_ms;
    struct op *row[] = {&op};
    struct fault why = {0};
    enum err err = store_ask(once, row, 1, once->with.wait_ms, NULL, &why);
    bool more = err == OK && op.outcome == OUT_OK && op.rows >= rows;
    if (err == OK && op.outcome == OUT_OK && op.rows > 0)
        tally_add(&once->tally, TALLY_SWEPT, (uint64_t)op.rows);
    k->sweep_ns = now_ns + (more ? SWEEP_BUSY_MS : sweep_idle_ms(once)) * NS_PER_MS;
}

void keeper_turn(struct once *once)
{
    if (once->renews)
        renew(once);
    sweep(once);
}

/* Until the next round, or the next sweep. */
static uint64_t pause_ms(const struct once *once)
{
    uint64_t ms = round_ms(once), now_ns = clock_ns(once->clock), next_ns = once->keeper.sweep_ns;
    uint64_t sweep_ms = next_ns > now_ns ? (next_ns - now_ns) / NS_PER_MS + 1 : 1;
    return sweep_ms < ms ? sweep_ms : ms;
}

static void *keeper_main(void *arg)
{
    struct once *once = arg;
    struct keeper *k = &once->keeper;
    invariant(pthread_mutex_lock(&k->key) == 0);
    while (!k->stop) {
        uint64_t until_ns = wait_now_ns() + pause_ms(once) * NS_PER_MS;
        struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
        (void)pthread_cond_timedwait(&k->news, &k->key, &until);
        if (k->stop)
            break;
        invariant(pthread_mutex_unlock(&k->key) == 0);
        keeper_turn(once);
        invariant(pthread_mutex_lock(&k->key) == 0);
    }
    invariant(pthread_mutex_unlock(&k->key) == 0);
    return NULL;
}

enum err keeper_start(struct once *once, struct fault *why)
{
    struct keeper *k = &once->keeper;
    pthread_condattr_t attr;
    invariant(pthread_mutex_init(&k->key, NULL) == 0);
    invariant(pthread_condattr_init(&attr) == 0);
    invariant(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    invariant(pthread_cond_init(&k->news, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
    k->sweep_ns = clock_ns(once->clock) + SWEEP_LEAST_MS * NS_PER_MS;
    sigset_t all, before; /* signals are the application's: this thread takes none */
    (void)sigfillset(&all);
    invariant(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    k->started = pthread_create(&k->thread, NULL, keeper_main, once) == 0;
    invariant(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return k->started ? OK : fault_set(why, ERR_NO_MEMORY, "no thread can be started");
}

void keeper_stop(struct once *once)
{
    struct keeper *k = &once->keeper;
    if (!k->started)
        return;
    invariant(pthread_mutex_lock(&k->key) == 0);
    k->stop = true;
    invariant(pthread_mutex_unlock(&k->key) == 0);
    (void)pthread_cond_signal(&k->news);
    (void)pthread_join(k->thread, NULL);
    (void)pthread_cond_destroy(&k->news);
    (void)pthread_mutex_destroy(&k->key);
    k->started = false;
}
