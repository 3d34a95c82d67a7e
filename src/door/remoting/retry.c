/* retry.c - CONSUMER_SEND_MSG_BACK: a consumer gives a message back.
 *
 * The consumer forgets the message when it reads the answer, so the answer waits until the copy is
 * confirmed, like that of a send. */
#include "door/remoting/door_int.h"

#define VERSION_3_4_9 121 /* from here on clients mean what they say in maxReconsumeTimes */

bool names_max_reconsume(const struct request *rq, int32_t max_reconsume_times)
{
    return rq->head->version >= VERSION_3_4_9 && max_reconsume_times != NO_MAX_RECONSUME;
}

/* Every other failure is a plain error here: on it the client sends the message itself. */
static int32_t back_code_of(enum err err)
{
    if (err == ERR_UNKNOWN_GROUP || err == ERR_DENIED || err == ERR_BUSY)
        return response_code_of(err);
    return err ? RES_SYSTEM_ERROR : RES_SUCCESS;
}

static void give(const struct late *late)
{
    struct reply r;
    const char *remark = late->err ? err_text(late->err) : NULL;
    if (reply_begin(&r, &late->to, back_code_of(late->err), bytes_str(remark), 0))
        reply_end(&r, 0);
}

void send_back(struct door *door, struct request *rq)
{
    struct send_back_fields f = {.max_reconsume_times = NO_MAX_RECONSUME};
    if (!request_fields(rq, &send_back_table, &f))
        return;
    struct send_back back = {
        .group = f.group,
        .position = f.position,
        .delay_level = f.delay_level,
        .max_reconsume_times = f.max_reconsume_times,
        .has_max_reconsume_times = names_max_reconsume(rq, f.max_reconsume_times),
    };
    uint64_t end = 0;
    struct fault why = {0};
    struct sends *sends = rq->session->seat->sends;
    enum err err = store_keeps_up(door, sends, &why)
                       ? broker_send_back(door->broker, sends_desk(sends), &back, &end, &why)
                       : ERR_BUSY;
    if (err) {
        answer(rq, back_code_of(err), fault_remark(err, &why));
        return;
    }
    struct late *late = late_make(rq, sizeof *late);
    if (late)
        late_give(late, end, give);
    else /* stored, but the consumer must not rely on it */
        answer(rq, back_code_of(ERR_NO_MEMORY), err_text(ERR_NO_MEMORY));
    broker_dispatch_turn(door->broker);
}
