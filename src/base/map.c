#include "base/map.h"

#include <stdlib.h>

/* Open addressing with linear probing; a removed entry is filled by shifting its followers back, so
 * there are no tombstones. At most three quarters full. */

static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t bytes_hash(struct bytes b, uint64_t seed)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd1b54a32d192ed03u;
    uint64_t h = seed ^ mix(b.len + k0, k1);
    const uint8_t *p = b.at;
    size_t left = b.len;
    for (; left >= 8; p += 8, left -= 8)
        h = mix(h ^ load_u64(p), k0 ^ seed);
    uint64_t tail = 0;
    for (size_t i = 0; i < left; i++)
        tail = tail << 8 | p[i];
    return mix(h ^ tail ^ k1, k0);
}

void map_init(struct map *m, uint64_t seed)
{
    *m = (struct map){.seed = seed};
}

void map_clear(struct map *m)
{
    free(m->slots);
    map_init(m, m->seed);
}

/* The slot that holds the key, or the free one where it would go. */
static size_t find(const struct map *m, struct bytes key, uint64_t hash)
{
    size_t i = hash & (m->cap - 1);
    while (m->slots[i].value && !(m->slots[i].hash == hash && bytes_equal(m->slots[i].key, key)))
        i = (i + 1) & (m->cap - 1);
    return i;
}

void *map_get(const struct map *m, struct bytes key)
{
    if (m->n == 0)
        return NULL;
    return m->slots[find(m, key, bytes_hash(key, m->seed))].value;
}

static enum err grow(struct map *m)
{
    struct map bigger = {.cap = m->cap ? m->cap * 2 : 16, .n = m->n, .seed = m->seed};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_slot *s = &m->slots[i];
        if (s->value)
            bigger.slots[find(&bigger, s->key, s->hash)] = *s;
    }
    free(m->slots);
    *m = bigger;
    return OK;
}

enum err map_put(struct map *m, struct bytes key, void *value)
{
    invariant(value != NULL);
    if (m->n + 1 > m->cap / 4 * 3) {
        enum err err = grow(m);
        if (err)
            return err;
    }
    uint64_t hash = bytes_hash(key, m->seed);
    struct map_slot *slot = &m->slots[find(m, key, hash)];
    if (!slot->value)
        m->n++;
    *slot = (struct map_slot){key, value, hash};
    return OK;
}

void *map_remove(struct map *m, struct bytes key)
{
    if (m->n == 0)
        return NULL;
    size_t hole = find(m, key, bytes_hash(key, m->seed));
    void *value = m->slots[hole].value;
    if (!value)
        return NULL;

    size_t mask = m->cap - 1;
    for (size_t i = (hole + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) { /* its way from home passes the hole */
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map_slot){0};
    m->n--;
    return value;
}

void *map_next(const struct map *m, size_t *i)
{
    while (*i < m->cap) {
        void *value = m->slots[(*i)++].value;
        if (value)
            return value;
    }
    return NULL;
}
