/* bench_broker_txn.c - conns × flight transactions under way: a half message, and when it is
 * answered its commit, which is answered as well. At the end the topic must hold exactly as many
 * messages as were committed. */
#include "bench_broker.h"
#include "msg/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define IN_SIZE        (256u << 10)
#define ANSWER_WAIT_MS 10000
#define END_ROOM       1024
#define COMMIT         8

struct slot {
    uint64_t begun_ns; /* 0: free */
    uint32_t opaque;
    bool ending;
};

struct dealing {
    const struct load *load;
    struct wire *wires;
    struct slot *slots; /* conns × flight */
    struct stamp stamp;
    uint8_t *out, *to; /* what one turn writes */
    uint64_t next, committed, open;
    struct sample took;
    bool measuring, stopping;
};

static void end_put(struct dealing *d, struct slot *slot, const struct answer *half)
{
    struct addr host;
    int64_t position;
    struct bytes id = head_field(&half->head, BYTES("msgId"));
    if (id_parse(id, &host, &position))
        wrong("a half message without a place");
    struct wr w = wr_over(d->to, END_ROOM);
    struct frame_out f;
    slot->opaque += d->load->flight;
    frame_begin(&f, &w, d->load->form,
                &(struct head_start){.code = REQ_END_TRANSACTION,
                                     .opaque = (int32_t)(FIRST_OPAQUE + slot->opaque)});
    frame_put(&f, BYTES("producerGroup"), BYTES(PRODUCERS));
    frame_put_int(&f, BYTES("tranStateTableOffset"), answer_number(half, BYTES("queueOffset")));
    frame_put_int(&f, BYTES("commitLogOffset"), position);
    frame_put_int(&f, BYTES("commitOrRollback"), COMMIT);
    frame_put(&f, BYTES("fromTransactionCheck"), BYTES("false"));
    frame_put(&f, BYTES("msgId"), head_field(&half->head, BYTES("transactionId")));
    frame_put(&f, BYTES("transactionId"), head_field(&half->head, BYTES("transactionId")));
    frame_end_head(&f, 0);
    if (w.full)
        wrong("an end that is too long");
    slot->ending = true;
    d->to += wr_len(&w);
}

static void half_put(struct dealing *d, struct slot *slot)
{
    slot->begun_ns = now_ns();
    slot->opaque += d->load->flight;
    slot->ending = false;
    stamp_put(&d->stamp, d->to, slot->opaque, (uint32_t)(d->next % QUEUES), d->next);
    d->next++;
    d->open++;
    d->to += d->stamp.len;
}

static void answer_take(struct dealing *d, unsigned conn, const struct answer *a)
{
    uint32_t opaque = answer_opaque(a);
    struct slot *slot = &d->slots[conn * d->load->flight + opaque % d->load->flight];
    if (slot->begun_ns == 0 || slot->opaque != opaque || !(a->head.flag & FLAG_RESPONSE))
        wrong("an answer to a request that is not under way: opaque %u", opaque);
    if (a->head.code != RES_SUCCESS)
        wrong("refused: %d %.*s", a->head.code, BYTES_ARG(a->head.remark));
    if (!slot->ending) {
        end_put(d, slot, a);
        return;
    }
    d->open--;
    d->committed++;
    if (d->measuring)
        sample_add(&d->took, now_ns() - slot->begun_ns);
    slot->begun_ns = 0;
    if (!d->stopping)
        half_put(d, slot);
}

static void conn_turn(struct dealing *d, unsigned conn)
{
    struct wire *w = &d->wires[conn];
    if (!wire_receive(w))
        return;
    struct answer a;
    d->to = d->out;
    while (wire_next(w, &a))
        answer_take(d, conn, &a);
    wire_write(w, bytes_of(d->out, (size_t)(d->to - d->out)));
}

static void run(struct dealing *d, int epoll_fd, uint64_t until_ns)
{
    struct epoll_event events[64];
    while (d->open > 0 && now_ns() < until_ns) {
        int n = epoll_wait(epoll_fd, events, 64, ANSWER_WAIT_MS);
        if (n <= 0)
            wrong("no answer within %d ms", ANSWER_WAIT_MS);
        for (int i = 0; i < n; i++)
            conn_turn(d, events[i].data.u32);
    }
}

static int64_t queue_end(struct dealing *d, const char *topic, int queue)
{
    uint8_t frame[END_ROOM];
    struct wr w = wr_over(frame, sizeof frame);
    struct frame_out f;
    frame_begin(&f, &w, d->load->form, &(struct head_start){.code = REQ_GET_MAX_OFFSET});
    frame_put(&f, BYTES("topic"), bytes_str(topic));
    frame_put_int(&f, BYTES("queueId"), queue);
    frame_end_head(&f, 0);
    wire_write(&d->wires[0], wr_bytes(&w));
    struct answer a;
    while (!wire_next(&d->wires[0], &a))
        if (!wire_receive(&d->wires[0]))
            (void)usleep(100);
    return answer_number(&a, BYTES("offset"));
}

static void all_there(struct dealing *d, const char *topic)
{
    uint64_t there = 0;
    for (int queue = 0; queue < QUEUES; queue++)
        there += (uint64_t)queue_end(d, topic, queue);
    if (there != d->committed)
        wrong("%llu messages are there, %llu were committed", (unsigned long long)there,
              (unsigned long long)d->committed);
}

/* The first half makes the topic. */
static void topic_make(struct dealing *d)
{
    d->to = d->out;
    half_put(d, &d->slots[0]);
    wire_write(&d->wires[0], bytes_of(d->out, (size_t)(d->to - d->out)));
    d->stopping = true;
    while (d->open > 0) {
        conn_turn(d, 0);
        (void)usleep(100);
    }
    d->stopping = false;
}

int load_txn(const struct load *load)
{
    struct dealing d = {
        .load = load,
        .wires = calloc(load->conns, sizeof *d.wires),
        .slots = calloc((size_t)load->conns * load->flight, sizeof *d.slots),
    };
    char topic[TEXT_ROOM];
    topic_name(topic, "BenchTxn");
    stamp_make(&d.stamp, load, &(struct mould){.topic = topic, .half = true});
    d.out = malloc((d.stamp.len + END_ROOM) * load->flight);
    must(d.wires && d.slots && d.out, "memory");
    for (unsigned i = 0; i < load->conns * load->flight; i++)
        d.slots[i].opaque = i % load->flight;
    for (unsigned i = 0; i < load->conns; i++)
        wire_open(&d.wires[i], load, IN_SIZE);
    topic_make(&d);

    int epoll_fd = epoll_over(d.wires, load->conns);
    for (unsigned i = 0; i < load->conns; i++) {
        d.to = d.out;
        for (unsigned k = 0; k < load->flight; k++)
            half_put(&d, &d.slots[i * load->flight + k]);
        wire_write(&d.wires[i], bytes_of(d.out, (size_t)(d.to - d.out)));
    }
    run(&d, epoll_fd, now_ns() + load->warm_ms * NS_OF_MS);

    d.measuring = true;
    uint64_t begin = now_ns(), cpu = cpu_ns_of(load->pid);
    double own = cpu_ns_own();
    run(&d, epoll_fd, begin + load->run_ms * NS_OF_MS);
    double wall = (double)(now_ns() - begin);
    double cpu_each = (double)(cpu_ns_of(load->pid) - cpu) / (double)d.took.n;
    own = cpu_ns_own() - own;
    d.measuring = false;

    d.stopping = true;
    run(&d, epoll_fd, UINT64_MAX);
    all_there(&d, topic);
    printf("{\"per_second\": %.1f, \"cpu_us\": %.3f, \"own_cpu\": %.2f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"count\": %zu}\n",
           (double)d.took.n * 1e9 / wall, cpu_each / 1000, own / wall, sample_us(&d.took, 0.5),
           sample_us(&d.took, 0.99), d.took.n);
    return 0;
}
