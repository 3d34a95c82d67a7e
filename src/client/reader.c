/* reader.c - the consumer's other face: the application asks for messages when it wants them.
 *
 * A reader is a consumer without a handler. It gives nothing back to the broker: what is not
 * finished, or fails, comes again here. Its queues are shared with the other members of its group,
 * or given by the application; then no heartbeat names it, because the others would leave it a part
 * that it does not read. */
#include "client/consumer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMIT_EVERY_MS 5000
#define PULL_BATCH      10
#define PULL_BATCH_MAX  1024

struct omq_reader {
    struct omq_consumer consumer; /* and nothing else: husks are for both */
};

int omq_reader_open(struct omq_client *client, const struct omq_reader_options *options,
                    struct omq_reader **out, struct omq_error *why)
{
    struct fault fault = {0};
    if (!client || !options || !out)
        return omq_fail(why, OMQ_INVALID, "a reader needs a client, options and a place");
    if (!options->group || group_name_check(bytes_str(options->group), &fault))
        return omq_fail(why, OMQ_INVALID, "%s",
                        options->group ? fault.text : "a reader needs a group");
    if (options->start < OMQ_FROM_LAST || options->start > OMQ_FROM_TIME ||
        (options->share != OMQ_AVERAGELY && options->share != OMQ_BY_CIRCLE &&
         options->share != OMQ_BY_HASH) ||
        options->pull_batch > PULL_BATCH_MAX || (options->sql && !options->expression))
        return omq_fail(why, OMQ_INVALID,
                        "start, share, pull_batch or sql is not one of its values");
    if (client_on_own_thread(client))
        return omq_fail(why, OMQ_MISUSE, "a reader cannot be opened from a callback");
    struct omq_consumer *consumer = consumer_new(client);
    if (!consumer)
        return omq_fail(why, OMQ_NO_MEMORY, "no memory for a reader");
    int batch = options->pull_batch > 0 ? options->pull_batch : PULL_BATCH;
    consumer->reads = true;
    consumer->sql = options->sql;
    consumer->wanted = options->expression;
    consumer->commit_every_ms =
        options->commit_every_ms ? options->commit_every_ms : COMMIT_EVERY_MS;
    consumer->options = (struct omq_consumer_options){
        .group = options->group,
        .start = options->start,
        .start_ms = options->start_ms,
        .pull_batch = batch,
        .batch = batch,
        .max_messages = options->max_messages,
        .max_mib = options->max_mib,
        .share = options->share,
        .close_ms = 1, /* what was taken and is not finished comes again */
    };
    enum err err = consumer_begin(consumer, why);
    if (err)
        return omq_fail(why, omq_code_of(err), "reader %s cannot be opened: %s", options->group,
                        err_text(err));
    *out = list_entry(consumer, struct omq_reader, consumer);
    return OMQ_OK;
}

void omq_reader_close(struct omq_reader *reader)
{
    omq_consumer_close(reader ? &reader->consumer : NULL);
}

int omq_reader_subscribe(struct omq_reader *reader, const struct omq_subscription *subscription,
                         struct omq_error *why)
{
    if (!reader || !subscription)
        return omq_fail(why, OMQ_INVALID, "no reader, or no subscription");
    return consumer_subscribe(&reader->consumer, subscription, why);
}

int omq_reader_take(struct omq_reader *reader, int timeout_ms, struct omq_batch **out,
                    struct omq_error *why)
{
    if (!reader || !out)
        return omq_fail(why, OMQ_INVALID, "no reader, or no place for the batch");
    if (loop_is_mine(reader->consumer.client->loop))
        return omq_fail(why, OMQ_MISUSE, "messages cannot be waited for in this callback");
    size_t n;
    return consumer_take(&reader->consumer, timeout_ms, out, 1, &n, why);
}

/* ---- something on the loop, while the reader is open ---- */

struct visit {
    struct omq_consumer *consumer;
    const struct omq_queue *queues;
    size_t n;
    int64_t offset;
    bool waits; /* for `waiter`, which hears of the last of `left` */
    bool again; /* that was but a part of it */
    struct waiter waiter;
    size_t left;
    int code;
    struct omq_error why;
};

static int visit(struct omq_reader *reader, void (*how)(void *), struct visit *v,
                 struct omq_error *why)
{
    v->consumer = &reader->consumer;
    if (!consumer_entered(v->consumer))
        return omq_fail(why, OMQ_CLOSED, "the reader is closed");
    if (v->waits)
        waiter_init(&v->waiter);
    client_on_loop(v->consumer->client, how, v);
    if (v->waits)
        waiter_wait(&v->waiter);
    consumer_left(v->consumer);
    if (v->code && why)
        *why = v->why;
    return v->code;
}

/* ---- queues that are given ---- */

static void assign_topic(struct omq_consumer *consumer, const char *topic)
{
    struct sub *sub;
    if (sub_find(consumer, topic) ||
        sub_make(consumer, topic, consumer->expression, consumer->sql, &sub))
        return;
    list_add_tail(&consumer->subs, &sub->link);
    route_of_sub(sub);
}

static void assign_here(void *user)
{
    struct visit *v = user;
    struct omq_consumer *consumer = v->consumer;
    if (!consumer->assigned && !list_empty(&consumer->subs)) {
        v->code = omq_fail(&v->why, OMQ_MISUSE, "this reader has subscribed to topics");
        return;
    }
    consumer->assigned = true;
    list_each(k, &consumer->lanes)
        list_entry(k, struct lane, link)->wanted = false;
    for (size_t i = 0; i < v->n; i++) {
        struct lane *lane = lane_find(consumer, &v->queues[i]);
        if (lane)
            lane->wanted = true;
        else if (lane_open(consumer, &v->queues[i], 0))
            v->code = omq_fail(&v->why, OMQ_NO_MEMORY, "no memory for queues");
        assign_topic(consumer, v->queues[i].topic);
    }
    list_each(k, &consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (!lane->wanted)
            lane_leave(lane);
    }
}

static bool is_queue(const struct omq_queue *queue)
{
    return queue && queue->topic && queue->broker && queue->id >= 0 &&
           topic_name_check(bytes_str(queue->topic), NULL) == OK;
}

int omq_reader_assign(struct omq_reader *reader, const struct omq_queue *queues, size_t n,
                      struct omq_error *why)
{
    if (!reader || (n > 0 && !queues))
        return omq_fail(why, OMQ_INVALID, "no reader, or no queues");
    for (size_t i = 0; i < n; i++)
        if (!is_queue(&queues[i]))
            return omq_fail(why, OMQ_INVALID, "queue %zu lacks a topic, a broker or a number", i);
    return visit(reader, assign_here, &(struct visit){.queues = queues, .n = n}, why);
}

/* ---- where it is ---- */

static void seek_here(void *user)
{
    struct visit *v = user;
    struct lane *lane = lane_find(v->consumer, v->queues);
    if (lane)
        lane_reset(lane, v->offset);
    else
        v->code = omq_fail(&v->why, OMQ_NOT_FOUND, "%s:%d of topic %s is not this reader's",
                           v->queues->broker, v->queues->id, v->queues->topic);
}

int omq_reader_seek(struct omq_reader *reader, const struct omq_queue *queue, int64_t offset,
                    struct omq_error *why)
{
    if (!reader || !is_queue(queue) || offset < 0)
        return omq_fail(why, OMQ_INVALID, "a place needs a reader, a queue and an offset from 0");
    return visit(reader, seek_here, &(struct visit){.queues = queue, .offset = offset}, why);
}

static void commit_over(void *user, const struct answer *answer)
{
    struct visit *v = user;
    if (answer && answer->err)
        v->code = omq_fail(&v->why, omq_code_of(answer->err), "an offset may not be stored: %s",
                           answer->reason);
    else if (answer && answer->head->code != RES_SUCCESS)
        v->code = omq_refused(&v->why, answer->head, "an offset is not stored");
    if (--v->left == 0)
        waiter_tell(&v->waiter);
}

static bool some_go_ahead(const struct omq_consumer *consumer)
{
    list_each(k, &consumer->lanes)
        if (offset_goes_ahead(list_entry(k, struct lane, link)))
            return true;
    return false;
}

static void commit_here(void *user)
{
    struct visit *v = user;
    bool ahead = !v->again && some_go_ahead(v->consumer);
    v->again = false;
    v->left = 1; /* ours, until all are asked */
    list_each(k, &v->consumer->lanes) {
        struct lane *lane = list_entry(k, struct lane, link);
        if (ahead && !offset_goes_ahead(lane)) {
            v->again |= offset_is_due(lane);
            continue;
        }
        v->left++;
        if (!offset_settle(lane, commit_over, v))
            v->left--;
    }
    commit_over(v, NULL);
}

int omq_reader_commit(struct omq_reader *reader, struct omq_error *why)
{
    if (!reader)
        return omq_fail(why, OMQ_INVALID, "there is no reader");
    if (loop_is_mine(reader->consumer.client->loop))
        return omq_fail(why, OMQ_MISUSE, "an answer cannot be waited for in this callback");
    struct visit v = {.waits = true};
    int code;
    do
        code = visit(reader, commit_here, &v, why);
    while (!code && v.again);
    return code;
}

static void commit_soon(void *user)
{
    struct visit *v = user;
    list_each(k, &v->consumer->lanes)
        offset_say(list_entry(k, struct lane, link));
}

int omq_reader_commit_async(struct omq_reader *reader, struct omq_error *why)
{
    if (!reader)
        return omq_fail(why, OMQ_INVALID, "there is no reader");
    return visit(reader, commit_soon, &(struct visit){0}, why);
}

struct stored_question {
    struct question question;
    int64_t offset;
};

static int stored_got(struct question *q, const struct answer *answer)
{
    struct stored_question *s = list_entry(q, struct stored_question, question);
    if (!bytes_to_i64(head_field(answer->head, BYTES("offset")), &s->offset) || s->offset < 0)
        return omq_fail(&q->why, OMQ_PROTOCOL, "the broker's answer has no offset");
    return OMQ_OK;
}

int omq_reader_committed(struct omq_reader *reader, const struct omq_queue *queue, int64_t *offset,
                         struct omq_error *why)
{
    if (!reader || !is_queue(queue) || !offset)
        return omq_fail(why, OMQ_INVALID, "an offset needs a reader, a queue and a place");
    struct omq_consumer *consumer = &reader->consumer;
    if (!consumer_entered(consumer))
        return omq_fail(why, OMQ_CLOSED, "the reader is closed");
    char id[16];
    (void)snprintf(id, sizeof id, "%d", queue->id);
    struct stored_question s = {.question = {
                                    .client = consumer->client,
                                    .request = REQ_QUERY_CONSUMER_OFFSET,
                                    .topic = bytes_str(queue->topic),
                                    .broker = bytes_str(queue->broker),
                                    .fields = {{BYTES("consumerGroup"), bytes_str(consumer->group)},
                                               {BYTES("topic"), bytes_str(queue->topic)},
                                               {BYTES("queueId"), bytes_str(id)}},
                                    .n_fields = 3,
                                    .got = stored_got,
                                }};
    int code = question_ask(&s.question, why);
    consumer_left(consumer);
    if (!code)
        *offset = s.offset;
    return code;
}
