#include "base/reserve.h"

#include "base/err.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; the C library may be older */
#endif

static void part_close(uint8_t *from, const uint8_t *to)
{
    if (from < to)
        invariant(munmap(from, (size_t)(to - from)) == 0);
}

static size_t size_of(size_t most) /* in whole units */
{
    return (most + RESERVE_UNIT - 1) / RESERVE_UNIT * RESERVE_UNIT;
}

void *reserve_open(size_t most)
{
    if (most > SIZE_MAX / 2)
        return NULL;
    size_t size = size_of(most);
    uint8_t *all = mmap(NULL, size + RESERVE_UNIT, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    uint8_t *at = all + (RESERVE_UNIT - (uintptr_t)all % RESERVE_UNIT) % RESERVE_UNIT;
    part_close(all, at);
    part_close(at + size, all + size + RESERVE_UNIT);
    return at;
}

void reserve_trim(void *at, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (from < to)
        invariant(madvise((uint8_t *)at + from, to - from, MADV_DONTNEED) == 0);
}

void reserve_firm(void *at, size_t from, size_t to)
{
    for (; from < to; from += RESERVE_UNIT)
        (void)madvise((uint8_t *)at + from, RESERVE_UNIT, MADV_COLLAPSE);
}

void reserve_close(void *at, size_t most)
{
    if (at)
        part_close(at, (uint8_t *)at + size_of(most));
}
