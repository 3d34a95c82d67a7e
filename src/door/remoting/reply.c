/* reply.c - SEND_REPLY_MESSAGE: the answer to a message, for the client that waits for it.
 *
 * The requester is found by the property REPLY_TO_CLIENT, and the reply is pushed to it with
 * PUSH_REPLY_MESSAGE_TO_CLIENT. What the replying consumer is told depends on the push alone; that
 * the reply is also stored (storeReplyMessageEnable) is for the operator's eyes. Witness:
 * ReplyMessageProcessor. */
#include "door/remoting/door_int.h"

#include <inttypes.h>
#include <stdio.h>

#define REPLY_TO        BYTES("REPLY_TO_CLIENT")
#define PUSH_REPLY_TIME BYTES("PUSH_REPLY_TIME")
#define CLIENT_ID_MAX   255

struct reply_ask {
    struct ask ask;
    char msg_id[ID_TEXT_MAX];
    int32_t queue_id;
    int64_t queue_offset;
    char client_id[CLIENT_ID_MAX + 1];
};

static void answer_refused(struct door *door, const struct return_address *to, int32_t code,
                           const char *remark)
{
    struct bytes region = bytes_str(door->options.region);
    struct reply r;
    if (!reply_begin(&r, to, code, bytes_str(remark), region.len))
        return;
    frame_put(&r.frame, BYTES("MSG_REGION"), region);
    frame_put_bool(&r.frame, BYTES("TRACE_ON"), door->options.trace_on);
    reply_end(&r, 0);
}

/* The requester has answered, or will not. */
static void pushed(struct ask *ask)
{
    const struct reply_ask *a = list_entry(ask, struct reply_ask, ask);
    struct door *door = ask->door;
    if (ask->err || ask->code != RES_SUCCESS) {
        char remark[CLIENT_ID_MAX + 64]; /* Apache's words, as they are */
        (void)snprintf(remark, sizeof remark, "push reply message to %sfail.", a->client_id);
        answer_refused(door, &ask->to, RES_SYSTEM_ERROR, remark);
        return;
    }
    struct bytes region = bytes_str(door->options.region);
    struct reply r;
    if (!reply_begin(&r, &ask->to, RES_SUCCESS, (struct bytes){0}, region.len))
        return;
    /* Java cannot read a success without these. */
    frame_put(&r.frame, BYTES("msgId"), bytes_str(a->msg_id));
    frame_put_int(&r.frame, BYTES("queueId"), a->queue_id);
    frame_put_int(&r.frame, BYTES("queueOffset"), a->queue_offset);
    frame_put(&r.frame, BYTES("MSG_REGION"), region);
    frame_put_bool(&r.frame, BYTES("TRACE_ON"), door->options.trace_on);
    reply_end(&r, 0);
}

/* ---- storing ---- */

struct kept {
    char msg_id[ID_TEXT_MAX];
    int32_t queue_id;
    int64_t queue_offset;
};

/* Not the reply's fault: it can be pushed all the same. */
static bool is_trouble(enum err err)
{
    return err == ERR_DISK_FULL || err == ERR_READ_ONLY || err == ERR_IO || err == ERR_NO_MEMORY ||
           err == ERR_DAMAGED || err == ERR_CLOSED;
}

static enum err reply_store(struct door *door, const struct request *rq,
                            const struct send_fields *f, struct kept *out, struct fault *why)
{
    struct seat *seat = rq->session->seat;
    enum err err = seat->replies ? OK : desk_open(door->broker, &seat->replies);
    if (err)
        return err;
    struct produce p = {
        .group = f->producer_group,
        .topic = f->topic,
        .default_topic = f->default_topic,
        .default_queues = f->default_topic_queues,
        .body = rq->body,
        .props = f->props,
        .queue_id = f->queue_id,
        .sys_flag = f->sys_flag,
        .flag = f->flag,
        .reconsume_times = f->reconsume_times,
        .born_ms = f->born_ms,
        .born_host = *conn_peer(rq->session->conn),
    };
    uint64_t end;
    broker_produce(door->broker, seat->replies, &p, 1, &end);
    if (p.err) {
        *why = p.why;
        return p.err;
    }
    const struct stored *stored = &desk_stored(seat->replies)[p.first];
    (void)id_format(&door->options.host, stored->position, out->msg_id);
    out->queue_id = p.stored_queue_id;
    out->queue_offset = p.queue_offset;
    broker_dispatch_turn(door->broker);
    return OK;
}

/* The same questions that storing would ask of its topic. */
static enum err reply_check(struct door *door, const struct request *rq,
                            const struct send_fields *f, struct kept *out, struct fault *why)
{
    struct topic_settings topic;
    enum err err = broker_topic_get(door->broker, f->topic, rq->arena, &topic, why);
    if (err)
        return err;
    if (!(topic.perm & PERM_WRITE))
        return fault_set(why, ERR_DENIED, "the topic[%.*s] sending message is forbidden",
                         BYTES_ARG(topic.name));
    if (rq->body.len > door->options.max_message_size || f->props.len > RECORD_PROPS_MAX)
        return fault_set(
            why, ERR_TOO_BIG, "a body of %zu bytes (at most %u) and properties of %zu (at most %d)",
            rq->body.len, door->options.max_message_size, f->props.len, RECORD_PROPS_MAX);
    if (f->queue_id >= topic.read_queues && f->queue_id >= topic.write_queues)
        return fault_set(why, ERR_INVALID, "request queueId[%d] is illegal", f->queue_id);
    out->queue_id = f->queue_id < 0 ? 0 : f->queue_id;
    return OK;
}

/* ---- pushing ---- */

#define TEXTS 9

/* The numbers of a push as text, which live as long as the request. */
struct push_texts {
    char numbers[TEXTS][24];
    char born_host[ADDR_TEXT_MAX], store_host[ADDR_TEXT_MAX];
    size_t n;
};

static struct bytes number(struct push_texts *t, int64_t value)
{
    char *text = t->numbers[t->n++];
    (void)snprintf(text, sizeof t->numbers[0], "%" PRId64, value);
    return bytes_str(text);
}

/* The reply's properties and the time of the push; empty: no memory. */
static struct bytes props_with_time(struct request *rq, struct bytes props, int64_t now_ms)
{
    size_t size = props.len + 64;
    struct wr w = wr_over(arena_alloc(rq->arena, size), 0);
    if (!w.start)
        return (struct bytes){0};
    w.end = w.start + size;
    char now[24];
    (void)snprintf(now, sizeof now, "%" PRId64, now_ms);
    wr_bytes_of(&w, props);
    props_add(&w, PUSH_REPLY_TIME, bytes_str(now));
    return wr_bytes(&w);
}

static struct reply_ask *push_make(struct door *door, struct request *rq,
                                   const struct send_fields *f, int32_t queue_id)
{
    struct push_texts t = {0};
    int64_t now_ms = clock_ms(door->options.clock);
    addr_format(conn_peer(rq->session->conn), t.born_host);
    addr_format(&door->options.host, t.store_host);
    struct field fields[] = {
        {BYTES("producerGroup"), f->producer_group},
        {BYTES("topic"), f->topic},
        {BYTES("defaultTopic"), f->default_topic},
        {BYTES("defaultTopicQueueNums"), number(&t, f->default_topic_queues)},
        {BYTES("queueId"), number(&t, queue_id)},
        {BYTES("sysFlag"), number(&t, f->sys_flag)},
        {BYTES("bornTimestamp"), number(&t, f->born_ms)},
        {BYTES("flag"), number(&t, f->flag)},
        {BYTES("properties"), props_with_time(rq, f->props, now_ms)},
        {BYTES("reconsumeTimes"), number(&t, f->reconsume_times)},
        {BYTES("unitMode"), f->unit_mode ? BYTES("true") : BYTES("false")},
        {BYTES("bornHost"), bytes_str(t.born_host)},
        {BYTES("storeHost"), bytes_str(t.store_host)},
        {BYTES("storeTimestamp"), number(&t, now_ms)},
    };
    struct words words = {
        .code = REQ_PUSH_REPLY_MESSAGE_TO_CLIENT,
        .fields = fields,
        .n_fields = sizeof fields / sizeof *fields,
        .body = rq->body,
    };
    return ask_make(rq, sizeof(struct reply_ask), &words);
}

/* The connection of the client that waits for this; NULL: the remark tells why not. */
static struct counted *requester(struct door *door, struct bytes props, struct bytes *client_id,
                                 char *remark, size_t size)
{
    *client_id = (struct bytes){0};
    if (!props_get(props, REPLY_TO, client_id)) {
        (void)snprintf(remark, size, "reply message properties[%.*s] is null", BYTES_ARG(REPLY_TO));
        return NULL;
    }
    struct counted *session =
        client_id->len <= CLIENT_ID_MAX ? broker_producer_session(door->broker, *client_id) : NULL;
    if (!session)
        (void)snprintf(remark, size, "push reply message fail, channel of <%.*s> not found.",
                       (int)(client_id->len < CLIENT_ID_MAX ? client_id->len : CLIENT_ID_MAX),
                       (const char *)client_id->at);
    return session;
}

static void push_reply(struct door *door, struct request *rq, const struct send_fields *f,
                       const struct kept *kept)
{
    struct return_address to = return_address_of(rq);
    char remark[CLIENT_ID_MAX + 128];
    struct bytes client_id;
    struct counted *session = requester(door, f->props, &client_id, remark, sizeof remark);
    if (!session) {
        answer_refused(door, &to, RES_SYSTEM_ERROR, remark);
        return;
    }
    struct reply_ask *a = push_make(door, rq, f, kept->queue_id);
    if (!a) {
        counted_drop(session);
        answer_refused(door, &to, RES_SYSTEM_BUSY, "too many replies are on their way");
        return;
    }
    memcpy(a->msg_id, kept->msg_id, sizeof a->msg_id);
    a->queue_id = kept->queue_id;
    a->queue_offset = kept->queue_offset;
    memcpy(a->client_id, client_id.at, client_id.len);
    ask_client(&a->ask, session, pushed);
}

static void reply_message(struct door *door, struct request *rq, const struct field_table *table)
{
    struct send_fields f = {0};
    if (!request_fields(rq, table, &f))
        return;
    struct kept kept = {.msg_id = "0"};
    struct fault why = {0};
    enum err err = door->options.store_replies ? reply_store(door, rq, &f, &kept, &why)
                                               : reply_check(door, rq, &f, &kept, &why);
    if (err && !is_trouble(err)) {
        struct return_address to = return_address_of(rq);
        answer_refused(door, &to,
                       err == ERR_MALFORMED ? RES_MESSAGE_ILLEGAL : response_code_of(err),
                       fault_remark(err, &why));
        return;
    }
    push_reply(door, rq, &f, &kept);
}

void reply_send(struct door *door, struct request *rq)
{
    reply_message(door, rq, &send_fields_long);
}

void reply_send_v2(struct door *door, struct request *rq)
{
    reply_message(door, rq, &send_fields_letters);
}
