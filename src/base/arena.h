/* arena.h - the memory of one request.
 *
 * Everything decoded from a request is allocated here and disappears with it, at once. A reset
 * arena keeps a block as large as what was used, so in the steady state it never calls the
 * allocator. It has a ceiling: a request that wants more is refused, the house stays up.
 *
 * Threads: one owner at a time.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/bytes.h"

struct arena_block;

struct arena {
    struct arena_block *first, *current;
    uint8_t *at, *end;
    size_t used, max;
    size_t most; /* that was in use when some of it was given back */
};

void arena_init(struct arena *a, size_t max);
/* One that begins in the caller's own memory, aligned to 16, and asks for more when that is full:
 * for work that is small nearly always and done at once. It is cleared, never reset. */
void arena_init_in(struct arena *a, size_t max, void *room, size_t size);
void arena_clear(struct arena *a); /* gives all memory back */
void arena_reset(struct arena *a); /* empty again, one block kept */

/* Zeroed memory aligned for any type, or NULL at the ceiling. */
void *arena_alloc(struct arena *a, size_t size);
/* The same with whatever was there before, for who writes all that is read of it; what is not
 * needed of the latest of them can be given back, from `unused` on. */
void *arena_space_fresh(struct arena *a, size_t size);
static inline void *arena_space(struct arena *a, size_t size)
{
    size_t rounded = (size + 15) & ~(size_t)15, room = (size_t)(a->end - a->at);
    if (size == 0 || size > room || rounded > room || rounded > a->max - a->used)
        return arena_space_fresh(a, size);
    void *p = a->at;
    a->at += rounded;
    a->used += rounded;
    return p;
}
static inline void arena_trim(struct arena *a, const void *unused)
{
    size_t least = (size_t)(a->at - (const uint8_t *)unused) & ~(size_t)15;
    a->most = a->used > a->most ? a->used : a->most;
    a->at -= least;
    a->used -= least;
}

/* A copy that lives as long as the arena; {NULL, 0} at the ceiling. */
struct bytes arena_copy(struct arena *a, struct bytes b);

#endif
