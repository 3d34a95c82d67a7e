/* dedup_desk.c - notes about the messages on a desk: what each could be recognised by.
 *
 * They are taken while the properties are looked at anyway, before it is known whether the topic
 * wants them, but only if some topic does. */
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

static bool notes_reserve(struct desk *desk, size_t n)
{
    if (n <= desk->notes_cap && !(desk->notes_cap > NOTES_KEEP && n <= NOTES_KEEP))
        return true;
    size_t cap = n < NOTES_START ? NOTES_START : n + n / 2;
    free(desk->notes);
    free(desk->places);
    desk->notes = malloc(cap * sizeof *desk->notes);
    desk->places = malloc(places_size(cap) * sizeof *desk->places);
    desk->notes_cap = desk->notes && desk->places ? cap : 0;
    return desk->notes_cap > 0;
}

bool notes_clear(struct desk *desk, size_t messages)
{
    desk->guarded = false;
    desk->noting = atomic_load_explicit(&desk->broker->dedup_used, memory_order_relaxed);
    return !desk->noting || notes_reserve(desk, messages);
}

void notes_batch(struct desk *desk, size_t messages)
{
    memset(desk->places, 0, places_size(messages) * sizeof *desk->places);
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
    *note = (struct dedup_note){.key = key};
    if (!r->batch || key.len == 0)
        return 0;
    struct dedup_note *first = first_with(desk, r, key);
    if (first != note)
        note->place = ++first->followers;
    return note->place;
}

void notes_move(struct desk *desk, size_t to, size_t from, size_t n)
{
    memmove(&desk->notes[to], &desk->notes[from], n * sizeof *desk->notes);
}
