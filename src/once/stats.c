/* stats.c - what was counted. */
#include "once/once_int.h"

uint32_t thread_number(void)
{
    static _Atomic uint32_t next;
    static _Thread_local uint32_t mine; /* 0: none yet */
    if (unlikely(mine == 0))
        mine = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) + 1;
    return mine;
}

void tally_add(struct tally *t, enum tally_of what, uint64_t n)
{
    (void)atomic_fetch_add_explicit(&t->shard[thread_number() % TALLY_SHARDS].n[what], n,
                                    memory_order_relaxed);
}

static uint64_t total(const struct tally *t, enum tally_of what)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TALLY_SHARDS; i++)
        sum += atomic_load_explicit(&t->shard[i].n[what], memory_order_relaxed);
    return sum;
}

void once_stats(const struct once *once, struct once_stats *out)
{
    if (!out)
        return;
    *out = (struct once_stats){0};
    if (!once)
        return;
    const struct tally *t = &once->tally;
    out->first_runs = total(t, TALLY_FIRST);
    out->duplicates = total(t, TALLY_DUPLICATE);
    out->other_bodies = total(t, TALLY_OTHER_BODY);
    out->busy = total(t, TALLY_BUSY);
    out->lost = total(t, TALLY_LOST);
    out->released = total(t, TALLY_RELEASED);
    out->no_key = total(t, TALLY_NO_KEY);
    out->unsure = total(t, TALLY_UNSURE);
    out->store_errors = total(t, TALLY_STORE_ERROR);
    out->ran_without_store = total(t, TALLY_WITHOUT_STORE);
    out->swept = total(t, TALLY_SWEPT);
    out->overtaken = total(t, TALLY_OVERTAKEN);
    out->running = running_count((struct running *)&once->running);
    out->store_ns = total(t, TALLY_STORE_NS);
    out->store_calls = total(t, TALLY_STORE_CALLS);
}
