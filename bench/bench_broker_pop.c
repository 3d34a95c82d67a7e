/* bench_broker_pop.c - how fast stored messages are popped and acknowledged.
 *
 * `count` messages are stored first, which is not measured. Then each connection pops up to 32 of
 * them at a time, as the Java consumer does, acknowledges each with a request of its own, all under
 * way at once, and pops again when all of them are answered. It is over when every message has been
 * acknowledged with success. Each must have come once.
 */
#include "bench_broker.h"
#include "msg/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#define IN_SIZE        (2u << 20)
#define REQUEST_ROOM   1024
#define POP_COUNT      32
#define FILL_FLIGHT    64
#define ANSWER_WAIT_MS 20000

struct popper {
    unsigned open; /* acknowledgements that are not answered yet */
};

struct popping {
    const struct load *load;
    struct wire *wires;
    struct popper *poppers;
    struct stamp stamp;
    char topic[TEXT_ROOM], group[TEXT_ROOM];
    uint8_t *out;
    uint64_t popped, acked, empty;
    uint8_t *seen[QUEUES]; /* by offset */
};

static int64_t wall_ms(void)
{
    struct timeval tv;
    (void)gettimeofday(&tv, NULL);
    return (int64_t)tv.tv_sec * 1000 + tv.tv_usec / 1000;
}

static void fill(struct popping *p)
{
    struct wire *w = &p->wires[0];
    for (uint64_t done = 0; done < p->load->count;) {
        unsigned n = 0;
        uint8_t *to = p->out;
        for (; n < FILL_FLIGHT && done + n < p->load->count; n++, to += p->stamp.len) {
            stamp_put(&p->stamp, to, n, (uint32_t)((done + n) % QUEUES), done + n);
            memset(to + p->stamp.body, 0, 8);
        }
        wire_write(w, bytes_of(p->out, (size_t)(to - p->out)));
        for (unsigned i = 0; i < n; i++)
            done += wire_expect(w, "send");
    }
}

static void pop(struct popping *p, unsigned conn)
{
    uint8_t frame[REQUEST_ROOM];
    struct wr w = wr_over(frame, sizeof frame);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON, &(struct head_start){.code = REQ_POP_MESSAGE, .opaque = 1});
    frame_put(&f, BYTES("consumerGroup"), bytes_str(p->group));
    frame_put(&f, BYTES("topic"), bytes_str(p->topic));
    frame_put_int(&f, BYTES("queueId"), -1);
    frame_put_int(&f, BYTES("maxMsgNums"), POP_COUNT);
    frame_put_int(&f, BYTES("invisibleTime"), 60000);
    frame_put_int(&f, BYTES("pollTime"), 0);
    frame_put_int(&f, BYTES("bornTime"), wall_ms());
    frame_put_int(&f, BYTES("initMode"), 0);
    frame_put(&f, BYTES("exp"), BYTES("*"));
    frame_put(&f, BYTES("expType"), BYTES("TAG"));
    frame_end_head(&f, 0);
    wire_write(&p->wires[conn], wr_bytes(&w));
}

/* Of each queue, where the batch begins: "0 3 17;0 1 4". */
static void starts_read(struct bytes text, int64_t starts[QUEUES])
{
    char copy[1024];
    must(text.len < sizeof copy, "room for startOffsetInfo");
    memcpy(copy, text.at, text.len);
    copy[text.len] = 0;
    for (char *save, *item = strtok_r(copy, ";", &save); item; item = strtok_r(NULL, ";", &save)) {
        int kind, queue;
        long long start;
        if (sscanf(item, "%d %d %lld", &kind, &queue, &start) != 3 || kind != 0 || queue < 0 ||
            queue >= QUEUES)
            wrong("startOffsetInfo: %s", item);
        starts[queue] = start;
    }
}

static void ack_add(struct popping *p, struct wr *w, const struct answer *a, const struct record *r,
                    int64_t start)
{
    char handle[256];
    struct bytes popped = head_field(&a->head, BYTES("popTime")),
                 invisible = head_field(&a->head, BYTES("invisibleTime")),
                 revive = head_field(&a->head, BYTES("reviveQid"));
    (void)snprintf(handle, sizeof handle, "%lld %.*s %.*s %.*s 0 broker-a %d %lld",
                   (long long)start, BYTES_ARG(popped), BYTES_ARG(invisible), BYTES_ARG(revive),
                   r->queue_id, (long long)r->queue_offset);
    struct wr room = wr_over(w->at, (size_t)(w->end - w->at));
    struct frame_out f;
    frame_begin(&f, &room, HEAD_JSON, &(struct head_start){.code = REQ_ACK_MESSAGE, .opaque = 2});
    frame_put(&f, BYTES("consumerGroup"), bytes_str(p->group));
    frame_put(&f, BYTES("topic"), bytes_str(p->topic));
    frame_put_int(&f, BYTES("queueId"), r->queue_id);
    frame_put(&f, BYTES("extraInfo"), bytes_str(handle));
    frame_put_int(&f, BYTES("offset"), r->queue_offset);
    frame_end_head(&f, 0);
    must(!room.full, "room for acknowledgements");
    w->at = room.at;
}

static void popped(struct popping *p, unsigned conn, const struct answer *a)
{
    if (a->head.code == RES_POLLING_TIMEOUT) {
        p->empty++;
        if (p->acked < p->load->count)
            pop(p, conn); /* others have the rest, or are just taking it */
        return;
    }
    if (a->head.code != RES_SUCCESS)
        wrong("pop refused: %d %.*s", a->head.code, BYTES_ARG(a->head.remark));
    int64_t starts[QUEUES] = {0};
    starts_read(head_field(&a->head, BYTES("startOffsetInfo")), starts);
    struct wr w = wr_over(p->out, (size_t)POP_COUNT * REQUEST_ROOM);
    for (struct bytes body = a->body; body.len > 0;) {
        struct record r;
        if (record_decode(body, &r) || r.body.len != p->load->size || !record_body_intact(&r) ||
            r.queue_id < 0 || r.queue_id >= QUEUES ||
            (uint64_t)r.queue_offset >= p->load->count + QUEUES)
            wrong("a record that cannot be read");
        if (p->seen[r.queue_id][r.queue_offset]++)
            wrong("queue %d, offset %lld came twice", r.queue_id, (long long)r.queue_offset);
        ack_add(p, &w, a, &r, starts[r.queue_id]);
        p->poppers[conn].open++;
        p->popped++;
        body = bytes_from(body, r.size);
    }
    wire_write(&p->wires[conn], wr_bytes(&w));
}

static void conn_turn(struct popping *p, unsigned conn)
{
    struct answer a;
    if (!wire_receive(&p->wires[conn]))
        return;
    while (wire_next(&p->wires[conn], &a)) {
        if (a.head.opaque == 1) {
            popped(p, conn, &a);
            continue;
        }
        if (a.head.code != RES_SUCCESS)
            wrong("ack refused: %d %.*s", a.head.code, BYTES_ARG(a.head.remark));
        p->acked++;
        if (--p->poppers[conn].open == 0 && p->acked < p->load->count)
            pop(p, conn);
    }
}

static void drain(struct popping *p)
{
    int epoll_fd = epoll_over(p->wires, p->load->conns);
    struct epoll_event events[64];
    for (unsigned i = 0; i < p->load->conns; i++)
        pop(p, i);
    while (p->acked < p->load->count) {
        int n = epoll_wait(epoll_fd, events, 64, ANSWER_WAIT_MS);
        if (n <= 0)
            wrong("no answer within %d ms, %llu of %u acknowledged", ANSWER_WAIT_MS,
                  (unsigned long long)p->acked, p->load->count);
        for (int i = 0; i < n; i++)
            conn_turn(p, events[i].data.u32);
    }
    (void)close(epoll_fd);
}

int load_pop(const struct load *load)
{
    struct popping p = {.load = load};
    topic_name(p.topic, "BenchPop");
    topic_name(p.group, "bench_pop");
    stamp_make(&p.stamp, load, &(struct mould){.topic = p.topic});
    p.wires = calloc(load->conns, sizeof *p.wires);
    p.poppers = calloc(load->conns, sizeof *p.poppers);
    size_t room = p.stamp.len * FILL_FLIGHT;
    p.out = malloc(room > POP_COUNT * REQUEST_ROOM ? room : POP_COUNT * REQUEST_ROOM);
    must(p.wires && p.poppers && p.out, "memory");
    for (int i = 0; i < QUEUES; i++)
        must((p.seen[i] = calloc(load->count + QUEUES, 1)) != NULL, "memory");
    for (unsigned i = 0; i < load->conns; i++)
        wire_open(&p.wires[i], load, IN_SIZE);
    fill(&p);
    usleep(200000); /* until all of it is in the queues */
    uint64_t begin = now_ns(), cpu = cpu_ns_of(load->pid);
    double own = cpu_ns_own();
    drain(&p);
    uint64_t took = now_ns() - begin;
    printf("{\"per_second\": %.0f, \"cpu_us\": %.3f, \"own_cpu\": %.3f, \"empty\": %llu}\n",
           (double)load->count * 1e9 / (double)took,
           (double)(cpu_ns_of(load->pid) - cpu) / 1000 / (double)load->count,
           (cpu_ns_own() - own) / (double)took, (unsigned long long)p.empty);
    for (unsigned i = 0; i < load->conns; i++)
        wire_close(&p.wires[i]);
    for (int i = 0; i < QUEUES; i++)
        free(p.seen[i]);
    stamp_clear(&p.stamp);
    free(p.out);
    free(p.poppers);
    free(p.wires);
    return 0;
}
