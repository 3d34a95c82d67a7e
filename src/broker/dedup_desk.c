/* dedup_desk.c - notes about the messages on a desk: what each could be recognised by.
 *
 * They are taken while the properties are looked at anyway, before it is known whether the topic
 * wants them, but only if some topic does. From then until the table is asked there is other work
 * to do, in which the processor can fetch what the table will need. */
#include "broker/dedup_int.h"

#include <stdlib.h>

#define NOTES_START 256
#define NOTES_KEEP  8192 /* a desk that had to hold more shrinks again */

static size_t places_size(size_t messages) /* a power of two, at most half full */
{
    size_t size = 2;
    while (size < 2 * messages)
        size *= 2;
    return size;
}

void notes_free(struct desk *desk)
{
    free(desk->notes);
    free(desk->hashes);
    free(desk->firsts);
    free(desk->places);
}

static bool notes_reserve(struct desk *desk, size_t n)
{
    if (n <= desk->notes_cap && !(desk->notes_cap > NOTES_KEEP && n <= NOTES_KEEP))
        return true;
    size_t cap = n < NOTES_START ? NOTES_START : n + n / 2;
    notes_free(desk);
    desk->notes = malloc(cap * sizeof *desk->notes);
    desk->hashes = malloc(cap * sizeof *desk->hashes);
    desk->firsts = malloc(cap * sizeof *desk->firsts);
    desk->places = malloc(places_size(cap) * sizeof *desk->places);
    bool all = desk->notes && desk->hashes && desk->firsts && desk->places;
    desk->notes_cap = all ? cap : 0;
    return all;
}

bool notes_clear(struct desk *desk, size_t messages)
{
    desk->guarded = desk->by_property = false;
    desk->hashed = (struct bytes){0};
    desk->chosen = NULL; /* it may be another, or none any more */
    desk->noting = atomic_load_explicit(&desk->broker->dedup_used, memory_order_relaxed);
    return !desk->noting || notes_reserve(desk, messages);
}

/* What comes in one turn is mostly for one topic: its name is hashed once. */
void notes_request(struct desk *desk, const struct produce *r, size_t index)
{
    desk->request = (uint32_t)index;
    if (!bytes_equal(desk->hashed, r->topic)) {
        desk->hashed = r->topic;
        desk->topic_hash = bytes_hash(r->topic, desk->broker->dedup->seed);
    }
    if (r->batch)
        memset(desk->places, 0, places_size(r->count) * sizeof *desk->places);
}

/* The first message of the batch with this key; it may be this one itself. */
static struct dedup_note *first_with(struct desk *desk, const struct produce *r, struct bytes key)
{
    struct dedup_note *batch = &desk->notes[r->first];
    size_t mask = places_size(r->count) - 1;
    size_t at = bytes_hash(key, desk->broker->topics.seed) & mask;
    for (; desk->places[at]; at = (at + 1) & mask) {
        struct dedup_note *other = &batch[desk->places[at] - 1];
        if (bytes_equal(other->key, key))
            return other;
    }
    desk->places[at] = (uint32_t)(desk->n - r->first) + 1;
    return &desk->notes[desk->n];
}

uint32_t note_key(struct desk *desk, const struct produce *r, struct bytes key)
{
    struct dedup_note *note = &desk->notes[desk->n];
    *note = (struct dedup_note){.key = key, .request = desk->request};
    if (key.len == 0)
        return 0;
    struct dedup_note *first = r->batch ? first_with(desk, r, key) : note;
    if (first != note)
        note->place = ++first->followers;
    uint64_t hash = bytes_hash(key, desk->topic_hash + note->place);
    desk->hashes[desk->n] = hash;
    dedup_hint_fetch(&desk->broker->dedup->hint, hash);
    return note->place;
}

void notes_move(struct desk *desk, size_t to, size_t from, size_t n)
{
    memmove(&desk->notes[to], &desk->notes[from], n * sizeof *desk->notes);
    memmove(&desk->hashes[to], &desk->hashes[from], n * sizeof *desk->hashes);
}
