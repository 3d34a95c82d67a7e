#include "base/clock.h"

#include <time.h>

static int64_t system_wall_ms(struct clock *self)
{
    (void)self;
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t system_mono_ns(struct clock *self)
{
    (void)self;
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct clock *clock_system(void)
{
    static struct clock system = {system_wall_ms, system_mono_ns};
    return &system;
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
