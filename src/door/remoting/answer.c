/* answer.c - how requests are answered, and what a failure is called on this wire. */
#include "door/remoting/door_int.h"

/* Bytes of a header without remark and fields of variable length. */
#define REPLY_ROOM 1024

struct return_address return_address_of(const struct request *rq)
{
    return (struct return_address){
        .session = rq->session,
        .opaque = rq->head->opaque,
        .form = rq->head->form,
        .oneway = rq->head->flag & FLAG_ONEWAY,
    };
}

static bool is_wanted(const struct return_address *to)
{
    const struct conn *conn = to->session->conn;
    return !to->oneway && conn && conn_is_open(conn);
}

bool reply_begin(struct reply *r, const struct return_address *to, int32_t code,
                 struct bytes remark, size_t room)
{
    struct conn *conn = to->session->conn;
    if (!is_wanted(to))
        return false;
    /* A byte of text becomes at most six in JSON. */
    size_t size = REPLY_ROOM + 6 * (remark.len + room);
    uint8_t *space = conn_space(conn, size);
    if (!space)
        return false;
    r->w = wr_over(space, size);
    r->conn = conn;
    frame_begin(&r->frame, &r->w, to->form,
                &(struct head_start){
                    .code = code, .opaque = to->opaque, .flag = FLAG_RESPONSE, .remark = remark});
    return true;
}

bool reply_stamp(const struct return_address *to, const struct frame_stamp *stamp,
                 const struct stamp_value *values, size_t room)
{
    if (!is_wanted(to))
        return true;
    uint8_t *space = conn_space(to->session->conn, REPLY_ROOM + room);
    if (!space)
        return true; /* it has been closed */
    struct wr w = wr_over(space, REPLY_ROOM + room);
    bool done = frame_stamp_write(stamp, &w, to->opaque, values);
    conn_used(to->session->conn, wr_len(&w));
    return done;
}

void reply_end(struct reply *r, size_t body_size)
{
    frame_end_head(&r->frame, body_size);
    invariant(!r->w.full); /* reply_begin was told how much room it takes */
    conn_used(r->conn, wr_len(&r->w));
}

void reply_end_body(struct reply *r, struct bytes body)
{
    reply_end(r, body.len);
    conn_write(r->conn, body);
}

void answer(const struct request *rq, int32_t code, const char *remark)
{
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (reply_begin(&r, &to, code, bytes_str(remark), 0))
        reply_end(&r, 0);
}

void answer_body(const struct request *rq, struct bytes body)
{
    struct return_address to = return_address_of(rq);
    struct reply r;
    if (reply_begin(&r, &to, RES_SUCCESS, (struct bytes){0}, 0))
        reply_end_body(&r, body);
}

void answer_buf(const struct request *rq, struct buf *body)
{
    if (body->err)
        answer_fault(rq, body->err, NULL);
    else
        answer_body(rq, buf_bytes(body));
    buf_clear(body);
}

const char *fault_remark(enum err err, const struct fault *why)
{
    return why && why->text[0] ? why->text : err_text(err);
}

void answer_fault(const struct request *rq, enum err err, const struct fault *why)
{
    answer(rq, response_code_of(err), fault_remark(err, why));
}

int32_t response_code_of(enum err err)
{
    switch (err) {
    case OK:
        return RES_SUCCESS;
    case ERR_BUSY:
        return RES_SYSTEM_BUSY;
    case ERR_DENIED:
        return RES_NO_PERMISSION;
    case ERR_UNKNOWN_TOPIC:
        return RES_TOPIC_NOT_EXIST;
    case ERR_UNKNOWN_GROUP:
        return RES_SUBSCRIPTION_GROUP_NOT_EXIST;
    case ERR_NOT_SUBSCRIBED:
        return RES_SUBSCRIPTION_NOT_EXIST;
    case ERR_STALE:
        return RES_SUBSCRIPTION_NOT_LATEST;
    case ERR_NOT_FOUND:
        return RES_QUERY_NOT_FOUND;
    case ERR_INVALID:
    case ERR_RANGE:
        return RES_INVALID_PARAMETER;
    case ERR_TOO_BIG:
        return RES_MESSAGE_ILLEGAL;
    case ERR_DISK_FULL:
    case ERR_READ_ONLY:
    case ERR_CLOSED:
        return RES_SERVICE_NOT_AVAILABLE;
    default:
        return RES_SYSTEM_ERROR;
    }
}

bool request_fields(const struct request *rq, const struct field_table *table, void *out)
{
    struct fault why; /* is long, and nearly never used */
    why.os = 0;
    why.text[0] = 0;
    enum err err = fields_read(table, rq->head, out, &why);
    if (err)
        answer(rq, RES_SYSTEM_ERROR, fault_remark(err, &why));
    return err == OK;
}
