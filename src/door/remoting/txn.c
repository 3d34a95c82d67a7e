/* txn.c - END_TRANSACTION, RESUME_CHECK_HALF_MESSAGE, and the question CHECK_TRANSACTION_STATE.
 *
 * Ends are only noted when they are met, as sends are, and all of one read go to the log at once.
 * Clients send them one way; one that asks for an answer gets it when the end is confirmed. An end
 * that is refused or lost does no harm: its transaction stays open, and its producer is asked. */
#include "door/remoting/door_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ENDS_MAX   64
#define HALF_TOPIC BYTES("RMQ_SYS_TRANS_HALF_TOPIC")

enum { UNDECIDED = 0, COMMIT = 8, ROLLBACK = 12 }; /* commitOrRollback */

struct ends {
    struct desk *desk;
    size_t n;
    struct txn_end ends[ENDS_MAX];
    struct return_address senders[ENDS_MAX];
};

void ends_close(struct ends *ends)
{
    if (!ends)
        return;
    desk_close(ends->desk);
    free(ends);
}

/* Most brokers never need it. NULL: no memory. */
static struct ends *ends_of(struct door *door, struct seat *seat)
{
    if (seat->ends)
        return seat->ends;
    struct ends *ends = calloc(1, sizeof *ends);
    if (!ends || desk_open(door->broker, &ends->desk)) {
        free(ends);
        return NULL;
    }
    return seat->ends = ends;
}

/* Witness: EndTransactionProcessor, to which everything that is wrong with the half is a plain
 * error. */
static int32_t end_code_of(enum err err)
{
    switch (err) {
    case ERR_STALE:
        return RES_ILLEGAL_OPERATION;
    case ERR_NOT_FOUND:
    case ERR_INVALID:
    case ERR_DAMAGED:
        return RES_SYSTEM_ERROR;
    default:
        return response_code_of(err);
    }
}

static void give_refused(const struct return_address *to, enum err err, const struct fault *why)
{
    struct reply r;
    if (reply_begin(&r, to, end_code_of(err), bytes_str(fault_remark(err, why)), 0))
        reply_end(&r, 0);
}

static void give(const struct late *late)
{
    struct reply r;
    const char *remark = late->err ? err_text(late->err) : NULL;
    int32_t code = late->err ? RES_FLUSH_DISK_TIMEOUT : RES_SUCCESS;
    if (reply_begin(&r, &late->to, code, bytes_str(remark), 0))
        reply_end(&r, 0);
}

static void give_done(const struct return_address *to, uint64_t position)
{
    if (to->oneway)
        return;
    struct late *late = late_make_to(to, sizeof *late);
    if (late)
        late_give(late, position, give);
    else
        give_refused(to, ERR_NO_MEMORY, NULL);
}

/* Nobody reads the answers of most, so what is refused is told here as well. */
static void tell_refused(struct door *door, const struct txn_end *end)
{
    log_limited(door->log, &door->ends_refused, LOG_WARN,
                "transaction not ended group=%s id=%s wanted=%s reason=%s", LOG_QUOTE(end->group),
                LOG_QUOTE(end->msg_id), end->commits ? "commit" : "rollback",
                LOG_QUOTE(bytes_str(fault_remark(end->err, &end->why))));
}

void ends_flush(struct door *door, struct seat *seat)
{
    struct ends *ends = seat->ends;
    if (!ends || ends->n == 0)
        return;
    uint64_t position = 0;
    broker_txn_end(door->broker, ends->desk, ends->ends, ends->n, &position);
    for (size_t i = 0; i < ends->n; i++) {
        const struct txn_end *end = &ends->ends[i];
        if (end->err) {
            tell_refused(door, end);
            give_refused(&ends->senders[i], end->err, &end->why);
        } else {
            give_done(&ends->senders[i], position);
        }
    }
    ends->n = 0;
    seat->undispatched |= position > 0;
}

void txn_ends(struct door *door, struct request *rq)
{
    struct end_fields f = {0};
    if (!request_fields(rq, &end_transaction_table, &f))
        return;
    if (f.decision == UNDECIDED) { /* it stays open; Apache does not even answer */
        answer(rq, RES_SUCCESS, NULL);
        return;
    }
    if (f.decision != COMMIT && f.decision != ROLLBACK) {
        answer(rq, RES_SYSTEM_ERROR, "commitOrRollback field wrong");
        return;
    }
    struct seat *seat = rq->session->seat;
    struct ends *ends = ends_of(door, seat);
    if (!ends) {
        answer_fault(rq, ERR_NO_MEMORY, NULL);
        return;
    }
    if (ends->n == ENDS_MAX)
        ends_flush(door, seat);
    ends->senders[ends->n] = return_address_of(rq);
    ends->ends[ends->n++] = (struct txn_end){
        .group = f.group,
        .msg_id = f.msg_id,
        .transaction_id = f.transaction_id,
        .position = f.position,
        .offset = f.offset,
        .commits = f.decision == COMMIT,
        .checked = f.checked,
    };
}

void txn_resume(struct door *door, struct request *rq)
{
    struct resume_fields f = {0};
    if (!request_fields(rq, &resume_check_table, &f))
        return;
    struct addr host;
    int64_t position;
    if (id_parse(f.msg_id, &host, &position)) {
        answer(rq, RES_SYSTEM_ERROR, "msgId is not the offset id of a message");
        return;
    }
    uint64_t end = 0;
    struct fault why = {0};
    enum err err =
        broker_txn_resume(door->broker, sends_desk(rq->session->seat->sends), position, &end, &why);
    struct return_address to = return_address_of(rq);
    if (err)
        give_refused(&to, err, &why);
    else
        give_done(&to, end);
    if (!err)
        broker_dispatch_turn(door->broker);
}

/* ---- asking ---- */

/* Witness: AbstractTransactionalMessageCheckListener.sendCheckMessage. */
static bool say_check(struct session *session, const struct txn_check *check, struct bytes body)
{
    const struct record *message = check->message;
    char position[24], offset[24], id[ID_TEXT_MAX];
    (void)snprintf(position, sizeof position, "%" PRId64, message->position);
    (void)snprintf(offset, sizeof offset, "%" PRId64, message->queue_offset);
    size_t len = id_format(&message->store_host, message->position, id);
    struct field fields[] = {
        {BYTES("topic"), HALF_TOPIC},
        {BYTES("tranStateTableOffset"), bytes_str(offset)},
        {BYTES("commitLogOffset"), bytes_str(position)},
        {BYTES("msgId"), check->unique_key},
        {BYTES("transactionId"), check->unique_key},
        {BYTES("offsetMsgId"), bytes_of(id, len)},
        {BYTES("bname"), bytes_str(session->door->options.broker_name)},
    };
    struct words words = {
        .code = REQ_CHECK_TRANSACTION_STATE,
        .flag = FLAG_ONEWAY,
        .fields = fields,
        .n_fields = sizeof fields / sizeof *fields,
        .body = body,
    };
    return session_tell(session, &words);
}

bool door_txn_check(struct counted *counted, const struct txn_check *check)
{
    size_t size = record_size(check->message);
    cleanup(free_at) uint8_t *text = size > 0 ? malloc(size) : NULL;
    if (!text)
        return false;
    struct wr w = wr_over(text, size);
    return record_encode(check->message, &w) == OK &&
           say_check((struct session *)counted, check, wr_bytes(&w));
}
