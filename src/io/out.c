/* The output of one connection: a queue of pieces, and the pool that their memory comes from. */
#include "io/io_int.h"

#include <stdlib.h>

#define CHUNK_ROOM (CHUNK_SIZE - sizeof(struct chunk))

static struct chunk *chunk_take(struct pool *pool, size_t n)
{
    struct chunk *chunk = pool->chunks;
    if (n <= CHUNK_ROOM && chunk) {
        pool->chunks = chunk->next;
        pool->n_chunks--;
    } else {
        size_t size = n <= CHUNK_ROOM ? CHUNK_ROOM : n;
        chunk = malloc(sizeof *chunk + size);
        if (!chunk)
            return NULL;
        chunk->size = size;
    }
    chunk->next = NULL;
    chunk->used = 0;
    chunk->pieces = 0;
    return chunk;
}

static void chunk_give(struct pool *pool, struct chunk *chunk)
{
    if (chunk->size != CHUNK_ROOM || pool->n_chunks >= POOL_CHUNKS_MAX) {
        free(chunk);
        return;
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->n_chunks++;
}

/* Makes sure that the next piece_take cannot fail. */
static bool piece_ready(struct pool *pool)
{
    if (pool->pieces)
        return true;
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        return false;
    pool->pieces = piece;
    pool->n_pieces++;
    return true;
}

static struct piece *piece_take(struct out *out, struct pool *pool)
{
    struct piece *piece = pool->pieces;
    invariant(piece);
    pool->pieces = piece->next;
    pool->n_pieces--;
    *piece = (struct piece){0};

    if (out->last)
        out->last->next = piece;
    else
        out->first = piece;
    out->last = piece;
    return piece;
}

static void piece_give(struct pool *pool, struct piece *piece)
{
    if (pool->n_pieces >= POOL_PIECES_MAX) {
        free(piece);
        return;
    }
    piece->next = pool->pieces;
    pool->pieces = piece;
    pool->n_pieces++;
}

void pool_clear(struct pool *pool)
{
    while (pool->chunks) {
        struct chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        free(chunk);
    }
    while (pool->pieces) {
        struct piece *piece = pool->pieces;
        pool->pieces = piece->next;
        free(piece);
    }
    *pool = (struct pool){0};
}

/* The chunk being filled is given back by its last piece once another has taken its place. */
static void stop_filling(struct out *out, struct pool *pool)
{
    struct chunk *chunk = out->chunk;
    out->chunk = NULL;
    if (chunk && chunk->pieces == 0)
        chunk_give(pool, chunk);
}

uint8_t *out_space_fresh(struct out *out, struct pool *pool, size_t n)
{
    if (!piece_ready(pool))
        return NULL;
    if (!out->chunk || n > out->chunk->size - out->chunk->used) {
        struct chunk *fresh = chunk_take(pool, n);
        if (!fresh)
            return NULL;
        stop_filling(out, pool);
        out->chunk = fresh;
    }
    return out->chunk->data + out->chunk->used;
}

void out_used_fresh(struct out *out, struct pool *pool, size_t n)
{
    struct chunk *chunk = out->chunk;
    if (n == 0)
        return;
    struct piece *piece = piece_take(out, pool);
    piece->at = chunk->data + chunk->used;
    piece->len = n;
    piece->chunk = chunk;
    chunk->pieces++;
    chunk->used += n;
    out->queued += n;
}

enum err out_slice(struct out *out, struct pool *pool, struct bytes slice, struct counted *owner)
{
    if (slice.len == 0 || !piece_ready(pool)) {
        counted_drop(owner);
        return slice.len == 0 ? OK : ERR_NO_MEMORY;
    }
    struct piece *piece = piece_take(out, pool);
    piece->at = slice.at;
    piece->len = slice.len;
    piece->owner = owner;
    out->queued += slice.len;
    return OK;
}

int out_gather(const struct out *out, struct iovec *parts, int max, size_t *total)
{
    int n = 0;
    *total = 0;
    for (const struct piece *piece = out->first; piece && n < max; piece = piece->next) {
        /* writev only reads; its type does not say so. */
        parts[n++] = (struct iovec){(void *)piece->at, piece->len};
        *total += piece->len;
    }
    return n;
}

static void drop_first(struct out *out, struct pool *pool)
{
    struct piece *piece = out->first;
    out->first = piece->next;
    if (!out->first)
        out->last = NULL;

    struct chunk *chunk = piece->chunk;
    if (chunk) {
        chunk->pieces--;
        if (chunk->pieces == 0 && chunk != out->chunk)
            chunk_give(pool, chunk);
    }
    counted_drop(piece->owner);
    piece_give(pool, piece);
}

void out_sent(struct out *out, struct pool *pool, size_t n)
{
    invariant(n <= out->queued);
    out->queued -= n;
    while (n > 0) {
        struct piece *piece = out->first;
        if (n < piece->len) {
            piece->at += n;
            piece->len -= n;
            return;
        }
        n -= piece->len;
        drop_first(out, pool);
    }
    if (!out->first)
        stop_filling(out, pool); /* whoever has nothing to say owns no memory */
}

void out_clear(struct out *out, struct pool *pool)
{
    while (out->first)
        drop_first(out, pool);
    stop_filling(out, pool);
    out->queued = 0;
}
