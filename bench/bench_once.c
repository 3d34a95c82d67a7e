/* bench_once.c - what libonce costs: the handler does nothing, and beside it runs a bare loop.
 *
 *     bench_once URL [WORKERS]      memory: or one of the servers that bench/once.py starts
 *
 * Ours and the bare loop take turns of a second; each pair gives one ratio, and the median counts.
 */
#include "bench_once.h"

#include "once.h"

#include <err.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS      9
#define MEMORY_KEYS 1000000

static const char *url;
static unsigned workers = 32;
static _Atomic uint64_t numbers;
static _Atomic bool stop;
static _Atomic uint64_t done;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t))
        err(1, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool verdict(const char *what, double *ratios, double target)
{
    qsort(ratios, ROUNDS, sizeof *ratios, by_size);
    double median = ratios[ROUNDS / 2];
    printf("once: %s: %.2f (rounds: %.2f to %.2f), target %.2f %s\n", what, median, ratios[0],
           ratios[ROUNDS - 1], target, median >= target ? "PASS" : "MISS");
    (void)fflush(stdout);
    return median >= target;
}

/* ---- ours ---- */

static struct once *open_mode(int mode)
{
    struct once_options options = {.store = url,
                                   .mode = mode,
                                   .group = "bench",
                                   .key = "coupon:{body.taskId}",
                                   .create = true};
    struct once *once;
    struct once_error why;
    if (once_open(&options, &once, &why))
        errx(1, "%s", why.text);
    return once;
}

static int nothing(void *user, struct once_run *run)
{
    (void)user;
    (void)run;
    return ONCE_DONE;
}

static int write_effect(void *user, struct once_run *run)
{
    return bare_effect(url, once_run_connection(run), *(uint64_t *)user) ? ONCE_DONE : ONCE_FAILED;
}

static void deliver(struct once *once, once_handler *handler)
{
    char body[64];
    uint64_t number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
    int n = snprintf(body, sizeof body, "{\"taskId\":\"task%" PRIu64 "\",\"n\":1}", number);
    struct once_message m = {.topic = "T", .body = body, .body_size = (size_t)n};
    struct once_answer answer;
    if (once_do(once, &m, handler, &number, &answer) != ONCE_ACK)
        errx(1, "not done: %s %s", once_cause_text(answer.cause), answer.why.text);
    atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
}

struct ours {
    struct once *once;
    once_handler *handler;
};

static void *our_worker(void *user)
{
    const struct ours *ours = user;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        deliver(ours->once, ours->handler);
    return NULL;
}

/* ---- rounds ---- */

/* Messages a second of so many workers. */
static double rate(void *(*worker)(void *), void *const *users, unsigned n)
{
    pthread_t threads[WORKERS_MAX];
    struct timespec round = {.tv_sec = ROUND_MS / 1000};
    atomic_store(&stop, false);
    atomic_store(&done, 0);
    uint64_t begin = now_ns(CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, worker, users[i]))
            errx(1, "no thread");
    (void)nanosleep(&round, NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    return (double)atomic_load(&done) * 1e9 / (double)(now_ns(CLOCK_MONOTONIC) - begin);
}

struct bare_user {
    const struct bare *bare;
    void *conn;
    bool transactions;
};

static void *bare_worker(void *user)
{
    const struct bare_user *u = user;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t number = atomic_fetch_add_explicit(&numbers, PIPELINE, memory_order_relaxed);
        size_t n = 1;
        if (u->transactions)
            u->bare->transaction(u->conn, number);
        else
            n = u->bare->claims(u->conn, number);
        atomic_fetch_add_explicit(&done, n, memory_order_relaxed);
    }
    return NULL;
}

static bool compare(const struct bare *bare, bool transactions)
{
    unsigned n = transactions ? TXN_WORKERS : workers;
    unsigned n_bare = bare->one ? 1 : n;
    struct ours ours = {open_mode(transactions ? ONCE_TRANSACTION : ONCE_LEASE),
                        transactions ? write_effect : nothing};
    struct bare_user theirs[WORKERS_MAX];
    void *our_users[WORKERS_MAX], *their_users[WORKERS_MAX];
    double ratios[ROUNDS], our_rate = 0, their_rate = 0;
    for (unsigned i = 0; i < n; i++)
        our_users[i] = &ours;
    for (unsigned i = 0; i < n_bare; i++) {
        theirs[i] = (struct bare_user){bare, bare->open(url), transactions};
        their_users[i] = &theirs[i];
    }
    for (int i = -1; i < ROUNDS; i++) {
        our_rate = rate(our_worker, our_users, n);
        their_rate = rate(bare_worker, their_users, n_bare);
        if (i >= 0)
            ratios[i] = our_rate / their_rate;
    }
    for (unsigned i = 0; i < n_bare; i++)
        bare->close(theirs[i].conn);
    once_close(ours.once);
    char what[200];
    (void)snprintf(what, sizeof what, "%s, %u workers, %s: %.0f/s of %.0f/s", bare->name, n,
                   transactions ? "the same transaction by hand" : bare->claim_text, our_rate,
                   their_rate);
    return verdict(what, ratios, transactions ? bare->txn_target : bare->claim_target);
}

/* ---- memory ---- */

static bool memory(void)
{
    struct once *once = open_mode(ONCE_LEASE);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    uint64_t begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < MEMORY_KEYS; i++)
        deliver(once, nothing);
    double us = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e3 / MEMORY_KEYS;
    double mb = (double)(mallinfo2().uordblks + mallinfo2().hblkhd - before) / 1e6;
    printf("once: memory: %.2f us a message, target under 2 %s\n", us, us < 2 ? "PASS" : "MISS");
    printf("once: memory: a million keys in %.0f MB, target under 100 %s\n", mb,
           mb < 100 ? "PASS" : "MISS");
    once_close(once);
    return us < 2 && mb < 100;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3)
        return 2;
    url = argv[1];
    if (argc == 3)
        workers = (unsigned)strtoul(argv[2], NULL, 10);
    if (workers < 1 || workers > WORKERS_MAX)
        errx(2, "from 1 to %d workers", WORKERS_MAX);
    numbers = (uint64_t)time(NULL) << 24; /* not those of the run before */
    if (strcmp(url, "memory:") == 0)
        return memory() ? 0 : 1;
    for (const struct bare *bare = bare_stores; bare->name; bare++) {
        if (!bare->mine(url))
            continue;
        bool good = compare(bare, false);
        if (bare->txn_target > 0 && argc == 2)
            good = compare(bare, true) && good;
        return good ? 0 : 1;
    }
    errx(2, "%s: no such store", url);
}
