/* lock.c - LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: queues that a client consumes in order. */
#include "door/remoting/door_int.h"

/* The request as the broker wants it; false: it has been answered. */
static bool batch_take(struct request *rq, struct lock_batch *batch, struct lock_wish **wishes)
{
    enum err err = lock_batch_read(rq->body, rq->arena, batch);
    if (!err && !(*wishes = arena_alloc(rq->arena, (batch->n_queues + 1) * sizeof **wishes)))
        err = ERR_TOO_BIG;
    if (err) {
        answer(rq, RES_SYSTEM_ERROR,
               err == ERR_TOO_BIG ? "the list of queues is too big"
                                  : "the body should name consumerGroup, clientId and mqSet, and "
                                    "cannot be read");
        return false;
    }
    for (size_t i = 0; i < batch->n_queues; i++) {
        const struct queue_name *queue = &batch->queues[i];
        (*wishes)[i] = (struct lock_wish){.topic = queue->topic, .queue_id = queue->queue_id};
    }
    return true;
}

void lock_batch(struct door *door, struct request *rq)
{
    struct lock_batch batch;
    struct lock_wish *wishes;
    if (!batch_take(rq, &batch, &wishes))
        return;
    struct fault why = {0};
    enum err err =
        broker_lock(door->broker, batch.group, batch.client_id, wishes, batch.n_queues, &why);
    if (err) {
        answer_fault(rq, err, &why);
        return;
    }
    size_t granted = 0;
    for (size_t i = 0; i < batch.n_queues; i++)
        if (wishes[i].granted)
            batch.queues[granted++] = batch.queues[i];
    struct buf body = buf_upto(BODY_MAX);
    locked_write(&body, batch.queues, granted);
    answer_buf(rq, &body);
}

void unlock_batch(struct door *door, struct request *rq)
{
    struct lock_batch batch;
    struct lock_wish *wishes;
    if (!batch_take(rq, &batch, &wishes))
        return;
    struct fault why = {0};
    enum err err =
        broker_unlock(door->broker, batch.group, batch.client_id, wishes, batch.n_queues, &why);
    if (err)
        answer_fault(rq, err, &why);
    else
        answer(rq, RES_SUCCESS, NULL);
}
