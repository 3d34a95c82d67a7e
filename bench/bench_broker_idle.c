/* bench_broker_idle.c - connections that only heartbeat: what they cost in memory.
 *
 * Each is a consumer as the Java client would be one: a group (of GROUP_SIZE members), two
 * subscriptions, the client's inner producer. All register; then all heartbeat again, `rounds`
 * times, and the server's memory is looked at after each time.
 */
#include "bench_broker.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define GROUP_SIZE     10
#define IN_SIZE        (8u << 10)
#define REQUEST_ROOM   2048
#define AT_ONCE        64 /* heartbeats under way */
#define ANSWER_WAIT_MS 10000

struct idling {
    const struct load *load;
    struct wire *wires;
    int epoll_fd;
    unsigned answered; /* in this round */
};

static void beat(struct idling *s, unsigned conn)
{
    uint8_t frame[REQUEST_ROOM];
    char client[TEXT_ROOM], group[TEXT_ROOM], topic[TEXT_ROOM];
    (void)snprintf(client, sizeof client, "127.0.0.1@bench-%u", conn);
    (void)snprintf(group, sizeof group, "bench_group_%u", conn / GROUP_SIZE);
    (void)snprintf(topic, sizeof topic, "BenchTopic_%u", conn / GROUP_SIZE);
    size_t len = heartbeat_frame(frame, sizeof frame, s->load, client, group, topic);
    wire_write(&s->wires[conn], bytes_of(frame, len));
}

static void wires_turn(struct idling *s)
{
    struct epoll_event events[256];
    int n = epoll_wait(s->epoll_fd, events, 256, ANSWER_WAIT_MS);
    if (n <= 0)
        wrong("no answer within %d ms", ANSWER_WAIT_MS);
    for (int i = 0; i < n; i++) {
        struct wire *w = &s->wires[events[i].data.u32];
        struct answer a;
        if (!wire_receive(w))
            continue;
        while (wire_next(w, &a)) {
            if (!(a.head.flag & FLAG_RESPONSE))
                continue; /* the members of its group have changed */
            if (a.head.code != RES_SUCCESS)
                wrong("heartbeat refused: %d %.*s", a.head.code, BYTES_ARG(a.head.remark));
            s->answered++;
        }
    }
}

/* Everybody heartbeats once. */
static void round_run(struct idling *s)
{
    s->answered = 0;
    for (unsigned sent = 0; s->answered < s->load->conns;) {
        while (sent < s->load->conns && sent - s->answered < AT_ONCE)
            beat(s, sent++);
        wires_turn(s);
    }
}

static void descriptors_raise(unsigned n)
{
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    if (limit.rlim_cur >= n + 64)
        return;
    limit.rlim_cur = n + 64;
    if (limit.rlim_max < limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        wrong("%u connections need more file descriptors than are allowed here", n);
}

int load_idle(const struct load *load)
{
    struct idling s = {.load = load, .wires = calloc(load->conns, sizeof *s.wires)};
    must(s.wires, "memory");
    descriptors_raise(load->conns);
    double before = resident_mb_of(load->pid), most = before;
    for (unsigned i = 0; i < load->conns; i++)
        wire_open(&s.wires[i], load, IN_SIZE);
    double connected = resident_mb_of(load->pid);
    s.epoll_fd = epoll_over(s.wires, load->conns);
    round_run(&s);
    double registered = resident_mb_of(load->pid);
    uint64_t cpu = cpu_ns_of(load->pid);
    for (unsigned i = 0; i < load->rounds; i++) {
        round_run(&s);
        double now = resident_mb_of(load->pid);
        most = now > most ? now : most;
    }
    most = registered > most ? registered : most;
    double beats = (double)load->conns * load->rounds;
    printf("{\"before_mb\": %.2f, \"connected_mb\": %.2f, \"registered_mb\": %.2f, "
           "\"most_mb\": %.2f, \"cost_mb\": %.2f, \"beat_cpu_us\": %.2f}\n",
           before, connected, registered, most, most - before,
           (double)(cpu_ns_of(load->pid) - cpu) / beats / 1000);
    return 0;
}
