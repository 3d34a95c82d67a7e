/* slip.c - what is known of a record when it is appended, handed to the dispatcher.
 *
 * Whoever prepares a message has read its properties, and whoever appends it knows its place. That
 * is all that queues and index are made of. So an append leaves a *slip* for each plain message,
 * and the dispatcher takes it instead of reading the record again: no bytes of the log are touched,
 * and nobody has to ask the tail for them.
 *
 * Slips go round in a ring: put inside the tail's room, taken by the one dispatcher. They are
 * published before the end of the log rises, and only when their records are written; so whoever
 * sees the end sees the slips in front of it, and none speaks of what an append took back. A record
 * may have none: others than plain messages, those with many keys, and whatever finds the ring
 * full. `bare` tells the dispatcher that there is such a one, and it is read.
 */
#include "store/index_int.h"
#include "store/store_int.h"

/* ---- putting ---- */

/* False: it has more keys than a slip takes. */
static bool keys_hash(struct draft_marks *m, struct key_topic *last, struct bytes topic,
                      struct bytes words)
{
    struct bytes key;
    while (keys_next(&words, &key)) {
        if (m->n_keys == DRAFT_KEYS_MAX)
            return false;
        m->keys[m->n_keys++] = index_hash_near(last, topic, key);
    }
    return true;
}

void draft_marks_of(struct key_topic *last, struct bytes topic, const struct marks *marks,
                    struct draft_marks *out)
{
    out->tags_code = marks->tags.len ? tags_code(marks->tags) : 0;
    out->n_keys = 0;
    if (marks->unique.len)
        out->keys[out->n_keys++] = index_hash_near(last, topic, marks->unique);
    out->known = keys_hash(out, last, topic, marks->keys);
}

bool slips_have_room(const struct slips *s, const struct slips_put *put, size_t n)
{
    uint64_t taken = atomic_load_explicit(&s->taken, memory_order_acquire);
    return put->n - taken <= SLIPS_MAX && n <= SLIPS_MAX - (put->n - taken);
}

void slip_put(struct slips *s, struct slips_put *put, const struct draft *d,
              const struct stored *stored)
{
    bool full = put->n - atomic_load_explicit(&s->taken, memory_order_acquire) == SLIPS_MAX;
    if (full || !d->marks.known) {
        put->bare = (uint64_t)stored->position + 1;
        return;
    }
    s->at[put->n++ % SLIPS_MAX] = (struct slip){
        .queue = d->queue,
        .position = (uint64_t)stored->position,
        .queue_offset = stored->queue_offset,
        .store_ms = stored->store_ms,
        .size = stored->size,
        .marks = d->marks,
    };
}

struct slips_put slips_begin(const struct slips *s)
{
    return (struct slips_put){atomic_load_explicit(&s->put, memory_order_relaxed),
                              atomic_load_explicit(&s->bare, memory_order_relaxed)};
}

void slips_publish(struct slips *s, const struct slips_put *put)
{
    atomic_store_explicit(&s->put, put->n, memory_order_release);
    atomic_store_explicit(&s->bare, put->bare, memory_order_release);
}

/* ---- taking ---- */

bool slips_lack(const struct slips *s, uint64_t from)
{
    return atomic_load_explicit(&s->bare, memory_order_acquire) > from;
}

/* Both go up: the slips, and the positions that are asked for. */
const struct slip *slip_at(struct slips *s, uint64_t position)
{
    uint64_t put = atomic_load_explicit(&s->put, memory_order_acquire);
    for (; s->next < put; s->next++) {
        const struct slip *slip = &s->at[s->next % SLIPS_MAX];
        if (slip->position >= position)
            return slip->position == position ? slip : NULL;
    }
    return NULL;
}

void slips_used(struct slips *s, uint64_t dispatched)
{
    uint64_t put = atomic_load_explicit(&s->put, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&s->taken, memory_order_relaxed);
    while (s->next < put && s->at[s->next % SLIPS_MAX].position < dispatched)
        s->next++;
    while (s->next > taken && s->at[(s->next - 1) % SLIPS_MAX].position >= dispatched)
        s->next--; /* the turn went wrong, and they will be asked for again */
    atomic_store_explicit(&s->taken, s->next, memory_order_release);
}
