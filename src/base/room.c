#include "base/room.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define SOON_NS    25000 /* half of it is too little for two that append, twice is no better */
#define SOON_PAUSE 10    /* between two tries, so that the key's cache line is left alone */

_Thread_local unsigned room_inside;

static void entered(struct room *r)
{
    invariant(!r->taken);
    r->taken = true;
    r->owner = &room_inside;
    room_inside |= 1u << r->rank;
}

static void check_rank(const struct room *r)
{
    invariant(room_inside >> r->rank == 0); /* rooms are entered in rising rank */
}

static void leaving(struct room *r)
{
    room_held(r);
    r->taken = false;
    room_inside &= ~(1u << r->rank);
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

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_shortly(void)
{
    for (int i = 0; i < SOON_PAUSE; i++) {
#ifdef __x86_64__
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
    }
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

bool room_try_soon(struct room *r)
{
    if (room_try(r))
        return true;
    for (uint64_t until = monotonic_ns() + SOON_NS; monotonic_ns() < until;) {
        pause_shortly();
        if (room_try(r))
            return true;
    }
    return false;
}

void room_enter_soon(struct room *r)
{
    if (!room_try_soon(r))
        room_enter(r);
}

void room_leave(struct room *r)
{
    leaving(r);
    invariant(pthread_mutex_unlock(&r->key) == 0);
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
