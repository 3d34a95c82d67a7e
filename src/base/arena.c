#include "base/arena.h"

#include "base/err.h"

#include <stdalign.h>
#include <stdlib.h>

#define BLOCK_SIZE 16384
#define KEEP_MAX   (1u << 20) /* an arena that was used for more than this shrinks again */

struct arena_block {
    struct arena_block *next;
    size_t size;
    alignas(16) uint8_t room[];
};

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena){.max = max};
}

void arena_init_in(struct arena *a, size_t max, void *room, size_t size)
{
    invariant((uintptr_t)room % 16 == 0);
    *a = (struct arena){.at = room, .end = (uint8_t *)room + size, .max = max};
}

static void free_from(struct arena_block *block)
{
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_clear(struct arena *a)
{
    free_from(a->first);
    arena_init(a, a->max);
}

static void stand_in(struct arena *a, struct arena_block *block)
{
    a->current = block;
    a->at = block->room;
    a->end = block->room + block->size;
}

static bool add_block(struct arena *a, size_t least)
{
    size_t size = least > BLOCK_SIZE ? least : BLOCK_SIZE;
    struct arena_block *block = malloc(sizeof *block + size);
    if (!block)
        return false;
    block->next = NULL;
    block->size = size;
    if (a->current)
        a->current->next = block;
    else
        a->first = block;
    stand_in(a, block);
    return true;
}

void arena_reset(struct arena *a)
{
    if (!a->first)
        return;
    size_t used = a->used > a->most ? a->used : a->most;
    bool outgrown = a->first->next != NULL;
    free_from(a->first->next);
    a->first->next = NULL;
    a->used = a->most = 0;
    stand_in(a, a->first);
    if (outgrown && used <= KEEP_MAX) { /* next time it fits in one block */
        arena_clear(a);
        (void)add_block(a, used * 2);
    }
}

static inline size_t rounded_up(size_t size)
{
    return size ? (size + 15) & ~(size_t)15 : 16; /* also nothing has an address */
}

void *arena_alloc(struct arena *a, size_t size)
{
    void *p = arena_space(a, size);
    return p ? memset(p, 0, rounded_up(size)) : NULL;
}

void *arena_space_fresh(struct arena *a, size_t size)
{
    size_t rounded = rounded_up(size);
    if (rounded < size || rounded > a->max - a->used)
        return NULL;
    if (rounded > (size_t)(a->end - a->at) && !add_block(a, rounded))
        return NULL;
    void *p = a->at;
    a->at += rounded;
    a->used += rounded;
    return p;
}

struct bytes arena_copy(struct arena *a, struct bytes b)
{
    uint8_t *p = arena_alloc(a, b.len);
    if (!p)
        return (struct bytes){0};
    if (b.len)
        memcpy(p, b.at, b.len);
    return bytes_of(p, b.len);
}
