/* bench_broker_wire.c - connections of the load generator. */
#include "bench_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 10000

void must(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(2);
}

void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    exit(2);
}

uint64_t now_ns(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_MONOTONIC, &t) == 0, "clock_gettime");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void wire_open(struct wire *w, const struct load *load, size_t in_size)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(load->port)};
    must(inet_pton(AF_INET, load->host, &name.sin_addr) == 1, "an IPv4 address is needed");
    *w = (struct wire){.in = malloc(in_size), .size = in_size};
    must(w->in, "memory");
    w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(w->fd >= 0, "socket");
    must(connect(w->fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    int on = 1;
    (void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void wire_close(struct wire *w)
{
    (void)close(w->fd);
    free(w->in);
    *w = (struct wire){.fd = -1};
}

void wire_write(struct wire *w, struct bytes bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(w->fd, bytes.at, bytes.len, MSG_NOSIGNAL);
        must(n > 0, "sending");
        bytes = bytes_from(bytes, (size_t)n);
    }
}

bool wire_receive(struct wire *w)
{
    if (w->at > 0) {
        memmove(w->in, w->in + w->at, w->end - w->at);
        w->end -= w->at;
        w->at = 0;
    }
    if (w->end == w->size)
        wrong("an answer of more than %zu bytes", w->size);
    ssize_t n = recv(w->fd, w->in + w->end, w->size - w->end, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return false;
    must(n >= 0, "receiving");
    if (n == 0)
        wrong("the server has closed a connection");
    w->end += (size_t)n;
    return true;
}

bool wire_next(struct wire *w, struct answer *out)
{
    static uint8_t spare_room[1u << 20];
    struct frame frame;
    size_t need;
    enum err err = frame_split(bytes_of(w->in + w->at, w->end - w->at), &frame, &need);
    if (err == ERR_INCOMPLETE)
        return false;
    if (err || frame.head.len > sizeof spare_room)
        wrong("a frame that cannot be read");
    struct wr spare = wr_over(spare_room, sizeof spare_room);
    if (head_decode(&frame, &spare, &out->head))
        wrong("a header that cannot be read: %.*s", BYTES_ARG(frame.head));
    out->body = frame.body;
    w->at += frame.size;
    return true;
}

bool wire_expect(struct wire *w, const char *what)
{
    struct answer a;
    for (;;) {
        while (wire_next(w, &a)) {
            if (!(a.head.flag & FLAG_RESPONSE))
                continue; /* a notice of the server's own */
            if (a.head.code != RES_SUCCESS && a.head.code != RES_SYSTEM_BUSY)
                wrong("%s: %d %.*s", what, a.head.code, BYTES_ARG(a.head.remark));
            return a.head.code == RES_SUCCESS;
        }
        struct pollfd ready = {.fd = w->fd, .events = POLLIN};
        if (poll(&ready, 1, ANSWER_TIMEOUT_MS) != 1)
            wrong("%s: no answer within %d ms", what, ANSWER_TIMEOUT_MS);
        (void)wire_receive(w);
    }
}

int epoll_over(struct wire *wires, unsigned n)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    must(fd >= 0, "epoll_create1");
    for (unsigned i = 0; i < n; i++) {
        struct epoll_event want = {.events = EPOLLIN, .data.u32 = i};
        must(epoll_ctl(fd, EPOLL_CTL_ADD, wires[i].fd, &want) == 0, "epoll_ctl");
    }
    return fd;
}
