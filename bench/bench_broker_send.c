/* bench_broker_send.c - conns × flight sends under way: what a broker accepts in a second.
 *
 * Each connection has `flight` slots. An answer frees its slot, and all slots that one read has
 * freed are filled again with one write, as clients of many threads do. An answer counts when it
 * says SUCCESS for the queue that was asked for; at the end the offsets of all answers must be
 * 0, 1, 2 … in each queue, each once: whatever was acknowledged has a place of its own.
 *
 * With asked=1 the load comes in turns, one for each line on standard input, until that ends. So
 * two generators that stay connected can load two brokers alternately, for a moment each.
 */
#include "bench_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define IN_SIZE        (256u << 10)
#define ANSWER_WAIT_MS 10000
#define OFFSETS_MAX    (INT64_C(1) << 28)

struct slot {
    uint64_t sent_ns; /* 0: free */
    uint32_t opaque, queue;
};

/* Which offsets of a queue were given out. */
struct given {
    uint8_t *bits;
    int64_t size, n, end;
};

struct sending {
    const struct load *load;
    struct wire *wires;
    struct slot *slots; /* conns × flight */
    struct stamp stamp;
    uint8_t *out;
    struct given given[QUEUES];
    uint64_t next;                    /* number of the next message */
    uint64_t accepted, refused, open; /* all of them */
    struct sample took;               /* those of the measured time */
    uint64_t refused_measured;
    int32_t refusal; /* the last one's code */
    bool measuring, stopping;
};

static void offset_given(struct given *g, int64_t offset)
{
    if (offset < 0 || offset >= OFFSETS_MAX)
        wrong("a queue offset of %lld", (long long)offset);
    if (offset / 8 >= g->size) {
        int64_t size = (offset / 8 + 1) * 2;
        g->bits = realloc(g->bits, (size_t)size);
        must(g->bits, "memory");
        memset(g->bits + g->size, 0, (size_t)(size - g->size));
        g->size = size;
    }
    uint8_t bit = (uint8_t)(1u << offset % 8);
    if (g->bits[offset / 8] & bit)
        wrong("the queue offset %lld was given out twice", (long long)offset);
    g->bits[offset / 8] |= bit;
    g->n++;
    g->end = offset + 1 > g->end ? offset + 1 : g->end;
}

static void answer_take(struct sending *s, unsigned conn, const struct answer *a, uint64_t now)
{
    uint32_t opaque = answer_opaque(a);
    struct slot *slot = &s->slots[conn * s->load->flight + opaque % s->load->flight];
    if (slot->sent_ns == 0 || slot->opaque != opaque || !(a->head.flag & FLAG_RESPONSE))
        wrong("an answer to a request that is not under way: opaque %u", opaque);
    s->open--;
    if (a->head.code == RES_SUCCESS) {
        if (answer_number(a, BYTES("queueId")) != slot->queue ||
            head_field(&a->head, BYTES("msgId")).len != 32)
            wrong("an answer for another queue, or without an id");
        offset_given(&s->given[slot->queue], answer_number(a, BYTES("queueOffset")));
        s->accepted++;
        if (s->measuring)
            sample_add(&s->took, now - slot->sent_ns);
    } else {
        if (a->head.code != RES_SYSTEM_BUSY)
            wrong("refused: %d %.*s", a->head.code, BYTES_ARG(a->head.remark));
        s->refused++;
        s->refused_measured += s->measuring;
    }
    slot->sent_ns = 0;
}

/* Fills every free slot of a connection. */
static void slots_fill(struct sending *s, unsigned conn)
{
    uint8_t *to = s->out;
    uint64_t now = now_ns();
    for (unsigned i = 0; i < s->load->flight; i++) {
        struct slot *slot = &s->slots[conn * s->load->flight + i];
        if (slot->sent_ns != 0)
            continue;
        slot->sent_ns = now;
        slot->opaque += s->load->flight;
        slot->queue = (uint32_t)(s->next % QUEUES);
        stamp_put(&s->stamp, to, slot->opaque, slot->queue, s->next++);
        to += s->stamp.len;
        s->open++;
    }
    wire_write(&s->wires[conn], bytes_of(s->out, (size_t)(to - s->out)));
}

static void conn_turn(struct sending *s, unsigned conn)
{
    struct wire *w = &s->wires[conn];
    if (!wire_receive(w))
        return;
    uint64_t now = now_ns();
    struct answer a;
    while (wire_next(w, &a))
        answer_take(s, conn, &a, now);
    if (!s->stopping)
        slots_fill(s, conn);
}

/* Until the time has come, or nothing is under way any more. */
static void run(struct sending *s, int epoll_fd, uint64_t until_ns)
{
    struct epoll_event events[64];
    while (s->open > 0 && now_ns() < until_ns) {
        int n = epoll_wait(epoll_fd, events, 64, ANSWER_WAIT_MS);
        if (n <= 0)
            wrong("no answer within %d ms", ANSWER_WAIT_MS);
        for (int i = 0; i < n; i++)
            conn_turn(s, events[i].data.u32);
    }
}

/* One message for each queue: makes the topic, and everybody knows it from here on. */
static void topic_make(struct sending *s)
{
    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        struct slot *slot = &s->slots[0];
        *slot = (struct slot){.sent_ns = now_ns(), .opaque = s->load->flight, .queue = queue};
        stamp_put(&s->stamp, s->out, slot->opaque, queue, s->next++);
        s->open++;
        wire_write(&s->wires[0], bytes_of(s->out, s->stamp.len));
        struct answer a;
        while (!wire_next(&s->wires[0], &a))
            if (!wire_receive(&s->wires[0]))
                (void)usleep(100);
        answer_take(s, 0, &a, now_ns());
    }
}

static void all_given(const struct sending *s)
{
    if (s->open > 0)
        wrong("%llu sends were never answered", (unsigned long long)s->open);
    for (int i = 0; i < QUEUES; i++)
        if (s->given[i].n != s->given[i].end)
            wrong("queue %d has offsets up to %lld, but only %lld were acknowledged", i,
                  (long long)s->given[i].end, (long long)s->given[i].n);
}

/* Loads the broker for a while and says how it went. Nothing is under way before or after. */
static void turn(struct sending *s, int epoll_fd)
{
    const struct load *load = s->load;
    s->stopping = false;
    s->took.n = 0;
    s->refused_measured = 0;
    for (unsigned i = 0; i < load->conns; i++)
        slots_fill(s, i);
    run(s, epoll_fd, now_ns() + load->warm_ms * NS_OF_MS);

    s->measuring = true;
    uint64_t begin = now_ns(), cpu = cpu_ns_of(load->pid);
    double own = cpu_ns_own();
    run(s, epoll_fd, begin + load->run_ms * NS_OF_MS);
    double wall = (double)(now_ns() - begin);
    double cpu_each = (double)(cpu_ns_of(load->pid) - cpu) / (double)s->took.n;
    own = cpu_ns_own() - own;
    s->measuring = false;

    s->stopping = true;
    run(s, epoll_fd, UINT64_MAX);
    all_given(s);
    printf("{\"per_second\": %.1f, \"cpu_us\": %.3f, \"own_cpu\": %.2f, \"refused\": %llu, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"count\": %zu}\n",
           (double)s->took.n * 1e9 / wall, cpu_each / 1000, own / wall,
           (unsigned long long)s->refused_measured, sample_us(&s->took, 0.5),
           sample_us(&s->took, 0.99), sample_us(&s->took, 0.999), s->took.n);
    must(fflush(stdout) == 0, "standard output");
}

static bool turn_asked(void)
{
    int c;
    do
        c = getchar();
    while (c != '\n' && c != EOF);
    return c != EOF;
}

int load_send(const struct load *load)
{
    struct sending s = {
        .load = load,
        .wires = calloc(load->conns, sizeof *s.wires),
        .slots = calloc((size_t)load->conns * load->flight, sizeof *s.slots),
    };
    char topic[TEXT_ROOM];
    topic_name(topic, "BenchSend");
    stamp_make(&s.stamp, load, &(struct mould){.topic = topic});
    s.out = malloc(s.stamp.len * load->flight);
    must(s.wires && s.slots && s.out, "memory");
    for (unsigned i = 0; i < load->conns * load->flight; i++)
        s.slots[i].opaque = i % load->flight;
    for (unsigned i = 0; i < load->conns; i++)
        wire_open(&s.wires[i], load, IN_SIZE);
    topic_make(&s);

    int epoll_fd = epoll_over(s.wires, load->conns);
    if (!load->asked)
        turn(&s, epoll_fd);
    while (load->asked && turn_asked())
        turn(&s, epoll_fd);
    return 0;
}
