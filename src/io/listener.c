/* Listeners: binding, accepting on the first loop, dealing connections out to all of them. */
#include "io/io_int.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BACKLOG    1024
#define ACCEPT_MAX 64  /* in one turn: a storm of connections must not starve the old ones */
#define REST_MS    100 /* how long accepting rests when there is no room for another connection */

struct listener {
    uv_poll_t poll;
    uv_timer_t rest;
    struct link link; /* in loops[0]->listeners */
    int fd;
    struct addr addr;
    const struct conn_ops *ops;
    void *context;
    struct io_limits *limits;
    struct tls *tls; /* NULL: not offered */
    bool enforcing;
    struct log_limit refused, exhausted;
    unsigned open_handles; /* freed when libuv has let go of both */
    size_t next, n_loops;
    struct loop *loops[];
};

static void on_connection(uv_poll_t *poll, int status, int events);

static enum err listen_fault(const struct addr *addr, struct fault *why)
{
    char text[ADDR_TEXT_MAX];
    addr_format(addr, text);
    bool in_use = errno == EADDRINUSE;
    enum err err = fault_os(why, "listening on %s", text);
    return in_use ? ERR_IN_USE : err;
}

static enum err bind_at(const struct addr *addr, int *out, struct fault *why)
{
    char text[ADDR_TEXT_MAX];
    addr_format(addr, text);
    if (addr->ip_len != 4 && addr->ip_len != 16)
        return fault_set(why, ERR_INVALID, "listening on %s: not an address", text);

    union sock name;
    socklen_t len = sock_from_addr(addr, &name);
    cleanup(close_at) int fd =
        socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fault_os(why, "listening on %s", text);
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &name.any, len) != 0)
        return listen_fault(addr, why);
    *out = take_fd(&fd);
    return OK;
}

enum err listener_open(struct loop *const *loops, size_t n_loops, const struct addr *addr,
                       struct io_limits *limits, struct listener **out, struct fault *why)
{
    invariant(n_loops > 0);
    struct loop *home = loops[0];
    loop_here(home);
    cleanup(free_at) struct listener *listener =
        calloc(1, sizeof *listener + n_loops * sizeof listener->loops[0]);
    if (!listener)
        return fault_set(why, ERR_NO_MEMORY, "making a listener");
    cleanup(close_at) int fd = -1;
    enum err err = bind_at(addr, &fd, why);
    if (err)
        return err;
    int failed = uv_poll_init(&home->uv, &listener->poll, fd);
    if (failed)
        return fault_set(why, ERR_IO, "watching a listener: %s", uv_strerror(failed));

    (void)uv_timer_init(&home->uv, &listener->rest);
    listener->poll.data = listener->rest.data = listener;
    listener->open_handles = 2;
    listener->addr = sock_name(fd);
    listener->fd = take_fd(&fd);
    listener->limits = limits;
    listener->n_loops = n_loops;
    memcpy(listener->loops, loops, n_loops * sizeof loops[0]);
    list_add_tail(&home->listeners, &listener->link);
    *out = take(&listener);
    return OK;
}

enum err listener_start(struct listener *listener, const struct conn_ops *ops, void *context,
                        struct fault *why)
{
    loop_here(listener->loops[0]);
    listener->ops = ops;
    listener->context = context;
    if (listen(listener->fd, BACKLOG) != 0)
        return listen_fault(&listener->addr, why);
    int failed = uv_poll_start(&listener->poll, UV_READABLE, on_connection);
    if (failed)
        return fault_set(why, ERR_IO, "watching a listener: %s", uv_strerror(failed));
    return OK;
}

const struct addr *listener_addr(const struct listener *listener)
{
    return &listener->addr;
}

static void on_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    if (--listener->open_handles > 0)
        return;
    tls_close(listener->tls);
    free(listener);
}

void listener_secure(struct listener *listener, struct tls *tls, bool enforcing)
{
    loop_here(listener->loops[0]);
    tls_close(listener->tls);
    listener->tls = tls_hold(tls);
    listener->enforcing = enforcing;
}

void listener_close(struct listener *listener)
{
    if (!listener)
        return;
    loop_here(listener->loops[0]);
    list_remove(&listener->link);
    uv_close((uv_handle_t *)&listener->poll, on_closed);
    uv_close((uv_handle_t *)&listener->rest, on_closed);
    (void)close(listener->fd);
}

void listener_close_link(struct link *link)
{
    listener_close(list_entry(link, struct listener, link));
}

/* ---- accepting ---- */

/* Loop: the one the connection was dealt to. */
static void on_arrival(struct post *post)
{
    struct conn *conn = list_entry(post, struct conn, arrival);
    conn_adopt(conn->loop, conn);
}

static void on_rested(uv_timer_t *rest)
{
    struct listener *listener = rest->data;
    (void)uv_poll_start(&listener->poll, UV_READABLE, on_connection);
}

/* Whoever waits stays in the backlog, and would wake us without end. */
static void rest_a_while(struct listener *listener)
{
    (void)uv_poll_stop(&listener->poll);
    (void)uv_timer_start(&listener->rest, on_rested, REST_MS, 0);
}

static bool offer_tls(const struct listener *listener, struct conn *conn)
{
    if (!listener->tls)
        return true;
    if (secure_open(conn, listener->tls, NULL, false))
        return false;
    conn->secure->enforcing = listener->enforcing;
    return true;
}

static void deal_out(struct listener *listener, int fd, const union sock *peer)
{
    struct io_limits *limits = listener->limits;
    if (atomic_fetch_add(&limits->conns, 1) >= limits->max_conns) {
        atomic_fetch_sub(&limits->conns, 1);
        (void)close(fd);
        log_limited(listener->loops[0]->log, &listener->refused, LOG_WARN,
                    "connection refused reason=\"too many connections\" max=%u", limits->max_conns);
        /* The official Java client dials again at once, thousands of times a second. */
        rest_a_while(listener);
        return;
    }
    struct conn *conn = conn_create(fd, listener->ops, listener->context, limits);
    if (conn)
        conn->peer = addr_from_sockaddr(&peer->any);
    if (!conn || !offer_tls(listener, conn)) {
        atomic_fetch_sub(&limits->conns, 1);
        (void)close(fd);
        free(conn);
        return;
    }
    sock_no_delay(fd);
    conn->counted = true;
    conn->local = sock_name(fd);
    conn->loop = listener->loops[listener->next];
    listener->next = (listener->next + 1) % listener->n_loops;
    if (conn->loop == listener->loops[0]) {
        conn_adopt(conn->loop, conn);
    } else {
        conn->arrival.run = on_arrival;
        loop_post(conn->loop, &conn->arrival);
    }
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    struct loop *home = listener->loops[0];
    for (int i = 0; i < ACCEPT_MAX && !home->closing; i++) {
        union sock peer = {0};
        socklen_t len = sizeof peer;
        int fd = accept4(listener->fd, &peer.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            deal_out(listener, fd, &peer);
            if (!uv_is_active((uv_handle_t *)poll))
                return; /* resting, or `opened` has closed the listener */
            continue;
        }
        int os = errno;
        if (os == EINTR || os == ECONNABORTED || os == EPROTO)
            continue; /* that one went away while it waited */
        if (os != EAGAIN) {
            log_limited(home->log, &listener->exhausted, LOG_ERROR,
                        "accepting paused reason=\"%s\" retry_ms=%d",
                        uv_strerror(uv_translate_sys_error(os)), REST_MS);
            rest_a_while(listener);
        }
        return;
    }
}
