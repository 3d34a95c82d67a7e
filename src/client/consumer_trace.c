/* consumer_trace.c - telling what was consumed: message trace.
 *
 * A producer of the consumer's own carries the records (tracer.c): for each message one that its
 * handler began, and one that it ended, tied together by a request id. Both are told at the end, so
 * a handler that never returns leaves no trace. */
#include "client/consumer_int.h"
#include "client/producer_int.h"

int consumer_trace_open(struct omq_consumer *consumer, struct omq_error *why)
{
    const struct omq_producer_options options = {
        .group = consumer->options.group,
        .trace = true,
        .trace_topic = consumer->options.trace_topic,
    };
    return omq_producer_open(consumer->client, &options, &consumer->traces, why);
}

static void note(struct omq_producer *traces, const struct held *held, struct trace_record *r,
                 int64_t begun_ms, int64_t now_ms)
{
    const struct omq_delivery *d = &held->delivery;
    const char *region = omq_delivery_property(d, "MSG_REGION");
    r->id = bytes_str(d->id);
    r->keys = bytes_str(d->keys);
    r->region = region ? bytes_str(region) : (struct bytes){0};
    r->retry = d->attempt - 1;
    r->kind = TRACE_SUB_BEFORE;
    r->time_ms = begun_ms;
    tracer_note_end(traces, r);
    r->kind = TRACE_SUB_AFTER;
    r->time_ms = now_ms;
    r->cost_ms = (int32_t)(now_ms - begun_ms);
    tracer_note_end(traces, r);
}

void consumer_trace(const struct omq_batch *batch)
{
    const struct omq_consumer *consumer = batch->consumer;
    struct omq_client *client = consumer->client;
    if (!consumer->traces)
        return;
    char request[ID_TEXT_MAX];
    client_new_id(client, request);
    int64_t now_ms = clock_ms(client->clock);
    uint64_t now_ns = clock_ns(client->clock);
    for (size_t i = 0; i < batch->readable; i++) {
        const struct held *held = batch->held[i];
        const char *on = omq_delivery_property(&held->delivery, "TRACE_ON");
        if (topic_is_system(bytes_str(held->delivery.queue.topic)) ||
            (on && strcmp(on, "false") == 0))
            continue;
        uint64_t begun_ns = atomic_load_explicit(&held->begun_ns, memory_order_relaxed);
        bool done = held->outcome == OUTCOME_DONE;
        struct trace_record record = {
            .group = bytes_str(consumer->group),
            .request_id = bytes_str(request),
            .success = done,
            .result = done ? TRACE_DONE : TRACE_FAILED,
        };
        note(consumer->traces, held, &record, now_ms - (int64_t)((now_ns - begun_ns) / 1000000),
             now_ms);
    }
}
