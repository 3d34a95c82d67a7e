/* Dials: an outgoing connection that is made again whenever it is lost. */
#include "io/io_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_MIN_MS   200 /* halved by the dice at most: 100 ms … 5 s */
#define PAUSE_MAX_MS   5000
#define CONNECT_MAX_MS 3000 /* the kernel's own patience is two minutes */
#define SHAKE_CALL_MS  2500 /* less than the patience of most who wait for it: they are told why */
#define HURRY_MS       50   /* attempts are at least so far apart */

/* One try to connect. It has a handle of its own, because libuv lets go of a handle only later. */
struct attempt {
    uv_poll_t poll;
    struct dial *dial;
    int fd;
};

struct dial {
    uv_timer_t timer; /* until the next attempt, or for the patience of the present one */
    struct loop *loop;
    struct link link; /* in loop->dials */
    struct addr addr;
    const struct conn_ops *ops;
    void *context;
    struct io_limits *limits;
    struct attempt *attempt; /* at most one of these two */
    struct conn *conn;
    struct tls *tls; /* NULL: plain */
    char *host;      /* whose certificate is expected; NULL: that of the address */
    uint64_t pause_ms;
    uint64_t tried_ns; /* when the last attempt began */
    struct dice dice;
};

static void on_connected(uv_poll_t *poll, int status, int events);
static void on_timer(uv_timer_t *timer);
static void try_now(struct dial *dial);

enum err dial_open(struct loop *loop, const struct addr *addr, const struct conn_ops *ops,
                   void *context, struct io_limits *limits, struct dial **out)
{
    loop_here(loop);
    if (addr->ip_len != 4 && addr->ip_len != 16)
        return ERR_INVALID;
    struct dial *dial = calloc(1, sizeof *dial);
    if (!dial)
        return ERR_NO_MEMORY;
    (void)uv_timer_init(&loop->uv, &dial->timer);
    dial->timer.data = dial;
    dial->loop = loop;
    dial->addr = *addr;
    dial->ops = ops;
    dial->context = context;
    dial->limits = limits;
    dial->pause_ms = PAUSE_MIN_MS;
    dial->dice = dice_seeded(dice_seed_from_os());
    list_add_tail(&loop->dials, &dial->link);
    /* From the loop, so that `opened` never comes before dial_open has returned. */
    (void)uv_timer_start(&dial->timer, on_timer, 0, 0);
    *out = dial;
    return OK;
}

void dial_retarget(struct dial *dial, const struct addr *addr)
{
    loop_here(dial->loop);
    invariant(addr->ip_len == 4 || addr->ip_len == 16);
    dial->addr = *addr;
}

struct conn *dial_conn(struct dial *dial)
{
    loop_here(dial->loop);
    const struct conn *conn = dial->conn;
    bool of_use = conn && conn_is_open(conn) && (!conn->secure || conn->secure->was_on);
    return of_use ? dial->conn : NULL;
}

enum err dial_secure(struct dial *dial, struct tls *tls, const char *host)
{
    loop_here(dial->loop);
    invariant(!dial->tls);
    if (host && !(dial->host = strdup(host)))
        return ERR_NO_MEMORY;
    dial->tls = tls_hold(tls);
    return OK;
}

static void on_attempt_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Returns its socket. */
static int end_attempt(struct dial *dial)
{
    struct attempt *attempt = take(&dial->attempt);
    (void)uv_timer_stop(&dial->timer);
    uv_close((uv_handle_t *)&attempt->poll, on_attempt_closed);
    return take_fd(&attempt->fd);
}

static void on_dial_closed(uv_handle_t *handle)
{
    struct dial *dial = handle->data;
    tls_close(dial->tls);
    free(dial->host);
    free(dial);
}

void dial_close(struct dial *dial)
{
    if (!dial)
        return;
    loop_here(dial->loop);
    list_remove(&dial->link);
    if (dial->attempt)
        (void)close(end_attempt(dial));
    if (dial->conn) {
        dial->conn->dial = NULL;
        conn_close(dial->conn, "hung up");
    }
    uv_close((uv_handle_t *)&dial->timer, on_dial_closed);
}

void dial_close_link(struct link *link)
{
    dial_close(list_entry(link, struct dial, link));
}

/* ---- connecting ---- */

static void try_later(struct dial *dial)
{
    if (dial->loop->draining || dial->loop->closing)
        return;
    uint64_t half = dial->pause_ms / 2;
    uint64_t pause = half + dice_below(&dial->dice, half + 1);
    dial->pause_ms = dial->pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : dial->pause_ms * 2;
    (void)uv_timer_start(&dial->timer, on_timer, pause, 0);
}

static void attempt_failed(struct dial *dial, const char *reason)
{
    try_later(dial);
    if (dial->ops->failed) /* the last thing here: it may close the dial */
        dial->ops->failed(dial->context, reason);
}

void dial_hurry(struct dial *dial)
{
    loop_here(dial->loop);
    if (dial->attempt || dial->conn || dial->loop->draining || dial->loop->closing)
        return;
    uint64_t ago_ms = (clock_ns(dial->loop->clock) - dial->tried_ns) / 1000000;
    (void)uv_timer_start(&dial->timer, on_timer, ago_ms < HURRY_MS ? HURRY_MS - ago_ms : 0, 0);
}

void dial_connected(struct dial *dial)
{
    (void)uv_timer_stop(&dial->timer);
}

void dial_refused(struct dial *dial, const char *reason)
{
    dial->conn = NULL;
    attempt_failed(dial, reason);
}

/* Somebody who accepts and hangs up without a word is not called back eagerly. */
void dial_lost(struct dial *dial, bool heard)
{
    dial->conn = NULL;
    if (heard)
        dial->pause_ms = PAUSE_MIN_MS;
    try_later(dial);
}

static void on_timer(uv_timer_t *timer)
{
    struct dial *dial = timer->data;
    if (dial->attempt) {
        (void)close(end_attempt(dial));
        attempt_failed(dial, "no answer to the call");
    } else if (dial->conn) {
        conn_close(dial->conn, "no answer to the TLS handshake; perhaps it does not offer TLS");
    } else if (!dial->loop->draining && !dial->loop->closing) {
        try_now(dial);
    }
}

static void try_now(struct dial *dial)
{
    union sock name;
    socklen_t len = sock_from_addr(&dial->addr, &name);
    dial->tried_ns = clock_ns(dial->loop->clock);
    cleanup(close_at) int fd =
        socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    cleanup(free_at) struct attempt *attempt = calloc(1, sizeof *attempt);
    if (fd < 0 || !attempt || (connect(fd, &name.any, len) != 0 && errno != EINPROGRESS) ||
        uv_poll_init(&dial->loop->uv, &attempt->poll, fd) != 0) {
        attempt_failed(dial, strerror(errno));
        return;
    }
    attempt->poll.data = attempt;
    attempt->dial = dial;
    attempt->fd = take_fd(&fd);
    (void)uv_poll_start(&attempt->poll, UV_WRITABLE, on_connected);
    (void)uv_timer_start(&dial->timer, on_timer, CONNECT_MAX_MS, 0);
    dial->attempt = take(&attempt);
}

static void on_connected(uv_poll_t *poll, int status, int events)
{
    struct attempt *attempt = poll->data;
    struct dial *dial = attempt->dial;
    cleanup(close_at) int fd = end_attempt(dial);
    int failed = 0;
    socklen_t len = sizeof failed;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0 || failed || status < 0) {
        attempt_failed(dial, failed ? strerror(failed) : "the call broke off");
        return;
    }
    struct conn *conn = conn_create(fd, dial->ops, dial->context, dial->limits);
    if (conn)
        conn->peer = dial->addr;
    if (!conn || (dial->tls && secure_open(conn, dial->tls, dial->host, true))) {
        free(conn);
        attempt_failed(dial, err_text(ERR_NO_MEMORY));
        return;
    }
    sock_no_delay(fd);
    conn->fd = take_fd(&fd);
    conn->local = sock_name(conn->fd);
    conn->dial = dial;
    dial->conn = conn;
    if (dial->tls)
        (void)uv_timer_start(&dial->timer, on_timer, SHAKE_CALL_MS, 0);
    conn_adopt(dial->loop, conn);
}
