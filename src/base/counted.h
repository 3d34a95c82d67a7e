/* counted.h - memory that outlives its request or crosses threads.
 *
 * Whoever keeps a slice of such memory holds a count; the last one to drop it gives it back. Used
 * for pieces of the mapped log on their way to a socket.
 */
#ifndef BASE_COUNTED_H
#define BASE_COUNTED_H

#include <stdatomic.h>
#include <stddef.h>

struct counted {
    atomic_uint holders;
    void (*release)(struct counted *self); /* called by the last drop, on whatever thread */
};

static inline void counted_init(struct counted *c, void (*release)(struct counted *))
{
    atomic_init(&c->holders, 1);
    c->release = release;
}

static inline void counted_hold(struct counted *c)
{
    atomic_fetch_add_explicit(&c->holders, 1, memory_order_relaxed);
}

static inline void counted_drop(struct counted *c)
{
    if (c && atomic_fetch_sub_explicit(&c->holders, 1, memory_order_acq_rel) == 1)
        c->release(c);
}

#endif
