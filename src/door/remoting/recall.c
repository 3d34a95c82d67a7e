/* recall.c - RECALL_MESSAGE: a producer takes back a message that waits for its time.
 *
 * Whoever reads "yes" counts on it, so the answer waits until the record of the recall is
 * confirmed, like that of a send. Codes and words: RecallMessageProcessor of 5.5.0. */
#include "door/remoting/door_int.h"

struct recall_late {
    struct late late;
    size_t len;
    char uniq_key[];
};

static int32_t recall_code_of(enum err err)
{
    switch (err) {
    case ERR_INVALID:
        return RES_ILLEGAL_OPERATION;
    case OK:
    case ERR_DENIED:
    case ERR_READ_ONLY:
    case ERR_UNKNOWN_TOPIC:
    case ERR_BUSY:
        return response_code_of(err);
    default:
        return RES_SYSTEM_ERROR;
    }
}

static void reply(struct door *door, const struct return_address *to, enum err err,
                  const char *remark, struct bytes uniq_key)
{
    struct bytes region = bytes_str(door->options.region);
    struct reply r;
    if (!reply_begin(&r, to, recall_code_of(err), bytes_str(remark), uniq_key.len + region.len))
        return;
    if (!err)
        frame_put(&r.frame, BYTES("msgId"), uniq_key);
    frame_put(&r.frame, BYTES("MSG_REGION"), region);
    reply_end(&r, 0);
}

static void give(const struct late *late)
{
    const struct recall_late *recall = list_entry(late, struct recall_late, late);
    reply(late->door, &late->to, late->err, late->err ? err_text(late->err) : NULL,
          bytes_of(recall->uniq_key, recall->len));
}

void send_recall(struct door *door, struct request *rq)
{
    struct recall_fields f = {0};
    if (!request_fields(rq, &recall_table, &f))
        return;
    struct recall recall = {
        .group = f.group,
        .topic = f.topic,
        .handle = f.handle,
        .born_host = *conn_peer(rq->session->conn),
    };
    struct recalled out;
    struct fault why = {0};
    struct return_address to = return_address_of(rq);
    enum err err = store_keeps_up(door, rq->session->seat->sends, &why)
                       ? broker_recall(door->broker, &recall, &out, &why)
                       : ERR_BUSY;
    if (err) {
        reply(door, &to, err, fault_remark(err, &why), (struct bytes){0});
        return;
    }
    struct recall_late *late = late_make(rq, sizeof *late + out.uniq_key_len);
    if (late) {
        late->len = out.uniq_key_len;
        memcpy(late->uniq_key, out.uniq_key, out.uniq_key_len);
        late_give(&late->late, out.end, give);
    } else { /* stored, but nobody may count on it */
        reply(door, &to, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY), (struct bytes){0});
    }
    broker_dispatch_turn(door->broker);
}
