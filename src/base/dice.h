/* dice.h - chance as a parameter. The same seed gives the same throws; tests print theirs. */
#ifndef BASE_DICE_H
#define BASE_DICE_H

#include <stdbool.h>
#include <stdint.h>

struct dice {
    uint64_t state;
};

struct dice dice_seeded(uint64_t seed);
uint64_t dice_seed_from_os(void);
uint64_t dice_next(struct dice *d);
uint64_t dice_below(struct dice *d, uint64_t n); /* 0 … n-1; n > 0 */

#endif
