#include "daemon/register.h"
#include "base/crc32.h"
#include "remoting/bodies.h"
#include "remoting/codes.h"
#include "remoting/remoting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_ROOM 8192
#define FIRST_LOOK_MS                                                                              \
    3000 /* so long a name server may be out of reach before it is worth a line                    \
          */
#define BODY_MAX     (FRAME_MAX - HEAD_ROOM)
#define ROUTE_OPAQUE (1 << 24) /* questions for routes have numbers from here on */
#define ROUTE_MEMORY (32u << 20)
#define LOOKUP_MS    1000 /* how often names of servers out of reach are seen to */

/* One name server. */
struct server {
    struct registrar *registrar;
    struct dial *dial;
    struct conn *conn; /* NULL while not connected */
    struct addr addr;
    const char *host;      /* its name; empty: none */
    struct lookup *lookup; /* under way, or NULL */
    bool registered;       /* by the present connection */
    char why[400];         /* the last attempt to connect has come to nothing */
    struct log_limit lost, refused;
};

struct registrar {
    struct registrar_options options;
    struct timer *timer, *lookup_timer;
    int32_t next_opaque;
    struct buf spare; /* what one header at a time needs */
    struct post changed, watched;
    atomic_bool changed_posted, watch_posted;
    bool leaving;
    struct log_limit trouble;
    size_t n;
    struct server servers[];
};

/* Where clients that ask this name server are to find us. */
static struct addr advertised_to(const struct server *s)
{
    const struct registrar_options *o = &s->registrar->options;
    bool ours = o->first_is_ours && s == s->registrar->servers;
    struct addr told = *conn_local(s->conn);
    if (!o->by_connection || ours || told.ip_len == 0)
        return o->advertised;
    told.port = o->advertised.port;
    return told;
}

static void put_identity(struct frame_out *f, const struct server *s)
{
    const struct registrar_options *o = &s->registrar->options;
    char addr[ADDR_TEXT_MAX];
    struct addr told = advertised_to(s);
    addr_format(&told, addr);
    frame_put(f, BYTES("brokerName"), bytes_str(o->name));
    frame_put(f, BYTES("brokerAddr"), bytes_str(addr));
    frame_put(f, BYTES("clusterName"), bytes_str(o->cluster));
    frame_put_int(f, BYTES("brokerId"), o->broker_id);
}

/* Queues one request; `body` may be empty. Registrations carry the body's checksum. */
static void ask(struct server *s, int32_t code, struct bytes body)
{
    struct registrar *r = s->registrar;
    uint8_t *space = conn_space(s->conn, HEAD_ROOM);
    if (!space)
        return;
    struct wr w = wr_over(space, HEAD_ROOM);
    struct frame_out f;
    frame_begin(&f, &w, HEAD_JSON,
                &(struct head_start){.code = code, .opaque = r->next_opaque++ % ROUTE_OPAQUE});
    put_identity(&f, s);
    if (code == REQ_REGISTER_BROKER) {
        struct addr ha = advertised_to(s); /* where slaves would find the log: the next port */
        ha.port++;
        char ha_addr[ADDR_TEXT_MAX];
        addr_format(&ha, ha_addr);
        frame_put(&f, BYTES("haServerAddr"), bytes_str(ha_addr));
        frame_put_bool(&f, BYTES("compressed"), false);
        frame_put_int(&f, BYTES("bodyCrc32"), crc32_positive(body));
    }
    frame_end_head(&f, body.len);
    invariant(!w.full); /* names are bounded by their settings */
    conn_used(s->conn, wr_len(&w));
    conn_write(s->conn, body);
}

static enum err registration_body(struct registrar *r, struct buf *out)
{
    struct arena arena;
    arena_init(&arena, BODY_MAX);
    struct registration reg = {0};
    enum err err =
        broker_topics(r->options.broker, &arena, &reg.topics, &reg.n_topics, &reg.version);
    if (!err) {
        registration_write(out, &reg);
        err = out->err;
    }
    arena_clear(&arena);
    return err;
}

/* ---- routes that somebody here wants to know ---- */

static void ask_route(void *user, struct bytes topic, int32_t number)
{
    struct server *s = user;
    uint8_t *space = conn_space(s->conn, HEAD_ROOM);
    if (!space)
        return;
    struct wr w = wr_over(space, HEAD_ROOM);
    struct frame_out f;
    frame_begin(
        &f, &w, HEAD_JSON,
        &(struct head_start){.code = REQ_GET_ROUTEINFO_BY_TOPIC, .opaque = ROUTE_OPAQUE + number});
    frame_put(&f, BYTES("topic"), topic);
    frame_end_head(&f, 0);
    conn_used(s->conn, w.full ? 0 : wr_len(&w)); /* names are short */
}

/* Of the first name server there is: they all know the same. */
static void ask_routes(struct registrar *r, bool all)
{
    for (size_t i = 0; r->options.watch && i < r->n; i++) {
        if (!r->servers[i].conn)
            continue;
        watch_each(r->options.watch, all, ask_route, &r->servers[i]);
        return;
    }
}

static void route_answered(struct registrar *r, const struct head *head, struct bytes body)
{
    struct arena arena;
    struct route route;
    arena_init(&arena, ROUTE_MEMORY);
    bool found = head->code == RES_SUCCESS && route_read(body, &arena, &route) == OK;
    if (found || head->code == RES_TOPIC_NOT_EXIST)
        watch_learn(r->options.watch, head->opaque - ROUTE_OPAQUE, found ? &route : NULL);
    arena_clear(&arena);
}

static void watched_here(struct post *post)
{
    struct registrar *r = list_entry(post, struct registrar, watched);
    atomic_store(&r->watch_posted, false);
    if (!r->leaving)
        ask_routes(r, false);
}

void registrar_watch_changed(struct registrar *r)
{
    if (!atomic_exchange(&r->watch_posted, true))
        loop_post(r->options.loop, &r->watched);
}

/* Tells one server, or all of them when `only` is NULL. */
static void tell(struct registrar *r, struct server *only)
{
    struct buf body = buf_upto(BODY_MAX);
    enum err err = registration_body(r, &body);
    if (err)
        log_limited(r->options.log, &r->trouble, LOG_ERROR,
                    "cannot register reason=\"%s\" advice=\"fewer topics on one broker\"",
                    err_text(err));
    for (size_t i = 0; !err && i < r->n; i++) {
        struct server *s = &r->servers[i];
        if (s->conn && (!only || only == s))
            ask(s, REQ_REGISTER_BROKER, buf_bytes(&body));
    }
    buf_clear(&body);
}

static void *server_connected(void *context, struct conn *conn)
{
    struct server *s = context;
    s->conn = conn;
    if (!s->registrar->leaving)
        tell(s->registrar, s);
    return s;
}

static void server_lost(void *user, struct conn *conn, const char *reason)
{
    (void)conn;
    struct server *s = user;
    struct registrar *r = s->registrar;
    s->conn = NULL;
    s->registered = false;
    char addr[ADDR_TEXT_MAX];
    addr_format(&s->addr, addr);
    if (!r->leaving)
        log_limited(r->options.log, &s->lost, LOG_WARN,
                    "name server lost addr=%s reason=\"%s\" action=reconnecting", addr, reason);
}

static void answered(struct server *s, const struct head *head)
{
    struct registrar *r = s->registrar;
    char addr[ADDR_TEXT_MAX];
    addr_format(&s->addr, addr);
    if (head->code != RES_SUCCESS) {
        log_limited(r->options.log, &s->refused, LOG_WARN,
                    "name server refuses addr=%s code=%d remark=%s", addr, head->code,
                    LOG_QUOTE(head->remark));
        return;
    }
    if (s->registered)
        return;
    s->registered = true;
    log_event(r->options.log, LOG_INFO, "registered name_server=%s broker=%s", addr,
              LOG_QUOTE(bytes_str(r->options.name)));
    if (r->options.registered)
        r->options.registered(r->options.user, (size_t)(s - r->servers));
}

static size_t server_input(void *user, struct conn *conn, struct bytes in)
{
    struct server *s = user;
    size_t used = 0;
    while (used < in.len) {
        struct frame frame;
        size_t need;
        struct head head;
        enum err err = frame_next(bytes_from(in, used), &s->registrar->spare, &frame, &head, &need);
        if (err == ERR_INCOMPLETE) {
            conn_need(conn, need);
            break;
        }
        if (err) {
            conn_close(conn, "the name server's answer cannot be read");
            break;
        }
        if (head.flag & FLAG_RESPONSE && head.opaque >= ROUTE_OPAQUE && s->registrar->options.watch)
            route_answered(s->registrar, &head, frame.body);
        else if (head.flag & FLAG_RESPONSE)
            answered(s, &head);
        used += frame.size;
    }
    return used;
}

static void server_failed(void *context, const char *reason)
{
    struct server *s = context;
    (void)snprintf(s->why, sizeof s->why, "%s", reason);
}

static const struct conn_ops server_ops = {server_input, server_connected, server_lost,
                                           server_failed};

static void period(void *user)
{
    struct registrar *r = user;
    tell(r, NULL);
    ask_routes(r, true);
    for (size_t i = 0; i < r->n; i++) {
        char addr[ADDR_TEXT_MAX];
        addr_format(&r->servers[i].addr, addr);
        if (!r->servers[i].conn)
            log_limited(r->options.log, &r->servers[i].lost, LOG_WARN,
                        "name server out of reach addr=%s reason=%s action=\"trying again\"", addr,
                        LOG_QUOTE(bytes_str(r->servers[i].why)));
    }
}

static void server_moved(struct server *s, const struct addr *addr)
{
    char before[ADDR_TEXT_MAX], now[ADDR_TEXT_MAX];
    addr_format(&s->addr, before);
    addr_format(addr, now);
    if (strcmp(before, now) == 0)
        return;
    log_event(s->registrar->options.log, LOG_INFO, "name server has moved host=%s from=%s to=%s",
              LOG_QUOTE(bytes_str(s->host)), before, now);
    s->addr = *addr;
    dial_retarget(s->dial, addr);
}

/* Names of servers that are out of reach: asks, and looks whether there is an answer. */
static void look_up(void *user)
{
    struct registrar *r = user;
    for (size_t i = 0; i < r->n && !r->leaving; i++) {
        struct server *s = &r->servers[i];
        struct addr addr;
        if (s->lookup && lookup_done(s->lookup)) {
            if (lookup_result(s->lookup, &addr) == OK)
                server_moved(s, &addr);
            lookup_close(take(&s->lookup));
        } else if (!s->lookup && !s->conn && s->host[0]) {
            s->lookup = lookup_start(s->host, s->addr.port);
        }
    }
}

static void changed_here(struct post *post)
{
    struct registrar *r = list_entry(post, struct registrar, changed);
    atomic_store(&r->changed_posted, false);
    if (!r->leaving)
        tell(r, NULL);
}

void registrar_topics_changed(struct registrar *r)
{
    if (!atomic_exchange(&r->changed_posted, true))
        loop_post(r->options.loop, &r->changed);
}

/* Nothing has connected yet: dials do that from the loop. */
static void give_up(struct registrar *r)
{
    for (size_t i = 0; i < r->n; i++)
        dial_close(r->servers[i].dial);
    timer_close(r->timer);
    timer_close(r->lookup_timer);
    free(r);
}

enum err registrar_open(const struct registrar_options *options, struct registrar **out)
{
    struct registrar *r = calloc(1, sizeof *r + options->n_servers * sizeof r->servers[0]);
    if (!r)
        return ERR_NO_MEMORY;
    r->options = *options;
    r->spare = buf_upto(FRAME_MAX);
    r->changed.run = changed_here;
    r->watched.run = watched_here;
    enum err err = timer_open(options->loop, period, r, &r->timer);
    if (!err)
        err = timer_open(options->loop, look_up, r, &r->lookup_timer);
    bool names = false;
    for (size_t i = 0; !err && i < options->n_servers; i++) {
        struct server *s = &r->servers[i];
        s->registrar = r;
        s->addr = options->servers[i].addr;
        s->host = options->servers[i].host;
        names = names || s->host[0];
        r->n++;
        err = dial_open(options->loop, &s->addr, &server_ops, s, options->limits, &s->dial);
        if (!err && options->tls)
            err = dial_secure(s->dial, options->tls, s->host[0] ? s->host : NULL);
    }
    if (err) {
        give_up(r);
        return err;
    }
    timer_start(r->timer, FIRST_LOOK_MS < options->period_ms ? FIRST_LOOK_MS : options->period_ms,
                options->period_ms);
    if (names)
        timer_start(r->lookup_timer, LOOKUP_MS, LOOKUP_MS);
    *out = r;
    return OK;
}

void registrar_leave(struct registrar *r)
{
    r->leaving = true;
    timer_stop(r->timer);
    timer_stop(r->lookup_timer);
    for (size_t i = 0; i < r->n; i++) {
        if (r->servers[i].conn)
            ask(&r->servers[i], REQ_UNREGISTER_BROKER, (struct bytes){0});
    }
}

void registrar_close(struct registrar *r)
{
    for (size_t i = 0; r && i < r->n; i++)
        lookup_close(r->servers[i].lookup);
    if (r)
        buf_clear(&r->spare);
    free(r);
}
