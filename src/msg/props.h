/* props.h - walking over the properties of a message: NAME \1 VALUE \2 NAME \1 VALUE \2 …
 *
 * 5.x clients end every pair with \2, 4.9 clients leave the last one out. There is no escaping.
 *
 * A walk knows where the separators of up to 64 bytes are, a bit each, and goes from one to the
 * next: what lies between them is looked at once, sixteen bytes at a time.
 */
#ifndef MSG_PROPS_H
#define MSG_PROPS_H

#include "base/bytes.h"

#define PROP_AFTER_NAME  1
#define PROP_AFTER_VALUE 2

struct prop {
    struct bytes name, value;
};

struct props_walk {
    const uint8_t *at;          /* where the next pair begins */
    const uint8_t *known;       /* `stops` tells of the bytes from here on, … */
    const uint8_t *start, *end; /* … which are part of these */
    uint64_t stops;             /* … separators at which the walk has not been */
};

#define PROPS_KNOWN 64

/* A bit for each separator of the first PROPS_KNOWN bytes from `at` on, which is not before
 * `start`.
 */
uint64_t props_stops(const uint8_t *start, const uint8_t *at, const uint8_t *end);

static inline struct props_walk props_walk(struct bytes text)
{
    static const uint8_t nothing[1];
    const uint8_t *at = text.len ? text.at : nothing, *end = at + text.len;
    return (struct props_walk){
        .at = at, .known = at, .start = at, .end = end, .stops = props_stops(at, at, end)};
}

/* The next separator; the end: there is none. */
static inline const uint8_t *props_stop(struct props_walk *w)
{
    while (w->stops == 0) {
        if (w->end - w->known <= PROPS_KNOWN)
            return w->end;
        w->known += PROPS_KNOWN;
        w->stops = props_stops(w->start, w->known, w->end);
    }
    const uint8_t *stop = w->known + (unsigned)__builtin_ctzll(w->stops);
    w->stops &= w->stops - 1;
    return stop;
}

/* Yields the pairs in order; skips items without a separator, or with an empty name or value, as
 * the official readers do. A value may hold the first separator. */
static inline bool props_next(struct props_walk *w, struct prop *out)
{
    while (w->at < w->end) {
        const uint8_t *name = w->at, *value = props_stop(w);
        if (value == w->end)
            break;
        w->at = value + 1;
        if (*value == PROP_AFTER_VALUE)
            continue;
        const uint8_t *stop = props_stop(w);
        while (stop < w->end && *stop != PROP_AFTER_VALUE)
            stop = props_stop(w);
        w->at = stop < w->end ? stop + 1 : stop;
        if (value == name || stop == value + 1)
            continue;
        out->name = bytes_of(name, (size_t)(value - name));
        out->value = bytes_of(value + 1, (size_t)(stop - value - 1));
        return true;
    }
    w->at = w->end;
    return false;
}

#endif
