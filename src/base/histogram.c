#include "base/histogram.h"

#define FINE (UINT64_C(1) << HISTOGRAM_FINE)

/* The bucket's number is the value itself while it has at most one bit more than the fine ones;
 * then that of its upper bits, behind those of all doublings before. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < FINE)
        return (uint32_t)value;
    unsigned shift = 63 - HISTOGRAM_FINE - (unsigned)__builtin_clzll(value);
    return (uint32_t)(((uint64_t)shift << HISTOGRAM_FINE) + (value >> shift));
}

/* The largest value that is in it. */
static uint64_t bucket_end(uint32_t bucket)
{
    if (bucket < 2 * FINE)
        return bucket;
    unsigned shift = (bucket >> HISTOGRAM_FINE) - 1;
    uint64_t upper = bucket - ((uint64_t)shift << HISTOGRAM_FINE);
    return ((upper + 1) << shift) - 1;
}

void histogram_add_n(struct histogram *h, uint64_t value, uint64_t n)
{
    if (n == 0)
        return;
    value = value < HISTOGRAM_MOST ? value : HISTOGRAM_MOST;
    h->least = h->count == 0 || value < h->least ? value : h->least;
    h->most = value > h->most ? value : h->most;
    h->count += n;
    h->sum += value * n;
    h->buckets[bucket_of(value)] += n;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    histogram_add_n(h, value, 1);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    if (from->count == 0)
        return;
    into->least = into->count == 0 || from->least < into->least ? from->least : into->least;
    into->most = from->most > into->most ? from->most : into->most;
    into->count += from->count;
    into->sum += from->sum;
    for (uint32_t i = bucket_of(from->least), end = bucket_of(from->most); i <= end; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t histogram_at(const struct histogram *h, double part)
{
    if (h->count == 0)
        return 0;
    double place = part * (double)h->count;
    uint64_t wanted = place > 1 ? (uint64_t)place : 1, seen = 0;
    wanted += (double)wanted < place; /* the fraction counts as one more */
    for (uint32_t i = bucket_of(h->least), end = bucket_of(h->most); i < end; i++) {
        seen += h->buckets[i];
        if (seen >= wanted)
            return bucket_end(i) < h->most ? bucket_end(i) : h->most;
    }
    return h->most;
}

double histogram_mean(const struct histogram *h)
{
    return h->count ? (double)h->sum / (double)h->count : 0;
}
