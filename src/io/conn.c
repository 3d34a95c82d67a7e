/* Connections: their life, their input, sending what was queued, and back-pressure. */
#include "io/io_int.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void on_io(uv_poll_t *poll, int status, int events);
static void on_closed(uv_handle_t *handle);
static void check_output(struct conn *conn);
static bool all_sent(const struct conn *conn);
static void start_lingering(struct conn *conn);
static void set_events(struct conn *conn);

/* ---- life ---- */

struct conn *conn_create(int fd, const struct conn_ops *ops, void *context,
                         struct io_limits *limits)
{
    static _Atomic uint64_t last_id;
    struct conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    conn->fd = fd;
    conn->holders = 1; /* the loop */
    conn->ops = ops;
    conn->context = context;
    conn->limits = limits;
    conn->id = atomic_fetch_add(&last_id, 1) + 1;
    return conn;
}

/* One that never came to life: nobody has heard of it. */
static void discard(struct conn *conn)
{
    (void)close(conn->fd);
    if (conn->counted)
        atomic_fetch_sub(&conn->limits->conns, 1);
    if (conn->dial)
        dial_lost(conn->dial, false);
    secure_free(conn);
    free(conn);
}

void conn_announce(struct conn *conn)
{
    if (conn->dial)
        dial_connected(conn->dial);
    conn->user = conn->ops->opened(conn->context, conn);
    conn->announced = conn->user != NULL;
    if (!conn->announced)
        conn_close(conn, "refused");
}

/* Loop: the connection's home, from here on. */
void conn_adopt(struct loop *loop, struct conn *conn)
{
    loop_here(loop);
    conn->loop = loop;
    if (loop->draining || loop->closing || uv_poll_init(&loop->uv, &conn->poll, conn->fd) != 0) {
        discard(conn);
        return;
    }
    conn->poll.data = conn;
    list_add_tail(&loop->conns, &conn->by_loop);
    loop_expect_idle(loop, conn->limits->idle_ms);
    conn->active_ns = loop->tick_ns;
    set_events(conn);
    if (conn->secure && conn->secure->calling)
        secure_call(conn);
    else
        conn_announce(conn);
}

void conn_close(struct conn *conn, const char *reason)
{
    if (conn->state == CONN_CLOSED)
        return;
    loop_here(conn->loop);
    conn->state = CONN_CLOSED;
    if (!conn->reason)
        conn->reason = reason;
    list_remove(&conn->by_dirty);
    list_remove(&conn->by_resumed);
    list_remove(&conn->by_linger);
    if (conn->lent)
        *conn->lent = NULL;
    out_clear(&conn->out, &conn->loop->pool);
    if (conn->secure)
        out_clear(&conn->secure->wire, &conn->loop->pool);
    /* The kept input stays: we may be inside `input`, which reads it. */
    uv_close((uv_handle_t *)&conn->poll, on_closed);
    (void)close(conn->fd);
    conn->fd = -1;
}

void conn_finish(struct conn *conn, const char *reason)
{
    if (conn->state != CONN_OPEN)
        return;
    loop_here(conn->loop);
    conn->state = CONN_FINISHING;
    conn->reason = reason;
    if (conn->secure && conn->secure->state < SECURE_ON)
        out_clear(&conn->out, &conn->loop->pool); /* nobody reads on, so it could never leave */
    list_remove(&conn->by_resumed);
    conn_mark_dirty(conn);
}

static const char *retired_reason(const struct conn *conn)
{
    return conn->eof ? "closed by the peer" : "draining";
}

void conn_retire(struct conn *conn)
{
    if (conn->state != CONN_OPEN)
        return;
    conn->retired = true;
    list_remove(&conn->by_resumed);
    if (conn->holders == 1)
        conn_finish(conn, retired_reason(conn));
    else
        conn_mark_dirty(conn);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    struct loop *loop = conn->loop;
    free(take(&conn->kept));
    list_remove(&conn->by_loop);
    list_add_tail(&loop->held, &conn->by_loop);
    if (conn->counted)
        atomic_fetch_sub(&conn->limits->conns, 1);
    if (conn->announced)
        conn->ops->closed(conn->user, conn, conn->reason);
    if (conn->dial && conn->secure && !conn->secure->was_on)
        dial_refused(conn->dial, conn->reason);
    else if (conn->dial)
        dial_lost(conn->dial, conn->heard);
    secure_free(conn); /* with the words of `reason`, perhaps */
    conn->reason = NULL;
    if (loop->draining && list_empty(&loop->conns))
        loop_wake(loop);
    conn_drop(conn);
}

void conn_hold(struct conn *conn)
{
    if (conn->loop)
        loop_here(conn->loop);
    invariant(conn->holders > 0);
    conn->holders++;
}

void conn_drop(struct conn *conn)
{
    if (conn->loop)
        loop_here(conn->loop);
    invariant(conn->holders > 0);
    if (--conn->holders == 1 && conn->retired)
        conn_finish(conn, retired_reason(conn)); /* the last answer that was owed */
    if (conn->holders > 0)
        return;
    list_remove(&conn->by_loop);
    free(conn);
}

bool conn_congested(const struct conn *conn)
{
    return conn->congested;
}

bool conn_is_open(const struct conn *conn)
{
    return conn->state == CONN_OPEN;
}

struct loop *conn_loop(const struct conn *conn)
{
    return conn->loop;
}

const struct addr *conn_peer(const struct conn *conn)
{
    return &conn->peer;
}

const struct addr *conn_local(const struct conn *conn)
{
    return &conn->local;
}

uint64_t conn_id(const struct conn *conn)
{
    return conn->id;
}

/* ---- input ---- */

void conn_need(struct conn *conn, size_t total)
{
    conn->need = total;
}

/* Returns how many bytes were used. */
static size_t offer(struct conn *conn, struct bytes in)
{
    if (conn->congested) {
        conn->left_over = true;
        return 0;
    }
    if (in.len < conn->need)
        return 0;
    conn->need = 0;
    size_t used = conn->ops->input(conn->user, conn, in);
    conn->loop->unsettled = true;
    invariant(used <= in.len);
    conn->left_over = used < in.len && conn->congested;
    return used;
}

/* Room in `kept` for `more` bytes than it holds: twice what has arrived, but not beyond the frame
 * that is being waited for. False: the connection was closed. */
static bool grow_kept(struct conn *conn, size_t more)
{
    size_t least = conn->kept_len + more;
    if (least <= conn->kept_size)
        return true;
    size_t size = 512;
    while (size < least || size < conn->kept_size * 2)
        size *= 2;
    if (conn->need > conn->kept_len && size > conn->need)
        size = conn->need > least ? conn->need : least;
    uint8_t *bigger = realloc(conn->kept, size);
    if (!bigger) {
        conn_close(conn, "out of memory");
        return false;
    }
    conn->kept = bigger;
    conn->kept_size = size;
    return true;
}

static void drop_kept(struct conn *conn)
{
    free(take(&conn->kept));
    conn->kept_len = conn->kept_size = 0;
}

/* What input has left for later is done at once: it points into what changes here. */
static void offer_kept(struct conn *conn)
{
    size_t used = offer(conn, bytes_of(conn->kept, conn->kept_len));
    loop_settle(conn->loop);
    if (conn->state != CONN_OPEN)
        return;
    conn->kept_len -= used;
    if (conn->kept_len == 0)
        drop_kept(conn);
    else if (used > 0)
        memmove(conn->kept, conn->kept + used, conn->kept_len);
}

/* Keeps what input did not use of the loop's buffer. */
static void keep(struct conn *conn, struct bytes rest)
{
    if (rest.len == 0) {
        if (conn->kept)
            drop_kept(conn);
        return;
    }
    conn->kept_len = 0;
    if (!grow_kept(conn, rest.len))
        return;
    memcpy(conn->kept, rest.at, rest.len);
    conn->kept_len = rest.len;
}

/* Java's server, and ours, hang up without a word on a plain peer where they demand TLS. */
static const char *gone_reason(const struct conn *conn, bool reset)
{
    if (conn->dial && !conn->heard && !conn->secure)
        return "the peer hung up without a word; perhaps it demands TLS";
    return reset ? "reset by the peer" : "closed by the peer";
}

/* The peer may have closed only its own half. What it is still owed leaves first: those who hold
 * the connection have an answer on the way. */
void conn_end_of_input(struct conn *conn)
{
    conn->eof = true;
    loop_settle(conn->loop);
    if (conn->state == CONN_OPEN && conn->holders > 1)
        conn_retire(conn);
    else if (conn->state == CONN_OPEN && !all_sent(conn))
        conn_finish(conn, gone_reason(conn, false)); /* answers of this turn still leave */
    else
        conn_close(conn, gone_reason(conn, false));
}

/* Returns 0 when there is nothing to look at. */
static size_t receive(struct conn *conn, uint8_t *into, size_t room)
{
    if (conn->secure && conn->state == CONN_OPEN && !secure_is_plain(conn))
        return secure_receive(conn, into, room);
    ssize_t n = recv(conn->fd, into, room, 0);
    if (n > 0) {
        conn->active_ns = conn->loop->tick_ns;
        conn->loop->turn_in += (size_t)n;
        conn->loop->breath_in += (size_t)n;
        conn->heard = true;
        return (size_t)n;
    }
    if (n == 0)
        conn_end_of_input(conn);
    else if (errno != EAGAIN && errno != EINTR)
        conn_close(conn, errno == ECONNRESET ? gone_reason(conn, true) : "read error");
    return 0;
}

/* Nothing kept, or little: the next bytes come behind it in the loop's buffer, and usually all of
 * it is used there. */
static bool read_through_loop(struct conn *conn)
{
    struct space space = loop_space(conn->loop);
    size_t front = conn->kept_len;
    if (front > 0)
        memcpy(space.at, conn->kept, front);
    size_t n = receive(conn, space.at + front, space.size - front);
    if (n == 0)
        return false;
    struct bytes all = {space.at, front + n};
    size_t used = offer(conn, all);
    if (conn->loop->settle)
        conn->loop->in_used = (size_t)(space.at - conn->loop->in) + used;
    if (conn->state == CONN_OPEN)
        keep(conn, bytes_from(all, used));
    return true;
}

/* A long frame is on its way: its bytes go straight to where they will be used. */
static bool read_into_kept(struct conn *conn)
{
    if (conn->need <= conn->kept_len && conn->kept_len >= LOOP_IN_SIZE) {
        conn_close(conn, "input without an end");
        return false;
    }
    if (conn->kept_len == conn->kept_size && !grow_kept(conn, 1))
        return false;
    size_t n = receive(conn, conn->kept + conn->kept_len, conn->kept_size - conn->kept_len);
    if (n == 0)
        return false;
    conn->kept_len += n;
    offer_kept(conn);
    return true;
}

static bool has_more(const struct conn *conn)
{
    return conn->secure && conn->secure->more;
}

/* Another look without an event: its turn comes after everybody else's. */
static void resume_later(struct conn *conn)
{
    if (conn->state != CONN_OPEN || conn->retired || conn->congested ||
        link_in_list(&conn->by_resumed))
        return;
    list_add_tail(&conn->loop->resumed, &conn->by_resumed);
    loop_wake(conn->loop);
}

/* Returns false when there was nothing to read or it is not the time to. */
static bool on_readable(struct conn *conn)
{
    if (conn->state == CONN_LINGERING) {
        struct space unread = loop_space(conn->loop);
        return receive(conn, unread.at, unread.size) > 0;
    }
    if (conn->state != CONN_OPEN || conn->retired || conn->congested || conn->left_over)
        return false; /* events were set before that; the end of the turn puts them right */
    bool some = conn->kept_len <= FRONT_MAX ? read_through_loop(conn) : read_into_kept(conn);
    if (has_more(conn))
        resume_later(conn);
    return some;
}

/* Loop: home. Goes on with input that was left because of congestion, or with what TLS holds. */
void conn_resume(struct conn *conn)
{
    if (conn->state != CONN_OPEN)
        return;
    if (!conn->left_over) {
        (void)on_readable(conn);
        return;
    }
    conn->left_over = false;
    offer_kept(conn);
    if (has_more(conn))
        resume_later(conn);
    conn_mark_dirty(conn); /* to read again, if that is the end of it */
}

bool conn_lend(struct conn *conn, struct conn **to)
{
    here(conn->loop);
    if (conn->lent || conn->state != CONN_OPEN || conn->retired || conn->congested ||
        link_in_list(&conn->by_resumed))
        return false;
    *to = conn;
    conn->lent = to;
    set_events(conn);
    return true;
}

void conn_take_back(struct conn *conn, bool readable)
{
    conn->lent = NULL;
    conn_mark_dirty(conn); /* to be watched again, unless it is lent again at once */
    if (readable)
        (void)on_readable(conn);
}

/* What a peer sent before its reset can still be read, and may be a one-way request. */
static void on_reset(struct conn *conn)
{
    conn->events = 0; /* libuv has stopped watching */
    while (conn->state == CONN_OPEN && on_readable(conn))
        continue;
    conn_close(conn, gone_reason(conn, true));
}

static void on_io(uv_poll_t *poll, int status, int events)
{
    struct conn *conn = poll->data;
    struct loop *loop = conn->loop;
    if (status < 0) {
        on_reset(conn);
        return;
    }
    if (events & UV_WRITABLE) {
        conn->blocked = false;
        conn_mark_dirty(conn);
    }
    if (events & UV_READABLE)
        (void)on_readable(conn);
    if (loop->turn_in >= TURN_IN_MAX)
        loop_end_turn(loop);
    else if (loop->breath_in >= BREATH_IN_MAX)
        loop_breathe(loop);
}

/* ---- output ---- */

void conn_mark_dirty(struct conn *conn)
{
    if (conn->state != CONN_CLOSED && !link_in_list(&conn->by_dirty))
        list_add_tail(&conn->loop->dirty, &conn->by_dirty);
}

uint8_t *conn_space(struct conn *conn, size_t n)
{
    if (conn->state != CONN_OPEN)
        return NULL;
    here(conn->loop);
    uint8_t *at = out_space(&conn->out, &conn->loop->pool, n);
    if (!at)
        conn_close(conn, "out of memory");
    return at;
}

void conn_used(struct conn *conn, size_t n)
{
    if (conn->state != CONN_OPEN)
        return;
    out_used(&conn->out, &conn->loop->pool, n);
    check_output(conn);
}

void conn_write(struct conn *conn, struct bytes copy)
{
    uint8_t *at = conn_space(conn, copy.len);
    if (!at)
        return;
    if (copy.len > 0)
        memcpy(at, copy.at, copy.len);
    conn_used(conn, copy.len);
}

void conn_write_slice(struct conn *conn, struct bytes slice, struct counted *owner)
{
    if (conn->state != CONN_OPEN) {
        counted_drop(owner);
        return;
    }
    loop_here(conn->loop);
    if (out_slice(&conn->out, &conn->loop->pool, slice, owner) != OK) {
        conn_close(conn, "out of memory");
        return;
    }
    check_output(conn);
}

static void check_output(struct conn *conn)
{
    size_t queued = conn->out.queued;
    if (queued > conn->limits->out_max) {
        conn_close(conn, "reads too slowly");
        return;
    }
    if (queued > conn->limits->out_high)
        conn->congested = true;
    conn_mark_dirty(conn);
}

/* One system call, as a rule. Returns false when the connection was closed. */
static bool send_queued(struct conn *conn, struct out *out)
{
    while (out->first && !conn->blocked) {
        struct iovec parts[OUT_IOVECS];
        size_t total;
        int n = out_gather(out, parts, OUT_IOVECS, &total);
        struct msghdr msg = {.msg_iov = parts, .msg_iovlen = (size_t)n};
        ssize_t sent = n == 1 ? send(conn->fd, parts[0].iov_base, total, MSG_NOSIGNAL)
                              : sendmsg(conn->fd, &msg, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != ENOBUFS) {
            bool reset = errno == EPIPE || errno == ECONNRESET;
            conn_close(conn, reset ? "reset by the peer" : "write error");
            return false;
        }
        if (sent > 0) {
            conn->active_ns = conn->loop->tick_ns;
            out_sent(out, &conn->loop->pool, (size_t)sent);
        }
        conn->blocked = sent < 0 || (size_t)sent < total;
    }
    return true;
}

/* The same for TLS, where what leaves is in another queue than what was written. */
static bool send_sealed(struct conn *conn)
{
    struct out *wire = &conn->secure->wire;
    do {
        if (!secure_seal(conn) || !send_queued(conn, wire))
            return false;
    } while (conn->out.first && !conn->blocked && conn->secure->state == SECURE_ON);
    if (!wire->first)
        out_clear(wire, &conn->loop->pool);
    return true;
}

static bool all_sent(const struct conn *conn)
{
    return !conn->out.first && !(conn->secure && conn->secure->wire.first);
}

/* Loop: home, at the end of a turn. */
void conn_flush(struct conn *conn)
{
    if (conn->secure ? !send_sealed(conn) : !send_queued(conn, &conn->out))
        return;
    if (!conn->out.first)
        out_clear(&conn->out, &conn->loop->pool); /* also space that was taken and not used */
    if (conn->congested && conn->out.queued <= conn->limits->out_high / 2) {
        conn->congested = false;
        if (conn->left_over || has_more(conn))
            resume_later(conn);
    }
    if (conn->state == CONN_FINISHING && all_sent(conn)) {
        if (conn->eof)
            conn_close(conn, conn->reason);
        else
            start_lingering(conn);
    }
    if (conn->state != CONN_CLOSED)
        set_events(conn);
}

/* Closing a socket with unread input makes the kernel throw away what it has not sent yet. So we
 * send our end, and read until the peer's. */
static void start_lingering(struct conn *conn)
{
    struct loop *loop = conn->loop;
    if (shutdown(conn->fd, SHUT_WR) != 0) {
        conn_close(conn, conn->reason);
        return;
    }
    conn->state = CONN_LINGERING;
    conn->linger_until_ms = uv_now(&loop->uv) + LINGER_MS;
    list_add_tail(&loop->lingering, &conn->by_linger);
    loop_expect_linger(loop);
}

/* Asks libuv only when something changes: each change costs system calls. */
static void set_events(struct conn *conn)
{
    bool held_up = conn->retired || (conn->congested && conn->blocked);
    bool reading =
        conn->state == CONN_LINGERING || (conn->state == CONN_OPEN && !held_up && !conn->lent);
    int events = (reading ? UV_READABLE : 0) | (conn->blocked ? UV_WRITABLE : 0);
    invariant(events != 0 || conn->retired || conn->lent);
    if (events == conn->events)
        return;
    conn->events = events;
    invariant((events ? uv_poll_start(&conn->poll, events, on_io) : uv_poll_stop(&conn->poll)) ==
              0);
}
