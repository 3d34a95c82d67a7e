/* wire.c - a socket with its buffers. */
#include "load/raw_int.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- opening ---- */

static enum err address_find(const char *address, struct addrinfo **out, struct fault *why)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *colon = strrchr(address, ':');
    char host[256];
    size_t n = colon ? (size_t)(colon - address) : sizeof host;
    if (n >= sizeof host)
        return fault_set(why, ERR_INVALID, "%s is no host:port", address);
    bool bracketed = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    (void)snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n),
                   bracketed ? address + 1 : address);
    int code = getaddrinfo(host, colon + 1, &hints, out);
    return code ? fault_set(why, ERR_CLOSED, "%s: %s", address, gai_strerror(code)) : OK;
}

static bool connected(int fd, const struct addrinfo *to, int timeout_ms)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return true;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (errno != EINPROGRESS || poll(&ready, 1, timeout_ms) != 1 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return false;
    errno = error;
    return error == 0;
}

enum err wire_open(struct wire *w, const char *address, size_t in_size, size_t out_size,
                   int timeout_ms, struct fault *why)
{
    struct addrinfo *to = NULL;
    enum err err = address_find(address, &to, why);
    if (err)
        return err;
    *w = (struct wire){.fd = -1,
                       .in = malloc(in_size),
                       .out = malloc(out_size),
                       .in_size = in_size,
                       .out_size = out_size,
                       .spare = buf_upto(FRAME_MAX)};
    int on = 1;
    w->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!w->in || !w->out)
        err = ERR_NO_MEMORY;
    else if (w->fd < 0 || !connected(w->fd, to, timeout_ms)) {
        (void)fault_os(why, "connecting to %s", address);
        err = ERR_CLOSED;
    } else
        (void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    freeaddrinfo(to);
    if (err)
        wire_close(w);
    return err;
}

void wire_close(struct wire *w)
{
    if (w->fd >= 0)
        (void)close(w->fd);
    free(w->in);
    free(w->out);
    buf_clear(&w->spare);
    *w = (struct wire){.fd = -1, .dead = true};
}

static void wire_die(struct wire *w, const char *what, int error)
{
    if (!w->dead)
        (void)snprintf(w->reason, sizeof w->reason, "%s%s%s", what, error ? ": " : "",
                       error ? strerror(error) : "");
    w->dead = true;
}

/* ---- writing ---- */

uint8_t *wire_room(struct wire *w, size_t n)
{
    if (w->dead)
        return NULL;
    if (w->out_size - w->out_end < n && w->out_at > 0) {
        memmove(w->out, w->out + w->out_at, w->out_end - w->out_at);
        w->out_end -= w->out_at;
        w->out_at = 0;
    }
    return w->out_size - w->out_end < n ? NULL : w->out + w->out_end;
}

void wire_put(struct wire *w, size_t n)
{
    w->out_end += n;
    invariant(w->out_end <= w->out_size);
}

void wire_flush(struct wire *w)
{
    while (!w->dead && w->out_at < w->out_end) {
        ssize_t n = send(w->fd, w->out + w->out_at, w->out_end - w->out_at, MSG_NOSIGNAL);
        if (n > 0)
            w->out_at += (size_t)n;
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            wire_die(w, "writing to a broker", errno);
    }
    w->out_at = w->out_end = 0;
}

bool wire_waits(const struct wire *w)
{
    return !w->dead && w->out_at < w->out_end;
}

/* ---- reading ---- */

bool wire_receive(struct wire *w)
{
    if (w->dead)
        return false;
    if (w->in_at > 0) {
        memmove(w->in, w->in + w->in_at, w->in_end - w->in_at);
        w->in_end -= w->in_at;
        w->in_at = 0;
    }
    if (w->in_end == w->in_size) { /* one answer fills it: it grows, up to the largest there is */
        size_t size = w->in_size * 2 < FRAME_MAX ? w->in_size * 2 : FRAME_MAX;
        uint8_t *bigger = size > w->in_size ? realloc(w->in, size) : NULL;
        if (!bigger) {
            wire_die(w, "an answer is too big", 0);
            return false;
        }
        w->in = bigger;
        w->in_size = size;
    }
    ssize_t n = recv(w->fd, w->in + w->in_end, w->in_size - w->in_end, 0);
    if (n > 0) {
        w->in_end += (size_t)n;
        return true;
    }
    if (n == 0)
        wire_die(w, "the broker closed the connection", 0);
    else if (errno != EAGAIN && errno != EINTR)
        wire_die(w, "reading from a broker", errno);
    return false;
}

bool wire_next(struct wire *w, struct wire_answer *out)
{
    struct frame frame;
    size_t need;
    struct bytes rest = bytes_of(w->in + w->in_at, w->in_end - w->in_at);
    if (w->dead || rest.len == 0)
        return false;
    enum err err = frame_next(rest, &w->spare, &frame, &out->head, &need);
    if (err == ERR_INCOMPLETE)
        return false;
    if (err) {
        wire_die(w, "a broker's answer cannot be read", 0);
        return false;
    }
    out->body = frame.body;
    w->in_at += frame.size;
    return true;
}
