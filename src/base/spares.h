/* spares.h - memory for what comes and goes all the time.
 *
 * What is given back is kept for whoever asks next, up to a limit in bytes; so in the steady state
 * nothing is allocated. There are a few sizes, each twice the one before, and a block serves only
 * what needs its size: nobody who waits for long sits on a block that was made for something
 * bigger. What is larger than the largest is allocated and freed.
 *
 * Its users are on one thread, or in one room. Under the address sanitizer a block that was given
 * back may not be touched.
 */
#ifndef BASE_SPARES_H
#define BASE_SPARES_H

#include <stddef.h>

#define SPARE_SIZES 8 /* 256 bytes to 32 KiB, with a small head */

struct spares {
    struct spare *first[SPARE_SIZES];
    size_t bytes, bytes_max; /* kept, and so many at most */
};

void spares_init(struct spares *s, size_t bytes_max);
void spares_clear(struct spares *s); /* frees what is kept; blocks in use are not its own */
/* `size` bytes of anything; NULL: no memory. */
void *spares_take(struct spares *s, size_t size);
void spares_give(struct spares *s, void *block); /* of spares_take; NULL is fine */

#endif
