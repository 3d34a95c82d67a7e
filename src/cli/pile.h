/* pile.h - things of one size, put on in any order and taken off sorted, however many they are.
 *
 * A pile has so much memory and no more. What does not fit is sorted and written to a file of its
 * own, which has no name and is gone with the pile; taking off merges what was written:
 *
 *     add, add, … ──► memory, full ──sort──► run 1, run 2, …  ──merge──► next, next, …
 *
 * Things are compared as bytes, so numbers in them are big-endian.
 */
#ifndef CLI_PILE_H
#define CLI_PILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define PILE_SIZE_MAX 256

struct pile;

/* `size`: of a thing, at most PILE_SIZE_MAX. `memory`: in bytes, for adding and for taking off. */
must_check enum err pile_open(size_t size, size_t memory, struct pile **out);
void pile_close(struct pile *pile);

must_check enum err pile_add(struct pile *pile, const void *thing, struct fault *why);
/* Everything is there; from now on things are taken off. */
must_check enum err pile_sort(struct pile *pile, struct fault *why);
/* The next one, valid until the next call; NULL: there is none. */
must_check enum err pile_next(struct pile *pile, const void **out, struct fault *why);
uint64_t pile_count(const struct pile *pile); /* of all that were put on */

#endif
