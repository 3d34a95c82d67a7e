/* lane.c - a row of messages: when the next one is due, and what became of those before. */
#include "load/load_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS (100 * NS_OF_MS) /* whoever waits looks up this often whether all is over */

/* ---- spans ---- */

void span_add(struct span *into, const struct span *from)
{
    for (int i = 0; i < LOAD_TIMES; i++)
        histogram_merge(&into->times[i], &from->times[i]);
    into->messages += from->messages;
    into->warm += from->warm;
    into->failures += from->failures;
    into->sent += from->sent;
    into->out_of_row += from->out_of_row;
    into->last_ns = from->last_ns > into->last_ns ? from->last_ns : into->last_ns;
}

/* Pages that nothing was written to stay unused. */
void span_clear(struct span *span)
{
    for (int i = 0; i < LOAD_TIMES; i++)
        if (span->times[i].count > 0)
            span->times[i] = (struct histogram){0};
    span->messages = span->warm = span->failures = span->sent = span->out_of_row = span->last_ns =
        0;
}

/* ---- life ---- */

enum err lane_init(struct lane *lane, struct run *run, unsigned index, unsigned of)
{
    *lane = (struct lane){.run = run, .index = index, .of = of};
    lane->tally.sides = calloc(2, sizeof *lane->tally.sides);
    if (!lane->tally.sides)
        return ERR_NO_MEMORY;
    room_init(&lane->tally.room, "load lane", ROOM_CORE);
    return OK;
}

void lane_clear(struct lane *lane)
{
    if (!lane->tally.sides)
        return;
    room_clear(&lane->tally.room);
    free(lane->tally.sides);
    lane->tally.sides = NULL;
}

/* ---- the schedule ---- */

static uint64_t due_of(const struct lane *lane, uint64_t now_ns)
{
    const struct run *run = lane->run;
    if (run->options.rate <= 0)
        return now_ns;
    double before = ((double)lane->next * lane->of + lane->index) * run->options.batch;
    return run->begin_ns + (uint64_t)(before * NS_OF_S / run->options.rate);
}

/* Of those that count, so many may begin. */
static bool ticket_take(struct run *run, uint64_t due_ns)
{
    if (run->options.count == 0 || due_ns < run->from_ns)
        return true;
    uint64_t batch = run->options.batch;
    uint64_t before = atomic_fetch_add_explicit(&run->issued, batch, memory_order_relaxed);
    return before < run->options.count;
}

enum claim lane_claim(struct lane *lane, uint64_t now_ns, uint64_t *due_ns)
{
    room_held(&lane->tally.room);
    struct run *run = lane->run;
    if (lane->over)
        return CLAIM_OVER;
    uint64_t due = due_of(lane, now_ns);
    *due_ns = due > lane->hold_ns ? due : lane->hold_ns;
    bool ending = atomic_load_explicit(&run->ending, memory_order_relaxed);
    if (!ending && due<run->until_ns && * due_ns> now_ns)
        return CLAIM_WAIT;
    if (ending || due >= run->until_ns || !ticket_take(run, due)) {
        lane->over = true;
        return CLAIM_OVER;
    }
    *due_ns = due;
    lane->next++;
    return CLAIM_GO;
}

void sleep_until(uint64_t ns)
{
    const struct timespec then = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR)
        ;
}

bool lane_wait(struct lane *lane, uint64_t *due_ns)
{
    for (;;) {
        uint64_t now = run_ns(lane->run);
        room_enter(&lane->tally.room);
        enum claim claim = lane_claim(lane, now, due_ns);
        room_leave(&lane->tally.room);
        if (claim != CLAIM_WAIT)
            return claim == CLAIM_GO;
        sleep_until(*due_ns < now + NAP_NS ? *due_ns : now + NAP_NS);
    }
}

/* ---- the tally ---- */

/* Where to record; NULL: it was due while warming. */
static struct span *span_of(struct lane *lane, uint64_t due_ns, uint64_t now_ns)
{
    room_held(&lane->tally.room);
    if (due_ns < lane->run->from_ns)
        return NULL;
    struct span *span = &lane->tally.sides[lane->tally.side];
    span->last_ns = now_ns > span->last_ns ? now_ns : span->last_ns;
    return span;
}

void lane_done(struct lane *lane, enum load_times times, uint64_t due_ns, uint64_t now_ns)
{
    struct span *span = span_of(lane, due_ns, now_ns);
    if (span)
        histogram_add(&span->times[times], now_ns > due_ns ? now_ns - due_ns : 0);
}

void lane_messages(struct lane *lane, uint64_t due_ns, uint64_t now_ns, uint64_t n)
{
    struct span *span = span_of(lane, due_ns, now_ns);
    if (span)
        span->messages += n;
    else
        lane->tally.sides[lane->tally.side].warm += n;
}

void lane_sent(struct lane *lane, uint64_t due_ns, uint64_t n)
{
    struct span *span = span_of(lane, due_ns, due_ns);
    if (!span)
        return;
    span->sent += n;
    atomic_fetch_add_explicit(&lane->run->acked, n, memory_order_relaxed);
}

void lane_late(struct lane *lane, uint64_t due_ns, uint64_t now_ns)
{
    if (lane->run->options.rate > 0)
        lane_done(lane, LOAD_LATE, due_ns, now_ns);
}

void lane_failed(struct lane *lane, uint64_t due_ns, uint64_t now_ns, const char *why)
{
    struct run *run = lane->run;
    struct span *span = span_of(lane, due_ns, now_ns);
    lane->hold_ns = now_ns + HOLD_NS;
    if (!span)
        return;
    span->failures += run->options.kind == LOAD_CONSUME ? 1 : run->options.batch;
    room_enter(&run->room);
    if (run->failure[0] == 0)
        (void)snprintf(run->failure, sizeof run->failure, "%s", why);
    room_leave(&run->room);
}

void lane_out_of_row(struct lane *lane)
{
    room_held(&lane->tally.room);
    lane->tally.sides[lane->tally.side].out_of_row++;
}

void lane_collect(struct lane *lane, struct span *into)
{
    struct tally *t = &lane->tally;
    room_enter(&t->room);
    struct span *full = &t->sides[t->side];
    t->side ^= 1;
    room_leave(&t->room);
    span_add(into, full);
    span_clear(full);
}
