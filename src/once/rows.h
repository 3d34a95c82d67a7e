/* rows.h - rows by id, for a store that lives in memory. No lock, no clock.
 *
 * A table is an array of slots with a tag and the number of a row, and the rows in pages beside it,
 * which never move. A row stands at the slot of its tag or behind it (linear probing, at most three
 * quarters full), and moves up when a place before it becomes free. Growing goes by the tags alone.
 * A row has 64 bytes, of the id 16: ids are SHA-256, and half of one is as good here. But whoever
 * asks makes them, so tags are hashes by a seed that nobody knows: ids that were chosen to stand in
 * one place do not.
 *
 * Whoever has many rows divides them over ROWS_SHARDS tables, by rows_shard: so no moment is long
 * in which one of them grows, and a lock may be had for each.
 */
#ifndef ONCE_ROWS_H
#define ONCE_ROWS_H

#include "base/err.h"

#include <assert.h>
#include <stdint.h>

#define ROWS_SHARDS    64
#define ROWS_ID_SIZE   16
#define ROWS_PAGE_ROWS 256

struct row {
    uint8_t id[ROWS_ID_SIZE];
    uint64_t token;
    int64_t fence;
    int64_t until_ms;
    uint64_t fingerprint;
    uint64_t where; /* the user's own */
    uint32_t next;  /* among the free ones */
    uint16_t flags; /* the user's own */
    uint8_t state;  /* enum once_state; ONCE_ABSENT: free */
    bool stepped;   /* has steps, which the user keeps */
};
static_assert(sizeof(struct row) == 64, "ten million rows and their slots stay below 1 GB");

struct rows_slot {
    uint32_t tag;
    uint32_t number; /* of the row */
};

struct rows {
    struct rows_slot *slot;
    uint32_t n_slots; /* 0, or a power of two */
    uint32_t n;       /* rows in use */
    uint32_t top;     /* rows that were ever in use */
    uint32_t free;    /* first of the free ones below top */
    uint32_t n_pages;
    struct row **page;
    uint64_t seed;
};

void rows_init(struct rows *rows, uint64_t seed);
void rows_clear(struct rows *rows);
static inline unsigned rows_shard(const uint8_t *id)
{
    return id[0] % ROWS_SHARDS;
}

struct row *rows_find(const struct rows *rows, const uint8_t *id); /* NULL: there is none */
/* It will be asked for soon: whoever has many to ask for says so of each some steps ahead, first
 * with `far`, then without, and does not wait for memory one by one. */
void rows_expect(const struct rows *rows, const uint8_t *id, bool far);
/* A row for this id, which has none: all zero but the id, so without a state it is not in use for
 * whoever walks over them. NULL: out of memory. */
struct row *rows_add(struct rows *rows, const uint8_t *id);
void rows_drop(struct rows *rows, struct row *row);
/* The one with this number, below rows->top; free ones have the state ONCE_ABSENT. */
static inline struct row *rows_at(const struct rows *rows, uint32_t number)
{
    return &rows->page[number / ROWS_PAGE_ROWS][number % ROWS_PAGE_ROWS];
}
size_t rows_bytes(const struct rows *rows); /* of memory */

#endif
