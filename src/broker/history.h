/* history.h - what counters showed in the last minute, hour and day.
 *
 * A counter only rises. A history keeps what several counters that belong together showed at the
 * beginning of each step of three spans:
 *
 *     minute   6 steps of 10 s         hour   6 steps of 10 min         day   24 steps of 1 h
 *
 * so what came in a span is what they show now, less what they showed when it began. Steps are
 * counted in ticks of ten seconds since the broker began, for all histories alike; before a history
 * was made its counters stood at zero. A span is as long as its steps, and up to one step longer:
 * of the newest step only a part is over.
 *
 * Pure: knows no clock and no locks.
 */
#ifndef BROKER_HISTORY_H
#define BROKER_HISTORY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TICK_NS UINT64_C(10000000000)

enum span { SPAN_MINUTE, SPAN_HOUR, SPAN_DAY, SPANS };

struct history;

/* Of `width` counters that stood at zero before this tick; `spans` 1: the minute only, SPANS: all.
 * NULL: no memory. */
struct history *history_make(size_t width, size_t spans, uint64_t tick);
void history_free(struct history *history);

/* What the counters show in this tick; those since the last time are taken to have shown the same.
 */
void history_note(struct history *history, uint64_t tick, const uint64_t *now);

/* What the counters showed when a span that ends in this tick began. The tick was noted. */
const uint64_t *history_then(const struct history *history, enum span span, uint64_t tick);

/* How long that is ago, `up_ns` after the broker began; at least a second, so that the first
 * message of a broker is no storm. */
double span_seconds(enum span span, uint64_t up_ns);

#endif
