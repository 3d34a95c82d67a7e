/* wait.c - sleeping, and when to knock again. */
#include "once/once_int.h"

#include <errno.h>
#include <time.h>

#define KNOCK_FIRST_MS 50
#define KNOCK_MOST_MS  500

uint64_t wait_now_ns(void)
{
    return clock_ns(clock_system());
}

void wait_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (nanosleep(&t, &t) == -1 && errno == EINTR)
        ;
}

void gate_shut(struct gate *gate, uint64_t now_ns)
{
    if (gate->dice.state == 0)
        gate->dice = dice_seeded(dice_seed_from_os());
    if (gate->since_ns == 0)
        gate->since_ns = now_ns;
    uint64_t top_ms = gate->most_ms < KNOCK_MOST_MS ? gate->most_ms : KNOCK_MOST_MS;
    uint64_t most_ms = KNOCK_FIRST_MS;
    for (unsigned i = 1; i < gate->fails && most_ms < top_ms; i++)
        most_ms *= 2;
    if (most_ms > top_ms && top_ms > KNOCK_FIRST_MS)
        most_ms = top_ms;
    /* What broke just now may well be back at once; after that, not everybody at the same time. */
    uint64_t pause_ms = gate->fails == 0 ? 0 : most_ms / 2 + dice_below(&gate->dice, most_ms / 2);
    gate->next_ns = now_ns + pause_ms * NS_PER_MS;
    gate->fails++;
}

void gate_open(struct gate *gate)
{
    gate->fails = 0;
    gate->since_ns = 0;
    gate->next_ns = 0;
}
