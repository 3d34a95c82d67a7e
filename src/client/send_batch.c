/* send_batch.c - several messages in one request.
 *
 * A batch goes to one queue as one request, so its size has a limit: max_message_size, which
 * brokers have too (maxMessageSize). What does not fit goes into the next request. Messages of a
 * batch are not compressed: a broker takes it apart and stores each for itself. */
#include "client/producer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define OUTER_ROOM 16 /* of the properties of a batch */
#define ITEM_FIXED 22 /* of a message in a batch, beside body and properties */

static bool same_text(const char *a, const char *b)
{
    return (!a || !b) ? a == b : strcmp(a, b) == 0;
}

static bool same_place(const struct omq_message *a, const struct omq_message *b)
{
    if (!a->queue != !b->queue)
        return false;
    if (a->queue &&
        (a->queue->id != b->queue->id || !same_text(a->queue->broker, b->queue->broker)))
        return false;
    return same_text(a->sharding_key, b->sharding_key);
}

static int batch_check(const struct omq_message *m, size_t n, struct omq_error *why)
{
    for (size_t i = 0; i < n; i++) {
        if (!same_text(m[i].topic, m[0].topic))
            return omq_fail(why, OMQ_INVALID,
                            "message %zu of the batch has another topic than the first", i);
        if (m[i].delay_level || m[i].delay_ms || m[i].deliver_ms)
            return omq_fail(why, OMQ_INVALID,
                            "message %zu of the batch has a delay, which batches cannot have", i);
        if (m[i].no_wait != m[0].no_wait || !same_place(&m[i], &m[0]))
            return omq_fail(why, OMQ_INVALID,
                            "message %zu of the batch has another queue, sharding_key or no_wait "
                            "than the first",
                            i);
    }
    if (m[0].topic && bytes_start(bytes_str(m[0].topic), RETRY_PREFIX))
        return omq_fail(why, OMQ_INVALID, "a batch cannot go to a retry topic");
    return OMQ_OK;
}

static size_t item_room(const struct draft *draft)
{
    return ITEM_FIXED + draft_props_room(draft) + draft->message->body_size;
}

static void item_add(struct wr *w, const struct draft *draft)
{
    uint8_t props[RECORD_PROPS_MAX];
    struct wr p = wr_over(props, sizeof props);
    draft_props_write(draft, &p);
    batch_add(w, &(struct batch_item){
                     .flag = draft->message->flag,
                     .body = bytes_of(draft->message->body, draft->message->body_size),
                     .props = wr_bytes(&p),
                 });
}

/* The outer properties have no unique id: brokers from 5.0 to 5.3.3 would give it to all messages
 * of the batch. */
static int chunk_send(struct omq_producer *producer, struct draft *drafts, size_t n, size_t room,
                      struct omq_receipt *receipts, struct omq_error *why)
{
    struct job *job = job_alloc(producer, drafts[0].message, OUTER_ROOM, room);
    if (!job)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a batch of %zu bytes", room);
    struct wr props = wr_over(job->space, OUTER_ROOM);
    props_add(&props, PROP_WAIT, drafts[0].message->no_wait ? BYTES("false") : BYTES("true"));
    job->props.len = wr_len(&props);
    struct wr body = wr_over(job->space + OUTER_ROOM, room);
    for (size_t i = 0; i < n; i++)
        item_add(&body, &drafts[i]);
    invariant(!body.full && !props.full);
    job->body.len = job->plain_size = wr_len(&body);
    job->flag = 0;
    job->batch = true;
    job->request = REQ_SEND_BATCH_MESSAGE;
    int code = job_run(job, (uint64_t)producer->options.timeout_ms, why);
    const char *ids = job->offset_ids ? job->offset_ids : "";
    for (size_t i = 0; !code && receipts && i < n; i++) {
        size_t len = strcspn(ids, ",");
        receipts[i] = job->receipt;
        receipts[i].queue_offset += (int64_t)i;
        (void)snprintf(receipts[i].id, sizeof receipts[i].id, "%s", drafts[i].id);
        (void)snprintf(receipts[i].offset_id, sizeof receipts[i].offset_id, "%.*s", (int)len, ids);
        ids += len + (ids[len] == ',');
    }
    job_free(job);
    return code;
}

static int drafts_make(struct omq_producer *producer, const struct omq_message *messages, size_t n,
                       struct draft *drafts, struct omq_error *why)
{
    for (size_t i = 0; i < n; i++) {
        int code = draft_begin(&drafts[i], producer, &messages[i], why);
        if (code)
            return code;
        if (draft_props_room(&drafts[i]) > RECORD_PROPS_MAX ||
            item_room(&drafts[i]) > producer->options.max_message_size)
            return omq_fail(why, OMQ_TOO_BIG,
                            "message %zu of the batch does not fit in one request with its "
                            "properties (max_message_size is %zu)",
                            i, producer->options.max_message_size);
    }
    return OMQ_OK;
}

int omq_send_batch(struct omq_producer *producer, const struct omq_message *messages, size_t n,
                   struct omq_receipt *receipts, size_t *n_sent, struct omq_error *why)
{
    int code = producer_check(producer, true, why);
    if (!code && (!messages || n == 0))
        code = omq_fail(why, OMQ_INVALID, "a batch has no messages");
    if (!code)
        code = batch_check(messages, n, why);
    struct draft *drafts = code ? NULL : calloc(n, sizeof *drafts);
    if (!code && !drafts)
        code = omq_fail(why, OMQ_NO_MEMORY, "no memory for a batch of %zu messages", n);
    if (!code)
        code = drafts_make(producer, messages, n, drafts, why);
    size_t done = 0;
    while (!code && done < n) {
        size_t end = done, room = 0;
        while (end < n && room + item_room(&drafts[end]) <= producer->options.max_message_size)
            room += item_room(&drafts[end++]);
        code = chunk_send(producer, drafts + done, end - done, room,
                          receipts ? receipts + done : NULL, why);
        if (!code)
            done = end;
    }
    free(drafts);
    if (n_sent)
        *n_sent = done;
    return code;
}
