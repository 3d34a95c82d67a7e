/* map.h - a hash map from byte strings to pointers.
 *
 * The map owns neither keys nor values: a key usually lives inside its value and must not change
 * while it is in the map. Hashing is seeded, because keys (topics, groups, client ids) are chosen
 * by strangers. Iteration order means nothing; do not add while iterating.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/bytes.h"
#include "base/err.h"

struct map_slot {
    struct bytes key;
    void *value; /* NULL: free */
    uint64_t hash;
};

struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap is zero or a power of two */
    uint64_t seed;
};

void map_init(struct map *m, uint64_t seed);
void map_clear(struct map *m); /* frees the slots, not the values */

void *map_get(const struct map *m, struct bytes key);

/* Adds or replaces. `value` is not NULL. */
must_check enum err map_put(struct map *m, struct bytes key, void *value);

/* Returns what was there, or NULL. */
void *map_remove(struct map *m, struct bytes key);

/* for (size_t i = 0; (v = map_next(m, &i));) ... ; the current entry may be removed only by
 * collecting it first. */
void *map_next(const struct map *m, size_t *i);

uint64_t bytes_hash(struct bytes b, uint64_t seed);

#endif
