#include "base/spares.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n)   ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

#define LEAST 256 /* bytes, with the head */

/* In front of every block. */
struct spare {
    struct spare *next; /* while it is kept */
    size_t room;        /* bytes, with this */
    alignas(max_align_t) uint8_t block[];
};

static struct spare *spare_of(void *block)
{
    return (struct spare *)(void *)((uint8_t *)block - offsetof(struct spare, block));
}

/* Which of the sizes has room for so much, or SPARE_SIZES: none has. */
static size_t size_for(size_t room)
{
    size_t i = 0;
    while (i < SPARE_SIZES && (size_t)LEAST << i < room)
        i++;
    return i;
}

void spares_init(struct spares *s, size_t bytes_max)
{
    *s = (struct spares){.bytes_max = bytes_max};
}

static struct spare *spares_pop(struct spares *s, size_t i)
{
    struct spare *spare = i < SPARE_SIZES ? s->first[i] : NULL;
    if (spare) {
        s->first[i] = spare->next;
        s->bytes -= spare->room;
        ASAN_UNPOISON_MEMORY_REGION(spare->block, spare->room - sizeof *spare);
    }
    return spare;
}

void spares_clear(struct spares *s)
{
    struct spare *spare;
    for (size_t i = 0; i < SPARE_SIZES; i++)
        while ((spare = spares_pop(s, i)))
            free(spare);
}

void *spares_take(struct spares *s, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t room = sizeof(struct spare) + size, i = size_for(room);
    struct spare *spare = spares_pop(s, i);
    if (spare)
        return spare->block;
    room = i < SPARE_SIZES ? (size_t)LEAST << i : room;
    spare = malloc(room);
    if (!spare)
        return NULL;
    spare->room = room;
    return spare->block;
}

void spares_give(struct spares *s, void *block)
{
    if (!block)
        return;
    struct spare *spare = spare_of(block);
    size_t i = size_for(spare->room);
    if (i == SPARE_SIZES || spare->room > s->bytes_max - s->bytes) {
        free(spare);
        return;
    }
    ASAN_POISON_MEMORY_REGION(spare->block, spare->room - sizeof *spare);
    spare->next = s->first[i];
    s->first[i] = spare;
    s->bytes += spare->room;
}
