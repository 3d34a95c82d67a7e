/* session.c - one connection: cuts frames, finds the handler, survives nonsense. */
#include "door/remoting/door_int.h"

#include <stdio.h>
#include <stdlib.h>

static void session_release(struct counted *counted)
{
    free((struct session *)counted);
}

static void session_init(struct session *session, struct door *door, struct seat *seat)
{
    counted_init(&session->counted, session_release);
    session->door = door;
    session->side = SIDE_BROKER;
    session->seat = seat;
    session->home = seat->loop;
    list_init(&session->parked);
    list_init(&session->pops);
    list_init(&session->present);
    list_init(&session->asked);
}

struct session *session_without(struct door *door, struct seat *seat)
{
    struct session *session = calloc(1, sizeof *session);
    if (session)
        session_init(session, door, seat);
    return session;
}

static struct seat *seat_of(struct door *door, const struct loop *loop)
{
    for (size_t i = 0; i < door->n_seats; i++) {
        if (door->seats[i]->loop == loop)
            return door->seats[i];
    }
    invariant(!"a connection on a loop that has no seat");
    return NULL;
}

static void *session_opened(void *context, struct conn *conn)
{
    const struct door_context *c = context;
    struct session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session_init(session, c->door, seat_of(c->door, conn_loop(conn)));
    session->side = c->side;
    session->conn = conn;
    return session;
}

static void session_closed(void *user, struct conn *conn, const char *reason)
{
    struct session *session = user;
    struct door *door = session->door;
    char peer[ADDR_TEXT_MAX];
    addr_format(conn_peer(conn), peer);
    log_event(door->log, LOG_DEBUG, "connection closed conn=%llu peer=%s reason=\"%s\"",
              (unsigned long long)conn_id(conn), peer, reason);

    session->conn = NULL;
    if (session->side == SIDE_BROKER) {
        parked_session_closed(session);
        pops_session_closed(session);
        presents_session_closed(session);
        asks_session_closed(session);
        broker_session_gone(door->broker, &session->counted);
        if (door->chaos)
            chaos_session_closed(door->chaos, session);
    } else {
        size_t gone = names_gone(door->names, conn_id(conn));
        if (gone)
            log_event(door->log, LOG_INFO,
                      "broker unregistered conn=%llu peer=%s count=%zu reason=\"%s\"",
                      (unsigned long long)conn_id(conn), peer, gone, reason);
    }
    counted_drop(&session->counted);
}

/* The end of a connection that does not speak our language, with one line for the operator. */
static void refuse(struct session *session, const char *reason, const char *detail)
{
    char peer[ADDR_TEXT_MAX];
    addr_format(conn_peer(session->conn), peer);
    log_limited(session->door->log, &session->door->bad_input, LOG_WARN,
                "connection refused conn=%llu peer=%s reason=\"%s\" detail=\"%s\"",
                (unsigned long long)conn_id(session->conn), peer, reason, detail);
    conn_close(session->conn, reason);
}

static void refuse_frame(struct session *session, enum err err, struct bytes in)
{
    uint32_t length = in.len >= 4 ? load_u32(in.at) : 0;
    char detail[128];
    if (err == ERR_TOO_BIG && in.at[0] == 0x16)
        (void)snprintf(
            detail, sizeof detail,
            "starts like a TLS handshake; TLS is not offered here (tls.server.certPath)");
    else if (err == ERR_TOO_BIG)
        (void)snprintf(detail, sizeof detail, "a frame of %u bytes is over the limit of %u", length,
                       FRAME_MAX);
    else
        (void)snprintf(detail, sizeof detail,
                       "the lengths of a frame of %u bytes contradict each other", length);
    refuse(session, err == ERR_TOO_BIG ? "frame too big" : "malformed frame", detail);
}

static void answer_unsupported(const struct request *rq)
{
    const char *name = request_name(rq->head->code);
    char remark[128];
    (void)snprintf(remark, sizeof remark, " request type %d%s%s%s not supported", rq->head->code,
                   name ? " (" : "", name ? name : "", name ? ")" : "");
    answer(rq, RES_REQUEST_CODE_NOT_SUPPORTED, remark);
}

/* Stores what was only noted so far, and answers it. */
static void flush_noted(struct seat *seat)
{
    sends_flush(seat->door, seat);
    ends_flush(seat->door, seat);
}

/* Most requests of a connection are like the one before. No request has the code 0. */
static handler *handler_for(struct session *session, int32_t code)
{
    if (session->code != code || code == 0) {
        session->code = code;
        session->fn = table_find(session->side, code);
    }
    return session->fn;
}

/* Handles one whole frame; `again`: it was held up on purpose. False: the connection is done with.
 */
static bool session_frame(struct session *session, const struct frame *frame, bool again)
{
    struct seat *seat = session->seat;
    uint8_t *room = arena_space(&seat->arena, frame->head.len);
    if (!room) { /* this read wants more than one request may: finish what came before it first */
        seat_settle(seat);
        room = arena_space(&seat->arena, frame->head.len);
    }
    if (!room) {
        refuse(session, "out of memory", "no memory to decode a request header");
        return false;
    }

    struct wr spare = wr_over(room, frame->head.len);
    struct head head;
    enum err err = head_decode_again(frame, &seat->heads, &spare, &head);
    if (err) {
        refuse(session, "malformed header",
               frame->form == HEAD_JSON ? "the JSON header of a frame cannot be read"
                                        : "the binary header of a frame cannot be read");
        return false;
    }
    arena_trim(&seat->arena, spare.at);
    if (head.flag & FLAG_RESPONSE) {
        ask_answered(session, &head, frame->body);
        return true;
    }

    struct request rq = {
        .session = session, .head = &head, .body = frame->body, .arena = &seat->arena};
    if (session->door->chaos && session->side == SIDE_BROKER &&
        chaos_meets(session->door->chaos, &rq, &head, again ? NULL : frame))
        return conn_is_open(session->conn);
    handler *fn = handler_for(session, head.code);
    if (fn != ack_message)
        acks_flush(session->door, seat);
    if (fn != once_ledger)
        ledger_flush(session->door, seat);
    if (fn != send_message && fn != send_message_v2 && fn != txn_ends) {
        flush_noted(seat); /* a client that asks after its sends finds them done */
        seat_catch_up(seat);
    }
    if (fn)
        fn(session->door, &rq);
    else
        answer_unsupported(&rq);
    return conn_is_open(session->conn);
}

void seat_settle(struct seat *seat)
{
    flush_noted(seat);
    acks_flush(seat->door, seat);
    ledger_flush(seat->door, seat);
    arena_reset(&seat->arena);
}

void session_again(struct session *session, struct bytes whole)
{
    struct frame frame;
    size_t need;
    enum err err = frame_split(whole, &frame, &need);
    invariant(!err); /* it was cut before */
    (void)session_frame(session, &frame, true);
    seat_settle(session->seat);
}

static size_t session_input(void *user, struct conn *conn, struct bytes in)
{
    struct session *session = user;
    size_t used = 0;
    bool go_on = true;
    while (go_on && used < in.len && !conn_congested(conn)) {
        struct frame frame;
        size_t need;
        enum err err = frame_split(bytes_from(in, used), &frame, &need);
        if (err == ERR_INCOMPLETE) {
            conn_need(conn, need);
            break;
        }
        if (err) {
            refuse_frame(session, err, bytes_from(in, used));
            break;
        }
        go_on = session_frame(session, &frame, false);
        used += frame.size;
    }
    /* Who only asks for the time is answered on a full disk too, which refuses all that another
     * connection has asked for: so the ledger's requests do not wait for those of others. */
    ledger_flush(session->door, session->seat);
    return used;
}

const struct conn_ops door_ops = {
    .input = session_input,
    .opened = session_opened,
    .closed = session_closed,
};
