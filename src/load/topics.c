/* topics.c - what a run needs before it begins: topics, their queues, clients, bodies. */
#include "load/load_int.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUTE_WAIT_NS (10 * UINT64_C(1000000000)) /* a topic that was just made gets known */
#define ROUTE_NAP_NS  (20 * NS_OF_MS)

enum err fault_omq(struct fault *why, const struct omq_error *error)
{
    static const struct {
        int code;
        enum err err;
    } same[] = {{OMQ_INVALID, ERR_INVALID},
                {OMQ_NO_MEMORY, ERR_NO_MEMORY},
                {OMQ_TIMEOUT, ERR_TIMEOUT},
                {OMQ_NETWORK, ERR_CLOSED},
                {OMQ_LOST, ERR_CLOSED},
                {OMQ_NO_TOPIC, ERR_UNKNOWN_TOPIC},
                {OMQ_NO_GROUP, ERR_UNKNOWN_GROUP},
                {OMQ_DENIED, ERR_DENIED},
                {OMQ_TOO_BIG, ERR_TOO_BIG},
                {OMQ_BUSY, ERR_BUSY}};
    enum err err = ERR_IO;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same[i].code == error->code)
            err = same[i].err;
    return fault_set(why, err, "%s", error->text);
}

/* ---- clients ---- */

enum err client_make(const struct load_options *options, struct omq_client **out, struct fault *why)
{
    struct omq_error error;
    if (omq_client_open(options->client, out, &error))
        return fault_omq(why, &error);
    return OK;
}

enum err producer_make(struct run *run, struct omq_client *client, struct omq_producer **out,
                       struct fault *why)
{
    struct omq_error error;
    const struct omq_producer_options as = {
        .group = run->options.group,
        .timeout_ms = run->options.client->timeout_ms,
        .retries = -1,             /* what takes two tries would count as one slow message */
        .compress_over = SIZE_MAX, /* the size is what was said */
        .max_in_flight = (int)run->options.in_flight + 1,
        .max_message_size = 8u << 20,
        .queues = 8,
    };
    if (omq_producer_open(client, &as, out, &error))
        return fault_omq(why, &error);
    return OK;
}

/* ---- bodies ---- */

void body_fill(uint8_t *body, size_t size)
{
    for (size_t i = 0; i < size; i++)
        body[i] = (uint8_t)(i * 7 + i / 256 + 1); /* not all zeros */
}

void stamp_put(uint8_t *body, const struct stamp *stamp)
{
    store_u64(body, stamp->run);
    store_u64(body + 8, stamp->due_ns);
    store_u64(body + 16, stamp->number);
}

struct stamp stamp_get(const uint8_t *body)
{
    return (struct stamp){load_u64(body), load_u64(body + 8), load_u64(body + 16)};
}

/* ---- topics ---- */

void load_topic_name(const struct load_options *options, unsigned i, char out[LOAD_NAME_SIZE])
{
    if (options->topics > 1)
        (void)snprintf(out, LOAD_NAME_SIZE, "%s-%u", options->topic, i);
    else
        (void)snprintf(out, LOAD_NAME_SIZE, "%s", options->topic);
}

const char *run_topic(const struct run *run, uint64_t number)
{
    return run->topics[number % run->options.topics];
}

/* A message for each: it makes the topic, and shows that the way there is open. The stamp of run 0
 * is nobody's. */
static enum err topics_make(struct run *run, struct fault *why)
{
    struct omq_producer *producer;
    struct omq_error error;
    static const char body[LOAD_STAMP_SIZE];
    enum err err = producer_make(run, run->client, &producer, why);
    for (unsigned i = 0; !err && i < run->options.topics; i++) {
        struct omq_message m = {
            .topic = run->topics[i], .body = body, .body_size = sizeof body, .tag = "bench"};
        if (omq_send(producer, &m, NULL, &error))
            return fault_omq(why, &error); /* the client's close closes the producer */
        atomic_fetch_add(&run->stored, 1);
    }
    if (!err)
        omq_producer_close(producer);
    return err;
}

static enum err queues_find(struct run *run, unsigned topic, size_t *n, struct fault *why)
{
    struct omq_error error;
    bool ours = run->options.kind != LOAD_CONSUME || run->options.fill > 0;
    uint64_t give_up = run_ns(run) + (ours ? ROUTE_WAIT_NS : 0);
    for (;;) {
        int code =
            omq_topic_queues(run->client, run->topics[topic], &run->queues[topic], n, &error);
        if (!code && *n > 0)
            return OK;
        if (run_ns(run) >= give_up)
            return code ? fault_omq(why, &error)
                        : fault_set(why, ERR_UNKNOWN_TOPIC, "topic %s has no queues",
                                    run->topics[topic]);
        sleep_until(run_ns(run) + ROUTE_NAP_NS);
    }
}

enum err places_measure(struct run *run, struct fault *why)
{
    struct omq_error error;
    run->backlog = 0;
    for (size_t i = 0; i < run->n_places; i++) {
        struct place *place = &run->places[i];
        if (omq_offset(run->client, &place->queue, OMQ_BEGIN, &place->begin, &error) ||
            omq_offset(run->client, &place->queue, OMQ_END, &place->end, &error))
            return fault_omq(why, &error);
        if (place->end > place->begin)
            run->backlog += (uint64_t)(place->end - place->begin);
    }
    return OK;
}

/* All queues in one row, and for readers where they begin and end now. */
static enum err places_find(struct run *run, struct fault *why)
{
    size_t cap = 0;
    enum err err = OK;
    for (unsigned i = 0; !err && i < run->options.topics; i++) {
        size_t n = 0;
        err = queues_find(run, i, &n, why);
        if (!err && run->n_places + n > cap) {
            cap = (run->n_places + n) * 2;
            struct place *bigger = realloc(run->places, cap * sizeof *bigger);
            if (!bigger)
                return ERR_NO_MEMORY;
            run->places = bigger;
        }
        for (size_t k = 0; !err && k < n; k++)
            run->places[run->n_places++] = (struct place){.queue = run->queues[i][k]};
    }
    return err || run->options.kind == LOAD_SEND ? err : places_measure(run, why);
}

enum err topics_prepare(struct run *run, struct fault *why)
{
    const struct load_options *o = &run->options;
    run->topics = calloc(o->topics, sizeof *run->topics);
    run->queues = calloc(o->topics, sizeof *run->queues);
    if (!run->topics || !run->queues)
        return ERR_NO_MEMORY;
    for (unsigned i = 0; i < o->topics; i++)
        load_topic_name(o, i, run->topics[i]);
    enum err err = client_make(o, &run->client, why);
    if (!err && o->kind != LOAD_CONSUME)
        err = topics_make(run, why);
    if (!err && (o->kind != LOAD_SEND || o->raw))
        err = places_find(run, why);
    return err;
}
