#include "base/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void bell_set(struct bell *bell)
{
    atomic_store_explicit(&bell->rung, 1, memory_order_release);
}

/* Of the bell only the address counts: it may be gone by now, or another's that hears a ring too
 * many. */
void bell_wake(const struct bell *bell)
{
    (void)syscall(SYS_futex, &bell->rung, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void bell_ring(struct bell *bell)
{
    bell_set(bell);
    bell_wake(bell);
}

bool bell_wait(struct bell *bell, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    while (atomic_load_explicit(&bell->rung, memory_order_acquire) == 0) {
        long gone = syscall(SYS_futex, &bell->rung, FUTEX_WAIT_BITSET_PRIVATE, 0,
                            until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        if (gone == -1 && errno == ETIMEDOUT)
            return atomic_load_explicit(&bell->rung, memory_order_acquire) != 0;
    }
    return true;
}

bool bell_rung(const struct bell *bell)
{
    return atomic_load_explicit(&bell->rung, memory_order_acquire) != 0;
}

void bell_clear(struct bell *bell)
{
    atomic_store_explicit(&bell->rung, 0, memory_order_relaxed);
}
