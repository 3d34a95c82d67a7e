/* Patience: looking for input for a moment before sleeping for it.
 *
 * Who sleeps has to be woken, which costs the peer that does it, and a core that sleeps as well
 * takes long to come back on a virtual machine. Under load the next input is often only
 * microseconds away, and the peer that brings it may need this very core: so one looks, and lets
 * others run in between. Where that is in vain, since the peer is far, slow or has nothing to say,
 * one sleeps at once the next time; then twice, and so on.
 */
#include "io/io_int.h"

#include <poll.h>
#include <sched.h>

#define LOOK_NS    50000 /* about as long as a core takes to wake */
#define TIRED_MOST 8

static bool look(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    uint64_t until_ns = clock_ns(clock_system()) + LOOK_NS;
    do {
        if (poll(&input, 1, 0) > 0)
            return true;
        (void)sched_yield();
    } while (clock_ns(clock_system()) < until_ns);
    return false;
}

bool patience_look(struct patience *p, int fd)
{
    if (p->rest > 0) {
        p->rest--;
        return false;
    }
    if (look(fd)) {
        p->tired = 0;
        return true;
    }
    p->tired = p->tired == 0 ? 1 : p->tired < TIRED_MOST ? 2 * p->tired : TIRED_MOST;
    p->rest = p->tired;
    return false;
}
