/* tracer.c - telling what was sent: message trace.
 *
 * Records are gathered until there are ten, or five seconds have passed, and leave as one message
 * to the trace topic. Traces are told when there is time for them: they are never waited for (but
 * by a close), and a trace that cannot be sent is gone. */
#include "client/producer_int.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH    10
#define EVERY_MS 5000

struct tracer {
    struct omq_producer *producer;
    struct trace_batch batch;
    struct timer *timer; /* made when first needed: only the loop may make one */
    char group[NAME_GROUP_MAX + 48];
};

enum err tracer_open(struct omq_producer *producer)
{
    struct tracer *tracer = calloc(1, sizeof *tracer);
    if (!tracer)
        return ERR_NO_MEMORY;
    tracer->producer = producer;
    trace_init(&tracer->batch);
    (void)snprintf(tracer->group, sizeof tracer->group, "_INNER_TRACE_PRODUCER-%s-PRODUCE-1",
                   producer->group);
    producer->tracer = tracer;
    return OK;
}

void tracer_close(struct tracer *tracer)
{
    if (!tracer)
        return;
    if (tracer->timer)
        timer_close(tracer->timer);
    trace_clear(&tracer->batch);
    free(tracer);
}

static void tracer_turn(void *user)
{
    struct tracer *tracer = user;
    tracer_flush(tracer->producer);
}

void tracer_flush(struct omq_producer *producer)
{
    struct tracer *tracer = producer->tracer;
    if (!tracer || tracer->batch.n == 0)
        return;
    if (tracer->timer)
        timer_stop(tracer->timer);
    char *keys = bytes_text(buf_bytes(&tracer->batch.keys));
    const struct omq_message message = {
        .topic = producer->trace_topic,
        .keys = keys,
        .body = tracer->batch.body.at,
        .body_size = tracer->batch.body.len,
    };
    struct draft draft;
    struct job *job;
    struct omq_error why;
    if (keys && !draft_begin(&draft, producer, &message, &why) &&
        !job_make(producer, &draft, &job, &why)) {
        job->how = JOB_OURS;
        job->group = bytes_str(tracer->group);
        job_begin_here(job, (uint64_t)producer->options.timeout_ms);
    }
    free(keys);
    trace_reset(&tracer->batch);
}

static void add(struct tracer *tracer, const struct trace_record *record)
{
    struct omq_client *client = tracer->producer->client;
    if (trace_add(&tracer->batch, record) == ERR_TOO_BIG) {
        tracer_flush(tracer->producer);
        if (trace_add(&tracer->batch, record))
            return;
    }
    if (tracer->batch.n >= BATCH) {
        tracer_flush(tracer->producer);
        return;
    }
    if (tracer->timer || timer_open(client->loop, tracer_turn, tracer, &tracer->timer) == OK) {
        if (tracer->batch.n == 1)
            timer_start(tracer->timer, EVERY_MS, 0);
    }
}

static enum trace_type type_of(const struct job *job)
{
    struct bytes value;
    if (job->sys_flag & SYS_TX_PREPARED)
        return TRACE_HALF;
    if (props_get(job->props, PROP_DELAY, &value) ||
        props_get(job->props, BYTES("TIMER_DELAY_MS"), &value) ||
        props_get(job->props, BYTES("TIMER_DELIVER_MS"), &value))
        return TRACE_DELAY;
    return job->sharded ? TRACE_ORDER : TRACE_NORMAL;
}

static void note_one(struct tracer *tracer, const struct job *job, struct bytes props, size_t size,
                     struct bytes offset_id)
{
    const struct omq_client *client = job->producer->client;
    struct trace_record record = {
        .kind = TRACE_PUB,
        .time_ms = clock_ms(client->clock),
        .region = bytes_str(job->region),
        .group = job->group,
        .topic = job->topic,
        .offset_id = offset_id,
        .body_size = (int32_t)size,
        .cost_ms =
            job->begun_ns ? (int32_t)((clock_ns(client->clock) - job->begun_ns) / 1000000) : 0,
        .type = type_of(job),
        .success = job->code == OMQ_OK,
    };
    struct marks marks = props_marks(props);
    record.id = marks.unique;
    record.tags = marks.tags;
    record.keys = marks.keys;
    if (job->route && job->queue)
        record.store_host = job->route->brokers[job->queue->broker].master;
    add(tracer, &record);
}

/* The messages of a batch have a record each: all ids are found. */
static void note_batch(struct tracer *tracer, const struct job *job)
{
    struct rd r = rd_over(job->body);
    struct batch_item item;
    bool more;
    const char *ids = job->offset_ids ? job->offset_ids : "";
    while (batch_next(&r, &item, &more) == OK && more) {
        size_t len = strcspn(ids, ",");
        note_one(tracer, job, item.props, item.body.len, bytes_of(ids, len));
        ids += len + (ids[len] == ',');
    }
}

void tracer_note(const struct job *job)
{
    struct tracer *tracer = job->producer->tracer;
    if (!tracer || job->how == JOB_OURS || job->untraced || topic_is_system(job->topic))
        return;
    if (job->batch)
        note_batch(tracer, job);
    else
        note_one(tracer, job, job->props, job->plain_size, bytes_str(job->receipt.offset_id));
}

void tracer_note_end(struct omq_producer *producer, const struct trace_record *record)
{
    if (producer->tracer)
        add(producer->tracer, record);
}
