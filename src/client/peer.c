/* peer.c - servers by their address, and the requests that are under way to them.
 *
 * A peer is dialled when somebody has something to say to it, and again whenever the connection is
 * lost. Requests wait for the connection; if an attempt comes to nothing, those that wait end at
 * once and their callers may try elsewhere. When a connection breaks, everything that was sent over
 * it and not answered ends as "maybe done".
 *
 * A server that is about to stop, or whose balancer wants us elsewhere, answers GO_AWAY without
 * doing anything. Its peer leaves: it keeps its connection for what is under way there, and a new
 * one with the same address has everything else, the refused request first. Each request is sent
 * again like that once.
 *
 * The opaque number of a request is its place in a table and how often that place was used, so an
 * answer is found without searching, and a late answer to a request that has timed out is nobody's.
 */
#include "client/client_int.h"

#include <stdlib.h>

#define SLOTS_FIRST 64
#define SLOTS_MAX   65536
#define HEAD_ROOM   1024
#define LOOKUP_MS   10

struct peer {
    struct omq_client *client;
    struct dial *dial; /* NULL: its name is being looked up */
    struct conn *conn;
    bool connected_before;
    unsigned introduced;       /* client.identity when a heartbeat went out on this connection */
    bool gone;                 /* out of client.peers; freed when its connection has closed */
    struct link leaving;       /* in client.leaving: gone, and some answers are still to come */
    struct list waiting, sent; /* calls, by by_peer */
    struct lookup *lookup;
    struct timer *lookup_timer;
    char host[HOST_TEXT_MAX];
    uint16_t port;
    size_t address_len;
    char address[]; /* the key in client.peers */
};

static void peer_free(struct peer *peer);

/* ---- slots ---- */

static void deadlines_pass(void *user);

enum err calls_open(struct omq_client *client)
{
    list_init(&client->calls.by_deadline);
    return timer_open(client->loop, deadlines_pass, client, &client->calls.timer);
}

static bool slots_grow(struct calls *calls)
{
    uint32_t cap = calls->cap ? calls->cap * 2 : SLOTS_FIRST;
    if (cap > SLOTS_MAX)
        return false;
    struct call **slots = realloc(calls->slots, cap * sizeof *slots);
    if (slots)
        calls->slots = slots;
    uint16_t *turns = realloc(calls->turns, cap * sizeof *turns);
    if (turns)
        calls->turns = turns;
    uint32_t *free_slots = realloc(calls->free, cap * sizeof *free_slots);
    if (free_slots)
        calls->free = free_slots;
    if (!slots || !turns || !free_slots)
        return false;
    for (uint32_t i = cap; i > calls->cap; i--) {
        calls->slots[i - 1] = NULL;
        calls->turns[i - 1] = 0;
        calls->free[calls->n_free++] = i - 1;
    }
    calls->cap = cap;
    return true;
}

static bool slot_take(struct calls *calls, struct call *call)
{
    if (calls->n_free == 0 && !slots_grow(calls))
        return false;
    uint32_t slot = calls->free[--calls->n_free];
    calls->slots[slot] = call;
    calls->turns[slot] = (uint16_t)((calls->turns[slot] + 1) & 0x7fff);
    call->opaque = (int32_t)((uint32_t)calls->turns[slot] << 16 | slot);
    return true;
}

static void slot_give(struct calls *calls, struct call *call)
{
    uint32_t slot = (uint32_t)call->opaque & 0xffff;
    invariant(calls->slots[slot] == call);
    calls->slots[slot] = NULL;
    calls->free[calls->n_free++] = slot;
    call->sent = false; /* its peer may be gone from now on */
}

static struct call *slot_find(const struct calls *calls, const struct peer *peer, int32_t opaque)
{
    uint32_t slot = (uint32_t)opaque & 0xffff;
    struct call *call = opaque >= 0 && slot < calls->cap ? calls->slots[slot] : NULL;
    return call && call->opaque == opaque && call->peer == peer && call->sent ? call : NULL;
}

/* ---- the end of a call ---- */

static void call_end(struct omq_client *client, struct call *call, const struct answer *answer)
{
    list_remove(&call->by_peer);
    list_remove(&call->by_deadline);
    slot_give(&client->calls, call);
    call->done(call, answer);
}

static void calls_fail(struct omq_client *client, struct list *calls, enum err err,
                       const char *reason, bool maybe_done)
{
    struct list ending; /* a caller may start others at once, on the same peer */
    list_init(&ending);
    list_append_all(&ending, calls);
    const struct answer answer = {.err = err, .reason = reason, .maybe_done = maybe_done};
    while (!list_empty(&ending))
        call_end(client, list_entry(list_first(&ending), struct call, by_peer), &answer);
}

/* For an end that is known inside call_start. */
static void call_ends_late(struct post *post)
{
    struct call *call = list_entry(post, struct call, late);
    call->ending = false;
    const struct answer answer = {.err = call->late_err, .reason = call->late_reason};
    call->done(call, &answer);
}

static void call_end_later(struct omq_client *client, struct call *call, enum err err,
                           const char *reason)
{
    call->late = (struct post){.run = call_ends_late};
    call->late_err = err;
    call->late_reason = reason;
    call->ending = true;
    loop_post(client->loop, &call->late);
}

/* ---- deadlines ---- */

static void timer_arm(struct omq_client *client)
{
    struct calls *calls = &client->calls;
    if (list_empty(&calls->by_deadline))
        return;
    const struct call *first =
        list_entry(list_first(&calls->by_deadline), struct call, by_deadline);
    if (calls->timer_ns && calls->timer_ns <= first->deadline_ns)
        return; /* it rings before, and is set again then */
    uint64_t now = clock_ns(client->clock);
    uint64_t wait = first->deadline_ns > now ? first->deadline_ns - now : 0;
    calls->timer_ns = first->deadline_ns;
    timer_start(calls->timer, wait / 1000000 + 1, 0);
}

static void deadlines_pass(void *user)
{
    struct omq_client *client = user;
    struct calls *calls = &client->calls;
    calls->timer_ns = 0;
    uint64_t now = clock_ns(client->clock);
    while (!list_empty(&calls->by_deadline)) {
        struct call *call = list_entry(list_first(&calls->by_deadline), struct call, by_deadline);
        if (call->deadline_ns > now)
            break;
        const struct answer answer = {
            .err = ERR_TIMEOUT,
            .reason = call->sent ? "no answer in time" : "no connection in time",
            .maybe_done = call->sent,
        };
        call_end(client, call, &answer);
    }
    timer_arm(client);
}

/* Most calls have the same patience as the one before, so this looks at one or two. */
static void deadline_add(struct calls *calls, struct call *call)
{
    struct link *before = calls->by_deadline.head.prev;
    while (before != &calls->by_deadline.head &&
           list_entry(before, struct call, by_deadline)->deadline_ns > call->deadline_ns)
        before = before->prev;
    call->by_deadline.prev = before;
    call->by_deadline.next = before->next;
    before->next->prev = &call->by_deadline;
    before->next = &call->by_deadline;
}

/* ---- writing ---- */

/* Writes the header into `w`; with the signature if there is one. */
static void head_write(const struct omq_client *client, struct wr *w, const struct call *call,
                       int32_t flag, const char *signature)
{
    struct frame_out frame;
    frame_begin(&frame, w, HEAD_JSON,
                &(struct head_start){.code = call->code, .opaque = call->opaque, .flag = flag});
    if (call->put)
        call->put(call, &frame);
    if (client->options.access_key)
        sign_put(&frame, &client->options);
    if (signature)
        frame_put(&frame, BYTES("Signature"), bytes_str(signature));
    frame_end_head(&frame, call->body.len);
    invariant(!w->full); /* the caller has said how much text there is */
}

static bool frame_write(struct omq_client *client, struct conn *conn, const struct call *call,
                        int32_t flag)
{
    size_t size =
        HEAD_ROOM + 6 * (call->room + client->key_room); /* a byte is at most six in JSON */
    uint8_t *space = conn_space(conn, size);
    if (!space)
        return false;
    char signature[SIGNATURE_MAX];
    bool is_signed = client->options.access_key != NULL;
    struct wr w = wr_over(space, size);
    if (is_signed) { /* once without, to be signed */
        head_write(client, &w, call, flag, NULL);
        if (sign_frame(&client->options, wr_bytes(&w), call->body, signature))
            is_signed = false; /* no memory: the server refuses it, with a reason */
        w = wr_over(space, size);
    }
    head_write(client, &w, call, flag, is_signed ? signature : NULL);
    conn_used(conn, wr_len(&w));
    conn_write(conn, call->body);
    return true;
}

/* Over a connection that stands. Calls that waited for it have the rest of their time now. */
static void call_send(struct peer *peer, struct call *call)
{
    struct omq_client *client = peer->client;
    if (call->deadline_ns != call->end_ns) {
        list_remove(&call->by_deadline);
        call->deadline_ns = call->end_ns;
        deadline_add(&client->calls, call);
    }
    list_add_tail(&peer->sent, &call->by_peer);
    call->sent = true;
    (void)frame_write(peer->client, peer->conn, call,
                      0); /* if it is closing, `closed` ends the call */
}

/* ---- reading ---- */

static void answer_write(struct conn *conn, const struct asked_later *asked, int32_t code,
                         struct bytes remark, struct bytes body)
{
    size_t size = HEAD_ROOM + 6 * remark.len;
    uint8_t *space = asked->oneway ? NULL : conn_space(conn, size);
    if (!space)
        return;
    struct wr w = wr_over(space, size);
    struct frame_out frame;
    frame_begin(
        &frame, &w, asked->form,
        &(struct head_start){
            .code = code, .opaque = asked->opaque, .flag = FLAG_RESPONSE, .remark = remark});
    frame_end_head(&frame, body.len);
    conn_used(conn, wr_len(&w));
    conn_write(conn, body);
}

struct bytes asked_address(const struct asked *asked)
{
    return bytes_of(asked->peer->address, asked->peer->address_len);
}

void asked_keep(const struct asked *asked, struct asked_later *out)
{
    const struct peer *peer = asked->peer;
    *out = (struct asked_later){
        .conn = peer->conn ? conn_id(peer->conn) : 0,
        .opaque = asked->head->opaque,
        .form = asked->head->form,
        .oneway = (asked->head->flag & FLAG_ONEWAY) != 0,
    };
    if (peer->address_len < sizeof out->address)
        memcpy(out->address, peer->address, peer->address_len);
}

void asked_answer(const struct asked *asked, int32_t code, struct bytes remark, struct bytes body)
{
    struct asked_later now;
    asked_keep(asked, &now);
    if (asked->peer->conn)
        answer_write(asked->peer->conn, &now, code, remark, body);
}

void asked_answer_later(struct omq_client *client, const struct asked_later *asked, int32_t code,
                        struct bytes remark, struct bytes body)
{
    loop_here(client->loop);
    const struct peer *peer = map_get(&client->peers, bytes_str(asked->address));
    if (peer && peer->conn && conn_is_open(peer->conn) && conn_id(peer->conn) == asked->conn)
        answer_write(peer->conn, asked, code, remark, body);
}

static bool call_goes_again(struct peer *peer, struct call *call);

static void frame_take(struct peer *peer, const struct head *head, struct bytes body)
{
    struct omq_client *client = peer->client;
    if (!(head->flag & FLAG_RESPONSE)) {
        serve(&(struct asked){.client = client, .peer = peer, .head = head, .body = body});
        return;
    }
    struct call *call = slot_find(&client->calls, peer, head->opaque);
    if (!call)
        return; /* it came too late, or was never asked for */
    const struct answer answer = {.head = head, .body = body};
    if (head->code != RES_GO_AWAY || !call_goes_again(peer, call))
        call_end(client, call, &answer);
    if (peer->gone && list_empty(&peer->sent))
        conn_close(peer->conn, "everything was answered");
}

static size_t peer_input(void *user, struct conn *conn, struct bytes in)
{
    struct peer *peer = user;
    size_t used = 0;
    while (used < in.len && conn_is_open(conn)) {
        struct frame frame;
        struct head head;
        size_t need;
        enum err err = frame_next(bytes_from(in, used), &peer->client->spare, &frame, &head, &need);
        if (err == ERR_INCOMPLETE) {
            conn_need(conn, need);
            break;
        }
        if (err) {
            conn_close(conn, "its answer cannot be read");
            break;
        }
        used += frame.size;
        frame_take(peer, &head, frame.body);
    }
    return used;
}

static void *peer_opened(void *context, struct conn *conn)
{
    struct peer *peer = context;
    struct omq_client *client = peer->client;
    peer->conn = conn;
    atomic_fetch_add_explicit(&client->stats.connections, 1, memory_order_relaxed);
    if (peer->connected_before) {
        atomic_fetch_add_explicit(&client->stats.reconnects, 1, memory_order_relaxed);
        client_log(client, OMQ_INFO, "connected again to %s", peer->address);
    }
    peer->connected_before = true;
    struct list ready;
    list_init(&ready);
    list_append_all(&ready, &peer->waiting);
    while (!list_empty(&ready)) {
        struct call *call = list_entry(list_pop(&ready), struct call, by_peer);
        if (call->oneway) {
            (void)frame_write(client, conn, call, FLAG_ONEWAY);
            call_end(client, call, &(struct answer){.err = OK});
        } else {
            call_send(peer, call);
        }
    }
    return peer;
}

static void peer_lost(void *user, struct conn *conn, const char *reason)
{
    (void)conn;
    struct peer *peer = user;
    struct omq_client *client = peer->client;
    peer->conn = NULL;
    peer->introduced = 0;
    atomic_fetch_sub_explicit(&client->stats.connections, 1, memory_order_relaxed);
    if (!client->closing)
        client_log(client, OMQ_WARN, "the connection to %s is lost: %s", peer->address, reason);
    calls_fail(client, &peer->sent, ERR_CLOSED, reason, true);
    if (peer->gone)
        peer_free(peer);
}

static void peer_failed(void *context, const char *reason)
{
    struct peer *peer = context;
    peer->introduced = 0;
    calls_fail(peer->client, &peer->waiting, ERR_CLOSED, reason, false);
}

static const struct conn_ops peer_ops = {peer_input, peer_opened, peer_lost, peer_failed};

/* ---- finding a peer ---- */

/* `host` is the name it is known by; NULL: it is known by its address. */
static enum err peer_dial(struct peer *peer, const struct addr *addr, const char *host)
{
    struct omq_client *client = peer->client;
    enum err err = dial_open(client->loop, addr, &peer_ops, peer, &client->limits, &peer->dial);
    if (!err && client->tls)
        err = dial_secure(peer->dial, client->tls, host);
    if (err)
        dial_close(take(&peer->dial));
    return err;
}

static void lookup_look(void *user)
{
    struct peer *peer = user;
    if (!peer->lookup || !lookup_done(peer->lookup))
        return;
    struct addr addr;
    enum err err = lookup_result(peer->lookup, &addr);
    lookup_close(take(&peer->lookup));
    timer_stop(peer->lookup_timer);
    if (!err)
        err = peer_dial(peer, &addr, peer->host);
    if (err)
        peer_failed(peer, "nobody has that name");
}

/* Begins to look up its name, if that is not under way. */
static void lookup_begin(struct peer *peer)
{
    if (peer->lookup)
        return;
    peer->lookup = lookup_start(peer->host, peer->port);
    timer_start(peer->lookup_timer, LOOKUP_MS, LOOKUP_MS);
}

/* host:port, where the host is a name. */
static bool host_split(struct peer *peer)
{
    const char *colon = strrchr(peer->address, ':');
    int32_t port;
    if (!colon || colon == peer->address || colon - peer->address >= HOST_TEXT_MAX ||
        !bytes_to_i32(bytes_str(colon + 1), &port) || port < 1 || port > 65535)
        return false;
    memcpy(peer->host, peer->address, (size_t)(colon - peer->address));
    peer->port = (uint16_t)port;
    return true;
}

static void peer_free(struct peer *peer)
{
    dial_close(peer->dial);
    lookup_close(peer->lookup);
    if (peer->lookup_timer)
        timer_close(peer->lookup_timer);
    list_remove(&peer->leaving);
    free(peer);
}

static enum err peer_begin(struct peer *peer)
{
    struct omq_client *client = peer->client;
    struct addr addr;
    if (addr_parse(bytes_str(peer->address), &addr) == OK && addr.port != 0)
        return peer_dial(peer, &addr, NULL);
    if (!host_split(peer))
        return ERR_INVALID;
    return timer_open(client->loop, lookup_look, peer, &peer->lookup_timer);
}

static enum err peer_need(struct omq_client *client, struct bytes address, struct peer **out)
{
    struct peer *peer = map_get(&client->peers, address);
    if (peer) {
        *out = peer;
        return OK;
    }
    peer = calloc(1, sizeof *peer + address.len + 1);
    if (!peer)
        return ERR_NO_MEMORY;
    peer->client = client;
    list_init(&peer->waiting);
    list_init(&peer->sent);
    peer->address_len = address.len;
    memcpy(peer->address, address.at, address.len);
    enum err err = peer_begin(peer);
    if (!err)
        err = map_put(&client->peers, bytes_of(peer->address, peer->address_len), peer);
    if (err) {
        peer_free(peer);
        return err;
    }
    *out = peer;
    return OK;
}

/* ---- starting a call ---- */

/* Over the connection if it stands, else as soon as it does. */
static void call_join(struct peer *peer, struct call *call)
{
    call->peer = peer;
    if (peer->conn && conn_is_open(peer->conn)) {
        call_send(peer, call);
        return;
    }
    list_add_tail(&peer->waiting, &call->by_peer);
    if (peer->dial)
        dial_hurry(peer->dial);
    else
        lookup_begin(peer);
}

void call_start(struct omq_client *client, struct bytes address, struct call *call,
                uint64_t timeout_ms)
{
    loop_here(client->loop);
    call->sent = call->again = false;
    call->by_peer = call->by_deadline = (struct link){0};
    if (client->closing) {
        call_end_later(client, call, ERR_CLOSED, "the client is closing");
        return;
    }
    enum err err = peer_need(client, address, &call->peer);
    if (err) {
        call_end_later(client, call, err, err == ERR_INVALID ? "not an address" : err_text(err));
        return;
    }
    if (!slot_take(&client->calls, call)) {
        call_end_later(client, call, ERR_BUSY, "too many requests are under way");
        return;
    }
    struct peer *peer = call->peer;
    bool connected = peer->conn && conn_is_open(peer->conn);
    uint64_t now = clock_ns(client->clock);
    call->end_ns = call->deadline_ns = now + timeout_ms * 1000000;
    if (!connected && call->connect_ms && call->connect_ms < timeout_ms)
        call->deadline_ns = now + call->connect_ms * 1000000;
    deadline_add(&client->calls, call);
    timer_arm(client);
    call_join(peer, call);
}

/* False: it was sent again before, or there is no memory. Then its caller hears what the server
 * said. */
static bool call_goes_again(struct peer *peer, struct call *call)
{
    struct omq_client *client = peer->client;
    struct bytes address = bytes_of(peer->address, peer->address_len);
    struct peer *next;
    if (call->again)
        return false;
    if (!peer->gone) {
        client_log(client, OMQ_INFO, "%s asks us to go away; connecting anew", peer->address);
        (void)map_remove(&client->peers, address);
        peer->gone = true;
        list_add_tail(&client->leaving, &peer->leaving);
    }
    if (peer_need(client, address, &next))
        return false;
    next->connected_before = true;
    call->again = true;
    call->sent = false;
    list_remove(&call->by_peer);
    call_join(next, call);
    return true;
}

void call_cancel(struct omq_client *client, struct call *call)
{
    loop_here(client->loop);
    invariant(!call->ending); /* the post would find nobody */
    list_remove(&call->by_peer);
    list_remove(&call->by_deadline);
    slot_give(&client->calls, call);
}

bool call_await(const struct call *call, uint64_t timeout_ns)
{
    return call->sent && call->peer->conn && conn_await(call->peer->conn, timeout_ns);
}

bool say(struct omq_client *client, struct bytes address, struct call *call)
{
    loop_here(client->loop);
    struct peer *peer = map_get(&client->peers, address);
    if (!peer || !peer->conn || !conn_is_open(peer->conn))
        return false;
    return frame_write(client, peer->conn, call, FLAG_ONEWAY);
}

bool peer_connected(struct omq_client *client, struct bytes address)
{
    const struct peer *peer = map_get(&client->peers, address);
    return peer && peer->conn && conn_is_open(peer->conn);
}

bool peer_is_stranger(struct omq_client *client, struct bytes address)
{
    struct peer *peer;
    if (peer_need(client, address, &peer) || peer->introduced == client->identity)
        return false;
    peer->introduced = client->identity;
    return true;
}

/* ---- the end ---- */

static void peer_hang_up(struct omq_client *client, struct peer *peer, const char *reason)
{
    if (!peer->gone)
        (void)map_remove(&client->peers, bytes_of(peer->address, peer->address_len));
    peer->gone = true;
    calls_fail(client, &peer->waiting, ERR_CLOSED, reason, false);
    calls_fail(client, &peer->sent, ERR_CLOSED, reason, true);
    dial_close(take(&peer->dial));
    if (!peer->conn) /* else it is the connection's user until that says `closed` */
        peer_free(peer);
}

typedef bool peer_wanted(struct omq_client *client, const struct peer *peer);

static void peers_hang_up(struct omq_client *client, peer_wanted *wanted)
{
    const struct peer *each;
    struct peer *unwanted;
    do { /* each hanging up changes the map */
        unwanted = NULL;
        for (size_t i = 0; !unwanted && (each = map_next(&client->peers, &i));)
            if (!wanted(client, each))
                unwanted = map_get(&client->peers, bytes_of(each->address, each->address_len));
        if (unwanted)
            peer_hang_up(client, unwanted, "nobody needs it any more");
    } while (unwanted);
}

/* Somebody waits for its answer, or a route names it. */
static bool is_needed(struct omq_client *client, const struct peer *peer)
{
    return !list_empty(&peer->waiting) || !list_empty(&peer->sent) ||
           address_is_wanted(client, bytes_of(peer->address, peer->address_len));
}

void peers_keep(struct omq_client *client)
{
    loop_here(client->loop);
    peers_hang_up(client, is_needed);
}

static bool none_needed(struct omq_client *client, const struct peer *peer)
{
    (void)client;
    (void)peer;
    return false;
}

void peers_close(struct omq_client *client)
{
    struct link *k;
    while ((k = list_pop(&client->leaving)))
        peer_hang_up(client, list_entry(k, struct peer, leaving), "the client is closing");
    peers_hang_up(client, none_needed);
}

void calls_close(struct omq_client *client)
{
    struct calls *calls = &client->calls;
    invariant(list_empty(&calls->by_deadline)); /* they went with their peers */
    buf_clear(&client->spare);
    free(calls->slots);
    free(calls->turns);
    free(calls->free);
}
