/* clock.h - time as a parameter.
 *
 * Nothing below the doors asks the kernel for the time. `clock_ms` is wall time in milliseconds
 * since 1970 (what records and files carry); `clock_ns` never goes backwards and is for measuring
 * and for deadlines. A test owns its own clock and moves it by hand; a daemon under test may run by
 * one that can be put forward.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdint.h>

struct clock {
    int64_t (*wall_ms)(struct clock *self);
    uint64_t (*mono_ns)(struct clock *self);
};

static inline int64_t clock_ms(struct clock *c)
{
    return c->wall_ms(c);
}

static inline uint64_t clock_ns(struct clock *c)
{
    return c->mono_ns(c);
}

struct clock *clock_system(void);
/* The same, but clock_ns goes on while the machine sleeps: for what somebody else counts as well,
 * such as a claim in a store. No wait of the kernel's is by this one. */
struct clock *clock_sleepless(void);

/* A clock that stands still until told otherwise. */
struct clock_manual {
    struct clock clock;
    _Atomic int64_t wall_ms;
    _Atomic uint64_t mono_ns;
};
void clock_manual_init(struct clock_manual *c, int64_t wall_ms);
void clock_manual_advance(struct clock_manual *c, int64_t ms);

/* The system's clock and a lead over it that only grows: for trying out in seconds what takes days.
 * It does not stand still, so whoever waits a moment is not left waiting for ever; and both
 * readings jump together, so a deadline and a date that fell together still do. Any thread. */
#define CLOCK_AHEAD_MAX_MS (INT64_C(100) * 366 * 24 * 3600 * 1000)
struct clock_virtual {
    struct clock clock;
    _Atomic int64_t ahead_ms;
};
void clock_virtual_init(struct clock_virtual *c, int64_t ahead_ms);
/* ERR_RANGE: not above zero, or more than CLOCK_AHEAD_MAX_MS ahead in all. */
must_check enum err clock_virtual_advance(struct clock_virtual *c, int64_t ms);

#endif
