/* top_watch.c - the thread that gathers, and where its surveys change places. */
#include "cli/top_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 200

static struct timespec later(struct timespec from, int64_t ms)
{
    from.tv_sec += ms / 1000;
    from.tv_nsec += ms % 1000 * 1000000;
    if (from.tv_nsec >= 1000000000) {
        from.tv_sec++;
        from.tv_nsec -= 1000000000;
    }
    return from;
}

/* Until the next survey is due. False: it is over. */
static bool wait_due(struct watch *w, struct timespec due)
{
    (void)pthread_mutex_lock(&w->key);
    int late = 0;
    while (!w->stop && (w->paused || late != ETIMEDOUT))
        late = w->paused ? pthread_cond_wait(&w->changed, &w->key)
                         : pthread_cond_timedwait(&w->changed, &w->key, &due);
    bool on = !w->stop;
    (void)pthread_mutex_unlock(&w->key);
    return on;
}

static void *gather(void *user)
{
    struct watch *w = user;
    struct timespec began;
    do {
        (void)clock_gettime(CLOCK_MONOTONIC, &began);
        size_t next = 1 - w->current; /* only this thread changes it */
        survey_take(&w->surveys[next], w->number > 0 ? &w->surveys[w->current] : NULL, &w->plan);
        (void)pthread_mutex_lock(&w->key);
        w->current = next;
        w->number++;
        (void)pthread_mutex_unlock(&w->key);
        (void)!write(w->told[1], "", 1);
    } while (wait_due(w, later(began, w->interval_ms)));
    return NULL;
}

int watch_open(struct watch *w, struct cli *cli, int64_t interval_ms)
{
    int status;
    *w = (struct watch){
        .interval_ms = interval_ms,
        .plan = {.topic = arg_text(cli, "topic", NULL),
                 .group = arg_text(cli, "group", NULL),
                 .all = arg_has(cli, "all"),
                 .budget_ms = interval_ms / 2},
        .told = {-1, -1},
    };
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&w->key, NULL);
    (void)pthread_cond_init(&w->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    survey_open(&w->surveys[0], cli);
    survey_open(&w->surveys[1], cli);
    if (!cli_client(cli, &status)) /* before there is a second thread */
        return status;
    if (pipe2(w->told, O_CLOEXEC | O_NONBLOCK))
        return cli_fail(cli, STATUS_FAILED, NULL, "no pipe: %s", strerror(errno));
    /* Signals are the main thread's, which waits where they wake it. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    w->running = pthread_create(&w->thread, NULL, gather, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->running ? STATUS_OK : cli_fail(cli, STATUS_FAILED, NULL, "no second thread");
}

static void watch_set(struct watch *w, bool *flag, bool to)
{
    (void)pthread_mutex_lock(&w->key);
    *flag = to;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->key);
}

void watch_pause(struct watch *w, bool paused)
{
    watch_set(w, &w->paused, paused);
}

void watch_close(struct watch *w, int status)
{
    watch_set(w, &w->stop, true);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until = later(until, PATIENCE_MS);
    if (w->running && pthread_timedjoin_np(w->thread, NULL, &until))
        _exit(status); /* it waits for a server that hangs; whoever pressed q does not */
    survey_close(&w->surveys[0]);
    survey_close(&w->surveys[1]);
    for (size_t i = 0; i < 2; i++)
        if (w->told[i] >= 0)
            (void)close(w->told[i]);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->key);
}
