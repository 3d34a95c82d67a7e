/* numbers.c - how much goes through this broker, and what it holds.
 *
 * Totals are counted where messages pass. Every ten seconds a sample of them is put into a ring; a
 * rate is the difference to the sample that is old enough, or to the oldest there is.
 */
#include "broker/broker_int.h"

#define SAMPLE_NS UINT64_C(10000000000)

static struct sample sample_now(struct broker *b)
{
    return (struct sample){
        .at_ns = clock_ns(b->peer_clock),
        .put = atomic_load_explicit(&b->numbers.put, memory_order_relaxed),
        .got = atomic_load_explicit(&b->numbers.got, memory_order_relaxed),
    };
}

void numbers_init(struct broker *b)
{
    b->numbers.boot_ms = clock_ms(b->clock);
    b->numbers.samples[0] = sample_now(b);
    b->numbers.boot_ns = b->numbers.samples[0].at_ns;
    b->numbers.n = 1;
}

/* Room: core. */
void numbers_sample(struct broker *b)
{
    room_held(&b->room);
    struct numbers *s = &b->numbers;
    struct sample now = sample_now(b);
    if (now.at_ns - s->samples[(s->n - 1) % SAMPLES].at_ns >= SAMPLE_NS)
        s->samples[s->n++ % SAMPLES] = now;
}

/* Room: core. */
static void rates(struct broker *b, struct broker_numbers *out)
{
    static const uint64_t spans_ns[3] = {SAMPLE_NS, 6 * SAMPLE_NS, 60 * SAMPLE_NS};
    const struct numbers *s = &b->numbers;
    struct sample now = sample_now(b);
    size_t oldest = s->n > SAMPLES ? s->n - SAMPLES : 0;
    for (size_t k = 0; k < 3; k++) {
        size_t at = s->n - 1;
        while (at > oldest && now.at_ns - s->samples[at % SAMPLES].at_ns < spans_ns[k])
            at--;
        const struct sample *then = &s->samples[at % SAMPLES];
        double seconds = (double)(now.at_ns - then->at_ns) / 1e9;
        out->put_rates[k] = seconds > 0 ? (double)(now.put - then->put) / seconds : 0;
        out->got_rates[k] = seconds > 0 ? (double)(now.got - then->got) / seconds : 0;
    }
    out->put = now.put;
    out->got = now.got;
    out->up_ms = (int64_t)((now.at_ns - s->boot_ns) / 1000000);
}

/* No key held. -1: there is no message. */
static int64_t earliest_ms(struct broker *b)
{
    struct slice slice;
    if (store_read_at(b->store, (int64_t)store_first(b->store), &slice))
        return -1;
    struct record record;
    int64_t ms = record_decode(slice.bytes, &record) ? -1 : record.store_ms;
    counted_drop(slice.owner);
    return ms;
}

void broker_numbers(struct broker *b, struct broker_numbers *out)
{
    *out = (struct broker_numbers){.boot_ms = b->numbers.boot_ms};
    room_enter(&b->room);
    rates(b, out);
    out->topics = b->topics.n;
    out->groups = b->groups.n;
    out->clients = b->members.n;
    out->holds = b->n_holds;
    out->differing = b->numbers.differing;
    room_leave(&b->room);
    out->log_first = store_first(b->store);
    out->log_end = store_confirmed(b->store);
    out->earliest_ms = earliest_ms(b);
    struct vfs_space space;
    if (!b->vfs->calls->space(b->vfs, &space, NULL) && space.total > 0)
        out->disk_used = (double)(space.total - space.free) / (double)space.total;
}
