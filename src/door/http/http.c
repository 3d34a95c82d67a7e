/* http.c - connections, bodies and answers, through libmicrohttpd. */
#include "door/http/http.h"

#include "base/clock.h"
#include "base/dice.h"
#include "base/room.h"
#include "door/http/http_int.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS     256
#define IDLE_S          60
#define HEADERS_MOST    (32u << 10)
#define EXCHANGE_MEMORY (4u << 20) /* decoded: a batch with long keys */
#define ANSWER_MOST     (8u << 20) /* a batch of results, a byte of which is \u0001 in JSON */
#define STOP_MS         1000       /* for clients that are slow to take their answers */
#define SCOPE_MOST      255

struct http {
    struct http_options options;
    struct addr addr;
    struct MHD_Daemon *daemon;
    struct ledger_desk *desk; /* the thread's own */
    struct dice dice;
    atomic_bool closing; /* the ledger is not asked any more; set in the room */
    struct room room;    /* guards what follows */
    size_t waiting;      /* exchanges that have asked it and do not know their answer yet */
    size_t unsent;       /* exchanges that have asked it and whose answer is not with the client */
};

/* Only libmicrohttpd's thread knows it: who has begun to wait is called again to answer. */
enum stage { STAGE_READS, STAGE_ANSWERS, STAGE_WAITS };

/* One request and its answer. */
struct exchange {
    struct http *http;
    struct MHD_Connection *conn;
    enum stage stage;
    bool too_big;
    bool asked; /* the ledger: it counts in http->unsent */
    struct buf body, answer;
    struct arena arena;
    unsigned status;
    int64_t retry_s;
    struct store_wait wait;
};

/* ---- answers ---- */

static enum MHD_Result answer_send(struct exchange *x)
{
    buf_add_u8(&x->answer, '\n'); /* for people with curl */
    struct MHD_Response *r =
        MHD_create_response_from_buffer(x->answer.len, x->answer.at, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO; /* the connection is closed */
    char seconds[24];
    (void)snprintf(seconds, sizeof seconds, "%lld", (long long)x->retry_s);
    enum MHD_Result ok = MHD_add_response_header(r, "Content-Type", "application/json");
    if (ok == MHD_YES && x->retry_s > 0)
        ok = MHD_add_response_header(r, "Retry-After", seconds);
    if (ok == MHD_YES && x->http->closing)
        ok = MHD_add_response_header(r, "Connection", "close");
    if (ok == MHD_YES && x->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        ok = MHD_add_response_header(r, "Allow", "GET, PUT, POST, DELETE");
    if (ok == MHD_YES)
        ok = MHD_queue_response(x->conn, x->status, r);
    MHD_destroy_response(r);
    return ok;
}

static void refuse(struct exchange *x, unsigned status, const char *sentence)
{
    x->answer.len = 0;
    x->answer.err = OK;
    x->status = status;
    x->retry_s = status == MHD_HTTP_SERVICE_UNAVAILABLE ? 1 : 0;
    refusal_write(&x->answer, sentence);
}

static unsigned status_of(enum err err)
{
    switch (err) {
    case ERR_NOT_FOUND:
    case ERR_DENIED: /* no ledger is kept here */
        return MHD_HTTP_NOT_FOUND;
    case ERR_UNSUPPORTED:
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    case ERR_TOO_BIG:
        return MHD_HTTP_CONTENT_TOO_LARGE;
    case ERR_MALFORMED:
    case ERR_INVALID:
        return MHD_HTTP_BAD_REQUEST;
    default:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}

/* ---- the ledger ---- */

/* False: it is too late for that. */
static bool ask_begins(struct exchange *x)
{
    struct http *http = x->http;
    room_enter(&http->room);
    x->asked = !http->closing;
    http->waiting += x->asked;
    http->unsent += x->asked;
    room_leave(&http->room);
    return x->asked;
}

/* Its answer is known. */
static void ask_ends(struct http *http)
{
    room_enter(&http->room);
    http->waiting--;
    room_tell(&http->room);
    room_leave(&http->room);
}

/* On the thread that has confirmed the log, or given up. The exchange is libmicrohttpd's again as
 * soon as it is resumed. */
static void wait_done(struct store_wait *wait, enum err err)
{
    struct exchange *x = list_entry(wait, struct exchange, wait);
    struct http *http = x->http;
    if (err) /* it may be on the disk all the same: asked again, it tells */
        refuse(x, MHD_HTTP_GATEWAY_TIMEOUT,
               "the broker cannot tell whether this is safe on its disk; ask again");
    MHD_resume_connection(x->conn);
    ask_ends(http);
}

/* Told only when the log is safe so far. */
static void answer_when(struct exchange *x, uint64_t end)
{
    struct http *http = x->http;
    if (end == 0 || store_confirmed(http->options.store) >= end) {
        ask_ends(http);
        return;
    }
    x->stage = STAGE_WAITS;
    x->wait = (struct store_wait){.position = end, .done = wait_done};
    MHD_suspend_connection(x->conn);
    if (store_await(http->options.store, &x->wait))
        wait_done(&x->wait, OK);
}

/* ---- a request ---- */

static uint64_t token_make(void *user)
{
    struct http *http = user;
    uint64_t token;
    do
        token = dice_next(&http->dice);
    while (token == 0);
    return token;
}

static void ledger_ask(struct exchange *x, struct asked *asked)
{
    struct http *http = x->http;
    struct ledger_ask ask = {
        .group = asked->group, .ops = asked->ops, .n = asked->n, .arena = &x->arena};
    struct ledger_told told = {0};
    if (!ask_begins(x)) {
        refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "the broker is stopping");
        return;
    }
    broker_ledger(http->options.broker, http->desk, &ask, 1, &told);
    if (ask.err) {
        refuse(x, status_of(ask.err), ask.why.text[0] ? ask.why.text : err_text(ask.err));
        ask_ends(http);
        return;
    }
    x->status = asked_write(asked, &x->answer, &x->retry_s);
    if (x->answer.err)
        refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, err_text(x->answer.err));
    answer_when(x, told.end);
}

/* What stands behind a ? or a raw zero byte is not in `url`: it would be another key. Of zero bytes
 * libmicrohttpd tells nothing, but it reads the line where it stands: the version begins behind the
 * end of a path that is whole. */
static bool path_is_cut(struct MHD_Connection *conn, const char *url, const char *version)
{
    size_t whole = strlen(url) + 1, gap = (uintptr_t)version - (uintptr_t)url;
    return (gap > whole && gap < HEADERS_MOST) ||
           MHD_get_connection_values(conn, MHD_GET_ARGUMENT_KIND, NULL, NULL) > 0;
}

static void exchange_run(struct exchange *x, const char *url, const char *method,
                         const char *version)
{
    struct path path;
    struct asked asked;
    struct fault why = {0};
    x->stage = STAGE_ANSWERS;
    if (x->too_big || x->body.err) {
        refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long");
        return;
    }
    if (path_is_cut(x->conn, url, version)) {
        refuse(x, MHD_HTTP_BAD_REQUEST,
               "the path has a ? or a zero byte: a ? of a key is %3F, and there are no parameters");
        return;
    }
    enum err err = path_read(url, &x->arena, &path);
    if (!err && path.scope.len > SCOPE_MOST)
        err = ERR_TOO_BIG;
    if (err) {
        refuse(x, status_of(err),
               err == ERR_NOT_FOUND   ? "there is /once/SCOPE and /once/SCOPE/KEY here"
               : err == ERR_MALFORMED ? "the path has a wrong escape"
                                      : "the scope, or the key, is too long");
        return;
    }
    err = asked_read(method, &path, buf_bytes(&x->body), token_make, x->http, &x->arena, &asked,
                     &why);
    if (err)
        refuse(x, status_of(err), why.text[0] ? why.text : err_text(err));
    else
        ledger_ask(x, &asked);
}

static struct exchange *exchange_make(struct http *http, struct MHD_Connection *conn)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->http = http;
    x->conn = conn;
    x->body = buf_upto(BODY_MOST);
    x->answer = buf_upto(ANSWER_MOST);
    arena_init(&x->arena, EXCHANGE_MEMORY);
    return x;
}

/* Called for the headers, for each piece of the body, at its end, and after a wait. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *piece,
                                  size_t *piece_size, void **state)
{
    struct exchange *x = *state;
    if (!x) {
        x = exchange_make(user, conn);
        *state = x;
        return x ? MHD_YES : MHD_NO;
    }
    if (*piece_size > 0) { /* what is too long is read to its end, and kept no more */
        x->too_big |= x->body.len + *piece_size > BODY_MOST;
        if (!x->too_big)
            buf_add(&x->body, bytes_of(piece, *piece_size));
        *piece_size = 0;
        return MHD_YES;
    }
    if (x->stage == STAGE_READS)
        exchange_run(x, url, method, version);
    else
        x->stage = STAGE_ANSWERS; /* the wait is over */
    return x->stage == STAGE_ANSWERS ? answer_send(x) : MHD_YES;
}

static void on_end(void *user, struct MHD_Connection *conn, void **state,
                   enum MHD_RequestTerminationCode how)
{
    (void)conn;
    (void)how;
    struct http *http = user;
    struct exchange *x = *state;
    if (!x)
        return;
    room_enter(&http->room);
    http->unsent -= x->asked;
    room_tell(&http->room);
    room_leave(&http->room);
    buf_clear(&x->body);
    buf_clear(&x->answer);
    arena_clear(&x->arena);
    free(x);
    *state = NULL;
}

/* Escapes are read by path.c, which knows what a slash means. */
static size_t on_escape(void *user, struct MHD_Connection *conn, char *text)
{
    (void)user;
    (void)conn;
    return strlen(text);
}

/* ---- opening ---- */

static enum err listen_at(const struct addr *addr, int *out, struct addr *bound, struct fault *why)
{
    struct sockaddr_storage sa;
    socklen_t len = addr_to_sockaddr(addr, &sa);
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
              bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, SOMAXCONN) == 0 &&
              getsockname(fd, (struct sockaddr *)&sa, &(socklen_t){sizeof sa}) == 0;
    if (!ok) {
        enum err err = fault_os(why, "cannot listen for HTTP");
        if (fd >= 0)
            (void)close(fd);
        return err;
    }
    *bound = addr_from_sockaddr((struct sockaddr *)&sa);
    *out = fd;
    return OK;
}

enum err http_open(const struct http_options *options, struct http **out, struct fault *why)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        return ERR_NO_MEMORY;
    http->options = *options;
    http->dice = dice_seeded(dice_seed_from_os());
    room_init(&http->room, "http", ROOM_LEAF);
    int fd = -1;
    enum err err = ledger_desk_open(&http->desk);
    if (!err)
        err = listen_at(&options->addr, &fd, &http->addr, why);
    if (!err) {
        unsigned most = options->max_connections ? options->max_connections : CONNECTIONS;
        http->daemon = MHD_start_daemon(
            MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request,
            http, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, most,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)HEADERS_MOST, MHD_OPTION_NOTIFY_COMPLETED, on_end, http,
            MHD_OPTION_UNESCAPE_CALLBACK, on_escape, http, MHD_OPTION_END);
        if (!http->daemon) {
            (void)close(fd);
            err = fault_set(why, ERR_IO, "cannot serve HTTP");
        }
    }
    if (err) {
        http_close(http);
        return err;
    }
    *out = http;
    return OK;
}

const struct addr *http_addr(const struct http *http)
{
    return &http->addr;
}

/* Nothing is suspended any more when this returns, which libmicrohttpd wants before its end. */
static void answers_wait(struct http *http)
{
    room_enter(&http->room);
    http->closing = true;
    while (http->waiting > 0)
        room_wait(&http->room, -1);
    uint64_t until_ns = clock_ns(clock_system()) + STOP_MS * UINT64_C(1000000), now_ns;
    while (http->unsent > 0 && (now_ns = clock_ns(clock_system())) < until_ns)
        room_wait_ns(&http->room, until_ns - now_ns);
    room_leave(&http->room);
}

void http_close(struct http *http)
{
    if (!http)
        return;
    if (http->daemon) {
        int listener = MHD_quiesce_daemon(http->daemon);
        answers_wait(http);
        MHD_stop_daemon(http->daemon);
        if (listener >= 0)
            (void)close(listener);
    }
    ledger_desk_close(http->desk);
    room_clear(&http->room);
    free(http);
}
