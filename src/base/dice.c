#include "base/dice.h"
#include "base/err.h"

#include <sys/random.h>

/* splitmix64: one multiplication chain a throw, and any seed is a good one. */

struct dice dice_seeded(uint64_t seed)
{
    return (struct dice){seed};
}

uint64_t dice_seed_from_os(void)
{
    uint64_t seed = 0;
    invariant(getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed);
    return seed;
}

uint64_t dice_next(struct dice *d)
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t dice_below(struct dice *d, uint64_t n)
{
    invariant(n > 0);
    return dice_next(d) % n;
}
