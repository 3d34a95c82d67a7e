/* bell.h - one thread waits until another has said that it may go on.
 *
 * A bell is rung once and heard by one thread, without a lock of its own: a number in memory, and a
 * sleep in the kernel on its address. It may vanish as soon as it was rung, since the thread that
 * hears it goes on. So ringing has two parts: bell_set, while the listener cannot leave, and
 * bell_wake, when that no longer matters; bell_ring is both.
 */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct bell {
    _Atomic uint32_t rung; /* 0 at first */
};

void bell_set(struct bell *bell);
void bell_wake(const struct bell *bell);
void bell_ring(struct bell *bell);
/* Until it was rung, or the kernel's monotonic clock says `until_ns` (UINT64_MAX: for ever). False:
 * it was not rung. */
bool bell_wait(struct bell *bell, uint64_t until_ns);
bool bell_rung(const struct bell *bell);
void bell_clear(struct bell *bell);

#endif
