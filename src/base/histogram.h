/* histogram.h - many durations in little space: how long did the slowest hundredth take?
 *
 * Counts values in buckets that grow with them: exact below 256, then 128 buckets for each
 * doubling, so a value that is told is less than 0.8 % above the true one. Its size is fixed, so
 * adding never fails and never allocates. The smallest, the largest and the sum are exact.
 *
 * Meant for nanoseconds: what is beyond HISTOGRAM_MOST, nearly five hours, counts as that.
 *
 * Pure; one thread at a time.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_FINE    7                         /* log2 of the buckets for each doubling */
#define HISTOGRAM_MOST    ((UINT64_C(1) << 44) - 1) /* as ns: 17,592 seconds */
#define HISTOGRAM_BUCKETS ((44 - HISTOGRAM_FINE + 1) << HISTOGRAM_FINE)

/* Zeroed: empty. */
struct histogram {
    uint64_t count, sum, least, most;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_add_n(struct histogram *h, uint64_t value, uint64_t n); /* n times the same */
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that so many are not above: `part` 0.5 is the median, 1 the largest. 0 when it is
 * empty. Never below the true value, nor above the largest. */
uint64_t histogram_at(const struct histogram *h, double part);
double histogram_mean(const struct histogram *h);

#endif
