/* bench_broker_poll.c - how long a message takes to a consumer that waits for it.
 *
 * One connection sends `rate` messages a second, one queue after the other, on a timer. Another is
 * a consumer with a long poll waiting on each queue. A message carries the time of its sending; its
 * latency ends when the answer with it has been read. Offsets must come in order without a gap, and
 * in the end nothing may be missing. How late the timer itself was is told apart: a machine that
 * wakes us late delays the message before the server has heard of it.
 */
#include "bench_broker.h"
#include "msg/msg.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define IN_SIZE      (2u << 20)
#define REQUEST_ROOM 2048
#define MISSING_MS   5000

enum { SENDER, PULLER, WIRES, TIMER = WIRES };

struct polling {
    const struct load *load;
    struct wire wires[WIRES];
    struct stamp stamp;
    char topic[TEXT_ROOM], group[TEXT_ROOM];
    int64_t next_offset[QUEUES];
    uint64_t sent, answered, refused, received;
    uint64_t begin_ns, measured_from_ns;
    struct sample took, late;
};

static void send_one(struct polling *p)
{
    uint8_t frame[REQUEST_ROOM + 65536];
    uint64_t now = now_ns(), due = p->begin_ns + p->sent * 1000000000u / p->load->rate;
    if (now >= p->measured_from_ns)
        sample_add(&p->late, now > due ? now - due : 0);
    stamp_put(&p->stamp, frame, (uint32_t)p->sent, (uint32_t)(p->sent % QUEUES), p->sent);
    store_u64(frame + p->stamp.body, now);
    p->sent++;
    wire_write(&p->wires[SENDER], bytes_of(frame, p->stamp.len));
}

static void pull(struct polling *p, int queue)
{
    uint8_t frame[REQUEST_ROOM];
    size_t len =
        pull_frame(frame, sizeof frame, p->load, p->group, p->topic, queue, p->next_offset[queue]);
    wire_write(&p->wires[PULLER], bytes_of(frame, len));
}

static void records_take(struct polling *p, int queue, struct bytes body, uint64_t now)
{
    while (body.len > 0) {
        struct record r;
        if (record_decode(body, &r) || r.body.len != p->load->size)
            wrong("a record that cannot be read");
        if (r.queue_offset != p->next_offset[queue] || !record_body_intact(&r))
            wrong("queue %d: offset %lld instead of %lld, or a damaged body", queue,
                  (long long)r.queue_offset, (long long)p->next_offset[queue]);
        uint64_t sent_ns = load_u64(r.body.at);
        if (sent_ns >= p->measured_from_ns)
            sample_add(&p->took, now - sent_ns);
        p->next_offset[queue]++;
        p->received++;
        body = bytes_from(body, r.size);
    }
}

static void pulled(struct polling *p, const struct answer *a, uint64_t now)
{
    int queue = a->head.opaque;
    if (!(a->head.flag & FLAG_RESPONSE))
        return; /* a notice */
    if (queue < 0 || queue >= QUEUES)
        wrong("an answer to nobody");
    if (a->head.code == RES_SUCCESS)
        records_take(p, queue, a->body, now);
    else if (a->head.code != RES_PULL_NOT_FOUND && a->head.code != RES_PULL_RETRY_IMMEDIATELY)
        wrong("pull refused: %d %.*s", a->head.code, BYTES_ARG(a->head.remark));
    pull(p, queue);
}

static void wire_turn(struct polling *p, uint32_t which)
{
    struct wire *w = &p->wires[which];
    struct answer a;
    if (!wire_receive(w))
        return;
    uint64_t now = now_ns();
    while (wire_next(w, &a)) {
        if (which == PULLER) {
            pulled(p, &a, now);
            continue;
        }
        if (a.head.code != RES_SUCCESS && a.head.code != RES_SYSTEM_BUSY)
            wrong("send refused: %d %.*s", a.head.code, BYTES_ARG(a.head.remark));
        p->answered++;
        p->refused += a.head.code != RES_SUCCESS;
    }
}

/* Makes the topic and its first pulls; nothing of it is measured. */
static void prepare(struct polling *p)
{
    uint8_t frame[REQUEST_ROOM + 65536];
    for (uint32_t queue = 0; queue < QUEUES; queue++) {
        stamp_put(&p->stamp, frame, 0, queue, 0);
        memset(frame + p->stamp.body, 0, 8);
        do
            wire_write(&p->wires[SENDER], bytes_of(frame, p->stamp.len));
        while (!wire_expect(&p->wires[SENDER], "first send"));
    }
    size_t len =
        heartbeat_frame(frame, REQUEST_ROOM, p->load, "127.0.0.1@bench", p->group, p->topic);
    do
        wire_write(&p->wires[PULLER], bytes_of(frame, len));
    while (!wire_expect(&p->wires[PULLER], "heartbeat"));
    for (int queue = 0; queue < QUEUES; queue++)
        pull(p, queue);
}

static int timer_make(int epoll_fd, unsigned rate)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    must(fd >= 0, "timerfd_create");
    long every = 1000000000 / (long)rate;
    struct timespec period = {every / 1000000000, every % 1000000000};
    struct itimerspec when = {.it_interval = period, .it_value = period};
    must(timerfd_settime(fd, 0, &when, NULL) == 0, "timerfd_settime");
    struct epoll_event want = {.events = EPOLLIN, .data.u32 = TIMER};
    must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &want) == 0, "epoll_ctl");
    return fd;
}

static void run(struct polling *p, int epoll_fd, int timer, uint64_t until_ns)
{
    struct epoll_event events[WIRES + 1];
    uint64_t all_ns = until_ns + MISSING_MS * UINT64_C(1000000);
    for (uint64_t now; (now = now_ns()) < all_ns;) {
        if (now >= until_ns && p->answered == p->sent &&
            p->received == p->sent - p->refused + QUEUES)
            return;
        int n = epoll_wait(epoll_fd, events, WIRES + 1, 100);
        must(n >= 0, "epoll_wait");
        for (int i = 0; i < n; i++) {
            uint64_t times;
            if (events[i].data.u32 != TIMER)
                wire_turn(p, events[i].data.u32);
            else if (read(timer, &times, sizeof times) == sizeof times && now < until_ns)
                for (; times > 0; times--)
                    send_one(p);
        }
    }
    wrong("%llu messages sent, %llu answered, %llu refused, %llu received",
          (unsigned long long)p->sent, (unsigned long long)p->answered,
          (unsigned long long)p->refused, (unsigned long long)(p->received - QUEUES));
}

int load_poll(const struct load *load)
{
    static struct polling p;
    p.load = load;
    topic_name(p.topic, "BenchPoll");
    topic_name(p.group, "bench_consumer");
    stamp_make(&p.stamp, load, &(struct mould){.topic = p.topic});
    for (int i = 0; i < WIRES; i++)
        wire_open(&p.wires[i], load, IN_SIZE);
    prepare(&p);

    int epoll_fd = epoll_over(p.wires, WIRES);
    int timer = timer_make(epoll_fd, load->rate);
    p.begin_ns = now_ns();
    p.measured_from_ns = p.begin_ns + load->warm_ms * NS_OF_MS;
    uint64_t cpu = cpu_ns_of(load->pid);
    run(&p, epoll_fd, timer, p.measured_from_ns + load->run_ms * NS_OF_MS);
    double cpu_each = (double)(cpu_ns_of(load->pid) - cpu) / (double)p.sent;
    printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"cpu_us\": %.3f, "
           "\"late_p99_us\": %.1f, \"refused\": %llu, \"count\": %zu}\n",
           sample_us(&p.took, 0.5), sample_us(&p.took, 0.99), sample_us(&p.took, 0.999),
           cpu_each / 1000, sample_us(&p.late, 0.99), (unsigned long long)p.refused, p.took.n);
    return 0;
}
