#include "broker/history.h"

#include <stdlib.h>
#include <string.h>

/* How many steps are kept (one more than the span has, since the newest is not over), and how many
 * ticks one has. */
static const struct {
    uint64_t steps, ticks;
} spans[SPANS] = {{7, 1}, {7, 60}, {25, 360}};

struct history {
    uint64_t tick; /* the last one noted */
    size_t width, n_spans;
    uint64_t cells[]; /* span after span, step after step, counter after counter */
};

struct history *history_make(size_t width, size_t n_spans, uint64_t tick)
{
    size_t steps = 0;
    for (size_t i = 0; i < n_spans; i++)
        steps += spans[i].steps;
    struct history *h = calloc(1, sizeof *h + steps * width * sizeof h->cells[0]);
    if (!h)
        return NULL;
    h->width = width;
    h->n_spans = n_spans;
    h->tick = tick > 0 ? tick - 1 : 0;
    return h;
}

void history_free(struct history *h)
{
    free(h);
}

/* Where the cells of a step are. */
static size_t cell(const struct history *h, enum span span, uint64_t step)
{
    size_t before = 0;
    for (size_t i = 0; i < span; i++)
        before += spans[i].steps;
    return (before + step % spans[span].steps) * h->width;
}

void history_note(struct history *h, uint64_t tick, const uint64_t *now)
{
    if (tick <= h->tick)
        return;
    for (size_t i = 0; i < h->n_spans; i++) {
        uint64_t step = h->tick / spans[i].ticks + 1, last = tick / spans[i].ticks;
        if (last >= spans[i].steps && step < last - spans[i].steps + 1)
            step = last - spans[i].steps + 1; /* after a long pause all of them are the same */
        for (; step <= last; step++)
            memcpy(&h->cells[cell(h, (enum span)i, step)], now, h->width * sizeof *now);
    }
    h->tick = tick;
}

const uint64_t *history_then(const struct history *h, enum span span, uint64_t tick)
{
    invariant(span < h->n_spans);
    /* The oldest step is the one that the next will replace; it is zero until it has been used. */
    return &h->cells[cell(h, span, tick / spans[span].ticks + 1)];
}

double span_seconds(enum span span, uint64_t up_ns)
{
    uint64_t step_ns = spans[span].ticks * TICK_NS;
    uint64_t step = up_ns / step_ns, back = spans[span].steps - 1;
    uint64_t ago_ns = step > back ? up_ns - (step - back) * step_ns : up_ns;
    return ago_ns < 1000000000u ? 1.0 : (double)ago_ns / 1e9;
}
