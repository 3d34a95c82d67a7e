#include "base/clock.h"

#include <time.h>

static int64_t system_wall_ms(struct clock *self)
{
    (void)self;
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t ns_by(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t system_mono_ns(struct clock *self)
{
    (void)self;
    return ns_by(CLOCK_MONOTONIC);
}

static uint64_t sleepless_mono_ns(struct clock *self)
{
    (void)self;
    return ns_by(CLOCK_BOOTTIME);
}

struct clock *clock_system(void)
{
    static struct clock system = {system_wall_ms, system_mono_ns};
    return &system;
}

struct clock *clock_sleepless(void)
{
    static struct clock sleepless = {system_wall_ms, sleepless_mono_ns};
    return &sleepless;
}

static int64_t manual_wall_ms(struct clock *self)
{
    return atomic_load(&((struct clock_manual *)self)->wall_ms);
}

static uint64_t manual_mono_ns(struct clock *self)
{
    return atomic_load(&((struct clock_manual *)self)->mono_ns);
}

void clock_manual_init(struct clock_manual *c, int64_t wall_ms)
{
    c->clock = (struct clock){manual_wall_ms, manual_mono_ns};
    atomic_init(&c->wall_ms, wall_ms);
    atomic_init(&c->mono_ns, 1);
}

void clock_manual_advance(struct clock_manual *c, int64_t ms)
{
    atomic_fetch_add(&c->wall_ms, ms);
    atomic_fetch_add(&c->mono_ns, (uint64_t)ms * 1000000u);
}

static int64_t virtual_wall_ms(struct clock *self)
{
    return system_wall_ms(self) + atomic_load(&((struct clock_virtual *)self)->ahead_ms);
}

static uint64_t virtual_mono_ns(struct clock *self)
{
    int64_t ahead_ms = atomic_load(&((struct clock_virtual *)self)->ahead_ms);
    return system_mono_ns(self) + (uint64_t)ahead_ms * 1000000u;
}

void clock_virtual_init(struct clock_virtual *c, int64_t ahead_ms)
{
    invariant(ahead_ms >= 0 && ahead_ms <= CLOCK_AHEAD_MAX_MS);
    c->clock = (struct clock){virtual_wall_ms, virtual_mono_ns};
    atomic_init(&c->ahead_ms, ahead_ms);
}

enum err clock_virtual_advance(struct clock_virtual *c, int64_t ms)
{
    int64_t ahead_ms = atomic_load(&c->ahead_ms);
    do {
        if (ms <= 0 || ms > CLOCK_AHEAD_MAX_MS - ahead_ms)
            return ERR_RANGE;
    } while (!atomic_compare_exchange_weak(&c->ahead_ms, &ahead_ms, ahead_ms + ms));
    return OK;
}
