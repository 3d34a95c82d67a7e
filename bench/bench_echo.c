/* bench_echo - the echo path of the network core against a bare epoll server.
 *
 * Requests of 1.2 KB, replies of 100 bytes, 8 connections with 32 requests in flight each. Both
 * servers have one thread and batch alike: what one read brings is answered with one write. The
 * load comes from another thread on another core and is the same for both. Rounds alternate, and
 * each round of ours is compared with the bare one just before it, so that a slow second of the
 * machine hits both; medians count.
 *
 * Two numbers are compared: requests per second, and requests per second of the server's own
 * processor time. The second one counts when the load generator is the bottleneck, where any server
 * looks as good as any other. The verdict goes by the worse of the two.
 */
#include "io/io.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_SIZE   1200u /* with its length in the first four bytes, as in remoting */
#define REPLY_SIZE     100u
#define CONNS          8
#define IN_FLIGHT      32
#define ROUNDS         15
#define WARM_MS        50
#define MEASURE_MS     300
#define TARGET_PERCENT 85

struct server {
    const char *name;
    void *(*run)(void *server);
    void (*stop)(struct server *server);
    pthread_t thread;
    uint16_t port;
    int listen_fd, stop_fd, epoll_fd; /* bare */
    struct loop *loop;                /* ours */
    double per_second[ROUNDS], per_cpu_second[ROUNDS];
};

static void must(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(2);
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* on one core the ratio still holds */
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    must(clock_gettime(clock, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What both servers do with a whole request. */
static void answer(const uint8_t *request, uint8_t *reply)
{
    memset(reply, 0, REPLY_SIZE);
    store_u32(reply, REPLY_SIZE);
    memcpy(reply + 4, request + 4, 8); /* an opaque, say */
}

/* ---- the bare server ---- */

struct bare_conn {
    int fd;
    size_t len;
    uint8_t in[256u << 10];
};

static void bare_close(struct bare_conn *c)
{
    (void)close(c->fd);
    free(c);
}

static bool bare_turn(struct bare_conn *c)
{
    static uint8_t out[(256u << 10) / REQUEST_SIZE * REPLY_SIZE + REPLY_SIZE];
    ssize_t n = read(c->fd, c->in + c->len, sizeof c->in - c->len);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    c->len += (size_t)n;

    size_t used = 0, filled = 0;
    while (c->len - used >= 4) {
        size_t size = load_u32(c->in + used);
        must(size == REQUEST_SIZE, "request");
        if (c->len - used < size)
            break;
        answer(c->in + used, out + filled);
        used += size;
        filled += REPLY_SIZE;
    }
    c->len -= used;
    if (c->len > 0 && used > 0)
        memmove(c->in, c->in + used, c->len);
    if (filled > 0)
        must(write(c->fd, out, filled) == (ssize_t)filled, "write"); /* it always fits here */
    return true;
}

static void bare_accept(struct server *s)
{
    struct bare_conn *c = calloc(1, sizeof *c);
    must(c, "calloc");
    c->fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    must(c->fd >= 0, "accept");
    int on = 1;
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = c};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &want) == 0, "epoll_ctl");
}

static void *bare_run(void *server)
{
    struct server *s = server;
    pin(0);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(s->epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;
            if (what == &s->stop_fd)
                return NULL;
            if (what == &s->listen_fd)
                bare_accept(s);
            else if (!bare_turn(what))
                bare_close(what);
        }
    }
}

static void bare_stop(struct server *s)
{
    uint64_t one = 1;
    must(write(s->stop_fd, &one, sizeof one) == sizeof one, "stop");
    (void)pthread_join(s->thread, NULL);
    (void)close(s->listen_fd);
    (void)close(s->stop_fd);
    (void)close(s->epoll_fd);
}

static void bare_start(struct server *s)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(bind(s->listen_fd, (struct sockaddr *)&name, len) == 0, "bind");
    must(listen(s->listen_fd, 64) == 0, "listen");
    must(getsockname(s->listen_fd, (struct sockaddr *)&name, &len) == 0, "getsockname");
    s->port = ntohs(name.sin_port);
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = &s->listen_fd};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &want) == 0, "epoll_ctl");
    want.data.ptr = &s->stop_fd;
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->stop_fd, &want) == 0, "epoll_ctl");
}

/* ---- our server ---- */

static void *ours_opened(void *context, struct conn *conn)
{
    return conn;
}

static size_t ours_input(void *user, struct conn *conn, struct bytes in)
{
    size_t used = 0;
    while (in.len - used >= 4) {
        size_t size = load_u32(in.at + used);
        must(size == REQUEST_SIZE, "request");
        if (in.len - used < size) {
            conn_need(conn, size);
            break;
        }
        uint8_t *reply = conn_space(conn, REPLY_SIZE);
        if (!reply)
            break;
        answer(in.at + used, reply);
        conn_used(conn, REPLY_SIZE);
        used += size;
    }
    return used;
}

static void ours_closed(void *user, struct conn *conn, const char *reason)
{
}

static const struct conn_ops ours_ops = {ours_input, ours_opened, ours_closed};
static struct io_limits ours_limits = IO_LIMITS_DEFAULT;

static void *ours_run(void *server)
{
    struct server *s = server;
    pin(0);
    loop_run(s->loop);
    return NULL;
}

static void ours_stop(struct server *s)
{
    loop_stop(s->loop);
    (void)pthread_join(s->thread, NULL);
    loop_close(s->loop);
}

static void ours_start(struct server *s)
{
    struct addr addr = {.ip = {127, 0, 0, 1}, .ip_len = 4};
    struct listener *listener;
    must(loop_open(&s->loop, clock_system(), NULL, NULL) == OK, "loop");
    must(listener_open(&s->loop, 1, &addr, &ours_limits, &listener, NULL) == OK, "listener");
    must(listener_start(listener, &ours_ops, NULL, NULL) == OK, "listening");
    s->port = listener_addr(listener)->port;
}

/* ---- the load ---- */

struct load {
    int epoll_fd, fds[CONNS];
    size_t part[CONNS]; /* of a reply that has not come whole */
    uint8_t requests[IN_FLIGHT * REQUEST_SIZE];
    uint64_t answered;
};

static void load_send(struct load *load, int i, size_t n)
{
    size_t total = n * REQUEST_SIZE, sent = 0;
    while (sent < total) { /* the sockets block; what is in flight fits into their buffers */
        ssize_t w = write(load->fds[i], load->requests + sent, total - sent);
        must(w > 0, "sending requests");
        sent += (size_t)w;
    }
}

static void load_open(struct load *load, uint16_t port)
{
    memset(load, 0, sizeof *load);
    for (size_t i = 0; i < IN_FLIGHT; i++)
        store_u32(load->requests + i * REQUEST_SIZE, REQUEST_SIZE);
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < CONNS; i++) {
        load->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(connect(load->fds[i], (struct sockaddr *)&name, sizeof name) == 0, "connect");
        int on = 1;
        (void)setsockopt(load->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event want = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        must(epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, load->fds[i], &want) == 0, "epoll_ctl");
        load_send(load, i, IN_FLIGHT);
    }
}

static void load_close(struct load *load)
{
    for (int i = 0; i < CONNS; i++)
        (void)close(load->fds[i]);
    (void)close(load->epoll_fd);
}

static void load_for(struct load *load, uint64_t ms)
{
    uint64_t until = now_ns(CLOCK_MONOTONIC) + ms * 1000000u;
    static uint8_t in[64u << 10];
    while (now_ns(CLOCK_MONOTONIC) < until) {
        struct epoll_event events[CONNS];
        int n = epoll_wait(load->epoll_fd, events, CONNS, 1000);
        must(n > 0, "waiting for replies");
        for (int e = 0; e < n; e++) {
            int i = (int)events[e].data.u32;
            ssize_t got = read(load->fds[i], in, sizeof in);
            must(got > 0, "reading replies");
            size_t bytes = load->part[i] + (size_t)got;
            load->part[i] = bytes % REPLY_SIZE;
            load->answered += bytes / REPLY_SIZE;
            load_send(load, i, bytes / REPLY_SIZE);
        }
    }
}

static void measure(struct server *s, int round)
{
    static struct load load;
    must(pthread_create(&s->thread, NULL, s->run, s) == 0, "thread");
    clockid_t cpu_clock;
    must(pthread_getcpuclockid(s->thread, &cpu_clock) == 0, "cpu clock");

    load_open(&load, s->port);
    load_for(&load, WARM_MS);
    load.answered = 0;
    uint64_t wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(cpu_clock);
    load_for(&load, MEASURE_MS);
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    cpu = now_ns(cpu_clock) - cpu;
    load_close(&load);
    s->stop(s);
    s->per_second[round] = (double)load.answered * 1e9 / (double)wall;
    s->per_cpu_second[round] = (double)load.answered * 1e9 / (double)cpu;
}

/* ---- the verdict ---- */

static int by_size(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], by_size);
    return values[ROUNDS / 2];
}

static double median_percent(const double ours[ROUNDS], const double bare[ROUNDS])
{
    double percent[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        percent[i] = 100 * ours[i] / bare[i];
    return median(percent);
}

int main(void)
{
    struct server bare = {.name = "bare epoll", .run = bare_run, .stop = bare_stop};
    struct server ours = {.name = "network core", .run = ours_run, .stop = ours_stop};
    pin(1);
    for (int round = 0; round < ROUNDS; round++) {
        bare_start(&bare);
        measure(&bare, round);
        ours_start(&ours);
        measure(&ours, round);
    }
    double by_speed = median_percent(ours.per_second, bare.per_second);
    double by_thrift = median_percent(ours.per_cpu_second, bare.per_cpu_second);
    struct server *both[] = {&bare, &ours};
    for (int i = 0; i < 2; i++)
        printf("echo: %-12s %8.0f requests/s, %.3f us of server CPU each\n", both[i]->name,
               median(both[i]->per_second), 1e6 / median(both[i]->per_cpu_second));
    printf("echo: by throughput %.0f %%, by CPU %.0f %%\n", by_speed, by_thrift);

    double worse = by_speed < by_thrift ? by_speed : by_thrift;
    bool pass = worse >= TARGET_PERCENT;
    printf("echo: %.0f %% of bare epoll (target %d %%) %s\n", worse, TARGET_PERCENT,
           pass ? "PASS" : "FAIL");
    return pass ? 0 : 1;
}
