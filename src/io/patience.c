/* Patience: looking for input for a moment before sleeping for it.
 *
 * Who sleeps has to be woken, which costs the peer that does it, and a core that sleeps as well
 * takes long to come back on a virtual machine. Under load the next input is often only
 * microseconds away, and the peer that brings it may need this very core: so one looks, and lets
 * others run in between. Where that is in vain, since the peer is far, slow or has nothing to say,
 * it is processor time for nothing.
 *
 * So there is an account: what is found earns the time that waking takes, and looking costs what
 * it takes. With nothing left one sleeps at once the next time; then twice, and so on, until
 * looking has paid for a while.
 */
#include "io/io_int.h"

#include <poll.h>
#include <sched.h>

#define LOOK_NS      50000 /* about as long as a core takes to wake */
#define BALANCE_MOST (4 * LOOK_NS)
#define REST_MOST    64

static bool there(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* How long it took is told, at most LOOK_NS. */
static bool look(int fd, int *took_ns)
{
    uint64_t begin_ns = clock_ns(clock_system()), gone_ns = 0;
    bool found;
    while (!(found = there(fd)) && gone_ns < LOOK_NS) {
        (void)sched_yield();
        gone_ns = clock_ns(clock_system()) - begin_ns;
    }
    *took_ns = gone_ns < LOOK_NS ? (int)gone_ns : LOOK_NS;
    return found;
}

static void settle(struct patience *p, int earned_ns)
{
    p->balance_ns += earned_ns;
    if (p->balance_ns >= BALANCE_MOST) {
        p->balance_ns = BALANCE_MOST;
        p->rest_last = 0;
    } else if (p->balance_ns < 0) {
        p->balance_ns = 0;
        p->rest = p->rest_last == 0 ? 1 : p->rest_last < REST_MOST ? 2 * p->rest_last : REST_MOST;
        p->rest_last = p->rest;
    }
}

bool patience_look(struct patience *p, int fd)
{
    if (p->rest > 0) {
        p->rest--;
        return false;
    }
    int took_ns;
    bool found = look(fd, &took_ns);
    settle(p, (found ? LOOK_NS : 0) - took_ns);
    return found;
}
