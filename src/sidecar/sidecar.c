/* sidecar.c - the life of a sidecar: options, threads, stopping. */
#include "sidecar/sidecar_int.h"

#include "once/key.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PARALLEL_MAX  1024
#define IN_FLIGHT_MAX 100000
#define CONSUMER_MS   86400000 /* ours is the time-out that counts */
#define GRACE_MS      1000
#define KILL_AFTER_MS 3000

void sidecar_log(const struct sidecar *s, int level, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!s->with.log)
        return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->with.log(s->with.user, level, line);
}

static void once_line(void *user, int level, const char *line)
{
    if (level >= ONCE_INFO)
        sidecar_log(user, level == ONCE_INFO ? SIDECAR_INFO : SIDECAR_WARN, "once: %s", line);
}

enum err thread_begin(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(out, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? ERR_NO_MEMORY : OK;
}

/* ---- options ---- */

static const struct worker *worker_of(int worker)
{
    static const struct worker *const all[] = {[SIDECAR_EXEC] = &worker_exec,
                                               [SIDECAR_HTTP] = &worker_http,
                                               [SIDECAR_PIPE] = &worker_pipe,
                                               [SIDECAR_SQL] = &worker_sql};
    return worker >= 0 && (size_t)worker < sizeof all / sizeof all[0] ? all[worker] : NULL;
}

/* From the first delivery to the last retry, as brokers do it. */
static int64_t ladder_ms(int retries)
{
    static const int seconds[] = {10,  30,  60,  120, 180,  240,  300,  360,
                                  420, 480, 540, 600, 1200, 1800, 3600, 7200};
    const int n = sizeof seconds / sizeof seconds[0];
    int64_t sum = 0;
    for (int i = 0; i < retries && i < 1000; i++)
        sum += seconds[i < n ? i : n - 1];
    return sum * 1000;
}

static void or_else(int *value, int fallback)
{
    if (*value == 0)
        *value = fallback;
}

static enum err options_take(struct sidecar *s, const struct sidecar_options *from,
                             struct fault *why)
{
    struct sidecar_options *o = &s->with;
    *o = *from;
    if (!o->group || !o->group[0] || o->n_subscriptions == 0)
        return fault_set(why, ERR_INVALID, "a group and a topic are needed");
    s->worker = worker_of(o->worker);
    if (!s->worker)
        return fault_set(why, ERR_INVALID, "there is no such worker");
    or_else(&o->parallel, o->worker == SIDECAR_PIPE ? 1 : 8);
    or_else(&o->in_flight, 1000);
    or_else(&o->timeout_ms, 60000);
    or_else(&o->later_ms, 10000);
    or_else(&o->stop_ms, 30000);
    if (o->stop_ms > INT_MAX - KILL_AFTER_MS)
        o->stop_ms = INT_MAX - KILL_AFTER_MS;
    or_else(&o->max_attempts, 16);
    or_else(&o->output, -1);
    if (o->max_attempts < 0)
        o->max_attempts = 0;
    if (o->parallel < 1 || o->parallel > PARALLEL_MAX || o->in_flight < 1 ||
        o->in_flight > IN_FLIGHT_MAX)
        return fault_set(why, ERR_INVALID, "parallel is 1 to %d, in flight 1 to %d", PARALLEL_MAX,
                         IN_FLIGHT_MAX);
    if (o->timeout_ms < 1 || o->later_ms < 0 || o->stop_ms < 0 || o->idle_ms < 0)
        return fault_set(why, ERR_INVALID, "a time is below zero");
    int mode = o->once.mode;
    if (o->worker == SIDECAR_SQL)
        o->once.mode = ONCE_TRANSACTION;
    else if (mode != ONCE_LEASE && mode != ONCE_TABLE)
        return fault_set(why, ERR_INVALID,
                         "the mode is lease or table; a transaction wants statements (sql)");
    return OK;
}

static enum err order_open(struct sidecar *s, struct fault *why)
{
    if (!s->with.order_by)
        return OK;
    enum err err = key_compile(s->with.order_by, &s->order, why);
    return err ? fault_add(why, err, "order by") : OK;
}

static enum err once_begin_store(struct sidecar *s, struct fault *why)
{
    struct once_options with = s->with.once;
    struct once_error error;
    with.group = s->with.group;
    if (!with.store && !with.checker && s->with.worker != SIDECAR_SQL)
        with.store = "broker:";
    with.ladder_ms = with.ladder_ms ? with.ladder_ms : ladder_ms(s->with.max_attempts);
    with.takeover = true;
    with.log = once_line;
    with.user = s;
    int code = once_open(&with, &s->once, &error);
    if (code == ONCE_OK)
        return OK;
    return fault_set(why, code == ONCE_STORE ? ERR_IO : ERR_INVALID, "%s", error.text);
}

static enum err consumer_start(struct sidecar *s, struct fault *why)
{
    const struct sidecar_options *o = &s->with;
    struct omq_error error = {0};
    struct omq_consumer_options with = {
        .group = o->group,
        .subscriptions = o->subscriptions,
        .n_subscriptions = o->n_subscriptions,
        .start = o->start,
        .start_ms = o->start_ms,
        .max_attempts = o->max_attempts > 0 ? o->max_attempts : -1,
        .timeout_ms = CONSUMER_MS,
        .close_ms = o->stop_ms + KILL_AFTER_MS,
    };
    if (omq_consumer_open(s->client, &with, &s->consumer, &error) == OMQ_OK)
        return OK;
    return fault_set(why, error.code == OMQ_NETWORK ? ERR_IO : ERR_INVALID, "%s", error.text);
}

/* ---- threads that work on one message at a time ---- */

struct hand {
    struct sidecar *sidecar;
    void *own; /* the worker's */
};

static void *hand_run(void *arg)
{
    struct hand *hand = arg;
    struct sidecar *s = hand->sidecar;
    struct job *job;
    while (desk_next(s, &job, 1) > 0) {
        struct fate fate;
        if (desk_begin(s, &job, 1) == 0)
            continue;
        s->worker->work(s, hand->own, job, &fate);
        desk_end(s, &job, &fate, 1);
    }
    s->worker->hand_close(hand->own);
    free(hand);
    return NULL;
}

static enum err hand_start(struct sidecar *s, size_t number, struct fault *why)
{
    struct hand *hand = calloc(1, sizeof *hand);
    if (!hand)
        return ERR_NO_MEMORY;
    hand->sidecar = s;
    enum err err = s->worker->hand_open(s, number, &hand->own, why);
    if (err) {
        free(hand);
        return err;
    }
    err = thread_begin(&s->threads[s->n_threads], hand_run, hand);
    if (err) {
        s->worker->hand_close(hand->own);
        free(hand);
        return err;
    }
    s->n_threads++;
    return OK;
}

static enum err threads_start(struct sidecar *s, struct fault *why)
{
    if (s->worker->start)
        return s->worker->start(s, why);
    s->threads = calloc((size_t)s->with.parallel, sizeof *s->threads);
    enum err err = s->threads ? OK : ERR_NO_MEMORY;
    for (int i = 0; !err && i < s->with.parallel; i++)
        err = hand_start(s, (size_t)i, why);
    return err;
}

/* ---- life ---- */

/* True: nothing is held any more. */
static bool calm_within(struct sidecar *s, int ms)
{
    struct desk *desk = &s->desk;
    uint64_t until = now_ns() + (uint64_t)ms * NS_PER_MS;
    room_enter(&desk->room);
    for (uint64_t now; desk->held > 0 && (now = now_ns()) < until;)
        room_wait_ns(&desk->room, until - now);
    bool calm = desk->held == 0;
    room_leave(&desk->room);
    return calm;
}

/* Ends workers that are not back in time, while the consumer waits for them. */
static void *watch_run(void *arg)
{
    struct sidecar *s = arg;
    if (calm_within(s, s->with.stop_ms))
        return NULL;
    sidecar_log(s, SIDECAR_WARN, "workers are ended: they did not finish within %d ms",
                s->with.stop_ms);
    atomic_store(&s->ending, true);
    s->worker->kill(s, SIGTERM);
    if (!calm_within(s, GRACE_MS))
        s->worker->kill(s, SIGKILL);
    return NULL;
}

static void threads_end(struct sidecar *s)
{
    pthread_t watch;
    bool watched = thread_begin(&watch, watch_run, s) == OK;
    if (!watched) { /* nobody to wait with: at once */
        atomic_store(&s->ending, true);
        s->worker->kill(s, SIGKILL);
    }
    omq_consumer_close(s->consumer);
    for (size_t i = 0; i < s->n_threads; i++)
        (void)pthread_join(s->threads[i], NULL);
    if (s->state)
        s->worker->close(s);
    if (watched)
        (void)pthread_join(watch, NULL);
}

static void sidecar_free(struct sidecar *s)
{
    once_close(s->once);
    key_free(s->order);
    desk_clear(s);
    free(s->threads);
    free(s);
}

enum err sidecar_open(struct omq_client *client, const struct sidecar_options *options,
                      struct sidecar **out, struct fault *why)
{
    struct fault unseen;
    why = why ? why : &unseen;
    why->text[0] = 0;
    struct sidecar *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    s->client = client;
    enum err err = options_take(s, options, why);
    if (!err)
        err = order_open(s, why);
    if (err) {
        key_free(s->order);
        free(s);
        return err;
    }
    err = desk_open(s);
    if (!err)
        err = s->worker->open(s, why);
    if (!err)
        err = once_begin_store(s, why);
    if (!err)
        err = consumer_start(s, why);
    if (!err)
        err = threads_start(s, why);
    if (err) {
        sidecar_close(s, NULL);
        return err;
    }
    s->with.subscriptions = NULL; /* the consumer has copies */
    *out = s;
    return OK;
}

void sidecar_stats(struct sidecar *s, struct sidecar_stats *out)
{
    *out = (struct sidecar_stats){
        .done = atomic_load(&s->fates[SIDECAR_DONE]),
        .already = atomic_load(&s->fates[SIDECAR_ALREADY]),
        .later = atomic_load(&s->fates[SIDECAR_LATER]),
        .failed = atomic_load(&s->fates[SIDECAR_FAILED]),
        .dead = atomic_load(&s->fates[SIDECAR_DEAD]),
        .given_back = atomic_load(&s->given_back),
        .restarts = atomic_load(&s->restarts),
        .strange = atomic_load(&s->strange),
        .running = atomic_load(&s->running),
    };
}

void sidecar_close(struct sidecar *s, struct sidecar_stats *last)
{
    if (!s)
        return;
    desk_stop(s);
    if (s->consumer)
        threads_end(s);
    else if (s->state)
        s->worker->close(s);
    if (last)
        sidecar_stats(s, last);
    sidecar_free(s);
}
