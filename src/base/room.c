#include "base/room.h"
#include "base/err.h"

#include <errno.h>
#include <time.h>

/* The ranks this thread is inside of, one bit each. */
static _Thread_local unsigned inside;

static void entered(struct room *r)
{
    invariant(!r->taken);
    r->taken = true;
    r->owner = pthread_self();
    inside |= 1u << r->rank;
}

static void check_rank(const struct room *r)
{
    invariant(inside >> r->rank == 0); /* rooms are entered in rising rank */
}

static void leaving(struct room *r)
{
    room_held(r);
    r->taken = false;
    inside &= ~(1u << r->rank);
}

void room_init(struct room *r, const char *name, enum room_rank rank)
{
    *r = (struct room){.name = name, .rank = (int)rank};
    invariant(pthread_mutex_init(&r->key, NULL) == 0);
    pthread_condattr_t attr;
    invariant(pthread_condattr_init(&attr) == 0);
    invariant(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    invariant(pthread_cond_init(&r->news, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
}

void room_clear(struct room *r)
{
    (void)pthread_cond_destroy(&r->news);
    (void)pthread_mutex_destroy(&r->key);
}

void room_enter(struct room *r)
{
    check_rank(r);
    invariant(pthread_mutex_lock(&r->key) == 0);
    entered(r);
}

bool room_try(struct room *r)
{
    check_rank(r);
    int busy = pthread_mutex_trylock(&r->key);
    invariant(busy == 0 || busy == EBUSY);
    if (busy)
        return false;
    entered(r);
    return true;
}

void room_leave(struct room *r)
{
    leaving(r);
    invariant(pthread_mutex_unlock(&r->key) == 0);
}

void room_held(const struct room *r)
{
    invariant(r->taken);
    invariant(pthread_equal(r->owner, pthread_self()));
}

void room_wait(struct room *r, int timeout_ms)
{
    if (timeout_ms >= 0) {
        room_wait_ns(r, (uint64_t)timeout_ms * 1000000);
        return;
    }
    leaving(r);
    (void)pthread_cond_wait(&r->news, &r->key);
    entered(r);
}

void room_wait_ns(struct room *r, uint64_t timeout_ns)
{
    leaving(r);
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    (void)pthread_cond_timedwait(&r->news, &r->key, &until);
    entered(r);
}

void room_tell(struct room *r)
{
    (void)pthread_cond_broadcast(&r->news);
}

void room_tell_one(struct room *r)
{
    (void)pthread_cond_signal(&r->news);
}
